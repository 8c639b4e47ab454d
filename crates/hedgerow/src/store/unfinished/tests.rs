//! Batches whose changes are read from the log again, against a model that keeps them in memory.

use super::*;
use crate::error::ErrorKind;
use crate::storage::{DirectIo, Disk, OpenMode};
use crate::store::{OpenHow, Store, StoreOptions};
use crate::testing::SimDisk;
use crate::types::Epoch;
use crate::wal::{Promised, ScanFrom, read_header, scan};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::SplitMix64;
use std::path::Path;

const TREE: TreeId = TreeId(7);
const GONE: TreeId = TreeId(8);

fn encoded(records: &[Record<'_>]) -> Vec<u8> {
    let parts = |record: &Record<'_>| {
        let (header, [key, value]) = record.encode();
        [&header[..], key, value].concat()
    };
    records.iter().flat_map(parts).collect()
}

fn append(store: &Store, record: &Record<'_>) {
    let log = store.log().unwrap();
    let bytes = record.len_bytes() as u64;
    store.pool().make_log_room(log, bytes, Promised::Freely).unwrap();
    log.append(record);
}

/// A log and from where on it has what was appended.
struct Written {
    file: Arc<dyn File>,
    header: FileHeader,
    from: ScanFrom,
}

impl Written {
    fn by(write: impl FnOnce(&Store)) -> Written {
        let (disk, path) = (SimDisk::new(1), Path::new("/data/birds.hrow"));
        let options = StoreOptions {
            background: false,
            log: true,
            log_segment_blocks: Some(64),
            ..StoreOptions::without_log(16 << 20)
        };
        let store = Store::open(&options, &disk, path, OpenHow::New).unwrap();
        let start = store.log().unwrap().tail();
        write(&store);
        store.flush_log().unwrap();
        let name = crate::store::log_file::log_path(path);
        let file = disk.crash(1).open(&name, OpenMode::ReadOnly, DirectIo::Never).unwrap();
        let header = read_header(&*file).unwrap();
        let from = ScanFrom { replay_start: start, log_end: start, checkpoint: Epoch(u64::MAX) };
        Written { file, header, from }
    }

    fn read(&self, each: &mut dyn FnMut(Record<'_>, Appended) -> Result<()>) -> Result<()> {
        scan(&*self.file, &self.header, &self.from, each).map(drop)
    }

    fn unfinished(&self) -> Unfinished<'_> {
        Unfinished::new(&*self.file, &self.header)
    }
}

fn place(start: u64) -> Appended {
    Appended { start: Lsn(start), end: Lsn(start + 10) }
}

#[test]
fn of_a_damaged_record_no_change_is_added_to_its_batch() {
    let written = Written::by(|_| {});
    let mut batches = written.unfinished();
    let whole = encoded(&[Record::Put { tree: TREE, key: b"key", value: b"value" }]);
    let damaged = [&whole[..], &[0xff; 40]].concat();
    let id = BatchId::new(1);
    let note = |batches: &mut Unfinished<'_>, total, records: &[u8]| {
        batches.note(id, total, records, place(10), &mut |_| Ok(()))
    };
    assert!(note(&mut batches, 1, &damaged).is_err());
    assert!(matches!(batches.made(id, 0, &mut |_| false).unwrap(), Noted::Unknown | Noted::Part));
    assert!(note(&mut batches, 1, &whole).unwrap(), "it is whole now");
    assert!(note(&mut batches, 1, &whole).is_err(), "it has one change");
    assert!(note(&mut batches, 2, &whole).is_err());
    assert!(matches!(batches.made(id, 1, &mut |_| false).unwrap(), Noted::Impossible));
    assert!(matches!(batches.made(id, 0, &mut |_| false).unwrap(), Noted::Made));
    assert!(matches!(batches.made(id, 0, &mut |_| false).unwrap(), Noted::Impossible));
    assert_eq!(batches.change(id, 0).unwrap(), (TREE, &b"key"[..], Some(&b"value"[..])));
    assert!(batches.is_finished(id));
}

#[test]
fn places_are_few_and_each_lies_before_what_is_looked_for() {
    let mut batch = Batch::new(u32::MAX, Lsn(100));
    let mut all: Vec<(u32, Lsn)> = Vec::new();
    for n in 0..10_000_u32 {
        all.push((batch.seen, Lsn(100 + u64::from(n) * 20)));
        batch.add(1 + n % 7, place(100 + u64::from(n) * 20));
        assert!(batch.places.len() <= PLACES);
    }
    assert_eq!((batch.stride, batch.end), (16, Lsn(100 + 9_999 * 20 + 10)));
    for (at, &(first, _)) in all.iter().enumerate() {
        let (before, lsn) = batch.place_before(first);
        let found = all.iter().position(|known| *known == (before, lsn)).expect("a record");
        assert!(found <= at && at - found < 16, "record {at}: {found}");
    }
}

/// Keys, and values of those that are not removed.
type Changes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Many batches of one change up to some thousand, of some bytes up to a record of a page.
fn many(random: &mut SplitMix64) -> Vec<Changes> {
    let bytes = |random: &mut SplitMix64, most: u64| -> Vec<u8> {
        (0..random.below(most)).map(|_| random.next_u64() as u8).collect()
    };
    let batch = |n: u64| {
        let count = if n.is_multiple_of(10) { 3000 } else { 1 + random.below(40) };
        let change = |_| {
            let value = (random.below(4) > 0).then(|| bytes(random, 900));
            (bytes(random, 60), value)
        };
        (0..count).map(change).collect()
    };
    (0..40).map(batch).collect()
}

/// Appends them, interleaved.
fn append_all(store: &Store, model: &[Changes], random: &mut SplitMix64) {
    let mut done = vec![0; model.len()];
    loop {
        let left: Vec<usize> = (0..model.len()).filter(|&n| done[n] < model[n].len()).collect();
        if left.is_empty() {
            return;
        }
        let n = left[random.below(left.len() as u64) as usize];
        let count = (1 + random.below(12) as usize).min(model[n].len() - done[n]);
        let change = |(key, value): &'_ (Vec<u8>, Option<Vec<u8>>)| match value {
            Some(value) => encoded(&[Record::Put { tree: TREE, key, value }]),
            None => encoded(&[Record::Remove { tree: TREE, key }]),
        };
        let some = &model[n][done[n]..done[n] + count];
        let records: Vec<u8> = some.iter().flat_map(change).collect();
        let (batch, changes) = (BatchId::new(n as u64), model[n].len() as u32);
        append(store, &Record::Batch { batch, changes, records: &records });
        done[n] += count;
        if random.below(3) == 0 {
            append(store, &Record::Put { tree: TREE, key: b"between", value: b"" });
        }
    }
}

/// Notes all batches of a log.
fn noted(written: &Written) -> Unfinished<'_> {
    let mut batches = written.unfinished();
    let mut take = |record: Record<'_>, place| match record {
        Record::Batch { batch, changes, records } => {
            batches.note(batch, changes, records, place, &mut |_| Ok(())).map(drop)
        }
        _ => Ok(()),
    };
    written.read(&mut take).unwrap();
    batches
}

#[test]
fn changes_come_back_from_the_log_as_they_were_in_any_order_and_within_little_memory() {
    let seed = crate::testing::environment::fresh_seed();
    let mut random = SplitMix64::new(seed);
    let model = many(&mut random);
    let written = Written::by(|store| append_all(store, &model, &mut random));
    let mut batches = noted(&written);
    let bytes =
        |(key, value): &(Vec<u8>, Option<Vec<u8>>)| key.len() + value.as_ref().map_or(0, Vec::len);
    assert!(model.iter().flatten().map(bytes).sum::<usize>() > 3 * CACHE_BYTES);
    let look = |batches: &mut Unfinished<'_>, n: usize, at: usize| {
        let (key, value) = &model[n][at];
        let found = batches.change(BatchId::new(n as u64), at as u32).unwrap();
        assert!(found == (TREE, &key[..], value.as_deref()), "change {at} of {n}");
        assert!(batches.memory_bytes() < CACHE_BYTES + (256 << 10));
    };
    for _ in 0..3000 {
        let n = random.below(model.len() as u64) as usize;
        let at = random.below(model[n].len() as u64) as usize;
        look(&mut batches, n, at);
    }
    // In turns, as they are made; two changes of each are left out, and the first half of one batch.
    let is_left = |n: usize, at: usize| {
        let last = model[n].len() - 1;
        at == last / 2 || at == last || n == 30 && at < 1500
    };
    for at in 0..3000 {
        for (n, _) in model.iter().enumerate().filter(|(_, changes)| at < changes.len()) {
            if !is_left(n, at) {
                let made = batches.made(BatchId::new(n as u64), at as u32, &mut |_| false);
                assert!(matches!(made.unwrap(), Noted::Made));
                look(&mut batches, n, at);
            }
        }
    }
    let mut last = None;
    for (n, changes) in model.iter().enumerate() {
        let batch = batches.whole_after(last).unwrap();
        let mut from = 0;
        for at in (0..changes.len()).filter(|&at| is_left(n, at)) {
            assert_eq!(batches.next_left(batch, from), Some(at as u32));
            look(&mut batches, n, at);
            from = at as u32 + 1;
        }
        assert_eq!(batches.next_left(batch, from), None);
        last = Some(batch);
        batches.forget(batch);
    }
    assert_eq!((batches.whole_after(None), batches.memory_bytes()), (None, 0));
}

/// Each batch was to change a keyspace that was dropped, so it never says that it is finished.
#[test]
fn batches_that_only_a_dropped_keyspace_keeps_unfinished_are_forgotten() {
    let written = Written::by(|_| {});
    let mut batches = written.unfinished();
    let of = |tree| Record::Put { tree, key: b"key", value: b"value" };
    let mut is_gone = |tree| tree == GONE;
    for n in 0..3 * COLLECT_AT as u64 {
        let changes = if n % 1000 == 0 { [of(TREE), of(TREE)] } else { [of(TREE), of(GONE)] };
        let (batch, records) = (BatchId::new(n), encoded(&changes));
        batches.note(batch, 2, &records, place(10), &mut |_| Ok(())).unwrap();
        assert!(matches!(batches.made(batch, 0, &mut is_gone).unwrap(), Noted::Made));
        batches.collect(&mut is_gone).unwrap();
        assert!(batches.batches.len() <= COLLECT_AT);
    }
    let mut left = 0;
    let mut last = None;
    while let Some(batch) = batches.whole_after(last) {
        left += 1;
        last = Some(batch);
    }
    assert!(left >= 3 * COLLECT_AT / 1000, "those that have a change left are kept: {left}");
    // What a dropped keyspace leaves out in the middle takes no memory.
    let batch = BatchId::new(u64::MAX);
    let records = encoded(&[of(TREE), of(GONE), of(GONE), of(TREE)]);
    batches.note(batch, 4, &records, place(10), &mut |_| Ok(())).unwrap();
    for change in [0, 3] {
        assert!(matches!(batches.made(batch, change, &mut is_gone).unwrap(), Noted::Made));
    }
    assert!(batches.is_finished(batch) && batches.batches[&batch].made.is_empty());
}

#[test]
fn a_log_that_is_read_again_and_differs_is_damage() {
    let keys: Vec<Vec<u8>> = (0..2000_u32).map(|n| n.to_be_bytes().to_vec()).collect();
    let value = [7; 800];
    let batch = BatchId::new(3);
    let written = Written::by(|store| {
        for some in keys.chunks(10) {
            let changes: Vec<Record<'_>> =
                some.iter().map(|key| Record::Put { tree: TREE, key, value: &value }).collect();
            let records = encoded(&changes);
            append(store, &Record::Batch { batch, changes: 2000, records: &records });
        }
    });
    let mut batches = noted(&written);
    // As if another log lay there by now: the places are those of other records.
    for places in [1, 5] {
        let found = batches.batches.get_mut(&batch).unwrap();
        found.piece = None;
        batches.cached_bytes = 0;
        for (_, lsn) in &mut found.places {
            lsn.0 += places;
        }
        found.start.0 += places;
        let error = batches.change(batch, 1999).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupted { .. }), "{error:?}");
    }
}
