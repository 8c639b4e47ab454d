//! Trees that do not change any more: every layout against a map, and pages that no correct engine would write.

use super::super::{Beyond, FrozenTree, FrozenWalk, LeafRecords, Target, Tree};
use super::{TINY_PAGE, policies, random_key, tiny};
use crate::error::{ErrorKind, Result};
use crate::node::{LeafPolicy, load_check};
use crate::page::{FrozenPages, header};
use crate::testing::MemoryPool;
use crate::testing::environment::{effort, fresh_seed};
use crate::types::{PageId, TreeId};
use hedgerow_sync::primitive::random::SplitMix64;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow, RangeBounds};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// More than any tree here has.
const MOST_LEAVES: usize = 20_000;

/// Copies of pages, each of which has passed the check that every page gets when it is read; and what was asked for ahead and not read since,
/// last first.
#[derive(Clone, Default)]
struct Copies(BTreeMap<PageId, Vec<u8>>, RefCell<Vec<PageId>>);

impl FrozenPages for Copies {
    fn page_bytes(&self) -> usize {
        TINY_PAGE
    }

    fn read(&self, id: PageId, look: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let Some(page) = self.0.get(&id) else { return Ok(false) };
        let mut asked = self.1.borrow_mut();
        if header::level(page) == 0 && asked.pop() != Some(id) {
            // What was asked for is not what comes next: the scan is another one.
            asked.clear();
        }
        look(page);
        Ok(true)
    }

    fn read_ahead(&self, ids: &[PageId]) -> usize {
        let mut asked = self.1.borrow_mut();
        if asked.last() != ids.first() {
            *asked = ids.iter().rev().copied().collect();
        }
        ids.len()
    }
}

impl Copies {
    fn of(tree: &Tree<MemoryPool>) -> Copies {
        let mut pages = BTreeMap::new();
        let mut ids = Vec::new();
        tree.verify_with(&mut |id, _| {
            ids.push(id);
            ControlFlow::Continue(())
        })
        .unwrap();
        for id in ids {
            assert!(tree.pool().tamper(id, |page| {
                pages.insert(id, page.to_vec());
            }));
        }
        Copies(pages, RefCell::default())
    }
}

/// Some scans, which may not be endless, and look-ups. What is found is right if `model` is given.
fn use_all(
    tree: &FrozenTree<'_, Copies>,
    leaf: &mut LeafRecords,
    random: &mut SplitMix64,
    model: Option<&Model>,
) {
    for _ in 0..20 {
        let key = random_key(random, TINY_PAGE / 8);
        let mut value = Vec::new();
        match (tree.get(&key, &mut value), model) {
            (Ok(found), Some(model)) => {
                assert_eq!(found.then_some(&value), model.get(&key), "{key:?}");
            }
            (Ok(_), None) => {}
            (Err(error), model) => assert_damage(&error, model),
        }
        let bound = [Bound::Included(&key[..]), Bound::Excluded(&key), Bound::Unbounded];
        let bound = bound[random.below(3) as usize];
        for forward in [true, false] {
            match (scan(tree, leaf, bound, forward), model) {
                (Ok(found), Some(model)) => {
                    let own = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
                    let expected: Records = match forward {
                        true => {
                            model.range::<[u8], _>((bound, Bound::Unbounded)).map(own).collect()
                        }
                        false => model
                            .range::<[u8], _>((Bound::Unbounded, bound))
                            .rev()
                            .map(own)
                            .collect(),
                    };
                    assert!(found == expected, "{bound:?} {forward}");
                }
                (Ok(_), None) => {}
                (Err(error), model) => assert_damage(&error, model),
            }
        }
    }
}

fn assert_damage(error: &crate::Error, model: Option<&Model>) {
    assert!(model.is_none(), "{error}");
    let is_damage =
        matches!(error.kind(), ErrorKind::Corrupted { .. } | ErrorKind::KeyspaceDropped);
    assert!(is_damage, "{error}");
}

fn scan(
    tree: &FrozenTree<'_, Copies>,
    leaf: &mut LeafRecords,
    from: Bound<&[u8]>,
    forward: bool,
) -> Result<Records> {
    let (mut found, mut from) = (Vec::new(), from.map(<[u8]>::to_vec));
    let mut walk = FrozenWalk::default();
    for leaves in 0..MOST_LEAVES {
        match (&from, forward) {
            (Bound::Excluded(fence) | Bound::Included(fence), _) if leaves > 0 => {
                let beyond = Beyond { fence, forward, bound: None };
                tree.copy_next_records(beyond, &mut walk, leaf)?;
            }
            (Bound::Unbounded, true) => tree.copy_records(Target::Key(b""), leaf)?,
            (Bound::Unbounded, false) => tree.copy_records(Target::Last, leaf)?,
            (Bound::Excluded(key), true) => tree.copy_records(Target::Above(key), leaf)?,
            (Bound::Included(key) | Bound::Excluded(key), _) => {
                tree.copy_records(Target::Key(key), leaf)?;
            }
        }
        let mut records = Records::new();
        leaf.for_each(|key, value| {
            records.push((key.to_vec(), value.to_vec()));
            true
        });
        let within = match forward {
            true => (from, Bound::Unbounded),
            false => (Bound::Unbounded, from),
        };
        records.retain(|(key, _)| within.contains(key));
        let mut fence = Vec::new();
        let has_fence = match forward {
            true => leaf.append_upper_fence(&mut fence),
            false => {
                records.reverse();
                leaf.append_lower_fence(&mut fence)
            }
        };
        found.append(&mut records);
        if !has_fence {
            return Ok(found);
        }
        from = if forward { Bound::Excluded(fence) } else { Bound::Included(fence) };
    }
    panic!("an endless scan");
}

fn grown(policy: LeafPolicy, random: &mut SplitMix64) -> (Tree<MemoryPool>, Model) {
    let (tree, mut model) = (tiny().with_policy(policy), Model::new());
    for _ in 0..3000 {
        let key = random_key(random, tree.max_key_bytes());
        if random.below(4) == 0 {
            tree.remove(&key).unwrap();
            model.remove(&key);
        } else {
            // Of one length, so that leaves may be arrays.
            let value = vec![random.below(256) as u8; 8];
            tree.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
    (tree, model)
}

#[test]
fn every_layout_agrees_with_a_map_both_ways() {
    let mut random = SplitMix64::new(fresh_seed());
    for policy in policies() {
        let (tree, model) = grown(policy, &mut random);
        let copies = Copies::of(&tree);
        use_all(
            &FrozenTree::new(&copies, tree.id(), tree.root()),
            &mut tree.leaf_records(),
            &mut random,
            Some(&model),
        );
        let other = FrozenTree::new(&copies, TreeId(tree.id().0 + 1), tree.root());
        let error = other.get(b"key", &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KeyspaceDropped);
    }
    let empty = tiny();
    let copies = Copies::of(&empty);
    let tree = FrozenTree::new(&copies, empty.id(), empty.root());
    use_all(&tree, &mut empty.leaf_records(), &mut random, Some(&Model::new()));
}

/// Each leaf but the first few is one that was asked for before the scan came to it, and none is asked for behind the bound.
#[test]
fn a_scan_asks_for_the_leaves_that_come_next_and_no_other() {
    let mut random = SplitMix64::new(fresh_seed());
    let (tree, _) = grown(LeafPolicy::Adaptive, &mut random);
    let copies = Copies::of(&tree);
    let frozen = FrozenTree::new(&copies, tree.id(), tree.root());
    for round in 0..50 * effort() {
        let forward = random.below(2) == 0;
        let key = random_key(&mut random, TINY_PAGE / 8);
        let bound = (round % 5 > 0).then_some(&key[..]);
        let (mut walk, mut leaf) = (FrozenWalk::default(), tree.leaf_records());
        let first = if forward { Target::Key(b"") } else { Target::Last };
        frozen.copy_records(first, &mut leaf).unwrap();
        copies.1.borrow_mut().clear();
        let (mut leaves, mut asked) = (1, 0);
        loop {
            let mut fence = Vec::new();
            let has_more = match forward {
                true => leaf.append_upper_fence(&mut fence),
                false => leaf.append_lower_fence(&mut fence),
            };
            let is_over = |bound: &[u8]| match forward {
                true => bound <= fence.as_slice(),
                false => bound > fence.as_slice(),
            };
            if !has_more || bound.is_some_and(is_over) {
                break;
            }
            let is_asked = !copies.1.borrow().is_empty();
            let beyond = Beyond { fence: &fence, forward, bound };
            frozen.copy_next_records(beyond, &mut walk, &mut leaf).unwrap();
            leaves += 1;
            asked += u32::from(is_asked);
        }
        assert!(copies.1.borrow().is_empty(), "none was asked for that the scan did not come to");
        // At the end of a parent reading ahead ends, and a parent may have few children.
        assert!(leaves < 20 || asked > leaves / 4, "{asked} of {leaves}");
    }
}

#[test]
fn pages_that_cannot_be_are_damage_and_never_a_wrong_turn_for_ever() {
    let mut random = SplitMix64::new(fresh_seed());
    for policy in policies() {
        let (tree, _) = grown(policy, &mut random);
        let whole = Copies::of(&tree);
        let ids: Vec<PageId> = whole.0.keys().copied().collect();
        for _ in 0..300 * effort() {
            let mut copies = whole.clone();
            for _ in 0..=random.below(3) {
                let mut any = || ids[random.below(ids.len() as u64) as usize];
                let (a, b) = (any(), any());
                match random.below(4) {
                    // Whatever its header says, it lies where the other one lay.
                    0 => {
                        let page = copies.0.get(&b).cloned();
                        page.map(|page| copies.0.insert(a, page));
                    }
                    1 => drop(copies.0.remove(&a)),
                    2 => {
                        if let Some(page) = copies.0.get_mut(&a) {
                            page[header::LEVEL] = random.below(70) as u8;
                        }
                    }
                    _ => {
                        if let Some(page) = copies.0.get_mut(&a) {
                            let at = random.below(TINY_PAGE as u64) as usize;
                            page[at] ^= 1 << random.below(8);
                        }
                    }
                }
            }
            copies.0.retain(|_, page| load_check(page).is_ok());
            use_all(
                &FrozenTree::new(&copies, tree.id(), tree.root()),
                &mut tree.leaf_records(),
                &mut random,
                None,
            );
        }
    }
}
