//! Latches on a simulated machine: `RUSTFLAGS="--cfg hedgerow_sim" cargo test -p hedgerow-sync --test simulated`.
//!
//! The simulator is sequentially consistent: this tests logic, at up to 128 cores, and leaves orderings to loom.

#![cfg(hedgerow_sim)]

use hedgerow_sim::{Machine, Record, run, work};
use hedgerow_sync::latch::HybridLatch;
use hedgerow_sync::optimistic::{PageBytes, RacingBytes};
use hedgerow_sync::primitive::atomic::{AtomicU64, Ordering::*};
use hedgerow_sync::primitive::time::Moment;
use hedgerow_sync::primitive::{Arc, Condvar, Mutex, random, sample, thread};
use std::process::Command;
use std::time::Duration;

const BYTES: usize = 1024;

/// A page under a latch: all its bytes are always equal.
#[repr(align(4096))]
struct Page {
    bytes: std::cell::UnsafeCell<[u8; BYTES]>,
    latch: HybridLatch,
    inside: AtomicU64,
    done: AtomicU64,
}

// SAFETY: the bytes are reached through `view` alone, and written under the latch.
unsafe impl Sync for Page {}

impl Page {
    fn new() -> Page {
        Page {
            bytes: [0; BYTES].into(),
            latch: HybridLatch::new(),
            inside: AtomicU64::new(0),
            done: AtomicU64::new(0),
        }
    }

    fn view(&self) -> RacingBytes<'_> {
        // SAFETY: the page is aligned, its bytes are initialised and live as long as it, and are reached through such views
        // alone.
        unsafe { RacingBytes::new(self.bytes.get().cast(), BYTES) }
    }

    fn write(&self, value: u8) {
        let guard = self.latch.exclusive();
        assert_eq!(self.inside.fetch_add(1, SeqCst), 0, "a writer is alone");
        // SAFETY: the latch is held exclusively, and there is no slice of the bytes.
        unsafe { self.view().publish(&[value; BYTES]) };
        assert_eq!(self.inside.fetch_sub(1, SeqCst), 1);
        drop(guard);
    }

    /// Whether what was read counts; then it is one state of the page.
    fn read(&self) -> bool {
        let Some(version) = self.latch.optimistic() else { return false };
        let first = self.view().u64_at(0);
        let last = self.view().u64_at(BYTES - 8);
        let valid = self.latch.validate(version);
        assert!(!valid || first == last, "a torn page");
        valid
    }
}

/// Some threads write, some read in three ways. What the page has seen, and the record.
fn mixture(machine: &Machine, threads: u64, rounds: u64) -> (u64, Record) {
    let (page, record) = run(machine, move || {
        let page = Arc::new(Page::new());
        let body = move |at: u64, page: &Page| {
            for round in 0..rounds {
                work(200);
                match (at + round) % 4 {
                    0 => page.write((at * 16 + round) as u8),
                    1 => _ = page.read(),
                    2 => {
                        let _guard = page.latch.shared();
                        assert_eq!(page.inside.load(SeqCst), 0, "no writer beside a reader");
                    }
                    _ => {
                        let mut looks = 0;
                        let mut patience = || {
                            looks += 1;
                            looks < 3
                        };
                        if let Some(guard) = page.latch.exclusive_while(&mut patience) {
                            guard.release_unchanged();
                        }
                    }
                }
                page.done.fetch_add(1, Relaxed);
            }
        };
        let start = |at| {
            let page = Arc::clone(&page);
            thread::spawn_named("worker", move || body(at, &page)).unwrap()
        };
        let threads: Vec<_> = (0..threads).map(start).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        page.done.load(Relaxed)
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
    (page, record)
}

#[test]
fn latches_exclude_and_nobody_sleeps_for_ever_on_many_cores() {
    for (contexts, threads, rounds) in [(1, 4, 40), (3, 8, 40), (16, 16, 40), (128, 128, 8)] {
        for seed in 1..=5 {
            let machine = Machine::ROME1S.with_contexts(contexts).with_seed(seed);
            let (done, record) = mixture(&machine, threads, rounds);
            assert_eq!(done, threads * rounds);
            assert!(contexts < 16 || record.counts.sleeps > threads, "somebody parks: {record:?}");
        }
    }
}

#[test]
fn a_seed_gives_one_record() {
    let machine = Machine::IVB2S.with_seed(5);
    // The lot of parked threads is made by the first run, and found by later ones.
    mixture(&machine, 4, 10);
    let digest = mixture(&machine, 40, 20).1;
    assert_eq!(digest.digest, mixture(&machine, 40, 20).1.digest);
}

/// Run by the next test, in processes of its own.
#[test]
#[ignore = "prints what another test compares"]
fn print_the_record() {
    println!("RECORD {:?}", mixture(&Machine::IVB2S.with_seed(6), 48, 20));
}

#[test]
fn two_processes_with_other_addresses_have_the_same_record() {
    let record = || {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "print_the_record", "--ignored", "--nocapture"]);
        let words = String::from_utf8(program.output().unwrap().stdout).unwrap();
        let at = words.find("RECORD").unwrap_or_else(|| panic!("{words}"));
        words[at..].lines().next().unwrap().to_owned()
    };
    assert_eq!(record(), record());
}

#[test]
fn the_primitives_are_the_runs_own() {
    let look = || {
        let other = thread::spawn_named("other", || (thread::id(), random::seed())).unwrap();
        let (id, seed) = other.join().unwrap();
        assert_eq!((thread::id(), id), (0, 1));
        assert_ne!(seed, random::seed());
        let before = Moment::now();
        thread::sleep(Duration::from_millis(5));
        assert!((5..6).contains(&before.elapsed().as_millis()));
        let sampled = (0..100).filter(|_| sample::two_in(20, sample::Event::Scan)).count();
        (seed, sampled, thread::available_parallelism())
    };
    let machine = Machine::HSW1S.with_seed(9);
    let first = run(&machine, look).unwrap().0;
    assert_eq!(first, run(&machine, look).unwrap().0);
    assert_eq!(first.2, 8);
    // Outside it is the machine's.
    let before = Moment::now();
    thread::sleep(Duration::from_millis(1));
    assert!(before.elapsed() >= Duration::from_millis(1));
    assert_ne!(random::seed(), random::seed());
}

/// What is made outside is used inside, and the other way round.
#[test]
fn what_is_loaded_outside_of_a_run_costs_nothing() {
    let shared = Arc::new((Mutex::new(1), Condvar::new(), Page::new()));
    shared.2.write(3);
    *shared.0.lock() += 1;
    let theirs = Arc::clone(&shared);
    let (seen, record) = run(&Machine::IVB2S, move || {
        assert!(theirs.2.read());
        theirs.2.write(4);
        *theirs.0.lock() += 1;
        *theirs.0.lock()
    })
    .unwrap();
    assert_eq!(seen, 3);
    // A read of two lines under a latch, 16 lines that change, and some words.
    assert!((20..80).contains(&record.counts.events), "{record:?}");
    assert!(shared.2.read() && *shared.0.lock() == 3);
}
