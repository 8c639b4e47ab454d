//! Reads over bytes that a writer is changing, as readers of a tree make them: the same answers as over plain bytes
//! while nobody writes, and true ones whenever the page validates.

use super::*;
use crate::page::{ExclusivePage, OptimisticPage, Pages, PoolSession};
use crate::testing::MemoryPool;
use crate::types::Epoch;
use hedgerow_sync::primitive::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

on_both! {
    racing_bytes_give_the_answers_of_plain_ones;
    what_readers_validate_was_there;
}

const EPOCH: Epoch = Epoch(1);
/// Long ones are half written for longer.
const VALUE_BYTES: usize = 28;

fn key(number: usize) -> Vec<u8> {
    [b"key/".as_slice(), &(70_000 + number as u32).to_be_bytes()].concat()
}

/// A pool with one page in it, an empty leaf.
fn pool_with_leaf<V: DenseLayout>() -> (Arc<MemoryPool>, PageId) {
    let pool = Arc::new(MemoryPool::new(4096, 4));
    let mut session = pool.session();
    session.reserve(1).unwrap();
    let mut page = session.take(TreeId(5), EPOCH).unwrap();
    let fences = (Some(b"key".as_slice()), Some(b"kez".as_slice()));
    let bytes = page.write(EPOCH);
    DenseMut::<V>::format(bytes, fences.0, fences.1, &key(0), VALUE_BYTES).unwrap();
    let id = page.id();
    drop((page, session));
    (pool, id)
}

fn change(pool: &MemoryPool, id: PageId, how: impl FnOnce(&mut [u8])) {
    let mut page = ExclusivePage::wait(pool, id, &mut || true).unwrap();
    how(page.write(EPOCH));
}

/// Of one size where the layout has one.
fn value<V: DenseLayout>(number: usize) -> Vec<u8> {
    vec![number as u8; if V::ONE_SIZE { VALUE_BYTES } else { 1 + number % 40 }]
}

fn put<V: DenseLayout>(page: &mut [u8], number: usize) {
    let place = view::<V>(page).find(&key(number));
    let mut leaf = DenseMut::<V>::new(page);
    match place {
        Some(place) => leaf.update(place, &value::<V>(number)).unwrap(),
        None => leaf.insert(&key(number), &value::<V>(number)).unwrap(),
    }
}

fn racing_bytes_give_the_answers_of_plain_ones<V: DenseLayout>() {
    let (pool, id) = pool_with_leaf::<V>();
    for number in 0..72 {
        // Every third is not there.
        if number % 3 > 0 {
            change(&pool, id, |page| put::<V>(page, number));
        }
        if number % 6 > 0 {
            continue;
        }
        let page = OptimisticPage::open(&*pool, id, None).unwrap();
        let racing: DenseNode<_, V> = DenseNode::new(page.bytes());
        let shared = page.share().unwrap();
        let plain = view::<V>(shared.bytes());
        assert_eq!((racing.count(), racing.capacity()), (plain.count(), plain.capacity()));
        assert_eq!((racing.base(), racing.key_len()), (plain.base(), plain.key_len()));
        assert_eq!(racing.used_bytes(), plain.used_bytes());
        for other in 0..80 {
            let key = key(other);
            assert_eq!(racing.find(&key), plain.find(&key));
            assert_eq!(racing.lower_bound(&key), plain.lower_bound(&key));
        }
        for place in 0..=plain.capacity() {
            assert_eq!(racing.next_place(place), plain.next_place(place));
            assert_eq!(racing.previous_place(place), plain.previous_place(place));
            assert_eq!(racing.rank(place), plain.rank(place));
        }
        for (rank, place) in plain.places().enumerate() {
            assert_eq!(racing.place_of_rank(rank), Some(place));
            let (mut ours, mut theirs) = (Copied::new(), Vec::new());
            racing.copy_value(place, &mut ours);
            racing.append_value(place, &mut theirs);
            assert_eq!((ours.as_bytes(), &*theirs), (plain.value(place), plain.value(place)));
            assert!(racing.value_equals(place, plain.value(place)));
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            racing.append_key(place, &mut ours);
            plain.append_key(place, &mut theirs);
            assert_eq!(ours, theirs);
        }
    }
}

/// A writer inserts, removes and updates; what readers validate is what was there. A third of the keys always are,
/// another third never.
fn what_readers_validate_was_there<V: DenseLayout>() {
    const KEYS: usize = 60;
    const CHANGES: usize = 2_000_000;
    let (pool, id) = pool_with_leaf::<V>();
    for number in (0..KEYS).step_by(3) {
        change(&pool, id, |page| put::<V>(page, number));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let changes = Arc::new(AtomicUsize::new(0));
    let writer = {
        let (pool, stop, changes) = (Arc::clone(&pool), Arc::clone(&stop), Arc::clone(&changes));
        let work = move || {
            let mut random = Random::new(201);
            while !stop.load(Ordering::Relaxed) {
                let number = random.below(KEYS / 3) * 3 + random.below(2);
                change(&pool, id, |page| match view::<V>(page).find(&key(number)) {
                    Some(place) if number % 3 == 1 => DenseMut::<V>::new(page).remove(place),
                    _ => put::<V>(page, number),
                });
                changes.fetch_add(1, Ordering::Relaxed);
            }
        };
        thread::spawn_named("writer", work).unwrap()
    };
    let (mut validated, mut tried) = (0, 0);
    let mut random = Random::new(202);
    while (validated < 20_000 || changes.load(Ordering::Relaxed) < CHANGES) && tried < 50_000_000 {
        tried += 1;
        let number = random.below(KEYS);
        let Ok(page) = OptimisticPage::open(&*pool, id, None) else { continue };
        let leaf: DenseNode<_, V> = DenseNode::new(page.bytes());
        let place = leaf.find(&key(number));
        let next = leaf.next_place(leaf.lower_bound(&key(number / 3 * 3)));
        let mut read = Copied::new();
        if let Some(place) = place {
            leaf.copy_value(place, &mut read);
        }
        let mut found = Vec::new();
        leaf.append_key(next, &mut found);
        if page.validate().is_err() {
            continue;
        }
        validated += 1;
        assert_eq!(found, key(number / 3 * 3), "the first key from one on that is always there");
        match (number % 3, place) {
            (0, None) | (2, Some(_)) => panic!("key {number}: {place:?}"),
            (_, Some(_)) => assert_eq!(read.as_bytes(), value::<V>(number)),
            (_, None) => {}
        }
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert!(validated > 0, "no reader got through");
    change(&pool, id, |page| assert_clean_of(page));
}

/// The page belongs to a pool, and has its number.
fn assert_clean_of(page: &[u8]) {
    assert_eq!(check(page), []);
    assert_eq!(load_check(page), Ok(()));
}
