//! Atomics and fences: the standard library's, whose accesses are charged in a run.
//!
//! Every access is sequentially consistent in a run, because threads take their turns one at a time; orderings count only for
//! costs, as on x86-64. Transparent over the standard library's types.

use crate::kernel::Kind;
use crate::turns::{access, wait_for_turn, with};
use crate::undo::Old;
use std::fmt;
use std::sync::atomic as real;

pub use std::sync::atomic::Ordering;

/// A fence. In a run a sequentially consistent one costs as much as a read-modify-write, and others nothing.
#[inline]
pub fn fence(order: Ordering) {
    if order == Ordering::SeqCst {
        with(|kernel| {
            kernel.counts.events += 1;
            kernel.spend(u64::from(kernel.machine.rmw));
        });
    }
    real::fence(order);
}

#[inline]
fn store_kind(order: Ordering) -> Kind {
    if order == Ordering::SeqCst { Kind::Rmw } else { Kind::Store }
}

macro_rules! common {
    ($name:ident, $value:ty $(, $param:ident)?) => {
        impl $(<$param>)? $name $(<$param>)? {
            /// With a first value.
            #[inline]
            #[must_use]
            pub const fn new(value: $value) -> Self {
                Self(real::$name::new(value))
            }

            #[inline]
            fn charge(&self, kind: Kind) {
                access(std::ptr::from_ref(self).addr(), kind);
            }

            /// The value, by who is alone with it. Not charged.
            #[inline]
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            /// The value. Not charged.
            #[inline]
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            /// A pointer to the value, accesses through which are not charged.
            #[inline]
            pub const fn as_ptr(&self) -> *mut $value {
                self.0.as_ptr()
            }

            /// As the standard library's.
            #[inline]
            pub fn load(&self, order: Ordering) -> $value {
                self.charge(Kind::Load);
                self.0.load(order)
            }

            /// As the standard library's.
            #[inline]
            pub fn store(&self, value: $value, order: Ordering) {
                self.charge(store_kind(order));
                self.0.store(value, order);
            }

            /// As the standard library's.
            #[inline]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.charge(Kind::Rmw);
                self.0.swap(value, order)
            }

            /// As the standard library's.
            ///
            /// # Errors
            /// The value that was there instead.
            #[inline]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.charge(Kind::Rmw);
                self.0.compare_exchange(current, new, success, failure)
            }

            /// As the standard library's; never fails for nothing in a run.
            ///
            /// # Errors
            /// The value that was there instead.
            #[inline]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            /// As the standard library's.
            ///
            /// # Errors
            /// The value for which `f` said no.
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut old = self.load(fetch);
                while let Some(new) = f(old) {
                    match self.compare_exchange_weak(old, new, set, fetch) {
                        Ok(old) => return Ok(old),
                        Err(found) => old = found,
                    }
                }
                Err(old)
            }
        }

        impl $(<$param>)? fmt::Debug for $name $(<$param>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // Not charged: who debugs should not change the run.
                self.0.fmt(f)
            }
        }

        impl $(<$param>)? From<$value> for $name $(<$param>)? {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }
    };
}

macro_rules! rmw {
    ($value:ty: $($method:ident)*) => {$(
        /// As the standard library's.
        #[inline]
        pub fn $method(&self, value: $value, order: Ordering) -> $value {
            self.charge(Kind::Rmw);
            self.0.$method(value, order)
        }
    )*};
}

macro_rules! number {
    ($name:ident, $value:ty) => {
        /// As the standard library's, charged in a run.
        #[repr(transparent)]
        #[derive(Default)]
        pub struct $name(real::$name);

        common!($name, $value);

        impl $name {
            rmw!($value: fetch_add fetch_sub fetch_and fetch_nand fetch_or fetch_xor fetch_max fetch_min);
        }
    };
}

number!(AtomicU8, u8);
number!(AtomicU16, u16);
number!(AtomicU32, u32);
number!(AtomicU64, u64);
number!(AtomicUsize, usize);
number!(AtomicI64, i64);

/// As the standard library's, charged in a run.
#[repr(transparent)]
#[derive(Default)]
pub struct AtomicBool(real::AtomicBool);

common!(AtomicBool, bool);

impl AtomicBool {
    rmw!(bool: fetch_and fetch_nand fetch_or fetch_xor);
}

/// As the standard library's, charged in a run.
#[repr(transparent)]
pub struct AtomicPtr<T>(real::AtomicPtr<T>);

common!(AtomicPtr, *mut T, T);

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        AtomicPtr::new(std::ptr::null_mut())
    }
}

/// One turn of a spin loop.
#[inline]
pub fn spin_loop() {
    let is_simulated = with(|kernel| {
        kernel.counts.events += 1;
        kernel.counts.pauses += 1;
        kernel.spend(u64::from(kernel.machine.pause));
    });
    match is_simulated {
        // A loop that looks at nothing else must still let others run.
        Some(()) => wait_for_turn(),
        None => std::hint::spin_loop(),
    }
}

mod sealed {
    /// What only the kernel does with a number.
    pub trait Inner {
        type Value: Copy;
        fn address(&self) -> usize;
        fn value(&self) -> Self::Value;
        fn set(&self, value: Self::Value);
        #[allow(private_interfaces, reason = "nobody else can name this trait")]
        fn old(&self) -> crate::undo::Old;
    }
}

/// An atomic that a region may reach: of one, two, four or eight bytes.
pub trait Number: sealed::Inner {}

macro_rules! in_regions {
    ($($name:ident $value:ty, $old:ident;)*) => {$(
        impl Number for $name {}

        impl sealed::Inner for $name {
            type Value = $value;

            fn address(&self) -> usize {
                std::ptr::from_ref(self).addr()
            }

            fn value(&self) -> $value {
                self.0.load(Ordering::Relaxed)
            }

            fn set(&self, value: $value) {
                self.0.store(value, Ordering::Relaxed);
            }

            #[allow(private_interfaces, reason = "nobody else can name this trait")]
            fn old(&self) -> Old {
                Old::$old(&raw const self.0, self.value())
            }
        }
    )*};
}

in_regions! {
    AtomicU8 u8, U8;
    AtomicU16 u16, U16;
    AtomicU32 u32, U32;
    AtomicU64 u64, U64;
}
