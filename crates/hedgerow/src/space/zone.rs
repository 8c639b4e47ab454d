//! A zone as the allocator has it, and what the allocator asks for before it can go on.
//!
//! What is kept of a zone is what its bitmaps, its blocks on the disk and its use come to, so that a zone can be chosen without
//! looking at bits. `Zones` keeps the figures true. Plain data.

use super::runs::Runs;
use super::table_part::{LoadGroup, TablePart};

/// Classes of zones by free share, in sixteenths; class 16 is empty.
pub(super) const CLASSES: usize = 17;
/// Class of a zone that cannot be chosen: full, current, out, or beyond the file.
pub(super) const NO_CLASS: u8 = u8::MAX;
/// From this class on, a zone is worth writing to sequentially: a quarter is free.
pub(super) const ROOMY: usize = 4;
/// From this class on, a zone is worth filling before the file grows.
pub(super) const WORTHWHILE: usize = 1;
/// The longest run of a zone is not known: it was not counted since the last change.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// What the caller must do, with nothing locked, before the same call can succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// Make the file this long (room reserved), then call `Zones::grown`, or
    /// `Zones::growth_failed` and ask again with [`Growth::Least`], and then with [`Growth::Refused`].
    Grow {
        /// Units that the file has then, if the disk has plenty of room.
        units: u64,
        /// Units that it must have.
        least_units: u64,
    },
    /// Reserve room on the disk for this zone, then call `Zones::filled`; ask again with
    /// [`Growth::Least`] if that was refused.
    Fill(Fill),
    /// Read this part of the zone table and hand it to `Zones::load_group`.
    Load(LoadGroup),
    /// A truncation is under way: ask again after `Zones::end_truncate`.
    Truncating,
    /// There is no room: the file cannot grow and has no gap that is long enough.
    Full,
}

/// A zone that is to get blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fill {
    /// The zone.
    pub zone: u32,
    /// Its first byte in the file.
    pub offset_bytes: u64,
    /// Its length.
    pub len_bytes: u64,
    /// It has no blocks for certain.
    pub is_hole: bool,
    /// Nothing in it is held.
    pub is_free: bool,
}

/// Whether an allocation may ask for a longer file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// It may, and by a step; and holes may be filled.
    Allowed,
    /// The disk had no room for that: any gap that has blocks is taken first, and the file grows by what is
    /// needed and no more.
    Least,
    /// Nor for that: take any gap that has blocks.
    Refused,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Zone {
    pub(super) free: u32,
    /// No free run is longer; or [`UNKNOWN`].
    pub(super) longest: u32,
    pub(super) class: u8,
    /// Taken out of the allocator while a system call works on it.
    pub(super) out: bool,
    pub(super) blocks: Blocks,
    /// It is in `Zones::unsure`.
    pub(super) is_unsure: bool,
    /// What its runs are good for, whatever its blocks are.
    pub(super) runs: Runs,
    /// Slots of a page that it has room for, if it is solid and may be written.
    pub(super) room: u32,
}

impl Zone {
    /// One that was just loaded, with so many free units.
    pub(super) fn of(free: u32) -> Zone {
        Zone {
            free,
            longest: UNKNOWN,
            class: NO_CLASS,
            out: false,
            blocks: Blocks::Unknown,
            is_unsure: false,
            runs: Runs::default(),
            room: 0,
        }
    }
}

/// What is known of a zone's blocks on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Blocks {
    /// All of it has some.
    Solid,
    /// It was punched since opening.
    Hole,
    /// Its group was loaded, and nobody has asked since. An earlier session may have punched it, a crash may have left the
    /// file's length without blocks, and a copy of the file may have holes where nothing was written.
    Unknown,
}

/// The bitmaps of a group, as long as those of its zones that lie in the file.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) held: Box<[u64]>,
    pub(super) referenced: Box<[u64]>,
    pub(super) zones: Box<[Zone]>,
}

/// A group of zones; see [`super::table`] for what stands on disk.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) part: TablePart,
    /// Units that the newest complete checkpoint refers to.
    pub(super) referenced_units: u32,
    /// Zones of the group up to the last one that it refers to.
    pub(super) referenced_zones: u32,
    pub(super) loaded: Option<Box<Loaded>>,
}

impl Group {
    pub(super) const EMPTY: Group =
        Group { part: TablePart::NONE, referenced_units: 0, referenced_zones: 0, loaded: None };
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) zone: u32,
    pub(super) unit: u32,
}
