//! `BTreeMap<Vec<u8>, Vec<u8>>`: what a program has without a store.
//!
//! One thread has the map to itself, without a lock; several share it behind a read-write lock.

use crate::cell::{Cell, CellError, Place};
use crate::harness::{Engine, Session, ValueBytes};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock};

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// The map.
pub struct Map {
    records: RwLock<Records>,
}

/// One thread's access.
pub enum Access<'a> {
    /// The only one.
    Alone(&'a mut Records),
    /// One of several.
    Shared(&'a RwLock<Records>),
}

impl Access<'_> {
    #[inline]
    fn read<R>(&self, f: impl FnOnce(&Records) -> R) -> R {
        match self {
            Access::Alone(records) => f(records),
            Access::Shared(lock) => f(&lock.read().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    #[inline]
    fn write<R>(&mut self, f: impl FnOnce(&mut Records) -> R) -> R {
        match self {
            Access::Alone(records) => f(records),
            Access::Shared(lock) => f(&mut lock.write().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

impl Engine for Map {
    type Session<'a> = Access<'a>;

    fn create(cell: &Cell, _record_bytes: u64) -> Result<Map, CellError> {
        if cell.place == Place::File {
            return Err(CellError::Unsupported("a map has no file".into()));
        }
        if cell.memory_limit_bytes.is_some() {
            return Err(CellError::Unsupported("a map has no memory limit".into()));
        }
        Ok(Map { records: RwLock::default() })
    }

    fn sessions(&mut self, threads: usize) -> Result<Vec<Access<'_>>, CellError> {
        if threads == 1 {
            let records = self.records.get_mut().unwrap_or_else(PoisonError::into_inner);
            return Ok(vec![Access::Alone(records)]);
        }
        Ok((0..threads).map(|_| Access::Shared(&self.records)).collect())
    }

    fn bulk_load<'k>(
        &mut self,
        records: impl Iterator<Item = (&'k [u8], ValueBytes)>,
    ) -> Result<(), CellError> {
        // The map is built from the bottom up out of records that are in order.
        let map = self.records.get_mut().unwrap_or_else(PoisonError::into_inner);
        *map = records.map(|(key, value)| (key.to_vec(), value.into_vec())).collect();
        Ok(())
    }
}

impl Session for Access<'_> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), CellError> {
        self.write(|records| records.insert(key.to_vec(), value.to_vec()));
        Ok(())
    }

    #[inline]
    fn get(&mut self, key: &[u8], mut found: impl FnMut(&[u8])) -> Result<(), CellError> {
        self.read(|records| {
            if let Some(value) = records.get(key) {
                found(value);
            }
        });
        Ok(())
    }

    #[inline]
    fn scan(
        &mut self,
        from: &[u8],
        records: usize,
        mut found: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), CellError> {
        self.read(|map| {
            let range = map.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
            range.take(records).for_each(|(key, value)| found(key, value));
        });
        Ok(())
    }

    #[inline]
    fn remove(&mut self, key: &[u8]) -> Result<(), CellError> {
        self.write(|records| records.remove(key));
        Ok(())
    }
}
