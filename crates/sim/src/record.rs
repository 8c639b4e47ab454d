//! What a run leaves behind: counts, times, and a digest of everything that happened; or why it failed.

use crate::machine::ParameterError;
use std::fmt;

/// How often something happened.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Accesses to memory that were simulated, fences and turns of spin loops.
    pub events: u64,
    /// Accesses that only read.
    pub loads: u64,
    /// Plain stores.
    pub stores: u64,
    /// Read-modify-writes, also those that fail.
    pub rmws: u64,
    /// Turns of spin loops.
    pub pauses: u64,
    /// Accesses to a line that the core held.
    pub hits: u64,
    /// Lines from a core of the same group.
    pub near: u64,
    /// Lines from another group of the socket.
    pub same: u64,
    /// Lines from another socket.
    pub cross: u64,
    /// Lines from the last-level cache.
    pub llc: u64,
    /// Lines from memory.
    pub memory: u64,
    /// Of those that were not held: how many had to wait for others.
    pub queued: u64,
    /// Lines that a core lost because it had no room.
    pub evicted: u64,
    /// Times that a thread went to sleep.
    pub sleeps: u64,
    /// Times that a thread was woken by another.
    pub wakes: u64,
    /// Times that a context changed its thread.
    pub switches: u64,
    /// Times that a thread lost its context at the end of a slice.
    pub preemptions: u64,
}

impl Counts {
    /// Accesses to a line that the core did not hold.
    #[must_use]
    pub fn misses(&self) -> u64 {
        self.near + self.same + self.cross + self.llc + self.memory
    }
}

/// What one thread did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadRecord {
    /// Its name; empty if it has none.
    pub name: String,
    /// Cycles that it had a context.
    pub cpu: u64,
    /// When it ended, in cycles.
    pub end: u64,
}

/// What a run did. Two runs of the same program on equal machines have equal records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// When the last thread ended, in cycles.
    pub cycles: u64,
    /// Of all threads together.
    pub counts: Counts,
    /// In the order in which they were made; the first is the one that [`crate::run`] makes.
    pub threads: Vec<ThreadRecord>,
    /// Of every simulated access: its thread, line, kind and time.
    pub digest: u64,
}

/// A thread that sleeps in a deadlock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// Its number in the order of making.
    pub thread: usize,
    /// Its name; empty if it has none.
    pub name: String,
    /// What it waits for.
    pub what: String,
}

/// Why a run has no record.
///
/// Threads that were under way are never run again, and what they own is leaked.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The machine cannot be.
    Parameter(ParameterError),
    /// All threads that are left sleep, and nobody is there to wake them.
    Deadlock(Vec<Waiting>),
    /// The run reached [`crate::Machine::limit`].
    OutOfTime,
    /// The first thread panicked with these words.
    Panicked(String),
    /// There is a run on this system thread already.
    Nested,
    /// The system has no memory for a stack.
    NoStack,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Parameter(error) => error.fmt(f),
            Failure::Deadlock(waiting) => {
                write!(f, "deadlock: all threads sleep")?;
                for Waiting { thread, name, what } in waiting {
                    write!(f, "; thread {thread} `{name}` waits for {what}")?;
                }
                Ok(())
            }
            Failure::OutOfTime => write!(f, "the run reached its limit of time"),
            Failure::Panicked(words) => write!(f, "the first thread panicked: {words}"),
            Failure::Nested => write!(f, "a run within a run"),
            Failure::NoStack => write!(f, "no memory for the stack of a virtual thread"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<ParameterError> for Failure {
    fn from(error: ParameterError) -> Failure {
        Failure::Parameter(error)
    }
}
