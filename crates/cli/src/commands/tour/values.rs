//! Values of 100 bytes to 100 KiB beside the tour's records: in leaves, and in extents of one piece to many.
//!
//! They are in a keyspace of their own. Key and version say what a value is, so every answer is checked.

use super::steps::{Context, doing, in_parallel, random, wrong};
use crate::failure::Failure;
use crate::size::show_bytes;
use hedgerow::{Database, Keyspace};

/// Where the values are.
const KEYSPACE: &str = "tour/values";
/// Number of values: four megabytes in all.
const VALUES: u64 = 256;
const SHORTEST_BYTES: u64 = 100;
/// The longest is as long as the shortest doubled so many times.
const DOUBLINGS: u64 = 10;
/// What a store needs above its smallest limit for values that no leaf holds.
const LIMIT_ABOVE_SMALLEST_BYTES: u64 = 128 << 10;

/// The values as a rule for making them.
pub struct Values {
    keyspace: Keyspace,
    longest_bytes: u64,
}

impl Values {
    /// Opens the keyspace; with a memory limit that is too small for longer ones the values are as long as a leaf takes.
    pub fn open(db: &Database, limit_bytes: u64) -> Result<Values, Failure> {
        let keyspace = db.keyspace(KEYSPACE).map_err(doing("write"))?;
        let smallest = hedgerow::smallest_memory_limit_bytes(keyspace.page_bytes());
        let longest_bytes = match limit_bytes < smallest + LIMIT_ABOVE_SMALLEST_BYTES {
            true => (keyspace.max_record_bytes() - key(0).len()) as u64,
            false => SHORTEST_BYTES << DOUBLINGS,
        };
        Ok(Values { keyspace, longest_bytes })
    }

    /// Puts all values, and overwrites each by one of another length. Reads them back in between and afterwards.
    pub fn put(&self, context: &Context<'_>) -> Result<(u64, String), Failure> {
        for version in 1..=2 {
            in_parallel(context, "writing", VALUES, |n, _| {
                let value = self.value(n, version);
                self.keyspace.put(key(n).as_bytes(), &value).map_err(doing("write"))?;
                self.check_one(n, version)?;
                Ok(1)
            })?;
        }
        let bytes: u64 = (0..VALUES).map(|n| self.len_bytes(n, 2)).sum();
        let (longest, bytes) = (show_bytes(self.longest_bytes), show_bytes(bytes));
        let how =
            format!("of {SHORTEST_BYTES} bytes to {longest}, {bytes} in all, put twice and read");
        Ok((VALUES, how))
    }

    /// Checks all of them, one by one, and in a scan.
    pub fn check(&self) -> Result<(), Failure> {
        (0..VALUES).try_for_each(|n| self.check_one(n, 2))?;
        let mut count = 0;
        for record in self.keyspace.iter() {
            let (found, value) = record.map_err(doing("scan"))?;
            if found[..] != *key(count).as_bytes() || value[..] != self.value(count, 2)[..] {
                return Err(wrong("a scan returned a value that was not written"));
            }
            count += 1;
        }
        match count {
            VALUES => Ok(()),
            _ => Err(wrong(&format!("{count} values of {VALUES} were scanned"))),
        }
    }

    /// Gets a value, and a part of it.
    fn check_one(&self, n: u64, version: u64) -> Result<(), Failure> {
        let (key, value) = (key(n), self.value(n, version));
        let found = self.keyspace.get(key.as_bytes()).map_err(doing("look up"))?;
        let range = value.len() as u64 / 3..value.len() as u64 * 2 / 3;
        let part = self.keyspace.get_range(key.as_bytes(), range.clone());
        let part = part.map_err(doing("look up"))?;
        let is_right = found.as_deref() == Some(&value[..])
            && part.as_deref() == Some(&value[range.start as usize..range.end as usize]);
        match is_right {
            true => Ok(()),
            false => Err(wrong(&format!("`{key}` does not have its last value"))),
        }
    }

    /// Each length is a little longer than the one before; in the second version the longest comes first.
    fn len_bytes(&self, n: u64, version: u64) -> u64 {
        let at = if version == 1 { n } else { VALUES - 1 - n };
        // In whole numbers: a power of floating point may differ from one call to the next.
        let (doubled, rest) = (DOUBLINGS * at / (VALUES - 1), DOUBLINGS * at % (VALUES - 1));
        let len = SHORTEST_BYTES << doubled;
        (len + len * rest / (VALUES - 1)).min(self.longest_bytes)
    }

    fn value(&self, n: u64, version: u64) -> Vec<u8> {
        let len = self.len_bytes(n, version) as usize;
        let words = (0..).map(|at| random(n << 40 | version << 32 | at));
        let mut value: Vec<u8> =
            words.take(len.div_ceil(8)).flat_map(|word| word.to_le_bytes()).collect();
        value.truncate(len);
        value
    }
}

fn key(n: u64) -> String {
    format!("value/{n:04}")
}
