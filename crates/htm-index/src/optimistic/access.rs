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

/// The version of a node of Masstree: a lock, a mark while the node changes, and counts of its inserts and of its splits.
#[derive(Default, Debug)]
pub struct VersionWord(TCell<u64>);

/// Somebody holds the node. Readers go on.
const LOCKED: u64 = 1;
/// Its records move. Readers wait.
const CHANGING: u64 = 2;
/// One insert, or one removal.
const INSERT: u64 = 4;
/// One split.
const SPLIT: u64 = 1 << 32;

impl VersionWord {
    /// The version when nobody changes the node; waits for it.
    #[inline]
    fn stable(&self) -> u64 {
        let mut looks = 0;
        loop {
            let version = self.0.load(Acquire);
            if version & CHANGING == 0 {
                return version & !LOCKED;
            }
            pause(&mut looks);
        }
    }
}

/// Between two looks at what somebody else holds.
#[inline]
fn pause(looks: &mut u32) {
    *looks += 1;
    if looks.is_multiple_of(LOOKS) {
        yield_now();
    }
    spin_loop();
}

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

    /// Takes the latch if nobody has held it since, to change the node.
    fn upgrade(&mut self, latch: &'a L, stamp: Self::Stamp) -> Result<Option<Self::Held>, Self::E>;

    /// Releases it: the node was split, or has a child more.
    fn release(&mut self, held: Self::Held) -> Result<(), Self::E>;

    /// Holds a leaf before a writer looks for its key there, if that is the way of these trees: `Some(None)` if it is not. Nothing
    /// if the leaf was split since.
    fn lock(
        &mut self,
        latch: &'a L,
        stamp: Self::Stamp,
    ) -> Result<Option<Option<Self::Held>>, Self::E>;

    /// Before the records of a leaf that is held move.
    fn change(&mut self, held: &Self::Held) -> Result<(), Self::E>;

    /// Releases a leaf whose records have moved.
    fn release_changed(&mut self, held: Self::Held) -> Result<(), Self::E>;

    /// Releases a leaf of which at most one value was replaced, which readers may see at once.
    fn release_in_place(&mut self, held: Self::Held) -> Result<(), Self::E>;
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

    #[inline]
    fn lock(
        &mut self,
        _: &'a HybridLatch,
        _: Version,
    ) -> Result<Option<Option<ExclusiveGuard<'a>>>, Infallible> {
        Ok(Some(None))
    }

    #[inline]
    fn change(&mut self, _: &ExclusiveGuard<'a>) -> Result<(), Infallible> {
        Ok(())
    }

    #[inline]
    fn release_changed(&mut self, held: ExclusiveGuard<'a>) -> Result<(), Infallible> {
        drop(held);
        Ok(())
    }

    #[inline]
    fn release_in_place(&mut self, held: ExclusiveGuard<'a>) -> Result<(), Infallible> {
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
        Ok(latch.stable())
    }

    #[inline]
    fn still(&mut self, latch: &'a VersionWord, stamp: u64) -> Result<bool, Infallible> {
        self.checks += 1;
        // What was read comes before the look at the version.
        fence(Acquire);
        Ok(latch.0.load(Relaxed) & !LOCKED == stamp)
    }

    #[inline]
    fn upgrade(
        &mut self,
        latch: &'a VersionWord,
        stamp: u64,
    ) -> Result<Option<&'a VersionWord>, Infallible> {
        self.checks += 1;
        let held = stamp | LOCKED | CHANGING;
        let taken = latch.0.compare_exchange(stamp, held, Acquire, Relaxed).is_ok();
        // Who sees a change sees that the node changes.
        fence(Release);
        Ok(taken.then_some(latch))
    }

    #[inline]
    fn release(&mut self, held: &'a VersionWord) -> Result<(), Infallible> {
        let version = held.0.get() & !(LOCKED | CHANGING);
        held.0.store(version.wrapping_add(SPLIT), Release);
        Ok(())
    }

    #[inline]
    fn lock(
        &mut self,
        latch: &'a VersionWord,
        stamp: u64,
    ) -> Result<Option<Option<&'a VersionWord>>, Infallible> {
        self.checks += 1;
        let mut looks = 0;
        loop {
            let version = latch.0.load(Relaxed);
            let is_free = version & LOCKED == 0;
            let held = version | LOCKED;
            if is_free && latch.0.compare_exchange(version, held, Acquire, Relaxed).is_ok() {
                // Of inserts it sees what they have done.
                if version / SPLIT == stamp / SPLIT {
                    return Ok(Some(Some(latch)));
                }
                latch.0.store(version, Release);
                return Ok(None);
            }
            pause(&mut looks);
        }
    }

    #[inline]
    fn change(&mut self, held: &&'a VersionWord) -> Result<(), Infallible> {
        held.0.store(held.0.get() | CHANGING, Relaxed);
        // Who sees a change sees that the node changes.
        fence(Release);
        Ok(())
    }

    #[inline]
    fn release_changed(&mut self, held: &'a VersionWord) -> Result<(), Infallible> {
        let version = held.0.get() & !(LOCKED | CHANGING);
        held.0.store(version.wrapping_add(INSERT), Release);
        Ok(())
    }

    #[inline]
    fn release_in_place(&mut self, held: &'a VersionWord) -> Result<(), Infallible> {
        held.0.store(held.0.get() & !LOCKED, Release);
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
        // Nobody holds it: locks are elided here.
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
        Ok((self.tx.load(&latch.0)? == stamp).then_some(latch))
    }

    #[inline]
    fn release(&mut self, held: &'a VersionWord) -> Result<(), X::E> {
        let version = self.tx.load(&held.0)?;
        self.tx.store(&held.0, version.wrapping_add(SPLIT))
    }

    #[inline]
    fn lock(
        &mut self,
        latch: &'a VersionWord,
        stamp: u64,
    ) -> Result<Option<Option<&'a VersionWord>>, X::E> {
        Ok((self.tx.load(&latch.0)? == stamp).then_some(Some(latch)))
    }

    #[inline]
    fn change(&mut self, _: &&'a VersionWord) -> Result<(), X::E> {
        Ok(())
    }

    #[inline]
    fn release_changed(&mut self, held: &'a VersionWord) -> Result<(), X::E> {
        let version = self.tx.load(&held.0)?;
        self.tx.store(&held.0, version.wrapping_add(INSERT))
    }

    #[inline]
    fn release_in_place(&mut self, _: &'a VersionWord) -> Result<(), X::E> {
        Ok(())
    }
}
