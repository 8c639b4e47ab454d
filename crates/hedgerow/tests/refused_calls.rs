//! System calls that a sandbox refuses: before the store is opened, while it is open, and for some of its threads.
//!
//! Each case is a process of its own, told by an environment variable: it sets a real seccomp filter, which cannot be taken away
//! again. Eight threads write under it, beside checkpoints; then the child makes a backup, closes, opens again and looks at every
//! record. The parent, which has no filter, does the same with what is left. A call that has a fall-back is never an
//! error; any other one is a typed error, and what was durable before stays. A panic of any thread ends the child with a signal.
//!
//! `HEDGEROW_EFFORT` above 1 tries every error with every call, of which `HEDGEROW_PART=1/8` does an eighth; the others are a sample by
//! `HEDGEROW_SEED`: one error for each call and moment, and without `HEDGEROW_TESTS=all` one moment for each call. `HEDGEROW_ONLY="membarrier EPERM all"` does one run.
#![cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    not(any(loom, shuttle, miri, hedgerow_tsan))
))]
#![allow(
    missing_docs,
    clippy::disallowed_methods,
    reason = "a test that starts processes and has files of its own"
)]

mod common;

use common::{Dice, Model, assert_sound, bytes, contents, effort, is_thorough, key, part, seed};
use hedgerow::{Database, Error, ErrorKind, Options};
use hedgerow_testing::environment::variable;
use libc::c_long;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CHILD: &str = "HEDGEROW_REFUSED_CHILD";
const TEST: &str = "a_refused_call_is_done_without_or_a_typed_error";
/// Begins what the child says: the harness may have begun the line.
const SAYS: &str = "#child ";
const LONGEST_RUN: Duration = Duration::from_secs(240);
const WRITERS: u64 = 8;
const RECORDS: u64 = 240;
const BASE: u64 = 600;
/// Every so many records of a writer one is large, and one is removed again.
const LARGE: u64 = 40;
const REMOVED: u64 = 7;

/// How a call may be refused.
const ERRORS: [(&str, i32); 5] = [
    ("EPERM", libc::EPERM),
    ("ENOSYS", libc::ENOSYS),
    ("EINVAL", libc::EINVAL),
    ("EACCES", libc::EACCES),
    ("EOPNOTSUPP", libc::EOPNOTSUPP),
];

/// From when on, and for whom: all threads before the store is opened; all threads afterwards; the calling thread and those that
/// it starts, afterwards.
const MOMENTS: [&str; 3] = ["open", "all", "some"];

struct Call {
    name: &'static str,
    numbers: &'static [c_long],
    /// Whether everything works without it.
    has_fallback: bool,
}

const fn with_fallback(name: &'static str, numbers: &'static [c_long]) -> Call {
    Call { name, numbers, has_fallback: true }
}

const fn needed(name: &'static str, numbers: &'static [c_long]) -> Call {
    Call { name, numbers, has_fallback: false }
}

const CALLS: [Call; 20] = [
    with_fallback("membarrier", &[libc::SYS_membarrier]),
    with_fallback("io_uring_setup", &[libc::SYS_io_uring_setup]),
    with_fallback("io_uring_enter", &[libc::SYS_io_uring_enter]),
    with_fallback("io_uring_register", &[libc::SYS_io_uring_register]),
    with_fallback("fallocate", &[libc::SYS_fallocate]),
    with_fallback("madvise", &[libc::SYS_madvise]),
    with_fallback("fcntl", &[libc::SYS_fcntl]),
    with_fallback("copy_file_range", &[libc::SYS_copy_file_range]),
    with_fallback("statx", &[libc::SYS_statx]),
    with_fallback("renameat2", &[libc::SYS_renameat2]),
    with_fallback("getrandom", &[libc::SYS_getrandom]),
    with_fallback(
        "vectors",
        &[libc::SYS_preadv, libc::SYS_pwritev, libc::SYS_preadv2, libc::SYS_pwritev2],
    ),
    with_fallback("affinity", &[libc::SYS_sched_getaffinity, libc::SYS_sched_yield]),
    with_fallback(
        "everything",
        &[
            libc::SYS_membarrier,
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_enter,
            libc::SYS_io_uring_register,
            libc::SYS_fallocate,
            libc::SYS_madvise,
            libc::SYS_fcntl,
            libc::SYS_copy_file_range,
            libc::SYS_statx,
            libc::SYS_renameat2,
            libc::SYS_getrandom,
            libc::SYS_preadv,
            libc::SYS_pwritev,
        ],
    ),
    needed("fdatasync", &[libc::SYS_fdatasync]),
    needed("fsync", &[libc::SYS_fsync]),
    needed("pwrite", &[libc::SYS_pwrite64]),
    needed("ftruncate", &[libc::SYS_ftruncate]),
    needed("flock", &[libc::SYS_flock]),
    needed(
        "unlink",
        &[
            libc::SYS_unlinkat,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_unlink,
        ],
    ),
];

/// Has the system refuse calls from now on, to this thread and those that it starts, or to all threads of the process.
fn refuse(numbers: &[c_long], errno: i32, all_threads: bool) {
    let statement =
        |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    // The number of the call is the first word of what the filter is shown.
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for &number in numbers {
        program.push(statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number as u32, 0, 1));
        let refusal = libc::SECCOMP_RET_ERRNO | errno as u32;
        program.push(statement(libc::BPF_RET | libc::BPF_K, refusal, 0, 0));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let flags = if all_threads { libc::SECCOMP_FILTER_FLAG_TSYNC } else { 0 };
    // SAFETY: `prctl` with this option takes numbers alone. `seccomp` reads a filter, which lives until it returns, as long as
    // its length says.
    let set = unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter)
    };
    assert_eq!(set, 0, "no filter: {}", std::io::Error::last_os_error());
}

fn options() -> Options {
    Options::new().memory_limit_bytes(4 << 20).checkpoint_bytes(512 << 10).log_segment_blocks(64)
}

fn name_of(writer: u64) -> String {
    format!("writer-{writer}")
}

fn value_of(writer: u64, n: u64) -> Vec<u8> {
    let mut dice = Dice(writer << 32 | n);
    let len = if n % LARGE == LARGE - 1 { 40_000 } else { 300 + dice.below(400) as usize };
    bytes(&mut dice, len)
}

/// What was there before the filter.
fn base() -> Model {
    let records = (0..BASE).map(|n| (key(n), value_of(WRITERS, n)));
    Model::from([("base".into(), records.collect())])
}

/// What the store holds in the end.
fn everything() -> Model {
    let mut model = base();
    for writer in 0..WRITERS {
        let kept = (0..RECORDS).filter(|n| n % REMOVED != 3);
        model.insert(name_of(writer), kept.map(|n| (key(n), value_of(writer, n))).collect());
    }
    model
}

/// Puts everything that the base has not.
fn write(db: &Database, writer: u64) -> hedgerow::Result<()> {
    let keyspace = db.keyspace(&name_of(writer))?;
    for n in 0..RECORDS {
        keyspace.put(&key(n), b"an older value")?;
        assert!(keyspace.put(&key(n), &value_of(writer, n))?);
        if n % REMOVED == 3 {
            assert!(keyspace.remove(&key(n))?);
        }
        if n % 20 == 19 {
            db.sync()?;
        }
    }
    Ok(())
}

/// The work of the child, in which each error is the caller's to judge.
fn work(path: &Path, db: Database) -> hedgerow::Result<()> {
    std::thread::scope(|scope| {
        let write = |writer| {
            let db = &db;
            scope.spawn(move || write(db, writer))
        };
        let writers: Vec<_> = (0..WRITERS).map(write).collect();
        let mut outcome = (0..5).try_for_each(|_| db.checkpoint());
        for writer in writers {
            let written = writer.join().expect("a panic has ended the process");
            outcome = outcome.and(written);
        }
        outcome
    })?;
    db.checkpoint()?;
    assert!(contents(&db)? == everything(), "the running store shows something else");
    assert_sound(&db, "before the close");
    db.backup(path.with_extension("copy"), |_| ControlFlow::Continue(()))?;
    db.close()?;
    let db = options().open(path)?;
    assert!(
        contents(&db)? == everything(),
        "the store shows something else when it is opened again"
    );
    db.close()
}

fn be_the_child(told: &str) {
    // A thread of the store that panics is noticed by nobody else.
    let says = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |why| {
        says(why);
        std::process::abort();
    }));
    let (case, path) = told.split_once('|').unwrap();
    let path = Path::new(path);
    let (call, errno, moment) = parse(case).unwrap();
    if moment == "open" {
        refuse(call.numbers, errno, true);
    }
    let judge = |error: Error| {
        let is_typed = matches!(
            error.kind(),
            ErrorKind::Io
                | ErrorKind::Poisoned
                | ErrorKind::DurabilityUnknown
                | ErrorKind::BatchUnfinished
        );
        assert!(!call.has_fallback && is_typed, "{case}: {error:?}");
        println!("{SAYS}refused: {error}");
    };
    match options().open(path) {
        Ok(db) => {
            if moment != "open" {
                refuse(call.numbers, errno, moment == "all");
            }
            work(path, db).unwrap_or_else(judge);
        }
        Err(error) => judge(error),
    }
    println!("{SAYS}done");
}

fn parse(case: &str) -> Option<(&'static Call, i32, &'static str)> {
    let mut words = case.split(' ');
    let (call, error, moment) = (words.next()?, words.next()?, words.next()?);
    Some((
        CALLS.iter().find(|known| known.name == call)?,
        ERRORS.iter().find(|known| known.0 == error)?.1,
        MOMENTS.iter().find(|known| **known == moment)?,
    ))
}

/// Runs one case, and looks at what is left.
fn run(case: &str) {
    let (call, ..) = parse(case).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("birds.hrow");
    let db = options().create(&path).unwrap();
    let keyspace = db.create_keyspace("base").unwrap();
    for (key, value) in &base()["base"] {
        keyspace.put(key, value).unwrap();
    }
    drop(keyspace);
    db.close().unwrap();
    let (out, err) = (folder.path().join("out"), folder.path().join("err"));
    let since = Instant::now();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([TEST, "--exact", "--nocapture"])
        .env(CHILD, format!("{case}|{}", path.display()))
        .stdout(Stdio::from(std::fs::File::create(&out).unwrap()))
        .stderr(Stdio::from(std::fs::File::create(&err).unwrap()))
        .spawn()
        .unwrap();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if since.elapsed() > LONGEST_RUN => {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let said = std::fs::read_to_string(&out).unwrap();
    let error = std::fs::read_to_string(&err).unwrap();
    let is_done = said.contains(&format!("{SAYS}done"));
    let is_well = status.is_some_and(|status| status.success()) && is_done;
    assert!(is_well, "HEDGEROW_ONLY=\"{case}\": {status:?}\n{said}\n{error}");
    let is_refused = said.contains(&format!("{SAYS}refused"));
    println!("{case}: {:.1?}{}", since.elapsed(), if is_refused { ", an error" } else { "" });

    let db = options().open(&path).unwrap_or_else(|error| panic!("{case}: {error}"));
    assert_sound(&db, case);
    let mut found = contents(&db).unwrap();
    if is_refused {
        assert!(!call.has_fallback);
        found.retain(|name, _| name == "base");
        assert!(found == base(), "{case}: what was durable before is gone");
    } else {
        assert!(found == everything(), "{case}: not every record is right");
        let copy = options().open(path.with_extension("copy")).unwrap();
        assert!(contents(&copy).unwrap() == everything(), "{case}: not every record of the backup");
    }
}

#[test]
fn a_refused_call_is_done_without_or_a_typed_error() {
    if let Ok(told) = std::env::var(CHILD) {
        return be_the_child(&told);
    }
    if let Some(case) = variable("HEDGEROW_ONLY", "a call, an error and a moment", |case| {
        parse(case).map(|_| case.to_owned())
    }) {
        return run(&case);
    }
    let mut dice = Dice(seed(37));
    let (part, parts) = part();
    let mut cases = Vec::new();
    for call in &CALLS {
        let only = dice.below(MOMENTS.len() as u64) as usize;
        for (number, moment) in MOMENTS.into_iter().enumerate() {
            if !is_thorough() && effort() == 1 && number != only {
                continue;
            }
            let chosen = dice.below(ERRORS.len() as u64) as usize;
            for (which, (error, _)) in ERRORS.iter().enumerate() {
                if effort() > 1 || which == chosen {
                    cases.push(format!("{} {error} {moment}", call.name));
                }
            }
        }
    }
    cases.iter().skip(part).step_by(parts).for_each(|case| run(case));
}

/// A sync that asks the system for nothing would go well here.
#[test]
fn each_sync_of_a_file_and_of_a_directory_is_one_of_the_system() {
    use hedgerow::IoEngine;
    use hedgerow::internals::storage::{DirectIo, Disk, OpenMode, RealDisk};
    let folder = tempfile::tempdir().unwrap();
    let disk = RealDisk::new(IoEngine::Sync).unwrap();
    let file = disk.open(&folder.path().join("f"), OpenMode::CreateNew, DirectIo::Never).unwrap();
    file.write_at(0, b"robin").unwrap();
    file.sync_data()
        .and_then(|()| file.sync_all())
        .and_then(|()| disk.sync_dir(folder.path()))
        .unwrap();
    // The filter ends with its thread.
    let refused = std::thread::scope(|scope| {
        let sync = || {
            refuse(&[libc::SYS_fsync, libc::SYS_fdatasync], libc::EIO, false);
            [file.sync_data(), file.sync_all(), disk.sync_dir(folder.path())]
        };
        scope.spawn(sync).join().unwrap()
    });
    for (what, refused) in ["the data", "the file", "the directory"].iter().zip(refused) {
        let error = refused.expect_err(what);
        assert_eq!((error.kind(), error.os_error()), (ErrorKind::Io, Some(libc::EIO)), "{what}");
    }
}
