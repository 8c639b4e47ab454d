//! Loads a dump: keyspace by keyspace, record by record, in the order of the file.
//!
//! A keyspace that is new or empty is bulk loaded: its records show when its last line has come and is right, or not at
//! all. From its first value of more than [`MAX_HELD_BYTES`] on its records are put one by one, and so are those of a keyspace
//! that holds records already, each in place of an earlier record of its key; what was put before an error stays, unless the
//! keyspace was not there before. In memory is never more than one such value and a few blocks of lines.
//!
//! Whatever is not as `dump` writes it ends the load with the number of its line: a line that is none of a dump,
//! keys out of order, counts or checksums that do not agree, lines behind the end, and an end that does not come.

use super::POLL;
use super::reader::Block;
use crate::dump_format::{self, Line, MAGIC, Section, VERSION};
use crate::failure::Failure;
use crate::progress::ProgressBar;
use crate::{escape, interrupt, progress, size, store};
use hedgerow::{Database, Error, ErrorKind, Keyspace};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

/// How full bulk loads make pages: records may be added to them afterwards.
const FILL_PERCENT: u8 = 90;

/// The longest value that is held in memory on its way, as a bulk load takes it. A longer one is written piece by piece.
const MAX_HELD_BYTES: u64 = 8 << 20;

const CRLF: &str = "the line ends in CR LF, as Windows writes text, and lines of a dump end in LF; convert the file, or write it with \
                    `hedgerow dump --out`";

const NO_VERSION: &str = "this is not the first line of a dump: the version is missing; if it is no dump but plain text, take --lines";

/// Whether an input that begins with this line is a dump. A line with a tab is a record of plain text, whatever its key is.
///
/// Errors: a dump, and of a version that is not known.
pub fn is_dump(head: &[u8]) -> Result<bool, Failure> {
    if !head.starts_with(MAGIC) || head.contains(&b'\t') {
        return Ok(false);
    }
    let line = head.strip_suffix(b"\r").unwrap_or(head);
    match dump_format::version(line) {
        Some(version) if version == u64::from(VERSION) => match line.len() == head.len() {
            true => Ok(true),
            false => Err(damaged(1, CRLF)),
        },
        Some(version) if version > u64::from(VERSION) => Err(Failure::NewerInput(format!(
            "the dump has format version {version}, this tool reads version {VERSION}; use a newer tool"
        ))),
        _ => Err(damaged(1, NO_VERSION)),
    }
}

fn damaged(line: u64, what: impl std::fmt::Display) -> Failure {
    Failure::DamagedInput(format!("line {line} of the dump: {what}"))
}

/// Loads a dump, or the keyspace `only` of it; `loaded` is told the records that are in the store.
pub fn load(
    db: &Database,
    path: &Path,
    only: Option<&str>,
    blocks: Receiver<Result<Block, Failure>>,
    loaded: &mut u64,
) -> Result<(), Failure> {
    let bar = progress::counter("loading");
    let lines = Lines { blocks, block: Block::default(), at: 0, number: 0 };
    let mut dump = Dump { db, path, only, lines, bar: &bar, keyspaces: 0, records: 0, loaded: 0 };
    let outcome = dump.load();
    *loaded = dump.loaded;
    bar.finish_and_clear();
    outcome
}

/// A dump on its way into a store.
struct Dump<'d> {
    db: &'d Database,
    path: &'d Path,
    only: Option<&'d str>,
    lines: Lines,
    bar: &'d ProgressBar,
    /// Keyspaces and records that have come, and records that were loaded.
    keyspaces: u64,
    records: u64,
    loaded: u64,
}

impl Dump<'_> {
    fn load(&mut self) -> Result<(), Failure> {
        // The header was looked at.
        self.lines.next()?;
        let mut found = self.only.is_none();
        loop {
            let (line, number) = self.lines.next()?;
            let section = Section::begin(line);
            match parse(line, number)? {
                Line::Keyspace(name) => {
                    let wanted = self.only.is_none_or(|only| only == name);
                    found |= wanted;
                    self.load_keyspace(wanted.then_some(&name), number, section)?;
                }
                Line::End(keyspaces, records) => {
                    if (keyspaces, records) != (self.keyspaces, self.records) {
                        let (k, r) = (self.keyspaces, self.records);
                        let what = format!(
                            "the last line says {keyspaces} keyspaces and {records} records, but the dump has {k} and {r}"
                        );
                        return Err(damaged(number, what));
                    }
                    self.lines.expect_end()?;
                    break;
                }
                Line::Record(..) | Line::Long(..) | Line::Piece(_) | Line::Records(_) => {
                    return Err(damaged(number, "a record outside of a keyspace"));
                }
            }
        }
        if found {
            return Ok(());
        }
        let name = self.only.unwrap_or_default();
        Err(Failure::Other(format!(
            "the dump has no keyspace `{}`",
            escape::escape(name.as_bytes())
        )))
    }

    /// Loads a keyspace, or passes over it if it has no `name`.
    fn load_keyspace(
        &mut self,
        name: Option<&String>,
        number: u64,
        section: Section,
    ) -> Result<(), Failure> {
        let target = name.map(|name| self.target(name, number)).transpose()?;
        let mut records = Records { lines: &mut self.lines, section, last: None, number };
        let before = self.loaded;
        let outcome = match &target {
            Some(Target { keyspace, is_empty, .. }) => {
                records.load_into(keyspace, *is_empty, self.bar, &mut self.loaded)
            }
            None => records.pass_over(),
        };
        let number = records.number;
        self.keyspaces += 1;
        self.records += records.section.records();
        if outcome.is_err()
            && let Some(Target { keyspace, is_new: true, .. }) = &target
        {
            // It was not there before. A failure of this would only hide the first one.
            if self.db.drop_keyspace(keyspace.name()).is_ok() {
                self.loaded = before;
            }
        }
        outcome.map_err(|failure| match failure {
            Failure::Engine(doing, error) if doing.is_empty() => {
                Failure::Engine(format!("cannot load line {number} of the dump"), error)
            }
            Failure::Interrupted(_) => {
                let records = size::show_number_of(self.loaded, "record");
                Failure::Interrupted(format!("stored {records}"))
            }
            other => other,
        })
    }

    fn target(&self, name: &str, number: u64) -> Result<Target, Failure> {
        let cannot = |error: Error| match error.kind() {
            // Of a name in a dump the arguments are not to blame.
            ErrorKind::InvalidName => damaged(number, error),
            _ => {
                let doing = format!("cannot load the keyspace of line {number} of the dump");
                Failure::Engine(doing, error)
            }
        };
        let found = self.db.open_keyspace(name).map_err(cannot)?;
        let is_new = found.is_none();
        let keyspace = found.map_or_else(|| self.db.create_keyspace(name), Ok).map_err(cannot)?;
        let first = keyspace.iter().next().transpose().map_err(store::failed("read", self.path))?;
        Ok(Target { keyspace, is_empty: first.is_none(), is_new })
    }
}

/// Where the records of a keyspace go.
struct Target {
    keyspace: Keyspace,
    is_empty: bool,
    is_new: bool,
}

fn parse(line: &[u8], number: u64) -> Result<Line<'_>, Failure> {
    Line::parse(&line[..line.len() - 1]).map_err(|what| damaged(number, what))
}

/// A record on its way.
enum Record {
    Short(Vec<u8>, Vec<u8>),
    /// Its value of so many bytes comes in pieces.
    Long(Vec<u8>, u64),
}

/// A key, and all of its value.
type Held = (Vec<u8>, Vec<u8>);

/// The records of one keyspace; ends when the line has come that ends it, and is right.
struct Records<'r> {
    lines: &'r mut Lines,
    section: Section,
    last: Option<Vec<u8>>,
    /// The line that came last.
    number: u64,
}

impl Records<'_> {
    /// Puts all of them into a keyspace; `loaded` is how many more are in it.
    fn load_into(
        &mut self,
        keyspace: &Keyspace,
        is_empty: bool,
        bar: &ProgressBar,
        loaded: &mut u64,
    ) -> Result<(), Failure> {
        let mut next = None;
        if is_empty {
            // They count as they come: the bulk load tells nothing before its end.
            let held = std::iter::from_fn(|| {
                self.next_held(&mut next).transpose().inspect(|_| bar.inc(1))
            });
            *loaded += keyspace.try_bulk_load(held, FILL_PERCENT)?;
            if next.is_none() {
                return Ok(());
            }
        }
        loop {
            let record = match next.take() {
                Some(record) => record,
                None => match self.step()? {
                    Some(record) => record,
                    None => return Ok(()),
                },
            };
            match record {
                Record::Short(key, value) => keyspace.put(&key, &value)?,
                Record::Long(key, len_bytes) => {
                    let mut writer = keyspace.value_writer(&key, len_bytes)?;
                    self.pieces(len_bytes, &mut |piece| Ok(writer.write_bytes(piece)?))?;
                    writer.finish()?
                }
            };
            *loaded += 1;
            bar.inc(1);
        }
    }

    /// The next record, with its value. One whose value is too long becomes `long`, and ends those before it.
    fn next_held(&mut self, long: &mut Option<Record>) -> Result<Option<Held>, Failure> {
        match self.step()? {
            Some(Record::Short(key, value)) => Ok(Some((key, value))),
            Some(Record::Long(key, len_bytes)) if len_bytes <= MAX_HELD_BYTES => {
                let mut value = Vec::new();
                self.pieces(len_bytes, &mut |piece| {
                    value.extend_from_slice(piece);
                    Ok(())
                })?;
                Ok(Some((key, value)))
            }
            other => {
                *long = other;
                Ok(None)
            }
        }
    }

    /// Reads all of them, and sees whether they are right.
    fn pass_over(&mut self) -> Result<(), Failure> {
        while let Some(record) = self.step()? {
            if let Record::Long(_, len_bytes) = record {
                self.pieces(len_bytes, &mut |_| Ok(()))?;
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Option<Record>, Failure> {
        let (line, number) = self.lines.next()?;
        self.number = number;
        let unescape = |text| escape::unescape(text).map_err(|what| damaged(number, what));
        let record = match parse(line, number)? {
            Line::Record(key, value) => Record::Short(unescape(key)?, unescape(value)?),
            Line::Long(key, len_bytes) => Record::Long(unescape(key)?, len_bytes),
            Line::Piece(_) => {
                return Err(damaged(
                    number,
                    "a piece of a value that is complete, or that was not begun",
                ));
            }
            Line::Records(end) => {
                self.section.check(&end).map_err(|what| damaged(number, what))?;
                return Ok(None);
            }
            Line::Keyspace(_) | Line::End(..) => {
                return Err(damaged(number, "the previous keyspace is incomplete"));
            }
        };
        self.section.add(line);
        let (Record::Short(key, _) | Record::Long(key, _)) = &record;
        if self.last.as_ref().is_some_and(|last| last >= key) {
            return Err(damaged(number, "the key is not greater than the previous key"));
        }
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        Ok(Some(record))
    }

    /// Hands over the pieces of a value.
    fn pieces(
        &mut self,
        len_bytes: u64,
        each: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut left = len_bytes;
        while left > 0 {
            let (line, number) = self.lines.next()?;
            self.number = number;
            let Line::Piece(piece) = parse(line, number)? else {
                return Err(damaged(number, format!("the previous value lacks {left} bytes")));
            };
            let piece = escape::unescape(piece).map_err(|what| damaged(number, what))?;
            left = left
                .checked_sub(piece.len() as u64)
                .ok_or_else(|| damaged(number, "the pieces of the value exceed its length"))?;
            self.section.add_piece(line);
            each(&piece)?;
        }
        Ok(())
    }
}

/// The lines of the input, one after the other.
struct Lines {
    blocks: Receiver<Result<Block, Failure>>,
    block: Block,
    /// Where the next line begins in the block.
    at: usize,
    /// Number of the last line.
    number: u64,
}

impl Lines {
    /// The next line, with its newline, and its number.
    ///
    /// Errors: there is none, or it has no newline: the dump was cut off; those of reading; interrupted.
    fn next(&mut self) -> Result<(&[u8], u64), Failure> {
        interrupt::check()?;
        if self.at == self.block.bytes.len() && !self.refill()? {
            return Err(damaged(self.number + 1, CUT_OFF));
        }
        self.number += 1;
        let rest = &self.block.bytes[self.at..];
        let Some(newline) = rest.iter().position(|&byte| byte == b'\n') else {
            return Err(damaged(self.number, CUT_OFF));
        };
        self.at += newline + 1;
        Ok((&rest[..=newline], self.number))
    }

    /// Errors: there is another line.
    fn expect_end(&mut self) -> Result<(), Failure> {
        if self.at < self.block.bytes.len() || self.refill()? {
            return Err(damaged(self.number + 1, "data after the end of the dump"));
        }
        Ok(())
    }

    /// Gets the next block. False: there is none.
    fn refill(&mut self) -> Result<bool, Failure> {
        loop {
            interrupt::check()?;
            match self.blocks.recv_timeout(POLL) {
                Ok(block) => {
                    self.block = block?;
                    self.at = 0;
                    return Ok(true);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(false),
            }
        }
    }
}

const CUT_OFF: &str = "the dump is cut off: the last line is missing";

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;
    use std::thread;
    use std::time::{Duration, Instant};

    /// The count stood at zero until a whole keyspace was in.
    #[test]
    fn records_are_counted_as_they_come() {
        let db = hedgerow::Options::new().in_memory().unwrap();
        let bar = ProgressBar::hidden();
        thread::scope(|scope| {
            let (sender, blocks) = sync_channel(1);
            let block = |text: &str| Ok(Block { bytes: text.into(), ..Block::default() });
            let (db, bar, path) = (&db, &bar, Path::new("birds"));
            let lines = Lines { blocks, block: Block::default(), at: 0, number: 0 };
            let load = scope.spawn(move || {
                let only = None;
                Dump { db, path, only, lines, bar, keyspaces: 0, records: 0, loaded: 0 }.load()
            });
            let lines = "hedgerow-dump 1\nkeyspace birds\nrobin\t1\nwren\t2\n";
            sender.send(block(lines)).unwrap();
            let begun = Instant::now();
            while bar.position() < 2 {
                assert!(begun.elapsed() < Duration::from_secs(60), "{}", bar.position());
                thread::sleep(Duration::from_millis(1));
            }
            sender.send(block("records 2 -\nend 1 2\n")).unwrap();
            drop(sender);
            assert!(load.join().unwrap().is_ok());
        });
        assert_eq!(bar.position(), 2);
    }
}
