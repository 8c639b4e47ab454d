//! The lot: where threads sleep until somebody wakes them by address.
//!
//! A queue of sleeping threads for each address, each with what it wishes for. Both calls run their
//! callbacks under the queue's lock; this is what a latch's parked bit rests on:
//! "validate and enqueue" and "dequeue and clear the bit" exclude each other.
//!
//! This is as in "Scalable and Robust Latches", section 3.4. The queues lie in a table, by a hash of the address. The table of
//! `parking_lot_core` does not do: a forked child inherits it, with the parent's threads in it, and these entries lie in memory that
//! the child's own threads get. Under a model checker a mutex and a condition variable of the model stand in for the table.
//!
//! Thread-safety: everything may be called from any thread. Callbacks must not call into the lot.

use std::time::Duration;

/// What a parked thread wants of the latch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    Shared,
    Exclusive,
}

/// How long somebody waits before the latch is handed over, and not only offered. Long beside the time that a latch is held, and
/// beside a wake-up.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1);

/// What a thread that parks says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    /// What it wants.
    pub(crate) wish: Wish,
    /// When it began to wait. Under a model checker there is no time: whether it has slept before.
    pub(crate) since: Since,
    /// It was woken and came too late: it goes to the front of the queue.
    pub(crate) is_first: bool,
}

impl Waiter {
    /// Of a thread that begins to wait now.
    pub(crate) fn new(wish: Wish) -> Waiter {
        Waiter { wish, since: Since::now(), is_first: false }
    }

    /// It was woken in vain.
    pub(crate) fn came_too_late(&mut self) {
        self.is_first = true;
        self.since.came_too_late();
    }
}

#[cfg(not(any(loom, shuttle)))]
mod since {
    use super::PATIENCE;
    use crate::primitive::time::Moment;

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Since(Moment);

    impl Since {
        pub(crate) fn now() -> Since {
            Since(Moment::now())
        }

        pub(super) fn came_too_late(&mut self) {}

        /// Whether patience is at an end at `now`.
        pub(super) fn is_long_ago(self, now: Since) -> bool {
            now.0.since(self.0) >= PATIENCE
        }
    }
}

#[cfg(any(loom, shuttle))]
mod since {
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Since(bool);

    impl Since {
        pub(crate) fn now() -> Since {
            Since(false)
        }

        pub(super) fn came_too_late(&mut self) {
            self.0 = true;
        }

        pub(super) fn is_long_ago(self, _: Since) -> bool {
            self.0
        }
    }
}

pub(crate) use since::Since;

/// How a call of [`park`] ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Parked {
    /// Somebody woke this thread: it owes the queue an attempt.
    Woken,
    /// Somebody has taken the latch for this thread.
    HandedOver,
    /// The time ran out, and nobody had woken it.
    TimedOut,
    /// `validate` said no; the thread never slept.
    Refused,
}

#[cfg(not(any(loom, shuttle)))]
mod imp {
    #![allow(clippy::disallowed_methods, reason = "this is the seam")]

    use super::{Left, Parked, Since, Waiter, Wish};
    use crate::primitive::process::Process;
    use crate::primitive::time::Moment;
    use crate::primitive::{Condvar, Mutex, MutexGuard, thread};
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicPtr, Ordering::*};
    use std::time::Duration;

    #[cfg(hedgerow_sim)]
    use hedgerow_sim::thread_local;

    const QUEUES: usize = 256;

    /// The queues of one process. A forked child makes its own: the threads in its parent's queues do not exist in it.
    struct Lot {
        /// `None` where the system cannot tell a process from its children.
        process: Option<Process>,
        queues: [Queue; QUEUES],
    }

    /// Sleepers at some addresses, the longest first. Aligned, so that no two queues share a line of the cache.
    #[repr(align(128))]
    struct Queue(Mutex<VecDeque<Sleeper>>);

    struct Sleeper {
        address: usize,
        waiter: Waiter,
        bed: Arc<Bed>,
    }

    /// Where a thread sleeps. Each thread has one. Locked after the queue, if both are.
    #[derive(Default)]
    #[cfg_attr(hedgerow_sim, repr(align(64)))]
    struct Bed {
        /// How its sleep has ended, if it has.
        ended: Mutex<Option<Parked>>,
        wake: Condvar,
    }

    thread_local! {
        static BED: Arc<Bed> = Arc::default();
    }

    /// Of this process, or of an ancestor that had one before the fork, or null. A lot that was published here is never freed.
    static LOT: AtomicPtr<Lot> = AtomicPtr::new(std::ptr::null_mut());

    /// The queues of this process. If nobody has made them, nobody sleeps; then the error is what stands in `LOT`.
    fn lot() -> Result<&'static Lot, *mut Lot> {
        let there = LOT.load(Acquire);
        // SAFETY: `LOT` is null or points to a lot that `make_lot` leaked. It is never freed and never borrowed mutably.
        let lot = unsafe { there.as_ref() };
        lot.filter(|lot| lot.process.is_none_or(|process| process.is_current())).ok_or(there)
    }

    /// As [`lot`], but makes the queues if there are none. `None` if there is no memory for them.
    fn make_lot() -> Option<&'static Lot> {
        let there = match lot() {
            Ok(lot) => return Some(lot),
            Err(there) => there,
        };
        let mut place = Vec::new();
        place.try_reserve_exact(1).ok()?;
        let queues = [const { Queue(Mutex::new(VecDeque::new())) }; QUEUES];
        place.push(Lot { process: Process::current().ok(), queues });
        let new = place.as_mut_ptr();
        // Another thread of this process may come first.
        if LOT.compare_exchange(there, new, AcqRel, Acquire).is_ok() {
            std::mem::forget(place);
        }
        lot().ok()
    }

    impl Lot {
        /// The queue of an address, locked.
        fn queue(&self, address: usize) -> MutexGuard<'_, VecDeque<Sleeper>> {
            const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
            // Addresses differ from run to run, and what is simulated must not.
            #[cfg(hedgerow_sim)]
            let address = hedgerow_sim::line_of(address).unwrap_or(address);
            let number = (address as u64).wrapping_mul(SPREAD) >> (u64::BITS - QUEUES.ilog2());
            self.queues[number as usize].0.lock()
        }
    }

    pub(super) fn park(
        address: usize,
        waiter: Waiter,
        validate: impl FnOnce() -> bool,
        timed_out: impl FnOnce(bool),
        timeout: Option<Duration>,
    ) -> Parked {
        let deadline = timeout.and_then(|timeout| Moment::now().checked_add(timeout));
        let bed = BED.try_with(Arc::clone).unwrap_or_default();
        let Some(lot) = make_lot() else { return no_memory() };
        let mut sleepers = lot.queue(address);
        if sleepers.try_reserve(1).is_err() {
            drop(sleepers);
            return no_memory();
        }
        if !validate() {
            return Parked::Refused;
        }
        *bed.ended.lock() = None;
        let sleeper = Sleeper { address, waiter, bed: Arc::clone(&bed) };
        if waiter.is_first {
            sleepers.push_front(sleeper);
        } else {
            sleepers.push_back(sleeper);
        }
        drop(sleepers);

        let mut ended = bed.ended.lock();
        loop {
            if let Some(how) = *ended {
                return how;
            }
            let Some(deadline) = deadline else {
                bed.wake.wait(&mut ended);
                continue;
            };
            let left = deadline.since(Moment::now());
            if !left.is_zero() {
                bed.wake.wait_for(&mut ended, left);
                continue;
            }
            drop(ended);
            let mut sleepers = lot.queue(address);
            if let Some(at) = sleepers.iter().position(|other| Arc::ptr_eq(&other.bed, &bed)) {
                sleepers.remove(at);
                timed_out(!sleepers.iter().any(|other| other.address == address));
                return Parked::TimedOut;
            }
            // Whoever has taken it from the queue has said how its sleep ended.
            drop(sleepers);
            ended = bed.ended.lock();
        }
    }

    /// Without memory for a place in a queue, the caller tries again.
    #[cold]
    fn no_memory() -> Parked {
        thread::yield_now();
        Parked::Refused
    }

    /// Sleepers that are told with the queue unlocked; of a larger group the others are told before.
    const GROUP: usize = 8;

    pub(super) fn unpark(
        address: usize,
        take: impl Fn(Wish) -> bool,
        before_wake: impl FnOnce(Left),
    ) {
        let Ok(lot) = lot() else { return before_wake(Left::NOBODY) };
        let mut sleepers = lot.queue(address);
        let first = sleepers.iter().find(|sleeper| sleeper.address == address);
        let Some(Waiter { wish, since, .. }) = first.map(|sleeper| sleeper.waiter) else {
            return before_wake(Left::NOBODY);
        };
        let wakes = |sleeper: &Sleeper| sleeper.address == address && sleeper.waiter.wish == wish;
        let (mut here, mut woken) = (0, 0);
        for sleeper in sleepers.iter().filter(|sleeper| sleeper.address == address) {
            here += 1;
            woken += usize::from(wakes(sleeper));
        }
        if wish == Wish::Exclusive {
            woken = 1;
        }
        let mut is_handed_over = since.is_long_ago(Since::now()) && take(wish);
        before_wake(Left {
            is_somebody: here > woken,
            is_on_its_way: wish == Wish::Exclusive && !is_handed_over,
        });
        let mut group = [const { None }; GROUP];
        let mut at = 0;
        while woken > 0 {
            if !wakes(&sleepers[at]) {
                at += 1;
                continue;
            }
            woken -= 1;
            if let Some(Sleeper { bed, .. }) = sleepers.remove(at) {
                // With the queue locked: a thread that is not in the queue has been woken.
                *bed.ended.lock() =
                    Some(if is_handed_over { Parked::HandedOver } else { Parked::Woken });
                is_handed_over = is_handed_over && woken > 0 && take(wish);
                match group.get_mut(woken) {
                    Some(place) => *place = Some(bed),
                    None => bed.wake.notify_one(),
                }
            }
        }
        // A thread that runs at once, in place of this one, should find the queue unlocked.
        drop(sleepers);
        for bed in group.into_iter().flatten() {
            bed.wake.notify_one();
        }
    }

    #[cfg(test)]
    pub(super) fn sleepers(address: usize) -> usize {
        let Ok(lot) = lot() else { return 0 };
        lot.queue(address).iter().filter(|sleeper| sleeper.address == address).count()
    }
}

#[cfg(any(loom, shuttle))]
mod imp {
    #[cfg(loom)]
    use loom::lazy_static;
    #[cfg(shuttle)]
    use shuttle::lazy_static;

    use super::{Left, Parked, Since, Waiter, Wish};
    use crate::primitive::{Condvar, Mutex, thread};
    use std::collections::VecDeque;
    use std::time::Duration;

    struct Sleeper {
        address: usize,
        waiter: Waiter,
        ticket: u64,
    }

    #[derive(Default)]
    struct Lot {
        queue: VecDeque<Sleeper>,
        /// Tickets of those that the latch was handed over to.
        handed_over: Vec<u64>,
        next_ticket: u64,
    }

    impl Lot {
        /// How a sleep ended that was not ended by time.
        fn ended(&mut self, ticket: u64) -> Parked {
            match self.handed_over.iter().position(|&other| other == ticket) {
                Some(at) => {
                    self.handed_over.swap_remove(at);
                    Parked::HandedOver
                }
                None => Parked::Woken,
            }
        }
    }

    lazy_static! {
        static ref LOT: Mutex<Lot> = Mutex::new(Lot::default());
        static ref WOKEN: Condvar = Condvar::new();
    }

    pub(super) fn park(
        address: usize,
        waiter: Waiter,
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
        let sleeper = Sleeper { address, waiter, ticket };
        if waiter.is_first {
            lot.queue.push_front(sleeper);
        } else {
            lot.queue.push_back(sleeper);
        }
        if timeout.is_some() {
            // No clock in a model: the time runs out after giving way once, unless somebody woke
            // this thread meanwhile.
            drop(lot);
            thread::yield_now();
            lot = LOT.lock();
            let Some(at) = lot.queue.iter().position(|sleeper| sleeper.ticket == ticket) else {
                return lot.ended(ticket);
            };
            let _it = lot.queue.remove(at);
            timed_out(!lot.queue.iter().any(|sleeper| sleeper.address == address));
            return Parked::TimedOut;
        }
        while lot.queue.iter().any(|sleeper| sleeper.ticket == ticket) {
            WOKEN.wait(&mut lot);
        }
        lot.ended(ticket)
    }

    pub(super) fn unpark(
        address: usize,
        take: impl Fn(Wish) -> bool,
        before_wake: impl FnOnce(Left),
    ) {
        let mut lot = LOT.lock();
        let Lot { queue, handed_over, .. } = &mut *lot;
        let mut first: Option<Waiter> = None;
        let mut is_handed_over = false;
        queue.retain(|sleeper| {
            if sleeper.address != address {
                return true;
            }
            let stays = match first {
                None => false,
                Some(Waiter { wish: Wish::Exclusive, .. }) => true,
                Some(Waiter { wish: Wish::Shared, .. }) => sleeper.waiter.wish == Wish::Exclusive,
            };
            if !stays {
                let is_first = first.is_none();
                let Waiter { wish, since, .. } = *first.get_or_insert(sleeper.waiter);
                let wanted =
                    if is_first { since.is_long_ago(Since::now()) } else { is_handed_over };
                is_handed_over = wanted && take(wish);
                if is_handed_over {
                    handed_over.push(sleeper.ticket);
                }
            }
            stays
        });
        before_wake(Left {
            is_somebody: queue.iter().any(|sleeper| sleeper.address == address),
            is_on_its_way: first.is_some_and(|first| first.wish == Wish::Exclusive)
                && !is_handed_over,
        });
        drop(lot);
        WOKEN.notify_all();
    }
}

/// What [`unpark`] leaves behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Left {
    /// Threads are left in the queue.
    pub(crate) is_somebody: bool,
    /// A thread is woken that is to try for the latch exclusively.
    pub(crate) is_on_its_way: bool,
}

#[cfg(not(any(loom, shuttle)))]
impl Left {
    const NOBODY: Left = Left { is_somebody: false, is_on_its_way: false };
}

/// Sleeps until woken by [`unpark`] of the same address, or for `timeout` at most.
///
/// `validate` runs under the queue's lock; if it says no, the thread does not sleep. `timed_out`
/// runs under the queue's lock when the time ran out, and is told whether this was the last thread
/// in the queue. Neither may panic or call into the lot.
pub(crate) fn park(
    address: usize,
    waiter: Waiter,
    validate: impl FnOnce() -> bool,
    timed_out: impl FnOnce(bool),
    timeout: Option<Duration>,
) -> Parked {
    imp::park(address, waiter, validate, timed_out, timeout)
}

/// Wakes the longest sleeper of an address; if that one wishes to share, then all that wish to.
///
/// A writer is woken alone, because only one can have the latch and a herd would fight for it;
/// readers are woken together, because they can all have it. Who is left is woken by the release
/// that follows. If the longest sleeper has waited for [`PATIENCE`], `take` is asked to take the latch on its behalf, and where
/// that succeeds its sleep ends as [`Parked::HandedOver`]. `before_wake` runs under the queue's lock, after that and before anybody
/// wakes. Neither may panic or call into the lot.
pub(crate) fn unpark(address: usize, take: impl Fn(Wish) -> bool, before_wake: impl FnOnce(Left)) {
    #[cfg(all(test, not(any(loom, shuttle))))]
    CALLS.with(|calls| calls.set(calls.get() + 1));
    imp::unpark(address, take, before_wake);
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
                    let waiter = Waiter::new(wish);
                    let how = park(address, waiter, || true, |_| {}, None);
                    assert_eq!(how, Parked::Woken);
                    awake.lock().push(at);
                });
                until(|| sleepers(address) == at + 1);
            }
            let mut left = wishes.len();
            while left > 0 {
                let mut is_somebody_left = false;
                unpark(address, |_| false, |left| is_somebody_left = left.is_somebody);
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

    /// The parent has one thread that holds a latch and three that sleep for it; so has the child.
    #[cfg(all(unix, not(miri)))]
    #[test]
    fn a_forked_child_sleeps_in_queues_of_its_own() {
        unsafe extern "C" {
            // Of the C library, which the standard library links.
            fn fork() -> i32;
            fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
            fn alarm(seconds: u32) -> u32;
            fn _exit(code: i32) -> !;
        }
        let place = 0_u64;
        let address = (&raw const place).addr();
        thread::scope(|scope| {
            for at in 0..3 {
                scope.spawn(move || park(address, Waiter::new(Exclusive), || true, |_| {}, None));
                until(|| sleepers(address) == at + 1);
            }
            // SAFETY: the child allocates, sleeps and makes threads, which the C library lets it do.
            let pid = unsafe { fork() };
            assert!(pid >= 0, "no process could be forked");
            if pid == 0 {
                // SAFETY: takes a number; ends a child that hangs.
                unsafe { alarm(20) };
                let works = std::panic::catch_unwind(|| {
                    assert_eq!(sleepers(address), 0);
                    unpark(address, |_| false, |left| assert!(!left.is_somebody));
                    let place = 0_u64;
                    for address in [address, (&raw const place).addr()] {
                        let woken = Mutex::new(0);
                        thread::scope(|scope| {
                            for at in 0..3 {
                                scope.spawn(|| {
                                    park(address, Waiter::new(Exclusive), || true, |_| {}, None);
                                    *woken.lock() += 1;
                                });
                                until(|| sleepers(address) == at + 1);
                            }
                            for at in 0..3 {
                                unpark(
                                    address,
                                    |_| false,
                                    |left| assert_eq!(left.is_somebody, at < 2),
                                );
                                until(|| *woken.lock() == at + 1);
                            }
                        });
                    }
                });
                // SAFETY: ends the child at once, without what the parent has registered for its own end.
                unsafe { _exit(i32::from(works.is_err())) };
            }
            let mut status = 0;
            // SAFETY: `status` is a place for an integer.
            assert_eq!(unsafe { waitpid(pid, &mut status, 0) }, pid);
            assert_eq!(status, 0, "14 if it hung");
            assert_eq!(sleepers(address), 3);
            for _ in 0..3 {
                unpark(address, |_| false, |_| {});
            }
        });
    }
}
