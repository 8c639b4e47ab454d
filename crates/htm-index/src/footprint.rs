//! What regions reach, in cache lines: counted ([`Footprint`]), and computed as HPCA 2014 does (sections 2.2 and 5.1).
//!
//! [`Footprint`] is a backend for one thread; the functions are pure.

use crate::htm::{Counters, ElidableLock, Htm, Outcome, RetryPolicy, Site, TCell, Tx, Word};
use hedgerow_sync::primitive::Mutex;
use std::collections::HashSet;
use std::convert::Infallible;
use std::marker::PhantomData;

const LINE: usize = 64;

/// Lines that regions have reached.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Lines {
    /// Regions.
    pub regions: u64,
    /// Lines of all of them.
    pub sum: u64,
    /// Lines of the region that has reached most.
    pub most: u64,
}

impl Lines {
    /// Lines of a region on average.
    #[must_use]
    pub fn average(&self) -> f64 {
        if self.regions == 0 { 0.0 } else { self.sum as f64 / self.regions as f64 }
    }
}

/// A backend that takes the lock, and counts the lines that each body reaches, that of the lock included.
#[derive(Debug, Default)]
pub struct Footprint {
    counters: Counters,
    lines: Mutex<Lines>,
}

impl Footprint {
    /// A backend that has counted nothing.
    #[must_use]
    pub fn new() -> Footprint {
        Footprint::default()
    }

    /// What was counted since the last call.
    pub fn take(&self) -> Lines {
        std::mem::take(&mut *self.lines.lock())
    }
}

/// What a body reads and writes with.
#[derive(Debug)]
pub struct FootprintTx<'a> {
    lines: HashSet<usize>,
    data: PhantomData<&'a ()>,
}

impl FootprintTx<'_> {
    fn reach<T: Word>(&mut self, cell: &TCell<T>) {
        self.lines.insert(std::ptr::from_ref(cell).addr() / LINE);
    }
}

impl<'a> Tx<'a> for FootprintTx<'a> {
    type E = Infallible;

    fn load<T: Word>(&mut self, cell: &'a TCell<T>) -> Result<T, Infallible> {
        self.reach(cell);
        Ok(cell.get())
    }

    fn store<T: Word>(&mut self, cell: &'a TCell<T>, value: T) -> Result<(), Infallible> {
        self.reach(cell);
        cell.set(value);
        Ok(())
    }

    fn fetch_or<T: Word>(&mut self, cell: &'a TCell<T>, mask: T) -> Result<T, Infallible> {
        self.reach(cell);
        let old = cell.get();
        cell.set(old | mask);
        Ok(old)
    }

    fn fetch_and<T: Word>(&mut self, cell: &'a TCell<T>, mask: T) -> Result<T, Infallible> {
        self.reach(cell);
        let old = cell.get();
        cell.set(old & mask);
        Ok(old)
    }

    fn abort(&mut self, _code: u8) -> Result<(), Infallible> {
        Ok(())
    }

    fn is_speculative(&self) -> bool {
        false
    }
}

impl Htm for Footprint {
    type E = Infallible;
    type Tx<'a> = FootprintTx<'a>;

    fn atomic_counted<'a, R, B>(
        &self,
        lock: &'a ElidableLock,
        _site: Site,
        mut body: B,
    ) -> (R, Outcome)
    where
        B: FnMut(&mut FootprintTx<'a>) -> Result<R, Infallible>,
    {
        let _held = lock.lock();
        let mut tx = FootprintTx { lines: HashSet::new(), data: PhantomData };
        tx.reach(lock.word());
        let Ok(result) = body(&mut tx);
        let mut lines = self.lines.lock();
        let reached = tx.lines.len() as u64;
        lines.regions += 1;
        lines.sum += reached;
        lines.most = lines.most.max(reached);
        (result, Outcome { aborts: 0, took_lock: true })
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn policy(&self) -> &RetryPolicy {
        &RetryPolicy::HPCA_NO_RETRY
    }
}

/// The probability (0 to 1) that so many lines at random overflow a set of a cache: section 5.1.1, computed instead of drawn.
///
/// Ways to put `n` balls into `sets` bins without an overflow are `n!` times the coefficient of `x^n` in `(sum of x^k / k!, k <= ways) ^ sets`.
#[must_use]
pub fn overflow(lines: u32, sets: u32, ways: u32) -> f64 {
    let (lines, sets) = (lines as usize, sets as usize);
    if lines > sets * ways as usize {
        return 1.0;
    }
    // Probabilities instead of coefficients, so that nothing leaves the range of numbers: of the first `s` sets, that `n` lines that
    // lie there do not overflow. A set more: a binomial share of them lies in it.
    let mut fits = vec![0.0_f64; lines + 1];
    for (n, fit) in fits.iter_mut().enumerate() {
        *fit = if n <= ways as usize { 1.0 } else { 0.0 };
    }
    for count in 2..=sets {
        let share = 1.0 / count as f64;
        let next = |n: usize| {
            // The binomial probability of `k` of `n`, from that of `k - 1`.
            let mut of_k = (1.0 - share).powi(n as i32);
            let mut sum = 0.0;
            for k in 0..=n.min(ways as usize) {
                if k > 0 {
                    of_k *= (n - k + 1) as f64 / k as f64 * share / (1.0 - share);
                }
                sum += of_k * fits[n - k];
            }
            sum
        };
        fits = (0..=lines).map(next).collect();
    }
    // Rounding may leave it a little below zero.
    (1.0 - fits[lines]).max(0.0)
}

/// The lines that a traversal reaches at most: `inner (height - 1) + leaf + height (fanout - 1)`, section 5.1.1.
#[must_use]
pub fn worst_lines(inner: u32, leaf: u32, fanout: u32, height: u32) -> u32 {
    inner * (height - 1) + leaf + height * (fanout - 1)
}

/// The probability that an insert propagates to a level, counted from the leaves on: section 2.2.
#[must_use]
pub fn propagates(fanout: u32, level: u32) -> f64 {
    (0.69 * f64::from(fanout)).powi(-(level as i32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bplus::BPlusTree;

    #[test]
    fn overflow_is_what_the_papers_figure_shows() {
        for (lines, ways, least, most) in
            [(93, 4, 0.55, 0.70), (47, 4, 0.03, 0.10), (53, 4, 0.05, 0.10), (93, 8, 0.0, 0.01)]
        {
            let found = overflow(lines, 64, ways);
            assert!((least..most).contains(&found), "{lines} lines, {ways} ways: {found}");
        }
        assert_eq!((overflow(4, 64, 4), overflow(257, 64, 4)), (0.0, 1.0));
        // Five lines in one of 64 sets: all in the same.
        assert!((overflow(5, 64, 4) - 64_f64.powi(-4)).abs() < 1e-12);
    }

    #[test]
    fn formulas_give_what_the_paper_prints() {
        assert_eq!(worst_lines(6, 3, 31, 6), 213);
        for (level, printed) in [(1, 4.68e-2), (2, 2.19e-3), (3, 1.02e-4), (4, 4.78e-6)] {
            let found = propagates(31, level);
            assert!((found / printed - 1.0).abs() < 0.005, "level {level}: {found}");
        }
    }

    #[test]
    fn a_look_up_in_one_leaf_reaches_the_lock_the_root_and_the_leaf() {
        let tree = BPlusTree::new(Footprint::new(), 100).unwrap();
        tree.insert(1, 1).unwrap();
        tree.htm().take();
        assert_eq!(tree.get(1), Some(1));
        // Of the leaf: the line of its count and first key, and that of the first value.
        assert_eq!(tree.htm().take(), Lines { regions: 1, sum: 4, most: 4 });
    }
}
