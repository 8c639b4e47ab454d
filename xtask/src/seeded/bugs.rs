//! The bugs that are seeded, by the numbers of the list of bug classes, and which test has to notice each.
//!
//! A bug is a line that is left out, or does something wrong, in a copy of the workspace ([`super::edits`]). Plain data.

/// How the tests of a suite are built.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Build {
    /// As `cargo test` builds them.
    Plain,
    /// With `--cfg loom`, optimised.
    Loom,
    /// With `--cfg shuttle`, optimised.
    Shuttle,
}

impl Build {
    /// The name for a directory, and in what is printed.
    pub fn name(self) -> &'static str {
        match self {
            Build::Plain => "plain",
            Build::Loom => "loom",
            Build::Shuttle => "shuttle",
        }
    }
}

/// A test by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Suite {
    /// How it is built.
    pub build: Build,
    /// The package.
    pub package: &'static str,
    /// The test program: the name of a file in `tests`, or `lib` for those within the sources.
    pub target: &'static str,
    /// The test's full name.
    pub test: &'static str,
}

/// A bug, or the reason why there is none of this class.
#[derive(Clone, Copy, Debug)]
pub struct Bug {
    /// The number of the class.
    pub id: &'static str,
    /// What goes wrong.
    pub what: &'static str,
    /// What of it is in the sources.
    pub seeded: Seeded,
}

/// Whether a class of bugs is seeded.
#[derive(Clone, Copy, Debug)]
pub enum Seeded {
    /// It is, under this name, and these tests notice it, each by itself.
    As(&'static str, &'static [Suite]),
    /// It is not, for this reason.
    Not(&'static str),
}

/// A test of that kind.
pub const fn plain(target: &'static str, test: &'static str) -> Suite {
    Suite { build: Build::Plain, package: "hedgerow", target, test }
}

/// A test of that kind.
pub const fn shuttle(test: &'static str) -> Suite {
    Suite { build: Build::Shuttle, package: "hedgerow", target: "shuttle", test }
}

/// A test of that kind.
pub const fn loom(test: &'static str) -> Suite {
    Suite { build: Build::Loom, package: "hedgerow", target: "loom", test }
}

/// A test of that kind.
pub const fn latch(test: &'static str) -> Suite {
    Suite { build: Build::Loom, package: "hedgerow-sync", target: "loom", test }
}

const ANY_CRASH: Suite = plain(
    "engine",
    "durability::after_a_crash_at_any_call_the_first_changes_are_there_and_all_durable_ones",
);
const TRANSACTIONS_CUT: Suite = plain(
    "engine",
    "transactions::transactions_before_and_after_a_power_cut_are_kept_apart_as_their_isolation_says",
);
const SMALL_STORE: Suite = plain(
    "engine",
    "crash_checkpoint::in_a_small_store_all_crashes_of_first_and_second_checkpoints",
);
const ANY_BYTE: Suite =
    plain("engine", "bad_input::any_byte_flipped_gives_right_answers_or_a_named_error");
const LOG_RESET: Suite =
    loom("reset::a_place_that_the_last_checkpoint_needs_is_not_written_before_the_next_is_durable");
const SPLITS: Suite = shuttle("linear::answers_beside_splits_and_merges_have_an_order");
const EVICTIONS: Suite = shuttle("linear::answers_beside_evictions_have_an_order");

/// All classes, in the order of their numbers.
pub const BUGS: &[Bug] = &[
    Bug {
        id: "B01",
        what: "a page is written over its older image, and a crash tears it",
        seeded: Seeded::As("write_in_place", &[SMALL_STORE]),
    },
    Bug {
        id: "B02",
        what: "a sync that failed is tried again, and believed",
        seeded: Seeded::As(
            "sync_again",
            &[plain("lib", "wal::tests::a_failed_sync_is_not_tried_again_while_it_is_told_of")],
        ),
    },
    Bug {
        id: "B03",
        what: "recovery takes what the system's cache has for what the disk has",
        seeded: Seeded::As(
            "replay_without_sync",
            &[plain(
                "engine",
                "durability::a_power_cut_in_a_recovery_that_takes_checkpoints_leaves_the_first_changes",
            )],
        ),
    },
    Bug {
        id: "B04",
        what: "the directory is not synced after a rename",
        seeded: Seeded::As("rename_without_sync", &[ANY_CRASH]),
    },
    Bug {
        id: "B05",
        what: "the file's new length is not durable before a checkpoint needs it",
        seeded: Seeded::As("growth_without_sync", &[SMALL_STORE]),
    },
    Bug {
        id: "B06",
        what: "a block of a segment's earlier use passes for one of its present use",
        seeded: Seeded::As(
            "stale_block_passes",
            &[plain(
                "lib",
                "wal::tests::the_log_can_be_read_from_any_record_and_segments_are_used_again",
            )],
        ),
    },
    Bug {
        id: "B07",
        what: "damage of what was durable passes for the end of the log",
        seeded: Seeded::As(
            "damage_is_an_end",
            &[plain(
                "lib",
                "wal::tests::damage_of_what_was_durable_is_named_and_a_torn_end_is_not_damage",
            )],
        ),
    },
    Bug {
        id: "B08",
        what: "a crash during recovery leaves less than the one before",
        seeded: Seeded::As("replay_without_checkpoint", &[ANY_CRASH]),
    },
    Bug {
        id: "B09",
        what: "a commit is acknowledged before it is synced",
        seeded: Seeded::As("durable_at_once", &[ANY_CRASH, TRANSACTIONS_CUT]),
    },
    Bug {
        id: "B10",
        what: "log is used again that the last checkpoint on the disk still needs",
        seeded: Seeded::As("log_freed_before_checkpoint", &[LOG_RESET]),
    },
    Bug {
        id: "B11",
        what: "a slot is used again before the checkpoint is durable that frees it",
        seeded: Seeded::As(
            "reuse_before_durable",
            &[
                shuttle("failures::a_power_loss_leaves_a_checkpoint"),
                loom("slots::a_slot_that_a_checkpoint_needs_is_not_written_again"),
            ],
        ),
    },
    Bug {
        id: "B12",
        what: "a write was lost, and the older image passes",
        seeded: Seeded::As(
            "older_image_passes",
            &[plain("engine", "damage::an_older_image_of_the_same_page_or_part_is_noticed")],
        ),
    },
    Bug {
        id: "B13",
        what: "a write went astray, and another page's image passes",
        seeded: Seeded::As(
            "image_of_any_page",
            &[plain("engine", "damage::two_writes_that_went_to_each_others_places_are_noticed")],
        ),
    },
    Bug {
        id: "B14",
        what: "the checksum does not cover all bytes",
        seeded: Seeded::As(
            "last_bytes_not_covered",
            &[
                plain(
                    "lib",
                    "checksum::tests::any_flipped_bit_but_those_of_the_checksum_itself_is_noticed",
                ),
                ANY_BYTE,
            ],
        ),
    },
    Bug {
        id: "B15",
        what: "a checkpoint has changes whose log is not durable",
        seeded: Seeded::As("checkpoint_before_log", &[ANY_CRASH]),
    },
    Bug {
        id: "B16",
        what: "a split is half in a checkpoint",
        seeded: Seeded::As(
            "enter_without_second_look",
            &[
                shuttle("changes_beside_a_checkpoint"),
                loom("epochs::a_checkpoint_sees_changes_whole_or_not_at_all"),
            ],
        ),
    },
    Bug {
        id: "B17",
        what: "which page ids are in use is not in the checkpoint",
        seeded: Seeded::As("page_ids_not_in_checkpoint", &[SMALL_STORE]),
    },
    Bug {
        id: "B18",
        what: "a batch of which the log has a part is replayed",
        seeded: Seeded::As(
            "half_a_batch_is_made",
            &[ANY_CRASH, shuttle("log::a_batch_is_there_whole_or_not_at_all")],
        ),
    },
    Bug {
        id: "B19",
        what: "changes of one key are replayed in another order",
        seeded: Seeded::As("replay_backwards", &[ANY_CRASH]),
    },
    Bug {
        id: "B20",
        what: "bytes that change meanwhile make a reader panic",
        seeded: Seeded::As(
            "racing_offsets_panic",
            &[plain(
                "lib",
                "tree::tests::damage::bytes_that_pass_the_load_check_never_make_an_operation_panic",
            )],
        ),
    },
    Bug {
        id: "B21",
        what: "what was read is used before it is validated",
        seeded: Seeded::As("read_without_validation", &[SPLITS]),
    },
    Bug {
        id: "B22",
        what: "the child of a node is opened that has other children by now",
        seeded: Seeded::As("open_without_parent", &[SPLITS]),
    },
    Bug {
        id: "B23",
        what: "a frame that was emptied keeps its version",
        seeded: Seeded::As("evict_without_version", &[EVICTIONS]),
    },
    Bug {
        id: "B24",
        what: "a page that could not be read is shown",
        seeded: Seeded::As(
            "failed_read_is_shown",
            &[plain("engine", "faults::a_failed_read_is_an_error_of_that_read_alone")],
        ),
    },
    Bug {
        id: "B25",
        what: "more operations are let in than there are frames for",
        seeded: Seeded::As(
            "admit_everybody",
            &[plain(
                "lib",
                "buffer::admission::tests::no_more_are_inside_than_there_are_frames_for",
            )],
        ),
    },
    Bug {
        id: "B26",
        what: "a version comes round and is taken for the one before",
        seeded: Seeded::As("version_of_one_bit", &[latch("a_validated_read_is_not_torn")]),
    },
    Bug {
        id: "B27",
        what: "a fence of the latch is missing",
        seeded: Seeded::As("no_validate_fence", &[latch("a_validated_read_is_not_torn")]),
    },
    Bug {
        id: "B28",
        what: "a wake-up is lost",
        seeded: Seeded::As("no_parked_recheck", &[latch("no_wake_up_is_lost")]),
    },
    Bug {
        id: "B29",
        what: "whoever flushes waits for a latch whose holder waits for the flush",
        seeded: Seeded::As(
            "flush_waits_for_ever",
            &[plain(
                "lib",
                "buffer::tests::a_flush_does_not_wait_for_a_frame_that_was_cleaned_and_taken",
            )],
        ),
    },
    Bug {
        id: "B30",
        what: "what a reader still reads is given to somebody else",
        seeded: Seeded::As(
            "extent_reused_while_read",
            &[plain(
                "engine",
                "large_values::what_a_reader_has_open_stays_while_it_is_replaced_and_its_space_asked_for",
            )],
        ),
    },
    Bug {
        id: "B31",
        what: "offsets in the file are computed in 32 bits",
        seeded: Seeded::As(
            "offsets_of_32_bits",
            &[plain(
                "lib",
                "space::tests::extremes::slots_far_out_in_the_file_are_handed_out_and_come_back",
            )],
        ),
    },
    Bug {
        id: "B32",
        what: "a child of the wrong level is followed",
        seeded: Seeded::As(
            "level_not_checked",
            &[plain("lib", "tree::tests::damage::operations_report_a_child_of_the_wrong_level")],
        ),
    },
    Bug {
        id: "B33",
        what: "one layout of leaves does not find what the others find",
        seeded: Seeded::As(
            "first_fingerprint_decides",
            &[plain("lib", "node::tests::fingerprint::crowd::changes_of_a_crowd_agree_with_a_map")],
        ),
    },
    Bug {
        id: "B34",
        what: "a scan ends at an error as if there were no more",
        seeded: Seeded::As(
            "cursor_ends_at_error",
            &[plain("engine", "faults::everybody_who_waits_for_a_failed_read_gets_its_error")],
        ),
    },
    Bug {
        id: "B35",
        what: "half a batch is made, and everybody goes on",
        seeded: Seeded::As(
            "half_a_batch_goes_on",
            &[plain(
                "engine",
                "batches::a_read_that_fails_in_the_middle_of_a_batch_leaves_no_half_of_it",
            )],
        ),
    },
    Bug {
        id: "B36",
        what: "the log is removed though the last checkpoint has failed",
        seeded: Seeded::As(
            "log_removed_whatever_failed",
            &[plain(
                "engine",
                "faults_logged::a_close_in_which_any_call_fails_loses_nothing_that_was_acknowledged",
            )],
        ),
    },
    Bug {
        id: "B37",
        what: "a write of a part of the bytes counts as one of all",
        seeded: Seeded::As(
            "short_write_is_enough",
            &[plain("lib", "storage::transfer::tests::interrupted_and_short_calls_are_continued")],
        ),
    },
    Bug {
        id: "B38",
        what: "changes are let in for which the disk has no room",
        seeded: Seeded::As(
            "room_for_all",
            &[plain(
                "engine",
                "faults::a_full_disk_refuses_changes_and_serves_reads_until_there_is_room",
            )],
        ),
    },
    Bug {
        id: "B39",
        what: "a panic where there is no memory",
        seeded: Seeded::As(
            "no_memory_is_a_panic",
            &[plain("lib", "storage::aligned::tests::memory_that_cannot_be_had_is_an_error")],
        ),
    },
    Bug {
        id: "B40",
        what: "slots of images that came to nothing are not given back",
        seeded: Seeded::As(
            "images_not_discarded",
            &[plain("engine", "faults::a_write_without_room_is_made_good")],
        ),
    },
    Bug {
        id: "B41",
        what: "a phantom in a range that was read",
        seeded: Seeded::Not("there are no transactions yet"),
    },
    Bug {
        id: "B42",
        what: "a backup has pages of two checkpoints",
        seeded: Seeded::As(
            "release_pinned",
            &[shuttle("pins::a_verification_beside_writers_finds_nothing")],
        ),
    },
    Bug {
        id: "B43",
        what: "a store is opened twice",
        seeded: Seeded::As(
            "busy_is_held",
            &[plain("engine", "database::a_second_open_is_refused_and_names_the_holder")],
        ),
    },
    Bug {
        id: "B44",
        what: "memory of a frame is given back in units that are larger than frames",
        seeded: Seeded::Not("the engine gives back no memory of frames"),
    },
    Bug {
        id: "B45",
        what: "the memory of latches is swapped out",
        seeded: Seeded::Not("nothing is done against it"),
    },
];
