//! The command line: all commands, and the help that goes with them.
//!
//! Each command's own arguments are declared beside it; what they share is in `args.rs`. Wrong arguments end
//! with exit code 2 before any store is touched.

use crate::args::Common;
use crate::commands::{
    backup, compact, count, del, dump, get, hot, load, pages, put, rename, repair, restore, scan,
    stat, torture, tour, verify,
};
use clap::{Parser, Subcommand};

const AFTER_HELP: &str = "\
Keys and values on the command line and in the output are text with these escapes:
  \\\\ backslash   \\t tab   \\n newline   \\r carriage return   \\xNN the byte NN (hexadecimal)
  \\e nothing, for an empty key

Exit codes:
  0 success   1 error   2 wrong arguments   3 key not found   4 damage found, in a store or a dump
  5 the store is open elsewhere   6 the store or dump is of another format version
  7 torture found a fault   8 the seed is from another version of torture   130 interrupted

load, put, del, rename, compact and hot write to the store. tour and torture write to stores of their own.
All other commands open the store read-only. If it was not closed, backup opens it for writing
to replay its log. backup, restore and repair make a new file and never replace one.";

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

/// The commands, one file each.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run every kind of operation on a million records and check every answer
    Tour(tour::TourArgs),
    /// Load records from a text file or a dump; create the store if it does not exist
    Load(load::LoadArgs),
    /// Print the value of a key
    Get(get::GetArgs),
    /// Write one record; create the store if it does not exist
    Put(put::PutArgs),
    /// Delete a key
    Del(del::DelArgs),
    /// Print records in key order
    Scan(scan::ScanArgs),
    /// Count records
    Count(count::CountArgs),
    /// Show the tree, fill, space and memory of a store
    Stat(stat::StatArgs),
    /// Update records from several threads, and list the leaves that they contend for
    Hot(hot::HotArgs),
    /// Write keyspaces as text that `load` reads
    Dump(dump::DumpArgs),
    /// Draw pages byte by byte, or the tree as an SVG picture
    Pages(pages::PagesArgs),
    /// Read a whole store and report damage
    Verify(verify::VerifyArgs),
    /// Merge leaves that fit into fewer pages, and shorten the file
    Compact(compact::CompactArgs),
    /// Give a keyspace another name, or exchange two names
    Rename(rename::RenameArgs),
    /// Copy a store to a new file, without the free space in it
    Backup(backup::BackupArgs),
    /// Check a backup and make a store from it
    Restore(restore::RestoreArgs),
    /// Copy what is intact in a damaged store to a new one, and name the lost keys
    Repair(repair::RepairArgs),
    /// Test this machine and its disk: kills, a full disk, ignored fsyncs
    Torture(torture::TortureArgs),
}

impl Command {
    /// The name of a command that knows nothing of keyspaces.
    pub fn of_whole_stores(&self) -> Option<&'static str> {
        Some(match self {
            Command::Verify(_) => "verify",
            Command::Compact(_) => "compact",
            Command::Rename(_) => "rename",
            Command::Backup(_) => "backup",
            Command::Restore(_) => "restore",
            Command::Repair(_) => "repair",
            Command::Torture(_) => "torture",
            _ => return None,
        })
    }
}
