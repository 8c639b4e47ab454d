//! The leaves of a commit while they are latched, and how one is known again that was waited for.
//!
//! Plain data beside latches; thread-safety: used by one thread.

use crate::node::{Ladder, Node};
use crate::page::{ExclusivePage, PagePool, SharedPage, header};
use crate::types::TreeId;
use hedgerow_sync::optimistic::PageBytes;

/// How far a node goes.
#[derive(PartialEq, Eq)]
pub struct Fences {
    /// All its keys are above this one.
    pub lower: Option<Vec<u8>>,
    /// No key of it is above this one.
    pub upper: Option<Vec<u8>>,
}

impl Fences {
    pub(super) fn of<B: PageBytes, L: Ladder>(node: &Node<B, L>) -> Fences {
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
