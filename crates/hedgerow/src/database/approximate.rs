//! About how much lies in a range, without reading it.
//!
//! Rank 7. What is sampled stands in `tree/estimate.rs`. No state of its own.

use crate::database::keyspace::Keyspace;
use crate::database::long::{EDGES, widened};
use crate::error::Result;
use crate::key::KeyRange;
use crate::tree::{Estimate, Measure};
use std::borrow::Cow;
use std::ops::Bound;

/// # Approximate counts
///
/// These read the two paths to the ends of the range, and some 32 leaves between: as many in a range of a thousand leaves as in one of a
/// million, so they take microseconds where pages are in memory. A range of up to 32 leaves below one inner node is counted, and the
/// answer is exact. In a longer one the leaves that are read stand for the others, so the error is that of a sample. In tests with four sets
/// of URLs, titles, paths and composite keys, and with clusters of very different size, half of the answers were within 5 % of the truth, 95
/// of a hundred within 14 %, and the worst was off by 28 %. Nothing bounds it: a part of the range that has no leaf in the sample may hold
/// much more, or much larger values, than the others. [`Keyspace::count_range`] and [`Keyspace::range`] are exact, and read everything. Changes that other
/// threads make meanwhile may be counted or not. A bound that is longer than [`Keyspace::max_short_key_bytes`] counts all longer keys with the
/// same bytes up to there.
impl Keyspace {
    /// About how many records have keys that lie in `bounds`.
    ///
    /// ```
    /// # let db = hedgerow::Options::new().in_memory()?;
    /// # let visits = db.keyspace("visits")?;
    /// visits.bulk_load((0..100_000_u32).map(|second| (second.to_be_bytes(), b"a visit")), 90)?;
    /// let of_an_hour = 7_200_u32.to_be_bytes()..10_800_u32.to_be_bytes();
    /// let about = visits.approximate_count(of_an_hour)?;
    /// assert!((3_000..4_200).contains(&about));
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads).
    pub fn approximate_count(&self, bounds: impl KeyRange) -> Result<u64> {
        Ok(self.estimate(&bounds, false)?.records.round() as u64)
    }

    /// About how many bytes the keys and values have whose keys lie in `bounds`, as they were put. A large value counts with its length, and is not
    /// read. What they take in the file is another matter: see [`Keyspace::stats`].
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads).
    pub fn approximate_len_bytes(&self, bounds: impl KeyRange) -> Result<u64> {
        Ok(self.estimate(&bounds, true)?.bytes.round() as u64)
    }

    fn estimate(&self, bounds: &impl KeyRange, bytes: bool) -> Result<Estimate> {
        self.inner().check_open()?;
        let (from, to) = bounds.bounds();
        if is_empty(from, to) {
            return Ok(Estimate::default());
        }
        // Who asks for about how many is not told which of one head.
        let (from, to) = (widened(self.tree(), from, EDGES.0), widened(self.tree(), to, EDGES.1));
        let bytes_of = |bound| Bound::map(bound, Cow::as_ref);
        let (from, to) = (bytes_of(from.as_ref()), bytes_of(to.as_ref()));
        let unit_bytes = self.inner().store.unit_bytes();
        self.tree().estimate(from, to, Measure { bytes, unit_bytes })
    }
}

/// Whether no key can lie between the two.
fn is_empty(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (
            Bound::Included(from) | Bound::Excluded(from),
            Bound::Included(to) | Bound::Excluded(to),
        ) => from >= to,
        _ => false,
    }
}
