//! Where in the log's file each segment lies, and where the next ones will.
//!
//! Rank 2. A segment is *prepared* before any of its addresses is promised to a writer: its place in the
//! file is written with zeros (once; a file that grows or that fills a hole costs a flush of the file
//! system's own journal with each commit), and the block that names it is written. Places whose segment a
//! checkpoint has made superfluous are prepared again under the next number.
//!
//! Plain data and the calls that write; whoever drives it holds a lock. Segments are contiguous by number.

use super::block::{BLOCK_BYTES, LogIdentity, SegmentSize, name_segment};
use crate::error::{ErrorKind, Result};
use crate::storage::{AlignedBuffer, File, WriteRequest, reserve};
use std::collections::{BTreeSet, VecDeque};

/// See the head of the file.
pub struct Places {
    size: SegmentSize,
    /// The number of the first segment in `live`.
    first: u64,
    /// Places of the segments from `first` on.
    live: VecDeque<u32>,
    /// Places that may be used again, the lowest first, so that the file can become shorter.
    free: BTreeSet<u32>,
    /// Places that the file has no room for, below its end.
    holes: BTreeSet<u32>,
    /// Places up to the file's end.
    places: u32,
    /// Segments that the last two checkpoints made superfluous.
    recent: [usize; 2],
    name: AlignedBuffer,
}

/// Places that a log has at least: while one is needed the other is used.
const KEPT_PLACES: usize = 2;
/// Bytes written with one call when a place is made.
const WRITE_BYTES: usize = 64 << 10;

/// Not asked for when a place is made: that there is no memory would end the log, with which nothing is wrong.
#[repr(align(4096))]
struct Zeros([u8; WRITE_BYTES]);
static ZEROS: Zeros = Zeros([0; WRITE_BYTES]);

impl Places {
    /// No segment yet; the next is `first`.
    ///
    /// Errors: `MemoryLimit`.
    pub fn new(size: SegmentSize, first: u64) -> Result<Places> {
        Ok(Places {
            size,
            first,
            live: VecDeque::new(),
            free: BTreeSet::new(),
            holes: BTreeSet::new(),
            places: 0,
            recent: [0; 2],
            name: AlignedBuffer::zeroed(BLOCK_BYTES)?,
        })
    }

    /// The number of the first segment that is not prepared.
    pub fn end(&self) -> u64 {
        self.first + self.live.len() as u64
    }

    /// The number of the first segment that is kept.
    #[cfg(hedgerow_internals)]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Segments that are kept.
    #[cfg(hedgerow_internals)]
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.size.place_offset_bytes(self.places)
    }

    /// Where a block of a prepared segment lies in the file.
    pub fn offset_bytes(&self, block: u64) -> u64 {
        self.size.block_offset_bytes(self.place(self.size.segment_of(block)), block)
    }

    /// The place of a segment that is prepared and kept.
    pub fn place(&self, segment: u64) -> u32 {
        let index = segment.checked_sub(self.first).expect("a segment is kept while it is written");
        *self.live.get(index as usize).expect("a segment is prepared before it is written")
    }

    /// Prepares the next segment. After an error nothing has changed that matters.
    ///
    /// Errors: `DiskFull`, `Io`.
    pub fn prepare(&mut self, file: &dyn File, identity: &LogIdentity) -> Result<()> {
        let segment = self.end();
        let place = match self.free.first() {
            Some(&place) => place,
            None => {
                let place = self.holes.first().copied().unwrap_or(self.places);
                self.write_zeros(file, place)?;
                if !self.holes.remove(&place) {
                    self.places += 1;
                }
                self.free.insert(place);
                place
            }
        };
        self.name.copy_from_slice(&*name_segment(identity, segment));
        file.write_at(self.size.place_offset_bytes(place), &self.name)?;
        self.free.remove(&place);
        self.live.push_back(place);
        Ok(())
    }

    /// Prepares the next segment in the lowest place that is not in use, though it may have no room in the file yet.
    ///
    /// Errors: `DiskFull`, `Io`.
    pub fn prepare_low(&mut self, file: &dyn File, identity: &LogIdentity) -> Result<()> {
        let hole = self.holes.first().copied();
        if let Some(place) = hole.filter(|hole| self.free.first().is_none_or(|free| hole < free)) {
            match self.write_zeros(file, place) {
                Ok(()) => {
                    self.holes.remove(&place);
                    self.free.insert(place);
                }
                // Then in the lowest that has some.
                Err(error) if error.kind() == ErrorKind::DiskFull => {}
                Err(error) => return Err(error),
            }
        }
        self.prepare(file, identity)
    }

    fn write_zeros(&self, file: &dyn File, place: u32) -> Result<()> {
        let begin = self.size.place_offset_bytes(place);
        let len = self.size.file_bytes() as usize;
        // Whoever runs out of room is told now, not halfway.
        reserve(file, begin, len as u64)?;
        let writes: Vec<WriteRequest<'_>> = (0..len)
            .step_by(WRITE_BYTES)
            .map(|at| WriteRequest {
                offset_bytes: begin + at as u64,
                buf: &ZEROS.0[..(len - at).min(WRITE_BYTES)],
            })
            .collect();
        file.write_batch(&writes)
    }

    /// Forgets the segments below `segment`: their places may be used again.
    pub fn forget_below(&mut self, segment: u64) {
        let before = self.free.len();
        while self.first < segment
            && let Some(place) = self.live.pop_front()
        {
            self.free.insert(place);
            self.first += 1;
        }
        self.recent = [self.free.len() - before, self.recent[0]];
    }

    /// Whether the file could have fewer places than it has.
    pub fn can_be_fewer(&self) -> bool {
        self.places as usize > KEPT_PLACES
    }

    /// Whether a segment that is kept lies behind the first places.
    pub fn is_behind_first(&self, segment: u64) -> bool {
        let index = segment.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        let place = index.and_then(|index| self.live.get(index));
        place.is_some_and(|&place| place as usize >= KEPT_PLACES)
    }

    /// Gives up the segments behind `segment`, which nothing was written to: their places lose their names, durably, and
    /// may be used again. After an error their names may be lost, so nothing may be written to them.
    ///
    /// Errors: `Io`; `DiskFull`.
    pub fn give_up_beyond(&mut self, file: &dyn File, segment: u64) -> Result<()> {
        let kept = segment.saturating_add(1).saturating_sub(self.first) as usize;
        if kept >= self.live.len() {
            return Ok(());
        }
        self.name.fill(0);
        for &place in self.live.iter().skip(kept) {
            file.write_at(self.size.place_offset_bytes(place), &self.name)?;
        }
        file.sync_data()?;
        self.free.extend(self.live.drain(kept..));
        Ok(())
    }

    /// Gives the room of one place back that is not likely to be used soon; `idle`: none is. Two are kept in any case, one of them free.
    /// False: there is no such place.
    ///
    /// Errors: `Io`.
    pub fn trim(&mut self, file: &dyn File, idle: bool) -> Result<bool> {
        let keep = if idle { 0 } else { self.recent[0].max(self.recent[1]) };
        // One that is ready, whatever the disk says later.
        let ready = if idle { KEPT_PLACES.saturating_sub(self.live.len()) } else { 1 };
        let least = KEPT_PLACES.saturating_sub(self.live.len()).max(ready);
        let goes = self.free.last().filter(|_| self.free.len() > keep.max(least));
        let Some(&last) = goes else { return Ok(false) };
        if last + 1 == self.places {
            // All that goes at the end goes at once. Two places stay, so this ends before the first.
            let (mut end, mut left) = (last, self.free.len() - 1);
            loop {
                let is_free = self.free.contains(&(end - 1)) && left > keep.max(least);
                if !is_free && !self.holes.contains(&(end - 1)) {
                    break;
                }
                left -= usize::from(is_free);
                end -= 1;
            }
            file.set_len(self.size.place_offset_bytes(end))?;
            self.holes.split_off(&end);
            self.free.split_off(&end);
            self.places = end;
        } else {
            let offset_bytes = self.size.place_offset_bytes(last);
            if !file.punch_hole(offset_bytes, self.size.file_bytes())? {
                return Ok(false);
            }
            self.holes.insert(last);
            self.free.remove(&last);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::named_segment;
    use super::*;
    use crate::storage::{DirectIo, Disk, LockOutcome, OpenMode, ReadRequest};
    use crate::testing::RamDisk;
    use hedgerow_sync::primitive::Arc;
    use std::path::Path;

    const LOG: LogIdentity = LogIdentity { store_id: [1; 16], incarnation: 1 };

    fn file() -> Arc<dyn File> {
        RamDisk::new().open(Path::new("log"), OpenMode::CreateNew, DirectIo::Never).unwrap()
    }

    #[test]
    fn places_are_used_again_and_the_file_stays_small() {
        let (file, size) = (file(), SegmentSize { blocks: 3 });
        let mut places = Places::new(size, 10).unwrap();
        for segment in 10..40_u64 {
            places.prepare(&*file, &LOG).unwrap();
            assert_eq!(places.end(), segment + 1);
            let at = places.offset_bytes(size.first_block(segment));
            let mut name = [0; BLOCK_BYTES];
            file.read_unaligned(at - BLOCK_BYTES as u64, &mut name).unwrap();
            assert_eq!(named_segment(&name, &LOG, SegmentSize { blocks: 3 }), Some(segment));
            places.forget_below(segment);
            assert_eq!((places.first(), places.live()), (segment, 1));
        }
        assert_eq!(places.file_bytes(), size.place_offset_bytes(2));
        assert_eq!(file.len_bytes().unwrap(), places.file_bytes());
    }

    #[test]
    fn of_the_places_behind_the_one_in_use_one_stays() {
        let (file, size) = (file(), SegmentSize { blocks: 3 });
        let mut places = Places::new(size, 0).unwrap();
        for _ in 0..5 {
            places.prepare(&*file, &LOG).unwrap();
        }
        places.forget_below(4);
        // The first place is used again, and all that are free lie behind it.
        places.prepare(&*file, &LOG).unwrap();
        places.forget_below(5);
        assert!(places.trim(&*file, true).unwrap());
        assert_eq!(places.file_bytes(), size.place_offset_bytes(2));
        assert_eq!(file.len_bytes().unwrap(), places.file_bytes());
        assert!(!places.trim(&*file, true).unwrap());
    }

    #[test]
    fn room_that_is_not_used_goes_back_and_is_made_again() {
        let (file, size) = (file(), SegmentSize { blocks: 3 });
        let mut places = Places::new(size, 0).unwrap();
        let trim = |places: &mut Places, idle| {
            while places.trim(&*file, idle).unwrap() {}
            assert_eq!(file.len_bytes().unwrap(), places.file_bytes());
            (places.file_bytes() - size.place_offset_bytes(0)) / size.file_bytes()
        };
        for _ in 0..20 {
            places.prepare(&*file, &LOG).unwrap();
        }
        // What a checkpoint made superfluous will be used again before the next one.
        places.forget_below(19);
        assert_eq!(trim(&mut places, false), 20);
        places.prepare(&*file, &LOG).unwrap();
        places.forget_below(20);
        assert_eq!(trim(&mut places, false), 20);
        places.prepare(&*file, &LOG).unwrap();
        places.forget_below(21);
        assert_eq!((places.live(), trim(&mut places, false)), (1, 2));
        for _ in 0..10 {
            places.prepare(&*file, &LOG).unwrap();
        }
        // The last one is in use: those below it become holes, and are filled again.
        places.forget_below(31);
        assert_eq!(trim(&mut places, true), 11);
        let end = places.end();
        for segment in end..end + 10 {
            places.prepare(&*file, &LOG).unwrap();
            let at = places.offset_bytes(size.first_block(segment));
            let mut name = [0; BLOCK_BYTES];
            file.read_unaligned(at - BLOCK_BYTES as u64, &mut name).unwrap();
            assert_eq!(named_segment(&name, &LOG, SegmentSize { blocks: 3 }), Some(segment));
        }
        assert_eq!(trim(&mut places, true), 11);
        assert_eq!(places.live(), 11);
    }

    #[test]
    fn holes_before_the_last_place_go_with_it_at_once() {
        let (file, size) = (file(), SegmentSize { blocks: 3 });
        let mut places = Places::new(size, 0).unwrap();
        for _ in 0..6 {
            places.prepare(&*file, &LOG).unwrap();
        }
        places.forget_below(5);
        while places.trim(&*file, true).unwrap() {}
        assert_eq!(places.file_bytes(), size.place_offset_bytes(6), "the last one is in use");
        for _ in 0..2 {
            places.prepare(&*file, &LOG).unwrap();
        }
        // In use is the second place, free are the first and the last, and between them there are holes.
        places.forget_below(7);
        assert!(places.trim(&*file, true).unwrap());
        assert_eq!(places.file_bytes(), size.place_offset_bytes(2));
        assert_eq!(file.len_bytes().unwrap(), places.file_bytes());
    }

    #[test]
    fn segments_that_were_never_prepared_are_not_forgotten() {
        let (file, size) = (file(), SegmentSize { blocks: 3 });
        let mut places = Places::new(size, 10).unwrap();
        for _ in 0..2 {
            places.prepare(&*file, &LOG).unwrap();
        }
        places.forget_below(50);
        assert_eq!((places.first(), places.end(), places.live()), (12, 12, 0));
        places.prepare(&*file, &LOG).unwrap();
        assert_eq!((places.first(), places.end()), (12, 13));
        assert_eq!(places.file_bytes(), size.place_offset_bytes(2));
        let name = places.offset_bytes(size.first_block(12)) - BLOCK_BYTES as u64;
        let mut block = [0; BLOCK_BYTES];
        file.read_unaligned(name, &mut block).unwrap();
        assert_eq!(named_segment(&block, &LOG, SegmentSize { blocks: 3 }), Some(12));
    }

    /// A file of a file system that knows no holes.
    #[derive(Debug)]
    struct WithoutHoles(Arc<dyn File>);

    impl File for WithoutHoles {
        fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> {
            self.0.read_at(offset_bytes, buf)
        }

        fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<()> {
            self.0.write_at(offset_bytes, buf)
        }

        fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
            self.0.read_batch(requests);
        }

        fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<()> {
            self.0.write_batch(requests)
        }

        fn len_bytes(&self) -> Result<u64> {
            self.0.len_bytes()
        }

        fn set_len(&self, len_bytes: u64) -> Result<()> {
            self.0.set_len(len_bytes)
        }

        fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
            self.0.allocate(offset_bytes, len_bytes)
        }

        fn punch_hole(&self, _: u64, _: u64) -> Result<bool> {
            Ok(false)
        }

        fn sync_data(&self) -> Result<()> {
            self.0.sync_data()
        }

        fn sync_all(&self) -> Result<()> {
            self.0.sync_all()
        }

        fn allocated_bytes(&self) -> Result<u64> {
            self.0.allocated_bytes()
        }

        fn block_bytes(&self) -> usize {
            self.0.block_bytes()
        }

        fn try_lock(&self, exclusive: bool) -> Result<LockOutcome> {
            self.0.try_lock(exclusive)
        }

        fn is_at(&self, path: &Path) -> Result<bool> {
            self.0.is_at(path)
        }

        fn unlock(&self) -> Result<()> {
            self.0.unlock()
        }

        fn read_unaligned(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> {
            self.0.read_unaligned(offset_bytes, buf)
        }
    }

    #[test]
    fn places_below_one_in_use_stay_free_where_the_file_system_knows_no_holes() {
        let disk = RamDisk::new();
        let file = disk.open(Path::new("log"), OpenMode::CreateNew, DirectIo::Never).unwrap();
        let file = WithoutHoles(file);
        let size = SegmentSize { blocks: 3 };
        let mut places = Places::new(size, 0).unwrap();
        for _ in 0..10 {
            places.prepare(&file, &LOG).unwrap();
        }
        places.forget_below(9);
        for _ in 0..2 {
            assert!(!places.trim(&file, true).unwrap(), "else whoever trims tries for ever");
        }
        let len = file.len_bytes().unwrap();
        assert_eq!((len, places.file_bytes()), (size.place_offset_bytes(10), len));
        for _ in 0..9 {
            places.prepare(&file, &LOG).unwrap();
        }
        assert_eq!((places.live(), file.len_bytes().unwrap()), (10, len));
        // One behind all in use goes as anywhere.
        places.prepare(&file, &LOG).unwrap();
        places.forget_below(19);
        assert!(!places.trim(&file, true).unwrap());
        for _ in 0..2 {
            places.prepare(&file, &LOG).unwrap();
        }
        places.forget_below(21);
        assert!(places.trim(&file, true).unwrap());
        assert!(file.len_bytes().unwrap() < len);
    }
}
