//! The virtual processors: threads in the order of their clocks, contexts, slices, sleeping and waking.
//!
//! # Invariants
//! - A thread takes a step that others can see only when no event is earlier than its clock. So steps happen in
//!   the order of simulated time, and nothing depends on the system's scheduler.
//! - A thread that has a context is either the current one, or in the heap, or waits for a line. A thread
//!   without one is in the queue of a context, or sleeps.
//! - Of tables that are keyed by addresses nothing but single entries is looked up.
//!
//! Everything here runs on one system thread, and is never borrowed while a virtual thread runs.

use crate::abort::Cause;
use crate::lines::Lines;
use crate::machine::Machine;
use crate::marks::Regions;
use crate::random::Random;
use crate::record::{Counts, Failure, Record, ThreadRecord, Waiting};
use crate::switch::Handle;
use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::rc::Rc;

/// No clock goes beyond this, so that sums of times fit. Runs end long before.
const END_OF_TIME: u64 = u64::MAX >> 2;

/// What somebody sleeps at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Place {
    /// A word in memory.
    Address(usize),
    /// The end of a thread.
    End(usize),
    /// A moment.
    Clock,
}

/// A kind of access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Load,
    Store,
    Rmw,
}

/// An event of the heap: its time, its number, and what it is.
type Event = Reverse<(u64, u64, What)>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum What {
    Resume(usize),
    /// A line with a queue goes to the next one.
    Arbitrate(usize),
    /// The sleep of this number of a thread has lasted long enough.
    Timer(usize, u64),
}

/// Values of a thread of its own, by the address of what names them.
pub(crate) type Locals = Vec<(usize, Rc<dyn Any>)>;

pub(crate) struct Thread {
    pub name: String,
    pub number: usize,
    pub context: usize,
    pub clock: u64,
    pub wants: Kind,
    pub locals: Option<Locals>,
    pub handle: Handle,
    /// What it says it is about.
    pub about: u64,
    pub in_region: bool,
    has_ended: bool,
    cpu: u64,
    /// When it got its context.
    runs_since: u64,
    /// Not before this moment, if it waits for a context.
    ready_at: u64,
    sleeps: Option<(Place, &'static str)>,
    /// Counts sleeps, so that an old timer wakes nobody.
    sleep_number: u64,
    timed_out: bool,
    end: u64,
}

struct Context {
    running: Option<usize>,
    queue: VecDeque<usize>,
    free_at: u64,
}

/// What the loop does next.
pub(crate) enum Next {
    Run(usize),
    Over,
    Failed(Failure),
}

pub(crate) struct Kernel {
    pub machine: Machine,
    pub random: Random,
    /// Another generator for what the program draws.
    pub seeds: Random,
    pub lines: Lines,
    pub regions: Regions,
    pub threads: Vec<Thread>,
    pub current: usize,
    pub counts: Counts,
    pub digest: u64,
    /// The core of each context.
    pub cores: Vec<u32>,
    /// Per core, those of its group and of its socket.
    pub groups: Vec<u128>,
    pub sockets: Vec<u128>,
    /// Queues of lines.
    pub queues: Vec<VecDeque<usize>>,
    /// Bodies of threads that have not begun.
    pub bodies: Vec<(usize, Box<dyn FnOnce()>)>,
    heap: BinaryHeap<Event>,
    events: u64,
    contexts: Vec<Context>,
    sleepers: HashMap<Place, VecDeque<usize>>,
    alive: usize,
    free_numbers: BTreeSet<usize>,
    numbers: usize,
    failure: Option<Failure>,
}

impl Kernel {
    pub(crate) fn new(machine: &Machine) -> Kernel {
        let cores: Vec<u32> = (0..machine.contexts).map(|at| machine.core_of(at)).collect();
        let many = cores.iter().max().map_or(1, |&last| last as usize + 1);
        let together = |size: u32| {
            let mask = |core: usize| {
                let others =
                    (0..many).filter(|other| other / size as usize == core / size as usize);
                others.fold(0_u128, |mask, other| mask | 1 << other)
            };
            (0..many).map(mask).collect::<Vec<u128>>()
        };
        let contexts =
            cores.iter().map(|_| Context { running: None, queue: VecDeque::new(), free_at: 0 });
        Kernel {
            random: Random::new(machine.seed),
            seeds: Random::new(machine.seed ^ 0x5eed_5eed_5eed_5eed),
            lines: Lines::new(many),
            regions: Regions::new(cores.len()),
            threads: Vec::new(),
            current: 0,
            counts: Counts::default(),
            digest: 0,
            groups: together(machine.cores_per_group),
            sockets: together(machine.cores_per_socket),
            queues: Vec::new(),
            bodies: Vec::new(),
            heap: BinaryHeap::new(),
            events: 0,
            contexts: contexts.collect(),
            sleepers: HashMap::new(),
            alive: 0,
            free_numbers: BTreeSet::new(),
            numbers: 0,
            failure: None,
            cores,
            machine: Machine { limit: machine.limit.min(END_OF_TIME >> 1), ..machine.clone() },
        }
    }

    /// A new thread, which begins at `at` or when it gets a context.
    pub(crate) fn spawn(&mut self, name: &str, at: u64, body: Box<dyn FnOnce()>) -> usize {
        let number = self.free_numbers.pop_first().unwrap_or_else(|| {
            self.numbers += 1;
            self.numbers - 1
        });
        let thread = self.threads.len();
        self.threads.push(Thread {
            name: name.to_owned(),
            number,
            context: thread % self.contexts.len(),
            clock: at,
            wants: Kind::Load,
            locals: Some(Locals::new()),
            handle: Handle::default(),
            about: 0,
            in_region: false,
            has_ended: false,
            cpu: 0,
            runs_since: at,
            ready_at: at,
            sleeps: None,
            sleep_number: 0,
            timed_out: false,
            end: 0,
        });
        self.bodies.push((thread, body));
        self.alive += 1;
        self.place(thread, at);
        thread
    }

    #[inline]
    pub(crate) fn thread(&mut self) -> &mut Thread {
        &mut self.threads[self.current]
    }

    /// Cycles of the current thread that others do not see.
    #[inline]
    pub(crate) fn spend(&mut self, cycles: u64) {
        let thread = self.thread();
        thread.clock = thread.clock.saturating_add(cycles).min(END_OF_TIME);
    }

    /// Cycles, and a share of them that is drawn.
    pub(crate) fn jittered(&mut self, cycles: u64) -> u64 {
        let most = (cycles as f64 * self.machine.work_jitter) as u64;
        cycles.saturating_add(self.random.up_to(most))
    }

    fn push(&mut self, time: u64, what: What) {
        self.events += 1;
        self.heap.push(Reverse((time, self.events, what)));
    }

    pub(crate) fn resume_at(&mut self, thread: usize, time: u64) {
        self.threads[thread].clock = time;
        self.push(time, What::Resume(thread));
    }

    pub(crate) fn arbitrate_at(&mut self, line: usize, time: u64) {
        self.push(time, What::Arbitrate(line));
    }

    /// Whether it is the current thread's turn. If not, it has been put where it waits for it, and has to give way.
    #[inline]
    pub(crate) fn is_its_turn(&mut self) -> bool {
        let (clock, context) =
            (self.threads[self.current].clock, self.threads[self.current].context);
        if !self.contexts[context].queue.is_empty() && self.is_preempted(clock, context) {
            return false;
        }
        let earliest = self.heap.peek().map_or(u64::MAX, |Reverse((time, ..))| *time);
        if earliest >= clock && clock < self.machine.limit {
            return true;
        }
        self.push(clock, What::Resume(self.current));
        false
    }

    #[cold]
    fn is_preempted(&mut self, clock: u64, context: usize) -> bool {
        let ran = clock - self.threads[self.current].runs_since;
        let ready = |&other: &usize| self.threads[other].ready_at <= clock;
        if ran < self.machine.slice || !self.contexts[context].queue.iter().any(ready) {
            return false;
        }
        self.counts.preemptions += 1;
        self.hand_over();
        true
    }

    /// The current thread goes to the end of its context's queue.
    fn hand_over(&mut self) {
        let current = self.current;
        let (clock, context) = (self.threads[current].clock, self.threads[current].context);
        self.threads[current].ready_at = clock;
        self.contexts[context].queue.push_back(current);
        self.leave_context(current);
    }

    /// Gives the context to another thread, if one waits. Whether the thread lost it.
    pub(crate) fn yields(&mut self) -> bool {
        let context = self.threads[self.current].context;
        if self.contexts[context].queue.is_empty() {
            return false;
        }
        self.hand_over();
        true
    }

    /// The thread has no context any more, which goes to the next one.
    fn leave_context(&mut self, thread: usize) {
        if self.threads[thread].in_region {
            self.end_region(thread, Cause::Interrupt);
        }
        let Thread { clock, context, runs_since, .. } = self.threads[thread];
        self.threads[thread].cpu += clock - runs_since;
        self.contexts[context].running = None;
        self.contexts[context].free_at = clock;
        let begins = |&(_, other): &(usize, &usize)| self.threads[*other].ready_at.max(clock);
        let own = self.contexts[context].queue.iter().enumerate().min_by_key(begins);
        let next = match own.map(|(at, _)| at) {
            Some(at) => self.contexts[context].queue.remove(at),
            None => {
                let longest = (0..self.contexts.len()).rev();
                let longest = longest.max_by_key(|&other| self.contexts[other].queue.len());
                longest.and_then(|longest| self.contexts[longest].queue.pop_front())
            }
        };
        if let Some(next) = next {
            self.counts.switches += 1;
            let begins = clock + u64::from(self.machine.switch);
            self.start(next, context, begins.max(self.threads[next].ready_at));
        }
    }

    fn start(&mut self, thread: usize, context: usize, at: u64) {
        self.contexts[context].running = Some(thread);
        self.threads[thread].context = context;
        self.threads[thread].runs_since = at;
        self.resume_at(thread, at);
    }

    /// The thread of a context, or a number that no thread has.
    pub(crate) fn thread_on(&self, context: usize) -> usize {
        self.contexts[context].running.unwrap_or(usize::MAX)
    }

    /// Finds a context for a thread that is ready: its last one, an idle one, or the one with the shortest queue.
    fn place(&mut self, thread: usize, ready_at: u64) {
        let is_idle = |context: &Context| context.running.is_none() && context.queue.is_empty();
        let last = self.threads[thread].context;
        let idle = match is_idle(&self.contexts[last]) {
            true => Some(last),
            false => self.contexts.iter().position(is_idle),
        };
        if let Some(idle) = idle {
            return self.start(thread, idle, ready_at.max(self.contexts[idle].free_at));
        }
        self.threads[thread].ready_at = ready_at;
        let shortest = (0..self.contexts.len()).min_by_key(|&at| self.contexts[at].queue.len());
        self.contexts[shortest.unwrap_or(last)].queue.push_back(thread);
    }

    /// The current thread sleeps until it is woken, or until a moment. It has to give way after this.
    pub(crate) fn sleep(&mut self, place: Place, what: &'static str, until: Option<u64>) {
        self.counts.sleeps += 1;
        self.spend(u64::from(self.machine.sleep_call));
        let current = self.current;
        let thread = self.thread();
        thread.sleeps = Some((place, what));
        thread.sleep_number += 1;
        let (number, clock) = (thread.sleep_number, thread.clock);
        if let Some(until) = until {
            self.push(until.max(clock), What::Timer(current, number));
        }
        if place != Place::Clock {
            self.sleepers.entry(place).or_default().push_back(current);
        }
        self.leave_context(current);
    }

    /// Whether the last sleep of the current thread ended by itself.
    pub(crate) fn has_timed_out(&mut self) -> bool {
        self.thread().timed_out
    }

    /// Wakes the `most` that have slept longest. How many there were.
    pub(crate) fn wake(&mut self, place: Place, most: usize) -> usize {
        let Some(sleepers) = self.sleepers.get_mut(&place) else { return 0 };
        let many = sleepers.len().min(most);
        let woken: Vec<usize> = sleepers.drain(..many).collect();
        if sleepers.is_empty() {
            self.sleepers.remove(&place);
        }
        if many > 0 {
            self.spend(u64::from(self.machine.wake_call));
        }
        let clock = self.thread().clock;
        for thread in woken {
            self.counts.wakes += 1;
            self.wake_up(thread, false, clock);
        }
        many
    }

    fn wake_up(&mut self, thread: usize, timed_out: bool, clock: u64) {
        let latency = self.jittered(u64::from(self.machine.wake_latency));
        self.threads[thread].sleeps = None;
        self.threads[thread].timed_out = timed_out;
        let ready_at = clock.max(self.threads[thread].clock) + latency;
        self.place(thread, ready_at);
    }

    fn time_is_up(&mut self, thread: usize, number: u64, time: u64) {
        let Thread { sleep_number, sleeps, .. } = self.threads[thread];
        let Some((place, _)) = sleeps.filter(|_| sleep_number == number) else { return };
        if let Some(sleepers) = self.sleepers.get_mut(&place) {
            sleepers.retain(|&other| other != thread);
            if sleepers.is_empty() {
                self.sleepers.remove(&place);
            }
        }
        self.wake_up(thread, true, time);
    }

    /// Cycles that the current thread has had a context.
    pub(crate) fn cpu(&mut self) -> u64 {
        let thread = self.thread();
        thread.cpu + thread.clock.saturating_sub(thread.runs_since)
    }

    pub(crate) fn has_ended(&self, thread: usize) -> bool {
        self.threads[thread].has_ended
    }

    /// The current thread ends, and gives its number back.
    pub(crate) fn end(&mut self) {
        let current = self.current;
        self.wake(Place::End(current), usize::MAX);
        self.alive -= 1;
        self.leave_context(current);
        let thread = self.thread();
        thread.has_ended = true;
        thread.end = thread.clock;
        let number = thread.number;
        self.free_numbers.insert(number);
    }

    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// Goes on to the next thread's turn.
    pub(crate) fn next(&mut self) -> Next {
        loop {
            if let Some(failure) = self.failure.take() {
                return Next::Failed(failure);
            }
            let Some(Reverse((time, _, what))) = self.heap.pop() else {
                return if self.alive == 0 { Next::Over } else { Next::Failed(self.deadlock()) };
            };
            if time >= self.machine.limit {
                return Next::Failed(Failure::OutOfTime);
            }
            match what {
                What::Resume(thread) => {
                    self.current = thread;
                    return Next::Run(thread);
                }
                What::Arbitrate(line) => self.arbitrate(line, time),
                What::Timer(thread, number) => self.time_is_up(thread, number, time),
            }
        }
    }

    fn deadlock(&mut self) -> Failure {
        let mut waiting = Vec::new();
        for (at, thread) in self.threads.iter().enumerate() {
            let Some((place, what)) = thread.sleeps else { continue };
            let what = match place {
                Place::Address(address) => {
                    format!("{what} at line {}", self.lines.name_of(address))
                }
                Place::End(other) => format!("the end of thread {other}"),
                Place::Clock => what.to_owned(),
            };
            waiting.push(Waiting { thread: at, name: thread.name.clone(), what });
        }
        Failure::Deadlock(waiting)
    }

    pub(crate) fn record(&self) -> Record {
        let of_thread = |thread: &Thread| ThreadRecord {
            name: thread.name.clone(),
            cpu: thread.cpu,
            end: thread.end,
        };
        Record {
            cycles: self.threads.iter().map(|thread| thread.end).max().unwrap_or(0),
            counts: self.counts,
            threads: self.threads.iter().map(of_thread).collect(),
            digest: self.digest,
        }
    }
}
