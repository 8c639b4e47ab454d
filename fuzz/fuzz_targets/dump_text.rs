//! Any text as a dump: loading it ends well, or with an error that names the line; the store is sound in any case. A
//! dump of what was loaded loads again, and its dump is the same text.
//!
//! What reads dumps is the tool's: its files are part of this target, with stand-ins for what they say to a terminal.
//! Text is made of lines that mostly are what a dump has, with true counts and checksums, so that it gets behind the
//! first line; then bytes of it are changed, and it is cut. Blocks of lines come as short as they may be.

#![no_main]
#![allow(dead_code, reason = "the target includes files of the tool, and uses a part of them")]

#[path = "../../crates/cli/src/dump_format.rs"]
mod dump_format;
#[path = "../../crates/cli/src/escape.rs"]
mod escape;
#[path = "../../crates/cli/src/failure.rs"]
mod failure;
#[path = "../../crates/cli/src/size.rs"]
mod size;

#[path = "../../crates/cli/src/commands/load"]
mod load {
    pub mod dump;
    pub mod reader;

    /// How long a load waits for lines before it looks whether it is to stop.
    const POLL: std::time::Duration = std::time::Duration::from_millis(50);
}

/// Stands for the handler of Ctrl-C, which nobody presses.
mod interrupt {
    use crate::failure::Failure;

    pub fn requested() -> bool {
        false
    }

    pub fn check() -> Result<(), Failure> {
        Ok(())
    }
}

/// Stands for progress bars.
mod progress {
    pub struct ProgressBar;

    impl ProgressBar {
        pub fn inc(&self, _: u64) {}

        pub fn finish_and_clear(&self) {}
    }

    pub fn counter(_: &'static str) -> ProgressBar {
        ProgressBar
    }
}

/// Stands for what the tool's commands say about the store.
mod store {
    use crate::failure::Failure;
    use hedgerow::Error;
    use std::path::Path;

    pub fn failed(doing: &str, path: &Path) -> impl FnOnce(Error) -> Failure {
        let doing = format!("cannot {doing} {}", path.display());
        move |error| Failure::Engine(doing, error)
    }
}

use arbitrary::Arbitrary;
use dump_format::Section;
use failure::Failure;
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Options, smallest_memory_limit_bytes};
use hedgerow_fuzz::{LARGE_VALUES_BYTES, path};
use hedgerow_testing::RamDisk;
use libfuzzer_sys::fuzz_target;
use load::reader::Block;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, sync_channel};

const PAGE_BYTES: usize = 512;
/// Lines of a dump at most.
const MOST_LINES: usize = 200;
/// The longest value that is made of a few bytes.
const LONG_BYTES: u16 = 3_000;

#[derive(Arbitrary, Debug)]
enum Line {
    /// Any bytes, and a newline.
    Raw(Vec<u8>),
    Keyspace(u8),
    Record {
        key: Vec<u8>,
        value: Vec<u8>,
    },
    /// A record whose key comes behind those before.
    Next {
        value_bytes: u16,
    },
    /// A value in pieces, the last of which may be too long or missing.
    Long {
        len_bytes: u16,
        piece_bytes: u16,
        is_whole: bool,
    },
    /// That says of its value that it has so many bytes.
    Announced {
        len_bytes: u64,
    },
    Piece(Vec<u8>),
    /// The end of the keyspace, checked or not, or with a wrong count.
    Records {
        is_checked: bool,
        wrong_by: u8,
    },
    End {
        wrong_by: u8,
    },
}

#[derive(Arbitrary, Debug)]
struct Input {
    lines: Vec<Line>,
    block_bytes: u16,
    /// Loads the first keyspace alone.
    only: bool,
    changes: Vec<(u16, u8)>,
    cut: Option<u16>,
}

/// A dump while it is written.
struct Text {
    bytes: Vec<u8>,
    section: Section,
    keyspaces: u64,
    records: u64,
    next_key: u32,
}

impl Text {
    fn new() -> Text {
        let section = Section::begin(b"");
        let bytes = dump_format::header().into_bytes();
        Text { bytes, section, keyspaces: 0, records: 0, next_key: 0 }
    }

    fn record(&mut self, line: &str) {
        self.section.add(line.as_bytes());
        self.bytes.extend_from_slice(line.as_bytes());
    }

    fn piece(&mut self, piece: &[u8]) {
        let mut line = String::new();
        dump_format::piece_into(piece, &mut line);
        self.section.add_piece(line.as_bytes());
        self.bytes.extend_from_slice(line.as_bytes());
    }

    fn next_key(&mut self) -> [u8; 4] {
        self.next_key += 1;
        self.next_key.to_be_bytes()
    }

    fn add(&mut self, line: &Line) {
        let mut text = String::new();
        match line {
            Line::Raw(bytes) => {
                self.bytes.extend_from_slice(bytes);
                self.bytes.push(b'\n');
            }
            Line::Keyspace(number) => {
                let line = dump_format::keyspace(&name(*number));
                self.section = Section::begin(line.as_bytes());
                self.next_key = 0;
                self.bytes.extend_from_slice(line.as_bytes());
            }
            Line::Record { key, value } => {
                dump_format::record_into(key, value, &mut text);
                self.record(&text);
            }
            Line::Next { value_bytes } => {
                let value = vec![*value_bytes as u8; usize::from(value_bytes % 100)];
                dump_format::record_into(&self.next_key(), &value, &mut text);
                self.record(&text);
            }
            Line::Long { len_bytes, piece_bytes, is_whole } => {
                let len = usize::from(1 + len_bytes % LONG_BYTES);
                let most = usize::from(1 + piece_bytes % LONG_BYTES);
                dump_format::long_into(&self.next_key(), len as u64, &mut text);
                self.record(&text);
                let value = vec![len as u8; len];
                let pieces = len.div_ceil(most) - usize::from(!is_whole);
                for piece in value.chunks(most).take(pieces) {
                    self.piece(piece);
                }
            }
            Line::Announced { len_bytes } => {
                dump_format::long_into(&self.next_key(), *len_bytes, &mut text);
                self.record(&text);
            }
            Line::Piece(piece) => self.piece(piece),
            Line::Records { is_checked, wrong_by } => {
                let records = self.section.records();
                let line = if *is_checked {
                    self.section.end()
                } else {
                    format!("records {} -\n", records + u64::from(wrong_by % 4 / 3))
                };
                self.keyspaces += 1;
                self.records += records;
                self.bytes.extend_from_slice(line.as_bytes());
            }
            Line::End { wrong_by } => {
                let records = self.records + u64::from(wrong_by % 4 / 3);
                let line = dump_format::end(self.keyspaces, records);
                self.bytes.extend_from_slice(line.as_bytes());
            }
        }
    }
}

fn name(number: u8) -> String {
    ["birds", "b\u{f6}gel", "a\tb\\", "end 0 0"][usize::from(number) % 4].to_owned()
}

fn text_of(input: &Input) -> Vec<u8> {
    let mut text = Text::new();
    for line in input.lines.iter().take(MOST_LINES) {
        text.add(line);
    }
    let mut bytes = text.bytes;
    for &(at, byte) in input.changes.iter().take(4) {
        let at = usize::from(at) % bytes.len();
        bytes[at] = byte;
    }
    if let Some(cut) = input.cut {
        bytes.truncate(usize::from(cut));
    }
    bytes
}

/// Whole lines, as few in a block as have so many bytes; what comes behind the last newline is a block's end.
fn blocks(text: &[u8], block_bytes: usize) -> Receiver<Result<Block, Failure>> {
    let mut blocks = Vec::new();
    let mut first_line = 1;
    let is_crlf = text
        .split_inclusive(|&byte| byte == b'\n')
        .next()
        .is_some_and(|line| line.ends_with(b"\r\n"));
    let mut block = Block { bytes: Vec::new(), first_line, is_crlf };
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        if block.bytes.len() > block_bytes && line.ends_with(b"\n") {
            let next = Block { bytes: Vec::new(), first_line, is_crlf };
            blocks.push(std::mem::replace(&mut block, next));
        }
        block.bytes.extend_from_slice(line);
        first_line += 1;
    }
    if !block.bytes.is_empty() {
        blocks.push(block);
    }
    let (sender, receiver) = sync_channel(blocks.len());
    for block in blocks {
        sender.send(Ok(block)).expect("there is room for all of them");
    }
    receiver
}

fn new_store() -> Database {
    let limit = smallest_memory_limit_bytes(PAGE_BYTES) + LARGE_VALUES_BYTES;
    Options::new()
        .page_bytes(PAGE_BYTES)
        .zone_bytes(128 << 10)
        .memory_limit_bytes(limit)
        .background_checkpoints(false)
        .log(false)
        .on_disk(&RamDisk::new(), path(), OpenHow::New)
        .unwrap()
}

fn load_into(db: &Database, text: &[u8], only: Option<&str>, block: usize) -> Result<(), Failure> {
    let mut loaded = 0;
    load::dump::load(db, path(), only, blocks(text, block), &mut loaded)
}

/// The dump of a store, as the tool writes it.
fn dump(db: &Database) -> Vec<u8> {
    let mut text = Text::new();
    for name in db.keyspaces().unwrap() {
        let keyspace = db.open_keyspace(&name).unwrap().expect("it was named");
        let line = dump_format::keyspace(&name);
        text.section = Section::begin(line.as_bytes());
        text.bytes.extend_from_slice(line.as_bytes());
        for record in keyspace.iter() {
            let (key, value) = record.unwrap();
            let mut line = String::new();
            if key.len() + value.len() <= keyspace.max_record_bytes() {
                dump_format::record_into(&key, &value, &mut line);
                text.record(&line);
                continue;
            }
            dump_format::long_into(&key, value.len() as u64, &mut line);
            text.record(&line);
            for piece in value.chunks(dump_format::PIECE_BYTES) {
                text.piece(piece);
            }
        }
        text.add(&Line::Records { is_checked: true, wrong_by: 0 });
    }
    text.add(&Line::End { wrong_by: 0 });
    text.bytes
}

/// The failure says in which line of the text it is.
fn assert_names_a_line(failure: &Failure, text: &[u8], only: Option<&str>) {
    let lines = text.split_inclusive(|&byte| byte == b'\n').count() as u64;
    let words = match failure {
        Failure::DamagedInput(words) | Failure::NewerInput(words) => words,
        Failure::Engine(doing, _) => doing,
        // What was asked for is not in a dump that is right.
        Failure::Other(words) if only.is_some() && words.contains("has no keyspace") => return,
        other => panic!("{other:?}"),
    };
    let number = words.split_once("line ").map_or("", |(_, rest)| rest);
    let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    let number: u64 = number[..digits].parse().unwrap_or_else(|_| panic!("{failure:?}"));
    // The end of the text is in the line behind its last one.
    assert!((1..=lines + 1).contains(&number), "{failure:?} of {lines} lines");
}

fuzz_target!(|input: Input| {
    let text = text_of(&input);
    let head = text.split(|&byte| byte == b'\n').next().unwrap_or(&[]);
    match load::dump::is_dump(&head[..head.len().min(64)]) {
        Ok(true) => {}
        Ok(false) => return,
        Err(Failure::DamagedInput(words)) => return assert!(words.contains("line 1")),
        Err(Failure::NewerInput(_)) => return,
        Err(other) => panic!("{other:?}"),
    }
    let first = name(0);
    let only = input.only.then_some(first.as_str());
    let db = new_store();
    let loaded = load_into(&db, &text, only, usize::from(input.block_bytes));
    let report = db.verify(|_| ControlFlow::Continue(())).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    if let Err(failure) = loaded {
        return assert_names_a_line(&failure, &text, only);
    }
    let dumped = dump(&db);
    let again = new_store();
    load_into(&again, &dumped, None, usize::from(input.block_bytes)).unwrap();
    assert!(dump(&again) == dumped, "the dump of what a dump has made is another one");
});
