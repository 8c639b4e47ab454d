//! Crashes at every write and every sync: of creation, of checkpoints and what follows them, of closing
//! and of opening. Whatever survives, reopening gives the last checkpoint that was acknowledged, or the
//! one that was being taken, whole; nothing is leaked; and work goes on.
//!
//! Between two syncs every subset of the pending changes is tried where there are few of them, and
//! random subsets, torn writes among them, where there are many. The stores of the tests whose names
//! begin with `in_a_small_store` are so small that there are few at every moment, which is asserted:
//! nothing but torn writes is left to the dice there. `HEDGEROW_EFFORT=20` tries more.

use crate::common::{
    Dice, Model, Step, assert_sound, change, contents, effort, is_thorough, open, path, seed, tiny,
};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, ErrorKind, Options};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::sim::{Fate, SimState};

/// Pending changes of which all subsets are tried.
const EXHAUSTIVE: usize = 9;
/// Pending pieces of which all subsets are tried in small stores, where no moment may have more.
const SMALL_EXHAUSTIVE: usize = 16;
/// What small stores are made of: pages, parts and superblocks all have this size. Pages that are
/// written with one call are as many pieces, and so survive one without the other.
const SMALL_PIECE_BYTES: usize = 4096;
/// Zones of small stores: eight pieces, so that files grow and shrink soon.
const SMALL_ZONE_BYTES: u32 = 32 << 10;

/// What a crash may leave: contents, or (`None`) no store yet.
type Allowed = Vec<Option<Model>>;

struct Explorer {
    options: Options,
    dice: Dice,
    /// Random survivors for each state with many pending changes.
    samples: u64,
    /// What a crash keeps or drops as one, where all subsets are tried.
    piece_bytes: u64,
    /// Of how many pending pieces all subsets are tried.
    exhaustive: usize,
    /// Every so many survivors, work goes on.
    work_every: u64,
    /// Every so many survivors, work goes on and is crashed in turn.
    nested_every: u64,
    tried: u64,
    nested: u64,
    points: u64,
    /// Moments with so many pending pieces that only random subsets were tried.
    sampled: u64,
    /// The most pending pieces of which all subsets were tried.
    most: usize,
}

impl Explorer {
    fn new(seed: u64, options: Options) -> Explorer {
        Explorer {
            options,
            dice: Dice(seed),
            samples: if is_thorough() { 12 } else { 4 } * effort(),
            piece_bytes: u64::MAX,
            exhaustive: if is_thorough() { EXHAUSTIVE } else { EXHAUSTIVE - 2 },
            work_every: 5,
            nested_every: 59,
            tried: 0,
            nested: 0,
            points: 0,
            sampled: 0,
            most: 0,
        }
    }

    /// For a store that is so small that all subsets can be tried at every moment.
    fn small(seed: u64) -> Explorer {
        let limit =
            hedgerow::internals::buffer::smallest_limit_without_log_bytes(SMALL_PIECE_BYTES);
        let options = Options::new()
            .page_bytes(SMALL_PIECE_BYTES)
            .zone_bytes(SMALL_ZONE_BYTES)
            .memory_limit_bytes(limit)
            .background_checkpoints(false)
            .log(false);
        Explorer {
            piece_bytes: SMALL_PIECE_BYTES as u64,
            samples: 4 * effort(),
            exhaustive: SMALL_EXHAUSTIVE,
            work_every: 31,
            nested_every: 0,
            ..Explorer::new(seed, options)
        }
    }

    /// Tries crashes at all the moments that `disk` has recorded since the last call, and at this one.
    fn explore(&mut self, disk: &SimDisk, allowed: &Allowed, what: &str) {
        let mut states = disk.take_states();
        states.push(disk.state());
        let mut before = None;
        for state in states {
            let pieces = state.pending_pieces(self.piece_bytes);
            // A call only adds changes, or only makes some durable. Where it added some, the survivors
            // without them were tried at the moment before it.
            if before != Some(pieces) {
                let tried = before.filter(|&before| before < pieces);
                self.points += 1;
                self.explore_at(&state, tried, allowed, what);
            }
            before = Some(pieces);
        }
    }

    fn explore_at(
        &mut self,
        state: &SimState,
        tried: Option<usize>,
        allowed: &Allowed,
        what: &str,
    ) {
        if let Some(subsets) = state.survivor_subsets(self.piece_bytes, self.exhaustive, tried) {
            self.most = self.most.max(state.pending_pieces(self.piece_bytes));
            for fates in subsets {
                self.survive(state.crash(&fates, None), allowed, what);
            }
        } else {
            self.sampled += 1;
            let all = vec![Fate::Keep; state.pending().len()];
            self.survive(state.crash(&all, None), allowed, what);
        }
        for _ in 0..self.samples {
            let seed = self.dice.roll();
            self.survive(state.crash_at_random(seed), allowed, what);
        }
    }

    /// Opens what a crash has left, twice, and works on.
    fn survive(&mut self, left: SimState, allowed: &Allowed, what: &str) {
        self.tried += 1;
        let disk = SimDisk::with_state(left.clone(), self.tried);
        let db = match open(&self.options, &disk, OpenHow::Existing) {
            Ok(db) => db,
            Err(error) => {
                let none = error.kind() == ErrorKind::FileNotFound && allowed.contains(&None);
                assert!(none, "{what}, crash {}: {error:?}", self.tried);
                return;
            }
        };
        let context = format!("{what}, crash {}", self.tried);
        let found = contents(&db).unwrap_or_else(|error| panic!("{context}: {error:?}"));
        assert!(
            allowed.iter().flatten().any(|model| *model == found),
            "{context}: neither the old checkpoint nor the new one: {:?}",
            found.iter().map(|(name, records)| (name, records.len())).collect::<Vec<_>>()
        );
        assert_sound(&db, &context);
        if !self.tried.is_multiple_of(self.work_every) {
            return;
        }
        drop(db);
        let disk = SimDisk::with_state(left, self.tried);
        let nested = self.nested_every != 0 && self.tried.is_multiple_of(self.nested_every);
        disk.record_states(nested);
        self.work_on(&disk, found, nested, &context);
    }

    fn work_on(&mut self, disk: &SimDisk, found: Model, nested: bool, context: &str) {
        let mut old = vec![Some(found.clone())];
        let db = open(&self.options, disk, OpenHow::Existing).unwrap();
        assert!(contents(&db).unwrap() == found, "{context}: opened again, it differs");
        let mut model = found;
        let steps = [
            Step::Puts { keyspace: "wrens", count: 12, below: 40, value_bytes: 60 },
            Step::Drop("gulls"),
        ];
        for step in &steps {
            change(&db, &mut model, step, &mut self.dice).unwrap();
        }
        if nested {
            self.nest(disk, &old, &format!("{context}, then changes"));
        }
        old.push(Some(model.clone()));
        db.checkpoint().unwrap_or_else(|error| panic!("{context}: {error:?}"));
        if nested {
            self.nest(disk, &old, &format!("{context}, then a checkpoint"));
        }
        assert!(contents(&db).unwrap() == model, "{context}");
        assert_sound(&db, context);
        db.close().unwrap();
        let db = open(&self.options, disk, OpenHow::Existing).unwrap();
        assert!(contents(&db).unwrap() == model, "{context}: after another checkpoint");
        assert_sound(&db, context);
    }

    /// Explores crashes of what came after a crash.
    fn nest(&mut self, disk: &SimDisk, allowed: &Allowed, what: &str) {
        let outer = (self.nested_every, self.samples);
        (self.nested_every, self.samples) = (0, 1);
        let before = self.tried;
        self.explore(disk, allowed, what);
        self.nested += self.tried - before;
        (self.nested_every, self.samples) = outer;
    }

    fn report(&self) {
        println!(
            "{} crashes at {} moments, {} of them after a crash; all subsets of up to {} pending \
             pieces, random ones at {} moments",
            self.tried, self.points, self.nested, self.most, self.sampled
        );
        // Those after a crash are of the work on what it left, not of the opening alone: no nested ones.
        count(self.tried, "crash states");
    }
}

fn puts(keyspace: &'static str, count: u64, below: u64, value_bytes: u64) -> Step {
    Step::Puts { keyspace, count, below, value_bytes }
}

/// A run of a script, with crashes at every moment of it.
struct Run {
    disk: SimDisk,
    db: Option<Database>,
    model: Model,
    durable: Allowed,
    explorer: Explorer,
}

impl Run {
    /// Creates the store.
    fn new(mut explorer: Explorer) -> Run {
        let disk = SimDisk::new(explorer.dice.roll());
        disk.record_states(true);
        let db = open(&explorer.options, &disk, OpenHow::New).unwrap();
        explorer.explore(&disk, &vec![None, Some(Model::new())], "creation");
        let durable = vec![Some(Model::new())];
        Run { disk, db: Some(db), model: Model::new(), durable, explorer }
    }

    fn step(&mut self, step: &Step) {
        let what = format!("{step:?}");
        let mut allowed = self.durable.clone();
        let db = self.db.take().unwrap();
        match step {
            Step::Checkpoint => {
                allowed.push(Some(self.model.clone()));
                db.checkpoint().unwrap();
                self.durable = vec![Some(self.model.clone())];
                self.db = Some(db);
            }
            Step::Reopen => {
                allowed.push(Some(self.model.clone()));
                db.close().unwrap();
                self.explorer.explore(&self.disk, &allowed, &what);
                self.durable = vec![Some(self.model.clone())];
                allowed.clone_from(&self.durable);
                let how = OpenHow::ExistingOrNew;
                self.db = Some(open(&self.explorer.options, &self.disk, how).unwrap());
            }
            _ => {
                change(&db, &mut self.model, step, &mut self.explorer.dice).unwrap();
                self.db = Some(db);
            }
        }
        self.explorer.explore(&self.disk, &allowed, &what);
    }

    /// Changes the store, without a crash.
    fn change(&mut self, step: &Step) {
        let db = self.db.as_ref().expect("the store is open");
        change(db, &mut self.model, step, &mut self.explorer.dice).unwrap();
    }

    /// Takes a checkpoint, without a crash.
    fn checkpoint_unexplored(&mut self) {
        self.db.as_ref().expect("the store is open").checkpoint().unwrap();
        self.durable = vec![Some(self.model.clone())];
    }

    fn file_bytes(&self) -> u64 {
        self.db.as_ref().expect("the store is open").space_report().unwrap().file_bytes
    }

    /// Asserts that all subsets were tried at every moment of a small store.
    fn finish_small(&self) {
        self.explorer.report();
        assert_eq!(self.explorer.sampled, 0, "moments with too many pending pieces");
    }
}

/// Explores a script on a small store, where nothing may be left to the dice but torn writes.
fn explore_small(seed_of_its_own: u64, script: &[Step]) {
    let mut run = Run::new(Explorer::small(seed(seed_of_its_own)));
    for step in script {
        run.step(step);
    }
    run.finish_small();
}

#[test]
fn in_a_small_store_all_crashes_of_first_and_second_checkpoints() {
    let script = [
        puts("wrens", 34, 60, 900),
        Step::Checkpoint,
        // Overwrites of every leaf, and enough that there are more of them.
        puts("wrens", 34, 50, 900),
        Step::Checkpoint,
        Step::Checkpoint,
        puts("wrens", 6, 40, 900),
        Step::Reopen,
        puts("wrens", 3, 40, 900),
        Step::Checkpoint,
    ];
    explore_small(11, &script);
}

#[test]
fn in_a_small_store_all_crashes_where_keyspaces_come_and_go() {
    let script = [
        puts("wrens", 30, 40, 900),
        puts("gulls", 10, 20, 900),
        Step::Checkpoint,
        Step::Drop("wrens"),
        Step::Checkpoint,
        puts("terns", 25, 30, 900),
        Step::Checkpoint,
        Step::Drop("gulls"),
        puts("gulls", 20, 30, 900),
        Step::Checkpoint,
        Step::Drop("terns"),
        Step::Reopen,
    ];
    explore_small(12, &script);
}

#[test]
fn in_a_small_store_all_crashes_while_the_file_shrinks() {
    let mut run = Run::new(Explorer::small(seed(13)));
    run.disk.record_states(false);
    run.change(&puts("terns", 400, 200, 900));
    run.checkpoint_unexplored();
    let full = run.file_bytes();
    // What is left lies all over the file: it is moved, and the file is cut.
    let thin = |below, every| Step::Removes { keyspace: "terns", below, every };
    run.disk.record_states(true);
    for step in [
        thin(80, 1),
        Step::Checkpoint,
        thin(150, 1),
        Step::Checkpoint,
        thin(180, 1),
        Step::Checkpoint,
        thin(200, 2),
        Step::Reopen,
    ] {
        run.step(&step);
    }
    let shrunk = run.file_bytes();
    assert!(shrunk < full, "{full} -> {shrunk}");
    run.finish_small();
}

#[test]
fn in_a_small_store_all_crashes_while_it_is_compacted() {
    let script = [
        puts("wrens", 26, 60, 900),
        Step::Checkpoint,
        Step::Removes { keyspace: "wrens", below: 60, every: 3 },
        Step::Compact("wrens"),
        Step::Checkpoint,
        Step::Compact("wrens"),
        Step::Reopen,
    ];
    explore_small(14, &script);
}

#[test]
fn a_crash_at_any_write_leaves_the_old_checkpoint_or_the_new_one() {
    let mut run = Run::new(Explorer::new(seed(1), tiny()));
    let script = [
        puts("wrens", 3, 10, 30),
        Step::Checkpoint,
        puts("wrens", 40, 60, 60),
        Step::Checkpoint,
        Step::Checkpoint,
        puts("gulls", 60, 200, 70),
        Step::Removes { keyspace: "wrens", below: 60, every: 2 },
        Step::Checkpoint,
        Step::Reopen,
        puts("gulls", 5, 200, 70),
        Step::Reopen,
        // More than the pool holds: pages are written back while no checkpoint is taken.
        puts("terns", 500, 2000, 70),
        Step::Checkpoint,
        Step::Removes { keyspace: "terns", below: 2000, every: 3 },
        Step::Compact("terns"),
        Step::Checkpoint,
        Step::Removes { keyspace: "terns", below: 2000, every: 1 },
        Step::Checkpoint,
        Step::Drop("gulls"),
        Step::Checkpoint,
        puts("gulls", 30, 50, 20),
        Step::Drop("terns"),
        Step::Reopen,
    ];
    for step in &script {
        run.step(step);
    }
    run.explorer.report();
    let expected = if is_thorough() { 2_000 } else { 500 };
    assert!(run.explorer.tried > expected, "only {} crashes tried", run.explorer.tried);
}

#[test]
fn a_crash_in_any_of_many_scripts_leaves_a_checkpoint() {
    let mut seeds = Dice(seed(3));
    let mut tried = 0;
    let (steps, expected) = if is_thorough() { (30, 500) } else { (12, 100) };
    for _ in 0..effort() {
        let mut explorer = Explorer::new(seeds.roll(), tiny());
        explorer.samples = 4;
        explorer.nested_every = 101;
        let mut run = Run::new(explorer);
        for _ in 0..steps {
            let dice = &mut run.explorer.dice;
            let keyspace = ["wrens", "gulls", "terns"][dice.below(3) as usize];
            let below = [20, 300, 3000][dice.below(3) as usize];
            let step = match dice.below(12) {
                0..5 => {
                    let (count, value_bytes) = (1 + dice.below(below / 5), dice.below(71));
                    Step::Puts { keyspace, count, below, value_bytes }
                }
                5 => Step::Removes { keyspace, below, every: 1 + dice.below(3) },
                6 if run.model.contains_key(keyspace) => Step::Drop(keyspace),
                8 => Step::Compact(keyspace),
                7 => Step::Reopen,
                _ => Step::Checkpoint,
            };
            run.step(&step);
        }
        tried += run.explorer.tried;
        run.explorer.report();
    }
    assert!(tried > expected, "only {tried} crashes tried");
}

#[test]
fn a_crash_while_the_file_shrinks_loses_nothing() {
    let options = Options::new()
        .page_bytes(4096)
        .memory_limit_bytes(2 << 20)
        .background_checkpoints(false)
        .log(false);
    let mut explorer = Explorer::new(seed(2), options);
    explorer.samples = 2 * effort();
    explorer.nested_every = 0;
    let mut run = Run::new(explorer);
    run.disk.record_states(false);
    let load = Step::Puts { keyspace: "terns", count: 16_000, below: 14_000, value_bytes: 900 };
    change(run.db.as_ref().unwrap(), &mut run.model, &load, &mut run.explorer.dice).unwrap();
    run.db.as_ref().unwrap().checkpoint().unwrap();
    // What is left lies all over the file.
    let thin = |records: &mut dyn Iterator<Item = u64>, run: &mut Run| {
        let keyspace = run.db.as_ref().unwrap().keyspace("terns").unwrap();
        for n in records {
            keyspace.remove(&crate::common::key(n)).unwrap();
            run.model.get_mut("terns").unwrap().remove(&crate::common::key(n));
        }
    };
    thin(&mut (0..14_000).filter(|n| n % 100 != 0), &mut run);
    let full = run.db.as_ref().unwrap().space_report().unwrap().file_bytes;
    // The checkpoint before this one is as large as the file: it is read once only.
    run.db.as_ref().unwrap().checkpoint().unwrap();
    run.durable = vec![Some(run.model.clone())];
    thin(&mut (0..14_000).filter(|n| n % 300 != 0), &mut run);
    run.disk.record_states(true);
    run.step(&Step::Checkpoint);
    run.step(&Step::Puts { keyspace: "wrens", count: 50, below: 100, value_bytes: 500 });
    run.step(&Step::Checkpoint);
    run.step(&Step::Reopen);
    let shrunk = run.db.as_ref().unwrap().space_report().unwrap().file_bytes;
    assert!(shrunk < full / 2, "{full} -> {shrunk}");
    assert!(run.disk.state().contents(path()).is_some_and(|file| file.len() as u64 == shrunk));
    run.explorer.report();
}
