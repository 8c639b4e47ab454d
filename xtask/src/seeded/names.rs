//! The lines that changes of names rest on, each left out in turn: of the same kind as [`super::protocols`]. Plain data.

use super::bugs::{Bug, plain};
use super::protocols::line;

/// All of them, in the order of their numbers.
pub const LINES: &[Bug] = &[
    line(
        "N01",
        "a close removes a log only if the log's name still names it",
        "log_removed_by_name",
        &[
            plain(
                "engine",
                "names::on_unix::a_close_leaves_the_log_of_a_store_that_came_to_its_path",
            ),
            plain(
                "engine",
                "names::a_power_cut_while_a_store_closes_whose_names_another_has_loses_nothing_of_either",
            ),
        ],
    ),
    line(
        "N02",
        "a store gets a log only while its path leads to it",
        "log_of_a_path_that_leads_elsewhere",
        &[plain(
            "lib",
            "store::tests::creation::a_store_that_is_replaced_while_it_is_opened_is_not_given_a_log_at_its_old_path",
        )],
    ),
    line(
        "N03",
        "a log that a live session writes to is not taken over",
        "log_without_lock",
        &[plain(
            "engine",
            "names::on_unix::a_copy_of_a_store_does_not_take_the_log_of_the_one_that_is_open",
        )],
    ),
    line(
        "N04",
        "whoever looks for keyspaces sees an exchange of names whole",
        "names_change_one_by_one",
        &[plain("engine", "renames::whoever_looks_for_names_sees_all_of_an_exchange_or_none")],
    ),
    line(
        "N05",
        "a root says that its tree is being freed",
        "being_freed_is_not_noted",
        &[plain(
            "engine",
            "damage::a_damaged_keyspace_that_is_dropped_keeps_nobody_from_opening_the_store",
        )],
    ),
];
