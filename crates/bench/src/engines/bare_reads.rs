//! What a read costs without a store: random pages of a file, past the page cache, into one's own buffer.
//!
//! A phase of gets reads a page a get, with as many threads, at offsets drawn alike; there is nothing to
//! settle; other operations are unsupported. The processor time of a read here is what the system takes for itself; what a pool
//! takes beyond it, for each page that it reads, is its eviction and its fault. The checksum is that
//! of nothing: the work is another.
//!
//! Errors and limits are those of [`crate::harness`]; threads share the file alone.

use crate::access;
use crate::cell::{
    Cell, CellError, CellResult, LoadOrder, Operation, PROTOCOL, Phase, PhaseResult, Place,
};
use crate::harness::Meters;
use crate::keys::Keys;
use hedgerow::internals::error::Error;
use hedgerow::internals::storage::{AlignedBuffer, DirectIo, Disk, File, OpenMode, RealDisk};
use hedgerow::{DEFAULT_PAGE_BYTES, IoEngine};
use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use std::time::Instant;

/// Pages that are written with one call when the file is made.
const WRITE_PAGES: usize = 256;

fn failed(error: Error) -> CellError {
    CellError::Failed(error.to_string())
}

/// A file of pages.
struct Pages {
    file: Arc<dyn File>,
    page_bytes: usize,
    pages: u64,
}

/// Runs the cell.
///
/// Errors: `Unsupported` for anything but gets of records that were loaded in bulk into a file;
/// `Failed` if the file cannot be written or read.
pub fn run(cell: &Cell) -> Result<CellResult, CellError> {
    cell.check().map_err(CellError::Failed)?;
    if cell.place != Place::File || cell.load_order != LoadOrder::Bulk {
        let words = "bare reads are of a file that was written in one go";
        return Err(CellError::Unsupported(words.into()));
    }
    let record_bytes =
        Keys::of(&cell.keys)?.bytes(cell.load_count) + (cell.value_bytes * cell.load_count) as u64;
    let page_bytes = cell.page_bytes.unwrap_or(DEFAULT_PAGE_BYTES);
    let mut meters = Meters::new(&cell.directory);
    let disk = RealDisk::new(IoEngine::Auto).map_err(failed)?;
    let path = cell.directory.join("bare.pages");
    let file = disk.open(&path, OpenMode::CreateNew, DirectIo::WherePossible).map_err(failed)?;
    let pages = Pages { file, page_bytes, pages: record_bytes.div_ceil(page_bytes as u64) };
    meters.start_without_pages();
    pages.write().map_err(failed)?;
    let mut load = meters.stop_without_pages()?;
    load.operations = cell.load_count as u64;
    let phases = cell.phases.iter().map(|phase| pages.phase(phase, cell.load_count, &mut meters));
    let phases = phases.collect::<Result<Vec<_>, _>>()?;
    let facts = [("page_bytes".to_owned(), page_bytes.to_string())];
    Ok(CellResult {
        protocol: PROTOCOL,
        load,
        phases,
        records: cell.load_count as u64,
        store_bytes: Some(pages.pages * page_bytes as u64),
        tree: None,
        facts: BTreeMap::from(facts),
    })
}

impl Pages {
    fn write(&self) -> Result<(), Error> {
        let mut buffer = AlignedBuffer::zeroed(WRITE_PAGES * self.page_bytes)?;
        // Anything but zeros, which a file system may leave out.
        buffer.fill(0x5a);
        for first in (0..self.pages).step_by(WRITE_PAGES) {
            let count = (self.pages - first).min(WRITE_PAGES as u64) as usize;
            let offset_bytes = first * self.page_bytes as u64;
            self.file.write_at(offset_bytes, &buffer[..count * self.page_bytes])?;
        }
        self.file.sync_data()
    }

    fn phase(
        &self,
        phase: &Phase,
        present: usize,
        meters: &mut Meters,
    ) -> Result<PhaseResult, CellError> {
        match phase.operation {
            Operation::Get {} => {}
            Operation::Settle {} => {
                meters.start_without_pages();
                self.file.sync_data().map_err(failed)?;
                return Ok(PhaseResult { operations: 1, ..meters.stop_without_pages()? });
            }
            _ => return Err(CellError::Unsupported("bare reads know gets alone".into())),
        }
        let accesses = access::draw(phase, present);
        let gate = Barrier::new(accesses.len() + 1);
        let buffers = accesses.iter().map(|_| AlignedBuffer::zeroed(self.page_bytes));
        let buffers = buffers.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let seconds = std::thread::scope(|scope| {
            let threads: Vec<_> = accesses
                .iter()
                .zip(buffers)
                .map(|(accesses, mut buffer)| {
                    let gate = &gate;
                    scope.spawn(move || {
                        gate.wait();
                        accesses.keys.iter().try_for_each(|&key| {
                            let page = u64::from(key) * self.pages / present as u64;
                            self.file.read_at(page * self.page_bytes as u64, &mut buffer)
                        })
                    })
                })
                .collect();
            meters.start_without_pages();
            gate.wait();
            let begun = Instant::now();
            let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            let seconds = begun.elapsed().as_secs_f64();
            for outcome in outcomes {
                let read = outcome.map_err(|_| CellError::failed("a reading thread panicked"))?;
                read.map_err(failed)?;
            }
            Ok::<f64, CellError>(seconds)
        })?;
        Ok(PhaseResult {
            operations: phase.operations as u64,
            seconds,
            page_reads: Some(phase.operations as u64),
            ..meters.stop_without_pages()?
        })
    }
}
