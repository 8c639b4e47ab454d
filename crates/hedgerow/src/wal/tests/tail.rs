//! The end of a log, when what is there has right checksums and is not what a log ends with.

use super::super::block::{self, BlockBytes, BlockHeader, HEADER_BYTES};
use super::*;

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
