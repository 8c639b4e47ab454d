//! The backend that always takes the lock: what all others fall back to, and what loom's models run.
//!
//! Nothing aborts. `Send + Sync`.

use super::{Counters, ElidableLock, Htm, Outcome, RetryPolicy, Site, TCell, Tx, Word};
use hedgerow_sync::primitive::atomic::Ordering::Release;
use std::convert::Infallible;
use std::marker::PhantomData;

/// A backend that takes the lock for each region.
#[derive(Debug, Default)]
pub struct Lock {
    counters: Counters,
}

impl Lock {
    /// A backend that has counted nothing.
    #[must_use]
    pub fn new() -> Lock {
        Lock::default()
    }
}

/// What a body under the lock reads and writes with.
#[derive(Debug)]
pub struct LockTx<'a>(PhantomData<&'a ()>);

impl LockTx<'_> {
    /// For whoever holds the lock, and for what is no region.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        LockTx(PhantomData)
    }
}

impl<'a> Tx<'a> for LockTx<'_> {
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
        // Who sees the bits outside of regions sees what was written before.
        Ok(cell.fetch_or(mask, Release))
    }

    #[inline(always)]
    fn fetch_and<T: Word>(&mut self, cell: &'a TCell<T>, mask: T) -> Result<T, Infallible> {
        Ok(cell.fetch_and(mask, Release))
    }

    #[inline(always)]
    fn abort(&mut self, _code: u8) -> Result<(), Infallible> {
        Ok(())
    }

    #[inline(always)]
    fn is_speculative(&self) -> bool {
        false
    }
}

impl Htm for Lock {
    type E = Infallible;
    type Tx<'a> = LockTx<'a>;

    #[inline(always)]
    fn atomic_counted<'a, R, B>(
        &self,
        lock: &'a ElidableLock,
        site: Site,
        mut body: B,
    ) -> (R, Outcome)
    where
        B: FnMut(&mut LockTx<'a>) -> Result<R, Infallible>,
    {
        self.counters.locked(site);
        let _held = lock.lock();
        let Ok(result) = body(&mut LockTx::new());
        (result, Outcome { aborts: 0, took_lock: true })
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn policy(&self) -> &RetryPolicy {
        &RetryPolicy::HPCA_NO_RETRY
    }
}
