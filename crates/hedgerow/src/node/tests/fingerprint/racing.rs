//! Look-ups over bytes that a writer is changing, as readers of a tree make them: the same answers
//! as over plain bytes while nobody writes, and true ones whenever the page validates.

use super::*;
use crate::page::{ExclusivePage, OptimisticPage, Pages, PoolSession};
use crate::testing::MemoryPool;
use crate::types::Epoch;
use hedgerow_sync::primitive::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const EPOCH: Epoch = Epoch(1);

/// A pool with one page in it, an empty leaf.
fn pool_with_leaf() -> (Arc<MemoryPool>, PageId) {
    let pool = Arc::new(MemoryPool::new(4096, 4));
    let mut session = pool.session();
    session.reserve(1).unwrap();
    let mut page = session.take(TreeId(5), EPOCH).unwrap();
    FingerprintLeafMut::format(page.write(EPOCH), Some(b"key"), Some(b"kez"));
    let id = page.id();
    drop((page, session));
    (pool, id)
}

fn change(pool: &MemoryPool, id: PageId, how: impl FnOnce(&mut [u8])) {
    let mut page = ExclusivePage::wait(pool, id, &mut || true).unwrap();
    how(page.write(EPOCH));
}

/// Keys of several lengths, short ones and such as take more than one vector to compare.
fn key(number: usize) -> Vec<u8> {
    format!("key/{number:0width$}", width = 3 + number % 37).into_bytes()
}

#[test]
fn racing_bytes_give_the_answers_of_plain_ones() {
    let (pool, id) = pool_with_leaf();
    for number in 0..200 {
        // Every third is not there, and the last ones are too many.
        if number % 3 > 0 {
            let value = vec![7; number % 30];
            change(&pool, id, |page| put(page, &key(number), &value).unwrap_or(()));
        }
        if number == 40 || number == 90 {
            // Long enough for wide slots.
            change(&pool, id, |page| put(page, b"key/wide", &vec![9; 200 + number]).unwrap());
        }
        if number % 8 > 0 {
            continue;
        }
        let page = OptimisticPage::open(&*pool, id, None).unwrap();
        let racing = FingerprintLeaf::new(page.bytes());
        let shared = page.share().unwrap();
        let plain = view(shared.bytes());
        assert_eq!((racing.count(), racing.is_sorted()), (plain.count(), plain.is_sorted()));
        assert_eq!(racing.used_bytes(), plain.used_bytes());
        for other in 0..200 {
            let key = key(other);
            assert_eq!(racing.find(&key), plain.find(&key));
            assert_eq!(racing.candidate(&key), plain.candidate(&key));
            assert_eq!(racing.search(&key), plain.search(&key));
        }
        for place in 0..plain.count() {
            let (mut ours, mut theirs) = (Copied::new(), Vec::new());
            racing.copy_value(place, &mut ours);
            racing.append_value(place, &mut theirs);
            assert_eq!((ours.as_bytes(), &*theirs), (plain.value(place), plain.value(place)));
            assert!(racing.value_equals(place, plain.value(place)));
            let mut whole = Vec::new();
            racing.append_key(place, &mut whole);
            assert_eq!(whole, key_at(shared.bytes(), place));
        }
    }
}

/// A writer inserts, removes, updates and sorts; what readers validate is what was there. A third of
/// the keys always are, another third never.
#[test]
fn what_readers_validate_was_there() {
    const KEYS: usize = 60;
    let (pool, id) = pool_with_leaf();
    let value = |number: usize| vec![number as u8; 1 + number % 20];
    for number in (0..KEYS).step_by(3) {
        change(&pool, id, |page| put(page, &key(number), &value(number)).unwrap());
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (pool, stop) = (Arc::clone(&pool), Arc::clone(&stop));
        let work = move || {
            let mut random = Random::new(101);
            while !stop.load(Ordering::Relaxed) {
                let number = random.below(KEYS / 3) * 3 + usize::from(random.below(2) == 0);
                change(&pool, id, |page| match (random.below(4), view(page).find(&key(number))) {
                    (0, _) => FingerprintLeafMut::new(page).sort(),
                    (1, Some(place)) if number % 3 == 1 => {
                        FingerprintLeafMut::new(page).remove(place);
                    }
                    _ => put(page, &key(number), &value(number)).unwrap(),
                });
            }
        };
        thread::spawn_named("writer", work).unwrap()
    };
    let (mut validated, mut tried) = (0, 0);
    let mut random = Random::new(102);
    while validated < 20_000 && tried < 20_000_000 {
        tried += 1;
        if tried % 1024 == 0 {
            // The writer may hold the latch, and wait for a processor.
            thread::yield_now();
        }
        let number = random.below(KEYS);
        let Ok(page) = OptimisticPage::open(&*pool, id, None) else { continue };
        let leaf = FingerprintLeaf::new(page.bytes());
        let place = leaf.find(&key(number));
        let mut read = Copied::new();
        if let Some(place) = place {
            leaf.copy_value(place, &mut read);
        }
        if page.validate().is_err() {
            continue;
        }
        validated += 1;
        match (number % 3, place) {
            (0, None) | (2, Some(_)) => panic!("key {number}: {place:?}"),
            (_, Some(_)) => assert_eq!(read.as_bytes(), value(number)),
            (_, None) => {}
        }
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert!(validated > 0, "no reader got through");
    change(&pool, id, |page| assert_eq!(check(page), []));
}
