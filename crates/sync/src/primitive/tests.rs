//! The seams as they are on the machine.

use super::time::Moment;
use super::{Arc, Brief, Condvar, Mutex, RwLock, thread};
use std::time::Duration;

#[test]
fn a_timed_wait_says_whether_time_ran_out() {
    let shared = Arc::new((Mutex::new(false), Condvar::new()));
    let mut guard = shared.0.lock();
    let start = Moment::now();
    assert!(shared.1.wait_for(&mut guard, Duration::from_millis(5)));
    assert!(start.elapsed() >= Duration::from_millis(5));

    let other = Arc::clone(&shared);
    let thread = thread::spawn_named("notifier", move || {
        *other.0.lock() = true;
        other.1.notify_one();
    })
    .unwrap();
    while !*guard {
        assert!(!shared.1.wait_for(&mut guard, Duration::from_secs(60)));
    }
    drop(guard);
    thread.join().unwrap();
}

#[test]
fn an_untimed_wait_ends_with_a_notification() {
    let shared = Arc::new((Mutex::new(0), Condvar::default()));
    let threads: Vec<_> = (0..3)
        .map(|i| {
            let shared = Arc::clone(&shared);
            thread::spawn_named(&format!("waiter {i}"), move || {
                let mut guard = shared.0.lock();
                while *guard == 0 {
                    shared.1.wait(&mut guard);
                }
                *guard += 1;
            })
            .unwrap()
        })
        .collect();
    thread::yield_now();
    *shared.0.lock() = 1;
    shared.1.notify_all();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*shared.0.lock(), 4);
}

#[test]
fn locks_are_not_poisoned() {
    let lock = Arc::new((Mutex::new(1), RwLock::new(2)));
    let other = Arc::clone(&lock);
    let thread = thread::spawn_named("fails", move || {
        let _guards = (other.0.lock(), other.1.write());
        panic!("on purpose");
    })
    .unwrap();
    assert!(thread.join().is_err());
    assert_eq!((*lock.0.lock(), *lock.1.read()), (1, 2));
}

#[test]
fn thread_numbers_are_unique_small_and_used_again() {
    let mine = thread::id();
    assert_eq!(thread::id(), mine);
    // All alive at once, so all different.
    let ids = Arc::new(Mutex::new(vec![mine]));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let ids = Arc::clone(&ids);
            let body = move || {
                let id = thread::id();
                ids.lock().push(id);
                while ids.lock().len() < 5 {
                    thread::yield_now();
                }
                assert_eq!(thread::id(), id);
            };
            thread::spawn_named("numbered", body).unwrap()
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let mut ids = ids.lock().clone();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 5);
    // One after the other: with numbers used again, far fewer than threads, though other tests have some hundreds meanwhile.
    let largest = (0..1000)
        .map(|_| thread::spawn_named("numbered", thread::id).unwrap().join().unwrap())
        .max();
    assert!(largest.unwrap() < 700, "{largest:?}");
}

#[test]
fn moments_are_ordered() {
    let earlier = Moment::now();
    thread::sleep(Duration::from_millis(1));
    let later = Moment::now();
    assert!(later > earlier);
    assert!(later.since(earlier) >= Duration::from_millis(1));
    assert_eq!(earlier.since(later), Duration::ZERO);
    assert_eq!((earlier + Duration::from_secs(1)).since(earlier), Duration::from_secs(1));
    assert!(earlier.checked_add(Duration::MAX).is_none());
    assert_eq!(earlier + Duration::MAX, earlier);
    assert!(thread::available_parallelism() >= 1);
}

#[test]
fn who_finds_a_brief_lock_taken_waits_for_as_long_as_it_wants_to() {
    let shared = Arc::new(Brief::new(0));
    let guard = shared.lock_while(|| false).expect("nobody has it");
    assert!(shared.lock_while(|| false).is_none());
    let other = Arc::clone(&shared);
    let thread = thread::spawn_named("waiter", move || {
        *other.lock_while(|| true).expect("it waits") += 1;
    })
    .unwrap();
    drop(guard);
    thread.join().unwrap();
    assert_eq!(*shared.lock_while(|| false).expect("nobody has it"), 1);
}
