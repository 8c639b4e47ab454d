//! Replaced values of a store in memory that snapshots may see.
//!
//! Invariant: they are in the order of their LSNs. Plain data behind the pool's lock of them.

use crate::large::Held;
use crate::types::Lsn;

/// So many are kept before anybody looks whether snapshots still see them.
pub(super) const LEAST_LOOKED_AT: usize = 16;

/// See the head of the file.
#[derive(Default)]
pub(in crate::buffer) struct OldValues {
    /// Each with an LSN that is not below that of the change which replaced it.
    pub(super) values: Vec<(Lsn, Held)>,
    /// How many there may be before all are looked at.
    pub(super) look_at: usize,
}
