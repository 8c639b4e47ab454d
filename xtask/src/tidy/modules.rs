//! Files as modules: each opens with what it is, and each is reached by a `mod`.

use super::{Finding, Tree};
use std::collections::BTreeSet;

/// Reports files without a head, and files that no `mod` declares.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, source) in &tree.rust {
        let first = source.raw.iter().find(|line| !line.trim().is_empty() && !is_prelude(line));
        if !first.is_some_and(|line| line.starts_with("//!")) {
            let what = "open the file with `//!`: what it is, its invariants, its thread-safety";
            findings.push(Finding::file(path, "head", what));
        }
    }
    let reached = reached_files(tree);
    for path in tree.rust.keys().filter(|path| !reached.contains(*path)) {
        findings.push(Finding::file(path, "dead-file", "no `mod` declares this file"));
    }
}

/// What may stand before the head: the shebang and attributes that fuzz targets begin with.
fn is_prelude(line: &str) -> bool {
    line.starts_with("#!")
}

/// Every file that some crate root reaches through `mod` declarations.
fn reached_files(tree: &Tree) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut pending: Vec<String> =
        tree.rust.keys().filter(|path| is_root(tree, path)).cloned().collect();
    while let Some(path) = pending.pop() {
        if !reached.insert(path.clone()) {
            continue;
        }
        pending.extend(declared_files(tree, &path));
    }
    reached
}

/// Whether cargo takes this file as the root of a crate.
fn is_root(tree: &Tree, path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if matches!(name, "build.rs") {
        return true;
    }
    if matches!(name, "main.rs" | "lib.rs") {
        let above = folder.rsplit_once('/').map_or("", |(above, _)| above);
        let is_target = is_target_folder(folder) || is_target_folder(above);
        return is_target || folder.ends_with("src") || above.ends_with("src/bin");
    }
    if folder.ends_with("/src/bin") || is_target_folder(folder) {
        return true;
    }
    // A manifest above may name it as the path of a target.
    tree.text.iter().any(|(manifest, text)| {
        manifest.strip_suffix("Cargo.toml").is_some_and(|base| {
            path.strip_prefix(base).is_some_and(|rest| text.contains(&format!("path = \"{rest}\"")))
        })
    })
}

/// `tests`, `benches`, `examples` right beside a manifest's `src`: each file there is a crate.
fn is_target_folder(folder: &str) -> bool {
    let (above, name) = folder.rsplit_once('/').unwrap_or(("", folder));
    matches!(name, "tests" | "benches" | "examples") && !above.contains("/src")
}

/// Files that `path` declares by `mod name;`, in whichever of the two places they stand.
fn declared_files(tree: &Tree, path: &str) -> Vec<String> {
    let Some(source) = tree.rust.get(path) else { return Vec::new() };
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.trim_end_matches(".rs");
    let base = if matches!(stem, "mod" | "lib" | "main") || is_root(tree, path) {
        folder.to_owned()
    } else {
        format!("{folder}/{stem}")
    };
    let mut files = Vec::new();
    let mut inline: Vec<(String, usize)> = Vec::new();
    let mut depth = 0usize;
    let mut named_path: Option<String> = None;
    for (line, code) in source.code.iter().enumerate() {
        if code.trim_start().starts_with("#[path") {
            named_path = source.raw[line].split('"').nth(1).map(str::to_owned);
        }
        if let Some((module, is_inline)) = mod_declaration(code) {
            if is_inline {
                inline.push((module.to_owned(), depth));
            } else {
                let mut at = base.clone();
                for (outer, _) in &inline {
                    at = format!("{at}/{outer}");
                }
                match named_path.take() {
                    Some(named) => files.push(format!("{folder}/{named}")),
                    None => {
                        files.push(format!("{at}/{module}.rs"));
                        files.push(format!("{at}/{module}/mod.rs"));
                    }
                }
            }
        }
        for c in code.chars() {
            match c {
                '{' => depth += 1,
                '}' => {
                    depth = depth.saturating_sub(1);
                    inline.retain(|&(_, opened_at)| opened_at < depth);
                }
                _ => {}
            }
        }
    }
    files.retain(|file| tree.rust.contains_key(file));
    files
}

/// The name in `mod name;` or `mod name {`, and whether the body follows.
pub fn mod_declaration(code: &str) -> Option<(&str, bool)> {
    let mut text = code.trim();
    while text.starts_with("#[") {
        text = text[text.find(']')? + 1..].trim_start();
    }
    if let Some(rest) = text.strip_prefix("pub") {
        text = rest.trim_start();
        if text.starts_with('(') {
            text = text[text.find(')')? + 1..].trim_start();
        }
    }
    let rest = text.strip_prefix("mod ")?.trim_start();
    let len = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
    let (name, tail) = rest.split_at(len);
    match tail.trim_start().chars().next() {
        Some(';') => Some((name, false)),
        Some('{') => Some((name, true)),
        _ => None,
    }
}
