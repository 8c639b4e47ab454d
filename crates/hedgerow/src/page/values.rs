//! Values: what the values of records stand for, where some are references to large ones.
//!
//! A tree handles values as bytes. Some stand for a large value elsewhere, which goes with the record; the pool is told so under the leaf's
//! latch. A pool without large values leaves all of this out. `Send + Sync`.

use crate::types::Epoch;

/// Takes note of what values stand for.
pub trait Values {
    /// Whether values in leaves may be in a stored form, which stands for a large value. To be asked under the leaf's latch.
    #[inline(always)]
    fn has_stored_forms(&self) -> bool {
        false
    }

    /// From now on leaves may have keys with a label. Before the first one is put.
    fn expect_long_keys(&self) {}

    /// Notes that a record's value has become `new`, of `old`: stored forms, or values that are not, or nothing.
    /// Under the latch of the leaf, and within the stay in which it was changed.
    fn stored_form_changed(&self, _epoch: Epoch, _old: &[u8], _new: &[u8]) {}

    /// Gives back what a value stands for that was to be a record's and never was.
    fn discard_stored_form(&self, _value: &[u8]) {}
}
