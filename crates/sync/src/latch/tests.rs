//! The latch with real threads. The interleavings themselves are explored by `tests/loom.rs`.

use super::word::{EXCLUSIVE, MAX_SHARED, ONE_SHARED, PARKED, SHARED, VERSION};
use super::*;
use crate::primitive::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::primitive::time::Moment;
use std::thread;
use std::time::Duration;

mod waiting;

/// Waits until `condition` holds; a test that hangs here has found a lost wake-up.
fn until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

#[test]
fn modes_exclude_each_other() {
    let latch = HybridLatch::new();
    let first = latch.try_shared().unwrap();
    let second = latch.try_shared().unwrap();
    assert!(latch.try_exclusive().is_none());
    let version = latch.optimistic().unwrap();
    assert!(latch.try_upgrade(version).is_none(), "readers keep an upgrade out");
    drop(first);
    assert!(latch.try_exclusive().is_none());
    drop(second);
    let guard = latch.try_exclusive().unwrap();
    assert!(latch.is_exclusive());
    assert!(latch.try_shared().is_none());
    assert!(latch.try_exclusive().is_none());
    assert!(latch.optimistic().is_none());
    assert!(!latch.validate(version));
    assert!(latch.try_upgrade(version).is_none());
    drop(guard);
    assert!(!latch.is_exclusive());
    assert!(latch.try_shared().is_some());
}

#[test]
fn who_may_share_is_seen_in_the_word() {
    // Whatever the version; a newcomer does not go past who sleeps while others share.
    for version in [0, VERSION] {
        for (word, is_free, has_room, newcomer_may) in [
            (0, true, true, true),
            (PARKED, true, true, true),
            (ONE_SHARED, false, true, true),
            (ONE_SHARED | PARKED, false, true, false),
            (SHARED - ONE_SHARED, false, true, true),
            ((SHARED - ONE_SHARED) | PARKED, false, true, false),
            (SHARED, false, false, false),
            (SHARED | PARKED, false, false, false),
            (EXCLUSIVE, false, false, false),
            (EXCLUSIVE | PARKED, false, false, false),
        ] {
            let word = word | version;
            assert_eq!(word::is_free(word), is_free, "{word:x}");
            assert_eq!(word::has_room_to_share(word), has_room, "{word:x}");
            assert_eq!(word::newcomer_may_share(word), newcomer_may, "{word:x}");
        }
    }
}

#[test]
fn only_a_released_change_makes_a_new_version() {
    let latch = HybridLatch::with_version(41);
    let version = latch.optimistic().unwrap();
    drop(latch.shared());
    assert!(latch.validate(version));
    let shared = latch.shared();
    assert!(latch.validate(version), "readers do not disturb each other");
    assert_eq!(shared.version(), version);
    drop(shared);

    let guard = latch.exclusive();
    assert_eq!(guard.version(), version);
    guard.release_unchanged();
    assert!(latch.validate(version));

    let guard = latch.try_upgrade(version).unwrap();
    assert!(std::ptr::eq(guard.latch(), &raw const latch));
    drop(guard);
    assert!(!latch.validate(version));
    assert_eq!(latch.optimistic(), HybridLatch::with_version(42).optimistic());
    assert!(latch.try_upgrade(version).is_none(), "the stamp is old");

    let now = latch.optimistic().unwrap();
    let shared = latch.exclusive().downgrade();
    assert!(!latch.validate(now), "a downgrade releases a change");
    assert!(latch.try_exclusive().is_none());
    assert!(latch.try_shared().is_some());
    drop(shared);
    assert!(latch.try_exclusive().is_some());
}

#[test]
fn versions_wrap_without_touching_the_other_bits() {
    let last = (1_u64 << 48) - 1;
    let latch = HybridLatch::with_version(last - 2);
    for version in [last - 2, last - 1, last, 0, 1] {
        let stamp = latch.optimistic().unwrap();
        assert_eq!(stamp, HybridLatch::with_version(version).optimistic().unwrap());
        assert!(latch.validate(stamp));
        let guard = latch.try_upgrade(stamp).unwrap();
        assert!(latch.is_exclusive());
        let shared = guard.downgrade();
        assert!(!latch.is_exclusive());
        assert!(!latch.validate(stamp));
        assert!(latch.try_exclusive().is_none(), "exactly one reader is counted");
        drop(shared);
        latch.try_exclusive().unwrap().release_unchanged();
    }
    assert_eq!(HybridLatch::with_version(1 << 48).optimistic(), HybridLatch::new().optimistic());
}

#[test]
fn a_change_wraps_while_somebody_is_parked() {
    let latch = HybridLatch::with_version(u64::MAX);
    thread::scope(|scope| {
        let guard = latch.exclusive();
        let waiter = scope.spawn(|| latch.exclusive().version());
        until(|| format!("{latch:?}").contains("parked: true"));
        drop(guard);
        assert_eq!(waiter.join().unwrap(), HybridLatch::new().optimistic().unwrap());
    });
    assert_eq!(latch.optimistic(), HybridLatch::with_version(1).optimistic());
    assert!(format!("{latch:?}").contains("parked: false"), "{latch:?}");
}

/// Counts without atomicity: any two holders at once lose an addition.
#[test]
fn exclusive_holders_are_alone() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 5_000;
    let latch = HybridLatch::new();
    let counter = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let guard = latch.exclusive();
                    let value = counter.load(Ordering::Relaxed);
                    if round % 64 == 0 {
                        thread::yield_now();
                    }
                    counter.store(value + 1, Ordering::Relaxed);
                    drop(guard);
                }
            });
        }
    });
    assert_eq!(counter.load(Ordering::Relaxed), THREADS * ROUNDS);
    assert_eq!(latch.optimistic(), HybridLatch::with_version(THREADS * ROUNDS).optimistic());
}

/// Readers, writers, upgrades, downgrades and waiters that give up, all on one latch.
#[test]
fn a_mixed_crowd_keeps_the_invariants() {
    const THREADS: u64 = 4;
    let latch = HybridLatch::with_version((1 << 48) - 50);
    let inside = AtomicUsize::new(0);
    let changes = AtomicU64::new(0);
    const WRITER: usize = 1 << 16;
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (latch, inside, changes) = (&latch, &inside, &changes);
            scope.spawn(move || {
                let mut random = crate::primitive::random::SplitMix64::new(thread);
                let write = || {
                    assert_eq!(inside.fetch_add(WRITER, Ordering::Relaxed), 0);
                    if thread == 0 {
                        thread::yield_now();
                    }
                    assert_eq!(inside.fetch_sub(WRITER, Ordering::Relaxed), WRITER);
                    changes.fetch_add(1, Ordering::Relaxed);
                };
                let read = || {
                    assert!(inside.fetch_add(1, Ordering::Relaxed) < WRITER);
                    if thread == 1 {
                        thread::yield_now();
                    }
                    assert!(inside.fetch_sub(1, Ordering::Relaxed) < WRITER);
                };
                for _ in 0..4_000 {
                    match random.below(8) {
                        0 | 1 => {
                            let _guard = latch.shared();
                            read();
                        }
                        2 => {
                            let _guard = latch.exclusive();
                            write();
                        }
                        3 => {
                            let guard = latch.exclusive();
                            write();
                            let _guard = guard.downgrade();
                            read();
                        }
                        4 => {
                            if let Some(_guard) = latch.exclusive_while(&mut || false) {
                                write();
                            }
                        }
                        5 => {
                            let mut left = 2;
                            let mut patience = || {
                                left -= 1;
                                left > 0
                            };
                            if let Some(_guard) = latch.shared_while(&mut patience) {
                                read();
                            }
                        }
                        6 => {
                            let guard =
                                latch.optimistic().and_then(|version| latch.try_upgrade(version));
                            if let Some(_guard) = guard {
                                write();
                            }
                        }
                        _ => latch.exclusive().release_unchanged(),
                    }
                }
            });
        }
    });
    let expected = ((1 << 48) - 50 + changes.load(Ordering::Relaxed)) % (1 << 48);
    assert_eq!(latch.optimistic(), HybridLatch::with_version(expected).optimistic());
    assert!(format!("{latch:?}").contains("parked: false"), "{latch:?}");
    assert!(latch.try_exclusive().is_some());
}

/// Two writers keep all words of a page equal; readers must never validate a mixture.
#[test]
fn validated_pages_are_never_torn() {
    use crate::optimistic::{PageBytes, RacingBytes, WRITERS_PUBLISH};
    const BYTES: usize = 4096;
    #[repr(align(64))]
    struct Page([u8; BYTES]);

    let latch = HybridLatch::new();
    let mut page = Box::new(Page([0; BYTES]));
    // SAFETY: aligned, 4096 bytes long, and accessed below by the rules: the writers hold the latch,
    // the readers validate.
    let view = unsafe { RacingBytes::new(page.0.as_mut_ptr(), BYTES) };
    let done = AtomicBool::new(false);
    let validated = AtomicU64::new(0);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2_u8)
            .map(|writer| {
                let (latch, validated) = (&latch, &validated);
                scope.spawn(move || {
                    // Until the reader has seen something as well: it may be scheduled late.
                    for round in 0..10_000_000_u32 {
                        if round >= 3_000 && validated.load(Ordering::Relaxed) > 0 {
                            break;
                        }
                        let value = (round as u8) << 1 | writer;
                        let guard = latch.exclusive();
                        if WRITERS_PUBLISH {
                            // SAFETY: this thread holds the latch exclusively; nobody has a slice.
                            unsafe { view.publish(&[value; BYTES]) };
                        } else {
                            // SAFETY: this thread holds the latch exclusively; racing readers use
                            // the view.
                            let bytes = unsafe { view.as_mut_slice() };
                            bytes[..BYTES / 2].fill(value);
                            if round % 16 == 0 {
                                thread::yield_now();
                            }
                            bytes[BYTES / 2..].fill(value);
                        }
                        drop(guard);
                        if round % 16 == 0 {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut copy = [0; BYTES];
            while !done.load(Ordering::Relaxed) {
                let Some(version) = latch.optimistic() else {
                    thread::yield_now();
                    continue;
                };
                view.copy(0, &mut copy);
                let last = view.u64_at(BYTES - 8);
                let block = view.block64(BYTES / 2 - 32);
                if latch.validate(version) {
                    let value = copy[0];
                    assert_eq!(copy, [value; BYTES]);
                    assert_eq!(last.to_le_bytes(), [value; 8]);
                    assert_eq!(block, [u32::from_ne_bytes([value; 4]); 16]);
                    validated.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert!(validated.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_wait_can_be_cancelled() {
    let latch = HybridLatch::new();
    let _held = latch.exclusive();
    for wish in 0..2 {
        let mut calls = 0;
        let start = Moment::now();
        let mut thrice = || {
            calls += 1;
            calls <= 3
        };
        let got = match wish {
            0 => latch.shared_while(&mut thrice).is_some(),
            _ => latch.exclusive_while(&mut thrice).is_some(),
        };
        assert!(!got);
        assert_eq!(calls, 4);
        // Three sleeps of 10 ms each; far longer only on a machine that stands still.
        assert!(start.elapsed() >= Duration::from_millis(29), "{:?}", start.elapsed());
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }
    assert!(format!("{latch:?}").contains("parked: false"), "the last to leave clears the bit");
}

#[test]
fn a_wait_that_goes_on_gets_the_latch() {
    let latch = HybridLatch::new();
    let calls = AtomicUsize::new(0);
    thread::scope(|scope| {
        let guard = latch.exclusive();
        let waiter = scope.spawn(|| {
            let mut count = || {
                calls.fetch_add(1, Ordering::Relaxed);
                true
            };
            latch.exclusive_while(&mut count).is_some()
        });
        until(|| calls.load(Ordering::Relaxed) >= 3);
        guard.release_unchanged();
        assert!(waiter.join().unwrap());
    });
}

/// One waiter gives up all the time, the other waits for ever: it must get the latch.
#[test]
fn a_cancelled_waiter_passes_the_wake_up_on() {
    let latch = HybridLatch::new();
    for _ in 0..200 {
        let giving_up = AtomicBool::new(false);
        let (latch, giving_up) = (&latch, &giving_up);
        thread::scope(|scope| {
            let guard = latch.exclusive();
            scope.spawn(move || {
                let mut until_told = || !giving_up.load(Ordering::Relaxed);
                drop(latch.exclusive_while(&mut until_told));
            });
            until(|| format!("{latch:?}").contains("parked: true"));
            let patient = scope.spawn(move || drop(latch.exclusive()));
            thread::yield_now();
            giving_up.store(true, Ordering::Relaxed);
            drop(guard);
            patient.join().unwrap();
        });
    }
}

#[test]
fn a_writer_is_not_starved_by_readers() {
    let latch = HybridLatch::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // At every moment one of the two holds the latch shared, unless they have to wait.
        for _ in 0..2 {
            scope.spawn(|| {
                let mut held = latch.shared();
                while !done.load(Ordering::Relaxed) {
                    thread::yield_now();
                    match latch.try_shared() {
                        Some(next) => held = next,
                        None => {
                            drop(held);
                            held = latch.shared();
                        }
                    }
                }
                drop(held);
            });
        }
        thread::yield_now();
        for _ in 0..20 {
            drop(latch.exclusive());
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_last_of_the_readers_wakes_the_writer_who_sleeps() {
    for readers in 1..4 {
        let latch = HybridLatch::new();
        thread::scope(|scope| {
            let held: Vec<_> = (0..readers).map(|_| latch.shared()).collect();
            // Nothing but the reader who leaves wakes a writer who waits without a limit.
            let writer = scope.spawn(|| drop(latch.exclusive()));
            until(|| format!("{latch:?}").contains("parked: true"));
            drop(held);
            writer.join().unwrap();
        });
    }
}

#[test]
fn a_downgrade_lets_waiting_readers_in_and_keeps_writers_out() {
    let latch = HybridLatch::new();
    thread::scope(|scope| {
        let guard = latch.exclusive();
        let reader = scope.spawn(|| drop(latch.shared()));
        until(|| format!("{latch:?}").contains("parked: true"));
        let shared = guard.downgrade();
        reader.join().unwrap();
        assert!(latch.try_exclusive().is_none());
        drop(shared);
    });
}

#[test]
fn the_count_of_readers_cannot_overflow() {
    let latch = HybridLatch::with_version(u64::MAX);
    let mut guards: Vec<_> = (0..MAX_SHARED).map(|_| latch.shared()).collect();
    assert!(latch.try_shared().is_none());
    assert!(latch.shared_while(&mut || false).is_none());
    assert!(latch.optimistic().is_some(), "optimistic readers are not counted");
    let taken = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = latch.shared();
            taken.store(true, Ordering::Relaxed);
            drop(guard);
        });
        until(|| format!("{latch:?}").contains("parked: true"));
        assert!(!taken.load(Ordering::Relaxed));
        guards.pop();
        waiter.join().unwrap();
    });
    drop(guards);
    assert!(latch.try_exclusive().is_some());
    assert!(format!("{latch:?}").contains("parked: false"), "{latch:?}");
}

#[test]
fn many_readers_wait_for_one_place() {
    let latch = HybridLatch::new();
    let mut guards: Vec<_> = (0..MAX_SHARED).map(|_| latch.shared()).collect();
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| drop(latch.shared()));
        }
        until(|| format!("{latch:?}").contains("parked: true"));
        guards.pop();
    });
    drop(guards);
    assert!(latch.try_exclusive().is_some());
}

#[test]
fn fields_of_the_word_do_not_overlap() {
    for (a, b) in [(PARKED, EXCLUSIVE), (EXCLUSIVE, SHARED), (SHARED, VERSION), (PARKED, VERSION)] {
        assert_eq!(a & b, 0);
    }
    assert_eq!(size_of::<HybridLatch>(), 8);
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<HybridLatch>();
    is_send_and_sync::<ExclusiveGuard<'_>>();
    is_send_and_sync::<crate::optimistic::RacingBytes<'_>>();
}
