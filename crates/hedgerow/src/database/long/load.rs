//! Long keys in a bulk load: records come in order, and each head's get labels one after the other.
//!
//! Plain state of one load.

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
