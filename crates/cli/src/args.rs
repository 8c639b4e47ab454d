//! The arguments of every command, and the help that goes with them.
//!
//! Each command's own arguments are declared beside it; here is what they share. Wrong arguments end
//! with exit code 2 before any store is touched.

use crate::commands::{
    backup, count, del, dump, get, load, pages, put, repair, restore, scan, stat, torture, tour,
    verify,
};
use crate::size;
use clap::{Args, Parser, Subcommand, ValueEnum};
use hedgerow::{LeafLayout, LeafPolicy};

const AFTER_HELP: &str = "\
Keys and values on the command line and in the output are text with these escapes:
  \\\\ backslash   \\t tab   \\n newline   \\r carriage return   \\xNN the byte NN (hexadecimal)

Exit codes:
  0 success   1 error   2 wrong arguments   3 key not found   4 damage found, in a store or a dump
  5 the store is open elsewhere   6 store or dump needs a newer version of this tool
  7 torture has found something   8 a seed of another version of torture   130 interrupted

load, put and del write to a store, and tour and torture to one of their own; the others open it
read-only (backup only if it was closed, else it replays the log first). backup, restore and repair
make a new file.";

/// An embedded ordered key-value store: load, look up, scan, inspect and check store files.
#[derive(Debug, Parser)]
#[command(name = "hedgerow", version, after_help = AFTER_HELP)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What all commands take.
    #[command(flatten)]
    pub common: Common,
}

/// Options that every command takes.
#[derive(Debug, Args)]
pub struct Common {
    /// Keyspace to work on [default: `default`; to read or to remove, the only one there is if that is another; to dump and to
    /// load a dump, all]
    #[arg(long, global = true, value_name = "NAME")]
    pub keyspace: Option<String>,
    /// Most memory that the store may use, such as 64MiB or 2GB [default: a quarter of the memory
    /// of this machine or its cgroup, or of what `ulimit -v` leaves]
    #[arg(long, global = true, value_name = "SIZE", value_parser = size::parse_bytes)]
    pub memory_limit: Option<u64>,
    /// Form of the output
    #[arg(long, global = true, value_enum, default_value_t = Format::Human)]
    pub format: Format,
}

impl Common {
    /// The keyspace to work on, for commands that may create it.
    pub fn keyspace(&self) -> &str {
        self.keyspace.as_deref().unwrap_or("default")
    }
}

/// How data is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines for people; a tab separates key and value
    Human,
    /// One JSON object a line
    Json,
}

/// How the leaves of a store that is written get their layouts.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct LeafArgs {
    /// Layout of the leaves that are written: by their keys and their use, or one for all whose keys
    /// allow it
    #[arg(long, value_name = "LAYOUT", value_enum, default_value_t = Leaves::Adaptive)]
    pub leaves: Leaves,
}

/// See [`LeafArgs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Leaves {
    /// Each leaf has the layout that is good for its keys and for how it is used
    #[default]
    Adaptive,
    /// Sorted, searched by the first four bytes of each key
    Comparison,
    /// Unsorted, searched by a hash of one byte of each key
    Fingerprint,
    /// A slot for each number between the keys, values of any size
    SemiDense,
    /// An array of values of one size, indexed by the key
    FullyDense,
}

impl Leaves {
    /// What the engine calls it.
    pub fn policy(self) -> LeafPolicy {
        match self {
            Leaves::Adaptive => LeafPolicy::Adaptive,
            Leaves::Comparison => LeafPolicy::Fixed(LeafLayout::Comparison),
            Leaves::Fingerprint => LeafPolicy::Fixed(LeafLayout::Fingerprint),
            Leaves::SemiDense => LeafPolicy::Fixed(LeafLayout::SemiDense),
            Leaves::FullyDense => LeafPolicy::Fixed(LeafLayout::FullyDense),
        }
    }
}

/// The commands, one file each.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the whole engine at work on real keys, in under a minute
    Tour(tour::TourArgs),
    /// Load records from a text file, or a dump; creates the store if there is none
    Load(load::LoadArgs),
    /// Print the value of a key
    Get(get::GetArgs),
    /// Write one record; creates the store if there is none
    Put(put::PutArgs),
    /// Delete a key
    Del(del::DelArgs),
    /// Print records in key order
    Scan(scan::ScanArgs),
    /// Count records
    Count(count::CountArgs),
    /// Show shape, fill, space and memory of a store
    Stat(stat::StatArgs),
    /// Write keyspaces as text, which `load` reads
    Dump(dump::DumpArgs),
    /// Draw pages byte by byte, or the tree as a picture
    Pages(pages::PagesArgs),
    /// Check a whole store for damage
    Verify(verify::VerifyArgs),
    /// Copy a store to a new file, without the free space in it
    Backup(backup::BackupArgs),
    /// Check a backup and make a store of it
    Restore(restore::RestoreArgs),
    /// Put what is whole in a damaged store into a new one, and name what is lost
    Repair(repair::RepairArgs),
    /// Test this machine and its disk: kills, a full disk, simulated power cuts, a disk that lies
    Torture(torture::TortureArgs),
}

impl Command {
    /// The name of a command that knows nothing of keyspaces.
    pub fn of_whole_stores(&self) -> Option<&'static str> {
        Some(match self {
            Command::Verify(_) => "verify",
            Command::Backup(_) => "backup",
            Command::Restore(_) => "restore",
            Command::Repair(_) => "repair",
            Command::Torture(_) => "torture",
            _ => return None,
        })
    }
}

/// The part of a keyspace that `scan` and `count` work on.
#[derive(Debug, Default, Args)]
pub struct RangeArgs {
    /// Only keys that begin with this
    #[arg(long, value_name = "PREFIX", value_parser = crate::escape::parse_operand, allow_hyphen_values = true)]
    pub prefix: Option<crate::escape::Bytes>,
    /// Only keys from this one on
    #[arg(long, value_name = "KEY", value_parser = crate::escape::parse_operand, allow_hyphen_values = true)]
    pub from: Option<crate::escape::Bytes>,
    /// Only keys before this one
    #[arg(long, value_name = "KEY", value_parser = crate::escape::parse_operand, allow_hyphen_values = true)]
    pub to: Option<crate::escape::Bytes>,
}
