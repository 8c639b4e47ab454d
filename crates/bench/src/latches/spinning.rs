//! Latches at whose one word everybody waits.
//!
//! A holder is entered by an acquire operation that sees what the last one released. None of them is fair.

use super::words::Word;
use super::{Latch, pause, spin};
use hedgerow_sync::primitive::atomic::{AtomicU64, Ordering, fence};

/// A version and a bit: readers store nothing, writers spin.
#[derive(Default)]
pub struct Optimistic(AtomicU64);

impl Latch for Optimistic {
    #[inline]
    fn read<R>(&self, mut read: impl FnMut() -> R) -> R {
        loop {
            let mut version = 0;
            spin(|| {
                version = self.0.load(Ordering::Acquire);
                version & 1 == 0
            });
            let result = read();
            // Reads of the data come before the second look. With the writer's fence: whoever saw a byte of a change sees its bit.
            fence(Ordering::Acquire);
            if self.0.load(Ordering::Relaxed) == version {
                return result;
            }
        }
    }

    #[inline]
    fn write<R>(&self, write: impl FnOnce() -> R) -> R {
        let mut version = 0;
        spin(|| {
            version = self.0.load(Ordering::Relaxed);
            version & 1 == 0 && self.0.exchange(version, version + 1)
        });
        fence(Ordering::Release);
        let result = write();
        self.0.store(version + 2, Ordering::Release);
        result
    }
}

/// The writer's bit and twice the number of readers. Everybody spins; a reader gives way while the number is the largest.
#[derive(Default)]
pub struct ReadWrite<W>(W);

impl<W: Word> Latch for ReadWrite<W> {
    #[inline]
    fn read<R>(&self, mut read: impl FnMut() -> R) -> R {
        spin(|| {
            let word = self.0.load(Ordering::Relaxed);
            word & 1 == 0 && word < W::MOST - 1 && self.0.exchange(word, word + 2)
        });
        let result = read();
        self.0.subtract(2, Ordering::Release);
        result
    }

    #[inline]
    fn write<R>(&self, write: impl FnOnce() -> R) -> R {
        spin(|| self.0.load(Ordering::Relaxed) == 0 && self.0.exchange(0, 1));
        let result = write();
        // No reader has entered meanwhile.
        self.0.store(0, Ordering::Release);
        result
    }
}

/// Test-and-set: swaps until it was free.
#[derive(Default)]
pub struct TestAndSet<W>(W);

impl<W: Word> Latch for TestAndSet<W> {
    #[inline]
    fn read<R>(&self, mut read: impl FnMut() -> R) -> R {
        self.write(&mut read)
    }

    #[inline]
    fn write<R>(&self, write: impl FnOnce() -> R) -> R {
        spin(|| self.0.swap(1, Ordering::Acquire) == 0);
        let result = write();
        self.0.store(0, Ordering::Release);
        result
    }
}

/// Test-and-test-and-set: swaps only when it has seen that it is free.
#[derive(Default)]
pub struct TestFirst<W>(W);

impl<W: Word> Latch for TestFirst<W> {
    #[inline]
    fn read<R>(&self, mut read: impl FnMut() -> R) -> R {
        self.write(&mut read)
    }

    #[inline]
    fn write<R>(&self, write: impl FnOnce() -> R) -> R {
        spin(|| self.0.load(Ordering::Relaxed) == 0 && self.0.swap(1, Ordering::Acquire) == 0);
        let result = write();
        self.0.store(0, Ordering::Release);
        result
    }
}

/// Pauses of the longest wait of [`Backoff`].
const LONGEST_PAUSE: u32 = 1_024;

/// Test-and-test-and-set with exponential backoff: each attempt that fails doubles the pause.
#[derive(Default)]
pub struct Backoff<W>(W);

impl<W: Word> Latch for Backoff<W> {
    #[inline]
    fn read<R>(&self, mut read: impl FnMut() -> R) -> R {
        self.write(&mut read)
    }

    #[inline]
    fn write<R>(&self, write: impl FnOnce() -> R) -> R {
        let mut pauses = 1;
        while self.0.load(Ordering::Relaxed) != 0 || self.0.swap(1, Ordering::Acquire) != 0 {
            pause(pauses);
            pauses = (2 * pauses).min(LONGEST_PAUSE);
        }
        let result = write();
        self.0.store(0, Ordering::Release);
        result
    }
}
