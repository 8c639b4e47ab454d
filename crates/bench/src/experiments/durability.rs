//! What durability costs those who do not wait for it: the log, and checkpoints while they run.
//!
//! Hedgerow against itself. Everything is cached.

use super::products::{self, PUT};
use super::{Experiment, Figure, Size, phase};
use crate::cell::{LoadOrder, Operation};

/// Records of the store whose pages are all made dirty: about a GiB of them.
const GIBIBYTE_OF_RECORDS: usize = 8_000_000;

/// Buffered puts with a log and without.
pub fn log_cost(size: Size) -> Experiment {
    let mut case = products::case(size, 1_000_000, 512 << 20);
    let operations = size.scale(1_000_000);
    case.phases = vec![products::settle("settle")];
    for threads in [1, 2, 64] {
        case.phases.push(phase("overwrite", PUT, operations).threads(threads).going_on(size, 10.0));
    }
    Experiment {
        name: "log-cost",
        claim: "a log costs a buffered put a quarter of its rate at most",
        figure: Figure::Rate,
        competitors: &["hedgerow-no-log", "hedgerow"],
        skips: &[],
        cases: vec![case],
    }
}

/// Puts while a checkpoint of a GiB runs, and before it.
pub fn beside_a_checkpoint(size: Size) -> Experiment {
    let mut case = products::case(size, GIBIBYTE_OF_RECORDS, 2 << 30);
    case.name = "1 GiB dirty".into();
    case.load_order = LoadOrder::Bulk;
    let operations = size.scale(1_000_000);
    let beside = Operation::OverwriteBesideCheckpoint {};
    for threads in [1, 2] {
        // An eighth of the records, which are anywhere: hardly a page has none of them.
        let dirty =
            |name: &str| phase(&format!("{name} @{threads}"), PUT, case.count / 8).sequential();
        let mut timed = phase("overwrite beside", beside, operations).threads(threads);
        timed.latency = true;
        case.phases.extend([
            dirty("make dirty"),
            phase("overwrite", PUT, operations).threads(threads).going_on(size, 5.0),
            timed,
        ]);
    }
    Experiment {
        name: "beside-a-checkpoint",
        claim: "a checkpoint is hardly noticed by those who write meanwhile",
        figure: Figure::Rate,
        competitors: &["hedgerow-on-demand"],
        skips: &[],
        cases: vec![case],
    }
}
