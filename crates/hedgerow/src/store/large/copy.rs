//! Copying large values from one file to another: for backups, and for what is salvaged of a damaged file.
//!
//! Rank 6. Every chunk is checked on the way, and written as it is: its checksum does not depend on where it lies. In a
//! backup the copy of an extent has as many runs as the extent has, of the same lengths, so that the reference to it is as
//! long as that to the extent, and a leaf's image takes it in its place.
//!
//! Not shared. Memory: a MiB from the first large value on.

use super::chunk_reads::read_chunks;
use crate::error::{Error, ErrorKind, Result};
use crate::large::{Extent, Stored, is_stored_form, read_stored};
use crate::node::{LeafMut, plain_leaf};
use crate::page::header::{self, PageKind};
use crate::space::large::{CHUNK_HEADER_BYTES, chunk_bytes};
use crate::space::slot_store::SlotStore;
use crate::storage::AlignedBuffer;
use crate::store::{PoolTree, Store};
use crate::types::{Epoch, PageId};
use crate::wait::Wait;

/// Bytes that are read together; no chunk is longer than the least.
const BUFFER_BYTES: usize = 1 << 20;

/// The memory for it. See the head of the file.
#[derive(Default)]
pub(in crate::store) struct LargeCopy {
    buffer: Option<AlignedBuffer>,
}

/// Says now and then whether to go on.
type GoOn<'g> = &'g mut dyn FnMut() -> Result<()>;

impl LargeCopy {
    /// Copies the large values that a leaf refers to, and makes its image refer to the copies; any other image stays as it
    /// is. The image is whole, and is so afterwards.
    ///
    /// Errors: `Corrupted` for what is not a large value of the file; those of reading and writing.
    pub(in crate::store) fn copy_those_of(
        &mut self,
        from: &SlotStore,
        page: PageId,
        image: &mut [u8],
        to: &SlotStore,
        go_on: GoOn<'_>,
    ) -> Result<()> {
        if matches!(header::kind(image), None | Some(PageKind::Free | PageKind::Inner)) {
            return Ok(());
        }
        let damaged = |what: &str| Err(Error::corrupted_page(page, what));
        let mut value = Vec::new();
        let mut next = 0;
        loop {
            let leaf = plain_leaf(image);
            let place = leaf.next_place(next);
            if place >= leaf.end() {
                break;
            }
            next = place + 1;
            value.clear();
            leaf.append_value(place, &mut value);
            if !is_stored_form(&value) {
                continue;
            }
            let extent = match read_stored(&value) {
                Stored::Plain(_) => continue,
                Stored::Damaged => return damaged("the form of a value is unknown"),
                Stored::Extent(extent) => extent,
            };
            let copy = self.copy(from, &extent, to, go_on)?;
            if LeafMut::new(image).update(place, &copy.encode()).is_err() {
                return damaged("it has no room for a value that it has");
            }
        }
        Ok(())
    }

    /// Copies an extent, run by run, and enters it in the checkpoint that is being made of the other file.
    fn copy(
        &mut self,
        from: &SlotStore,
        extent: &Extent,
        to: &SlotStore,
        go_on: GoOn<'_>,
    ) -> Result<Extent> {
        from.state().zones.check_extent(extent)?;
        let geometry = to.state().zones.geometry();
        let mut runs = Vec::with_capacity(extent.runs.len());
        for run in &extent.runs {
            runs.extend(to.allocate_extent(u64::from(run.units), 1, || 0)?);
        }
        let copy = Extent { runs: runs.into(), ..extent.clone() };
        let buffer = self.buffer()?;
        let (mut next, chunks) = (0, extent.chunks(geometry));
        while next < chunks {
            let (count, len) = read_chunks(from, extent, next, buffer, &mut |_, _| {})?;
            to.file().write_at(copy.place(geometry, next).offset_bytes, &buffer[..len])?;
            next += count as u64;
            go_on()?;
        }
        to.load_extent(&copy)?;
        let mut state = to.state();
        // Nobody looks at a moment of the other file yet.
        state.zones.extent_entered(&copy, Epoch(1));
        state.zones.refer_extent(&copy)?;
        Ok(copy)
    }

    /// Puts a value that lies in a file into another store, as that of `key` in `tree`; also one that is in a stored form
    /// and not large. What is wrong with the value itself is the inner error, and then nothing was put.
    ///
    /// Errors: those of changes of the other store.
    pub(in crate::store) fn put_into(
        &mut self,
        from: &SlotStore,
        value: &[u8],
        store: &Store,
        tree: &PoolTree,
        key: &[u8],
    ) -> Result<std::result::Result<(), Error>> {
        let extent = match read_stored(value) {
            Stored::Plain(_) => {
                store.expect_stored_forms();
                return tree.put(key, value).map(|_| Ok(()));
            }
            Stored::Damaged => {
                let kind = ErrorKind::Corrupted { page: None, offset_bytes: None };
                return Ok(Err(Error::new(kind, "its form is unknown")));
            }
            Stored::Extent(extent) => extent,
        };
        let geometry = from.state().zones.geometry();
        // As long as the file is: what the checkpoint says of it may be damaged.
        if !extent.fits(geometry, geometry.units_in(from.file().len_bytes()?)) {
            let kind = ErrorKind::Corrupted { page: None, offset_bytes: None };
            return Ok(Err(Error::new(kind, "it is outside of the file")));
        }
        let room = tree.max_record_bytes().saturating_sub(key.len());
        let mut writer = store.write_large(extent.len_bytes, room, &Wait::Default)?;
        let chunk = chunk_bytes(geometry) as usize;
        let buffer = self.buffer()?;
        let (mut next, chunks) = (0, extent.chunks(geometry));
        while next < chunks {
            let count = match read_chunks(from, &extent, next, buffer, &mut |_, _| {}) {
                Ok((count, _)) => count,
                Err(error) => return Ok(Err(error)),
            };
            for of_run in 0..count {
                let bytes = extent.place(geometry, next + of_run as u64).value_bytes;
                let at = of_run * chunk + CHUNK_HEADER_BYTES;
                writer.write(&buffer[at..at + bytes])?;
            }
            next += count as u64;
        }
        writer.finish()?;
        tree.put(key, &writer.stored_form())?;
        writer.keep();
        Ok(Ok(()))
    }

    fn buffer(&mut self) -> Result<&mut AlignedBuffer> {
        if self.buffer.is_none() {
            self.buffer = Some(AlignedBuffer::zeroed(BUFFER_BYTES)?);
        }
        Ok(self.buffer.as_mut().expect("it was made just now"))
    }
}
