//! Stand-ins that tests and measurements use in place of the engine's lower parts.
//!
//! Nothing in the engine imports this module. Public, so that integration tests, examples and
//! benchmarks reach it.

pub mod memory_pool;

pub use memory_pool::MemoryPool;
