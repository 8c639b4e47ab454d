//! A row of leaves that behaves as a tree does, at one level: what the layouts say they cannot do
//! is done with what they propose instead, until a record is in its place.

use super::*;
use crate::node::SplitHint;
use std::marker::PhantomData;

/// Leaves from left to right.
pub(super) struct Forest<V> {
    pub leaves: Vec<Vec<u8>>,
    /// Splits, merges and conversions so far.
    pub changes: usize,
    layout: PhantomData<V>,
}

impl<V: DenseLayout> Forest<V> {
    pub fn new(page_bytes: usize) -> Self {
        let mut page = new_page(page_bytes);
        NodeMut::format(&mut page, PageKind::ComparisonLeaf, 0, None, None);
        Forest { leaves: vec![page], changes: 0, layout: PhantomData }
    }

    fn leaf_for(&self, key: &[u8]) -> usize {
        self.leaves.partition_point(|leaf| !comparison(leaf).is_within_upper(key))
    }

    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let page = &self.leaves[self.leaf_for(key)];
        if kind(page) != PageKind::ComparisonLeaf {
            let node = view::<V>(page);
            return node.find(key).map(|place| node.value(place).to_vec());
        }
        let node = comparison(page);
        let at = node.search(key);
        at.found.then(|| node.value(at.index).to_vec())
    }

    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        for _ in 0..30 {
            let at = self.leaf_for(key);
            let page = &mut self.leaves[at];
            let right = match kind(page) {
                PageKind::ComparisonLeaf => match put_in_comparison::<V>(page, key, value) {
                    Ok(()) => return,
                    Err(right) => right,
                },
                _ => match put_in_dense::<V>(page, key, value) {
                    Ok(()) => return,
                    Err(right) => right,
                },
            };
            assert_clean(page);
            self.changes += 1;
            if let Some(right) = right {
                assert_clean(&right);
                self.leaves.insert(at + 1, right);
            }
        }
        panic!("no place is found for {key:?}");
    }

    pub fn remove(&mut self, key: &[u8]) -> bool {
        let at = self.leaf_for(key);
        let page = &mut self.leaves[at];
        if kind(page) == PageKind::ComparisonLeaf {
            let position = comparison(page).search(key);
            if position.found {
                NodeMut::new(page).remove(position.index);
            }
            return position.found;
        }
        let place = view::<V>(page).find(key);
        if let Some(place) = place {
            DenseMut::<V>::new(page).remove(place);
        }
        place.is_some()
    }

    /// Merges the leaf for a key with its right neighbour, if both fit into a page.
    pub fn merge_at(&mut self, key: &[u8]) {
        let at = self.leaf_for(key);
        if at + 1 < self.leaves.len() {
            let (left, right) = self.leaves.split_at_mut(at + 1);
            if merge::<V>(&mut left[at], &right[0]) {
                assert_clean(&left[at]);
                self.leaves.remove(at + 1);
                self.changes += 1;
            }
        }
    }

    /// All records, by walks over the leaves in both directions.
    #[track_caller]
    pub fn assert_holds(&self, model: &Model) {
        let mut records = model.iter();
        for (index, page) in self.leaves.iter().enumerate() {
            assert_clean(page);
            let next = self.leaves.get(index + 1).map(|next| lower_fence(next).unwrap());
            assert_eq!(upper_fence(page), next);
            let here = match kind(page) {
                PageKind::ComparisonLeaf => comparison(page).records_sorted(),
                _ => view::<V>(page).records_sorted(),
            };
            for record in here.iter() {
                let (key, value) = records.next().expect("there are too many records");
                assert_eq!(record, (key.as_slice(), value.as_slice()));
                assert!(comparison(page).covers(key));
            }
        }
        assert_eq!(records.next(), None);
    }

    pub fn count_of(&self, wanted: PageKind) -> usize {
        self.leaves.iter().filter(|page| kind(page) == wanted).count()
    }
}

type Outcome = Result<(), Option<Vec<u8>>>;

fn put_in_comparison<V: DenseLayout>(page: &mut [u8], key: &[u8], value: &[u8]) -> Outcome {
    let at = comparison(page).search(key);
    let mut node = NodeMut::new(page);
    let result = match at.found {
        true => node.update(at.index, value),
        false => node.insert(at.index, key, value),
    };
    if result.is_ok() {
        return Ok(());
    }
    if DenseMut::<V>::from_comparison(page, key, value.len()).is_ok() {
        return Err(None);
    }
    let mut node = NodeMut::new(page);
    let split = match at.found {
        true => node.choose_split(SplitHint::Middle),
        false => choose_cut::<V>(&node, at.index, key, value.len()).unwrap_or_else(|| {
            node.choose_split(SplitHint::Insert { index: at.index, key, value_bytes: value.len() })
        }),
    };
    let mut right = new_page(node.bytes().len());
    node.split_into(&split, &mut right);
    Err(Some(right))
}

fn put_in_dense<V: DenseLayout>(page: &mut [u8], key: &[u8], value: &[u8]) -> Outcome {
    let place = view::<V>(page).find(key);
    let mut leaf = DenseMut::<V>::new(page);
    let result = match place {
        Some(place) => leaf.update(place, value),
        None => leaf.insert(key, value),
    };
    if result.is_ok() {
        return Ok(());
    }
    match leaf.choose_remedy(key, value.len()) {
        Remedy::ToComparison => {
            to_comparison::<V>(page).unwrap();
            Err(None)
        }
        Remedy::Split(split) => {
            let mut right = new_page(leaf.bytes().len());
            leaf.split_into(&split, &mut right, true);
            Err(Some(right))
        }
    }
}

on_both! {
    a_row_of_leaves_agrees_with_a_map;
    density_that_falls_again_gives_pages_back;
    values_that_change_size_are_taken;
}

fn a_row_of_leaves_agrees_with_a_map<V: DenseLayout>() {
    for (seed, page_bytes) in [(1, 512), (2, 512), (3, 1024), (4, 4096), (5, 4096), (6, 16384)] {
        for round in 0..3 {
            run::<V>(seed * 10 + round, page_bytes);
        }
    }
}

/// Several sequences, clusters and strays at once, with removals and merges.
fn run<V: DenseLayout>(seed: u64, page_bytes: usize) {
    let mut random = Random::new(seed);
    let mut forest = Forest::<V>::new(page_bytes);
    let mut model = Model::new();
    let stems: Vec<Vec<u8>> = (0..3).map(|_| random.stem()).collect();
    let starts: Vec<u32> = (0..3).map(|_| random.number()).collect();
    let mut counters = [0u32; 3];
    let longest = max_record_bytes(page_bytes);
    let steps = if page_bytes == 512 { 3000 } else { 8000 };
    for step in 0..steps {
        let which = random.below(3);
        let number = match random.below(8) {
            0 => random.number(),
            1 | 2 => starts[which].wrapping_add(random.below(page_bytes) as u32),
            3 => starts[which].wrapping_sub(counters[which]),
            _ => {
                counters[which] += 1 + u32::from(random.below(9) == 0);
                starts[which].wrapping_add(counters[which])
            }
        };
        let mut key = [stems[which].as_slice(), &number.to_be_bytes()].concat();
        if random.below(60) == 0 {
            key = random.stray(KeyShape::of(&key).unwrap());
        }
        match random.below(10) {
            0 | 1 if !model.is_empty() => {
                let key = match model.range(key.clone()..).next() {
                    Some((key, _)) => key.clone(),
                    None => key,
                };
                assert_eq!(forest.remove(&key), model.remove(&key).is_some());
                if random.below(4) == 0 {
                    forest.merge_at(&key);
                }
            }
            _ => {
                let value = random.value::<V>(8, 40.min(longest - key.len()));
                let value = match random.below(200) {
                    0 => random.bytes(longest - key.len()),
                    1 => Vec::new(),
                    _ => value,
                };
                forest.put(&key, &value);
                assert_eq!(forest.get(&key).as_ref(), Some(&value), "step {step}");
                model.insert(key, value);
            }
        }
        if step % 997 == 0 {
            forest.assert_holds(&model);
        }
    }
    forest.assert_holds(&model);
    eprintln!(
        "{} leaves, {} of them dense, {} changes",
        forest.leaves.len(),
        forest.count_of(V::KIND),
        forest.changes
    );
    for key in model.keys() {
        assert!(forest.get(key).is_some());
    }
}

fn density_that_falls_again_gives_pages_back<V: DenseLayout>() {
    let mut random = Random::new(91);
    let mut forest = Forest::<V>::new(4096);
    let mut model = Model::new();
    for number in 0..20_000u32 {
        forest.put(&number.to_be_bytes(), &[6; 8]);
        model.insert(number.to_be_bytes().to_vec(), vec![6; 8]);
    }
    let dense = forest.count_of(V::KIND);
    assert!(dense + 2 >= forest.leaves.len(), "{dense} of {}", forest.leaves.len());
    // Sparser numbers behind the dense ones: no leaf of few records stays dense.
    for number in (20_000..400_000u32).step_by(100) {
        forest.put(&number.to_be_bytes(), &[6; 8]);
        model.insert(number.to_be_bytes().to_vec(), vec![6; 8]);
    }
    assert!(forest.count_of(V::KIND) <= dense + 2);
    for number in 0..20_000u32 {
        if random.below(10) > 0 {
            let key = number.to_be_bytes();
            assert!(forest.remove(&key));
            model.remove(key.as_slice());
            forest.merge_at(&key);
        }
    }
    forest.assert_holds(&model);
    for number in (0..20_000u32).step_by(40) {
        forest.merge_at(&number.to_be_bytes());
    }
    forest.assert_holds(&model);
    let pages = forest.leaves.len();
    let bytes = pages * 4096 / model.len();
    assert!(bytes < 40, "{pages} pages for {} records: {bytes} bytes each", model.len());
    for number in 0..20_000u32 {
        forest.put(&number.to_be_bytes(), &[8; 8]);
        model.insert(number.to_be_bytes().to_vec(), vec![8; 8]);
    }
    forest.assert_holds(&model);
}

fn values_that_change_size_are_taken<V: DenseLayout>() {
    let mut random = Random::new(92);
    let mut forest = Forest::<V>::new(4096);
    let mut model = Model::new();
    for step in 0..20_000u32 {
        let number = random.below(3000) as u32;
        let len = if step > 8000 { [0, 7, 8, 8, 8, 9, 130][random.below(7)] } else { 8 };
        let value = random.bytes(len);
        forest.put(&number.to_be_bytes(), &value);
        model.insert(number.to_be_bytes().to_vec(), value);
    }
    forest.assert_holds(&model);
    // Changes of layout are few for each record: nothing goes back and forth.
    assert!(forest.changes < 1000, "{} changes", forest.changes);
}
