//! The lines that merges of several leaves, and calls that pass leaves without records, rest on, each left out in turn: of the same kind as [`super::protocols`]. Plain
//! data.

use super::bugs::{Bug, plain};
use super::protocols::line;

/// All of them, in the order of their numbers.
pub const LINES: &[Bug] = &[
    line(
        "M01",
        "the newest LSN of merged leaves is the largest",
        "spread_keeps_the_first_lsn",
        &[plain("lib", "node::dispatch::tests::spread::records_are_spread_evenly_and_fences_meet")],
    ),
    line(
        "M02",
        "one clean leaf at most before a write",
        "merges_dirty_clean_leaves",
        &[plain(
            "lib",
            "tree::tests::compact::leaves_that_are_about_to_be_written_are_merged_with_dirty_neighbours",
        )],
    ),
    line(
        "M03",
        "leaves without records before the first record belong to what is read",
        "empty_leaves_before_the_end",
        &[plain(
            "lib",
            "tree::tests::ends::a_record_that_comes_to_an_empty_leaf_is_not_passed_over",
        )],
    ),
    line(
        "M04",
        "children that the merge of two inner nodes has made neighbours are looked at, too",
        "merged_children_stay_apart",
        &[plain("lib", "tree::tests::height::a_tree_whose_keys_are_all_removed_is_a_single_page")],
    ),
];
