//! The trees of keyspaces that were opened, of which a keyspace in a transaction has the number: so it does not count its tree.
//!
//! The list only grows, to 248 places, as long as the database is open. What came later, or waits or splits otherwise than the database does,
//! is counted by each transaction.
//!
//! Invariants: a tree in the list waits for ever, takes long keys, and splits by the default; a place that is taken never changes. `Send + Sync`.

use crate::store::PoolTree;
use hedgerow_sync::primitive::{Arc, Mutex, OnceLock};

/// Places of the first piece of the list; each later one has twice as many as the one before.
const FIRST: usize = if cfg!(any(loom, shuttle)) { 1 } else { 8 };
const LATER_PIECES: usize = if cfg!(any(loom, shuttle)) { 1 } else { 4 };

/// A tree that transactions use, and what its keyspace is called.
#[derive(Clone)]
pub(super) struct Used {
    pub(super) name: Arc<str>,
    pub(super) tree: PoolTree,
}

/// A place in the list of opened trees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenedAt(u32);

type Piece = [OnceLock<Used>];

/// See the head of the file.
pub(super) struct Opened {
    first: [OnceLock<Used>; FIRST],
    later: [OnceLock<Box<Piece>>; LATER_PIECES],
    /// How many places are taken.
    taken: Mutex<usize>,
}

impl Opened {
    pub(super) fn new() -> Opened {
        Opened {
            first: [const { OnceLock::new() }; FIRST],
            later: [const { OnceLock::new() }; LATER_PIECES],
            taken: Mutex::new(0),
        }
    }

    #[inline]
    fn place(&self, at: usize) -> Option<&OnceLock<Used>> {
        match self.first.get(at) {
            Some(place) => Some(place),
            None => self.later_place(at),
        }
    }

    #[inline(never)]
    fn later_place(&self, at: usize) -> Option<&OnceLock<Used>> {
        let piece = (at / FIRST + 1).ilog2() as usize;
        let places = self.later.get(piece - 1)?;
        let places = places.get_or_init(|| (0..FIRST << piece).map(|_| OnceLock::new()).collect());
        places.get(at - FIRST * ((1 << piece) - 1))
    }

    /// The place of a tree as the store opens it. `None`: all places are taken.
    pub(super) fn note(&self, tree: &PoolTree, name: &Arc<str>) -> Option<OpenedAt> {
        let mut taken = self.taken.lock();
        let is_it = |at: &usize| {
            let used = self.place(*at).and_then(OnceLock::get);
            used.is_some_and(|used| used.tree.id() == tree.id() && used.name == *name)
        };
        if let Some(at) = (0..*taken).find(is_it) {
            return Some(OpenedAt(at as u32));
        }
        let place = self.place(*taken)?;
        let used = Used { name: name.clone(), tree: tree.clone().with_short_keys(false) };
        place.set(used).ok()?;
        *taken += 1;
        Some(OpenedAt(*taken as u32 - 1))
    }

    #[inline]
    pub(super) fn get(&self, at: OpenedAt) -> &Used {
        let used = self.place(at.0 as usize).and_then(OnceLock::get);
        used.expect("a place that was given out is taken")
    }
}

/// A tree of a transaction: one of the list, or one of its own.
#[derive(Clone)]
pub(super) enum UsedTree {
    Opened(OpenedAt),
    Own(Arc<Used>),
}

impl UsedTree {
    #[inline]
    pub(super) fn of<'u>(&'u self, opened: &'u Opened) -> &'u Used {
        match self {
            UsedTree::Opened(at) => opened.get(*at),
            UsedTree::Own(used) => used,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Options;

    /// Places of the list.
    const MOST: usize = FIRST * ((1 << (LATER_PIECES + 1)) - 1);

    #[test]
    fn the_list_has_each_keyspace_once_and_says_when_it_is_full() {
        let db = Options::new().in_memory().unwrap();
        let opened = Opened::new();
        let name: Arc<str> = Arc::from("k");
        let first = db.keyspace("k").unwrap();
        let mut places = Vec::new();
        for number in 0..MOST {
            let keyspace = db.keyspace(&format!("k{number}")).unwrap();
            places.push((opened.note(keyspace.tree(), &name).unwrap(), keyspace));
        }
        assert!(opened.note(first.tree(), &name).is_none(), "there are no more places");
        for (number, (at, keyspace)) in places.iter().enumerate() {
            assert_eq!(at.0 as usize, number);
            assert!(opened.note(keyspace.tree(), &name) == Some(*at));
            assert_eq!(opened.get(*at).tree.id(), keyspace.tree().id());
        }
    }
}
