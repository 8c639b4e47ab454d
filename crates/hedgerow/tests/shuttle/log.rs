//! The log in random interleavings, and the power that goes at any moment: what was acknowledged as durable is
//! there, and of each thread's other changes a first part, in their order.

use crate::{KEYS, State, assert_sound, check, contents, key_of, open, options, path, value_of};
use hedgerow::storage::SimDisk;
use hedgerow::store::OpenHow;
use hedgerow::{Durability, Options};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::thread::{spawn_named, yield_now};
use shuttle::rand::{Rng, RngCore, thread_rng};
use std::sync::atomic::{AtomicU64, Ordering};

const WRITERS: u64 = 2;
const CHANGES: u64 = 8;

fn logged() -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(crate::PAGE_BYTES);
    options().memory_limit_bytes(limit).log(true).log_segment_blocks(6)
}

/// How far a writer is. The standard library's counters: a look at them is no step of the schedule.
#[derive(Default)]
struct Progress {
    begun: AtomicU64,
    durable: AtomicU64,
}

/// The number of the key that a writer's change is of: a few, so that they are overwritten.
fn number_of(writer: u64, change: u64) -> u64 {
    writer + WRITERS * (change % 5) * 37
}

/// What a writer's keys hold after its first `changes`.
fn after(writer: u64, changes: u64) -> State {
    let before = (0..5).map(|change| (number_of(writer, change), 1));
    let made = (0..changes).map(|change| (number_of(writer, change), change + 2));
    before.chain(made).collect()
}

#[test]
fn what_was_acknowledged_survives_the_power_and_the_rest_is_a_beginning() {
    check(|| {
        let (disk, db, keyspace) = open(&logged());
        let progress: Arc<[Progress; WRITERS as usize]> = Arc::default();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (keyspace, progress) = (keyspace.clone(), progress.clone());
                spawn_named("writer", move || {
                    let progress = &progress[writer as usize];
                    for change in 0..CHANGES {
                        let sync = thread_rng().gen_bool(0.4);
                        let durability = if sync { Durability::Sync } else { Durability::Buffered };
                        let key = key_of(number_of(writer, change));
                        progress.begun.store(change + 1, Ordering::Relaxed);
                        let handle = keyspace.clone().with_durability(durability);
                        handle.put(&key, &value_of(&key, change + 2)).unwrap();
                        if sync {
                            progress.durable.store(change + 1, Ordering::Relaxed);
                        }
                    }
                })
                .unwrap()
            })
            .collect();
        for _ in 0..thread_rng().gen_range(0..60) {
            yield_now();
        }
        if thread_rng().gen_bool(0.3) {
            db.checkpoint().unwrap();
        }
        let of = |part: fn(&Progress) -> &AtomicU64| {
            [0, 1].map(|writer| part(&progress[writer]).load(Ordering::Relaxed))
        };
        let durable = of(|progress| &progress.durable);
        let left = disk.state();
        let begun = of(|progress| &progress.begun);
        for writer in writers {
            writer.join().unwrap();
        }
        drop((db, keyspace));
        let left = left.crash_at_random(thread_rng().next_u64());
        let survivor = SimDisk::with_state(left, thread_rng().next_u64());
        let db = logged().on_disk(&survivor, path(), OpenHow::Existing).unwrap();
        assert_sound(&db);
        let found = contents(&db);
        assert_eq!(found.len() as u64, KEYS);
        for writer in 0..WRITERS {
            let (durable, begun) = (durable[writer as usize], begun[writer as usize]);
            let is = |changes: u64| after(writer, changes).iter().all(|(n, g)| found[n] == *g);
            assert!(
                (durable..=begun).any(is),
                "writer {writer}: {durable} of {begun} were durable, and this is left: {found:?}"
            );
        }
    });
}

/// The keyspace can be found before the call that creates it has returned.
#[test]
fn what_is_put_into_a_keyspace_in_the_making_survives() {
    check(|| {
        let (disk, db, keyspace) = open(&logged());
        let creator = {
            let db = db.clone();
            spawn_named("creator", move || drop(db.create_keyspace("new").unwrap())).unwrap()
        };
        let writer = {
            let db = db.clone();
            let write = move || {
                let found = loop {
                    match db.open_keyspace("new").unwrap() {
                        Some(keyspace) => break keyspace,
                        None => yield_now(),
                    }
                };
                found.with_durability(Durability::Sync).put(b"key", b"value").unwrap();
            };
            spawn_named("writer", write).unwrap()
        };
        writer.join().unwrap();
        let left = disk.state().crash_at_random(thread_rng().next_u64());
        creator.join().unwrap();
        drop((db, keyspace));
        let survivor = SimDisk::with_state(left, thread_rng().next_u64());
        let db = logged().on_disk(&survivor, path(), OpenHow::Existing).unwrap();
        let found = db.open_keyspace("new").unwrap().expect("somebody was told that it is there");
        assert_eq!(found.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    });
}
