//! The kinds of faults of a sweep, what a store may answer to each, and the name of a single run.
//!
//! Plain data. A kind is a group of calls to the disk that fail alike; its calls are counted together, so a number says
//! which of them fails. The names are what `HEDGEROW_ONLY` and a failure's last line use.

use super::scripts::{SCRIPTS, Script};
use hedgerow::{Error, ErrorKind};
use hedgerow_testing::sim::{CallKind, Effect, Fault};
use std::fmt;

/// A way in which calls fail.
pub struct Kind {
    pub name: &'static str,
    /// The calls that are counted, and of which one fails. Never empty.
    calls: &'static [CallKind],
    errno: i32,
    effect: Effect,
    /// Whether nothing may be changed after it: a read that fails, a directory that cannot be changed and a file that
    /// cannot be opened leave nothing in doubt of the store itself.
    may_poison: bool,
}

const WRITES: &[CallKind] = &[CallKind::Write];
const SYNCS: &[CallKind] = &[CallKind::SyncData, CallKind::SyncAll];
const NAMES: &[CallKind] = &[CallKind::SyncDir, CallKind::Rename, CallKind::Unlink];

const fn kind(
    name: &'static str,
    calls: &'static [CallKind],
    errno: i32,
    effect: Effect,
    may_poison: bool,
) -> Kind {
    Kind { name, calls, errno, effect, may_poison }
}

pub static KINDS: [Kind; 12] = [
    kind("read-eio", &[CallKind::Read], Fault::EIO, Effect::Nothing, false),
    kind("write-eio-nothing", WRITES, Fault::EIO, Effect::Nothing, true),
    kind("write-eio-partly", WRITES, Fault::EIO, Effect::Partly, true),
    kind("write-eio-fully", WRITES, Fault::EIO, Effect::Fully, true),
    kind("write-enospc", WRITES, Fault::ENOSPC, Effect::Partly, true),
    kind("sync-eio-lost", SYNCS, Fault::EIO, Effect::Lost, true),
    kind("sync-eio-nothing", SYNCS, Fault::EIO, Effect::Nothing, true),
    kind("sync-eio-fully", SYNCS, Fault::EIO, Effect::Fully, true),
    kind(
        "grow-enospc",
        &[CallKind::Allocate, CallKind::SetLen],
        Fault::ENOSPC,
        Effect::Nothing,
        true,
    ),
    kind("punch-eio", &[CallKind::PunchHole], Fault::EIO, Effect::Nothing, true),
    kind("names-eio", NAMES, Fault::EIO, Effect::Nothing, false),
    kind("open-emfile", &[CallKind::Open, CallKind::Create], Fault::EMFILE, Effect::Nothing, false),
];

impl Kind {
    /// The call with number `k` of those that are counted fails, and all later ones if it is `sticky`.
    pub fn fault(&self, k: u64, sticky: bool) -> Fault {
        let calls: &'static [CallKind] = self.calls;
        let fault = Fault::once(calls[0], k, self.errno).or_of(&calls[1..]);
        Fault { sticky, ..fault.with_effect(self.effect) }
    }

    /// Whether a store may say so when such a call has failed. `may_be_unknown`: of the operation nobody may know
    /// whether a crash would keep it. `is_poisoned`: the store has said before that nothing can be changed any more.
    pub fn allows(&self, error: &Error, may_be_unknown: bool, is_poisoned: bool) -> bool {
        match error.kind() {
            // With the number that the system gave, so that people can tell why.
            ErrorKind::Io => !self.is_about_room() && error.os_error() == Some(self.errno),
            ErrorKind::DiskFull => self.errno == Fault::ENOSPC,
            ErrorKind::DurabilityUnknown | ErrorKind::BatchUnfinished => may_be_unknown,
            ErrorKind::Poisoned => self.may_poison || is_poisoned,
            _ => false,
        }
    }

    /// Whether it is about room, so that the store works on when there is some.
    pub fn is_about_room(&self) -> bool {
        self.errno == Fault::ENOSPC
    }
}

/// One run of a sweep.
#[derive(Clone, Copy)]
pub struct Case {
    pub script: &'static Script,
    pub kind: &'static Kind,
    /// Which call fails, from 0.
    pub k: u64,
    /// All later ones fail as well.
    pub sticky: bool,
    /// The store has a log.
    pub log: bool,
}

impl Case {
    pub fn fault(&self) -> Fault {
        self.kind.fault(self.k, self.sticky)
    }

    /// The case that a text names as [`Case`] is displayed.
    pub fn parse(text: &str) -> Option<Case> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let &[script, kind, k, sticky, log] = words.as_slice() else { return None };
        Some(Case {
            script: SCRIPTS.iter().find(|known| known.name == script)?,
            kind: KINDS.iter().find(|known| known.name == kind)?,
            k: k.parse().ok()?,
            sticky: match sticky {
                "once" => false,
                "sticky" => true,
                _ => return None,
            },
            log: match log {
                "log" => true,
                "no-log" => false,
                _ => return None,
            },
        })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sticky = if self.sticky { "sticky" } else { "once" };
        let log = if self.log { "log" } else { "no-log" };
        write!(f, "{} {} {} {sticky} {log}", self.script.name, self.kind.name, self.k)
    }
}
