//! From one leaf to the next: how a scan comes to the neighbour of the leaf that it has copied.
//!
//! The way is remembered: while the parent has not changed, its next child is the next leaf, and nothing is walked from the root.
//! If that child is not in memory, the following ones are asked for with it (`read_ahead.rs`).
//!
//! Invariants: a copy is the leaf beyond the fence that is asked for, because a trail is only kept for the leaf that was copied last; who
//! goes on from another one says so by [`LeafWalk::forget`]. Plain data; used by one thread at a time.

use super::Tree;
use super::descend::{Target, Trail};
use super::read_ahead::ReadAhead;
use crate::error::Result;
use crate::page::Pages;
use std::fmt;

/// The leaf that a scan wants when it has come to the end of another one.
#[derive(Clone, Copy, Debug)]
pub struct Beyond<'b> {
    /// The upper fence of that one, or its lower one if the scan goes backwards.
    pub fence: &'b [u8],
    /// Whether it goes on to larger keys.
    pub forward: bool,
    /// Where the scan ends. Leaves behind it are not read ahead.
    pub bound: Option<&'b [u8]>,
}

impl<'b> Beyond<'b> {
    /// The same leaf, for a descent.
    pub fn target(&self) -> Target<'b> {
        if self.forward { Target::Above(self.fence) } else { Target::Key(self.fence) }
    }
}

/// Where a scan is. See the head of the file.
#[derive(Default)]
pub struct LeafWalk {
    trail: Option<Trail>,
    ahead: ReadAhead,
}

impl fmt::Debug for LeafWalk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeafWalk").finish_non_exhaustive()
    }
}

impl LeafWalk {
    /// The next leaf is no neighbour of the one that was copied last.
    pub fn forget(&mut self) {
        self.begin(None);
    }

    /// It begins at a leaf that was copied, to which the trail leads.
    pub(super) fn begin(&mut self, trail: Option<Trail>) {
        *self = LeafWalk { trail, ahead: ReadAhead::default() };
    }

    /// Copies the next leaf into `to`, which has the size of a page.
    ///
    /// Errors: as for [`Tree::copy_leaf`]; the walk is to be forgotten then.
    pub(super) fn step<P: Pages>(
        &mut self,
        tree: &Tree<P>,
        beyond: Beyond<'_>,
        to: &mut [u8],
    ) -> Result<()> {
        let Beyond { forward, bound, .. } = beyond;
        self.ahead.goes(forward);
        let neighbour = match self.trail {
            Some(trail) => tree.copy_neighbour(trail, forward, bound, &mut self.ahead, to)?,
            None => None,
        };
        self.trail = match neighbour {
            Some(trail) => Some(trail),
            None => tree.copy_leaf(beyond.target(), false, to)?,
        };
        self.ahead.advance(tree, bound);
        Ok(())
    }
}
