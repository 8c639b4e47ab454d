//! A pair of barriers of which one costs nothing, because the other does the work of both.
//!
//! Two threads that each store one word and then load the other's need a full barrier between the two, or
//! both may see the old word. Where one of them does it a million times a second and the other once in a
//! while, the one calls [`light`], which only keeps the compiler from moving anything, and the other calls
//! [`heavy`], which has the system run a barrier on every processor that runs a thread of this process
//! (`membarrier`, Linux 4.14): *of a light and a heavy barrier one comes first, and what was stored before it is
//! seen by what is loaded after the other.*
//!
//! Where the system has no such call both are full barriers, and under a model they always are. The first call of
//! [`is_available`] finds out. It registers the process and makes one barrier, before anybody relies on it.
//!
//! # When the system refuses the call later
//! A sandbox may be set up after that, and refuse the call from then on, for all threads or for some. The first
//! [`heavy`] that is refused makes the barriers symmetric for good, for the whole process:
//!
//! 1. It stores `LEAVING`. Each [`light`] that sees this word runs a full barrier.
//! 2. A [`light`] that has seen `AVAILABLE` may still be under way: its store may not have reached the cache yet, and
//!    its load may have returned the old word. So it waits until that store is visible. One `membarrier` of the slow
//!    kind (`GLOBAL`) proves it, where the filter lets it through. Else it waits for `GRACE`.
//! 3. It stores `MISSING`. From here on a heavy barrier is a full barrier and nothing else.
//!
//! Every heavy barrier that comes between steps 1 and 3 does all three steps itself, and takes no lock for it: a fork could find
//! a lock held, and then nobody in the child would ever unlock it. So each of them ends when no light barrier of the cheap kind is under way, and everything that such a barrier has stored is visible. This is what the
//! promise above asks for; the protocols that rest on it (epochs, crowds of latches) need no change.
//!
//! Why waiting suffices: `light` loads the state *after* the store in program order (a compiler's fence keeps it there).
//! A thread that is interrupted or descheduled between the store and its load runs a full barrier in the kernel. A
//! thread that is not interrupted has both instructions in the processor at once, and a processor that has retired a
//! store makes it visible as soon as it has the line, which takes microseconds even when all of them want it. The grace is
//! ten thousand times as long. No standard promises a bound; it holds on every processor that this runs on, and
//! there is nothing stronger left to ask for when the system refuses all of its barriers.
//!
//! Thread-safety: everything, from any thread. No state but whether the call was found to work.

#[cfg(not(any(loom, shuttle, hedgerow_sim)))]
mod imp {
    use std::sync::atomic::Ordering::{Relaxed, SeqCst};
    use std::sync::atomic::{AtomicU8, compiler_fence, fence};

    const UNKNOWN: u8 = 0;
    const AVAILABLE: u8 = 1;
    /// Refused after it had worked: light barriers are full ones by now, but older ones may be under way.
    #[cfg(target_os = "linux")]
    const LEAVING: u8 = 2;
    const MISSING: u8 = 3;
    /// Goes up, and ends at `MISSING` or stays at `AVAILABLE`.
    static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

    #[cfg(target_os = "linux")]
    mod system {
        use super::{AVAILABLE, LEAVING, MISSING, STATE};
        use crate::primitive::thread;
        use rustix::io::Errno;
        use rustix::thread::{MembarrierCommand, membarrier};
        use std::sync::atomic::Ordering::SeqCst;
        use std::sync::atomic::fence;
        use std::time::Duration;

        /// Tries of a barrier for which the kernel has no memory at the moment, and how far apart.
        const TRIES: u32 = 20;
        const RETRY: Duration = Duration::from_millis(1);
        /// What a store that is under way needs at most to be seen, many times over.
        const GRACE: Duration = Duration::from_millis(100);

        pub fn register() -> bool {
            membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
                && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
        }

        /// A barrier on every processor that runs a thread of this process.
        pub fn barrier(state: u8) {
            if state == AVAILABLE && expedited() {
                return;
            }
            if state != MISSING {
                become_symmetric();
            }
        }

        /// False if the system refuses.
        fn expedited() -> bool {
            for _ in 0..TRIES {
                match membarrier(MembarrierCommand::PrivateExpedited) {
                    Ok(()) => return true,
                    Err(Errno::NOMEM | Errno::AGAIN | Errno::INTR) => thread::sleep(RETRY),
                    Err(_) => return false,
                }
            }
            false
        }

        /// See the head of the file. Returns when no cheap light barrier is under way any more.
        #[cold]
        fn become_symmetric() {
            // The state only goes up: another thread may have come further.
            if STATE.fetch_max(LEAVING, SeqCst) == MISSING {
                return;
            }
            fence(SeqCst);
            if membarrier(MembarrierCommand::Global).is_err() {
                thread::sleep(GRACE);
            }
            STATE.store(MISSING, SeqCst);
        }
    }

    #[cfg(not(target_os = "linux"))]
    mod system {
        pub fn register() -> bool {
            false
        }

        pub fn barrier(_: u8) {}
    }

    /// ThreadSanitizer sees no barrier of the system's.
    const WANTED: bool = cfg!(not(any(hedgerow_tsan, miri)));

    /// Finds out whether the call works, if nobody has.
    fn state() -> u8 {
        match STATE.load(Relaxed) {
            UNKNOWN => {
                let found = if WANTED && system::register() { AVAILABLE } else { MISSING };
                // The first who finds out decides, for a thread that may not call may come second.
                match STATE.compare_exchange(UNKNOWN, found, SeqCst, SeqCst) {
                    Ok(_) => found,
                    Err(decided) => decided,
                }
            }
            known => known,
        }
    }

    pub(super) fn is_available() -> bool {
        state() == AVAILABLE
    }

    #[inline]
    pub(super) fn light() {
        // The state is looked at behind the caller's store: so the head of the file wants it.
        compiler_fence(SeqCst);
        if STATE.load(Relaxed) == AVAILABLE {
            compiler_fence(SeqCst);
        } else {
            fence(SeqCst);
        }
    }

    #[cold]
    pub(super) fn heavy() {
        fence(SeqCst);
        system::barrier(state());
    }
}

#[cfg(any(loom, shuttle))]
mod imp {
    use crate::primitive::atomic::{Ordering::SeqCst, fence};

    pub(super) fn is_available() -> bool {
        true
    }

    pub(super) fn light() {
        fence(SeqCst);
    }

    pub(super) fn heavy() {
        fence(SeqCst);
    }
}

/// In a run stores are seen at once, and the heavy barrier costs the system call. Outside both are full barriers.
#[cfg(hedgerow_sim)]
mod imp {
    use crate::primitive::atomic::{Ordering::SeqCst, fence};

    pub(super) fn is_available() -> bool {
        true
    }

    #[inline]
    pub(super) fn light() {
        if !hedgerow_sim::is_running() {
            fence(SeqCst);
        }
    }

    pub(super) fn heavy() {
        fence(SeqCst);
        hedgerow_sim::barrier();
    }
}

/// Whether [`light`] is cheaper than a full barrier. The first call finds out, and should come before
/// any thread relies on the difference.
#[allow(clippy::must_use_candidate, reason = "the first call is made to find out")]
pub fn is_available() -> bool {
    imp::is_available()
}

/// The cheap half of a barrier: a store before it is visible to a thread that runs [`heavy`], or the loads after it see what that thread
/// stored before. Where [`is_available`], it only keeps the compiler from reordering.
#[inline]
pub fn light() {
    imp::light();
}

/// The expensive half: a barrier on every processor that runs a thread of this process. Takes some microseconds, more with many
/// processors.
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
