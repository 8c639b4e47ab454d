//! The bytes of a small store, some of them changed: opening, reading, changing and verifying it
//! gives answers or typed errors; never a panic, and it ends. One of its values is large.
//!
//! In a fuzzing build all checksums are one constant, so that a change gets past them.

#![no_main]

use arbitrary::Arbitrary;
use hedgerow::storage::{DirectIo, Disk, OpenMode, RamDisk};
use hedgerow::store::OpenHow;
use hedgerow::{Database, Options, Result, smallest_memory_limit_bytes};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::OnceLock;

const PAGE_BYTES: usize = 512;
const CHUNK_BYTES: usize = 512;
/// What a memory limit needs above the smallest for large values.
const LARGE_VALUES_BYTES: u64 = 128 << 10;
const LARGE: &[u8] = b"large";
const LARGE_BYTES: usize = 20_000;

#[derive(Arbitrary, Debug)]
struct Damage {
    /// Which of the chunks that are not zero.
    chunk: u16,
    at: u16,
    bytes: u32,
    how_many: u8,
}

#[derive(Arbitrary, Debug)]
struct Input {
    damage: Vec<Damage>,
    writes: bool,
    cut_at: Option<u16>,
}

fn options() -> Options {
    Options::new()
        .page_bytes(PAGE_BYTES)
        .memory_limit_bytes(smallest_memory_limit_bytes(PAGE_BYTES) + LARGE_VALUES_BYTES)
        .background_checkpoints(false)
        .log(false)
}

fn path() -> &'static Path {
    Path::new("fuzz")
}

struct Image {
    chunks: Vec<(u64, Vec<u8>)>,
    len: u64,
}

fn image() -> &'static Image {
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
        let file = disk.open(path(), OpenMode::ReadOnly, DirectIo::Never).unwrap();
        let len = file.len_bytes().unwrap();
        let mut chunks = Vec::new();
        for offset in (0..len).step_by(CHUNK_BYTES) {
            let mut chunk = vec![0; CHUNK_BYTES];
            file.read_unaligned(offset, &mut chunk).unwrap();
            if chunk.iter().any(|byte| *byte != 0) {
                chunks.push((offset, chunk));
            }
        }
        Image { chunks, len }
    })
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
        while cursor.next_record()?.is_some() && seen < 10_000 {
            seen += 1;
        }
        assert!(seen < 10_000, "a scan that does not end");
        keyspace.stats()?;
    }
    db.verify(|_| {})?;
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

fuzz_target!(|input: Input| {
    let image = image();
    let disk = RamDisk::new();
    let file = disk.open(path(), OpenMode::CreateNew, DirectIo::Never).unwrap();
    file.set_len(image.len).unwrap();
    for (offset, chunk) in &image.chunks {
        file.write_at(*offset, chunk).unwrap();
    }
    for damage in &input.damage {
        let (offset, chunk) = &image.chunks[usize::from(damage.chunk) % image.chunks.len()];
        let count = 1 + usize::from(damage.how_many % 4);
        let at = usize::from(damage.at) % (chunk.len() - 4);
        file.write_at(offset + at as u64, &damage.bytes.to_le_bytes()[..count]).unwrap();
    }
    if let Some(cut) = input.cut_at {
        let len = image.len * u64::from(cut) / u64::from(u16::MAX);
        file.set_len(len).unwrap();
    }
    drop(file);
    let how = if input.writes { OpenHow::Existing } else { OpenHow::ReadOnly };
    let Ok(db) = options().on_disk(&disk, path(), how) else { return };
    // Every outcome is right that is one.
    drop(use_it(&db, input.writes));
    drop(db.close());
});
