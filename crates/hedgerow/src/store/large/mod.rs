//! Large values of a store: written, read, copied, moved and verified.
//!
//! Rank 6, a part of `store`. `extent_io` writes and reads extents chunk by chunk, with `chunk_reads`; `find` finds them; `placed` puts values of up to two MiB; `read_ahead` reads
//! those that a scan will come to together; `copy` takes them to another file; `relocate` moves those that keep the file long;
//! `verify` is a pass of the verification.

mod chunk_reads;
mod copy;
mod extent_io;
mod find;
mod placed;
mod read_ahead;
pub(super) mod relocate;
mod verify;

pub(super) use copy::LargeCopy;
pub(super) use extent_io::check_large;
pub use extent_io::{ExtentReader, ExtentWriter};
pub use placed::PlacedValue;
