//! Whether what transactions were told can have come from a store that keeps them apart as well as it says.
//!
//! A *history* is a number of transactions, each with the moments between which it ran, its outcome, and its steps in
//! order: reads, reads of ranges, puts and removals. Every put has a *token* of its own, which says whose it is, and is in the
//! value; and a change says what its transaction knew to be there before it, if it knew. So which version of a key came after
//! which follows from reads, and with that the dependencies between transactions (Adya, "Weak Consistency", chapter 3;
//! Kingsbury and Alvaro, "Elle"): `ww` to who wrote the next version of a key, `wr` to who read a version, `rw` from who
//! read a version to who wrote the next one. An isolation level is a kind of cycles that must not be:
//!
//! | level | no cycle of |
//! | --- | --- |
//! | [`Level::ReadCommitted`] | `ww` and `wr` (G0, G1c) |
//! | [`Level::SnapshotIsolation`] | all, unless two `rw` follow each other in it (Fekete and others, "Making Snapshot Isolation Serializable"; Cerone and Gotsman) |
//! | [`Level::Serializable`] | all (G2) |
//! | [`Level::StrongSnapshotIsolation`], [`Level::StrictSerializable`] | the same, with an edge from each transaction to those that began after it had ended |
//!
//! At all levels nobody reads what was never written, by somebody who was aborted (G1a), or over which its writer
//! wrote once more (G1b), and everybody reads his own changes.
//!
//! A range read is a read of each key between its bounds that occurs in the history: what it has not found was absent. So
//! a phantom is an `rw` edge like others.
//!
//! What is not known makes no edge, so that nothing is reported that an order of the versions could explain:
//! - a *blind* change, which does not say what was there, comes after the version that the history began with, and, if the level
//!   knows about time or keys are linearizable by themselves, after those whose transactions had ended when its own began;
//! - an absent key has no token. It is the work of one removal if no other can be it: by time, where that counts. Else the
//!   read makes no edge, and is counted ([`Tally::ambiguous`]);
//! - a transaction whose outcome is unknown counts from when somebody who counts has read of it, with all of its
//!   steps, and else not at all.
//!
//! The cost is linear in steps, but for sorting and for what overlaps on a key: a million transactions of four steps take
//! seconds.
//!
//! Invariants: of a history that is possible at a level no violation is reported; `isolation/versions.rs` and `isolation/walk.rs` have the rules.
//! Thread-safety: a [`Recorder`] belongs to one thread, its [`Clock`] to all; everything else is plain data.

use super::linear::{Clock, NEVER};
use std::collections::BTreeMap;
use std::fmt;

mod graph;
mod report;
#[cfg(all(test, not(any(loom, shuttle))))]
mod simulated;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod versions;
mod walk;

/// Bits of a token that count the changes of a transaction.
const CHANGE_BITS: u32 = 16;
/// Bits of a transaction's number that count those of a thread.
const SEQUENCE_BITS: u32 = 32;

/// A version of a value: whose it is, and which of its changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(u64);

impl Token {
    /// Of a change of a transaction, counted from 0.
    ///
    /// # Panics
    /// If a transaction has a number of 48 bits or more, or a change one of 16.
    pub fn new(transaction: u64, change: u32) -> Token {
        assert!(transaction >> (64 - CHANGE_BITS) == 0, "too large a number of a transaction");
        assert!(change >> CHANGE_BITS == 0, "too many changes in a transaction");
        Token(transaction << CHANGE_BITS | u64::from(change))
    }

    /// The token that these bits stand for, in a value.
    pub fn from_bits(bits: u64) -> Token {
        Token(bits)
    }

    /// What stands for it in a value.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Whose it is.
    pub fn transaction(self) -> u64 {
        self.0 >> CHANGE_BITS
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", Name(self.transaction()), self.0 & ((1 << CHANGE_BITS) - 1))
    }
}

/// A transaction's number in words: which of its thread, if that is not the first one, and which there.
struct Name(u64);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 >> SEQUENCE_BITS, self.0 & ((1 << SEQUENCE_BITS) - 1)) {
            (0, number) => write!(f, "T{number}"),
            (thread, number) => write!(f, "T{thread}:{number}"),
        }
    }
}

/// The version of a key, if it has a value.
pub type State = Option<Token>;

/// What a transaction knew to be there when it changed a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// No more than its steps before say.
    Unknown,
    /// This, which is as good as a read just before.
    Seen(State),
}

/// A step of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A key was read.
    Read {
        /// The key.
        key: u64,
        /// What it had.
        found: State,
    },
    /// All keys between two, both included, were read at one moment.
    Range {
        /// The lowest key.
        low: u64,
        /// The highest key.
        high: u64,
        /// Keys with their versions, in order.
        found: Vec<(u64, Token)>,
    },
    /// A key got a value.
    Put {
        /// The key.
        key: u64,
        /// The version, which nobody else puts.
        token: Token,
        /// What was there.
        over: Over,
    },
    /// A key lost its value, or had none.
    Remove {
        /// The key.
        key: u64,
        /// What was there.
        over: Over,
    },
}

/// How a transaction ended, as far as its caller knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Its changes were made.
    Committed,
    /// None of them was, and none will be.
    Aborted,
    /// Either.
    Unknown,
}

/// What one caller asked for as a whole, and what it was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// Its number, which is in the tokens of its puts.
    pub id: u64,
    /// A moment before its beginning.
    pub began: u64,
    /// A moment after its end, or [`NEVER`].
    pub ended: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// What it did, in order.
    pub steps: Vec<Step>,
}

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Transaction { id, began, ended, outcome, steps } = self;
        write!(f, "{} {began}..", Name(*id))?;
        if *ended != NEVER {
            write!(f, "{ended}")?;
        }
        write!(f, " {outcome:?}:")?;
        for (at, step) in steps.iter().enumerate() {
            write!(f, "{} {step}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |state: &State| state.map_or("nothing".to_owned(), |token| token.to_string());
        let over = |over: &Over| match over {
            Over::Unknown => String::new(),
            Over::Seen(state) => format!(" over {}", show(state)),
        };
        match self {
            Step::Read { key, found } => write!(f, "read {key} = {}", show(found)),
            Step::Range { low, high, found } => {
                write!(f, "read {low}..={high} = [")?;
                for (at, (key, token)) in found.iter().enumerate() {
                    write!(f, "{}{key} = {token}", if at == 0 { "" } else { ", " })?;
                }
                write!(f, "]")
            }
            Step::Put { key, token, over: seen } => write!(f, "put {key} = {token}{}", over(seen)),
            Step::Remove { key, over: seen } => write!(f, "remove {key}{}", over(seen)),
        }
    }
}

/// How well transactions are kept apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Nobody sees what is not committed. Adya's PL-2.
    ReadCommitted,
    /// Each sees one snapshot, which may be old, and of two that change the same key at the same time one fails.
    SnapshotIsolation,
    /// Each sees a snapshot that has all that had ended when it began.
    StrongSnapshotIsolation,
    /// As if one came after the other. Adya's PL-3.
    Serializable,
    /// As if one came after the other, in the order of time where they do not overlap.
    StrictSerializable,
}

impl Level {
    /// Whether who ended comes before who began later.
    fn is_in_time(self) -> bool {
        matches!(self, Level::StrongSnapshotIsolation | Level::StrictSerializable)
    }

    fn is_of_snapshots(self) -> bool {
        matches!(self, Level::SnapshotIsolation | Level::StrongSnapshotIsolation)
    }
}

/// What is wrong, by Adya's names where there are any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Anomaly {
    /// A range read has keys twice, out of order or beyond its bounds.
    Disorder,
    /// A version was read that nobody has written, or written to another key.
    NeverWritten,
    /// A key was absent, and nobody can have removed it.
    NeverRemoved,
    /// A transaction did not read its own change.
    Internal,
    /// A version was read whose transaction was aborted.
    G1a,
    /// A version was read over which its own transaction wrote another one.
    G1b,
    /// A version was read although a later one had been there since before the read began.
    Stale,
    /// Two have written over the same version.
    LostUpdate,
    /// A cycle of `ww`.
    G0,
    /// A cycle of `ww` and `wr`.
    G1c,
    /// A cycle with one `rw`: a read that is not of one snapshot, or not repeated.
    GSingle,
    /// A cycle of several `rw`, no two of which follow each other: a long fork.
    GNonadjacent,
    /// A cycle of several `rw` of single keys: write skew.
    G2Item,
    /// A cycle of several `rw`, one of a key that a range read did not find: a phantom.
    G2,
}

/// Why a history is impossible at a level.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The level.
    pub level: Level,
    /// What it is.
    pub anomaly: Anomaly,
    /// Whether it would be none without the order of time.
    pub needs_time: bool,
    /// In words; of a cycle a line for each edge.
    pub reasons: Vec<String>,
    /// The transactions that it is about, by their beginnings.
    pub transactions: Vec<Transaction>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_time = if self.needs_time { " in time" } else { "" };
        write!(f, "not {:?}: {:?}{in_time}", self.level, self.anomaly)?;
        for reason in &self.reasons {
            write!(f, "\n  {reason}")?;
        }
        for transaction in &self.transactions {
            write!(f, "\n    {transaction}")?;
        }
        Ok(())
    }
}

/// What a check has gone through.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Transactions that count.
    pub transactions: u64,
    /// Reads of single keys, those of ranges included, of others' versions.
    pub reads: u64,
    /// Of these, reads of absent keys that more than one removal can have led to.
    pub ambiguous: u64,
    /// Dependencies between two transactions, without those of time.
    pub dependencies: u64,
}

/// What transactions did, in any order.
#[derive(Clone, Default, Debug)]
pub struct History {
    /// What keys had when it began, by tokens of none of its transactions; all others had nothing.
    pub before: BTreeMap<u64, Token>,
    /// The transactions.
    pub transactions: Vec<Transaction>,
}

impl History {
    /// Whether the history is possible at a level.
    ///
    /// # Errors
    /// The violation that was found first: of single reads before cycles, and of cycles the shortest of the worst kind.
    ///
    /// # Panics
    /// If two puts have the same token, or a token is not its transaction's.
    pub fn check(&self, level: Level) -> Result<Tally, Violation> {
        versions::check(self, level, level.is_in_time())
    }

    /// The same of a store whose single keys are linearizable, which is used to know in which order a key's
    /// versions came; at levels that know about time they are by themselves.
    ///
    /// # Errors
    /// As [`Self::check`]; and a read of an older version than its key can have had.
    ///
    /// # Panics
    /// As [`Self::check`].
    pub fn check_with_linear_keys(&self, level: Level) -> Result<Tally, Violation> {
        versions::check(self, level, true)
    }
}

/// One thread's part of a history in the making.
pub struct Recorder {
    clock: Clock,
    next: u64,
    transactions: Vec<Transaction>,
}

/// A transaction that has begun.
#[derive(Debug)]
pub struct Open {
    transaction: Transaction,
    changes: u32,
}

impl Open {
    /// A token for its next put.
    pub fn token(&mut self) -> Token {
        self.changes += 1;
        Token::new(self.transaction.id, self.changes - 1)
    }

    /// Notes a step.
    pub fn step(&mut self, step: Step) {
        self.transaction.steps.push(step);
    }
}

impl Recorder {
    /// Of a thread that has done nothing yet. Transactions are numbered by their threads.
    ///
    /// # Panics
    /// For thread numbers of 16 bits or more.
    pub fn new(thread: u32, clock: &Clock) -> Recorder {
        assert!(thread < 1 << 16, "too large a number of a thread");
        let next = u64::from(thread) << SEQUENCE_BITS;
        Recorder { clock: clock.clone(), next, transactions: Vec::new() }
    }

    /// Begins a transaction at this moment. What does several things, each at some moment of its own, begins as many
    /// before it does them and ends them afterwards.
    pub fn begin(&mut self) -> Open {
        self.next += 1;
        let began = self.clock.tick();
        let (outcome, steps) = (Outcome::Unknown, Vec::new());
        let transaction = Transaction { id: self.next - 1, began, ended: NEVER, outcome, steps };
        Open { transaction, changes: 0 }
    }

    /// Ends it at this moment.
    pub fn end(&mut self, open: Open, outcome: Outcome) {
        let ended = self.clock.tick();
        self.transactions.push(Transaction { ended, outcome, ..open.transaction });
    }

    /// Takes what was recorded; the next transactions have other numbers.
    pub fn take(&mut self) -> Vec<Transaction> {
        std::mem::take(&mut self.transactions)
    }
}
