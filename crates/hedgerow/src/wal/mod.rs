//! The log: what was acknowledged and is not yet in a checkpoint.
//!
//! Rank 2. Logical: it holds what the user did, never how pages changed, so splits, merges and conversions cost
//! no log. The pieces:
//!
//! - [`record`]: the grammar of records.
//! - [`block`]: blocks, segments and the file's first block, with all the arithmetic.
//! - [`ring`]: the blocks in memory, filled by many writers without a lock.
//! - [`places`]: where segments lie in the file.
//! - [`log`] and `flush`: promise, append, write, sync, wait. `reserve`: room for whole batches. `delay`: changes that
//!   are slowed down.
//! - `durable`, `waiters`, `tickets`: who waits for the disk, and how they are told.
//! - `scan`: reading it back; `reread`: single records of it once more.
//!
//! What holds: the durable LSN is the end of a prefix of the log; a block that was submitted is never written
//! again; no address is ever given out twice, not by a later log of the same store either.

mod ahead;
pub mod block;
mod delay;
mod draw_in;
mod durable;
mod flush;
pub mod log;
pub mod places;
pub mod record;
mod reread;
mod reserve;
pub mod ring;
mod room_queue;
pub mod scan;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod tickets;
mod waiters;

pub use block::{FileHeader, LogIdentity, SegmentSize};
pub use log::{Growth, Log, LogOptions, Pace, Promised};
pub use record::{BatchId, Decoded, MADE_BYTES, RECORD_HEADER_BYTES, Record, commit_id};
pub use reread::Reread;
pub use reserve::Reservation;
pub use ring::Appended;
pub use scan::{ScanEnd, ScanFrom, has_blocks, read_header, scan, write_tail_again};
pub use tickets::{Ticket, Told};
