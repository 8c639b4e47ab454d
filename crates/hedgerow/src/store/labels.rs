//! How the record of a long key lies in a tree: the forms of its key and of its value.
//!
//! Rank 6. `docs/long-keys.md` says why. Keys of a tree that are longer than the longest short key have a head of that length, and a label
//! behind it. The value, in its stored form, is a payload: the length of the rest of the key, the rest, and the user's value. Pure functions.

use crate::node::LABEL_BYTES;

/// Bytes of the payload before the rest.
pub const REST_LEN_BYTES: usize = 2;
/// A label that no record has: behind all of them. The other one is zero.
pub const LAST_LABEL: u64 = (1 << (8 * LABEL_BYTES)) - 1;

/// The tree key of a head and a label.
pub fn with_label(head: &[u8], label: u64) -> Vec<u8> {
    [head, &label.to_be_bytes()[8 - LABEL_BYTES..]].concat()
}

/// Head and label of a tree key, whose head has `head_bytes`; `None` for what is no tree key of a record.
pub fn split_label(head_bytes: usize, tree_key: &[u8]) -> Option<(&[u8], u64)> {
    let (head, label) = tree_key.split_at_checked(head_bytes)?;
    let label: [u8; LABEL_BYTES] = label.try_into().ok()?;
    let label = label.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    (0 < label && label < LAST_LABEL).then_some((head, label))
}

/// Rest and value of a payload; `None` for what is none.
pub fn split_payload(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, bytes) = payload.split_first_chunk()?;
    let parts = bytes.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    Some(parts).filter(|(rest, _)| !rest.is_empty())
}

/// The part of a payload before the value.
pub fn payload_start(rest: &[u8]) -> Vec<u8> {
    [&(rest.len() as u16).to_le_bytes(), rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_payloads_come_back_and_order() {
        for label in [1, 255, 256, 1 << 47, LAST_LABEL - 1] {
            let key = with_label(b"head", label);
            assert_eq!(key.len(), 4 + LABEL_BYTES);
            assert_eq!(split_label(4, &key), Some((&b"head"[..], label)));
            assert!(with_label(b"head", label - 1) < key && key < with_label(b"head", label + 1));
            assert_eq!(split_label(5, &key), None);
            assert_eq!(split_label(4, &key[..key.len() - 1]), None);
        }
        for edge in [0, LAST_LABEL] {
            assert_eq!(split_label(4, &with_label(b"head", edge)), None);
        }
        for rest in [&b"r"[..], &[0; 65_535]] {
            for value in [&b""[..], b"value"] {
                let payload = [&payload_start(rest), value].concat();
                assert_eq!(split_payload(&payload), Some((rest, value)));
            }
        }
        for damaged in [&b""[..], b"\x01", b"\0\0value", b"\x02\0r"] {
            assert_eq!(split_payload(damaged), None);
        }
    }
}
