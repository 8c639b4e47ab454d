//! On what, from which revision, and by which command: what every figure carries with it.
//!
//! Read once a run. What a system does not tell is empty or zero.

#[cfg(target_os = "linux")]
use memmap2::Advice;
use memmap2::MmapMut;
use rustix::system::uname;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;

/// No system has smaller pages.
const LEAST_PAGE_BYTES: usize = 4096;

/// The machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Processors that this process may use.
    pub cores: usize,
    /// The processor's name.
    pub model: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Name and version of the system's kernel.
    pub kernel: String,
    /// Whether processes of one terminal share their time (`kernel.sched_autogroup_enabled`), which
    /// halves figures of several threads while another one is busy.
    pub autogroup: Option<bool>,
    /// When the system gives huge pages: `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
    /// Processes that wanted to run, on average of the last minute before the start.
    pub load: Option<f64>,
}

impl Machine {
    /// This machine.
    pub fn this() -> Machine {
        let kernel = uname();
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'))
                .map(|value| value.trim().to_owned())
        };
        let memory = field(&text("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let kib = memory.trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0);
        let huge_pages = text("/sys/kernel/mm/transparent_hugepage/enabled");
        Machine {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            model: field(&text("/proc/cpuinfo"), "model name").unwrap_or_default(),
            memory_bytes: kib * 1024,
            kernel: format!(
                "{} {}",
                kernel.sysname().to_string_lossy(),
                kernel.release().to_string_lossy()
            ),
            autogroup: text("/proc/sys/kernel/sched_autogroup_enabled")
                .trim()
                .parse()
                .ok()
                .map(|on: u8| on == 1),
            huge_pages: huge_pages.split(['[', ']']).nth(1).map(str::to_owned),
            load: text("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()),
        }
    }
}

/// Writes to so many bytes of memory, or to half of what is free, and gives them back.
///
/// A virtual machine gets memory from its host at the first use, and many hosts take back what is free for a while. Then the
/// first use costs ten times what it costs later (on one machine 2.4 seconds a GiB instead of 0.2), and a process that takes new
/// memory pays what another one, which gets the page cache of a file that was removed a moment ago, does not. So memory is
/// at hand for everybody.
pub fn touch_memory(bytes: u64) {
    let half_of_free = free_memory_bytes() / 2;
    let bytes = usize::try_from(bytes.min(half_of_free)).unwrap_or(0);
    // A system that refuses it has less at hand, and the figures tell.
    let Ok(mut memory) = MmapMut::map_anon(bytes.max(LEAST_PAGE_BYTES)) else { return };
    // What is free by small pages is not what is taken as huge ones.
    #[cfg(target_os = "linux")]
    drop(memory.advise(Advice::HugePage));
    memory.iter_mut().step_by(LEAST_PAGE_BYTES).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}

/// Bytes of memory that the system could give now; zero if it does not tell.
fn free_memory_bytes() -> u64 {
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.map_or(0, |kib| kib * 1024)
}

/// The revision of the sources that this program was built from, with a `+` if they were changed
/// since; `unknown` where they are gone or not under git.
pub fn revision() -> String {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let git = |arguments: &[&str]| -> Option<String> {
        let output = Command::new("git").arg("-C").arg(sources).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(revision) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".into() };
    let is_changed = git(&["status", "--porcelain", "--untracked-files=no", "--", "../.."])
        .is_none_or(|changes| !changes.is_empty());
    if is_changed { format!("{revision}+") } else { revision }
}

/// The command that this process was started by, each path cut to its last part: records are passed
/// on, and directories of one machine say nothing to another.
pub fn command() -> String {
    let last = |text: &str| {
        Path::new(text)
            .file_name()
            .map_or(text.to_owned(), |name| name.to_string_lossy().into_owned())
    };
    let show = |argument: String| match argument.split_once('=') {
        Some((name, path)) if path.contains('/') => format!("{name}={}", last(path)),
        _ if argument.contains('/') => last(&argument),
        _ => argument,
    };
    std::env::args().map(show).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described() {
        let machine = Machine::this();
        assert!(machine.cores > 0);
        if cfg!(target_os = "linux") {
            assert!(machine.memory_bytes > 1 << 20, "{machine:?}");
            assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
        }
        let json = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&json).unwrap(), machine);
    }

    #[test]
    fn free_memory_is_known_and_touched() {
        touch_memory(10 << 20);
        assert!(free_memory_bytes() > 1 << 20 || !cfg!(target_os = "linux"));
    }

    #[test]
    fn the_command_names_no_directory() {
        assert!(!command().contains('/'), "{}", command());
    }
}
