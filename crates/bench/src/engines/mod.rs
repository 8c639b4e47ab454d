//! The competitors of this program: Hedgerow through its public API, and the sorted map of the
//! standard library.
//!
//! One file each; [`run`] is the one place that lists them.

mod btreemap;
mod hedgerow;

use crate::cell::{Cell, CellError, CellResult};
use crate::harness;

/// Names of the competitors.
pub const NAMES: [&str; 3] = ["hedgerow", "hedgerow-get_into", "btreemap"];

/// Runs `cell` on the competitor that it names.
///
/// Errors: `Failed` for a name that is not in [`NAMES`]; those of [`harness::run`].
pub fn run(cell: &Cell) -> Result<CellResult, CellError> {
    match cell.competitor.as_str() {
        "hedgerow" => harness::run::<hedgerow::Store<false>>(cell),
        "hedgerow-get_into" => harness::run::<hedgerow::Store<true>>(cell),
        "btreemap" => harness::run::<btreemap::Map>(cell),
        other => Err(CellError::Failed(format!("there is no competitor `{other}` here"))),
    }
}
