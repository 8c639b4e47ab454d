#!/bin/sh
# Proves that the shuttle tests of the engine, and the enumerated crashes, can fail, and that nothing else is wrong with
# them: see canary_lib.sh. The seed is fixed, so that a canary which is noticed once is noticed always.
set -eu
cd "$(dirname "$0")/../../.."
. crates/sync/tests/canary_lib.sh
RUSTFLAGS="--cfg shuttle"
HEDGEROW_SHUTTLE_ITERATIONS="${HEDGEROW_SHUTTLE_ITERATIONS:-200}"
export RUSTFLAGS HEDGEROW_SHUTTLE_ITERATIONS
canary_build shuttle

run() {
    cargo test --locked --quiet -p hedgerow --release --test shuttle "$@"
}

if cargo test --locked --quiet --release -p hedgerow-sync --test shuttle; then
    echo "the latch under the scheduler: passes"
else
    echo "the latch under the scheduler: FAILS" >&2
    failed=1
fi
canary_none "the engine under the scheduler"
canary open_without_page_id pool::a_frame_that_changes_its_page_deceives_no_reader
canary evict_without_second_look pool::a_frame_that_is_changed_keeps_its_page
canary fault_without_exchange pool::a_page_that_several_ask_for_is_in_one_frame
canary clean_without_version three_threads_with_evictions
canary enter_without_second_look changes_beside_a_checkpoint
canary hand_over_without_copy checkpoints::a_checkpoint_beside_writers_is_a_cut
batch=log::a_batch_is_there_whole_or_not_at_all
canary cut_forgets_batches $batch
canary replay_before_the_cut $batch
canary batches_left_unfinished $batch
canary absence_unlogged $batch
canary publish_without_sync failures::a_power_loss_leaves_a_checkpoint
canary release_pinned pins::a_verification_beside_writers_finds_nothing
canary reuse_before_durable failures::a_power_loss_leaves_a_checkpoint

# Enumerated crashes on the simulated disk need no scheduler: a build of the ordinary tests.
unset RUSTFLAGS
canary_build crash

run() {
    cargo test --locked --quiet -p hedgerow --test crash_checkpoint --test crash_large_values \
        --test large_values "$@"
}

canary_none "the engine on a disk that forgets"
canary publish_without_sync in_a_small_store_all_crashes_of_first_and_second_checkpoints
crash=a_crash_at_any_call_leaves_whole_values_and_leaks_nothing
canary extent_without_sync $crash
canary extent_reused_early $crash
canary extent_not_held_in_replay $crash
canary extent_of_batch_not_held $crash
canary extent_reused_while_read what_a_reader_has_open_stays_while_it_is_replaced_and_its_space_asked_for
exit $failed
