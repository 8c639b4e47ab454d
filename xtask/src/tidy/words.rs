//! Words and characters that do not belong into the tree.
//!
//! Leftover markers, `unwrap` outside tests, paths of one machine, decoration, and characters that
//! are invisible or look like others. The patterns are put together from pieces, so that this file
//! does not find itself.

use super::{Finding, Tree};

/// Markers of unfinished work; looked for in code and comments, not in literals.
pub const MARKERS: [&str; 9] = [
    concat!("todo", "!("),
    concat!("unimple", "mented!("),
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
    concat!("dbg", "!("),
    concat!("for ", "now"),
    // Seeded bugs are hunks of a diff, and no lines of the source.
    concat!("leaves", "_out("),
];

/// Beginnings of paths that exist on one machine only.
const MACHINE_PATHS: [&str; 5] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/fa", "rm/"),
    concat!("/Us", "ers/"),
];

/// Signs beyond ASCII that are allowed anywhere in text.
const SIGNS: &str = "§°±²³µ·×÷–≈≠≤≥→←↔∈∞…";

/// Longest run of one decoration character in a comment.
const DECORATION_RUN: usize = 5;

/// Reports leftovers, strange characters, decoration and unwraps.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, source) in &tree.rust {
        for line in 0..source.raw.len() {
            let (code, comment) = (&source.code[line], &source.comment[line]);
            for marker in MARKERS {
                if contains_word(code, marker) || contains_word(comment, marker) {
                    let what = format!("`{}` is left over", marker.trim_end_matches('('));
                    findings.push(Finding::at(path, line, "leftover", what));
                }
            }
            if has_decoration(comment) {
                findings.push(Finding::at(path, line, "decoration", "words, not banners"));
            }
            if code.contains(".unwrap()") && !source.in_test[line] {
                let what = "return the error, or `expect` the invariant that rules it out";
                findings.push(Finding::at(path, line, "unwrap", what));
            }
        }
    }
    for (path, text) in &tree.text {
        for (line, words) in text.lines().enumerate() {
            for place in MACHINE_PATHS.iter().filter(|place| words.contains(*place)) {
                let what = format!("`{place}..` exists on one machine only");
                findings.push(Finding::at(path, line, "machine-path", what));
            }
            if let Some(strange) = words.chars().find(|&c| !is_plain(c)) {
                let what = format!("U+{:04X} is not a plain character", strange as u32);
                findings.push(Finding::at(path, line, "character", what));
            }
        }
    }
}

/// Whether `text` holds `marker`, not as a part of a longer word.
fn contains_word(text: &str, marker: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(marker).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + marker.len()..].chars().next();
        !before.is_some_and(is_word) && (marker.ends_with('(') || !after.is_some_and(is_word))
    })
}

/// A run of dashes, stars and the like; a table of a Markdown comment has bars beside them.
fn has_decoration(comment: &str) -> bool {
    if comment.contains('|') || comment.contains('+') {
        return false;
    }
    let body = comment.trim_start_matches(['/', '!']).trim();
    ['-', '=', '*', '#', '~', '_', '/'].iter().any(|&c| {
        let run: String = std::iter::repeat_n(c, DECORATION_RUN).collect();
        body.contains(&run)
    })
}

/// ASCII, letters of European names, the signs above, and blocks that charts are drawn with.
fn is_plain(c: char) -> bool {
    matches!(c, '\t' | ' '..='~' | '\u{c0}'..='\u{17f}' | '\u{2500}'..='\u{259f}')
        || SIGNS.contains(c)
}
