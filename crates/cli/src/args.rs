//! The arguments that several commands take.
//!
//! Each command's own arguments are declared beside it, and `command_line.rs` puts them all together.

use crate::size;
use clap::{Args, ValueEnum};
use hedgerow::{LeafLayout, LeafPolicy};
use std::time::Duration;

/// Options that every command takes.
#[derive(Debug, Args)]
pub struct Common {
    /// Keyspace to work on; escapes are read [default: `default` if there is one, else the only keyspace. `put` and `load` create `default` in a store that
    /// has none. `dump`, and `load` of a dump, take all]
    #[arg(long, global = true, value_name = "NAME", value_parser = crate::escape::parse_name)]
    pub keyspace: Option<String>,
    /// Memory limit of the store, such as 64M or 2GB [default: a quarter of the memory of the machine, of the cgroup, or of
    /// `ulimit -v`, whichever is least]
    #[arg(long, global = true, value_name = "SIZE", value_parser = size::parse_bytes)]
    pub memory_limit: Option<u64>,
    /// Wait so many seconds, such as 0.5, for a store that another process has open
    #[arg(long, global = true, value_name = "SECONDS", value_parser = parse_seconds, default_value = "0")]
    pub wait: Duration,
    /// Output format
    #[arg(long, global = true, value_enum, default_value_t = Format::Human)]
    pub format: Format,
    /// Show no progress and print no notes on standard error, such as how much was loaded. Errors are printed still
    #[arg(long, global = true, visible_alias = "no-progress")]
    pub quiet: bool,
    /// Print on standard error when the store is opened, recovered or checkpointed, and what it waits for
    #[arg(long, global = true)]
    pub verbose: bool,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| format!("`{text}` is not a number of seconds, such as 5 or 0.5"))
}

/// The keyspace that is worked on where nobody says another one, and there is not another one alone.
pub const DEFAULT_KEYSPACE: &str = "default";

/// How data is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text; a tab separates key and value
    Human,
    /// One JSON object per line
    Json,
}

/// How the leaves of a store that is written get their layouts.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct LeafArgs {
    /// Layout of new leaves: chosen for each leaf, or the same one for every leaf whose keys allow it
    #[arg(long, value_name = "LAYOUT", value_enum, default_value_t = Leaves::Adaptive)]
    pub leaves: Leaves,
}

/// What a store is created with.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct CreateArgs {
    /// Length of a page of a store that is created, such as 16KiB [default: 4KiB]. A store that exists must have it
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    pub page_bytes: Option<u64>,
}

/// See [`LeafArgs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Leaves {
    /// Chosen for each leaf by its keys and its use
    #[default]
    Adaptive,
    /// Sorted slots, searched by the first four bytes of each key
    Comparison,
    /// Unsorted slots, searched by a one-byte hash of each key
    Fingerprint,
    /// One slot for each number of a range, values of any size
    SemiDense,
    /// An array of values of equal size, indexed by the key
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

/// The part of a keyspace that `scan`, `count` and `del` work on.
#[derive(Debug, Default, Args)]
pub struct RangeArgs {
    /// Only keys that begin with this
    #[arg(long, value_name = "PREFIX", value_parser = crate::escape::parse_of_option, allow_hyphen_values = true)]
    pub prefix: Option<crate::escape::Bytes>,
    /// Only keys at or after this one
    #[arg(long, value_name = "KEY", value_parser = crate::escape::parse_of_option, allow_hyphen_values = true)]
    pub from: Option<crate::escape::Bytes>,
    /// Only keys before this one
    #[arg(long, value_name = "KEY", value_parser = crate::escape::parse_of_option, allow_hyphen_values = true)]
    pub to: Option<crate::escape::Bytes>,
}
