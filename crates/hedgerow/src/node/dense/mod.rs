//! Dense leaves: arrays indexed by what the keys are beyond a reference, instead of searches for
//! them.
//!
//! "B-Trees Are Back" section 3.5. Where the keys of a leaf are of one length and differ in their
//! last four bytes only, and few of the numbers between them are missing, a key names its slot: a
//! look-up compares nothing. [`Semi`] keeps two bytes a slot, and values of any size on a heap;
//! [`Full`] an array of values of one size. Both mark the slots that have records by bits, and
//! *over-commit*: a leaf has slots for the keys that it can hold, however far its upper fence is,
//! and lets go of the range beyond when a key comes from there ([`DenseMut::choose_remedy`]), so
//! that ascending loads leave full leaves behind. Unlike the paper's, both do so downwards, too
//! (`base` need not be the number behind the lower fence), and the stem need not be part of the
//! lower fence.
//!
//! [`DenseNode`] reads, over racing bytes as over plain ones; [`DenseMut`] changes; what a leaf
//! cannot hold is [`Refused`] with the reason, and nothing has changed. A *place* is the number of
//! a slot; places are in the order of the keys, and not without gaps. [`check()`] and [`load_check`]
//! are those of `node/check.rs` for these layouts. `criterion` holds the decisions, which are pure
//! functions: when a leaf is dense enough, where a comparison leaf is cut so that dense ones come
//! of it.

mod anatomy;
mod check;
mod convert;
mod criterion;
mod fields;
mod full;
mod layout;
mod presence;
mod read;
mod records;
mod run;
mod semi;
mod shape;
mod split;
mod write;

#[cfg(test)]
mod tests;

pub(super) use anatomy::{FIELDS, sketch_full, sketch_semi};
pub use check::{check, load_check};
pub use convert::to_comparison;
pub use criterion::{Growth, choose_cut, growth_of, is_dense_enough};
pub(in crate::node) use fields::MAX_SLOTS;
pub use full::Full;
pub use layout::Refused;
pub use layout::{Contents, DenseLayout, Frame};
pub use presence::Slots;
pub use read::DenseNode;
pub use run::Run;
pub use semi::Semi;
pub use shape::KeyShape;
pub use split::{DenseSplit, Remedy};
pub use write::DenseMut;
pub(super) use {full::gap as gap_of_full, semi::gap as gap_of_semi, semi::pack as pack_semi};
