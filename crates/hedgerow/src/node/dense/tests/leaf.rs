//! One leaf: changes and reads against a sorted map, and what it refuses.

use super::*;

on_both! {
    changes_agree_with_a_map;
    bounds_of_any_key_agree_with_the_order;
    refusals_have_reasons_and_change_nothing;
    every_number_there_is_can_be_a_key;
}

/// Fences around a number, of several kinds: endless, of the keys' shape, shorter, of other stems.
fn fences(random: &mut Random, like: &[u8]) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let shape = KeyShape::of(like).unwrap();
    let number = u64::from(super::super::shape::numeric(like));
    let mut bound = |below: bool| -> Option<Vec<u8>> {
        let apart = 1 + random.below(700) as u64;
        let number = if below { number.checked_sub(apart) } else { number.checked_add(apart) };
        let number = number.filter(|number| *number < shape.end());
        let mut key = number.map(|number| shape.key(number as u32));
        match random.below(5) {
            0 => None,
            1 => key.map(|mut key| {
                key.push(7);
                key
            }),
            2 => {
                if let Some(key) = &mut key {
                    key.truncate(key.len() - 1);
                }
                key
            }
            3 if below => Some(Vec::new()),
            3 => Some([like, b"\xff".as_slice()].concat()),
            _ => key,
        }
    };
    let lower = bound(true).filter(|lower| lower.as_slice() < like);
    (lower, bound(false).filter(|upper| upper.as_slice() >= like))
}

fn changes_agree_with_a_map<V: DenseLayout>() {
    for (seed, page_bytes) in [(1, 512), (2, 1024), (3, 4096), (4, 65536)] {
        for round in 0..40 {
            changes::<V>(seed * 100 + round, page_bytes);
        }
    }
}

fn changes<V: DenseLayout>(seed: u64, page_bytes: usize) {
    let mut random = Random::new(seed);
    let stem = random.stem();
    let width = if stem.is_empty() { 1 + random.below(4) } else { 4 };
    let number = random.number().to_be_bytes();
    let like = [stem.as_slice(), &number[4 - width..]].concat();
    let longest = max_record_bytes(page_bytes) - like.len();
    let value_len = [0, 1, 8, 8, 100][random.below(5)].min(longest);
    let (lower, upper) = fences(&mut random, &like);
    let bounds = (lower.as_deref(), upper.as_deref());
    let mut page = new_leaf::<V>(page_bytes, bounds, &like, value_len);
    assert_holds::<V>(&page, &Model::new());
    let shape = KeyShape::of(&like).unwrap();
    let mut model = Model::new();
    let (mut refused, mut taken) = (0, 0);
    for step in 0..500 {
        let near = random.below(900) as u64;
        let number = u64::from(view::<V>(&page).base()) + near;
        let mut key = shape.key((number % shape.end()) as u32);
        if random.below(10) == 0 {
            key = random.stray(shape);
        }
        if !comparison(&page).covers(&key) || key.len() > longest {
            continue;
        }
        let value = random.value::<V>(value_len, longest.min(page_bytes / 4));
        let value = if random.below(40) == 0 { random.bytes(longest.min(3)) } else { value };
        if key.len() + value.len() > max_record_bytes(page_bytes) {
            continue;
        }
        let before = page.clone();
        let place = view::<V>(&page).find(&key);
        assert_eq!(place.is_some(), model.contains_key(&key), "step {step}");
        let mut leaf = DenseMut::<V>::new(&mut page);
        let result = match place {
            Some(place) if random.below(3) == 0 => {
                leaf.remove(place);
                model.remove(&key);
                continue;
            }
            Some(place) => leaf.update(place, &value),
            None => leaf.insert(&key, &value),
        };
        match result {
            Ok(()) => {
                assert!(shape.has(&key));
                model.insert(key, value);
                taken += 1;
            }
            Err(reason) => {
                assert!(before == page, "a refused change changed the page");
                refused += 1;
                let sized = V::ONE_SIZE && value.len() != value_len;
                assert!(sized || reason != Refused::ValueLength);
                assert_eq!(reason == Refused::KeyLength, key.len() != like.len());
                assert!(reason != Refused::NoSpace || !V::ONE_SIZE);
            }
        }
        if step % 16 == 0 || page_bytes == 512 {
            assert_holds::<V>(&page, &model);
        }
    }
    eprintln!("{refused} of {} refused", refused + taken);
    assert_holds::<V>(&page, &model);
}

fn bounds_of_any_key_agree_with_the_order<V: DenseLayout>() {
    for seed in 11..41 {
        let mut random = Random::new(seed);
        let stem = random.stem();
        let like = [stem.as_slice(), &random.number().to_be_bytes()].concat();
        let mut page = new_leaf::<V>(4096, (None, None), &like, 8);
        let shape = KeyShape::of(&like).unwrap();
        let mut model = Model::new();
        for _ in 0..60 {
            let number = u64::from(view::<V>(&page).base()) + random.below(300) as u64;
            let key = shape.key(number.min(shape.end() - 1) as u32);
            if DenseMut::<V>::new(&mut page).insert(&key, &[5; 8]).is_ok() {
                model.insert(key, vec![5; 8]);
            }
        }
        for _ in 0..400 {
            let key = random.stray(shape);
            let node = view::<V>(&page);
            let behind = node.next_place(node.lower_bound(&key));
            let mut found = Vec::new();
            if behind < node.capacity() {
                node.append_key(behind, &mut found);
            }
            let expected = model.range(key.clone()..).next().map(|(key, _)| key.as_slice());
            assert_eq!(expected.unwrap_or(&[]), found, "{key:?}");
            assert_eq!(node.find(&key).is_some(), model.contains_key(&key));
        }
    }
}

fn refusals_have_reasons_and_change_nothing<V: DenseLayout>() {
    let lower = [b"wiki".as_slice(), &1000u32.to_be_bytes()].concat();
    let like = [b"wiki".as_slice(), &1001u32.to_be_bytes()].concat();
    let key = |number: u32| [b"wiki".as_slice(), &number.to_be_bytes()].concat();
    let mut page = new_leaf::<V>(4096, (Some(&lower), None), &like, 8);
    assert_eq!(view::<V>(&page).base(), 1001, "the first slot is the reference key's");
    for number in 1001..1200 {
        DenseMut::<V>::new(&mut page).insert(&key(number), &[1; 8]).unwrap();
    }
    let before = page.clone();
    let refusal = |key: &[u8], value: &[u8]| {
        let mut page = before.clone();
        let result = DenseMut::<V>::new(&mut page).insert(key, value);
        assert!(result.is_ok() || page == before);
        result
    };
    assert_eq!(refusal(b"wiki", &[1; 8]), Err(Refused::KeyLength));
    assert_eq!(refusal(b"wiki\0\0\x04\xff\0", &[1; 8]), Err(Refused::KeyLength));
    assert_eq!(refusal(b"wild\0\0\x04\xff", &[1; 8]), Err(Refused::Stem));
    assert_eq!(refusal(&key(999), &[1; 8]), Err(Refused::Below));
    let far = if V::ONE_SIZE { Refused::Beyond } else { Refused::NoSpace };
    assert_eq!(refusal(&key(9000), &[1; 8]), Err(far));
    assert_eq!(refusal(&key(u32::MAX), &[1; 8]), Err(Refused::Beyond));
    let other_size = if V::ONE_SIZE { Err(Refused::ValueLength) } else { Ok(()) };
    assert_eq!(refusal(&key(1201), &[1; 500]), other_size);
    assert_eq!(refusal(&key(1201), &[1; 1953]), Err(Refused::NoSpace), "longer than any record");
    let mut leaf = DenseMut::<V>::new(&mut page);
    match leaf.update(0, &[2; 9]) {
        Err(reason) => assert!(V::ONE_SIZE && reason == Refused::ValueLength),
        Ok(()) => assert!(!V::ONE_SIZE && leaf.value(0) == [2; 9]),
    }
}

/// Slots at both ends of what four bytes, or fewer, can count.
fn every_number_there_is_can_be_a_key<V: DenseLayout>() {
    for width in 1..=4usize {
        let end = 1u64 << (8 * width);
        for first in [0, end.saturating_sub(200), (end / 2).saturating_sub(100)] {
            let numbers = first..(first + 200).min(end);
            let key = |number: u64| number.to_be_bytes()[8 - width..].to_vec();
            let lower = first.checked_sub(1).map(key);
            let like = key(first);
            let mut page = new_leaf::<V>(4096, (lower.as_deref(), None), &like, 8);
            let mut model = Model::new();
            for number in numbers.clone() {
                let value = number.to_le_bytes().to_vec();
                DenseMut::<V>::new(&mut page).insert(&key(number), &value).unwrap();
                model.insert(key(number), value);
            }
            assert_holds::<V>(&page, &model);
            // What would wrap round is not found.
            assert_eq!(view::<V>(&page).find(&key((numbers.end + 5) % end)), None);
            if first > 0 {
                assert_eq!(view::<V>(&page).find(&key(0)), None);
            }
        }
    }
}
