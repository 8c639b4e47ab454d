//! Lines of the engine that could be left out, or be wrong, and no test of `cargo test` noticed: each has one by now.
//!
//! Plain data, as in `protocols.rs`. What is numbered here is told from the protocols by its letter alone.

use super::bugs::{Bug, plain};
use super::protocols::line;

const MISS: &str =
    "tree::tests::overtaken::of_many_keys_none_is_missed_that_moves_while_it_is_looked_up";

/// The lines, in the order of their numbers.
pub const LINES: &[Bug] = &[
    line(
        "H01",
        "a write without a sync puts off no sync",
        "writes_put_off_the_sync",
        &[plain(
            "lib",
            "wal::tests::promises::writes_without_a_sync_do_not_put_off_the_sync_that_is_due",
        )],
    ),
    line(
        "H02",
        "what a batch takes back is reserved again",
        "taken_back_is_not_reserved",
        &[plain("lib", "wal::tests::promises::what_a_batch_takes_back_is_reserved_as_before")],
    ),
    line(
        "H03",
        "a bound that is as long as the longest key is that key",
        "longest_bound_moves",
        &[plain(
            "lib",
            "tree::tests::longest_bounds::a_bound_as_long_as_the_longest_key_is_that_key_and_a_longer_one_comes_behind_it",
        )],
    ),
    line("H04", "of many keys a miss is validated", "miss_is_believed", &[plain("lib", MISS)]),
    line(
        "H05",
        "of many keys a miss behind a fingerprint is validated",
        "miss_of_a_fingerprint_is_believed",
        &[plain("lib", MISS)],
    ),
    line(
        "H06",
        "segments are prepared for a commit that is longer than what is ready",
        "long_commit_not_prepared_for",
        &[plain(
            "lib",
            "wal::tests::room::a_commit_that_is_longer_than_what_is_prepared_gets_its_room_at_once",
        )],
    ),
];
