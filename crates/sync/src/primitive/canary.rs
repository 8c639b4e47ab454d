//! Lines that a protocol rests on, and that its models can leave out, one at a time, to see whether they notice.
//!
//! A build with `--cfg hedgerow_canaries` has them all, and the environment variable `HEDGEROW_CANARY` names the one
//! that is left out: one build for all of them, where a flag for each would be a build for each. In any other build
//! none is, and the question costs nothing. `Send + Sync`.

/// Whether the line of this name is left out.
#[cfg(hedgerow_canaries)]
pub fn leaves_out(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("HEDGEROW_CANARY").unwrap_or_default()) == name
}

/// Whether the line of this name is left out.
#[cfg(not(hedgerow_canaries))]
#[inline(always)]
pub const fn leaves_out(_: &str) -> bool {
    false
}
