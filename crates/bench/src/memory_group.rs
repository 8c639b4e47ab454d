//! A memory cgroup for one cell: the memory of a store and the system's page cache of its files together.
//!
//! A limit on a store's own cache says little of a store that also lives from the page cache. The runner makes a
//! group and removes it; the process of the cell joins it when it has its keys, so that they do not count (what a
//! process has before it joins stays with the group that it was in). Linux, with the right to make cgroups; both
//! versions of them. Used by one thread.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, thread};

/// What a group has beyond a quarter more than the limit: the program, stacks, accesses, and what the system keeps
/// for a process.
const ALLOWANCE_BYTES: u64 = 48 << 20;

/// How often removing is tried: a process that has ended is in its group for another moment.
const ATTEMPTS: u32 = 50;

/// A group, removed when it is dropped.
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
}

/// What stores need whatever their limit: RocksDB was killed now and then in a group for a MiB.
const LEAST_LIMIT_BYTES: u64 = 32 << 20;

/// The bytes that a group has for a store with such a limit.
pub fn group_bytes(limit_bytes: u64) -> u64 {
    let limit_bytes = limit_bytes.max(LEAST_LIMIT_BYTES);
    limit_bytes + limit_bytes / 4 + ALLOWANCE_BYTES
}

impl MemoryGroup {
    /// A new group for a store of `limit_bytes`: [`group_bytes`] of them.
    ///
    /// Errors: a sentence, if there are no cgroups here or none may be made.
    pub fn new(limit_bytes: u64) -> Result<MemoryGroup, String> {
        let own = fs::read_to_string("/proc/self/cgroup")
            .map_err(|error| format!("there are no cgroups here: {error}"))?;
        let mut words = "the system has no memory cgroups".to_owned();
        for (above, file) in places(&own) {
            let path = above.join(format!("hedgerow-bench-{}", std::process::id()));
            match make(&path, file, group_bytes(limit_bytes)) {
                Ok(group) => return Ok(group),
                Err(error) => words = format!("{}: {error}", path.display()),
            }
        }
        Err(words)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let mut outcome = fs::remove_dir(&self.path);
        for _ in 1..ATTEMPTS {
            if outcome.is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
            outcome = fs::remove_dir(&self.path);
        }
        if let Err(error) = outcome {
            eprintln!("cannot remove {}: {error}", self.path.display());
        }
    }
}

/// Moves this process, with all of its threads, into the group at `path`. Errors: a sentence.
pub fn join(path: &Path) -> Result<(), String> {
    fs::write(path.join("cgroup.procs"), "0")
        .map_err(|error| format!("cannot join the memory group {}: {error}", path.display()))
}

/// Where a group might be made, and what its limit is called there, by what `/proc/self/cgroup` says.
fn places(own: &str) -> Vec<(PathBuf, &'static str)> {
    let mut places = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let inside = path.trim_start_matches('/');
        if controllers.split(',').any(|controller| controller == "memory") {
            let root = Path::new("/sys/fs/cgroup/memory");
            places.extend([root.join(inside), root.into()].map(|at| (at, "memory.limit_in_bytes")));
        } else if controllers.is_empty() {
            let root = Path::new("/sys/fs/cgroup");
            // A group that has processes may have no groups with limits below; the one above may.
            let above = root.join(inside);
            let above = above.parent().filter(|above| above.starts_with(root)).unwrap_or(root);
            places.extend([above, root].map(|at| (at.to_owned(), "memory.max")));
        }
    }
    places
}

fn make(path: &Path, file: &str, bytes: u64) -> io::Result<MemoryGroup> {
    fs::create_dir(path)?;
    let group = MemoryGroup { path: path.to_owned() };
    // Files of a group are there as soon as it is; one without its controller has no such file. Opened, never
    // created: in a directory that is no group at all nothing may be left.
    fs::OpenOptions::new().write(true).open(path.join(file)).and_then(|mut limit| {
        use io::Write;
        limit.write_all(bytes.to_string().as_bytes())
    })?;
    Ok(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_cgroups_are_looked_for() {
        let first = "5:cpu,cpuacct:/\n4:memory:/a/b\n0::/\n";
        let paths: Vec<_> = places(first);
        let path = |at: &str, file| (PathBuf::from(at), file);
        assert_eq!(
            paths,
            [
                path("/sys/fs/cgroup/memory/a/b", "memory.limit_in_bytes"),
                path("/sys/fs/cgroup/memory/", "memory.limit_in_bytes"),
                path("/sys/fs/cgroup", "memory.max"),
                path("/sys/fs/cgroup", "memory.max"),
            ]
        );
        let second = places("0::/user.slice/session.scope\n");
        assert_eq!(second[0], path("/sys/fs/cgroup/user.slice", "memory.max"));
        assert!(places("").is_empty() && places("nonsense\n").is_empty());
    }

    /// Where groups can be made; elsewhere the error is words and nothing is left.
    #[test]
    fn a_group_has_its_limit_and_goes_away() {
        match MemoryGroup::new(64 << 20) {
            Ok(group) => {
                let path = group.path().to_owned();
                let limit = ["memory.limit_in_bytes", "memory.max"]
                    .iter()
                    .find_map(|file| fs::read_to_string(path.join(file)).ok());
                assert_eq!(limit.unwrap().trim(), group_bytes(64 << 20).to_string());
                drop(group);
                assert!(!path.exists());
            }
            Err(words) => assert!(!words.is_empty()),
        }
        assert!(join(Path::new("/nowhere")).unwrap_err().contains("/nowhere"));
    }
}
