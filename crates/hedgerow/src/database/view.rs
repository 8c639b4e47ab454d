//! What a snapshot or a transaction sees of a keyspace, as one trait to implement.
//!
//! Rank 7. A [`View`] gives values as leaves have them, one by one or by the stretch. All reads over it are in [`super::reads`].
//! Thread-safety: `Send + Sync`.

use crate::database::inner::Inner;
use crate::database::long::Spot;
use crate::database::stretch::Stretches;
use crate::database::values::{Resolved, Seen, read_whole};
use crate::error::Result;
use crate::large::{Stored, read_stored};
use crate::store::{Found, OpenSnapshot, PoolTree};
use hedgerow_sync::primitive::Arc;

/// See the head of the file.
pub(super) trait View: Send + Sync {
    /// What the database's handles share.
    fn inner(&self) -> &Arc<Inner>;

    /// Whether it may be read.
    ///
    /// Errors: `Closed`; `ForkedProcess`; `TransactionEnded`.
    fn check(&self) -> Result<()>;

    /// The value of a key, if it may be read: as [`Self::check`] has it.
    ///
    /// Errors: those of reads and of [`Self::check`]; `SnapshotTooOld`.
    fn see(&self, key: &[u8]) -> Result<Option<Seen>>;

    /// Where a long key is among the records of the tree.
    ///
    /// Errors: those of [`Self::see`].
    fn spot(&self, key: &[u8]) -> Result<Spot>;

    /// The records, by the stretch.
    fn stretches(&self) -> Box<dyn Stretches>;

    /// What keeps values.
    ///
    /// Errors: `TransactionEnded`.
    fn snapshot(&self) -> Result<Arc<OpenSnapshot>>;

    /// Which tree it is, by a handle that waits as its calls do, and takes records with labels.
    fn tree(&self) -> &PoolTree;

    /// What a value in a stored form stands for.
    ///
    /// Errors: those of reads.
    fn resolve(&self, found: &[u8]) -> Result<Found> {
        self.snapshot()?.resolve(found, self.tree().wait())
    }

    /// What a value in a stored form stands for, into `to`; and whether it was read.
    ///
    /// Errors: those of reads; `MemoryLimit` if there is no memory for it.
    fn resolve_into(&self, found: &[u8], to: &mut Vec<u8>) -> Result<Resolved> {
        to.clear();
        if self.inner().store.append_kept(found, to) {
            return Ok(Resolved::InMemory);
        }
        *to = read_whole(&self.inner().store, self.resolve(found)?)?.into_vec();
        Ok(Resolved::Read)
    }

    /// Whether a value in a stored form is a short one all the same.
    fn is_escaped(&self, found: &[u8]) -> bool {
        matches!(read_stored(found), Stored::Plain(_))
    }
}
