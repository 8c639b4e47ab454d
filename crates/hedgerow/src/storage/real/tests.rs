//! A file system that takes `O_DIRECT` at first and refuses it later.

use super::*;

#[test]
fn a_file_that_refuses_a_direct_call_goes_through_the_page_cache_from_then_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f");
    let disk = RealDisk::new(IoEngine::Auto).unwrap();
    let file =
        disk.open_file(&path, OpenMode::CreateNew, DirectIo::WherePossible, Links::Follow).unwrap();
    let mut data = AlignedBuffer::zeroed(8192).unwrap();
    data.fill(7);
    file.write_at(0, &data).unwrap();
    if file.block_bytes() == 1 {
        let why = "the temporary directory takes no direct I/O";
        return crate::testing::not_run("direct I/O", why);
    }
    // What is not aligned is refused as a file system refuses that knows no direct I/O at all.
    let mut back = [0; 100];
    assert_eq!(file.pread(&mut back, 1), Ok(100));
    assert_eq!(back, [7; 100]);
    assert_eq!(file.block_bytes(), 1);
    file.write_at(8191, &[1, 2, 3]).unwrap();
    file.read_at(8190, &mut back[..4]).unwrap();
    assert_eq!(back[..4], [7, 1, 2, 3]);
    let batch = [(1, &data[1..99]), (500, &data[9..30])];
    let batch = batch.map(|(offset_bytes, buf)| WriteRequest { offset_bytes, buf });
    file.write_batch(&batch).unwrap();
}
