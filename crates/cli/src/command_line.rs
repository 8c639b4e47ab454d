//! The command line: all commands, and the help that goes with them.
//!
//! Each command's own arguments are declared beside it; what they share is in `args.rs`. Wrong arguments end
//! with exit code 2 before any store is touched.

use crate::args::Common;
use crate::commands::{
    backup, compact, completions, count, del, drop, dump, get, hot, keyspaces, load, pages, put,
    recover, rename, repair, restore, scan, stat, torture, tour, verify,
};
use clap::{Parser, Subcommand};

const AFTER_HELP: &str = "\
Keys, values and names of keyspaces on the command line and in the output are text with these escapes:
  \\\\ backslash   \\t tab   \\n newline   \\r carriage return   \\xNN the byte NN (hexadecimal)
  \\e nothing, for an empty key

A SIZE is a number of bytes, or has a unit: K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024,
KB, MB, GB, TB powers of 1000.

Exit codes:
  0 success   1 error   2 wrong arguments   3 key not found   4 damage found, in a store or a dump
  5 the store is open elsewhere   6 the store or dump is of another format version
  7 torture found a fault   8 the seed is from another version of torture   130 interrupted

load, put, del, drop, rename, compact, recover and hot write to the store. tour and torture write
to stores of their own. All other commands open the store read-only. If it was not closed, each
replays its log in memory, until recover does so for good; backup may open it for writing then.
backup, restore, repair, dump --out and pages --svg make a new file and never replace one.";

/// Its own version and that of the format of stores, which the engine keeps to itself; a test holds this against a store.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (format 4)");

/// An embedded ordered key-value store: load, look up, scan, inspect and check store files.
#[derive(Debug, Parser)]
#[command(name = "hedgerow", version = VERSION, after_help = AFTER_HELP)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What all commands take.
    #[command(flatten)]
    pub common: Common,
}

/// The commands, one file each.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run every kind of operation on a million records and check every answer
    #[command(after_help = "Example:\n  hedgerow tour --store birds.hrow")]
    Tour(tour::TourArgs),
    /// Load records from a text file or a dump; create the store if it does not exist
    #[command(after_help = "\
Exit code 4 for a dump that is cut short or damaged, 6 for one of another version.

Examples:
  hedgerow load birds.hrow birds.txt
  hedgerow dump birds.hrow | hedgerow load copy.hrow -")]
    Load(load::LoadArgs),
    /// Print the value of a key
    #[command(after_help = "\
Exit code 3 if the key is not there.

Example:
  hedgerow get birds.hrow wren")]
    Get(get::GetArgs),
    /// Write one record; create the store if it does not exist
    #[command(after_help = "\
Examples:
  hedgerow put birds.hrow wren 'Troglodytes troglodytes'
  hedgerow put birds.hrow song --file wren.ogg")]
    Put(put::PutArgs),
    /// Delete a key, all keys of a range, or all
    #[command(after_help = "\
Exit code 3 if the key is not there.

Examples:
  hedgerow del birds.hrow wren
  hedgerow del birds.hrow --prefix r")]
    Del(del::DelArgs),
    /// List the names of the keyspaces
    #[command(after_help = "Example:\n  hedgerow keyspaces birds.hrow")]
    Keyspaces(keyspaces::KeyspacesArgs),
    /// Remove a keyspace and all its records
    #[command(after_help = "\
Exit code 1 if there is no such keyspace.

Example:
  hedgerow drop birds.hrow finches")]
    Drop(drop::DropArgs),
    /// Print records in key order
    #[command(after_help = "\
Examples:
  hedgerow scan birds.hrow --prefix r
  hedgerow scan birds.hrow --from d --to s --reverse --limit 10")]
    Scan(scan::ScanArgs),
    /// Count records
    #[command(after_help = "Example:\n  hedgerow count birds.hrow --prefix r")]
    Count(count::CountArgs),
    /// Show the tree, fill, space and memory of a store
    #[command(after_help = "\
Reads every page of every keyspace, with --keyspace those of one, and with --quick none.
Memory and cache are of this command, not of a program that uses the store.

Exit code 4 if a page is damaged.

Examples:
  hedgerow stat birds.hrow --format json
  hedgerow stat birds.hrow --quick")]
    Stat(stat::StatArgs),
    /// Update records from several threads, and list the leaves that they contend for
    #[command(after_help = "\
Each record keeps its value.

Example:
  hedgerow hot birds.hrow --keys keys.txt --threads 4")]
    Hot(hot::HotArgs),
    /// Write keyspaces as text that `load` reads
    #[command(after_help = "\
Examples:
  hedgerow dump birds.hrow --out birds.dump
  hedgerow dump birds.hrow finches owls")]
    Dump(dump::DumpArgs),
    /// Draw pages byte by byte, or the tree as an SVG picture
    #[command(after_help = "\
Reads the whole tree of the keyspace; with --page until it meets that page.

Exit code 4 if what is drawn is damaged, or a page cannot be read.

Examples:
  hedgerow pages birds.hrow --page 12
  hedgerow pages birds.hrow --svg birds.svg")]
    Pages(pages::PagesArgs),
    /// Read a whole store and report damage
    #[command(after_help = "\
Exit code 4 if something is damaged.

Example:
  hedgerow verify birds.hrow")]
    Verify(verify::VerifyArgs),
    /// Merge leaves that fit into fewer pages, and shorten the file
    #[command(after_help = "Example:\n  hedgerow compact birds.hrow")]
    Compact(compact::CompactArgs),
    /// Replay the log of a store that was not closed, and close it
    #[command(after_help = "\
It changes nothing of a store that was closed.

Example:
  hedgerow recover birds.hrow")]
    Recover(recover::RecoverArgs),
    /// Give a keyspace another name, or exchange two names
    #[command(after_help = "\
Example, by which a keyspace that was loaded beside another one takes its place:
  hedgerow load birds.hrow new.txt --keyspace new
  hedgerow rename birds.hrow new birds --swap
  hedgerow drop birds.hrow new")]
    Rename(rename::RenameArgs),
    /// Copy a store to a new file, without the free space in it
    #[command(after_help = "Example:\n  hedgerow backup birds.hrow birds.backup")]
    Backup(backup::BackupArgs),
    /// Check a backup and make a store from it
    #[command(after_help = "\
Exit code 4 if the backup is damaged.

Example:
  hedgerow restore birds.backup birds.hrow")]
    Restore(restore::RestoreArgs),
    /// Copy what is intact in a damaged store to a new one, and name the lost keys
    #[command(after_help = "\
Exit code 4 if something was lost.

Example:
  hedgerow repair birds.hrow mended.hrow")]
    Repair(repair::RepairArgs),
    /// Test this machine and its disk: kills, a full disk, ignored fsyncs
    #[command(after_help = "\
Exit code 7 if a fault was found.

Example:
  hedgerow torture sync /var/lib")]
    Torture(torture::TortureArgs),
    /// Print the script by which a shell completes the command line
    #[command(after_help = "\
Example:
  hedgerow completions bash > ~/.local/share/bash-completion/completions/hedgerow")]
    Completions(completions::CompletionsArgs),
    /// Print the manual pages of the tool and its commands
    #[command(after_help = "Example:\n  hedgerow man > hedgerow.1 && man ./hedgerow.1")]
    Man,
}

impl Command {
    /// Whether it looks between records whether it was asked to stop, from its beginning. Any other one a signal ends at once, but `put`
    /// and `hot`, which look when they have read their input.
    pub fn looks(&self) -> bool {
        !matches!(
            self,
            Command::Get(_)
                | Command::Put(_)
                | Command::Del(_)
                | Command::Keyspaces(_)
                | Command::Drop(_)
                | Command::Stat(_)
                | Command::Pages(_)
                | Command::Rename(_)
                | Command::Hot(_)
                | Command::Recover(_)
                | Command::Completions(_)
                | Command::Man
        )
    }

    /// The name of a command that knows nothing of keyspaces.
    pub fn of_whole_stores(&self) -> Option<&'static str> {
        Some(match self {
            Command::Verify(_) => "verify",
            Command::Compact(_) => "compact",
            Command::Recover(_) => "recover",
            Command::Rename(_) => "rename",
            Command::Keyspaces(_) => "keyspaces",
            Command::Drop(_) => "drop",
            Command::Backup(_) => "backup",
            Command::Restore(_) => "restore",
            Command::Repair(_) => "repair",
            Command::Torture(_) => "torture",
            Command::Completions(_) => "completions",
            Command::Man => "man",
            _ => return None,
        })
    }
}
