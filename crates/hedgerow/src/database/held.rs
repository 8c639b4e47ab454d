//! What keeps old states of a database, and for how long: [`Database::held_states`].
//!
//! Rank 7. Plain data.

use crate::database::database::Database;
use crate::types::Lsn;
use hedgerow_sync::primitive::time::{Instant, instant};

/// An old state of the database that is kept, and for whom. See [`Database::held_states`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldState {
    /// Who holds it.
    pub by: HeldBy,
    /// Since when; `None` for a commit.
    pub since: Option<Instant>,
    /// The moment that it sees: the position in the log behind the last change.
    pub lsn: Lsn,
    /// The position in the log of the checkpoint that is kept for it; `None` while it needs none.
    pub checkpoint: Option<Lsn>,
    /// Bytes of the file that are not used again because of that checkpoint, without those of large values, and those of old versions that were
    /// written to the file. What several need counts for each of them, and what the next checkpoint finds comes to it. Zero without a checkpoint: then old versions in memory are kept
    /// ([`SnapshotStats::versions_bytes`](crate::SnapshotStats::versions_bytes)).
    pub bytes_held: u64,
}

/// Who holds a [`HeldState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeldBy {
    /// A [`Snapshot`](crate::Snapshot), or that of a transaction.
    Snapshot,
    /// A batch or a transaction that is too large to be made at one stroke (see [`WriteBatch`](crate::WriteBatch)), while it is being made.
    Commit,
}

impl Database {
    /// The snapshots that are open, those of transactions included, and a large commit that is being made, the oldest first. Old states are
    /// kept for them: in memory, and from the next checkpoint on in the file, which gets longer by what is changed. Backups, which keep
    /// a checkpoint while they run, are not among them. Cheap: it waits for nothing and reads no file. Empty
    /// when the database was closed, and in a forked process.
    ///
    /// ```
    /// let db = hedgerow::Options::new().in_memory()?;
    /// let snapshot = db.snapshot()?;
    /// let held = db.held_states();
    /// assert_eq!((held.len(), held[0].lsn), (1, snapshot.lsn()));
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    #[must_use]
    pub fn held_states(&self) -> Vec<HeldState> {
        if self.inner.check_open().is_err() {
            return Vec::new();
        }
        let now = instant();
        let mut held: Vec<HeldState> = self
            .inner
            .store
            .kept()
            .into_iter()
            .map(|kept| HeldState {
                by: if kept.age.is_some() { HeldBy::Snapshot } else { HeldBy::Commit },
                since: kept.age.and_then(|age| now.checked_sub(age)),
                lsn: kept.at,
                checkpoint: kept.pin.as_ref().map(|pin| pin.cut()),
                bytes_held: kept.pin.as_ref().map_or(0, |pin| pin.held_bytes()) + kept.frozen_bytes,
            })
            .collect();
        held.sort_by_key(|state| state.lsn);
        held
    }
}
