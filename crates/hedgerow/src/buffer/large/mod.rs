//! Large values in memory: pieces of them in frames, and what the pool is told of them.
//!
//! Rank 3, a part of `buffer`. `pieces` keeps values in frames, and `index` knows where; `extents` finds room for them in the file, and notes which records
//! refer to them.

mod extents;
mod index;
mod pieces;

pub(super) use extents::OldValues;
pub use index::PieceName;
pub(super) use index::{INDEX_FRAME_BYTES, PieceIndex};
