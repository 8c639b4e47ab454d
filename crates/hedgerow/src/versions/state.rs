//! All that is known of old versions and of snapshots, and how what nobody needs is dropped.
//!
//! **Collection.** First the log's end `h` is read, then all slots. If one is pending, its moment is not known, and nothing is dropped
//! now. A snapshot that begins later reads the log's end later, so its moment is `h` or above, and it needs no version that was ended by
//! then. Of these versions only those stay that one of the snapshots found needs. One collects at a time; the table is locked for a few
//! buckets at a time. The recent ones ([`recent`](super::recent)) are looked at first, from the oldest on.
//!
//! **Horizon.** An LSN that no snapshot's moment is above. It is raised ahead of the log, so few snapshots have to raise it. A
//! key that was last changed above it, and has a version of that change, needs no further one.
//!
//! **Memory.** The table borrows a block when a writer finds no room. It collects first when it has doubled since it last did. Blocks go
//! back when the switch is off, but for what a single change needs.
//!
//! Locks: `collecting`, then `table`; `pins` alone, or before them. No latch is waited for with one of them held, and whoever holds a
//! latch takes `table` alone. `Send + Sync`.

use crate::error::{Error, ErrorKind, Result};
use crate::types::{Lsn, TreeId};
use crate::versions::door::Door;
use crate::versions::frozen::{Parts, Record};
use crate::versions::memory::{LEAST_BLOCKS, Memory, Surroundings};
use crate::versions::needs::Needs;
use crate::versions::room::Room;
use crate::versions::slots::{Slots, State};
use crate::versions::table::{Table, cells_of_change};
use crate::versions::trees::Since;
use hedgerow_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering::*, fence};
use hedgerow_sync::primitive::figure::Figure;
use hedgerow_sync::primitive::time::Moment;
use hedgerow_sync::primitive::{Arc, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::fmt;

/// How far the horizon is ahead of a new snapshot at least, in bytes of log.
pub(super) const LEAST_AHEAD: u64 = 32 << 10;
/// How far it is raised.
pub(super) const AHEAD: u64 = 64 << 10;
/// Of all memory, what has to be filled anew before another collection or checkpoint is tried that may be of no use: so what it cannot
/// help is no reason for one after the other.
pub(super) const GROWTH_PART: u32 = 16;
/// Of all memory, what is in use before a collection is worth the look at all buckets.
const LEAST_PART: u32 = 128;
/// Buckets that are swept with the table locked.
const SWEPT_AT_ONCE: u32 = 64;
/// Recent versions that are dropped, and indexed, with the table locked.
const TRIMMED_AT_ONCE: u32 = 256;
const INDEXED_AT_ONCE: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 64 };
/// Of all memory, what recent versions take before they are dropped or indexed, and so many cells at most: they fit into a cache.
const RECENT_PART: u32 = 8;
const MOST_RECENT: u32 = 32 << 10;
/// Blocks that are given back with the table locked.
const GIVEN_AT_ONCE: usize = 64;
/// No transaction runs alone.
pub(super) const NOBODY: u64 = u64::MAX;

/// What a store knows when it is opened.
#[derive(Clone, Copy, Debug)]
pub struct VersionsOptions {
    /// The longest key, in bytes.
    pub longest_key: usize,
    /// The longest value of a record in a leaf, in bytes.
    pub longest_value: usize,
}

/// Counts of what was done since the store was opened, and how much is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Snapshots that were begun.
    pub begun: u64,
    /// Of these, snapshots that have not ended.
    pub open: u64,
    /// Versions that are kept now, those included that nobody needs and that were not dropped yet.
    pub versions: u64,
    /// Bytes of memory that they take.
    pub used_bytes: u64,
    /// Bytes of memory that are lent for them.
    pub lent_bytes: u64,
    /// Snapshots that were pinned to a checkpoint.
    pub pinned: u64,
    /// Snapshots that were given up: for want of memory, or because they were too old.
    pub given_up: u64,
    /// Versions that were written to the file to have their memory.
    pub frozen: u64,
    /// Bytes of the file that such versions take now.
    pub frozen_bytes: u64,
}

/// What a snapshot has to know of a tree beside its leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fate {
    /// All of its records were loaded with this LSN, which the snapshot is below.
    pub loaded: Option<Lsn>,
    /// It was dropped with this one.
    pub dropped: Option<Lsn>,
}

impl Fate {
    /// Whether leaves tell all.
    #[inline]
    pub(super) fn is_plain(self) -> bool {
        self.loaded.is_none() && self.dropped.is_none()
    }
}

/// A pinned checkpoint, and how many snapshots (or who runs alone) refer to it.
pub(super) struct Pinned<P> {
    pub pin: Arc<P>,
    pub users: u64,
}

/// See the head of the file. `P` is a pinned checkpoint.
pub struct Versions<M: Memory, P> {
    pub(super) memory: M,
    options: VersionsOptions,
    pub(super) door: Door,
    pub(super) slots: Slots,
    pub(super) table: Mutex<Table<M::Block>>,
    pub(super) room: Room,
    pub(super) horizon: AtomicU64,
    /// The cut of who runs alone, or [`NOBODY`].
    pub(super) alone: AtomicU64,
    /// When this was made: what snapshots count their ages from.
    made: Moment,
    /// How often somebody has begun or ended to change records alone: odd while somebody does.
    pub(super) turns: AtomicU64,
    /// The trees that were loaded: their records have no stamps of their own.
    loads: Since,
    /// The trees that were dropped: their pages go, one by one.
    drops: Since,
    /// How many writers have come in while versions were kept, and snapshots ended.
    pub(super) visits: Figure,
    /// By their cuts.
    pub(super) pins: Mutex<BTreeMap<Lsn, Pinned<P>>>,
    collecting: Mutex<Collector>,
    pub(super) begun: Figure,
    pub(super) pinned: Figure,
    pub(super) given_up: Figure,
    /// Versions that were written to parts.
    pub(super) frozen: Figure,
    /// Versions are due to go to the file that the last checkpoint could not write.
    pub(super) freezes_later: AtomicBool,
    pub(super) parts: Parts<M::Frozen>,
}

#[derive(Default)]
struct Collector {
    key: Vec<u8>,
    /// Since when no snapshot is open, and how many had begun by then.
    idle: Option<(Moment, u64)>,
}

impl<M: Memory, P> fmt::Debug for Versions<M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Versions").field("door", &self.door.look()).finish_non_exhaustive()
    }
}

impl<M: Memory, P> Versions<M, P> {
    /// Without versions and snapshots. Borrows nothing yet.
    ///
    /// # Panics
    /// If the memory lends fewer blocks than the longest change needs.
    pub fn new(memory: M, options: VersionsOptions) -> Versions<M, P> {
        let versions = Versions {
            table: Mutex::new(Table::new(memory.block_bytes())),
            room: Room::new(),
            memory,
            options,
            door: Door::new(),
            slots: Slots::new(),
            horizon: AtomicU64::new(0),
            alone: AtomicU64::new(NOBODY),
            made: Moment::now(),
            turns: AtomicU64::new(0),
            loads: Since::new(),
            drops: Since::new(),
            visits: Figure::new(0),
            pins: Mutex::new(BTreeMap::new()),
            collecting: Mutex::new(Collector::default()),
            begun: Figure::new(0),
            pinned: Figure::new(0),
            given_up: Figure::new(0),
            frozen: Figure::new(0),
            freezes_later: AtomicBool::new(false),
            parts: Parts::new(),
        };
        let most = versions.memory.most_blocks();
        assert!(most >= LEAST_BLOCKS && versions.most_cells() >= versions.least_cells());
        versions
    }

    /// Nanoseconds since this was made.
    pub(super) fn nanos(&self) -> u64 {
        self.made.elapsed().as_nanos() as u64
    }

    /// Counts, and what is in use.
    pub fn figures(&self) -> Figures {
        let block_bytes = self.memory.block_bytes() as u64;
        let table = self.table.lock();
        let used = table.cells.all() - table.cells.free();
        Figures {
            begun: self.begun.load(Relaxed),
            open: self.slots.all().filter(|slot| slot.state() != State::Empty).count() as u64,
            versions: table.versions,
            used_bytes: u64::from(used) * block_bytes / u64::from(table.cells.cells_each()),
            lent_bytes: u64::from(table.blocks()) * block_bytes,
            pinned: self.pinned.load(Relaxed),
            given_up: self.given_up.load(Relaxed),
            frozen: self.frozen.load(Relaxed),
            frozen_bytes: self.parts.file_bytes(Lsn(0), Lsn(u64::MAX)),
        }
    }

    /// How much of the memory that may be lent is in use, in percent: from 50 on a checkpoint would help.
    #[cfg(hedgerow_internals)]
    pub fn fill_percent(&self) -> u32 {
        let table = self.table.lock();
        let used = u64::from(table.cells.all() - table.cells.free());
        (used * 100 / u64::from(self.most_cells())) as u32
    }

    /// Cells of all blocks that may be lent, without those of the index.
    pub(super) fn most_cells(&self) -> u32 {
        let cells_each = (self.memory.block_bytes() / super::cells::CELL_BYTES) as u32;
        // One block of the index has heads for thirty-two blocks of cells.
        (self.memory.most_blocks() - self.memory.most_blocks().div_ceil(33)) * cells_each
    }

    /// Cells that one change takes at most.
    pub(super) fn least_cells(&self) -> u32 {
        cells_of_change(self.options.longest_key, self.options.longest_value)
    }

    /// Bytes that a version takes at most in a part.
    pub(super) fn longest_record(&self) -> usize {
        Record::longest_bytes(self.options.longest_key, self.options.longest_value)
    }

    /// Sees to it that any single change has room when nobody else has reserved any.
    ///
    /// Errors: `MemoryLimit`; those of the memory.
    pub(super) fn prepare(&self) -> Result<()> {
        self.table.lock().prepare(self.options.longest_key)?;
        while self.table.lock().cells.all() < self.least_cells() {
            if !self.lend()? {
                let what = "no memory can be spared for the old versions of records";
                return Err(Error::new(ErrorKind::MemoryLimit, what));
            }
        }
        Ok(())
    }

    /// Borrows a block more. False: there is none.
    pub(super) fn lend(&self) -> Result<bool> {
        if self.table.lock().blocks() >= self.memory.most_blocks() {
            return Ok(false);
        }
        let Some(block) = self.memory.lend()? else { return Ok(false) };
        let mut table = self.table.lock();
        let cells = table.add(block)?;
        self.room.grow(cells);
        Ok(true)
    }

    /// Notes that all records of a tree, which had none, were loaded with this LSN: before anybody can see them.
    pub fn note_load(&self, tree: TreeId, lsn: Lsn) {
        self.loads.note(tree, lsn, || self.slots.oldest_open());
    }

    /// Notes that a tree was dropped with this LSN: before any page of it goes.
    pub fn note_drop(&self, tree: TreeId, lsn: Lsn) {
        self.drops.note(tree, lsn, || self.slots.oldest_open());
    }

    /// What has become of a tree behind a snapshot's moment. To be asked after the look at a leaf.
    #[inline]
    pub(super) fn fate(&self, tree: TreeId, at: Lsn) -> Fate {
        Fate { loaded: self.loads.after(tree, at), dropped: self.drops.after(tree, at) }
    }

    /// The oldest moment of a snapshot that is not given up; zero if one is about to begin. `None`: there is none, and whoever begins
    /// later has a moment that is no earlier than what the log's end was before this was asked.
    pub fn oldest(&self) -> Option<Lsn> {
        self.slots.oldest()
    }

    /// Whether a snapshot may see what was there between two moments, the second of which has passed: one that is open, or about to begin.
    /// Whoever begins later has a moment that is no earlier than the second.
    pub fn may_see(&self, from: Lsn, to: Lsn) -> bool {
        // Who begins has a barrier between its slot and its look at the clock, too.
        fence(SeqCst);
        self.slots.any_between(from, to)
    }

    /// Where the memory comes from.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Puts another block in the place of the one that `is_it` means, with the same bytes. Returns that one; if there is none, the other
    /// one.
    ///
    /// # Errors
    /// The other one.
    pub fn replace_block(
        &self,
        is_it: impl Fn(&M::Block) -> bool,
        other: M::Block,
    ) -> std::result::Result<M::Block, M::Block> {
        self.table.lock().replace(is_it, other)
    }

    /// Cells that versions take, without what writers are promised.
    pub(super) fn in_use(&self) -> u32 {
        let table = self.table.lock();
        table.cells.all() - table.cells.free()
    }

    /// Whether so much was kept since the last collection that another one may be worth it.
    pub(super) fn is_collection_due(&self) -> bool {
        let block = (self.memory.block_bytes() / super::cells::CELL_BYTES) as u32;
        let least = block.max(self.most_cells() / LEAST_PART);
        self.in_use().saturating_sub(self.room.recent()) >= 2 * self.room.kept().max(least)
    }

    /// Whether recent versions take so much that it is time to see who needs them.
    fn are_many_recent(&self) -> bool {
        self.room.recent() >= MOST_RECENT.min(self.most_cells() / RECENT_PART)
    }

    /// The table, when all versions can be found that were kept before this was called. For whoever keeps more meanwhile it is locked for a short while at a time.
    pub(super) fn indexed(&self) -> MutexGuard<'_, Table<M::Block>> {
        let mut table = self.table.lock();
        let until = table.recent.added();
        loop {
            if table.recent.taken() < until {
                // Whoever kept them has passed a full barrier behind the append: who raises the horizon later reads the log's end later, too.
                let horizon = Lsn(self.horizon.load(Acquire));
                let count = (until - table.recent.taken()).min(u64::from(INDEXED_AT_ONCE));
                let free = (0..count).map(|_| table.index_one(horizon)).sum();
                self.room.give(free);
                self.room.set_recent(table.recent.cells());
            }
            if table.recent.taken() >= until {
                return table;
            }
            drop(table);
            table = self.table.lock();
        }
    }

    /// Whether a good part of all memory was filled since the last collection.
    fn has_grown(&self) -> bool {
        self.room.used() >= self.room.kept() + self.most_cells() / GROWTH_PART
    }

    /// Drops the versions that nobody needs. False: a snapshot is about to begin, and nothing was dropped.
    ///
    /// # Errors
    /// `MemoryLimit` if there is none to note all snapshots.
    pub fn collect(&self, around: &impl Surroundings) -> Result<bool> {
        self.collect_some(around, true)
    }

    /// [`Self::collect`], of the recent ones perhaps up to the first one that is needed only.
    fn collect_some(&self, around: &impl Surroundings, all: bool) -> Result<bool> {
        let mut collector = self.collecting.lock();
        self.make_ready(&mut collector)?;
        let Some((needs, up_to)) = self.needs(around)? else { return Ok(false) };
        self.trim(&needs, up_to);
        if all || self.are_many_recent() {
            drop(self.indexed());
        }
        self.sweep(&needs, up_to, &mut collector.key);
        Ok(true)
    }

    /// Who needs versions that were ended up to an LSN. `None`: a snapshot is about to begin.
    fn needs(&self, around: &impl Surroundings) -> Result<Option<(Needs, Lsn)>> {
        let up_to = around.reached();
        // Before the slots are looked at: see `slots`.
        fence(SeqCst);
        Ok(self.slots.needs()?.map(|needs| (needs, up_to)))
    }

    /// Has all versions indexed that were kept before, so that whoever looks for some with leaves latched has few left to index.
    pub fn index_recent(&self) {
        drop(self.indexed());
    }

    /// Drops the oldest of the recent versions, up to the first that somebody may need.
    fn trim(&self, needs: &Needs, up_to: Lsn) {
        let bounds = needs.bounds();
        let mut table = self.table.lock();
        let until = table.recent.added();
        loop {
            let (free, may_be_more) = table.trim(&bounds, up_to, TRIMMED_AT_ONCE);
            self.room.give(free);
            self.room.set_recent(table.recent.cells());
            if !may_be_more || table.recent.taken() >= until {
                return;
            }
            drop(table);
            table = self.table.lock();
        }
    }

    /// Sees to it that recent versions do not become ever more: drops those that nobody needs, and indexes the others if they are most of them.
    fn thin_recent(&self, around: &impl Surroundings) -> Result<()> {
        let before = self.room.recent();
        if let Some((needs, up_to)) = self.needs(around)? {
            self.trim(&needs, up_to);
        }
        if self.room.recent() > before / 2 {
            drop(self.indexed());
        }
        Ok(())
    }

    /// All memory that a sweep needs.
    fn make_ready(&self, collector: &mut Collector) -> Result<()> {
        collector.key.clear();
        let refused = |_| Error::new(ErrorKind::MemoryLimit, "no memory to collect versions");
        collector.key.try_reserve(self.options.longest_key).map_err(refused)
    }

    /// Drops all versions that were ended up to `up_to`. `list` is called before, if there is memory for that.
    ///
    /// Errors: `MemoryLimit`; nothing was called and dropped.
    pub(super) fn drop_up_to(&self, up_to: Lsn, list: impl FnOnce()) -> Result<()> {
        let mut collector = self.collecting.lock();
        self.make_ready(&mut collector)?;
        list();
        self.trim(&Needs::default(), up_to);
        self.sweep(&Needs::default(), up_to, &mut collector.key);
        Ok(())
    }

    fn sweep(&self, needs: &Needs, up_to: Lsn, key: &mut Vec<u8>) {
        let mut next = 0;
        loop {
            let mut table = self.table.lock();
            // More may be added meanwhile, at the end.
            let end = table.buckets();
            let until = end.min(next + SWEPT_AT_ONCE);
            let free_before = table.cells.free();
            for bucket in next..until {
                table.sweep(bucket, needs, up_to, key);
            }
            self.room.give(table.cells.free() - free_before);
            next = until;
            if next >= end {
                let used = table.cells.all() - table.cells.free();
                self.room.set_kept(used.saturating_sub(table.recent.cells()));
                return;
            }
        }
    }

    /// To be called now and then, by one thread: collects what snapshots have left, and turns the switch off when there has been
    /// none for a while.
    ///
    /// # Errors
    /// As [`Self::collect`].
    pub fn tend(&self, around: &impl Surroundings) -> Result<()> {
        let (is_at_rest, is_in_use) = {
            let table = self.table.lock();
            let is_at_rest = table.versions == 0 && table.cells.all() <= self.least_cells();
            (is_at_rest, table.cells.free() < table.cells.all())
        };
        if is_at_rest && !self.door.look().keeps_versions() {
            return Ok(());
        }
        let begun = self.begun.load(Relaxed);
        let is_idle = !self.slots.any_in_need();
        let since = {
            let mut collector = self.collecting.lock();
            collector.idle = match collector.idle {
                Some(idle) if is_idle && idle.1 == begun => Some(idle),
                _ => is_idle.then(|| (Moment::now(), begun)),
            };
            collector.idle
        };
        if since.is_some_and(|(since, _)| since.elapsed() >= self.door.idle()) && self.turn_off() {
            self.collecting.lock().idle = None;
        }
        // What pinned ones need stays, and is not looked through for nothing.
        let is_at_end = is_idle && is_in_use && (!self.slots.any_pinned() || self.has_grown());
        if self.is_collection_due() || is_at_end {
            self.collect_some(around, false)?;
        } else if self.are_many_recent() {
            self.thin_recent(around)?;
        }
        if !self.door.look().keeps_versions() {
            self.give_back();
        }
        Ok(())
    }

    /// Turns the switch off if no snapshot is open that needs what is kept from now on: pinned ones do not. Returns whether it was turned off.
    pub fn turn_off(&self) -> bool {
        self.door.fall(|| self.slots.any_in_need())
    }

    /// Gives back memory that is not in use.
    fn give_back(&self) {
        loop {
            let mut given = Vec::new();
            if given.try_reserve_exact(GIVEN_AT_ONCE).is_err() {
                // Later, when there is memory for the list.
                return;
            }
            let may_go = |cells| self.room.shrink(cells, self.least_cells());
            self.table.lock().give_back(may_go, &mut given);
            if given.is_empty() {
                return;
            }
        }
    }
}
