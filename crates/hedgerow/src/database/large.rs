//! Large values: how a keyspace puts, gets and compares values that no leaf holds, and puts them as streams.
//!
//! Rank 7. What becomes of a value on its way is in [`super::values`]. Thread-safety: a [`ValueWriter`] is `Send`, and used by one thread at a
//! time; everything else as for [`Keyspace`].

use crate::database::keyspace::{Keyspace, is_change};
use crate::database::long::{Cut, is_long, tree_of};
use crate::database::value_reader::ValueReader;
use crate::database::values::{Prepared, read_all};
use crate::error::{Error, ErrorKind, Result};
use crate::large::{escape, is_stored_form};
use crate::store::{ExtentReader, ExtentWriter, Found, PoolTree};
use crate::tree::{CompareAndSwap, Value};
use std::fmt;
use std::io::{self, Read, Write};
use std::ops::RangeBounds;

impl Keyspace {
    /// A reader of the value of `key`, piece by piece; `None` if there is no record. The reader sees the value as it was at this call, even
    /// if the record is changed or removed later. Its space in the file is not used again while the reader lives.
    ///
    /// ```
    /// # fn main() -> hedgerow::Result<()> {
    /// # let db = hedgerow::Options::new().temporary()?;
    /// # let songs = db.keyspace("songs")?;
    /// songs.put(b"wren", &vec![b'.'; 1 << 20])?;
    /// let mut reader = songs.value_reader(b"wren")?.unwrap();
    /// let mut piece = [0; 100];
    /// assert_eq!(reader.read_at(0, &mut piece)?, 100);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads).
    pub fn value_reader(&self, key: &[u8]) -> Result<Option<ValueReader>> {
        self.inner.check_open()?;
        let found = match is_long(&self.tree, key) {
            true => self.inner.find_long_value(&self.tree, key)?,
            false => self.inner.store.find(&self.tree, key)?.map(|found| (found, 0)),
        };
        Ok(found.map(|(found, before)| ValueReader::new(self.inner.clone(), found, before)))
    }

    /// The bytes of `range` of the value of `key`, without those beyond its end; `None` if there is no record. Of a large value only the
    /// chunks (32 KiB) that hold these bytes are read.
    ///
    /// ```
    /// # fn main() -> hedgerow::Result<()> {
    /// let db = hedgerow::Options::new().temporary()?;
    /// let songs = db.keyspace("songs")?;
    /// songs.put(b"wren", &vec![b'.'; 1 << 20])?;
    /// assert_eq!(songs.get_range(b"wren", 1_048_570..2_000_000)?.as_deref(), Some(&b"......"[..]));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads).
    pub fn get_range(&self, key: &[u8], range: impl RangeBounds<u64>) -> Result<Option<Vec<u8>>> {
        self.value_reader(key)?.map(|mut reader| reader.read_range(range)).transpose()
    }

    /// Begins to put a value of `len_bytes` bytes, up to 4 GiB, piece by piece: write them, then call [`ValueWriter::finish`]. Until
    /// then nothing has changed, and dropping the writer leaves nothing behind.
    ///
    /// ```
    /// let db = hedgerow::Options::new().temporary()?;
    /// let songs = db.keyspace("songs")?;
    /// let mut writer = songs.value_writer(b"wren", 2 << 20)?;
    /// for _ in 0..2 {
    ///     writer.write_bytes(&vec![b'.'; 1 << 20])?;
    /// }
    /// writer.finish()?;
    /// assert_eq!(songs.value_reader(b"wren")?.unwrap().len_bytes(), 2 << 20);
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Keyspace::put`].
    pub fn value_writer(&self, key: &[u8], len_bytes: u64) -> Result<ValueWriter> {
        self.inner.check_open()?;
        if is_long(&self.tree, key) {
            return self.long_value_writer(key, len_bytes);
        }
        let max = self.tree.max_record_bytes();
        let store = &self.inner.store;
        let sink = if len_bytes <= BUFFERED_BYTES.max(max as u64) || !store.has_file() {
            if len_bytes > max as u64 {
                store.check_large(len_bytes, max - key.len())?;
            }
            Sink::Memory(Vec::with_capacity(len_bytes as usize))
        } else {
            Sink::Extent(Box::new(store.write_large(
                len_bytes,
                max - key.len(),
                self.tree.wait(),
            )?))
        };
        Ok(ValueWriter { keyspace: self.clone(), key: key.to_vec(), len_bytes, sink })
    }

    /// [`Self::value_writer`] of a long key.
    #[cold]
    fn long_value_writer(&self, key: &[u8], len_bytes: u64) -> Result<ValueWriter> {
        self.inner.check_put_long(&self.tree, key, len_bytes)?;
        let store = &self.inner.store;
        let sink = if len_bytes <= BUFFERED_BYTES || !store.has_file() {
            Sink::Memory(Vec::with_capacity(len_bytes as usize))
        } else {
            let before = Cut::new(&self.tree, key).payload_start();
            let room = self.tree.max_record_bytes() - self.tree.max_key_bytes();
            let bytes = before.len() as u64 + len_bytes;
            let mut writer = store.write_large(bytes, room, self.tree.wait())?;
            writer.write(&before)?;
            Sink::Extent(Box::new(writer))
        };
        Ok(ValueWriter { keyspace: self.clone(), key: key.to_vec(), len_bytes, sink })
    }

    /// Reads `len_bytes` bytes from `from` and puts them as the value of `key`, as [`Keyspace::put`] does. Takes the same memory for any
    /// length. Returns whether there was a record before.
    ///
    /// # Errors
    /// Those of [`Keyspace::put`]; [`Io`](ErrorKind::Io) for those of `from`, or [`DiskFull`](ErrorKind::DiskFull) if they say that; [`LengthMismatch`](ErrorKind::LengthMismatch) if it ends too
    /// early.
    pub fn put_stream(&self, key: &[u8], len_bytes: u64, mut from: impl Read) -> Result<bool> {
        let mut writer = self.value_writer(key, len_bytes)?;
        let mut piece = vec![0; PIECE_BYTES.min(len_bytes as usize)];
        let mut left = len_bytes;
        while left > 0 {
            let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            match from.read(&mut piece[..most]) {
                Ok(0) => break,
                Ok(count) => {
                    let bytes = piece[..most].get(..count).ok_or_else(|| {
                        let more = io::Error::other("it reports more bytes than it was asked for");
                        Error::io("cannot read the value that is to be put", more)
                    })?;
                    writer.write_bytes(bytes)?;
                    left -= count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Error::io("cannot read the value that is to be put", error));
                }
            }
        }
        writer.finish()
    }

    /// A change that may put a large value; `stored`: by its outcome it did. `only_if`: it comes to nothing, and is false, unless there is
    /// a record, or is none. That is asked before anything is written; the change itself sees to what comes between.
    #[cold]
    pub(super) fn change_large(
        &self,
        key: &[u8],
        value: &[u8],
        change: impl FnOnce(&PoolTree, &[u8], &[u8]) -> Result<bool>,
        stored: impl Fn(&bool) -> bool,
        only_if: Option<bool>,
    ) -> Result<bool> {
        self.inner.check_open()?;
        let this = self.for_one_call();
        if let Some(is_there) = only_if
            && this.contains_key(key)? != is_there
        {
            this.tree.pool().check_values()?;
            this.inner.check_put(&this.tree, key, value)?;
            return Ok(false);
        }
        if is_long(&self.tree, key) {
            return this.change_long(key, value, change, stored);
        }
        let prepared = self.inner.prepare(&this.tree, key, value)?;
        let makes = |tree: &PoolTree| {
            let outcome = change(tree, key, prepared.bytes())?;
            if stored(&outcome) {
                prepared.keep();
            }
            Ok(outcome)
        };
        this.change_if(makes, &stored)
    }

    /// [`Keyspace::compare_and_swap`] where one of the values may be large: what is there is read with nothing
    /// latched, and swapped if the record is still the same.
    #[cold]
    pub(super) fn swap_large(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<CompareAndSwap> {
        if is_long(&self.tree, key) {
            return self.swap_long(key, expected, new);
        }
        self.inner.check_open()?;
        let this = self.for_one_call();
        let store = &self.inner.store;
        let mut prepared = None;
        loop {
            let (present, held, mut large) = match store.find(&this.tree, key)? {
                None => (None, None, None),
                Some(Found::Short(value)) => (Some(value), None, None),
                Some(Found::Held { value, reference }) => (Some(value), Some(reference), None),
                Some(Found::Extent(reader)) => (None, None, Some(reader)),
            };
            let holds = match (&expected, &present, &mut large) {
                (None, None, None) => true,
                (Some(expected), Some(present), _) => present.as_bytes() == *expected,
                (Some(expected), _, Some(reader)) => is_equal(reader, expected)?,
                _ => false,
            };
            if !holds {
                let found = match large {
                    Some(mut reader) => Some(Value::from(read_all(&mut reader)?)),
                    None => present,
                };
                return Ok(CompareAndSwap::Differs(found));
            }
            // The record as the leaf has it. The reader keeps the units, so it can be no other one's; the seed of a held value is
            // random.
            let stored = match (&large, &present) {
                (Some(reader), _) => Some(reader.stored_form()),
                (None, Some(_)) if held.is_some() => held.map(Value::into_vec),
                (None, Some(value)) if is_stored_form(value) && store.has_stored_forms() => {
                    Some(escape(value))
                }
                (None, Some(value)) => Some(value.to_vec()),
                (None, None) => None,
            };
            if prepared.is_none()
                && let Some(new) = new
            {
                prepared = Some(self.inner.prepare(&this.tree, key, new)?);
            }
            let swaps = |tree: &PoolTree| {
                let put = prepared.as_ref().map(Prepared::bytes);
                let swapped = tree.compare_and_swap(key, stored.as_deref(), put)?;
                if swapped.is_swapped()
                    && let Some(prepared) = prepared.take()
                {
                    prepared.keep();
                }
                Ok(swapped)
            };
            let is_made = |swapped: &CompareAndSwap| is_change(swapped, expected, new);
            if this.change_if(swaps, is_made)?.is_swapped() {
                return Ok(CompareAndSwap::Swapped);
            }
            // Somebody came between: what is there now is to be compared.
        }
    }
}

/// A value up to this length is put as a whole when its writer is finished: that is cheaper than a place in the file for each.
const BUFFERED_BYTES: u64 = 64 << 10;
/// Bytes that a stream is read by.
const PIECE_BYTES: usize = 64 << 10;

fn is_equal(reader: &mut ExtentReader, expected: &[u8]) -> Result<bool> {
    if reader.len_bytes() != expected.len() as u64 {
        return Ok(false);
    }
    let mut piece = vec![0; PIECE_BYTES.min(expected.len())];
    for (index, expected) in expected.chunks(PIECE_BYTES).enumerate() {
        let count = reader.read_at((index * PIECE_BYTES) as u64, &mut piece[..expected.len()])?;
        if piece[..count] != *expected {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Puts one value piece by piece. See [`Keyspace::value_writer`].
///
/// `Send`; used by one thread at a time. It keeps the database open.
#[must_use = "nothing is put before `finish`"]
pub struct ValueWriter {
    keyspace: Keyspace,
    key: Vec<u8>,
    len_bytes: u64,
    sink: Sink,
}

enum Sink {
    Memory(Vec<u8>),
    Extent(Box<ExtentWriter>),
}

impl fmt::Debug for ValueWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueWriter").field("len_bytes", &self.len_bytes).finish_non_exhaustive()
    }
}

impl ValueWriter {
    /// Takes the next bytes of the value. Blocks while they are written.
    ///
    /// # Errors
    /// After these nothing was taken, and the writer goes on: [`LengthMismatch`](ErrorKind::LengthMismatch) if there are more bytes than the value
    /// lacks; [`Closed`](ErrorKind::Closed); [`ForkedProcess`](ErrorKind::ForkedProcess); [`MemoryLimit`](ErrorKind::MemoryLimit); the ends of a
    /// [`Wait`](crate::Wait). After others each further call is [`WriterFailed`](ErrorKind::WriterFailed): [`Poisoned`](ErrorKind::Poisoned);
    /// [`DiskFull`](ErrorKind::DiskFull); [`Io`](ErrorKind::Io); [`Corrupted`](ErrorKind::Corrupted).
    pub fn write_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.keyspace.inner.check_open()?;
        match &mut self.sink {
            Sink::Extent(writer) => writer.write(bytes),
            Sink::Memory(value) if (value.len() + bytes.len()) as u64 <= self.len_bytes => {
                value.extend_from_slice(bytes);
                Ok(())
            }
            Sink::Memory(_) => {
                let what = format!("more bytes than the {} of the value", self.len_bytes);
                Err(Error::new(ErrorKind::LengthMismatch, what))
            }
        }
    }

    /// Puts the record. If there is one of the same key, its value is replaced. Returns whether there was one. Waits until the bytes of a
    /// large value are written.
    ///
    /// # Errors
    /// Those of [`Keyspace::put`]; [`LengthMismatch`](ErrorKind::LengthMismatch) if bytes are missing;
    /// [`WriterFailed`](ErrorKind::WriterFailed) after a write that failed.
    pub fn finish(mut self) -> Result<bool> {
        self.keyspace.inner.check_open()?;
        match std::mem::replace(&mut self.sink, Sink::Memory(Vec::new())) {
            Sink::Memory(value) if value.len() as u64 == self.len_bytes => {
                self.keyspace.put(&self.key, &value)
            }
            Sink::Memory(value) => {
                let what =
                    format!("{} bytes of a value of {} were written", value.len(), self.len_bytes);
                Err(Error::new(ErrorKind::LengthMismatch, what))
            }
            Sink::Extent(mut writer) => {
                writer.finish()?;
                let reference = writer.stored_form();
                let put = |tree: &PoolTree, key: &[u8]| {
                    let was_there = tree.put(key, &reference)?;
                    writer.keep();
                    Ok(was_there)
                };
                let (keyspace, key) = (&self.keyspace, &self.key);
                match is_long(keyspace.tree(), key) {
                    true => keyspace.put_long(&tree_of(keyspace.tree()), key, put, |_| true),
                    false => keyspace.change_if(|tree| put(tree, key), |_| true),
                }
            }
        }
    }
}

impl Drop for ValueWriter {
    /// In a forked process nothing is given back: it is the parent's.
    fn drop(&mut self) {
        if self.keyspace.inner.check_process().is_err() {
            std::mem::forget(std::mem::replace(&mut self.sink, Sink::Memory(Vec::new())));
        }
    }
}

/// The [`Error`] is inside of that of `std::io`: `into_inner` and `downcast` get it out.
impl Write for ValueWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_bytes(bytes)?;
        Ok(bytes.len())
    }

    /// Nothing is durable, or can be seen, before [`ValueWriter::finish`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
