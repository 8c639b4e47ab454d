//! Making room between two labels: records of a head move to other labels.
//!
//! The smallest aligned range of labels around the gap is taken that is not too full (Bender et al., "Two simplified algorithms for maintaining order in a
//! list", 2002), and its records are spread evenly over it. First those that go up move, the
//! highest first, then those that go down, the lowest first. So none overtakes another, and the order holds after each step. A step is a commit of two
//! changes: after a crash each record is there once. What refers to an extent gets a copy of it: the units of one that a change has let go
//! of can have no new record in the same epoch.
//!
//! The caller has the head's lock. Readers learn from the count of moves; who removes by place is kept out.

use super::find::read_record;
use super::{Cut, LAST_LABEL, with_label};
use crate::database::inner::Inner;
use crate::database::values::Prepared;
use crate::error::Result;
use crate::large::escape;
use crate::node::LABEL_BYTES;
use crate::store::{BatchChange, Found, PoolTree};
use crate::wait::Waiting;
use std::ops::Bound::Included;

/// The bits of the smallest range that is looked at, and of all labels.
const LEAST_BITS: u32 = 8;
const MOST_BITS: u32 = 8 * LABEL_BYTES as u32;
/// A range of so many bits is full enough with this to the power of them as its records. As it is less than two, a range that was just spread leaves
/// each of its halves a third of what that may have, so that wide ranges are spread seldom: with `n` keys that all come between the same two
/// about log `n` records move for each.
const GROWTH: f64 = 4.0 / 3.0;
/// What is copied in memory; longer extents are copied piece by piece.
const COPIED_AT_ONCE_BYTES: u64 = 256 << 10;
const PIECE_BYTES: usize = 64 << 10;

/// Labels `first..=last`, and those in it that have records.
#[derive(Debug)]
struct Range {
    first: u64,
    last: u64,
    labels: Vec<u64>,
}

impl Inner {
    /// Makes room for `more` keys of `cut`'s head behind label `below`.
    ///
    /// Errors: those of reads and changes.
    #[cold]
    pub(super) fn spread(
        &self,
        tree: &PoolTree,
        cut: Cut<'_>,
        below: u64,
        more: u64,
        waiting: &Waiting<'_>,
    ) -> Result<()> {
        let range = self.range_around(tree, cut, below, more)?;
        let _moving = self.long.begin_moves(waiting)?;
        // Between the records there is the same room as before the first and behind the last. The new keys come behind `below`, where there is room for all of them.
        let (count, width) = (range.labels.len() as u64, range.last - range.first + 1);
        let step = width / (count + more + 1);
        let behind = range.labels.iter().filter(|label| **label <= below).count() as u64;
        let target = |at: u64| {
            let before = if at < behind { 0 } else { more };
            range.first + step * (at + 1 + before)
        };
        let moves: Vec<(u64, u64)> =
            range.labels.iter().enumerate().map(|(at, from)| (*from, target(at as u64))).collect();
        let up = moves.iter().rev().filter(|(from, to)| to > from);
        let down = moves.iter().filter(|(from, to)| to < from);
        up.chain(down).try_for_each(|m| self.move_record(tree, cut, *m, waiting))
    }

    fn range_around(&self, tree: &PoolTree, cut: Cut<'_>, below: u64, more: u64) -> Result<Range> {
        let mut bits = LEAST_BITS;
        loop {
            let first = below >> bits << bits;
            // The edge is no label.
            let last = (first | ((1 << bits) - 1)).min(LAST_LABEL - 1);
            let labels = labels_in(tree, cut, first, last)?;
            let wanted = labels.len() as u64 + more + 2;
            if wanted as f64 <= GROWTH.powi(bits as i32) || bits == MOST_BITS {
                return Ok(Range { first, last, labels });
            }
            bits += 1;
        }
    }

    /// Moves a record, if it is still there.
    fn move_record(
        &self,
        tree: &PoolTree,
        cut: Cut<'_>,
        (from, to): (u64, u64),
        waiting: &Waiting<'_>,
    ) -> Result<()> {
        let keys = [cut.tree_key(from), cut.tree_key(to)];
        let Some(copy) = self.copy_payload(tree, &keys[0])? else { return Ok(()) };
        let mut changes = [
            BatchChange { tree, key: &keys[0], value: None },
            BatchChange { tree, key: &keys[1], value: Some(copy.bytes()) },
        ];
        changes.sort_by(|a, b| a.key.cmp(b.key));
        let mut made = 0;
        let written = self.store.write_batch(&changes, &mut made, waiting);
        let is_put = changes[..made].iter().any(|change| change.value.is_some());
        if is_put {
            copy.keep();
        }
        written.map(drop)
    }

    /// The value of a record, as another one may have it.
    fn copy_payload(&self, tree: &PoolTree, tree_key: &[u8]) -> Result<Option<Prepared<'static>>> {
        let room = tree.max_record_bytes() - tree_key.len();
        let Some(found) = self.store.find(tree, tree_key)? else { return Ok(None) };
        let payload = match found {
            Found::Short(payload) => return Ok(Some(Prepared::Escaped(escape(&payload)))),
            Found::Held { value, .. } => value.into_vec(),
            Found::Extent(mut reader) if reader.len_bytes() > COPIED_AT_ONCE_BYTES => {
                let mut writer = self.store.write_large(reader.len_bytes(), room, tree.wait())?;
                let mut piece = vec![0; PIECE_BYTES];
                let mut at = 0;
                while at < reader.len_bytes() {
                    let count = reader.read_at(at, &mut piece)?;
                    writer.write(&piece[..count])?;
                    at += count as u64;
                }
                writer.finish()?;
                let reference = writer.stored_form();
                return Ok(Some(Prepared::Large(Box::new(writer), reference)));
            }
            Found::Extent(mut reader) => {
                let mut payload = vec![0; reader.len_bytes() as usize];
                reader.read_at(0, &mut payload)?;
                payload
            }
        };
        self.place_payload(tree, room, &payload).map(Some)
    }
}

/// The labels of records from `first` to `last`.
fn labels_in(tree: &PoolTree, cut: Cut<'_>, first: u64, last: u64) -> Result<Vec<u64>> {
    let bounds = (with_label(cut.head, first), with_label(cut.head, last));
    let mut cursor = tree.range((Included(&bounds.0), Included(&bounds.1)));
    let mut labels = Vec::new();
    while let Some(record) = cursor.next_record()? {
        let Some((label, _)) = read_record(tree, cut, record)? else { break };
        labels.push(label);
    }
    Ok(labels)
}
