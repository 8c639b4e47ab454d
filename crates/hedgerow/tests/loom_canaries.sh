#!/bin/sh
# Proves that the models of the engine can fail: leaves out one line of a protocol at a time and expects the model
# that is there for it to notice. Succeeds if all of them do, and if the engine itself passes. One build has all
# lines, and the environment says which is left out. Takes two to three minutes on two cores, most of it compiling.
set -eu
cd "$(dirname "$0")/../../.."
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
mkdir -p "$CARGO_TARGET_DIR/canaries"
CARGO_TARGET_DIR=$(cd "$CARGO_TARGET_DIR" && pwd)
# Compiling takes longer than the models, and of these the checker longer than what is checked.
CARGO_PROFILE_RELEASE_LTO=off
CARGO_PROFILE_RELEASE_OPT_LEVEL=1
CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
CARGO_PROFILE_RELEASE_DEBUG=none
RUSTFLAGS="--cfg loom"
# A wrapper around the compiler, for the crates of this workspace alone.
RUSTC_WORKSPACE_WRAPPER="$CARGO_TARGET_DIR/canaries/all"
printf '#!/bin/sh\nexec "$@" --cfg hedgerow_canaries\n' >"$RUSTC_WORKSPACE_WRAPPER"
chmod +x "$RUSTC_WORKSPACE_WRAPPER"
export CARGO_TARGET_DIR CARGO_PROFILE_RELEASE_LTO CARGO_PROFILE_RELEASE_OPT_LEVEL
export CARGO_PROFILE_RELEASE_CODEGEN_UNITS CARGO_PROFILE_RELEASE_DEBUG RUSTFLAGS RUSTC_WORKSPACE_WRAPPER
unset HEDGEROW_CANARY
log="$CARGO_TARGET_DIR/canaries/log"

run() {
    cargo test --locked --quiet -p hedgerow --release \
        --config profile.release.package.loom.opt-level=3 \
        --config profile.release.package.generator.opt-level=3 \
        --test loom "$@" >"$log" 2>&1
}

failed=0

if ! run --no-run; then
    cat "$log" >&2
    echo "the models: do not compile" >&2
    exit 1
fi
if run; then
    echo "the engine itself: passes"
else
    cat "$log" >&2
    echo "the engine itself: FAILS" >&2
    failed=1
fi

canary() {
    name=$1
    model=$2
    if HEDGEROW_CANARY=$name run -- --exact "$model"; then
        echo "canary $name: NOT noticed by $model" >&2
        failed=1
    elif grep -q "^test result: FAILED. 0 passed; 1 failed" "$log"; then
        echo "canary $name: noticed by $model"
    else
        cat "$log" >&2
        echo "canary $name: $model did not run" >&2
        failed=1
    fi
}

canary filled_without_release log::a_block_that_is_written_is_whole
canary flush_without_waiting log::a_block_that_is_written_is_whole
canary limit_without_acquire log::a_place_is_filled_again_only_after_it_was_written
commit=log::whoever_was_told_that_it_is_durable_has_it_on_the_disk_and_everybody_is_told
canary durable_before_sync $commit
canary nobody_goes_on $commit
canary queue_after_look $commit

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

slots=slots::a_slot_that_a_checkpoint_needs_is_not_written_again
canary reuse_before_durable $slots
canary release_without_look $slots
exit $failed
