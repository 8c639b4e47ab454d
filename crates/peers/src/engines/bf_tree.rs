//! Bf-Tree: pages on disk or in memory, and above them a circular buffer of small pages that hold
//! hot and new records.
//!
//! Without a write-ahead log: its own is written and never synced, and each put waits for that, so cells that ask for
//! durable or buffered changes are refused. In a file with a small memory limit by direct I/O, so that the buffer is
//! the only cache; its size is the largest power of two within the cell's limit, which is all that it
//! takes, and does not count inner nodes and the page table. With a limit that holds everything
//! several times the system's page cache helps, as it helps LMDB: loading leaves the buffer cold. In
//! memory the buffer has room for everything, beside the
//! pages themselves. There are no transactions.
//!
//! The tree is `Send + Sync`; a session's buffer is its own.

use crate::engines::small_limit;
use ::bf_tree::{
    BfTree, Config, LeafInsertResult, LeafReadResult, ScanReturnField, StorageBackend,
};
use hedgerow_bench::cell::{Cell, CellError, KeyKind, Place};
use hedgerow_bench::harness::{Engine, Session};
use std::collections::BTreeMap;

/// Bytes of the longest key that a file of keys may have.
const LONG_KEY_BYTES: usize = 512;

/// Bytes of the longest integer key.
const INTEGER_KEY_BYTES: usize = 16;

/// The smallest buffer that is any use, in bytes.
const SMALLEST_BUFFER_BYTES: u64 = 32 << 10;

/// A tree.
pub struct Store {
    tree: BfTree,
    is_direct: bool,
    buffer_bytes: usize,
    /// Bytes of the longest record.
    record_bytes: usize,
}

/// One thread's access.
pub struct Access<'a> {
    tree: &'a BfTree,
    record: Vec<u8>,
}

impl Engine for Store {
    type Session<'a> = Access<'a>;

    fn create(cell: &Cell, record_bytes: u64) -> Result<Store, CellError> {
        let key_bytes = match cell.keys.kind {
            KeyKind::File => LONG_KEY_BYTES,
            KeyKind::Long { .. } => {
                return Err(CellError::Unsupported("its keys are short".into()));
            }
            _ => INTEGER_KEY_BYTES,
        };
        let buffer_bytes = match cell.memory_limit_bytes {
            Some(limit) if limit < SMALLEST_BUFFER_BYTES => {
                return Err(CellError::Unsupported("its buffer has at least 32 KiB".into()));
            }
            Some(limit) => 1 << limit.ilog2(),
            None => (2 * record_bytes).max(SMALLEST_BUFFER_BYTES).next_power_of_two(),
        };
        let buffer_bytes = usize::try_from(buffer_bytes).map_err(CellError::failed)?;
        let most_bytes = key_bytes + cell.value_bytes;
        let path = match cell.place {
            Place::Memory => ":memory:".into(),
            Place::File => cell.directory.join("bench.bftree"),
        };
        let mut config = Config::new(path, buffer_bytes);
        config.cb_max_key_len(key_bytes).cb_max_record_size(most_bytes);
        let is_direct = cell.place == Place::File && small_limit(cell, record_bytes).is_some();
        if is_direct {
            config.storage_backend(StorageBackend::StdDirect);
        }
        if let Some(page_bytes) = cell.page_bytes {
            config.leaf_page_size(page_bytes);
        }
        let tree = BfTree::with_config(config, None)
            .map_err(|error| CellError::Unsupported(format!("{error:?}")))?;
        Ok(Store { tree, is_direct, buffer_bytes, record_bytes: most_bytes })
    }

    fn sessions(&mut self, threads: usize) -> Result<Vec<Access<'_>>, CellError> {
        let access = |_| Access { tree: &self.tree, record: vec![0; self.record_bytes] };
        Ok((0..threads).map(access).collect())
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let facts = [
            ("settings", "no write-ahead log".to_owned()),
            ("direct_io", self.is_direct.to_string()),
            ("cache_bytes", self.buffer_bytes.to_string()),
        ];
        facts.map(|(name, fact)| (name.to_owned(), fact)).into()
    }
}

impl Session for Access<'_> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), CellError> {
        match self.tree.insert(key, value) {
            LeafInsertResult::Success => Ok(()),
            LeafInsertResult::InvalidKV(why) => Err(CellError::Unsupported(why)),
        }
    }

    #[inline]
    fn get(&mut self, key: &[u8], mut found: impl FnMut(&[u8])) -> Result<(), CellError> {
        match self.tree.read(key, &mut self.record) {
            LeafReadResult::Found(len) => found(&self.record[..len as usize]),
            LeafReadResult::Deleted | LeafReadResult::NotFound => {}
            LeafReadResult::InvalidKey => {
                return Err(CellError::Unsupported("a key is empty or too long".into()));
            }
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
        // It has no empty key to begin with; this is the least one that it may have.
        let from = if from.is_empty() { &[0] } else { from };
        let mut scan = self
            .tree
            .scan_with_count(from, records, ScanReturnField::KeyAndValue)
            .map_err(|error| CellError::Failed(format!("{error:?}")))?;
        while let Some((key_len, value_len)) = scan.next(&mut self.record) {
            let (key, rest) = self.record.split_at(key_len);
            found(key, &rest[..value_len]);
        }
        Ok(())
    }

    #[inline]
    fn remove(&mut self, key: &[u8]) -> Result<(), CellError> {
        self.tree.delete(key);
        Ok(())
    }
}
