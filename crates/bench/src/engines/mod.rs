//! The competitors of this program: Hedgerow through its public API, the sorted map of the standard
//! library, the engine's tree over several pools, and reads, writes and syncs without a store.
//!
//! One file each; [`run`] is the one place that lists them.

#[cfg(target_os = "linux")]
mod bare_reads;
#[cfg(target_os = "linux")]
mod bare_syncs;
mod bare_writes;
mod btreemap;
mod hedgerow;
#[cfg(target_os = "linux")]
mod trees;

use crate::cell::{Cell, CellError, CellResult, LeafCounts, TreeShape};
use crate::harness;
use ::hedgerow::internals::node::rung;
use ::hedgerow::{LeafLayout, LeafPolicy, TreeStats};
use std::ops::ControlFlow;

/// Hands `records` records to `found`, at least one, and then breaks.
#[inline(always)]
fn up_to<'f>(
    mut records: usize,
    found: &'f mut (impl FnMut(&[u8], &[u8]) + 'f),
) -> impl FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'f {
    move |key, value| {
        found(key, value);
        records = records.saturating_sub(1);
        if records > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// Names of the competitors. A build on a lower rung of the ladder has nothing but its trees.
pub const NAMES: &[&str] = match rung::NAME.as_bytes() {
    b"baseline" => &["tree-heap-baseline", "tree-frames-baseline", "tree-vmcache-baseline"],
    b"prefix" => &["tree-heap-prefix"],
    b"heads" => &["tree-heap-heads"],
    _ => &[
        "hedgerow",
        "hedgerow-batch",
        "hedgerow-no-log",
        "hedgerow-on-demand",
        "hedgerow-get_into",
        "hedgerow-comparison",
        "hedgerow-fingerprint",
        "hedgerow-semi-dense",
        "hedgerow-fully-dense",
        "btreemap",
        "tree-heap",
        "tree-heap-comparison",
        "tree-heap-fingerprint",
        "tree-heap-semi-dense",
        "tree-heap-fully-dense",
        "tree-frames",
        "tree-vmcache",
        "bare-reads",
        "bare-syncs",
        "bare-writes",
    ],
};

/// Runs `cell` on the competitor that it names.
///
/// Errors: `Failed` for a name that is not in [`NAMES`]; those of [`harness::run`].
pub fn run(cell: &Cell) -> Result<CellResult, CellError> {
    match cell.competitor.as_str() {
        name if !NAMES.contains(&name) => {
            Err(CellError::Failed(format!("there is no competitor `{name}` here")))
        }
        "hedgerow-get_into" => harness::run::<hedgerow::Store<true>>(cell),
        name if name.starts_with("hedgerow") => harness::run::<hedgerow::Store<false>>(cell),
        "bare-writes" => harness::run::<bare_writes::Writes>(cell),
        "btreemap" => harness::run::<btreemap::Map>(cell),
        other => run_below_the_api(other, cell),
    }
}

/// What stands behind the name of a competitor whose leaves all have one layout. Without it their
/// layouts are adaptive.
const LAYOUTS: [(&str, LeafLayout); 4] = [
    ("-comparison", LeafLayout::Comparison),
    ("-fingerprint", LeafLayout::Fingerprint),
    ("-semi-dense", LeafLayout::SemiDense),
    ("-fully-dense", LeafLayout::FullyDense),
];

/// How the competitor `name` chooses the layouts of its leaves.
fn leaf_policy(name: &str) -> LeafPolicy {
    let fixed = LAYOUTS.iter().find(|(layout, _)| name.ends_with(layout));
    fixed.map_or(LeafPolicy::Adaptive, |(_, layout)| LeafPolicy::Fixed(*layout))
}

/// The nodes of one of the engine's trees.
fn shape(stats: &TreeStats) -> TreeShape {
    let leaves = stats.levels.first().map_or(0, |level| level.pages);
    let height = u32::try_from(stats.levels.len()).ok();
    let of = |layout| stats.leaves_of(layout).pages;
    let layouts = LeafCounts {
        comparison: of(LeafLayout::Comparison),
        fingerprint: of(LeafLayout::Fingerprint),
        semi_dense: of(LeafLayout::SemiDense),
        fully_dense: of(LeafLayout::FullyDense),
    };
    TreeShape { height, leaves, inner_nodes: stats.pages() - leaves, layouts: Some(layouts) }
}

/// Those that reach below the public API, and below what other systems than Linux have.
#[cfg(target_os = "linux")]
fn run_below_the_api(name: &str, cell: &Cell) -> Result<CellResult, CellError> {
    use trees::TreeEngine;
    use trees::homes::{Frames, Heap, Vmcache};
    match name {
        "bare-reads" => bare_reads::run(cell),
        "bare-syncs" => harness::run::<bare_syncs::Blocks>(cell),
        name if name.starts_with("tree-frames") => harness::run::<TreeEngine<Frames>>(cell),
        name if name.starts_with("tree-vmcache") => harness::run::<TreeEngine<Vmcache>>(cell),
        _ => harness::run::<TreeEngine<Heap>>(cell),
    }
}

#[cfg(not(target_os = "linux"))]
fn run_below_the_api(name: &str, _cell: &Cell) -> Result<CellResult, CellError> {
    Err(CellError::Unsupported(format!("`{name}` needs Linux")))
}
