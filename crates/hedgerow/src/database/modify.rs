//! Read-modify-write of one record: a new value that is made of the old one, in one atomic step.
//!
//! Rank 7. With values in leaves each is one change of the tree ([`crate::tree`]). Where that is not enough it reads the record, computes,
//! and swaps if the record is still the one that was read; if it is not, it goes on with what the swap has found. So each is linearizable:
//! it takes effect at its last change, or at its last read where it changes nothing. No latch is held while a caller's closure runs. No
//! state of its own. A long key has no tree key that could be named before it was looked up, so it goes by reading and swapping.

use crate::database::keyspace::Keyspace;
use crate::database::long::is_long;
use crate::database::values::is_record;
use crate::error::{Error, ErrorKind, Result};
use crate::tree::{Before, CompareAndSwap, Updated, Value};

/// Bytes of an integer in a record.
const INTEGER_BYTES: usize = size_of::<i64>();

/// # Read-modify-write
///
/// Each of these is one atomic step. They cost one change and a copy of the old value; with large values a look-up more. Those with a
/// closure cost once more a change whenever another thread has changed the record in between. Then one of the two threads has made its
/// change, so threads never wait for each other in a circle. The time of [`Wait::For`](crate::Wait::For) begins with the call, so closures take of it.
///
/// After [`NotYetDurable`](crate::ErrorKind::NotYetDurable) or [`DurabilityUnknown`](crate::ErrorKind::DurabilityUnknown)
/// the change is made, and the value before is lost to the caller. Whoever needs it uses a buffered handle, and
/// [`Database::sync_within`](crate::Database::sync_within) afterwards.
impl Keyspace {
    /// Changes the record of `key` to what `change` makes of it, and returns the value before. `None` stands for *no record*, in the
    /// argument and in the result of `change`: so it may also insert and remove.
    ///
    /// `change` is called again if another thread has changed the record meanwhile. It should have no other effect. No latch is held, so
    /// it may use the database.
    ///
    /// ```
    /// # let db = hedgerow::Options::new().in_memory()?;
    /// # let queues = db.keyspace("queues")?;
    /// queues.fetch_update(b"names", |old| {
    ///     Some([old.unwrap_or_default(), b"wren;"].concat())
    /// })?;
    /// assert_eq!(queues.get(b"names")?.unwrap(), b"wren;");
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Keyspace::put`].
    pub fn fetch_update<V: AsRef<[u8]>>(
        &self,
        key: &[u8],
        change: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<Value>> {
        Ok(self.modify(key, change)?.0)
    }

    /// [`Keyspace::fetch_update`] that returns the new value; `None` if there is no record now.
    ///
    /// ```
    /// # let db = hedgerow::Options::new().in_memory()?;
    /// # let birds = db.keyspace("birds")?;
    /// birds.put(b"wren", b"brown")?;
    /// let new = birds.update_and_fetch(b"wren", |old| old.map(|old| [old, b", small"].concat()))?;
    /// assert_eq!(new.unwrap(), b"brown, small");
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Keyspace::put`].
    pub fn update_and_fetch<V: AsRef<[u8]>>(
        &self,
        key: &[u8],
        change: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<V>> {
        Ok(self.modify(key, change)?.1)
    }

    /// Adds `number` to the integer of `key`, and returns the integer before. No record counts as 0. The sum wraps around at the ends of
    /// `i64`, as that of an atomic does. The value is 8 bytes, big-endian (`i64::to_be_bytes`).
    ///
    /// ```
    /// # let db = hedgerow::Options::new().in_memory()?;
    /// # let visits = db.keyspace("visits")?;
    /// assert_eq!(visits.fetch_add(b"/index.html", 1)?, 0);
    /// assert_eq!(visits.fetch_add(b"/index.html", 1)?, 1);
    /// assert_eq!(visits.get(b"/index.html")?.unwrap(), 2_i64.to_be_bytes());
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the value has another length than 8 bytes; those of [`Keyspace::put`].
    pub fn fetch_add(&self, key: &[u8], number: i64) -> Result<i64> {
        let this = self.for_one_call();
        match this.change_if(|tree| tree.fetch_add(key, number), is_fit) {
            Ok(Before::Was(old)) => Ok(old),
            Ok(Before::Unfit) => this.add_apart(key, number),
            Err(_) if is_long(self.tree(), key) => this.add_apart(key, number),
            Err(error) => Err(error),
        }
    }

    /// The addition, for values that a leaf does not have as they are, for those that are no integers, and for long keys.
    #[cold]
    fn add_apart(&self, key: &[u8], number: i64) -> Result<i64> {
        let mut found = self.get(key)?;
        loop {
            let old = found.as_deref().map_or(Ok(0), integer)?;
            let new = old.wrapping_add(number).to_be_bytes();
            match self.compare_and_swap(key, found.as_deref(), Some(&new))? {
                CompareAndSwap::Swapped => return Ok(old),
                CompareAndSwap::Differs(other) => found = other,
            }
        }
    }

    /// The value of `key`. If there is no record, what `make` returns is put, and is the value. `make` is called once at most. What it has
    /// made is dropped if another thread puts a record first.
    ///
    /// # Errors
    /// Those of [`Keyspace::put`].
    pub fn get_or_insert_with<V: Into<Value>>(
        &self,
        key: &[u8],
        make: impl FnOnce() -> V,
    ) -> Result<Value> {
        let this = self.for_one_call();
        if let Some(found) = this.get(key)? {
            return Ok(found);
        }
        let made = make().into();
        loop {
            match this.compare_and_swap(key, None, Some(&made))? {
                CompareAndSwap::Swapped => return Ok(made),
                CompareAndSwap::Differs(Some(found)) => return Ok(found),
                // A large value that is gone again.
                CompareAndSwap::Differs(None) => {}
            }
        }
    }

    /// [`Keyspace::put`] that returns the value before.
    ///
    /// # Errors
    /// Those of [`Keyspace::put`].
    pub fn swap(&self, key: &[u8], value: &[u8]) -> Result<Option<Value>> {
        let this = self.for_one_call();
        if is_record(self.tree(), key, value) {
            let mut old = Value::default();
            let before = this.change_if(|tree| tree.swap(key, value, &mut old), is_fit)?;
            if let Before::Was(found) = before {
                return Ok(found.then_some(old));
            }
        }
        this.fetch_update(key, |_| Some(value))
    }

    /// [`Keyspace::remove`] that returns the value before.
    ///
    /// # Errors
    /// The [errors of changes](Keyspace#errors-of-changes).
    pub fn take(&self, key: &[u8]) -> Result<Option<Value>> {
        let this = self.for_one_call();
        if is_long(self.tree(), key) {
            return this.fetch_update(key, |_| None::<&[u8]>);
        }
        let mut old = Value::default();
        let is_made = |before: &Before<bool>| matches!(before, Before::Was(true));
        match this.change_if(|tree| tree.take(key, &mut old), is_made)? {
            Before::Was(found) => Ok(found.then_some(old)),
            Before::Unfit => this.fetch_update(key, |_| None::<&[u8]>),
        }
    }

    /// The values before and after.
    fn modify<V: AsRef<[u8]>>(
        &self,
        key: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<(Option<Value>, Option<V>)> {
        let this = self.for_one_call();
        let updated = match is_long(self.tree(), key) {
            true => Updated::Unfit,
            false => {
                let is_made = |updated: &Updated<V>| match updated {
                    Updated::Made(old, new) => old.is_some() || new.is_some(),
                    _ => false,
                };
                this.change_if(|tree| tree.update_with(key, &mut change), is_made)?
            }
        };
        let (mut found, mut new) = match updated {
            Updated::Made(old, new) => return Ok((old, new)),
            Updated::NotHere(old, new) => (old, new),
            other => {
                let found = match other {
                    Updated::Differs(found) => found,
                    _ => this.get(key)?,
                };
                let new = change(found.as_deref());
                (found, new)
            }
        };
        loop {
            let value = new.as_ref().map(AsRef::as_ref);
            match this.compare_and_swap(key, found.as_deref(), value)? {
                CompareAndSwap::Swapped => return Ok((found, new)),
                CompareAndSwap::Differs(other) => found = other,
            }
            new = change(found.as_deref());
        }
    }
}

/// Whether a change that changes every record was made in the one descent.
fn is_fit<T>(before: &Before<T>) -> bool {
    matches!(before, Before::Was(_))
}

pub(super) fn integer(value: &[u8]) -> Result<i64> {
    let bytes: [u8; INTEGER_BYTES] = value.try_into().map_err(|_| {
        let words =
            format!("the value has {} bytes, and an integer has {INTEGER_BYTES}", value.len());
        Error::new(ErrorKind::InvalidArgument, words)
    })?;
    Ok(i64::from_be_bytes(bytes))
}
