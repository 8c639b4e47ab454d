//! Histories of a small store in memory whose transactions are interleaved at random, step by step: with locks, with snapshots,
//! with snapshots whose reads are validated, and with one thing left out of each. What keeps a level passes at it, and what
//! does not is found out by some seed.

use super::*;
use hedgerow_sync::primitive::random::SplitMix64;
use std::collections::BTreeSet;

const KEYS: u64 = 5;
const CLIENTS: usize = 4;

/// How the store keeps transactions apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// Locks of keys, those of absent ones included, which are kept to the end.
    Locks,
    /// Locks that readers give back at once.
    ShortReadLocks,
    /// Snapshots; of two that write the same key one fails.
    Snapshots,
    /// Snapshots that are somewhat old.
    OldSnapshots,
    /// Snapshots, and nobody fails.
    SnapshotsUnchecked,
    /// Snapshots; who has read what has changed since fails.
    Validated,
    /// The same of keys that were found alone.
    ValidatedWithoutRanges,
    /// Validated, and made key by key.
    MadeByParts,
    /// No rule at all.
    None,
}

impl Rule {
    fn has_snapshots(self) -> bool {
        !matches!(self, Rule::Locks | Rule::ShortReadLocks | Rule::None)
    }
}

/// A client, and what it is at.
struct Client {
    recorder: Recorder,
    open: Option<Open>,
    /// Steps until it commits.
    left: u64,
    /// The commits that it sees.
    snapshot: u64,
    reads: BTreeSet<u64>,
    found: BTreeSet<u64>,
    writes: BTreeMap<u64, State>,
    /// Changes that are being made.
    making: Vec<(u64, State)>,
}

/// The store with its clients.
struct World {
    rule: Rule,
    random: SplitMix64,
    /// Of each key its versions with the commits that made them.
    versions: BTreeMap<u64, Vec<(u64, State)>>,
    commits: u64,
    clients: Vec<Client>,
}

fn run(rule: Rule, seed: u64, transactions: u64) -> History {
    let clock = Clock::default();
    let mut random = SplitMix64::new(seed);
    let before: BTreeMap<u64, Token> = (0..KEYS)
        .filter(|_| random.below(2) == 0)
        .map(|key| (key, Token::new(1 << 47, key as u32)))
        .collect();
    let client = |thread| Client {
        recorder: Recorder::new(thread, &clock),
        open: None,
        left: 0,
        snapshot: 0,
        reads: BTreeSet::new(),
        found: BTreeSet::new(),
        writes: BTreeMap::new(),
        making: Vec::new(),
    };
    let versions = (0..KEYS).map(|key| (key, vec![(0, before.get(&key).copied())])).collect();
    let clients = (0..CLIENTS as u32).map(client).collect();
    let mut world = World { rule, random, versions, commits: 0, clients };
    let mut begun = 0;
    while begun < transactions || world.clients.iter().any(|client| client.open.is_some()) {
        let at = world.random.below(CLIENTS as u64) as usize;
        if world.clients[at].open.is_some() {
            world.go_on(at);
        } else if begun < transactions {
            begun += 1;
            world.begin(at);
        }
    }
    let parts = world.clients.iter_mut().flat_map(|client| client.recorder.take());
    History { before, transactions: parts.collect() }
}

impl World {
    fn begin(&mut self, at: usize) {
        let old = if self.rule == Rule::OldSnapshots { self.random.below(3) } else { 0 };
        let left = 1 + self.random.below(5);
        let client = &mut self.clients[at];
        client.open = Some(client.recorder.begin());
        client.left = left;
        client.snapshot = self.commits.saturating_sub(old);
    }

    /// What a client finds under a key.
    fn state(&self, at: usize, key: u64) -> State {
        let client = &self.clients[at];
        if let Some(own) = client.writes.get(&key) {
            return *own;
        }
        let until = if self.rule.has_snapshots() { client.snapshot } else { u64::MAX };
        let seen = self.versions[&key].iter().rev().find(|(commit, _)| *commit <= until);
        seen.expect("there is a first one").1
    }

    /// Whether others keep a client from reading or writing a key.
    fn is_locked(&self, at: usize, key: u64, to_write: bool) -> bool {
        let kept = match self.rule {
            Rule::Locks => true,
            Rule::ShortReadLocks => false,
            _ => return false,
        };
        let others = self.clients.iter().enumerate().filter(|(other, _)| *other != at);
        others.map(|(_, other)| other).any(|other| {
            other.writes.contains_key(&key) || kept && to_write && other.reads.contains(&key)
        })
    }

    fn go_on(&mut self, at: usize) {
        if let Some((key, state)) = self.clients[at].making.pop() {
            self.make(key, state);
            if self.clients[at].making.is_empty() {
                self.end(at, Outcome::Committed);
            }
            return;
        }
        if self.clients[at].left == 0 {
            return self.commit(at);
        }
        let key = self.random.below(KEYS);
        let kind = self.random.below(10);
        let (low, high) = if kind < 3 { (key, KEYS - 1) } else { (key, key) };
        if (low..=high).any(|key| self.is_locked(at, key, kind >= 6)) {
            // Whoever waits for ever gives up.
            if self.random.below(6) == 0 {
                self.end(at, Outcome::Aborted);
            }
            return;
        }
        let mut states = (low..=high).map(|key| (key, self.state(at, key)));
        let found: Vec<(u64, Token)> =
            states.by_ref().filter_map(|(key, state)| Some((key, state?))).collect();
        let state = self.state(at, key);
        let client = &mut self.clients[at];
        let open = client.open.as_mut().expect("it has begun");
        client.left -= 1;
        match kind {
            0..3 => {
                open.step(Step::Range { low, high, found: found.clone() });
                client.reads.extend(low..=high);
                client.found.extend(found.iter().map(|(key, _)| key));
            }
            3..6 => {
                open.step(Step::Read { key, found: state });
                client.reads.insert(key);
                client.found.insert(key);
            }
            _ => {
                let is_seen = self.random.below(3) > 0;
                let over = if is_seen { Over::Seen(state) } else { Over::Unknown };
                if is_seen {
                    client.reads.insert(key);
                    client.found.insert(key);
                }
                let new = (kind < 9).then(|| open.token());
                open.step(match new {
                    Some(token) => Step::Put { key, token, over },
                    None => Step::Remove { key, over },
                });
                client.writes.insert(key, new);
                if self.rule == Rule::None {
                    self.make(key, new);
                }
            }
        }
    }

    /// Makes a change that all see who begin later.
    fn make(&mut self, key: u64, state: State) {
        self.commits += 1;
        self.versions.entry(key).or_default().push((self.commits, state));
    }

    fn commit(&mut self, at: usize) {
        let client = &self.clients[at];
        let checked: BTreeSet<u64> = match self.rule {
            Rule::Snapshots | Rule::OldSnapshots => client.writes.keys().copied().collect(),
            Rule::Validated | Rule::MadeByParts => {
                &client.reads | &client.writes.keys().copied().collect()
            }
            Rule::ValidatedWithoutRanges => client.found.clone(),
            _ => BTreeSet::new(),
        };
        let has_changed = |key: &u64| {
            let last = self.versions[key].last().expect("there is a first one");
            last.0 > client.snapshot
        };
        if self.random.clone().below(12) == 0 || checked.iter().any(has_changed) {
            let _drawn = self.random.next_u64();
            return self.end(at, Outcome::Aborted);
        }
        let _drawn = self.random.next_u64();
        let writes: Vec<_> = client.writes.iter().map(|(key, state)| (*key, *state)).collect();
        match self.rule {
            Rule::None => {}
            Rule::MadeByParts if writes.len() > 1 => {
                self.clients[at].making = writes;
                return;
            }
            _ => {
                self.commits += 1;
                for (key, state) in writes {
                    self.versions.entry(key).or_default().push((self.commits, state));
                }
            }
        }
        // Some callers never learn of it.
        let outcome = match self.random.below(8) {
            0 => Outcome::Unknown,
            _ => Outcome::Committed,
        };
        self.end(at, outcome);
    }

    fn end(&mut self, at: usize, outcome: Outcome) {
        let outcome = match (outcome, self.random.below(4)) {
            (Outcome::Aborted, 0) => Outcome::Unknown,
            _ => outcome,
        };
        let client = &mut self.clients[at];
        let open = client.open.take().expect("it has begun");
        client.recorder.end(open, outcome);
        client.reads.clear();
        client.found.clear();
        client.writes.clear();
    }
}

/// Asserts that a rule keeps a level, whatever the interleaving.
fn assert_keeps(rule: Rule, level: Level) {
    let mut random = SplitMix64::new(rule as u64);
    let mut sum = Tally::default();
    for _ in 0..300 {
        let seed = random.next_u64();
        let checked = run(rule, seed, 60).check(level);
        let tally =
            checked.unwrap_or_else(|violation| panic!("seed {seed}, {rule:?}: {violation}"));
        sum.transactions += tally.transactions;
        sum.dependencies += tally.dependencies;
    }
    let Tally { transactions, dependencies, .. } = sum;
    println!("{rule:?} keeps {level:?}: {transactions} transactions, {dependencies} dependencies");
    assert!(sum.transactions > 5_000 && sum.dependencies > sum.transactions, "{sum:?}");
}

/// Asserts that histories of a rule are refused at a level, for one of these reasons, and more often than one in so many.
fn assert_breaks(rule: Rule, level: Level, anomalies: &[Anomaly], one_in: usize) {
    let mut random = SplitMix64::new(rule as u64);
    let mut found = BTreeMap::new();
    for _ in 0..300 {
        let seed = random.next_u64();
        if let Err(violation) = run(rule, seed, 60).check(level) {
            let is_expected = anomalies.contains(&violation.anomaly);
            assert!(is_expected, "seed {seed}, {rule:?}: {violation}");
            *found.entry(format!("{:?}", violation.anomaly)).or_insert(0) += 1;
        }
    }
    println!("{rule:?} breaks {level:?}: {found:?}");
    let refused: usize = found.values().sum();
    assert!(refused * one_in > 300, "{rule:?}, {level:?}: {found:?}");
}

#[test]
fn transactions_with_locks_are_strictly_serializable() {
    for level in [
        Level::ReadCommitted,
        Level::SnapshotIsolation,
        Level::StrongSnapshotIsolation,
        Level::Serializable,
        Level::StrictSerializable,
    ] {
        assert_keeps(Rule::Locks, level);
    }
}

#[test]
fn reads_of_what_is_committed_are_not_repeated() {
    assert_keeps(Rule::ShortReadLocks, Level::ReadCommitted);
    let anomalies = [
        Anomaly::GSingle,
        Anomaly::LostUpdate,
        Anomaly::GNonadjacent,
        Anomaly::G2Item,
        Anomaly::G2,
    ];
    assert_breaks(Rule::ShortReadLocks, Level::SnapshotIsolation, &anomalies, 2);
}

#[test]
fn snapshots_have_write_skew_and_nothing_else() {
    assert_keeps(Rule::Snapshots, Level::ReadCommitted);
    assert_keeps(Rule::Snapshots, Level::SnapshotIsolation);
    assert_keeps(Rule::Snapshots, Level::StrongSnapshotIsolation);
    assert_breaks(Rule::Snapshots, Level::Serializable, &[Anomaly::G2Item, Anomaly::G2], 2);
}

#[test]
fn old_snapshots_are_found_out_in_time_alone() {
    assert_keeps(Rule::OldSnapshots, Level::SnapshotIsolation);
    // Whose removal an old absence is taken for may make something else of it.
    let anomalies =
        [Anomaly::GSingle, Anomaly::GNonadjacent, Anomaly::NeverRemoved, Anomaly::LostUpdate];
    assert_breaks(Rule::OldSnapshots, Level::StrongSnapshotIsolation, &anomalies, 2);
}

#[test]
fn who_validates_what_he_read_is_strictly_serializable() {
    assert_keeps(Rule::Validated, Level::StrictSerializable);
    assert_keeps(Rule::Validated, Level::StrongSnapshotIsolation);
    let phantoms = [
        Anomaly::LostUpdate,
        Anomaly::G2Item,
        Anomaly::G2,
        Anomaly::GSingle,
        Anomaly::GNonadjacent,
    ];
    assert_breaks(Rule::ValidatedWithoutRanges, Level::StrictSerializable, &phantoms, 4);
}

#[test]
fn what_is_left_out_is_found_out() {
    let lost = [Anomaly::LostUpdate, Anomaly::GSingle, Anomaly::G0, Anomaly::G1c];
    assert_breaks(Rule::SnapshotsUnchecked, Level::SnapshotIsolation, &lost, 2);
    let half = [
        Anomaly::GSingle,
        Anomaly::GNonadjacent,
        Anomaly::LostUpdate,
        Anomaly::G0,
        Anomaly::G1c,
        Anomaly::G2Item,
        Anomaly::G2,
    ];
    assert_breaks(Rule::MadeByParts, Level::Serializable, &half, 4);
    let dirty = [
        Anomaly::G0,
        Anomaly::G1a,
        Anomaly::G1b,
        Anomaly::G1c,
        Anomaly::Internal,
        Anomaly::NeverRemoved,
    ];
    assert_breaks(Rule::None, Level::ReadCommitted, &dirty, 2);
}
