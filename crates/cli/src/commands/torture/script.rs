//! What the writers do: the n-th change of a thread is a function of seed, thread and n, so that parent and child
//! agree on it without a word.
//!
//! Each value says which change of which thread wrote it, and how many changes of each thread were done when it
//! began. So what is left can be checked across threads: if a change is there, all are that were done before it
//! began. Plain functions; no state.

use super::seed::{Drawn, mix};
use hedgerow::Options;
use std::collections::BTreeMap;
use std::time::Duration;

/// To be raised whenever a seed leads to other changes.
pub const SCRIPTS: Drawn = Drawn { what: "scripts", version: 1 };

/// Threads of a child.
pub const THREADS: usize = 3;
/// Keys of each thread.
const KEYS: u64 = 700;
/// The keyspace.
pub const KEYSPACE: &str = "torture";

/// How many changes of each thread are done.
pub type Clock = [u64; THREADS];
/// What a thread's keys hold: the change that wrote the value.
pub type State = BTreeMap<Vec<u8>, u64>;

/// A store that is far larger than its memory, unless that is given, and whose log is used up soon.
pub fn options(memory_limit_bytes: Option<u64>) -> Options {
    Options::new()
        .memory_limit_bytes(memory_limit_bytes.unwrap_or(1 << 20))
        .checkpoint_bytes(1 << 20)
        .log_limit_bytes(4 << 20)
        .log_interval(Duration::from_millis(10))
}

/// One change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The keys: of a batch, if there are several.
    pub keys: Vec<Vec<u8>>,
    /// The value's length; `None` removes the records.
    pub value_bytes: Option<usize>,
    /// Whether it is durable when it is acknowledged.
    pub sync: bool,
}

/// The change number `number` (from 1) of a thread.
pub fn change(seed: u64, thread: usize, number: u64) -> Change {
    let dice = mix(seed ^ mix(number.wrapping_mul(THREADS as u64) + thread as u64));
    // Some keys are hot, and some parts of the key space empty for a while.
    let first = if dice.is_multiple_of(4) { dice >> 8 & 15 } else { (dice >> 8) % KEYS };
    // A few neighbours, or many keys all over: more than one buffer of the log.
    let others = match dice >> 45 & 31 {
        0 => (dice >> 52) % 300,
        1 | 2 => (dice >> 52) % 6,
        _ => 0,
    };
    let spread = if others > 6 { 37 } else { 1 };
    let key = |n: u64| {
        let key = (first + n * spread) % KEYS;
        format!("{thread}/{:03}/bird-{key:06}", key % 7).into_bytes()
    };
    let is_removal = dice >> 24 & 7 == 0 || (number / 5000 % 2 == 1 && dice >> 24 & 1 == 0);
    let most = if dice >> 40 & 31 == 0 { 900 } else { 120 };
    Change {
        keys: (0..=others).map(key).collect(),
        value_bytes: (!is_removal).then_some(8 * (THREADS + 1) + (dice >> 48) as usize % most),
        sync: dice >> 32 & 63 == 0,
    }
}

/// The value that a change writes.
pub fn value(number: u64, clock: &Clock, len: usize) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    for done in clock {
        value.extend_from_slice(&done.to_le_bytes());
    }
    value.resize(len, number as u8);
    value
}

/// Change and clock of a value, if it is whole.
pub fn read_value(value: &[u8]) -> Option<(u64, Clock)> {
    let word = |at: usize| value[8 * at..8 * at + 8].try_into().map(u64::from_le_bytes).ok();
    if value.len() < 8 * (THREADS + 1) {
        return None;
    }
    let number = word(0)?;
    let mut clock = Clock::default();
    for (thread, done) in clock.iter_mut().enumerate() {
        *done = word(thread + 1)?;
    }
    (value == self::value(number, &clock, value.len())).then_some((number, clock))
}

#[cfg(test)]
mod tests {
    use super::super::seed::digest;
    use super::*;

    #[test]
    fn whoever_changes_what_a_seed_leads_to_raises_the_version() {
        let numbers = || (1..200).chain(4_900..5_100);
        let of = |thread: usize| numbers().map(move |number| change(7, thread, number));
        let drawn: Vec<Change> = (0..THREADS).flat_map(of).collect();
        let value = value(9, &[1, 2, 3], 50);
        let pinned = (SCRIPTS.version, digest(&format!("{drawn:?} {value:?}")));
        assert_eq!(
            pinned,
            (1, 6_287_187_768_179_909_462),
            "raise `SCRIPTS`, then pin the new digest"
        );
    }
}
