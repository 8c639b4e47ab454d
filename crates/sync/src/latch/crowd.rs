//! Whether a latch is released by a plain store, or by an addition that sees who sleeps.
//!
//! Releasing an exclusively held latch by one locked addition waits until all stores before it are done, the
//! changes of the page among them, whose lines may come from memory: a third of an insertion. A plain store does
//! not wait, but it can overwrite a parked bit that was set meanwhile. So who releases looks for sleepers
//! afterwards, and who goes to sleep makes sure to be seen, by a barrier on the releasers' behalf
//! ([`asymmetric`]).
//!
//! A *crowd* is what tells them: a word for all latches whose addresses fall together. It counts who sleeps, or is
//! about to, and has a bit *hot*. Latches of a crowd that is not *quiet* (zero) are released by the addition.
//!
//! - **Sleeping**: count oneself in. If the crowd was not hot: a heavy barrier, then make it hot. Then set the parked
//!   bit, and sleep only if under the queue's lock it is still set and the latch still held.
//! - **Releasing**, quiet: store; light barrier; look again. Quiet still: done. Else go to the queue and wake.
//!
//! Why no sleeper is overlooked: a releaser who found the crowd quiet did so before the first sleeper counted
//! himself in. Of its light barrier and the sleeper's heavy one either comes first. If its own: the sleeper sees the
//! latch released and does not sleep. If the sleeper's: it sees the count when it looks again, and goes to
//! the queue. Later sleepers that find the crowd hot need no barrier: it was made hot after one, and all releasers
//! that began before it are one of the two. So a latch that many wait for costs one barrier and not one for each.
//!
//! A hot crowd cools down when nobody sleeps, by one release in 4096 of each of its latches. Where barriers are
//! symmetric it never does, and every release is an addition.
//!
//! What it costs: between the store and the second look a releaser may be descheduled, and the sleeper whose bit it
//! has overwritten sleeps until it goes on, or until somebody else goes to sleep there. `Send + Sync`.

use crate::primitive::asymmetric;
use crate::primitive::atomic::AtomicU32;
use crate::primitive::atomic::Ordering::{Relaxed, SeqCst};

/// Releases see the parked bit reliably.
const HOT: u32 = 1;
/// Somebody sleeps, or is about to.
const ONE: u32 = 2;

/// See the head of the file.
#[repr(align(64))]
pub(super) struct Crowd(AtomicU32);

impl Crowd {
    /// In a model every latch has a crowd of its own, and begins with plain releases.
    #[cfg(any(loom, shuttle))]
    pub(super) fn quiet() -> Crowd {
        Crowd(AtomicU32::new(0))
    }

    /// Whether a latch may be released by a plain store, and whether that was all there is to do.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        // Relaxed: the first look needs no order, the second has the light barrier before it.
        self.0.load(Relaxed) == 0
    }

    /// Before the parked bit is set.
    pub(super) fn enter(&self) {
        // Sequentially consistent, so that a hot crowd shows what was seen when it was made hot.
        if self.0.fetch_add(ONE, SeqCst) & HOT == 0 {
            asymmetric::heavy();
            self.0.fetch_or(HOT, SeqCst);
        }
    }

    /// Neither asleep nor about to any more.
    pub(super) fn leave(&self) {
        self.0.fetch_sub(ONE, SeqCst);
    }

    /// Makes the crowd quiet if nobody is in it.
    #[cold]
    pub(super) fn cool(&self) {
        if asymmetric::is_available() {
            // Fails if anybody has come: then the crowd stays hot.
            let _quiet = self.0.compare_exchange(HOT, 0, SeqCst, Relaxed).is_ok();
        }
    }
}

/// The crowd of the latch at an address.
#[cfg(not(any(loom, shuttle)))]
#[inline]
pub(super) fn crowd_of(address: usize) -> &'static Crowd {
    /// As many as fit into a small part of the nearest cache, each in a line of its own.
    const CROWDS: usize = 64;
    // Hot, until somebody has found out whether barriers can be had.
    static ALL: [Crowd; CROWDS] = [const { Crowd(AtomicU32::new(HOT)) }; CROWDS];
    #[cfg(hedgerow_sim)]
    if let Some(crowd) = in_a_run(address) {
        return crowd;
    }
    // Headers of frames are 32 bytes: neighbours fall apart.
    let mixed = (address as u64 >> 5).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &ALL[(mixed >> 58) as usize]
}

/// The crowd of a latch in a run of the simulator: by the number of its line, and not by its address, which differs from run
/// to run. Each run has crowds of its own, as hot as a process begins with.
#[cfg(hedgerow_sim)]
fn in_a_run(address: usize) -> Option<&'static Crowd> {
    const CROWDS: usize = 64;
    #[repr(align(4096))]
    struct Crowds([Crowd; CROWDS]);
    type OfRun = (u64, Option<&'static Crowds>);
    std::thread_local! {
        // The system thread's: a run is its own.
        static NOW: std::cell::Cell<OfRun> = const { std::cell::Cell::new((0, None)) };
    }
    let run = hedgerow_sim::run_number()?;
    let crowds = match NOW.get() {
        (known, Some(crowds)) if known == run => crowds,
        _ => {
            let new = Crowds([const { Crowd(AtomicU32::new(HOT)) }; CROWDS]);
            let new: &Crowds = Box::leak(Box::new(new));
            NOW.set((run, Some(new)));
            new
        }
    };
    let mixed = (hedgerow_sim::line_of(address)? as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Some(&crowds.0[(mixed >> 58) as usize])
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_quiet_when_nobody_is_in_it_and_it_has_cooled_down() {
        if !asymmetric::is_available() {
            return;
        }
        let crowd = Crowd(AtomicU32::new(0));
        assert!(crowd.is_quiet());
        crowd.enter();
        crowd.enter();
        for _ in 0..2 {
            crowd.cool();
            assert!(!crowd.is_quiet(), "somebody is in it");
            crowd.leave();
        }
        assert!(!crowd.is_quiet(), "it is hot");
        crowd.cool();
        assert!(crowd.is_quiet());
    }
}
