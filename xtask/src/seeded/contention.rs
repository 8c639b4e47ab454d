//! The lines that Contention Split rests on, each left out in turn: of the same kind as [`super::protocols`]. Plain data.

use super::bugs::{Bug, plain};
use super::protocols::line;

/// All of them, in the order of their numbers.
pub const LINES: &[Bug] = &[
    line(
        "C01",
        "the hot mark keeps merges away",
        "hot_mark_ignored",
        &[plain("lib", "tree::tests::contention::what_was_split_is_not_merged_while_it_is_hot")],
    ),
    line(
        "C02",
        "the last place is that of the write before",
        "place_is_compared_with_itself",
        &[plain(
            "lib",
            "tree::tests::contention::two_keys_that_are_updated_come_to_different_leaves_in_every_layout",
        )],
    ),
    line(
        "C03",
        "the latches of both halves are on different cache lines",
        "halves_share_a_line",
        &[plain(
            "lib",
            "buffer::tests::contention::pages_that_are_to_be_apart_do_not_share_a_line_of_latches",
        )],
    ),
    line(
        "C04",
        "the counts of a frame are those of its page",
        "hot_mark_of_another_page",
        &[plain("lib", "buffer::tests::contention::another_page_in_a_frame_begins_without_counts")],
    ),
];
