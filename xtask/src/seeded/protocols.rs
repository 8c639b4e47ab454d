//! The lines that the protocols of latches, log, epochs, copies and slots rest on, each left out in turn.
//!
//! Of the same kind as the bugs of the list ([`super::bugs`]); here it is not a class of bugs that is looked for, but whether
//! a model needs each line that it is there for. Plain data.

use super::bugs::{Bug, Seeded, Suite, latch, loom, plain, shuttle};

const NOT_TORN: Suite = latch("a_validated_read_is_not_torn");
const NO_WAKE_UP_LOST: Suite = latch("no_wake_up_is_lost");
const BLOCK_IS_WHOLE: Suite = loom("log::a_block_that_is_written_is_whole");
const COMMIT: Suite =
    loom("log::whoever_was_told_that_it_is_durable_has_it_on_the_disk_and_everybody_is_told");
const FAILURE: Suite =
    loom("log::after_a_sync_that_failed_nobody_is_told_that_it_is_durable_and_nothing_is_written");
const CLOSE: Suite =
    loom("close::a_commit_beside_a_close_is_answered_and_nothing_is_written_afterwards");
const EPOCHS: Suite = loom("epochs::a_checkpoint_sees_changes_whole_or_not_at_all");
const COPIES: Suite = loom("copies::a_checkpoint_gets_a_page_as_it_was_when_its_epoch_ended");
const SLOTS: Suite = loom("slots::a_slot_that_a_checkpoint_needs_is_not_written_again");
const BATCH: Suite = shuttle("log::a_batch_is_there_whole_or_not_at_all");
const CUT_BATCHES: Suite = plain(
    "lib",
    "store::batch::tests::of_two_batches_at_a_cut_one_is_in_the_checkpoint_and_the_other_is_finished",
);
const POWER_LOSS: Suite = shuttle("failures::a_power_loss_leaves_a_checkpoint");
const ONE_LEAF: Suite =
    plain("engine", "isolation::transactions_of_a_store_in_memory_are_strictly_serializable");
const ONE_LEAF_EVICTED: Suite = plain(
    "engine",
    "isolation::transactions_beside_evictions_and_checkpoints_are_strictly_serializable",
);
const ONE_LEAF_MODEL: Suite = shuttle("isolation::scans_of_one_leaf_are_strictly_serializable");
pub(super) const LARGE_VALUES: Suite = plain(
    "engine",
    "crash_large_values::a_crash_at_any_call_leaves_whole_values_and_leaks_nothing",
);

pub(super) const fn line(
    id: &'static str,
    what: &'static str,
    name: &'static str,
    suites: &'static [Suite],
) -> Bug {
    Bug { id, what, seeded: Seeded::As(name, suites) }
}

/// All lines, by what they belong to.
pub const LINES: &[Bug] = &[
    // Latches.
    line("P01", "the fence before a read is validated", "no_validate_fence", &[NOT_TORN]),
    line("P02", "the fence behind an exclusive latch", "no_writer_fence", &[NOT_TORN]),
    line("P03", "the second look before a thread parks", "no_parked_recheck", &[NO_WAKE_UP_LOST]),
    line(
        "P04",
        "the look for a crowd behind a release",
        "release_without_second_look",
        &[NO_WAKE_UP_LOST],
    ),
    line("P05", "the barrier of the many", "no_light_barrier", &[NO_WAKE_UP_LOST, EPOCHS]),
    line("P06", "the barrier of the one", "no_heavy_barrier", &[NO_WAKE_UP_LOST]),
    line(
        "P07",
        "the version that an upgrade stands on",
        "upgrade_without_version",
        &[latch("an_upgrade_stands_on_what_was_read")],
    ),
    line(
        "P08",
        "the page's id behind its version",
        "no_page_id_recheck",
        &[latch("an_evicted_page_is_not_taken_for_another")],
    ),
    line(
        "P09",
        "a wake-up that goes on from whoever gives up",
        "swallowed_wakeup",
        &[latch("a_waiter_that_gives_up_passes_the_wake_up_on")],
    ),
    // The log.
    line("P10", "the release of what was copied", "filled_without_release", &[BLOCK_IS_WHOLE]),
    line("P11", "a flush waits for copies", "flush_without_waiting", &[BLOCK_IS_WHOLE]),
    line(
        "P12",
        "the exchange of what is promised",
        "promise_without_exchange",
        &[loom(
            "log::of_two_who_want_the_last_room_one_gets_it_and_there_is_more_only_after_a_flush",
        )],
    ),
    line(
        "P13",
        "the acquire of a limit",
        "limit_without_acquire",
        &[loom("log::a_place_is_filled_again_only_after_it_was_written")],
    ),
    line("P14", "durable only behind the sync", "durable_before_sync", &[COMMIT]),
    line("P15", "one who is not served goes on", "nobody_goes_on", &[COMMIT]),
    line("P16", "the lock from a look to the queue", "queue_after_look", &[COMMIT]),
    line("P17", "a failure before the flush has ended", "failed_after_flushing", &[FAILURE]),
    line("P18", "a failure wakes who waits", "failure_without_waking", &[FAILURE]),
    line(
        "P19",
        "what a batch has reserved counts",
        "reserved_not_counted",
        &[loom("reserve::what_a_batch_has_reserved_nobody_else_is_promised")],
    ),
    line("P20", "a close waits for a flush", "stop_without_waiting", &[CLOSE]),
    line("P21", "no commit behind a close", "commit_after_stop", &[CLOSE]),
    line(
        "P22",
        "a close wakes who waits",
        "stop_without_waking",
        &[loom("close::a_close_wakes_all_who_wait")],
    ),
    line(
        "P23",
        "a close is told to the log's thread",
        "stop_without_notice",
        &[loom("close::the_thread_of_a_log_ends_with_it")],
    ),
    // Epochs, copies, slots.
    line("P24", "the release on leaving an epoch", "leave_without_release", &[EPOCHS]),
    line("P25", "the lock around opening an epoch", "open_without_gate", &[EPOCHS]),
    line(
        "P26",
        "the release on entering an epoch",
        "enter_without_release",
        &[loom("epochs::a_checkpoint_that_sees_a_later_stay_has_seen_the_one_before")],
    ),
    line(
        "P27",
        "a copy of a page that is owed",
        "hand_over_without_copy",
        &[COPIES, shuttle("checkpoints::a_checkpoint_beside_writers_is_a_cut")],
    ),
    line(
        "P28",
        "the version when a page becomes clean",
        "clean_without_version",
        &[COPIES, shuttle("three_threads_with_evictions")],
    ),
    line("P29", "the stamp of a page handed over", "hand_over_without_stamp", &[COPIES]),
    line(
        "P30",
        "a queue's full slab is found",
        "full_slab_unqueued",
        &[loom("copies::a_checkpoint_gets_a_change_of_two_pages_whole_or_not_at_all")],
    ),
    line("P31", "the look whether a slot is free by now", "release_without_look", &[SLOTS]),
    // The pool.
    line(
        "P32",
        "the page's id when a frame is opened",
        "open_without_page_id",
        &[shuttle("pool::a_frame_that_changes_its_page_deceives_no_reader")],
    ),
    line(
        "P33",
        "the second look before an eviction",
        "evict_without_second_look",
        &[shuttle("pool::a_frame_that_is_changed_keeps_its_page")],
    ),
    line(
        "P34",
        "the exchange of a page's word",
        "fault_without_exchange",
        &[shuttle("pool::a_page_that_several_ask_for_is_in_one_frame")],
    ),
    line(
        "P35",
        "the version of a frame that becomes page table",
        "retire_without_version",
        &[shuttle("pool::a_frame_that_becomes_page_table_deceives_no_reader")],
    ),
    // Batches, checkpoints and large values.
    line("P36", "a cut keeps the log of batches", "cut_forgets_batches", &[BATCH, CUT_BATCHES]),
    line(
        "P37",
        "a replay leaves out what is in the checkpoint",
        "replay_before_the_cut",
        &[CUT_BATCHES],
    ),
    line("P38", "a replay ends what was begun", "batches_left_unfinished", &[BATCH]),
    line("P39", "the record of a key that was not there", "absence_unlogged", &[BATCH]),
    line("P40", "the sync before a superblock", "publish_without_sync", &[POWER_LOSS]),
    line("P41", "the sync of a large value", "extent_without_sync", &[LARGE_VALUES]),
    line("P42", "space of a large value is kept", "extent_reused_early", &[LARGE_VALUES]),
    line("P43", "the log's large values are held", "extent_not_held_in_replay", &[LARGE_VALUES]),
    line("P44", "and those of a batch", "extent_of_batch_not_held", &[LARGE_VALUES]),
    line(
        "P45",
        "the superblock is durable before an opening goes on",
        "superblock_not_settled",
        &[plain(
            "engine",
            "durability::a_superblock_that_two_killed_processes_left_is_durable_in_the_third",
        )],
    ),
    line(
        "P46",
        "the log's end is written again before it is relied on",
        "tail_not_written_again",
        &[plain(
            "engine",
            "durability::a_power_cut_in_a_recovery_that_takes_checkpoints_leaves_the_first_changes",
        )],
    ),
    line(
        "P47",
        "a segment of the log is found by its blocks",
        "segment_not_looked_for",
        &[plain(
            "lib",
            "wal::tests::a_segment_whose_name_was_never_written_is_found_by_its_blocks",
        )],
    ),
    line(
        "P48",
        "the log's end is read once more, and has to be where it was",
        "end_is_read_once",
        &[plain(
            "engine",
            "lies_logged::a_wrong_read_at_any_moment_of_a_recovery_is_never_a_wrong_answer",
        )],
    ),
    line(
        "P49",
        "a load that is dropped is remembered until its pages are free",
        "leftover_not_remembered",
        &[plain(
            "engine",
            "crash_bulk_load::a_load_whose_keyspace_is_dropped_leaves_nothing_whenever_the_power_goes",
        )],
    ),
    line(
        "P50",
        "damage of what is dropped is no reason to refuse the store",
        "dropped_damage_hinders",
        &[plain(
            "engine",
            "damage::a_damaged_keyspace_that_is_dropped_keeps_nobody_from_opening_the_store",
        )],
    ),
    line(
        "P51",
        "a load that cannot be made durable poisons",
        "load_forgets_failure",
        &[
            plain(
                "engine",
                "crash_bulk_load::a_load_that_cannot_be_made_durable_lets_nobody_build_on_it",
            ),
            plain("engine", "fault_sweep::every_call_fails_under_a_store_with_a_log"),
        ],
    ),
    line(
        "P52",
        "a log that could not be begun goes again",
        "log_outlives_creation",
        &[plain("engine", "creation::a_creation_that_fails_leaves_no_log_in_the_way_of_the_next")],
    ),
    line(
        "P53",
        "the log of a failed creation stays until the store that needs it is gone",
        "log_goes_before_creation",
        &[plain(
            "engine",
            "creation::a_crash_while_a_failed_creation_is_undone_leaves_no_store_without_its_log",
        )],
    ),
    line(
        "P54",
        "of a damaged record no change is noted for its batch",
        "changes_of_a_damaged_record",
        &[plain(
            "lib",
            "store::unfinished::tests::of_a_damaged_record_no_change_is_added_to_its_batch",
        )],
    ),
    line(
        "P55",
        "a checkpoint has its memory before it begins",
        "superblock_memory_late",
        &[plain("oom", "a_checkpoint_that_gets_no_memory_can_be_taken_again")],
    ),
    line(
        "P56",
        "the room beside a large value that the log names counts for the recovery",
        "held_zone_is_never_filled",
        &[plain("engine", "full_disk_logged::the_zone_of_a_large_value_has_room_for_the_recovery")],
    ),
    line(
        "P57",
        "only a keyspace that is being dropped may have lost its root",
        "lost_root_passes",
        &[plain("lib", "store::tests::verify::a_live_keyspace_whose_root_is_not_in_use_is_found")],
    ),
    line(
        "P58",
        "a cursor takes the rest of a leaf of the version alone of which it has a part",
        "changed_leaf_is_sought_anew",
        &[plain("lib", "tree::tests::cursors::a_leaf_that_changes_behind_a_window_is_sought_anew")],
    ),
    line(
        "P59",
        "what a damaged page names does not decide how much memory a verification takes",
        "verify_as_large_as_names",
        &[plain(
            "lib",
            "store::verify::tests::a_set_is_not_as_large_as_the_numbers_that_damage_names",
        )],
    ),
    line(
        "P60",
        "nor does the next page id of a superblock",
        "verify_as_large_as_superblock",
        &[plain(
            "lib",
            "store::verify::tests::of_as_many_ids_as_the_file_has_room_for_a_bit_is_kept_and_the_others_are_known_as_well",
        )],
    ),
    line(
        "P61",
        "what a sweep finds in the tree stays",
        "sweep_frees_what_is_reached",
        &[plain(
            "engine",
            "crash_bulk_load::what_others_put_during_a_load_stays_after_a_crash_and_the_load_leaves_nothing",
        )],
    ),
    line(
        "P62",
        "one block of a superblock is durable before the other is healed",
        "both_blocks_at_once",
        &[plain(
            "engine",
            "damage::while_one_block_of_a_superblock_is_healed_the_other_is_durable",
        )],
    ),
    line(
        "P63",
        "a large value is not written any more once its store is closed",
        "extent_written_after_close",
        &[plain(
            "lib",
            "store::tests::large_values::nothing_of_a_large_value_is_written_once_the_store_was_closed",
        )],
    ),
    line(
        "P64",
        "the large values of half a batch without a log stay where they are",
        "half_a_batch_is_given_back",
        &[plain(
            "lib",
            "store::tests::large_values::the_large_values_of_half_a_batch_without_a_log_keep_their_room",
        )],
    ),
    line(
        "P65",
        "a writer of a large value that has failed takes nothing more",
        "failed_write_is_forgotten",
        &[plain(
            "engine",
            "crash_large_values::after_a_failed_write_a_value_cannot_be_finished_and_nobody_panics",
        )],
    ),
    line(
        "P66",
        "a large value that a replay puts again has not been left",
        "put_again_and_left",
        &[plain(
            "lib",
            "store::replay::tests::a_large_value_that_is_put_again_over_itself_is_counted_once",
        )],
    ),
    line(
        "P67",
        "a swap can have back what it has read with before it writes",
        "swap_keeps_its_memory",
        &[plain(
            "engine",
            "large_values::a_swap_of_large_values_needs_no_more_memory_than_reading_or_writing_one",
        )],
    ),
    line(
        "P68",
        "repair looks for no page in a large value",
        "values_taken_for_pages",
        &[plain(
            "lib",
            "store::tests::repair::what_users_have_put_into_large_values_is_not_taken_for_pages",
        )],
    ),
    line(
        "P69",
        "who removes a reference that cannot be followed goes on",
        "lost_reference_poisons",
        &[plain(
            "lib",
            "space::tests::slots::an_extent_that_cannot_be_of_this_file_is_never_noted",
        )],
    ),
    line(
        "P70",
        "a large value is not moved to more runs than a reference has",
        "runs_without_end",
        &[plain(
            "engine",
            "large_values::a_value_that_fits_into_more_gaps_than_it_can_have_runs_stays_where_it_is",
        )],
    ),
    line(
        "P71",
        "a damaged large value is no matter of the checkpoint",
        "damage_ends_the_moves",
        &[plain(
            "lib",
            "store::tests::large_move::a_damaged_value_stays_where_it_is_and_the_others_are_moved",
        )],
    ),
    line(
        "P72",
        "whoever fails beside a flush leaves the flusher its role",
        "failure_takes_the_role",
        &[plain(
            "lib",
            "wal::tests::stopping::a_log_that_fails_beside_a_flush_is_not_stopped_before_that_has_ended",
        )],
    ),
    line(
        "P73",
        "a log that cannot be trimmed takes nothing from a checkpoint",
        "trimming_needs_room",
        &[plain(
            "lib",
            "store::tests::checkpoint::a_log_that_cannot_be_trimmed_takes_nothing_from_the_checkpoint",
        )],
    ),
    line(
        "P74",
        "verify counts the images that evictions have under way",
        "images_under_way_are_lost",
        &[plain(
            "lib",
            "store::tests::verify::slots_that_an_eviction_has_under_way_are_not_taken_for_lost_ones",
        )],
    ),
    line(
        "P75",
        "verify waits for none of those that wait for it",
        "verify_queues",
        &[plain("lib", "buffer::admission::tests::two_threads_go_ahead_of_a_full_house")],
    ),
    line(
        "P76",
        "what is split gets the layout of the options",
        "split_keeps_the_layout",
        &[plain(
            "lib",
            "tree::tests::dense_edges::a_fixed_policy_is_heeded_where_dense_leaves_are_split",
        )],
    ),
    line(
        "P77",
        "who is woken in vain waits on",
        "rounds_without_patience",
        &[plain("lib", "buffer::evict::tests::rounds_that_were_cut_short_use_up_no_patience")],
    ),
    line(
        "P78",
        "who waits for a frame is seen by the thread that frees them",
        "asks_before_it_waits",
        &[plain(
            "lib",
            "buffer::evict::tests::whoever_waits_for_frames_has_asked_since_the_background_has_looked",
        )],
    ),
    line(
        "P79",
        "a part of a batch that was finished before the cut is none",
        "part_before_the_cut_is_damage",
        &[CUT_BATCHES],
    ),
    line(
        "P80",
        "zeros where a superblock was are damage",
        "zeros_are_an_empty_place",
        &[plain(
            "lib",
            "store::superblock::tests::zeros_where_a_block_was_are_damage_as_any_other",
        )],
    ),
    line(
        "P81",
        "a log that came after the store is not thrown away",
        "later_log_is_thrown_away",
        &[plain(
            "engine",
            "log_files::a_log_that_came_after_this_copy_of_the_store_is_not_thrown_away",
        )],
    ),
    line(
        "P82",
        "a change that is slowed down pays all that is owed",
        "debts_are_left",
        &[plain("lib", "wal::tests::room::a_change_that_waits_pays_all_that_is_owed")],
    ),
    line(
        "P83",
        "batches that change nothing are a reason for a checkpoint",
        "idle_batches_want_no_cut",
        &[plain(
            "lib",
            "store::tests::checkpoint::batches_that_change_nothing_are_a_reason_for_a_checkpoint",
        )],
    ),
    line(
        "P84",
        "verify keeps so many findings and counts the rest",
        "findings_without_end",
        &[plain("lib", "store::verify::tests::findings_beyond_the_most_are_counted_and_not_kept")],
    ),
    line(
        "P85",
        "a log that is shorter than any is cut",
        "cut_log_passes",
        &[plain(
            "engine",
            "durability::a_log_that_was_cut_off_is_refused_and_the_store_is_left_alone",
        )],
    ),
    line(
        "P86",
        "repair goes on where the disk cannot read",
        "unreadable_ends_the_repair",
        &[plain("engine", "repair::a_place_that_cannot_be_read_is_lost_and_the_rest_is_not")],
    ),
    line(
        "P87",
        "repair takes the images that the checkpoint refers to",
        "images_of_no_checkpoint_pass",
        &[plain("engine", "repair::of_a_damaged_page_only_its_own_records_are_lost_and_named")],
    ),
    // What isolation rests on.
    line(
        "P88",
        "a scan has the records of a leaf from one copy of it",
        "cursor_for_all_records",
        &[ONE_LEAF, ONE_LEAF_EVICTED, ONE_LEAF_MODEL],
    ),
    line(
        "P89",
        "a swap compares what it changes, under the same latch",
        "swap_compares_in_its_leaf",
        &[
            ONE_LEAF,
            ONE_LEAF_MODEL,
            plain("engine", "linear::answers_of_a_store_in_memory_have_an_order"),
        ],
    ),
    line(
        "P90",
        "a chunk to which a leaf refers that was found is no page",
        "found_leaves_claim_nothing",
        &[plain(
            "lib",
            "store::tests::repair::nor_if_the_leaf_that_refers_to_the_value_was_lost_as_well",
        )],
    ),
    line(
        "P91",
        "a put that does not say that its value is in a stored form has none",
        "plain_put_of_a_stored_form",
        &[plain("lib", "store::replay::tests::a_plain_put_of_a_stored_form_is_damage")],
    ),
    line(
        "P92",
        "after a sync of the store's file that failed nobody's succeeds",
        "sync_beside_a_failing_one",
        &[plain(
            "lib",
            "store::tests::large_values::a_sync_of_the_file_that_failed_for_one_has_failed_for_all",
        )],
    ),
    line(
        "P93",
        "who waits for room in the log hears that no checkpoint will make any",
        "waits_for_nobody",
        &[plain(
            "lib",
            "wal::tests::room::who_waits_for_room_that_no_checkpoint_will_make_is_told",
        )],
    ),
    line(
        "P94",
        "direct I/O has to fit pages, and not only the units that they lie in",
        "blocks_of_pages",
        &[plain(
            "lib",
            "store::tests::opening::pages_smaller_than_the_blocks_of_direct_io_are_refused_and_made_without_it",
        )],
    ),
    line(
        "P95",
        "there is a last checkpoint, behind whose number none is written",
        "checkpoints_without_end",
        &[plain(
            "lib",
            "store::tests::checkpoint::a_store_that_has_no_number_left_for_a_checkpoint_says_so_and_is_read_as_before",
        )],
    ),
    line(
        "P96",
        "no large value is moved while a load is not durable, which the log has nothing of",
        "moves_beside_loads",
        &[plain(
            "lib",
            "store::tests::large_move::a_value_that_was_found_before_a_load_is_not_moved_beside_it",
        )],
    ),
    line(
        "P97",
        "an opening gives no space back that its recovery may need",
        "opening_gives_back",
        &[plain(
            "lib",
            "store::tests::checkpoint::an_opening_after_a_crash_leaves_the_file_as_long_as_it_was",
        )],
    ),
    line(
        "P98",
        "a frame whose page is changed all the time is emptied for the page table all the same",
        "vacates_only_between_changes",
        &[plain(
            "lib",
            "buffer::tests::hot::a_page_that_is_changed_all_the_time_makes_room_for_the_page_table",
        )],
    ),
    line(
        "P99",
        "an inner node that a split leaves with one child goes to a neighbour that has room",
        "lonely_nodes_stay",
        &[plain("lib", "tree::tests::height::of_two_neighbours_one_has_more_than_a_single_child")],
    ),
    line(
        "P100",
        "a close waits for a writer who makes the file longer",
        "grows_after_close",
        &[plain("lib", "buffer::tests::hot::a_close_waits_for_a_writer_who_makes_the_file_longer")],
    ),
    line(
        "P101",
        "a close that takes no checkpoint writes the log to its end",
        "failed_close_keeps_records_back",
        &[plain(
            "lib",
            "store::tests::checkpoint::a_close_that_takes_no_checkpoint_writes_the_log_all_the_same",
        )],
    ),
    line(
        "P102",
        "nodes that the merge of a lonely one has made neighbours are looked at, too",
        "seams_are_left_as_they_are",
        &[plain(
            "lib",
            "tree::tests::height::of_two_that_became_neighbours_one_has_more_than_a_single_child",
        )],
    ),
    line(
        "P103",
        "a file grows by all that is missing at once",
        "grows_zone_by_zone",
        &[plain("lib", "space::tests::slots::room_for_many_pages_is_made_in_one_step")],
    ),
    line(
        "P104",
        "the map's parts are no more than the images that they name",
        "room_for_all_page_ids",
        &[plain(
            "lib",
            "store::tests::checkpoint::a_store_that_claims_most_page_ids_takes_no_room_for_them",
        )],
    ),
    line(
        "P105",
        "slots that were made while a store was open are looked at by a checkpoint",
        "checkpoint_without_later_slots",
        &[loom("epochs::a_checkpoint_waits_for_a_thread_whose_slot_is_made_meanwhile")],
    ),
    line(
        "P106",
        "the queue for room in the log",
        "room_without_queue",
        &[plain("lib", "wal::tests::room::who_waits_for_room_is_not_overtaken_by_who_comes_later")],
    ),
];
