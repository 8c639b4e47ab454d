//! Regions of transactional memory: what ends them, and that they take effect as a whole or not at all.

use hedgerow_sim::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use hedgerow_sim::transaction::{Abort, Cause, about, attempt, label, tally};
use hedgerow_sim::{Capacity, Machine, Record, Transactions, run, thread, work};
use std::sync::Arc;

/// A word in a line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Line(AtomicU64);

/// Lines, of which each page has 64.
#[derive(Default)]
#[repr(align(4096))]
struct Page([Line; 32], [Line; 32]);

impl Page {
    fn line(&self, at: usize) -> &AtomicU64 {
        if at < 32 { &self.0[at].0 } else { &self.1[at - 32].0 }
    }
}

fn machine() -> Machine {
    let machine = Machine::HSW1S.without_jitter();
    Machine { transactions: Transactions { interrupt_every: 0, ..machine.transactions }, ..machine }
}

fn on<T: 'static>(machine: &Machine, main: impl FnOnce() -> T + 'static) -> (T, Record) {
    run(machine, main).unwrap()
}

/// Begins a region in a thread of its own that reaches a line and then computes, and meanwhile does something else.
fn against(
    stores: bool,
    other: impl FnOnce(&'static AtomicU64) + Send + 'static,
) -> (Result<u64, Abort>, u64) {
    let (result, _) = on(&machine(), move || {
        let line: &'static Line = Box::leak(Box::new(Line::default()));
        label(std::ptr::from_ref(line).addr(), 8, 3);
        let region = thread::spawn(move || {
            about(17);
            attempt(None, |region| {
                if stores {
                    region.store(&line.0, 99)?;
                }
                let seen = region.load(&line.0)?;
                work(1_000_000);
                Ok(seen)
            })
        });
        work(500_000);
        about(18);
        other(&line.0);
        let after = line.0.load(Relaxed);
        (region.join().unwrap(), after)
    });
    result
}

const CONFLICT: Abort = Abort { cause: Cause::Conflict { label: 3, other: 18 }, key: 17 };

#[test]
fn a_plain_store_ends_a_region_that_has_read() {
    assert_eq!(against(false, |line| line.store(5, Relaxed)), (Err(CONFLICT), 5));
}

#[test]
fn a_plain_load_ends_a_region_that_has_written_and_sees_what_was_there() {
    let seen = |line: &'static AtomicU64| assert_eq!(line.load(Relaxed), 0);
    assert_eq!(against(true, seen), (Err(CONFLICT), 0));
}

#[test]
fn loads_do_not_end_a_region_that_has_read() {
    assert_eq!(against(false, |line| assert_eq!(line.load(Relaxed), 0)), (Ok(0), 0));
}

#[test]
fn a_region_that_asks_later_wins() {
    let store = |line: &'static AtomicU64| attempt(None, |region| region.store(line, 7)).unwrap();
    assert_eq!(against(true, store), (Err(CONFLICT), 7));
}

#[test]
fn a_body_that_fails_or_asks_for_it_has_no_effect() {
    let (values, _) = on(&machine(), || {
        let (a, b) = (AtomicU64::new(1), AtomicU32::new(2));
        let asked = attempt(None, |region| {
            region.store(&a, 10)?;
            region.store(&a, 11)?;
            region.change(&b, |b| b | 64)?;
            Err::<(), _>(region.abort(9))
        });
        assert!(matches!(asked, Err(Abort { cause: Cause::Explicit(9), .. })));
        (a.load(Relaxed), b.load(Relaxed), tally().unwrap().explicit)
    });
    assert_eq!(values, (1, 2, 1));
}

#[test]
fn a_body_that_unwinds_has_no_effect() {
    let (value, _) = on(&machine(), || {
        let a = AtomicU64::new(1);
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = attempt(None, |region| {
                region.store(&a, 10)?;
                if region.load(&a)? == 10 {
                    panic!("as it is to");
                }
                Ok(())
            });
        }));
        assert!(unwound.is_err());
        a.load(Relaxed)
    });
    assert_eq!(value, 1);
}

#[test]
fn every_access_can_be_the_last_one() {
    on(&machine(), || {
        let cells: Vec<Line> = (0..6).map(|_| Line::default()).collect();
        for at in 1..=7 {
            let result = attempt(Some(at), |region| {
                for cell in &cells {
                    let old = region.load(&cell.0)?;
                    region.store(&cell.0, old + 1)?;
                }
                Ok(())
            });
            assert!(matches!(result, Err(Abort { cause: Cause::Forced, .. })), "{at}: {result:?}");
            assert!(cells.iter().all(|cell| cell.0.load(Relaxed) == 0), "{at}");
        }
    });
}

fn fits(capacity: Capacity, lines: impl Iterator<Item = usize>, stores: bool) -> bool {
    let lines: Vec<usize> = lines.collect();
    let (fits, _) = on(&machine().with_capacity(capacity), move || {
        let pages: Vec<Page> = (0..16).map(|_| Page::default()).collect();
        let result = attempt(None, |region| {
            for &at in &lines {
                let line = pages[at / 64].line(at % 64);
                if stores { region.store(line, 1)? } else { assert_eq!(region.load(line)?, 0) }
            }
            Ok(())
        });
        assert!(matches!(result, Ok(()) | Err(Abort { cause: Cause::Capacity, .. })));
        result.is_ok()
    });
    fits
}

#[test]
fn a_set_has_as_many_lines_as_it_has_ways() {
    let strict = |ways| Capacity::L1Strict { sets: 64, ways, is_shared: true };
    let writes = Capacity::WritesInL1 { sets: 64, ways: 8, is_shared: false };
    // Lines of one set, in all pages.
    let of_one_set = |many: usize| (0..many).map(|page| page * 64 + 5);
    for ways in [4, 8] {
        assert!(fits(strict(ways), of_one_set(ways as usize), false));
        assert!(!fits(strict(ways), of_one_set(ways as usize + 1), false));
    }
    assert!(fits(strict(8), 0..512, false) && !fits(strict(8), 0..513, false));
    assert!(fits(writes, of_one_set(16), false));
    assert!(fits(writes, of_one_set(8), true) && !fits(writes, of_one_set(9), true));
    assert!(fits(Capacity::Unlimited, 0..1024, true));
}

/// Two regions on hardware threads that share a core or not, with six lines each of one set. How many overflowed.
fn overflows_of_two(contexts: u32) -> u64 {
    let machine = machine().with_contexts(contexts);
    let (overflows, _) = on(&machine, move || {
        let pages: Arc<Vec<Page>> = Arc::new((0..16).map(|_| Page::default()).collect());
        let body = |first: usize| {
            let pages = Arc::clone(&pages);
            move || {
                let result = attempt(None, |region| {
                    for at in first..first + 6 {
                        region.load(pages[at].line(9))?;
                        work(100_000);
                    }
                    Ok(())
                });
                assert!(matches!(result, Ok(()) | Err(Abort { cause: Cause::Capacity, .. })));
            }
        };
        // The main thread is on the first context; these are on the second and on the last one.
        let mut threads = vec![thread::spawn(body(0))];
        for _ in 2..contexts.div_ceil(2) + 1 {
            threads.push(thread::spawn(|| work(2_000_000)));
        }
        threads.push(thread::spawn(body(8)));
        for thread in threads {
            thread.join().unwrap();
        }
        tally().unwrap().overflows
    });
    overflows
}

#[test]
fn siblings_share_the_cache_and_other_cores_do_not() {
    assert_eq!(overflows_of_two(8), 1);
    assert_eq!(overflows_of_two(4), 0);
}

#[test]
fn interrupts_end_regions_as_often_as_they_come() {
    let mut machine = machine();
    machine.transactions.interrupt_every = 100_000;
    let (interrupts, record) = on(&machine, || {
        let cell = AtomicU64::new(0);
        while hedgerow_sim::cycles().unwrap() < 10_000_000 {
            let _ = attempt(None, |region| {
                region.load(&cell)?;
                work(1_000);
                Ok(())
            });
        }
        tally().unwrap().interrupts
    });
    let expected = record.cycles / 100_000;
    assert!((expected / 2..2 * expected).contains(&interrupts), "{interrupts} of {expected}");
}

fn counting(seed: u64, spurious: f64) -> (u64, u64, Record) {
    let mut machine = Machine::HSW2S.with_contexts(8).with_seed(seed);
    machine.transactions.spurious = spurious;
    let ((count, aborts), record) = on(&machine, || {
        let count: &'static Line = Box::leak(Box::new(Line::default()));
        let add = move || {
            for _ in 0..200 {
                let add = || {
                    attempt(None, |region| {
                        let old = region.load(&count.0)?;
                        work(20);
                        region.store(&count.0, old + 1)
                    })
                };
                while add().is_err() {}
            }
        };
        let threads: Vec<_> = (0..8).map(|_| thread::spawn(add)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        (count.0.load(Relaxed), tally().unwrap().aborts())
    });
    (count, aborts, record)
}

#[test]
fn increments_in_regions_are_all_there_and_runs_are_the_same_twice() {
    for seed in 1..=5 {
        for spurious in [0.0, 0.05] {
            let (count, aborts, record) = counting(seed, spurious);
            assert_eq!(count, 1_600, "seed {seed}");
            assert!(aborts > 100, "seed {seed}: {aborts}");
            assert_eq!(record, counting(seed, spurious).2, "seed {seed}");
        }
    }
}

#[test]
fn an_access_past_the_region_fails_the_run() {
    let failure = run(&machine(), || {
        let cell = AtomicU64::new(0);
        let _ = attempt(None, |_| Ok(cell.load(Relaxed)));
    });
    assert!(format!("{failure:?}").contains("an access in a region, past it"), "{failure:?}");
}
