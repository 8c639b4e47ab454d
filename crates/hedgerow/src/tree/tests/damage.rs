//! Damage: `verify` finds what is planted, and no operation panics or runs for ever on bytes that no
//! correct engine would write.

use super::super::{CompactBudget, Tree, TreeDefect};
use super::{TINY_PAGE, assert_clean, policies, random_key, tiny};
use crate::error::ErrorKind;
use crate::node::{self, LeafLayout, LeafPolicy, NodeMut};
use crate::page::Frames;
use crate::page::header;
use crate::testing::MemoryPool;
use crate::types::{PageId, TreeId};
use hedgerow_sync::primitive::random::SplitMix64;
use std::ops::ControlFlow;

type TinyTree = Tree<MemoryPool>;

fn grown() -> TinyTree {
    grown_with(LeafPolicy::Adaptive)
}

fn grown_with(policy: LeafPolicy) -> TinyTree {
    let tree = tiny().with_policy(policy);
    for number in 0..2_000_u32 {
        tree.put(format!("key/{number:05}").as_bytes(), &number.to_be_bytes()).unwrap();
    }
    tree
}

/// Strings, and integers of which dense leaves are made.
fn grown_mixed(policy: LeafPolicy) -> TinyTree {
    let tree = grown_with(policy);
    for number in 0..1_000_u32 {
        tree.put(&number.to_be_bytes(), &[3; 7]).unwrap();
    }
    tree
}

/// Pages by level: leaves first.
fn pages(tree: &TinyTree) -> Vec<Vec<PageId>> {
    let mut pages = Vec::new();
    tree.verify_with(&mut |id, _| {
        pages.push(id);
        ControlFlow::Continue(())
    })
    .unwrap();
    let mut levels = Vec::new();
    for id in pages {
        let mut level = 0;
        assert!(tree.pool().tamper(id, |page| level = usize::from(header::level(page))));
        if levels.len() <= level {
            levels.resize(level + 1, Vec::new());
        }
        levels[level].push(id);
    }
    levels
}

/// Plants one defect, sees that it is found where it is, and nothing else is.
fn plant(level: usize, change: impl FnOnce(&mut [u8]), expected: impl Fn(&TreeDefect) -> bool) {
    // Defects are planted by functions of comparison leaves.
    let tree = grown_with(LeafPolicy::Fixed(LeafLayout::Comparison));
    assert_clean(&tree);
    let levels = pages(&tree);
    assert!(levels.len() >= 3);
    let victim = levels[level][levels[level].len() / 2];
    assert!(tree.pool().tamper(victim, change));
    let findings = tree.verify().unwrap();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].page, victim);
    assert!(findings[0].defects.iter().any(expected), "{findings:?}");
}

#[test]
fn verify_names_a_wrong_page_id_a_wrong_tree_and_a_wrong_level() {
    for level in [0, 1] {
        plant(
            level,
            |page| page[header::PAGE_ID] ^= 1,
            |defect| matches!(defect, TreeDefect::PageId(_)),
        );
        plant(
            level,
            |page| page[header::TREE_ID] ^= 1,
            |defect| *defect == TreeDefect::TreeId(TreeId(6)),
        );
    }
    plant(
        1,
        |page| page[header::LEVEL] = 2,
        |defect| *defect == TreeDefect::Level { found: 2, expected: 1 },
    );
}

#[test]
fn verify_finds_fences_that_are_not_the_parents_separators() {
    // The leaf is whole in itself, but one record has gone to a neighbour that does not exist.
    let narrow = |page: &mut [u8]| {
        let mut right = vec![0; page.len()];
        let mut node = NodeMut::new(page);
        let split = node.choose_split(node::SplitHint::Middle);
        node.split_into(&split, &mut right);
    };
    plant(0, narrow, |defect| *defect == TreeDefect::UpperFence);
    plant(1, narrow, |defect| *defect == TreeDefect::UpperFence);
}

#[test]
fn walks_that_come_to_a_leaf_which_ends_too_early_are_told_of_damage() {
    let walks: [fn(&TinyTree) -> crate::error::Result<()>; 2] = [
        |tree| tree.remove_range(b"key/", None).map(drop),
        |tree| {
            let budget = CompactBudget::default();
            tree.compact(&budget, &mut |_| ControlFlow::Continue(())).map(drop)
        },
    ];
    // Also of leaves that a merge would have put together, damage and all.
    for (walk, stays) in walks.iter().flat_map(|walk| [1, 3].map(|stays| (walk, stays))) {
        let tree = grown_with(LeafPolicy::Fixed(LeafLayout::Comparison));
        for number in (0..2_000_u32).filter(|number| number % stays > 0) {
            assert!(tree.remove(format!("key/{number:05}").as_bytes()).unwrap());
        }
        let leaves = &pages(&tree)[0];
        let narrow = |page: &mut [u8]| {
            let mut right = vec![0; page.len()];
            let mut node = NodeMut::new(page);
            let split = node.choose_split(node::SplitHint::Middle);
            node.split_into(&split, &mut right);
        };
        assert!(tree.pool().tamper(leaves[leaves.len() / 2], narrow));
        let error = walk(&tree).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupted { .. }), "{error}");
    }
}

#[test]
fn verify_finds_defects_inside_of_nodes() {
    for level in [0, 1] {
        // A hint that is not the head that it stands for.
        plant(level, |page| page[64] ^= 0x55, |defect| matches!(defect, TreeDefect::Node(_)));
        // A count that is one too high.
        plant(level, |page| page[36] += 1, |defect| matches!(defect, TreeDefect::Node(_)));
    }
    // A head whose most significant bit puts the first key behind all others.
    plant(0, |page| page[131] ^= 0x80, |defect| matches!(defect, TreeDefect::Node(_)));
}

#[test]
fn operations_report_a_child_of_the_wrong_level() {
    let tree = grown();
    let leaf = pages(&tree)[0][0];
    tree.pool().tamper(leaf, |page| page[header::LEVEL] = 1);
    let corrupted = |error: crate::Error| {
        assert_eq!(error.kind(), ErrorKind::Corrupted { page: Some(leaf), offset_bytes: None })
    };
    corrupted(tree.get(b"key/00000").unwrap_err());
    corrupted(tree.put(b"key/00000", b"").unwrap_err());
    corrupted(tree.remove(b"key/00000").unwrap_err());
    let mut cursor = tree.scan();
    corrupted(cursor.next_record().unwrap_err());
    // A cursor stays failed, in both directions.
    corrupted(cursor.previous_record().unwrap_err());
    cursor.seek(b"key/01999");
    corrupted(cursor.next_record().unwrap_err());
    corrupted(tree.get_many(&[b"key/01000", b"key/00000"]).unwrap_err());
    // What lies elsewhere is still there.
    assert!(tree.contains_key(b"key/01999").unwrap());
}

#[test]
fn a_child_out_of_range_is_damage() {
    let tree = grown();
    let parent = pages(&tree)[1][0];
    tree.pool().tamper(parent, |page| {
        NodeMut::new(page).set_child(0, PageId(0x7fff_ff05));
    });
    for error in [
        tree.get(b"key/00000").unwrap_err(),
        tree.put(b"key/00000", b"").unwrap_err(),
        tree.scan().next_record().unwrap_err(),
    ] {
        assert!(matches!(error.kind(), ErrorKind::Corrupted { .. }), "{error}");
    }
    let findings = tree.verify().unwrap();
    assert_eq!(findings.len(), 1, "{findings:?}");
}

#[test]
fn cycles_and_shared_children_end() {
    let mut random = SplitMix64::new(crate::testing::environment::fresh_seed());
    for _ in 0..20 {
        let tree = grown();
        let levels = pages(&tree);
        // An inner node gets some other page of the right level, or its own ancestor, for a child.
        let level = 1 + random.below(levels.len() as u64 - 1) as usize;
        let pick = |random: &mut SplitMix64, pages: &[PageId]| {
            pages[random.below(pages.len() as u64) as usize]
        };
        let parent = pick(&mut random, &levels[level]);
        let from = if random.below(2) == 0 { level - 1 } else { levels.len() - 1 };
        let child = pick(&mut random, &levels[from]);
        tree.pool().tamper(parent, |page| {
            let mut node = NodeMut::new(page);
            let index = random.below(node.as_node().count() as u64 + 1) as usize;
            node.set_child(index, child);
        });
        use_all(&tree, &mut random);
    }
}

#[test]
fn bytes_that_pass_the_load_check_never_make_an_operation_panic() {
    let seed = crate::testing::environment::fresh_seed();
    let mut random = SplitMix64::new(seed);
    for policy in policies().cycle().take(40) {
        let tree = grown_mixed(policy);
        if let LeafPolicy::Fixed(layout) = policy {
            assert!(tree.stats().unwrap().leaves_of(layout).pages > 10, "{policy:?}");
        }
        let all: Vec<_> = pages(&tree).concat();
        for _ in 0..8 {
            let victim = all[random.below(all.len() as u64) as usize];
            tree.pool().tamper(victim, |page| {
                let before = page.to_vec();
                for _ in 0..=random.below(3) {
                    let at = header::HEADER_BYTES as u64;
                    let at = at + random.below(TINY_PAGE as u64 - at);
                    page[at as usize] = random.next_u64() as u8;
                }
                // What a page-in would refuse does not get into memory.
                if node::load_check(page).is_err() {
                    page.copy_from_slice(&before);
                }
            });
        }
        use_all(&tree, &mut random);
    }
}

/// Uses a tree that may be damaged in every way; results and errors are free, but it has to end.
fn use_all(tree: &TinyTree, random: &mut SplitMix64) {
    for _ in 0..300 {
        let key = match random.below(3) {
            0 => random_key(random, tree.max_key_bytes()),
            1 => (random.below(1_100) as u32).to_be_bytes().to_vec(),
            _ => format!("key/{:05}", random.below(2_000)).into_bytes(),
        };
        let _ = tree.get(&key);
        let _ = tree.put(&key, &[1; 7]);
        let _ = tree.compare_and_swap(&key, Some(&[1; 7]), Some(&[2; 9]));
        let _ = tree.remove(&key);
        let _ = tree.get_many(&[&key, b"key/00100".as_slice()]);
    }
    // Every leaf moves on: more steps than records were ever there mean a circle.
    let mut cursor = tree.scan();
    let mut steps = 0;
    while let Ok(Some(_)) = cursor.next_record() {
        steps += 1;
        assert!(steps < 1_000_000, "a scan in circles");
    }
    cursor.seek_to_end();
    while let Ok(Some(_)) = cursor.previous_record() {
        steps += 1;
        assert!(steps < 1_000_000, "a scan in circles");
    }
    let _ = tree.verify();
    let _ = tree.stats();
    let _ = tree.drop_pages();
    assert!(tree.pool().page_bytes() == TINY_PAGE);
}
