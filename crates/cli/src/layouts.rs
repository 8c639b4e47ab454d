//! Layouts of leaves in words and as JSON: how many there are of each, and what adaptation has done.
//!
//! The names in JSON are those of `--leaves`; they are stable. Counters of adaptation begin with the
//! opening of a store, so only commands that have worked on one show them.

use crate::size::show_count;
use hedgerow::{AdaptationStats, LayoutStats, LeafLayout, TreeStats};
use serde_json::{Map, Value as Json, json};

/// The name of a layout as an argument and in JSON.
pub fn key_of(layout: LeafLayout) -> &'static str {
    match layout {
        LeafLayout::FullyDense => "fully-dense",
        layout => layout.name(),
    }
}

/// The layouts that a tree has leaves of, with their numbers.
pub fn used(tree: &TreeStats) -> Vec<(LeafLayout, LayoutStats)> {
    let all = LeafLayout::ALL.into_iter().map(|layout| (layout, tree.leaves_of(layout)));
    all.filter(|(_, leaves)| leaves.pages > 0).collect()
}

/// Records of a leaf on average.
pub fn records_a_leaf(leaves: LayoutStats) -> f64 {
    if leaves.pages == 0 { 0.0 } else { leaves.records as f64 / leaves.pages as f64 }
}

/// All layouts of a tree, those without a leaf as well.
pub fn as_json(tree: &TreeStats) -> Json {
    let mut layouts = Map::new();
    for layout in LeafLayout::ALL {
        let leaves = tree.leaves_of(layout);
        let figures = json!({ "leaves": leaves.pages, "records": leaves.records });
        layouts.insert(key_of(layout).to_owned(), figures);
    }
    Json::Object(layouts)
}

/// The counters of adaptation, in words.
fn counters(values: &AdaptationStats) -> [(&'static str, &'static str, u64); 7] {
    [
        ("by_splits", "when full or split", values.by_splits),
        ("by_merges", "when merged", values.by_merges),
        ("for_scans", "because scans are common", values.for_scans),
        ("for_points", "because scans are rare", values.for_points),
        ("sorted", "sorted for a scan", values.sorted),
        ("gave_up_busy", "given up as busy", values.gave_up_busy),
        ("gave_up_full", "given up for lack of room", values.gave_up_full),
    ]
}

/// What adaptation has done, without what it has not; empty if it has done nothing.
pub fn adapted(values: &AdaptationStats) -> String {
    let done = counters(values).into_iter().filter(|&(_, _, count)| count > 0);
    let words: Vec<_> =
        done.map(|(_, words, count)| format!("{} {words}", show_count(count))).collect();
    words.join(", ")
}

/// All counters of adaptation.
pub fn adaptation_json(values: &AdaptationStats) -> Json {
    let all = counters(values).into_iter();
    Json::Object(all.map(|(name, _, count)| (name.to_owned(), json!(count))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_happened_is_not_said() {
        let mut values = AdaptationStats::default();
        assert_eq!(adapted(&values), "");
        values.by_splits = 1_200;
        values.sorted = 3;
        assert_eq!(adapted(&values), "1,200 when full or split, 3 sorted for a scan");
        assert_eq!(adaptation_json(&values)["by_splits"], 1_200);
        assert_eq!(adaptation_json(&values)["by_merges"], 0);
    }

    #[test]
    fn every_layout_is_counted_under_its_own_name() {
        let mut tree = TreeStats::default();
        for (number, layout) in LeafLayout::ALL.into_iter().enumerate() {
            let leaves = &mut tree.leaves[layout as usize];
            (leaves.pages, leaves.records) = (number as u64, 10 * number as u64);
        }
        let json = as_json(&tree);
        assert_eq!(json["comparison"]["leaves"], 0);
        assert_eq!(json["fully-dense"], serde_json::json!({ "leaves": 3, "records": 30 }));
        assert_eq!(used(&tree).len(), 3);
        assert_eq!(records_a_leaf(tree.leaves[3]), 10.0);
    }
}
