//! What holds after a script, once calls go well again.
//!
//! The running store shows what the model has, and either works on or has honestly stopped: every change says so, reads
//! go on, and closing it does not claim to have saved what it could not. Whatever becomes of it, the power, the process,
//! or a proper close, the next opening finds an allowed state, every page and unit of the file accounted for, and goes
//! on. Nothing that belonged to the log is left behind a close. One thread; see `run.rs`.

use super::run::Run;
use super::state::State;
use crate::common::{Dice, assert_sound, effort, get, open};
use hedgerow::{Database, Durability, ErrorKind};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::SimState;
use std::sync::Arc;

/// The keyspace in which it is tried whether a store works.
const TRIED: &str = "robins";

impl Run {
    /// Takes the fault away, and looks at everything. Returns how many calls had failed.
    pub fn finish(mut self) -> u64 {
        self.count_hits();
        self.disk.clear_faults();
        self.disk.record_log(false);
        self.assert_shown("the running store");
        let state = self.disk.state();
        let seed = self.case.k;
        let survivor = SimDisk::with_state(state.crash_at_random(seed), seed);
        self.examine(&survivor, "the power went");
        if self.case.k.is_multiple_of(4) || effort() > 1 {
            self.examine_killed(state, seed);
        }
        if let Some(db) = self.db.take() {
            self.work_on(db);
            let disk = self.disk.clone();
            self.examine(&disk, "worked on and closed");
        }
        self.hits
    }

    /// Asserts that the running store, if there is one, shows what the model has.
    fn assert_shown(&self, what: &str) {
        if self.db.is_some() && !self.is_in_parts {
            let found = self.look();
            let is_right = found == *self.now();
            assert!(
                is_right,
                "{}: {what} shows something else: {}",
                self.case,
                self.describe(&found)
            );
        }
    }

    /// Changes something in the running store, and closes it.
    fn work_on(&mut self, db: Database) {
        let mut after = self.now().clone();
        after.create(TRIED).insert(Arc::from(&b"tried"[..]), Arc::from(&b"done"[..]));
        let put = || {
            let keyspace = db.keyspace(TRIED)?.with_durability(Durability::Sync);
            keyspace.put(b"tried", b"done")
        };
        let mut done = put();
        let is_full = |error: &hedgerow::Error| error.kind() == ErrorKind::DiskFull;
        if self.case.kind.is_about_room() && done.as_ref().is_err_and(is_full) {
            // What it remembers of a full disk a checkpoint finds to be over.
            let taken = db.checkpoint();
            assert!(taken.is_ok(), "{}: there is room: {taken:?}", self.case);
            done = put();
        }
        match done {
            Ok(_) => {
                let case = &self.case;
                assert!(!self.is_poisoned, "{case}: a change after it was said that none is made");
                let taken = db.checkpoint();
                assert!(taken.is_ok(), "{case}: it works, but: {taken:?}");
                let context = format!("{case}, worked on");
                assert_sound(&db, &context);
                assert_books(&db, &context);
                let closed = db.close();
                assert!(closed.is_ok(), "{case}: it works, but: {closed:?}");
                self.push(after);
                self.keep();
                self.durable = self.history.len() - 1;
                self.doubtful.clear();
            }
            Err(error) => {
                let case = self.case;
                let is_poisoned = |error: &hedgerow::Error| error.kind() == ErrorKind::Poisoned;
                assert!(is_poisoned(&error), "{case}: calls go well again, but: {error:?}");
                let again = db.checkpoint();
                assert!(again.as_ref().is_err_and(is_poisoned), "{case}: poisoned, but: {again:?}");
                self.db = Some(db.clone());
                self.assert_shown("the poisoned store");
                self.db = None;
                let closed = db.close();
                assert!(
                    closed.as_ref().is_err_and(is_poisoned),
                    "{case}: poisoned, but: {closed:?}"
                );
            }
        }
    }

    /// The process dies, and what it has written and not synced can be read: the opening that reads it may rely on
    /// nothing of it until it is durable, for the power may go in the middle of that opening, or right after it.
    fn examine_killed(&self, state: SimState, seed: u64) {
        let disk = SimDisk::with_state(state, seed);
        disk.record_states(true);
        let db = open(&self.options, &disk, self.how());
        let db = db.unwrap_or_else(|error| panic!("{}, the process died: {error:?}", self.case));
        let moments = disk.take_states();
        disk.record_states(false);
        let found = State::of(&db).unwrap_or_else(|error| panic!("{}: {error:?}", self.case));
        let after = disk.state().crash_at_random(seed + 1);
        drop(db);
        if !moments.is_empty() {
            let at = Dice(seed).below(moments.len() as u64) as usize;
            let survivor = SimDisk::with_state(moments[at].crash_at_random(seed + 2), seed);
            self.examine(&survivor, "the process died, and the power went in the recovery");
        }
        let survivor = SimDisk::with_state(after, seed);
        let kept =
            self.examine(&survivor, "the process died, and the power went after the recovery");
        // Without a log an opening makes nothing durable.
        assert!(!self.case.log || kept == found, "{}: a recovery was undone", self.case);
        let shown = self.examine(&disk, "the process died");
        assert!(shown == found, "{}: two recoveries differ", self.case);
    }

    /// Opens what is left: it holds an allowed state, is sound, works on, and leaves nothing behind. Returns the state.
    fn examine(&self, disk: &SimDisk, ended: &str) -> State {
        let context = format!("{}, {ended}", self.case);
        let db = open(&self.options, disk, self.how());
        let db = db.unwrap_or_else(|error| panic!("{context}: {error:?}"));
        let found = State::of(&db).unwrap_or_else(|error| panic!("{context}: {error:?}"));
        assert!(self.place_of(&found).is_some(), "{context}: {}", self.describe(&found));
        for (path, expected) in &self.copies {
            self.check_copy(&disk.state(), path, expected);
        }
        let keyspace = db.keyspace(TRIED).and_then(|tried| {
            let tried = tried.with_durability(Durability::Sync);
            tried.put(b"late", b"here").map(|_| tried)
        });
        let keyspace = keyspace.unwrap_or_else(|error| panic!("{context}: {error:?}"));
        assert_sound(&db, &context);
        assert_eq!(get(&keyspace, b"late").as_deref(), Some(&b"here"[..]), "{context}");
        assert_books(&db, &context);
        drop(keyspace);
        db.close().unwrap_or_else(|error| panic!("{context}, closed: {error:?}"));
        for path in disk.state().paths() {
            let name = path.to_string_lossy();
            let is_of_log = name.ends_with("-log") || name.ends_with("-log-new");
            assert!(!is_of_log, "{context}, closed: {name} is left");
        }
        found
    }
}

/// Asserts that every byte of the file is accounted for.
fn assert_books(db: &Database, context: &str) {
    let space = db.space_report().unwrap_or_else(|error| panic!("{context}: {error:?}"));
    let sum = space.accounted_bytes();
    assert!(sum == space.file_bytes, "{context}: {space:?}");
}
