//! How an optimistic tree reads, and how it holds its nodes: by hybrid latches, by version words, or by version words in one region.
//!
//! An optimistic reader takes a stamp of a node, reads, and asks whether the stamp still holds; what it has read is worth something only
//! then. Thread-safety: an access belongs to one operation of one thread.

use crate::htm::{LockTx, TCell, Tx};
use hedgerow_sync::latch::{ExclusiveGuard, HybridLatch, Version};
use hedgerow_sync::primitive::atomic::Ordering::{Acquire, Relaxed, Release};
use hedgerow_sync::primitive::atomic::fence;
use hedgerow_sync::primitive::hint::spin_loop;
use hedgerow_sync::primitive::thread::yield_now;
use std::convert::Infallible;
use std::fmt::Debug;
use std::marker::PhantomData;

/// Looks at a latch before the thread waits for it, or gives the processor away.
const LOOKS: u32 = 200;

/// The latch of a version word: odd while it is held. It has a version like Masstree's, of one count for inserts and splits.
#[derive(Default, Debug)]
pub struct VersionWord(TCell<u64>);

/// How an operation on nodes with latches of type `L` reads and writes.
pub(crate) trait Access<'a, L: 'a> {
    /// As [`Tx::E`].
    type E: Debug;
    /// What data is read and written with.
    type X: Tx<'a, E = Self::E>;
    /// What a latch was like.
    type Stamp: Copy;
    /// Holds a latch.
    type Held;

    fn tx(&mut self) -> &mut Self::X;

    /// The stamp of a node that nobody holds; waits for it.
    fn begin(&mut self, latch: &'a L) -> Result<Self::Stamp, Self::E>;

    /// Whether nobody has held the latch since.
    fn still(&mut self, latch: &'a L, stamp: Self::Stamp) -> Result<bool, Self::E>;

    /// Takes the latch if nobody has held it since.
    fn upgrade(&mut self, latch: &'a L, stamp: Self::Stamp) -> Result<Option<Self::Held>, Self::E>;

    /// Releases it: the node has changed.
    fn release(&mut self, held: Self::Held) -> Result<(), Self::E>;
}

/// Outside of regions; counts looks at versions.
#[derive(Debug)]
pub(crate) struct Plain {
    tx: LockTx<'static>,
    pub(crate) checks: u64,
}

impl Plain {
    pub(crate) fn new() -> Plain {
        Plain { tx: LockTx::new(), checks: 0 }
    }
}

impl<'a> Access<'a, HybridLatch> for Plain {
    type E = Infallible;
    type X = LockTx<'static>;
    type Stamp = Version;
    type Held = ExclusiveGuard<'a>;

    fn tx(&mut self) -> &mut LockTx<'static> {
        &mut self.tx
    }

    #[inline]
    fn begin(&mut self, latch: &'a HybridLatch) -> Result<Version, Infallible> {
        self.checks += 1;
        let mut looks = 0;
        loop {
            if let Some(version) = latch.optimistic() {
                return Ok(version);
            }
            looks += 1;
            if looks % LOOKS == 0 {
                // Whoever holds it may have lost the processor.
                drop(latch.shared());
            } else {
                spin_loop();
            }
        }
    }

    #[inline]
    fn still(&mut self, latch: &'a HybridLatch, stamp: Version) -> Result<bool, Infallible> {
        self.checks += 1;
        Ok(latch.validate(stamp))
    }

    #[inline]
    fn upgrade(
        &mut self,
        latch: &'a HybridLatch,
        stamp: Version,
    ) -> Result<Option<ExclusiveGuard<'a>>, Infallible> {
        self.checks += 1;
        Ok(latch.try_upgrade(stamp))
    }

    #[inline]
    fn release(&mut self, held: ExclusiveGuard<'a>) -> Result<(), Infallible> {
        drop(held);
        Ok(())
    }
}

impl<'a> Access<'a, VersionWord> for Plain {
    type E = Infallible;
    type X = LockTx<'static>;
    type Stamp = u64;
    type Held = &'a VersionWord;

    fn tx(&mut self) -> &mut LockTx<'static> {
        &mut self.tx
    }

    #[inline]
    fn begin(&mut self, latch: &'a VersionWord) -> Result<u64, Infallible> {
        self.checks += 1;
        let mut looks = 0_u32;
        loop {
            let version = latch.0.load(Acquire);
            if version & 1 == 0 {
                return Ok(version);
            }
            looks += 1;
            if looks.is_multiple_of(LOOKS) {
                yield_now();
            }
            spin_loop();
        }
    }

    #[inline]
    fn still(&mut self, latch: &'a VersionWord, stamp: u64) -> Result<bool, Infallible> {
        self.checks += 1;
        // What was read comes before the look at the version.
        fence(Acquire);
        Ok(latch.0.load(Relaxed) == stamp)
    }

    #[inline]
    fn upgrade(
        &mut self,
        latch: &'a VersionWord,
        stamp: u64,
    ) -> Result<Option<&'a VersionWord>, Infallible> {
        self.checks += 1;
        let taken = latch.0.compare_exchange(stamp, stamp + 1, Acquire, Relaxed).is_ok();
        // Who sees a change sees that the version is odd.
        fence(Release);
        Ok(taken.then_some(latch))
    }

    #[inline]
    fn release(&mut self, held: &'a VersionWord) -> Result<(), Infallible> {
        held.0.store(held.0.get() + 1, Release);
        Ok(())
    }
}

/// In a region, which has the versions in its read set, and those of nodes that change in its write set.
pub(crate) struct InRegion<'x, 'a, X> {
    tx: &'x mut X,
    cells: PhantomData<&'a ()>,
}

impl<'x, X> InRegion<'x, '_, X> {
    pub(crate) fn new(tx: &'x mut X) -> Self {
        InRegion { tx, cells: PhantomData }
    }
}

impl<'a, X: Tx<'a>> Access<'a, VersionWord> for InRegion<'_, 'a, X> {
    type E = X::E;
    type X = X;
    type Stamp = u64;
    type Held = &'a VersionWord;

    fn tx(&mut self) -> &mut X {
        self.tx
    }

    #[inline]
    fn begin(&mut self, latch: &'a VersionWord) -> Result<u64, X::E> {
        // Nobody holds it: who would is in a region as well, and this one would have ended.
        self.tx.load(&latch.0)
    }

    #[inline]
    fn still(&mut self, latch: &'a VersionWord, stamp: u64) -> Result<bool, X::E> {
        Ok(self.tx.load(&latch.0)? == stamp)
    }

    #[inline]
    fn upgrade(
        &mut self,
        latch: &'a VersionWord,
        stamp: u64,
    ) -> Result<Option<&'a VersionWord>, X::E> {
        let is_same = self.tx.load(&latch.0)? == stamp;
        if is_same {
            self.tx.store(&latch.0, stamp + 1)?;
        }
        Ok(is_same.then_some(latch))
    }

    #[inline]
    fn release(&mut self, held: &'a VersionWord) -> Result<(), X::E> {
        let version = self.tx.load(&held.0)?;
        self.tx.store(&held.0, version + 1)
    }
}
