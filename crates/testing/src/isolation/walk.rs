//! What the steps of one transaction say: which versions it has read, and over which it has written.
//!
//! Finds what is wrong without a cycle, and adds `wr` and `ww` edges, the versions that were seen, and which version directly
//! follows which. Invariant: of a key what counts is what a transaction has found last before its first change of it; its own
//! changes it has to find itself. Thread-safety: plain data.

use super::report::{self, Finding};
use super::versions::{Analysis, Edge, Kind, NONE, Seen};
use super::{Anomaly, Level, Name, Outcome, Over, State, Step, Token};

/// What a transaction knows of a key.
#[derive(Clone, Copy)]
pub(super) struct Known {
    by: u32,
    state: State,
    is_own: bool,
    /// The version, if it is somebody else's and one is known.
    version: u32,
}

impl Known {
    /// Nothing is known to anybody.
    pub(super) const NOTHING: Known = Known { by: NONE, state: None, is_own: false, version: NONE };
}

/// A transaction whose steps are gone through.
pub(super) struct Walk<'w, 'h> {
    pub(super) analysis: &'w mut Analysis<'h>,
    /// The transaction.
    pub(super) one: u32,
    /// By key.
    pub(super) known: &'w mut [Known],
    /// Its versions by key, each with its number if it is the transaction's.
    pub(super) own: &'w [(u32, u32)],
    /// Unknown transactions that have to count.
    pub(super) news: &'w mut Vec<u32>,
}

impl Walk<'_, '_> {
    /// Goes through a step.
    pub(super) fn step(&mut self, step: &Step) -> Result<(), Finding> {
        match step {
            Step::Read { key, found } => {
                let key = self.analysis.number(*key);
                self.look(key, *found, false)
            }
            Step::Range { low, high, found } => self.look_at_range(*low, *high, found),
            Step::Put { key, token, over } => self.change(*key, Some(*token), *over),
            Step::Remove { key, over } => self.change(*key, None, *over),
        }
    }

    fn fail<T>(&self, anomaly: Anomaly, what: String, other: u32) -> Result<T, Finding> {
        Err(Finding { anomaly, what, who: vec![self.one, other] })
    }

    fn name(&self) -> Name {
        Name(self.analysis.history.transactions[self.one as usize].id)
    }

    /// A read of a key; `missed` if a range did not have it.
    fn look(&mut self, key: u32, found: State, missed: bool) -> Result<(), Finding> {
        let name = self.analysis.keys[key as usize];
        let known = self.known[key as usize];
        if known.by == self.one {
            if known.state == found {
                return Ok(());
            }
            if known.is_own {
                let what = format!("{} did not find its own change of key {name}", self.name());
                return self.fail(Anomaly::Internal, what, NONE);
            }
            if self.analysis.level != Level::ReadCommitted {
                let what = format!("{} found two versions of key {name}", self.name());
                return self.fail(Anomaly::GSingle, what, NONE);
            }
        }
        let version = match found {
            Some(token) => Some(self.source(key, token)?),
            None => self.absence(key)?,
        };
        let (by, is_own) = (self.one, false);
        let number = version.unwrap_or(NONE);
        self.known[key as usize] = Known { by, state: found, is_own, version: number };
        self.analysis.tally.reads += 1;
        let Some(version) = version else {
            self.analysis.tally.ambiguous += 1;
            return Ok(());
        };
        self.analysis.seen.push(Seen { reader: self.one, version, missed });
        let writer = self.analysis.versions[version as usize].writer;
        if writer != NONE {
            let (from, to) = (writer, self.one);
            self.analysis.edges.push(Edge { from, to, kind: Kind::Wr, version });
        }
        Ok(())
    }

    /// The version that has this token, of somebody else.
    fn source(&self, key: u32, token: Token) -> Result<u32, Finding> {
        let (name, id) = (self.analysis.keys[key as usize], self.name());
        let Some(source) = self.analysis.tokens.get(&token).copied() else {
            let what = format!("{id} read {token} of key {name}, which nobody has written");
            return self.fail(Anomaly::NeverWritten, what, NONE);
        };
        if source.key != key {
            let other = self.analysis.keys[source.key as usize];
            let what = format!("{id} read {token} of key {name}, and it is of key {other}");
            return self.fail(Anomaly::NeverWritten, what, source.writer);
        }
        if source.writer == self.one {
            let what = format!("{id} read its own {token} of key {name} when it was not there");
            return self.fail(Anomaly::Internal, what, NONE);
        }
        if source.version != NONE {
            return Ok(source.version);
        }
        let writer = &self.analysis.history.transactions[source.writer as usize];
        let (anomaly, why) = match writer.outcome {
            Outcome::Aborted => (Anomaly::G1a, "was aborted"),
            _ => (Anomaly::G1b, "wrote over it itself"),
        };
        let what = format!("{id} read {token} of key {name}, and {} {why}", Name(writer.id));
        self.fail(anomaly, what, source.writer)
    }

    fn absence(&mut self, key: u32) -> Result<Option<u32>, Finding> {
        let Ok(version) = self.analysis.absence(self.one, key) else {
            let name = self.analysis.keys[key as usize];
            let what = format!(
                "{} found nothing under key {name}, which nobody can have removed by then",
                self.name()
            );
            return self.fail(Anomaly::NeverRemoved, what, NONE);
        };
        let writer = version.map(|version| self.analysis.versions[version as usize].writer);
        if let Some(writer) = writer.filter(|one| *one != NONE)
            && !self.analysis.counts[writer as usize]
        {
            self.news.push(writer);
        }
        Ok(version)
    }

    fn look_at_range(
        &mut self,
        low: u64,
        high: u64,
        found: &[(u64, Token)],
    ) -> Result<(), Finding> {
        let in_order = found.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if !in_order || found.iter().any(|(key, _)| !(low..=high).contains(key)) {
            let what = format!("{} read {low}..={high} and found {found:?}", self.name());
            return self.fail(Anomaly::Disorder, what, NONE);
        }
        let from = self.analysis.keys.partition_point(|key| *key < low);
        let mut found = found.iter().peekable();
        for key in from..self.analysis.keys.len() {
            let name = self.analysis.keys[key];
            if name > high {
                break;
            }
            let state = found.next_if(|(key, _)| *key == name).map(|(_, token)| *token);
            self.look(key as u32, state, state.is_none())?;
        }
        Ok(())
    }

    fn change(&mut self, key: u64, state: State, over: Over) -> Result<(), Finding> {
        let key = self.analysis.number(key);
        let (_, version) = self.own[key as usize];
        if let Over::Seen(before) = over {
            self.look(key, before, false)?;
        }
        let known = self.known[key as usize];
        let is_first = known.by != self.one || !known.is_own;
        self.known[key as usize] = Known { by: self.one, state, is_own: true, version: NONE };
        if !is_first || known.by != self.one || known.version == NONE {
            return Ok(());
        }
        let previous = known.version;
        let other = std::mem::replace(&mut self.analysis.next[previous as usize], version);
        if other != NONE && self.analysis.level != Level::ReadCommitted {
            let writer = self.analysis.versions[other as usize].writer;
            let what = format!(
                "{} and {} have both written over {}",
                Name(self.analysis.history.transactions[writer as usize].id),
                self.name(),
                report::show(self.analysis, previous)
            );
            return self.fail(Anomaly::LostUpdate, what, writer);
        }
        self.analysis.has_previous[version as usize] =
            previous as usize >= self.analysis.keys.len();
        let from = self.analysis.versions[previous as usize].writer;
        if from != NONE {
            self.analysis.edges.push(Edge { from, to: self.one, kind: Kind::Ww, version });
        }
        Ok(())
    }
}
