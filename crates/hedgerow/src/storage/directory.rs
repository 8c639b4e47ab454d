//! What a directory says of a name, and the lock under which names in it are compared and changed.
//!
//! Rank 1. See `names.rs` for the rules. No state but the lock; any number of threads and processes.

use super::failed::failed;
use super::parent_directory;
use crate::error::{Error, ErrorKind, Result};
use hedgerow_sync::primitive::thread;
use rustix::fs::{FlockOperation, Mode, OFlags, Stat};
use rustix::io::{Errno, retry_on_intr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// Tries for the lock of a directory, [`WAIT`] apart: a fifth of a second. Whoever follows the rules holds it
/// for two system calls.
const TRIES: usize = 200;
const WAIT: Duration = Duration::from_millis(1);

/// The lock of a directory, if it could be had; held until it is dropped.
pub(super) struct DirectoryLock(Option<OwnedFd>);

impl DirectoryLock {
    /// Locks the directory that holds `path`, or holds nothing.
    pub(super) fn of(path: &Path) -> DirectoryLock {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = parent_directory(path);
        let opened = retry_on_intr(|| rustix::fs::open(directory, flags, Mode::empty()));
        let Ok(fd) = opened else { return DirectoryLock(None) };
        for _ in 0..TRIES {
            match retry_on_intr(|| rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive))
            {
                Ok(()) => return DirectoryLock(Some(fd)),
                Err(Errno::WOULDBLOCK) => thread::sleep(WAIT),
                // The file system does not lock directories.
                Err(_) => break,
            }
        }
        DirectoryLock(None)
    }
}

impl Drop for DirectoryLock {
    /// Unlocks expressly: a process that was just forked may hold a copy of the descriptor.
    fn drop(&mut self) {
        if let Some(fd) = &self.0 {
            // A failure has nobody to be told to, and closing, which follows, unlocks as well.
            retry_on_intr(|| rustix::fs::flock(fd, FlockOperation::Unlock)).ok();
        }
    }
}

/// Whether `path` leads to the file `this`, by symbolic links or without.
pub(super) fn leads_to(path: &Path, this: &Stat) -> Result<bool> {
    match retry_on_intr(|| rustix::fs::stat(path)) {
        Ok(there) => Ok((this.st_dev, this.st_ino) == (there.st_dev, there.st_ino)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(errno) => Err(failed("examine", path, errno)),
    }
}

/// Whether `path` names the file `this` itself. A path on which nobody gets to any file does not.
pub(super) fn names_file(path: &Path, this: &Stat) -> Result<bool> {
    match retry_on_intr(|| rustix::fs::lstat(path)) {
        Ok(there) => Ok((this.st_dev, this.st_ino) == (there.st_dev, there.st_ino)),
        Err(
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::ACCESS
            | Errno::LOOP
            | Errno::NAMETOOLONG
            | Errno::STALE,
        ) => Ok(false),
        Err(errno) => Err(failed("examine", path, errno)),
    }
}

/// Whether a symbolic link has that path, and leads to no file.
pub(super) fn is_dangling(path: &Path) -> bool {
    retry_on_intr(|| rustix::fs::readlink(path, Vec::new())).is_ok()
        && retry_on_intr(|| rustix::fs::stat(path)).err() == Some(Errno::NOENT)
}

/// The error for a path that is a symbolic link which leads to no file.
#[cold]
pub(super) fn leads_nowhere(path: &Path) -> Error {
    let what =
        format!("cannot open {}: it is a symbolic link that leads to no file", path.display());
    Error::new(ErrorKind::FileNotFound, what)
}

#[cfg(all(test, not(shuttle)))]
#[allow(clippy::disallowed_methods, reason = "these tests look at files from outside")]
mod tests {
    use super::*;
    use crate::storage::{DirectIo, Disk, IoEngine, OpenMode, RealDisk};

    /// Another session holds the lock of the directory, and replaces the file before it lets go.
    #[test]
    fn a_name_that_is_replaced_before_the_directory_is_unlocked_is_not_taken_away() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let disk = RealDisk::new(IoEngine::Sync).unwrap();
        let file = disk.open(&path("log"), OpenMode::CreateNew, DirectIo::Never).unwrap();
        std::fs::write(path("other"), b"a letter").unwrap();
        let held = DirectoryLock::of(&path("log"));
        if held.0.is_none() {
            let why = "the temporary directory cannot be locked";
            return crate::testing::not_run("locks of directories", why);
        }
        let (at, named) = (path("log"), file.clone());
        let taken = thread::spawn_named("unlinks", move || {
            RealDisk::new(IoEngine::Sync).unwrap().unlink_own(&at, &*named).unwrap()
        });
        let taken = taken.unwrap();
        // It has begun by then, and waits.
        thread::sleep(Duration::from_millis(20));
        std::fs::rename(path("other"), path("log")).unwrap();
        drop(held);
        assert!(!taken.join().unwrap());
        assert_eq!(std::fs::read(path("log")).unwrap(), b"a letter");
    }

    #[test]
    fn a_name_is_changed_only_if_it_names_the_file_itself() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let disk = RealDisk::new(IoEngine::Sync).unwrap();
        let new =
            |name: &str| disk.open(&path(name), OpenMode::CreateNew, DirectIo::Never).unwrap();
        let (ours, others) = (new("ours"), new("others"));
        std::os::unix::fs::symlink(path("ours"), path("link")).unwrap();
        for name in ["others", "link", "nothing", "ours/nothing"] {
            assert!(!disk.unlink_own(&path(name), &*ours).unwrap(), "{name}");
            assert!(!disk.rename_own(&path(name), &*ours, &path("to"), None).unwrap(), "{name}");
            let over = Some(&*ours);
            let renamed = disk.rename_own(&path("others"), &*others, &path(name), over);
            assert!(!renamed.unwrap(), "{name}");
        }
        let taken = disk.rename_own(&path("ours"), &*ours, &path("others"), None).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::FileExists);
        let taken = disk.rename_own(&path("ours"), &*ours, &path("link"), None).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::FileExists);
        assert!(disk.rename_own(&path("ours"), &*ours, &path("to"), None).unwrap());
        let over = Some(&*others);
        assert!(disk.rename_own(&path("to"), &*ours, &path("others"), over).unwrap());
        assert!(ours.is_named(&path("others")).unwrap());
        assert!(disk.unlink_own(&path("others"), &*ours).unwrap());
        let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "the link, which leads nowhere now");
        assert!(disk.is_dangling(&path("link")).unwrap() && disk.exists(&path("link")).unwrap());
    }
}
