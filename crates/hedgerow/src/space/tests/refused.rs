//! What the allocator refuses, and that a refusal, or a report of what never was, changes nothing.

use super::extremes::{Reader, table_checkpoint, three_full_groups};
use super::forged::{Parts, assert_damage, load_all, open, sparse_table};
use super::*;
use crate::large::{Extent, Run};
use crate::space::large::units_of_value;

/// Zones of sixteen units, all free and solid.
fn free_zones(count: u32) -> Zones {
    let mut zones = Zones::create(Geometry::from_sizes(4096, 4096, 64 << 10).unwrap());
    zones.grown_to(count);
    zones
}

fn page_at(zones: &Zones, zone: u32, unit: u64) -> Slot {
    let offset = zones.geometry().zone_offset(zone) + unit * 4096;
    Slot::new(offset, 4096, 0).unwrap()
}

/// An extent for a value of this length, its units just taken.
fn extent(zones: &mut Zones, len_bytes: u64, seed: u64) -> Extent {
    let units = units_of_value(zones.geometry(), len_bytes);
    let runs = zones.allocate_extent(units, 8, 0, Growth::Refused).unwrap();
    let extent = Extent { len_bytes, seed, runs: runs.into() };
    zones.check_extent(&extent).unwrap();
    extent
}

fn checkpoint(
    zones: &mut Zones,
    epoch: u64,
    before: TableRoot,
    change: fn(&mut Zones),
) -> TableRoot {
    table_checkpoint(zones, Epoch(epoch), before, &mut Parts::new(), None, change)
}

#[test]
fn an_image_of_an_epoch_to_come_is_damage_and_keeps_its_slot() {
    let mut zones = free_zones(1);
    let mut out = Vec::new();
    zones.allocate(4096, 1, Growth::Refused, &mut out).unwrap();
    let slot = Slot::new(out[0], 4096, 0).unwrap();
    let before = zones.report();
    assert_damage(zones.supersede(slot, Epoch(6), Epoch(5)), "which has not begun");
    assert_damage(zones.supersede(Slot::NONE, Epoch(1), Epoch(5)), "outside of the zones");
    assert_eq!(zones.report(), before);
    // Epoch 4 has ended, and so it may be in a checkpoint.
    zones.quarantine.checkpoint_begun(Epoch(4));
    zones.supersede(slot, Epoch(4), Epoch(5)).unwrap();
    assert_eq!(zones.report().quarantined_bytes, 4096);
}

#[test]
fn giving_back_what_no_allocation_handed_out_changes_nothing() {
    let mut zones = free_zones(2);
    zones.allocate(4096, 20, Growth::Refused, &mut Vec::new()).unwrap();
    let (before, geometry) = (zones.report(), zones.geometry());
    for offset in [0, HEADER_REGION_BYTES - 4096, HEADER_REGION_BYTES + 512] {
        zones.give_back(offset, 4096);
    }
    zones.give_back(geometry.zone_offset(2), 4096);
    zones.give_back(geometry.zone_offset(9), 4096);
    assert_eq!(zones.report(), before);
    zones.verify().unwrap();
}

#[test]
fn a_file_as_long_as_slots_can_name_is_not_asked_to_grow() {
    let geometry = Geometry::from_sizes(65536, 65536, 16 << 20).unwrap();
    let most = geometry.max_zones();
    let bytes = geometry.zone_offset(most);
    let root = TableRoot::EMPTY;
    let mut zones = Zones::open(geometry, &root, Epoch(1), bytes, &mut |_, _| Ok(())).unwrap();
    assert_eq!(zones.zone_count(), most);
    for group in &mut zones.groups {
        group.referenced_units = geometry.units_per_group();
    }
    for growth in [Growth::Allowed, Growth::Refused] {
        let mut out = Vec::new();
        assert_eq!(zones.allocate(65536, 1, growth, &mut out), Err(Want::Full));
        assert_eq!(zones.want_room(growth, 1), Want::Full);
        let zone = u64::from(geometry.units_per_zone());
        assert_eq!(zones.allocate_extent(1, 8, 0, growth), Err(Want::Full));
        assert_eq!(zones.allocate_extent(zone + 1, 8, 0, growth), Err(Want::Full));
        assert_eq!(zones.allocate_extent(u64::MAX, 8, 0, growth), Err(Want::Full));
    }
    // Nor do they leave a growth that nobody reports back.
    assert_eq!(zones.growing, 0);
}

#[test]
fn while_the_file_is_cut_nobody_makes_it_longer_or_cuts_it_again() {
    let mut zones = free_zones(3);
    zones.allocate(4096, 16, Growth::Refused, &mut Vec::new()).unwrap();
    let cut = zones.cut(0).unwrap();
    assert_eq!(cut, 1);
    assert_eq!(zones.cut(0), None);
    let before = zones.report();
    for growth in [Growth::Allowed, Growth::Refused] {
        assert_eq!(zones.allocate(4096, 1, growth, &mut Vec::new()), Err(Want::Truncating));
        assert_eq!(zones.allocate_extent(3, 8, 0, growth), Err(Want::Truncating));
        assert_eq!(zones.allocate_extent(30, 8, 0, growth), Err(Want::Truncating));
    }
    assert_eq!(zones.want_room(Growth::Allowed, 1), Want::Truncating);
    assert_eq!(zones.tail_zones_to_clean(u64::MAX, 0), []);
    assert_eq!(zones.report(), before);
    // The cut failed, and what it was to cut may be written again; a second report changes nothing.
    zones.end_truncate(false);
    let after = zones.report();
    zones.end_truncate(true);
    assert_eq!(zones.report(), after);
    assert_eq!(zones.zone_count(), 3);
    let runs = zones.allocate_extent(30, 8, 0, Growth::Refused).unwrap();
    assert_eq!(runs, [Run { unit: 16, units: 30 }]);
    zones.verify().unwrap();
}

/// Whoever makes the file longer has looked at its length, and does so with nothing locked. A cut meanwhile would take away what
/// it has just reported.
#[test]
fn while_the_file_grows_it_is_not_cut() {
    for done in [true, false] {
        for extent in [false, true] {
            let mut zones = free_zones(3);
            zones.allocate(4096, 1, Growth::Refused, &mut Vec::new()).unwrap();
            let all = 4 * zones.geometry().units_per_zone();
            let want = match extent {
                true => zones.allocate_extent(u64::from(all), 8, 0, Growth::Allowed).unwrap_err(),
                false => zones.want_room(Growth::Allowed, 4),
            };
            let Want::Grow { units, .. } = want else { panic!("{want:?}") };
            let before = zones.report();
            assert_eq!(zones.begin_truncate(0, 0, 0), None, "{want:?}");
            assert_eq!(zones.report(), before);
            match done {
                true => zones.grown(units),
                false => zones.growth_failed(),
            }
            let left = zones.cut(0);
            assert_eq!(left, Some(1), "{want:?}, done: {done}");
            zones.end_truncate(true);
            zones.verify().unwrap();
        }
    }
}

#[test]
fn a_zone_at_the_end_that_is_being_punched_is_neither_cut_off_nor_cleaned() {
    let mut zones = free_zones(2);
    zones.allocate(4096, 4, Growth::Refused, &mut Vec::new()).unwrap();
    let punch = zones.begin_punch(0, 0).unwrap();
    assert_eq!(punch.zone, 1);
    assert_eq!(zones.cut(0), None);
    assert_eq!(zones.tail_zones_to_clean(u64::MAX, 0), []);
    assert_eq!(zones.ceiling_bytes(), None);
    // Reports about zones that are not being punched.
    let before = zones.report();
    zones.end_punch(0, true);
    zones.end_punch(2, true);
    zones.end_punch(99, true);
    assert_eq!(zones.report(), before);
    zones.end_punch(punch.zone, true);
    assert_eq!(zones.report().hole_bytes, punch.len_bytes);
    zones.end_punch(punch.zone, true);
    assert_eq!(zones.report().hole_bytes, punch.len_bytes);
    assert_eq!(zones.cut(0), Some(1));
    zones.end_truncate(true);
    zones.end_punch(punch.zone, true);
    assert_eq!(zones.report().hole_bytes, 0);
    zones.verify().unwrap();
}

/// Three groups, of which the checkpoint needs all but an image in the middle, where the table's parts lie.
fn three_groups_on_disk(place: usize) -> (Geometry, Root, Parts, Vec<Slot>) {
    let (geometry, mut zones, mut slots) = three_full_groups();
    let place = slots.remove(place);
    zones.give_back(place.offset_bytes(), place.len_bytes() as u32);
    let places = (0..4).map(|i| place.offset_bytes() + i * 4096).collect();
    zones.allocate(PART_BYTES as u32, 4, Growth::Refused, &mut Vec::new()).unwrap();
    let mut parts = Parts::new();
    let (epoch, before) = (Epoch(1), TableRoot::EMPTY);
    let table = table_checkpoint(&mut zones, epoch, before, &mut parts, Some(places), |zones| {
        slots.iter().for_each(|&slot| zones.refer(slot).unwrap());
    });
    (geometry, Root { epoch, map: MapRoot::EMPTY, table, next: None, free_ids: 0 }, parts, slots)
}

#[test]
fn parts_in_a_group_that_was_never_read_come_free_and_do_not_disturb_other_groups() {
    let (geometry, root, mut parts, slots) = three_groups_on_disk(128);
    let mut zones = open(geometry, &root, 3, &parts).unwrap();
    // Superseded in the last group, before any group is in memory.
    let last = *slots.last().unwrap();
    zones.supersede(last, Epoch(1), Epoch(2)).unwrap();
    let first = zones.group_to_load(slots[0]).unwrap().unwrap();
    zones.load_group(first, &parts[&first.slot.offset_bytes()]).unwrap();
    zones.verify().unwrap();
    zones.supersede(slots[0], Epoch(2), Epoch(2)).unwrap();
    let before = zones.report();
    let table = table_checkpoint(&mut zones, Epoch(2), root.table, &mut parts, None, |zones| {
        zones.unrefer(slots[0]).unwrap();
    });
    assert!(table.slot.offset_bytes() < geometry.zone_offset(1));
    // Two parts in the middle and an image in the last group are free, as many parts are new.
    let after = zones.report();
    assert_eq!(after.quarantined_bytes, 0);
    assert_eq!(after.free_bytes, before.free_bytes + last.len_bytes());
    // That the last checkpoint still names the image is no matter here: its bit comes back.
    for wanted in zones.groups_to_load() {
        zones.load_group(wanted, &parts[&wanted.slot.offset_bytes()]).unwrap();
    }
    assert_eq!(zones.is_referenced(slots[0]), Some(false));
    assert_eq!(zones.is_referenced(slots[1]), Some(true));
}

#[test]
fn bitmaps_whose_parts_lie_in_the_tail_are_read_so_that_they_can_move() {
    let (geometry, root, parts, slots) = three_groups_on_disk(300);
    let mut zones = open(geometry, &root, 3, &parts).unwrap();
    assert_eq!(zones.tail_zones_to_clean(u64::MAX, 0), [], "the tail was not read");
    assert_eq!(zones.groups_to_move(), []);
    let tail = zones.tail_to_load().unwrap();
    assert_eq!(tail.group, 2);
    zones.load_group(tail, &parts[&tail.slot.offset_bytes()]).unwrap();
    assert_eq!(zones.tail_to_load(), None);
    zones.ceiling = Some(2);
    let wanted: Vec<u32> = zones.groups_to_move().iter().map(|wanted| wanted.group).collect();
    assert_eq!(wanted, [0, 1]);
    // Those whose parts lie below stay where they are, and so does what has none.
    let (_, root, parts, _) = three_groups_on_disk(0);
    let mut zones = open(geometry, &root, 4, &parts).unwrap();
    zones.ceiling = Some(1);
    assert_eq!(zones.groups_to_move(), []);
    assert_eq!(zones.is_referenced(slots[0]), None);
}

#[test]
fn a_checkpoint_that_was_never_begun_is_not_ended() {
    let mut zones = free_zones(1);
    zones.allocate(4096, 3, Growth::Refused, &mut Vec::new()).unwrap();
    let before = zones.report();
    zones.checkpoint_durable().unwrap();
    zones.abort_checkpoint();
    assert_eq!(zones.report(), before);
    // The first one is the first all the same.
    checkpoint(&mut zones, 1, TableRoot::EMPTY, |_| ());
    assert_eq!(zones.pin(), Epoch(1));
}

#[test]
fn groups_that_are_cut_off_while_a_checkpoint_writes_its_table_are_not_missed() {
    let (geometry, mut zones, slots) = three_full_groups();
    for slot in &slots {
        zones.give_back(slot.offset_bytes(), slot.len_bytes() as u32);
    }
    let far = slots[slots.len() - 1];
    zones.begin_checkpoint(Epoch(1));
    zones.refer(slots[5]).unwrap();
    zones.refer(far).unwrap();
    zones.unrefer(far).unwrap();
    assert_eq!(zones.plan_table(), 2);
    let places = [geometry.zone_offset(0), geometry.zone_offset(0) + 4096];
    zones.place_table(&places);
    assert_eq!(zones.cut(0), Some(0));
    zones.end_truncate(false);
    let mut taken = Vec::new();
    zones.allocate(512, 1, Growth::Refused, &mut taken).unwrap();
    assert_eq!(taken, [geometry.zone_offset(0)]);
    assert_eq!(zones.cut(0), Some(1));
    zones.end_truncate(true);
    let mut parts = Parts::new();
    let mut bytes = part::new_bytes();
    while let Some(offset) = zones.next_table_part(&mut bytes) {
        parts.insert(offset, bytes.clone());
    }
    let table = zones.table_root(&TableRoot::EMPTY);
    zones.checkpoint_durable().unwrap();
    let needed = geometry.zones_of_units(table.units);
    assert_eq!((needed, zones.zone_count(), zones.groups()), (1, 1, 1));
    let root = Root { epoch: Epoch(1), map: MapRoot::EMPTY, table, next: None, free_ids: 0 };
    let again = load_all(open(geometry, &root, 1, &parts).unwrap(), &parts).unwrap();
    assert_eq!(again.is_referenced(slots[5]), Some(true));
    again.verify().unwrap();
}

#[test]
fn a_unit_of_two_extents_or_of_an_extent_and_a_page_is_damage() {
    let mut zones = free_zones(4);
    let (one, other) = (extent(&mut zones, 40_000, 1), extent(&mut zones, 40_000, 2));
    let page = page_at(&zones, 3, 0);
    zones.begin_checkpoint(Epoch(1));
    assert_damage(zones.unrefer_extent(&one), "not at all");
    zones.abort_checkpoint();
    zones.begin_checkpoint(Epoch(1));
    zones.refer_extent(&one).unwrap();
    assert_damage(zones.refer_extent(&one), "referred to twice");
    zones.refer_extent(&other).unwrap();
    zones.unrefer_extent(&other).unwrap();
    assert_damage(zones.unrefer_extent(&other), "not at all");
    zones.refer(page).unwrap();
    let unit = zones.geometry().unit_at(page.offset_bytes()).unwrap();
    let units = units_of_value(zones.geometry(), 5000) as u32;
    let across = Extent { len_bytes: 5000, seed: 3, runs: [Run { unit: unit - 1, units }].into() };
    assert_damage(zones.refer_extent(&across), "referred to twice");
    let beyond = Extent { runs: [Run { unit: 63, units }].into(), ..across };
    assert_damage(zones.refer_extent(&beyond), "is outside of the file");
    assert_damage(zones.unrefer_extent(&beyond), "is outside of the file");
    assert!(zones.extent_groups(&beyond).is_err());
    zones.abort_checkpoint();
    assert_eq!(zones.is_referenced(page), Some(false));
}

/// An extent that checkpoint 1 refers to, left in epoch 2.
fn left_extent() -> (Zones, Extent, TableRoot) {
    let mut zones = free_zones(4);
    let extent = extent(&mut zones, 40_000, 1);
    zones.extent_entered(&extent, Epoch(1));
    let (mut parts, empty) = (Parts::new(), TableRoot::EMPTY);
    let refer = |zones: &mut Zones| zones.refer_extent(&extent).unwrap();
    let root = table_checkpoint(&mut zones, Epoch(1), empty, &mut parts, None, refer);
    (zones, extent, root)
}

fn units(zones: &Zones, extent: &Extent) -> u64 {
    units_of_value(zones.geometry(), extent.len_bytes)
}

#[test]
fn a_pinned_checkpoint_keeps_the_extents_that_it_refers_to() {
    let (mut zones, extent, root) = left_extent();
    zones.pin();
    zones.extent_left(&extent, Epoch(2));
    let (mut parts, leave) =
        (Parts::new(), |zones: &mut Zones| zones.unrefer_extent(&extent).unwrap());
    table_checkpoint(&mut zones, Epoch(2), root, &mut parts, None, leave);
    assert!(!zones.free_extents(u64::MAX));
    assert_eq!(zones.left_units(), units(&zones, &extent));
    let mut taken = Vec::new();
    while zones.allocate(4096, 1, Growth::Refused, &mut taken).is_ok() {}
    let run = extent.runs[0];
    let taken = taken.iter().map(|&at| zones.geometry().unit_at(at).unwrap());
    assert!(
        taken.into_iter().all(|unit| !(run.unit..run.unit + u64::from(run.units)).contains(&unit))
    );
    zones.unpin(Epoch(1)).unwrap();
    assert!(!zones.free_extents(u64::MAX));
    assert_eq!(zones.left_units(), 0);
    zones.allocate(4096, run.units as usize, Growth::Refused, &mut Vec::new()).unwrap();
    zones.verify().unwrap();
}

#[test]
fn a_reader_that_never_began_sets_nothing_free() {
    let (mut zones, extent, root) = left_extent();
    let from = zones.extents.reading_begins(Epoch(2));
    zones.extent_left(&extent, Epoch(2));
    let (mut parts, leave) =
        (Parts::new(), |zones: &mut Zones| zones.unrefer_extent(&extent).unwrap());
    table_checkpoint(&mut zones, Epoch(2), root, &mut parts, None, leave);
    zones.extents.reading_ends(Epoch(7));
    zones.free_extents(u64::MAX);
    assert_eq!(zones.left_units(), units(&zones, &extent));
    zones.extents.reading_ends(from);
    zones.free_extents(u64::MAX);
    assert_eq!(zones.left_units(), 0);
    zones.verify().unwrap();
}

#[test]
fn an_extent_whose_record_a_replay_puts_again_stays() {
    let (mut zones, extent, root) = left_extent();
    let replay = zones.extents.replay_begins();
    zones.extent_left(&extent, Epoch(2));
    assert_eq!(zones.left_units(), units(&zones, &extent));
    zones.extent_entered(&extent, Epoch(1));
    assert_eq!((zones.left_units(), zones.writing_units()), (0, 0));
    checkpoint(&mut zones, 2, root, |_| ());
    zones.replay_ends();
    zones.extents.reading_ends(replay);
    zones.free_extents(u64::MAX);
    zones.verify().unwrap();
    let mut taken = Vec::new();
    while zones.allocate(4096, 1, Growth::Refused, &mut taken).is_ok() {}
    let run = extent.runs[0];
    let held = run.unit..run.unit + u64::from(run.units);
    assert!(taken.iter().all(|&at| !held.contains(&zones.geometry().unit_at(at).unwrap())));
}

#[test]
fn an_extent_that_is_read_is_free_after_its_last_reader_and_others_are_free_before() {
    let (mut zones, extent, root) = left_extent();
    let other = self::extent(&mut zones, 40_000, 1);
    zones.extent_entered(&other, Epoch(1));
    for _ in 0..2 {
        let from = zones.extents.reading_begins(Epoch(2));
        zones.extents.reading_one_begins(&extent.runs);
        zones.extents.reading_ends(from);
    }
    zones.extent_left(&extent, Epoch(2));
    zones.extent_left(&other, Epoch(2));
    let (mut parts, leave) =
        (Parts::new(), |zones: &mut Zones| zones.unrefer_extent(&extent).unwrap());
    table_checkpoint(&mut zones, Epoch(2), root, &mut parts, None, leave);
    zones.free_extents(u64::MAX);
    assert_eq!(zones.left_units(), units(&zones, &extent), "the other one is free");
    zones.reading_one_ends(&extent.runs);
    zones.free_extents(u64::MAX);
    assert_eq!(zones.left_units(), units(&zones, &extent));
    zones.verify().unwrap();
    zones.reading_one_ends(&extent.runs);
    assert_eq!(zones.left_units(), 0);
    zones.verify().unwrap();
    zones.reading_one_ends(&extent.runs);
    assert_eq!(zones.left_units(), 0, "one that never began");
}

#[test]
fn what_a_replay_held_beyond_the_file_is_nobodys() {
    let mut zones = free_zones(2);
    let before = zones.report();
    let runs = vec![Run { unit: 1 << 20, units: 40 }].into();
    let replay = zones.extents.replay_begins();
    zones.extent_left(&Extent { len_bytes: 20_000, seed: 1, runs }, Epoch(2));
    zones.replay_ends();
    zones.extents.reading_ends(replay);
    assert_eq!(zones.report(), before);
    zones.verify().unwrap();
}

#[test]
fn a_large_extent_reads_the_bitmaps_first_and_takes_no_zone_in_use() {
    let (geometry, root, parts) = sparse_table(&[3, 550]);
    let mut zones = open(geometry, &root, 600, &parts).unwrap();
    let per_zone = u64::from(geometry.units_per_zone());
    let (mut read, mut filled) = (Vec::new(), Vec::new());
    let runs = loop {
        match zones.allocate_extent(per_zone + 9, 8, 0, Growth::Allowed) {
            Ok(runs) => break runs,
            Err(Want::Load(wanted)) => {
                read.push(wanted.group);
                zones.load_group(wanted, &parts[&wanted.slot.offset_bytes()]).unwrap();
            }
            Err(Want::Fill(fill)) => {
                filled.push(fill.zone);
                zones.filled(fill.zone, true);
            }
            Err(other) => panic!("{other:?}"),
        }
    };
    read.sort_unstable();
    assert_eq!((read, filled), (vec![3, 550], vec![4, 5]));
    assert_eq!(runs, [Run { unit: 4 * per_zone, units: per_zone as u32 + 9 }]);
    zones.verify().unwrap();
}

#[test]
fn an_extent_below_a_zone_reads_no_bitmaps_beyond_it() {
    let (geometry, root, parts) = sparse_table(&[3, 550]);
    let mut zones = open(geometry, &root, 600, &parts).unwrap();
    let runs = loop {
        match zones.allocate_extent_below(5, 100, 8, 0) {
            Ok(runs) => break runs.unwrap(),
            Err(Want::Load(wanted)) => {
                assert_eq!(wanted.group, 3);
                let mut bytes = part::new_bytes();
                Reader(&parts).read(wanted.slot, &mut bytes).unwrap();
                zones.load_group(wanted, &bytes).unwrap();
            }
            Err(Want::Fill(fill)) => zones.filled(fill.zone, true),
            Err(other) => panic!("{other:?}"),
        }
    };
    let end = 5 * u64::from(geometry.units_per_zone());
    assert!(runs.iter().all(|run| run.unit + u64::from(run.units) <= end), "{runs:?}");
    assert!(zones.groups[5..].iter().all(|group| group.loaded.is_none()));
}

#[test]
fn a_large_extent_takes_no_hole_that_may_not_be_filled() {
    let mut zones = free_zones(4);
    let punch = zones.begin_punch(0, 0).unwrap();
    assert_eq!(punch.zone, 0);
    zones.end_punch(0, true);
    let runs = zones.allocate_extent(24, 8, 0, Growth::Refused).unwrap();
    assert_eq!(runs, [Run { unit: 16, units: 24 }]);
    zones.discard_extent(&runs);
    assert_eq!(zones.allocate_extent(50, 8, 0, Growth::Refused), Err(Want::Full));
    let want = zones.allocate_extent(50, 8, 0, Growth::Allowed);
    assert!(matches!(want, Err(Want::Fill(fill)) if fill.zone == 0 && fill.is_hole), "{want:?}");
    zones.filled(0, true);
    zones.verify().unwrap();
}

#[test]
fn shrinking_ends_where_a_large_extent_finds_no_room_below_and_not_where_it_must_lie_below() {
    let mut zones = free_zones(4);
    let mut out = Vec::new();
    zones.allocate(4096, 20, Growth::Refused, &mut out).unwrap();
    assert_eq!(zones.tail_zones_to_clean(0, 0).len(), 2);
    let ceiling = zones.ceiling_bytes();
    assert_eq!(ceiling, Some(zones.geometry().zone_offset(2)));
    let before = zones.report();
    assert_eq!(zones.allocate_extent_below(2, 20, 8, 0), Ok(None));
    assert_eq!(zones.allocate_extent_below(2, 13, 8, 0), Ok(None));
    assert_eq!((zones.ceiling_bytes(), zones.growing), (ceiling, 0));
    assert_eq!(zones.report(), before);
    let runs = zones.allocate_extent(20, 8, 0, Growth::Allowed).unwrap();
    assert_eq!(runs, [Run { unit: 32, units: 20 }]);
    assert_eq!(zones.ceiling_bytes(), None);
    zones.verify().unwrap();
}
