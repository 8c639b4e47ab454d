//! What orders the changes of a pool: the addresses of a log, or else a clock.
//!
//! `Send + Sync`. Who sets the log and who asks the clock is the matter of `entry.rs`.

use crate::types::Lsn;
use crate::versions::Clock;
use crate::wal::Log;
use hedgerow_sync::primitive::{Arc, OnceLock};

/// What orders changes: the addresses of a log, or else a clock.
pub struct Order {
    pub(super) log: OnceLock<Arc<Log>>,
    pub(super) clock: Clock,
}

impl Order {
    pub(super) fn new(first: Lsn) -> Order {
        Order { log: OnceLock::new(), clock: Clock::new(first) }
    }
}
