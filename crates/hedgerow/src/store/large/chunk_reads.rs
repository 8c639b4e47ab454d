//! Reading chunks of an extent: checked, and handed on as they arrive.
//!
//! Rank 6. Chunks that lie together are asked for with several requests, so that those of one are checked and copied while others are under
//! way. Invariant: no byte of a chunk is handed on before the chunk is checked. Plain functions; any number of threads.

use crate::error::{Error, Result};
use crate::large::Extent;
use crate::space::geometry::Geometry;
use crate::space::large::{CHUNK_HEADER_BYTES, chunk_bytes, is_chunk};
use crate::space::slot_store::SlotStore;
use crate::storage::{ReadRequest, ReadSource};
use std::iter::Enumerate;
use std::slice::ChunksMut;

/// Chunks that are read with one request: while those of one are checked and copied, others are under way. With two, each request takes too
/// large a part of the time.
const CHUNKS_A_REQUEST: usize = 4;

/// Who is told of each chunk as it arrives: its number among those that were asked for, and its bytes of the value.
pub(in crate::store) type Arrived<'a> = &'a mut dyn FnMut(usize, &[u8]);

/// Reads chunks of an extent that fits from `first` on, as many as lie together, in the file or on their way to it, and have room in
/// the buffer, which has room for one. Tells how many, and their bytes in the file. Each that is sound is handed to `arrived` as well, in any order.
///
/// Errors: `Corrupted` for a chunk that is not what was written; `Io`.
pub(in crate::store) fn read_chunks(
    slots: &SlotStore,
    extent: &Extent,
    first: u64,
    buffer: &mut [u8],
    arrived: Arrived<'_>,
) -> Result<(usize, usize)> {
    let geometry = slots.geometry();
    let chunk = chunk_bytes(geometry) as usize;
    let place = extent.place(geometry, first);
    let most = (buffer.len() / chunk).min(place.follow as usize + 1);
    let place_of = |next: usize| {
        let place = extent.place(geometry, first + next as u64);
        (place.offset_bytes, place.stored_bytes)
    };
    let (is_staged, count) = slots.staging().read(most, place_of, buffer, chunk);
    let last = extent.place(geometry, first + count as u64 - 1);
    let len = (count - 1) * chunk + last.stored_bytes;
    let buffer = &mut buffer[..len];
    let mut check = Check { geometry, extent, first, arrived, failed: None };
    if is_staged {
        check.take(0, buffer);
    } else if count <= CHUNKS_A_REQUEST {
        let read = slots.file().read_at(place.offset_bytes, buffer);
        read.map_err(|error| error.at_place(None, place.offset_bytes))?;
        check.take(0, buffer);
    } else {
        let parts = buffer.chunks_mut(CHUNKS_A_REQUEST * chunk).enumerate();
        let mut arrivals = Arrivals { parts, from_bytes: place.offset_bytes, check };
        slots.file().read_stream(&mut arrivals);
        check = arrivals.check;
    }
    check.failed.map_or(Ok((count, len)), |(_, error)| Err(error))
}

/// Looks at chunks, and hands them on.
struct Check<'a> {
    geometry: Geometry,
    extent: &'a Extent,
    first: u64,
    arrived: Arrived<'a>,
    /// The first chunk that is not what it should be, and why.
    failed: Option<(usize, Error)>,
}

impl Check<'_> {
    /// Takes the chunks from number `from` on.
    fn take(&mut self, from: usize, stored: &[u8]) {
        let chunk = chunk_bytes(self.geometry) as usize;
        for (next, stored) in (from..).zip(stored.chunks(chunk)) {
            let number = self.first + next as u64;
            let place = self.extent.place(self.geometry, number);
            if is_chunk(self.extent.seed, number, stored) {
                (self.arrived)(next, &stored[CHUNK_HEADER_BYTES..][..place.value_bytes]);
            } else {
                let what = format!("chunk {number} of a large value: its checksum is wrong");
                self.fail(next, Error::corrupted_at(place.offset_bytes, what));
            }
        }
    }

    fn fail(&mut self, at: usize, error: Error) {
        if self.failed.as_ref().is_none_or(|(first, _)| at < *first) {
            self.failed = Some((at, error));
        }
    }
}

/// The requests for chunks that lie together.
struct Arrivals<'b, 'a> {
    parts: Enumerate<ChunksMut<'b, u8>>,
    /// Where the first of them lies.
    from_bytes: u64,
    check: Check<'a>,
}

impl<'b> ReadSource<'b> for Arrivals<'b, '_> {
    fn next_read(&mut self) -> Option<(usize, ReadRequest<'b>)> {
        let (number, part) = self.parts.next()?;
        let first = number * CHUNKS_A_REQUEST;
        let at_bytes = first as u64 * u64::from(chunk_bytes(self.check.geometry));
        Some((first, ReadRequest::new(self.from_bytes + at_bytes, part)))
    }

    fn end_read(&mut self, first: usize, read: ReadRequest<'b>) {
        match read.result {
            Ok(()) => self.check.take(first, read.buf),
            Err(error) => self.check.fail(first, error.at_place(None, read.offset_bytes)),
        }
    }
}
