//! Old versions that take too much memory go to the file, at the end of a checkpoint; and keys that were removed, of which memory or the file knows.
//!
//! Rank 6. `versions/freeze.rs` has the steps, and what a snapshot reads; `buffer/versions_writer.rs` has the file. The memory to sort in is lent by the share of large values. A
//! store without such a share, or in memory, keeps its versions where they are.

use super::Shared;
use super::snapshots::OpenSnapshot;
use crate::buffer::VersionsWriter;
use crate::error::{ErrorKind, Result};
use crate::events;
use crate::space::large::Loan;
use crate::space::large::{LoanFor, chunk_bytes};
use crate::space::slot_store::SlotStore;
use crate::types::TreeId;
use crate::versions::Stretch;
use crate::wait::Wait;
use hedgerow_sync::primitive::Arc;
use std::ops::{Bound, RangeBounds};

/// Of the buffer, what is written with one call.
const OUTPUT_PART: usize = 8;

impl Shared {
    /// Writes the versions that pinned snapshots need to the file, if they take a good part of the memory for versions. Under the lock of
    /// checkpoints. Whatever fails, the versions are still in memory, and the next checkpoint tries it again.
    pub(super) fn freeze_versions(&self) {
        if let Err(error) = self.try_to_freeze() {
            match error.kind() {
                // There is no room for them just now, or the store takes no more changes.
                ErrorKind::DiskFull
                | ErrorKind::MemoryLimit
                | ErrorKind::WouldBlock
                | ErrorKind::Poisoned
                | ErrorKind::Closed => {}
                _ => events::freeze_failed(&error),
            }
        }
    }

    fn try_to_freeze(&self) -> Result<()> {
        let Some((versions, slots)) = self.pool.versions().zip(self.slots.as_ref()) else {
            return Ok(());
        };
        if self.read_only {
            return Ok(());
        }
        let Some(plan) = versions.plan_to_freeze()? else { return Ok(()) };
        if !versions.is_due_to_freeze(&plan) {
            return Ok(());
        }
        let mut buffer = self.lend_to_freeze(slots)?;
        let block_bytes = VersionsWriter::block_bytes(&self.pool, slots);
        let output_bytes = (buffer.len() / OUTPUT_PART).next_multiple_of(block_bytes);
        if output_bytes > buffer.len() {
            return Ok(());
        }
        // The first part: what is written is aligned.
        let (output, room) = buffer.split_at_mut(output_bytes);
        let writer = VersionsWriter::new(&self.pool, slots, self.process, output);
        versions.freeze(&plan, room, writer).map(|_| ())
    }

    /// Half of what nobody uses just now of the share of large values; nobody is waited for.
    fn lend_to_freeze(&self, slots: &Arc<SlotStore>) -> Result<Loan> {
        let chunk = chunk_bytes(slots.geometry()) as usize;
        let most = self.pool.budget().loan_bytes() as usize / chunk;
        slots.lend(most, LoanFor::Call, &Wait::Never.begin())
    }
}

impl OpenSnapshot {
    /// The keys within bounds that were removed while snapshots were open, in order; into `to`, which is cleared.
    ///
    /// Errors: `MemoryLimit`; those of reading old versions.
    pub fn removed_within(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        to: &mut Vec<Vec<u8>>,
    ) -> Result<()> {
        to.clear();
        let is_within = |key: &[u8]| RangeBounds::<[u8]>::contains(&(Bound::Unbounded, upper), key);
        self.for_each_removed(tree, lower, is_within, |key| {
            to.push(key.to_vec());
            Ok(())
        })?;
        // Behind that: what memory has no longer is in the file.
        let in_memory = to.len();
        let stretch = Stretch { tree, lower, upper };
        self.versions().for_each_frozen(self.ticket(), stretch, &mut |record| {
            if record.is_listed {
                to.push(record.key.to_vec());
            }
        })?;
        if to.len() > in_memory {
            to.sort_unstable();
            to.dedup();
        }
        Ok(())
    }

    /// Calls `each` with the removed keys that memory knows of, from a bound on and as long as `is_within` says so.
    pub(super) fn for_each_removed(
        &self,
        tree: TreeId,
        from: Bound<&[u8]>,
        is_within: impl Fn(&[u8]) -> bool,
        mut each: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut from = from.map(<[u8]>::to_vec);
        let mut key = Vec::new();
        while self.versions().removed_from(tree, from.as_ref().map(Vec::as_slice), &mut key)?
            && is_within(&key)
        {
            each(&key)?;
            from = Bound::Excluded(key.clone());
        }
        Ok(())
    }
}
