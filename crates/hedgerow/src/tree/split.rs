//! Splits: room for a record that did not fit.
//!
//! One level is split at a time. The pages that may be needed (two, if it is the root) are reserved
//! with nothing held; then parent and node are latched exclusively, parent first, by upgrades. If the
//! parent has no room for the separator nothing is changed, and the parent is split first, by the same
//! steps. A root's contents move into two new pages, so that its id stays.
//!
//! Invariants: a split is one step in one epoch: parent, node and new page are latched until all of
//! it is done. Nothing is waited for while latched, but for latches in latch order on the pessimistic
//! way. Thread-safety: as for [`Tree`].

use super::create::no_page;
use super::descend::{LockedPair, Target, plain};
use super::merge::Side;
use super::retry::{Retry, Stop};
use super::{MAX_LEVELS, Tree, successor};
use crate::error::Result;
use crate::node::{
    self, Leaf, LeafMut, LeafSplit, NodeMut, Position, Remedy, SLOT_SLACK_BYTES, Split, SplitHint,
    plain_leaf, remedy, rung,
};
use crate::page::header::{self, PageKind};
use crate::page::{EpochStay, ExclusivePage, FrameId, PagePool, PoolSession, Restart};
use crate::types::{Epoch, Purpose};
use hedgerow_sync::optimistic::PageBytes;
use hedgerow_sync::primitive::buggify::{Point, is_drawn};

/// What there has to be room for.
#[derive(Clone, Copy)]
pub(super) enum Room<'k> {
    /// A record in the leaf.
    Record {
        /// Its key.
        key: &'k [u8],
        /// Bytes of its value.
        value_bytes: usize,
    },
    /// Records of which these two neighbours are to come to different leaves: a commit's that do not fit into one.
    Apart {
        /// The one.
        low: &'k [u8],
        /// The next above it.
        high: &'k [u8],
        /// Bytes of its value.
        value_bytes: usize,
    },
    /// A separator of so many bytes in an inner node.
    Separator(usize),
}

/// A node with fewer keys is not split for nothing.
pub(super) const LEAST_FORCED: usize = 4;

/// Part of a page that a fence ahead has to gain if its range is narrow.
const GAIN_PART: usize = 8;

/// Leaves like the one at hand from which on a range ahead counts as wide.
const WIDE_LEAVES: u64 = 16;

/// How a latched node is divided.
pub(super) struct Cut<'c> {
    pub(super) level: u8,
    pub(super) split: &'c LeafSplit,
    /// Scans of it are common.
    pub(super) scans: bool,
    pub(super) epoch: Epoch,
    /// Threads contend for it, and are to be kept apart.
    pub(super) is_apart: bool,
}

/// How a try to split came out.
pub(super) enum Outcome {
    /// There is room, or the tree has changed so much that the caller should look again.
    Done,
    /// The same; the inner node for this key has a single child, and was not split from its neighbour on this side.
    Lonely(Vec<u8>, Side),
    /// The parent has to be split first, for a separator of so many bytes.
    ParentFull(usize),
}

impl<P: PagePool> Tree<P> {
    /// Makes room in the leaf for `key`. The caller looks again afterwards: others may take it.
    #[cold]
    pub(super) fn make_room<'p>(
        &'p self,
        key: &[u8],
        room: Room<'_>,
        purpose: Purpose,
        retry: &mut Retry<'p, P>,
    ) -> Result<()> {
        // Once for each change: with records of other lengths a rotation may leave no room where it is wanted.
        #[cfg(hedgerow_internals)]
        if self.is_b_star
            && !retry.has_made_room()
            && let Room::Record { key, value_bytes } = room
            && self.make_room_beside(key, key.len() + value_bytes, purpose, retry)?
        {
            return Ok(());
        }
        self.make_room_at(0, key, room, purpose, retry)
    }

    /// Makes room in the node of `level` on the way to `key`.
    pub(super) fn make_room_at<'p>(
        &'p self,
        level: u8,
        key: &[u8],
        room: Room<'_>,
        purpose: Purpose,
        retry: &mut Retry<'p, P>,
    ) -> Result<()> {
        let (mut level, mut room) = (level, room);
        loop {
            // Two: a root needs both, and whether the node is the root is known only when latched.
            retry.session.reserve(2)?;
            match self.split(key, level, room, purpose, retry) {
                Ok(Outcome::Done) => return Ok(()),
                Ok(Outcome::Lonely(key, side)) => {
                    self.merge_lonely(&key, level, side, retry);
                    return Ok(());
                }
                Ok(Outcome::ParentFull(bytes)) => {
                    level += 1;
                    room = Room::Separator(bytes);
                }
                Err(stop) => retry.after(stop)?,
            }
        }
    }

    fn split<'p>(
        &'p self,
        key: &[u8],
        level: u8,
        room: Room<'_>,
        purpose: Purpose,
        retry: &mut Retry<'p, P>,
    ) -> Result<Outcome, Stop> {
        let stay;
        let pair = if retry.is_latched() {
            stay = self.pool.enter_to_append(0, purpose, retry.waiting())?;
            let Some(pair) = self.lock_with_parent(key, level, retry.patience())? else {
                return Ok(Outcome::Done);
            };
            pair
        } else {
            let reached = self.reach(Target::Key(key), level)?;
            if reached.level != level {
                return Ok(Outcome::Done);
            }
            stay = self.pool.enter_to_append(0, purpose, retry.waiting())?;
            reached.latch()?
        };
        self.split_latched(pair, key, level, room, stay.epoch(), &mut retry.session)
    }

    fn split_latched<'p>(
        &'p self,
        mut latched: LockedPair<'p, P>,
        key: &[u8],
        level: u8,
        room: Room<'_>,
        epoch: Epoch,
        session: &mut P::Session<'p>,
    ) -> Result<Outcome, Stop> {
        let leaf = plain_leaf(latched.page.bytes());
        // Two keys are cut apart only where both are: elsewhere the cut would be beyond the leaf's fences.
        let is_forced = leaf.count() >= LEAST_FORCED
            && is_drawn(Point::Split)
            && !matches!(room, Room::Apart { .. });
        if has_room(latched.page.bytes(), room) && !is_forced {
            latched.release();
            return Ok(Outcome::Done);
        }
        if !leaf.layout().is_dense() && !matches!(room, Room::Apart { .. }) {
            match leaf.count() {
                // Only bytes from outside can be like this: a node without keys always has space.
                0 => {
                    let id = latched.page.id();
                    latched.release();
                    return Err(Restart::Corrupt(id).into());
                }
                // The others have gone meanwhile, and it takes any value.
                1 if level == 0 && leaf.find(key).found => {
                    latched.release();
                    return Ok(Outcome::Done);
                }
                _ => {}
            }
        }
        let scans = level == 0 && self.are_scans_common(latched.page.frame());
        let remedied = |page: &mut [u8], key, value_bytes| match remedy(
            page,
            key,
            value_bytes,
            self.policy,
            scans,
        ) {
            Remedy::Split(split) => Some(ahead(page, split, key)),
            Remedy::Converted => None,
        };
        let split = match room {
            Room::Separator(_) => Some(LeafSplit::Slotted(choose_in_inner(&mut latched.page, key))),
            Room::Record { key, value_bytes } => {
                remedied(latched.page.write(epoch), key, value_bytes)
            }
            Room::Apart { low, high, value_bytes } => {
                let page = latched.page.write(epoch);
                carve(page, low, high).or_else(|| remedied(page, high, value_bytes))
            }
        };
        let Some(split) = split else {
            self.count_adapted(1);
            latched.release_changed();
            return Ok(Outcome::Done);
        };
        let cut = Cut { level, split: &split, scans, epoch, is_apart: false };
        self.divide(latched, key, &cut, session)
    }

    /// Splits a latched node, if its parent has room for the separator, for an insertion or an update of `key`.
    pub(super) fn divide<'p>(
        &'p self,
        mut latched: LockedPair<'p, P>,
        key: &[u8],
        cut: &Cut<'_>,
        session: &mut P::Session<'p>,
    ) -> Result<Outcome, Stop> {
        let &Cut { level, split, epoch, .. } = cut;
        let bytes = split.separator().len();
        if let Some((parent, _)) = &mut latched.parent
            && !NodeMut::new(parent.bytes_mut()).fits_separator(bytes)
        {
            // A leaf may have been sorted.
            if level == 0 {
                latched.release_changed()
            } else {
                latched.release()
            };
            return Ok(Outcome::ParentFull(bytes));
        }
        match &mut latched.parent {
            Some((parent, index)) => {
                let frame = latched.page.frame();
                let mut right = self.take_page(session, cut, &[frame]).ok_or_else(no_page)?;
                self.halve(&mut latched.page, &mut right, cut);
                NodeMut::new(parent.write(epoch))
                    .insert_child(*index, split.separator(), right.id())
                    .expect("the parent was seen to have room, and is latched since");
                let counts = [latched.page.bytes(), right.bytes()].map(|page| plain(page).count());
                Ok(if level > 0 { lonely(counts, split.separator(), key) } else { Outcome::Done })
            }
            None => {
                if level + 1 >= MAX_LEVELS {
                    let id = latched.page.id();
                    latched.release();
                    return Err(Restart::Corrupt(id).into());
                }
                self.split_root(&mut latched.page, cut, session)?;
                Ok(Outcome::Done)
            }
        }
    }

    /// Moves the root's contents into two new pages, of which it becomes the parent.
    fn split_root<'p>(
        &'p self,
        root: &mut ExclusivePage<'p, P>,
        cut: &Cut<'_>,
        session: &mut P::Session<'p>,
    ) -> Result<()> {
        let &Cut { level, split, epoch, .. } = cut;
        let frame = root.frame();
        let mut left = self.take_page(session, cut, &[frame]).ok_or_else(no_page)?;
        let Some(mut right) = self.take_page(session, cut, &[frame, left.frame()]) else {
            self.pool.free(left, epoch);
            return Err(no_page());
        };
        node::copy_node(left.write(epoch), root.bytes());
        self.keep_tally(frame, left.frame());
        self.keep_contention(frame, left.frame());
        self.halve(&mut left, &mut right, cut);
        let bytes = root.write(epoch);
        let mut node = NodeMut::format(bytes, PageKind::Inner, level + 1, None, None);
        node.set_upper_child(left.id());
        node.insert_child(0, split.separator(), right.id())
            .expect("an empty inner node has room for any separator");
        Ok(())
    }

    /// A reserved page for a half of a node that is in one of these frames.
    fn take_page<'p>(
        &'p self,
        session: &mut P::Session<'p>,
        cut: &Cut<'_>,
        frames: &[FrameId],
    ) -> Option<ExclusivePage<'p, P>> {
        match cut.is_apart {
            true => session.take_apart(self.id, cut.epoch, frames),
            false => session.take(self.id, cut.epoch),
        }
    }

    /// Splits a latched node into itself and a fresh page. Each half of a leaf gets the layout that is
    /// good for it.
    fn halve(
        &self,
        page: &mut ExclusivePage<'_, P>,
        right: &mut ExclusivePage<'_, P>,
        cut: &Cut<'_>,
    ) {
        let &Cut { split, epoch, scans, is_apart, .. } = cut;
        let bytes = page.write(epoch);
        match split {
            LeafSplit::Slotted(split) if header::level(bytes) > 0 => {
                NodeMut::new(bytes).split_into(split, right.write(epoch));
            }
            _ => {
                let adapted =
                    LeafMut::new(bytes).split_into(split, right.write(epoch), self.policy, scans);
                self.count_adapted(adapted.iter().filter(|side| side.changed).count());
                self.hand_tally_on([page.frame(), right.frame()], adapted);
                self.hand_contention_on([page.frame(), right.frame()], is_apart);
            }
        }
    }
}

/// What is left of an inner node that was split for `key` into two with so many separators. The side that the key goes to is
/// about to get a child more.
fn lonely(counts: [usize; 2], separator: &[u8], key: &[u8]) -> Outcome {
    let goes_left = key <= separator;
    match counts {
        [0, _] if !goes_left => Outcome::Lonely(separator.to_vec(), Side::Left),
        [_, 0] if goes_left => Outcome::Lonely(successor(separator), Side::Right),
        _ => Outcome::Done,
    }
}

/// Whether the node has room without a split. Rather no than yes: a yes must hold when it is used.
fn has_room(page: &[u8], room: Room<'_>) -> bool {
    match room {
        Room::Record { key, value_bytes } => plain_leaf(page).has_room(key, value_bytes),
        // They may be apart already.
        Room::Apart { low, high, .. } => {
            let node = plain(page);
            !node.covers(low) || !node.covers(high)
        }
        Room::Separator(bytes) => plain(page).free_bytes() >= bytes + SLOT_SLACK_BYTES,
    }
}

/// A cut of a comparison or fingerprint leaf between two keys, which need not be there; one side may be left without records.
/// `None` for a dense leaf, and if the sides would not fit.
fn carve(page: &mut [u8], low: &[u8], high: &[u8]) -> Option<LeafSplit> {
    if plain_leaf(page).layout().is_dense() {
        return None;
    }
    Leaf::put_in_order(page);
    // The shortest that is below the one and not below the other, but for what the other has behind its length.
    let common = common_prefix(low, high);
    let short = high.get(..common + 1).filter(|short| short.len() < high.len());
    [short, Some(low)].into_iter().flatten().find_map(|separator| {
        let mut leaf = LeafMut::new(page);
        let at = leaf.as_leaf().search(separator);
        let index = at.index + usize::from(at.found);
        let split = Split { index, separator: separator.to_vec() };
        leaf.fits_split(&split).then_some(LeafSplit::Slotted(split))
    })
}

fn choose_in_inner(page: &mut ExclusivePage<'_, impl PagePool>, key: &[u8]) -> Split {
    let node = NodeMut::new(page.bytes_mut());
    let index = node.as_node().child_for(key).index;
    node.choose_split(SplitHint::Insert { index, key, value_bytes: 0 })
}

/// A cut of a leaf, or a better one at the same place, with a fence ahead of the key that comes.
fn ahead(page: &mut [u8], split: LeafSplit, key: &[u8]) -> LeafSplit {
    let LeafSplit::Slotted(split) = split else { return split };
    let mut leaf = LeafMut::new(page);
    let ahead = match leaf.as_leaf().search(key) {
        // A record that grows says nothing of where the next one goes.
        Position { found: true, .. } => None,
        Position { index, .. } => fence_ahead(&leaf.as_leaf(), index, key),
    };
    let ahead = ahead.filter(|ahead| ahead.index == split.index && leaf.fits_split(ahead));
    LeafSplit::Slotted(ahead.unwrap_or(split))
}

/// The cut for a leaf that is filled in one direction and whose range is much wider than its keys: a
/// fence *beyond* the key that comes, close enough that all keys, and those to follow, share a long
/// prefix.
///
/// The last leaf of a tree reaches up without end, so that its keys have no prefix to truncate. Filled
/// by ascending keys and then cut behind the last of them, it would be left with the room that the
/// prefix takes: a third of the page for URLs. With the fence ahead, the leaf keeps all records, has
/// the prefix, and goes on to be filled; the keys beyond the fence find an empty leaf when they come.
///
/// `None` if there is little to gain: neither a good part of this page, nor one record more in each of
/// the leaves to follow. How many will follow is a guess from how far the keys of this one are apart.
fn fence_ahead<B: PageBytes>(leaf: &Leaf<B>, index: usize, key: &[u8]) -> Option<Split> {
    // Of a suffix only what is behind its head takes room in the record, if there are heads.
    let head_bytes = match leaf {
        _ if !rung::PREFIX => return None,
        Leaf::Comparison(_) => rung::HEAD_BYTES,
        _ => 0,
    };
    let node = leaf.as_node();
    let count = node.count();
    let mut fence = Vec::new();
    let separator = if index == count && node.append_lower_fence(&mut fence) {
        // The largest short string with the prefix; a key above it would gain nothing.
        let mut separator = key[..common_prefix(&fence, key)].to_vec();
        separator.push(u8::MAX);
        (key <= separator.as_slice()).then_some(separator)?
    } else if index == 0 && node.append_upper_fence(&mut fence) {
        // The prefix itself is below all other keys that have it.
        let common = common_prefix(&fence, key);
        (common < key.len()).then(|| key[..common].to_vec())?
    } else {
        return None;
    };
    let longer = separator.len().saturating_sub(node.prefix_len() + 1);
    let unstored = node.prefix_len() + head_bytes;
    let saved = |index| leaf.key_len(index).saturating_sub(unstored).min(longer);
    let gain = (0..count).map(saved).sum::<usize>().saturating_sub(separator.len());
    let much = gain >= node.bytes().len() / GAIN_PART;
    let one_each = gain > 0
        && leaf.free_bytes() + gain >= leaf.payload_bytes() / count.max(1)
        && is_wide(&fence, key, &separator, node.prefix_len());
    (much || one_each).then_some(Split { index, separator })
}

/// Whether the range between `key` and the fence ahead is good for many leaves, if each takes as much of
/// it as lies between `behind`, the other fence of the leaf at hand, and `key`. This can be told only of
/// short keys, which are numbers of at most eight bytes behind the prefix that all of them share: texts
/// leave most of their range empty.
fn is_wide(behind: &[u8], key: &[u8], ahead: &[u8], prefix_len: usize) -> bool {
    let number = |key: &[u8]| {
        let mut bytes = [0; 8];
        let rest = key.get(prefix_len..).unwrap_or(&[]);
        let len = rest.len().min(8);
        bytes[..len].copy_from_slice(&rest[..len]);
        u64::from_be_bytes(bytes)
    };
    if key.len() > prefix_len + 8 {
        return false;
    }
    let [behind, key, ahead] = [behind, key, ahead].map(number);
    key.abs_diff(ahead) / WIDE_LEAVES >= key.abs_diff(behind).max(1)
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}
