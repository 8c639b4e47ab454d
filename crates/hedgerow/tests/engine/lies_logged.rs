//! A disk that lies to a store with a log, large values and checkpoints: each write is lost or goes elsewhere, each
//! read of an opening brings something else. Every answer is right, or an error that names what is damaged.
//!
//! What nobody can notice, and is left out exactly:
//! - An older image of the same page or part with the same 14 bits on top of its checksum, once in 16,384 times
//!   (`passes_for`).
//! - The last flush of a log, of which no other block says that it was durable: it looks like a torn end. So scripts end
//!   with changes that are durable one after the other, each of which vouches for those before; and where blocks are
//!   read wrongly, what the others vouch for must be there (`vouched`).
//! - Without a log, a first block of a superblock that is lost before a power cut that takes the second: there stores are
//!   closed before the power goes.
//!
//! What is read wrongly page by page is in `lies.rs`; syncs that are ignored are in `lying_syncs.rs`.

use crate::common::aged::passes_for;
use crate::common::script::{
    HOWS, MOST_CALLS, Script, VOUCHERS, assert_not_opened, assert_refused, options,
};
use crate::common::{
    Dice, Model, assert_damage, assert_sound, contents, effort, open, path, read_all, seed,
};
use hedgerow::internals::checksum::page_checksum;
use hedgerow::internals::space::HEADER_REGION_BYTES;
use hedgerow::internals::store::{OpenHow, log_path};
use hedgerow::{Database, Lsn, PageId};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::sim::{Age, Deceit, Lie, SimState, Told};
use std::ops::ControlFlow;

/// A block of the log.
const BLOCK_BYTES: usize = 4096;

/// Reads all of an open store. Whatever is refused is found by a verification.
fn look(db: &Database, model: &Model, context: &str) {
    let refused = read_all(db, model, context);
    match db.verify(|_| ControlFlow::Continue(())) {
        Ok(report) => {
            assert!(refused == 0 || !report.is_clean(), "{context}: what cannot be read verifies");
        }
        Err(error) => assert_refused(&error, context),
    }
}

fn open_and_look(disk: &SimDisk, log: bool, model: &Model, context: &str) {
    for how in HOWS {
        let context = format!("{context}, {how:?}");
        match open(&options(log), disk, how) {
            Ok(db) => look(&db, model, &context),
            // `ForeignLog`: of the checkpoint that names the log there is nothing.
            Err(error) => assert_not_opened(&error, &context),
        }
    }
}

/// Whether it was a write of a page or part whose place has an older image that passes for it.
fn could_pass(told: &Told) -> bool {
    told.path.as_deref() == Some(path())
        && told.offset_bytes >= HEADER_REGION_BYTES
        && [512, 4096].contains(&told.truth.len())
        && told.differs
        && passes_for(&told.instead, &told.truth)
}

/// Runs the script with one write that goes wrong. `None`: there are not so many; `false`: it shows nothing.
fn with_a_wrong_write(script: &Script, lie: Lie, log: bool, dice: &mut Dice) -> Option<bool> {
    let context = format!("{lie:?}, log {log}");
    let disk = SimDisk::with_state(script.base.clone(), dice.roll());
    disk.inject_lie(lie);
    let mut model = script.models[0].clone();
    let mut is_closed = false;
    let mut is_vouched = true;
    match open(&options(log), &disk, OpenHow::Existing) {
        // Nothing was changed yet.
        Err(error) => assert_damage(&error, &context),
        Ok(db) => {
            for (at, action) in script.actions.iter().enumerate() {
                let is_voucher = at + VOUCHERS >= script.actions.len();
                if is_voucher && disk.lies_told().is_empty() {
                    return None;
                }
                match action.carry_out(&db) {
                    Ok(()) => action.apply(&mut model),
                    Err(error) => {
                        assert_refused(&error, &context);
                        is_vouched &= !is_voucher;
                    }
                }
            }
            if disk.lies_told().iter().any(could_pass) {
                return Some(false);
            }
            // In the running store, of which memory has a part; the rest is read from the disk.
            read_all(&db, &model, &context);
            if !log || dice.below(3) == 0 {
                match db.close() {
                    Ok(()) => is_closed = true,
                    Err(error) => assert_refused(&error, &context),
                }
            }
        }
    }
    disk.clear_lies();
    if !is_closed && (!log || !is_vouched) {
        return Some(false);
    }
    let crashed = disk.crash(dice.roll());
    open_and_look(&disk.kill(dice.roll()), log, &model, &format!("{context}, killed"));
    open_and_look(&crashed, log, &model, &format!("{context}, the power went"));
    Some(true)
}

fn wrong_writes(what: Deceit, log: bool, own_seed: u64) {
    let mut dice = Dice(seed(own_seed));
    let script = Script::new(&mut dice);
    let (mut tried, mut left_out) = (0, 0);
    let mut after = dice.below(4);
    while let Some(shows) = with_a_wrong_write(&script, Lie::once(what, after), log, &mut dice) {
        assert!(after < MOST_CALLS, "the script has no end");
        tried += u64::from(shows);
        left_out += u64::from(!shows);
        after += 1 + u64::from(effort() == 1) * dice.below(3);
    }
    // Without a log, a part of the map that was lost keeps the next checkpoint, and so the close, from ending well.
    println!("{what:?}, log {log}: {tried} writes, {left_out} left out");
    count(tried, "wrong writes");
    // Few scripts write less than twenty times without a log, and every second write is tried or so.
    assert!(tried > 3 && left_out < tried, "{tried} tried, {left_out} left out");
}

#[test]
fn a_lost_write_is_never_a_wrong_answer() {
    wrong_writes(Deceit::WriteLost, true, 131);
    wrong_writes(Deceit::WriteLost, false, 132);
}

#[test]
fn a_write_to_the_place_of_another_is_never_a_wrong_answer() {
    for (number, by_bytes) in [512, -4096, 4096, 28 << 10].into_iter().enumerate() {
        // A page, a block of the log or a part, and a segment of the log further on.
        let what = Deceit::WriteMisdirected { by_bytes };
        wrong_writes(what, true, 133 + number as u64);
    }
    wrong_writes(Deceit::WriteMisdirected { by_bytes: -512 }, false, 137);
}

/// A superblock of which both blocks are lost: the log tells that there was one.
#[test]
fn a_lost_checkpoint_is_noticed_by_the_log() {
    let mut dice = Dice(seed(138));
    let script = Script::new(&mut dice);
    let mut lost = 0;
    for closes in [false, true] {
        let disk = SimDisk::with_state(script.base.clone(), dice.roll());
        let db = open(&options(true), &disk, OpenHow::Existing).unwrap();
        let half = script.actions.len() / 2;
        for action in &script.actions[..half] {
            action.carry_out(&db).unwrap();
        }
        let lie = Lie::once(Deceit::WriteLost, 0).of(path()).within(0..HEADER_REGION_BYTES);
        disk.inject_lie(lie.sticky());
        if closes {
            db.close().unwrap();
        } else {
            db.checkpoint().unwrap();
            for action in &script.actions[half..] {
                action.carry_out(&db).unwrap();
            }
            drop(db);
        }
        let told = disk.lies_told().len();
        assert!(told >= 2, "both blocks");
        lost += told as u64;
        for survivor in [disk.kill(1), disk.crash(dice.roll())] {
            for how in HOWS {
                let context = format!("closed {closes}, {how:?}");
                let before = survivor.state().contents(path());
                let refused = open(&options(true), &survivor, how).map(drop).expect_err(&context);
                assert_not_opened(&refused, &context);
                assert!(survivor.state().contents(path()) == before, "{context}: left alone");
            }
        }
    }
    count(lost, "wrong writes");
}

/// A script that was carried out, and then the power went.
struct Crashed {
    script: Script,
    /// What the disk had half-way, and what is left.
    older: SimState,
    left: SimState,
    /// The end of the log after each model.
    positions: Vec<Lsn>,
}

impl Crashed {
    fn new(dice: &mut Dice) -> Crashed {
        let script = Script::new(dice);
        let disk = SimDisk::with_state(script.base.clone(), dice.roll());
        let db = open(&options(true), &disk, OpenHow::Existing).unwrap();
        let mut positions = vec![db.log_position()];
        let mut older = disk.state();
        for (at, action) in script.actions.iter().enumerate() {
            if at == script.actions.len() / 2 {
                older = disk.state();
            }
            action.carry_out(&db).unwrap();
            positions.push(db.log_position());
        }
        let left = disk.state().crash_at_random(dice.roll());
        Crashed { script, older, left, positions }
    }

    /// A disk that tells the lie about what is left; what is stale is what was there half-way.
    fn lying_disk(&self, lie: Lie, seed: u64) -> SimDisk {
        let disk = SimDisk::with_state(self.older.clone(), seed);
        disk.inject_lie(lie);
        disk.change_state(|state| {
            for path in self.left.paths() {
                let bytes = self.left.contents(&path).unwrap();
                state.set_contents(&path, &bytes).unwrap();
            }
        });
        disk
    }

    /// The first model that must be there, after these lies about the log: what the other blocks vouch for.
    fn vouched(&self, told: &[Told]) -> usize {
        let log = self.left.contents(&log_path(path())).unwrap();
        let is_wrong = |at: usize| {
            let mut told = told.iter().filter(|told| told.differs && is_of_log(told));
            told.any(|told| {
                let start = told.offset_bytes as usize;
                (start..start + told.truth.len()).contains(&at)
            })
        };
        if !(0..log.len()).step_by(BLOCK_BYTES).any(is_wrong) {
            return self.positions.len() - 1;
        }
        // The first block has other fields there; in the name of a segment there are zeros.
        let durable = (BLOCK_BYTES..log.len()).step_by(BLOCK_BYTES).filter(|at| !is_wrong(*at));
        let durable =
            durable.map(|at| u64::from_le_bytes(log[at + 16..at + 24].try_into().unwrap())).max();
        let durable = Lsn(durable.unwrap_or(0));
        self.positions.iter().rposition(|position| *position <= durable).unwrap_or(0)
    }
}

fn is_of_log(told: &Told) -> bool {
    told.path.as_deref() == Some(log_path(path()).as_path())
}

/// Whether some image would pass for another if reads were told this.
fn could_all_pass(crashed: &Crashed, what: Deceit) -> bool {
    if !matches!(what, Deceit::ReadStale(_) | Deceit::ReadMisdirected { .. }) {
        return false;
    }
    let left = crashed.left.contents(path()).unwrap();
    let older = crashed.older.contents(path()).unwrap();
    let image = |bytes: &[u8], at: i64, len: usize| -> Option<Vec<u8>> {
        let at = usize::try_from(at).ok()?;
        Some(bytes.get(at..at + len)?.to_vec())
    };
    let is_whole = |image: &[u8]| match image.len() {
        512 => {
            let checksum = u64::from_le_bytes(image[..8].try_into().unwrap());
            let id = u32::from_le_bytes(image[8..12].try_into().unwrap());
            page_checksum(PageId(id), image) == checksum
        }
        _ => image[8..12] == *b"HgPt",
    };
    (HEADER_REGION_BYTES as i64..left.len() as i64).step_by(512).any(|at| {
        [512, 4096].into_iter().any(|len| {
            let instead = match what {
                Deceit::ReadStale(_) => image(&older, at, len),
                Deceit::ReadMisdirected { by_bytes } => image(&left, at + by_bytes, len),
                _ => None,
            };
            let (Some(instead), Some(truth)) = (instead, image(&left, at, len)) else {
                return false;
            };
            instead != truth
                && is_whole(&instead)
                && is_whole(&truth)
                && passes_for(&instead, &truth)
        })
    })
}

/// Opens a store and reads it, while reads are told something else. Tells whether a lie was told.
fn with_a_wrong_read(crashed: &Crashed, lie: Lie, how: OpenHow, dice: &mut Dice) -> bool {
    let context = format!("{lie:?}, {how:?}");
    let now = crashed.script.now();
    let is_sticky = lie.sticky;
    let disk = crashed.lying_disk(lie, dice.roll());
    let opened = open(&options(true), &disk, how);
    let has_opened = opened.is_ok();
    let told = disk.lies_told();
    let first = crashed.vouched(&told);
    // What was read wrongly once is read again: nothing is missing for that.
    let is_all = !is_sticky || first + 1 == crashed.positions.len();
    match opened {
        // A log whose first block says something else is not the store's.
        Err(error) => assert_not_opened(&error, &context),
        // One that is yet to be told strikes a read here, once: a verification may find nothing any more.
        Ok(db) if is_all && told.is_empty() && !is_sticky => drop(read_all(&db, now, &context)),
        Ok(db) if is_all => look(&db, now, &context),
        Ok(db) => match contents(&db) {
            Ok(found) => {
                let at = crashed.script.models.iter().rposition(|model| *model == found);
                assert!(at.is_some_and(|at| at >= first), "{context}: {at:?}, not from {first} on");
            }
            Err(error) => assert_damage(&error, &context),
        },
    }
    let told = disk.lies_told();
    disk.clear_lies();
    // An opening for writing that has found a torn end goes on from there.
    if how == OpenHow::Existing && !is_all && (has_opened || is_sticky) {
        return !told.is_empty();
    }
    // What was told wrongly has done no harm.
    let db = open(&options(true), &disk, OpenHow::Existing)
        .unwrap_or_else(|error| panic!("{context}, told the truth again: {error:?}"));
    assert!(contents(&db).unwrap() == *now, "{context}, told the truth again");
    assert_sound(&db, &context);
    !told.is_empty()
}

#[test]
fn a_wrong_read_at_any_moment_of_a_recovery_is_never_a_wrong_answer() {
    let mut dice = Dice(seed(139));
    let crashed = Crashed::new(&mut dice);
    let (mut in_log, mut all, mut left_out) = (0, 0, 0);
    for of_log in [true, false] {
        for kind in 0..6 {
            for how in HOWS {
                let mut after = dice.below(4);
                loop {
                    assert!(after < MOST_CALLS, "the opening has no end");
                    let what = match kind {
                        0 => Deceit::ReadStale(Age::WhenArmed),
                        1 => Deceit::ReadMisdirected { by_bytes: 4096 },
                        2 => Deceit::ReadMisdirected { by_bytes: -(28 << 10) },
                        3 => Deceit::BitFlipped { bit: dice.roll() },
                        4 => Deceit::SectorZeroed { sector_bytes: 512, sector: dice.roll() },
                        _ => Deceit::SectorZeroed { sector_bytes: 4096, sector: dice.roll() },
                    };
                    if could_all_pass(&crashed, what) {
                        left_out += 1;
                        break;
                    }
                    let mut lie = Lie::once(what, after);
                    if of_log {
                        lie = lie.of(&log_path(path()));
                    }
                    // A disk that is stale as a whole is one of another time: nobody can notice that.
                    if kind > 0 && dice.below(4) == 0 {
                        lie = lie.sticky();
                    }
                    if !with_a_wrong_read(&crashed, lie, how, &mut dice) {
                        break;
                    }
                    all += 1;
                    in_log += u64::from(of_log);
                    // Reads of the log one by one, of all others some.
                    after += if of_log { 1 } else { 1 + dice.below(60 / effort().min(60)) };
                }
            }
        }
    }
    println!("{all} wrong reads, {in_log} of them of the log; {left_out} sorts left out");
    count(all, "wrong reads");
    assert!(in_log > 60 && all > in_log + 60, "{in_log}, {all}, {left_out}");
}
