//! The lot: where threads sleep until somebody wakes them by address.
//!
//! A queue of sleeping threads for each address, each with what it wishes for. Both calls run their
//! callbacks under the queue's lock; this is what a latch's parked bit rests on:
//! "validate and enqueue" and "dequeue and clear the bit" exclude each other.
//!
//! On the machine this is `parking_lot_core` ("Scalable and Robust Latches", section 3.4). Under a
//! model checker a mutex and a condition variable of the model stand in for it.
//!
//! Thread-safety: everything may be called from any thread. Callbacks must not call into the lot.

use std::time::Duration;

/// What a parked thread wants of the latch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    Shared,
    Exclusive,
}

/// How a call of [`park`] ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Parked {
    /// Somebody woke this thread: it owes the queue an attempt.
    Woken,
    /// The time ran out, and nobody had woken it.
    TimedOut,
    /// `validate` said no; the thread never slept.
    Refused,
}

#[cfg(not(any(loom, shuttle)))]
mod imp {
    #![allow(clippy::disallowed_methods, reason = "this is the seam")]

    use super::{Parked, Wish};
    use parking_lot_core::{FilterOp, ParkResult, ParkToken, UnparkToken};
    use std::time::{Duration, Instant};

    pub(super) fn park(
        address: usize,
        wish: Wish,
        validate: impl FnOnce() -> bool,
        timed_out: impl FnOnce(bool),
        timeout: Option<Duration>,
    ) -> Parked {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        // SAFETY:
        // - the key is the address of a latch that the caller borrows, so nobody else uses it;
        // - `validate` and `timed_out` neither panic nor call into the lot: they are loads and
        //   stores of the latch word (the contract of this module's `park`).
        let result = unsafe {
            parking_lot_core::park(
                address,
                validate,
                || {},
                |_, was_last| timed_out(was_last),
                ParkToken(wish as usize),
                deadline,
            )
        };
        match result {
            ParkResult::Unparked(_) => Parked::Woken,
            ParkResult::TimedOut => Parked::TimedOut,
            ParkResult::Invalid => Parked::Refused,
        }
    }

    pub(super) fn unpark(address: usize, before_wake: impl FnOnce(bool)) {
        let mut first = None;
        // SAFETY:
        // - the key is the address of a latch that the caller borrows;
        // - neither callback panics or calls into the lot.
        unsafe {
            parking_lot_core::unpark_filter(
                address,
                |token| match first {
                    None => {
                        first = Some(token);
                        FilterOp::Unpark
                    }
                    Some(ParkToken(head)) if head == Wish::Exclusive as usize => FilterOp::Stop,
                    Some(_) if token == ParkToken(Wish::Shared as usize) => FilterOp::Unpark,
                    Some(_) => FilterOp::Skip,
                },
                |result| {
                    before_wake(result.have_more_threads);
                    UnparkToken(0)
                },
            );
        }
    }

    #[cfg(test)]
    pub(super) fn sleepers(address: usize) -> usize {
        let mut number = 0;
        let count = |_| {
            number += 1;
            FilterOp::Skip
        };
        // SAFETY:
        // - the key is the address of a latch that the caller borrows;
        // - neither callback panics or calls into the lot.
        unsafe { parking_lot_core::unpark_filter(address, count, |_| UnparkToken(0)) };
        number
    }
}

#[cfg(any(loom, shuttle))]
mod imp {
    #[cfg(loom)]
    use loom::lazy_static;
    #[cfg(shuttle)]
    use shuttle::lazy_static;

    use super::{Parked, Wish};
    use crate::primitive::{Condvar, Mutex, thread};
    use std::time::Duration;

    struct Sleeper {
        address: usize,
        wish: Wish,
        ticket: u64,
    }

    #[derive(Default)]
    struct Lot {
        queue: Vec<Sleeper>,
        next_ticket: u64,
    }

    lazy_static! {
        static ref LOT: Mutex<Lot> = Mutex::new(Lot::default());
        static ref WOKEN: Condvar = Condvar::new();
    }

    pub(super) fn park(
        address: usize,
        wish: Wish,
        validate: impl FnOnce() -> bool,
        timed_out: impl FnOnce(bool),
        timeout: Option<Duration>,
    ) -> Parked {
        let mut lot = LOT.lock();
        if !validate() {
            return Parked::Refused;
        }
        let ticket = lot.next_ticket;
        lot.next_ticket += 1;
        lot.queue.push(Sleeper { address, wish, ticket });
        if timeout.is_some() {
            // No clock in a model: the time runs out after giving way once, unless somebody woke
            // this thread meanwhile.
            drop(lot);
            thread::yield_now();
            lot = LOT.lock();
            let Some(at) = lot.queue.iter().position(|sleeper| sleeper.ticket == ticket) else {
                return Parked::Woken;
            };
            lot.queue.remove(at);
            timed_out(!lot.queue.iter().any(|sleeper| sleeper.address == address));
            return Parked::TimedOut;
        }
        while lot.queue.iter().any(|sleeper| sleeper.ticket == ticket) {
            WOKEN.wait(&mut lot);
        }
        Parked::Woken
    }

    pub(super) fn unpark(address: usize, before_wake: impl FnOnce(bool)) {
        let mut lot = LOT.lock();
        let mut first = None;
        lot.queue.retain(|sleeper| {
            if sleeper.address != address {
                return true;
            }
            match first {
                None => {
                    first = Some(sleeper.wish);
                    false
                }
                Some(Wish::Exclusive) => true,
                Some(Wish::Shared) => sleeper.wish == Wish::Exclusive,
            }
        });
        before_wake(lot.queue.iter().any(|sleeper| sleeper.address == address));
        drop(lot);
        WOKEN.notify_all();
    }
}

/// Sleeps until woken by [`unpark`] of the same address, or for `timeout` at most.
///
/// `validate` runs under the queue's lock; if it says no, the thread does not sleep. `timed_out`
/// runs under the queue's lock when the time ran out, and is told whether this was the last thread
/// in the queue. Neither may panic or call into the lot.
pub(crate) fn park(
    address: usize,
    wish: Wish,
    validate: impl FnOnce() -> bool,
    timed_out: impl FnOnce(bool),
    timeout: Option<Duration>,
) -> Parked {
    imp::park(address, wish, validate, timed_out, timeout)
}

/// Wakes the longest sleeper of an address; if that one wishes to share, then all that wish to.
///
/// A writer is woken alone, because only one can have the latch and a herd would fight for it;
/// readers are woken together, because they can all have it. Who is left is woken by the release
/// that follows. `before_wake` runs under the queue's lock, before anybody wakes, and is told
/// whether threads are left in the queue. It may neither panic nor call into the lot.
pub(crate) fn unpark(address: usize, before_wake: impl FnOnce(bool)) {
    #[cfg(all(test, not(any(loom, shuttle))))]
    CALLS.with(|calls| calls.set(calls.get() + 1));
    imp::unpark(address, before_wake);
}

/// How many threads sleep at an address.
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) fn sleepers(address: usize) -> usize {
    imp::sleepers(address)
}

#[cfg(all(test, not(any(loom, shuttle))))]
thread_local! {
    /// Calls of [`unpark`] by this thread: a release that nobody waits for makes none.
    pub(crate) static CALLS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::primitive::Mutex;
    use std::thread;
    use {Wish::Exclusive, Wish::Shared};

    fn until(condition: impl Fn() -> bool) {
        while !condition() {
            thread::yield_now();
        }
    }

    /// Who is woken by the first call, by the second and so on, of threads that have gone to sleep in this order, until nobody is left.
    fn woken_together(wishes: &[Wish]) -> Vec<Vec<usize>> {
        let place = 0_u64;
        let address = (&raw const place).addr();
        let awake = Mutex::new(Vec::new());
        let mut groups = Vec::new();
        thread::scope(|scope| {
            for (at, &wish) in wishes.iter().enumerate() {
                let awake = &awake;
                scope.spawn(move || {
                    assert_eq!(park(address, wish, || true, |_| {}, None), Parked::Woken);
                    awake.lock().push(at);
                });
                until(|| sleepers(address) == at + 1);
            }
            let mut left = wishes.len();
            while left > 0 {
                let mut is_somebody_left = false;
                unpark(address, |more| is_somebody_left = more);
                let woken = left - sleepers(address);
                left -= woken;
                assert_eq!(is_somebody_left, left > 0);
                assert!(woken > 0, "{left} sleep on");
                until(|| awake.lock().len() == woken);
                let mut group = std::mem::take(&mut *awake.lock());
                group.sort_unstable();
                groups.push(group);
            }
        });
        groups
    }

    #[test]
    fn readers_are_woken_together_and_a_writer_alone() {
        for (wishes, groups) in [
            (&[Exclusive, Exclusive][..], &[&[0][..], &[1]][..]),
            (&[Shared, Shared, Shared], &[&[0, 1, 2]]),
            (&[Exclusive, Shared, Shared, Exclusive], &[&[0], &[1, 2], &[3]]),
            (&[Shared, Exclusive, Shared, Exclusive, Shared], &[&[0, 2, 4], &[1], &[3]]),
        ] {
            assert_eq!(woken_together(wishes), groups, "{wishes:?}");
        }
    }
}
