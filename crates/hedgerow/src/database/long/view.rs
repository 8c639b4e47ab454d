//! Bounds and whole records of long keys in what a snapshot or a transaction sees.
//!
//! Bounds and sought keys become places in the tree ([`Spot`](super::Spot)), what is iterated over is the tree, and the whole key of a record is put
//! together when it is handed over. `spot.rs` says why that is right. No state of its own.

use super::spot::own_rest;
use super::{REST_LEN_BYTES, damaged, is_long, split_payload};
use crate::database::stretch::{Interval, StretchCursor, is_empty};
use crate::database::view::View;
use crate::error::Result;
use crate::large::{Stored, read_stored};
use std::ops::Bound;

/// The bounds of what a view has of the tree, for bounds of users' keys. Looks long ones up.
///
/// Errors: those of [`View::spot`].
pub(in crate::database) fn bounds_of(
    view: &dyn View,
    lower: &Bound<Vec<u8>>,
    upper: &Bound<Vec<u8>>,
) -> Result<Interval> {
    if is_empty(lower, upper) {
        return Ok((lower.clone(), upper.clone()));
    }
    let tree = view.tree();
    let lower = match lower {
        Bound::Included(key) if is_long(tree, key) => Bound::Included(view.spot(key)?.first),
        Bound::Excluded(key) if is_long(tree, key) => Bound::Excluded(view.spot(key)?.own),
        other => other.clone(),
    };
    let upper = match upper {
        Bound::Included(key) if is_long(tree, key) => Bound::Included(view.spot(key)?.own),
        Bound::Excluded(key) if is_long(tree, key) => Bound::Excluded(view.spot(key)?.first),
        other => other.clone(),
    };
    Ok((lower, upper))
}

/// The records in bounds, whose keys may be of any length. Reads nothing but what finds long ones.
///
/// Errors: those of [`View::spot`].
pub(in crate::database) fn stretches_within(
    view: &dyn View,
    lower: &Bound<Vec<u8>>,
    upper: &Bound<Vec<u8>>,
) -> Result<StretchCursor> {
    let (lower, upper) = bounds_of(view, lower, upper)?;
    Ok(StretchCursor::new(view.stretches(), lower, upper))
}

/// Puts the whole key of a record with a long key into `key`, and its value behind the place that is returned in `to`; `None`: it was not
/// asked for, and is not in the leaf. The record is what a view has: its key in the tree, its value, and whether that is in a stored form.
///
/// Errors: those of reads.
pub(in crate::database) fn take_whole(
    view: &dyn View,
    (tree_key, value, is_stored): (&[u8], &[u8], bool),
    with_value: bool,
    key: &mut Vec<u8>,
    to: &mut Vec<u8>,
) -> Result<Option<usize>> {
    let tree = view.tree();
    key.clear();
    key.extend_from_slice(&tree_key[..tree.max_short_key_bytes()]);
    if let Some(rest) = own_rest(tree, tree_key) {
        key.extend_from_slice(rest);
        to.clear();
        to.extend_from_slice(value);
        return Ok(Some(0));
    }
    if !is_stored {
        return Err(damaged());
    }
    if let Stored::Plain(payload) = read_stored(value) {
        let (rest, value) = split_payload(payload)?;
        key.extend_from_slice(rest);
        to.clear();
        to.extend_from_slice(value);
        return Ok(Some(0));
    }
    if !with_value {
        view.inner().rest_from(value, to, || view.resolve(value).map(Some))?;
        key.extend_from_slice(to);
        return Ok(None);
    }
    view.resolve_into(value, to)?;
    let rest = split_payload(to)?.0;
    key.extend_from_slice(rest);
    Ok(Some(REST_LEN_BYTES + rest.len()))
}
