//! All reads of what a snapshot or a transaction sees of a keyspace: what values stand for, copies, iterators and streams.
//!
//! Rank 7. They are made of what a [`View`] gives, the same for all, and [`reads`] gives a type the public ones. No state of its own.

use crate::database::long::stretches_within;
use crate::database::range::Range;
use crate::database::value_reader::ValueReader;
use crate::database::values::Seen;
use crate::database::view::View;
use crate::error::Result;
use crate::key::{KeyRange, owned_bounds};
use crate::store::Found;
use crate::tree::Value;
use hedgerow_sync::primitive::Arc;
use std::ops::RangeBounds;

/// Puts a value that stands for another one into `to`, without what lies in front of it.
fn resolve_seen<V: View + ?Sized>(view: &V, seen: &Seen, to: &mut Vec<u8>) -> Result<()> {
    view.resolve_into(&seen.value, to)?;
    to.drain(..seen.before_bytes.min(to.len()));
    Ok(())
}

pub(super) fn get<V: View + ?Sized>(view: &V, key: &[u8]) -> Result<Option<Value>> {
    match view.see(key)? {
        Some(Seen { value, is_stored: false, .. }) => Ok(Some(value)),
        Some(seen) => {
            let mut bytes = Vec::new();
            resolve_seen(view, &seen, &mut bytes)?;
            Ok(Some(Value::from(bytes)))
        }
        None => Ok(None),
    }
}

pub(super) fn get_into<V: View + ?Sized>(view: &V, key: &[u8], to: &mut Vec<u8>) -> Result<bool> {
    to.clear();
    match view.see(key)? {
        Some(Seen { value, is_stored: false, .. }) => to.extend_from_slice(&value),
        Some(seen) => resolve_seen(view, &seen, to)?,
        None => return Ok(false),
    }
    Ok(true)
}

pub(super) fn contains_key<V: View + ?Sized>(view: &V, key: &[u8]) -> Result<bool> {
    Ok(view.see(key)?.is_some())
}

pub(super) fn get_many<V: View + ?Sized, K: AsRef<[u8]>>(
    view: &V,
    keys: &[K],
) -> Result<Vec<Option<Value>>> {
    view.check()?;
    keys.iter().map(|key| get(view, key.as_ref())).collect()
}

pub(super) fn value_reader<V: View + ?Sized>(view: &V, key: &[u8]) -> Result<Option<ValueReader>> {
    let (found, before_bytes) = match view.see(key)? {
        Some(Seen { value, is_stored: false, .. }) => (Found::Short(value), 0),
        Some(Seen { value, before_bytes, .. }) => match view.resolve(&value)? {
            found if before_bytes == 0 => (found, 0),
            Found::Short(value) | Found::Held { value, .. } => {
                (Found::Short(Value::from(&value[before_bytes.min(value.len())..])), 0)
            }
            extent => (extent, before_bytes as u64),
        },
        None => return Ok(None),
    };
    Ok(Some(ValueReader::new(view.inner().clone(), found, before_bytes)))
}

pub(super) fn get_range<V: View + ?Sized>(
    view: &V,
    key: &[u8],
    range: impl RangeBounds<u64>,
) -> Result<Option<Vec<u8>>> {
    value_reader(view, key)?.map(|mut reader| reader.read_range(range)).transpose()
}

pub(super) fn range(view: Arc<dyn View>, bounds: &impl KeyRange) -> Range {
    let (lower, upper) = owned_bounds(bounds);
    Range::of(view, lower, upper)
}

pub(super) fn prefix(view: Arc<dyn View>, prefix: &[u8]) -> Range {
    let (lower, upper) = crate::key::prefix_range(prefix);
    Range::of(view, lower, upper)
}

pub(super) fn count(view: Arc<dyn View>, bounds: &impl KeyRange) -> Result<u64> {
    view.check()?;
    let (lower, upper) = owned_bounds(bounds);
    let mut cursor = stretches_within(&*view, &lower, &upper)?;
    let mut count = 0;
    while cursor.step(true)?.is_some() {
        view.check()?;
        count += 1;
    }
    Ok(count)
}

/// All reads of a keyspace, for types that have a view of one: `view` lends it, and `shared_view` shares it with what may live for longer. `named` is its name.
macro_rules! reads {
    ($name:ty, $errors:literal) => {
        impl $name {
            /// The value of `key`, copied; `None` if there is no record. Else as [`Keyspace::get`](crate::Keyspace::get).
            ///
            /// # Errors
            #[doc = $errors]
            #[inline]
            pub fn get(&self, key: &[u8]) -> $crate::error::Result<Option<$crate::tree::Value>> {
                $crate::database::reads::get(self.view(), key)
            }

            /// Replaces the contents of `value` by the value of `key`, and returns whether there is a record. `value` is empty otherwise.
            ///
            /// # Errors
            #[doc = $errors]
            pub fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> $crate::error::Result<bool> {
                $crate::database::reads::get_into(self.view(), key, value)
            }

            /// The values of many keys, in the order of the keys. Costs as much as single gets.
            ///
            /// # Errors
            #[doc = $errors]
            pub fn get_many<K: AsRef<[u8]>>(
                &self,
                keys: &[K],
            ) -> $crate::error::Result<Vec<Option<$crate::tree::Value>>> {
                $crate::database::reads::get_many(self.view(), keys)
            }

            /// Whether there is a record of `key`. Large values are not read.
            ///
            /// # Errors
            #[doc = $errors]
            pub fn contains_key(&self, key: &[u8]) -> $crate::error::Result<bool> {
                $crate::database::reads::contains_key(self.view(), key)
            }

            /// The bytes of `range` of the value of `key`, without those beyond its end; `None` if there is no record. Of a large value
            /// only the chunks (32 KiB) that hold these bytes are read.
            ///
            /// # Errors
            #[doc = $errors]
            pub fn get_range(
                &self,
                key: &[u8],
                range: impl std::ops::RangeBounds<u64>,
            ) -> $crate::error::Result<Option<Vec<u8>>> {
                $crate::database::reads::get_range(self.view(), key, range)
            }

            /// A reader of the value of `key`, piece by piece; `None` if there is no record. It keeps what it reads, also when this handle is gone.
            ///
            /// # Errors
            #[doc = $errors]
            pub fn value_reader(
                &self,
                key: &[u8],
            ) -> $crate::error::Result<Option<$crate::database::ValueReader>> {
                $crate::database::reads::value_reader(self.view(), key)
            }

            /// An iterator over the records whose keys lie in `bounds`, in order, from both ends. This call reads nothing; each step may
            /// read and fail, as a get does.
            pub fn range(&self, bounds: impl $crate::key::KeyRange) -> $crate::database::Range {
                $crate::database::reads::range(self.shared_view(), &bounds)
            }

            /// An iterator over the records whose keys begin with `prefix`, in order, from both ends. This call reads nothing.
            pub fn prefix(&self, prefix: &[u8]) -> $crate::database::Range {
                $crate::database::reads::prefix(self.shared_view(), prefix)
            }

            /// An iterator over all records, in order, from both ends. This call reads nothing.
            pub fn iter(&self) -> $crate::database::Range {
                self.range(..)
            }

            /// A cursor before the first record. It lends keys and values instead of copying each. This call reads nothing.
            #[must_use]
            pub fn cursor(&self) -> $crate::database::Cursor {
                $crate::database::Cursor::of(self.shared_view())
            }

            /// The record of the least key; `None` if there is no record.
            ///
            /// # Errors
            #[doc = $errors]
            pub fn first(
                &self,
            ) -> $crate::error::Result<Option<($crate::tree::Value, $crate::tree::Value)>> {
                self.iter().next().transpose()
            }

            /// The record of the greatest key; `None` if there is no record.
            ///
            /// # Errors
            #[doc = $errors]
            pub fn last(
                &self,
            ) -> $crate::error::Result<Option<($crate::tree::Value, $crate::tree::Value)>> {
                self.iter().next_back().transpose()
            }

            /// Whether there is no record. Looks for one key, and reads no value that no leaf holds.
            ///
            /// # Errors
            #[doc = $errors]
            pub fn is_empty(&self) -> $crate::error::Result<bool> {
                Ok(self.iter().keys().next().transpose()?.is_none())
            }

            /// The name of the keyspace, as it was given when the handle was made.
            #[must_use]
            pub fn name(&self) -> &str {
                self.named()
            }

            /// Counts the records. Reads all leaves, but no large value.
            ///
            /// # Errors
            #[doc = $errors]
            pub fn count(&self) -> $crate::error::Result<u64> {
                self.count_range(..)
            }

            /// Counts the records whose keys lie in `bounds`. Reads the leaves of the range, but no large value.
            ///
            /// # Errors
            #[doc = $errors]
            pub fn count_range(
                &self,
                bounds: impl $crate::key::KeyRange,
            ) -> $crate::error::Result<u64> {
                $crate::database::reads::count(self.shared_view(), &bounds)
            }
        }

        /// All records, in order.
        impl IntoIterator for &$name {
            type Item = $crate::error::Result<($crate::tree::Value, $crate::tree::Value)>;
            type IntoIter = $crate::database::Range;

            fn into_iter(self) -> $crate::database::Range {
                self.iter()
            }
        }
    };
}

pub(super) use reads;
