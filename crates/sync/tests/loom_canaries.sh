#!/bin/sh
# Proves that the models of loom.rs can fail, and that nothing else is wrong with them: see canary_lib.sh.
set -eu
cd "$(dirname "$0")/../../.."
. crates/sync/tests/canary_lib.sh
RUSTFLAGS="--cfg loom"
export RUSTFLAGS
canary_build loom

run() {
    cargo test --locked --quiet -p hedgerow-sync --release --test loom "$@"
}

canary_none "the protocol itself"
canary no_validate_fence a_validated_read_is_not_torn
canary no_writer_fence a_validated_read_is_not_torn
canary no_parked_recheck no_wake_up_is_lost
canary release_without_second_look no_wake_up_is_lost
canary no_light_barrier no_wake_up_is_lost
canary no_heavy_barrier no_wake_up_is_lost
canary upgrade_without_version an_upgrade_stands_on_what_was_read
canary no_page_id_recheck an_evicted_page_is_not_taken_for_another
canary swallowed_wakeup a_waiter_that_gives_up_passes_the_wake_up_on
exit $failed
