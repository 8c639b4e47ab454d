//! Values that are lent where they lie in memory, instead of being copied.
//!
//! Rank 7. A large value that is in memory lies in frames, and those are lent (see `buffer/lent.rs`); everything else is
//! copied, so that a caller need not know which it is. Thread-safety: a [`ValueRef`] is `Send + Sync`.

use crate::buffer::Lent;
use crate::database::inner::Inner;
use crate::database::keyspace::Keyspace;
use crate::database::long::is_long;
use crate::error::Result;
use crate::store::PoolTree;
use crate::tree::Value;
use std::fmt;

/// A value, lent by the database where that is possible. See [`Keyspace::get_ref`].
///
/// It shows the value as it was when it was looked up, whatever becomes of the record. Nobody waits for it: while it lives, its memory
/// is not used for anything else, and if the values that are lent at a time exceed a sixteenth of the memory for pages, further
/// ones are copied. So keep it for as long as you like, but not many of them. `Debug` shows the length and not the bytes.
pub struct ValueRef<'k>(Source<'k>);

enum Source<'k> {
    Copied(Value),
    Lent(Lent<'k>),
}

impl ValueRef<'_> {
    /// Length of the value in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Source::Copied(value) => value.len(),
            Source::Lent(lent) => lent.len_bytes(),
        }
    }

    /// Whether the value has no bytes.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the value, in order, as one or several slices. None of them is empty. All but the last have a multiple of the page
    /// size as their length if there are several.
    #[inline]
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let (copied, lent) = match &self.0 {
            Source::Copied(value) => (Some(value.as_bytes()), None),
            Source::Lent(lent) => (None, Some(lent.parts())),
        };
        copied.into_iter().filter(|value| !value.is_empty()).chain(lent.into_iter().flatten())
    }

    /// The value as one slice, if it lies in one piece, as most values do.
    #[inline]
    #[must_use]
    pub fn whole(&self) -> Option<&[u8]> {
        match &self.0 {
            Source::Copied(value) => Some(value),
            Source::Lent(lent) => lent.whole(),
        }
    }

    /// A copy of the value.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        self.parts().for_each(|part| bytes.extend_from_slice(part));
        bytes
    }
}

impl fmt::Debug for ValueRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueRef").field("len_bytes", &self.len()).finish_non_exhaustive()
    }
}

impl Inner {
    /// What a value out of a leaf stands for, of the record of `key`, lent if it is in memory; `None` if there is no record any
    /// more.
    #[inline]
    fn lend<'k>(
        &'k self,
        tree: &PoolTree,
        key: &[u8],
        found: &[u8],
    ) -> Result<Option<ValueRef<'k>>> {
        if let Some(lent) = self.store.lend_kept(found) {
            return Ok(Some(ValueRef(Source::Lent(lent))));
        }
        let value = self.resolve(tree, key, found)?;
        Ok(value.map(|value| ValueRef(Source::Copied(value))))
    }
}

impl Keyspace {
    /// The value of `key`, lent; `None` if there is no record. A value that does not lie in a leaf and is longer than a page is read where
    /// it is in memory, without a copy. Any other value is copied, as [`Keyspace::get`] does.
    ///
    /// ```
    /// # fn main() -> hedgerow::Result<()> {
    /// # let db = hedgerow::Options::new().temporary()?;
    /// # let songs = db.keyspace("songs")?;
    /// songs.put(b"wren", &vec![b'.'; 100_000])?;
    /// let song = songs.get_ref(b"wren")?.unwrap();
    /// assert_eq!(song.len(), 100_000);
    /// let dots = song.parts().flatten().filter(|&&byte| byte == b'.').count();
    /// assert_eq!(dots, 100_000);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads).
    #[inline]
    pub fn get_ref(&self, key: &[u8]) -> Result<Option<ValueRef<'_>>> {
        self.inner().check_open()?;
        match self.tree().get(key)? {
            Some(found) if self.is_stored_form(&found) && !is_long(self.tree(), key) => {
                self.inner().lend(self.tree(), key, &found)
            }
            _ if is_long(self.tree(), key) => Ok(self
                .inner()
                .get_long(self.tree(), key)?
                .map(|value| ValueRef(Source::Copied(value)))),
            found => Ok(found.map(|value| ValueRef(Source::Copied(value)))),
        }
    }

    /// Calls `f` once with the value of `key` if there is a record, and returns its result. A value that does not lie in a
    /// leaf is lent where it is in memory, and is copied if it does not lie in one piece. `f` may use the database.
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads).
    #[inline]
    pub fn get_with<R>(&self, key: &[u8], f: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.inner().check_open()?;
        let Some(found) = self.tree().get(key)? else {
            return match is_long(self.tree(), key) {
                true => Ok(self.inner().get_long(self.tree(), key)?.map(|value| f(&value))),
                false => Ok(None),
            };
        };
        if !self.is_stored_form(&found) {
            return Ok(Some(f(&found)));
        }
        self.get_stored_with(key, &found, f)
    }

    /// [`Keyspace::get_with`] of a value that the leaf has in a stored form. Apart, so that short values do not pay for its frame.
    #[inline(never)]
    fn get_stored_with<R>(
        &self,
        key: &[u8],
        found: &[u8],
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        if is_long(self.tree(), key) {
            return Ok(self.inner().get_long(self.tree(), key)?.map(|value| f(&value)));
        }
        match self.inner().lend_to(found, &mut Vec::new(), f) {
            Ok(result) => Ok(Some(result)),
            Err(f) => Ok(self.inner().resolve(self.tree(), key, found)?.map(|value| f(&value))),
        }
    }
}
