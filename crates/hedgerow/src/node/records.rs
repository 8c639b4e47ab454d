//! Records of a leaf, taken out of it: what one layout gives and another is built from.
//!
//! Whole keys and values lie one behind the other in one buffer. Invariant (of whoever pushes): the
//! keys ascend. Plain data.

/// Records in the order of their keys.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Records {
    bytes: Vec<u8>,
    /// Where each key ends, and each value: it begins where the key ends, and the next key behind
    /// it.
    ends: Vec<(usize, usize)>,
}

impl Records {
    /// No records, with room for some.
    pub fn with_capacity(records: usize, bytes: usize) -> Self {
        Records { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(records) }
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds a record, whose key is above all others.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.push_with(|to| to.extend_from_slice(key), |to| to.extend_from_slice(value));
    }

    /// Adds a record whose key and value are appended by functions.
    pub(super) fn push_with(
        &mut self,
        key: impl FnOnce(&mut Vec<u8>),
        value: impl FnOnce(&mut Vec<u8>),
    ) {
        key(&mut self.bytes);
        let key_end = self.bytes.len();
        value(&mut self.bytes);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// The records: keys and values.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        (0..self.len()).map(|index| {
            let start = index.checked_sub(1).map_or(0, |before| self.ends[before].1);
            let (key_end, end) = self.ends[index];
            (&self.bytes[start..key_end], &self.bytes[key_end..end])
        })
    }
}
