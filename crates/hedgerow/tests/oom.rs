//! Memory that is refused: in ten scripts on a real file the allocation with each number fails, in a process of its own.
//!
//! The engine asks for large pieces of memory in a way that can be refused, and says so (`MemoryLimit`); then the store
//! is exactly as it was, and works on. Small pieces come from Rust's collections, which end the process when they get
//! none; then what it leaves is what a kill would leave, and is looked at as after one. Both are counted. The child is
//! this very binary, told by an environment variable; it says on its output what it begins, and how that ends.
//!
//! `HEDGEROW_EFFORT` above 1 tries every allocation, of which `HEDGEROW_PART=1/8` does an eighth; the others are a sample
//! by `HEDGEROW_SEED`. `HEDGEROW_ONLY="splits 117"` does one run, `HEDGEROW_ONLY="splits 3 blocks"` one in which only blocks for
//! the disk count.
#![cfg(unix)]
#![allow(
    missing_docs,
    clippy::disallowed_methods,
    reason = "a test that starts processes and has files of its own"
)]

mod common;
#[path = "engine/fault_sweep/scripts.rs"]
#[allow(dead_code, reason = "the sweep of faults uses the rest")]
mod scripts;

use common::{
    Dice, Model, assert_sound, bytes, contents, effort, get, is_thorough, key, part, seed,
};
use hedgerow::{Database, Durability, ErrorKind, IoEngine, Options, Result, WriteBatch};
use hedgerow_testing::count;
use hedgerow_testing::environment::variable;
use scripts::{SCRIPTS, SONG, Script, Start, Step};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The system's allocator, but for one allocation that it refuses.
struct Refusing;

/// Whether allocations count: while the engine is at work.
static IS_ARMED: AtomicBool = AtomicBool::new(false);
static SEEN: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(u64::MAX);
/// Less aligned ones do not count.
static LEAST_ALIGN: AtomicUsize = AtomicUsize::new(0);
/// What goes to the disk past the system's cache is aligned like that; nothing else is.
const BLOCK_ALIGN: usize = 4096;

thread_local! {
    /// Allocations of this thread.
    static OURS: Cell<u64> = const { Cell::new(0) };
}

/// Counts an allocation, and tells whether it is the one.
fn is_refused(layout: Layout) -> bool {
    OURS.with(|ours| ours.set(ours.get() + 1));
    IS_ARMED.load(Relaxed)
        && layout.align() >= LEAST_ALIGN.load(Relaxed)
        && SEEN.fetch_add(1, Relaxed) == REFUSED.load(Relaxed)
}

// SAFETY: each call goes to the system's allocator as it is, or returns null, which says that there is no memory; nothing
// here allocates or unwinds.
unsafe impl GlobalAlloc for Refusing {
    /// # Safety
    /// That of the trait.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    /// # Safety
    /// That of the trait.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    /// # Safety
    /// That of the trait.
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        if is_refused(layout) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller keeps the contract, which is the same; every block is the system's.
        unsafe { System.realloc(block, layout, new_bytes) }
    }

    /// # Safety
    /// That of the trait.
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract, which is the same; every block is the system's.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

const CHILD: &str = "HEDGEROW_OOM_CHILD";
const TEST: &str = "a_refused_allocation_is_an_error_or_a_kill";
/// The word for runs in which nothing but blocks for the disk is refused.
const BLOCKS: &str = "blocks";
const EVERYTHING: &str = "everything";
/// Begins what the child says: the harness may have begun the line.
const SAYS: &str = "#child ";
/// Runs of each script in a sample: each is a process, and they run one after the other.
const SAMPLE: u64 = 8;
/// Nothing waits that long for memory.
const LONGEST_RUN: Duration = Duration::from_secs(120);
const NAMES: [&str; 10] = [
    "puts",
    "splits",
    "range-removal-and-merges",
    "batches",
    "batches-of-large-values",
    "large-values-come-and-go",
    "backups",
    "keyspaces-come-back",
    "loads",
    "closing",
];

fn options() -> Options {
    Options::new()
        .memory_limit_bytes(2 << 20)
        .background_checkpoints(false)
        .log_segment_blocks(6)
        .io_engine(IoEngine::Sync)
}

fn script(name: &str) -> &'static Script {
    let found = SCRIPTS.iter().find(|script| script.name == name);
    found.filter(|script| script.start == Start::Closed).expect("a script of a closed store")
}

/// The steps of a script, each of one call.
fn steps(script: &Script) -> Vec<Step> {
    let mut steps = Vec::new();
    for step in script.steps {
        match *step {
            Step::Puts(name, from, to, len) => {
                steps.extend((from..to).map(|n| Step::Put(name, n, len)));
            }
            Step::Shrink => steps.extend([Step::Checkpoint, Step::Checkpoint]),
            step => steps.push(step),
        }
    }
    steps
}

/// The states that a step goes through: the first is the one before, the last the one after.
fn states(step: &Step, before: &Model, dice: &mut Dice) -> Vec<Model> {
    let mut states = vec![before.clone()];
    let mut after = before.clone();
    match *step {
        Step::Put(name, n, len) | Step::PutSync(name, n, len) => {
            let value = bytes(dice, len);
            if let Some(records) = after.get_mut(name) {
                records.insert(key(n), value);
            }
        }
        Step::Remove(name, n) | Step::RemoveSync(name, n) => {
            if let Some(records) = after.get_mut(name) {
                records.remove(&key(n));
            }
        }
        Step::RemoveRange(name, from, to) => {
            let Some(records) = before.get(name) else { return states };
            for (removed, _) in records.range(key(from)..key(to)) {
                after.get_mut(name).expect("it is there").remove(removed);
                states.push(after.clone());
            }
            return states;
        }
        Step::Batch(parts) | Step::BatchSync(parts) => {
            for &(name, n, len) in parts {
                let value = len.map(|len| bytes(dice, len));
                let Some(records) = after.get_mut(name) else { continue };
                match value {
                    Some(value) => records.insert(key(n), value),
                    None => records.remove(&key(n)),
                };
            }
        }
        Step::Load(name, count, len) => {
            let loaded = (0..count).map(|n| (key(n), bytes(dice, len)));
            let loaded: Vec<(Vec<u8>, Vec<u8>)> = loaded.collect();
            if let Some(records) = after.get_mut(name).filter(|records| records.is_empty()) {
                records.extend(loaded);
            }
        }
        Step::Create(name) => {
            after.entry(name.into()).or_default();
        }
        Step::Drop(name) => {
            after.remove(name);
        }
        _ => return states,
    }
    states.push(after);
    states
}

/// Whether everything up to a step is durable when it has returned.
fn is_durable(step: &Step) -> bool {
    use Step::*;
    matches!(
        step,
        PutSync(..)
            | RemoveSync(..)
            | BatchSync(_)
            | Load(..)
            | Create(_)
            | Drop(_)
            | Sync
            | Checkpoint
            | Backup
            | Verify
            | Close
    )
}

/// Makes a step of which `before` and `after` are the ends. What is read is compared.
fn make(db: &Database, step: &Step, before: &Model, after: &Model, copy: &Path) -> Result<()> {
    let with = |name: &str, sync: bool| {
        let durability = if sync { Durability::Sync } else { Durability::Buffered };
        db.keyspace(name).map(|keyspace| keyspace.with_durability(durability))
    };
    match *step {
        Step::Put(name, n, _) | Step::PutSync(name, n, _) => {
            let Some(records) = after.get(name) else { return Ok(()) };
            let sync = matches!(step, Step::PutSync(..));
            with(name, sync)?.put(&key(n), &records[&key(n)]).map(drop)
        }
        Step::Remove(name, n) | Step::RemoveSync(name, n) if before.contains_key(name) => {
            with(name, matches!(step, Step::RemoveSync(..)))?.remove(&key(n)).map(drop)
        }
        Step::RemoveRange(name, from, to) if before.contains_key(name) => {
            with(name, false)?.remove_range(key(from)..key(to)).map(drop)
        }
        Step::Batch(parts) | Step::BatchSync(parts) => {
            let mut batch = WriteBatch::new();
            if matches!(step, Step::BatchSync(_)) {
                batch.set_durability(Durability::Sync);
            }
            for &(name, n, len) in parts.iter().filter(|part| before.contains_key(part.0)) {
                let keyspace = with(name, false)?;
                match len {
                    Some(_) => batch.put(&keyspace, &key(n), &after[name][&key(n)])?,
                    None => batch.remove(&keyspace, &key(n))?,
                }
            }
            db.write(&batch).map(drop)
        }
        Step::Load(name, ..) if before.get(name).is_some_and(|records| records.is_empty()) => {
            with(name, false)?.bulk_load(&after[name], 90).map(drop)
        }
        Step::Create(name) if !before.contains_key(name) => db.create_keyspace(name).map(drop),
        Step::Drop(name) => db.drop_keyspace(name).map(drop),
        Step::Get(name, n) if before.contains_key(name) => {
            let found = with(name, false)?.get(&key(n))?;
            let expected = before[name].get(&key(n)).map(Vec::as_slice);
            assert!(found.as_deref() == expected, "another value");
            Ok(())
        }
        Step::Scan(name) | Step::ScanBack(name) if before.contains_key(name) => {
            let mut count = 0;
            for record in with(name, false)?.iter() {
                let (key, value) = record?;
                assert!(before[name].get(&key[..]).is_some_and(|known| known[..] == value[..]));
                count += 1;
            }
            assert_eq!(count, before[name].len());
            Ok(())
        }
        Step::Sync => db.sync(),
        Step::Checkpoint => db.checkpoint(),
        Step::Backup => db.backup(copy, |_| ControlFlow::Continue(())).map(drop),
        Step::Verify => {
            let report = db.verify(|_| ControlFlow::Continue(()))?;
            assert!(report.is_clean(), "{:#?}", report.findings);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Counts allocations while `work` is done, and refuses the one.
fn armed<R>(work: impl FnOnce() -> R) -> R {
    IS_ARMED.store(true, Relaxed);
    let outcome = work();
    IS_ARMED.store(false, Relaxed);
    outcome
}

/// What an error of an allocation may be called. One that hinders a write may end all changes.
fn assert_typed(error: &hedgerow::Error) {
    let expected = matches!(
        error.kind(),
        ErrorKind::MemoryLimit
            | ErrorKind::Io
            | ErrorKind::Poisoned
            | ErrorKind::DurabilityUnknown
            | ErrorKind::BatchUnfinished
    );
    assert!(expected, "no error of memory: {error:?}");
}

/// Opens the store. Where memory was refused once, there is some the next time.
fn open_armed(path: &Path) -> Database {
    match armed(|| options().open(path)) {
        Ok(db) => db,
        Err(error) => {
            assert_typed(&error);
            println!("{SAYS}refused");
            options().open(path).unwrap()
        }
    }
}

/// The child: goes through the script, and says how far it has come.
fn go_through(script: &Script, path: &Path, before: Model) {
    let mut dice = Dice(9);
    let mut now = before;
    let mut db = open_armed(path);
    for (at, step) in steps(script).iter().enumerate() {
        let states = states(step, &now, &mut dice);
        let after = &states[states.len() - 1];
        println!("{SAYS}begin {at}");
        if matches!(step, Step::Close) {
            if let Err(error) = armed(|| db.close()) {
                assert_typed(&error);
                println!("{SAYS}refused");
                return;
            }
            println!("{SAYS}end {at} 0 done");
            db = open_armed(path);
            continue;
        }
        let copy = path.with_extension(format!("copy-{at}"));
        let done = armed(|| make(&db, step, &now, after, &copy));
        let how = if done.is_ok() { "done" } else { "failed" };
        let reached = match done {
            Ok(()) => states.len() - 1,
            Err(error) => {
                assert_typed(&error);
                println!("{SAYS}refused");
                if matches!(
                    error.kind(),
                    ErrorKind::Poisoned | ErrorKind::DurabilityUnknown | ErrorKind::BatchUnfinished
                ) {
                    let again = db.checkpoint().unwrap_err();
                    assert_eq!(again.kind(), ErrorKind::Poisoned, "{again:?}");
                    return;
                }
                // Whoever is told nothing worse goes on; what nobody can change any more is found out now.
                db.sync().unwrap_or_else(|after| panic!("{step:?}: {error:?}, then {after:?}"));
                let found = contents(&db).unwrap();
                let reached = states.iter().position(|state| *state == found);
                let reached = reached.unwrap_or_else(|| panic!("{step:?}: {error:?}: no state"));
                let may_go_on = matches!(step, Step::RemoveRange(..) | Step::Drop(_));
                assert!(reached == 0 || may_go_on, "{step:?} was refused, and made: {error:?}");
                reached
            }
        };
        println!("{SAYS}end {at} {reached} {how}");
        now = states[reached].clone();
    }
    assert!(contents(&db).unwrap() == now, "the running store shows something else");
    assert_sound(&db, "before the close");
    match armed(|| db.close()) {
        Ok(()) => println!("{SAYS}closed"),
        Err(error) => {
            assert_typed(&error);
            println!("{SAYS}refused");
        }
    }
    println!("{SAYS}count {}", SEEN.load(Relaxed));
}

/// How a run came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// The process ended itself.
    Aborted,
    /// Somebody was told.
    Refused,
    /// The engine did without, or there were fewer allocations this time.
    Unnoticed,
}

/// What the child has said, line by line.
struct Said(Vec<String>);

impl Said {
    fn has(&self, word: &str) -> bool {
        self.0.iter().any(|line| line == word)
    }

    /// The number behind such words.
    fn number(&self, words: &str) -> Option<u64> {
        let rest = self.0.iter().find_map(|line| line.strip_prefix(words))?;
        rest.split(' ').next()?.parse().ok()
    }
}

/// A closed store, from which every run begins with a copy.
fn make_base(path: &Path) -> Model {
    let db = options().create(path).unwrap();
    let mut dice = Dice(2);
    for name in ["robins", "wrens", "hollows"] {
        let keyspace = db.create_keyspace(name).unwrap();
        if name != "hollows" {
            for n in 0..40 {
                keyspace.put(&key(n), &bytes(&mut dice, 40)).unwrap();
            }
            keyspace.put(&key(SONG), &bytes(&mut dice, 6000)).unwrap();
        }
    }
    let model = contents(&db).unwrap();
    db.close().unwrap();
    model
}

/// Runs a child, and waits for it. Returns whether it ended itself, and what it has said.
fn run_child(folder: &Path, name: &str, refused: u64, of: &str) -> (bool, Said) {
    let (out, err) = (folder.join("out"), folder.join("err"));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([TEST, "--exact", "--nocapture"])
        .env(CHILD, format!("{name} {refused} {of} {}", folder.display()))
        .stdout(Stdio::from(std::fs::File::create(&out).unwrap()))
        .stderr(Stdio::from(std::fs::File::create(&err).unwrap()))
        .spawn()
        .unwrap();
    let since = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if since.elapsed() > LONGEST_RUN => {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("{name} {refused} {of}: it does not end");
            }
            None => std::thread::sleep(Duration::from_micros(500)),
        }
    };
    let text = std::fs::read_to_string(&out).unwrap();
    let said = text.lines().filter_map(|line| line.find(SAYS).map(|at| &line[at + SAYS.len()..]));
    let said = Said(said.map(str::to_owned).collect());
    // SIGABRT.
    let is_aborted = status.signal() == Some(6);
    let error = std::fs::read_to_string(&err).unwrap_or_default();
    // A panic that found no memory for itself is one all the same.
    if !status.success() && !is_aborted || error.contains("panicked at") {
        panic!("HEDGEROW_ONLY=\"{name} {refused} {of}\": {status}\n{text}\n{error}");
    }
    (is_aborted, said)
}

/// What may be there after a run: the states from the last on that was durable.
fn allowed(script: &Script, before: &Model, said: &Said) -> Vec<Model> {
    let mut dice = Dice(9);
    let mut now = before.clone();
    let mut allowed = vec![now.clone()];
    for (at, step) in steps(script).iter().enumerate() {
        if !said.has(&format!("begin {at}")) {
            break;
        }
        let states = states(step, &now, &mut dice);
        let Some(reached) = said.number(&format!("end {at} ")) else {
            // The one in which it ended.
            allowed.extend(states);
            break;
        };
        let reached = reached as usize;
        now = states[reached].clone();
        allowed.extend_from_slice(&states[..=reached]);
        if is_durable(step) && said.has(&format!("end {at} {reached} done")) {
            allowed = vec![now.clone()];
        }
    }
    if said.has("closed") {
        allowed = vec![now];
    }
    allowed
}

/// Runs a script with one allocation `of` a sort refused, and looks at what is left. Also tells how many there were.
fn run(base: &Path, before: &Model, name: &str, refused: u64, of: &str) -> (Outcome, Option<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("birds.hrow");
    std::fs::copy(base, &path).unwrap();
    let (is_aborted, said) = run_child(folder.path(), name, refused, of);
    let context = format!("HEDGEROW_ONLY=\"{name} {refused} {of}\"");
    let db = options().open(&path);
    let db = db.unwrap_or_else(|error| panic!("{context}: {error:?}"));
    let found = contents(&db).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    let is_allowed = allowed(script(name), before, &said).contains(&found);
    assert!(is_allowed, "{context}: a state that may not be there, after {:?}", said.0.last());
    let keyspace = db.keyspace("robins").unwrap().with_durability(Durability::Sync);
    keyspace.put(b"late", b"here").unwrap();
    assert_sound(&db, &context);
    assert_eq!(get(&keyspace, b"late").as_deref(), Some(&b"here"[..]), "{context}");
    drop(keyspace);
    db.close().unwrap_or_else(|error| panic!("{context}: {error:?}"));
    let outcome = match is_aborted {
        true => Outcome::Aborted,
        false if said.has("refused") => Outcome::Refused,
        false => Outcome::Unnoticed,
    };
    (outcome, said.number("count "))
}

/// The allocations of a script that are to be refused.
fn sample(count: u64, dice: &mut Dice) -> Vec<u64> {
    let most = if is_thorough() { SAMPLE } else { SAMPLE / 2 };
    let every = if effort() > 1 { 1 } else { count.div_ceil(most).max(1) };
    (0..count)
        .step_by(every as usize)
        .map(|from| from + dice.below(every.min(count - from)))
        .collect()
}

/// The only run that is asked for: script, allocation and sort.
fn only() -> Option<(&'static str, u64, &'static str)> {
    variable("HEDGEROW_ONLY", "a run such as `puts 17` or `puts 17 blocks`", |text| {
        let mut words = text.split_whitespace();
        let name = words.next()?;
        let name = NAMES.into_iter().find(|known| *known == name)?;
        let refused = words.next()?.parse().ok()?;
        let of = words.next().unwrap_or(EVERYTHING);
        let of = [BLOCKS, EVERYTHING].into_iter().find(|known| *known == of)?;
        words.next().is_none().then_some((name, refused, of))
    })
}

/// What a child is told: the script, the allocation, of which sort, and the folder.
fn be_the_child(told: &str) {
    let mut words = told.splitn(4, ' ');
    let script = script(words.next().unwrap());
    let refused = words.next().unwrap().parse().unwrap();
    if words.next().unwrap() == BLOCKS {
        LEAST_ALIGN.store(BLOCK_ALIGN, Relaxed);
    }
    let path = Path::new(words.next().unwrap()).join("birds.hrow");
    let before = {
        let db = options().open(&path).unwrap();
        let before = contents(&db).unwrap();
        db.close().unwrap();
        before
    };
    REFUSED.store(refused, Relaxed);
    go_through(script, &path, before);
}

#[test]
fn a_refused_allocation_is_an_error_or_a_kill() {
    if let Ok(told) = std::env::var(CHILD) {
        return be_the_child(&told);
    }
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("base.hrow");
    let before = make_base(&base);
    if let Some((name, refused, of)) = only() {
        println!("{:?}", run(&base, &before, name, refused, of));
        return;
    }
    let mut dice = Dice(seed(41));
    let (part, parts) = part();
    let mut sums = [0u64; 3];
    for name in NAMES {
        let (outcome, count) = run(&base, &before, name, u64::MAX, EVERYTHING);
        assert_eq!(outcome, Outcome::Unnoticed, "{name}: none was to be refused");
        let count = count.expect("the child has come to its end");
        let mut of_script = [0u64; 3];
        for refused in sample(count, &mut dice).into_iter().skip(part).step_by(parts) {
            of_script[run(&base, &before, name, refused, EVERYTHING).0 as usize] += 1;
        }
        let [aborted, refused, unnoticed] = of_script;
        println!(
            "{name}: {count} allocations; {aborted} ended the process, {refused} were an error, \
             {unnoticed} did no harm"
        );
        (0..3).for_each(|at| sums[at] += of_script[at]);
    }
    let [aborted, refused, unnoticed] = sums;
    println!("{aborted} ended the process, {refused} were an error, {unnoticed} did no harm");
    // The others may have been none: a child may make fewer allocations than the first one.
    count(aborted, "allocations whose refusal ended the process");
    count(refused, "allocations whose refusal was a typed error");
    assert!(aborted + refused > unnoticed, "hardly any allocation was refused");
}

/// The last thing that a checkpoint wants is the superblock's place in memory. It asked for it when it could not go back any
/// more: then no change was taken until the store was opened again.
#[test]
fn a_checkpoint_that_gets_no_memory_can_be_taken_again() {
    // One run is asked for, which is the other test's.
    if only().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("base.hrow");
    let before = make_base(&base);
    let name = "keyspaces-come-back";
    let count = run(&base, &before, name, u64::MAX, BLOCKS).1.expect("the child comes to its end");
    assert!(count > 5, "{count} blocks");
    for refused in 0..count {
        let outcome = run(&base, &before, name, refused, BLOCKS).0;
        assert_ne!(outcome, Outcome::Aborted, "{name} {refused} {BLOCKS}");
    }
}

/// Some of them are made under the latch of a leaf.
#[test]
fn a_put_of_a_large_value_makes_few_allocations() {
    let folder = tempfile::tempdir().unwrap();
    let db = options().create(folder.path().join("birds.hrow")).unwrap();
    let songs = db.keyspace("songs").unwrap();
    let puts = || {
        for n in 0..400_u64 {
            songs.put(&(n % 20).to_be_bytes(), &[7; 3_000]).unwrap();
        }
    };
    // What there is only at first.
    puts();
    let before = OURS.get();
    puts();
    let each = (OURS.get() - before) as f64 / 400.0;
    println!("{each} allocations for a put");
    assert!(each < 8.0, "{each} allocations for a put");
}
