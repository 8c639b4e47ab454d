//! One value as a stream: of any length, piece by piece, at any offset.
//!
//! Rank 7. A [`ValueReader`] is `Send`, and used by one thread at a time. Invariant: the value is the one that was found, whatever becomes of its
//! record, as the reader of an extent keeps its units.

use crate::database::inner::Inner;
use crate::database::values::memory_for;
use crate::error::Result;
use crate::store::{ExtentReader, Found};
use crate::tree::Value;
use hedgerow_sync::primitive::Arc;
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::{Bound, RangeBounds};

/// Reads one value, which may be large, at any offset, also by [`Read`] and [`Seek`]. See [`Keyspace::value_reader`](crate::Keyspace::value_reader).
///
/// `Send`; used by one thread at a time. It keeps the database open.
pub struct ValueReader {
    // Keeps the file open.
    inner: Arc<Inner>,
    source: Source,
    at: u64,
}

enum Source {
    Memory(Value),
    /// So many bytes of the extent lie before the value.
    Extent(Box<ExtentReader>, u64),
}

impl fmt::Debug for ValueReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueReader").field("len_bytes", &self.len_bytes()).finish_non_exhaustive()
    }
}

impl ValueReader {
    /// Of what was found; a value in an extent begins behind `before` bytes of it.
    pub(super) fn new(inner: Arc<Inner>, found: Found, before: u64) -> ValueReader {
        let source = match found {
            Found::Extent(reader) => Source::Extent(reader, before),
            Found::Short(value) | Found::Held { value, .. } => Source::Memory(value),
        };
        ValueReader { inner, source, at: 0 }
    }

    /// The bytes of a range, without those beyond the end.
    pub(super) fn read_range(&mut self, range: impl RangeBounds<u64>) -> Result<Vec<u8>> {
        let len = self.len_bytes();
        let start = match range.start_bound() {
            Bound::Included(&at) => at,
            Bound::Excluded(&at) => at.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&at) => at.saturating_add(1),
            Bound::Excluded(&at) => at,
            Bound::Unbounded => len,
        };
        let mut bytes = memory_for(end.min(len).saturating_sub(start))?;
        self.read_at(start, &mut bytes)?;
        Ok(bytes)
    }

    /// Length of the value in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        match &self.source {
            Source::Memory(value) => value.len() as u64,
            Source::Extent(reader, before) => reader.len_bytes() - before,
        }
    }

    /// Copies the bytes from `offset` on to `to`, and returns their number. It is less than the length of `to` only at the end of the
    /// value. The position of [`Read`] does not change. Of a large value it reads whole chunks of 32 KiB from the disk.
    ///
    /// # Errors
    /// [`Closed`](crate::ErrorKind::Closed); [`ForkedProcess`](crate::ErrorKind::ForkedProcess); [`Io`](crate::ErrorKind::Io); [`Corrupted`](crate::ErrorKind::Corrupted) if the bytes are not what was
    /// written; [`MemoryLimit`](crate::ErrorKind::MemoryLimit) if others use all memory that the limit has for large values; the ends of a [`Wait`](crate::Wait).
    pub fn read_at(&mut self, offset: u64, to: &mut [u8]) -> Result<usize> {
        self.inner.check_open()?;
        match &mut self.source {
            Source::Extent(reader, before) => reader.read_at(offset.saturating_add(*before), to),
            Source::Memory(value) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(value.len());
                let count = to.len().min(value.len() - from);
                to[..count].copy_from_slice(&value[from..from + count]);
                Ok(count)
            }
        }
    }
}

impl Drop for ValueReader {
    /// In a forked process it leaves alone what it shares with others, whose locks may be held for ever.
    fn drop(&mut self) {
        if self.inner.check_process().is_err() {
            std::mem::forget(std::mem::replace(
                &mut self.source,
                Source::Memory(Value::from(&[][..])),
            ));
        }
    }
}

/// The [`Error`](crate::Error) is inside of that of `std::io`: `into_inner` and `downcast` get it out.
impl Read for ValueReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(self.at, to)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// A place behind the end is no error: there is nothing to read there.
impl Seek for ValueReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.len_bytes().checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
