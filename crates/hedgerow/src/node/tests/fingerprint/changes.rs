//! Changes, splits and merges against a sorted map.

use super::*;
use crate::page::header::NEWEST_LSN;

#[test]
fn changes_agree_with_a_map() {
    for (seed, page_bytes) in [(1, 512), (2, 512), (3, 1024), (4, 4096), (5, 4096), (6, 65536)] {
        for round in 0..4 {
            changes(seed * 100 + round, page_bytes);
        }
    }
}

fn changes(seed: u64, page_bytes: usize) {
    let mut random = Random::new(seed);
    let (lower, upper) = random.fences(page_bytes);
    let mut page = new_leaf(page_bytes, lower.as_deref(), upper.as_deref());
    let mut model = Model::new();
    let mut failures = 0;
    let steps = if page_bytes > 4096 { 1500 } else { 800 };
    for step in 0..steps {
        let known = random.below(3) == 0 && !model.is_empty();
        let key = if known {
            model.keys().nth(random.below(model.len())).unwrap().clone()
        } else {
            random.key_within(&page)
        };
        let place = view(&page).find(&key);
        assert_eq!(place.is_some(), model.contains_key(&key), "step {step}");
        match random.below(16) {
            0 | 1 => {
                if let Some(place) = place {
                    FingerprintLeafMut::new(&mut page).remove(place);
                    model.remove(&key);
                }
            }
            2 if random.below(3) == 0 => FingerprintLeafMut::new(&mut page).sort(),
            _ => {
                let value = random.value(page_bytes, key.len());
                let before = page.clone();
                if put(&mut page, &key, &value).is_ok() {
                    assert!(fits(&before, &model, &key, &value), "step {step}");
                    let place = view(&page).find(&key).unwrap();
                    assert_eq!(FingerprintLeafMut::new(&mut page).value(place), value);
                    model.insert(key, value);
                } else {
                    assert!(before == page, "a failed call changed the page");
                    assert!(!fits(&before, &model, &key, &value), "step {step}");
                    failures += 1;
                    // Make room, or nothing more would ever happen.
                    for _ in 0..random.below(6).min(model.len()) {
                        let key = model.keys().nth(random.below(model.len())).unwrap().clone();
                        let place = view(&page).find(&key).unwrap();
                        FingerprintLeafMut::new(&mut page).remove(place);
                        model.remove(&key);
                    }
                }
            }
        }
        if step % 64 == 0 || page_bytes == 512 {
            assert_holds(&page, &model);
        } else if page_bytes <= 4096 {
            assert_clean(&page);
        }
    }
    assert_holds(&page, &model);
    assert!(failures > 0 || page_bytes > 4096, "the page was never full");
}

/// Whether the model with this record added would fit into the page, counted from nothing but
/// whether slots are wide: once they are, they stay so.
fn fits(page: &[u8], model: &Model, key: &[u8], value: &[u8]) -> bool {
    let prefix = view(page).as_node().prefix_len();
    let others = model.iter().filter(|(other, _)| *other != key);
    let live: usize = others.clone().map(|(k, v)| k.len() - prefix + v.len()).sum();
    let count = others.count() + 1;
    let wide = is_wide(page) || key.len() - prefix > 255 || value.len() > 255;
    let slots = (if wide { 6 } else { 4 }) * count + count.next_multiple_of(4);
    let (lower, upper) = fences_of(page);
    let fences = lower.map_or(0, |f| f.len()) + upper.map_or(0, |f| f.len());
    64 + slots + live + key.len() - prefix + value.len() + fences <= page.len()
}

#[test]
fn splits_and_merges_keep_every_record() {
    for (seed, page_bytes) in [(21, 512), (22, 4096), (23, 65536)] {
        let rounds = if page_bytes == 512 { 60 } else { 8 };
        for round in 0..rounds {
            split_and_merge(seed * 100 + round, page_bytes);
        }
    }
}

fn split_and_merge(seed: u64, page_bytes: usize) {
    let mut random = Random::new(seed);
    let (lower, upper) = random.fences(page_bytes);
    let mut left = new_leaf(page_bytes, lower.as_deref(), upper.as_deref());
    left[NEWEST_LSN] = 42;
    let mut model = Model::new();
    let (key, value) = loop {
        let key = random.key_within(&left);
        let value = random.value(page_bytes, key.len());
        match put(&mut left, &key, &value) {
            Ok(()) => drop(model.insert(key, value)),
            Err(NoSpace) => break (key, value),
        }
    };
    let before = left.clone();
    let hint = if random.below(2) == 0 {
        SplitHint::Middle
    } else {
        SplitHint::Insert { index: random.below(9), key: &key, value_bytes: value.len() }
    };
    let mut leaf = FingerprintLeafMut::new(&mut left);
    let split = leaf.choose_split(hint);
    assert!(leaf.fits_split(&split));
    assert_holds(leaf.bytes(), &model);
    let mut right = new_page(page_bytes);
    FingerprintLeafMut::new(&mut left).split_into(&split, &mut right);

    let separator = split.separator.clone();
    let mut low = model.clone();
    let high = low.split_off(&[separator.as_slice(), &[0]].concat());
    assert_eq!(low.len(), split.index);
    // Only the side that the new key goes to may be empty.
    assert!(!low.is_empty() || key <= separator);
    assert!(!high.is_empty() || key > separator);
    assert_holds(&left, &low);
    assert_holds(&right, &high);
    assert!(view(&left).is_sorted() && view(&right).is_sorted());
    assert_eq!(fences_of(&left), (lower, Some(separator.clone())));
    assert_eq!(fences_of(&right), (Some(separator.clone()), upper));
    assert_eq!((left[NEWEST_LSN], right[NEWEST_LSN]), (42, 42));

    // Too full to be merged: nothing changes. Then remove records until both fit.
    right[NEWEST_LSN] = 43;
    let full = left.clone();
    if merge_space(&left, &right) > page_bytes {
        assert_eq!(FingerprintLeafMut::new(&mut left).merge(&right), Err(NoSpace));
        assert!(full == left);
    }
    while merge_space(&left, &right) > page_bytes * 3 / 4 {
        let key = model.keys().nth(random.below(model.len())).unwrap().clone();
        model.remove(&key);
        let page = if key <= separator { &mut left } else { &mut right };
        let place = view(page).find(&key).unwrap();
        FingerprintLeafMut::new(page).remove(place);
    }
    let expected = merge_space(&left, &right);
    let right_before = right.clone();
    FingerprintLeafMut::new(&mut left).merge(&right).unwrap();
    assert!(right == right_before);
    assert_holds(&left, &model);
    assert_eq!(view(&left).used_bytes(), expected);
    assert_eq!(fences_of(&left), fences_of(&before));
    assert_eq!(left[NEWEST_LSN], 43);
    if key.len() + value.len() <= max_key_bytes(page_bytes) {
        put(&mut left, &key, &value).unwrap();
    }
}

/// Records and fences at the limit: whatever comes, splitting ends with a place for it.
#[test]
fn largest_records_split_and_fit() {
    for (seed, page_bytes) in [(31, 512), (32, 1024), (33, 2048), (34, 4096), (35, 65536)] {
        let mut random = Random::new(seed);
        let longest = max_key_bytes(page_bytes);
        for round in 0..20 {
            let mut leaves = vec![new_leaf(page_bytes, None, None)];
            for step in 0..60 {
                // Long keys that differ late give long separators; many tiny records before a large
                // one have it make all slots wide.
                let len = longest - random.below(3) * random.below(longest / 2);
                let mut key = vec![[0, 0xfe, 0xff][random.below(3)]; len];
                for _ in 0..1 + random.below(3) {
                    let at = len - 1 - random.below(len);
                    key[at] = [0, 0xfe, 0xff][random.below(3)];
                }
                let key = if random.below(3) == 0 { random.key(longest) } else { key };
                let room = max_record_bytes(page_bytes) - key.len();
                let len = room - random.below(3) * random.below(room / 2);
                insert_into(&mut leaves, &key, &random.bytes(len));
                if round % 4 == 0 && step % 8 == 0 && page_bytes <= 4096 {
                    for _ in 0..page_bytes / 16 {
                        insert_into(&mut leaves, &random.bytes(2), &[]);
                    }
                }
            }
        }
    }
}

fn insert_into(leaves: &mut Vec<Vec<u8>>, key: &[u8], value: &[u8]) {
    for _ in 0..20 {
        let covers = |leaf: &Vec<u8>| view(leaf).as_node().is_within_upper(key);
        let at = leaves.iter().position(covers).expect("the last leaf has no upper fence");
        if put(&mut leaves[at], key, value).is_ok() {
            return assert_clean(&leaves[at]);
        }
        let mut leaf = FingerprintLeafMut::new(&mut leaves[at]);
        let hint = match leaf.as_leaf().find(key) {
            Some(_) => SplitHint::Middle,
            None => SplitHint::Insert { index: 0, key, value_bytes: value.len() },
        };
        let split = leaf.choose_split(hint);
        assert!(split.separator.len() <= max_key_bytes(leaf.bytes().len()));
        let mut right = new_page(leaf.bytes().len());
        leaf.split_into(&split, &mut right);
        assert_clean(&leaves[at]);
        assert_clean(&right);
        leaves.insert(at + 1, right);
    }
    panic!("splitting does not end");
}

/// The order of the sorted part survives removals, and the tail keeps its records.
#[test]
fn removals_keep_the_sorted_part_sorted() {
    let mut random = Random::new(41);
    for _ in 0..50 {
        let mut page = new_leaf(4096, Some(b"key:"), Some(b"key;"));
        let mut model = Model::new();
        for step in 0..100 {
            let key = format!("key:{:04}", random.below(10_000)).into_bytes();
            put(&mut page, &key, &[step]).unwrap();
            model.insert(key, vec![step]);
            if step == 60 {
                FingerprintLeafMut::new(&mut page).sort();
            }
        }
        while !model.is_empty() {
            let before = (view(&page).count(), sorted_count(&page));
            let place = random.below(before.0);
            let key = key_at(&page, place);
            FingerprintLeafMut::new(&mut page).remove(place);
            let sorted = before.1 - usize::from(place < before.1);
            assert_eq!((view(&page).count(), sorted_count(&page)), (before.0 - 1, sorted));
            assert!(model.remove(&key).is_some());
            assert_holds(&page, &model);
        }
        assert_eq!(heap_live(&page), 0);
    }
}

/// Keys that zeros make hard to tell apart: every one of at most five bytes of a small alphabet.
#[test]
fn short_keys_keep_their_order() {
    let mut keys = vec![vec![]];
    let mut from = 0;
    for _ in 0..5 {
        let until = keys.len();
        for i in from..until {
            keys.extend([0u8, 1, 255].map(|byte| [&keys[i][..], &[byte]].concat()));
        }
        from = until;
    }
    let mut random = Random::new(43);
    for at in (1..keys.len()).rev() {
        keys.swap(at, random.below(at + 1));
    }
    for value in [&b""[..], b"\0\0\0\0\0\0\0\0", b"\xff\xff\xff\xff\xff\xff\xff\xff"] {
        let mut page = new_leaf(16384, None, None);
        let mut model = Model::new();
        for key in &keys {
            put(&mut page, key, value).unwrap();
            model.insert(key.clone(), value.to_vec());
        }
        assert_holds(&page, &model);
        FingerprintLeafMut::new(&mut page).sort();
        assert_holds(&page, &model);
    }
}

/// Integers around the places where their top bits change, and values that change size.
#[test]
fn integers_and_changing_values() {
    let mut random = Random::new(47);
    for around in [0u64, 1 << 31, (1 << 32) - 1, 1 << 63] {
        for width in [4, 8] {
            let mut page = new_leaf(4096, None, None);
            let mut model = Model::new();
            for step in 0..600 {
                let number = around.wrapping_add(random.below(80) as u64).wrapping_sub(40);
                let key = number.to_be_bytes()[8 - width..].to_vec();
                let value = vec![step as u8; [0, 1, 8, 8, 20, 300][random.below(6)]];
                if put(&mut page, &key, &value).is_ok() {
                    model.insert(key, value);
                } else if let Some(place) = view(&page).find(&key) {
                    FingerprintLeafMut::new(&mut page).remove(place);
                    model.remove(&key);
                }
                if step % 20 == 0 {
                    assert_holds(&page, &model);
                }
            }
        }
    }
}

#[test]
fn a_leaf_filled_in_ascending_order_stays_sorted() {
    let mut page = new_leaf(4096, None, None);
    for number in 0..100u32 {
        put(&mut page, &number.to_be_bytes(), b"value").unwrap();
        assert!(view(&page).is_sorted());
    }
    put(&mut page, &[0, 0, 0, 5, 5], b"value").unwrap();
    put(&mut page, &[9; 4], b"value").unwrap();
    assert_eq!((sorted_count(&page), view(&page).count()), (100, 102));
    let before = page.clone();
    FingerprintLeafMut::new(&mut page).sort();
    assert_eq!(view(&page).count(), 102);
    assert!(view(&page).is_sorted() && before != page);
    // What is sorted is left alone.
    let before = page.clone();
    FingerprintLeafMut::new(&mut page).sort();
    assert!(before == page);
}

#[test]
fn wide_slots_come_with_a_long_record_and_go_with_a_split() {
    let mut page = new_leaf(4096, None, None);
    for number in 0..=10u32 {
        put(&mut page, &number.to_be_bytes(), &[7; 255]).unwrap();
    }
    assert!(!is_wide(&page));
    put(&mut page, &5u32.to_be_bytes(), &[7; 256]).unwrap();
    assert!(is_wide(&page));
    assert_clean(&page);
    let place = view(&page).find(&5u32.to_be_bytes()).unwrap();
    FingerprintLeafMut::new(&mut page).update(place, b"short").unwrap();
    put(&mut page, &[b'k'; 300], b"").unwrap();
    let mut leaf = FingerprintLeafMut::new(&mut page);
    let split = leaf.choose_split(SplitHint::Middle);
    let mut right = new_page(4096);
    leaf.split_into(&split, &mut right);
    assert_clean(&page);
    assert_clean(&right);
    assert!(!is_wide(&page) && is_wide(&right));
}

#[test]
fn a_suffix_of_256_bytes_makes_slots_wide() {
    for (len, wide) in [(255, false), (256, true)] {
        let mut page = new_leaf(4096, None, None);
        put(&mut page, &vec![b'k'; len], b"v").unwrap();
        assert_eq!(is_wide(&page), wide);
        assert_clean(&page);
    }
    // A merge that gives a byte of the prefix back.
    let key = [b"a1".as_slice(), &[b'k'; 254]].concat();
    let mut left = new_leaf(4096, Some(b"a0"), Some(b"a5"));
    let mut right = new_leaf(4096, Some(b"a5"), Some(b"b"));
    put(&mut left, &key, b"v").unwrap();
    put(&mut right, b"a6", b"w").unwrap();
    assert!(!is_wide(&left) && !is_wide(&right));
    FingerprintLeafMut::new(&mut left).merge(&right).unwrap();
    assert!(is_wide(&left));
    assert_holds(&left, &Model::from([(key, b"v".to_vec()), (b"a6".to_vec(), b"w".to_vec())]));
}
