//! The lines that snapshots and old versions rest on, each left out in turn: of the same kind as [`super::protocols`]. Plain data.

use super::bugs::{Bug, Suite, loom, plain};
use super::protocols::line;

const FIRST: Suite = loom("snapshots::the_first_snapshot_waits_for_writers_without_room");
const SECOND: Suite = loom("snapshots::who_begins_second_waits_for_writers_as_the_first_does");
const FALLING: Suite =
    loom("snapshots::a_snapshot_that_begins_while_the_switch_is_turned_off_has_its_versions");
const HORIZON: Suite =
    loom("snapshots::a_writer_above_the_horizon_keeps_what_a_new_snapshot_needs");
const COLLECTION: Suite = loom("snapshots::a_collection_drops_nothing_that_a_new_snapshot_needs");
const TAIL: Suite =
    loom("snapshots::a_collection_that_has_seen_no_slot_has_read_the_end_of_the_log_before");
const RANDOM: Suite = plain("lib", "versions::tests::snapshots_of_random_lives_see_their_moments");
const READ: Suite = loom("snapshots::a_read_beside_a_writer_and_a_collection_sees_its_moment");
const PIN: Suite =
    loom("snapshots::a_read_beside_a_checkpoint_that_takes_its_snapshot_over_sees_its_moment");
const FREEZING: Suite = loom(
    "snapshots::a_read_beside_a_checkpoint_that_writes_its_versions_to_a_part_sees_its_moment",
);
const MANY: Suite = plain(
    "engine",
    "frozen_versions::many_snapshots_each_taken_over_by_a_checkpoint_of_its_own_see_their_moments",
);
const GIVEN_UP: Suite = loom("snapshots::who_is_given_up_reads_its_moment_or_that_it_is_too_old");
const ALONE: Suite = loom("snapshots::what_is_changed_alone_is_seen_by_a_snapshot_all_at_once");
const BESIDE: Suite =
    loom("snapshots::a_snapshot_that_begins_beside_who_runs_alone_sees_all_or_nothing");
const GATE: Suite = loom("snapshots::behind_the_closed_gate_nobody_else_appends");

const HALF: Suite =
    plain("engine", "alone::half_of_a_large_commit_is_seen_by_nobody_and_readers_go_on");
const PLACES: Suite = plain(
    "engine",
    "alone::whoever_waits_at_the_gate_leaves_its_place_in_the_smallest_pool_to_others",
);
const DROP: Suite = plain(
    "engine",
    "pinned_snapshots::a_snapshot_of_a_store_in_memory_says_that_it_is_too_old_while_its_keyspace_is_dropped",
);

/// All of them, in the order of their numbers.
pub const LINES: &[Bug] = &[
    line(
        "S01",
        "all who begin wait for writers without room, not only the first",
        "on_at_once",
        &[SECOND],
    ),
    line(
        "S02",
        "writers without room are waited for before the switch is on",
        "no_grace",
        &[FIRST],
    ),
    line("S03", "the switch is turned off by way of falling", "off_without_look", &[FALLING]),
    line(
        "S04",
        "the horizon is raised before a snapshot's moment is read",
        "horizon_after_lsn",
        &[HORIZON],
    ),
    line(
        "S05",
        "a slot is pending before its snapshot's moment is read",
        "lsn_before_slot",
        &[COLLECTION],
    ),
    line(
        "S06",
        "nothing is collected while a snapshot is pending",
        "collect_past_pending",
        &[COLLECTION],
    ),
    line(
        "S07",
        "a collection reads the log's end before it looks at the slots",
        "tail_behind_slots",
        &[TAIL],
    ),
    line(
        "S08",
        "a version is linked before its leaf is unlatched",
        "version_after_unlatch",
        &[READ],
    ),
    line("S09", "a slot is looked at behind the versions", "pin_read_before_versions", &[PIN]),
    line(
        "S10",
        "a slot says that it is pinned before versions are dropped",
        "drop_before_pin",
        &[PIN],
    ),
    line(
        "S11",
        "a checkpoint takes over no snapshot that is later than its cut",
        "pin_for_later_snapshot",
        &[PIN],
    ),
    line(
        "S12",
        "a slot says that it is given up before versions are dropped",
        "given_up_in_silence",
        &[GIVEN_UP],
    ),
    line("S13", "no snapshot begins while who runs alone ends", "no_ending", &[BESIDE]),
    line(
        "S14",
        "who reads looks for who runs alone behind the leaf",
        "alone_before_leaf",
        &[ALONE],
    ),
    line(
        "S15",
        "who begins looks for who runs alone behind the log's end",
        "alone_before_tail",
        &[BESIDE],
    ),
    line("S16", "who closes the gate waits for those inside", "gate_without_wait", &[GATE]),
    line(
        "S17",
        "removed keys are kept in their order, too",
        "removed_keys_forgotten",
        &[
            plain("lib", "versions::tests::snapshots_of_random_lives_see_their_moments"),
            plain("lib", "versions::tests::trees_and_bounds_are_kept_apart_among_removed_keys"),
        ],
    ),
    line("S18", "the barrier behind a pending slot", "begin_without_barrier", &[FALLING, BESIDE]),
    line(
        "S19",
        "the barrier between the horizon and a snapshot's moment",
        "moment_without_barrier",
        &[HORIZON],
    ),
    line(
        "S20",
        "the barrier between an append, and the count of snapshots and the horizon",
        "keep_without_barrier",
        &[HORIZON, COLLECTION],
    ),
    line(
        "S21",
        "the barrier between the log's end and the slots",
        "collect_without_barrier",
        &[TAIL],
    ),
    line("S22", "the barrier behind falling", "fall_without_barrier", &[FALLING]),
    line("S23", "the barrier behind an end that is announced", "end_without_barrier", &[BESIDE]),
    line(
        "S24",
        "the barrier before stays are waited for",
        "wait_for_stays_without_barrier",
        &[FIRST],
    ),
    line(
        "S25",
        "a snapshot knows that its keyspace is being dropped",
        "drop_frees_under_snapshot",
        &[DROP],
    ),
    line(
        "S26",
        "the leaf of a pinned checkpoint is the one for its keys",
        "pinned_leaf_not_checked",
        &[plain(
            "lib",
            "tree::tests::frozen::pages_that_cannot_be_are_damage_and_never_a_wrong_turn_for_ever",
        )],
    ),
    line(
        "S27",
        "nothing is read in a pin of a closed store",
        "pin_read_after_close",
        &[plain("lib", "store::tests::pinned::nothing_is_read_in_a_pin_of_a_closed_store")],
    ),
    line("S28", "who reads looks at its slot behind who runs alone", "slot_before_alone", &[ALONE]),
    line(
        "S29",
        "no checkpoint takes snapshots over while somebody runs alone",
        "cut_in_alone_takes_over",
        &[plain("lib", "versions::tests::who_runs_alone_is_seen_all_at_once")],
    ),
    line(
        "S30",
        "who reads without a snapshot looks for who runs alone",
        "plain_reads_see_half",
        &[HALF],
    ),
    line(
        "S31",
        "who waits at the gate, or for room, lets go of its place in the pool",
        "waits_at_gate_with_pages",
        &[PLACES],
    ),
    line(
        "S32",
        "keyspaces are not created while somebody runs alone",
        "gate_behind_locks",
        &[HALF],
    ),
    line(
        "S33",
        "who keeps a version counts the snapshots behind its append",
        "snapshots_counted_before_append",
        &[COLLECTION],
    ),
    line(
        "S34",
        "who ends to run alone takes snapshots behind his cut over that came before his first change",
        "pins_up_to_cut_alone",
        &[plain("lib", "versions::tests::who_runs_alone_is_seen_all_at_once")],
    ),
    line(
        "S35",
        "a full barrier lies between a leaf's latch and the look at the clock",
        "clock_without_barrier",
        &[COLLECTION],
    ),
    line(
        "S36",
        "a moment ends, so that later changes are behind it",
        "moment_does_not_end",
        &[COLLECTION],
    ),
    line(
        "S37",
        "of a new record a snapshot before it finds that there was none",
        "new_keys_seen_below",
        &[RANDOM],
    ),
    line(
        "S38",
        "what was loaded is not there for the snapshots before the load",
        "load_without_base",
        &[plain(
            "engine",
            "snapshots::a_snapshot_sees_nothing_of_a_load_that_came_after_it_nor_of_what_became_of_it",
        )],
    ),
    line(
        "S39",
        "the places of large values that a snapshot sees are not written again",
        "extent_freed_under_snapshot",
        &[plain(
            "engine",
            "snapshots::large_values_that_a_snapshot_sees_stay_while_their_records_get_others",
        )],
    ),
    line(
        "S40",
        "versions that were written to the file are there as long as a snapshot needs them",
        "frozen_dropped",
        &[FREEZING, MANY],
    ),
    line(
        "S41",
        "a part in the file is listed before memory has its versions no longer",
        "frozen_after_drop",
        &[FREEZING],
    ),
    line("S42", "memory is looked at before parts in the file", "part_before_memory", &[FREEZING]),
    line(
        "S43",
        "the units of a part are nobody else's as long as it lives",
        "frozen_extent_freed",
        &[MANY],
    ),
    line(
        "S44",
        "no versions are written while a snapshot below is not pinned",
        "frozen_below_unpinned",
        &[plain(
            "lib",
            "versions::tests::frozen::nothing_is_frozen_while_a_snapshot_below_is_not_pinned",
        )],
    ),
    line(
        "S45",
        "a version in the file says that its key was removed",
        "removed_forgotten_in_part",
        &[MANY],
    ),
    line(
        "S46",
        "who looks for a version has the recent ones indexed first",
        "recent_not_indexed",
        &[RANDOM],
    ),
    line(
        "S47",
        "no recent version is dropped that somebody needs",
        "trimmed_past_needs",
        &[RANDOM],
    ),
    line(
        "S48",
        "what a removal was promised is free when it has its place",
        "promise_forgotten",
        &[RANDOM],
    ),
    line(
        "S49",
        "what was loaded is not there for snapshots that were given up",
        "given_up_forget_loads",
        &[plain(
            "lib",
            "database::tests::given_up::a_transaction_whose_snapshot_was_given_up_does_not_pass_over_what_was_loaded_after_it",
        )],
    ),
    line(
        "S50",
        "a value that was put beside one snapshot is kept for another one that sees it",
        "freed_beside_who_sees_it",
        &[plain(
            "engine",
            "snapshot_values::snapshots_that_come_and_go_see_their_values_whatever_replaces_them",
        )],
    ),
];
