//! What a record of coverage says of each file, in the text format of LCOV.
//!
//! A record has a section for each file and, if several programs were merged, may name a branch more than once: it is taken if any of
//! them has taken it. Left out: files of tests, and in others what stands below `#[cfg(test)]` at the end; assertions, of which no
//! test can take the other side; and lines that ask for a seeded bug or a forced moment, which is a constant there. Invariant: what cannot be read is an
//! error. Reads sources; plain values otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Branches, and those of them that were taken.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// All.
    pub branches: usize,
    /// Those that a test has taken.
    pub taken: usize,
}

impl Tally {
    /// Those that no test has taken.
    pub fn missed(self) -> usize {
        self.branches - self.taken
    }

    /// Of a hundred, how many were taken; all of none.
    pub fn percent(self) -> f64 {
        match self.branches {
            0 => 100.0,
            all => 100.0 * self.taken as f64 / all as f64,
        }
    }
}

/// A file of the workspace.
#[derive(Debug)]
pub struct File {
    /// From the workspace's directory on.
    pub path: String,
    /// Whether each branch was taken, by its line, its block and its number.
    branches: BTreeMap<(u32, u32, u32), bool>,
}

impl File {
    /// What was taken of it.
    pub fn tally(&self) -> Tally {
        let taken = self.branches.values().filter(|is_taken| **is_taken).count();
        Tally { branches: self.branches.len(), taken }
    }

    /// Lines that have a branch which nothing takes.
    pub fn missed_lines(&self) -> BTreeSet<u32> {
        let missed = self.branches.iter().filter(|(_, is_taken)| !**is_taken);
        missed.map(|((line, ..), _)| *line).collect()
    }
}

/// The files of the workspace that are not there for tests, in the order of their paths.
///
/// Errors: in words, if it is no such record.
pub fn files(record: &str, root: &Path) -> Result<Vec<File>, String> {
    let mut files: BTreeMap<String, File> = BTreeMap::new();
    // Of the section that is being read: its path, and the lines that count.
    let mut section: Option<(String, Counted)> = None;
    for line in record.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let within = Path::new(path).strip_prefix(root).ok().and_then(Path::to_str);
            section = within.filter(|path| !is_of_tests(path)).map(|path| {
                let text = fs::read_to_string(root.join(path)).unwrap_or_default();
                (path.to_owned(), Counted::of(&text))
            });
        } else if line == "end_of_record" {
            section = None;
        } else if let (Some(numbers), Some((path, counted))) =
            (line.strip_prefix("BRDA:"), &section)
        {
            let (place, is_taken) =
                branch(numbers).ok_or_else(|| format!("`{line}` says nothing of a branch"))?;
            if counted.has(place.0) {
                let file = files
                    .entry(path.clone())
                    .or_insert_with(|| File { path: path.clone(), branches: BTreeMap::new() });
                *file.branches.entry(place).or_default() |= is_taken;
            }
        }
    }
    Ok(files.into_values().collect())
}

/// Line, block and number of a branch, and whether it was taken.
fn branch(numbers: &str) -> Option<((u32, u32, u32), bool)> {
    let mut parts = numbers.split(',');
    let mut number = || parts.next()?.parse::<u32>().ok();
    let place = (number()?, number()?, number()?);
    let count = parts.next()?;
    // `-`: the code in front of it was never reached.
    let is_taken = count != "-" && count.parse::<u64>().ok()? > 0;
    parts.next().is_none().then_some((place, is_taken))
}

fn is_of_tests(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.contains("/testing/src/")
}

/// The lines of a file whose branches count.
struct Counted {
    /// The line from which on there are tests alone.
    tests_begin: u32,
    left_out: BTreeSet<u32>,
}

impl Counted {
    fn of(text: &str) -> Self {
        let lines: Vec<&str> = text.lines().collect();
        let is_begin = |pair: &[&str]| {
            pair[0].starts_with("#[cfg(")
                && pair[0].contains("test")
                && pair[1].starts_with("mod tests {")
        };
        let at = lines.windows(2).position(is_begin);
        let tests_begin = at.map_or(u32::MAX, |at| at as u32 + 1);
        let mut left_out = BTreeSet::new();
        // Parentheses of an assertion that are still open.
        let mut open = 0;
        for (number, line) in (1..).zip(&lines) {
            let begins = line.trim_start();
            let is_assertion = ["assert", "debug_assert"]
                .into_iter()
                .filter_map(|name| begins.strip_prefix(name))
                .any(|rest| ["!(", "_eq!(", "_ne!("].iter().any(|end| rest.starts_with(end)));
            if open > 0 || is_assertion {
                open += line.matches('(').count() as i64 - line.matches(')').count() as i64;
                left_out.insert(number);
            }
            if line.contains("leaves_out(\"") || line.contains("buggify(Point::") {
                left_out.insert(number);
            }
        }
        Self { tests_begin, left_out }
    }

    fn has(&self, line: u32) -> bool {
        line < self.tests_begin && !self.left_out.contains(&line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_taken_if_any_program_has_taken_it() {
        let text = "SF:/w/crates/a/src/b.rs\nDA:3,1\nBRDA:3,0,0,5\nBRDA:3,0,1,0\nBRDA:9,0,0,-\nend_of_record\n\
                    SF:/w/crates/a/src/b.rs\nBRDA:3,0,1,2\nend_of_record\n";
        let files = files(text, Path::new("/w")).unwrap();
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].path, "crates/a/src/b.rs");
        assert_eq!(files[0].tally(), Tally { branches: 3, taken: 2 });
        assert_eq!(files[0].missed_lines(), BTreeSet::from([9]));
        assert!((files[0].tally().percent() - 66.67).abs() < 0.01);
    }

    #[test]
    fn what_is_not_of_the_workspace_or_there_for_tests_is_left_out() {
        for path in [
            "/elsewhere/b.rs",
            "/w/a/src/tests.rs",
            "/w/a/tests/b.rs",
            "/w/crates/testing/src/b.rs",
        ] {
            let text = format!("SF:{path}\nBRDA:3,0,0,5\nend_of_record\n");
            assert!(files(&text, Path::new("/w")).unwrap().is_empty(), "{path}");
        }
        let begin = |text: &str| Counted::of(text).tests_begin;
        assert_eq!(begin("fn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n"), 3);
        assert_eq!(begin("fn a() {}\n#[cfg(all(test, not(loom)))]\nmod tests {\n}\n"), 2);
        assert_eq!(begin("#[cfg(test)]\nmod tests;\nfn a() {}\n"), u32::MAX);
    }

    #[test]
    fn assertions_and_questions_for_seeded_bugs_and_forced_moments_are_left_out() {
        let text = "if a {}\nassert!(b && c);\nif d {}\ndebug_assert_eq!(\n  f(a && b),\n  c,\n);\n\
                    if e && !leaves_out(\"x\") {}\nasserted(a && b);\n\
                    if f && !buggify(Point::Busy) {}\n";
        let counted = Counted::of(text);
        let has: Vec<u32> = (1..=10).filter(|&line| counted.has(line)).collect();
        assert_eq!(has, [1, 3, 9]);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for line in ["BRDA:3,0,0", "BRDA:3,0,0,many", "BRDA:3,0,0,1,1", "BRDA:"] {
            let text = format!("SF:/w/a/src/b.rs\n{line}\nend_of_record\n");
            let words = files(&text, Path::new("/w")).unwrap_err();
            assert!(words.contains(line), "{words}");
        }
    }
}
