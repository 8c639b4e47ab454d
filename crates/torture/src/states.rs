//! What a round knows of a store's contents: the states that it went through, and how to read them.
//!
//! Invariant: a history has a hash of each state that its store was in since it was opened, in their order, and the last one
//! whole. Plain data, of one thread.

use hedgerow::{Database, Error};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use twox_hash::XxHash3_64;

/// The keyspaces of a store.
pub const KEYSPACES: [&str; 2] = ["robins", "wrens"];

/// A keyspace's number, and a key in it.
pub type Name = (usize, Vec<u8>);
pub type Contents = BTreeMap<Name, Vec<u8>>;

/// What one record adds to the hash of a state, so that a change of one record is a change of one term. Of a function in another crate, which
/// is optimised in any build: every state is hashed whole.
fn hash_of(name: &Name, value: &[u8]) -> u64 {
    let (keyspace, key) = name;
    let seed = XxHash3_64::oneshot_with_seed(*keyspace as u64, key);
    XxHash3_64::oneshot_with_seed(seed, value)
}

fn hash_of_all(contents: &Contents) -> u64 {
    contents.iter().fold(0, |hash, (name, value)| hash ^ hash_of(name, value))
}

/// The states that a store went through since it was opened.
pub struct History {
    pub now: Contents,
    /// The hash of each state, the first one included.
    hashes: Vec<u64>,
    /// The last state that is known to be durable.
    pub durable: usize,
}

impl History {
    pub fn new(now: Contents) -> History {
        let hashes = vec![hash_of_all(&now)];
        History { now, hashes, durable: 0 }
    }

    pub fn newest(&self) -> usize {
        self.hashes.len() - 1
    }

    /// A change at one stroke.
    pub fn push(&mut self, changes: Vec<(Name, Option<Vec<u8>>)>) {
        let mut hash = self.hashes[self.newest()];
        for (name, value) in changes {
            if let Some(old) = self.now.remove(&name) {
                hash ^= hash_of(&name, &old);
            }
            if let Some(value) = value {
                hash ^= hash_of(&name, &value);
                self.now.insert(name, value);
            }
        }
        self.hashes.push(hash);
    }

    /// Whether a store may hold this where everything up to `least` was durable.
    pub fn check(&self, found: &Contents, least: usize) -> Result<(), String> {
        let hash = hash_of_all(found);
        match self.hashes.iter().rposition(|state| *state == hash) {
            Some(at) if at >= least => Ok(()),
            at => Err(format!(
                "found the state after change {at:?}; only the states after changes {least} to {} are allowed",
                self.newest()
            )),
        }
    }
}

/// All records of a store, which verifies.
pub fn read(db: &Database) -> Result<Contents, String> {
    let found = contents(db)?;
    let report = db.verify(|_| ControlFlow::Continue(())).map_err(words("verify the store"))?;
    match report.findings.first() {
        Some(first) => Err(format!("the store is damaged: {first}")),
        None => Ok(found),
    }
}

/// Looks all records up, one by one.
pub fn bring_in(db: &Database, contents: &Contents) -> Result<(), String> {
    for ((number, key), value) in contents {
        let keyspace = db.keyspace(KEYSPACES[*number]).map_err(words("read the store"))?;
        let found = keyspace.get(key).map_err(words("read the store"))?;
        if found.as_deref() != Some(value.as_slice()) {
            return Err("a get and a scan give different answers".into());
        }
    }
    Ok(())
}

pub fn words(doing: &str) -> impl Fn(Error) -> String {
    move |error| format!("cannot {doing}: {error}")
}

pub fn key(n: u64) -> Vec<u8> {
    // Numbers in half of the keys: leaves of all layouts are to be had.
    match n % 2 {
        0 => n.to_be_bytes().to_vec(),
        _ => format!("bird/{n:06}").into_bytes(),
    }
}

/// All records of a store.
fn contents(db: &Database) -> Result<Contents, String> {
    let mut contents = Contents::new();
    for (number, name) in KEYSPACES.iter().enumerate() {
        let keyspace = db.open_keyspace(name).map_err(words("read the store"))?;
        let keyspace = keyspace.ok_or_else(|| format!("there is no keyspace {name}"))?;
        for record in keyspace.iter() {
            let (key, value) = record.map_err(words("read the store"))?;
            contents.insert((number, key.to_vec()), value.to_vec());
        }
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_knows_its_states_and_no_others() {
        let name = |n: u8| (0, vec![n]);
        let mut history = History::new(Contents::new());
        history.push(vec![(name(1), Some(vec![1]))]);
        history.push(vec![(name(2), Some(vec![2])), (name(1), None)]);
        let found: Contents = [(name(2), vec![2])].into();
        assert_eq!(history.check(&found, 2), Ok(()));
        assert_eq!(history.check(&Contents::new(), 0), Ok(()));
        assert!(history.check(&Contents::new(), 1).is_err());
        assert!(history.check(&[(name(2), vec![3])].into(), 0).is_err());
    }
}
