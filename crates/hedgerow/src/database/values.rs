//! Values between users and leaves: what a leaf gets of a value, and what a value out of a leaf stands for.
//!
//! Rank 7. Short values pass by here: what is not too large for a record, and does not begin like a stored form, is
//! put and got as it is. For the others this is the way in ([`Prepared`]) and out ([`Inner::resolve`]). No state of its own; any number of
//! threads at a time.

use crate::database::inner::Inner;
use crate::database::long::{Cut, check_key, is_long};
use crate::error::{Error, ErrorKind, Result};
use crate::large::{Stored, escape, escaped_bytes, is_stored_form, read_stored};
use crate::store::{ExtentReader, ExtentWriter, Found, PlacedValue, PoolTree, Store};
use crate::tree::Value;

/// A value of what a snapshot or a transaction sees, and whether it is in the form that leaves have for what they do not hold.
pub(super) struct Seen {
    pub(super) value: Value,
    pub(super) is_stored: bool,
    /// Bytes in front of the value in what it stands for: a part of a long key.
    pub(super) before_bytes: usize,
}

impl Seen {
    /// A value of a short key, which is not in the stored form unless it looks like one where there are such.
    #[inline]
    pub(super) fn new(value: Value, may_be_stored: bool) -> Seen {
        let is_stored = may_be_stored && is_stored_form(&value);
        Seen { value, is_stored, before_bytes: 0 }
    }
}

/// A value as a leaf gets it.
pub(super) enum Prepared<'v> {
    Plain(&'v [u8]),
    Escaped(Vec<u8>),
    Placed(PlacedValue),
    Large(Box<ExtentWriter>, Vec<u8>),
}

/// Whether a leaf takes a value as it is.
#[inline]
pub(super) fn is_plain(tree: &PoolTree, key: &[u8], value: &[u8]) -> bool {
    key.len() + value.len() <= tree.max_record_bytes() && !is_stored_form(value)
}

impl Prepared<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Prepared::Plain(value) => value,
            Prepared::Placed(placed) => placed.stored_form(),
            Prepared::Escaped(bytes) | Prepared::Large(_, bytes) => bytes,
        }
    }

    /// A record has it now. Of a large value that none has the units go back.
    pub(super) fn keep(self) {
        match self {
            Prepared::Placed(placed) => placed.keep(),
            Prepared::Large(writer, _) => writer.keep(),
            Prepared::Plain(_) | Prepared::Escaped(_) => {}
        }
    }
}

/// Whether a leaf takes a record as it is. To be asked first: a tree refuses others with an error, which takes longer to make.
#[inline]
pub(super) fn is_record(tree: &PoolTree, key: &[u8], value: &[u8]) -> bool {
    let len_bytes = key.len() + value.len();
    // Nearly all records are no longer than a key may be.
    let fits = len_bytes <= tree.max_short_key_bytes()
        || !is_long(tree, key) && len_bytes <= tree.max_record_bytes();
    fits && !is_stored_form(value)
}

/// What became of a value in a stored form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Resolved {
    /// It was in memory.
    InMemory,
    /// It was read, or the record has another value by now.
    Read,
    /// There is no record any more.
    Gone,
}

impl Inner {
    /// Brings a value into the form that a leaf gets; a large one is written when this returns.
    ///
    /// Errors: those of changes; `RecordTooLarge` as for `Keyspace::put`.
    pub(super) fn prepare<'v>(
        &self,
        tree: &PoolTree,
        key: &[u8],
        value: &'v [u8],
    ) -> Result<Prepared<'v>> {
        if is_plain(tree, key, value) {
            return Ok(Prepared::Plain(value));
        }
        let max = tree.max_record_bytes();
        if key.len() + value.len() <= max {
            let escaped = escape(value);
            if key.len() + escaped.len() <= max {
                self.store.expect_stored_forms();
                return Ok(Prepared::Escaped(escaped));
            }
        }
        self.place_payload(tree, max - key.len(), value)
    }

    /// [`Self::prepare`] of the payload of a long key, which is in a stored form in any case. Errors, too.
    pub(super) fn prepare_long(
        &self,
        tree: &PoolTree,
        key: Cut<'_>,
        value: &[u8],
    ) -> Result<Prepared<'static>> {
        let room = tree.max_record_bytes() - tree.max_key_bytes();
        let payload = key.payload(value);
        if escaped_bytes(&payload) <= room {
            self.store.expect_stored_forms();
            return Ok(Prepared::Escaped(escape(&payload)));
        }
        self.place_payload(tree, room, &payload)
    }

    /// Writes bytes to where a record refers to that has `room` bytes for it.
    pub(super) fn place_payload(
        &self,
        tree: &PoolTree,
        room: usize,
        bytes: &[u8],
    ) -> Result<Prepared<'static>> {
        if let Some(placed) = self.store.place(bytes, room, tree.wait())? {
            return Ok(Prepared::Placed(placed));
        }
        let mut writer = self.store.write_large(bytes.len() as u64, room, tree.wait())?;
        writer.write(bytes)?;
        writer.finish()?;
        let reference = writer.stored_form();
        self.store.keep_value(&reference, bytes);
        Ok(Prepared::Large(Box::new(writer), reference))
    }

    /// Whether such a record may be put. Errors: as `Keyspace::put` has them for the record itself.
    pub(super) fn check_put(&self, tree: &PoolTree, key: &[u8], value: &[u8]) -> Result<()> {
        if is_long(tree, key) {
            return self.check_put_long(tree, key, value.len() as u64);
        }
        tree.check_record(key, &[])?;
        let stored_bytes = if is_stored_form(value) { escaped_bytes(value) } else { value.len() };
        let max = tree.max_record_bytes();
        if key.len() + stored_bytes <= max {
            return Ok(());
        }
        self.store.check_large(value.len() as u64, max - key.len())
    }

    /// [`Self::check_put`] of a long key.
    pub(super) fn check_put_long(
        &self,
        tree: &PoolTree,
        key: &[u8],
        value_bytes: u64,
    ) -> Result<()> {
        check_key(key)?;
        let room = tree.max_record_bytes() - tree.max_key_bytes();
        // A length may be anybody's number; what is too long stays that.
        let bytes = value_bytes.saturating_add(Cut::new(tree, key).start_bytes() as u64);
        match bytes.saturating_add(escaped_bytes(&[]) as u64) <= room as u64 {
            true => Ok(()),
            false => self.store.check_large(bytes, room),
        }
    }

    /// What a value out of a leaf stands for, of the record of `key` in `tree`; `None` if there is none any more.
    ///
    /// Errors: those of reads; `MemoryLimit` if there is no memory for the value.
    pub(super) fn resolve(
        &self,
        tree: &PoolTree,
        key: &[u8],
        found: &[u8],
    ) -> Result<Option<Value>> {
        // A value never changes, so this is what the record referred to.
        let mut value = Vec::new();
        if self.store.append_kept(found, &mut value) {
            return Ok(Some(Value::from(value)));
        }
        self.read_value(tree, key, found)
    }

    /// [`Self::resolve`] into the memory of `to`.
    #[inline]
    pub(super) fn resolve_into(
        &self,
        tree: &PoolTree,
        key: &[u8],
        found: &[u8],
        to: &mut Vec<u8>,
    ) -> Result<Resolved> {
        to.clear();
        if self.store.append_kept(found, to) {
            return Ok(Resolved::InMemory);
        }
        match self.read_value(tree, key, found)? {
            Some(value) => {
                *to = value.into_vec();
                Ok(Resolved::Read)
            }
            None => Ok(Resolved::Gone),
        }
    }

    /// [`Self::resolve`] where not all of the value is in memory.
    #[cold]
    fn read_value(&self, tree: &PoolTree, key: &[u8], found: &[u8]) -> Result<Option<Value>> {
        if let Stored::Plain(plain) = read_stored(found) {
            return Ok(Some(Value::from(plain)));
        }
        // The units may have been written again since the leaf was read: once more, in the right order.
        self.store.find(tree, key)?.map(|found| read_whole(&self.store, found)).transpose()
    }

    /// Hands a value that is in memory to `f`: where it lies, or in `copy`. Gives `f` back if the value is not in memory, or better
    /// copied.
    #[inline]
    pub(super) fn lend_to<R, F: FnOnce(&[u8]) -> R>(
        &self,
        found: &[u8],
        copy: &mut Vec<u8>,
        f: F,
    ) -> std::result::Result<R, F> {
        let f = match self.store.with_kept(found, f) {
            Ok(result) => return Ok(result),
            Err(f) => f,
        };
        let Some(lent) = self.store.lend_kept(found) else { return Err(f) };
        if let Some(value) = lent.whole() {
            return Ok(f(value));
        }
        copy.clear();
        lent.append_to(copy);
        drop(lent);
        Ok(f(copy))
    }
}

/// The whole of a value that was found; a large one is kept in memory, too.
pub(super) fn read_whole(store: &Store, found: Found) -> Result<Value> {
    match found {
        Found::Short(value) | Found::Held { value, .. } => Ok(value),
        Found::Extent(mut reader) => {
            let value = read_all(&mut reader)?;
            store.keep_read(&reader.stored_form(), &value);
            Ok(Value::from(value))
        }
    }
}

/// Memory for a value, or a part of one.
pub(super) fn memory_for(len_bytes: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let len = usize::try_from(len_bytes).unwrap_or(usize::MAX);
    if bytes.try_reserve_exact(len).is_err() {
        let what = format!("no memory for a value of {len_bytes} bytes; read it as a stream");
        return Err(Error::new(ErrorKind::MemoryLimit, what));
    }
    bytes.resize(len, 0);
    Ok(bytes)
}

/// The whole of a large value.
pub(super) fn read_all(reader: &mut ExtentReader) -> Result<Vec<u8>> {
    let mut bytes = memory_for(reader.len_bytes())?;
    reader.read_at(0, &mut bytes)?;
    Ok(bytes)
}
