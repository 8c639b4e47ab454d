//! What a verification looks at stays in the file as it is, whatever is written meanwhile.
//!
//! A pinned checkpoint is looked at in steps, and between them the caller itself changes everything and takes
//! checkpoints: nothing depends on how threads are scheduled, and who keeps writers out meanwhile never returns.

use crate::common::{Dice, Model, Step, assert_sound, change, contents, open, seed, tiny};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Options};
use hedgerow_testing::SimDisk;
use std::ops::ControlFlow;

const RECORDS: u64 = 6_000;

/// A store of many more pages than a verification looks at in one step.
fn filled(dice: &mut Dice) -> (SimDisk, Database, Model) {
    filled_with(&tiny(), dice)
}

fn filled_with(options: &Options, dice: &mut Dice) -> (SimDisk, Database, Model) {
    let disk = SimDisk::new(1);
    let db = open(options, &disk, OpenHow::New).unwrap();
    let mut model = Model::new();
    let puts = Step::Puts { keyspace: "wrens", count: RECORDS, below: RECORDS, value_bytes: 70 };
    change(&db, &mut model, &puts, dice).unwrap();
    db.checkpoint().unwrap();
    (disk, db, model)
}

/// Changes most pages, and takes two checkpoints: what only the one before them needs could be written again.
fn rewrite(db: &Database, model: &mut Model, dice: &mut Dice) {
    let keyspace = "wrens";
    for count in [RECORDS / 3, 50] {
        let puts = Step::Puts { keyspace, count, below: RECORDS, value_bytes: 70 };
        change(db, model, &puts, dice).unwrap();
        change(db, model, &Step::Removes { keyspace, below: RECORDS, every: 17 }, dice).unwrap();
        db.checkpoint().unwrap();
    }
}

#[test]
fn a_verification_sees_one_checkpoint_whatever_is_written_meanwhile() {
    let mut dice = Dice(seed(71));
    let (_disk, db, mut model) = filled(&mut dice);
    let quiet = db.space_report().unwrap();
    let (mut steps, mut pinned_bytes) = (0, 0);
    let report = db.verify(|_| {
        steps += 1;
        rewrite(&db, &mut model, &mut dice);
        pinned_bytes = pinned_bytes.max(db.space_report().unwrap().quarantined_bytes);
        ControlFlow::Continue(())
    });
    let report = report.unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert!(steps >= 2, "only {steps} steps");
    assert!(pinned_bytes > quiet.used_bytes / 2, "{pinned_bytes} of {} bytes", quiet.used_bytes);
    // What was held back is free as soon as nobody needs it.
    assert_eq!(db.space_report().unwrap().quarantined_bytes, 0);
    assert_eq!(contents(&db).unwrap(), model);
    assert_sound(&db, "afterwards");
}

#[test]
fn verifications_within_each_other_pin_several_checkpoints() {
    let mut dice = Dice(seed(72));
    let (disk, db, mut model) = filled(&mut dice);
    let mut nested = 0;
    let outer = db.verify(|_| {
        rewrite(&db, &mut model, &mut dice);
        if nested < 2 {
            nested += 1;
            let inner = db.verify(|_| {
                rewrite(&db, &mut model, &mut dice);
                ControlFlow::Continue(())
            });
            let inner = inner.unwrap();
            assert!(inner.is_clean(), "{:#?}", inner.findings);
        }
        ControlFlow::Continue(())
    });
    let outer = outer.unwrap();
    assert!(outer.is_clean(), "{:#?}", outer.findings);
    assert_eq!(nested, 2);
    db.checkpoint().unwrap();
    assert_eq!(db.space_report().unwrap().quarantined_bytes, 0);
    db.close().unwrap();
    let db = open(&tiny(), &disk, OpenHow::ReadOnly).unwrap();
    assert_eq!(contents(&db).unwrap(), model);
    assert_sound(&db, "opened again");
}

#[test]
fn closing_ends_a_verification() {
    let mut dice = Dice(seed(73));
    let (_disk, db, _) = filled(&mut dice);
    let mut other = Some(db.clone());
    let ended = db.verify(|_| {
        if let Some(other) = other.take() {
            other.close().unwrap();
        }
        ControlFlow::Continue(())
    });
    assert_eq!(ended.unwrap_err().kind(), hedgerow::ErrorKind::Closed);
}

#[test]
fn a_verification_is_stopped_by_its_progress_function_at_every_step() {
    let mut dice = Dice(seed(74));
    let options = tiny().memory_limit_bytes(2 << 20);
    let (disk, db, mut model) = filled_with(&options, &mut dice);
    let large = db.keyspace("gulls").unwrap();
    // More pieces of large values than are read between two steps.
    for key in 0..300_u32 {
        large.put(&key.to_be_bytes(), &[7; 3_000]).unwrap();
    }
    let (mut steps, mut last) = (0, 0);
    let report = db.verify(|pages| {
        assert!(pages >= last, "{pages} pages after {last}");
        (steps, last) = (steps + 1, pages);
        ControlFlow::Continue(())
    });
    let report = report.unwrap();
    assert!(report.is_clean() && last > report.pages, "{last} of {report:?}");
    for stop in 1..=steps {
        let mut asked = 0;
        let stopped = db.verify(|_| {
            asked += 1;
            if asked == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(stopped.unwrap_err().kind(), hedgerow::ErrorKind::Cancelled, "step {stop}");
        assert_eq!(asked, stop, "it is not asked again");
        rewrite(&db, &mut model, &mut dice);
    }
    // What was pinned is free, and the store goes on.
    db.checkpoint().unwrap();
    assert_eq!(db.space_report().unwrap().quarantined_bytes, 0);
    assert_sound(&db, "afterwards");
    db.close().unwrap();
    let db = open(&options, &disk, OpenHow::ReadOnly).unwrap();
    let stopped = db.verify(|_| ControlFlow::Break(()));
    assert_eq!(stopped.unwrap_err().kind(), hedgerow::ErrorKind::Cancelled);
}
