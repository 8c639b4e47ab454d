//! Old versions of records, and the snapshots that need them: the protocol of snapshots, without trees, files or threads of its own.
//!
//! Rank 2. The newest version of a record is in its tree. What it was before is kept here while a snapshot needs it, and later in a
//! checkpoint that is pinned for the snapshot. A snapshot's moment is an LSN `s`, and what it sees is the state after all changes with
//! LSNs up to `s`. The pieces:
//!
//! - `cells`, `table`, `recent`, `removed`: old versions in lent memory, by hash, those that have no place there yet, and the removed keys in their order; `room`: how
//!   much of it is spare.
//! - `slots`, `needs`: which snapshots there are, and which versions they need.
//! - [`clock`]: the order of changes where there is no log.
//! - `door`: the switch that has writers keep versions, and the gate of who runs alone.
//! - [`state`]: all of it together; collecting what nobody needs.
//! - [`frozen`], [`freeze`]: what is in the file, because it takes too much memory.
//! - [`admission`]: how a writer comes in, and what it keeps.
//! - [`snapshots`]: how a snapshot begins, reads, is pinned or given up, and ends.
//! - [`alone`]: how somebody makes changes that readers see all at once, without keeping versions of them.
//!
//! What holds: for every snapshot that is not pinned, and every key, either the leaf's newest change is not above `s`, or the version as
//! of `s` is here. For a pinned one this holds of changes up to its cut, which is at least `s`, here or in a part in the file. A snapshot whose versions were dropped
//! says that it is too old before they are.

pub mod admission;
pub mod alone;
mod begin;
mod cells;
pub mod clock;
mod door;
pub mod freeze;
pub mod frozen;
pub mod memory;
mod needs;
mod recent;
mod removed;
mod room;
mod slots;
pub mod snapshots;
pub mod state;
mod table;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod trees;

pub use admission::Admission;
pub use alone::Alone;
pub use begin::Change;
pub use clock::Clock;
pub use freeze::{Freezer, Plan, Sorted};
pub use frozen::{FrozenPart, Record, Stretch, Version};
pub use memory::{Block, LEAST_BLOCKS, Memory, Surroundings};
pub use slots::SlotId;
pub use snapshots::{Kept, Seen, Snapshot};
pub use state::{Figures, Versions, VersionsOptions};
pub use table::cells_of_change;
