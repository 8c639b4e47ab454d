//! The first and the last record: read, or taken out, in one atomic step.
//!
//! The end of the order is the first leaf that has a record. Leaves without one may lie before it: a removal leaves them until its
//! merge, or that of a later one. They belong to what is read, since a record that comes to one of them is the end from then on. So
//! a read validates them after it has read the leaf with the record, and thus all of them at the moment of that. Who takes the
//! record out has them latched shared until the removal is in the log: then no record can come to the end before it.
//!
//! Latches are taken by upgrades from the versions that were read, which never wait, so their order is free. A call that has met
//! others three times waits for the latch of the leaf that has the record. Leaves without one are not latched by others for long: nobody
//! appends to the last leaf while its lower fence is ahead of the keys. Thread-safety: as for [`Tree`].

use super::Tree;
use super::change::{Decision, Remove};
use super::descend::Target;
use super::retry::{Retry, Stop};
use super::sparse::is_turn;
use super::write::Written;
use crate::error::Result;
use crate::node::{Leaf, plain_leaf};
use crate::page::{
    Access, EpochStay, ExclusivePage, OptimisticPage, PagePool, Pages, Restart, SharedPage,
};
use crate::types::Purpose;
use crate::wait::Waiting;
use crate::wal::RECORD_HEADER_BYTES;
use hedgerow_sync::optimistic::PageBytes;

/// An end of the order of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The record of the least key.
    First,
    /// The record of the greatest key.
    Last,
}

/// A record as its leaf has it.
pub type Raw = (Vec<u8>, Vec<u8>);

/// What became of a record at an end.
#[derive(Debug)]
pub enum Taken {
    /// There is none.
    Empty,
    /// It is out.
    Record(Raw),
    /// It was not accepted, and is still there.
    Refused(Raw),
}

/// The leaf that is worth a merge after a record was taken out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sparse {
    None,
    /// That of the record.
    Its,
    /// The first one of the tree, which has no records.
    First,
}

/// An end that was read and validated: its leaf, the leaves before it, which have no records, and its record.
struct Found<'p, P: Pages> {
    page: OptimisticPage<'p, P>,
    empty: Vec<OptimisticPage<'p, P>>,
    record: Raw,
}

impl End {
    fn target<'k>(self) -> Target<'k> {
        match self {
            End::First => Target::Key(b""),
            End::Last => Target::Last,
        }
    }

    /// Where the next leaf is behind one without records, whose fence it appends; `None` if that is the last.
    fn behind<'f, B: PageBytes>(
        self,
        leaf: &Leaf<B>,
        fence: &'f mut Vec<u8>,
    ) -> Option<Target<'f>> {
        let node = leaf.as_node();
        match self {
            End::First => node.append_upper_fence(fence).then(|| Target::Above(fence)),
            End::Last => node.append_lower_fence(fence).then(|| Target::Key(fence)),
        }
    }

    /// The record at this end of a copy of a leaf, which comes in order by that.
    fn of(self, copy: &mut [u8]) -> Option<Raw> {
        if plain_leaf(copy).count() == 0 {
            return None;
        }
        Leaf::put_in_order(copy);
        let leaf = plain_leaf(copy);
        let place = match self {
            End::First => Some(leaf.next_place(0)).filter(|place| *place < leaf.end()),
            End::Last => leaf.previous_place(leaf.end()),
        }?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        leaf.append_key(place, &mut key);
        leaf.append_value(place, &mut value);
        Some((key, value))
    }
}

/// Errors of all: those of reading a page; `KeyspaceDropped`; `Corrupted`; `Timeout`.
impl<P: Pages> Tree<P> {
    /// The record at an end. Linearizable.
    pub fn end(&self, end: End) -> Result<Option<Raw>> {
        loop {
            let turns = self.pool.alone_turns();
            let record = match self.is_alone_in(turns) {
                false => self.end_now(end)?,
                true => self.end_beside_alone(end)?,
            };
            if self.pool.alone_turns() == turns {
                return Ok(record);
            }
        }
    }

    fn end_now(&self, end: End) -> Result<Option<Raw>> {
        let waiting = self.wait.begin();
        let mut retry = Retry::new(&*self.pool, self.root, Access::Point, &waiting);
        let mut scratch = Vec::new();
        loop {
            let is_latched = retry.is_latched();
            let latched = |target: Target<'_>, empty: &mut Vec<_>, scratch: &mut Vec<u8>| {
                if !is_latched {
                    return Ok(None);
                }
                let page = self.share_leaf(target, retry.patience())?;
                copy_of(page.bytes(), scratch);
                let record = end.of(scratch);
                if record.is_some() {
                    empty.iter().try_for_each(OptimisticPage::validate)?;
                }
                Ok(record)
            };
            match self.find_end(end, &mut scratch, latched, |found| Ok::<_, Restart>(found.record))
            {
                Ok(record) => return Ok(record),
                Err(restart) => retry.after(restart)?,
            }
        }
    }

    /// Reads an end. What it returns was there at one moment.
    fn look(&self, end: End, scratch: &mut Vec<u8>) -> Result<Option<Found<'_, P>>, Restart> {
        self.find_end(end, scratch, |_, _, _| Ok(None), Ok)
    }

    /// Goes from leaf to leaf up to the first one that has a record: of a leaf, `latched` may find that with its latch, with those before it, which
    /// have none, and else `seen` gets what was there at one moment. `None`: there is no record.
    fn find_end<'t, T, E: From<Restart>>(
        &'t self,
        end: End,
        scratch: &mut Vec<u8>,
        mut latched: impl FnMut(
            Target<'_>,
            &mut Vec<OptimisticPage<'t, P>>,
            &mut Vec<u8>,
        ) -> Result<Option<T>, E>,
        seen: impl FnOnce(Found<'t, P>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let mut empty: Vec<OptimisticPage<'_, P>> = Vec::new();
        let (mut before, mut fence) = (Vec::new(), Vec::new());
        let mut target = end.target();
        loop {
            if let Some(found) = latched(target, &mut empty, scratch)? {
                return Ok(Some(found));
            }
            let page = self.reach(target, 0)?.page;
            page.note_use();
            scratch.resize(self.pool.page_bytes(), 0);
            page.bytes().copy(0, scratch);
            page.validate()?;
            if let Some(record) = end.of(scratch) {
                empty.iter().try_for_each(OptimisticPage::validate)?;
                return seen(Found { page, empty, record }).map(Some);
            }
            std::mem::swap(&mut before, &mut fence);
            fence.clear();
            if end.behind(&plain_leaf(scratch), &mut fence).is_none() {
                empty.iter().try_for_each(OptimisticPage::validate)?;
                return Ok(None);
            }
            // Whatever damage says, no walk goes round in a circle.
            let is_further = match end {
                _ if empty.is_empty() => true,
                End::First => fence > before,
                End::Last => fence < before,
            };
            if !is_further {
                return Err(Restart::Corrupt(page.id()).into());
            }
            empty.push(page);
            target = match end {
                End::First => Target::Above(&fence),
                End::Last => Target::Key(&fence),
            };
        }
    }
}

/// Errors of all: those of reading a page; `KeyspaceDropped`; `Corrupted`; `Timeout`.
impl<P: PagePool> Tree<P> {
    /// Takes the record at an end out, if `accept` says so of its key and its value as the leaf has it. `accept` is asked again if the
    /// record is another one by then. Linearizable. Errors, too: as for a removal.
    pub fn take_end(
        &self,
        end: End,
        mut accept: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Taken> {
        let waiting = self.wait.begin();
        let mut retry = Retry::new(&*self.pool, self.root, Access::Point, &waiting);
        let mut scratch = Vec::new();
        let mut met = false;
        loop {
            let latched = match retry.is_latched() {
                true => self.take_latched(end, &mut accept, &mut scratch, &mut retry),
                false => Ok(None),
            };
            let tried = match latched {
                Ok(None) => self.try_take(end, &mut accept, &mut scratch, (met, &waiting)),
                Ok(Some(done)) => Ok(done),
                Err(stop) => Err(stop),
            };
            match tried {
                Ok((taken, sparse)) => {
                    match (sparse, &taken) {
                        (Sparse::Its, Taken::Record((key, _))) => self.merge_around(key, retry),
                        (Sparse::First, _) => self.merge_around(b"", retry),
                        _ => {}
                    }
                    return Ok(taken);
                }
                Err(stop) => {
                    met |= matches!(stop, Stop::Restart(Restart::Conflict));
                    retry.after(stop)?;
                }
            }
        }
    }

    /// A try; which leaf is worth a merge, too.
    fn try_take(
        &self,
        end: End,
        accept: &mut impl FnMut(&[u8], &[u8]) -> bool,
        scratch: &mut Vec<u8>,
        (met, waiting): (bool, &Waiting<'_>),
    ) -> Result<(Taken, Sparse), Stop> {
        let turns = self.pool.alone_turns();
        let Some(Found { page, empty, record }) = self.look(end, scratch)? else {
            self.nobody_alone_since(turns)?;
            return Ok((Taken::Empty, Sparse::None));
        };
        if !accept(&record.0, &record.1) {
            self.nobody_alone_since(turns)?;
            return Ok((Taken::Refused(record), Sparse::None));
        }
        let stay = self.enter_to_take(waiting)?;
        let held: Result<Vec<SharedPage<'_, P>>, Restart> =
            empty.into_iter().map(OptimisticPage::share).collect();
        let held = held?;
        let mut page = page.upgrade()?;
        // Leaves without records make the next call longer. But that at the end may have its fence ahead of the keys.
        let first_is_empty = end == End::First && !held.is_empty();
        let is_turn = first_is_empty && is_turn(plain_leaf(page.bytes()).count());
        let sparse = self.take_out(&mut page, &record.0, (&stay, met))?;
        drop(page);
        drop(held);
        let sparse = if sparse == Sparse::None && is_turn { Sparse::First } else { sparse };
        Ok((Taken::Record(record), sparse))
    }

    /// Waits for the leaf that has the record. `None`: none has one.
    #[cold]
    fn take_latched(
        &self,
        end: End,
        accept: &mut impl FnMut(&[u8], &[u8]) -> bool,
        scratch: &mut Vec<u8>,
        retry: &mut Retry<'_, P>,
    ) -> Result<Option<(Taken, Sparse)>, Stop> {
        let stay = self.enter_to_take(retry.waiting())?;
        let mut latched = |target: Target<'_>, empty: &mut Vec<_>, scratch: &mut Vec<u8>| {
            let mut page = self.lock_leaf_at(target, retry.patience())?;
            copy_of(page.bytes(), scratch);
            let Some(record) = end.of(scratch) else {
                page.release_unchanged();
                return Ok(None);
            };
            let held: Result<Vec<SharedPage<'_, P>>, Restart> =
                std::mem::take(empty).into_iter().map(OptimisticPage::share).collect();
            if held.is_err() || !accept(&record.0, &record.1) {
                page.release_unchanged();
                return held
                    .map(|_| Some((Taken::Refused(record), Sparse::None)))
                    .map_err(Stop::from);
            }
            let sparse = self.take_out(&mut page, &record.0, (&stay, true))?;
            Ok(Some((Taken::Record(record), sparse)))
        };
        // A record that came to a leaf after its latch was let go of is taken by the next try.
        self.find_end(end, scratch, &mut latched, |_| Err(Restart::Conflict.into()))
    }

    /// With room in the log for the removal of any key.
    fn enter_to_take(&self, waiting: &Waiting<'_>) -> Result<P::EpochGuard<'_>> {
        let log_bytes = RECORD_HEADER_BYTES + self.max_key_bytes();
        let (purpose, longest) = (Purpose::GiveBack, self.max_key_bytes());
        match self.logged {
            true => self.enter_to_change_one(log_bytes as u64, longest, purpose, waiting),
            false => self.pool.enter_to_append(0, purpose, waiting),
        }
    }

    /// Removes a record that a latched leaf has.
    fn take_out(
        &self,
        page: &mut ExclusivePage<'_, P>,
        key: &[u8],
        entered: (&P::EpochGuard<'_>, bool),
    ) -> Result<Sparse, Restart> {
        if !plain_leaf(page.bytes()).is_in_order() {
            // The next record is to be taken, too, and need not be looked for in a copy that is sorted again.
            Leaf::put_in_order(page.write(entered.0.epoch()));
        }
        let at = plain_leaf(page.bytes()).find(key);
        if !at.found {
            // A damaged leaf: its key is not where it should be.
            return Err(Restart::Corrupt(page.id()));
        }
        let written = self.apply(page, entered, key, at, Decision::Remove(true), &Remove);
        Ok(if matches!(written, Written::Sparse(_)) { Sparse::Its } else { Sparse::None })
    }
}

fn copy_of(page: &[u8], scratch: &mut Vec<u8>) {
    scratch.clear();
    scratch.extend_from_slice(page);
}
