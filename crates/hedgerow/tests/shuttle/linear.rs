//! What threads are told in random interleavings has an order: `testing::linear` looks for it.
//!
//! The other modules know what a thread finds under its own keys; here all threads change, read and scan the same ones,
//! in leaves of four or five records that split and merge under them. So what is noticed as well is an answer that is
//! whole and was right once: of a leaf that was left behind by a split, of a frame that was given away, of a copy that
//! is too old.

use crate::log::logged;
use crate::{assert_sound, check, image_of, options, path};
use hedgerow::Database;
use hedgerow::internals::store::OpenHow;
use hedgerow_sync::primitive::linger::let_threads_linger;
use hedgerow_sync::primitive::thread::spawn_named;
use hedgerow_testing::SimDisk;
use hedgerow_testing::linear::{Clock, History};
use hedgerow_testing::recorded::{Client, Field, Records};
use hedgerow_testing::sim::SimState;
use shuttle::rand::{Rng, RngCore, thread_rng};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const THREADS: u32 = 3;
/// Half of them are there in the beginning, in more leaves than the pool has frames.
const KEYS: u64 = 800;
const RECORDS: Records = Records { dense: false, one_size: false, all_forms: false };
/// Keys that all threads are at, in two or three leaves.
const HOT: u64 = 6;
/// How far records come and go beside them.
const NEAR: u64 = 6;

fn first_contents() -> BTreeMap<u64, u64> {
    (0..KEYS).step_by(2).map(|number| (number, Records::first_token(number))).collect()
}

/// The disk of a closed store with every second key.
fn image() -> &'static SimState {
    static IMAGE: OnceLock<SimState> = OnceLock::new();
    IMAGE.get_or_init(|| {
        image_of(options(), |db| {
            let contents = first_contents();
            let pairs = contents
                .iter()
                .map(|(number, token)| (RECORDS.key(*number), RECORDS.value(*number, *token)));
            db.keyspace("k").unwrap().bulk_load(pairs, 80).unwrap();
        })
    })
}

/// Runs three clients for `steps` steps each on `field`, and looks for an order of what they were told, and of what
/// is there in the end. Tells how many operations overlapped.
fn run(steps: u64, field: Field) -> u64 {
    let is_logged = thread_rng().gen_bool(0.5);
    let options = if is_logged { logged() } else { options() };
    let disk = SimDisk::with_state(image().clone(), thread_rng().next_u64());
    let db = options.on_disk(&disk, path(), OpenHow::Existing).unwrap();
    let keyspace = db.keyspace("k").unwrap();
    let clock = Clock::default();
    // A reader between two looks is to meet whole splits.
    let_threads_linger();
    let client =
        |thread| Client::new(&db, &keyspace, RECORDS, thread, &clock, thread_rng().next_u64());
    let running: Vec<_> = (0..THREADS)
        .map(|thread| {
            let mut client = client(thread);
            let work = move || {
                for _ in 0..steps {
                    client.step(&field);
                }
                client.into_history()
            };
            spawn_named(&format!("client {thread}"), work).unwrap()
        })
        .collect();
    let mut history = History::default();
    for thread in running {
        history.extend(thread.join().unwrap());
    }
    let mut reader = client(THREADS);
    reader.scan_all(&field);
    history.extend(reader.into_history());
    let tally = match history.check(&first_contents()) {
        Ok(tally) => tally,
        Err(violation) => panic!("{violation}"),
    };
    assert_sound(&db);
    if is_logged {
        // And what is durable is there after the power went.
        let records = |db: &Database| {
            let (mut cursor, mut records) = (db.keyspace("k").unwrap().cursor(), Vec::new());
            while let Some((key, value)) = cursor.next_record().unwrap() {
                records.push((key.to_vec(), value.to_vec()));
            }
            records
        };
        let expected = records(&db);
        db.sync().unwrap();
        let left = disk.state().crash_at_random(thread_rng().next_u64());
        let survivor = SimDisk::with_state(left, thread_rng().next_u64());
        let survived = options.on_disk(&survivor, path(), OpenHow::Existing).unwrap();
        assert_sound(&survived);
        assert_eq!(records(&survived), expected);
    }
    db.close().unwrap();
    tally.overlaps
}

/// A few leaves, which all threads are at.
#[test]
fn answers_beside_splits_and_merges_have_an_order() {
    static OVERLAPS: AtomicU64 = AtomicU64::new(0);
    image();
    check(|| {
        let hot = thread_rng().gen_range(NEAR..KEYS - HOT - NEAR);
        let field = Field { keys: KEYS, near: (hot - NEAR, hot + HOT + NEAR - 1), hot: (hot, HOT) };
        OVERLAPS.fetch_add(run(16, field), Ordering::Relaxed);
    });
    let overlaps = OVERLAPS.load(Ordering::Relaxed);
    println!("{overlaps} operations began while others of their keys were under way");
    assert!(overlaps > 0, "the schedules are too few to tell anything");
}

/// The whole store, so that nearly every operation reads a page, which evicts another one.
#[test]
fn answers_beside_evictions_have_an_order() {
    image();
    check(|| {
        run(24, Field { keys: KEYS, near: (0, KEYS - 1), hot: (0, KEYS) });
    });
}
