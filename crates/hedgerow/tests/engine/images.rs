//! Pages that are larger than a unit of the file: their images are of many lengths, and what is in them comes back
//! after checkpoints, crashes, repair and from backups.

use crate::common::{Dice, Model, Step, assert_sound, change, contents, open, path, seed};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Options};
use hedgerow_testing::SimDisk;
use std::ops::ControlFlow;
use std::path::Path;

const COPY: &str = "/data/copy.hrow";

fn options(page_bytes: usize) -> Options {
    let limit = hedgerow::internals::buffer::smallest_limit_without_log_bytes(page_bytes);
    Options::new()
        .page_bytes(page_bytes)
        .memory_limit_bytes(limit)
        .zone_bytes(16 * page_bytes.max(4096) as u32)
        .background_checkpoints(false)
        .log(false)
}

/// Leaves fill, empty and fill again.
fn change_some(db: &Database, model: &mut Model, dice: &mut Dice) {
    let step = match dice.below(8) {
        0 => Step::Removes { keyspace: "wrens", below: 3000, every: 2 + dice.below(3) },
        1 => Step::Removes { keyspace: "gulls", below: 500, every: 2 },
        2 if model.contains_key("gulls") => Step::Drop("gulls"),
        2 | 3 => Step::Puts { keyspace: "gulls", count: 200, below: 500, value_bytes: 8 },
        _ => Step::Puts { keyspace: "wrens", count: 300, below: 3000, value_bytes: 90 },
    };
    change(db, model, &step, dice).unwrap();
}

/// What is in the copy that a backup or a repair has made.
fn copied(options: &Options, disk: &SimDisk) -> Model {
    let db = options.on_disk(disk, Path::new(COPY), OpenHow::Existing).unwrap();
    assert_sound(&db, "the copy");
    let found = contents(&db).unwrap();
    db.close().unwrap();
    found
}

#[test]
fn pages_with_gaps_come_back_from_images_that_have_none() {
    for page_bytes in [2048, 4096, 65_536] {
        let mut dice = Dice(seed(181));
        let (disk, options) = (SimDisk::new(1), options(page_bytes));
        let mut db = open(&options, &disk, OpenHow::New).unwrap();
        let mut model = Model::new();
        for round in 0..24 {
            change_some(&db, &mut model, &mut dice);
            db.checkpoint().unwrap();
            if round % 6 == 5 {
                assert_sound(&db, "open");
                db.close().unwrap();
                db = open(&options, &disk, OpenHow::Existing).unwrap();
                assert!(contents(&db).unwrap() == model, "pages of {page_bytes}");
            }
        }
        let pages: u64 =
            model.keys().map(|name| db.keyspace(name).unwrap().stats().unwrap().pages()).sum();
        let used = db.space_report().unwrap().used_bytes;
        println!("pages of {page_bytes}: {pages} take {used}");
        // Beside a few parts of map and zone table.
        let most = pages * page_bytes as u64 * 9 / 10 + 6 * 4096;
        assert!(used < most, "pages of {page_bytes}: {pages} take {used}");
        db.backup(COPY, |_| ControlFlow::Continue(())).unwrap();
        db.close().unwrap();
        assert!(copied(&options, &disk) == model, "pages of {page_bytes}");
    }
}

#[test]
fn a_crash_leaves_every_image_of_the_last_checkpoint_whole() {
    for page_bytes in [2048, 4096] {
        for round in 0..12 {
            let mut dice = Dice(seed(182) + round);
            let (mut disk, options) = (SimDisk::new(round), options(page_bytes));
            let mut db = open(&options, &disk, OpenHow::New).unwrap();
            let mut model = Model::new();
            for _ in 0..8 {
                for _ in 0..dice.below(3) + 1 {
                    change_some(&db, &mut model, &mut dice);
                }
                db.checkpoint().unwrap();
                // What comes after it is written to free units only, beside images that must stay.
                let mut lost = model.clone();
                for _ in 0..dice.below(4) {
                    change_some(&db, &mut lost, &mut dice);
                }
                let left = disk.crash(dice.roll());
                drop(db);
                disk = left;
                db = open(&options, &disk, OpenHow::Existing).unwrap();
                assert_sound(&db, "after a crash");
                assert!(contents(&db).unwrap() == model, "pages of {page_bytes}, round {round}");
            }
            db.close().unwrap();
        }
    }
}

/// Bytes of the store, and where the images of its pages lie, by what is at the beginning of units.
pub fn images(bytes: &[u8], page_bytes: usize) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = hedgerow::internals::space::HEADER_REGION_BYTES as usize;
    while at < bytes.len() {
        let end = (at + page_bytes).min(bytes.len());
        let len = hedgerow::internals::space::image::len_in(&bytes[at..end], page_bytes)
            .filter(|len| at + len <= end);
        let is_image = |len: &usize| {
            let image = &bytes[at..at + len];
            let id = u32::from_le_bytes(image[8..12].try_into().unwrap());
            hedgerow::internals::checksum::page_checksum(hedgerow::PageId(id), image).to_le_bytes()
                == image[..8]
        };
        match len.filter(is_image) {
            Some(len) => {
                found.push((at, len));
                at += len;
            }
            None => at += 512,
        }
    }
    found
}

#[test]
fn a_damaged_image_is_noticed_and_repair_keeps_all_others() {
    let page_bytes = 4096;
    let mut dice = Dice(seed(183));
    let (disk, options) = (SimDisk::new(1), options(page_bytes));
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let mut model = Model::new();
    for _ in 0..12 {
        change_some(&db, &mut model, &mut dice);
        db.checkpoint().unwrap();
    }
    db.close().unwrap();
    let bytes = disk.state().contents(path()).unwrap();
    let images = images(&bytes, page_bytes);
    let lens: std::collections::BTreeSet<usize> = images.iter().map(|&(_, len)| len).collect();
    assert!(lens.len() >= 4, "{lens:?}");
    let (mut noticed, mut kept) = (0, 0);
    for &(at, len) in &images {
        let mut damaged = bytes.clone();
        // Now and then the fields that say what was left out.
        let byte = if dice.below(4) == 0 { 24 + dice.below(8) } else { dice.below(len as u64) };
        damaged[at + byte as usize] ^= 1 << dice.below(8);
        let disk = SimDisk::new(2);
        disk.change_state(|state| state.set_contents(path(), &damaged)).unwrap();
        let go_on = |_| ControlFlow::Continue(());
        let report = options.repair_on_disk(&disk, path(), Path::new(COPY), go_on).unwrap();
        noticed += u64::from(!report.is_clean());
        let found = copied(&options, &disk);
        let records = |model: &Model| model.values().map(|records| records.len()).sum::<usize>();
        // A page has at most a few hundred records of these.
        assert!(records(&model) - records(&found) < 400, "at {at}: {report:?}");
        kept += usize::from(records(&found) == records(&model));
    }
    assert!(noticed > 10 && kept < images.len(), "{noticed} noticed, {kept} of {}", images.len());
}

/// Units at the end of a zone, where a whole page would not fit, are free or in use like all others.
#[test]
fn repair_finds_images_of_every_length_when_the_map_is_lost() {
    for round in 0..8 {
        images_without_a_map(round);
    }
}

fn images_without_a_map(round: u64) {
    let mut dice = Dice(seed(184) + round);
    let (disk, options) = (SimDisk::new(1), options(4096));
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let mut model = Model::new();
    for _ in 0..12 {
        change_some(&db, &mut model, &mut dice);
        db.checkpoint().unwrap();
    }
    db.close().unwrap();
    let mut bytes = disk.state().contents(path()).unwrap();
    let first = hedgerow::internals::space::HEADER_REGION_BYTES as usize;
    let mut damaged = 0;
    for at in (first..bytes.len()).step_by(512) {
        // Parts of the map, of this checkpoint and of older ones.
        if bytes[at + 8..at + 13] == *b"HgPt\x01" {
            bytes[at + 100] ^= 1;
            damaged += 1;
        }
    }
    assert!(damaged > 0);
    let disk = SimDisk::new(2);
    disk.change_state(|state| state.set_contents(path(), &bytes)).unwrap();
    let go_on = |_| ControlFlow::Continue(());
    let report = options.repair_on_disk(&disk, path(), Path::new(COPY), go_on).unwrap();
    assert!(copied(&options, &disk) == model, "{report:?}");
    // Nothing else is damaged, so nothing is in doubt.
    assert!(report.defects.iter().all(|what| what.contains("looked for")), "{report:?}");
}
