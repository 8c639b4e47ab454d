//! Key sets: text files, one unique key a line, plain or compressed.

use ruzstd::decoding::StreamingDecoder;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;

/// A set of distinct keys, in the order of the file.
pub type Keys = Vec<Box<[u8]>>;

/// Names of the sets in a directory, sorted; the `-full` ones are for measuring.
pub fn available(dir: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(dir).map_err(|e| format!("cannot read {}: {e}", dir.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|e| e.to_string())?.file_name().to_string_lossy().into_owned();
        let stem = name.strip_suffix(".zst").or_else(|| name.strip_suffix(".txt"));
        names.extend(stem.filter(|stem| !stem.ends_with("-full")).map(str::to_owned));
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// The first `count` keys of a set, with duplicates taken out.
pub fn read(dir: &Path, set: &str, count: usize) -> Result<Keys, String> {
    let text = read_text(dir, set).map_err(|e| format!("cannot read the keys {set}: {e}"))?;
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let mut seen = std::collections::HashSet::new();
    let keys: Keys =
        lines.take(count).filter(|line| seen.insert(*line)).map(Box::<[u8]>::from).collect();
    if keys.is_empty() { Err(format!("the key set {set} is empty")) } else { Ok(keys) }
}

fn read_text(dir: &Path, set: &str) -> io::Result<Vec<u8>> {
    let packed = dir.join(format!("{set}.zst"));
    if !packed.exists() {
        return fs::read(dir.join(format!("{set}.txt")));
    }
    let mut text = Vec::new();
    let file = BufReader::new(File::open(packed)?);
    StreamingDecoder::new(file).map_err(io::Error::other)?.read_to_end(&mut text)?;
    Ok(text)
}
