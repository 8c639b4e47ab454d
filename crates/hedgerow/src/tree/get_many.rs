//! Look-ups of many keys at once, whose cache misses and page faults overlap.
//!
//! The keys are taken in groups. All keys of a group go down one level before any goes down the
//! next, and each asks for the lines that it will read there (group prefetching; Chen et al.,
//! "Improving Hash Join Performance through Prefetching"). Pages of a group that are not in memory
//! are faulted with one submission. A key that meets a conflict is looked up by itself at the end.
//!
//! Invariant: the visitor sees validated copies only, each key once, in the order of the keys within a
//! group. Thread-safety: as for [`Tree`].

use super::get::CopyOut;
use super::{Tree, Value};
use crate::error::Result;
use crate::node::{Ladder, Node};
use crate::page::header;
use crate::page::{Access, OptimisticPage, PagePool, PoolSession, Restart};
use crate::types::PageId;
use hedgerow_sync::optimistic::PageBytes;

/// Keys in a group: enough to cover a memory latency, few enough to stay in the first-level cache.
const GROUP_KEYS: usize = 16;

/// How often a group starts over for its absent pages before its keys go on alone.
const GROUP_FAULTS: usize = 4;

/// One key of a group on its way down.
enum Lane<'p, P: PagePool> {
    /// Arrived at a node of this level.
    At(OptimisticPage<'p, P>, u8),
    /// Found, or found missing.
    Done(Option<Value>),
    /// The page is not in memory.
    Absent(PageId),
    /// Has to go alone.
    Alone(Restart),
}

impl<P: PagePool, L: Ladder> Tree<P, L> {
    /// Looks up many keys, and calls `visit` with the index of each key and its value, if there is
    /// one, in the order of `keys`.
    ///
    /// Faster than as many [`Tree::get`]s when the tree is larger than the processor's caches, and
    /// far faster when pages have to be read: those of a group of 16 keys are read together. The
    /// keys are looked up one by one as far as other threads are concerned. Errors as for
    /// [`Tree::get`]; keys that were visited before stay visited.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        for (group, keys) in keys.chunks(GROUP_KEYS).enumerate() {
            let mut lanes: [Lane<'_, P>; GROUP_KEYS] = std::array::from_fn(|_| Lane::Done(None));
            let lanes = &mut lanes[..keys.len()];
            self.run_group(keys, lanes)?;
            for (i, lane) in lanes.iter().enumerate() {
                let at = group * GROUP_KEYS + i;
                match lane {
                    Lane::Done(value) => visit(at, value.as_deref()),
                    Lane::Alone(restart) => {
                        let mut value = Value::default();
                        let mut copy = CopyOut(&mut value);
                        let found = self.read_again(keys[i].as_ref(), &mut copy, *restart)?;
                        visit(at, found.then_some(value.as_bytes()));
                    }
                    Lane::At(..) | Lane::Absent(_) => {
                        let value = self.get(keys[i].as_ref())?;
                        visit(at, value.as_deref());
                    }
                }
            }
        }
        Ok(())
    }

    /// Brings the lanes of a group to an end, but for those that have to go alone.
    fn run_group<'p, K: AsRef<[u8]>>(
        &'p self,
        keys: &[K],
        lanes: &mut [Lane<'p, P>],
    ) -> Result<()> {
        for lane in lanes.iter_mut() {
            *lane = self.start();
        }
        while self.go_down(keys, lanes) {}
        if !lanes.iter().any(|lane| matches!(lane, Lane::Absent(_))) {
            return Ok(());
        }
        // One session for the group: what it has faulted stays until all lanes are through.
        let mut session = self.pool.session();
        for _ in 0..GROUP_FAULTS {
            if !self.fault_absent(lanes, &mut session)? {
                break;
            }
            while self.go_down(keys, lanes) {}
        }
        Ok(())
    }

    fn start(&self) -> Lane<'_, P> {
        match self.open_root() {
            Ok((page, level)) => Lane::At(page, level),
            Err(restart) => stopped(restart),
        }
    }

    /// Moves every lane down by one level, or to its end. `false` if none has moved.
    fn go_down<'p, K: AsRef<[u8]>>(&'p self, keys: &[K], lanes: &mut [Lane<'p, P>]) -> bool {
        let mut moved = false;
        for (lane, key) in lanes.iter_mut().zip(keys) {
            if let Lane::At(page, level) = *lane {
                moved = true;
                *lane = self.go_down_one(key.as_ref(), page, level).unwrap_or_else(stopped);
            }
        }
        moved
    }

    #[inline(always)]
    fn go_down_one<'p>(
        &'p self,
        key: &[u8],
        page: OptimisticPage<'p, P>,
        level: u8,
    ) -> Result<Lane<'p, P>, Restart> {
        page.note_use();
        if page.bytes().field_u8::<{ header::LEVEL }>() != level {
            return Err(self.damaged(&page));
        }
        let node = Node::<_, L>::new(page.bytes());
        if level == 0 {
            let at = node.search(key);
            let mut value = Value::default();
            if at.found {
                node.copy_value(at.index, &mut value.0);
            }
            page.validate()?;
            return Ok(Lane::Done(at.found.then_some(value)));
        }
        let child = node.child_for(key).child;
        // The level is looked at on the next round: a look now would wait for the line.
        let child = OptimisticPage::open(&*self.pool, child, Some(&page))?;
        Node::<_, L>::new(child.bytes()).prefetch();
        Ok(Lane::At(child, level - 1))
    }

    /// Reads the absent pages of a group together and starts their lanes over. `false` if there were
    /// none.
    fn fault_absent<'p>(
        &'p self,
        lanes: &mut [Lane<'p, P>],
        session: &mut P::Session<'p>,
    ) -> Result<bool> {
        let mut ids = [PageId::NONE; GROUP_KEYS];
        let mut count = 0;
        for lane in lanes.iter() {
            if let Lane::Absent(id) = lane
                && !ids[..count].contains(id)
            {
                ids[count] = *id;
                count += 1;
            }
        }
        if count == 0 {
            return Ok(false);
        }
        session.prefetch(&ids[..count], Access::Point)?;
        for lane in lanes.iter_mut() {
            if matches!(lane, Lane::Absent(_)) {
                *lane = self.start();
            }
        }
        Ok(true)
    }
}

fn stopped<'p, P: PagePool>(restart: Restart) -> Lane<'p, P> {
    match restart {
        Restart::Absent(id) => Lane::Absent(id),
        other => Lane::Alone(other),
    }
}
