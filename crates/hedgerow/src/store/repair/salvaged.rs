//! The keyspaces of the store that a repair makes, and what the log of the damaged one changes in them.
//!
//! Rank 6. Invariant: keyspaces of the new store are in `names` under the trees that the damaged one had for them. Used by one thread.

use crate::error::Result;
use crate::space::slot_store::SlotStore;
use crate::store::large::LargeCopy;
use crate::store::replay::{Home, Keyspaces};
use crate::store::{PoolTree, Store};
use crate::types::{Lsn, TreeId};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Why the values of these keys are lost.
pub(super) type LostValues = BTreeMap<(TreeId, Vec<u8>), String>;

/// What keyspaces are called whose names are lost, before the number of their trees.
const NAMELESS: &str = "recovered-";

/// A new keyspace for a tree whose name is lost, under a name that nobody else has.
pub(super) fn nameless(store: &Store, tree: TreeId) -> Result<(String, PoolTree)> {
    let mut name = format!("{NAMELESS}{}", tree.0);
    while store.open_keyspace(&name)?.is_some() {
        name.push('+');
    }
    let keyspace = store.create_keyspace(&name)?;
    Ok((name, keyspace))
}

/// The keyspaces of the new store, where trees have other ids.
pub(super) struct Salvaged<'s> {
    pub(super) store: &'s Store,
    /// Where large values of the damaged one lie.
    pub(super) slots: &'s SlotStore,
    pub(super) large: RefCell<LargeCopy>,
    pub(super) lost_values: RefCell<LostValues>,
    /// The first id that the damaged store had not given out.
    pub(super) next_tree: TreeId,
    pub(super) may_be_nameless: bool,
    pub(super) names: RefCell<BTreeMap<TreeId, String>>,
    /// What is said of trees whose names are lost.
    pub(super) nameless: RefCell<BTreeMap<TreeId, String>>,
    pub(super) ended: RefCell<BTreeSet<TreeId>>,
}

impl Salvaged<'_> {
    /// Everything that is lost in the end.
    pub(super) fn defects(&self) -> Vec<String> {
        let names = self.names.borrow();
        let head_bytes = self.store.shared.catalogue.tree().max_short_key_bytes();
        let mut defects: Vec<String> = self.nameless.borrow().values().cloned().collect();
        for ((tree, key), error) in &*self.lost_values.borrow() {
            // The rest of a longer one lies in the value.
            let (which, key) = match key.split_at_checked(head_bytes) {
                Some((head, label)) if !label.is_empty() => ("a key that begins with", head),
                _ => ("key", &key[..]),
            };
            let key = key.escape_ascii().to_string();
            let keyspace =
                names.get(tree).map_or_else(String::new, |name| format!(" in keyspace {name}"));
            defects.push(format!("the value of {which} {key:?}{keyspace} is lost: {error}"));
        }
        defects
    }

    /// Gives a tree back its name that is lost, now that the log has said it.
    fn name_again(&self, tree: TreeId, name: &str) -> Result<()> {
        let is_free = || Ok(self.store.open_keyspace(name)?.is_none());
        if self.nameless.borrow().contains_key(&tree) && is_free()? {
            let mut names = self.names.borrow_mut();
            self.store.rename_keyspace(&names[&tree], name)?;
            names.insert(tree, name.to_owned());
            self.nameless.borrow_mut().remove(&tree);
        }
        Ok(())
    }
}

impl Keyspaces for Salvaged<'_> {
    fn open(&self, home: Home) -> PoolTree {
        self.store.shared.catalogue.open_tree(home.tree, home.root)
    }

    fn begin(&self, tree: TreeId, name: &str) -> Result<Option<PoolTree>> {
        // Those below are in the checkpoint, or were dropped before it.
        if tree < self.next_tree {
            return Ok(None);
        }
        self.names.borrow_mut().insert(tree, name.to_owned());
        self.store.keyspace(name).map(Some)
    }

    fn end(&self, tree: TreeId, _name: &str) -> Result<()> {
        // Of later ones nothing is adopted in any case.
        if tree < self.next_tree {
            self.ended.borrow_mut().insert(tree);
        }
        self.replaces(tree, b"", Bound::Unbounded);
        self.nameless.borrow_mut().remove(&tree);
        match self.names.borrow_mut().remove(&tree) {
            Some(name) => self.store.drop_keyspace(&name).map(drop),
            None => Ok(()),
        }
    }

    fn rename(&self, tree: TreeId, from: &str, to: &str, _end: Lsn) -> Result<()> {
        self.name_again(tree, from)?;
        let mut names = self.names.borrow_mut();
        if names.get(&tree).is_none_or(|name| name != from) {
            return Ok(());
        }
        let other = names.iter().find(|(_, name)| *name == to).map(|(other, _)| *other);
        match other {
            Some(other) => {
                self.store.swap_keyspaces(from, to)?;
                names.insert(other, from.to_owned());
            }
            None => self.store.rename_keyspace(from, to)?,
        }
        names.insert(tree, to.to_owned());
        Ok(())
    }

    fn replaces(&self, tree: TreeId, from: &[u8], to: Bound<&[u8]>) {
        let mut lost = self.lost_values.borrow_mut();
        if lost.is_empty() {
            return;
        }
        let ends = |key: &[u8]| match to {
            Bound::Included(to) => key > to,
            Bound::Excluded(to) => key >= to,
            Bound::Unbounded => false,
        };
        let from = (tree, from.to_vec());
        let next = |lost: &LostValues| lost.range(&from..).next().map(|(key, _)| key.clone());
        while let Some(key) = next(&lost).filter(|(of, key)| *of == tree && !ends(key)) {
            lost.remove(&key);
        }
    }

    fn put_stored(&self, name: TreeId, tree: &PoolTree, key: &[u8], value: &[u8]) -> Result<()> {
        let mut large = self.large.borrow_mut();
        if let Err(error) = large.put_into(self.slots, value, self.store, tree, key)? {
            tree.remove(key)?;
            self.lost_values.borrow_mut().insert((name, key.to_vec()), error.to_string());
        }
        Ok(())
    }

    fn is_gone(&self, tree: TreeId) -> bool {
        let ended = self.ended.borrow().contains(&tree);
        !self.may_be_nameless || ended || tree >= self.next_tree || tree <= TreeId::CATALOGUE
    }

    fn unknown(&self, tree: TreeId) -> Result<Option<PoolTree>> {
        if self.is_gone(tree) {
            return Ok(None);
        }
        let (name, keyspace) = nameless(self.store, tree)?;
        let what = format!(
            "the log has changes of a keyspace whose name is lost: the new store calls it {name}"
        );
        self.nameless.borrow_mut().insert(tree, what);
        self.names.borrow_mut().insert(tree, name);
        Ok(Some(keyspace))
    }
}
