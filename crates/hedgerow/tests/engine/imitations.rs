//! Users put images of pages into values, and repair has to look for the pages of a store in the whole file: such a value
//! replaces no record of the store, and adds none that is not reported.

use crate::common::{Dice, assert_sound, contents, open, path, seed};
use crate::images::images;
use hedgerow::internals::checksum::page_checksum;
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Options, PageId, RepairReport};
use hedgerow_testing::SimDisk;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

const COPY: &str = "/data/copy.hrow";
const PAGE: usize = 4096;

fn options() -> Options {
    Options::new()
        .page_bytes(PAGE)
        .memory_limit_bytes(4 << 20)
        .zone_bytes(64 << 10)
        .background_checkpoints(false)
        .log(false)
}

fn number(image: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(image[at..at + 4].try_into().unwrap())
}

fn epoch(image: &[u8]) -> u32 {
    u32::from_le_bytes(image[16..20].try_into().unwrap())
}

fn file(disk: &SimDisk) -> Vec<u8> {
    disk.state().contents(path()).unwrap()
}

/// The newest image in the file that has these bytes, and where it is.
fn newest(bytes: &[u8], marker: &[u8]) -> (usize, Vec<u8>) {
    let found = images(bytes, PAGE).into_iter().map(|(at, len)| (at, bytes[at..at + len].to_vec()));
    let has = found.filter(|(_, image)| image.windows(marker.len()).any(|part| part == marker));
    has.max_by_key(|(_, image)| epoch(image)).expect("it was written")
}

/// Makes an image of another page, tree and epoch of it.
fn forged(image: &[u8], page: u32, tree: u32, epoch: u32) -> Vec<u8> {
    let mut image = image.to_vec();
    image[8..12].copy_from_slice(&page.to_le_bytes());
    image[12..16].copy_from_slice(&tree.to_le_bytes());
    image[16..20].copy_from_slice(&epoch.to_le_bytes());
    let checksum = page_checksum(PageId(page), &image);
    image[..8].copy_from_slice(&checksum.to_le_bytes());
    image
}

fn put(db: &Database, keyspace: &str, key: &str, value: &[u8]) {
    db.keyspace(keyspace).unwrap().put(key.as_bytes(), value).unwrap();
}

/// A store whose keyspaces have a leaf each, and more in "wrens"; and what was once in the page of "gulls", with the keys that
/// "wrens" has now.
struct Rig {
    disk: SimDisk,
    db: Database,
    /// Page and tree of "wrens" to which `key-07` belongs.
    wrens: (u32, u32),
    /// Images with records of "terns": `key-07` and one that nobody has.
    image: Vec<u8>,
}

fn rig(dice: &mut Dice) -> Rig {
    let disk = SimDisk::new(1);
    let db = open(&options(), &disk, OpenHow::New).unwrap();
    put(&db, "terns", "key-07", b"forged one");
    put(&db, "terns", "key-07b", b"forged two");
    for n in 0..20 {
        put(&db, "wrens", &format!("key-{n:02}"), b"right");
    }
    for n in 0..200 {
        let value: Vec<u8> = (0..120).map(|_| dice.below(256) as u8).collect();
        put(&db, "hosts", &format!("host-{n:03}"), &value);
    }
    db.checkpoint().unwrap();
    let bytes = file(&disk);
    let (_, image) = newest(&bytes, b"forged one");
    assert!(image.len() <= 1024, "{}", image.len());
    let (_, wrens) = newest(&bytes, b"right");
    let wrens = (number(&wrens, 8), number(&wrens, 12));
    Rig { disk, db, wrens, image }
}

/// Puts an image of `page` into a value so that it begins with a unit of the file: newer than the page of "wrens". Returns the file, and
/// where the page is that has it.
fn hide(rig: &Rig, page: u32) -> (Vec<u8>, usize, usize) {
    let mut more = 0;
    for attempt in 0..200 {
        let newer = epoch(&newest(&file(&rig.disk), b"right").1) + 1;
        let image = &*forged(&rig.image, page, rig.wrens.1, newer);
        let value = [image, &vec![b'.'; more]].concat();
        put(&rig.db, "hosts", "host-100x", &value);
        rig.db.checkpoint().unwrap();
        let bytes = file(&rig.disk);
        let (at, host) = newest(&bytes, image);
        let inside = host.windows(image.len()).position(|part| part == image).unwrap();
        // What is behind damage is unsure, so the page of "wrens" has to be before it.
        let (wrens_at, wrens) = newest(&bytes, b"right");
        let is_behind = wrens_at < at;
        if inside % 512 == 0 && is_behind && epoch(&wrens) < newer {
            return (bytes, at, at + inside);
        }
        if !is_behind {
            // A checkpoint has moved it to a gap further on: it gets another place.
            put(&rig.db, "wrens", "key-00", b"right");
            rig.db.checkpoint().unwrap();
        }
        // Whether the page was packed depends on the length of the value as well: now and then from elsewhere.
        let other = if attempt % 4 == 3 { 37 * attempt } else { inside % 512 };
        more = (more + other) % 512;
    }
    panic!("it never begins with a unit");
}

/// Spoils all parts of the map.
fn lose_the_map(bytes: &mut [u8]) {
    for at in (hedgerow::internals::space::HEADER_REGION_BYTES as usize..bytes.len()).step_by(512) {
        if bytes[at + 8..at + 13] == *b"HgPt\x01" {
            bytes[at + 100] ^= 1;
        }
    }
}

type Found = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn repaired(bytes: &[u8]) -> (RepairReport, Found) {
    let disk = SimDisk::new(2);
    disk.change_state(|state| state.set_contents(path(), bytes)).unwrap();
    let go_on = |_| ControlFlow::Continue(());
    let report = options().repair_on_disk(&disk, path(), Path::new(COPY), go_on).unwrap();
    let db = options().on_disk(&disk, Path::new(COPY), OpenHow::Existing).unwrap();
    assert_sound(&db, "the copy");
    let found = contents(&db).unwrap();
    let found = found.into_iter().map(|(name, records)| (name, records.into_iter().collect()));
    (report, found.collect())
}

fn doubts(report: &RepairReport) -> Vec<&String> {
    report.defects.iter().filter(|what| what.contains("uncertain")).collect()
}

fn assert_wrens(report: &RepairReport, found: &Found) {
    let wrens = &found["wrens"];
    for n in 0..20 {
        let value = wrens.get(format!("key-{n:02}").as_bytes());
        assert_eq!(value.map(Vec::as_slice), Some(&b"right"[..]), "key-{n:02}: {report:?}");
    }
}

#[test]
fn an_image_in_a_value_of_a_damaged_page_does_not_replace_the_page() {
    let rig = rig(&mut Dice(seed(191)));
    let (bytes, host, hidden) = hide(&rig, rig.wrens.0);
    for spoiled in [Some(host + 20), Some(hidden - 1), None] {
        let mut bytes = bytes.clone();
        lose_the_map(&mut bytes);
        if let Some(at) = spoiled {
            bytes[at] ^= 1;
        }
        let (report, found) = repaired(&bytes);
        assert_wrens(&report, &found);
        assert!(!found["wrens"].contains_key(&b"key-07b"[..]), "{spoiled:?}: {report:?}");
        if spoiled.is_none() {
            assert!(doubts(&report).is_empty(), "{report:?}");
        }
    }
}

#[test]
fn an_image_in_a_value_of_a_damaged_page_adds_nothing_that_is_not_reported() {
    let rig = rig(&mut Dice(seed(192)));
    // A page that the store does not have.
    let (whole, host, hidden) = hide(&rig, 400);
    let mut bytes = whole.clone();
    lose_the_map(&mut bytes);
    bytes[host + 20] ^= 1;
    let (report, found) = repaired(&bytes);
    assert_wrens(&report, &found);
    assert_eq!(found["wrens"][&b"key-07b"[..]], b"forged two", "{report:?}");
    let doubts = doubts(&report);
    let named = |part: &str| doubts.iter().any(|what| what.contains(part));
    assert!(
        named(&format!("at {hidden} ")) && named("from \"key-07\" to \"key-07b\""),
        "{report:?}"
    );
    // Where the map tells of the damaged page nobody looks into it.
    let mut bytes = whole;
    bytes[host + 20] ^= 1;
    let (report, found) = repaired(&bytes);
    assert_wrens(&report, &found);
    assert_eq!((report.damaged.len(), report.defects.len()), (1, 0), "{report:?}");
    assert!(!found["wrens"].contains_key(&b"key-07b"[..]));
}

/// Its leaf is lost as well, so that nothing tells of it.
#[test]
fn nor_does_one_in_a_large_value_that_nothing_refers_to() {
    let rig = rig(&mut Dice(seed(193)));
    let mut value = vec![0; 512 - 8];
    value.extend_from_slice(&forged(&rig.image, rig.wrens.0, rig.wrens.1, 3));
    value.extend_from_slice(&forged(&rig.image, 400, rig.wrens.1, 3));
    value.resize(200_000, b'.');
    put(&rig.db, "songs", "song", &value);
    put(&rig.db, "songs", "title", b"of its leaf");
    rig.db.checkpoint().unwrap();
    let mut bytes = file(&rig.disk);
    lose_the_map(&mut bytes);
    // Undamaged, the leaf tells that these are no pages.
    let (report, found) = repaired(&bytes);
    assert_wrens(&report, &found);
    assert!(doubts(&report).is_empty() && found["songs"][&b"song"[..]] == value, "{report:?}");
    let mut damaged = 0;
    for (at, len) in images(&bytes, PAGE) {
        if bytes[at..at + len].windows(11).any(|part| part == b"of its leaf") {
            bytes[at + 20] ^= 1;
            damaged += 1;
        }
    }
    assert!(damaged > 0);
    let (report, found) = repaired(&bytes);
    assert_wrens(&report, &found);
    let named = doubts(&report).iter().any(|what| what.contains("to \"key-07b\""));
    assert!(named, "{report:?}");
}
