//! `cargo xtask torture`: all that `hedgerow torture` does, built optimised, as `xtask/torture/record/` has its figures, and
//! simulated crashes and power cuts under real file systems, which are programs of their own.
//!
//! For its kills the tool asks where to put the store, on the disk that is to be tested; here that is an option, and by itself the
//! directory for temporary files. Everything else is handed on as it is. The exit code is that of who has done it: 7 if the
//! tool has found something.

use crate::program;
use std::path::Path;
use std::process::ExitCode;

/// What the task is told.
pub const USAGE: &str = "\
usage: cargo xtask torture kill [--cycles N] [--seconds S] [--seed N] [--dir DIR]
       cargo xtask torture look STORE SEED   say what is wrong with a store that was kept
       cargo xtask torture full-disk|sync ...
                                             as `hedgerow torture` does, which --help tells more about
       cargo xtask torture simulate [--cuts N] [--seconds S] [--threads N] [--seed N] [--format json]
                                             power cuts, kills and failing calls on a simulated disk
       cargo xtask torture power-cuts ...    as `cargo xtask power-cuts`; Linux, as root

  --cycles N   how often the writer is killed [default: 200, or as often as --seconds allows]
  --seconds S  begin no further cycle after this time
  --seed N     of what is written, and of the moments [default: random]
  --dir DIR    where to put the store [default: the directory for temporary files]";

/// Runs the tool with what these arguments stand for.
pub fn run(root: &Path, arguments: &[String]) -> ExitCode {
    if let Some((_, rest)) = arguments.split_first().filter(|(how, _)| *how == "power-cuts") {
        return power_cuts(root, rest);
    }
    if let Some((_, rest)) = arguments.split_first().filter(|(how, _)| *how == "simulate") {
        return program::run(root, "hedgerow-torture", rest);
    }
    match translate(arguments, &std::env::temp_dir()) {
        Some(arguments) => program::run(root, "hedgerow-cli", &arguments),
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Cuts the power under file systems, with the tool as the writer.
pub fn power_cuts(root: &Path, arguments: &[String]) -> ExitCode {
    program::run_beside(root, "hedgerow-powercut", "hedgerow-cli", arguments)
}

/// The arguments of the tool; `None` if these are wrong.
fn translate(arguments: &[String], temporary: &Path) -> Option<Vec<String>> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut directory = temporary.to_str()?;
    let mut translated = vec!["torture"];
    match words.as_slice() {
        ["kill", options @ ..] => {
            translated.push("kill");
            let mut pairs = options.chunks_exact(2);
            for pair in &mut pairs {
                match pair[0] {
                    "--dir" => directory = pair[1],
                    "--cycles" | "--seconds" | "--seed" => translated.extend(pair),
                    _ => return None,
                }
            }
            if !pairs.remainder().is_empty() {
                return None;
            }
            translated.extend(["--", directory]);
        }
        ["full-disk" | "sync", ..] => translated.extend(words),
        ["look", store, seed] => translated.extend(["look", "--", *store, *seed]),
        _ => return None,
    }
    Some(translated.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::translate;
    use std::path::Path;

    fn translated(line: &str) -> Option<String> {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        translate(&arguments, Path::new("tmp")).map(|words| words.join(" "))
    }

    #[test]
    fn a_directory_is_an_option_here_and_an_argument_there() {
        let kill = translated("kill --cycles 5 --dir disk --seed 7");
        assert_eq!(kill.as_deref(), Some("torture kill --cycles 5 --seed 7 -- disk"));
        assert_eq!(translated("kill").as_deref(), Some("torture kill -- tmp"));
        assert_eq!(translated("look a.hrow 7").as_deref(), Some("torture look -- a.hrow 7"));
    }

    #[test]
    fn what_needs_no_translation_is_handed_on() {
        for line in ["full-disk disk --yes", "sync --check 7 disk", "sync"] {
            assert_eq!(translated(line), Some(format!("torture {line}")));
        }
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for line in ["", "kill --cycles", "kill --moons 7", "look a.hrow", "writer a.hrow 1 0 0"] {
            assert_eq!(translated(line), None, "{line}");
        }
    }
}
