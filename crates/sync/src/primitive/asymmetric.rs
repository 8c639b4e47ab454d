//! A pair of barriers of which one costs nothing, because the other does the work of both.
//!
//! Two threads that each store one word and then load the other's need a full barrier between the two, or
//! both may see the old word. Where one of them does it a million times a second and the other once in a
//! while, the one calls [`light`], which only keeps the compiler from moving anything, and the other calls
//! [`heavy`], which has the system run a barrier on every processor that runs a thread of this process
//! (`membarrier`, Linux 4.14): *of a light and a heavy barrier one comes first, and what was stored before it is
//! seen by what is loaded after the other.*
//!
//! Where the system has no such call both are full barriers, and under a model they always are.
//! Thread-safety: everything, from any thread. No state but whether the call was found to work.

#[cfg(not(any(loom, shuttle)))]
mod imp {
    use std::sync::atomic::Ordering::{Relaxed, SeqCst};
    use std::sync::atomic::{AtomicU8, compiler_fence, fence};

    const UNKNOWN: u8 = 0;
    const AVAILABLE: u8 = 1;
    const MISSING: u8 = 2;
    /// Tries of a barrier, and how far apart: ten seconds.
    #[cfg(target_os = "linux")]
    const MOST_FAILURES: u32 = 1000;
    #[cfg(target_os = "linux")]
    const RETRY: std::time::Duration = std::time::Duration::from_millis(10);
    /// Leaves `UNKNOWN` once, for good.
    static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

    #[cfg(target_os = "linux")]
    fn register() -> bool {
        use rustix::thread::{MembarrierCommand, membarrier};
        membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
            && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }

    #[cfg(not(target_os = "linux"))]
    fn register() -> bool {
        false
    }

    /// ThreadSanitizer sees no barrier of the system's.
    const WANTED: bool = cfg!(not(any(hedgerow_tsan, miri)));

    pub(super) fn is_available() -> bool {
        match STATE.load(Relaxed) {
            UNKNOWN => {
                let found = if WANTED && register() { AVAILABLE } else { MISSING };
                // The first who finds out decides, for a thread that may not call may come second.
                match STATE.compare_exchange(UNKNOWN, found, SeqCst, SeqCst) {
                    Ok(_) => found == AVAILABLE,
                    Err(decided) => decided == AVAILABLE,
                }
            }
            state => state == AVAILABLE,
        }
    }

    #[inline]
    pub(super) fn light() {
        if STATE.load(Relaxed) == AVAILABLE {
            compiler_fence(SeqCst);
        } else {
            fence(SeqCst);
        }
    }

    #[cold]
    pub(super) fn heavy() {
        fence(SeqCst);
        #[cfg(target_os = "linux")]
        if is_available() {
            use rustix::thread::{MembarrierCommand, membarrier};
            // It has worked, or it would not be available; the kernel may be short of memory for a moment.
            let mut failures = 0;
            while let Err(error) = membarrier(MembarrierCommand::PrivateExpedited) {
                failures += 1;
                assert!(failures < MOST_FAILURES, "a barrier that worked fails now: {error}");
                crate::primitive::thread::sleep(RETRY);
            }
        }
    }
}

#[cfg(any(loom, shuttle))]
mod imp {
    use crate::primitive::atomic::{Ordering::SeqCst, fence};

    pub(super) fn is_available() -> bool {
        true
    }

    pub(super) fn light() {
        if !crate::primitive::canary::leaves_out("no_light_barrier") {
            fence(SeqCst);
        }
    }

    pub(super) fn heavy() {
        fence(SeqCst);
    }
}

/// Whether [`light`] is cheaper than a full barrier. The first call finds out, and should come before
/// anybody relies on the difference.
pub fn is_available() -> bool {
    imp::is_available()
}

/// The cheap half.
#[inline]
pub fn light() {
    imp::light();
}

/// The other half: some microseconds, more with many processors.
pub fn heavy() {
    imp::heavy();
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::primitive::{Arc, atomic::*, thread};
    use std::sync::atomic::Ordering::{Relaxed, SeqCst};

    #[test]
    fn of_two_who_store_and_look_one_sees_the_other() {
        const ROUNDS: u32 = 3_000;
        println!("asymmetric barriers: {}", is_available());
        let words = Arc::new([const { AtomicU32::new(0) }; 4]);
        let often = {
            let words = words.clone();
            thread::spawn_named("often", move || {
                for round in 1..=ROUNDS {
                    while words[2].load(SeqCst) < round {
                        thread::yield_now();
                    }
                    words[0].store(round, Relaxed);
                    light();
                    let seen = words[1].load(Relaxed);
                    words[3].store(seen, Relaxed);
                    words[2].store(ROUNDS + round, SeqCst);
                    while words[2].load(SeqCst) == ROUNDS + round {
                        thread::yield_now();
                    }
                }
            })
            .unwrap()
        };
        for round in 1..=ROUNDS {
            words[2].store(round, SeqCst);
            words[1].store(round, Relaxed);
            heavy();
            let seen = words[0].load(Relaxed);
            while words[2].load(SeqCst) != ROUNDS + round {
                thread::yield_now();
            }
            assert!(seen == round || words[3].load(Relaxed) == round, "round {round}");
            words[2].store(if round == ROUNDS { u32::MAX } else { 0 }, SeqCst);
        }
        often.join().unwrap();
    }
}
