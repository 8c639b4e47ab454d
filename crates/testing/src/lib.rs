//! What tests and measurements are made with: disks that are simulated, stand-ins for the engine's lower parts, and judges of
//! histories and of what a crash has left.
//!
//! No package has it. Integration tests, benchmarks and tools of the workspace depend on it. The engine's unit tests include these
//! files as a module of their own crate, whose types are others than those that this crate was built with: so files name the engine
//! as `hedgerow`, and each other by `super`.

use std::io::Write as _;

pub mod environment;
#[cfg(feature = "tracing")]
pub mod events;
pub mod examine;
pub mod history;
pub mod islands;
pub mod isolation;
pub mod linear;
pub mod memory_pool;
pub mod plain_memory;
pub mod ram;
pub mod recorded;
pub mod sim;
mod sparse;

pub use examine::{Accident, Examiner, Recovered};
pub use history::{Contents, History, Outcome, Records};
pub use memory_pool::MemoryPool;
pub use plain_memory::{PlainFreezer, PlainMemory};
pub use ram::RamDisk;
pub use sim::SimDisk;

/// Says on standard output how much of something a test has done: a line of its own, `counted: 1008 histories`.
///
/// `cargo xtask proof` sums these lines by their last words and asks for a number of each: who counts calls this once a
/// run and for what has come to its end well, not for what was begun. A harness shows it to nobody if it keeps to itself what tests
/// print: the line is also appended to the file that `HEDGEROW_COUNTED` names, if any.
///
/// Panics if it cannot be appended.
#[allow(clippy::disallowed_methods, reason = "a file of the test's, and none of a store's")]
pub fn count(number: u64, what: &str) {
    let line = format!("counted: {number} {what}\n");
    print!("{line}");
    if let Some(path) = std::env::var_os("HEDGEROW_COUNTED") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        // One call, so that lines of several tests do not mix.
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("HEDGEROW_COUNTED={}: {error}", path.display()));
    }
}

/// Says on the real standard error, where no harness keeps it to itself, that a test was not run, and why: this machine has
/// not what it needs. Whoever calls this then lets the test pass, which is all that a harness can be told.
pub fn not_run(what: &str, why: &str) {
    environment::say(&format!("NOT RUN: {what}: {}", why.trim()));
}
