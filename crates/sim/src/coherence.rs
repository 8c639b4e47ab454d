//! What an access to a cache line costs, and who gets the line next.
//!
//! A core that holds a line hits. Else the line comes from the nearest place that has it; whoever wants to write waits until the
//! farthest holder has given it up. A line that is on its way, or was got less than `hold` cycles ago, is busy: others
//! queue, and an arbiter picks the next one when it is free. Nobody but its new holder can see a line that is on its way, so
//! an access may take effect when it is asked for, and only the thread's clock goes on to when it is granted.

use crate::kernel::{Kernel, Kind};
use crate::lines::{Line, NOBODY};
use crate::machine::Arbitration;
use std::collections::VecDeque;

/// How an attempt to access a line went.
pub(crate) enum Outcome {
    /// The access is granted.
    Granted,
    /// It is not the thread's turn: give way, and try again.
    NotYet,
    /// The line is busy: give way, and the access is granted.
    Queued,
}

/// Where a line comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Near,
    Same,
    Cross,
    Cache,
    Memory,
}

impl Kernel {
    #[inline]
    pub(crate) fn access(&mut self, address: usize, kind: Kind) -> Outcome {
        if !self.is_its_turn() {
            return Outcome::NotYet;
        }
        let number = self.lines.place_of(address);
        let outcome = self.ask_for(number, kind);
        if self.regions.is_any_active() && matches!(outcome, Outcome::Granted) {
            self.effect(number, kind);
        }
        outcome
    }

    /// A line for which the thread had to wait is there.
    #[inline]
    pub(crate) fn arrived(&mut self, address: usize, kind: Kind) {
        if self.regions.is_any_active() {
            let number = self.lines.place_of(address);
            self.effect(number, kind);
        }
    }

    #[inline]
    fn ask_for(&mut self, number: usize, kind: Kind) -> Outcome {
        let (clock, context) =
            (self.threads[self.current].clock, self.threads[self.current].context);
        let core = self.cores[context];
        self.note(number, kind, clock);
        let extra = u64::from(if kind == Kind::Rmw { self.machine.rmw } else { 0 });
        let line = &mut self.lines.all[number];
        if holds(line, core, kind) {
            if kind != Kind::Load {
                line.owner = core as u8;
            }
            self.counts.hits += 1;
            self.spend(u64::from(self.machine.hit) + extra);
            return Outcome::Granted;
        }
        if line.busy_until > clock {
            self.queue(number, kind);
            return Outcome::Queued;
        }
        self.threads[self.current].clock = self.transfer(number, core, kind, clock);
        Outcome::Granted
    }

    #[inline]
    fn note(&mut self, number: usize, kind: Kind, clock: u64) {
        self.counts.events += 1;
        match kind {
            Kind::Load => self.counts.loads += 1,
            Kind::Store => self.counts.stores += 1,
            Kind::Rmw => self.counts.rmws += 1,
        }
        let what =
            u64::from(self.lines.all[number].name) << 16 | (self.current as u64) << 2 | kind as u64;
        let mixed = (self.digest ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ clock;
        self.digest = mixed.rotate_left(23);
    }

    fn queue(&mut self, number: usize, kind: Kind) {
        self.counts.queued += 1;
        let current = self.current;
        self.threads[current].wants = kind;
        let line = &mut self.lines.all[number];
        if line.queue == 0 {
            self.queues.push(VecDeque::new());
            line.queue = self.queues.len() as u32;
        }
        let busy_until = line.busy_until;
        let queue = &mut self.queues[line.queue as usize - 1];
        queue.push_back(current);
        if queue.len() == 1 {
            self.arbitrate_at(number, busy_until);
        }
    }

    /// The line is free, and goes to one that waits for it; if that one reads, to all that do.
    pub(crate) fn arbitrate(&mut self, number: usize, time: u64) {
        let queue = self.lines.all[number].queue as usize - 1;
        let first = self.pick(number, queue);
        let Some(first) = self.queues[queue].remove(first) else { return };
        self.grant(first, number, time);
        if self.threads[first].wants == Kind::Load {
            let mut at = 0;
            while let Some(&next) = self.queues[queue].get(at) {
                if self.threads[next].wants == Kind::Load {
                    self.queues[queue].remove(at);
                    self.grant(next, number, time);
                } else {
                    at += 1;
                }
            }
        }
        if !self.queues[queue].is_empty() {
            // Later than now, or this would go on for ever with a machine whose transfers cost nothing.
            self.arbitrate_at(number, self.lines.all[number].busy_until.max(time + 1));
        }
    }

    fn grant(&mut self, thread: usize, number: usize, time: u64) {
        let kind = self.threads[thread].wants;
        let core = self.cores[self.threads[thread].context];
        let extra = u64::from(if kind == Kind::Rmw { self.machine.rmw } else { 0 });
        let line = &mut self.lines.all[number];
        let granted = match holds(line, core, kind) {
            // A sibling got it meanwhile.
            true => time + u64::from(self.machine.hit) + extra,
            false => self.transfer(number, core, kind, time),
        };
        self.resume_at(thread, granted);
    }

    /// Which of the queue is next.
    fn pick(&mut self, number: usize, queue: usize) -> usize {
        let Arbitration::NearestFirst(share) = self.machine.arbitration else { return 0 };
        let last = self.lines.all[number].last;
        if last == NOBODY || self.queues[queue].len() < 2 || !self.random.chance(share) {
            return 0;
        }
        let last = usize::from(last);
        let distance = |&thread: &usize| {
            let core = 1_u128 << self.cores[self.threads[thread].context];
            match () {
                () if core == 1 << last => 0,
                () if self.groups[last] & core != 0 => 1,
                () if self.sockets[last] & core != 0 => 2,
                () => 3,
            }
        };
        let nearest =
            self.queues[queue].iter().enumerate().min_by_key(|(_, thread)| distance(thread));
        nearest.map_or(0, |(at, _)| at)
    }

    /// Brings a line to a core. When it is there and the access is done.
    fn transfer(&mut self, number: usize, core: u32, kind: Kind, time: u64) -> u64 {
        let line = &self.lines.all[number];
        let is_write = kind != Kind::Load;
        let source = self.source(line, core, is_write);
        let (cycles, count) = match source {
            Source::Near => (self.machine.near, &mut self.counts.near),
            Source::Same => (self.machine.same, &mut self.counts.same),
            Source::Cross => (self.machine.cross, &mut self.counts.cross),
            Source::Cache => (self.machine.llc, &mut self.counts.llc),
            Source::Memory => (self.machine.memory, &mut self.counts.memory),
        };
        *count += 1;
        let jitter = self.random.up_to(u64::from(self.machine.jitter));
        let extra = u64::from(if kind == Kind::Rmw { self.machine.rmw } else { 0 });
        let granted = time + u64::from(cycles) + jitter + extra;
        let hold = if is_write { self.hold() } else { 0 };
        let line = &mut self.lines.all[number];
        // Readers of a line that nobody may write do not wait for each other.
        if is_write {
            line.busy_until = granted + hold;
        } else if line.owner != NOBODY || line.busy_until > time {
            line.busy_until = granted.max(line.busy_until);
        }
        if is_write {
            line.holders = 1 << core;
            line.owner = core as u8;
        } else {
            line.holders |= 1 << core;
            line.owner = NOBODY;
        }
        line.touched = true;
        line.last = core as u8;
        if self.lines.fill(core, number) {
            self.counts.evicted += 1;
        }
        granted
    }

    /// How long this holder keeps a line.
    fn hold(&mut self) -> u64 {
        let hold = u64::from(self.machine.hold);
        let most = (hold as f64 * self.machine.hold_jitter) as u64;
        hold - most.min(hold) + self.random.up_to(2 * most)
    }

    fn source(&self, line: &Line, core: u32, is_write: bool) -> Source {
        let others = line.holders & !(1 << core);
        let (group, socket) = (self.groups[core as usize], self.sockets[core as usize]);
        match (others, is_write) {
            (0, _) if line.touched => Source::Cache,
            (0, _) => Source::Memory,
            (_, true) if others & !socket != 0 => Source::Cross,
            (_, true) if others & !group != 0 => Source::Same,
            (_, true) => Source::Near,
            (_, false) if others & group != 0 => Source::Near,
            (_, false) if others & socket != 0 => Source::Same,
            (_, false) => Source::Cross,
        }
    }
}

/// Whether the access is a hit. Who holds a line alone may write it.
#[inline]
fn holds(line: &Line, core: u32, kind: Kind) -> bool {
    let own = 1 << core;
    if kind == Kind::Load { line.holders & own != 0 } else { line.holders == own }
}
