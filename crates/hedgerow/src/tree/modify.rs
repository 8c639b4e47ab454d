//! Read-modify-write of one record in one descent: an integer that grows, updates by a function, and changes that return the value
//! before.
//!
//! What a change makes of the value, and what it returns, comes from the same look at the leaf. It stands if the latch proves that
//! the leaf is still the one that was looked at; if not, everything is done again. Values in a stored form are not changed here: what
//! they stand for has to be read first. Linearizable; any number of threads.

use super::change::{Change, CompareAndSwap, Decision, SwapIf};
use super::retry::Stop;
use super::write::Written;
use super::{Tree, Value};
use crate::error::Result;
use crate::large::is_stored_form;
use crate::node::{Leaf, Position};
use crate::page::{OptimisticPage, PagePool, Restart};
use crate::types::Purpose;
use crate::wait::Waiting;
use hedgerow_sync::optimistic::PageBytes;

/// What a change has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before<T> {
    /// This, and the change is made.
    Was(T),
    /// A value that is not for such a change, and nothing has changed.
    Unfit,
}

/// What became of an update by a function.
#[derive(Debug)]
pub enum Updated<V> {
    /// It is made: the values before and after.
    Made(Option<Value>, Option<V>),
    /// Somebody was faster. This is there now, and nothing has changed.
    Differs(Option<Value>),
    /// What is there is in a stored form, and nothing has changed.
    Unfit,
    /// What it becomes is, or fits no leaf; nothing has changed.
    NotHere(Option<Value>, Option<V>),
}

impl<V> Updated<V> {
    fn differs(found: Option<Value>) -> Self {
        match found.as_deref().is_some_and(is_stored_form) {
            true => Updated::Unfit,
            false => Updated::Differs(found),
        }
    }
}

/// Errors of all: those of [`Tree::put`].
impl<P: PagePool> Tree<P> {
    /// Adds to an integer of eight bytes, big-endian; no record is 0. Tells the integer before. Unfit: a value of another length,
    /// and a sum that looks like a stored form.
    pub fn fetch_add(&self, key: &[u8], number: i64) -> Result<Before<i64>> {
        self.write(key, &mut Add { number, sum: [0; _] })
    }

    /// Makes a value of the old one; `None` stands for no record. `make` is called once at most, with nothing latched.
    pub fn update_with<V: AsRef<[u8]>>(
        &self,
        key: &[u8],
        make: &mut impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Updated<V>> {
        self.check_record(key, &[])?;
        let mut old = Value::default();
        let Ok((leaf, at)) = self.look_at(key, &mut old) else {
            return Ok(Updated::differs(self.get(key)?));
        };
        if at.found && is_stored_form(&old) {
            return Ok(Updated::Unfit);
        }
        let old = at.found.then_some(old);
        let made = make(old.as_deref());
        let new = made.as_ref().map(AsRef::as_ref);
        let bytes = new.unwrap_or(&[]);
        if is_stored_form(bytes) || self.check_record(key, bytes).is_err() {
            return Ok(Updated::NotHere(old, made));
        }
        let mut swap = SwapIf { expected: old.as_deref(), new };
        let decision = match new {
            Some(_) => Decision::Put(CompareAndSwap::Swapped),
            None if at.found => Decision::Remove(CompareAndSwap::Swapped),
            // It was so when it was looked at.
            None => return Ok(Updated::Made(old, made)),
        };
        let waiting = self.wait.begin();
        let tried = self.change_looked_at(key, &leaf, at, decision, (&swap, &waiting));
        let swapped = match tried {
            Ok(Written::Done(swapped)) => swapped,
            other => self.write_on(key, &mut swap, other, &waiting)?,
        };
        match swapped {
            CompareAndSwap::Swapped => Ok(Updated::Made(old, made)),
            CompareAndSwap::Differs(found) => Ok(Updated::differs(found)),
        }
    }

    /// The leaf for a key, where the key is in it, and its value.
    fn look_at(
        &self,
        key: &[u8],
        value: &mut Value,
    ) -> Result<(OptimisticPage<'_, P>, Position), Restart> {
        let leaf = self.leaf_for(key)?;
        leaf.note_use();
        let node = Leaf::new(leaf.bytes());
        let at = node.find(key);
        if at.found {
            node.copy_value(at.index, &mut value.0);
        }
        leaf.validate()?;
        self.note_point(&leaf);
        self.nobody_alone()?;
        Ok((leaf, at))
    }

    /// Changes a leaf if it is still as it was looked at.
    fn change_looked_at<C: Change>(
        &self,
        key: &[u8],
        leaf: &OptimisticPage<'_, P>,
        at: Position,
        decision: Decision<C::Outcome>,
        (change, waiting): (&C, &Waiting<'_>),
    ) -> Result<Written<C::Outcome>, Stop> {
        let stay = self.enter_to_change(key, change, waiting)?;
        let mut page = leaf.held(leaf.latch_to_change()?);
        Ok(self.apply_apart(&mut page, (&stay, false), key, at, decision, change))
    }

    /// Puts a value that is in no stored form, copies the value before to `old`, and tells whether there was one. Unfit: one in a
    /// stored form.
    pub fn swap(&self, key: &[u8], value: &[u8], old: &mut Value) -> Result<Before<bool>> {
        self.write(key, &mut SwapIn { value, old })
    }

    /// Removes a record, copies its value to `old`, and tells whether there was one. Unfit: a value in a stored form.
    pub fn take(&self, key: &[u8], old: &mut Value) -> Result<Before<bool>> {
        self.write(key, &mut Take { old })
    }
}

struct Add {
    number: i64,
    sum: [u8; size_of::<i64>()],
}

impl Change for Add {
    type Outcome = Before<i64>;

    #[inline]
    fn decide<B: PageBytes>(&mut self, leaf: &Leaf<B>, at: Position) -> Decision<Before<i64>> {
        let mut old = 0;
        if at.found {
            let mut value = Value::default();
            leaf.copy_value(at.index, &mut value.0);
            let Ok(bytes) = value.as_bytes().try_into() else {
                return Decision::Keep(Before::Unfit);
            };
            old = i64::from_be_bytes(bytes);
        }
        self.sum = old.wrapping_add(self.number).to_be_bytes();
        match is_stored_form(&self.sum) {
            true => Decision::Keep(Before::Unfit),
            false => Decision::Put(Before::Was(old)),
        }
    }

    fn value(&self) -> &[u8] {
        &self.sum
    }
}

/// The old value, if it may be handed out as it is.
#[inline]
fn copy_old<B: PageBytes>(leaf: &Leaf<B>, at: Position, old: &mut Value) -> Before<bool> {
    if at.found {
        leaf.copy_value(at.index, &mut old.0);
        if is_stored_form(old) {
            return Before::Unfit;
        }
    }
    Before::Was(at.found)
}

struct SwapIn<'v, 'o> {
    value: &'v [u8],
    old: &'o mut Value,
}

impl Change for SwapIn<'_, '_> {
    type Outcome = Before<bool>;

    fn decide<B: PageBytes>(&mut self, leaf: &Leaf<B>, at: Position) -> Decision<Before<bool>> {
        match copy_old(leaf, at, self.old) {
            Before::Unfit => Decision::Keep(Before::Unfit),
            found => Decision::Put(found),
        }
    }

    fn value(&self) -> &[u8] {
        self.value
    }
}

struct Take<'o> {
    old: &'o mut Value,
}

impl Change for Take<'_> {
    const PURPOSE: Purpose = Purpose::GiveBack;
    type Outcome = Before<bool>;

    fn decide<B: PageBytes>(&mut self, leaf: &Leaf<B>, at: Position) -> Decision<Before<bool>> {
        match copy_old(leaf, at, self.old) {
            Before::Was(true) => Decision::Remove(Before::Was(true)),
            found => Decision::Keep(found),
        }
    }

    fn value(&self) -> &[u8] {
        &[]
    }
}
