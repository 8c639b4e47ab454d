//! The public API from end to end, on real files: what is put is found, survives closing, and shrinks
//! the file when it goes.
#![allow(clippy::disallowed_methods, reason = "tests use real threads")]

use hedgerow::{Database, ErrorKind, Isolation, Options, Range, prefix_range};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

fn key(n: u64) -> Vec<u8> {
    format!("key/{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes()
}

fn value(n: u64, generation: u32) -> Vec<u8> {
    let mut value = key(n);
    value.extend_from_slice(format!("#{generation}#").as_bytes());
    value.resize(100, b'.');
    value
}

fn options(limit: u64) -> Options {
    Options::new().memory_limit_bytes(limit)
}

#[test]
fn records_survive_closing_in_a_store_many_times_the_memory_limit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("birds.hrow");
    let records = 20_000;
    {
        let db = options(1 << 20).create(&path).unwrap();
        let ks = db.keyspace("birds").unwrap();
        for n in 0..records {
            assert!(!ks.put(&key(n), &value(n, 0)).unwrap());
        }
        for n in (0..records).step_by(7) {
            assert_eq!(ks.get(&key(n)).unwrap().as_deref(), Some(&value(n, 0)[..]), "{n}");
        }
        assert_eq!(ks.count().unwrap(), records);
        let report = db.verify(|_| ControlFlow::Continue(())).unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
        db.close().unwrap();
    }
    let db = options(1 << 20).open(&path).unwrap();
    let ks = db.open_keyspace("birds").unwrap().unwrap();
    let mut expected: Vec<_> = (0..records).map(|n| (key(n), value(n, 0))).collect();
    expected.sort();
    let mut range = ks.iter();
    for (k, v) in &expected {
        let (found_key, found_value) = range.next().unwrap().unwrap();
        assert_eq!((&*found_key, &*found_value), (&k[..], &v[..]));
    }
    assert!(range.next().is_none());
    let full = db.space_report().unwrap().file_bytes;
    for n in 0..records {
        assert!(ks.remove(&key(n)).unwrap());
    }
    // A store that is open moves pages from one zone to another, and cuts what is free behind the last one. So a zone may be left.
    let most = (2 << 20) + (128 << 10);
    assert!(full > 5 << 19, "{full}");
    // Three, if none of the background's comes in between.
    for _ in 0..10 {
        db.checkpoint().unwrap();
        if db.space_report().unwrap().file_bytes <= most {
            break;
        }
    }
    assert_eq!(ks.count().unwrap(), 0);
    let report = db.verify(|_| ControlFlow::Continue(())).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    let empty = db.space_report().unwrap();
    assert!(empty.file_bytes <= most, "{full} -> {empty:?}");
    db.close().unwrap();
}

#[test]
fn many_threads_see_their_own_writes() {
    let dir = tempfile::tempdir().unwrap();
    let db = options(1 << 20).create(dir.path().join("x.hrow")).unwrap();
    let ks = db.keyspace("k").unwrap();
    let threads = 4;
    let each = 8_000;
    std::thread::scope(|scope| {
        for t in 0..threads {
            let ks = ks.clone();
            scope.spawn(move || {
                for n in 0..each {
                    let id = n * threads + t;
                    ks.put(&key(id), &value(id, 0)).unwrap();
                    if n % 3 == 0 && n / 2 % 5 != 0 {
                        let earlier = n / 2 * threads + t;
                        let found = ks.get(&key(earlier)).unwrap().unwrap();
                        assert!(found.starts_with(&key(earlier)));
                    }
                    if n % 5 == 4 {
                        assert!(ks.remove(&key((n - 4) * threads + t)).unwrap());
                    } else if n % 5 == 3 {
                        ks.put(&key(id), &value(id, 1)).unwrap();
                    }
                }
            });
        }
    });
    let mut model = BTreeMap::new();
    for t in 0..threads {
        for n in 0..each {
            let id = n * threads + t;
            model.insert(key(id), value(id, u32::from(n % 5 == 3)));
            if n % 5 == 4 {
                model.remove(&key((n - 4) * threads + t));
            }
        }
    }
    let found: BTreeMap<_, _> =
        ks.iter().map(|record| record.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
    assert!(found == model);
    let report = db.verify(|_| ControlFlow::Continue(())).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    db.close().unwrap();
}

#[test]
fn a_range_has_two_ends_that_meet() {
    let db = options(1 << 20).in_memory().unwrap();
    let ks = db.keyspace("r").unwrap();
    for n in 0..1000u32 {
        ks.put(&n.to_be_bytes(), b"").unwrap();
    }
    let mut range = ks.range(10u32.to_be_bytes()..=20u32.to_be_bytes());
    let mut seen = Vec::new();
    while let Some(record) = range.next() {
        seen.push(record.unwrap().0.to_vec());
        if let Some(record) = range.next_back() {
            seen.push(record.unwrap().0.to_vec());
        }
    }
    seen.sort();
    let expected: Vec<_> = (10..=20u32).map(|n| n.to_be_bytes().to_vec()).collect();
    assert_eq!(seen, expected);
    #[allow(clippy::reversed_empty_ranges, reason = "what this is about")]
    let empty = ks.range([9u8]..[3u8]);
    assert_eq!(empty.count(), 0);
}

#[test]
fn the_bounds_of_a_prefix_fit_every_call_that_takes_bounds() {
    let db = options(4 << 20).in_memory().unwrap();
    let ks = db.keyspace("bytes").unwrap();
    for key in [&b""[..], b"q", b"r", b"r\xff", b"r\xff\xff", b"s", b"\xff", b"\xff\xff"] {
        ks.put(key, b"").unwrap();
    }
    for (prefix, count) in [(&b""[..], 8), (b"r", 3), (b"r\xff", 2), (b"\xff", 2), (b"t", 0)] {
        assert_eq!(ks.range(prefix_range(prefix)).count(), count, "{prefix:?}");
        assert_eq!(ks.prefix(prefix).count(), count, "{prefix:?}");
    }
    // Of one leaf it knows the number.
    assert_eq!(ks.approximate_count(prefix_range(b"r")).unwrap(), 3);
    let snapshot = db.snapshot().unwrap();
    assert_eq!(snapshot.keyspace(&ks).unwrap().range(prefix_range(b"r")).count(), 3);
    assert_eq!(ks.remove_range(prefix_range(b"r")).unwrap(), 3);
    assert_eq!(ks.remove_range(prefix_range(b"\xff")).unwrap(), 2);
    assert_eq!(ks.count().unwrap(), 3);
    // As a range, bounds that exclude each other hold nothing.
    let (from, to) = ("s", "q");
    assert_eq!(ks.remove_range(from..to).unwrap(), 0);
    assert_eq!(ks.count().unwrap(), 3);
}

#[test]
fn errors_speak_of_what_a_caller_has_and_say_what_to_do() {
    let db = options(4 << 20).in_memory().unwrap();
    let ks = db.keyspace("birds").unwrap();
    ks.put(b"wren", b"1").unwrap();
    let error = ks.bulk_load([(b"robin", b"2")], 100).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::KeyspaceNotEmpty);
    let words = error.to_string();
    assert!(words.contains("`birds`") && words.contains("swap_keyspaces"), "{words}");
    assert!(db.drop_keyspace("birds").unwrap());
    let error = ks.get(b"wren").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::KeyspaceDropped);
    assert!(error.to_string().contains("get a new handle with `Database::keyspace`"), "{error}");
}

/// It is compiled: the type of the keys follows from what is given.
#[test]
fn bounds_of_every_form_need_no_type() {
    let db = options(4 << 20).in_memory().unwrap();
    let ks = db.keyspace("letters").unwrap();
    for key in [b"a", b"b", b"c", b"d"] {
        ks.put(key, b"").unwrap();
    }
    let (low, high) = (vec![b'b'], vec![b'c']);
    let count = |range: Range| range.map(Result::unwrap).count();
    assert_eq!(count(ks.range(..)), 4);
    assert_eq!(count(ks.range(b"b"..b"c")), 1);
    assert_eq!(count(ks.range(*b"b"..=*b"c")), 2);
    assert_eq!(count(ks.range(&b"b"[..]..b"cc")), 2);
    assert_eq!(count(ks.range("b"..)), 3);
    assert_eq!(count(ks.range(..="c".to_owned())), 3);
    assert_eq!(count(ks.range(..low.as_slice())), 1);
    assert_eq!(count(ks.range(low.as_slice()..)), 3);
    assert_eq!(count(ks.range(&low..=&high)), 2);
    assert_eq!(count(ks.range(low.clone()..high.clone())), 1);
    let slices: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Excluded(&low), Bound::Included(&high));
    assert_eq!(count(ks.range(slices)), 1);
    assert_eq!(count(ks.range((Bound::Excluded("b"), Bound::Unbounded))), 2);
    assert_eq!(count(ks.range((Bound::Excluded(low), prefix_range(b"c").1))), 1);
    assert_eq!(ks.approximate_count(..).unwrap(), 4);
    assert_eq!(ks.approximate_len_bytes("b"..="c").unwrap(), 2);
    let transaction = db.transaction(Isolation::Serializable);
    let handle = transaction.keyspace(&ks).unwrap();
    assert_eq!(handle.remove_range(b"b"..).unwrap(), 3);
    assert_eq!(count(handle.range(..)), 1);
    assert_eq!(count(db.snapshot().unwrap().keyspace(&ks).unwrap().range(..)), 4);
    assert_eq!(ks.remove_range(..).unwrap(), 4);
}

#[test]
fn a_database_tells_where_it_is_and_whether_it_can_be_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("birds.hrow");
    let db = options(4 << 20).create(&path).unwrap();
    assert_eq!((db.path(), db.is_read_only()), (Some(&*path), false));
    db.close().unwrap();
    let db = options(4 << 20).open_read_only(&path).unwrap();
    assert_eq!((db.path(), db.is_read_only()), (Some(&*path), true));
    let shown = format!("{db:?}");
    assert!(shown.contains("birds.hrow") && shown.contains("is_read_only: true"), "{shown}");
    for db in [options(4 << 20).in_memory().unwrap(), options(4 << 20).temporary().unwrap()] {
        assert_eq!((db.path(), db.is_read_only()), (None, false));
    }
}

#[test]
fn a_store_in_memory_stays_inside_of_its_limit() {
    let db = options(1 << 20).in_memory().unwrap();
    let ks = db.keyspace("m").unwrap();
    let mut stored = 0;
    let error = loop {
        match ks.put(&key(stored), &value(stored, 0)) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::MemoryLimit, "{error}");
    assert!(stored > 4000, "{stored}");
    for n in 0..stored {
        assert!(ks.contains_key(&key(n)).unwrap(), "{n} of {stored}");
    }
}

#[test]
fn keyspaces_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("many.hrow");
    let db = options(1 << 20).create(&path).unwrap();
    for round in 0..2 {
        for n in 0..500 {
            let ks = db.create_keyspace(&format!("space {n}")).unwrap();
            ks.put(b"round", &[round]).unwrap();
        }
        let error = db.create_keyspace("space 7").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KeyspaceExists);
        assert_eq!(db.keyspaces().unwrap().len(), 500);
        let stale = db.keyspace("space 3").unwrap();
        for n in 0..500 {
            assert!(db.drop_keyspace(&format!("space {n}")).unwrap());
        }
        assert!(!db.drop_keyspace("space 3").unwrap());
        assert_eq!(stale.get(b"round").unwrap_err().kind(), ErrorKind::KeyspaceDropped);
        assert_eq!(stale.put(b"a", b"b").unwrap_err().kind(), ErrorKind::KeyspaceDropped);
        let report = db.verify(|_| ControlFlow::Continue(())).unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
        assert!(report.pages < 40, "dropped keyspaces leak pages: {}", report.pages);
    }
    db.close().unwrap();
}

#[test]
fn a_second_open_is_refused_and_names_the_holder() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locked.hrow");
    let db = options(1 << 20).create(&path).unwrap();
    let error = options(1 << 20).open(&path).unwrap_err();
    // Linux tells who has it.
    let holder_pid = cfg!(target_os = "linux").then(std::process::id);
    assert_eq!(error.kind(), ErrorKind::Locked { holder_pid });
    let other = db.clone();
    db.close().unwrap();
    assert_eq!(other.keyspaces().unwrap_err().kind(), ErrorKind::Closed);
    options(1 << 20).open(&path).unwrap().close().unwrap();
}

/// A program with many stores was told that one is open elsewhere, or is none, and not which.
#[test]
fn an_error_of_opening_names_the_path_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let options = options(1 << 20);
    std::fs::write(path("text"), "no store".repeat(10_000)).unwrap();
    options.create(path("closed")).unwrap().close().unwrap();
    let _held = options.create(path("held")).unwrap();
    let other_pages = options.clone().page_bytes(8192);
    let holder_pid = cfg!(target_os = "linux").then(std::process::id);
    let locked = ErrorKind::Locked { holder_pid };
    for (name, kind, opened) in [
        ("text", ErrorKind::NotAStore, options.open(path("text"))),
        ("text", ErrorKind::NotAStore, options.open_read_only(path("text"))),
        ("held", locked, options.open_or_create(path("held"))),
        ("closed", ErrorKind::InvalidOption, other_pages.open(path("closed"))),
        ("missing", ErrorKind::FileNotFound, options.open(path("missing"))),
        ("closed", ErrorKind::FileExists, options.create(path("closed"))),
    ] {
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), kind);
        let (text, path) = (error.to_string(), path(name).display().to_string());
        assert!(text.starts_with("cannot "), "{text}");
        assert_eq!(text.matches(&path).count(), 1, "{text}");
    }
    let to = path("held");
    let error = options.restore(path("closed"), &to, |_| ControlFlow::Continue(())).unwrap_err();
    assert_eq!(error.kind(), locked);
    assert!(error.to_string().contains(&*to.display().to_string()), "{error}");
}

#[test]
fn a_database_that_is_open_for_reading_refuses_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("read.hrow");
    let db = options(1 << 20).create(&path).unwrap();
    db.keyspace("k").unwrap().put(b"before", b"1").unwrap();
    db.close().unwrap();
    let db = options(1 << 20).open_read_only(&path).unwrap();
    let ks = db.keyspace("k").unwrap();
    assert!(ks.contains_key(b"before").unwrap());
    assert_eq!(ks.put(b"x", b"y").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(db.checkpoint().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(db.verify(|_| ControlFlow::Continue(())).unwrap().is_clean());
}

#[test]
fn handles_can_be_shared() {
    fn shared<T: Send + Sync + 'static>() {}
    fn sent<T: Send + 'static>() {}
    shared::<Database>();
    shared::<hedgerow::Keyspace>();
    shared::<hedgerow::Options>();
    shared::<hedgerow::Error>();
    sent::<hedgerow::Cursor>();
    sent::<hedgerow::Range>();
}

#[test]
fn a_bulk_load_that_a_crash_cut_short_leaves_no_pages_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bulk.hrow");
    let records: Vec<_> = (0..5_000u32).map(|n| (n.to_be_bytes(), [7; 50])).collect();
    {
        // Without a log, which the copy of the one file would lack.
        let db = options(1 << 20).log(false).create(&path).unwrap();
        let done = db.keyspace("done").unwrap();
        assert_eq!(done.bulk_load(records.iter().copied(), 90).unwrap(), 5_000);
        let cut = db.keyspace("cut").unwrap();
        // The checkpoint falls into the middle of the load, and the crash behind it.
        let feed = records.iter().enumerate().map(|(n, record)| {
            if n == 4_000 {
                db.checkpoint().unwrap();
                std::fs::copy(&path, dir.path().join("crashed.hrow")).unwrap();
            }
            (record.0, record.1)
        });
        cut.bulk_load(feed, 100).unwrap();
        assert_eq!(cut.count().unwrap(), 5_000);
    }
    let db = options(1 << 20).open(dir.path().join("crashed.hrow")).unwrap();
    assert_eq!(db.keyspace("done").unwrap().count().unwrap(), 5_000);
    let cut = db.keyspace("cut").unwrap();
    assert_eq!(cut.count().unwrap(), 0);
    let report = db.verify(|_| ControlFlow::Continue(())).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

#[test]
fn an_empty_file_may_become_a_store_but_only_where_creating_is_allowed() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert_eq!(options(1 << 20).open(file.path()).unwrap_err().kind(), ErrorKind::NotAStore);
    let error = options(1 << 20).create(file.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FileExists);
    let db = options(1 << 20).open_or_create(file.path()).unwrap();
    db.keyspace("k").unwrap().put(b"a", b"b").unwrap();
    db.close().unwrap();
    let db = options(1 << 20).open(file.path()).unwrap();
    assert!(db.keyspace("k").unwrap().contains_key(b"a").unwrap());
}

#[test]
fn a_bulk_load_whose_records_fail_to_come_leaves_the_keyspace_as_it_was() {
    #[derive(Debug)]
    enum Failure {
        Records,
        Store(hedgerow::Error),
    }
    impl From<hedgerow::Error> for Failure {
        fn from(error: hedgerow::Error) -> Failure {
            Failure::Store(error)
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let db = options(1 << 20).create(dir.path().join("failing.hrow")).unwrap();
    let ks = db.keyspace("ks").unwrap();
    db.checkpoint().unwrap();
    let numbers = |most: u32| (0..most).map(|n| Ok((n.to_be_bytes(), [7; 100])));
    let loaded = ks.try_bulk_load(numbers(5_000).chain([Err(Failure::Records)]), 90);
    assert!(matches!(loaded, Err(Failure::Records)));
    assert_eq!(ks.count().unwrap(), 0);
    let loaded = ks.try_bulk_load(numbers(5_000).chain(numbers(1)), 90);
    let sorted = matches!(&loaded, Err(Failure::Store(e)) if e.kind() == ErrorKind::NotSorted);
    assert!(sorted, "{loaded:?}");
    assert_eq!(ks.try_bulk_load::<_, _, Failure>(numbers(5_000), 90).unwrap(), 5_000);
    assert_eq!(ks.count().unwrap(), 5_000);
    assert_eq!(db.verify(|_| ControlFlow::Continue(())).unwrap().findings, []);
    db.close().unwrap();
}

/// Between its look for the keyspace and its creation others may come, and go again.
#[test]
fn a_keyspace_that_others_create_and_drop_meanwhile_can_be_had_all_the_same() {
    let db = options(8 << 20).in_memory().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..3_000 {
                    db.keyspace("a").unwrap();
                    db.drop_keyspace("a").unwrap();
                }
            });
        }
    });
}
