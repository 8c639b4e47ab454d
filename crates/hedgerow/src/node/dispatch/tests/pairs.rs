//! Conversions and merges between every two layouts, of leaves with keys of every kind.

use super::keys::Kind;
use super::*;
use crate::node::dense::Growth;
use crate::node::{gap, pack};

const LSN: u64 = 0x0102_0304_0506_0708;

/// Leaves with keys of a kind, in every layout that holds them, with and without fences.
fn leaves(kind: Kind, page_bytes: usize, random: &mut Random) -> Vec<(Vec<u8>, Model)> {
    let mut made = Vec::new();
    for share in [1, 3, 9] {
        let mut keys = kind.keys(random, page_bytes, page_bytes.min(8192) / 40);
        keys.sort();
        let from = random.below(keys.len() / 2);
        let span = (keys.len() / share).max(3).min(keys.len() - from);
        let keys = &keys[from..from + span];
        for bounded in [false, true] {
            // The first key is the lower fence, and so none of the leaf's.
            let lower = bounded.then(|| keys[0].as_slice());
            let upper = bounded.then(|| keys[keys.len() - 1].as_slice());
            let usual = random.below(12);
            let mut model = Model::new();
            for key in &keys[1..] {
                let len = if random.below(2 * keys.len()) == 0 { 3 } else { usual };
                let len = len.min(max_record_bytes(page_bytes) - key.len());
                model.insert(key.clone(), random.bytes(len));
            }
            let mut all = Records::default();
            for (key, value) in &model {
                all.push(key, value);
            }
            for layout in LeafLayout::ALL {
                let mut page = new_page(page_bytes);
                let bounds = (lower, upper);
                if super::super::convert::build(&mut page, layout, bounds, &all, Growth::Up).is_ok()
                {
                    set_newest_lsn(&mut page, LSN);
                    made.push((page, model.clone()));
                }
            }
            made.extend(unsorted(page_bytes, (lower, upper), &model, random));
        }
    }
    made
}

/// A fingerprint leaf whose records came in no order.
fn unsorted(
    page_bytes: usize,
    bounds: (Option<&[u8]>, Option<&[u8]>),
    model: &Model,
    random: &mut Random,
) -> Option<(Vec<u8>, Model)> {
    let mut page = new_page(page_bytes);
    let mut leaf = LeafMut::format(&mut page, LeafLayout::Fingerprint, bounds.0, bounds.1);
    let mut left: Vec<_> = model.iter().collect();
    while !left.is_empty() {
        let (key, value) = left.swap_remove(random.below(left.len()));
        let at = leaf.as_leaf().find(key);
        leaf.insert(at, key, value).ok()?;
    }
    set_newest_lsn(&mut page, LSN);
    Some((page, model.clone()))
}

/// Which pairs of layouts have come up.
type Seen = [[bool; 4]; 4];

#[test]
fn conversions_between_all_pairs_of_layouts_change_nothing_else() {
    let mut random = dice();
    let mut seen = Seen::default();
    let (mut failed, mut without_room) = (0, 0);
    for page_bytes in PAGES {
        for kind in Kind::ALL {
            for (page, model) in leaves(kind, page_bytes, &mut random) {
                assert_holds(&page, model.iter());
                for to in LeafLayout::ALL {
                    let from = LeafLayout::of(&page);
                    let mut other = page.clone();
                    if convert(&mut other, to).is_err() {
                        assert!(other == page, "{from:?} to {to:?} failed and has changed bytes");
                        assert_ne!(from, to);
                        failed += 1;
                        continue;
                    }
                    assert_eq!(LeafLayout::of(&other), to);
                    assert_eq!(fences(&other), fences(&page));
                    assert_eq!(newest_lsn(&other), LSN.to_le_bytes());
                    assert_holds(&other, model.iter());
                    seen[from as usize][to as usize] = true;
                    without_room += usize::from(!converts_for(&page, to, &model, &mut random));
                }
            }
        }
    }
    assert_eq!(seen, [[true; 4]; 4], "a pair that did not come up");
    assert!(failed > 0 && without_room > 0, "{failed} and {without_room}");
}

/// Half of the records of a leaf are removed, in every layout: packed, it holds the same records, and all that is free is its gap.
#[test]
fn a_packed_leaf_holds_its_records_and_its_gap_is_all_that_is_free() {
    let mut random = dice();
    let mut gained = [0; 4];
    for page_bytes in PAGES {
        for kind in Kind::ALL {
            for (mut page, mut model) in leaves(kind, page_bytes, &mut random) {
                let keys: Vec<_> = model.keys().filter(|_| random.below(2) == 0).cloned().collect();
                for key in keys {
                    let at = leaf(&page).find(&key);
                    leaf_mut(&mut page).remove(at.index);
                    model.remove(&key);
                }
                let (free, before, kept) = (gap(&page), page.clone(), fences(&page));
                pack(&mut page, page_bytes);
                assert_eq!(page, before, "removed records have fewer bytes than the page");
                pack(&mut page, 1);
                assert_holds(&page, model.iter());
                assert_eq!((fences(&page), newest_lsn(&page)), (kept, LSN.to_le_bytes()));
                let layout = LeafLayout::of(&page);
                gained[layout as usize] += gap(&page).len() - free.len();
                if matches!(layout, LeafLayout::Comparison | LeafLayout::Fingerprint) {
                    // Unless there was nothing to pack, and the array of heads has places to spare.
                    let all = gap(&page).len() == leaf(&page).free_bytes() || page == before;
                    assert!(
                        all,
                        "{layout:?}: {} of {}",
                        gap(&page).len(),
                        leaf(&page).free_bytes()
                    );
                }
                let packed = page.clone();
                pack(&mut page, 1);
                assert_eq!(page, packed);
            }
        }
    }
    let [comparison, fingerprint, semi_dense, fully_dense] = gained;
    assert!(comparison > 0 && fingerprint > 0 && semi_dense > 0, "{gained:?}");
    assert_eq!(fully_dense, 0, "a leaf without a heap");
}

/// A conversion for a record to come: it takes that record then, or nothing has changed.
fn converts_for(page: &[u8], to: LeafLayout, model: &Model, random: &mut Random) -> bool {
    let mut key = model.keys().nth(random.below(model.len())).unwrap().clone();
    key.resize(key.len() + random.below(2), 0);
    if !leaf(page).as_node().covers(&key) || key.len() > max_key_bytes(page.len()) {
        key.pop();
    }
    let room = max_record_bytes(page.len()) - key.len();
    let len = random.below(room + 1);
    let value = random.bytes(len);
    let mut other = page.to_vec();
    if convert_for(&mut other, to, &key, value.len()).is_err() {
        assert!(other == page, "a failed conversion has changed something");
        return false;
    }
    assert_eq!(LeafLayout::of(&other), to);
    assert_holds(&other, model.iter());
    let mut model = model.clone();
    put(&mut other, &key, &value).expect("it was converted to take this record");
    model.insert(key, value);
    assert_holds(&other, model.iter());
    true
}

#[test]
fn merges_of_all_pairs_of_layouts_hold_the_records_of_both() {
    let mut random = dice();
    let policies = LeafLayout::ALL.map(LeafPolicy::Fixed).into_iter().chain([LeafPolicy::Adaptive]);
    let mut seen = Seen::default();
    for page_bytes in PAGES {
        for kind in Kind::ALL {
            for (whole, model) in leaves(kind, page_bytes, &mut random) {
                if LeafLayout::of(&whole) != LeafLayout::Comparison {
                    continue;
                }
                let Some([left, right]) = halves(&whole, &model, &mut random) else { continue };
                for (from, to) in LeafLayout::ALL
                    .iter()
                    .flat_map(|from| LeafLayout::ALL.iter().map(move |to| (*from, *to)))
                {
                    let (mut l, mut r) = (left.clone(), right.clone());
                    let converted = convert(&mut l, from).is_ok() && convert(&mut r, to).is_ok();
                    if !converted {
                        continue;
                    }
                    set_newest_lsn(&mut r, LSN + 1);
                    for policy in policies.clone() {
                        let scans = random.below(2) == 0;
                        let space = merge_leaf_space(&l, &r, policy, scans);
                        let mut merged = l.clone();
                        if merge_leaves(&mut merged, &r, policy, scans).is_err() {
                            assert!(space > page_bytes, "it was said to fit");
                            assert!(merged == l, "a failed merge has changed something");
                            continue;
                        }
                        let used = leaf(&merged).used_bytes();
                        assert!(used <= space, "{from:?}, {to:?}: {used}, not {space}");
                        assert_holds(&merged, model.iter());
                        assert_eq!(fences(&merged), fences(&whole));
                        assert_eq!(newest_lsn(&merged), (LSN + 1).to_le_bytes());
                        seen[from as usize][to as usize] = true;
                    }
                }
            }
        }
    }
    assert_eq!(seen, [[true; 4]; 4], "a pair that did not come up");
}

/// Two fingerprint leaves become one, and that a comparison leaf: it takes more than they do.
#[test]
fn a_merge_into_a_larger_layout_takes_no_more_than_was_foretold() {
    let mut random = dice();
    let mut larger = 0;
    for (whole, model) in leaves(Kind::Crowd, 4096, &mut random) {
        let Some(mut pair) = halves(&whole, &model, &mut random) else { continue };
        for page in &mut pair {
            convert(page, LeafLayout::Fingerprint).unwrap();
        }
        let [mut left, right] = pair;
        let policy = LeafPolicy::Fixed(LeafLayout::Comparison);
        let before = leaf(&left).used_bytes() + leaf(&right).used_bytes();
        let space = merge_leaf_space(&left, &right, policy, false);
        if merge_leaves(&mut left, &right, policy, false).is_ok() {
            assert!(leaf(&left).used_bytes() <= space);
            larger += usize::from(leaf(&left).used_bytes() > before);
        }
    }
    assert!(larger > 0, "no merged leaf takes more: the test does not test");
}

/// Two comparison leaves that meet at a key of the leaf which they are made of; `None` if a part of it does
/// not fit beside this fence.
fn halves(whole: &[u8], model: &Model, random: &mut Random) -> Option<[Vec<u8>; 2]> {
    let keys: Vec<_> = model.keys().collect();
    let cut = keys[random.below(keys.len())];
    let (lower, upper) = fences(whole);
    let made = |lower: Option<&[u8]>, upper: Option<&[u8]>, take: &dyn Fn(&[u8]) -> bool| {
        let mut records = Records::default();
        for (key, value) in model.iter().filter(|(key, _)| take(key)) {
            records.push(key, value);
        }
        let mut page = new_page(whole.len());
        let bounds = (lower, upper);
        let layout = LeafLayout::Comparison;
        super::super::convert::build(&mut page, layout, bounds, &records, Growth::Up).ok()?;
        set_newest_lsn(&mut page, LSN);
        Some(page)
    };
    Some([
        made(lower.as_deref(), Some(cut), &|key| key <= cut.as_slice())?,
        made(Some(cut), upper.as_deref(), &|key| key > cut.as_slice())?,
    ])
}
