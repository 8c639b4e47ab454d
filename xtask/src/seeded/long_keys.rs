//! The lines that long keys rest on, each left out in turn: of the same kind as [`super::protocols`]. Plain data.

use super::bugs::{Bug, plain};
use super::protocols::line;

/// All of them, in the order of their numbers.
pub const LINES: &[Bug] = &[
    line(
        "G01",
        "two changes of keys with one head exclude each other",
        "heads_not_locked",
        &[plain(
            "engine",
            "long_keys::threads_that_put_keys_with_one_head_give_each_a_record_of_its_own",
        )],
    ),
    line(
        "G02",
        "a cursor looks whether records have moved",
        "moves_not_looked_at",
        &[plain("engine", "long_keys::runs_of_keys_between_two_others_make_records_move")],
    ),
    line(
        "G03",
        "moves are counted",
        "moves_not_counted",
        &[plain("engine", "long_keys::runs_of_keys_between_two_others_make_records_move")],
    ),
    line(
        "G04",
        "no record moves over another one",
        "moves_overtake",
        &[plain("engine", "long_keys::runs_of_keys_between_two_others_make_records_move")],
    ),
    line(
        "G05",
        "a commit looks long keys up in the tree as it is",
        "bounds_as_they_were",
        &[plain(
            "engine",
            "long_keys::views::a_conflict_is_a_change_of_what_was_read_and_not_of_its_neighbours",
        )],
    ),
    line(
        "G06",
        "a commit looks at what its snapshot has seen, wherever that is by now",
        "bounds_as_they_are",
        &[plain(
            "engine",
            "long_keys::views::what_has_gone_is_missed_where_another_key_has_its_label",
        )],
    ),
    line(
        "G07",
        "a node is asked for the place of a key between its fences alone",
        "searched_outside_of_fences",
        &[plain("lib", "tree::tests::search_by::a_limit_behind_a_node_is_not_sought_in_it")],
    ),
];
