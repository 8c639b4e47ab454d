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

    /// What tells at one look that nobody needs a version.
    pub(super) fn bounds(&self) -> Bounds {
        let mut bounds =
            Bounds { unpinned: Lsn(u64::MAX), pinned: Lsn(u64::MAX), last_cut: Lsn(0) };
        for need in &self.0 {
            match need.cut {
                None => bounds.unpinned = bounds.unpinned.min(need.at),
                Some(cut) => {
                    bounds.pinned = bounds.pinned.min(need.at);
                    bounds.last_cut = bounds.last_cut.max(cut);
                }
            }
        }
        bounds
    }

    /// Whether anybody needs the version that began at `began` and was ended at `ended`.
    pub(super) fn any_between(&self, began: Lsn, ended: Lsn) -> bool {
        let first = self.0.partition_point(|need| need.at < began);
        let mut inside = self.0[first..].iter().take_while(|need| need.at < ended);
        inside.any(|need| need.cut.is_none_or(|cut| ended <= cut))
    }
}

/// The oldest moments of [`Needs`], and the latest cut.
#[derive(Debug)]
pub(super) struct Bounds {
    unpinned: Lsn,
    pinned: Lsn,
    last_cut: Lsn,
}

impl Bounds {
    /// Whether somebody may need a version that was ended at `ended`, whenever it began.
    pub(super) fn may_need(&self, ended: Lsn) -> bool {
        ended > self.unpinned || ended > self.pinned && ended <= self.last_cut
    }
}
