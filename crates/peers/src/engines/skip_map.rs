//! `SkipMap<Vec<u8>, Vec<u8>>` of crossbeam-skiplist: a skip list that threads share without a lock.
//!
//! In memory alone. A record that is replaced or removed is freed when no thread can see it any more. The map
//! is `Send + Sync`; sessions are references to it.

use crossbeam_skiplist::SkipMap;
use hedgerow_bench::cell::{Cell, CellError, Place};
use hedgerow_bench::harness::{Engine, Session};
use std::ops::Bound;

/// The map.
pub struct Map {
    records: SkipMap<Vec<u8>, Vec<u8>>,
}

/// One thread's access.
pub struct Access<'a> {
    records: &'a SkipMap<Vec<u8>, Vec<u8>>,
}

impl Engine for Map {
    type Session<'a> = Access<'a>;

    fn create(cell: &Cell, _record_bytes: u64) -> Result<Map, CellError> {
        if cell.place == Place::File || cell.memory_limit_bytes.is_some() {
            return Err(CellError::Unsupported("it has neither a file nor a memory limit".into()));
        }
        Ok(Map { records: SkipMap::new() })
    }

    fn sessions(&mut self, threads: usize) -> Result<Vec<Access<'_>>, CellError> {
        Ok((0..threads).map(|_| Access { records: &self.records }).collect())
    }
}

impl Session for Access<'_> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), CellError> {
        self.records.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    #[inline]
    fn get(&mut self, key: &[u8], mut found: impl FnMut(&[u8])) -> Result<(), CellError> {
        if let Some(entry) = self.records.get(key) {
            found(entry.value());
        }
        Ok(())
    }

    #[inline]
    fn scan(
        &mut self,
        from: &[u8],
        records: usize,
        mut found: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), CellError> {
        let range = self.records.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        range.take(records).for_each(|entry| found(entry.key(), entry.value()));
        Ok(())
    }

    #[inline]
    fn remove(&mut self, key: &[u8]) -> Result<(), CellError> {
        self.records.remove(key);
        Ok(())
    }
}
