//! Look-ups of one key. The bytes are copied out and validated before anybody sees them.
//!
//! The first try is the whole operation when nothing interferes: no allocation, no atomic
//! read-modify-write, no store into shared memory but the mark of use. Everything else is in the
//! cold half.

use super::descend::Target;
use super::retry::Retry;
use super::{Tree, Value};
use crate::error::Result;
use crate::node::{Leaf, plain_leaf};
use crate::page::{Access, Pages, Restart};
use crate::types::Lsn;
use hedgerow_sync::optimistic::PageBytes;

impl<P: Pages> Tree<P> {
    /// The value of `key`, or `None`. Values of up to 112 bytes are held without an allocation.
    ///
    /// Errors: those of reading a page; `KeyspaceDropped`; `Corrupted`; `Timeout` if others held a
    /// page for very long. Linearizable; any number of threads.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        // Made where the caller gets it and filled there. A move would read in wide loads what was just
        // written in pieces, and have to wait until the writes are through.
        let mut result = Ok(Some(Value::default()));
        if let Ok(Some(value)) = &mut result {
            match self.read(key, &mut CopyOut(value)) {
                Ok(true) => {}
                Ok(false) => result = Ok(None),
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// Puts the value of `key` into `out`, whose content it replaces, and returns `true`; or returns
    /// `false` and leaves `out` empty. Errors as for [`Tree::get`].
    #[inline]
    pub fn get_into(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        let found = self.read(key, &mut CopyInto(out))?;
        if !found {
            // An earlier look may have found something.
            out.clear();
        }
        Ok(found)
    }

    /// The value of `key` into `value`, if there is one, and the newest LSN of its leaf, which were there together. Errors as for
    /// [`Tree::get`].
    #[inline]
    pub fn get_stamped(&self, key: &[u8], value: &mut Value) -> Result<(bool, Lsn)> {
        let mut read = Stamped { value, stamp: Lsn(0) };
        let found = self.read(key, &mut read)?;
        Ok((found, read.stamp))
    }

    /// Calls `f` on a validated copy of the value of `key`. Errors as for [`Tree::get`].
    #[cfg(hedgerow_internals)]
    #[inline]
    pub fn get_with<R>(&self, key: &[u8], f: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        Ok(self.get(key)?.map(|value| f(&value)))
    }

    /// Whether there is a record of `key`. Errors as for [`Tree::get`].
    #[inline]
    pub fn contains_key(&self, key: &[u8]) -> Result<bool> {
        self.read(key, &mut Nothing)
    }

    #[inline(always)]
    fn read<R: Read>(&self, key: &[u8], read: &mut R) -> Result<bool> {
        let found = match self.try_read(key, read) {
            Ok(found) => found,
            Err(restart) => self.read_again(key, read, restart)?,
        };
        // Only now: see `beside_alone`.
        if R::SEES_ALL || !self.is_one_alone() {
            return Ok(found);
        }
        self.read_beside_alone(key, read)
    }

    #[inline(always)]
    pub(super) fn try_read<R: Read>(&self, key: &[u8], read: &mut R) -> Result<bool, Restart> {
        let leaf = self.leaf_for(key)?;
        leaf.note_use();
        let found = read_in(&Leaf::new(leaf.bytes()), key, read);
        leaf.validate()?;
        self.note_point(&leaf);
        Ok(found)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn read_again<R: Read>(
        &self,
        key: &[u8],
        read: &mut R,
        restart: Restart,
    ) -> Result<bool> {
        let waiting = self.wait.begin();
        let mut retry = Retry::new(&*self.pool, self.root, Access::Point, &waiting);
        let mut restart = restart;
        loop {
            retry.after(restart)?;
            let result = if retry.is_latched() {
                self.share_leaf(Target::Key(key), retry.patience())
                    .map(|leaf| read_in(&plain_leaf(leaf.bytes()), key, read))
            } else {
                self.try_read(key, read)
            };
            match result {
                Ok(found) => return Ok(found),
                Err(again) => restart = again,
            }
        }
    }
}

/// How a value leaves its page. What it takes is untrusted until the leaf was validated, and may be
/// taken again.
pub(super) trait Read {
    /// Whether it sees what somebody changes alone who has not ended.
    const SEES_ALL: bool = false;

    /// Takes the value at `place`.
    fn take<B: PageBytes>(&mut self, leaf: &Leaf<B>, place: usize);

    /// Looks at the leaf, whatever it has.
    #[inline(always)]
    fn look<B: PageBytes>(&mut self, _leaf: &Leaf<B>) {}
}

#[inline(always)]
fn read_in<B: PageBytes, R: Read>(leaf: &Leaf<B>, key: &[u8], read: &mut R) -> bool {
    read.look(leaf);
    let position = leaf.find(key);
    if position.found {
        read.take(leaf, position.index);
    }
    position.found
}

/// Takes the value as a [`Value`].
pub(super) struct CopyOut<'v>(pub(super) &'v mut Value);

impl Read for CopyOut<'_> {
    #[inline(always)]
    fn take<B: PageBytes>(&mut self, leaf: &Leaf<B>, place: usize) {
        leaf.copy_value(place, &mut self.0.0);
    }
}

/// Takes the value into a vector.
struct CopyInto<'o>(&'o mut Vec<u8>);

impl Read for CopyInto<'_> {
    #[inline(always)]
    fn take<B: PageBytes>(&mut self, leaf: &Leaf<B>, place: usize) {
        // A try that was not validated may have left something.
        self.0.clear();
        leaf.append_value(place, self.0);
    }
}

/// Takes the value, and how new the leaf is.
struct Stamped<'v> {
    value: &'v mut Value,
    stamp: Lsn,
}

impl Read for Stamped<'_> {
    // The stamp says so.
    const SEES_ALL: bool = true;

    #[inline(always)]
    fn take<B: PageBytes>(&mut self, leaf: &Leaf<B>, place: usize) {
        leaf.copy_value(place, &mut self.value.0);
    }

    #[inline(always)]
    fn look<B: PageBytes>(&mut self, leaf: &Leaf<B>) {
        self.stamp = leaf.as_node().newest_lsn();
    }
}

/// Takes nothing: the record's presence is the answer.
struct Nothing;

impl Read for Nothing {
    #[inline(always)]
    fn take<B: PageBytes>(&mut self, _leaf: &Leaf<B>, _place: usize) {}
}
