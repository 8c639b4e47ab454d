//! The pools that a tree can be in, with what belongs to them.
//!
//! Each takes its memory limit from the cell; without one it has room for everything. Thread-safety: a
//! home is made and asked by the thread that drives the cell; its pool is used by all.

use super::{Home, failed};
use crate::cell::{Cell, CellError, LoadOrder, Place};
use crate::vmcache::{VmcacheOptions, VmcachePool};
use hedgerow::internals::buffer::BufferPool;
use hedgerow::internals::storage::{DirectIo, Disk, OpenMode, RealDisk};
use hedgerow::internals::store::{OpenHow, Store, StoreOptions};
use hedgerow::{DEFAULT_PAGE_BYTES, IoEngine};
use hedgerow_testing::MemoryPool;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes beside key and value that a record takes at most: its slot, and its share of the inner nodes.
const PER_RECORD_BYTES: u64 = 16;
/// Bytes of a page that are not for records: header, fences, hints.
const PER_PAGE_BYTES: u64 = 256;
/// Pages for a tree that is small.
const FEWEST_PAGES: u64 = 1024;
/// Memory beyond the pages that a pool without a limit is given, in bytes.
const SPARE_BYTES: u64 = 64 << 20;

/// Pages that the records of a cell take at most. What is loaded in bulk fills its pages.
fn pages_for(cell: &Cell, record_bytes: u64) -> u64 {
    let records = cell.keys.count as u64;
    let full = (record_bytes + PER_RECORD_BYTES * records) / (page_bytes(cell) - PER_PAGE_BYTES);
    let is_bulk = cell.load_order == LoadOrder::Bulk;
    (if is_bulk { full + full / 50 } else { 2 * full }) + FEWEST_PAGES
}

fn page_bytes(cell: &Cell) -> u64 {
    cell.page_bytes.unwrap_or(DEFAULT_PAGE_BYTES) as u64
}

fn fact(facts: &mut BTreeMap<String, String>, name: &str, bytes: u64) {
    facts.insert(name.to_owned(), bytes.to_string());
}

/// Pages that stay where they are.
pub struct Heap {
    pool: Arc<MemoryPool>,
}

impl Home for Heap {
    type Pool = MemoryPool;

    fn create(cell: &Cell, record_bytes: u64) -> Result<Heap, CellError> {
        if cell.place == Place::File || cell.memory_limit_bytes.is_some() {
            let words = "a heap of pages has neither a file nor a limit";
            return Err(CellError::Unsupported(words.into()));
        }
        let pages = pages_for(cell, record_bytes) as usize;
        Ok(Heap { pool: Arc::new(MemoryPool::new(page_bytes(cell) as usize, pages)) })
    }

    fn pool(&self) -> &Arc<MemoryPool> {
        &self.pool
    }

    fn settle(&self) -> Result<(), CellError> {
        Ok(())
    }

    fn pages_read_and_written(&self) -> (Option<u64>, Option<u64>) {
        (None, None)
    }

    fn facts(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

/// The engine's own pool, in a store that is used for nothing else.
pub struct Frames {
    store: Store,
}

impl Home for Frames {
    type Pool = BufferPool;

    fn create(cell: &Cell, record_bytes: u64) -> Result<Frames, CellError> {
        let everything = pages_for(cell, record_bytes) * (page_bytes(cell) + 64) + SPARE_BYTES;
        let limit = cell.memory_limit_bytes.unwrap_or(everything);
        let options =
            StoreOptions { page_bytes: cell.page_bytes, ..StoreOptions::without_log(limit) };
        let store = match cell.place {
            Place::Memory => Store::in_memory(&options),
            Place::File => RealDisk::new(IoEngine::Auto).and_then(|disk| {
                let path = cell.directory.join("frames.hrow");
                Store::open(&options, &disk, &path, OpenHow::New)
            }),
        };
        Ok(Frames { store: store.map_err(failed)? })
    }

    fn pool(&self) -> &Arc<BufferPool> {
        self.store.pool()
    }

    fn settle(&self) -> Result<(), CellError> {
        self.store.checkpoint().map_err(failed)
    }

    fn pages_read_and_written(&self) -> (Option<u64>, Option<u64>) {
        let counters = self.store.pool().counters().values();
        (Some(counters.faults), Some(counters.pages_written))
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let pool = self.store.pool();
        let limit = pool.budget().limit_bytes();
        let pages = u64::from(pool.frames()) * self.store.page_bytes() as u64;
        let mut facts = BTreeMap::new();
        fact(&mut facts, "memory_limit_bytes", limit);
        fact(&mut facts, "memory_for_pages_bytes", pages);
        fact(&mut facts, "metadata_bytes", limit - pages);
        fact(&mut facts, "metadata_frames_bytes", pool.budget().frame_overhead_bytes());
        fact(&mut facts, "metadata_table_bytes", pool.table_bytes());
        fact(&mut facts, "metadata_write_buffers_bytes", pool.budget().write_buffer_bytes());
        let of_store = pool.budget().delta_bytes() + pool.budget().zone_bytes();
        fact(&mut facts, "metadata_of_store_bytes", of_store);
        facts
    }
}

/// vmcache over a scratch file.
pub struct Vmcache {
    pool: Arc<VmcachePool>,
}

impl Home for Vmcache {
    type Pool = VmcachePool;

    fn create(cell: &Cell, record_bytes: u64) -> Result<Vmcache, CellError> {
        let pages = pages_for(cell, record_bytes);
        let everything = pages * (page_bytes(cell) + 64) + SPARE_BYTES;
        let options = VmcacheOptions {
            memory_limit_bytes: cell.memory_limit_bytes.unwrap_or(everything),
            page_bytes: page_bytes(cell) as usize,
            max_pages: pages as usize,
        };
        // In a cell that is in memory nothing is ever written to it.
        let file = RealDisk::new(IoEngine::Auto).and_then(|disk| {
            let path = cell.directory.join("vmcache.pages");
            disk.open(&path, OpenMode::CreateNew, DirectIo::WherePossible)
        });
        let pool = file.and_then(|file| VmcachePool::new(&options, file)).map_err(failed)?;
        Ok(Vmcache { pool: Arc::new(pool) })
    }

    fn pool(&self) -> &Arc<VmcachePool> {
        &self.pool
    }

    fn settle(&self) -> Result<(), CellError> {
        self.pool.write_all().map_err(failed)
    }

    fn pages_read_and_written(&self) -> (Option<u64>, Option<u64>) {
        let counts = self.pool.counts();
        (Some(counts.faults), Some(counts.pages_written))
    }

    fn facts(&self) -> BTreeMap<String, String> {
        use hedgerow::internals::page::Frames;
        let (metadata, counts) = (self.pool.metadata(), self.pool.counts());
        let pages = u64::from(self.pool.places()) * self.pool.page_bytes() as u64;
        let mut facts = BTreeMap::new();
        fact(&mut facts, "memory_limit_bytes", pages + metadata.total_bytes());
        fact(&mut facts, "memory_for_pages_bytes", pages);
        fact(&mut facts, "metadata_bytes", metadata.total_bytes());
        fact(&mut facts, "metadata_states_bytes", metadata.state_bytes);
        fact(&mut facts, "metadata_page_tables_bytes", metadata.page_table_bytes);
        fact(&mut facts, "metadata_clock_bytes", metadata.clock_bytes);
        fact(&mut facts, "metadata_write_buffers_bytes", metadata.buffer_bytes);
        facts.insert("evictions".into(), counts.evictions.to_string());
        facts.insert("discard_calls".into(), counts.discard_calls.to_string());
        facts
    }
}
