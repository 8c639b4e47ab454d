//! Records of several leaves spread over fewer: the same records, about as many bytes in each, fences that meet.

use super::keys::Kind;
use super::*;
use crate::node::dense::Growth;
use crate::node::spread_leaves;

/// Neighbouring leaves of one layout with these records, each about so full, in sixteenths.
fn neighbours(
    layout: LeafLayout,
    page_bytes: usize,
    all: &Model,
    sixteenths: usize,
) -> Vec<Vec<u8>> {
    let mut leaves = Vec::new();
    let mut lower: Option<Vec<u8>> = None;
    let mut part = Model::new();
    let build = |part: &Model, lower: &Option<Vec<u8>>, upper: Option<&[u8]>| {
        let mut records = Records::default();
        part.iter().for_each(|(key, value)| records.push(key, value));
        let mut page = new_page(page_bytes);
        let bounds = (lower.as_deref(), upper);
        super::super::convert::build(&mut page, layout, bounds, &records, Growth::Up)
            .is_ok_and(|()| {
                part.len() <= 1 || leaf(&page).used_bytes() * 16 <= page_bytes * sixteenths
            })
            .then_some(page)
    };
    for (key, value) in all {
        let mut more = part.clone();
        more.insert(key.clone(), value.clone());
        if !part.is_empty() && build(&more, &lower, Some(key)).is_none() {
            let upper = part.keys().next_back().unwrap().clone();
            let page = build(&part, &lower, Some(&upper)).expect("it was seen to fit");
            leaves.push(page);
            lower = Some(upper);
            part.clear();
        }
        part.insert(key.clone(), value.clone());
    }
    leaves.extend(build(&part, &lower, None));
    leaves
}

fn records_in(leaves: &[Vec<u8>]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let all = leaves.iter().map(|page| records(page));
    all.flat_map(|part| part.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect::<Vec<_>>())
        .collect()
}

#[test]
fn records_are_spread_evenly_and_fences_meet() {
    let mut random = dice();
    let (mut spread_over_fewer, mut refused) = (0, 0);
    for page_bytes in [512, 4096] {
        for kind in Kind::ALL {
            for layout in [LeafLayout::Comparison, LeafLayout::Fingerprint] {
                let mut model = Model::new();
                for key in kind.keys(&mut random, page_bytes, 5 * page_bytes / 40) {
                    let value = random.below(12);
                    model.insert(key, random.bytes(value));
                }
                let leaves = neighbours(layout, page_bytes, &model, 8 + random.below(8));
                for (index, group) in leaves.windows(1 + random.below(5)).enumerate() {
                    let mut group = group.to_vec();
                    let lsn = |at: usize| 1 + ((at * 7 + index) % group.len()) as u64;
                    let newest = (0..group.len()).map(lsn).max().unwrap();
                    let lsns: Vec<u64> = (0..group.len()).map(lsn).collect();
                    group.iter_mut().zip(lsns).for_each(|(page, lsn)| set_newest_lsn(page, lsn));
                    let into = (group.len() - 1).max(1);
                    let most_bytes = page_bytes * (15 + random.below(2)) / 16;
                    let views: Vec<&[u8]> = group.iter().map(Vec::as_slice).collect();
                    let Some(spread) = spread_leaves(&views, into, most_bytes) else {
                        refused += 1;
                        continue;
                    };
                    spread_over_fewer += 1;
                    let made: Vec<Vec<u8>> = spread
                        .pages
                        .iter()
                        .map(|planned| {
                            let mut page = new_page(page_bytes);
                            crate::node::copy_node(&mut page, planned);
                            page
                        })
                        .collect();
                    assert_eq!(made.len(), into);
                    assert_eq!(records_in(&made), records_in(&group));
                    let mut lower = fences(&group[0]).0;
                    for (at, page) in made.iter().enumerate() {
                        assert_clean(page);
                        assert_eq!(LeafLayout::of(page), layout);
                        assert_eq!(newest_lsn(page), newest.to_le_bytes(), "the largest of all");
                        assert!(leaf(page).used_bytes() <= most_bytes);
                        let upper = match spread.separators.get(at) {
                            Some(separator) => Some(separator.clone()),
                            None => fences(&group[group.len() - 1]).1,
                        };
                        assert_eq!(fences(page), (lower, upper.clone()));
                        lower = upper;
                    }
                }
            }
        }
    }
    assert!(spread_over_fewer > 20 && refused > 0, "{spread_over_fewer} and {refused}");
}

#[test]
fn parts_of_records_of_one_size_differ_by_a_few() {
    let model: Model = (0..150_u32)
        .map(|n| (n.wrapping_mul(0x9E37_79B1).to_be_bytes().to_vec(), vec![7; 50]))
        .collect();
    let leaves = neighbours(LeafLayout::Comparison, 4096, &model, 11);
    let views: Vec<&[u8]> = leaves.iter().map(Vec::as_slice).collect();
    let spread = spread_leaves(&views, views.len() - 1, 4096).unwrap();
    let counts: Vec<usize> = spread.pages.iter().map(|page| leaf(page).count()).collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(most - least <= most / 4, "{counts:?}");
}

#[test]
fn leaves_that_are_no_neighbours_or_dense_or_of_two_layouts_are_refused() {
    let model: Model = (0..90_u32).map(|n| ((3 * n).to_be_bytes().to_vec(), vec![7; 20])).collect();
    let comparison = neighbours(LeafLayout::Comparison, 512, &model, 8);
    let fingerprint = neighbours(LeafLayout::Fingerprint, 512, &model, 8);
    let dense = neighbours(LeafLayout::SemiDense, 512, &model, 16);
    let refused = |leaves: &[&Vec<u8>], into| {
        let views: Vec<&[u8]> = leaves.iter().map(|leaf| leaf.as_slice()).collect();
        spread_leaves(&views, into, 512).is_none()
    };
    let [a, b, c] = [&comparison[0], &comparison[1], &comparison[2]];
    assert!(!refused(&[a, b], 2) && !refused(&[a, b, c], 3), "the same number of leaves");
    assert!(refused(&[a, c], 2), "one is left out");
    assert!(refused(&[b, a], 2), "in the wrong order");
    assert!(refused(&[a, &fingerprint[1]], 2), "two layouts");
    assert!(refused(&[], 1) && refused(&[a], 0));
    assert!(refused(&[&dense[0]], 1));
    // So many leaves that some would have no record.
    assert!(refused(&[a], 1 + leaf(a).count()));
}
