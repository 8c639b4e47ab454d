//! The end of a log, when what is there has right checksums and is not what a log ends with.

use super::super::block::{self, BlockBytes, BlockHeader, HEADER_BYTES};
use super::*;
use crate::storage::{LockOutcome, ReadRequest, WriteRequest};
use hedgerow_sync::primitive::atomic::{AtomicUsize, Ordering::Relaxed};

/// Three records, each in a block of its own, none of them vouched for by the superblock.
fn three_records() -> SimDisk {
    let disk = SimDisk::new(20);
    let log = begin(&disk, false);
    for n in 0..3 {
        put(&log, n, 500).unwrap();
        log.flush().unwrap();
    }
    disk
}

fn block_offset_bytes(index: u64) -> u64 {
    SEGMENT.block_offset_bytes(1, SEGMENT.first_block(header().first_segment + 1) + index)
        - SEGMENT.file_bytes()
}

fn cached(disk: &SimDisk) -> Arc<dyn File> {
    disk.open(Path::new("log"), OpenMode::ReadWrite, DirectIo::Never).unwrap()
}

#[test]
fn a_record_that_ends_in_the_middle_of_the_log_is_damage_and_not_the_end() {
    for cut_off in [1, 499, 513] {
        let disk = three_records();
        assert_eq!(read(&disk, &from()).unwrap(), [0, 1, 2]);
        let file = cached(&disk);
        let number = SEGMENT.first_block(header().first_segment) + 1;
        let at = block_offset_bytes(1);
        let mut block: BlockBytes = [0; BLOCK_BYTES];
        file.read_unaligned(at, &mut block).unwrap();
        let found = block::open(&block, &header().identity, number).unwrap();
        let used = found.used - cut_off;
        block[HEADER_BYTES + usize::from(used)..].fill(0);
        block::seal(&mut block, &header().identity, &BlockHeader { used, ..found });
        file.write_at(at, &block).unwrap();
        let error = read(&disk, &from()).unwrap_err();
        let kind = ErrorKind::Corrupted { page: None, offset_bytes: Some(at) };
        assert_eq!(error.kind(), kind, "{cut_off} bytes fewer: {error}");
        assert!(error.to_string().contains("ends in the middle"), "{error}");
    }
}

#[test]
fn an_end_that_is_gone_when_it_is_to_be_written_again_is_an_error_and_no_shorter_log() {
    let disk = three_records();
    let file = cached(&disk);
    assert_eq!(file.block_bytes(), 1);
    let end = scan(&*file, &header(), &from(), &mut |_, _| Ok(())).unwrap();
    assert_eq!(end.records, 3);
    let writes = disk.calls(CallKind::Write);
    write_tail_again(&*file, &header(), &end).unwrap();
    let again = end.next_block - block::block_of(end.vouched);
    assert!(again > 0);
    assert_eq!(disk.calls(CallKind::Write) - writes, again);
    assert_eq!(read(&disk, &from()).unwrap(), [0, 1, 2]);
    file.write_at(block_offset_bytes(2), &[0; BLOCK_BYTES]).unwrap();
    let error = write_tail_again(&*file, &header(), &end).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corrupted { .. }), "{error}");
    assert!(error.to_string().contains("end of the log is missing"), "{error}");
}

#[test]
fn a_first_block_that_is_all_there_is_says_whose_log_it_was() {
    let disk = SimDisk::new(1);
    let file = disk.open(Path::new("log"), OpenMode::CreateNew, DirectIo::Never).unwrap();
    file.write_at(0, &*header().encode()).unwrap();
    assert_eq!(read_header(&*file).unwrap(), header());
    file.set_len(BLOCK_BYTES as u64 - 1).unwrap();
    assert!(read_header(&*file).is_err());
}

/// Counts the calls that read, however much.
#[derive(Debug)]
struct Counting {
    file: Arc<dyn File>,
    calls: AtomicUsize,
}

#[rustfmt::skip]
impl File for Counting {
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> {
        self.calls.fetch_add(1, Relaxed);
        self.file.read_at(offset_bytes, buf)
    }
    fn read_unaligned(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> {
        self.calls.fetch_add(1, Relaxed);
        self.file.read_unaligned(offset_bytes, buf)
    }
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        self.calls.fetch_add(1, Relaxed);
        self.file.read_batch(requests);
    }
    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<()> { self.file.write_at(offset_bytes, buf) }
    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<()> { self.file.write_batch(requests) }
    fn len_bytes(&self) -> Result<u64> { self.file.len_bytes() }
    fn set_len(&self, len_bytes: u64) -> Result<()> { self.file.set_len(len_bytes) }
    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> { self.file.allocate(offset_bytes, len_bytes) }
    fn punch_hole(&self, offset_bytes: u64, len_bytes: u64) -> Result<bool> { self.file.punch_hole(offset_bytes, len_bytes) }
    fn sync_data(&self) -> Result<()> { self.file.sync_data() }
    fn sync_all(&self) -> Result<()> { self.file.sync_all() }
    #[cfg(hedgerow_internals)]
    fn allocated_bytes(&self) -> Result<u64> { self.file.allocated_bytes() }
    fn block_bytes(&self) -> usize { self.file.block_bytes() }
    fn try_lock(&self, exclusive: bool) -> Result<LockOutcome> { self.file.try_lock(exclusive) }
    fn is_at(&self, path: &Path) -> Result<bool> { self.file.is_at(path) }
    fn unlock(&self) -> Result<()> { self.file.unlock() }
}

/// Each was read by itself, one after the other, at each look at the log.
#[test]
fn names_of_segments_are_read_many_at_a_time() {
    const SEGMENTS: u64 = 300;
    let disk = SimDisk::new(21);
    let log = begin(&disk, false);
    let mut end = start();
    let mut records = 0;
    while log.file_bytes() < SEGMENTS * SEGMENT.file_bytes() {
        end = put(&log, records, 3000).unwrap();
        records += 1;
    }
    log.flush().unwrap();
    let file = Counting { file: cached(&disk), calls: AtomicUsize::new(0) };
    // Nothing is to be read of the records.
    let from = ScanFrom { replay_start: end, log_end: end, ..from() };
    let scanned = scan(&file, &header(), &from, &mut |_, _| Ok(())).unwrap();
    assert!(scanned.records == 0 && scanned.end >= end, "{scanned:?}");
    let calls = file.calls.into_inner();
    assert!(calls < 30, "{calls} calls");
    assert_eq!(read(&disk, &super::from()).unwrap().len() as u64, records);
}
