//! Parts of the zone table, and where it begins: what is known of the table without its bitmaps.
//!
//! What stands in the parts is in [`super::table`]. Plain data.

use super::geometry::PART_CONTENT_WORDS;
use crate::types::{Epoch, Slot};

/// Children of an upper part.
pub const TABLE_FANOUT: usize = PART_CONTENT_WORDS / 2;

const _: () = assert!(TABLE_FANOUT == 254);

/// Where the zone table of a checkpoint begins, as its superblock has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableRoot {
    /// Slot of the root part; none while the checkpoint refers to nothing.
    pub slot: Slot,
    /// The root part's whole checksum.
    pub checksum: u64,
    /// Levels, counting the leaves: none, or 2 to [`super::part::MAX_LEVELS`].
    pub levels: u8,
    /// Units up to the last one that the checkpoint needs, its own parts included. A shorter file
    /// has lost data; a longer one has free units at its end.
    pub units: u64,
    /// Units that all bitmaps together have set.
    pub used_units: u64,
}

impl TableRoot {
    /// The table of a checkpoint that refers to nothing.
    pub const EMPTY: TableRoot =
        TableRoot { slot: Slot::NONE, checksum: 0, levels: 0, units: 0, used_units: 0 };
}

/// A group whose bitmaps are wanted: read 4 KiB at `slot`, hand them to `Zones::load_group`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadGroup {
    /// The group.
    pub group: u32,
    /// Where its part lies; never none.
    pub slot: Slot,
}

/// A part of the table on disk, and the checkpoint that wrote it as far as that is known (epoch 0
/// is the safe answer for one that was not read since opening).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TablePart {
    pub(super) slot: Slot,
    pub(super) born: Epoch,
}

impl TablePart {
    pub(super) const NONE: TablePart = TablePart { slot: Slot::NONE, born: Epoch(0) };
}
