//! Commits at one stroke: against a map, under threads, where leaves have no room, and when a thread unwinds.

use super::super::{
    AskFile, Fences, FromFile, Judge, Read, ReadSet, Stroke, Tree, Write, piece_bytes,
};
use super::model::{Model, compare, random_value};
use super::{TINY_PAGE, assert_clean, evict, of_leaves, policies, random_key};
use crate::error::{Error, ErrorKind, Result};
use crate::node::{Leaf, LeafPolicy};
use crate::page::header;
use crate::testing::MemoryPool;
use crate::types::{Lsn, TreeId};
use crate::wait::{Wait, Waiting};
use crate::wal::commit_id;
use hedgerow_sync::optimistic::PageBytes;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::{self, SplitMix64};
use hedgerow_sync::primitive::thread;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

type Logged = Tree<MemoryPool>;
type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

fn logged(pool: MemoryPool, policy: LeafPolicy) -> Logged {
    Tree::create_with(Arc::new(pool), TreeId(7), policy).unwrap().with_log()
}

fn tiny() -> Logged {
    logged(MemoryPool::new(TINY_PAGE, 1 << 16), LeafPolicy::default())
}

fn writes_of<'w>(tree: &'w Logged, changes: &'w Changes) -> Vec<Write<'w, MemoryPool>> {
    changes.iter().map(|(key, value)| Write { tree, key, value: value.as_deref() }).collect()
}

fn commit_within(
    tree: &Logged,
    changes: &Changes,
    most_leaves: usize,
    waiting: &Waiting<'_>,
) -> Result<Option<Lsn>> {
    let writes = writes_of(tree, changes);
    let stroke = Stroke { id: commit_id(1), log_bytes: piece_bytes(&writes), most_leaves };
    stroke.make(&writes, None, waiting)
}

fn commit(tree: &Logged, changes: &Changes) -> Lsn {
    commit_within(tree, changes, usize::MAX, &Waiting::Forever).unwrap().unwrap()
}

#[test]
fn commits_agree_with_a_map_under_every_policy() {
    let seed = random::seed();
    println!("seed {seed}");
    let mut random = SplitMix64::new(seed);
    for (policy, absences) in policies().flat_map(|policy| [(policy, false), (policy, true)]) {
        let pool = match absences {
            true => MemoryPool::with_absences(TINY_PAGE, 1 << 16, 30, seed),
            false => MemoryPool::new(TINY_PAGE, 1 << 16),
        };
        let tree = logged(pool, policy);
        let mut model = Model::new();
        for round in 0..120_u32 {
            let mut changes = Changes::new();
            // From a few to so many that a leaf takes a part of them, near each other or anywhere.
            let near = random.below(900) as u32;
            for _ in 0..1 + random.below([3, 12, 80][round as usize % 3]) {
                let key = match random.below(4) {
                    0 => random_key(&mut random, tree.max_key_bytes() - 4),
                    1 => (random.below(900) as u32).to_be_bytes().to_vec(),
                    _ => (near + random.below(60) as u32).to_be_bytes().to_vec(),
                };
                let value = (random.below(4) > 0).then(|| random_value(&mut random, &tree, &key));
                changes.insert(key, value);
            }
            let lsn = commit(&tree, &changes);
            assert_eq!(lsn, tree.pool().appended(), "one stroke is one LSN");
            for (key, value) in changes {
                if value.is_some() {
                    assert_eq!(stamp_once_there(&tree, &key), lsn);
                }
                match value {
                    Some(value) => model.insert(key, value),
                    None => model.remove(&key),
                };
            }
            if round % 10 == 0 {
                compare(&tree, &model, &mut random);
                assert_clean(&tree);
            }
        }
        compare(&tree, &model, &mut random);
        assert_clean(&tree);
    }
}

/// The newest LSN of a leaf, which may be pretended to be absent.
fn stamp_once_there(tree: &Logged, key: &[u8]) -> Lsn {
    loop {
        tree.get(key).unwrap();
        if let Ok(leaf) = tree.leaf_for(key) {
            return Lsn(leaf.bytes().u64_at(header::NEWEST_LSN));
        }
    }
}

#[test]
fn a_thousand_records_come_between_two_at_one_stroke() {
    for policy in policies() {
        let tree = logged(MemoryPool::new(TINY_PAGE, 1 << 16), policy);
        tree.put(b"a", b"first").unwrap();
        tree.put(b"z", b"last").unwrap();
        let key = |number: u32| [b"m".as_slice(), &number.to_be_bytes()].concat();
        let changes: Changes = (0..1000).map(|number| (key(number), Some(vec![7; 20]))).collect();
        // Nobody else is there, so there is nothing to be waited for.
        let made = commit_within(&tree, &changes, usize::MAX, &Wait::Never.begin()).unwrap();
        assert_eq!(made, Some(tree.pool().appended()));
        assert_eq!(tree.pool().appended(), Lsn(3), "{policy:?}");
        for number in 0..1000 {
            assert_eq!(tree.get(&key(number)).unwrap().as_deref(), Some(&[7; 20][..]));
        }
        assert_clean(&tree);
    }
}

/// Room is made in all of them before the commit looks at its leaves again: there would be as many looks at all as there are leaves, and a
/// call that may not wait is asked after a few of them.
#[test]
fn a_record_for_each_of_many_full_leaves_comes_without_waiting() {
    let tree = tiny();
    for number in 0..3000_u32 {
        tree.put(&(2 * number).to_be_bytes(), &[1; 20]).unwrap();
    }
    let (mut changes, mut last) = (Changes::new(), None);
    for number in 0..3000_u32 {
        let key = (2 * number + 1).to_be_bytes().to_vec();
        let page = tree.leaf_for(&key).ok().unwrap();
        if last.replace(page.id()) != Some(page.id())
            && !Leaf::new(page.bytes()).has_room(&key, 160)
        {
            changes.insert(key, Some(vec![2; 160]));
        }
    }
    assert!(changes.len() > 100, "{} leaves", changes.len());
    let made = commit_within(&tree, &changes, usize::MAX, &Wait::Never.begin()).unwrap();
    assert_eq!(made, Some(tree.pool().appended()));
    for key in changes.keys() {
        assert_eq!(tree.get(key).unwrap().as_deref(), Some(&[2; 160][..]));
    }
    assert_clean(&tree);
}

/// For each new leaf it found all of them again, and tried all changes.
#[test]
fn a_commit_of_many_records_for_one_place_looks_at_each_of_their_leaves_a_few_times() {
    let looks = |count: u32| {
        let (tree, _) = of_leaves(3);
        let key = |number: u32| [[0, 0, 0, 9], number.to_be_bytes()].concat();
        let changes = (0..count).map(|number| (key(number), Some(vec![2; 60]))).collect();
        let before = tree.pool().looks();
        commit(&tree, &changes);
        let looks = tree.pool().looks() - before;
        assert_clean(&tree);
        looks
    };
    let (few, many) = (looks(1000), looks(2000));
    println!("{few} and {many} looks");
    assert!(many < 3 * few, "{few} and {many} looks");
}

/// For each of them there is room in the leaf, so that no split for a single key ever makes room for both.
#[test]
fn two_records_that_fit_a_leaf_each_and_not_together_come_to_two_leaves() {
    let tree = tiny();
    let wait = Wait::For(Duration::from_millis(1500));
    let changes: Changes =
        [(b"a".to_vec(), Some(vec![1; 160])), (b"b".to_vec(), Some(vec![2; 160]))].into();
    tree.put(b"aa", &[0; 100]).unwrap();
    let made = commit_within(&tree, &changes, usize::MAX, &wait.begin()).unwrap();
    assert_eq!(made, Some(Lsn(2)));
    assert_eq!(tree.get(b"b").unwrap().as_deref(), Some(&[2; 160][..]));
    assert_eq!(tree.get(b"aa").unwrap().as_deref(), Some(&[0; 100][..]));
    assert_clean(&tree);
}

#[test]
fn more_leaves_than_may_be_are_refused_and_nothing_has_changed() {
    let tree = tiny();
    for number in 0..200_u32 {
        tree.put(&number.to_be_bytes(), &[1; 20]).unwrap();
    }
    let before = tree.pool().appended();
    let all: Changes =
        (0..200_u32).map(|number| (number.to_be_bytes().to_vec(), Some(vec![2; 20]))).collect();
    assert_eq!(commit_within(&tree, &all, 3, &Waiting::Forever).unwrap(), None);
    assert_eq!(tree.pool().appended(), before);
    assert_eq!(tree.get(&7_u32.to_be_bytes()).unwrap().as_deref(), Some(&[1; 20][..]));
    let too_long: Changes = [(vec![7; 400], None), (vec![8], Some(vec![1]))].into();
    let refused = commit_within(&tree, &too_long, 9, &Waiting::Forever).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::KeyTooLong { .. }), "{refused:?}");
    assert_eq!(tree.get(&[8]).unwrap(), None);
}

#[test]
fn who_unwinds_between_the_record_and_the_last_change_poisons() {
    let tree = tiny();
    for number in 0..200_u32 {
        tree.put(&number.to_be_bytes(), &[1; 20]).unwrap();
    }
    let changes: Changes =
        [3_u32, 100, 190].map(|number| (number.to_be_bytes().to_vec(), Some(vec![2; 20]))).into();
    tree.pool().panic_at_change(2);
    assert!(catch_unwind(AssertUnwindSafe(|| commit(&tree, &changes))).is_err());
    assert!(tree.pool().is_poisoned());
    tree.pool().panic_at_change(0);
    let sound = tiny();
    commit(&sound, &changes);
    assert!(!sound.pool().is_poisoned());
}

/// Two keys, in leaves of their own, always have one value: who reads the one and then the other never finds an older one there, be it
/// that a commit, a plain change of a neighbour, a split or a merge is under way.
#[test]
fn nobody_sees_half_of_a_commit() {
    const ROUNDS: u32 = 3000;
    let tree = Arc::new(tiny());
    for number in 0..200_u32 {
        tree.put(&number.to_be_bytes(), &0_u32.to_be_bytes()).unwrap();
    }
    let key = |number: u32| number.to_be_bytes().to_vec();
    let value = |tree: &Logged, number: u32| {
        let value = tree.get(&key(number)).unwrap().expect("it is never removed");
        u32::from_be_bytes(value[..].try_into().unwrap())
    };
    let writer = {
        let tree = tree.clone();
        let write = move || {
            for round in 1..=ROUNDS {
                let both = |number| (key(number), Some(round.to_be_bytes().to_vec()));
                commit(&tree, &[both(5), both(120)].into());
            }
        };
        thread::spawn_named("writer", write).unwrap()
    };
    let disturber = {
        let tree = tree.clone();
        let disturb = move || {
            for round in 0..ROUNDS {
                let near = |at: u32| [&at.to_be_bytes()[..], &round.to_be_bytes()].concat();
                tree.put(&near(5), &[3; 40]).unwrap();
                tree.put(&near(119), &[3; 40]).unwrap();
                if round >= 8 {
                    let old =
                        |at: u32| [&at.to_be_bytes()[..], &(round - 8).to_be_bytes()].concat();
                    tree.remove(&old(5)).unwrap();
                    tree.remove(&old(119)).unwrap();
                }
            }
        };
        thread::spawn_named("disturber", disturb).unwrap()
    };
    loop {
        for (first, second) in [(5, 120), (120, 5)] {
            let seen = value(&tree, first);
            let then = value(&tree, second);
            assert!(then >= seen, "{first} had {seen}, and then {second} had {then}");
        }
        if value(&tree, 5) == ROUNDS {
            break;
        }
    }
    writer.join().unwrap();
    disturber.join().unwrap();
    assert_clean(&tree);
}

/// What was read is unchanged if no leaf of it has a change above this LSN.
struct UpTo(Lsn);

impl Judge<MemoryPool> for UpTo {
    fn is_as_it_was(&self, _: &Logged, stamp: Lsn) -> bool {
        stamp <= self.0
    }

    fn read_ahead(&self, _: &Read<'_, MemoryPool>, _: &Fences) -> Result<Option<FromFile>> {
        Ok(None)
    }

    fn compare(&self, _: &[u8], read: &Read<'_, MemoryPool>, _: AskFile<'_>) -> Result<bool> {
        Err(Error::conflicting(read.tree.id(), b""))
    }
}

/// From where to where.
type Interval<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// Makes changes, if nothing of these intervals has changed since.
fn make_if_unchanged(
    tree: &Logged,
    changes: &Changes,
    intervals: &[Interval<'_>],
    since: Lsn,
    most_leaves: usize,
) -> Result<Option<Lsn>> {
    let writes = writes_of(tree, changes);
    let reads: Vec<_> =
        intervals.iter().map(|&(lower, upper)| Read { tree, lower, upper }).collect();
    let set = ReadSet { reads: &reads, judge: &UpTo(since) };
    let stroke = Stroke { id: commit_id(1), log_bytes: piece_bytes(&writes), most_leaves };
    stroke.make(&writes, Some(&set), &Waiting::Forever)
}

const ALL: Interval<'_> = (Bound::Unbounded, Bound::Unbounded);

/// It began again at the first leaf for each that was absent, and read them one by one.
#[test]
fn a_commit_that_has_read_many_leaves_looks_at_each_a_few_times_however_many_have_to_be_read() {
    let cost = |leaves: usize| {
        let (tree, ids) = of_leaves(leaves);
        evict(&tree, ids);
        let (looks, reads) = (tree.pool().looks(), tree.pool().reads());
        let changes: Changes = [(vec![0, 0, 0, 9], Some(vec![2; 60]))].into();
        let lsn = tree.pool().appended();
        let made = make_if_unchanged(&tree, &changes, &[ALL], lsn, usize::MAX).unwrap();
        assert_eq!(made, Some(tree.pool().appended()));
        assert_eq!(tree.get(&[0, 0, 0, 9]).unwrap().as_deref(), Some(&[2; 60][..]));
        (tree.pool().looks() - looks, tree.pool().reads() - reads)
    };
    let (few, many) = (cost(500), cost(1000));
    println!("{few:?} and {many:?} looks and reads");
    assert!(many.0 < 3 * few.0, "{few:?}, {many:?}");
    assert!(many.1 < 1000 / 8, "{many:?}");
}

/// Two threads count together, and have read all of the tree, whose pages come and go and are split and merged. No step is lost: a leaf that was found
/// before another one had to be read is looked at again.
#[test]
fn what_changes_while_other_leaves_are_read_is_noticed() {
    const ROUNDS: u32 = 200;
    let seed = crate::testing::environment::fresh_seed();
    let pool = MemoryPool::with_absences(TINY_PAGE, 1 << 16, 12, seed);
    let tree = Arc::new(logged(pool, LeafPolicy::default()));
    for number in 0..300_u32 {
        tree.put(&number.to_be_bytes(), &0_u32.to_be_bytes()).unwrap();
    }
    let key = |number: u32| number.to_be_bytes().to_vec();
    let count = |tree: Arc<Logged>, first: u32| {
        move || {
            for round in 0..ROUNDS {
                loop {
                    let since = tree.pool().appended();
                    let found = tree.get(&7_u32.to_be_bytes()).unwrap().unwrap();
                    let next = u32::from_be_bytes(found[..].try_into().unwrap()) + 1;
                    // Ten records come, and go again.
                    let at = first + round / 20 % 2 * 100 + round % 10;
                    let comes = (round / 10 % 2 == 0).then(|| vec![3; 120]);
                    let changes: Changes =
                        [(key(7), Some(next.to_be_bytes().to_vec())), (key(at), comes)].into();
                    match make_if_unchanged(&tree, &changes, &[ALL], since, usize::MAX) {
                        Ok(made) => break assert!(made.is_some()),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}"),
                    }
                }
            }
        }
    };
    let threads = [1000, 2000]
        .map(|first| thread::spawn_named("counts", count(tree.clone(), first)).unwrap());
    for thread in threads {
        thread.join().unwrap();
    }
    let found = tree.get(&7_u32.to_be_bytes()).unwrap().unwrap();
    assert_eq!(u32::from_be_bytes(found[..].try_into().unwrap()), 2 * ROUNDS);
    assert!(tree.pool().faults() > 100, "{}", tree.pool().faults());
    assert_clean(&tree);
}

/// While one waits for an eighth of the pool, nobody else reads a page.
#[test]
fn a_commit_asks_to_hold_as_many_leaves_as_it_has_keys_and_for_more_only_if_it_has_more() {
    const MOST: usize = 200;
    let key = |number: u32| number.to_be_bytes();
    let (few, many) = ([key(500), key(600), key(900)], [key(100), key(700)]);
    let included = |key| Bound::Included(key);
    let of_key = |key| (included(key), included(key));
    let cases: [(Vec<Interval<'_>>, Vec<usize>); 4] = [
        (few.iter().map(|key| of_key(&key[..])).collect(), vec![4]),
        (vec![(included(&few[0][..]), Bound::Excluded(&few[0][..]))], vec![3]),
        (vec![(included(&many[0][..]), included(&many[1][..]))], vec![3, MOST]),
        (vec![ALL; 1], vec![3, MOST]),
    ];
    for (reads, holds) in cases {
        let (tree, ids) = of_leaves(300);
        evict(&tree, ids);
        tree.pool().take_holds();
        let changes: Changes = [(vec![0, 0, 0, 9], Some(vec![2; 60]))].into();
        let made =
            make_if_unchanged(&tree, &changes, &reads, tree.pool().appended(), MOST).unwrap();
        assert_eq!(made.is_some(), reads != [ALL], "more leaves than may be");
        assert_eq!(tree.pool().take_holds(), holds, "{reads:?}");
        assert_clean(&tree);
    }
}
