//! Splits and merges keep every record, and each remedy is chosen where it should be.

use super::*;
use crate::page::header::NEWEST_LSN;

on_both! {
    splits_and_merges_keep_every_record;
    a_full_leaf_keeps_all_its_slots_when_the_next_key_comes;
    keys_below_the_first_slot_get_a_leaf_of_their_own;
    few_records_become_a_comparison_leaf;
}

fn key(number: u32) -> Vec<u8> {
    [b"wiki".as_slice(), &number.to_be_bytes()].concat()
}

/// A leaf with a record for each number that fits.
fn filled<V: DenseLayout>(
    fences: (Option<&[u8]>, Option<&[u8]>),
    numbers: impl Iterator<Item = u32>,
) -> (Vec<u8>, Model, u32) {
    let mut numbers = numbers.peekable();
    let like = key(*numbers.peek().unwrap());
    let mut page = new_leaf::<V>(4096, fences, &like, 8);
    let mut model = Model::new();
    for number in numbers {
        let value = u64::from(number).to_le_bytes();
        if DenseMut::<V>::new(&mut page).insert(&key(number), &value).is_err() {
            return (page, model, number);
        }
        model.insert(key(number), value.to_vec());
    }
    panic!("the leaf never got full");
}

fn split_for<V: DenseLayout>(
    page: &mut [u8],
    key: &[u8],
    value_len: usize,
) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut leaf = DenseMut::<V>::new(page);
    let Remedy::Split(split) = leaf.choose_remedy(key, value_len) else { return None };
    let mut right = new_page(leaf.bytes().len());
    leaf.split_into(&split, &mut right, true);
    assert_clean(page);
    assert_clean(&right);
    assert_eq!(upper_fence(page), Some(split.separator.as_slice()));
    assert_eq!(lower_fence(&right), Some(split.separator.as_slice()));
    Some((right, split.separator))
}

fn a_full_leaf_keeps_all_its_slots_when_the_next_key_comes<V: DenseLayout>() {
    // The upper fence has another stem, or there is none: the leaf reaches beyond what it has slots
    // for.
    for upper in [None, Some(b"wild".as_slice())] {
        let lower = key(11);
        let fences = (Some(lower.as_slice()), upper);
        let (mut page, model, next) = filled::<V>(fences, 12..);
        page[NEWEST_LSN] = 9;
        assert_eq!(model.len(), (next - 12) as usize);
        let least = if V::ONE_SIZE { 490 } else { 355 };
        assert!(model.len() >= least, "{} records", model.len());
        let before = page.clone();
        let (mut right, separator) = split_for::<V>(&mut page, &key(next), 8).unwrap();
        assert_eq!(separator, key(next - 1));
        assert_holds::<V>(&page, &model);
        assert_eq!((kind(&right), right[NEWEST_LSN]), (V::KIND, 9));
        assert_holds::<V>(&right, &Model::new());
        DenseMut::<V>::new(&mut right).insert(&key(next), &[1; 8]).unwrap();
        assert_eq!(view::<V>(&right).base(), next, "numbers go on where they ended");
        assert_eq!(upper_fence(&right), upper);

        // Far beyond, or not a number at all: a leaf for anything.
        for stranger in [key(next + 100_000), b"wiki\xff\xff".to_vec(), b"wikj".to_vec()] {
            let mut page = before.clone();
            let (right, separator) = split_for::<V>(&mut page, &stranger, 8).unwrap();
            assert_eq!((kind(&right), separator), (PageKind::ComparisonLeaf, key(next - 1)));
            assert_holds::<V>(&page, &model);
        }
    }
}

fn keys_below_the_first_slot_get_a_leaf_of_their_own<V: DenseLayout>() {
    let numbers: Vec<u32> = (10_000..10_400).collect();
    let mut page = new_page(4096);
    NodeMut::format(&mut page, PageKind::ComparisonLeaf, 0, None, None);
    let mut records = Records::default();
    let mut model = Model::new();
    for number in numbers.iter().take(if V::ONE_SIZE { 400 } else { 340 }) {
        records.push(&key(*number), &[3; 8]);
        model.insert(key(*number), vec![3; 8]);
    }
    DenseMut::<V>::build(&mut page, None, None, &records, Growth::Up).unwrap();
    let base = view::<V>(&page).base();
    assert_eq!(base, 10_000);
    let mut left = page.clone();
    let (right, separator) = split_for::<V>(&mut left, &key(9_990), 8).unwrap();
    assert_eq!(separator, key(9_999));
    assert_holds::<V>(&right, &model);
    assert_eq!(kind(&left), V::KIND);
    DenseMut::<V>::new(&mut left).insert(&key(9_990), &[1; 8]).unwrap();
    // Longer than any separator that the leaf has room for, and above the number before the first.
    let long = [key(9_999).as_slice(), b"tail"].concat();
    let mut left = page.clone();
    if let Some((right, separator)) = split_for::<V>(&mut left, &long, 8) {
        assert!(comparison(&left).covers(&long) == (long <= separator));
        assert_eq!(view::<V>(&left).count() + view::<V>(&right).count(), model.len());
    }
    let mut left = page.clone();
    let (right, separator) = split_for::<V>(&mut left, b"wiki", 8).unwrap();
    assert_eq!((kind(&left), separator), (PageKind::ComparisonLeaf, key(9_999)));
    assert_holds::<V>(&right, &model);
}

fn few_records_become_a_comparison_leaf<V: DenseLayout>() {
    let mut page = new_leaf::<V>(4096, (None, None), &key(5), 8);
    for number in (5..100).step_by(3) {
        DenseMut::<V>::new(&mut page).insert(&key(number), &[1; 8]).unwrap();
    }
    for stranger in [key(100_000), b"a".to_vec(), b"wiki\0\0\0\x10x".to_vec()] {
        let leaf = DenseMut::<V>::new(&mut page);
        assert_eq!(leaf.choose_remedy(&stranger, 8), Remedy::ToComparison);
    }
    assert_eq!(DenseMut::<V>::new(&mut page).choose_remedy(&key(6), 20), Remedy::ToComparison);
    to_comparison::<V>(&mut page).unwrap();
    assert_clean(&page);
    assert_eq!(comparison(&page).count(), 32);
    // More than a comparison leaf holds: first a split.
    let (mut page, model, _) = filled::<V>((None, None), 5..);
    assert!(to_comparison::<V>(&mut page).is_err());
    let (right, _) = split_for::<V>(&mut page, b"wiki\0\0\0\x60x", 8).unwrap();
    assert_eq!(view::<V>(&page).count() + view::<V>(&right).count(), model.len());
}

fn splits_and_merges_keep_every_record<V: DenseLayout>() {
    for seed in 71..111 {
        let mut random = Random::new(seed);
        let page_bytes = [512, 1024, 4096][random.below(3)];
        let stem = random.stem();
        let first = random.number().min(u32::MAX - 5000);
        let like = [stem.as_slice(), &first.to_be_bytes()].concat();
        let shape = KeyShape::of(&like).unwrap();
        let value_len = 8.min(max_record_bytes(page_bytes) - like.len());
        let (lower, upper) = (shape.key(first.saturating_sub(1)), shape.key(first + 4000));
        let lower = (random.below(3) > 0 && first > 0).then_some(lower.as_slice());
        let upper = (random.below(3) > 0).then_some(upper.as_slice());
        let mut page = new_leaf::<V>(page_bytes, (lower, upper), &like, value_len);
        let mut model = Model::new();
        for _ in 0..page_bytes / 8 {
            let key = shape.key(first + random.below(page_bytes / 10) as u32);
            let value = random.value::<V>(value_len, 30.min(value_len));
            if view::<V>(&page).find(&key).is_none()
                && DenseMut::<V>::new(&mut page).insert(&key, &value).is_ok()
            {
                model.insert(key, value);
            }
        }
        let whole = page.clone();
        assert_holds::<V>(&page, &model);
        // A key within that does not go with the layout.
        let stranger = [model.keys().nth(model.len() / 3).unwrap().as_slice(), b"x"].concat();
        let Some((mut right, separator)) = split_for::<V>(&mut page, &stranger, 0) else {
            continue;
        };
        let mut low = model.clone();
        let high = low.split_off(&[separator.as_slice(), &[0]].concat());
        assert!(!low.is_empty() && !high.is_empty());
        assert_holds::<V>(&page, &low);
        assert_holds::<V>(&right, &high);
        assert_eq!((lower_fence(&page), upper_fence(&right)), (lower, upper));
        (page[NEWEST_LSN], right[NEWEST_LSN]) = (3, 4);
        let expected = can_merge::<V>(&page, &right);
        let before = page.clone();
        assert_eq!(merge::<V>(&mut page, &right), expected);
        match expected.then(|| kind(&page)) {
            None => assert!(page == before),
            Some(kind) if kind == V::KIND => {
                assert_holds::<V>(&page, &model);
                assert_eq!(page[NEWEST_LSN], 4);
                assert_eq!(lower_fence(&page), lower_fence(&whole));
                assert_eq!(upper_fence(&page), upper_fence(&whole));
            }
            Some(_) => {
                assert_clean(&page);
                assert_eq!(comparison(&page).count(), model.len());
            }
        }
    }
}
