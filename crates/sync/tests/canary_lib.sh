# What the scripts have in common that prove that tests can fail. Each of them leaves out one line of a protocol at a time
# and expects the test that is there for it to notice. One build has all such lines (`--cfg hedgerow_canaries`, for the
# crates of this workspace alone), and the environment says which one is left out: `primitive/canary.rs`.
#
# Sourced from the root of the repository. The script defines `run`, which runs tests with the arguments that it gets.

# canary_build DIRECTORY: where the build goes, below the target directory; and what all of them are built like.
canary_build() {
    CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/$1"
    mkdir -p "$CARGO_TARGET_DIR/canaries"
    CARGO_TARGET_DIR=$(cd "$CARGO_TARGET_DIR" && pwd)
    # Linking matters more than speed.
    CARGO_PROFILE_RELEASE_LTO=off
    CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
    CARGO_PROFILE_RELEASE_DEBUG=none
    RUSTC_WORKSPACE_WRAPPER="$CARGO_TARGET_DIR/canaries/all"
    printf '#!/bin/sh\nexec "$@" --cfg hedgerow_canaries\n' >"$RUSTC_WORKSPACE_WRAPPER"
    chmod +x "$RUSTC_WORKSPACE_WRAPPER"
    export CARGO_TARGET_DIR CARGO_PROFILE_RELEASE_LTO CARGO_PROFILE_RELEASE_CODEGEN_UNITS
    export CARGO_PROFILE_RELEASE_DEBUG RUSTC_WORKSPACE_WRAPPER
    unset HEDGEROW_CANARY
    log="$CARGO_TARGET_DIR/canaries/log"
    failed=0
}

# canary_none WHAT: nothing is left out, and everything passes.
canary_none() {
    if ! run --no-run >"$log" 2>&1; then
        cat "$log" >&2
        echo "$1: does not compile" >&2
        exit 1
    fi
    if run >"$log" 2>&1; then
        echo "$1: passes"
    else
        cat "$log" >&2
        echo "$1: FAILS" >&2
        failed=1
    fi
}

# canary NAME TEST [ARGUMENT...]: the line NAME is left out, and TEST, which `run ARGUMENT... TEST` runs alone, fails.
canary() {
    name=$1
    test=$2
    shift 2
    if HEDGEROW_CANARY=$name run "$@" -- --exact "$test" >"$log" 2>&1; then
        echo "canary $name: NOT noticed by $test" >&2
        failed=1
    elif grep -q "panicked at" "$log"; then
        echo "canary $name: noticed by $test"
    else
        cat "$log" >&2
        echo "canary $name: $test did not run" >&2
        failed=1
    fi
}
