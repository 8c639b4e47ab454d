//! `TreeIndex<Vec<u8>, Vec<u8>>` of scc: a B+-tree whose readers wait for nobody.
//!
//! In memory alone. A record that is replaced or removed is freed when no thread can see it any more. The tree
//! is `Send + Sync`; sessions are references to it.

use hedgerow_bench::cell::{Cell, CellError, Place};
use hedgerow_bench::harness::{Engine, Session};
use scc::{Guard, TreeIndex};
use std::ops::Bound;

/// The tree.
pub struct Tree {
    records: TreeIndex<Vec<u8>, Vec<u8>>,
}

/// One thread's access.
pub struct Access<'a> {
    records: &'a TreeIndex<Vec<u8>, Vec<u8>>,
}

impl Engine for Tree {
    type Session<'a> = Access<'a>;

    fn create(cell: &Cell, _record_bytes: u64) -> Result<Tree, CellError> {
        if cell.place == Place::File || cell.memory_limit_bytes.is_some() {
            return Err(CellError::Unsupported("it has neither a file nor a memory limit".into()));
        }
        Ok(Tree { records: TreeIndex::new() })
    }

    fn sessions(&mut self, threads: usize) -> Result<Vec<Access<'_>>, CellError> {
        Ok((0..threads).map(|_| Access { records: &self.records }).collect())
    }
}

impl Session for Access<'_> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), CellError> {
        self.records.upsert_sync(key.to_vec(), value.to_vec());
        Ok(())
    }

    #[inline]
    fn get(&mut self, key: &[u8], mut found: impl FnMut(&[u8])) -> Result<(), CellError> {
        self.records.peek_with(key, |_, value| found(value));
        Ok(())
    }

    #[inline]
    fn scan(
        &mut self,
        from: &[u8],
        records: usize,
        mut found: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), CellError> {
        let guard = Guard::new();
        let bounds = (Bound::Included(from), Bound::Unbounded);
        let range = self.records.range::<[u8], _>(bounds, &guard);
        range.take(records).for_each(|(key, value)| found(key, value));
        Ok(())
    }

    #[inline]
    fn remove(&mut self, key: &[u8]) -> Result<(), CellError> {
        self.records.remove_sync(key);
        Ok(())
    }
}
