//! What everybody looks at who changes records or begins a snapshot: the switch of old versions, and the gate of who runs alone.
//!
//! **The switch.** While no snapshot is open, writers keep no old versions and reserve no room for them. The first snapshot turns the
//! switch *on*, by way of *rising*: from then on writers come in with room. Those who are inside without are waited for, and only then
//! it is on and a snapshot may have its moment. (On at once: whoever comes second begins while they are inside.) It is turned *off* by way of
//! *falling*, which writers take for on. Then all slots are looked at, and if one is not empty it is on again. Either who
//! falls sees the slot, or whoever begins sees that it falls. While it is on every change costs more; turning it on costs whoever begins a barrier of all
//! threads. So it is turned off when nobody has had a snapshot for sixteen times as long as the last rise took.
//!
//! A writer looks twice: before it enters an epoch, to reserve room, and inside. What it sees inside holds for its stay.
//!
//! **The gate** is closed by who runs alone ([`super::alone`]). Whoever changes records looks at it at the same two places, waits
//! outside with nothing held, and is waited for inside.
//!
//! Both are bits of one word, so inside there is one load. The state changes under `turn`, bits by whoever they belong to. `Send + Sync`.

use crate::error::{Error, ErrorKind, Result};
use crate::events::{Stall, WaitsFor};
use crate::versions::memory::Surroundings;
use crate::wait::Waiting;
use hedgerow_sync::primitive::atomic::{AtomicU32, Ordering::*, fence};
use hedgerow_sync::primitive::figure::Figure;
use hedgerow_sync::primitive::time::Moment;
use hedgerow_sync::primitive::{Condvar, Mutex};
use std::time::Duration;

/// How many times longer than it takes to turn the switch on nobody has a snapshot before it is turned off, and bounds of that.
const RISES: u32 = 16;
const LEAST_IDLE: Duration = Duration::from_micros(50);
const MOST_IDLE: Duration = Duration::from_secs(1);

const OFF: u32 = 0;
const RISING: u32 = 1;
const ON: u32 = 2;
const FALLING: u32 = 3;
const STATE: u32 = 3;
const CLOSED: u32 = 4;
/// Who runs alone is about to end: no snapshot begins.
const ENDING: u32 = 8;
/// Who ran alone has failed: nobody passes the gate any more.
const FAILED: u32 = 16;

/// What the door said at one look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Look(u32);

impl Look {
    /// Whether old versions are kept by writers who enter now.
    #[inline]
    pub(super) fn keeps_versions(self) -> bool {
        self.0 & STATE != OFF
    }

    #[inline]
    pub(super) fn is_on(self) -> bool {
        self.0 & STATE == ON
    }

    #[inline]
    pub(super) fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    #[inline]
    pub(super) fn is_ending(self) -> bool {
        self.0 & ENDING != 0
    }

    /// Whether a writer without room may change records.
    #[inline]
    pub(super) fn is_plain(self) -> bool {
        self.0 & (STATE | CLOSED) == 0
    }
}

/// See the head of the file.
pub(super) struct Door {
    word: AtomicU32,
    /// Held while the switch is turned.
    turn: Mutex<()>,
    /// How long it took to turn it on last, in nanoseconds.
    rise_nanos: Figure,
    gate: Mutex<()>,
    opened: Condvar,
}

impl Door {
    /// The switch off, the gate open.
    pub(super) fn new() -> Door {
        Door {
            word: AtomicU32::new(OFF),
            turn: Mutex::new(()),
            rise_nanos: Figure::new(0),
            gate: Mutex::new(()),
            opened: Condvar::new(),
        }
    }

    /// One look.
    #[inline]
    pub(super) fn look(&self) -> Look {
        Look(self.word.load(Acquire))
    }

    fn set_state(&self, state: u32) {
        let mut word = self.word.load(Relaxed);
        while let Err(changed) =
            self.word.compare_exchange(word, word & !STATE | state, AcqRel, Relaxed)
        {
            word = changed;
        }
    }

    /// Turns the switch on, if it is not: returns when every writer inside keeps versions. The caller is inside of no epoch, and its
    /// slot is pending. `prepare` sees to the memory that a single writer needs at least.
    ///
    /// Errors: those of `prepare`; then the switch is as it was.
    pub(super) fn rise(
        &self,
        around: &impl Surroundings,
        prepare: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let _turn = self.turn.lock();
        // Nobody else turns it: it is on or off.
        if self.look().is_on() {
            return Ok(());
        }
        prepare()?;
        let began = Moment::now();
        self.set_state(RISING);
        around.wait_for_stays();
        self.set_state(ON);
        self.rise_nanos.store(began.elapsed().as_nanos() as u64, Relaxed);
        Ok(())
    }

    /// How long nobody has a snapshot before the switch is worth turning off: many times what it takes to turn it on.
    pub(super) fn idle(&self) -> Duration {
        let rise = Duration::from_nanos(self.rise_nanos.load(Relaxed));
        (RISES * rise).clamp(LEAST_IDLE, MOST_IDLE)
    }

    /// Turns the switch off, if it is on, nobody is turning it, and `is_needed` is false. Returns whether it was turned off.
    pub(super) fn fall(&self, is_needed: impl FnOnce() -> bool) -> bool {
        let Some(_turn) = self.turn.try_lock() else { return false };
        if !self.look().is_on() {
            return false;
        }
        self.set_state(FALLING);
        // Whoever begins has stored its slot before it looks at the door.
        fence(SeqCst);
        if is_needed() {
            self.set_state(ON);
            return false;
        }
        self.set_state(OFF);
        true
    }

    /// Closes the gate, and returns when nobody is inside who has not seen it. One caller at a time.
    pub(super) fn close(&self, around: &impl Surroundings) {
        let before = self.word.fetch_or(CLOSED, AcqRel);
        assert!(before & CLOSED == 0, "one runs alone at a time");
        around.wait_for_stays();
    }

    /// From now on nobody begins a snapshot: whoever does so sees it, or its slot is seen to be pending.
    pub(super) fn begin_to_end(&self) {
        self.word.fetch_or(ENDING, AcqRel);
        fence(SeqCst);
    }

    /// Opens the gate, and lets snapshots begin.
    pub(super) fn open(&self) {
        let _gate = self.gate.lock();
        self.word.fetch_and(!(CLOSED | ENDING), AcqRel);
        self.opened.notify_all();
    }

    /// The gate stays closed for good: who waits gets an error.
    pub(super) fn fail(&self) {
        let _gate = self.gate.lock();
        self.word.fetch_or(FAILED, AcqRel);
        self.opened.notify_all();
    }

    /// Waits until the gate is open. The caller holds nothing.
    ///
    /// Errors: `Poisoned` if it never opens again; those of `waiting`.
    #[cold]
    pub(super) fn wait_until_open(&self, waiting: &Waiting<'_>) -> Result<()> {
        self.wait_while(CLOSED, waiting)
    }

    /// Waits until snapshots begin again.
    ///
    /// Errors: as [`Self::wait_until_open`].
    #[cold]
    pub(super) fn wait_while_ending(&self, waiting: &Waiting<'_>) -> Result<()> {
        self.wait_while(ENDING, waiting)
    }

    fn wait_while(&self, bit: u32, waiting: &Waiting<'_>) -> Result<()> {
        let _stall = Stall::begin(WaitsFor::Commit);
        let mut gate = self.gate.lock();
        loop {
            let word = self.word.load(Acquire);
            if word & bit == 0 {
                return Ok(());
            }
            if word & FAILED != 0 {
                let what = "a transaction has failed that ran alone; the next open finishes it";
                return Err(Error::new(ErrorKind::Poisoned, what));
            }
            waiting.wait_on(&self.opened, &mut gate)?;
        }
    }
}
