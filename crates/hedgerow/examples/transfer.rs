//! Money goes from account to account, by many threads, in transactions that are run again after a conflict.
//!
//! `cargo run -p hedgerow --example transfer`

#![allow(clippy::disallowed_methods)] // A rule for the engine, not for programs that use it.

use hedgerow::{Database, Error, ErrorKind, Keyspace, Options, Result, Transaction};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const ACCOUNTS: u64 = 20;
const EACH: u64 = 1_000;
const THREADS: u64 = 4;
const TRANSFERS: u64 = 2_000;

/// Why no money went.
#[derive(Debug)]
enum Refused {
    /// The account has less.
    Overdrawn,
    /// The database says no.
    Database(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Database(error)
    }
}

fn balance(value: Option<hedgerow::Value>) -> u64 {
    let bytes = value.as_deref().and_then(|value| value.try_into().ok());
    bytes.map_or(0, u64::from_be_bytes)
}

fn transfer(
    transaction: &Transaction,
    accounts: &Keyspace,
    [from, to]: [u64; 2],
    amount: u64,
) -> std::result::Result<(), Refused> {
    let accounts = transaction.keyspace(accounts)?;
    let [from, to] = [from, to].map(u64::to_be_bytes);
    let left = balance(accounts.get(&from)?).checked_sub(amount).ok_or(Refused::Overdrawn)?;
    accounts.put(&from, &left.to_be_bytes())?;
    let more = balance(accounts.get(&to)?) + amount;
    accounts.put(&to, &more.to_be_bytes())?;
    Ok(())
}

/// The sum of all accounts at one moment, while others go on.
fn sum(db: &Database, accounts: &Keyspace) -> Result<u64> {
    let accounts = db.snapshot()?.keyspace(accounts)?;
    accounts.iter().map(|record| record.map(|(_, value)| balance(Some(value)))).sum()
}

fn main() -> Result<()> {
    let db = Options::new().memory_limit_bytes(32 << 20).in_memory()?;
    let accounts = db.keyspace("accounts")?;
    for account in 0..ACCOUNTS {
        accounts.put(&account.to_be_bytes(), &EACH.to_be_bytes())?;
    }
    let given_up = AtomicU64::new(0);
    let overdrawn: u64 = std::thread::scope(|scope| {
        let transfers = |thread: u64| {
            let (db, accounts, given_up) = (&db, &accounts, &given_up);
            move || -> Result<u64> {
                let mut overdrawn = 0;
                for number in 0..TRANSFERS {
                    let from = (number * 7 + thread) % ACCOUNTS;
                    let to = (from + 1 + number % (ACCOUNTS - 1)) % ACCOUNTS;
                    let amount = number % 300;
                    match db
                        .transact(|transaction| transfer(transaction, accounts, [from, to], amount))
                    {
                        Ok(()) => {}
                        Err(Refused::Overdrawn) => overdrawn += 1,
                        // Sixteen retries were not enough: somebody else got on each time.
                        Err(Refused::Database(error)) if error.kind() == ErrorKind::Conflict => {
                            given_up.fetch_add(1, Relaxed);
                        }
                        Err(Refused::Database(error)) => return Err(error),
                    }
                    if number % 100 == 0 {
                        assert_eq!(sum(db, accounts)?, ACCOUNTS * EACH);
                    }
                }
                Ok(overdrawn)
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(transfers(thread))).collect();
        let outcomes = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        outcomes.sum::<Result<u64>>()
    })?;
    assert_eq!(sum(&db, &accounts)?, ACCOUNTS * EACH);
    let given_up = given_up.into_inner();
    let made = THREADS * TRANSFERS - overdrawn - given_up;
    println!("{made} transfers, {overdrawn} overdrawn, {given_up} given up; no coin is lost");
    db.close()
}
