//! Regions of transactional memory, as processors had them: requester wins, by cache lines, within the first-level cache.
//!
//! A region writes in place. When another thread reaches one of its lines in a way that does not agree with it, in a region or not, what it
//! has written is undone at once, and it learns of it at its next access. Cost and capacity are those of
//! [`Machine::transactions`](crate::Machine::transactions). Each abort is counted by what its line is labelled as, and by whether both
//! threads were about the same key ([`Tally`]).
//!
//! In a region nothing is read or written but through [`Region`]; any other access of an atomic or a lock of this crate panics. There
//! are no regions outside of a run.

use crate::atomic::Number;
use crate::kernel::Kind;
use crate::turns::{access, is_running, region_access, wait_for_turn, with};
use std::cell::Cell;
use std::marker::PhantomData;

pub use crate::abort::{Abort, Cause, LABELS, Tally};

/// An atomic of a `T` that a region may reach.
pub trait Holds<T>: Number<Value = T> {}

impl<T, N: Number<Value = T>> Holds<T> for N {}

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
