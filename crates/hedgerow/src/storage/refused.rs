//! Which errors say that a call was refused, and not that it failed.
//!
//! Rank 1. No state. A kernel or a file system that does not know a call says so in several ways, and a sandbox (a seccomp
//! filter, which may be set at any time) in whichever its author chose. Nothing has been done then, so whoever has another way
//! takes it, and that way reports what is really wrong.

use rustix::io::Errno;

/// Whether a call with sound arguments was refused before it did anything.
pub(super) fn is_refused(errno: Errno) -> bool {
    matches!(errno, Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS | Errno::INVAL)
}
