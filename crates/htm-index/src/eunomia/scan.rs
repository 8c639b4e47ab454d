//! Scans: leaf by leaf under the split lock (section 4.2.4).
//!
//! Each leaf is read in one region, so what is found in it was there at one moment. The scan as a whole is not atomic. The region
//! also notes the number of the next leaf with its sequence number; if that has changed when the scan comes there, it goes on from the
//! root. In leaves of segments the records are moved to reserved ones first. Thread-safety: that of a session.

use super::ccm::Use;
use super::leaf::Records;
use super::node::NONE;
use super::session::{Session, SplitLock};
use super::{Eunomia, Layout, Way};
use crate::htm::label::{self, Label};
use crate::htm::{Htm, Site, Tx};

/// What a leaf of a scan holds, and the next one.
struct Part {
    records: Records,
    next: Option<Way>,
}

impl<H: Htm> Session<'_, H> {
    /// Calls `visit` with the records from key `from` on, in order, for as long as it says so.
    pub fn scan(&mut self, from: u64, mut visit: impl FnMut(u64, u64) -> bool) {
        label::operation(from);
        let mut from = from;
        loop {
            let mut way = Some(self.upper(from));
            while let Some(here) = way {
                let Some(part) = self.tree.scan_leaf(here) else { break };
                for &(key, value) in part.records.all() {
                    if key < from {
                        continue;
                    }
                    if !visit(key, value) {
                        return;
                    }
                    let Some(next) = key.checked_add(1) else { return };
                    from = next;
                }
                if part.next.is_none() {
                    return;
                }
                way = part.next;
            }
        }
    }
}

impl<H: Htm> Eunomia<H> {
    /// The records of a leaf, in order; `None` if the leaf is another one.
    fn scan_leaf(&self, way: Way) -> Option<Part> {
        let leaf = self.leaves.node(way.leaf);
        let records = self.records();
        let _lock = SplitLock::take(leaf);
        // Without a spare node records stay where they are, and are sorted each time.
        let may_reserve = self.layout() == Layout::Parts && self.reserved.prepare(1).is_ok();
        self.htm.atomic(&self.lock, Site::SCAN, |tx| {
            if tx.load(&leaf.head.sequence)? != way.sequence {
                return Ok(None);
            }
            let all = records.records(tx, leaf)?;
            if may_reserve && !records.is_reserved(tx, leaf)? && self.reserved.has(tx, 1)? {
                records.reserve(tx, leaf, &all)?;
                let number = tx.load(&leaf.head.reserved)?;
                label::lines(self.reserved.node(number), Label::Record);
            }
            let next = tx.load(&leaf.head.next)?;
            let next = if next == NONE {
                None
            } else {
                let sequence = tx.load(&self.leaves.node(next).head.sequence)?;
                Some(Way { leaf: next, sequence, usage: Use::NONE })
            };
            Ok(Some(Part { records: all, next }))
        })
    }
}
