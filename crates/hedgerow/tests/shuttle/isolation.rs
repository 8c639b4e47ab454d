//! What threads are told in random interleavings keeps the isolation that is promised: `testing::isolation` looks at it.
//!
//! `linear.rs` looks at each key by itself. Here scans of keyspaces of one leaf each are transactions of several reads:
//! what they have found was there at one moment, and that moment has a place between the changes of all threads.

use crate::{assert_sound, check, image_of, options, path};
use hedgerow::internals::store::OpenHow;
use hedgerow_sync::primitive::buggify::{Point, leave_alone};
use hedgerow_sync::primitive::linger::let_threads_linger;
use hedgerow_sync::primitive::thread::spawn_named;
use hedgerow_testing::SimDisk;
use hedgerow_testing::islands::{Client, ISLAND_KEYS, Place};
use hedgerow_testing::isolation::{History, Level, Transaction};
use hedgerow_testing::linear::Clock;
use hedgerow_testing::recorded::Records;
use hedgerow_testing::sim::SimState;
use shuttle::rand::{RngCore, thread_rng};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const THREADS: u32 = 3;
const ISLANDS: u64 = 2;
const STEPS: u64 = 14;
const RECORDS: Records = Records { dense: false, one_size: true, all_forms: false };

/// The disk of a closed store with empty keyspaces.
fn image() -> &'static SimState {
    static IMAGE: OnceLock<SimState> = OnceLock::new();
    IMAGE.get_or_init(|| {
        image_of(options(), |db| {
            for at in 0..ISLANDS {
                db.keyspace(&format!("island {at}")).unwrap();
            }
        })
    })
}

#[test]
fn scans_of_one_leaf_are_strictly_serializable() {
    static DEPENDENCIES: AtomicU64 = AtomicU64::new(0);
    image();
    check(|| {
        // A scan of several leaves is no transaction.
        leave_alone(Point::Split);
        let disk = SimDisk::with_state(image().clone(), thread_rng().next_u64());
        let db = options().on_disk(&disk, path(), OpenHow::Existing).unwrap();
        let place = |at| Place {
            // An island stays in one leaf, whoever contends for it.
            keyspace: db.keyspace(&format!("island {at}")).unwrap().with_contention_split(None),
            first: at * 2 * ISLAND_KEYS,
        };
        let places: Vec<Place> = (0..ISLANDS).map(place).collect();
        let clock = Clock::default();
        // A reader between two looks is to meet whole changes.
        let_threads_linger();
        let running: Vec<_> = (0..THREADS)
            .map(|thread| {
                let seed = thread_rng().next_u64();
                let mut client = Client::new(&db, RECORDS, thread, &clock, seed);
                let places = places.clone();
                let work = move || {
                    for step in 0..STEPS {
                        client.step(&places[(seed >> step) as usize % places.len()]);
                    }
                    client.take()
                };
                spawn_named(&format!("client {thread}"), work).unwrap()
            })
            .collect();
        let mut transactions: Vec<Transaction> = Vec::new();
        for client in running {
            transactions.extend(client.join().unwrap());
        }
        let mut reader = Client::new(&db, RECORDS, THREADS, &clock, 0);
        places.iter().for_each(|place| reader.scan_all(place));
        transactions.extend(reader.take());
        for place in &places {
            assert_eq!(place.keyspace.stats().unwrap().pages(), 1, "an island was split");
        }
        let history = History { before: BTreeMap::new(), transactions };
        match history.check(Level::StrictSerializable) {
            Ok(tally) => DEPENDENCIES.fetch_add(tally.dependencies, Ordering::Relaxed),
            Err(violation) => panic!("{violation}"),
        };
        assert_sound(&db);
        drop(places);
        db.close().unwrap();
    });
    let dependencies = DEPENDENCIES.load(Ordering::Relaxed);
    println!("{dependencies} dependencies");
    assert!(dependencies > 0, "the schedules are too few to tell anything");
}
