//! Lines of the buffer pool that no test of `cargo test` noticed when they were left out: each has one by now.
//!
//! Of the same kind as the lines of the protocols ([`super::protocols`]). Plain data.

use super::bugs::{Bug, plain};
use super::protocols::line;

/// All of them.
pub const LINES: &[Bug] = &[
    line(
        "F01",
        "a frame that gets a page is one of those that are looked at",
        "used_frame_is_not_marked",
        &[plain("lib", "buffer::tests::a_flush_finds_pages_in_frames_that_lie_apart")],
    ),
    line(
        "F02",
        "copies that a failed checkpoint has thrown away count no more",
        "copies_outlive_a_failure",
        &[plain(
            "lib",
            "buffer::tests::refused::a_checkpoint_succeeds_after_one_that_had_copies_and_failed",
        )],
    ),
    line(
        "F03",
        "slots of copies that are not written are given back",
        "slots_of_earlier_slabs_leak",
        &[plain(
            "lib",
            "buffer::tests::refused::slots_of_slabs_that_are_not_written_are_given_back",
        )],
    ),
    line(
        "F04",
        "a copy is noted for the page that it is of",
        "copy_of_any_page",
        &[plain(
            "lib",
            "buffer::hand_over::tests::a_copy_is_not_noted_as_the_image_of_another_page",
        )],
    ),
    line(
        "F05",
        "a page id for which there is no frame is free again",
        "id_lost_with_its_frame",
        &[plain("lib", "buffer::tests::refused::an_id_that_gets_no_frame_is_not_lost")],
    ),
    line(
        "F06",
        "a page id for which there is no part of the table is free again",
        "id_lost_with_its_part",
        &[plain("lib", "buffer::tests::refused::an_id_that_gets_no_part_of_the_table_is_not_lost")],
    ),
    line(
        "F07",
        "those who wait for a read that fails get its error",
        "failed_read_is_not_told",
        &[plain(
            "lib",
            "buffer::tests::refused::whoever_waits_for_a_read_that_fails_gets_its_error",
        )],
    ),
    line(
        "F08",
        "the eviction looks for those who wait before it goes to sleep",
        "eviction_overlooks_who_waits",
        &[plain(
            "lib",
            "buffer::evict::tests::whoever_waits_at_the_end_of_a_turn_gets_another_one",
        )],
    ),
];
