//! Typed operations on a store whose files are damaged between two of them: the store's file, its log, or both, while
//! it is closed, after it was killed, or behind its back. Then more operations, a backup that is damaged and restored,
//! a verification, and a repair.
//!
//! In half of the inputs checksums are left on: every answer is right, or an error that says that there is damage. In
//! the others damage gets past them, and any answer will do; no panic, no hang and no more memory than the limit.

#![no_main]

use arbitrary::Arbitrary;
use hedgerow::internals::store::{OpenHow, log_path};
use hedgerow_fuzz::damage::{self, Damage, Used};
use hedgerow_fuzz::operation::{Geometry, Step};
use hedgerow_fuzz::state::State;
use hedgerow_fuzz::trust::Trust;
use hedgerow_fuzz::{copies, path};
use libfuzzer_sys::fuzz_target;

/// Steps before the damage, and after it, at most.
const MOST_STEPS: usize = 60;

#[derive(Arbitrary, Debug)]
enum Moment {
    Closed,
    Killed,
    Open,
}

/// What is done to a file.
#[derive(Arbitrary, Debug)]
struct Damages {
    each: Vec<Damage>,
    cut: Option<u16>,
}

#[derive(Arbitrary, Debug)]
struct Input {
    has_checksums: bool,
    geometry: Geometry,
    before: Vec<Step>,
    moment: Moment,
    store: Damages,
    log: Damages,
    after: Vec<Step>,
    backup: Option<Damages>,
    repairs: bool,
}

/// Damages both files. Tells what may be expected from here on.
fn damage_files(state: &mut State, input: &Input) {
    for (file, damages) in [(path().to_owned(), &input.store), (log_path(path()), &input.log)] {
        let is_store = file == path();
        let Some(sound) = damage::read(&state.disk, &file) else { continue };
        let damaged = damage::damaged(&sound, &Used::of(&sound), &damages.each, damages.cut);
        if damaged == sound {
            continue;
        }
        damage::overwrite(&state.disk, &file, &sound, &damaged);
        let is_lost = is_store && damage::has_lost_superblocks(&sound, &damaged);
        state.distrust(match state.has_checksums && !is_lost {
            true => Trust::Damaged,
            false => Trust::Forged,
        });
        if !is_store {
            state.log_was_damaged();
            state.expect_part();
        }
    }
}

fuzz_target!(|input: Input| {
    let mut state = State::new(input.geometry, true, input.has_checksums);
    for step in input.before.iter().take(MOST_STEPS) {
        state.step(step);
    }
    match input.moment {
        Moment::Closed => state.close(),
        Moment::Killed => state.kill(),
        Moment::Open => {}
    }
    damage_files(&mut state, &input);
    if state.db().is_none() {
        state.open(OpenHow::Existing);
    }
    for step in input.after.iter().take(MOST_STEPS) {
        state.step(step);
    }
    if let Some(Damages { each, cut }) = &input.backup {
        copies::back_up(&mut state, each, *cut);
    }
    state.check();
    let is_lost = state.db().is_none();
    state.close();
    if is_lost || input.repairs {
        copies::repair(&mut state);
    }
});
