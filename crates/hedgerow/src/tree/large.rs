//! Values in a stored form ([`crate::large`]): what a change of one tells the pool and the log.
//!
//! A tree handles them like any other values; it is whoever puts and gets that knows what they stand for. But
//! a record that goes takes its large value with it, at the very moment, so that is noted here: under the leaf's
//! latch, in the epoch of the change. Only stores that have such values look at all. Thread-safety: as for
//! [`Tree`].

use super::Tree;
use super::value::Value;
use super::walk::Go;
use crate::error::{Error, Result};
use crate::large::{is_same_value, is_stored_form};
use crate::node::plain_leaf;
use crate::page::header::{self, PageKind};
use crate::page::{EpochStay, PagePool};
use crate::types::{Epoch, PageId, TreeId};
use crate::wal::Record;
use std::ops::ControlFlow;

/// The log's record of a put, which replaces `old` if there are stored forms. What is in one says so: recovery has to know before it writes anything.
#[inline]
pub(super) fn put_record<'r>(
    tree: TreeId,
    key: &'r [u8],
    value: &'r [u8],
    old: &Value,
    stored_forms: bool,
) -> Record<'r> {
    if stored_forms && is_stored_form(value) {
        Record::Extent { tree, key, value, is_moved: is_same_value(old.as_bytes(), value) }
    } else {
        Record::Put { tree, key, value }
    }
}

/// Shows each value of a leaf, in any order.
pub(super) fn for_each_value(page: &[u8], each: &mut dyn FnMut(&[u8])) {
    let leaf = plain_leaf(page);
    let mut value = Vec::new();
    let mut place = leaf.next_place(0);
    while place < leaf.end() {
        value.clear();
        leaf.append_value(place, &mut value);
        each(&value);
        place = leaf.next_place(place + 1);
    }
}

/// Shows each value of a leaf that is in a stored form; in any order.
pub(super) fn for_each_stored_form(page: &[u8], each: &mut dyn FnMut(&[u8])) {
    for_each_value(page, &mut |value| {
        if is_stored_form(value) {
            each(value);
        }
    });
}

impl<P: PagePool> Tree<P> {
    /// Tells the pool of a value that was replaced, if it or the new one is in a stored form.
    #[cold]
    pub(super) fn note_stored_forms(&self, stay: &P::EpochGuard<'_>, old: &[u8], new: &[u8]) {
        if is_stored_form(old) || is_stored_form(new) {
            self.pool.stored_form_changed(stay.epoch(), old, new);
        }
    }

    /// Tells the pool that a page has come, or that it goes, with all values that it has. Under its latch, and within
    /// the stay; a bulk load's pages come and go whole.
    pub(super) fn note_page(&self, epoch: Epoch, page: &[u8], comes: bool) {
        let is_leaf = !matches!(header::kind(page), None | Some(PageKind::Free | PageKind::Inner));
        if is_leaf && self.pool.has_stored_forms() {
            for_each_stored_form(page, &mut |value| {
                let (old, new) = if comes { (&[][..], value) } else { (value, &[][..]) };
                self.pool.stored_form_changed(epoch, old, new);
            });
        }
    }

    /// Tells the pool that a page that a bulk load left behind goes; see [`Self::note_page`].
    pub fn note_leftover(&self, epoch: Epoch, page: &[u8]) {
        self.note_page(epoch, page, false);
    }

    /// Shows every value in a stored form, and its leaf, until `each` breaks off. Pages that cannot be read are passed over, once
    /// `unreadable` was told. Nothing is latched meanwhile.
    ///
    /// Errors: the root cannot be read; those of `unreadable`; `KeyspaceDropped`; `Timeout`.
    pub fn for_each_stored_form(
        &self,
        each: &mut dyn FnMut(PageId, &[u8]) -> ControlFlow<()>,
        unreadable: &mut dyn FnMut(PageId, Error) -> Result<()>,
    ) -> Result<()> {
        let mut go_on = ControlFlow::Continue(());
        self.walk(
            &mut |visit| {
                if header::level(visit.bytes) == 0 && !visit.again {
                    for_each_stored_form(visit.bytes, &mut |value| {
                        if go_on.is_continue() {
                            go_on = each(visit.id, value);
                        }
                    });
                }
                if go_on.is_continue() { Go::Down } else { Go::End }
            },
            &mut |id, error| if id == self.root { Err(error) } else { unreadable(id, error) },
        )
    }
}
