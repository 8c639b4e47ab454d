//! Places in the pool: who has one waits for nobody that may wait for one.

use super::*;
use crate::Wait;
use crate::buffer::BufferPool;
use crate::page::{Pages, PoolSession};
use hedgerow_sync::primitive::time::Moment;
use std::sync::atomic::AtomicUsize;

/// The smallest pool has places for eight.
const PLACES: usize = 8;
/// Frames that are for everybody.
const FRAMES_SHARED: usize = 16;

fn small() -> StoreOptions {
    let memory_limit_bytes = crate::buffer::smallest_limit_without_log_bytes(512) + (256 << 10);
    StoreOptions { memory_limit_bytes, ..options() }
}

/// How many operations a pool has places for.
fn places(pool: &BufferPool) -> usize {
    (pool.frames() as usize - FRAMES_SHARED) / crate::buffer::FRAMES_EACH
}

/// All that a pool has places for look at pages, and read others for each: each had its place still, and waited for one of the others.
#[test]
fn whoever_is_shown_pages_may_read_others() {
    let disk = SimDisk::new(1);
    let smallest = crate::buffer::smallest_limit_without_log_bytes(512);
    let options = StoreOptions { memory_limit_bytes: smallest, ..options() };
    let store = open(&options, &disk, OpenHow::New).unwrap();
    let names: Vec<String> = (0..2 * PLACES).map(|n| format!("birds {n}")).collect();
    for name in &names {
        let birds = store.create_keyspace(name).unwrap();
        for n in 0..60_u32 {
            birds.put(&n.to_be_bytes(), &[7; 60]).unwrap();
        }
    }
    store.close().unwrap();
    let store = Arc::new(open(&options, &disk, OpenHow::Existing).unwrap());
    let trees: Vec<PoolTree> =
        names.iter().map(|name| store.open_keyspace(name).unwrap().unwrap()).collect();
    let came = Arc::new(AtomicUsize::new(0));
    let looks = (0..PLACES).map(|n| {
        let (shown, read, came) = (trees[n].clone(), trees[PLACES + n].clone(), came.clone());
        let look = move || {
            let read = read.with_wait(Wait::For(Duration::from_secs(3)));
            let mut pages = 0;
            let mut outcome = Ok(());
            shown.show_pages(&mut |_| {
                pages += 1;
                if pages == 4 {
                    came.fetch_add(1, SeqCst);
                    let since = Moment::now();
                    while came.load(SeqCst) < PLACES && since.elapsed() < Duration::from_secs(3) {
                        thread::sleep(Duration::from_millis(1));
                    }
                    outcome = (0..60_u32).try_for_each(|n| {
                        let found = read.get(&n.to_be_bytes())?;
                        assert!(found.is_some());
                        Ok(())
                    });
                }
                ControlFlow::Continue(())
            })?;
            assert!(pages > 5, "{pages}");
            outcome
        };
        thread::spawn_named("looks", look).unwrap()
    });
    let looks: Vec<thread::JoinHandle<Result<()>>> = looks.collect();
    for look in looks {
        look.join().unwrap().unwrap();
    }
}

/// The thread that takes the checkpoints waited for those who waited for one.
#[test]
fn who_looks_for_values_to_move_waits_for_a_moment_at_most() {
    let disk = SimDisk::new(1);
    let store = open(&small(), &disk, OpenHow::New).unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..2_000_u32 {
        wrens.put(&n.to_be_bytes(), &[7; 60]).unwrap();
    }
    put_large(&store, &wrens, b"song", 9_000);
    drop(wrens);
    store.close().unwrap();
    let store = open(&small(), &disk, OpenHow::Existing).unwrap();
    let slots = store.shared.slots.as_ref().unwrap();
    let pool = store.pool();
    let mut sessions = Vec::new();
    for _ in 0..places(pool) {
        let mut session = pool.session();
        session.reserve(1).unwrap();
        sessions.push(session);
    }
    let since = Moment::now();
    let error = store.shared.far_values(slots, 1, &|| false).map(drop).unwrap_err();
    assert!(crate::wait::is_end_of_wait(&error), "{error}");
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    drop(sessions);
    assert!(store.shared.far_values(slots, 0, &|| false).unwrap().len() == 1);
}
