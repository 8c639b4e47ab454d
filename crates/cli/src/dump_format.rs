//! The text format of dumps, version 1: what `dump` writes and `load` reads. `docs/format.md` has its grammar.
//!
//! Every line ends with a newline. A line with a tab is a record, or a part of one; a line without one says where a
//! keyspace begins or ends, or the dump. A value that may be too long for a line comes in pieces, each a line. A [`Section`] is a keyspace on its way past: it counts the records, and sums up
//! the bytes of their lines, so that the line that ends the keyspace can say, or be held against, both.

use crate::escape;
use std::hash::Hasher;
use twox_hash::XxHash3_64;

/// What every dump begins with, whatever its version.
pub const MAGIC: &[u8] = b"hedgerow-dump ";
/// The version that this tool writes, and reads.
pub const VERSION: u32 = 1;
/// Stands for a checksum in a dump that was made or edited by hand.
const UNCHECKED: &[u8] = b"-";

/// The line that a dump begins with.
pub fn header() -> String {
    format!("{}{VERSION}\n", MAGIC.escape_ascii())
}

/// The line that ends a dump of so many keyspaces and records.
pub fn end(keyspaces: u64, records: u64) -> String {
    format!("end {keyspaces} {records}\n")
}

/// A keyspace of a dump, while it is written or read.
pub struct Section {
    records: u64,
    sum: XxHash3_64,
}

impl Section {
    /// Begins with the line that names the keyspace.
    pub fn begin(line: &[u8]) -> Section {
        let mut section = Section { records: 0, sum: XxHash3_64::new() };
        section.sum.write(line);
        section
    }

    /// The line of the next record, with its newline.
    pub fn add(&mut self, line: &[u8]) {
        self.records += 1;
        self.sum.write(line);
    }

    /// The line of a piece of the record's value, with its newline.
    pub fn add_piece(&mut self, line: &[u8]) {
        self.sum.write(line);
    }

    /// Records so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The line that ends the keyspace.
    pub fn end(&self) -> String {
        format!("records {} {:016x}\n", self.records, self.sum.finish())
    }

    /// Whether the line that ends the keyspace tells the truth; if not, what is wrong.
    pub fn check(&self, end: &End<'_>) -> Result<(), String> {
        if end.records != self.records {
            return Err(format!(
                "the keyspace ends with {} records, but {} were read",
                end.records, self.records
            ));
        }
        let sum = format!("{:016x}", self.sum.finish());
        if end.checksum != UNCHECKED && end.checksum != sum.as_bytes() {
            return Err(
                "the checksum of the keyspace does not match: the dump is damaged".to_owned()
            );
        }
        Ok(())
    }
}

/// What the line says that ends a keyspace.
#[derive(Debug, PartialEq, Eq)]
pub struct End<'l> {
    records: u64,
    checksum: &'l [u8],
}

/// What a line of a dump, but for the first, can be.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'l> {
    /// A keyspace of this name begins.
    Keyspace(String),
    /// A record, key and value with escapes.
    Record(&'l [u8], &'l [u8]),
    /// A record, key with escapes, whose value of so many bytes comes in pieces.
    Long(&'l [u8], u64),
    /// Some of that value, with escapes.
    Piece(&'l [u8]),
    /// The keyspace ends.
    Records(End<'l>),
    /// The dump ends: keyspaces and records.
    End(u64, u64),
}

impl<'l> Line<'l> {
    /// Reads a line without its newline. Errors: what is wrong with it.
    pub fn parse(line: &'l [u8]) -> Result<Line<'l>, String> {
        let fields: Vec<&[u8]> = line.splitn(4, |&byte| byte == b'\t').collect();
        match fields[..] {
            [_] => {}
            [key, value] => return Ok(Line::Record(key, value)),
            [b"", b"", piece] => return Ok(Line::Piece(piece)),
            [key, len_bytes, b""] => {
                let len_bytes = number(len_bytes).filter(|len| *len > 0);
                let words =
                    "a second tab without a length before it; write a tab in a value as `\\t`";
                return len_bytes.map(|len| Line::Long(key, len)).ok_or_else(|| words.to_owned());
            }
            _ => return Err("a second tab; write a tab in a value as `\\t`".to_owned()),
        }
        if let Some(name) = line.strip_prefix(b"keyspace ") {
            let name = String::from_utf8(escape::unescape(name)?);
            return name.map(Line::Keyspace).map_err(|_| "the name is not UTF-8".to_owned());
        }
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let known = match words[..] {
            [b"records", records, checksum] => {
                number(records).map(|records| Line::Records(End { records, checksum }))
            }
            [b"end", keyspaces, records] => {
                number(keyspaces).zip(number(records)).map(|(k, r)| Line::End(k, r))
            }
            _ => None,
        };
        known.ok_or_else(|| "not a line of a dump".to_owned())
    }
}

/// The version of a dump whose first line is this one, without its newline.
pub fn version(header: &[u8]) -> Option<u64> {
    header.strip_prefix(MAGIC).and_then(number)
}

fn number(digits: &[u8]) -> Option<u64> {
    let digits = str::from_utf8(digits).ok()?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// Appends the line of a record, with its newline.
pub fn record_into(key: &[u8], value: &[u8], line: &mut String) {
    escape::escape_into(key, line);
    line.push('\t');
    escape::escape_into(value, line);
    line.push('\n');
}

/// The bytes of a value in one piece.
pub const PIECE_BYTES: usize = 32 << 10;

/// Appends the line of a record whose value of `len_bytes` comes in pieces, with its newline.
pub fn long_into(key: &[u8], len_bytes: u64, line: &mut String) {
    escape::escape_into(key, line);
    line.push('\t');
    line.push_str(&len_bytes.to_string());
    line.push_str("\t\n");
}

/// Appends the line of a piece, with its newline.
pub fn piece_into(bytes: &[u8], line: &mut String) {
    line.push_str("\t\t");
    escape::escape_into(bytes, line);
    line.push('\n');
}

/// The line that begins a keyspace.
pub fn keyspace(name: &str) -> String {
    format!("keyspace {}\n", escape::escape(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Line<'_>, String> {
        Line::parse(line.strip_suffix('\n').unwrap().as_bytes())
    }

    #[test]
    fn lines_are_what_they_were_written_as() {
        assert_eq!(version(header().trim_end().as_bytes()), Some(1));
        for name in ["birds", "a b", "records 1 -", "end 0 0", "tab\tand\nnewline", "\u{85}\\"] {
            assert_eq!(parse(&keyspace(name)), Ok(Line::Keyspace(name.to_owned())));
        }
        for (key, value) in [("", ""), ("end 0 0", ""), ("keyspace a", "records 1 -")] {
            let mut line = String::new();
            record_into(key.as_bytes(), value.as_bytes(), &mut line);
            assert_eq!(parse(&line), Ok(Line::Record(key.as_bytes(), value.as_bytes())));
        }
        assert_eq!(parse(&end(3, 7)), Ok(Line::End(3, 7)));
        for key in ["", "wren", "7"] {
            let mut line = String::new();
            long_into(key.as_bytes(), 70_000, &mut line);
            assert_eq!(parse(&line), Ok(Line::Long(key.as_bytes(), 70_000)));
        }
        for piece in ["", "7", "a b"] {
            let mut line = String::new();
            piece_into(piece.as_bytes(), &mut line);
            assert_eq!(parse(&line), Ok(Line::Piece(piece.as_bytes())));
        }
    }

    #[test]
    fn a_section_knows_its_records() {
        // XXH3-64 of nothing, without a seed, as its authors publish it.
        assert_eq!(Section::begin(b"").end(), "records 0 2d06800538d394c2\n");
        let mut section = Section::begin(b"keyspace a\n");
        section.add(b"k\tv\n");
        let written = section.end();
        let Ok(Line::Records(end)) = parse(&written) else { panic!("{written}") };
        assert_eq!(section.check(&end), Ok(()));
        assert!(
            Section::begin(b"keyspace a\n").check(&end).unwrap_err().contains("but 0 were read")
        );
        let mut other = Section::begin(b"keyspace b\n");
        other.add(b"k\tv\n");
        assert!(other.check(&end).unwrap_err().contains("checksum"));
        assert_eq!(other.check(&End { records: 1, checksum: UNCHECKED }), Ok(()));
    }

    #[test]
    fn what_no_dump_has_is_no_line_of_one() {
        for line in [
            "",
            "keyspace",
            "records 1",
            "records x -",
            "end 1",
            "end 1 +2",
            "End 1 2",
            "k\tv\tw",
            "k\tv\t",
            "k\t0\t",
            "k\t-1\t",
            "\t\tv\tw",
            "k\t\tv",
            "k\t7\tv",
        ] {
            assert!(Line::parse(line.as_bytes()).is_err(), "{line:?}");
        }
        for header in ["hedgerow-dump", "hedgerow-dump ", "hedgerow-dump one", "Hedgerow-dump 1"] {
            let digits = version(header.as_bytes());
            assert_eq!(digits, None, "{header:?}");
        }
    }
}
