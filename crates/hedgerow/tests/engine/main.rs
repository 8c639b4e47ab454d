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
mod alone;
mod anomalies;
mod approximate;
mod backup;
mod bad_input;
mod batches;
mod byte_sweep;
mod commits;
mod compact;
mod contention;
mod crash_bulk_load;
mod crash_checkpoint;
mod crash_kill;
mod crash_large_values;
mod creation;
mod crowd;
mod damage;
mod damage_large_values;
mod damage_value_forms;
mod database;
mod drops;
mod durability;
mod ends;
mod events;
mod fault_sweep;
mod faults;
mod faults_logged;
mod footprint;
mod frozen_versions;
mod full_disk_logged;
mod full_disk_reads;
mod history_client;
mod idle_streams;
mod images;
mod imitations;
mod isolation;
mod large_values;
mod lent_values;
mod let_go;
mod lies;
mod lies_logged;
mod linear;
mod log_files;
mod long_keys;
mod lying_syncs;
mod many;
mod modify;
mod names;
mod no_threads;
mod old_values;
mod opening;
mod pages;
mod pinned_snapshots;
mod pins;
mod read_ahead;
mod renames;
mod repair;
mod room_ahead;
mod shrink;
mod small_world;
mod snapshot_values;
mod snapshots;
mod space;
mod told;
mod transactions;
mod value_forms;
mod value_sizes;
mod values_in_memory;
mod verify_beside_writers;
