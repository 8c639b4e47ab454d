//! Iteration where records may have long keys: a tree's cursor, and the key at which it stands in a head.
//!
//! A tree's cursor goes by labels, and labels change when records move. So what is remembered of a place within a head is the key. At each
//! record the count of moves is looked at; if it has changed since the cursor was placed, the key is looked up again. If it goes on to change, the step keeps
//! records from moving in the end ([`Settling`]). Between two looks no record
//! has moved, so all leaves that the cursor has read since have them in one order. Beside that, a record that is not on the right side of the key is passed over.
//!
//! Outside of a head the tree's place is good, because moves stay within one, but for a fence among a head's labels: records may move over it after the leaf before it was
//! copied. The cursor stops there, and if the count of moves has changed it goes back to the edge of the head. Used by one thread at a time.

use super::find::Place;
use super::locks::Still;
use super::{Cut, EDGES, REST_LEN_BYTES, is_long, split_payload, with_label};
use crate::buffer::BufferPool;
use crate::database::inner::Inner;
use crate::database::values::Resolved;
use crate::error::Result;
use crate::large::{Stored, is_stored_form, read_stored};
use crate::store::PoolTree;
use crate::tree::{self, Passed};
use crate::wait::Waiting;
use std::cmp::Ordering;

/// The cursor was never placed by the key.
const NEVER: u64 = u64::MAX;
/// It was placed when there were no records with labels: all that there are have come since, and may be left out.
const BEFORE_ALL: u64 = u64::MAX - 1;

/// A place in a keyspace; see the head of the file.
pub(in crate::database) struct Walk {
    pub(in crate::database) cursor: tree::Cursor<BufferPool>,
    /// Where it stands in a head, if it does.
    at: Option<At>,
    /// The count of moves before the cursor was placed, or one of the two above.
    seen: u64,
}

struct At {
    key: Vec<u8>,
    /// Behind the record of the key, or before it.
    is_behind: bool,
}

/// A record that a walk has moved over.
pub(in crate::database) enum Seen {
    /// It is the cursor's, as it is.
    Short(Passed),
    /// It has a long key, which [`Walk::key`] lends. Where the value begins in the buffer, if it is there, and whether it was read from the file.
    Long { from: Option<usize>, was_read: bool },
}

/// How often a step looks again because records have moved, before it keeps them from moving.
const ROUNDS: u32 = 3;

/// The rounds of one step, which share its time.
struct Settling<'w> {
    inner: &'w Inner,
    tree: &'w PoolTree,
    waiting: Option<Waiting<'w>>,
    rounds: u32,
    still: Option<Still<'w>>,
}

impl<'w> Settling<'w> {
    #[inline]
    fn new((inner, tree): (&'w Inner, &'w PoolTree)) -> Settling<'w> {
        Settling { inner, tree, waiting: None, rounds: 0, still: None }
    }

    /// The count of moves before another round, in which no record moves yet; from the fourth one on none does before the step has ended.
    ///
    /// Errors: the end of the call's waiting.
    #[cold]
    fn settle(&mut self) -> Result<u64> {
        let waiting = self.waiting.get_or_insert_with(|| self.tree.wait().begin());
        self.rounds += 1;
        if self.rounds > ROUNDS && self.still.is_none() {
            self.still = Some(self.inner.long.keep_still(waiting)?);
        }
        self.inner.long.settled(waiting)
    }
}

impl Walk {
    /// At the start of what a tree's cursor has.
    pub(in crate::database) fn new(
        (inner, tree): (&Inner, &PoolTree),
        mut cursor: tree::Cursor<BufferPool>,
    ) -> Walk {
        cursor.stop_above(tree.max_short_key_bytes());
        Walk { cursor, at: None, seen: inner.long.moves() }
    }

    /// Goes to before the first record whose key is `key` or greater, or behind that of `key`, which only counts for long keys. Reads nothing.
    pub(in crate::database) fn seek(
        &mut self,
        inner: &Inner,
        tree: &PoolTree,
        key: &[u8],
        is_behind: bool,
    ) {
        self.leave_head();
        if is_long(tree, key) {
            self.seen = if inner.store.has_stored_forms() { NEVER } else { BEFORE_ALL };
            self.at = Some(At { key: key.to_vec(), is_behind });
        }
        self.cursor.seek(key);
    }

    /// Forgets where it stood in a head: the cursor was sent elsewhere.
    pub(in crate::database) fn leave_head(&mut self) {
        self.at = None;
        if self.seen == BEFORE_ALL {
            self.seen = NEVER;
        }
    }

    /// The key of the long record that was moved over last.
    pub(in crate::database) fn key(&self) -> &[u8] {
        self.at.as_ref().map_or(&[], |at| &at.key)
    }

    /// Whether the walk stands in a head, so that a record behind it has to be looked at, too.
    #[inline]
    pub(in crate::database) fn is_in_head(&self) -> bool {
        self.at.is_some()
    }

    /// The next record of the cursor, which may not be the next one of the keyspace: see [`Self::take`].
    #[inline]
    pub(in crate::database) fn step(
        &mut self,
        at: (&Inner, &PoolTree),
        forward: bool,
    ) -> Result<Option<Passed>> {
        self.step_in(&mut Settling::new(at), forward)
    }

    #[inline]
    fn step_in(&mut self, of: &mut Settling<'_>, forward: bool) -> Result<Option<Passed>> {
        loop {
            let passed = if forward { self.cursor.advance()? } else { self.cursor.go_back()? };
            if passed.is_some() || !self.goes_on_in(of, forward)? {
                return Ok(passed);
            }
        }
    }

    /// Whether the cursor, which has come to no more records, is to be asked again: it had only stopped at a fence among labels.
    pub(in crate::database) fn goes_on(
        &mut self,
        at: (&Inner, &PoolTree),
        forward: bool,
    ) -> Result<bool> {
        self.goes_on_in(&mut Settling::new(at), forward)
    }

    #[cold]
    fn goes_on_in(&mut self, of: &mut Settling<'_>, forward: bool) -> Result<bool> {
        let Some(fence) = self.cursor.stopped_at() else { return Ok(false) };
        // In a head the place is looked up again with the next record, or at the end.
        if self.at.is_none() && !of.inner.long.is_still_since(self.seen) {
            let edge = edge_of(of.tree, fence, forward);
            self.seen = of.settle().inspect_err(|error| self.cursor.fail(error))?;
            self.cursor.seek(&edge);
        }
        Ok(true)
    }

    /// What a record that the cursor has just moved over is for the walk, or the one that comes instead; `None` if there are no more. The value of a long
    /// key is put into `to`, behind the rest of the key; unless only keys are wanted.
    ///
    /// Errors: those of reads; then the cursor has failed.
    pub(in crate::database) fn take(
        &mut self,
        (inner, tree): (&Inner, &PoolTree),
        passed: Option<Passed>,
        (forward, with_value): (bool, bool),
        to: &mut Vec<u8>,
    ) -> Result<Option<Seen>> {
        let taken = self.try_take((inner, tree), passed, (forward, with_value), to);
        taken.inspect_err(|error| self.cursor.fail(error))
    }

    fn try_take(
        &mut self,
        (inner, tree): (&Inner, &PoolTree),
        mut passed: Option<Passed>,
        (forward, with_value): (bool, bool),
        to: &mut Vec<u8>,
    ) -> Result<Option<Seen>> {
        let (mut full, of) = (Vec::new(), &mut Settling::new((inner, tree)));
        if self.seen == BEFORE_ALL && inner.store.has_stored_forms() {
            // Records with labels have come since, and the cursor stands where the key would be as a short one.
            self.seen = NEVER;
        }
        loop {
            if self.at.is_some() && self.has_moved(inner) {
                self.place_by_key(of)?;
                passed = self.step_in(of, forward)?;
                continue;
            }
            let Some(record) = passed else { return Ok(None) };
            let is_from_outside = self.at.is_none() && self.has_moved(inner);
            let (tree_key, raw) = self.cursor.lend(record);
            if !is_long(tree, tree_key) {
                self.leave_head();
                return Ok(Some(Seen::Short(record)));
            }
            let head_bytes = tree.max_short_key_bytes();
            if is_from_outside {
                // It comes into the head from outside: from its edge, again.
                let edge = edge_of(tree, tree_key, forward);
                self.seen = of.settle()?;
                self.cursor.seek(&edge);
                passed = self.step_in(of, forward)?;
                continue;
            }
            if !is_stored_form(raw) {
                return Err(super::damaged());
            }
            full.clear();
            full.extend_from_slice(&tree_key[..head_bytes]);
            let mut was_read = false;
            let from = match read_stored(raw) {
                Stored::Plain(payload) => {
                    let (rest, value) = split_payload(payload)?;
                    full.extend_from_slice(rest);
                    to.clear();
                    to.extend_from_slice(value);
                    Some(0)
                }
                _ if !with_value => {
                    if !inner.rest_of(tree, tree_key, raw, to)? {
                        passed = self.step_unless_moved(of, record, forward)?;
                        continue;
                    }
                    full.extend_from_slice(to);
                    None
                }
                _ => match inner.resolve_into(tree, tree_key, raw, to)? {
                    Resolved::Gone => {
                        passed = self.step_unless_moved(of, record, forward)?;
                        continue;
                    }
                    resolved => {
                        was_read = resolved == Resolved::Read;
                        let (rest, _) = split_payload(to)?;
                        full.extend_from_slice(rest);
                        Some(REST_LEN_BYTES + rest.len())
                    }
                },
            };
            if self.seen != BEFORE_ALL && self.has_moved(inner) {
                continue;
            }
            if !self.is_beyond(&full, head_bytes, forward) {
                passed = self.step_in(of, forward)?;
                continue;
            }
            if self.seen == BEFORE_ALL {
                self.seen = NEVER;
            }
            match &mut self.at {
                Some(at) => {
                    std::mem::swap(&mut at.key, &mut full);
                    at.is_behind = forward;
                }
                at => *at = Some(At { key: full, is_behind: forward }),
            }
            return Ok(Some(Seen::Long { from, was_read }));
        }
    }

    /// Goes on behind a record that is gone from where the cursor saw it; unless it may have moved, so that it has to be looked for.
    fn step_unless_moved(
        &mut self,
        of: &mut Settling<'_>,
        record: Passed,
        forward: bool,
    ) -> Result<Option<Passed>> {
        if self.has_moved(of.inner) { Ok(Some(record)) } else { self.step_in(of, forward) }
    }

    /// Whether records have moved since the cursor was placed, or were moving then.
    fn has_moved(&self, inner: &Inner) -> bool {
        self.seen != BEFORE_ALL && !inner.long.is_still_since(self.seen)
    }

    /// Whether a key lies on the side of the place to which the walk goes.
    fn is_beyond(&self, key: &[u8], head_bytes: usize, forward: bool) -> bool {
        let Some(at) = &self.at else { return true };
        if at.key[..head_bytes] != key[..head_bytes] {
            return true;
        }
        match (key.cmp(&at.key), forward) {
            (Ordering::Equal, _) => at.is_behind != forward,
            (order, true) => order == Ordering::Greater,
            (order, false) => order == Ordering::Less,
        }
    }

    /// Sends the cursor to where the key is by now.
    #[cold]
    fn place_by_key(&mut self, of: &mut Settling<'_>) -> Result<()> {
        let Some(at) = &self.at else { return Ok(()) };
        self.seen = of.settle()?;
        let cut = Cut::new(of.tree, &at.key);
        let label = match of.inner.locate(of.tree, cut)? {
            Place::At { label, .. } => label + u64::from(at.is_behind),
            Place::Gap { below, .. } => below + u64::from(below > 0),
        };
        self.cursor.seek(&cut.tree_key(label));
        Ok(())
    }
}

/// From where a walk comes into the head of a tree key.
fn edge_of(tree: &PoolTree, tree_key: &[u8], forward: bool) -> Vec<u8> {
    let label = if forward { EDGES.0 } else { EDGES.1 };
    with_label(&tree_key[..tree.max_short_key_bytes()], label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::database::tests::stalled::StalledDisk;
    use crate::store::OpenHow;
    use crate::wait::Wait;
    use hedgerow_sync::primitive::Arc;
    use hedgerow_sync::primitive::random::SplitMix64;
    use hedgerow_sync::primitive::thread::spawn_named;
    use std::collections::BTreeSet;
    use std::ops::ControlFlow;
    use std::path::Path;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// A cursor of a store without long keys stood where the key would be as a short one, which is behind it for some.
    #[test]
    fn a_key_that_is_put_behind_a_seek_to_it_is_found() {
        for rest in [&[0][..], &[1], &[0x80], &[0xff], &[0xff; 9]] {
            let db = crate::Options::new().in_memory().unwrap();
            let keyspace = db.keyspace("urls").unwrap();
            let key = [&vec![b'h'; keyspace.max_short_key_bytes()][..], rest].concat();
            keyspace.put(b"z", b"").unwrap();
            let mut cursor = keyspace.cursor();
            cursor.seek(&key);
            keyspace.put(&key, b"value").unwrap();
            let found = cursor.next_record().unwrap().map(|record| record.0.to_vec());
            assert_eq!(found.as_deref(), Some(&key[..]), "{rest:?}");
        }
    }

    /// With an odd count as its own it would look still until the moves end, and what moved from one leaf to another was left out.
    #[test]
    fn a_walk_that_begins_while_records_move_looks_up_its_place_again() {
        let db = crate::Options::new().in_memory().unwrap();
        let keyspace = db.keyspace("urls").unwrap();
        let (inner, tree) = (keyspace.inner(), keyspace.tree());
        let moving = inner.long.begin_moves(&Waiting::Forever).unwrap();
        let early = Walk::new((inner, tree), tree.scan());
        assert!(early.has_moved(inner));
        drop(moving);
        assert!(early.has_moved(inner));
        assert!(!Walk::new((inner, tree), tree.scan()).has_moved(inner));
    }

    /// While a value was read records moved each time, so that it was read again: without end, as each round had a time of its own.
    #[test]
    fn a_step_over_a_long_key_ends_while_records_move_all_the_time() {
        let disk = StalledDisk::default();
        let options = Options::new().memory_limit_bytes(8 << 20).background_checkpoints(false);
        let db = options.on_disk(&disk, Path::new("/birds.hrow"), OpenHow::New).unwrap();
        let keyspace = db.keyspace("urls").unwrap();
        let long = |number: u8| [&vec![b'h'; 5000][..], &[number]].concat();
        // Too long to stay in memory.
        let value = vec![b'v'; 300_000];
        (0..6).for_each(|number| assert!(!keyspace.put(&long(number), &value).unwrap()));
        let (reads, moving, seen) =
            (Arc::new(AtomicU64::new(0)), keyspace.clone(), keyspace.clone());
        let counted = reads.clone();
        disk.on_read(Some(Box::new(move || {
            counted.fetch_add(1, Relaxed);
            // Refused while somebody keeps records still, who may be this thread.
            moving.inner().long.begin_moves(&Wait::Never.begin()).map(drop).ok();
        })));
        let (tells, told) = channel();
        let scan = move || {
            let bounded = keyspace.with_wait(Wait::For(Duration::from_secs(1)));
            let (mut cursor, mut back) = (bounded.cursor(), bounded.cursor());
            back.seek_to_end();
            for number in 0..6 {
                let (key, found) = cursor.next_record().unwrap().unwrap();
                assert_eq!((key, found), (&long(number)[..], &value[..]));
                let (key, found) = back.previous_record().unwrap().unwrap();
                assert_eq!((key, found), (&long(5 - number)[..], &value[..]));
            }
            assert!(cursor.next_record().unwrap().is_none());
            tells.send(()).unwrap();
        };
        let scan = spawn_named("scan", scan).unwrap();
        let ended = told.recv_timeout(Duration::from_secs(20));
        disk.on_read(None);
        assert!(ended.is_ok(), "{} reads, and no end", reads.load(Relaxed));
        scan.join().unwrap();
        assert!(reads.load(Relaxed) > 0 && seen.inner().long.moves() > 0, "records have moved");
    }

    /// All keys that are to come, in the order of the scan, by each kind of scan that has handed over `done` records by now.
    type Scan = Box<dyn FnMut(usize) -> Vec<Vec<u8>>>;

    fn scans(keyspace: &crate::Keyspace, forward: bool) -> Vec<(&'static str, Scan)> {
        let (mut cursor, mut range, mut keys) =
            (keyspace.cursor(), keyspace.iter(), keyspace.iter().keys());
        if !forward {
            cursor.seek_to_end();
        }
        let from_outside: Scan = Box::new(move |most| {
            let step = |_| match forward {
                true => cursor.next_record().unwrap().map(|record| record.0.to_vec()),
                false => cursor.previous_record().unwrap().map(|record| record.0.to_vec()),
            };
            (0..most).map_while(step).collect()
        });
        let records: Scan = Box::new(move |most| {
            let step = |_| if forward { range.next() } else { range.next_back() };
            (0..most).map_while(step).map(|record| record.unwrap().0.into_vec()).collect()
        });
        let keys: Scan = Box::new(move |most| {
            let step = |_| if forward { keys.next() } else { keys.next_back() };
            (0..most).map_while(step).map(|key| key.unwrap().into_vec()).collect()
        });
        let mut scans = vec![("cursor", from_outside), ("range", records), ("keys", keys)];
        if forward {
            let (mut visited, mut short) = (keyspace.cursor(), keyspace.cursor());
            let stop =
                |is_over| if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            let visit: Scan = Box::new(move |most| {
                let mut seen = Vec::new();
                let each = |key: &[u8], _: &[u8]| {
                    seen.push(key.to_vec());
                    stop(seen.len() == most)
                };
                let _ = visited.visit(each).unwrap();
                seen
            });
            let visit_short: Scan = Box::new(move |most| {
                let mut seen = Vec::new();
                let each = |key: &[u8], _: Option<&[u8]>| {
                    seen.push(key.to_vec());
                    stop(seen.len() == most)
                };
                let _ = short.visit_short(each).unwrap();
                seen
            });
            scans.extend([("visit", visit), ("visit_short", visit_short)]);
        }
        scans
    }

    /// A scan has copied a leaf with records before a head, up to a fence among its labels, and none of the head are in there. Then the first one behind the fence gets
    /// a label before it. A scan that goes on behind the fence comes to records behind the head, and has to see that one is left out.
    #[test]
    fn a_scan_meets_a_key_that_moves_over_a_fence_before_it_meets_any_of_its_head() {
        const APART: u128 = 1 << 60;
        let mut random = SplitMix64::new(crate::testing::environment::fresh_seed());
        let dbs = [512, 4096]
            .map(|page_bytes| crate::Options::new().page_bytes(page_bytes).in_memory().unwrap());
        let mut missed = BTreeSet::new();
        for round in 0..100 {
            let (db, forward) = (&dbs[round % 2], round % 4 < 2);
            let keyspace = db.keyspace(&round.to_string()).unwrap();
            let head_bytes = keyspace.max_short_key_bytes();
            let long = |number: u128| [&vec![b'h'; head_bytes][..], &number.to_be_bytes()].concat();
            let mut value = || vec![b'v'; random.below(keyspace.page_bytes() as u64 / 4) as usize];
            // A run between two keys towards one of them: there labels are close together. All others go.
            let mut numbers: Vec<u128> = (1..35).map(|number| number * APART).collect();
            let mut order = numbers.clone();
            order.swap(1, 33);
            order[2..].sort_unstable_by_key(|number| if forward { *number } else { !number });
            for number in order {
                keyspace.put(&long(number), b"").unwrap();
            }
            let remove = |numbers: &mut Vec<u128>, count: usize| {
                let goes = if forward { 0..count } else { numbers.len() - count..numbers.len() };
                for number in numbers.drain(goes) {
                    assert!(keyspace.remove(&long(number)).unwrap());
                }
            };
            remove(&mut numbers, 20 + round / 4 % 8);
            // Neighbours, and longer values, so that the leaf is cut.
            let mut stays = BTreeSet::new();
            let side = if forward { b'g' } else { b'i' };
            for number in 0..12 {
                for side in [b'g', b'i'] {
                    keyspace.put(&[side, number], &value()).unwrap();
                    stays.insert(vec![side, number]);
                }
                if let Some(number) = numbers.get(usize::from(number)) {
                    keyspace.put(&long(*number), &value()).unwrap();
                }
            }
            remove(&mut numbers, 1 + round % 5);
            stays.extend(numbers.iter().map(|number| long(*number)));
            let mut expected: Vec<_> = stays.iter().cloned().collect();
            if !forward {
                expected.reverse();
            }
            let before = expected.iter().take_while(|key| key[0] == side).count();
            let first = if forward { numbers[0] } else { numbers[numbers.len() - 1] };
            let mut under_way = scans(&keyspace, forward);
            let mut seen: Vec<Vec<Vec<u8>>> =
                under_way.iter_mut().map(|(_, scan)| scan(before)).collect();
            let moves = keyspace.inner().long.moves();
            for half in 1..60 {
                let (more, less) = (first + (APART >> half), first - (APART >> half));
                keyspace.put(&long(if forward { more } else { less }), b"run").unwrap();
                if keyspace.inner().long.moves() > moves {
                    break;
                }
            }
            assert!(keyspace.inner().long.moves() > moves);
            for ((kind, scan), seen) in under_way.iter_mut().zip(&mut seen) {
                seen.extend(scan(usize::MAX));
                assert!(seen.is_sorted_by(|a, b| (a < b) == forward && a != b), "{kind}");
                seen.retain(|key| stays.contains(key));
                if *seen != expected {
                    missed.insert((*kind, forward));
                }
            }
        }
        assert!(missed.is_empty(), "{missed:?}");
    }
}
