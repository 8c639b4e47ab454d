//! The files of the workspace, and copies of it below the target directory, of which some files are rewritten.
//!
//! A file is written only if it is not so already, so that cargo builds what has changed. Plain functions; git is asked for the
//! names.

use std::fs;
use std::path::Path;
use std::process::Command;

/// All files that git has of the workspace, but for those that were removed.
///
/// Errors: in words.
pub fn files(root: &Path) -> Result<Vec<String>, String> {
    let git = Command::new("git").arg("-C").arg(root).args(["ls-files", "-z"]).output();
    let output = git.map_err(|error| format!("cannot start git: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let names = said.split('\0').filter(|name| !name.is_empty() && root.join(name).is_file());
    let files: Vec<String> = names.map(str::to_owned).collect();
    match files.is_empty() {
        true => Err("git has no files here".into()),
        false => Ok(files),
    }
}

/// Writes a file, unless it is so already.
///
/// Errors: in words.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, bytes))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}
