//! Finding the record of a long key, or where it would be.
//!
//! Nearly all heads have one key, and that has the middle label: one look-up. Else the records are bisected on one way down the tree
//! ([`crate::tree::Tree::search_by`]). If others are in the way, and in a snapshot, the labels are: between two labels that have a record
//! each, the record at or behind the middle is compared, or if there is none before the upper one, the one before the middle.
//!
//! What a comparison has shown of a key's label stays true as long as no record moves, whatever comes and goes: labels of what stays do not
//! change, and what comes goes between its neighbours. So who finds nothing, and sees that nothing has moved, knows that there was no record at some moment of the call.

use super::locks::Still;
use super::{Cut, LAST_LABEL, MIDDLE_LABEL, REST_LEN_BYTES, is_long, split_payload};
use crate::buffer::BufferPool;
use crate::database::inner::Inner;
use crate::error::Result;
use crate::large::{Stored, is_stored_form, read_stored};
use crate::store::labels::split_label;
use crate::store::{Found, PoolTree};
use crate::tree::{Cursor, Value, successor};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Bound;

/// Where a long key is.
#[derive(Debug)]
pub(super) enum Place {
    /// There is a record, whose value is in this stored form.
    At { label: u64, raw: Vec<u8> },
    /// There is none between these labels, of the neighbours; 0 or [`LAST_LABEL`] if there is none on that side.
    Gap { below: u64, above: u64 },
}

impl Inner {
    /// What `read` makes of the record of a long key, given its tree key and the stored form of its value. It is asked again if it says
    /// that the record is another one by then. Linearizable.
    ///
    /// Errors: those of reads and of `read`.
    pub(super) fn find_long<R>(
        &self,
        tree: &PoolTree,
        cut: Cut<'_>,
        mut read: impl FnMut(&[u8], Vec<u8>) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let waiting = tree.wait().begin();
        let mut still: Option<Still<'_>> = None;
        loop {
            let moves = self.long.moves();
            match self.locate(tree, cut)? {
                Place::At { label, raw } => {
                    if let Some(result) = read(&cut.tree_key(label), raw)? {
                        return Ok(Some(result));
                    }
                }
                Place::Gap { .. } => {
                    let is_sure = still.is_some() || self.long.is_still_since(moves);
                    if is_sure {
                        return Ok(None);
                    }
                    still = Some(self.long.keep_still(&waiting)?);
                }
            }
        }
    }

    /// The bound of a range of the tree at a user's key: its end lies before it, or behind it. While records keep still.
    pub(in crate::database) fn edge<'k>(
        &self,
        tree: &PoolTree,
        key: &'k [u8],
        is_behind: bool,
    ) -> Result<Cow<'k, [u8]>> {
        if !is_long(tree, key) {
            return Ok(if is_behind { Cow::Owned(successor(key)) } else { Cow::Borrowed(key) });
        }
        let cut = Cut::new(tree, key);
        Ok(Cow::Owned(cut.tree_key(match self.locate(tree, cut)? {
            Place::At { label, .. } => label + u64::from(is_behind),
            Place::Gap { above, .. } => above,
        })))
    }

    /// The bound in the tree of an interval of users' keys. At a key that has no record it is the record on the other side of the gap, left out. While the head is locked.
    pub(in crate::database) fn bound_now(
        &self,
        tree: &PoolTree,
        bound: &Bound<Vec<u8>>,
        is_lower: bool,
    ) -> Result<Bound<Vec<u8>>> {
        let (Bound::Included(key) | Bound::Excluded(key)) = bound else {
            return Ok(Bound::Unbounded);
        };
        if !is_long(tree, key) {
            return Ok(bound.clone());
        }
        let cut = Cut::new(tree, key);
        Ok(match self.locate(tree, cut)? {
            Place::At { label, .. } => bound.as_ref().map(|_| cut.tree_key(label)),
            Place::Gap { below, above } => {
                Bound::Excluded(cut.tree_key(if is_lower { below } else { above }))
            }
        })
    }

    /// What the stored form of a long key's record stands for; `None` if the record is gone.
    pub(super) fn payload_of(
        &self,
        tree: &PoolTree,
        tree_key: &[u8],
        raw: &[u8],
    ) -> Result<Option<Value>> {
        if !is_stored_form(raw) {
            return Err(super::damaged());
        }
        self.resolve(tree, tree_key, raw)
    }

    /// Finds a long key; see [`Place`].
    ///
    /// Errors: those of reads.
    pub(super) fn locate(&self, tree: &PoolTree, cut: Cut<'_>) -> Result<Place> {
        let mut bucket = TreeBucket { inner: self, tree, cut, cursor: None };
        let mut search = Search::new(cut);
        if let Some(place) = search.first(&mut bucket)? {
            return Ok(place);
        }
        let ends = (cut.tree_key(search.below), cut.tree_key(search.above));
        let mut equal = None;
        let found = tree.search_by((&ends.0, &ends.1), |key, raw| {
            let Some(label) = label_of(tree, cut, key)? else { return Ok(None) };
            let order = search.compare(&mut bucket, label, raw)?;
            if order == Some(Ordering::Equal) {
                equal = Some((label, raw.to_vec()));
            }
            Ok(order)
        })?;
        match (found, equal) {
            (Some(true), Some((label, raw))) => Ok(Place::At { label, raw }),
            (Some(false), _) => Ok(Place::Gap { below: search.below, above: search.above }),
            _ => search.bisect(&mut bucket),
        }
    }
}

/// The records of a head, as a tree has them now, or as a snapshot sees them.
pub(super) trait Bucket {
    /// The value of the record with a label, as its leaf has it.
    fn get(&mut self, label: u64) -> Result<Option<Vec<u8>>>;

    /// The first record at or behind a label, or the last one before it.
    fn beside(&mut self, label: u64, forward: bool) -> Result<Option<(u64, Vec<u8>)>>;

    /// Copies the rest of the key of a record to `rest`. False if the record is gone.
    fn rest_of(&mut self, label: u64, raw: &[u8], rest: &mut Vec<u8>) -> Result<bool>;
}

/// Finds a long key among the records of its head, by their labels.
///
/// Errors: those of reads.
pub(super) fn locate_in(bucket: &mut impl Bucket, cut: Cut<'_>) -> Result<Place> {
    let mut search = Search::new(cut);
    match search.first(bucket)? {
        Some(place) => Ok(place),
        None => search.bisect(bucket),
    }
}

/// A search among the records of a head.
struct Search<'s> {
    cut: Cut<'s>,
    /// The key's label is between these.
    below: u64,
    above: u64,
    /// The rest that was compared last.
    rest: Vec<u8>,
}

impl Search<'_> {
    fn new(cut: Cut<'_>) -> Search<'_> {
        Search { cut, below: 0, above: LAST_LABEL, rest: Vec::new() }
    }

    /// Looks at the label of the first key of a head.
    fn first(&mut self, bucket: &mut impl Bucket) -> Result<Option<Place>> {
        let Some(raw) = bucket.get(MIDDLE_LABEL)? else { return Ok(None) };
        let order = self.compare(bucket, MIDDLE_LABEL, &raw)?;
        let is_it = order == Some(Ordering::Equal);
        Ok(is_it.then_some(Place::At { label: MIDDLE_LABEL, raw }))
    }

    /// Compares the sought key with that of a record, and notes what that says. `None`: the record is gone, and nothing is known of it.
    fn compare(
        &mut self,
        bucket: &mut impl Bucket,
        label: u64,
        raw: &[u8],
    ) -> Result<Option<Ordering>> {
        if !bucket.rest_of(label, raw, &mut self.rest)? {
            return Ok(None);
        }
        let order = self.cut.rest.cmp(&self.rest);
        match order {
            Ordering::Less => self.above = self.above.min(label),
            Ordering::Greater => self.below = self.below.max(label),
            Ordering::Equal => {}
        }
        Ok(Some(order))
    }

    fn bisect(&mut self, bucket: &mut impl Bucket) -> Result<Place> {
        loop {
            let record = if self.above == LAST_LABEL {
                // Keys often ascend.
                bucket.beside(LAST_LABEL, false)?.filter(|(label, _)| *label > self.below)
            } else if self.below == 0 {
                bucket.beside(0, true)?.filter(|(label, _)| *label < self.above)
            } else {
                self.near_middle(bucket)?
            };
            let Some((label, raw)) = record else {
                return Ok(Place::Gap { below: self.below, above: self.above });
            };
            if self.compare(bucket, label, &raw)? == Some(Ordering::Equal) {
                return Ok(Place::At { label, raw });
            }
        }
    }

    /// A record between the limits.
    fn near_middle(&self, bucket: &mut impl Bucket) -> Result<Option<(u64, Vec<u8>)>> {
        let middle = self.below + (self.above - self.below) / 2;
        let is_between = |(label, _): &(u64, Vec<u8>)| *label > self.below && *label < self.above;
        match bucket.beside(middle, true)?.filter(is_between) {
            None => Ok(bucket.beside(middle, false)?.filter(is_between)),
            found => Ok(found),
        }
    }
}

/// As a tree has it now.
struct TreeBucket<'s> {
    inner: &'s Inner,
    tree: &'s PoolTree,
    cut: Cut<'s>,
    cursor: Option<Cursor<BufferPool>>,
}

impl Bucket for TreeBucket<'_> {
    fn get(&mut self, label: u64) -> Result<Option<Vec<u8>>> {
        Ok(self.tree.get(&self.cut.tree_key(label))?.map(Value::into_vec))
    }

    fn beside(&mut self, label: u64, forward: bool) -> Result<Option<(u64, Vec<u8>)>> {
        // Without bounds: comparing leaves with those is most of a step, where keys are as long as this.
        let cursor = self.cursor.get_or_insert_with(|| self.tree.scan());
        cursor.seek(&self.cut.tree_key(label));
        let record = if forward { cursor.next_record()? } else { cursor.previous_record()? };
        record.map_or(Ok(None), |record| read_record(self.tree, self.cut, record))
    }

    fn rest_of(&mut self, label: u64, raw: &[u8], rest: &mut Vec<u8>) -> Result<bool> {
        self.inner.rest_of(self.tree, &self.cut.tree_key(label), raw, rest)
    }
}

/// Label and value of a record of a tree as its leaf has it; `None` if it has another head.
pub(super) fn read_record(
    tree: &PoolTree,
    cut: Cut<'_>,
    (key, raw): (&[u8], &[u8]),
) -> Result<Option<(u64, Vec<u8>)>> {
    Ok(label_of(tree, cut, key)?.map(|label| (label, raw.to_vec())))
}

/// The label in the key of a record of a tree; `None` if it has another head.
fn label_of(tree: &PoolTree, cut: Cut<'_>, key: &[u8]) -> Result<Option<u64>> {
    if key.len() == cut.head.len() || !key.starts_with(cut.head) {
        return Ok(None);
    }
    let (_, label) = split_label(tree.max_short_key_bytes(), key).ok_or_else(super::damaged)?;
    Ok(Some(label))
}

impl Inner {
    /// Copies the rest of the key of a record to `rest`, without its value where that is cheaper. False if the record is gone.
    pub(in crate::database) fn rest_of(
        &self,
        tree: &PoolTree,
        tree_key: &[u8],
        raw: &[u8],
        rest: &mut Vec<u8>,
    ) -> Result<bool> {
        self.rest_from(raw, rest, || self.store.find(tree, tree_key))
    }

    /// [`Self::rest_of`], where `find` says what the value stands for if it has to be read.
    pub(in crate::database) fn rest_from(
        &self,
        raw: &[u8],
        rest: &mut Vec<u8>,
        find: impl FnOnce() -> Result<Option<Found>>,
    ) -> Result<bool> {
        rest.clear();
        if !is_stored_form(raw) {
            return Err(super::damaged());
        }
        if let Stored::Plain(payload) = read_stored(raw) {
            rest.extend_from_slice(split_payload(payload)?.0);
            return Ok(true);
        }
        let mut len = [0; REST_LEN_BYTES];
        if self.store.copy_kept(raw, 0, &mut len) {
            rest.resize(usize::from(u16::from_le_bytes(len)), 0);
            if self.store.copy_kept(raw, REST_LEN_BYTES as u64, rest) {
                return if rest.is_empty() { Err(super::damaged()) } else { Ok(true) };
            }
        }
        match find()? {
            None => Ok(false),
            Some(Found::Short(payload) | Found::Held { value: payload, .. }) => {
                rest.clear();
                rest.extend_from_slice(split_payload(&payload)?.0);
                Ok(true)
            }
            Some(Found::Extent(mut reader)) => {
                let read = reader.read_at(0, &mut len)?;
                rest.resize(usize::from(u16::from_le_bytes(len)), 0);
                let read = read + reader.read_at(REST_LEN_BYTES as u64, rest)?;
                let is_whole = read == REST_LEN_BYTES + rest.len() && !rest.is_empty();
                if is_whole { Ok(true) } else { Err(super::damaged()) }
            }
        }
    }
}

impl Inner {
    /// `Keyspace::get` of a long key.
    #[cold]
    pub(in crate::database) fn get_long(
        &self,
        tree: &PoolTree,
        key: &[u8],
    ) -> Result<Option<Value>> {
        let cut = Cut::new(tree, key);
        self.find_long(tree, cut, |tree_key, raw| {
            let Some(payload) = self.payload_of(tree, tree_key, &raw)? else { return Ok(None) };
            let (rest, value) = split_payload(&payload)?;
            // Else the label is another key's by now.
            Ok((rest == cut.rest).then(|| Value::from(value)))
        })
    }

    /// `Keyspace::get_into` of a long key.
    #[cold]
    pub(in crate::database) fn get_long_into(
        &self,
        tree: &PoolTree,
        key: &[u8],
        to: &mut Vec<u8>,
    ) -> Result<bool> {
        to.clear();
        let Some(value) = self.get_long(tree, key)? else { return Ok(false) };
        to.extend_from_slice(&value);
        Ok(true)
    }

    /// `Keyspace::contains_key` of a long key.
    #[cold]
    pub(in crate::database) fn contains_long(&self, tree: &PoolTree, key: &[u8]) -> Result<bool> {
        Ok(self.find_long(tree, Cut::new(tree, key), |_, _| Ok(Some(())))?.is_some())
    }

    /// The value of a long key, to be read, and how many bytes lie before it in an extent.
    #[cold]
    pub(in crate::database) fn find_long_value(
        &self,
        tree: &PoolTree,
        key: &[u8],
    ) -> Result<Option<(Found, u64)>> {
        let cut = Cut::new(tree, key);
        self.find_long(tree, cut, |tree_key, _| match self.store.find(tree, tree_key)? {
            None => Ok(None),
            Some(Found::Short(payload) | Found::Held { value: payload, .. }) => {
                let (rest, value) = split_payload(&payload)?;
                Ok((rest == cut.rest).then(|| (Found::Short(Value::from(value)), 0)))
            }
            Some(Found::Extent(mut reader)) => {
                let mut start = vec![0; cut.start_bytes()];
                let count = reader.read_at(0, &mut start)?;
                let is_it = count == start.len() && start == cut.payload_start();
                Ok(is_it.then(|| (Found::Extent(reader), start.len() as u64)))
            }
        })
    }
}
