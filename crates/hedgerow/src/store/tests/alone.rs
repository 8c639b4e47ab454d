//! Commits that are made alone: what they read while everybody else waits.

use super::{OpenHow, logged, open};
use crate::buffer::BufferPool;
use crate::error::{Error, ErrorKind, Result};
use crate::page::Pages;
use crate::store::{BatchChange, BatchReads, PoolTree, StoreOptions};
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
    for is_unchanged in [true, false] {
        let watch = Watch { disk: &disk, tree: &wrens, is_unchanged, seen: RefCell::default() };
        let reads = BatchReads { reads: &all, judge: &watch };
        let (log, mut made) = (store.log().unwrap(), 0);
        let forever = &Waiting::Forever;
        let outcome = store.shared.commit_alone(log, &changes, Some(&reads), &mut made, forever);
        let seen = watch.seen.into_inner();
        let (then, before): (Vec<_>, Vec<_>) = seen.into_iter().partition(|seen| seen.0);
        if !is_unchanged {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Conflict);
            assert!(!before.is_empty() && then.is_empty(), "nobody has waited for a conflict");
            continue;
        }
        outcome.unwrap();
        assert_eq!(before.len(), then.len(), "every leaf is looked at twice");
        assert!(then.len() >= LEAVES, "{} leaves", then.len());
        let pages = then[then.len() - 1].1 - then[0].1;
        let waits = then.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
        println!("{waits} waits for {pages} pages of {} leaves", then.len());
        assert!(pages > LEAVES as u64 / 2, "they had to be read again");
        assert!(waits < then.len() / 5, "{waits}");
    }
}
