//! Space in the file: which slot a page's image lies in, which slots are free, and which must wait.
//!
//! Rank 2. Most pieces are plain data structures and codecs without latches, threads and I/O of their own. A [`slot_store`] puts them
//! together: it holds one lock around a [`Zones`] and a [`Deltas`]. What has a lock or does I/O itself is either a part of it that does
//! not know it ([`checkpoints`], `file_sync`, buffers of [`large`] values), or stands above it and does what takes several steps
//! (`extend`, `make_room`, [`part_file`], [`pin`], extents of [`large`] values). The pieces:
//!
//! - [`geometry`]: how the file is cut into header region, zones and units, with all the arithmetic.
//! - [`part`]: the codec of a 4 KiB part, the block that the page map and the zone table are made of.
//! - [`map`]: the durable page map, a radix tree of parts, and its step from one checkpoint to the next.
//! - [`zones`]: the allocator of slots; [`quarantine`] holds back what a checkpoint still needs, and [`pin`] what a pinned one does;
//!   [`table`] and [`table_checkpoint`] make its bitmaps durable; [`shrink`] gives space back to the file
//!   system.
//! - [`room`]: what writers may change, so that the next checkpoint has room for all of it; `make_room` and `extend` get it from the
//!   file system. `image_counts`: what the next checkpoint will take.
//! - [`checkpoints`]: who wants one, who takes it, and who waits for it.
//! - [`large`]: values that no leaf holds.
//! - [`audit`]: accounts for every byte. `file_sync`: who syncs the file, and whether anybody may.
//! - [`delta`]: what changed in the map, by epoch, until a checkpoint takes it; [`owed`]: what has to be in it yet.
//! - [`page_ids`]: which page ids are free.
//!
//! One fact carries the whole: *a slot that a durable or pinned checkpoint needs is never written*.

pub mod audit;
mod bits;
pub mod checkpoints;
pub mod delta;
mod extend;
mod file_sync;
pub mod geometry;
pub mod image;
pub mod image_batch;
mod image_counts;
mod image_slots;
pub mod large;
mod length;
mod make_room;
pub mod map;
pub mod owed;
pub mod page_ids;
pub mod part;
pub mod part_file;
pub mod pin;
pub mod quarantine;
mod repack;
pub mod room;
mod runs;
pub mod shrink;
pub mod slot_store;
mod staged;
pub mod table;
pub mod table_checkpoint;
pub mod table_part;
mod unit_set;
pub mod zone;
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
pub use table_part::{LoadGroup, TableRoot};
pub use zone::{Growth, Want};
pub use zones::Zones;

#[cfg(test)]
mod tests;
