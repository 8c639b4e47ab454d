//! `cargo xtask port PLATFORM`: builds for another platform than this machine's, runs what can be run here, and says which.
//!
//! Windows programs run under Wine, those for aarch64 under qemu's emulation of Linux; for the rest the compiler alone has a look.
//! Nothing is installed: what is missing is named, and the exit code is 3. docs/platforms.md has the results.

use crate::test_programs::{plain_cargo, target_directory};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// What the task is told.
pub const USAGE: &str = "\
usage: cargo xtask port windows|aarch64|macos|wasm [TEST...]

  windows  unit, engine and tool tests under Wine
  aarch64  unit and engine tests under qemu's emulation of Linux
  macos    the compiler's check alone
  wasm     the compiler's check of the engine alone

  TEST     run only tests whose names contain one of these";

/// Exit code where the toolchain or a program is not installed.
const NOT_INSTALLED: u8 = 3;

struct Port {
    name: &'static str,
    target: &'static str,
    /// Programs that it takes, with the Debian package of each.
    programs: &'static [(&'static str, &'static str)],
    /// A file that says that the kernel starts the platform's programs by themselves, as tests that start a process need it, with its package.
    started_by_kernel: Option<(&'static str, &'static str)>,
    /// What cargo runs a built program with; none where nothing can be run.
    runner: Option<&'static str>,
    /// Programs of tests, or the packages that are checked.
    parts: &'static [&'static str],
    /// Words in the names of tests that the runner cannot run.
    skips: &'static [&'static str],
}

const PORTS: [Port; 4] = [
    Port {
        name: "windows",
        target: "x86_64-pc-windows-gnu",
        programs: &[("x86_64-w64-mingw32-gcc", "gcc-mingw-w64-x86-64"), ("wine", "wine")],
        started_by_kernel: None,
        runner: Some("wine"),
        parts: &[
            "-p hedgerow-sync --lib",
            "-p hedgerow --lib --test engine",
            "-p hedgerow-cli --bins --test commands",
        ],
        skips: &[],
    },
    Port {
        name: "aarch64",
        target: "aarch64-unknown-linux-gnu",
        programs: &[
            ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
            ("qemu-aarch64", "qemu-user"),
        ],
        started_by_kernel: Some(("/proc/sys/fs/binfmt_misc/qemu-aarch64", "qemu-user-binfmt")),
        runner: Some("qemu-aarch64 -L /usr/aarch64-linux-gnu"),
        parts: &["-p hedgerow-sync --lib", "-p hedgerow --lib --test engine"],
        // A child of a process with threads stands still in the emulation.
        skips: &["fork"],
    },
    Port {
        name: "macos",
        target: "aarch64-apple-darwin",
        programs: &[],
        started_by_kernel: None,
        runner: None,
        parts: &["-p hedgerow", "-p hedgerow-cli"],
        skips: &[],
    },
    Port {
        name: "wasm",
        target: "wasm32-wasip1",
        programs: &[],
        started_by_kernel: None,
        runner: None,
        parts: &["-p hedgerow-sync", "-p hedgerow"],
        skips: &[],
    },
];

/// Builds and runs what there is for the platform that the first argument names.
pub fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let Some((name, tests)) = arguments.split_first() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let Some(port) = PORTS.iter().find(|port| port.name == name) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let missing = missing(port);
    if !missing.is_empty() {
        eprintln!("port {name}: NOT TRIED, because this machine lacks:");
        missing.iter().for_each(|what| eprintln!("  {what}"));
        return ExitCode::from(NOT_INSTALLED);
    }
    match try_all(root, port, tests) {
        Ok(results) => {
            println!("\nport {name} ({}):", port.target);
            results.iter().for_each(|(result, _)| println!("  {result}"));
            ExitCode::from(u8::from(results.iter().any(|(_, is_good)| !is_good)))
        }
        Err(words) => {
            eprintln!("port {name}: {words}");
            ExitCode::FAILURE
        }
    }
}

/// What the port takes and this machine does not have, with how to get it.
fn missing(port: &Port) -> Vec<String> {
    let mut missing = Vec::new();
    // The compiler that cargo would take.
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let library = Command::new(compiler)
        .args(["--print", "target-libdir", "--target", port.target])
        .output()
        .map(|said| PathBuf::from(String::from_utf8_lossy(&said.stdout).trim()));
    if !library.is_ok_and(|library| library.is_dir()) {
        missing.push(format!("Rust's standard library: rustup target add {}", port.target));
    }
    for (program, package) in port.programs {
        let found = Command::new(program).arg("--version").output();
        if !found.is_ok_and(|found| found.status.success()) {
            missing.push(format!("{program}: apt-get install {package}"));
        }
    }
    if let Some((file, package)) = port.started_by_kernel
        && !Path::new(file).exists()
    {
        missing.push(format!("{file}: apt-get install {package}"));
    }
    missing
}

/// Has cargo try each part. Tells what came of each, and whether it is good.
///
/// Errors: in words, if something could not be started.
fn try_all(root: &Path, port: &Port, tests: &[String]) -> Result<Vec<(String, bool)>, String> {
    let variable = port.target.to_uppercase().replace('-', "_");
    let mut results = Vec::new();
    for part in port.parts {
        let mut cargo = plain_cargo(root);
        cargo.arg(if port.runner.is_some() { "test" } else { "check" });
        cargo.args(["--locked", "--target", port.target]).args(part.split(' '));
        if let Some(runner) = port.runner {
            cargo.args(["--no-fail-fast", "--"]).args(tests);
            cargo.args(port.skips.iter().flat_map(|word| ["--skip", word]));
            cargo.env(format!("CARGO_TARGET_{variable}_RUNNER"), runner);
        }
        match port.name {
            "windows" => prepare_wine(&mut cargo, &target_directory(root).join("wine"))?,
            "aarch64" => {
                cargo.env(format!("CARGO_TARGET_{variable}_LINKER"), "aarch64-linux-gnu-gcc");
                // Where programs that are started by others find their libraries.
                cargo.env("QEMU_LD_PREFIX", "/usr/aarch64-linux-gnu");
            }
            _ => {}
        }
        let cannot = |error| format!("cannot start cargo: {error}");
        let mut child = cargo.stdout(Stdio::piped()).spawn().map_err(cannot)?;
        let said = child.stdout.take().map(BufReader::new);
        for line in said.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
            println!("{line}");
            if let Some(result) = line.strip_prefix("test result: ") {
                results.push((format!("{part}: {result}"), result.starts_with("ok")));
            }
        }
        let status = child.wait().map_err(cannot)?;
        if port.runner.is_none() || !status.success() {
            results.push((format!("{part}: {status}"), status.success()));
        }
    }
    Ok(results)
}

/// Gives Wine a place of its own, and the one library of Windows 10 that older ones lack and Rust's programs need.
fn prepare_wine(cargo: &mut Command, place: &Path) -> Result<(), String> {
    const PRNG: &str = "\
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE to, SIZE_T len) { return SystemFunction036(to, (ULONG)len); }
";
    let failed = |error: std::io::Error| format!("cannot prepare {}: {error}", place.display());
    let libraries = place.join("libraries");
    std::fs::create_dir_all(&libraries).map_err(failed)?;
    let source = place.join("prng.c");
    std::fs::write(&source, PRNG).map_err(failed)?;
    let built = Command::new("x86_64-w64-mingw32-gcc")
        .args(["-shared", "-o"])
        .arg(libraries.join("bcryptprimitives.dll"))
        .arg(&source)
        .arg("-ladvapi32")
        .status()
        .map_err(failed)?;
    if !built.success() {
        return Err(format!("cannot build {}: {built}", source.display()));
    }
    cargo.env("WINEPREFIX", place.join("prefix")).env("WINEPATH", libraries);
    cargo.env("WINEDEBUG", "-all");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_how_to_get_it() {
        let port = Port {
            name: "nowhere",
            target: "no-such-target",
            programs: &[("no-such-program", "no-such-package")],
            started_by_kernel: Some(("/no/such/file", "no-such-package")),
            runner: None,
            parts: &[],
            skips: &[],
        };
        let missing = missing(&port);
        assert_eq!(missing.len(), 3, "{missing:?}");
        assert!(missing[0].ends_with("rustup target add no-such-target"), "{missing:?}");
        assert!(missing[1].ends_with("apt-get install no-such-package"), "{missing:?}");
        assert_eq!(run(Path::new("."), &["atlantis".to_owned()]), ExitCode::from(2));
    }
}
