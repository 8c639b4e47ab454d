//! What a transaction has changed, before anybody else sees it; and what a keyspace is with that in it.
//!
//! Changes are kept by tree and key, the last one of a key. Whoever iterates, and every savepoint, has the changes as they were: the map is shared, and
//! copied when it is changed while somebody else has it.
//!
//! Invariant: of a key there is one change. `Send + Sync`.

use crate::database::long::{Spot, is_long};
use crate::database::stretch::Stretch;
use crate::error::Result;
use crate::key::after_prefix;
use crate::store::PoolTree;
use crate::types::TreeId;
use hedgerow_sync::primitive::Arc;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The value that a key gets; `None`: its record goes.
pub(super) type Written = Option<Vec<u8>>;

/// The changes of one tree.
pub(super) type TreeWrites = BTreeMap<Vec<u8>, Written>;

/// See the head of the file.
#[derive(Clone, Default)]
pub(super) struct Writes {
    trees: BTreeMap<TreeId, Arc<TreeWrites>>,
    /// Bytes of keys and values.
    len_bytes: u64,
}

impl Writes {
    pub(super) fn of(&self, tree: TreeId) -> Option<&Arc<TreeWrites>> {
        self.trees.get(&tree)
    }

    pub(super) fn get(&self, tree: TreeId, key: &[u8]) -> Option<&Written> {
        self.trees.get(&tree)?.get(key)
    }

    /// All changes, in the order of trees and keys.
    pub(super) fn all(&self) -> impl Iterator<Item = (TreeId, &[u8], Option<&[u8]>)> {
        self.trees.iter().flat_map(|(tree, writes)| {
            writes.iter().map(|(key, value)| (*tree, key.as_slice(), value.as_deref()))
        })
    }

    pub(super) fn len(&self) -> usize {
        self.trees.values().map(|writes| writes.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Bytes that there would be with one more change.
    pub(super) fn len_bytes_with(&self, tree: TreeId, key: &[u8], value: Option<&[u8]>) -> u64 {
        let old = self.get(tree, key).map_or(0, |old| bytes_of(key, old.as_deref()));
        self.len_bytes - old + bytes_of(key, value)
    }

    /// Notes a change.
    pub(super) fn put(&mut self, tree: TreeId, key: &[u8], value: Option<&[u8]>) {
        self.len_bytes = self.len_bytes_with(tree, key, value);
        let writes = Arc::make_mut(self.trees.entry(tree).or_default());
        writes.insert(key.to_vec(), value.map(<[u8]>::to_vec));
    }
}

/// Bytes of a change, and about what keeping it takes beside them.
pub(super) fn bytes_of(key: &[u8], value: Option<&[u8]>) -> u64 {
    const EACH: usize = 32;
    (key.len() + value.map_or(0, <[u8]>::len) + EACH) as u64
}

/// The changes in the range of a stretch as they are among the records of the tree, where some of them are of long keys; `None`: none is. `spot` finds a long key
/// in what the snapshot sees.
///
/// Errors: those of `spot`.
pub(super) fn placed(
    tree: &PoolTree,
    below: &Stretch,
    writes: &TreeWrites,
    mut spot: impl FnMut(&[u8]) -> Result<Spot>,
) -> Result<Option<TreeWrites>> {
    let head_bytes = tree.max_short_key_bytes();
    // A fence that is longer than a head is among the labels of one. Whether a key of that head is in the range its place says.
    let head_of =
        |fence: &'_ [u8]| (fence.len() > head_bytes).then(|| fence[..head_bytes].to_vec());
    let lower = match below.lower() {
        None => Bound::Unbounded,
        Some(fence) => head_of(fence).map_or(Bound::Excluded(fence.to_vec()), Bound::Included),
    };
    let upper = match below.upper() {
        None => Bound::Unbounded,
        Some(fence) => match head_of(fence) {
            None => Bound::Included(fence.to_vec()),
            Some(head) => after_prefix(&head).map_or(Bound::Unbounded, Bound::Excluded),
        },
    };
    let own = writes.range((lower, upper));
    if !own.clone().any(|(key, _)| is_long(tree, key)) {
        return Ok(None);
    }
    let is_in_range = |key: &[u8]| {
        below.lower().is_none_or(|lower| key > lower)
            && below.upper().is_none_or(|upper| key <= upper)
    };
    let mut placed = TreeWrites::new();
    let mut put = |key: Vec<u8>, value: Written| {
        if is_in_range(&key) {
            placed.insert(key, value);
        }
    };
    for (key, value) in own {
        if !is_long(tree, key) {
            put(key.clone(), value.clone());
            continue;
        }
        let spot = spot(key)?;
        if spot.record.is_some() {
            put(spot.first, None);
        }
        if value.is_some() {
            put(spot.own, value.clone());
        }
    }
    Ok(Some(placed))
}

/// Puts what a snapshot has of a stretch, and the changes there, together into `to`.
pub(super) fn merge(below: &Stretch, writes: &TreeWrites, to: &mut Stretch) {
    let copy = |fence: Option<&[u8]>, to: &mut Vec<u8>| {
        to.extend_from_slice(fence.unwrap_or_default());
        fence.is_some()
    };
    to.begin(|fence| copy(below.lower(), fence), |fence| copy(below.upper(), fence));
    let lower = below.lower().map_or(Bound::Unbounded, Bound::Excluded);
    let upper = below.upper().map_or(Bound::Unbounded, Bound::Included);
    let mut own = writes.range::<[u8], _>((lower, upper)).peekable();
    let push_own = |to: &mut Stretch, key: &[u8], value: &Written| {
        if let Some(value) = value {
            to.push(key, value, false);
        }
    };
    for place in 0..below.len() {
        let (key, value) = below.get(place);
        while let Some((own_key, value)) = own.next_if(|(own, _)| own.as_slice() < key) {
            push_own(to, own_key, value);
        }
        match own.next_if(|(own, _)| own.as_slice() == key) {
            Some((_, value)) => push_own(to, key, value),
            None => to.push(key, value, below.is_stored(place)),
        }
    }
    own.for_each(|(key, value)| push_own(to, key, value));
}
