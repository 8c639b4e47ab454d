//! Giving a file a path that nothing has, atomically, in whichever way the file system can.
//!
//! Rank 1. No state. In this order: a rename that replaces nothing; a second link and the removal of the
//! first (network file systems); a rename over an empty file that was made for it and is locked
//! meanwhile (file systems without links). Only in the third can a crash leave something else than
//! before or after: an empty file, which is no store and may become one.

use super::failed::{failed, failed_on_path};
use super::refused::is_refused;
use crate::error::Result;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::path::Path;

/// See [`super::Disk::rename_new`].
pub(super) fn rename_new(from: &Path, to: &Path) -> Result<()> {
    let ways = [without_replacing, by_link, over_a_placeholder];
    let mut refusal = Errno::NOSYS;
    for way in ways {
        match way(from, to) {
            Ok(()) => return Ok(()),
            Err(errno) if cannot(errno) => refusal = errno,
            Err(Errno::EXIST) => return Err(failed_on_path("create", to, Errno::EXIST)),
            Err(errno) => return Err(failed_on_path("rename", from, errno)),
        }
    }
    Err(failed("rename", from, refusal))
}

/// Whether the file system, or the kernel, does not know such a call.
fn cannot(errno: Errno) -> bool {
    is_refused(errno) || errno == Errno::MLINK
}

#[cfg(target_os = "linux")]
fn without_replacing(from: &Path, to: &Path) -> rustix::io::Result<()> {
    use rustix::fs::{CWD, RenameFlags};
    retry_on_intr(|| rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE))
}

#[cfg(not(target_os = "linux"))]
fn without_replacing(_from: &Path, _to: &Path) -> rustix::io::Result<()> {
    Err(Errno::NOSYS)
}

fn by_link(from: &Path, to: &Path) -> rustix::io::Result<()> {
    retry_on_intr(|| rustix::fs::link(from, to))?;
    match retry_on_intr(|| rustix::fs::unlink(from)) {
        // The new name goes again, so that another way finds everything as it was. Where that is refused as well the file has
        // both names, and the next way says that the new one is taken.
        Err(errno) => {
            retry_on_intr(|| rustix::fs::unlink(to)).ok();
            Err(errno)
        }
        done => done,
    }
}

fn over_a_placeholder(from: &Path, to: &Path) -> rustix::io::Result<()> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let placeholder = retry_on_intr(|| rustix::fs::open(to, flags, Mode::RUSR | Mode::WUSR))?;
    // Whoever makes a store of an empty file locks it first: from here on nobody does, and if somebody
    // has done so meanwhile, then it is theirs.
    let lock = FlockOperation::NonBlockingLockExclusive;
    let locked = retry_on_intr(|| rustix::fs::flock(&placeholder, lock));
    if locked.is_err() || rustix::fs::fstat(&placeholder)?.st_size != 0 {
        return Err(Errno::EXIST);
    }
    retry_on_intr(|| rustix::fs::rename(from, to)).inspect_err(|_| {
        let is_ours = match (rustix::fs::fstat(&placeholder), rustix::fs::lstat(to)) {
            (Ok(this), Ok(there)) => (this.st_dev, this.st_ino) == (there.st_dev, there.st_ino),
            _ => false,
        };
        if is_ours {
            retry_on_intr(|| rustix::fs::unlink(to)).ok();
        }
    })
}

#[cfg(all(test, not(shuttle)))]
#[allow(clippy::disallowed_methods, reason = "these tests look at files from outside")]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn every_way_moves_the_file_and_replaces_nothing() {
        type Way = fn(&Path, &Path) -> rustix::io::Result<()>;
        let mut ways: Vec<(&str, Way)> =
            vec![("link", by_link), ("placeholder", over_a_placeholder)];
        if cfg!(target_os = "linux") {
            ways.push(("rename", without_replacing));
        }
        for (name, way) in ways {
            let directory = tempfile::tempdir().unwrap();
            let path = |name: &str| directory.path().join(name);
            std::fs::write(path("from"), b"new").unwrap();
            std::fs::write(path("taken"), b"").unwrap();
            assert_eq!(way(&path("from"), &path("taken")), Err(Errno::EXIST), "{name}");
            assert_eq!(std::fs::read(path("taken")).unwrap(), b"", "{name}");
            assert_eq!(way(&path("from"), &path("to")), Ok(()), "{name}");
            assert_eq!(std::fs::read(path("to")).unwrap(), b"new", "{name}");
            assert!(!path("from").exists(), "{name}");
        }
    }

    #[test]
    fn what_is_there_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("taken"), b"").unwrap();
        let missing = rename_new(&path("from"), &path("to")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::FileNotFound);
        std::fs::write(path("from"), b"new").unwrap();
        let taken = rename_new(&path("from"), &path("taken")).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::FileExists);
        assert!(taken.to_string().contains("taken"), "{taken}");
    }
}
