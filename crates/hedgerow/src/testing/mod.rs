//! What tests and measurements are made with: stand-ins for the engine's lower parts, and the judge of what a crash has
//! left.
//!
//! Nothing in the engine imports this module. Public, so that integration tests, examples and
//! benchmarks reach it.

pub mod examine;
pub mod history;
pub mod linear;
pub mod memory_pool;
pub mod recorded;

pub use examine::{Accident, Examiner, Recovered};
pub use history::{Contents, History, Outcome, Records};
pub use memory_pool::MemoryPool;
