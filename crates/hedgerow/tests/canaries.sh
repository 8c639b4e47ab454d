#!/bin/sh
# Proves that the shuttle models of the whole engine, and the enumerated crashes, can fail: leaves out one line of a protocol at a
# time and expects them to notice. (That a frame's page is checked after its version is loom's business:
# the window is one step wide, and no number of random schedules is sure to hit it.) Succeeds if all are noticed, and if the engine itself passes.
set -eu
cd "$(dirname "$0")/../../.."
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/shuttle"
# Several builds in a row: linking matters more than speed.
CARGO_PROFILE_RELEASE_LTO=off
CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
HEDGEROW_SHUTTLE_ITERATIONS="${HEDGEROW_SHUTTLE_ITERATIONS:-500}"
export CARGO_TARGET_DIR CARGO_PROFILE_RELEASE_LTO CARGO_PROFILE_RELEASE_CODEGEN_UNITS
export HEDGEROW_SHUTTLE_ITERATIONS
log="$CARGO_TARGET_DIR/canary.log"
mkdir -p "$CARGO_TARGET_DIR"

run() {
    cargo test --quiet -p hedgerow --release --test shuttle "$@" >"$log" 2>&1
}

failed=0

canary() {
    name=$1
    RUSTFLAGS="--cfg shuttle --cfg hedgerow_canary=\"$name\""
    export RUSTFLAGS
    if ! run --no-run; then
        cat "$log" >&2
        echo "canary $name: does not compile" >&2
        exit 1
    fi
    if run; then
        echo "canary $name: NOT noticed" >&2
        failed=1
    else
        echo "canary $name: noticed"
    fi
}

canary clean_without_version

RUSTFLAGS="--cfg shuttle"
export RUSTFLAGS
if run; then
    echo "the engine itself: passes"
else
    cat "$log" >&2
    echo "the engine itself: FAILS" >&2
    failed=1
fi

# Crashes on the simulated disk need no scheduler: another build of another test.
crash_canary() {
    name=$1
    RUSTFLAGS="--cfg hedgerow_canary=\"$name\""
    export RUSTFLAGS
    if ! cargo test --quiet -p hedgerow --test crash_checkpoint --no-run >"$log" 2>&1; then
        cat "$log" >&2
        echo "canary $name: does not compile" >&2
        exit 1
    fi
    if cargo test --quiet -p hedgerow --test crash_checkpoint in_a_small >"$log" 2>&1; then
        echo "canary $name: NOT noticed" >&2
        failed=1
    else
        echo "canary $name: noticed"
    fi
}

crash_canary superblock_before_sync
exit $failed
