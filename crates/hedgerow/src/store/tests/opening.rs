//! What keeps a store from being opened: locks, sizes of pages and blocks, features of later builds.

use super::*;
use crate::storage::{File, LockOutcome, ReadRequest, WriteRequest};
use crate::store::lock::lock;
use crate::store::superblock;
use crate::testing::sim::{CallKind, Fault};
use hedgerow_sync::primitive::Mutex;
use std::ops::ControlFlow;

/// A file that somebody else has locked; only its lock is asked for.
#[derive(Debug)]
struct Locked {
    answer: LockOutcome,
    /// How often it is given before the lock is free.
    left: Mutex<usize>,
}

impl Locked {
    fn by(holder_pid: Option<u32>, times: usize) -> Locked {
        Locked { answer: LockOutcome::Busy { holder_pid }, left: Mutex::new(times) }
    }
}

#[rustfmt::skip]
impl File for Locked {
    fn try_lock(&self, _: bool) -> Result<LockOutcome> {
        let mut left = self.left.lock();
        if *left == 0 {
            return Ok(LockOutcome::Held);
        }
        *left -= 1;
        Ok(self.answer)
    }
    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<()> { unreachable!() }
    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> { unreachable!() }
    fn read_batch(&self, _: &mut [ReadRequest<'_>]) { unreachable!() }
    fn write_batch(&self, _: &[WriteRequest<'_>]) -> Result<()> { unreachable!() }
    fn len_bytes(&self) -> Result<u64> { unreachable!() }
    fn set_len(&self, _: u64) -> Result<()> { unreachable!() }
    fn allocate(&self, _: u64, _: u64) -> Result<()> { unreachable!() }
    fn punch_hole(&self, _: u64, _: u64) -> Result<bool> { unreachable!() }
    fn sync_data(&self) -> Result<()> { unreachable!() }
    fn sync_all(&self) -> Result<()> { unreachable!() }
    fn allocated_bytes(&self) -> Result<u64> { unreachable!() }
    fn block_bytes(&self) -> usize { unreachable!() }
    fn is_at(&self, _: &Path) -> Result<bool> { unreachable!() }
    fn unlock(&self) -> Result<()> { unreachable!() }
    fn read_unaligned(&self, _: u64, _: &mut [u8]) -> Result<()> { unreachable!() }
}

#[test]
fn the_lock_of_a_process_that_has_ended_or_is_unknown_is_waited_for() {
    for holder in [None, cfg!(target_os = "linux").then_some(u32::MAX)] {
        let file = Locked::by(holder, 2);
        lock(&file, true).unwrap();
        assert_eq!(*file.left.lock(), 0, "{holder:?}");
    }
}

#[test]
fn the_lock_of_a_process_that_lives_is_refused_at_once_and_that_of_nobody_soon() {
    let me = Some(std::process::id());
    for (holder_pid, tries) in [(me, 1), (None, 101)] {
        let file = Locked::by(holder_pid, 1000);
        let error = lock(&file, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked { holder_pid });
        let is_own = error.to_string().contains("clone that `Database`");
        assert_eq!(is_own, holder_pid.is_some(), "{error}");
        assert_eq!(*file.left.lock(), 1000 - tries, "{holder_pid:?}");
    }
}

#[test]
fn a_store_has_pages_of_a_power_of_two_from_2_to_64_kib() {
    for page_bytes in [0, 1, 3000, 4097, 12 << 10, 128 << 10, 1 << 40] {
        let options = StoreOptions { page_bytes: Some(page_bytes), ..options() };
        let disk = SimDisk::new(1);
        let refused = [
            Store::in_memory(&options),
            open(&options, &disk, OpenHow::New),
            open(&options, &disk, OpenHow::Existing),
        ];
        for error in refused.map(|opened| opened.map(drop).unwrap_err()) {
            assert_eq!(error.kind(), ErrorKind::InvalidOption, "{page_bytes}: {error:?}");
        }
        assert!(disk.state().paths().is_empty(), "{page_bytes}");
    }
}

#[test]
fn a_store_of_other_pages_than_expected_is_left_alone() {
    let (disk, store) = new_store();
    store.close().unwrap();
    drop(store);
    let before = disk.state().contents(path());
    let other = StoreOptions { page_bytes: Some(4096), ..options() };
    for how in [OpenHow::Existing, OpenHow::ExistingOrNew, OpenHow::ReadOnly] {
        let error = open(&other, &disk, how).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{how:?}: {error:?}");
    }
    assert_eq!(disk.state().contents(path()), before);
    let any = StoreOptions { page_bytes: None, ..options() };
    assert_eq!(open(&any, &disk, OpenHow::Existing).unwrap().page_bytes(), 512);
}

#[test]
fn a_store_of_smaller_units_than_the_blocks_of_direct_io_is_opened_without_it() {
    let (disk, store) = new_store();
    store.create_keyspace("wrens").unwrap().put(b"key", b"value").unwrap();
    store.close().unwrap();
    drop(store);
    disk.set_block_bytes(4096);
    for how in [OpenHow::Existing, OpenHow::ReadOnly] {
        let store = open(&options(), &disk, how).unwrap();
        assert_eq!(store.shared.slots.as_ref().unwrap().file().block_bytes(), 1, "{how:?}");
        let wrens = store.open_keyspace("wrens").unwrap().unwrap();
        assert_eq!(wrens.get(b"key").unwrap().unwrap().as_bytes(), b"value");
    }
    let store = open(&options(), &disk, OpenHow::Existing).unwrap();
    let copies = [Path::new("/data/backup.hrow"), Path::new("/data/repaired.hrow")];
    let go_on = &mut |_| std::ops::ControlFlow::Continue(());
    store.backup(&disk, copies[0], go_on).unwrap();
    drop(store);
    let through = StoreOptions { direct_io: false, ..options() };
    let _ = crate::store::repair(&through, &disk, path(), copies[1], go_on).unwrap();
    for copy in copies {
        let store = Store::open(&options(), &disk, copy, OpenHow::Existing).unwrap();
        let wrens = store.open_keyspace("wrens").unwrap().unwrap();
        assert_eq!(wrens.get(b"key").unwrap().unwrap().as_bytes(), b"value");
    }
}

#[test]
fn pages_smaller_than_the_blocks_of_direct_io_are_refused_and_made_without_it() {
    for page_bytes in [512, 2048] {
        let disk = SimDisk::new(1);
        disk.set_block_bytes(4096);
        let options = StoreOptions { page_bytes: Some(page_bytes), zone_bytes: None, ..options() };
        let error = open(&options, &disk, OpenHow::New).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
        assert!(error.to_string().contains("direct_io(false)"), "{error}");
        let through = StoreOptions { direct_io: false, ..options };
        let store = open(&through, &disk, OpenHow::New).unwrap();
        store.create_keyspace("wrens").unwrap().put(b"key", b"value").unwrap();
        store.close().unwrap();
        drop(store);
        let store = open(&options, &disk, OpenHow::Existing).unwrap();
        let error =
            store.backup(&disk, Path::new("/data/copy"), &mut |_| ControlFlow::Continue(()));
        assert!(error.is_ok(), "{error:?}");
    }
}

/// Each kept the store shut, to `repair` as well, and ended a verification's list without its place.
#[test]
fn a_block_of_the_superblock_that_cannot_be_read_does_not_hide_the_others() {
    let (disk, store) = new_store();
    store.create_keyspace("wrens").unwrap().put(b"key", b"value").unwrap();
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(store);
    let closed = disk.state();
    let file = disk.open(path(), OpenMode::ReadOnly, DirectIo::Never).unwrap();
    let pair = read_superblocks(&*file).unwrap().pair;
    drop(file);
    for (call, offset) in (0..).zip(superblock::POSITIONS) {
        let unread = Fault::once(CallKind::Read, call, Fault::EIO);
        let disk = SimDisk::with_state(closed.clone(), 1);
        // Of the other pair it may be all that there is of a later checkpoint.
        let may_be_later = offset == superblock::positions_of(pair ^ 1)[0];
        disk.inject(unread);
        let copy = Path::new("/data/copy");
        let report = crate::store::repair(&options(), &disk, path(), copy, &mut |_| {
            ControlFlow::Continue(())
        });
        let report = report.unwrap();
        assert_eq!(report.defects.len(), usize::from(may_be_later), "{offset}: {report:?}");
        assert_eq!(report.records, 1, "{offset}: {report:?}");
        for how in [OpenHow::ReadOnly, OpenHow::Existing] {
            disk.inject(unread);
            let opened = open(&options(), &disk, how);
            assert!(disk.take_faults().is_empty(), "{offset} {how:?}");
            if may_be_later {
                let error = opened.map(drop).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Io, "{offset} {how:?}");
                assert!(error.to_string().contains(&format!("at byte {offset}")), "{error}");
                continue;
            }
            let store = opened.unwrap();
            let wrens = store.open_keyspace("wrens").unwrap().unwrap();
            assert_eq!(wrens.get(b"key").unwrap().unwrap().as_bytes(), b"value");
            assert!(is_clean(&store));
            store.close().unwrap();
        }
        let mut found = Vec::new();
        let store = open(&options(), &disk, OpenHow::ReadOnly).unwrap();
        for call in 0.. {
            disk.inject(Fault::once(CallKind::Read, call, Fault::EIO));
            let report = store.verify(|_| ControlFlow::Continue(())).unwrap();
            if !disk.take_faults().is_empty() {
                break;
            }
            found.extend(report.findings.into_iter().filter_map(|finding| finding.offset_bytes));
        }
        assert!(superblock::POSITIONS.iter().all(|at| found.contains(at)), "{found:?}");
    }
    // No two of a pair.
    let disk = SimDisk::with_state(closed, 1);
    disk.inject(Fault { sticky: true, ..Fault::once(CallKind::Read, 0, Fault::EIO) });
    let error = open(&options(), &disk, OpenHow::ReadOnly).map(drop).unwrap_err();
    assert_eq!((error.kind(), error.os_error()), (ErrorKind::Io, Some(Fault::EIO)), "{error}");
}

#[test]
fn a_store_with_features_that_can_only_be_read_is_not_written() {
    let (disk, store) = new_store();
    store.create_keyspace("wrens").unwrap().put(b"key", b"value").unwrap();
    store.close().unwrap();
    drop(store);
    forge_superblock(&disk, |superblock| superblock.read_only_compat = 1 << 9);
    let before = disk.state().contents(path());
    for how in [OpenHow::Existing, OpenHow::ExistingOrNew] {
        let error = open(&options(), &disk, how).map(drop).unwrap_err();
        let found = superblock::FORMAT_VERSION;
        assert_eq!(error.kind(), ErrorKind::UpgradeRequired { found }, "{how:?}");
    }
    let store = open(&options(), &disk, OpenHow::ReadOnly).unwrap();
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    assert_eq!(wrens.get(b"key").unwrap().unwrap().as_bytes(), b"value");
    assert_eq!(store.checkpoint().unwrap_err().kind(), ErrorKind::ReadOnly);
    let error = store.keyspace("robins").map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::KeyspaceNotFound, "nothing is created: {error:?}");
    store.close().unwrap();
    drop(store);
    assert_eq!(disk.state().contents(path()), before, "nothing was written");
}

#[test]
fn a_store_in_memory_has_nothing_to_make_durable_and_closes_well() {
    let store = Store::in_memory(&logged()).unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    wrens.put(b"key", b"value").unwrap();
    store.expect_stored_forms();
    store.checkpoint().unwrap();
    assert_eq!((store.has_file(), store.has_stored_forms()), (false, true));
    assert_eq!((store.file_bytes(), store.durable_checkpoint().0), (0, 0));
    let plain = find_large(&store, &wrens, b"key").unwrap();
    assert_eq!(plain.err().unwrap().as_bytes(), b"value");
    assert!(find_large(&store, &wrens, b"other").is_none());
    assert!(is_clean(&store));
    store.close().unwrap();
    assert_eq!(wrens.put(b"key", b"late").unwrap_err().kind(), ErrorKind::Closed);
}
