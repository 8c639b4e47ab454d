//! Accesses have the distribution that they are said to have, and are the same each time.
//!
//! Seeds are fixed, so these are no tests of luck: bounds are some standard deviations wide.

use hedgerow_bench::access::{Accesses, draw, share};
use hedgerow_bench::cell::{Distribution, Operation, Phase};

const RECORDS: usize = 10_000;
const OPERATIONS: usize = 200_000;

fn phase(operation: Operation, distribution: Distribution, threads: usize) -> Phase {
    Phase {
        name: "test".into(),
        operation,
        distribution,
        operations: OPERATIONS,
        threads,
        seed: 7,
        latency: false,
        seconds: None,
    }
}

/// How often each record is accessed.
fn counts(distribution: Distribution) -> Vec<usize> {
    let mut counts = vec![0; RECORDS];
    for thread in draw(&phase(Operation::Get {}, distribution, 2), RECORDS) {
        assert_eq!(thread.keys.len(), OPERATIONS / 2);
        for at in thread.keys {
            counts[at as usize] += 1;
        }
    }
    counts
}

#[test]
fn uniform_accesses_reach_all_alike() {
    let counts = counts(Distribution::Uniform {});
    // 20 on average, with a standard deviation of 4.5.
    assert!(counts.iter().all(|count| (1..50).contains(count)));
    let first_half: usize = counts[..RECORDS / 2].iter().sum();
    assert!((99_000..101_000).contains(&first_half), "{first_half}");
}

#[test]
fn zipf_accesses_fall_with_the_rank() {
    for theta in [0.5, 0.99, 1.2] {
        let counts = counts(Distribution::Zipf { theta });
        let weight = |rank: usize| (rank as f64).powf(-theta);
        let all: f64 = (1..=RECORDS).map(weight).sum();
        for ranks in [1..2, 2..3, 3..10, 10..100, 100..1_000, 1_000..RECORDS + 1] {
            let share: f64 = ranks.clone().map(weight).sum::<f64>() / all;
            let expected = share * OPERATIONS as f64;
            let found: usize = ranks.clone().map(|rank| counts[rank - 1]).sum();
            let deviation = (expected * (1.0 - share)).sqrt();
            assert!(
                (found as f64 - expected).abs() < 5.0 * deviation,
                "theta {theta}, ranks {ranks:?}: {found}, expected {expected:.0}"
            );
        }
    }
}

#[test]
fn latest_accesses_are_zipf_from_the_end() {
    let zipf = counts(Distribution::Zipf { theta: 0.99 });
    let mut latest = counts(Distribution::Latest { theta: 0.99 });
    latest.reverse();
    assert_eq!(zipf, latest);
}

#[test]
fn a_hot_set_gets_its_share() {
    let counts = counts(Distribution::HotSet { records_percent: 5.0, accesses_percent: 90.0 });
    let hot: usize = counts[..RECORDS / 20].iter().sum();
    // 180,000 on average, with a standard deviation of 134.
    assert!((179_300..180_700).contains(&hot), "{hot}");
    assert!(counts[RECORDS / 20..].iter().any(|&count| count > 0));
}

#[test]
fn sequential_accesses_give_each_thread_its_part() {
    let mut phase = phase(Operation::Get {}, Distribution::Sequential {}, 4);
    phase.operations = RECORDS;
    let threads = draw(&phase, RECORDS);
    let all: Vec<u32> = threads.iter().flat_map(|thread| thread.keys.clone()).collect();
    assert_eq!(all, (0..RECORDS as u32).collect::<Vec<_>>());
    assert!(threads.iter().all(|thread| thread.keys.len() == RECORDS / 4));
}

#[test]
fn parts_cover_everything_once() {
    for (whole, threads) in [(10, 3), (2, 5), (0, 4), (1_000_000_007, 32)] {
        let parts: Vec<_> = (0..threads).map(|thread| share(whole, thread, threads)).collect();
        assert_eq!(parts[0].start, 0);
        assert_eq!(parts[threads - 1].end, whole);
        assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
    }
}

#[test]
fn scans_have_every_length_of_their_range() {
    let scan = Operation::Scan { min_records: 1, max_records: 50 };
    let mut lengths = [0_usize; 51];
    for thread in draw(&phase(scan, Distribution::Uniform {}, 2), RECORDS) {
        assert_eq!(thread.sizes.len(), thread.keys.len());
        thread.sizes.iter().for_each(|&size| lengths[size as usize] += 1);
    }
    assert_eq!(lengths[0], 0);
    // 4,000 each on average, with a standard deviation of 63.
    assert!(lengths[1..].iter().all(|count| (3_650..4_350).contains(count)), "{lengths:?}");
}

#[test]
fn mixed_work_has_its_share_of_gets() {
    let mixed = Operation::Mixed { get_percent: 95 };
    let threads = draw(&phase(mixed, Distribution::Uniform {}, 1), RECORDS);
    let gets = threads[0].sizes.iter().filter(|&&size| size == 1).count();
    // 190,000 on average, with a standard deviation of 97.
    assert!((189_500..190_500).contains(&gets), "{gets}");
}

#[test]
fn deletes_and_inserts_take_each_record_once() {
    let delete = Operation::Delete { percent: 80 };
    let threads = draw(&phase(delete, Distribution::Uniform {}, 3), RECORDS);
    let deleted: Vec<u32> = threads.iter().flat_map(|thread| thread.keys.clone()).collect();
    assert_eq!(deleted.len(), RECORDS * 80 / 100);
    assert!(deleted.is_sorted_by(|a, b| a < b));
    let threads = draw(&phase(Operation::InsertLast {}, Distribution::Uniform {}, 3), RECORDS);
    let inserted: Vec<u32> = threads.iter().flat_map(|thread| thread.keys.clone()).collect();
    assert!(inserted.iter().copied().eq(RECORDS as u32..(RECORDS + OPERATIONS) as u32));
}

#[test]
fn the_same_seed_draws_the_same_and_another_does_not() {
    let draw_with = |seed: u64| -> Vec<Accesses> {
        let mut phase = phase(Operation::Get {}, Distribution::Zipf { theta: 0.99 }, 2);
        phase.seed = seed;
        draw(&phase, RECORDS)
    };
    let drawn = draw_with(7);
    assert_eq!(drawn, draw_with(7));
    assert_ne!(drawn, draw_with(8));
    assert_ne!(drawn[0], drawn[1], "threads draw for themselves");
}

#[test]
fn insertions_between_scans_take_the_next_records_once() {
    let operation = Operation::ScanInsert { insert_percent: 5, max_records: 50 };
    let phase = phase(operation, Distribution::Zipf { theta: 0.99 }, 3);
    let (mut inserted, mut longest) = (Vec::new(), 0);
    for thread in draw(&phase, RECORDS) {
        let begin = inserted.len();
        for (key, size) in thread.keys.iter().zip(&thread.sizes) {
            if *size == 0 {
                inserted.push(*key as usize);
            } else {
                assert!((*key as usize) < RECORDS, "it was there before");
                longest = longest.max(*size);
            }
        }
        let half = &thread.sizes[..thread.sizes.len() / 2];
        let early = half.iter().filter(|size| **size == 0).count() as f64;
        let share = early / (inserted.len() - begin) as f64;
        assert!((0.45..0.55).contains(&share), "they are spread: {share} in the first half");
    }
    assert_eq!(longest, 50);
    assert_eq!(inserted, Vec::from_iter(RECORDS..RECORDS + OPERATIONS / 20));
}

#[test]
fn gets_of_the_latest_come_to_what_was_inserted_meanwhile() {
    let operation = Operation::GetInsert { insert_percent: 5 };
    let phase = phase(operation, Distribution::Latest { theta: 0.99 }, 3);
    let mut inserted = Vec::new();
    for thread in draw(&phase, RECORDS) {
        let first = inserted.len();
        let (mut newest, mut last_three, mut gets) = (0, 0, 0);
        for (key, is_get) in thread.keys.iter().zip(&thread.sizes) {
            let key = *key as usize;
            if *is_get == 0 {
                inserted.push(key);
                continue;
            }
            gets += 1;
            // Its own, the last one first, and then those that were there before, the last one first.
            let rank = match key.checked_sub(RECORDS) {
                Some(at) => {
                    assert!((first..inserted.len()).contains(&at), "another thread's, or none yet");
                    inserted.len() - 1 - at
                }
                None => inserted.len() - first + RECORDS - 1 - key,
            };
            newest += usize::from(rank == 0);
            last_three += usize::from(rank < 3);
        }
        // As of a Zipf distribution over the records that were there before.
        let all: f64 = (1..=RECORDS).map(|rank| (rank as f64).powf(-0.99)).sum();
        let share = |found: usize| found as f64 / gets as f64 * all;
        assert!((0.95..1.05).contains(&share(newest)), "{newest} of {gets}");
        let three: f64 = (1..=3).map(|rank| f64::from(rank).powf(-0.99)).sum();
        assert!((0.95 * three..1.05 * three).contains(&share(last_three)), "{last_three}");
    }
    assert_eq!(inserted, Vec::from_iter(RECORDS..RECORDS + OPERATIONS / 20));
}
