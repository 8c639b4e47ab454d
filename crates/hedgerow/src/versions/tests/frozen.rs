//! Versions that were written to a part: who reads them, what memory they give back, and when the part goes.

use super::*;
use crate::error::ErrorKind;
use std::sync::atomic::Ordering::Relaxed;

/// Room for a few records only, so that there are many passes.
const ROOM: usize = 1200;

/// Snapshots that were each taken over by a checkpoint of its own, everything being overwritten or removed behind each.
fn hold_many(life: &mut Life, count: u8, freeze: bool) -> Vec<Held> {
    let mut held = Vec::new();
    for round in 0..count {
        held.push(life.begin());
        for number in 0..20u8 {
            let key = [b'a' + number % 3, number];
            let value = [round, number, b'v'].repeat(30);
            life.change(&key, ((round + number) % 4 > 0).then_some(&value[..]));
        }
        let (cut, then) = (life.log.tail(), life.now.clone());
        life.kept.pin(&life.log, cut, then).unwrap();
        if freeze {
            life.freeze(ROOM, PlainFreezer::new(&life.parts)).unwrap();
        }
    }
    held
}

fn parts(life: &Life) -> u32 {
    life.parts.load(Relaxed)
}

#[test]
fn snapshots_taken_over_one_by_one_are_given_up_only_if_nothing_is_frozen() {
    for freeze in [false, true] {
        let mut life = Life::new(512, 40, 3);
        let mut held = hold_many(&mut life, 12, freeze);
        let given_up = life.figures().given_up;
        assert_eq!(given_up == 0, freeze, "{given_up} were given up, frozen: {freeze}");
        for one in &mut held {
            life.check(one, b'a'..b'd');
        }
        let too_old = held.iter().filter(|one| one.is_too_old).count() as u64;
        assert_eq!(too_old, given_up);
        if freeze {
            let figures = life.figures();
            assert!(figures.frozen >= 12 * 20 - 20 && figures.versions == 0, "{figures:?}");
            assert_eq!(parts(&life), 12);
        }
        // A part goes with the last snapshot that needs it, and no earlier.
        let mut left = held.len() as u32;
        for one in held {
            life.kept.end(one.snapshot);
            left -= 1;
            assert!(!freeze || parts(&life) == left, "{} parts, {left} snapshots", parts(&life));
        }
        assert_eq!(life.figures().frozen_bytes, 0);
    }
}

#[test]
fn what_is_frozen_counts_for_those_who_need_it_and_memory_for_all_others() {
    let mut life = Life::new(4096, 60, 5);
    life.change(b"a", Some(b"1"));
    life.change(b"b", Some(b"1"));
    let mut first = life.begin();
    life.change(b"a", Some(b"2"));
    life.change(b"b", None);
    let mut second = life.begin();
    life.change(b"a", None);
    life.kept.pin(&life.log, life.log.tail(), life.now.clone()).unwrap();
    // In memory behind the cut.
    let mut third = life.begin();
    life.change(b"a", Some(b"3"));
    life.change(b"b", Some(b"3"));
    assert!(life.freeze(ROOM, PlainFreezer::new(&life.parts)).unwrap());
    let figures = life.figures();
    assert_eq!((figures.frozen, figures.versions), (3, 2));
    for held in [&mut first, &mut second, &mut third] {
        life.check(held, b'a'..b'c');
        assert!(!held.is_too_old);
    }
    // Nothing is left of what was frozen to be frozen again.
    assert!(!life.freeze(ROOM, PlainFreezer::new(&life.parts)).unwrap());
    // The other snapshot is in need of it yet.
    life.kept.end(first.snapshot);
    assert_eq!(parts(&life), 1);
    life.check(&mut second, b'a'..b'c');
    let kept = life.kept.kept();
    assert_eq!(kept.iter().map(|kept| kept.frozen_bytes > 0).collect::<Vec<_>>(), [true, false]);
    drop(life.kept.give_up(&second.snapshot));
    assert_eq!(parts(&life), 0);
    life.check(&mut second, b'a'..b'c');
    assert!(second.is_too_old);
    life.kept.end(second.snapshot);
    life.check(&mut third, b'a'..b'c');
    life.kept.end(third.snapshot);
}

#[test]
fn nothing_is_frozen_while_a_snapshot_below_is_not_pinned() {
    let mut life = Life::new(4096, 60, 5);
    life.change(b"a", Some(b"1"));
    let pinned = life.begin();
    life.change(b"a", Some(b"2"));
    let late = life.begin();
    life.change(b"a", Some(b"3"));
    // A checkpoint that did not meet the second one, as if it had been pending.
    let (cut, then) = (life.log.tail(), life.now.clone());
    {
        let mut pins = life.kept.pins.lock();
        let users = life.kept.pin_slots(cut, pinned.snapshot.lsn());
        assert_eq!(users, 1);
        pins.insert(cut, state::Pinned { pin: Arc::new(then), users });
    }
    assert!(life.kept.plan_to_freeze().unwrap().is_none());
    life.kept.end(late.snapshot);
    assert!(life.kept.plan_to_freeze().unwrap().is_some());
    let pending = life.kept.slots.take().unwrap();
    assert!(life.kept.plan_to_freeze().unwrap().is_none());
    life.kept.slots.end(pending);
    life.kept.end(pinned.snapshot);
    assert!(life.kept.plan_to_freeze().unwrap().is_none());
}

#[test]
fn a_write_that_fails_leaves_all_versions_in_memory_and_no_part() {
    let mut life = Life::new(512, 60, 3);
    let mut held = hold_many(&mut life, 4, false);
    let before = life.figures();
    for writes in 0..4 {
        let freezer = PlainFreezer::that_fails_after(writes, &life.parts);
        let error = life.freeze(ROOM, freezer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DiskFull);
        assert_eq!((life.figures(), parts(&life)), (before, 0));
    }
    let error = life.freeze(900, PlainFreezer::new(&life.parts)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MemoryLimit, "no room for four records");
    assert!(life.freeze(ROOM, PlainFreezer::new(&life.parts)).unwrap());
    for one in &mut held {
        life.check(one, b'a'..b'd');
        assert!(!one.is_too_old);
    }
    held.into_iter().for_each(|one| drop(life.kept.end(one.snapshot)));
}

#[test]
fn it_is_due_when_pinned_snapshots_need_a_quarter_of_all_memory() {
    let mut life = Life::new(512, 33, 3);
    let mut held = Vec::new();
    let quarter = life.kept.most_cells() / 4;
    let mut number = 0u8;
    loop {
        // Two cells each, of a key that is not removed.
        held.push(life.begin());
        number += 1;
        let key = [b'a', number % 60];
        life.change(&key, Some(b"one"));
        life.kept.pin(&life.log, life.log.tail(), life.now.clone()).unwrap();
        let table = life.kept.table.lock();
        let used = table.cells.all() - table.cells.free();
        drop(table);
        let plan = life.kept.plan_to_freeze().unwrap().unwrap();
        let is_due = life.kept.is_due_to_freeze(&plan);
        assert_eq!(is_due, used >= quarter, "{used} of {quarter} cells");
        if is_due {
            break;
        }
    }
    assert!(number > 10);
    held.into_iter().for_each(|one| drop(life.kept.end(one.snapshot)));
}

/// More than some passes through the table can write: the rest is left to later checkpoints, and read all the same meanwhile.
#[test]
fn what_takes_too_many_passes_is_frozen_bit_by_bit_and_a_checkpoint_is_wanted_until_all_is() {
    let mut life = Life::new(4096, 90, 3);
    let mut held = hold_many(&mut life, 24, false);
    assert_eq!(life.figures().given_up, 0);
    let before = life.figures().versions;
    let mut left = before;
    for times in 1.. {
        assert!(life.freeze(ROOM, PlainFreezer::new(&life.parts)).unwrap());
        let figures = life.figures();
        assert!(figures.versions < left, "{figures:?} of {left}");
        left = figures.versions;
        for one in &mut held {
            life.check(one, b'a'..b'd');
            assert!(!one.is_too_old);
        }
        assert_eq!(life.kept.wants_checkpoint(), left > 0, "{left} are left");
        if left == 0 {
            assert!(times > 2, "{before} versions were written at once");
            break;
        }
    }
    // While one is about to begin nothing can be written, and the next checkpoint is asked for.
    let pending = life.kept.slots.take().unwrap();
    assert!(life.kept.plan_to_freeze().unwrap().is_none() && life.kept.wants_checkpoint());
    life.kept.slots.end(pending);
    assert!(life.kept.plan_to_freeze().unwrap().is_some() && !life.kept.wants_checkpoint());
    held.into_iter().for_each(|one| drop(life.kept.end(one.snapshot)));
    assert_eq!(parts(&life), 0);
}
