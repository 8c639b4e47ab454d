//! Room that is taken in advance: a share of what the store has, all or nothing, and given back by a clean close. Small
//! stores are small files, a full disk is used to its end, and a limit of the size of files is a full disk.

#![allow(clippy::disallowed_methods, reason = "these tests look at files from outside")]

use crate::common::{Dice, assert_sound, bytes, effort, key, seed};
use hedgerow::internals::storage::Disk;
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Durability, ErrorKind, IoEngine, Keyspace, Options};
use hedgerow_testing::SimDisk;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

const KIB: u64 = 1 << 10;
/// The most that a store takes which holds next to nothing.
const SMALLEST: u64 = 512 * KIB;

fn options() -> Options {
    Options::new().memory_limit_bytes(16 << 20)
}

fn on(options: &Options, disk: &SimDisk, path: &str, how: OpenHow) -> hedgerow::Result<Database> {
    options.on_disk(disk as &dyn Disk, Path::new(path), how)
}

fn file_bytes(disk: &SimDisk, path: &str) -> u64 {
    disk.state().contents(Path::new(path)).unwrap().len() as u64
}

fn birds(db: &Database) -> Keyspace {
    db.keyspace("birds").unwrap()
}

#[test]
fn the_smallest_store_takes_half_a_mebibyte_while_it_is_open_and_less_when_it_is_closed() {
    for (page_bytes, most) in [(4096, SMALLEST), (8192, SMALLEST), (16384, 640 * KIB)] {
        for log in [true, false] {
            let options = options().page_bytes(page_bytes).log(log);
            let disk = SimDisk::new(1);
            let db = on(&options, &disk, "/s", OpenHow::New).unwrap();
            for n in 0..20 {
                birds(&db).put(&key(n), b"a few bytes").unwrap();
            }
            let context = format!("pages of {page_bytes} bytes");
            assert!(file_bytes(&disk, "/s") <= most, "{context}: {}", file_bytes(&disk, "/s"));
            db.checkpoint().unwrap();
            for n in 0..20 {
                birds(&db).put(&key(n), b"others").unwrap();
            }
            assert!(file_bytes(&disk, "/s") <= most, "{context}: {}", file_bytes(&disk, "/s"));
            db.close().unwrap();
            let closed = file_bytes(&disk, "/s");
            assert!(closed <= 64 * KIB + 16 * page_bytes as u64, "{context}: {closed}");
            let db = on(&options, &disk, "/s", OpenHow::Existing).unwrap();
            assert_eq!(birds(&db).get(&key(7)).unwrap().unwrap().as_ref(), b"others");
            assert!(file_bytes(&disk, "/s") <= most, "{context}");
            assert_sound(&db, &context);
        }
    }
}

#[test]
fn a_real_store_and_a_temporary_one_are_as_small() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("s");
    let db = options().create(&path).unwrap();
    birds(&db).put(b"robin", b"red").unwrap();
    db.sync().unwrap();
    assert!(len_of(&path) <= SMALLEST, "{}", len_of(&path));
    db.close().unwrap();
    assert!(len_of(&path) <= 128 * KIB, "{}", len_of(&path));
    let db = options().temporary().unwrap();
    birds(&db).put(b"robin", b"red").unwrap();
    assert!(db.stats().unwrap().file_bytes <= SMALLEST);
}

fn len_of(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

#[test]
fn many_small_stores_that_are_open_at_once_are_small() {
    let disk = SimDisk::new(1);
    let limit = hedgerow::smallest_memory_limit_bytes(4096);
    let options = Options::new().memory_limit_bytes(limit).background_checkpoints(false).log(false);
    let open: Vec<Database> = (0..100)
        .map(|n| {
            let db = on(&options, &disk, &format!("/user-{n}"), OpenHow::New).unwrap();
            birds(&db).put(&key(n), b"settings").unwrap();
            db
        })
        .collect();
    assert!(disk.state().allocated_bytes() <= 100 * SMALLEST);
    drop(open);
}

/// Puts records of two megabytes in all, three times over.
fn load(db: &Database) {
    let mut dice = Dice(1);
    for round in 0..3 {
        for n in 0..20_000 {
            let value = bytes(&mut dice, 90);
            birds(db).put(&key(n * 7 % 20_000), &value).unwrap();
        }
        if round < 2 {
            db.checkpoint().unwrap();
        }
    }
}

/// A thirty-second part of the memory was asked for, whatever the store had, and was kept.
#[test]
fn room_ahead_is_a_share_of_what_the_store_has_and_a_clean_close_gives_it_back() {
    for log in [true, false] {
        let disk = SimDisk::new(1);
        let options = Options::new().memory_limit_bytes(512 << 20).log(log);
        let db = on(&options, &disk, "/s", OpenHow::New).unwrap();
        load(&db);
        db.checkpoint().unwrap();
        // Two images of each page, and a share.
        let open = file_bytes(&disk, "/s");
        assert!(open <= 12 << 20, "{open}");
        db.close().unwrap();
        let closed = file_bytes(&disk, "/s");
        assert!(closed <= 5 << 20, "{closed} bytes for 2 MB");
        let db = on(&options, &disk, "/s", OpenHow::Existing).unwrap();
        assert_sound(&db, "after a close");
        assert_eq!(birds(&db).iter().count(), 20_000);
    }
}

#[test]
fn a_creation_that_the_disk_has_no_room_for_leaves_nothing() {
    let mut made = 0;
    for capacity in (0..200).map(|step| step * 12 * KIB + 5000) {
        let disk = SimDisk::new(capacity);
        disk.set_capacity(Some(capacity));
        match on(&options().background_checkpoints(false), &disk, "/d/s", OpenHow::New) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::DiskFull, "{capacity}: {error}");
                assert_eq!(disk.state().paths(), [], "{capacity}");
                assert_eq!(disk.state().allocated_bytes(), 0, "{capacity}");
                assert_eq!(made, 0, "{capacity} bytes are less than what sufficed");
            }
            Ok(db) => {
                made += 1;
                birds(&db).put(b"robin", b"red").unwrap();
                db.close().unwrap();
            }
        }
    }
    assert!(made > 0);
}

/// Puts until the disk is full, and a checkpoint does not help. Returns what is there.
fn fill(db: &Database, dice: &mut Dice) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut there = BTreeMap::new();
    let mut in_vain = 0;
    for n in 0.. {
        assert!(n < 1_000_000, "the disk has no end");
        let value = bytes(dice, 200);
        match birds(db).put(&key(n), &value) {
            Ok(_) => {
                there.insert(key(n), value);
                in_vain = 0;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
                in_vain += 1;
                if in_vain == 3 {
                    return there;
                }
                db.checkpoint().expect("there is room for a checkpoint of what was let in");
            }
        }
    }
    unreachable!("it returns when the disk is full")
}

fn assert_there(db: &Database, there: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let found: BTreeMap<Vec<u8>, Vec<u8>> = birds(db)
        .iter()
        .map(|record| record.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
        .collect();
    assert!(found == *there, "{} records, {} expected", found.len(), there.len());
}

/// A file grew by whole zones, so that up to two mebibytes of a small disk were of no use; and what the file system had kept of an
/// allocation that failed was lost to all.
#[test]
fn a_full_disk_is_used_to_its_end_and_nothing_is_kept_that_is_not_used() {
    for case in 0..4 * effort() {
        let seed = seed(case);
        let mut dice = Dice(seed);
        let capacity = (2 << 20) + dice.below(6 << 20);
        println!("seed {seed:#x}, {capacity} bytes");
        let disk = SimDisk::new(seed);
        let options = options().log(false);
        let db = on(&options, &disk, "/s", OpenHow::New).unwrap();
        disk.set_capacity(Some(capacity));
        let mut there = fill(&db, &mut dice);
        let free = capacity - disk.state().allocated_bytes();
        // Less than what writers have to find free in the file, of which they ask for what is missing, or for nothing.
        assert!(free <= 256 * KIB, "{free} bytes are left");
        let report = db.space_report().unwrap();
        assert_eq!(file_bytes(&disk, "/s"), report.file_bytes, "beyond what the store knows of");
        // Removals give room back.
        for n in 0..there.len() as u64 / 2 {
            birds(&db).remove(&key(2 * n)).unwrap();
            there.remove(&key(2 * n));
        }
        db.checkpoint().unwrap();
        db.checkpoint().unwrap();
        birds(&db).put(b"robin", &[7; 500]).unwrap();
        there.insert(b"robin".to_vec(), vec![7; 500]);
        assert_there(&db, &there);
        assert_sound(&db, "after removals");
        db.close().unwrap();
        let db = on(&options, &disk, "/s", OpenHow::Existing).unwrap();
        assert_there(&db, &there);
    }
}

/// An extent is wanted whole, and the file system keeps the part of it that there was room for.
#[test]
fn what_is_kept_of_an_allocation_that_failed_is_given_back() {
    let disk = SimDisk::new(1);
    let options = options().background_checkpoints(false).log(false);
    let db = on(&options, &disk, "/s", OpenHow::New).unwrap();
    birds(&db).put(b"robin", b"red").unwrap();
    db.checkpoint().unwrap();
    let before = disk.state().allocated_bytes();
    disk.set_capacity(Some(before + 600 * KIB));
    let error = birds(&db).put(b"song", &vec![7; 1 << 20]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
    let kept = disk.state().allocated_bytes() - before;
    assert!(kept <= 100 * KIB, "{kept}");
    assert_eq!(file_bytes(&disk, "/s"), db.space_report().unwrap().file_bytes);
    birds(&db).put(b"song", &vec![7; 300 << 10]).unwrap();
    db.checkpoint().unwrap();
    assert_sound(&db, "after a refusal");
}

/// Somebody else has most of the disk: a checkpoint takes at most an eighth of what is free, beside what it needs.
#[test]
fn others_find_room_on_a_disk_that_a_store_has_little_of() {
    let disk = SimDisk::new(1);
    let options = Options::new().memory_limit_bytes(512 << 20).background_checkpoints(false);
    let db = on(&options.log(false), &disk, "/s", OpenHow::New).unwrap();
    load(&db);
    let before = disk.state().allocated_bytes();
    disk.set_capacity(Some(before + (8 << 20)));
    db.checkpoint().unwrap();
    let taken = disk.state().allocated_bytes().saturating_sub(before);
    assert!(taken <= 3 << 20, "{taken} bytes of 8 MiB");
}

#[test]
fn a_backup_is_as_small_and_leaves_nothing_on_a_full_disk() {
    let disk = SimDisk::new(1);
    let db = on(&options(), &disk, "/s", OpenHow::New).unwrap();
    birds(&db).put(b"robin", b"red").unwrap();
    let backup = |to: &str| db.backup(to, |_| ControlFlow::Continue(())).map(drop);
    backup("/b").unwrap();
    assert!(file_bytes(&disk, "/b") <= 128 * KIB, "{}", file_bytes(&disk, "/b"));
    let before = disk.state().paths();
    disk.set_capacity(Some(disk.state().allocated_bytes() + 10 * KIB));
    assert_eq!(backup("/c").unwrap_err().kind(), ErrorKind::DiskFull);
    assert_eq!(disk.state().paths(), before);
}

const CHILD_DIRECTORY: &str = "HEDGEROW_TEST_DIRECTORY";

/// Runs an ignored test of this program in a process of its own, on a directory, after some words of the shell.
fn run_child(test: &str, setup: &str, directory: &Path) {
    let name = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    let output = Command::new("sh")
        .arg("-c")
        .arg(format!("{setup}; exec \"$@\""))
        .arg("sh")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--ignored", "--nocapture", "--test-threads=1"])
        .env(CHILD_DIRECTORY, directory)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let passed = output.status.success() && text.contains("1 passed");
    assert!(passed, "{test}: {}\n{text}\n{errors}", output.status);
}

/// A directory that a child works on; `None` if this is no child, but somebody who runs all ignored tests.
fn in_child() -> Option<PathBuf> {
    std::env::var_os(CHILD_DIRECTORY).map(PathBuf::from)
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_fills_stores_up_to_the_limit() {
    let Some(place) = in_child() else { return };
    for (engine, name) in [(IoEngine::Sync, "sync"), (IoEngine::Auto, "auto")] {
        let options = options().io_engine(engine);
        let db = options.create(place.join(name)).unwrap();
        let mut there = fill(&db, &mut Dice(1));
        assert!(there.len() > 1000, "{}", there.len());
        for n in 0..there.len() as u64 - 100 {
            birds(&db).remove(&key(n)).unwrap();
            there.remove(&key(n));
        }
        db.checkpoint().unwrap();
        db.checkpoint().unwrap();
        let durable = birds(&db).with_durability(Durability::Sync);
        durable.put(b"robin", &[7; 500]).unwrap();
        there.insert(b"robin".to_vec(), vec![7; 500]);
        assert_there(&db, &there);
        assert_sound(&db, name);
        db.close().unwrap();
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_opens_stores_beyond_the_limit() {
    let Some(place) = in_child() else { return };
    for (engine, name) in [(IoEngine::Sync, "sync"), (IoEngine::Auto, "auto")] {
        // No byte may be written behind the limit, not even in place.
        match options().io_engine(engine).open(place.join(name)) {
            Ok(db) => drop(db),
            Err(error) => assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}"),
        }
        let created = options().io_engine(engine).create(place.join("new")).map(drop).unwrap_err();
        assert_eq!(created.kind(), ErrorKind::DiskFull, "{created}");
    }
}

/// The kernel sends SIGXFSZ to who writes behind the limit, which ends a process unless somebody sees to it.
#[test]
#[cfg_attr(windows, ignore = "Windows has no limit of the size of files")]
fn a_limit_of_the_size_of_files_is_a_full_disk_and_no_end_of_the_process() {
    let place = tempfile::tempdir().unwrap();
    // Blocks of 512 bytes, or of 1,024 in some shells: 2 to 4 MiB, and then 16 to 32 KiB.
    run_child("child_fills_stores_up_to_the_limit", "ulimit -f 4096", place.path());
    let before: Vec<u64> = ["sync", "auto"].map(|name| len_of(&place.path().join(name))).into();
    assert!(before.iter().all(|&len| len <= 4 << 20), "{before:?}");
    run_child("child_opens_stores_beyond_the_limit", "ulimit -f 32", place.path());
    for name in ["sync", "auto"] {
        let db = options().open(place.path().join(name)).unwrap();
        assert_eq!(birds(&db).get(b"robin").unwrap().unwrap().as_ref(), [7; 500]);
        db.close().unwrap();
    }
    let mut left: Vec<_> =
        std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["auto", "sync"]);
}
