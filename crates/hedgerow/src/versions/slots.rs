//! One slot for each snapshot: whoever collects versions, takes a checkpoint or turns the switch finds all snapshots here.
//!
//! A slot is *pending* before its snapshot's moment is read, so nobody misses it: who looks and finds the slot empty has read the
//! log's end before, and the snapshot reads it afterwards. Both sides have a full barrier between their store and their load.
//!
//! | from | to | by |
//! | --- | --- | --- |
//! | empty | pending | who begins a snapshot |
//! | pending | at `s`, or empty | the same |
//! | at `s` | pinned to `c >= s` | who takes a checkpoint |
//! | at `s`, or pinned | given up | a writer without room, or whoever finds that it is too old |
//! | any of the last three | empty | who ends the snapshot |
//!
//! A slot is in a line of the cache of its own. A thread looks for one in the first piece, from its own number on, so that threads do not meet. If
//! all of that are taken, it gets one of a later piece, of which the empty ones are listed: however many snapshots are open, one more takes
//! the same time to begin. A piece is made when all before are taken. Invariants: `cut` is stored before the word says *pinned*, and changes
//! only while it does not; a slot of a later piece is empty while it is listed. `Send + Sync`; the list's lock is taken alone.

use crate::error::{Error, ErrorKind, Result};
use crate::types::Lsn;
use crate::versions::needs::{Need, Needs};
use hedgerow_sync::primitive::atomic::{AtomicU64, Ordering::*};
use hedgerow_sync::primitive::figure::Figure;
use hedgerow_sync::primitive::thread;
use hedgerow_sync::primitive::{Mutex, OnceLock};

/// Slots of the first piece; the piece with number `k` has `2^k` times as many.
const FIRST_SLOTS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };
/// Pieces behind the first: a million slots.
const LATER_PIECES: usize = 14;

const EMPTY: u64 = 0;
const PENDING: u64 = 1;
const AT: u64 = 2;
const PINNED: u64 = 3;
const GIVEN_UP: u64 = 4;
const MARK_BITS: u32 = 3;

/// What a slot says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Empty,
    Pending,
    /// A snapshot of this moment, for which old versions are kept.
    At(Lsn),
    /// The same, for which those up to the cut of a pinned checkpoint are.
    Pinned(Lsn, Lsn),
    /// Nothing is kept for it.
    GivenUp,
}

/// See the head of the file.
#[repr(align(128))]
pub(super) struct Slot {
    word: AtomicU64,
    cut: AtomicU64,
    /// When it was begun, in nanoseconds since the versions were made. Stored while it is pending.
    begun: Figure,
}

impl Slot {
    fn new() -> Slot {
        Slot { word: AtomicU64::new(EMPTY), cut: AtomicU64::new(0), begun: Figure::new(0) }
    }

    fn word(mark: u64, at: Lsn) -> u64 {
        at.0 << MARK_BITS | mark
    }

    /// What it says now. Of a slot of somebody else's the cut may be a later one's, which is never smaller.
    pub(super) fn state(&self) -> State {
        // Acquire: the cut, and what was done before the mark.
        let word = self.word.load(Acquire);
        let at = Lsn(word >> MARK_BITS);
        match word & ((1 << MARK_BITS) - 1) {
            EMPTY => State::Empty,
            PENDING => State::Pending,
            AT => State::At(at),
            PINNED => State::Pinned(at, Lsn(self.cut.load(Acquire))),
            _ => State::GivenUp,
        }
    }

    /// The moment of a snapshot that has not ended, given up or not; zero of one that is pending.
    fn moment(&self) -> Option<Lsn> {
        let word = self.word.load(Acquire);
        (word != EMPTY).then_some(Lsn(word >> MARK_BITS))
    }

    /// The moment of a pending snapshot, and when it was begun, in nanoseconds.
    pub(super) fn set_at(&self, at: Lsn, begun_nanos: u64) {
        assert!(at.0 >> (u64::BITS - MARK_BITS) == 0, "no log is so long");
        // Relaxed: before the word.
        self.begun.store(begun_nanos, Relaxed);
        self.word.store(Slot::word(AT, at), Release);
    }

    /// When it was begun; to be asked after its state. It may be that of a later snapshot.
    pub(super) fn begun_nanos(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    /// A snapshot at `at` is pinned to a checkpoint. False: it has ended. One caller at a time.
    pub(super) fn pin(&self, at: Lsn, cut: Lsn) -> bool {
        self.cut.store(cut.0, Release);
        let (from, to) = (Slot::word(AT, at), Slot::word(PINNED, at));
        self.word.compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    /// A snapshot at `at`, pinned or not, is given up. False: it has ended, or is pinned by now.
    pub(super) fn give_up(&self, at: Lsn, is_pinned: bool) -> bool {
        let from = Slot::word(if is_pinned { PINNED } else { AT }, at);
        let to = Slot::word(GIVEN_UP, at);
        self.word.compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    /// Takes it, if it is empty.
    fn take(&self) -> bool {
        self.word.load(Relaxed) == EMPTY
            && self.word.compare_exchange(EMPTY, PENDING, AcqRel, Relaxed).is_ok()
    }

    /// Empties it; the cut that its snapshot was pinned to.
    fn end(&self) -> Option<Lsn> {
        let (word, cut) = loop {
            let word = self.word.load(Acquire);
            // Right if the word says that there is one, and read before others may use the slot.
            let cut = self.cut.load(Acquire);
            // It may be pinned or given up just now.
            if self.word.compare_exchange(word, EMPTY, AcqRel, Relaxed).is_ok() {
                break (word, cut);
            }
        };
        (word & ((1 << MARK_BITS) - 1) == PINNED).then_some(Lsn(cut))
    }
}

/// The number of a slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SlotId(usize);

/// All slots.
pub(super) struct Slots {
    first: Box<[Slot]>,
    later: [OnceLock<Box<[Slot]>>; LATER_PIECES],
    /// The empty slots of later pieces. It has memory for all of them.
    free: Mutex<Vec<SlotId>>,
    taken: Taken,
}

/// How many slots are not empty, or are about to be taken or emptied. In a line of its own: who changes records while versions are kept looks
/// at it.
#[repr(align(128))]
struct Taken(AtomicU64);

impl Slots {
    pub(super) fn new() -> Slots {
        let first = (0..FIRST_SLOTS).map(|_| Slot::new()).collect();
        let later = [const { OnceLock::new() }; LATER_PIECES];
        Slots { first, later, free: Mutex::new(Vec::new()), taken: Taken(AtomicU64::new(0)) }
    }

    pub(super) fn get(&self, id: SlotId) -> &Slot {
        if let Some(slot) = self.first.get(id.0) {
            return slot;
        }
        let piece = (id.0 / FIRST_SLOTS + 1).ilog2() as usize;
        let at = id.0 - FIRST_SLOTS * ((1 << piece) - 1);
        &self.later[piece - 1].get().expect("the piece of a slot that was taken")[at]
    }

    /// Takes an empty slot, which is pending then.
    ///
    /// Errors: `MemoryLimit` if there is none, and no memory for more.
    pub(super) fn take(&self) -> Result<SlotId> {
        let (home, count) = (thread::id(), self.first.len());
        let first = (0..count).map(|at| (home + at) % count).find(|at| self.first[*at].take());
        let id = first.map_or_else(|| self.take_later(), |at| Ok(SlotId(at)))?;
        // Relaxed: like the slot, before the caller's barrier.
        self.taken.0.fetch_add(1, Relaxed);
        Ok(id)
    }

    #[cold]
    fn take_later(&self) -> Result<SlotId> {
        let mut free = self.free.lock();
        if free.is_empty() {
            self.add_piece(&mut free)?;
        }
        let id = free.pop().expect("a new piece has slots");
        assert!(self.get(id).take(), "a listed slot is empty");
        Ok(id)
    }

    /// Empties a slot; the cut that its snapshot was pinned to.
    pub(super) fn end(&self, id: SlotId) -> Option<Lsn> {
        let cut = self.get(id).end();
        if id.0 >= FIRST_SLOTS {
            self.free.lock().push(id);
        }
        // Behind it: a slot that is not empty is counted.
        self.taken.0.fetch_sub(1, Release);
        cut
    }

    /// How many snapshots there are at most that have not ended.
    pub(super) fn taken(&self) -> u64 {
        self.taken.0.load(Acquire)
    }

    /// Makes the next piece, and lists its slots. It is published before any slot of it is written: who does not find it has looked before.
    ///
    /// Errors: `MemoryLimit`.
    fn add_piece(&self, free: &mut Vec<SlotId>) -> Result<()> {
        let before = |number: usize| FIRST_SLOTS * ((1 << number) - 1);
        let Some(at) = self.later.iter().position(|piece| piece.get().is_none()) else {
            let open = before(LATER_PIECES + 1);
            let what = format!("{open} snapshots are open, and no more fit; end some");
            return Err(Error::new(ErrorKind::MemoryLimit, what));
        };
        let refused = |_| Error::new(ErrorKind::MemoryLimit, "no memory for one more snapshot");
        let (begin, end) = (before(at + 1), before(at + 2));
        let mut slots = Vec::new();
        slots.try_reserve_exact(end - begin).map_err(refused)?;
        slots.resize_with(end - begin, Slot::new);
        free.try_reserve_exact(end - FIRST_SLOTS).map_err(refused)?;
        self.later[at].get_or_init(|| slots.into_boxed_slice());
        // The first ones are taken first.
        free.extend((begin..end).rev().map(SlotId));
        Ok(())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Slot> {
        let later = self.later.iter().filter_map(OnceLock::get);
        self.first.iter().chain(later.flatten())
    }

    /// Whether there is a snapshot that is not pinned, of a moment up to `cut`.
    pub(super) fn any_unpinned(&self, cut: Lsn) -> bool {
        self.all().any(|slot| matches!(slot.state(), State::At(at) if at <= cut))
    }

    /// Who needs versions, if `view` is what each slot says. `None`: a snapshot is pending.
    ///
    /// Errors: `MemoryLimit`.
    pub(super) fn needs(&self) -> Result<Option<Needs>> {
        let mut needs = Vec::new();
        for slot in self.all() {
            let need = match slot.state() {
                State::Empty | State::GivenUp => continue,
                State::Pending => return Ok(None),
                State::At(at) => Need { at, cut: None },
                State::Pinned(at, cut) => Need { at, cut: Some(cut) },
            };
            let refused = |_| Error::new(ErrorKind::MemoryLimit, "no memory to collect versions");
            needs.try_reserve(1).map_err(refused)?;
            needs.push(need);
        }
        Ok(Some(Needs::new(needs)))
    }

    /// Whether there is a snapshot that needs versions of changes that are made from now on, or is about to be one. What a pinned one
    /// needs was changed before.
    pub(super) fn any_in_need(&self) -> bool {
        self.all().any(|slot| matches!(slot.state(), State::Pending | State::At(_)))
    }

    /// Whether there is a pinned one.
    pub(super) fn any_pinned(&self) -> bool {
        self.all().any(|slot| matches!(slot.state(), State::Pinned(..)))
    }

    /// The oldest moment of a snapshot for which anything is kept; zero if one is about to begin. `None`: there is none.
    pub(super) fn oldest(&self) -> Option<Lsn> {
        let at = |slot: &Slot| match slot.state() {
            State::Empty | State::GivenUp => None,
            State::Pending => Some(Lsn(0)),
            State::At(at) | State::Pinned(at, _) => Some(at),
        };
        self.all().filter_map(at).min()
    }

    /// Whether a snapshot for which anything is kept has a moment of these, the second not included, or is about to begin.
    pub(super) fn any_between(&self, from: Lsn, to: Lsn) -> bool {
        self.all().any(|slot| match slot.state() {
            State::Empty | State::GivenUp => false,
            State::Pending => true,
            State::At(at) | State::Pinned(at, _) => from <= at && at < to,
        })
    }

    /// The same of all that have not ended: one that was given up still has to be told that it is too old.
    pub(super) fn oldest_open(&self) -> Option<Lsn> {
        self.all().filter_map(Slot::moment).min()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use hedgerow_sync::primitive::time::Moment;
    use std::collections::BTreeSet;

    #[test]
    fn slots_are_given_once_and_again_when_they_are_empty() {
        let slots = Slots::new();
        let first: BTreeSet<SlotId> = (0..1000).map(|_| slots.take().unwrap()).collect();
        assert_eq!((first.len(), slots.taken()), (1000, 1000));
        for id in first.iter().step_by(3) {
            slots.end(*id);
        }
        let left: BTreeSet<_> = first.iter().enumerate().filter(|(at, _)| at % 3 > 0).collect();
        let again: BTreeSet<SlotId> = (0..334).map(|_| slots.take().unwrap()).collect();
        assert_eq!((again.len(), left.len()), (334, 666));
        assert!(left.iter().all(|(_, id)| !again.contains(id)));
        assert!(again.is_subset(&first), "no piece is made while slots are empty");
        assert_eq!(slots.all().count(), FIRST_SLOTS * 31);
    }

    /// Each looked at all slots that were taken.
    #[test]
    fn a_snapshot_begins_as_soon_beside_many_open_ones() {
        let time = |count: u32| {
            let run = || {
                let (slots, since) = (Slots::new(), Moment::now());
                for _ in 0..count {
                    slots.take().unwrap();
                }
                since.elapsed()
            };
            (0..3).map(|_| run()).min().unwrap()
        };
        // Sixteen times as many took 256 times as long.
        let (few, many) = (time(2_000), time(32_000));
        assert!(many < 80 * few, "{few:?} and {many:?}");
    }
}
