//! Verification of large values: pass 4 of [`crate::store::verify`].
//!
//! Every record in a stored form is looked at, in every tree; what it refers to is read past the pool, chunk by
//! chunk, and no two of them, nor one of them and a page, may share a unit. Runs while writers are kept out. Each value is
//! checked when the walk comes to it, which holds copies of pages and no latch then: so memory is that of one value's reference
//! and of one loan, however many there are.

use super::extent_io::ExtentReader;
use crate::error::Result;
use crate::large::{Extent, Stored, read_stored};
use crate::space::slot_store::SlotStore;
use crate::store::Shared;
use crate::store::verify::{BitSet, Steps, VerifyReport, occupy};
use crate::types::PageId;
use hedgerow_sync::primitive::Arc;
use std::cell::RefCell;
use std::ops::ControlFlow;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 256 << 10;

impl Shared {
    /// See the head of the file.
    pub(in crate::store) fn verify_extents(
        &self,
        slots: &Arc<SlotStore>,
        used: &mut BitSet,
        report: &mut VerifyReport,
        steps: &mut Steps<'_>,
    ) -> Result<()> {
        if !slots.has_stored_forms() {
            return Ok(());
        }
        for (name, tree) in self.trees_to_verify(report)? {
            let before = report.findings.len();
            let mut ended = Ok(());
            let found = RefCell::new(&mut *report);
            let mut each = |page, value: &[u8]| {
                let mut report = found.borrow_mut();
                ended = match read_stored(value) {
                    Stored::Extent(extent) => {
                        self.verify_extent(slots, page, extent, used, &mut report, steps)
                    }
                    Stored::Damaged => {
                        report.add(Some(page), None, "the form of a value is unknown");
                        Ok(())
                    }
                    Stored::Plain(_) => Ok(()),
                };
                if ended.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            // Of a leaf that cannot be read now nobody knows what it refers to.
            let mut unreadable = |page, error| found.borrow_mut().take_later(error, Some(page));
            let walked = tree.for_each_stored_form(&mut each, &mut unreadable);
            if let Err(error) = ended.and(walked) {
                report.take_later(error, None)?;
            }
            for finding in &mut report.findings[before..] {
                finding.keyspace = Some(name.clone());
            }
        }
        Ok(())
    }

    fn verify_extent(
        &self,
        slots: &Arc<SlotStore>,
        page: PageId,
        extent: Extent,
        used: &mut BitSet,
        report: &mut VerifyReport,
        steps: &mut Steps<'_>,
    ) -> Result<()> {
        let (runs, len_bytes) = (extent.runs.clone(), extent.len_bytes);
        let reading = slots.read_extents(self.pool.epochs().current());
        let mut reader = match ExtentReader::new(None, slots, extent, reading) {
            Ok(reader) => reader,
            Err(error) => return report.take(error, Some(page), None),
        };
        let geometry = slots.state().zones.geometry();
        for run in runs {
            let offset = geometry.unit_offset(run.unit);
            occupy(geometry, offset, u64::from(run.units), used, Some(page), report);
        }
        report.large_values += 1;
        report.large_value_bytes += len_bytes;
        let mut piece = vec![0; len_bytes.min(PIECE_BYTES as u64) as usize];
        let mut at = 0;
        while at < len_bytes {
            match reader.read_at(at, &mut piece) {
                Ok(count) => at += count as u64,
                // One finding for each value is enough.
                Err(error) => return report.take(error, Some(page), None),
            }
            steps.piece()?;
        }
        Ok(())
    }
}
