//! A file that knows what was written, what of it was synced, and where nothing may be written.
//!
//! A sync gives way once, for it takes its time: what is written meanwhile is not synced. All else is no step of a model:
//! its lock is the standard library's.

use hedgerow::internals::error::{Error, ErrorKind, Result};
use hedgerow::internals::storage::{File, LockOutcome, ReadRequest, WriteRequest};
use loom::thread;
use std::path::Path;
use std::sync::Mutex;

/// See the head of the file.
#[derive(Default, Debug)]
pub struct Paper(Mutex<Sheets>);

#[derive(Default, Debug)]
struct Sheets {
    written: Vec<u8>,
    synced: Vec<u8>,
    /// Syncs that have begun, and which of them has left `synced`.
    syncs: u64,
    synced_by: u64,
    /// Syncs fail; and one has.
    fails: bool,
    failed: bool,
    sealed: bool,
    /// Where nothing may be written.
    kept: Vec<u64>,
    most_bytes: Option<u64>,
}

impl Paper {
    /// From now on a write is a mistake.
    pub fn seal(&self) {
        self.0.lock().unwrap().sealed = true;
    }

    /// The next sync fails. From then on a write is a mistake, and another sync as well.
    pub fn fail_next_sync(&self) {
        self.0.lock().unwrap().fails = true;
    }

    /// From now on a write to one of these offsets, and no other, is a mistake.
    pub fn keep(&self, offsets: Vec<u64>) {
        self.0.lock().unwrap().kept = offsets;
    }

    /// Is full when it has so many bytes.
    pub fn limit(&self, most_bytes: u64) {
        self.0.lock().unwrap().most_bytes = Some(most_bytes);
    }

    /// Whether these bytes were synced.
    pub fn has_synced(&self, bytes: &[u8]) -> bool {
        self.0.lock().unwrap().synced.windows(bytes.len()).any(|window| window == bytes)
    }

    /// What was written there.
    pub fn read(&self, offset_bytes: u64, len: usize) -> Vec<u8> {
        self.0.lock().unwrap().written[offset_bytes as usize..][..len].to_vec()
    }
}

impl File for Paper {
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> {
        buf.copy_from_slice(&self.read(offset_bytes, buf.len()));
        Ok(())
    }

    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<()> {
        let mut sheets = self.0.lock().unwrap();
        assert!(!sheets.sealed, "written after the end");
        assert!(!sheets.failed, "written after a sync has failed");
        assert!(!sheets.kept.contains(&offset_bytes), "written where a checkpoint lies");
        let written = &mut sheets.written;
        let end = offset_bytes as usize + buf.len();
        let len = written.len().max(end);
        written.resize(len, 0);
        written[offset_bytes as usize..end].copy_from_slice(buf);
        Ok(())
    }

    fn read_batch(&self, _: &mut [ReadRequest<'_>]) {
        unreachable!("a log that is written is not read")
    }

    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<()> {
        requests.iter().try_for_each(|request| self.write_at(request.offset_bytes, request.buf))
    }

    fn len_bytes(&self) -> Result<u64> {
        Ok(self.0.lock().unwrap().written.len() as u64)
    }

    fn set_len(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        let mut sheets = self.0.lock().unwrap();
        let end = offset_bytes + len_bytes;
        if sheets.most_bytes.is_some_and(|most| end > most) {
            return Err(Error::new(ErrorKind::DiskFull, "no more paper"));
        }
        let len = sheets.written.len().max(end as usize);
        sheets.written.resize(len, 0);
        Ok(())
    }

    fn punch_hole(&self, _: u64, _: u64) -> Result<bool> {
        Ok(false)
    }

    fn sync_data(&self) -> Result<()> {
        let (number, written) = {
            let mut sheets = self.0.lock().unwrap();
            assert!(!sheets.failed, "synced after a sync has failed");
            sheets.syncs += 1;
            (sheets.syncs, sheets.written.clone())
        };
        // Takes its time: the others go on meanwhile.
        thread::yield_now();
        let mut sheets = self.0.lock().unwrap();
        if sheets.fails {
            sheets.failed = true;
            return Err(Error::new(ErrorKind::Io, "the ink has run out"));
        }
        // One that began later may have ended before.
        if sheets.synced_by < number {
            sheets.synced_by = number;
            sheets.synced = written;
        }
        Ok(())
    }

    fn sync_all(&self) -> Result<()> {
        self.sync_data()
    }

    fn allocated_bytes(&self) -> Result<u64> {
        self.len_bytes()
    }

    fn block_bytes(&self) -> usize {
        1
    }

    fn try_lock(&self, _: bool) -> Result<LockOutcome> {
        Ok(LockOutcome::Held)
    }

    fn is_at(&self, _: &Path) -> Result<bool> {
        Ok(true)
    }

    fn unlock(&self) -> Result<()> {
        Ok(())
    }

    fn read_unaligned(&self, _: u64, _: &mut [u8]) -> Result<()> {
        unreachable!("a log that is written is not read")
    }
}
