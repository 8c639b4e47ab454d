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
//! Every thread has a slot of its own, by its number ([`thread::id`]). Slots are in pieces, of which each has as many as all
//! before it and is made when a thread with such a number comes first. A piece is published once and freed with the
//! [`Epochs`]. The argument above covers it: a piece is published before any of its slots is written, so a checkpoint
//! that does not find the piece has run its barrier before that writer's, and the writer sees the raised epoch.
//!
//! From the second piece on there is a *crowd*: more threads than any machine has processors for. The system takes the
//! processor from a thread in the middle of a change, with latches held perhaps, and gives it back when all others have
//! had theirs: with a thousand threads on two processors a second later. So in a crowd a thread gives way by itself, at the door,
//! when it has run for `TURN`: then it holds nothing, and everybody comes round soon.
//!
//! Whoever has to know that all who are inside have seen a word waits for their stays ([`Epochs::wait_for_stays`]), and keeps nobody out.
//! A slot has the epoch alone, so it also counts its stays: otherwise a thread that leaves and comes back would look as if it had
//! stayed, and a busy one would be waited for without end.
//!
//! While those inside leave, a checkpoint also keeps new writers out ([`Epochs::stop`]), so that no two epochs
//! are in use at a time; nothing but [`Epochs::enter`] knows this. `Send + Sync`; nothing is latched while one
//! waits here.

use crate::error::Result;
use crate::types::Epoch;
use crate::wait::Waiting;
use hedgerow_sync::primitive::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use hedgerow_sync::primitive::figure::Figure;
use hedgerow_sync::primitive::time::Moment;
use hedgerow_sync::primitive::{Condvar, Mutex, asymmetric, hint, thread};
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::time::Duration;

/// Slots of the first piece. The piece with number `k` has `2^k` times as many.
const FIRST_SLOTS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 128 };
/// Pieces behind the first: for twice as many threads as Linux lets a machine have.
const LATER_PIECES: usize = if cfg!(any(loom, shuttle)) { 3 } else { 15 };
/// Slots for threads that are inside already, and for those that there is no memory for a slot for. Who finds none waits for one.
const SHARED_SLOTS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 32 };
/// How long a thread of a crowd runs before it gives way: many puts, and many times what a change of threads takes.
const TURN: Duration = Duration::from_micros(100);
/// Who has not been at the door for so long has not run all the time, and need not give way.
const PAUSE: Duration = Duration::from_micros(500);
/// Writers are kept out.
const STOPPED: u32 = 1;
/// There are more threads than slots in the first piece, or were once.
const CROWDED: u32 = 2;
/// Nobody stays in this slot.
const EMPTY: u64 = 0;

/// One slot to a pair of cache lines, so that writers do not disturb each other.
#[repr(align(128))]
struct StaySlot {
    /// The epoch that somebody is inside of.
    stay: AtomicU64,
    /// How many stays have begun here: who leaves and comes back is not taken for who has stayed.
    count: AtomicU64,
    /// When the owner's turn began, in nanoseconds since the epochs were made. His alone.
    turn_began: Figure,
}

impl StaySlot {
    fn new() -> StaySlot {
        StaySlot {
            stay: AtomicU64::new(EMPTY),
            count: AtomicU64::new(0),
            turn_began: Figure::new(0),
        }
    }
}

impl StaySlot {
    /// By who has the slot.
    #[inline]
    fn count_stay(&self) {
        // Release: who sees it has seen the end of the stay before.
        self.count.store(self.count.load(Relaxed).wrapping_add(1), Release);
    }
}

/// The global epoch and who is inside of which.
pub struct Epochs {
    current: AtomicU64,
    /// [`STOPPED`] and [`CROWDED`].
    door: AtomicU32,
    first: Box<[StaySlot]>,
    /// Null, or [`later_slots`] slots, which nobody frees before `drop`.
    later: [AtomicPtr<StaySlot>; LATER_PIECES],
    shared: Box<[StaySlot]>,
    made: Moment,
    gate: Mutex<()>,
    opened: Condvar,
}

/// How many slots a later piece has.
fn later_slots(piece: usize) -> usize {
    FIRST_SLOTS << (piece + 1)
}

/// In which later piece the slot of a thread is, and where in it.
fn place(number: usize) -> (usize, usize) {
    let piece = (number / FIRST_SLOTS + 1).ilog2() as usize;
    (piece - 1, number - FIRST_SLOTS * ((1 << piece) - 1))
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
            door: AtomicU32::new(0),
            first: (0..FIRST_SLOTS).map(|_| StaySlot::new()).collect(),
            later: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            shared: (0..SHARED_SLOTS).map(|_| StaySlot::new()).collect(),
            made: Moment::now(),
            gate: Mutex::new(()),
            opened: Condvar::new(),
        }
    }

    /// The epoch that a writer who came now would enter.
    pub fn current(&self) -> Epoch {
        Epoch(self.current.load(SeqCst))
    }

    /// Enters the current epoch. Waits while writers are stopped.
    pub fn enter(&self) -> Stay<'_> {
        match self.enter_within(&Waiting::Forever) {
            Ok(stay) => stay,
            Err(_) => unreachable!("a wait without a bound does not end early"),
        }
    }

    /// [`Self::enter`], and waits as `waiting` says. Errors: those of it.
    #[inline(always)]
    pub fn enter_within(&self, waiting: &Waiting<'_>) -> Result<Stay<'_>> {
        loop {
            match self.try_own_slot() {
                Some(Some(stay)) => return Ok(stay),
                Some(None) => self.wait_until_open(waiting)?,
                None => return self.enter_elsewhere(waiting),
            }
        }
    }

    /// Enters the current epoch if that needs no wait.
    pub fn try_enter(&self) -> Option<Stay<'_>> {
        self.try_own_slot().flatten()
    }

    /// `None`: there is no slot, or it is taken. `Some(None)`: writers are stopped, or were, or the caller has given way.
    #[inline(always)]
    fn try_own_slot(&self) -> Option<Option<Stay<'_>>> {
        let number = thread::id();
        let own = match self.first.get(number) {
            Some(slot) => slot,
            None => self.later_slot(number)?,
        };
        let slot = &own.stay;
        // Relaxed: nobody but this thread writes to it.
        if slot.load(Relaxed) != EMPTY {
            return None;
        }
        // Relaxed: looked at again below.
        let epoch = self.current.load(Relaxed);
        // Release: a checkpoint that sees this stay has seen the end of the one before.
        own.count_stay();
        slot.store(epoch, Release);
        asymmetric::light();
        let door = self.door.load(SeqCst);
        let may_stay = self.is_open_in(epoch, door);
        if may_stay && (door & CROWDED == 0 || !self.ends_turn(own)) {
            return Some(Some(Stay::new(slot, epoch)));
        }
        slot.store(EMPTY, Release);
        if may_stay {
            thread::yield_now();
        }
        Some(None)
    }

    /// The slot of a thread for which the first piece has none. `None` if there is no memory for it.
    #[inline(never)]
    fn later_slot(&self, number: usize) -> Option<&StaySlot> {
        let (piece, at) = place(number);
        // Acquire: the slots are there.
        let mut slots = self.later.get(piece)?.load(Acquire);
        if slots.is_null() {
            slots = self.add_piece(piece)?;
        }
        // SAFETY: the piece has `later_slots(piece)` slots, of which `at` is one: `place` has divided the numbers up like
        // that. It is published when they are made, changed through its atomics alone, and freed when nobody borrows `self`.
        Some(unsafe { &*slots.add(at) })
    }

    /// Makes and publishes a piece, unless another thread comes first. `None` if there is no memory for it.
    #[cold]
    fn add_piece(&self, piece: usize) -> Option<*mut StaySlot> {
        let count = later_slots(piece);
        let mut slots = Vec::new();
        slots.try_reserve_exact(count).ok()?;
        slots.resize_with(count, StaySlot::new);
        let ours = Box::into_raw(slots.into_boxed_slice()).cast::<StaySlot>();
        let published = self.later[piece].compare_exchange(ptr::null_mut(), ours, SeqCst, Acquire);
        if let Err(theirs) = published {
            // SAFETY: just made of a boxed slice of so many, and shown to nobody.
            drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(ours, count)) });
            return Some(theirs);
        }
        self.door.fetch_or(CROWDED, SeqCst);
        Some(ours)
    }

    /// All slots in which somebody may be.
    fn slots(&self) -> impl Iterator<Item = &StaySlot> {
        let later = self.later.iter().enumerate().flat_map(|(piece, slots)| {
            // Acquire: the slots are there.
            let slots = slots.load(Acquire);
            let count = if slots.is_null() { 0 } else { later_slots(piece) };
            // SAFETY: as in `later_slot`, for each of the piece's slots.
            (0..count).map(move |at| unsafe { &*slots.add(at) })
        });
        self.first.iter().chain(&self.shared).chain(later)
    }

    /// Whether a thread of a crowd has run for long enough; then its next turn begins.
    #[inline(never)]
    fn ends_turn(&self, own: &StaySlot) -> bool {
        let now = self.made.elapsed().as_nanos() as u64;
        // Relaxed: the owner's alone.
        let turn = Duration::from_nanos(now.saturating_sub(own.turn_began.load(Relaxed)));
        if turn < TURN {
            return false;
        }
        own.turn_began.store(now, Relaxed);
        turn < PAUSE
    }

    /// For threads that are inside already, or without a slot of their own: any of the shared ones.
    #[cold]
    fn enter_elsewhere(&self, waiting: &Waiting<'_>) -> Result<Stay<'_>> {
        let home = thread::id();
        for attempt in 0.. {
            match self.try_shared_slot(home + attempt) {
                Some(Some(stay)) => return Ok(stay),
                Some(None) => self.wait_until_open(waiting)?,
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
        let shared = &self.shared[number % SHARED_SLOTS];
        let slot = &shared.stay;
        let epoch = self.current.load(SeqCst);
        slot.compare_exchange(EMPTY, epoch, SeqCst, Relaxed).ok()?;
        shared.count_stay();
        asymmetric::light();
        if self.is_open_in(epoch, self.door.load(SeqCst)) {
            return Some(Some(Stay::new(slot, epoch)));
        }
        slot.store(EMPTY, Release);
        Some(None)
    }

    /// Whether who has just entered `epoch` and seen `door` may stay: it is still the current one, and open.
    #[inline]
    fn is_open_in(&self, epoch: u64, door: u32) -> bool {
        self.current.load(SeqCst) == epoch && door & STOPPED == 0
    }

    #[cold]
    fn wait_until_open(&self, waiting: &Waiting<'_>) -> Result<()> {
        if self.door.load(SeqCst) & STOPPED == 0 {
            return Ok(());
        }
        let mut gate = self.gate.lock();
        while self.door.load(SeqCst) & STOPPED != 0 {
            waiting.wait_on(&self.opened, &mut gate)?;
        }
        Ok(())
    }

    /// Waits until every stay has ended that somebody is inside of now. Others come and go meanwhile; whoever enters later sees what the
    /// caller has stored before. The caller is inside of none.
    pub fn wait_for_stays(&self) {
        // Of the caller's store before and a writer's look inside: as in `stop`.
        asymmetric::heavy();
        for slot in self.slots() {
            let count = slot.count.load(Acquire);
            let mut spins = 0u32;
            // A count that is behind the stay found here is of a later look, which ends the wait no sooner.
            while slot.stay.load(SeqCst) != EMPTY && slot.count.load(Acquire) == count {
                spins += 1;
                if spins < 64 {
                    hint::spin_loop();
                } else {
                    thread::yield_now();
                }
            }
        }
    }

    /// Ends the current epoch and keeps writers out: returns when nobody is left in it. The epoch that
    /// ended is the checkpoint's; what is changed after [`Stopped`] is dropped belongs to the next.
    ///
    /// One caller at a time (the checkpoint lock sees to that).
    pub fn stop(&self) -> Stopped<'_> {
        {
            let _gate = self.gate.lock();
            let before = self.door.fetch_or(STOPPED, SeqCst);
            assert!(before & STOPPED == 0, "one checkpoint at a time");
        }
        let ended = self.current.fetch_add(1, SeqCst);
        // From here on, so that writers are let in again whatever happens.
        let stopped = Stopped { epochs: self, ended: Epoch(ended) };
        // Whoever has entered before it is seen in its slot; whoever enters after it sees the two words above.
        asymmetric::heavy();
        for slot in self.slots() {
            let mut spins = 0u32;
            // An entry that saw the old epoch leaves soon: it waits for nothing while it is inside.
            while matches!(slot.stay.load(SeqCst), stay if stay != EMPTY && stay <= ended) {
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

impl Drop for Epochs {
    fn drop(&mut self) {
        for (piece, slots) in self.later.iter().enumerate() {
            // Acquire: as in `later_slot`.
            let slots = slots.load(Acquire);
            if !slots.is_null() {
                let slots = ptr::slice_from_raw_parts_mut(slots, later_slots(piece));
                // SAFETY: `add_piece` has made it of a boxed slice of so many, and nobody borrows `self` any more.
                drop(unsafe { Box::from_raw(slots) });
            }
        }
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
        self.epochs.door.fetch_and(!STOPPED, SeqCst);
        self.epochs.opened.notify_all();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use hedgerow_sync::primitive::Arc;
    use hedgerow_sync::primitive::atomic::{AtomicBool, AtomicUsize};

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

    /// Threads that leave and come back at once are not waited for again and again.
    #[test]
    fn who_waits_for_stays_waits_for_those_alone_that_were_inside() {
        let epochs = Arc::new(Epochs::new(Epoch(1)));
        let seen = Arc::new(AtomicU64::new(0));
        let stays = Arc::new(AtomicU64::new(0));
        let done = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..3)
            .map(|n| {
                let (epochs, seen, done) = (epochs.clone(), seen.clone(), done.clone());
                let stays = stays.clone();
                thread::spawn_named(&format!("writer {n}"), move || {
                    while !done.load(SeqCst) {
                        let _stay = epochs.enter();
                        let before = seen.load(SeqCst);
                        // Long enough to be found inside nearly always.
                        (0..200).for_each(|_| hint::spin_loop());
                        // Whoever waits twice meanwhile has not waited for this stay.
                        assert!(seen.load(SeqCst) < before + 2, "a stay was not waited for");
                        stays.fetch_add(1, SeqCst);
                    }
                })
                .unwrap()
            })
            .collect();
        // On a busy machine the writers may begin late.
        let mut rounds = 0;
        while rounds < 100 || stays.load(SeqCst) < 100 {
            epochs.wait_for_stays();
            seen.fetch_add(1, SeqCst);
            rounds += 1;
        }
        done.store(true, SeqCst);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    }

    /// All of them at once, and a checkpoint waits for the last one.
    #[test]
    fn more_threads_than_slots_in_the_first_piece_are_inside_together() {
        const THREADS: usize = 3 * FIRST_SLOTS + 40;
        const PATIENCE: Duration = Duration::from_secs(30);
        let epochs = Arc::new(Epochs::new(Epoch(1)));
        let inside = Arc::new(AtomicUsize::new(0));
        let leave = Arc::new(AtomicBool::new(false));
        let ended = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..THREADS)
            .map(|n| {
                let (epochs, inside) = (epochs.clone(), inside.clone());
                let (leave, ended) = (leave.clone(), ended.clone());
                thread::spawn_named(&format!("inside {n}"), move || {
                    let stay = epochs.enter();
                    inside.fetch_add(1, SeqCst);
                    while !leave.load(SeqCst) {
                        thread::sleep(Duration::from_millis(1));
                    }
                    assert!(!ended.load(SeqCst), "a checkpoint has not waited");
                    drop(stay);
                })
                .unwrap()
            })
            .collect();
        let since = Moment::now();
        while inside.load(SeqCst) < THREADS && since.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
        let most = inside.load(SeqCst);
        leave.store(true, SeqCst);
        assert_eq!(epochs.stop().ended(), Epoch(1));
        ended.store(true, SeqCst);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(most, THREADS, "the others had to wait for a slot");
    }

    #[test]
    fn every_number_has_a_slot_of_its_own() {
        let mut expected = (0, 0);
        for number in FIRST_SLOTS..64 * FIRST_SLOTS {
            assert_eq!(place(number), expected, "{number}");
            expected.1 += 1;
            if expected.1 == later_slots(expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
        // More than there can be threads.
        assert!(place(1 << 22).0 < LATER_PIECES);
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
