//! Where `unsafe` may stand, and that each use of it says why it is sound.
//!
//! Clippy checks blocks too; this also covers `unsafe impl`, contracts (`# Safety`) of private
//! unsafe functions, files that no present configuration compiles, and the folders.

use super::source::item_end;
use super::{Finding, Tree};

/// Folders, and files, that may hold `unsafe`: memory and system calls are handled there and nowhere else.
pub const UNSAFE_FOLDERS: &[&str] = &[
    "crates/sync/",
    // A virtual thread gives way through a pointer to its coroutine.
    "crates/sim/src/switch.rs",
    // Whoever ends a region undoes what another thread has written.
    "crates/sim/src/undo.rs",
    // The instructions of transactional memory have no safe form.
    "crates/htm-index/src/htm/rtm.rs",
    "crates/hedgerow/src/storage/",
    "crates/hedgerow/src/page/",
    "crates/hedgerow/src/space/",
    "crates/hedgerow/src/wal/",
    "crates/hedgerow/src/node/",
    "crates/hedgerow/src/buffer/",
    // Pools of pages for tests stand in for `buffer`.
    "crates/testing/src/",
    // The other translation is a pool of pages: the trait is unsafe.
    "crates/bench/src/vmcache/page_pool.rs",
    // An allocator that refuses is one: the trait is unsafe.
    "crates/hedgerow/tests/oom.rs",
    // The heap of the simulated figures is one as well.
    "crates/simulate/src/heap.rs",
    // A test of forked processes forks.
    "crates/hedgerow/tests/forked.rs",
    // Looks at standard output before the standard library does.
    "crates/cli/src/output.rs",
    // Filters of system calls are set by calls that the standard library does not have.
    "crates/hedgerow/tests/refused_calls.rs",
    // LMDB is opened by an unsafe call: it trusts the file that it maps.
    "crates/peers/src/engines/lmdb.rs",
    // RocksDB is called by its C API.
    "crates/peers/src/engines/rocksdb_c.rs",
];

/// How many lines of the statement may stand between the comment and the `unsafe` in it.
const STATEMENT_LINES: usize = 3;

/// Reports `unsafe` out of place, and `unsafe` without its reason.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, source) in &tree.rust {
        let in_trait_impl = trait_impl_lines(&source.code);
        for (line, code) in source.code.iter().enumerate() {
            for use_ in unsafe_uses(code) {
                if !UNSAFE_FOLDERS.iter().any(|folder| path.starts_with(folder)) {
                    let what =
                        "`unsafe` belongs to the folders that handle memory and system calls";
                    findings.push(Finding::at(path, line, "unsafe-place", what));
                }
                let comments = comments_above(&source.code, &source.comment, line);
                match use_ {
                    Use::Block | Use::Impl if !comments.contains("SAFETY:") => {
                        let what = "say in a `// SAFETY:` comment right above why this is sound";
                        findings.push(Finding::at(path, line, "safety", what));
                    }
                    // What implements a trait has the trait's contract.
                    Use::Contract if !comments.contains("# Safety") && !in_trait_impl[line] => {
                        let what = "state the contract under `# Safety` in the documentation";
                        findings.push(Finding::at(path, line, "safety", what));
                    }
                    _ => {}
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Use {
    /// `unsafe { .. }`
    Block,
    /// `unsafe impl`
    Impl,
    /// `unsafe fn` with a name, `unsafe trait`
    Contract,
    /// `unsafe fn` as a type, `unsafe extern`, `unsafe(attribute)`
    Other,
}

fn unsafe_uses(code: &str) -> Vec<Use> {
    let mut uses = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find("unsafe") {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let before = rest[..at].chars().next_back();
        let after = &rest[at + "unsafe".len()..];
        if !before.is_some_and(is_word) && !after.starts_with(is_word) {
            let next = after.trim_start();
            uses.push(if next.starts_with('{') || next.is_empty() {
                Use::Block
            } else if next.starts_with("impl") {
                Use::Impl
            } else if next.starts_with("fn $") {
                // A macro's function has the contract of the place that it expands in.
                Use::Other
            } else if next.starts_with("fn ") || next.starts_with("trait ") {
                Use::Contract
            } else {
                Use::Other
            });
        }
        rest = after;
    }
    uses
}

/// For each line whether it lies in an `impl Trait for Type` block.
fn trait_impl_lines(code: &[String]) -> Vec<bool> {
    let mut marks = vec![false; code.len()];
    for (line, text) in code.iter().enumerate() {
        let text = text.trim_start();
        let text = text.strip_prefix("unsafe ").unwrap_or(text);
        let is_impl = text.starts_with("impl ") || text.starts_with("impl<");
        let header = code[line..].iter().take_while(|text| !text.contains(['{', ';'])).count();
        let is_of_trait = code[line..].iter().take(header + 1).any(|text| text.contains(" for "));
        if is_impl && is_of_trait {
            marks[line..=item_end(code, line)].fill(true);
        }
    }
    marks
}

/// The comments on the line and right above it: over attributes, and over the first lines of the
/// statement that the `unsafe` belongs to.
fn comments_above(code: &[String], comment: &[String], line: usize) -> String {
    let mut text = comment[line].clone();
    let mut statement_lines = 0;
    for above in (0..line).rev() {
        let code_above = code[above].trim();
        if code_above.is_empty() {
            if comment[above].is_empty() {
                break;
            }
        } else if !code_above.starts_with("#[") {
            let ends_statement = code_above.ends_with([';', '{', '}']);
            statement_lines += 1;
            if ends_statement || statement_lines > STATEMENT_LINES {
                break;
            }
        }
        text.push_str(&comment[above]);
        text.push('\n');
    }
    text
}
