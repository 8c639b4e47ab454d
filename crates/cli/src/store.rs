//! The engine's calls that several commands share, with words about what was being done.

use crate::args::{Common, CreateArgs, DEFAULT_KEYSPACE, LeafArgs, RangeArgs};
use crate::escape::{Bytes, escape};
use crate::failure::Failure;
use crate::interrupt;
use crate::size::show_number_of;
use hedgerow::{Database, Error, ErrorKind, Keyspace, Options, Range};
use std::ops::Bound;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Options from the arguments that all commands take.
pub fn options(common: &Common) -> Options {
    match common.memory_limit {
        Some(bytes) => Options::new().memory_limit_bytes(bytes),
        None => Options::new(),
    }
}

/// Options for a store that is written.
fn writing(common: &Common, leaves: LeafArgs) -> Options {
    options(common).leaves(leaves.leaves.policy())
}

/// Adds to an error what was being done to which store, unless it says so itself.
pub fn failed(doing: &str, path: &Path) -> impl FnOnce(Error) -> Failure {
    let path = path.display().to_string();
    let doing = format!("cannot {doing} {path}");
    move |error| {
        let text = error.to_string();
        let says_so = text.starts_with("cannot ") && text.contains(&path);
        Failure::Engine(if says_so { String::new() } else { doing }, error)
    }
}

/// As [`failed`], for a key that is an argument: one that is too long is a wrong argument.
pub fn failed_with_key(doing: &str, path: &Path) -> impl FnOnce(Error) -> Failure {
    let failed = failed(doing, path);
    move |error| {
        let is_wrong = matches!(error.kind(), ErrorKind::KeyTooLong { .. });
        let failure = failed(error);
        match failure.words().filter(|_| is_wrong) {
            Some(words) => Failure::Usage(words),
            None => failure,
        }
    }
}

/// As [`failed`], for a call that changes nothing and that Ctrl-C ends.
pub fn stoppable(doing: &str, path: &Path) -> impl FnOnce(Error) -> Failure {
    let failed = failed(doing, path);
    move |error| match error.kind() {
        ErrorKind::Cancelled => Failure::Interrupted(String::new()),
        _ => failed(error),
    }
}

/// As [`failed`], for what makes another file out of the store: after Ctrl-C there is none.
pub fn copying(doing: &str, path: &Path) -> impl FnOnce(Error) -> Failure {
    let failed = failed(doing, path);
    move |error| match error.kind() {
        ErrorKind::Cancelled => Failure::Interrupted("no file was made".to_owned()),
        _ => failed(error),
    }
}

/// How long a store that is open elsewhere is left alone before it is tried again.
const NEXT_TRY: Duration = Duration::from_millis(100);

/// Does what needs a store that nobody has open, and tries it again while somebody has, as long as `--wait` says.
pub fn when_free<T>(
    common: &Common,
    failed: impl FnOnce(Error) -> Failure,
    mut attempt: impl FnMut() -> hedgerow::Result<T>,
) -> Result<T, Failure> {
    let begun = Instant::now();
    let mut is_told = !common.verbose;
    loop {
        let error = match attempt() {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let left = common.wait.saturating_sub(begun.elapsed());
        if left.is_zero() || !matches!(error.kind(), ErrorKind::Locked { .. }) {
            return Err(failed(error));
        }
        if !is_told {
            tell!("hedgerow: {error}; trying again for {:.1} s", left.as_secs_f64());
            is_told = true;
        }
        interrupt::check()?;
        thread::sleep(left.min(NEXT_TRY));
    }
}

/// Opens a store that must exist, for reading only.
pub fn open_read_only(common: &Common, path: &Path) -> Result<Database, Failure> {
    let options = options(common);
    let db = when_free(common, failed("open", path), || options.open_read_only(path))?;
    tell_of_replay(common, &db, path);
    Ok(db)
}

/// Says what opening has replayed, if anything.
fn tell_of_replay(common: &Common, db: &Database, path: &Path) {
    if common.quiet {
        return;
    }
    let records = db.replayed().records;
    if records > 0 {
        tell!(
            "hedgerow: {} was not closed; replayed {} from its log{}",
            path.display(),
            show_number_of(records, "change"),
            match db.is_read_only() {
                true => ", in memory alone; `hedgerow recover` does so for good",
                false => "",
            }
        );
    }
}

/// Opens a store that must exist, for writing.
pub fn open(common: &Common, leaves: LeafArgs, path: &Path) -> Result<Database, Failure> {
    let db = open_quietly(common, leaves, path)?;
    tell_of_replay(common, &db, path);
    Ok(db)
}

/// The same, and says nothing of what was replayed.
pub fn open_quietly(common: &Common, leaves: LeafArgs, path: &Path) -> Result<Database, Failure> {
    let options = writing(common, leaves);
    when_free(common, failed("open", path), || options.open(path))
}

/// Opens a store for writing, and creates it if there is none.
pub fn open_or_create(
    common: &Common,
    leaves: LeafArgs,
    created: CreateArgs,
    path: &Path,
) -> Result<Database, Failure> {
    let mut options = writing(common, leaves);
    if let Some(bytes) = created.page_bytes {
        options = options.page_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
    let db = when_free(common, failed("open", path), || options.open_or_create(path))?;
    tell_of_replay(common, &db, path);
    Ok(db)
}

/// Creates a store where there must be none.
pub fn create(common: &Common, leaves: LeafArgs, path: &Path) -> Result<Database, Failure> {
    writing(common, leaves).create(path).map_err(failed("create", path))
}

/// The name of the keyspace to work on, for every command alike: that of the arguments, else `default` if there is one, else the only
/// keyspace, else `default` still if there is none at all.
fn chosen(db: &Database, common: &Common, path: &Path) -> Result<String, Failure> {
    let names = match &common.keyspace {
        Some(name) => return Ok(name.clone()),
        None => db.keyspaces().map_err(failed("read", path))?,
    };
    if let [only] = &names[..] {
        return Ok(only.clone());
    }
    if names.is_empty() || names.iter().any(|name| name == DEFAULT_KEYSPACE) {
        return Ok(DEFAULT_KEYSPACE.to_owned());
    }
    let (path, names) = (path.display(), listed(&names));
    Err(Failure::Other(format!(
        "{path} has the keyspaces {names} and no `{DEFAULT_KEYSPACE}`; choose one with --keyspace NAME"
    )))
}

/// The keyspace to work on, for a command that shows the others, too: of several without `default` the first. `None`: there is no
/// keyspace.
pub fn keyspace_or_first(
    db: &Database,
    common: &Common,
    path: &Path,
) -> Result<Option<Keyspace>, Failure> {
    let names = db.keyspaces().map_err(failed("read", path))?;
    let is_default = |name: &&String| *name == DEFAULT_KEYSPACE;
    let name = common.keyspace.as_ref().or(names.iter().find(is_default)).or(names.first());
    name.map(|name| keyspace_named(db, name, path)).transpose()
}

/// Names of keyspaces, in words.
fn listed(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{}`", escape(name.as_bytes()))).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The keyspace to work on, which must exist.
pub fn keyspace(db: &Database, common: &Common, path: &Path) -> Result<Keyspace, Failure> {
    keyspace_named(db, &chosen(db, common, path)?, path)
}

/// The keyspace of this name, which must exist.
pub fn keyspace_named(db: &Database, name: &str, path: &Path) -> Result<Keyspace, Failure> {
    let found = db.open_keyspace(name).map_err(failed("read", path))?;
    found.ok_or_else(|| {
        let names = listed(&db.keyspaces().unwrap_or_default());
        let (path, name) = (path.display(), escape(name.as_bytes()));
        Failure::Other(format!("{path} has no keyspace `{name}`; its keyspaces: {names}"))
    })
}

/// Lets a command write to the keyspace to work on, which is created if there is none. If the command fails before it has written
/// a record, a keyspace that was created for it goes again.
pub fn write_to<T>(
    db: &Database,
    common: &Common,
    path: &Path,
    write: impl FnOnce(&Keyspace) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let name = &chosen(db, common, path)?;
    let cannot = || failed("write to", path);
    let was_there = db.open_keyspace(name).map_err(cannot())?.is_some();
    let keyspace = db.keyspace(name).map_err(cannot())?;
    let written = write(&keyspace);
    if written.is_err()
        && !was_there
        && keyspace.iter().next().is_none()
        && let Err(error) = db.drop_keyspace(name)
    {
        tell!("hedgerow: the empty keyspace `{}` stays: {error}", escape(name.as_bytes()));
    }
    written
}

/// Whether no keyspace has a record, as far as can be read.
fn is_empty(db: &Database) -> bool {
    let has_none = |name: &String| match db.open_keyspace(name) {
        Ok(Some(keyspace)) => keyspace.iter().next().is_none(),
        Ok(None) => true,
        Err(_) => false,
    };
    db.keyspaces().is_ok_and(|names| names.iter().all(has_none))
}

/// Writes a checkpoint and closes the store. If that fails, what was changed since the last one is in the log
/// as far as that could be written, and the user is told so, whatever else went wrong before. A command that has failed removes the
/// store that it has created, unless there are records in it.
pub fn close<T>(db: Database, path: &Path, outcome: Result<T, Failure>) -> Result<T, Failure> {
    let closed = match outcome.is_err() && is_empty(&db) {
        true => db.discard(),
        false => db.close(),
    };
    let Err(error) = closed else { return outcome };
    tell!("hedgerow: {} could not be closed; the next open replays its log", path.display());
    match outcome {
        Ok(_) | Err(Failure::Interrupted(_)) => Err(failed("close", path)(error)),
        earlier => earlier,
    }
}

/// The bounds that the arguments select. If they exclude each other, no key is in them.
pub fn bounds(args: &RangeArgs) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let prefix = args.prefix.as_ref().map_or(&[][..], |prefix| prefix.0.as_slice());
    let (mut from, mut to) = hedgerow::prefix_range(prefix);
    if let (Bound::Included(first), Some(Bytes(key))) = (&mut from, &args.from)
        && *key > *first
    {
        first.clone_from(key);
    }
    if let Some(Bytes(key)) = &args.to {
        to = match to {
            Bound::Excluded(end) if end < *key => Bound::Excluded(end),
            _ => Bound::Excluded(key.clone()),
        };
    }
    (from, to)
}

/// The records that the arguments select.
pub fn range(keyspace: &Keyspace, args: &RangeArgs) -> Range {
    keyspace.range(bounds(args))
}

/// Visits records, or keys, until `limit`, the end, or Ctrl-C.
pub fn for_each<T>(
    mut range: impl DoubleEndedIterator<Item = hedgerow::Result<T>>,
    reverse: bool,
    limit: u64,
    path: &Path,
    mut visit: impl FnMut(T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for _ in 0..limit {
        let Some(item) = (if reverse { range.next_back() } else { range.next() }) else { break };
        visit(item.map_err(failed("read", path))?)?;
        interrupt::check()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_prefix_and_bounds_the_narrower_ones_hold() {
        let bytes = |text: &str| Some(Bytes(text.as_bytes().to_vec()));
        let bounds_of = |prefix: &str, from: &str, to: &str| {
            let [prefix, from, to] =
                [prefix, from, to].map(|text| bytes(text).filter(|_| !text.is_empty()));
            let (Bound::Included(from), to) = bounds(&RangeArgs { prefix, from, to }) else {
                panic!("a range begins with a key");
            };
            let to = match to {
                Bound::Excluded(to) => Some(String::from_utf8(to).unwrap()),
                _ => None,
            };
            (String::from_utf8(from).unwrap(), to)
        };
        let to = |text: &str| Some(text.to_owned());
        assert_eq!(bounds_of("", "", ""), (String::new(), None));
        assert_eq!(bounds_of("", "d", "s"), ("d".to_owned(), to("s")));
        assert_eq!(bounds_of("r", "", ""), ("r".to_owned(), to("s")));
        assert_eq!(bounds_of("r", "d", "w"), ("r".to_owned(), to("s")));
        assert_eq!(bounds_of("r", "ro", "rp"), ("ro".to_owned(), to("rp")));
    }
}
