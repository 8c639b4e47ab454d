//! What a transaction has asked for: single keys, and intervals, by tree.
//!
//! An interval that a cursor walks along grows with it. When they take too much memory, neighbouring ones become one: that
//! may make a conflict of what is none, and never hides one. Of a long key it is the place among the records of the tree that the snapshot sees (`long/view.rs`).
//! Plain data.

use crate::types::TreeId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A bound that owns its key.
pub(super) type KeyBound = Bound<Vec<u8>>;

/// Intervals that were read, in their order; no two have a key in common.
pub(super) type Intervals = Vec<(KeyBound, KeyBound)>;

/// See the head of the file.
#[derive(Clone, Default)]
pub(super) struct Reads {
    trees: BTreeMap<TreeId, Asked>,
    len_bytes: u64,
    /// How often intervals were joined.
    halved: u32,
}

/// Where an interval is that may grow.
#[derive(Clone, Copy)]
pub(super) struct Growing {
    at: usize,
    halved: u32,
}

#[derive(Clone, Default)]
struct Asked {
    keys: BTreeSet<Vec<u8>>,
    intervals: Intervals,
}

/// Bytes that an entry takes beside its keys.
const EACH_BYTES: usize = 48;

fn len_of(bound: &KeyBound) -> usize {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key.len(),
        Bound::Unbounded => 0,
    }
}

fn own(bound: Bound<&[u8]>) -> KeyBound {
    bound.map(<[u8]>::to_vec)
}

/// Where an interval begins, to be compared: a key, and whether it is left out.
pub(super) fn beginning(bound: &KeyBound) -> (&[u8], bool) {
    match bound {
        Bound::Included(key) => (key, false),
        Bound::Excluded(key) => (key, true),
        Bound::Unbounded => (&[], false),
    }
}

/// Whether an interval that begins so has no key in common with one that ends so, and lies behind it.
pub(super) fn is_behind(lower: &KeyBound, upper: &KeyBound) -> bool {
    match (lower, upper) {
        (_, Bound::Unbounded) | (Bound::Unbounded, _) => false,
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (
            Bound::Included(low) | Bound::Excluded(low),
            Bound::Included(high) | Bound::Excluded(high),
        ) => low >= high,
    }
}

/// Whether an interval that ends at `a` goes as far as one that ends at `b`, or further.
pub(super) fn is_later_end(a: &KeyBound, b: &KeyBound) -> bool {
    match (a, b) {
        (Bound::Unbounded, _) => true,
        (_, Bound::Unbounded) => false,
        (Bound::Included(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
        (Bound::Excluded(a), Bound::Excluded(b)) => a >= b,
        (Bound::Excluded(a), Bound::Included(b)) => a > b,
    }
}

fn later_end(a: KeyBound, b: KeyBound) -> KeyBound {
    if is_later_end(&a, &b) { a } else { b }
}

impl Reads {
    /// A single key.
    pub(super) fn key(&mut self, tree: TreeId, key: &[u8]) {
        let asked = self.trees.entry(tree).or_default();
        if !asked.keys.contains(key) {
            asked.keys.insert(key.to_vec());
            self.len_bytes += (key.len() + EACH_BYTES) as u64;
        }
    }

    /// An interval; where it is, for [`Self::grow`].
    pub(super) fn interval(
        &mut self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Growing {
        let interval = (own(lower), own(upper));
        self.len_bytes += (len_of(&interval.0) + len_of(&interval.1) + EACH_BYTES) as u64;
        let intervals = &mut self.trees.entry(tree).or_default().intervals;
        intervals.push(interval);
        Growing { at: intervals.len() - 1, halved: self.halved }
    }

    /// An interval that there is goes further now. Where it is from now on: it may have been joined with others.
    pub(super) fn grow(
        &mut self,
        tree: TreeId,
        growing: Growing,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Growing {
        let of_tree = self.trees.get_mut(&tree).filter(|_| growing.halved == self.halved);
        let Some(interval) = of_tree.and_then(|asked| asked.intervals.get_mut(growing.at)) else {
            return self.interval(tree, lower, upper);
        };
        for (bound, to) in [(&mut interval.0, lower), (&mut interval.1, upper)] {
            match (&mut *bound, to) {
                (Bound::Included(key), Bound::Included(to))
                | (Bound::Excluded(key), Bound::Excluded(to)) => {
                    if key.as_slice() != to {
                        key.clear();
                        key.extend_from_slice(to);
                    }
                }
                _ => *bound = own(to),
            }
        }
        growing
    }

    /// Whether nothing was asked for.
    pub(super) fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }

    /// Bytes that it takes, about.
    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// All intervals of all trees, in order; none has a key in common with another one.
    pub(super) fn all(&self) -> Vec<(TreeId, KeyBound, KeyBound)> {
        let mut all = Vec::new();
        for (tree, asked) in &self.trees {
            let one = |key: &Vec<u8>| (Bound::Included(key.clone()), Bound::Included(key.clone()));
            let mut intervals: Intervals = asked.keys.iter().map(one).collect();
            intervals.extend(asked.intervals.iter().filter(|of| !is_empty(of)).cloned());
            intervals.sort_by(|a, b| beginning(&a.0).cmp(&beginning(&b.0)));
            let mut joined: Intervals = Vec::with_capacity(intervals.len());
            for (lower, upper) in intervals {
                match joined.last_mut() {
                    Some(last) if !is_behind(&lower, &last.1) => {
                        let end = std::mem::replace(&mut last.1, Bound::Unbounded);
                        last.1 = later_end(end, upper);
                    }
                    _ => joined.push((lower, upper)),
                }
            }
            all.extend(joined.into_iter().map(|(lower, upper)| (*tree, lower, upper)));
        }
        all
    }

    /// Joins neighbours until half of the intervals are left. Those that grow are noted anew.
    pub(super) fn halve(&mut self) {
        let mut pairs: BTreeMap<TreeId, Intervals> = BTreeMap::new();
        for (tree, lower, upper) in self.all() {
            pairs.entry(tree).or_default().push((lower, upper));
        }
        self.trees.clear();
        self.len_bytes = 0;
        self.halved += 1;
        for (tree, intervals) in pairs {
            for pair in intervals.chunks(2) {
                let (first, last) = (&pair[0], &pair[pair.len() - 1]);
                let bytes = len_of(&first.0) + len_of(&last.1) + EACH_BYTES;
                self.len_bytes += bytes as u64;
                let asked = self.trees.entry(tree).or_default();
                asked.intervals.push((first.0.clone(), last.1.clone()));
            }
        }
    }
}

fn is_empty((lower, upper): &(KeyBound, KeyBound)) -> bool {
    crate::database::stretch::is_empty(lower, upper)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_sync::primitive::random::SplitMix64;
    use std::ops::RangeBounds;

    const TREE: TreeId = TreeId(7);

    fn contains(all: &[(TreeId, KeyBound, KeyBound)], tree: TreeId, key: &[u8]) -> bool {
        let bounds = |(_, lower, upper): &(TreeId, KeyBound, KeyBound)| {
            (lower.clone(), upper.clone()).contains(&key.to_vec())
        };
        all.iter().any(|interval| interval.0 == tree && bounds(interval))
    }

    #[test]
    fn what_was_read_is_there_in_order_and_once_and_never_gets_less() {
        let seed = crate::testing::environment::fresh_seed();
        let mut random = SplitMix64::new(seed);
        for _ in 0..300 {
            let mut reads = Reads::default();
            let mut asked: Vec<(TreeId, KeyBound, KeyBound)> = Vec::new();
            for _ in 0..random.below(12) {
                let tree = TreeId(3 + random.below(2) as u32);
                let bound = |random: &mut SplitMix64| {
                    let key = vec![b'a' + random.below(8) as u8; random.below(2) as usize + 1];
                    match random.below(5) {
                        0 => Bound::Unbounded,
                        1 | 2 => Bound::Included(key),
                        _ => Bound::Excluded(key),
                    }
                };
                if random.below(2) == 0 {
                    let key = vec![b'a' + random.below(8) as u8];
                    reads.key(tree, &key);
                    asked.push((tree, Bound::Included(key.clone()), Bound::Included(key)));
                } else {
                    let (lower, upper) = (bound(&mut random), bound(&mut random));
                    let place = reads.interval(
                        tree,
                        lower.as_ref().map(Vec::as_slice),
                        lower.as_ref().map(Vec::as_slice),
                    );
                    let (low, high) = (lower.as_ref(), upper.as_ref());
                    reads.grow(tree, place, low.map(Vec::as_slice), high.map(Vec::as_slice));
                    asked.push((tree, lower, upper));
                }
            }
            let all = reads.all();
            for pair in all.windows(2) {
                assert!(pair[0].0 < pair[1].0 || is_behind(&pair[1].1, &pair[0].2), "{pair:?}");
            }
            let keys: Vec<Vec<u8>> =
                (b'a'..b'i').flat_map(|c| [vec![c], vec![c, b'a'], vec![c; 2]]).collect();
            for key in &keys {
                for tree in [TreeId(3), TreeId(4), TREE] {
                    let was_asked = asked.iter().any(|(of, lower, upper)| {
                        let bounds = (lower.clone(), upper.clone());
                        *of == tree
                            && !is_empty(&bounds)
                            && RangeBounds::<Vec<u8>>::contains(&bounds, key)
                    });
                    assert_eq!(contains(&all, tree, key), was_asked, "{key:?}, seed {seed}");
                }
            }
            reads.halve();
            let halved = reads.all();
            assert!(halved.len() <= all.len().div_ceil(2) + 1);
            for key in &keys {
                for tree in [TreeId(3), TreeId(4)] {
                    assert!(!contains(&all, tree, key) || contains(&halved, tree, key));
                }
            }
        }
    }
}
