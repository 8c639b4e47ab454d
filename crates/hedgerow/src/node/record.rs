//! A whole record of a leaf at once, for cursors: the key into a buffer of fixed size, the value in
//! place.
//!
//! Short rests of keys are copied as 16 bytes whatever their length, without a branch on it. Total over
//! any bytes: what leads out of the page or of the buffer is left out. As thread-safe as the bytes.

use super::read::Node;
use super::rung;
use hedgerow_sync::optimistic::{PageBytes, PlainBytes};

/// Bytes that a short rest is copied as.
const PIECE: usize = 16;

impl<'a> Node<PlainBytes<'a>> {
    /// Writes key `index` of a leaf, without the shared prefix, to `key` from `at` on. Returns where it
    /// ends in `key`, and the value. What `key` holds behind the end is arbitrary.
    #[inline(always)]
    pub fn record(&self, index: usize, key: &mut [u8], at: usize) -> (usize, &'a [u8]) {
        let page = self.bytes.as_slice();
        let slot = self.leaf_slot(index);
        let mut to = at;
        if rung::HEADS {
            if let Some(to) = key.get_mut(to..to + 4) {
                to.copy_from_slice(&(self.head(index) ^ i32::MIN).to_be_bytes());
            }
            to += rung::HEAD_BYTES;
        }
        let rest = slot.rest_len();
        if rest > 0 {
            let whole = (page.get(slot.offset..slot.offset + PIECE), key.get_mut(to..to + PIECE));
            if let (true, (Some(from), Some(to))) = (rest <= PIECE, whole) {
                to.copy_from_slice(from);
            } else {
                let end = (to + rest).min(key.len());
                if let Some(to) = key.get_mut(to..end) {
                    self.bytes.copy(slot.offset, to);
                }
            }
        }
        let value = slot.value_at();
        let value = page.get(value..value + slot.value_len).unwrap_or(&[]);
        ((at + slot.suffix_len).min(key.len()), value)
    }
}
