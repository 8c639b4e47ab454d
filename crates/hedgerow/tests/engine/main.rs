//! The engine through its public surface, on simulated and on real disks: one program, because forty would each be built
//! and linked, and run one after the other.
//!
//! `cargo test -p hedgerow --test engine durability::` runs the tests of one module. What measures its process, or replaces the
//! allocator, is a program of its own beside this one.

#![cfg(not(any(loom, shuttle)))]
#![allow(missing_docs, reason = "a test")]

#[path = "../common/mod.rs"]
mod common;

mod adaptive;
mod backup;
mod bad_input;
mod batches;
mod byte_sweep;
mod crash_bulk_load;
mod crash_checkpoint;
mod crash_kill;
mod crash_large_values;
mod creation;
mod crowd;
mod damage;
mod damage_large_values;
mod database;
mod durability;
mod fault_sweep;
mod faults;
mod faults_logged;
mod footprint;
mod full_disk_logged;
mod idle_streams;
mod isolation;
mod large_values;
mod lies;
mod lies_logged;
mod linear;
mod log_files;
mod lying_syncs;
mod many;
mod names;
mod no_threads;
mod opening;
mod pages;
mod pins;
mod read_ahead;
mod repair;
mod small_world;
mod space;
mod verify_beside_writers;
