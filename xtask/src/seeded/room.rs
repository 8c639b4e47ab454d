//! The lines that room taken in advance rests on, each left out in turn: of the same kind as [`super::protocols`]. Plain data.

use super::bugs::{Bug, plain};
use super::protocols::line;

/// All of them, in the order of their numbers.
pub const LINES: &[Bug] = &[
    line(
        "A01",
        "what a file system has kept of an allocation that failed is given back",
        "partial_allocation_stays",
        &[
            plain("engine", "room_ahead::what_is_kept_of_an_allocation_that_failed_is_given_back"),
            plain(
                "lib",
                "testing::sim::tests::an_allocation_without_room_keeps_a_part_until_it_is_given_back",
            ),
        ],
    ),
    line(
        "A02",
        "a file for which a whole step is too much grows by what is needed",
        "grows_by_a_step_or_not",
        &[plain(
            "engine",
            "room_ahead::a_full_disk_is_used_to_its_end_and_nothing_is_kept_that_is_not_used",
        )],
    ),
    line(
        "A03",
        "room that is taken ahead is a share of what the store has",
        "room_ahead_of_any_store",
        &[plain(
            "lib",
            "space::tests::slots::room_ahead_is_a_share_of_the_file_and_of_what_is_free",
        )],
    ),
    line(
        "A04",
        "a log that could not be made leaves no file under its temporary name",
        "begun_log_stays",
        &[plain("engine", "room_ahead::a_creation_that_the_disk_has_no_room_for_leaves_nothing")],
    ),
    line(
        "A05",
        "a slot is taken from the beginning of a run, so that it costs the room of one page",
        "slot_out_of_the_middle",
        &[plain(
            "lib",
            "space::tests::images::an_image_of_any_length_costs_the_room_of_a_page_at_most",
        )],
    ),
    line(
        "A06",
        "an image that is found behind something damaged may be a user's",
        "found_in_damage_is_sure",
        &[
            plain(
                "engine",
                "imitations::an_image_in_a_value_of_a_damaged_page_does_not_replace_the_page",
            ),
            plain(
                "engine",
                "imitations::an_image_in_a_value_of_a_damaged_page_adds_nothing_that_is_not_reported",
            ),
        ],
    ),
    line(
        "A07",
        "a last zone that is there in part counts as room after a crash",
        "last_zone_is_never_filled",
        &[plain(
            "lib",
            "space::tests::extremes::a_last_zone_that_is_there_in_part_counts_as_room_after_a_crash",
        )],
    ),
];
