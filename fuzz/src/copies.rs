//! Copies of a store, and what must be true of them: a backup that was made is sound and has what the store has; what
//! is restored of a damaged backup is that, or an error; what a repair makes is a sound store.

use crate::damage::{self, Damage, Used};
use crate::path;
use crate::state::State;
use crate::trust::Trust;
use hedgerow::Options;
use hedgerow::internals::storage::Disk;
use hedgerow::internals::store::OpenHow;
use hedgerow_testing::RamDisk;
use std::ops::ControlFlow;
use std::path::Path;

fn go_on(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// A copy is as sound as checksums can make it.
fn trust_of_copies(trust: Trust) -> Trust {
    if trust.is_exact() { Trust::Sound } else { Trust::Forged }
}

/// Makes a backup of the open store, damages that, and restores what is left.
pub fn back_up(state: &mut State, damages: &[Damage], cut: Option<u16>) {
    let (backup, restored) = (Path::new("backup"), Path::new("restored"));
    let (disk, trust) = (state.disk.clone(), state.trust());
    let options = state.geometry.options().log(false);
    let Some(db) = state.db() else { return };
    let is_made = trust.answer(db.backup(backup, go_on)).is_some();
    state.checkpoint_was_taken();
    if !is_made {
        assert!(!disk.exists(backup).unwrap(), "there is a backup, and it was refused");
        return;
    }
    examine(state, &options, &disk, backup, true);
    let Some(sound) = damage::read(&disk, backup) else { return };
    let damaged = damage::damaged(&sound, &Used::of(&sound), damages, cut);
    if damage::has_lost_superblocks(&sound, &damaged) {
        return;
    }
    damage::overwrite(&disk, backup, &sound, &damaged);
    let trust = if damaged == sound || !trust.is_exact() {
        trust_of_copies(trust)
    } else if state.has_checksums {
        Trust::Damaged
    } else {
        Trust::Forged
    };
    let copied = trust.answer(options.restore_on_disk(&disk, backup, restored, go_on));
    // Whatever lies there was checked as it was copied, if there was anything to check it by.
    if copied.is_some() && trust != Trust::Forged {
        examine(state, &options, &disk, restored, true);
    }
}

/// Repairs the closed store into a new one.
pub fn repair(state: &mut State) {
    let repaired = Path::new("repaired");
    let (disk, trust) = (state.disk.clone(), state.trust());
    let options = state.geometry.options().log(false);
    let report = options.repair_on_disk(&disk, path(), repaired, go_on);
    let Some(report) = trust.answer(report) else {
        assert!(!disk.exists(repaired).unwrap(), "there is a repaired store, and it was refused");
        return;
    };
    // What was lost is named by pages and keys, which `repair.rs` of the engine's tests looks at.
    let is_all_there = report.is_clean() && state.is_exactly_left();
    examine(state, &options, &disk, repaired, is_all_there);
}

/// Opens a copy, verifies it, and compares it.
fn examine(state: &State, options: &Options, disk: &RamDisk, copy: &Path, is_equal: bool) {
    let trust = trust_of_copies(state.trust());
    let Some(db) = trust.answer(options.on_disk(disk, copy, OpenHow::ReadOnly)) else { return };
    if let Some(report) = trust.answer(db.verify(|_| ControlFlow::Continue(())))
        && trust == Trust::Sound
    {
        assert!(report.is_clean(), "{}: {:#?}", copy.display(), report.findings);
    }
    if is_equal {
        state.hold_against(&db, trust, "the copy");
    }
    let _ = trust.answer(db.close());
}
