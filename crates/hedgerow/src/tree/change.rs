//! The changes of one record: put, insert, update, swap, remove.
//!
//! Each says, looking at the leaf, what is to be done; [`super::write`] does it atomically. What a
//! change has looked at is validated by the very step that latches the leaf, or before the answer is
//! given. Linearizable; any number of threads.

use super::read_set::Judge;
use super::{Tree, Value};
use crate::error::Result;
use crate::node::{Leaf, Position};
use crate::page::PagePool;
use crate::types::Purpose;
use crate::wal::{BatchId, Record};
use hedgerow_sync::optimistic::PageBytes;

/// What becomes of the record, and what the caller is told.
pub(super) enum Decision<O> {
    /// Nothing changes.
    Keep(O),
    /// The record gets the change's value; it is inserted if it was not there.
    Put(O),
    /// The record, which is there, goes.
    Remove(O),
    /// Nothing changes, and the log is told all the same, in the order of the key's changes.
    Note(O),
}

/// One change of one record.
pub(super) trait Change {
    /// What the caller is told.
    type Outcome;

    /// Whether it can take space.
    const PURPOSE: Purpose = Purpose::Take;

    /// The same of this one, if that depends on it.
    #[inline(always)]
    fn purpose(&self) -> Purpose {
        Self::PURPOSE
    }

    /// Decides by what the leaf holds. The bytes may be changing: the decision is used only if they
    /// were not, else this is called again.
    fn decide<B: PageBytes>(&mut self, leaf: &Leaf<B>, at: Position) -> Decision<Self::Outcome>;

    /// The value that [`Decision::Put`] puts: by what was looked at last, if it depends on that. Its length never does.
    fn value(&self) -> &[u8];

    /// How many open snapshots need no version of what is changed.
    #[inline]
    fn own_snapshots(&self) -> u64 {
        0
    }

    /// What the log is told, if not the change itself.
    #[inline]
    fn made(&self) -> Option<Record<'static>> {
        None
    }
}

/// The outcome of [`Keyspace::compare_and_swap`](crate::Keyspace::compare_and_swap).
///
/// ```
/// use hedgerow::CompareAndSwap;
///
/// # let db = hedgerow::Options::new().in_memory()?;
/// # let counters = db.keyspace("counters")?;
/// counters.put(b"wrens", b"3")?;
/// match counters.compare_and_swap(b"wrens", Some(b"2"), Some(b"4"))? {
///     CompareAndSwap::Swapped => unreachable!(),
///     CompareAndSwap::Differs(present) => assert_eq!(present.as_deref(), Some(&b"3"[..])),
/// }
/// # Ok::<(), hedgerow::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum CompareAndSwap {
    /// The state was the expected one, and the new state is in place.
    Swapped,
    /// The state was another one, and nothing was changed. This is the present value; `None` if there is no record.
    Differs(Option<Value>),
}

impl CompareAndSwap {
    /// Whether the swap was made.
    pub fn is_swapped(&self) -> bool {
        matches!(self, CompareAndSwap::Swapped)
    }
}

/// Errors of all changes: `KeyTooLong`, `RecordTooLarge`; those of reading a page; what
/// [`Journal::enter`](crate::page::Journal::enter) refuses; `MemoryLimit` if a split finds no page; `KeyspaceDropped`;
/// `Corrupted`; `Timeout`. After an error nothing has changed.
impl<P: PagePool> Tree<P> {
    /// Puts a record, over an earlier one of the same key if there is one. Tells whether there was.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.write(key, &mut Put(value))
    }

    /// Inserts a record unless there is one of the same key. Tells whether it was inserted.
    pub fn insert_if_absent(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.write(key, &mut InsertIfAbsent(value))
    }

    /// Gives an existing record a new value. Tells whether there was one; else nothing has changed.
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.write(key, &mut Update(value))
    }

    /// Removes a record. Tells whether there was one.
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        self.write(key, &mut Remove)
    }

    /// [`Self::put`], of a record that is the first step of giving space back.
    pub fn put_to_free(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.write(key, &mut PutToFree(value))
    }

    /// Makes one of a batch's changes: what the log has of the batch is enough, but for that it was made.
    pub fn make_part(&self, key: &[u8], part: &Part<'_>) -> Result<()> {
        self.write(key, &mut { *part })
    }

    /// Puts `new` (`None`: removes the record) if the present value is `expected` (`None`: if there
    /// is no record); else tells the present value.
    pub fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<CompareAndSwap> {
        self.write(key, &mut SwapIf { expected, new })
    }
}

/// What became of a change that is made if its leaf is as a snapshot has seen it.
#[derive(PartialEq, Eq)]
enum Compared {
    Made,
    Newer,
}

impl<P: PagePool> Tree<P> {
    /// Puts a record, or removes it (`None`), if nothing in its leaf is newer than what `judge` has seen: a commit of one change whose record
    /// was all that was read. The decision is made on the leaf that is latched then, as for any change. False: something is newer,
    /// nothing is done, and the records have to be compared ([`Stroke::make`](super::Stroke::make)).
    pub fn change_if_unchanged(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        judge: &impl Judge<P>,
    ) -> Result<bool> {
        let outcome = self.write(key, &mut IfUnchanged { tree: self, value, judge })?;
        Ok(outcome == Compared::Made)
    }
}

/// That of a change which leaves this value: without one it removes.
#[inline(always)]
fn purpose_of(value: Option<&[u8]>) -> Purpose {
    if value.is_some() { Purpose::Take } else { Purpose::GiveBack }
}

struct IfUnchanged<'c, P: PagePool, J> {
    tree: &'c Tree<P>,
    value: Option<&'c [u8]>,
    judge: &'c J,
}

impl<P: PagePool, J: Judge<P>> Change for IfUnchanged<'_, P, J> {
    type Outcome = Compared;

    #[inline(always)]
    fn purpose(&self) -> Purpose {
        purpose_of(self.value)
    }

    fn decide<B: PageBytes>(&mut self, leaf: &Leaf<B>, at: Position) -> Decision<Compared> {
        // Asked after the look at the leaf, which the latch proves to be right.
        if !self.judge.is_as_it_was(self.tree, leaf.as_node().newest_lsn()) {
            return Decision::Keep(Compared::Newer);
        }
        match self.value {
            Some(_) => Decision::Put(Compared::Made),
            None if at.found => Decision::Remove(Compared::Made),
            None => Decision::Keep(Compared::Made),
        }
    }

    fn value(&self) -> &[u8] {
        self.value.unwrap_or(&[])
    }

    fn own_snapshots(&self) -> u64 {
        self.judge.own_snapshots()
    }
}

/// A change of a batch that is in the log already.
#[derive(Clone, Copy)]
pub struct Part<'v> {
    /// The batch.
    pub batch: BatchId,
    /// Which of its changes.
    pub change: u32,
    /// The value; `None` removes the record.
    pub value: Option<&'v [u8]>,
}

impl Change for Part<'_> {
    const PURPOSE: Purpose = Purpose::Finish;
    type Outcome = ();

    fn decide<B: PageBytes>(&mut self, _: &Leaf<B>, at: Position) -> Decision<()> {
        match self.value {
            Some(_) => Decision::Put(()),
            None if at.found => Decision::Remove(()),
            // That there was none is a part of what was done: if the log were not told, a replay would remove
            // what somebody has put since.
            None => Decision::Note(()),
        }
    }

    fn value(&self) -> &[u8] {
        self.value.unwrap_or(&[])
    }

    #[inline]
    fn made(&self) -> Option<Record<'static>> {
        Some(Record::Made { batch: self.batch, change: self.change })
    }
}

struct Put<'v>(&'v [u8]);

impl Change for Put<'_> {
    type Outcome = bool;

    fn decide<B: PageBytes>(&mut self, _: &Leaf<B>, at: Position) -> Decision<bool> {
        Decision::Put(at.found)
    }

    fn value(&self) -> &[u8] {
        self.0
    }
}

struct PutToFree<'v>(&'v [u8]);

impl Change for PutToFree<'_> {
    const PURPOSE: Purpose = Purpose::GiveBack;
    type Outcome = bool;

    fn decide<B: PageBytes>(&mut self, _: &Leaf<B>, at: Position) -> Decision<bool> {
        Decision::Put(at.found)
    }

    fn value(&self) -> &[u8] {
        self.0
    }
}

struct InsertIfAbsent<'v>(&'v [u8]);

impl Change for InsertIfAbsent<'_> {
    type Outcome = bool;

    fn decide<B: PageBytes>(&mut self, _: &Leaf<B>, at: Position) -> Decision<bool> {
        if at.found { Decision::Keep(false) } else { Decision::Put(true) }
    }

    fn value(&self) -> &[u8] {
        self.0
    }
}

struct Update<'v>(&'v [u8]);

impl Change for Update<'_> {
    type Outcome = bool;

    fn decide<B: PageBytes>(&mut self, _: &Leaf<B>, at: Position) -> Decision<bool> {
        if at.found { Decision::Put(true) } else { Decision::Keep(false) }
    }

    fn value(&self) -> &[u8] {
        self.0
    }
}

pub(super) struct Remove;

impl Change for Remove {
    const PURPOSE: Purpose = Purpose::GiveBack;
    type Outcome = bool;

    fn decide<B: PageBytes>(&mut self, _: &Leaf<B>, at: Position) -> Decision<bool> {
        if at.found { Decision::Remove(true) } else { Decision::Keep(false) }
    }

    fn value(&self) -> &[u8] {
        &[]
    }
}

pub(super) struct SwapIf<'v> {
    pub(super) expected: Option<&'v [u8]>,
    pub(super) new: Option<&'v [u8]>,
}

impl Change for SwapIf<'_> {
    type Outcome = CompareAndSwap;

    #[inline(always)]
    fn purpose(&self) -> Purpose {
        purpose_of(self.new)
    }

    fn decide<B: PageBytes>(&mut self, leaf: &Leaf<B>, at: Position) -> Decision<CompareAndSwap> {
        let holds = match self.expected {
            Some(expected) => at.found && leaf.value_equals(at.index, expected),
            None => !at.found,
        };
        if !holds {
            let mut found = Value::default();
            if at.found {
                leaf.copy_value(at.index, &mut found.0);
            }
            return Decision::Keep(CompareAndSwap::Differs(at.found.then_some(found)));
        }
        match self.new {
            Some(_) => Decision::Put(CompareAndSwap::Swapped),
            None if at.found => Decision::Remove(CompareAndSwap::Swapped),
            None => Decision::Keep(CompareAndSwap::Swapped),
        }
    }

    fn value(&self) -> &[u8] {
        self.new.unwrap_or(&[])
    }
}
