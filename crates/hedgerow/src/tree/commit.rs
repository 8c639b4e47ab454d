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
//! What a commit has read would be latched shared in step 4, among the leaves that it writes to and in the same order, and let go of
//! after step 5: then no plain change can come between its check and its LSN.
//!
//! Invariants: no leaf is changed before all are latched, so that who sees one of the changes finds every other leaf latched or
//! changed. Nothing but leaves is waited for while one is latched, and nothing is allocated then but a leaf's list of what to
//! do next. Thread-safety: as for [`Tree`].

use super::Tree;
use super::retry::{Retry, Stop};
use super::split::Room;
use super::write::{is_sparse, is_turn};
use super::write_set::{PIECE_BYTES, Write, encode, fit_piece};
use crate::error::{Error, ErrorKind, Result};
use crate::node::{Ladder, Leaf, LeafMut, Position, plain_leaf};
use crate::page::header;
use crate::page::{
    Access, EpochStay, ExclusivePage, OptimisticPage, PagePool, PoolSession, Restart,
};
use crate::types::{Lsn, PageId, Purpose};
use crate::versions::cells_of_change;
use crate::wait::Waiting;
use crate::wal::{BatchId, Record};
use hedgerow_sync::optimistic::PageBytes;
use hedgerow_sync::primitive::canary::leaves_out;
use hedgerow_sync::primitive::thread;
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

/// A leaf of the write set, and which of the changes are its.
struct Found<'c, P: PagePool> {
    page: OptimisticPage<'c, P>,
    writes: Range<usize>,
}

/// How a try came out.
enum Tried {
    /// It is done.
    Done(Lsn),
    /// There are more leaves than may be, or more old versions than there is room for.
    TooMany,
    /// There is room in its leaf for the changes from `first` on, but not for that at `at` as well.
    Full { first: usize, at: usize },
}

/// What is worth doing when the commit is done.
enum Later {
    Merge,
    Split,
}

struct Commit<'c, P: PagePool, L: Ladder> {
    stroke: Stroke,
    writes: &'c [Write<'c, P, L>],
    pool: &'c P,
    waiting: &'c Waiting<'c>,
    leaves: Vec<Found<'c, P>>,
    /// The change whose leaf is being looked for.
    at: usize,
    /// A page was missing: leaves are held.
    is_held: bool,
    /// Whether it met another thread.
    met: bool,
    scratch: Vec<u8>,
    piece: Vec<u8>,
    later: Vec<(usize, Later)>,
    /// Room for old versions that the changes need, as far as it is known.
    version_cells: u32,
}

impl Stroke {
    /// Makes all changes, which are sorted by tree and key, each key once, of trees of one pool. The LSN of the commit; `None`, and
    /// nothing is done, if they have more leaves than may be.
    ///
    /// Errors: as for a change of one record. After an error nothing has changed.
    pub fn make<'c, P: PagePool, L: Ladder>(
        self,
        writes: &'c [Write<'c, P, L>],
        waiting: &'c Waiting<'c>,
    ) -> Result<Option<Lsn>> {
        let Some(first) = writes.first() else { return Ok(Some(Lsn(0))) };
        let place = |write: &Write<'c, P, L>| (write.tree.id(), write.key);
        assert!(writes.is_sorted_by(|a, b| place(a) < place(b)), "a write set is sorted");
        for write in writes {
            write.tree.check_record(write.key, write.value.unwrap_or(&[]))?;
        }
        let pool: &P = &first.tree.pool;
        let mut retry = Retry::new(pool, first.tree.root, Access::Point, waiting);
        let mut commit = Commit {
            stroke: self,
            writes,
            pool,
            waiting,
            leaves: Vec::new(),
            at: 0,
            is_held: false,
            met: false,
            scratch: Vec::new(),
            piece: Vec::new(),
            later: Vec::new(),
            version_cells: 0,
        };
        commit.version_cells = commit.expected_cells();
        let lsn = loop {
            match commit.attempt(&mut retry) {
                Ok(Tried::Done(lsn)) => break lsn,
                Ok(Tried::TooMany) => return Ok(None),
                Ok(Tried::Full { first, at }) => commit.make_room(first, at, &mut retry)?,
                Err(stop) => commit.after(stop, &mut retry)?,
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

impl<'c, P: PagePool, L: Ladder> Commit<'c, P, L> {
    /// Makes ready for the next try.
    #[cold]
    fn after(&mut self, stop: Stop, retry: &mut Retry<'c, P>) -> Result<()> {
        self.met |= matches!(stop, Stop::Restart(Restart::Conflict));
        if matches!(stop, Stop::Restart(Restart::Absent(_))) && !self.is_held {
            self.is_held = true;
            self.read_ahead()?;
            retry.session.hold_up_to(self.writes.len().min(self.stroke.most_leaves))?;
        }
        retry.turn_to(self.writes[self.at].tree.root);
        retry.after(stop)
    }

    /// Reads the leaves, many at a time. No more than may be held.
    fn read_ahead(&self) -> Result<()> {
        for of_tree in self.writes.chunk_by(|a, b| a.tree.id() == b.tree.id()) {
            for some in of_tree.chunks(self.stroke.most_leaves.max(1)) {
                let keys: Vec<&[u8]> = some.iter().map(|write| write.key).collect();
                some[0].tree.get_many(&keys)?;
            }
        }
        Ok(())
    }

    /// Splits the leaf of a change that it does not take beside those from `first` on.
    #[cold]
    fn make_room(&mut self, first: usize, at: usize, retry: &mut Retry<'c, P>) -> Result<()> {
        let Write { tree, key, value } = self.writes[at];
        let value_bytes = value.map_or(0, <[u8]>::len);
        // Splits for single keys never end: for each alone there is room.
        let room = match at.checked_sub(1).filter(|_| at > first) {
            Some(below) => Room::Apart { low: self.writes[below].key, high: key, value_bytes },
            None => Room::Record { key, value_bytes },
        };
        retry.turn_to(tree.root);
        tree.make_room(key, room, Purpose::Take, retry)?;
        retry.after_room()
    }

    fn attempt(&mut self, retry: &mut Retry<'c, P>) -> Result<Tried, Stop> {
        if !self.find(retry)? {
            return Ok(Tried::TooMany);
        }
        if retry.is_latched() {
            return self.make_latched(retry);
        }
        if let Some(full) = self.fit()? {
            return Ok(full);
        }
        self.allocate();
        let stay = self.enter()?;
        let mut pages: Vec<ExclusivePage<'c, P>> = Vec::with_capacity(self.leaves.len());
        for found in &self.leaves {
            match found.page.upgrade() {
                Ok(page) => pages.push(page),
                Err(restart) => {
                    release(pages);
                    return Err(restart.into());
                }
            }
            if leaves_out("second_leaf_latched_after_change") {
                break;
            }
        }
        self.change(pages, &stay)
    }

    /// Finds the leaves. `false`: there are too many.
    fn find(&mut self, retry: &mut Retry<'c, P>) -> Result<bool, Stop> {
        self.leaves.clear();
        self.at = 0;
        while let Some(write) = self.writes.get(self.at) {
            if self.leaves.len() == self.stroke.most_leaves {
                return Ok(false);
            }
            let tree: &'c Tree<P, L> = write.tree;
            let page = tree.leaf_for(write.key)?;
            page.note_use();
            let node = Leaf::<_, L>::new(page.bytes()).as_node();
            let rest = self.writes[self.at + 1..].iter();
            let same = rest
                .take_while(|next| next.tree.id() == tree.id() && node.is_within_upper(next.key))
                .count();
            page.validate()?;
            tree.note_point(&page);
            if self.is_held {
                retry.session.hold(page.id())?;
                // It was there; it is now.
                page.validate()?;
            }
            let end = self.at + 1 + same;
            self.leaves.push(Found { page, writes: self.at..end });
            self.at = end;
        }
        self.at = 0;
        Ok(true)
    }

    /// Shows of each leaf that it takes its changes, as long as its version is the one that was looked at; or says which one does not.
    fn fit(&mut self) -> Result<Option<Tried>, Restart> {
        if leaves_out("fit_not_shown") {
            return Ok(None);
        }
        for found in &self.leaves {
            let writes = &self.writes[found.writes.clone()];
            let leaf = Leaf::<_, L>::new(found.page.bytes());
            if is_shown(&leaf, writes) {
                continue;
            }
            self.scratch.resize(self.pool.page_bytes(), 0);
            found.page.bytes().copy(0, &mut self.scratch);
            found.page.validate()?;
            if let Some(at) = first_without_room::<P, L>(&mut self.scratch, writes) {
                let first = found.writes.start;
                return Ok(Some(Tried::Full { first, at: first + at }));
            }
        }
        Ok(None)
    }

    /// All memory that is needed while leaves are latched.
    fn allocate(&mut self) {
        let longest = self.stroke.log_bytes.min(2 * PIECE_BYTES as u64) as usize;
        self.piece.reserve(longest);
        self.later.reserve(self.leaves.len());
    }

    fn enter(&self) -> Result<P::EpochGuard<'c>> {
        let is_logged = self.writes[0].tree.logged;
        match is_logged {
            true => self.pool.enter_to_change(
                self.stroke.log_bytes,
                || self.version_cells,
                Purpose::Take,
                self.waiting,
            ),
            false => self.pool.enter_to_append(0, Purpose::Take, self.waiting),
        }
    }

    /// Waits for the leaves, in their order, and looks at them anew.
    #[cold]
    fn make_latched(&mut self, retry: &mut Retry<'c, P>) -> Result<Tried, Stop> {
        let mut order: Vec<(PageId, Range<usize>)> =
            self.leaves.iter().map(|found| (found.page.id(), found.writes.clone())).collect();
        if leaves_out("leaves_out_of_order") && thread::id() % 2 == 1 {
            order.reverse();
            self.leaves.reverse();
        }
        self.scratch.resize(self.pool.page_bytes(), 0);
        self.allocate();
        let stay = self.enter()?;
        let patience = retry.patience();
        let mut pages: Vec<ExclusivePage<'c, P>> = Vec::with_capacity(order.len());
        for (id, writes) in order {
            let page = ExclusivePage::wait(self.pool, id, &mut || patience.is_left());
            let looked = page.map_err(Stop::from).and_then(|page| {
                let writes_of = &self.writes[writes.clone()];
                let full = match is_leaf_for(page.bytes(), writes_of) {
                    true => self.full_page(page.bytes(), writes),
                    false => Err(Restart::Conflict.into()),
                };
                pages.push(page);
                full
            });
            match looked {
                Ok(None) => {}
                Ok(Some(full)) => {
                    release(pages);
                    return Ok(full);
                }
                Err(stop) => {
                    release(pages);
                    return Err(stop);
                }
            }
        }
        self.change(pages, &stay)
    }

    /// Room for old versions, if each record has a value about as long as its new one.
    fn expected_cells(&self) -> u32 {
        let cells = |write: &Write<'c, P, L>| {
            cells_of_change(write.key.len(), write.value.map_or(EXPECTED_BYTES, <[u8]>::len))
        };
        let expected = self.writes.iter().map(cells).fold(0, u32::saturating_add);
        expected.min(self.pool.most_version_cells())
    }

    /// Makes the changes of leaves that are all latched and take them, if there is room for what the records were before.
    fn change(
        &mut self,
        pages: Vec<ExclusivePage<'c, P>>,
        stay: &P::EpochGuard<'c>,
    ) -> Result<Tried, Stop> {
        if self.pool.keeps_versions(stay) && self.writes[0].tree.logged {
            let mut cells = 0u32;
            for (found, page) in self.leaves.iter().zip(&pages) {
                let leaf = plain_leaf::<L>(page.bytes());
                for write in &self.writes[found.writes.clone()] {
                    let at = leaf.find(write.key);
                    let old = if at.found { leaf.value_len(at.index) } else { 0 };
                    cells = cells.saturating_add(cells_of_change(write.key.len(), old));
                }
            }
            if cells > self.pool.version_cells(stay) {
                release(pages);
                if cells > self.pool.most_version_cells() {
                    return Ok(Tried::TooMany);
                }
                self.version_cells = cells;
                return Err(Restart::Conflict.into());
            }
        }
        Ok(Tried::Done(self.apply(pages, stay)))
    }

    /// [`Self::fit`] of one latched leaf.
    fn full_page(&mut self, page: &[u8], writes: Range<usize>) -> Result<Option<Tried>, Stop> {
        self.scratch.copy_from_slice(page);
        let first = writes.start;
        let at = first_without_room::<P, L>(&mut self.scratch, &self.writes[writes]);
        Ok(at.map(|at| Tried::Full { first, at: first + at }))
    }

    /// Steps 5 and 6. All leaves are latched, and take their changes.
    fn apply(&mut self, pages: Vec<ExclusivePage<'c, P>>, stay: &P::EpochGuard<'c>) -> Lsn {
        let unwinding = Unwinding { pool: self.pool };
        let lsn = if self.writes[0].tree.logged { self.append(stay) } else { Lsn(0) };
        let mut pages = pages.into_iter();
        for found in &self.leaves {
            let page = match pages.next() {
                Some(page) => page,
                // Not reached: all are latched.
                None => match late(self.pool, found.page.id()) {
                    Some(page) => page,
                    None => continue,
                },
            };
            let changed = Changed { lsn, met: self.met, writes: found.writes.clone() };
            change_leaf(self.writes, page, stay, &changed, &mut self.later);
        }
        std::mem::forget(unwinding);
        lsn
    }

    /// Appends the commit; where it ends.
    fn append(&mut self, stay: &P::EpochGuard<'c>) -> Lsn {
        if !self.pool.has_log() {
            // Counts, once.
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

/// Whether a leaf takes its changes, without a try.
fn is_shown<B: PageBytes, P: PagePool, L: Ladder>(
    leaf: &Leaf<B, L>,
    writes: &[Write<'_, P, L>],
) -> bool {
    let mut puts = writes.iter().filter_map(|write| Some((write.key, write.value?)));
    match (puts.next(), puts.next()) {
        (None, _) => true,
        (Some((key, value)), None) => leaf.has_room(key, value.len()),
        _ => false,
    }
}

/// Makes the changes in a scratch copy; which of them finds no room.
fn first_without_room<P: PagePool, L: Ladder>(
    scratch: &mut [u8],
    writes: &[Write<'_, P, L>],
) -> Option<usize> {
    let mut leaf = LeafMut::<L>::new(scratch);
    writes.iter().position(|write| {
        let at = leaf.as_leaf().find(write.key);
        !change_record(&mut leaf, at, write)
    })
}

/// Makes one change, of the record that was found or not found; `false`: there is no room, and nothing has changed.
fn change_record<P: PagePool, L: Ladder>(
    leaf: &mut LeafMut<'_, L>,
    at: Position,
    write: &Write<'_, P, L>,
) -> bool {
    match write.value {
        Some(value) if at.found => leaf.update(at.index, value).is_ok(),
        Some(value) => leaf.insert(at, write.key, value).is_ok(),
        None => {
            if at.found {
                leaf.remove(at.index);
            }
            true
        }
    }
}

/// Whether a latched page is the leaf for these changes.
fn is_leaf_for<P: PagePool, L: Ladder>(page: &[u8], writes: &[Write<'_, P, L>]) -> bool {
    let (first, last) = (&writes[0], &writes[writes.len() - 1]);
    let node = plain_leaf::<L>(page).as_node();
    header::level(page) == 0
        && header::tree_id(page) == first.tree.id()
        && header::kind(page)
            .is_some_and(|kind| !matches!(kind, header::PageKind::Free | header::PageKind::Inner))
        && node.covers(first.key)
        && node.covers(last.key)
}

/// What a leaf's changes have in common.
struct Changed {
    lsn: Lsn,
    met: bool,
    writes: Range<usize>,
}

/// Makes the changes of one latched leaf, and lets go of it.
fn change_leaf<'c, P: PagePool, L: Ladder>(
    all: &'c [Write<'c, P, L>],
    mut page: ExclusivePage<'c, P>,
    stay: &P::EpochGuard<'c>,
    changed: &Changed,
    later: &mut Vec<(usize, Later)>,
) {
    let writes = &all[changed.writes.clone()];
    let tree = writes[0].tree;
    let is_nothing = |write: &Write<'c, P, L>| {
        write.value.is_none() && !plain_leaf::<L>(page.bytes()).find(write.key).found
    };
    if writes.iter().all(is_nothing) {
        return page.release_unchanged();
    }
    let frame = page.frame();
    let stored_forms = tree.pool.has_stored_forms();
    let mut leaf = LeafMut::<L>::new(page.write(stay.epoch()));
    let keeps = tree.logged && tree.pool.keeps_versions(stay);
    let (mut old, mut removed, mut updated) = (Vec::new(), 0, None);
    for write in writes {
        let at = leaf.as_leaf().find(write.key);
        removed += usize::from(write.value.is_none() && at.found);
        updated = at.found.then_some(at.index).filter(|_| write.value.is_some());
        if stored_forms || keeps {
            old.clear();
            if at.found {
                leaf.as_leaf().append_value(at.index, &mut old);
            }
        }
        assert!(change_record(&mut leaf, at, write), "a commit's changes were shown to fit");
        if stored_forms {
            tree.note_stored_forms(stay, &old, write.value.unwrap_or(&[]));
        }
        // Of what was not there, and was removed, there is nothing to be kept.
        if keeps && (at.found || write.value.is_some()) {
            let was = at.found.then_some(old.as_slice());
            tree.keep_version(stay, write.key, (was, write.value.is_none()), changed.lsn);
        }
    }
    // Of several changes none has a key that another one is to be kept apart from.
    let updated = updated.filter(|_| writes.len() == 1);
    if tree.logged {
        leaf.stamp(changed.lsn);
    }
    let node = leaf.as_leaf();
    let count = node.count();
    if removed > 0 && is_sparse(&node) && (removed > 1 || is_turn(count)) {
        later.push((changed.writes.start, Later::Merge));
    } else if tree.note_write(frame, updated, changed.met) {
        later.push((changed.writes.start, Later::Split));
    }
}

/// Lets go of leaves that were not changed.
fn release<P: PagePool>(pages: Vec<ExclusivePage<'_, P>>) {
    pages.into_iter().for_each(ExclusivePage::release_unchanged);
}

/// Latches a leaf that is not latched yet, for which there is a reason only in the seeded bug.
fn late<P: PagePool>(pool: &P, id: PageId) -> Option<ExclusivePage<'_, P>> {
    assert!(leaves_out("second_leaf_latched_after_change"), "all leaves are latched");
    ExclusivePage::wait(pool, id, &mut || true).ok()
}

/// Between the append and the last change: the log has what memory has not, so that nobody may go on.
struct Unwinding<'p, P: PagePool> {
    pool: &'p P,
}

impl<P: PagePool> Drop for Unwinding<'_, P> {
    fn drop(&mut self) {
        if !leaves_out("unwinding_goes_on") {
            let what = "a panic came between a commit's record and its changes; opening the store again makes them";
            self.pool.poison(&Error::new(ErrorKind::BatchUnfinished, what));
        }
    }
}
