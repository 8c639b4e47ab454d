//! Experiments as data: Hedgerow measured beside other stores.
//!
//! An experiment names key sets, operations, distributions, threads and a memory limit; it is cut
//! into cells, each run by a process of its own, competitors in turns. The program is
//! `hedgerow-bench`; this library is what programs of other competitors share with it:
//!
//! | module | what |
//! |---|---|
//! | [`cell`] | the protocol between `hedgerow-bench` and any program with competitors |
//! | [`harness`] | runs a cell on a store in the same process: implement [`harness::Engine`] |
//! | [`keys`], [`access`], [`checksum`] | key sets, accesses drawn ahead, sums of the work |
//! | [`external`] | foreign programs with arguments and output of their own, with a time limit |
//! | [`memory_group`] | a cgroup for a cell whose store lives from the page cache as well |
//! | [`experiments`] | the experiments |
//! | [`recovery`] | how long opening takes after a kill |
//! | [`compaction`] | what merging leaves gains |
//! | [`run`], [`record`] | runs them in turns, and keeps what they gave as JSON lines |
//! | [`instructions`] | counts instructions instead of seconds |
//! | [`summary`], [`calls`] | medians and spread of rates, and of what single calls took |
//! | [`report`], [`chart`], [`numbers`] | tables and pictures of records |
//! | [`latches`] | latches behind one trait, and what they cost |
//! | [`tpcc`] | TPC-C as index operations, over a trait of a store |
//! | `vmcache` | another buffer pool under the engine's tree: page id = address |
//!
//! Everything is above the engine's public API but the competitors `tree-*` and `vmcache`, which need
//! its tree without a store.

/// The example of the README is a test here, because the README lies outside of the published crates.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

pub mod access;
pub mod calls;
pub mod cell;
pub mod chart;
pub mod checksum;
pub mod compaction;
pub mod engines;
pub mod experiments;
pub mod external;
pub mod harness;
pub mod instructions;
pub mod key_files;
pub mod keys;
pub mod latches;
pub mod machine;
pub mod memory_group;
pub mod numbers;
pub mod record;
pub mod recovery;
pub mod report;
pub mod run;
pub mod summary;
pub mod tpcc;
#[cfg(target_os = "linux")]
pub mod vmcache;
