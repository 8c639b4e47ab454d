//! Leaves out of sorted input, for bulk loads, each in the layout that the policy wants for its keys.
//!
//! Records are staged until a comparison leaf is full (`node/build.rs`). Then it is seen what else they
//! could be: a *dense* leaf, if those that it would hold are nearly as many, and dense enough by the
//! criterion of `node/dense`; else a *fingerprint* leaf, for strings. Such a leaf goes on being staged
//! until it is full itself. As many records are written in each leaf as an ascending load leaves there.
//!
//! Fill: comparison leaves, fingerprint leaves, and array and heap of semi-dense leaves take as much of a
//! page as was asked for. A fully dense leaf always has all slots that a page can hold: numbers that come
//! between its records have their slots already, and behind its last number begins the next leaf.
//!
//! No thread-safety of its own. Stages about two pages; of small values in dense leaves as many as one of
//! them holds, but [`MOST_STAGED_PAGES`] at most.

use super::LeafLayout;
use super::split::TELLING_RECORDS;
use crate::node::build::Builder;
use crate::node::dense::{DenseLayout, DenseMut, Full, Growth, Run, Semi};
use crate::node::fingerprint::{FingerprintLeafMut, Measure};
use crate::node::policy::{LeafPolicy, are_strings};
use crate::node::rung;

/// Of the records that a comparison leaf holds a dense leaf may hold fewer by one in so many: it may take
/// an eighth more space for them (`dense/criterion.rs`).
const DENSE_LOSS_PART: usize = 9;

/// Pages of keys and values that are staged for one dense leaf. Empty values would allow sixty thousand
/// records, with keys of any length.
const MOST_STAGED_PAGES: usize = 64;

/// Builds the leaves of a tree from left to right: [`Self::push`] until it takes no more, then
/// [`Self::write`] a page and go on; at the end [`Self::write_last`] until it gives `None`.
#[derive(Debug)]
pub struct LeafBuilder {
    staged: Builder,
    policy: LeafPolicy,
    fill_percent: u8,
    plan: Plan,
}

/// What comes of the records that are staged.
#[derive(Debug)]
enum Plan {
    /// Not known yet: there is room for them in a comparison leaf.
    Open,
    /// A comparison leaf, which is full.
    Comparison,
    /// A fingerprint leaf of all of them. What they take with a prefix of so many bytes.
    Fingerprint(usize, Measure),
    /// A leaf of the first of them, or of all.
    SemiDense(Run<Semi>),
    /// The same.
    FullyDense(Run<Full>),
}

impl LeafBuilder {
    /// Begins the leaves of a tree; the fill as for [`Builder::new`].
    pub fn new(page_bytes: usize, fill_percent: u8, policy: LeafPolicy) -> Self {
        LeafBuilder {
            staged: Builder::new(page_bytes, 0, fill_percent),
            policy,
            fill_percent: fill_percent.clamp(10, 100),
            plan: Plan::Open,
        }
    }

    /// The last key staged, for a check that the input is sorted.
    pub fn last_key(&self) -> Option<&[u8]> {
        self.staged.last_key()
    }

    /// The values staged.
    pub fn values(&self) -> impl Iterator<Item = &[u8]> {
        self.staged.records.values()
    }

    /// Stages a record if it belongs into the same leaf as what is staged; the first one always does. The
    /// key is above the one before; key and value have at most [`max_record_bytes`](crate::node::max_record_bytes).
    #[must_use]
    #[inline]
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> bool {
        match self.plan {
            Plan::Open => {
                self.staged.push(key, value) || rung::HINTS && self.push_beyond(key, value)
            }
            _ => self.push_planned(key, value),
        }
    }

    /// The record does not fit into a comparison leaf with the others.
    #[cold]
    #[inline(never)]
    fn push_beyond(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.plan = self.choose();
        self.push_planned(key, value)
    }

    #[inline]
    fn push_planned(&mut self, key: &[u8], value: &[u8]) -> bool {
        let staged = &mut self.staged;
        let fits = match &mut self.plan {
            Plan::Open | Plan::Comparison => false,
            Plan::Fingerprint(shared, sum) => {
                let now = staged.shared(Some(key));
                if *shared != now {
                    (*shared, *sum) = (now, measure(staged, staged.staged(), now));
                }
                let more = *sum + Measure::record(key.len() - now, value.len());
                let fits = more.space(staged.fences_behind(key, now)) <= staged.target_bytes;
                if fits {
                    *sum = more;
                }
                fits
            }
            Plan::SemiDense(run) => goes_on(run, staged, key, value),
            Plan::FullyDense(run) => goes_on(run, staged, key, value),
        };
        if fits {
            staged.records.push(key, value);
        }
        fits
    }

    /// What is to come of the records that are staged, which fill a comparison leaf.
    fn choose(&self) -> Plan {
        let least = self.staged.staged() - self.staged.staged() / DENSE_LOSS_PART;
        self.choose_dense(least).or_else(|| self.choose_fingerprint()).unwrap_or(Plan::Comparison)
    }

    /// A dense leaf, if one holds so many of the records, and pays.
    fn choose_dense(&self, least: usize) -> Option<Plan> {
        match self.policy.dense()? {
            LeafLayout::SemiDense => self.run(least).map(Plan::SemiDense),
            _ => self.run(least).map(Plan::FullyDense),
        }
    }

    /// A run of as many of the records as a dense leaf holds, if these are so many, and it pays.
    fn run<V: DenseLayout>(&self, least: usize) -> Option<Run<V>> {
        let Builder { page_bytes, lower, records, .. } = &self.staged;
        let mut all = records.iter();
        let (key, value) = all.next()?;
        let lower = lower.as_deref();
        let mut run = Run::begin(*page_bytes, self.fill_percent, lower, key, value.len())?;
        // This rules out nearly all keys that are no dense numbers.
        if !run.reaches(records.key(least.max(1) - 1)) {
            return None;
        }
        for (key, value) in all {
            if !run.take(key, value.len()) {
                break;
            }
        }
        (run.count() >= least && run.pays()).then_some(run)
    }

    /// A fingerprint leaf, if the policy wants one, and it holds all that is staged.
    fn choose_fingerprint(&self) -> Option<Plan> {
        let staged = &self.staged;
        if self.policy == LeafPolicy::Adaptive && staged.staged() < TELLING_RECORDS {
            return None;
        }
        let last = staged.last_key()?;
        let shared = staged.shared(Some(last));
        let strings = || are_strings(&staged.records, shared);
        if self.policy.slotted(strings, false) != LeafLayout::Fingerprint {
            return None;
        }
        let sum = measure(staged, staged.staged(), shared);
        // Wide slots may make it take more than a comparison leaf.
        let fits = sum.space(staged.fences_behind(last, shared)) <= staged.page_bytes;
        fits.then_some(Plan::Fingerprint(shared, sum))
    }

    /// Writes what is staged as a leaf into a fresh page; `next` is the key that comes after it, which was
    /// not taken. The last records stay staged if they do not belong into it. Gives the leaf's upper fence,
    /// which is the separator for the level above.
    ///
    /// # Panics
    /// If nothing is staged.
    pub fn write(&mut self, page: &mut [u8], next: &[u8]) -> Vec<u8> {
        let upper = match std::mem::replace(&mut self.plan, Plan::Open) {
            Plan::Open | Plan::Comparison => None,
            Plan::Fingerprint(..) => Some(self.write_fingerprint(page, self.staged.staged(), next)),
            Plan::SemiDense(run) => self.write_dense(page, &run, next),
            Plan::FullyDense(run) => self.write_dense(page, &run, next),
        };
        upper.unwrap_or_else(|| self.staged.write(page, next))
    }

    /// Writes the first `at_most` records, or as many of them as fit.
    fn write_fingerprint(&mut self, page: &mut [u8], at_most: usize, next: &[u8]) -> Vec<u8> {
        let staged = &mut self.staged;
        let space = |count, upper: &[u8]| fingerprint_space(staged, count, Some(upper));
        let (count, upper) = staged.most_that_fit(at_most, next, space);
        staged.set_aside(count);
        let lower = staged.lower.as_deref();
        FingerprintLeafMut::build(page, lower, Some(&upper), &staged.records)
            .expect("they were seen to fit");
        staged.drop_written(Some(&upper));
        upper
    }

    /// Writes the records of a run, which are the first ones, unless the layout refuses them; then all stay
    /// staged.
    fn write_dense<V: DenseLayout>(
        &mut self,
        page: &mut [u8],
        run: &Run<V>,
        next: &[u8],
    ) -> Option<Vec<u8>> {
        let count = run.count();
        let staged = &self.staged;
        let next = if count < staged.staged() { staged.records.key(count) } else { next };
        match run.fence_at_last_slot(next) {
            Some(upper) => self.write_dense_until::<V>(page, count, [Some(upper), None]),
            None => self.write_dense_until::<V>(page, count, staged.fences_for(count, next)),
        }
    }

    /// Writes the first `count` records with the first of these fences for the upper one that goes.
    fn write_dense_until<V: DenseLayout>(
        &mut self,
        page: &mut [u8],
        count: usize,
        fences: [Option<Vec<u8>>; 2],
    ) -> Option<Vec<u8>> {
        let staged = &mut self.staged;
        staged.set_aside(count);
        let upper = fences.into_iter().flatten().find(|upper| {
            let (lower, upper) = (staged.lower.as_deref(), Some(upper.as_slice()));
            DenseMut::<V>::build(page, lower, upper, &staged.records, Growth::Up).is_ok()
        });
        match &upper {
            Some(upper) => staged.drop_written(Some(upper)),
            None => staged.take_back(),
        }
        upper
    }

    /// Writes the last leaf of the tree, which reaches up without end, and gives `None`. If what is staged
    /// does not fit (such a leaf has no prefix), it writes a part of it, gives the separator, and wants to
    /// be called again with another page.
    pub fn write_last(&mut self, page: &mut [u8]) -> Option<Vec<u8>> {
        let count = self.staged.staged();
        if rung::HINTS && count > 0 && matches!(self.plan, Plan::Open) {
            let dense = (count >= TELLING_RECORDS).then(|| self.choose_dense(count)).flatten();
            self.plan = dense.or_else(|| self.choose_fingerprint()).unwrap_or(Plan::Comparison);
        }
        match std::mem::replace(&mut self.plan, Plan::Open) {
            Plan::Open | Plan::Comparison => self.staged.write_last(page),
            Plan::SemiDense(_) => self.write_last_dense::<Semi>(page),
            Plan::FullyDense(_) => self.write_last_dense::<Full>(page),
            Plan::Fingerprint(..) => {
                let staged = &self.staged;
                let records = &staged.records;
                let lower = staged.lower.as_deref();
                if FingerprintLeafMut::build(page, lower, None, records).is_ok() {
                    self.staged.drop_written(None);
                    return None;
                }
                if count <= 1 || staged.space_of(count, None) <= staged.page_bytes {
                    return self.staged.write_last(page);
                }
                Some(self.write_fingerprint(page, count / 2, &[]))
            }
        }
    }

    fn write_last_dense<V: DenseLayout>(&mut self, page: &mut [u8]) -> Option<Vec<u8>> {
        let staged = &self.staged;
        let lower = staged.lower.as_deref();
        if DenseMut::<V>::build(page, lower, None, &staged.records, Growth::Up).is_ok() {
            self.staged.drop_written(None);
            return None;
        }
        // A long stem, which the fences do not share then, takes the place of slots.
        let half = (staged.staged() / 2).max(1);
        let fences = staged.fences_for(half, &[]);
        self.write_dense_until::<V>(page, half, fences).or_else(|| self.staged.write_last(page))
    }
}

/// Whether a record goes on with the run that all staged ones are, and is counted in it.
#[inline]
fn goes_on<V: DenseLayout>(run: &mut Run<V>, staged: &Builder, key: &[u8], value: &[u8]) -> bool {
    run.count() == staged.staged()
        && staged.records.total_bytes() + key.len() + value.len()
            <= MOST_STAGED_PAGES * staged.page_bytes
        && run.take_if_it_pays(key, value.len())
}

/// What the first `count` records take in a fingerprint leaf with a prefix of so many bytes.
fn measure(staged: &Builder, count: usize, shared: usize) -> Measure {
    let lens = staged.records.lens(count);
    lens.fold(Measure::default(), |sum, (key_len, value_len)| {
        sum + Measure::record(key_len.saturating_sub(shared), value_len)
    })
}

/// Bytes that a fingerprint leaf of the first `count` records takes with this upper fence.
fn fingerprint_space(staged: &Builder, count: usize, upper: Option<&[u8]>) -> usize {
    let fences = staged.lower.as_ref().map_or(0, Vec::len) + upper.map_or(0, <[u8]>::len);
    measure(staged, count, staged.shared(upper)).space(fences)
}
