//! Counters that threads share.

use super::products::case;
use super::{Experiment, Figure, Size, phase};
use crate::cell::Operation;

/// Many threads add to one integer. They can only do so one after the other, so more threads than processors gain nothing; they should not
/// lose much either.
pub fn one_counter(size: Size) -> Experiment {
    let mut case = case(size, 1, 64 << 20);
    (case.name, case.count, case.value_bytes) = ("one key".into(), 1, 8);
    let operations = size.scale(2_000_000);
    for threads in [1, 2, 8] {
        case.phases.push(phase("fetch_add", Operation::FetchAdd {}, operations).threads(threads));
    }
    Experiment {
        name: "one-counter",
        claim: "8 threads that add to one integer keep 0.8 of the rate of two, and no addition is lost",
        figure: Figure::Rate,
        competitors: &["hedgerow"],
        skips: &[],
        cases: vec![case],
    }
}
