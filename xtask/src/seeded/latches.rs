//! The lines that waiting for a latch rests on, each left out in turn: of the same kind as [`super::protocols`]. Plain data.

use super::bugs::{Bug, latch, plain};
use super::protocols::line;

/// All of them, in the order of their numbers.
pub const LINES: &[Bug] = &[
    line(
        "L01",
        "the look at the parent after a wait for a leaf",
        "parent_not_validated_after_a_wait",
        &[plain(
            "lib",
            "tree::tests::concurrent::a_leaf_that_was_split_while_somebody_waited_for_it_is_not_changed",
        )],
    ),
    line(
        "L02",
        "a wake-up that who gives up owes to others",
        "wake_up_owed_by_who_gives_up",
        &[latch("who_gives_up_wakes_for_a_release_that_has_woken_nobody")],
    ),
    line(
        "L03",
        "who is handed the latch has it",
        "hand_over_lost",
        &[latch("who_was_overtaken_is_handed_the_latch")],
    ),
    line(
        "L04",
        "a plain release forgets who is waking",
        "waking_stored_again",
        &[latch("who_was_overtaken_is_handed_the_latch")],
    ),
    line(
        "L05",
        "who gives up has the latch that it was handed",
        "hand_over_lost_by_who_gives_up",
        &[latch("who_gives_up_has_the_latch_that_it_was_handed")],
    ),
    line(
        "L06",
        "a wait that ends is no failure of the disk",
        "end_of_a_wait_poisons",
        &[plain(
            "lib",
            "database::tests::waiting::a_wait_for_memory_for_large_values_ends_and_poisons_nothing",
        )],
    ),
    line(
        "L07",
        "who lets go of a lock has others see what it has done",
        "brief_lock_without_release",
        &[latch("a_brief_lock_has_one_holder_at_a_time_who_sees_what_the_one_before_has_done")],
    ),
];
