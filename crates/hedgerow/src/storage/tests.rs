//! One suite for every implementation of [`Disk`]; `real` has what only real files can show.

#[cfg(unix)]
mod real;

use super::*;
use crate::testing::{RamDisk, SimDisk};
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::thread;
use std::path::PathBuf;

/// A disk, and a directory on it that is gone when the test ends.
struct Place {
    disk: Box<dyn Disk>,
    directory: PathBuf,
    direct: DirectIo,
    _guard: Option<tempfile::TempDir>,
}

impl Place {
    fn new(disk: impl Disk + 'static, direct: DirectIo) -> Place {
        Place { disk: Box::new(disk), directory: "dir".into(), direct, _guard: None }
    }

    #[cfg(any(unix, windows))]
    fn real(engine: IoEngine, direct: DirectIo) -> Place {
        let guard = tempfile::tempdir().unwrap();
        let directory = guard.path().to_owned();
        let disk = Box::new(RealDisk::new(engine).unwrap());
        Place { disk, directory, direct, _guard: Some(guard) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.disk.open(&self.path(name), mode, self.direct)
    }

    fn create(&self, name: &str) -> Arc<dyn File> {
        self.open(name, OpenMode::CreateNew).unwrap()
    }
}

/// Aligned bytes that are different everywhere.
fn pattern(len: usize, seed: u64) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(len).unwrap();
    SplitMix64::new(seed).fill(&mut buffer);
    buffer
}

fn read(file: &dyn File, offset: u64, len: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(len).unwrap();
    buffer.fill(0xee);
    file.read_at(offset, &mut buffer).unwrap();
    buffer
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error.kind(),
    }
}

fn bytes_come_back_and_holes_are_zero(place: &Place) {
    let file = place.create("f");
    assert_eq!(file.len_bytes().unwrap(), 0);
    let data = pattern(12288, 1);
    file.write_at(8192, &data).unwrap();
    assert_eq!(file.len_bytes().unwrap(), 20480);
    assert!(read(&*file, 0, 8192).iter().all(|&b| b == 0));
    assert_eq!(*read(&*file, 8192, 12288), *data);
    file.write_at(4096, &data[..8192]).unwrap();
    assert_eq!(*read(&*file, 4096, 8192), data[..8192]);
    assert_eq!(*read(&*file, 12288, 8192), data[4096..]);
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    place.disk.sync_dir(&place.directory).unwrap();
    drop(file);
    let again = place.open("f", OpenMode::ReadOnly).unwrap();
    assert_eq!(*read(&*again, 4096, 8192), data[..8192]);
}

fn a_read_beyond_the_end_is_a_typed_error(place: &Place) {
    let file = place.create("f");
    let damage = |offset| ErrorKind::Corrupted { page: None, offset_bytes: Some(offset) };
    let mut buffer = AlignedBuffer::zeroed(8192).unwrap();
    assert_eq!(kind(file.read_at(0, &mut buffer)), damage(0));
    file.write_at(0, &pattern(4096, 2)).unwrap();
    assert_eq!(kind(file.read_at(0, &mut buffer)), damage(0));
    assert_eq!(kind(file.read_at(4096, &mut buffer)), damage(4096));
    assert_eq!(kind(file.read_at(1 << 50, &mut buffer)), damage(1 << 50));
    let last = u64::MAX / 4096 * 4096;
    assert_eq!(kind(file.read_at(last, &mut buffer)), damage(last));
    let message = file.read_at(0, &mut buffer).unwrap_err().to_string();
    assert!(message.contains("ends at byte 4096"), "{message}");
    assert!(file.read_at(4096, &mut buffer[..0]).is_ok());
    assert_eq!(kind(file.write_at(last, &buffer)), ErrorKind::DiskFull);
}

fn odd_lengths_can_be_read_without_alignment(place: &Place) {
    let file = place.create("f");
    let data = pattern(8192, 3);
    file.write_at(0, &data).unwrap();
    file.set_len(5000).unwrap();
    for (offset, len) in [(0, 5000), (1, 4999), (4095, 2), (4990, 10), (511, 1025), (5000, 0)] {
        let mut back = vec![0xee; len];
        file.read_unaligned(offset as u64, &mut back).unwrap();
        assert_eq!(back, data[offset..offset + len], "{offset}+{len}");
    }
    let mut back = [0; 11];
    assert!(matches!(kind(file.read_unaligned(4990, &mut back)), ErrorKind::Corrupted { .. }));
}

fn batches_do_what_single_calls_do(place: &Place) {
    let file = place.create("f");
    let seed = 0xba7c;
    println!("seed {seed}");
    let mut random = SplitMix64::new(seed);
    const SLOTS: usize = 700;
    let mut model = AlignedBuffer::zeroed(SLOTS * 4096).unwrap();
    file.set_len(model.len() as u64).unwrap();
    for round in 0..6 {
        // Few, so that all fit a ring; many, so that it is refilled; sorted, so that runs form.
        let count = [1, 2, 40, 300, 700, 500][round];
        let mut slots: Vec<usize> = (0..SLOTS).collect();
        for index in (1..SLOTS).rev() {
            slots.swap(index, random.below(index as u64 + 1) as usize);
        }
        slots.truncate(count);
        if round % 2 == 0 {
            slots.sort_unstable();
        }
        let data = pattern(count * 4096, random.next_u64());
        let requests: Vec<WriteRequest<'_>> = slots
            .iter()
            .zip(data.chunks(4096))
            .map(|(&slot, buf)| WriteRequest { offset_bytes: slot as u64 * 4096, buf })
            .collect();
        file.write_batch(&requests).unwrap();
        for (&slot, chunk) in slots.iter().zip(data.chunks(4096)) {
            model[slot * 4096..][..4096].copy_from_slice(chunk);
        }
        let mut back = AlignedBuffer::zeroed(count * 4096).unwrap();
        let mut requests: Vec<ReadRequest<'_>> = slots
            .iter()
            .zip(back.chunks_mut(4096))
            .map(|(&slot, buf)| ReadRequest::new(slot as u64 * 4096, buf))
            .collect();
        file.read_batch(&mut requests);
        assert!(requests.iter().all(|request| request.result.is_ok()));
        assert_eq!(*back, *data, "round {round}");
    }
    assert!(*read(&*file, 0, model.len()) == *model);
    file.read_batch(&mut []);
    file.write_batch(&[]).unwrap();
}

fn each_read_of_a_batch_has_its_own_outcome(place: &Place) {
    let file = place.create("f");
    let data = pattern(8192, 4);
    file.write_at(0, &data).unwrap();
    let mut back = AlignedBuffer::zeroed(5 * 4096).unwrap();
    // The second and third follow the first in the file, so one call covers all three.
    let offsets = [0, 4096, 8192, 4096, 1 << 40];
    let mut requests: Vec<ReadRequest<'_>> = offsets
        .iter()
        .zip(back.chunks_mut(4096))
        .map(|(&offset, buf)| ReadRequest::new(offset, buf))
        .collect();
    file.read_batch(&mut requests);
    let outcomes: Vec<bool> = requests.iter().map(|request| request.result.is_ok()).collect();
    assert_eq!(outcomes, [true, true, false, true, false]);
    file.read_batch(&mut requests[..2]);
    file.read_batch(&mut requests[3..4]);
    assert_eq!(back[..8192], data[..]);
    assert_eq!(back[12288..16384], data[4096..]);
}

/// Reads random slots of a file, and asks for more as they come back: a tree of reads.
struct Growing<'b> {
    buffers: Vec<&'b mut [u8]>,
    wanted: Vec<u64>,
    slots: u64,
    model: &'b [u8],
    random: SplitMix64,
    under_way: Vec<Option<u64>>,
    most: usize,
    ended: usize,
    failed: usize,
    /// The read whose end panics.
    panics_at: usize,
}

impl<'b> ReadSource<'b> for Growing<'b> {
    fn next_read(&mut self) -> Option<(usize, ReadRequest<'b>)> {
        let slot = self.wanted.pop()?;
        let buf = self.buffers.pop().expect("as many buffers as reads");
        buf.fill(0xee);
        self.under_way.push(Some(slot));
        self.most = self.most.max(self.under_way.iter().flatten().count());
        Some((self.under_way.len() - 1, ReadRequest::new(slot * 4096, buf)))
    }

    fn end_read(&mut self, number: usize, read: ReadRequest<'b>) {
        let slot = self.under_way[number].take().expect("a read ends once");
        self.ended += 1;
        assert!(self.ended != self.panics_at, "a panic on demand");
        assert_eq!(read.offset_bytes, slot * 4096);
        match self.model.get(slot as usize * 4096..slot as usize * 4096 + 4096) {
            Some(expected) => assert!(read.result.is_ok() && read.buf == expected, "slot {slot}"),
            None => {
                assert!(matches!(kind(read.result), ErrorKind::Corrupted { .. }), "slot {slot}");
                self.failed += 1;
            }
        }
        for _ in 0..self.random.below(3) {
            if self.wanted.len() < self.buffers.len() {
                self.wanted.push(self.random.below(self.slots));
            }
        }
    }
}

fn a_stream_hands_back_every_read(place: &Place) {
    let file = place.create("f");
    let seed = 0x57_4ea3;
    println!("seed {seed}");
    let data = pattern(200 * 4096, seed);
    file.write_at(0, &data).unwrap();
    for (round, reads) in [1, 2, 40, 2000].into_iter().enumerate() {
        let mut memory = AlignedBuffer::zeroed(reads * 4096).unwrap();
        let first = reads.min(STREAM_DEPTH + 20);
        let mut source = Growing {
            buffers: memory.chunks_mut(4096).collect(),
            wanted: (0..first as u64).collect(),
            // Some are beyond the end of the file.
            slots: 210,
            model: &data,
            random: SplitMix64::new(seed + round as u64),
            under_way: Vec::new(),
            most: 0,
            ended: 0,
            failed: 0,
            panics_at: usize::MAX,
        };
        file.read_stream(&mut source);
        assert!(source.wanted.is_empty() && source.under_way.iter().all(Option::is_none));
        assert_eq!(source.ended, source.under_way.len());
        assert!(source.ended >= first && source.most <= STREAM_DEPTH);
        assert!(reads < 2000 || source.failed > 0, "some reads fail");
    }
}

fn a_stream_whose_source_panics_ends_with_nothing_under_way(place: &Place) {
    let file = place.create("f");
    let data = pattern(100 * 4096, 10);
    file.write_at(0, &data).unwrap();
    for panics_at in [1, 5, 90] {
        let mut memory = AlignedBuffer::zeroed(100 * 4096).unwrap();
        let mut source = Growing {
            buffers: memory.chunks_mut(4096).collect(),
            wanted: (0..100).collect(),
            slots: 100,
            model: &data,
            random: SplitMix64::new(1),
            under_way: Vec::new(),
            most: 0,
            ended: 0,
            failed: 0,
            panics_at,
        };
        let stream = std::panic::AssertUnwindSafe(|| file.read_stream(&mut source));
        assert!(std::panic::catch_unwind(stream).is_err());
        // Nobody writes here any more: a late read would be seen.
        memory.fill(0x11);
        assert_eq!(*read(&*file, 0, data.len()), *data);
        assert!(memory.iter().all(|&byte| byte == 0x11));
    }
}

fn a_file_can_be_cut_extended_and_reserved(place: &Place) {
    let file = place.create("f");
    file.write_at(0, &pattern(8192, 5)).unwrap();
    file.set_len(4096).unwrap();
    file.set_len(12288).unwrap();
    assert_eq!(file.len_bytes().unwrap(), 12288);
    assert!(read(&*file, 4096, 8192).iter().all(|&b| b == 0), "what was cut is gone");
    file.allocate(8192, 8192).unwrap();
    assert_eq!(file.len_bytes().unwrap(), 16384);
    file.allocate(0, 4096).unwrap();
    file.allocate(0, 0).unwrap();
    assert_eq!(file.len_bytes().unwrap(), 16384, "allocating never cuts");
    assert_eq!(*read(&*file, 0, 4096), pattern(8192, 5)[..4096]);
    assert!(file.set_len(u64::MAX).is_err());
    assert_eq!(file.len_bytes().unwrap(), 16384);
}

fn a_hole_reads_as_zero_and_takes_no_room(place: &Place) {
    let file = place.create("f");
    let data = pattern(1 << 20, 6);
    file.write_at(0, &data).unwrap();
    file.sync_data().unwrap();
    let before = file.allocated_bytes().unwrap();
    assert!(before >= 1 << 20, "{before}");
    if file.punch_hole(65536, 524_288).unwrap() {
        assert!(read(&*file, 65536, 524_288).iter().all(|&b| b == 0));
        let after = file.allocated_bytes().unwrap();
        assert!(after + 524_288 <= before, "{before} -> {after}");
    }
    assert_eq!(*read(&*file, 0, 65536), data[..65536]);
    assert_eq!(*read(&*file, 589_824, (1 << 20) - 589_824), data[589_824..]);
    assert_eq!(file.len_bytes().unwrap(), 1 << 20);
    file.punch_hole(0, 0).unwrap();
    file.punch_hole(1 << 20, 4096).unwrap();
    assert_eq!(file.len_bytes().unwrap(), 1 << 20);
}

fn offsets_beyond_four_gibibytes_are_kept_apart(place: &Place) {
    let file = place.create("f");
    // On Windows a file has no holes before one is punched, and what is left out would be written.
    file.punch_hole(0, 4096).unwrap();
    let offsets = [0, (1 << 31) - 4096, 1 << 31, (1 << 32) - 4096, 1 << 32, 1 << 33];
    for (seed, &offset) in offsets.iter().enumerate() {
        file.write_at(offset, &pattern(4096, seed as u64)).unwrap();
    }
    for (seed, &offset) in offsets.iter().enumerate() {
        assert_eq!(*read(&*file, offset, 4096), *pattern(4096, seed as u64), "{offset}");
    }
    assert_eq!(file.len_bytes().unwrap(), (1 << 33) + 4096);
    assert!(file.allocated_bytes().unwrap() < 1 << 20);
}

fn paths_come_and_go(place: &Place) {
    let missing = place.path("missing");
    assert_eq!(kind(place.open("missing", OpenMode::ReadWrite)), ErrorKind::FileNotFound);
    assert_eq!(kind(place.open("missing", OpenMode::ReadOnly)), ErrorKind::FileNotFound);
    assert_eq!(kind(place.disk.unlink(&missing)), ErrorKind::FileNotFound);
    assert_eq!(kind(place.disk.rename(&missing, &place.path("a"))), ErrorKind::FileNotFound);
    assert!(!place.disk.exists(&missing).unwrap());
    let a = place.create("a");
    assert!(place.disk.exists(&place.path("a")).unwrap());
    assert_eq!(kind(place.open("a", OpenMode::CreateNew)), ErrorKind::FileExists);
    a.write_at(0, &pattern(4096, 7)).unwrap();
    let b = place.create("b");
    let renamed = place.disk.rename(&place.path("a"), &place.path("b"));
    if cfg!(windows) && renamed.is_err() {
        let why = "this Windows is older than 10, or Wine";
        return crate::testing::not_run("a rename over a file that is open", why);
    }
    renamed.unwrap();
    assert!(!place.disk.exists(&place.path("a")).unwrap());
    assert_eq!(b.len_bytes().unwrap(), 0, "who had it open keeps the file that was replaced");
    let again = place.open("b", OpenMode::ReadOnly).unwrap();
    assert_eq!(*read(&*again, 0, 4096), *pattern(4096, 7));
    let taken = place.disk.rename_new(&place.path("b"), &place.path("b"));
    assert_eq!(kind(taken), ErrorKind::FileExists);
    let absent = place.disk.rename_new(&missing, &place.path("c"));
    assert_eq!(kind(absent), ErrorKind::FileNotFound);
    assert!(again.is_at(&place.path("b")).unwrap() && !b.is_at(&place.path("b")).unwrap());
    place.disk.rename_new(&place.path("b"), &place.path("c")).unwrap();
    assert!(again.is_at(&place.path("c")).unwrap() && !again.is_at(&place.path("b")).unwrap());
    assert!(place.disk.resolve(&place.path("c")).unwrap().ends_with("c"));
    assert_eq!(kind(place.disk.resolve(&place.path("b"))), ErrorKind::FileNotFound);
    place.disk.rename_new(&place.path("c"), &place.path("b")).unwrap();
    place.disk.unlink(&place.path("b")).unwrap();
    assert!(!place.disk.exists(&place.path("b")).unwrap());
    assert_eq!(*read(&*again, 0, 4096), *pattern(4096, 7));
    place.disk.sync_dir(&place.directory).unwrap();
}

fn a_read_only_file_is_not_changed(place: &Place) {
    place.create("f").write_at(0, &pattern(4096, 8)).unwrap();
    let file = place.open("f", OpenMode::ReadOnly).unwrap();
    let data = pattern(4096, 9);
    let request = WriteRequest { offset_bytes: 0, buf: &data };
    assert_eq!(kind(file.write_at(0, &data)), ErrorKind::ReadOnly);
    assert_eq!(kind(file.write_batch(&[request, request])), ErrorKind::ReadOnly);
    assert_eq!(kind(file.set_len(0)), ErrorKind::ReadOnly);
    assert_eq!(kind(file.allocate(0, 8192)), ErrorKind::ReadOnly);
    assert_eq!(kind(file.punch_hole(0, 4096)), ErrorKind::ReadOnly);
    assert_eq!(*read(&*file, 0, 4096), *pattern(4096, 8));
    assert_eq!(file.len_bytes().unwrap(), 4096);
}

fn a_second_open_finds_the_lock_taken(place: &Place) {
    let first = place.create("f");
    let second = place.open("f", OpenMode::ReadWrite).unwrap();
    let third = place.open("f", OpenMode::ReadOnly).unwrap();
    let is_busy = |outcome| match outcome {
        LockOutcome::Busy { holder_pid: Some(pid) } => pid == std::process::id(),
        // Linux tells who has a lock.
        LockOutcome::Busy { holder_pid: None } => cfg!(not(target_os = "linux")),
        LockOutcome::Held => false,
    };
    assert_eq!(first.try_lock(true).unwrap(), LockOutcome::Held);
    assert!(is_busy(second.try_lock(true).unwrap()));
    assert!(is_busy(third.try_lock(false).unwrap()));
    drop(first);
    assert_eq!(second.try_lock(false).unwrap(), LockOutcome::Held);
    assert_eq!(third.try_lock(false).unwrap(), LockOutcome::Held, "readers share");
    assert!(matches!(
        place.open("f", OpenMode::ReadWrite).unwrap().try_lock(true).unwrap(),
        LockOutcome::Busy { .. }
    ));
    drop(second);
    assert_eq!(third.try_lock(true).unwrap(), LockOutcome::Held, "the only reader may upgrade");
}

fn threads_share_a_file(place: &Place) {
    let file = place.create("f");
    file.set_len(8 << 20).unwrap();
    let threads: Vec<_> = (0..8_u64)
        .map(|number| {
            let file = Arc::clone(&file);
            let work = move || {
                let base = number << 20;
                for round in 0..4 {
                    let data = pattern(64 * 4096, number << 8 | round);
                    let requests: Vec<WriteRequest<'_>> = (0..64)
                        .map(|i| WriteRequest {
                            offset_bytes: base + i * 8192,
                            buf: &data[i as usize * 4096..][..4096],
                        })
                        .collect();
                    file.write_batch(&requests).unwrap();
                    let mut back = AlignedBuffer::zeroed(64 * 4096).unwrap();
                    let mut requests: Vec<ReadRequest<'_>> = back
                        .chunks_mut(4096)
                        .enumerate()
                        .map(|(i, buf)| ReadRequest::new(base + i as u64 * 8192, buf))
                        .collect();
                    file.read_batch(&mut requests);
                    assert!(requests.iter().all(|request| request.result.is_ok()));
                    assert!(*back == *data);
                }
            };
            thread::spawn_named("storage-test", work).unwrap()
        })
        .collect();
    for handle in threads {
        handle.join().unwrap();
    }
}

/// Stamps the suite for each implementation.
macro_rules! suite {
    ($($implementation:ident => $place:expr;)*) => {$(
        mod $implementation {
            use super::*;

            suite!(@tests $place;
                bytes_come_back_and_holes_are_zero
                a_read_beyond_the_end_is_a_typed_error
                odd_lengths_can_be_read_without_alignment
                batches_do_what_single_calls_do
                each_read_of_a_batch_has_its_own_outcome
                a_stream_hands_back_every_read
                a_stream_whose_source_panics_ends_with_nothing_under_way
                a_file_can_be_cut_extended_and_reserved
                a_hole_reads_as_zero_and_takes_no_room
                offsets_beyond_four_gibibytes_are_kept_apart
                paths_come_and_go
                a_read_only_file_is_not_changed
                a_second_open_finds_the_lock_taken
                threads_share_a_file
            );
        }
    )*};
    (@tests $place:expr; $($test:ident)*) => {$(
        #[test]
        fn $test() {
            super::$test(&$place);
        }
    )*};
}

suite! {
    ram => Place::new(RamDisk::new(), DirectIo::WherePossible);
    simulated => Place::new(SimDisk::new(42), DirectIo::WherePossible);
    simulated_buffered => Place::new(SimDisk::new(43), DirectIo::Never);
}

#[cfg(any(unix, windows))]
suite! {
    real_sync_direct => Place::real(IoEngine::Sync, DirectIo::WherePossible);
    real_sync_buffered => Place::real(IoEngine::Sync, DirectIo::Never);
    // With io_uring where the kernel lets us have it; `real` says when it does not.
    real_auto_direct => Place::real(IoEngine::Auto, DirectIo::WherePossible);
    real_auto_buffered => Place::real(IoEngine::Auto, DirectIo::Never);
}

#[test]
fn the_directory_of_a_path_is_what_has_to_be_synced() {
    for (path, parent) in [("a/b", "a"), ("/a", "/"), ("a", "."), ("/", "/"), ("", ".")] {
        assert_eq!(parent_directory(Path::new(path)), Path::new(parent), "{path:?}");
    }
}
