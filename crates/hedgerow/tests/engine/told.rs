//! Durability for who does not block: `Database::durable` and `on_durable`. Each is told once, and the truth.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests use real threads")]

use crate::common::{assert_sound, key, open, path};
use hedgerow::internals::store::OpenHow;
use hedgerow::internals::types::Lsn;
use hedgerow::{Database, ErrorKind, Options, Result};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::{CallKind, Fault};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// Nothing is durable by itself.
fn options() -> Options {
    Options::new().memory_limit_bytes(16 << 20).log_interval(Duration::from_secs(3600))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future, polled when it was woken and only then.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn kind(outcome: Result<()>) -> Result<(), ErrorKind> {
    outcome.map_err(|error| error.kind())
}

/// What an `on_durable` is told.
fn told(db: &Database, position: Lsn) -> Result<(), ErrorKind> {
    let (answers, answered) = channel();
    db.on_durable(position, move |outcome| answers.send(kind(outcome)).unwrap()).unwrap();
    let answer = answered.recv_timeout(PATIENCE).expect("the function is called");
    assert!(answered.recv_timeout(PATIENCE).is_err(), "and goes");
    answer
}

#[test]
fn of_many_each_is_told_once_that_its_change_is_durable() {
    const THREADS: u64 = 8;
    const STEPS: u64 = 200;
    let disk = SimDisk::new(1);
    let db = open(&options(), &disk, OpenHow::New).unwrap();
    let birds = db.keyspace("birds").unwrap();
    let calls: Vec<AtomicU64> = (0..THREADS * STEPS).map(|_| AtomicU64::new(0)).collect();
    let calls: Arc<[AtomicU64]> = calls.into();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, birds, calls) = (&db, &birds, &calls);
            scope.spawn(move || {
                for step in 0..STEPS {
                    let number = thread * STEPS + step;
                    birds.put(&key(number), b"song").unwrap();
                    let position = db.log_position();
                    let (of_it, calls) = (db.clone(), calls.clone());
                    db.on_durable(position, move |outcome| {
                        outcome.unwrap();
                        assert!(of_it.durable_position() >= position);
                        calls[number as usize].fetch_add(1, SeqCst);
                    })
                    .unwrap();
                    if step % 4 == 0 {
                        // One that nobody looks at, and one that is looked at once.
                        drop(db.durable(position));
                        let mut once = pin!(db.durable(position));
                        let _ = once.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                        block_on(db.durable(position)).unwrap();
                        assert!(db.durable_position() >= position);
                    }
                }
            });
        }
    });
    block_on(db.durable(db.log_position())).unwrap();
    let left = open(&options(), &disk.crash(1), OpenHow::Existing).unwrap();
    assert_eq!(left.keyspace("birds").unwrap().count().unwrap(), THREADS * STEPS);
    // The last functions may be on their way.
    for _ in 0..6_000 {
        if calls.iter().all(|calls| calls.load(SeqCst) == 1) {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert!(calls.iter().all(|calls| calls.load(SeqCst) == 1), "{calls:?}");
    assert_sound(&db, "told");
}

#[test]
fn a_failed_sync_is_told_to_all_who_wait_and_to_who_comes_later() {
    let disk = SimDisk::new(2);
    let db = open(&options(), &disk, OpenHow::New).unwrap();
    let birds = db.keyspace("birds").unwrap();
    birds.put(b"wren", b"song").unwrap();
    let before = db.log_position();
    assert_eq!(kind(block_on(db.durable(before))), Ok(()));
    birds.put(b"wren", b"other song").unwrap();
    let position = db.log_position();
    disk.inject(Fault::once(CallKind::SyncData, 0, Fault::EIO));
    let unknown = Err(ErrorKind::DurabilityUnknown);
    let (first, second) = (db.durable(position), db.durable(position));
    assert_eq!(told(&db, position), unknown);
    assert_eq!((kind(block_on(first)), kind(block_on(second))), (unknown, unknown));
    // What is known is told at once, and on this thread.
    for (position, expected) in [(position, unknown), (before, Ok(()))] {
        assert_eq!(kind(block_on(db.durable(position))), expected);
        let caller = thread::current().id();
        let by = Arc::new(Mutex::new(None));
        let calls = by.clone();
        db.on_durable(position, move |outcome| {
            *calls.lock().unwrap() = Some((thread::current().id(), kind(outcome)));
        })
        .unwrap();
        assert_eq!(*by.lock().unwrap(), Some((caller, expected)));
    }
}

#[test]
fn who_waits_when_a_database_ends_is_told_that_the_end_has_made_it_durable() {
    for closes in [true, false] {
        let disk = SimDisk::new(3);
        let db = open(&options(), &disk, OpenHow::New).unwrap();
        db.keyspace("birds").unwrap().put(b"wren", b"song").unwrap();
        let position = db.log_position();
        let (answers, answered) = channel();
        let waits = db.durable(position);
        db.on_durable(position, move |outcome| answers.send(kind(outcome)).unwrap()).unwrap();
        if closes {
            db.close().unwrap();
        } else {
            drop(db);
        }
        assert_eq!(answered.recv_timeout(PATIENCE), Ok(Ok(())));
        assert_eq!(kind(block_on(waits)), Ok(()));
    }
}

/// The thread that calls is none of those that the end of a database waits for.
#[test]
fn a_function_may_have_the_last_handle_and_may_close_and_a_panic_in_it_stops_no_other() {
    let disk = SimDisk::new(4);
    for n in 0..30 {
        let db = open(&options(), &disk, OpenHow::ExistingOrNew).unwrap();
        db.keyspace("birds").unwrap().put(&key(n), b"song").unwrap();
        let position = db.log_position();
        let (answers, answered) = channel();
        db.on_durable(position, |_| std::panic::resume_unwind(Box::new("as it should"))).unwrap();
        let last = db.clone();
        db.on_durable(position, move |outcome| {
            outcome.unwrap();
            match n % 2 {
                0 => last.close().unwrap(),
                _ => drop(last),
            }
            answers.send(()).unwrap();
        })
        .unwrap();
        drop(db);
        answered.recv_timeout(PATIENCE).expect("it is called");
    }
    let db = open(&options(), &disk, OpenHow::Existing).unwrap();
    assert_eq!(db.keyspace("birds").unwrap().count().unwrap(), 30);
}

#[test]
fn without_threads_or_a_log_nobody_waits_for_ever() {
    let disk = SimDisk::new(5);
    for (options, has_log) in [(options(), true), (options().log(false), false)] {
        let db =
            options.background_checkpoints(false).on_disk(&disk, path(), OpenHow::ExistingOrNew);
        let db = db.unwrap();
        db.keyspace("birds").unwrap().put(b"wren", b"song").unwrap();
        let position = db.log_position();
        assert_eq!(position != Lsn(0), has_log);
        assert_eq!(kind(block_on(db.durable(position))), Ok(()));
        assert_eq!(told(&db, position), Ok(()));
        assert!(db.durable_position() >= position);
        db.close().unwrap();
    }
}

#[test]
fn what_cannot_be_waited_for_is_refused() {
    let disk = SimDisk::new(6);
    let db = open(&options(), &disk, OpenHow::New).unwrap();
    let beyond = Lsn(db.log_position().0 + 1);
    let refused = |db: &Database, expected: ErrorKind| {
        let never = |_| unreachable!("it was refused");
        assert_eq!(kind(block_on(db.durable(beyond))), Err(expected));
        assert_eq!(kind(db.on_durable(beyond, never)), Err(expected));
    };
    refused(&db, ErrorKind::InvalidArgument);
    let other = db.clone();
    db.close().unwrap();
    refused(&other, ErrorKind::Closed);
}
