//! Staged values: nobody reads their places, or gives them to somebody else, before they are written.

use super::*;
use crate::store::PlacedValue;
use crate::testing::sim::{CallKind, Fault};
use std::collections::BTreeSet;

fn value(byte: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| byte.wrapping_add(at as u8)).collect()
}

fn place(store: &Store, value: &[u8]) -> PlacedValue {
    store.place(value, 200, &crate::Wait::Default).unwrap().expect("it is staged")
}

fn put(store: &Store, tree: &PoolTree, key: &[u8], value: &[u8]) {
    let placed = place(store, value);
    tree.put(key, placed.stored_form()).unwrap();
    placed.keep();
}

/// What the file has of a value, whatever is in memory.
fn in_file(store: &Store, tree: &PoolTree, key: &[u8]) -> Vec<u8> {
    let slots = store.shared.slots.as_ref().unwrap();
    let reading = slots.read_extents(store.shared.pool.epochs().current());
    let stored = tree.get(key).unwrap().unwrap();
    let Stored::Extent(extent) = read_stored(&stored) else { panic!("it is in an extent") };
    let mut reader = ExtentReader::new(None, slots, extent, reading).unwrap();
    let mut bytes = vec![0; reader.len_bytes() as usize];
    assert_eq!(reader.read_at(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

#[test]
fn many_values_are_written_by_one_call_and_read_before_and_after() {
    let (disk, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    let writes = disk.calls(CallKind::Write);
    for n in 0..12 {
        put(&store, &wrens, &[n], &value(n, 700 + usize::from(n)));
    }
    assert_eq!(disk.calls(CallKind::Write), writes, "all are staged");
    // One read of one of them writes all.
    assert_eq!(in_file(&store, &wrens, &[3]), value(3, 703));
    assert!(disk.calls(CallKind::Write) <= writes + 2);
    for n in 0..12 {
        assert_eq!(in_file(&store, &wrens, &[n]), value(n, 700 + usize::from(n)));
    }
    assert!(is_clean(&store));
    store.close().unwrap();
}

/// See `congruent_from`: else the disks of some virtual machines take five times as long.
#[test]
fn values_lie_in_blocks_of_memory_as_in_blocks_of_the_file() {
    let (file, store) = watched_with(&StoreOptions { memory_limit_bytes: 32 << 20, ..options() });
    let wrens = store.create_keyspace("wrens").unwrap();
    let staging = store.shared.slots.as_ref().unwrap().staging().clone();
    let mut begins = BTreeSet::new();
    for n in 0..20 {
        for of in 0..=n % 3 {
            put(&store, &wrens, &[n, of], &value(n, 1300 + 700 * usize::from(of)));
        }
        staging.write_all().unwrap();
        begins.extend(file.last_batch.lock().drain(..));
    }
    assert!(begins.iter().all(|&(in_file, in_memory)| in_file == in_memory as u64), "{begins:?}");
    assert!(begins.len() > 3, "they begin anywhere: {begins:?}");
    assert!(is_clean(&store));
}

/// Its place may be somebody else's by the time that the others are written.
#[test]
fn a_value_that_was_given_up_is_not_written_over_the_next_one() {
    let (_, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    put(&store, &wrens, b"first", &value(1, 2000));
    let units = |stored: &[u8]| {
        let Stored::Extent(extent) = read_stored(stored) else { panic!("it is in an extent") };
        extent.runs[0].unit..extent.runs[0].unit + u64::from(extent.runs[0].units)
    };
    let given_up = place(&store, &value(2, 3000));
    let its = units(given_up.stored_form());
    drop(given_up);
    // These go to the file at once, and one of them to that place.
    let mut keys = Vec::new();
    let mut is_reused = false;
    while !is_reused {
        let key = format!("later {}", keys.len()).into_bytes();
        let stored = put_large(&store, &wrens, &key, 3000);
        let theirs = units(&stored);
        is_reused = theirs.start < its.end && its.start < theirs.end;
        keys.push(key);
        assert!(keys.len() < 1000, "nobody gets {its:?}");
    }
    store.shared.slots.as_ref().unwrap().staging().write_all().unwrap();
    assert_eq!(in_file(&store, &wrens, b"first"), value(1, 2000));
    for key in keys {
        assert_eq!(in_file(&store, &wrens, &key), [b'x'; 3000]);
    }
    assert!(is_clean(&store));
}

/// Nobody will ask for it, and its frames are used by others at once.
#[test]
fn a_value_that_was_given_up_leaves_no_copy_in_memory() {
    let (_, store) = new_store();
    let is_kept = |reference: &[u8]| store.append_kept(reference, &mut Vec::new());
    let given_up = place(&store, &value(1, 3000));
    let reference = given_up.stored_form().to_vec();
    assert!(is_kept(&reference));
    drop(given_up);
    assert!(!is_kept(&reference));
    let mut writer = store.write_large(3000, 200, &crate::Wait::Default).unwrap();
    writer.write(&value(2, 3000)).unwrap();
    writer.finish().unwrap();
    let reference = writer.stored_form();
    store.keep_value(&reference, &value(2, 3000));
    assert!(is_kept(&reference));
    drop(writer);
    assert!(!is_kept(&reference));
}

/// A write that fails for want of room leaves all staged; the next one writes it.
#[test]
fn what_could_not_be_written_is_still_there() {
    let (disk, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..5 {
        put(&store, &wrens, &[n], &value(n, 1500));
    }
    let slots = store.shared.slots.as_ref().unwrap();
    disk.inject(Fault::once(CallKind::Write, 0, Fault::ENOSPC));
    assert_eq!(slots.staging().write_all().unwrap_err().kind(), ErrorKind::DiskFull);
    for n in 0..5 {
        let found = find_large(&store, &wrens, &[n]).unwrap().unwrap();
        assert_eq!(found.len_bytes(), 1500);
        assert_eq!(in_file(&store, &wrens, &[n]), value(n, 1500));
    }
    store.close().unwrap();
}

/// A checkpoint has leaves that refer to them.
#[test]
fn a_checkpoint_has_the_values_that_were_staged_before_it() {
    for log in [false, true] {
        let disk = SimDisk::new(7);
        let store = open(&if log { logged() } else { options() }, &disk, OpenHow::New).unwrap();
        let wrens = store.create_keyspace("wrens").unwrap();
        for n in 0..9 {
            put(&store, &wrens, &[n], &value(n, 900));
        }
        store.checkpoint().unwrap();
        let disk = disk.crash(3);
        drop(store);
        let store = open(&options(), &disk, OpenHow::Existing).unwrap();
        let wrens = store.open_keyspace("wrens").unwrap().unwrap();
        for n in 0..9 {
            assert_eq!(in_file(&store, &wrens, &[n]), value(n, 900), "log: {log}");
        }
        assert!(is_clean(&store));
    }
}

/// Stores whose chunks have 8 KiB, and buffers of such some of them.
fn short_chunks() -> StoreOptions {
    StoreOptions { zone_bytes: Some(8 << 10), ..options() }
}

fn of_short_chunks(disk: &SimDisk) -> Store {
    open(&short_chunks(), disk, OpenHow::New).unwrap()
}

/// Without memory for a chunk, by whoever may not wait for the disk, or beyond two MiB (here 512 KiB).
#[test]
fn what_is_too_long_to_be_staged_says_so() {
    let is_staged = |store: &Store, len: usize, wait: &crate::Wait| {
        store.place(&value(1, len), 200, wait).unwrap().is_some()
    };
    let (_, store) = new_store();
    assert!(is_staged(&store, 12 << 10, &crate::Wait::Default));
    assert!(!is_staged(&store, 40 << 10, &crate::Wait::Default));
    assert!(is_clean(&store));
    let store = of_short_chunks(&SimDisk::new(1));
    assert!(is_staged(&store, 500 << 10, &crate::Wait::Default));
    assert!(!is_staged(&store, 600 << 10, &crate::Wait::Default));
    for wait in [crate::Wait::Never, crate::Wait::For(Duration::from_secs(9))] {
        assert!(is_staged(&store, 12 << 10, &wait));
        assert!(!is_staged(&store, 100 << 10, &wait), "{wait:?}");
    }
    assert!(is_clean(&store));
}

/// Of a value of several parts the first are in the file while the last one is staged.
#[test]
fn parts_of_a_value_are_read_from_where_they_are() {
    let disk = SimDisk::new(5);
    let store = of_short_chunks(&disk);
    let wrens = store.create_keyspace("wrens").unwrap();
    let slots = store.shared.slots.as_ref().unwrap();
    let mut halves = 0;
    for n in 0..30 {
        let value = value(n, 9_000 * (1 + usize::from(n)));
        put(&store, &wrens, &[n], &value);
        let stored = wrens.get(&[n]).unwrap().unwrap();
        let Stored::Extent(extent) = read_stored(&stored) else { panic!("it is in an extent") };
        let is_staged = |number| {
            let place = extent.place(slots.geometry(), number);
            slots.staging().is_staged(place.offset_bytes)
        };
        let last = extent.chunks(slots.geometry()) - 1;
        halves += u32::from(!is_staged(0) && is_staged(last));
        assert_eq!(in_file(&store, &wrens, &[n]), value);
        let reading = slots.read_extents(store.shared.pool.epochs().current());
        let mut reader = ExtentReader::new(None, slots, extent, reading).unwrap();
        for at in (0..value.len()).step_by(7_000) {
            let mut bytes = vec![0; 17_000.min(value.len() - at)];
            assert_eq!(reader.read_at(at as u64, &mut bytes).unwrap(), bytes.len());
            assert_eq!(bytes, value[at..at + bytes.len()]);
        }
    }
    assert!(halves > 10, "{halves} were half in the file");
    assert!(is_clean(&store));
    store.close().unwrap();
}

/// What was written of a value that could not be put as a whole is somebody else's place again. What is staged beside it stays.
#[test]
fn a_value_whose_later_part_finds_no_room_is_given_up() {
    for (error, kind) in [(Fault::ENOSPC, ErrorKind::DiskFull), (Fault::EIO, ErrorKind::Io)] {
        let disk = SimDisk::new(5);
        let store = of_short_chunks(&disk);
        let wrens = store.create_keyspace("wrens").unwrap();
        put(&store, &wrens, b"first", &value(1, 150_000));
        let slots = store.shared.slots.as_ref().unwrap();
        slots.staging().write_all().unwrap();
        put(&store, &wrens, b"beside", &value(4, 3_000));
        disk.inject(Fault::once(CallKind::Write, 2, error));
        let refused = store.place(&value(2, 150_000), 200, &crate::Wait::Default);
        assert_eq!(refused.unwrap_err().kind(), kind);
        assert_eq!(in_file(&store, &wrens, b"first"), value(1, 150_000));
        assert_eq!(in_file(&store, &wrens, b"beside"), value(4, 3_000));
        if kind == ErrorKind::DiskFull {
            put(&store, &wrens, b"second", &value(3, 150_000));
            assert_eq!(in_file(&store, &wrens, b"second"), value(3, 150_000));
            assert!(is_clean(&store));
            store.close().unwrap();
        } else {
            assert_eq!(wrens.put(b"second", b"short").unwrap_err().kind(), ErrorKind::Poisoned);
            assert!(store.close().is_err());
        }
    }
}

/// Whoever closes it takes a last checkpoint then. Most puts meet it while their chunks are staged.
#[test]
fn a_put_that_meets_a_close_does_not_poison_the_store() {
    for n in 0..20 {
        let store = Arc::new(of_short_chunks(&SimDisk::new(n)));
        let theirs = store.clone();
        let putting = thread::spawn_named("puts", move || {
            loop {
                match theirs.place(&value(2, 400_000), 200, &crate::Wait::Default) {
                    Ok(placed) => drop(placed),
                    Err(error) => return error.kind(),
                }
            }
        });
        thread::sleep(Duration::from_millis(10));
        store.shared.slots.as_ref().unwrap().close_file();
        assert_eq!(putting.unwrap().join().unwrap(), ErrorKind::Closed);
        store.shared.pool.check_poison().unwrap();
    }
}

/// And does not ask the thread to try again until the time is over.
#[test]
fn whoever_may_wait_for_a_while_is_told_of_a_full_disk() {
    let disk = SimDisk::new(5);
    let threads = StoreOptions { zone_bytes: Some(8 << 10), ..threaded() };
    let store = open(&threads, &disk, OpenHow::New).unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    disk.inject(Fault::once(CallKind::Write, 0, Fault::ENOSPC).sticky());
    let wait = crate::Wait::For(Duration::from_secs(60));
    let refused = (0..100_u8).find_map(|n| match store.place(&value(n, 8_000), 200, &wait) {
        Ok(placed) => {
            let placed = placed.unwrap();
            wrens.put(&[n], placed.stored_form()).unwrap();
            placed.keep();
            None
        }
        Err(error) => Some(error.kind()),
    });
    assert_eq!(refused, Some(ErrorKind::DiskFull));
    disk.clear_faults();
    assert_eq!(in_file(&store, &wrens, &[0]), value(0, 8_000));
    store.close().unwrap();
}

/// What a scan asks for is in memory when it comes to it. A reference that is out of date asks for what is somebody else's.
#[test]
fn values_that_are_asked_for_ahead_are_read_once_and_checked() {
    let (disk, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..20 {
        put(&store, &wrens, &[n], &value(n, 1000 + usize::from(n)));
    }
    let stale = wrens.get(&[3]).unwrap().unwrap().into_vec();
    wrens.remove(&[3]).unwrap();
    store.checkpoint().unwrap();
    for n in 20..24 {
        put(&store, &wrens, &[n], &value(n, 1000 + usize::from(n)));
    }
    store.close().unwrap();
    drop((wrens, store));
    let store = open(&options(), &disk, OpenHow::Existing).unwrap();
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    let keys = (0..24).filter(|n| *n != 3);
    let stored = |n: u8| wrens.get(&[n]).unwrap().unwrap().into_vec();
    let mut references: Vec<Vec<u8>> = keys.clone().map(stored).collect();
    references.push(stale.clone());
    references.push(b"a short value".to_vec());
    let looked_at = store.read_values_ahead(references.iter().map(Vec::as_slice));
    assert_eq!(looked_at, references.len());
    let reads = disk.calls(CallKind::Read);
    store.read_values_ahead(references[..23].iter().map(Vec::as_slice));
    for (n, reference) in keys.zip(&references) {
        let mut bytes = Vec::new();
        assert!(store.append_kept(reference, &mut bytes), "{n}");
        assert_eq!(bytes, value(n, 1000 + usize::from(n)));
    }
    assert_eq!(disk.calls(CallKind::Read), reads, "what is in memory is not read again");
    // Its units may still have it. Else their checksum is wrong.
    let mut bytes = Vec::new();
    assert!(!store.append_kept(&stale, &mut bytes) || bytes == value(3, 1003));
    assert!(is_clean(&store));
}

/// They have the memory that is free.
#[test]
fn reads_of_values_in_the_file_write_none_that_are_staged() {
    let disk = SimDisk::new(1);
    let options = StoreOptions { memory_limit_bytes: 32 << 20, ..options() };
    let store = open(&options, &disk, OpenHow::New).unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    let long = |n: u8| value(n, 100_000 + usize::from(n));
    for n in 0..20 {
        put(&store, &wrens, &[n], &long(n));
    }
    store.close().unwrap();
    drop((wrens, store));
    let store = open(&options, &disk, OpenHow::Existing).unwrap();
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    for n in 20..120 {
        put(&store, &wrens, &[n], &value(n, 3000));
    }
    // With a reader that is half through its value, less than a half of the share is free.
    let mut half_read = find_large(&store, &wrens, &[0]).unwrap().unwrap();
    assert_eq!(half_read.read_at(0, &mut [0; 70_000]).unwrap(), 70_000);
    let references: Vec<Value> = (0..20).map(|n| wrens.get(&[n]).unwrap().unwrap()).collect();
    let (reads, writes) = (disk.calls(CallKind::Read), disk.calls(CallKind::Write));
    for (n, reference) in (0..).zip(&references) {
        store.read_values_ahead([reference.as_bytes()].into_iter());
        assert_eq!(in_file(&store, &wrens, &[n]), long(n));
    }
    assert!(disk.calls(CallKind::Read) > reads);
    assert_eq!(disk.calls(CallKind::Write), writes);
    assert!(is_clean(&store));
    store.close().unwrap();
}

/// While somebody writes what is staged in a store with two values, `first` and one that `meanwhile` may give up, calls that, which is to
/// end before that write. Then lets another thread do `waits`, which is to end after it.
fn beside_a_write(
    first: &[u8],
    meanwhile: impl FnOnce(&Store, &PoolTree, &mut Option<PlacedValue>),
    waits: fn(&SlotStore),
) {
    // With memory for two buffers and a reader.
    let options = StoreOptions { memory_limit_bytes: 32 << 20, ..options() };
    let (file, store) = watched_with(&options);
    let wrens = store.create_keyspace("wrens").unwrap();
    put(&store, &wrens, b"first", first);
    let mut later = Some(place(&store, &value(9, 1000)));
    let slots = store.shared.slots.clone().unwrap();
    let written = file.batches_written.load(SeqCst);
    let writes = begin_to_write(&file, &slots);
    meanwhile(&store, &wrens, &mut later);
    let (waiter, watched) = (slots.clone(), file.clone());
    let waiting = thread::spawn_named("waits", move || {
        waits(&waiter);
        assert!(watched.batches_written.load(SeqCst) > written, "it did not wait");
    });
    // Whoever does not wait is through by then.
    thread::sleep(Duration::from_millis(50));
    file.batches_wait.store(false, SeqCst);
    writes.join().unwrap().unwrap();
    waiting.unwrap().join().unwrap();
    drop(later);
    slots.staging().write_all().unwrap();
    assert_eq!(slots.state().zones.writing_units(), 0);
    assert!(is_clean(&store));
}

/// A thread that writes what is staged, and is held up in that.
fn begin_to_write(file: &Watched, slots: &Arc<SlotStore>) -> thread::JoinHandle<Result<()>> {
    let begun = file.batches_begun.load(SeqCst);
    file.batches_wait.store(true, SeqCst);
    let writer = slots.clone();
    let writes = thread::spawn_named("writes", move || writer.staging().write_all()).unwrap();
    while file.batches_begun.load(SeqCst) == begun {
        thread::yield_now();
    }
    writes
}

#[test]
fn values_are_staged_and_read_while_others_are_written() {
    let first = value(1, 2000);
    let meanwhile = |store: &Store, wrens: &PoolTree, _: &mut Option<PlacedValue>| {
        assert_eq!(in_file(store, wrens, b"first"), first);
        put(store, wrens, b"second", &value(2, 3000));
        assert_eq!(in_file(store, wrens, b"second"), value(2, 3000));
    };
    beside_a_write(&first, meanwhile, |slots| slots.staging().write_all().unwrap());
}

/// The log is about to write a record that refers to it.
#[test]
fn whoever_needs_values_in_the_file_waits_for_who_is_writing_them() {
    let waits = |slots: &SlotStore| slots.staging().write_all().unwrap();
    beside_a_write(&value(1, 2000), |_, _, _| (), waits);
}

/// Whoever gives it up does not wait. Its place may be somebody else's afterwards.
#[test]
fn a_value_that_is_given_up_while_it_is_written_has_its_place_until_then() {
    let gives_up = |store: &Store, _: &PoolTree, later: &mut Option<PlacedValue>| {
        let slots = store.shared.slots.as_ref().unwrap();
        let units = slots.state().zones.writing_units();
        drop(later.take());
        assert_eq!(slots.state().zones.writing_units(), units);
    };
    let waits = |slots: &SlotStore| slots.staging().write_all().unwrap();
    beside_a_write(&value(1, 2000), gives_up, waits);
}

/// What is written again is not written over the next one.
#[test]
fn a_value_that_is_given_up_while_its_write_fails_is_not_written_again() {
    let (file, store) = watched();
    let wrens = store.create_keyspace("wrens").unwrap();
    put(&store, &wrens, b"first", &value(1, 2000));
    let given_up = place(&store, &value(9, 1000));
    let slots = store.shared.slots.clone().unwrap();
    let Stored::Extent(extent) = read_stored(given_up.stored_form()) else { panic!("an extent") };
    let offset = extent.place(slots.geometry(), 0).offset_bytes;
    file.disk_is_full.store(true, SeqCst);
    let writes = begin_to_write(&file, &slots);
    drop(given_up);
    assert!(slots.staging().is_staged(offset));
    file.batches_wait.store(false, SeqCst);
    assert_eq!(writes.join().unwrap().unwrap_err().kind(), ErrorKind::DiskFull);
    assert!(!slots.staging().is_staged(offset));
    assert_eq!(slots.state().zones.writing_units(), 0);
    file.disk_is_full.store(false, SeqCst);
    assert_eq!(in_file(&store, &wrens, b"first"), value(1, 2000));
    assert!(is_clean(&store));
}

fn threaded() -> StoreOptions {
    let settle_after = Duration::from_secs(3600);
    StoreOptions { background: true, settle_after, ..options() }
}

#[test]
fn a_thread_writes_full_buffers() {
    let disk = SimDisk::new(3);
    let store = open(&threaded(), &disk, OpenHow::New).unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..200 {
        put(&store, &wrens, &[n], &value(n, 900));
        assert_eq!(in_file(&store, &wrens, &[n]), value(n, 900));
    }
    store.close().unwrap();
    drop((wrens, store));
    let store = open(&threaded(), &disk, OpenHow::Existing).unwrap();
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    for n in 0..200 {
        assert_eq!(in_file(&store, &wrens, &[n]), value(n, 900));
    }
    assert!(is_clean(&store));
}

/// Nobody waits for the thread, so the next one who puts a value, or needs one in the file, is told.
#[test]
fn what_the_thread_could_not_write_is_told_to_the_next_one() {
    let disk = SimDisk::new(3);
    let store = open(&threaded(), &disk, OpenHow::New).unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    let slots = store.shared.slots.as_ref().unwrap();
    let writes = disk.calls(CallKind::Write);
    disk.inject(Fault::once(CallKind::Write, 0, Fault::EIO));
    let mut keys = 0..1000_u16;
    while disk.calls(CallKind::Write) == writes {
        let n = keys.next().expect("a buffer becomes full").to_be_bytes();
        match store.place(&value(n[1], 900), 200, &crate::Wait::Default) {
            Ok(placed) => {
                let placed = placed.unwrap();
                wrens.put(&n, placed.stored_form()).unwrap();
                placed.keep();
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Io),
        }
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(slots.staging().write_all().unwrap_err().kind(), ErrorKind::Io);
    store.place(&value(1, 900), 200, &crate::Wait::Default).unwrap_err();
    store.checkpoint().unwrap_err();
    assert!(store.close().is_err());
}
