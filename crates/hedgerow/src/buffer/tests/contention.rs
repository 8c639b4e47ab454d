//! Counts of contention beside frames, and pages for leaves that are to be apart.

use super::{fresh, pool};
use crate::buffer::frame::header_line;
use crate::page::EpochStay;
use crate::page::{Access, ExclusivePage, Frames, Journal, Pages, Period, Place, PoolSession};
use crate::types::TreeId;
use std::collections::BTreeSet;

/// Whichever frame the leaf is in: one page of two is apart from it. Of four, two are apart from it and from each other, which
/// the split of a root asks for.
#[test]
fn pages_that_are_to_be_apart_do_not_share_a_line_of_latches() {
    let pool = pool(0);
    let mut seen = BTreeSet::new();
    for _ in 0..pool.frames() / 2 {
        let (_, leaf) = fresh(&pool);
        seen.insert(leaf.0 % 2);
        for is_root in [false, true] {
            let mut session = pool.session();
            session.reserve(if is_root { 4 } else { 2 }).unwrap();
            let stay = pool.enter().unwrap();
            let mut lines = vec![header_line(leaf)];
            let left = session.take_apart(TreeId(7), stay.epoch(), &[leaf]).unwrap();
            lines.push(header_line(left.frame()));
            if is_root {
                let from = [leaf, left.frame()];
                let right = session.take_apart(TreeId(7), stay.epoch(), &from).unwrap();
                lines.push(header_line(right.frame()));
                pool.free(right, stay.epoch());
            }
            pool.free(left, stay.epoch());
            let all = lines.len();
            assert_eq!(lines.into_iter().collect::<BTreeSet<_>>().len(), all);
        }
    }
    assert_eq!(seen.len(), 2, "both halves of a line");
}

#[test]
fn another_page_in_a_frame_begins_without_counts() {
    let pool = pool(0);
    let heat = |frame| {
        let contention = pool.contention(frame).unwrap();
        contention.set(contention.get().after_sample(Place::new(Some(3)), true).heated());
        assert!(pool.is_hot(frame));
    };
    let (id, frame) = fresh(&pool);
    assert_eq!(pool.contention(frame).unwrap().get(), Period::default());
    heat(frame);
    assert_eq!(pool.contended(9).iter().map(|(page, _)| *page).collect::<Vec<_>>(), [id]);
    // A fresh page in the frame of one that was freed.
    let stay = pool.enter().unwrap();
    pool.free(ExclusivePage::wait(&*pool, id, &mut || true).ok().unwrap(), stay.epoch());
    drop(stay);
    let (again, other) = fresh(&pool);
    assert_eq!((again, other), (id, frame));
    assert!(!pool.is_hot(frame) && pool.contended(9).is_empty());
    // The same page, read again after it was evicted.
    heat(frame);
    pool.header(frame).take_use();
    pool.write_back_cold(vec![frame]).unwrap();
    assert!(pool.header(frame).is_free());
    pool.session().fault(id, Access::Point).unwrap();
    assert_eq!(pool.translate(id), Some(frame));
    assert!(!pool.is_hot(frame));
}

/// What nobody has used since the clock passed cools; what is latched is left for the next turn.
#[test]
fn the_clock_cools_what_nobody_uses() {
    let pool = pool(0);
    let (_, frame) = fresh(&pool);
    let contention = pool.contention(frame).unwrap();
    contention.set(Period::default().heated());
    let held = pool.header(frame).latch.exclusive();
    pool.cool(frame);
    assert_eq!(contention.get(), Period::default().heated());
    drop(held);
    for _ in 0..3 {
        assert!(pool.is_hot(frame));
        pool.cool(frame);
    }
    assert!(!pool.is_hot(frame));
}
