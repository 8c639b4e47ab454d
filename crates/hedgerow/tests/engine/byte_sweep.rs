//! Every byte of a small store's file, and of its log, with eight other values each: what is read then is right, or an
//! error that says what is damaged; never anything else.
//!
//! A sweep makes a file once and knows which of its bytes a whole reading of it touches: a reading with a verification
//! is recorded on the simulated disk. A *case* is a byte and a value. Each is a disk of its own that shares all other
//! bytes with the sound one; it is opened for reading, and one case in eight for writing as well, every key is read by
//! a look-up and by a scan, and the store is verified.
//!
//! By itself a sweep takes a sample, which the printed seed decides: a case in [`ONE_IN_USED`] of bytes that say
//! something, fewer of zeros among zeros and of bytes that nobody reads. With `HEDGEROW_EFFORT` above 1 it takes all
//! cases, and with `HEDGEROW_PART=i/n` (`1/4` to `4/4`, say) a part of them, so that several processes share them.
//!
//! Which bytes may change without any notice: those that nobody reads (the rest of the header region, free units,
//! places of the log that are not needed), and of those that are read the ones of a superblock that is not needed,
//! because its copy or a newer one is whole, and of the log what lies behind its end. They are counted.

use crate::common::{
    Dice, Model, Records, contents, effort, is_thorough, key, open, part, path, seed, tiny,
};
use hedgerow::internals::buffer::smallest_limit_without_log_bytes;
use hedgerow::internals::space::HEADER_REGION_BYTES;
use hedgerow::internals::storage::{DirectIo, Disk, OpenMode};
use hedgerow::internals::store::{OpenHow, log_path};
use hedgerow::{
    Database, Error, ErrorKind, Keyspace, LeafLayout, LeafPolicy, Options, WriteBatch,
    smallest_memory_limit_bytes,
};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::sim::{CallKind, SimState};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

/// Of bytes that are read and have something that is not zero near them, one case in so many is taken.
const ONE_IN_USED: u64 = 40;
/// Of zeros among zeros that are read.
const ONE_IN_BLANK: u64 = 120;
/// Of bytes that nobody reads.
const ONE_IN_UNREAD: u64 = 320;
/// Cases of which one is opened for writing as well.
const ONE_IN_WRITES: u64 = 8;
/// Values that each byte is given.
const VALUES: u64 = 8;
/// How far from a byte that is not zero a zero says something.
const NEAR_BYTES: usize = 16;
/// What a memory limit needs above the smallest for large values.
const LARGE_VALUES_BYTES: u64 = 128 << 10;
const KEYSPACES: [&str; 2] = ["gulls", "wrens"];

/// A sound store, and the file of it whose bytes are changed.
struct Sound {
    options: Options,
    state: SimState,
    /// The file that is damaged, and what it has.
    file: PathBuf,
    bytes: Vec<u8>,
    /// Which of its bytes a whole reading touches.
    is_read: Vec<bool>,
    /// What may be found in the store; the last of them is what is there.
    possible: Vec<Model>,
}

/// What became of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// Something said that there is damage; all answers that were given are right.
    Named,
    /// Everything is as it was, and nobody said anything.
    Equal,
    /// The end of the log is not there.
    Shorter,
}

/// A byte, and what it becomes.
#[derive(Clone, Copy, Debug)]
struct Case {
    at: usize,
    #[allow(dead_code, reason = "for who reads that a case has failed")]
    was: u8,
    is: u8,
}

/// What a sweep has seen.
#[derive(Default, Debug)]
struct Counts {
    cases: u64,
    named: u64,
    equal: u64,
    shorter: u64,
    /// Of those that are equal: the byte was read, in the header region or elsewhere.
    unnoticed_in_header: u64,
    unnoticed_elsewhere: u64,
    /// Of those that are not equal: nobody reads the byte of a sound store.
    noticed_unread: u64,
    writes: u64,
}

/// What a byte is given: bits turned, ends of the range, one more and one less, and what lies beside it.
fn values(bytes: &[u8], at: usize) -> [u8; VALUES as usize] {
    let byte = bytes[at];
    let beside = bytes.get(at + 1).or(bytes.get(at.wrapping_sub(1))).copied().unwrap_or(0);
    let (more, less) = (byte.wrapping_add(1), byte.wrapping_sub(1));
    [byte ^ 1, byte ^ 0x80, byte ^ 0xff, 0, 0xff, more, less, beside]
}

fn options(page_bytes: usize) -> Options {
    let limit = smallest_limit_without_log_bytes(page_bytes) + LARGE_VALUES_BYTES;
    tiny().page_bytes(page_bytes).memory_limit_bytes(limit).zone_bytes(32 << 10)
}

fn put(keyspace: &Keyspace, model: &mut Model, key: Vec<u8>, value: Vec<u8>) {
    keyspace.put(&key, &value).unwrap();
    let records = model.get_mut(keyspace.name()).expect("the model has all keyspaces");
    records.insert(key, value);
}

fn empty_model() -> Model {
    KEYSPACES.into_iter().map(|name| (name.to_owned(), Records::new())).collect()
}

/// Short records in leaves of the adaptive choice, others in fingerprint leaves, and a large value; changed between
/// checkpoints, so that free units hold what was there before. Closed.
fn closed_store(page_bytes: usize, records: u64) -> Sound {
    let options = options(page_bytes);
    let disk = SimDisk::new(1);
    let mut dice = Dice(7);
    let mut model = empty_model();
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let wrens = db.keyspace("wrens").unwrap();
    for n in 0..records {
        put(&wrens, &mut model, key(n), crate::common::bytes(&mut dice, 10 + n as usize % 20));
        if n % 40 == 39 {
            db.checkpoint().unwrap();
        }
    }
    for n in (0..records).step_by(3) {
        assert!(wrens.remove(&key(n)).unwrap());
        assert!(model.get_mut("wrens").unwrap().remove(&key(n)).is_some());
    }
    put(&wrens, &mut model, b"song".to_vec(), crate::common::bytes(&mut dice, page_bytes + 300));
    drop(wrens);
    db.close().unwrap();
    let unsorted = options.clone().leaves(LeafPolicy::Fixed(LeafLayout::Fingerprint));
    let db = open(&unsorted, &disk, OpenHow::Existing).unwrap();
    let gulls = db.keyspace("gulls").unwrap();
    for n in 0..records / 2 {
        let key = format!("{:03}/gull", n * 37 % 1_000).into_bytes();
        put(&gulls, &mut model, key, crate::common::bytes(&mut dice, n as usize % 24));
    }
    drop(gulls);
    db.close().unwrap();
    Sound::new(options, &disk, path().to_owned(), vec![model])
}

/// A store that was killed, whose log has changes, a batch and a large value behind the checkpoint. Damage at the
/// log's end can take away what the last flush has written, and no more.
fn logged_store() -> Sound {
    let options = options(512)
        .memory_limit_bytes(smallest_memory_limit_bytes(512) + LARGE_VALUES_BYTES)
        .log(true)
        .log_segment_blocks(2)
        // So that nothing is flushed but what is told to be.
        .log_interval(Duration::from_secs(3_600));
    let disk = SimDisk::new(1);
    let mut dice = Dice(8);
    let mut model = empty_model();
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let [gulls, wrens] = KEYSPACES.map(|name| db.keyspace(name).unwrap());
    for n in 0..20 {
        put(&wrens, &mut model, key(n), crate::common::bytes(&mut dice, 20));
    }
    db.checkpoint().unwrap();
    for n in 10..30 {
        put(&wrens, &mut model, key(n), crate::common::bytes(&mut dice, 30));
    }
    db.sync().unwrap();
    let mut batch = WriteBatch::new();
    for n in 0..8 {
        let (key, value) = (key(n), crate::common::bytes(&mut dice, 16));
        batch.put(&gulls, &key, &value).unwrap();
        batch.remove(&wrens, &key).unwrap();
        model.get_mut("gulls").unwrap().insert(key.clone(), value);
        model.get_mut("wrens").unwrap().remove(&key);
    }
    db.write(&batch).unwrap();
    put(&gulls, &mut model, b"song".to_vec(), crate::common::bytes(&mut dice, 900));
    db.sync().unwrap();
    let before_the_last = model.clone();
    for n in 12..20 {
        put(&gulls, &mut model, key(n), crate::common::bytes(&mut dice, 12));
    }
    db.sync().unwrap();
    // A process that was killed: everything that it had written is there, and nobody closes anything.
    let killed = SimDisk::with_state(disk.state(), 1);
    drop((gulls, wrens, db));
    Sound::new(options, &killed, log_path(path()), vec![before_the_last, model])
}

impl Sound {
    fn new(options: Options, disk: &SimDisk, file: PathBuf, possible: Vec<Model>) -> Sound {
        let state = disk.state();
        let bytes = state.contents(&file).expect("the file is there");
        let is_read = vec![false; bytes.len()];
        let mut sound = Sound { options, state, file, bytes, is_read, possible };
        let disk = SimDisk::with_state(sound.state.clone(), 1);
        // The first file that is opened is the store; the log is the other one that is read.
        disk.record_log(true);
        let db = open(&sound.options, &disk, OpenHow::ReadOnly).unwrap();
        assert!(contents(&db).unwrap() == *sound.newest());
        let report = db.verify(|_| ControlFlow::Continue(())).unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
        let calls = disk.take_log();
        let store = calls.iter().find_map(|call| call.file).expect("the store is read");
        let is_log = sound.file != path();
        for call in calls {
            if call.kind == CallKind::Read && (call.file != Some(store)) == is_log {
                let start = (call.offset_bytes as usize).min(sound.is_read.len());
                let end = (start + call.len_bytes as usize).min(sound.is_read.len());
                sound.is_read[start..end].fill(true);
            }
        }
        assert!(sound.is_read.contains(&true), "nothing of the file is read");
        sound
    }

    fn newest(&self) -> &Model {
        self.possible.last().expect("something is in the store")
    }

    fn is_log(&self) -> bool {
        self.file != path()
    }

    /// The disk of a case.
    fn damaged(&self, case: &Case) -> SimDisk {
        let disk = SimDisk::with_state(self.state.clone(), 1);
        let file = disk.open(&self.file, OpenMode::ReadWrite, DirectIo::Never).unwrap();
        file.write_at(case.at as u64, &[case.is]).unwrap();
        file.sync_data().unwrap();
        drop(file);
        disk
    }

    /// Of how many cases of this byte one is taken in a sample.
    fn one_in(&self, at: usize) -> u64 {
        let near =
            &self.bytes[at.saturating_sub(NEAR_BYTES)..self.bytes.len().min(at + NEAR_BYTES)];
        let one_in = if effort() > 1 {
            return 1;
        } else if !self.is_read[at] {
            ONE_IN_UNREAD
        } else if near.iter().all(|byte| *byte == 0) {
            ONE_IN_BLANK
        } else {
            ONE_IN_USED
        };
        if is_thorough() { one_in } else { 4 * one_in }
    }

    /// The error says that there is damage, and where if it is in the store's file.
    fn assert_named(&self, error: &Error, case: &Case) {
        if self.is_log() {
            let is_named = matches!(
                error.kind(),
                ErrorKind::Corrupted { .. }
                    | ErrorKind::NotAStore
                    | ErrorKind::LogMissing
                    | ErrorKind::ForeignLog
                    | ErrorKind::UpgradeRequired { .. }
            );
            assert!(is_named, "{case:?}: {error:?}");
        } else {
            crate::common::assert_damage(error, &format!("{case:?}"));
        }
    }

    /// Opens the store of a case and reads all of it.
    fn examine(&self, disk: &SimDisk, case: &Case, how: OpenHow) -> (Outcome, Option<Database>) {
        let db = match open(&self.options, disk, how) {
            Ok(db) => db,
            Err(error) => {
                self.assert_named(&error, case);
                return (Outcome::Named, None);
            }
        };
        let fits = vec![true; self.possible.len()];
        let mut answers = Answers { sound: self, case, errors: 0, fits };
        answers.read_all(&db);
        let Answers { errors, fits, .. } = answers;
        let found = fits.iter().rposition(|fits| *fits);
        let found = found.unwrap_or_else(|| panic!("{case:?}, {how:?}: wrong answers"));
        let is_clean = match db.verify(|_| ControlFlow::Continue(())) {
            Ok(report) => report.is_clean(),
            Err(error) => {
                self.assert_named(&error, case);
                false
            }
        };
        assert!(errors == 0 || !is_clean, "{case:?}, {how:?}: what cannot be read verifies");
        let outcome = match (is_clean, found + 1 == self.possible.len()) {
            (false, _) => Outcome::Named,
            (true, true) => Outcome::Equal,
            (true, false) => Outcome::Shorter,
        };
        (outcome, Some(db))
    }

    /// Changes the store of a case, and closes it. What was changed is there then, or somebody says that there is
    /// damage.
    fn write(&self, disk: &SimDisk, case: &Case) -> Outcome {
        let (outcome, db) = self.examine(disk, case, OpenHow::Existing);
        let Some(db) = db else { return outcome };
        let new = (key(500), vec![b'.'; 9]);
        let changed = db.keyspace("wrens").and_then(|wrens| {
            wrens.put(&new.0, &new.1)?;
            wrens.remove(&key(11))?;
            db.checkpoint()
        });
        let closed = db.close();
        for error in [changed.as_ref().err(), closed.as_ref().err()].into_iter().flatten() {
            if error.kind() != ErrorKind::Poisoned {
                self.assert_named(error, case);
            }
        }
        if changed.is_err() || closed.is_err() {
            return outcome;
        }
        let found = open(&self.options, disk, OpenHow::ReadOnly).and_then(|db| {
            let wrens = db.open_keyspace("wrens")?.expect("the keyspace is there");
            Ok((wrens.get(&new.0)?, wrens.get(&key(11))?))
        });
        match found {
            Ok((there, gone)) => {
                assert_eq!(there.as_deref(), Some(&new.1[..]), "{case:?}: what was put");
                assert!(gone.is_none(), "{case:?}: what was removed");
            }
            Err(error) => self.assert_named(&error, case),
        }
        outcome
    }

    fn sweep(&self, own_seed: u64) -> Counts {
        let seed = seed(own_seed);
        let (part, parts) = part();
        let (part, parts) = (part as u64, parts as u64);
        let mut counts = Counts::default();
        let mut asked = 0;
        for at in 0..self.bytes.len() {
            let (was, one_in) = (self.bytes[at], self.one_in(at));
            for (value, is) in values(&self.bytes, at).into_iter().enumerate() {
                let number = at as u64 * VALUES + value as u64;
                let roll = Dice(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).roll();
                if is == was || number % parts != part || !roll.is_multiple_of(one_in) {
                    continue;
                }
                asked += 1;
                let case = Case { at, was, is };
                let writes = (roll / one_in).is_multiple_of(ONE_IN_WRITES);
                self.take(&case, writes, &mut counts);
            }
        }
        let Counts { cases, named, equal, shorter, .. } = counts;
        assert_eq!((cases, named + equal + shorter), (asked, asked), "{counts:?}");
        assert!(asked > 0, "part {} of {parts} has no cases", part + 1);
        let read = self.is_read.iter().filter(|is_read| **is_read).count();
        println!("{} bytes, {read} of them read; {counts:?}", self.bytes.len());
        count(cases, "swept bytes");
        if effort() > 1 && parts == 1 {
            let other = |at: usize| {
                let was = self.bytes[at];
                values(&self.bytes, at).into_iter().filter(|is| *is != was).count() as u64
            };
            assert_eq!(asked, (0..self.bytes.len()).map(other).sum::<u64>(), "all cases");
        }
        counts
    }

    /// Takes one case.
    fn take(&self, case: &Case, writes: bool, counts: &mut Counts) {
        let disk = self.damaged(case);
        let (mut outcome, db) = self.examine(&disk, case, OpenHow::ReadOnly);
        drop(db);
        counts.cases += 1;
        if writes {
            counts.writes += 1;
            let written = self.write(&disk, case);
            // Opening for writing heals a superblock, so it may have less to say.
            if outcome == Outcome::Equal {
                outcome = written;
            }
        }
        match outcome {
            Outcome::Named => counts.named += 1,
            Outcome::Equal => counts.equal += 1,
            Outcome::Shorter => counts.shorter += 1,
        }
        match (outcome, self.is_read[case.at]) {
            (Outcome::Equal, true) if (case.at as u64) < HEADER_REGION_BYTES => {
                counts.unnoticed_in_header += 1;
            }
            (Outcome::Equal, true) => counts.unnoticed_elsewhere += 1,
            (Outcome::Named | Outcome::Shorter, false) => counts.noticed_unread += 1,
            _ => {}
        }
    }
}

/// What the store of a case answers.
struct Answers<'s> {
    sound: &'s Sound,
    case: &'s Case,
    /// Answers that are errors.
    errors: u64,
    /// Which of the possible contents agree with all that were given.
    fits: Vec<bool>,
}

impl Answers<'_> {
    fn refuse(&mut self, error: &Error) {
        self.sound.assert_named(error, self.case);
        self.errors += 1;
    }

    fn hold_against(&mut self, agrees: impl Fn(&Model) -> bool) {
        for (fits, model) in self.fits.iter_mut().zip(&self.sound.possible) {
            *fits = *fits && agrees(model);
        }
    }

    fn read_all(&mut self, db: &Database) {
        match db.keyspaces() {
            Ok(names) => assert_eq!(names, KEYSPACES, "{:?}", self.case),
            Err(error) => self.refuse(&error),
        }
        for name in KEYSPACES {
            match db.open_keyspace(name) {
                Ok(Some(keyspace)) => {
                    self.scan(&keyspace);
                    self.look_up(&keyspace);
                }
                Ok(None) => panic!("{:?}: there is no keyspace {name}", self.case),
                Err(error) => self.refuse(&error),
            }
        }
    }

    /// All of a keyspace, or what comes before an error.
    fn scan(&mut self, keyspace: &Keyspace) {
        let mut found = Vec::new();
        let mut is_whole = true;
        for record in keyspace.iter() {
            match record {
                Ok(record) => found.push(record),
                Err(error) => {
                    self.refuse(&error);
                    is_whole = false;
                    break;
                }
            }
        }
        self.hold_against(|model| {
            let expected = &model[keyspace.name()];
            let mut pairs = expected.iter().zip(&found);
            (found.len() == expected.len() || (!is_whole && found.len() < expected.len()))
                && pairs.all(|(expected, found)| {
                    expected.0[..] == found.0[..] && expected.1[..] == found.1[..]
                })
        });
    }

    /// Every key, and one that is not there: another way to a leaf than a scan takes.
    fn look_up(&mut self, keyspace: &Keyspace) {
        let sound = self.sound;
        let name = keyspace.name();
        let absent = [&b"nobody"[..]];
        let keys = sound.newest()[name].keys().map(Vec::as_slice);
        for key in keys.chain(absent) {
            match keyspace.get(key) {
                Ok(found) => self.hold_against(|model| {
                    model[name].get(key).map(Vec::as_slice) == found.as_deref()
                }),
                Err(error) => self.refuse(&error),
            }
        }
    }
}

/// What holds of every sweep of a store's file: all that is read and matters is noticed, and nothing else is.
fn assert_swept(counts: &Counts) {
    assert_eq!(counts.shorter, 0, "{counts:?}");
    assert_eq!(counts.noticed_unread, 0, "{counts:?}");
    assert_eq!(counts.unnoticed_elsewhere, 0, "{counts:?}");
    assert!(counts.named > 0 && counts.equal > 0 && counts.writes > 0, "{counts:?}");
}

#[test]
fn every_byte_of_a_store_with_the_smallest_pages() {
    assert_swept(&closed_store(512, 90).sweep(501));
}

#[test]
fn every_byte_of_a_store_with_pages_of_4_kib() {
    assert_swept(&closed_store(4096, 240).sweep(502));
}

#[test]
fn every_byte_of_a_log() {
    let counts = logged_store().sweep(503);
    assert_eq!(counts.noticed_unread, 0, "{counts:?}");
    assert!(counts.named > 0 && counts.equal > 0 && counts.shorter > 0, "{counts:?}");
}
