//! The benchmarks' own tests: one program, because eight would each be built and linked, and run one after the other.
//!
//! `cargo test -p hedgerow-bench --test bench pools::` runs the tests of one module. What measures its process is a program of
//! its own beside this one.

#![allow(missing_docs, reason = "a test")]

mod common;

mod accesses;
mod approximate;
mod experiments;
mod ladder;
mod latches;
mod leaves;
mod manners;
mod pools;
mod tpcc;
mod tree_stress;
mod vmcache;
