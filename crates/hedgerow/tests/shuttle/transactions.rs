//! Transactions and snapshots in random interleavings: what they were told is as their isolation says.
//!
//! Beside them are changes without a transaction, checkpoints that take snapshots over, and a keyspace that is dropped, made anew and loaded. The pool is
//! the smallest one, so that old versions are few, and pages are evicted.

use crate::log::logged;
use crate::{assert_sound, check, image_of, load, options, path};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Error, ErrorKind, Isolation, Keyspace, Records, TransactionKeyspace};
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::thread::{spawn_named, yield_now};
use hedgerow_testing::SimDisk;
use hedgerow_testing::isolation::{History, Level, Open, Outcome, Over, Recorder, Step, Token};
use hedgerow_testing::linear::Clock;
use hedgerow_testing::sim::SimState;
use shuttle::rand::{Rng, RngCore, thread_rng};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// In several leaves of 512 bytes.
const KEYS: u64 = 24;
const THREADS: u32 = 3;
const TRANSACTIONS: u64 = 5;
/// A thread that no client is, whose are the values before.
const BEFORE: u64 = 1 << 40;
/// Records in another keyspace, for more pages than there are frames.
const OTHERS: u64 = 300;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn number(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().unwrap())
}

fn value(token: Token, more: u64) -> Vec<u8> {
    let mut value = token.bits().to_be_bytes().to_vec();
    value.resize(30 + more as usize, 7);
    value
}

fn token(value: &[u8]) -> Token {
    Token::from_bits(u64::from_be_bytes(value[..8].try_into().unwrap()))
}

fn before() -> BTreeMap<u64, Token> {
    (0..KEYS).filter(|n| n % 3 > 0).map(|n| (n, Token::new(BEFORE + n, 0))).collect()
}

/// The disk of a closed store with the records of [`before`], and others.
fn image() -> &'static SimState {
    static IMAGE: OnceLock<SimState> = OnceLock::new();
    IMAGE.get_or_init(|| {
        image_of(options(), |db| {
            load(db, OTHERS);
            let keyspace = db.keyspace("t").unwrap();
            for (n, token) in before() {
                keyspace.put(&key(n), &value(token, 20)).unwrap();
            }
            db.keyspace("gone").unwrap().put(b"x", b"y").unwrap();
        })
    })
}

struct Client {
    db: Database,
    keyspace: Keyspace,
    recorder: Recorder,
    random: SplitMix64,
    isolation: Isolation,
    conflicts: u64,
}

impl Client {
    /// What a range has, as a step.
    fn look(
        &mut self,
        open: &mut Open,
        of: &impl Records,
        (low, high): (u64, u64),
    ) -> Result<Vec<u64>, Error> {
        let range = of.range(key(low)..=key(high));
        let records: Result<Vec<_>, _> = match self.random.below(2) {
            0 => range.collect(),
            _ => range.rev().collect(),
        };
        let mut found: Vec<_> =
            records?.iter().map(|(key, value)| (number(key), token(value))).collect();
        found.sort_unstable();
        let numbers = found.iter().map(|(number, _)| *number).collect();
        open.step(Step::Range { low, high, found });
        Ok(numbers)
    }

    fn bounds(&mut self) -> (u64, u64) {
        let low = self.random.below(KEYS);
        (low, low + self.random.below(KEYS - low))
    }

    fn step(&mut self, open: &mut Open, within: &TransactionKeyspace) -> Result<(), Error> {
        let n = self.random.below(KEYS);
        match self.random.below(9) {
            0..2 => {
                let found = within.get(&key(n))?.map(|value| token(&value));
                open.step(Step::Read { key: n, found });
            }
            2 => {
                let found = within.get_for_update(&key(n))?.map(|value| token(&value));
                open.step(Step::Read { key: n, found });
            }
            3 => {
                let bounds = self.bounds();
                self.look(open, within, bounds)?;
            }
            4 => {
                let low = n.min(KEYS - 4);
                let found = self.look(open, within, (low, low + 3))?;
                let removed = within.remove_range(key(low)..=key(low + 3))?;
                assert_eq!(removed, found.len() as u64);
                for key in found {
                    open.step(Step::Remove { key, over: Over::Unknown });
                }
            }
            5 => {
                within.remove(&key(n))?;
                open.step(Step::Remove { key: n, over: Over::Unknown });
            }
            _ => {
                let token = open.token();
                within.put(&key(n), &value(token, self.random.below(60)))?;
                open.step(Step::Put { key: n, token, over: Over::Unknown });
            }
        }
        Ok(())
    }

    fn transaction(&mut self) {
        let mut open = self.recorder.begin();
        let transaction = self.db.transaction(self.isolation);
        let within = transaction.keyspace(&self.keyspace).unwrap();
        let work = (0..=self.random.below(4)).try_for_each(|_| self.step(&mut open, &within));
        let outcome = match work.and_then(|()| transaction.commit()) {
            Ok(_) => Outcome::Committed,
            Err(error) => {
                match error.kind() {
                    ErrorKind::Conflict => self.conflicts += 1,
                    ErrorKind::SnapshotTooOld | ErrorKind::TransactionTooLarge { .. } => {}
                    _ => panic!("{error}"),
                }
                Outcome::Aborted
            }
        };
        self.recorder.end(open, outcome);
    }

    /// A snapshot is a transaction that only reads; it may be looked at twice.
    fn snapshot(&mut self) {
        let mut open = self.recorder.begin();
        let looked = self.db.snapshot().and_then(|snapshot| {
            let seen = snapshot.keyspace(&self.keyspace)?;
            self.look(&mut open, &seen, (0, KEYS - 1))?;
            yield_now();
            let bounds = self.bounds();
            self.look(&mut open, &seen, bounds).map(drop)
        });
        let outcome = match looked {
            Ok(()) => Outcome::Committed,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::SnapshotTooOld, "{error}");
                Outcome::Aborted
            }
        };
        self.recorder.end(open, outcome);
    }

    fn plain(&mut self) {
        let mut open = self.recorder.begin();
        let n = self.random.below(KEYS);
        match self.random.below(3) {
            0 => {
                let found = self.keyspace.get(&key(n)).unwrap().map(|value| token(&value));
                open.step(Step::Read { key: n, found });
            }
            1 => {
                self.keyspace.remove(&key(n)).unwrap();
                open.step(Step::Remove { key: n, over: Over::Unknown });
            }
            _ => {
                let token = open.token();
                let value = value(token, self.random.below(60));
                self.keyspace.put(&key(n), &value).unwrap();
                open.step(Step::Put { key: n, token, over: Over::Unknown });
            }
        }
        self.recorder.end(open, Outcome::Committed);
    }

    fn work(mut self) -> (Recorder, u64) {
        for _ in 0..TRANSACTIONS {
            match self.random.below(6) {
                0 => self.plain(),
                1 => self.snapshot(),
                _ => self.transaction(),
            }
        }
        (self.recorder, self.conflicts)
    }
}

/// What goes on beside: nobody's transaction reads or changes any of it.
fn meanwhile(db: &Database, random: &mut SplitMix64) {
    for _ in 0..2 {
        match random.below(3) {
            0 => db.checkpoint().unwrap(),
            1 => {
                db.drop_keyspace("gone").unwrap();
                let made = db.keyspace("gone").unwrap();
                let records = (0..20_u64).map(|n| (key(n), [7; 40]));
                made.bulk_load(records, 90).unwrap();
            }
            _ => {
                let others = db.keyspace("k").unwrap();
                let snapshot = db.snapshot().unwrap();
                let seen = snapshot.keyspace(&others).and_then(|seen| seen.count());
                match seen {
                    Ok(seen) => assert_eq!(seen, OTHERS),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::SnapshotTooOld, "{error}"),
                }
            }
        }
    }
}

/// Histories of one isolation.
fn histories(isolation: Isolation, level: Level, met: &'static AtomicU64) {
    image();
    check(move || {
        let options = if thread_rng().gen_bool(0.5) { logged() } else { options() };
        let disk = SimDisk::with_state(image().clone(), thread_rng().next_u64());
        let db = options.on_disk(&disk, path(), OpenHow::Existing).unwrap();
        let clock = Clock::default();
        let running: Vec<_> = (0..THREADS)
            .map(|thread| {
                let client = Client {
                    db: db.clone(),
                    keyspace: db.keyspace("t").unwrap(),
                    recorder: Recorder::new(thread, &clock),
                    random: SplitMix64::new(thread_rng().next_u64()),
                    isolation,
                    conflicts: 0,
                };
                spawn_named(&format!("client {thread}"), move || client.work()).unwrap()
            })
            .collect();
        meanwhile(&db, &mut SplitMix64::new(thread_rng().next_u64()));
        let (mut transactions, mut conflicts) = (Vec::new(), 0);
        for client in running {
            let (mut recorder, of_client) = client.join().unwrap();
            transactions.extend(recorder.take());
            conflicts += of_client;
        }
        let history = History { before: before(), transactions };
        history.check(level).unwrap_or_else(|violation| panic!("{violation}"));
        met.fetch_add(conflicts, Ordering::Relaxed);
        assert_sound(&db);
        db.close().unwrap();
    });
    let met = met.load(Ordering::Relaxed);
    println!("{met} conflicts");
    assert!(met > 0, "the schedules are too few to tell anything");
}

#[test]
fn transactions_are_strictly_serializable() {
    static MET: AtomicU64 = AtomicU64::new(0);
    histories(Isolation::Serializable, Level::StrictSerializable, &MET);
}

#[test]
fn transactions_with_snapshot_isolation_read_one_moment_and_lose_no_update() {
    static MET: AtomicU64 = AtomicU64::new(0);
    histories(Isolation::Snapshot, Level::StrongSnapshotIsolation, &MET);
}
