//! Each rule fires on a small tree that breaks it, and none fires on a tree that keeps them all.

use super::{Finding, RATCHET_PATH, Tree, check};

const HEAD: &str = "//! What it is. Single-threaded.\n";

/// A tidy engine of a few files; tests add to it or replace its files.
fn engine_with(changes: &[(&str, String)]) -> Tree {
    let lib = format!(
        "{HEAD}pub mod buffer;\npub mod error;\nmod key;\npub mod node;\npub mod tree;\n\
         pub use error::{{Error, Result}};\npub use tree::Tree;\n"
    );
    let file = |body: &str| format!("{HEAD}{body}");
    let base = [
        ("crates/hedgerow/src/lib.rs", lib),
        ("crates/hedgerow/src/error.rs", file("pub struct Error;\n")),
        ("crates/hedgerow/src/key.rs", file("use crate::error::Error;\n")),
        ("crates/hedgerow/src/node/mod.rs", file("mod leaf;\nuse crate::{Error, key::Key};\n")),
        ("crates/hedgerow/src/node/leaf.rs", file("use super::Node;\nuse super::super::key;\n")),
        ("crates/hedgerow/src/buffer.rs", file("use crate::error;\n")),
        ("crates/hedgerow/src/tree.rs", file("use crate::{buffer::Pool, node};\n")),
    ];
    let mut files: Vec<(&str, String)> = base.into_iter().collect();
    for (path, text) in changes {
        files.retain(|(old, _)| old != path);
        files.push((path, text.clone()));
    }
    Tree::from_files(files.iter().map(|(path, text)| (*path, text.as_str())))
}

fn findings(path: &str, body: &str) -> Vec<Finding> {
    check(&engine_with(&[(path, format!("{HEAD}{body}"))]))
}

/// Asserts that the file breaks exactly these rules, by line.
#[track_caller]
fn assert_rules(path: &str, body: &str, expected: &[(usize, &str)]) {
    let found = findings(path, body);
    let rules: Vec<_> = found.iter().map(|f| (f.line, f.rule)).collect();
    assert_eq!(rules, expected, "{found:#?}");
}

const NODE: &str = "crates/hedgerow/src/node/leaf.rs";
const BUFFER: &str = "crates/hedgerow/src/buffer.rs";
const TREE: &str = "crates/hedgerow/src/tree.rs";

#[test]
fn a_tidy_tree_has_no_findings() {
    assert_eq!(check(&engine_with(&[])), []);
}

#[test]
fn nodes_know_no_log_and_a_few_files_of_the_buffer_do() {
    assert_rules(NODE, "use crate::wal::Record;\n", &[(2, "rank")]);
    assert_rules(NODE, "#[cfg(test)]\nmod tests {\n    use crate::wal::Record;\n}\n", &[]);
    assert_rules(BUFFER, "use crate::wal::Record;\n", &[(2, "rank")]);
}

#[test]
fn imports_that_point_up_are_found_in_every_spelling() {
    assert_rules(NODE, "use crate::tree::Tree;\n", &[(2, "rank")]);
    assert_rules(NODE, "use crate::{\n    error,\n    tree::Tree,\n};\n", &[(2, "rank")]);
    assert_rules(NODE, "use super::super::tree;\n", &[(2, "rank")]);
    assert_rules(NODE, "fn f() {\n    crate::tree::walk::<u8>();\n}\n", &[(3, "rank")]);
    assert_rules(NODE, "use crate::Tree;\n", &[(2, "rank")]);
    assert_rules(NODE, "mod inner {\n    use super::super::super::tree;\n}\n", &[(3, "rank")]);
}

#[test]
fn node_and_buffer_never_know_each_other() {
    assert_rules(NODE, "use crate::buffer::Pool;\n", &[(2, "rank")]);
    assert_rules(BUFFER, "use crate::node::Node;\n", &[(2, "rank")]);
}

#[test]
fn imports_within_a_folder_or_in_words_are_no_findings() {
    assert_rules(NODE, "// crate::tree::Tree\nconst A: &str = \"crate::tree\";\n", &[]);
    assert_rules(NODE, "mod tests {\n    use super::*;\n    use super::super::Node;\n}\n", &[]);
    assert_rules(TREE, "use crate::node::{self, Leaf as L};\npub(crate) fn f() {}\n", &[]);
}

#[test]
fn a_folder_without_a_rank_is_found() {
    let lib = format!("{HEAD}mod widgets;\n");
    let changes =
        [("crates/hedgerow/src/lib.rs", lib), ("crates/hedgerow/src/widgets.rs", HEAD.to_owned())];
    let found = check(&engine_with(&changes));
    assert!(found.iter().any(|f| f.rule == "rank" && f.path.ends_with("widgets.rs")), "{found:?}");
}

#[test]
fn test_helpers_are_for_tests() {
    assert_rules(NODE, "use crate::testing::heap;\n", &[(2, "rank")]);
    assert_rules(NODE, "#[cfg(test)]\nmod tests {\n    use crate::testing::heap;\n}\n", &[]);
}

#[test]
fn going_round_a_seam_is_found() {
    assert_rules(NODE, "use std::{fmt, sync::Mutex};\n", &[(2, "seam")]);
    assert_rules(NODE, "fn f() {\n    std::thread::yield_now();\n}\n", &[(3, "seam")]);
    assert_rules(NODE, "use std::time::Duration;\nuse std::sync::atomic::Ordering;\n", &[]);
    assert_rules(NODE, "#[cfg(test)]\nmod tests {\n    use std::thread;\n}\n", &[]);
}

#[test]
fn unsafe_needs_its_place_and_its_reason() {
    let reasoned = "fn f() {\n    // SAFETY: as above.\n    let a =\n        unsafe { g() };\n}\n";
    assert_rules(NODE, reasoned, &[]);
    assert_rules(TREE, reasoned, &[(5, "unsafe-place")]);
    assert_rules(NODE, "fn f() {\n    unsafe { g() };\n}\n", &[(3, "safety")]);
    assert_rules(NODE, "unsafe impl Send for A {}\n", &[(2, "safety")]);
    assert_rules(NODE, "unsafe fn g() {}\n", &[(2, "safety")]);
    assert_rules(NODE, "/// G.\n///\n/// # Safety\n/// None.\nunsafe fn g() {}\n", &[]);
    assert_rules(NODE, "impl<T> A for B<T> {\n    unsafe fn g() {}\n}\n", &[]);
    let reasoned = "// SAFETY: as above.\nunsafe impl A for B {\n    unsafe fn g() {}\n}\n";
    assert_rules(NODE, reasoned, &[]);
    assert_rules(NODE, "impl<T> B<T> {\n    unsafe fn g() {}\n}\n", &[(3, "safety")]);
    let stale = "// SAFETY: of the first only.\nlet a = unsafe { g() };\nunsafe { h() };\n";
    assert_rules(NODE, &format!("fn f() {{\n{stale}}}\n"), &[(5, "safety")]);
    assert_rules(NODE, "// about unsafe { } code\nconst A: &str = \"unsafe {\";\n", &[]);
}

#[test]
fn files_open_with_what_they_are() {
    let found = check(&engine_with(&[(NODE, "use super::Node;\n".to_owned())]));
    assert_eq!(found.iter().map(|f| f.rule).collect::<Vec<_>>(), ["head"]);
}

#[test]
fn dead_files_are_found() {
    let dead = "crates/hedgerow/src/node/forgotten.rs";
    assert_rules(dead, "", &[(0, "dead-file")]);
    let behind_inline = "mod deep {\n    mod forgotten;\n}\n";
    let inner = "crates/hedgerow/src/node/leaf/deep/forgotten.rs";
    let changes = [(NODE, format!("{HEAD}{behind_inline}")), (inner, HEAD.to_owned())];
    assert_eq!(check(&engine_with(&changes)), []);
}

#[test]
fn roots_of_targets_are_not_dead() {
    let changes = [
        ("crates/hedgerow/tests/model.rs", format!("{HEAD}mod common;\n")),
        ("crates/hedgerow/tests/common/mod.rs", HEAD.to_owned()),
        ("crates/hedgerow/tests/many/main.rs", format!("{HEAD}mod one;\n")),
        ("crates/hedgerow/tests/many/one.rs", HEAD.to_owned()),
        ("fuzz/Cargo.toml", "[[bin]]\npath = \"fuzz_targets/a.rs\"\n".to_owned()),
        ("fuzz/fuzz_targets/a.rs", format!("#![no_main]\n{HEAD}")),
    ];
    assert_eq!(check(&engine_with(&changes)), []);
    assert_rules("fuzz/fuzz_targets/b.rs", "", &[(0, "dead-file")]);
}

#[test]
fn long_files_and_functions_are_found() {
    let long_fn = format!("fn long() {{\n{}}}\n", "    f();\n".repeat(99));
    assert_rules(NODE, &long_fn, &[(2, "length")]);
    let short_fn = format!("fn short() {{\n{}}}\n", "    f();\n".repeat(98));
    assert_rules(NODE, &short_fn, &[]);
    assert_rules(NODE, &"const A: u8 = 1;\n".repeat(700), &[(0, "length")]);
    assert_rules(NODE, &"const A: u8 = 1;\n".repeat(699), &[]);
}

#[test]
fn the_ratchet_is_exact_and_only_shrinks() {
    let long = format!("{HEAD}fn long() {{\n{}}}\n", "    f();\n".repeat(110));
    let with = |list: &str| engine_with(&[(NODE, long.clone()), (RATCHET_PATH, list.to_owned())]);
    let entry = |lines: usize| format!("# why\n{NODE}::long {lines}\n");
    let rules = |tree: &Tree| check(tree).iter().map(|f| f.rule).collect::<Vec<_>>();
    assert_eq!(check(&with(&entry(112))), []);
    assert_eq!(rules(&with(&entry(130))), ["ratchet"]);
    assert_eq!(rules(&with("nonsense\n")), ["length", "ratchet"]);
    let unneeded = engine_with(&[(RATCHET_PATH, entry(112))]);
    assert_eq!(rules(&unneeded), ["ratchet"]);
    let mut grown = with(&entry(112));
    grown.older_ratchets.push(entry(111));
    assert_eq!(rules(&grown), ["ratchet"]);
    let mut shrunk = with(&entry(112));
    shrunk.older_ratchets.push(entry(113));
    assert_eq!(check(&shrunk), []);
}

#[test]
fn leftovers_are_found_in_code_and_comments_only() {
    for marker in super::words::MARKERS {
        let closed = if marker.ends_with('(') { ")" } else { "" };
        assert_rules(NODE, &format!("// {marker}{closed}: later\n"), &[(2, "leftover")]);
        assert_rules(NODE, &format!("const A: &str = \"{marker}{closed}\";\n"), &[]);
    }
    assert_rules(NODE, concat!("fn f() {\n    to", "do!()\n}\n"), &[(3, "leftover")]);
    assert_rules(NODE, "// HACKNEYED words\n", &[]);
}

#[test]
fn unwrap_is_for_tests() {
    assert_rules(NODE, "fn f() {\n    g().unwrap();\n}\n", &[(3, "unwrap")]);
    assert_rules(NODE, "fn f() {\n    g().expect(\"never empty\");\n}\n", &[]);
    assert_rules(
        NODE,
        "#[cfg(test)]\nmod tests {\n    fn f() {\n        g().unwrap();\n    }\n}\n",
        &[],
    );
}

#[test]
fn paths_of_one_machine_are_found_in_any_text() {
    let place = concat!("/ho", "me/ann/data");
    assert_rules(NODE, &format!("const A: &str = \"{place}\";\n"), &[(2, "machine-path")]);
    let found = check(&engine_with(&[("README.md", format!("See {place}\n"))]));
    assert_eq!(found.iter().map(|f| f.rule).collect::<Vec<_>>(), ["machine-path"]);
}

#[test]
fn strange_characters_and_decoration_are_found() {
    for strange in ['\u{a0}', '\u{200b}', '\u{202e}', '\u{2019}', '\u{1f600}'] {
        assert_rules(NODE, &format!("// a{strange}b\n"), &[(2, "character")]);
    }
    assert_rules(NODE, "// Jörg: 4 µs × 2 ≤ 1 ms, § 3\n", &[]);
    assert_rules(NODE, concat!("// ---", "--- search ---", "---\n"), &[(2, "decoration")]);
}

#[test]
fn literals_and_comments_do_not_confuse_the_lexer() {
    let body = "const A: &str = r#\"unsafe { \" }\"#;\nconst B: char = '\"';\nconst C: char = '\\'';\n\
                /* unsafe { /* nested */ crate::tree */\nfn f<'a>(x: &'a str) -> &'a str {\n    x\n}\n\
                const D: &str = \"multi\n  crate::tree::x \\\" unsafe {\n\";\n\
                const E: &[u8] = b\"\\\\\";\nunsafe fn g() {}\n";
    assert_rules(NODE, body, &[(13, "safety")]);
}

#[test]
fn what_is_public_is_listed() {
    let listed = "Error: fn code(&self) -> u32\nError: struct\nResult: type = u8\nTree: struct\n";
    let surface = |body: &str| -> Vec<String> {
        let error = format!("{HEAD}pub struct Error;\npub type Result = u8;\n{body}");
        let tree = format!("{HEAD}pub struct Tree {{\n    len: u8,\n}}\n");
        let changes = [
            ("crates/hedgerow/src/error.rs", error),
            (TREE, tree),
            (super::surface::PATH, listed.into()),
        ];
        check(&engine_with(&changes)).into_iter().map(|finding| finding.what).collect()
    };
    let sound = "impl Error {\n    pub fn code(&self) -> u32 {\n        1\n    }\n}\n";
    assert_eq!(surface(sound), [""; 0]);
    // What others do not get, what is not public, and what belongs to another type.
    let gated = "#[cfg(hedgerow_internals)]\nimpl Error {\n    pub fn inside(&self) {}\n}\n";
    let own = "impl Error {\n    fn own(&self) {}\n}\n";
    let other = "pub struct Other;\nimpl Other {\n    pub fn f() {}\n}\n";
    assert_eq!(surface(&format!("{sound}{gated}{own}{other}")), [""; 0]);
    let made = "macro_rules! codes {\n    ($name:ty, $of:ty) => {\n        impl $name {\n            pub fn code(&self) -> $of {\n                \
                1\n            }\n        }\n    };\n}\ncodes!(Error, u32);\n";
    assert_eq!(surface(made), [""; 0]);
    let many = "macro_rules! marked {\n    ($($name:ty),*) => {\n        $(impl $crate::types::Marked for $name {})*\n    };\n}\nmarked!(Error, Other);\n";
    let unlisted = surface(&format!("{sound}{many}"));
    let [unlisted] = &unlisted[..] else { panic!("of two, one is public: {unlisted:?}") };
    assert!(unlisted.starts_with("`Error: impl Marked for Error` is public, but not listed"));
    let wrong = surface("impl Clone for Error {}\n");
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(wrong[0].starts_with("`Error: fn code(&self) -> u32` is listed, but not public"));
    assert!(wrong[1].starts_with("`Error: impl Clone for Error` is public, but not listed"));
}

/// What is found in a tidy engine with a folder of four files, of which `c.rs` has more code.
fn circles_by(more: &str) -> Vec<String> {
    let code = |code: &str| format!("{HEAD}{code}");
    let tree = engine_with(&[
        (TREE, code("mod a;\nmod b;\nmod c;\npub use b::Thing;\npub struct Tree;\n")),
        ("crates/hedgerow/src/tree/a.rs", code("use super::Thing;\nuse super::Tree;\n")),
        ("crates/hedgerow/src/tree/b.rs", code("use super::c::Other;\npub struct Thing;\n")),
        ("crates/hedgerow/src/tree/c.rs", format!("{HEAD}pub struct Other;\n{more}")),
    ]);
    let found = check(&tree).into_iter();
    let found = found.inspect(|finding| {
        assert_eq!(
            (finding.path.as_str(), finding.rule),
            ("crates/hedgerow/src/tree/a.rs", "circle")
        );
    });
    found.map(|finding| finding.what).collect()
}

#[test]
fn files_that_import_each_other_in_a_circle_are_found_through_re_exports() {
    assert_eq!(circles_by(""), [""; 0]);
    let found = circles_by("use super::a::X;\n");
    let imports = "tree/a.rs -> tree/b.rs, tree/b.rs -> tree/c.rs, tree/c.rs -> tree/a.rs";
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("`tree/a.rs tree/b.rs tree/c.rs`"), "{found:?}");
    assert!(found[0].contains(imports), "{found:?}");
    // A parent and its children are no circle, and tests may import what they like.
    let in_tests = "#[cfg(test)]\nmod tests {\n    use super::super::a::X;\n}\n";
    assert_eq!(circles_by(in_tests), [""; 0]);
}
