//! A queue of jobs: workers take the oldest one, and put what has come of it elsewhere, in one transaction.
//!
//! `cargo run -p hedgerow --example queue`

#![allow(clippy::disallowed_methods)] // A rule for the engine, not for programs that use it.

use hedgerow::{Options, Result};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const JOBS: u64 = 1_000;

fn main() -> Result<()> {
    let db = Options::new().memory_limit_bytes(32 << 20).in_memory()?;
    let (jobs, done) = (db.keyspace("jobs")?, db.keyspace("done")?);
    let (finished, crashes) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| -> Result<()> {
        // Two put jobs, each behind all others.
        let producers: Vec<_> = (0..2)
            .map(|producer| {
                let (db, jobs) = (&db, &jobs);
                scope.spawn(move || -> Result<()> {
                    for number in (producer..JOBS).step_by(2) {
                        let how = hedgerow::TransactOptions::new().retries(1_000);
                        db.transact_with(&how, |transaction| -> Result<()> {
                            let jobs = transaction.keyspace(jobs)?;
                            let last = jobs.last()?.map(|(place, _)| place);
                            let last = last.and_then(|place| place[..].try_into().ok());
                            let place = last.map_or(0, u64::from_be_bytes) + 1;
                            jobs.put(&place.to_be_bytes(), &number.to_be_bytes())
                        })?;
                    }
                    Ok(())
                })
            })
            .collect();
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (db, jobs, done) = (&db, &jobs, &done);
                let (finished, crashes) = (&finished, &crashes);
                scope.spawn(move || -> Result<()> {
                    while finished.load(Relaxed) < JOBS {
                        let how = hedgerow::TransactOptions::new().retries(1_000);
                        let taken =
                            db.transact_with(&how, |transaction| -> Result<Option<u64>> {
                                let Some((_, job)) = transaction.keyspace(jobs)?.pop_first()?
                                else {
                                    return Ok(None);
                                };
                                let number =
                                    u64::from_be_bytes(job[..].try_into().unwrap_or_default());
                                transaction
                                    .keyspace(done)?
                                    .put(&job, &(number * number).to_be_bytes())?;
                                Ok(Some(number))
                            })?;
                        finished.fetch_add(u64::from(taken.is_some()), Relaxed);
                        match taken {
                            // A worker that goes down in the middle: its job is still there.
                            Some(number) if number.is_multiple_of(100) => {
                                let transaction = db.transaction(hedgerow::Isolation::Serializable);
                                transaction.keyspace(jobs)?.pop_first()?;
                                drop(transaction);
                                crashes.fetch_add(1, Relaxed);
                            }
                            Some(_) => {}
                            None => std::thread::yield_now(),
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let mut threads = producers.into_iter().chain(workers);
        threads.try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    assert_eq!((jobs.count()?, done.count()?), (0, JOBS));
    println!(
        "{JOBS} jobs done, each once; {} were dropped and done by others",
        crashes.into_inner()
    );
    db.close()
}
