//! Runs the built binary as a user would: one module a command, and one for the manners that all
//! commands share. Each test has a directory of its own, which goes with it; tests run in parallel.

mod harness;

mod backup;
mod compact;
mod count;
mod del;
#[cfg(unix)]
mod documents;
mod dump;
#[cfg(target_os = "linux")]
mod full_disk;
mod get;
mod hot;
mod keyspaces;
mod leftovers;
mod load;
mod manners;
mod manual;
#[cfg(unix)]
mod names;
mod pages;
#[cfg(target_os = "linux")]
mod progress;
mod put;
#[cfg(unix)]
mod recover;
mod rename;
mod repair;
mod scan;
mod standard;
mod stat;
mod torture;
mod tour;
mod verify;
