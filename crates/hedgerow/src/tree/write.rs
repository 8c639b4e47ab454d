//! The one way to change a leaf: go down, decide, latch, apply; split or merge when that is due, or split
//! what threads contend for (`contention.rs`).
//!
//! The decision is made on the leaf before it is latched, and the upgrade of the latch proves that
//! it still holds. A change that turns out to be none latches nothing, and logs nothing. Between entering the epoch and
//! leaving it there is no wait but for latches on the pessimistic way, in latch order.
//!
//! Invariants: a leaf is changed under its exclusive latch, within one epoch; a change that finds no
//! space has changed nothing and starts over after a split. Thread-safety: as for [`Tree`].

use super::change::{Change, Decision};
use super::large::put_record;
use super::retry::{Patience, Retry, Stop};
use super::sparse::{is_sparse, is_turn};
use super::split::{LEAST_FORCED, Room};
use super::{Tree, Value};
use crate::error::Result;
use crate::node::{Leaf, LeafMut, Position, plain_leaf};
use crate::page::{Access, EpochStay, ExclusivePage, PagePool, Restart};
use crate::types::{Lsn, Purpose};
use crate::versions::{self, cells_of_change};
use crate::wait::{Wait, Waiting};
use crate::wal::{RECORD_HEADER_BYTES, Record};
use hedgerow_sync::primitive::buggify::{Point, buggify};

/// How a try to change a leaf came out.
pub(super) enum Written<O> {
    /// It is done.
    Done(O),
    /// It is done, and has left less than half a page.
    Sparse(O),
    /// It is done, and threads contend for the leaf: for this key and for another one.
    Contended(O),
    /// The leaf has to be split first.
    NoSpace,
}

impl<P: PagePool> Tree<P> {
    #[inline]
    pub(super) fn write<C: Change>(&self, key: &[u8], change: &mut C) -> Result<C::Outcome> {
        self.check_record(key, change.value())?;
        // What is behind the append of its batch is finished.
        let wait = if C::PURPOSE == Purpose::Finish { &Wait::Default } else { &self.wait };
        let waiting = wait.begin();
        match self.try_write(key, change, false, &waiting) {
            Ok(Written::Done(outcome)) => Ok(outcome),
            other => self.write_on(key, change, other, &waiting),
        }
    }

    /// Everything but a first try that succeeds and leaves nothing to do.
    #[inline(never)]
    pub(super) fn write_on<C: Change>(
        &self,
        key: &[u8],
        change: &mut C,
        first: Result<Written<C::Outcome>, Stop>,
        waiting: &Waiting<'_>,
    ) -> Result<C::Outcome> {
        let mut retry = Retry::new(&*self.pool, self.root, Access::Point, waiting);
        let mut last = first;
        // Whether it met another thread.
        let mut met = false;
        loop {
            match last {
                Ok(Written::Done(outcome)) => return Ok(outcome),
                Ok(Written::Sparse(outcome)) => {
                    self.merge_around(key, retry);
                    return Ok(outcome);
                }
                Ok(Written::Contended(outcome)) => {
                    self.split_contended(key, change.purpose(), retry);
                    return Ok(outcome);
                }
                Ok(Written::NoSpace) => {
                    let room = Room::Record { key, value_bytes: change.value().len() };
                    self.make_room(key, room, change.purpose(), &mut retry)?;
                    retry.after_room()?;
                }
                Err(stop) => {
                    met |= matches!(stop, Stop::Restart(Restart::Conflict));
                    retry.after(stop)?;
                }
            }
            last = if retry.is_latched() {
                self.write_latched(key, change, retry.patience(), (met, waiting))
            } else {
                self.try_write(key, change, met, waiting)
            };
        }
    }

    #[inline(always)]
    fn try_write<C: Change>(
        &self,
        key: &[u8],
        change: &mut C,
        met: bool,
        waiting: &Waiting<'_>,
    ) -> Result<Written<C::Outcome>, Stop> {
        let leaf = self.leaf_for(key)?;
        leaf.note_use();
        let node = Leaf::new(leaf.bytes());
        let at = node.find(key);
        let decision = change.decide(&node, at);
        if let Decision::Keep(outcome) = decision {
            leaf.validate()?;
            self.note_point(&leaf);
            self.nobody_alone()?;
            return Ok(Written::Done(outcome));
        }
        self.note_point(&leaf);
        let stay = self.enter_to_change(key, change, waiting)?;
        let guard = leaf.latch_to_change()?;
        let mut page = leaf.held(guard);
        let entered = (&stay, met);
        Ok(self.apply(&mut page, entered, key, at, decision, change))
    }

    #[cold]
    fn write_latched<C: Change>(
        &self,
        key: &[u8],
        change: &mut C,
        patience: &Patience<'_>,
        (met, waiting): (bool, &Waiting<'_>),
    ) -> Result<Written<C::Outcome>, Stop> {
        let stay = self.enter_to_change(key, change, waiting)?;
        let mut page = self.lock_leaf(key, patience)?;
        let node = plain_leaf(page.bytes());
        let at = node.find(key);
        match change.decide(&node, at) {
            Decision::Keep(outcome) => {
                page.release_unchanged();
                Ok(Written::Done(outcome))
            }
            decision => Ok(self.apply_apart(&mut page, (&stay, met), key, at, decision, change)),
        }
    }

    /// Enters the epoch, with room in the log for the record of one change.
    #[inline(always)]
    pub(super) fn enter_to_change<C: Change>(
        &self,
        key: &[u8],
        change: &C,
        waiting: &Waiting<'_>,
    ) -> Result<P::EpochGuard<'_>> {
        let itself = || RECORD_HEADER_BYTES + key.len() + change.value().len();
        let log_bytes = change.made().map_or_else(itself, |made| made.len_bytes());
        match self.logged {
            true => {
                self.enter_to_change_one(log_bytes as u64, key.len(), change.purpose(), waiting)
            }
            false => self.pool.enter_to_append(0, change.purpose(), waiting),
        }
    }

    /// Enters the epoch to change one record, whose key has so many bytes.
    #[inline(always)]
    pub(super) fn enter_to_change_one(
        &self,
        log_bytes: u64,
        key_bytes: usize,
        purpose: Purpose,
        waiting: &Waiting<'_>,
    ) -> Result<P::EpochGuard<'_>> {
        // What it is now is not known before the leaf is latched.
        let cells = || cells_of_change(key_bytes, self.max_record_bytes() - key_bytes);
        self.pool.enter_to_change(log_bytes, cells, purpose, waiting)
    }

    /// Keeps what a record was that has just been changed, as the snapshots need it.
    #[inline]
    pub(super) fn keep_version(
        &self,
        stay: &P::EpochGuard<'_>,
        key: &[u8],
        (old, removes): (Option<&[u8]>, bool),
        (lsn, own_snapshots): (Lsn, u64),
    ) {
        let change = versions::Change { tree: self.id, key, lsn, old, removes, own_snapshots };
        self.pool.keep_version(stay, &change);
    }

    /// [`Self::apply`] off the hot path: with more copies of it what it calls is in none of them.
    #[inline(never)]
    pub(super) fn apply_apart<C: Change>(
        &self,
        page: &mut ExclusivePage<'_, P>,
        entered: (&P::EpochGuard<'_>, bool),
        key: &[u8],
        at: Position,
        decision: Decision<C::Outcome>,
        change: &C,
    ) -> Written<C::Outcome> {
        self.apply(page, entered, key, at, decision, change)
    }

    /// Applies a decision to a latched leaf, and logs it: under the latch, so that the log has the changes of
    /// a key in the order in which they were made. `met`: the write met another thread on its way.
    #[inline(always)]
    pub(super) fn apply<C: Change>(
        &self,
        page: &mut ExclusivePage<'_, P>,
        (stay, met): (&P::EpochGuard<'_>, bool),
        key: &[u8],
        at: Position,
        decision: Decision<C::Outcome>,
        change: &C,
    ) -> Written<C::Outcome> {
        let (tree, value) = (self.id, change.value());
        let log = |itself| self.pool.append(stay, &change.made().unwrap_or(itself));
        if let Decision::Note(outcome) = decision {
            if self.logged {
                log(Record::Remove { tree, key });
            }
            return Written::Done(outcome);
        }
        let stored_forms = self.pool.has_stored_forms();
        let mut leaf = LeafMut::new(page.write(stay.epoch()));
        let mut old = Value::default();
        let keeps = self.logged && self.pool.keeps_versions(stay);
        if (stored_forms || keeps) && at.found {
            leaf.as_leaf().copy_value(at.index, &mut old.0);
        }

        match decision {
            Decision::Keep(outcome) | Decision::Note(outcome) => Written::Done(outcome),
            Decision::Put(_) if leaf.as_leaf().count() >= LEAST_FORCED && buggify(Point::Split) => {
                Written::NoSpace
            }
            Decision::Put(outcome) => {
                let result = match at.found {
                    true => leaf.update(at.index, value),
                    false => leaf.insert(at, key, value),
                };
                let Ok(()) = result else { return Written::NoSpace };
                if self.logged {
                    let lsn = log(put_record(tree, key, value, &old, stored_forms));
                    leaf.stamp(lsn);
                    if keeps {
                        let was = at.found.then_some(old.as_bytes());
                        self.keep_version(stay, key, (was, false), (lsn, change.own_snapshots()));
                    }
                }
                if stored_forms {
                    self.note_stored_forms(stay, &old, value);
                }
                let is_contended = self.note_write(page.frame(), at.found.then_some(at.index), met);
                match is_contended {
                    true => Written::Contended(outcome),
                    false if buggify(Point::Spread) => Written::Sparse(outcome),
                    false => Written::Done(outcome),
                }
            }
            Decision::Remove(outcome) => {
                leaf.remove(at.index);
                let sparse = is_sparse(&leaf.as_leaf()) && is_turn(leaf.as_leaf().count())
                    || buggify(Point::Merge);
                if self.logged {
                    let lsn = log(Record::Remove { tree, key });
                    leaf.stamp(lsn);
                    if keeps {
                        let own = change.own_snapshots();
                        self.keep_version(stay, key, (Some(&old), true), (lsn, own));
                    }
                }
                if stored_forms {
                    self.note_stored_forms(stay, &old, &[]);
                }
                // A removal alone has no key that another one is to be kept apart from.
                self.note_write(page.frame(), None, met);
                if sparse { Written::Sparse(outcome) } else { Written::Done(outcome) }
            }
        }
    }
}
