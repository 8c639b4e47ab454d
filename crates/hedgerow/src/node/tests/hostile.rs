//! Arbitrary bytes: reads are total over anything, writes over whatever passes the check at page-in.

use super::*;
use crate::page::header::{KIND, LEVEL};
use std::hint::black_box;

/// Every function of the read side.
fn read_everything(page: &[u8], random: &mut Random) {
    let node = view(page);
    let mut out = Vec::new();
    for _ in 0..4 {
        let key = random.key(200);
        let position = node.search(&key);
        assert!(position.index <= node.count());
        let child = node.child_for(&key);
        assert!(child.index <= node.count());
        black_box((node.child_above(&key), node.covers(&key)));
        let beyond = random.below(1 << 16);
        for index in [0, position.index, node.count(), beyond] {
            out.clear();
            node.append_key(index, &mut out);
            node.append_value(index, &mut out);
            assert!(out.len() <= 3 * page.len());
            let mut copied = Copied::new();
            node.copy_value(index, &mut copied);
            black_box((node.key_len(index), node.value_len(index), node.child_at(index)));
            black_box((copied, node.value_equals(index, &key)));
            black_box(node.compare_key(index, &key));
            node.prefetch_record(index);
        }
    }
    out.clear();
    black_box((node.append_lower_fence(&mut out), node.append_upper_fence(&mut out)));
    assert!(out.len() <= 2 * page.len());
    black_box((node.kind(), node.level(), node.newest_lsn(), node.payload_bytes()));
    black_box((node.used_bytes(), node.free_bytes(), node.prefix_len()));
    node.prefetch();
}

/// Every function of the write side, on a page that passes the check at page-in.
fn change_everything(page: &[u8], random: &mut Random) {
    let longest = max_key_bytes(page.len());
    let inner = page[KIND] == PageKind::Inner as u8;
    let mut page = page.to_vec();
    for _ in 0..24 {
        let count = view(&page).count();
        let key = random.key(longest);
        let value = random.value(page.len(), key.len());
        let index = random.below(count + 1);
        let mut node = NodeMut::new(&mut page);
        match random.below(8) {
            0 if count > 0 && inner => node.remove_child(random.below(count)),
            0 if count > 0 => node.remove(random.below(count)),
            1 | 2 if count > 0 && !inner => {
                let index = random.below(count);
                node.update(index, &value).ok();
                black_box(node.value(index).len());
            }
            3 if count > 1 => {
                let hint = match random.below(3) {
                    0 => SplitHint::Middle,
                    1 => SplitHint::Insert { index: count, key: &key, value_bytes: value.len() },
                    _ => SplitHint::Insert { index, key: &key, value_bytes: value.len() },
                };
                let split = node.choose_split(hint);
                let mut right = new_page(page.len());
                NodeMut::new(&mut page).split_into(&split, &mut right);
                if random.below(2) == 0 {
                    page = right;
                } else {
                    let space = merge_space(&page, &right);
                    let merged = NodeMut::new(&mut page).merge(&right);
                    assert_eq!(merged.is_ok(), space <= page.len());
                }
            }
            4 => {
                let other = page.clone();
                black_box(NodeMut::new(&mut page).merge(&other)).ok();
            }
            _ if inner => {
                let fits = node.fits_separator(key.len());
                let result = node.insert_child(index, &key, PageId(4));
                assert!(result.is_ok() == fits || view(&page).prefix_len() > key.len());
            }
            _ => drop(node.insert(index, &key, &value)),
        }
    }
}

/// A page with some content, and with dead bytes on its heap.
fn sample(random: &mut Random, page_bytes: usize) -> Vec<u8> {
    let (lower, upper) = random.fences(page_bytes);
    let mut page = new_page(page_bytes);
    let inner = random.below(3) == 0;
    let (kind, level) = if inner { (PageKind::Inner, 1) } else { (PageKind::ComparisonLeaf, 0) };
    NodeMut::format(&mut page, kind, level, lower.as_deref(), upper.as_deref())
        .set_child(0, PageId(if inner { 4 } else { 0 }));
    for step in 0..page_bytes / 24 {
        let key = random.key_within(&page);
        let value = random.value(page_bytes, key.len());
        let position = view(&page).search(&key);
        let child = view(&page).child_for(&key);
        let mut node = NodeMut::new(&mut page);
        if inner {
            if fences_of(node.bytes()).1.as_ref() != Some(&key)
                && node.as_node().child_above(&key).index == child.index
            {
                node.insert_child(child.index, &key, PageId(4)).ok();
            }
        } else if position.found {
            node.update(position.index, &value).ok();
        } else {
            node.insert(position.index, &key, &value).ok();
        }
        if step % 7 == 6 && !inner {
            let count = view(&page).count();
            NodeMut::new(&mut page).remove(random.below(count));
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
            1 => 128 + random.below(page.len() / 4),
            2 => 64 + random.below(64),
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
                page[KIND] = 1 + random.below(2) as u8;
                page[LEVEL] = 2 - page[KIND];
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
