//! Keys of every length, from 100 bytes to 60,000: no length should be much slower, or take much more room, than its bytes ask for.
//!
//! All data cached, changes logged and nobody waits for the disk. Keys differ in their first bytes, or in their last ones alone, which is the
//! worst there is: all of them have one head, and each look-up searches among them all. LMDB takes keys of up to 511 bytes, as it is built by default.

use super::products::{PUT, case, settle};
use super::{Case, Experiment, Figure, GET, SCAN_100, Size, phase};
use crate::cell::KeyKind;

/// Bytes of a key.
const LENGTHS: [u32; 5] = [100, 900, 1_500, 5_000, 60_000];
const VALUE_BYTES: usize = 100;

const COMPETITORS: &[&str] = &["hedgerow", "lmdb", "redb"];

/// Cases of all lengths, without phases.
fn cases(size: Size) -> Vec<Case> {
    let payload = match size {
        Size::Smoke => 256 << 10,
        Size::Small => 16 << 20,
        Size::Full => 64 << 20,
    };
    let of = |bytes: u32, alike: bool| {
        let mut case = case(size, 1, 1 << 30);
        let differ = if alike { "last" } else { "first" };
        case.name = format!("{bytes} bytes, {differ} differ");
        case.keys = if alike { "alike" } else { "long" };
        case.kind = KeyKind::Long { bytes, alike };
        case.value_bytes = VALUE_BYTES;
        case.count = (payload / (bytes as usize + VALUE_BYTES)).max(16);
        case.memory_limit_bytes = Some((6 * payload as u64).max(64 << 20));
        case
    };
    LENGTHS.into_iter().flat_map(|bytes| [of(bytes, false), of(bytes, true)]).collect()
}

/// Loads, gets, scans and overwrites, one by one.
pub fn rates(size: Size) -> Experiment {
    let mut cases = cases(size);
    for case in &mut cases {
        let gets = (2 * case.count).clamp(1_000, 500_000);
        let scans = (case.count / 20).clamp(20, 10_000);
        case.phases = vec![
            settle("settle"),
            phase("get", GET, gets),
            phase("scan 100", SCAN_100, scans),
            phase("overwrite", PUT, case.count),
        ];
    }
    Experiment {
        name: "product-long-keys",
        claim: "no cliff between keys of 100 bytes and of 60,000",
        figure: Figure::Rate,
        competitors: COMPETITORS,
        skips: &[],
        cases,
    }
}

/// What files take for each byte of keys and values, after loads at random.
pub fn space(size: Size) -> Experiment {
    let mut cases = cases(size);
    for case in &mut cases {
        case.phases = vec![settle("loaded, settled")];
    }
    Experiment {
        name: "product-long-keys-space",
        claim: "files stay near the size of their records, however long their keys are",
        figure: Figure::Space,
        competitors: COMPETITORS,
        skips: &[],
        cases,
    }
}
