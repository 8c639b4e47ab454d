//! The reads that keyspaces, snapshots and transactions have in common, as one trait, for functions that read a keyspace, what a snapshot sees of one, or what a transaction does.
//!
//! Rank 7. The methods are those of the types themselves. No state.

use crate::database::{
    Cursor, Keyspace, Range, SnapshotKeyspace, TransactionKeyspace, ValueReader,
};
use crate::error::Result;
use crate::key::KeyRange;
use crate::tree::Value;
use std::ops::RangeBounds;

mod sealed {
    pub trait Sealed {}
}

/// The reads that a [`Keyspace`], a [`SnapshotKeyspace`] and a [`TransactionKeyspace`] have in common. Nobody else implements it. A keyspace has
/// others besides (`get_ref`, `approximate_count`).
///
/// ```
/// use hedgerow::Records;
///
/// fn longest(of: &impl Records) -> hedgerow::Result<usize> {
///     let mut longest = 0;
///     for record in of.iter() {
///         longest = longest.max(record?.1.len());
///     }
///     Ok(longest)
/// }
///
/// let db = hedgerow::Options::new().in_memory()?;
/// let birds = db.keyspace("birds")?;
/// birds.put(b"wren", b"Troglodytes troglodytes")?;
/// let snapshot = db.snapshot()?;
/// assert_eq!(longest(&birds)?, longest(&snapshot.keyspace(&birds)?)?);
/// # Ok::<(), hedgerow::Error>(())
/// ```
///
/// # Errors
/// The [errors of reads](Keyspace#errors-of-reads); of a snapshot and of a transaction also
/// [`SnapshotTooOld`](crate::ErrorKind::SnapshotTooOld), and of a transaction [`TransactionEnded`](crate::ErrorKind::TransactionEnded).
pub trait Records: sealed::Sealed {
    /// See [`Keyspace::get`].
    ///
    /// # Errors
    /// Those of [all reads](Records#errors).
    fn get(&self, key: &[u8]) -> Result<Option<Value>>;

    /// See [`Keyspace::get_into`].
    ///
    /// # Errors
    /// Those of [all reads](Records#errors).
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// See [`Keyspace::get_many`]. In a snapshot or a transaction it costs as much as single gets.
    ///
    /// # Errors
    /// Those of [all reads](Records#errors).
    fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>>;

    /// See [`Keyspace::contains_key`].
    ///
    /// # Errors
    /// Those of [all reads](Records#errors).
    fn contains_key(&self, key: &[u8]) -> Result<bool>;

    /// See [`Keyspace::get_range`].
    ///
    /// # Errors
    /// Those of [all reads](Records#errors).
    fn get_range(&self, key: &[u8], range: impl RangeBounds<u64>) -> Result<Option<Vec<u8>>>;

    /// See [`Keyspace::value_reader`].
    ///
    /// # Errors
    /// Those of [all reads](Records#errors).
    fn value_reader(&self, key: &[u8]) -> Result<Option<ValueReader>>;

    /// See [`Keyspace::first`].
    ///
    /// # Errors
    /// Those of [all reads](Records#errors).
    fn first(&self) -> Result<Option<(Value, Value)>>;

    /// See [`Keyspace::last`].
    ///
    /// # Errors
    /// Those of [all reads](Records#errors).
    fn last(&self) -> Result<Option<(Value, Value)>>;

    /// See [`Keyspace::is_empty`].
    ///
    /// # Errors
    /// Those of [all reads](Records#errors).
    fn is_empty(&self) -> Result<bool>;

    /// See [`Keyspace::range`].
    fn range(&self, bounds: impl KeyRange) -> Range;

    /// See [`Keyspace::prefix`].
    fn prefix(&self, prefix: &[u8]) -> Range;

    /// See [`Keyspace::iter`].
    fn iter(&self) -> Range;

    /// See [`Keyspace::cursor`].
    fn cursor(&self) -> Cursor;

    /// See [`Keyspace::count`].
    ///
    /// # Errors
    /// Those of [all reads](Records#errors).
    fn count(&self) -> Result<u64>;

    /// See [`Keyspace::count_range`].
    ///
    /// # Errors
    /// Those of [all reads](Records#errors).
    fn count_range(&self, bounds: impl KeyRange) -> Result<u64>;
}

macro_rules! records {
    ($($name:ty),*) => {
        $(
            impl sealed::Sealed for $name {}

            impl Records for $name {
                fn get(&self, key: &[u8]) -> Result<Option<Value>> {
                    <$name>::get(self, key)
                }

                fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
                    <$name>::get_into(self, key, value)
                }

                fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
                    <$name>::get_many(self, keys)
                }

                fn contains_key(&self, key: &[u8]) -> Result<bool> {
                    <$name>::contains_key(self, key)
                }

                fn get_range(
                    &self,
                    key: &[u8],
                    range: impl RangeBounds<u64>,
                ) -> Result<Option<Vec<u8>>> {
                    <$name>::get_range(self, key, range)
                }

                fn value_reader(&self, key: &[u8]) -> Result<Option<ValueReader>> {
                    <$name>::value_reader(self, key)
                }

                fn first(&self) -> Result<Option<(Value, Value)>> {
                    <$name>::first(self)
                }

                fn last(&self) -> Result<Option<(Value, Value)>> {
                    <$name>::last(self)
                }

                fn is_empty(&self) -> Result<bool> {
                    <$name>::is_empty(self)
                }

                fn range(&self, bounds: impl KeyRange) -> Range {
                    <$name>::range(self, bounds)
                }

                fn prefix(&self, prefix: &[u8]) -> Range {
                    <$name>::prefix(self, prefix)
                }

                fn iter(&self) -> Range {
                    <$name>::iter(self)
                }

                fn cursor(&self) -> Cursor {
                    <$name>::cursor(self)
                }

                fn count(&self) -> Result<u64> {
                    <$name>::count(self)
                }

                fn count_range(&self, bounds: impl KeyRange) -> Result<u64> {
                    <$name>::count_range(self, bounds)
                }
            }
        )*
    };
}

records!(Keyspace, SnapshotKeyspace, TransactionKeyspace);
