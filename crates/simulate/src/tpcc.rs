//! TPC-C on the simulated machine: figure 3 of "Contention and Space Management in B-Trees" (CIDR 2021).
//!
//! 100 warehouses and their districts in full, other tables at a hundredth, pages of 16 KiB, in memory: the rows of all warehouses are in
//! one leaf. The consistency conditions are checked after each run.
//!
//! Two things are not scaled, or they would be all that is measured. New orders are as many as in full: all threads insert and remove
//! these, and at a hundredth they would do so in a dozen leaves instead of a thousand, which no split between updates helps. And leaves
//! are half full after the load: at nine tenths all of them split soon after the beginning, and a hundredth of them has one or
//! two parents instead of a hundred, at which splits would wait for each other.

use crate::figure::{Budget, Figure, Point, Sample, Series};
use hedgerow::ContentionSplit;
use hedgerow_bench::tpcc::engine::{Place, Store};
use hedgerow_bench::tpcc::{Key, Kind, Scale, Table, Tables, Terminal, Work, conditions, tables};
use hedgerow_sim::{Machine, cycles, run, work, work_until};
use hedgerow_sync::primitive::{Arc, thread};

/// When all threads are there, in cycles.
const READY: u64 = 500_000;
/// Cycles before what is counted, and of that.
struct Spans {
    warm: u64,
    counted: u64,
}

const SPANS: Spans = Spans { warm: 6_000_000, counted: 1_500_000 };
/// Enough to see that it works.
const SMOKE: Spans = Spans { warm: 4_000_000, counted: 2_000_000 };
/// How full leaves are after the load.
const FILL_PERCENT: u8 = 50;
/// New orders of a district after the load, in full (clause 4.3.3.1 of the specification).
const NEW_ORDERS: u32 = 900;
/// The work of a transaction beside its operations on records, in cycles.
const THINKING: u64 = 2_000;

/// Keys of the new orders that a scaled load leaves out. Their numbers are the largest there are, which have no orders: no
/// transaction gets as far.
fn missing(scale: Scale) -> impl Iterator<Item = Key> {
    let many = NEW_ORDERS.saturating_sub(scale.customers() - scale.delivered());
    // District after district, so that leaves are as full as after random inserts.
    (u32::MAX - many..u32::MAX).flat_map(move |number| {
        let of_district = move |(warehouse, district)| tables::order(warehouse, district, number);
        scale.districts().map(of_district)
    })
}

/// `kind`: of which all transactions are; else they are those of the mix.
fn transactions(
    machine: &Machine,
    scale: Scale,
    split: Option<ContentionSplit>,
    kind: Option<Kind>,
    spans: &Spans,
) -> Sample {
    let &Spans { warm, counted } = spans;
    let place = Place {
        page_bytes: Some(16 << 10),
        memory_limit_bytes: Some(1 << 30),
        fill_percent: Some(FILL_PERCENT),
        ..Place::default()
    };
    let store = Store::open(&place, &scale, 1, &|| false).expect("there is memory for it");
    let store = store.with_contention_split(split);
    let mut handles = store.handles();
    for key in missing(scale) {
        let is_new = handles.insert(Table::NewOrder, key.as_ref(), &[]);
        assert_eq!(is_new, Ok(true), "there is memory for it, and no such order");
    }
    let (store, contexts) = (Arc::new(store), machine.contexts);
    let inside = Arc::clone(&store);
    let (done, record) = run(machine, move || {
        let start = |number: u32| {
            let store = Arc::clone(&inside);
            thread::spawn_named("terminal", move || {
                let mut handles = store.handles();
                let mut terminal = Terminal::new(scale, 1, number);
                let mut records = Work::new(&mut handles);
                work_until(READY);
                let mut done = 0_u64;
                loop {
                    let now = cycles().unwrap_or(u64::MAX);
                    if now >= READY + warm + counted {
                        return done;
                    }
                    let drawn = match kind {
                        Some(kind) => terminal.draw_kind(kind),
                        None => terminal.draw(),
                    };
                    let outcome = drawn.run(&mut records);
                    outcome.expect("a transaction on a database in memory with room");
                    done += u64::from(now >= READY + warm);
                    work(THINKING);
                }
            })
            .expect("a virtual thread")
        };
        let threads: Vec<_> = (0..contexts).map(start).collect();
        let ends = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
        ends.sum::<u64>()
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
    for key in missing(scale) {
        let was_there = handles.remove(Table::NewOrder, key.as_ref());
        assert_eq!(was_there, Ok(true), "no transaction delivers it");
    }
    conditions::check(&mut handles, &scale).expect("the consistency conditions hold");
    let seconds = counted as f64 / f64::from(machine.mhz) / 1e6;
    let value = done as f64 / seconds / 1e3;
    let splits = store.contention_splits().expect("it is open");
    Sample { splits, ..Sample::new(machine.seed, value, &record) }
}

/// Transactions with and without Contention Split: those of the mix, and payments alone, of which each updates a warehouse.
pub fn c1(budget: &Budget) -> Figure {
    let scale = Scale { warehouses: if budget.is_smoke { 10 } else { 100 }, share: 0.01 };
    let spans = if budget.is_smoke { &SMOKE } else { &SPANS };
    let (with, payment) = (Some(ContentionSplit::default()), Some(Kind::Payment));
    let variants = [
        ("without Contention Split", None, None),
        ("with it", with, None),
        ("payments alone, without it", None, payment),
        ("payments alone, with it", with, payment),
    ];
    let of = |(name, split, kind): (&str, Option<ContentionSplit>, Option<Kind>)| {
        let point = |&cores: &u32| {
            let machine = Machine::ROME1S.with_contexts(cores);
            Point::measure(f64::from(cores), budget, |seed| {
                transactions(&machine.clone().with_seed(seed), scale, split, kind, spans)
            })
        };
        let points = budget.cores(&[1, 8, 32, 80, 128]).iter().map(point).collect();
        Series { name: name.to_owned(), points }
    };
    Figure {
        machine: "rome1s",
        x: "cores",
        unit: "thousand transactions a second",
        is_logarithmic: false,
        series: variants.into_iter().map(of).collect(),
        note: "The paper: flat from 60 threads on without it, linear with it.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither addresses nor what was in the heap before may be seen in a run, nor how long it took to load.
    #[test]
    fn transactions_are_the_same_whatever_the_heap_was_used_for() {
        let scale = Scale { warehouses: 2, share: 0.01 };
        let spans = Spans { warm: 1_000_000, counted: 500_000 };
        let digest = |split| {
            let machine = Machine::ROME1S.with_contexts(6);
            transactions(&machine, scale, split, None, &spans).digest
        };
        for split in [None, Some(ContentionSplit::default())] {
            let first = digest(split);
            for bytes in [8, 24, 40, 1_000, 70_000] {
                let _kept: Vec<Vec<u8>> = (1..4).map(|many| vec![1; many * bytes]).collect();
                drop(vec![vec![2_u8; bytes]; 9]);
                assert_eq!(digest(split), first, "blocks of {bytes} bytes, {split:?}");
            }
        }
    }
}
