//! Lengths of files and functions, and the ratchet that lists what is longer.
//!
//! A file over [`MAX_FILE_LINES`] or a function over [`MAX_FN_LINES`] fails unless the ratchet names
//! it with exactly its present length. So the list follows the code down, a line of it that is no
//! longer needed fails too, and it may not exceed what an earlier commit allowed.

use super::source::{Source, item_end};
use super::{Finding, RATCHET_PATH, Tree};
use std::collections::BTreeMap;

/// Longest file without an exception, in lines.
pub const MAX_FILE_LINES: usize = 700;
/// Longest function without an exception, in lines from its `fn` to its closing brace.
pub const MAX_FN_LINES: usize = 100;

/// What the engine may have without its tests, and `xtask` with them, in lines: little more than they had at the end of November 2026. The aim
/// was 40,000 and 9,000 for what revision 95ca20c had in 46,600 and 12,600; two fifths of what the engine has now are in files that are new since.
const BUDGETS: [(&str, &str, usize); 2] =
    [("engine without tests", "crates/hedgerow/src/", 75_180), ("xtask", "xtask/src/", 12_000)];

/// What is counted as a whole, its lines, and how many it may have. Of the engine, tests do not count.
pub fn budgets(tree: &Tree) -> Vec<(&'static str, usize, usize)> {
    let lines = |folder: &str| {
        let files = tree.rust.iter().filter(|(path, _)| path.starts_with(folder));
        let counted = files.map(|(_, source)| match folder {
            "xtask/src/" => source.raw.len(),
            _ => source.in_test.iter().filter(|is_test| !**is_test).count(),
        });
        counted.sum()
    };
    BUDGETS.iter().map(|&(what, folder, most)| (what, lines(folder), most)).collect()
}

/// Reports what is too long, and each line of the ratchet that is not exact.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let text = tree.text.get(RATCHET_PATH).map_or("", String::as_str);
    let mut allowed = parse(text, findings);
    let older: Vec<_> = tree.older_ratchets.iter().map(|old| parse(old, &mut Vec::new())).collect();
    for ((what, lines), at) in allowed.iter().map(|(what, &(lines, at))| ((what, lines), at)) {
        for old in &older {
            if old.get(what).is_none_or(|&(before, _)| before < lines) {
                let message =
                    format!("`{what} {lines}` is new or larger; the list may only shrink");
                findings.push(Finding::at(RATCHET_PATH, at, "ratchet", message));
                break;
            }
        }
    }
    for (path, source) in &tree.rust {
        let lines = source.raw.len();
        judge(&mut allowed, path, path.clone(), (lines, MAX_FILE_LINES), 0, findings);
        for (name, start, lines) in functions(source) {
            let what = format!("{path}::{name}");
            judge(&mut allowed, path, what, (lines, MAX_FN_LINES), start + 1, findings);
        }
    }
    for (what, lines, most) in budgets(tree) {
        if lines > most {
            let message = format!("{what}: {lines} lines, the budget is {most}");
            findings.push(Finding::file(RATCHET_PATH, "budget", message));
        }
    }
    for (what, (_, at)) in allowed {
        let message = format!("`{what}` is within the limit or gone; remove the line");
        findings.push(Finding::at(RATCHET_PATH, at, "ratchet", message));
    }
}

fn judge(
    allowed: &mut BTreeMap<String, (usize, usize)>,
    path: &str,
    what: String,
    (lines, limit): (usize, usize),
    line: usize,
    findings: &mut Vec<Finding>,
) {
    if lines <= limit {
        return;
    }
    match allowed.remove(&what) {
        Some((listed, _)) if listed == lines => {}
        Some((listed, at)) => {
            let message = format!("`{what}` has {lines} lines, listed are {listed}");
            findings.push(Finding::at(RATCHET_PATH, at, "ratchet", message));
        }
        None => findings.push(Finding {
            path: path.to_owned(),
            line,
            rule: "length",
            what: format!("`{what}` has {lines} lines, the limit is {limit}"),
        }),
    }
}

/// `name lines` a line; `#` starts a comment. Gives each name its lines and where it stands.
fn parse(text: &str, findings: &mut Vec<Finding>) -> BTreeMap<String, (usize, usize)> {
    let mut allowed = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let parsed = line.rsplit_once(' ').and_then(|(name, n)| Some((name, n.parse().ok()?)));
        match parsed {
            Some((name, lines)) => {
                allowed.insert(name.to_owned(), (lines, at));
            }
            None => findings.push(Finding::at(RATCHET_PATH, at, "ratchet", "not `name lines`")),
        }
    }
    allowed
}

/// Functions with a body: name, first line from 0, number of lines.
fn functions(source: &Source) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for (line, code) in source.code.iter().enumerate() {
        let Some(name) = fn_name(code) else { continue };
        let end = item_end(&source.code, line);
        found.push((name.to_owned(), line, end - line + 1));
    }
    found
}

/// The name in `fn name`, not in the pointer type `fn(..)`.
fn fn_name(code: &str) -> Option<&str> {
    let mut rest = code;
    loop {
        let at = rest.find("fn ")?;
        let starts_word = !rest[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        rest = &rest[at + 3..];
        let len = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        if starts_word && len > 0 {
            return Some(&rest[..len]);
        }
    }
}
