//! Who needs which versions: the moments of all snapshots, as they were at one look.
//!
//! The version that was ended at `L` and began at `p` is what a snapshot at `s` sees if `p <= s < L`. A snapshot that is pinned to a
//! checkpoint with the cut `c` finds there what was changed up to `c`, so it needs only versions that were ended by then. Plain data.

use crate::types::Lsn;

/// A snapshot's moment, and the cut of the checkpoint that it is pinned to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Need {
    pub at: Lsn,
    pub cut: Option<Lsn>,
}

/// See the head of the file.
#[derive(Default, Debug)]
pub(super) struct Needs(Vec<Need>);

impl Needs {
    /// Of these snapshots.
    pub(super) fn new(mut needs: Vec<Need>) -> Needs {
        needs.sort_unstable();
        Needs(needs)
    }

    /// Whether a snapshot that is not pinned has a moment below `up_to`.
    pub(super) fn any_unpinned_below(&self, up_to: Lsn) -> bool {
        self.0.iter().any(|need| need.cut.is_none() && need.at < up_to)
    }

    /// Whether anybody needs the version that began at `began` and was ended at `ended`.
    pub(super) fn any_between(&self, began: Lsn, ended: Lsn) -> bool {
        let first = self.0.partition_point(|need| need.at < began);
        let mut inside = self.0[first..].iter().take_while(|need| need.at < ended);
        inside.any(|need| need.cut.is_none_or(|cut| ended <= cut))
    }
}
