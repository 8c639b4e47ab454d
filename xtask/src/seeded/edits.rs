//! The lines of all seeded bugs, and the copy of the workspace that has them.
//!
//! `xtask/seeded-bugs/*.diff` has them: hunks of a file, without line numbers. A hunk says which lines it is put in the place of, and
//! they must be there exactly once: if they are not, somebody has changed them, and nothing is built until the hunk is changed as
//! well. Spaces at the beginning of a line do not count. A line that is added asks `leaves_out` whether its bug is the
//! one that the environment names, so one build has all of them. The workspace itself has none. Plain functions; a copy is written
//! by one caller at a time.

use crate::workspace;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Where the hunks are, below the workspace.
const FOLDER: &str = "xtask/seeded-bugs";
/// How a line asks for its bug.
const ASKS: &str = "leaves_out(\"";
/// The crate that has the function, as all others are built on it.
const BOTTOM: &str = "crates/sync/";

/// Lines of a file, and what is put in their place.
struct Hunk {
    /// Without the spaces around them.
    old: Vec<String>,
    new: Vec<String>,
}

/// All hunks, by the path of their file below the workspace.
pub struct Edits(BTreeMap<String, Vec<Hunk>>);

impl Edits {
    /// Reads them.
    ///
    /// Errors: in words, of a file that cannot be read or understood.
    pub fn read(root: &Path) -> Result<Edits, String> {
        let folder = root.join(FOLDER);
        let cannot = |error| format!("cannot read {}: {error}", folder.display());
        let mut edits = Edits(BTreeMap::new());
        for entry in fs::read_dir(&folder).map_err(cannot)? {
            let path = entry.map_err(cannot)?.path();
            let text = fs::read_to_string(&path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            edits.add(&text).map_err(|words| format!("{}: {words}", path.display()))?;
        }
        Ok(edits)
    }

    fn add(&mut self, text: &str) -> Result<(), String> {
        let mut hunks: Option<&mut Vec<Hunk>> = None;
        for (at, line) in text.lines().enumerate() {
            let misplaced = || format!("line {}: there is no hunk before it", at + 1);
            if let Some(path) = line.strip_prefix("--- ") {
                hunks = Some(self.0.entry(path.to_owned()).or_default());
                continue;
            }
            if line == "@@" {
                let hunk = Hunk { old: Vec::new(), new: Vec::new() };
                hunks.as_mut().ok_or_else(misplaced)?.push(hunk);
                continue;
            }
            let hunk = hunks.as_mut().and_then(|hunks| hunks.last_mut());
            match (line.split_at_checked(1), hunk) {
                // Between two files.
                (None, None) => {}
                (_, None) => return Err(misplaced()),
                // An empty line of the file, or none: it does not count at the end of a hunk.
                (None, Some(hunk)) => {
                    hunk.old.push(String::new());
                    hunk.new.push(String::new());
                }
                (Some((" ", rest)), Some(hunk)) => {
                    hunk.old.push(rest.trim().to_owned());
                    hunk.new.push(rest.to_owned());
                }
                (Some(("-", rest)), Some(hunk)) => hunk.old.push(rest.trim().to_owned()),
                (Some(("+", rest)), Some(hunk)) => hunk.new.push(rest.to_owned()),
                _ => return Err(format!("line {}: begins with none of ` `, `-`, `+`", at + 1)),
            }
        }
        for hunk in self.0.values_mut().flatten() {
            while hunk.old.last().is_some_and(String::is_empty)
                && hunk.new.last().is_some_and(String::is_empty)
            {
                hunk.old.pop();
                hunk.new.pop();
            }
        }
        Ok(())
    }

    /// The names of all bugs in them.
    fn names(&self) -> BTreeSet<String> {
        let lines = self.0.values().flatten().flat_map(|hunk| &hunk.new);
        let asks = lines.flat_map(|line| line.split(ASKS).skip(1));
        asks.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
    }

    /// Errors: names one that is in the hunks or in the lists alone.
    pub fn check_names(&self, listed: &BTreeSet<&str>) -> Result<(), String> {
        let own = self.names();
        let alone = own.iter().map(String::as_str).find(|name| !listed.contains(name));
        if let Some(name) = alone {
            return Err(format!("{FOLDER} has `{name}`, which no test is said to notice"));
        }
        match listed.iter().find(|name| !own.contains(**name)) {
            Some(name) => Err(format!("`{name}` has no lines in {FOLDER}")),
            None => Ok(()),
        }
    }

    /// What a file has come to be, which is `text` in the workspace.
    ///
    /// Errors: in words, of a hunk whose lines are not there, or more than once.
    pub fn applied(&self, path: &str, text: &str) -> Result<String, String> {
        let Some(hunks) = self.0.get(path) else { return Ok(text.to_owned()) };
        let lines: Vec<&str> = text.lines().collect();
        let trimmed: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
        let mut places = Vec::new();
        for hunk in hunks {
            let first = hunk.old.first().map_or("", String::as_str);
            let mut found = (0..lines.len()).filter(|&at| trimmed[at..].starts_with_all(&hunk.old));
            match (found.next(), found.next()) {
                (Some(at), None) => places.push((at, hunk)),
                (None, _) => return Err(format!("{path} has no such lines: `{first}` and on")),
                (Some(one), Some(other)) => {
                    let (one, other) = (one + 1, other + 1);
                    return Err(format!("{path} has `{first}` and on in lines {one} and {other}"));
                }
            }
        }
        places.sort_by_key(|(at, _)| *at);
        let (mut result, mut behind) = (String::new(), 0);
        let own = if path.starts_with(BOTTOM) && path.contains("/src/") {
            "crate"
        } else {
            "::hedgerow_sync"
        };
        let asks = format!("{own}::seeded::{ASKS}");
        for (at, hunk) in places {
            let between = lines
                .get(behind..at)
                .ok_or_else(|| format!("{path} has hunks that overlap in line {}", at + 1))?;
            let new = hunk.new.iter().map(|line| line.replace(ASKS, &asks));
            for line in between.iter().map(|line| (*line).to_owned()).chain(new) {
                result += &line;
                result.push('\n');
            }
            behind = at + hunk.old.len();
        }
        for line in &lines[behind..] {
            result += line;
            result.push('\n');
        }
        Ok(result)
    }

    /// Writes the workspace with all of them to `place`. What is the same there already is not touched.
    ///
    /// Errors: in words.
    pub fn copy(&self, root: &Path, place: &Path) -> Result<(), String> {
        let files = workspace::files(root)?;
        if let Some(path) = self.0.keys().find(|path| !files.contains(path)) {
            return Err(format!("{FOLDER} has lines of {path}, which is not there"));
        }
        remove_others(place, place, &files)?;
        for path in &files {
            let cannot = |error| format!("cannot read {path}: {error}");
            let bytes = fs::read(root.join(path)).map_err(cannot)?;
            let bytes = match self.0.contains_key(path) {
                true => self.applied(path, &String::from_utf8_lossy(&bytes))?.into_bytes(),
                false if path == SWITCH_ROOT => [&bytes, SWITCH_MODULE.as_bytes()].concat(),
                false => bytes,
            };
            workspace::write(&place.join(path), &bytes)?;
        }
        let names: Vec<String> = self.names().into_iter().collect();
        let switch = SWITCH.replace("KNOWN", &names.join(","));
        workspace::write(&place.join(SWITCH_FILE), switch.as_bytes())
    }
}

/// Removes what an earlier copy has of files that the workspace has no longer: a module's file beside its folder is an error.
fn remove_others(root: &Path, folder: &Path, files: &[String]) -> Result<(), String> {
    // There is no copy yet.
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path =
            entry.map_err(|error| format!("cannot list {}: {error}", folder.display()))?.path();
        if path.is_dir() && !path.is_symlink() {
            remove_others(root, &path, files)?;
            continue;
        }
        let name = path.strip_prefix(root).map(|name| name.to_string_lossy().into_owned());
        let is_there = |name: String| files.contains(&name) || name == SWITCH_FILE;
        if path.extension().is_some_and(|of| of == "rs") && !name.is_ok_and(is_there) {
            fs::remove_file(&path)
                .map_err(|error| format!("cannot remove {}: {error}", path.display()))?;
        }
    }
    Ok(())
}

/// Whether lines begin with others.
trait StartsWithAll {
    fn starts_with_all(&self, others: &[String]) -> bool;
}

impl StartsWithAll for [&str] {
    fn starts_with_all(&self, others: &[String]) -> bool {
        self.len() >= others.len() && self.iter().zip(others).all(|(own, other)| own == other)
    }
}

/// The module of the copy that no file of the workspace is.
const SWITCH_FILE: &str = "crates/sync/src/seeded.rs";
const SWITCH_ROOT: &str = "crates/sync/src/lib.rs";
const SWITCH_MODULE: &str = "\n#[doc(hidden)]\npub mod seeded;\n";
/// What the crate at the bottom of the copy has besides.
const SWITCH: &str = r#"//! Which seeded bug is there.

use std::io::Write;
// The standard library's: the question is no step of a model.
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const ALL: &str = "KNOWN";

/// Somebody has asked, and there is none: the rest need not look at names, in loops that are run for each byte.
static IS_WHOLE: AtomicBool = AtomicBool::new(false);

#[inline(always)]
pub fn leaves_out(name: &str) -> bool {
    !IS_WHOLE.load(Relaxed) && is_chosen(name)
}

#[cold]
fn is_chosen(name: &str) -> bool {
    static CHOSEN: OnceLock<String> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let chosen = std::env::var("HEDGEROW_SEEDED_BUG").unwrap_or_default();
        if !chosen.is_empty() && !is_known(&chosen) {
            // Not by a macro: what those say a harness keeps to itself.
            let _ = std::io::stderr().write_all(format!("\nWRONG ARGUMENT: no seeded bug {chosen:?}\n").as_bytes());
            std::process::exit(2);
        }
        IS_WHOLE.store(chosen.is_empty(), Relaxed);
        chosen
    });
    chosen == name
}

pub fn is_known(name: &str) -> bool {
    ALL.split(',').any(|known| known == name)
}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn edits(text: &str) -> Result<Edits, String> {
        let mut edits = Edits(BTreeMap::new());
        edits.add(text).map(|()| edits)
    }

    const TEXT: &str =
        "fn one() {\n    first();\n    second();\n}\n\nfn two() {\n    first();\n}\n";

    #[test]
    fn hunks_are_put_in_the_place_of_their_lines_however_far_those_are_indented() {
        let text = "--- a.rs\n@@\n-second();\n+if !leaves_out(\"b\") { second(); }\n@@\n fn one() {\n+    leaves_out(\"a\");\n\n--- c.rs\n@@\n-x\n+y\n";
        let edits = edits(text).unwrap();
        let expected = "fn one() {\n    ::hedgerow_sync::seeded::leaves_out(\"a\");\n    first();\nif !::hedgerow_sync::seeded::leaves_out(\"b\") { second(); }\n}\n\nfn two() {\n    first();\n}\n";
        assert_eq!(edits.applied("a.rs", TEXT).unwrap(), expected);
        assert_eq!(edits.applied("b.rs", TEXT).unwrap(), TEXT);
        assert_eq!(edits.check_names(&BTreeSet::from(["a", "b"])), Ok(()));
        for (listed, word) in [(&["a"][..], "`b`"), (&["a", "b", "d"], "`d`")] {
            let refused = edits.check_names(&listed.iter().copied().collect());
            assert!(refused.is_err_and(|words| words.contains(word)));
        }
    }

    #[test]
    fn lines_that_are_not_there_or_twice_or_in_two_hunks_are_an_error() {
        for (hunks, words) in [
            ("@@\n-third();\n+x\n", "a.rs has no such lines: `third();` and on"),
            ("@@\n-first();\n+x\n", "a.rs has `first();` and on in lines 2 and 7"),
            (
                "@@\n first();\n-second();\n+x\n@@\n-second();\n+y\n",
                "a.rs has hunks that overlap in line 3",
            ),
        ] {
            let edits = edits(&format!("--- a.rs\n{hunks}")).unwrap();
            assert_eq!(edits.applied("a.rs", TEXT), Err(words.to_owned()), "{hunks}");
        }
        for (text, words) in [
            ("@@\n", "line 1: there is no hunk before it"),
            ("--- a.rs\n x\n", "line 2: there is no hunk before it"),
            ("--- a.rs\n@@\n x\nxx\n", "line 4: begins with none of ` `, `-`, `+`"),
        ] {
            assert_eq!(edits(text).map(drop), Err(words.to_owned()), "{text}");
        }
    }

    #[test]
    fn all_hunks_are_of_lines_that_the_workspace_has_once() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let edits = Edits::read(root).unwrap();
        for path in edits.0.keys() {
            let text = fs::read_to_string(root.join(path)).unwrap();
            edits.applied(path, &text).unwrap();
            assert!(!text.contains(ASKS), "{path} asks for a bug itself");
        }
    }
}
