//! `cargo xtask bench-diff A B`: the benchmarks of two revisions, run in turns.
//!
//! Each revision is checked out into a worktree below `target/bench-diff` and built as a user builds it;
//! the program of B then runs cells of both alternately, and prints medians, spread and ratios. The
//! worktrees go away at the end, the programs stay (by commit, so that a second comparison builds only
//! what is new). Single-threaded; starts git and cargo.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What is run if nothing is asked for: it needs no key file.
const DEFAULT_ARGUMENTS: [&str; 3] = ["against-btreemap", "--case", "random8"];

/// What the task is told.
pub const USAGE: &str = "\
usage: cargo xtask bench-diff A B [--experiment E] [OPTION...]

  A, B             revisions, as git names them
  --experiment E   which experiment [default: against-btreemap, its case random8]
  OPTION           any option of `hedgerow-bench run`: --pairs N, --keys FILE, --case NAME, --size SIZE, ...";

/// What the arguments say.
#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    revisions: [String; 2],
    /// Arguments of `hedgerow-bench run`.
    run: Vec<String>,
}

/// A revision with its program.
struct Build {
    label: String,
    program: PathBuf,
}

/// Compares two revisions; 0 if all cells gave figures, 2 for wrong arguments.
pub fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let Some(arguments) = parse(arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match compare(root, &arguments) {
        Ok(code) => code,
        Err(words) => {
            eprintln!("bench-diff: {words}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Option<Arguments> {
    let [a, b, rest @ ..] = arguments else { return None };
    if a.starts_with('-') || b.starts_with('-') {
        return None;
    }
    let mut run = Vec::new();
    let mut experiments = Vec::new();
    let mut rest = rest.iter();
    while let Some(argument) = rest.next() {
        match argument.strip_prefix("--experiment") {
            Some("") => experiments.push(rest.next()?.clone()),
            Some(text) if text.starts_with('=') => experiments.push(text[1..].to_owned()),
            _ => run.push(argument.clone()),
        }
    }
    if experiments.is_empty() {
        experiments.extend(DEFAULT_ARGUMENTS.map(str::to_owned));
    }
    experiments.append(&mut run);
    Some(Arguments { revisions: [a.clone(), b.clone()], run: experiments })
}

fn compare(root: &Path, arguments: &Arguments) -> Result<ExitCode, String> {
    let place = root.join("target/bench-diff");
    std::fs::create_dir_all(&place)
        .map_err(|error| format!("cannot create {}: {error}", place.display()))?;
    let [a, b] = &arguments.revisions;
    // Both are looked up before the first is built.
    let commits = [resolve(root, a)?, resolve(root, b)?];
    let mut builds = Vec::new();
    for (name, commit) in [a, b].into_iter().zip(commits) {
        builds.push(Build { label: label(name, &commit), program: build(root, &place, &commit)? });
    }
    let record = place.join("record.jsonl");
    if record.exists() {
        std::fs::remove_file(&record)
            .map_err(|error| format!("cannot remove {}: {error}", record.display()))?;
    }
    let [_, newer] = builds.as_slice() else { return Err("two revisions are needed".into()) };
    let mut command = Command::new(&newer.program);
    command.arg("run").args(&arguments.run).arg("--out").arg(&record);
    for (letter, build) in ["A", "B"].into_iter().zip(&builds) {
        let label = format!("{letter}-{}", build.label);
        command.arg("--build").arg(format!("{label}={}", build.program.display()));
    }
    let is_clean = status(&mut command)?;
    let has_records = record.metadata().is_ok_and(|metadata| metadata.len() > 0);
    if has_records && !status(Command::new(&newer.program).arg("report").arg(&record))? {
        return Err("the records could not be reported".into());
    }
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The full name of a commit. Errors: there is no such revision, or it has no benchmarks.
fn resolve(root: &Path, revision: &str) -> Result<String, String> {
    let spec = format!("{revision}^{{commit}}");
    let commit = git(root, &["rev-parse", "--verify", "--quiet", "--end-of-options", &spec])
        .map_err(|_| format!("there is no revision `{revision}`"))?;
    let manifest = format!("{commit}:crates/bench/Cargo.toml");
    git(root, &["cat-file", "-e", &manifest]).map_err(|_| {
        format!("revision `{revision}` has no crates/bench: it is older than the benchmarks")
    })?;
    Ok(commit)
}

/// What a revision is called in tables.
fn label(name: &str, commit: &str) -> String {
    let short = &commit[..commit.len().min(10)];
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '_' };
    let name: String = name.chars().map(plain).collect();
    if commit.starts_with(&name) { short.to_owned() } else { format!("{name}-{short}") }
}

/// Builds the program of `commit`, unless it is there from an earlier comparison.
fn build(root: &Path, place: &Path, commit: &str) -> Result<PathBuf, String> {
    let program = place.join(format!("hedgerow-bench-{commit}"));
    if program.is_file() {
        return Ok(program);
    }
    let tree = Worktree::new(root, place.join(format!("tree-{commit}")), commit)?;
    // A directory for both: what they have in common is built once.
    let target = place.join("build");
    let is_built = status(
        Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["build", "--quiet", "--release", "--locked", "--package", "hedgerow-bench"])
            .arg("--manifest-path")
            .arg(tree.path.join("Cargo.toml"))
            .env("CARGO_TARGET_DIR", &target)
            .current_dir(&tree.path),
    )?;
    if !is_built {
        return Err(format!("revision {commit} does not build"));
    }
    std::fs::copy(target.join("release/hedgerow-bench"), &program)
        .map_err(|error| format!("cannot keep the program of {commit}: {error}"))?;
    Ok(program)
}

/// A checked-out revision that goes away.
struct Worktree<'a> {
    root: &'a Path,
    path: PathBuf,
}

impl<'a> Worktree<'a> {
    fn new(root: &'a Path, path: PathBuf, commit: &str) -> Result<Worktree<'a>, String> {
        // A comparison that was killed may have left it.
        if path.exists() {
            std::fs::remove_dir_all(&path)
                .map_err(|error| format!("cannot remove {}: {error}", path.display()))?;
        }
        git(root, &["worktree", "prune"])?;
        let text = path.to_string_lossy().into_owned();
        git(root, &["worktree", "add", "--quiet", "--detach", &text, commit])?;
        Ok(Worktree { root, path })
    }
}

impl Drop for Worktree<'_> {
    fn drop(&mut self) {
        let path = self.path.to_string_lossy();
        if let Err(words) = git(self.root, &["worktree", "remove", "--force", &path]) {
            eprintln!("bench-diff: {words}");
        }
    }
}

/// What git prints. Errors: what it says.
fn git(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(arguments)
        .output()
        .map_err(|error| format!("cannot start git: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(format!("git {}: {}", arguments.join(" "), words.trim()))
}

/// Whether a command succeeds.
fn status(command: &mut Command) -> Result<bool, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|error| format!("cannot start {name}: {error}"))?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Option<(Vec<String>, Vec<String>)> {
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        parse(&arguments).map(|arguments| (arguments.revisions.to_vec(), arguments.run))
    }

    #[test]
    fn options_go_to_the_program() {
        let (revisions, run) =
            parsed(&["v1", "HEAD", "--pairs", "3", "--experiment", "space"]).unwrap();
        assert_eq!(revisions, ["v1", "HEAD"]);
        assert_eq!(run, ["space", "--pairs", "3"]);
        let (_, run) = parsed(&["a", "b", "--experiment=space"]).unwrap();
        assert_eq!(run, ["space"]);
        let (_, run) = parsed(&["a", "b", "--pairs", "3"]).unwrap();
        assert_eq!(run, ["against-btreemap", "--case", "random8", "--pairs", "3"]);
        for wrong in [&[][..], &["a"], &["a", "--pairs"], &["a", "b", "--experiment"]] {
            assert_eq!(parsed(wrong), None, "{wrong:?}");
        }
    }

    /// A repository of its own, with one commit that has no benchmarks.
    fn repository() -> PathBuf {
        let path = std::env::temp_dir().join(format!("xtask-bench-diff-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        git(&path, &["init", "--quiet"]).unwrap();
        let who =
            ["-c", "user.name=t", "-c", "user.email=t@t.invalid", "-c", "commit.gpgSign=false"];
        let commit = ["commit", "--quiet", "--allow-empty", "--message", "first"];
        git(&path, &[&who[..], &commit[..]].concat()).unwrap();
        path
    }

    #[test]
    fn revisions_that_cannot_be_compared_are_told() {
        let path = repository();
        let words = resolve(&path, "no-such-revision").unwrap_err();
        assert!(words.contains("there is no revision `no-such-revision`"), "{words}");
        let words = resolve(&path, "HEAD").unwrap_err();
        assert!(words.contains("`HEAD` has no crates/bench"), "{words}");
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn labels_are_short_and_plain() {
        assert_eq!(label("HEAD~1", "0123456789abcdef"), "HEAD_1-0123456789");
        assert_eq!(label("0123456", "0123456789abcdef"), "0123456789");
    }
}
