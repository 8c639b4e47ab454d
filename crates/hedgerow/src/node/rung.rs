//! The rung of this build on the ladder of layout optimisations of "B-Trees Are Back" section 3.
//!
//! The store has all of them. `--cfg hedgerow_rung="baseline"`, `"prefix"` or `"heads"` builds with fewer, for the experiments
//! of the paper and the tests of their rungs. Searches and changes branch on these constants at compile time, so that all
//! rungs are the same code, and a benchmark compares nothing but the optimisation. On lower rungs all leaves are comparison
//! leaves.
//!
//! A page must be read by a build of the rung that has written it. No state; thread-safety does not arise.

/// Keys are stored without the common prefix of the fences (section 3.1).
pub const PREFIX: bool = !cfg!(hedgerow_rung = "baseline");
/// The first four bytes of each key stand in an array of their own (section 3.2).
pub const HEADS: bool = PREFIX && !cfg!(hedgerow_rung = "prefix");
/// Every sixteenth head (or a multiple of it) is copied to the hint array (section 3.3).
pub const HINTS: bool = HEADS && !cfg!(hedgerow_rung = "heads");
/// Bytes of each key behind the prefix that stand in its head, and not in its record.
pub const HEAD_BYTES: usize = if HEADS { 4 } else { 0 };
/// The rung's name in reports.
#[cfg(hedgerow_internals)]
pub const NAME: &str = match (PREFIX, HEADS, HINTS) {
    (false, ..) => "baseline",
    (_, false, _) => "prefix",
    (.., false) => "heads",
    _ => "hints",
};
