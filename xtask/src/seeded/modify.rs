//! The lines that read-modify-write, approximate counts and tickets of the log rest on, each left out in turn: of the same kind as
//! [`super::protocols`]. Plain data.

use super::bugs::{Bug, plain};
use super::protocols::line;

/// All of them, in the order of their numbers.
pub const LINES: &[Bug] = &[
    line(
        "U01",
        "an addition adds to what it replaces, under the same latch",
        "adds_in_its_leaf",
        &[plain("engine", "modify::no_addition_is_lost_and_each_sum_is_seen_once")],
    ),
    line(
        "U02",
        "what an update was made of is what it replaces",
        "updates_whatever_is_there",
        &[plain("engine", "modify::no_update_is_lost_while_a_value_grows_through_all_forms")],
    ),
    line(
        "U03",
        "a leaf that is looked at stands for others",
        "a_look_counts_once",
        &[plain(
            "engine",
            "approximate::answers_are_near_for_each_layout_and_for_ranges_of_every_length",
        )],
    ),
    line(
        "U04",
        "a future that goes is out of the log's queue",
        "ticket_stays_in_the_queue",
        &[plain(
            "lib",
            "wal::tests::waiting::a_ticket_that_is_given_up_is_forgotten_and_of_the_others_the_last_task_is_woken",
        )],
    ),
    line(
        "U05",
        "functions are not called by a thread that the end of a database waits for",
        "called_by_who_flushes",
        &[plain(
            "engine",
            "told::a_function_may_have_the_last_handle_and_may_close_and_a_panic_in_it_stops_no_other",
        )],
    ),
];
