//! Damaged leaves: each byte of a leaf of every layout overwritten, and its kind by that of every other
//! page. Reads of whatever comes of it are total; what the check at page-in lets pass can be changed in
//! every way without a panic.

use super::*;
use std::hint::black_box;

on_every_layout! {
    every_single_byte_overwritten_is_survived;
    every_other_kind_is_survived;
}

const SMALL: usize = 512;

/// Keys of which dense leaves are made.
fn key(number: u32) -> Vec<u8> {
    [b"st".as_slice(), &number.to_be_bytes()].concat()
}

/// A leaf of a fixed policy's layout, for the adaptive one of that which it prefers for these keys, with dead
/// bytes and room for more records.
fn sample(policy: LeafPolicy, random: &mut Random) -> Vec<u8> {
    let layout = match policy {
        LeafPolicy::Fixed(layout) => layout,
        LeafPolicy::Adaptive => LeafLayout::FullyDense,
    };
    let mut page = new_page(SMALL);
    let upper = (random.below(2) == 0).then(|| key(1_000));
    LeafMut::format(&mut page, LeafLayout::Comparison, None, upper.as_deref());
    for number in 0..16 {
        put(&mut page, &key(100 + number), &[7; 4]).unwrap();
    }
    convert(&mut page, layout).expect("these keys go with every layout");
    for _ in 0..6 {
        let place = leaf(&page).find(&key(101 + 2 * random.below(7) as u32));
        if place.found {
            leaf_mut(&mut page).remove(place.index);
        }
    }
    put(&mut page, &key(100), &[8; 4]).unwrap();
    assert_eq!(LeafLayout::of(&page), layout);
    assert_clean(&page);
    page
}

/// A key near those of the leaf, or of another shape.
fn any_key(random: &mut Random) -> Vec<u8> {
    let mut key = key(90 + random.below(40) as u32);
    match random.below(6) {
        0 => key.truncate(random.below(7)),
        1 => key.push(b'x'),
        2 => {
            let at = random.below(key.len());
            key[at] = random.below(256) as u8;
        }
        _ => {}
    }
    key
}

/// Everything that look-ups ask, of any bytes.
fn look_up_everything(page: &[u8], random: &mut Random) {
    let view = leaf(page);
    let mut out = Vec::new();
    for _ in 0..6 {
        let key = any_key(random);
        let place = view.find(&key).index;
        black_box((view.search(&key), view.as_node().covers(&key)));
        for place in [place, 0, view.end(), random.below(1 << 17)] {
            out.clear();
            view.append_value(place, &mut out);
            assert!(out.len() <= page.len());
            let mut copied = Copied::new();
            view.copy_value(place, &mut copied);
            black_box((copied, view.key_len(place), view.value_equals(place, &key)));
            view.prefetch_record(place);
        }
    }
    black_box((view.count(), view.payload_bytes(), view.used_bytes(), view.free_bytes()));
    black_box((view.has_room(b"key", 5), view.is_half_empty(100)));
}

/// A cursor's way over a private copy, both ways, which has to end.
fn scan(page: &[u8]) {
    let mut copy = page.to_vec();
    Leaf::put_in_order(&mut copy);
    let view = leaf(&copy);
    let mut buffer = vec![0; 2 * page.len()];
    let prefix = view.copy_prefix(&mut buffer);
    let mut place = view.next_place(0);
    while place < view.end() {
        let (end, value) = view.record(place, &mut buffer, prefix);
        assert!(end <= buffer.len() && value.len() <= page.len());
        let next = view.next_place(place + 1);
        assert!(next > place, "a circle");
        place = next;
    }
    let mut before = view.end();
    while let Some(place) = view.previous_place(before) {
        assert!(place < before, "a circle");
        black_box(view.record(place, &mut buffer, prefix));
        before = place;
    }
}

/// Changes of all kinds, as a tree makes them.
fn change_everything(page: &[u8], random: &mut Random) {
    let mut page = page.to_vec();
    for _ in 0..10 {
        let policy = match random.below(5) {
            which @ 0..4 => LeafPolicy::Fixed(LeafLayout::ALL[which]),
            _ => LeafPolicy::Adaptive,
        };
        let scans = random.below(2) == 0;
        let key = any_key(random);
        match random.below(6) {
            0 => {
                let place = leaf(&page).find(&key);
                if place.found {
                    leaf_mut(&mut page).remove(place.index);
                }
            }
            1 => drop(convert(&mut page, LeafLayout::ALL[random.below(4)])),
            2 => {
                adapt(&mut page, policy, scans);
            }
            3 => {
                let right = page.clone();
                black_box(leaf(&page).may_merge(&leaf(&right), policy));
                let space = merge_leaf_space(&page, &right, policy, scans);
                let merged = merge_leaves(&mut page, &right, policy, scans);
                black_box((space, merged)).1.ok();
            }
            _ => {
                let len = random.below(max_record_bytes(SMALL) - key.len());
                let refused = put(&mut page, &key, &vec![1; len]).is_err();
                let view = leaf(&page);
                // A tree takes a leaf for damaged that refuses a record and has so few.
                if refused
                    && (view.count() > 1 || view.layout().is_dense())
                    && let Remedy::Split(split) = remedy(&mut page, &key, len, policy, scans)
                {
                    let mut right = new_page(SMALL);
                    leaf_mut(&mut page).split_into(&split, &mut right, policy, scans);
                    if random.below(2) == 0 {
                        page = right;
                    }
                }
            }
        }
    }
}

/// Uses whatever has become of a leaf. Tells whether it has passed the check at page-in.
fn survives(page: &[u8], random: &mut Random) -> bool {
    look_up_everything(page, random);
    let passes = load_check(page).is_ok();
    assert!(passes || !check(page).is_empty());
    let is_leaf = LeafLayout::ALL.iter().any(|layout| layout.kind() as u8 == page[KIND]);
    if passes && is_leaf {
        scan(page);
        change_everything(page, random);
    }
    passes
}

fn every_single_byte_overwritten_is_survived(policy: LeafPolicy) {
    let mut random = dice();
    let mut passed = 0;
    for _ in 0..2 {
        let clean = sample(policy, &mut random);
        for at in 0..clean.len() {
            for byte in [clean[at] ^ 0x01, clean[at] ^ 0x80, !clean[at], 0, 0xff] {
                let mut page = clean.clone();
                page[at] = byte;
                passed += usize::from(survives(&page, &mut random));
            }
        }
    }
    assert!(passed > SMALL, "only {passed} damaged leaves got as far as the changes");
}

fn every_other_kind_is_survived(policy: LeafPolicy) {
    let mut random = dice();
    for round in 0..400 {
        let clean = sample(policy, &mut random);
        for kind in (0..=8).chain([0x7f, 0x80, 0xff]) {
            let mut page = clean.clone();
            page[KIND] = kind;
            // Another leaf's fields may stand in the way of the check: some of them are changed, too.
            for _ in 0..round % 4 {
                page[36 + random.below(92)] = random.below(256) as u8;
            }
            survives(&page, &mut random);
        }
    }
}
