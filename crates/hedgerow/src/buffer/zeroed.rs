//! Arrays that are as long as the memory limit allows, and cost only what is used of them.
//!
//! What the pool keeps for each frame (header, side entry, place in the free list) lies in memory that the system
//! gives as zeros when it is first touched. A zero is a valid value for the types here, so nobody builds the items,
//! and opening a store does not depend on the limit.
//!
//! Invariants: an item that nobody has changed is the same as `Zeroed::fresh`; the items are never dropped one by
//! one. In a model atomics are objects of the model and not plain bytes, so a model's items are built at once. Its
//! pools are tiny. `Send` and `Sync` as the items are.

use crate::error::Result;

#[cfg(not(any(loom, shuttle)))]
use crate::error::{Error, ErrorKind};
#[cfg(not(any(loom, shuttle)))]
use crate::storage::arena::Arena;
#[cfg(not(any(loom, shuttle)))]
use std::marker::PhantomData;

/// A type whose fresh value has only zeros for bytes.
///
/// # Safety
/// Outside of models, a value of all zero bytes must be valid and mean the same as `Self::fresh`; and the type needs
/// no drop.
pub unsafe trait Zeroed: Sized {
    /// The value of an item that nobody has changed.
    #[cfg(any(test, loom, shuttle))]
    fn fresh() -> Self;
}

// SAFETY: zero is a valid number, and numbers need no drop.
unsafe impl Zeroed for u32 {
    #[cfg(any(test, loom, shuttle))]
    fn fresh() -> u32 {
        0
    }
}

/// An array of fresh items; see the head of the file.
#[cfg(not(any(loom, shuttle)))]
pub struct ZeroedArray<T> {
    arena: Arena,
    len: usize,
    items: PhantomData<T>,
}

#[cfg(not(any(loom, shuttle)))]
impl<T: Zeroed> ZeroedArray<T> {
    const NO_DROP: () = assert!(!std::mem::needs_drop::<T>() && align_of::<T>() <= 4096);

    /// `len` fresh items. Touches none of them.
    ///
    /// Errors: `MemoryLimit` if the system refuses so much address space.
    pub fn new(len: usize) -> Result<ZeroedArray<T>> {
        let () = Self::NO_DROP;
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| {
            let words = format!("{len} items of {} bytes exceed all addresses", size_of::<T>());
            Error::new(ErrorKind::MemoryLimit, words)
        })?;
        Ok(ZeroedArray { arena: Arena::reserve_sparse(bytes.max(1))?, len, items: PhantomData })
    }

    /// The items.
    #[inline(always)]
    pub fn items(&self) -> &[T] {
        // SAFETY: the arena has at least `len` items' bytes, begins at a page of the system (`NO_DROP` checks that this
        // alignment suffices), lives as long as `self`, and is zero where nobody wrote: valid items, by `Zeroed`.
        // Changes go through `&mut self`, or through the items' own atomics.
        unsafe { std::slice::from_raw_parts(self.arena.base().cast(), self.len) }
    }

    /// The items, to be changed.
    pub fn items_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `items`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.arena.base().cast(), self.len) }
    }
}

/// An array of fresh items; see the head of the file.
#[cfg(any(loom, shuttle))]
pub struct ZeroedArray<T> {
    items: Box<[T]>,
}

#[cfg(any(loom, shuttle))]
impl<T: Zeroed> ZeroedArray<T> {
    /// `len` fresh items.
    pub fn new(len: usize) -> Result<ZeroedArray<T>> {
        Ok(ZeroedArray { items: (0..len).map(|_| T::fresh()).collect() })
    }

    /// The items.
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// The items, to be changed.
    pub fn items_mut(&mut self) -> &mut [T] {
        &mut self.items
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    #[test]
    fn what_cannot_be_had_is_an_error() {
        for len in [usize::MAX, usize::MAX / 8, 1 << 55] {
            let error = ZeroedArray::<u32>::new(len).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::MemoryLimit, "{len}");
        }
    }

    #[test]
    fn items_keep_what_is_written() {
        let mut array = ZeroedArray::<u32>::new(1 << 30).unwrap();
        array.items_mut()[(1 << 30) - 1] = 7;
        assert_eq!(array.items()[(1 << 30) - 1], 7);
        assert_eq!(array.items()[1 << 29], 0);
        assert!(ZeroedArray::<u32>::new(0).unwrap().items().is_empty());
    }
}
