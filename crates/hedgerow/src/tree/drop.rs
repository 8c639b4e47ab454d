//! Freeing all pages of a tree, restartably.
//!
//! First the root says that its tree is being freed: from then on every other handle meets `KeyspaceDropped` there. Then
//! one child goes at a time, from the right: in one step, within one epoch, it is taken out of its
//! parent and freed. Nodes above it that have no other child go with it. At every moment what is left
//! hangs together under the root, so that after a crash the same call goes on where it stopped; the
//! root goes last.
//!
//! Without its last child a node leads keys to a leaf that is not theirs, and a leaf is searched as if each key belonged to it. So each step
//! latches all nodes from the root on: whoever has come to one of them before starts over at the root. Thread-safety: as for [`Tree`].

use super::retry::{Retry, Stop};
use super::{MAX_LEVELS, Tree};
use crate::error::{ErrorKind, Result};
use crate::node::{Node, NodeMut};
use crate::page::{Access, EpochStay, OptimisticPage, PagePool, PoolSession, Restart, header};
use crate::types::PageId;
use crate::wait::Waiting;

/// Most leaves that are asked for together.
const AHEAD_MAX: usize = 32;

impl<P: PagePool> Tree<P> {
    /// Frees all pages of the tree, the root last. A tree that is gone already is no error.
    ///
    /// Errors: those of reading a page; what [`Journal::enter`](crate::page::Journal::enter) refuses. Then a part is left, and the
    /// same call goes on with it.
    pub fn drop_pages(&self) -> Result<()> {
        self.drop_some_pages(usize::MAX, &Waiting::Forever).map(drop)
    }

    /// [`Self::drop_pages`], of so many leaves at most, and waits as `waiting` says. True: that was all.
    pub fn drop_some_pages(&self, most: usize, waiting: &Waiting<'_>) -> Result<bool> {
        let tree = self.clone().to_free();
        let mut ahead = Vec::new();
        for number in 0..=most {
            // A session for each step: what is freed need not stay.
            let mut retry = Retry::new(&*self.pool, self.root, Access::Scan, waiting);
            loop {
                let step = match number > 0 {
                    true => tree.drop_last(&mut ahead, waiting),
                    false => tree.mark_being_freed(&mut retry, waiting),
                };
                match step {
                    Ok(true) => return Ok(true),
                    Ok(false) => break,
                    Err(stop) => {
                        if !ahead.is_empty() {
                            retry.session.prefetch(&ahead, Access::Scan)?;
                            ahead.clear();
                        }
                        match retry.after(stop) {
                            Err(error) if error.kind() == ErrorKind::KeyspaceDropped => {
                                return Ok(true);
                            }
                            other => other?,
                        }
                    }
                }
            }
        }
        Ok(false)
    }

    /// Notes in the root that the tree is being freed. Not all is done yet: false.
    fn mark_being_freed(
        &self,
        retry: &mut Retry<'_, P>,
        waiting: &Waiting<'_>,
    ) -> Result<bool, Stop> {
        let stay = self.pool.enter_to_free(waiting)?;
        let mut root = match retry.is_latched() {
            true => self.lock_any_root(retry.patience())?,
            false => self.open_root()?.0.upgrade()?,
        };
        header::set_being_freed(root.write(stay.epoch()));
        Ok(false)
    }

    /// Frees the last leaf, and the nodes above it that have no other child. True if that was all.
    fn drop_last(&self, ahead: &mut Vec<PageId>, waiting: &Waiting<'_>) -> Result<bool, Stop> {
        let (root, mut level) = self.open_root()?;
        let mut path = Vec::with_capacity(usize::from(MAX_LEVELS));
        path.push(root);
        while level > 0 {
            level -= 1;
            let parent = path[path.len() - 1];
            let node = Node::new(parent.bytes());
            let count = node.count();
            let child = self.open_child(node.child_at(count), &parent, level);
            if let Err(Restart::Absent(_)) = child {
                let last = (0..=count).rev().take(AHEAD_MAX).map(|index| node.child_at(index));
                ahead.extend(last.filter(|&id| self.pool.translate(id).is_none()));
            }
            path.push(child?);
        }
        // The deepest node that keeps a child; below it a chain of only children.
        let keeper = self.keeper(&path)?;
        let stay = self.pool.enter_to_free(waiting)?;
        let epoch = stay.epoch();
        let first = keeper.unwrap_or(0);
        let mut above = Vec::with_capacity(first);
        for page in &path[..first] {
            // Nothing of it changes but its version.
            above.push(page.upgrade_to_rearrange()?);
        }
        let mut latched = Vec::with_capacity(path.len());
        for page in &path[first..] {
            latched.push(page.upgrade()?);
        }
        if let Some(leaf) = latched.last() {
            self.note_page(epoch, leaf.bytes(), false);
        }
        let mut latched = latched.into_iter();
        if keeper.is_some()
            && let Some(mut keeper) = latched.next()
        {
            let mut node = NodeMut::new(keeper.write(epoch));
            let last = node.as_node().count();
            node.remove_child(last - 1);
            if first == 0 {
                header::set_being_freed(keeper.write(epoch));
            }
            for page in latched {
                self.pool.free(page, epoch);
            }
            return Ok(false);
        }
        // Bottom up: the root is the last to go.
        for page in latched.rev() {
            self.pool.free(page, epoch);
        }
        Ok(true)
    }

    /// Index in the path of the deepest inner node with more than one child.
    fn keeper(&self, path: &[OptimisticPage<'_, P>]) -> Result<Option<usize>, Restart> {
        let mut keeper = None;
        for (index, page) in path[..path.len() - 1].iter().enumerate() {
            if Node::new(page.bytes()).count() > 0 {
                keeper = Some(index);
            }
        }
        for page in path {
            page.validate()?;
        }
        Ok(keeper)
    }
}
