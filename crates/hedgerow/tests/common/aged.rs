//! A store that has seen some checkpoints, and the images in its file: for tests that put something else in their place,
//! at rest (`damage.rs`) or as a disk that lies (`lies.rs`).

use super::{Dice, Model, assert_sound, disk_with, effort, key, open, path, tiny};
use hedgerow::internals::space::HEADER_REGION_BYTES;
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Options};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::CallKind;
use std::collections::BTreeSet;
use std::ops::Range;

/// Pages that are tried of a store, about; all parts are.
const PAGES_TRIED: usize = 48;
pub const PAGE_BYTES: usize = 512;
pub const PART_BYTES: usize = 4096;

pub fn options() -> Options {
    tiny().zone_bytes(32 << 10)
}

/// A store after a number of checkpoints, which have changed most of its pages.
pub struct Aged {
    /// The file, closed.
    pub bytes: Vec<u8>,
    /// The file after each of the checkpoints before, the last one at the end.
    pub older: Vec<Vec<u8>>,
    pub model: Model,
}

pub fn put(db: &Database, model: &mut Model, dice: &mut Dice, n: u64) {
    let mut value = dice.roll().to_le_bytes().to_vec();
    value.resize(8 + dice.below(60) as usize, b'.');
    db.keyspace("wrens").unwrap().put(&key(n), &value).unwrap();
    model.entry("wrens".into()).or_default().insert(key(n), value);
}

/// Some 200 pages, with ids of which the map needs more than one leaf.
pub fn aged_store(dice: &mut Dice) -> Aged {
    const MOST: u64 = 6_000;
    const LEFT: u64 = 900;
    let disk = SimDisk::new(1);
    let db = open(&options(), &disk, OpenHow::New).unwrap();
    let mut model = Model::new();
    for n in 0..MOST {
        // 7,919 is prime: each number once, in an order that splits leaves everywhere.
        put(&db, &mut model, dice, n * 7_919 % MOST);
        if n % 1_500 == 1_499 {
            db.checkpoint().unwrap();
        }
    }
    let wrens = db.keyspace("wrens").unwrap();
    for n in LEFT..MOST {
        assert!(wrens.remove(&key(n)).unwrap());
        assert!(model.get_mut("wrens").unwrap().remove(&key(n)).is_some());
    }
    drop(wrens);
    let mut older = Vec::new();
    for round in 0..5 {
        db.checkpoint().unwrap();
        older.push(disk.state().contents(path()).unwrap());
        for n in (round % 3..LEFT).step_by(3) {
            put(&db, &mut model, dice, n);
        }
    }
    db.close().unwrap();
    Aged { bytes: disk.state().contents(path()).unwrap(), older, model }
}

/// Where the images lie that the file's newest checkpoint refers to: what a verification reads.
pub fn images_in_use(bytes: &[u8]) -> Vec<Range<usize>> {
    let disk = disk_with(bytes);
    let db = open(&options(), &disk, OpenHow::ReadOnly).unwrap();
    disk.record_log(true);
    assert_sound(&db, "before anything is damaged");
    let mut images = BTreeSet::new();
    for call in disk.take_log() {
        if call.kind == CallKind::Read && call.offset_bytes >= HEADER_REGION_BYTES {
            assert!([PAGE_BYTES as u64, PART_BYTES as u64].contains(&call.len_bytes), "{call:?}");
            let start = call.offset_bytes as usize;
            images.insert((start, start + call.len_bytes as usize));
        }
    }
    images.into_iter().map(|(start, end)| start..end).collect()
}

/// What an image says that it is: a page's id, or a part's magic, kind, level and index.
pub fn name_of(image: &[u8]) -> &[u8] {
    match image.len() {
        PART_BYTES => &image[8..20],
        _ => &image[8..12],
    }
}

/// Whether an older image passes for the one that should be there: what refers to an image knows 14 bits of its
/// checksum, so 1 in 16,384 does (see `docs/format.md`). Such a pair is left out: it shows nothing.
pub fn passes_for(older: &[u8], image: &[u8]) -> bool {
    name_of(older) == name_of(image) && tag_of(older) == tag_of(image)
}

pub fn tag_of(image: &[u8]) -> u64 {
    u64::from_le_bytes(image[..8].try_into().unwrap()) >> 50
}

/// The file with something else in a place.
pub fn with(bytes: &[u8], at: usize, image: &[u8]) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    damaged[at..at + image.len()].copy_from_slice(image);
    damaged
}

/// What the file had there then; zeros behind its end.
pub fn then(older: &[u8], image: &Range<usize>) -> Vec<u8> {
    let mut there = vec![0; image.len()];
    if let Some(rest) = older.get(image.start..) {
        let count = rest.len().min(there.len());
        there[..count].copy_from_slice(&rest[..count]);
    }
    there
}

/// All parts that are in use, and some of the pages.
pub fn tried(aged: &Aged) -> Vec<Range<usize>> {
    let (parts, pages): (Vec<_>, Vec<_>) =
        images_in_use(&aged.bytes).into_iter().partition(|image| image.len() == PART_BYTES);
    // The map and the table have a root and a leaf each at least, and the map one leaf more.
    assert!(parts.len() >= 5, "{} parts", parts.len());
    assert!(pages.len() > 100, "{} pages", pages.len());
    let every = (pages.len() / PAGES_TRIED / effort() as usize).max(1);
    parts.into_iter().chain(pages.into_iter().step_by(every)).collect()
}
