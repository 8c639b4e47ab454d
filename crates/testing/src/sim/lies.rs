//! Lies: calls of a simulated disk that report success and have done something else, or nothing.
//!
//! A [`Lie`] is a plain value: what is done instead ([`Deceit`]), to which calls, after how many that get the
//! truth, once or from then on. `Lies` belongs to the disk's one world and is used under its lock. Each lie counts the
//! calls that it concerns; of several that strike the same call the first one is told, and the others are spent as well,
//! as with [faults](super::Fault). A call that fails tells no lie. What was told is kept ([`Told`]), so that a test can
//! say that it has happened, and what the truth was.
//!
//! What holds whatever is armed: a lie returns `Ok`; it concerns the bytes that a device stores, not the length of a file
//! nor its name, which the file system knows (a lost write behind the end makes the file longer, by zeros; a read behind
//! the end fails as ever); and what is read or written elsewhere lies in the same file. What would lie outside of it
//! is lost, or zeros.
//!
//! **Not here:** short and interrupted calls. [`File`](hedgerow::internals::storage::File) has whole reads and writes or errors, by
//! design: they are continued below the trait, in `storage/transfer.rs`, whose tests cut and interrupt them.

use super::super::sparse::SparseBytes;
use super::fault::CallKind;
use super::state::{FileNumber, SimState};
use super::{Place, World};
use hedgerow::internals::error::Result;
use hedgerow_sync::primitive::Arc;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What a call does instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deceit {
    /// A sync of a file makes nothing durable. What is pending stays so: a later sync that is none of this makes
    /// it durable, and a crash before that keeps, drops or tears it.
    SyncIgnored,
    /// The same of a sync of a directory.
    DirectorySyncIgnored,
    /// A write changes nothing.
    WriteLost,
    /// A write goes so far from where it should.
    WriteMisdirected {
        /// How far.
        by_bytes: i64,
    },
    /// A read brings what was there before; zeros behind the end of the file of then.
    ReadStale(Age),
    /// A read brings what lies so far from where it should look.
    ReadMisdirected {
        /// How far.
        by_bytes: i64,
    },
    /// One bit of what is read is another.
    BitFlipped {
        /// Which one, counted from the first byte's least significant; of as many as there are, by the remainder.
        bit: u64,
    },
    /// One sector of what is read is zeros, as far as the read has it.
    SectorZeroed {
        /// Bytes of a sector: 512 or 4096 on any real disk.
        sector_bytes: u64,
        /// Which of those that the read touches, by the remainder.
        sector: u64,
    },
}

/// How old a stale read is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Age {
    /// What is durable: nothing that is pending.
    Durable,
    /// What was there when the lie was armed.
    WhenArmed,
}

impl Deceit {
    fn is_of(self, kind: CallKind) -> bool {
        match self {
            Deceit::SyncIgnored => matches!(kind, CallKind::SyncData | CallKind::SyncAll),
            Deceit::DirectorySyncIgnored => kind == CallKind::SyncDir,
            Deceit::WriteLost | Deceit::WriteMisdirected { .. } => kind == CallKind::Write,
            Deceit::ReadStale(_)
            | Deceit::ReadMisdirected { .. }
            | Deceit::BitFlipped { .. }
            | Deceit::SectorZeroed { .. } => kind == CallKind::Read,
        }
    }
}

/// A lie to come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lie {
    /// What is done instead.
    pub what: Deceit,
    /// Only of the file that has this path when it is called; `None` for all. Not for directories.
    pub path: Option<PathBuf>,
    /// Only of reads and writes that begin here; `None` for all.
    pub within: Option<Range<u64>>,
    /// How many of those calls still get the truth.
    pub after: u64,
    /// Whether all later calls of these are lied to as well.
    pub sticky: bool,
}

impl Lie {
    /// One call gets a lie, after `after` that get the truth.
    pub fn once(what: Deceit, after: u64) -> Lie {
        Lie { what, path: None, within: None, after, sticky: false }
    }

    /// All later calls get it as well.
    #[must_use]
    pub fn sticky(self) -> Lie {
        Lie { sticky: true, ..self }
    }

    /// Only calls of the file at `path`.
    #[must_use]
    pub fn of(self, path: &Path) -> Lie {
        Lie { path: Some(path.to_owned()), ..self }
    }

    /// Only reads and writes that begin there.
    #[must_use]
    pub fn within(self, offsets: Range<u64>) -> Lie {
        Lie { within: Some(offsets), ..self }
    }

    fn concerns(&self, kind: CallKind, place: Place, state: &SimState) -> bool {
        let (file, offset_bytes, _) = place;
        let is_of_path = |path: &PathBuf| file.is_some() && state.lookup(path) == file;
        self.what.is_of(kind)
            && self.path.as_ref().is_none_or(is_of_path)
            && self.within.as_ref().is_none_or(|within| within.contains(&offset_bytes))
    }
}

/// A lie that was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// What was done instead.
    pub what: Deceit,
    /// The path of the file; `None` for a directory, and for a file that has none any more.
    pub path: Option<Arc<Path>>,
    /// Where the call was for; zero for a sync.
    pub offset_bytes: u64,
    /// What should have been read or written; empty for a sync.
    pub truth: Vec<u8>,
    /// What was read, or is there after the write; empty for a sync.
    pub instead: Vec<u8>,
    /// Whether it makes a difference: these two do, or there was something for the sync to make durable.
    pub differs: bool,
}

struct Armed {
    lie: Lie,
    /// For [`Age::WhenArmed`].
    earlier: Option<Arc<SimState>>,
}

/// What the disk is to lie about, and what it has lied about.
#[derive(Default)]
pub(super) struct Lies {
    armed: Vec<Armed>,
    told: Vec<Told>,
}

impl Lies {
    pub(super) fn arm(&mut self, lie: Lie, state: &SimState) {
        let earlier = match lie.what {
            Deceit::ReadStale(Age::WhenArmed) => Some(Arc::new(state.fork())),
            _ => None,
        };
        self.armed.push(Armed { lie, earlier });
    }

    pub(super) fn disarm(&mut self) {
        self.armed.clear();
    }

    pub(super) fn told(&self) -> &[Told] {
        &self.told
    }

    /// Counts a call, and finds out whether it gets a lie.
    fn meet(
        &mut self,
        kind: CallKind,
        place: Place,
        state: &SimState,
    ) -> Option<(Deceit, Option<Arc<SimState>>)> {
        let mut strike = None;
        self.armed.retain_mut(|armed| {
            if !armed.lie.concerns(kind, place, state) {
                return true;
            }
            if armed.lie.after > 0 {
                armed.lie.after -= 1;
                return true;
            }
            if strike.is_none() {
                strike = Some((armed.lie.what, armed.earlier.clone()));
            }
            armed.lie.sticky
        });
        strike
    }
}

impl World {
    /// Whether a sync of a file, or of a directory (`None`), is reported and not carried out.
    pub(super) fn ignores_sync(&mut self, kind: CallKind, file: Option<FileNumber>) -> bool {
        let Some((what, _)) = self.lies.meet(kind, (file, 0, 0), &self.state) else {
            return false;
        };
        let differs = self.state.pending().iter().any(|change| change.file() == file);
        let path = file.and_then(|file| self.state.path_of(file));
        let (truth, instead) = (Vec::new(), Vec::new());
        self.lies.told.push(Told { what, path, offset_bytes: 0, truth, instead, differs });
        true
    }

    /// A write that no fault has struck.
    pub(super) fn write_or_lie(
        &mut self,
        file: FileNumber,
        offset_bytes: u64,
        buf: &[u8],
    ) -> Result<()> {
        let len = buf.len() as u64;
        let place = (Some(file), offset_bytes, len);
        let Some((what, _)) = self.lies.meet(CallKind::Write, place, &self.state) else {
            return self.write_what_fits(file, offset_bytes, buf);
        };
        let end = offset_bytes.saturating_add(len);
        if end > self.state.node(file).live.len_bytes() {
            self.state.set_len(file, end)?;
        }
        let elsewhere = match what {
            Deceit::WriteMisdirected { by_bytes } => offset_bytes.checked_add_signed(by_bytes),
            _ => None,
        };
        let file_bytes = self.state.node(file).live.len_bytes();
        if let Some(elsewhere) = elsewhere
            && elsewhere.saturating_add(len) <= file_bytes
        {
            self.write_what_fits(file, elsewhere, buf)?;
        }
        let mut instead = vec![0; buf.len()];
        read_what_is_there(&self.state.node(file).live, offset_bytes, &mut instead);
        self.note(what, file, offset_bytes, buf.to_vec(), instead);
        Ok(())
    }

    /// Puts something else in the place of what was read.
    pub(super) fn lie_about_read(&mut self, file: FileNumber, offset_bytes: u64, buf: &mut [u8]) {
        let len = buf.len() as u64;
        if len == 0 {
            return;
        }
        let place = (Some(file), offset_bytes, len);
        let Some((what, earlier)) = self.lies.meet(CallKind::Read, place, &self.state) else {
            return;
        };
        let truth = buf.to_vec();
        match what {
            Deceit::ReadStale(age) => {
                let node = match (age, &earlier) {
                    (Age::WhenArmed, Some(earlier)) => earlier.find_node(file),
                    _ => self.state.find_node(file),
                };
                let bytes = node.map(|node| match age {
                    Age::Durable => &node.durable,
                    Age::WhenArmed => &node.live,
                });
                match bytes {
                    Some(bytes) => read_what_is_there(bytes, offset_bytes, buf),
                    None => buf.fill(0),
                }
            }
            Deceit::ReadMisdirected { by_bytes } => {
                match offset_bytes.checked_add_signed(by_bytes) {
                    Some(at) => read_what_is_there(&self.state.node(file).live, at, buf),
                    None => buf.fill(0),
                }
            }
            Deceit::BitFlipped { bit } => {
                let bit = bit % (8 * len);
                buf[(bit / 8) as usize] ^= 1 << (bit % 8);
            }
            Deceit::SectorZeroed { sector_bytes, sector } => {
                let first = offset_bytes / sector_bytes;
                let count = (offset_bytes + len).div_ceil(sector_bytes) - first;
                let start = (first + sector % count) * sector_bytes;
                let end = (start + sector_bytes).min(offset_bytes + len);
                let start = start.max(offset_bytes);
                buf[(start - offset_bytes) as usize..(end - offset_bytes) as usize].fill(0);
            }
            Deceit::SyncIgnored
            | Deceit::DirectorySyncIgnored
            | Deceit::WriteLost
            | Deceit::WriteMisdirected { .. } => {}
        }
        self.note(what, file, offset_bytes, truth, buf.to_vec());
    }

    fn note(
        &mut self,
        what: Deceit,
        file: FileNumber,
        offset_bytes: u64,
        truth: Vec<u8>,
        instead: Vec<u8>,
    ) {
        let path = self.state.path_of(file);
        let differs = truth != instead;
        self.lies.told.push(Told { what, path, offset_bytes, truth, instead, differs });
    }
}

/// Reads as far as there is anything; zeros behind.
fn read_what_is_there(bytes: &SparseBytes, offset_bytes: u64, buf: &mut [u8]) {
    buf.fill(0);
    let there = bytes.len_bytes().saturating_sub(offset_bytes).min(buf.len() as u64) as usize;
    if there > 0 {
        let read = bytes.read(offset_bytes, &mut buf[..there]);
        debug_assert!(read, "what lies before the end can be read");
    }
}
