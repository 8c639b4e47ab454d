//! Checkpoints that fail: the store goes on with all that it had, or says that it cannot.

use super::*;
use crate::store::superblock::LAST_CHECKPOINT;
use crate::store::{BatchChange, PoolTree};
use crate::testing::sim::{CallKind, Fault};
use crate::types::{Epoch, Lsn, PageId};
use hedgerow_sync::primitive::time::Moment;

fn key(n: usize) -> Vec<u8> {
    format!("key {n:05}").into_bytes()
}

fn fill(tree: &PoolTree, range: std::ops::Range<usize>) {
    for n in range {
        tree.put(&key(n), &[b'v'; 40]).unwrap();
    }
}

fn assert_has(store: &Store, count: usize) {
    let tree = store.open_keyspace("wrens").unwrap().unwrap();
    for n in 0..count {
        assert_eq!(tree.get(&key(n)).unwrap().unwrap().as_bytes(), [b'v'; 40], "{n}");
    }
}

fn read_large(store: &Store, tree: &PoolTree, key: &[u8]) -> Vec<u8> {
    let Some(Ok(mut reader)) = find_large(store, tree, key) else { panic!("it is not large") };
    let mut bytes = vec![0; reader.len_bytes() as usize];
    let mut done = 0;
    while done < bytes.len() {
        let count = reader.read_at(done as u64, &mut bytes[done..]).unwrap();
        assert!(count > 0);
        done += count;
    }
    bytes
}

#[test]
fn two_records_of_one_large_value_are_in_no_checkpoint() {
    let (disk, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    fill(&wrens, 0..10);
    store.checkpoint().unwrap();
    let durable = store.durable_checkpoint();
    let stored = put_large(&store, &wrens, b"song", 9000);
    wrens.put(b"the same song", &stored).unwrap();
    for _ in 0..2 {
        let error = store.checkpoint().unwrap_err();
        assert!(is_damage(&error), "{error:?}");
        assert!(error.to_string().contains("two records refer to one large value"), "{error}");
        assert_eq!(store.durable_checkpoint(), durable);
    }
    // Nothing is lost with it: without the second record the next checkpoint has everything.
    wrens.remove(b"the same song").unwrap();
    store.checkpoint().unwrap();
    assert!(is_clean(&store));
    drop(store);
    let store = open(&options(), &disk.crash(1), OpenHow::Existing).unwrap();
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    assert_eq!(read_large(&store, &wrens, b"song"), vec![b'x'; 9000]);
    assert_has(&store, 10);
    assert!(is_clean(&store));
}

/// A store with a log that has much more room than it needs; what it has is not in a checkpoint.
fn long_log() -> (SimDisk, Store) {
    let disk = SimDisk::new(1);
    let store = open(&logged(), &disk, OpenHow::New).unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    fill(&wrens, 0..6000);
    store.flush_log().unwrap();
    (disk, store)
}

/// How many calls that shorten a file there are until one shortens the log, in some checkpoints one after the other.
fn calls_before_the_log_is_trimmed() -> u64 {
    let (disk, store) = long_log();
    disk.record_log(true);
    store.keyspace("wrens").unwrap().put(b"last", b"1").unwrap();
    store.flush_log().unwrap();
    let written = disk.take_log().into_iter().find(|call| call.kind == CallKind::Write);
    let log = written.unwrap().file;
    checkpoints(&store).unwrap();
    let calls = disk.take_log();
    let mut trims = calls.iter().filter(|call| TRIMS.contains(&call.kind));
    trims.position(|call| call.file == log).expect("the log is trimmed") as u64
}

const TRIMS: &[CallKind] = &[CallKind::SetLen, CallKind::PunchHole];

/// What is kept for writers goes when they have ended.
fn checkpoints(store: &Store) -> Result<()> {
    let taken: Vec<Result<()>> = (0..4).map(|_| store.checkpoint()).collect();
    taken.into_iter().collect()
}

#[test]
fn a_log_that_cannot_be_trimmed_takes_nothing_from_the_checkpoint() {
    let after = calls_before_the_log_is_trimmed();
    for errno in [Fault::ENOSPC, Fault::EIO] {
        let (disk, store) = long_log();
        let before = store.durable_checkpoint();
        disk.inject(Fault::once(TRIMS[0], after, errno).or_of(&TRIMS[1..]));
        let failed = checkpoints(&store);
        assert!(disk.take_faults().is_empty(), "nothing was trimmed");
        match errno {
            // Some file systems need room to give some back.
            Fault::ENOSPC => failed.unwrap(),
            _ => assert_eq!(failed.unwrap_err().kind(), ErrorKind::Io),
        }
        assert!(store.durable_checkpoint() > before);
        assert_has(&store, 6000);
        let wrens = store.keyspace("wrens").unwrap();
        fill(&wrens, 6000..6100);
        store.checkpoint().unwrap();
        drop(store);
        let store = open(&logged(), &disk.crash(1), OpenHow::Existing).unwrap();
        assert_has(&store, 6100);
        assert!(is_clean(&store));
    }
}

#[test]
fn a_checkpoint_of_the_background_that_fails_is_told_to_whoever_writes() {
    let disk = SimDisk::new(1);
    let checkpoint_bytes = Some(8 << 10);
    let in_background = StoreOptions { background: true, checkpoint_bytes, ..options() };
    let store = open(&in_background, &disk, OpenHow::New).unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    fill(&wrens, 0..10);
    store.checkpoint().unwrap();
    disk.inject(Fault::once(CallKind::SyncData, 0, Fault::EIO).sticky());
    let refused = (10..200_000).find_map(|n| wrens.put(&key(n), &[b'v'; 40]).err());
    let error = refused.expect("nothing is accepted that cannot become durable");
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error:?}");
    assert_has(&store, 10);
    store.close().unwrap_err();
    disk.clear_faults();
    let left = disk.crash(1);
    drop(store);
    let store = open(&options(), &left, OpenHow::Existing).unwrap();
    assert_has(&store, 10);
    assert!(is_clean(&store));
}

#[test]
fn a_checkpoint_of_what_has_not_changed_is_not_taken() {
    let disk = SimDisk::new(7);
    let store = open(&logged(), &disk, OpenHow::New).unwrap();
    let wrens = store.keyspace("wrens").unwrap();
    fill(&wrens, 0..10);
    // What the first ones leave to be given back is given back by then.
    checkpoints(&store).unwrap();
    let durable = store.durable_checkpoint();
    for _ in 0..3 {
        store.checkpoint().unwrap();
        assert_eq!(store.durable_checkpoint(), durable);
    }
    fill(&wrens, 10..11);
    store.checkpoint().unwrap();
    assert!(store.durable_checkpoint() > durable);
}

/// They fill the log, which nothing else would empty.
#[test]
fn batches_that_change_nothing_are_a_reason_for_a_checkpoint() {
    let disk = SimDisk::new(1);
    let store = open(&logged(), &disk, OpenHow::New).unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    for _ in 0..3 {
        store.checkpoint().unwrap();
    }
    let before = store.durable_checkpoint();
    store.checkpoint().unwrap();
    assert_eq!(store.durable_checkpoint(), before, "there is nothing to do");
    let nothing = |key| BatchChange { tree: &wrens, key, value: None };
    let nothings = [nothing(&b"nor this"[..]), nothing(b"not there")];
    store.write_batch(&nothings, &mut 0, &crate::wait::Waiting::Forever).unwrap();
    store.checkpoint().unwrap();
    assert!(store.durable_checkpoint() > before);
}

/// There is a number for every checkpoint up to the last, which a store that goes on without a log may come to.
#[test]
fn a_store_that_has_no_number_left_for_a_checkpoint_says_so_and_is_read_as_before() {
    let (disk, store) = new_store();
    store.create_keyspace("wrens").unwrap().put(b"key", b"old").unwrap();
    store.close().unwrap();
    drop(store);
    forge_superblock(&disk, |superblock| superblock.checkpoint = Epoch(LAST_CHECKPOINT.0 - 1));
    let store = open(&options(), &disk, OpenHow::Existing).unwrap();
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    wrens.put(b"key", b"last").unwrap();
    store.checkpoint().unwrap();
    wrens.put(b"key", b"beyond").unwrap();
    let refused = store.checkpoint().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Poisoned);
    assert!(refused.to_string().contains("dump"), "{refused}");
    assert_eq!(wrens.put(b"key", b"later").unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(wrens.get(b"key").unwrap().unwrap().as_bytes(), b"beyond");
    store.close().unwrap_err();
    drop(store);
    for how in [OpenHow::ReadOnly, OpenHow::Existing] {
        let store = open(&options(), &disk, how).unwrap();
        let wrens = store.open_keyspace("wrens").unwrap().unwrap();
        assert_eq!(wrens.get(b"key").unwrap().unwrap().as_bytes(), b"last", "{how:?}");
        assert!(is_clean(&store), "{how:?}");
    }
}

/// Room was set aside for the parts of a page map that has so many pages: 34 GB of file, by a number that anybody may write.
#[test]
fn a_store_that_claims_most_page_ids_takes_no_room_for_them() {
    let (disk, store) = new_store();
    store.create_keyspace("wrens").unwrap().put(b"key", b"old").unwrap();
    store.close().unwrap();
    drop(store);
    for next_page in [Some(PageId((1 << 24) + 100)), Some(PageId(u32::MAX)), None] {
        forge_superblock(&disk, |superblock| superblock.next_page = next_page);
        let store = open(&options(), &disk, OpenHow::Existing).unwrap();
        let wrens = store.open_keyspace("wrens").unwrap().unwrap();
        wrens.put(b"key", b"new").unwrap();
        let file_bytes = store.file_bytes();
        assert!(file_bytes < 64 << 20, "{next_page:?}: {file_bytes} bytes");
        store.checkpoint().unwrap();
        assert_eq!(wrens.get(b"key").unwrap().unwrap().as_bytes(), b"new");
        store.close().unwrap();
    }
}

/// A store that was killed when all but ten of its records were removed, by what its log has. The page of another keyspace lies
/// at the end of its file.
fn killed_when_too_long() -> SimDisk {
    let disk = SimDisk::new(1);
    let store = open(&logged(), &disk, OpenHow::New).unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    fill(&wrens, 0..20_000);
    store.checkpoint().unwrap();
    fill(&store.create_keyspace("robins").unwrap(), 0..10);
    store.checkpoint().unwrap();
    for n in 10..20_000 {
        wrens.remove(&key(n)).unwrap();
    }
    store.flush_log().unwrap();
    disk.kill(1)
}

/// It may need all of the room yet, and somebody else might take what it gives back. The next checkpoints give it back.
#[test]
fn an_opening_after_a_crash_leaves_the_file_as_long_as_it_was() {
    let left = killed_when_too_long();
    let len = || left.state().contents(path()).unwrap().len();
    let before = len();
    let store = open(&logged(), &left, OpenHow::Existing).unwrap();
    assert!(len() >= before, "{before} bytes became {}", len());
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    assert_eq!(wrens.stats().unwrap().records(), 10);
    for _ in 0..4 {
        store.checkpoint().unwrap();
    }
    assert!(len() < before / 2, "{before} bytes became {}", len());
    assert!(is_clean(&store));
}

/// The checkpoints that move what is in the way of a shorter file may fail as any other.
#[test]
fn an_opening_in_which_a_sync_fails_is_an_error_or_gives_a_store_that_can_be_changed() {
    let killed = killed_when_too_long();
    let mut refused = 0;
    for k in 0.. {
        let left = killed.kill(1);
        left.inject(Fault::once(CallKind::SyncData, k, Fault::EIO));
        let opened = open(&logged(), &left, OpenHow::Existing);
        let Ok(store) = opened else {
            refused += 1;
            continue;
        };
        let wrens = store.open_keyspace("wrens").unwrap().unwrap();
        wrens.put(b"key", b"value").unwrap();
        if left.calls(CallKind::SyncData) <= k {
            break;
        }
    }
    println!("{refused} openings refused");
    assert!(refused > 4, "{refused}");
}

#[test]
fn a_close_tells_what_failed_first_whatever_becomes_of_the_lock() {
    for is_poisoned in [true, false] {
        let (file, store) = watched();
        store.create_keyspace("wrens").unwrap().put(b"key", b"value").unwrap();
        if is_poisoned {
            let error = Error::new(ErrorKind::Io, "a page could not be written");
            store.shared.pool.set_poisoned(&error);
        }
        file.stays_locked.store(true, SeqCst);
        let told = store.close().unwrap_err().to_string();
        let first = if is_poisoned { "a page could not be written" } else { "does not unlock" };
        assert!(told.contains(first), "{told}");
    }
}

#[test]
fn a_close_that_takes_no_checkpoint_writes_the_log_all_the_same() {
    let disk = SimDisk::new(1);
    let store = open(&logged(), &disk, OpenHow::New).unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    store.checkpoint().unwrap();
    wrens.put(b"key", b"value").unwrap();
    store.shared.pool.set_poisoned(&Error::new(ErrorKind::Io, "a page could not be written"));
    store.close().unwrap_err();
    drop(store);
    let store = open(&logged(), &disk, OpenHow::Existing).unwrap();
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    assert_eq!(wrens.get(b"key").unwrap().unwrap().as_bytes(), b"value");
}

/// Leaves are stamped with it: what begins anew would look older than what an earlier session has done.
#[test]
fn the_count_of_a_store_without_a_log_goes_on_in_the_next_session_with_or_without_one() {
    let (disk, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..10 {
        wrens.put(&[n], b"sings").unwrap();
    }
    let last = store.last_lsn();
    assert!(last > Lsn(0), "the creation has an LSN of its own");
    store.close().unwrap();
    drop((wrens, store));
    let store = open(&options(), &disk, OpenHow::Existing).unwrap();
    let first = store.last_lsn();
    assert!(first > last, "the checkpoint of the close has ended a moment");
    let wrens = store.keyspace("wrens").unwrap();
    let opened = store.last_lsn();
    wrens.put(b"eleventh", b"sings").unwrap();
    assert_eq!(store.last_lsn(), opened, "nobody has asked for a moment");
    drop(wrens);
    store.close().unwrap();
    drop(store);
    let store = open(&logged(), &disk, OpenHow::Existing).unwrap();
    assert!(store.log().unwrap().tail() >= first);
}

/// It stays where it is, and keeps nobody from making the rest of the file durable, and short as far as that goes.
#[test]
fn a_damaged_page_at_the_end_of_the_file_fails_no_checkpoint() {
    let (disk, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    fill(&wrens, 0..20_000);
    store.close().unwrap();
    drop((store, wrens));
    let mut bytes = disk.state().contents(path()).unwrap();
    let before = bytes.len();
    let last = bytes.windows(5).rposition(|part| part == [b'v'; 5]).unwrap();
    bytes[last] ^= 1;
    disk.change_state(|state| state.set_contents(path(), &bytes)).unwrap();
    let store = open(&options(), &disk, OpenHow::Existing).unwrap();
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    for n in 0..15_000 {
        wrens.remove(&key(n)).unwrap();
    }
    for _ in 0..4 {
        store.checkpoint().unwrap();
    }
    assert_eq!(store.pool().dirty_pages(), 0);
    let written = disk.calls(CallKind::Write);
    store.checkpoint().unwrap();
    assert_eq!(disk.calls(CallKind::Write), written, "it tries no more");
    let after = disk.state().contents(path()).unwrap().len();
    assert!((last..before).contains(&after), "{before} bytes became {after}, damage at {last}");
    assert!(!is_clean(&store), "a verification tells of it");
}

/// Pages are dirty when that fails, so that no change of later tells the thread of the background.
#[test]
fn a_store_that_could_not_come_to_rest_does_so_later() {
    let (disk, store) = new_store();
    fill(&store.create_keyspace("wrens").unwrap(), 0..2_000);
    store.close().unwrap();
    drop(store);
    let settle_after = Duration::from_millis(200);
    let settling = StoreOptions { background: true, settle_after, ..options() };
    let store = open(&settling, &disk, OpenHow::Existing).unwrap();
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    wrens.put(&key(7), &[b'w'; 40]).unwrap();
    let taken = store.durable_checkpoint();
    disk.inject(Fault::once(CallKind::Write, 0, Fault::ENOSPC).sticky());
    thread::sleep(4 * settle_after);
    assert_eq!(store.durable_checkpoint(), taken);
    assert!(store.pool().dirty_pages() > 0);
    disk.clear_faults();
    wrens.put(&key(7), &[b'x'; 40]).unwrap();
    for _ in 0..100 {
        if store.pool().dirty_pages() == 0 {
            return store.close().unwrap();
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("{} pages are dirty", store.pool().dirty_pages());
}

/// Between the end of a replay and the checkpoint that ends the recovery the thread of the background may take one. The log's end has
/// passed the renames of the replay by then.
#[test]
fn a_checkpoint_at_the_end_of_a_replay_can_be_read() {
    let (disk, store) = new_store();
    fill(&store.create_keyspace("wrens").unwrap(), 0..10);
    store.checkpoint().unwrap();
    // As a replay leaves it.
    store.shared.catalogue.rename_again(crate::types::TreeId(99), "a", "b", Lsn(50)).unwrap();
    for (log_end, renames_end) in [(40, 50), (50, 0), (60, 0)] {
        let mut newest = store.shared.checkpointing.lock();
        newest.superblock.needs_log = true;
        newest.superblock.renames_end = Lsn(0);
        [newest.superblock.replay_start, newest.superblock.log_end] = [Lsn(log_end); 2];
        drop(newest);
        fill(&store.open_keyspace("wrens").unwrap().unwrap(), 0..10);
        store.shared.checkpoint(false).unwrap();
        let file = disk.open(path(), OpenMode::ReadOnly, DirectIo::Never).unwrap();
        let found = read_superblocks(&*file).unwrap().superblock;
        assert_eq!((found.log_end, found.renames_end), (Lsn(log_end), Lsn(renames_end)));
        assert_eq!(found, store.shared.checkpointing.lock().superblock);
    }
}

/// Two records refer to one large value, so that no checkpoint can be taken before one of them has gone.
fn hinder_checkpoints(store: &Store, tree: &PoolTree) {
    let stored = put_large(store, tree, b"song", 9000);
    tree.put(b"the same song", &stored).unwrap();
}

/// Each checkpoint that failed left an image of each page that was changed before the next one, for good.
#[test]
fn a_store_whose_checkpoints_fail_stays_as_long_as_it_was() {
    const RECORDS: usize = 3_000;
    let (disk, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    fill(&wrens, 0..RECORDS);
    store.checkpoint().unwrap();
    let file_bytes = || store.space_report().unwrap().file_bytes;
    let start = file_bytes();
    hinder_checkpoints(&store, &wrens);
    let change = |round: u8| {
        for n in 0..RECORDS {
            wrens.put(&key(n), &[round; 40]).unwrap();
        }
    };
    for round in 0..50 {
        change(round);
        assert!(is_damage(&store.checkpoint().unwrap_err()));
        assert!(file_bytes() < 4 * start, "{round}: {} of {start}", file_bytes());
        if round % 10 == 0 {
            // Nothing that the durable one refers to was written again.
            let left = open(&options(), &disk.crash(round.into()), OpenHow::Existing).unwrap();
            assert_has(&left, RECORDS);
            assert!(is_clean(&left), "{round}");
        }
    }
    // With what every other one of the pages was when the last one failed.
    for n in (0..RECORDS).step_by(30) {
        wrens.put(&key(n), &[99; 40]).unwrap();
    }
    wrens.remove(b"the same song").unwrap();
    store.checkpoint().unwrap();
    assert!(is_clean(&store));
    drop(store);
    let store = open(&options(), &disk.crash(1), OpenHow::Existing).unwrap();
    assert!(is_clean(&store));
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    for n in 0..RECORDS {
        let value = if n % 30 == 0 { 99 } else { 49 };
        assert_eq!(wrens.get(&key(n)).unwrap().unwrap().as_bytes(), [value; 40], "{n}");
    }
}

/// It waited for a minute, and was told of that minute.
#[test]
fn who_needs_a_checkpoint_to_make_room_in_the_log_is_told_why_there_is_none() {
    let options = StoreOptions { background: true, log_limit_bytes: 1 << 20, ..logged() };
    let disk = SimDisk::new(1);
    let store = open(&options, &disk, OpenHow::New).unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    hinder_checkpoints(&store, &wrens);
    let put = |n: usize| wrens.put(&key(n % 1_000), &[b'v'; 100]);
    for _ in 0..3 {
        let refused = (0..100_000).find_map(|n| {
            let began = Moment::now();
            Some((put(n).err()?, began.elapsed()))
        });
        let (error, waited) = refused.expect("the log is full");
        assert!(is_damage(&error), "{error:?}");
        assert!(waited < Duration::from_secs(3), "{waited:?}");
    }
}
