//! `cargo xtask tidy`: the house rules that the compiler and clippy do not check.
//!
//! One file a group of rules; each rule is a function from a [`Tree`] to the findings, so that tests
//! feed it small trees written in place. Rules look at what stands in the working directory, tracked
//! or not. Single-threaded; reads files, writes nothing.

mod circles;
mod lengths;
mod modules;
mod ranks;
mod safety;
mod source;
mod surface;
#[cfg(test)]
mod tests;
mod words;

use source::Source;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Where the exceptions to the length rules stand.
const RATCHET_PATH: &str = "xtask/ratchet.txt";

/// Directories that hold nothing written by hand.
const SKIPPED_DIRS: [&str; 5] = ["target", ".git", "corpus", "artifacts", "coverage"];

/// Endings of the text files that are read; others (pictures, samples) are left alone.
const TEXT_ENDINGS: [&str; 7] = ["rs", "toml", "md", "sh", "txt", "yml", "json"];

/// The files of a workspace, by path from its root with forward slashes.
pub struct Tree {
    /// Rust files, lexed.
    pub rust: BTreeMap<String, Source>,
    /// All text files, Rust ones too.
    pub text: BTreeMap<String, String>,
    /// Earlier committed versions of the ratchet, which the present one may not exceed.
    pub older_ratchets: Vec<String>,
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path from the workspace's root.
    pub path: String,
    /// Line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// The rule's short name.
    pub rule: &'static str,
    /// What is wrong and what to do.
    pub what: String,
}

impl Tree {
    /// A tree of files given by path and text.
    pub fn from_files<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Tree {
        let mut tree =
            Tree { rust: BTreeMap::new(), text: BTreeMap::new(), older_ratchets: Vec::new() };
        for (path, text) in files {
            tree.add(path, text.to_owned());
        }
        tree
    }

    fn add(&mut self, path: &str, text: String) {
        if path.ends_with(".rs") {
            self.rust.insert(path.to_owned(), Source::new(&text, is_test_path(path)));
        }
        self.text.insert(path.to_owned(), text);
    }

    fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree::from_files([]);
        tree.read_dir(root, "")?;
        let older = ["HEAD", "HEAD~1"].map(|revision| file_at(root, revision, RATCHET_PATH));
        tree.older_ratchets = older.into_iter().flatten().collect();
        Ok(tree)
    }

    fn read_dir(&mut self, root: &Path, relative: &str) -> io::Result<()> {
        for entry in fs::read_dir(root.join(relative))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path =
                if relative.is_empty() { name.clone() } else { format!("{relative}/{name}") };
            let kind = entry.file_type()?;
            if kind.is_dir() && !SKIPPED_DIRS.contains(&name.as_str()) {
                self.read_dir(root, &path)?;
            } else if kind.is_file() && is_text(&path) {
                let bytes = fs::read(entry.path())?;
                self.add(&path, String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        Ok(())
    }
}

impl Finding {
    /// A finding in a line, counted from 0.
    fn at(path: &str, line: usize, rule: &'static str, what: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line: line + 1, rule, what: what.into() }
    }

    /// A finding about a whole file.
    fn file(path: &str, rule: &'static str, what: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line: 0, rule, what: what.into() }
    }
}

/// Checks a tree against every rule; findings come sorted by place.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    ranks::check(tree, &mut findings);
    circles::check(tree, &mut findings);
    lengths::check(tree, &mut findings);
    safety::check(tree, &mut findings);
    modules::check(tree, &mut findings);
    words::check(tree, &mut findings);
    surface::check(tree, &mut findings);
    findings.sort();
    findings
}

/// Writes the list of the engine's public surface anew.
pub fn list_surface(root: &Path) -> ExitCode {
    let written = Tree::read(root).and_then(|tree| {
        let lines: String = surface::list(&tree).iter().map(|line| format!("{line}\n")).collect();
        fs::write(root.join(surface::PATH), lines)
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidy: {}: {error}", surface::PATH);
            ExitCode::FAILURE
        }
    }
}

/// Checks the workspace at `root` and prints what is wrong.
pub fn run(root: &Path) -> ExitCode {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: cannot read {}: {error}", root.display());
            return ExitCode::FAILURE;
        }
    };
    let findings = check(&tree);
    for Finding { path, line, rule, what } in &findings {
        match line {
            0 => println!("{path}: {rule}: {what}"),
            _ => println!("{path}:{line}: {rule}: {what}"),
        }
    }
    let files = tree.rust.len();
    let lines: usize = tree.rust.values().map(|source| source.raw.len()).sum();
    if files == 0 {
        eprintln!("tidy: no Rust files under {}", root.display());
        return ExitCode::FAILURE;
    }
    for (what, lines, most) in lengths::budgets(&tree) {
        println!("tidy: {what}: {lines} lines of at most {most}");
    }
    println!("tidy: {files} Rust files, {lines} lines, {} findings", findings.len());
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn is_text(path: &str) -> bool {
    path == ".ci/run"
        || path.rsplit_once('.').is_some_and(|(_, ending)| TEXT_ENDINGS.contains(&ending))
}

/// Files that hold nothing but tests, or examples, which give up as tests do.
fn is_test_path(path: &str) -> bool {
    path.contains("/tests/")
        || path.contains("/testing/")
        || path.contains("/examples/")
        || path.ends_with("/tests.rs")
        || path.starts_with("fuzz/")
}

/// A file as a commit has it.
fn file_at(root: &Path, revision: &str, path: &str) -> Option<String> {
    let spec = format!("{revision}:{path}");
    let output = Command::new("git").arg("-C").arg(root).args(["show", &spec]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
