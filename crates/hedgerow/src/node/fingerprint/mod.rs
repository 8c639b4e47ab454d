//! The fingerprint leaf ("B-Trees Are Back" section 3.4): records are found by one-byte hashes.
//!
//! A look-up compares the key's fingerprint with all those of the leaf, 64 at once, and looks only
//! at records whose fingerprint agrees: of other records it touches nothing. Records need no order
//! for that. Those inserted last stand in an unsorted tail behind the sorted part, and are sorted
//! into it when somebody wants the order: a split, a merge, a conversion, or a cursor, in its
//! private copy. Sorting is no logical change: the leaf holds the same records.
//!
//! `layout` says where the fields lie, `hash` what a fingerprint is; [`FingerprintLeaf`] reads,
//! over racing bytes as over plain ones; [`FingerprintLeafMut`] changes, one file for an operation;
//! [`check()`] and [`load_check`] are for this layout what [`super::check()`] and
//! [`super::load_check`] are for the other nodes. Header, fences and prefix lie where all nodes
//! have them.
//!
//! Records are addressed by *place*, an index of slot and fingerprint. A place is valid until the
//! next insertion, removal or sort. In a sorted leaf places are in the order of the keys.

mod anatomy;
mod build;
mod check;
mod convert;
mod hash;
mod layout;
mod merge;
mod read;
mod sort;
mod split;
mod write;

pub(super) use anatomy::{FIELDS, WIDE_SLOTS, sketch};
pub use check::{check, load_check};
pub use convert::{comparison_to_fingerprint, fingerprint_to_comparison};
pub use hash::{FUNCTION, fingerprint};
pub(super) use layout::{Measure, gap, pack, slots as fingerprint_slots};
pub use merge::merge_space;
pub use read::FingerprintLeaf;
pub use write::FingerprintLeafMut;

#[cfg(test)]
#[cfg(not(any(
    hedgerow_rung = "baseline",
    hedgerow_rung = "prefix",
    hedgerow_rung = "heads"
)))]
pub(super) use layout::{CROWD, is_wide, sorted_count, space_needed};
