//! From dependencies to the cycles that a level forbids, and from these to words.
//!
//! First one graph for all that the level forbids; only if it has a cycle it is asked which kind is the worst there, without
//! time and then with it. Where two `rw` may follow each other, each transaction is two nodes: who was come to by an `rw` edge
//! is left by another one only.
//!
//! Thread-safety: plain data.

use super::graph::{self, Graph};
use super::versions::{Analysis, Edge, Kind, NONE, Version};
use super::{Anomaly, Level, Name, Violation};

/// What is wrong without a cycle.
pub(super) struct Finding {
    pub(super) anomaly: Anomaly,
    pub(super) what: String,
    /// The transactions; [`NONE`] for none.
    pub(super) who: Vec<u32>,
}

/// Which edges a cycle may be of.
#[derive(Clone, Copy)]
struct Choice {
    reads: bool,
    overwritten_reads: bool,
    /// Of two `rw` one must not follow the other.
    apart: bool,
    time: bool,
}

impl Choice {
    fn has(self, kind: Kind) -> bool {
        match kind {
            Kind::Ww => true,
            Kind::Wr => self.reads,
            Kind::Rw | Kind::RwOn => self.overwritten_reads,
            Kind::Time => self.time,
        }
    }
}

/// A violation that is no cycle.
pub(super) fn single(analysis: &Analysis<'_>, finding: Finding) -> Violation {
    violation(analysis, finding.anomaly, false, vec![finding.what], &finding.who)
}

fn violation(
    analysis: &Analysis<'_>,
    anomaly: Anomaly,
    needs_time: bool,
    reasons: Vec<String>,
    who: &[u32],
) -> Violation {
    let mut transactions: Vec<_> = who.iter().copied().filter(|one| *one != NONE).collect();
    transactions.sort_unstable();
    transactions.dedup();
    let all = &analysis.history.transactions;
    let mut transactions: Vec<_> =
        transactions.into_iter().map(|one| all[one as usize].clone()).collect();
    transactions.sort_by_key(|transaction| transaction.began);
    Violation { level: analysis.level, anomaly, needs_time, reasons, transactions }
}

/// The graph of these edges, by their numbers. With `apart` there are twice as many nodes: of each a first one, and one for
/// who was come to by `rw`.
fn graph_of(analysis: &Analysis<'_>, chosen: &[u32], nodes: usize, choice: Choice) -> Graph {
    let (shift, transactions) = (nodes as u32, analysis.history.transactions.len() as u32);
    let mut given = Vec::with_capacity(chosen.len() * (1 + usize::from(choice.apart)));
    for label in chosen {
        let Edge { from, to, kind, .. } = analysis.edges[*label as usize];
        if !choice.has(kind) {
            continue;
        }
        // Of a chain of moments, and of an `rw` in two halves, the first one counts.
        let counts = from < transactions;
        let mut add = |from, to| given.push(graph::Edge { from, to, label: *label, counts });
        match (choice.apart, kind) {
            (false, _) => add(from, to),
            (true, Kind::Rw) => add(from, to + shift),
            (true, Kind::RwOn) => add(from + shift, to + shift),
            (true, Kind::Ww | Kind::Wr | Kind::Time) => {
                add(from, to);
                add(from + shift, to);
            }
        }
    }
    Graph::new(nodes << u32::from(choice.apart), &given)
}

/// Looks for the cycles that the level forbids.
///
/// Errors: the shortest that is found of the worst kind.
pub(super) fn cycles(analysis: &Analysis<'_>, nodes: usize) -> Result<(), Violation> {
    let level = analysis.level;
    let all: Vec<u32> = (0..analysis.edges.len() as u32).collect();
    let forbidden = Choice {
        reads: true,
        overwritten_reads: level != Level::ReadCommitted,
        apart: level.is_of_snapshots(),
        time: level.is_in_time(),
    };
    let components = graph_of(analysis, &all, nodes, forbidden).cyclic_components();
    if components.is_empty() {
        return Ok(());
    }
    let mut is_cyclic = vec![false; nodes];
    for node in components.concat() {
        is_cyclic[node as usize % nodes] = true;
    }
    let within = |edge: &Edge| is_cyclic[edge.from as usize] && is_cyclic[edge.to as usize];
    let chosen: Vec<u32> =
        all.into_iter().filter(|label| within(&analysis.edges[*label as usize])).collect();
    for time in [false, true] {
        for (reads, overwritten_reads, apart) in
            [(false, false, false), (true, false, false), (true, true, true), (true, true, false)]
        {
            let choice = Choice { reads, overwritten_reads, apart, time };
            let is_asked = (!time || forbidden.time)
                && (!overwritten_reads || forbidden.overwritten_reads)
                && (apart || !overwritten_reads || !forbidden.apart);
            if !is_asked {
                continue;
            }
            let graph = graph_of(analysis, &chosen, nodes, choice);
            let components = graph.cyclic_components();
            if !components.is_empty() {
                let cycle = graph.shortest_cycle(&components);
                return Err(of_cycle(analysis, &cycle, choice));
            }
        }
    }
    unreachable!("the last choice has all that is forbidden")
}

/// In words.
fn of_cycle(analysis: &Analysis<'_>, cycle: &[u32], choice: Choice) -> Violation {
    let transactions = analysis.history.transactions.len() as u32;
    let edges: Vec<Edge> = cycle.iter().map(|label| analysis.edges[*label as usize]).collect();
    // From a transaction, so that the nodes between two of them follow each other.
    let first = edges.iter().position(|edge| edge.from < transactions);
    let first = first.expect("nodes behind the transactions make no cycle by themselves");
    let (mut reasons, mut who) = (Vec::new(), Vec::new());
    let (mut overwritten, mut missed, mut from) = (0, false, NONE);
    for at in 0..edges.len() {
        let edge = edges[(first + at) % edges.len()];
        if edge.from < transactions {
            from = edge.from;
            who.push(from);
        }
        if edge.to >= transactions {
            continue;
        }
        let is_rw = matches!(edge.kind, Kind::Rw | Kind::RwOn);
        overwritten += u64::from(is_rw);
        reasons.push(if is_rw {
            let (words, is_missed) = overwritten_read(analysis, from, edge);
            missed |= is_missed;
            words
        } else {
            reason(analysis, from, edge)
        });
    }
    let anomaly = match (choice.reads, choice.apart, overwritten) {
        (false, ..) => Anomaly::G0,
        (_, _, 0) => Anomaly::G1c,
        (_, _, 1) => Anomaly::GSingle,
        (_, true, _) => Anomaly::GNonadjacent,
        _ if missed => Anomaly::G2,
        _ => Anomaly::G2Item,
    };
    violation(analysis, anomaly, choice.time, reasons, &who)
}

fn name(analysis: &Analysis<'_>, one: u32) -> Name {
    Name(analysis.history.transactions[one as usize].id)
}

fn reason(analysis: &Analysis<'_>, from: u32, edge: Edge) -> String {
    let (before, after) = (name(analysis, from), name(analysis, edge.to));
    let what = match edge.kind {
        Kind::Ww => {
            let previous = analysis.seen_of(edge.to, analysis.versions[edge.version as usize].key);
            let over = previous.map_or(String::new(), |seen| show(analysis, seen.version));
            format!("ww: {after} wrote {} over {over}", show(analysis, edge.version))
        }
        Kind::Wr => format!("wr: {}", read(analysis, edge.to, edge.version)),
        Kind::Time | Kind::Rw | Kind::RwOn => {
            let (ended, began) = (
                analysis.history.transactions[from as usize].ended,
                analysis.history.transactions[edge.to as usize].began,
            );
            format!("time: {before} had ended at {ended} when {after} began at {began}")
        }
    };
    format!("{before} -> {after} {what}")
}

/// Of an `rw` edge; and whether the read was one of a range that had not found it.
fn overwritten_read(analysis: &Analysis<'_>, reader: u32, edge: Edge) -> (String, bool) {
    let key = analysis.versions[edge.version as usize].key;
    let seen = analysis.seen_of(reader, key);
    let seen = seen.expect("an edge of this kind comes from a read of the key");
    let words = format!(
        "{} -> {} rw: {}, and {} came after it",
        name(analysis, reader),
        name(analysis, edge.to),
        read(analysis, reader, seen.version),
        show(analysis, edge.version)
    );
    (words, seen.missed)
}

/// That a version was read.
pub(super) fn read(analysis: &Analysis<'_>, reader: u32, version: u32) -> String {
    format!("{} read {}", name(analysis, reader), show(analysis, version))
}

/// A version in words.
pub(super) fn show(analysis: &Analysis<'_>, version: u32) -> String {
    let Version { key, writer, state, .. } = analysis.versions[version as usize];
    let key = analysis.keys[key as usize];
    match (state, writer) {
        (Some(token), NONE) => format!("{token} of key {key}, which was there at first"),
        (Some(token), _) => format!("{token} of key {key}"),
        (None, NONE) => format!("the first absence of key {key}"),
        (None, _) => format!("the absence of key {key} by {}", name(analysis, writer)),
    }
}

impl Analysis<'_> {
    /// What a transaction has read of a key first.
    fn seen_of(&self, reader: u32, key: u32) -> Option<super::versions::Seen> {
        let from = self.seen.partition_point(|seen| seen.reader < reader);
        let own = self.seen[from..].iter().take_while(|seen| seen.reader == reader);
        own.copied().find(|seen| self.versions[seen.version as usize].key == key)
    }
}
