//! The lock that keeps a second process out of a store.
//!
//! Rank 6. Whoever opens, makes, salvages or copies a store takes it.

use crate::error::{Error, ErrorKind, Result};
use crate::storage::{File, LockOutcome, process_has_ended};
use hedgerow_sync::primitive::thread;
use std::time::Duration;

/// Tries for the lock of a process that has ended, [`LOCK_WAIT`] apart: five seconds.
const LOCK_TRIES: usize = 500;
const LOCK_WAIT: Duration = Duration::from_millis(10);
/// Tries for a lock whose holder the system does not name, because it has let go meanwhile or is out of
/// sight, or has ended and is known by no number any more: a second.
const UNNAMED_TRIES: usize = 100;

/// Locks the file, or says who has. A process that was killed may hold its lock for a moment longer, until
/// the kernel has taken down what it had under way: that moment is waited for.
pub(super) fn lock(file: &dyn File, exclusive: bool) -> Result<()> {
    for attempt in 0.. {
        match file.try_lock(exclusive)? {
            LockOutcome::Held => return Ok(()),
            LockOutcome::Busy { holder_pid: Some(pid) }
                if attempt < LOCK_TRIES && process_has_ended(pid) =>
            {
                thread::sleep(LOCK_WAIT);
            }
            LockOutcome::Busy { holder_pid: None } if attempt < UNNAMED_TRIES => {
                thread::sleep(LOCK_WAIT);
            }
            LockOutcome::Busy { holder_pid } => {
                let what = match holder_pid == Some(std::process::id()) {
                    true => "this process has the store open already; clone that `Database`",
                    false => "the store is open elsewhere, in this process or in another",
                };
                return Err(Error::new(ErrorKind::Locked { holder_pid }, what));
            }
        }
    }
    unreachable!("the attempts end with a lock or an error")
}
