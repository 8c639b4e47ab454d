//! Large values in memory: pieces of them in frames, and what the pool is told of them.
//!
//! Rank 3, a part of `buffer`. `pieces` keeps values in frames; `extents` finds room for them in the file, and notes which records
//! refer to them.

mod extents;
mod pieces;

pub use pieces::PieceName;
pub(super) use pieces::{INDEX_FRAME_BYTES, PieceIndex};
