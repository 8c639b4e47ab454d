//! Which errors say that a call was refused, and not that it failed.
//!
//! Rank 1. No state. A kernel or a file system that does not know a call says so in several ways, and a sandbox (a seccomp
//! filter, which may be set at any time) in whichever its author chose. Nothing has been done then, so whoever has another way
//! takes it, and that way reports what is really wrong.

use rustix::io::Errno;

/// Whether a ring has given a request back without having begun with it, because there was no thread or no memory for that. A plain call
/// needs neither. Not of any other call: there want of memory may have come in the middle.
#[cfg(target_os = "linux")]
pub(super) fn is_not_begun(errno: Errno) -> bool {
    matches!(errno, Errno::CANCELED | Errno::NOMEM)
}

/// Whether a call with sound arguments was refused before it did anything.
pub(super) fn is_refused(errno: Errno) -> bool {
    matches!(errno, Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS | Errno::INVAL)
}
