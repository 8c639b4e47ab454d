//! The first and the last record of a keyspace: read, or taken out.
//!
//! Rank 7. The tree finds the end and takes it out in one step (`tree/ends.rs`). A value that no leaf holds is read first, and then
//! the record is taken out only if it is still the same and still the end. No state of its own.

use crate::database::keyspace::Keyspace;
use crate::database::long::{is_long, whole_record};
use crate::error::Result;
use crate::tree::{End, Taken, Value};

/// Key and value, as a caller gets them.
type Record = (Value, Value);

/// # The ends of the order
///
/// A keyspace is a queue by that: keys that ascend, [`Keyspace::put`] and [`Keyspace::pop_first`]. Each call is one atomic step. It costs a
/// walk from the root and a copy of the leaf. Calls of many threads on one end wait for each other at its leaf.
impl Keyspace {
    /// The record of the least key; `None` if there is no record.
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads).
    pub fn first(&self) -> Result<Option<(Value, Value)>> {
        self.end(End::First)
    }

    /// The record of the greatest key; `None` if there is no record.
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads).
    pub fn last(&self) -> Result<Option<(Value, Value)>> {
        self.end(End::Last)
    }

    /// Whether there is no record. Looks for one key, and reads no value that no leaf holds: [`Keyspace::count`] reads all leaves.
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads).
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.iter().keys().next().transpose()?.is_none())
    }

    /// Removes the record of the least key, and returns it; `None` if there is no record. Each record is returned to one caller.
    ///
    /// ```
    /// # let db = hedgerow::Options::new().in_memory()?;
    /// # let jobs = db.keyspace("jobs")?;
    /// jobs.put(&1_u64.to_be_bytes(), b"wash")?;
    /// jobs.put(&2_u64.to_be_bytes(), b"dry")?;
    /// assert_eq!(jobs.pop_first()?.unwrap().1, b"wash");
    /// assert_eq!(jobs.pop_first()?.unwrap().1, b"dry");
    /// assert!(jobs.pop_first()?.is_none());
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads) and the [errors of changes](Keyspace#errors-of-changes).
    /// After [`NotYetDurable`](crate::ErrorKind::NotYetDurable) or [`DurabilityUnknown`](crate::ErrorKind::DurabilityUnknown)
    /// the record is removed, and lost to the caller. Whoever needs it uses a buffered handle, and
    /// [`Database::sync_within`](crate::Database::sync_within) afterwards.
    pub fn pop_first(&self) -> Result<Option<(Value, Value)>> {
        self.pop(End::First)
    }

    /// [`Keyspace::pop_first`] at the other end: the record of the greatest key.
    ///
    /// # Errors
    /// As for [`Keyspace::pop_first`].
    pub fn pop_last(&self) -> Result<Option<(Value, Value)>> {
        self.pop(End::Last)
    }

    fn end(&self, end: End) -> Result<Option<(Value, Value)>> {
        self.inner().check_open()?;
        let this = self.for_one_call();
        let mut found = this.tree().end(end)?;
        loop {
            let Some((key, raw)) = found else { return Ok(None) };
            if !self.is_stored_form(&raw) {
                return Ok(Some((key.into(), raw.into())));
            }
            let value = self.inner().resolve(this.tree(), &key, &raw)?;
            // No two values have the same stored form: if the record has it, this is its value.
            found = this.tree().end(end)?;
            if let Some(value) = value
                && found.as_ref() == Some(&(key, raw))
                && let Some((key, _)) = found
            {
                return self.whole(&key, value).map(Some);
            }
        }
    }

    /// A record whose value was in a stored form.
    fn whole(&self, key: &[u8], value: Value) -> Result<(Value, Value)> {
        match is_long(self.tree(), key) {
            true => whole_record(self.tree(), key, &value),
            false => Ok((key.into(), value)),
        }
    }

    fn pop(&self, end: End) -> Result<Option<(Value, Value)>> {
        let this = self.for_one_call();
        // The last record whose value was read, as its leaf had it, and as the caller gets it.
        let mut read: Option<(Vec<u8>, Vec<u8>, Record)> = None;
        let mut still = None;
        loop {
            let is_read = |key: &[u8], raw: &[u8]| {
                !this.is_stored_form(raw)
                    || read.as_ref().is_some_and(|(k, r, _)| k == key && r == raw)
            };
            let is_made = |taken: &Taken| matches!(taken, Taken::Record(_));
            match this.change_if(|tree| tree.take_end(end, is_read), is_made)? {
                Taken::Empty => return Ok(None),
                Taken::Record((key, raw)) => {
                    return match read {
                        Some((_, of, record)) if of == raw => Ok(Some(record)),
                        _ => Ok(Some((key.into(), raw.into()))),
                    };
                }
                Taken::Refused((key, raw)) => {
                    if is_long(this.tree(), &key) && still.is_none() {
                        // Or who moves it would put it back.
                        let waiting = this.tree().wait().begin();
                        still = Some(this.inner().long.keep_still(&waiting)?);
                    }
                    let value = this.inner().resolve(this.tree(), &key, &raw)?;
                    read = match value {
                        Some(value) => self.whole(&key, value).map(|it| Some((key, raw, it)))?,
                        None => None,
                    };
                }
            }
        }
    }
}
