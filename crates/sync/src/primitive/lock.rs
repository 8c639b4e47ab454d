//! Mutex, read-write lock and condition variable with one shape in every configuration.
//!
//! On the machine these are the standard library's, but nothing is ever poisoned. They keep all that they know of waiting threads
//! in the lock itself, so the locks of a forked child are sound. `parking_lot` keeps the threads in a table of the process, which a
//! child inherits. ThreadSanitizer does not see into the standard library, and gets `parking_lot`'s. The simulator has its own, in this
//! shape. Under a model they wrap the model's own, with two
//! differences that its users must expect: a timed wait gives way once and then says "timed out"
//! (so that no model hangs on a clock), and wake-ups may be spurious, as they always may.

#[cfg(not(any(loom, shuttle, hedgerow_tsan, hedgerow_sim)))]
mod real {
    #![allow(clippy::disallowed_types, reason = "this is the seam")]

    use std::fmt;
    use std::ops::{Deref, DerefMut};
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::{PoisonError, TryLockError};
    use std::time::Duration;

    pub use std::sync::{RwLockReadGuard, RwLockWriteGuard};

    /// A mutex without poisoning: a panic of the holder unlocks it.
    #[derive(Default)]
    pub struct Mutex<T>(std::sync::Mutex<T>);

    impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    impl<T> Mutex<T> {
        /// An unlocked mutex.
        pub const fn new(value: T) -> Mutex<T> {
            Mutex(std::sync::Mutex::new(value))
        }

        /// Locks. Blocks without a bound.
        #[inline]
        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
        }

        /// Locks if no other thread holds the lock. Never waits.
        #[inline]
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            match self.0.try_lock() {
                Ok(guard) => Some(MutexGuard(Some(guard))),
                Err(TryLockError::Poisoned(guard)) => Some(MutexGuard(Some(guard.into_inner()))),
                Err(TryLockError::WouldBlock) => None,
            }
        }

        /// The value, without locking.
        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
        }

        /// The value, out of the mutex.
        pub fn into_inner(self) -> T {
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// A locked mutex; dropping it unlocks.
    pub struct MutexGuard<'a, T>(Option<std::sync::MutexGuard<'a, T>>);

    const HELD: &str = "only a wait takes the inner guard, and it puts one back";

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        #[inline]
        fn deref(&self) -> &T {
            self.0.as_deref().expect(HELD)
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        #[inline]
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_deref_mut().expect(HELD)
        }
    }

    impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            T::fmt(self, f)
        }
    }

    /// A condition variable. Wake-ups may be spurious: wait in a loop.
    #[derive(Default, Debug)]
    pub struct Condvar {
        inner: std::sync::Condvar,
        /// Threads that wait, which they say with the mutex locked. The standard library makes a system call for each notification,
        /// whether anybody waits or not.
        waiting: AtomicUsize,
    }

    impl Condvar {
        /// A condition variable without waiting threads.
        #[must_use]
        pub const fn new() -> Condvar {
            Condvar { inner: std::sync::Condvar::new(), waiting: AtomicUsize::new(0) }
        }

        /// Unlocks, waits for a notification, locks again.
        #[allow(clippy::missing_panics_doc, reason = "a guard has its inner guard")]
        #[inline]
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let inner = guard.0.take().expect(HELD);
            self.waiting.fetch_add(1, SeqCst);
            guard.0 = Some(self.inner.wait(inner).unwrap_or_else(PoisonError::into_inner));
            self.waiting.fetch_sub(1, SeqCst);
        }

        /// As [`Self::wait`], but for `timeout` at most. True if the time ran out.
        #[allow(clippy::missing_panics_doc, reason = "a guard has its inner guard")]
        #[inline]
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
            let inner = guard.0.take().expect(HELD);
            self.waiting.fetch_add(1, SeqCst);
            let waited = self.inner.wait_timeout(inner, timeout);
            let (inner, outcome) = waited.unwrap_or_else(PoisonError::into_inner);
            guard.0 = Some(inner);
            self.waiting.fetch_sub(1, SeqCst);
            outcome.timed_out()
        }

        /// Wakes one waiting thread, if there is one.
        #[inline]
        pub fn notify_one(&self) {
            // Who waits has counted itself with the mutex locked. Whoever has changed what it waits for has locked that mutex, too: it
            // sees the count, or the thread has seen the change. A parent's waiting threads, in a forked child, cost a system call.
            if self.waiting.load(SeqCst) > 0 {
                self.inner.notify_one();
            }
        }

        /// Wakes all waiting threads.
        #[inline]
        pub fn notify_all(&self) {
            // As in `notify_one`.
            if self.waiting.load(SeqCst) > 0 {
                self.inner.notify_all();
            }
        }
    }

    /// A read-write lock without poisoning.
    #[derive(Default, Debug)]
    pub struct RwLock<T>(std::sync::RwLock<T>);

    impl<T> RwLock<T> {
        /// An unlocked lock.
        pub const fn new(value: T) -> RwLock<T> {
            RwLock(std::sync::RwLock::new(value))
        }

        /// Locks shared. Blocks without a bound.
        #[inline]
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        /// Locks exclusively. Blocks without a bound.
        #[inline]
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }

        /// Locks shared if no writer holds the lock. Never waits.
        #[inline]
        pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
            match self.0.try_read() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            }
        }

        /// Locks exclusively if no thread holds the lock. Never waits.
        #[inline]
        pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
            match self.0.try_write() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            }
        }

        /// The value, without locking.
        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
        }

        /// The value, out of the lock.
        pub fn into_inner(self) -> T {
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

#[cfg(all(hedgerow_tsan, not(any(loom, shuttle, hedgerow_sim))))]
mod real {
    use std::time::Duration;

    pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

    /// A condition variable. Wake-ups may be spurious: wait in a loop.
    #[derive(Default, Debug)]
    pub struct Condvar(parking_lot::Condvar);

    impl Condvar {
        /// A condition variable without waiting threads.
        #[must_use]
        #[must_use]
        pub const fn new() -> Condvar {
            Condvar(parking_lot::Condvar::new())
        }

        /// Unlocks, waits for a notification, locks again.
        #[inline]
        pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
            self.0.wait(guard);
        }

        /// As [`Self::wait`], but for `timeout` at most. True if the time ran out.
        #[inline]
        pub fn wait_for<T: ?Sized>(
            &self,
            guard: &mut MutexGuard<'_, T>,
            timeout: Duration,
        ) -> bool {
            self.0.wait_for(guard, timeout).timed_out()
        }

        /// Wakes one waiting thread, if there is one.
        #[inline]
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        /// Wakes all waiting threads.
        #[inline]
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

#[cfg(any(loom, shuttle))]
mod model {
    #[cfg(loom)]
    use loom as checker;
    #[cfg(shuttle)]
    use shuttle as checker;

    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    /// A model can only poison by panicking, which ends it.
    fn unpoisoned<G, E>(result: Result<G, E>) -> G {
        result.unwrap_or_else(|_| panic!("a thread of the model panicked with a lock held"))
    }

    /// A mutex without poisoning: a panic of the holder unlocks it.
    #[derive(Debug)]
    pub struct Mutex<T>(checker::sync::Mutex<T>);

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Mutex::new(T::default())
        }
    }

    impl<T> Mutex<T> {
        /// An unlocked mutex.
        pub fn new(value: T) -> Mutex<T> {
            Mutex(checker::sync::Mutex::new(value))
        }

        /// Locks. Blocks without a bound.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard { mutex: &self.0, guard: Some(unpoisoned(self.0.lock())) }
        }

        /// Locks if no other thread holds the lock. Never waits.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            let guard = self.0.try_lock().ok()?;
            Some(MutexGuard { mutex: &self.0, guard: Some(guard) })
        }

        /// The value, without locking.
        pub fn get_mut(&mut self) -> &mut T {
            unpoisoned(self.0.get_mut())
        }

        /// The value, out of the mutex.
        pub fn into_inner(self) -> T {
            unpoisoned(self.0.into_inner())
        }
    }

    /// A locked mutex; dropping it unlocks.
    pub struct MutexGuard<'a, T> {
        mutex: &'a checker::sync::Mutex<T>,
        guard: Option<checker::sync::MutexGuard<'a, T>>,
    }

    const HELD: &str = "only a wait takes the inner guard, and it puts one back";

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.guard.as_deref().expect(HELD)
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.guard.as_deref_mut().expect(HELD)
        }
    }

    /// A condition variable. Wake-ups may be spurious: wait in a loop.
    #[derive(Debug)]
    pub struct Condvar(checker::sync::Condvar);

    impl Default for Condvar {
        fn default() -> Self {
            Condvar::new()
        }
    }

    impl Condvar {
        /// A condition variable without waiting threads.
        #[must_use]
        pub fn new() -> Condvar {
            Condvar(checker::sync::Condvar::new())
        }

        /// Unlocks, waits for a notification, locks again.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let inner = guard.guard.take().expect(HELD);
            guard.guard = Some(unpoisoned(self.0.wait(inner)));
        }

        /// Unlocks, yields once, locks again, and returns true: the time ran out.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _timeout: Duration) -> bool {
            drop(guard.guard.take());
            checker::thread::yield_now();
            guard.guard = Some(unpoisoned(guard.mutex.lock()));
            true
        }

        /// Wakes one waiting thread, if there is one.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        /// Wakes all waiting threads.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    pub use checker::sync::{RwLockReadGuard, RwLockWriteGuard};

    /// A read-write lock without poisoning.
    #[derive(Debug)]
    pub struct RwLock<T>(checker::sync::RwLock<T>);

    impl<T: Default> Default for RwLock<T> {
        fn default() -> Self {
            RwLock::new(T::default())
        }
    }

    impl<T> RwLock<T> {
        /// An unlocked lock.
        pub fn new(value: T) -> RwLock<T> {
            RwLock(checker::sync::RwLock::new(value))
        }

        /// Locks shared. Blocks without a bound.
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            unpoisoned(self.0.read())
        }

        /// Locks exclusively. Blocks without a bound.
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            unpoisoned(self.0.write())
        }

        /// Locks shared if no writer holds the lock. Never waits.
        pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
            self.0.try_read().ok()
        }

        /// Locks exclusively if no thread holds the lock. Never waits.
        pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
            self.0.try_write().ok()
        }

        /// The value, without locking.
        pub fn get_mut(&mut self) -> &mut T {
            unpoisoned(self.0.get_mut())
        }

        /// The value, out of the lock.
        pub fn into_inner(self) -> T {
            unpoisoned(self.0.into_inner())
        }
    }
}

#[cfg(hedgerow_sim)]
pub use hedgerow_sim::lock::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
#[cfg(any(loom, shuttle))]
pub use model::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(any(loom, shuttle, hedgerow_sim)))]
pub use real::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
