//! Mutex, read-write lock and condition variable with one shape in every configuration.
//!
//! On the machine these are `parking_lot`'s. Under a model they wrap the model's own, with two
//! differences that its users must expect: a timed wait gives way once and then says "timed out"
//! (so that no model hangs on a clock), and wake-ups may be spurious, as they always may.

#[cfg(not(any(loom, shuttle)))]
mod real {
    use std::time::Duration;

    pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

    /// A condition variable. Wake-ups may be spurious: wait in a loop.
    #[derive(Default, Debug)]
    pub struct Condvar(parking_lot::Condvar);

    impl Condvar {
        /// A condition variable that nobody waits for.
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

    /// A mutex.
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

        /// Locks, waiting for ever.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard { mutex: &self.0, guard: Some(unpoisoned(self.0.lock())) }
        }

        /// Locks if nobody else does.
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
        /// A condition variable that nobody waits for.
        pub fn new() -> Condvar {
            Condvar(checker::sync::Condvar::new())
        }

        /// Unlocks, waits for a notification, locks again.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let inner = guard.guard.take().expect(HELD);
            guard.guard = Some(unpoisoned(self.0.wait(inner)));
        }

        /// Unlocks, gives way once, locks again, and says that the time ran out.
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

    /// A read-write lock.
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

        /// Locks shared, waiting for ever.
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            unpoisoned(self.0.read())
        }

        /// Locks exclusively, waiting for ever.
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            unpoisoned(self.0.write())
        }

        /// Locks shared if no writer holds the lock.
        pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
            self.0.try_read().ok()
        }

        /// Locks exclusively if nobody holds the lock.
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

#[cfg(any(loom, shuttle))]
pub use model::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(any(loom, shuttle)))]
pub use real::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
