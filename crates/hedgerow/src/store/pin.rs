//! Pins: a checkpoint that stays readable in the file while checkpoints, writers and shrinking go on.
//!
//! While a [`Pin`] lives, no slot that its checkpoint refers to changes (`space/pin.rs`).
//!
//! A pin knows its superblock, which the file may have no longer: two checkpoints later both pairs of
//! blocks have been written anew. So what is pinned is gone with the process, and a crash needs nothing of it.
//!
//! [`Pin::view`] opens the checkpoint as a store of its own, to read, over the same file. `Send + Sync`.

use super::options::StoreOptions;
use super::superblock::Superblock;
use super::{Newest, Shared, Store};
use crate::buffer::{LARGE_VALUES_BYTES, PinnedCheckpoint, smallest_limit_without_log_bytes};
use crate::error::{Error, ErrorKind, Result};
use crate::space::SlotsPin;
use crate::space::geometry::PART_CONTENT_WORDS;
use crate::space::map::MapView;
use crate::space::slot_store::SlotStore;
use crate::types::{PART_BYTES, PART_WORDS};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::{AtomicUsize, Ordering::Relaxed};

/// A pinned checkpoint. See the head of the file.
pub(super) struct Pin {
    slots: SlotsPin,
    superblock: Superblock,
}

/// Somebody is going to pin a checkpoint, until the value is dropped.
#[must_use]
pub(super) struct AwaitsPin<'s>(&'s AtomicUsize);

impl Drop for AwaitsPin<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Shared {
    /// Says that a pin is awaited. Others may wait for who says so, all writers even.
    pub(super) fn await_pin(&self) -> AwaitsPin<'_> {
        self.pins_awaited.fetch_add(1, Relaxed);
        AwaitsPin(&self.pins_awaited)
    }

    /// Whether whoever makes the file shorter, which can wait, lets others have the lock of checkpoints first.
    pub(super) fn is_pin_awaited(&self) -> bool {
        self.pins_awaited.load(Relaxed) > 0
    }

    /// Takes a checkpoint, if anything has changed, and pins it. A store that is open for reading only pins what
    /// it was opened with.
    ///
    /// Errors: those of a checkpoint; `InMemory` in memory, where there is none.
    pub(super) fn pin(&self) -> Result<Pin> {
        let Some(slots) = &self.slots else {
            let what = "a database in memory has no checkpoints";
            return Err(Error::new(ErrorKind::InMemory, what));
        };
        let awaits = self.await_pin();
        let mut newest = self.checkpointing.lock();
        drop(awaits);
        self.pool.check_open()?;
        if !self.read_only {
            let taken = self.take(slots, &mut newest, false);
            slots.checkpoint_ended(taken.as_ref().map(|_| ()));
            taken?;
        }
        Ok(self.pin_newest(slots, &newest))
    }

    /// Has the newest checkpoint take over the snapshots that it can, if there are any. Under the lock of checkpoints.
    fn take_snapshots_over(&self, newest: &Newest) {
        self.give_up_old();
        self.free_given_up_extents();
        let cut = newest.superblock.log_end;
        let versions = self.pool.versions().filter(|versions| versions.wants_pin(cut));
        let Some((versions, slots)) = versions.zip(self.slots.as_ref()) else { return };
        let pin = self.pin_newest(slots, newest).into_readable();
        // They have gone over whatever this says. What could not be dropped for want of memory the next collection drops, and what
        // is not needed after all was pinned just now, so that it holds nothing back.
        drop(versions.pin(&*self.pool, cut, pin));
    }

    /// What is done with snapshots when a checkpoint is durable. Under the lock of checkpoints.
    pub(super) fn tend_snapshots(&self, newest: &Newest) {
        self.take_snapshots_over(newest);
        self.freeze_versions();
    }

    /// Pins the newest checkpoint, which no other one can follow meanwhile.
    pub(super) fn pin_newest(&self, slots: &Arc<SlotStore>, newest: &Newest) -> Pin {
        let (pinned, superblock) = (slots.pin(self.process), newest.superblock);
        let (expected, found) = (superblock.checkpoint, pinned.checkpoint());
        assert_eq!(found, expected, "the newest checkpoint is the durable one");
        Pin { slots: pinned, superblock }
    }
}

impl Pin {
    /// What the checkpoint says of itself.
    pub(super) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Where its slots are read.
    pub(super) fn slots(&self) -> &SlotStore {
        self.slots.slots()
    }

    /// To be read beside the store.
    pub(super) fn into_readable(self) -> PinnedCheckpoint {
        let (map, log_end) = (self.map_view(), self.superblock.log_end);
        PinnedCheckpoint::new(self.slots, map, log_end)
    }

    /// Its page map.
    pub(super) fn map_view(&self) -> MapView {
        MapView {
            root: self.superblock.map,
            checkpoint: self.superblock.checkpoint,
            geometry: self.superblock.geometry,
            units: self.superblock.table.units,
        }
    }

    /// The checkpoint as a store that is open for reading only, in memory of its own beside that of the store
    /// itself: the least that a store works with, and a page table, eight bytes for each page id. The pin has to
    /// outlive it.
    ///
    /// Errors: those of opening; `MemoryLimit` if the system refuses the memory.
    pub(super) fn view(&self) -> Result<Store> {
        let page_bytes = self.superblock.geometry.page_bytes() as usize;
        let least = smallest_limit_without_log_bytes(page_bytes);
        let limit = least + LARGE_VALUES_BYTES + self.table_bytes();
        let mut options = StoreOptions::without_log(limit);
        options.background = false;
        Store::open_at(&options, self.slots().file().clone(), self.superblock)
    }

    /// Memory that the page table of a pool takes which looks at every page, and what goes with it.
    fn table_bytes(&self) -> u64 {
        let part_ids = PART_WORDS as u64;
        let ids = self.superblock.next_page.map_or(1 << 32, |id| u64::from(id.0));
        let levels = u32::from(self.superblock.map.levels);
        // A damaged superblock may name any id; the map ends where it does.
        let in_map = levels
            .checked_sub(1)
            .map_or(0, |above| (PART_CONTENT_WORDS as u64).pow(above).saturating_mul(part_ids));
        let bytes = (ids.min(in_map).div_ceil(part_ids) + 1) * PART_BYTES as u64;
        // Buffers and headers take their shares of what is more.
        bytes + bytes / 2
    }
}
