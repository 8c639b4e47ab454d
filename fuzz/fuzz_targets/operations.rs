//! Typed operations through the public API against sorted maps: two keyspaces, pages of 512 bytes,
//! the smallest pool, on a disk in memory; with checkpoints, closing and opening again, and going
//! back to the last checkpoint as after a crash. The input says how leaves get their layouts, anew
//! whenever the store is opened.

#![no_main]

use hedgerow::internals::store::OpenHow;
use hedgerow_fuzz::operation::{Geometry, Leaves, Operation};
use hedgerow_fuzz::state::State;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Leaves, Vec<Operation>)| {
    let (leaves, operations) = input;
    let mut state = State::new(Geometry::smallest(leaves), false, false);
    for operation in operations.iter().take(400) {
        state.apply(operation);
    }
    state.check();
    state.close();
    state.open(OpenHow::Existing);
    state.check();
    state.close();
});
