//! Whether what threads were told by a map can have come from operations that happen one after the other.
//!
//! A *history* is what a number of threads asked a map for and what they were told, each operation with the moments
//! between which it ran. It is *linearizable* if there is an order of all operations in which each gives the answer that
//! it gave, and which puts no operation before one that had ended when it began. That is a property of each key by
//! itself (Herlihy and Wing, "Linearizability", section 3.2), so histories are taken apart by key, and each part is a
//! history of one register.
//!
//! The search is that of Wing and Gong with the memo of Lowe ("Testing for linearizability", section 4), in the form
//! that goes through calls and returns in the order of time: it keeps all *configurations* that are possible, which are
//! the state of the key and the operations under way that have already taken effect, and when an operation returns it
//! lets operations under way take effect, in any order, until that one has. If no configuration is left there is no
//! order. Where nothing is under way a configuration is a state alone: histories of any length are cut there by
//! themselves, and cost what their overlaps cost.
//!
//! A *scan* that takes each key from where it is at one moment of its own is one look at each key of its range, in the
//! interval of the whole scan. So a key that was there all the time has to be found, one that was absent all the time
//! must not be, and a value has to have been current at some moment of the scan; beside that a scan's keys are in
//! order, each once, and within its bounds. The same holds of operations that are made together without being one:
//! each of them lies somewhere in the interval of the call.
//!
//! Values are *tokens*, by which the tests know their own values; a token that is put twice weakens the search, no more.
//! Keys are numbers in the order of the keys that they stand for. Operations may name the transaction that they belong
//! to; nothing is made of it here but that a finding tells it.
//!
//! Invariants: the configurations of a search are exactly those that some order of the operations so far can have led
//! to; an operation under way has one bit, which is set in those in which it has taken effect. Thread-safety: a
//! [`Clock`] is shared by all threads, a [`Recorder`] belongs to one; everything else is plain data.

use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::Ordering::SeqCst;
use hedgerow_sync::primitive::figure::Figure;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

/// The token of the value of a key, if it has one.
pub type State = Option<u64>;

/// The end of an operation that has never returned: it may take effect at any later moment, or not at all.
pub const NEVER: u64 = u64::MAX;

/// Operations of one key that can be under way at a time.
const MOST_UNDER_WAY: usize = 64;

/// Histories longer than this are shown as they are: to leave out what does not matter would take too long.
const MOST_NARROWED: usize = 1_000;

/// What was asked of one key, and what was answered. Where an answer is `None` it was not looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// A record was put, over an earlier one if there was one.
    Put {
        /// The value.
        new: u64,
        /// Whether there was an earlier one.
        was_there: Option<bool>,
    },
    /// A record was put unless there was one.
    InsertIfAbsent {
        /// The value.
        new: u64,
        /// Whether it was put.
        inserted: bool,
    },
    /// A record got a new value, if there was one.
    Update {
        /// The value.
        new: u64,
        /// Whether there was a record.
        updated: bool,
    },
    /// A record was removed, if there was one.
    Remove {
        /// Whether there was one.
        was_there: Option<bool>,
    },
    /// The state was to become `new` if it was `expected`.
    Swap {
        /// The state that was expected.
        expected: State,
        /// The state that was to be.
        new: State,
        /// The state that was found instead.
        differs: Option<State>,
    },
    /// The state became `new`, whatever it was.
    Exchange {
        /// The state that was to be.
        new: State,
        /// The state before.
        found: State,
    },
    /// The record was looked up.
    Get {
        /// Its value.
        found: State,
    },
    /// It was asked whether there is a record.
    Contains {
        /// Whether there was.
        found: bool,
    },
    /// A scan passed the key.
    Scan {
        /// The value that it found.
        found: State,
    },
}

impl Call {
    /// The state after the call.
    fn after(self, state: State) -> State {
        match self {
            Call::Put { new, .. } => Some(new),
            Call::InsertIfAbsent { new, .. } => state.or(Some(new)),
            Call::Update { new, .. } => state.and(Some(new)),
            Call::Remove { .. } => None,
            Call::Exchange { new, .. } => new,
            Call::Swap { expected, new, .. } => {
                if state == expected {
                    new
                } else {
                    state
                }
            }
            Call::Get { .. } | Call::Contains { .. } | Call::Scan { .. } => state,
        }
    }

    /// Whether the call gives this answer in `state`.
    fn answers_in(self, state: State) -> bool {
        match self {
            Call::Put { was_there, .. } | Call::Remove { was_there } => {
                was_there.is_none_or(|was_there| was_there == state.is_some())
            }
            Call::InsertIfAbsent { inserted, .. } => inserted == state.is_none(),
            Call::Update { updated, .. } => updated == state.is_some(),
            Call::Swap { expected, differs, .. } => match differs {
                None => state == expected,
                Some(found) => state == found && state != expected,
            },
            Call::Get { found } | Call::Scan { found } | Call::Exchange { found, .. } => {
                found == state
            }
            Call::Contains { found } => found == state.is_some(),
        }
    }

    /// Whether the call, by its answer, has changed nothing.
    fn is_read(self) -> bool {
        match self {
            Call::Put { .. } | Call::Remove { .. } => false,
            Call::Exchange { new, found } => new == found,
            Call::InsertIfAbsent { inserted, .. } => !inserted,
            Call::Update { updated, .. } => !updated,
            Call::Swap { differs, .. } => differs.is_some(),
            Call::Get { .. } | Call::Contains { .. } | Call::Scan { .. } => true,
        }
    }
}

/// A call, by whom, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Who called.
    pub thread: u32,
    /// The transaction that the call belongs to.
    pub transaction: Option<u64>,
    /// The key.
    pub key: u64,
    /// What was asked and answered.
    pub call: Call,
    /// A moment before the call.
    pub began: u64,
    /// A moment after its return, or [`NEVER`].
    pub ended: u64,
}

impl Operation {
    /// The state after the operation if it takes effect in `state`; `None` if it gives another answer then.
    fn step(&self, state: State) -> Option<State> {
        // Nobody has seen the answer of one that has not returned.
        let answers = self.ended == NEVER || self.call.answers_in(state);
        answers.then(|| self.call.after(state))
    }

    fn is_read(&self) -> bool {
        self.ended != NEVER && self.call.is_read()
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operation { thread, transaction, call, began, ended, .. } = self;
        if *ended == NEVER {
            write!(f, "{began}.. thread {thread}")?;
        } else {
            write!(f, "{began}..{ended} thread {thread}")?;
        }
        if let Some(transaction) = transaction {
            write!(f, " transaction {transaction}")?;
        }
        write!(f, ": {call:?}")
    }
}

/// The records that a scan has met.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scan {
    /// Who scanned.
    pub thread: u32,
    /// The transaction that the scan belongs to.
    pub transaction: Option<u64>,
    /// The lowest key that it would have met. Of a backward scan that was given up, the last one that it met.
    pub low: u64,
    /// The highest key that it would have met. Of a forward scan that was given up, the last one that it met.
    pub high: u64,
    /// Whether it went up.
    pub forward: bool,
    /// Keys and tokens, as they were met.
    pub found: Vec<(u64, u64)>,
    /// A moment before its beginning.
    pub began: u64,
    /// A moment after its end.
    pub ended: u64,
}

impl Scan {
    /// What is wrong with the scan whatever there was to find.
    fn defect(&self) -> Option<(u64, &'static str)> {
        let outside = self.found.iter().find(|(key, _)| !(self.low..=self.high).contains(key));
        if let Some((key, _)) = outside {
            return Some((*key, "a scan has met a key beyond its bounds"));
        }
        self.found.windows(2).find_map(|pair| {
            let (first, second) = (pair[0].0, pair[1].0);
            match (first == second, (first < second) == self.forward) {
                (true, _) => Some((second, "a scan has met a key twice")),
                (false, false) => Some((second, "a scan has met keys out of order")),
                (false, true) => None,
            }
        })
    }

    /// The looks at each of `keys` in the bounds, and at what was found beside them.
    fn looks(&self, keys: &BTreeSet<u64>) -> impl Iterator<Item = Operation> {
        let mut found: BTreeMap<u64, State> =
            keys.range(self.low..=self.high).map(|key| (*key, None)).collect();
        found.extend(self.found.iter().map(|(key, token)| (*key, Some(*token))));
        let (thread, transaction) = (self.thread, self.transaction);
        let (began, ended) = (self.began, self.ended);
        found.into_iter().map(move |(key, found)| Operation {
            thread,
            transaction,
            key,
            call: Call::Scan { found },
            began,
            ended,
        })
    }
}

impl fmt::Display for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scan { thread, low, high, forward, found, began, ended, .. } = self;
        let direction = if *forward { "up" } else { "down" };
        write!(f, "{began}..{ended} thread {thread}: {direction} in {low}..={high}: {found:?}")
    }
}

/// Puts the beginnings and ends of calls into one order.
///
/// The standard library's counter, sequentially consistent: under a model a look at it is no step of the schedule, and
/// with real threads a call that ended before another began has happened before it in every sense of the memory model.
#[derive(Clone, Default)]
pub struct Clock(Arc<Figure>);

impl Clock {
    /// A moment later than all those that were given out.
    #[inline]
    pub fn tick(&self) -> u64 {
        self.0.fetch_add(1, SeqCst)
    }
}

/// One thread's part of a history in the making.
pub struct Recorder {
    thread: u32,
    clock: Clock,
    history: History,
}

impl Recorder {
    /// Of a thread that has done nothing yet.
    pub fn new(thread: u32, clock: &Clock) -> Recorder {
        Recorder { thread, clock: clock.clone(), history: History::default() }
    }

    /// Runs an operation on `key`; `call` tells what it came to.
    #[inline]
    pub fn operation<T>(
        &mut self,
        key: u64,
        run: impl FnOnce() -> T,
        call: impl FnOnce(&T) -> Call,
    ) -> T {
        self.together(None, run, |answer| [(key, call(answer))])
    }

    /// Runs something that does several operations, each of them at some moment of its own; `calls` tells which.
    #[inline]
    pub fn together<T, C: IntoIterator<Item = (u64, Call)>>(
        &mut self,
        transaction: Option<u64>,
        run: impl FnOnce() -> T,
        calls: impl FnOnce(&T) -> C,
    ) -> T {
        let began = self.clock.tick();
        let answer = run();
        let ended = self.clock.tick();
        let thread = self.thread;
        let operations = calls(&answer).into_iter().map(|(key, call)| Operation {
            thread,
            transaction,
            key,
            call,
            began,
            ended,
        });
        self.history.operations.extend(operations);
        answer
    }

    /// Runs a scan between `low` and `high`, both included, which gives at most `limit` records, and tells what it has
    /// met. Of one that met as many it is not known what lies beyond the last.
    pub fn scan(
        &mut self,
        (low, high): (u64, u64),
        forward: bool,
        limit: usize,
        run: impl FnOnce() -> Vec<(u64, u64)>,
    ) {
        let began = self.clock.tick();
        let found = run();
        let ended = self.clock.tick();
        let last = found.last().filter(|_| found.len() >= limit).map(|(key, _)| *key);
        let (low, high) = match (last, forward) {
            (None, _) => (low, high),
            (Some(last), true) => (low, last),
            (Some(last), false) => (last, high),
        };
        let (thread, transaction) = (self.thread, None);
        let scan = Scan { thread, transaction, low, high, forward, found, began, ended };
        self.history.scans.push(scan);
    }

    /// What was recorded.
    pub fn into_history(self) -> History {
        self.history
    }
}

/// What threads did, in any order.
#[derive(Clone, Default, Debug)]
pub struct History {
    /// Operations on single keys.
    pub operations: Vec<Operation>,
    /// Scans.
    pub scans: Vec<Scan>,
}

/// What a check has gone through.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Keys with operations of their own.
    pub keys: u64,
    /// Operations, without looks of scans.
    pub operations: u64,
    /// Operations and looks that began while another one of the same key was under way.
    pub overlaps: u64,
}

/// Why a history is impossible.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The key.
    pub key: u64,
    /// What is wrong with it.
    pub what: String,
    /// The states that the key can have had when the window begins.
    pub states: Vec<State>,
    /// The fewest operations that are impossible by themselves, by their beginnings; or none, if a scan is wrong
    /// whatever there was.
    pub window: Vec<Operation>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {}: {}", self.key, self.what)?;
        for (index, operation) in self.window.iter().enumerate() {
            if index == 0 {
                write!(f, "; before them it was one of {:?}", self.states)?;
            }
            write!(f, "\n    {operation}")?;
        }
        Ok(())
    }
}

impl History {
    /// Takes another thread's part in.
    pub fn extend(&mut self, other: History) {
        self.operations.extend(other.operations);
        self.scans.extend(other.scans);
    }

    /// Whether the history is possible for a map that held `before` when it began.
    ///
    /// # Errors
    /// The first key for which it is not, and why.
    ///
    /// # Panics
    /// If more than 64 operations of one key were under way at a time.
    pub fn check(&self, before: &BTreeMap<u64, u64>) -> Result<Tally, Violation> {
        let of_operations = self.operations.iter().map(|operation| operation.key);
        let mut tally = Tally { operations: self.operations.len() as u64, ..Tally::default() };
        let mut keys: BTreeSet<u64> = of_operations.collect();
        tally.keys = keys.len() as u64;
        keys.extend(before.keys());
        let mut operations = self.operations.clone();
        for scan in &self.scans {
            if let Some((key, what)) = scan.defect() {
                let what = format!("{what}: {scan}");
                return Err(Violation { key, what, states: Vec::new(), window: Vec::new() });
            }
            operations.extend(scan.looks(&keys));
        }
        operations.sort_by_key(|operation| (operation.key, operation.began));
        for of_key in operations.chunk_by(|a, b| a.key == b.key) {
            let key = of_key[0].key;
            let start = [before.get(&key).copied()];
            match find_order(of_key, &start) {
                Ok(overlaps) => tally.overlaps += overlaps,
                Err(stuck) => return Err(narrow(key, of_key, stuck)),
            }
        }
        Ok(tally)
    }
}

/// A state of the key, and the operations under way that have taken effect already, a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Configuration {
    made: u64,
    state: State,
}

/// A part of a history that has no order.
struct Stuck {
    /// The first operation after the last moment at which nothing was under way.
    from: usize,
    /// Behind the last operation that had begun.
    to: usize,
    /// The states at that moment.
    states: Vec<State>,
}

/// See the head of the file.
struct Search<'o> {
    operations: &'o [Operation],
    /// Which operation has which bit.
    under_way: Vec<Option<usize>>,
    /// Sorted, each once.
    possible: Vec<Configuration>,
    overlaps: u64,
}

/// Puts `new` into a sorted list, unless it is there. Tells whether it was not.
fn insert<T: Ord>(list: &mut Vec<T>, new: T) -> bool {
    match list.binary_search(&new) {
        Ok(_) => false,
        Err(at) => {
            list.insert(at, new);
            true
        }
    }
}

impl Search<'_> {
    fn is_quiet(&self) -> bool {
        self.under_way.iter().all(Option::is_none)
    }

    fn states(&self) -> Vec<State> {
        self.possible.iter().map(|configuration| configuration.state).collect()
    }

    fn call(&mut self, at: usize) {
        self.overlaps += u64::from(!self.is_quiet());
        let free = self.under_way.iter().position(Option::is_none);
        let slot = free.unwrap_or_else(|| {
            self.under_way.push(None);
            self.under_way.len() - 1
        });
        assert!(slot < MOST_UNDER_WAY, "too many operations of one key at a time");
        self.under_way[slot] = Some(at);
    }

    /// Keeps what is possible now that an operation has returned, and has taken effect by that. Tells whether
    /// anything is.
    fn returned(&mut self, at: usize) -> bool {
        let slot = self.under_way.iter().position(|operation| *operation == Some(at));
        let slot = slot.expect("what returns was called");
        let bit = 1u64 << slot;
        let mut pending = std::mem::take(&mut self.possible);
        // The memo: whatever order has led to a configuration, it is gone on from once.
        let mut seen = pending.clone();
        while let Some(configuration) = pending.pop() {
            let Configuration { made, state } = configuration;
            if made & bit != 0 {
                insert(&mut self.possible, Configuration { made: made & !bit, state });
                continue;
            }
            for (other, operation) in self.under_way.iter().enumerate() {
                let Some(operation) = operation.map(|at| &self.operations[at]) else { continue };
                let other = 1u64 << other;
                if made & other != 0 {
                    continue;
                }
                let Some(state) = operation.step(state) else { continue };
                let next = Configuration { made: made | other, state };
                if insert(&mut seen, next) {
                    pending.push(next);
                }
            }
        }
        self.under_way[slot] = None;
        !self.possible.is_empty()
    }
}

/// Looks for an order of one key's operations, which are sorted by their beginnings, if the key was in one of the
/// states of `start`. Returns how many of them began while others were under way.
fn find_order(operations: &[Operation], start: &[State]) -> Result<u64, Stuck> {
    let mut returns: Vec<usize> = (0..operations.len()).collect();
    returns.retain(|at| operations[*at].ended != NEVER);
    returns.sort_by_key(|at| operations[*at].ended);
    let (under_way, mut possible) = (Vec::new(), Vec::new());
    for state in start {
        insert(&mut possible, Configuration { made: 0, state: *state });
    }
    let mut search = Search { operations, under_way, possible, overlaps: 0 };
    let (mut from, mut to, mut states) = (0, 0, search.states());
    for at in returns {
        // What begins at the moment at which another one ends is beside it.
        while to < operations.len() && operations[to].began <= operations[at].ended {
            search.call(to);
            to += 1;
        }
        if !search.returned(at) {
            return Err(Stuck { from, to, states });
        }
        if search.is_quiet() {
            (from, states) = (to, search.states());
        }
    }
    Ok(search.overlaps)
}

/// Leaves out of a part that has no order all reads without which it has none either. (Without a change others might
/// have none for want of it.)
fn narrow(key: u64, operations: &[Operation], stuck: Stuck) -> Violation {
    let mut window = operations[stuck.from..stuck.to].to_vec();
    let mut states = stuck.states;
    let mut at = 0;
    while at < window.len() && window.len() <= MOST_NARROWED {
        if window[at].is_read() {
            let mut fewer = window.clone();
            fewer.remove(at);
            if let Err(stuck) = find_order(&fewer, &states) {
                // What is left may have a moment at which nothing is under way.
                window = fewer[stuck.from..stuck.to].to_vec();
                states = stuck.states;
                at = at.saturating_sub(stuck.from);
                continue;
            }
        }
        at += 1;
    }
    let what = "no order of these operations gives their answers".to_owned();
    Violation { key, what, states, window }
}
