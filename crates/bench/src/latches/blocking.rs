//! The engine's latch, and locks whose threads sleep in the system.
//!
//! The mutex and the read-write lock of `primitive` are the standard library's on the machine, which are futexes on Linux, and the simulator's in a
//! simulation. `parking_lot` is there on the machine alone.

use super::{Latch, spin};
use hedgerow_sync::latch::HybridLatch;
use hedgerow_sync::primitive::{Mutex, RwLock};

/// Reads `latch` optimistically.
#[inline]
fn optimistically<R>(latch: &HybridLatch, mut read: impl FnMut() -> R) -> R {
    let mut version = None;
    loop {
        spin(|| {
            version = latch.optimistic();
            version.is_some()
        });
        let result = read();
        if version.is_some_and(|version| latch.validate(version)) {
            return result;
        }
    }
}

/// `HybridLatch`, read optimistically. Who writes spins.
#[derive(Default)]
pub struct Hybrid(HybridLatch);

impl Latch for Hybrid {
    #[inline]
    fn read<R>(&self, read: impl FnMut() -> R) -> R {
        optimistically(&self.0, read)
    }

    #[inline]
    fn write<R>(&self, write: impl FnOnce() -> R) -> R {
        let mut guard = None;
        spin(|| {
            guard = self.0.try_exclusive();
            guard.is_some()
        });
        let result = write();
        drop(guard);
        result
    }
}

/// `HybridLatch`, read optimistically. Who writes parks.
#[derive(Default)]
pub struct Parked(HybridLatch);

impl Latch for Parked {
    #[inline]
    fn read<R>(&self, read: impl FnMut() -> R) -> R {
        optimistically(&self.0, read)
    }

    #[inline]
    fn write<R>(&self, write: impl FnOnce() -> R) -> R {
        let _guard = self.0.exclusive();
        write()
    }
}

/// `HybridLatch`, read in shared mode. Who waits parks.
#[derive(Default)]
pub struct Shared(HybridLatch);

impl Latch for Shared {
    #[inline]
    fn read<R>(&self, mut read: impl FnMut() -> R) -> R {
        let _guard = self.0.shared();
        read()
    }

    #[inline]
    fn write<R>(&self, write: impl FnOnce() -> R) -> R {
        let _guard = self.0.exclusive();
        write()
    }
}

macro_rules! mutex {
    ($(#[$words:meta])* $name:ident, $mutex:ty) => {
        $(#[$words])*
        #[derive(Default)]
        pub struct $name($mutex);

        impl Latch for $name {
            #[inline]
            fn read<R>(&self, mut read: impl FnMut() -> R) -> R {
                let _guard = self.0.lock();
                read()
            }

            #[inline]
            fn write<R>(&self, write: impl FnOnce() -> R) -> R {
                let _guard = self.0.lock();
                write()
            }
        }
    };
}

macro_rules! read_write {
    ($(#[$words:meta])* $name:ident, $lock:ty) => {
        $(#[$words])*
        #[derive(Default)]
        pub struct $name($lock);

        impl Latch for $name {
            #[inline]
            fn read<R>(&self, mut read: impl FnMut() -> R) -> R {
                let _guard = self.0.read();
                read()
            }

            #[inline]
            fn write<R>(&self, write: impl FnOnce() -> R) -> R {
                let _guard = self.0.write();
                write()
            }
        }
    };
}

mutex! {
    /// `std::sync::Mutex`, or the simulator's.
    FutexMutex, Mutex<()>
}

read_write! {
    /// `std::sync::RwLock`, or the simulator's.
    FutexReadWrite, RwLock<()>
}

#[cfg(not(hedgerow_sim))]
mutex! {
    /// `parking_lot::Mutex`.
    ParkingLotMutex, parking_lot::Mutex<()>
}

#[cfg(not(hedgerow_sim))]
read_write! {
    /// `parking_lot::RwLock`.
    ParkingLotReadWrite, parking_lot::RwLock<()>
}
