//! Commits at one stroke over a heap of pages: a commit of two leaves beside plain readers and a plain writer, commits
//! that have each other's leaves, and commits that have read what others write.

use crate::{PAGE_BYTES, check_often, check_small};
use hedgerow::internals::error::{Error, ErrorKind, Result};
use hedgerow::internals::tree::{
    AskFile, Fences, FromFile, Judge, Read, ReadSet, Stroke, Tree, Write, piece_bytes,
};
use hedgerow::internals::types::{Lsn, TreeId};
use hedgerow::internals::wait::Waiting;
use hedgerow::internals::wal::commit_id;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::thread::spawn_named;
use hedgerow_testing::MemoryPool;
use std::ops::Bound;

type Heap = Tree<MemoryPool>;

/// In four or five leaves.
const KEYS: u32 = 40;
/// In the first leaf, and in the last.
const LOW: u32 = 2;
const HIGH: u32 = KEYS - 2;
const ROUNDS: u32 = 2;

fn heap() -> Arc<Heap> {
    let tree = Tree::create(Arc::new(MemoryPool::new(PAGE_BYTES, 64)), TreeId(7)).unwrap();
    let tree = tree.with_log();
    for number in 0..KEYS {
        tree.put(&number.to_be_bytes(), &[0; 20]).unwrap();
    }
    assert!(tree.stats().unwrap().pages() > 2, "a root and two leaves at least");
    Arc::new(tree)
}

fn value_of(round: u32) -> [u8; 20] {
    let mut value = [0; 20];
    value[..4].copy_from_slice(&round.to_be_bytes());
    value
}

fn read(tree: &Heap, number: u32) -> u32 {
    let value = tree.get(&number.to_be_bytes()).unwrap().expect("it is never removed");
    u32::from_be_bytes(value[..4].try_into().unwrap())
}

fn commit(tree: &Heap, numbers: &[u32], round: u32) -> Lsn {
    let (keys, value) = (numbers.iter().map(|number| number.to_be_bytes()), value_of(round));
    let keys: Vec<[u8; 4]> = keys.collect();
    let writes: Vec<Write<'_, _>> =
        keys.iter().map(|key| Write { tree, key, value: Some(&value) }).collect();
    let stroke = Stroke { id: commit_id(1), log_bytes: piece_bytes(&writes), most_leaves: 8 };
    stroke.make(&writes, None, &Waiting::Forever).unwrap().expect("there are few leaves")
}

#[test]
fn a_commit_of_two_leaves_is_seen_whole_or_not_at_all() {
    check_small(4, || {
        let tree = heap();
        let committer = {
            let tree = tree.clone();
            let work = move || {
                let lsns = (1..=ROUNDS).map(|round| commit(&tree, &[LOW, HIGH], round));
                assert!(lsns.is_sorted_by(|a, b| a < b));
            };
            spawn_named("committer", work).unwrap()
        };
        let writer = {
            let tree = tree.clone();
            let work = move || {
                for round in 0..ROUNDS {
                    tree.put(&(HIGH + 1).to_be_bytes(), &value_of(round)).unwrap();
                    // Now and then a leaf is split.
                    tree.put(&[&LOW.to_be_bytes()[..], &[round as u8]].concat(), &[7; 90]).unwrap();
                }
            };
            spawn_named("writer", work).unwrap()
        };
        for (one, other) in [(LOW, HIGH), (HIGH, LOW), (LOW, HIGH)] {
            let (seen, then) = (read(&tree, one), read(&tree, other));
            assert!(then >= seen, "{one} had {seen}, and then {other} had {then}");
        }
        committer.join().unwrap();
        writer.join().unwrap();
        assert_eq!([LOW, HIGH].map(|number| read(&tree, number)), [ROUNDS; 2]);
        assert!(tree.verify().unwrap().is_empty());
    });
}

#[test]
fn commits_that_wait_for_each_others_leaves_come_to_an_end() {
    check_often(1, || {
        let tree = heap();
        let committers: Vec<_> = (0..3_u32)
            .map(|thread| {
                let tree = tree.clone();
                let work = move || {
                    for round in 1..=4 {
                        // Keys of their own, in the same leaves.
                        commit(&tree, &[thread, HIGH - thread], round);
                    }
                };
                spawn_named("committer", work).unwrap()
            })
            .collect();
        for committer in committers {
            committer.join().unwrap();
        }
        for number in [0, 1, 2, HIGH, HIGH - 1, HIGH - 2] {
            assert_eq!(read(&tree, number), 4);
        }
        assert!(tree.verify().unwrap().is_empty());
    });
}

/// Who has read that a record was as in the beginning.
struct Untouched(u32);

impl Judge<MemoryPool> for Untouched {
    fn is_as_it_was(&self, _: &Heap, _: Lsn) -> bool {
        false
    }

    fn read_ahead(&self, _: &Read<'_, MemoryPool>, _: &Fences) -> Result<Option<FromFile>> {
        Ok(None)
    }

    fn compare(&self, leaf: &[u8], read: &Read<'_, MemoryPool>, _: AskFile<'_>) -> Result<bool> {
        let mut found = None;
        read.tree.records_of(leaf).for_each(|key, value| {
            if key == self.0.to_be_bytes() {
                found = Some(value[..4].to_vec());
            }
            true
        });
        match found.as_deref() {
            Some([0, 0, 0, 0]) => Ok(true),
            _ => Err(Error::new(ErrorKind::Conflict, "it was touched")),
        }
    }
}

/// Writes one record, if another one is as it was in the beginning.
fn commit_if_untouched(tree: &Heap, number: u32, untouched: u32) -> Option<Lsn> {
    let (key, asked, value) = (number.to_be_bytes(), untouched.to_be_bytes(), value_of(1));
    let writes = [Write { tree, key: &key, value: Some(&value) }];
    let (lower, upper) = (Bound::Included(&asked[..]), Bound::Included(&asked[..]));
    let reads = [Read { tree, lower, upper }];
    let set = ReadSet { reads: &reads, judge: &Untouched(untouched) };
    let stroke = Stroke { id: commit_id(1), log_bytes: piece_bytes(&writes), most_leaves: 8 };
    match stroke.make(&writes, Some(&set), &Waiting::Forever) {
        Ok(lsn) => Some(lsn.expect("there are few leaves")),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict);
            None
        }
    }
}

/// Write skew: each writes what the other one has read.
#[test]
fn of_two_commits_that_have_read_what_the_other_writes_one_fails() {
    check_small(2, || {
        let tree = heap();
        let other = {
            let tree = tree.clone();
            spawn_named("other", move || commit_if_untouched(&tree, HIGH, LOW)).unwrap()
        };
        let one = commit_if_untouched(&tree, LOW, HIGH);
        let other = other.join().unwrap();
        assert!(one.is_none() || other.is_none(), "{one:?}, {other:?}");
        assert!(one.is_some() || other.is_some() || read(&tree, LOW) + read(&tree, HIGH) == 0);
    });
}

/// Who changes what a commit has read comes behind it in the order of LSNs, or the commit sees it.
#[test]
fn who_changes_what_a_commit_has_read_has_a_greater_lsn() {
    check_small(2, || {
        let tree = heap();
        let plain = {
            let tree = tree.clone();
            spawn_named("plain", move || commit(&tree, &[HIGH - 1, HIGH], 1)).unwrap()
        };
        let committed = commit_if_untouched(&tree, LOW, HIGH);
        let plain = plain.join().unwrap();
        assert!(committed.is_none_or(|committed| committed < plain), "{committed:?}, {plain:?}");
    });
}
