//! The epochs of writers: which checkpoint interval a change belongs to.
//!
//! A writer stays in an epoch from before its first latch until its pages are stamped, and stamps
//! all of them with it, so that "all images of epoch <= E" is a set of pages in which every
//! structure change is whole. A checkpoint raises the epoch and waits until nobody is left in an
//! older one.
//!
//! Entering: store the epoch in a slot of one's own, load the global epoch again, and repeat until both
//! agree. Either the checkpoint sees the slot, or the writer sees the raised epoch: there is no third way,
//! because both do a store and then a load of the other's word, with a barrier between. A writer's is light,
//! the checkpoint's heavy (`primitive::asymmetric`): a locked instruction would wait for whatever loads of the
//! leaf are still on their way.
//!
//! While those inside leave, a checkpoint also keeps new writers out ([`Epochs::stop`]), so that no two epochs
//! are in use at a time; nothing but [`Epochs::enter`] knows this. `Send + Sync`; nothing is latched while one
//! waits here.

use crate::types::Epoch;
use hedgerow_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering::*};
use hedgerow_sync::primitive::canary::leaves_out;
use hedgerow_sync::primitive::{Condvar, Mutex, asymmetric, hint, thread};
use std::fmt;
use std::marker::PhantomData;

/// Threads with a slot of their own: those with the smallest numbers.
const OWN_SLOTS: usize = if cfg!(any(loom, shuttle)) { 6 } else { 128 };
/// Slots for all others, and for threads that are inside already. Who finds none waits for one.
const SHARED_SLOTS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 32 };
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
        // Finds out, before anybody relies on it.
        asymmetric::is_available();
        Epochs {
            current: AtomicU64::new(first.0),
            stopped: AtomicBool::new(false),
            slots: (0..OWN_SLOTS + SHARED_SLOTS).map(|_| StaySlot(AtomicU64::new(EMPTY))).collect(),
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
        loop {
            match self.try_own_slot() {
                Some(Some(stay)) => return stay,
                Some(None) => self.wait_until_open(),
                None => return self.enter_elsewhere(),
            }
        }
    }

    /// `None`: there is no slot, or it is taken. `Some(None)`: writers are stopped.
    #[inline]
    fn try_own_slot(&self) -> Option<Option<Stay<'_>>> {
        let slot = &self.slots.get(..OWN_SLOTS)?.get(thread::id())?.0;
        // Relaxed: nobody but this thread writes to it.
        if slot.load(Relaxed) != EMPTY {
            return None;
        }
        // Relaxed: looked at again below.
        let epoch = self.current.load(Relaxed);
        // Release: a checkpoint that sees this stay has seen the end of the one before.
        let order = if leaves_out("enter_without_release") { Relaxed } else { Release };
        slot.store(epoch, order);
        asymmetric::light();
        if self.is_open_in(epoch) {
            return Some(Some(Stay::new(slot, epoch)));
        }
        slot.store(EMPTY, Release);
        Some(None)
    }

    /// For threads without a slot of their own, or inside already: any of the shared ones.
    #[cold]
    fn enter_elsewhere(&self) -> Stay<'_> {
        let home = thread::id();
        for attempt in 0.. {
            match self.try_shared_slot(home + attempt) {
                Some(Some(stay)) => return stay,
                Some(None) => self.wait_until_open(),
                None => {}
            }
            if attempt % SHARED_SLOTS == SHARED_SLOTS - 1 {
                thread::yield_now();
            }
        }
        unreachable!("the attempts do not end before a slot is free")
    }

    /// As [`Self::try_own_slot`], for one of the shared ones.
    fn try_shared_slot(&self, number: usize) -> Option<Option<Stay<'_>>> {
        let slot = &self.slots[OWN_SLOTS + number % SHARED_SLOTS].0;
        let epoch = self.current.load(SeqCst);
        slot.compare_exchange(EMPTY, epoch, SeqCst, Relaxed).ok()?;
        asymmetric::light();
        if self.is_open_in(epoch) {
            return Some(Some(Stay::new(slot, epoch)));
        }
        slot.store(EMPTY, Release);
        Some(None)
    }

    /// Whether who has just entered `epoch` may stay: it is still the current one, and open.
    #[inline]
    fn is_open_in(&self, epoch: u64) -> bool {
        self.current.load(SeqCst) == epoch && !self.stopped.load(SeqCst)
            || leaves_out("enter_without_second_look")
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
        // From here on, so that writers are let in again whatever happens.
        let stopped = Stopped { epochs: self, ended: Epoch(ended) };
        // Whoever has entered before it is seen in its slot; whoever enters after it sees the two words above.
        asymmetric::heavy();
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
        stopped
    }
}

/// A writer's stay; dropping it leaves.
#[must_use]
pub struct Stay<'e> {
    slot: &'e AtomicU64,
    epoch: Epoch,
    // Left by the thread that entered: the slot may be its own.
    not_send: PhantomData<*const ()>,
}

impl<'e> Stay<'e> {
    fn new(slot: &'e AtomicU64, epoch: u64) -> Stay<'e> {
        Stay { slot, epoch: Epoch(epoch), not_send: PhantomData }
    }

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
        let order = if leaves_out("leave_without_release") { Relaxed } else { Release };
        self.slot.store(EMPTY, order);
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
        let gate = self.epochs.gate.lock();
        if leaves_out("open_without_gate") {
            drop(gate);
        }
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
    fn a_thread_that_is_inside_already_takes_a_shared_slot() {
        let epochs = Epochs::new(Epoch(7));
        let first = epochs.enter();
        let second = epochs.enter();
        let stays: Vec<_> = (1..SHARED_SLOTS).map(|_| epochs.enter()).collect();
        assert!(stays.iter().chain([&first, &second]).all(|s| s.epoch() == Epoch(7)));
        assert!((0..SHARED_SLOTS).all(|n| epochs.try_shared_slot(n).is_none()), "all are taken");
        drop((first, second, stays));
        assert_eq!(epochs.stop().ended(), Epoch(7));
        assert_eq!(epochs.enter().epoch(), Epoch(8));
    }
}
