//! The recount of the bitmaps finds each kind of disagreement, and calls it by its name.

use super::extremes::table_checkpoint;
use super::forged::{Case, Parts};
use super::zone::Loaded;
use super::*;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;

/// Two zones; a checkpoint refers to three pages of the first, and one more was handed out since.
fn sound() -> Zones {
    let geometry = Geometry::from_sizes(512, 512, 16 << 10).unwrap();
    let mut zones = Zones::create(geometry);
    zones.grown_to(2);
    let mut offsets = Vec::new();
    zones.allocate(512, 3, Growth::Refused, &mut offsets).unwrap();
    let (mut parts, before) = (Parts::new(), TableRoot::EMPTY);
    table_checkpoint(&mut zones, Epoch(1), before, &mut parts, None, |zones| {
        for &offset in &offsets {
            zones.refer(Slot::new(offset, 512, 0).unwrap()).unwrap();
        }
    });
    zones.allocate(512, 1, Growth::Refused, &mut offsets).unwrap();
    zones.verify().unwrap();
    zones
}

fn loaded(zones: &mut Zones) -> &mut Loaded {
    zones.groups[0].loaded.as_deref_mut().unwrap()
}

/// A unit of the last zone that is free.
fn free_bit(zones: &mut Zones) -> u64 {
    let bit = 1 << 31;
    assert_eq!(loaded(zones).held[1] & bit, 0);
    bit
}

#[test]
fn memory_is_that_of_groups_bitmaps_table_and_what_is_held_back() {
    let mut zones = sound();
    let (groups, levels) = (zones.groups.capacity(), zones.upper.iter().map(Vec::len));
    let parts = levels.sum::<usize>();
    assert!(groups > 0 && parts > 0);
    let bitmaps = loaded(&mut zones);
    let words = bitmaps.held.len() + bitmaps.referenced.len();
    let zone_bytes = bitmaps.zones.len() * (size_of_val(&bitmaps.zones[0]) + 12);
    let without = groups * size_of_val(&zones.groups[0])
        + words * 8
        + zone_bytes
        + parts * size_of::<table_part::TablePart>();
    let quarantine = zones.quarantine.memory_bytes();
    assert_eq!(zones.memory_bytes(), without + quarantine);
    // What was left in an epoch that no checkpoint has made durable waits.
    assert!(!zones.quarantine.supersede(0, 1, Epoch(1), Epoch(2)));
    let waiting = zones.quarantine.memory_bytes();
    assert!(waiting > quarantine);
    assert_eq!(zones.memory_bytes(), without + waiting);
    zones.begin_checkpoint(Epoch(2));
    let staged = zones.staged.as_ref().unwrap().memory_bytes();
    assert_eq!(zones.memory_bytes(), without + waiting + staged);
}

#[test]
fn each_disagreement_between_bitmaps_and_figures_is_found_and_named() {
    let cases: [Case<Zones>; 8] = [
        ("group 0 of zones: 3 units referred to", |zones| zones.groups[0].referenced_units += 1),
        ("group 0 of zones: 2 units referred to", |zones| {
            let words = &mut loaded(zones).referenced;
            words[0] &= words[0] - 1;
        }),
        ("a unit in use counts as free", |zones| {
            let bit = free_bit(zones);
            loaded(zones).referenced[1] |= bit;
            zones.groups[0].referenced_units += 1;
        }),
        ("zone 1 of group 0", |zones| {
            let bit = free_bit(zones);
            loaded(zones).held[1] |= bit;
        }),
        ("zone 0 of group 0", |zones| loaded(zones).zones[0].free += 1),
        ("units held, ", |zones| zones.held_units += 1),
        ("room for ", |zones| {
            zones.room().fetch_add(1, Relaxed);
        }),
        ("room for ", |zones| {
            zones.room().fetch_sub(1, Relaxed);
        }),
    ];
    for (words, disturb) in cases {
        let mut zones = sound();
        disturb(&mut zones);
        let error = zones.verify().expect_err(words);
        let whole = ErrorKind::Corrupted { page: None, offset_bytes: None };
        assert_eq!(error.kind(), whole);
        assert!(error.to_string().contains(words), "{error} instead of {words:?}");
    }
}

#[test]
fn a_report_accounts_for_bytes_of_all_kinds() {
    let report = SpaceReport {
        header_bytes: 1,
        used_bytes: 10,
        free_bytes: 100,
        quarantined_bytes: 1_000,
        out_bytes: 10_000,
        ..sound().report()
    };
    assert_eq!(report.accounted_bytes(), 11_111);
}
