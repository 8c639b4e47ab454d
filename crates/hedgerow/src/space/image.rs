//! Images of pages: a page without the unused bytes in its middle.
//!
//! A page has a gap between what grows up and what grows down in it. Removed records are behind the gap, until somebody
//! needs their space: the copy of which the image is made is packed first, if the gap gets a whole unit longer by that.
//! Whole units of the gap are left out of the image, and what is behind them moves up. The image says in its header what was left out ([`header::CUT_START`]), so that whoever
//! reads it needs to know nothing of layouts, and repair can tell how long an image is that it finds. In memory
//! these fields are zero.
//!
//! ```text
//! page   | header ... | gap                 | rest |
//! image  | header ... | rest of gap | rest |
//! ```
//!
//! Invariants: an image is a page's length less whole units; what was left out comes back as zeros. What is read is
//! untrusted: [`len_in`] and [`unfold`] take any bytes. Pure functions over a private copy; nothing is shared.

use crate::page::header::{self, CUT_START, CUT_UNITS, HEADER_BYTES};
use crate::types::SLOT_UNIT_BYTES;
use std::ops::Range;

/// Checks the content of a page that was read: the node layouts know how, and stand above this rank.
pub type PageCheck = fn(&[u8]) -> Result<(), String>;
/// Tells which bytes of a page mean nothing.
pub type PageGap = fn(&[u8]) -> Range<usize>;
/// Makes the gap of a page longer by the bytes of removed records, if these are at least so many.
pub type PagePack = fn(&mut [u8], usize);

/// What the layouts of pages know, and files of pages need.
#[derive(Clone, Copy, Debug)]
pub struct PageForm {
    /// See [`PageCheck`].
    pub check: PageCheck,
    /// See [`PageGap`].
    pub gap: PageGap,
    /// See [`PagePack`].
    pub pack: PagePack,
}

impl PageForm {
    /// Of pages that have no gap.
    #[cfg(hedgerow_internals)]
    pub const fn whole(check: PageCheck) -> PageForm {
        PageForm { check, gap: |_| 0..0, pack: |_, _| () }
    }
}

const _: () = assert!(CUT_UNITS == CUT_START + 2 && CUT_UNITS + 2 <= header::NEWEST_LSN);

/// Leaves whole units of the gap out of a page; returns the length of the image, which is at the front of `page`.
pub fn fold(page: &mut [u8], gap: Range<usize>, unit_bytes: usize) -> usize {
    let is_gap = gap.start >= HEADER_BYTES && gap.start < gap.end && gap.end <= page.len();
    let cut = if is_gap { gap.len() / unit_bytes * unit_bytes } else { 0 };
    if cut == 0 {
        return page.len();
    }
    let rest = gap.start + cut;
    // Nobody is to find there what was deleted.
    page[rest..gap.end].fill(0);
    page.copy_within(rest.., gap.start);
    header::set_cut(page, gap.start, cut / SLOT_UNIT_BYTES as usize);
    page.len() - cut
}

/// How long the image is that begins with these bytes, of a page of `page_bytes`; `None` if it cannot be one.
pub fn len_in(image: &[u8], page_bytes: usize) -> Option<usize> {
    let (start, units) = header::cut(image);
    if units == 0 {
        return (start == 0).then_some(page_bytes);
    }
    let len = page_bytes.checked_sub(units * SLOT_UNIT_BYTES as usize)?;
    (HEADER_BYTES..=len).contains(&start).then_some(len)
}

/// Makes a page of the image that is the first `len` bytes of `page`.
///
/// # Errors
/// What is wrong with it, if it cannot be an image of this length.
pub fn unfold(page: &mut [u8], len: usize) -> Result<(), String> {
    if len_in(page, page.len()) != Some(len) {
        return Err(format!("its image is not one of {len} bytes"));
    }
    let (start, _) = header::cut(page);
    let cut = page.len() - len;
    if cut > 0 {
        page.copy_within(start..len, start + cut);
        page[start..start + cut].fill(0);
        header::set_cut(page, 0, 0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_sync::primitive::random::SplitMix64;

    fn page(random: &mut SplitMix64, bytes: usize) -> Vec<u8> {
        let mut page: Vec<u8> = (0..bytes).map(|_| random.below(256) as u8).collect();
        header::set_cut(&mut page, 0, 0);
        page
    }

    #[test]
    fn a_page_comes_back_from_its_image_with_zeros_in_its_gap() {
        let mut random = SplitMix64::new(7);
        for round in 0..2000 {
            let bytes = 512 << random.below(8);
            let before = page(&mut random, bytes);
            let start = HEADER_BYTES + random.below((bytes - HEADER_BYTES) as u64) as usize;
            let end = start + random.below((bytes - start) as u64 + 1) as usize;
            let unit = 512 << random.below(4);
            let mut image = before.clone();
            let len = fold(&mut image, start..end, unit);
            assert_eq!(bytes - len, (end - start) / unit * unit, "round {round}");
            assert_eq!(len_in(&image, bytes), Some(len));
            image[len..].fill(0xa5);
            unfold(&mut image, len).unwrap();
            assert_eq!((&image[..start], &image[end..]), (&before[..start], &before[end..]));
            if len < bytes {
                assert!(image[start..end].iter().all(|&byte| byte == 0), "round {round}");
            }
        }
    }

    #[test]
    fn a_gap_that_cannot_be_is_none() {
        let before = page(&mut SplitMix64::new(1), 4096);
        for gap in [
            0..0,
            0..4096,
            35..4000,
            std::ops::Range { start: 4000, end: 36 },
            3000..4097,
            4096..9000,
            100..611,
        ] {
            let mut image = before.clone();
            assert_eq!(fold(&mut image, gap, 512), 4096);
            assert_eq!(image, before);
        }
    }

    #[test]
    fn whatever_the_header_says_an_image_is_refused_or_a_page() {
        let mut random = SplitMix64::new(3);
        let mut refused = 0;
        for _ in 0..5000 {
            let bytes = 512 << random.below(8);
            let mut image = page(&mut random, bytes);
            let (start_bits, unit_bits) = (1 + random.below(16), random.below(8));
            let start = random.below(1 << start_bits) as usize;
            header::set_cut(&mut image, start, random.below(1 << unit_bits) as usize);
            let len = 512 * (1 + random.below(bytes as u64 / 512) as usize);
            let said = len_in(&image, bytes);
            assert!(said.is_none_or(|said| said <= bytes && said >= HEADER_BYTES));
            let done = unfold(&mut image, len);
            assert_eq!(done.is_ok(), said == Some(len));
            refused += u32::from(done.is_err());
        }
        assert!((100..4990).contains(&refused), "{refused}");
    }
}
