//! What the arguments of the program say.
//!
//! Plain values; a wrong argument is named in words.

use crate::failure::Failure;
use crate::file_system::Kind;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// How the program is called.
pub const USAGE: &str = "\
usage: cargo xtask power-cuts [--cycles N] [--file-system NAME,NAME] [--tool FILE] [--seed N]
                              [--device-bytes N] [--seconds N] [--lying-flush] [--format human|json]

  --cycles N            how often a writer is cut off [default: 5]
  --file-system NAMES   ext4, xfs, btrfs; several take turns [default: ext4]
  --tool FILE           the program `hedgerow` [default: the one beside this program]
  --seed N              of all that is drawn, but not of the moments [default: random]
  --device-bytes N      how large the disk is [default: 402653184; xfs needs 314572800]
  --seconds N           begin no further cycle after that
  --lying-flush         the disk forgets its flushes: something has to be lost, which is 1; 4 if nothing was
  --format json         one line of JSON at the end

exit codes: 0 all was there, 1 something was lost or broken, 2 wrong arguments, 3 this machine cannot, 4 the system has
failed in the middle, or kept what was mounted, 130 Ctrl-C";

const DEFAULT_DEVICE_BYTES: u64 = 384 << 20;
/// Smaller ones have no room for a file system and a store.
const LEAST_DEVICE_BYTES: u64 = 64 << 20;
const LEAST_XFS_BYTES: u64 = 300 << 20;
const LEAST_BTRFS_BYTES: u64 = 128 << 20;

/// What the arguments say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arguments {
    pub cycles: u64,
    pub kinds: Vec<Kind>,
    pub tool: Option<PathBuf>,
    pub seed: Option<u64>,
    pub device_bytes: u64,
    pub seconds: Option<u64>,
    pub is_lying: bool,
    pub is_json: bool,
    pub wants_help: bool,
}

/// Reads the arguments.
///
/// Errors: `Usage`, which names the one that is wrong.
pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, Failure> {
    let mut arguments = Arguments {
        cycles: 5,
        kinds: vec![Kind::Ext4],
        tool: None,
        seed: None,
        device_bytes: DEFAULT_DEVICE_BYTES,
        seconds: None,
        is_lying: false,
        is_json: false,
        wants_help: false,
    };
    while let Some(name) = words.next() {
        match name.as_str() {
            "--lying-flush" => arguments.is_lying = true,
            "--help" | "-h" => arguments.wants_help = true,
            "--cycles" | "--file-system" | "--tool" | "--seed" | "--device-bytes" | "--seconds"
            | "--format" => {
                let value = words.next().ok_or_else(|| usage(format!("{name} needs a value")))?;
                take(&mut arguments, &name, &value)?;
            }
            _ => return Err(usage(format!("there is no argument {name}"))),
        }
    }
    let least = |kind: &Kind| match kind {
        Kind::Ext4 => LEAST_DEVICE_BYTES,
        Kind::Xfs => LEAST_XFS_BYTES,
        Kind::Btrfs => LEAST_BTRFS_BYTES,
    };
    for kind in &arguments.kinds {
        if arguments.device_bytes < least(kind) {
            let (name, least) = (kind.name(), least(kind));
            return Err(usage(format!("--device-bytes: {name} needs {least}")));
        }
    }
    let kinds = arguments.kinds.iter().map(|kind| kind.name()).collect::<BTreeSet<_>>().len();
    if arguments.cycles < kinds as u64 {
        return Err(usage(format!("--cycles: {kinds} file systems need as many at least")));
    }
    Ok(arguments)
}

fn take(arguments: &mut Arguments, name: &str, value: &str) -> Result<(), Failure> {
    let number =
        || value.parse::<u64>().map_err(|_| usage(format!("{name} takes a number, not {value:?}")));
    match name {
        "--cycles" => {
            arguments.cycles = number()?;
            if arguments.cycles == 0 {
                return Err(usage("--cycles 0 would prove nothing".into()));
            }
        }
        "--seed" => arguments.seed = Some(number()?),
        "--seconds" => arguments.seconds = Some(number()?),
        "--device-bytes" => {
            arguments.device_bytes = number()?;
            if !arguments.device_bytes.is_multiple_of(4096) {
                return Err(usage("--device-bytes takes a multiple of 4096".into()));
            }
        }
        "--tool" => arguments.tool = Some(PathBuf::from(value)),
        "--format" => {
            arguments.is_json = match value {
                "json" => true,
                "human" => false,
                _ => return Err(usage(format!("--format takes human or json, not {value:?}"))),
            }
        }
        _ => {
            let kind = |name: &str| {
                Kind::named(name).ok_or_else(|| {
                    usage(format!("--file-system takes ext4, xfs and btrfs, not {name:?}"))
                })
            };
            arguments.kinds = value.split(',').map(kind).collect::<Result<_, _>>()?;
        }
    }
    Ok(())
}

fn usage(words: String) -> Failure {
    Failure::Usage(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Arguments, Failure> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn all_arguments_are_taken() {
        let line = "--cycles 7 --file-system xfs,ext4 --tool a/b --seed 3 --device-bytes 335544320 \
                    --lying-flush --format json";
        let arguments = parsed(line).unwrap();
        assert_eq!((arguments.cycles, arguments.seed), (7, Some(3)));
        assert_eq!(arguments.kinds, [Kind::Xfs, Kind::Ext4]);
        assert_eq!(arguments.tool, Some(PathBuf::from("a/b")));
        assert!(arguments.is_lying && arguments.is_json && !arguments.wants_help);
        assert_eq!(parsed("").unwrap().kinds, [Kind::Ext4]);
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (line, named) in [
            ("--moons 7", "--moons"),
            ("--cycles", "--cycles"),
            ("--cycles 0", "--cycles"),
            ("--cycles many", "many"),
            ("--file-system ext4,fat", "fat"),
            ("--format yaml", "yaml"),
            ("--device-bytes 77777777", "4096"),
            ("--file-system xfs --device-bytes 134217728", "xfs"),
        ] {
            let failure = parsed(line).unwrap_err();
            assert_eq!(failure.exit_code(), 2, "{line}");
            assert!(failure.words().contains(named), "{line}: {}", failure.words());
        }
    }
}
