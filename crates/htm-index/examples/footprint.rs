//! What HPCA 2014 computes (table 1, sections 2.2 and 5.1), and the lines that our trees reach, counted.
//!
//! `cargo run --release -p hedgerow-htm-index --example footprint -- [KEYS [LOOK-UPS]]`; without arguments 1,000,000 keys and 10,000 look-ups.

use hedgerow_htm_index::bplus::BPlusTree;
use hedgerow_htm_index::delta::{DeltaIndex, Search, Switches};
use hedgerow_htm_index::footprint::{Footprint, Lines, overflow, propagates, worst_lines};
use hedgerow_sync::primitive::random::SplitMix64;
use std::error::Error;
use std::process::ExitCode;

fn said(what: &str, height: u32, lines: Lines) {
    println!("| {what} | {height} | {:.1} | {} |", lines.average(), lines.most);
}

fn counted(keys: u32, look_ups: u64) -> Result<(), Box<dyn Error>> {
    println!("\nlines of a look-up, counted, {keys} keys, the lock's included\n");
    println!("| index | height | average | most |\n|---|---|---|---|");
    let keys_of = || {
        let mut random = SplitMix64::new(1);
        (0..look_ups).map(move |_| 2 * random.below(u64::from(keys)))
    };
    for (name, search) in [("linear", Search::Linear), ("binary", Search::Binary)] {
        let switches = Switches { search, ..Switches::UNTUNED };
        let index = DeltaIndex::new(Footprint::new(), switches, keys, 0)?;
        index.load(&(0..u64::from(keys)).map(|key| 2 * key).collect::<Vec<_>>(), 1)?;
        index.htm().take();
        if keys_of().any(|key| index.id_of(key).is_none()) {
            return Err("a value is not there".into());
        }
        said(&format!("delta index, {name} search"), index.height(), index.htm().take());
    }
    let tree = BPlusTree::new(Footprint::new(), keys)?;
    tree.load((0..u64::from(keys)).map(|key| (2 * key, key)), 1)?;
    tree.htm().take();
    if keys_of().any(|key| tree.get(key).is_none()) {
        return Err("a key is not there".into());
    }
    said("B+tree", tree.height(), tree.htm().take());
    Ok(())
}

fn main() -> ExitCode {
    println!(
        "table 1: nodes of a level from the leaves on, with which an insert propagates to it (b = 31)\n"
    );
    println!(
        "| level | nodes, paper | P access, 1 / nodes | P access, printed | Ps | Ps, printed | PC, computed | PC, printed |\n|---|---|---|---|---|---|---|---|"
    );
    for (level, nodes, access, ps, pc) in [
        (4, 1.0, 1.0, 4.78e-6, 4.78e-6),
        (3, 16.0, 6.25e-2, 1.02e-4, 6.39e-6),
        (2, 496.0, 2.72e-3, 2.19e-3, 5.94e-6),
        (1, 15_100.0, 1.18e-4, 4.68e-2, 5.52e-6),
        (0, 465_000.0, 5.14e-6, 1.0, 5.14e-6),
    ] {
        let computed = propagates(31, level);
        println!(
            "| {level} | {nodes} | {:.2e} | {access:.2e} | {computed:.2e} | {ps:.2e} | {:.2e} | {pc:.2e} |",
            1.0 / nodes,
            access * computed
        );
    }
    println!("\nworst traversal, b = 31, h = 6: {} lines", worst_lines(6, 3, 31, 6));
    println!("\n| lines | overflow, 4 ways | 8 ways |\n|---|---|---|");
    for lines in [20, 47, 53, 93, 213] {
        let percent = |ways| 100.0 * overflow(lines, 64, ways);
        println!("| {lines} | {:.2} % | {:.2} % |", percent(4), percent(8));
    }
    let mut words = std::env::args().skip(1);
    let mut number = |default: u64| match words.next() {
        None => Ok(default),
        Some(word) => word.parse().map_err(|_| word),
    };
    let result = match (number(1_000_000), number(10_000)) {
        (Ok(keys), Ok(look_ups)) if (1..=30_000_000).contains(&keys) => {
            counted(keys as u32, look_ups)
        }
        _ => {
            eprintln!("error: keys are 1 to 30,000,000, and look-ups are a number");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
