//! Events of the feature `tracing`: each is seen by a subscriber, with the target, the level and the fields that
//! docs/operations.md lists. `cargo test --workspace` has the feature, through the tool; without it there is nothing to test.
#![cfg(feature = "tracing")]

use crate::common::{key, open, tiny};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, ErrorKind, Options};
use hedgerow_testing::SimDisk;
use hedgerow_testing::events::{Seen, events_of};
use hedgerow_testing::sim::{CallKind, Fault};
use tracing::Level;

fn of<'e>(events: &'e [Seen], target: &str) -> Vec<&'e Seen> {
    events.iter().filter(|event| event.target == target).collect()
}

fn logged() -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(512) + (128 << 10);
    tiny().memory_limit_bytes(limit).zone_bytes(32 << 10).log(true).log_segment_blocks(6)
}

fn fill(db: &Database) {
    let keyspace = db.keyspace("secret-name").unwrap();
    for n in 0..50 {
        keyspace.put(&key(n), b"secret-value").unwrap();
    }
}

#[test]
fn a_subscriber_sees_opening_recovery_checkpoints_and_errors() {
    let disk = SimDisk::new(1);
    let mut left = None;
    let created = events_of(|| {
        let db = open(&logged(), &disk, OpenHow::New).unwrap();
        fill(&db);
        db.sync().unwrap();
        left = Some(disk.crash(1));
    });
    let opened = of(&created, "hedgerow::open");
    assert_eq!(opened.len(), 1, "{created:?}");
    let expected =
        ["elapsed_ms", "memory_limit_bytes", "message", "page_bytes", "path", "read_only"];
    assert_eq!(opened[0].names(), expected);
    assert_eq!((opened[0].level, opened[0].number("page_bytes")), (Level::INFO, 512));
    assert_eq!(opened[0].fields["read_only"], "false");

    let disk = left.unwrap();
    let recovered = events_of(|| {
        let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
        fill(&db);
        db.checkpoint().unwrap();
        disk.inject(Fault::once(CallKind::SyncData, 0, Fault::EIO).sticky());
        fill(&db);
        assert!(db.checkpoint().is_err());
        let refused = db.keyspace("secret-name").unwrap().put(b"secret-key", b"").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Poisoned);
    });
    let [replay] = of(&recovered, "hedgerow::recovery")[..] else { panic!("{recovered:?}") };
    assert_eq!(replay.names(), ["elapsed_ms", "log_bytes", "message", "path", "records"]);
    assert_eq!(replay.level, Level::INFO);
    assert!(replay.number("records") >= 50 && replay.number("log_bytes") > 0, "{replay:?}");

    let checkpoints = of(&recovered, "hedgerow::checkpoint");
    assert!(!checkpoints.is_empty(), "{recovered:?}");
    for checkpoint in &checkpoints {
        assert_eq!(checkpoint.names(), ["elapsed_ms", "message", "number", "written_bytes"]);
        assert_eq!(checkpoint.level, Level::DEBUG);
    }
    let numbers: Vec<u64> = checkpoints.iter().map(|event| event.number("number")).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");

    let errors = of(&recovered, "hedgerow::error");
    let levels: Vec<Level> = errors.iter().map(|event| event.level).collect();
    assert_eq!(levels.iter().filter(|level| **level == Level::ERROR).count(), 1, "{errors:?}");
    assert!(levels.contains(&Level::WARN), "the checkpoint has failed: {errors:?}");
    for error in errors {
        assert_eq!(error.names(), ["error", "message"]);
    }

    // What users store is in no event.
    for event in created.iter().chain(&recovered) {
        let text = format!("{event:?}");
        assert!(!text.contains("secret"), "{text}");
    }
}
