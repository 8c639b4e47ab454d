//! Mutex, read-write lock and condition variable: the standard library's, which in a run are waited for in simulated time.
//!
//! Nothing is ever poisoned. In a run the standard library's lock says who has it, and is only ever tried: a thread that
//! does not get it sleeps in the kernel. Threads take turns, so between a failed try and the sleep nobody can release it. A
//! woken thread tries again, as with a futex: others may overtake it. A thread that wants to read waits for
//! writers that sleep. `Send + Sync` as the standard library's.

#![allow(clippy::disallowed_types, reason = "this is the seam")]

use crate::atomic::spin_loop;
use crate::kernel::{Kind, Place};
use crate::turns::{access, is_running, sleep_at, wake_at};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

/// Looks at a lock before a thread sleeps, as in the standard library.
const SPINS: u32 = 100;
const HELD: &str = "only a wait or a drop takes the inner guard";

fn tried<G>(result: TryLockResult<G>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Attempts until one succeeds: spins first, and sleeps then.
fn wait<G>(address: usize, what: &'static str, mut attempt: impl FnMut() -> Option<G>) -> G {
    for _ in 0..SPINS {
        access(address, Kind::Load);
        if let Some(free) = attempt() {
            drop(free);
            access(address, Kind::Rmw);
            if let Some(guard) = attempt() {
                return guard;
            }
        }
        spin_loop();
    }
    loop {
        access(address, Kind::Rmw);
        if let Some(guard) = attempt() {
            return guard;
        }
        sleep_at(Place::Address(address), what, None);
    }
}

/// A mutex.
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

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Locks, waiting for ever.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, inner: Some(self.acquire()) }
    }

    fn acquire(&self) -> std::sync::MutexGuard<'_, T> {
        if !is_running() {
            return self.0.lock().unwrap_or_else(PoisonError::into_inner);
        }
        access(self.address(), Kind::Rmw);
        let attempt = || tried(self.0.try_lock());
        attempt().unwrap_or_else(|| wait(self.address(), "a mutex", attempt))
    }

    /// Locks if nobody else does.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        access(self.address(), Kind::Rmw);
        tried(self.0.try_lock()).map(|inner| MutexGuard { mutex: self, inner: Some(inner) })
    }

    /// The value, without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, out of the mutex.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self, inner: std::sync::MutexGuard<'_, T>) {
        access(self.address(), Kind::Rmw);
        drop(inner);
        wake_at(Place::Address(self.address()), 1);
    }
}

/// A locked mutex; dropping it unlocks.
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    inner: Option<std::sync::MutexGuard<'a, T>>,
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            self.mutex.release(inner);
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.inner.as_deref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_deref_mut().expect(HELD)
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
    /// Notifications in runs: one that comes between unlocking and sleeping is seen here.
    notified: AtomicU32,
}

impl Condvar {
    /// A condition variable that nobody waits for.
    #[must_use]
    pub const fn new() -> Condvar {
        Condvar { inner: std::sync::Condvar::new(), notified: AtomicU32::new(0) }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Unlocks, waits for a notification, locks again.
    #[allow(clippy::missing_panics_doc, reason = "a guard has its inner guard")]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if is_running() {
            self.sleep(guard, None);
        } else {
            let inner = guard.inner.take().expect(HELD);
            let inner = self.inner.wait(inner);
            guard.inner = Some(inner.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// As [`Self::wait`], but for `timeout` at most. True if the time ran out.
    #[allow(clippy::missing_panics_doc, reason = "a guard has its inner guard")]
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        if is_running() {
            return !self.sleep(guard, Some(timeout));
        }
        let inner = guard.inner.take().expect(HELD);
        let waited = self.inner.wait_timeout(inner, timeout);
        let (inner, outcome) = waited.unwrap_or_else(PoisonError::into_inner);
        guard.inner = Some(inner);
        outcome.timed_out()
    }

    /// False if the time ran out.
    fn sleep<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Option<Duration>) -> bool {
        access(self.address(), Kind::Load);
        let seen = self.notified.load(Relaxed);
        guard.mutex.release(guard.inner.take().expect(HELD));
        // In the turn in which the mutex was unlocked.
        let is_woken = self.notified.load(Relaxed) != seen
            || sleep_at(Place::Address(self.address()), "a condition", timeout);
        guard.inner = Some(guard.mutex.acquire());
        is_woken
    }

    fn notify(&self, most: usize) {
        access(self.address(), Kind::Rmw);
        self.notified.fetch_add(1, Relaxed);
        wake_at(Place::Address(self.address()), most);
    }

    /// Wakes one waiting thread, if there is one.
    #[inline]
    pub fn notify_one(&self) {
        if is_running() { self.notify(1) } else { self.inner.notify_one() }
    }

    /// Wakes all waiting threads.
    #[inline]
    pub fn notify_all(&self) {
        if is_running() { self.notify(usize::MAX) } else { self.inner.notify_all() }
    }
}

/// A read-write lock.
#[derive(Default, Debug)]
pub struct RwLock<T> {
    inner: std::sync::RwLock<T>,
    /// Threads of a run that wait to write.
    writers: AtomicU32,
}

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock { inner: std::sync::RwLock::new(value), writers: AtomicU32::new(0) }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Locks shared, waiting for ever.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let inner = match is_running() {
            true => {
                access(self.address(), Kind::Rmw);
                let free = || self.writers.load(Relaxed) == 0;
                let attempt = || free().then(|| tried(self.inner.try_read())).flatten();
                attempt().unwrap_or_else(|| wait(self.address(), "a lock to read", attempt))
            }
            false => self.inner.read().unwrap_or_else(PoisonError::into_inner),
        };
        RwLockReadGuard { lock: self, inner: Some(inner) }
    }

    /// Locks exclusively, waiting for ever.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let inner = match is_running() {
            true => {
                access(self.address(), Kind::Rmw);
                let attempt = || tried(self.inner.try_write());
                attempt().unwrap_or_else(|| {
                    self.writers.fetch_add(1, Relaxed);
                    let inner = wait(self.address(), "a lock to write", attempt);
                    self.writers.fetch_sub(1, Relaxed);
                    inner
                })
            }
            false => self.inner.write().unwrap_or_else(PoisonError::into_inner),
        };
        RwLockWriteGuard { lock: self, inner: Some(inner) }
    }

    /// Locks shared if no writer holds the lock.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        access(self.address(), Kind::Rmw);
        let inner = tried(self.inner.try_read())?;
        Some(RwLockReadGuard { lock: self, inner: Some(inner) })
    }

    /// Locks exclusively if nobody holds the lock.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        access(self.address(), Kind::Rmw);
        let inner = tried(self.inner.try_write())?;
        Some(RwLockWriteGuard { lock: self, inner: Some(inner) })
    }

    /// The value, without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, out of the lock.
    pub fn into_inner(self) -> T {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who waits is woken once nobody has the lock.
    fn released(&self) {
        if is_running() && tried(self.inner.try_write()).is_some() {
            wake_at(Place::Address(self.address()), usize::MAX);
        }
    }
}

macro_rules! guard {
    ($(#[$attr:meta])* $name:ident) => {
        $(#[$attr])*
        pub struct $name<'a, T> {
            lock: &'a RwLock<T>,
            inner: Option<std::sync::$name<'a, T>>,
        }

        impl<T> Drop for $name<'_, T> {
            #[inline]
            fn drop(&mut self) {
                access(self.lock.address(), Kind::Rmw);
                self.inner = None;
                self.lock.released();
            }
        }

        impl<T> Deref for $name<'_, T> {
            type Target = T;
            #[inline]
            fn deref(&self) -> &T {
                self.inner.as_deref().expect(HELD)
            }
        }

        impl<T: fmt::Debug> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                T::fmt(self, f)
            }
        }
    };
}

guard! {
    /// A lock that is held shared; dropping it unlocks.
    RwLockReadGuard
}
guard! {
    /// A lock that is held exclusively; dropping it unlocks.
    RwLockWriteGuard
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_deref_mut().expect(HELD)
    }
}
