//! The bytes of a small store, some of them changed: opening, reading, changing and verifying it
//! gives answers or typed errors; never a panic, and it ends. One of its values is large.
//!
//! In a fuzzing build all checksums are one constant, so that a change gets past them.

#![no_main]

use arbitrary::Arbitrary;
use hedgerow_fuzz::damage::{self, Damage};
use hedgerow_fuzz::exercise;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    damage: Vec<Damage>,
    writes: bool,
    cut_at: Option<u16>,
}

fuzz_target!(|input: Input| {
    let image = exercise::image();
    let bytes = damage::damaged(&image.bytes, &image.used, &input.damage, input.cut_at);
    exercise::open_and_use(&bytes, input.writes);
});
