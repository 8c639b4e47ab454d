//! Long keys in a bulk load: records come in order, and each head's get labels one after the other.
//!
//! Plain state of one load.

use super::locks::Locked;
use super::{Cut, LAST_LABEL, MIDDLE_LABEL, check_key};
use crate::database::inner::Inner;
use crate::database::values::Prepared;
use crate::error::{Error, ErrorKind, Result};
use crate::store::PoolTree;
use std::borrow::Cow;

/// The part of the labels that are left to which a step goes: so some hundred million keys may have one head.
const STEP_SHIFT: u32 = 23;

/// The last long key of a load, and its label.
#[derive(Default)]
pub(in crate::database) struct Loading {
    key: Vec<u8>,
    label: u64,
}

impl Loading {
    /// What to hold while the load's records come in. Who has looked for a long key's place in the empty tree would put its record there later, where one of the
    /// load's is by then.
    pub(in crate::database) fn lock<'i>(
        &self,
        inner: &'i Inner,
        tree: &PoolTree,
    ) -> Result<Option<Locked<'i>>> {
        (!self.key.is_empty()).then(|| inner.long.lock_all(tree.id())).transpose()
    }

    /// The tree key of a record with a long key, and its value as a leaf gets it.
    ///
    /// Errors: `KeyTooLong`; `NotSorted`; those of placing a value.
    pub(in crate::database) fn prepare(
        &mut self,
        inner: &Inner,
        tree: &PoolTree,
        key: &[u8],
        value: &[u8],
    ) -> Result<(Cow<'static, [u8]>, Prepared<'static>)> {
        check_key(key)?;
        let cut = Cut::new(tree, key);
        self.label = match self.key.starts_with(cut.head) {
            false => MIDDLE_LABEL,
            true if key <= self.key.as_slice() => {
                let what = "the key of a record is not greater than the one before it";
                return Err(Error::new(ErrorKind::NotSorted, what));
            }
            true => self.label + ((LAST_LABEL - self.label) >> STEP_SHIFT).max(1),
        };
        if self.label >= LAST_LABEL {
            let what =
                format!("too many long keys that begin with the same {} bytes", cut.head.len());
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        self.key.clear();
        self.key.extend_from_slice(key);
        Ok((Cow::Owned(cut.tree_key(self.label)), inner.prepare_long(tree, cut, value)?))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::database::long::tree_of;
    use crate::wait::Waiting;
    use hedgerow_sync::primitive::thread::{sleep, spawn_named};
    use std::time::Duration;

    /// The label that a key gets in an empty keyspace is that of the load's first key with the same head.
    #[test]
    fn a_load_does_not_come_between_the_look_for_a_place_and_the_put() {
        let db = crate::Options::new().in_memory().unwrap();
        let keyspace = db.keyspace("urls").unwrap();
        let (inner, tree) = (keyspace.inner(), tree_of(keyspace.tree()));
        let long = |rest: u8| [&[b'h'; 5_000][..], &[rest]].concat();
        let (key, loaded) = (long(b'x'), long(b'y'));
        let waiting = Waiting::Forever;
        let cut = Cut::new(&tree, &key);
        let locked = inner.lock_heads([(&tree, &key[..])].into_iter(), &waiting).unwrap();
        let label = inner.label_to_put(&tree, cut, &waiting).unwrap();
        let load = {
            let (keyspace, loaded) = (keyspace.clone(), loaded.clone());
            spawn_named("load", move || keyspace.bulk_load([(loaded, b"loaded")], 100)).unwrap()
        };
        sleep(Duration::from_millis(100));
        let prepared = inner.prepare_long(&tree, cut, b"put").unwrap();
        tree.put(&cut.tree_key(label), prepared.bytes()).unwrap();
        prepared.keep();
        drop(locked);
        let ended = load.join().unwrap();
        let found = |key: &[u8]| keyspace.get(key).unwrap().map(|value| value.into_vec());
        assert_eq!(found(&key).as_deref(), Some(&b"put"[..]));
        match ended {
            Ok(_) => assert_eq!(found(&loaded).as_deref(), Some(&b"loaded"[..])),
            Err(error) => assert_eq!(error.kind(), ErrorKind::KeyspaceNotEmpty),
        }
        // Nothing is locked any more.
        keyspace.put(&loaded, b"put, too").unwrap();
    }
}
