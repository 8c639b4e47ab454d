//! Long keys: a user's key that is longer than a key of a node, as a record of the same tree.
//!
//! Rank 7. `docs/long-keys.md` has the design and its reasons. A long key is cut after `k` bytes, the longest short key. The tree key is
//! its head and a label; the value is the payload: the length of the rest, the rest, and the user's value. Labels within a head order like the rests. The
//! value is in a stored form in any case, which is how who reads records learns that it has to look.
//!
//! Invariants, at each moment: of two records with one head, the one with the lower label has the lower rest; a rest has one record; labels are
//! above zero and below [`LAST_LABEL`]. Who changes them holds the head's lock ([`locks`]). Thread-safety: as for
//! [`Keyspace`](super::Keyspace).

mod change;
mod find;
mod keyspace;
mod load;
mod locks;
mod spot;
mod spread;
mod view;
mod walk;

pub(super) use change::{Wanted, tree_writes, write_long};
pub(super) use load::Loading;
pub(super) use locks::LongKeys;
pub(super) use spot::{Spot, key_at, own_rest, spot_of};
pub(super) use view::{bounds_of, stretches_within, take_whole};
pub(super) use walk::{Seen, Walk};

use crate::error::{Error, ErrorKind, Result};
use crate::node::LABEL_BYTES;
use crate::store::PoolTree;
use crate::store::labels::{self, LAST_LABEL, REST_LEN_BYTES, with_label};
use crate::tree::Value;
use std::borrow::Cow;

/// The longest key of a record, in bytes.
pub(super) const MAX_KEY_BYTES: usize = 64 << 10;
/// The label of the first key of a head.
const MIDDLE_LABEL: u64 = 1 << (8 * LABEL_BYTES - 1);

const _: () = assert!(MAX_KEY_BYTES - crate::node::max_short_key_bytes(512) <= u16::MAX as usize);

/// Whether a key is long, of a user's or of a tree's record.
#[inline(always)]
pub(super) fn is_long(tree: &PoolTree, key: &[u8]) -> bool {
    key.len() > tree.max_short_key_bytes()
}

/// Refuses a key that is too long for any record.
pub(super) fn check_key(key: &[u8]) -> Result<()> {
    let (len_bytes, max_bytes) = (key.len(), MAX_KEY_BYTES);
    if len_bytes <= max_bytes {
        return Ok(());
    }
    let what = format!("a key of {len_bytes} bytes; the longest has {max_bytes}");
    Err(Error::new(ErrorKind::KeyTooLong { len_bytes, max_bytes }, what))
}

/// A handle to the tree that takes records with labels.
pub(super) fn tree_of(tree: &PoolTree) -> PoolTree {
    tree.clone().with_short_keys(false)
}

/// A long key in its two parts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut<'k> {
    head: &'k [u8],
    rest: &'k [u8],
}

impl<'k> Cut<'k> {
    /// Cuts a long key of a record of `tree`.
    pub(super) fn new(tree: &PoolTree, key: &'k [u8]) -> Cut<'k> {
        let (head, rest) = key.split_at(tree.max_short_key_bytes());
        Cut { head, rest }
    }

    /// The tree key with a label.
    pub(super) fn tree_key(self, label: u64) -> Vec<u8> {
        with_label(self.head, label)
    }

    /// What the tree's record has as its value.
    pub(super) fn payload(self, value: &[u8]) -> Vec<u8> {
        let mut bytes = self.payload_start();
        bytes.extend_from_slice(value);
        bytes
    }

    /// The part of the payload before the user's value.
    pub(super) fn payload_start(self) -> Vec<u8> {
        labels::payload_start(self.rest)
    }

    /// Bytes of the payload before the user's value.
    pub(super) fn start_bytes(self) -> usize {
        REST_LEN_BYTES + self.rest.len()
    }
}

/// Rest and value of a payload.
///
/// Errors: `Corrupted`.
fn split_payload(payload: &[u8]) -> Result<(&[u8], &[u8])> {
    labels::split_payload(payload).ok_or_else(damaged)
}

/// The whole key of a record of the tree, and its value.
///
/// Errors: `Corrupted`.
pub(super) fn whole_record(
    tree: &PoolTree,
    tree_key: &[u8],
    payload: &[u8],
) -> Result<(Value, Value)> {
    let (rest, value) = split_payload(payload)?;
    let head = tree_key.get(..tree.max_short_key_bytes()).ok_or_else(damaged)?;
    Ok((Value::from([head, rest].concat()), Value::from(value)))
}

#[cold]
fn damaged() -> Error {
    let kind = ErrorKind::Corrupted { page: None, offset_bytes: None };
    Error::new(kind, "the record of a long key does not have the rest of it")
}

/// The bounds of all records of a tree that bounds of users' keys can have: a long bound is moved to the edge of its head.
pub(super) fn widened<'b>(
    tree: &PoolTree,
    bound: std::ops::Bound<&'b [u8]>,
    label: u64,
) -> std::ops::Bound<Cow<'b, [u8]>> {
    use std::ops::Bound::{Excluded, Included};
    match bound {
        Included(key) | Excluded(key) if is_long(tree, key) => {
            Included(Cow::Owned(Cut::new(tree, key).tree_key(label)))
        }
        other => other.map(Cow::Borrowed),
    }
}

/// The lowest and the highest label of no record, for [`widened`].
pub(super) const EDGES: (u64, u64) = (0, LAST_LABEL);
