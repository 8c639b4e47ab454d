//! The anomalies that isolation levels are told apart by, one test each: whether two transactions that run in that order may both commit, and what they see.

use hedgerow::{
    Database, Error, ErrorKind, Isolation, Keyspace, Options, Transaction, TransactionKeyspace,
    WriteBatch,
};

pub fn memory() -> (Database, Keyspace) {
    let db = Options::new().page_bytes(4096).memory_limit_bytes(8 << 20).in_memory().unwrap();
    let keyspace = db.keyspace("k").unwrap();
    for name in [b"x", b"y"] {
        keyspace.put(name, b"0").unwrap();
    }
    (db, keyspace)
}

pub fn kind<T: std::fmt::Debug>(outcome: Result<T, Error>) -> ErrorKind {
    outcome.unwrap_err().kind()
}

/// Names of records: short, and with long keys of one head.
const NAMES: [[&[u8]; 2]; 2] = [[b"x", b"y"], [&LONG[0], &LONG[1]]];
const LONG: [[u8; 2000]; 2] = [named(b'x'), named(b'y')];

const fn named(name: u8) -> [u8; 2000] {
    let mut key = [b'k'; 2000];
    key[1999] = name;
    key
}

pub const BOTH: [Isolation; 2] = [Isolation::Serializable, Isolation::Snapshot];

/// [`memory`] with long keys beside the short ones.
fn with_long() -> (Database, Keyspace) {
    let (db, keyspace) = memory();
    for name in NAMES[1] {
        keyspace.put(name, b"0").unwrap();
    }
    (db, keyspace)
}

/// Each isolation with each pair of names.
fn each() -> impl Iterator<Item = (Isolation, [&'static [u8]; 2])> {
    BOTH.into_iter().flat_map(|isolation| NAMES.map(|names| (isolation, names)))
}

/// Two transactions, each with its keyspace.
fn two(
    db: &Database,
    keyspace: &Keyspace,
    isolation: Isolation,
) -> [(Transaction, TransactionKeyspace); 2] {
    [0, 1].map(|_| {
        let transaction = db.transaction(isolation);
        let handle = transaction.keyspace(keyspace).unwrap();
        (transaction, handle)
    })
}

pub fn is(found: Option<hedgerow::Value>, expected: &[u8]) -> bool {
    found.as_deref() == Some(expected)
}

/// G0, G1a, G1b, G1c: nobody sees what is not committed, aborted or written over.
#[test]
fn g0_g1_nothing_is_seen_before_its_commit() {
    for isolation in BOTH {
        let (db, keyspace) = memory();
        let [(a, in_a), (b, in_b)] = two(&db, &keyspace, isolation);
        in_a.put(b"x", b"a1").unwrap();
        in_b.put(b"y", b"b1").unwrap();
        in_a.put(b"x", b"a2").unwrap();
        assert!(is(in_b.get(b"x").unwrap(), b"0") && is(keyspace.get(b"x").unwrap(), b"0"));
        assert!(is(in_a.get(b"x").unwrap(), b"a2") && is(in_a.get(b"y").unwrap(), b"0"));
        a.abort();
        assert!(is(keyspace.get(b"x").unwrap(), b"0"));
        assert!(is(in_b.get(b"x").unwrap(), b"0"));
        b.commit().unwrap();
        assert!(is(keyspace.get(b"y").unwrap(), b"b1"));
    }
}

/// OTV, and half of a batch: whoever has seen one change of a commit sees the others.
#[test]
fn otv_whoever_has_seen_a_part_of_a_commit_sees_all_of_it() {
    for isolation in BOTH {
        let (db, keyspace) = memory();
        let [(a, in_a), (b, in_b)] = two(&db, &keyspace, isolation);
        in_a.put(b"x", b"a").unwrap();
        in_a.put(b"y", b"a").unwrap();
        a.commit().unwrap();
        assert!(is(in_b.get(b"x").unwrap(), b"a"));
        keyspace.put(b"y", b"later").unwrap();
        assert!(is(in_b.get(b"y").unwrap(), b"a"));
        b.abort();
    }
}

/// PMP: a range is read twice, and somebody puts a record into it in between.
#[test]
fn pmp_a_range_that_is_read_twice_is_the_same() {
    for isolation in BOTH {
        let (db, keyspace) = memory();
        let [(a, in_a), _] = two(&db, &keyspace, isolation);
        assert_eq!(in_a.count().unwrap(), 2);
        keyspace.put(b"xx", b"new").unwrap();
        keyspace.remove(b"y").unwrap();
        let keys: Vec<_> = in_a.iter().map(|record| record.unwrap().0.to_vec()).collect();
        assert_eq!(keys, [b"x", b"y"]);
        let keys: Vec<_> = in_a.iter().rev().map(|record| record.unwrap().0.to_vec()).collect();
        assert_eq!(keys, [b"y", b"x"]);
        a.commit().unwrap();
    }
}

/// P4: of two that read a record and write it one fails.
#[test]
fn p4_no_update_is_lost() {
    for (isolation, [x, _]) in each() {
        let (db, keyspace) = with_long();
        let [(a, in_a), (b, in_b)] = two(&db, &keyspace, isolation);
        assert!(is(in_a.get(x).unwrap(), b"0") && is(in_b.get(x).unwrap(), b"0"));
        in_a.put(x, b"a").unwrap();
        in_b.put(x, b"b").unwrap();
        a.commit().unwrap();
        let error = b.commit().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert_eq!(error.conflict(), Some(("k", x)));
        assert!(!format!("{error} {error:?}").contains("x\""), "keys are shown to nobody");
        assert!(is(keyspace.get(x).unwrap(), b"a"));
    }
}

/// G-single: reads are of one moment. And by a blind write of who has read something older.
#[test]
fn g_single_reads_are_of_one_moment() {
    for (isolation, [x, y]) in each() {
        let (db, keyspace) = with_long();
        let [(a, in_a), _] = two(&db, &keyspace, isolation);
        assert!(is(in_a.get(x).unwrap(), b"0"));
        let mut batch = WriteBatch::new();
        batch.put(&keyspace, x, b"1").unwrap();
        batch.put(&keyspace, y, b"1").unwrap();
        db.write(&batch).unwrap();
        assert!(is(in_a.get(y).unwrap(), b"0"));
        // A record that it has not read, and another one has changed.
        in_a.put(y, b"a").unwrap();
        assert_eq!(kind(a.commit()), ErrorKind::Conflict);
        assert!(is(keyspace.get(y).unwrap(), b"1"));
    }
}

/// G2-item: write skew, which snapshot isolation allows unless it is read for update.
#[test]
fn g2_item_write_skew_is_for_snapshot_isolation_alone() {
    let looks = [
        (Isolation::Serializable, false),
        (Isolation::Snapshot, false),
        (Isolation::Snapshot, true),
    ];
    for ((isolation, for_update), names) in
        looks.into_iter().flat_map(|look| NAMES.map(|names| (look, names)))
    {
        let (db, keyspace) = with_long();
        let [(a, in_a), (b, in_b)] = two(&db, &keyspace, isolation);
        for handle in [&in_a, &in_b] {
            for name in names {
                let found = if for_update { handle.get_for_update(name) } else { handle.get(name) };
                assert!(is(found.unwrap(), b"0"));
            }
        }
        in_a.put(names[0], b"a").unwrap();
        in_b.put(names[1], b"b").unwrap();
        a.commit().unwrap();
        let is_allowed = isolation == Isolation::Snapshot && !for_update;
        assert_eq!(b.commit().is_ok(), is_allowed, "{isolation:?}, {for_update}");
    }
}

/// G2: phantoms. Inside of a range, at either end of it, in an empty one, and behind the last record.
#[test]
fn g2_phantoms_at_every_place_of_a_range_are_conflicts() {
    type Name = fn(&[u8]) -> Vec<u8>;
    type Look = fn(&TransactionKeyspace, Name) -> u64;
    let looks: [(&str, Look); 7] = [
        ("all", |handle, _| handle.count().unwrap()),
        ("a range", |handle, at| handle.range(at(b"b")..=at(b"m")).count() as u64),
        ("a range, backwards", |handle, at| handle.range(at(b"b")..=at(b"m")).rev().count() as u64),
        ("an empty range", |handle, at| handle.range(at(b"c")..at(b"d")).count() as u64),
        ("behind the last", |handle, at| handle.range(at(b"n")..).count() as u64),
        ("a key that is not there", |handle, at| {
            u64::from(handle.contains_key(&at(b"cc")).unwrap())
        }),
        ("the first", |handle, _| {
            handle.first().unwrap().map_or(0, |record| record.0.len() as u64)
        }),
    ];
    let names: [Name; 2] = [<[u8]>::to_vec, |name| [&LONG[0][..1500], name].concat()];
    // Where a record comes, and which looks that is a phantom of.
    let phantoms: [(&[u8], [bool; 7]); 7] = [
        (b"a", [true, false, false, false, false, false, true]),
        (b"b", [true, true, true, false, false, false, false]),
        (b"cc", [true, true, true, true, false, true, false]),
        (b"d", [true, true, true, false, false, false, false]),
        (b"m", [true, true, true, false, false, false, false]),
        (b"n", [true, false, false, false, true, false, false]),
        (b"z", [true, false, false, false, true, false, false]),
    ];
    for (phantom, is_seen) in phantoms {
        for (at, (name, look)) in looks.iter().enumerate() {
            for (isolation, name_of) in BOTH.into_iter().flat_map(|of| names.map(|name| (of, name)))
            {
                let db = Options::new()
                    .page_bytes(4096)
                    .memory_limit_bytes(8 << 20)
                    .in_memory()
                    .unwrap();
                let keyspace = db.keyspace("k").unwrap();
                for name in [&b"aa"[..], b"e", b"f"] {
                    keyspace.put(&name_of(name), b"0").unwrap();
                }
                let transaction = db.transaction(isolation);
                let handle = transaction.keyspace(&keyspace).unwrap();
                look(&handle, name_of);
                handle.put(&name_of(b"other"), b"1").unwrap();
                keyspace.put(&name_of(phantom), b"new").unwrap();
                let is_conflict = isolation == Isolation::Serializable && is_seen[at];
                // "other" lies behind the last one as well, and is the transaction's own.
                let outcome = transaction.commit();
                assert_eq!(outcome.is_err(), is_conflict, "{name}, {phantom:?}, {isolation:?}");
            }
        }
    }
}

/// G2: what a range had, and has no more.
#[test]
fn g2_a_record_that_goes_from_a_range_is_a_conflict() {
    for (isolation, is_conflict) in [(Isolation::Serializable, true), (Isolation::Snapshot, false)]
    {
        for again in [false, true] {
            let (db, keyspace) = memory();
            let [(a, in_a), _] = two(&db, &keyspace, isolation);
            assert_eq!(in_a.range(&b"x"[..]..&b"xx"[..]).count(), 1);
            in_a.put(b"y", b"a").unwrap();
            keyspace.remove(b"x").unwrap();
            if again {
                // As it was: nobody can tell.
                keyspace.put(b"x", b"0").unwrap();
            }
            assert_eq!(a.commit().is_err(), is_conflict && !again, "{isolation:?}");
        }
    }
}

/// A long fork, and the anomaly of the read-only transaction: those who only read see one order of all commits.
#[test]
fn long_fork_and_read_only_anomaly_readers_see_one_order() {
    for isolation in BOTH {
        let (db, keyspace) = memory();
        let [(a, in_a), (b, in_b)] = two(&db, &keyspace, isolation);
        in_a.put(b"x", b"a").unwrap();
        in_b.put(b"y", b"b").unwrap();
        a.commit().unwrap();
        let [(one, in_one), (other, in_other)] = two(&db, &keyspace, isolation);
        assert!(is(in_one.get(b"x").unwrap(), b"a"));
        b.commit().unwrap();
        assert!(is(in_one.get(b"y").unwrap(), b"0"));
        // The later one sees both.
        assert!(is(in_other.get(b"y").unwrap(), b"b") && is(in_other.get(b"x").unwrap(), b"a"));
        one.commit().unwrap();
        other.commit().unwrap();
    }
    // Read-only anomaly (Fekete, O'Neil, O'Neil 2004): T2 reads x and y and writes x; T1 writes y; T3 reads both in between.
    for isolation in BOTH {
        let (db, keyspace) = memory();
        let [(t2, in_t2), (t1, in_t1)] = two(&db, &keyspace, isolation);
        assert!(is(in_t2.get(b"x").unwrap(), b"0") && is(in_t2.get(b"y").unwrap(), b"0"));
        in_t1.put(b"y", b"20").unwrap();
        t1.commit().unwrap();
        let t3 = db.snapshot().unwrap();
        let seen = t3.keyspace(&keyspace).unwrap();
        assert!(is(seen.get(b"x").unwrap(), b"0") && is(seen.get(b"y").unwrap(), b"20"));
        in_t2.put(b"x", b"-11").unwrap();
        assert_eq!(t2.commit().is_ok(), isolation == Isolation::Snapshot);
    }
}
