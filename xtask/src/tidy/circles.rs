//! Circles of files: no file imports another one that comes back to it.
//!
//! Files and imports make a graph for each crate. An import goes to the file that has the item: names that a `mod.rs` re-exports are
//! followed. A module and those below it do not count as importing each other: a `mod.rs` names its children, and they its types.
//! Tests do not count.

use super::ranks::{imports, module_path, use_paths};
use super::{Finding, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// From each file to those that it imports, by index.
struct Graph<'t> {
    files: Vec<&'t str>,
    edges: Vec<BTreeSet<usize>>,
}

/// Reports each circle, at the first of its files.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for crate_path in crates(tree) {
        let graph = Graph::of(tree, &crate_path);
        for circle in graph.circles() {
            let first = format!("{crate_path}{}", graph.files[circle[0]]);
            findings.push(Finding::file(&first, "circle", graph.describe(&circle)));
        }
    }
}

/// The folders that hold the source of a crate, with a slash at the end.
fn crates(tree: &Tree) -> BTreeSet<String> {
    let root = |path: &str| {
        let folder = path.strip_suffix("lib.rs").or_else(|| path.strip_suffix("main.rs"))?;
        folder.ends_with("/src/").then(|| folder.to_owned())
    };
    tree.rust.keys().filter_map(|path| root(path)).collect()
}

impl<'t> Graph<'t> {
    fn of(tree: &'t Tree, crate_path: &str) -> Graph<'t> {
        let inside: Vec<&str> =
            tree.rust.keys().filter_map(|path| path.strip_prefix(crate_path)).collect();
        let modules: Vec<Vec<String>> = inside.iter().map(|file| module_path(file)).collect();
        let at: BTreeMap<&[String], usize> =
            modules.iter().enumerate().map(|(index, module)| (module.as_slice(), index)).collect();
        let source = |index: usize| &tree.rust[&format!("{crate_path}{}", inside[index])];
        let exports: Vec<_> = (0..inside.len())
            .map(|index| re_exports(&source(index).code_text(), &modules[index], &at))
            .collect();
        let mut edges = vec![BTreeSet::new(); inside.len()];
        for (index, module) in modules.iter().enumerate() {
            for import in imports(source(index), module) {
                if source(index).in_test[import.line] {
                    continue;
                }
                let to = resolve(&import.path, &at, &exports);
                let is_kin =
                    |other: &[String]| module.starts_with(other) || other.starts_with(module);
                if let Some(to) = to.filter(|&to| !is_kin(&modules[to])) {
                    edges[index].insert(to);
                }
            }
        }
        Graph { files: inside, edges }
    }

    /// The files that each file gets to, itself only by a circle.
    fn reached(&self, from: usize) -> BTreeSet<usize> {
        let (mut reached, mut pending) = (BTreeSet::new(), vec![from]);
        while let Some(next) = pending.pop() {
            pending.extend(self.edges[next].iter().filter(|&&to| reached.insert(to)));
        }
        reached
    }

    /// Sets of files that all get to each other, of two files at least.
    fn circles(&self) -> Vec<Vec<usize>> {
        let reached: Vec<_> = (0..self.files.len()).map(|from| self.reached(from)).collect();
        let mut circles = BTreeSet::new();
        for from in 0..self.files.len() {
            let back = reached[from].iter().copied().filter(|&to| reached[to].contains(&from));
            circles.insert(back.collect::<Vec<_>>());
        }
        circles.into_iter().filter(|circle| circle.len() > 1).collect()
    }

    /// The files of a circle, and its imports.
    fn describe(&self, circle: &[usize]) -> String {
        let files: Vec<&str> = circle.iter().map(|&file| self.files[file]).collect();
        let mut imports = Vec::new();
        for &from in circle {
            for &to in circle.iter().filter(|to| self.edges[from].contains(to)) {
                imports.push(format!("{} -> {}", self.files[from], self.files[to]));
            }
        }
        format!(
            "`{}` import each other, by {}; cut the circle",
            files.join(" "),
            imports.join(", ")
        )
    }
}

type Modules<'m> = BTreeMap<&'m [String], usize>;
type Exports = BTreeMap<String, Vec<String>>;

/// The file that has the item at a path from the crate's root; none if that is the root itself.
fn resolve(path: &[String], at: &Modules<'_>, exports: &[Exports]) -> Option<usize> {
    let mut path = path.to_vec();
    // More re-exports of re-exports than any crate has.
    for _ in 0..8 {
        let (len, file) =
            (0..=path.len()).rev().find_map(|len| Some((len, *at.get(&path[..len])?)))?;
        match path.get(len).and_then(|name| exports[file].get(name)) {
            Some(origin) => path = [origin.as_slice(), &path[len + 1..]].concat(),
            None => return Some(file).filter(|_| len > 0),
        }
    }
    None
}

/// The names that a module re-exports, each with its path from the crate's root.
fn re_exports(code: &str, module: &[String], at: &Modules<'_>) -> Exports {
    let mut exports = Exports::new();
    for statement in code.split(';') {
        let Some(start) = statement.rfind("use ") else { continue };
        let before = statement[..start].trim_end();
        let is_public = before.ends_with("pub") || before.ends_with(')') && before.contains("pub(");
        if !is_public {
            continue;
        }
        for path in use_paths(statement[start + "use ".len()..].to_owned()) {
            let (Some(first), Some(last)) = (path.first(), path.last()) else { continue };
            let child = || [module, &path[..1]].concat();
            let origin = match first.as_str() {
                "crate" => path[1..].to_vec(),
                "self" => [module, &path[1..]].concat(),
                "super" => [&module[..module.len().saturating_sub(1)], &path[1..]].concat(),
                _ if at.contains_key(child().as_slice()) => [module, path.as_slice()].concat(),
                _ => continue,
            };
            exports.insert(last.clone(), origin);
        }
    }
    exports
}
