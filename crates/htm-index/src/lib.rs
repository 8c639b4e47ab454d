//! Trees for transactional memory: the indexes of "Improving In-Memory Database Index Performance with Intel TSX" (HPCA 2014) and of
//! "Eunomia: Scaling Concurrent Search Trees under Contention Using HTM" (PPoPP 2017), on four backends.
//!
//! This is for an in-memory map of 8-byte keys and values on a machine that has RTM, and for the study of transactional
//! memory. For anything else a keyspace in memory of the engine is the better choice: it does not use this crate.
//!
//! - [`htm`] has regions, the lock that they elide, the policy of retries, and the backends.
//! - [`arena`] has nodes that are named by numbers and stay nodes when they are freed. So no pointer is followed, and a stale
//!   number is safe to follow.
//!
//! Everything that a region reaches lies in a [`htm::TCell`]. `unsafe` code is in `htm/rtm.rs` alone. All types are `Send + Sync`
//! where their documents do not say otherwise.

#![warn(
    missing_debug_implementations,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate
)]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]
#![deny(unsafe_code)]

pub mod arena;
pub mod bplus;
pub mod delta;
pub mod eunomia;
#[cfg(not(loom))]
pub mod footprint;
pub mod htm;
pub mod optimistic;
pub mod workload;
