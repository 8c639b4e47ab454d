//! Nodes: the bytes of a leaf or an inner node, and everything that is done to them in place.
//!
//! Rank 3. Bytes in, bytes out: no latch, no I/O; searches allocate nothing. `layout` says where the
//! fields lie; [`Node`] reads, over racing bytes as over plain ones; [`NodeMut`] changes, one file for an
//! operation; [`check()`] finds every defect of a page, and [`load_check`], which is cheap, those that could
//! lead a writer out of the page. The optimisations of "B-Trees Are Back" section 3 are constants of the
//! build, in [`rung`]. [`mod@fingerprint`] and [`mod@dense`] are other layouts of
//! leaves; [`Leaf`] and [`LeafMut`] stand for a leaf of any layout, and [`LeafPolicy`] chooses among them.
//! [`mod@anatomy`] tells what every byte of a page is for.
//!
//! Keys are byte strings in lexicographic order; the empty key is a key. A node holds keys
//! `lower fence < key <= upper fence`.

pub mod anatomy;
mod build;
mod check;
mod cut;
mod defect;
pub mod dense;
mod dispatch;
mod fields;
pub mod fingerprint;
mod gap;
mod inner;
mod lanes;
mod layout;
mod merge;
mod policy;
mod read;
mod record;
mod records;
pub mod rung;
mod search;
mod separator;
mod slotted;
mod split;
mod suffix;
mod write;

#[cfg(test)]
mod tests;

pub use build::Builder;
pub use check::{check, load_check};
pub use cut::{Split, SplitHint};
pub use defect::Defect;
pub(crate) use dispatch::SLOT_SLACK_BYTES;
pub use dispatch::{
    Adapted, Leaf, LeafBuilder, LeafLayout, LeafMut, LeafSplit, Remedy, Spread, adapt, convert,
    merge_leaf_space, merge_leaves, plain_leaf, remedy, split_between, spread_leaves,
};
pub use fields::{LABEL_BYTES, MAX_LEVEL, max_key_bytes, max_record_bytes, max_short_key_bytes};
pub use gap::{gap, pack};
pub use merge::{copy_node, merge_space};
pub use policy::{KeyTraits, LeafPolicy, holds_strings, key_traits};
pub use read::Node;
pub use records::Records;
pub use search::{ChildPosition, Position};
pub use slotted::NoSpace;
pub use write::NodeMut;
