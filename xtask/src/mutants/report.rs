//! What came of the mutants, summed by part, for people and for a record.

use super::copy::Mutant;
use super::run::Outcome;
use crate::parts::PARTS;
use crate::proof::{Share, escape, today};
use std::fs;
use std::io::Write as _;
use std::path::Path;

/// Of a hundred mutants of a part, how many the tests are to notice.
const ASKED_PERCENT: f64 = 90.0;

/// The mutants of a part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sum {
    name: &'static str,
    /// Those that were to be tried.
    chosen: usize,
    caught: usize,
    hung: usize,
    /// Those of the chosen that do not compile.
    unviable: usize,
    /// What nothing has noticed, in words.
    missed: Vec<String>,
}

impl Sum {
    /// Of each part those that were chosen: what does not compile, and what came of those that were tried.
    pub fn of_parts(unviable: &[&Mutant], tried: &[(&Mutant, Option<Outcome>)]) -> Vec<Sum> {
        let sum = |(part, of): (usize, &'static crate::parts::Part)| {
            let mut sum = Sum {
                name: of.name,
                chosen: 0,
                caught: 0,
                hung: 0,
                unviable: 0,
                missed: Vec::new(),
            };
            sum.unviable = unviable.iter().filter(|mutant| mutant.part == part).count();
            for (mutant, outcome) in tried.iter().filter(|(mutant, _)| mutant.part == part) {
                sum.chosen += 1;
                match outcome {
                    None => {}
                    Some(Outcome::Caught(_)) => sum.caught += 1,
                    Some(Outcome::Hung(_)) => sum.hung += 1,
                    Some(Outcome::Missed(run, of)) if run == of => {
                        sum.missed.push(mutant.words.clone())
                    }
                    Some(Outcome::Missed(run, of)) => {
                        sum.missed.push(format!("{} ({run} of {of} tests were run)", mutant.words));
                    }
                    Some(Outcome::NotReached) => {
                        sum.missed.push(format!("{} (not reached)", mutant.words));
                    }
                }
            }
            sum.missed.sort();
            sum
        };
        PARTS.iter().enumerate().map(sum).collect()
    }

    fn tried(&self) -> usize {
        self.caught + self.hung + self.missed.len()
    }

    fn percent(&self) -> f64 {
        100.0 * (self.caught + self.hung) as f64 / self.tried() as f64
    }

    fn line(&self, date: &str, revision: &str, share: Share) -> String {
        let Sum { name, chosen, caught, hung, unviable, missed } = self;
        let missed: Vec<String> =
            missed.iter().map(|mutant| format!("\"{}\"", escape(mutant))).collect();
        format!(
            "{{\"date\":\"{date}\",\"revision\":\"{revision}\",\"share\":\"{}\",\"part\":\"{name}\",\
             \"chosen\":{chosen},\"tried\":{},\"caught\":{caught},\"hung\":{hung},\
             \"unviable\":{unviable},\"missed\":[{}]}}",
            share.show(),
            self.tried(),
            missed.join(",")
        )
    }
}

/// Prints what came of it; whether of every part enough were noticed.
///
/// Errors: in words, if nothing was tried.
pub fn tell(sums: &[Sum]) -> Result<bool, String> {
    if sums.iter().all(|sum| sum.tried() == 0) {
        return Err("there was no mutant to be noticed".into());
    }
    let mut is_enough = true;
    for mutant in sums.iter().flat_map(|sum| &sum.missed) {
        println!("not noticed: {mutant}");
    }
    println!(
        "{:10} {:>7} {:>7} {:>8} {:>8} {:>7} {:>6}",
        "part", "mutants", "tried", "noticed", "unviable", "percent", "asked"
    );
    for sum in sums.iter().filter(|sum| sum.tried() > 0) {
        is_enough &= sum.percent() >= ASKED_PERCENT;
        println!(
            "{:10} {:>7} {:>7} {:>8} {:>8} {:>7.1} {ASKED_PERCENT:>6.1}",
            sum.name,
            sum.chosen,
            sum.tried(),
            sum.caught + sum.hung,
            sum.unviable,
            sum.percent()
        );
    }
    Ok(is_enough)
}

/// Adds what came of it to a record, which is made if there is none.
///
/// Errors: in words.
pub fn append(path: &Path, revision: &str, share: Share, sums: &[Sum]) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(cannot)?;
    }
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path).map_err(cannot)?;
    let date = today();
    for sum in sums.iter().filter(|sum| sum.tried() > 0) {
        writeln!(file, "{}", sum.line(&date, revision, share)).map_err(cannot)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noticed_is_summed_by_part() {
        let log = PARTS.iter().position(|part| part.name == "log").unwrap();
        let mutant = |part: usize, words: &str| Mutant {
            number: 0,
            path: String::new(),
            line: 1,
            part,
            words: words.into(),
        };
        let mutants = [
            mutant(log, "a"),
            mutant(log, "replace \"\""),
            mutant(log, "c"),
            mutant(log, "b"),
            mutant(log + 1, "e"),
        ];
        let outcomes = [
            Some(Outcome::Caught("t".into())),
            Some(Outcome::Missed(1, 1)),
            Some(Outcome::Hung("t".into())),
            None,
            Some(Outcome::NotReached),
        ];
        let tried: Vec<_> = mutants.iter().zip(outcomes).collect();
        let sums = Sum::of_parts(&[&mutants[0]], &tried);
        let sum = &sums[log];
        assert_eq!((sum.chosen, sum.tried(), sum.percent().round() as u64), (4, 3, 67));
        assert_eq!((sum.caught, sum.hung, sum.unviable, sum.missed.len()), (1, 1, 1, 1));
        assert_eq!(sums[log + 1].missed, ["e (not reached)"]);
        let line = sum.line("2026-01-02", "abc", Share { index: 0, of: 4 });
        assert!(
            line.starts_with("{\"date\":\"2026-01-02\",\"revision\":\"abc\",\"share\":\"1/4\"")
        );
        assert!(line.ends_with("\"missed\":[\"replace \\\"\\\"\"]}"), "{line}");
        assert_eq!(tell(&sums), Ok(false));
    }

    #[test]
    fn a_run_without_mutants_is_refused() {
        assert_eq!(tell(&Sum::of_parts(&[], &[])), Err("there was no mutant to be noticed".into()));
    }
}
