//! Large values of which a part is wrong, missing, old or unreadable: that value is named, with its place; everything
//! else is read as it was put, and so is the rest of that value.

use crate::common::{
    Dice, Model, assert_sound, bytes, disk_with, effort, get, key, open, path, read_damaged, seed,
    tiny,
};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Error, ErrorKind, Keyspace, Options};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::{CallKind, Fault};
use std::ops::ControlFlow;
use std::ops::Range;

/// Bytes of a chunk in the file, which is as long as a zone here, and of the value in it.
const CHUNK_BYTES: usize = 32 << 10;
const PAYLOAD_BYTES: usize = CHUNK_BYTES - 8;
/// The longest image of a page or part.
const IMAGE_BYTES: u64 = 4096;

const LONG: &[u8] = b"long";
const SHORTER: &[u8] = b"shorter";

/// As little memory as large values can be read with, and no log.
fn options() -> Options {
    let limit = hedgerow::internals::buffer::smallest_limit_without_log_bytes(512) + (128 << 10);
    tiny().memory_limit_bytes(limit).zone_bytes(CHUNK_BYTES as u32)
}

/// A store with two large values and others, and where the chunks of the two lie in its file.
struct Store {
    bytes: Vec<u8>,
    model: Model,
    long: Vec<Range<usize>>,
    shorter: Vec<Range<usize>>,
    /// The chunks of the value that was put before the long one, of the same length.
    older: Vec<Vec<u8>>,
}

impl Store {
    fn chunks(&self, key: &[u8]) -> &[Range<usize>] {
        if key == LONG { &self.long } else { &self.shorter }
    }

    fn value(&self, key: &[u8]) -> &[u8] {
        &self.model["songs"][key]
    }

    /// Every chunk of both.
    fn all_chunks(&self) -> Vec<(&'static [u8], usize)> {
        let long = (0..self.long.len()).map(|chunk| (LONG, chunk));
        long.chain((0..self.shorter.len()).map(|chunk| (SHORTER, chunk))).collect()
    }
}

/// Where the chunks of a value lie: what is read for it, but for pages.
fn chunks_of(disk: &SimDisk, keyspace: &Keyspace, key: &[u8]) -> Vec<Range<usize>> {
    disk.record_log(true);
    let value = get(keyspace, key).unwrap();
    let calls = disk.take_log();
    disk.record_log(false);
    let mut chunks = Vec::new();
    for call in calls {
        if call.kind == CallKind::Read && call.len_bytes > IMAGE_BYTES {
            let end = (call.offset_bytes + call.len_bytes) as usize;
            for start in (call.offset_bytes as usize..end).step_by(CHUNK_BYTES) {
                chunks.push(start..end.min(start + CHUNK_BYTES));
            }
        }
    }
    assert_eq!(chunks.len(), value.len().div_ceil(PAYLOAD_BYTES), "{chunks:?}");
    chunks
}

fn store(dice: &mut Dice) -> Store {
    let disk = SimDisk::new(1);
    let db = open(&options(), &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("songs").unwrap();
    let mut model = Model::new();
    let mut put = |dice: &mut Dice, key: &[u8], len: usize| {
        let value = bytes(dice, len);
        keyspace.put(key, &value).unwrap();
        model.entry("songs".into()).or_default().insert(key.to_vec(), value);
    };
    // Two chunks and most of a third; some last bytes of its units are zeros.
    let len = 2 * PAYLOAD_BYTES + 20_000;
    put(dice, LONG, len);
    put(dice, SHORTER, 20_000);
    for n in 0..60 {
        let len = dice.below(60) as usize;
        put(dice, &key(n), len);
    }
    db.checkpoint().unwrap();
    let before = disk.state().contents(path()).unwrap();
    let older = chunks_of(&disk, &keyspace, LONG);
    let older = older.into_iter().map(|chunk| before[chunk].to_vec()).collect();
    // Gaps of a zone each, so that the value that comes next may be in several places.
    for n in 100..108 {
        put(dice, &key(n), PAYLOAD_BYTES);
    }
    db.checkpoint().unwrap();
    for n in (100..108).step_by(2) {
        assert!(keyspace.remove(&key(n)).unwrap());
    }
    db.checkpoint().unwrap();
    put(dice, LONG, len);
    for n in (100..108).step_by(2) {
        assert!(model.get_mut("songs").unwrap().remove(&key(n)).is_some());
    }
    db.checkpoint().unwrap();
    let (long, shorter) = (chunks_of(&disk, &keyspace, LONG), chunks_of(&disk, &keyspace, SHORTER));
    let runs = 1 + long.windows(2).filter(|pair| pair[0].end != pair[1].start).count();
    println!("the long value lies in {runs} places");
    drop(keyspace);
    db.close().unwrap();
    let bytes = disk.state().contents(path()).unwrap();
    let store = Store { bytes, model, long, shorter, older };
    assert!(!read_damaged(&options(), &store.bytes, &store.model, "nothing is damaged"));
    store
}

/// Asserts that the error names a chunk's place.
fn assert_names(error: &Error, chunk: &Range<usize>, context: &str) {
    let ErrorKind::Corrupted { offset_bytes: Some(offset), .. } = error.kind() else {
        panic!("{context}: {error:?}");
    };
    assert_eq!(offset, chunk.start as u64, "{context}: {error}");
}

/// Reads the damaged value chunk by chunk, as a whole and as a stream: the wrong chunks (ascending) are named, the others
/// are read.
fn assert_wrong(keyspace: &Keyspace, store: &Store, key: &[u8], wrong: &[usize], context: &str) {
    let (chunks, value) = (store.chunks(key), store.value(key));
    let first = &chunks[wrong[0]];
    assert_names(&keyspace.get(key).unwrap_err(), first, context);
    let many = keyspace.get_many(&[key]);
    assert_names(&many.unwrap_err(), first, context);
    for (index, chunk) in chunks.iter().enumerate() {
        let start = index * PAYLOAD_BYTES;
        let end = value.len().min(start + PAYLOAD_BYTES);
        let part = keyspace.get_range(key, start as u64..end as u64);
        if wrong.contains(&index) {
            assert_names(&part.unwrap_err(), chunk, context);
        } else {
            assert!(part.unwrap().unwrap() == value[start..end], "{context}: chunk {index}");
        }
    }
    // All that lies before the damage, in one piece, and then into it.
    let whole = wrong[0] * PAYLOAD_BYTES;
    let before = keyspace.get_range(key, ..whole as u64).unwrap().unwrap();
    assert!(before == value[..whole], "{context}: before the damage");
    let mut reader = keyspace.value_reader(key).unwrap().unwrap();
    assert_eq!(reader.len_bytes(), value.len() as u64);
    let mut piece = vec![0; value.len()];
    assert_eq!(reader.read_at(0, &mut piece[..whole]).unwrap(), whole);
    assert!(piece[..whole] == value[..whole], "{context}: before the damage");
    for _ in 0..2 {
        assert_names(&reader.read_at(0, &mut piece).unwrap_err(), first, context);
    }
}

/// Asserts that of all records only that value cannot be read, and that a verification says so.
fn assert_others_whole(db: &Database, store: &Store, key: &[u8], wrong: usize, context: &str) {
    let chunk = &store.chunks(key)[wrong];
    let keyspace = db.open_keyspace("songs").unwrap().unwrap();
    let records = &store.model["songs"];
    for (other, value) in records.iter().filter(|record| record.0.as_slice() != key) {
        assert!(get(&keyspace, other).as_ref() == Some(value), "{context}: {other:?}");
    }
    let mut expected = records.iter();
    for record in keyspace.iter() {
        let next = expected.next().unwrap();
        match record {
            Ok((found, value)) => {
                assert!(found[..] == next.0[..] && value[..] == next.1[..], "{context}");
            }
            Err(error) => {
                assert_eq!(next.0.as_slice(), key, "{context}: {error:?}");
                assert_names(&error, chunk, context);
            }
        }
    }
    let report = db.verify(|_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.findings.len(), 1, "{context}: {:#?}", report.findings);
    let finding = &report.findings[0];
    assert_eq!(finding.offset_bytes, Some(chunk.start as u64), "{context}: {finding}");
    assert_eq!(finding.keyspace.as_deref(), Some("songs"), "{context}: {finding}");
    assert!(finding.page.is_some() && finding.what.contains("chunk"), "{context}: {finding}");
}

/// All of that, in both ways of opening.
fn assert_named(store: &Store, damaged: &[u8], key: &[u8], wrong: &[usize], context: &str) {
    for how in [OpenHow::ReadOnly, OpenHow::Existing] {
        let context = format!("{context}, {how:?}");
        let db = open(&options(), &disk_with(damaged), how)
            .unwrap_or_else(|error| panic!("{context}: {error:?}"));
        let keyspace = db.open_keyspace("songs").unwrap().unwrap();
        assert_wrong(&keyspace, store, key, wrong, &context);
        assert_others_whole(&db, store, key, wrong[0], &context);
    }
}

#[test]
fn a_flipped_byte_of_a_chunk_is_named_wherever_it_is() {
    let mut dice = Dice(seed(111));
    let store = store(&mut dice);
    let (mut tried, mut damaged) = (0, store.bytes.clone());
    for (key, index) in store.all_chunks() {
        let chunk = store.chunks(key)[index].clone();
        // The checksum; every 61st byte; and the last one, which is a zero behind the end of the value in some.
        let mut places: Vec<usize> = (chunk.start..chunk.start + 8).collect();
        places.extend((chunk.start + 8..chunk.end).step_by(61));
        places.push(chunk.end - 1);
        for (number, at) in places.into_iter().enumerate() {
            let context = format!("byte {at} in chunk {index}");
            let before = damaged[at];
            damaged[at] ^= 1 << dice.below(8);
            tried += 1;
            // All that reads is tried with some, and with the others the one that this is about.
            if number < 8 || number % (64 / effort() as usize).max(1) == 0 {
                assert_named(&store, &damaged, key, &[index], &context);
            } else {
                let how = [OpenHow::ReadOnly, OpenHow::Existing][number % 2];
                let db = open(&options(), &disk_with(&damaged), how).unwrap();
                let keyspace = db.open_keyspace("songs").unwrap().unwrap();
                assert_wrong(&keyspace, &store, key, &[index], &context);
            }
            damaged[at] = before;
        }
    }
    println!("{tried} flipped bytes were named");
    assert!(tried > 1_500);
}

#[test]
fn a_chunk_that_is_zeros_torn_old_or_in_the_place_of_another_is_named() {
    let mut dice = Dice(seed(112));
    let store = store(&mut dice);
    for (key, index) in store.all_chunks() {
        let chunk = store.chunks(key)[index].clone();
        let wrong = |change: &dyn Fn(&mut [u8]), what: &str| {
            let mut damaged = store.bytes.clone();
            change(&mut damaged[chunk.clone()]);
            assert_named(&store, &damaged, key, &[index], &format!("chunk {index} {what}"));
        };
        wrong(&|bytes| bytes.fill(0), "is zeros");
        wrong(&|bytes| bytes.fill(0xff), "is ones");
        // One sector was never written: the first, any, the last.
        let sectors = chunk.len() / 512;
        for sector in [0, dice.below(sectors as u64) as usize, sectors - 1] {
            wrong(&|bytes| bytes[sector * 512..][..512].fill(0), "has a sector of zeros");
        }
        if key == LONG {
            assert_eq!(store.older[index].len(), chunk.len());
            wrong(&|bytes| bytes.copy_from_slice(&store.older[index]), "is an older one's");
            let (half, older) = (chunk.len() / 2, &store.older[index]);
            wrong(&|bytes| bytes[half..].copy_from_slice(&older[half..]), "is half an older one's");
        }
        // The chunk of the other value, as far as it goes.
        let other = &store.chunks(if key == LONG { SHORTER } else { LONG })[0];
        let count = other.len().min(chunk.len());
        let other = store.bytes[other.start..other.start + count].to_vec();
        wrong(&|bytes| bytes[..count].copy_from_slice(&other), "is the other value's");
    }
}

#[test]
fn two_chunks_of_one_value_that_changed_places_are_named() {
    let store = store(&mut Dice(seed(113)));
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        let (first, second) = (store.long[a].clone(), store.long[b].clone());
        let count = first.len().min(second.len());
        let mut damaged = store.bytes.clone();
        damaged[first.start..][..count].copy_from_slice(&store.bytes[second.start..][..count]);
        damaged[second.start..][..count].copy_from_slice(&store.bytes[first.start..][..count]);
        assert_named(&store, &damaged, LONG, &[a, b], &format!("chunks {a} and {b} swapped"));
    }
}

#[test]
fn a_file_that_ends_or_is_zeros_from_somewhere_in_a_large_value_on_is_damaged() {
    let store = store(&mut Dice(seed(114)));
    let end = store.bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let (mut tried, mut noticed) = (0, 0);
    for (key, index) in store.all_chunks() {
        let chunk = store.chunks(key)[index].clone();
        for cut in chunk.clone().step_by(2_560).chain([chunk.start + 8, chunk.end - 1]) {
            let context = format!("cut to {cut} bytes, in chunk {index}");
            let shorter = &store.bytes[..cut];
            assert!(
                read_damaged(&options(), shorter, &store.model, &context) || cut >= end,
                "{context}: nobody noticed"
            );
            // As long as it was, with nothing behind the cut.
            let mut zeros = store.bytes.clone();
            zeros[cut..].fill(0);
            tried += 1;
            noticed += u64::from(read_damaged(&options(), &zeros, &store.model, &context));
        }
    }
    println!("{noticed} of {tried} ends of zeros were noticed");
    assert!(noticed > tried * 9 / 10);
}

/// A read that fails is an error of that call alone: the next one is tried again.
#[test]
fn a_chunk_that_cannot_be_read_once_is_read_the_next_time() {
    let store = store(&mut Dice(seed(115)));
    for how in [OpenHow::ReadOnly, OpenHow::Existing] {
        let disk = disk_with(&store.bytes);
        let db = open(&options(), &disk, how).unwrap();
        let keyspace = db.open_keyspace("songs").unwrap().unwrap();
        for key in [LONG, SHORTER] {
            let value = store.value(key);
            // What is read when the pages are in memory: the chunks.
            assert!(get(&keyspace, key).unwrap() == value);
            let before = disk.calls(CallKind::Read);
            assert!(get(&keyspace, key).unwrap() == value);
            let reads = disk.calls(CallKind::Read) - before;
            assert_eq!(reads, store.chunks(key).len() as u64, "a call for each chunk");
            let failed = |error: &Error| {
                assert_eq!(error.kind(), ErrorKind::Io, "{error:?}");
                assert_eq!(error.os_error(), Some(Fault::EIO), "{error:?}");
            };
            for call in 0..reads {
                disk.inject(Fault::once(CallKind::Read, call, Fault::EIO));
                failed(&keyspace.get(key).unwrap_err());
                assert!(get(&keyspace, key).unwrap() == value);
                // An open reader goes on where it was.
                let mut reader = keyspace.value_reader(key).unwrap().unwrap();
                let mut piece = vec![0; value.len()];
                disk.inject(Fault::once(CallKind::Read, call, Fault::EIO));
                failed(&reader.read_at(0, &mut piece).unwrap_err());
                assert_eq!(reader.read_at(0, &mut piece).unwrap(), value.len());
                assert!(piece == value);
            }
        }
        assert_sound(&db, "after reads that failed");
    }
}

#[test]
fn a_damaged_value_can_be_replaced_and_removed_and_the_store_is_sound_then() {
    let mut dice = Dice(seed(116));
    let store = store(&mut dice);
    for (key, index) in store.all_chunks() {
        for removes in [false, true] {
            let mut damaged = store.bytes.clone();
            damaged[store.chunks(key)[index].start + 100] ^= 1;
            let disk = disk_with(&damaged);
            let db = open(&options(), &disk, OpenHow::Existing).unwrap();
            let keyspace = db.open_keyspace("songs").unwrap().unwrap();
            assert!(keyspace.get(key).is_err());
            let mut model = store.model.clone();
            let records = model.get_mut("songs").unwrap();
            if removes {
                assert!(keyspace.remove(key).unwrap());
                records.remove(key);
            } else {
                let value = bytes(&mut dice, 50_000);
                assert!(keyspace.put(key, &value).unwrap());
                records.insert(key.to_vec(), value);
            }
            db.checkpoint().unwrap();
            assert_sound(&db, "after the damaged value was replaced");
            drop(keyspace);
            db.close().unwrap();
            let bytes = disk.state().contents(path()).unwrap();
            assert!(!read_damaged(&options(), &bytes, &model, "replaced"), "it is still damaged");
        }
    }
}
