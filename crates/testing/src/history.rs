//! What a store may hold after a crash: the operations of a run, in their order, and the contents after each.
//!
//! Rank 7. Changes reach the log in the order in which they are made, and a crash cuts the log somewhere: so what is
//! found is what was there after some operation, and after no earlier one than the last of which somebody was told
//! that it is durable. A [`History`] knows nothing of the engine: what it allows follows from what its user was told.
//! Changes that a crash may take apart, as the records of one removal of a range, are as many operations.
//!
//! Invariants: there is a state before the first operation; an operation that was refused leaves the state as it was;
//! `durable` is the number of an operation that there is. A plain value, `Send + Sync`; it keeps all contents, so a
//! history is as long as a session and not as a life.

use hedgerow::Database;
use hedgerow::internals::error::Result;
use std::collections::BTreeMap;
use std::fmt;

/// The records of one keyspace.
pub type Records = BTreeMap<Vec<u8>, Vec<u8>>;
/// What is in a store: its keyspaces by their names.
pub type Contents = BTreeMap<String, Records>;

/// What whoever asked for an operation was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was done, and is durable; so is all that came before it.
    Durable,
    /// It was done, and is durable soon.
    Buffered,
    /// It failed in the end: a crash may leave it, whole, or not.
    Unknown,
    /// It failed, and nothing has changed.
    Refused,
}

struct Operation {
    what: String,
    outcome: Outcome,
    /// Contents when it had ended, for [`Outcome::Unknown`] if it took effect.
    after: Contents,
}

/// See the head of the file.
pub struct History {
    /// The first one stands for what was there before.
    operations: Vec<Operation>,
    durable: usize,
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History")
            .field("operations", &self.len())
            .field("durable", &self.durable)
            .finish_non_exhaustive()
    }
}

impl History {
    /// The history of a store in which this is known to be, durably.
    pub fn new(before: Contents) -> History {
        let (what, outcome) = ("the start".into(), Outcome::Durable);
        History { operations: vec![Operation { what, outcome, after: before }], durable: 0 }
    }

    /// What the store has now, as its user knows.
    pub fn now(&self) -> &Contents {
        &self.operations[self.len()].after
    }

    /// Number of operations, and of the last one.
    pub fn len(&self) -> usize {
        self.operations.len() - 1
    }

    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of the last operation that is known to be durable; 0 for what was there before.
    pub fn durable(&self) -> usize {
        self.durable
    }

    /// Notes an operation, and what is there `after` it.
    ///
    /// # Panics
    /// If one that was refused is said to have changed anything.
    pub fn add(&mut self, what: impl Into<String>, outcome: Outcome, after: Contents) {
        let is_possible = outcome != Outcome::Refused || after == *self.now();
        assert!(is_possible, "what is refused does nothing");
        self.operations.push(Operation { what: what.into(), outcome, after });
        if outcome == Outcome::Durable {
            self.all_durable();
        }
    }

    /// Notes that all that was done before has turned out to be durable.
    pub fn all_durable(&mut self) {
        self.durable = self.len();
    }

    /// After which operation the store was as it was `found`, the last one of several.
    ///
    /// Errors: it never was, or before something that was durable; with the first difference.
    pub fn check(&self, found: &Contents) -> Result<usize, String> {
        self.check_from(self.durable, found)
    }

    /// [`Self::check`] of a moment at which nobody had been told yet of more than operation `durable`.
    pub fn check_from(&self, durable: usize, found: &Contents) -> Result<usize, String> {
        match self.operations.iter().rposition(|operation| operation.after == *found) {
            Some(at) if at >= durable => Ok(at),
            Some(at) => Err(format!(
                "what is there is from after {}, and {} was durable: {}",
                self.name(at),
                self.name(durable),
                first_difference(&self.operations[durable].after, found)
            )),
            None => Err(self.explain(durable, found)),
        }
    }

    /// Why no allowed state is the one that was found: the nearest of them, and where it differs.
    fn explain(&self, durable: usize, found: &Contents) -> String {
        let allowed = self.operations.iter().enumerate().skip(durable);
        let distances =
            allowed.map(|(at, operation)| (differences(&operation.after, found).len(), at));
        match distances.min() {
            Some((distance, at)) => format!(
                "what is there was never so, after {} to {}; nearest is {}, with {distance} \
                 differences: {}",
                self.name(durable),
                self.name(self.len()),
                self.name(at),
                first_difference(&self.operations[at].after, found)
            ),
            None => format!("there is no operation {durable}"),
        }
    }

    fn name(&self, at: usize) -> String {
        let operation = &self.operations[at];
        format!("operation {at} ({}, {:?})", operation.what, operation.outcome)
    }
}

/// All that is in a store, by iteration.
pub fn contents(db: &Database) -> Result<Contents> {
    let mut contents = Contents::new();
    for name in db.keyspaces()? {
        let Some(keyspace) = db.open_keyspace(&name)? else { continue };
        let mut records = Records::new();
        for record in keyspace.iter() {
            let (key, value) = record?;
            records.insert(key.to_vec(), value.to_vec());
        }
        contents.insert(name, records);
    }
    Ok(contents)
}

/// Errors: the first difference, if there is one.
pub fn check_equal(expected: &Contents, found: &Contents) -> Result<(), String> {
    if expected == found { Ok(()) } else { Err(first_difference(expected, found)) }
}

fn first_difference(expected: &Contents, found: &Contents) -> String {
    differences(expected, found).into_iter().next().unwrap_or_else(|| "none".into())
}

/// A sentence for each keyspace and each record that is not the same in both.
fn differences(expected: &Contents, found: &Contents) -> Vec<String> {
    let mut all = Vec::new();
    for (name, records) in expected {
        match found.get(name) {
            Some(found) => compare_records(name, records, found, &mut all),
            None => all.push(format!("keyspace {name:?} is missing")),
        }
    }
    for name in found.keys().filter(|name| !expected.contains_key(*name)) {
        all.push(format!("keyspace {name:?} is there, and should not be"));
    }
    all
}

fn compare_records(name: &str, expected: &Records, found: &Records, all: &mut Vec<String>) {
    let mut differ = |key: &[u8], what: String| {
        all.push(format!("keyspace {name:?}, key {}: {what}", key.escape_ascii()));
    };
    for (key, value) in expected {
        match found.get(key) {
            Some(other) if other == value => {}
            Some(other) => {
                let first = value.iter().zip(other).position(|(a, b)| a != b);
                let first = first.unwrap_or(value.len().min(other.len()));
                let (len, other) = (value.len(), other.len());
                differ(key, format!("{other} bytes for {len}, the first other one at {first}"));
            }
            None => differ(key, "it is missing".into()),
        }
    }
    for key in found.keys().filter(|key| !expected.contains_key(*key)) {
        differ(key, "it is there, and should not be".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contents of one keyspace with so many records.
    fn records(count: u8) -> Contents {
        let records = (0..count).map(|n| (vec![b'a' + n], vec![n])).collect();
        Contents::from([("wrens".into(), records)])
    }

    #[test]
    fn what_is_found_is_a_first_part_with_all_that_is_durable() {
        let mut history = History::new(records(0));
        assert!(history.is_empty());
        history.add("put a", Outcome::Buffered, records(1));
        history.add("put b", Outcome::Durable, records(2));
        history.add("put c", Outcome::Buffered, records(3));
        history.add("put d", Outcome::Unknown, records(4));
        assert_eq!((history.len(), history.durable()), (4, 2));
        for count in 0..6 {
            let checked = history.check(&records(count));
            let expected = (2..=4).contains(&count).then_some(usize::from(count));
            assert_eq!(checked.ok(), expected, "{count} records");
        }
        assert_eq!(history.check_from(1, &records(1)), Ok(1), "before it was known to be durable");
        history.all_durable();
        assert!(history.check(&records(3)).is_err());
    }

    #[test]
    fn what_was_there_twice_counts_as_the_later() {
        let mut history = History::new(records(1));
        history.add("put b", Outcome::Durable, records(2));
        history.add("remove b", Outcome::Durable, records(1));
        history.add("a batch too large", Outcome::Refused, records(1));
        assert_eq!(history.check(&records(1)), Ok(3));
    }

    #[test]
    fn the_first_difference_is_named() {
        let mut history = History::new(records(2));
        history.add("put c", Outcome::Durable, records(3));
        let told = history.check(&records(2)).unwrap_err();
        assert!(told.contains("the start") && told.contains("put c"), "{told}");
        assert!(told.contains("key c: it is missing"), "{told}");
        let mut wrong = records(3);
        wrong.get_mut("wrens").unwrap().insert(b"b".to_vec(), vec![1, 2]);
        let told = history.check(&wrong).unwrap_err();
        assert!(told.contains("key b: 2 bytes for 1, the first other one at 1"), "{told}");
        wrong.insert("gulls".into(), Records::new());
        assert_eq!(differences(&records(3), &wrong).len(), 2);
        assert!(check_equal(&Contents::new(), &wrong).unwrap_err().contains("\"gulls\" is there"));
        assert!(check_equal(&wrong, &wrong.clone()).is_ok());
    }
}
