//! The rows of the table of what is proven: which suites belong to each, and how much of what they count is asked for.
//!
//! Plain data, and what follows from it alone. A suite is one test, or a chore of the tool, run in a process of its own: so tests
//! of one thread share the processors, and what fails is known by its name. Invariant: all tests named are in the sources.

use super::counts::Goal;

/// How much is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// As often as each change is tested.
    Ci,
    /// As before a release.
    Long,
}

impl Scale {
    /// Its name in arguments and records.
    pub fn name(self) -> &'static str {
        match self {
            Scale::Ci => "ci",
            Scale::Long => "long",
        }
    }

    /// The scale of this name.
    pub fn of(name: &str) -> Option<Scale> {
        [Scale::Ci, Scale::Long].into_iter().find(|scale| scale.name() == name)
    }

    /// Of a pair, what is meant for this scale.
    pub fn pick<T: Copy>(self, [ci, long]: [T; 2]) -> T {
        match self {
            Scale::Ci => ci,
            Scale::Long => long,
        }
    }
}

/// A part of all that is to be done: the `index`-th from 0, of `of` parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Which.
    pub index: usize,
    /// Of how many.
    pub of: usize,
}

impl Share {
    /// Everything.
    pub const ALL: Share = Share { index: 0, of: 1 };

    /// What `K/N` stands for, with K from 1 to N.
    pub fn parse(text: &str) -> Option<Share> {
        let (which, of) = text.split_once('/')?;
        let (which, of): (usize, usize) = (which.parse().ok()?, of.parse().ok()?);
        (1..=of).contains(&which).then(|| Share { index: which - 1, of })
    }

    /// As it is written.
    pub fn show(self) -> String {
        format!("{}/{}", self.index + 1, self.of)
    }

    /// Of `parts` for each share, the numbers of this one's, from 0, and how many there are of all shares.
    pub fn parts(self, parts: usize) -> (impl Iterator<Item = usize>, usize) {
        let all = parts * self.of;
        ((self.index..all).step_by(self.of), all)
    }
}

/// How a test program is built.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Build {
    /// As a user builds the engine.
    Plain,
    /// With `--cfg shuttle`.
    Shuttle,
}

/// How much of a test is run at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// `HEDGEROW_EFFORT`; zero: not at this scale, since it is enough that `cargo test` runs it.
    pub effort: u64,
    /// If not zero, all cases of the test are shared by so many processes (`HEDGEROW_PART`), each of which is run once.
    pub parts: usize,
    /// `HEDGEROW_SHUTTLE_ITERATIONS`, if it is a test under shuttle.
    pub schedules: u64,
}

/// What is run in a process of its own.
#[derive(Clone, Copy, Debug)]
pub enum Suite {
    /// A test of the engine.
    Test {
        /// How its program is built.
        build: Build,
        /// The program: a file, or a folder, in `crates/hedgerow/tests`.
        target: &'static str,
        /// Its full name.
        test: &'static str,
        /// How much of it, by scale.
        size: [Size; 2],
        /// Whether another seed makes it do something else.
        is_repeated: bool,
    },
    /// `cargo xtask torture simulate --cuts N`, by scale.
    Simulate([u64; 2]),
    /// `hedgerow torture kill --cycles N`, by scale.
    Kill([u64; 2]),
    /// `cargo xtask power-cuts --cycles N --file-system NAMES`, by scale.
    PowerCuts([u64; 2], [&'static str; 2]),
    /// A fuzz target, and how many thousandths of what is asked for it has to run.
    Fuzz(&'static str, u64),
}

impl Suite {
    /// Whether it is run at this scale.
    pub fn is_of(&self, scale: Scale) -> bool {
        !matches!(self, Suite::Test { size, .. } if scale.pick(*size).effort == 0)
    }

    /// One line about it.
    pub fn show(&self) -> String {
        match self {
            Suite::Test { target, test, .. } => format!("{target} {test}"),
            Suite::Simulate(_) => "torture simulate".into(),
            Suite::Kill(_) => "hedgerow torture kill".into(),
            Suite::PowerCuts(..) => "power-cuts".into(),
            Suite::Fuzz(target, _) => format!("fuzz target {target}"),
        }
    }
}

/// A part of what is asked for, by scale.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    name: &'static str,
    of: &'static [&'static str],
    number: [u64; 2],
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name as an argument.
    pub name: &'static str,
    /// What it proves.
    pub what: &'static str,
    /// What its suites have to count.
    asked: &'static [Asked],
    /// Its suites; none if it is a task of its own.
    pub suites: &'static [Suite],
    /// Whether a suite has threads enough for the whole machine.
    pub is_alone: bool,
}

impl Row {
    /// What is asked of a share of it.
    pub fn goals(&self, scale: Scale, share: Share) -> Vec<Goal> {
        let goal = |asked: &Asked| {
            let Asked { name, of, number } = *asked;
            let asked = match name {
                "words" => words_of(scale, share),
                "seeded bugs" => scale.pick(number),
                _ => scale.pick(number).div_ceil(share.of as u64),
            };
            Goal { name, of, asked }
        };
        // Two zeros stand for what is worked out; one for what is not asked for at that scale.
        let is_of = |asked: &&Asked| asked.number == [0, 0] || scale.pick(asked.number) > 0;
        self.asked.iter().filter(is_of).map(goal).collect()
    }

    /// The same in words, of all shares together.
    pub fn asked_in_words(&self, scale: Scale) -> String {
        let goals = self.goals(scale, Share::ALL);
        let words = goals.iter().map(|goal| match (goal.name, scale) {
            ("seeded bugs", Scale::Ci) => "a sixteenth of them, by the seed".to_owned(),
            ("seeded bugs", Scale::Long) => "all of them".to_owned(),
            _ => format!("{} {}", grouped(goal.asked), goal.name),
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

/// A number with commas.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Steps of the small world's alphabet, in all places, and those for the last one.
const STEPS: u64 = 12;
const LAST_STEPS: u64 = STEPS + 1;
/// Its two starts.
const STARTS: u64 = 2;
/// In so many parts, by scale, so that a long run that ends early has done whole ones.
const WORD_PARTS: [usize; 2] = [1, 16];

/// How many words of the small world there are up to this length, as the suite enumerates them.
fn words_up_to(longest: u32) -> u64 {
    1 + (0..longest).map(|steps| STEPS.pow(steps) * LAST_STEPS).sum::<u64>()
}

/// How many of them a share has to try.
fn words_of(scale: Scale, share: Share) -> u64 {
    let all = words_up_to(scale.pick([2, 3]));
    let (mine, parts) = share.parts(scale.pick(WORD_PARTS));
    // As the suite deals them out, one to each part in turn.
    STARTS * mine.map(|part| all.saturating_sub(part as u64).div_ceil(parts as u64)).sum::<u64>()
}

const fn size(effort: u64, parts: usize) -> Size {
    Size { effort, parts, schedules: 0 }
}

/// A test whose seed decides on everything, so often at a time.
const fn test(target: &'static str, test: &'static str, efforts: [u64; 2]) -> Suite {
    let size = [size(efforts[0], 0), size(efforts[1], 0)];
    Suite::Test { build: Build::Plain, target, test, size, is_repeated: true }
}

/// A test that does the same again, but for what is left of it by chance.
const fn once(target: &'static str, test: &'static str) -> Suite {
    let size = [size(1, 0), size(1, 0)];
    Suite::Test { build: Build::Plain, target, test, size, is_repeated: false }
}

/// A test of the engine that `cargo test` runs in the same size; what is asked for decides how often it is run here.
const fn lie(name: &'static str) -> Suite {
    test("engine", name, [1, 1])
}

/// A sample in CI, drawn again and again; all of it in a long run, in so many parts.
const fn whole(target: &'static str, test: &'static str, parts: usize) -> Suite {
    let size = [size(1, 0), size(2, parts)];
    Suite::Test { build: Build::Plain, target, test, size, is_repeated: true }
}

const fn world(test: &'static str) -> Suite {
    let size = [size(1, WORD_PARTS[0]), size(2, WORD_PARTS[1])];
    Suite::Test { build: Build::Plain, target: "engine", test, size, is_repeated: false }
}

/// A model of the whole engine: of which so many schedules in CI as one of them is short.
const fn shuttle(test: &'static str, schedules: u64) -> Suite {
    let size =
        [Size { effort: 1, parts: 0, schedules }, Size { effort: 1, parts: 0, schedules: 2_500 }];
    Suite::Test { build: Build::Shuttle, target: "shuttle", test, size, is_repeated: true }
}

/// A model of a part of the engine, which does not count as a schedule of all of it.
const fn small(test: &'static str) -> Suite {
    let size = [
        Size { effort: 1, parts: 0, schedules: 300 },
        Size { effort: 1, parts: 0, schedules: 10_000 },
    ];
    Suite::Test { build: Build::Shuttle, target: "shuttle", test, size, is_repeated: false }
}

const fn asked(name: &'static str, of: &'static [&'static str], number: [u64; 2]) -> Asked {
    Asked { name, of, number }
}

/// All rows, in the order of the table.
pub const ROWS: &[Row] = &[
    CRASH_STATES,
    ENUMERATION,
    FAULTS,
    LIES,
    SCHEDULES,
    HOSTILE,
    SEEDED,
    HISTORIES,
    KILLS,
    POWER_CUTS,
];

const CRASH_STATES: Row = Row {
    name: "crash-states",
    what: "simulated crash states, each recovered and compared whole; a fifth of what is asked for in recoveries",
    asked: &[
        asked("crash states", &["crash states", "nested crash states"], [200_000, 5_000_000]),
        asked("nested crash states", &["nested crash states"], [40_000, 1_000_000]),
    ],
    suites: &[
        Suite::Simulate([20_000, 200_000]),
        test(
            "engine",
            "durability::after_a_crash_at_any_call_the_first_changes_are_there_and_all_durable_ones",
            [0, 8],
        ),
        test(
            "engine",
            "crash_checkpoint::in_a_small_store_all_crashes_of_first_and_second_checkpoints",
            [0, 4],
        ),
        test(
            "engine",
            "crash_checkpoint::in_a_small_store_all_crashes_where_keyspaces_come_and_go",
            [0, 4],
        ),
        test(
            "engine",
            "crash_checkpoint::in_a_small_store_all_crashes_while_the_file_shrinks",
            [0, 4],
        ),
        test(
            "engine",
            "crash_checkpoint::a_crash_at_any_write_leaves_the_old_checkpoint_or_the_new_one",
            [0, 4],
        ),
        test(
            "engine",
            "crash_checkpoint::a_crash_in_any_of_many_scripts_leaves_a_checkpoint",
            [0, 8],
        ),
        test(
            "engine",
            "durability::a_kill_and_then_a_power_cut_at_any_call_of_the_opening",
            [0, 8],
        ),
        test(
            "engine",
            "durability::a_power_cut_in_a_recovery_that_takes_checkpoints_leaves_the_first_changes",
            [0, 8],
        ),
        test(
            "engine",
            "crash_large_values::a_crash_at_any_call_leaves_whole_values_and_leaks_nothing",
            [0, 8],
        ),
        test(
            "engine",
            "crash_large_values::without_a_log_a_crash_leaves_the_last_checkpoint",
            [0, 1],
        ),
        test(
            "engine",
            "crash_bulk_load::a_load_whose_keyspace_is_dropped_leaves_nothing_whenever_the_power_goes",
            [0, 8],
        ),
        test(
            "engine",
            "crash_bulk_load::a_crash_at_any_call_of_a_load_leaves_all_of_it_or_none",
            [0, 8],
        ),
        Suite::Test {
            build: Build::Plain,
            target: "engine",
            test: "creation::a_crash_at_any_moment_leaves_a_store_or_what_was_there",
            size: [size(0, 0), size(1, 0)],
            is_repeated: false,
        },
    ],
    is_alone: false,
};

const ENUMERATION: Row = Row {
    name: "enumeration",
    what: "a small world: all words of so many steps, all subsets of what a power cut can keep at each call",
    asked: &[asked("words", &["words"], [0, 0])],
    suites: &[
        world("small_world::all_short_words_on_a_tree_of_two_levels"),
        world("small_world::all_short_words_on_an_empty_store"),
    ],
    is_alone: false,
};

/// What `oom` counts.
const ENDED: &str = "allocations whose refusal ended the process";
const TYPED: &str = "allocations whose refusal was a typed error";

const FAULTS: Row = Row {
    name: "faults",
    what: "calls to the disk that fail, and allocations that are refused; each store is compared and crashed afterwards",
    asked: &[
        asked("faulty runs", &["faulty runs"], [50_000, 1_000_000]),
        asked("refused allocations", &[ENDED, TYPED], [50, 500]),
        // Most refusals end the process, in collections of Rust's own: of the others there have to be some.
        asked("typed errors for want of memory", &[TYPED], [5, 100]),
    ],
    suites: &[
        whole("engine", "fault_sweep::every_call_fails_under_a_store_with_a_log", 8),
        whole("engine", "fault_sweep::every_call_fails_under_a_store_without_a_log", 8),
        whole("oom", "a_refused_allocation_is_an_error_or_a_kill", 16),
        once("engine", "faults::a_failed_write_poisons_or_is_made_good"),
        once("engine", "faults::a_write_without_room_is_made_good"),
        once("engine", "faults_logged::a_failed_write_loses_nothing_that_was_acknowledged"),
        once("engine", "faults_logged::a_write_without_room_loses_nothing_that_was_acknowledged"),
        once("engine", "faults_logged::a_failed_sync_loses_nothing_that_was_acknowledged"),
        once(
            "engine",
            "faults_logged::a_recovery_in_which_any_call_fails_is_done_again_from_the_start",
        ),
        once(
            "engine",
            "faults_logged::a_close_in_which_any_call_fails_loses_nothing_that_was_acknowledged",
        ),
        once(
            "engine",
            "batches::a_failing_log_makes_nothing_half_and_opening_finishes_what_was_begun",
        ),
        once("engine", "batches::a_read_that_fails_in_the_middle_of_a_batch_leaves_no_half_of_it"),
        once(
            "engine",
            "backup::a_backup_that_fails_or_is_cut_short_leaves_nothing_that_is_a_store",
        ),
        once(
            "engine",
            "backup::a_restoration_that_fails_or_is_cut_short_leaves_nothing_that_is_a_store",
        ),
        once("engine", "creation::whatever_call_fails_the_next_creation_works"),
    ],
    is_alone: false,
};

const LIES: Row = Row {
    name: "lies",
    what: "wrong, stale, misdirected and torn reads and writes, syncs that lie, images damaged at rest, and disks that are full when the power goes",
    asked: &[
        asked("wrong reads", &["wrong reads"], [1_200, 24_000]),
        asked("wrong writes", &["wrong writes"], [250, 5_000]),
        asked("power cuts after ignored syncs", &["power cuts after ignored syncs"], [100, 2_000]),
        asked("damaged images", &["damaged images"], [450, 9_000]),
        asked("damaged superblocks", &["damaged superblocks"], [80, 1_600]),
        asked("healings cut short", &["healings cut short"], [1_200, 24_000]),
        asked("recoveries on a full disk", &["recoveries on a full disk"], [60, 1_200]),
    ],
    suites: &[
        lie("lies::what_is_read_wrongly_for_good_is_named_and_the_rest_is_read"),
        lie("lies::what_is_read_wrongly_once_is_named_at_most_once"),
        lie("lies::one_block_of_a_superblock_that_is_read_wrongly_changes_nothing"),
        lie("lies::a_newest_superblock_that_was_never_written_leaves_the_checkpoint_before"),
        lie("lies_logged::a_lost_write_is_never_a_wrong_answer"),
        lie("lies_logged::a_write_to_the_place_of_another_is_never_a_wrong_answer"),
        lie("lies_logged::a_lost_checkpoint_is_noticed_by_the_log"),
        lie("lies_logged::a_wrong_read_at_any_moment_of_a_recovery_is_never_a_wrong_answer"),
        lie(
            "lying_syncs::after_syncs_that_were_ignored_a_power_cut_leaves_what_once_was_or_damage",
        ),
        lie("lying_syncs::ignored_syncs_lose_nothing_when_only_the_process_dies"),
        lie("damage::a_write_that_was_lost_is_noticed"),
        lie("damage::an_older_image_of_the_same_page_or_part_is_noticed"),
        lie("damage::two_writes_that_went_to_each_others_places_are_noticed"),
        lie("damage::an_image_that_is_zeros_wholly_or_in_part_is_noticed"),
        lie("damage::a_wrong_copy_of_the_newest_superblock_is_healed_by_opening_for_writing"),
        lie("damage::a_wrong_copy_of_the_older_superblock_is_in_nobodys_way"),
        lie("damage::two_wrong_copies_of_the_newest_superblock_are_damage"),
        lie("damage::a_crash_at_any_call_of_the_healing_leaves_the_store_as_it_was"),
        lie("damage::a_call_of_the_healing_that_fails_leaves_the_store_as_it_was"),
        lie("damage::a_damaged_keyspace_that_is_dropped_keeps_nobody_from_opening_the_store"),
        lie("full_disk_logged::a_full_disk_has_room_for_the_recovery_after_a_power_cut"),
        lie("full_disk_logged::the_zone_of_a_large_value_has_room_for_the_recovery"),
    ],
    is_alone: false,
};

const SCHEDULES: Row = Row {
    name: "schedules",
    what: "random interleavings of the whole engine under shuttle, run to their end; those of small models are not counted",
    asked: &[asked("schedules", &["schedules"], [20_000, 1_000_000])],
    suites: &[
        shuttle("changes_beside_a_checkpoint", 200),
        shuttle("what_is_allowed_and_seldom_due_is_forced", 50),
        shuttle("three_threads_with_evictions", 300),
        shuttle("keyspaces_come_and_go_beside_changes", 200),
        shuttle("adapt::readers_adapt_leaves_beside_checkpoints", 600),
        shuttle("checkpoints::a_checkpoint_beside_writers_is_a_cut", 300),
        shuttle("failures::a_power_loss_leaves_a_checkpoint", 300),
        shuttle("failures::a_failed_call_fails_whom_it_concerns", 300),
        shuttle("isolation::scans_of_one_leaf_are_strictly_serializable", 1200),
        shuttle("linear::answers_beside_splits_and_merges_have_an_order", 200),
        shuttle("linear::answers_beside_evictions_have_an_order", 100),
        shuttle("log::what_was_acknowledged_survives_the_power_and_the_rest_is_a_beginning", 800),
        shuttle("log::what_was_acknowledged_survives_a_disk_that_fails_and_the_power", 200),
        shuttle("log::a_batch_is_there_whole_or_not_at_all", 300),
        shuttle("log::what_is_put_into_a_keyspace_in_the_making_survives", 2000),
        shuttle("log::a_close_beside_writers_keeps_what_it_has_let_them_change", 800),
        shuttle("pins::a_backup_beside_writers_is_a_cut", 300),
        shuttle("pins::a_verification_beside_writers_finds_nothing", 300),
        small("pool::a_frame_that_changes_its_page_deceives_no_reader"),
        small("pool::a_frame_that_becomes_page_table_deceives_no_reader"),
        small("pool::a_frame_that_is_changed_keeps_its_page"),
        small("pool::a_page_that_several_ask_for_is_in_one_frame"),
        small("pool::streams_that_want_the_same_pages_in_other_orders_end"),
    ],
    is_alone: false,
};

/// What `.ci/fuzz` counts besides.
const SANITIZED: &str = "inputs under AddressSanitizer";

const HOSTILE: Row = Row {
    name: "hostile",
    what: "fuzzed pages, stores and logs, of a long run a tenth under AddressSanitizer, and bytes of small stores changed one by one",
    asked: &[
        asked(
            "hostile pages",
            &[
                "inputs of node_bytes",
                "inputs of fingerprint_bytes",
                "inputs of dense_bytes",
                "inputs of space_parts",
                "inputs of pages",
            ],
            [1_000_000, 100_000_000],
        ),
        asked(
            "hostile files with operations",
            &["inputs of store_operations", "inputs of store_file"],
            [30_000, 3_000_000],
        ),
        asked("hostile logs", &["inputs of log_file"], [50_000, 3_000_000]),
        asked("hostile dumps", &["inputs of dump_text"], [2_000, 200_000]),
        asked("scripts of a fuzzer", &["inputs of operations"], [500, 100_000]),
        asked(SANITIZED, &[SANITIZED], [0, 10_000_000]),
        asked("swept bytes", &["swept bytes"], [8_000, 150_000]),
    ],
    suites: &[
        // Those that take longest come first.
        Suite::Fuzz("log_file", 1_000),
        Suite::Fuzz("store_operations", 300),
        Suite::Fuzz("store_file", 700),
        Suite::Fuzz("node_bytes", 789),
        Suite::Fuzz("fingerprint_bytes", 100),
        Suite::Fuzz("dense_bytes", 100),
        Suite::Fuzz("space_parts", 10),
        Suite::Fuzz("pages", 1),
        Suite::Fuzz("dump_text", 1_000),
        Suite::Fuzz("operations", 1_000),
        whole("engine", "byte_sweep::every_byte_of_a_store_with_pages_of_4_kib", 8),
        whole("engine", "byte_sweep::every_byte_of_a_store_with_the_smallest_pages", 8),
        whole("engine", "byte_sweep::every_byte_of_a_log", 8),
    ],
    is_alone: false,
};

const SEEDED: Row = Row {
    name: "seeded-bugs",
    what: "bugs and lines left out that the tests have to notice",
    // How many there are the list itself says.
    asked: &[asked("seeded bugs", &["seeded bugs"], [0, 0])],
    suites: &[],
    is_alone: true,
};

const HISTORIES: Row = Row {
    name: "histories",
    what: "histories of about a hundred operations of real threads on a key, which have an order; transactions of real threads, which keep the isolation that is promised",
    asked: &[
        asked("histories", &["histories"], [50_000, 5_000_000]),
        asked("transactions", &["transactions"], [50_000, 5_000_000]),
    ],
    suites: &[
        test("engine", "linear::answers_of_a_store_in_memory_have_an_order", [5, 100]),
        test("engine", "linear::answers_beside_evictions_and_checkpoints_have_an_order", [5, 100]),
        test(
            "engine",
            "isolation::transactions_of_a_store_in_memory_are_strictly_serializable",
            [2, 100],
        ),
        test(
            "engine",
            "isolation::transactions_beside_evictions_and_checkpoints_are_strictly_serializable",
            [2, 100],
        ),
        test("engine", "isolation::what_a_power_cut_leaves_has_every_transaction_whole", [2, 100]),
    ],
    is_alone: false,
};

const KILLS: Row = Row {
    name: "kills",
    what: "processes that write from three threads, killed by the kernel at random, and what is left",
    asked: &[asked("kills", &["kills"], [200, 20_000])],
    suites: &[Suite::Kill([200, 1_000])],
    is_alone: true,
};

const POWER_CUTS: Row = Row {
    name: "power-cuts",
    what: "power cuts and failing calls of a disk under a real file system with a writer on it",
    asked: &[
        asked("power cuts", &["power cuts under a writer"], [5, 500]),
        asked("acknowledged changes", &["acknowledged changes"], [20, 5_000]),
        asked("failing calls", &["failing calls under a file system"], [1, 50]),
        asked("lost writes", &["writes that a cut has lost"], [1, 200]),
        asked("torn writes", &["writes that a cut has torn"], [1, 20]),
    ],
    suites: &[Suite::PowerCuts([5, 100], ["ext4", "ext4,xfs,btrfs"])],
    is_alone: true,
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_test_that_is_named_is_in_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for suite in ROWS.iter().flat_map(|row| row.suites) {
            match *suite {
                Suite::Test { target, test, .. } => {
                    let folder = root.join("crates/hedgerow/tests");
                    let (module, name) = test.rsplit_once("::").unwrap_or(("main", test));
                    let files = [
                        format!("{target}/{module}.rs"),
                        format!("{target}/{module}/mod.rs"),
                        format!("{target}.rs"),
                    ];
                    let file = files.map(|file| folder.join(file));
                    let file = file.into_iter().find(|file| file.is_file());
                    let file = file.unwrap_or_else(|| panic!("no {module} in {target}"));
                    let text = std::fs::read_to_string(&file).unwrap();
                    assert!(
                        text.contains(&format!("fn {name}() {{")),
                        "{}: {name}",
                        file.display()
                    );
                }
                Suite::Fuzz(target, _) => {
                    assert!(root.join(format!("fuzz/fuzz_targets/{target}.rs")).is_file());
                }
                Suite::Simulate(_) | Suite::Kill(_) | Suite::PowerCuts(..) => {}
            }
        }
    }

    #[test]
    fn fuzz_targets_have_to_run_as_much_as_is_asked_for() {
        for asked in HOSTILE.asked {
            let thousandths = HOSTILE.suites.iter().filter_map(|suite| match suite {
                Suite::Fuzz(target, part) => {
                    let name = format!("inputs of {target}");
                    asked.of.contains(&name.as_str()).then_some(*part)
                }
                _ => None,
            });
            let sum: u64 = thousandths.sum();
            let is_of_targets = !["swept bytes", SANITIZED].contains(&asked.name);
            assert!(sum == 1_000 || !is_of_targets, "{}: {sum}", asked.name);
        }
    }

    #[test]
    fn shares_ask_for_everything_together_and_no_word_twice() {
        assert_eq!((words_up_to(2), words_up_to(3)), (170, 2_042));
        for (scale, words) in [(Scale::Ci, 340), (Scale::Long, 4_084)] {
            assert_eq!(words_of(scale, Share::ALL), words);
            for of in [2, 3, 7] {
                let shares: Vec<Share> = (0..of).map(|index| Share { index, of }).collect();
                let sum: u64 = shares.iter().map(|share| words_of(scale, *share)).sum();
                assert_eq!(sum, words, "{of} shares");
                let states = |share: &Share| CRASH_STATES.goals(scale, *share)[0].asked;
                let sum: u64 = shares.iter().map(states).sum();
                assert!(sum >= CRASH_STATES.goals(scale, Share::ALL)[0].asked);
            }
        }
    }

    #[test]
    fn shares_and_scales_are_understood_or_refused() {
        assert_eq!(Share::parse("1/1"), Some(Share::ALL));
        assert_eq!(Share::parse("2/3"), Some(Share { index: 1, of: 3 }));
        assert_eq!(Share { index: 1, of: 3 }.show(), "2/3");
        for text in ["", "2", "0/3", "4/3", "a/3", "1/0", "-1/3"] {
            assert_eq!(Share::parse(text), None, "{text}");
        }
        let (mine, all) = Share { index: 1, of: 3 }.parts(2);
        assert_eq!((mine.collect::<Vec<_>>(), all), (vec![1, 4], 6));
        assert_eq!(Scale::of("long"), Some(Scale::Long));
        assert_eq!(Scale::of("weekly"), None);
    }

    #[test]
    fn rows_ask_for_what_the_table_says() {
        assert_eq!(
            CRASH_STATES.asked_in_words(Scale::Long),
            "5,000,000 crash states, 1,000,000 nested crash states"
        );
        assert_eq!(ENUMERATION.asked_in_words(Scale::Ci), "340 words");
        assert_eq!(SEEDED.asked_in_words(Scale::Long), "all of them");
        assert!(HOSTILE.asked_in_words(Scale::Long).contains("10,000,000 inputs under"));
        assert!(!HOSTILE.asked_in_words(Scale::Ci).contains(SANITIZED));
        assert_eq!([7, 200, 20_000].map(grouped), ["7", "200", "20,000"]);
        let names: std::collections::BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
    }
}
