//! How long a call may wait: what users say ([`Wait`], [`CancelToken`]), and one call's account of it ([`Waiting`]).
//!
//! Rank 1. A handle has a [`Wait`]. Each call makes a [`Waiting`] of it, which goes along to the few places that sleep: they ask it
//! before each sleep. Polling is how the paper's parking lot cancels waits ("Scalable and Robust Latches", section 3.4): the
//! sleepers need not be found, and whoever wakes them knows nothing of tokens.
//!
//! Invariants: a place asks with nothing changed that would have to be undone, and passes on what it may have been given meanwhile
//! (a wake-up, room, a latch). A time begins at the first obstacle: a call that meets none reads no clock. `Wait` and `CancelToken` are
//! `Send + Sync`; a `Waiting` stays with the thread of its call.

use crate::error::{Error, ErrorKind, Result};
use hedgerow_sync::primitive::atomic::AtomicBool;
use hedgerow_sync::primitive::atomic::Ordering::{Acquire, Release};
use hedgerow_sync::primitive::time::{Instant, Moment, instant};
use hedgerow_sync::primitive::{Arc, Condvar, MutexGuard};
use std::cell::Cell;
use std::fmt;
use std::time::Duration;

/// How soon a sleeping thread sees that its token was cancelled, unless it waits for a latch: those look every 10 ms.
const TOKEN_LOOK: Duration = Duration::from_millis(5);

/// How long a call may wait for other threads and for room: see [`Keyspace::with_wait`](crate::Keyspace::with_wait), which lists
/// what it holds for.
///
/// ```
/// # fn main() -> hedgerow::Result<()> {
/// # let db = hedgerow::Options::new().in_memory()?;
/// use hedgerow::{ErrorKind, Wait};
/// use std::time::Duration;
///
/// let orders = db.keyspace("orders")?.with_wait(Wait::For(Duration::from_millis(50)));
/// match orders.put(b"1", b"two wrens") {
///     Err(error) if error.kind() == ErrorKind::Timeout => {} // nothing has changed
///     other => {
///         other?;
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// As long as the engine's own bounds allow: 10 s to 60 s, by what is waited for. They end a wait that no sound program needs, with
    /// [`Timeout`](ErrorKind::Timeout) or [`MemoryLimit`](ErrorKind::MemoryLimit). A wait for a large commit of another thread has no bound: it
    /// ends when that commit does.
    #[default]
    Default,
    /// Not at all: a call that would have to sleep fails with [`WouldBlock`](ErrorKind::WouldBlock).
    Never,
    /// This long for all waits of one call, from its first wait, or from its start if it takes several steps. Then it fails with [`Timeout`](ErrorKind::Timeout).
    For(Duration),
    /// Until this moment. From then on calls that would have to wait fail with [`Timeout`](ErrorKind::Timeout).
    Until(Instant),
    /// Until the token is cancelled. From then on calls that would have to wait fail with [`Cancelled`](ErrorKind::Cancelled).
    Cancel(CancelToken),
}

/// Ends the waits of all calls that have a clone of it: see [`Wait::Cancel`].
///
/// Clones are the same token, and only clones are equal. A token stays cancelled. Cancelling is cheap, wakes nobody, and may be
/// done in any thread: sleepers look every few milliseconds.
///
/// ```
/// # fn main() -> hedgerow::Result<()> {
/// # let db = hedgerow::Options::new().in_memory()?;
/// use hedgerow::{CancelToken, Wait};
///
/// let token = CancelToken::new();
/// let orders = db.keyspace("orders")?.with_wait(Wait::Cancel(token.clone()));
/// token.cancel(); // by the thread that hears of the caller's hanging up
/// orders.put(b"1", b"two wrens")?; // goes on: there was nothing to wait for
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that is not cancelled.
    #[must_use]
    pub fn new() -> CancelToken {
        CancelToken(Arc::new(AtomicBool::new(false)))
    }

    /// Ends all waits with this token, those to come as well.
    pub fn cancel(&self) {
        // Release: who sees it sees what was done before.
        self.0.store(true, Release);
    }

    /// Whether it was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Acquire)
    }
}

impl Default for CancelToken {
    fn default() -> CancelToken {
        CancelToken::new()
    }
}

impl PartialEq for CancelToken {
    fn eq(&self, other: &CancelToken) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CancelToken {}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken").field("cancelled", &self.is_cancelled()).finish()
    }
}

impl Wait {
    /// The account of a call that begins now.
    #[inline]
    pub(crate) fn begin(&self) -> Waiting<'_> {
        match self {
            Wait::Default => Waiting::Forever,
            wait => Waiting::Bounded { wait, until: Cell::new(None) },
        }
    }

    /// For the steps of one call, which share its time: it begins now.
    pub(crate) fn for_one_call(&self) -> Wait {
        match self {
            // Beyond the end of the clock there is no end.
            Wait::For(time) => instant().checked_add(*time).map_or(Wait::Default, Wait::Until),
            other => other.clone(),
        }
    }

    /// For what a call does behind its change, to tidy up: nobody needs it, so a handle with a bound does not wait for it.
    pub(crate) fn to_tidy_up(&self) -> Waiting<'static> {
        match self {
            Wait::Default => Waiting::Forever,
            _ => Waiting::Bounded { wait: &Wait::Never, until: Cell::new(None) },
        }
    }
}

/// One call's waiting; see the head of the file.
pub enum Waiting<'w> {
    /// It goes on for as long as the place that sleeps lets it.
    Forever,
    /// It ends as `wait` says.
    Bounded {
        /// What the handle says.
        wait: &'w Wait,
        /// The end of [`Wait::For`] and [`Wait::Until`], once anybody has asked.
        until: Cell<Option<Moment>>,
    },
    /// It ends as another one does, and when there is no hope for room.
    Hoping {
        /// The other one.
        waiting: &'w Waiting<'w>,
        /// Why there is none.
        hope: &'w dyn Fn() -> Result<()>,
    },
}

impl fmt::Debug for Waiting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Waiting::Forever => f.write_str("Forever"),
            Waiting::Bounded { wait, .. } => wait.fmt(f),
            Waiting::Hoping { waiting, .. } => waiting.fmt(f),
        }
    }
}

impl Waiting<'_> {
    fn end_of(wait: &Wait) -> Option<Moment> {
        match wait {
            // Beyond the end of the clock there is no end.
            Wait::For(time) => Moment::now().checked_add(*time),
            Wait::Until(end) => Some(Moment::of(*end)),
            Wait::Default | Wait::Never | Wait::Cancel(_) => None,
        }
    }

    /// Whether the call may sleep now. To be asked before each sleep, and with the time that this allows, `None` for any.
    ///
    /// Errors: `WouldBlock`, `Timeout`, `Cancelled`.
    #[cold]
    pub(crate) fn nap(&self) -> Result<Option<Duration>> {
        let (wait, until) = match self {
            Waiting::Forever => return Ok(None),
            Waiting::Bounded { wait, until } => (wait, until),
            Waiting::Hoping { waiting, .. } => return waiting.nap(),
        };
        match wait {
            Wait::Default => Ok(None),
            Wait::Never => {
                let what = "the call would have to wait, and its handle allows no wait";
                Err(Error::new(ErrorKind::WouldBlock, what))
            }
            Wait::Cancel(token) if token.is_cancelled() => {
                Err(Error::new(ErrorKind::Cancelled, "the wait was cancelled by its token"))
            }
            Wait::Cancel(_) => Ok(Some(TOKEN_LOOK)),
            Wait::For(_) | Wait::Until(_) => {
                if until.get().is_none() {
                    until.set(Self::end_of(wait));
                }
                let Some(end) = until.get() else { return Ok(None) };
                let left = end.since(Moment::now());
                if left.is_zero() {
                    let what = "other threads, or the disk, took longer than the handle waits";
                    return Err(Error::new(ErrorKind::Timeout, what));
                }
                Ok(Some(left))
            }
        }
    }

    /// [`Self::nap`], where the place sleeps for `most` at most.
    pub(crate) fn nap_of(&self, most: Duration) -> Result<Duration> {
        Ok(self.nap()?.map_or(most, |left| left.min(most)))
    }

    /// [`Self::nap`], and sleeps.
    pub(crate) fn wait_on<T>(
        &self,
        condition: &Condvar,
        guard: &mut MutexGuard<'_, T>,
    ) -> Result<()> {
        match self.nap()? {
            Some(most) => {
                condition.wait_for(guard, most);
            }
            None => condition.wait(guard),
        }
        Ok(())
    }

    /// Whether room may come for which a call waits. To be asked before each sleep, too.
    ///
    /// Errors: why not.
    pub(crate) fn hope(&self) -> Result<()> {
        if let Waiting::Hoping { hope, .. } = self { hope() } else { Ok(()) }
    }

    /// Whether the call may sleep now, for who asks again soon.
    pub(crate) fn check(&self) -> Result<()> {
        self.nap().map(drop)
    }

    /// Whether the call is not to sleep at all.
    pub(crate) fn is_never(&self) -> bool {
        match self {
            Waiting::Hoping { waiting, .. } => waiting.is_never(),
            _ => matches!(self, Waiting::Bounded { wait: Wait::Never, .. }),
        }
    }

    /// Whether anything but the engine's own bounds ends it.
    pub(crate) fn is_bounded(&self) -> bool {
        match self {
            Waiting::Hoping { waiting, .. } => waiting.is_bounded(),
            _ => matches!(self, Waiting::Bounded { .. }),
        }
    }
}

/// Whether an error is the end of a call's [`Waiting`], or of a wait in the engine that was too long: nothing is wrong with the store.
pub(crate) fn is_end_of_wait(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Timeout | ErrorKind::Cancelled)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn each_wait_ends_by_its_own_error_and_says_how_long_there_is() {
        let token = CancelToken::new();
        let hour = Duration::from_secs(3600);
        let kind = |wait: &Wait| wait.begin().nap().map_err(|error| error.kind());
        assert_eq!(kind(&Wait::Default), Ok(None));
        assert_eq!(kind(&Wait::Never), Err(ErrorKind::WouldBlock));
        assert_eq!(kind(&Wait::For(Duration::ZERO)), Err(ErrorKind::Timeout));
        assert_eq!(kind(&Wait::For(Duration::MAX)), Ok(None), "beyond the end of the clock");
        let now = Moment::now();
        assert!(kind(&Wait::For(hour)).unwrap().unwrap() <= hour);
        #[allow(clippy::disallowed_methods, reason = "what users pass")]
        let instant = Instant::now();
        assert_eq!(kind(&Wait::Until(instant)), Err(ErrorKind::Timeout));
        assert!(kind(&Wait::Until(instant + hour)).unwrap().unwrap() >= hour - now.elapsed());
        let cancel = Wait::Cancel(token.clone());
        assert_eq!(kind(&cancel), Ok(Some(TOKEN_LOOK)));
        token.cancel();
        assert_eq!(kind(&cancel), Err(ErrorKind::Cancelled));
        assert_eq!(
            cancel.begin().nap_of(hour).unwrap_err().to_string(),
            "the wait was cancelled by its token"
        );
    }

    #[test]
    fn all_waits_of_a_call_share_its_time() {
        let wait = Wait::For(Duration::from_millis(30));
        let waiting = wait.begin();
        let first = waiting.nap().unwrap().unwrap();
        hedgerow_sync::primitive::thread::sleep(Duration::from_millis(10));
        assert!(waiting.nap().unwrap().unwrap() <= first - Duration::from_millis(10));
        hedgerow_sync::primitive::thread::sleep(Duration::from_millis(25));
        assert_eq!(waiting.nap().unwrap_err().kind(), ErrorKind::Timeout);
        // Another call has a time of its own.
        assert!(wait.begin().nap().is_ok());
    }

    #[test]
    fn clones_are_one_token() {
        let (token, other) = (CancelToken::new(), CancelToken::new());
        assert_eq!(Wait::Cancel(token.clone()), Wait::Cancel(token.clone()));
        assert_ne!(Wait::Cancel(token.clone()), Wait::Cancel(other.clone()));
        token.clone().cancel();
        assert!(token.is_cancelled() && !other.is_cancelled());
        assert_eq!(format!("{token:?}"), "CancelToken { cancelled: true }");
    }
}
