//! Regions on all backends that run here: they take effect as a whole, and end in the lock where the policy says so.

use super::*;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::thread;

/// Threads that move money between accounts, and look whether all of it is there.
fn transfers<H: Htm + 'static>(htm: H) -> Counts {
    const ACCOUNTS: usize = 8;
    let rounds: u64 = if cfg!(miri) { 30 } else { 5_000 };
    struct Bank<H> {
        htm: H,
        lock: ElidableLock,
        accounts: Vec<TCell<u64>>,
    }
    let accounts = (0..ACCOUNTS).map(|_| TCell::new(100)).collect();
    let bank = Arc::new(Bank { htm, lock: ElidableLock::new(), accounts });
    let work = |thread: u64| {
        let bank = Arc::clone(&bank);
        move || {
            let bank = &*bank;
            for round in 0..rounds {
                let at = |n: u64| ((thread * 7 + round * n) % ACCOUNTS as u64) as usize;
                let (from, to) = (&bank.accounts[at(3)], &bank.accounts[at(5)]);
                bank.htm.atomic(&bank.lock, Site::WHOLE, |tx| {
                    let (have, amount) = (tx.load(from)?, 1);
                    if have >= amount {
                        tx.store(from, have - amount)?;
                        let there = tx.load(to)?;
                        tx.store(to, there + amount)?;
                    }
                    Ok(())
                });
                let sum = bank.htm.atomic(&bank.lock, Site::SCAN, |tx| {
                    let mut sum = 0;
                    for account in &bank.accounts {
                        sum += tx.load(account)?;
                    }
                    Ok(sum)
                });
                assert_eq!(sum, 100 * ACCOUNTS as u64);
            }
        }
    };
    let threads: Vec<_> = (0..3).map(|n| thread::spawn_named("mover", work(n)).unwrap()).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let counts = bank.htm.counters().sum();
    assert_eq!(counts.regions(), 3 * 2 * rounds);
    counts
}

#[test]
fn nothing_is_lost_under_the_lock() {
    let counts = transfers(Lock::new());
    assert_eq!((counts.commits, counts.aborts()), (0, 0));
}

#[test]
fn nothing_is_lost_in_software_regions_whatever_the_policy() {
    for (name, policy) in RetryPolicy::PRESETS {
        let counts = transfers(NOrec::new(policy));
        assert!(counts.commits > 0, "{name}: {counts:?}");
    }
}

#[test]
fn bits_that_others_change_outside_are_not_lost_when_a_region_writes_the_word() {
    let (htm, lock) = (NOrec::new(RetryPolicy::DBX), ElidableLock::new());
    let cell = TCell::new(0b1000_u8);
    htm.atomic(&lock, Site::WHOLE, |tx| {
        assert_eq!(tx.fetch_or(&cell, 1)? & 1, 0);
        // Another thread's, while the region is under way.
        cell.fetch_or(0b100, hedgerow_sync::primitive::atomic::Ordering::Relaxed);
        assert_eq!(tx.fetch_and(&cell, !0b1000)? & 1, 1);
        Ok(())
    });
    assert_eq!(cell.get(), 0b101);
    let old = htm.atomic(&lock, Site::WHOLE, |tx| {
        tx.store(&cell, 0xf0)?;
        tx.fetch_or(&cell, 0x0f)?;
        tx.load(&cell)
    });
    assert_eq!((old, cell.get()), (0xff, 0xff));
}

#[test]
fn whoever_holds_the_lock_is_not_seen_halfway() {
    let shared = Arc::new((
        NOrec::new(RetryPolicy::DBX),
        ElidableLock::new(),
        [TCell::new(0_u64), TCell::new(0)],
    ));
    let reader = {
        let shared = Arc::clone(&shared);
        move || {
            let (htm, lock, cells) = &*shared;
            htm.atomic(lock, Site::WHOLE, |tx| Ok((tx.load(&cells[0])?, tx.load(&cells[1])?)))
        }
    };
    let (_, lock, cells) = &*shared;
    let held = lock.lock();
    cells[0].set(1);
    let reader = thread::spawn_named("reader", reader).unwrap();
    // Long enough for a reader that does not look at the lock to see one of two.
    for _ in 0..100 {
        if reader.is_finished() {
            break;
        }
        thread::sleep(std::time::Duration::from_millis(1));
    }
    cells[1].set(1);
    drop(held);
    assert_eq!(reader.join().unwrap(), (1, 1));
}

fn always_aborts<H: Htm>(htm: &H) {
    let (lock, cell) = (ElidableLock::new(), TCell::new(0_u64));
    let mut runs = 0_u32;
    let (speculative, outcome) = htm.atomic_counted(&lock, Site::OTHER, |tx| {
        runs += 1;
        let old = tx.load(&cell)?;
        tx.store(&cell, old + 1)?;
        tx.abort(3)?;
        Ok(tx.is_speculative())
    });
    assert!(!speculative && outcome.took_lock && !lock.is_held());
    // What was undone is not there.
    assert_eq!(cell.get(), 1);
    let counts = htm.counters().of(Site::OTHER);
    assert_eq!((counts.locked, counts.explicit), (1, u64::from(outcome.aborts)));
}

#[test]
fn a_body_that_always_aborts_ends_in_the_lock() {
    for (name, policy) in RetryPolicy::PRESETS {
        let htm = NOrec::new(policy);
        always_aborts(&htm);
        let aborts = htm.counters().sum().explicit;
        assert_eq!(aborts, u64::from(policy.explicit.min(policy.all)) + 1, "{name}");
    }
    always_aborts(&Lock::new());
}

#[test]
fn elision_is_disabled_for_a_time_where_it_fails() {
    let adaptive = Some(Adaptive { failures: 2, skips: 3 });
    let htm = NOrec::new(RetryPolicy { adaptive, ..RetryPolicy::HPCA_NO_RETRY });
    let lock = ElidableLock::new();
    let region = |aborts: bool| {
        let body = |tx: &mut NOrecTx<'_>| if aborts { tx.abort(1) } else { Ok(()) };
        htm.atomic_counted(&lock, Site::WHOLE, body).1
    };
    for _ in 0..2 {
        assert_eq!(region(true), Outcome { aborts: 1, took_lock: true });
    }
    for _ in 0..3 {
        assert_eq!(region(false), Outcome { aborts: 0, took_lock: true });
    }
    assert_eq!(region(false), Outcome { aborts: 0, took_lock: false });
    // Failures count in a row: one that commits begins anew.
    region(true);
    region(false);
    region(true);
    assert!(!region(false).took_lock);
}

#[test]
fn a_fault_comes_once_at_the_access_that_it_was_asked_for() {
    let (htm, lock) = (NOrec::new(RetryPolicy::DBX), ElidableLock::new());
    let cells = [TCell::new(0_u32), TCell::new(0)];
    let region = || {
        htm.atomic_counted(&lock, Site::WHOLE, |tx| {
            for cell in &cells {
                let old = tx.load(cell)?;
                tx.store(cell, old + 1)?;
            }
            Ok(())
        })
        .1
        .aborts
    };
    // The fifth is the first one of the second region.
    htm.abort_at(5);
    assert_eq!((region(), region(), region()), (0, 1, 0));
    htm.abort_at(9);
    assert_eq!((region(), htm.disarm(), region()), (0, true, 0));
    assert!(cells.iter().all(|cell| cell.get() == 5));
}

struct Name;

impl WithHtm for Name {
    type Out = &'static str;

    fn with<H: Htm + 'static>(self, name: &'static str, _: H) -> &'static str {
        name
    }
}

#[test]
fn a_backend_is_chosen_by_its_name_or_refused_with_the_reason() {
    let chosen = |word| choose(word, RetryPolicy::DBX, Name);
    assert_eq!(chosen(Some("off")), Ok("lock"));
    assert_eq!(chosen(Some("norec")), Ok("norec"));
    assert_eq!(chosen(Some("sim")), Err(ChoiceError::NotSimulated));
    assert_eq!(chosen(Some("stm")), Err(ChoiceError::Unknown("stm".to_owned())));
    assert!(chosen(None).is_ok());
    match chosen(Some("rtm")) {
        Ok(name) => assert_eq!(name, "rtm"),
        Err(error) => assert!(error.to_string().contains("no transactional memory"), "{error}"),
    }
}
