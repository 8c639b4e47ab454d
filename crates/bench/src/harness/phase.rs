//! One phase: its threads, its clock, its checksum.
//!
//! Each thread gets its list of accesses, waits for the others, works, and hands in its sums. The
//! loops differ in nothing but the call that they time.

use super::meters::Meters;
use super::{Engine, Session};
use crate::access::{self, Accesses};
use crate::cell::{CellError, Latency, Operation, Phase, PhaseResult};
use crate::checksum::{Checksum, Spread, Values, glance, sum};
use crate::instructions::under_the_clock;
use crate::keys::Keys;
use hdrhistogram::Histogram;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A phase and what it works on.
pub struct Work<'a> {
    /// What is to be done.
    pub phase: &'a Phase,
    /// All keys of the cell.
    pub keys: &'a Keys,
    /// How many of them have been loaded or inserted.
    pub present: usize,
    /// How many phases have overwritten records, this one included: what it writes says so.
    pub generation: u32,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Lengths of values that differ.
    pub spread: Option<Spread>,
}

/// What a thread did.
#[derive(Default)]
struct Done {
    operations: u64,
    found: u64,
    checksum: Checksum,
    nanoseconds: Option<Histogram<u64>>,
}

impl Work<'_> {
    /// Runs the phase on `engine`. Errors: those of its calls.
    pub fn run<E: Engine>(
        &self,
        engine: &mut E,
        meters: &mut Meters,
    ) -> Result<PhaseResult, CellError> {
        match self.phase.operation {
            Operation::Settle {} => {
                meters.start(engine);
                engine.settle()?;
                let mut result = meters.stop(engine)?;
                result.operations = 1;
                Ok(result)
            }
            Operation::Rest { seconds } => {
                meters.start(engine);
                std::thread::sleep(Duration::from_secs(seconds));
                let mut result = meters.stop(engine)?;
                result.operations = 1;
                Ok(result)
            }
            Operation::ScanAll {} => {
                meters.start(engine);
                let done = scan_all(engine)?;
                self.result(vec![done], meters.stop(engine)?)
            }
            Operation::FetchAdd {} => {
                let before = sum_of_integers(engine)?;
                let result = self.run_accesses(engine, meters)?;
                let added = sum_of_integers(engine)?.wrapping_sub(before);
                if added != result.operations {
                    let words = format!("{} additions have added {added}", result.operations);
                    return Err(CellError::Failed(words));
                }
                Ok(result)
            }
            _ => self.run_accesses(engine, meters),
        }
    }

    fn run_accesses<E: Engine>(
        &self,
        engine: &mut E,
        meters: &mut Meters,
    ) -> Result<PhaseResult, CellError> {
        let accesses = access::draw(self.phase, self.present);
        meters.start(engine);
        let done = self.run_threads(engine, &accesses)?;
        self.result(done.0, PhaseResult { seconds: done.1, ..meters.stop(engine)? })
    }

    /// Lets all threads go at once; what each did, and the seconds from there to the end of the
    /// last.
    fn run_threads<E: Engine>(
        &self,
        engine: &mut E,
        accesses: &[Accesses],
    ) -> Result<(Vec<Done>, f64), CellError> {
        let beside = matches!(self.phase.operation, Operation::OverwriteBesideCheckpoint {});
        let checkpoint = if beside { Some(engine.checkpoint()?) } else { None };
        let sessions = engine.sessions(accesses.len())?;
        let gate = Barrier::new(accesses.len() + usize::from(beside));
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (gate, ended) = (&gate, &ended);
            let checkpoint = checkpoint.map(|checkpoint| {
                scope.spawn(move || {
                    gate.wait();
                    let taken = checkpoint();
                    ended.store(true, Ordering::Release);
                    taken
                })
            });
            let threads: Vec<_> = sessions
                .into_iter()
                .zip(accesses)
                .map(|(mut session, accesses)| {
                    scope.spawn(move || {
                        let done = self.nothing_done();
                        gate.wait();
                        let started = Instant::now();
                        let done = done?;
                        let done =
                            under_the_clock(|| self.work(&mut session, accesses, done, ended));
                        Ok((done?, started, Instant::now()))
                    })
                })
                .collect();
            let mut all = Vec::with_capacity(threads.len());
            let mut span: Option<(Instant, Instant)> = None;
            for thread in threads {
                let outcome = thread.join().map_err(|_| CellError::failed("a thread panicked"))?;
                let (done, started, ended): (Done, Instant, Instant) = outcome?;
                let (first, last) = span.unwrap_or((started, ended));
                span = Some((first.min(started), last.max(ended)));
                all.push(done);
            }
            if let Some(checkpoint) = checkpoint {
                checkpoint.join().map_err(|_| CellError::failed("a checkpoint panicked"))??;
            }
            let seconds = span.map_or(0.0, |(first, last)| (last - first).as_secs_f64());
            Ok((all, seconds))
        })
    }

    /// What a thread hands in, with all memory that it needs.
    fn nothing_done(&self) -> Result<Done, CellError> {
        let mut done = Done::default();
        if self.phase.latency {
            // Three digits, up to a minute.
            let histogram = Histogram::new_with_max(60_000_000_000, 3);
            done.nanoseconds = Some(histogram.map_err(CellError::failed)?);
        }
        Ok(done)
    }

    /// One thread's part.
    fn work(
        &self,
        session: &mut impl Session,
        accesses: &Accesses,
        mut done: Done,
        ended: &AtomicBool,
    ) -> Result<Done, CellError> {
        if self.phase.latency {
            self.work_timed::<true>(session, accesses, &mut done, ended)?;
        } else {
            self.work_timed::<false>(session, accesses, &mut done, ended)?;
        }
        session.finish()?;
        Ok(done)
    }

    fn work_timed<const TIMED: bool>(
        &self,
        session: &mut impl Session,
        accesses: &Accesses,
        done: &mut Done,
        ended: &AtomicBool,
    ) -> Result<(), CellError> {
        let keys = &accesses.keys;
        let mut values = Values::new(self.value_bytes, self.spread);
        let (mut checksum, mut found) = (Checksum::default(), 0_u64);
        let mut add = |value: &[u8]| {
            checksum.add(sum(value));
            found += 1;
        };
        let done = &mut *done;
        let until = match self.phase.seconds.map(Duration::from_secs_f64) {
            _ if self.phase.operation == (Operation::OverwriteBesideCheckpoint {}) => {
                Until::Told(ended)
            }
            Some(span) => Until::Over(span),
            None => Until::Done,
        };
        match self.phase.operation {
            Operation::Get {} => each::<TIMED, _>(keys.iter(), done, until, |&at| {
                session.get(self.keys.get(at), &mut add)
            })?,
            Operation::GetMany { group } => {
                let mut wanted: Vec<&[u8]> = Vec::with_capacity(group);
                each::<TIMED, _>(keys.chunks(group), done, Until::Done, |numbers| {
                    wanted.clear();
                    wanted.extend(numbers.iter().map(|&at| self.keys.get(at)));
                    session.get_many(&wanted, &mut add)
                })?;
            }
            Operation::Scan { .. } => {
                let scans = keys.iter().zip(&accesses.sizes);
                each::<TIMED, _>(scans, done, Until::Done, |(&at, &records)| {
                    session.scan(self.keys.get(at), records as usize, |key, value| {
                        checksum.add(glance(key, value));
                        found += 1;
                    })
                })?;
            }
            Operation::ScanInsert { .. } => {
                let steps = keys.iter().zip(&accesses.sizes);
                each::<TIMED, _>(steps, done, Until::Done, |(&at, &records)| {
                    let key = self.keys.get(at);
                    if records == 0 {
                        return session.put(key, values.of(at, 0));
                    }
                    session.scan(key, records as usize, |key, value| {
                        checksum.add(glance(key, value));
                        found += 1;
                    })
                })?;
            }
            Operation::InsertLast {} => each::<TIMED, _>(keys.iter(), done, until, |&at| {
                session.put(self.keys.get(at), values.of(at, 0))
            })?,
            Operation::Overwrite {} | Operation::OverwriteBesideCheckpoint {} => {
                each::<TIMED, _>(keys.iter(), done, until, |&at| {
                    session.put(self.keys.get(at), values.of(at, self.generation))
                })?
            }
            Operation::FetchAdd {} => each::<TIMED, _>(keys.iter(), done, until, |&at| {
                session.fetch_add(self.keys.get(at), 1).map(|before| add(&before.to_be_bytes()))
            })?,
            Operation::Delete { .. } => {
                each::<TIMED, _>(keys.iter(), done, until, |&at| {
                    session.remove(self.keys.get(at))
                })?;
            }
            Operation::Mixed { .. }
            | Operation::GetInsert { .. }
            | Operation::ReadModifyWrite { .. } => {
                let generation = if self.phase.operation.inserts() { 0 } else { self.generation };
                let reads_first = matches!(self.phase.operation, Operation::ReadModifyWrite { .. });
                let steps = keys.iter().zip(&accesses.sizes);
                each::<TIMED, _>(steps, done, Until::Done, |(&at, &is_get)| {
                    let key = self.keys.get(at);
                    if is_get == 1 || reads_first {
                        session.get(key, &mut add)?;
                    }
                    if is_get == 1 {
                        return Ok(());
                    }
                    session.put(key, values.of(at, generation))
                })?;
            }
            Operation::ScanAll {} | Operation::Settle {} | Operation::Rest { .. } => {}
        }
        // One record is one operation, also where a call has several; what goes on for some time counts itself.
        if matches!(until, Until::Done) {
            done.operations = keys.len() as u64;
        }
        done.found = found;
        done.checksum = checksum;
        Ok(())
    }

    fn result(&self, all: Vec<Done>, mut result: PhaseResult) -> Result<PhaseResult, CellError> {
        let mut checksum = Checksum::default();
        let mut found = 0;
        let mut nanoseconds: Option<Histogram<u64>> = None;
        for done in all {
            result.operations += done.operations;
            checksum.add(done.checksum.0);
            found += done.found;
            match (&mut nanoseconds, done.nanoseconds) {
                (Some(sum), Some(part)) => sum.add(part).map_err(CellError::failed)?,
                (sum @ None, part) => *sum = part,
                (Some(_), None) => {}
            }
        }
        // With several threads it is a matter of luck which value a get sees that is being
        // overwritten, and which records a scan sees that are being inserted.
        result.checksum = match self.phase.operation {
            Operation::Mixed { .. } | Operation::ReadModifyWrite { .. }
                if self.phase.threads > 1 =>
            {
                Some(Checksum(found))
            }
            Operation::ScanInsert { .. } if self.phase.threads > 1 => None,
            // How many there were is a matter of speed.
            Operation::OverwriteBesideCheckpoint {} => None,
            _ if self.phase.seconds.is_some() => None,
            _ => Some(checksum),
        };
        result.found = Some(found);
        result.latency = nanoseconds.as_ref().map(latency);
        Ok(result)
    }
}

/// When a thread has done its work.
#[derive(Clone, Copy)]
enum Until<'a> {
    /// When it has done each item once.
    Done,
    /// When the time is over; it begins again until then.
    Over(Duration),
    /// When somebody says so; it begins again until then.
    Told(&'a AtomicBool),
}

/// Calls `work` for each item, and times each call if that was asked for; over and over if there is more to wait
/// for, and counts the calls then.
#[inline(always)]
fn each<const TIMED: bool, T>(
    items: impl Iterator<Item = T> + Clone,
    done: &mut Done,
    until: Until<'_>,
    mut work: impl FnMut(T) -> Result<(), CellError>,
) -> Result<(), CellError> {
    if !TIMED {
        return items.into_iter().try_for_each(work);
    }
    let mut timed = |item: T, done: &mut Done| {
        let started = Instant::now();
        work(item)?;
        let ended = Instant::now();
        if let Some(histogram) = &mut done.nanoseconds {
            histogram.saturating_record((ended - started).as_nanos() as u64);
        }
        Ok::<_, CellError>(ended)
    };
    let begun = Instant::now();
    let is_over = |now: Instant| match until {
        Until::Done => false,
        Until::Over(span) => now >= begun + span,
        Until::Told(ended) => ended.load(Ordering::Acquire),
    };
    if matches!(until, Until::Done) {
        return items.into_iter().try_for_each(|item| timed(item, done).map(drop));
    }
    loop {
        for item in items.clone() {
            done.operations += 1;
            if is_over(timed(item, done)?) {
                return Ok(());
            }
        }
    }
}

/// Reads everything in order.
fn scan_all<E: Engine>(engine: &mut E) -> Result<Done, CellError> {
    let mut done = Done::default();
    let mut session = super::one_session(engine)?;
    session.scan(&[], usize::MAX, |key, value| {
        done.checksum.add(sum(key));
        done.checksum.add(sum(value));
        done.found += 1;
    })?;
    session.finish()?;
    done.operations = done.found;
    Ok(done)
}

/// The sum of the values, as integers of 8 bytes.
fn sum_of_integers<E: Engine>(engine: &mut E) -> Result<u64, CellError> {
    let mut sum = 0_u64;
    super::one_session(engine)?.scan(&[], usize::MAX, |_, value| {
        let integer = value.try_into().map_or(0, u64::from_be_bytes);
        sum = sum.wrapping_add(integer);
    })?;
    Ok(sum)
}

/// Counts the records, by reading them.
pub fn count<E: Engine>(engine: &mut E) -> Result<u64, CellError> {
    scan_all(engine).map(|done| done.found)
}

/// The steps of [`Latency::histogram`].
const STEP: f64 = 13.0 / 12.0;

/// What single calls took.
pub fn latency(nanoseconds: &Histogram<u64>) -> Latency {
    let us = |share: f64| nanoseconds.value_at_quantile(share) as f64 / 1e3;
    let steps = nanoseconds.iter_log(100, STEP);
    let steps = steps.filter(|step| step.count_since_last_iteration() > 0);
    Latency {
        p50_us: us(0.5),
        p99_us: us(0.99),
        p999_us: us(0.999),
        max_us: nanoseconds.max() as f64 / 1e3,
        histogram: steps
            .map(|step| (step.value_iterated_to() as f64 / 1e3, step.count_since_last_iteration()))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_has_every_call_and_its_quantiles() {
        let mut calls = Histogram::new_with_max(60_000_000_000, 3).unwrap();
        for nanoseconds in (1..=100_000_u64).map(|at| at * 10) {
            calls.record(nanoseconds).unwrap();
        }
        let latency = latency(&calls);
        assert!((latency.p50_us - 500.0).abs() < 1.0, "{latency:?}");
        assert!((latency.max_us - 1000.0).abs() < 1.0, "{latency:?}");
        let counts: Vec<u64> = latency.histogram.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts.iter().sum::<u64>(), 100_000);
        assert!(latency.histogram.is_sorted_by(|a, b| a.0 < b.0), "{latency:?}");
        assert!(latency.histogram.len() < 130, "{}", latency.histogram.len());
        // What is at most half as long is half of them, but for a step.
        let below = |us: f64| {
            let steps = latency.histogram.iter().filter(|(end, _)| *end <= us);
            steps.map(|(_, count)| count).sum::<u64>() as f64 / 1e5
        };
        assert!(below(500.0) <= 0.501 && below(500.0 * STEP * 1.01) >= 0.5, "{latency:?}");
    }
}
