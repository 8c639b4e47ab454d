//! A disk that lies to whoever reads: old, foreign, flipped and blotted out bytes instead of those that are there, once or
//! for good, of any page, part or superblock. Every answer of the store is right, or an error that names the place;
//! what is not concerned can be read; what is told wrongly for good is named by a verification, and what was
//! told wrongly once is forgotten.
//!
//! What nobody can notice, and is left out here and nowhere else:
//! - An older image of the same page or part passes for the newest if its checksum has the same 14 bits on top, which is
//!   all that the slot's word has of it: once in 16,384 times (`passes_for`).
//! - Both blocks of the newest superblock as they were before: that file was whole, one checkpoint ago. What must be
//!   found then is that checkpoint. (With a log it is noticed, see `lies_logged.rs`.)
//!
//! Writes and syncs that lie, the log and large values are in `lies_logged.rs`. What was damaged at rest is in `damage.rs`.

use crate::common::aged::{Aged, PAGE_BYTES, aged_store, options, passes_for, put, then, tried};
use crate::common::{
    Dice, Model, assert_damage, assert_sound, contents, disk_with, open, path, read_all, seed,
};
use hedgerow::Database;
use hedgerow::internals::space::HEADER_REGION_BYTES;
use hedgerow::internals::store::OpenHow;
use hedgerow::internals::store::superblock::{POSITIONS, SUPERBLOCK_BYTES};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::sim::{Age, Deceit, Lie};
use std::ops::ControlFlow;
use std::ops::Range;

const HOWS: [OpenHow; 2] = [OpenHow::ReadOnly, OpenHow::Existing];

/// A disk with the store, to which the lie is armed; what a stale read brings is the checkpoint before.
fn lying_disk(aged: &Aged, lie: Lie) -> SimDisk {
    let disk = disk_with(aged.older.last().unwrap());
    disk.inject_lie(lie);
    disk.change_state(|state| state.set_contents(path(), &aged.bytes)).unwrap();
    disk
}

/// Everything that a read of so many bytes can be told instead.
fn deceits(dice: &mut Dice, len: usize) -> Vec<Deceit> {
    let len = len as i64;
    vec![
        Deceit::ReadStale(Age::WhenArmed),
        Deceit::ReadMisdirected { by_bytes: len },
        Deceit::ReadMisdirected { by_bytes: -len },
        Deceit::ReadMisdirected { by_bytes: 32 << 10 },
        Deceit::BitFlipped { bit: dice.roll() },
        Deceit::SectorZeroed { sector_bytes: 512, sector: dice.roll() },
        Deceit::SectorZeroed { sector_bytes: 4096, sector: dice.roll() },
    ]
}

/// Whether what is told instead of an image is an older one that passes for it.
fn could_pass(aged: &Aged, image: &Range<usize>, what: Deceit) -> bool {
    let instead = match what {
        Deceit::ReadStale(_) => then(aged.older.last().unwrap(), image),
        Deceit::ReadMisdirected { by_bytes } => {
            let Ok(start) = usize::try_from(image.start as i64 + by_bytes) else { return false };
            then(&aged.bytes, &(start..start + image.len()))
        }
        _ => return false,
    };
    let truth = &aged.bytes[image.clone()];
    instead[..] != truth[..] && passes_for(&instead, truth)
}

/// What came of reading everything.
struct Seen {
    /// Answers that were errors; `None`: the store could not be opened.
    refused: Option<u64>,
    verified: bool,
}

impl Seen {
    fn is_clean(&self) -> bool {
        self.refused == Some(0) && self.verified
    }
}

/// Reads and verifies all of an open store: what is not right names what is damaged.
fn look(db: &Database, model: &Model, context: &str) -> Seen {
    let refused = Some(read_all(db, model, context));
    let verified = match db.verify(|_| ControlFlow::Continue(())) {
        Ok(report) => report.is_clean(),
        Err(error) => {
            assert_damage(&error, context);
            false
        }
    };
    Seen { refused, verified }
}

fn open_and_look(disk: &SimDisk, how: OpenHow, model: &Model, context: &str) -> Seen {
    match open(&options(), disk, how) {
        Ok(db) => look(&db, model, context),
        Err(error) => {
            assert_damage(&error, context);
            Seen { refused: None, verified: false }
        }
    }
}

#[test]
fn what_is_read_wrongly_for_good_is_named_and_the_rest_is_read() {
    let mut dice = Dice(seed(121));
    let aged = aged_store(&mut dice);
    let look_ups = aged.model["wrens"].len() as u64 / 3;
    let (mut noticed, mut passed, mut pages, mut readable) = (0, 0, 0_u64, 0_u64);
    for image in tried(&aged) {
        for what in deceits(&mut dice, image.len()) {
            if could_pass(&aged, &image, what) {
                passed += 1;
                continue;
            }
            let how = HOWS[dice.below(2) as usize];
            let context = format!("{image:?}, {what:?}, {how:?}");
            let start = image.start as u64;
            let lie = Lie::once(what, 0).of(path()).within(start..start + 1).sticky();
            let disk = lying_disk(&aged, lie);
            let seen = open_and_look(&disk, how, &aged.model, &context);
            let told = disk.lies_told();
            assert!(!told.is_empty(), "{context}: nobody has read that");
            if told.iter().any(|told| told.differs) {
                assert!(!seen.is_clean(), "{context}: nobody noticed");
                assert!(!seen.verified, "{context}: what cannot be read verifies");
                noticed += 1;
                if image.len() == PAGE_BYTES {
                    pages += 1;
                    // A leaf has a few of the records; the few inner pages have them all.
                    readable += u64::from(seen.refused.is_some_and(|n| n < look_ups / 2));
                }
            } else {
                assert!(seen.is_clean(), "{context}: the truth was refused");
            }
            // Nothing of it was written to the file, nor anything because of it.
            disk.clear_lies();
            let after = open_and_look(&disk, OpenHow::Existing, &aged.model, &context);
            assert!(after.is_clean(), "{context}: told the truth again");
        }
    }
    println!("{noticed} lies were noticed, {passed} could not be; {readable} of {pages} left most");
    count(noticed, "wrong reads");
    assert!(noticed > 200 && passed < 3);
    assert!(readable * 4 > pages * 3, "{readable} of {pages}");
}

#[test]
fn what_is_read_wrongly_once_is_named_at_most_once() {
    let mut dice = Dice(seed(122));
    let aged = aged_store(&mut dice);
    let (mut told, mut noticed, mut passed) = (0, 0, 0);
    for image in tried(&aged) {
        for what in deceits(&mut dice, image.len()) {
            if could_pass(&aged, &image, what) {
                passed += 1;
                continue;
            }
            let how = HOWS[dice.below(2) as usize];
            // The first read of it may be one ahead of need, or the verification's.
            let after = dice.below(2);
            let context = format!("{image:?}, {what:?} after {after}, {how:?}");
            let start = image.start as u64;
            let lie = Lie::once(what, after).of(path()).within(start..start + 1);
            let disk = lying_disk(&aged, lie);
            let db = match open(&options(), &disk, how) {
                Ok(db) => db,
                Err(error) => {
                    assert_damage(&error, &context);
                    noticed += 1;
                    let seen = open_and_look(&disk, how, &aged.model, &context);
                    assert!(seen.is_clean(), "{context}: opened again");
                    continue;
                }
            };
            let seen = look(&db, &aged.model, &context);
            disk.clear_lies();
            told += u64::from(disk.lies_told().iter().any(|told| told.differs));
            noticed += u64::from(!seen.is_clean());
            assert_eq!(read_all(&db, &aged.model, &context), 0, "{context}: told the truth again");
            assert_sound(&db, &context);
        }
    }
    println!("{noticed} of {told} lies were noticed, {passed} left out");
    count(told, "wrong reads");
    // What is read ahead of need is read again when it is wrong.
    assert!(told > 150 && noticed * 8 > told && passed < 3, "{noticed} of {told}");
}

/// Of each superblock there are two blocks; what one of them says wrongly changes no answer.
#[test]
fn one_block_of_a_superblock_that_is_read_wrongly_changes_nothing() {
    let mut dice = Dice(seed(123));
    let aged = aged_store(&mut dice);
    let mut differed = 0;
    for position in POSITIONS {
        let mut instead = deceits(&mut dice, SUPERBLOCK_BYTES);
        instead.push(Deceit::ReadMisdirected { by_bytes: 16 << 10 });
        instead.push(Deceit::ReadMisdirected { by_bytes: -(32 << 10) });
        // In what is used of it.
        instead.extend((0..24).map(|_| Deceit::BitFlipped { bit: dice.below(8 * 192) }));
        for what in instead {
            for how in HOWS {
                let context = format!("block at {position}, {what:?}, {how:?}");
                let lie = Lie::once(what, 0).of(path()).within(position..position + 1).sticky();
                let disk = lying_disk(&aged, lie);
                let db = open(&options(), &disk, how)
                    .unwrap_or_else(|error| panic!("{context}: {error:?}"));
                assert!(contents(&db).unwrap() == aged.model, "{context}");
                drop(db);
                differed += u64::from(disk.lies_told().iter().any(|told| told.differs));
                // An opening for writing has healed what was whole.
                disk.clear_lies();
                let db = open(&options(), &disk, OpenHow::Existing).unwrap();
                // Before a verification, which may give space back.
                let bytes = disk.state().contents(path()).unwrap();
                let at = position as usize..position as usize + SUPERBLOCK_BYTES;
                assert!(bytes[at.clone()] == aged.bytes[at], "{context}: another superblock");
                assert!(contents(&db).unwrap() == aged.model, "{context}: told the truth again");
                assert_sound(&db, &context);
            }
        }
    }
    count(differed, "wrong reads");
    assert!(differed > 150);
}

/// Two lies that fit together: of the last checkpoint no trace is left. What cannot be noticed; but then it is the
/// checkpoint before, and nothing else.
#[test]
fn a_newest_superblock_that_was_never_written_leaves_the_checkpoint_before() {
    let mut dice = Dice(seed(124));
    let mut lost = 0;
    for _ in 0..20 {
        let disk = SimDisk::new(dice.roll());
        let db = open(&options(), &disk, OpenHow::New).unwrap();
        let mut model = Model::new();
        for n in 0..300 {
            put(&db, &mut model, &mut dice, n);
            if dice.below(60) == 0 {
                db.checkpoint().unwrap();
            }
        }
        db.checkpoint().unwrap();
        let before = model.clone();
        for _ in 0..100 {
            let n = dice.below(400);
            put(&db, &mut model, &mut dice, n);
        }
        disk.inject_lie(Lie::once(Deceit::WriteLost, 0).within(0..HEADER_REGION_BYTES).sticky());
        db.close().unwrap();
        let told = disk.lies_told().len();
        assert!(told >= 2, "both blocks");
        lost += told as u64;
        disk.clear_lies();
        for how in HOWS {
            open_and_look(&disk, how, &before, &format!("{how:?}, without the last superblock"));
        }
    }
    count(lost, "wrong writes");
}
