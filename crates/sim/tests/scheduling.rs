//! Slices, sleep, deadlocks, failures, and what the machine's parameters may be.

use hedgerow_sim::atomic::{AtomicU64, Ordering::*};
use hedgerow_sim::lock::{Condvar, Mutex};
use hedgerow_sim::{Arbitration, Failure, Machine, ParameterError, cycles, run, thread, work};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn threads_of_one_context_take_slices() {
    let machine = Machine { slice: 10_000, ..Machine::HSW1S.with_contexts(1).without_jitter() };
    let (ends, record) = run(&machine, || {
        let body = || {
            let word = AtomicU64::new(0);
            for _ in 0..100 {
                work(1_000);
                word.fetch_add(1, Relaxed);
            }
            cycles().unwrap()
        };
        let threads: Vec<_> = (0..3).map(|_| thread::spawn(body)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    })
    .unwrap();
    // Ten slices each, in turn: they end within two slices of each other, and none before twice its own work.
    assert!(record.counts.preemptions >= 3 * 8, "{record:?}");
    let (first, last) = (ends.iter().min().unwrap(), ends.iter().max().unwrap());
    assert!(*first > 200_000 && last - first < 3 * (10_000 + 2_000) * 2, "{ends:?}");
    for thread in &record.threads[1..] {
        assert!((100_000..120_000).contains(&thread.cpu), "{thread:?}");
    }
}

/// A spinning thread keeps the context until its slice ends; only then can the holder go on.
#[test]
fn a_holder_that_lost_its_processor_holds_up_who_spins() {
    let machine = Machine { slice: 50_000, ..Machine::HSW1S.with_contexts(1).without_jitter() };
    let ((), record) = run(&machine, || {
        let word = Arc::new(AtomicU64::new(0));
        let holder = Arc::clone(&word);
        let thread = thread::spawn(move || {
            work(60_000);
            holder.store(1, Release);
        });
        while word.load(Acquire) == 0 {
            hedgerow_sim::spin_loop();
        }
        thread.join().unwrap();
    })
    .unwrap();
    assert!(record.counts.preemptions >= 1 && record.cycles > 50_000 + 60_000, "{record:?}");
}

#[test]
fn all_asleep_is_a_deadlock_that_says_who_waits_for_what() {
    let failure = run(&Machine::IVB2S.with_contexts(2), || {
        let locks = Arc::new((Mutex::new(()), Mutex::new(()), Condvar::new()));
        let other = Arc::clone(&locks);
        let one = thread::Builder::new().name("one".to_owned()).spawn(move || {
            let _first = other.0.lock();
            work(100_000);
            let _second = other.1.lock();
        });
        let other = Arc::clone(&locks);
        let two = thread::Builder::new().name("two".to_owned()).spawn(move || {
            let mut second = other.1.lock();
            other.2.wait_for(&mut second, Duration::from_micros(1));
            work(100_000);
            let _first = other.0.lock();
        });
        let _ends = (one.unwrap().join(), two.unwrap().join());
    })
    .unwrap_err();
    let Failure::Deadlock(waiting) = &failure else { panic!("{failure}") };
    let who: Vec<_> = waiting.iter().map(|waiting| waiting.name.as_str()).collect();
    assert_eq!(who, ["main", "one", "two"]);
    assert_eq!(waiting[0].what, "the end of thread 1");
    assert!(waiting[1].what.starts_with("a mutex at line "), "{waiting:?}");
    assert!(failure.to_string().contains("thread 2 `two` waits for a mutex"), "{failure}");
    // The next run is not disturbed.
    assert_eq!(run(&Machine::IVB2S, || 5).unwrap().0, 5);
}

#[test]
fn a_run_ends_at_its_limit() {
    let machine = Machine { limit: 1_000_000, ..Machine::IVB2S };
    let endless = || loop {
        hedgerow_sim::spin_loop();
    };
    assert_eq!(run::<()>(&machine, endless).unwrap_err(), Failure::OutOfTime);
    let asleep = || thread::sleep(Duration::from_secs(1));
    assert_eq!(run(&machine, asleep).unwrap_err(), Failure::OutOfTime);
    // Work beyond the end of time is no overflow.
    let long = || {
        work(u64::MAX);
        work(u64::MAX);
        thread::yield_now();
    };
    assert_eq!(run(&Machine::IVB2S, long).unwrap_err(), Failure::OutOfTime);
}

#[test]
fn a_panic_is_the_threads_own_and_the_first_ones_ends_the_run() {
    let caught = run(&Machine::IVB2S, || {
        let lock = Arc::new(Mutex::new(1));
        let theirs = Arc::clone(&lock);
        let thread = thread::spawn(move || {
            let _guard = theirs.lock();
            panic!("on purpose");
        });
        assert!(thread.join().is_err());
        *lock.lock()
    });
    assert_eq!(caught.unwrap().0, 1);
    let failure = run(&Machine::IVB2S, || panic!("on {}", "purpose")).unwrap_err();
    assert_eq!(failure, Failure::Panicked("on purpose".to_owned()));
}

#[test]
fn a_run_in_a_run_is_refused() {
    let inner = run(&Machine::IVB2S, || run(&Machine::IVB2S, || ()).map(|_| ())).unwrap().0;
    assert_eq!(inner, Err(Failure::Nested));
}

#[test]
fn a_machine_that_cannot_be_is_refused() {
    let refused = |machine: Machine| match run(&machine, || ()) {
        Err(Failure::Parameter(error)) => {
            assert!(!error.to_string().is_empty());
            error
        }
        other => panic!("{other:?}"),
    };
    let rome = Machine::ROME1S;
    for contexts in [0, 129, u32::MAX] {
        let error = refused(rome.clone().with_contexts(contexts));
        assert_eq!(error, ParameterError::Contexts(contexts));
    }
    for share in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let arbitration = Arbitration::NearestFirst(share);
        let error = refused(Machine { arbitration, ..rome.clone() });
        assert!(matches!(error, ParameterError::Share("arbitration", _)));
        let error = refused(Machine { work_jitter: share, ..rome.clone() });
        assert!(matches!(error, ParameterError::Share("work_jitter", _)));
        let error = refused(Machine { hold_jitter: share, ..rome.clone() });
        assert!(matches!(error, ParameterError::Share("hold_jitter", _)));
    }
    let small = |error| matches!(error, ParameterError::TooSmall(..));
    assert!(small(refused(Machine { cores: 0, ..rome.clone() })));
    assert!(small(refused(Machine { threads_per_core: 0, ..rome.clone() })));
    assert!(small(refused(Machine { cores_per_group: 0, ..rome.clone() })));
    assert!(small(refused(Machine { cores_per_socket: 0, ..rome.clone() })));
    assert!(small(refused(Machine { mhz: 0, ..rome.clone() })));
    assert!(small(refused(Machine { hit: 0, ..rome.clone() })));
    assert!(small(refused(Machine { slice: 0, ..rome.clone() })));
    assert!(small(refused(Machine { limit: 0, ..rome.clone() })));
    assert!(small(refused(Machine { stack: 100, ..rome.clone() })));
    for (name, preset) in Machine::PRESETS {
        assert_eq!(preset.check(), Ok(()), "{name}");
        assert_eq!(Machine::preset(name), Some(preset.clone()));
        for contexts in [1, 128] {
            assert!(run(&preset.clone().with_contexts(contexts), || ()).is_ok());
        }
    }
    assert_eq!(Machine::preset("abacus"), None);
}

#[test]
fn time_is_that_of_the_run() {
    let machine = Machine::HSW1S.without_jitter();
    run(&machine, || {
        let before = hedgerow_sim::now().unwrap();
        thread::sleep(Duration::from_micros(100));
        let slept = hedgerow_sim::now().unwrap() - before;
        assert!((100..103).contains(&slept.as_micros()), "{slept:?}");
        work(34_000);
        assert!((hedgerow_sim::now().unwrap() - before - slept).as_micros() == 10);
        assert_eq!(thread::available_parallelism().unwrap().get(), 8);
        // Asleep is not on the processor.
        assert!(hedgerow_sim::cpu_cycles().unwrap() < 50_000);
        hedgerow_sim::work_until(500_000);
        assert_eq!(cycles(), Some(500_000));
        hedgerow_sim::work_until(4);
        assert_eq!(cycles(), Some(500_000));
        assert!(hedgerow_sim::run_number().is_some());
    })
    .unwrap();
    assert_eq!((hedgerow_sim::now(), hedgerow_sim::cycles()), (None, None));
    assert_eq!((hedgerow_sim::seed(), hedgerow_sim::run_number()), (None, None));
    assert_eq!((thread::number(), thread::context()), (None, None));
    work(1 << 60);
}

#[test]
fn numbers_of_threads_are_small_and_used_again() {
    run(&Machine::IVB2S, || {
        assert_eq!(thread::number(), Some(0));
        for _ in 0..20 {
            let all: Vec<_> = (0..3).map(|_| thread::spawn(thread::number)).collect();
            let mut all: Vec<_> = all.into_iter().map(|thread| thread.join().unwrap()).collect();
            all.sort_unstable();
            assert_eq!(all, [Some(1), Some(2), Some(3)]);
        }
    })
    .unwrap();
}
