//! The latch under shuttle: many random interleavings of more threads and steps than loom can
//! exhaust. Shuttle takes every access for sequentially consistent, so what it can find is a lost
//! wake-up, a broken exclusion or a wrong count; the orderings are loom's business.
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test -p hedgerow-sync --release --test shuttle
//! ```
//!
//! A failure prints the schedule, which `shuttle::replay` runs again.

#![cfg(shuttle)]

use hedgerow_sync::latch::{ExclusiveGuard, HybridLatch};
use hedgerow_sync::optimistic::{PageBytes, RacingBytes};
use hedgerow_sync::primitive::atomic::{AtomicU64, AtomicUsize, Ordering};
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::{Arc, thread};

const ITERATIONS: usize = 10_000;

/// Random schedules, and schedules with a few priority changes (which find rarer orders).
fn check(model: fn()) {
    shuttle::check_random(model, ITERATIONS);
    shuttle::check_pct(model, ITERATIONS, 3);
}

const WRITER: usize = 1 << 16;

struct Shared {
    latch: HybridLatch,
    inside: AtomicUsize,
    changes: AtomicU64,
}

impl Shared {
    fn write(&self) {
        assert_eq!(self.inside.fetch_add(WRITER, Ordering::Relaxed), 0);
        assert_eq!(self.inside.fetch_sub(WRITER, Ordering::Relaxed), WRITER);
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) {
        assert!(self.inside.fetch_add(1, Ordering::Relaxed) < WRITER);
        assert!(self.inside.fetch_sub(1, Ordering::Relaxed) < WRITER);
    }

    fn act(&self, what: u64) {
        match what {
            0 => {
                let _guard = self.latch.shared();
                self.read();
            }
            1 => {
                let _guard = self.latch.exclusive();
                self.write();
            }
            2 => {
                let guard = self.latch.exclusive();
                self.write();
                let _guard = guard.downgrade();
                self.read();
            }
            3 => {
                let mut patience = 3;
                let mut keep_waiting = || {
                    patience -= 1;
                    patience > 0
                };
                if let Some(_guard) = self.latch.exclusive_while(&mut keep_waiting) {
                    self.write();
                }
            }
            4 => {
                let mut patience = 2;
                let mut keep_waiting = || {
                    patience -= 1;
                    patience > 0
                };
                if let Some(_guard) = self.latch.shared_while(&mut keep_waiting) {
                    self.read();
                }
            }
            5 => {
                let version = self.latch.optimistic();
                if let Some(_guard) = version.and_then(|v| self.latch.try_upgrade(v)) {
                    self.write();
                }
            }
            _ => self.latch.exclusive().release_unchanged(),
        }
    }
}

#[test]
fn a_mixed_crowd_keeps_the_invariants() {
    check(|| {
        const FIRST: u64 = (1 << 48) - 3;
        let shared = Arc::new(Shared {
            latch: HybridLatch::with_version(FIRST),
            inside: AtomicUsize::new(0),
            changes: AtomicU64::new(0),
        });
        let threads: Vec<_> = (0..4)
            .map(|seed| {
                let shared = Arc::clone(&shared);
                let body = move || {
                    let mut random = SplitMix64::new(seed);
                    for _ in 0..5 {
                        shared.act(random.below(7));
                    }
                };
                thread::spawn_named("crowd", body).unwrap()
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let latch = &shared.latch;
        let expected = FIRST + shared.changes.load(Ordering::Relaxed);
        assert_eq!(latch.optimistic(), HybridLatch::with_version(expected).optimistic());
        assert!(latch.try_exclusive().is_some());
        assert!(format!("{latch:?}").contains("parked: false"), "{latch:?}");
    });
}

/// A page behind a latch, owned by the threads of a model together.
#[repr(align(64))]
struct Page(std::cell::UnsafeCell<[u8; 128]>);

// SAFETY: the bytes are accessed through `RacingBytes` alone, by its rules.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    fn view(&self) -> RacingBytes<'_> {
        // SAFETY: aligned to 64, 128 bytes long, and accessed through such views alone.
        unsafe { RacingBytes::new(self.0.get().cast(), 128) }
    }

    fn publish(&self, bytes: &[u8], _latched: &ExclusiveGuard<'_>) {
        // SAFETY: the page's latch is held exclusively, and nobody makes a slice of the page.
        unsafe { self.view().publish(bytes) };
    }
}

#[test]
fn validated_pages_are_never_torn() {
    check(|| {
        let shared = Arc::new((HybridLatch::new(), Page([0; 128].into())));
        let writers: Vec<_> = (1..3_u8)
            .map(|writer| {
                let shared = Arc::clone(&shared);
                let body = move || {
                    for round in 0..3 {
                        let guard = shared.0.exclusive();
                        // In two halves, with a chance for others between them.
                        shared.1.publish(&[writer * 10 + round; 32], &guard);
                        thread::yield_now();
                        shared.1.publish(&[writer * 10 + round; 128], &guard);
                        drop(guard);
                    }
                };
                thread::spawn_named("writer", body).unwrap()
            })
            .collect();
        for _ in 0..6 {
            if let Some(version) = shared.0.optimistic() {
                let first = shared.1.view().u64_at(0);
                thread::yield_now();
                let mut copy = [0; 128];
                shared.1.view().copy(0, &mut copy);
                if shared.0.validate(version) {
                    assert_eq!(copy, [copy[0]; 128], "torn");
                    assert_eq!(first.to_le_bytes(), [copy[0]; 8], "two states");
                }
            }
            thread::yield_now();
        }
        for writer in writers {
            writer.join().unwrap();
        }
    });
}
