//! What a simulated disk can be told to do wrong, and the record of what it was asked to do.
//!
//! Plain values.

use super::state::FileNumber;

/// The kinds of calls. Each request of a batch is a call of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CallKind {
    /// `Disk::open` of a new file.
    Create,
    /// `Disk::open` of another.
    Open,
    /// `Disk::exists`, `Disk::resolve` and `File::is_at`.
    Exists,
    /// `Disk::rename` and `Disk::rename_new`.
    Rename,
    /// `Disk::unlink`.
    Unlink,
    /// `Disk::sync_dir`.
    SyncDir,
    /// A read of any sort.
    Read,
    /// A write of any sort.
    Write,
    /// `File::len_bytes` and `File::allocated_bytes`.
    Examine,
    /// `File::set_len`.
    SetLen,
    /// `File::allocate`.
    Allocate,
    /// `File::punch_hole`.
    PunchHole,
    /// `File::sync_data`.
    SyncData,
    /// `File::sync_all`.
    SyncAll,
    /// `File::try_lock`.
    Lock,
}

impl CallKind {
    /// How many kinds there are.
    pub(super) const COUNT: usize = CallKind::Lock as usize + 1;

    /// Whether such a call can change what is on the disk, or what of it is durable.
    pub fn is_change(self) -> bool {
        match self {
            CallKind::Create
            | CallKind::Rename
            | CallKind::Unlink
            | CallKind::SyncDir
            | CallKind::Write
            | CallKind::SetLen
            | CallKind::Allocate
            | CallKind::PunchHole
            | CallKind::SyncData
            | CallKind::SyncAll => true,
            CallKind::Open
            | CallKind::Exists
            | CallKind::Read
            | CallKind::Examine
            | CallKind::Lock => false,
        }
    }

    fn is_sync(self) -> bool {
        matches!(self, CallKind::SyncData | CallKind::SyncAll)
    }
}

/// How much a failing call does nevertheless.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing.
    Nothing,
    /// A write changes some of the sectors, by the dice; other calls do nothing.
    Partly,
    /// Everything: only the answer is wrong.
    Fully,
    /// A sync drops the data that it should have made durable: reads go on to show it, no later sync brings
    /// it to the disk, and a crash uncovers that. Lengths and holes, which a file system keeps in its journal, stay
    /// pending. Other calls do nothing.
    Lost,
}

/// A failure to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Which calls are counted, and fail; `None` for all.
    pub kind: Option<CallKind>,
    /// Calls that are counted with those, and fail like them.
    pub others: &'static [CallKind],
    /// How many of those calls still go well.
    pub after: u64,
    /// The system's error number that the failing call returns.
    pub errno: i32,
    /// Whether all later calls of the kind fail as well.
    pub sticky: bool,
    /// What the failing call does; `None` for the worst: [`Effect::Partly`] for a write,
    /// [`Effect::Lost`] for a sync, [`Effect::Nothing`] for the rest.
    pub effect: Option<Effect>,
}

impl Fault {
    /// Input or output failed. As the numbers below it is the system's own, which says what kind of an error it is.
    pub const EIO: i32 = if cfg!(windows) { 1117 } else { 5 };
    /// Permission denied.
    pub const EACCES: i32 = if cfg!(windows) { 5 } else { 13 };
    /// Somebody else uses it.
    pub const EBUSY: i32 = if cfg!(windows) { 170 } else { 16 };
    /// Too many open files.
    pub const EMFILE: i32 = if cfg!(windows) { 4 } else { 24 };
    /// No room on the disk.
    pub const ENOSPC: i32 = if cfg!(windows) { 112 } else { 28 };
    /// The file system takes no changes.
    pub const EROFS: i32 = if cfg!(windows) { 19 } else { 30 };

    /// One call of `kind` fails with `errno`, after `after` that go well.
    pub fn once(kind: CallKind, after: u64, errno: i32) -> Fault {
        Fault { kind: Some(kind), others: &[], after, errno, sticky: false, effect: None }
    }

    /// Calls of these kinds count as well, and fail alike.
    #[must_use]
    pub fn or_of(self, others: &'static [CallKind]) -> Fault {
        Fault { others, ..self }
    }

    /// The call with number `after` (from 0), whatever it is, fails with `EIO`.
    pub fn any(after: u64) -> Fault {
        let errno = Fault::EIO;
        Fault { kind: None, others: &[], after, errno, sticky: false, effect: None }
    }

    /// All later calls of the kind fail as well.
    #[must_use]
    pub fn sticky(self) -> Fault {
        Fault { sticky: true, ..self }
    }

    /// The failing call has this effect.
    #[must_use]
    pub fn with_effect(self, effect: Effect) -> Fault {
        Fault { effect: Some(effect), ..self }
    }

    /// Counts a call; `Some` if it fails. The fault is spent if it was not sticky.
    pub(super) fn meet(&mut self, kind: CallKind) -> Option<(i32, Effect)> {
        if self.kind.is_some_and(|wanted| wanted != kind && !self.others.contains(&kind)) {
            return None;
        }
        if self.after > 0 {
            self.after -= 1;
            return None;
        }
        let worst = match kind {
            CallKind::Write => Effect::Partly,
            _ if kind.is_sync() => Effect::Lost,
            _ => Effect::Nothing,
        };
        Some((self.errno, self.effect.unwrap_or(worst)))
    }
}

/// One call that a simulated disk was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Which call.
    pub kind: CallKind,
    /// On which file, where it was one of a file.
    pub file: Option<FileNumber>,
    /// At which place; zero where the call has none.
    pub offset_bytes: u64,
    /// How much, or the new length; zero where the call has none.
    pub len_bytes: u64,
    /// The error number of an injected failure.
    pub fault: Option<i32>,
}
