//! Large values beside what ends or fails: nothing is written where somebody else's may be, or come to be.

use super::*;
use crate::large::{Stored, read_stored};
use crate::space::large::{CHUNK_HEADER_BYTES, chunk_bytes};
use crate::store::batch::write_unlogged;
use crate::store::large::relocate::Moved;
use crate::store::{BatchChange, ExtentWriter};
use crate::testing::sim::{CallKind, Fault};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::SplitMix64;
use std::time::Duration;

/// The next one to open the file may have given the places to somebody else.
#[test]
fn nothing_of_a_large_value_is_written_once_the_store_was_closed() {
    let (disk, store) = new_store();
    let mut writer = store.write_large(200_000, 200, &crate::Wait::Default).unwrap();
    writer.write(&[9; 100_000]).unwrap();
    store.close().unwrap();
    let writes = disk.calls(CallKind::Write);
    let refused = writer.write(&[9; 100_000]).and_then(|()| writer.finish()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
    assert_eq!(disk.calls(CallKind::Write), writes);
    drop(writer);
    let refused = store.write_large(200_000, 200, &crate::Wait::Default).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
}

/// Where the memory of a writer was asked back, nobody had said it before.
#[test]
fn a_writer_that_has_failed_says_why() {
    let (disk, store) = new_store();
    let mut writer = store.write_large(6 << 20, 200, &crate::Wait::Default).unwrap();
    disk.inject(Fault::once(CallKind::Write, 0, Fault::ENOSPC));
    let bytes = vec![9; 3 << 20];
    assert_eq!(writer.write(&bytes).unwrap_err().kind(), ErrorKind::DiskFull);
    for failed in [writer.write(&bytes), writer.finish()] {
        let failed = failed.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::WriterFailed);
        assert!(failed.to_string().contains("simulated failure of Write"), "{failed}");
    }
}

fn read(store: &Store, tree: &PoolTree, key: &[u8]) -> Vec<u8> {
    let mut reader = find_large(store, tree, key).unwrap().expect("it is large");
    let mut bytes = vec![0; reader.len_bytes() as usize];
    let mut done = 0;
    while done < bytes.len() {
        done += reader.read_at(done as u64, &mut bytes[done..]).unwrap();
    }
    bytes
}

/// Past what is in memory, by one reader and by a new one each time: any place, any length, also at the end and behind it.
#[test]
fn any_part_of_a_value_is_read_from_the_file() {
    let (_, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    store.expect_stored_forms();
    let value: Vec<u8> = (0..170_001_usize).map(|at| (at * 7 + at / 251) as u8).collect();
    let mut writer = store.write_large(value.len() as u64, 200, &crate::Wait::Default).unwrap();
    writer.write(&value).unwrap();
    writer.finish().unwrap();
    wrens.put(b"a", &writer.stored_form()).unwrap();
    writer.keep();
    let slots = store.shared.slots.as_ref().unwrap();
    let new_reader = || {
        let reading = slots.read_extents(store.shared.pool.epochs().current());
        let stored = wrens.get(b"a").unwrap().unwrap();
        let Stored::Extent(extent) = read_stored(&stored) else { panic!("it is in an extent") };
        ExtentReader::new(None, slots, extent, reading).unwrap()
    };
    let chunk = u64::from(chunk_bytes(slots.geometry())) - CHUNK_HEADER_BYTES as u64;
    let len = value.len() as u64;
    let mut random = SplitMix64::new(11);
    let mut reader = new_reader();
    let mut to = vec![0; value.len() + 9];
    for step in 0..2000 {
        let offset = match random.below(4) {
            0 => (chunk * random.below(len / chunk + 2))
                .saturating_add_signed(random.below(3) as i64 - 1),
            1 => [0, len - 1, len, len + 1, len + chunk, u64::MAX][random.below(6) as usize],
            _ => random.below(len),
        };
        let wanted = [0, 1, 100, chunk, len, len + 9][random.below(6) as usize];
        let wanted = if random.below(2) == 0 { wanted } else { random.below(len) } as usize;
        if random.below(3) == 0 {
            reader = new_reader();
        }
        let read = reader.read_at(offset, &mut to[..wanted]).unwrap();
        let expected = value.get(offset.min(len) as usize..).unwrap();
        let expected = &expected[..wanted.min(expected.len())];
        assert_eq!(read, expected.len(), "step {step}: {wanted} bytes from {offset} on");
        assert!(to[..read] == *expected, "step {step}: {wanted} bytes from {offset} on");
    }
}

/// Without a log a batch is no more than its changes. Whoever writes one keeps the values of as many as were made, and gives
/// the room of the others back.
#[test]
fn the_large_values_of_half_a_batch_without_a_log_keep_their_room() {
    let (_, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    store.expect_stored_forms();
    let prepare = |byte: u8| {
        let mut writer = store.write_large(5000, 200, &crate::Wait::Default).unwrap();
        writer.write(&[byte; 5000]).unwrap();
        writer.finish().unwrap();
        writer
    };
    let prepared: Vec<ExtentWriter> = (1..=3).map(prepare).collect();
    let stored: Vec<Vec<u8>> = prepared.iter().map(ExtentWriter::stored_form).collect();
    let too_long = [0; 600];
    let values = [&stored[0], &stored[1], &too_long[..], &stored[2]];
    let keys: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    let changes: Vec<BatchChange<'_>> = keys
        .iter()
        .zip(values)
        .map(|(key, value)| BatchChange { tree: &wrens, key, value: Some(value) })
        .collect();
    let mut made = 0;
    let at_one_stroke = store.write_batch(&changes, &mut made, &crate::wait::Waiting::Forever);
    assert!(matches!(at_one_stroke.unwrap_err().kind(), ErrorKind::RecordTooLarge { .. }));
    assert_eq!(made, 0, "of few changes all are looked at first");
    let refused = write_unlogged(&changes, &mut made).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::RecordTooLarge { .. }), "{refused}");
    prepared.into_iter().take(made).for_each(ExtentWriter::keep);
    for n in 0..3 {
        put_large(&store, &wrens, format!("later {n}").as_bytes(), 5000);
    }
    for (key, byte) in [(b"a", 1), (b"b", 2)] {
        assert!(read(&store, &wrens, key) == [byte; 5000], "{key:?}");
    }
    store.checkpoint().unwrap();
    assert!(is_clean(&store));
    assert_eq!(made, 2);
}

/// A checkpoint and the log's flusher sync the same file, and a system tells one of them alone of what it has lost.
#[test]
fn a_sync_of_the_file_that_failed_for_one_has_failed_for_all() {
    let options = StoreOptions { log_interval: Duration::from_secs(3600), ..logged() };
    for flusher_first in [false, true] {
        let disk = SimDisk::new(1);
        let store = open(&options, &disk, OpenHow::New).unwrap();
        let wrens = store.create_keyspace("wrens").unwrap();
        put_large(&store, &wrens, b"robin", 5000);
        let slots = store.shared.slots.as_ref().unwrap();
        disk.inject(Fault::once(CallKind::SyncData, 0, Fault::EIO));
        if flusher_first {
            slots.sync_extents().unwrap_err();
            // A checkpoint that was beyond its last look at the pool.
            slots.sync_data().unwrap_err();
            store.checkpoint().unwrap_err();
        } else {
            // As a checkpoint does that has taken what the log had before.
            slots.sync_data().unwrap_err();
            let refused = store.flush_log().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::DurabilityUnknown, "{refused}");
        }
    }
}

/// The log syncs the store's file before it writes a record that refers to a large value. A sync that began before the last of
/// the value was written does not count.
#[test]
fn a_sync_beside_the_last_write_of_a_large_value_does_not_make_it_durable() {
    for len in [700, 5_000, 200_000, 5 << 20] {
        let (file, store) = watched();
        let slots = store.shared.slots.as_ref().unwrap();
        *file.slots.lock() = Arc::downgrade(slots);
        let mut writer = store.write_large(len, 200, &crate::Wait::Default).unwrap();
        writer.write(&vec![b'x'; len as usize]).unwrap();
        writer.finish().unwrap();
        file.assert_is_due(slots);
    }
}

#[test]
fn a_sync_beside_the_last_write_of_a_large_value_that_is_moved_does_not_make_it_durable() {
    let (file, store) = watched();
    let slots = store.shared.slots.as_ref().unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..40 {
        put_large(&store, &wrens, format!("song {n}").as_bytes(), 9000);
    }
    store.checkpoint().unwrap();
    for n in 0..34 {
        wrens.remove(format!("song {n}").as_bytes()).unwrap();
    }
    store.checkpoint().unwrap();
    slots.sync_extents().unwrap();
    let mut moved = 0;
    for far in &store.shared.far_values(slots, 1, &|| false).unwrap() {
        *file.slots.lock() = Arc::downgrade(slots);
        if store.shared.move_value(slots, far, 1, &|| false).unwrap() == Moved::Yes {
            file.assert_is_due(slots);
            moved += 1;
        }
    }
    assert!(moved > 0);
}
