//! Which record each operation goes to: drawn ahead of the clock.
//!
//! One list a thread. The same phase and the same number of records give the same lists everywhere.
//! Plain data, `Send + Sync`.

use crate::cell::{Distribution, Operation, Phase};
use crate::checksum::mix;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::Zipf;
use rand_pcg::Pcg64Mcg;
use std::ops::Range;

/// What one thread does in a phase: numbers of keys, and beside each what the operation needs more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// Numbers of keys, in the order of the operations.
    pub keys: Vec<u32>,
    /// Scans: records to read, 0 for an insertion between them. Gets with insertions or changes between them: 1 for a
    /// get alone, 0 for the other.
    /// Else empty.
    pub sizes: Vec<u32>,
}

/// Draws the accesses of `phase` for each of its threads, while the records of keys `0..present`
/// are there. Empty for operations that know themselves what to do.
pub fn draw(phase: &Phase, present: usize) -> Vec<Accesses> {
    let threads = phase.threads;
    (0..threads).map(|thread| draw_thread(phase, present, thread)).collect()
}

/// The part of `0..whole` that thread number `thread` of `threads` does.
pub fn share(whole: usize, thread: usize, threads: usize) -> Range<usize> {
    let end_of = |thread: usize| (whole as u128 * thread as u128 / threads as u128) as usize;
    end_of(thread)..end_of(thread + 1)
}

fn draw_thread(phase: &Phase, present: usize, thread: usize) -> Accesses {
    let mut rng = Pcg64Mcg::seed_from_u64(mix(phase.seed ^ mix(thread as u64)));
    let part = share(phase.operations, thread, phase.threads);
    match phase.operation {
        Operation::InsertLast {} => {
            let keys = part.map(|at| (present + at) as u32).collect();
            Accesses { keys, sizes: Vec::new() }
        }
        Operation::Delete { percent } => {
            let part = share(present, thread, phase.threads);
            let keys = part.filter(|at| at % 100 < percent).map(|at| at as u32).collect();
            Accesses { keys, sizes: Vec::new() }
        }
        Operation::ScanAll {} | Operation::Settle {} | Operation::Rest { .. } => {
            Accesses::default()
        }
        Operation::Get {}
        | Operation::GetMany { .. }
        | Operation::Overwrite {}
        | Operation::FetchAdd {}
        | Operation::OverwriteBesideCheckpoint {} => {
            let keys = draw_keys(phase.distribution, present, part, &mut rng);
            Accesses { keys, sizes: Vec::new() }
        }
        Operation::Scan { min_records, max_records } => {
            let keys = draw_keys(phase.distribution, present, part, &mut rng);
            let range = min_records as u32..=max_records as u32;
            let sizes = keys.iter().map(|_| rng.random_range(range.clone())).collect();
            Accesses { keys, sizes }
        }
        Operation::ScanInsert { max_records, .. } => {
            let insertions = share(phase.insertions(), thread, phase.threads);
            let mut keys = draw_keys(phase.distribution, present, part, &mut rng);
            let is_insertion = shuffled(insertions.len(), keys.len(), &mut rng);
            let mut next = insertions.map(|at| (present + at) as u32);
            let of = |(key, is_insertion): (&mut u32, bool)| {
                // There are as many as places for them.
                if let Some(inserted) = is_insertion.then(|| next.next()).flatten() {
                    *key = inserted;
                    return 0;
                }
                rng.random_range(1..=max_records as u32)
            };
            let sizes = keys.iter_mut().zip(is_insertion).map(of).collect();
            Accesses { keys, sizes }
        }
        Operation::GetInsert { .. } => {
            let insertions = share(phase.insertions(), thread, phase.threads);
            let mut keys = draw_keys(phase.distribution, present, part, &mut rng);
            let is_insertion = shuffled(insertions.len(), keys.len(), &mut rng);
            let is_latest = matches!(phase.distribution, Distribution::Latest { .. });
            let (present, first) = (present as u32, (present + insertions.start) as u32);
            let mut inserted = 0;
            for (key, is_insertion) in keys.iter_mut().zip(&is_insertion) {
                if *is_insertion {
                    *key = first + inserted;
                    inserted += 1;
                } else if is_latest {
                    let rank = present - 1 - *key;
                    // The last of those that were there before is next to the first that was inserted.
                    let own = inserted.checked_sub(rank + 1).map(|at| first + at);
                    *key = own.unwrap_or_else(|| present - 1 - (rank - inserted));
                }
            }
            let sizes = is_insertion.into_iter().map(|is_insertion| u32::from(!is_insertion));
            Accesses { keys, sizes: sizes.collect() }
        }
        Operation::Mixed { get_percent } | Operation::ReadModifyWrite { get_percent } => {
            let keys = draw_keys(phase.distribution, present, part, &mut rng);
            let is_get = |rng: &mut Pcg64Mcg| rng.random_range(0..100_u32) < get_percent as u32;
            let sizes = keys.iter().map(|_| u32::from(is_get(&mut rng))).collect();
            Accesses { keys, sizes }
        }
    }
}

/// Which of `all` operations are insertions, so many of them.
fn shuffled(insertions: usize, all: usize, rng: &mut impl Rng) -> Vec<bool> {
    let mut is_insertion = vec![false; all];
    is_insertion[..insertions].fill(true);
    is_insertion.shuffle(rng);
    is_insertion
}

/// Numbers of keys below `present`, one for each of the operations `part`.
fn draw_keys(
    distribution: Distribution,
    present: usize,
    part: Range<usize>,
    rng: &mut impl Rng,
) -> Vec<u32> {
    let n = present as u32;
    // Floats near `n` may round up to it.
    let rank = |zipf: &Zipf<f64>, rng: &mut _| (rng_sample(rng, zipf) as u32 - 1).min(n - 1);
    match distribution {
        Distribution::Uniform {} => part.map(|_| rng.random_range(0..n)).collect(),
        Distribution::Zipf { theta } => {
            let zipf = zipf(n, theta);
            part.map(|_| rank(&zipf, rng)).collect()
        }
        Distribution::Latest { theta } => {
            let zipf = zipf(n, theta);
            part.map(|_| n - 1 - rank(&zipf, rng)).collect()
        }
        Distribution::HotSet { records_percent, accesses_percent } => {
            let hot = ((f64::from(n) * records_percent / 100.0) as u32).clamp(1, n);
            let draw = |_| {
                let is_hot = hot == n || rng.random::<f64>() * 100.0 < accesses_percent;
                if is_hot { rng.random_range(0..hot) } else { rng.random_range(hot..n) }
            };
            part.map(draw).collect()
        }
        Distribution::Sequential {} => part.map(|at| (at % present) as u32).collect(),
    }
}

fn zipf(n: u32, theta: f64) -> Zipf<f64> {
    Zipf::new(f64::from(n), theta).expect("the cell was checked: records, and a theta above zero")
}

fn rng_sample(rng: &mut impl Rng, zipf: &Zipf<f64>) -> f64 {
    rng.sample(zipf)
}
