//! A disk that ignores syncs and says that they went well, of all files, of the store's, of the log's or of the directory,
//! from any moment on; and then the power goes.
//!
//! Nothing that was acknowledged since then need be there: who cannot be told what is durable can promise nothing. What is
//! asked is that no answer was never right. Either the store holds a state that it went through, not before what was
//! durable when the lies began (without a log: that of a checkpoint); or what is missing or damaged is named, and
//! each answer beside it is one that was right at some moment.
//!
//! What tells: a block of the log names what was durable before it, and the checkpoint; a superblock, how far the log was
//! durable, and the 14 bits of each image's checksum. What nobody can tell is left out: runs in which two images of the
//! same page or part at one place have the same 14 bits (`could_be_mistaken`); and that the end of the log, or the
//! newest superblock without a log, is missing, which is a state of before.

use crate::common::aged::passes_for;
use crate::common::script::{
    Action, HOWS, MOST_CALLS, Script, assert_not_opened, assert_refused, options,
};
use crate::common::{Dice, assert_damage, assert_sound, contents, effort, open, path, seed};
use hedgerow::internals::space::HEADER_REGION_BYTES;
use hedgerow::internals::store::{OpenHow, log_path};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::sim::{CallKind, Change, Deceit, FileNumber, Lie, SimState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Everything that a key has ever had; `None`: nothing.
type Ever = BTreeMap<(String, Vec<u8>), BTreeSet<Option<Vec<u8>>>>;

fn ever_had(script: &Script) -> Ever {
    let keys: BTreeSet<(String, Vec<u8>)> = script
        .models
        .iter()
        .flatten()
        .flat_map(|(name, records)| records.keys().map(|key| (name.clone(), key.clone())))
        .collect();
    let values = |(name, key): &(String, Vec<u8>)| -> BTreeSet<Option<Vec<u8>>> {
        script.models.iter().map(|model| model[name].get(key).cloned()).collect()
    };
    keys.into_iter().map(|at| (at.clone(), values(&at))).collect()
}

/// Whether two images that were written to one place since, or were there, pass for each other: then nobody can tell
/// which of them a power cut has left.
fn could_be_mistaken(state: &SimState) -> bool {
    let durable = state.crash(&[], None).contents(path()).unwrap_or_default();
    let mut images: BTreeMap<(FileNumber, u64), Vec<Arc<[u8]>>> = BTreeMap::new();
    for change in state.pending() {
        let Change::Write { file, offset_bytes, bytes } = change else { continue };
        if *offset_bytes < HEADER_REGION_BYTES || ![512, 4096].contains(&bytes.len()) {
            continue;
        }
        let at = *offset_bytes as usize;
        let images = images.entry((*file, *offset_bytes)).or_default();
        if images.is_empty()
            && let Some(before) = durable.get(at..at + bytes.len())
        {
            images.push(before.into());
        }
        images.push(bytes.clone());
    }
    images.values().any(|images| {
        images.iter().enumerate().any(|(at, image)| {
            images[..at].iter().any(|older| {
                older.len() == image.len() && older != image && passes_for(older, image)
            })
        })
    })
}

/// A script whose syncs were ignored from some moment on.
struct Unsynced {
    /// What the disk has, and what is pending.
    state: SimState,
    /// The models that may be there: from the last one that was durable before the lies to the last one of all.
    allowed: Vec<usize>,
}

/// Carries the script out, with syncs that are ignored from one on, and some more actions behind it. `None`: there
/// are not so many syncs.
fn with_ignored_syncs(script: &Script, lie: Lie, log: bool, dice: &mut Dice) -> Option<Unsynced> {
    let disk = SimDisk::with_state(script.base.clone(), dice.roll());
    disk.inject_lie(lie);
    let db = open(&options(log), &disk, OpenHow::Existing).unwrap();
    let mut durable = 0;
    let mut checkpoints = vec![0];
    let mut done = 0;
    let mut left = dice.below(40);
    for action in &script.actions {
        action.carry_out(&db).unwrap();
        done += 1;
        if matches!(action, Action::Checkpoint) {
            checkpoints.push(done);
        }
        if disk.lies_told().is_empty() {
            let is_durable = match log {
                true => db.durable_position() == db.log_position(),
                false => matches!(action, Action::Checkpoint),
            };
            durable = if is_durable { done } else { durable };
        } else if left == 0 {
            break;
        } else {
            left -= 1;
        }
    }
    if disk.lies_told().is_empty() {
        return None;
    }
    let mut allowed: Vec<usize> = if log { (0..=done).collect() } else { checkpoints };
    allowed.retain(|at| *at >= durable);
    Some(Unsynced { state: disk.state(), allowed })
}

/// Opens what a power cut has left: it is a state that the store went through, or damage is named.
fn assert_existed(
    survivor: &SimDisk,
    how: OpenHow,
    log: bool,
    case: (&Script, &Ever, &Unsynced),
    context: &str,
) {
    let (script, ever, unsynced) = case;
    let db = match open(&options(log), survivor, how) {
        Ok(db) => db,
        Err(error) => return assert_not_opened(&error, context),
    };
    match contents(&db) {
        Ok(found) => {
            let mut allowed = unsynced.allowed.iter();
            assert!(
                allowed.any(|at| script.models[*at] == found),
                "{context}: found the state after action {:?}, not one of {:?}",
                script.models.iter().rposition(|model| *model == found),
                unsynced.allowed
            );
        }
        // Some of it is damaged: the rest has what it had at some moment.
        Err(error) => {
            assert_damage(&error, context);
            for ((name, key), values) in ever {
                let found = db.keyspace(name).and_then(|keyspace| keyspace.get(key));
                match found {
                    Ok(value) => {
                        let value = value.map(|value| value.to_vec());
                        assert!(values.contains(&value), "{context}: {name} never had that");
                    }
                    Err(error) => assert_refused(&error, context),
                }
            }
        }
    }
}

#[test]
fn after_syncs_that_were_ignored_a_power_cut_leaves_what_once_was_or_damage() {
    let mut dice = Dice(seed(140));
    let script = Script::new(&mut dice);
    let ever = ever_had(&script);
    let (mut tried, mut mistaken) = (0, 0);
    let files = Lie::once(Deceit::SyncIgnored, 0);
    let directories = Lie::once(Deceit::DirectorySyncIgnored, 0);
    let lies = [
        (true, files.clone()),
        (true, files.clone().of(path())),
        (true, files.clone().of(&log_path(path()))),
        (true, directories),
        (false, files),
    ];
    for (log, lie) in lies {
        let mut after = 0;
        loop {
            assert!(after < MOST_CALLS, "the script has no end");
            let lie = Lie { after, ..lie.clone() }.sticky();
            after += 1 + dice.below(4 / effort().min(4));
            let context = format!("{lie:?}, log {log}");
            let Some(unsynced) = with_ignored_syncs(&script, lie, log, &mut dice) else { break };
            if could_be_mistaken(&unsynced.state) {
                mistaken += 1;
                continue;
            }
            for _ in 0..3 * effort() {
                let how = HOWS[dice.below(2) as usize];
                let crashed = unsynced.state.crash_at_random(dice.roll());
                let survivor = SimDisk::with_state(crashed, dice.roll());
                let context = format!("{context}, {how:?}");
                assert_existed(&survivor, how, log, (&script, &ever, &unsynced), &context);
                tried += 1;
            }
        }
    }
    println!("{tried} power cuts, {mistaken} runs left out");
    count(tried, "power cuts after ignored syncs");
    assert!(tried > 100 && mistaken * 10 < tried, "{tried} tried, {mistaken} left out");
}

/// While the system lives on it has all that was written.
#[test]
fn ignored_syncs_lose_nothing_when_only_the_process_dies() {
    let mut dice = Dice(seed(141));
    let script = Script::new(&mut dice);
    let disk = SimDisk::with_state(script.base.clone(), dice.roll());
    disk.inject_lie(Lie::once(Deceit::SyncIgnored, 0).sticky());
    let db = open(&options(true), &disk, OpenHow::Existing).unwrap();
    for action in &script.actions {
        action.carry_out(&db).unwrap();
    }
    drop(db);
    assert!(disk.calls(CallKind::SyncData) > 20);
    let killed = disk.kill(dice.roll());
    let db = open(&options(true), &killed, OpenHow::Existing).unwrap();
    assert!(contents(&db).unwrap() == *script.now());
    assert_sound(&db, "killed");
    count(1, "kills after ignored syncs");
}
