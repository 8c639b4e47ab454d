//! How much memory this process may use, as the system says.
//!
//! Rank 1; one of the doors to the file system. Linux: the machine's memory, and the limits of the
//! memory cgroups (version 2 and 1) that the process is in, the smallest of all. Elsewhere unknown.

/// Bytes of memory that the machine, or the smallest cgroup around the process, has; `None` where the
/// system does not tell.
pub fn machine_memory_bytes() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        linux::smallest()
    }
    #[cfg(not(target_os = "linux"))]
    {
        None
    }
}

#[cfg(target_os = "linux")]
#[allow(clippy::disallowed_methods, reason = "this module is the door to these files")]
mod linux {
    use std::path::{Path, PathBuf};

    pub fn smallest() -> Option<u64> {
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        let machine = read(Path::new("/proc/meminfo")).and_then(|text| total(&text));
        let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
        let limits = limit_files(&groups).into_iter().filter_map(|path| read(&path));
        limits.filter_map(|text| limit(&text)).chain(machine).min()
    }

    /// `MemTotal` of `/proc/meminfo`, in bytes.
    pub fn total(meminfo: &str) -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    }

    /// A limit file's number; `None` for "max".
    pub fn limit(text: &str) -> Option<u64> {
        text.trim().parse().ok()
    }

    /// The limit files of the groups in `/proc/self/cgroup` and of all groups above them.
    pub fn limit_files(groups: &str) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
            let (roots, file): (&[&str], _) = if controllers.is_empty() {
                (&["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], "memory.max")
            } else if controllers.split(',').any(|name| name == "memory") {
                (&["/sys/fs/cgroup/memory"], "memory.limit_in_bytes")
            } else {
                continue;
            };
            for root in roots {
                for above in Path::new(group).ancestors() {
                    let relative = above.strip_prefix("/").unwrap_or(above);
                    files.push(Path::new(root).join(relative).join(file));
                }
            }
        }
        files
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::linux::*;

    #[test]
    fn reads_the_formats() {
        assert_eq!(total("MemFree: 1 kB\nMemTotal:       24571234 kB\n"), Some(24571234 << 10));
        assert_eq!(limit("max\n"), None);
        assert_eq!(limit("67108864\n"), Some(64 << 20));
        let files = limit_files("5:memory:/a/b\n4:cpu:/x\n0::/c\n");
        let names: Vec<_> = files.iter().map(|f| f.to_str().unwrap()).collect();
        assert!(names.contains(&"/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes"));
        assert!(names.contains(&"/sys/fs/cgroup/memory/memory.limit_in_bytes"));
        assert!(names.contains(&"/sys/fs/cgroup/c/memory.max"));
        assert!(!names.iter().any(|n| n.contains("/x/")));
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(super::machine_memory_bytes().unwrap() > 1 << 20);
    }
}
