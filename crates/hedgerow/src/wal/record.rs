//! The grammar of log records: what the user did, never how pages changed.
//!
//! Rank 2. A record is a header of 12 bytes, a key and a value, little-endian:
//!
//! ```text
//! byte  0      kind
//! byte  1      marks: bit 0, a large value was moved, and no record has another value than before
//! bytes 2..4   length of the key
//! bytes 4..8   tree
//! bytes 8..12  length of the value
//! ```
//!
//! Records are absolute, so that applying one twice, or after a later checkpoint, does no harm: the put of
//! a value, not an increment; a compare-and-swap is logged as its result.
//!
//! A batch is logged before any of it is done: [`Record::Batch`], once or more often, holds what it changes, as
//! records that follow each other. Then each change is made under the latch of its leaf, and there
//! [`Record::Made`] says so. So the log has the changes of a key in the order in which they were made, and
//! replay finishes what a crash has cut short. Both have the batch's number as their key, 8 bytes; in the place of
//! the tree the one has the number of the batch's changes, the other the place of the change among them.
//!
//! A commit at one stroke is [`Record::Commit`], in one piece or several, appended within one stay in an epoch and while all
//! leaves concerned are latched. It counts when its last piece is there: all of it was made at the LSN where that ends. Its number is its key, as a batch's is.
//!
//! Nothing here is checked by itself: the block that holds the bytes has a checksum. Reading is total: any bytes give a record,
//! "not enough yet" or a defect. Pure functions.

use crate::types::TreeId;

/// Bytes of a record before its key.
pub const RECORD_HEADER_BYTES: usize = 12;

const PUT: u8 = 1;
const REMOVE: u8 = 2;
const CREATE: u8 = 3;
const DROP: u8 = 4;
const RENAME: u8 = 5;
const BATCH: u8 = 16;
const MADE: u8 = 17;
const REMOVE_RANGE: u8 = 18;
const EXTENT: u8 = 19;
const LOAD: u8 = 20;
const COMMIT: u8 = 21;
const TIME: u8 = 22;
/// The mark of [`Record::Extent`] that says that it was moved.
const MOVED: u8 = 1;

/// The number of a batch: no two batches in a log have the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BatchId([u8; 8]);

impl BatchId {
    /// The batch of this number.
    pub fn new(number: u64) -> BatchId {
        // The bytes, so that a record can lend them; in this order, so that they compare as the numbers do.
        BatchId(number.to_be_bytes())
    }
}

/// Milliseconds since the beginning of 1970, UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UnixMs([u8; 8]);

/// One thing that the user did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// The record of this key has this value.
    Put {
        /// The keyspace.
        tree: TreeId,
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// The record of this key has a value in a stored form ([`crate::large`]), a reference to an extent that
    /// was written before the record was appended, and is synced before the record's block is written.
    Extent {
        /// The keyspace.
        tree: TreeId,
        /// The key.
        key: &'a [u8],
        /// The stored form.
        value: &'a [u8],
        /// The value is the one of before, at another place.
        is_moved: bool,
    },
    /// There is no record of this key.
    Remove {
        /// The keyspace.
        tree: TreeId,
        /// The key.
        key: &'a [u8],
    },
    /// There is no record with `from <= key`, and `key < to` unless `to` is empty, which means no end.
    RemoveRange {
        /// The keyspace.
        tree: TreeId,
        /// The first key.
        from: &'a [u8],
        /// The first key behind.
        to: &'a [u8],
    },
    /// The keyspace `name` begins, empty, as `tree`.
    Create {
        /// The keyspace.
        tree: TreeId,
        /// Its name.
        name: &'a [u8],
    },
    /// The keyspace `name`, which is `tree`, ends.
    Drop {
        /// The keyspace.
        tree: TreeId,
        /// Its name.
        name: &'a [u8],
    },
    /// The keyspace `from`, which is `tree`, is called `to`. If another one was called so, that one is called `from`.
    Rename {
        /// The keyspace.
        tree: TreeId,
        /// Its name before.
        from: &'a [u8],
        /// Its name from now on.
        to: &'a [u8],
    },
    /// The keyspace, which was empty, has got all records of a bulk load. A checkpoint has them, so replay has nothing to do.
    Load {
        /// The keyspace.
        tree: TreeId,
    },
    /// What the time was. No build writes that yet, and replay passes over it.
    Time(UnixMs),
    /// What a batch is going to do, or a part of it.
    Batch {
        /// The batch.
        batch: BatchId,
        /// How many changes it has, in all its records together.
        changes: u32,
        /// Some of them: whole records, one after the other.
        records: &'a [u8],
    },
    /// What a commit changes, or a piece of it.
    Commit {
        /// The commit: [`commit_id`].
        commit: BatchId,
        /// How many changes it has, in all its pieces together.
        changes: u32,
        /// Some of them: whole records, one after the other.
        records: &'a [u8],
    },
    /// A change of a batch was made.
    Made {
        /// The batch.
        batch: BatchId,
        /// Which of its changes, from zero.
        change: u32,
    },
}

/// The number of a commit, which no batch has: commits are counted by themselves.
pub fn commit_id(number: u64) -> BatchId {
    BatchId::new(1 << 63 | number)
}

/// Bytes of a [`Record::Made`].
pub const MADE_BYTES: usize = RECORD_HEADER_BYTES + size_of::<BatchId>();

/// What [`Record::decode`] found at the start of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decoded<'a> {
    /// A record, and the bytes that it takes.
    Whole(Record<'a>, usize),
    /// The record goes on behind these bytes; as many as this are needed to read it, or to know better.
    Needs(usize),
    /// No record begins like this.
    Defect(&'static str),
}

impl<'a> Record<'a> {
    /// Kind, what stands in the place of the tree, key, value.
    #[inline]
    fn parts(&self) -> (u8, u32, &[u8], &[u8]) {
        match self {
            Record::Put { tree, key, value } => (PUT, tree.0, key, value),
            Record::Extent { tree, key, value, .. } => (EXTENT, tree.0, key, value),
            Record::Remove { tree, key } => (REMOVE, tree.0, key, &[]),
            Record::RemoveRange { tree, from, to } => (REMOVE_RANGE, tree.0, from, to),
            Record::Create { tree, name } => (CREATE, tree.0, name, &[]),
            Record::Drop { tree, name } => (DROP, tree.0, name, &[]),
            Record::Rename { tree, from, to } => (RENAME, tree.0, from, to),
            Record::Load { tree } => (LOAD, tree.0, &[], &[]),
            Record::Time(unix_ms) => (TIME, 0, &unix_ms.0, &[]),
            Record::Batch { batch, changes, records } => (BATCH, *changes, &batch.0, records),
            Record::Commit { commit, changes, records } => (COMMIT, *changes, &commit.0, records),
            Record::Made { batch, change } => (MADE, *change, &batch.0, &[]),
        }
    }

    /// The bytes that the record takes.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        let (_, _, key, value) = self.parts();
        RECORD_HEADER_BYTES + key.len() + value.len()
    }

    /// The record as header, key and value; written one after the other they are the record.
    ///
    /// The lengths fit: keys and values are at most a quarter of a page, names at most 255 bytes.
    #[inline]
    pub fn encode(&self) -> ([u8; RECORD_HEADER_BYTES], [&[u8]; 2]) {
        let (kind, tree, key, value) = self.parts();
        debug_assert!(key.len() <= usize::from(u16::MAX) && value.len() <= u32::MAX as usize);
        let mut header = [0; RECORD_HEADER_BYTES];
        header[0] = kind;
        if matches!(self, Record::Extent { is_moved: true, .. }) {
            header[1] = MOVED;
        }
        header[2..4].copy_from_slice(&(key.len() as u16).to_le_bytes());
        header[4..8].copy_from_slice(&tree.to_le_bytes());
        header[8..12].copy_from_slice(&(value.len() as u32).to_le_bytes());
        (header, [key, value])
    }

    /// Reads the record that `bytes` begin with.
    pub fn decode(bytes: &'a [u8]) -> Decoded<'a> {
        let Some(header) = bytes.first_chunk::<RECORD_HEADER_BYTES>() else {
            return Decoded::Needs(RECORD_HEADER_BYTES);
        };
        let [kind, marks, k0, k1, t0, t1, t2, t3, v0, v1, v2, v3] = *header;
        let key_bytes = usize::from(u16::from_le_bytes([k0, k1]));
        let number = u32::from_le_bytes([t0, t1, t2, t3]);
        let tree = TreeId(number);
        let value_bytes = u32::from_le_bytes([v0, v1, v2, v3]) as usize;
        if marks != 0 && (kind, marks) != (EXTENT, MOVED) {
            return Decoded::Defect("a log record has a mark that its kind has not");
        }
        if !matches!(kind, PUT..=RENAME | BATCH..=TIME) {
            return Decoded::Defect("a log record of no known kind");
        }
        if !matches!(kind, PUT | EXTENT | BATCH | COMMIT | REMOVE_RANGE | RENAME)
            && value_bytes != 0
        {
            return Decoded::Defect("a log record has a value that its kind has not");
        }
        if kind == LOAD && key_bytes != 0 {
            return Decoded::Defect("a log record has a key that its kind has not");
        }
        if kind == TIME && (key_bytes != size_of::<UnixMs>() || number != 0) {
            return Decoded::Defect("a log record of the time has something else");
        }
        if value_bytes > MAX_VALUE_BYTES {
            return Decoded::Defect("a log record has a value longer than any page holds");
        }
        let len = RECORD_HEADER_BYTES + key_bytes + value_bytes;
        let Some(body) = bytes.get(RECORD_HEADER_BYTES..len) else { return Decoded::Needs(len) };
        let (key, value) = body.split_at(key_bytes);
        let record = match kind {
            PUT => Record::Put { tree, key, value },
            EXTENT => Record::Extent { tree, key, value, is_moved: marks == MOVED },
            REMOVE => Record::Remove { tree, key },
            CREATE => Record::Create { tree, name: key },
            DROP => Record::Drop { tree, name: key },
            RENAME => Record::Rename { tree, from: key, to: value },
            REMOVE_RANGE => Record::RemoveRange { tree, from: key, to: value },
            LOAD => Record::Load { tree },
            _ => {
                let Ok(batch) = key.try_into().map(BatchId) else {
                    return Decoded::Defect("a log record of a batch does not say of which");
                };
                match kind {
                    TIME => Record::Time(UnixMs(batch.0)),
                    BATCH => Record::Batch { batch, changes: number, records: value },
                    COMMIT => Record::Commit { commit: batch, changes: number, records: value },
                    _ => Record::Made { batch, change: number },
                }
            }
        };
        Decoded::Whole(record, len)
    }
}

/// No page is larger, and a record is far smaller than a page.
const MAX_VALUE_BYTES: usize = 64 << 10;

/// No record is longer than this.
#[cfg(hedgerow_internals)]
pub const MAX_RECORD_BYTES: usize = RECORD_HEADER_BYTES + u16::MAX as usize + MAX_VALUE_BYTES;

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_sync::primitive::random::SplitMix64;

    fn bytes_of(record: &Record<'_>) -> Vec<u8> {
        let (header, [key, value]) = record.encode();
        [&header[..], key, value].concat()
    }

    fn samples() -> Vec<Record<'static>> {
        let tree = TreeId(7);
        vec![
            Record::Put { tree, key: b"", value: b"" },
            Record::Put { tree, key: b"key", value: b"value" },
            Record::Put { tree: TreeId(u32::MAX), key: &[0xff; 300], value: &[7; 1000] },
            Record::Extent { tree, key: b"key", value: b"where it lies", is_moved: false },
            Record::Extent { tree, key: b"key", value: b"where it lies now", is_moved: true },
            Record::Time(UnixMs(1_764_381_600_000_u64.to_be_bytes())),
            Record::Remove { tree, key: b"key" },
            Record::RemoveRange { tree, from: b"", to: b"" },
            Record::RemoveRange { tree, from: b"kea", to: b"kiwi" },
            Record::Create { tree, name: b"birds" },
            Record::Drop { tree, name: b"birds" },
            Record::Rename { tree, from: b"birds", to: b"" },
            Record::Rename { tree, from: b"new", to: b"birds" },
            Record::Load { tree },
            Record::Batch { batch: BatchId::new(258), changes: 3, records: b"what it changes" },
            Record::Commit { commit: commit_id(1), changes: 2, records: b"what it changes" },
            Record::Made { batch: BatchId::new(u64::MAX), change: u32::MAX },
        ]
    }

    #[test]
    fn records_come_back_as_they_were() {
        for record in samples() {
            let bytes = bytes_of(&record);
            assert_eq!(bytes.len(), record.len_bytes());
            assert_eq!(Record::decode(&bytes), Decoded::Whole(record, bytes.len()));
            let followed = [&bytes[..], b"more"].concat();
            assert_eq!(Record::decode(&followed), Decoded::Whole(record, bytes.len()));
        }
    }

    #[test]
    fn a_record_that_is_cut_off_asks_for_more_and_for_no_more_than_it_has() {
        for record in samples() {
            let bytes = bytes_of(&record);
            for cut in 0..bytes.len() {
                match Record::decode(&bytes[..cut]) {
                    Decoded::Needs(more) => assert!(more > cut && more <= bytes.len().max(12)),
                    other => panic!("{other:?} of the first {cut} bytes of {record:?}"),
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let mut random = SplitMix64::new(3);
        for _ in 0..20_000 {
            let len = (random.next_u64() % 40) as usize;
            let mut bytes: Vec<u8> = (0..len).map(|_| random.next_u64() as u8).collect();
            if let Some(kind) = bytes.first_mut() {
                *kind %= 24;
            }
            match Record::decode(&bytes) {
                Decoded::Whole(record, len) => assert_eq!(bytes_of(&record), bytes[..len]),
                Decoded::Needs(more) => assert!(more > len && more <= MAX_RECORD_BYTES),
                Decoded::Defect(_) => {}
            }
        }
    }

    #[test]
    fn marks_are_of_stored_forms_alone_and_the_time_has_eight_bytes_and_nothing_else() {
        for record in samples() {
            let mut bytes = bytes_of(&record);
            let is_extent = matches!(record, Record::Extent { .. });
            for marks in 1..=u8::MAX {
                bytes[1] = marks;
                let is_read = matches!(Record::decode(&bytes), Decoded::Whole(..));
                assert_eq!(is_read, is_extent && marks == MOVED, "{marks} of {record:?}");
            }
        }
        let time = bytes_of(&Record::Time(UnixMs([0; 8])));
        for (at, more) in [(2, 1), (4, 1), (8, 1), (2, u8::MAX)] {
            let mut bytes = [&time[..], &[0; 400]].concat();
            bytes[at] = bytes[at].wrapping_add(more);
            assert!(matches!(Record::decode(&bytes), Decoded::Defect(_)), "{more} more at {at}");
        }
    }

    #[test]
    fn a_record_of_a_batch_that_names_it_with_more_or_fewer_bytes_is_a_defect() {
        let of_batch = [
            Record::Batch { batch: BatchId::new(258), changes: 3, records: b"what it changes" },
            Record::Commit { commit: commit_id(258), changes: 3, records: b"what it changes" },
            Record::Made { batch: BatchId::new(258), change: 2 },
        ];
        for record in of_batch {
            let whole = bytes_of(&record);
            for key_bytes in [0_u16, 7, 9, 300] {
                let mut bytes = whole.clone();
                bytes[2..4].copy_from_slice(&key_bytes.to_le_bytes());
                bytes.resize(whole.len() + 300, 0);
                let Decoded::Defect(what) = Record::decode(&bytes) else {
                    panic!("{record:?} with a name of {key_bytes} bytes");
                };
                assert!(what.contains("does not say of which"), "{what}");
            }
        }
    }

    #[test]
    fn the_longest_value_is_waited_for_and_a_longer_one_is_a_defect() {
        let mut bytes = bytes_of(&Record::Put { tree: TreeId(7), key: b"", value: b"" });
        let at = bytes.len() - 4;
        bytes[at..].copy_from_slice(&(MAX_VALUE_BYTES as u32).to_le_bytes());
        assert_eq!(Record::decode(&bytes), Decoded::Needs(bytes.len() + MAX_VALUE_BYTES));
        bytes[at..].copy_from_slice(&(MAX_VALUE_BYTES as u32 + 1).to_le_bytes());
        assert!(matches!(Record::decode(&bytes), Decoded::Defect(_)));
    }
}
