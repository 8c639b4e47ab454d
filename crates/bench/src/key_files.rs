//! Key files: read once, shuffled once with a fixed seed, and written where all programs read them.
//!
//! A set is given as a text file, one key a line. Blank lines and duplicates are left out; the
//! order does not depend on the order of the given file. Used by one thread.

use crate::cell::{CellError, KeyKind, KeySet};
use crate::experiments::{Case, Size};
use crate::keys::shuffle;
use ruzstd::decoding::StreamingDecoder;
use std::collections::BTreeMap;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Samples that the project carries; they stand in for what is not given in the smoke size.
const SAMPLES: [(&str, &[u8]); 2] = [
    ("urls", include_bytes!("../../../data/urls.zst")),
    // Titles are not shipped; composite keys are about as long.
    ("wiki", include_bytes!("../../../data/composite.zst")),
];

/// The key files of a run.
#[derive(Debug)]
pub struct KeyFiles {
    directory: PathBuf,
    given: BTreeMap<String, PathBuf>,
    size: Size,
    prepared: BTreeMap<String, Prepared>,
}

/// A shuffled file.
#[derive(Debug)]
struct Prepared {
    path: PathBuf,
    /// Bytes of each key, in the order of the file.
    lengths: Vec<u32>,
}

impl KeyFiles {
    /// Key files by the names of their sets; shuffled ones are written to `directory`.
    pub fn new(directory: &Path, given: BTreeMap<String, PathBuf>, size: Size) -> KeyFiles {
        KeyFiles { directory: directory.to_owned(), given, size, prepared: BTreeMap::new() }
    }

    /// The set that a file is for if the user does not say it: its name up to the first `.` or `-`.
    pub fn name_of(path: &Path) -> String {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.split(['.', '-']).next().unwrap_or_default().to_owned()
    }

    /// Says which key set of `case` is missing, before anything has been run.
    pub fn check(&self, case: &Case) -> Result<(), String> {
        if case.kind != KeyKind::File {
            return Ok(());
        }
        match self.given.get(case.keys) {
            Some(path) if path.is_file() => Ok(()),
            Some(path) => Err(format!("there is no key file {}", path.display())),
            None if self.sample(case.keys).is_some() => Ok(()),
            None => Err(format!(
                "the case `{}` needs the key set `{}`: give a file with one key a line by --keys {}=FILE, \
                 or leave the case out by --case",
                case.name, case.keys, case.keys
            )),
        }
    }

    /// The keys of `case`: its number of them, or as many as the file has.
    ///
    /// Errors: `Failed` if the given file cannot be read or the shuffled one not be written.
    pub fn key_set(&mut self, case: &Case) -> Result<KeySet, CellError> {
        let set = |count, path| KeySet { name: case.keys.to_owned(), kind: case.kind, count, path };
        if case.kind != KeyKind::File {
            return Ok(set(case.count, None));
        }
        if !self.prepared.contains_key(case.keys) {
            let prepared = self.prepare(case.keys)?;
            self.prepared.insert(case.keys.to_owned(), prepared);
        }
        let Prepared { path, lengths } = &self.prepared[case.keys];
        Ok(set(case.count.min(lengths.len()), Some(path.clone())))
    }

    /// Bytes of the first `count` keys of a set that [`KeyFiles::key_set`] gave.
    pub fn key_bytes(&self, set: &KeySet, count: usize) -> u64 {
        match set.kind.key_bytes() {
            Some(bytes) => bytes * count as u64,
            None => {
                let lengths = self.prepared.get(&set.name).map(|prepared| &prepared.lengths);
                let lengths = lengths.into_iter().flatten().take(count);
                lengths.map(|&len| u64::from(len)).sum()
            }
        }
    }

    fn sample(&self, name: &str) -> Option<&'static [u8]> {
        let sample = SAMPLES.iter().find(|(sample, _)| *sample == name).map(|(_, bytes)| *bytes);
        sample.filter(|_| self.size == Size::Smoke)
    }

    fn prepare(&self, name: &str) -> Result<Prepared, CellError> {
        let mut text = Vec::new();
        if let Some(path) = self.given.get(name) {
            text = std::fs::read(path).map_err(|error| {
                CellError::Failed(format!("cannot read the keys {}: {error}", path.display()))
            })?;
        } else if let Some(sample) = self.sample(name) {
            StreamingDecoder::new(sample)
                .map_err(CellError::failed)?
                .read_to_end(&mut text)
                .map_err(CellError::failed)?;
        }
        let mut keys: Vec<&[u8]> =
            text.split(|&byte| byte == b'\n').filter(|key| !key.is_empty()).collect();
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() {
            return Err(CellError::Failed(format!("the key set `{name}` is empty")));
        }
        shuffle(&mut keys);
        let path = self.directory.join(format!("{name}.keys"));
        write_lines(&path, &keys).map_err(|error| {
            CellError::Failed(format!("cannot write the shuffled keys {}: {error}", path.display()))
        })?;
        Ok(Prepared { path, lengths: keys.iter().map(|key| key.len() as u32).collect() })
    }
}

fn write_lines(path: &Path, keys: &[&[u8]]) -> std::io::Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    for key in keys {
        file.write_all(key)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments;

    fn url_case(size: Size) -> Case {
        let cases = experiments::find("against-btreemap", size).unwrap().cases;
        cases.into_iter().find(|case| case.keys == "urls").unwrap()
    }

    #[test]
    fn keys_are_shuffled_alike_whatever_the_order_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let given = directory.path().join("urls.txt");
        let mut shuffled = Vec::new();
        for text in ["a\nb\nc\nd\ne\n", "e\nd\n\nc\na\nb\na"] {
            std::fs::write(&given, text).unwrap();
            let mut files = KeyFiles::new(
                directory.path(),
                BTreeMap::from([("urls".into(), given.clone())]),
                Size::Full,
            );
            let set = files.key_set(&url_case(Size::Full)).unwrap();
            assert_eq!(set.count, 5, "as many as there are");
            assert_eq!(files.key_bytes(&set, 3), 3);
            shuffled.push(std::fs::read(set.path.unwrap()).unwrap());
        }
        assert_eq!(shuffled[0], shuffled[1]);
        assert_ne!(shuffled[0], b"a\nb\nc\nd\ne\n");
    }

    #[test]
    fn a_missing_set_is_told_with_its_name() {
        let files = KeyFiles::new(Path::new("."), BTreeMap::new(), Size::Full);
        let words = files.check(&url_case(Size::Full)).unwrap_err();
        assert!(words.contains("--keys urls=FILE"), "{words}");
        let given = BTreeMap::from([("urls".to_owned(), PathBuf::from("no such file"))]);
        let files = KeyFiles::new(Path::new("."), given, Size::Full);
        let words = files.check(&url_case(Size::Full)).unwrap_err();
        assert!(words.contains("no such file"), "{words}");
    }

    #[test]
    fn the_smoke_size_has_samples() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = KeyFiles::new(directory.path(), BTreeMap::new(), Size::Smoke);
        let case = url_case(Size::Smoke);
        files.check(&case).unwrap();
        assert_eq!(files.key_set(&case).unwrap().count, case.count);
    }

    #[test]
    fn sets_are_named_by_their_files() {
        for path in ["urls", "some/urls.txt", "urls-full.txt"] {
            assert_eq!(KeyFiles::name_of(Path::new(path)), "urls");
        }
    }
}
