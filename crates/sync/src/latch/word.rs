//! The layout of the latch word.
//!
//! ```text
//! bits 63..16  version    grows by one, modulo 2^48, when an exclusive holder releases a change
//! bits 15..3   shared     number of shared holders; full means that further ones park
//! bit      2   waking     a thread that was woken to take the latch exclusively has not tried yet
//! bit      1   exclusive  somebody holds the latch exclusively; then shared is zero
//! bit      0   parked     somebody sleeps, or is about to sleep, until the latch is released
//! ```
//!
//! The version stands at the top so that adding to it can carry into nothing, and wraps by itself.
//! Pure functions of numbers; no state, no threads.

/// A thread sleeps until the latch is released, or is about to. A thread that releases a latch with this bit set wakes
/// a sleeper, and clears the bit if the queue is empty.
pub const PARKED: u64 = 1;
/// A thread holds the latch exclusively.
pub const EXCLUSIVE: u64 = 1 << 1;
/// A thread that was woken to take the latch exclusively is on its way: a thread that releases the latch wakes no other one.
pub const WAKING: u64 = 1 << 2;
/// One shared holder.
pub const ONE_SHARED: u64 = 1 << 3;
/// The field that counts shared holders. All ones: full.
pub const SHARED: u64 = ((1 << 13) - 1) << 3;
/// One step of the version.
pub const ONE_VERSION: u64 = 1 << VERSION_SHIFT;
/// The field of the version.
pub const VERSION: u64 = !0 << VERSION_SHIFT;
/// Where the version begins.
pub const VERSION_SHIFT: u32 = 16;
/// Bits of the version.
pub const VERSION_BITS: u32 = 64 - VERSION_SHIFT;
/// The largest number of shared holders.
pub const MAX_SHARED: u64 = SHARED / ONE_SHARED;

/// What an exclusive release adds (wrapping): one version more, the exclusive bit less.
pub const RELEASE_CHANGED: u64 = ONE_VERSION - EXCLUSIVE;
/// What a downgrade adds (wrapping): as a release, and one shared holder.
pub const DOWNGRADE: u64 = ONE_VERSION - EXCLUSIVE + ONE_SHARED;

const _: () = assert!(PARKED | EXCLUSIVE | WAKING | SHARED | VERSION == !0);
const _: () = assert!(PARKED ^ EXCLUSIVE ^ WAKING ^ SHARED ^ VERSION == !0);
const _: () = assert!(VERSION_BITS == 48 && MAX_SHARED == 8_191);

/// Whether no thread holds a latch with this word, in any mode.
#[inline]
#[must_use]
pub const fn is_free(word: u64) -> bool {
    word & (EXCLUSIVE | SHARED) == 0
}

/// Whether who releases a latch with this word has to wake a thread: threads sleep, and none of them is on its way already.
#[inline]
#[must_use]
pub const fn is_wake_due(word: u64) -> bool {
    word & (PARKED | WAKING) == PARKED
}

/// Whether a shared holder may be added at all.
#[inline]
#[must_use]
pub const fn has_room_to_share(word: u64) -> bool {
    word & EXCLUSIVE == 0 && word & SHARED != SHARED
}

/// Whether a reader that has not waited yet may share: not past threads that sleep while others
/// share, or a stream of readers would starve a parked writer.
#[inline]
#[must_use]
pub const fn newcomer_may_share(word: u64) -> bool {
    has_room_to_share(word) && (word & PARKED == 0 || word & SHARED == 0)
}
