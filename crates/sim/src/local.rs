//! Values of a thread of its own: the standard library's outside of a run, in a run the virtual thread's.

use crate::turns::with;
use std::rc::Rc;
use std::thread::AccessError;

/// Declares values that every thread has of its own, as the standard library's macro of this name does.
///
/// In a run each virtual thread makes its own on first use, and drops them, in that order, when it ends.
#[macro_export]
macro_rules! thread_local {
    () => {};
    ($(#[$attr:meta])* $vis:vis static $name:ident: $ty:ty = const $init:block $(; $($rest:tt)*)?) => {
        $crate::thread_local!($(#[$attr])* $vis static $name: $ty = $init $(; $($rest)*)?);
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $ty:ty = $init:expr $(; $($rest:tt)*)?) => {
        $(#[$attr])*
        $vis static $name: $crate::LocalKey<$ty> = {
            fn init() -> $ty {
                $init
            }
            ::std::thread_local! {
                static REAL: $ty = init();
            }
            $crate::LocalKey::new(&REAL, init)
        };
        $($crate::thread_local!($($rest)*);)?
    };
}

/// What [`crate::thread_local!`] declares.
pub struct LocalKey<T: 'static> {
    real: &'static std::thread::LocalKey<T>,
    init: fn() -> T,
}

impl<T: 'static> std::fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalKey").finish_non_exhaustive()
    }
}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn new(real: &'static std::thread::LocalKey<T>, init: fn() -> T) -> LocalKey<T> {
        LocalKey { real, init }
    }

    /// Lends the thread's value.
    ///
    /// # Panics
    /// The thread is ending, outside of a run.
    #[inline]
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        match self.simulated() {
            Some(value) => f(&value),
            None => self.real.with(f),
        }
    }

    /// Lends the thread's value, if it is not gone.
    ///
    /// # Errors
    /// The thread is ending, outside of a run. A virtual thread that is ending makes a new value each time.
    #[inline]
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        match self.simulated() {
            Some(value) => Ok(f(&value)),
            None => self.real.try_with(f),
        }
    }

    /// The value of the calling virtual thread; `None` outside of a run.
    fn simulated(&'static self) -> Option<Rc<T>> {
        let key = std::ptr::from_ref(self).addr();
        let known = with(|kernel| {
            let locals = kernel.thread().locals.as_ref()?;
            locals.iter().find(|(other, _)| *other == key).map(|(_, value)| Rc::clone(value))
        })?;
        if let Some(known) = known.and_then(|known| known.downcast::<T>().ok()) {
            return Some(known);
        }
        // Not with the kernel borrowed: making a value may take turns.
        let value = Rc::new((self.init)());
        let kept = Rc::clone(&value);
        with(|kernel| {
            if let Some(locals) = kernel.thread().locals.as_mut() {
                locals.push((key, kept));
            }
        });
        Some(value)
    }
}

impl<T: 'static> LocalKey<std::cell::Cell<T>> {
    /// Sets the value of a cell.
    pub fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }

    /// The value of a cell.
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(std::cell::Cell::get)
    }
}
