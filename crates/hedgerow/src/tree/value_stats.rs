//! Where the values of a tree are, in figures.
//!
//! Invariant: each record is counted once, under one form. Plain values; counting is total over any bytes; used by one thread.

use super::large::for_each_value;
use crate::large::Held;
use crate::large::{Stored, read_stored};

/// The values of a keyspace by the place that they are stored in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValueStats {
    /// Values in leaves.
    pub in_leaves: u64,
    /// Bytes of these values.
    pub in_leaves_bytes: u64,
    /// Values that are too long for a leaf and lie in extents of the file.
    pub in_extents: u64,
    /// Bytes of these values.
    pub in_extents_bytes: u64,
    /// Bytes of the file that these extents take, with their checksums and what is rounded up to whole blocks.
    pub extents_file_bytes: u64,
    /// In a store that lives in memory: values that are too long for a leaf.
    pub in_frames: u64,
    /// Bytes of these values.
    pub in_frames_bytes: u64,
    /// Bytes of the frames that hold them.
    pub frames_bytes: u64,
    /// Records whose leaf does not say where the value is, because of damage.
    pub damaged: u64,
}

impl ValueStats {
    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.in_leaves + self.in_extents + self.in_frames + self.damaged
    }

    /// Bytes of all values, as they were put.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.in_leaves_bytes + self.in_extents_bytes + self.in_frames_bytes
    }

    /// Counts the values of a leaf. `unit_bytes`: of a unit of the file, 0 in a store that lives in memory.
    pub(super) fn add_leaf(&mut self, page: &[u8], unit_bytes: u32) {
        for_each_value(page, &mut |value| self.add(value, page.len(), unit_bytes));
    }

    /// Counts a value as its leaf has it.
    pub(super) fn add(&mut self, value: &[u8], page_bytes: usize, unit_bytes: u32) {
        let held = if unit_bytes == 0 { Held::decode(value) } else { None };
        if let Some(held) = held {
            self.in_frames += 1;
            self.in_frames_bytes += held.len_bytes;
            self.frames_bytes += held.frames.len() as u64 * page_bytes as u64;
            return;
        }
        match read_stored(value) {
            Stored::Plain(value) => {
                self.in_leaves += 1;
                self.in_leaves_bytes += value.len() as u64;
            }
            Stored::Extent(extent) => {
                self.in_extents += 1;
                self.in_extents_bytes += extent.len_bytes;
                let units: u64 = extent.runs.iter().map(|run| u64::from(run.units)).sum();
                self.extents_file_bytes += units * u64::from(unit_bytes);
            }
            Stored::Damaged => self.damaged += 1,
        }
    }
}
