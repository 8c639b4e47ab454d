//! Reads a file, or standard input, in blocks of whole lines.
//!
//! The reading thread is on its own, and is left behind if the load stops while it waits for input
//! that may never come (a terminal, a pipe). It reads the head of the input first, and waits there until the
//! caller has seen what kind of input it is.
//!
//! Where the first line ends in CR LF, as Windows writes text, one CR before each LF is no part of a line.

use crate::failure::Failure;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// What a block holds, unless a line is longer.
const BLOCK_BYTES: usize = 256 << 10;
/// The longest line that is read at all. Longer values are for `put --file`, and come in pieces in a dump.
const MAX_LINE_BYTES: usize = 1 << 20;
/// What is looked at to tell what kind of input it is.
const HEAD_BYTES: usize = 64;
/// Blocks read ahead.
const QUEUED_BLOCKS: usize = 4;

/// An opened source of lines, and its name for messages.
pub struct Input {
    source: Box<dyn Read + Send>,
    name: String,
}

impl Input {
    /// Opens a file, or standard input for `-`.
    pub fn open(path: &Path) -> Result<Input, Failure> {
        if path.as_os_str() == "-" {
            let source = Box::new(io::stdin());
            return Ok(Input { source, name: "standard input".to_owned() });
        }
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Ok(Input { source: Box::new(file), name }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Failure::Other(format!("cannot open {name}: there is no such file")))
            }
            Err(error) => Err(Failure::Io(format!("cannot open {name}"), error)),
        }
    }
}

/// Some whole lines; only the last block of a file may end without a newline.
#[derive(Default)]
pub struct Block {
    /// The lines with their newlines.
    pub bytes: Vec<u8>,
    /// Number of the first line, from 1.
    pub first_line: u64,
    /// Whether the first line of the input ends in CR LF.
    pub is_crlf: bool,
}

impl Block {
    /// Start, end (without the newline, or CR LF where lines end so) and number of each line.
    pub fn lines(&self) -> impl Iterator<Item = (usize, usize, u64)> {
        let lines = self.bytes.split_inclusive(|&byte| byte == b'\n');
        lines.zip(self.first_line..).scan(0, move |at, (line, number)| {
            let start = *at;
            *at += line.len();
            let end = *at
                - match line {
                    [.., b'\r', b'\n'] if self.is_crlf => 2,
                    [.., b'\n'] => 1,
                    _ => 0,
                };
            Some((start, end, number))
        })
    }
}

/// An input whose head is being read.
pub struct Reading {
    /// The first line, without its newline, or so much of it as is longer than any head of interest; then nothing
    /// until [`Self::go_on`].
    pub head: Receiver<Result<Vec<u8>, Failure>>,
    go_on: SyncSender<()>,
    blocks: Receiver<Result<Block, Failure>>,
}

impl Reading {
    /// Reads all of it, the head once more; blocks arrive in order, an error is the last thing to arrive.
    pub fn go_on(self) -> Receiver<Result<Block, Failure>> {
        // The thread has gone if there was an error, and then no block will come.
        let _ = self.go_on.send(());
        self.blocks
    }
}

/// What a text may begin with in place of its first character, to say how it is encoded.
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";
const UTF16_MARKS: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];

/// Starts the thread that reads. A byte order mark at the beginning is no part of the first line.
///
/// Errors: `Io` if the system starts no thread. An input in UTF-16 is an error in place of the head.
pub fn spawn(input: Input) -> Result<Reading, Failure> {
    let (sender, receiver) = sync_channel(QUEUED_BLOCKS);
    let (head_sender, head) = sync_channel(1);
    let (go_on, wait) = sync_channel(1);
    let read = move || {
        let mut blocks =
            Blocks { input, rest: Vec::new(), next_line: 1, ended: false, is_crlf: false };
        let head = blocks.head();
        let failed = head.is_err();
        // Whoever goes on without a look at the head does without it.
        let _ = head_sender.send(head);
        if failed || wait.recv().is_err() {
            return;
        }
        while let Some(block) = blocks.next() {
            let failed = block.is_err();
            // Nobody listens any more once the load has stopped.
            if sender.send(block).is_err() || failed {
                break;
            }
        }
    };
    let refused = |error| Failure::Io("cannot start the reading thread".to_owned(), error);
    thread::Builder::new().spawn(read).map_err(refused)?;
    Ok(Reading { head, go_on, blocks: receiver })
}

struct Blocks {
    input: Input,
    /// The beginning of a line whose end has not been read.
    rest: Vec<u8>,
    next_line: u64,
    ended: bool,
    /// Known from the first block on.
    is_crlf: bool,
}

impl Blocks {
    /// Reads so much that the first line shows, or what it begins with, and keeps it for the first block.
    fn head(&mut self) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        let mut line_end = None;
        while !self.ended && line_end.is_none() && bytes.len() < HEAD_BYTES {
            self.read(&mut bytes)?;
            line_end = bytes.iter().position(|&byte| byte == b'\n');
        }
        if UTF16_MARKS.iter().any(|mark| bytes.starts_with(mark)) {
            let words = format!("{} is UTF-16; convert it to UTF-8 first", self.input.name);
            return Err(Failure::Other(words));
        }
        if bytes.starts_with(UTF8_MARK) {
            bytes.drain(..UTF8_MARK.len());
            line_end = line_end.map(|end| end - UTF8_MARK.len());
        }
        let head = bytes[..line_end.unwrap_or(bytes.len()).min(HEAD_BYTES)].to_vec();
        self.rest = bytes;
        Ok(head)
    }

    /// Appends what there is to read.
    fn read(&mut self, bytes: &mut Vec<u8>) -> Result<(), Failure> {
        let from = bytes.len();
        bytes.resize(from + BLOCK_BYTES, 0);
        let read = loop {
            match self.input.source.read(&mut bytes[from..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        let count =
            read.map_err(|error| Failure::Io(format!("cannot read {}", self.input.name), error))?;
        bytes.truncate(from + count);
        self.ended = count == 0;
        Ok(())
    }

    fn next(&mut self) -> Option<Result<Block, Failure>> {
        let mut bytes = std::mem::take(&mut self.rest);
        // There may be whole lines in it after the head.
        let mut from = 0;
        loop {
            if let Some(newline) = bytes[from..].iter().rposition(|&byte| byte == b'\n') {
                self.rest = bytes.split_off(from + newline + 1);
                break;
            }
            if self.ended {
                break;
            }
            if bytes.len() > MAX_LINE_BYTES {
                let (line, name) = (self.next_line, &self.input.name);
                let words = format!(
                    "line {line} of {name} is longer than 1 MiB; put a long value with `hedgerow put --file`, or copy keyspaces with \
                     `hedgerow dump`"
                );
                return Some(Err(Failure::Other(words)));
            }
            from = bytes.len();
            if let Err(failure) = self.read(&mut bytes) {
                return Some(Err(failure));
            }
        }
        if bytes.is_empty() {
            return None;
        }
        if self.next_line == 1 {
            let first = bytes.split_inclusive(|&byte| byte == b'\n').next();
            self.is_crlf = first.is_some_and(|line| line.ends_with(b"\r\n"));
        }
        let block = Block { bytes, first_line: self.next_line, is_crlf: self.is_crlf };
        self.next_line += block.lines().count() as u64;
        Some(Ok(block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time, and an interruption before each.
    struct Trickle(Vec<u8>, bool);

    impl Read for Trickle {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if self.0.is_empty() {
                return Ok(0);
            }
            buffer[0] = self.0.remove(0);
            Ok(1)
        }
    }

    fn read_all(source: impl Read + Send + 'static) -> Vec<(Vec<u8>, u64)> {
        let input = Input { source: Box::new(source), name: "test".to_owned() };
        let mut lines = Vec::new();
        for block in spawn(input).unwrap().go_on() {
            let block = block.unwrap();
            lines.extend(block.lines().map(|(s, e, n)| (block.bytes[s..e].to_vec(), n)));
        }
        lines
    }

    #[test]
    fn lines_are_whole_and_numbered_however_the_bytes_arrive() {
        for text in ["", "a", "a\n", "a\nb", "\n", "\n\nc\n", "a\tb\n\r\n"] {
            let expected: Vec<_> = text
                .split_terminator('\n')
                .zip(1..)
                .map(|(line, number)| (line.as_bytes().to_vec(), number))
                .collect();
            assert_eq!(read_all(io::Cursor::new(text)), expected, "{text:?}");
            assert_eq!(read_all(Trickle(text.into(), false)), expected, "{text:?}");
        }
    }

    #[test]
    fn where_the_first_line_ends_in_cr_lf_one_cr_is_no_part_of_a_line() {
        let long = format!("{}\r\nb\r\n", "x".repeat(1_000));
        for (text, lines) in [
            ("a\tb\r\nc\r\n\r\nd\r\r\ne\nf\r", &["a\tb", "c", "", "d\r", "e", "f\r"][..]),
            ("\r\na\r\n", &["", "a"]),
            ("\u{feff}a\r\nb\r\n", &["a", "b"]),
            (&long, &[&long[..1_000], "b"]),
            ("a\nb\r\n", &["a", "b\r"]),
            ("\na\r\n", &["", "a\r"]),
            ("a\r", &["a\r"]),
        ] {
            let expected: Vec<_> =
                lines.iter().zip(1..).map(|(line, n)| (line.as_bytes().to_vec(), n)).collect();
            assert_eq!(read_all(io::Cursor::new(text.to_owned())), expected, "{text:?}");
            assert_eq!(read_all(Trickle(text.into(), false)), expected, "{text:?}");
        }
    }

    #[test]
    fn the_head_is_the_first_line_and_comes_again() {
        let long = "x".repeat(1_000);
        for (text, head) in
            [("", ""), ("a\nb", "a"), ("\na", ""), ("a", "a"), (&long, &long[..HEAD_BYTES])]
        {
            let sources: [Box<dyn Read + Send>; 2] =
                [Box::new(Trickle(text.into(), false)), Box::new(io::Cursor::new(text.to_owned()))];
            for source in sources {
                let reading = spawn(Input { source, name: "test".to_owned() }).unwrap();
                assert_eq!(reading.head.recv().unwrap().unwrap(), head.as_bytes());
                let blocks: Vec<u8> =
                    reading.go_on().iter().flat_map(|block| block.unwrap().bytes).collect();
                assert_eq!(blocks, text.as_bytes());
            }
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        let expected: Vec<(Vec<u8>, u64)> = vec![(b"a\tb".to_vec(), 1), (b"c".to_vec(), 2)];
        assert_eq!(read_all(io::Cursor::new("\u{feff}a\tb\nc\n")), expected);
        assert_eq!(read_all(Trickle("\u{feff}a\tb\nc\n".into(), false)), expected);
        assert_eq!(read_all(io::Cursor::new("\u{feff}")), []);
        for text in [&b"\xff\xfea\0\n\0"[..], b"\xfe\xff\0a\0\n"] {
            let input = Input { source: Box::new(io::Cursor::new(text)), name: "test".to_owned() };
            let head = spawn(input).unwrap().head.recv().unwrap();
            assert!(matches!(head, Err(Failure::Other(words)) if words.contains("UTF-16")));
        }
    }

    #[test]
    fn blocks_do_not_cut_lines() {
        let text: String = (0..100_000).map(|n| format!("{n:07}\n")).collect();
        let lines = read_all(io::Cursor::new(text));
        assert_eq!(lines.len(), 100_000);
        for (n, (line, number)) in lines.iter().enumerate() {
            assert_eq!((line, *number), (&format!("{n:07}").into_bytes(), n as u64 + 1));
        }
    }

    #[test]
    fn an_endless_line_is_an_error() {
        let input = Input { source: Box::new(io::repeat(b'x')), name: "test".to_owned() };
        let last = spawn(input).unwrap().go_on().into_iter().last();
        assert!(matches!(last, Some(Err(Failure::Other(words))) if words.contains("line 1 of")));
    }
}
