#!/bin/sh
# Proves that the shuttle tests of the engine, and the enumerated crashes, can fail: leaves out one line
# of a protocol at a time and expects the test that is there for it to notice. Succeeds if all are noticed, and if the engine itself
# passes. The seed is fixed, so that a canary which is noticed once is noticed always.
set -eu
cd "$(dirname "$0")/../../.."
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/shuttle"
mkdir -p "$CARGO_TARGET_DIR/canaries"
CARGO_TARGET_DIR=$(cd "$CARGO_TARGET_DIR" && pwd)
# Several builds in a row: linking matters more than speed.
CARGO_PROFILE_RELEASE_LTO=off
CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
CARGO_PROFILE_RELEASE_DEBUG=none
HEDGEROW_SHUTTLE_ITERATIONS="${HEDGEROW_SHUTTLE_ITERATIONS:-200}"
RUSTFLAGS="--cfg shuttle"
export CARGO_TARGET_DIR CARGO_PROFILE_RELEASE_LTO CARGO_PROFILE_RELEASE_CODEGEN_UNITS
export CARGO_PROFILE_RELEASE_DEBUG HEDGEROW_SHUTTLE_ITERATIONS RUSTFLAGS
log="$CARGO_TARGET_DIR/canaries/log"

run() {
    cargo test --locked --quiet -p hedgerow --release --test shuttle "$@" >"$log" 2>&1
}

failed=0

if run; then
    echo "the engine itself: passes"
else
    cat "$log" >&2
    echo "the engine itself: FAILS" >&2
    failed=1
fi

# A wrapper around the compiler, for the crates of this workspace alone: a flag for all crates would
# build shuttle anew for each canary.
canary() {
    name=$1
    test=$2
    RUSTC_WORKSPACE_WRAPPER="$CARGO_TARGET_DIR/canaries/$name"
    export RUSTC_WORKSPACE_WRAPPER
    printf '#!/bin/sh\nexec "$@" --cfg '\''hedgerow_canary="%s"'\''\n' "$name" \
        >"$RUSTC_WORKSPACE_WRAPPER"
    chmod +x "$RUSTC_WORKSPACE_WRAPPER"
    if ! run --no-run; then
        cat "$log" >&2
        echo "canary $name: does not compile" >&2
        exit 1
    fi
    if run -- --exact "$test"; then
        echo "canary $name: NOT noticed by $test" >&2
        failed=1
    else
        echo "canary $name: noticed by $test"
    fi
}

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

# Enumerated crashes on the simulated disk need no scheduler: a build of the ordinary test.
crash_canary() {
    name=$1
    test=$2
    filter=$3
    if RUSTFLAGS="--cfg hedgerow_canary=\"$name\"" CARGO_TARGET_DIR="$CARGO_TARGET_DIR/crash" \
        cargo test --locked --quiet -p hedgerow --test "$test" "$filter" >"$log" 2>&1; then
        echo "canary $name: NOT noticed by $test" >&2
        failed=1
    elif grep -q 'panicked at' "$log"; then
        echo "canary $name: noticed by $test"
    else
        cat "$log" >&2
        echo "canary $name: does not compile" >&2
        exit 1
    fi
}

unset RUSTC_WORKSPACE_WRAPPER
crash_canary publish_without_sync crash_checkpoint in_a_small
crash_canary extent_without_sync crash_large_values a_crash_at_any_call
crash_canary extent_reused_early crash_large_values a_crash_at_any_call
crash_canary extent_not_held_in_replay crash_large_values a_crash_at_any_call
crash_canary extent_reused_while_read large_values what_a_reader_has_open
exit $failed
