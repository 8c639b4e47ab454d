//! Values that a scan will come to, read together.
//!
//! Rank 6. What is read here is kept in memory, as far as there is memory for it, and found there by whoever comes to it. The
//! references come from a copy of a leaf, or from a snapshot, which may be out of date, or was given up: their units may be somebody else's by now. The
//! checksum of a chunk says whether it is what was asked for, so a value that is not is left out, and nothing is an error
//! here: whoever comes to the value reads it again and is told. Thread-safety: as for [`Store`].

use crate::large::{Extent, Stored, read_stored};
use crate::space::large::{CHUNK_HEADER_BYTES, is_chunk};
use crate::storage::ReadRequest;
use crate::store::Store;

/// Chunks of the buffer that values are read into at most.
const CHUNKS_AT_ONCE: usize = 32;

impl Store {
    /// Reads values that are not in memory, by their references, with one submission. Returns how many of the references it has looked at: of
    /// those that follow the values have no room in the buffer. Takes what memory is free, and asks nobody for his.
    pub fn read_values_ahead<'r>(&self, references: impl Iterator<Item = &'r [u8]>) -> usize {
        let mut all = 0;
        let references = references.inspect(|_| all += 1);
        let Some(slots) = &self.shared.slots else { return references.count() };
        let pool = &self.shared.pool;
        let geometry = slots.geometry();
        let is_wanted = |extent: &Extent| {
            pool.keeps_values_of(extent.len_bytes) && !pool.has_kept(extent.seed, extent.len_bytes)
        };
        let mut extents: Vec<(usize, Extent)> = (0..)
            .zip(references)
            .filter_map(|(at, reference)| match read_stored(reference) {
                Stored::Extent(extent) => Some((at, extent)),
                Stored::Plain(_) | Stored::Damaged => None,
            })
            .filter(|(_, extent)| is_wanted(extent))
            .collect();
        if !extents.is_empty() {
            let state = slots.state();
            extents.retain(|(_, extent)| state.zones.check_extent(extent).is_ok());
        }
        if extents.is_empty() {
            return all;
        }
        let Some(mut loan) = slots.lend_free(CHUNKS_AT_ONCE) else { return all };
        let mut rest = &mut loan[..];
        let mut requests: Vec<ReadRequest<'_>> = Vec::new();
        // Of each extent that has room in the buffer: how many of the requests are its chunks.
        let mut read: Vec<(&Extent, usize)> = Vec::new();
        let mut looked_at = all;
        for (at, extent) in &extents {
            let chunks = extent.chunks(geometry);
            let places: Vec<_> = (0..chunks).map(|index| extent.place(geometry, index)).collect();
            let stored_bytes: usize = places.iter().map(|place| place.stored_bytes).sum();
            if stored_bytes > rest.len() {
                // The first one is read alone if it is longer than the buffer.
                looked_at = *at.max(&1);
                break;
            }
            // It was put a moment ago. Its last chunk is written last.
            if slots.staging().is_staged(places[places.len() - 1].offset_bytes) {
                continue;
            }
            for place in &places {
                let (buf, left) = rest.split_at_mut(place.stored_bytes);
                rest = left;
                requests.push(ReadRequest::new(place.offset_bytes, buf));
            }
            read.push((extent, places.len()));
        }
        slots.file().read_batch(&mut requests);
        let mut done = requests.into_iter();
        for (extent, count) in read {
            let chunks: Vec<ReadRequest<'_>> = done.by_ref().take(count).collect();
            let is_sound = (0..).zip(&chunks).all(|(index, chunk)| {
                chunk.result.is_ok() && is_chunk(extent.seed, index, chunk.buf)
            });
            if !is_sound {
                continue;
            }
            // The units of the last one may be longer.
            let stored_bytes = chunks.iter().map(|chunk| chunk.buf.len()).sum();
            let mut value: Vec<u8> = Vec::with_capacity(stored_bytes);
            chunks
                .iter()
                .for_each(|chunk| value.extend_from_slice(&chunk.buf[CHUNK_HEADER_BYTES..]));
            value.truncate(extent.len_bytes as usize);
            // A scan is likely not to come again.
            pool.keep_value(extent.seed, &value, false);
        }
        looked_at
    }
}
