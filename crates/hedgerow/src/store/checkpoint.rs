//! Checkpoints: the step from one durable state of the whole store to the next.
//!
//! The order, each step of which the next relies on:
//!
//! 1. keep keyspaces from being created, end the epoch, keep writers out until nobody is left in it;
//! 2. note what belongs to the checkpoint besides pages, and that all dirty pages are owed to it; let writers in;
//! 3. write what is owed, pages and copies (`buffer/hand_over.rs`), beside writers: every image of an epoch <= E is
//!    in a slot now; take the delta;
//! 4. write the parts of the page map that changed, then those of the zone table, to free slots; the extents that
//!    records refer to by then were written before the records were put;
//! 5. wait until the log is durable up to where it stood in step 2; sync;
//! 6. superblock, first block; sync; second block;
//! 7. free the log before step 2, or before the oldest batch that was under way then, and the slots that only
//!    older checkpoints needed; take snapshots over (`pin.rs`); give space back (`reclaim.rs`).
//!
//! Before step 6 a failure costs nothing but the parts written: the delta goes back, and the next
//! checkpoint takes it. A failed sync, or a failure in step 6, poisons: nobody knows what is on disk.

use super::superblock::{
    EXTENTS, LAST_CHECKPOINT, LONG_KEYS, RENAMES_REPLAYED, SUPERBLOCK_BYTES, Superblock,
    positions_of,
};
use super::{Newest, Shared};
use crate::error::{Error, ErrorKind, Result};
use crate::events::{self, Started};
use crate::space::delta::TakenDelta;
use crate::space::map::{self, Change, MapRoot, PartIo};
use crate::space::part;
use crate::space::part_file::PartFile;
use crate::space::slot_store::{FREED_AT_ONCE, SlotStore};
use crate::storage::AlignedBuffer;
use crate::types::{Epoch, Lsn, PART_BYTES, PageId, TreeId};
use hedgerow_sync::primitive::atomic::Ordering::Acquire;

/// What belongs to a checkpoint besides pages, taken while writers were kept out.
struct Cut {
    epoch: Epoch,
    next_page: Option<PageId>,
    free_pages: u64,
    next_tree: TreeId,
    /// Where replay has to start, because a batch began there that is not finished, and the end of the log: what
    /// lies before it is in the checkpoint, what lies behind it is not.
    log: Option<(Lsn, Lsn)>,
    /// End of the last rename that a replay has done.
    renames_end: Lsn,
    /// The moment of the clock that orders changes without a log.
    moment: Lsn,
    /// Batches that have begun.
    batches: u64,
}

/// What a checkpoint had to do; nothing if it was not taken.
#[derive(Clone, Copy, Default)]
pub(super) struct Taken {
    /// Pages that have a new image, in bytes.
    pub(super) written_bytes: u64,
    /// The same, and pages that were freed.
    pub(super) changed_bytes: u64,
}

impl Shared {
    /// Takes a checkpoint, unless nothing has changed since the last one, and gives space back.
    /// `asked`: by the user, and not because of the changes that have come together. True if there was nothing to do.
    pub(super) fn checkpoint(&self, asked: bool) -> Result<bool> {
        let (is_idle, given_back) = self.checkpoint_and_reclaim(asked)?;
        given_back.map(|()| is_idle)
    }

    /// [`Self::checkpoint`]; apart from that, how giving space back ended: what was changed is durable all the same. Until the recovery is
    /// over nothing is given back: it may need as much as there was, and somebody else might take it.
    pub(super) fn checkpoint_and_reclaim(&self, asked: bool) -> Result<(bool, Result<()>)> {
        if self.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the database is open for reading only"));
        }
        let Some(slots) = &self.slots else { return Ok((false, Ok(()))) };
        let mut newest = self.checkpointing.lock();
        // Whoever closes says so before the last checkpoint, and unlocks the file after it: from then
        // on somebody else may be writing to it.
        self.pool.check_open()?;
        let taken = self.take(slots, &mut newest, false);
        slots.checkpoint_ended(taken.as_ref().map(|_| ()));
        let taken = taken?;
        let is_idle = asked && taken.changed_bytes == 0;
        if !self.is_recovered.load(Acquire) {
            return Ok((is_idle, Ok(())));
        }
        let trimmed = match self.pool.log().map_or(Ok(()), |log| log.trim(is_idle)) {
            // Some file systems need room to give some back.
            Err(error) if error.kind() == ErrorKind::DiskFull => Ok(()),
            other => other,
        };
        let reclaimed = self.reclaim(slots, &mut newest, taken, asked);
        // Nobody has asked for another one while this one ran.
        self.pool.request_checkpoint_if_due();
        Ok((is_idle, reclaimed.and(trimmed)))
    }

    /// A checkpoint that has everything, so that no log is needed any more: the last before the store is
    /// closed, and the one after a replay. Nobody else changes anything.
    pub(super) fn settle(&self) -> Result<()> {
        let Some(slots) = &self.slots else { return Ok(()) };
        let mut newest = self.checkpointing.lock();
        let taken = self.take(slots, &mut newest, true);
        slots.checkpoint_ended(taken.as_ref().map(|_| ()));
        taken?;
        if !self.is_recovered.load(Acquire) {
            return slots.sync_all();
        }
        match self.truncate(slots, 0, false).and_then(|()| self.punch(slots, 0)) {
            // Some file systems need room to give some back; who opens the store next may have it.
            Err(error) if error.kind() == ErrorKind::DiskFull => {}
            other => other?,
        }
        slots.sync_all()
    }

    /// Whether there is anything that the next checkpoint would change. While the file shrinks there is:
    /// the tail may hold nothing but parts of map and table, which only a checkpoint moves.
    fn has_changes(&self, slots: &SlotStore, newest: &Newest) -> bool {
        let state = slots.state();
        let in_space = state.zones.ceiling_bytes().is_some()
            || !state.deltas.is_empty_to(self.pool.epochs().current());
        drop(state);
        let new_log = self
            .pool
            .log()
            .is_some_and(|log| log.incarnation() != newest.superblock.log_incarnation);
        in_space
            || new_log
            || self.pool.log().is_some_and(|log| log.wants_cut())
            || self.batches.want_cut(newest.batches, &newest.superblock)
            || self.pool.dirty_pages() > 0
            || self.catalogue.next_tree() != newest.superblock.next_tree
    }

    /// Steps 1 to 7 but for giving space back.
    pub(super) fn take(
        &self,
        slots: &SlotStore,
        newest: &mut Newest,
        settled: bool,
    ) -> Result<Taken> {
        let (started, before) = (Started::now(), newest.superblock.checkpoint);
        let taken = self.take_silently(slots, newest, settled);
        let number = newest.superblock.checkpoint;
        if taken.is_ok() && !settled {
            self.tend_snapshots(newest);
        }
        match &taken {
            Ok(taken) if number > before => {
                events::checkpoint_taken(number, taken.written_bytes, started);
            }
            Ok(_) => {}
            Err(error) => events::checkpoint_failed(error),
        }
        taken
    }

    fn take_silently(
        &self,
        slots: &SlotStore,
        newest: &mut Newest,
        settled: bool,
    ) -> Result<Taken> {
        self.pool.check_poison()?;
        // A log that is to be replayed yet stays as needed as it was.
        let may_need_log = self.pool.log().map_or(newest.superblock.needs_log, |_| true);
        let needs_log = may_need_log && (!settled || self.batches.need_log());
        if !self.has_changes(slots, newest) && newest.superblock.needs_log == needs_log {
            return Ok(Taken::default());
        }
        if self.pool.epochs().current() > LAST_CHECKPOINT {
            let what = "the store has used all checkpoint numbers: dump it, and load the dump into a new store";
            let error = Error::new(ErrorKind::Poisoned, what);
            self.pool.set_poisoned(&error);
            return Err(error);
        }
        // Before anything has happened: whoever has no memory for it may try again.
        let block = superblock_memory()?;
        let _running = slots.checkpoints().begin();
        let cut = self.cut(slots);
        if let Err(error) = self.pool.settle_owed(slots) {
            slots.abandon_checkpoint(None);
            return Err(error);
        }
        let delta = slots.take_delta(cut.epoch);
        let written = self.write_parts(slots, &cut, &delta).and_then(|map| {
            // No address below the end that the superblock names is given out again, so it must be there.
            let log = self.pool.log().zip(cut.log);
            let waited = log.map_or(Ok(()), |(log, (_, end))| log.wait_durable(end));
            // Why it is not, rather than that nobody knows whether it is.
            waited.map_err(|error| self.pool.check_poison().err().unwrap_or(error))?;
            self.pool.check_poison()?;
            // What its leaves refer to was staged before its cut.
            slots.staging().write_all().inspect_err(|error| {
                if error.kind() != ErrorKind::DiskFull {
                    self.pool.set_poisoned(error);
                }
            })?;
            Ok(map)
        });
        let map = match written {
            Ok(map) => map,
            Err(error) => {
                slots.abandon_checkpoint(Some(delta));
                return Err(error);
            }
        };
        let superblock = self.next_superblock(slots, &newest.superblock, &cut, map, needs_log);
        let publish = || {
            let published = publish(slots, newest, superblock, block);
            published.inspect_err(|error| self.pool.set_poisoned(error))
        };
        match self.pool.log().zip(cut.log) {
            Some((log, (start, end))) => {
                log.publish_checkpoint(cut.epoch, start, end, publish)?;
            }
            None => publish()?,
        }
        newest.batches = cut.batches;
        // While nobody else is kept waiting.
        let page_bytes = slots.page_bytes() as u64;
        let images = delta.changes.values().filter(|slot| !slot.is_none()).count();
        let extents = |sign: i32| -> u64 {
            let of_sign = delta.extents.values().filter(|change| change.1.signum() == sign);
            of_sign.map(|(extent, _)| extent.len_bytes).sum()
        };
        let taken = Taken {
            written_bytes: images as u64 * page_bytes + extents(1),
            changed_bytes: delta.changes.len() as u64 * page_bytes + extents(1) + extents(-1),
        };
        let mut state = slots.state();
        state.map = map;
        state.checkpoint = cut.epoch;
        let freed = state.zones.checkpoint_durable();
        state.deltas.done(&delta);
        drop(state);
        drop(delta);
        while slots.state().zones.free_ripe(FREED_AT_ONCE) {}
        slots.free_extents();
        if let Err(error) = freed {
            self.pool.set_poisoned(&error);
            return Err(error);
        }
        Ok(taken)
    }

    /// The superblock that names what was written. `last` is the one that it follows.
    fn next_superblock(
        &self,
        slots: &SlotStore,
        last: &Superblock,
        cut: &Cut,
        map: MapRoot,
        needs_log: bool,
    ) -> Superblock {
        let log = self.pool.log();
        let (replay_start, log_end, renames_end) = match cut.log {
            Some((start, end)) => (start, end, Lsn(0)),
            // Of a log that is being replayed: what is behind its cut is in no checkpoint that says so, but for its renames.
            None if needs_log => {
                let renames_end = last.renames_end.max(cut.renames_end);
                // At the end of the replay the log's end has passed them.
                let is_beyond = renames_end > last.log_end;
                (last.replay_start, last.log_end, if is_beyond { renames_end } else { Lsn(0) })
            }
            // What is stamped by a clock must not look newer to a later session than what that does.
            None => {
                let moment = last.log_end.max(cut.moment);
                (moment, moment, Lsn(0))
            }
        };
        let renames_replayed = if renames_end.0 > 0 { RENAMES_REPLAYED } else { 0 };
        Superblock {
            incompat: last.incompat & !RENAMES_REPLAYED
                | renames_replayed
                | if slots.has_stored_forms() { EXTENTS } else { 0 }
                | if slots.has_long_keys() { LONG_KEYS } else { 0 },
            checkpoint: cut.epoch,
            needs_log,
            map,
            table: slots.state().zones.table_root(&last.table),
            next_page: cut.next_page,
            free_pages: cut.free_pages,
            next_tree: cut.next_tree,
            replay_start,
            log_end,
            renames_end,
            log_incarnation: log.map_or(last.log_incarnation, |log| log.incarnation()),
            ..*last
        }
    }

    /// Steps 1 and 2: ends the epoch, and notes what belongs to it. Writers wait as long as those inside need to
    /// leave.
    fn cut(&self, slots: &SlotStore) -> Cut {
        let _frozen = self.catalogue.freeze();
        let stopped = self.pool.epochs().stop();
        let epoch = stopped.ended();
        self.pool.owe(slots, epoch);
        let ids = self.pool.ids().lock();
        let (next_page, free_pages) = (ids.next_id(), ids.free_count());
        drop(ids);
        let map_pages = next_page.map_or(u64::from(u32::MAX), |id| u64::from(id.0));
        slots.keep_for(map_pages, self.pool.images_to_write());
        let next_tree = self.catalogue.next_tree();
        // Nobody is inside of an epoch, so nobody is between a change and its record.
        let log = self.pool.log().map(|log| self.batches.cut(log));
        let batches = self.batches.begun();
        let moment = self.pool.clock_moment();
        let renames_end = self.catalogue.renames_end();
        Cut { epoch, next_page, free_pages, next_tree, log, renames_end, moment, batches }
    }

    /// Step 4: writes the parts of map and zone table that changed.
    fn write_parts(&self, slots: &SlotStore, cut: &Cut, delta: &TakenDelta) -> Result<MapRoot> {
        let mut memory = self.pool.flush_buffer();
        let mut parts = PartFile::batched(slots, &mut memory)?;
        let written = write_parts_to(&mut parts, slots, cut, delta);
        if parts.has_failed_to_write
            && let Err(error) = &written
        {
            self.pool.set_poisoned(error);
        }
        written
    }
}

fn write_parts_to(
    parts: &mut PartFile<'_>,
    slots: &SlotStore,
    cut: &Cut,
    delta: &TakenDelta,
) -> Result<MapRoot> {
    let (view, ceiling) = {
        let mut state = slots.state();
        state.zones.begin_checkpoint(cut.epoch);
        (state.map_view(), state.zones.ceiling_bytes())
    };
    let far = match ceiling {
        Some(offset_bytes) => view.parts_beyond(offset_bytes, MOVED_PARTS, parts)?,
        None => Vec::new(),
    };
    let changes = delta.changes.iter().map(|(&id, &slot)| Change::Set(id, slot));
    let changes = changes.chain(far.into_iter().map(Change::Move));
    let root = map::apply(&view, cut.epoch, changes, parts)?;
    refer_extents(slots, delta)?;
    let to_move = slots.state().zones.groups_to_move();
    for group in to_move {
        slots.load_group(group)?;
    }
    let count = slots.state().zones.plan_table();
    let offsets = slots.allocate(count, PART_BYTES as u64)?;
    slots.state().zones.place_table(&offsets);
    let mut bytes = part::new_bytes();
    loop {
        let offset = slots.state().zones.next_table_part(&mut bytes);
        match offset {
            Some(offset) => parts.write(offset, &bytes)?,
            None => return parts.flush().map(|()| root),
        }
    }
}

/// What the checkpoint's records refer to beside pages. First what they refer to no more.
fn refer_extents(slots: &SlotStore, delta: &TakenDelta) -> Result<()> {
    for (extent, _) in delta.extents.values() {
        slots.load_extent(extent)?;
    }
    for (extent, by) in delta.extents.values() {
        if by.abs() > 1 {
            let what = "two records refer to one large value";
            let offset = slots.state().zones.geometry().unit_offset(extent.runs[0].unit);
            return Err(Error::corrupted_at(offset, what));
        }
    }
    for (extent, _) in delta.extents.values().filter(|change| change.1 < 0) {
        slots.state().zones.unrefer_extent(extent)?;
    }
    for (extent, _) in delta.extents.values().filter(|change| change.1 > 0) {
        slots.state().zones.refer_extent(extent)?;
    }
    Ok(())
}

/// Map parts that one checkpoint moves towards the file's start at most.
const MOVED_PARTS: usize = 256;

/// What a superblock is written from.
fn superblock_memory() -> Result<AlignedBuffer> {
    AlignedBuffer::zeroed(SUPERBLOCK_BYTES)
}

/// Steps 5 and 6. `block` is where the superblock is written from.
fn publish(
    slots: &SlotStore,
    newest: &mut Newest,
    superblock: Superblock,
    mut block: AlignedBuffer,
) -> Result<()> {
    let file = slots.file();
    slots.sync_data()?;
    let pair = 1 - newest.pair;
    block.copy_from_slice(&*superblock.encode(pair));
    let [first, second] = positions_of(pair);
    file.write_at(first, &block)?;
    slots.sync_data()?;
    file.write_at(second, &block)?;
    newest.superblock = superblock;
    newest.pair = pair;
    Ok(())
}
