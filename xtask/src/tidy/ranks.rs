//! Imports point down: the ranks of the engine's folders, and the seams round the standard library.
//!
//! A path that begins with `crate` or `super` is resolved to the folder of the crate that it names,
//! through inline modules, groups (`crate::{a, b::c}`) and the re-exports of the crate root. A
//! folder without a rank is a finding, so that the table below is never behind the tree.

use super::modules::mod_declaration;
use super::source::Source;
use super::{Finding, Tree};
use std::collections::BTreeMap;

/// Where the ranked crate stands.
const ENGINE: &str = "crates/hedgerow/src/";

/// The folders of the engine from the ground up; a folder may import its own rank and below.
const RANKS: [(&str, u8); 21] = [
    ("error", 1),
    ("events", 1),
    ("types", 1),
    ("key", 1),
    ("large", 1),
    ("codec", 1),
    ("checksum", 1),
    ("wait", 1),
    ("storage", 1),
    ("page", 2),
    ("space", 2),
    ("wal", 2),
    ("versions", 2),
    ("node", 3),
    ("buffer", 3),
    ("adapt", 4),
    ("tree", 5),
    ("store", 6),
    ("txn", 6),
    ("database", 7),
    (TESTING, 7),
];

/// Helpers of tests: they may import anything, and only tests may import them.
const TESTING: &str = "testing";

/// Folders of one rank that know nothing of each other: `node` is bytes without latch or I/O,
/// `buffer` is frames without layout.
const STRANGERS: [(&str, &str); 1] = [("node", "buffer")];

/// What a folder may import only in these files: pages and frames are read and understood without the log and without large values.
const ONLY_IN: [(&str, &str, &[&str]); 8] = [
    ("node", "wal", &[]),
    ("node", "versions", &[]),
    ("node", "space", &[]),
    ("node", "large", &["anatomy.rs"]),
    ("page", "wal", &["journal.rs"]),
    ("page", "space", &[]),
    ("page", "large", &[]),
    ("buffer", "wal", &["budget.rs", "entry.rs", "order.rs", "page_pool.rs"]),
];

/// Parts of the standard library that only the seams may touch.
const SEAMED: [&str; 4] = ["sync", "thread", "time", "fs"];
/// Plain values in there that have no behaviour to hide.
const PLAIN_VALUES: [&[&str]; 3] =
    [&["time", "Duration"], &["sync", "atomic", "Ordering"], &["thread", "panicking"]];
/// The seams themselves; `parking` is the lot of waiting threads, and the bytes that `optimistic`
/// reads are no part of any model.
const SEAMS: [&str; 5] = [
    "crates/sync/src/primitive/",
    "crates/sync/src/primitive.rs",
    "crates/sync/src/parking.rs",
    "crates/sync/src/optimistic/",
    "crates/hedgerow/src/storage/",
];

/// Reports imports that point up, and what goes round a seam.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let exports = root_exports(tree);
    for (path, source) in &tree.rust {
        if let Some(inside) = path.strip_prefix(ENGINE) {
            let module = module_path(inside);
            if let Some(own) = module.first().cloned() {
                check_file(path, source, &module, &own, &exports, findings);
            }
        }
        let is_seamed = path.starts_with(ENGINE) || path.starts_with("crates/sync/src/");
        if is_seamed && !SEAMS.iter().any(|seam| path.starts_with(seam)) {
            check_seams(path, source, findings);
        }
    }
}

fn rank(folder: &str) -> Option<u8> {
    RANKS.iter().find(|(name, _)| *name == folder).map(|&(_, rank)| rank)
}

fn check_file(
    path: &str,
    source: &Source,
    module: &[String],
    own: &str,
    exports: &BTreeMap<String, String>,
    findings: &mut Vec<Finding>,
) {
    let Some(own_rank) = rank(own) else {
        let what = format!("folder `{own}` has no rank; give it one in the table of tidy");
        findings.push(Finding::file(path, "rank", what));
        return;
    };
    for import in imports(source, module) {
        let Some(first) = import.path.first() else { continue };
        let folder = exports.get(first).unwrap_or(first).as_str();
        if folder == own {
            continue;
        }
        let is_stranger =
            |(a, b): &(&str, &str)| (*a == own && *b == folder) || (*b == own && *a == folder);
        let what = match rank(folder) {
            None => {
                format!("`{first}` is no ranked folder; import from the module that defines it")
            }
            Some(_) if folder == TESTING && source.in_test[import.line] => continue,
            Some(_) if folder == TESTING => format!("`{own}` imports `{TESTING}` outside tests"),
            Some(r) if r > own_rank => {
                format!("`{own}` (rank {own_rank}) imports `{folder}` (rank {r})")
            }
            Some(_) if STRANGERS.iter().any(is_stranger) => {
                format!("`{own}` and `{folder}` may not know each other")
            }
            Some(_) if is_foreign(path, own, folder) && !source.in_test[import.line] => {
                format!("this file of `{own}` may not import `{folder}`; see `ONLY_IN` in tidy")
            }
            Some(_) => continue,
        };
        findings.push(Finding::at(path, import.line, "rank", what));
    }
}

/// Whether a folder is one that only other files of this one may import.
fn is_foreign(path: &str, own: &str, folder: &str) -> bool {
    let inside = path.strip_prefix(ENGINE).and_then(|path| path.strip_prefix(own));
    let file = inside.map_or("", |file| file.trim_start_matches('/'));
    ONLY_IN.iter().any(|(a, b, files)| *a == own && *b == folder && !files.contains(&file))
}

fn check_seams(path: &str, source: &Source, findings: &mut Vec<Finding>) {
    for (line, rest) in word_positions(source, "std") {
        if source.in_test[line] {
            continue;
        }
        for found in use_paths(rest) {
            let inner: Vec<&str> = found.iter().skip(1).map(String::as_str).collect();
            let is_seamed = inner.first().is_some_and(|first| SEAMED.contains(first));
            if is_seamed && !PLAIN_VALUES.iter().any(|plain| inner.starts_with(plain)) {
                let what = format!("`std::{}` goes round its seam", inner.join("::"));
                findings.push(Finding::at(path, line, "seam", what));
            }
        }
    }
}

/// A path that starts at the crate's root.
pub struct Import {
    /// Where it begins, from 0.
    pub line: usize,
    /// Its segments, without `crate`.
    pub path: Vec<String>,
}

/// Every path through `crate` or `super`, resolved from the crate's root.
pub fn imports(source: &Source, module: &[String]) -> Vec<Import> {
    let inline = inline_modules(source);
    let mut found = Vec::new();
    for (line, rest) in word_positions(source, "crate") {
        for path in use_paths(rest) {
            if path.len() > 1 {
                found.push(Import { line, path: path[1..].to_vec() });
            }
        }
    }
    for (line, rest) in word_positions(source, "super") {
        for path in use_paths(rest) {
            let supers = path.iter().take_while(|segment| *segment == "super").count();
            let mut from = module.to_vec();
            from.extend(inline[line].iter().cloned());
            from.truncate(from.len().saturating_sub(supers));
            from.extend(path.into_iter().skip(supers));
            if supers > 0 {
                found.push(Import { line, path: from });
            }
        }
    }
    found
}

/// Places where `word` begins a path, with the code from there on. A `super` after another `super`
/// belongs to the first.
fn word_positions<'a>(source: &'a Source, word: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, code) in source.code.iter().enumerate() {
        let mut from = 0;
        while let Some(offset) = code[from..].find(word) {
            let at = from + offset;
            from = at + word.len();
            let before = code[..at].chars().next_back();
            let after = code[from..].trim_start();
            let is_start = !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':');
            if is_start && after.starts_with("::") {
                let following = source.code[line + 1..].iter().take(60);
                let tail: Vec<&'a str> = following.map(String::as_str).collect();
                found.push((line, format!("{}\n{}", &code[at..], tail.join("\n"))));
            }
        }
    }
    found
}

/// The paths that the text begins with: `a::b::{c, d::e}` gives `a b c` and `a b d e`.
pub fn use_paths(text: String) -> Vec<Vec<String>> {
    let chars: Vec<char> = text.chars().collect();
    let mut paths = Vec::new();
    let mut at = 0;
    parse_use_tree(&chars, &mut at, &mut Vec::new(), &mut paths);
    paths
}

fn parse_use_tree(
    chars: &[char],
    at: &mut usize,
    prefix: &mut Vec<String>,
    paths: &mut Vec<Vec<String>>,
) {
    skip_blank(chars, at);
    match chars.get(*at) {
        Some('{') => {
            *at += 1;
            loop {
                skip_blank(chars, at);
                match chars.get(*at) {
                    None | Some('}') => break,
                    Some(',') => *at += 1,
                    Some(c) if is_word(*c) || matches!(c, '*' | '{') => {
                        parse_use_tree(chars, at, &mut prefix.clone(), paths);
                    }
                    // Something that is no import after all: stop at what is known.
                    Some(_) => return,
                }
            }
            *at += 1;
        }
        Some('*') => {
            *at += 1;
            prefix.push("*".to_owned());
            paths.push(prefix.clone());
        }
        Some(&c) if is_word(c) => {
            let start = *at;
            while chars.get(*at).is_some_and(|&c| is_word(c)) {
                *at += 1;
            }
            prefix.push(chars[start..*at].iter().collect());
            skip_blank(chars, at);
            if chars.get(*at) == Some(&':') && chars.get(*at + 1) == Some(&':') {
                *at += 2;
                parse_use_tree(chars, at, prefix, paths);
            } else {
                paths.push(prefix.clone());
                skip_alias(chars, at);
            }
        }
        _ => paths.push(prefix.clone()),
    }
}

fn skip_alias(chars: &[char], at: &mut usize) {
    if chars[*at..].starts_with(&['a', 's', ' ']) {
        *at += 3;
        while chars.get(*at).is_some_and(|&c| is_word(c)) {
            *at += 1;
        }
    }
}

fn skip_blank(chars: &[char], at: &mut usize) {
    while chars.get(*at).is_some_and(|c| c.is_whitespace()) {
        *at += 1;
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `tree/scan.rs` is `tree::scan`, `tree/mod.rs` is `tree`, `lib.rs` is the root.
pub fn module_path(inside: &str) -> Vec<String> {
    let mut path: Vec<String> =
        inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if path.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        path.pop();
    }
    path
}

/// For each line the inline modules that it lies in, outermost first.
fn inline_modules(source: &Source) -> Vec<Vec<String>> {
    let mut open: Vec<(String, usize)> = Vec::new();
    let mut depth = 0usize;
    let mut lines = Vec::with_capacity(source.code.len());
    for code in &source.code {
        if let Some((name, true)) = mod_declaration(code) {
            open.push((name.to_owned(), depth));
        }
        lines.push(open.iter().map(|(name, _)| name.clone()).collect());
        for c in code.chars() {
            match c {
                '{' => depth += 1,
                '}' => {
                    depth = depth.saturating_sub(1);
                    open.retain(|&(_, opened_at)| opened_at < depth);
                }
                _ => {}
            }
        }
    }
    lines
}

/// Names that the crate root re-exports, with the folder that each comes from.
fn root_exports(tree: &Tree) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    let Some(root) = tree.rust.get(&format!("{ENGINE}lib.rs")) else { return exports };
    let code = root.code_text();
    for statement in code.split(';') {
        let Some(at) = statement.rfind("pub use ") else { continue };
        for path in use_paths(statement[at + "pub use ".len()..].to_owned()) {
            let from_root: Vec<_> = path.iter().skip_while(|s| *s == "crate").collect();
            if let (Some(first), Some(last)) = (from_root.first(), from_root.last()) {
                exports.insert((*last).clone(), (*first).clone());
            }
        }
    }
    exports
}
