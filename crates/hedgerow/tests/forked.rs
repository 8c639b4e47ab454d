//! Handles in a process that was forked from the one that opened the store: every call is refused, nothing hangs, and the
//! parent's store is untouched.
//!
//! Each test runs this very program for one ignored test, whose name begins with `process_`, in a process of its own, so that it
//! forks with the threads that it has made and no others. The child tells by its exit code what it has found: 0, or the number of the
//! line that went wrong, less a hundred. An alarm ends a child that hangs.

#![cfg(all(unix, not(any(loom, shuttle))))]
#![allow(
    clippy::disallowed_methods,
    reason = "these tests look at files and processes from outside"
)]

use hedgerow::{
    Database, Durability, Durable, Error, ErrorKind, Keyspace, Options, Result, WriteBatch,
};
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

const DIRECTORY: &str = "HEDGEROW_TEST_DIRECTORY";
/// Seconds after which a child hangs.
const PATIENCE: u32 = 20;

unsafe extern "C" {
    // Of the C library, which the standard library links.
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn alarm(seconds: u32) -> u32;
    fn _exit(code: i32) -> !;
    fn kill(pid: i32, signal: i32) -> i32;
    fn getpid() -> i32;
}

/// Runs `work` in a forked child, which ends with what it returns.
fn in_child(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs `work`, which allocates and opens files; the C library lets a child of a process with threads do so.
    let pid = unsafe { fork() };
    assert!(pid >= 0, "no process could be forked");
    if pid == 0 {
        // SAFETY: takes a number.
        unsafe { alarm(PATIENCE) };
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(99);
        // SAFETY: ends the child at once, without what the parent has registered for its own end.
        unsafe { _exit(code) }
    }
    let mut status = 0;
    // SAFETY: `status` is a place for an integer.
    assert_eq!(unsafe { waitpid(pid, &mut status, 0) }, pid);
    status
}

/// The status of a process that has ended by itself, with code 0.
const WENT_WELL: i32 = 0;

fn describe(status: i32) -> String {
    match (status & 0x7f, status >> 8) {
        (0, code) => format!("exit code {code}: line {} or panic (99)", code + 100),
        (14, _) => "it hung".to_owned(),
        (signal, _) => format!("signal {signal}"),
    }
}

/// Runs an ignored test of this program in a process of its own.
fn run(test: &str, directory: &Path) -> (std::process::ExitStatus, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status, text.into_owned())
}

fn run_well(test: &str) {
    let directory = tempfile::tempdir().unwrap();
    let (status, text) = run(test, directory.path());
    assert!(status.success() && text.contains("1 passed"), "{status}\n{text}");
}

/// The directory that a `process_` test works in; `None` if somebody runs all ignored tests.
fn directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

fn options() -> Options {
    Options::new().memory_limit_bytes(16 << 20)
}

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn is_refused<T>(outcome: Result<T>) -> bool {
    outcome.is_err_and(|error| error.kind() == ErrorKind::ForkedProcess)
}

/// Returns the number of this line, less a hundred, unless the call is refused.
macro_rules! refused {
    ($($call:expr),+ $(,)?) => {
        $(if !is_refused($call) { return line!() as i32 - 100; })+
    };
}

/// Threads that put into a keyspace until they are told to stop.
fn busy<R>(keyspace: &Keyspace, work: impl FnOnce() -> R) -> R {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (keyspace, stop) = (keyspace.clone(), &stop);
            scope.spawn(move || {
                for n in (0..).take_while(|_| !stop.load(Relaxed)) {
                    keyspace.put(&key((thread << 32) | (n % 5000)), b"busy").unwrap();
                    // Of all threads, so that they wait for each other.
                    keyspace.put(b"all", &thread.to_be_bytes()).unwrap();
                }
            });
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn all_doors(db: &Database, keyspace: &Keyspace, large: &mut Handles) -> i32 {
    refused!(
        keyspace.put(&key(5), b"child"),
        keyspace.get(&key(5)),
        keyspace.get_into(&key(5), &mut Vec::new()),
        keyspace.get_with(&key(5), <[u8]>::len),
        keyspace.get_many(&[key(5)]),
        keyspace.contains_key(&key(5)),
        keyspace.remove(&key(5)),
        keyspace.insert_if_absent(b"new", b"child"),
        keyspace.update(&key(5), b"child"),
        keyspace.compare_and_swap(&key(5), None, Some(b"child")),
        keyspace.fetch_add(&key(5), 1),
        keyspace.fetch_update(&key(5), |_| Some(b"child")),
        keyspace.swap(&key(5), b"child"),
        keyspace.take(&key(5)),
        keyspace.first(),
        keyspace.pop_last(),
        keyspace.approximate_count(key(1)..),
        keyspace.remove_range(key(1)..),
        keyspace.count(),
        keyspace.stats(),
        keyspace.get_range(b"large", 0..10),
        keyspace.value_reader(b"large"),
        keyspace.value_writer(b"large", 1 << 20),
        keyspace.put(b"large", &[1; 100_000]),
        keyspace.put_stream(b"large", 100_000, &mut std::io::repeat(1)),
        keyspace.bulk_load([(b"a", b"b")], 90),
        keyspace.iter().next().unwrap_or(Ok(Default::default())),
        keyspace.prefix(b"l").next_back().unwrap_or(Ok(Default::default())),
        keyspace.iter().keys().next().unwrap_or(Ok(Default::default())),
        keyspace.cursor().next_record(),
        keyspace.cursor().previous_record(),
        keyspace.cursor().visit(|_, _| ControlFlow::Break(())),
    );
    refused!(
        db.keyspace("b"),
        db.open_keyspace("a"),
        db.create_keyspace("b"),
        db.drop_keyspace("a"),
        db.keyspaces(),
        db.sync(),
        db.checkpoint(),
        db.rename_keyspace("a", "b"),
        db.swap_keyspaces("a", "b"),
        db.wait_durable(db.log_position()),
        db.on_durable(db.log_position(), |_| ()),
        poll(db.durable(db.log_position())),
        db.stats(),
        db.space_report(),
        db.verify(|_| ControlFlow::Continue(())),
        db.backup("nowhere", |_| ControlFlow::Continue(())),
        db.write(&WriteBatch::new()),
        WriteBatch::new().put(keyspace, b"x", b"y"),
        WriteBatch::new().remove(keyspace, b"x"),
        db.clone().close(),
        db.clone().discard(),
    );
    refused!(
        large.range.next().unwrap_or(Ok(Default::default())),
        large.cursor.next_record(),
        large.reader.read_at(0, &mut [0; 10]),
        large.writer.write_bytes(b"child"),
    );
    let Some(transaction) = &large.transaction else { return line!() as i32 - 100 };
    refused!(
        db.snapshot(),
        large.snapshot.keyspaces(),
        large.snapshot.keyspace(keyspace),
        large.seen.get(&key(5)),
        large.seen.cursor().next_record(),
        transaction.keyspace(keyspace),
        transaction.savepoint(),
        large.in_it.get(&key(5)),
        large.in_it.put(&key(5), b"child"),
        large.in_it.get_for_update(&key(5)),
        large.in_it.iter().next().unwrap_or(Ok(Default::default())),
        large.in_it.cursor().next_record(),
        db.transact(|transaction| transaction.keyspace(keyspace).map(drop)),
    );
    // In a child it does nothing.
    drop(large.transaction.take());
    match large.reader.read(&mut [0; 10]).map_err(std::io::Error::into_inner) {
        Err(Some(inner)) if inner.downcast_ref::<Error>().is_some() => 0,
        _ => line!() as i32 - 100,
    }
}

fn poll(mut durable: Durable) -> Result<()> {
    match Pin::new(&mut durable).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Ok(()),
    }
}

/// Handles in the middle of their work.
struct Handles {
    range: hedgerow::Range,
    cursor: hedgerow::Cursor,
    reader: hedgerow::ValueReader,
    writer: hedgerow::ValueWriter,
    snapshot: hedgerow::Snapshot,
    seen: hedgerow::SnapshotKeyspace,
    transaction: Option<hedgerow::Transaction>,
    in_it: hedgerow::TransactionKeyspace,
}

impl Handles {
    fn of(db: &Database, keyspace: &Keyspace) -> Handles {
        let (mut range, mut cursor) = (keyspace.iter(), keyspace.cursor());
        range.next().unwrap().unwrap();
        cursor.next_record().unwrap();
        let mut reader = keyspace.value_reader(b"large").unwrap().unwrap();
        reader.read_exact(&mut [0; 1000]).unwrap();
        let mut writer = keyspace.value_writer(b"written", 300_000).unwrap();
        writer.write_bytes(&[1; 150_000]).unwrap();
        let snapshot = db.snapshot().unwrap();
        let seen = snapshot.keyspace(keyspace).unwrap();
        let transaction = db.transaction(hedgerow::Isolation::Serializable);
        let in_it = transaction.keyspace(keyspace).unwrap();
        in_it.get(b"large").unwrap();
        in_it.put(b"of the parent", b"1").unwrap();
        let transaction = Some(transaction);
        Handles { range, cursor, reader, writer, snapshot, seen, transaction, in_it }
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn process_forks_beside_writers() {
    let Some(directory) = directory() else { return };
    for in_memory in [false, true] {
        let db = match in_memory {
            false => options().create(directory.join("s.hrow")).unwrap(),
            true => options().temporary().unwrap(),
        };
        let keyspace = db.keyspace("a").unwrap();
        let durable = keyspace.clone().with_durability(Durability::Sync);
        for n in 0..100 {
            durable.put(&key(1 << 40 | n), b"parent").unwrap();
        }
        durable.put(b"large", &[7; 1 << 20]).unwrap();
        busy(&keyspace, || {
            for round in 0..20u64 {
                let mut handles = Handles::of(&db, &keyspace);
                let status = in_child(|| all_doors(&db, &keyspace, &mut handles));
                assert_eq!(status, WENT_WELL, "round {round}: {}", describe(status));
                durable.put(&key(1 << 41 | round), b"parent").unwrap();
                // What the child had a copy of goes on here.
                let mut rest = Vec::new();
                handles.reader.read_to_end(&mut rest).unwrap();
                assert_eq!(rest, vec![7; (1 << 20) - 1000]);
                handles.writer.write_bytes(&[1; 150_000]).unwrap();
                handles.writer.finish().unwrap();
                handles.range.next().unwrap().unwrap();
                assert_eq!(handles.seen.get(b"large").unwrap().unwrap().len(), 1 << 20);
                handles.transaction.take().unwrap().commit().unwrap();
                assert!(keyspace.remove(b"of the parent").unwrap());
            }
        });
        for n in (0..100).map(|n| 1 << 40 | n).chain((0..20).map(|n| 1 << 41 | n)) {
            assert_eq!(keyspace.get(&key(n)).unwrap().as_deref(), Some(&b"parent"[..]));
        }
        assert_eq!(db.keyspaces().unwrap(), ["a"]);
        assert!(db.verify(|_| ControlFlow::Continue(())).unwrap().is_clean());
        db.close().unwrap();
    }
}

#[test]
fn in_a_child_every_call_is_refused_and_the_parent_goes_on() {
    run_well("process_forks_beside_writers");
}

#[test]
#[ignore = "runs in a process of its own"]
fn process_lets_children_drop_everything() {
    let Some(directory) = directory() else { return };
    let path = directory.join("s.hrow");
    let mut db = Some(options().create(&path).unwrap());
    let mut keyspace = db.as_ref().map(|db| db.keyspace("a").unwrap());
    let durable = keyspace.clone().unwrap().with_durability(Durability::Sync);
    durable.put(b"large", &[7; 1 << 20]).unwrap();
    let busy_in = keyspace.clone().unwrap();
    let mut kept = Some(durable.clone());
    let mut kept_db = db.clone();
    busy(&busy_in, || {
        for n in 0..10 {
            let of = kept_db.as_ref().unwrap_or_else(|| unreachable!("the parent keeps it"));
            let mut handles = Some(Handles::of(of, &durable));
            let status = in_child(|| {
                drop((handles.take(), kept.take(), keyspace.take(), kept_db.take()));
                match (db.take(), n % 2) {
                    (Some(db), 0) => drop(db.close()),
                    (db, _) => drop(db),
                }
                0
            });
            assert_eq!(status, WENT_WELL, "{n}: {}", describe(status));
            durable.put(&key(1 << 41 | n), b"parent").unwrap();
        }
    });
    // SAFETY: takes numbers, and ends this process.
    unsafe { kill(getpid(), 9) };
}

#[test]
fn what_children_drop_takes_nothing_from_a_parent_that_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let (status, text) = run("process_lets_children_drop_everything", directory.path());
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{text}");
    let db = options().open(directory.path().join("s.hrow")).unwrap();
    let keyspace = db.keyspace("a").unwrap();
    for n in 0..10 {
        assert_eq!(
            keyspace.get(&key(1 << 41 | n)).unwrap().as_deref(),
            Some(&b"parent"[..]),
            "{n}"
        );
    }
    assert_eq!(keyspace.get(b"large").unwrap().unwrap().as_bytes(), vec![7; 1 << 20]);
    assert!(db.verify(|_| ControlFlow::Continue(())).unwrap().is_clean());
    db.close().unwrap();
}

/// Makes a store. Four threads change it at a time, and wait for each other and for the disk.
fn store_of_its_own(path: &Path) -> Result<Database> {
    let db = options().create(path)?;
    let keyspace = db.keyspace("mine")?;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let keyspace = keyspace.clone();
            scope.spawn(move || {
                let durable = keyspace.clone().with_durability(Durability::Sync);
                for n in 0..200 {
                    keyspace.put(b"all", &thread.to_be_bytes()).unwrap();
                    keyspace.put(&key(thread << 32 | n), b"child").unwrap();
                    if n % 40 == 0 {
                        durable.put(b"all", b"durable").unwrap();
                    }
                }
            });
        }
    });
    db.checkpoint()?;
    Ok(db)
}

/// The number of a line, less a hundred, if the store is not as [`store_of_its_own`] has made it.
fn close_its_own(db: Database, path: &Path) -> i32 {
    if db.keyspace("mine").and_then(|mine| mine.put(b"last", b"child")).is_err() {
        return line!() as i32 - 100;
    }
    if db.close().is_err() {
        return line!() as i32 - 100;
    }
    let count = |db: &Database| db.keyspace("mine")?.count();
    let again = options().open(path).and_then(|db| {
        db.keyspace("mine")?.remove(b"last")?;
        db.sync()?;
        // Dropped without a close.
        count(&db)
    });
    if !again.is_ok_and(|count| count == 801) {
        return line!() as i32 - 100;
    }
    let replayed = options().open_read_only(path).and_then(|db| count(&db));
    if replayed.is_ok_and(|count| count == 801) { 0 } else { line!() as i32 - 100 }
}

#[test]
#[ignore = "runs in a process of its own"]
fn process_lets_children_open_stores() {
    let Some(directory) = directory() else { return };
    let path = directory.join("s.hrow");
    let mut db = Some(options().create(&path).unwrap());
    db.as_ref().unwrap().keyspace("a").unwrap().put(b"key", b"parent").unwrap();
    for n in 0..20 {
        let own = directory.join(format!("child-{n}.hrow"));
        let status = in_child(|| {
            // The child's threads get the memory of those of the parent's that wait for work.
            let made = store_of_its_own(&own).unwrap();
            drop(db.take());
            let parents = options().open(&path).map_err(|error| error.kind());
            if !matches!(parents, Err(ErrorKind::Locked { .. })) {
                return line!() as i32 - 100;
            }
            close_its_own(made, &own)
        });
        assert_eq!(status, WENT_WELL, "{n}: {}", describe(status));
    }
    let db = db.take().unwrap();
    assert_eq!(db.keyspace("a").unwrap().get(b"key").unwrap().as_deref(), Some(&b"parent"[..]));
    let status = in_child(|| {
        let own = directory.join("grandparent.hrow");
        let made = store_of_its_own(&own).unwrap();
        // What a grandchild has are handles of two processes, neither of which it is.
        let status = in_child(|| {
            refused!(made.keyspaces(), db.keyspaces());
            let own = directory.join("grandchild.hrow");
            close_its_own(store_of_its_own(&own).unwrap(), &own)
        });
        if status == WENT_WELL { close_its_own(made, &own) } else { line!() as i32 - 100 }
    });
    assert_eq!(status, WENT_WELL, "{}", describe(status));
    db.close().unwrap();
}

#[test]
fn a_child_has_stores_of_its_own() {
    run_well("process_lets_children_open_stores");
}

/// At the fork, threads of the parent wait for a latch, for room in the log, for the disk, and for work. Others begin and end.
#[test]
#[ignore = "runs in a process of its own"]
fn process_lets_children_open_stores_beside_writers() {
    let Some(directory) = directory() else { return };
    let db = options().create(directory.join("s.hrow")).unwrap();
    let keyspace = db.keyspace("a").unwrap();
    let durable = keyspace.clone().with_durability(Durability::Sync);
    // More than the disk takes, so that its writers wait for room in the log.
    let full = options().create(directory.join("full.hrow")).unwrap();
    let full_keyspace = full.keyspace("a").unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (is_over, full_keyspace) = (&is_over, full_keyspace.clone());
            scope.spawn(move || {
                for n in (0..).take_while(|_| !is_over.load(Relaxed)) {
                    full_keyspace.put(&key((thread << 32) | (n % 500)), &[9; 1000]).unwrap();
                }
            });
        }
        busy(&keyspace, || {
            for n in 0..20 {
                durable.put(b"all", b"parent").unwrap();
                let short = || drop(std::thread::spawn(std::thread::yield_now));
                (0..4).for_each(|_| short());
                let own = directory.join(format!("child-{n}.hrow"));
                let status = in_child(|| close_its_own(store_of_its_own(&own).unwrap(), &own));
                assert_eq!(status, WENT_WELL, "{n}: {}", describe(status));
            }
        });
        is_over.store(true, Relaxed);
    });
    full.close().unwrap();
    db.close().unwrap();
}

#[test]
fn a_child_of_a_busy_process_has_stores_of_its_own() {
    run_well("process_lets_children_open_stores_beside_writers");
}

/// Forks: 0 in the child, whose process it is in the parent.
fn here() -> i32 {
    // SAFETY: as in `in_child`; the child goes on in the engine, which is what is tried.
    let pid = unsafe { fork() };
    if pid == 0 {
        // SAFETY: takes a number.
        unsafe { alarm(PATIENCE) };
    }
    pid
}
/// What the child has come to is its end, and the parent waits for that.
fn after(pid: Option<i32>, is_refused: bool) {
    match pid {
        // SAFETY: ends the child at once.
        Some(0) => unsafe { _exit(if is_refused { 0 } else { 1 }) },
        Some(pid) => {
            let mut status = 0;
            // SAFETY: `status` is a place for an integer.
            assert_eq!(unsafe { waitpid(pid, &mut status, 0) }, pid);
            assert_eq!(status, WENT_WELL, "{}", describe(status));
            assert!(!is_refused, "the parent goes on");
        }
        None => panic!("nobody has forked"),
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn process_forks_in_callbacks() {
    let Some(directory) = directory() else { return };
    let db = options().create(directory.join("s.hrow")).unwrap();
    let keyspace = db.keyspace("a").unwrap();
    for n in 0..10_000 {
        keyspace.put(&key(n), b"parent").unwrap();
    }
    let mut pid = None;
    let mut seen = 0;
    let visited = keyspace.cursor().visit(|_, _| {
        seen += 1;
        if seen == 300 {
            pid = Some(here());
        }
        ControlFlow::<()>::Continue(())
    });
    after(pid, is_refused(visited));
    assert_eq!(seen, 10_000);

    for (at, panics) in [(0, false), (2000, false), (2500, true), (5000, false)] {
        let loaded = db.create_keyspace(&format!("loaded {at}")).unwrap();
        let mut pid = None;
        // At the last one there are no more records.
        let mut n = 0u64;
        let records = std::iter::from_fn(|| {
            if n == at {
                pid = Some(here());
                assert!(pid != Some(0) || !panics, "this child fails in its records");
            }
            n += 1;
            (n <= 5000).then(|| (n.to_be_bytes(), [3; 40]))
        });
        let load = std::panic::AssertUnwindSafe(|| is_refused(loaded.bulk_load(records, 90)));
        let is_refused = std::panic::catch_unwind(load).unwrap_or(panics);
        after(pid, is_refused);
        assert_eq!(loaded.count().unwrap(), 5000);
    }

    struct Forks<'f>(&'f mut Option<i32>, u64);
    impl Read for Forks<'_> {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            if self.1 == 3 {
                *self.0 = Some(here());
            }
            self.1 += 1;
            to.fill(5);
            Ok(to.len())
        }
    }
    let mut pid = None;
    let streamed = keyspace.put_stream(b"stream", 1 << 20, &mut Forks(&mut pid, 0));
    after(pid, is_refused(streamed));
    assert_eq!(keyspace.get(b"stream").unwrap().unwrap().as_bytes(), vec![5; 1 << 20]);

    forks_in_progress(&db, &keyspace, &directory);
    db.close().unwrap();
}

/// As there, in the functions that are told how far a copy has come.
fn forks_in_progress(db: &Database, keyspace: &Keyspace, directory: &Path) {
    // So many pages that a function is told of progress.
    let pages = (0..30_000u64).map(|n| (n.to_be_bytes(), [9; 200]));
    db.keyspace("pages").unwrap().bulk_load(pages, 90).unwrap();
    // Beside writers, who hold locks at the fork that nobody gives back in the child.
    busy(keyspace, || {
        for n in 0..3 {
            let to = directory.join(format!("backup {n}"));
            let mut pid = None;
            let copied = db.backup(&to, |pages| {
                if pages >= 128 * n {
                    pid.get_or_insert_with(here);
                }
                ControlFlow::Continue(())
            });
            after(pid, is_refused(copied));
            let mut pid = None;
            let verified = db.verify(|pages| {
                if pages >= 256 * n {
                    pid.get_or_insert_with(here);
                }
                ControlFlow::Continue(())
            });
            after(pid, is_refused(verified));
        }
    });
    let (backup, mut pid) = (directory.join("backup 2"), None);
    let mut progress = |_| {
        pid.get_or_insert_with(here);
        ControlFlow::Continue(())
    };
    let restored = options().restore(&backup, directory.join("restored"), &mut progress);
    after(pid, is_refused(restored));
    let mut pid = None;
    let mut progress = |_| {
        pid.get_or_insert_with(here);
        ControlFlow::Continue(())
    };
    let repaired = options().repair(&backup, directory.join("repaired"), &mut progress);
    after(pid, is_refused(repaired));
    for name in ["backup 2", "restored", "repaired"] {
        let db = options().open(directory.join(name)).unwrap();
        assert!(db.verify(|_| ControlFlow::Continue(())).unwrap().is_clean(), "{name}");
    }
}

#[test]
fn a_fork_in_a_function_of_the_callers_leaves_the_work_to_the_parent() {
    run_well("process_forks_in_callbacks");
}
