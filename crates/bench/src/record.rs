//! Records: JSON lines, each written as soon as it is known.
//!
//! A run begins with a [`Header`]; a line for each process that was run follows. Runs may follow
//! each other in one file. A file whose end was cut off (a full disk, a killed run) is read up to
//! there.

use crate::cell::{Cell, CellError, CellResult};
use crate::compaction::Compaction;
use crate::experiments::{Figure, Size};
use crate::latches::figures;
use crate::machine::Machine;
use crate::recovery::Recovered;
use crate::tpcc::run::Measured;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum Line {
    /// The beginning of a run.
    Run(Header),
    /// A process.
    Cell(Box<Measurement>),
    /// A store that was opened after a kill.
    Recovered(Recovered),
    /// A run of TPC-C.
    Tpcc(Box<Measured>),
    /// A cell of the latch laboratory.
    Latch(figures::Measured),
    /// A store that was compacted.
    Compacted(Compaction),
}

/// What all measurements of a run have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// On what.
    pub machine: Machine,
    /// Revision of the program that ran it.
    pub revision: String,
    /// The command, without directories.
    pub command: String,
    /// How much.
    pub size: Size,
    /// When it started, in seconds since 1970.
    pub started_unix_seconds: u64,
    /// Whether memory was touched before each process ([`crate::machine::touch_memory`]).
    #[serde(default)]
    pub memory_touched: bool,
}

/// One process: what it was asked, and what it gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the case.
    pub case: String,
    /// What reports show of it.
    pub figure: Figure,
    /// Who was measured; with `@LABEL` if several programs have it.
    pub competitor: String,
    /// Number of the pair, from 1: one process of each competitor.
    pub pair: usize,
    /// What was asked; its directories are left out.
    pub cell: Cell,
    /// Bytes of the keys and values that were loaded.
    pub loaded_bytes: u64,
    /// What came of it.
    pub outcome: Outcome,
    /// How the work differs from that of the others, if it should be the same: the figures do not
    /// count.
    pub mismatch: Option<String>,
    /// Which run it belongs to, counted over all files that were read; zero until then.
    #[serde(skip)]
    pub run: usize,
}

/// What came of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Figures.
    Measured(Box<CellResult>),
    /// None, and why.
    Missing(CellError),
}

impl Measurement {
    /// The figures, if they count.
    pub fn result(&self) -> Option<&CellResult> {
        match &self.outcome {
            Outcome::Measured(result) if self.mismatch.is_none() => Some(result),
            _ => None,
        }
    }
}

/// Where lines go.
#[derive(Debug)]
pub enum Sink {
    /// Standard output.
    Standard,
    /// The end of a file.
    File(PathBuf, File),
}

impl Sink {
    /// Appends to the file at `path`, or writes to standard output. Errors: the file cannot be
    /// opened.
    pub fn new(path: Option<&Path>) -> Result<Sink, String> {
        let Some(path) = path else { return Ok(Sink::Standard) };
        let open = || -> io::Result<File> {
            let mut file = File::options().create(true).append(true).read(true).open(path)?;
            end_cut_line(&mut file)?;
            Ok(file)
        };
        match open() {
            Ok(file) => Ok(Sink::File(path.to_owned(), file)),
            Err(error) => Err(format!("cannot append to {}: {error}", path.display())),
        }
    }

    /// Writes a line. Errors: a sentence; the lines before are kept.
    pub fn write(&mut self, line: &Line) -> Result<(), String> {
        let mut text = serde_json::to_string(line).map_err(|error| error.to_string())?;
        text.push('\n');
        match self {
            Sink::Standard => io::stdout()
                .write_all(text.as_bytes())
                .and_then(|()| io::stdout().flush())
                .map_err(|error| format!("cannot print: {error}")),
            Sink::File(path, file) => file.write_all(text.as_bytes()).map_err(|error| {
                let path = path.display();
                format!("cannot append to {path}: {error}; what was written before is kept")
            }),
        }
    }
}

/// Ends a line that an earlier run could not finish, so that the next one stands by itself.
fn end_cut_line(file: &mut File) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    if file.metadata()?.len() == 0 {
        return Ok(());
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    if last != *b"\n" { file.write_all(b"\n") } else { Ok(()) }
}

/// What a file of records holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records {
    /// Runs.
    pub headers: Vec<Header>,
    /// Processes, in the order in which they ran.
    pub measurements: Vec<Measurement>,
    /// Stores that were opened after a kill.
    pub recovered: Vec<Recovered>,
    /// Runs of TPC-C.
    pub tpcc: Vec<Measured>,
    /// Cells of the latch laboratory.
    pub latches: Vec<figures::Measured>,
    /// Stores that were compacted.
    pub compacted: Vec<Compaction>,
    /// Lines that are no records: `FILE:LINE: why`.
    pub unreadable: Vec<String>,
}

/// Reads files of records, one after the other.
///
/// Errors: a file cannot be read, or there is no record in any. A line that is no record is
/// reported in [`Records::unreadable`] and left out.
pub fn read(paths: &[PathBuf]) -> Result<Records, String> {
    let mut records = Records::default();
    for path in paths {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            match serde_json::from_str(line) {
                Ok(Line::Run(header)) => records.headers.push(header),
                Ok(Line::Cell(mut measurement)) => {
                    measurement.run = records.headers.len();
                    records.measurements.push(*measurement);
                }
                Ok(Line::Recovered(recovered)) => records.recovered.push(recovered),
                Ok(Line::Tpcc(measured)) => records.tpcc.push(*measured),
                Ok(Line::Latch(measured)) => records.latches.push(measured),
                Ok(Line::Compacted(compacted)) => records.compacted.push(compacted),
                Err(error) => {
                    let place = format!("{}:{}: {error}", path.display(), number + 1);
                    records.unreadable.push(place);
                }
            }
        }
    }
    let Records { measurements, recovered, tpcc, latches, compacted, .. } = &records;
    let has_none = measurements.is_empty() && recovered.is_empty() && compacted.is_empty();
    if has_none && tpcc.is_empty() && latches.is_empty() {
        return Err("there is no measurement in these files".into());
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::*;
    use crate::checksum::Checksum;

    fn measurement(outcome: Outcome) -> Line {
        let operations = [
            Operation::InsertLast {},
            Operation::Get {},
            Operation::GetMany { group: 16 },
            Operation::Scan { min_records: 1, max_records: 50 },
            Operation::ScanAll {},
            Operation::Overwrite {},
            Operation::OverwriteBesideCheckpoint {},
            Operation::Delete { percent: 80 },
            Operation::Mixed { get_percent: 50 },
            Operation::FetchAdd {},
            Operation::Settle {},
            Operation::Rest { seconds: 3 },
        ];
        let distributions = [
            Distribution::Uniform {},
            Distribution::Zipf { theta: 0.99 },
            Distribution::HotSet { records_percent: 10.0, accesses_percent: 90.0 },
            Distribution::Latest { theta: 0.5 },
            Distribution::Sequential {},
        ];
        let phase = |(number, operation)| Phase {
            name: format!("phase {number}"),
            operation,
            distribution: distributions[number % distributions.len()],
            operations: 10,
            threads: 2,
            seed: u64::MAX,
            latency: number % 2 == 0,
            seconds: None,
        };
        Line::Cell(Box::new(Measurement {
            experiment: "experiment".into(),
            case: "case".into(),
            figure: Figure::Space,
            competitor: "hedgerow@old".into(),
            pair: 3,
            cell: Cell {
                protocol: PROTOCOL,
                competitor: "hedgerow".into(),
                keys: KeySet {
                    name: "urls".into(),
                    kind: KeyKind::File,
                    count: 100,
                    path: Some("urls.keys".into()),
                },
                value_bytes: 8,
                spread: None,
                load_order: LoadOrder::Bulk,
                load_count: 90,
                phases: operations.into_iter().enumerate().map(phase).collect(),
                place: Place::File,
                memory_limit_bytes: Some(1 << 20),
                durability: Durability::None,
                memory_group: None,
                directory: "store".into(),
                page_bytes: None,
                seconds_limit: 60,
            },
            loaded_bytes: 1000,
            outcome,
            mismatch: None,
            run: 0,
        }))
    }

    fn result() -> CellResult {
        let phase = PhaseResult {
            operations: 10,
            seconds: 0.1,
            checksum: Some(Checksum(u64::MAX - 1)),
            latency: Some(Latency {
                p50_us: 0.5,
                p99_us: 1.0,
                p999_us: 2.0,
                max_us: 9.5,
                histogram: vec![(1.0, 9), (9.5, 1)],
            }),
            ..PhaseResult::default()
        };
        CellResult {
            protocol: PROTOCOL,
            load: PhaseResult::default(),
            phases: vec![phase],
            records: 100,
            store_bytes: Some(4096),
            tree: Some(TreeShape { height: Some(2), leaves: 9, inner_nodes: 1, layouts: None }),
            facts: [("version".to_owned(), "1".to_owned())].into(),
        }
    }

    #[test]
    fn results_without_a_tree_are_as_they_were_before_trees_were_counted() {
        let none = CellResult { tree: None, ..result() };
        let text = serde_json::to_string(&none).unwrap();
        assert!(!text.contains("tree"), "{text}");
        assert_eq!(serde_json::from_str::<CellResult>(&text).unwrap(), none);
    }

    #[test]
    fn trees_without_layouts_are_as_they_were_before_layouts_were_counted() {
        let text = serde_json::to_string(&result()).unwrap();
        assert!(text.contains("tree") && !text.contains("layouts"), "{text}");
        assert_eq!(serde_json::from_str::<CellResult>(&text).unwrap(), result());
    }

    #[test]
    fn lines_survive_json() {
        let mut with_layouts = result();
        let layouts = LeafCounts { comparison: 4, fingerprint: 3, semi_dense: 0, fully_dense: 2 };
        with_layouts.tree =
            with_layouts.tree.map(|tree| TreeShape { layouts: Some(layouts), ..tree });
        let outcomes = [
            Outcome::Measured(Box::new(result())),
            Outcome::Measured(Box::new(with_layouts)),
            Outcome::Missing(CellError::NotInstalled("why".into())),
            Outcome::Missing(CellError::Unsupported("why".into())),
            Outcome::Missing(CellError::TimedOut(60)),
            Outcome::Missing(CellError::Failed("why".into())),
        ];
        for outcome in outcomes {
            let line = measurement(outcome);
            let json = serde_json::to_string(&line).unwrap();
            assert_eq!(serde_json::from_str::<Line>(&json).unwrap(), line, "{json}");
        }
    }

    #[test]
    fn lines_are_appended_and_a_cut_one_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record.jsonl");
        let line = measurement(Outcome::Measured(Box::new(result())));
        Sink::new(Some(&path)).unwrap().write(&line).unwrap();
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{whole}{}", &whole[..whole.len() / 2])).unwrap();
        Sink::new(Some(&path)).unwrap().write(&line).unwrap();
        let records = read(&[path]).unwrap();
        assert_eq!(records.measurements.len(), 2);
        assert_eq!(records.unreadable.len(), 1);
        assert!(records.unreadable[0].contains("record.jsonl:2:"), "{:?}", records.unreadable);
    }

    #[test]
    fn a_full_disk_is_told_and_nothing_before_is_lost() {
        // A device that is always full; where there is none, nothing can be shown.
        let full = Path::new("/dev/full");
        if full.exists() {
            let file = File::options().write(true).open(full).unwrap();
            let mut sink = Sink::File(full.to_owned(), file);
            let words =
                sink.write(&measurement(Outcome::Measured(Box::new(result())))).unwrap_err();
            assert!(words.contains("what was written before is kept"), "{words}");
        }
    }

    #[test]
    fn a_file_without_measurements_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record.jsonl");
        assert!(read(std::slice::from_ref(&path)).unwrap_err().contains("cannot read"));
        std::fs::write(&path, "").unwrap();
        assert!(read(&[path]).unwrap_err().contains("no measurement"));
    }
}
