//! The arguments of `hedgerow-bench`, and the help that goes with them.

use clap::{Args, Parser, Subcommand, ValueEnum};
use hedgerow_bench::experiments::Size;
use hedgerow_bench::key_files::KeyFiles;
use hedgerow_bench::latches::figures::{self, Figure};
use hedgerow_bench::tpcc::Scale;
use hedgerow_bench::tpcc::engine::Place;
use hedgerow_bench::tpcc::isolated::Isolation;
use hedgerow_bench::tpcc::run::{Count, Length, Setting};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Measure Hedgerow beside other stores: experiments as data, one process a measurement.
#[derive(Debug, Parser)]
#[command(name = "hedgerow-bench", version)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the experiments, their cases and competitors
    List,
    /// Run experiments; each measurement is a line of JSON, written as soon as it is known
    Run(RunArguments),
    /// Kill a process that puts at full speed, and time opening its store, by size and recovery target
    Recovery(RecoveryArguments),
    /// Measure what merging leaves gains, by kind of keys and size of pages
    Compaction(CompactionArguments),
    /// Be the process that is killed
    #[command(hide = true)]
    PutUntilKilled {
        /// The store
        store: PathBuf,
        /// The setting, as JSON
        setting: String,
    },
    /// Run TPC-C in transactions, or as single operations, and check its twelve consistency conditions afterwards
    Tpcc(TpccArguments),
    /// Measure latches on this machine: tables 2 and 3 and figures 7 and 8 of "Scalable and Robust Latches for Database Systems"
    Latches(LatchArguments),
    /// Print tables in Markdown: medians, spread, ratios to the first competitor
    Report {
        /// One table of everything, with fewer columns
        #[arg(long)]
        compact: bool,
        /// Medians alone, competitors side by side
        #[arg(long, conflicts_with = "compact")]
        wide: bool,
        /// Ratios to the competitor before, as on a ladder, instead of the first
        #[arg(long, requires = "compact")]
        steps: bool,
        /// Files of records
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Draw each case as an SVG picture
    Chart {
        /// Files of records
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Directory for the pictures
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Print the names of the competitors that this program has
    Competitors,
    /// Be one process of an experiment: run a cell, print its result
    Cell {
        /// The cell, as JSON
        #[arg(value_name = "CELL.json")]
        file: PathBuf,
    },
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Experiments, as `list` names them
    #[arg(required = true, value_name = "EXPERIMENT")]
    pub experiments: Vec<String>,
    /// Key file, one key a line; NAME is the key set, by default the file's name up to the first
    /// `.` or `-`. May be given more than once
    #[arg(long, value_name = "[NAME=]FILE", value_parser = key_file)]
    pub keys: Vec<(String, PathBuf)>,
    /// How often each competitor runs each case
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = at_least_one)]
    pub pairs: usize,
    /// Count the instructions of each operation, by callgrind (valgrind), which takes fifty times as long;
    /// `--size small` is enough
    #[arg(long)]
    pub instructions: bool,
    /// How much: figures of the smoke size mean nothing
    #[arg(long, value_enum, default_value_t = SizeName::Full)]
    pub size: SizeName,
    /// Append the records to this file [default: print them]
    #[arg(long, value_name = "FILE.jsonl")]
    pub out: Option<PathBuf>,
    /// Only this competitor, instead of the experiment's. May be given more than once; the others
    /// are compared with the first
    #[arg(long, value_name = "NAME")]
    pub competitor: Vec<String>,
    /// Only this case. May be given more than once
    #[arg(long, value_name = "NAME")]
    pub case: Vec<String>,
    /// A program with more competitors, which follows the cell protocol. May be given more than once; of
    /// two that have a competitor, the first runs it
    #[arg(long, value_name = "PROGRAM")]
    pub peers: Vec<PathBuf>,
    /// Directory of foreign programs [default: the environment variable HEDGEROW_EXTERNAL]
    #[arg(long, value_name = "DIR")]
    pub external_dir: Option<PathBuf>,
    /// Another build of this program, to be compared with the others given so, in turns
    #[arg(long, value_name = "LABEL=PROGRAM", value_parser = crate::named_path)]
    pub build: Vec<(String, PathBuf)>,
    /// Put stores and shuffled keys below this directory [default: that of temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Kill a process after so many seconds [default: the experiment's]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds_limit: Option<u64>,
}

/// Arguments of `recovery`.
#[derive(Debug, Args)]
pub struct RecoveryArguments {
    /// How often each setting is run
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one)]
    pub rounds: usize,
    /// How much: figures of the smoke size mean nothing
    #[arg(long, value_enum, default_value_t = SizeName::Full)]
    pub size: SizeName,
    /// Append the records to this file [default: print them]
    #[arg(long, value_name = "FILE.jsonl")]
    pub out: Option<PathBuf>,
    /// Put the store below this directory [default: that of temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Arguments of `tpcc`.
#[derive(Debug, Args)]
pub struct TpccArguments {
    /// The store: made and loaded if there is none, and kept; it must have been loaded at the same scale [default: in memory]
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
    /// Warehouses
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub warehouses: u32,
    /// The share of the specification's customers, orders and items; above 0 and up to 1
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    pub scale: f64,
    /// Terminals, each a thread
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub threads: u32,
    /// For how long they enter transactions
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub seconds: f64,
    /// How many transactions each of them enters, instead of for how long
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    pub transactions: Option<u64>,
    /// What transactions may be mixed with
    #[arg(long, value_enum, default_value_t = Isolation::Serializable)]
    pub isolation: Isolation,
    /// Bytes of a page [default: the engine's]
    #[arg(long, value_name = "BYTES")]
    pub page_bytes: Option<usize>,
    /// The most memory of the store [default: the engine's]
    #[arg(long, value_name = "MIB")]
    pub memory_mib: Option<u32>,
    /// Log no changes
    #[arg(long, requires = "store")]
    pub no_log: bool,
    /// Merge no leaves with their neighbours before they are written
    #[arg(long, requires = "store")]
    pub no_merges: bool,
    /// Insert the initial data one by one, instead of in bulk
    #[arg(long)]
    pub insert: bool,
    /// Count what the tables take after the load and at the end
    #[arg(long)]
    pub space: bool,
    /// The same, each time after a compaction
    #[arg(long, conflicts_with = "space")]
    pub compacted_space: bool,
    /// Where random numbers begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Milliseconds, to see that everything works; the figures mean nothing
    #[arg(long, conflicts_with_all = ["warehouses", "scale", "threads", "seconds", "transactions"])]
    pub smoke: bool,
    /// Append the record to this file [default: print it]
    #[arg(long, value_name = "FILE.jsonl")]
    pub out: Option<PathBuf>,
}

impl TpccArguments {
    /// Where the store is.
    pub fn place(&self) -> Place {
        Place {
            path: self.store.clone(),
            page_bytes: self.page_bytes,
            memory_limit_bytes: self.memory_mib.map(|mib| u64::from(mib) << 20),
            is_without_log: self.no_log,
            is_without_merges: self.no_merges,
            fill_percent: None,
            is_inserted: self.insert,
        }
    }

    /// What is to be run.
    pub fn setting(&self) -> Setting {
        let (seed, isolation) = (self.seed, self.isolation);
        let space = match (self.space, self.compacted_space) {
            (_, true) => Some(Count::Compacted),
            (is_counted, false) => is_counted.then_some(Count::AsTheyAre),
        };
        if self.smoke {
            let scale = Scale { warehouses: 2, share: 0.01 };
            let length = Length::Transactions(500);
            return Setting { scale, threads: 2, length, isolation, seed, space };
        }
        let scale = Scale { warehouses: self.warehouses, share: self.scale };
        let length = match self.transactions {
            Some(transactions) => Length::Transactions(transactions),
            None => Length::Seconds(self.seconds),
        };
        Setting { scale, threads: self.threads, length, isolation, seed, space }
    }
}

/// Arguments of `latches`.
#[derive(Debug, Args)]
pub struct LatchArguments {
    /// Only this figure; table 2 comes with table 3. May be given more than once
    #[arg(long, value_enum, value_name = "FIGURE")]
    pub figure: Vec<FigureName>,
    /// Only latches whose names contain this
    #[arg(long, value_name = "NAME")]
    pub latch: Option<String>,
    /// Threads of what is contended in table 3, and of figure 7
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=128))]
    pub threads: u32,
    /// Milliseconds of each cell
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub milliseconds: u64,
    /// How often; latches take turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// Milliseconds, to see that everything works; the figures mean nothing
    #[arg(long, conflicts_with_all = ["threads", "milliseconds", "rounds"])]
    pub smoke: bool,
    /// Append the records to this file [default: print them]
    #[arg(long, value_name = "FILE.jsonl")]
    pub out: Option<PathBuf>,
}

/// Names of figures on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FigureName {
    /// One latch, alone and contended, read and written; and its bytes
    Table3,
    /// Scans and updates of a table under latches of so many tuples
    Figure7,
    /// One latch, written by 1 to 32 threads
    Figure8,
}

impl LatchArguments {
    /// What is to be run.
    pub fn setting(&self) -> figures::Setting {
        let of = |name: &FigureName| match name {
            FigureName::Table3 => Figure::Table3,
            FigureName::Figure7 => Figure::Figure7,
            FigureName::Figure8 => Figure::Figure8,
        };
        let names =
            if self.figure.is_empty() { FigureName::value_variants() } else { &self.figure };
        let only = self.latch.clone();
        let figures = names.iter().map(of).collect();
        if self.smoke {
            let (span, crowds) = (Duration::from_millis(1), vec![1, 2]);
            return figures::Setting {
                figures,
                only,
                threads: 2,
                crowds,
                span,
                tuples: 100,
                rounds: 1,
            };
        }
        figures::Setting {
            figures,
            only,
            threads: self.threads,
            crowds: vec![1, 2, 4, 8, 16, 32],
            span: Duration::from_millis(self.milliseconds),
            tuples: 100_000,
            rounds: self.rounds,
        }
    }
}

/// Arguments of `compaction`.
#[derive(Debug, Args)]
pub struct CompactionArguments {
    /// How often each setting is run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub rounds: usize,
    /// How much: figures of the smoke size mean nothing
    #[arg(long, value_enum, default_value_t = SizeName::Full)]
    pub size: SizeName,
    /// URLs, one a line [default: no settings with URLs]
    #[arg(long, value_name = "FILE")]
    pub urls: Option<PathBuf>,
    /// Count the instructions of puts and of merging, by valgrind; seconds mean nothing then
    #[arg(long)]
    pub instructions: bool,
    /// The only setting, whose figures are printed: what counting starts
    #[arg(long, hide = true, value_name = "JSON")]
    pub one: Option<String>,
    /// Append the records to this file [default: print them]
    #[arg(long, value_name = "FILE.jsonl")]
    pub out: Option<PathBuf>,
    /// Put the store below this directory [default: that of temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Names of sizes on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SizeName {
    /// Milliseconds a process, to see that everything works
    Smoke,
    /// A twentieth
    Small,
    /// What figures are taken with
    Full,
}

impl From<SizeName> for Size {
    fn from(name: SizeName) -> Size {
        match name {
            SizeName::Smoke => Size::Smoke,
            SizeName::Small => Size::Small,
            SizeName::Full => Size::Full,
        }
    }
}

fn key_file(text: &str) -> Result<(String, PathBuf), String> {
    if text.contains('=') {
        return crate::named_path(text);
    }
    let path = Path::new(text);
    let name = KeyFiles::name_of(path);
    if name.is_empty() { Err(format!("`{text}` is no file")) } else { Ok((name, path.into())) }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("`{text}` is not a number from 1 on")),
    }
}
