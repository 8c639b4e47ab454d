//! Taking slots, and getting what the allocator wants first: a longer file, blocks for a zone, a part of the zone table.
//!
//! What the disk is asked for is all there or not at all: a file system that runs out of room halfway keeps what it got, and
//! then nothing would be left for anybody else, the log above all. So a failed attempt gives it back ([`reserve`]).
//! What is asked for beyond what is needed is at most a part of what the file system has free, and none of
//! it where that is refused. `Send + Sync`; one thread at a time makes the file longer.

use super::slot_store::SlotStore;
use super::zone::{Fill, Growth, Want};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{given_back, reserve};
use hedgerow_sync::primitive::thread;
use std::time::Duration;

/// How long a truncation is waited for before looking again.
const TRUNCATION_WAIT: Duration = Duration::from_millis(1);

/// Part of what the file system has free that is taken ahead at most.
pub(super) const FREE_PART: u64 = 8;

impl SlotStore {
    /// Takes a slot for an image of each of these lengths: index and offset of each, in the order in which they are best
    /// written. Extends the file, and reads bitmaps, as needed.
    ///
    /// Errors: as of [`Self::allocate`].
    pub fn allocate_images(&self, lens_bytes: &[u32]) -> Result<Vec<(usize, u64)>> {
        let mut places = Vec::with_capacity(lens_bytes.len());
        let (mut growth, mut refusal) = (Growth::Allowed, None);
        loop {
            let want = self.state().zones.allocate_images(lens_bytes, growth, &mut places);
            match want {
                Ok(()) => return Ok(places),
                Err(want) => self.provide(want, &mut growth, &mut refusal)?,
            }
        }
    }

    /// Takes `count` slots of `len_bytes`; extends the file, and reads bitmaps, as needed.
    ///
    /// Errors: `DiskFull`; `Io`; `Corrupted` if a part of the zone table is damaged. Nothing is taken then.
    pub fn allocate(&self, count: usize, len_bytes: u64) -> Result<Vec<u64>> {
        let mut offsets = Vec::with_capacity(count);
        let mut growth = Growth::Allowed;
        let mut refusal = None;
        let len = u32::try_from(len_bytes).expect("a slot is shorter than 4 GiB");
        loop {
            let want = self.state().zones.allocate(len, count, growth, &mut offsets);
            match want {
                Ok(()) => return Ok(offsets),
                Err(want) => self.provide(want, &mut growth, &mut refusal)?,
            }
        }
    }

    /// Does what the allocator wants first.
    ///
    /// Errors: `DiskFull` if there is nothing left to do; `Io`; `Corrupted`.
    pub(super) fn provide(
        &self,
        want: Want,
        growth: &mut Growth,
        refusal: &mut Option<Error>,
    ) -> Result<()> {
        let tried = match want {
            Want::Grow { units, least_units } => self.grow(units, least_units),
            Want::Fill(fill) => match self.fill(fill) {
                // It was a hole, as is known now; another one may not be.
                Err(error) if error.kind() == ErrorKind::DiskFull && !fill.is_hole => {
                    *refusal = Some(error);
                    return Ok(());
                }
                other => other,
            },
            Want::Load(group) => return self.load_group(group),
            Want::Truncating => {
                thread::sleep(TRUNCATION_WAIT);
                return Ok(());
            }
            Want::Full => {
                return Err(refusal.take().unwrap_or_else(|| {
                    Error::new(ErrorKind::DiskFull, "the file cannot grow any more")
                }));
            }
        };
        match tried {
            Err(error) if error.kind() == ErrorKind::DiskFull => {
                *refusal = Some(error);
                *growth = match growth {
                    Growth::Allowed => Growth::Least,
                    _ => Growth::Refused,
                };
                Ok(())
            }
            other => other,
        }
    }

    /// Makes the file `units` units long, or shorter where the disk has little room, but at least `least_units`.
    fn grow(&self, units: u64, least_units: u64) -> Result<()> {
        let _extending = self.extending.lock();
        let (from, geometry) = {
            let state = self.state();
            (state.zones.unit_count(), state.zones.geometry())
        };
        let (mut units, mut grown) = (units, Ok(()));
        // Another thread may have come first, and there may be room for both.
        if from < least_units {
            grown = self.units_to_ask_for(units, least_units).and_then(|most| {
                units = most;
                // A new file gets the blocks of its superblocks as well: their writes must find room.
                let is_new = self.file().len_bytes()? == 0;
                let begin = if is_new { 0 } else { geometry.unit_offset(from) };
                reserve(&**self.file(), begin, geometry.unit_offset(units) - begin)
            });
        } else {
            units = from;
        }
        // Still with the lock: who comes next looks how long the file is.
        let mut state = self.state();
        match grown {
            Ok(()) => state.zones.grown(units),
            Err(_) => state.zones.growth_failed(),
        }
        grown
    }

    /// Cuts the free end of the file off; see [`Zones::begin_truncate`](super::zones::Zones::begin_truncate) for what stays.
    ///
    /// Errors: `Io`; `DiskFull` on file systems that need room to give some back.
    pub fn cut_free_end(&self, keep_slots: u64, keep_in_zone: u64, least_units: u32) -> Result<()> {
        let cut = self.state().zones.begin_truncate(keep_slots, keep_in_zone, least_units);
        let Some(cut) = cut else { return Ok(()) };
        let done = self.file().set_len(cut.file_bytes);
        self.state().zones.end_truncate(done.is_ok());
        done
    }

    /// What is beyond the least is a share of what the file system has free.
    fn units_to_ask_for(&self, units: u64, least_units: u64) -> Result<u64> {
        let Some(free_bytes) = self.file().free_bytes()? else { return Ok(units) };
        let unit_bytes = u64::from(self.state().zones.geometry().unit_bytes());
        let most = least_units + free_bytes / FREE_PART / unit_bytes;
        if units <= most {
            Ok(units)
        } else {
            Ok(self.state().zones.whole_pages(most).max(least_units))
        }
    }

    /// Gets blocks for a zone that is out, and puts it back.
    fn fill(&self, fill: Fill) -> Result<()> {
        let (offset, len) = (fill.offset_bytes, fill.len_bytes);
        let filled = if fill.is_free {
            reserve(&**self.file(), offset, len)
        } else {
            let filled = self.file().allocate(offset, len);
            filled.or_else(|error| {
                let gaps = self.state().zones.gaps(fill.zone);
                let mut punched = gaps.into_iter().map(|(at, len)| self.file().punch_hole(at, len));
                given_back(error, || punched.try_for_each(|punched| punched.map(drop)))
            })
        };
        self.state().zones.filled(fill.zone, filled.is_ok());
        filled
    }
}
