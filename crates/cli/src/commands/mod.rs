//! The commands of the tool, one file each: its arguments, and `run`.

pub mod backup;
pub mod compact;
pub mod completions;
pub mod count;
pub mod del;
pub mod drop;
pub mod dump;
pub mod get;
pub mod hot;
pub mod keyspaces;
pub mod load;
pub mod man;
pub mod pages;
pub mod put;
pub mod recover;
pub mod rename;
pub mod repair;
pub mod restore;
pub mod scan;
pub mod stat;
pub mod torture;
pub mod tour;
pub mod verify;
