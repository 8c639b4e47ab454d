//! Arbitrary bytes: reads are total over anything, writes over whatever passes the check at
//! page-in.

use super::*;
use crate::node::fingerprint::fingerprint_to_comparison;
use crate::page::header::{KIND, LEVEL, PageKind};
use std::hint::black_box;

/// Every function of the read side.
fn read_everything(page: &[u8], random: &mut Random) {
    let leaf = view(page);
    let mut out = Vec::new();
    let mut buffer = [0; 96];
    for _ in 0..4 {
        let key = random.key(200);
        let found = leaf.find(&key);
        assert!(found.is_none_or(|place| place < leaf.count()));
        assert!(leaf.candidate(&key).is_none_or(|place| place < leaf.count()));
        let position = leaf.search(&key);
        assert!(position.index <= leaf.count());
        let beyond = random.below(1 << 16);
        for place in [0, found.unwrap_or(1), position.index, leaf.count(), beyond] {
            out.clear();
            leaf.append_key(place, &mut out);
            leaf.append_suffix(place, &mut out);
            leaf.append_value(place, &mut out);
            assert!(out.len() <= 4 * page.len());
            let mut copied = Copied::new();
            leaf.copy_value(place, &mut copied);
            black_box((leaf.key_len(place), leaf.value_len(place), leaf.value(place)));
            black_box((copied, leaf.value_equals(place, &key), leaf.compare_key(place, &key)));
            let (end, _) = leaf.record(place, &mut buffer, random.below(100));
            assert!(end <= buffer.len());
            leaf.prefetch_record(place);
        }
    }
    black_box((leaf.as_node().covers(&[]), leaf.as_node().kind(), leaf.bytes().len()));
    black_box((leaf.used_bytes(), leaf.free_bytes(), leaf.payload_bytes(), leaf.is_sorted()));
    leaf.prefetch();
}

/// Every function of the write side, on a page that passes the check at page-in.
fn change_everything(page: &[u8], random: &mut Random) {
    let longest = max_key_bytes(page.len());
    let mut page = page.to_vec();
    for _ in 0..24 {
        let count = view(&page).count();
        let key = random.key(longest);
        let value = random.value(page.len(), key.len());
        let mut leaf = FingerprintLeafMut::new(&mut page);
        match random.below(9) {
            0 if count > 0 => leaf.remove(random.below(count)),
            1 | 2 if count > 0 => {
                let place = random.below(count);
                leaf.update(place, &value).ok();
                black_box(leaf.value(place).len());
            }
            3 if count > 1 => {
                let hint = match random.below(2) {
                    0 => SplitHint::Middle,
                    _ => SplitHint::Insert {
                        index: random.below(1 << 16),
                        key: &key,
                        value_bytes: value.len(),
                    },
                };
                let split = leaf.choose_split(hint);
                black_box(leaf.fits_split(&split));
                let mut right = new_page(page.len());
                FingerprintLeafMut::new(&mut page).split_into(&split, &mut right);
                if random.below(2) == 0 {
                    page = right;
                } else {
                    let space = merge_space(&page, &right);
                    let merged = FingerprintLeafMut::new(&mut page).merge(&right);
                    assert_eq!(merged.is_ok(), space <= page.len());
                }
            }
            4 => {
                let other = page.clone();
                black_box(FingerprintLeafMut::new(&mut page).merge(&other)).ok();
            }
            5 => leaf.sort(),
            6 => {
                black_box(view(&page).records_sorted().len());
                black_box(fingerprint_to_comparison(&mut page.clone())).ok();
            }
            _ => drop(leaf.insert(&key, &value)),
        }
    }
}

/// A page with some content, sorted in part, and with dead bytes on its heap.
fn sample(random: &mut Random, page_bytes: usize) -> Vec<u8> {
    let (lower, upper) = random.fences(page_bytes);
    let mut page = new_leaf(page_bytes, lower.as_deref(), upper.as_deref());
    let sorted_until = random.below(page_bytes / 24 + 1);
    for step in 0..page_bytes / 24 {
        let key = random.key_within(&page);
        let value = random.value(page_bytes, key.len());
        put(&mut page, &key, &value).ok();
        if step % 7 == 6 {
            let place = random.below(view(&page).count());
            FingerprintLeafMut::new(&mut page).remove(place);
        }
        if step == sorted_until {
            FingerprintLeafMut::new(&mut page).sort();
        }
    }
    assert_eq!(check(&page), []);
    page
}

/// Changes some bytes, preferring those that matter.
fn damage(random: &mut Random, page: &mut [u8]) {
    for _ in 0..1 + random.below(4) {
        let at = match random.below(4) {
            0 => 32 + random.below(32),
            1 | 2 => 64 + random.below(page.len() / 4),
            _ => random.below(page.len()),
        };
        page[at] = match random.below(4) {
            0 => 0,
            1 => 0xff,
            2 => page[at] ^ 1 << random.below(8),
            _ => random.below(256) as u8,
        };
    }
}

#[test]
fn reads_of_any_bytes_end() {
    for page_bytes in [512, 4096, 65536] {
        let mut random = Random::new(91 + page_bytes as u64);
        for round in 0..100 {
            let mut page = random.bytes(page_bytes);
            if round % 2 == 0 {
                page[KIND] = PageKind::FingerprintLeaf as u8;
                page[LEVEL] = 0;
            }
            if round % 4 == 0 {
                // Fingerprints that all agree with the empty suffix, which keys without the prefix
                // have.
                page[64..page_bytes / 2].fill(fingerprint(&[]));
            }
            read_everything(&page, &mut random);
            let defects = check(&page);
            assert!(!defects.is_empty() || load_check(&page).is_ok());
        }
    }
    // Lengths that are no page at all.
    let mut random = Random::new(92);
    for len in [0, 1, 35, 36, 63, 64, 127, 128, 129, 511, 513] {
        let bytes = random.bytes(len);
        read_everything(&bytes, &mut random);
        assert_eq!(check(&bytes), [Defect::PageSize(len)]);
        assert_eq!(load_check(&bytes), Err(Defect::PageSize(len)));
    }
}

#[test]
fn changes_of_a_page_that_passes_never_panic() {
    let mut random = Random::new(93);
    let mut passed = 0;
    for round in 0..400 {
        let page_bytes = [512, 512, 1024, 4096][round % 4];
        let clean = sample(&mut random, page_bytes);
        change_everything(&clean, &mut random);
        for _ in 0..8 {
            let mut page = clean.clone();
            damage(&mut random, &mut page);
            read_everything(&page, &mut random);
            let passes = load_check(&page).is_ok();
            assert!(passes || !check(&page).is_empty());
            if passes {
                passed += 1;
                change_everything(&page, &mut random);
            }
        }
    }
    assert!(passed > 300, "only {passed} damaged pages got as far as the changes");
}

#[test]
fn every_single_byte_changed_is_survived() {
    let mut random = Random::new(94);
    for _ in 0..4 {
        let clean = sample(&mut random, 512);
        for at in 8..clean.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut page = clean.clone();
                page[at] ^= change;
                read_everything(&page, &mut random);
                if load_check(&page).is_ok() {
                    change_everything(&page, &mut random);
                } else {
                    assert!(!check(&page).is_empty());
                }
            }
        }
    }
}
