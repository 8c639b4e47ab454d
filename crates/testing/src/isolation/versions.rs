//! From the steps of a history to its versions, and from these to the dependencies between its transactions.
//!
//! In this order: versions by key, and who counts; then for each transaction which version each read has found, with the
//! violations that need no cycle, the edges `wr` and `ww`, and which version directly follows which; then from each
//! read `rw` edges to the versions that are known to come after; then edges of time; then cycles.
//!
//! # Invariants
//! - Versions number 0 and up are those that the keys began with, by the numbers of the keys; then come those that
//!   transactions have left, the last one of each key. Who wrote over his own version has left none of it.
//! - An edge is one that every order of the versions has, or one that no order can do without: who reads a version and changes
//!   its key has written over it, or else he and whoever came in between make a cycle of less than two `rw`.
//! - Moments are one more than those of the history; what was there before is of moment 0.
//!
//! Thread-safety: plain data.

use super::report::{self, Finding};
use super::walk::{Known, Walk};
use super::{Anomaly, History, Level, Outcome, Over, State, Step, Tally, Token, Violation};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// No version, no transaction.
pub(super) const NONE: u32 = u32::MAX;

/// A version of a key, or its absence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    pub(super) key: u32,
    /// The transaction; [`NONE`] of what was there before.
    pub(super) writer: u32,
    pub(super) state: State,
    began: u64,
    ended: u64,
}

/// A hash of numbers that nobody chooses to collide: a multiplication, the upper half of which goes into the lower one.
#[derive(Default)]
pub(super) struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

type Numbers<K, V> = HashMap<K, V, BuildHasherDefault<Mixed>>;

/// Where a token comes from.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub(super) writer: u32,
    pub(super) key: u32,
    /// [`NONE`] if its transaction wrote over it, or was aborted.
    pub(super) version: u32,
}

/// A version that a transaction has read, of another one or of before.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) reader: u32,
    pub(super) version: u32,
    /// Whether it was absent from a range.
    pub(super) missed: bool,
}

/// What an edge is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Ww,
    Wr,
    /// Or its first half, to the node of a version's successors.
    Rw,
    /// The second half.
    RwOn,
    /// To, from or between the moments at which somebody has ended.
    Time,
}

/// An edge between transactions, or with one of the nodes behind them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) kind: Kind,
    /// The version that was written (`ww`), read (`wr`) or written over the one that was read (`rw`).
    pub(super) version: u32,
}

/// The changes of a key, by the beginnings of their transactions.
#[derive(Default)]
struct Timeline {
    versions: Vec<u32>,
    began: Vec<u64>,
    /// The earliest end of this one and all later ones.
    first_end: Vec<u64>,
    /// Those that are absences, those of unknown transactions included, with the moment from which on another version
    /// is known to have taken their place; and the latest such moment of this one and all earlier ones.
    absences: Vec<(u32, u64, u64)>,
}

/// See the head of the file.
pub(super) struct Analysis<'h> {
    pub(super) history: &'h History,
    pub(super) level: Level,
    /// Whether time tells which version of a key came first.
    in_time: bool,
    pub(super) keys: Vec<u64>,
    numbers: Numbers<u64, u32>,
    pub(super) versions: Vec<Version>,
    /// Where each transaction's versions begin.
    first_version: Vec<u32>,
    pub(super) tokens: Numbers<Token, Source>,
    /// Who counts.
    pub(super) counts: Vec<bool>,
    timelines: Vec<Timeline>,
    pub(super) seen: Vec<Seen>,
    pub(super) edges: Vec<Edge>,
    /// Of each version the one that was written over it.
    pub(super) next: Vec<u32>,
    pub(super) has_previous: Vec<bool>,
    pub(super) tally: Tally,
}

/// See [`History::check`].
pub(super) fn check(history: &History, level: Level, in_time: bool) -> Result<Tally, Violation> {
    let mut analysis = Analysis::new(history, level, in_time);
    analysis.find_versions();
    analysis.count_readers_of_unknown();
    loop {
        analysis.set_timelines();
        match analysis.follow_reads() {
            Ok(news) if news.is_empty() => break,
            // Unknown transactions that have removed what was found absent.
            Ok(news) => {
                news.iter().for_each(|transaction| analysis.counts[*transaction as usize] = true);
                analysis.count_readers_of_unknown();
            }
            Err(finding) => return Err(report::single(&analysis, finding)),
        }
    }
    if level != Level::ReadCommitted {
        analysis.follow_writes().map_err(|finding| report::single(&analysis, finding))?;
    }
    analysis.tally.dependencies = analysis.edges.len() as u64;
    let nodes = analysis.add_time();
    report::cycles(&analysis, nodes)?;
    Ok(analysis.tally)
}

/// A moment, one later, so that there is one before all.
fn later(moment: u64) -> u64 {
    moment.saturating_add(1)
}

impl<'h> Analysis<'h> {
    fn new(history: &'h History, level: Level, in_time: bool) -> Analysis<'h> {
        let mut keys: Vec<u64> = history.before.keys().copied().collect();
        for step in history.transactions.iter().flat_map(|transaction| &transaction.steps) {
            match step {
                Step::Read { key, .. } | Step::Put { key, .. } | Step::Remove { key, .. } => {
                    keys.push(*key);
                }
                Step::Range { found, .. } => keys.extend(found.iter().map(|(key, _)| *key)),
            }
        }
        keys.sort_unstable();
        keys.dedup();
        let numbers = keys.iter().zip(0..).map(|(key, number)| (*key, number)).collect();
        let of_outcome = history.transactions.iter();
        let counts = of_outcome.map(|one| one.outcome == Outcome::Committed).collect();
        Analysis {
            history,
            level,
            in_time,
            keys,
            numbers,
            versions: Vec::new(),
            first_version: Vec::new(),
            tokens: Numbers::default(),
            counts,
            timelines: Vec::new(),
            seen: Vec::new(),
            edges: Vec::new(),
            next: Vec::new(),
            has_previous: Vec::new(),
            tally: Tally::default(),
        }
    }

    pub(super) fn number(&self, key: u64) -> u32 {
        self.numbers[&key]
    }

    fn find_versions(&mut self) {
        let history = self.history;
        let before = |(key, number): (&u64, u32)| Version {
            key: number,
            writer: NONE,
            state: history.before.get(key).copied(),
            began: 0,
            ended: 0,
        };
        self.versions = self.keys.iter().zip(0..).map(before).collect();
        for version in 0..self.versions.len() as u32 {
            let Version { key, writer, state, .. } = self.versions[version as usize];
            if let Some(token) = state {
                self.add_token(token, Source { writer, key, version });
            }
        }
        let mut last = vec![NONE; self.keys.len()];
        for (writer, transaction) in (0..).zip(&history.transactions) {
            self.first_version.push(self.versions.len() as u32);
            let is_aborted = transaction.outcome == Outcome::Aborted;
            for step in transaction.steps.iter().rev() {
                let (key, state) = match *step {
                    Step::Put { key, token, .. } => (self.number(key), Some(token)),
                    Step::Remove { key, .. } => (self.number(key), None),
                    Step::Read { .. } | Step::Range { .. } => continue,
                };
                let is_last = last[key as usize] != writer && !is_aborted;
                last[key as usize] = writer;
                let version = if is_last { self.versions.len() as u32 } else { NONE };
                if let Some(token) = state {
                    assert_eq!(token.transaction(), transaction.id, "somebody else's token");
                    self.add_token(token, Source { writer, key, version });
                }
                if is_last {
                    let (began, ended) = (later(transaction.began), later(transaction.ended));
                    self.versions.push(Version { key, writer, state, began, ended });
                }
            }
        }
        self.first_version.push(self.versions.len() as u32);
    }

    fn add_token(&mut self, token: Token, source: Source) {
        let earlier = self.tokens.insert(token, source);
        assert!(earlier.is_none(), "{token} was put twice");
    }

    /// Lets unknown transactions count of whose versions somebody has read who counts.
    fn count_readers_of_unknown(&mut self) {
        let history = self.history;
        let is_unknown = |one: u32| history.transactions[one as usize].outcome == Outcome::Unknown;
        if !(0..self.counts.len() as u32).any(is_unknown) {
            return;
        }
        let all = 0..self.counts.len() as u32;
        let mut pending: Vec<u32> = all.filter(|one| self.counts[*one as usize]).collect();
        while let Some(one) = pending.pop() {
            let Analysis { tokens, counts, .. } = self;
            let mut note = |token: &Token| {
                let source = tokens.get(token).filter(|source| source.writer != NONE);
                if let Some(Source { writer, .. }) = source
                    && is_unknown(*writer)
                    && !std::mem::replace(&mut counts[*writer as usize], true)
                {
                    pending.push(*writer);
                }
            };
            for step in &history.transactions[one as usize].steps {
                match step {
                    Step::Read { found, .. } => found.iter().for_each(&mut note),
                    Step::Range { found, .. } => found.iter().for_each(|(_, token)| note(token)),
                    Step::Put { over, .. } | Step::Remove { over, .. } => {
                        if let Over::Seen(Some(token)) = over {
                            note(token);
                        }
                    }
                }
            }
        }
    }

    fn set_timelines(&mut self) {
        self.timelines = (0..self.keys.len()).map(|_| Timeline::default()).collect();
        for (number, version) in (0..).zip(&self.versions) {
            let timeline = &mut self.timelines[version.key as usize];
            let is_before = version.writer == NONE;
            if !is_before && self.counts[version.writer as usize] {
                timeline.versions.push(number);
            }
            if version.state.is_none() {
                timeline.absences.push((number, 0, 0));
            }
        }
        for timeline in &mut self.timelines {
            let versions = &self.versions;
            let began = |version: &u32| versions[*version as usize].began;
            timeline.versions.sort_by_key(began);
            timeline.began = timeline.versions.iter().map(began).collect();
            let ends = timeline.versions.iter().rev().map(|one| versions[*one as usize].ended);
            let first = ends.scan(u64::MAX, |first, end| {
                *first = end.min(*first);
                Some(*first)
            });
            timeline.first_end = first.collect();
            timeline.first_end.reverse();
            let mut absences = std::mem::take(&mut timeline.absences);
            absences.sort_by_key(|(version, ..)| began(version));
            let mut latest = 0;
            for (version, gone, latest_gone) in &mut absences {
                *gone = timeline.after(versions[*version as usize].ended).1;
                latest = latest.max(*gone);
                *latest_gone = latest;
            }
            timeline.absences = absences;
        }
    }

    /// The one absence that a transaction can have seen: `None` if it may have been several, an error if none.
    pub(super) fn absence(&self, reader: u32, key: u32) -> Result<Option<u32>, ()> {
        let transaction = &self.history.transactions[reader as usize];
        let (began, ended) = (later(transaction.began), later(transaction.ended));
        let absences = &self.timelines[key as usize].absences;
        let is_later = |version: u32| self.in_time && self.versions[version as usize].began > ended;
        let to = absences.partition_point(|(version, ..)| !is_later(*version));
        let mut found = None;
        for (version, gone, latest_gone) in absences[..to].iter().rev() {
            if self.in_time && *latest_gone < began {
                break;
            }
            let is_gone = self.in_time && *gone < began;
            if self.versions[*version as usize].writer == reader || is_gone {
                continue;
            }
            if found.is_some() {
                return Ok(None);
            }
            found = Some(*version);
        }
        found.map(Some).ok_or(())
    }

    /// Goes through the steps of all who count. Returns unknown ones that have to count, too, and then what was found
    /// so far is nothing.
    fn follow_reads(&mut self) -> Result<Vec<u32>, Finding> {
        self.seen.clear();
        self.edges.clear();
        self.tally = Tally::default();
        self.next = vec![NONE; self.versions.len()];
        self.has_previous = vec![false; self.versions.len()];
        let mut known = vec![Known::NOTHING; self.keys.len()];
        let mut own = vec![(NONE, NONE); self.keys.len()];
        let mut news = Vec::new();
        let history = self.history;
        for (one, transaction) in (0..).zip(&history.transactions) {
            if !self.counts[one as usize] {
                continue;
            }
            self.tally.transactions += 1;
            let versions = self.first_version[one as usize]..self.first_version[one as usize + 1];
            for version in versions {
                own[self.versions[version as usize].key as usize] = (one, version);
            }
            let (known, own, news) = (&mut known, &own, &mut news);
            let mut walk = Walk { analysis: self, one, known, own, news };
            transaction.steps.iter().try_for_each(|step| walk.step(step))?;
        }
        Ok(news)
    }

    /// Adds an edge from each reader of a version to who wrote a later one.
    fn follow_writes(&mut self) -> Result<(), Finding> {
        let mut edges = std::mem::take(&mut self.edges);
        let mut fans: HashMap<u32, u32> = HashMap::new();
        let mut nodes = self.history.transactions.len() as u32;
        for at in 0..self.seen.len() {
            let Seen { reader, version, .. } = self.seen[at];
            let Version { key, writer, ended, .. } = self.versions[version as usize];
            let timeline = &self.timelines[key as usize];
            let next = self.next[version as usize];
            let edge = |version: u32| Edge {
                from: reader,
                to: self.versions[version as usize].writer,
                kind: Kind::Rw,
                version,
            };
            if next != NONE && edge(next).to != reader {
                edges.push(edge(next));
            }
            let later_ones = |versions: &[u32]| {
                let others = versions.iter().filter(|one| **one != next);
                others.map(|one| edge(*one)).filter(|edge| edge.to != reader).collect::<Vec<_>>()
            };
            if self.in_time {
                let (from, gone) = timeline.after(ended);
                let began = later(self.history.transactions[reader as usize].began);
                if !self.level.is_in_time() && gone < began {
                    let mut newer = timeline.versions[from..].iter();
                    let newer = newer.find(|one| self.versions[**one as usize].ended == gone);
                    let newer = newer.expect("it is the end of one of them");
                    return Err(Finding {
                        anomaly: Anomaly::Stale,
                        what: format!(
                            "{}, but {} had been there before",
                            report::read(self, reader, version),
                            report::show(self, *newer)
                        ),
                        who: vec![reader, writer, self.versions[*newer as usize].writer],
                    });
                }
                // Those that come after one of these come after it by time as well.
                let to = timeline.began.partition_point(|began| *began <= gone);
                edges.extend(later_ones(&timeline.versions[from..to.max(from)]));
            } else if writer == NONE {
                let heads = || {
                    let all = timeline.versions.iter().copied();
                    all.filter(|one| !self.has_previous[*one as usize]).collect::<Vec<_>>()
                };
                if next != NONE && self.versions[next as usize].writer == reader {
                    edges.extend(later_ones(&heads()));
                    continue;
                }
                // They are many, and the readers are many.
                let fan = *fans.entry(key).or_insert_with(|| {
                    nodes += 1;
                    edges.extend(heads().into_iter().map(|version| Edge {
                        from: nodes - 1,
                        to: self.versions[version as usize].writer,
                        kind: Kind::RwOn,
                        version,
                    }));
                    nodes - 1
                });
                edges.push(Edge { from: reader, to: fan, kind: Kind::Rw, version: NONE });
            }
        }
        self.edges = edges;
        Ok(())
    }

    /// Adds edges from who had ended to who began later, by a chain of moments. Returns the number of nodes.
    fn add_time(&mut self) -> usize {
        let behind = |edge: &Edge| edge.from.max(edge.to) as usize + 1;
        let nodes = self.edges.iter().map(behind).max().unwrap_or(0);
        let mut nodes = nodes.max(self.history.transactions.len()) as u32;
        if !self.level.is_in_time() {
            return nodes as usize;
        }
        let all = &self.history.transactions;
        let counting = (0..all.len() as u32).filter(|one| self.counts[*one as usize]);
        let mut by_begin: Vec<u32> = counting.collect();
        let mut by_end = by_begin.clone();
        by_begin.sort_unstable_by_key(|one| all[*one as usize].began);
        by_end.sort_unstable_by_key(|one| all[*one as usize].ended);
        let time = |from, to| Edge { from, to, kind: Kind::Time, version: NONE };
        let (mut ends, mut last) = (by_end.into_iter().peekable(), NONE);
        for one in by_begin {
            let began = all[one as usize].began;
            let mut is_new = true;
            while let Some(ended) = ends.next_if(|end| all[*end as usize].ended < began) {
                if std::mem::take(&mut is_new) {
                    if last != NONE {
                        self.edges.push(time(last, nodes));
                    }
                    last = nodes;
                    nodes += 1;
                }
                self.edges.push(time(ended, last));
            }
            if last != NONE {
                self.edges.push(time(last, one));
            }
        }
        nodes as usize
    }
}

impl Timeline {
    /// Where the versions begin that were begun after a moment, and when the first of these had ended.
    fn after(&self, moment: u64) -> (usize, u64) {
        let from = self.began.partition_point(|began| *began <= moment);
        (from, self.first_end.get(from).copied().unwrap_or(u64::MAX))
    }
}
