//! Which layouts the leaves of the tour's store have, and what of their keys is the reason.
//!
//! A leaf belongs to the key set that its first key is of. For each set and layout the table says what the
//! choice depends on: how many neighbours have the same head (their first four bytes behind the prefix),
//! how long keys are behind the prefix, and how dense the numbers are that keys of one length differ by.

use super::records::is_url;
use super::report::Report;
use crate::failure::Failure;
use crate::layouts;
use crate::size::show_count;
use hedgerow::{AdaptationStats, Keyspace, LeafKeys, LeafLayout};
use serde_json::{Value as Json, json};
use std::ops::ControlFlow;

/// The key sets of the tour.
const SETS: [&str; 2] = ["URLs", "composite keys"];

/// The leaves of one set that have one layout.
#[derive(Clone, Copy, Default)]
struct Group {
    leaves: u64,
    records: u64,
    /// Neighbours with the same head.
    same_heads: u64,
    suffix_bytes: u64,
    /// Leaves whose heads tell too few keys apart.
    heads_alike: u64,
    /// Leaves whose keys are long.
    long: u64,
    /// Leaves whose keys are numbers: of one length, and different in the last four bytes only.
    numbers: u64,
    /// Records of those, and the numbers from their first to their last.
    dense_records: u64,
    span: u64,
}

/// Counts by set and layout.
pub struct LeafTable([[Group; LeafLayout::ALL.len()]; SETS.len()]);

impl LeafTable {
    /// Walks the keyspace.
    pub fn gather(keyspace: &Keyspace) -> hedgerow::Result<LeafTable> {
        let mut table = LeafTable([[Group::default(); LeafLayout::ALL.len()]; SETS.len()]);
        keyspace.show_pages(|view| {
            if let Some(keys) = view.leaf_keys() {
                table.add(&keys);
            }
            ControlFlow::Continue(())
        })?;
        Ok(table)
    }

    fn add(&mut self, keys: &LeafKeys) {
        let group = &mut self.0[usize::from(!is_url(&keys.first))][keys.layout as usize];
        group.leaves += 1;
        group.records += keys.count;
        group.same_heads += keys.same_heads;
        group.suffix_bytes += keys.suffix_bytes;
        group.heads_alike += u64::from(keys.are_heads_alike);
        group.long += u64::from(keys.are_long);
        if let Some(numbers) = keys.numbers {
            group.numbers += 1;
            group.dense_records += keys.count;
            group.span += numbers;
        }
    }

    /// Number of leaves.
    pub fn leaves(&self) -> u64 {
        self.0.iter().flatten().map(|group| group.leaves).sum()
    }

    fn groups(&self) -> impl Iterator<Item = (&'static str, LeafLayout, &Group)> {
        let sets = SETS.iter().zip(&self.0);
        let all = sets.flat_map(|(set, groups)| {
            LeafLayout::ALL
                .into_iter()
                .zip(groups)
                .map(move |(layout, group)| (*set, layout, group))
        });
        all.filter(|(_, _, group)| group.leaves > 0)
    }

    /// Prints the table, and what adaptation has done since the store was made.
    pub fn print(&self, report: &mut Report, done: &AdaptationStats) -> Result<(), Failure> {
        report.line("\nlayouts of leaves after the load, and the reason")?;
        report.line(
            "keys            layout         leaves  records/leaf  same heads  bytes of key  numbers",
        )?;
        for (set, layout, group) in self.groups() {
            report.line(&format!(
                "{set:<15} {:<12} {:>8} {:>13.1} {:>10.0}% {:>13.1} {:>8}",
                layout.name(),
                show_count(group.leaves),
                ratio(group.records, group.leaves),
                100.0 * ratio(group.same_heads, group.records),
                ratio(group.suffix_bytes, group.records),
                if group.span == 0 {
                    "none".to_owned()
                } else {
                    format!("{:.1}%", 100.0 * ratio(group.dense_records, group.span))
                },
            ))?;
        }
        for line in [
            "same heads: share of neighbours with equal first four bytes after the prefix; above 1 in 16 the leaf is hashed",
            "bytes of key: average length after the prefix; from 12 on the leaf is hashed",
            "numbers: if the keys of a leaf differ in their last four bytes only, the share of that range in use",
        ] {
            report.line(&format!("  {line}"))?;
        }
        let adapted = layouts::adapted(done);
        if adapted.is_empty() { Ok(()) } else { report.line(&format!("leaves adapted: {adapted}")) }
    }

    /// The same for programs.
    pub fn as_json(&self) -> Json {
        let rows = self.groups().map(|(set, layout, group)| {
            json!({
                "keys": set,
                "layout": layouts::key_of(layout),
                "leaves": group.leaves,
                "records": group.records,
                "same_heads": group.same_heads,
                "suffix_bytes": group.suffix_bytes,
                "leaves_with_heads_alike": group.heads_alike,
                "leaves_with_long_keys": group.long,
                "leaves_of_numbers": group.numbers,
                "records_in_leaves_of_numbers": group.dense_records,
                "numbers_spanned": group.span,
            })
        });
        Json::Array(rows.collect())
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
