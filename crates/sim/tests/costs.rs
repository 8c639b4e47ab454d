//! What elementary accesses cost: computed from the machine, and compared to the cycle.

use hedgerow_sim::atomic::{AtomicU64, Ordering::*};
use hedgerow_sim::{Arbitration, Counts, Machine, Record, cycles, run, spin_loop, thread};
use std::sync::Arc;

#[repr(align(4096))]
struct Page<const LINES: usize>([Line; LINES]);

#[repr(align(64))]
#[derive(Default)]
struct Line(AtomicU64);

fn page<const LINES: usize>() -> Arc<Page<LINES>> {
    Arc::new(Page(std::array::from_fn(|_| Line::default())))
}

/// Cycles of the calling thread that `f` takes.
fn cost(f: impl FnOnce()) -> u64 {
    let before = cycles().unwrap();
    f();
    cycles().unwrap() - before
}

fn record(machine: &Machine, main: impl FnOnce() + 'static) -> Record {
    run(machine, main).unwrap().1
}

/// Runs `body` in `count` threads at once, and hands it the thread's number. Cycles from the first one's begin to the last
/// one's end, and the record.
fn crowd(
    machine: &Machine,
    count: u64,
    body: impl Fn(u64) + Send + Sync + 'static,
) -> (u64, Record) {
    let began = Arc::new(std::sync::atomic::AtomicU64::new(u64::MAX));
    let ended = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let times = (Arc::clone(&began), Arc::clone(&ended));
    let body = move |at| {
        times.0.fetch_min(cycles().unwrap(), Relaxed);
        body(at);
        times.1.fetch_max(cycles().unwrap(), Relaxed);
    };
    let record = record(machine, move || {
        let body = Arc::new(body);
        let go = Arc::new(page::<1>());
        let start = |at| {
            let (body, go) = (Arc::clone(&body), Arc::clone(&go));
            let body = move || {
                while go.0[0].0.load(Acquire) == 0 {
                    spin_loop();
                }
                body(at);
            };
            thread::spawn(body)
        };
        let threads: Vec<_> = (0..count).map(start).collect();
        thread::sleep(std::time::Duration::from_millis(1));
        go.0[0].0.store(1, Release);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    (ended.load(Relaxed) - began.load(Relaxed), record)
}

#[test]
fn first_touch_comes_from_memory_and_what_is_held_is_a_hit() {
    for (name, preset) in Machine::PRESETS {
        let machine = preset.without_jitter();
        let costs = machine.clone();
        let record = record(&machine, move || {
            let page = page::<2>();
            let (hit, rmw) = (u64::from(costs.hit), u64::from(costs.rmw));
            assert_eq!(cost(|| _ = page.0[0].0.load(Acquire)), u64::from(costs.memory), "{name}");
            assert_eq!(cost(|| _ = page.0[0].0.load(Acquire)), hit);
            assert_eq!(cost(|| page.0[0].0.store(1, Release)), hit);
            assert_eq!(cost(|| page.0[0].0.store(1, SeqCst)), hit + rmw);
            assert_eq!(cost(|| _ = page.0[0].0.fetch_add(1, Relaxed)), hit + rmw);
            assert_eq!(cost(|| hedgerow_sim::atomic::fence(SeqCst)), rmw);
            assert_eq!(cost(|| hedgerow_sim::atomic::fence(AcqRel)), 0);
            assert_eq!(cost(spin_loop), u64::from(costs.pause));
            assert_eq!(cost(|| hedgerow_sim::work(500)), 500);
            let first = cost(|| _ = page.0[1].0.fetch_add(1, Relaxed));
            assert_eq!(first, u64::from(costs.memory) + rmw);
        });
        assert_eq!((record.counts.memory, record.counts.hits), (2, 4), "{name}");
    }
}

/// The first thread has written a line. A thread of another core reads it, and writes it then.
#[test]
fn a_line_costs_what_the_way_between_the_cores_costs() {
    // Of a Rome, contexts 0 to 3 are a group, and 64 is the second thread of core 0. Of the other one, 10 is in the second socket.
    let rome = Machine::ROME1S;
    let (near, same, cross) = (rome.near, rome.same, Machine::IVB2S.cross);
    let cases = [
        (rome.clone(), 1, near),
        (rome.clone(), 3, near),
        (rome.clone(), 4, same),
        (rome.clone(), 64, rome.hit),
        (Machine::IVB2S, 9, Machine::IVB2S.same),
        (Machine::IVB2S, 10, cross),
    ];
    for (preset, other, way) in cases {
        let machine = preset.without_jitter();
        let (hit, rmw) = (u64::from(machine.hit), u64::from(machine.rmw));
        record(&machine, move || {
            let shared = page::<1>();
            shared.0[0].0.store(1, Relaxed);
            let start = |at| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // Longer than it takes to start all, so that each has its context.
                    hedgerow_sim::work(3_000_000);
                    if at < other {
                        return;
                    }
                    assert_eq!(thread::context(), Some(other));
                    let word = &shared.0[0].0;
                    assert_eq!(cost(|| _ = word.load(Relaxed)), u64::from(way), "{other}");
                    assert_eq!(cost(|| word.store(2, Relaxed)), u64::from(way), "{other}");
                    assert_eq!(cost(|| _ = word.fetch_add(2, Relaxed)), hit + rmw, "{other}");
                })
            };
            let threads: Vec<_> = (1..=other).map(start).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}

#[test]
fn two_cores_that_play_ping_pong_pay_a_transfer_each() {
    const ROUNDS: u64 = 1_000;
    let machine = Machine::IVB2S.without_jitter();
    let ball = page::<1>();
    let (spent, record) = crowd(&machine, 2, move |at| {
        for round in 0..ROUNDS {
            while ball.0[0].0.load(Acquire) != 2 * round + at {
                spin_loop();
            }
            ball.0[0].0.store(2 * round + at + 1, Release);
        }
    });
    // A turn is a load of what the other one has written, and an upgrade to write: two transfers, and at most a turn of the
    // spin loop, a look, and the time for which the other one may keep the line.
    let transfers = u64::from(machine.near) * 2;
    let most = transfers + u64::from(machine.pause + machine.hit + machine.hold) * 2;
    let turns = 2 * ROUNDS;
    let counts = record.counts;
    let turn = spent / turns;
    assert!((transfers..=most).contains(&turn), "{turn} of {transfers} to {most}");
    assert!(counts.near >= 2 * turns - 4, "{counts:?}");
}

/// Each of many cores adds to one word. Who has the line keeps it for `hold` cycles, and does as many additions meanwhile as fit.
#[test]
fn additions_to_one_word_are_as_fast_as_the_line_travels() {
    const EACH: u64 = 400;
    // All in one socket.
    for cores in [2, 5, 9] {
        let machine = Machine::IVB2S.without_jitter();
        let word = page::<1>();
        let seen = Arc::clone(&word);
        let (spent, _) = crowd(&machine, cores, move |_| {
            (0..EACH).for_each(|_| _ = word.0[0].0.fetch_add(1, Relaxed));
        });
        assert_eq!(seen.0[0].0.load(Relaxed), cores * EACH);
        let hit = u64::from(machine.hit + machine.rmw);
        let (way, hold) = (u64::from(machine.near + machine.rmw), u64::from(machine.hold));
        // The addition that brings the line, and those that begin while it is held.
        let a_stay = 1 + hold.div_ceil(hit);
        let expected = (way + hold) * cores * EACH / a_stay;
        let share = spent as f64 / expected as f64;
        // Begin and end are not contended.
        assert!((0.9..1.1).contains(&share), "{cores} cores: {share} of {expected}");
    }
}

/// How many additions the luckiest and the unluckiest core have made when one has made all of its own. Of 64 cores one is left
/// to the thread that starts them.
fn spread(machine: &Machine) -> (u64, u64) {
    let shared = page::<66>();
    let theirs = Arc::clone(&shared);
    crowd(machine, 63, move |at| {
        while theirs.0[65].0.load(Relaxed) == 0 {
            theirs.0[64].0.fetch_add(1, Relaxed);
            let own = &theirs.0[at as usize].0;
            own.store(own.load(Relaxed) + 1, Relaxed);
            if own.load(Relaxed) == 300 {
                theirs.0[65].0.store(1, Relaxed);
            }
        }
    });
    let counts = || shared.0[..63].iter().map(|line| line.0.load(Relaxed));
    (counts().min().unwrap(), counts().max().unwrap())
}

#[test]
fn first_in_first_out_is_fair_and_nearest_first_is_not() {
    let fair = Machine { arbitration: Arbitration::Fifo, ..Machine::ROME1S.with_contexts(64) };
    let (least, most) = spread(&fair);
    assert!(least * 10 >= most * 8, "{least} to {most}");
    let unfair = Machine { arbitration: Arbitration::NearestFirst(1.0), ..fair };
    let (least, most) = spread(&unfair);
    assert!(least * 2 < most, "{least} to {most}");
}

/// A core has room for 2^14 lines: more than that, and each comes from the last-level cache again.
#[test]
fn what_does_not_fit_is_put_out() {
    const LINES: usize = (1 << 14) + 64;
    let machine = Machine::IVB2S.without_jitter();
    let Counts { hits, llc, memory, evicted, .. } = record(&machine, || {
        let words: Vec<u64> = vec![0; (LINES + 64) * 8];
        let start = words.as_ptr().addr().next_multiple_of(4096);
        for _ in 0..2 {
            for line in 0..LINES {
                hedgerow_sim::touch_load(start + line * 64);
            }
        }
    })
    .counts;
    // The 64 lines too many meet 64 others, and those meet them again.
    assert_eq!((memory, llc, evicted), (LINES as u64, 128, 192));
    assert_eq!(hits, LINES as u64 - 128);
}
