//! The lock that regions elide: the fallback of all backends, and the sequence lock of [`NOrec`](super::NOrec).
//!
//! # Invariants
//! - The word is a sequence number. It is odd while somebody holds the lock, and rises by one when the lock is taken and when it
//!   is released. So one look tells whether the lock is free, and two tell whether anybody held it in between.
//! - A region reads the word before anything else, and goes on only if it is even. Whoever takes the lock writes the word, and so
//!   ends all regions that have read it.
//! - The word has a cache line of its own. What the policy counts about the lock is on another one.
//!
//! Under loom whoever takes the lock takes a mutex of the model as well: models of trees need no more than that regions exclude each
//! other. Regions in software take the word alone ([`ElidableLock::try_lock_at`]); a model has either these or the lock.
//! `Send + Sync`.

use super::TCell;
use hedgerow_sync::primitive::atomic::Ordering::{Acquire, Relaxed, Release};
use hedgerow_sync::primitive::atomic::fence;
#[cfg(loom)]
use hedgerow_sync::primitive::{Mutex, MutexGuard};

/// Looks at a taken lock before the processor is given to another thread.
#[cfg(not(loom))]
const LOOKS: u32 = 200;

/// A lock that regions elide.
#[derive(Default, Debug)]
#[repr(align(64))]
pub struct ElidableLock {
    word: Word,
    pub(super) elision: Elision,
    pub(super) shared: Shared,
}

/// What a lock of readers and writers uses instead.
#[derive(Default, Debug)]
#[repr(align(64))]
pub(super) struct Shared(pub TCell<u64>);

#[derive(Default, Debug)]
#[repr(align(64))]
struct Word {
    sequence: TCell<u64>,
    #[cfg(loom)]
    model: Mutex<()>,
}

/// Whether elision is worth it, as the policy counts it.
#[derive(Default, Debug)]
#[repr(align(64))]
pub(super) struct Elision {
    /// Regions that ended in the lock since elision was last disabled.
    pub failed: TCell<u32>,
    /// Regions that take the lock at once, before elision is tried again.
    pub skips: TCell<u32>,
}

/// Holds the lock; dropping it releases it.
#[cfg_attr(not(loom), derive(Debug))]
pub struct Held<'a> {
    lock: &'a ElidableLock,
    #[cfg(loom)]
    _model: Option<MutexGuard<'a, ()>>,
}

impl ElidableLock {
    /// A free lock.
    #[must_use]
    pub fn new() -> ElidableLock {
        ElidableLock::default()
    }

    /// The word that a region subscribes to; odd while the lock is held.
    #[inline(always)]
    #[must_use]
    pub fn word(&self) -> &TCell<u64> {
        &self.word.sequence
    }

    /// Whether somebody holds the lock.
    #[inline]
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.word.sequence.load(Relaxed) & 1 == 1
    }

    /// The sequence number, once nobody holds the lock. What the last holder wrote is seen after this.
    #[inline]
    #[cfg(not(loom))]
    pub fn wait_until_free(&self) -> u64 {
        use hedgerow_sync::primitive::{hint::spin_loop, thread::yield_now};
        let mut looks = 0;
        loop {
            let sequence = self.word.sequence.load(Acquire);
            if sequence & 1 == 0 {
                return sequence;
            }
            looks += 1;
            if looks % LOOKS == 0 {
                yield_now();
            } else {
                spin_loop();
            }
        }
    }

    /// The sequence number, once nobody holds the lock.
    #[cfg(loom)]
    pub fn wait_until_free(&self) -> u64 {
        loop {
            let sequence = self.word.sequence.load(Acquire);
            if sequence & 1 == 0 {
                return sequence;
            }
            hedgerow_sync::primitive::thread::yield_now();
        }
    }

    /// Takes the lock, waiting for ever.
    #[inline]
    pub fn lock(&self) -> Held<'_> {
        #[cfg(loom)]
        let model = self.word.model.lock();
        loop {
            let free = self.wait_until_free();
            if self.word.sequence.compare_exchange(free, free + 1, Acquire, Relaxed).is_ok() {
                // What is written under the lock is not seen before the word is odd.
                fence(Release);
                return Held {
                    lock: self,
                    #[cfg(loom)]
                    _model: Some(model),
                };
            }
        }
    }

    /// Takes the lock if the sequence number is still `free`, which is even.
    pub(super) fn try_lock_at(&self, free: u64) -> Option<Held<'_>> {
        self.word.sequence.compare_exchange(free, free + 1, Acquire, Relaxed).ok()?;
        fence(Release);
        Some(Held {
            lock: self,
            #[cfg(loom)]
            _model: None,
        })
    }
}

#[cfg(loom)]
impl std::fmt::Debug for Held<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").finish_non_exhaustive()
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        let word = &self.lock.word.sequence;
        word.store(word.load(Relaxed) + 1, Release);
    }
}
