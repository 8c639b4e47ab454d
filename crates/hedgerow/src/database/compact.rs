//! Fewer pages for the same records, on request: of a keyspace, and of the whole file.
//!
//! Rank 7. What users need to know stands with [`Keyspace::compact`] and [`Database::shrink`]. No state of its own.

use crate::database::database::Database;
use crate::database::keyspace::Keyspace;
use crate::error::{Error, ErrorKind, Result};
use crate::tree::{CompactBudget, CompactReport};
use std::ops::ControlFlow;

/// Checkpoints in a row that find nothing to write and do not make the file shorter, after which it counts as short.
const IN_VAIN: u32 = 2;

/// Checkpoints that [`Database::shrink`] takes at most: others may write meanwhile, so that the file becomes longer again.
const MOST_CHECKPOINTS: u32 = 200;

/// What [`Database::shrink`] has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShrinkReport {
    /// What was merged in all keyspaces together.
    pub compacted: CompactReport,
    /// Keyspaces that were compacted.
    pub keyspaces: u64,
    /// Bytes of the file before; zero in memory.
    pub before_bytes: u64,
    /// Bytes of the file afterwards; zero in memory.
    pub after_bytes: u64,
}

impl Keyspace {
    /// Merges leaves whose records fit into fewer: the records of up to five neighbouring leaves are spread evenly over one leaf fewer,
    /// up to full leaves, from the first key to the last or as far as `budget` goes. More records fit into memory then. The file gains
    /// less, because a page takes only as much of it as the page has content; [`Database::shrink`] also shortens the file. Records that are
    /// put at random later find their leaf full and split it, so compact what seldom changes, or what was deleted from.
    ///
    /// It reads all leaves, and rewrites those that it merges. Dense leaves stay as they are. Nothing is logged. Other threads go
    /// on: a group of leaves is latched only while it is copied.
    ///
    /// `progress` is called at each leaf, on this thread and with nothing held, with the number of leaves passed so far. `Break` ends the call with
    /// `Cancelled`. What was merged before an error stays merged; no record is lost by any of them.
    ///
    /// ```
    /// # use hedgerow::{CompactBudget, Options};
    /// # use std::ops::ControlFlow;
    /// # fn main() -> hedgerow::Result<()> {
    /// # let db = Options::new().in_memory()?;
    /// # let birds = db.keyspace("birds")?;
    /// let done = birds.compact(&CompactBudget::unlimited(), |_leaves| ControlFlow::Continue(()))?;
    /// println!("{} pages freed", done.pages_freed);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The [errors of changes](Keyspace#errors-of-changes): [`ReadOnly`](ErrorKind::ReadOnly), [`DiskFull`](ErrorKind::DiskFull) and
    /// [`Poisoned`](ErrorKind::Poisoned) among them, even if there is nothing to merge. [`Cancelled`](ErrorKind::Cancelled).
    pub fn compact(
        &self,
        budget: &CompactBudget,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<CompactReport> {
        self.inner.check_open()?;
        let inner = &self.inner;
        let mut forked = Ok(());
        let compacted = self.tree.compact(budget, &mut |leaves| {
            let answer = progress(leaves);
            // Whatever the pages were to this process, they are the parent's.
            forked = inner.check_process().and_then(|()| inner.check_open());
            if forked.is_err() { ControlFlow::Break(()) } else { answer }
        });
        forked.and(compacted)
    }
}

impl Database {
    /// Makes the file shorter: compacts all keyspaces ([`Keyspace::compact`]), and takes checkpoints until the file stops
    /// shrinking. Then it empties the parts of the file that have gaps, one after the other, and fills them with what lies at the end. In
    /// memory it only compacts. The file ends no longer than it was, but for 256 KiB of room for the next changes at most;
    /// meanwhile it is longer. Blocks until this is done, which reads all pages and writes most of them two or three times; other
    /// threads go on, and if they write meanwhile, or keep a backup or a check going, the file stays longer.
    ///
    /// `progress` is called now and then, on this thread, with the number of leaves passed so far. `Break` ends the call with `Cancelled`.
    /// What was done before an error stays done; no record is lost by any of them.
    ///
    /// # Errors
    /// Those of [`Keyspace::compact`] and [`Database::checkpoint`].
    pub fn shrink(&self, mut progress: impl FnMut(u64) -> ControlFlow<()>) -> Result<ShrinkReport> {
        let mut shrunk =
            ShrinkReport { before_bytes: self.stats()?.file_bytes, ..ShrinkReport::default() };
        for name in self.keyspaces()? {
            let Some(keyspace) = self.open_keyspace(&name)? else { continue };
            let before = shrunk.compacted.leaves;
            match keyspace.compact(&CompactBudget::unlimited(), |leaves| progress(before + leaves))
            {
                // It was dropped meanwhile, which frees all of its pages.
                Err(error) if error.kind() == ErrorKind::KeyspaceDropped => continue,
                compacted => shrunk.compacted.add(&compacted?),
            }
            shrunk.keyspaces += 1;
        }
        self.take_checkpoints(&mut || progress(shrunk.compacted.leaves))?;
        let mut is_cancelled = false;
        self.inner.store.repack(|| {
            is_cancelled = progress(shrunk.compacted.leaves).is_break();
            !is_cancelled
        })?;
        if is_cancelled {
            return Err(cancelled());
        }
        self.take_checkpoints(&mut || progress(shrunk.compacted.leaves))?;
        shrunk.after_bytes = self.stats()?.file_bytes;
        Ok(shrunk)
    }

    /// Takes checkpoints until the file gets no shorter by that.
    fn take_checkpoints(&self, progress: &mut dyn FnMut() -> ControlFlow<()>) -> Result<()> {
        let mut in_vain = 0;
        for _ in 0..MOST_CHECKPOINTS {
            let before_bytes = self.stats()?.file_bytes;
            let is_idle = self.inner.store.checkpoint_to_shrink()?;
            // One that has something to write leaves room for the next; only one that has not does what can be done.
            let is_shorter = self.stats()?.file_bytes < before_bytes;
            in_vain = if is_idle && !is_shorter { in_vain + 1 } else { 0 };
            if in_vain == IN_VAIN {
                break;
            }
            if progress().is_break() {
                return Err(cancelled());
            }
        }
        Ok(())
    }
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "shrinking was cancelled")
}
