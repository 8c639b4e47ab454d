//! Forged pages in a store: whatever a page holds, reading and writing end in an answer or an error.
//!
//! A small sound store of each leaf layout is made once. Each input chooses one and changes bytes of some of its
//! pages; then the checksum is repaired, and with it the 14 bits of it that the page map keeps (by trying numbers
//! in a field that nothing reads yet), so that the pages pass for sound ones. Wrong answers are expected; panics,
//! endless loops and reads out of bounds are what is looked for. The input also says by which policy leaves are
//! written to afterwards, so that forged leaves are converted.

#![no_main]

use arbitrary::Arbitrary;
use hedgerow::internals::checksum::page_checksum;
use hedgerow::internals::page::header::{CHECKSUM, NEWEST_LSN, PAGE_ID};
use hedgerow::internals::storage::{DirectIo, Disk, OpenMode};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Keyspace, LeafLayout, LeafPolicy, Options, PageId};
use hedgerow_testing::RamDisk;
use libfuzzer_sys::fuzz_target;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::OnceLock;

const PAGE_BYTES: usize = 2048;
const STORE: &str = "forged.hrow";
/// Records of the store: enough for a tree of two levels of small pages.
const RECORDS: u32 = 800;
/// Alignment of pages in the file.
const UNIT_BYTES: usize = 512;
/// Most records that a scan of a forged tree is followed for.
const MAX_SCANNED: usize = 2_000;

#[derive(Arbitrary, Debug)]
struct Input {
    /// What the leaves of the store are, of [`LeafLayout::ALL`].
    layout: u8,
    /// What the store is opened with once it is forged, of [`policy`].
    policy: u8,
    forgeries: Vec<Forgery>,
}

#[derive(Arbitrary, Debug)]
struct Forgery {
    page: u16,
    changes: Vec<Change>,
}

#[derive(Arbitrary, Debug)]
enum Change {
    /// A byte near the start, where the fields and the slots are.
    Front { at: u8, byte: u8 },
    /// A byte anywhere.
    Byte { at: u16, byte: u8 },
    /// A number of two bytes anywhere.
    Number { at: u16, number: u16 },
    /// The same byte many times.
    Fill { at: u16, len: u16, byte: u8 },
    /// Bytes of another page.
    Copy { page: u16, at: u16, len: u16 },
}

/// The file of a sound store, and where its pages are.
struct Sound {
    layout: LeafLayout,
    bytes: Vec<u8>,
    pages: Vec<usize>,
}

fn options(policy: LeafPolicy) -> Options {
    Options::new().memory_limit_bytes(8 << 20).direct_io(false).leaves(policy)
}

/// Adaptive, or one of the layouts.
fn policy(number: u8) -> LeafPolicy {
    let number = usize::from(number) % (LeafLayout::ALL.len() + 1);
    LeafLayout::ALL.get(number).map_or(LeafPolicy::Adaptive, |layout| LeafPolicy::Fixed(*layout))
}

/// Integers of four bytes for dense leaves, one in eight of which is not there, and URLs for the others.
fn key(layout: LeafLayout, n: u32) -> Vec<u8> {
    if layout.is_dense() {
        (n + n / 7).to_be_bytes().to_vec()
    } else {
        format!("http://www.example.org/{:02}/{n:06}", n % 7).into_bytes()
    }
}

/// Of one length, as fully dense leaves want them.
fn value(n: u32) -> Vec<u8> {
    format!("{n:024}").into_bytes()
}

impl Sound {
    fn of(layout: LeafLayout) -> &'static Sound {
        static SOUND: [OnceLock<Sound>; LeafLayout::ALL.len()] =
            [const { OnceLock::new() }; LeafLayout::ALL.len()];
        SOUND[layout as usize].get_or_init(|| Sound::new(layout))
    }

    fn new(layout: LeafLayout) -> Sound {
        let disk = RamDisk::new();
        let options = options(LeafPolicy::Fixed(layout)).page_bytes(PAGE_BYTES);
        let db = options.on_disk(&disk, Path::new(STORE), OpenHow::New).expect("a store is made");
        let keyspace = db.keyspace("forged").expect("a keyspace is made");
        for n in 0..RECORDS {
            keyspace.put(&key(layout, n), &value(n)).expect("a record is put");
        }
        let stats = keyspace.stats().expect("a sound tree is walked");
        assert!(
            stats.leaves_of(layout).records * 10 > u64::from(RECORDS) * 9,
            "{:?}",
            stats.leaves
        );
        db.close().expect("the store closes");
        let file = disk
            .open(Path::new(STORE), OpenMode::ReadOnly, DirectIo::Never)
            .expect("the file opens");
        let mut bytes = vec![0; file.len_bytes().expect("the file has a length") as usize];
        file.read_at(0, &mut bytes).expect("the file is read");
        let is_page = |at: &usize| {
            bytes.get(*at..*at + PAGE_BYTES).is_some_and(|page| {
                page_checksum(page_id(page), page).to_le_bytes() == page[CHECKSUM..CHECKSUM + 8]
            })
        };
        let pages: Vec<usize> = (0..bytes.len()).step_by(UNIT_BYTES).filter(is_page).collect();
        assert!(pages.len() > 10, "only {} pages were found", pages.len());
        Sound { layout, bytes, pages }
    }
}

fn page_id(page: &[u8]) -> PageId {
    let mut id = [0; 4];
    id.copy_from_slice(&page[PAGE_ID..PAGE_ID + 4]);
    PageId(u32::from_le_bytes(id))
}

fuzz_target!(|input: Input| {
    let sound = Sound::of(LeafLayout::ALL[usize::from(input.layout) % LeafLayout::ALL.len()]);
    let mut bytes = sound.bytes.clone();
    for forgery in input.forgeries.iter().take(4) {
        forge(sound, &mut bytes, forgery);
    }
    let disk = RamDisk::new();
    let file =
        disk.open(Path::new(STORE), OpenMode::CreateNew, DirectIo::Never).expect("a file is made");
    file.set_len(bytes.len() as u64).expect("the file gets its length");
    file.write_at(0, &bytes).expect("the file is written");
    drop(file);
    // Damage that opening meets is an error as well.
    let opened = options(policy(input.policy)).on_disk(&disk, Path::new(STORE), OpenHow::Existing);
    let Ok(db) = opened else { return };
    if let Ok(Some(keyspace)) = db.open_keyspace("forged") {
        read(&db, &keyspace, sound.layout);
        write(&keyspace, sound.layout);
        read(&db, &keyspace, sound.layout);
    }
    let _ = db.close();
});

/// Changes a page and makes it pass for a sound one.
fn forge(sound: &Sound, bytes: &mut [u8], forgery: &Forgery) {
    let start = |page: u16| sound.pages[usize::from(page) % sound.pages.len()];
    let at = start(forgery.page);
    let mut page = bytes[at..at + PAGE_BYTES].to_vec();
    let (id, tag) = (page_id(&page), tag(&page));
    let clamp = |at: u16| usize::from(at) % PAGE_BYTES;
    for change in &forgery.changes {
        match *change {
            Change::Front { at, byte } => page[usize::from(at)] = byte,
            Change::Byte { at, byte } => page[clamp(at)] = byte,
            Change::Number { at, number } => {
                let at = clamp(at).min(PAGE_BYTES - 2);
                page[at..at + 2].copy_from_slice(&number.to_le_bytes());
            }
            Change::Fill { at, len, byte } => {
                let at = clamp(at);
                let end = PAGE_BYTES.min(at + clamp(len));
                page[at..end].fill(byte);
            }
            Change::Copy { page: other, at, len } => {
                let at = clamp(at);
                let end = PAGE_BYTES.min(at + clamp(len));
                let from = start(other);
                page[at..end].copy_from_slice(&sound.bytes[from + at..from + end]);
            }
        }
    }
    page[PAGE_ID..PAGE_ID + 4].copy_from_slice(&id.0.to_le_bytes());
    // One number in 16,384 gives the bits that the map has.
    for salt in 0..200_000u64 {
        page[NEWEST_LSN..NEWEST_LSN + 8].copy_from_slice(&salt.to_le_bytes());
        let checksum = page_checksum(id, &page);
        page[CHECKSUM..CHECKSUM + 8].copy_from_slice(&checksum.to_le_bytes());
        if self::tag(&page) == tag {
            bytes[at..at + PAGE_BYTES].copy_from_slice(&page);
            return;
        }
    }
}

/// The bits of a page's checksum that the page map keeps.
fn tag(page: &[u8]) -> u16 {
    u16::from_le_bytes([page[CHECKSUM + 6], page[CHECKSUM + 7]]) >> 2
}

/// Every way of reading. What comes back may be anything, but it has to come back.
fn read(db: &Database, keyspace: &Keyspace, layout: LeafLayout) {
    let keys: Vec<_> = (0..RECORDS).step_by(61).map(|n| key(layout, n)).collect();
    for key in &keys {
        let _ = keyspace.get(key);
    }
    let _ = keyspace.get_many(&keys);
    let _ = keyspace.iter().take(MAX_SCANNED).count();
    let _ = keyspace.iter().rev().take(MAX_SCANNED).count();
    let _ = keyspace.prefix(&keys[5][..keys[5].len() - 1]).take(MAX_SCANNED).count();
    let _ = keyspace.range(&keys[6][..]..&keys[9][..]).rev().take(MAX_SCANNED).count();
    let _ = keyspace.stats();
    let _ = db.space_report();
    let _ = db.verify(|_| ControlFlow::Continue(()));
}

/// Changes all over the tree: of other lengths, of the same ones, and new ones.
fn write(keyspace: &Keyspace, layout: LeafLayout) {
    for n in (0..RECORDS).step_by(17) {
        let _ = keyspace.put(&key(layout, n), &vec![b'v'; n as usize % 200]);
        let _ = keyspace.remove(&key(layout, n + 1));
        let _ = keyspace.put(&key(layout, n + 2), &value(n));
        let _ = keyspace.put(&key(layout, n + RECORDS), &value(n));
    }
}
