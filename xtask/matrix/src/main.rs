//! The correctness matrix, run by `cargo xtask matrix --keys DIR`.
//!
//! Key sets x order of insertion (sorted, reversed, shuffled) x threads (1, 2, 8) x memory limit (2x,
//! 1/4 and 1/32 of the data) x layouts of leaves: in each combination every answer must be that of a `BTreeMap`. One
//! line of JSON for each combination goes to standard output, progress to standard error. The exit
//! code is 0 only if every combination that was asked for ran and was exact.

mod combination;
mod keys;

use combination::{Combination, LIMITS, ORDERS, THREADS};
use hedgerow::LeafPolicy;
use keys::Keys;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "\
usage: cargo xtask matrix --keys DIR [--sets NAME,NAME] [--leaves NAME,NAME]
                          [--count N] [--store FILE]

  --keys DIR     where the key sets are: NAME.zst or NAME.txt, one key a line
  --sets NAMES   which of them [default: all that are there, without those named *-full]
  --leaves NAMES which layouts of leaves: adaptive, comparison, fingerprint, semi-dense, fully dense
                 [default: adaptive]
  --count N      use the first N keys of each set [default: all]
  --store FILE   where to put the stores, one after the other [default: a temporary file]";

/// What the arguments say.
struct Arguments {
    keys: PathBuf,
    sets: Option<Vec<String>>,
    count: usize,
    leaves: Vec<LeafPolicy>,
    store: PathBuf,
}

fn main() -> ExitCode {
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&arguments) {
        Ok((exact, 0)) if exact > 0 => {
            eprintln!("matrix: {exact} combinations, all exact");
            ExitCode::SUCCESS
        }
        Ok((exact, wrong)) => {
            eprintln!("matrix: {exact} combinations exact, {wrong} wrong");
            ExitCode::FAILURE
        }
        Err(words) => {
            eprintln!("matrix: {words}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut keys = None;
    let mut sets = None;
    let mut count = usize::MAX;
    let mut leaves = vec![LeafPolicy::Adaptive];
    let name = format!("hedgerow-matrix-{}.hrow", std::process::id());
    let mut store = std::env::temp_dir().join(name);
    while let Some(name) = arguments.next() {
        let value = arguments.next()?;
        match name.as_str() {
            "--keys" => keys = Some(PathBuf::from(value)),
            "--sets" => sets = Some(value.split(',').map(str::to_owned).collect()),
            "--count" => count = value.parse().ok().filter(|&count| count > 0)?,
            "--leaves" => {
                leaves = value.split(',').map(combination::policy).collect::<Option<_>>()?
            }
            "--store" => store = PathBuf::from(value),
            _ => return None,
        }
    }
    Some(Arguments { keys: keys?, sets, count, leaves, store })
}

/// Runs all combinations; how many were exact, and how many were not.
fn run(arguments: &Arguments) -> Result<(usize, usize), String> {
    let sets = match &arguments.sets {
        Some(names) => names.clone(),
        None => keys::available(&arguments.keys)?,
    };
    if sets.is_empty() {
        return Err(format!("no key sets in {}", arguments.keys.display()));
    }
    let (mut exact, mut wrong) = (0, 0);
    for set in &sets {
        let keys = keys::read(&arguments.keys, set, arguments.count)?;
        for combination in combinations(set, &keys, &arguments.leaves, hedgerow::DEFAULT_PAGE_BYTES)
        {
            let started = Instant::now();
            let line = combination.run(&arguments.store);
            let is_exact = line["exact"] == true;
            *(if is_exact { &mut exact } else { &mut wrong }) += 1;
            writeln!(io::stdout(), "{line}").map_err(|e| format!("cannot print: {e}"))?;
            let verdict = if is_exact { "exact" } else { "WRONG" };
            let seconds = started.elapsed().as_secs_f64();
            eprintln!("{combination}: {verdict}, {seconds:.1} s");
        }
    }
    Ok((exact, wrong))
}

/// All combinations of one key set.
fn combinations<'a>(
    set: &'a str,
    keys: &'a Keys,
    leaves: &'a [LeafPolicy],
    page_bytes: usize,
) -> impl Iterator<Item = Combination<'a>> {
    leaves.iter().flat_map(move |&leaves| {
        ORDERS.into_iter().flat_map(move |order| {
            THREADS.into_iter().flat_map(move |threads| {
                LIMITS.into_iter().map(move |limit| Combination {
                    set,
                    keys,
                    order,
                    threads,
                    limit,
                    page_bytes,
                    leaves,
                })
            })
        })
    })
}

#[cfg(test)]
mod tests {
    //! The whole matrix on a small sample of each key set that the project ships, with tiny pages, so
    //! that there are many leaves, and fewer frames than leaves.

    use super::*;
    use hedgerow_testing::environment::is_thorough;
    use std::path::Path;

    /// Pages of the test geometry.
    const PAGE_BYTES: usize = 512;
    /// Longer keys do not fit such a page together with their values.
    const MAX_KEY_BYTES: usize = 36;

    fn every_combination_is_exact(set: &str) {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data");
        let mut keys = keys::read(&data, set, 10_000).unwrap();
        keys.retain(|key| key.len() <= MAX_KEY_BYTES);
        keys.truncate(if is_thorough() { 800 } else { 500 });
        assert!(keys.len() >= 500, "{} short keys in {set}", keys.len());
        let store =
            std::env::temp_dir().join(format!("hedgerow-matrix-{set}-{}.hrow", std::process::id()));
        let run = |combination: Combination<'_>| {
            let line = combination.run(&store);
            assert_eq!(line["exact"], true, "{combination}: {line}");
        };
        let is_tried = |combination: &Combination<'_>| is_thorough() || is_in_square(combination);
        combinations(set, &keys, &[LeafPolicy::Adaptive], PAGE_BYTES)
            .filter(is_tried)
            .for_each(run);
        let fixed = hedgerow::LeafLayout::ALL.map(LeafPolicy::Fixed);
        combinations(set, &keys, &fixed, PAGE_BYTES).filter(is_in_square).for_each(run);
    }

    /// A third of the combinations of a layout, in which any two of order, threads and limit come
    /// together once.
    fn is_in_square(combination: &Combination<'_>) -> bool {
        let order = ORDERS.iter().position(|order| *order == combination.order);
        let threads = THREADS.iter().position(|threads| *threads == combination.threads);
        let limit = LIMITS.iter().position(|limit| *limit == combination.limit);
        let places = [order, threads, limit].map(|place| place.expect("one of the matrix"));
        places.iter().sum::<usize>().is_multiple_of(3)
    }

    #[test]
    fn urls_are_exact_in_every_combination() {
        every_combination_is_exact("urls");
    }

    #[test]
    fn composite_keys_are_exact_in_every_combination() {
        every_combination_is_exact("composite");
    }
}
