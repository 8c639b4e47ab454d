//! Verification of long keys: the last part of [`super::verify`].
//!
//! Every record whose tree key is longer than a short key is looked at, in every tree: the forms of its key and of its value, and that
//! the rests within a head ascend with the labels. Of a large value only the rest of the key is read. Runs while writers are kept out.

use super::PoolTree;
use super::Shared;
use super::labels::{REST_LEN_BYTES, split_label, split_payload};
use super::large::ExtentReader;
use super::verify::{Steps, VerifyReport};
use crate::error::Result;
use crate::large::Held;
use crate::large::{Stored, is_stored_form, read_stored};
use std::ops::ControlFlow;

/// Most findings of a tree: of damaged order each record may be one.
const MOST_OF_A_TREE: usize = 100;

impl Shared {
    /// See the head of the file.
    pub(super) fn verify_long_keys(
        &self,
        report: &mut VerifyReport,
        steps: &mut Steps<'_>,
    ) -> Result<()> {
        for (name, tree) in self.trees_to_verify(report)? {
            let before = report.findings.len();
            self.verify_tree_of_long_keys(&tree, report, steps)?;
            for finding in &mut report.findings[before..] {
                finding.keyspace = Some(name.clone());
            }
        }
        Ok(())
    }

    fn verify_tree_of_long_keys(
        &self,
        tree: &PoolTree,
        report: &mut VerifyReport,
        steps: &mut Steps<'_>,
    ) -> Result<()> {
        let head_bytes = tree.max_short_key_bytes();
        let mut last: Option<Vec<u8>> = None;
        let mut found = 0;
        let walked = tree.scan().visit(|key, value| {
            if key.len() <= head_bytes {
                return ControlFlow::Continue(());
            }
            let whole = match (split_label(head_bytes, key), is_stored_form(value)) {
                (Some((head, _)), true) => self.rest_of(value).map(|rest| {
                    rest.map(|rest| [head, &rest].concat()).ok_or("does not have the rest of it")
                }),
                (None, _) => Ok(Err("has no label")),
                (_, false) => Ok(Err("has a value in no stored form")),
            };
            let what = match whole {
                Err(error) if error.is_loss() => "has a value that cannot be read",
                Err(error) => return ControlFlow::Break(Err(error)),
                Ok(Err(what)) => what,
                Ok(Ok(whole)) => {
                    let is_behind = last.as_ref().is_none_or(|last| *last < whole);
                    last = Some(whole);
                    if is_behind {
                        return steps
                            .piece()
                            .map_or_else(|e| ControlFlow::Break(Err(e)), ControlFlow::Continue);
                    }
                    "is not greater than the one before it"
                }
            };
            report.add(None, None, format!("the record of a long key {what}"));
            found += 1;
            if found < MOST_OF_A_TREE {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(Ok(()))
            }
        });
        match walked {
            Err(error) => report.take_later(error, None),
            Ok(ControlFlow::Break(ended)) => ended,
            Ok(ControlFlow::Continue(())) => Ok(()),
        }
    }

    /// The rest of a long key, out of the value of its record; `None` if it is not there.
    fn rest_of(&self, value: &[u8]) -> Result<Option<Vec<u8>>> {
        let of_payload = |payload: &[u8]| split_payload(payload).map(|(rest, _)| rest.to_vec());
        match (read_stored(value), &self.slots) {
            (Stored::Plain(payload), _) => Ok(of_payload(payload)),
            (Stored::Extent(extent), Some(slots)) => {
                let reading = slots.read_extents(self.pool.epochs().current());
                let mut reader = ExtentReader::new(None, slots, extent, reading)?;
                let mut len = [0; REST_LEN_BYTES];
                let read = reader.read_at(0, &mut len)?;
                let mut rest = vec![0; usize::from(u16::from_le_bytes(len))];
                let read = read + reader.read_at(REST_LEN_BYTES as u64, &mut rest)?;
                Ok((read == REST_LEN_BYTES + rest.len() && !rest.is_empty()).then_some(rest))
            }
            (_, None) => {
                let mut payload = Vec::new();
                let held = Held::decode(value);
                let is_held = held.is_some_and(|held| self.pool.append_held(&held, &mut payload));
                Ok(if is_held { of_payload(&payload) } else { None })
            }
            (Stored::Damaged, _) => Ok(None),
        }
    }
}
