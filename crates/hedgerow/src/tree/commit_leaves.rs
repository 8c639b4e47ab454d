//! The leaves of a commit: while they are latched, how one is known again that was waited for, whether one takes its changes, room for them,
//! and the changes.
//!
//! Room is made with nothing latched. Plain data beside latches; thread-safety: used by one thread.

use super::retry::Retry;
use super::sparse::{is_sparse, is_turn};
use super::split::Room;
use super::write_set::Write;
use crate::error::Result;
use crate::node::{Leaf, LeafMut, Node, Position, plain_leaf};
use crate::page::{EpochStay, ExclusivePage, PagePool, SharedPage, header};
use crate::types::{Lsn, Purpose, TreeId};
use hedgerow_sync::optimistic::PageBytes;
use std::ops::Range;

/// How far a node goes.
#[derive(PartialEq, Eq)]
pub struct Fences {
    /// All its keys are above this one.
    pub lower: Option<Vec<u8>>,
    /// No key of it is above this one.
    pub upper: Option<Vec<u8>>,
}

impl Fences {
    pub(super) fn of<B: PageBytes>(node: &Node<B>) -> Fences {
        let (mut lower, mut upper) = (Vec::new(), Vec::new());
        Fences {
            lower: node.append_lower_fence(&mut lower).then_some(lower),
            upper: node.append_upper_fence(&mut upper).then_some(upper),
        }
    }
}

/// The leaves of a commit, latched.
pub(super) struct Latched<'c, P: PagePool> {
    /// Those that are written to, in their order.
    pub(super) exclusive: Vec<ExclusivePage<'c, P>>,
    /// Those that were read only.
    pub(super) shared: Vec<SharedPage<'c, P>>,
}

impl<P: PagePool> Latched<'_, P> {
    /// Lets go of all, unchanged.
    pub(super) fn release(self) {
        self.exclusive.into_iter().for_each(ExclusivePage::release_unchanged);
    }
}

/// Whether a latched page is a leaf of a tree.
pub(super) fn is_leaf_of(page: &[u8], tree: TreeId) -> bool {
    header::level(page) == 0
        && header::tree_id(page) == tree
        && header::kind(page)
            .is_some_and(|kind| !matches!(kind, header::PageKind::Free | header::PageKind::Inner))
}

/// What is worth doing when the commit is done.
pub(super) enum Later {
    Merge,
    Split,
}

/// Where the only change of a leaf is; `None`: it may find no room.
#[inline]
pub(super) fn place_of<B: PageBytes, P: PagePool>(
    leaf: &Leaf<B>,
    one: &Write<'_, P>,
) -> Option<Position> {
    let has_room = one.value.is_none_or(|value| leaf.has_room(one.key, value.len()));
    has_room.then(|| leaf.find(one.key))
}

/// Whether a leaf takes its changes, without a try.
pub(super) fn is_shown<B: PageBytes, P: PagePool>(leaf: &Leaf<B>, writes: &[Write<'_, P>]) -> bool {
    let mut puts = writes.iter().filter_map(|write| Some((write.key, write.value?)));
    match (puts.next(), puts.next()) {
        (None, _) => true,
        (Some((key, value)), None) => leaf.has_room(key, value.len()),
        _ => false,
    }
}

/// Makes the changes in a scratch copy; which of them finds no room.
pub(super) fn first_without_room<P: PagePool>(
    scratch: &mut [u8],
    writes: &[Write<'_, P>],
) -> Option<usize> {
    let mut leaf = LeafMut::new(scratch);
    writes.iter().position(|write| {
        let at = leaf.as_leaf().find(write.key);
        !change_record(&mut leaf, at, write)
    })
}

/// Makes room for the change at `at` in a leaf that has it for those from `first` on, and then for those behind it, in what comes of that leaf. So who has
/// many for one place looks at all other leaves once, and not for each new one. It stops where a leaf is not at hand.
pub(super) fn make_room_from<'c, P: PagePool>(
    writes: &'c [Write<'c, P>],
    (mut first, mut at): (usize, usize),
    scratch: &mut [u8],
    splits_left: &mut usize,
    retry: &mut Retry<'c, P>,
) -> Result<()> {
    while *splits_left > 0 {
        *splits_left -= 1;
        let Write { tree, key, value } = writes[at];
        let value_bytes = value.map_or(0, <[u8]>::len);
        // Splits for single keys never end: for each alone there is room.
        let room = match at.checked_sub(1).filter(|_| at > first) {
            Some(below) => Room::Apart { low: writes[below].key, high: key, value_bytes },
            None => Room::Record { key, value_bytes },
        };
        retry.turn_to(tree.root);
        tree.make_room(key, room, Purpose::Take, retry)?;
        match next_without_room(&writes[at..], scratch).map(|next| at + next) {
            Some(next) if next > at => (first, at) = (at, next),
            // Not even alone.
            Some(_) if first < at => first = at,
            _ => break,
        }
    }
    Ok(())
}

/// Which change finds no room in the leaf that is the first one's by now. `None`: all of that leaf do, or it is not at hand.
fn next_without_room<P: PagePool>(writes: &[Write<'_, P>], scratch: &mut [u8]) -> Option<usize> {
    let Write { tree, key, .. } = *writes.first()?;
    let page = tree.leaf_for(key).ok()?;
    page.bytes().copy(0, scratch);
    page.validate().ok()?;
    let node = plain_leaf(scratch).as_node();
    let is_here =
        |write: &Write<'_, P>| write.tree.id() == tree.id() && node.is_within_upper(write.key);
    let here = &writes[..writes.partition_point(is_here)];
    first_without_room(scratch, here)
}

/// Makes one change, of the record that was found or not found; `false`: there is no room, and nothing has changed.
fn change_record<P: PagePool>(leaf: &mut LeafMut<'_>, at: Position, write: &Write<'_, P>) -> bool {
    match write.value {
        Some(value) if at.found => leaf.update(at.index, value).is_ok(),
        Some(value) => leaf.insert(at, write.key, value).is_ok(),
        None => {
            if at.found {
                leaf.remove(at.index);
            }
            true
        }
    }
}

/// What a leaf's changes have in common.
pub(super) struct Changed {
    /// Their LSN, and how many open snapshots need no versions of them.
    pub(super) order: (Lsn, u64),
    pub(super) met: bool,
    pub(super) writes: Range<usize>,
    /// Where the only one is, if somebody has found it in this version of the leaf.
    pub(super) at: Option<Position>,
}

/// Makes the changes of one latched leaf, and lets go of it.
pub(super) fn change_leaf<'c, P: PagePool>(
    all: &'c [Write<'c, P>],
    mut page: ExclusivePage<'c, P>,
    stay: &P::EpochGuard<'c>,
    changed: &Changed,
    later: &mut Vec<(usize, Later)>,
) {
    let writes = &all[changed.writes.clone()];
    let tree = writes[0].tree;
    let is_nothing = |write: &Write<'c, P>| {
        let find = || plain_leaf(page.bytes()).find(write.key);
        write.value.is_none() && !changed.at.unwrap_or_else(find).found
    };
    if writes.iter().all(is_nothing) {
        return page.release_unchanged();
    }
    let frame = page.frame();
    let stored_forms = tree.pool.has_stored_forms();
    let mut leaf = LeafMut::new(page.write(stay.epoch()));
    let keeps = tree.logged && tree.pool.keeps_versions(stay);
    let (mut old, mut removed, mut updated) = (Vec::new(), 0, None);
    for write in writes {
        let at = changed.at.unwrap_or_else(|| leaf.as_leaf().find(write.key));
        removed += usize::from(write.value.is_none() && at.found);
        updated = at.found.then_some(at.index).filter(|_| write.value.is_some());
        if stored_forms || keeps {
            old.clear();
            if at.found {
                leaf.as_leaf().append_value(at.index, &mut old);
            }
        }
        assert!(change_record(&mut leaf, at, write), "a commit's changes were shown to fit");
        if stored_forms {
            tree.note_stored_forms(stay, &old, write.value.unwrap_or(&[]));
        }
        // Of what was not there, and was removed, there is nothing to be kept.
        if keeps && (at.found || write.value.is_some()) {
            let was = at.found.then_some(old.as_slice());
            tree.keep_version(stay, write.key, (was, write.value.is_none()), changed.order);
        }
    }
    // Of several changes none has a key that another one is to be kept apart from.
    let updated = updated.filter(|_| writes.len() == 1);
    if tree.logged {
        leaf.stamp(changed.order.0);
    }
    let node = leaf.as_leaf();
    let count = node.count();
    if removed > 0 && is_sparse(&node) && (removed > 1 || is_turn(count)) {
        later.push((changed.writes.start, Later::Merge));
    } else if tree.note_write(frame, updated, changed.met) {
        later.push((changed.writes.start, Later::Split));
    }
}
