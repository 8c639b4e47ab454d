//! Regions of transactional memory, and what they fall back to.
//!
//! A region is a closure that reads and writes cells through a [`Tx`]. [`Htm::atomic`] runs it so that it takes effect as a whole or not at
//! all. A backend may run it many times before it takes effect. So a body
//! - reaches shared data through its `Tx` alone, and passes errors on with `?`;
//! - begins anew each time: what it has put into captured variables is overwritten, not added to;
//! - makes no system call, allocates nothing and does not panic: nodes come from an [`Arena`](crate::arena::Arena).
//!
//! Trees are generic over the backend, which is chosen once, where the tree is made:
//!
//! | backend | what it is | `E` |
//! | --- | --- | --- |
//! | [`Lock`] | the lock, always | cannot be |
//! | [`RwSpin`] | a lock that readers share | cannot be |
//! | [`Uncontrolled`] | nothing: a bound for measurements | cannot be |
//! | [`NOrec`] | software: Dalessandro, Spear and Scott (PPoPP 2010), whose sequence lock is the elided lock | [`Abort`] |
//! | `Rtm` | the processor's, on x86-64 | cannot be |
//! | `Sim` | a simulated processor's, under `--cfg hedgerow_sim` | [`Abort`] |
//!
//! Where `E` cannot be, `?` costs nothing and an abort goes to where the region began.
//!
//! Backends are `Send + Sync`.

mod cell;
#[cfg(not(loom))]
mod choose;
mod counters;
pub mod label;
mod lock;
mod norec;
mod only_lock;
mod plain;
mod policy;
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, hedgerow_sim))))]
mod rtm;
#[cfg(hedgerow_sim)]
mod sim;
#[cfg(all(test, not(loom)))]
mod tests;

pub use cell::{TCell, Word};
#[cfg(not(loom))]
pub use choose::{ChoiceError, WithHtm, choose, word_of_environment};
pub use counters::{Counters, Counts};
pub use lock::{ElidableLock, Held};
pub use norec::{NOrec, NOrecTx};
pub use only_lock::{Lock, LockTx};
pub use plain::{RwSpin, Uncontrolled};
pub use policy::{Adaptive, RetryPolicy};
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, hedgerow_sim))))]
pub use rtm::{Probe, Rtm, RtmTx, Trials, probe};
#[cfg(hedgerow_sim)]
pub use sim::Sim;

use std::fmt::Debug;

/// Why a region had to begin anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Abort {
    /// Another thread reached the same data.
    Conflict,
    /// There was no room for what the region reached.
    Capacity,
    /// An interrupt, a page fault, an instruction that cannot be part of a region.
    Other,
    /// The body asked for it, with a code of its own.
    Explicit(u8),
    /// The elided lock was held.
    Locked,
}

impl Abort {
    /// Kinds of aborts that are counted apart.
    pub(crate) const CLASSES: usize = 5;

    #[inline]
    pub(crate) fn class(self) -> usize {
        match self {
            Abort::Conflict => 0,
            Abort::Capacity => 1,
            Abort::Other => 2,
            Abort::Explicit(_) => 3,
            Abort::Locked => 4,
        }
    }
}

/// A place in a program where a region begins: its counts are kept apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site(u8);

impl Site {
    /// Sites that there are.
    pub(crate) const MOST: usize = 6;
    /// A whole operation.
    pub const WHOLE: Site = Site(0);
    /// The way to a leaf.
    pub const UPPER: Site = Site(1);
    /// What is done in a leaf.
    pub const LOWER: Site = Site(2);
    /// A leaf of a scan.
    pub const SCAN: Site = Site(3);
    /// A split or a merge.
    pub const STRUCTURE: Site = Site(4);
    /// Anything else.
    pub const OTHER: Site = Site(5);

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// All sites.
    pub fn all() -> impl Iterator<Item = Site> {
        (0..Site::MOST as u8).map(Site)
    }

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["whole", "upper", "lower", "scan", "structure", "other"][self.index()]
    }
}

/// What became of one region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Attempts that took no effect.
    pub aborts: u32,
    /// It ran under the lock in the end.
    pub took_lock: bool,
}

/// What a region reads and writes with. `'a` is how long the data live.
pub trait Tx<'a> {
    /// The region has to begin anew. Where the processor goes back by itself, there is no such value.
    type E: Debug;

    /// The value of a cell.
    ///
    /// # Errors
    /// The region has to begin anew: pass it on.
    fn load<T: Word>(&mut self, cell: &'a TCell<T>) -> Result<T, Self::E>;

    /// Sets the value of a cell.
    ///
    /// # Errors
    /// The region has to begin anew: pass it on.
    fn store<T: Word>(&mut self, cell: &'a TCell<T>, value: T) -> Result<(), Self::E>;

    /// Sets bits of a cell that others change outside of regions; their changes of other bits are not lost. The value before.
    ///
    /// # Errors
    /// The region has to begin anew: pass it on.
    fn fetch_or<T: Word>(&mut self, cell: &'a TCell<T>, mask: T) -> Result<T, Self::E>;

    /// Keeps the bits of `mask`, as [`Tx::fetch_or`] sets bits. The value before.
    ///
    /// # Errors
    /// The region has to begin anew: pass it on.
    fn fetch_and<T: Word>(&mut self, cell: &'a TCell<T>, mask: T) -> Result<T, Self::E>;

    /// Has the region begin anew. Under the lock this does nothing and is `Ok`: nothing can be undone there, and the body goes on.
    ///
    /// # Errors
    /// The region has to begin anew: pass it on.
    fn abort(&mut self, code: u8) -> Result<(), Self::E>;

    /// Whether the region can abort, because it does not hold the lock.
    fn is_speculative(&self) -> bool;
}

/// A backend.
pub trait Htm: Send + Sync {
    /// As [`Tx::E`].
    type E: Debug;
    /// What bodies get.
    type Tx<'a>: Tx<'a, E = Self::E>;

    /// Runs a region, which takes effect as a whole, and says what it took. Regions must not be nested.
    fn atomic_counted<'a, R, B>(&self, lock: &'a ElidableLock, site: Site, body: B) -> (R, Outcome)
    where
        B: FnMut(&mut Self::Tx<'a>) -> Result<R, Self::E>;

    /// Runs a region, which takes effect as a whole. Regions must not be nested.
    #[inline(always)]
    fn atomic<'a, R>(
        &self,
        lock: &'a ElidableLock,
        site: Site,
        body: impl FnMut(&mut Self::Tx<'a>) -> Result<R, Self::E>,
    ) -> R {
        self.atomic_counted(lock, site, body).0
    }

    /// Runs a region that only loads. Backends that know readers from writers let readers in together.
    #[inline(always)]
    fn read<'a, R>(
        &self,
        lock: &'a ElidableLock,
        site: Site,
        body: impl FnMut(&mut Self::Tx<'a>) -> Result<R, Self::E>,
    ) -> R {
        self.atomic(lock, site, body)
    }

    /// What became of all regions so far.
    fn counters(&self) -> &Counters;

    /// How regions are retried.
    fn policy(&self) -> &RetryPolicy;
}

/// A backend that can be told to abort at a certain access: for tests of what is undone.
pub trait Faults: Htm {
    /// The access of this number in a region, counted from one over all regions from now on, aborts its region, once.
    fn abort_at(&self, access: u64);

    /// No access aborts any more. Whether the one that was to abort has not come.
    fn disarm(&self) -> bool;
}
