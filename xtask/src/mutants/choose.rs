//! Which mutants are tried, and in which order: one that makes the first so many of them a fair sample of all.
//!
//! The order is drawn from a fixed seed, so that it is the same on every machine. A share is every so-manieth of that order.

use super::copy::Mutant;
use crate::parts::PARTS;
use crate::proof::Share;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The first state of the generator that draws the order.
const SEED: u64 = 0x6865_6467_6572_6f77;

/// Those of a part, of files whose paths begin so (any if there are none), of lines that were changed, and of a share, in the order in which they are tried.
pub fn choose<'m>(
    mutants: &'m [Mutant],
    part: Option<&str>,
    paths: &[String],
    changed: Option<&Changed>,
    share: Share,
) -> Vec<&'m Mutant> {
    let mut order: Vec<&Mutant> = mutants
        .iter()
        .filter(|mutant| part.is_none_or(|name| PARTS[mutant.part].name == name))
        .filter(|mutant| {
            paths.is_empty() || paths.iter().any(|begin| mutant.path.starts_with(begin))
        })
        .filter(|mutant| changed.is_none_or(|changed| changed.has(&mutant.path, mutant.line)))
        .collect();
    let mut state = SEED;
    for last in (1..order.len()).rev() {
        let other = usize::try_from(next(&mut state) % (last as u64 + 1)).unwrap_or(last);
        order.swap(last, other);
    }
    order.into_iter().skip(share.index).step_by(share.of).collect()
}

/// Splitmix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Lines that were changed.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Changed(BTreeMap<String, BTreeSet<usize>>);

impl Changed {
    /// Those of the workspace since a revision.
    ///
    /// Errors: in words.
    pub fn since(root: &Path, revision: &str) -> Result<Changed, String> {
        let git =
            Command::new("git").arg("-C").arg(root).args(["diff", "-U0", revision, "--"]).output();
        let output = git.map_err(|error| format!("cannot start git: {error}"))?;
        match output.status.success() {
            true => Ok(Changed::read(&String::from_utf8_lossy(&output.stdout))),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    /// Of what git has said.
    fn read(diff: &str) -> Changed {
        let mut changed = Changed::default();
        let mut path = "";
        for line in diff.lines() {
            if let Some(name) = line.strip_prefix("+++ b/") {
                path = name;
            } else if let Some(hunk) = line.strip_prefix("@@ ") {
                let new = hunk.split(' ').find_map(|range| range.strip_prefix('+'));
                let (first, count) =
                    new.map_or(("", "0"), |new| new.split_once(',').unwrap_or((new, "1")));
                if let (Ok(first), Ok(count)) = (first.parse::<usize>(), count.parse::<usize>()) {
                    changed.0.entry(path.to_owned()).or_default().extend(first..first + count);
                }
            }
        }
        changed
    }

    fn has(&self, path: &str, line: usize) -> bool {
        self.0.get(path).is_some_and(|lines| lines.contains(&line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutants() -> Vec<Mutant> {
        let of = |number: u32| Mutant {
            number,
            path: "a.rs".into(),
            line: number as usize,
            part: (number % 5) as usize,
            words: String::new(),
        };
        (0..100).map(of).collect()
    }

    #[test]
    fn shares_are_apart_and_together_everything() {
        let mutants = mutants();
        let mut all: Vec<u32> = Vec::new();
        for index in 0..3 {
            let share = choose(&mutants, None, &[], None, Share { index, of: 3 });
            all.extend(share.iter().map(|mutant| mutant.number));
        }
        assert_ne!(all[..10], (0..10).collect::<Vec<u32>>());
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<u32>>());
        assert_eq!(choose(&mutants, Some("map"), &[], None, Share::ALL).len(), 20);
        for (path, chosen) in [("a", 100), ("b", 0)] {
            assert_eq!(choose(&mutants, None, &[path.into()], None, Share::ALL).len(), chosen);
        }
    }

    #[test]
    fn lines_that_were_changed_are_those_that_git_says() {
        let changed = Changed::read(
            "--- a/a.rs\n+++ b/a.rs\n@@ -1,2 +3,2 @@ fn f() {\n+x\n+y\n@@ -9 +10 @@\n+z\n@@ -20,3 +19,0 @@\n-w\n",
        );
        let mutants = mutants();
        let chosen = choose(&mutants, None, &[], Some(&changed), Share::ALL);
        let mut lines: Vec<usize> = chosen.iter().map(|mutant| mutant.line).collect();
        lines.sort_unstable();
        assert_eq!(lines, [3, 4, 10]);
    }
}
