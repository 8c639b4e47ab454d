//! Space in the file: which slot a page's image lies in, which slots are free, and which must wait.
//!
//! Rank 2. Most pieces are plain data structures and codecs without latches, threads and I/O of their own. Three are
//! not: [`slot_store`] holds one lock around a [`Zones`] and a [`Deltas`], and lets go of it to read or write; [`large`] finds room for
//! large values and has buffers that a thread of the store writes, and `file_sync` syncs the file. The pieces:
//!
//! - [`geometry`]: how the file is cut into header region, zones and units, with all the arithmetic.
//! - [`part`]: the codec of a 4 KiB part, the block that the page map and the zone table are made of.
//! - [`map`]: the durable page map, a radix tree of parts, and its step from one checkpoint to the next.
//! - [`zones`]: the allocator of slots; [`quarantine`] holds back what a checkpoint still needs, and [`pin`] what a pinned one does;
//!   [`table`] and [`table_checkpoint`] make its bitmaps durable; [`shrink`] gives space back to the file
//!   system.
//! - [`room`]: what writers may change, so that the next checkpoint has room for all of it.
//! - [`large`]: values that no leaf holds.
//! - [`audit`]: accounts for every byte. `file_sync`: who syncs the file, and whether anybody may.
//! - [`delta`]: what changed in the map, by epoch, until a checkpoint takes it; [`owed`]: what has to be in it yet.
//! - [`page_ids`]: which page ids are free.
//!
//! One fact carries the whole: *a slot that a durable or pinned checkpoint needs is never written*.

pub mod audit;
mod bits;
pub mod delta;
pub mod due;
mod extend;
mod file_sync;
pub mod geometry;
pub mod image;
pub mod image_batch;
mod image_slots;
pub mod large;
mod length;
pub mod map;
pub mod owed;
pub mod page_ids;
pub mod part;
pub mod pin;
pub mod quarantine;
mod repack;
pub mod room;
pub mod shrink;
pub mod slot_store;
pub mod table;
pub mod table_checkpoint;
mod unit_set;
pub mod zones;

pub use audit::SpaceReport;
pub use delta::{Deltas, TakenDelta};
pub use geometry::{Geometry, HEADER_REGION_BYTES};
pub use map::{MapRoot, PartIo};
pub use owed::Owed;
pub use page_ids::PageIds;
pub use part::{PartBytes, PartKind};
pub use pin::SlotsPin;
pub use room::SetAside;
pub use table::{LoadGroup, TableRoot};
pub use zones::{Growth, Want, Zones};

#[cfg(test)]
mod tests;
