//! Keys that were chosen to have one fingerprint: what they cost, in records compared, which a view
//! counts.

use super::*;
use std::cell::Cell;
use std::cmp::Ordering;

/// Plain bytes that count how many keys are compared.
#[derive(Clone, Copy)]
struct Counting<'a> {
    bytes: PlainBytes<'a>,
    comparisons: &'a Cell<usize>,
}

impl Counting<'_> {
    fn count(&self) {
        self.comparisons.set(self.comparisons.get() + 1);
    }
}

impl PageBytes for Counting<'_> {
    fn len(self) -> usize {
        self.bytes.len()
    }
    fn u8_at(self, offset: usize) -> u8 {
        self.bytes.u8_at(offset)
    }
    fn u16_at(self, offset: usize) -> u16 {
        self.bytes.u16_at(offset)
    }
    fn u32_at(self, offset: usize) -> u32 {
        self.bytes.u32_at(offset)
    }
    fn u64_at(self, offset: usize) -> u64 {
        // In narrow slots nothing else is read in eight bytes but the beginning of a key.
        self.count();
        self.bytes.u64_at(offset)
    }
    fn block64(self, offset: usize) -> [u32; 16] {
        self.bytes.block64(offset)
    }
    fn compare(self, offset: usize, len: usize, key: &[u8]) -> Ordering {
        self.bytes.compare(offset, len, key)
    }
    fn lower_bound<const SLOT_BYTES: usize, const HEAD_BYTES: usize>(
        self,
        slots: usize,
        low: usize,
        high: usize,
        key: &[u8],
    ) -> (usize, bool) {
        self.bytes.lower_bound::<SLOT_BYTES, HEAD_BYTES>(slots, low, high, key)
    }
    fn equals(self, offset: usize, len: usize, key: &[u8]) -> bool {
        self.count();
        self.bytes.equals(offset, len, key)
    }
    fn copy_out(self, offset: usize, len: usize, to: &mut Copied) {
        self.bytes.copy_out(offset, len, to);
    }
    fn copy(self, offset: usize, to: &mut [u8]) {
        self.bytes.copy(offset, to);
    }
    fn append_to(self, offset: usize, len: usize, to: &mut Vec<u8>) {
        self.bytes.append_to(offset, len, to);
    }
    fn prefetch(self, offset: usize) {
        self.bytes.prefetch(offset);
    }
}

/// Keys of one length and one fingerprint, each of them once.
fn colliding(random: &mut Random, count: usize) -> Vec<Vec<u8>> {
    let mut keys = std::collections::BTreeSet::new();
    while keys.len() < count {
        let key = random.bytes(6);
        if fingerprint(&key) == 0x5a {
            keys.insert(key);
        }
    }
    let mut keys: Vec<_> = keys.into_iter().collect();
    for at in (1..count).rev() {
        keys.swap(at, random.below(at + 1));
    }
    keys
}

fn comparisons_to_find(page: &[u8], key: &[u8]) -> (bool, usize) {
    let comparisons = Cell::new(0);
    let bytes = Counting { bytes: PlainBytes::new(page), comparisons: &comparisons };
    let found = FingerprintLeaf::new(bytes).find(key).is_some();
    (found, comparisons.get())
}

#[test]
fn look_ups_among_keys_of_one_fingerprint_end_soon() {
    let mut random = Random::new(51);
    let mut worst = Vec::new();
    for (page_bytes, count) in [(512, 25), (4096, 250), (8192, 500), (65536, 4000)] {
        let keys = colliding(&mut random, count + 50);
        let (inside, outside) = keys.split_at(count);
        let mut page = new_leaf(page_bytes, None, None);
        for (number, key) in inside.iter().enumerate() {
            FingerprintLeafMut::new(&mut page).insert(key, b"v").unwrap();
            if number % 97 == 0 || number + 1 == count {
                assert_clean(&page);
            }
        }
        let bound = 2 * CROWD + count.ilog2() as usize + 2;
        let mut most = 0;
        for (expected, keys) in [(true, inside), (false, outside)] {
            for key in keys {
                let (found, comparisons) = comparisons_to_find(&page, key);
                assert_eq!(found, expected);
                assert!(comparisons <= bound, "{comparisons} of {count}");
                most = most.max(comparisons);
            }
        }
        worst.push(most);
    }
    eprintln!("most comparisons of a look-up: {worst:?}");
}

/// Sorts are what an insertion may cost beyond itself: at most one for every [`CROWD`] of them, and
/// each takes the tail alone, with a binary search for each record of it.
#[test]
fn insertions_of_one_fingerprint_sort_now_and_then() {
    let mut random = Random::new(52);
    for (page_bytes, count) in [(4096, 250), (65536, 4000)] {
        let mut page = new_leaf(page_bytes, None, None);
        let mut sorts = 0;
        for key in colliding(&mut random, count) {
            let before = sorted_count(&page);
            FingerprintLeafMut::new(&mut page).insert(&key, b"v").unwrap();
            sorts += usize::from(sorted_count(&page) > before + 1);
        }
        assert!(sorts <= count / CROWD, "{sorts} sorts for {count} insertions");
        assert!(sorts + 2 >= count / CROWD, "{sorts} sorts: the test does not test");
    }
}

/// Ordinary keys: what is compared in vain is about a record in 256.
#[test]
fn ordinary_look_ups_compare_one_record() {
    let mut random = Random::new(53);
    let mut page = new_leaf(4096, None, None);
    let mut keys = Vec::new();
    loop {
        let key = random.bytes(12);
        if put(&mut page, &key, &[0; 8]).is_err() {
            break;
        }
        keys.push(key);
    }
    assert!(keys.len() >= 160, "{}", keys.len());
    let all: usize = keys.iter().map(|key| comparisons_to_find(&page, key).1).sum();
    assert!(all < keys.len() * 3 / 2, "{all} comparisons for {} look-ups", keys.len());
}

/// The same among keys with which the leaf is nothing but a crowd, changed in every way.
#[test]
fn changes_of_a_crowd_agree_with_a_map() {
    let mut random = Random::new(54);
    for page_bytes in [512, 4096] {
        let keys = colliding(&mut random, page_bytes / 8);
        let mut page = new_leaf(page_bytes, None, None);
        let mut model = Model::new();
        for step in 0..2000 {
            let key = &keys[random.below(keys.len())];
            let place = view(&page).find(key);
            assert_eq!(place.is_some(), model.contains_key(key));
            match (random.below(3), place) {
                (0, Some(place)) => {
                    FingerprintLeafMut::new(&mut page).remove(place);
                    model.remove(key);
                }
                _ => {
                    let len = random.below(6);
                    let value = random.bytes(len);
                    if put(&mut page, key, &value).is_ok() {
                        model.insert(key.clone(), value);
                    }
                }
            }
            if step % 50 == 0 {
                assert_holds(&page, &model);
            }
        }
    }
}
