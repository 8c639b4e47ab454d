//! Stores from within: what is forged in them, and what is in the way of an opening, a creation or a checkpoint.

mod books;
mod catalogue;
mod checkpoint;
mod creation;
mod large_move;
mod large_values;
mod loading;
mod opening;
mod repair;
mod verify;

use super::open::read_superblocks;
use super::superblock::{self, Superblock};
use super::{OpenHow, PoolTree, Store, StoreOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{DirectIo, Disk, OpenMode, SimDisk};
use std::path::Path;

fn path() -> &'static Path {
    Path::new("/data/birds.hrow")
}

/// Pages of 512 bytes, and no log.
fn options() -> StoreOptions {
    StoreOptions {
        page_bytes: Some(512),
        background: false,
        zone_bytes: Some(32 << 10),
        ..StoreOptions::without_log(4 << 20)
    }
}

fn logged() -> StoreOptions {
    StoreOptions { log: true, log_segment_blocks: Some(6), ..options() }
}

fn open(options: &StoreOptions, disk: &dyn Disk, how: OpenHow) -> Result<Store> {
    Store::open(options, disk, path(), how)
}

fn new_store() -> (SimDisk, Store) {
    let disk = SimDisk::new(1);
    let store = open(&options(), &disk, OpenHow::New).unwrap();
    (disk, store)
}

/// Changes the newest superblock of a closed store, and writes both of its blocks as if it had always been so.
fn forge_superblock(disk: &SimDisk, change: impl FnOnce(&mut Superblock)) {
    let file = disk.open(path(), OpenMode::ReadWrite, DirectIo::Never).unwrap();
    let mut chosen = read_superblocks(&*file).unwrap();
    change(&mut chosen.superblock);
    for offset in superblock::positions_of(chosen.pair) {
        file.write_at(offset, &*chosen.superblock.encode(chosen.pair)).unwrap();
    }
}

fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupted { .. })
}

fn is_clean(store: &Store) -> bool {
    store.verify(|_| {}).unwrap().is_clean()
}

/// Puts a large value, and gives its stored form.
fn put_large(store: &Store, tree: &PoolTree, key: &[u8], len: usize) -> Vec<u8> {
    store.expect_stored_forms();
    let mut writer = store.write_large(len as u64, 200).unwrap();
    writer.write(&vec![b'x'; len]).unwrap();
    writer.finish().unwrap();
    let stored = writer.stored_form();
    tree.put(key, &stored).unwrap();
    writer.keep();
    stored
}
