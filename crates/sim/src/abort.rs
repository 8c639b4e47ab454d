//! Why a region of transactional memory has ended, and how often which has happened. Plain data.

/// Labels that there may be.
pub const LABELS: usize = 16;

/// Why a region ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// Another thread reached the same line.
    Conflict {
        /// What the line was labelled as.
        label: u8,
        /// What the other thread was about.
        other: u64,
    },
    /// A line had to leave the cache.
    Capacity,
    /// An interrupt, or the thread lost its processor.
    Interrupt,
    /// The number of accesses was reached at which it was to abort.
    Forced,
    /// The body asked for it.
    Explicit(u8),
}

/// A region ended and has had no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abort {
    /// Why.
    pub cause: Cause,
    /// What the thread was about.
    pub key: u64,
}

/// What became of regions, of all threads of a run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Attempts.
    pub begun: u64,
    /// Attempts that took effect.
    pub committed: u64,
    /// Aborts for want of capacity.
    pub overflows: u64,
    /// Aborts by interrupts, and those that were forced.
    pub interrupts: u64,
    /// Aborts that bodies asked for.
    pub explicit: u64,
    /// Aborts by conflicts of threads that were about the same key, by the label of the line.
    pub same_key: [u64; LABELS],
    /// Aborts by conflicts of threads that were about different keys, by the label of the line.
    pub other_key: [u64; LABELS],
    /// Cycles in attempts that took effect.
    pub committed_cycles: u64,
    /// Cycles in attempts that did not.
    pub aborted_cycles: u64,
}

impl Tally {
    pub(crate) fn note(&mut self, cause: Cause, key: u64) {
        match cause {
            Cause::Conflict { label, other } => {
                let of = if other == key { &mut self.same_key } else { &mut self.other_key };
                of[usize::from(label) % LABELS] += 1;
            }
            Cause::Capacity => self.overflows += 1,
            Cause::Interrupt | Cause::Forced => self.interrupts += 1,
            Cause::Explicit(_) => self.explicit += 1,
        }
    }

    /// Aborts by conflicts.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.same_key.iter().chain(&self.other_key).sum()
    }

    /// All aborts.
    #[must_use]
    pub fn aborts(&self) -> u64 {
        self.conflicts() + self.overflows + self.interrupts + self.explicit
    }

    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Tally) -> Tally {
        let each = |a: &[u64; LABELS], b: &[u64; LABELS]| std::array::from_fn(|at| a[at] - b[at]);
        Tally {
            begun: self.begun - earlier.begun,
            committed: self.committed - earlier.committed,
            overflows: self.overflows - earlier.overflows,
            interrupts: self.interrupts - earlier.interrupts,
            explicit: self.explicit - earlier.explicit,
            same_key: each(&self.same_key, &earlier.same_key),
            other_key: each(&self.other_key, &earlier.other_key),
            committed_cycles: self.committed_cycles - earlier.committed_cycles,
            aborted_cycles: self.aborted_cycles - earlier.aborted_cycles,
        }
    }
}
