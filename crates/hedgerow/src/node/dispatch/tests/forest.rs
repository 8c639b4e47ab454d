//! A row of leaves that is split and merged as a tree does it, but for inner nodes: keys of every kind
//! come and go, and each leaf holds what it should after each step. And how much work that takes.

use super::keys::Kind;
use super::*;

on_every_layout! {
    leaves_agree_with_a_map;
    leaves_agree_with_a_map_while_the_policy_changes;
    work_grows_no_faster_than_the_records;
    values_that_change_their_length_again_and_again_do_not_convert_each_time;
}

/// What was done for want of room, or of records.
#[derive(Clone, Copy, Default, Debug)]
struct Work {
    conversions: usize,
    splits: usize,
    merges: usize,
}

/// Which layouts leaves have had.
type Seen = [bool; LeafLayout::ALL.len()];

/// Leaves in the order of their keys, whose fences meet.
struct Forest {
    policy: LeafPolicy,
    scans: bool,
    page_bytes: usize,
    pages: Vec<Vec<u8>>,
    model: Model,
    work: Work,
    changes: usize,
    seen: Seen,
}

/// A record is in place after at most so many remedies: of each of two halvings by the largest records a
/// few, and conversions between.
const MOST_REMEDIES: usize = 12;

impl Forest {
    fn new(policy: LeafPolicy, page_bytes: usize) -> Self {
        let mut page = new_page(page_bytes);
        LeafMut::format(&mut page, policy.empty(), None, None);
        set_newest_lsn(&mut page, 1234);
        let (model, work) = (Model::new(), Work::default());
        let (pages, seen) = (vec![page], Seen::default());
        Forest { policy, scans: false, page_bytes, pages, model, work, changes: 0, seen }
    }

    fn locate(&self, key: &[u8]) -> usize {
        self.pages.partition_point(|page| !leaf(page).as_node().is_within_upper(key))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        for _ in 0..MOST_REMEDIES {
            let at = self.locate(key);
            let page = &mut self.pages[at];
            let place = leaf(page).find(key);
            assert_eq!(place.found, self.model.contains_key(key));
            let has_room = leaf(page).has_room(key, value.len());
            let before = if has_room { Records::default() } else { records(page) };
            if put(page, key, value).is_ok() {
                self.model.insert(key.to_vec(), value.to_vec());
                self.check(at);
                return;
            }
            assert!(!has_room, "it was seen to have room");
            assert!(records(page) == before, "a refused record has changed something");
            self.remedy(at, key, value.len(), &before);
        }
        panic!("no room for a record after {MOST_REMEDIES} remedies");
    }

    fn remedy(&mut self, at: usize, key: &[u8], value_len: usize, before: &Records) {
        let page = &mut self.pages[at];
        let (bounds, lsn) = (fences(page), newest_lsn(page));
        match remedy(page, key, value_len, self.policy, self.scans) {
            Remedy::Converted => {
                self.work.conversions += 1;
                assert!(records(page) == *before);
                assert_eq!((fences(page), newest_lsn(page)), (bounds, lsn));
                self.assert_holds(at);
            }
            Remedy::Split(split) => {
                self.work.splits += 1;
                let separator = Some(split.separator().to_vec());
                let mut right = new_page(self.page_bytes);
                leaf_mut(page).split_into(&split, &mut right, self.policy, self.scans);
                assert_eq!(fences(page), (bounds.0, separator.clone()));
                assert_eq!(fences(&right), (separator, bounds.1));
                assert_eq!((newest_lsn(page), newest_lsn(&right)), (lsn, lsn));
                let (left_records, right_records) = (records(page), records(&right));
                assert!(left_records.iter().chain(right_records.iter()).eq(before.iter()));
                self.pages.insert(at + 1, right);
                self.assert_holds(at);
                self.assert_holds(at + 1);
            }
        }
    }

    fn remove(&mut self, key: &[u8]) {
        let at = self.locate(key);
        let page = &mut self.pages[at];
        let place = leaf(page).find(key);
        assert_eq!(place.found, self.model.remove(key).is_some());
        if !place.found {
            return;
        }
        leaf_mut(page).remove(place.index);
        self.check(at);
        let view = leaf(&self.pages[at]);
        if view.payload_bytes() < view.free_bytes() {
            for left in [at.wrapping_sub(1), at] {
                if left < self.pages.len() && left + 1 < self.pages.len() && self.merge(left) {
                    break;
                }
            }
        }
    }

    /// Merges a leaf with its right neighbour if they fit; whatever was said before is kept.
    fn merge(&mut self, at: usize) -> bool {
        let (left, right) = self.pages.split_at_mut(at + 1);
        let (left, right) = (&mut left[at], &right[0]);
        let space = merge_leaf_space(left, right, self.policy, self.scans);
        let old = left.clone();
        let bounds = (fences(left).0, fences(right).1);
        let lsn = header_lsn(left).max(header_lsn(right));
        match merge_leaves(left, right, self.policy, self.scans) {
            Ok(()) => {
                let used = leaf(left).used_bytes();
                assert!(space <= self.page_bytes, "it fits, and was said not to");
                assert!(used <= space, "{used} bytes used, {space} foretold");
                assert_eq!(fences(left), bounds);
                assert_eq!(header_lsn(left), lsn);
                self.pages.remove(at + 1);
                self.work.merges += 1;
                self.assert_holds(at);
                true
            }
            Err(NoSpace) => {
                assert!(space > self.page_bytes, "it was said to fit");
                assert!(*left == old, "a failed merge has changed something");
                false
            }
        }
    }

    fn check(&mut self, at: usize) {
        // Large pages take long to look through.
        self.changes += 1;
        if self.changes.is_multiple_of((self.page_bytes / 1024).max(1)) {
            assert_clean(&self.pages[at]);
        }
        self.seen[LeafLayout::of(&self.pages[at]) as usize] = true;
    }

    #[track_caller]
    fn assert_holds(&mut self, at: usize) {
        let (lower, upper) = fences(&self.pages[at]);
        let lower = lower.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let upper = upper.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Included);
        self.seen[LeafLayout::of(&self.pages[at]) as usize] = true;
        assert_holds(&self.pages[at], self.model.range((lower, upper)));
    }

    fn note_seen(&self, seen: &mut Seen) {
        for (seen, also) in seen.iter_mut().zip(self.seen) {
            *seen |= also;
        }
    }

    fn assert_all(&mut self) {
        for at in 0..self.pages.len() {
            self.assert_holds(at);
        }
    }
}

fn header_lsn(page: &[u8]) -> u64 {
    u64::from_le_bytes(newest_lsn(page))
}

/// So many keys of one kind fill some leaves, and numbers among them are dense.
fn keys_for(page_bytes: usize) -> usize {
    match page_bytes {
        512 => 250,
        4096 => 350,
        _ => 400,
    }
}

/// Random changes of all keys of a kind: phases of growth and of shrinkage, so that density falls again.
fn change(forest: &mut Forest, kind: Kind, keys: &[Vec<u8>], steps: usize, random: &mut Random) {
    for step in 0..steps {
        let key = &keys[random.below(keys.len())];
        let grows = (step * 4 / steps).is_multiple_of(2);
        if random.below(16) < if grows { 15 } else { 4 } {
            let value = kind.value(random, forest.page_bytes, key);
            forest.put(key, &value);
        } else {
            forest.remove(key);
        }
        if step % 400 == 0 {
            forest.assert_all();
        }
    }
    forest.assert_all();
}

/// All keys of a kind, with values of one size: as dense as these numbers can be.
fn fill(forest: &mut Forest, keys: &[Vec<u8>]) {
    for key in keys {
        let room = max_record_bytes(forest.page_bytes) - key.len();
        let len = Kind::usual_len(forest.page_bytes).min(room);
        forest.put(key, &vec![3; len]);
    }
    forest.assert_all();
}

fn leaves_agree_with_a_map(policy: LeafPolicy) {
    let mut random = dice();
    let mut seen = Seen::default();
    let mut conversions = 0;
    for page_bytes in PAGES {
        let mut work = Work::default();
        for kind in Kind::ALL {
            let keys = kind.keys(&mut random, page_bytes, keys_for(page_bytes));
            let mut forest = Forest::new(policy, page_bytes);
            change(&mut forest, kind, &keys, 3 * keys.len(), &mut random);
            fill(&mut forest, &keys);
            for key in &keys {
                forest.remove(key);
            }
            forest.assert_all();
            assert_eq!(forest.model.len(), 0);
            forest.note_seen(&mut seen);
            work.splits += forest.work.splits;
            work.merges += forest.work.merges;
            conversions += forest.work.conversions;
        }
        assert!(work.splits > 10 && work.merges > 10, "{page_bytes}: {work:?}");
    }
    assert!(
        policy.dense().is_none() || conversions > 0,
        "no leaf became dense, or none was any more"
    );
    // Comparison, fingerprint, semi-dense, fully dense.
    let expected = match policy {
        LeafPolicy::Fixed(LeafLayout::Comparison) => [true, false, false, false],
        LeafPolicy::Fixed(LeafLayout::Fingerprint) => [false, true, false, false],
        LeafPolicy::Fixed(LeafLayout::SemiDense) => [true, false, true, false],
        LeafPolicy::Fixed(LeafLayout::FullyDense) => [true, false, false, true],
        LeafPolicy::Adaptive => [true, true, false, true],
    };
    assert_eq!(seen, expected, "which layouts leaves have had");
}

/// The policy, and whether scans are common, change again and again, and leaves of all layouts meet.
fn leaves_agree_with_a_map_while_the_policy_changes(first: LeafPolicy) {
    let mut random = dice();
    let policies = LeafLayout::ALL.map(LeafPolicy::Fixed).into_iter().chain([LeafPolicy::Adaptive]);
    let policies = policies.cycle().skip_while(|policy| *policy != first);
    let mut seen = Seen::default();
    // One round nearly always has leaves of all layouts; with seed 4922259801073296335 it does not.
    for _ in 0..6 {
        for page_bytes in [512, 4096] {
            for kind in Kind::ALL {
                let keys = kind.keys(&mut random, page_bytes, keys_for(page_bytes));
                let mut forest = Forest::new(first, page_bytes);
                for policy in policies.clone().take(7) {
                    forest.policy = policy;
                    forest.scans = random.below(2) == 0;
                    change(&mut forest, kind, &keys, 120, &mut random);
                    fill(&mut forest, &keys);
                }
                forest.note_seen(&mut seen);
            }
        }
        if seen == [true; 4] {
            return;
        }
    }
    panic!("which layouts leaves have had: {seen:?}");
}

/// Twice the records take about twice the conversions and splits, however they come: sorted, the other
/// way round, in no order, and from partitions that interleave. Not so keys of any length: of these a
/// leaf holds four or a hundred.
fn work_grows_no_faster_than_the_records(policy: LeafPolicy) {
    let mut random = dice();
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::AnyLength) {
        for order in 0..3 {
            let work_of = |random: &mut Random, count: usize| {
                let mut keys = kind.keys(random, 4096, count);
                match order {
                    0 => keys.sort(),
                    1 => keys.sort_by(|a, b| b.cmp(a)),
                    _ => {}
                }
                let mut forest = Forest::new(policy, 4096);
                for key in &keys {
                    let len = (max_record_bytes(4096) - key.len()).min(16);
                    forest.put(key, &[5; 16][..len]);
                }
                forest.assert_all();
                (forest.work, keys.len())
            };
            let (once, few) = work_of(&mut random, 250);
            let (twice, many) = work_of(&mut random, 500);
            let sum = |work: Work| (work.splits + work.conversions) as f64;
            let bound = sum(once) * (many as f64 / few as f64) * 1.5 + 8.0;
            assert!(sum(twice) < bound, "{kind:?} {order}: {once:?} of {few}, {twice:?} of {many}");
        }
    }
}

/// A leaf that refuses a value for its length becomes another one, but not at each change.
fn values_that_change_their_length_again_and_again_do_not_convert_each_time(policy: LeafPolicy) {
    let mut random = dice();
    for kind in Kind::ALL.into_iter().filter(|kind| kind.is_dense()) {
        let mut forest = Forest::new(policy, 4096);
        let mut keys = kind.keys(&mut random, 4096, 500);
        keys.sort();
        for key in &keys {
            forest.put(key, &[1; 8]);
        }
        let leaves = forest.pages.len();
        let before = forest.work;
        const STEPS: usize = 3_000;
        for _ in 0..STEPS {
            let key = keys[random.below(keys.len())].clone();
            let len = 7 + random.below(3);
            forest.put(&key, &[2; 9][..len]);
        }
        forest.assert_all();
        let work =
            forest.work.conversions - before.conversions + forest.work.splits - before.splits;
        assert!(work <= 8 * leaves, "{kind:?}: {work} for {STEPS} steps on {leaves} leaves");
    }
}
