//! A key without its node's prefix, in the two parts in which a page holds it: head and rest.
//!
//! On rungs of the ladder with heads the record on the heap has no head: the first four bytes of a
//! suffix stand in the array of heads alone. Invariant: the head's bytes behind the end of a short suffix
//! are zero, in what [`Suffix::of`] makes and in any page that [`super::check()`] finds clean; where they
//! are not, the order of suffixes is some order. Total over any page that [`super::load_check`] has
//! passed; views, `Copy`, as thread-safe as the bytes under them.

use super::layout::{head, head_of, slot};
use super::rung;

/// A suffix. All those that are compared with each other are of one rung, or all undivided.
///
/// The order of the fields is the order of the keys: heads, then rests, and where both are the same the
/// longer key is the one that ends in more zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Suffix<'a> {
    /// The first four bytes as a number, see [`head_of`]; that of no bytes if it is not divided.
    head: i32,
    /// What is on the heap.
    rest: &'a [u8],
    /// Bytes of the whole suffix.
    len: usize,
}

impl<'a> Suffix<'a> {
    /// A byte string as a suffix of a node of this rung.
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        if !rung::HEADS {
            return Suffix::undivided(bytes);
        }
        let rest = bytes.get(rung::HEAD_BYTES..).unwrap_or(&[]);
        Suffix { head: head_of(bytes), rest, len: bytes.len() }
    }

    /// A byte string in one part: what is no part of a page.
    pub(super) fn undivided(bytes: &'a [u8]) -> Self {
        Suffix { head: i32::MIN, rest: bytes, len: bytes.len() }
    }

    /// The suffix of record `index` of a page.
    pub(super) fn read(page: &'a [u8], index: usize) -> Self {
        let slot = slot(page, index);
        Suffix {
            head: if rung::HEADS { head(page, index) } else { i32::MIN },
            rest: &page[slot.offset..slot.offset + slot.rest_len()],
            len: slot.suffix_len,
        }
    }

    /// Bytes of the whole suffix.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The bytes in the head, zero-padded, and how many of them belong to the key.
    pub(super) fn head(&self) -> ([u8; 4], usize) {
        ((self.head ^ i32::MIN).to_be_bytes(), self.len - self.rest.len())
    }

    /// The bytes behind the head.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether the head has nothing but zeros behind the end of the suffix.
    pub(super) fn is_padded_with_zeros(&self) -> bool {
        let (bytes, len) = self.head();
        bytes[len..].iter().all(|byte| *byte == 0)
    }

    /// Byte `at`.
    pub(super) fn get(&self, at: usize) -> Option<u8> {
        let (head, head_len) = self.head();
        match at.checked_sub(head_len) {
            None => Some(head[at]),
            Some(at) => self.rest.get(at).copied(),
        }
    }

    /// Length of the longest common prefix.
    pub(super) fn common_prefix(&self, other: &Suffix<'_>) -> usize {
        let ((ours, our_len), (theirs, their_len)) = (self.head(), other.head());
        let len = our_len.min(their_len);
        let same = ours[..len].iter().zip(&theirs[..len]).take_while(|(x, y)| x == y).count();
        if same < len || self.rest.is_empty() || other.rest.is_empty() {
            return same;
        }
        same + super::fields::common_prefix(self.rest, other.rest)
    }

    /// The first `len` bytes; all of them if there are fewer.
    pub(super) fn first_bytes(&self, len: usize) -> Vec<u8> {
        let (head, head_len) = self.head();
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(&head[..head_len.min(len)]);
        let rest = len.saturating_sub(head_len).min(self.rest.len());
        bytes.extend_from_slice(&self.rest[..rest]);
        bytes
    }
}
