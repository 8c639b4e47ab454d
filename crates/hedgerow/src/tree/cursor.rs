//! Ordered iteration, in both directions, over any bounds.
//!
//! A cursor stands in a gap between two records. It holds a private copy of one leaf, or of a part of it
//! (`window.rs`), taken under
//! validation (or, after conflicts, under a shared latch), and iterates over that copy: no latch and
//! no pin outlives a call. Each leaf is thus seen as it was at one moment; the whole is not a
//! snapshot. Every record that is there for all of the iteration is seen exactly once and in order,
//! because the next leaf is the one for the keys behind the *fence* of the copy, whatever splits and
//! merges have happened since.
//!
//! `leaf_walk.rs` knows the way to the next leaf.
//!
//! Invariants: `first <= gap <= end` while a leaf is loaded; an error is sticky. A cursor is
//! `Send`, and used by one thread at a time.

use super::Tree;
use super::descend::{Target, plain};
use super::leaf_walk::{Beyond, LeafWalk};
use super::window::Window;
use crate::error::{Error, Result};
use crate::key::after_prefix;
use crate::node::plain_leaf;
use crate::page::Pages;
use crate::wait::Wait;
use std::ops::Bound;

/// Where a cursor goes when it is used next.
pub(super) enum Place {
    /// In the loaded leaf.
    Leaf,
    /// Before the first record in bounds.
    Start,
    /// Behind the last record in bounds.
    End,
    /// Before the first record whose key is not below the one that is sought.
    Sought,
}

/// A position in a tree, between bounds; see the head of this file.
pub struct Cursor<P: Pages> {
    pub(super) tree: Tree<P>,
    lower: Bound<Box<[u8]>>,
    upper: Bound<Box<[u8]>>,
    empty: bool,
    place: Place,
    pub(super) sought: Vec<u8>,
    pub(super) leaf: Box<[u8]>,
    /// What there is of the leaf, if that is not all.
    pub(super) window: Option<Window>,
    /// Places `first..end` of the leaf are in bounds, and in the window if there is one; the cursor stands before
    /// place `gap`. All are zero while the place is no leaf.
    pub(super) first: usize,
    pub(super) gap: usize,
    pub(super) end: usize,
    /// Whether a bound lies in the leaf, so that there is no need to look beyond it.
    starts_here: bool,
    ends_here: bool,
    walk: LeafWalk,
    /// The prefix of the leaf's keys, and behind it the suffix of the last one returned. As large as a
    /// page: keys have at most a quarter of one.
    pub(super) key: Box<[u8]>,
    pub(super) prefix_len: usize,
    fence: Vec<u8>,
    /// It stops at fences that are longer, as at the end; see [`Cursor::stopped_at`].
    stops_above_bytes: usize,
    has_stopped: bool,
    error: Option<Error>,
}

/// A record that a cursor has moved over.
#[derive(Clone, Copy, Debug)]
pub struct Passed(usize);

impl<P: Pages> Tree<P> {
    /// A cursor over the records whose keys are in `bounds`, standing before the first. Reads
    /// nothing yet. Bounds with the start above the end hold no records.
    pub fn range(&self, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Cursor<P> {
        self.cursor(bounds.0.map(Box::from), bounds.1.map(Box::from))
    }

    /// A cursor over all records.
    pub fn scan(&self) -> Cursor<P> {
        self.cursor(Bound::Unbounded, Bound::Unbounded)
    }

    /// A cursor over the records whose keys begin with `prefix`.
    #[cfg(hedgerow_internals)]
    pub fn prefix(&self, prefix: &[u8]) -> Cursor<P> {
        let upper = match after_prefix(prefix) {
            Some(key) => Bound::Excluded(key.into_boxed_slice()),
            None => Bound::Unbounded,
        };
        self.cursor(Bound::Included(prefix.into()), upper)
    }

    fn cursor(&self, lower: Bound<Box<[u8]>>, upper: Bound<Box<[u8]>>) -> Cursor<P> {
        Cursor {
            tree: self.clone(),
            empty: is_empty(&lower, &upper),
            lower,
            upper,
            place: Place::Start,
            sought: Vec::new(),
            leaf: Box::default(),
            window: None,
            first: 0,
            gap: 0,
            end: 0,
            starts_here: false,
            ends_here: false,
            walk: LeafWalk::default(),
            key: Box::default(),
            prefix_len: 0,
            fence: Vec::new(),
            stops_above_bytes: usize::MAX,
            has_stopped: false,
            error: None,
        }
    }
}

fn is_empty(lower: &Bound<Box<[u8]>>, upper: &Bound<Box<[u8]>>) -> bool {
    match (lower, upper) {
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (Bound::Excluded(low), Bound::Included(high))
        | (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high)) => low >= high,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
    }
}

impl<P: Pages> Cursor<P> {
    /// The record behind the cursor, which moves over it; `None` at the end, and from then on.
    ///
    /// The key and the value live until the cursor is used again. Errors: those of [`Tree::get`];
    /// after one, every call returns it again.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Ok(self.advance()?.map(|passed| self.lend(passed)))
    }

    /// Moves over the record behind the cursor, for [`Cursor::lend`]; else as [`Cursor::next_record`].
    #[inline(always)]
    pub fn advance(&mut self) -> Result<Option<Passed>> {
        loop {
            let place = plain_leaf(&self.leaf).next_place(self.gap);
            if place < self.end {
                self.gap = place + 1;
                return Ok(Some(Passed(place)));
            }
            if !self.step(true)? {
                return Ok(None);
            }
        }
    }

    /// The record before the cursor, which moves over it; `None` at the start, and from then on.
    /// Else as [`Cursor::next_record`].
    #[inline]
    pub fn previous_record(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Ok(self.go_back()?.map(|passed| self.lend(passed)))
    }

    /// Moves over the record before the cursor, for [`Cursor::lend`]; else as [`Cursor::previous_record`].
    #[inline(always)]
    pub fn go_back(&mut self) -> Result<Option<Passed>> {
        loop {
            let place = plain_leaf(&self.leaf).previous_place(self.gap);
            if let Some(place) = place.filter(|place| *place >= self.first) {
                self.gap = place;
                return Ok(Some(Passed(place)));
            }
            if !self.step(false)? {
                return Ok(None);
            }
        }
    }

    /// Goes before the first record in bounds whose key is not below `key`. Reads nothing yet.
    pub fn seek(&mut self, key: &[u8]) {
        let below = match &self.lower {
            Bound::Included(low) | Bound::Excluded(low) => key <= &**low,
            Bound::Unbounded => false,
        };
        let above = match &self.upper {
            Bound::Included(high) | Bound::Excluded(high) => key > &**high,
            Bound::Unbounded => false,
        };
        self.sought.clear();
        self.sought.extend_from_slice(key);
        self.go(match (below, above) {
            (true, _) => Place::Start,
            (_, true) => Place::End,
            _ => Place::Sought,
        });
    }

    /// Goes before the first record in bounds. Reads nothing yet.
    pub fn seek_to_start(&mut self) {
        self.go(Place::Start);
    }

    /// Goes behind the last record in bounds. Reads nothing yet.
    pub fn seek_to_end(&mut self) {
        self.go(Place::End);
    }

    /// From now on the cursor says at a fence with more bytes than that, once, that there are no more records.
    pub fn stop_above(&mut self, fence_bytes: usize) {
        self.stops_above_bytes = fence_bytes;
    }

    /// The fence at which the cursor has just stopped, if that is why there were no more records. It goes on behind it.
    pub fn stopped_at(&mut self) -> Option<&[u8]> {
        std::mem::take(&mut self.has_stopped).then_some(&self.fence)
    }

    pub(super) fn go(&mut self, place: Place) {
        self.place = place;
        self.has_stopped = false;
        self.window = None;
        (self.first, self.gap, self.end) = (0, 0, 0);
    }

    /// Bytes of memory that the cursor holds.
    #[cfg(hedgerow_internals)]
    pub fn memory_bytes(&self) -> usize {
        let keys = self.key.len() + self.fence.capacity() + self.sought.capacity();
        size_of::<Self>() + self.leaf.len() + keys
    }

    /// How the cursor waits.
    pub fn wait(&self) -> &Wait {
        self.tree.wait()
    }

    /// The record that the cursor has just moved over, until it is moved again. Another's, if it is not that one.
    #[inline(always)]
    pub fn lend(&mut self, passed: Passed) -> (&[u8], &[u8]) {
        let leaf = plain_leaf(&self.leaf);
        let (end, value) = leaf.record(passed.0, &mut self.key, self.prefix_len);
        (&self.key[..end], value)
    }

    /// The values of the records of the loaded leaf that come next in a direction, `most` at most, as the leaf has them. It
    /// may be out of date. Reads nothing.
    pub fn upcoming_values(&self, forward: bool, most: usize) -> Vec<Vec<u8>> {
        if !matches!(self.place, Place::Leaf) {
            return Vec::new();
        }
        let leaf = plain_leaf(&self.leaf);
        let mut values = Vec::new();
        let places = match forward {
            true => self.gap..self.end,
            false => self.first..self.gap,
        };
        let mut take = |place: usize| {
            // Leaves that are arrays have places without a record.
            if values.len() < most && leaf.next_place(place) == place {
                let mut value = Vec::new();
                leaf.append_value(place, &mut value);
                values.push(value);
            }
        };
        match forward {
            true => places.for_each(&mut take),
            false => places.rev().for_each(&mut take),
        }
        values
    }

    /// Every further call returns this error: what the record stands for that was lent last cannot be had.
    pub fn fail(&mut self, error: &Error) {
        self.error = Some(error.duplicate());
        // Nothing of the leaf is returned any more, in either direction.
        self.window = None;
        (self.first, self.gap, self.end) = (0, 0, 0);
    }

    /// Loads the leaf that comes next in a direction. `false` if there is none.
    #[inline(never)]
    pub(super) fn step(&mut self, forward: bool) -> Result<bool> {
        if let Some(error) = &self.error {
            return Err(error.duplicate());
        }
        if self.empty {
            return Ok(false);
        }
        let stepped = match &self.place {
            Place::Leaf => self.step_leaf(forward),
            _ => self.step_to_place(forward).map(|()| true),
        };
        stepped.inspect_err(|error| self.fail(error))
    }

    /// Loads the leaf of the place that the cursor was sent to, or what of it comes first in a direction.
    pub(super) fn step_to_place(&mut self, forward: bool) -> Result<()> {
        if self.leaf.is_empty() {
            let page_bytes = self.tree.pool.page_bytes();
            self.leaf = vec![0; page_bytes].into_boxed_slice();
            self.key = vec![0; page_bytes].into_boxed_slice();
        }
        let (target, behind) = match (&self.place, &self.lower, &self.upper) {
            (Place::Sought, ..) => (Target::Key(&self.sought), false),
            (Place::Start | Place::Leaf, Bound::Included(key), _) => (Target::Key(key), false),
            (Place::Start | Place::Leaf, Bound::Excluded(key), _) => (Target::Key(key), true),
            (Place::Start | Place::Leaf, Bound::Unbounded, _) => (Target::Key(&[]), false),
            (Place::End, _, Bound::Included(key)) => (Target::Key(key), true),
            (Place::End, _, Bound::Excluded(key)) => (Target::Key(key), false),
            (Place::End, _, Bound::Unbounded) => (Target::Last, true),
        };
        let (trail, window) = self.tree.copy_near(target, forward, &mut self.leaf)?;
        self.walk.begin(trail);
        let leaf = plain_leaf(&self.leaf);
        let gap = match target {
            Target::Key(key) | Target::Above(key) => {
                let at = leaf.search(key);
                at.index + usize::from(at.found && behind)
            }
            Target::Last => leaf.end(),
        };
        self.enter_leaf(gap);
        self.stay_within(window);
        Ok(())
    }

    /// Loads the rest of the loaded leaf, or its neighbour. `false` if there is none, or the cursor stops.
    fn step_leaf(&mut self, forward: bool) -> Result<bool> {
        if self.widen(forward)? {
            return Ok(self.goes_over_fence());
        }
        if (forward && self.ends_here) || (!forward && self.starts_here) {
            return Ok(false);
        }
        let node = plain(&self.leaf);
        self.fence.clear();
        match forward {
            true => node.append_upper_fence(&mut self.fence),
            false => node.append_lower_fence(&mut self.fence),
        };
        self.window = None;
        let bound = match if forward { &self.upper } else { &self.lower } {
            Bound::Included(key) | Bound::Excluded(key) => Some(&**key),
            Bound::Unbounded => None,
        };
        let beyond = Beyond { fence: &self.fence, forward, bound };
        self.walk.step(&self.tree, beyond, &mut self.leaf)?;
        let node = plain(&self.leaf);
        // Each leaf reaches beyond the last one: damage must not send a scan round in circles.
        let advances = match forward {
            true => node.is_within_upper(&self.fence) && !node.is_upper_fence(&self.fence),
            false => node.is_above_lower(&self.fence),
        };
        if !advances {
            return Err(Error::corrupted_page(node.page_id(), "a leaf out of order"));
        }
        let at = match node.is_above_lower(&self.fence) {
            true => plain_leaf(&self.leaf).search(&self.fence),
            // The usual case: the lower fence of the new leaf is the upper fence of the old one.
            false => crate::node::Position { index: 0, found: false },
        };
        self.enter_leaf(at.index + usize::from(at.found));
        Ok(self.goes_over_fence())
    }

    fn goes_over_fence(&mut self) -> bool {
        self.has_stopped = self.fence.len() > self.stops_above_bytes;
        !self.has_stopped
    }

    /// Takes up a leaf that was just loaded, at a gap: its prefix, and where the bounds cut it.
    fn enter_leaf(&mut self, gap: usize) {
        let (node, leaf) = (plain(&self.leaf), plain_leaf(&self.leaf));
        self.prefix_len = leaf.copy_prefix(&mut self.key);
        // A bound below the node cuts nothing off at its start, one above it everything.
        let cut = |key: &[u8], behind: bool| {
            if !node.is_above_lower(key) {
                return 0;
            }
            if !node.is_within_upper(key) {
                return leaf.end();
            }
            let at = leaf.search(key);
            at.index + usize::from(at.found && behind)
        };
        (self.first, self.starts_here) = match &self.lower {
            Bound::Included(key) => (cut(key, false), node.is_above_lower(key)),
            Bound::Excluded(key) => (cut(key, true), node.is_above_lower(key)),
            Bound::Unbounded => (0, node.is_above_lower(&[])),
        };
        (self.end, self.ends_here) = match &self.upper {
            Bound::Included(key) => (cut(key, true), node.is_within_upper(key)),
            Bound::Excluded(key) => (cut(key, false), node.is_within_upper(key)),
            Bound::Unbounded => (leaf.end(), !node.has_upper_fence()),
        };
        self.end = self.end.max(self.first);
        self.gap = gap.clamp(self.first, self.end);
        self.place = Place::Leaf;
    }
}

impl<P: Pages> Cursor<P> {
    /// Keeps the cursor, which has just taken up a leaf, within the part of it that was copied.
    pub(super) fn stay_within(&mut self, window: Option<Window>) {
        self.window = window.map(|window| {
            let within = self.first..self.end;
            // The gap is before the slot of the key that was sought, or behind it.
            debug_assert!(window.slots.start <= self.gap && self.gap <= window.slots.end);
            self.first = self.first.max(window.slots.start).min(self.gap);
            self.end = self.end.min(window.slots.end).max(self.gap);
            Window { within, ..window }
        });
    }

    /// If a part of the leaf was copied alone, and there is more in this direction: takes up all of the leaf. False
    /// if there is not.
    pub(super) fn widen(&mut self, forward: bool) -> Result<bool> {
        let has_more = |window: &Window| match forward {
            true => self.end < window.within.end,
            false => self.first > window.within.start,
        };
        let Some(window) = self.window.take_if(|window| has_more(window)) else {
            return Ok(false);
        };
        // Before the buffer is written to: what the leaf has become may not be what the place was in.
        let (leaf, place) = (plain_leaf(&self.leaf), if forward { self.end } else { self.first });
        debug_assert!(place < leaf.end(), "a window has a slot at its edge");
        let (end, _) = leaf.record(place, &mut self.key, self.prefix_len);
        self.sought.clear();
        self.sought.extend_from_slice(&self.key[..end]);
        let copied = self.tree.copy_rest(window.leaf, &mut self.leaf);
        self.fence.clear();
        if copied.is_ok() {
            (self.first, self.end) = (window.within.start, window.within.end);
        } else {
            self.go(Place::Sought);
            self.step_to_place(forward)?;
            // A leaf of another moment: that key is as good as a fence between the two.
            self.fence.extend_from_slice(&self.sought);
        }
        Ok(true)
    }
}

impl<P: Pages> std::fmt::Debug for Cursor<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor").field("tree", &self.tree).finish_non_exhaustive()
    }
}
