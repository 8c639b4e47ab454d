//! Long keys as a snapshot sees them, and a transaction with its own changes in them.
//!
//! Records move from label to label at one stroke, so of each moment the labels of a head order like the rests. A snapshot never changes: a
//! place that was looked up in it once is good for as long as it lives. So bounds and sought keys become places in the tree ([`Spot`]), what is iterated over is the
//! tree, and the whole key of a record is put together when it is handed over.
//!
//! A transaction's own record of a long key has no label. Among the records of the tree it has the *own key*: the tree key of the record of this key, or
//! of the one before it, and the rest behind that. It is longer than any tree key, and comes behind that one record and before the next; own keys behind one record
//! order like their rests. What is made of that for users is in `view.rs`. No state of its own.

use super::find::{Bucket, Place, locate_in, read_record};
use super::{Cut, damaged, is_long, split_payload};
use crate::database::inner::Inner;
use crate::database::snapshot_stretches::OpenStretches;
use crate::database::stretch::StretchCursor;
use crate::database::values::Seen;
use crate::error::Result;
use crate::large::{Stored, read_stored};
use crate::store::{OpenSnapshot, PoolTree};
use crate::tree::Value;
use hedgerow_sync::primitive::Arc;
use std::ops::Bound;

/// Where a long key is in what a snapshot sees.
pub(in crate::database) struct Spot {
    /// Where the key is to be looked for: the tree key of its record, or its own key if there is none.
    pub(in crate::database) first: Vec<u8>,
    /// Its own key: there is nothing between the two.
    pub(in crate::database) own: Vec<u8>,
    /// The value of its record, as its leaf has it.
    pub(in crate::database) record: Option<Vec<u8>>,
}

/// Finds a long key in what a snapshot sees of a tree.
///
/// Errors: those of reads; `SnapshotTooOld`.
pub(in crate::database) fn spot_of(
    snapshot: &Arc<OpenSnapshot>,
    inner: &Inner,
    tree: &PoolTree,
    key: &[u8],
) -> Result<Spot> {
    let cut = Cut::new(tree, key);
    let mut bucket = SnapshotBucket { snapshot, inner, tree, cut, cursor: None };
    let (label, record) = match locate_in(&mut bucket, cut)? {
        Place::At { label, raw } => (label, Some(raw)),
        Place::Gap { below, .. } => (below, None),
    };
    let tree_key = cut.tree_key(label);
    let own = [&tree_key, cut.rest].concat();
    let first = if record.is_some() { tree_key } else { own.clone() };
    Ok(Spot { first, own, record })
}

impl Spot {
    /// What a view sees of the key.
    ///
    /// Errors: `Corrupted`.
    pub(in crate::database) fn seen(self, tree: &PoolTree, key: &[u8]) -> Result<Option<Seen>> {
        let Some(raw) = self.record else { return Ok(None) };
        if let Stored::Plain(payload) = read_stored(&raw) {
            let value = Value::from(split_payload(payload)?.1);
            return Ok(Some(Seen::new(value, false)));
        }
        let before_bytes = Cut::new(tree, key).start_bytes();
        Ok(Some(Seen { value: Value::from(raw), is_stored: true, before_bytes }))
    }
}

/// The records of a head as a snapshot sees them.
struct SnapshotBucket<'s> {
    snapshot: &'s Arc<OpenSnapshot>,
    inner: &'s Inner,
    tree: &'s PoolTree,
    cut: Cut<'s>,
    cursor: Option<StretchCursor>,
}

impl Bucket for SnapshotBucket<'_> {
    fn get(&mut self, label: u64) -> Result<Option<Vec<u8>>> {
        let found = self.snapshot.get(self.tree, &self.cut.tree_key(label));
        Ok(found?.map(Value::into_vec))
    }

    fn beside(&mut self, label: u64, forward: bool) -> Result<Option<(u64, Vec<u8>)>> {
        let cursor = self.cursor.get_or_insert_with(|| {
            let stretches = OpenStretches::new(self.snapshot.clone(), self.tree.clone());
            StretchCursor::new(Box::new(stretches), Bound::Unbounded, Bound::Unbounded)
        });
        cursor.seek(&self.cut.tree_key(label));
        let Some(place) = cursor.step(forward)? else { return Ok(None) };
        read_record(self.tree, self.cut, cursor.record(place))
    }

    fn rest_of(&mut self, _label: u64, raw: &[u8], rest: &mut Vec<u8>) -> Result<bool> {
        rest_then(self.snapshot, self.inner, self.tree, raw, rest).map(|()| true)
    }
}

/// Copies the rest of the key of a record that a snapshot sees.
///
/// Errors: those of reads.
fn rest_then(
    snapshot: &Arc<OpenSnapshot>,
    inner: &Inner,
    tree: &PoolTree,
    raw: &[u8],
    rest: &mut Vec<u8>,
) -> Result<()> {
    let found = || snapshot.resolve(raw, tree.wait()).map(Some);
    inner.rest_from(raw, rest, found).map(drop)
}

/// The rest that an own key has behind a tree key.
pub(in crate::database) fn own_rest<'k>(tree: &PoolTree, key: &'k [u8]) -> Option<&'k [u8]> {
    key.get(tree.max_key_bytes()..).filter(|rest| !rest.is_empty())
}

/// The user's key at a place in what a snapshot sees: of a record, or of an own key.
///
/// Errors: those of reads; `SnapshotTooOld`.
pub(in crate::database) fn key_at(
    snapshot: &Arc<OpenSnapshot>,
    inner: &Inner,
    tree: &PoolTree,
    place: &[u8],
) -> Result<Vec<u8>> {
    if !is_long(tree, place) {
        return Ok(place.to_vec());
    }
    let head = &place[..tree.max_short_key_bytes()];
    if let Some(rest) = own_rest(tree, place) {
        return Ok([head, rest].concat());
    }
    let raw = snapshot.get(tree, place)?.ok_or_else(damaged)?;
    let mut rest = Vec::new();
    rest_then(snapshot, inner, tree, &raw, &mut rest)?;
    Ok([head, &rest].concat())
}
