//! When extents were entered that some snapshot or pinned checkpoint is too old to refer to.
//!
//! Whoever looks at one moment only needs no extent that was entered later. So while there is one, what is entered is noted here, and
//! what was noted is free without waiting for it. What is not noted counts as entered before anybody began.
//!
//! Extents are noted by the first units of their runs, a bit for each, in groups. A group has the earliest epoch that any of it may have been
//! entered in. Between that and the epoch of any of it no moment lies that somebody looked at when it was noted; where there are
//! too many moments, groups are put together, so that more waits than has to. Invariant: no unit is in two groups. Not shared:
//! the caller's lock covers each call.

use crate::large::Extent;
use crate::space::unit_set::UnitSet;
use crate::types::Epoch;
use std::collections::BTreeMap;

/// Groups at most: each is looked through for an extent that is left.
const MOST_GROUPS: usize = 16;
/// Memory of one, beside that of its set.
const GROUP_BYTES: usize = 64;

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Births {
    groups: BTreeMap<Epoch, UnitSet>,
}

impl Births {
    /// Notes an extent that was entered in `epoch`. `is_looked_at`: whether somebody looks at a moment from the first epoch up to, and
    /// without, the second.
    pub(super) fn note(
        &mut self,
        extent: &Extent,
        epoch: Epoch,
        is_looked_at: impl Fn(Epoch, Epoch) -> bool,
    ) {
        let last = self.groups.last_key_value().map(|(&last, _)| last);
        // Writers of two epochs may be inside when one begins, so this one may be the earlier.
        let before = self.groups.range(..=epoch).next_back().map(|(&before, _)| before);
        let group = match before {
            Some(before) if Some(before) != last || !is_looked_at(before, epoch) => before,
            None if last.is_some() => return,
            _ => {
                self.put_together(is_looked_at);
                epoch
            }
        };
        let set = self.groups.entry(group).or_default();
        extent.runs.iter().for_each(|run| set.insert(run.unit, 1));
    }

    /// Puts groups together between which nobody looks at a moment, and others where there would be too many.
    fn put_together(&mut self, is_looked_at: impl Fn(Epoch, Epoch) -> bool) {
        let mut together: Vec<(Epoch, UnitSet)> = Vec::new();
        let too_many = (self.groups.len() + 1).saturating_sub(MOST_GROUPS);
        for (at, (epoch, set)) in std::mem::take(&mut self.groups).into_iter().enumerate() {
            match together.last_mut() {
                Some((last, earlier)) if at <= too_many || !is_looked_at(*last, epoch) => {
                    earlier.merge(set);
                }
                _ => together.push((epoch, set)),
            }
        }
        self.groups = together.into_iter().collect();
    }

    /// Takes the note of an extent that is left. Returns the earliest epoch that it may have been entered in; none is
    /// known: epoch 0.
    pub(super) fn take(&mut self, extent: &Extent) -> Epoch {
        let mut born = None;
        for run in &extent.runs {
            let groups = self.groups.iter_mut().rev();
            let of =
                groups.filter_map(|(&of, set)| set.remove_all(run.unit, 1).then_some(of)).next();
            let of = of.unwrap_or(Epoch(0));
            // All of them were noted together; what a damaged file says of others is held for longer.
            born = Some(born.map_or(of, |born: Epoch| born.min(of)));
        }
        born.unwrap_or(Epoch(0))
    }

    /// Forgets what was entered up to `oldest`, the oldest moment that somebody looks at; without one, everything.
    pub(super) fn forget_up_to(&mut self, oldest: Option<Epoch>) {
        match oldest {
            Some(oldest) => self.groups.retain(|&epoch, set| epoch > oldest && set.len() > 0),
            None => self.groups.clear(),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.groups.values().map(|set| set.memory_bytes() + GROUP_BYTES).sum()
    }
}
