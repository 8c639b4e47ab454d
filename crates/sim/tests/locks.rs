//! Locks mean in a run what they mean on the machine, and outside of a run they are the machine's. And what a run must show: races.

use hedgerow_sim::atomic::{AtomicU64, Ordering::*};
use hedgerow_sim::lock::{Condvar, Mutex, RwLock};
use hedgerow_sim::{Machine, run, thread, work};
use std::sync::Arc;
use std::time::Duration;

fn machine() -> Machine {
    Machine::IVB2S.with_contexts(8)
}

/// In a run and outside.
fn both(body: fn()) {
    body();
    for seed in 1..=5 {
        run(&machine().with_seed(seed), body).unwrap();
        // More threads than contexts.
        run(&machine().with_seed(seed).with_contexts(2), body).unwrap();
    }
}

fn all(count: usize, body: impl Fn(usize) + Send + Sync + 'static) {
    let body = Arc::new(body);
    let start = |at| {
        let body = Arc::clone(&body);
        thread::spawn(move || body(at))
    };
    let threads: Vec<_> = (0..count).map(start).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_mutex_lets_one_in() {
    both(|| {
        let shared = Arc::new((Mutex::new(0_u64), AtomicU64::new(0)));
        let theirs = Arc::clone(&shared);
        all(6, move |_| {
            for _ in 0..100 {
                let mut count = theirs.0.lock();
                assert_eq!(theirs.1.fetch_add(1, SeqCst), 0, "alone");
                work(50);
                *count += 1;
                assert_eq!(theirs.1.fetch_sub(1, SeqCst), 1);
                drop(count);
                if let Some(mut count) = theirs.0.try_lock() {
                    *count += 0;
                }
            }
        });
        assert_eq!(*shared.0.lock(), 600);
        assert!(shared.0.try_lock().is_some());
        let held = shared.0.lock();
        assert!(shared.0.try_lock().is_none());
        drop(held);
    });
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    both(|| {
        let lock = Arc::new((RwLock::new([0_u64; 2]), AtomicU64::new(0)));
        let theirs = Arc::clone(&lock);
        all(6, move |at| {
            for _ in 0..60 {
                if at % 3 == 0 {
                    let mut pair = theirs.0.write();
                    assert_eq!(theirs.1.load(SeqCst), 0, "no reader beside a writer");
                    pair[0] += 1;
                    work(40);
                    pair[1] += 1;
                } else {
                    let pair = theirs.0.read();
                    theirs.1.fetch_add(1, SeqCst);
                    work(40);
                    assert_eq!(pair[0], pair[1]);
                    theirs.1.fetch_sub(1, SeqCst);
                }
            }
        });
        assert_eq!(*lock.0.read(), [120, 120]);
        let (one, two) = (lock.0.read(), lock.0.try_read());
        assert!(two.is_some() && lock.0.try_write().is_none());
        drop((one, two));
        let one = lock.0.try_write();
        assert!(one.is_some() && lock.0.try_read().is_none());
    });
}

#[test]
fn no_notification_is_lost() {
    both(|| {
        let queue = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let theirs = Arc::clone(&queue);
        all(6, move |at| {
            for round in 0..50 {
                let mut items = theirs.0.lock();
                if at % 2 == 0 {
                    items.push(round);
                    drop(items);
                    theirs.1.notify_one();
                } else {
                    while items.pop().is_none() {
                        theirs.1.wait(&mut items);
                    }
                }
            }
        });
        assert!(queue.0.lock().is_empty());
    });
}

#[test]
fn a_timed_wait_says_whether_time_ran_out() {
    both(|| {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let mut guard = shared.0.lock();
        assert!(shared.1.wait_for(&mut guard, Duration::from_micros(50)));
        let theirs = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            *theirs.0.lock() = true;
            theirs.1.notify_all();
        });
        while !*guard {
            assert!(!shared.1.wait_for(&mut guard, Duration::from_secs(60)));
        }
        drop(guard);
        thread.join().unwrap();
    });
}

/// The canary: between the load and the store another thread adds, too, and its addition is lost.
#[test]
fn a_lost_update_is_seen() {
    let lost = |seed| {
        let count = run(&machine().with_seed(seed), || {
            let word = Arc::new(AtomicU64::new(0));
            let theirs = Arc::clone(&word);
            all(4, move |_| {
                for _ in 0..10 {
                    work(1_000);
                    let seen = theirs.load(Relaxed);
                    work(10);
                    theirs.store(seen + 1, Relaxed);
                }
            });
            word.load(Relaxed)
        });
        count.unwrap().0 < 40
    };
    assert!((1..=10).any(lost), "ten seeds, and nobody lost an addition");
}

/// Another one: a flag that is looked at and set in two steps lets two in.
#[test]
fn two_in_a_section_that_is_for_one_are_seen() {
    let met = |seed| {
        let machine = machine().with_seed(seed);
        let met = run(&machine, || {
            let words = Arc::new([const { AtomicU64::new(0) }; 3]);
            let theirs = Arc::clone(&words);
            all(3, move |_| {
                for _ in 0..20 {
                    let [taken, inside, met] = &*theirs;
                    work(500);
                    if taken.load(Acquire) == 0 {
                        taken.store(1, Release);
                        met.fetch_max(inside.fetch_add(1, SeqCst), Relaxed);
                        work(100);
                        inside.fetch_sub(1, SeqCst);
                        taken.store(0, Release);
                    }
                }
            });
            words[2].load(Relaxed)
        });
        met.unwrap().0 > 0
    };
    assert!((1..=10).any(met), "ten seeds, and nobody met another");
}
