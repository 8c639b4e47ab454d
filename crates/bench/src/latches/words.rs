//! Words of 1 and 8 bytes, so that a latch is written once for both.
//!
//! Thread-safety: as atomics.

use hedgerow_sync::primitive::atomic::{AtomicU8, AtomicU64, Ordering};

/// A word. A new one is zero.
pub trait Word: Default + Send + Sync + 'static {
    /// The largest number in it.
    const MOST: u64;

    /// The number.
    fn load(&self, order: Ordering) -> u64;
    /// Makes it another number.
    fn store(&self, number: u64, order: Ordering);
    /// Makes it another number, and returns the one before.
    fn swap(&self, number: u64, order: Ordering) -> u64;
    /// Makes it `new` if it is `old`, with acquire ordering. Returns whether it was.
    fn exchange(&self, old: u64, new: u64) -> bool;
    /// Subtracts a number.
    fn subtract(&self, number: u64, order: Ordering);
}

macro_rules! word {
    ($atomic:ty, $number:ty) => {
        impl Word for $atomic {
            const MOST: u64 = <$number>::MAX as u64;

            #[inline]
            fn load(&self, order: Ordering) -> u64 {
                self.load(order).into()
            }

            #[inline]
            fn store(&self, number: u64, order: Ordering) {
                self.store(number as $number, order);
            }

            #[inline]
            fn swap(&self, number: u64, order: Ordering) -> u64 {
                self.swap(number as $number, order).into()
            }

            #[inline]
            fn exchange(&self, old: u64, new: u64) -> bool {
                let (old, new) = (old as $number, new as $number);
                self.compare_exchange(old, new, Ordering::Acquire, Ordering::Relaxed).is_ok()
            }

            #[inline]
            fn subtract(&self, number: u64, order: Ordering) {
                self.fetch_sub(number as $number, order);
            }
        }
    };
}

word!(AtomicU8, u8);
word!(AtomicU64, u64);
