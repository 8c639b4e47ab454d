//! Repair from within: what it costs.

use super::*;
use crate::storage::DirectIo;
use crate::store::OpenHow;
use crate::store::open::read_superblocks;
use crate::testing::SimDisk;
use hedgerow_sync::primitive::time::Moment;
use std::ops::ControlFlow;
use std::time::Duration;

/// A closed store, and what a repair needs of it.
fn left() -> (SimDisk, Arc<dyn File>, Superblock) {
    let (disk, path) = (SimDisk::new(1), Path::new("/data/birds.hrow"));
    let options = StoreOptions {
        page_bytes: Some(512),
        background: false,
        ..StoreOptions::without_log(4 << 20)
    };
    let store = Store::open(&options, &disk, path, OpenHow::New).unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..200_u32 {
        wrens.put(&n.to_be_bytes(), &[7; 100]).unwrap();
    }
    drop(wrens);
    store.close().unwrap();
    drop(store);
    let file = disk.open(path, OpenMode::ReadWrite, DirectIo::Never).unwrap();
    let superblock = read_superblocks(&*file).unwrap().superblock;
    (disk, file, superblock)
}

/// Each zone was told of, and compared with what was told of all before.
#[test]
fn a_zone_table_that_cannot_be_read_is_told_of_once_however_many_zones_there_are() {
    let progress = &mut |_| ControlFlow::Continue(());
    let (_disk, file, superblock) = left();
    let mut forged = superblock;
    forged.table.checksum ^= 1;
    let mut repair = Repair::new(file.clone(), forged, progress).unwrap();
    let first = Slot::new(superblock.geometry.zone_offset(0), 512, 0).unwrap();
    let began = Moment::now();
    for zone in 0..100_000 {
        repair.load_table_of(zone, first).unwrap();
    }
    let took = began.elapsed();
    let [defect] = &repair.report.defects[..] else { panic!("{:?}", repair.report.defects) };
    assert!(defect.contains("the zone table cannot be read") && took < Duration::from_secs(2));
    // One part of it.
    let mut repair = Repair::new(file.clone(), superblock, progress).unwrap();
    let part = repair.slots.state().zones.groups_to_load()[0].slot;
    file.write_at(part.offset_bytes() + 512, &[1; 512]).unwrap();
    for zone in 0..superblock.geometry.zones_per_group() {
        repair.load_table_of(zone, first).unwrap();
    }
    let [defect] = &repair.report.defects[..] else { panic!("{:?}", repair.report.defects) };
    assert!(defect.contains("which slots of zones 0 to"), "{defect}");
}

/// Each of the inner nodes was compared with all damaged pages.
#[test]
fn naming_what_many_damaged_pages_held_takes_no_longer_than_reading_the_nodes() {
    const DAMAGED: u32 = 200_000;
    let (_disk, file, superblock) = left();
    let progress = &mut |_| ControlFlow::Continue(());
    let mut repair = Repair::new(file, superblock, progress).unwrap();
    repair.find_pages().unwrap();
    repair.examine().unwrap();
    assert!(!repair.inner.is_empty() && repair.report.is_clean(), "{:?}", repair.report);
    repair.inner = repair.inner.repeat(500);
    let lost = |page| {
        let what = String::new();
        DamagedPage { page: PageId(page), offset_bytes: 0, what, keyspace: None, keys: None }
    };
    repair.report.damaged = (1..=DAMAGED).rev().map(lost).collect();
    let began = Moment::now();
    repair.name_lost().unwrap();
    let took = began.elapsed();
    let held =
        |(_, page, _): &(Epoch, PageId, Slot)| &repair.report.damaged[(DAMAGED - page.0) as usize];
    let leaves: Vec<&DamagedPage> = repair.leaves.iter().map(held).collect();
    let of_wrens = leaves.iter().filter(|lost| lost.keyspace.as_deref() == Some("wrens"));
    assert_eq!(of_wrens.filter(|lost| lost.keys.is_some()).count(), leaves.len() - 1);
    assert!(took < Duration::from_secs(2), "{took:?}");
}
