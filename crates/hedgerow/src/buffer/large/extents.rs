//! Large values and the pool: room on the disk for them, and the record of which leaves refer to them.
//!
//! Memory for reading and writing them is a share of the limit of its own (`budget.rs`): they do not go through
//! frames. `Send + Sync`.

use super::old_values::{LEAST_LOOKED_AT, OldValues};
use crate::buffer::old_versions::PoolVersions;
use crate::buffer::pool::BufferPool;
use crate::error::{Error, ErrorKind, Result};
use crate::large::Held;
use crate::large::{Extent, Run, Stored, read_stored};
use crate::space::slot_store::SlotStore;
use crate::types::{Epoch, Lsn, Purpose};
use crate::wait::{Wait, Waiting};

impl BufferPool {
    /// Finds `units` units in at most `max_runs` runs. What others free a checkpoint gives back; one is waited for
    /// where the file cannot grow. The caller holds nothing.
    ///
    /// Errors: `DiskFull`; `ReadOnly`; `Poisoned`; `Closed`; those of reading bitmaps; those of `waiting`.
    pub fn allocate_extent(
        &self,
        slots: &SlotStore,
        units: u64,
        max_runs: usize,
        waiting: &Waiting<'_>,
    ) -> Result<Vec<Run>> {
        let mut checkpoints = 0;
        loop {
            self.check_values()?;
            // How much is kept for the map is known from then on.
            drop(self.enter_with(0, Purpose::Take, waiting)?);
            let keep = || slots.needed(self.images_to_write(), Purpose::Take);
            match slots.allocate_extent(units, max_runs, keep) {
                Err(error) if error.kind() == ErrorKind::DiskFull => {
                    // One may be under way that has begun too early.
                    if checkpoints == 2 || !slots.checkpoints().wait_for_next(waiting)? {
                        return Err(error);
                    }
                    checkpoints += 1;
                }
                other => return other,
            }
        }
    }

    /// Finds units below zone `end_zone`; `None` if there is no room there. The caller holds nothing. Waits for nobody: who moves values
    /// may be who takes the checkpoint that others wait for.
    ///
    /// Errors: as for [`Self::allocate_extent`]; `WouldBlock`.
    pub fn allocate_extent_below(
        &self,
        slots: &SlotStore,
        end_zone: u32,
        units: u64,
        max_runs: usize,
    ) -> Result<Option<Vec<Run>>> {
        self.check_poison()?;
        self.check_open()?;
        drop(self.enter_with(0, Purpose::Take, &Wait::Never.begin())?);
        let keep = || slots.needed(self.images_to_write(), Purpose::Take);
        slots.allocate_extent_below(end_zone, units, max_runs, keep)
    }

    /// Whether large values may be put.
    ///
    /// Errors: `ReadOnly`; `Poisoned`; `Closed`.
    pub fn check_values(&self) -> Result<()> {
        if self.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the database is open for reading only"));
        }
        self.check_poison()?;
        self.check_open()
    }

    /// Gives back an extent that no record ever referred to, and what is kept of it in memory. Waits for nobody who reads.
    pub fn discard_extent(&self, extent: &Extent) {
        self.forget_value(extent);
        if let Some(slots) = &self.slots {
            slots.discard_extent(&extent.runs);
        }
    }

    /// See [`crate::page::Values::stored_form_changed`]. An extent that this file cannot have is damage, after which
    /// nothing may be written.
    pub(in crate::buffer) fn note_stored_forms(&self, epoch: Epoch, old: &[u8], new: &[u8]) {
        let Some(slots) = &self.slots else { return self.discard_held(old) };
        // The same again: a replay puts what a checkpoint has already.
        if old == new {
            return;
        }
        let extent = |value| match read_stored(value) {
            Stored::Extent(extent) => Some(extent),
            Stored::Plain(_) | Stored::Damaged => None,
        };
        let (old, new) = (extent(old), extent(new));
        // One that was moved is the same value, whose pieces go on under its seed.
        let is_moved = |old: &Extent| new.as_ref().is_some_and(|new| new.seed == old.seed);
        if let Some(old) = old.as_ref().filter(|old| !is_moved(old)) {
            self.forget_value(old);
        }
        if (old.is_some() || new.is_some())
            && let Err(error) = slots.extent_changed(epoch, old, new)
        {
            self.set_poisoned(&error);
        }
    }

    /// Frees the frames of a value in a store that lives in memory which no record has any more. If there may be a snapshot that sees it, it
    /// waits for that.
    fn discard_held(&self, value: &[u8]) {
        let Some(held) = Held::decode(value) else { return };
        match self.versions().filter(|versions| versions.are_kept()) {
            None => self.release_held(&held),
            Some(versions) => {
                // The lock is taken first: whose snapshot ends meanwhile looks at the list afterwards.
                let mut old = self.old_values.lock();
                // The change was made before.
                let changed = self.last_lsn();
                if !versions.may_see(held.born, changed) {
                    return self.release_held(&held);
                }
                old.values.push((changed, held));
                // Of snapshots that were about to begin, or were given up, nobody tells.
                if old.values.len() >= old.look_at.max(LEAST_LOOKED_AT) {
                    self.release_unseen(&mut old, Lsn(0));
                    old.look_at = 2 * old.values.len();
                }
            }
        }
    }

    /// Frees the frames of replaced values that no snapshot sees, of those that were replaced behind `moment`: a snapshot of that moment has
    /// ended. True if there were any.
    pub fn release_old_values(&self, moment: Lsn) -> bool {
        self.slots.is_none() && self.release_unseen(&mut self.old_values.lock(), moment)
    }

    /// Frees frames of replaced values in a store that lives in memory, where there is no other one: those that no snapshot sees any
    /// more, or else those that the oldest one does, which is given up. False: there are none.
    pub(in crate::buffer) fn give_old_values_up(&self) -> bool {
        if self.release_old_values(Lsn(0)) {
            return true;
        }
        let keeps_any = !self.old_values.lock().values.is_empty();
        keeps_any && self.versions().is_some_and(PoolVersions::give_up_oldest)
    }

    fn release_unseen(&self, old: &mut OldValues, moment: Lsn) -> bool {
        let Some(versions) = self.versions() else { return false };
        let from = old.values.partition_point(|(changed, _)| *changed <= moment);
        let before = old.values.len();
        let later = old.values.split_off(from);
        old.values.extend(later.into_iter().filter(|(changed, held)| {
            let is_seen = versions.may_see(held.born, *changed);
            if !is_seen {
                self.release_held(held);
            }
            is_seen
        }));
        old.values.len() < before
    }

    /// See [`crate::page::Values::discard_stored_form`].
    pub(in crate::buffer) fn discard_large(&self, value: &[u8]) {
        match &self.slots {
            Some(_) => {
                if let Stored::Extent(extent) = read_stored(value) {
                    self.discard_extent(&extent);
                }
            }
            None => {
                if let Some(held) = Held::decode(value) {
                    self.release_held(&held);
                }
            }
        }
    }
}
