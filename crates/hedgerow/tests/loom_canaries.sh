#!/bin/sh
# Proves that the models of the engine can fail, and that nothing else is wrong with them: see canary_lib.sh. Takes two to
# three minutes on two cores, most of it compiling.
set -eu
cd "$(dirname "$0")/../../.."
. crates/sync/tests/canary_lib.sh
RUSTFLAGS="--cfg loom"
# Compiling takes longer than the models, and of these the checker longer than what is checked.
CARGO_PROFILE_RELEASE_OPT_LEVEL=1
export RUSTFLAGS CARGO_PROFILE_RELEASE_OPT_LEVEL
canary_build loom

run() {
    cargo test --locked --quiet -p hedgerow --release \
        --config profile.release.package.loom.opt-level=3 \
        --config profile.release.package.generator.opt-level=3 \
        --test loom "$@"
}

canary_none "the models of the engine"
canary filled_without_release log::a_block_that_is_written_is_whole
canary flush_without_waiting log::a_block_that_is_written_is_whole
canary promise_without_exchange \
    log::of_two_who_want_the_last_room_one_gets_it_and_there_is_more_only_after_a_flush
canary limit_without_acquire log::a_place_is_filled_again_only_after_it_was_written
commit=log::whoever_was_told_that_it_is_durable_has_it_on_the_disk_and_everybody_is_told
canary durable_before_sync $commit
canary nobody_goes_on $commit
canary queue_after_look $commit
failure=log::after_a_sync_that_failed_nobody_is_told_that_it_is_durable_and_nothing_is_written
canary failed_after_flushing $failure
canary failure_without_waking $failure
canary reserved_not_counted reserve::what_a_batch_has_reserved_nobody_else_is_promised

close=close::a_commit_beside_a_close_is_answered_and_nothing_is_written_afterwards
canary stop_without_waiting $close
canary commit_after_stop $close
canary stop_without_waking close::a_close_wakes_all_who_wait
canary stop_without_notice close::the_thread_of_a_log_ends_with_it

epochs=epochs::a_checkpoint_sees_changes_whole_or_not_at_all
canary enter_without_second_look $epochs
canary no_light_barrier $epochs
canary leave_without_release $epochs
canary open_without_gate $epochs
canary enter_without_release epochs::a_checkpoint_that_sees_a_later_stay_has_seen_the_one_before

copies=copies::a_checkpoint_gets_a_page_as_it_was_when_its_epoch_ended
canary hand_over_without_copy $copies
canary clean_without_version $copies
canary hand_over_without_stamp $copies
canary full_slab_unqueued copies::a_checkpoint_gets_a_change_of_two_pages_whole_or_not_at_all

slots=slots::a_slot_that_a_checkpoint_needs_is_not_written_again
canary reuse_before_durable $slots
canary release_without_look $slots
exit $failed
