//! Forged pages in a store: whatever a page holds, reading and writing end in an answer or an error.
//!
//! A small sound store is made once. Each input changes bytes of some of its pages; then the checksum
//! is repaired, and with it the 14 bits of it that the page map keeps (by trying numbers in a field
//! that nothing reads yet), so that the pages pass for sound ones. Wrong answers are expected; panics,
//! endless loops and reads out of bounds are what is looked for.

#![no_main]

use arbitrary::Arbitrary;
use hedgerow::checksum::page_checksum;
use hedgerow::page::header::{CHECKSUM, NEWEST_LSN, PAGE_ID};
use hedgerow::storage::{DirectIo, Disk, OpenMode, RamDisk};
use hedgerow::store::OpenHow;
use hedgerow::{Database, Keyspace, Options, PageId};
use libfuzzer_sys::fuzz_target;
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
    bytes: Vec<u8>,
    pages: Vec<usize>,
}

fn options() -> Options {
    Options::new().memory_limit_bytes(8 << 20).direct_io(false)
}

fn key(n: u32) -> Vec<u8> {
    format!("http://www.example.org/{:02}/{n:06}", n % 7).into_bytes()
}

fn sound() -> &'static Sound {
    static SOUND: OnceLock<Sound> = OnceLock::new();
    SOUND.get_or_init(|| {
        let disk = RamDisk::new();
        let options = options().page_bytes(PAGE_BYTES);
        let db = options.on_disk(&disk, Path::new(STORE), OpenHow::New).expect("a store is made");
        let keyspace = db.keyspace("forged").expect("a keyspace is made");
        for n in 0..RECORDS {
            keyspace.put(&key(n), &key(n ^ 1)).expect("a record is put");
        }
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
        assert!(pages.len() > 20, "only {} pages were found", pages.len());
        Sound { bytes, pages }
    })
}

fn page_id(page: &[u8]) -> PageId {
    let mut id = [0; 4];
    id.copy_from_slice(&page[PAGE_ID..PAGE_ID + 4]);
    PageId(u32::from_le_bytes(id))
}

fuzz_target!(|forgeries: Vec<Forgery>| {
    let sound = sound();
    let mut bytes = sound.bytes.clone();
    for forgery in forgeries.iter().take(4) {
        forge(sound, &mut bytes, forgery);
    }
    let disk = RamDisk::new();
    let file =
        disk.open(Path::new(STORE), OpenMode::CreateNew, DirectIo::Never).expect("a file is made");
    file.set_len(bytes.len() as u64).expect("the file gets its length");
    file.write_at(0, &bytes).expect("the file is written");
    drop(file);
    // Damage that opening meets is an error as well.
    let open = |how| options().on_disk(&disk, Path::new(STORE), how);
    let Ok(db) = open(OpenHow::Existing) else { return };
    if let Ok(Some(keyspace)) = db.open_keyspace("forged") {
        read(&db, &keyspace);
        write(&keyspace);
        read(&db, &keyspace);
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
fn read(db: &Database, keyspace: &Keyspace) {
    let keys: Vec<_> = (0..RECORDS).step_by(61).map(key).collect();
    for key in &keys {
        let _ = keyspace.get(key);
    }
    let _ = keyspace.get_many(&keys);
    let _ = keyspace.iter().take(MAX_SCANNED).count();
    let _ = keyspace.iter().rev().take(MAX_SCANNED).count();
    let _ = keyspace.prefix(b"http://www.example.org/03/").take(MAX_SCANNED).count();
    let _ = keyspace.range(&key(5)[..]..&key(6)[..]).rev().take(MAX_SCANNED).count();
    let _ = keyspace.stats();
    let _ = db.space_report();
    let _ = db.verify(|_| {});
}

/// Changes all over the tree.
fn write(keyspace: &Keyspace) {
    for n in (0..RECORDS).step_by(17) {
        let _ = keyspace.put(&key(n), &vec![b'v'; n as usize % 200]);
        let _ = keyspace.remove(&key(n + 1));
        let _ = keyspace.put(&key(n + RECORDS), b"new");
    }
}
