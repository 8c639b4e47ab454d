//! Forged superblocks, page maps and zone tables: whatever they say of the file, opening, reading, changing and
//! verifying the store gives answers or typed errors; never a panic, endless work or memory without bound.
//!
//! Bytes that are changed anywhere seldom get here: two copies of a superblock must say the same to be believed, and
//! a word of a part is a slot whose length, place and tag are looked at together. So here the fields of both copies
//! of the newest superblock are given values, and words of parts become those of other parts, or nearly themselves.
//! Checksums need no repair: in a fuzzing build they cover nothing.

#![no_main]

use arbitrary::Arbitrary;
use hedgerow::internals::store::superblock::positions_of;
use hedgerow_fuzz::damage::Buffer;
use hedgerow_fuzz::exercise;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

/// Where the fields of a superblock begin that say something of this very checkpoint, and their bytes.
const FIELDS: [(usize, usize); 24] = [
    (16, 4),
    (20, 4),
    (24, 8),
    (32, 8),
    (40, 8),
    (64, 8),
    (72, 4),
    (76, 4),
    (80, 4),
    (84, 4),
    (88, 4),
    (92, 1),
    (93, 1),
    (94, 2),
    (96, 8),
    (104, 8),
    (112, 8),
    (120, 8),
    (128, 8),
    (136, 4),
    (140, 4),
    (144, 8),
    (152, 8),
    (160, 8),
];
const CHECKPOINT: usize = 64;
const PART_BYTES: usize = 4096;
const PART_MAGIC: &[u8] = b"HgPt";
const UNIT_BYTES: usize = 512;
/// Changes that are made at most.
const MOST: usize = 8;

#[derive(Arbitrary, Debug)]
enum Change {
    /// A field of both copies of the newest superblock.
    Field { field: u8, value: Value },
    /// A word of a part, its header included.
    Word { part: u8, word: u16, value: Value },
    /// The header of a part: kind, level, index, number of the checkpoint.
    Header { part: u8, at: u8, byte: u8 },
    /// A whole part is what another one is.
    Part { part: u8, other: u8 },
}

/// What a number becomes.
#[derive(Arbitrary, Debug)]
enum Value {
    Is(u64),
    Small(u8),
    More(i8),
    Flip(u8),
    /// A word of a part: a slot where one is expected, though another one.
    Word {
        part: u8,
        word: u16,
    },
}

/// Where the sound store has its parts, in use or not any more, and their words that are not zero.
struct Parts {
    at: Vec<usize>,
    newest: u32,
}

fn parts() -> &'static Parts {
    static PARTS: OnceLock<Parts> = OnceLock::new();
    PARTS.get_or_init(|| {
        let bytes = &exercise::image().bytes;
        let is_part = |at: &usize| bytes.get(at + 8..at + 12) == Some(PART_MAGIC);
        let last = bytes.len() - PART_BYTES;
        let at: Vec<usize> = (0..=last).step_by(UNIT_BYTES).filter(is_part).collect();
        assert!(at.len() >= 3, "a leaf of the map, and two levels of the table");
        let number = |pair: u32| number_at(bytes, positions_of(pair)[0] as usize + CHECKPOINT, 8);
        Parts { at, newest: u32::from(number(1) > number(0)) }
    })
}

fn number_at(bytes: &[u8], at: usize, len: usize) -> u64 {
    let mut number = [0; 8];
    number[..len].copy_from_slice(&bytes[at..at + len]);
    u64::from_le_bytes(number)
}

impl Parts {
    /// Where a word of a part lies: of those that are not zero, or any.
    fn word(&self, bytes: &[u8], part: u8, word: u16) -> usize {
        let part = self.at[usize::from(part) % self.at.len()];
        let words = PART_BYTES / 8;
        // The upper bit: any word. Most are zero, and few of them are worth a try.
        if word >> 15 == 1 {
            return part + usize::from(word) % words * 8;
        }
        let used = (0..words).map(|word| part + word * 8);
        let used: Vec<usize> = used.filter(|at| number_at(bytes, *at, 8) != 0).collect();
        used[usize::from(word) % used.len()]
    }
}

impl Value {
    fn of(&self, old: u64, parts: &Parts, bytes: &[u8]) -> u64 {
        match *self {
            Value::Is(value) => value,
            Value::Small(value) => u64::from(value),
            Value::More(more) => old.wrapping_add_signed(i64::from(more)),
            Value::Flip(bit) => old ^ 1 << (bit % 64),
            Value::Word { part, word } => number_at(bytes, parts.word(bytes, part, word), 8),
        }
    }
}

fn change(bytes: &mut [u8], sound: &[u8], parts: &Parts, change: &Change) {
    match change {
        Change::Field { field, value } => {
            let (field, len) = FIELDS[usize::from(*field) % FIELDS.len()];
            for copy in positions_of(parts.newest) {
                let at = copy as usize + field;
                let new = value.of(number_at(sound, at, len), parts, sound);
                bytes[at..at + len].copy_from_slice(&new.to_le_bytes()[..len]);
            }
        }
        Change::Word { part, word, value } => {
            let at = parts.word(sound, *part, *word);
            let new = value.of(number_at(sound, at, 8), parts, sound);
            bytes[at..at + 8].copy_from_slice(&new.to_le_bytes());
        }
        Change::Header { part, at, byte } => {
            let part = parts.at[usize::from(*part) % parts.at.len()];
            bytes[part + usize::from(at % 32)] = *byte;
        }
        Change::Part { part, other } => {
            let [part, other] =
                [part, other].map(|part| parts.at[usize::from(*part) % parts.at.len()]);
            bytes[part..part + PART_BYTES].copy_from_slice(&sound[other..other + PART_BYTES]);
        }
    }
}

fuzz_target!(|input: (bool, Vec<Change>)| {
    let (writes, changes) = input;
    let (sound, parts) = (&exercise::image().bytes, parts());
    let mut bytes = Buffer::of(sound);
    for made in changes.iter().take(MOST) {
        change(&mut bytes, sound, parts, made);
    }
    exercise::open_and_use(&bytes, writes);
});
