//! Leaves that readers convert and sort, beside a writer and checkpoints that write these very leaves.
//!
//! A reader does so under the leaf's latch alone, in no epoch: what is written may have the one layout or the other.
//! So a checkpoint that fails here, which nobody ordered, is a failure, as is a record that is not what the writer
//! put.

use crate::{assert_sound, check_often, image_of, options, path};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Keyspace, LeafLayout, LeafPolicy};
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::thread::spawn_named;
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::SimState;
use shuttle::rand::{RngCore, thread_rng};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The store is small: there can be so many times more schedules.
const TIMES: usize = 4;
/// Two or three leaves.
const KEYS: u64 = 24;

type Model = BTreeMap<u64, u64>;

/// In the order of numbers; strings, for which layouts follow use.
fn key_of(number: u64) -> Vec<u8> {
    format!("hedge/{number:02}/of/the/lane").into_bytes()
}

fn value_of(number: u64, generation: u64) -> Vec<u8> {
    [number.to_be_bytes(), generation.to_be_bytes()].concat()
}

fn generation_of(number: u64, value: &[u8]) -> u64 {
    let generation = u64::from_be_bytes(value[8..].try_into().unwrap());
    assert_eq!(value, value_of(number, generation), "not a value of {number}");
    generation
}

/// The disk of a closed store whose leaves are fingerprint leaves, with every second key in generation 1.
fn image() -> &'static SimState {
    static IMAGE: OnceLock<SimState> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let fingerprints = LeafPolicy::Fixed(LeafLayout::Fingerprint);
        image_of(options().leaves(fingerprints), |db| {
            let keyspace = db.keyspace("k").unwrap();
            for number in (0..KEYS).step_by(2) {
                keyspace.put(&key_of(number), &value_of(number, 1)).unwrap();
            }
        })
    })
}

/// Puts and removes odd keys, each of which leaves its leaf dirty, and out of order.
fn write(keyspace: &Keyspace, mut random: SplitMix64) -> Model {
    let mut model = Model::new();
    for generation in 2..50 {
        let number = random.below(KEYS / 2) * 2 + 1;
        let was_there = if random.below(4) == 0 {
            assert_eq!(keyspace.remove(&key_of(number)).unwrap(), model.contains_key(&number));
            model.remove(&number);
            continue;
        } else {
            keyspace.put(&key_of(number), &value_of(number, generation)).unwrap()
        };
        assert_eq!(was_there, model.insert(number, generation).is_some());
    }
    model
}

/// Scans a few keys again and again, until their leaf is converted, and then looks them up as long.
fn read(keyspace: &Keyspace, mut random: SplitMix64) {
    let from = random.below(KEYS - 6) / 2 * 2;
    for round in 0..36 {
        let mut cursor = keyspace.cursor();
        // Now and then all of them: each leaf that is out of order is sorted.
        let (from, most) = if round % 6 == 5 { (0, KEYS) } else { (from, 4) };
        cursor.seek(&key_of(from));
        let mut next = from;
        for _ in 0..most {
            let Some((key, value)) = cursor.next_record().unwrap() else { break };
            let number = u64::from_be_bytes(value[..8].try_into().unwrap());
            assert_eq!(key, key_of(number));
            generation_of(number, value);
            // Even keys stay.
            assert!(number == next || number == next + 1 && next % 2 == 1, "{number}, not {next}");
            next = number + 1;
        }
    }
    for _ in 0..70 {
        let number = from + random.below(4);
        let found = keyspace.get(&key_of(number)).unwrap();
        let found = found.map(|value| generation_of(number, &value));
        assert!(if number.is_multiple_of(2) { found == Some(1) } else { found != Some(1) });
    }
}

fn assert_holds(db: &Database, model: &Model) {
    assert_sound(db);
    let found: Vec<_> = db
        .keyspace("k")
        .unwrap()
        .iter()
        .map(|record| record.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
        .collect();
    let expected: Vec<_> =
        model.iter().map(|(number, made)| (key_of(*number), value_of(*number, *made))).collect();
    assert_eq!(found, expected);
}

#[test]
fn readers_adapt_leaves_beside_checkpoints() {
    static FOR_SCANS: AtomicU64 = AtomicU64::new(0);
    static FOR_POINTS: AtomicU64 = AtomicU64::new(0);
    static SORTED: AtomicU64 = AtomicU64::new(0);
    image();
    check_often(TIMES, || {
        // Nobody else takes checkpoints, and none of them fails unnoticed.
        let options = options().background_checkpoints(false);
        let disk = SimDisk::with_state(image().clone(), thread_rng().next_u64());
        let db = options.on_disk(&disk, path(), OpenHow::Existing).unwrap();
        let keyspace = db.keyspace("k").unwrap();
        let writer = {
            let (keyspace, random) = (keyspace.clone(), SplitMix64::new(thread_rng().next_u64()));
            spawn_named("writer", move || write(&keyspace, random)).unwrap()
        };
        let reader = {
            let random = SplitMix64::new(thread_rng().next_u64());
            spawn_named("reader", move || read(&keyspace, random)).unwrap()
        };
        for _ in 0..10 {
            db.checkpoint().unwrap();
        }
        reader.join().unwrap();
        let mut model = writer.join().unwrap();
        model.extend((0..KEYS).step_by(2).map(|number| (number, 1)));
        assert_holds(&db, &model);
        let done = db.stats().unwrap().adaptation;
        FOR_SCANS.fetch_add(done.for_scans, Ordering::Relaxed);
        FOR_POINTS.fetch_add(done.for_points, Ordering::Relaxed);
        SORTED.fetch_add(done.sorted, Ordering::Relaxed);
        db.close().unwrap();
        let disk = disk.crash(thread_rng().next_u64());
        let db = options.on_disk(&disk, path(), OpenHow::Existing).unwrap();
        assert_holds(&db, &model);
        db.close().unwrap();
    });
    let [scans, points, sorted] =
        [&FOR_SCANS, &FOR_POINTS, &SORTED].map(|count| count.load(Ordering::Relaxed));
    println!("{scans} conversions for scans, {points} for look-ups, {sorted} sorts");
    assert!(scans > 0 && points > 0 && sorted > 0, "the schedules are too few to tell anything");
}
