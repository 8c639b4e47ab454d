//! Large values in the file: the units of extents, and the memory between a value and its units.
//!
//! Rank 2, a part of `space`. `chunks` says where the bytes of an extent lie, and checks them. `units` finds, holds and frees units,
//! under the lock of [`super::slot_store`], and `extent_space` and `births` have the account of that. `loans` lends memory, `staging` has
//! values on their way to the file, and `door` lets writers to it. `store` is above them and [`super::slot_store`]: what readers and
//! writers call.

mod births;
mod chunks;
mod door;
mod extent_space;
mod loans;
mod staging;
mod store;
mod units;

pub use chunks::{
    CHUNK_HEADER_BYTES, ChunkPlace, chunk_bytes, is_chunk, seal_chunk, units_of_value,
};
pub(super) use door::Door;
pub(super) use extent_space::ExtentSpace;
pub use extent_space::FixedReader;
pub(super) use loans::Loans;
pub use loans::{Borrower, Loan, LoanFor, Need};
pub use staging::Staging;
pub use store::{Reading, ReadingOne};
