//! What a keyspace does where it has to wait.

mod stalled;
mod waiting;
