//! A small world, gone through completely: all words of up to two steps out of an alphabet of a dozen, on an empty store
//! and on one with a tree of two levels, a close in the last place among them; at each moment of the last step (those
//! of the others are in shorter words) all subsets of what a power cut can keep.
//!
//! Pages, parts, superblocks and blocks of the log are all 4 KiB, which is what a power cut keeps or drops as one; where
//! a segment of the log is filled with zeros a whole write is. No moment may have more of these pieces than
//! [`MOST_PIECES`], and all counts are those that the enumeration has to have: nothing is left to the dice but torn
//! sectors and garbage, which are tried in addition, and accidents in the openings that follow. Disks that are left with
//! the same bytes are opened once; each time what is found is held against the history of that word.
//!
//! `HEDGEROW_EFFORT=2` has words of three steps, and `HEDGEROW_PART=2/8` the second of eight equal parts of all words.

use crate::common::session::{examiner, well};
use crate::common::{Dice, Model, Records, contents, effort, open, part, seed};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Durability, Keyspace, Options, WriteBatch};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::SimState;
use hedgerow_testing::{Accident, Examiner, History, Outcome, count};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The most pieces that may be pending: of these all subsets are tried.
const MOST_PIECES: usize = 12;
const PIECE_BYTES: u64 = 4096;
/// For whole changes as pieces.
const WHOLE: u64 = u64::MAX;
/// Crashes by the dice at each moment, beside all subsets.
const TORN: u64 = 1;
/// Of disks that were not met before, one in so many is opened again and worked on.
const EXAMINED_EVERY: u64 = 16;
/// And one in so many meets further accidents while it is opened.
const NESTED_EVERY: u64 = 5;
const LARGE_BYTES: usize = 5_000;

/// What can be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    PutShort,
    PutLong,
    Overwrite,
    Remove,
    Batch,
    PutSynced,
    Sync,
    Checkpoint,
    RemoveRange,
    Create,
    Drop,
    PutLarge,
    /// In the last place only.
    Close,
}

const ALPHABET: [Step; 12] = [
    Step::PutShort,
    Step::PutLong,
    Step::Overwrite,
    Step::Remove,
    Step::Batch,
    Step::PutSynced,
    Step::Sync,
    Step::Checkpoint,
    Step::RemoveRange,
    Step::Create,
    Step::Drop,
    Step::PutLarge,
];

/// All words of up to `longest` steps, the shorter ones first.
fn words(longest: usize) -> Vec<Vec<Step>> {
    let mut all = vec![Vec::new()];
    let mut longer: Vec<Vec<Step>> = all.clone();
    for _ in 0..longest {
        let shorter = std::mem::take(&mut longer);
        for word in shorter.iter().filter(|word| !word.contains(&Step::Close)) {
            for step in ALPHABET.into_iter().chain([Step::Close]) {
                longer.push([word.as_slice(), &[step]].concat());
            }
        }
        all.extend(longer.iter().cloned());
    }
    all
}

/// How many words there must be.
fn word_count(longest: usize) -> usize {
    1 + (0..longest as u32).map(|steps| 12_usize.pow(steps) * 13).sum::<usize>()
}

/// Segments of the log are so large that no batch needs another one, and so small that each is filled with one write.
fn options() -> Options {
    let page_bytes = PIECE_BYTES as usize;
    Options::new()
        .page_bytes(page_bytes)
        .zone_bytes(32 << 10)
        .memory_limit_bytes(hedgerow::smallest_memory_limit_bytes(page_bytes) + (128 << 10))
        .background_checkpoints(false)
        .log_segment_blocks(14)
}

/// A word that is being carried out.
struct Run {
    disk: SimDisk,
    /// `None` after a close.
    db: Option<Database>,
    history: History,
    /// Steps so far, so that each writes values of its own.
    steps: u8,
}

impl Run {
    fn step(&mut self, step: Step) {
        self.steps += 1;
        let db = self.db.clone().expect("nothing comes after a close");
        match step {
            Step::PutShort => self.put(&db, "one", "k1", 20, Durability::Buffered),
            Step::PutLong => self.put(&db, "one", "k2", 900, Durability::Buffered),
            Step::Overwrite => self.put(&db, "one", "k1", 300, Durability::Buffered),
            Step::PutSynced => self.put(&db, "two", "k1", 40, Durability::Sync),
            Step::PutLarge => self.put(&db, "one", "k2", LARGE_BYTES, Durability::Buffered),
            Step::Remove => self.remove(&db),
            Step::Batch => self.batch(&db),
            Step::Sync => db.sync().unwrap(),
            Step::Checkpoint => db.checkpoint().unwrap(),
            Step::RemoveRange => self.remove_range(&db),
            Step::Create => drop(self.keyspace(&db, "two")),
            Step::Drop => {
                let mut after = self.history.now().clone();
                let was_there = after.remove("two").is_some();
                assert_eq!(db.drop_keyspace("two").unwrap(), was_there);
                self.history.add("drop", Outcome::Buffered, after);
            }
            Step::Close => {
                self.db = None;
                db.close().unwrap();
                self.history.all_durable();
                return;
            }
        }
        if db.durable_position() == db.log_position() {
            self.history.all_durable();
        }
    }

    /// A keyspace, which is made if there is none.
    fn keyspace(&mut self, db: &Database, name: &str) -> Keyspace {
        if !self.history.now().contains_key(name) {
            let mut after = self.history.now().clone();
            after.insert(name.into(), Records::new());
            db.create_keyspace(name).unwrap();
            self.history.add("create", Outcome::Durable, after);
        }
        db.keyspace(name).unwrap()
    }

    fn value(&self, len: usize) -> Vec<u8> {
        vec![b'0' + self.steps; len]
    }

    fn put(&mut self, db: &Database, name: &str, key: &str, len: usize, durability: Durability) {
        let keyspace = self.keyspace(db, name).with_durability(durability);
        let (key, value) = (key.as_bytes(), self.value(len));
        let mut after = self.history.now().clone();
        let was_there = keyspace.put(key, &value).unwrap();
        let records = after.get_mut(name).unwrap();
        assert_eq!(was_there, records.insert(key.to_vec(), value).is_some());
        let outcome = match durability {
            Durability::Sync => Outcome::Durable,
            _ => Outcome::Buffered,
        };
        self.history.add("put", outcome, after);
    }

    fn remove(&mut self, db: &Database) {
        let keyspace = self.keyspace(db, "one");
        let mut after = self.history.now().clone();
        let was_there = after.get_mut("one").unwrap().remove(b"k1".as_slice()).is_some();
        assert_eq!(keyspace.remove(b"k1").unwrap(), was_there);
        self.history.add("remove", Outcome::Buffered, after);
    }

    /// Two changes of two keyspaces, of which a crash leaves both or none.
    fn batch(&mut self, db: &Database) {
        let (one, two) = (self.keyspace(db, "one"), self.keyspace(db, "two"));
        let mut after = self.history.now().clone();
        let value = self.value(60);
        let mut batch = WriteBatch::new();
        batch.put(&one, b"k2", &value).unwrap();
        batch.remove(&two, b"k1").unwrap();
        db.write(&batch).unwrap();
        after.get_mut("one").unwrap().insert(b"k2".to_vec(), value);
        after.get_mut("two").unwrap().remove(b"k1".as_slice());
        self.history.add("batch", Outcome::Buffered, after);
    }

    /// Leaf by leaf: a crash may leave any first part of it.
    fn remove_range(&mut self, db: &Database) {
        let keyspace = self.keyspace(db, "one");
        let (from, to) = (b"fill/2".to_vec(), b"k2".to_vec());
        let mut after = self.history.now().clone();
        let inside = after["one"].range(from.clone()..to.clone());
        let gone: Vec<Vec<u8>> = inside.map(|(key, _)| key.clone()).collect();
        assert_eq!(keyspace.remove_range(from..to).unwrap(), gone.len() as u64);
        for key in gone {
            after.get_mut("one").unwrap().remove(&key);
            self.history.add("remove of a range", Outcome::Buffered, after.clone());
        }
    }
}

/// What was tried.
#[derive(Default, Debug)]
struct Counts {
    words: usize,
    moments: u64,
    /// Subsets of pending pieces that were tried, and those that there are.
    subsets: u64,
    all_subsets: u64,
    /// Crashes by the dice.
    torn: u64,
    /// Disks with other bytes than any before.
    distinct: u64,
    /// Crashes that left a disk with the bytes of one before.
    repeated: u64,
    /// Accidents in the openings after crashes.
    nested: u64,
    /// Most pieces of a moment.
    most: usize,
}

/// A start, and all that is known of what comes after it.
struct World {
    start: SimState,
    before: Model,
    examiner: Examiner,
    dice: Dice,
    counts: Counts,
    /// What is in disks that were opened, by their fingerprints.
    seen: BTreeMap<u64, Rc<Model>>,
    /// All contents that were found, each once.
    found: BTreeSet<Rc<Model>>,
}

impl World {
    /// A world that begins with what `fill` makes.
    fn new(own_seed: u64, fill: impl FnOnce(&Database)) -> World {
        let mut dice = Dice(seed(own_seed));
        let disk = SimDisk::new(dice.roll());
        let db = open(&options(), &disk, OpenHow::New).unwrap();
        fill(&db);
        let before = contents(&db).unwrap();
        db.close().unwrap();
        // What a closed store has needs no luck: the log, which is gone, is all that may be pending.
        let start = disk.state().crash(&[], None);
        let examiner = examiner(&options()).read_only_too().long_values(LARGE_BYTES as u64);
        let (seen, found) = (BTreeMap::new(), BTreeSet::new());
        World { start, before, examiner, dice, counts: Counts::default(), seen, found }
    }

    /// Carries a word out, and crashes at each moment of its last step; of no step: of the opening.
    fn try_word(&mut self, word: &[Step]) {
        // Always the same disk, so that words with the same beginning go through the same bytes.
        let disk = SimDisk::with_state(self.start.clone(), 1);
        disk.record_states(word.is_empty());
        let db = open(&options(), &disk, OpenHow::Existing).unwrap();
        let history = History::new(self.before.clone());
        let mut run = Run { disk, db: Some(db), history, steps: 0 };
        let mut durable = 0;
        if let Some((last, first)) = word.split_last() {
            for step in first {
                run.step(*step);
            }
            durable = run.history.durable();
            run.disk.record_states(true);
            run.step(*last);
        }
        let moments = run.disk.take_states();
        run.disk.record_states(false);
        let mut before = None;
        for (number, moment) in moments.iter().enumerate() {
            let context = format!("{word:?}, before call {number} of the last step");
            before = Some(self.explore(&run.history, moment, before, durable, &context));
        }
        // Now more is known to be durable.
        let (end, durable) = (run.disk.state(), run.history.durable());
        self.explore(&run.history, &end, None, durable, &format!("{word:?}"));
        if word.len() <= 1 {
            let seed = self.dice.roll();
            let cuts = self.examiner.cut_each_call(&end, &run.history, durable, seed);
            self.counts.nested += well(cuts.map_err(|what| format!("{word:?}: {what}")));
        }
        self.counts.words += 1;
    }

    /// Tries all subsets of what is pending at a moment but for those of the moment before: a call only adds pieces,
    /// or only makes some durable. Tells the size of a piece, and how many there are.
    fn explore(
        &mut self,
        history: &History,
        moment: &SimState,
        before: Option<(u64, usize)>,
        durable: usize,
        context: &str,
    ) -> (u64, usize) {
        let fits = |grain: &u64| moment.pending_pieces(*grain) <= MOST_PIECES;
        let grain = [PIECE_BYTES, WHOLE].into_iter().find(fits);
        let changes = moment.pending().len();
        let grain = grain.unwrap_or_else(|| panic!("{context}: {changes} changes are pending"));
        let pieces = moment.pending_pieces(grain);
        if before == Some((grain, pieces)) {
            return (grain, pieces);
        }
        let tried = before.filter(|before| before.0 == grain && before.1 < pieces);
        let tried = tried.map(|before| before.1);
        self.counts.moments += 1;
        self.counts.most = self.counts.most.max(pieces);
        self.counts.all_subsets += (1_u64 << pieces) - tried.map_or(0, |tried| 1_u64 << tried);
        let subsets = moment.survivor_subsets(grain, MOST_PIECES, tried);
        for fates in subsets.into_iter().flatten() {
            self.counts.subsets += 1;
            let left = moment.crash(&fates, None);
            self.survive(history, left, durable, &|| format!("{context}, {fates:?}"));
        }
        for _ in 0..TORN {
            self.counts.torn += 1;
            let seed = self.dice.roll();
            let left = moment.crash_at_random(seed);
            self.survive(history, left, durable, &|| format!("{context}, torn by {seed}"));
        }
        (grain, pieces)
    }

    /// Opens what a crash has left, unless that was done before, and holds it against the history.
    fn survive(
        &mut self,
        history: &History,
        left: SimState,
        durable: usize,
        context: &dyn Fn() -> String,
    ) {
        let explain = |what: String| format!("{}: {what}", context());
        let fingerprint = left.fingerprint();
        if let Some(found) = self.seen.get(&fingerprint) {
            self.counts.repeated += 1;
            well(history.check_from(durable, found).map_err(explain));
            return;
        }
        self.counts.distinct += 1;
        let seed = self.dice.roll();
        let looked = match self.counts.distinct.is_multiple_of(EXAMINED_EVERY) {
            true => self.examiner.examine(&left, seed),
            false => self.examiner.look(&SimDisk::with_state(left.clone(), seed), "after a crash"),
        };
        let found = Rc::new(well(looked.map_err(explain)));
        well(history.check_from(durable, &found).map_err(explain));
        if self.counts.distinct.is_multiple_of(NESTED_EVERY) {
            let (depth, seed) = (1 + self.dice.below(3), self.dice.roll());
            let cut = Accident::PowerCut;
            let recovered = self.examiner.recover(&left, cut, history, durable, depth, seed);
            let recovered = well(recovered.map_err(explain));
            assert!(recovered.found == *found, "{}: another opening differs", context());
            self.counts.nested += recovered.nested;
        }
        let found = self.found.get(&found).cloned().unwrap_or(found);
        self.found.insert(found.clone());
        self.seen.insert(fingerprint, found);
    }

    /// Goes through all words of this part.
    fn try_all(&mut self) {
        let longest = if effort() > 1 { 3 } else { 2 };
        let (part, parts) = part();
        let words = words(longest);
        assert_eq!(words.len(), word_count(longest));
        let mine = words.iter().skip(part).step_by(parts);
        let expected = mine.len();
        assert!(expected > 0, "part {} of {parts} has no words", part + 1);
        for word in mine {
            self.try_word(word);
        }
        let counts = &self.counts;
        println!("{counts:?}, {} different contents", self.found.len());
        assert_eq!(counts.words, expected);
        assert_eq!(counts.subsets, counts.all_subsets);
        assert_eq!(counts.torn, counts.moments * TORN);
        assert_eq!(counts.distinct + counts.repeated, counts.subsets + counts.torn);
        assert_eq!(counts.distinct, self.seen.len() as u64);
        assert!(counts.nested >= counts.distinct / 5, "accidents in openings");
        count(counts.words as u64, "words");
        count(counts.subsets, "subsets of pending pieces");
        // Those that were opened; the others left a disk with the bytes of one of them.
        count(counts.distinct, "crash states");
        count(counts.nested, "nested crash states");
    }
}

#[test]
fn all_short_words_on_an_empty_store() {
    World::new(91, |_| {}).try_all();
}

#[test]
fn all_short_words_on_a_tree_of_two_levels() {
    let fill = |db: &Database| {
        let (one, two) = (db.keyspace("one").unwrap(), db.keyspace("two").unwrap());
        for n in 0..6 {
            one.put(format!("fill/{n}").as_bytes(), &[b'f'; 900]).unwrap();
        }
        one.put(b"k1", b"short").unwrap();
        two.put(b"k1", b"short").unwrap();
        two.put(b"k2", &[b'l'; LARGE_BYTES]).unwrap();
        assert_eq!(one.stats().unwrap().levels.len(), 2);
    };
    World::new(92, fill).try_all();
}

#[test]
fn words_are_counted_and_shared_out() {
    let all = words(2);
    assert_eq!((all.len(), word_count(2), word_count(3)), (170, 170, 2042));
    let different: BTreeSet<String> = all.iter().map(|word| format!("{word:?}")).collect();
    assert_eq!(different.len(), all.len());
    let shared: usize = (0..7).map(|part| all.iter().skip(part).step_by(7).len()).sum();
    assert_eq!(shared, all.len());
}
