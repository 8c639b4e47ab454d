//! Seeds as they are printed and taken: a number, and before it the version of what is drawn from it, such as `1.12345`.
//!
//! A seed brings something back only where the same is drawn from it. In a tool that draws in another order the number alone
//! would bring back something else, and that all is well with it would be said of the wrong thing. So a seed of another
//! version is refused; a plain number is one of this version. What is drawn has its version beside it
//! (`SCRIPTS`, and `SCENARIOS` of `crates/torture`, which includes this file), and a test that fails where somebody changes the one without the other.
//!
//! Plain values and functions.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;

/// What is drawn from a seed, as far as it has a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drawn {
    /// What it is called.
    pub what: &'static str,
    /// Raised whenever the same number leads to something else.
    pub version: u32,
}

impl Drawn {
    /// The number as it is printed.
    pub fn seed(self, number: u64) -> Seed {
        Seed { version: Some(self.version), number }
    }

    /// The number of a seed that somebody gave.
    ///
    /// Errors, in words: it is one of another version.
    pub fn number(self, given: Seed) -> Result<u64, String> {
        match given.version {
            Some(version) if version != self.version => Err(format!(
                "seed {given} is from version {version} of the {}, and this tool has version {}; use a tool that prints \
                 seeds {version}.N",
                self.what, self.version
            )),
            _ => Ok(given.number),
        }
    }
}

/// A seed as it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seed {
    /// `None`: that of whoever reads it.
    version: Option<u32>,
    number: u64,
}

impl FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Seed, String> {
        let (version, number) = match text.split_once('.') {
            Some((version, number)) => (version.parse().ok().map(Some), number),
            None => (Some(None), text),
        };
        let seed = version.zip(number.parse().ok());
        let seed = seed.map(|(version, number)| Seed { version, number });
        seed.ok_or_else(|| "a seed is a number, or a version and a number such as 1.12345".into())
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(version) = self.version {
            write!(f, "{version}.")?;
        }
        write!(f, "{}", self.number)
    }
}

/// A good mix of the bits of `n` (the finaliser of SplitMix64).
pub fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// A seed from the system.
pub fn random_seed() -> u64 {
    RandomState::new().hash_one(0) >> 32
}

/// A short word for a text (FNV-1a), which stays the same with every compiler.
#[cfg(test)]
pub fn digest(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SONGS: Drawn = Drawn { what: "songs", version: 3 };

    #[test]
    fn seeds_are_read_as_they_are_printed() {
        for text in ["12345", "3.12345", "0.0", "3.18446744073709551615"] {
            assert_eq!(text.parse::<Seed>().unwrap().to_string(), text);
        }
        for text in ["", ".", "3.", ".5", "3.5.7", "-1", "3.x", "v3.5", "18446744073709551616"] {
            assert!(text.parse::<Seed>().is_err(), "{text}");
        }
        assert_eq!(SONGS.seed(7).to_string(), "3.7");
    }

    #[test]
    fn a_seed_of_another_version_is_refused_and_a_plain_number_is_not() {
        let number = |text: &str| SONGS.number(text.parse().unwrap());
        assert_eq!(number("3.7").unwrap(), 7);
        assert_eq!(number("7").unwrap(), 7);
        for text in ["2.7", "4.7"] {
            let words = number(text).unwrap_err();
            assert!(words.starts_with(&format!("seed {text} is from version ")), "{words}");
            assert!(words.contains(" of the songs, and this tool has version 3"), "{words}");
        }
    }
}
