//! What a keyspace does where it has to wait, and with records that are damaged.

mod ends;
mod given_up;
pub(super) mod stalled;
mod waiting;
