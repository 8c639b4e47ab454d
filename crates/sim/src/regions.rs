//! The kernel's part of transactional regions: which accesses end which regions, and what is undone when a region aborts.
//!
//! As in the processors that had this: conflicts are found by cache line at the moment of an access, whoever asks for a line wins
//! it, and accesses outside of regions end regions as well. A region writes in place and keeps what was there. It is rolled back at
//! the moment at which it is ended, by whoever ends it, and learns of it at its next access. So no thread ever computes with
//! what was rolled back. Who has reached which lines is in [`crate::marks`].
//!
//! Invariant: a thread in a region keeps its hardware thread: if it loses it, the region ends.

use crate::abort::{Abort, Cause};
use crate::kernel::{Kernel, Kind};
use crate::lines::NOBODY;
use crate::machine::Capacity;
use crate::undo::Old;

impl Kernel {
    fn context(&self) -> usize {
        self.threads[self.current].context
    }

    pub(crate) fn label(&mut self, address: usize, label: u8) {
        let place = self.lines.place_of(address);
        self.regions.mark(place, self.lines.all.len()).label = label;
    }

    pub(crate) fn begin_region(&mut self) {
        self.spend(u64::from(self.machine.transactions.begin));
        self.counts.events += 1;
        let (clock, context) = (self.threads[self.current].clock, self.context());
        self.interrupted(clock, context);
        self.threads[self.current].in_region = true;
        self.regions.begin(self.current, context, clock);
    }

    /// Whether there was an interrupt since the last look. Draws when the next one comes.
    fn interrupted(&mut self, clock: u64, context: usize) -> bool {
        let every = self.machine.transactions.interrupt_every;
        if every == 0 || clock < self.regions.interrupts[context] {
            return false;
        }
        let is_first = self.regions.interrupts[context] == 0;
        self.regions.interrupts[context] = clock + 1 + self.random.up_to(every.saturating_mul(2));
        !is_first
    }

    /// Why the current thread's region has ended, if it has.
    pub(crate) fn doom(&self) -> Option<Abort> {
        self.regions.of_thread[self.current].doom
    }

    /// An access takes effect: regions that it conflicts with end, and that of the thread itself notes it.
    pub(crate) fn effect(&mut self, place: usize, kind: Kind) {
        let in_region = self.threads[self.current].in_region;
        if in_region && self.doom().is_some() {
            return;
        }
        let context = self.context();
        let own = 1_u128 << context;
        let is_write = kind != Kind::Load;
        let mark = self.regions.mark(place, self.lines.all.len());
        let writer = if mark.writer == NOBODY { 0 } else { 1 << mark.writer };
        let mut victims = (if is_write { mark.readers | writer } else { writer }) & !own;
        if victims != 0 {
            let (label, other) = (mark.label, self.threads[self.current].about);
            while victims != 0 {
                let victim = self.thread_on(victims.trailing_zeros() as usize);
                victims &= victims - 1;
                self.end_region(victim, Cause::Conflict { label, other });
            }
        }
        if in_region {
            self.note_in_region(place, is_write, context);
        }
    }

    fn note_in_region(&mut self, place: usize, is_write: bool, context: usize) {
        let current = self.current;
        let own = 1_u128 << context;
        let clock = self.threads[self.current].clock;
        let spurious = self.machine.transactions.spurious;
        if spurious > 0.0 && self.random.chance(spurious) || self.interrupted(clock, context) {
            return self.end_region(current, Cause::Interrupt);
        }
        let mark = &mut self.regions.marks[place];
        let had_read = mark.readers & own != 0;
        let had_written = mark.writer as usize == context;
        if is_write {
            mark.writer = context as u8;
        } else {
            mark.readers |= own;
        }
        if !had_read && !had_written {
            self.regions.of_thread[current].lines.push(place);
        }
        let is_new = match self.machine.transactions.capacity {
            Capacity::Unlimited => false,
            Capacity::L1Strict { .. } => !had_read && !had_written,
            Capacity::WritesInL1 { .. } => is_write && !had_written,
        };
        if is_new {
            self.takes_room(place, context);
        }
    }

    /// The line has to fit in its set, with what this region and that of a sibling have there.
    fn takes_room(&mut self, place: usize, context: usize) {
        let (Capacity::L1Strict { sets, ways, is_shared }
        | Capacity::WritesInL1 { sets, ways, is_shared }) = self.machine.transactions.capacity
        else {
            return;
        };
        // Places are counted by pages, so this is made of bits of the address.
        let set = place % sets as usize;
        let current = self.current;
        let taken = &mut self.regions.of_thread[current].taken;
        if taken.len() < sets as usize {
            taken.resize(sets as usize, 0);
        }
        taken[set] = taken[set].saturating_add(1);
        let own = u32::from(taken[set]);
        let core = self.cores[context];
        let mut sharers: Vec<(usize, u32)> = Vec::new();
        if is_shared {
            for other in (0..self.cores.len()).filter(|&other| other != context) {
                let thread = self.thread_on(other);
                let region =
                    self.regions.of_thread.get(thread).filter(|_| self.cores[other] == core);
                let Some(region) = region else { continue };
                if region.is_active && region.doom.is_none() {
                    let taken = region.taken.get(set).copied().unwrap_or(0);
                    sharers.push((thread, u32::from(taken)));
                }
            }
        }
        let all = own + sharers.iter().map(|(_, taken)| taken).sum::<u32>();
        if all <= ways {
            return;
        }
        // One of the lines that were there has to go; that ends the region whose it is.
        let mut out = self.random.up_to(u64::from(all - 2)) as u32;
        for (other, taken) in sharers {
            if out < taken {
                return self.end_region(other, Cause::Capacity);
            }
            out -= taken;
        }
        self.end_region(current, Cause::Capacity);
    }

    pub(crate) fn log(&mut self, old: Old) {
        self.regions.of_thread[self.current].undo.push(old);
    }

    /// Ends the region of a thread, if it is under way, and undoes what it has written.
    pub(crate) fn end_region(&mut self, thread: usize, cause: Cause) {
        let key = self.threads.get(thread).map_or(0, |thread| thread.about);
        let Some(region) = self.regions.of_thread.get_mut(thread) else { return };
        if !region.is_active || region.doom.is_some() {
            return;
        }
        for old in region.undo.drain(..).rev() {
            old.restore();
        }
        region.doom = Some(Abort { cause, key });
        self.regions.unmark(thread);
        self.regions.tally.note(cause, key);
    }

    /// The thread has come to the end of its region, and takes its turn. Why it has not taken effect, if it has not.
    pub(crate) fn commit_region(&mut self) -> Option<Abort> {
        let (clock, context, current) =
            (self.threads[self.current].clock, self.context(), self.current);
        if self.interrupted(clock, context) {
            self.end_region(current, Cause::Interrupt);
        }
        let doom = self.doom();
        if doom.is_none() {
            let region = &mut self.regions.of_thread[current];
            region.undo.clear();
            let spent = clock - region.began;
            self.regions.unmark(current);
            self.regions.tally.committed += 1;
            self.regions.tally.committed_cycles += spent;
            self.leave_region();
        }
        doom
    }

    /// The thread has learned that its region has ended.
    pub(crate) fn left_by_abort(&mut self) {
        self.spend(u64::from(self.machine.transactions.abort));
        let clock = self.threads[self.current].clock;
        let spent = clock.saturating_sub(self.regions.of_thread[self.current].began);
        self.regions.tally.aborted_cycles += spent;
        self.leave_region();
    }

    fn leave_region(&mut self) {
        self.threads[self.current].in_region = false;
        self.regions.leave(self.current);
    }
}
