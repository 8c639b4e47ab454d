//! Iteration from within: a cursor hands one record after another to a function.
//!
//! What a step from outside finds out anew for each record (which layout, where its arrays begin) is found
//! out once for each leaf. Invariants and thread-safety: those of [`Cursor`].

use super::Cursor;
use crate::error::Result;
use crate::node::{Leaf, plain_leaf};
use crate::page::Pages;
use std::ops::ControlFlow;

/// How many records ahead a value is shown first, and for the second time.
const FAR: usize = 8;
const NEAR: usize = 3;

impl<P: Pages> Cursor<P> {
    /// Hands the records behind the cursor to `each`, in order, and moves over them, until `each` breaks or
    /// there are no more. Tells which. Key and value live as long as the call of `each`.
    ///
    /// Errors: those of [`Cursor::next_record`]; the records before were handed over.
    #[inline]
    pub fn visit<B>(
        &mut self,
        mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>> {
        self.visit_leaves::<false, B>(&mut each, &mut |_, _| {})
    }

    /// [`Cursor::visit`], which also shows to `ahead` the values of the leaf that come a little later, each twice: first when it is
    /// some records ahead, then (`true`) when it is near. It may prefetch what `each` will look at.
    #[inline]
    pub fn visit_ahead<B>(
        &mut self,
        mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
        mut ahead: impl FnMut(&[u8], bool),
    ) -> Result<ControlFlow<B>> {
        self.visit_leaves::<true, B>(&mut each, &mut ahead)
    }

    #[inline(always)]
    fn visit_leaves<const AHEAD: bool, B>(
        &mut self,
        each: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
        ahead: &mut impl FnMut(&[u8], bool),
    ) -> Result<ControlFlow<B>> {
        loop {
            if let ControlFlow::Break(with) = self.visit_leaf::<AHEAD, B>(each, ahead) {
                return Ok(ControlFlow::Break(with));
            }
            if !self.step(true)? {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    #[inline]
    fn visit_leaf<const AHEAD: bool, B>(
        &mut self,
        each: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
        ahead: &mut impl FnMut(&[u8], bool),
    ) -> ControlFlow<B> {
        let key: &mut [u8] = &mut self.key;
        let (at, gap, end) = (self.prefix_len, &mut self.gap, self.end);
        // Does the same with a leaf of each layout, whose places are iterated in its own way.
        macro_rules! hand_over {
            ($leaf:ident, $places:expr) => {
                for place in $places {
                    // First, for `each` may panic.
                    *gap = place + 1;
                    let (key_end, value) = $leaf.record(place, key, at);
                    each(&key[..key_end], value)?;
                }
            };
        }
        let from = *gap;
        // The same with leaves whose places have a record each.
        macro_rules! hand_over_ahead {
            ($leaf:ident) => {{
                for place in from..end.min(from + FAR) {
                    ahead($leaf.value(place), false);
                }
                for place in from..end {
                    for (distance, is_near) in [(FAR, false), (NEAR, true)] {
                        if place + distance < end {
                            ahead($leaf.value(place + distance), is_near);
                        }
                    }
                    *gap = place + 1;
                    let (key_end, value) = $leaf.record(place, key, at);
                    each(&key[..key_end], value)?;
                }
            }};
        }
        match plain_leaf(&self.leaf) {
            Leaf::Comparison(leaf) if AHEAD => hand_over_ahead!(leaf),
            Leaf::Fingerprint(leaf) if AHEAD => hand_over_ahead!(leaf),
            Leaf::Comparison(leaf) => hand_over!(leaf, from..end),
            Leaf::Fingerprint(leaf) => hand_over!(leaf, from..end),
            Leaf::SemiDense(leaf) => hand_over!(leaf, leaf.places_in(from, end)),
            Leaf::FullyDense(leaf) => {
                let array = leaf.array();
                hand_over!(array, leaf.places_in(from, end));
            }
        }
        *gap = end;
        ControlFlow::Continue(())
    }
}
