//! Whether a tree that nobody uses is sound, and what it holds.

use crate::eunomia::ccm::{Use, bit_of};
use crate::eunomia::node::{FANOUT, NONE, unpack_root};
use crate::eunomia::{Eunomia, Steps};
use crate::htm::{ElidableLock, Htm, Lock, Site};
use std::collections::BTreeMap;

impl<H: Htm> Eunomia<H> {
    /// All records.
    ///
    /// # Panics
    /// A key is out of order or out of the bounds of its node, a record has no mark, a leaf has too many, a node in use has an even
    /// sequence number, a lock is held, or the leaves are not linked in order.
    pub(crate) fn verify(&self) -> BTreeMap<u64, u64> {
        let (height, root) = unpack_root(self.root.0.get());
        let mut leaves = Vec::new();
        self.verify_below(root, height, 0, None, &mut leaves);
        let mut all = BTreeMap::new();
        for (at, &(number, low, high)) in leaves.iter().enumerate() {
            let head = &self.leaves.node(number).head;
            let next = leaves.get(at + 1).map_or(NONE, |&(next, ..)| next);
            assert_eq!(head.next.get(), next, "leaf {number} is linked to another one");
            assert_eq!(head.sequence.get() % 2, 1, "leaf {number} is not in use");
            assert_eq!(head.split_lock.0.get(), 0, "leaf {number} is locked");
            let records = self.records_outside(number);
            assert!(records.len() <= FANOUT, "leaf {number} has {} records", records.len());
            let usage = Use(head.ccm.get());
            if let Some(ccm) = usage.number().map(|ccm| self.ccms.node(ccm)) {
                assert!(ccm.locks.iter().all(|lock| lock.get() == 0), "a key is locked");
                for (key, _) in &records {
                    let is_marked = !self.steps.marks || ccm.marks.get() & bit_of(*key) != 0;
                    assert!(is_marked, "key {key} has no mark");
                }
            } else {
                assert!(!self.steps.locks || self.steps.adaptive, "leaf {number} has no CCM");
            }
            for (key, value) in records {
                assert!(key >= low && high.is_none_or(|high| key < high), "key {key} is astray");
                assert_eq!(all.insert(key, value), None, "key {key} is there twice");
            }
        }
        all
    }

    fn records_outside(&self, number: u32) -> Vec<(u64, u64)> {
        let lock = ElidableLock::new();
        let leaf = self.leaves.node(number);
        let records = Lock::new().atomic(&lock, Site::OTHER, |tx| self.records().records(tx, leaf));
        assert!(records.all().windows(2).all(|pair| pair[0].0 < pair[1].0), "{records:?}");
        records.all().to_vec()
    }

    fn verify_below(
        &self,
        number: u32,
        height: usize,
        low: u64,
        high: Option<u64>,
        leaves: &mut Vec<(u32, u64, Option<u64>)>,
    ) {
        if height == 0 {
            return leaves.push((number, low, high));
        }
        let inner = self.inners.node(number);
        let count = inner.count.get() as usize;
        let bounds: Vec<u64> = inner.keys[..count].iter().map(crate::htm::TCell::get).collect();
        let in_order = bounds.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(in_order, "keys of inner node {number} are out of order");
        for slot in 0..=count {
            let low = if slot == 0 { low } else { bounds[slot - 1] };
            let high = bounds.get(slot).copied().or(high);
            self.verify_below(inner.children[slot].get(), height - 1, low, high, leaves);
        }
    }
}

/// All steps, and some that skip one.
pub(crate) fn many_steps() -> Vec<(&'static str, Steps)> {
    let mut many = Steps::LADDER.to_vec();
    many.push(("parts alone", Steps { parts: true, ..Steps::MONOLITHIC }));
    many.push(("in order, with marks", Steps { parts: false, adaptive: false, ..Steps::COMPLETE }));
    many.push(("in order, complete", Steps { parts: false, ..Steps::COMPLETE }));
    many
}
