//! The part of a look-up of many keys that has to wait for pages: a window of keys, whose faults are
//! under way together.
//!
//! Keys go down one after another, and each that meets an absent page asks for it and steps aside.
//! Whenever a page has arrived, the keys that waited for it start over, until all are through. So
//! the device always has as many reads as the window yields, and no key waits for another's page.
//!
//! Invariants: while pages are under way, nothing but the tree's own code runs (keys are borrowed
//! before), because it must not wait for a page. A value that is returned was validated after it had
//! been copied. Thread-safety: as for [`Tree`].

use super::get::CopyOut;
use super::{Tree, Value};
use crate::error::Result;
use crate::page::{Access, PageSource, Pages, PoolSession, Restart};
use crate::types::PageId;
use std::collections::VecDeque;

/// Keys of a window: many times what the device is given at a time, so that the end of a window, when
/// fewer and fewer reads are left, weighs little.
const WINDOW_KEYS: usize = 1024;

/// Pages that a key may wait for before it is looked up by itself: more than any tree is high.
const FAULTS_MAX: u8 = 32;

/// No further lane.
const NO_LANE: u16 = u16::MAX;

/// Where a key has got to.
enum Lane {
    /// Waits for a page, as does the lane named here.
    Waits(u16),
    /// The value is in its place, or there is none.
    Done,
    /// Has to be looked up by itself.
    Alone,
}

/// A page that was asked for, and the first of the lanes that wait for it.
struct Asked {
    id: PageId,
    first: u16,
}

/// The state of a window.
struct Window<'w, P: Pages> {
    tree: &'w Tree<P>,
    keys: Vec<&'w [u8]>,
    values: &'w mut [Option<Value>],
    /// Of the keys that have started.
    lanes: Vec<Lane>,
    faults: Vec<u8>,
    asked: Vec<Asked>,
    /// Of those, the pages that nobody has fetched from here yet.
    wanted: VecDeque<PageId>,
}

impl<P: Pages> Tree<P> {
    /// Looks up the first keys of `keys`, and puts what it finds into the first of `values`. Returns
    /// how many keys that were. Errors as for [`Tree::get_many`].
    pub(super) fn get_window<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        values: &mut [Option<Value>],
    ) -> Result<usize> {
        let keys: Vec<&[u8]> = keys.iter().take(WINDOW_KEYS).map(AsRef::as_ref).collect();
        let mut window = Window {
            tree: self,
            lanes: Vec::with_capacity(keys.len()),
            faults: vec![0; keys.len()],
            keys,
            values,
            asked: Vec::new(),
            wanted: VecDeque::new(),
        };
        let waiting = self.wait.begin();
        self.pool.session_within(&waiting).fault_stream(&mut window, Access::Point)?;
        for (at, lane) in window.lanes.iter().enumerate() {
            if matches!(lane, Lane::Alone | Lane::Waits(_)) {
                window.values[at] = self.get(window.keys[at])?;
            }
        }
        Ok(window.keys.len())
    }
}

impl<P: Pages> Window<'_, P> {
    /// Takes a key as far as it gets.
    fn go(&mut self, lane: usize) -> Lane {
        // Filled where the caller will find it: a value is larger than what a move is free for.
        let value = self.values[lane].get_or_insert_default();
        let read = self.tree.try_read(self.keys[lane], &mut CopyOut(value));
        if !matches!(read, Ok(true)) {
            self.values[lane] = None;
        }
        match read {
            Ok(_) => Lane::Done,
            Err(Restart::Absent(id)) if self.faults[lane] < FAULTS_MAX => {
                self.faults[lane] += 1;
                Lane::Waits(self.ask(id, lane as u16))
            }
            Err(_) => Lane::Alone,
        }
    }

    /// Has a lane wait for a page; gives the lane that waits for it already.
    fn ask(&mut self, id: PageId, lane: u16) -> u16 {
        if let Some(asked) = self.asked.iter_mut().find(|asked| asked.id == id) {
            return std::mem::replace(&mut asked.first, lane);
        }
        self.asked.push(Asked { id, first: lane });
        self.wanted.push_back(id);
        NO_LANE
    }
}

impl<P: Pages> PageSource for Window<'_, P> {
    fn next_page(&mut self) -> Option<PageId> {
        while self.wanted.is_empty() && self.lanes.len() < self.keys.len() {
            let lane = self.go(self.lanes.len());
            self.lanes.push(lane);
        }
        self.wanted.pop_front()
    }

    fn page_ready(&mut self, id: PageId, outcome: Result<()>) {
        let Some(at) = self.asked.iter().position(|asked| asked.id == id) else { return };
        let mut lane = self.asked.swap_remove(at).first;
        while let Some(Lane::Waits(next)) = self.lanes.get(usize::from(lane)) {
            let next = *next;
            // What could not be read says so when the key is looked up by itself.
            self.lanes[usize::from(lane)] = match outcome {
                Ok(()) => self.go(usize::from(lane)),
                Err(_) => Lane::Alone,
            };
            lane = next;
        }
    }
}
