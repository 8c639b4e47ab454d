//! Values of every size, from 100 bytes to a million: no size should be much slower, or take much more room, than the
//! next smaller one.
//!
//! All data cached, changes logged and nobody waits for the disk. Each size has as many records as make the same payload, so
//! that rates times sizes are comparable. Beside the sizes there is a mix, in which overwriting changes every length.

use super::products::{PUT, case, settle};
use super::{Case, Experiment, Figure, GET, SCAN_100, Size, phase};
use crate::cell::LoadOrder;
use crate::checksum::Spread;

/// Bytes of a value.
const SIZES: [usize; 13] =
    [100, 500, 900, 1_000, 1_100, 1_500, 2_000, 3_000, 4_000, 8_000, 16_000, 64_000, 256_000];
const LARGEST: usize = 1_000_000;

const MIX: Spread = Spread { median_bytes: 1_200, sigma: 1.5, least_bytes: 8, most_bytes: 1 << 20 };

const COMPETITORS: &[&str] = &["hedgerow", "lmdb", "redb"];

/// Of rates also one that, as Hedgerow, has on the disk what is older than 100 ms.
const COMPETITORS_OF_RATES: &[&str] = &["hedgerow", "lmdb", "lmdb-100ms", "redb"];

/// Bytes of all values of a case.
fn payload_bytes(size: Size) -> usize {
    match size {
        Size::Smoke => 512 << 10,
        Size::Small => 32 << 20,
        Size::Full => 256 << 20,
    }
}

/// Cases of all sizes, without phases.
fn cases(size: Size) -> Vec<Case> {
    let payload = payload_bytes(size);
    let of = |name: String, value_bytes: usize, spread| {
        let mut case = case(size, 1, 1 << 30);
        (case.name, case.value_bytes, case.spread) = (name, value_bytes, spread);
        case.count = (payload / value_bytes).max(16);
        // Nothing is evicted, also where a page holds little; and with the keys it is no limit, also to those who have none.
        case.memory_limit_bytes = Some((6 * payload as u64).max(64 << 20));
        case
    };
    let sizes = SIZES.into_iter().chain([LARGEST]);
    sizes
        .map(|bytes| of(format!("{bytes} bytes"), bytes, None))
        .chain([of("mix".into(), MIX.mean_bytes(), Some(MIX))])
        .collect()
}

/// Loads, gets, scans and overwrites, one by one.
pub fn rates(size: Size) -> Experiment {
    let mut cases = cases(size);
    for case in &mut cases {
        // At least some, and no more than take a second.
        let gets = (2 * case.count).clamp(1_000, 1_000_000);
        let scans = (case.count / 20).clamp(20, 20_000);
        case.phases = vec![
            settle("settle"),
            phase("get", GET, gets),
            phase("scan 100", SCAN_100, scans),
            phase("overwrite", PUT, case.count),
        ];
    }
    Experiment {
        name: "product-values",
        claim: "no cliff between values of 100 bytes and of a megabyte",
        figure: Figure::Rate,
        competitors: COMPETITORS_OF_RATES,
        skips: &[],
        cases,
    }
}

/// What files take for each byte of keys and values: after loads at random and in order, and after everything was
/// overwritten.
pub fn space(size: Size) -> Experiment {
    let ordered = cases(size).into_iter().map(|case| Case {
        name: format!("{}, bulk", case.name),
        load_order: LoadOrder::Bulk,
        ..case
    });
    let mut cases: Vec<Case> = cases(size).into_iter().chain(ordered).collect();
    for case in &mut cases {
        case.phases = vec![
            settle("loaded, settled"),
            phase("overwrite", PUT, case.count).sequential(),
            settle("overwritten, settled"),
        ];
    }
    Experiment {
        name: "product-values-space",
        claim: "files stay near the size of their records, whatever that is",
        figure: Figure::Space,
        competitors: COMPETITORS,
        skips: &[],
        cases,
    }
}
