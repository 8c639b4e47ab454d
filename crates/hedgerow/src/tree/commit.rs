//! Several changes at one stroke: everybody sees all of them or none.
//!
//! The steps, as `docs/transactions.md` gives them with their reasons:
//!
//! 1. With nothing held: the leaves of the write set are found. A page that is missing is faulted, and from then on all leaves
//!    are held in memory by one weighted admission ([`PoolSession::hold_up_to`]): one by one they would push each other out.
//! 2. *Fit* is shown: each leaf takes all its changes together. For one change the leaf says so, several are tried in a scratch
//!    copy. A leaf that does not take them is split, between two of the changes if there is room for each of them alone.
//! 3. The epoch is entered once, with room in the log for all pieces.
//! 4. The leaves are latched exclusively in the order (tree, key), by upgrades from the versions that were looked at. If one
//!    fails all go, unchanged, and it starts again. From the third time on leaves are waited for, in that order, and looked at anew.
//! 5. The commit is appended, in pieces. All of it has one LSN, where its last piece ends.
//! 6. Leaf by leaf: the changes, the stamp, unlatched. From step 5 on nothing can fail; unwinding poisons.
//! 7. The epoch is left, and sparse leaves are merged.
//!
//! What a commit has read ([`ReadSet`]) is a part of all this. Its leaves are found among the others, in the same order. In step 2 each is shown
//! to have what the snapshot had of the intervals that were read: by its stamp, or byte for byte. In step 4 those that nothing is
//! written to are latched shared, and they are let go of after step 5. So no plain change can come between the look and the LSN.
//!
//! Invariants: no leaf is changed before all are latched, so that who sees one of the changes finds every other leaf latched or
//! changed. Nothing but leaves is waited for while one is latched, and nothing is allocated then but a leaf's list of what to
//! do next. Thread-safety: as for [`Tree`].

use super::Tree;
use super::commit_leaves::{
    Changed, Fences, Latched, Later, change_leaf, first_without_room, is_leaf_of, is_shown,
    make_room_from, place_of,
};
use super::descend::Target;
use super::read_set::{AskFile, FromFile, Read, ReadSet};
use super::retry::{Patience, Retry, Stop};
use super::write_set::{PIECE_BYTES, Write, encode, fit_piece, purpose_of};
use crate::error::{Error, ErrorKind, Result};
use crate::node::{Leaf, Position, plain_leaf};
use crate::page::{
    Access, ExclusivePage, OptimisticPage, PagePool, PoolSession, Restart, SharedPage,
};
use crate::types::{Lsn, PageId, Purpose};
use crate::versions::cells_of_change;
use crate::wait::Waiting;
use crate::wal::{BatchId, Record};
use hedgerow_sync::optimistic::PageBytes;
use std::ops::Range;

/// Bytes of the old value of a record that is removed, as far as nobody has looked.
const EXPECTED_BYTES: usize = 100;

/// A commit of a write set.
#[derive(Clone, Copy, Debug)]
pub struct Stroke {
    /// Its number in the log.
    pub id: BatchId,
    /// Bytes of all its pieces: [`super::piece_bytes`].
    pub log_bytes: u64,
    /// Leaves that it may have.
    pub most_leaves: usize,
}

/// A leaf, and which of the changes and of the intervals that were read are its.
struct Found<'c, P: PagePool> {
    page: OptimisticPage<'c, P>,
    writes: Range<usize>,
    reads: Range<usize>,
    /// Of a leaf with one change that it takes: where that is, as long as its version is the one that was looked at.
    at: Option<Position>,
    /// Of a leaf that will be waited for, and was read.
    ahead: Option<Box<Ahead>>,
}

/// What is known of a leaf before it is waited for.
struct Ahead {
    /// How far it goes.
    fences: Fences,
    /// What the file has of the intervals, each in its place, if it was read.
    from_file: Vec<Option<FromFile>>,
}

/// How a try came out.
enum Tried {
    /// It is done.
    Done(Lsn),
    /// There are more leaves than may be, or more old versions than there is room for.
    TooMany,
    /// Leaves do not take all their changes.
    Full(Vec<Full>),
}

/// There is room in a leaf for the changes from `first` on, but not for that at `at` as well.
struct Full {
    first: usize,
    at: usize,
}

/// How far the search for leaves has come.
#[derive(Default)]
struct Sought {
    write: usize,
    read: usize,
    /// The upper fence of a leaf behind which the interval goes on that is `read`.
    fence: Option<Vec<u8>>,
}

impl Sought {
    /// Where the next leaf is, and whether it is wanted for a change; `None`: these were all.
    fn next<'s, 'c: 's, P: PagePool>(
        &'s self,
        writes: &'c [Write<'c, P>],
        reads: &'c [Read<'c, P>],
    ) -> Option<(&'c Tree<P>, Target<'s>, bool)> {
        let wanted = (writes.get(self.write), reads.get(self.read));
        match (wanted, &self.fence) {
            ((_, Some(next)), Some(fence)) => Some((next.tree, Target::Above(fence), false)),
            ((Some(next), Some(other)), _)
                if (next.tree.id(), next.key) <= (other.tree.id(), other.first_key()) =>
            {
                Some((next.tree, Target::Key(next.key), true))
            }
            ((_, Some(next)), _) => Some((next.tree, Target::Key(next.first_key()), false)),
            ((Some(next), None), _) => Some((next.tree, Target::Key(next.key), true)),
            ((None, None), _) => None,
        }
    }
}

struct Commit<'c, P: PagePool> {
    stroke: Stroke,
    writes: &'c [Write<'c, P>],
    read_set: Option<&'c ReadSet<'c, P>>,
    pool: &'c P,
    waiting: &'c Waiting<'c>,
    leaves: Vec<Found<'c, P>>,
    /// Where the search goes on that has met a missing page. The leaves before that are held, and whoever latches one sees whether it has changed.
    sought: Option<Sought>,
    /// The root of the tree in which a leaf is being looked for.
    root: PageId,
    /// A page was missing: leaves are held, this many at most.
    is_held: bool,
    most_held: usize,
    /// Whether it met another thread.
    met: bool,
    scratch: Vec<u8>,
    piece: Vec<u8>,
    later: Vec<(usize, Later)>,
    /// Room for old versions that the changes need, if somebody has counted it.
    version_cells: Option<u32>,
    /// The first change for which room was made last.
    made_room_at: Option<usize>,
}

impl Stroke {
    /// Makes all changes, which are sorted by tree and key, each key once, of trees of one pool. The LSN of the commit; `None`, and
    /// nothing is done, if they have more leaves than may be.
    ///
    /// Errors: as for a change of one record; `Conflict` if what was read has changed. After an error nothing has changed.
    pub fn make<'c, P: PagePool>(
        self,
        writes: &'c [Write<'c, P>],
        read_set: Option<&'c ReadSet<'c, P>>,
        waiting: &'c Waiting<'c>,
    ) -> Result<Option<Lsn>> {
        let Some(first) = writes.first() else { return Ok(Some(Lsn(0))) };
        let place = |write: &Write<'c, P>| (write.tree.id(), write.key);
        debug_assert!(writes.is_sorted_by(|a, b| place(a) < place(b)), "a write set is sorted");
        for write in writes {
            write.tree.check_record(write.key, write.value.unwrap_or(&[]))?;
        }
        let pool: &P = &first.tree.pool;
        let mut commit = Commit {
            stroke: self,
            writes,
            read_set,
            pool,
            waiting,
            leaves: Vec::with_capacity(self.most_leaves.min(writes.len())),
            sought: None,
            root: first.tree.root,
            is_held: false,
            most_held: 0,
            met: false,
            scratch: Vec::new(),
            piece: Vec::new(),
            later: Vec::new(),
            version_cells: None,
            made_room_at: None,
        };
        // Made when the first try has failed, so that others pay nothing for it.
        let mut retry: Option<Retry<'c, P>> = None;
        let lsn = loop {
            let tried = commit.attempt(retry.as_mut());
            let new = || Retry::new(pool, first.tree.root, Access::Point, waiting);
            match tried {
                Ok(Tried::Done(lsn)) => break lsn,
                Ok(Tried::TooMany) => return Ok(None),
                Ok(Tried::Full(leaves)) => {
                    commit.make_room(&leaves, retry.get_or_insert_with(new))?;
                }
                Err(stop) => commit.after(stop, retry.get_or_insert_with(new))?,
            }
        };
        // The pages that it holds are in nobody's way any more.
        drop(retry);
        for (at, later) in commit.later {
            let Write { tree, key, .. } = writes[at];
            let retry = Retry::new(pool, tree.root, Access::Point, waiting);
            match later {
                Later::Merge => tree.merge_around(key, retry),
                Later::Split => tree.split_contended(key, Purpose::Take, retry),
            }
        }
        Ok(Some(lsn))
    }
}

impl<'c, P: PagePool> Commit<'c, P> {
    /// Makes ready for the next try.
    #[cold]
    fn after(&mut self, stop: Stop, retry: &mut Retry<'c, P>) -> Result<()> {
        if matches!(stop, Stop::Restart(Restart::Gated)) {
            // Who waits there holds nothing.
            self.is_held = false;
        }
        self.met |= matches!(stop, Stop::Restart(Restart::Conflict));
        if matches!(stop, Stop::Restart(Restart::Absent(_))) && self.is_held {
            self.read_on(retry)?;
        } else if matches!(stop, Stop::Restart(Restart::Absent(_))) {
            self.is_held = true;
            // Reading ahead takes a place of its own: who has one and waits for another may wait for ever.
            retry.session.let_go();
            self.read_ahead()?;
            self.most_held = self.expected_leaves();
            retry.session.hold_up_to(self.most_held)?;
        }
        retry.turn_to(self.root);
        retry.after(stop)
    }

    fn reads(&self) -> &'c [Read<'c, P>] {
        self.read_set.map_or(&[], |set| set.reads)
    }

    /// Leaves that it has, if each is that of a key: nobody knows how many there are in an interval, and most have one or two.
    fn expected_leaves(&self) -> usize {
        let reads = self.reads().iter().map(|read| if read.is_key() { 1 } else { 2 });
        (self.writes.len() + reads.sum::<usize>()).min(self.stroke.most_leaves)
    }

    /// Reads the leaves of single keys, many at a time. No more than may be held.
    fn read_ahead(&self) -> Result<()> {
        let writes = self.writes.iter().map(|write| (write.tree, write.key));
        let reads = self.reads().iter().filter(|read| read.is_key());
        let keys: Vec<_> = writes.chain(reads.map(|read| (read.tree, read.first_key()))).collect();
        for of_tree in keys.chunk_by(|a, b| a.0.id() == b.0.id()) {
            for some in of_tree.chunks(self.stroke.most_leaves.max(1)) {
                let keys: Vec<&[u8]> = some.iter().map(|(_, key)| *key).collect();
                some[0].0.get_many(&keys)?;
            }
        }
        Ok(())
    }

    /// Reads the next leaves of the interval in which a page is missing: all of them are needed.
    fn read_on(&self, retry: &mut Retry<'c, P>) -> Result<()> {
        let next = self.sought.as_ref().and_then(|at| {
            let (tree, target, is_of_write) = at.next(self.writes, self.reads())?;
            Some((tree, target, self.reads().get(at.read).filter(|_| !is_of_write)?))
        });
        let Some((tree, target, read)) = next else { return Ok(()) };
        let mut ids = tree.absent_leaves(target, read.last_key());
        ids.truncate(self.stroke.most_leaves - self.leaves.len());
        retry.session.prefetch(&ids, Access::Point)
    }

    /// Splits the leaves that do not take all their changes, and what comes of them: all before the next try, which looks at every leaf. If there are more
    /// leaves by then than may be, it says so.
    #[cold]
    fn make_room(&mut self, leaves: &[Full], retry: &mut Retry<'c, P>) -> Result<()> {
        self.scratch.resize(self.pool.page_bytes(), 0);
        let mut splits_left = self.stroke.most_leaves.saturating_sub(self.leaves.len()).max(1);
        for full in leaves {
            let from = (full.first, full.at);
            make_room_from(self.writes, from, &mut self.scratch, &mut splits_left, retry)?;
        }
        // The next look may read values and other trees, each of which takes a place in the pool of its own.
        if !self.is_held {
            retry.session.let_go();
        }
        let at = leaves.first().map(|full| full.at);
        // Further on than before: nobody has taken the room.
        if std::mem::replace(&mut self.made_room_at, at) < at { Ok(()) } else { retry.after_room() }
    }

    fn attempt(&mut self, mut retry: Option<&mut Retry<'c, P>>) -> Result<Tried, Stop> {
        if !self.find(retry.as_deref_mut())? {
            return Ok(Tried::TooMany);
        }
        if let Some(retry) = retry.filter(|retry| retry.is_latched()) {
            return self.make_latched(retry);
        }
        self.check_unchanged()?;
        let full = self.fit()?;
        if !full.is_empty() {
            return Ok(Tried::Full(full));
        }
        self.allocate();
        let stay = self.enter()?;
        let mut latched = self.nothing_latched();
        for found in &self.leaves {
            let outcome = match found.writes.is_empty() {
                true => found.page.share().map(|page| latched.shared.push(page)),
                false => found.page.upgrade().map(|page| latched.exclusive.push(page)),
            };
            if let Err(restart) = outcome {
                latched.release();
                return Err(restart.into());
            }
        }
        self.change(latched, &stay)
    }

    fn nothing_latched(&self) -> Latched<'c, P> {
        let written = self.leaves.iter().filter(|found| !found.writes.is_empty()).count();
        Latched {
            exclusive: Vec::with_capacity(written),
            shared: Vec::with_capacity(self.leaves.len() - written),
        }
    }

    /// Finds the leaves, in the order of trees and keys; behind a page that was missing it goes on. `false`: there are too many.
    fn find(&mut self, mut retry: Option<&mut Retry<'c, P>>) -> Result<bool, Stop> {
        loop {
            let (goes_on, sought) = (self.sought.is_some(), self.sought.take());
            let mut at = sought.unwrap_or_else(|| {
                self.leaves.clear();
                Sought::default()
            });
            let found = self.find_from(&mut at, retry.as_deref_mut());
            if self.is_held && matches!(found, Err(Stop::Restart(Restart::Absent(_)))) {
                self.sought = Some(at);
            }
            // While pages were read others may have changed: by now all are there, so that a second look takes no time.
            let is_old = |leaf: &Found<'c, P>| leaf.page.validate().is_err();
            if !goes_on || !matches!(found, Ok(true)) || !self.leaves.iter().any(is_old) {
                return found;
            }
        }
    }

    fn find_from(
        &mut self,
        at: &mut Sought,
        mut retry: Option<&mut Retry<'c, P>>,
    ) -> Result<bool, Stop> {
        let is_latched = retry.as_ref().is_some_and(|retry| retry.is_latched());
        let (writes, reads) = (self.writes, self.reads());
        while let Some((tree, target, is_of_write)) = at.next(writes, reads) {
            if self.leaves.len() == self.stroke.most_leaves {
                return Ok(false);
            }
            if let Some(retry) = retry.as_deref_mut()
                && self.is_held
                && self.leaves.len() == self.most_held
            {
                // An interval has more. Who has places and waits for further ones might wait for ever, so it lets go of all, and begins again.
                self.most_held = self.stroke.most_leaves;
                retry.session.hold_up_to(self.most_held)?;
                self.leaves.clear();
                *at = Sought::default();
                continue;
            }
            self.root = tree.root;
            let look = || match target {
                Target::Key(key) => tree.leaf_for(key),
                other => tree.reach(other, 0).map(|reached| reached.page),
            };
            let page = match (look(), retry.as_deref_mut().filter(|retry| retry.is_latched())) {
                // Whoever has the leaf may have others, too, and sleep: trying again would only keep him from running.
                (Err(Restart::Conflict), Some(retry)) => {
                    drop(tree.share_leaf(target, retry.patience())?);
                    look()?
                }
                (page, _) => page?,
            };
            page.note_use();
            let leaf = Leaf::new(page.bytes());
            let node = leaf.as_node();
            let is_here = |next: &&Write<'c, P>| {
                next.tree.id() == tree.id() && node.is_within_upper(next.key)
            };
            // The one that it was found for is there, as far as the version of the page goes.
            let Sought { write, read, .. } = *at;
            let sure = write + usize::from(is_of_write);
            let end = sure + writes[sure..].iter().take_while(is_here).count();
            let (mut read_end, mut goes_on) = (read, None);
            while let Some(next) = reads.get(read_end)
                && next.tree.id() == tree.id()
                && (read_end == read && at.fence.is_some() || next.begins_in(&node))
            {
                read_end += 1;
                if !next.ends_in(&node) {
                    let mut upper = Vec::new();
                    node.append_upper_fence(&mut upper);
                    goes_on = Some(upper);
                    break;
                }
            }
            // What was read of a leaf goes as far as it does.
            let ahead = (is_latched && read_end > read)
                .then(|| Box::new(Ahead { fences: Fences::of(&node), from_file: Vec::new() }));
            // The leaf is at hand now. Who waits for it looks at it anew.
            let place = match &writes[write..end] {
                [one] if !is_latched => place_of(&leaf, one),
                _ => None,
            };
            page.validate()?;
            tree.note_point(&page);
            if let Some(retry) = retry.as_mut().filter(|_| self.is_held) {
                retry.session.hold(page.id())?;
                // It was there; it is now.
                page.validate()?;
            }
            let (writes, reads) = (write..end, read..read_end);
            self.leaves.push(Found { page, writes, reads, at: place, ahead });
            at.write = end;
            at.read = if goes_on.is_some() { read_end - 1 } else { read_end };
            at.fence = goes_on;
        }
        Ok(true)
    }

    /// Shows of each leaf that it has what was read of it, as long as its version is the one that was looked at.
    fn check_unchanged(&mut self) -> Result<(), Stop> {
        let Some(set) = self.read_set else { return Ok(()) };
        let file = if self.is_held { AskFile::ReadButTree } else { AskFile::Read };
        for found in &self.leaves {
            let Some(first) = set.reads[found.reads.clone()].first() else { continue };
            let stamp = Leaf::new(found.page.bytes()).as_node().newest_lsn();
            found.page.validate()?;
            if set.judge.is_as_it_was(first.tree, stamp) {
                continue;
            }
            self.scratch.resize(self.pool.page_bytes(), 0);
            found.page.bytes().copy(0, &mut self.scratch);
            found.page.validate()?;
            Leaf::put_in_order(&mut self.scratch);
            for read in &set.reads[found.reads.clone()] {
                let is_known = set.judge.compare(&self.scratch, read, file)?;
                assert!(is_known, "the file was read");
            }
        }
        Ok(())
    }

    /// Shows of each leaf that it takes its changes, as long as its version is the one that was looked at; or says which ones do not.
    fn fit(&mut self) -> Result<Vec<Full>, Restart> {
        let mut full = Vec::new();
        for found in self.leaves.iter().filter(|found| found.at.is_none()) {
            let writes = &self.writes[found.writes.clone()];
            let leaf = Leaf::new(found.page.bytes());
            if is_shown(&leaf, writes) {
                continue;
            }
            self.scratch.resize(self.pool.page_bytes(), 0);
            found.page.bytes().copy(0, &mut self.scratch);
            found.page.validate()?;
            if let Some(at) = first_without_room(&mut self.scratch, writes) {
                let first = found.writes.start;
                full.push(Full { first, at: first + at });
            }
        }
        Ok(full)
    }

    /// All memory that is needed while leaves are latched.
    fn allocate(&mut self) {
        if self.is_in_pieces() {
            let longest = self.stroke.log_bytes.min(2 * PIECE_BYTES as u64) as usize;
            self.piece.reserve(longest);
        }
        self.later.reserve(self.leaves.len());
    }

    fn enter(&self) -> Result<P::EpochGuard<'c>> {
        let (is_logged, purpose) = (self.writes[0].tree.logged, purpose_of(self.writes));
        match is_logged {
            true => self.pool.enter_to_change(
                self.stroke.log_bytes,
                || self.version_cells.unwrap_or_else(|| self.expected_cells()),
                purpose,
                self.waiting,
            ),
            false => self.pool.enter_to_append(0, purpose, self.waiting),
        }
    }

    /// Waits for the leaves, in their order, and looks at them anew.
    #[cold]
    fn make_latched(&mut self, retry: &mut Retry<'c, P>) -> Result<Tried, Stop> {
        if self.has_leaf_twice() {
            return Err(Restart::Conflict.into());
        }
        self.read_file_ahead()?;
        self.scratch.resize(self.pool.page_bytes(), 0);
        self.allocate();
        let mut latched = self.nothing_latched();
        let mut full = Vec::with_capacity(self.leaves.len());
        let stay = self.enter()?;
        let patience = retry.patience();
        for at in 0..self.leaves.len() {
            match self.latch_and_look(at, patience, &mut latched) {
                Ok(found) => full.extend(found),
                Err(stop) => {
                    latched.release();
                    return Err(stop);
                }
            }
        }
        if !full.is_empty() {
            latched.release();
            return Ok(Tried::Full(full));
        }
        self.change(latched, &stay)
    }

    /// Whether two keys' leaves became one while they were looked for: who waited for it twice would wait for itself.
    fn has_leaf_twice(&self) -> bool {
        let mut ids: Vec<PageId> = self.leaves.iter().map(|found| found.page.id()).collect();
        ids.sort_unstable();
        ids.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Reads what will be compared and is in the file only. A snapshot that goes over to the file later is met once more.
    fn read_file_ahead(&mut self) -> Result<()> {
        let Some(set) = self.read_set else { return Ok(()) };
        for found in &mut self.leaves {
            let Some(ahead) = &mut found.ahead else { continue };
            let reads = set.reads[found.reads.clone()].iter();
            let from_file = reads.map(|read| set.judge.read_ahead(read, &ahead.fences));
            ahead.from_file = from_file.collect::<Result<_>>()?;
        }
        Ok(())
    }

    /// Waits for one leaf, and looks at it.
    fn latch_and_look(
        &mut self,
        at: usize,
        patience: &Patience<'_>,
        latched: &mut Latched<'c, P>,
    ) -> Result<Option<Full>, Stop> {
        let found = &self.leaves[at];
        let (id, writes, reads) = (found.page.id(), found.writes.clone(), found.reads.clone());
        let mut keep_waiting = || patience.is_left();
        let bytes = if writes.is_empty() {
            latched.shared.push(SharedPage::wait(self.pool, id, &mut keep_waiting)?);
            latched.shared[latched.shared.len() - 1].bytes()
        } else {
            latched.exclusive.push(ExclusivePage::wait(self.pool, id, &mut keep_waiting)?);
            latched.exclusive[latched.exclusive.len() - 1].bytes()
        };
        let mine = &self.writes[writes.clone()];
        let tree = match (mine.first(), self.reads().get(reads.start)) {
            (Some(write), _) => write.tree,
            (None, Some(read)) => read.tree,
            (None, None) => return Ok(None),
        };
        let node = plain_leaf(bytes).as_node();
        let covers = |write: &Write<'c, P>| node.covers(write.key);
        let is_the_leaf = is_leaf_of(bytes, tree.id())
            && mine.first().is_none_or(covers)
            && mine.last().is_none_or(covers)
            && found.ahead.as_ref().is_none_or(|of| of.fences == Fences::of(&node));
        if !is_the_leaf {
            return Err(Restart::Conflict.into());
        }
        if let Some(set) = self.read_set.filter(|_| !reads.is_empty())
            && !set.judge.is_as_it_was(tree, node.newest_lsn())
        {
            self.scratch.copy_from_slice(bytes);
            Leaf::put_in_order(&mut self.scratch);
            let from_file = found.ahead.iter().flat_map(|ahead| &ahead.from_file);
            for (read, ahead) in set.reads[reads].iter().zip(from_file) {
                if !set.judge.compare(&self.scratch, read, AskFile::Ahead(ahead.as_ref()))? {
                    return Err(Restart::Conflict.into());
                }
            }
        }
        if mine.is_empty() {
            return Ok(None);
        }
        // Its fit.
        self.scratch.copy_from_slice(bytes);
        let full = first_without_room(&mut self.scratch, mine);
        Ok(full.map(|at| Full { first: writes.start, at: writes.start + at }))
    }

    /// Room for old versions, if each record has a value about as long as its new one.
    fn expected_cells(&self) -> u32 {
        let cells = |write: &Write<'c, P>| {
            cells_of_change(write.key.len(), write.value.map_or(EXPECTED_BYTES, <[u8]>::len))
        };
        let expected = self.writes.iter().map(cells).fold(0, u32::saturating_add);
        expected.min(self.pool.most_version_cells())
    }

    /// Makes the changes of leaves that are all latched and take them, if there is room for what the records were before.
    fn change(&mut self, latched: Latched<'c, P>, stay: &P::EpochGuard<'c>) -> Result<Tried, Stop> {
        if self.pool.keeps_versions(stay) && self.writes[0].tree.logged {
            let mut cells = 0u32;
            for (writes, page) in self.written().zip(&latched.exclusive) {
                let leaf = plain_leaf(page.bytes());
                for write in &self.writes[writes] {
                    let at = leaf.find(write.key);
                    let old = if at.found { leaf.value_len(at.index) } else { 0 };
                    cells = cells.saturating_add(cells_of_change(write.key.len(), old));
                }
            }
            if cells > self.pool.version_cells(stay) {
                latched.release();
                if cells > self.pool.most_version_cells() {
                    return Ok(Tried::TooMany);
                }
                self.version_cells = Some(cells);
                return Err(Restart::Conflict.into());
            }
        }
        Ok(Tried::Done(self.apply(latched, stay)))
    }

    /// The changes of each leaf that has any.
    fn written(&self) -> impl Iterator<Item = Range<usize>> {
        self.leaves.iter().map(|found| found.writes.clone()).filter(|writes| !writes.is_empty())
    }

    /// Steps 5 and 6. All leaves are latched, and take their changes.
    fn apply(&mut self, latched: Latched<'c, P>, stay: &P::EpochGuard<'c>) -> Lsn {
        let unwinding = Unwinding { pool: self.pool };
        let Latched { exclusive, shared } = latched;
        let lsn = if self.writes[0].tree.logged { self.append(stay) } else { Lsn(0) };
        // What was read may change from here on: who changes it has no smaller LSN, and no moment lies before his.
        drop(shared);
        let own = self.read_set.map_or(0, |set| set.judge.own_snapshots());
        let mut later = std::mem::take(&mut self.later);
        let written = self.leaves.iter().filter(|found| !found.writes.is_empty());
        for (found, page) in written.zip(exclusive) {
            let writes = found.writes.clone();
            let changed = Changed { order: (lsn, own), met: self.met, writes, at: found.at };
            change_leaf(self.writes, page, stay, &changed, &mut later);
        }
        self.later = later;
        std::mem::forget(unwinding);
        lsn
    }

    /// Without a log a commit has no pieces. A single change says all by itself.
    fn is_in_pieces(&self) -> bool {
        self.writes.len() > 1 && self.pool.has_log()
    }

    /// Appends the commit; where it ends.
    fn append(&mut self, stay: &P::EpochGuard<'c>) -> Lsn {
        if !self.is_in_pieces() {
            return self.pool.append(stay, &self.writes[0].record());
        }
        let (commit, changes) = (self.stroke.id, self.writes.len() as u32);
        let mut left = self.writes;
        let mut end = Lsn(0);
        while !left.is_empty() {
            let (count, _) = fit_piece(left);
            self.piece.clear();
            encode(&left[..count], &mut self.piece);
            left = &left[count..];
            end = self.pool.append(stay, &Record::Commit { commit, changes, records: &self.piece });
        }
        end
    }
}

/// Between the append and the last change: the log has what memory has not, so that nobody may go on.
struct Unwinding<'p, P: PagePool> {
    pool: &'p P,
}

impl<P: PagePool> Drop for Unwinding<'_, P> {
    fn drop(&mut self) {
        let what = "a panic came between a commit's record and its changes; opening the store again makes them";
        self.pool.poison(&Error::new(ErrorKind::BatchUnfinished, what));
    }
}
