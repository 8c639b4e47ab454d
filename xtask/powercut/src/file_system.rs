//! The file systems of the kernel that are laid over an image: how they are made, mounted, and what they rely on.
//!
//! A disk of ours tears no unit that the file system takes for whole: the commit block of ext4's journal, the blocks of
//! xfs that are written in place, the superblock of btrfs. So ext4 is made with blocks of 1 KiB in half of the rounds, and
//! a page of the store may be torn at each of them. Plain values; what is mounted goes with its value.

use crate::device::{Device, Survived};
use crate::dice::Dice;
use crate::failure::Failure;
use crate::served::ServedImages;
use crate::system::{self, Attached, Directory, Mounted};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

/// A file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Ext4,
    Xfs,
    Btrfs,
}

impl Kind {
    /// Of this name.
    pub fn named(name: &str) -> Option<Kind> {
        [Kind::Ext4, Kind::Xfs, Kind::Btrfs].into_iter().find(|kind| kind.name() == name)
    }

    /// As `mount` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
            Kind::Btrfs => "btrfs",
        }
    }

    /// The program that makes one.
    pub fn maker(self) -> &'static str {
        match self {
            Kind::Ext4 => "mkfs.ext4",
            Kind::Xfs => "mkfs.xfs",
            Kind::Btrfs => "mkfs.btrfs",
        }
    }

    fn mount_options(self) -> &'static str {
        match self {
            // As distributions set it up.
            Kind::Ext4 => "noatime,errors=remount-ro",
            Kind::Xfs | Kind::Btrfs => "noatime",
        }
    }

    /// Bytes that are written as a whole.
    fn unit_bytes(self, dice: &mut Dice) -> u64 {
        match self {
            Kind::Ext4 if dice.percent(50) => 1024,
            _ => 4096,
        }
    }

    fn make(self, device: &Attached, unit_bytes: u64) -> Result<(), Failure> {
        let block = unit_bytes.to_string();
        let ext4 = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
        let arguments = match self {
            // A small journal is used up soon.
            Kind::Ext4 => {
                vec!["-q", "-F", "-b", &block, "-N", "512", "-J", "size=4", "-E", ext4]
            }
            Kind::Xfs => vec!["-q", "-f", "-K"],
            Kind::Btrfs => vec!["-q", "-f", "-K"],
        };
        system::run(self.maker(), &[arguments, vec![device.name()]].concat())
            .map(drop)
            .map_err(Failure::Cannot)
    }
}

/// An image, which is forgotten with its value.
pub struct Owned {
    device: Arc<Device>,
    number: u64,
}

impl Owned {
    /// Writes it to a file with holes where it is zero; errors in words.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        let write = || -> io::Result<()> {
            let gone = |_| io::Error::other("the image is forgotten");
            let len_bytes = self.device.len_bytes(self.number).map_err(gone)?;
            let mut file = File::create_new(path)?;
            file.set_len(len_bytes)?;
            let mut at = 0;
            while at < len_bytes {
                let piece = SAVED_BYTES.min(len_bytes - at);
                let bytes = self.device.read(self.number, at, piece as usize).map_err(gone)?;
                if bytes.iter().any(|byte| *byte != 0) {
                    file.seek(SeekFrom::Start(at))?;
                    file.write_all(&bytes)?;
                }
                at += piece;
            }
            Ok(())
        };
        write().map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}

/// What is saved at a time, or left out if it is zero.
const SAVED_BYTES: u64 = 64 << 10;

impl Drop for Owned {
    fn drop(&mut self) {
        self.device.remove(self.number);
    }
}

/// Where file systems are mounted.
pub struct Place {
    pub device: Arc<Device>,
    /// Dropped before the directory that it is in.
    pub served: ServedImages,
    pub mount_point: Directory,
}

/// A file system that is mounted over an image. What is dropped first stands first.
pub struct Disk<'a> {
    mounted: Mounted,
    attached: Attached,
    image: Owned,
    kind: Kind,
    place: &'a Place,
}

impl<'a> Disk<'a> {
    /// Makes a file system on a new image. All of it is durable; from there on flushes may lie.
    ///
    /// Errors: what the machine cannot.
    pub fn make(
        place: &'a Place,
        kind: Kind,
        len_bytes: u64,
        is_lying: bool,
        dice: &mut Dice,
    ) -> Result<Disk<'a>, Failure> {
        let unit_bytes = kind.unit_bytes(dice);
        let number = place.device.create(len_bytes, unit_bytes);
        let image = Owned { device: Arc::clone(&place.device), number };
        let attached = Attached::new(&place.served.path(number)).map_err(Failure::Cannot)?;
        kind.make(&attached, unit_bytes)?;
        let at = place.mount_point.path();
        let mounted = Mounted::new(kind.name(), kind.mount_options(), &attached, at)
            .map_err(Failure::Cannot)?;
        let disk = Disk { mounted, attached, image, kind, place };
        disk.place.device.settle(number, is_lying).map_err(|_| forgotten())?;
        Ok(disk)
    }

    /// Mounts what is on an image, which has to come up: it was mounted before.
    fn come_up(place: &'a Place, kind: Kind, image: Owned) -> Result<Disk<'a>, Failure> {
        let attached = Attached::new(&place.served.path(image.number)).map_err(Failure::Cannot)?;
        let at = place.mount_point.path();
        let mounted =
            Mounted::new(kind.name(), kind.mount_options(), &attached, at).map_err(|words| {
                Failure::NoFileSystem(format!("the file system does not come up: {words}"))
            })?;
        Ok(Disk { mounted, attached, image, kind, place })
    }

    /// Unmounts and detaches; the image stays.
    fn go_down(self) -> Owned {
        let Disk { mounted, attached, image, kind, .. } = self;
        drop(mounted);
        if kind == Kind::Btrfs {
            // The kernel remembers what it has seen on a device, and takes an older state of it for a mistake. Where
            // it cannot be told to forget, the mount says so.
            let _ = system::run("btrfs", &["device", "scan", "--forget", attached.name()]);
        }
        drop(attached);
        image
    }

    /// The number of the image.
    pub fn image(&self) -> u64 {
        self.image.number
    }

    pub fn path(&self) -> &Path {
        self.mounted.path()
    }

    /// Unmounts it as a machine does that is shut down, and mounts it again.
    pub fn restart(self) -> Result<Disk<'a>, Failure> {
        let (place, kind) = (self.place, self.kind);
        let image = self.go_down();
        Disk::come_up(place, kind, image)
    }

    /// Cuts the power, if at least so many writes are pending. What is mounted here goes on upon an image that nobody will
    /// ever see.
    pub fn cut(&self, least_pending: usize, dice: &mut Dice) -> Result<Option<Cut>, Failure> {
        let device = &self.place.device;
        let cut = device.cut(self.image.number, least_pending, dice).map_err(|_| forgotten())?;
        Ok(cut.map(|(number, survived)| Cut {
            image: Owned { device: Arc::clone(device), number },
            survived,
        }))
    }

    /// Goes over to what a cut has left, when all who used this are gone.
    pub fn replace(self, cut: Cut) -> Result<Disk<'a>, Failure> {
        let (place, kind) = (self.place, self.kind);
        drop(self.go_down());
        Disk::come_up(place, kind, cut.image)
    }
}

/// What a power cut has left.
pub struct Cut {
    image: Owned,
    pub survived: Survived,
}

impl Cut {
    /// What it has left, apart from what will be made of it.
    pub fn copy(&self) -> Result<Owned, Failure> {
        let device = Arc::clone(&self.image.device);
        let number = device.copy(self.image.number).map_err(|_| forgotten())?;
        Ok(Owned { device, number })
    }
}

/// For an image that is in use and unknown.
pub fn forgotten() -> Failure {
    Failure::Found("the device has forgotten its image".into())
}
