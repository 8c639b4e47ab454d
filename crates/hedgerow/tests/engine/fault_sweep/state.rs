//! What a store has, as a value of which copies share what is the same.
//!
//! A run keeps every state that its store went through, and each differs from the one before by a record or two: copied whole,
//! they were two fifths of what the sweep costs. A change copies the places of one keyspace's records, and no bytes.
//! Invariant: no copy sees what is changed in another. Plain values, of which threads may have copies.

use crate::common::{Model, contents};
use hedgerow::{Database, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A key or a value.
pub type Bytes = Arc<[u8]>;
/// The records of one keyspace.
pub type Records = BTreeMap<Bytes, Bytes>;

/// Keyspaces by their names.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct State(BTreeMap<String, Arc<Records>>);

impl State {
    /// What a store has now.
    ///
    /// Errors: those of reading it.
    pub fn of(db: &Database) -> Result<State> {
        contents(db).map(State::from)
    }

    /// The records of a keyspace, if there is one of this name.
    pub fn records(&self, name: &str) -> Option<&Records> {
        self.0.get(name).map(|records| &**records)
    }

    /// The same, to change them in this copy alone.
    pub fn records_mut(&mut self, name: &str) -> Option<&mut Records> {
        self.0.get_mut(name).map(Arc::make_mut)
    }

    /// Makes a keyspace, if there is none of this name; its records.
    pub fn create(&mut self, name: &str) -> &mut Records {
        Arc::make_mut(self.0.entry(name.to_owned()).or_default())
    }

    /// Takes a keyspace away; whether there was one of this name.
    pub fn drop_keyspace(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    /// Two names stand for each other's keyspaces, of which one need not be there.
    pub fn swap(&mut self, a: &str, b: &str) {
        let (first, second) = (self.0.remove(a), self.0.remove(b));
        self.0.extend(first.map(|records| (b.to_owned(), records)));
        self.0.extend(second.map(|records| (a.to_owned(), records)));
    }
}

impl From<Model> for State {
    fn from(model: Model) -> State {
        let shared = |records: BTreeMap<Vec<u8>, Vec<u8>>| {
            records.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
        };
        State(model.into_iter().map(|(name, records)| (name, Arc::new(shared(records)))).collect())
    }
}
