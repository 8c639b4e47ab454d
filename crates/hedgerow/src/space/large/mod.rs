//! Large values in the file: the units of extents, and the memory between a value and its units.
//!
//! Rank 2, a part of `space`. `chunks` says where the bytes of an extent lie, and checks them; `units` finds, holds and frees units,
//! under the lock of [`super::slot_store`]; `store` is what readers and writers call; `loans` lends them memory, and `staging` has short
//! values on their way to the file.

mod chunks;
mod loans;
mod staging;
mod store;
mod units;

pub use chunks::{
    CHUNK_HEADER_BYTES, ChunkPlace, chunk_bytes, is_chunk, seal_chunk, units_of_value,
};
pub(super) use store::ExtentIo;
pub use store::{Borrower, Loan, Reading, ReadingOne};
pub(super) use units::ExtentSpace;
