//! Pins: the slots of a checkpoint stay as they are while checkpoints, writers and shrinking go on.
//!
//! While a [`SlotsPin`] lives, no slot that its checkpoint refers to is written, punched or cut off: the quarantine
//! keeps back what later checkpoints supersede (`quarantine.rs`), and only free zones are punched or
//! cut. So the file grows by what is rewritten meanwhile, and cannot be shortened beyond the pinned
//! slots. Several pins may be held, of one checkpoint or of several. What the last one gives up is freed at
//! once, in pieces. A crash needs nothing of it. `Send + Sync`.

use super::slot_store::{FREED_AT_ONCE, SlotStore};
use crate::types::Epoch;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::process::Process;
use std::fmt;

/// See the head of the file.
pub struct SlotsPin {
    slots: Arc<SlotStore>,
    checkpoint: Epoch,
    /// The process that has pinned it.
    process: Process,
}

impl fmt::Debug for SlotsPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotsPin").field("checkpoint", &self.checkpoint).finish_non_exhaustive()
    }
}

impl SlotStore {
    /// Pins the checkpoint that is durable. The caller, whose process is `process`, sees to it that it knows which one that is.
    pub fn pin(self: &Arc<Self>, process: Process) -> SlotsPin {
        let checkpoint = self.state().zones.pin();
        SlotsPin { slots: self.clone(), checkpoint, process }
    }
}

impl SlotsPin {
    /// Where the slots are read.
    pub fn slots(&self) -> &Arc<SlotStore> {
        &self.slots
    }

    /// Bytes of the file that are not used again for its sake, and perhaps for the sake of other pins, too; without those of large values.
    pub fn held_bytes(&self) -> u64 {
        let state = self.slots.state();
        let units = state.zones.quarantine.units_held_for(self.checkpoint);
        units * u64::from(state.zones.geometry().unit_bytes())
    }

    /// Which checkpoint is pinned.
    pub fn checkpoint(&self) -> Epoch {
        self.checkpoint
    }
}

impl Drop for SlotsPin {
    fn drop(&mut self) {
        // The parent's pin, of which a forked process has a copy, ends when the parent ends it.
        if !self.process.is_current() {
            return;
        }
        let kept_bytes = self.slots.report().quarantined_bytes;
        let ended = self.slots.state().zones.unpin(self.checkpoint);
        assert!(ended.is_ok(), "what was pinned is pinned");
        while self.slots.state().zones.free_ripe(FREED_AT_ONCE) {}
        self.slots.free_extents();
        if self.slots.report().quarantined_bytes < kept_bytes {
            // The file may become shorter.
            self.slots.checkpoints().note_change();
        }
    }
}
