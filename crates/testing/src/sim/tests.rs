//! What the simulated disk promises to the tests of everything above it.

use super::*;
use hedgerow::internals::storage::{parent_directory, reserve};
use std::collections::BTreeSet;

const PATH: &str = "dir/file";

fn path() -> &'static Path {
    Path::new(PATH)
}

fn create(disk: &SimDisk) -> Arc<dyn File> {
    disk.open(path(), OpenMode::CreateNew, DirectIo::Never).unwrap()
}

/// A disk with a durable file of two blocks of ones.
fn with_durable_file(seed: u64) -> (SimDisk, Arc<dyn File>) {
    let disk = SimDisk::new(seed);
    let file = create(&disk);
    file.write_at(0, &[1; 8192]).unwrap();
    file.sync_all().unwrap();
    disk.sync_dir(parent_directory(path())).unwrap();
    assert!(disk.state().pending().is_empty());
    (disk, file)
}

fn survivors(disk: &SimDisk) -> BTreeSet<Option<Vec<u8>>> {
    let state = disk.state();
    let subsets = state.survivor_subsets(u64::MAX, 12, None).unwrap();
    subsets.map(|fates| state.crash(&fates, None).contents(path())).collect()
}

#[test]
fn what_was_synced_survives_every_crash() {
    let (disk, file) = with_durable_file(1);
    file.write_at(4096, &[2; 4096]).unwrap();
    file.sync_data().unwrap();
    file.write_at(0, &[3; 2048]).unwrap();
    for seed in 0..200 {
        let after = disk.crash(seed).state().contents(path()).unwrap();
        assert_eq!(after.len(), 8192);
        assert!(after[4096..].iter().all(|&b| b == 2), "seed {seed}");
        assert!(after[2048..4096].iter().all(|&b| b == 1), "seed {seed}");
    }
}

#[test]
fn unsynced_changes_survive_in_every_combination() {
    let (disk, file) = with_durable_file(2);
    file.write_at(0, &[2; 512]).unwrap();
    file.write_at(512, &[3; 512]).unwrap();
    let seen: BTreeSet<(u8, u8)> =
        survivors(&disk).into_iter().map(|bytes| bytes.map(|b| (b[0], b[512])).unwrap()).collect();
    assert_eq!(seen, BTreeSet::from([(1, 1), (2, 1), (1, 3), (2, 3)]));
}

#[test]
fn pieces_of_one_write_survive_one_without_the_other() {
    let (disk, file) = with_durable_file(3);
    file.write_at(0, &[2; 512]).unwrap();
    file.write_at(512, &[3; 1024]).unwrap();
    let state = disk.state();
    assert_eq!((state.pending_pieces(512), state.pending_pieces(u64::MAX)), (3, 2));
    assert!(state.survivor_subsets(512, 2, None).is_none());
    let seen = |tried| {
        let subsets = state.survivor_subsets(512, 3, tried).unwrap();
        let left = subsets.map(|fates| state.crash(&fates, None).contents(path()).unwrap());
        left.map(|bytes| [bytes[0], bytes[512], bytes[1024]]).collect::<BTreeSet<[u8; 3]>>()
    };
    let all: BTreeSet<[u8; 3]> =
        (0..8).map(|n| [1 + (n & 1), 1 + (n & 2), 1 + (n >> 1 & 2)]).collect();
    assert_eq!(seen(None), all);
    let newer: BTreeSet<[u8; 3]> = all.into_iter().filter(|left| left[1..] != [1, 1]).collect();
    assert_eq!(seen(Some(1)), newer, "what drops all that is newer was tried before");
}

#[test]
fn the_order_of_overlapping_writes_is_kept() {
    let (disk, file) = with_durable_file(3);
    file.write_at(0, &[2; 512]).unwrap();
    file.write_at(0, &[3; 512]).unwrap();
    let seen: BTreeSet<u8> = survivors(&disk).into_iter().map(|bytes| bytes.unwrap()[0]).collect();
    assert_eq!(seen, BTreeSet::from([1, 2, 3]));
    let both = disk.state().crash(&[Fate::Keep, Fate::Keep], None);
    assert_eq!(both.contents(path()).unwrap()[0], 3);
}

#[test]
fn a_write_tears_at_the_pieces_asked_for() {
    let (disk, file) = with_durable_file(4);
    file.write_at(256, &[2; 2000]).unwrap();
    let state = disk.state();
    assert_eq!(state.pending()[0].pieces(512), 5);
    assert_eq!(state.pending()[0].pieces(4096), 1);
    let fate = Fate::Torn { piece_bytes: 512, kept: vec![true, false, true, false] };
    let after = state.crash(&[fate], None).contents(path()).unwrap();
    let expected: Vec<u8> = (0..8192)
        .map(|at| if (256..512).contains(&at) || (1024..1536).contains(&at) { 2 } else { 1 })
        .collect();
    assert_eq!(after, expected);
}

#[test]
fn random_crashes_tear_keep_and_drop_and_follow_from_the_seed() {
    let (disk, file) = with_durable_file(5);
    file.write_at(0, &[2; 8192]).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let after = disk.crash(seed).state().contents(path()).unwrap();
        assert_eq!(disk.crash(seed).state().contents(path()).unwrap(), after);
        assert!(after.chunks(512).all(|piece| piece.iter().all(|&b| b == piece[0])));
        seen.insert(after.chunks(512).map(|piece| piece[0]).collect::<Vec<u8>>());
    }
    assert!(seen.contains(&vec![1; 16]) && seen.contains(&vec![2; 16]));
    assert!(seen.len() > 20, "only {} different outcomes", seen.len());
}

#[test]
fn the_length_is_a_change_of_its_own() {
    let (disk, file) = with_durable_file(6);
    file.write_at(8192, &[2; 512]).unwrap();
    let grown: Vec<u8> = [vec![1; 8192], vec![2; 512]].concat();
    let zeros: Vec<u8> = [vec![1; 8192], vec![0; 512]].concat();
    let seen = survivors(&disk);
    assert_eq!(seen, [Some(vec![1; 8192]), Some(grown), Some(zeros)].into());
    let fates = [Fate::Keep, Fate::Drop];
    let littered = disk.state().crash(&fates, Some(9)).contents(path()).unwrap();
    assert_eq!(littered.len(), 8704);
    assert!(littered[..8192].iter().all(|&b| b == 1), "only new room shows garbage");
    assert!(littered[8192..].iter().any(|&b| b != 0));
}

#[test]
fn cutting_and_punching_may_be_lost() {
    let (disk, file) = with_durable_file(7);
    file.punch_hole(0, 4096).unwrap();
    file.set_len(6000).unwrap();
    let seen: BTreeSet<(u8, usize)> =
        survivors(&disk).into_iter().map(|bytes| bytes.map(|b| (b[0], b.len())).unwrap()).collect();
    assert_eq!(seen, BTreeSet::from([(1, 8192), (0, 8192), (1, 6000), (0, 6000)]));
    file.sync_data().unwrap();
    assert_eq!(survivors(&disk), [Some([vec![0; 4096], vec![1; 1904]].concat())].into());
}

#[test]
fn directory_entries_need_a_sync_of_their_own() {
    let disk = SimDisk::new(8);
    let file = create(&disk);
    file.write_at(0, b"data").unwrap();
    file.sync_all().unwrap();
    assert_eq!(survivors(&disk), [None, Some(b"data".to_vec())].into());
    disk.sync_dir(Path::new("elsewhere")).unwrap();
    assert_eq!(disk.state().pending().len(), 1);
    disk.sync_dir(Path::new("dir")).unwrap();
    disk.rename(path(), Path::new("dir/new")).unwrap();
    let state = disk.state();
    for (fate, left) in [(Fate::Drop, path()), (Fate::Keep, Path::new("dir/new"))] {
        let paths = state.crash(&[fate], None).paths();
        assert_eq!(paths.len(), 1, "a rename is atomic");
        assert_eq!(&*paths[0], left);
    }
    assert_eq!(state.survivor_subsets(u64::MAX, 4, None).unwrap().count(), 2);
    disk.sync_dir(Path::new("dir")).unwrap();
    disk.unlink(Path::new("dir/new")).unwrap();
    assert_eq!(disk.state().crash(&[Fate::Drop], None).paths().len(), 1);
    assert_eq!(disk.state().crash(&[Fate::Keep], None).paths().len(), 0);
}

#[test]
fn a_lost_sync_is_not_repaired_by_a_later_one() {
    let (disk, file) = with_durable_file(9);
    file.write_at(0, &[2; 4096]).unwrap();
    disk.inject(Fault::once(CallKind::SyncData, 0, Fault::EIO));
    assert_eq!(file.sync_data().unwrap_err().os_error(), Some(Fault::EIO));
    file.write_at(4096, &[3; 4096]).unwrap();
    file.sync_data().unwrap();
    let mut live = vec![0; 8192];
    file.read_at(0, &mut live).unwrap();
    assert_eq!(live, [vec![2; 4096], vec![3; 4096]].concat(), "reads show what was lost");
    assert_eq!(survivors(&disk), [Some([vec![1; 4096], vec![3; 4096]].concat())].into());
}

#[test]
fn a_lost_sync_leaves_lengths_pending() {
    let (disk, file) = with_durable_file(11);
    file.set_len(4096).unwrap();
    disk.inject(Fault::once(CallKind::SyncData, 0, Fault::EIO));
    file.sync_data().unwrap_err();
    let lengths =
        || -> BTreeSet<usize> { survivors(&disk).iter().flatten().map(Vec::len).collect() };
    assert_eq!(lengths(), [4096, 8192].into());
    file.sync_data().unwrap();
    assert_eq!(lengths(), [4096].into());
}

#[test]
fn the_kth_call_fails_once_or_from_then_on() {
    let (disk, file) = with_durable_file(10);
    let mut buf = [0; 512];
    disk.inject(Fault::once(CallKind::Read, 2, Fault::EIO));
    let outcomes: Vec<bool> = (0..5).map(|_| file.read_at(0, &mut buf).is_ok()).collect();
    assert_eq!(outcomes, [true, true, false, true, true]);
    disk.inject(Fault::once(CallKind::Write, 1, Fault::ENOSPC).sticky());
    let kinds: Vec<bool> = (0..4).map(|_| file.write_at(0, &buf).is_ok()).collect();
    assert_eq!(kinds, [true, false, false, false]);
    assert_eq!(file.write_at(0, &buf).unwrap_err().kind(), ErrorKind::DiskFull);
    assert!(file.read_at(0, &mut buf).is_ok());
    disk.clear_faults();
    assert!(file.write_at(0, &buf).is_ok());
    disk.inject(Fault::any(1));
    assert!(file.len_bytes().is_ok());
    assert!(file.sync_data().is_err());
    assert!(file.sync_data().is_ok());
}

#[test]
fn a_failing_call_has_the_effect_asked_for() {
    let ones = vec![1; 8192];
    for (effect, allowed) in [(Effect::Nothing, vec![1]), (Effect::Fully, vec![2])] {
        let (disk, file) = with_durable_file(11);
        disk.inject(Fault::once(CallKind::Write, 0, Fault::EIO).with_effect(effect));
        assert!(file.write_at(0, &[2; 8192]).is_err());
        let live = disk.state().contents(path()).unwrap();
        assert!(live.iter().all(|b| allowed.contains(b)), "{effect:?}");
    }
    let (disk, file) = with_durable_file(12);
    disk.inject(Fault::once(CallKind::Write, 0, Fault::EIO));
    assert!(file.write_at(0, &[2; 8192]).is_err());
    let live = disk.state().contents(path()).unwrap();
    assert!(live != ones && live.contains(&1), "a part is written");
    disk.inject(Fault::once(CallKind::SyncAll, 0, Fault::EIO).with_effect(Effect::Fully));
    assert!(file.sync_all().is_err());
    assert_eq!(survivors(&disk), [Some(live)].into());
    disk.inject(Fault::once(CallKind::Unlink, 0, Fault::EIO));
    assert!(disk.unlink(path()).is_err());
    assert!(disk.exists(path()).unwrap());
}

/// As ext4 does.
#[test]
fn an_allocation_without_room_keeps_a_part_until_it_is_given_back() {
    let disk = SimDisk::new(3);
    let file = disk.open(Path::new("f"), OpenMode::CreateNew, DirectIo::Never).unwrap();
    disk.set_capacity(Some(5 * 4096 + 100));
    file.allocate(0, 2 * 4096).unwrap();
    assert_eq!(file.free_bytes().unwrap(), Some(3 * 4096 + 100));
    let full = file.allocate(4096, 9 * 4096).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::DiskFull);
    assert_eq!((file.allocated_bytes().unwrap(), file.len_bytes().unwrap()), (20480, 20480));
    file.set_len(2 * 4096).unwrap();
    // All or nothing, within the file and beyond its end.
    file.punch_hole(0, 2 * 4096).unwrap();
    file.write_at(4096, &[7; 4096]).unwrap();
    let full = reserve(&*file, 2 * 4096, 9 * 4096).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::DiskFull);
    assert_eq!((file.allocated_bytes().unwrap(), file.len_bytes().unwrap()), (4096, 8192));
    disk.set_capacity(Some(4096 + 4095));
    assert_eq!(reserve(&*file, 0, 4096).unwrap_err().kind(), ErrorKind::DiskFull);
    assert_eq!(file.allocated_bytes().unwrap(), 4096);
    disk.set_capacity(Some(5 * 4096));
    reserve(&*file, 2 * 4096, 3 * 4096).unwrap();
    assert_eq!((file.allocated_bytes().unwrap(), file.len_bytes().unwrap()), (4 * 4096, 20480));
}

/// A device that fails is told of, rather than a disk that is full.
#[test]
fn room_that_cannot_be_given_back_is_an_error_of_its_own_unless_that_needs_room() {
    for (errno, kind) in [(Fault::EIO, ErrorKind::Io), (Fault::ENOSPC, ErrorKind::DiskFull)] {
        let disk = SimDisk::new(3);
        let file = disk.open(Path::new("f"), OpenMode::CreateNew, DirectIo::Never).unwrap();
        disk.set_capacity(Some(4096));
        disk.inject(Fault::once(CallKind::SetLen, 0, errno));
        assert_eq!(reserve(&*file, 0, 8192).unwrap_err().kind(), kind);
    }
}

#[test]
fn a_full_disk_takes_what_fits_and_works_again_when_there_is_room() {
    let (disk, file) = with_durable_file(13);
    disk.set_capacity(Some(16384));
    let error = file.write_at(8192, &[2; 12288]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DiskFull);
    assert_eq!(file.len_bytes().unwrap(), 16384);
    assert_eq!(file.allocate(16384, 1).unwrap_err().kind(), ErrorKind::DiskFull);
    file.write_at(0, &[4; 16384]).unwrap();
    file.punch_hole(0, 4096).unwrap();
    file.write_at(16384, &[5; 4096]).unwrap();
    assert_eq!(file.write_at(0, &[5; 1]).unwrap_err().kind(), ErrorKind::DiskFull);
    file.set_len(4096).unwrap();
    file.allocate(0, 16384).unwrap();
    disk.unlink(path()).unwrap();
    assert_eq!(disk.state().allocated_bytes(), 16384, "an open file keeps its room");
    drop(file);
    assert_eq!(disk.state().allocated_bytes(), 0);
}

#[test]
fn calls_are_counted_and_logged() {
    let (disk, file) = with_durable_file(14);
    let before = disk.total_calls();
    disk.record_log(true);
    file.write_at(512, &[0; 512]).unwrap();
    disk.inject(Fault::once(CallKind::SyncData, 0, Fault::EIO));
    assert!(file.sync_data().is_err());
    assert_eq!(disk.calls(CallKind::SyncData), 1);
    assert_eq!(disk.total_calls() - before, 2);
    let number = Some(FileNumber(0));
    let write = Operation {
        kind: CallKind::Write,
        file: number,
        offset_bytes: 512,
        len_bytes: 512,
        fault: None,
    };
    let sync = Operation {
        kind: CallKind::SyncData,
        offset_bytes: 0,
        len_bytes: 0,
        fault: Some(Fault::EIO),
        ..write
    };
    assert_eq!(disk.take_log(), [write, sync]);
    assert!(disk.take_log().is_empty());
}

#[test]
fn states_are_kept_before_each_change() {
    let disk = SimDisk::new(15);
    disk.record_states(true);
    let file = create(&disk);
    file.write_at(0, b"a").unwrap();
    file.write_at(0, b"b").unwrap();
    file.read_at(0, &mut [0]).unwrap();
    file.sync_data().unwrap();
    let contents: Vec<_> = disk.take_states().iter().map(|s| s.contents(path())).collect();
    assert_eq!(contents, [None, Some(vec![]), Some(b"a".to_vec()), Some(b"b".to_vec())]);
    let disk = SimDisk::with_state(disk.state(), 16);
    let again = disk.open(path(), OpenMode::ReadWrite, DirectIo::Never).unwrap();
    assert_eq!(again.try_lock(true).unwrap(), LockOutcome::Held);
    file.write_at(0, b"c").unwrap();
    assert_eq!(disk.state().contents(path()).unwrap(), b"b", "the two disks are separate");
}

#[test]
fn a_kill_loses_nothing_and_makes_nothing_durable() {
    let (disk, file) = with_durable_file(19);
    file.write_at(0, &[2; 4096]).unwrap();
    let other = Path::new("dir/other");
    let gone = disk.open(other, OpenMode::CreateNew, DirectIo::Never).unwrap();
    gone.write_at(0, &[3; 4096]).unwrap();
    disk.unlink(other).unwrap();
    assert_eq!(disk.state().allocated_bytes(), 3 * 4096, "a handle keeps it");
    let killed = disk.kill(20);
    assert_eq!(killed.state().allocated_bytes(), 2 * 4096);
    assert_eq!(killed.state().pending(), disk.state().pending());
    assert_eq!(killed.state().fingerprint(), disk.state().fingerprint());
    let first = |state: SimState| state.contents(path()).unwrap()[0];
    assert_eq!(first(killed.state()), 2);
    assert_eq!(first(killed.state().crash(&[], None)), 1, "the system may go down after all");
    let again = killed.open(path(), OpenMode::ReadWrite, DirectIo::Never).unwrap();
    assert_eq!(again.try_lock(true).unwrap(), LockOutcome::Held);
    again.sync_data().unwrap();
    assert_eq!(first(killed.state().crash(&[], None)), 2, "what another has written is synced");
    assert_eq!(first(disk.state().crash(&[], None)), 1, "the two disks are separate");
}

#[test]
fn fingerprints_tell_contents_apart_and_nothing_else() {
    let (disk, file) = with_durable_file(21);
    let before = disk.state().fingerprint();
    file.write_at(4096, &[2; 1]).unwrap();
    let changed = disk.state().fingerprint();
    assert_ne!(changed, before);
    assert_eq!(disk.state().crash(&[], None).fingerprint(), before);
    assert_eq!(disk.state().crash(&[Fate::Keep], None).fingerprint(), changed);
    file.set_len(8191).unwrap();
    assert_ne!(disk.state().fingerprint(), changed);
    file.set_len(8192).unwrap();
    let here = disk.state().fingerprint();
    disk.rename(path(), Path::new("dir/other")).unwrap();
    assert_ne!(disk.state().fingerprint(), here);
}

#[test]
fn contents_can_be_damaged_behind_the_back_of_the_engine() {
    let (disk, file) = with_durable_file(17);
    file.write_at(0, &[2; 512]).unwrap();
    disk.change_state(|state| state.set_contents(path(), b"short")).unwrap();
    let mut buf = [0; 5];
    file.read_at(0, &mut buf).unwrap();
    assert_eq!(&buf, b"short");
    assert_eq!(survivors(&disk), [Some(b"short".to_vec())].into());
    let other = Path::new("dir/other");
    disk.change_state(|state| state.set_contents(other, b"new")).unwrap();
    assert_eq!(disk.crash(1).state().contents(other).unwrap(), b"new");
}

#[test]
#[should_panic(expected = "aligned to 512")]
fn a_misaligned_direct_request_is_a_broken_invariant() {
    let (disk, _file) = with_durable_file(18);
    let file = disk.open(path(), OpenMode::ReadOnly, DirectIo::WherePossible).unwrap();
    let _ = file.read_at(100, &mut [0; 512]);
}

/// A disk with a durable file of three blocks, of ones, twos and threes.
fn with_three_blocks(seed: u64) -> (SimDisk, Arc<dyn File>) {
    let (disk, file) = with_durable_file(seed);
    file.write_at(0, &blocks([1, 2, 3])).unwrap();
    file.sync_all().unwrap();
    (disk, file)
}

fn blocks(of: [u8; 3]) -> Vec<u8> {
    of.into_iter().flat_map(|byte| [byte; 4096]).collect()
}

fn read_all(file: &dyn File) -> Vec<u8> {
    let mut found = vec![0; 3 * 4096];
    file.read_at(0, &mut found).unwrap();
    found
}

#[test]
fn an_ignored_sync_makes_nothing_durable_and_the_next_one_does() {
    let (disk, file) = with_three_blocks(20);
    disk.inject_lie(Lie::once(Deceit::SyncIgnored, 1));
    file.sync_data().unwrap();
    file.write_at(0, &[4; 4096]).unwrap();
    file.sync_data().unwrap();
    assert_eq!(survivors(&disk), [Some(blocks([1, 2, 3])), Some(blocks([4, 2, 3]))].into());
    let told = disk.lies_told();
    assert_eq!(told.len(), 1);
    assert!(told[0].differs && told[0].path.as_deref() == Some(path()));
    file.sync_all().unwrap();
    assert_eq!(survivors(&disk), [Some(blocks([4, 2, 3]))].into());
    // For good, and of one file alone.
    disk.inject_lie(Lie::once(Deceit::SyncIgnored, 0).of(Path::new("dir/other")).sticky());
    file.write_at(0, &[5; 4096]).unwrap();
    file.sync_data().unwrap();
    assert!(disk.state().pending().is_empty());
    disk.inject_lie(Lie::once(Deceit::DirectorySyncIgnored, 0).sticky());
    for _ in 0..2 {
        disk.unlink(path()).ok();
        disk.sync_dir(Path::new("dir")).unwrap();
        assert_eq!(disk.state().pending().len(), 1);
    }
    assert_eq!(disk.lies_told().len(), 3);
    disk.clear_lies();
    disk.sync_dir(Path::new("dir")).unwrap();
    assert!(disk.state().pending().is_empty());
}

#[test]
fn a_write_is_lost_or_goes_elsewhere_and_says_that_it_went_well() {
    let (disk, file) = with_three_blocks(21);
    disk.inject_lie(Lie::once(Deceit::WriteLost, 0).within(4096..8192));
    file.write_at(0, &[4; 4096]).unwrap();
    file.write_at(4096, &[5; 4096]).unwrap();
    file.write_at(8192, &[6; 4096]).unwrap();
    assert_eq!(read_all(&*file), blocks([4, 2, 6]));
    disk.inject_lie(Lie::once(Deceit::WriteMisdirected { by_bytes: -4096 }, 1));
    file.write_at(0, &[7; 4096]).unwrap();
    file.write_at(8192, &[8; 4096]).unwrap();
    assert_eq!(read_all(&*file), blocks([7, 8, 6]));
    // To no place of this file; and behind its end, where it grows all the same.
    disk.inject_lie(Lie::once(Deceit::WriteMisdirected { by_bytes: -4096 }, 0));
    file.write_at(0, &[9; 4096]).unwrap();
    disk.inject_lie(Lie::once(Deceit::WriteLost, 0));
    file.write_at(3 * 4096, &[9; 512]).unwrap();
    assert_eq!(file.len_bytes().unwrap(), 3 * 4096 + 512);
    assert_eq!(read_all(&*file), blocks([7, 8, 6]));
    let told = disk.lies_told();
    let places: Vec<u64> = told.iter().map(|told| told.offset_bytes).collect();
    assert_eq!(places, [4096, 8192, 0, 3 * 4096]);
    assert!(told.iter().all(|told| told.differs));
    assert_eq!((told[1].truth[0], told[1].instead[0]), (8, 6));
}

#[test]
fn a_read_brings_what_was_there_or_what_lies_elsewhere() {
    let (disk, file) = with_three_blocks(22);
    disk.inject_lie(Lie::once(Deceit::ReadStale(Age::WhenArmed), 2));
    file.write_at(0, &[4; 4096]).unwrap();
    file.sync_data().unwrap();
    file.write_at(4096, &[5; 4096]).unwrap();
    assert_eq!(read_all(&*file), blocks([4, 5, 3]));
    assert_eq!(read_all(&*file), blocks([4, 5, 3]));
    assert_eq!(read_all(&*file), blocks([1, 2, 3]), "as it was when the lie was armed");
    assert_eq!(read_all(&*file), blocks([4, 5, 3]), "once");
    disk.inject_lie(Lie::once(Deceit::ReadStale(Age::Durable), 0).sticky());
    for _ in 0..2 {
        assert_eq!(read_all(&*file), blocks([4, 2, 3]), "what is durable");
    }
    file.sync_data().unwrap();
    assert_eq!(read_all(&*file), blocks([4, 5, 3]));
    let differ: Vec<bool> = disk.lies_told().iter().map(|told| told.differs).collect();
    assert_eq!(differ, [true, true, true, false]);
    disk.clear_lies();
    for (by_bytes, found) in [(4096, [5, 3, 0]), (-8192, [0, 0, 0]), (8192, [3, 0, 0])] {
        disk.inject_lie(Lie::once(Deceit::ReadMisdirected { by_bytes }, 0));
        assert_eq!(read_all(&*file), blocks(found), "{by_bytes}");
    }
}

#[test]
fn a_read_has_one_bit_wrong_or_a_sector_of_zeros() {
    let (disk, file) = with_three_blocks(23);
    let mut buf = [0; 1024];
    disk.inject_lie(Lie::once(Deceit::BitFlipped { bit: 8 * 1024 + 9 }, 0));
    file.read_at(4096, &mut buf).unwrap();
    assert_eq!((buf[0], buf[1], buf[2]), (2, 0, 2));
    for (sector_bytes, sector, zeros) in [(512, 0, 0..256), (512, 4, 256..768), (4096, 7, 0..1024)]
    {
        disk.inject_lie(Lie::once(Deceit::SectorZeroed { sector_bytes, sector }, 0));
        file.read_at(4096 + 256, &mut buf).unwrap();
        let expected: Vec<u8> = (0..1024).map(|at| 2 * u8::from(!zeros.contains(&at))).collect();
        assert!(buf[..] == expected, "sector {sector} of {sector_bytes}");
    }
    file.read_at(4096, &mut buf).unwrap();
    assert!(buf == [2; 1024]);
    assert!(file.read_at(3 * 4096, &mut buf).is_err(), "behind the end nothing is read");
}

#[test]
fn a_kill_leaves_everything_written_and_what_is_pending() {
    let (disk, file) = with_three_blocks(24);
    file.write_at(0, &[4; 4096]).unwrap();
    let killed = disk.kill(1);
    file.write_at(0, &[5; 4096]).unwrap();
    assert_eq!(killed.state().contents(path()), Some(blocks([4, 2, 3])));
    assert_eq!(survivors(&killed), [Some(blocks([1, 2, 3])), Some(blocks([4, 2, 3]))].into());
}

#[test]
fn a_fault_of_several_kinds_counts_them_together_and_can_be_put_off() {
    let (disk, file) = with_durable_file(30);
    disk.inject(Fault::once(CallKind::SyncData, 2, Fault::EIO).or_of(&[CallKind::SyncAll]));
    file.sync_data().unwrap();
    file.write_at(0, &[2; 512]).unwrap();
    file.sync_all().unwrap();
    let put_off = disk.take_faults();
    file.sync_all().unwrap();
    assert_eq!(put_off.len(), 1);
    assert_eq!(put_off[0].after, 0);
    put_off.into_iter().for_each(|fault| disk.inject(fault));
    file.sync_all().unwrap_err();
    assert!(disk.take_faults().is_empty(), "it struck once");
    file.sync_all().unwrap();
}
