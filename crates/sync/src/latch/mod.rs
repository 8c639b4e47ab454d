//! The hybrid latch: one word of 8 bytes with three modes.
//!
//! - *Optimistic*: read the word, read the data, and [`HybridLatch::validate`] that nobody held the
//!   latch exclusively meanwhile. Stores nothing.
//! - *Shared*: readers keep writers out.
//! - *Exclusive*: one writer; its release grows the version, or not if nothing was changed.
//!
//! [`word`] is the layout, [`hybrid`] the protocol, [`guard`] the ways to take a latch and what holds it.
//! After "Scalable and Robust Latches for Database Systems" (DaMoN 2020), sections 2.1 to 2.3, 3.1
//! and 3.4, with version, lock and parked bit in one word instead of two.

mod crowd;
pub mod guard;
pub mod hybrid;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
pub mod word;

pub use guard::{ExclusiveGuard, LeftHeld, SharedGuard};
pub use hybrid::{HybridLatch, Version};
