//! The lines that commits at one stroke and the stamps of leaves rest on, each left out in turn: of the same kind as
//! [`super::protocols`]. Plain data.

use super::bugs::{Bug, Suite, plain, shuttle};
use super::protocols::line;

const STAMPS: Suite = plain(
    "lib",
    "tree::tests::stamps::no_change_is_newer_than_the_stamp_of_its_leaf_whatever_splits_and_merges_do",
);
const PIECES: Suite =
    plain("lib", "store::replay::tests::a_commit_is_made_at_its_last_piece_or_not_at_all");

/// All of them, in the order of their numbers.
pub const LINES: &[Bug] = &[
    line(
        "K01",
        "all leaves of a commit are latched before one is changed",
        "second_leaf_latched_after_change",
        &[
            shuttle("commits::a_commit_of_two_leaves_is_seen_whole_or_not_at_all"),
            plain("lib", "tree::tests::commit::nobody_sees_half_of_a_commit"),
        ],
    ),
    line(
        "K02",
        "leaves are waited for in one order",
        "leaves_out_of_order",
        &[shuttle("commits::commits_that_wait_for_each_others_leaves_come_to_an_end")],
    ),
    line(
        "K03",
        "room for all changes of a leaf is shown before the record is appended",
        "fit_not_shown",
        &[plain("lib", "tree::tests::commit::commits_agree_with_a_map_under_every_policy")],
    ),
    line(
        "K04",
        "a leaf that has room for each change alone is split between them",
        "carve_forgotten",
        &[plain(
            "lib",
            "tree::tests::commit::two_records_that_fit_a_leaf_each_and_not_together_come_to_two_leaves",
        )],
    ),
    line(
        "K05",
        "who unwinds between a commit's record and its changes poisons",
        "unwinding_goes_on",
        &[plain(
            "lib",
            "tree::tests::commit::who_unwinds_between_the_record_and_the_last_change_poisons",
        )],
    ),
    line("K06", "a commit without its last piece is none", "half_a_commit_counts", &[PIECES]),
    line("K07", "a commit is made at its last piece", "commit_made_at_first_piece", &[PIECES]),
    line(
        "K08",
        "the removal of a range stamps its leaves",
        "stamp_left_by_range_removal",
        &[
            STAMPS,
            plain(
                "lib",
                "tree::tests::stamps::every_kind_of_change_stamps_its_leaf_in_every_layout",
            ),
        ],
    ),
    line("K09", "both halves of a leaf have its stamp", "stamp_lost_in_split", &[STAMPS]),
    line("K10", "a merged leaf has the larger stamp", "merge_keeps_left_stamp", &[STAMPS]),
    line(
        "K11",
        "leaves that were read are held until the commit is appended",
        "reads_not_held",
        &[shuttle("commits::of_two_commits_that_have_read_what_the_other_writes_one_fails")],
    ),
    line(
        "K12",
        "leaves that were read are let go of after the append",
        "reads_let_go_before_append",
        &[shuttle("commits::who_changes_what_a_commit_has_read_has_a_greater_lsn")],
    ),
    line(
        "K13",
        "a leaf that is newer than the snapshot is compared with it",
        "stale_mark_trusted",
        &[plain("engine", "anomalies::p4_no_update_is_lost")],
    ),
    line(
        "K14",
        "records that have gone from a range are compared, too",
        "found_keys_instead_of_range",
        &[plain("engine", "anomalies::g2_a_record_that_goes_from_a_range_is_a_conflict")],
    ),
    line(
        "K15",
        "a range was read up to its end",
        "end_of_range_unguarded",
        &[plain("engine", "anomalies::g2_phantoms_at_every_place_of_a_range_are_conflicts")],
    ),
    line(
        "K16",
        "what is written over a snapshot is looked at under snapshot isolation",
        "blind_write_unchecked",
        &[plain("engine", "anomalies::g_single_reads_are_of_one_moment")],
    ),
    line(
        "K17",
        "a savepoint has the changes as they were",
        "savepoint_keeps_changes",
        &[plain(
            "engine",
            "transactions::own_changes_are_seen_both_ways_and_iterators_keep_theirs",
        )],
    ),
    line(
        "K18",
        "a transaction's own changes are in what it reads backwards, too",
        "own_changes_missing_backwards",
        &[plain(
            "engine",
            "transactions::own_changes_are_seen_both_ways_and_iterators_keep_theirs",
        )],
    ),
    line(
        "K19",
        "the clock of a store without a log goes on where the session before has left it",
        "count_begins_anew",
        &[plain(
            "lib",
            "store::tests::checkpoint::the_count_of_a_store_without_a_log_goes_on_in_the_next_session_with_or_without_one",
        )],
    ),
];
