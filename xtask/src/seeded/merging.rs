//! The lines that merges of several leaves rest on, each left out in turn: of the same kind as [`super::protocols`]. Plain
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
];
