//! Who waits for a latch, and who wakes whom. Each test knows who sleeps, and hangs if nobody comes.

use super::super::{ExclusiveGuard, HybridLatch};
use super::until;
use crate::parking;
use crate::primitive::asymmetric;
use crate::primitive::atomic::{AtomicUsize, Ordering};
use std::cell::Cell;
use std::thread;

/// How many threads sleep until the latch is released.
fn sleepers(latch: &HybridLatch) -> usize {
    parking::sleepers(latch.address())
}

/// How a holder lets go.
type Release = fn(ExclusiveGuard<'_>);

const RELEASES: [Release; 3] =
    [|guard| drop(guard), |guard| guard.release_unchanged(), |guard| drop(guard.downgrade())];

#[test]
fn every_way_of_letting_go_wakes_who_sleeps() {
    for release in RELEASES {
        let latch = HybridLatch::new();
        thread::scope(|scope| {
            let guard = latch.exclusive();
            let waiter = scope.spawn(|| drop(latch.exclusive()));
            until(|| sleepers(&latch) == 1);
            release(guard);
            waiter.join().unwrap();
        });
    }
}

/// To look at the queue takes a lock that other latches need as well.
#[test]
fn who_lets_go_of_a_latch_that_nobody_waits_for_does_not_look_at_the_queue() {
    const TRIES: usize = 8;
    let calls = || parking::CALLS.with(Cell::get);
    let looks = |release: Release, version: u64, heats: bool| {
        let latch = HybridLatch::with_version(version);
        if heats {
            latch.crowd().enter();
            latch.crowd().leave();
        }
        let before = calls();
        release(latch.exclusive());
        drop([latch.shared(), latch.shared(), latch.shared()]);
        calls() > before
    };
    for version in [0, 1, 4095, 4096] {
        for (number, release) in RELEASES.into_iter().enumerate() {
            for heats in [false, true] {
                // A sleeper of another test, who comes to the same crowd just then, is a reason to look.
                let always = (0..TRIES).all(|_| looks(release, version, heats));
                assert!(!always, "release {number} at version {version}, hot: {heats}");
            }
        }
    }
    // Nor does a reader who leaves others behind, though a writer sleeps: he wakes nobody who could go on.
    let latch = HybridLatch::new();
    thread::scope(|scope| {
        let [first, last] = [latch.shared(), latch.shared()];
        let writer = scope.spawn(|| drop(latch.exclusive()));
        until(|| sleepers(&latch) == 1);
        let before = calls();
        drop(first);
        assert_eq!(calls(), before);
        drop(last);
        assert_eq!(calls(), before + 1);
        writer.join().unwrap();
    });
}

/// A crowd that has been hot gets plain releases again by one release in 4096, and not by others.
#[test]
fn a_crowd_cools_down_now_and_then() {
    const TRIES: usize = 64;
    if !asymmetric::is_available() {
        return;
    }
    let cooled = |version: u64| {
        let latch = HybridLatch::with_version(version);
        latch.crowd().enter();
        latch.crowd().leave();
        drop(latch.exclusive());
        latch.crowd().is_quiet()
    };
    // Other tests may be in the same crowd, and sleep there, or cool it down themselves.
    assert!((0..TRIES).any(|_| cooled(4096 * 5)), "it never cools down");
    for version in [1, 4095, 4096 * 5 + 1] {
        assert!(!(0..TRIES).all(|_| cooled(version)), "it cools down at version {version}");
    }
}

/// Waiters of several latches are in queues of their own.
#[test]
fn a_release_wakes_who_waits_for_this_latch() {
    let latches = [HybridLatch::new(), HybridLatch::new()];
    thread::scope(|scope| {
        let [held, released] = latches.each_ref().map(|latch| Some(latch.exclusive()));
        let waiters = latches.each_ref().map(|latch| {
            // Whoever sleeps by now waits for the other one.
            assert_eq!(sleepers(latch), 0);
            let waiter = scope.spawn(move || drop(latch.exclusive()));
            until(|| sleepers(latch) == 1);
            waiter
        });
        let [first, second] = waiters;
        drop(released);
        second.join().unwrap();
        drop(held);
        first.join().unwrap();
    });
}

/// Readers who are woken together share, though a writer sleeps behind them: each waits here until all are inside.
#[test]
fn readers_who_were_woken_do_not_queue_up_behind_a_writer() {
    const READERS: usize = 3;
    let latch = HybridLatch::new();
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        let guard = latch.exclusive();
        for _ in 0..READERS {
            scope.spawn(|| {
                let shared = latch.shared();
                inside.fetch_add(1, Ordering::Relaxed);
                until(|| inside.load(Ordering::Relaxed) == READERS);
                drop(shared);
            });
        }
        until(|| sleepers(&latch) == READERS);
        let writer = scope.spawn(|| drop(latch.exclusive()));
        until(|| sleepers(&latch) == READERS + 1);
        drop(guard);
        writer.join().unwrap();
        assert_eq!(inside.load(Ordering::Relaxed), READERS);
    });
}

/// A reader who comes while others read does not overtake a writer who sleeps: a stream of them would keep him out for ever.
#[test]
fn a_reader_who_comes_late_queues_up_behind_a_writer_who_sleeps() {
    let latch = HybridLatch::new();
    thread::scope(|scope| {
        let reading = latch.shared();
        let writer = scope.spawn(|| drop(latch.exclusive()));
        until(|| sleepers(&latch) == 1);
        let late = scope.spawn(|| drop(latch.shared()));
        until(|| sleepers(&latch) == 2);
        drop(reading);
        writer.join().unwrap();
        late.join().unwrap();
    });
}
