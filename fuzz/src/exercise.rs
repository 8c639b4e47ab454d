//! A small store that is damaged again and again, and everything that is done with what is left of it.
//!
//! The store is made once a process: two keyspaces of some leaves, a large value, pages and parts of several
//! checkpoints. What is done with it knows nothing of what may be in it: answers are right that are answers.

use crate::damage::{self, Buffer, Used};
use crate::{LARGE_VALUES_BYTES, path};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Options, Result, smallest_memory_limit_bytes};
use hedgerow_testing::RamDisk;
use std::ops::ControlFlow;
use std::sync::OnceLock;

const PAGE_BYTES: usize = 512;
const LARGE: &[u8] = b"large";
const LARGE_BYTES: usize = 20_000;
/// More records than the store can hold, whatever its pages say.
const TOO_MANY: usize = 10_000;

/// The file of the sound store, closed.
pub struct Image {
    /// All of it.
    pub bytes: Buffer,
    /// Where it has something.
    pub used: Used,
}

/// What the store is opened with: as little memory as will do, and no log.
pub fn options() -> Options {
    Options::new()
        .page_bytes(PAGE_BYTES)
        .zone_bytes(128 << 10)
        .memory_limit_bytes(smallest_memory_limit_bytes(PAGE_BYTES) + LARGE_VALUES_BYTES)
        .background_checkpoints(false)
        .log(false)
}

/// The sound store.
pub fn image() -> &'static Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let disk = RamDisk::new();
        let db = options().on_disk(&disk, path(), OpenHow::New).unwrap();
        for name in ["a", "b"] {
            let keyspace = db.keyspace(name).unwrap();
            for number in 0..200_u32 {
                keyspace.put(&number.to_be_bytes(), &[7; 30]).unwrap();
            }
            db.checkpoint().unwrap();
            for number in 50..150_u32 {
                keyspace.remove(&number.to_be_bytes()).unwrap();
            }
        }
        db.keyspace("a").unwrap().put(LARGE, &[7; LARGE_BYTES]).unwrap();
        db.close().unwrap();
        let bytes = damage::read(&disk, path()).expect("the store has a file");
        Image { used: Used::of(&bytes), bytes }
    })
}

/// Opens what is left of the store, and does everything with it. Errors may come of anything.
pub fn open_and_use(bytes: &[u8], writes: bool) {
    let disk = RamDisk::new();
    damage::write(&disk, path(), bytes);
    let how = if writes { OpenHow::Existing } else { OpenHow::ReadOnly };
    let Ok(db) = options().on_disk(&disk, path(), how) else { return };
    // Every outcome is right that is one.
    drop(use_it(&db, writes));
    drop(db.close());
    if !writes {
        let after = damage::read(&disk, path()).expect("the store has a file");
        assert!(*after == *bytes, "a store that was opened for reading has changed");
    }
}

fn use_it(db: &Database, writes: bool) -> Result<()> {
    for name in db.keyspaces()? {
        let Some(keyspace) = db.open_keyspace(&name)? else { continue };
        for number in [0_u32, 49, 50, 149, 150, 199, u32::MAX] {
            keyspace.get(&number.to_be_bytes())?;
        }
        keyspace.get(LARGE)?;
        // Whatever a damaged reference says: as a stream, from its middle on and behind its end.
        if let Some(mut reader) = keyspace.value_reader(LARGE)? {
            let mut piece = [0; 1000];
            let len = reader.len_bytes();
            for offset in [0, len / 2, len.saturating_sub(1), len, u64::MAX] {
                reader.read_at(offset, &mut piece)?;
            }
        }
        let mut cursor = keyspace.cursor();
        let mut seen = 0;
        while cursor.next_record()?.is_some() && seen < TOO_MANY {
            seen += 1;
        }
        assert!(seen < TOO_MANY, "a scan that does not end");
        keyspace.stats()?;
    }
    db.space_report()?;
    drop(db.verify(|_| ControlFlow::Continue(()))?);
    if writes {
        let keyspace = db.keyspace("a")?;
        for number in 40..80_u32 {
            keyspace.put(&number.to_be_bytes(), &[9; 20])?;
            keyspace.remove(&(number + 100).to_be_bytes())?;
        }
        // What was there is freed, or what is there instead.
        keyspace.put(LARGE, &[9; LARGE_BYTES])?;
        db.checkpoint()?;
        db.drop_keyspace("b")?;
        db.checkpoint()?;
    }
    Ok(())
}
