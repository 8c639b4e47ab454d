//! What may be in a store after it was killed: what the last checkpoint has, and the changes since, in their order.
//!
//! A log that is whole keeps all of them, a store without a log none, and a log with a damaged end some first part.
//! Plain data.

use std::collections::{BTreeMap, BTreeSet};

/// The records of a keyspace.
pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a key was found to have, of keys that could be read.
pub type Observed = [BTreeMap<Vec<u8>, Option<Vec<u8>>>; 2];

/// A change of one record.
struct Change {
    keyspace: usize,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

/// See the head of the file.
pub struct History {
    /// What the last checkpoint has.
    pub durable: [Model; 2],
    changes: Vec<Change>,
    /// Whether changes are kept at all.
    keeps_changes: bool,
}

impl History {
    /// Nothing has happened yet.
    pub fn new(keeps_changes: bool) -> History {
        History { durable: [Model::new(), Model::new()], changes: Vec::new(), keeps_changes }
    }

    /// A checkpoint has all that is in these models.
    pub fn checkpoint(&mut self, models: &[Model; 2]) {
        self.durable = models.clone();
        self.changes.clear();
    }

    /// A record was put, or removed.
    pub fn change(&mut self, keyspace: usize, key: &[u8], value: Option<&[u8]>) {
        if self.keeps_changes {
            let value = value.map(<[u8]>::to_vec);
            self.changes.push(Change { keyspace, key: key.to_vec(), value });
        }
    }

    /// Every key that a keyspace has had since the checkpoint.
    pub fn keys(&self, keyspace: usize) -> BTreeSet<Vec<u8>> {
        let changed = self.changes.iter().filter(|change| change.keyspace == keyspace);
        let changed = changed.map(|change| change.key.clone());
        self.durable[keyspace].keys().cloned().chain(changed).collect()
    }

    /// Whether what was found is what the checkpoint has with some first part of the changes: with all of them or with
    /// none, too.
    pub fn has_part(&self, observed: &Observed) -> bool {
        let mut models = self.durable.clone();
        // How many keys have something else than they should.
        let differing = |at: usize| {
            let found = observed[at].iter();
            found.filter(|&(key, value)| models[at].get(key) != value.as_ref()).count()
        };
        let mut differ = differing(0) + differing(1);
        for Change { keyspace, key, value } in &self.changes {
            if differ == 0 {
                return true;
            }
            let model = &mut models[*keyspace];
            let Some(found) = observed[*keyspace].get(key) else { continue };
            let was_right = model.get(key) == found.as_ref();
            match value {
                Some(value) => model.insert(key.clone(), value.clone()),
                None => model.remove(key),
            };
            let is_right = value == found;
            differ = differ + usize::from(was_right) - usize::from(is_right);
        }
        differ == 0
    }
}
