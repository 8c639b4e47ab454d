//! What tests and measurements are made with: stand-ins for the engine's lower parts, and the judge of what a crash has
//! left.
//!
//! Nothing in the engine imports this module. Public, so that integration tests, examples and
//! benchmarks reach it.

pub mod environment;
pub mod examine;
pub mod history;
pub mod islands;
pub mod isolation;
pub mod linear;
pub mod memory_pool;
pub mod recorded;

pub use examine::{Accident, Examiner, Recovered};
pub use history::{Contents, History, Outcome, Records};
pub use memory_pool::MemoryPool;

/// Says on standard output how much of something a test has done: a line of its own, `counted: 1008 histories`.
///
/// `cargo xtask proof` sums these lines by their last words and asks for a number of each: who counts calls this once a
/// run and for what has come to its end well, not for what was begun.
pub fn count(number: u64, what: &str) {
    println!("counted: {number} {what}");
}

/// Says on the real standard error, where no harness keeps it to itself, that a test was not run, and why: this machine has
/// not what it needs. Whoever calls this then lets the test pass, which is all that a harness can be told.
pub fn not_run(what: &str, why: &str) {
    environment::say(&format!("NOT RUN: {what}: {}", why.trim()));
}
