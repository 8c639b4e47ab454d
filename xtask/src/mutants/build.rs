//! Builds the test programs that have all mutants, without those that do not compile.
//!
//! The compiler says which those are: what it complains of is left out, and it is asked again, until it is content. What was
//! left out is remembered for as long as the sources are the same. Checked is the library first, because that takes least. Starts
//! cargo, which builds below `place`; one caller at a time.

use super::copy::{self, Mutants, SWITCH_PACKAGE};
use crate::{test_programs, workspace};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How a test program is built.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// As `cargo test` does.
    Plain,
    /// With loom's primitives, optimised, in a folder of its own.
    Models,
}

/// Each package, and its test programs: the library's own tests, or the name of one beside it.
const PROGRAMS: [(&str, Kind, &[&str]); 4] = [
    ("hedgerow-sync", Kind::Plain, &["lib"]),
    ("hedgerow", Kind::Plain, &["lib", "engine"]),
    ("hedgerow-sync", Kind::Models, &["loom"]),
    ("hedgerow", Kind::Models, &["loom"]),
];
/// How often the compiler is asked at most.
const TRIES: usize = 40;

/// A test program.
#[derive(Clone, Debug)]
pub struct Program {
    /// Package and target.
    pub name: String,
    /// Where it lies.
    pub path: PathBuf,
    /// Where its tests are run.
    pub folder: PathBuf,
    /// The folder of the crate whose models they are, if they are any.
    pub models_of: Option<&'static str>,
}

/// Builds them in the copy at `place`, or those alone that are of the libraries themselves; what does not compile is noted in `mutants`.
///
/// Errors: in words.
pub fn build(
    root: &Path,
    place: &Path,
    mutants: &mut Mutants,
    units_alone: bool,
) -> Result<Vec<Program>, String> {
    let files = workspace::files(root)?;
    let tree = place.join("tree");
    copy::copy(root, &tree, &files)?;
    let memory = place.join("unviable.txt");
    if let Some(known) = remembered(&memory, mutants.mark()) {
        mutants.unviable = known;
    }
    let programs_of = PROGRAMS.iter().filter(|(_, kind, _)| *kind == Kind::Plain || !units_alone);
    for (package, kind, _) in programs_of.clone() {
        until_content(place, mutants, *kind, &["check", "--lib", "-p", package])?;
    }
    let lines: Vec<String> = mutants.unviable.iter().map(u32::to_string).collect();
    let text = format!("{}\n{}\n", mutants.mark(), lines.join("\n"));
    workspace::write(&memory, text.as_bytes())?;
    let mut programs = Vec::new();
    for (package, kind, names) in programs_of {
        let names = names.iter().copied().filter(|name| *name == "lib" || !units_alone);
        // With the features of all, what both need is built once.
        let options: &[&str] = if *kind == Kind::Models { &["--release"] } else { &[] };
        let built = test_programs::build_tests(cargo(place, *kind), package, names, options)?;
        let folder = match *package {
            "hedgerow-sync" => "crates/sync/",
            _ => "crates/hedgerow/",
        };
        programs.extend(built.into_iter().map(|(name, path)| Program {
            name: format!("{package}/{name}"),
            path,
            folder: tree.join(folder),
            models_of: (*kind == Kind::Models).then_some(folder),
        }));
    }
    Ok(programs)
}

/// Writes the files, has the compiler look at them, and leaves out what it complains of, until there is nothing.
fn until_content(
    place: &Path,
    mutants: &mut Mutants,
    kind: Kind,
    options: &[&str],
) -> Result<(), String> {
    for _ in 0..TRIES {
        let rewritten = mutants.rewritten();
        for (path, file) in &rewritten {
            workspace::write(&place.join("tree").join(path), file.text.as_bytes())?;
        }
        let output = cargo(place, kind)
            .args(options)
            .args(["--locked", "--quiet", "--message-format=json,json-diagnostic-short"])
            .stderr(Stdio::piped())
            .output()
            .map_err(|error| format!("cannot start cargo: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let by_path: BTreeMap<&str, _> =
            rewritten.iter().map(|(path, file)| (*path, file)).collect();
        let mut meant = BTreeSet::new();
        for (path, line, column) in complaints(&said) {
            if let Some(file) = by_path.get(&*path) {
                meant.extend(file.meant(line, column));
            }
        }
        if meant.is_subset(&mutants.unviable) {
            let errors = String::from_utf8_lossy(&output.stderr);
            let said = errors_of(&said).collect::<Vec<_>>().join("\n");
            return Err(format!(
                "the copy does not build, whatever is left out:\n{said}\n{errors}"
            ));
        }
        drop(rewritten);
        println!("left out of {}: {} that do not compile", options.join(" "), meant.len());
        mutants.unviable.extend(meant);
    }
    Err(format!("the copy does not build after {TRIES} tries"))
}

fn cargo(place: &Path, kind: Kind) -> Command {
    // What a mutant makes of a constant is no reason not to build it.
    let (folder, flags) = match kind {
        Kind::Plain => ("build", "--cap-lints=allow"),
        Kind::Models => ("build-models", "--cap-lints=allow --cfg loom"),
    };
    let mut cargo = test_programs::cargo(&place.join("tree"), &place.join(folder), Some(flags));
    cargo
        .env("RUSTC_BOOTSTRAP", SWITCH_PACKAGE)
        // A build that was broken off leaves nothing half behind.
        .env("CARGO_INCREMENTAL", "0")
        .envs([("CARGO_PROFILE_TEST_DEBUG", "none"), ("CARGO_PROFILE_DEV_DEBUG", "none")])
        .env_remove(copy::CHOSEN)
        .env_remove(copy::REACHED);
    cargo
}

/// The short form of each error that the compiler told.
fn errors_of(said: &str) -> impl Iterator<Item = String> {
    said.lines().filter(|line| line.contains("\"level\":\"error\"")).flat_map(|line| {
        let rendered = line.split_once("\"rendered\":\"").map_or("", |(_, rest)| rest);
        let end = rendered.find("\\n").unwrap_or(rendered.len());
        Some(rendered[..end].to_owned())
    })
}

/// Where each error is that the compiler told: `path:line:column: error...`.
fn complaints(said: &str) -> Vec<(String, usize, usize)> {
    let parse = |error: String| {
        let mut fields = error.split(':');
        let path = fields.next()?.to_owned();
        Some((path, fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    errors_of(said).filter_map(parse).collect()
}

/// What was left out the last time, if the sources are those of then.
fn remembered(path: &Path, mark: u64) -> Option<BTreeSet<u32>> {
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines();
    (lines.next()? == mark.to_string())
        .then(|| lines.filter_map(|line| line.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_have_a_place() {
        let said = concat!(
            "{\"reason\":\"compiler-message\",\"message\":{\"rendered\":\"crates/a/src/b.rs:3:17: error[E0369]: no\\n\",\"level\":\"error\"}}\n",
            "{\"reason\":\"compiler-message\",\"message\":{\"rendered\":\"crates/a/src/b.rs:4:1: warning: w\\n\",\"level\":\"warning\"}}\n",
            "{\"reason\":\"compiler-message\",\"message\":{\"rendered\":\"error: aborting due to 1 previous error\\n\",\"level\":\"error\"}}\n",
        );
        assert_eq!(complaints(said), [("crates/a/src/b.rs".to_owned(), 3, 17)]);
    }

    #[test]
    fn what_was_left_out_is_remembered_while_the_sources_are_the_same() {
        let path = std::env::temp_dir().join(format!("xtask-unviable-{}", std::process::id()));
        fs::write(&path, "7\n1\n30\n").unwrap();
        assert_eq!(remembered(&path, 7), Some(BTreeSet::from([1, 30])));
        assert_eq!(remembered(&path, 8), None);
        fs::remove_file(&path).unwrap();
        assert_eq!(remembered(&path, 7), None);
    }
}
