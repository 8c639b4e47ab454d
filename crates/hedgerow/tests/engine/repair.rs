//! Repair of damaged stores: whatever byte is damaged, what is not named as lost is in the new store.

use crate::common::{Dice, Model, Step, assert_sound, change, contents, open, path, seed, tiny};
use hedgerow::internals::storage::Disk;
use hedgerow::internals::store::{OpenHow, log_path};
use hedgerow::{ErrorKind, Options, PageId, RepairReport, Result};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::{CallKind, Fault};
use std::ops::ControlFlow;
use std::path::Path;

const REPAIRED: &str = "/data/repaired.hrow";
const CATALOGUE: PageId = PageId(4);

fn options() -> Options {
    tiny().zone_bytes(32 << 10)
}

fn repair(disk: &SimDisk) -> Result<RepairReport> {
    options().repair_on_disk(disk, path(), Path::new(REPAIRED), |_| ControlFlow::Continue(()))
}

fn repaired(disk: &SimDisk) -> Model {
    let db = options().on_disk(disk, Path::new(REPAIRED), OpenHow::Existing).unwrap();
    assert_sound(&db, "repaired");
    let found = contents(&db).unwrap();
    db.close().unwrap();
    found
}

/// The bytes of a store of several levels, which was changed for a while and closed, and what is in it.
fn store(dice: &mut Dice) -> (Vec<u8>, Model) {
    let disk = SimDisk::new(1);
    let db = open(&options(), &disk, OpenHow::New).unwrap();
    let mut model = Model::new();
    for (keyspace, count) in [("wrens", 500), ("gulls", 30), ("wrens", 200)] {
        let puts = Step::Puts { keyspace, count, below: 900, value_bytes: 60 };
        change(&db, &mut model, &puts, dice).unwrap();
        db.checkpoint().unwrap();
    }
    let removes = Step::Removes { keyspace: "wrens", below: 900, every: 2 };
    change(&db, &mut model, &removes, dice).unwrap();
    db.close().unwrap();
    (disk.state().contents(path()).unwrap(), model)
}

fn disk_with(bytes: &[u8]) -> SimDisk {
    let disk = SimDisk::new(2);
    disk.change_state(|state| state.set_contents(path(), bytes)).unwrap();
    disk
}

/// Whether the report says that the record may be lost.
fn is_named(report: &RepairReport, keyspace: &str, key: &[u8]) -> bool {
    report.damaged.iter().any(|lost| {
        let here = lost.keyspace.as_deref() == Some(keyspace);
        lost.keys.as_ref().filter(|keys| here && !keys.is_inner).is_some_and(|keys| {
            keys.above.as_deref().is_none_or(|above| key > above)
                && keys.up_to.as_deref().is_none_or(|up_to| key <= up_to)
        })
    })
}

#[test]
fn a_sound_store_comes_out_as_it_is() {
    let (bytes, model) = store(&mut Dice(seed(91)));
    let disk = disk_with(&bytes);
    let report = repair(&disk).unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.records, model.values().map(|records| records.len() as u64).sum::<u64>());
    assert_eq!(report.keyspaces, 2);
    assert_eq!(repaired(&disk), model);
    assert_eq!(disk.state().contents(path()).unwrap(), bytes, "the old file is only read");
}

#[test]
fn of_a_damaged_page_only_its_own_records_are_lost_and_named() {
    let mut dice = Dice(seed(92));
    let (bytes, model) = store(&mut dice);
    let (mut leaves, mut inner, mut maps, mut names, mut lost) = (0, 0, 0, 0, 0);
    let first = hedgerow::internals::space::HEADER_REGION_BYTES as usize;
    for page in (first..bytes.len()).step_by(512) {
        let mut damaged = bytes.clone();
        damaged[page + dice.below(512) as usize] ^= 1 << dice.below(8);
        let disk = disk_with(&damaged);
        let report = repair(&disk).unwrap_or_else(|error| panic!("at {page}: {error:?}"));
        let found = repaired(&disk);
        if report.damaged.iter().any(|lost| lost.page == CATALOGUE) {
            // Nothing is lost but the names.
            let all = |model: &Model| -> usize { model.values().map(|found| found.len()).sum() };
            assert_eq!(all(&found), all(&model), "{report:?}");
            assert!(found.keys().all(|name| name.starts_with("recovered-")), "{report:?}");
            names += 1;
            continue;
        }
        for (keyspace, records) in &model {
            for (key, value) in records {
                match found[keyspace].get(key) {
                    Some(there) => assert_eq!(there, value, "at {page}"),
                    None => {
                        assert!(is_named(&report, keyspace, key), "at {page}: {key:?} {report:?}");
                        lost += 1;
                    }
                }
            }
        }
        // The zone table tells images that are in use from those that were, or the other way round the map does.
        let extra = found.iter().any(|(name, records)| {
            records.keys().any(|key| !model.get(name).is_some_and(|known| known.contains_key(key)))
        });
        assert!(!extra, "at {page}: {report:?}");
        maps += u64::from(!report.defects.is_empty());
        for lost in &report.damaged {
            let keys = lost.keys.as_ref().expect("its parent is whole");
            assert!(lost.keyspace.is_some() && lost.offset_bytes as usize == page, "{lost:?}");
            if keys.is_inner { inner += 1 } else { leaves += 1 }
        }
    }
    println!(
        "{leaves} leaves with {lost} records, {inner} inner nodes, {maps} parts, {names} names"
    );
    assert!(leaves > 20 && lost > 50 && inner > 0 && maps > 0 && names > 0);
}

/// A disk that cannot read a place is what repair is for.
#[test]
fn a_place_that_cannot_be_read_is_lost_and_the_rest_is_not() {
    let (bytes, model) = store(&mut Dice(seed(95)));
    let (mut named, mut refused) = (0, 0);
    for call in 0..400 {
        let disk = disk_with(&bytes);
        disk.inject(Fault::once(CallKind::Read, call, Fault::EIO));
        let Ok(report) = repair(&disk) else {
            // The superblocks, or the new store.
            refused += 1;
            continue;
        };
        disk.clear_faults();
        if report.is_clean() {
            continue;
        }
        named += 1;
        let found = repaired(&disk);
        for (keyspace, records) in &found {
            for (key, value) in records {
                // Its name may be lost.
                let is_there = |name: &str| model[name].get(key) == Some(value);
                let found = match model.contains_key(keyspace) {
                    true => is_there(keyspace),
                    false => model.keys().any(|name| is_there(name)),
                };
                assert!(found, "call {call}: {keyspace}");
            }
        }
    }
    println!("{named} named, {refused} refused");
    assert!(named > 50 && refused < 100);
}

#[test]
fn a_parent_and_its_children_may_be_damaged_together() {
    let mut dice = Dice(seed(93));
    let (bytes, model) = store(&mut dice);
    for round in 0..40 {
        let mut damaged = bytes.clone();
        let first = hedgerow::internals::space::HEADER_REGION_BYTES as usize;
        for _ in 0..1 + round {
            let at = first + dice.below((bytes.len() - first) as u64) as usize;
            damaged[at] = !damaged[at];
        }
        let disk = disk_with(&damaged);
        let report = repair(&disk).unwrap();
        let found = repaired(&disk);
        let whole =
            report.defects.is_empty() && report.damaged.iter().all(|lost| lost.page != CATALOGUE);
        for (keyspace, records) in found.iter().filter(|_| whole) {
            for (key, value) in records {
                assert_eq!(model[keyspace].get(key), Some(value), "round {round}");
            }
        }
    }
}

#[test]
fn what_the_log_has_is_replayed_as_far_as_it_can_be_read() {
    let disk = SimDisk::new(1);
    let logged = options().memory_limit_bytes(1 << 20).log(true).log_segment_blocks(4);
    let db = logged.on_disk(&disk, path(), OpenHow::New).unwrap();
    let keyspace = db.keyspace("wrens").unwrap();
    keyspace.put(b"before", b"1").unwrap();
    db.checkpoint().unwrap();
    keyspace.put(b"before", b"2").unwrap();
    keyspace.put(b"after", b"3").unwrap();
    db.keyspace("gulls").unwrap().put(b"new", b"4").unwrap();
    db.sync().unwrap();
    let model = contents(&db).unwrap();
    let disk = disk.kill(1);
    drop((keyspace, db));
    let left = disk.state();
    let report = repair(&disk).unwrap();
    assert!(report.is_clean() && report.replayed >= 3, "{report:?}");
    assert_eq!(repaired(&disk), model);
    // Without the log, and with another file in its place: what the checkpoint has.
    for text in [None, Some(b"not a log")] {
        let disk = SimDisk::with_state(left.clone(), 3);
        disk.unlink(&log_path(path())).unwrap();
        if let Some(text) = text {
            disk.change_state(|state| state.set_contents(&log_path(path()), text)).unwrap();
        }
        let report = repair(&disk).unwrap();
        assert_eq!((report.replayed, report.defects.len()), (0, 1), "{report:?}");
        let found = repaired(&disk);
        assert_eq!(found["wrens"][&b"before"[..]], b"1");
        assert_eq!(found.len(), 1);
    }
}

#[test]
fn a_repair_that_cannot_be_made_leaves_nothing() {
    let (bytes, model) = store(&mut Dice(seed(94)));
    // In use, as the source or as the destination; no store at all.
    let disk = disk_with(&bytes);
    let db = open(&options(), &disk, OpenHow::Existing).unwrap();
    assert!(matches!(repair(&disk).unwrap_err().kind(), ErrorKind::Locked { .. }));
    db.close().unwrap();
    let report = repair(&disk).unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(repair(&disk).unwrap_err().kind(), ErrorKind::FileExists);
    assert_eq!(repaired(&disk), model);
    let text = disk_with(&[b'x'; 100_000]);
    assert_eq!(repair(&text).unwrap_err().kind(), ErrorKind::NotAStore);
    let cancelled =
        options().repair_on_disk(&disk_with(&bytes), path(), Path::new(REPAIRED), |_| {
            ControlFlow::Break(())
        });
    assert_eq!(cancelled.unwrap_err().kind(), ErrorKind::Cancelled);
    let mut failed = 0;
    for kind in [CallKind::Write, CallKind::Allocate, CallKind::SyncData, CallKind::Rename] {
        let code = if kind == CallKind::Allocate { Fault::ENOSPC } else { Fault::EIO };
        for at in (0..).step_by(7) {
            let disk = disk_with(&bytes);
            disk.inject(Fault::once(kind, at, code).sticky());
            match repair(&disk) {
                Ok(_) => break,
                Err(_) => failed += 1,
            }
            assert_eq!(disk.state().paths(), [path().into()], "{kind:?} {at}");
            assert_eq!(disk.state().contents(path()).unwrap(), bytes);
        }
    }
    assert!(failed > 5, "{failed} calls failed");
}

/// It was said only when all of the store had been read.
#[test]
fn a_log_that_came_after_the_store_is_told_before_anything_is_read() {
    let disk = SimDisk::new(1);
    let logged = options().memory_limit_bytes(1 << 20).log(true).log_segment_blocks(4);
    let put = |key: &[u8]| {
        let db = logged.on_disk(&disk, path(), OpenHow::ExistingOrNew).unwrap();
        db.keyspace("wrens").unwrap().put(key, b"1").unwrap();
        db.sync().unwrap();
        db
    };
    put(b"first").close().unwrap();
    let closed = disk.state().contents(path()).unwrap();
    let db = put(b"second");
    let disk = disk.kill(1);
    drop(db);
    disk.change_state(|state| state.set_contents(path(), &closed)).unwrap();
    let mut calls = 0;
    let refused = options().repair_on_disk(&disk, path(), Path::new(REPAIRED), |_| {
        calls += 1;
        ControlFlow::Continue(())
    });
    assert_eq!((refused.unwrap_err().kind(), calls), (ErrorKind::ForeignLog, 0));
    disk.unlink(&log_path(path())).unwrap();
    assert!(repair(&disk).unwrap().is_clean());
    assert!(repaired(&disk)["wrens"].contains_key(&b"first"[..]));
}
