//! Restricted Transactional Memory of x86-64 processors: the one place of the crate that has `unsafe` code.
//!
//! `xbegin` is written as assembly with its fall-back address right behind it. After an abort all registers and all memory are as
//! they were there, so to the compiler it is an instruction that merely gave another status. So between [`begin`] and `xend` there is
//! nothing but the body, and [`Tx::E`] cannot be.
//!
//! [`probe`] finds out whether regions commit on this processor: many processors have RTM in their manuals and abort all regions
//! by microcode, and emulators answer wrongly. [`Rtm::forced`] does not look; it is for running what handles aborts under
//! valgrind, where each region aborts. No other emulator may run it: qemu decodes `xbegin` as a move, and runs bodies unprotected.
//!
//! `Send + Sync`.

#![allow(unsafe_code, reason = "the instructions have no safe form in stable Rust")]

use super::policy::run;
use super::{Abort, Counters, ElidableLock, Htm, Outcome, RetryPolicy, Site, TCell, Tx, Word};
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;

/// What `eax` is while a region is under way: no abort gives it.
const STARTED: u32 = !0;
/// What a region that finds the lock held aborts with, in the status' highest byte.
const LOCK_IS_HELD: u32 = 0xff;
/// Trial regions.
const TRIALS: u32 = 1_000;
/// Trial regions that have to commit.
const ENOUGH: u32 = 900;

/// The status of an abort (Intel, volume 1, table 16-1).
fn decoded(status: u32) -> Abort {
    const EXPLICIT: u32 = 1;
    const CONFLICT: u32 = 1 << 2;
    const CAPACITY: u32 = 1 << 3;
    match status {
        _ if status & EXPLICIT != 0 && status >> 24 == LOCK_IS_HELD => Abort::Locked,
        _ if status & EXPLICIT != 0 => Abort::Explicit((status >> 24) as u8),
        _ if status & CONFLICT != 0 => Abort::Conflict,
        _ if status & CAPACITY != 0 => Abort::Capacity,
        _ => Abort::Other,
    }
}

/// Begins a region: [`STARTED`], or the status with which it aborted.
#[inline(always)]
fn begin() -> u32 {
    let mut status = STARTED;
    // SAFETY: the caller has found that the processor has the instruction, or is told by `Rtm::forced` that it runs where it
    // exists. It changes `eax` alone, on either way. The block is a barrier to the compiler, because it has no `nomem`.
    unsafe { asm!("xbegin 2f", "2:", inout("eax") status) };
    status
}

/// Ends a region that is under way; what it has written is seen.
#[inline(always)]
fn end() {
    // SAFETY: called in a region that `begin` has begun, and so where the instruction exists.
    unsafe { asm!("xend") };
}

/// Aborts the region that is under way, because the lock is held: goes on behind `begin`.
#[inline(always)]
fn abort_because_locked() {
    // SAFETY: as `end`. What runs behind it runs with everything as it was at `begin`.
    unsafe { asm!("xabort 0xff") };
}

/// Aborts the region that is under way, because the body asked for it.
#[inline(always)]
fn abort_as_asked() {
    // SAFETY: as `abort_because_locked`.
    unsafe { asm!("xabort 0xfe") };
}

/// What trial regions came to.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Trials {
    /// Regions that were begun.
    pub begun: u32,
    /// Those that committed.
    pub commits: u32,
    /// Those that a conflict aborted.
    pub conflicts: u32,
    /// Those for which there was no room.
    pub overflows: u32,
    /// Those that aborted with another status.
    pub others: u32,
}

/// What the processor says about its transactional memory, and what it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The highest basic leaf of CPUID. The bits are in leaf 7.
    pub max_leaf: u32,
    /// Hardware lock elision. Processors that still have the bit never elide.
    pub hle: bool,
    /// Restricted transactional memory.
    pub rtm: bool,
    /// Microcode aborts all regions.
    pub always_abort: bool,
    /// There is a switch by which regions are aborted.
    pub force_abort: bool,
    /// Loads can be left out of tracking.
    pub tsxldtrk: bool,
    /// `None`: none was tried, because the bits say that it is of no use.
    pub trials: Option<Trials>,
}

impl Probe {
    /// Whether regions commit here: RTM is there, is not switched off, and 900 of 1,000 trial regions have committed.
    #[must_use]
    pub fn commits(&self) -> bool {
        self.trials.is_some_and(|trials| trials.commits >= ENOUGH)
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Probe { max_leaf, hle, rtm, always_abort, force_abort, tsxldtrk, trials } = self;
        let bit = |bit: &bool| u8::from(*bit);
        write!(
            f,
            "CPUID: highest leaf {max_leaf}, HLE {}, RTM {}, RTM_ALWAYS_ABORT {}, TSX_FORCE_ABORT {}, TSXLDTRK {}; ",
            bit(hle),
            bit(rtm),
            bit(always_abort),
            bit(force_abort),
            bit(tsxldtrk)
        )?;
        match trials {
            None => write!(f, "no trial regions"),
            Some(Trials { begun, commits, conflicts, overflows, others }) => write!(
                f,
                "{commits} of {begun} trial regions committed ({conflicts} conflicts, {overflows} overflows, {others} other aborts)"
            ),
        }
    }
}

/// Looks at CPUID, and tries 1,000 small regions if it says that there are any.
#[must_use]
pub fn probe() -> Probe {
    let max_leaf = __cpuid(0).eax;
    let leaf = if max_leaf >= 7 { __cpuid_count(7, 0) } else { __cpuid(0) };
    let is_set = |word: u32, bit: u32| max_leaf >= 7 && word >> bit & 1 == 1;
    let (rtm, always_abort) = (is_set(leaf.ebx, 11), is_set(leaf.edx, 11));
    Probe {
        max_leaf,
        hle: is_set(leaf.ebx, 4),
        rtm,
        always_abort,
        force_abort: is_set(leaf.edx, 13),
        tsxldtrk: is_set(leaf.edx, 16),
        trials: (rtm && !always_abort).then(tried),
    }
}

fn tried() -> Trials {
    let mut trials = Trials { begun: TRIALS, ..Trials::default() };
    let cell = TCell::new(0_u64);
    for _ in 0..TRIALS {
        let status = begin();
        if status == STARTED {
            cell.set(cell.get() + 1);
            end();
            trials.commits += 1;
            continue;
        }
        match decoded(status) {
            Abort::Conflict => trials.conflicts += 1,
            Abort::Capacity => trials.overflows += 1,
            _ => trials.others += 1,
        }
    }
    // A processor that does not know the prefix of a region would have counted, and never said so.
    if cell.get() != u64::from(trials.commits) {
        trials.commits = 0;
    }
    trials
}

/// The transactional memory of the processor.
#[derive(Debug)]
pub struct Rtm {
    policy: RetryPolicy,
    counters: Counters,
}

impl Rtm {
    /// A backend that retries in this way.
    ///
    /// # Errors
    /// Regions do not commit on this processor: what the probe saw.
    pub fn new(policy: RetryPolicy) -> Result<Rtm, Probe> {
        let probe = probe();
        if probe.commits() { Ok(Rtm { policy, counters: Counters::default() }) } else { Err(probe) }
    }

    /// A backend that takes it for granted that the instructions exist.
    ///
    /// # Safety
    /// The program runs on a processor that has RTM, or under an emulator that aborts each region, as valgrind does. Elsewhere the
    /// first region is an illegal instruction, or is run unprotected.
    #[must_use]
    pub unsafe fn forced(policy: RetryPolicy) -> Rtm {
        Rtm { policy, counters: Counters::default() }
    }
}

/// For a user who asks for regions without a look at whether they are there.
pub(super) fn forced_by_user(policy: RetryPolicy) -> Rtm {
    // SAFETY: whoever runs a program with HTM=rtm-forced says that it is so; the documents say what happens elsewhere.
    unsafe { Rtm::forced(policy) }
}

/// What a body reads and writes with: plain moves.
#[derive(Debug)]
pub struct RtmTx<'a> {
    is_locked: bool,
    data: PhantomData<&'a ()>,
}

impl<'a> Tx<'a> for RtmTx<'a> {
    type E = Infallible;

    #[inline(always)]
    fn load<T: Word>(&mut self, cell: &'a TCell<T>) -> Result<T, Infallible> {
        Ok(cell.get())
    }

    #[inline(always)]
    fn store<T: Word>(&mut self, cell: &'a TCell<T>, value: T) -> Result<(), Infallible> {
        cell.set(value);
        Ok(())
    }

    #[inline(always)]
    fn fetch_or<T: Word>(&mut self, cell: &'a TCell<T>, mask: T) -> Result<T, Infallible> {
        if self.is_locked {
            return Ok(cell.fetch_or(mask, Relaxed));
        }
        let old = cell.get();
        cell.set(old | mask);
        Ok(old)
    }

    #[inline(always)]
    fn fetch_and<T: Word>(&mut self, cell: &'a TCell<T>, mask: T) -> Result<T, Infallible> {
        if self.is_locked {
            return Ok(cell.fetch_and(mask, Relaxed));
        }
        let old = cell.get();
        cell.set(old & mask);
        Ok(old)
    }

    /// The code is lost: the instruction takes a constant.
    #[inline(always)]
    fn abort(&mut self, _code: u8) -> Result<(), Infallible> {
        if !self.is_locked {
            abort_as_asked();
        }
        Ok(())
    }

    #[inline(always)]
    fn is_speculative(&self) -> bool {
        !self.is_locked
    }
}

impl Htm for Rtm {
    type E = Infallible;
    type Tx<'a> = RtmTx<'a>;

    #[inline(always)]
    fn atomic_counted<'a, R, B>(
        &self,
        lock: &'a ElidableLock,
        site: Site,
        mut body: B,
    ) -> (R, Outcome)
    where
        B: FnMut(&mut RtmTx<'a>) -> Result<R, Infallible>,
    {
        let attempt = |body: &mut B| {
            let status = begin();
            if status != STARTED {
                return Err(decoded(status));
            }
            if lock.is_held() {
                abort_because_locked();
            }
            let Ok(value) = body(&mut RtmTx { is_locked: false, data: PhantomData });
            end();
            Ok(value)
        };
        let under_lock = |body: &mut B| {
            let Ok(value) = body(&mut RtmTx { is_locked: true, data: PhantomData });
            value
        };
        run(&self.policy, &self.counters, lock, site, &mut body, attempt, under_lock)
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn policy(&self) -> &RetryPolicy {
        &self.policy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_a_name() {
        for (status, abort) in [
            (0, Abort::Other),
            (1 << 1, Abort::Other),
            (1 << 2 | 1 << 1, Abort::Conflict),
            (1 << 3, Abort::Capacity),
            (1 << 5, Abort::Other),
            (0xff00_0001, Abort::Locked),
            (0xfe00_0001, Abort::Explicit(0xfe)),
        ] {
            assert_eq!(decoded(status), abort, "{status:#x}");
        }
    }

    #[test]
    fn a_processor_without_rtm_is_refused_with_what_was_seen() {
        let seen = probe();
        assert_eq!(seen.trials.is_some(), seen.rtm && !seen.always_abort);
        match Rtm::new(RetryPolicy::DBX) {
            Ok(_) => assert!(seen.commits()),
            Err(probe) => assert!(!probe.commits() && probe.to_string().contains("RTM")),
        }
    }
}
