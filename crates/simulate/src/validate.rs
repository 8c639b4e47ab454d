//! `validate`: what this machine takes for a few loops, and what a simulated one takes for the same.
//!
//! Load, read-modify-write, pause and a line that travels are measured, and are the costs of the simulated machine. Then the same loops
//! run on it: they must come out as they went in, within a factor of two. Look-ups in a tree are shown beside them and are not bound: the machine
//! charges accesses to shared memory, and no instructions.

use crate::trees;
use hedgerow::Keyspace;
use hedgerow_sim::{Arbitration, Machine, cycles, run};
use hedgerow_sync::primitive::atomic::AtomicU64 as Simulated;
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::{Arc, hint, thread};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Instant;

/// Cycles of the simulated machine in a microsecond. What matters is that a load takes whole ones.
const MHZ: u32 = 4_000;
/// Turns of a native loop, of which the fastest counts. They are many and short, because others use the machine as well: a turn in which
/// the thread never lost its processor is among them.
const TURNS: usize = 1_000;
/// Rounds of a turn, natively, and of the simulated loop.
const ROUNDS: [u64; 2] = [50_000, 50_000];
/// The same of two threads that alternate.
const HAND_OVERS: [u64; 2] = [200, 5_000];
/// The same of look-ups.
const LOOKUPS: [u64; 2] = [500, 40_000];

/// One line of the table.
pub struct Row {
    /// What was done.
    pub what: &'static str,
    /// Nanoseconds, here and on the simulated machine.
    pub nanoseconds: [f64; 2],
    /// Whether both must be alike.
    pub is_bound: bool,
}

impl Row {
    /// How many times as long the simulated one took.
    fn ratio(&self) -> f64 {
        self.nanoseconds[1] / self.nanoseconds[0]
    }

    /// Whether both are alike, or need not be.
    pub fn holds(&self) -> bool {
        !self.is_bound || (0.5..=2.0).contains(&self.ratio())
    }
}

/// Nanoseconds of one of `rounds`: the fastest turn.
fn fastest(rounds: u64, mut turn: impl FnMut()) -> f64 {
    let times = (0..TURNS).map(|_| {
        let began = Instant::now();
        turn();
        began.elapsed().as_secs_f64() * 1e9 / rounds as f64
    });
    times.fold(f64::MAX, f64::min)
}

/// Of one store that the other thread has seen: the fastest group of them.
fn native_hand_over(rounds: u64) -> f64 {
    let turn = AtomicU64::new(0);
    let play = |from: u64, own: u64| {
        for at in (from..from + rounds).filter(|at| at % 2 == own) {
            while turn.load(Acquire) != at {
                std::hint::spin_loop();
            }
            turn.store(at + 1, Release);
        }
    };
    std::thread::scope(|scope| {
        let groups = || (0..TURNS as u64).map(|group| group * rounds);
        scope.spawn(move || groups().for_each(|from| play(from, 1)));
        let mut groups = groups();
        fastest(rounds, || play(groups.next().unwrap_or(0), 0))
    })
}

/// Look-ups of records that `random` draws.
fn look_ups(keyspace: &Keyspace, random: &mut SplitMix64, rounds: u64) {
    let mut value = Vec::new();
    for _ in 0..rounds {
        let key = random.below(trees::RECORDS).to_be_bytes();
        let found = keyspace.get_into(black_box(&key), &mut value);
        assert!(found.expect("a database in memory"), "it was loaded");
    }
}

/// Cycles that `body` takes in a run.
fn simulated(machine: &Machine, body: impl FnOnce() + 'static) -> f64 {
    let timed = move || {
        let began = cycles().unwrap_or(0);
        body();
        cycles().unwrap_or(0) - began
    };
    let (took, _) = run(machine, timed).unwrap_or_else(|failure| panic!("{failure}"));
    took as f64 * 1e3 / f64::from(machine.mhz)
}

fn simulated_hand_over(machine: &Machine, rounds: u64) -> f64 {
    let body = move || {
        let turn = Arc::new(crate::latches::Alone::<Simulated>::default());
        let play = move |turn: &Simulated, own: u64| {
            for round in 0..rounds / 2 {
                while turn.load(Acquire) != 2 * round + own {
                    hint::spin_loop();
                }
                turn.store(2 * round + own + 1, Release);
            }
        };
        let theirs = Arc::clone(&turn);
        let other = thread::spawn_named("other", move || play(&theirs.0, 1));
        play(&turn.0, 0);
        other.expect("a virtual thread").join().expect("it does not panic");
    };
    simulated(machine, body) / rounds as f64
}

/// Measures, makes a machine of it, and simulates. The machine, and the rows.
pub fn validate() -> (Machine, Vec<Row>) {
    let word = AtomicU64::new(1);
    let each = |rounds: u64, f: &dyn Fn()| fastest(rounds, || (0..rounds / 8).for_each(|_| f()));
    let [many, few] = ROUNDS;
    let load = each(many, &|| {
        (0..8).for_each(|_| _ = black_box(black_box(&word).load(Relaxed)));
    });
    let rmw = each(many, &|| (0..8).for_each(|_| _ = black_box(&word).fetch_add(1, AcqRel)));
    let pause = each(many / 16, &|| (0..8).for_each(|_| std::hint::spin_loop()));
    let hand_over = native_hand_over(HAND_OVERS[0]);
    let (_database, keyspace) = trees::numbers();
    let mut random = SplitMix64::new(1);
    let look_up = fastest(LOOKUPS[0], || look_ups(&keyspace, &mut random, LOOKUPS[0]));

    let cycles_of = |nanoseconds: f64| (nanoseconds * f64::from(MHZ) / 1e3).round().max(1.0) as u32;
    // The store takes the line from the one who waits, and the load of who waits takes it back.
    let near = cycles_of(hand_over / 2.0);
    let machine = Machine {
        contexts: 2,
        cores: 2,
        threads_per_core: 1,
        cores_per_group: 2,
        cores_per_socket: 2,
        mhz: MHZ,
        hit: cycles_of(load),
        rmw: cycles_of(rmw - load),
        near,
        same: near,
        cross: near,
        pause: cycles_of(pause),
        arbitration: Arbitration::Fifo,
        ..Machine::ROME1S
    };

    let single = machine.clone().with_contexts(1);
    let one = &single;
    let rounds_of = |f: fn(&Simulated)| {
        let body = move || {
            let word = crate::latches::Alone::<Simulated>::default();
            (0..few).for_each(|_| f(&word.0));
        };
        simulated(one, body) / few as f64
    };
    let in_the_run = keyspace.clone();
    let warmed = move |times: u64| {
        let keyspace = in_the_run.clone();
        let body = move || look_ups(&keyspace, &mut SplitMix64::new(1), times * LOOKUPS[1]);
        simulated(one, body) / LOOKUPS[1] as f64
    };
    let bound = |what, nanoseconds| Row { what, nanoseconds, is_bound: true };
    let rows = vec![
        bound("load", [load, rounds_of(|word| _ = word.load(Relaxed))]),
        bound("read-modify-write", [rmw, rounds_of(|word| _ = word.fetch_add(1, AcqRel))]),
        bound(
            "a line from one thread to another",
            [hand_over, simulated_hand_over(&machine, HAND_OVERS[1])],
        ),
        // The first time comes from memory.
        Row {
            what: "a look-up in a tree, without its instructions",
            nanoseconds: [look_up, warmed(2) - warmed(1)],
            is_bound: false,
        },
    ];
    (machine, rows)
}

/// The table, in Markdown.
pub fn table(machine: &Machine, rows: &[Row]) -> String {
    let Machine { mhz, hit, rmw, near, pause, .. } = machine;
    let mut text = format!(
        "\nmeasured: {mhz} MHz, hit {hit}, rmw {rmw}, near {near}, pause {pause} cycles\n\n| | native, ns | SIMULATED, ns | ratio |\n|---|---:|---:|---:|\n"
    );
    for row in rows {
        let [native, simulated] = row.nanoseconds;
        text += &format!("| {} | {native:.2} | {simulated:.2} | {:.2} |\n", row.what, row.ratio());
    }
    text
}
