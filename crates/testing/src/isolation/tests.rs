//! Histories by hand: each anomaly where it is one, and where it is none.

use super::*;

/// A transaction in the making.
struct Made(Transaction);

/// One that ran from its number times ten for five moments, so that none overlaps.
fn t(id: u64) -> Made {
    let (began, ended) = (id * 10, id * 10 + 5);
    Made(Transaction { id, began, ended, outcome: Outcome::Committed, steps: Vec::new() })
}

/// A token of the first change of a transaction.
fn by(transaction: u64) -> State {
    Some(Token::new(transaction, 0))
}

impl Made {
    fn at(mut self, began: u64, ended: u64) -> Made {
        (self.0.began, self.0.ended) = (began, ended);
        self
    }

    fn outcome(mut self, outcome: Outcome) -> Made {
        self.0.outcome = outcome;
        self
    }

    fn step(mut self, step: Step) -> Made {
        self.0.steps.push(step);
        self
    }

    fn read(self, key: u64, found: State) -> Made {
        self.step(Step::Read { key, found })
    }

    fn range(self, low: u64, high: u64, found: &[(u64, State)]) -> Made {
        let found = found.iter().map(|(key, state)| (*key, state.unwrap())).collect();
        self.step(Step::Range { low, high, found })
    }

    /// A blind put, with the next token.
    fn put(self, key: u64) -> Made {
        self.put_over(key, Over::Unknown)
    }

    fn put_over(self, key: u64, over: Over) -> Made {
        let puts = self.0.steps.iter().filter(|step| matches!(step, Step::Put { .. })).count();
        let token = Token::new(self.0.id, puts as u32);
        self.step(Step::Put { key, token, over })
    }

    fn remove(self, key: u64) -> Made {
        self.step(Step::Remove { key, over: Over::Unknown })
    }
}

const LEVELS: [Level; 5] = [
    Level::ReadCommitted,
    Level::SnapshotIsolation,
    Level::StrongSnapshotIsolation,
    Level::Serializable,
    Level::StrictSerializable,
];
use Level::{
    ReadCommitted, Serializable, SnapshotIsolation, StrictSerializable, StrongSnapshotIsolation,
};

/// Transaction 0 is who put the first values, before the history.
fn history(before: &[u64], transactions: Vec<Made>) -> History {
    let before = (0..).zip(before).map(|(at, key)| (*key, Token::new(0, at))).collect();
    History { before, transactions: transactions.into_iter().map(|made| made.0).collect() }
}

/// The first value of the key that stands in that place of `before`.
fn first(at: u32) -> State {
    Some(Token::new(0, at))
}

fn assert_possible(history: &History) {
    for level in LEVELS {
        if let Err(violation) = history.check(level) {
            panic!("{violation}");
        }
    }
}

/// Asserts that a history is possible at all levels but these, where this is what is wrong.
fn assert_wrong(history: &History, anomaly: Anomaly, levels: &[Level]) -> Violation {
    let mut shown = None;
    for level in LEVELS {
        match (levels.contains(&level), history.check(level)) {
            (false, Ok(_)) => {}
            (true, Err(violation)) => {
                assert_eq!(violation.anomaly, anomaly, "{violation}");
                shown = Some(violation);
            }
            (_, other) => panic!("{level:?}: {other:?}"),
        }
    }
    shown.expect("a level refuses it")
}

const OF_SNAPSHOTS: [Level; 4] =
    [SnapshotIsolation, StrongSnapshotIsolation, Serializable, StrictSerializable];
const OF_ORDER: [Level; 2] = [Serializable, StrictSerializable];
const IN_TIME: [Level; 2] = [StrongSnapshotIsolation, StrictSerializable];

#[test]
fn what_has_an_order_passes_at_all_levels() {
    assert_possible(&history(&[], vec![]));
    assert_possible(&history(
        &[1],
        vec![
            t(1).read(1, first(0)).put(1).read(1, by(1)),
            t(2).put_over(1, Over::Seen(by(1))).put(2),
            t(3).range(0, 9, &[(1, by(2)), (2, Some(Token::new(2, 1)))]).remove(1),
            t(4).read(1, None).read(2, Some(Token::new(2, 1))),
            t(5).range(0, 1, &[]),
            t(6).put_over(1, Over::Seen(None)),
        ],
    ));
    // Blind puts side by side, which readers see in either order.
    for (a, b) in [(1, 2), (2, 1)] {
        assert_possible(&history(
            &[],
            vec![
                t(1).at(0, 9).put(1),
                t(2).at(0, 9).put(1),
                t(3).at(10, 11).read(1, by(a)).put(1),
                t(4).at(0, 9).put(2),
                t(5).at(0, 9).put(2),
                t(6).at(10, 11).read(2, Some(Token::new(b + 3, 0))).put(2),
            ],
        ));
    }
}

#[test]
fn reads_of_what_is_not_committed_are_refused_at_all_levels() {
    let aborted = vec![t(1).put(1).outcome(Outcome::Aborted), t(2).read(1, by(1))];
    assert_wrong(&history(&[], aborted), Anomaly::G1a, &LEVELS);
    let intermediate = vec![t(1).at(0, 20).put(1).put(1), t(2).at(5, 6).read(1, by(1))];
    assert_wrong(&history(&[], intermediate), Anomaly::G1b, &LEVELS);
    // The one that wrote last is whom it may read from; a read of an aborted one is nobody's.
    let fine = vec![
        t(1).at(0, 20).put(1).put(1),
        t(2).at(5, 30).read(1, Some(Token::new(1, 1))),
        t(3).at(40, 50).put(2).outcome(Outcome::Aborted),
        t(4).at(41, 50).read(2, by(3)).outcome(Outcome::Aborted),
    ];
    assert_possible(&history(&[], fine));
    // Each reads of the other.
    let circle = vec![t(1).at(0, 9).put(1).read(2, by(2)), t(2).at(0, 9).put(2).read(1, by(1))];
    assert_wrong(&history(&[], circle), Anomaly::G1c, &LEVELS);
    // Each writes over the other.
    let circle = vec![
        t(1).at(0, 9).put_over(1, Over::Seen(by(2))).put(2),
        t(2).at(0, 9).put(1).put_over(2, Over::Seen(Some(Token::new(1, 1)))),
    ];
    assert_wrong(&history(&[], circle), Anomaly::G0, &LEVELS);
}

#[test]
fn reads_of_what_is_not_there_are_refused_at_all_levels() {
    let nobodys = vec![t(1).read(1, by(7))];
    assert_wrong(&history(&[], nobodys), Anomaly::NeverWritten, &LEVELS);
    let of_another_key = vec![t(1).put(1), t(2).read(2, by(1))];
    assert_wrong(&history(&[], of_another_key), Anomaly::NeverWritten, &LEVELS);
    let lost = vec![t(1).read(1, None)];
    assert_wrong(&history(&[1], lost), Anomaly::NeverRemoved, &LEVELS);
    let lost = vec![t(1).range(0, 5, &[])];
    assert_wrong(&history(&[1], lost), Anomaly::NeverRemoved, &LEVELS);
    let own = vec![t(1).put(1).read(1, None)];
    assert_wrong(&history(&[], own), Anomaly::Internal, &LEVELS);
    let own = vec![t(1).remove(1).range(0, 5, &[(1, first(0))])];
    assert_wrong(&history(&[1], own), Anomaly::Internal, &LEVELS);
    let own = vec![t(1).read(1, by(1)).put(1)];
    assert_wrong(&history(&[1], own), Anomaly::Internal, &LEVELS);
    for found in [&[(2, first(1)), (1, first(0))][..], &[(1, first(0)); 2], &[(9, first(2))]] {
        let ranges = vec![t(1).range(0, 5, found)];
        assert_wrong(&history(&[1, 2, 9], ranges), Anomaly::Disorder, &LEVELS);
    }
}

#[test]
fn of_two_who_change_what_both_have_read_one_is_lost() {
    let both = vec![t(1).at(0, 9).read(1, first(0)).put(1), t(2).at(0, 9).read(1, first(0)).put(1)];
    let violation = assert_wrong(&history(&[1], both), Anomaly::LostUpdate, &OF_SNAPSHOTS);
    assert_eq!(violation.transactions.len(), 2);
    let both = vec![
        t(1).at(0, 9).put_over(1, Over::Seen(None)),
        t(2).at(0, 9).put_over(1, Over::Seen(None)),
    ];
    assert_wrong(&history(&[], both), Anomaly::LostUpdate, &OF_SNAPSHOTS);
    // One was aborted, and one has nobody's change behind it.
    let both = vec![
        t(1).at(0, 9).read(1, first(0)).put(1).outcome(Outcome::Aborted),
        t(2).at(0, 9).read(1, first(0)).put(1),
        t(3).at(0, 9).read(1, first(0)).put(1).outcome(Outcome::Unknown),
        t(4).read(1, by(2)),
    ];
    assert_possible(&history(&[1], both));
}

#[test]
fn write_skew_is_of_snapshots_and_not_serializable() {
    let skew = vec![
        t(1).at(0, 9).read(1, first(0)).read(2, first(1)).put(1),
        t(2).at(0, 9).read(1, first(0)).read(2, first(1)).put(2),
    ];
    let violation = assert_wrong(&history(&[1, 2], skew), Anomaly::G2Item, &OF_ORDER);
    assert_eq!(violation.reasons.len(), 2);
    let text = violation.to_string();
    let expected = "T1 -> T2 rw: T1 read T0.1 of key 2, which was there at first, and T2.0 of key 2 came after it";
    assert!(text.contains(expected), "{text}");
    // Each has counted the range that the other puts a record into.
    let phantoms = vec![
        t(1).at(0, 9).range(0, 9, &[(1, first(0))]).put(2),
        t(2).at(0, 9).range(0, 9, &[(1, first(0))]).put(3),
    ];
    let violation = assert_wrong(&history(&[1], phantoms), Anomaly::G2, &OF_ORDER);
    assert!(violation.to_string().contains("the first absence of key 3"), "{violation}");
}

#[test]
fn a_phantom_that_comes_and_goes_between_two_reads_is_none_of_a_snapshot() {
    let appears =
        vec![t(1).at(0, 9).range(0, 9, &[]).range(0, 9, &[(1, by(2))]), t(2).at(0, 9).put(1)];
    assert_wrong(&history(&[], appears), Anomaly::GSingle, &OF_SNAPSHOTS);
    // The record that is counted elsewhere is there, and the one in the range is not.
    let count = vec![t(1).at(0, 9).range(10, 19, &[]).read(1, by(2)), t(2).at(0, 9).put(1).put(11)];
    assert_wrong(&history(&[], count), Anomaly::GSingle, &OF_SNAPSHOTS);
    // An extra one: removed together with what is missing.
    let extra = vec![
        t(1).at(0, 9).range(10, 19, &[(11, first(0))]).read(1, None),
        t(2).at(0, 9).remove(1).remove(11),
    ];
    assert_wrong(&history(&[11, 1], extra), Anomaly::GSingle, &OF_SNAPSHOTS);
}

#[test]
fn two_readers_who_see_two_changes_in_two_orders_are_a_long_fork() {
    let fork = vec![
        t(1).at(0, 9).put(1),
        t(2).at(0, 9).put(2),
        t(3).at(0, 9).read(1, by(1)).read(2, first(1)),
        t(4).at(0, 9).read(1, first(0)).read(2, by(2)),
    ];
    assert_wrong(&history(&[1, 2], fork), Anomaly::GNonadjacent, &OF_SNAPSHOTS);
    let agreed = vec![
        t(1).at(0, 9).put(1),
        t(2).at(0, 9).put(2),
        t(3).at(0, 9).read(1, by(1)).read(2, first(1)),
        t(4).at(0, 9).read(1, by(1)).read(2, by(2)),
    ];
    assert_possible(&history(&[1, 2], agreed));
}

#[test]
fn a_stale_read_is_wrong_in_time_alone() {
    let stale = history(&[1], vec![t(1).put(1), t(2).read(1, first(0))]);
    let violation = assert_wrong(&stale, Anomaly::GSingle, &IN_TIME);
    assert!(violation.needs_time);
    assert!(
        violation.to_string().contains("T1 had ended at 15 when T2 began at 20"),
        "{violation}"
    );
    // Over a blind put by another, and over a chain of moments.
    let chain =
        vec![t(1).put(1), t(2).put(1), t(3).put(7), t(4).put(8), t(5).put(9), t(6).read(1, by(1))];
    let violation = assert_wrong(&history(&[], chain), Anomaly::GSingle, &IN_TIME);
    assert_eq!(violation.transactions.len(), 2, "{violation}");
    // From the future.
    let future = vec![t(1).read(1, by(2)), t(2).put(1)];
    assert_wrong(&history(&[], future), Anomaly::G1c, &IN_TIME);
    // What ends at the moment at which another begins is beside it.
    let beside = vec![t(1).at(0, 5).put(1), t(2).at(5, 9).read(1, first(0))];
    assert_possible(&history(&[1], beside));
}

#[test]
fn keys_that_are_linearizable_tell_the_order_of_blind_changes() {
    // Half of the second batch was lost, which time alone can tell.
    let half = vec![
        t(1).put(1).put(2),
        t(2).put(1).put(2),
        t(3).read(1, by(2)).read(2, Some(Token::new(1, 1))),
    ];
    let half = history(&[], half);
    assert_eq!(half.check(Serializable).unwrap().transactions, 3);
    let violation = half.check_with_linear_keys(Serializable).unwrap_err();
    assert_eq!(violation.anomaly, Anomaly::Stale, "{violation}");
    // Unknown, and so it may be missing; not half of it.
    let of_unknown = |found: State, other: State| {
        let unknown = t(2).at(20, NEVER).put(1).put(2).outcome(Outcome::Unknown);
        let transactions = vec![t(1).put(1).put(2), unknown, t(3).read(1, found).read(2, other)];
        history(&[], transactions).check_with_linear_keys(Serializable)
    };
    let [old, new] = [1, 2].map(|one| [by(one), Some(Token::new(one, 1))]);
    assert_eq!(of_unknown(old[0], old[1]).unwrap().transactions, 2);
    assert_eq!(of_unknown(new[0], new[1]).unwrap().transactions, 3);
    for violation in [of_unknown(old[0], new[1]), of_unknown(new[0], old[1])] {
        let violation = violation.unwrap_err();
        assert_eq!(violation.anomaly, Anomaly::GSingle, "{violation}");
    }
}

#[test]
fn unknown_transactions_count_when_somebody_has_read_of_them() {
    let unknown = |id| t(id).at(0, NEVER).outcome(Outcome::Unknown);
    // By way of another one.
    let chain = vec![
        unknown(1).put(1).put(2),
        unknown(2).put_over(1, Over::Seen(by(1))),
        t(3).read(1, by(2)).read(2, first(1)),
    ];
    assert_wrong(&history(&[1, 2], chain), Anomaly::GSingle, &OF_SNAPSHOTS);
    // By a removal that nobody else has made.
    let removal = vec![unknown(1).remove(1).put(2), t(2).read(1, None).read(2, first(1))];
    assert_wrong(&history(&[1, 2], removal), Anomaly::GSingle, &OF_SNAPSHOTS);
    let removals = vec![
        unknown(1).remove(1).put(2),
        unknown(3).remove(1),
        t(2).read(1, None).read(2, first(1)),
    ];
    let removals = history(&[1, 2], removals);
    assert_possible(&removals);
    let tally = removals.check(StrictSerializable).unwrap();
    let expected = Tally { transactions: 1, reads: 2, ambiguous: 1, dependencies: 0 };
    assert_eq!(tally, expected);
}

#[test]
fn time_tells_one_removal_from_another() {
    let twice = |found: State| {
        let transactions = vec![
            t(1).remove(1),
            t(2).put(1),
            t(3).remove(1),
            t(4).put(2),
            t(5).at(50, 70).read(1, None).read(2, found),
            t(6).at(60, 80).put(1),
        ];
        history(&[1, 2], transactions)
    };
    let tally = twice(by(4)).check(StrictSerializable).unwrap();
    assert_eq!((tally.reads, tally.ambiguous), (2, 0));
    assert_eq!(twice(by(4)).check(Serializable).unwrap().ambiguous, 1);
    assert_wrong(&twice(first(1)), Anomaly::GSingle, &IN_TIME);
    // Gone before, and there again.
    let again = vec![t(1).remove(1), t(2).put(1), t(3).read(1, None)];
    assert_wrong(&history(&[1], again), Anomaly::NeverRemoved, &IN_TIME);
}

#[test]
#[should_panic(expected = "T1.0 was put twice")]
fn a_token_is_put_once() {
    let token = Token::new(1, 0);
    let put = Step::Put { key: 1, token, over: Over::Unknown };
    history(&[], vec![t(1).step(put.clone()).step(put)]).check(ReadCommitted).ok();
}
