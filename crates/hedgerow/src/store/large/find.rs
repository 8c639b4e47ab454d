//! Finding the value of a record, wherever it lies.
//!
//! Rank 6. Invariant: whoever gets a reader has noted its extent while the record, or the checkpoint that is read beside a large commit,
//! still kept it. Thread-safety: as for [`Store`].

use super::ExtentReader;
use crate::error::Result;
use crate::large::{Held, Stored, read_stored};
use crate::page::Pages;
use crate::store::{Found, PoolTree, Store, unknown_form};
use crate::tree::Value;

impl Store {
    /// Finds the value of `key`, to be read; `None` if there is no record.
    ///
    /// Errors: those of reads; `Corrupted` for a value in no known form.
    pub fn find(&self, tree: &PoolTree, key: &[u8]) -> Result<Option<Found>> {
        let Some(slots) = &self.shared.slots else { return self.find_held(tree, key) };
        let pool = &self.shared.pool;
        loop {
            let turns = pool.alone_turns();
            // First this, so that what the record refers to then stays.
            let reading = slots.read_extents(pool.epochs().current());
            let Some(value) = tree.get(key)? else { return Ok(None) };
            if !slots.has_stored_forms() {
                return Ok(Some(Found::Short(value)));
            }
            return match read_stored(&value) {
                Stored::Plain(plain) => Ok(Some(Found::Short(Value::from(plain)))),
                Stored::Extent(extent) => {
                    let reader = ExtentReader::new(Some(pool), slots, extent, reading);
                    // Beside who changes records alone it is what a pinned checkpoint refers to, which keeps it until he ends.
                    if pool.alone_turns() != turns {
                        continue;
                    }
                    Ok(Some(Found::Extent(Box::new(reader?.with_wait(tree.wait())))))
                }
                Stored::Damaged => Err(unknown_form()),
            };
        }
    }

    /// [`Self::find`] in a store that lives in memory.
    fn find_held(&self, tree: &PoolTree, key: &[u8]) -> Result<Option<Found>> {
        loop {
            let Some(value) = tree.get(key)? else { return Ok(None) };
            if !self.has_stored_forms() {
                return Ok(Some(Found::Short(value)));
            }
            if let Some(held) = Held::decode(&value) {
                let mut bytes = Vec::new();
                if self.shared.pool.append_held(&held, &mut bytes) {
                    return Ok(Some(Found::Held { value: Value::from(bytes), reference: value }));
                }
                // The record has another value by now.
                continue;
            }
            return match read_stored(&value) {
                Stored::Plain(plain) => Ok(Some(Found::Short(Value::from(plain)))),
                Stored::Extent(_) | Stored::Damaged => Err(unknown_form()),
            };
        }
    }
}
