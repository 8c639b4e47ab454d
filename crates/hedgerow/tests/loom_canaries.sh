#!/bin/sh
# Proves that the models of the log can fail: leaves out one line of the protocol at a time and expects the
# model that is there for it to notice. Succeeds if all of them do, and if the log itself passes. Takes about
# three minutes on two cores, most of it compiling.
set -eu
cd "$(dirname "$0")/../../.."
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
mkdir -p "$CARGO_TARGET_DIR/canaries"
CARGO_TARGET_DIR=$(cd "$CARGO_TARGET_DIR" && pwd)
# Several builds in a row: compiling takes longer than the models.
CARGO_PROFILE_RELEASE_LTO=off
CARGO_PROFILE_RELEASE_OPT_LEVEL=1
CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
CARGO_PROFILE_RELEASE_DEBUG=none
RUSTFLAGS="--cfg loom"
export CARGO_TARGET_DIR CARGO_PROFILE_RELEASE_LTO CARGO_PROFILE_RELEASE_OPT_LEVEL
export CARGO_PROFILE_RELEASE_CODEGEN_UNITS CARGO_PROFILE_RELEASE_DEBUG RUSTFLAGS
log="$CARGO_TARGET_DIR/canaries/log"

run() {
    cargo test --locked --quiet -p hedgerow --release --test loom "$@" >"$log" 2>&1
}

failed=0

if run; then
    echo "the log itself: passes"
else
    cat "$log" >&2
    echo "the log itself: FAILS" >&2
    failed=1
fi

# A wrapper around the compiler, for the crates of this workspace alone: a flag for all crates would build
# loom anew for each canary.
canary() {
    name=$1
    model=$2
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
    if run -- --exact "$model"; then
        echo "canary $name: NOT noticed by $model" >&2
        failed=1
    else
        echo "canary $name: noticed by $model"
    fi
}

commit=whoever_was_told_that_it_is_durable_has_it_on_the_disk_and_everybody_is_told
canary filled_without_release a_block_that_is_written_is_whole
canary flush_without_waiting a_block_that_is_written_is_whole
canary limit_without_acquire a_place_is_filled_again_only_after_it_was_written
canary durable_before_sync $commit
canary nobody_goes_on $commit
canary queue_after_look $commit
exit $failed
