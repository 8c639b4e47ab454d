//! Pages of a bulk load that a crash cut short.
//!
//! A bulk load writes pages that nothing refers to until it ends. Its keyspace's record says *loading*
//! meanwhile, since before the first such page, so that a checkpoint which holds any of them holds the
//! record as well. Opening a store with such a record walks the keyspace's tree, looks at the header of every other page
//! in the file, and frees those that belong to the tree and are not reached, whatever others have put there meanwhile.
//! A load that fails and cannot free a page, because it cannot be read, say, leaves the record as well, for the next opening; meanwhile
//! the keyspace is used as any other, and large values are not moved.
//! Of a keyspace that was dropped while a load ran a record of its own is left: of its tree all pages are freed.
//! The large values that they refer to go with them. Where the tree is damaged nothing is freed. Pages that are damaged are passed
//! over. In both cases the record stays, also beyond a later load.
//! This costs a read of the whole file, after a crash in a bulk load only; with pages that cannot be read at each opening, until a
//! repair, or a dump and a load, makes a new store. Memory: a bit for each page id
//! up to the last one of the tree.

use super::PoolTree;
use super::Shared;
use super::catalogue::Load;
use super::catalogue::unless_lost;
use crate::error::Result;
use crate::page::{Access, EpochStay, ExclusivePage, Journal, Pages, PoolSession, Restart, header};
use crate::space::slot_store::SlotStore;
use crate::storage::AlignedBuffer;
use crate::types::{PageId, Slot};
use crate::wait::Waiting;
use std::ops::ControlFlow;

/// Pages read with one submission.
const BATCH: usize = 64;

/// Pages that a walk through a tree has come to.
#[derive(Default)]
struct Reached(Vec<u64>);

impl Reached {
    fn insert(&mut self, page: PageId) {
        let at = page.0 as usize / 64;
        if at >= self.0.len() {
            self.0.resize(at + 1, 0);
        }
        self.0[at] |= 1 << (page.0 % 64);
    }

    fn contains(&self, page: PageId) -> bool {
        self.0.get(page.0 as usize / 64).is_some_and(|word| word >> (page.0 % 64) & 1 == 1)
    }
}

impl Shared {
    /// Frees what bulk loads left behind, and lets their keyspaces be used again.
    pub(super) fn finish_loads(&self, slots: &SlotStore) -> Result<()> {
        for Load { name, tree } in self.catalogue.loading()? {
            let Some(name) = name else {
                unless_lost(self.finish_leftover(slots, &tree))?;
                continue;
            };
            let mut reached = Reached::default();
            let mut is_whole = true;
            let walked = tree.verify_with(&mut |page, defects| {
                reached.insert(page);
                is_whole &= defects.is_empty();
                ControlFlow::Continue(())
            });
            match walked {
                // What hangs below a damaged page is the tree's all the same: verification says so.
                Err(error) if error.is_loss() => continue,
                other => other?,
            }
            if is_whole {
                let swept = self.sweep(slots, &tree, &reached);
                unless_lost(swept.and_then(|()| self.catalogue.end_load(&name, &tree)))?;
            }
        }
        Ok(())
    }

    /// Frees what is left of a load whose keyspace was dropped while it ran.
    fn finish_leftover(&self, slots: &SlotStore, tree: &PoolTree) -> Result<()> {
        match self.catalogue.is_dropping(tree.id())? {
            // The drop could not be finished. The opening that finishes it has to find the note.
            Some(true) => return Ok(()),
            // A drop that failed half-way has left the note of a tree that is there.
            Some(false) => {}
            None => self.sweep(slots, tree, &Reached::default())?,
        }
        self.catalogue.end_leftover(tree.id())
    }

    /// Frees every page of the tree that is not reached from its root.
    ///
    /// Errors: `Corrupted` and `Io` if pages cannot be read, of which nobody knows whether they are the tree's; the others are freed.
    fn sweep(&self, slots: &SlotStore, tree: &PoolTree, reached: &Reached) -> Result<()> {
        let page_bytes = slots.page_bytes();
        let mut buffer = AlignedBuffer::zeroed(BATCH * page_bytes)?;
        let mut batch: Vec<(PageId, Slot)> = Vec::with_capacity(BATCH);
        let end = self.pool.ids().lock().next_id();
        let mut damage = Ok(());
        let mut next = Some(PageId::CATALOGUE_ROOT);
        while let Some(id) = next.filter(|id| end.is_none_or(|end| *id < end)) {
            if !reached.contains(id)
                && let Some(slot) = self.pool.slot_of(id)?
            {
                batch.push((id, slot));
            }
            next = id.next();
            if batch.len() == BATCH {
                damage = damage.and(self.sweep_batch(slots, tree, &mut batch, &mut buffer)?);
            }
        }
        damage.and(self.sweep_batch(slots, tree, &mut batch, &mut buffer)?)
    }

    /// The inner result says whether a page cannot be read.
    fn sweep_batch(
        &self,
        slots: &SlotStore,
        tree: &PoolTree,
        batch: &mut Vec<(PageId, Slot)>,
        buffer: &mut AlignedBuffer,
    ) -> Result<Result<()>> {
        let page_bytes = slots.page_bytes();
        let read = slots.read_pages(batch, buffer);
        let mut damage = Ok(());
        for (((id, _), image), read) in
            batch.drain(..).zip(buffer.chunks_exact(page_bytes)).zip(read)
        {
            match read {
                Err(error) if error.is_loss() => damage = Err(error),
                Err(error) => return Err(error),
                Ok(()) if header::tree_id(image) == tree.id() => self.free_swept(id, tree)?,
                Ok(()) => {}
            }
        }
        Ok(damage)
    }

    fn free_swept(&self, id: PageId, tree: &PoolTree) -> Result<()> {
        loop {
            let mut session = self.pool.session();
            session.fault(id, Access::Scan)?;
            let stay = self.pool.enter_to_free(&Waiting::Forever)?;
            // Nobody else uses a store that is being opened; the eviction thread may hold the page.
            match ExclusivePage::wait(&*self.pool, id, &mut || true) {
                Ok(page) if header::tree_id(page.bytes()) == tree.id() => {
                    tree.note_leftover(stay.epoch(), page.bytes());
                    self.pool.free(page, stay.epoch());
                    return Ok(());
                }
                Ok(page) => {
                    page.release_unchanged();
                    return Ok(());
                }
                Err(Restart::Owed) => {
                    drop(stay);
                    self.pool.wait_to_change(&Waiting::Forever)?;
                }
                Err(_) => {}
            }
        }
    }
}
