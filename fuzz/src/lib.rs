//! What the fuzz targets share: typed operations, a store beside its model, damage to files, and copies of stores.
//!
//! - [`operation`]: keys, values and operations that libFuzzer's bytes are read as.
//! - [`state`]: a store on a disk in memory and what must be in it, whatever happens to it meanwhile.
//! - [`trust`]: which answers of a store are acceptable once its files were damaged.
//! - [`damage`]: changed, zeroed, copied and cut bytes of files, placed where a file says something.
//! - [`copies`]: backup, restoration and repair of a store, and what comes out of them.
//! - [`exercise`]: every way of reading a store whose contents nobody knows, and changes all over it.
//!
//! One thread runs an input from its beginning to its end, and a store has none of its own but those that evict and read
//! ahead, so that what happens is a function of the input's bytes (but for the ids that stores give themselves, and for
//! what is in memory). It gives up by panicking.

pub mod copies;
pub mod damage;
pub mod exercise;
pub mod history;
pub mod operation;
pub mod state;
pub mod trust;

use hedgerow::internals::checksum;
use std::path::Path;

/// What a memory limit needs above the smallest for large values.
pub const LARGE_VALUES_BYTES: u64 = 128 << 10;

/// Where the store lies on its disk.
pub fn path() -> &'static Path {
    Path::new("fuzz")
}

/// Says whether checksums cover anything from here on. In a fuzzing build they cover nothing unless this says so, and
/// damage gets past them. A store must be made and opened under one setting.
pub fn set_checksums(on: bool) {
    checksum::set_covering(on);
}
