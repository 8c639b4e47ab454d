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
];
