//! Arbitrary bytes: reads are total over anything, writes over whatever passes the check at
//! page-in.

use super::*;
use crate::node::Defect;
use crate::node::dense::fields::KEY_LEN;
use crate::page::header::KIND;
use std::hint::black_box;

on_both! {
    reads_of_any_bytes_end;
    changes_of_a_page_that_passes_never_panic;
    every_single_byte_changed_is_survived;
    comparison_leaves_in_any_order_are_survived;
    every_length_of_keys_is_survived;
}

fn read_everything<V: DenseLayout>(page: &[u8], random: &mut Random) {
    let node = view::<V>(page);
    let mut out = Vec::new();
    for _ in 0..4 {
        let len = random.below(14);
        let key = random.bytes(len);
        let bound = node.lower_bound(&key);
        assert!(bound <= node.capacity());
        let beyond = random.below(1 << 17);
        let full = view::<Full>(page);
        let mut copy = vec![0; page.len()];
        for place in full.copy_near(&key, random.below(80), random.below(2) == 0, &mut copy) {
            assert_eq!(view::<Full>(&copy).value(place), full.value(place));
        }
        for place in [0, bound, node.find(&key).unwrap_or(1), node.capacity(), beyond, usize::MAX] {
            out.clear();
            node.append_key(place, &mut out);
            node.append_value(place, &mut out);
            assert!(out.len() <= 3 * page.len() + 8);
            let mut copied = Copied::new();
            node.copy_value(place, &mut copied);
            let mut buffer = [0; 64];
            let stem = node.copy_prefix(&mut buffer);
            black_box((node.record(place, &mut buffer, stem), node.value(place)));
            black_box((node.value_len(place), node.value_equals(place, &key), copied));
            assert!(node.next_place(place) <= node.capacity());
            assert!(node.previous_place(place).is_none_or(|before| before < node.capacity()));
            black_box((node.rank(place), node.place_of_rank(place)));
            node.prefetch_record(place);
        }
    }
    black_box((node.used_bytes(), node.free_bytes(), node.payload_bytes(), node.key_len()));
    assert!(node.places().count() <= node.capacity());
    assert!(node.places().rev().count() <= node.capacity());
    node.prefetch();
}

fn key_of(page: &[u8], slot: usize) -> Vec<u8> {
    let base = super::super::fields::base(page);
    super::super::fields::shape(page).key(base.wrapping_add(slot as u32))
}

/// Every function of the write side, on a page that passes the check at page-in.
fn change_everything<V: DenseLayout>(page: &[u8], random: &mut Random) {
    let mut page = page.to_vec();
    for _ in 0..24 {
        if kind(&page) != V::KIND {
            return;
        }
        let like = key_of(&page, 0);
        let mut key = key_of(&page, random.below(700));
        if random.below(4) == 0 {
            key = random.stray(KeyShape::of(&like).unwrap());
        }
        let node = view::<V>(&page);
        let value_len = node.value_len(0);
        let value = random.value::<V>(value_len, 60);
        let places: Vec<usize> = node.places().collect();
        let place = places.get(random.below(places.len().max(1))).copied();
        let mut right = new_page(page.len());
        let mut leaf = DenseMut::<V>::new(&mut page);
        match (random.below(8), place) {
            (0, Some(place)) => leaf.remove(place),
            (1, Some(place)) => {
                leaf.update(place, &value).ok();
                black_box(leaf.value(place).len());
            }
            (2, _) => match leaf.choose_remedy(&key, random.below(30)) {
                Remedy::ToComparison => drop(to_comparison::<V>(&mut page.clone())),
                Remedy::Split(split) => {
                    leaf.split_into(&split, &mut right, true);
                    let expected = can_merge::<V>(&page, &right);
                    if random.below(2) == 0 {
                        assert_eq!(merge::<V>(&mut page, &right), expected);
                    } else if random.below(2) == 0 {
                        page = right;
                    }
                }
            },
            (3, _) => drop(to_comparison::<V>(&mut page.clone())),
            (4, _) => {
                let other = page.clone();
                black_box(merge::<V>(&mut page, &other));
            }
            _ => drop(leaf.insert(&key, &value)),
        }
    }
}

/// A page with some content.
fn sample<V: DenseLayout>(random: &mut Random, page_bytes: usize) -> Vec<u8> {
    let stem = random.stem();
    let like = [stem.as_slice(), &random.number().to_be_bytes()].concat();
    let shape = KeyShape::of(&like).unwrap();
    let upper = (random.below(2) == 0).then(|| [like.as_slice(), b"z"].concat());
    let value_len = [0, 1, 8][random.below(3)];
    let mut page = new_leaf::<V>(page_bytes, (None, upper.as_deref()), &like, value_len);
    for step in 0..page_bytes / 16 {
        let number = u64::from(view::<V>(&page).base()) + random.below(page_bytes / 8) as u64;
        let key = shape.key(number.min(shape.end() - 1) as u32);
        let value = random.value::<V>(value_len, 60.min(max_record_bytes(page_bytes) - key.len()));
        let place = view::<V>(&page).find(&key);
        let mut leaf = DenseMut::<V>::new(&mut page);
        match place {
            Some(place) if step % 3 == 0 => leaf.remove(place),
            Some(place) => drop(leaf.update(place, &value)),
            None => drop(leaf.insert(&key, &value)),
        }
    }
    assert_eq!(check(&page), []);
    page
}

fn damage(random: &mut Random, page: &mut [u8]) {
    for _ in 0..1 + random.below(4) {
        let at = match random.below(4) {
            0 => 32 + random.below(32),
            1 => 64 + random.below(page.len() / 4),
            2 => page.len() - 1 - random.below(90),
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

fn reads_of_any_bytes_end<V: DenseLayout>() {
    for page_bytes in [512, 4096, 65536] {
        let mut random = Random::new(91 + page_bytes as u64);
        for _ in 0..60 {
            let mut page = random.bytes(page_bytes);
            page[KIND] = V::KIND as u8;
            read_everything::<V>(&page, &mut random);
            let defects = check(&page);
            assert!(!defects.is_empty() || load_check(&page).is_ok());
        }
    }
    let mut random = Random::new(92);
    for len in [0, 1, 35, 36, 63, 64, 65, 127, 128, 511, 513] {
        let bytes = random.bytes(len);
        read_everything::<V>(&bytes, &mut random);
        assert_eq!(check(&bytes), [Defect::PageSize(len)]);
        assert_eq!(load_check(&bytes), Err(Defect::PageSize(len)));
    }
}

fn changes_of_a_page_that_passes_never_panic<V: DenseLayout>() {
    let mut random = Random::new(93);
    let mut passed = 0;
    for round in 0..300 {
        let page_bytes = [512, 512, 1024, 4096][round % 4];
        let clean = sample::<V>(&mut random, page_bytes);
        change_everything::<V>(&clean, &mut random);
        for _ in 0..8 {
            let mut page = clean.clone();
            damage(&mut random, &mut page);
            read_everything::<V>(&page, &mut random);
            let passes = load_check(&page).is_ok();
            assert!(passes || !check(&page).is_empty());
            if passes && kind(&page) == V::KIND {
                passed += 1;
                change_everything::<V>(&page, &mut random);
            }
        }
    }
    assert!(passed > 200, "only {passed} damaged pages got as far as the changes");
}

fn every_single_byte_changed_is_survived<V: DenseLayout>() {
    let mut random = Random::new(94);
    for _ in 0..4 {
        let clean = sample::<V>(&mut random, 512);
        for at in 8..clean.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut page = clean.clone();
                page[at] ^= change;
                read_everything::<V>(&page, &mut random);
                if load_check(&page).is_ok() && kind(&page) == V::KIND {
                    change_everything::<V>(&page, &mut random);
                }
            }
        }
    }
}

fn every_length_of_keys_is_survived<V: DenseLayout>() {
    let mut random = Random::new(96);
    for page_bytes in [1024, 4096] {
        for _ in 0..4 {
            let clean = sample::<V>(&mut random, page_bytes);
            for key_len in 0..page_bytes as u16 {
                let mut page = clean.clone();
                page[KEY_LEN..KEY_LEN + 2].copy_from_slice(&key_len.to_le_bytes());
                if load_check(&page).is_ok() {
                    change_everything::<V>(&page, &mut random);
                }
            }
        }
    }
}

/// Conversions and cuts of comparison leaves that pass their own cheap check, which says nothing of
/// order.
fn comparison_leaves_in_any_order_are_survived<V: DenseLayout>() {
    let mut random = Random::new(95);
    for _ in 0..300 {
        let mut page = new_page(1024);
        NodeMut::format(&mut page, PageKind::ComparisonLeaf, 0, None, None);
        for number in 0..60u32 {
            let key = number.to_be_bytes();
            if NodeMut::new(&mut page).insert(number as usize, &key, &[1; 4]).is_err() {
                break;
            }
        }
        for _ in 0..random.below(6) {
            let at = 128 + random.below(160);
            page[at] = random.below(256) as u8;
        }
        if crate::node::load_check(&page).is_err() {
            continue;
        }
        let key = (random.below(80) as u32).to_be_bytes();
        let index = random.below(comparison(&page).count() + 1);
        let mut node = NodeMut::new(&mut page);
        if let Some(split) = choose_cut::<V>(&node, index, &key, 4) {
            let mut right = new_page(1024);
            node.split_into(&split, &mut right);
        }
        let other = page.clone();
        black_box(merge::<V>(&mut page, &other));
        if kind(&page) == PageKind::ComparisonLeaf {
            drop(DenseMut::<V>::from_comparison(&mut page, &key, 4));
        }
    }
}
