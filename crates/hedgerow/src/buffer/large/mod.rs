//! Large values in memory: pieces of them in frames, and what the pool is told of them.
//!
//! Rank 3, a part of `buffer`. `pieces` keeps values in frames, and `index` knows where; `extents` finds room for them in the file, and notes which records
//! refer to them; `old_values` has those of a store in memory that only snapshots see.

mod extents;
mod index;
mod old_values;
mod pieces;

pub use index::PieceName;
pub(super) use index::{INDEX_FRAME_BYTES, PieceIndex};
pub(super) use old_values::OldValues;
