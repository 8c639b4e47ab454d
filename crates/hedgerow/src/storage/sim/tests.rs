//! What the simulated disk promises to the tests of everything above it.

use super::*;
use crate::storage::parent_directory;
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
fn the_kth_call_fails_once_or_from_then_on() {
    let (disk, file) = with_durable_file(10);
    let mut buf = [0; 512];
    disk.inject(Fault::once(CallKind::Read, 2, Fault::EIO));
    let outcomes: Vec<bool> = (0..5).map(|_| file.read_at(0, &mut buf).is_ok()).collect();
    assert_eq!(outcomes, [true, true, false, true, true]);
    disk.inject(Fault::once(CallKind::Write, 1, Fault::ENOSPC).sticky());
    let kinds: Vec<bool> = (0..4).map(|_| file.write_at(0, &buf).is_ok()).collect();
    assert_eq!(kinds, [true, false, false, false]);
    assert_eq!(file.write_at(0, &buf).unwrap_err().kind(), &ErrorKind::DiskFull);
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

#[test]
fn a_full_disk_takes_what_fits_and_works_again_when_there_is_room() {
    let (disk, file) = with_durable_file(13);
    disk.set_capacity(Some(16384));
    let error = file.write_at(8192, &[2; 12288]).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::DiskFull);
    assert_eq!(file.len_bytes().unwrap(), 16384);
    assert_eq!(file.allocate(16384, 1).unwrap_err().kind(), &ErrorKind::DiskFull);
    file.write_at(0, &[4; 16384]).unwrap();
    file.punch_hole(0, 4096).unwrap();
    file.write_at(16384, &[5; 4096]).unwrap();
    assert_eq!(file.write_at(0, &[5; 1]).unwrap_err().kind(), &ErrorKind::DiskFull);
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
