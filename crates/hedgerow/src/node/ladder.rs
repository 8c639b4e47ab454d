//! The ladder of layout optimisations of "B-Trees Are Back" section 3, as types.
//!
//! Each rung is a set of constants; searches and changes branch on them at compile time, so that all
//! rungs are the same code and a benchmark compares nothing but the optimisation. The store uses
//! [`Hints`]. No state; thread-safety does not arise.

/// Which optimisations a node uses. A page must always be read with the rung it was written with.
pub trait Ladder: Copy + Default + Send + Sync + 'static {
    /// The rung's name in reports.
    #[cfg(hedgerow_internals)]
    const NAME: &'static str;
    /// Keys are stored without the common prefix of the fences (section 3.1).
    const PREFIX: bool;
    /// The first four bytes of each key stand in an array of their own (section 3.2).
    const HEADS: bool;
    /// Every sixteenth head (or a multiple of it) is copied to the hint array (section 3.3).
    const HINTS: bool;
    /// Bytes of each key behind the prefix that stand in its head, and not in its record.
    const HEAD_BYTES: usize = if Self::HEADS { 4 } else { 0 };
}

/// A plain slotted page, searched by comparing whole keys.
#[cfg(hedgerow_internals)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Baseline;

/// Prefix truncation.
#[cfg(hedgerow_internals)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Prefix;

/// Prefix truncation and heads.
#[cfg(hedgerow_internals)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Heads;

/// Prefix truncation, heads and hints: what the store uses.
#[derive(Clone, Copy, Default, Debug)]
pub struct Hints;

#[cfg(hedgerow_internals)]
impl Ladder for Baseline {
    const NAME: &'static str = "baseline";
    const PREFIX: bool = false;
    const HEADS: bool = false;
    const HINTS: bool = false;
}

#[cfg(hedgerow_internals)]
impl Ladder for Prefix {
    const NAME: &'static str = "prefix";
    const PREFIX: bool = true;
    const HEADS: bool = false;
    const HINTS: bool = false;
}

#[cfg(hedgerow_internals)]
impl Ladder for Heads {
    const NAME: &'static str = "heads";
    const PREFIX: bool = true;
    const HEADS: bool = true;
    const HINTS: bool = false;
}

impl Ladder for Hints {
    #[cfg(hedgerow_internals)]
    const NAME: &'static str = "hints";
    const PREFIX: bool = true;
    const HEADS: bool = true;
    const HINTS: bool = true;
}
