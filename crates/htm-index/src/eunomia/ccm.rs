//! The conflict control module of a leaf: locks and marks of its keys, and how contended it is (section 4.1).
//!
//! A key has a mark of 64, and the lock of its mark / 2; so keys that share a mark share a lock.
//!
//! # Invariants
//! - A record of a leaf that has a CCM has its mark set, whenever no region is under way. So a key without a mark is not there.
//!   Marks of keys that are not there do no harm.
//! - Marks are changed by fetch-or and fetch-and alone, so nobody overwrites what somebody else has marked meanwhile.
//! - A mark is cleared by whoever removes a record and has seen, in the same region and under the key's lock, that no other key of the
//!   leaf has it; or by a split or merge, which rebuilds all marks after it has raised the sequence number of the leaf.
//! - Lock bytes are never reset, not even when the leaf is freed and taken again.
//! - Who has the lock of a key, in a leaf that is contended ([`Use::is_hot`]), is alone with the key, or together with readers. Locks are
//!   advice: regions stay atomic without them.
//!
//! A leaf that was freed keeps its CCM. Who comes too late may lock or mark in it all the same, which costs others time and no
//! more. `Send + Sync`.

use super::node::{Ccm, NONE};
use crate::htm::{TCell, Tx};
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use hedgerow_sync::primitive::hint::spin_loop;
#[cfg(not(loom))]
use hedgerow_sync::primitive::thread::yield_now;

/// A lock byte: readers, or this for a writer.
const WRITER: u8 = 0x80;
/// Readers of a lock at most.
const MOST_READERS: u8 = 0x7f;
/// Looks at a lock before the processor is given away.
#[cfg(not(loom))]
const LOOKS: u32 = 500;

/// The mark of a key, from 0 to 63.
#[inline(always)]
#[must_use]
pub fn mark_of(key: u64) -> u32 {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as u32
}

/// A word with the mark of a key.
#[inline(always)]
pub(crate) fn bit_of(key: u64) -> u64 {
    1 << mark_of(key)
}

/// How a leaf uses its CCM: the word of its header. The number of the CCM, whether operations go through it, and how often that has
/// changed. Two equal words mean that nothing has changed in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use(pub(crate) u64);

impl Use {
    /// No CCM.
    pub(crate) const NONE: Use = Use(NONE as u64);
    const HOT: u64 = 1 << 32;
    const EPOCH: u64 = 1 << 33;

    /// The number of the CCM, if the leaf has one.
    pub(crate) fn number(self) -> Option<u32> {
        Some(self.0 as u32).filter(|&number| number != NONE)
    }

    /// Operations lock and mark.
    pub(crate) fn is_hot(self) -> bool {
        self.0 & Use::HOT != 0
    }

    /// A CCM from now on.
    pub(crate) fn attached(self, number: u32, is_hot: bool) -> Use {
        let epoch = (self.0 & !(Use::EPOCH - 1)).wrapping_add(Use::EPOCH);
        Use(epoch | u64::from(number) | if is_hot { Use::HOT } else { 0 })
    }

    /// The other way of using it.
    pub(crate) fn turned(self) -> Use {
        Use(self.0.wrapping_add(Use::EPOCH) ^ Use::HOT)
    }
}

/// Holds the lock of a key; dropping it releases it.
#[derive(Debug)]
pub struct KeyLock<'a> {
    byte: &'a TCell<u8>,
    is_writer: bool,
    /// Somebody else had it first.
    pub(crate) waited: bool,
}

impl Ccm {
    /// Takes the lock of a key: as a reader together with others, as a writer alone. Waits for ever.
    pub fn lock(&self, key: u64, is_writer: bool) -> KeyLock<'_> {
        let byte = &self.locks[mark_of(key) as usize / 2];
        let mut waited = false;
        #[cfg(not(loom))]
        let mut looks = 0_u32;
        // It is free most of the time, and a look before would bring the line here twice.
        let mut found = 0;
        loop {
            let wanted = match (is_writer, found) {
                (true, 0) => Some(WRITER),
                (false, readers) if readers < MOST_READERS => Some(readers + 1),
                _ => None,
            };
            match wanted {
                Some(wanted) => match byte.compare_exchange(found, wanted, Acquire, Relaxed) {
                    Ok(_) => return KeyLock { byte, is_writer, waited },
                    Err(other) => found = other,
                },
                None => {
                    waited = true;
                    #[cfg(not(loom))]
                    {
                        looks += 1;
                        if looks.is_multiple_of(LOOKS) {
                            yield_now();
                        }
                    }
                    spin_loop();
                    found = byte.load(Relaxed);
                }
            }
        }
    }

    /// Marks a key, outside of regions. Whether it was marked.
    pub fn mark(&self, key: u64) -> bool {
        let bit = bit_of(key);
        // Most keys are marked already, and a look takes the line away from nobody.
        self.marks.load(Acquire) & bit != 0 || self.marks.fetch_or(bit, AcqRel) & bit != 0
    }

    /// Whether a key is marked, outside of regions. What is read next is as new as the answer.
    pub fn is_marked(&self, key: u64) -> bool {
        self.marks.load(Acquire) & bit_of(key) != 0
    }

    /// Clears the mark of a key. For models, where a region is a mutex.
    #[cfg(loom)]
    pub fn unmark(&self, key: u64) {
        self.marks.fetch_and(!bit_of(key), Release);
    }

    /// Has the marks be those of `keys`. For models, where a region is a mutex.
    #[cfg(loom)]
    pub fn rebuild(&self, keys: impl Iterator<Item = u64>) {
        let marks = keys.fold(0, |marks, key| marks | bit_of(key));
        self.marks.fetch_or(marks, Release);
        self.marks.fetch_and(marks, Release);
    }

    /// Marks a key, in a region.
    ///
    /// # Errors
    /// The region has to begin anew.
    #[inline(always)]
    pub(crate) fn mark_in<'a, X: Tx<'a>>(&'a self, tx: &mut X, key: u64) -> Result<(), X::E> {
        let bit = bit_of(key);
        if tx.load(&self.marks)? & bit == 0 {
            tx.fetch_or(&self.marks, bit)?;
        }
        Ok(())
    }

    /// Clears the mark of a key, in a region: no record of the leaf has it any more.
    ///
    /// # Errors
    /// The region has to begin anew.
    pub(crate) fn unmark_in<'a, X: Tx<'a>>(&'a self, tx: &mut X, key: u64) -> Result<(), X::E> {
        tx.fetch_and(&self.marks, !bit_of(key)).map(drop)
    }

    /// Has the marks be those of `marks`, in a region: the leaf has been split or merged, and its sequence number has been raised.
    ///
    /// # Errors
    /// The region has to begin anew.
    pub(crate) fn rebuild_in<'a, X: Tx<'a>>(&'a self, tx: &mut X, marks: u64) -> Result<(), X::E> {
        tx.fetch_or(&self.marks, marks)?;
        tx.fetch_and(&self.marks, marks).map(drop)
    }
}

impl Drop for KeyLock<'_> {
    fn drop(&mut self) {
        if self.is_writer {
            self.byte.store(0, Release);
        } else {
            // One reader less. Nothing is carried over: there are readers.
            self.byte.fetch_add(u8::MAX, Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::eunomia::node::LOCKS;

    #[test]
    fn keys_that_share_a_mark_share_a_lock() {
        let locks: Vec<u32> = (0..1_000).map(|key| mark_of(key) / 2).collect();
        assert!(locks.iter().all(|&lock| (lock as usize) < LOCKS));
        let different: std::collections::BTreeSet<&u32> = locks.iter().collect();
        assert_eq!(different.len(), LOCKS);
    }

    #[test]
    fn readers_share_a_lock_and_writers_do_not() {
        let ccm = Ccm::default();
        let byte = &ccm.locks[mark_of(7) as usize / 2];
        let (first, second) = (ccm.lock(7, false), ccm.lock(7, false));
        assert_eq!(byte.get(), 2);
        drop(first);
        drop(second);
        assert_eq!(byte.get(), 0);
        let writer = ccm.lock(7, true);
        assert_eq!((byte.get(), writer.waited), (WRITER, false));
        drop(writer);
        assert_eq!(byte.get(), 0);
    }

    #[test]
    fn uses_that_differ_in_anything_are_not_equal() {
        let first = Use::NONE.attached(3, true);
        assert_eq!((first.number(), first.is_hot()), (Some(3), true));
        let cold = first.turned();
        assert_eq!((cold.number(), cold.is_hot()), (Some(3), false));
        let again = cold.turned();
        assert_eq!((again.number(), again.is_hot()), (Some(3), true));
        assert_ne!(again, first);
        assert_eq!((Use::NONE.number(), Use::NONE.is_hot()), (None, false));
    }
}
