//! How a record says which frames hold its value, in a store that lives in memory.
//!
//! Such a store has no extents. A value that no leaf holds is cut into pieces, one to a frame, and the record has the
//! list of the frames. It is one of the stored forms (see [`super::stored`]) and never in a file.
//!
//! ```text
//! held = magic (8), kind (1): 3, zero (3), length of the value (4), seed (8), born (8), frames (4 each)
//! ```
//!
//! The shorter its head, the longer a value may be: a record has room for so many frames.
//!
//! Pure functions and plain values.

use super::stored::{STORED_MAGIC, is_stored_form};
use crate::types::Lsn;

const KIND: u8 = 3;
const HEAD_BYTES: usize = 32;
const FRAME_BYTES: usize = 4;

/// The frames of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// Length of the value, below 4 GiB: a record that refers to all frames that it has room for has a shorter one.
    pub len_bytes: u64,
    /// What its pieces are named by.
    pub seed: u64,
    /// No snapshot of an earlier moment sees it.
    pub born: Lsn,
    /// One for each piece, in order.
    pub frames: Vec<u32>,
}

impl Held {
    /// The most frames of a value whose record has `reference_room` bytes for this form.
    pub fn most_frames(reference_room: usize) -> usize {
        reference_room.saturating_sub(HEAD_BYTES) / FRAME_BYTES
    }

    /// The stored form.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + FRAME_BYTES * self.frames.len());
        bytes.extend_from_slice(&STORED_MAGIC);
        bytes.extend_from_slice(&[KIND, 0, 0, 0]);
        // `check_large` lets a value have the frames that a record has room for: half a gibibyte at most.
        let len_bytes = u32::try_from(self.len_bytes).expect("no record has so many frames");
        bytes.extend_from_slice(&len_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.seed.to_le_bytes());
        bytes.extend_from_slice(&self.born.0.to_le_bytes());
        self.frames.iter().for_each(|frame| bytes.extend_from_slice(&frame.to_le_bytes()));
        bytes
    }

    /// Reads the stored form; `None` for any other value.
    pub fn decode(value: &[u8]) -> Option<Held> {
        let (head, frames) = value.split_at_checked(HEAD_BYTES)?;
        let word =
            |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        let is_held = is_stored_form(value)
            && head[8..12] == [KIND, 0, 0, 0]
            && frames.len().is_multiple_of(FRAME_BYTES);
        is_held.then(|| Held {
            len_bytes: number(&head[12..16]).into(),
            seed: word(16),
            born: Lsn(word(24)),
            frames: frames.chunks_exact(FRAME_BYTES).map(number).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::large::{Stored, read_stored};

    #[test]
    fn the_form_comes_back_and_any_other_value_is_none() {
        for count in [1, 2, 300] {
            let frames = (0..count).rev().collect();
            let held = Held { len_bytes: 99, seed: u64::MAX - 5, born: Lsn(77), frames };
            let bytes = held.encode();
            assert_eq!(Held::most_frames(bytes.len()), count as usize);
            assert_eq!(Held::most_frames(bytes.len() - 1), count as usize - 1);
            assert_eq!(Held::decode(&bytes), Some(held));
            assert_eq!(Held::decode(&bytes[..bytes.len() - 1]), None);
            assert_eq!(Held::decode(&bytes[1..]), None);
            assert_eq!(read_stored(&bytes), Stored::Damaged, "it is in no file");
        }
        assert_eq!(Held::decode(b"wren"), None);
        assert_eq!(Held::most_frames(5), 0);
    }
}
