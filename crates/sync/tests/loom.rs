//! Models of the latch: every interleaving, and every outcome that the memory model allows, of a
//! few threads, up to a bound on preemptions.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p hedgerow-sync --release --test loom
//! ```
//!
//! A page is two words here, changed and read with relaxed operations: nothing but the latch orders
//! them. Writers store without loading first where they can: loom looks for conflicts with the last
//! access to a word only, and a writer's own load would hide the load of a reader. A lost wake-up shows as a deadlock, which loom reports. `cargo xtask seeded-bugs` removes one line
//! of the protocol at a time and expects these models to fail.

#![cfg(loom)]

use hedgerow_sync::latch::HybridLatch;
use hedgerow_sync::primitive::Brief;
use hedgerow_sync::primitive::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use hedgerow_sync::primitive::witness::Witness;
use loom::sync::Arc;
use loom::thread;

/// Checks every execution with at most `preemptions` involuntary switches, or `HEDGEROW_PREEMPTIONS`, if that is fewer.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    let fewer =
        std::env::var("HEDGEROW_PREEMPTIONS").map(|number| number.parse().expect("a number"));
    builder.preemption_bound =
        Some(fewer.map_or(preemptions, |fewer: usize| fewer.min(preemptions)));
    builder.check(model);
}

/// A frame: a latch, the page that it holds, and the page's bytes.
struct Frame {
    latch: HybridLatch,
    page_id: AtomicU64,
    words: [AtomicU64; 2],
}

impl Frame {
    fn new(version: u64, page_id: u64, word: u64) -> Frame {
        Frame {
            latch: HybridLatch::with_version(version),
            page_id: AtomicU64::new(page_id),
            words: [AtomicU64::new(word), AtomicU64::new(word)],
        }
    }

    /// Both words, as an optimistic reader gets them: perhaps torn.
    fn read(&self) -> (u64, u64) {
        (self.words[0].load(Ordering::Relaxed), self.words[1].load(Ordering::Relaxed))
    }

    fn write(&self, word: u64) {
        self.words[0].store(word, Ordering::Relaxed);
        self.words[1].store(word, Ordering::Relaxed);
    }
}

#[test]
fn a_validated_read_is_not_torn() {
    check(3, || {
        let frame = Arc::new(Frame::new(7, 0, 0));
        let writers: Vec<_> = (1..=2)
            .map(|word| {
                let frame = Arc::clone(&frame);
                thread::spawn(move || {
                    let guard = frame.latch.exclusive();
                    frame.write(word);
                    drop(guard);
                })
            })
            .collect();
        if let Some(version) = frame.latch.optimistic() {
            let (first, second) = frame.read();
            if frame.latch.validate(version) {
                assert_eq!(first, second, "torn");
            }
        }
        for writer in writers {
            writer.join().unwrap();
        }
        let version = frame.latch.optimistic().unwrap();
        assert!([(1, 1), (2, 2)].contains(&frame.read()));
        assert_eq!(version, HybridLatch::with_version(9).optimistic().unwrap());
    });
}

#[test]
fn a_validated_read_is_not_torn_when_the_version_wraps() {
    check(3, || {
        let last = (1 << 48) - 1;
        let frame = Arc::new(Frame::new(last, 0, 0));
        let writer = {
            let frame = Arc::clone(&frame);
            thread::spawn(move || {
                for word in 1..=2 {
                    let guard = frame.latch.try_exclusive().expect("nobody else latches");
                    frame.write(word);
                    drop(guard);
                }
            })
        };
        if let Some(version) = frame.latch.optimistic() {
            let (first, second) = frame.read();
            if frame.latch.validate(version) {
                assert_eq!(first, second, "torn");
                let old = version == HybridLatch::with_version(last).optimistic().unwrap();
                assert_eq!(old, first == 0, "the version tells which state was read");
            }
        }
        writer.join().unwrap();
        assert_eq!(frame.latch.optimistic(), HybridLatch::with_version(1).optimistic());
    });
}

/// A sleeper of each kind, and a holder that leaves: all must come to an end.
#[test]
fn no_wake_up_is_lost() {
    check(3, || {
        let latch = Arc::new(HybridLatch::new());
        let held = latch.exclusive();
        let writer = {
            let latch = Arc::clone(&latch);
            thread::spawn(move || drop(latch.exclusive()))
        };
        let reader = {
            let latch = Arc::clone(&latch);
            thread::spawn(move || drop(latch.shared()))
        };
        drop(held);
        writer.join().unwrap();
        reader.join().unwrap();
        assert!(latch.try_exclusive().is_some());
        assert!(format!("{latch:?}").contains("parked: false"), "{latch:?}");
    });
}

/// A writer waits for readers; the last of them wakes it.
#[test]
fn the_last_reader_wakes_the_writer() {
    check(3, || {
        let latch = Arc::new(HybridLatch::new());
        let held = latch.shared();
        let reader = {
            let latch = Arc::clone(&latch);
            thread::spawn(move || drop(latch.shared()))
        };
        let writer = {
            let latch = Arc::clone(&latch);
            thread::spawn(move || drop(latch.exclusive()))
        };
        drop(held);
        reader.join().unwrap();
        writer.join().unwrap();
        assert!(format!("{latch:?}").contains("parked: false"), "{latch:?}");
    });
}

/// Two threads read, and upgrade on the strength of what they read: no change is lost.
#[test]
fn an_upgrade_stands_on_what_was_read() {
    check(3, || {
        let frame = Arc::new(Frame::new(0, 0, 0));
        let upgrade = |frame: &Frame| {
            let Some(version) = frame.latch.optimistic() else { return 0 };
            let (word, _) = frame.read();
            let Some(guard) = frame.latch.try_upgrade(version) else { return 0 };
            assert_eq!(frame.read(), (word, word), "what was read before still stands");
            frame.write(word + 1);
            drop(guard);
            1
        };
        let other = {
            let frame = Arc::clone(&frame);
            thread::spawn(move || upgrade(&frame))
        };
        let mine = upgrade(&frame);
        let done = mine + other.join().unwrap();
        assert!(done >= 1, "one of the two comes first");
        let _guard = frame.latch.shared();
        assert_eq!(frame.read(), (done, done));
    });
}

/// A reader looks for page 1 while its frame is given to page 2. The order is that of the engine:
/// translation, version, page id, bytes, validation.
#[test]
fn an_evicted_page_is_not_taken_for_another() {
    check(3, || {
        let frame = Arc::new(Frame::new(0, 1, 100));
        let resident = Arc::new(AtomicBool::new(true));
        let evictor = {
            let (frame, resident) = (Arc::clone(&frame), Arc::clone(&resident));
            thread::spawn(move || {
                let guard = frame.latch.try_exclusive().expect("nobody else latches");
                resident.store(false, Ordering::Relaxed);
                frame.page_id.store(2, Ordering::Relaxed);
                frame.write(200);
                drop(guard);
            })
        };
        let find = || {
            if !resident.load(Ordering::Relaxed) {
                return None;
            }
            let version = frame.latch.optimistic()?;
            // The translation is a guess until the frame says what it holds.
            if frame.page_id.load(Ordering::Relaxed) != 1 {
                return None;
            }
            let read = frame.read();
            frame.latch.validate(version).then_some(read)
        };
        if let Some(read) = find() {
            assert_eq!(read, (100, 100), "these are the bytes of another page");
        }
        evictor.join().unwrap();
    });
}

/// Two sleep; the one that is woken first gives up. The other must not sleep for ever.
#[test]
fn a_waiter_that_gives_up_passes_the_wake_up_on() {
    check(2, || {
        let latch = Arc::new(HybridLatch::new());
        let cancelled = Arc::new(AtomicBool::new(false));
        let held = latch.exclusive();
        let giving_up = {
            let (latch, cancelled) = (Arc::clone(&latch), Arc::clone(&cancelled));
            thread::spawn(move || {
                // Bounded, or the model would have no end.
                let mut patience = 4;
                let mut keep_waiting = || {
                    patience -= 1;
                    patience > 0 && !cancelled.load(Ordering::Relaxed)
                };
                drop(latch.exclusive_while(&mut keep_waiting));
            })
        };
        let patient = {
            let latch = Arc::clone(&latch);
            thread::spawn(move || drop(latch.exclusive()))
        };
        cancelled.store(true, Ordering::Relaxed);
        drop(held);
        giving_up.join().unwrap();
        patient.join().unwrap();
        assert!(format!("{latch:?}").contains("parked: false"), "{latch:?}");
    });
}

/// Who is woken comes too late, and the release that it has missed wakes nobody because it is on its way: if it gives up then, it owes
/// the other one a wake-up.
#[test]
fn who_gives_up_wakes_for_a_release_that_has_woken_nobody() {
    check(2, || {
        let latch = Arc::new(HybridLatch::new());
        let held = latch.exclusive();
        let giving_up = {
            let latch = Arc::clone(&latch);
            thread::spawn(move || {
                let mut patience = 2;
                let mut keep_waiting = || {
                    patience -= 1;
                    patience > 0
                };
                drop(latch.exclusive_while(&mut keep_waiting));
            })
        };
        let patient = {
            let latch = Arc::clone(&latch);
            thread::spawn(move || drop(latch.exclusive()))
        };
        drop(held);
        drop(latch.try_exclusive());
        giving_up.join().unwrap();
        patient.join().unwrap();
        assert!(latch.try_exclusive().is_some());
    });
}

/// Who is woken comes too late, sleeps again, and is handed the latch: all come to an end, and nobody is beside another one.
#[test]
fn who_was_overtaken_is_handed_the_latch() {
    check(2, || {
        let shared = Arc::new((HybridLatch::new(), AtomicUsize::new(0)));
        let held = shared.0.exclusive();
        let write = |inside: &AtomicUsize| {
            assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
            assert_eq!(inside.fetch_sub(1, Ordering::Relaxed), 1);
        };
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let _guard = shared.0.exclusive();
                    write(&shared.1);
                })
            })
            .collect();
        drop(held);
        if let Some(guard) = shared.0.try_exclusive() {
            write(&shared.1);
            drop(guard);
        }
        for writer in writers {
            writer.join().unwrap();
        }
        assert!(shared.0.try_exclusive().is_some());
        let word = format!("{:?}", shared.0);
        assert!(word.contains("parked: false") && word.contains("waking: false"), "{word}");
    });
}

/// Who would give up is handed the latch at that moment: it has it, and lets go of it like any holder, so that others get it.
#[test]
fn who_gives_up_has_the_latch_that_it_was_handed() {
    check(2, || {
        let latch = Arc::new(HybridLatch::new());
        let held = latch.exclusive();
        let giving_up = {
            let latch = Arc::clone(&latch);
            thread::spawn(move || {
                // Asked before the first sleep, and before the second: at the third time it gives up.
                let mut patience = 3;
                let mut keep_waiting = || {
                    patience -= 1;
                    patience > 0
                };
                drop(latch.exclusive_while(&mut keep_waiting));
            })
        };
        drop(held);
        drop(latch.try_exclusive());
        giving_up.join().unwrap();
        assert!(latch.try_exclusive().is_some());
        let word = format!("{latch:?}");
        assert!(word.contains("parked: false") && word.contains("waking: false"), "{word}");
    });
}

/// Readers together, writers alone; a downgraded writer is a reader.
#[test]
fn modes_exclude_each_other() {
    const WRITER: usize = 100;
    check(3, || {
        let shared = Arc::new((HybridLatch::new(), AtomicUsize::new(0)));
        let write = |inside: &AtomicUsize| {
            assert_eq!(inside.fetch_add(WRITER, Ordering::Relaxed), 0);
            assert_eq!(inside.fetch_sub(WRITER, Ordering::Relaxed), WRITER);
        };
        let read = |inside: &AtomicUsize| {
            assert!(inside.fetch_add(1, Ordering::Relaxed) < WRITER);
            assert!(inside.fetch_sub(1, Ordering::Relaxed) < WRITER);
        };
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let _guard = shared.0.shared();
                read(&shared.1);
            })
        };
        let downgrader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let guard = shared.0.exclusive();
                write(&shared.1);
                let _guard = guard.downgrade();
                read(&shared.1);
            })
        };
        if let Some(guard) = shared.0.try_exclusive() {
            write(&shared.1);
            guard.release_unchanged();
        }
        reader.join().unwrap();
        downgrader.join().unwrap();
        // One change, the downgraded one; and the count of readers is back to zero.
        assert_eq!(shared.0.optimistic(), HybridLatch::with_version(1).optimistic());
        assert!(shared.0.try_exclusive().is_some());
    });
}

/// Loom notices two threads that have it at once, or one that does not see what the other has done.
#[test]
fn a_brief_lock_has_one_holder_at_a_time_who_sees_what_the_one_before_has_done() {
    check(3, || {
        let shared = Arc::new((Brief::new(0), Witness::default()));
        let add = |shared: &(Brief<u32>, Witness)| {
            let mut count = shared.0.lock_while(|| true).expect("it waits");
            shared.1.touch(0);
            *count += 1;
        };
        let other = shared.clone();
        let thread = thread::spawn(move || add(&other));
        add(&shared);
        thread.join().unwrap();
        assert_eq!(*shared.0.lock_while(|| true).expect("nobody has it"), 2);
    });
}
