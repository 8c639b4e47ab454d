//! The lines that recovery within the memory limit and idle streams rest on, each left out in turn: of the same kind as
//! [`super::protocols`]. Plain data.

use super::bugs::{Bug, plain};
use super::protocols::line;

/// All of them, in the order of their numbers.
pub const LINES: &[Bug] = &[
    line(
        "R01",
        "a stream that nobody calls gives its memory back to whoever needs it",
        "idle_streams_keep_their_loans",
        &[plain(
            "engine",
            "idle_streams::half_read_readers_make_nobody_wait_and_go_on_where_they_were",
        )],
    ),
    line(
        "R02",
        "a writer that gives its memory back writes what is in it first",
        "half_a_chunk_is_given_back",
        &[plain("engine", "idle_streams::half_written_writers_make_nobody_wait_and_lose_no_byte")],
    ),
    line(
        "R03",
        "a stretch of a batch's changes that is passed over in the middle is passed over for good only if its keyspaces are gone",
        "passed_changes_are_gone",
        &[plain("lib", "store::replay::tests::a_batch_is_made_whole_and_half_a_batch_is_not")],
    ),
    line(
        "R04",
        "the checkpoint thread begins when what the log names is held",
        "settled_while_log_is_read",
        &[plain(
            "engine",
            "crash_large_values::values_that_only_the_log_names_are_left_alone_however_long_an_opening_reads",
        )],
    ),
];
