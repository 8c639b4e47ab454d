//! Backups and what is made of them: taken while everything changes, opened beside what they were taken from, on
//! disks that run full, and cut short at every moment.
#![allow(clippy::disallowed_methods, reason = "tests use files and processes")]

use crate::common::{Dice, Model, Step, assert_sound, change, contents, open, path, seed, tiny};
use hedgerow::internals::storage::Disk;
use hedgerow::internals::store::OpenHow;
use hedgerow::{BackupReport, Database, ErrorKind, Options};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::sim::{CallKind, Fault, SimState};
use std::ops::ControlFlow;
use std::path::Path;

const RECORDS: u64 = 6_000;
const BACKUP: &str = "/data/backup.hrow";
const RESTORED: &str = "/data/restored.hrow";

/// As little memory as large values can be read with, and no log.
fn options() -> Options {
    let limit = hedgerow::internals::buffer::smallest_limit_without_log_bytes(512) + (128 << 10);
    tiny().memory_limit_bytes(limit)
}

fn on(disk: &SimDisk, at: &str, how: OpenHow) -> hedgerow::Result<Database> {
    options().on_disk(disk as &dyn Disk, Path::new(at), how)
}

fn go_on(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn puts(count: u64) -> Step {
    Step::Puts { keyspace: "wrens", count, below: RECORDS, value_bytes: 70 }
}

/// A store of many pages, with holes in it, and a large value of two chunks.
fn filled(dice: &mut Dice, count: u64) -> (SimDisk, Database, Model) {
    let disk = SimDisk::new(1);
    // Small zones, so that there is little free space behind the last page.
    let db = open(&options().zone_bytes(32 << 10), &disk, OpenHow::New).unwrap();
    let mut model = Model::new();
    change(&db, &mut model, &puts(count), dice).unwrap();
    let gulls = Step::Puts { keyspace: "gulls", count: 40, below: 100, value_bytes: 30 };
    change(&db, &mut model, &gulls, dice).unwrap();
    let song = crate::common::bytes(dice, 40_000);
    db.keyspace("gulls").unwrap().put(b"song", &song).unwrap();
    model.get_mut("gulls").unwrap().insert(b"song".to_vec(), song);
    db.checkpoint().unwrap();
    let removes = Step::Removes { keyspace: "wrens", below: RECORDS, every: 3 };
    change(&db, &mut model, &removes, dice).unwrap();
    (disk, db, model)
}

#[test]
fn a_backup_has_what_was_there_when_it_began_whatever_is_written_meanwhile() {
    let mut dice = Dice(seed(81));
    let (disk, db, mut model) = filled(&mut dice, RECORDS);
    let before = model.clone();
    let mut steps = 0;
    let report = db.backup(BACKUP, |_| {
        steps += 1;
        // Two checkpoints: what only the one that is copied needs could be written again.
        for count in [RECORDS / 4, 50] {
            change(&db, &mut model, &puts(count), &mut dice).unwrap();
            db.checkpoint().unwrap();
        }
        ControlFlow::Continue(())
    });
    let report = report.unwrap();
    assert!(report.pages > 300 && steps > 0, "{report:?} in {steps} steps");
    assert_eq!(contents(&db).unwrap(), model);
    assert_eq!(db.space_report().unwrap().quarantined_bytes, 0, "nothing is pinned any more");
    // Beside its original, which is open.
    for how in [OpenHow::ReadOnly, OpenHow::Existing] {
        let copy = on(&disk, BACKUP, how).unwrap();
        assert_sound(&copy, "the backup");
        assert_eq!(contents(&copy).unwrap(), before);
        assert_eq!(copy.space_report().unwrap().file_bytes, report.file_bytes);
        if how == OpenHow::Existing {
            let mut changed = before.clone();
            change(&copy, &mut changed, &puts(200), &mut dice).unwrap();
            copy.checkpoint().unwrap();
            assert_eq!(contents(&copy).unwrap(), changed);
            assert_sound(&copy, "the backup, changed");
        }
        copy.close().unwrap();
    }
    assert_eq!(contents(&db).unwrap(), model);
    assert_sound(&db, "the original");
}

#[test]
fn a_backup_holds_no_free_space() {
    let mut dice = Dice(seed(82));
    let (disk, db, mut model) = filled(&mut dice, RECORDS);
    let removes = Step::Removes { keyspace: "wrens", below: RECORDS, every: 1 };
    change(&db, &mut model, &removes, &mut dice).unwrap();
    let report = db.backup(BACKUP, go_on).unwrap();
    let original = db.space_report().unwrap();
    let copy = on(&disk, BACKUP, OpenHow::ReadOnly).unwrap();
    let space = copy.space_report().unwrap();
    assert_eq!(contents(&copy).unwrap(), model);
    assert!(space.used_bytes <= original.used_bytes, "{space:?} of {original:?}");
    assert!(report.file_bytes < original.file_bytes / 2, "{report:?} of {original:?}");
}

#[test]
fn a_store_that_is_open_for_reading_is_backed_up_and_one_that_was_not_closed_is_not() {
    let mut dice = Dice(seed(83));
    let (disk, db, model) = filled(&mut dice, 500);
    db.close().unwrap();
    let reader = open(&options(), &disk, OpenHow::ReadOnly).unwrap();
    reader.backup(BACKUP, go_on).unwrap();
    let copy = on(&disk, BACKUP, OpenHow::ReadOnly).unwrap();
    assert_eq!(contents(&copy).unwrap(), model);
    drop((copy, reader));

    let logged = tiny().memory_limit_bytes(1 << 20).log(true);
    let db = open(&logged, &disk, OpenHow::Existing).unwrap();
    db.keyspace("wrens").unwrap().put(b"late", b"change").unwrap();
    db.sync().unwrap();
    let disk = disk.kill(1);
    let reader = open(&logged, &disk, OpenHow::ReadOnly).unwrap();
    let refused = reader.backup("/data/other.hrow", go_on).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotClosed, "{refused}");
    assert!(!disk.exists(Path::new("/data/other.hrow")).unwrap());
    drop((reader, db));
    // With its log it is backed up.
    let db = open(&logged, &disk, OpenHow::Existing).unwrap();
    db.backup("/data/other.hrow", go_on).unwrap();
    let copy = on(&disk, "/data/other.hrow", OpenHow::ReadOnly).unwrap();
    assert_eq!(contents(&copy).unwrap(), contents(&db).unwrap());
    assert!(!disk.exists(Path::new("/data/other.hrow-log")).unwrap(), "it needs no log");
}

#[test]
fn a_backup_and_its_original_refuse_each_others_logs() {
    let disk = SimDisk::new(1);
    let options = tiny().memory_limit_bytes(1 << 20).log(true);
    let db = options.on_disk(&disk, path(), OpenHow::New).unwrap();
    db.keyspace("k").unwrap().put(b"a", b"1").unwrap();
    db.backup(BACKUP, go_on).unwrap();
    db.close().unwrap();
    // Both are opened as often as each other, changed and not closed.
    let [_one, _other] = [path(), Path::new(BACKUP)].map(|at| {
        let db = options.on_disk(&disk, at, OpenHow::Existing).unwrap();
        db.keyspace("k").unwrap().put(b"b", at.as_os_str().as_encoded_bytes()).unwrap();
        db.sync().unwrap();
        db
    });
    let disk = disk.kill(1);
    let log = |at: &Path| hedgerow::internals::store::log_path(at);
    disk.rename(&log(path()), Path::new("/data/aside")).unwrap();
    disk.rename(&log(Path::new(BACKUP)), &log(path())).unwrap();
    disk.rename(Path::new("/data/aside"), &log(Path::new(BACKUP))).unwrap();
    for at in [path(), Path::new(BACKUP)] {
        let refused = options.on_disk(&disk, at, OpenHow::Existing).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Corrupted { .. }), "{refused:?}");
        assert!(refused.to_string().contains("another store"), "{refused}");
    }
}

#[test]
fn what_is_at_the_destination_stays() {
    let mut dice = Dice(seed(84));
    let (disk, db, model) = filled(&mut dice, 300);
    db.backup(BACKUP, go_on).unwrap();
    // The store itself, which is in use; a backup; any other file; a log without its store.
    let create = |at: &str| {
        disk.change_state(|state| state.set_contents(Path::new(at), b"just a text")).unwrap();
    };
    create("/data/text");
    create("/data/gone.hrow-log");
    let in_use = path().to_str().unwrap();
    for at in [in_use, BACKUP, "/data/text", "/data/gone.hrow"] {
        let backup = db.backup(at, go_on);
        let restored = options().restore_on_disk(&disk, Path::new(BACKUP), Path::new(at), go_on);
        for refused in [backup.unwrap_err(), restored.unwrap_err()] {
            let is_as_expected = match refused.kind() {
                ErrorKind::Locked { .. } => at == in_use,
                ErrorKind::ForeignLog => at == "/data/gone.hrow",
                kind => kind == ErrorKind::FileExists && at != in_use,
            };
            assert!(is_as_expected, "{at}: {refused:?}");
        }
    }
    assert_eq!(contents(&db).unwrap(), model);
    let memory = Options::new().memory_limit_bytes(1 << 20).in_memory().unwrap();
    let refused = memory.backup("/data/memory.hrow", go_on).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InMemory);
}

#[test]
fn a_backup_is_restored_wholly_or_not_at_all() {
    let mut dice = Dice(seed(85));
    let (disk, db, model) = filled(&mut dice, 2_000);
    db.backup(BACKUP, go_on).unwrap();
    db.close().unwrap();
    let to = Path::new(RESTORED);
    let mut told = 0;
    let stopped = options().restore_on_disk(&disk, Path::new(BACKUP), to, |pages| {
        told = pages;
        ControlFlow::Break(())
    });
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(told > 0 && !disk.exists(to).unwrap());
    options().restore_on_disk(&disk, Path::new(BACKUP), to, go_on).unwrap();
    let restored = on(&disk, to.to_str().unwrap(), OpenHow::Existing).unwrap();
    assert_sound(&restored, "restored");
    assert_eq!(contents(&restored).unwrap(), model);
    drop(restored);

    // Damage in any page is named, and nothing is made of it.
    let bytes = disk.state().contents(Path::new(BACKUP)).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    let (mut tried, mut named) = (0, 0);
    for at in (hedgerow::internals::space::HEADER_REGION_BYTES as usize + 40..end).step_by(777) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        let disk = SimDisk::new(2);
        disk.change_state(|state| state.set_contents(Path::new(BACKUP), &damaged)).unwrap();
        tried += 1;
        match options().restore_on_disk(&disk, Path::new(BACKUP), to, go_on) {
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Corrupted { .. }), "{at}: {error:?}");
                assert!(!disk.exists(to).unwrap());
                named += 1;
            }
            // What no page and no part refers to.
            Ok(_) => assert_eq!(
                contents(&on(&disk, RESTORED, OpenHow::ReadOnly).unwrap()).unwrap(),
                model
            ),
        }
    }
    assert!(named > tried / 2, "{named} of {tried}");
    // Cut short by a tool that copies files. What is refused is found out before anything is written.
    for len in (0..=end).step_by(4096).chain([1, end - 1, end]) {
        let disk = SimDisk::new(2);
        disk.change_state(|state| state.set_contents(Path::new(BACKUP), &bytes[..len])).unwrap();
        let refused = options().restore_on_disk(&disk, Path::new(BACKUP), to, go_on).unwrap_err();
        assert!(
            matches!(refused.kind(), ErrorKind::NotAStore | ErrorKind::Corrupted { .. }),
            "{len}: {refused:?}"
        );
        assert_eq!(disk.state().paths(), [Path::new(BACKUP).into()], "{len}: something is left");
    }
}

#[test]
fn damage_in_the_source_is_named_and_leaves_no_backup() {
    let mut dice = Dice(seed(86));
    let (disk, db, _) = filled(&mut dice, 2_000);
    db.close().unwrap();
    let bytes = disk.state().contents(path()).unwrap();
    let mut pages = 0;
    for at in
        (hedgerow::internals::space::HEADER_REGION_BYTES as usize + 40..bytes.len()).step_by(1_301)
    {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        let disk = SimDisk::new(2);
        disk.change_state(|state| state.set_contents(path(), &damaged)).unwrap();
        let Ok(db) = open(&options(), &disk, OpenHow::ReadOnly) else { continue };
        match db.backup(BACKUP, go_on) {
            Ok(_) => {
                assert_sound(&on(&disk, BACKUP, OpenHow::ReadOnly).unwrap(), "a byte in free space")
            }
            Err(error) => {
                let ErrorKind::Corrupted { page, offset_bytes } = error.kind() else {
                    panic!("byte {at}: {error:?}");
                };
                pages += u64::from(page.is_some() && offset_bytes.is_some());
                assert!(!disk.exists(Path::new(BACKUP)).unwrap());
            }
        }
    }
    assert!(pages > 20, "{pages} damaged pages were named");
}

/// Makes a store at a path of a disk.
type Attempt<'a> = &'a dyn Fn(&SimDisk) -> hedgerow::Result<BackupReport>;

/// Every call that changes the disk fails from some time on, for want of room or for good: nothing is left behind. Tells
/// how many attempts met a full disk, and how many a failing one.
fn fail_each_change(start: &SimState, attempt: Attempt<'_>) -> (u64, u64) {
    let (mut full, mut failed) = (0, 0);
    let was_there = start.paths();
    let room = [CallKind::Write, CallKind::Allocate, CallKind::Create];
    let syncs = [CallKind::SyncData, CallKind::SyncAll];
    for kind in room.into_iter().chain(syncs).chain([CallKind::Rename, CallKind::SyncDir]) {
        for code in [Fault::ENOSPC, Fault::EIO] {
            for at in 0.. {
                let disk = SimDisk::with_state(start.clone(), 3);
                disk.inject(Fault::once(kind, at, code).sticky());
                match attempt(&disk) {
                    Ok(_) => break,
                    Err(error) if code == Fault::ENOSPC => {
                        assert_eq!(error.kind(), ErrorKind::DiskFull, "{kind:?} {at}: {error:?}");
                        full += 1;
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Io, "{kind:?} {at}: {error:?}");
                        failed += 1;
                    }
                }
                let names = disk.state().paths();
                assert_eq!(names, was_there, "{kind:?} {at}: nothing is left behind");
            }
        }
    }
    (full, failed)
}

/// Every other call fails once: there is nothing at `to`, and the next attempt goes well. Tells how many failed.
fn fail_each_look(start: &SimState, to: &str, attempt: Attempt<'_>) -> u64 {
    let mut failed = 0;
    let looks = [CallKind::Open, CallKind::Exists, CallKind::Examine, CallKind::Lock];
    for (kind, step) in looks.map(|kind| (kind, 1)).into_iter().chain([(CallKind::Read, 5)]) {
        for at in (0..).step_by(step) {
            let context = format!("{kind:?} {at}");
            let disk = SimDisk::with_state(start.clone(), 3);
            disk.inject(Fault::once(kind, at, Fault::EIO));
            let made = attempt(&disk);
            if disk.calls(kind) <= at {
                // There are no more of them.
                break;
            }
            disk.clear_faults();
            let Err(error) = made else { continue };
            // A page of a tree that a verification cannot read is one of its findings.
            let expected = match error.kind() {
                ErrorKind::Corrupted { .. } => kind == CallKind::Read,
                other => other == ErrorKind::Io,
            };
            assert!(expected, "{context}: {error:?}");
            assert!(!disk.exists(Path::new(to)).unwrap(), "{context}");
            attempt(&disk).unwrap_or_else(|error| panic!("{context}, again: {error:?}"));
            failed += 1;
        }
    }
    failed
}

/// Every call that changes the disk is the last before a crash: what is at `to` then is nothing, or all of it. Tells how
/// many crashes left nothing.
fn crash_at_each_change(
    start: SimState,
    to: &str,
    attempt: Attempt<'_>,
    model: &Model,
    dice: &mut Dice,
) -> u64 {
    let disk = SimDisk::with_state(start, 4);
    disk.record_states(true);
    attempt(&disk).unwrap();
    let mut states = disk.take_states();
    states.push(disk.state());
    let (mut cut, mut tried) = (0, 0);
    for state in &states {
        for _ in 0..4 * crate::common::effort() {
            tried += 1;
            let left = SimDisk::with_state(state.crash_at_random(dice.roll()), 5);
            match on(&left, to, OpenHow::ReadOnly) {
                Ok(copy) => {
                    assert_sound(&copy, "what a crash has left");
                    assert_eq!(contents(&copy).unwrap(), *model);
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::FileNotFound, "{error:?}");
                    cut += 1;
                }
            }
            // What is left is in nobody's way.
            let again = attempt(&left);
            assert!(again.is_ok() || left.exists(Path::new(to)).unwrap(), "{again:?}");
        }
    }
    println!("{cut} of {tried} crashes came too early");
    count(tried, "crash states");
    cut
}

#[test]
fn a_backup_that_fails_or_is_cut_short_leaves_nothing_that_is_a_store() {
    let mut dice = Dice(seed(87));
    let (disk, db, model) = filled(&mut dice, 200);
    db.close().unwrap();
    let start = disk.state();
    let attempt = |disk: &SimDisk| {
        let db = open(&options(), disk, OpenHow::ReadOnly)?;
        db.backup(BACKUP, go_on)
    };
    let (full, failed) = fail_each_change(&start, &attempt);
    let looks = fail_each_look(&start, BACKUP, &attempt);
    let cut = crash_at_each_change(start, BACKUP, &attempt, &model, &mut dice);
    println!("{full} full disks, {failed} failures, {looks} of calls that change nothing");
    count(full + failed + looks, "faulty runs");
    assert!(full > 5 && failed > 5 && looks > 10 && cut > 20);
}

#[test]
fn a_restoration_that_fails_or_is_cut_short_leaves_nothing_that_is_a_store() {
    let mut dice = Dice(seed(88));
    let (disk, db, model) = filled(&mut dice, 200);
    db.backup(BACKUP, go_on).unwrap();
    db.close().unwrap();
    // On a disk that has the backup and nothing else.
    let bytes = disk.state().contents(Path::new(BACKUP)).unwrap();
    let disk = SimDisk::new(2);
    disk.change_state(|state| state.set_contents(Path::new(BACKUP), &bytes)).unwrap();
    let start = disk.state();
    let attempt = |disk: &SimDisk| {
        options().restore_on_disk(disk, Path::new(BACKUP), Path::new(RESTORED), go_on)
    };
    let (full, failed) = fail_each_change(&start, &attempt);
    let looks = fail_each_look(&start, RESTORED, &attempt);
    let cut = crash_at_each_change(start, RESTORED, &attempt, &model, &mut dice);
    println!("{full} full disks, {failed} failures, {looks} of calls that change nothing");
    count(full + failed + looks, "faulty runs");
    assert!(full > 5 && failed > 5 && looks > 10 && cut > 20);
}

#[test]
fn in_real_files() {
    let dir = tempfile::tempdir().unwrap();
    let [store, backup, restored] =
        ["store.hrow", "backup.hrow", "restored.hrow"].map(|name| dir.path().join(name));
    let options = Options::new().memory_limit_bytes(4 << 20);
    let db = options.create(&store).unwrap();
    let keyspace = db.keyspace("k").unwrap();
    for n in 0..20_000u32 {
        keyspace.put(&n.wrapping_mul(0x9e37_79b9).to_be_bytes(), &[n as u8; 90]).unwrap();
    }
    // Writers of other threads go on meanwhile, on keys that sort behind all of those.
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..3u8 {
            let (keyspace, done) = (&keyspace, &done);
            scope.spawn(move || {
                let mut n = 0u32;
                while !done.load(std::sync::atomic::Ordering::SeqCst) {
                    let key = [&[0xff; 4][..], &[writer], &n.to_be_bytes()].concat();
                    keyspace.put(&key, &n.to_be_bytes()).unwrap();
                    n += 1;
                }
            });
        }
        let report = db.backup(&backup, go_on);
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        assert!(report.unwrap().pages > 500);
    });
    let lost = db.backup(dir.path().join("nowhere/backup.hrow"), go_on).unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::DirectoryNotFound, "{lost:?}");
    let restore = || options.restore(&backup, &restored, go_on);
    restore().unwrap();
    assert_eq!(restore().unwrap_err().kind(), ErrorKind::FileExists);
    for at in [&backup, &restored] {
        let copy = options.open(at).unwrap();
        assert_eq!(copy.replayed().records, 0);
        let keyspace = copy.keyspace("k").unwrap();
        for n in 0..20_000u32 {
            let value = keyspace.get(&n.wrapping_mul(0x9e37_79b9).to_be_bytes()).unwrap();
            assert_eq!(value.as_deref(), Some(&[n as u8; 90][..]));
        }
        // Of each writer the first so many of its changes, none of them left out.
        for writer in 0..3u8 {
            let prefix = [&[0xff; 4][..], &[writer]].concat();
            let end = [&[0xff; 4][..], &[writer + 1]].concat();
            for (n, record) in keyspace.range(prefix..end).enumerate() {
                assert_eq!(*record.unwrap().1, (n as u32).to_be_bytes());
            }
        }
        assert!(copy.verify(|_| ControlFlow::Continue(())).unwrap().is_clean());
        copy.close().unwrap();
    }
    db.close().unwrap();
}
