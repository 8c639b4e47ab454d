//! Changes that wait for a transaction, for stores that write by transactions.
//!
//! A session collects changes here and hands them over when there are enough of them, or before it
//! reads. Keys and values lie in one buffer that is used again and again, so that collecting costs
//! a copy and no allocation. One thread's own; `Send`.

/// Changes in the order in which they were made.
#[derive(Debug)]
pub struct Changes {
    most: usize,
    bytes: Vec<u8>,
    /// Bytes of the key, and of the value; without a value the key is removed.
    lengths: Vec<(usize, Option<usize>)>,
}

impl Changes {
    /// Room for `most` changes, at least one.
    pub fn new(most: usize) -> Changes {
        Changes { most: most.max(1), bytes: Vec::new(), lengths: Vec::new() }
    }

    /// Adds a put, or a removal; says whether that was the last for which there is room.
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> bool {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.lengths.push((key.len(), value.map(<[u8]>::len)));
        self.lengths.len() >= self.most
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// The changes: a key, and its value unless it is removed.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut rest = &self.bytes[..];
        let mut take = move |len: usize| {
            let (taken, left) = rest.split_at(len);
            rest = left;
            taken
        };
        self.lengths.iter().map(move |&(key, value)| (take(key), value.map(&mut take)))
    }

    /// Forgets all changes, after they were made.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.lengths.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_out_as_they_went_in() {
        let mut changes = Changes::new(3);
        for _ in 0..2 {
            assert!(changes.is_empty());
            assert!(!changes.push(b"robin", Some(b"red")));
            assert!(!changes.push(b"wren", None));
            assert!(changes.push(b"", Some(b"")));
            let all: Vec<_> = changes.iter().collect();
            assert_eq!(
                all,
                [
                    (&b"robin"[..], Some(&b"red"[..])),
                    (&b"wren"[..], None),
                    (&b""[..], Some(&b""[..])),
                ]
            );
            changes.clear();
        }
    }
}
