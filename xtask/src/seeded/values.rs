//! The lines that values which no leaf holds rest on (chunks that are staged, pieces in memory), each left out in turn: of the same
//! kind as [`super::protocols`]. Plain data.

use super::bugs::{Bug, plain};
use super::protocols::{LARGE_VALUES, line};

/// All of them, in the order of their numbers.
pub const LINES: &[Bug] = &[
    line(
        "V01",
        "a value that was given up is not written",
        "discarded_chunk_stays_staged",
        &[plain(
            "lib",
            "store::tests::staged::a_value_that_was_given_up_is_not_written_over_the_next_one",
        )],
    ),
    line("V02", "the sync of staged values", "staged_chunks_without_sync", &[LARGE_VALUES]),
    line("V03", "staged values before the log", "log_before_staged_chunks", &[LARGE_VALUES]),
    line(
        "V04",
        "staged values before a superblock",
        "checkpoint_before_staged_chunks",
        &[plain(
            "lib",
            "store::tests::staged::a_checkpoint_has_the_values_that_were_staged_before_it",
        )],
    ),
    line(
        "V05",
        "staged values before they are read",
        "read_before_staged_chunks",
        &[plain(
            "lib",
            "store::tests::staged::many_values_are_written_by_one_call_and_read_before_and_after",
        )],
    ),
    line(
        "V06",
        "the name of a piece",
        "piece_of_another_value",
        &[plain(
            "lib",
            "buffer::tests::pieces::a_piece_of_another_value_is_not_taken_for_this_one",
        )],
    ),
    line(
        "V07",
        "the version of a frame with a piece",
        "piece_is_not_validated",
        &[plain(
            "lib",
            "buffer::tests::pieces::what_was_copied_of_a_frame_that_was_taken_meanwhile_does_not_count",
        )],
    ),
    line(
        "V08",
        "values that somebody else is writing",
        "buffer_under_way_counts_as_written",
        &[plain(
            "lib",
            "store::tests::staged::whoever_needs_values_in_the_file_waits_for_who_is_writing_them",
        )],
    ),
    line(
        "V09",
        "a value that is given up while it is written",
        "given_up_while_it_is_written",
        &[plain(
            "lib",
            "store::tests::staged::a_value_that_is_given_up_while_it_is_written_has_its_place_until_then",
        )],
    ),
    line(
        "V10",
        "a write of values that failed in a thread",
        "failed_write_of_values_is_forgotten",
        &[plain(
            "lib",
            "store::tests::staged::what_the_thread_could_not_write_is_told_to_the_next_one",
        )],
    ),
    line(
        "V11",
        "the name of a piece that is lent",
        "lends_another_piece",
        &[plain("lib", "buffer::tests::lent::a_frame_with_another_piece_is_not_lent")],
    ),
    line(
        "V12",
        "the bound on what is lent",
        "lends_without_a_bound",
        &[plain("lib", "buffer::tests::lent::no_more_than_a_sixteenth_of_the_frames_is_lent")],
    ),
    line(
        "V13",
        "the page table passes over lent values",
        "table_waits_for_who_was_lent",
        &[plain(
            "lib",
            "buffer::tests::lent::the_page_table_grows_beside_a_lent_value_in_the_topmost_frames",
        )],
    ),
    line(
        "V14",
        "a read of no bytes behind the end of a value",
        "reads_behind_the_end",
        &[plain("lib", "store::tests::large_values::any_part_of_a_value_is_read_from_the_file")],
    ),
    line(
        "V15",
        "where the staged chunks of a value begin",
        "staged_chunks_are_all_or_none",
        &[plain("lib", "store::tests::staged::parts_of_a_value_are_read_from_where_they_are")],
    ),
];
