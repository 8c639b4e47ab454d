//! What only real files can show: locks between processes, limits of a process, what is no file.
//!
//! Some tests need a process of their own. They run this very test program for one ignored test
//! whose name begins with `child_`, and tell it by the environment what to work on.

#![allow(clippy::disallowed_methods, reason = "these tests look at files from outside")]

use super::Place;
use crate::storage::real::Links;
use crate::storage::*;
use hedgerow_sync::primitive::atomic::{AtomicBool, Ordering};
use hedgerow_sync::primitive::thread;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CHILD_DIRECTORY: &str = "HEDGEROW_TEST_DIRECTORY";

/// The command that runs a child test on a directory, after some words of the shell.
fn child(test: &str, setup: &str, directory: &Path) -> Command {
    let mut command = Command::new("sh");
    let program = std::env::current_exe().unwrap();
    let name = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    command
        .arg("-c")
        .arg(format!("{setup}; exec \"$@\""))
        .arg("sh")
        .arg(program)
        .args(["--exact", &name, "--ignored", "--nocapture", "--test-threads=1"])
        .env(CHILD_DIRECTORY, directory);
    command
}

fn run_child(test: &str, setup: &str, directory: &Path) {
    let output = child(test, setup, directory).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A path in the directory that a child works on; `None` if this is no child, but somebody who runs
/// all ignored tests.
fn in_child(name: &str) -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os(CHILD_DIRECTORY)?).join(name))
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_holds_the_lock() {
    let Some(path) = in_child("f") else { return };
    let disk = RealDisk::new(IoEngine::Sync).unwrap();
    let file = disk.open(&path, OpenMode::ReadWrite, DirectIo::Never).unwrap();
    assert_eq!(file.try_lock(true).unwrap(), LockOutcome::Held);
    println!("\nlocked");
    // Until the parent closes the pipe, or kills.
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn another_process_finds_the_lock_taken_and_is_told_by_whom() {
    let place = Place::real(IoEngine::Sync, DirectIo::Never);
    let file = place.create("f");
    let mut holder = child("child_holds_the_lock", ":", &place.directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let words = BufReader::new(holder.stdout.take().unwrap());
    assert!(words.lines().any(|line| line.unwrap() == "locked"));
    let outcome = file.try_lock(true).unwrap();
    #[cfg(target_os = "linux")]
    assert_eq!(outcome, LockOutcome::Busy { holder_pid: Some(holder.id()) });
    #[cfg(not(target_os = "linux"))]
    assert_eq!(outcome, LockOutcome::Busy { holder_pid: None });
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(file.try_lock(true).unwrap(), LockOutcome::Held, "killing releases the lock");
}

#[test]
fn a_copy_of_the_descriptor_does_not_keep_the_lock_of_a_closed_file() {
    let place = Place::real(IoEngine::Sync, DirectIo::Never);
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    // Each start of a process copies all descriptors for a moment.
    let starter = thread::spawn_named("starter", move || {
        while !flag.load(Ordering::Relaxed) {
            Command::new("true").status().unwrap();
        }
    });
    let path = place.path("f");
    drop(place.create("f"));
    let mut refused = 0;
    for _ in 0..2000 {
        let file = place.disk.open(&path, OpenMode::ReadWrite, DirectIo::Never).unwrap();
        refused += usize::from(file.try_lock(true).unwrap() != LockOutcome::Held);
    }
    stop.store(true, Ordering::Relaxed);
    starter.unwrap().join().unwrap();
    assert_eq!(refused, 0);
}

#[test]
fn a_hard_link_leads_to_the_same_lock() {
    let place = Place::real(IoEngine::Sync, DirectIo::Never);
    let file = place.create("f");
    assert_eq!(file.try_lock(true).unwrap(), LockOutcome::Held);
    std::fs::hard_link(place.path("f"), place.path("g")).unwrap();
    let other = place.disk.open(&place.path("g"), OpenMode::ReadWrite, DirectIo::Never).unwrap();
    let busy = LockOutcome::Busy { holder_pid: Some(std::process::id()) };
    assert_eq!(other.try_lock(true).unwrap(), busy);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_runs_out_of_descriptors() {
    let Some(path) = in_child("f") else { return };
    let disk = RealDisk::new(IoEngine::Auto).unwrap();
    let first = disk.open(&path, OpenMode::CreateNew, DirectIo::WherePossible).unwrap();
    let mut files = Vec::new();
    let error = loop {
        match disk.open(&path, OpenMode::ReadWrite, DirectIo::WherePossible) {
            Ok(file) => files.push(file),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(error.os_error(), Some(crate::testing::sim::Fault::EMFILE));
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    // What is open works on, batches from several threads included: no ring can be made for them.
    let threads: Vec<_> = (0..4_u64)
        .map(|number| {
            let file = Arc::clone(&first);
            let work = move || {
                let data = AlignedBuffer::zeroed(8192).unwrap();
                let request = |at, buf| WriteRequest { offset_bytes: at, buf };
                for _ in 0..20 {
                    let base = number << 20;
                    let batch = [request(base, &data[..4096]), request(base + 8192, &data[4096..])];
                    file.write_batch(&batch).unwrap();
                }
            };
            thread::spawn_named("writer", work).unwrap()
        })
        .collect();
    threads.into_iter().for_each(|handle| handle.join().unwrap());
    // What was in use for a moment when the last one was taken is free again.
    while let Ok(file) = disk.open(&path, OpenMode::ReadWrite, DirectIo::WherePossible) {
        files.push(file);
    }
    assert!(disk.sync_dir(parent_directory(&path)).is_err());
    drop(files);
    disk.sync_dir(parent_directory(&path)).unwrap();
}

#[test]
fn running_out_of_descriptors_is_an_error_and_passes() {
    let place = Place::real(IoEngine::Sync, DirectIo::Never);
    run_child("child_runs_out_of_descriptors", "ulimit -n 24", &place.directory);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_meets_the_file_size_limit() {
    let Some(path) = in_child("f") else { return };
    for (engine, name) in [(IoEngine::Sync, "sync"), (IoEngine::Auto, "auto")] {
        let disk = RealDisk::new(engine).unwrap();
        let path = path.with_extension(name);
        let file = disk.open(&path, OpenMode::CreateNew, DirectIo::WherePossible).unwrap();
        let mut data = AlignedBuffer::zeroed(1 << 20).unwrap();
        data.fill(7);
        // The system first writes what is allowed (a short write), and refuses the rest.
        let full = file.write_at(0, &data).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::DiskFull, "{full}");
        let requests: Vec<WriteRequest<'_>> = data
            .chunks(4096)
            .enumerate()
            .map(|(i, buf)| WriteRequest { offset_bytes: i as u64 * 8192, buf })
            .collect();
        assert_eq!(file.write_batch(&requests).unwrap_err().kind(), ErrorKind::DiskFull);
        let runs: Vec<WriteRequest<'_>> = data
            .chunks(4096)
            .enumerate()
            .map(|(i, buf)| WriteRequest { offset_bytes: i as u64 * 4096, buf })
            .collect();
        assert_eq!(file.write_batch(&runs).unwrap_err().kind(), ErrorKind::DiskFull);
        assert_eq!(file.allocate(0, 1 << 20).unwrap_err().kind(), ErrorKind::DiskFull);
        let mut back = AlignedBuffer::zeroed(16384).unwrap();
        file.read_at(0, &mut back).unwrap();
        assert!(back.iter().all(|&b| b == 7));
        file.write_batch(&requests[..4]).unwrap();
        file.sync_data().unwrap();
    }
}

#[test]
fn a_file_that_cannot_grow_is_a_full_disk() {
    // 512-byte blocks: 128 KiB. The kernel's signal is ignored, or would end the process.
    for signal in ["trap '' XFSZ; ", ""] {
        let place = Place::real(IoEngine::Sync, DirectIo::Never);
        let setup = format!("{signal}ulimit -f 256");
        run_child("child_meets_the_file_size_limit", &setup, &place.directory);
    }
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "runs in a process of its own"]
fn child_meets_a_limit_that_came_later() {
    let Some(path) = in_child("f") else { return };
    let limit_to = |bytes: u64| {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: `setrlimit` reads a limit that lives.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
    };
    for (engine, name) in [(IoEngine::Sync, "sync"), (IoEngine::Auto, "auto")] {
        for direct in [DirectIo::Never, DirectIo::WherePossible] {
            limit_to(libc::RLIM_INFINITY);
            let disk = RealDisk::new(engine).unwrap();
            let path = path.with_extension(format!("{name}-{direct:?}"));
            let file = disk.open(&path, OpenMode::CreateNew, direct).unwrap();
            let block = file.block_bytes();
            let mut data = AlignedBuffer::zeroed(1 << 20).unwrap();
            data.fill(7);
            file.write_at(0, &data).unwrap();
            // In the middle of a block, and of what the file has already.
            limit_to(100_001);
            let is_full = |result: Result<()>| {
                let error = result.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
            };
            is_full(file.write_at(98_304, &data[..4096]));
            is_full(file.write_at(131_072, &data[..4096]));
            is_full(file.write_at(2 << 20, &data[..4096]));
            let requests = [0, 65_536, 98_304, 131_072, 1 << 20]
                .map(|offset_bytes| WriteRequest { offset_bytes, buf: &data[..4096] });
            is_full(file.write_batch(&requests));
            let mut calls = 0;
            is_full(file.write_batch_beside(&requests, &mut || calls += 1));
            assert_eq!(calls, 1);
            is_full(file.set_len(2 << 20));
            is_full(file.allocate(1 << 20, 4096));
            is_full(reserve(&*file, 2 << 20, 4096));
            assert_eq!(file.len_bytes().unwrap(), 1 << 20);
            assert_eq!(file.block_bytes(), block, "it is no reason to go through the page cache");
            // Below it all is as before, and so it is when it has gone.
            file.write_batch(&requests[..2]).unwrap();
            file.set_len(1 << 19).unwrap();
            limit_to(libc::RLIM_INFINITY);
            file.write_at(2 << 20, &data).unwrap();
            file.sync_data().unwrap();
        }
    }
}

/// A write behind the limit is refused, and its signal taken away, whatever the file's length is; `prlimit` may say so at any time.
#[cfg(target_os = "linux")]
#[test]
fn a_limit_of_the_size_that_comes_later_is_a_full_disk_as_well() {
    let place = Place::real(IoEngine::Sync, DirectIo::Never);
    run_child("child_meets_a_limit_that_came_later", ":", &place.directory);
}

#[test]
fn what_is_no_file_is_refused_by_kind() {
    let place = Place::real(IoEngine::Sync, DirectIo::Never);
    std::fs::create_dir(place.path("d")).unwrap();
    let fifo = place.path("p");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let made = rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0);
    made.unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.path("s")).unwrap();
    for (path, what) in [
        (place.path("d"), "a directory"),
        (fifo, "a pipe"),
        (place.path("s"), "a socket"),
        (PathBuf::from("/dev/null"), "a device"),
    ] {
        for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
            let error = place.disk.open(&path, mode, DirectIo::WherePossible).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotAStore);
            assert!(error.to_string().ends_with(what), "{error}");
        }
        let created = place.disk.open(&path, OpenMode::CreateNew, DirectIo::Never);
        assert_eq!(created.unwrap_err().kind(), ErrorKind::FileExists);
    }
    std::os::unix::fs::symlink("nowhere", place.path("l")).unwrap();
    let dangling = place.disk.open(&place.path("l"), OpenMode::ReadWrite, DirectIo::Never);
    assert_eq!(dangling.unwrap_err().kind(), ErrorKind::FileNotFound);
    let below = place.disk.open(Path::new("/dev/null/f"), OpenMode::ReadOnly, DirectIo::Never);
    assert_eq!(below.unwrap_err().kind(), ErrorKind::Io);
    assert!(!place.disk.exists(Path::new("/dev/null/f")).unwrap());
}

#[test]
fn no_permission_is_an_error_that_names_the_path() {
    // A file that not even the superuser may write.
    let path = Path::new("/sys/kernel/uevent_seqnum");
    let disk = RealDisk::new(IoEngine::Sync).unwrap();
    if !disk.exists(path).unwrap() {
        let why = format!("there is no {}", path.display());
        return crate::testing::not_run("a file that nobody may write", &why);
    }
    let error = disk.open(path, OpenMode::ReadWrite, DirectIo::Never).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("uevent_seqnum"), "{error}");
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    let kind = error.io_error().unwrap().kind();
    assert!(matches!(kind, PermissionDenied | ReadOnlyFilesystem), "{kind}");
}

#[test]
fn only_the_owner_may_open_a_new_file() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::real(IoEngine::Sync, DirectIo::Never);
    drop(place.create("f"));
    let mode = std::fs::metadata(place.path("f")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0);
}

#[test]
fn direct_files_tell_their_block_and_refuse_what_is_not_aligned() {
    let place = Place::real(IoEngine::Sync, DirectIo::WherePossible);
    let file = place.create("f");
    let block = file.block_bytes();
    if block == 1 {
        let why = "the temporary directory takes no direct I/O";
        return crate::testing::not_run("direct I/O", why);
    }
    assert!(block.is_power_of_two() && (512..=4096).contains(&block));
    file.write_at(0, &AlignedBuffer::zeroed(8192).unwrap()).unwrap();
    assert_eq!(file.block_bytes(), block, "direct I/O works");
    let mut buffer = AlignedBuffer::zeroed(8192).unwrap();
    for (offset, range) in [(1, 0..4096), (0, 1..4097), (0, 0..4095)] {
        let attempt = std::panic::AssertUnwindSafe(|| file.read_at(offset, &mut buffer[range]));
        assert!(std::panic::catch_unwind(attempt).is_err());
    }
}

#[test]
fn the_engine_asked_for_is_the_engine_in_use() {
    assert_eq!(RealDisk::new(IoEngine::Sync).unwrap().engine(), IoEngine::Sync);
    match RealDisk::new(IoEngine::Uring) {
        Ok(disk) => {
            assert_eq!(disk.engine(), IoEngine::Uring);
            assert_eq!(RealDisk::new(IoEngine::Auto).unwrap().engine(), IoEngine::Uring);
        }
        Err(error) => {
            println!("io_uring is not tested: {error}");
            assert_eq!(error.kind(), ErrorKind::InvalidOption);
            assert_eq!(RealDisk::new(IoEngine::Auto).unwrap().engine(), IoEngine::Sync);
        }
    }
}

/// Where the file system cannot allocate, a file is made longer by its length alone.
#[test]
fn of_several_who_make_a_file_longer_nobody_makes_it_shorter() {
    let place = tempfile::tempdir().unwrap();
    let disk = RealDisk::new(IoEngine::Sync).unwrap();
    let path = place.path().join("grows");
    let file = disk.open_file(&path, OpenMode::CreateNew, DirectIo::Never, Links::Follow);
    let file = Arc::new(file.unwrap());
    let grow = |first: u64| {
        let file = file.clone();
        let grow = move || {
            for end in (first..20_000).step_by(4) {
                file.extend_to(end).unwrap();
                assert!(file.len_bytes().unwrap() >= end);
            }
        };
        thread::spawn_named("grows", grow).unwrap()
    };
    let threads: Vec<_> = (0..4).map(grow).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(file.len_bytes().unwrap(), 19_999);
}

/// A kernel that can start no thread gives writes of a ring back as cancelled. That looked like a write that had failed, after which nothing is
/// written any more.
#[cfg(target_os = "linux")]
#[test]
fn what_a_ring_has_not_begun_to_write_is_written_without_it() {
    use rustix::io::Errno;
    let place = tempfile::tempdir().unwrap();
    let disk = RealDisk::new(IoEngine::Sync).unwrap();
    let path = place.path().join("file");
    let file = disk.open_file(&path, OpenMode::CreateNew, DirectIo::Never, Links::Follow).unwrap();
    let requests = [0, 3].map(|offset_bytes| WriteRequest { offset_bytes, buf: b"abc" });
    let runs = runs::runs(requests.iter().map(|r| (2 * r.offset_bytes, r.buf.len())));
    assert_eq!(runs.len(), 2);
    for errno in [Errno::CANCELED, Errno::NOMEM, Errno::AGAIN] {
        file.set_len(0).unwrap();
        file.write_rest(&runs, &requests, &[Err(errno), Ok(3)]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"abc", "{errno}");
    }
    for errno in [Errno::IO, Errno::NOSPC] {
        file.set_len(0).unwrap();
        file.write_rest(&runs, &requests, &[Err(errno), Err(errno)]).unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), b"", "{errno}");
    }
}
