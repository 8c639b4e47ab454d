//! Foreign programs: competitors that take arguments and give output of their own.
//!
//! One file a program, listed in [`ADAPTERS`]; each builds commands, has them run by
//! [`process::run`] within the cell's time, and reads what they print. Nothing says where a program
//! is but the user: [`Programs`] is the directory given by `--external-dir` or `HEDGEROW_EXTERNAL`.
//! A program that is not there is [`CellError::NotInstalled`], which is reported and is no failure.
//!
//! Adapters are stateless and `Sync`; cells run one after the other.

mod btree24;
mod btree_cpp;
mod common;
mod fio;
pub mod process;
mod vmcache;

use crate::cell::{Cell, CellError, CellResult};
use std::path::{Path, PathBuf};

/// Environment variable with the directory of foreign programs.
pub const DIRECTORY_VARIABLE: &str = "HEDGEROW_EXTERNAL";

/// A foreign program, or a family of them.
pub trait Adapter: Sync {
    /// Names of the competitors that it stands for: `btree-cpp-hints`, `fio`.
    fn competitors(&self) -> &'static [&'static str];

    /// Runs `cell`, whose competitor is one of [`Adapter::competitors`], within its time limit.
    /// Phases that the program cannot do have no figures (zero operations in zero seconds), if the
    /// others can do without them.
    ///
    /// Errors: `NotInstalled`, `Unsupported`, and those of [`process::run`] and of reading the
    /// output.
    fn run(&self, cell: &Cell, programs: &Programs) -> Result<CellResult, CellError>;
}

/// All adapters.
pub const ADAPTERS: &[&dyn Adapter] =
    &[&btree_cpp::BtreeCpp, &btree24::Btree24, &vmcache::Vmcache, &fio::Fio];

/// The adapter that stands for `competitor`.
pub fn adapter(competitor: &str) -> Option<&'static dyn Adapter> {
    ADAPTERS.iter().copied().find(|adapter| adapter.competitors().contains(&competitor))
}

/// Where foreign programs are.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    directory: Option<PathBuf>,
}

impl Programs {
    /// Programs in `directory`, else where [`DIRECTORY_VARIABLE`] says, else in the search path
    /// alone.
    pub fn new(directory: Option<PathBuf>) -> Programs {
        let directory =
            directory.or_else(|| std::env::var_os(DIRECTORY_VARIABLE).map(PathBuf::from));
        Programs { directory }
    }

    /// The program at `relative` below the directory.
    ///
    /// Errors: `NotInstalled`, which says what was looked for.
    pub fn find(&self, relative: &str) -> Result<PathBuf, CellError> {
        let Some(directory) = &self.directory else {
            return Err(CellError::NotInstalled(format!(
                "{relative}: say where it is by --external-dir or {DIRECTORY_VARIABLE}"
            )));
        };
        let path = directory.join(relative);
        if !path.is_file() {
            return Err(CellError::NotInstalled(format!("there is no {}", path.display())));
        }
        Ok(path)
    }

    /// The program `name` of the system's search path. Errors: `NotInstalled`.
    pub fn find_in_path(&self, name: &str) -> Result<PathBuf, CellError> {
        let places = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&places)
            .map(|place| place.join(name))
            .find(|path| Path::is_file(path))
            .ok_or_else(|| CellError::NotInstalled(format!("{name} is not in the search path")))
    }
}
