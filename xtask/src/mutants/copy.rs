//! The mutants of the workspace, and the copy of it that has them all.
//!
//! Everything that git has is copied below the target directory, and the files of the parts are rewritten. The switch is a module of
//! the crate at the bottom, which the copy alone has: it reads the number of one mutant from the environment, or
//! notes in a file which mutants were come to. A file is written only if it is not so already, so that cargo builds what has changed.

use super::points::{self, Site};
use super::rewrite::{Rewritten, rewrite};
use crate::parts::{PARTS, Part};
use crate::workspace;
use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// Names the one mutant that is to be.
pub const CHOSEN: &str = "HEDGEROW_MUTANT";
/// Names the file to which is appended what is come to.
pub const REACHED: &str = "HEDGEROW_MUTANTS_REACHED";

/// A file of a part, with what can be changed in it.
pub struct Source {
    /// Below the workspace.
    pub path: String,
    /// Which part it belongs to, as an index of [`PARTS`].
    part: usize,
    text: String,
    sites: Vec<Site>,
    /// The number of its first mutant.
    first: u32,
}

/// A mutant.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// By which the switch knows it.
    pub number: u32,
    /// Its file.
    pub path: String,
    /// Where the change is, from 1.
    pub line: usize,
    /// The part of its file, as an index of [`PARTS`].
    pub part: usize,
    /// Where, and what was changed.
    pub words: String,
}

/// Everything that can be changed, and what of it does not compile.
pub struct Mutants {
    sources: Vec<Source>,
    /// All of them, by number.
    pub all: Vec<Mutant>,
    /// The numbers of those that do not compile.
    pub unviable: BTreeSet<u32>,
}

impl Mutants {
    /// Looks for them in all files of the parts that the workspace has.
    ///
    /// Errors: in words.
    pub fn find(root: &Path, files: &[String]) -> Result<Mutants, String> {
        let mut mutants =
            Mutants { sources: Vec::new(), all: Vec::new(), unviable: BTreeSet::new() };
        for path in files.iter().filter(|path| is_source(path)) {
            let Some(part) = PARTS.iter().position(|part: &Part| part.has(path)) else { continue };
            let text = fs::read_to_string(root.join(path))
                .map_err(|error| format!("cannot read {path}: {error}"))?;
            let sites = points::find(&text).map_err(|words| format!("{path}:{words}"))?;
            let first = u32::try_from(mutants.all.len()).map_err(|error| error.to_string())?;
            for variant in sites.iter().flat_map(|site| &site.variants) {
                let (line, column) = variant.at;
                mutants.all.push(Mutant {
                    number: u32::try_from(mutants.all.len()).map_err(|error| error.to_string())?,
                    path: path.clone(),
                    line,
                    part,
                    words: format!("{path}:{line}:{column}: {}", variant.words),
                });
            }
            mutants.sources.push(Source { path: path.clone(), part, text, sites, first });
        }
        Ok(mutants)
    }

    /// What all files have come to be, with their paths.
    pub fn rewritten(&self) -> Vec<(&str, Rewritten)> {
        let has = |number: u32| !self.unviable.contains(&number);
        let rewritten = self.sources.iter().map(|source| {
            let crate_name =
                if source.path.starts_with(SWITCH_CRATE) { "crate" } else { "::hedgerow_sync" };
            let switch = format!("{crate_name}::mutants::at");
            (&*source.path, rewrite(&source.text, &source.sites, source.first, &switch, has))
        });
        rewritten.collect()
    }

    /// Stands for all that was found in the sources: while it is the same, so are the numbers.
    pub fn mark(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for source in &self.sources {
            (&source.path, source.part, &source.text).hash(&mut hasher);
        }
        for mutant in &self.all {
            mutant.words.hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Whether it is a file of sources that a product is built of.
fn is_source(path: &str) -> bool {
    path.ends_with(".rs") && !path.ends_with("/tests.rs") && !path.contains("/tests/")
}

/// Copies what is not rewritten, and adds the switch.
///
/// Errors: in words.
pub fn copy(root: &Path, place: &Path, files: &[String]) -> Result<(), String> {
    for path in files {
        let read = |_| fs::read(root.join(path));
        let bytes = read(()).map_err(|error| format!("cannot read {path}: {error}"))?;
        let is_rewritten = is_source(path) && PARTS.iter().any(|part| part.has(path));
        if path == SWITCH_ROOT {
            let text = String::from_utf8_lossy(&bytes);
            let with = format!("{SWITCH_FEATURES}{text}\n#[doc(hidden)]\npub mod mutants;\n");
            workspace::write(&place.join(path), with.as_bytes())?;
        } else if !is_rewritten {
            workspace::write(&place.join(path), &bytes)?;
        }
    }
    workspace::write(&place.join(SWITCH_CRATE).join("src/mutants.rs"), SWITCH.as_bytes())
}

const SWITCH_CRATE: &str = "crates/sync/";
const SWITCH_ROOT: &str = "crates/sync/src/lib.rs";
/// The name by which the compiler is told that this crate may use what is not stable.
pub const SWITCH_PACKAGE: &str = "hedgerow_sync";

const SWITCH_FEATURES: &str =
    "#![feature(core_intrinsics, const_eval_select)]\n#![allow(internal_features)]\n";

/// Functions that are `const` have mutants as well, which are asked for while the program runs: what the compiler works out
/// itself is without.
const SWITCH: &str = r#"//! Which mutant is chosen.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

const UNKNOWN: u32 = u32::MAX;
const NOTES: u32 = u32::MAX - 1;
const NONE: u32 = u32::MAX - 2;
static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);
static SEEN: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
static FILE: OnceLock<Option<std::fs::File>> = OnceLock::new();

#[inline(always)]
pub const fn at(number: u32) -> bool {
    std::intrinsics::const_eval_select((number,), never, asked)
}

const fn never(_: u32) -> bool {
    false
}

#[inline(always)]
fn asked(number: u32) -> bool {
    let state = STATE.load(Relaxed);
    if state >= NOTES { slow(number) } else { state == number }
}

#[cold]
#[inline(never)]
fn slow(number: u32) -> bool {
    if STATE.load(Relaxed) == UNKNOWN {
        let chosen = std::env::var("HEDGEROW_MUTANT").ok().and_then(|text| text.parse().ok());
        let notes = std::env::var_os("HEDGEROW_MUTANTS_REACHED");
        let state = chosen.unwrap_or(if notes.is_some() { NOTES } else { NONE });
        STATE.store(state, Relaxed);
        if state != NOTES {
            return state == number;
        }
    }
    let bit = 1 << (number % 64);
    if SEEN[(number / 64) as usize].fetch_or(bit, Relaxed) & bit == 0 {
        let open = || {
            let path = std::env::var_os("HEDGEROW_MUTANTS_REACHED")?;
            std::fs::OpenOptions::new().create(true).append(true).open(path).ok()
        };
        if let Some(mut file) = FILE.get_or_init(open).as_ref() {
            if std::io::Write::write_all(&mut file, &number.to_le_bytes()).is_err() {
                // What is not noted would count as not reached: so the test fails, and is left out by its name.
                std::process::abort();
            }
        }
    }
    false
}
"#;
