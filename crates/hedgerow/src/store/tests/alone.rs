//! Commits that are made alone: what they read while everybody else waits.

use super::{OpenHow, logged, open};
use crate::buffer::BufferPool;
use crate::error::{Error, ErrorKind, Result};
use crate::page::Pages;
use crate::store::{BatchChange, BatchReads, PoolTree, Store, StoreOptions};
use crate::testing::SimDisk;
use crate::testing::sim::CallKind;
use crate::tree::{AskFile, Fences, FromFile, Judge, Read};
use crate::types::Lsn;
use crate::wait::Waiting;
use std::cell::RefCell;
use std::ops::Bound;

/// Notes at each leaf whether others wait, and how many pages were read before.
struct Watch<'w> {
    disk: &'w SimDisk,
    tree: &'w PoolTree,
    is_unchanged: bool,
    seen: RefCell<Vec<(bool, u64)>>,
}

impl Judge<BufferPool> for Watch<'_> {
    fn is_as_it_was(&self, _: &PoolTree, _: Lsn) -> bool {
        let others_wait = self.tree.pool().alone_turns() % 2 == 1;
        self.seen.borrow_mut().push((others_wait, self.disk.calls(CallKind::Read)));
        self.is_unchanged
    }

    fn read_ahead(&self, _: &Read<'_, BufferPool>, _: &Fences) -> Result<Option<FromFile>> {
        Ok(None)
    }

    fn compare(&self, _: &[u8], read: &Read<'_, BufferPool>, _: AskFile<'_>) -> Result<bool> {
        Err(Error::conflicting(read.tree.id(), b"7"))
    }
}

fn commit(store: &Store, changes: &[BatchChange<'_>], reads: &BatchReads<'_>) -> Result<Lsn> {
    let (log, mut made) = (store.log().unwrap(), 0);
    store.shared.commit_alone(log, changes, Some(reads), &mut made, &Waiting::Forever)
}

#[test]
fn what_a_commit_alone_has_read_is_compared_before_others_wait_and_read_many_leaves_at_a_time_then()
{
    const LEAVES: usize = 4000;
    let options = StoreOptions { memory_limit_bytes: 1 << 20, ..logged() };
    let disk = SimDisk::new(1);
    let store = open(&options, &disk, OpenHow::New).unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    for number in 0..30_000_u32 {
        wrens.put(&number.to_be_bytes(), &[7; 60]).unwrap();
    }
    store.checkpoint().unwrap();
    assert!(store.shared.pool.frames() < LEAVES as u32, "more than there is memory for");
    let changes =
        [b"a", b"b"].map(|key| BatchChange { tree: &wrens, key, value: Some(&b"sings"[..]) });
    let all = [Read { tree: &wrens, lower: Bound::Unbounded, upper: Bound::Unbounded }];
    let mut waits = Vec::new();
    // On a machine with no processor to spare the threads that read ahead come late, and the commit reads page by page what they were asked for. So the
    // best of some tries counts.
    while waits.len() < 8 && waits.last().is_none_or(|of| *of > LEAVES / 4) {
        let watch =
            Watch { disk: &disk, tree: &wrens, is_unchanged: true, seen: RefCell::default() };
        let reads = BatchReads { reads: &all, judge: &watch };
        commit(&store, &changes, &reads).unwrap();
        let seen = watch.seen.into_inner();
        let (then, before): (Vec<_>, Vec<_>) = seen.into_iter().partition(|seen| seen.0);
        assert_eq!(before.len(), then.len(), "every leaf is looked at twice");
        assert!(then.len() >= LEAVES, "{} leaves", then.len());
        let pages = then[then.len() - 1].1 - then[0].1;
        assert!(pages > LEAVES as u64 / 2, "they had to be read again");
        waits.push(then.windows(2).filter(|pair| pair[0].1 != pair[1].1).count());
    }
    println!("waits for reads: {waits:?}");
    assert!(waits.last().is_some_and(|of| *of <= LEAVES / 4), "{waits:?}");
    let watch = Watch { disk: &disk, tree: &wrens, is_unchanged: false, seen: RefCell::default() };
    let reads = BatchReads { reads: &all, judge: &watch };
    assert_eq!(commit(&store, &changes, &reads).unwrap_err().kind(), ErrorKind::Conflict);
    let seen = watch.seen.into_inner();
    assert!(seen.iter().all(|(others_wait, _)| !others_wait), "nobody has waited for a conflict");
    assert!(!seen.is_empty());
}
