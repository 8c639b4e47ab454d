//! Conversions there and back, and what rules them out.

use super::*;
use crate::page::header::NEWEST_LSN;

on_both! {
    conversions_keep_every_record;
    what_does_not_go_with_the_layout_is_told;
}

/// A comparison leaf that is full of these keys, and the key that found no space.
fn fill(page: &mut [u8], keys: impl Iterator<Item = Vec<u8>>, value: &[u8]) -> (Model, Vec<u8>) {
    let mut model = Model::new();
    for key in keys.take(1 << 17) {
        let at = comparison(page).search(&key);
        if at.found || !comparison(page).covers(&key) {
            continue;
        }
        if NodeMut::new(page).insert(at.index, &key, value).is_err() {
            return (model, key);
        }
        model.insert(key, value.to_vec());
    }
    panic!("the leaf never got full");
}

fn conversions_keep_every_record<V: DenseLayout>() {
    for seed in 1..60 {
        let mut random = Random::new(seed);
        let page_bytes = [512, 2048, 4096, 65536][random.below(4)];
        let stem = random.stem();
        let first = random.number().min(u32::MAX - 40_000);
        let shape_key = [stem.as_slice(), &first.to_be_bytes()].concat();
        let shape = KeyShape::of(&shape_key).unwrap();
        let lower = (random.below(2) == 0).then_some(shape_key.as_slice());
        let upper = shape.key(first + 30_000);
        let upper = (random.below(2) == 0).then_some(upper.as_slice());
        let mut page = new_page(page_bytes);
        NodeMut::format(&mut page, PageKind::ComparisonLeaf, 0, lower, upper);
        page[NEWEST_LSN] = 42;
        // Ascending with gaps, descending, or shuffled among so many that most of them come.
        let order = random.below(if stem.len() > 8 { 2 } else { 3 });
        let mut number = first + 2;
        let spread = page_bytes / 14;
        let mut keys = random.0.clone();
        let keys = std::iter::from_fn(|| {
            number = match order {
                0 => number + 1 + u32::from(keys.below(8) == 0),
                1 if number == first + 2 => first + 5000,
                1 => number - 1,
                _ => first + 2 + keys.below(spread as u64) as u32,
            };
            Some(shape.key(number))
        });
        let (model, next) = fill(&mut page, keys, &[7; 8]);
        let before = page.clone();
        let converted = DenseMut::<V>::from_comparison(&mut page, &next, 8).map(drop);
        assert_eq!(converted, Ok(()), "order {order}, {page_bytes} bytes");
        assert_eq!(kind(&page), V::KIND);
        assert_eq!(page[NEWEST_LSN], 42);
        assert_holds::<V>(&page, &model);
        to_comparison::<V>(&mut page).unwrap();
        assert_eq!(page[NEWEST_LSN], 42);
        assert_clean(&page);
        let node = comparison(&page);
        assert_eq!(node.count(), model.len());
        for (index, (key, value)) in model.iter().enumerate() {
            assert!(node.compare_key(index, key).is_eq() && node.value_equals(index, value));
        }
        assert_eq!(lower_fence(&page), lower_fence(&before));
        assert_eq!(upper_fence(&page), upper_fence(&before));
        assert_eq!(node.used_bytes(), comparison(&before).used_bytes());
    }
}

fn what_does_not_go_with_the_layout_is_told<V: DenseLayout>() {
    let key = |number: u32| number.to_be_bytes().to_vec();
    let try_with = |more: &[(&[u8], &[u8])], step: u32, next: &[u8], value_len: usize| {
        let mut page = new_page(4096);
        NodeMut::format(&mut page, PageKind::ComparisonLeaf, 0, None, None);
        for (key, value) in more {
            let index = comparison(&page).search(key).index;
            NodeMut::new(&mut page).insert(index, key, value).unwrap();
        }
        let keys = (0..).map(|i| key(100 + i * step));
        fill(&mut page, keys, &[7; 8]);
        let before = page.clone();
        let result = DenseMut::<V>::from_comparison(&mut page, next, value_len).map(drop);
        assert!(result.is_ok() || page == before, "a refused conversion changed the page");
        result
    };
    let next = key(100_000);
    assert_eq!(try_with(&[], 1, &next, 8), Ok(()));
    assert_eq!(try_with(&[], 12, &next, 8), Err(Refused::Sparse));
    assert_eq!(try_with(&[], 1, b"longer", 8), Err(Refused::KeyLength));
    assert_eq!(try_with(&[(b"\0\0\0\x65\0", &[7; 8])], 1, &next, 8), Err(Refused::KeyLength));
    assert_eq!(try_with(&[(b"\xff\xff\xff\xff", &[7; 8])], 1, &next, 8), Err(Refused::Sparse));
    let odd_value = try_with(&[(b"\0\0\0\x65", &[7; 9])], 1, &next, 8);
    assert_eq!(odd_value, if V::ONE_SIZE { Err(Refused::ValueLength) } else { Ok(()) });
    let odd_next = try_with(&[], 1, &next, 9);
    assert_eq!(odd_next, if V::ONE_SIZE { Err(Refused::ValueLength) } else { Ok(()) });

    let mut page = new_page(4096);
    NodeMut::format(&mut page, PageKind::ComparisonLeaf, 0, None, None);
    let empty = DenseMut::<V>::from_comparison(&mut page, &next, 8).map(drop);
    assert_eq!(empty, Err(Refused::Sparse));
    let (first, other) = (b"stem0000".as_slice(), b"ster0000".as_slice());
    for key in [first, other] {
        let index = comparison(&page).search(key).index;
        NodeMut::new(&mut page).insert(index, key, &[7; 8]).unwrap();
    }
    let stems = DenseMut::<V>::from_comparison(&mut page, first, 8).map(drop);
    assert_eq!(stems, Err(Refused::Stem));
    let records = comparison(&page).records_sorted();
    let built = DenseMut::<V>::build(&mut page, None, None, &records, Growth::Unknown).map(drop);
    assert_eq!(built, Err(Refused::Stem));
}
