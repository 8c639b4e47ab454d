//! Files that are no store, not ours, cut short, too long, or damaged in any byte; and calls that cannot
//! be obeyed. Each gives a typed error that says what and where, or exactly the right answer.
#![allow(clippy::disallowed_methods, reason = "tests use files and processes")]

use crate::common::{
    Dice, Model, Step, assert_sound, change, contents, disk_with, open, path, read_damaged, tiny,
};
use hedgerow::internals::store::OpenHow;
use hedgerow::{ErrorKind, Options};
use hedgerow_testing::SimDisk;
use std::fs;

/// The bytes of a small store, closed, and what is in it.
fn small_store() -> (Vec<u8>, Model) {
    let disk = SimDisk::new(1);
    let mut model = Model::new();
    let db = open(&tiny(), &disk, OpenHow::New).unwrap();
    let mut dice = Dice(1);
    for keyspace in ["wrens", "gulls"] {
        let step = Step::Puts { keyspace, count: 70, below: 200, value_bytes: 60 };
        change(&db, &mut model, &step, &mut dice).unwrap();
        db.checkpoint().unwrap();
    }
    db.close().unwrap();
    (disk.state().contents(path()).unwrap(), model)
}

#[test]
fn any_byte_flipped_gives_right_answers_or_a_named_error() {
    let (bytes, model) = small_store();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let mut dice = Dice(crate::common::seed(31));
    let (mut tried, mut noticed) = (0, 0);
    let mut at = 0;
    let fewer = if crate::common::is_thorough() { 1 } else { 4 };
    while at < end {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << dice.below(8);
        tried += 1;
        let context = format!("byte {at} of {end}");
        noticed += u64::from(read_damaged(&tiny(), &damaged, &model, &context));
        // Every byte of what a superblock says; one in eight of what is in use; fewer of what is empty.
        let around = &bytes[at.saturating_sub(64)..end.min(at + 64)];
        at += match at {
            _ if crate::common::effort() > 1 => 1,
            0..184 => 1,
            _ if around.iter().all(|byte| *byte == 0) => 96 * fewer,
            _ => 8 * fewer,
        };
    }
    println!("{noticed} of {tried} flipped bytes were noticed");
    assert!(noticed > 500 / fewer as u64, "only {noticed} of {tried} flipped bytes were noticed");
}

#[test]
fn a_file_cut_anywhere_is_no_store_or_damaged() {
    let (bytes, model) = small_store();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    for len in (0..bytes.len()).step_by(4096) {
        let noticed = read_damaged(&tiny(), &bytes[..len], &model, &format!("cut to {len} bytes"));
        assert!(noticed || len >= end, "nobody noticed that {len} bytes are left of {end}");
    }
}

#[test]
fn a_file_that_is_too_long_is_read_all_the_same() {
    let (mut bytes, model) = small_store();
    for (len, filler) in [(1, 0), (4096, 7), (3 << 20, 0xff)] {
        bytes.resize(bytes.len() + len, filler);
        let disk = disk_with(&bytes);
        let db = open(&tiny(), &disk, OpenHow::Existing).unwrap();
        assert!(contents(&db).unwrap() == model);
        assert_sound(&db, "a file that is too long");
        db.close().unwrap();
    }
}

#[test]
fn what_is_no_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let refused = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        let error = Options::new().memory_limit_bytes(1 << 20).open(&file).unwrap_err();
        assert_eq!(fs::read(&file).unwrap(), bytes, "a refused file is left alone");
        error
    };
    let (bytes, _) = small_store();
    assert_eq!(refused(b"").kind(), ErrorKind::NotAStore);
    assert_eq!(refused(b"some text\n").kind(), ErrorKind::NotAStore);
    assert_eq!(refused(&vec![0; 1 << 20]).kind(), ErrorKind::NotAStore);
    assert_eq!(refused(&vec![b'x'; 1 << 20]).kind(), ErrorKind::NotAStore);
    let error =
        Options::new().page_bytes(4096).on_disk(&disk_with(&bytes), path(), OpenHow::Existing);
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert!(error.to_string().contains("512"), "{error}");
    let error = Options::new().open(dir.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotAStore, "a directory: {error:?}");
    let error = Options::new().open(dir.path().join("nothing")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FileNotFound);
    let error = Options::new().create(&file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FileExists);
    let error = Options::new().create(dir.path().join("no/such/directory")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DirectoryNotFound, "{error:?}");
}

#[cfg(unix)]
#[test]
fn a_file_without_permission_is_an_error_of_the_system() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secret");
    let options = Options::new().memory_limit_bytes(1 << 20);
    options.create(&file).unwrap().close().unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(&file).is_ok() {
        let why = "this user may read everything";
        return hedgerow_testing::not_run("a file without permission", why);
    }
    let error = options.open(&file).unwrap_err();
    assert_eq!((error.kind(), error.os_error()), (ErrorKind::Io, Some(13)));
}

#[test]
fn calls_that_cannot_be_obeyed_change_nothing() {
    let disk = SimDisk::new(3);
    let db = open(&tiny(), &disk, OpenHow::New).unwrap();
    let wrens = db.keyspace("wrens").unwrap();
    assert!(!wrens.put(b"", b"the empty key").unwrap());
    assert!(!wrens.put(b"empty value", b"").unwrap());
    assert_eq!(wrens.get(b"").unwrap().as_deref(), Some(&b"the empty key"[..]));
    assert_eq!(wrens.get(b"empty value").unwrap().as_deref(), Some(&b""[..]));
    let error = wrens.put(&[b'k'; 70_000], b"").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::KeyTooLong { len_bytes: 70_000, .. }), "{error:?}");
    assert!(wrens.get(&[b'k'; 70_000]).unwrap_or(None).is_none());
    let too_long = vec![b'k'; wrens.max_key_bytes() + 1];
    let error = wrens.put(&too_long, &[b'v'; 100_000]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::KeyTooLong { .. }), "{error:?}");
    assert_eq!(wrens.count().unwrap(), 2);
    assert_eq!(wrens.range(b"z".as_slice()..b"a".as_slice()).count(), 0);
    let long = "n".repeat(300);
    for name in ["", long.as_str()] {
        assert_eq!(db.create_keyspace(name).unwrap_err().kind(), ErrorKind::InvalidName);
    }
    assert!(!db.drop_keyspace("nobody").unwrap());
    db.close().unwrap();
    let error = open(&tiny().memory_limit_bytes(1000), &disk, OpenHow::Existing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    let smallest = hedgerow::internals::buffer::smallest_limit_without_log_bytes(512).to_string();
    assert!(error.to_string().contains(&smallest), "{error}");
    let db = open(&tiny(), &disk, OpenHow::ReadOnly).unwrap();
    let wrens = db.keyspace("wrens").unwrap();
    assert_eq!(wrens.put(b"a", b"b").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(wrens.remove(b"").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(db.drop_keyspace("wrens").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(db.create_keyspace("gulls").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(wrens.count().unwrap(), 2);
    let error = open(&tiny(), &disk, OpenHow::Existing).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Locked { holder_pid: Some(_) }), "{error:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_out_of_file_descriptors_gets_an_error_and_goes_on() {
    const CHILD: &str = "HEDGEROW_DESCRIPTORS_CHILD";
    let name = "a_process_out_of_file_descriptors_gets_an_error_and_goes_on";
    if let Ok(path) = std::env::var(CHILD) {
        let mut files = Vec::new();
        while let Ok(file) = fs::File::open("/dev/null") {
            files.push(file);
        }
        let error = Options::new().memory_limit_bytes(1 << 20).create(&path).unwrap_err();
        assert_eq!((error.kind(), error.os_error()), (ErrorKind::Io, Some(24)), "{error:?}");
        drop(files);
        let db = Options::new().memory_limit_bytes(1 << 20).create(&path).unwrap();
        let wrens = db.keyspace("wrens").unwrap();
        let files: Vec<_> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
        wrens.put(&crate::common::key(1), b"").unwrap();
        db.checkpoint().unwrap();
        drop(files);
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let status = std::process::Command::new("sh")
        .args(["-c", "ulimit -n 40 && exec \"$0\" \"$1\" --exact --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .arg(name)
        .env(CHILD, dir.path().join("few.hrow"))
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}
