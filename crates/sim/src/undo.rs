//! What a region of transactional memory has overwritten: the other place, beside `switch`, that trusts a pointer.
//!
//! A region is rolled back by whoever ends it, which is another virtual thread and has no reference to what the region has written. Values
//! never leave the thread that runs the simulation.

use std::sync::atomic::{self as real, Ordering};

/// What a region has overwritten.
#[derive(Clone, Copy)]
pub(crate) enum Old {
    U8(*const real::AtomicU8, u8),
    U16(*const real::AtomicU16, u16),
    U32(*const real::AtomicU32, u32),
    U64(*const real::AtomicU64, u64),
}

impl Old {
    /// Writes it back.
    pub(crate) fn restore(self) {
        // SAFETY: such a value is made by `Region::change` alone, from a reference that outlives the call of `attempt` in which it is
        // made. It is taken out of the kernel when the region ends, which is before that call returns or unwinds. If the call does
        // neither, its thread is never run again, and then the run has failed and nothing is restored. So the atomic is there.
        unsafe {
            match self {
                Old::U8(atomic, value) => (*atomic).store(value, Ordering::Relaxed),
                Old::U16(atomic, value) => (*atomic).store(value, Ordering::Relaxed),
                Old::U32(atomic, value) => (*atomic).store(value, Ordering::Relaxed),
                Old::U64(atomic, value) => (*atomic).store(value, Ordering::Relaxed),
            }
        }
    }
}
