//! Records on standard output, as text or as JSON: keys and values with escapes, each record a line.
//!
//! A value that no leaf holds is printed a piece at a time, so that of a value of any length a piece is in memory. If that fails in the midst
//! of one, its line ends with a single backslash, which is no escape, and in JSON it has no end: nobody takes it for the whole. Used by one
//! thread.

use crate::args::Format;
use crate::escape::{self, Pieces};
use crate::failure::Failure;
use crate::output::Out;
use crate::{interrupt, store};
use hedgerow::{Keyspace, ValueReader};
use serde_json::{Value as Json, json};
use std::path::Path;

/// Bytes of a value that are in memory at a time.
const PIECE_BYTES: u64 = 64 << 10;
/// The ends of a line that is whole, and of one that is cut off.
const TEXT_ENDS: [&str; 2] = ["\n", "\\\n"];
const JSON_ENDS: [&str; 2] = ["\"}\n", ""];

/// Prints records of a store.
pub struct Printer<'p> {
    format: Format,
    /// Where they are from.
    path: &'p Path,
    out: Out,
    line: String,
}

impl<'p> Printer<'p> {
    /// Locks standard output until dropped; call [`Printer::finish`] at the end.
    pub fn new(format: Format, path: &'p Path) -> Printer<'p> {
        Printer { format, path, out: Out::new(), line: String::new() }
    }

    /// Writes out what is buffered.
    pub fn finish(self) -> Result<(), Failure> {
        self.out.finish()
    }

    /// A key alone.
    pub fn key(&mut self, key: &[u8]) -> Result<(), Failure> {
        match self.format {
            Format::Human => {
                self.key_into_line(key);
                self.out.line(&self.line)
            }
            Format::Json => self.out.json(&json!({ "key": escape::escape(key) })),
        }
    }

    /// A record whose value is in memory.
    pub fn record(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        match self.format {
            Format::Human => {
                self.key_into_line(key);
                self.line.push('\t');
                escape::escape_into(value, &mut self.line);
                self.out.line(&self.line)
            }
            Format::Json => {
                let (key, value) = (escape::escape(key), escape::escape(value));
                self.out.json(&json!({ "key": key, "value": value }))
            }
        }
    }

    /// A record whose value is read now. None is printed if it has gone meanwhile.
    pub fn record_of(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<(), Failure> {
        let found = keyspace.value_reader(key).map_err(store::failed("read", self.path))?;
        let Some(mut value) = found else { return Ok(()) };
        if self.format == Format::Json {
            return self.value(key, &mut value);
        }
        self.key_into_line(key);
        let before = format!("{}\t", self.line);
        self.line_of(&before, &mut value, TEXT_ENDS)
    }

    /// The line of a value; in JSON with its key.
    pub fn value(&mut self, key: &[u8], value: &mut ValueReader) -> Result<(), Failure> {
        if self.format == Format::Human {
            return self.line_of("", value, TEXT_ENDS);
        }
        let key = Json::from(escape::escape(key));
        self.line_of(&format!("{{\"key\":{key},\"value\":\""), value, JSON_ENDS)
    }

    /// A line with the text of a value, what comes before it, and the end that it has if it is whole, and if it is cut off. Nothing, if
    /// nothing of the value can be read.
    fn line_of(
        &mut self,
        before: &str,
        value: &mut ValueReader,
        [whole, cut]: [&str; 2],
    ) -> Result<(), Failure> {
        let len_bytes = value.len_bytes();
        let mut piece = vec![0; len_bytes.min(PIECE_BYTES) as usize];
        let (mut pieces, mut at) = (Pieces::default(), 0);
        loop {
            let read = interrupt::check().and_then(|()| {
                value.read_at(at, &mut piece).map_err(store::failed("read", self.path))
            });
            let count = match read {
                Ok(count) => count,
                Err(failure) if at == 0 => return Err(failure),
                Err(failure) => return self.out.bytes(cut.as_bytes()).and(Err(failure)),
            };
            if at == 0 {
                self.out.bytes(before.as_bytes())?;
            }
            at += count as u64;
            self.line.clear();
            pieces.escape_into(&piece[..count], at >= len_bytes, &mut self.line);
            match self.format {
                Format::Human => self.out.bytes(self.line.as_bytes())?,
                Format::Json => {
                    let quoted = Json::from(self.line.as_str()).to_string();
                    self.out.bytes(&quoted.as_bytes()[1..quoted.len() - 1])?;
                }
            }
            if at >= len_bytes {
                return self.out.bytes(whole.as_bytes());
            }
        }
    }

    fn key_into_line(&mut self, key: &[u8]) {
        self.line.clear();
        match key.is_empty() {
            true => self.line.push_str(escape::EMPTY),
            false => escape::escape_into(key, &mut self.line),
        }
    }
}
