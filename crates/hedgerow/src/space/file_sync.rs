//! The syncs of the store's file: one after the other, and none after one that has failed.
//!
//! A checkpoint and the log's flusher both sync it, each for what it has written itself. A system tells of what it could not
//! write to the first who asks, and once: whoever asks next hears that all is well, though what he wrote may be lost.
//!
//! Invariant: a sync that returns without an error was begun after every earlier one had ended without one. `Send + Sync`;
//! who waits here waits for the disk, and whoever syncs waits for nobody.

use crate::error::{Error, Result};
use hedgerow_sync::primitive::Mutex;

/// See the head of the file.
#[derive(Default)]
pub(super) struct FileSync {
    failed: Mutex<Option<Error>>,
}

impl FileSync {
    /// Runs `sync`, unless an earlier one has failed.
    ///
    /// Errors: those of `sync`, and from then on the same for everybody.
    pub(super) fn run(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut failed = self.failed.lock();
        if let Some(error) = &*failed {
            return Err(error.duplicate());
        }
        sync().inspect_err(|error| *failed = Some(error.duplicate()))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn after_a_failure_nothing_is_synced_any_more() {
        let syncs = FileSync::default();
        syncs.run(|| Ok(())).unwrap();
        let failed = syncs.run(|| Err(Error::new(ErrorKind::Io, "no")));
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Io);
        let again = syncs.run(|| panic!("the disk is not asked again"));
        assert_eq!(again.unwrap_err().to_string(), "no");
    }
}
