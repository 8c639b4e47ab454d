//! Freeing all pages of a tree, restartably.
//!
//! One child goes at a time, from the right: in one step, within one epoch, it is taken out of its
//! parent and freed. Nodes above it that have no other child go with it. At every moment what is left
//! hangs together under the root, so that after a crash the same call goes on where it stopped; the
//! root goes last.
//!
//! The caller sees to it that nobody uses the tree any more; who does so all the same sees records
//! vanish, and then `KeyspaceDropped`. Thread-safety: as for [`Tree`].

use super::retry::{Retry, Stop};
use super::{MAX_LEVELS, Tree};
use crate::error::{ErrorKind, Result};
use crate::node::{Node, NodeMut};
use crate::page::{Access, EpochStay, OptimisticPage, PagePool, PoolSession, Restart};
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
        let mut ahead = Vec::new();
        loop {
            // A session for each step: what is freed need not stay.
            let waiting = Waiting::Forever;
            let mut retry = Retry::new(&*self.pool, self.root, Access::Scan, &waiting);
            loop {
                match self.drop_last(&mut ahead) {
                    Ok(true) => return Ok(()),
                    Ok(false) => break,
                    Err(stop) => {
                        if !ahead.is_empty() {
                            retry.session.prefetch(&ahead, Access::Scan)?;
                            ahead.clear();
                        }
                        match retry.after(stop) {
                            Err(error) if error.kind() == ErrorKind::KeyspaceDropped => {
                                return Ok(());
                            }
                            other => other?,
                        }
                    }
                }
            }
        }
    }

    /// Frees the last leaf, and the nodes above it that have no other child. True if that was all.
    fn drop_last(&self, ahead: &mut Vec<PageId>) -> Result<bool, Stop> {
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
        let stay = self.pool.enter_to_free(&Waiting::Forever)?;
        let epoch = stay.epoch();
        let first = keeper.unwrap_or(0);
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
