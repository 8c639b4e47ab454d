#!/bin/sh
# Proves that the models of loom.rs can fail: leaves out one line of the protocol at a time and
# expects the model that is there for it to notice. Succeeds if all of them do, and if the protocol
# itself passes. Takes five to ten minutes on two cores, half of it compiling.
set -eu
cd "$(dirname "$0")/../../.."
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
export CARGO_TARGET_DIR
log="$CARGO_TARGET_DIR/canary.log"
mkdir -p "$CARGO_TARGET_DIR"

run() {
    cargo test --quiet -p hedgerow-sync --release --test loom "$@" >"$log" 2>&1
}

failed=0

canary() {
    name=$1
    model=$2
    RUSTFLAGS="--cfg loom --cfg hedgerow_canary=\"$name\""
    export RUSTFLAGS
    if ! run --no-run; then
        cat "$log" >&2
        echo "canary $name: does not compile" >&2
        exit 1
    fi
    if run -- --exact "$model"; then
        echo "canary $name: NOT noticed by $model" >&2
        failed=1
    else
        echo "canary $name: noticed by $model"
    fi
}

canary no_validate_fence a_validated_read_is_not_torn
canary no_writer_fence a_validated_read_is_not_torn
canary no_parked_recheck no_wake_up_is_lost
canary release_without_second_look no_wake_up_is_lost
canary no_light_barrier no_wake_up_is_lost
canary no_heavy_barrier no_wake_up_is_lost
canary upgrade_without_version an_upgrade_stands_on_what_was_read
canary no_page_id_recheck an_evicted_page_is_not_taken_for_another
canary swallowed_wakeup a_waiter_that_gives_up_passes_the_wake_up_on

RUSTFLAGS="--cfg loom"
export RUSTFLAGS
if run; then
    echo "the protocol itself: passes"
else
    cat "$log" >&2
    echo "the protocol itself: FAILS" >&2
    failed=1
fi
exit $failed
