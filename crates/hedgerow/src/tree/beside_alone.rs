//! Reads beside somebody who changes records alone: everybody sees what was there before, until all of it is done.
//!
//! Whoever runs alone changes one record after the other, and readers go on (`versions/alone.rs`). So a reader looks at the leaf, as always, and *then*
//! whether somebody runs alone. If so, a leaf with a stamp above the cut of the checkpoint that was pinned for that may have some of his
//! changes, and the reader takes the checkpoint's leaf instead. Looked at before the leaf, it misses that somebody has begun.
//!
//! Of one record that is all: whether he ends meanwhile makes no difference, since a look at the leaf that came before is as good as a
//! call that came before. Who reads a whole leaf, or several, counts the turns before and after: if somebody has begun or ended in between, it
//! may have a part of his changes and lack another, and is read anew.
//!
//! A change that comes to nothing is a read, too. It waits at the gate as if it were a change.
//!
//! Without anybody alone this costs a load for each look. Thread-safety: as for [`Tree`].

use super::Tree;
use super::descend::Trail;
use super::descend::{Target, plain};
use super::ends::{End, Raw};
use super::frozen::FrozenTree;
use super::get::Read;
use crate::error::Result;
use crate::node::Leaf;
use crate::page::{Pages, Restart};
use crate::types::Lsn;
use hedgerow_sync::optimistic::PageBytes;

impl<P: Pages> Tree<P> {
    /// Whether somebody changed records alone at that turn.
    #[inline(always)]
    pub(super) fn is_alone_in(&self, turns: u64) -> bool {
        turns & 1 == 1
    }

    /// Whether somebody changes records alone. After the look at the leaf.
    #[inline(always)]
    pub(super) fn is_one_alone(&self) -> bool {
        self.is_alone_in(self.pool.alone_turns())
    }

    /// Refuses the answer of a change that comes to nothing, if somebody changes records alone: it may be made of what is not to be seen yet.
    #[inline(always)]
    pub(super) fn nobody_alone(&self) -> Result<(), Restart> {
        if self.is_one_alone() { Err(Restart::Gated) } else { Ok(()) }
    }

    /// Refuses what was read since a turn, if somebody has changed records alone at any moment of it.
    #[inline(always)]
    pub(super) fn nobody_alone_since(&self, turns: u64) -> Result<(), Restart> {
        let is_same = self.pool.alone_turns() == turns;
        if is_same && !self.is_alone_in(turns) { Ok(()) } else { Err(Restart::Gated) }
    }

    /// [`Self::get`] and its kind, beside somebody who may be alone.
    #[cold]
    #[inline(never)]
    pub(super) fn read_beside_alone<R: Read>(&self, key: &[u8], read: &mut R) -> Result<bool> {
        let mut beside = Beside { read, stamp: Lsn(0) };
        let found = match self.try_read(key, &mut beside) {
            Ok(found) => found,
            Err(restart) => self.read_again(key, &mut beside, restart)?,
        };
        let Beside { read, stamp } = beside;
        let before = self.pool.read_before_alone(stamp, |pages| {
            let tree = FrozenTree::new(pages, self.id, self.root);
            tree.find(key, |leaf, place| read.take(leaf, place))
        });
        Ok(before?.unwrap_or(found))
    }

    /// Puts the leaf as it was before in the place of a copy that was made at a turn, if that is needed. `None`: somebody has begun or ended
    /// since, and the copy is of no use.
    #[cold]
    #[inline(never)]
    pub(super) fn copy_beside_alone(
        &self,
        turns: u64,
        target: Target<'_>,
        trail: Option<Trail>,
        to: &mut [u8],
    ) -> Result<Option<Option<Trail>>> {
        let stamp = plain(to).newest_lsn();
        let before = self.pool.read_before_alone(stamp, |pages| {
            FrozenTree::new(pages, self.id, self.root).copy_leaf(target, to)
        });
        if before?.is_some() {
            return Ok(Some(None));
        }
        Ok((self.pool.alone_turns() == turns).then_some(trail))
    }

    /// The record at an end, if somebody is alone all the time.
    #[cold]
    pub(super) fn end_beside_alone(&self, end: End) -> Result<Option<Raw>> {
        let mut cursor = self.scan();
        let record = match end {
            End::First => cursor.next_record()?,
            End::Last => {
                cursor.seek_to_end();
                cursor.previous_record()?
            }
        };
        Ok(record.map(|(key, value)| (key.to_vec(), value.to_vec())))
    }
}

/// Takes a record, and how new its leaf is.
struct Beside<'r, R> {
    read: &'r mut R,
    stamp: Lsn,
}

impl<R: Read> Read for Beside<'_, R> {
    fn take<B: PageBytes>(&mut self, leaf: &Leaf<B>, place: usize) {
        self.read.take(leaf, place);
    }

    fn look<B: PageBytes>(&mut self, leaf: &Leaf<B>) {
        self.stamp = leaf.as_node().newest_lsn();
        self.read.look(leaf);
    }
}
