//! Direct I/O: how a descriptor is switched to it and back, and in which units.
//!
//! Rank 1. No state.

use hedgerow_sync::primitive::atomic::{AtomicBool, Ordering};
use rustix::fs::OFlags;
use std::os::fd::OwnedFd;

#[cfg(target_os = "linux")]
pub(super) const DIRECT: OFlags = OFlags::DIRECT;
#[cfg(not(target_os = "linux"))]
pub(super) const DIRECT: OFlags = OFlags::empty();

/// The flags of a descriptor that can be set. Where the system does not tell them there are none to keep: we set
/// none but those for direct and for non-blocking calls.
pub(super) fn status_flags(fd: &OwnedFd) -> OFlags {
    rustix::fs::fcntl_getfl(fd).unwrap_or(OFlags::empty())
}

/// Switches a file to calls through the page cache, and notes that it is.
pub(super) fn leave(fd: &OwnedFd, is_direct: &AtomicBool) -> rustix::io::Result<()> {
    if is_direct.load(Ordering::Relaxed) {
        rustix::fs::fcntl_setfl(fd, status_flags(fd).difference(DIRECT))?;
        is_direct.store(false, Ordering::Relaxed);
    }
    Ok(())
}

/// The unit of direct I/O on a file that was opened for it.
pub(super) fn block_bytes(fd: &OwnedFd) -> usize {
    /// Holds on every device in use; taken where the kernel (before Linux 6.1) does not tell.
    const SAFE_BLOCK_BYTES: usize = 4096;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{AtFlags, StatxFlags};
        let told = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
            .ok()
            .filter(|stat| stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0)
            .map(|stat| stat.stx_dio_offset_align.max(stat.stx_dio_mem_align) as usize);
        if let Some(block) = told
            && block.is_power_of_two()
            && block <= crate::storage::aligned::ALIGNMENT_BYTES
        {
            return block.max(512);
        }
    }
    let _ = fd;
    SAFE_BLOCK_BYTES
}
