//! The arguments of `hedgerow-bench`, and the help that goes with them.

use clap::{Args, Parser, Subcommand, ValueEnum};
use hedgerow_bench::experiments::Size;
use hedgerow_bench::key_files::KeyFiles;
use std::path::{Path, PathBuf};

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
    /// Be the process that is killed
    #[command(hide = true)]
    PutUntilKilled {
        /// The store
        store: PathBuf,
        /// The setting, as JSON
        setting: String,
    },
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
    /// A program with more competitors, which follows the cell protocol
    #[arg(long, value_name = "PROGRAM")]
    pub peers: Option<PathBuf>,
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
