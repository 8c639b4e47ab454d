//! The protocol of the hybrid latch. The ways to take it, by a guard for each mode, are in [`super::guard`].
//!
//! # Invariants
//! - The version grows only when an exclusive holder releases a change, and never falls but by
//!   wrapping around after 2^48 changes: a reader would have to sleep through all of them.
//! - *Optimistic*: the version stamp is taken with an acquire load, so the reader sees at least
//!   the changes released with it. A writer's fence after taking the latch and a reader's fence
//!   before validating make sure that a reader which saw any byte of a change also sees the
//!   exclusive bit or a newer version.
//! - *No lost wake-up*: a thread sleeps only after it has seen, under the queue's lock, that the parked bit is
//!   set and the latch still held. Whoever releases a latch with the bit set goes to the queue, and clears the
//!   bit there if nobody is left. An exclusive release is a plain store while nobody sleeps; it may
//!   overwrite the bit, and makes up for that by a second look (`crowd.rs`): while anybody is in the queue, the bit
//!   is set or a releaser is on its way there. The bit may also be set with nobody in the queue; then the next
//!   release clears it.
//! - *No swallowed wake-up*: a thread that was woken tries for the latch before it may give up. If
//!   the try fails, somebody holds the latch, and the release of that holder wakes the next.
//! - *One wake-up under way*: who wakes a thread that wants the latch exclusively sets the waking bit, under the queue's lock. Until
//!   that thread has tried, releases wake nobody. It clears the bit when it takes the latch, or after it has tried in vain;
//!   then it looks at the latch again, because a release before that has woken nobody. The bit may be lost, which costs a
//!   wake-up too many. It is never left behind: the thread is in the crowd for as long as it is awake, so that releases which
//!   begin meanwhile are additions, and a plain release stores the bit as zero.
//!
//! # Fairness
//! A running thread may overtake a woken one, which keeps the latch busy instead of waiting for the scheduler. A woken thread that
//! comes too late is the first in the queue again. Who has waited for a millisecond is not only woken: the releasing thread
//! takes the latch on its behalf, if it still can. Readers that have not waited do not join
//! other readers past a sleeping thread, so writers do not starve.
//!
//! Thread-safety: everything, from any thread. A latch is not reentrant.
//!
//! Each line that this protocol rests on is left out by `cargo xtask seeded-bugs` in turn, and the models have to notice.

use super::crowd::Crowd;
use super::word::{
    self, DOWNGRADE, EXCLUSIVE, ONE_SHARED, PARKED, RELEASE_CHANGED, SHARED, VERSION,
    VERSION_SHIFT, WAKING, is_wake_due,
};
use crate::parking::{self, Left, Parked, Waiter, Wish};
use crate::primitive::asymmetric;
use crate::primitive::atomic::{AtomicU64, Ordering, fence};
use crate::primitive::buggify::{Point, buggify};
use crate::primitive::hint::spin_loop;
use std::fmt;
use std::time::Duration;

/// How long a waiter sleeps at most before its callback runs again.
const CALLBACK_INTERVAL: Duration = Duration::from_millis(10);

/// Rounds of spinning before a thread parks; round `i` pauses `2^i` times, so 127 pauses in all:
/// about the time of a wake-up through the system.
const SPIN_ROUNDS: u32 = 7;

/// Bits of the version that are zero when a release lets a crowd cool down.
const COOLING: u64 = 0xfff << VERSION_SHIFT;

/// The version that a latch had at some moment. Compares for equality only: versions wrap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version(u64);

/// A latch of one word; see the [module](crate::latch).
#[cfg_attr(not(any(loom, shuttle)), repr(transparent))]
pub struct HybridLatch {
    word: AtomicU64,
    #[cfg(any(loom, shuttle))]
    crowd: super::crowd::Crowd,
}

const _: () = assert!(cfg!(any(loom, shuttle)) || size_of::<HybridLatch>() == 8);

impl HybridLatch {
    /// A free latch of version zero.
    #[cfg(not(any(loom, shuttle)))]
    #[must_use]
    pub const fn new() -> HybridLatch {
        HybridLatch::with_version(0)
    }

    /// A free latch of version zero.
    #[cfg(any(loom, shuttle))]
    pub fn new() -> HybridLatch {
        HybridLatch::with_version(0)
    }

    /// A free latch whose version is `version` modulo 2^48.
    #[cfg(not(any(loom, shuttle)))]
    #[must_use]
    pub const fn with_version(version: u64) -> HybridLatch {
        HybridLatch { word: AtomicU64::new(version << VERSION_SHIFT) }
    }

    /// A free latch whose version is `version` modulo 2^48.
    #[cfg(any(loom, shuttle))]
    pub fn with_version(version: u64) -> HybridLatch {
        HybridLatch {
            word: AtomicU64::new(version << VERSION_SHIFT),
            crowd: super::crowd::Crowd::quiet(),
        }
    }

    /// Begins an optimistic read; `None` while a writer holds the latch. One load; never waits.
    ///
    ///
    /// What is read afterwards may be used only after [`Self::validate`] said yes.
    #[inline]
    pub fn optimistic(&self) -> Option<Version> {
        // Acquire: what is read next is at least as new as the version (pairs with the release of
        // the writer that made it), and is not read before it.
        let word = self.word.load(Ordering::Acquire);
        if word & EXCLUSIVE == 0 { Some(Version(word & VERSION)) } else { None }
    }

    /// Whether everything that was read since `version` was taken is valid: no writer has held the latch since. One fence and one load.
    #[inline]
    pub fn validate(&self, version: Version) -> bool {
        #[cfg(hedgerow_tsan)]
        // ThreadSanitizer does not follow fences. A read-modify-write whose release half keeps the
        // reads before it in their place says the same.
        let word = self.word.fetch_add(0, Ordering::AcqRel);
        #[cfg(not(hedgerow_tsan))]
        let word = {
            // The reads of the data come before the read of the word. With the writer's fence: a
            // reader that saw a byte of a change sees the word of that writer, or a later one.
            fence(Ordering::Acquire);
            // Relaxed suffices after the fence.
            self.word.load(Ordering::Relaxed)
        };
        let mask = VERSION | EXCLUSIVE;
        word & mask == version.0 & mask
    }

    /// Whether a thread holds the latch exclusively at this moment: a hint, which may be out of date when it is returned.
    #[inline]
    pub fn is_exclusive(&self) -> bool {
        // Relaxed: nothing is read on the strength of it.
        self.word.load(Ordering::Relaxed) & EXCLUSIVE != 0
    }

    /// Whether threads sleep until the latch is released, or are about to: a hint, which may be out of date when it is returned.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        // Relaxed: nothing is read on the strength of it.
        self.word.load(Ordering::Relaxed) & PARKED != 0
    }

    /// The version, for a holder: it cannot change meanwhile, so relaxed suffices.
    #[inline]
    pub(super) fn held_version(&self) -> Version {
        Version(self.word.load(Ordering::Relaxed) & VERSION)
    }

    /// Takes the latch exclusively if its version is still `version` and no thread shares it.
    #[inline]
    pub(super) fn upgrade(&self, version: Version) -> bool {
        if buggify(Point::Busy) {
            return false;
        }
        // Relaxed: a guess at the bits of those who sleep, which the exchange below checks.
        let asleep = self.word.load(Ordering::Relaxed) & (PARKED | WAKING);
        let expected = version.0 | asleep;
        self.word
            // Acquire: as the first reader of the version. The data was read before, but the
            // exchange succeeds only if no writer has released since, so those reads stand; and a
            // writer before `version` is seen already.
            .compare_exchange(expected, expected | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the latch shared, unless somebody is in the way.
    #[inline]
    pub(super) fn share(&self) -> bool {
        // Relaxed: only a guess, which the exchange checks.
        let word = self.word.load(Ordering::Relaxed);
        !buggify(Point::Busy) && self.share_from(word, word::newcomer_may_share)
    }

    /// Takes the latch exclusively, unless somebody holds it.
    #[inline]
    pub(super) fn exclude(&self) -> bool {
        // Relaxed: only a guess, which the exchange checks.
        let word = self.word.load(Ordering::Relaxed);
        !buggify(Point::Busy) && self.exclude_from(word)
    }

    /// Whoever has taken the latch exclusively calls this before the first change.
    #[inline]
    pub(super) fn begin_changes(&self) {
        // Release: the exclusive bit comes before the changes. With the fence in `validate`, a
        // reader that saw a change sees the bit. Costs nothing on x86-64.
        fence(Ordering::Release);
    }

    /// Adds a shared holder as long as the word allows it. False only after a word was seen that
    /// does not.
    #[inline]
    fn share_from(&self, mut word: u64, may: fn(u64) -> bool) -> bool {
        while may(word) {
            match self.word.compare_exchange_weak(
                word,
                word + ONE_SHARED,
                // Acquire: sees what the last writer released.
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(seen) => word = seen,
            }
        }
        false
    }

    /// Takes a free latch exclusively. False only after a word was seen that shows a holder.
    #[inline]
    fn exclude_from(&self, word: u64) -> bool {
        self.exclude_and_clear(word, 0)
    }

    /// The same, and clears a bit.
    #[inline]
    fn exclude_and_clear(&self, mut word: u64, bit: u64) -> bool {
        while word::is_free(word) {
            match self.word.compare_exchange_weak(
                word,
                (word | EXCLUSIVE) & !bit,
                // Acquire: sees what the last writer released, and comes after the last reader.
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(seen) => word = seen,
            }
        }
        false
    }

    #[inline]
    pub(super) fn release_exclusive(&self) {
        let crowd = self.crowd();
        if !crowd.is_quiet() {
            return self.release_in_a_crowd();
        }
        // Relaxed: nobody changes the word of a latch that is held exclusively but for the parked bit.
        let old = self.word.load(Ordering::Relaxed);
        debug_assert!(old & EXCLUSIVE != 0 && old & SHARED == 0);
        // Release: the changes come before the version that names them. The version wraps at the top of the
        // word. Who is waking may have cleared its bit since, so the bit is not stored again.
        let released = old.wrapping_add(RELEASE_CHANGED);
        let released = released & !WAKING;
        #[cfg(not(loom))]
        self.word.store(released, Ordering::Release);
        // Loom does not see that a store which comes after the acquisition comes after an exchange which has
        // read the acquisition, too. A swap that looks at nothing is the same store, and orders them.
        #[cfg(loom)]
        self.word.swap(released, Ordering::Release);
        // Whoever has set the parked bit meanwhile, which the store may have cleared, is seen now, or has seen
        // the store.
        asymmetric::light();
        // A bit that was seen may be stale, and is cleared then.
        if old & PARKED != 0 || !crowd.is_quiet() {
            self.wake();
        }
    }

    /// Releases by an addition, which neither loses nor overlooks a parked bit.
    fn release_in_a_crowd(&self) {
        // Release: as above. The exclusive bit is set, so nothing borrows.
        let old = self.word.fetch_add(RELEASE_CHANGED, Ordering::Release);
        debug_assert!(old & EXCLUSIVE != 0 && old & SHARED == 0);
        if is_wake_due(old) {
            self.wake();
        } else if old & COOLING == 0 {
            self.crowd().cool();
        }
    }

    #[inline]
    pub(super) fn release_exclusive_unchanged(&self) {
        // Release: the next holder comes after what this one read.
        let old = self.word.fetch_sub(EXCLUSIVE, Ordering::Release);
        debug_assert!(old & EXCLUSIVE != 0 && old & SHARED == 0);
        if is_wake_due(old) {
            self.wake();
        }
    }

    #[inline]
    pub(super) fn downgrade(&self) {
        // Release: as an exclusive release, to the readers that come now.
        let old = self.word.fetch_add(DOWNGRADE, Ordering::Release);
        debug_assert!(old & EXCLUSIVE != 0 && old & SHARED == 0);
        if is_wake_due(old) {
            self.wake();
        }
    }

    #[inline]
    pub(super) fn release_shared(&self) {
        // Release: the next writer comes after what this reader read.
        let old = self.word.fetch_sub(ONE_SHARED, Ordering::Release);
        debug_assert!(old & EXCLUSIVE == 0 && old & SHARED != 0);
        let shared = old & SHARED;
        // Sleepers wait for the last reader to leave, or for a place among the readers.
        if is_wake_due(old) && (shared == ONE_SHARED || shared == SHARED) {
            self.wake();
        }
    }

    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The crowd that waits for this latch or for others.
    #[inline]
    pub(super) fn crowd(&self) -> &Crowd {
        #[cfg(not(any(loom, shuttle)))]
        return super::crowd::crowd_of(self.address());
        #[cfg(any(loom, shuttle))]
        return &self.crowd;
    }

    /// Wakes whose turn it is, or hands the latch over.
    #[cold]
    fn wake(&self) {
        // Relaxed: a guess, which the exchange checks.
        let take = |wish| match wish {
            Wish::Exclusive => self.exclude_from(self.word.load(Ordering::Relaxed)),
            Wish::Shared => {
                self.share_from(self.word.load(Ordering::Relaxed), word::has_room_to_share)
            }
        };
        parking::unpark(self.address(), take, |Left { is_somebody, is_on_its_way }| {
            let waking = if is_on_its_way { WAKING } else { 0 };
            // Relaxed: as in `clear_parked`. A plain release may have overwritten the parked bit.
            if is_somebody {
                self.word.fetch_or(PARKED | waking, Ordering::Relaxed);
            } else {
                self.clear_parked();
                if waking != 0 {
                    self.word.fetch_or(waking, Ordering::Relaxed);
                }
            }
        });
    }

    /// A thread that was woken has tried in vain. Whether the latch can be had now: then nobody has woken another one for it.
    fn arrived(&self) -> bool {
        // Relaxed: the bit guards no data, and all changes of the one word have one order.
        let old = self.word.fetch_and(!WAKING, Ordering::Relaxed);
        word::is_free(old)
    }

    /// Under the queue's lock, with an empty queue.
    fn clear_parked(&self) {
        // Relaxed: the bit guards no data, and who looks at it to sleep does so under the same lock.
        self.word.fetch_and(!PARKED, Ordering::Relaxed);
    }

    /// One attempt: false only after a word was seen that does not allow it.
    #[inline]
    fn attempt(&self, wish: Wish, woken: bool) -> bool {
        // Relaxed: only a guess, which the exchange checks.
        let word = self.word.load(Ordering::Relaxed);
        match wish {
            Wish::Exclusive if woken => self.exclude_and_clear(word, WAKING),
            Wish::Exclusive => self.exclude_from(word),
            Wish::Shared if woken => self.share_from(word, word::has_room_to_share),
            Wish::Shared => self.share_from(word, word::newcomer_may_share),
        }
    }

    /// Waits until the latch is taken (true), or the callback says no (false).
    #[cold]
    pub(super) fn wait(
        &self,
        wish: Wish,
        mut keep_waiting: Option<&mut (dyn FnMut() -> bool + '_)>,
    ) -> bool {
        let timeout = keep_waiting.as_ref().map(|_| CALLBACK_INTERVAL);
        let mut gives_up =
            || keep_waiting.as_deref_mut().is_some_and(|keep_waiting| !keep_waiting());
        if self.spin(wish, false) {
            return true;
        }
        if gives_up() {
            return false;
        }
        // Until the end: see the waking bit.
        let crowd = self.crowd();
        crowd.enter();
        let is_taken = self.wait_in_a_crowd(wish, timeout, &mut gives_up);
        crowd.leave();
        is_taken
    }

    fn wait_in_a_crowd(
        &self,
        wish: Wish,
        timeout: Option<Duration>,
        gives_up: &mut dyn FnMut() -> bool,
    ) -> bool {
        let mut waiter = Waiter::new(wish);
        // Readers are woken together, though others may still sleep: they need not queue up again
        // behind those. A writer who is woken owns the waking bit until it has tried.
        let mut woken = false;
        loop {
            match self.park(waiter, woken, timeout) {
                // Also for a thread that was about to give up: who has it lets go of it as any holder does.
                Parked::HandedOver => return true,
                Parked::Woken => woken = true,
                Parked::TimedOut => woken = false,
                Parked::Refused => {}
            }
            if self.spin(wish, woken) {
                return true;
            }
            let mut is_free = false;
            if woken {
                waiter.came_too_late();
                if wish == Wish::Exclusive {
                    woken = false;
                    is_free = self.arrived();
                }
            }
            // Only here, after a failed attempt, may a woken thread give up: whom it saw holding the
            // latch will wake the next one, or has let go since and has left that to this thread.
            if gives_up() {
                if is_free {
                    self.wake();
                }
                return false;
            }
        }
    }

    /// Attempts at least once, and then spins for a while, reading only until the word looks right
    /// (test-test-and-set), so that the holder keeps its cache line.
    fn spin(&self, wish: Wish, woken: bool) -> bool {
        if self.attempt(wish, woken) {
            return true;
        }
        if cfg!(any(loom, shuttle)) {
            // Spinning shows a model nothing that the attempt did not, and has it look longer.
            return false;
        }
        for round in 0..SPIN_ROUNDS {
            // Others sleep already: whoever releases will be busy waking them. For a writer who was woken itself nobody else is.
            let is_next = woken && wish == Wish::Exclusive;
            if !is_next && self.word.load(Ordering::Relaxed) & PARKED != 0 {
                return false;
            }
            for _ in 0..1_u32 << round {
                spin_loop();
            }
            if self.attempt(wish, woken) {
                return true;
            }
        }
        false
    }

    /// Sleeps until somebody releases the latch, unless it can be had now.
    fn park(&self, waiter: Waiter, woken: bool, timeout: Option<Duration>) -> Parked {
        let available = |word: u64| match waiter.wish {
            Wish::Exclusive => word::is_free(word),
            Wish::Shared if woken => word::has_room_to_share(word),
            Wish::Shared => word::newcomer_may_share(word),
        };
        // Relaxed throughout: the bit guards no data; the order of its changes in the one word, and
        // the queue's lock, decide.
        let word = self.word.load(Ordering::Relaxed);
        if available(word) {
            return Parked::Refused;
        }
        if word & PARKED == 0
            && self
                .word
                .compare_exchange(word, word | PARKED, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return Parked::Refused;
        }
        parking::park(
            self.address(),
            waiter,
            || {
                // Under the queue's lock. The bit may have been cleared, or the latch released,
                // between the exchange above and here; then nobody would come to wake this thread.
                let word = self.word.load(Ordering::Relaxed);
                word & PARKED != 0 && !available(word)
            },
            |was_last| {
                if was_last {
                    self.clear_parked();
                }
            },
            timeout,
        )
    }
}

impl Default for HybridLatch {
    fn default() -> Self {
        HybridLatch::new()
    }
}

impl fmt::Debug for HybridLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.load(Ordering::Relaxed);
        f.debug_struct("HybridLatch")
            .field("version", &(word >> VERSION_SHIFT))
            .field("shared", &((word & SHARED) / ONE_SHARED))
            .field("exclusive", &(word & EXCLUSIVE != 0))
            .field("parked", &(word & PARKED != 0))
            .field("waking", &(word & WAKING != 0))
            .finish()
    }
}
