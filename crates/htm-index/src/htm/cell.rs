//! Words that a region may reach.
//!
//! A [`TCell`] is an atomic that regions read and write in relaxed order: on x86-64 these are plain moves. Order comes from the
//! region, or from the lock that it falls back to. Outside of regions a cell is an atomic with the order that is asked for.
//! `Send + Sync`.

use hedgerow_sync::primitive::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::fmt::Debug;
use std::ops::{BitAnd, BitOr, Not};

mod sealed {
    pub trait Sealed {}
}

/// What a simulated region may reach.
#[doc(hidden)]
#[cfg(hedgerow_sim)]
pub use hedgerow_sim::transaction::Holds as Simulated;

#[doc(hidden)]
#[cfg(not(hedgerow_sim))]
pub trait Simulated<T> {}

#[cfg(not(hedgerow_sim))]
impl<A, T> Simulated<T> for A {}

/// A number that a cell can hold: `u8`, `u16`, `u32` or `u64`.
pub trait Word:
    Copy
    + Eq
    + Ord
    + Default
    + Debug
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + Not<Output = Self>
    + sealed::Sealed
    + 'static
{
    #[doc(hidden)]
    type Atomic: Simulated<Self> + Default + Debug + Send + Sync;
    #[doc(hidden)]
    fn new(value: Self) -> Self::Atomic;
    #[doc(hidden)]
    fn load(atomic: &Self::Atomic, order: Ordering) -> Self;
    #[doc(hidden)]
    fn store(atomic: &Self::Atomic, value: Self, order: Ordering);
    #[doc(hidden)]
    fn compare_exchange(
        atomic: &Self::Atomic,
        current: Self,
        new: Self,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Self, Self>;
    #[doc(hidden)]
    fn fetch_or(atomic: &Self::Atomic, mask: Self, order: Ordering) -> Self;
    #[doc(hidden)]
    fn fetch_and(atomic: &Self::Atomic, mask: Self, order: Ordering) -> Self;
    #[doc(hidden)]
    fn fetch_add(atomic: &Self::Atomic, value: Self, order: Ordering) -> Self;
    #[doc(hidden)]
    fn place(atomic: &Self::Atomic) -> Place<'_>;
    #[doc(hidden)]
    fn widen(self) -> u64;
    #[doc(hidden)]
    fn narrow(value: u64) -> Self;
}

/// A cell of any width, by which logs of a software transaction name it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// One byte.
    U8(&'a AtomicU8),
    /// Two bytes.
    U16(&'a AtomicU16),
    /// Four bytes.
    U32(&'a AtomicU32),
    /// Eight bytes.
    U64(&'a AtomicU64),
}

macro_rules! each_width {
    ($place:expr, $atomic:ident => $body:expr) => {
        match $place {
            Place::U8($atomic) => $body,
            Place::U16($atomic) => $body,
            Place::U32($atomic) => $body,
            Place::U64($atomic) => $body,
        }
    };
}

impl Place<'_> {
    pub(super) fn address(self) -> usize {
        each_width!(self, atomic => std::ptr::from_ref(atomic).addr())
    }

    pub(super) fn load(self) -> u64 {
        each_width!(self, atomic => atomic.load(Ordering::Relaxed).widen())
    }

    /// Keeps the bits of `keep` and sets those of `set`. A store of the whole word keeps none, and is no read-modify-write. Who sees the
    /// change outside of regions sees those that were made before it.
    pub(super) fn change(self, keep: u64, set: u64) {
        if keep == 0 {
            each_width!(self, atomic => atomic.store(Word::narrow(set), Ordering::Release));
        } else {
            each_width!(self, atomic => {
                let mut old = atomic.load(Ordering::Relaxed);
                loop {
                    let new = Word::narrow(old.widen() & keep | set);
                    match atomic.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed) {
                        Ok(_) => break,
                        Err(found) => old = found,
                    }
                }
            });
        }
    }
}

macro_rules! word {
    ($word:ty, $atomic:ident, $variant:ident) => {
        impl sealed::Sealed for $word {}

        impl Word for $word {
            type Atomic = $atomic;

            fn new(value: Self) -> $atomic {
                $atomic::new(value)
            }

            #[inline(always)]
            fn load(atomic: &$atomic, order: Ordering) -> Self {
                atomic.load(order)
            }

            #[inline(always)]
            fn store(atomic: &$atomic, value: Self, order: Ordering) {
                atomic.store(value, order);
            }

            #[inline(always)]
            fn compare_exchange(
                atomic: &$atomic,
                current: Self,
                new: Self,
                success: Ordering,
                failure: Ordering,
            ) -> Result<Self, Self> {
                atomic.compare_exchange(current, new, success, failure)
            }

            #[inline(always)]
            fn fetch_or(atomic: &$atomic, mask: Self, order: Ordering) -> Self {
                atomic.fetch_or(mask, order)
            }

            #[inline(always)]
            fn fetch_and(atomic: &$atomic, mask: Self, order: Ordering) -> Self {
                atomic.fetch_and(mask, order)
            }

            #[inline(always)]
            fn fetch_add(atomic: &$atomic, value: Self, order: Ordering) -> Self {
                atomic.fetch_add(value, order)
            }

            fn place(atomic: &$atomic) -> Place<'_> {
                Place::$variant(atomic)
            }

            #[inline(always)]
            fn widen(self) -> u64 {
                u64::from(self)
            }

            #[inline(always)]
            fn narrow(value: u64) -> Self {
                value as $word
            }
        }
    };
}

word!(u8, AtomicU8, U8);
word!(u16, AtomicU16, U16);
word!(u32, AtomicU32, U32);
word!(u64, AtomicU64, U64);

/// A word that a region may reach. A region does so through its [`Tx`](super::Tx) and in no other way.
#[repr(transparent)]
#[derive(Default, Debug)]
pub struct TCell<T: Word>(T::Atomic);

impl<T: Word> TCell<T> {
    /// With a first value.
    #[must_use]
    pub fn new(value: T) -> TCell<T> {
        TCell(T::new(value))
    }

    /// The value, outside of regions, in relaxed order.
    #[inline(always)]
    #[must_use]
    pub fn get(&self) -> T {
        T::load(&self.0, Ordering::Relaxed)
    }

    /// Sets the value, outside of regions, in relaxed order.
    #[inline(always)]
    pub fn set(&self, value: T) {
        T::store(&self.0, value, Ordering::Relaxed);
    }

    /// As an atomic's, outside of regions.
    #[inline(always)]
    #[must_use]
    pub fn load(&self, order: Ordering) -> T {
        T::load(&self.0, order)
    }

    /// As an atomic's, outside of regions.
    #[inline(always)]
    pub fn store(&self, value: T, order: Ordering) {
        T::store(&self.0, value, order);
    }

    /// As an atomic's, outside of regions.
    ///
    /// # Errors
    /// The value that was there instead.
    #[inline(always)]
    pub fn compare_exchange(
        &self,
        current: T,
        new: T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<T, T> {
        T::compare_exchange(&self.0, current, new, success, failure)
    }

    /// As an atomic's, outside of regions.
    #[inline(always)]
    pub fn fetch_or(&self, mask: T, order: Ordering) -> T {
        T::fetch_or(&self.0, mask, order)
    }

    /// As an atomic's, outside of regions.
    #[inline(always)]
    pub fn fetch_and(&self, mask: T, order: Ordering) -> T {
        T::fetch_and(&self.0, mask, order)
    }

    /// As an atomic's, outside of regions. Wraps around.
    #[inline(always)]
    pub fn fetch_add(&self, value: T, order: Ordering) -> T {
        T::fetch_add(&self.0, value, order)
    }

    #[cfg(hedgerow_sim)]
    #[inline(always)]
    pub(super) fn atomic(&self) -> &T::Atomic {
        &self.0
    }

    /// For the log of a software transaction.
    pub(super) fn place(&self) -> Place<'_> {
        T::place(&self.0)
    }
}
