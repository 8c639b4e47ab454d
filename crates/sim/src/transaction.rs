//! Regions of transactional memory, as processors had them: requester wins, by cache lines, within the first-level cache.
//!
//! A region writes in place. When another thread reaches one of its lines in a way that does not agree with it, in a region or not, what it
//! has written is undone at once, and it learns of it at its next access. Cost and capacity are those of
//! [`Machine::transactions`](crate::Machine::transactions). Each abort is counted by what its line is labelled as, and by whether both
//! threads were about the same key.
//!
//! In a region nothing is read or written but through [`Region`]; any other access of an atomic or a lock of this crate panics. There
//! are no regions outside of a run.

use crate::atomic::Number;
use crate::kernel::Kind;
use crate::turns::{access, is_running, region_access, wait_for_turn, with};
use std::cell::Cell;
use std::marker::PhantomData;

/// An atomic of a `T` that a region may reach.
pub trait Holds<T>: Number<Value = T> {}

impl<T, N: Number<Value = T>> Holds<T> for N {}

/// Labels that there may be.
pub const LABELS: usize = 16;

/// Why a region ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// Another thread reached the same line.
    Conflict {
        /// What the line was labelled as.
        label: u8,
        /// What the other thread was about.
        other: u64,
    },
    /// A line had to leave the cache.
    Capacity,
    /// An interrupt, or the thread lost its processor.
    Interrupt,
    /// The number of accesses was reached at which it was to abort.
    Forced,
    /// The body asked for it.
    Explicit(u8),
}

/// A region ended and has had no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abort {
    /// Why.
    pub cause: Cause,
    /// What the thread was about.
    pub key: u64,
}

/// What became of regions, of all threads of a run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Attempts.
    pub begun: u64,
    /// Attempts that took effect.
    pub committed: u64,
    /// Aborts for want of capacity.
    pub overflows: u64,
    /// Aborts by interrupts, and those that were forced.
    pub interrupts: u64,
    /// Aborts that bodies asked for.
    pub explicit: u64,
    /// Aborts by conflicts of threads that were about the same key, by the label of the line.
    pub same_key: [u64; LABELS],
    /// Aborts by conflicts of threads that were about different keys, by the label of the line.
    pub other_key: [u64; LABELS],
    /// Cycles in attempts that took effect.
    pub committed_cycles: u64,
    /// Cycles in attempts that did not.
    pub aborted_cycles: u64,
}

impl Tally {
    pub(crate) fn note(&mut self, cause: Cause, key: u64) {
        match cause {
            Cause::Conflict { label, other } => {
                let of = if other == key { &mut self.same_key } else { &mut self.other_key };
                of[usize::from(label) % LABELS] += 1;
            }
            Cause::Capacity => self.overflows += 1,
            Cause::Interrupt | Cause::Forced => self.interrupts += 1,
            Cause::Explicit(_) => self.explicit += 1,
        }
    }

    /// Aborts by conflicts.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.same_key.iter().chain(&self.other_key).sum()
    }

    /// All aborts.
    #[must_use]
    pub fn aborts(&self) -> u64 {
        self.conflicts() + self.overflows + self.interrupts + self.explicit
    }

    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Tally) -> Tally {
        let each = |a: &[u64; LABELS], b: &[u64; LABELS]| std::array::from_fn(|at| a[at] - b[at]);
        Tally {
            begun: self.begun - earlier.begun,
            committed: self.committed - earlier.committed,
            overflows: self.overflows - earlier.overflows,
            interrupts: self.interrupts - earlier.interrupts,
            explicit: self.explicit - earlier.explicit,
            same_key: each(&self.same_key, &earlier.same_key),
            other_key: each(&self.other_key, &earlier.other_key),
            committed_cycles: self.committed_cycles - earlier.committed_cycles,
            aborted_cycles: self.aborted_cycles - earlier.aborted_cycles,
        }
    }
}

/// Labels the cache lines from `address` on with a number below [`LABELS`]. Costs nothing. Nothing outside of a run.
pub fn label(address: usize, bytes: usize, label: u8) {
    const LINE: usize = 64;
    with(|kernel| {
        let mut at = address / LINE * LINE;
        while at < address + bytes {
            kernel.label(at, label);
            at += LINE;
        }
    });
}

/// Says what the calling thread is about, until it says so again. Costs nothing. Nothing outside of a run.
#[inline]
pub fn about(key: u64) {
    with(|kernel| kernel.thread().about = key);
}

/// What became of all regions of the run so far; `None` outside of a run.
#[must_use]
pub fn tally() -> Option<Tally> {
    with(|kernel| kernel.regions.tally)
}

/// A region that is under way. `'a` is how long the data live that it may reach.
#[derive(Debug)]
pub struct Region<'a> {
    is_plain: bool,
    accesses: u64,
    abort_at: u64,
    data: PhantomData<Cell<&'a ()>>,
}

/// Ends the region of a body that unwinds.
struct Ended;

impl Drop for Ended {
    fn drop(&mut self) {
        with(|kernel| {
            if kernel.thread().in_region {
                kernel.end_region(kernel.current, Cause::Explicit(u8::MAX));
                kernel.left_by_abort();
            }
        });
    }
}

/// Runs a region once. With `abort_at` it is aborted at the access of that number, counted from one.
///
/// # Errors
/// It has had no effect.
///
/// # Panics
/// Outside of a run, and in a region.
pub fn attempt<'a, R>(
    abort_at: Option<u64>,
    body: impl FnOnce(&mut Region<'a>) -> Result<R, Abort>,
) -> Result<R, Abort> {
    assert!(is_running(), "a simulated region outside of a run");
    with(|kernel| {
        assert!(!kernel.thread().in_region, "a region in a region");
        kernel.begin_region();
    });
    let ended = Ended;
    let mut region =
        Region { is_plain: false, accesses: 0, abort_at: abort_at.unwrap_or(0), data: PhantomData };
    let result = body(&mut region);
    let result = result.and_then(|value| {
        with(|kernel| kernel.spend(u64::from(kernel.machine.transactions.commit)));
        wait_for_turn();
        match with(|kernel| kernel.commit_region()).flatten() {
            None => Ok(value),
            Some(abort) => Err(abort),
        }
    });
    // A body that fails although nothing has ended its region ends it here.
    drop(ended);
    result
}

/// Runs a body whose accesses are plain ones, which nothing ends or undoes: for who holds the lock that regions elide.
pub fn plainly<'a, R>(body: impl FnOnce(&mut Region<'a>) -> R) -> R {
    body(&mut Region { is_plain: true, accesses: 0, abort_at: 0, data: PhantomData })
}

impl<'a> Region<'a> {
    /// Whether accesses are plain ones: nothing ends them.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Accesses that the body has asked for so far.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    #[inline]
    fn access(&mut self, address: usize, kind: Kind) -> Result<(), Abort> {
        if self.is_plain {
            access(address, kind);
            return Ok(());
        }
        self.accesses += 1;
        if self.accesses == self.abort_at {
            return Err(self.end(Cause::Forced));
        }
        region_access(address, kind)
    }

    fn end(&mut self, cause: Cause) -> Abort {
        let doom = with(|kernel| {
            kernel.end_region(kernel.current, cause);
            kernel.doom()
        });
        doom.flatten().unwrap_or(Abort { cause, key: 0 })
    }

    /// Loads.
    ///
    /// # Errors
    /// The region has ended.
    #[inline]
    pub fn load<N: Number>(&mut self, atomic: &'a N) -> Result<N::Value, Abort> {
        self.access(atomic.address(), Kind::Load)?;
        Ok(atomic.value())
    }

    /// Stores.
    ///
    /// # Errors
    /// The region has ended.
    #[inline]
    pub fn store<N: Number>(&mut self, atomic: &'a N, value: N::Value) -> Result<(), Abort> {
        self.change(atomic, |_| value).map(drop)
    }

    /// Changes a value, which costs no more than a store. The value before.
    ///
    /// # Errors
    /// The region has ended.
    #[inline]
    pub fn change<N: Number>(
        &mut self,
        atomic: &'a N,
        change: impl FnOnce(N::Value) -> N::Value,
    ) -> Result<N::Value, Abort> {
        self.access(atomic.address(), Kind::Store)?;
        let old = atomic.value();
        if !self.is_plain {
            with(|kernel| kernel.log(atomic.old()));
        }
        atomic.set(change(old));
        Ok(old)
    }

    /// Ends the region: pass the error on.
    pub fn abort(&mut self, code: u8) -> Abort {
        self.end(Cause::Explicit(code))
    }
}
