//! What makes the bytes of a file durable, system by system. Nothing is tried again but a call that was interrupted before it began: after a failure
//! the kernel may count lost pages as clean. Plain functions.

use rustix::fd::AsFd;
use rustix::io::{Errno, retry_on_intr};

/// The file's bytes, and what reading them back takes of its metadata.
pub(super) fn data(fd: impl AsFd) -> Result<(), Errno> {
    #[cfg(target_vendor = "apple")]
    return all(fd);
    #[cfg(not(target_vendor = "apple"))]
    retry_on_intr(|| rustix::fs::fdatasync(&fd))
}

/// All of a file, or the names in a directory.
pub(super) fn all(fd: impl AsFd) -> Result<(), Errno> {
    // On Apple's systems fsync hands the bytes to the drive, which may keep them in its cache when the power goes.
    #[cfg(target_vendor = "apple")]
    match retry_on_intr(|| rustix::fs::fcntl_fullfsync(&fd)) {
        // Some file systems (those of a network, say) have nothing better than fsync.
        Err(Errno::NOTSUP | Errno::INVAL | Errno::NOTTY) => {}
        done => return done,
    }
    retry_on_intr(|| rustix::fs::fsync(&fd))
}
