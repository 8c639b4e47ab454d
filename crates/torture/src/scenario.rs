//! What is drawn from a seed before a round begins: the geometry of a store, its memory, how much is done to it,
//! and the call to the disk that fails. And the dice for the rest. Plain values.

use crate::seed::{Drawn, mix};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Error, LeafLayout, LeafPolicy, Options};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::{CallKind, Effect, Fault};
use std::path::Path;

/// To be raised whenever a seed leads to another scenario, or the steps of `rounds.rs` roll their dice in another order.
/// What then happens to a store is also a matter of the engine: which call to the disk is the fortieth, say. So the digests that tests
/// have pinned are those of scenarios and steps; what is rolled in a recovery nobody notices but who changes it.
pub const SCENARIOS: Drawn = Drawn { what: "scenarios", version: 4 };

/// Where the store lies on its disk.
const PATH: &str = "/simulated/store.hrow";

/// Dice (SplitMix64).
pub struct Dice(pub u64);

impl Dice {
    /// 64 bits.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.roll() % end.max(1)
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// All that a seed decides on beforehand.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed itself.
    pub seed: u64,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Bytes of a zone, if not as usual.
    pub zone_bytes: Option<u32>,
    /// Blocks of a segment of the log.
    pub segment_blocks: u32,
    /// The memory limit.
    pub memory_bytes: u64,
    /// How leaves get their layouts.
    pub leaves: LeafPolicy,
    /// Keys that there are.
    pub keys: u64,
    /// The longest value but for the large ones.
    pub value_bytes: u64,
    /// Some values are up to so long, which no leaf holds.
    pub large_bytes: Option<u64>,
    /// One change in so many is waited for.
    pub sync_every: u64,
    /// Openings, each of which a power cut ends.
    pub sessions: u64,
    /// Steps of each.
    pub steps: u64,
    /// After one step in so many the power goes.
    pub cut_every: u64,
    /// A call that fails, once or from then on, in the last session, and what it does all the same.
    pub fault: Option<Fault>,
}

impl Scenario {
    /// What a seed decides on.
    pub fn draw(seed: u64) -> Scenario {
        let mut dice = Dice(mix(seed));
        let page_bytes = dice.pick(&[512, 512, 1024, 2048, 4096]);
        // Far more than what may be put, so that nothing is evicted.
        let extra_bytes = dice.pick(&[1 << 20, 2 << 20, 4 << 20]);
        let fixed = [
            LeafLayout::Comparison,
            LeafLayout::Fingerprint,
            LeafLayout::SemiDense,
            LeafLayout::FullyDense,
        ];
        let leaves = match dice.below(3) {
            0 => LeafPolicy::Fixed(dice.pick(&fixed)),
            _ => LeafPolicy::Adaptive,
        };
        let kinds = [
            (CallKind::Write, Fault::EIO),
            (CallKind::Write, Fault::ENOSPC),
            (CallKind::Allocate, Fault::ENOSPC),
            (CallKind::SyncData, Fault::EIO),
            (CallKind::SetLen, Fault::EIO),
            (CallKind::SetLen, Fault::ENOSPC),
            (CallKind::PunchHole, Fault::EIO),
            (CallKind::SyncAll, Fault::EIO),
        ];
        let (kind, errno) = dice.pick(&kinds);
        // The others are rare, and few.
        let most = if matches!(kind, CallKind::Write | CallKind::SyncData) { 60 } else { 3 };
        let fault = Fault::once(kind, dice.below(most), errno);
        let fault = if dice.below(3) == 0 { fault.sticky() } else { fault };
        let effects =
            [None, None, Some(Effect::Nothing), Some(Effect::Partly), Some(Effect::Fully)];
        let fault = match dice.pick(&effects) {
            Some(effect) => fault.with_effect(effect),
            // The worst that there is: a sync that fails loses what it should have made durable.
            None => fault,
        };
        Scenario {
            seed,
            page_bytes,
            zone_bytes: dice.pick(&[None, Some(32 << 10), Some(64 << 10)]),
            segment_blocks: dice.pick(&[6, 6, 16]),
            memory_bytes: hedgerow::smallest_memory_limit_bytes(page_bytes) + extra_bytes,
            leaves,
            keys: dice.pick(&[20, 200, 900]),
            value_bytes: dice.pick(&[8, 30, 60]),
            large_bytes: (dice.below(2) == 0).then_some(20_000),
            sync_every: dice.pick(&[2, 10, 40]),
            sessions: 1 + dice.below(3),
            steps: dice.pick(&[20, 60, 120]),
            cut_every: dice.pick(&[4, 8, 16]),
            fault: (dice.below(2) == 0).then_some(fault),
        }
    }

    fn options(&self) -> Options {
        let options = Options::new()
            .page_bytes(self.page_bytes)
            .memory_limit_bytes(self.memory_bytes)
            .leaves(self.leaves)
            .log_segment_blocks(self.segment_blocks)
            .background_checkpoints(false);
        match self.zone_bytes {
            Some(bytes) => options.zone_bytes(bytes),
            None => options,
        }
    }

    /// Opens the store of a disk.
    pub fn open(&self, disk: &SimDisk, how: OpenHow) -> Result<Database, Error> {
        self.options().on_disk(disk, Path::new(PATH), how)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::digest;

    #[test]
    fn whoever_changes_what_a_seed_leads_to_raises_the_version() {
        let drawn: Vec<String> =
            (0..64).map(|seed| format!("{:?}", Scenario::draw(seed))).collect();
        let pinned = (SCENARIOS.version, digest(&drawn.join("\n")));
        assert_eq!(
            pinned,
            (4, 11_542_553_287_590_899_659),
            "raise `SCENARIOS`, then pin the new digest"
        );
    }
}
