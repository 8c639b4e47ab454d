//! The same seed gives the same record: twice in a process, and in two processes with addresses of their own.

use hedgerow_sim::atomic::{AtomicU64, Ordering::*};
use hedgerow_sim::lock::{Condvar, Mutex, RwLock};
use hedgerow_sim::{Machine, Record, run, spin_loop, thread, work};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

#[repr(align(4096))]
struct Shared {
    words: [AtomicU64; 64],
    list: Mutex<Vec<u64>>,
    map: RwLock<u64>,
    filled: Condvar,
}

/// Some of everything: more threads than contexts, locks, sleeps, spinning, threads' own values.
fn mixture(seed: u64) -> (u64, Record) {
    hedgerow_sim::thread_local! {
        static OWN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }
    let machine = Machine::ROME1S.with_contexts(6).with_seed(seed);
    run(&machine, || {
        let shared = Arc::new(Shared {
            words: [const { AtomicU64::new(0) }; 64],
            list: Mutex::default(),
            map: RwLock::default(),
            filled: Condvar::new(),
        });
        let body = |at: u64, shared: &Shared| {
            for round in 0..50 {
                work(100);
                shared.words[(at * 7 + round) as usize % 64].fetch_add(1, Relaxed);
                OWN.set(OWN.get() + 1);
                let turn = hedgerow_sim::seed().unwrap() % 5;
                match turn {
                    0 => *shared.map.write() += 1,
                    1 => _ = *shared.map.read(),
                    2 => shared.list.lock().push(at),
                    3 => thread::sleep(Duration::from_micros(3)),
                    _ => (0..5).for_each(|_| spin_loop()),
                }
            }
            assert_eq!(OWN.get(), 50, "a value of this thread alone");
            shared.filled.notify_all();
        };
        let start = |at| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || body(at, &shared))
        };
        let threads: Vec<_> = (0..9).map(start).collect();
        let mut list = shared.list.lock();
        while list.len() < 20 {
            shared.filled.wait_for(&mut list, Duration::from_micros(100));
        }
        drop(list);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let list = shared.list.lock();
        list.iter().fold(0_u64, |hash, at| hash.wrapping_mul(31).wrapping_add(*at))
    })
    .unwrap()
}

#[test]
fn a_seed_gives_one_record_and_another_seed_another() {
    let first = mixture(3);
    assert_eq!(first, mixture(3));
    assert_ne!(first.1.digest, mixture(4).1.digest);
    assert!(first.1.counts.sleeps > 0 && first.1.counts.switches > 0);
}

/// Run by the next test, in processes of its own.
#[test]
#[ignore = "prints what another test compares"]
fn print_the_record() {
    println!("RECORD {:?}", mixture(11));
}

#[test]
fn two_processes_with_other_addresses_have_the_same_record() {
    let record = || {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "print_the_record", "--ignored", "--nocapture"]);
        let output = program.output().unwrap();
        let words = String::from_utf8(output.stdout).unwrap();
        let at = words.find("RECORD").unwrap_or_else(|| panic!("{words}"));
        words[at..].lines().next().unwrap().to_owned()
    };
    assert_eq!(record(), record());
}
