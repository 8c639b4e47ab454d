//! The images as files of a FUSE file system of our own: image 7 is the file `disk-7`.
//!
//! Nothing is cached by the kernel: files are open for direct I/O, so that each read and write is a call here. A flush of
//! the block device that lies over a file is an `fsync` here; FUSE's own `flush` and `release` say that somebody closes
//! the file, and make nothing durable. Requests are served one by one, by a thread that waits for nothing but the lock of
//! the images: were it to wait for what is mounted over them, nothing would ever go on.

use crate::device::{Device, Refused};
use crate::failure::Failure;
use crate::system::{self, Directory};
use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long the kernel may rely on names and lengths, which never change.
const VALID: Duration = Duration::from_secs(3600);
const NAME: &str = "disk-";
/// Number of the file of image 0, if there were one: the directory has 1.
const FIRST_INODE: u64 = 1;

/// The file system.
struct Served {
    device: Arc<Device>,
}

fn errno(refused: Refused) -> Errno {
    match refused {
        Refused::Failed => Errno::EIO,
        Refused::Outside => Errno::ENXIO,
    }
}

fn image_of(inode: INodeNo) -> u64 {
    u64::from(inode).saturating_sub(FIRST_INODE)
}

impl Served {
    fn attributes(&self, inode: INodeNo) -> Result<FileAttr, Errno> {
        let (kind, size, perm) = if inode == INodeNo::ROOT {
            (FileType::Directory, 0, 0o700)
        } else {
            let bytes = self.device.len_bytes(image_of(inode)).map_err(|_| Errno::ENOENT)?;
            (FileType::RegularFile, bytes, 0o600)
        };
        Ok(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 4096,
        })
    }

    fn reply_attributes(&self, inode: INodeNo, reply: ReplyAttr) {
        match self.attributes(inode) {
            Ok(attributes) => reply.attr(&VALID, &attributes),
            Err(error) => reply.error(error),
        }
    }
}

impl Filesystem for Served {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let number = name.to_str().and_then(|name| name.strip_prefix(NAME)?.parse::<u64>().ok());
        let attributes = number
            .ok_or(Errno::ENOENT)
            .and_then(|number| self.attributes(INodeNo(number.saturating_add(FIRST_INODE))));
        match attributes {
            Ok(attributes) => reply.entry(&VALID, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.reply_attributes(inode, reply);
    }

    /// Times and the like are nobody's business here.
    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.reply_attributes(inode, reply);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.device.read(image_of(inode), offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(refused) => reply.error(errno(refused)),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.device.write(image_of(inode), offset, bytes) {
            Ok(()) => reply.written(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
            Err(refused) => reply.error(errno(refused)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.device.flush(image_of(inode)) {
            Ok(()) => reply.ok(),
            Err(refused) => reply.error(errno(refused)),
        }
    }

    /// No holes, as on a disk without discards: whoever wants zeros writes them.
    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EOPNOTSUPP);
    }
}

/// The images as files, while this lives.
pub struct ServedImages {
    session: Option<BackgroundSession>,
    /// Dropped last.
    directory: Directory,
}

impl ServedImages {
    /// Serves the images in this directory.
    ///
    /// Errors: if nothing can be mounted there.
    pub fn mount(device: Arc<Device>, directory: Directory) -> Result<ServedImages, Failure> {
        let mut config = Config::default();
        config.mount_options =
            vec![MountOption::FSName("hedgerow-powercut".into()), MountOption::NoDev];
        let session = Session::new(Served { device }, directory.path(), &config)
            .and_then(Session::spawn)
            .map_err(|error| Failure::Cannot(format!("cannot mount through /dev/fuse: {error}")))?;
        Ok(ServedImages { session: Some(session), directory })
    }

    /// The file of an image.
    pub fn path(&self, image: u64) -> PathBuf {
        self.directory.path().join(format!("{NAME}{image}"))
    }
}

impl Drop for ServedImages {
    fn drop(&mut self) {
        let ended = self.session.take().map(BackgroundSession::umount_and_join);
        if let Some(Err(error)) = ended {
            // Somebody still has one open: without us, all that it asks for fails.
            eprintln!(
                "power-cuts: cannot unmount the images, and leave them to themselves: {error}"
            );
            system::unmount_lazily(self.directory.path());
        }
    }
}
