//! Runs one test in a process of its own, for so long, with limits on what a mutant can take of the machine.
//!
//! The process is the first of a group, and with it all that it has started is ended. Its temporary files are in a folder of
//! the caller's, which is empty before and after. Several may run at a time, each with a folder of its own.

use super::build::Program;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// So many tests run at a time: more would be in each other's way, and take longer than without.
pub const AT_A_TIME: usize = 2;

/// A test, by its program, as an index of all, and its name.
#[derive(Clone, Debug)]
pub struct Test {
    /// Which program it is in.
    pub program: usize,
    /// Its name with its modules.
    pub name: String,
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Well.
    Passed,
    /// It failed, was ended by a signal, or took too much memory and was ended.
    Failed,
    /// It took too long, and was ended.
    Hung,
}

/// A file may have so many blocks, of half a KiB or one, as the shell has it: more than any test's has, which may lie apart.
const LIMITS: &str = "ulimit -c 0; ulimit -f 16000000; exec \"$0\" \"$@\"";
/// A mutant may want all the memory there is: no test has so much.
const MEMORY_KIB: u64 = 4 * 1024 * 1024;

/// Runs it, with this in its environment, and tells how it ended and how many seconds it took.
///
/// Errors: in words, if it could not be run at all.
pub fn run(
    programs: &[Program],
    test: &Test,
    environment: (&str, &Path),
    folder: &Path,
    limit: Duration,
) -> Result<(End, f64), String> {
    let cannot = |error: std::io::Error| format!("cannot run {}: {error}", test.name);
    let empty = || {
        // There may be none yet.
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder)
    };
    empty().map_err(cannot)?;
    let program = &programs[test.program];
    let mut command = Command::new("sh");
    command
        .args(["-c", LIMITS])
        .arg(&program.path)
        .args(["--exact", &test.name, "--test-threads=1", "--quiet"])
        .current_dir(&program.folder)
        .env(environment.0, environment.1)
        .envs([("TMPDIR", folder)])
        .env("RUST_BACKTRACE", "0")
        .env("HEDGEROW_TESTS", "all")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let started = Instant::now();
    let mut child = command.spawn().map_err(cannot)?;
    let mut pause = Duration::from_millis(1);
    let end = loop {
        match child.try_wait().map_err(cannot)? {
            Some(status) if status.success() => break End::Passed,
            Some(_) => break End::Failed,
            None if started.elapsed() > limit => break End::Hung,
            None if memory_kib(child.id()) > MEMORY_KIB => break End::Failed,
            None => std::thread::sleep(pause),
        }
        pause = (pause * 5 / 4).min(Duration::from_millis(20));
    };
    let seconds = started.elapsed().as_secs_f64();
    if end != End::Passed {
        end_group(&mut child).map_err(cannot)?;
    }
    empty().map_err(cannot)?;
    Ok((end, seconds))
}

/// What a process has in memory; zero where the system does not tell.
fn memory_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Ends what is left of the group.
fn end_group(child: &mut Child) -> std::io::Result<()> {
    let group = format!("-{}", child.id());
    // Nothing may be left of it, which `kill` says is an error.
    let mut kill = Command::new("kill");
    kill.args(["-KILL", "--", &group]).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    child.wait().map(|_| ())
}

/// The names of the tests of a program.
///
/// Errors: in words.
pub fn list(program: &Program) -> Result<Vec<String>, String> {
    let listed = |options: &[&str]| {
        let output = Command::new(&program.path)
            .args(["--list", "--format", "terse"])
            .args(options)
            .current_dir(&program.folder)
            .output()
            .map_err(|error| format!("cannot run {}: {error}", program.name))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let names = said.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok::<Vec<String>, String>(names.map(str::to_owned).collect())
    };
    let ignored = listed(&["--ignored"])?;
    Ok(listed(&[])?.into_iter().filter(|name| !ignored.contains(name)).collect())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_test_passes_fails_or_hangs() {
        let place = std::env::temp_dir().join(format!("xtask-one-test-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let path = place.join("program");
        let script = "#!/bin/sh\ncase \"$2\" in good) test -d \"$TMPDIR\";; slow) sleep 60;; *) exit 3;; esac\n";
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let folder = place.clone();
        let programs = [Program { name: "p".into(), path, folder, models_of: None }];
        let end = |name: &str| {
            let test = Test { program: 0, name: name.into() };
            let (folder, limit) = (place.join("files"), Duration::from_millis(500));
            run(&programs, &test, ("A", Path::new("1")), &folder, limit).unwrap()
        };
        assert_eq!(end("bad").0, End::Failed);
        let (hung, seconds) = end("slow");
        assert_eq!(hung, End::Hung);
        assert!(seconds >= 0.5);
        assert_ne!(end("good").0, End::Failed);
        fs::remove_dir_all(&place).unwrap();
    }
}
