//! The epochs of writers: which checkpoint interval a change belongs to.
//!
//! A writer stays in an epoch from before its first latch until its pages are stamped, and stamps
//! all of them with it, so that "all images of epoch <= E" is a set of pages in which every
//! structure change is whole. A checkpoint raises the epoch and waits until nobody is left in an
//! older one.
//!
//! Entering: store the epoch in a slot of one's own (sequentially consistent), load the global epoch
//! again, and repeat until both agree. Either the checkpoint sees the slot, or the writer sees the
//! raised epoch: there is no third way, because both do a store and then a load of the other's word.
//!
//! At present a checkpoint also keeps new writers out while it runs ([`Epochs::stop`]); nothing but
//! [`Epochs::enter`] knows this. `Send + Sync`; nothing is latched while one waits here.

use crate::types::Epoch;
use hedgerow_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering::*};
use hedgerow_sync::primitive::{Condvar, Mutex, hint, thread};
use std::fmt;

/// Slots for writers that are inside at the same moment. More writers than slots wait for a slot.
const SLOTS: usize = if cfg!(any(loom, shuttle)) { 8 } else { 128 };
/// Nobody stays in this slot.
const EMPTY: u64 = 0;

/// One slot to a pair of cache lines, so that writers do not disturb each other.
#[repr(align(128))]
struct StaySlot(AtomicU64);

/// The global epoch and who is inside of which.
pub struct Epochs {
    current: AtomicU64,
    stopped: AtomicBool,
    slots: Box<[StaySlot]>,
    gate: Mutex<()>,
    opened: Condvar,
}

impl fmt::Debug for Epochs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epochs").field("current", &self.current()).finish_non_exhaustive()
    }
}

impl Epochs {
    /// Begins in `first`, which is at least 1.
    pub fn new(first: Epoch) -> Epochs {
        assert!(first.0 > EMPTY, "epochs begin at 1");
        Epochs {
            current: AtomicU64::new(first.0),
            stopped: AtomicBool::new(false),
            slots: (0..SLOTS).map(|_| StaySlot(AtomicU64::new(EMPTY))).collect(),
            gate: Mutex::new(()),
            opened: Condvar::new(),
        }
    }

    /// The epoch that a writer who came now would enter.
    pub fn current(&self) -> Epoch {
        Epoch(self.current.load(SeqCst))
    }

    /// Enters the current epoch. Waits while writers are stopped.
    #[inline]
    pub fn enter(&self) -> Stay<'_> {
        let home = thread::id() % SLOTS;
        loop {
            let epoch = self.current.load(SeqCst);
            let slot = &self.slots[home].0;
            if slot.compare_exchange(EMPTY, epoch, SeqCst, Relaxed).is_ok() {
                // The store above and these loads are sequentially consistent, as are `stop`'s store
                // and its loads of the slots: one of the two sees the other.
                if self.is_open_in(epoch) {
                    return Stay { slot, epoch: Epoch(epoch) };
                }
                slot.store(EMPTY, SeqCst);
                self.wait_until_open();
                continue;
            }
            return self.enter_elsewhere(home);
        }
    }

    /// Enters the current epoch, unless writers are stopped or another thread uses our home slot.
    pub fn try_enter(&self) -> Option<Stay<'_>> {
        let epoch = self.current.load(SeqCst);
        let slot = &self.slots[thread::id() % SLOTS].0;
        slot.compare_exchange(EMPTY, epoch, SeqCst, Relaxed).ok()?;
        if self.is_open_in(epoch) {
            return Some(Stay { slot, epoch: Epoch(epoch) });
        }
        slot.store(EMPTY, SeqCst);
        None
    }

    /// Another thread uses our home slot: look for any other.
    #[cold]
    fn enter_elsewhere(&self, home: usize) -> Stay<'_> {
        for attempt in 1.. {
            let epoch = self.current.load(SeqCst);
            let slot = &self.slots[(home + attempt) % SLOTS].0;
            if slot.compare_exchange(EMPTY, epoch, SeqCst, Relaxed).is_ok() {
                if self.is_open_in(epoch) {
                    return Stay { slot, epoch: Epoch(epoch) };
                }
                slot.store(EMPTY, SeqCst);
                self.wait_until_open();
            }
            if attempt % SLOTS == 0 {
                thread::yield_now();
            }
        }
        unreachable!("the attempts do not end before a slot is free")
    }

    /// Whether who has just entered `epoch` may stay: it is still the current one, and open.
    #[inline]
    fn is_open_in(&self, epoch: u64) -> bool {
        self.current.load(SeqCst) == epoch && !self.stopped.load(SeqCst)
            || cfg!(hedgerow_canary = "enter_without_second_look")
    }

    #[cold]
    fn wait_until_open(&self) {
        let mut gate = self.gate.lock();
        while self.stopped.load(SeqCst) {
            self.opened.wait(&mut gate);
        }
    }

    /// Ends the current epoch and keeps writers out: returns when nobody is left in it. The epoch that
    /// ended is the checkpoint's; what is changed after [`Stopped`] is dropped belongs to the next.
    ///
    /// One caller at a time (the checkpoint lock sees to that).
    pub fn stop(&self) -> Stopped<'_> {
        {
            let _gate = self.gate.lock();
            let before = self.stopped.swap(true, SeqCst);
            assert!(!before, "one checkpoint at a time");
        }
        let ended = self.current.fetch_add(1, SeqCst);
        for slot in &self.slots {
            let mut spins = 0u32;
            // An entry that saw the old epoch leaves soon: it waits for nothing while it is inside.
            while matches!(slot.0.load(SeqCst), stay if stay != EMPTY && stay <= ended) {
                spins += 1;
                if spins < 64 {
                    hint::spin_loop();
                } else {
                    thread::yield_now();
                }
            }
        }
        Stopped { epochs: self, ended: Epoch(ended) }
    }
}

/// A writer's stay; dropping it leaves.
#[must_use]
pub struct Stay<'e> {
    slot: &'e AtomicU64,
    epoch: Epoch,
}

impl Stay<'_> {
    /// The epoch that changes are stamped with.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}

impl Drop for Stay<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: whoever sees the slot empty sees the pages as this stay left them.
        self.slot.store(EMPTY, Release);
    }
}

/// Writers are kept out until this is dropped.
#[must_use]
pub struct Stopped<'e> {
    epochs: &'e Epochs,
    ended: Epoch,
}

impl Stopped<'_> {
    /// The epoch that has ended: no change of it is still under way.
    pub fn ended(&self) -> Epoch {
        self.ended
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let _gate = self.epochs.gate.lock();
        self.epochs.stopped.store(false, SeqCst);
        self.epochs.opened.notify_all();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use hedgerow_sync::primitive::Arc;
    use hedgerow_sync::primitive::atomic::AtomicUsize;

    #[test]
    fn nobody_is_inside_of_an_ended_epoch() {
        let epochs = Arc::new(Epochs::new(Epoch(1)));
        let inside = Arc::new(AtomicUsize::new(0));
        let done = Arc::new(AtomicBool::new(false));
        let stays = Arc::new(AtomicUsize::new(0));
        let writers: Vec<_> = (0..3)
            .map(|n| {
                let (epochs, inside) = (epochs.clone(), inside.clone());
                let (done, stays) = (done.clone(), stays.clone());
                thread::spawn_named(&format!("writer {n}"), move || {
                    while !done.load(SeqCst) {
                        let stay = epochs.enter();
                        inside.fetch_add(1, SeqCst);
                        assert!(stay.epoch() <= epochs.current());
                        inside.fetch_sub(1, SeqCst);
                        stays.fetch_add(1, SeqCst);
                    }
                })
                .unwrap()
            })
            .collect();
        while stays.load(SeqCst) == 0 {
            thread::yield_now();
        }
        for n in 1..200 {
            let stopped = epochs.stop();
            assert_eq!(stopped.ended(), Epoch(n));
            assert_eq!(inside.load(SeqCst), 0, "a writer was inside of a stopped epoch");
            drop(stopped);
        }
        done.store(true, SeqCst);
        for writer in writers {
            writer.join().unwrap();
        }
    }

    #[test]
    fn one_thread_may_not_starve_the_slots_of_others() {
        let epochs = Epochs::new(Epoch(7));
        let stays: Vec<_> = (0..SLOTS).map(|_| epochs.enter()).collect();
        assert!(stays.iter().all(|s| s.epoch() == Epoch(7)));
    }
}
