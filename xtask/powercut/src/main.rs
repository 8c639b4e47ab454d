//! Power cuts and failing calls under real file systems, run by `cargo xtask power-cuts`.
//!
//! A disk that this program serves through FUSE carries a file system of the kernel, and in it a store that the real tool
//! writes. At random moments the power of that disk is cut: of what was not flushed any part survives. The file system
//! has to come up, and the store to have all that was acknowledged as durable. Progress goes to standard error, the result
//! to standard output. Whatever was mounted or attached is undone on every way out, Ctrl-C included; what a `SIGKILL` of
//! this program leaves, it leaves. Single-threaded, but for the thread that serves the disk and readers of processes.

#[cfg(target_os = "linux")]
mod arguments;
#[cfg(target_os = "linux")]
mod cycle;
#[cfg(target_os = "linux")]
mod device;
#[cfg(target_os = "linux")]
mod dice;
#[cfg(target_os = "linux")]
mod failure;
#[cfg(target_os = "linux")]
mod file_system;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod served;
#[cfg(target_os = "linux")]
#[path = "../../../crates/cli/src/signals.rs"]
mod signals;
#[cfg(target_os = "linux")]
mod system;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    run::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("power-cuts: only Linux has the file systems that this is about");
    std::process::ExitCode::from(3)
}
