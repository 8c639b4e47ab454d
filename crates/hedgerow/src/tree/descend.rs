//! From the root to a node: optimistic, and with latches.
//!
//! The optimistic way holds nothing; each child is opened between taking its version and validating
//! its parent ([`OptimisticPage::open`]). Who meets conflicts goes down in this way all the same, waits for the latch of the leaf, and
//! then looks whether the parent has changed: a hot leaf does not make its parents hot. Where that fails as well, the
//! latched way couples shared latches, parent held until
//! the child is latched, and takes exclusive ones for the last one or two levels.
//!
//! Invariants: a child's level is its parent's less one, or the page is reported as damaged; thus no
//! descent is longer than [`MAX_LEVELS`], whatever the bytes say. The root is checked to be this
//! tree's. Thread-safety: as for [`Tree`].

use super::retry::Patience;
use super::{MAX_LEVELS, Tree};
use crate::node::{ChildPosition, Node};
use crate::page::header::{self, PageKind};
use crate::page::{ExclusivePage, OptimisticPage, PageMark, Pages, Restart, SharedPage};
use crate::types::PageId;
use hedgerow_sync::optimistic::{PageBytes, PlainBytes};

/// Where a descent leads.
#[derive(Clone, Copy, Debug)]
pub enum Target<'k> {
    /// To the node whose range holds the key.
    Key(&'k [u8]),
    /// To the node whose range holds the next keys above this one, which is a fence.
    Above(&'k [u8]),
    /// To the last node of the level.
    Last,
}

impl Target<'_> {
    #[inline(always)]
    pub(super) fn child<B: PageBytes>(self, node: &Node<B>) -> ChildPosition {
        match self {
            Target::Key(key) => node.child_for(key),
            Target::Above(fence) => node.child_above(fence),
            Target::Last => {
                let index = node.count();
                ChildPosition { index, child: node.child_at(index) }
            }
        }
    }
}

/// A node, and the parent in which its id was read (none for the root).
pub(super) struct Reached<'p, P: Pages> {
    pub(super) page: OptimisticPage<'p, P>,
    pub(super) level: u8,
    pub(super) parent: Option<Parent<'p, P>>,
}

impl<'p, P: Pages> Reached<'p, P> {
    /// Latches the parent, if there is one, and the node exclusively, if they have not changed since; never waits. The caller
    /// is inside of an epoch.
    pub(super) fn latch(self) -> Result<LockedPair<'p, P>, Restart> {
        let parent = match self.parent {
            Some(parent) => Some((parent.page.upgrade()?, parent.index)),
            None => None,
        };
        match self.page.upgrade() {
            Ok(page) => Ok(LockedPair { parent, page }),
            Err(restart) => {
                if let Some((parent, _)) = parent {
                    parent.release_unchanged();
                }
                Err(restart)
            }
        }
    }
}

/// A parent, and the index in it of the child that was taken.
pub(super) struct Parent<'p, P: Pages> {
    pub(super) page: OptimisticPage<'p, P>,
    pub(super) index: usize,
}

/// Where a leaf was found: its parent, and the index in it.
#[derive(Clone, Copy)]
pub(super) struct Trail {
    pub(super) parent: PageMark,
    pub(super) index: usize,
}

/// Kind, level and flags are read as one.
const _: () = assert!(header::LEVEL == header::KIND + 1 && header::FLAGS == header::KIND + 2);

impl<P: Pages> Tree<P> {
    /// The level that the first bytes of a root tell. `None`: it is not this tree's root, or the tree is being freed by somebody else.
    #[inline(always)]
    fn check_root<B: PageBytes>(&self, bytes: B) -> Option<u8> {
        let [kind, level, flags @ ..] = bytes.field_u32::<{ header::KIND }>().to_le_bytes();
        let ours = bytes.field_u32::<{ header::TREE_ID }>() == self.id.0
            && kind != PageKind::Free as u8
            && (flags == [0, 0] || self.frees);
        ours.then_some(level)
    }

    /// Opens the root; gives its level too.
    #[inline(always)]
    pub(super) fn open_root(&self) -> Result<(OptimisticPage<'_, P>, u8), Restart> {
        let root = OptimisticPage::open(&*self.pool, self.root, None)?;
        match self.check_root(root.bytes()) {
            Some(level) if level < MAX_LEVELS => Ok((root, level)),
            Some(_) => Err(self.damaged(&root)),
            None => {
                root.validate()?;
                Err(Restart::Foreign(self.root))
            }
        }
    }

    /// What to answer to bytes that do not fit: damage, if they are not just being changed.
    #[cold]
    pub(super) fn damaged(&self, page: &OptimisticPage<'_, P>) -> Restart {
        match page.validate() {
            Ok(()) => Restart::Corrupt(page.id()),
            Err(restart) => restart,
        }
    }

    /// Opens `child`, whose id was read in `parent`, and checks its level.
    #[inline(always)]
    pub(super) fn open_child<'p>(
        &'p self,
        child: PageId,
        parent: &OptimisticPage<'p, P>,
        level: u8,
    ) -> Result<OptimisticPage<'p, P>, Restart> {
        let page = OptimisticPage::open(&*self.pool, child, Some(parent))?;
        let found = page.bytes().field_u8::<{ header::LEVEL }>();
        if found != level {
            return Err(self.damaged(&page));
        }
        Ok(page)
    }

    /// Asks for the lines of a node that every search reads first, all at once: else the processor
    /// finds out about the heads only when the hints have arrived. The frame is a guess, and a wrong
    /// one costs a few lines of cache.
    #[inline(always)]
    pub(super) fn prefetch_node(&self, id: PageId) {
        if let Some(frame) = self.pool.expect_frame(id) {
            Node::new(self.pool.bytes(frame)).prefetch();
        }
    }

    /// Goes down to the leaf for `key`.
    #[inline(always)]
    pub(super) fn leaf_for(&self, key: &[u8]) -> Result<OptimisticPage<'_, P>, Restart> {
        let (mut page, mut level) = self.open_root()?;
        while level > 0 {
            page.note_use();
            level -= 1;
            let child = Node::new(page.bytes()).child_for(key).child;
            if level == 0 {
                self.prefetch_node(child);
            }
            page = self.open_child(child, &page, level)?;
        }
        Ok(page)
    }

    /// Goes down to the node of `level` on the way to `target`. If the tree is lower than that, the
    /// root is what is reached.
    pub(super) fn reach(&self, target: Target<'_>, level: u8) -> Result<Reached<'_, P>, Restart> {
        let (mut page, mut at) = self.open_root()?;
        let mut parent = None;
        while at > level {
            page.note_use();
            at -= 1;
            let position = target.child(&Node::new(page.bytes()));
            let child = self.open_child(position.child, &page, at)?;
            parent = Some(Parent { page, index: position.index });
            page = child;
        }
        Ok(Reached { page, level: at, parent })
    }

    /// Latches the root shared and checks it; gives its level too.
    pub(super) fn share_root(
        &self,
        patience: &Patience<'_>,
    ) -> Result<(SharedPage<'_, P>, u8), Restart> {
        let page = SharedPage::wait(&*self.pool, self.root, &mut || patience.is_left())?;
        let level = self.latched_root_level(page.bytes())?;
        Ok((page, level))
    }

    fn latched_root_level(&self, bytes: &[u8]) -> Result<u8, Restart> {
        match self.check_root(PlainBytes::new(bytes)) {
            Some(level) if level < MAX_LEVELS => Ok(level),
            Some(_) => Err(Restart::Corrupt(self.root)),
            None => Err(Restart::Foreign(self.root)),
        }
    }

    /// Latches the root exclusively, whatever its level.
    pub(super) fn lock_any_root(
        &self,
        patience: &Patience<'_>,
    ) -> Result<ExclusivePage<'_, P>, Restart> {
        let page = ExclusivePage::wait(&*self.pool, self.root, &mut || patience.is_left())?;
        match self.latched_root_level(page.bytes()) {
            Ok(_) => Ok(page),
            Err(restart) => {
                page.release_unchanged();
                Err(restart)
            }
        }
    }

    /// Latches the child of a latched parent shared.
    pub(super) fn share_child(
        &self,
        child: PageId,
        level: u8,
        patience: &Patience<'_>,
    ) -> Result<SharedPage<'_, P>, Restart> {
        let page = SharedPage::wait(&*self.pool, child, &mut || patience.is_left())?;
        match header::level(page.bytes()) == level {
            true => Ok(page),
            false => Err(Restart::Corrupt(child)),
        }
    }

    /// Latches the child of a latched parent exclusively.
    fn lock_child(
        &self,
        child: PageId,
        level: u8,
        patience: &Patience<'_>,
    ) -> Result<ExclusivePage<'_, P>, Restart> {
        let page = ExclusivePage::wait(&*self.pool, child, &mut || patience.is_left())?;
        if header::level(page.bytes()) == level {
            return Ok(page);
        }
        page.release_unchanged();
        Err(Restart::Corrupt(child))
    }

    /// Latches the root exclusively, if it is of `level` now.
    fn lock_root(
        &self,
        level: u8,
        patience: &Patience<'_>,
    ) -> Result<ExclusivePage<'_, P>, Restart> {
        let page = self.lock_any_root(patience)?;
        if header::level(page.bytes()) == level {
            return Ok(page);
        }
        page.release_unchanged();
        Err(Restart::Conflict)
    }

    /// Couples shared latches down from `page`, which is of level `at`, to `level`.
    fn share_down<'p>(
        &'p self,
        mut page: SharedPage<'p, P>,
        mut at: u8,
        level: u8,
        target: Target<'_>,
        patience: &Patience<'_>,
    ) -> Result<SharedPage<'p, P>, Restart> {
        while at > level {
            at -= 1;
            let child = target.child(&plain(page.bytes())).child;
            // The parent's latch is let go of when the child's is held.
            page = self.share_child(child, at, patience)?;
        }
        Ok(page)
    }

    /// Finds the leaf for `target` optimistically, and the parent, which says that it is the one for as long as it does not change.
    /// `None` if the root is a leaf.
    fn below(
        &self,
        target: Target<'_>,
    ) -> Result<Option<(OptimisticPage<'_, P>, PageId)>, Restart> {
        let Reached { page, level, .. } = self.reach(target, 1)?;
        if level == 0 {
            page.validate()?;
            return Ok(None);
        }
        let child = target.child(&Node::new(page.bytes())).child;
        page.validate()?;
        Ok(Some((page, child)))
    }

    /// Latches the leaf for `target` shared.
    pub(super) fn share_leaf(
        &self,
        target: Target<'_>,
        patience: &Patience<'_>,
    ) -> Result<SharedPage<'_, P>, Restart> {
        if !patience.couples
            && let Some((parent, leaf)) = self.below(target)?
        {
            let page = self.share_child(leaf, 0, patience);
            // What was found instead of the leaf is damage only if the parent still says that it is the leaf.
            parent.validate()?;
            return page;
        }
        let (root, level) = self.share_root(patience)?;
        self.share_down(root, level, 0, target, patience)
    }

    /// Latches the leaf for `key` exclusively, and nothing else.
    pub(super) fn lock_leaf(
        &self,
        key: &[u8],
        patience: &Patience<'_>,
    ) -> Result<ExclusivePage<'_, P>, Restart> {
        self.lock_leaf_at(Target::Key(key), patience)
    }

    /// [`Self::lock_leaf`] for any target.
    pub(super) fn lock_leaf_at(
        &self,
        target: Target<'_>,
        patience: &Patience<'_>,
    ) -> Result<ExclusivePage<'_, P>, Restart> {
        if !patience.couples
            && let Some((parent, leaf)) = self.below(target)?
        {
            let page = self.lock_child(leaf, 0, patience);
            let is_it = parent.validate();
            return match (page, is_it) {
                (Ok(page), Err(restart)) => {
                    page.release_unchanged();
                    Err(restart)
                }
                (Err(_), Err(restart)) => Err(restart),
                (page, _) => page,
            };
        }
        let (root, level) = self.share_root(patience)?;
        if level == 0 {
            drop(root);
            return self.lock_root(0, patience);
        }
        let parent = self.share_down(root, level, 1, target, patience)?;
        let child = target.child(&plain(parent.bytes())).child;
        self.lock_child(child, 0, patience)
    }

    /// Latches the node of `level` on the way to `key` exclusively, and its parent before it; the
    /// parent is `None` if the node is the root. `None` if the tree is lower than that.
    pub(super) fn lock_with_parent(
        &self,
        key: &[u8],
        level: u8,
        patience: &Patience<'_>,
    ) -> Result<Option<LockedPair<'_, P>>, Restart> {
        let (root, root_level) = self.share_root(patience)?;
        if root_level < level {
            return Ok(None);
        }
        if root_level == level {
            drop(root);
            let page = self.lock_root(level, patience)?;
            return Ok(Some(LockedPair { parent: None, page }));
        }
        let target = Target::Key(key);
        let (parent, grandparent) = if root_level == level + 1 {
            drop(root);
            (self.lock_root(level + 1, patience)?, None)
        } else {
            let page = self.share_down(root, root_level, level + 2, target, patience)?;
            let child = target.child(&plain(page.bytes())).child;
            (self.lock_child(child, level + 1, patience)?, Some(page))
        };
        let position = target.child(&plain(parent.bytes()));
        let node = match self.lock_child(position.child, level, patience) {
            Ok(node) => node,
            Err(restart) => {
                parent.release_unchanged();
                return Err(restart);
            }
        };
        drop(grandparent);
        Ok(Some(LockedPair { parent: Some((parent, position.index)), page: node }))
    }
}

/// A node that is latched exclusively, and before it its parent, with the index in the parent; none
/// if the node is the root.
pub(super) struct LockedPair<'p, P: Pages> {
    pub(super) parent: Option<(ExclusivePage<'p, P>, usize)>,
    pub(super) page: ExclusivePage<'p, P>,
}

impl<P: Pages> LockedPair<'_, P> {
    /// Unlatches both, the parent without a new version: the node alone was changed.
    pub(super) fn release_changed(self) {
        drop(self.page);
        if let Some((parent, _)) = self.parent {
            parent.release_unchanged();
        }
    }

    /// Unlatches both without a new version: nothing was changed.
    pub(super) fn release(self) {
        self.page.release_unchanged();
        if let Some((parent, _)) = self.parent {
            parent.release_unchanged();
        }
    }
}

/// A view of bytes that nobody changes.
#[inline(always)]
pub(super) fn plain(bytes: &[u8]) -> Node<PlainBytes<'_>> {
    Node::new(PlainBytes::new(bytes))
}
