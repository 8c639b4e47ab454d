//! Commands of the system, and what they make: directories, loop devices and mounts, which go with their values.
//!
//! Every command has a time limit and a process group of its own, so that Ctrl-C ends this program and not the commands
//! that tidy up after it. Whatever was made is undone in `Drop`, whether the device under it works or not; what cannot be
//! undone is told. Invariant: a value of a type in here stands for one thing of the system that is there. Single-threaded,
//! but for readers of what a command says; a flag that is only ever set says that something was left.

use crate::failure::Failure;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a command may take.
pub const LIMIT: Duration = Duration::from_secs(60);
/// How often it is looked whether a command has ended.
const STEP: Duration = Duration::from_millis(1);
/// Where programs of the system are, besides what `PATH` says.
const SYSTEM_DIRECTORIES: [&str; 2] = ["/usr/sbin", "/sbin"];
/// How often an unmount is tried that finds the file system busy.
const UNMOUNTS: u32 = 20;

static LEFT_BEHIND: AtomicBool = AtomicBool::new(false);

/// Whether something could not be undone; it was told.
pub fn has_left_something() -> bool {
    LEFT_BEHIND.load(Ordering::Relaxed)
}

/// Tells what could not be undone.
fn leave(words: &str) {
    LEFT_BEHIND.store(true, Ordering::Relaxed);
    eprintln!("power-cuts: {words}");
}

/// The file of a program of the system.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_DIRECTORIES.map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

/// Fails if this machine cannot do what a run needs, with these programs.
pub fn check_machine(programs: &[&str]) -> Result<(), Failure> {
    let cannot = |words: String| Err(Failure::Cannot(words));
    // The directory of a process belongs to the user that it acts for.
    if fs::metadata("/proc/self").map_or(true, |found| found.uid() != 0) {
        return cannot("only root may attach and mount what is needed here".into());
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if fs::metadata(device).is_err() {
            return cannot(format!("there is no {device}"));
        }
    }
    match programs.iter().find(|program| find(program).is_none()) {
        Some(missing) => cannot(format!("the program {missing} is missing")),
        None => Ok(()),
    }
}

/// What a command said, and how it ended.
pub struct Ended {
    pub status: ExitStatus,
    pub out: String,
    pub errors: String,
}

/// Runs a program of the system; what it says on standard output.
///
/// Errors: in words, if it cannot be run, fails, or takes too long. Then it is killed, and not waited for: it may be stuck
/// in the kernel.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let file = find(program).ok_or_else(|| format!("the program {program} is missing"))?;
    let ended = run_command(Command::new(file).args(arguments))?;
    match ended.status.success() {
        true => Ok(ended.out.trim().to_owned()),
        false => {
            let said = ended.errors.trim().replace('\n', "; ");
            Err(format!("{program} {}: {}: {said}", arguments.join(" "), ended.status))
        }
    }
}

/// Runs a command until it ends; errors as of [`run`].
pub fn run_command(command: &mut Command) -> Result<Ended, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        // What they say is looked at, too.
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cannot start {name}: {error}"))?;
    let (out, errors) = (child.stdout.take(), child.stderr.take());
    let readers = [out.map(listen), errors.map(listen)];
    let started = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|error| format!("cannot wait for {name}: {error}"))? {
            Some(status) => break status,
            None if started.elapsed() > LIMIT => {
                let _ = child.kill();
                return Err(format!("{name} has not ended within {} s", LIMIT.as_secs()));
            }
            None => std::thread::sleep(STEP),
        }
    };
    let [out, errors] =
        readers.map(|reader| reader.and_then(|reader| reader.join().ok()).unwrap_or_default());
    Ok(Ended { status, out, errors })
}

/// Reads to the end in a thread, so that no pipe fills up.
pub fn listen(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is worth having.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// An empty directory for temporary use, on which something may be mounted.
pub struct Directory(PathBuf);

impl Directory {
    /// Makes one.
    pub fn new(path: PathBuf) -> Result<Directory, Failure> {
        fs::create_dir(&path)
            .map_err(|error| Failure::Cannot(format!("cannot make {}: {error}", path.display())))?;
        Ok(Directory(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Only if it is empty: never what is below a mount that could not be undone.
        if let Err(error) = fs::remove_dir(&self.0) {
            leave(&format!("cannot remove {}: {error}", self.0.display()));
        }
    }
}

/// A loop device over a file.
pub struct Attached(String);

impl Attached {
    /// Lays one over this file; errors in words.
    pub fn new(file: &Path) -> Result<Attached, String> {
        let file = file.to_string_lossy();
        // Direct I/O hands on whole requests; where the kernel cannot, it makes pages of them.
        let direct = ["--direct-io=on", "--find", "--show", &file];
        let name = match run("losetup", &direct) {
            Ok(name) => name,
            Err(_) => run("losetup", &direct[1..])?,
        };
        Ok(Attached(name))
    }

    /// The block device.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Err(words) = run("losetup", &["--detach", &self.0]) {
            leave(&words);
        }
    }
}

/// A file system that is mounted.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts a block device; errors in words.
    pub fn new(kind: &str, options: &str, device: &Attached, at: &Path) -> Result<Mounted, String> {
        let place = at.to_string_lossy();
        run("mount", &["-t", kind, "-o", options, device.name(), &place])?;
        Ok(Mounted(at.to_owned()))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let place = self.0.to_string_lossy();
        let mut failed = String::new();
        for _ in 0..UNMOUNTS {
            match run("umount", &[&place]) {
                Ok(_) => return,
                // Who was killed may have it open for a moment.
                Err(words) if words.contains("busy") => {
                    failed = words;
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(words) => {
                    failed = words;
                    break;
                }
            }
        }
        leave(&failed);
        unmount_lazily(&self.0);
    }
}

/// Takes a mount out of sight; it goes when nobody uses it any more.
pub fn unmount_lazily(path: &Path) {
    if let Err(words) = run("umount", &["--lazy", &path.to_string_lossy()]) {
        leave(&words);
    }
}
