//! Repair from within: what it costs.

use super::*;
use crate::store::OpenHow;
use crate::testing::SimDisk;
use hedgerow_sync::primitive::time::Moment;
use std::ops::ControlFlow;
use std::time::Duration;

/// Each of the inner nodes was compared with all damaged pages.
#[test]
fn naming_what_many_damaged_pages_held_takes_no_longer_than_reading_the_nodes() {
    const DAMAGED: u32 = 200_000;
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
    let file = disk.open(path, OpenMode::ReadOnly, options.direct()).unwrap();
    let superblock = read_superblocks(&*file).unwrap().superblock;
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
