//! TPC-C: the load against the specification, each transaction against a map, terminals side by side, and inconsistencies that are found.

mod judge;
mod program;

use hedgerow_bench::tpcc::conditions;
use hedgerow_bench::tpcc::engine::{Place, Store};
use hedgerow_bench::tpcc::isolated;
use hedgerow_bench::tpcc::isolated::Isolation;
use hedgerow_bench::tpcc::load::load;
use hedgerow_bench::tpcc::random::is_original;
use hedgerow_bench::tpcc::records::{
    Customer, District, History, Order, OrderLine, Record, Warehouse,
};
use hedgerow_bench::tpcc::run::{self, Length, Setting};
use hedgerow_bench::tpcc::tables::{self, last_number};
use hedgerow_bench::tpcc::{Error, Kind, Outcome, Scale, Step, Table, Tables, Terminal, Work};
use judge::Judge;
use std::collections::BTreeSet;

const SEED: u64 = 7;

/// One more than the smallest of everything, and quick without optimisation.
const SMALL: Scale = Scale { warehouses: 2, share: 0.011 };

fn never() -> bool {
    false
}

fn judge(scale: &Scale) -> Judge {
    let mut judge = Judge::default();
    load(&mut judge, scale, SEED, &never).unwrap();
    judge
}

fn store(place: &Place) -> Store {
    Store::open(place, &SMALL, SEED, &never).unwrap()
}

/// Everything in a table.
fn records<T: Tables>(tables: &mut T, table: Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut records = Vec::new();
    let mut take = |key: &[u8], value: &[u8]| {
        records.push((key.to_vec(), value.to_vec()));
        Step::Continue(())
    };
    tables.scan(table, &[], &mut take).unwrap();
    records
}

fn heads<R: Record>(judge: &mut Judge, table: Table) -> Vec<R> {
    records(judge, table).iter().map(|(_, row)| R::read(row).unwrap()).collect()
}

#[test]
fn the_load_has_the_rows_of_the_specification() {
    let scale = Scale { warehouses: 2, share: 0.1 };
    let mut judge = judge(&scale);
    let mut count = |table| records(&mut judge, table).len();
    // Clause 4.3.3.1: a tenth of everything but warehouses and districts.
    assert_eq!(count(Table::Warehouse), 2);
    assert_eq!(count(Table::District), 2 * 10);
    assert_eq!(count(Table::Item), 10_000);
    assert_eq!(count(Table::Stock), 2 * 10_000);
    for table in [Table::Customer, Table::CustomerByName, Table::History] {
        assert_eq!(count(table), 2 * 10 * 300, "{table}");
    }
    for table in [Table::Order, Table::OrderByCustomer] {
        assert_eq!(count(table), 2 * 10 * 300, "{table}");
    }
    assert_eq!(count(Table::NewOrder), 2 * 10 * 90);
    // Ten lines an order on average.
    let lines = count(Table::OrderLine);
    assert!((58_000..62_000).contains(&lines), "{lines}");
    conditions::check(&mut judge, &scale).unwrap();
}

#[test]
fn the_rows_of_the_load_are_those_of_the_specification() {
    let judge = &mut judge(&Scale { warehouses: 1, share: 0.1 });
    let warehouses: Vec<Warehouse> = heads(judge, Table::Warehouse);
    assert!(warehouses[0].paid == 3_000_000 && warehouses[0].tax <= 2_000);
    for district in heads::<District>(judge, Table::District) {
        assert_eq!((district.paid, district.next_order), (300_000, 301));
    }
    let customers: Vec<Customer> = heads(judge, Table::Customer);
    let bad = customers.iter().filter(|customer| customer.credit == *b"BC").count();
    assert!((200..400).contains(&bad), "a tenth of 3,000: {bad}");
    assert!(customers.iter().all(|customer| customer.balance == -1_000));
    for district in customers.chunks(300) {
        let names: BTreeSet<_> = district.iter().map(|customer| customer.last).collect();
        assert_eq!(names.len(), 100, "each name is somebody's");
    }
    for (key, row) in records(judge, Table::Order) {
        let (order, number) =
            (Order::read(&row).unwrap(), last_number(Table::Order, &key).unwrap());
        assert!((5..=15).contains(&order.lines));
        assert_eq!(order.carrier == 0, number > 210, "the last 90 of 300 are new");
    }
    let lines: Vec<OrderLine> = heads(judge, Table::OrderLine);
    assert!(lines.iter().all(|line| (line.delivered == 0) == (line.amount > 0)));
    for table in [Table::Item, Table::Stock] {
        let rows = records(judge, table);
        let originals = rows.iter().filter(|(_, row)| is_original(row)).count();
        assert!((850..1_150).contains(&originals), "a tenth of {table}: {originals}");
    }
    // Each customer has ordered once.
    let customers: BTreeSet<_> = records(judge, Table::OrderByCustomer)
        .into_iter()
        .map(|(key, _)| key[..9].to_vec())
        .collect();
    assert_eq!(customers.len(), 3_000);
}

#[test]
fn loads_of_a_seed_are_the_same_in_every_store() {
    let mut judge = judge(&SMALL);
    for is_inserted in [false, true] {
        let engine = store(&Place { is_inserted, ..Place::default() });
        for table in Table::ALL {
            assert!(records(&mut judge, table) == records(&mut engine.handles(), table), "{table}");
        }
    }
}

/// Enters `count` transactions into both, the same, and compares what they say and leave.
fn same_in_both(place: &Place, count: usize, mut draw: impl FnMut(&mut Terminal) -> Option<Kind>) {
    let (mut judge, engine) = (judge(&SMALL), store(place));
    let mut handles = engine.handles();
    let mut terminal = Terminal::new(SMALL, SEED, 0);
    let mut rolled_back = 0;
    {
        let (mut of_judge, mut of_engine) = (Work::new(&mut judge), Work::new(&mut handles));
        for number in 0..count {
            let transaction = match draw(&mut terminal) {
                Some(kind) => terminal.draw_kind(kind),
                None => terminal.draw(),
            };
            let expected = transaction.run(&mut of_judge).unwrap();
            let found = transaction.run(&mut of_engine).unwrap();
            assert_eq!(expected, found, "transaction {number}: {transaction:?}");
            rolled_back += usize::from(expected == Outcome::RolledBack);
        }
        assert_eq!((of_judge.retries, of_engine.retries), (0, 0));
    }
    assert!(rolled_back <= count / 20, "{rolled_back}");
    for table in Table::ALL {
        assert!(records(&mut judge, table) == records(&mut handles, table), "{table}");
    }
    conditions::check(&mut judge, &SMALL).unwrap();
    conditions::check(&mut handles, &SMALL).unwrap();
}

#[test]
fn new_orders_leave_what_a_map_has() {
    same_in_both(&Place::default(), 500, |_| Some(Kind::NewOrder));
}

#[test]
fn payments_leave_what_a_map_has() {
    same_in_both(&Place::default(), 500, |_| Some(Kind::Payment));
}

#[test]
fn order_status_says_what_a_map_says() {
    same_in_both(&Place::default(), 300, |_| Some(Kind::OrderStatus));
}

#[test]
fn deliveries_leave_what_a_map_has_until_nothing_is_new() {
    // Ten new orders in each district, of two warehouses: the last deliveries find none.
    same_in_both(&Place::default(), 60, |_| Some(Kind::Delivery));
}

#[test]
fn stock_levels_are_what_a_map_says() {
    same_in_both(&Place::default(), 100, |_| Some(Kind::StockLevel));
}

#[test]
fn the_mix_leaves_what_a_map_has_in_a_file_with_large_pages() {
    let directory = tempfile::tempdir().unwrap();
    let place = Place {
        path: Some(directory.path().join("tpcc.hrow")),
        page_bytes: Some(16 << 10),
        memory_limit_bytes: Some(32 << 20),
        is_without_log: true,
        ..Place::default()
    };
    same_in_both(&place, 600, |_| None);
}

#[test]
fn an_order_that_is_rolled_back_has_written_nothing() {
    let mut judge = judge(&SMALL);
    let mut terminal = Terminal::new(SMALL, SEED, 3);
    let before = judge.clone();
    let mut found = 0;
    while found < 3 {
        let transaction = terminal.draw_kind(Kind::NewOrder);
        let mut tables = before.clone();
        if transaction.run(&mut Work::new(&mut tables)).unwrap() == Outcome::RolledBack {
            assert!(tables == before);
            found += 1;
        }
    }
    // And one that is not has.
    while terminal.draw_kind(Kind::NewOrder).run(&mut Work::new(&mut judge)).unwrap()
        == Outcome::RolledBack
    {}
    assert!(judge != before);
}

#[test]
fn an_order_is_not_delivered_before_one_that_is_still_entered() {
    let mut judge = judge(&SMALL);
    let mut terminal = Terminal::new(SMALL, SEED, 4);
    let place = |number| tables::order(1, 1, number);
    // A New-Order that has its number, and nothing else yet.
    let first = SMALL.delivered() + 1;
    let key = place(first);
    let order = judge.take(Table::Order, key.as_ref()).unwrap();
    judge.take(Table::NewOrder, key.as_ref()).unwrap();
    let deliver = |judge: &mut Judge, terminal: &mut Terminal| {
        for _ in 0..4 {
            terminal.draw_kind(Kind::Delivery).run(&mut Work::new(judge)).unwrap();
        }
    };
    deliver(&mut judge, &mut terminal);
    let is_new = |judge: &mut Judge, number| {
        judge.get(Table::NewOrder, place(number).as_ref(), &mut Vec::new()).unwrap()
    };
    assert!(is_new(&mut judge, first + 1));
    // It has made its order: that is without a carrier.
    assert!(judge.insert(Table::Order, key.as_ref(), &order).unwrap());
    deliver(&mut judge, &mut terminal);
    assert!(is_new(&mut judge, first + 1));
    // It has finished.
    assert!(judge.insert(Table::NewOrder, key.as_ref(), &[]).unwrap());
    deliver(&mut judge, &mut terminal);
    assert!(!is_new(&mut judge, first));
    conditions::check(&mut judge, &SMALL).unwrap();
}

fn setting(scale: Scale, isolation: Isolation, transactions: u64) -> Setting {
    let length = Length::Transactions(transactions);
    Setting { scale, threads: 2, length, isolation, seed: SEED, space: None }
}

const ISOLATIONS: [Isolation; 3] = [Isolation::Steps, Isolation::Snapshot, Isolation::Serializable];

#[test]
fn two_terminals_keep_the_conditions() {
    // One warehouse, so that they meet.
    let scale = Scale { warehouses: 1, share: 0.01 };
    for isolation in ISOLATIONS {
        let setting = setting(scale, isolation, 1_000);
        let measured = run::run(&Place::default(), &setting, &never).unwrap();
        assert_eq!(measured.transactions, 2_000);
        let sum: u64 = measured.kinds.iter().map(|of| of.transactions).sum();
        assert_eq!(sum, 2_000);
        assert!(measured.kinds.iter().all(|of| of.transactions > 0 && of.latency.is_some()));
        assert!(measured.kinds[0].rolled_back > 0, "{:?}", measured.kinds[0]);
        assert!(measured.load_seconds.is_some());
    }
}

/// In a store of several times its memory, with and without a log.
#[test]
fn two_terminals_keep_the_conditions_in_a_store_larger_than_memory() {
    for (isolation, is_without_log) in [
        (Isolation::Snapshot, false),
        (Isolation::Serializable, false),
        (Isolation::Serializable, true),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.hrow");
        let memory_limit_bytes = Some(4 << 20);
        let place = Place {
            path: Some(path.clone()),
            memory_limit_bytes,
            is_without_log,
            ..Place::default()
        };
        let scale = Scale { warehouses: 1, share: 0.2 };
        run::run(&place, &setting(scale, isolation, 500), &never).unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() > 16 << 20);
    }
}

/// What one terminal enters in transactions is what a map says.
#[test]
fn transactions_leave_what_a_map_has() {
    let (mut judge, engine) = (judge(&SMALL), store(&Place::default()));
    let mut handles = engine.handles();
    let mut terminal = Terminal::new(SMALL, SEED, 0);
    for number in 0..400 {
        let transaction = terminal.draw();
        let mut work = Work::new(&mut judge);
        work.date = number;
        let expected = transaction.run(&mut work).unwrap();
        let isolation = match number % 2 {
            0 => hedgerow::Isolation::Snapshot,
            _ => hedgerow::Isolation::Serializable,
        };
        let found = isolated::run(&transaction, &handles, isolation, number).unwrap();
        assert_eq!((expected, 0), found, "transaction {number}: {transaction:?}");
    }
    for table in Table::ALL {
        assert!(records(&mut judge, table) == records(&mut handles, table), "{table}");
    }
}

#[test]
fn an_interrupted_run_is_consistent() {
    let directory = tempfile::tempdir().unwrap();
    let place = Place { path: Some(directory.path().join("s.hrow")), ..Place::default() };
    let scale = Scale { warehouses: 1, share: 0.001 };
    Store::open(&place, &scale, SEED, &never).unwrap().close().unwrap();
    let asked = std::sync::atomic::AtomicU64::new(0);
    let is_interrupted = || asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= 100;
    let outcome = run::run(&place, &setting(scale, Isolation::Steps, u64::MAX), &is_interrupted);
    assert_eq!(outcome, Err(Error::Interrupted), "and not: violated");
    let store = Store::open(&place, &scale, SEED, &never).unwrap();
    conditions::check(&mut store.handles(), &scale).unwrap();
}

/// Which condition `change` of a consistent database violates, and where.
fn violated(change: impl Fn(&mut Work<'_, Judge>)) -> (u8, u32, Option<u8>) {
    let mut judge = judge(&SMALL);
    let mut terminal = Terminal::new(SMALL, SEED, 0);
    let mut work = Work::new(&mut judge);
    for _ in 0..100 {
        terminal.draw().run(&mut work).unwrap();
    }
    change(&mut work);
    let error = conditions::check(&mut judge, &SMALL).unwrap_err();
    let words = error.to_string();
    match error {
        Error::Violated { condition, warehouse, district, .. } => {
            let place =
                district.map_or(String::new(), |district| format!("district {district} of "));
            let start = format!(
                "consistency condition {condition} does not hold in {place}warehouse {warehouse}:"
            );
            assert!(words.starts_with(&start), "{words}");
            (condition, warehouse, district)
        }
        other => panic!("{other}"),
    }
}

/// The first or last order of a table in district 7 of warehouse 2.
fn order_in(work: &mut Work<'_, Judge>, table: Table, place: usize) -> tables::Key {
    let mut numbers = Vec::new();
    let prefix = tables::district(2, 7);
    work.scan(table, prefix, prefix, |key, _| {
        numbers.push(last_number(table, key).unwrap());
        Ok(true)
    })
    .unwrap();
    tables::order(2, 7, numbers[numbers.len() * place / 2 - usize::from(place == 2)])
}

#[test]
fn condition_1_finds_a_payment_that_a_district_lacks() {
    let at = violated(|work| {
        let key = tables::district(2, 7);
        work.update(Table::District, key, |row: &mut District| row.paid -= 1).unwrap();
    });
    assert_eq!(at, (1, 2, None));
}

#[test]
fn condition_2_finds_a_number_without_an_order() {
    let at = violated(|work| {
        let key = tables::district(2, 7);
        work.update(Table::District, key, |row: &mut District| row.next_order += 1).unwrap();
    });
    assert_eq!(at, (2, 2, Some(7)));
}

#[test]
fn condition_2_finds_an_order_that_is_not_new() {
    let at = violated(|work| {
        let last = order_in(work, Table::NewOrder, 2);
        work.remove(Table::NewOrder, last).unwrap();
    });
    assert_eq!(at, (2, 2, Some(7)));
}

#[test]
fn condition_3_finds_a_gap_between_new_orders() {
    let at = violated(|work| {
        let middle = order_in(work, Table::NewOrder, 1);
        work.remove(Table::NewOrder, middle).unwrap();
    });
    assert_eq!(at, (3, 2, Some(7)));
}

#[test]
fn condition_4_finds_a_lost_line_of_an_order() {
    let at = violated(|work| {
        let last = order_in(work, Table::Order, 2);
        work.remove(Table::OrderLine, tables::order_line(last, 5)).unwrap();
    });
    assert_eq!(at, (4, 2, Some(7)));
}

#[test]
fn condition_5_finds_a_new_order_with_a_carrier() {
    let at = violated(|work| {
        let first = order_in(work, Table::NewOrder, 0);
        work.update(Table::Order, first, |order: &mut Order| order.carrier = 3).unwrap();
    });
    assert_eq!(at, (5, 2, Some(7)));
}

#[test]
fn condition_6_finds_a_line_that_went_to_another_order() {
    let at = violated(|work| {
        let (first, last) = (order_in(work, Table::Order, 0), order_in(work, Table::Order, 2));
        let line: OrderLine = work.read(Table::OrderLine, tables::order_line(last, 5)).unwrap();
        work.remove(Table::OrderLine, tables::order_line(last, 5)).unwrap();
        work.insert_head(Table::OrderLine, tables::order_line(first, 99), &line).unwrap();
    });
    assert_eq!(at, (6, 2, Some(7)));
}

#[test]
fn condition_7_finds_a_line_that_was_not_delivered() {
    let at = violated(|work| {
        let line = tables::order_line(order_in(work, Table::Order, 0), 2);
        work.update(Table::OrderLine, line, |line: &mut OrderLine| line.delivered = 0).unwrap();
    });
    assert_eq!(at, (7, 2, Some(7)));
}

/// A payment of the first customer of district 7 of warehouse 2.
fn payment() -> tables::Key {
    tables::history(tables::customer(2, 7, 1), 1)
}

#[test]
fn condition_8_finds_a_payment_in_another_warehouse() {
    let at = violated(|work| {
        work.update(Table::History, payment(), |row: &mut History| row.warehouse = 1).unwrap();
    });
    assert_eq!(at, (8, 1, None));
}

#[test]
fn condition_9_finds_a_payment_in_another_district() {
    let at = violated(|work| {
        work.update(Table::History, payment(), |row: &mut History| row.district = 8).unwrap();
    });
    assert_eq!(at, (9, 2, Some(7)));
}

#[test]
fn condition_10_finds_a_balance_that_is_too_high() {
    let at = violated(|work| {
        let key = tables::customer(2, 7, 1);
        work.update(Table::Customer, key, |row: &mut Customer| row.balance += 1).unwrap();
    });
    assert_eq!(at, (10, 2, Some(7)));
}

#[test]
fn condition_11_finds_a_delivery_that_a_customer_does_not_count() {
    let at = violated(|work| {
        let key = tables::customer(2, 7, 1);
        work.update(Table::Customer, key, |row: &mut Customer| row.deliveries += 1).unwrap();
    });
    assert_eq!(at, (11, 2, Some(7)));
}

#[test]
fn condition_12_finds_a_customer_who_has_paid_less() {
    let at = violated(|work| {
        let key = tables::customer(2, 7, 1);
        work.update(Table::Customer, key, |row: &mut Customer| row.paid -= 1).unwrap();
    });
    assert_eq!(at, (12, 2, Some(7)));
}
