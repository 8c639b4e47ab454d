//! Histories that are possible and histories that are not: by hand, made by a register that is right, and against a
//! search that tries every order.

use super::*;
use hedgerow_sync::primitive::random::SplitMix64;

/// The key of histories of one key.
const KEY: u64 = 7;

fn at(thread: u32, began: u64, ended: u64, call: Call) -> Operation {
    Operation { thread, transaction: None, key: KEY, call, began, ended }
}

fn put(new: u64) -> Call {
    Call::Put { new, was_there: None }
}

fn get(found: State) -> Call {
    Call::Get { found }
}

fn remove(was_there: bool) -> Call {
    Call::Remove { was_there: Some(was_there) }
}

fn swap(expected: State, new: State, differs: Option<State>) -> Call {
    Call::Swap { expected, new, differs }
}

fn history(operations: &[Operation]) -> History {
    History { operations: operations.to_vec(), scans: Vec::new() }
}

/// Asserts that a history of one key, which had no value, is possible.
fn assert_possible(operations: &[Operation]) {
    if let Err(violation) = history(operations).check(&BTreeMap::new()) {
        panic!("{violation}");
    }
}

/// Asserts that it is not, and returns the operations that are shown for it.
fn assert_impossible(operations: &[Operation]) -> Vec<Operation> {
    let violation = history(operations).check(&BTreeMap::new());
    let violation = violation.expect_err("there is no order");
    assert_eq!(violation.key, KEY);
    assert!(violation.to_string().contains("no order"), "{violation}");
    violation.window
}

#[test]
fn histories_that_have_an_order_pass() {
    assert_possible(&[]);
    // One after the other.
    assert_possible(&[
        at(1, 0, 1, get(None)),
        at(1, 2, 3, put(1)),
        at(1, 4, 5, get(Some(1))),
        at(1, 6, 7, remove(true)),
        at(1, 8, 9, Call::Contains { found: false }),
    ]);
    // A put under way is seen, or not yet.
    assert_possible(&[at(1, 0, 9, put(1)), at(2, 1, 2, get(None)), at(2, 3, 4, get(Some(1)))]);
    // Two puts in either order, and the readers agree.
    let puts = [at(1, 0, 5, put(1)), at(2, 0, 5, put(2))];
    for last in [1, 2] {
        assert_possible(&[puts[0], puts[1], at(1, 6, 7, get(Some(last)))]);
    }
    // The order is known only later: the swap needs the second put before it, and the first one after it.
    assert_possible(&[
        at(1, 0, 9, put(1)),
        at(2, 0, 9, put(2)),
        at(3, 1, 8, swap(Some(2), Some(3), None)),
        at(1, 10, 11, get(Some(1))),
    ]);
    assert_possible(&[
        at(1, 0, 3, Call::InsertIfAbsent { new: 1, inserted: false }),
        at(2, 1, 4, Call::InsertIfAbsent { new: 2, inserted: true }),
        at(1, 5, 6, Call::Update { new: 3, updated: true }),
        at(2, 5, 6, Call::Update { new: 4, updated: true }),
        at(2, 7, 8, swap(None, Some(5), Some(Some(3)))),
        at(2, 9, 10, swap(Some(3), None, None)),
    ]);
    // What ends at the moment at which another begins is beside it.
    assert_possible(&[at(1, 0, 1, put(1)), at(2, 1, 2, get(None))]);
}

#[test]
fn an_operation_that_never_returned_may_take_effect_at_any_time_or_not() {
    let lost = at(1, 0, NEVER, Call::Put { new: 1, was_there: Some(true) });
    assert_possible(&[lost, at(2, 5, 6, get(None))]);
    assert_possible(&[lost, at(2, 5, 6, get(None)), at(2, 7, 8, get(Some(1)))]);
    assert_impossible(&[lost, at(2, 5, 6, get(Some(1))), at(2, 7, 8, get(None))]);
}

#[test]
fn histories_that_have_no_order_are_refused() {
    // A value that nobody has put.
    assert_impossible(&[at(1, 0, 1, put(1)), at(2, 0, 2, get(Some(9)))]);
    // A change that was lost.
    assert_impossible(&[at(1, 0, 1, put(1)), at(2, 2, 3, get(None))]);
    // An old value.
    assert_impossible(&[at(1, 0, 1, put(1)), at(1, 2, 3, put(2)), at(2, 4, 5, get(Some(1)))]);
    // From the future.
    assert_impossible(&[at(1, 0, 1, get(Some(1))), at(2, 2, 3, put(1))]);
    // New, and then old, while the put is still under way.
    assert_impossible(&[at(1, 0, 9, put(1)), at(2, 1, 2, get(Some(1))), at(3, 3, 4, get(None))]);
    // Two readers see two puts in two orders.
    assert_impossible(&[
        at(1, 0, 9, put(1)),
        at(2, 0, 9, put(2)),
        at(3, 1, 2, get(Some(1))),
        at(3, 3, 4, get(Some(2))),
        at(4, 5, 6, get(Some(1))),
    ]);
    // Removed twice.
    assert_impossible(&[at(1, 0, 1, put(1)), at(1, 2, 5, remove(true)), at(2, 2, 5, remove(true))]);
    // Removed, and there.
    assert_impossible(&[at(1, 0, 1, put(1)), at(1, 2, 3, remove(true)), at(2, 4, 5, get(Some(1)))]);
    // A put over nothing that says that there was something.
    assert_impossible(&[at(1, 0, 1, Call::Put { new: 1, was_there: Some(true) })]);
    // Both were the first.
    assert_impossible(&[
        at(1, 0, 3, Call::InsertIfAbsent { new: 1, inserted: true }),
        at(2, 1, 4, Call::InsertIfAbsent { new: 2, inserted: true }),
    ]);
    // An update of nothing.
    assert_impossible(&[at(1, 0, 1, Call::Update { new: 1, updated: true })]);
    // Two swaps of one value.
    assert_impossible(&[
        at(1, 0, 1, put(1)),
        at(1, 2, 5, swap(Some(1), Some(2), None)),
        at(2, 2, 5, swap(Some(1), Some(3), None)),
    ]);
    // A swap that differs from what it expects by nothing.
    assert_impossible(&[at(1, 0, 1, put(1)), at(1, 2, 3, swap(Some(1), None, Some(Some(1))))]);
    // A swap that has found what was not there.
    assert_impossible(&[at(1, 0, 1, put(1)), at(1, 2, 3, swap(None, None, Some(Some(2))))]);
    // There, and not there.
    assert_impossible(&[at(1, 0, 1, put(1)), at(1, 2, 3, Call::Contains { found: false })]);
}

#[test]
fn what_is_shown_is_what_matters() {
    let mut operations = Vec::new();
    for round in 0..50 {
        let moment = round * 10;
        operations.push(at(1, moment, moment + 6, put(round)));
        operations.push(at(2, moment + 1, moment + 7, get(Some(round))));
    }
    assert_possible(&operations);
    // Beside a read that goes on all the time, so that something is always under way.
    let stale = at(3, 258, 259, get(Some(24)));
    let all_along = at(4, 0, 600, get(Some(3)));
    operations.extend([stale, all_along]);
    let window = assert_impossible(&operations);
    assert_eq!(window, [stale], "by then the key has another value");
    let violation = history(&operations).check(&BTreeMap::new()).unwrap_err();
    assert_eq!(violation.states, [Some(25)]);
    let text = violation.to_string();
    assert!(text.contains("key 7") && text.contains("258..259 thread 3"), "{text}");
}

#[test]
fn keys_are_registers_of_their_own_and_begin_as_they_were() {
    let of = |key, operation| Operation { key, ..operation };
    let before = BTreeMap::from([(1, 10), (2, 20)]);
    let operations = [
        of(1, at(1, 0, 1, get(Some(10)))),
        of(2, at(1, 0, 1, get(Some(20)))),
        of(3, at(1, 0, 1, get(None))),
        of(1, at(1, 2, 3, put(30))),
        of(2, at(1, 4, 5, get(Some(20)))),
    ];
    let tally = history(&operations).check(&before).unwrap();
    assert_eq!(tally, Tally { keys: 3, operations: 5, overlaps: 0 });
    let mut wrong = operations;
    wrong[4].call = get(Some(30));
    let violation = history(&wrong).check(&before).unwrap_err();
    assert_eq!((violation.key, violation.window.as_slice()), (2, &wrong[4..]));
}

fn scan(began: u64, ended: u64, forward: bool, found: &[(u64, u64)]) -> Scan {
    let found = found.to_vec();
    Scan { thread: 9, transaction: None, low: 1, high: 5, forward, found, began, ended }
}

/// Checks one scan of 1..=5 beside a put of 3 and a removal of 4 where there was 2, 4 and 6.
fn check_scan(scan: Scan) -> Result<Tally, Violation> {
    let before = BTreeMap::from([(2, 20), (4, 40), (6, 60)]);
    let of = |key, operation| Operation { key, ..operation };
    let operations = vec![of(3, at(1, 10, 15, put(30))), of(4, at(2, 10, 15, remove(true)))];
    History { operations, scans: vec![scan] }.check(&before)
}

#[test]
fn scans_meet_what_was_there() {
    let possible: [&[(u64, u64)]; 4] =
        [&[(2, 20)], &[(2, 20), (3, 30)], &[(2, 20), (4, 40)], &[(2, 20), (3, 30), (4, 40)]];
    for found in possible {
        check_scan(scan(12, 13, true, found)).unwrap();
        let mut back = found.to_vec();
        back.reverse();
        check_scan(scan(12, 13, false, &back)).unwrap();
    }
    check_scan(scan(0, 1, true, &[(2, 20), (4, 40)])).unwrap();
    check_scan(scan(16, 17, true, &[(2, 20), (3, 30)])).unwrap();
}

#[test]
fn scans_that_cannot_be_are_refused() {
    let refused = |scan: Scan, key: u64, what: &str| {
        let violation = check_scan(scan).expect_err(what);
        assert_eq!(violation.key, key, "{violation}");
        assert!(violation.what.contains(what), "{violation}");
    };
    refused(scan(12, 13, true, &[(2, 20), (2, 20)]), 2, "twice");
    refused(scan(12, 13, true, &[(4, 40), (2, 20)]), 2, "out of order");
    refused(scan(12, 13, false, &[(2, 20), (4, 40)]), 4, "out of order");
    refused(scan(12, 13, true, &[(2, 20), (6, 60)]), 6, "beyond its bounds");
    // It was there all the time.
    refused(scan(12, 13, true, &[(3, 30)]), 2, "no order");
    // It was never there.
    refused(scan(12, 13, true, &[(2, 20), (5, 50)]), 5, "no order");
    // It had no such value.
    refused(scan(12, 13, true, &[(2, 21)]), 2, "no order");
    // Not yet, and not any more.
    refused(scan(0, 1, true, &[(2, 20), (3, 30), (4, 40)]), 3, "no order");
    refused(scan(16, 17, true, &[(2, 20), (3, 30), (4, 40)]), 4, "no order");
}

#[test]
fn a_recorder_gives_each_call_its_interval() {
    let clock = Clock::default();
    let (mut one, mut other) = (Recorder::new(1, &clock), Recorder::new(2, &clock));
    let was_there = one.operation(
        KEY,
        || other.operation(KEY, || Some(1), |found| get(*found)).is_some(),
        |was_there| Call::Put { new: 1, was_there: Some(!was_there) },
    );
    assert!(was_there);
    one.together(Some(5), || (), |()| [(KEY, put(2)), (KEY + 1, put(3))]);
    one.scan((1, 20), true, 2, || vec![(KEY, 2), (KEY + 1, 3)]);
    one.scan((1, 20), false, 3, || vec![(KEY + 1, 3), (KEY, 2)]);
    let mut history = one.into_history();
    history.extend(other.into_history());
    let bounds: Vec<_> = history.scans.iter().map(|scan| (scan.low, scan.high)).collect();
    assert_eq!(bounds, [(1, KEY + 1), (1, 20)], "beyond a limit nothing is known");
    let intervals: Vec<_> = history.operations.iter().map(|o| (o.began, o.ended)).collect();
    assert_eq!(intervals, [(0, 3), (4, 5), (4, 5), (1, 2)]);
    assert_eq!(history.operations[1].transaction, Some(5));
    let tally = history.check(&BTreeMap::new()).unwrap();
    assert_eq!(tally, Tally { keys: 2, operations: 4, overlaps: 1 });
}

/// A history that a register gives to so many clients, each of which is anywhere in one call at a time.
fn draw(random: &mut SplitMix64, clients: usize, length: usize) -> Vec<Operation> {
    let (mut moment, mut state, mut next) = (0, None, 1);
    // Begun; begun and made.
    let mut under_way: Vec<Option<(u64, Option<Call>)>> = vec![None; clients];
    let mut operations = Vec::with_capacity(length);
    while operations.len() < length {
        moment += 1;
        let client = random.below(clients as u64) as usize;
        under_way[client] = match under_way[client] {
            None => Some((moment, None)),
            Some((began, None)) => {
                next += 1;
                let call = match random.below(8) {
                    0 | 1 => Call::Put { new: next, was_there: Some(state.is_some()) },
                    2 => remove(state.is_some()),
                    3 => Call::InsertIfAbsent { new: next, inserted: state.is_none() },
                    4 => {
                        let expected = if random.below(2) == 0 { state } else { Some(next / 2) };
                        let differs = (state != expected).then_some(state);
                        swap(expected, Some(next), differs)
                    }
                    _ => get(state),
                };
                assert!(call.answers_in(state));
                state = call.after(state);
                Some((began, Some(call)))
            }
            Some((began, Some(call))) => {
                operations.push(at(client as u32, began, moment, call));
                None
            }
        };
    }
    // What has taken effect others may have seen.
    for (client, call) in under_way.into_iter().enumerate() {
        if let Some((began, Some(call))) = call {
            operations.push(at(client as u32, began, NEVER, call));
        }
    }
    operations
}

/// Fifty thousand histories of a hundred operations, and some of them with one answer that cannot be.
#[test]
fn what_a_register_does_has_an_order_and_what_it_cannot_do_has_none() {
    let mut random = SplitMix64::new(0x11ea);
    let mut overlaps = 0;
    for round in 0..50_000 {
        let mut operations = draw(&mut random, 2 + round % 3, 100);
        overlaps += history(&operations).check(&BTreeMap::new()).expect("it has an order").overlaps;
        if round % 100 > 0 {
            continue;
        }
        let changed = random.below(100) as usize;
        operations[changed].call = match operations[changed].call {
            // Nobody has put it.
            Call::Get { .. } => get(Some(u64::MAX)),
            // It has found what it expects, and differs.
            _ => swap(None, Some(u64::MAX), Some(None)),
        };
        assert!(!assert_impossible(&operations).is_empty());
    }
    assert!(overlaps > 1_000_000, "{overlaps}");
}

/// Tries all orders.
fn has_order(state: State, left: &[Operation]) -> bool {
    let first_end = left.iter().map(|operation| operation.ended).min();
    let Some(first_end) = first_end else { return true };
    (0..left.len()).any(|at| {
        let mut rest = left.to_vec();
        let operation = rest.remove(at);
        let answers = operation.began <= first_end && operation.call.answers_in(state);
        answers && has_order(operation.call.after(state), &rest)
    })
}

#[test]
fn the_search_agrees_with_one_that_tries_all_orders() {
    let mut random = SplitMix64::new(0xa11);
    let mut counts = [0; 2];
    for _ in 0..20_000 {
        let count = 1 + random.below(6);
        let mut token = || (random.below(3) > 0).then(|| random.below(2));
        let drawn: Vec<(State, State, State)> =
            (0..count).map(|_| (token(), token(), token())).collect();
        let operations: Vec<_> = drawn
            .into_iter()
            .map(|(found, new, expected)| {
                let value = new.unwrap_or(0);
                let call = match random.below(7) {
                    0 => put(value),
                    1 => Call::Put { new: value, was_there: Some(found.is_some()) },
                    2 => remove(found.is_some()),
                    3 => Call::InsertIfAbsent { new: value, inserted: found.is_none() },
                    4 => Call::Update { new: value, updated: found.is_some() },
                    5 => swap(expected, new, (found != expected).then_some(found)),
                    _ => get(found),
                };
                let began = random.below(12);
                at(1, began, began + 1 + random.below(6), call)
            })
            .collect();
        let expected = has_order(None, &operations);
        let found = history(&operations).check(&BTreeMap::new());
        assert_eq!(found.is_ok(), expected, "{operations:#?}");
        counts[usize::from(expected)] += 1;
        if let Err(violation) = found {
            // What is shown is impossible by itself.
            let states = &violation.states;
            assert!(states.iter().all(|state| !has_order(*state, &violation.window)));
        }
    }
    assert!(counts.iter().all(|count| *count > 1_000), "{counts:?}");
}
