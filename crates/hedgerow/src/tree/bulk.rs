//! Bulk load: sorted records into an empty tree, each page written once.
//!
//! Leaves are built from left to right and filled as asked, each in the layout that the tree's policy wants
//! for its keys (`node/dispatch/bulk.rs`); each level above gets the separators as they come. Nothing is
//! reachable until the last page is written: then the root, which is still an empty leaf, becomes the top
//! node in one step. If that does not come about, by an error or because
//! the loader is dropped, the pages are freed; whoever keeps the mark of the load is told of one that could not be.
//!
//! A value in a stored form is the record's from the moment on when its leaf is in a page, as for any other change; what is
//! staged when a load fails is given back.
//!
//! Invariants: keys come strictly ascending; a page is latched only while its content is copied in,
//! and reserved before that with nothing held. A loader is used by one thread; the tree may be used by
//! others meanwhile, and stays empty for them until the end.

use super::create::no_page;
use super::descend::plain;
use super::large::for_each_stored_form;
use super::retry::{Patience, Retry, Stop, dropped};
use super::{MAX_LEVELS, Tree};
use crate::error::{Error, ErrorKind, Result};
use crate::large::is_stored_form;
use crate::node::{self, Builder, LeafBuilder};
use crate::page::{Access, EpochStay, ExclusivePage, PagePool, PoolSession, Restart, header};
use crate::types::{PageId, Purpose};
use crate::wait::Waiting;
use crate::wal::Record;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::{AtomicBool, Ordering::Release};

/// A bulk load under way; see the head of this file.
pub struct BulkLoad<P: PagePool> {
    tree: Tree<P>,
    fill_percent: u8,
    leaves: LeafBuilder,
    /// The levels above, from the lowest on.
    inner: Vec<Builder>,
    /// The page that is being written.
    page: Box<[u8]>,
    /// All that was written so far, to be freed if the load fails: the first and the last page of each run of ids, for a list of all
    /// pages would be outside of the memory limit.
    pub(super) written: Vec<(PageId, PageId)>,
    records: u64,
    failed: bool,
    /// Its records are the tree's.
    is_done: bool,
    /// Set if a page is left behind that nothing refers to.
    leaves_pages: Option<Arc<AtomicBool>>,
}

impl<P: PagePool> Tree<P> {
    /// Begins a bulk load into this tree, which must be empty. Leaves and inner nodes are filled to
    /// `fill_percent` (10 to 100) of a page: 100 for data that stays as it is, 70 to 90 if insertions
    /// are to come. Fully dense leaves have a slot for each number between their records in any case, and
    /// are always filled.
    ///
    /// Errors: `InvalidArgument` for another fill; `KeyspaceNotEmpty` if the tree has records; those of
    /// reading the root.
    pub fn bulk_load(&self, fill_percent: u8) -> Result<BulkLoad<P>> {
        if !(10..=100).contains(&fill_percent) {
            let message = format!("a fill of {fill_percent} percent; it must be 10 to 100");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        self.install(None)?;
        let page_bytes = self.pool.page_bytes();
        Ok(BulkLoad {
            tree: self.clone(),
            fill_percent,
            leaves: LeafBuilder::new(page_bytes, fill_percent, self.policy),
            inner: Vec::new(),
            page: vec![0; page_bytes].into_boxed_slice(),
            written: Vec::new(),
            records: 0,
            failed: false,
            is_done: false,
            leaves_pages: None,
        })
    }

    /// Makes the root, an empty leaf, the node that `page` is; `None` only looks whether it is empty.
    fn install(&self, page: Option<&[u8]>) -> Result<()> {
        let waiting = Waiting::Forever;
        let mut retry = Retry::new(&*self.pool, self.root, Access::Point, &waiting);
        loop {
            let patience = retry.patience();
            match self.try_install(page, patience) {
                Ok(()) => return Ok(()),
                Err(stop) => retry.after(stop)?,
            }
        }
    }

    fn try_install(&self, page: Option<&[u8]>, patience: &Patience<'_>) -> Result<(), Stop> {
        let (root, level) = self.open_root()?;
        let empty = level == 0 && node::Node::new(root.bytes()).count() == 0;
        root.validate()?;
        if !empty {
            return Err(not_empty().into());
        }
        let Some(page) = page else { return Ok(()) };
        let log_bytes = if self.logged { Record::Load { tree: self.id }.len_bytes() } else { 0 };
        let waiting = &Waiting::Forever;
        let stay = self.pool.enter_to_change(log_bytes as u64, || 0, Purpose::Take, waiting)?;
        let mut root = self.lock_leaf(&[], patience)?;
        if root.id() != self.root || plain(root.bytes()).count() != 0 {
            root.release_unchanged();
            return Err(not_empty().into());
        }
        if self.logged {
            // Before the first of the records can be seen.
            self.pool.note_load(&stay, self.id);
        }
        node::copy_node(root.write(stay.epoch()), page);
        self.note_page(stay.epoch(), root.bytes(), true);
        Ok(())
    }
}

#[cold]
fn not_empty() -> Error {
    Error::new(
        ErrorKind::KeyspaceNotEmpty,
        "a bulk load needs an empty keyspace, and this one has records",
    )
}

impl<P: PagePool> BulkLoad<P> {
    /// Sets the flag if the load comes to nothing and a page of it cannot be freed.
    #[must_use]
    pub fn telling(mut self, leaves_pages: &Arc<AtomicBool>) -> BulkLoad<P> {
        self.leaves_pages = Some(leaves_pages.clone());
        self
    }

    /// Adds a record; its key must be above the last one's.
    ///
    /// Errors: `NotSorted`; `KeyTooLong`; `RecordTooLarge`; those of getting a page. After `NotSorted`
    /// and the two limits the load may go on with another record; after any other error it has failed
    /// for good.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_usable()?;
        self.tree.check_record(key, value)?;
        if self.leaves.last_key().is_some_and(|last| key <= last) {
            let message = format!(
                "the key of record {} is not greater than the one before it",
                self.records + 1
            );
            return Err(Error::new(ErrorKind::NotSorted, message));
        }
        while !self.leaves.push(key, value) {
            self.write_leaf(key)?;
        }
        self.records += 1;
        Ok(())
    }

    /// Writes what is left and makes the records visible, all at once. Gives their number.
    ///
    /// Errors: those of getting a page; `KeyspaceNotEmpty` if the tree got records meanwhile. Then the
    /// tree is as it was, and the pages are free again.
    pub fn finish(mut self) -> Result<u64> {
        self.check_usable()?;
        while let Some(separator) = self.leaves.write_last(&mut self.page) {
            let id = self.place()?;
            self.add_child(0, &separator, id)?;
        }
        for level in 0.. {
            if level == self.inner.len() {
                break;
            }
            let id = self.place()?;
            self.add_child(level, &[], id)?;
            while let Some(separator) = self.inner[level].write_last(&mut self.page) {
                let id = self.place()?;
                self.add_child(level + 1, &separator, id)?;
            }
        }
        if self.records > 0 {
            self.tree.install(Some(&self.page)).inspect_err(|_| self.discard_page())?;
        }
        self.written.clear();
        self.is_done = true;
        Ok(self.records)
    }

    fn check_usable(&self) -> Result<()> {
        if self.failed {
            return Err(Error::new(ErrorKind::Closed, "the bulk load has failed before"));
        }
        Ok(())
    }

    /// Writes a leaf of what is staged; `next` is the first key behind it.
    #[cold]
    #[inline(never)]
    fn write_leaf(&mut self, next: &[u8]) -> Result<()> {
        let upper = self.leaves.write(&mut self.page, next);
        let id = self.place()?;
        self.add_child(0, &upper, id)
    }

    /// Gives a level above the leaves, of which 0 is the lowest, its next child.
    fn add_child(&mut self, level: usize, upper: &[u8], child: PageId) -> Result<()> {
        if level == self.inner.len() {
            if level + 1 >= usize::from(MAX_LEVELS) {
                self.failed = true;
                let message = "the fill is so low that the tree would become too high";
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            let page_bytes = self.tree.pool.page_bytes();
            self.inner.push(Builder::new(page_bytes, level as u8 + 1, self.fill_percent));
        }
        while !self.inner[level].push_child(upper, child) {
            let upper = self.inner[level].write(&mut self.page, upper);
            let id = self.place()?;
            self.add_child(level + 1, &upper, id)?;
        }
        Ok(())
    }

    /// Puts the written node into a fresh page.
    fn place(&mut self) -> Result<PageId> {
        // From here on an error leaves a node out: the load is good for nothing any more.
        self.failed = true;
        let id = self.try_place().inspect_err(|_| self.discard_page())?;
        match self.written.last_mut() {
            Some((_, last)) if last.next() == Some(id) => *last = id,
            _ => self.written.push((id, id)),
        }
        self.failed = false;
        Ok(id)
    }

    fn try_place(&self) -> Result<PageId> {
        let pool = &*self.tree.pool;
        let mut session = pool.session();
        session.reserve(1)?;
        let stay = pool.enter()?;
        let mut page = session.take(self.tree.id, stay.epoch()).ok_or_else(no_page)?;
        if page.id() == self.tree.root {
            // The root's id is free, so the tree was dropped. A page of this tree must not have it: it would be taken for the
            // root.
            pool.free(page, stay.epoch());
            return Err(dropped());
        }
        node::copy_node(page.write(stay.epoch()), &self.page);
        self.tree.note_page(stay.epoch(), page.bytes(), true);
        Ok(page.id())
    }

    /// The written node comes into no page.
    fn discard_page(&self) {
        let pool = &*self.tree.pool;
        if pool.has_stored_forms() && header::level(&self.page) == 0 {
            for_each_stored_form(&self.page, &mut |value| pool.discard_stored_form(value));
        }
    }

    fn free(&self, id: PageId) -> Result<(), Stop> {
        let pool = &*self.tree.pool;
        let mut session = pool.session();
        session.fault(id, Access::Scan)?;
        let stay = pool.enter_to_free(&Waiting::Forever)?;
        let patience = Patience::new(&Waiting::Forever);
        let page = ExclusivePage::wait(pool, id, &mut || patience.is_left())?;
        self.tree.note_page(stay.epoch(), page.bytes(), false);
        pool.free(page, stay.epoch());
        Ok(())
    }
}

impl<P: PagePool> Drop for BulkLoad<P> {
    fn drop(&mut self) {
        if !self.is_done && self.tree.pool.has_stored_forms() {
            let staged = self.leaves.values().filter(|value| is_stored_form(value));
            staged.for_each(|value| self.tree.pool.discard_stored_form(value));
        }
        let runs = std::mem::take(&mut self.written).into_iter();
        let behind = |last| move |id: &PageId| id.next().filter(|next| *next <= last);
        for id in runs.flat_map(|(first, last)| std::iter::successors(Some(first), behind(last))) {
            let (mut tries, mut is_free) = (0, false);
            while tries < 3 && !is_free {
                match self.free(id) {
                    Ok(()) => is_free = true,
                    Err(Stop::Restart(Restart::Owed)) => {
                        tries +=
                            u32::from(self.tree.pool.wait_to_change(&Waiting::Forever).is_err());
                    }
                    Err(_) => tries += 1,
                }
            }
            // A page that cannot be had is left behind, allocated and unreachable: whatever made the load fail has been reported.
            if let Some(leaves_pages) = self.leaves_pages.as_ref().filter(|_| !is_free) {
                leaves_pages.store(true, Release);
            }
        }
    }
}

impl<P: PagePool> std::fmt::Debug for BulkLoad<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BulkLoad")
            .field("tree", &self.tree)
            .field("records", &self.records)
            .finish_non_exhaustive()
    }
}
