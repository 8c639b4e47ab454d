//! What is done with what a crash has left: it is opened, compared, verified, crashed again, and used.
//!
//! Rank 7. An [`Examiner`] takes moments of a run on the simulated disk, lets an [`Accident`] happen to them, and finds
//! out whether the store keeps its promises. What it holds to:
//!
//! - what an opening finds is what its [`History`] allows, `verify` finds nothing, pages and bytes add up;
//! - once the power was cut nothing is pending, so each later opening finds the same, however often openings are cut
//!   short by accidents of their own;
//! - after a kill the opening finds what is written and not yet durable; a power cut before its end may take some of
//!   that again, after its end nothing;
//! - what was closed and opened again is the same, and takes changes as any store does.
//!
//! Errors are sentences: where in the chain of accidents, and the first thing that is wrong. Everything follows from
//! the seed. A plain value, `Send + Sync`.

use super::history::{Contents, History, Records, check_equal, contents};
use super::sim::{SimDisk, SimState};
use hedgerow::internals::error::{ErrorKind, Result};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Durability, Keyspace, Options, WriteBatch};
use hedgerow_sync::primitive::random::SplitMix64;
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// How a run ends before its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accident {
    /// The power goes: any part of what is pending is lost.
    PowerCut,
    /// The process ends and the system lives on: nothing is lost, and what is pending stays so.
    Kill,
}

impl Accident {
    /// What it leaves of a moment.
    pub fn leaves(self, moment: &SimState, seed: u64) -> SimState {
        match self {
            Accident::PowerCut => moment.crash_at_random(seed),
            Accident::Kill => moment.kill(),
        }
    }
}

impl fmt::Display for Accident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Accident::PowerCut => "a power cut",
            Accident::Kill => "a kill",
        })
    }
}

/// What a chain of accidents and openings came to.
#[derive(Debug)]
pub struct Recovered {
    /// What the first opening found.
    pub found: Contents,
    /// After which operation of the history the store was so.
    pub at: usize,
    /// Accidents in openings, after the first one.
    pub nested: u64,
}

/// Operations that must go well on what a crash has left.
const WORK_OPERATIONS: u64 = 50;
/// The keyspace that they are made in; nobody else's.
const WORK: &str = "work after a crash";
/// Keys of theirs, few enough for them to meet.
const WORK_KEYS: u64 = 16;
/// Most bytes of their short values.
const SHORT_BYTES: u64 = 60;

/// Opens what accidents leave, and finds fault with it. See the head of the file.
#[derive(Clone, Debug)]
pub struct Examiner {
    options: Options,
    path: PathBuf,
    read_only: bool,
    long_bytes: u64,
}

impl Examiner {
    /// For stores at `path` that are opened with `options`.
    pub fn new(options: &Options, path: &Path) -> Examiner {
        let (options, path) = (options.clone(), path.to_owned());
        Examiner { options, path, read_only: false, long_bytes: SHORT_BYTES }
    }

    /// Opens for reading only as well, now and then: the memory limit must have room for all that a replay changes.
    #[must_use]
    pub fn read_only_too(self) -> Examiner {
        Examiner { read_only: true, ..self }
    }

    /// Values of up to so many bytes are among those of the work on what a crash has left.
    #[must_use]
    pub fn long_values(self, long_bytes: u64) -> Examiner {
        Examiner { long_bytes, ..self }
    }

    /// Opens what is on a disk, and tells what is in it. `when` begins the sentence of an error.
    pub fn look(&self, disk: &SimDisk, when: &str) -> Result<Contents, String> {
        let db = self.open(disk, OpenHow::ExistingOrNew, when)?;
        let found = read(&db, when)?;
        check_sound(&db, true, when)?;
        Ok(found)
    }

    /// Opens what a crash has left, and closes it and opens it again; then uses it. Tells what is in it.
    pub fn examine(&self, left: &SimState, seed: u64) -> Result<Contents, String> {
        let mut random = SplitMix64::new(seed);
        let disk = SimDisk::with_state(left.clone(), random.next_u64());
        let when = "after an accident";
        let db = self.open(&disk, OpenHow::ExistingOrNew, when)?;
        let found = read(&db, when)?;
        check_sound(&db, true, when)?;
        told(db.close(), "closing after an accident")?;
        let when = "closed and opened again";
        let db = self.open(&disk, OpenHow::Existing, when)?;
        check_same(&db, &found, when)?;
        self.work(&db, &mut random)?;
        let when = "after more work";
        check_same(&db, &found, when)?;
        told(db.close(), "closing after more work")?;
        let db = self.open(&disk, OpenHow::Existing, "closed after more work")?;
        check_same(&db, &found, "closed after more work")?;
        Ok(found)
    }

    /// Lets an accident happen at a moment of a run of which operation `durable` of `history` was known to be durable;
    /// and up to `depth` further accidents, each at a random call of the opening that followed the one before, or right
    /// after it. What each opening finds is checked.
    pub fn recover(
        &self,
        moment: &SimState,
        accident: Accident,
        history: &History,
        durable: usize,
        depth: u64,
        seed: u64,
    ) -> Result<Recovered, String> {
        let mut random = SplitMix64::new(seed);
        let mut when = format!("after {accident}");
        let mut left = accident.leaves(moment, random.next_u64());
        // Whether a power cut can take anything of what the next opening finds.
        let mut is_firm = accident == Accident::PowerCut;
        let mut opening = self.open_recorded(&left, None, &when, &mut random)?;
        let at = history.check_from(durable, &opening.found);
        let at = at.map_err(|what| format!("{when}: {what}"))?;
        let first = opening.found.clone();
        for _ in 0..depth {
            let chosen = random.below(opening.moments.len() as u64) as usize;
            let has_ended = chosen + 1 == opening.moments.len();
            let accident = if random.below(4) == 0 { Accident::Kill } else { Accident::PowerCut };
            let part = if has_ended { "behind" } else { "in" };
            when.push_str(&format!(", {accident} {part} the opening (call {chosen})"));
            left = accident.leaves(&opening.moments[chosen], random.next_u64());
            // An opening ends with a checkpoint of all that it found.
            is_firm |= has_ended;
            let keeps_all = is_firm || accident == Accident::Kill;
            is_firm |= accident == Accident::PowerCut;
            // What may be gone by now is a matter of the history alone.
            let expected = keeps_all.then_some(&opening.found);
            let next = self.open_recorded(&left, expected, &when, &mut random)?;
            history.check_from(durable, &next.found).map_err(|what| format!("{when}: {what}"))?;
            opening = next;
        }
        Ok(Recovered { found: first, at, nested: depth })
    }

    /// Kills the process at a moment, and cuts the power at each call of the opening that follows, and behind it. Tells
    /// how many power cuts that were.
    pub fn cut_each_call(
        &self,
        moment: &SimState,
        history: &History,
        durable: usize,
        seed: u64,
    ) -> Result<u64, String> {
        let mut random = SplitMix64::new(seed);
        let when = "after a kill";
        let opening = self.open_recorded(&moment.kill(), None, when, &mut random)?;
        let allowed = |found: &Contents, when: &str| {
            history.check_from(durable, found).map_err(|what| format!("{when}: {what}"))
        };
        allowed(&opening.found, when)?;
        let last = opening.moments.len() - 1;
        for (call, moment) in opening.moments.iter().enumerate() {
            let when = format!("after a kill, a power cut at call {call} of {last} of the opening");
            let left = Accident::PowerCut.leaves(moment, random.next_u64());
            let found = self.look(&SimDisk::with_state(left, random.next_u64()), &when)?;
            allowed(&found, &when)?;
            if call == last {
                check_equal(&opening.found, &found).map_err(|what| format!("{when}: {what}"))?;
            }
        }
        Ok(opening.moments.len() as u64)
    }

    /// Opens what an accident has left, and remembers the moments of that.
    fn open_recorded(
        &self,
        left: &SimState,
        expected: Option<&Contents>,
        when: &str,
        random: &mut SplitMix64,
    ) -> Result<Opening, String> {
        let read_only = match self.read_only && random.below(4) == 0 {
            true => self.look_only(left, when, random.next_u64())?,
            false => None,
        };
        let disk = SimDisk::with_state(left.clone(), random.next_u64());
        disk.record_states(true);
        let db = self.open(&disk, OpenHow::ExistingOrNew, when)?;
        let mut moments = disk.take_states();
        moments.push(disk.state());
        disk.record_states(false);
        let found = read(&db, when)?;
        if let Some(expected) = expected {
            check_equal(expected, &found).map_err(|what| format!("{when}: {what}"))?;
        }
        if let Some(other) = read_only {
            let when = format!("{when}, opened for reading only before");
            check_equal(&other, &found).map_err(|what| format!("{when}: {what}"))?;
        }
        check_sound(&db, true, when)?;
        Ok(Opening { found, moments })
    }

    /// What is in a store by an opening for reading only, which writes nothing; `None` if there is no store.
    fn look_only(
        &self,
        left: &SimState,
        when: &str,
        seed: u64,
    ) -> Result<Option<Contents>, String> {
        let when = format!("{when}, for reading only");
        let disk = SimDisk::with_state(left.clone(), seed);
        let db = match self.options.on_disk(&disk, &self.path, OpenHow::ReadOnly) {
            Err(error) if error.kind() == ErrorKind::FileNotFound => return Ok(None),
            other => told(other, &when)?,
        };
        let found = read(&db, &when)?;
        check_sound(&db, false, &when)?;
        drop(db);
        if disk.state().fingerprint() != left.fingerprint() {
            return Err(format!("{when}: something was written"));
        }
        Ok(Some(found))
    }

    fn open(&self, disk: &SimDisk, how: OpenHow, when: &str) -> Result<Database, String> {
        told(self.options.on_disk(disk, &self.path, how), when)
    }

    /// Operations that must go well, in a keyspace of their own that is gone in the end.
    fn work(&self, db: &Database, random: &mut SplitMix64) -> Result<(), String> {
        let keyspace = told(db.keyspace(WORK), "a keyspace for more work")?;
        let mut expected = Records::new();
        for number in 0..WORK_OPERATIONS {
            let when = format!("operation {number} after an accident");
            let agrees = told(self.operate(db, &keyspace, &mut expected, random), &when)?;
            if !agrees {
                return Err(format!("{when}: wrong about whether there was a record"));
            }
        }
        let when = "after more operations";
        let found = read(db, when)?.remove(WORK).unwrap_or_default();
        let one = |records: Records| Contents::from([(WORK.to_owned(), records)]);
        check_equal(&one(expected), &one(found)).map_err(|what| format!("{when}: {what}"))?;
        check_sound(db, true, when)?;
        drop(keyspace);
        match told(db.drop_keyspace(WORK), "dropping the keyspace of more work")? {
            true => Ok(()),
            false => Err("the keyspace of more work was gone".into()),
        }
    }

    /// One operation, on the store and on what is expected of it. Tells whether both agree on what was there before.
    fn operate(
        &self,
        db: &Database,
        keyspace: &Keyspace,
        expected: &mut Records,
        random: &mut SplitMix64,
    ) -> Result<bool> {
        let key = |random: &mut SplitMix64| format!("{:02}", random.below(WORK_KEYS)).into_bytes();
        let choice = random.below(12);
        let most = if choice == 0 { self.long_bytes } else { SHORT_BYTES };
        let mut value = vec![0_u8; random.below(most + 1) as usize];
        random.fill(&mut value);
        let (one, other) = (key(random), key(random));
        match choice {
            1 => {
                db.checkpoint()?;
                Ok(true)
            }
            2 | 3 => Ok(keyspace.remove(&one)? == expected.remove(&one).is_some()),
            4 => {
                let mut batch = WriteBatch::new();
                batch.put(keyspace, &one, &value)?;
                batch.remove(keyspace, &other)?;
                db.write(&batch)?;
                expected.insert(one, value);
                expected.remove(&other);
                Ok(true)
            }
            5 => {
                let keyspace = keyspace.clone().with_durability(Durability::Sync);
                let was_there = keyspace.put(&one, &value)?;
                Ok(was_there == expected.insert(one, value).is_some())
            }
            _ => {
                let was_there = keyspace.put(&one, &value)?;
                Ok(was_there == expected.insert(one, value).is_some())
            }
        }
    }
}

/// An opening that went well.
struct Opening {
    found: Contents,
    /// The disk before each of its calls that change anything, and after the last.
    moments: Vec<SimState>,
}

fn told<T>(outcome: Result<T>, when: &str) -> Result<T, String> {
    outcome.map_err(|error| format!("{when}: {error:?}"))
}

fn read(db: &Database, when: &str) -> Result<Contents, String> {
    told(contents(db), when)
}

fn check_same(db: &Database, expected: &Contents, when: &str) -> Result<(), String> {
    check_equal(expected, &read(db, when)?).map_err(|what| format!("{when}: {what}"))?;
    check_sound(db, true, when)
}

/// A verification finds nothing, every byte of the file is accounted for, and every page that has an image is reached;
/// a store that is open for reading only has pages in memory alone.
fn check_sound(db: &Database, is_writable: bool, when: &str) -> Result<(), String> {
    let report = told(db.verify(|_| ControlFlow::Continue(())), when)?;
    if let Some(finding) = report.findings.first() {
        return Err(format!("{when}: {finding}, and {} more", report.count() - 1));
    }
    if is_writable && report.pages != report.reached {
        let (pages, reached) = (report.pages, report.reached);
        return Err(format!("{when}: {pages} pages have images, and {reached} are reached"));
    }
    let space = told(db.space_report(), when)?;
    let sum = space.accounted_bytes();
    if sum != space.file_bytes {
        return Err(format!("{when}: {sum} bytes accounted for in a file of {}", space.file_bytes));
    }
    Ok(())
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::history::Outcome;
    use super::*;

    fn options() -> Options {
        let limit = hedgerow::smallest_memory_limit_bytes(512);
        let options = Options::new().page_bytes(512).memory_limit_bytes(limit);
        options.background_checkpoints(false).log_segment_blocks(6)
    }

    #[test]
    fn a_store_that_keeps_its_promises_passes_and_one_that_forgets_does_not() {
        let seed = 0x0a11_ce55;
        println!("seed {seed}");
        let mut random = SplitMix64::new(seed);
        let path = Path::new("dir/store");
        let disk = SimDisk::new(random.next_u64());
        let db = options().on_disk(&disk, path, OpenHow::New).unwrap();
        let keyspace = db.keyspace("wrens").unwrap();
        let mut history = History::new(contents(&db).unwrap());
        for n in 0..20_u8 {
            keyspace.put(&[n], &[n; 40]).unwrap();
            history.add("put", Outcome::Buffered, contents(&db).unwrap());
        }
        db.sync().unwrap();
        history.all_durable();
        let examiner = Examiner::new(&options(), path);
        let moment = disk.state();
        for accident in [Accident::PowerCut, Accident::Kill] {
            for depth in 0..4 {
                let (durable, seed) = (history.durable(), random.next_u64());
                let recovered =
                    examiner.recover(&moment, accident, &history, durable, depth, seed).unwrap();
                assert_eq!((recovered.at, recovered.nested), (20, depth));
                assert_eq!(recovered.found, *history.now());
            }
        }
        assert!(examiner.cut_each_call(&moment, &history, 20, random.next_u64()).unwrap() > 5);
        let found = examiner.examine(&moment.crash(&[], None), random.next_u64()).unwrap();
        assert_eq!(found, *history.now());
        // What it says of a store in which a change is missing that was said to be durable.
        let mut more = history.now().clone();
        more.entry("wrens".into()).or_default().insert(b"lost".to_vec(), b"value".to_vec());
        history.add("put lost", Outcome::Durable, more);
        let seed = random.next_u64();
        let told = examiner.recover(&moment, Accident::Kill, &history, 21, 0, seed).unwrap_err();
        assert!(told.contains("after a kill") && told.contains("key lost: it is"), "{told}");
    }
}
