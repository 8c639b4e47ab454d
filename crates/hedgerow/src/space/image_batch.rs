//! A batch of pages on their way to the file: images are made of copies of them, and put in the order of their slots.
//!
//! Rank 2. The caller has the copies to itself, and the memory that they are in. What is written is one request for each
//! run of neighbours.

use super::slot_store::SlotStore;
use crate::checksum::page_checksum;
use crate::error::Result;
use crate::storage::WriteRequest;
use crate::types::{PageId, Slot};

/// Makes images of the pages in `buffer`, one a page, finds slots for them, and completes them: they stand one behind the
/// other at the beginning of `buffer` then, in the order in which they are written, and so do the `pages`.
///
/// Errors: those of finding slots; none is taken then.
pub fn make_images<T>(
    slots: &SlotStore,
    pages: &mut [T],
    id: impl Fn(&T) -> PageId,
    buffer: &mut [u8],
) -> Result<Vec<Slot>> {
    let page_bytes = slots.page_bytes();
    let mut lens = Vec::with_capacity(pages.len());
    for page in buffer.chunks_exact_mut(page_bytes).take(pages.len()) {
        lens.push(slots.fold(page) as u32);
    }
    let places = slots.allocate_images(&lens)?;
    arrange(&places, |a, b| {
        pages.swap(a, b);
        let len = lens[a].max(lens[b]) as usize;
        let (first, second) = buffer.split_at_mut(a.max(b) * page_bytes);
        first[a.min(b) * page_bytes..][..len].swap_with_slice(&mut second[..len]);
        lens.swap(a, b);
    });
    let mut images = Vec::with_capacity(pages.len());
    let mut end = 0;
    for (index, ((page, &len), &(_, offset))) in pages.iter().zip(&lens).zip(&places).enumerate() {
        let (from, len) = (index * page_bytes, len as usize);
        buffer.copy_within(from..from + len, end);
        let image = &mut buffer[end..end + len];
        let checksum = page_checksum(id(page), image);
        image[..8].copy_from_slice(&checksum.to_le_bytes());
        let slot = Slot::new(offset, len as u64, checksum);
        images.push(slot.expect("the allocator gives offsets that fit a slot"));
        end += len;
    }
    Ok(images)
}

/// Brings what `places` names by its index into the order of `places`, by swaps.
fn arrange(places: &[(usize, u64)], mut swap: impl FnMut(usize, usize)) {
    let mut is_at: Vec<usize> = (0..places.len()).collect();
    let mut has: Vec<usize> = (0..places.len()).collect();
    for (to, &(wanted, _)) in places.iter().enumerate() {
        let from = is_at[wanted];
        if from == to {
            continue;
        }
        swap(from, to);
        has.swap(from, to);
        is_at[has[from]] = from;
        is_at[has[to]] = to;
    }
}

/// The images that stand one behind the other in `buffer`, to be written to their slots; neighbours in the file as one
/// request.
pub fn requests<'b>(images: &[Slot], buffer: &'b [u8]) -> Vec<WriteRequest<'b>> {
    let mut requests = Vec::new();
    let (mut start, mut end) = (0, 0);
    for (index, slot) in images.iter().enumerate() {
        end += slot.len_bytes() as usize;
        let behind = slot.offset_bytes() + slot.len_bytes();
        if images.get(index + 1).is_none_or(|next| next.offset_bytes() != behind) {
            let offset_bytes = behind - (end - start) as u64;
            requests.push(WriteRequest { offset_bytes, buf: &buffer[start..end] });
            start = end;
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_sync::primitive::random::SplitMix64;

    #[test]
    fn swaps_bring_everything_to_its_place() {
        let mut random = SplitMix64::new(5);
        for count in 0..60 {
            let mut wanted: Vec<(usize, u64)> = (0..count).map(|index| (index, 0)).collect();
            for at in 1..count {
                wanted.swap(at, random.below(at as u64 + 1) as usize);
            }
            let mut things: Vec<usize> = (0..count).collect();
            arrange(&wanted, |a, b| things.swap(a, b));
            assert!(things.iter().zip(&wanted).all(|(thing, (index, _))| thing == index));
        }
    }

    #[test]
    fn neighbours_are_one_request_and_others_are_not() {
        let slot = |at, len| Slot::new(at, len, 0).unwrap();
        let images = [slot(4096, 512), slot(4608, 1024), slot(8192, 512), slot(512, 512)];
        let buffer: Vec<u8> = (0..5).flat_map(|part| [part; 512]).collect();
        let requests = requests(&images, &buffer);
        let found: Vec<_> =
            requests.iter().map(|r| (r.offset_bytes, r.buf[0], r.buf.len())).collect();
        assert_eq!(found, [(4096, 0, 1536), (8192, 3, 512), (512, 4, 512)]);
    }
}
