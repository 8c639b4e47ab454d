//! Conversions to and from comparison leaves, and leaves built out of records.

use super::*;
use crate::node::fields::{LAST_INSERT, RUN, u16_at};
use crate::node::fingerprint::{comparison_to_fingerprint, fingerprint_to_comparison};
use crate::node::tests::leaf::put as put_comparison;
use crate::node::tests::{assert_holds as assert_comparison, new_leaf as new_comparison};
use crate::node::{Node, NodeMut, Records};
use crate::page::header::NEWEST_LSN;

#[test]
fn conversions_there_and_back_keep_every_record() {
    for (seed, page_bytes) in [(81, 512), (82, 4096), (83, 65536)] {
        let back = (0..10).filter(|round| there_and_back(seed * 100 + round, page_bytes)).count();
        assert!(back >= 5, "only {back} of 10 leaves were converted back");
    }
}

/// False if the leaf did not fit any more on the way back.
fn there_and_back(seed: u64, page_bytes: usize) -> bool {
    let mut random = Random::new(seed);
    let (lower, upper) = random.fences(page_bytes);
    let mut page = new_comparison(page_bytes, lower.as_deref(), upper.as_deref());
    page[NEWEST_LSN] = 9;
    let mut model = Model::new();
    let filled = page_bytes / 4 * (1 + random.below(3));
    while Node::new(PlainBytes::new(&page)).used_bytes() < filled {
        let key = random.key_within(&page);
        let value = random.value(page_bytes, key.len());
        if put_comparison(&mut page, &key, &value).is_ok() {
            model.insert(key, value);
        }
    }
    let fences = fences_of(&page);
    let sequence = |page: &[u8]| (u16_at(page, LAST_INSERT), u16_at(page, RUN), page[NEWEST_LSN]);
    let before = sequence(&page);

    comparison_to_fingerprint(&mut page).unwrap();
    assert_holds(&page, &model);
    assert!(view(&page).is_sorted());
    assert_eq!((fences_of(&page), sequence(&page)), (fences.clone(), before));
    // With a tail, and with records that have come and gone.
    for _ in 0..8 {
        let key = random.key_within(&page);
        if put(&mut page, &key, b"new").is_ok() {
            model.insert(key, b"new".to_vec());
        }
        let key = model.keys().nth(random.below(model.len())).unwrap().clone();
        let place = view(&page).find(&key).unwrap();
        FingerprintLeafMut::new(&mut page).remove(place);
        model.remove(&key);
    }
    assert_holds(&page, &model);
    let records = view(&page).records_sorted();
    let pairs = model.iter().map(|(k, v)| (k.as_slice(), v.as_slice()));
    assert!(records.iter().eq(pairs));

    let before = page.clone();
    if fingerprint_to_comparison(&mut page).is_err() {
        assert!(before == page, "a failed conversion changed the page");
        return false;
    }
    assert_comparison(&page, &model);
    assert_eq!(fences_of(&page), fences);
    assert_eq!(page[NEWEST_LSN], 9);
    assert_eq!(fingerprint_to_comparison(&mut page.clone()), Err(NoSpace));
    true
}

#[test]
fn a_conversion_that_does_not_fit_changes_nothing() {
    let mut random = Random::new(85);
    let mut failures = 0;
    for _ in 0..20 {
        let mut page = new_leaf(4096, None, None);
        let mut model = Model::new();
        loop {
            let key = random.bytes(9);
            if put(&mut page, &key, b"12345678").is_err() {
                break;
            }
            model.insert(key, b"12345678".to_vec());
        }
        let before = page.clone();
        if fingerprint_to_comparison(&mut page).is_err() {
            assert!(before == page);
            failures += 1;
        } else {
            assert_comparison(&page, &model);
        }
    }
    assert!(failures > 0);
    // Lengths above 255 make all slots wide, of which a full page of tiny records has many.
    let mut page = new_comparison(4096, None, None);
    put_comparison(&mut page, &[0; 300], &[]).unwrap();
    for number in 0..u32::MAX {
        if put_comparison(&mut page, &number.to_be_bytes(), &[1; 6]).is_err() {
            break;
        }
    }
    let before = page.clone();
    assert_eq!(comparison_to_fingerprint(&mut page), Err(NoSpace));
    assert!(before == page);
}

#[test]
fn leaves_are_built_out_of_records_or_not_at_all() {
    let mut random = Random::new(86);
    for page_bytes in [512, 4096, 65536] {
        for _ in 0..10 {
            let mut records = Records::default();
            let mut model = Model::new();
            let used = page_bytes * (20 + random.below(100)) / 100;
            let mut sum = 0;
            while sum < used {
                let rest = random.key(max_key_bytes(page_bytes) / 4);
                let key = [b"http://".as_slice(), &rest].concat();
                let value = random.value(page_bytes, key.len());
                sum += key.len() + value.len() + 5;
                model.insert(key, value);
            }
            for (key, value) in &model {
                records.push(key, value);
            }
            assert_eq!((records.len(), records.is_empty()), (model.len(), model.is_empty()));
            let (lower, upper) = (Some(&b"http"[..]), Some(&b"http;"[..]));
            let before = new_page(page_bytes);
            let mut page = before.clone();
            let built = FingerprintLeafMut::build(&mut page, lower, upper, &records).is_ok();
            let mut other = before.clone();
            let fits = model.iter().all(|(key, value)| {
                if other == before {
                    FingerprintLeafMut::format(&mut other, lower, upper);
                }
                put(&mut other, key, value).is_ok()
            });
            assert_eq!(built, fits);
            if built {
                assert_holds(&page, &model);
            } else {
                assert!(page == before, "a failed build changed the page");
            }
            let mut page = before.clone();
            if NodeMut::build(&mut page, lower, upper, &records).is_ok() {
                assert_comparison(&page, &model);
            } else {
                assert!(page == before, "a failed build changed the page");
            }
        }
    }
}
