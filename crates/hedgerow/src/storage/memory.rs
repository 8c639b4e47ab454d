//! How much memory this process may use, as the system says.
//!
//! Rank 1; one of the doors to the file system. Linux: the machine's memory; the limits of the memory cgroups (version 2
//! and 1) that the process is in, and of all groups above them that it can see; and what the process's own limits
//! of addresses and of data (`RLIMIT_AS`, `RLIMIT_DATA`) leave. Windows: the
//! machine's memory, and what the system can still promise to this process. Elsewhere unknown, but for the process's own limits. Plain functions
//! that ask each time.

/// Bytes of memory that the machine, or the smallest cgroup around the process, has; `None` where the
/// system does not tell.
pub fn machine_memory_bytes() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        linux::smallest()
    }
    #[cfg(windows)]
    {
        windows::memory().map(|told| told.ullTotalPhys)
    }
    #[cfg(not(any(target_os = "linux", windows)))]
    {
        None
    }
}

/// Bytes of addresses that the process may still reserve by its own limits; `None` if there is no limit, or the system does
/// not tell.
pub fn addresses_left_bytes() -> Option<u64> {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit};
        let left = |limit: Resource, used: u64| {
            getrlimit(limit).current.map(|bytes| bytes.saturating_sub(used))
        };
        let (addresses, data) = used_bytes();
        let left = [left(Resource::As, addresses), left(Resource::Data, data)];
        left.into_iter().flatten().min()
    }
    #[cfg(windows)]
    {
        windows::memory().map(|told| told.ullAvailPageFile)
    }
    #[cfg(not(any(unix, windows)))]
    {
        None
    }
}

#[cfg(windows)]
mod windows {
    use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};

    /// What Windows says of memory; `None` if it says nothing.
    pub fn memory() -> Option<MEMORYSTATUSEX> {
        let len = size_of::<MEMORYSTATUSEX>() as u32;
        let mut told = MEMORYSTATUSEX { dwLength: len, ..MEMORYSTATUSEX::default() };
        // SAFETY: the call fills a value of this type that lives, and whose length is said in it.
        let is_told = unsafe { GlobalMemoryStatusEx(&mut told) } != 0;
        is_told.then_some(told)
    }
}

/// Bytes of addresses that the process has reserved, and of those that count as data. None where the system does not tell.
#[cfg(unix)]
fn used_bytes() -> (u64, u64) {
    #[cfg(target_os = "linux")]
    {
        linux::used().unwrap_or_default()
    }
    #[cfg(not(target_os = "linux"))]
    {
        (0, 0)
    }
}

#[cfg(target_os = "linux")]
#[allow(clippy::disallowed_methods, reason = "this module is the door to these files")]
mod linux {
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Component, Path, PathBuf};

    pub fn smallest() -> Option<u64> {
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        let machine = read(Path::new("/proc/meminfo")).and_then(|text| total(&text));
        let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
        // A path need not be text.
        let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        let limits = limit_files(&groups, &hierarchies(&mounts));
        let limits = limits.into_iter().filter_map(|file| limit(&file, &read(&file)?));
        limits.chain(machine).min()
    }

    /// What `/proc/self/statm` says of all addresses and of data, in bytes.
    pub fn used() -> Option<(u64, u64)> {
        let text = std::fs::read_to_string("/proc/self/statm").ok()?;
        let mut pages = text.split_ascii_whitespace().map(|field| field.parse::<u64>().ok());
        let page = rustix::param::page_size() as u64;
        let (all, data) = (pages.next()??, pages.nth(4)??);
        Some((all.saturating_mul(page), data.saturating_mul(page)))
    }

    /// `MemTotal` of `/proc/meminfo`, in bytes.
    pub fn total(meminfo: &str) -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    }

    /// A limit file's number; `None` for "max".
    pub fn limit(file: &Path, text: &str) -> Option<u64> {
        // The smallest limit of the group and of those above it, also of those out of sight.
        let number = match file.ends_with(STAT) {
            true => {
                text.lines().find_map(|line| line.strip_prefix("hierarchical_memory_limit "))?
            }
            false => text,
        };
        number.trim().parse().ok()
    }

    const STAT: &str = "memory.stat";
    const FILES_2: &[&str] = &["memory.max", "memory.high"];
    const FILES_1: &[&str] = &["memory.limit_in_bytes", STAT];

    /// A mounted hierarchy of groups that limit memory.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Hierarchy {
        /// Of version 2, or of version 1.
        pub is_unified: bool,
        /// The group that is mounted.
        pub root: PathBuf,
        /// Where it is.
        pub at: PathBuf,
    }

    /// Those in `/proc/self/mountinfo`; the usual ones, if there is none.
    pub fn hierarchies(mounts: &[u8]) -> Vec<Hierarchy> {
        let found: Vec<_> = mounts.split(|byte| *byte == b'\n').filter_map(hierarchy).collect();
        if !found.is_empty() {
            return found;
        }
        let usual = |is_unified, at: &str| Hierarchy {
            is_unified,
            root: PathBuf::from("/"),
            at: PathBuf::from(at),
        };
        vec![
            usual(true, "/sys/fs/cgroup"),
            usual(true, "/sys/fs/cgroup/unified"),
            usual(false, "/sys/fs/cgroup/memory"),
        ]
    }

    /// Number, number, device, root, place, options, any number of others, a hyphen, type, source, options.
    fn hierarchy(line: &[u8]) -> Option<Hierarchy> {
        let mut fields = line.split(|byte| *byte == b' ');
        let (root, at) = (fields.nth(3)?, fields.next()?);
        let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
        let (kind, options) = (fields.next()?, fields.nth(1)?);
        let is_unified = kind == b"cgroup2";
        let limits_memory = || options.split(|byte| *byte == b',').any(|name| name == b"memory");
        let is_one = is_unified || kind == b"cgroup" && limits_memory();
        is_one.then(|| Hierarchy { is_unified, root: unescaped(root), at: unescaped(at) })
    }

    /// A path in which spaces and the like stand as a backslash and three octal digits.
    fn unescaped(field: &[u8]) -> PathBuf {
        let mut path = Vec::with_capacity(field.len());
        let mut rest = field;
        while let [first, after @ ..] = rest {
            let digits = after.get(..3).filter(|_| *first == b'\\');
            let number = digits.and_then(|digits| std::str::from_utf8(digits).ok());
            match number.and_then(|number| u8::from_str_radix(number, 8).ok()) {
                Some(byte) => {
                    path.push(byte);
                    rest = &after[3..];
                }
                None => {
                    path.push(*first);
                    rest = after;
                }
            }
        }
        PathBuf::from(OsString::from_vec(path))
    }

    /// The limit files of the groups in `/proc/self/cgroup` and of all groups above them.
    pub fn limit_files(groups: &str, hierarchies: &[Hierarchy]) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
            let is_unified = controllers.is_empty();
            if !is_unified && !controllers.split(',').any(|name| name == "memory") {
                continue;
            }
            let names = if is_unified { FILES_2 } else { FILES_1 };
            for hierarchy in hierarchies.iter().filter(|one| one.is_unified == is_unified) {
                let group = below(Path::new(OsStr::from_bytes(group.as_bytes())), &hierarchy.root);
                for above in group.ancestors() {
                    files.extend(names.iter().map(|name| hierarchy.at.join(above).join(name)));
                }
            }
        }
        files
    }

    /// The way from the mounted group to the process's. In a container the group may be named as the machine sees it while
    /// a part of the tree is mounted, or be out of sight: then the mounted group is the one that counts.
    fn below(group: &Path, root: &Path) -> PathBuf {
        let is_out_of_sight = group.components().any(|part| part == Component::ParentDir);
        let relative = group.strip_prefix(root).or_else(|_| group.strip_prefix("/"));
        match relative {
            Ok(relative) if !is_out_of_sight => relative.to_path_buf(),
            _ => PathBuf::new(),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::linux::*;
    use std::path::{Path, PathBuf};

    fn names(groups: &str, mounts: &str) -> Vec<String> {
        let files = limit_files(groups, &hierarchies(mounts.as_bytes()));
        files.into_iter().map(|file| file.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn reads_the_formats() {
        assert_eq!(total("MemFree: 1 kB\nMemTotal:       24571234 kB\n"), Some(24571234 << 10));
        let (max, stat) = (Path::new("/a/memory.max"), Path::new("/a/memory.stat"));
        assert_eq!(limit(max, "max\n"), None);
        assert_eq!(limit(max, "67108864\n"), Some(64 << 20));
        assert_eq!(limit(stat, "cache 12\nhierarchical_memory_limit 4096\nrss 7\n"), Some(4096));
        assert_eq!(limit(stat, "anon 12\n"), None);
    }

    #[test]
    fn without_a_list_of_mounts_the_usual_places_are_looked_at() {
        let names = names("5:memory:/a/b\n4:cpu:/x\n0::/c\n", "");
        for wanted in [
            "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/a/b/memory.stat",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/c/memory.max",
            "/sys/fs/cgroup/c/memory.high",
            "/sys/fs/cgroup/memory.max",
        ] {
            assert!(names.iter().any(|name| name == wanted), "{wanted}: {names:?}");
        }
        assert!(!names.iter().any(|n| n.contains("/x/")));
    }

    const MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 /docker/1f /my\\040groups/memory rw,relatime shared:9 master:2 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
";

    #[test]
    fn mounts_say_where_the_groups_are() {
        let found = hierarchies(MOUNTS.as_bytes());
        let places: Vec<_> = found.iter().map(|one| (one.is_unified, one.at.clone())).collect();
        let expected = [(false, "/my groups/memory"), (true, "/sys/fs/cgroup/unified")]
            .map(|(is, at)| (is, PathBuf::from(at)));
        assert_eq!(places, expected);
        // As the machine names the group, of which a part is mounted.
        let of_docker = names("4:memory:/docker/1f/inner\n0::/\n", MOUNTS);
        assert_eq!(
            of_docker,
            [
                "/my groups/memory/inner/memory.limit_in_bytes",
                "/my groups/memory/inner/memory.stat",
                "/my groups/memory/memory.limit_in_bytes",
                "/my groups/memory/memory.stat",
                "/sys/fs/cgroup/unified/memory.max",
                "/sys/fs/cgroup/unified/memory.high",
            ]
        );
        // As the container names it.
        let of_namespace = names("4:memory,hugetlb:/inner\n", MOUNTS);
        assert_eq!(of_namespace, of_docker[..4]);
        // Above what the container sees.
        assert_eq!(names("4:memory:/../other\n", MOUNTS), of_docker[2..4]);
    }

    #[test]
    fn this_machine_has_memory() {
        let bytes = super::machine_memory_bytes().unwrap();
        assert!(bytes > 1 << 20 && bytes < 1 << 50, "version 1 says 2^63 for no limit: {bytes}");
        let (all, data) = used().unwrap();
        assert!(data > 0 && data < all);
    }
}
