//! The lines that regions of transactional memory and the trees on them rest on, each left out in turn: of the same kind as
//! [`super::protocols`]. Plain data.

use super::bugs::{Bug, Build, Suite};
use super::protocols::line;

/// A unit test of the trees.
const fn unit(test: &'static str) -> Suite {
    Suite { build: Build::Plain, package: "hedgerow-htm-index", target: "lib", test }
}

/// A model of Eunomia's two regions.
const fn model(test: &'static str) -> Suite {
    Suite { build: Build::Loom, package: "hedgerow-htm-index", target: "loom_eunomia", test }
}

/// All of them, in the order of their numbers.
pub const LINES: &[Bug] = &[
    line(
        "T01",
        "a region looks whether the lock is held before anything else",
        "htm_no_subscription",
        &[unit("htm::tests::whoever_holds_the_lock_is_not_seen_halfway")],
    ),
    line(
        "T02",
        "a merge raises the sequence numbers of its leaves",
        "htm_merge_without_sequence",
        &[unit("eunomia::tests::a_merge_raises_the_sequence_numbers_of_both_leaves")],
    ),
    line(
        "T03",
        "a mark is cleared only if no other key of the leaf has it",
        "htm_mark_cleared_without_look",
        &[unit("eunomia::tests::a_remove_leaves_the_mark_of_another_key_that_shares_it")],
    ),
    line(
        "T04",
        "lock words of a leaf are never reset",
        "htm_lock_words_reset",
        &[unit("eunomia::tests::a_key_stays_locked_when_its_leaf_is_freed_and_taken_again")],
    ),
    line(
        "T05",
        "a get that finds no mark compares the sequence number",
        "htm_get_without_sequence",
        &[model("a_get_finds_a_key_that_a_split_moves")],
    ),
];
