//! Handles to a keyspace that somebody drops meanwhile: each answer is the keyspace's as it was, or says that it was dropped.
//!
//! Keys have the prefixes of a few tenants, so that a leaf compares only what is behind its tenant: whoever came to the leaf of another
//! one would find a record there.
#![allow(clippy::disallowed_methods, reason = "tests use threads")]

use crate::common::{Dice, assert_sound, effort, path, seed};
use hedgerow::internals::store::OpenHow;
use hedgerow::{CompactBudget, Database, ErrorKind, Keyspace, Options, Result};
use hedgerow_testing::{SimDisk, count};
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

const TENANTS: u32 = 6;
const IDS: u32 = 6_000;

fn key(tenant: u32, id: u32) -> Vec<u8> {
    [tenant.to_be_bytes(), id.to_be_bytes()].concat()
}

/// As long for all, so that a record of another tenant would do in every other way.
fn value(tenant: u32, id: u32) -> Vec<u8> {
    format!("{tenant:8} {id:8}").into_bytes()
}

fn fill(of: &Keyspace) {
    for tenant in 0..TENANTS {
        for id in 0..IDS {
            of.put(&key(tenant, id), &value(tenant, id)).unwrap();
        }
    }
}

/// True if the keyspace was dropped; every other error is wrong.
fn is_over<T>(outcome: Result<T>, good: impl FnOnce(T)) -> bool {
    match outcome {
        Ok(found) => {
            good(found);
            false
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::KeyspaceDropped, "{error}");
            true
        }
    }
}

/// What one client does until the keyspace has gone.
fn ask(db: &Database, wrens: &Keyspace, client: usize, dice: &mut Dice) -> bool {
    let (tenant, id) = (dice.below(u64::from(TENANTS)) as u32, dice.below(u64::from(IDS)) as u32);
    let (key, own) = (key(tenant, id), value(tenant, id));
    match client {
        0 => is_over(wrens.get(&key), |found| assert_eq!(found.as_deref(), Some(&own[..]))),
        1 => {
            let swapped = wrens.compare_and_swap(&key, Some(&own), Some(&own));
            is_over(swapped, |swap| assert!(swap.is_swapped(), "{tenant} {id}: {swap:?}"))
        }
        2 => {
            let whole = wrens.iter().try_fold(0, |count, record| record.map(|_| count + 1));
            is_over(whole, |count| assert_eq!(count, TENANTS * IDS))
        }
        3 => {
            let back = wrens.iter().rev().take(2_000).try_for_each(|record| record.map(drop));
            is_over(back, |()| ())
        }
        4 => {
            let reads_and_writes = db.transact(|transaction| -> Result<_> {
                let found = transaction.keyspace(wrens)?.get(&key)?;
                let copies = db.keyspace("copies")?;
                transaction.keyspace(&copies)?.put(&key, &[u8::from(found.is_some())])?;
                Ok(found)
            });
            is_over(reads_and_writes, |found| assert_eq!(found.as_deref(), Some(&own[..])))
        }
        _ => {
            is_over(wrens.last(), |found| assert!(found.is_some()))
                || is_over(
                    wrens.compact(&CompactBudget::unlimited(), |_| ControlFlow::Continue(())),
                    |_| (),
                )
        }
    }
}

#[test]
fn whoever_uses_a_keyspace_beside_its_drop_finds_its_own_records_or_the_drop() {
    let seed = seed(391);
    let mut asked = 0;
    for round in 0..4 * effort() {
        let options = Options::new().memory_limit_bytes(64 << 20).page_bytes(512);
        let db = match round % 2 {
            0 => options.in_memory().unwrap(),
            _ => options.on_disk(&SimDisk::new(round), path(), OpenHow::New).unwrap(),
        };
        let wrens = db.keyspace("wrens").unwrap();
        db.keyspace("copies").unwrap();
        fill(&wrens);
        let begins = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..6)
                .map(|client| {
                    let (db, wrens, begins) = (&db, &wrens, &begins);
                    scope.spawn(move || {
                        let mut dice = Dice(seed + round * 10 + client as u64);
                        let mut calls = 0;
                        while !ask(db, wrens, client, &mut dice) {
                            calls += 1;
                            begins.store(true, SeqCst);
                        }
                        calls
                    })
                })
                .collect();
            while !begins.load(SeqCst) {
                std::thread::yield_now();
            }
            assert!(db.drop_keyspace("wrens").unwrap());
            asked += clients.into_iter().map(|client| client.join().unwrap()).sum::<u64>();
        });
        let copies = db.keyspace("copies").unwrap();
        assert!(copies.iter().all(|record| *record.unwrap().1 == [1]), "a key was missed");
        assert_sound(&db, "the keyspace has gone");
    }
    count(asked, "calls beside a drop");
}
