//! How many records there are, exactly.
//!
//! Rank 7. What counts about how many stands in `approximate.rs`. No state of its own.

use crate::database::keyspace::Keyspace;
use crate::database::long::is_long;
use crate::error::Result;
use crate::key::KeyRange;
use std::ops::{Bound, ControlFlow};

/// # Counts
impl Keyspace {
    /// Counts the records. Reads all leaves, but no large value. Changes that other threads make meanwhile may be counted or not.
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads).
    pub fn count(&self) -> Result<u64> {
        self.count_range(..)
    }

    /// Counts the records whose keys lie in `bounds`, as [`Keyspace::count`] does. Reads the leaves of the range. For about how many see
    /// [`Keyspace::approximate_count`].
    ///
    /// ```
    /// # let db = hedgerow::Options::new().in_memory()?;
    /// # let birds = db.keyspace("birds")?;
    /// # for name in ["dunnock", "robin", "wren"] { birds.put(name.as_bytes(), b"seen")?; }
    /// assert_eq!(birds.count_range("e"..)?, 2);
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads).
    pub fn count_range(&self, bounds: impl KeyRange) -> Result<u64> {
        self.inner.check_open()?;
        let bounds = bounds.bounds();
        let of_long = |bound: Bound<&[u8]>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => is_long(&self.tree, key),
            Bound::Unbounded => false,
        };
        if of_long(bounds.0) || of_long(bounds.1) {
            // On which side of such a bound a record with a label is, its whole key tells.
            let mut keys = self.for_one_call().range(bounds).keys();
            return keys.try_fold(0, |count, key| key.map(|_| count + 1));
        }
        let mut still = None;
        loop {
            let moves = self.inner.long.moves();
            let count = self.count_once(bounds)?;
            if still.is_some() || self.inner.long.is_still_since(moves) {
                return Ok(count);
            }
            // A record with a label has moved, and may have been counted twice, or not.
            still = Some(self.inner.long.keep_still(&self.tree.wait().begin())?);
        }
    }

    fn count_once(&self, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<u64> {
        let mut count = 0;
        let outcome = self.tree.range(bounds).visit(|_, _| {
            count += 1;
            ControlFlow::<()>::Continue(())
        });
        outcome.map(|_| count)
    }
}
