//! Ends of the range and bytes that lie: hostile parts, tables of three levels, slots far out.

use super::super::map::FANOUT;
use super::*;
use hedgerow_sync::primitive::atomic::Ordering;

/// Reads parts out of a map of bytes, changes nothing.
pub(super) struct Reader<'a>(pub(super) &'a BTreeMap<u64, Box<PartBytes>>);

impl PartIo for Reader<'_> {
    fn read(&mut self, slot: Slot, out: &mut PartBytes) -> Result<()> {
        match self.0.get(&slot.offset_bytes()) {
            Some(bytes) => out.copy_from_slice(&bytes[..]),
            None => out.fill(0),
        }
        Ok(())
    }

    fn allocate(&mut self) -> Result<u64> {
        unreachable!("reading allocates nothing")
    }

    fn write(&mut self, _: u64, _: &PartBytes) -> Result<()> {
        unreachable!("reading writes nothing")
    }

    fn entered(&mut self, _: Slot) -> Result<()> {
        unreachable!("reading changes nothing")
    }

    fn left(&mut self, _: Slot) -> Result<()> {
        unreachable!("reading changes nothing")
    }

    fn part_entered(&mut self, _: Slot) -> Result<()> {
        unreachable!("reading changes nothing")
    }

    fn part_left(&mut self, _: Slot, _: Epoch) -> Result<()> {
        unreachable!("reading changes nothing")
    }
}

/// Words changed at random in parts of a small store, under checksums that are right: whatever reads
/// it ends, in an answer or in `Corrupted`.
#[test]
fn hostile_parts_are_errors_never_panics() {
    let seed = crate::testing::environment::fresh_seed();
    let geometry = Geometry::from_sizes(512, 512, 4 << 20).unwrap();
    let mut rig = Rig::new(geometry, seed, 12);
    let offsets = rig.allocate(512, 900).unwrap();
    // Ids far apart, so that the map has three levels.
    for (i, offset) in (0..).zip(offsets) {
        rig.write_page(PageId(i * 512 * 200 + 4 + i % 508), offset);
    }
    rig.checkpoint(None, None).unwrap();
    let root = rig.durable.root;
    assert_eq!(root.map.levels, 3);
    let whole = rig.parts.clone();
    let offsets: Vec<u64> = whole.keys().copied().collect();
    let mut found = 0;
    for _ in 0..400 {
        let mut parts = whole.clone();
        let at = offsets[rig.random.below(offsets.len() as u64) as usize];
        let bytes = parts.get_mut(&at).unwrap();
        let kind = if bytes[12] == 1 { PartKind::Map } else { PartKind::ZoneTable };
        let name = PartName {
            kind,
            level: bytes[13],
            index: u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]),
        };
        let old = part::word(bytes, 0);
        let other = offsets[rig.random.below(offsets.len() as u64) as usize];
        let words = [
            0,
            !0,
            old ^ 1,
            old | 1 << 62,
            part::slot_at(other, 0).word(),
            part::slot_at(0, 0).word(),
            rig.random.next_u64(),
            1 << 39 | 8 << 40,
        ];
        for _ in 0..1 + rig.random.below(3) {
            let word = rig.random.below(508).min(rig.random.below(508)).min(rig.random.below(508))
                as usize;
            part::set_word(bytes, word, words[rig.random.below(8) as usize]);
        }
        let checksum = part::encode(bytes, name, root.epoch);
        // The parent's word follows, one level up; roots by the superblock.
        let mut root = root;
        let new = part::slot_at(at, checksum);
        if root.map.slot.offset_bytes() == at {
            (root.map.slot, root.map.checksum) = (new, checksum);
        } else if root.table.slot.offset_bytes() == at {
            (root.table.slot, root.table.checksum) = (new, checksum);
        }
        let view =
            MapView { root: root.map, checkpoint: root.epoch, geometry, units: rig.file_units };
        let mut pages = 0;
        let walked = view.for_each_part(&mut Reader(&parts), &mut |_, _, _, _| {
            pages += 1;
            assert!(pages <= 10_000, "a walk in circles");
            Ok(())
        });
        let looked = view.leaf(
            rig.random.below(1 << 20) as u32,
            &mut Reader(&parts),
            &mut part::new_bytes(),
        );
        let beyond = view.parts_beyond(rig.random.below(1 << 24), 100, &mut Reader(&parts));
        let mut read = |slot: Slot, out: &mut PartBytes| Reader(&parts).read(slot, out);
        let opened = Zones::open(
            geometry,
            &root.table,
            root.epoch,
            geometry.zone_offset(rig.file_zones()),
            &mut read,
        );
        let loaded = opened.and_then(|mut zones| {
            for wanted in zones.groups_to_load() {
                let mut bytes = part::new_bytes();
                Reader(&parts).read(wanted.slot, &mut bytes)?;
                zones.load_group(wanted, &bytes)?;
            }
            // Allocation on bitmaps that lie ends as well.
            let mut out = Vec::new();
            let _ = zones.allocate(512, 100, Growth::Refused, &mut out);
            zones.verify()
        });
        let errors = [walked.err(), looked.err(), beyond.err(), loaded.err()];
        for error in errors.into_iter().flatten() {
            found += 1;
            assert!(matches!(error.kind(), ErrorKind::Corrupted { .. }), "{error:?}");
        }
    }
    assert!(found > 100, "{found} defects found");
}

/// A table three levels high: hundreds of groups, filled, emptied from the end, read again.
#[test]
fn the_table_gets_higher_and_lower_with_the_file() {
    let geometry = Geometry::from_sizes(512, 512, 8 << 20).unwrap();
    assert_eq!(geometry.zones_per_group(), 1);
    let long = 64 << 10;
    let mut zones = Zones::create(geometry);
    zones.grown_to(600);
    let mut offsets = Vec::new();
    zones.allocate(long, 600 * 128, Growth::Refused, &mut offsets).unwrap();
    assert_eq!(zones.allocate(long, 1, Growth::Refused, &mut Vec::new()), Err(Want::Full));
    let slot = |offset: u64| Slot::new(offset, u64::from(long), 0).unwrap();
    offsets.sort();
    // Make room for parts.
    for offset in offsets.drain(..256) {
        zones.give_back(offset, long);
    }
    let mut parts = BTreeMap::new();
    let mut root = TableRoot::EMPTY;
    for (epoch, keep, levels) in [(1, offsets.len(), 3), (2, 198 * 128, 2), (3, 0, 0)] {
        let epoch = Epoch(epoch);
        zones.begin_checkpoint(epoch);
        if epoch == Epoch(1) {
            offsets.iter().for_each(|&offset| zones.refer(slot(offset)).unwrap());
        }
        for offset in offsets.drain(keep..) {
            zones.unrefer(slot(offset)).unwrap();
            zones.supersede(slot(offset), Epoch(1), epoch).unwrap();
        }
        let mut places = Vec::new();
        let count = zones.plan_table();
        zones.allocate(PART_BYTES as u32, count, Growth::Refused, &mut places).unwrap();
        zones.place_table(&places);
        let mut bytes = part::new_bytes();
        while let Some(offset) = zones.next_table_part(&mut bytes) {
            parts.insert(offset, bytes.clone());
        }
        root = zones.table_root(&root);
        zones.checkpoint_durable().unwrap();
        while zones.free_ripe(7) {}
        zones.verify().unwrap();
        assert_eq!(root.levels, levels);
        assert_eq!(root.used_units, keep as u64 * 128);
        let mut read = |slot: Slot, out: &mut PartBytes| Reader(&parts).read(slot, out);
        let file_bytes = geometry.zone_offset(600);
        let mut again = Zones::open(geometry, &root, epoch, file_bytes, &mut read).unwrap();
        assert_eq!(again.report().used_bytes, zones.report().used_bytes);
        for wanted in again.groups_to_load() {
            again.load_group(wanted, &parts[&wanted.slot.offset_bytes()]).unwrap();
        }
        again.verify().unwrap();
        let kept: BTreeSet<u64> = offsets.iter().copied().collect();
        let mut fresh = Vec::new();
        while let Want::Fill(fill) = again.want_room(Growth::Allowed, 1) {
            again.filled(fill.zone, true);
        }
        while again.allocate(long, 1, Growth::Refused, &mut fresh).is_ok() {}
        assert!(fresh.iter().all(|offset| !kept.contains(offset)));
        assert!(again.report().free_bytes < zones.report().free_bytes / 100, "all room is found");
    }
    assert_eq!(zones.report().used_bytes, 0);
}

/// Each group is half free: who needs room first reads one of them, not all.
#[test]
fn who_comes_first_reads_one_group_to_have_room() {
    let geometry = Geometry::from_sizes(512, 512, 8 << 20).unwrap();
    let (long, count) = (64 << 10, 40);
    let mut zones = Zones::create(geometry);
    zones.grown_to(count);
    let mut offsets = Vec::new();
    zones.allocate(long, count as usize * 128, Growth::Refused, &mut offsets).unwrap();
    zones.begin_checkpoint(Epoch(1));
    for (place, &offset) in offsets.iter().enumerate() {
        match place % 2 {
            0 => zones.refer(Slot::new(offset, u64::from(long), 0).unwrap()).unwrap(),
            _ => zones.give_back(offset, long),
        }
    }
    let mut places = Vec::new();
    let parts_wanted = zones.plan_table();
    zones.allocate(PART_BYTES as u32, parts_wanted, Growth::Refused, &mut places).unwrap();
    zones.place_table(&places);
    let (mut parts, mut bytes) = (BTreeMap::new(), part::new_bytes());
    while let Some(offset) = zones.next_table_part(&mut bytes) {
        parts.insert(offset, bytes.clone());
    }
    let root = zones.table_root(&TableRoot::EMPTY);
    let mut read = |slot: Slot, out: &mut PartBytes| Reader(&parts).read(slot, out);
    let file_bytes = geometry.zone_offset(count);
    let mut again = Zones::open(geometry, &root, Epoch(1), file_bytes, &mut read).unwrap();
    let Want::Load(first) = again.want_room(Growth::Allowed, 1) else { panic!("room unread") };
    again.load_group(first, &parts[&first.slot.offset_bytes()]).unwrap();
    assert!(matches!(again.want_room(Growth::Allowed, 1), Want::Fill(_)));
}

#[test]
fn slots_far_out_in_the_file_are_handed_out_and_come_back() {
    for (page, unit, zone) in [(4096, 4096_u64, 2 << 20), (65536, 4096, 16 << 20)] {
        let geometry = Geometry::from_sizes(page, unit as u32, zone).unwrap();
        for far in [4_u64 << 30, 1 << 31, unit << 31, unit << 32] {
            let count = geometry.zones_of_units(geometry.units_in(far) + 1) - 1;
            // A file of which everything but the last zones was never referred to: no bitmaps yet.
            let root = TableRoot::EMPTY;
            let bytes = geometry.zone_offset(count);
            let mut zones =
                Zones::open(geometry, &root, Epoch(1), bytes, &mut |_, _| Ok(())).unwrap();
            let wanted = Slot::new(geometry.zone_offset(count - 1), u64::from(page), 1).unwrap();
            assert_eq!(zones.group_to_load(wanted).unwrap(), None);
            zones.begin_checkpoint(Epoch(2));
            zones.refer(wanted).unwrap();
            assert!(zones.refer(wanted).is_err(), "twice");
            let (group, _) = geometry.split_zone(count - 1);
            let levels = 2 + usize::from(group >= 254) + usize::from(group >= 254 * 254);
            assert_eq!(zones.plan_table(), levels, "one part a level");
            zones.abort_checkpoint();
            let last = geometry.zone_offset(count - 1);
            let unit = geometry.unit_at(last).unwrap();
            assert_eq!(geometry.unit_offset(unit), last);
            let report = zones.report();
            assert_eq!(report.file_bytes, bytes);
            assert_eq!(report.free_bytes + HEADER_REGION_BYTES, bytes);
            assert!(
                report.memory_bytes as u64 <= bytes / 1000,
                "{} of {bytes}",
                report.memory_bytes
            );
            let beyond = Slot::new(bytes, u64::from(page), 1);
            assert!(beyond.is_none_or(|slot| zones.supersede(slot, Epoch(1), Epoch(2)).is_err()));
        }
    }
}

/// Takes a checkpoint of `zones` alone, its parts at `places`, or where the allocator likes.
pub(super) fn table_checkpoint(
    zones: &mut Zones,
    epoch: Epoch,
    before: TableRoot,
    parts: &mut BTreeMap<u64, Box<PartBytes>>,
    places: Option<Vec<u64>>,
    change: impl FnOnce(&mut Zones),
) -> TableRoot {
    zones.begin_checkpoint(epoch);
    change(zones);
    let count = zones.plan_table();
    let places = places.unwrap_or_else(|| {
        let mut places = Vec::new();
        let len = PART_BYTES as u32;
        while let Err(want) = zones.allocate(len, count, Growth::Refused, &mut places) {
            let Want::Fill(fill) = want else { panic!("{want:?}") };
            zones.filled(fill.zone, true);
        }
        places
    });
    zones.place_table(&places);
    let mut bytes = part::new_bytes();
    while let Some(offset) = zones.next_table_part(&mut bytes) {
        parts.insert(offset, bytes.clone());
    }
    let root = zones.table_root(&before);
    zones.checkpoint_durable().unwrap();
    while zones.free_ripe(7) {}
    root
}

/// Three zones of a group each, full but for the last kilobytes of each; every image of `long` bytes.
pub(super) fn three_full_groups() -> (Geometry, Zones, Vec<Slot>) {
    let geometry = Geometry::from_sizes(512, 512, 8 << 20).unwrap();
    let long = 64 << 10;
    let mut zones = Zones::create(geometry);
    zones.grown_to(3);
    let mut offsets = Vec::new();
    zones.allocate(long, 3 * 128, Growth::Refused, &mut offsets).unwrap();
    offsets.sort();
    let slot = |&offset: &u64| Slot::new(offset, u64::from(long), 0).unwrap();
    (geometry, zones, offsets.iter().map(slot).collect())
}

#[test]
fn what_is_in_quarantine_is_held_when_its_group_is_loaded_later() {
    let (geometry, mut zones, slots) = three_full_groups();
    // All of the table's parts lie in the middle group, in what was its first image's place.
    let place = slots[128];
    zones.give_back(place.offset_bytes(), place.len_bytes() as u32);
    let mut parts = BTreeMap::new();
    let places: Vec<u64> = (0..4).map(|i| place.offset_bytes() + i * 4096).collect();
    let mut taken = Vec::new();
    zones.allocate(PART_BYTES as u32, 4, Growth::Refused, &mut taken).unwrap();
    assert_eq!(taken, places);
    let root =
        table_checkpoint(&mut zones, Epoch(1), TableRoot::EMPTY, &mut parts, Some(places), |z| {
            slots.iter().filter(|&&slot| slot != place).for_each(|&slot| z.refer(slot).unwrap());
        });
    let bytes = geometry.zone_offset(3);
    let mut read = |slot: Slot, out: &mut PartBytes| Reader(&parts).read(slot, out);
    let mut zones = Zones::open(geometry, &root, Epoch(1), bytes, &mut read).unwrap();
    zones.pin();
    let first = zones.group_to_load(slots[0]).unwrap().unwrap();
    zones.load_group(first, &parts[&first.slot.offset_bytes()]).unwrap();
    // Checkpoint 1 frees some room in the first group, for the parts of checkpoint 2.
    zones.supersede(slots[0], Epoch(2), Epoch(2)).unwrap();
    let root = table_checkpoint(&mut zones, Epoch(2), root, &mut parts, None, |z| {
        z.unrefer(slots[0]).unwrap();
    });
    assert!(root.slot.offset_bytes() < geometry.zone_offset(1));
    let quarantined = zones.report().quarantined_bytes;
    assert_eq!(quarantined, 2 * 4096, "a leaf and the root, which the pin needs");
    for wanted in zones.groups_to_load() {
        zones.load_group(wanted, &parts[&wanted.slot.offset_bytes()]).unwrap();
    }
    zones.verify().unwrap();
    zones.unpin(Epoch(1)).unwrap();
    zones.verify().unwrap();
    while zones.free_ripe(1) {}
    zones.verify().unwrap();
    assert_eq!(zones.report().quarantined_bytes, 0);
}

#[test]
fn a_table_beyond_the_ceiling_moves_though_nothing_else_changed() {
    let (geometry, mut zones, slots) = three_full_groups();
    let mut parts = BTreeMap::new();
    // One image stays, in the first zone; the table lies in the last.
    let (stays, place) = (slots[0], slots[300].offset_bytes());
    for slot in &slots[1..] {
        zones.give_back(slot.offset_bytes(), slot.len_bytes() as u32);
    }
    let mut taken = Vec::new();
    while taken.last().is_none_or(|&at| at >= geometry.zone_offset(1)) {
        zones.allocate(PART_BYTES as u32, 1, Growth::Refused, &mut taken).unwrap();
    }
    // The leaf low, the root far out: only the root has to move.
    let far = taken.iter().position(|&at| at >= place).unwrap();
    let places = vec![taken.pop().unwrap(), taken.remove(far)];
    taken.into_iter().for_each(|at| zones.give_back(at, PART_BYTES as u32));
    let refer = |z: &mut Zones| z.refer(stays).unwrap();
    let root =
        table_checkpoint(&mut zones, Epoch(1), TableRoot::EMPTY, &mut parts, Some(places), refer);
    assert_eq!(geometry.zones_of_units(root.units), 3);
    let tail = zones.tail_zones_to_clean(u64::MAX, 0);
    assert_eq!(tail.iter().map(|zone| zone.zone).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(zones.groups_to_move(), []);
    let root = table_checkpoint(&mut zones, Epoch(2), root, &mut parts, None, |_| ());
    assert_eq!(geometry.zones_of_units(root.units), 1);
    assert_eq!(zones.cut(0), Some(1));
    zones.end_truncate(true);
    zones.verify().unwrap();
    assert_eq!(zones.zone_count(), 1);
}

/// Writers were let in for the room in a last zone that is there in part. An opening after a crash finds it, too: else the
/// replay of what they did may be refused on a full disk.
#[test]
fn a_last_zone_that_is_there_in_part_counts_as_room_after_a_crash() {
    let geometry = Geometry::from_sizes(4096, 4096, 64 << 10).unwrap();
    let (bytes, per_zone) = (geometry.zone_offset(2) + (5 << 12), geometry.units_per_zone());
    let mut zones =
        Zones::open(geometry, &TableRoot::EMPTY, Epoch(1), bytes, &mut |_, _| Ok(())).unwrap();
    let room = zones.room();
    let mut filled = Vec::new();
    while let Want::Fill(fill) = zones.want_room(Growth::Refused, 1) {
        filled.push((fill.zone, fill.len_bytes));
        zones.filled(fill.zone, true);
    }
    filled.sort_unstable();
    assert_eq!(filled, [(0, 64 << 10), (1, 64 << 10), (2, 5 << 12)]);
    assert_eq!(room.load(Ordering::Relaxed), 2 * u64::from(per_zone) + 5);
    zones.verify().unwrap();
}

/// An earlier session may have punched free zones; which, nobody knows before it tries.
#[test]
fn a_hole_that_cannot_be_filled_does_not_hide_zones_that_have_blocks() {
    let geometry = Geometry::from_sizes(4096, 4096, 64 << 10).unwrap();
    let bytes = geometry.zone_offset(4);
    let open =
        || Zones::open(geometry, &TableRoot::EMPTY, Epoch(1), bytes, &mut |_, _| Ok(())).unwrap();
    let is_hole = |zone: u32| zone < 2;
    let (mut zones, mut growth, mut out) = (open(), Growth::Allowed, Vec::new());
    while let Err(want) = zones.allocate(4096, 1, growth, &mut out) {
        match want {
            Want::Fill(fill) => {
                zones.filled(fill.zone, !is_hole(fill.zone));
                growth = if fill.is_hole { Growth::Refused } else { growth };
            }
            Want::Grow { .. } => {
                zones.growth_failed();
                growth = Growth::Refused;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(out, [geometry.zone_offset(2)]);
    // And so for room that is made ahead.
    let mut zones = open();
    while let Want::Fill(fill) = zones.want_room(Growth::Refused, 1) {
        assert!(!fill.is_hole);
        zones.filled(fill.zone, !is_hole(fill.zone));
    }
    let room = zones.room();
    let per_zone = u64::from(geometry.units_per_zone());
    assert_eq!(room.load(Ordering::Relaxed), 2 * per_zone);
    // What was let in keeps its room: neither cut off nor punched.
    assert_eq!(zones.begin_punch(0, per_zone + 1), None);
    assert_eq!(zones.cut(per_zone + 1), None);
    assert_eq!(zones.cut(per_zone), Some(3));
    zones.end_truncate(true);
    assert_eq!(room.load(Ordering::Relaxed), per_zone);
    zones.verify().unwrap();
}

#[test]
fn a_file_of_which_most_was_freed_shrinks_to_what_is_left() {
    let geometry = Geometry::from_sizes(4096, 4096, 64 << 10).unwrap();
    // A few pages left all through the file and many at its end; half of it left, and few at its end.
    type Keep = fn(usize) -> bool;
    let cases: [(Keep, usize, u32); 2] = [
        (|i| i % 100 == 99 || i >= 600, 46, 5),
        (|i| i % if i < 600 { 2 } else { 8 } == 0, 305, 28),
    ];
    for (keep, left, zones) in cases {
        let mut rig = Rig::new(geometry, 1, 1000);
        for _ in 0..40 {
            for offset in rig.allocate(4096, 16).unwrap() {
                let id = rig.new_id();
                rig.write_page(id, offset);
            }
        }
        rig.checkpoint(None, None).unwrap();
        let ids: Vec<PageId> = rig.live.keys().copied().collect();
        for (_, id) in ids.into_iter().enumerate().filter(|&(i, _)| !keep(i)) {
            rig.free_page(id);
        }
        rig.checkpoint(None, None).unwrap();
        rig.check();
        assert!(rig.file_zones() >= 40);
        let mut rounds = 0;
        while rig.file_zones() > zones {
            rig.shrink();
            rig.check();
            rounds += 1;
            assert!(rounds < 20, "{} zones after {rounds} rounds", rig.file_zones());
        }
        assert_eq!(rig.live.len(), left);
    }
}

#[test]
fn a_file_with_one_gap_in_each_zone_shrinks_into_the_gaps() {
    let geometry = Geometry::from_sizes(4096, 4096, 128 << 10).unwrap();
    let mut rig = Rig::new(geometry, 1, 1000);
    for offset in rig.allocate(4096, 100 * 32).unwrap() {
        let id = rig.new_id();
        rig.write_page(id, offset);
    }
    rig.checkpoint(None, None).unwrap();
    // A gap is a thirty-second of its zone: too little to be worth filling while the file may grow.
    let gaps = rig.live.iter().filter(|(_, (slot, _))| {
        geometry.split_unit(geometry.unit_at(slot.offset_bytes()).unwrap()).1 == 7
    });
    let gaps: Vec<PageId> = gaps.map(|(&id, _)| id).collect();
    assert_eq!(gaps.len(), 100);
    gaps.into_iter().for_each(|id| rig.free_page(id));
    rig.checkpoint(None, None).unwrap();
    rig.check();
    let before = rig.file_zones();
    // What is held back stays: 100 units are free, and a zone that moves takes 31 of them.
    let reserve = 50 * 4096;
    let tail = rig.zones.tail_zones_to_clean(u64::MAX, reserve);
    assert!((1..=2).contains(&tail.len()), "{tail:?}");
    assert!(rig.zones.ceiling_bytes().is_some());
    rig.zones.stop_shrinking();
    assert_eq!(rig.zones.ceiling_bytes(), None);
    assert_eq!(rig.zones.tail_zones_to_clean(u64::MAX, 100 * 4096), []);
    assert_eq!(rig.zones.ceiling_bytes(), None);
    for _ in 0..3 {
        rig.shrink();
        rig.check();
    }
    assert!(rig.file_zones() < before, "{before} -> {} zones", rig.file_zones());
    rig.zones.stop_shrinking();
    let zones = rig.file_zones();
    rig.allocate(4096, 1).unwrap();
    assert_eq!(rig.file_zones(), zones + 1, "a gap alone in its zone is not worth a write");
}

#[test]
fn no_group_beyond_the_ceiling_is_loaded_for_its_room() {
    let geometry = Geometry::from_sizes(512, 512, 16 << 10).unwrap();
    let per_group = geometry.zones_per_group();
    assert!(per_group > 2);
    let bytes = geometry.zone_offset(2 * per_group + 1);
    let mut zones =
        Zones::open(geometry, &TableRoot::EMPTY, Epoch(1), bytes, &mut |_, _| Ok(())).unwrap();
    let group = |zones: &Zones| zones.group_with_room(0).map(|wanted| wanted.group);
    assert_eq!(group(&zones), Some(0), "the first of two that are as free");
    let first = Slot::new(geometry.zone_offset(0), 512, 0).unwrap();
    assert_eq!(zones.group_to_load(first).unwrap(), None);
    assert_eq!(group(&zones), Some(1));
    for (ceiling, found) in [(1, None), (per_group, None), (per_group + 1, Some(1))] {
        zones.ceiling = Some(ceiling);
        assert_eq!(group(&zones), found, "{ceiling}");
    }
}

#[test]
fn the_map_grows_at_its_root_over_what_did_not_change() {
    let geometry = Geometry::from_sizes(512, 512, 16 << 10).unwrap();
    for far in [[600, 512 * 508 + 4], [512 * 508 + 4, 512 * 508 * 508 + 4], [4, u32::MAX]] {
        let mut rig = Rig::new(geometry, 1, 100);
        for id in [4].into_iter().chain(far) {
            let offset = rig.allocate(512, 1).unwrap()[0];
            rig.write_page(PageId(id), offset);
            rig.checkpoint(None, None).unwrap();
            rig.check();
            let root = rig.durable.root;
            let (view, mut bytes) = (rig.view(&root), part::new_bytes());
            for &id in rig.live.keys() {
                let mut io = Reader(&rig.parts);
                assert!(view.leaf(id.part() as u32, &mut io, &mut bytes).unwrap(), "{id}");
                let slot = Slot::from_word(part::word(&bytes, id.word() - 4));
                assert_eq!(slot, rig.live[&id].0);
            }
            let mut io = Reader(&rig.parts);
            let missing = view.leaf(77, &mut io, &mut bytes).unwrap();
            assert!(!missing && part::is_blank(&bytes));
        }
    }
}

#[test]
fn bits_beyond_a_zone_or_the_file_are_damage_even_under_a_right_count() {
    let geometry = Geometry::from_sizes(512, 512, 16 << 10).unwrap();
    let mut rig = Rig::new(geometry, 1, 100);
    let offset = rig.allocate(512, 1).unwrap()[0];
    rig.write_page(PageId(4), offset);
    rig.checkpoint(None, None).unwrap();
    let root = rig.durable.root.table;
    let epoch = rig.durable.root.epoch;
    let leaf_at = part::word(&rig.parts[&root.slot.offset_bytes()], 0);
    let leaf_at = Slot::from_word(leaf_at).offset_bytes();
    // A zone has 32 units, so its word has 32 bits to spare; zones follow word by word.
    for (word, bit, sound) in [(0, 31, true), (0, 32, false), (0, 63, false), (400, 0, false)] {
        let mut parts = rig.parts.clone();
        let leaf = parts.get_mut(&leaf_at).unwrap();
        let first = part::word(leaf, 0);
        part::set_word(leaf, 0, first & (first - 1));
        let others = part::word(leaf, word);
        part::set_word(leaf, word, others | 1 << bit);
        let name = PartName { kind: PartKind::ZoneTable, level: 0, index: 0 };
        let checksum = part::encode(leaf, name, epoch);
        let top = parts.get_mut(&root.slot.offset_bytes()).unwrap();
        part::set_word(top, 0, part::slot_at(leaf_at, checksum).word());
        let zones_up_to = part::word(top, 1) >> 32;
        let count = part::word(top, 1) as u32;
        let up_to = zones_up_to.max(word as u64 + 1).min(u64::from(rig.file_zones()));
        part::set_word(top, 1, u64::from(count) | up_to << 32);
        let checksum = part::encode(top, PartName { level: 1, ..name }, epoch);
        let slot = part::slot_at(root.slot.offset_bytes(), checksum);
        let root = TableRoot { slot, checksum, ..root };
        let bytes = geometry.zone_offset(rig.file_zones());
        let mut read = |slot: Slot, out: &mut PartBytes| Reader(&parts).read(slot, out);
        let mut zones = Zones::open(geometry, &root, epoch, bytes, &mut read).unwrap();
        for wanted in zones.groups_to_load() {
            let loaded = zones.load_group(wanted, &parts[&wanted.slot.offset_bytes()]);
            assert_eq!(loaded.is_ok(), sound, "bit {bit} of word {word}");
        }
    }
}

#[test]
fn parts_of_the_map_that_lie_far_out_are_found_at_every_level() {
    let geometry = Geometry::from_sizes(512, 512, 16 << 10).unwrap();
    let mut rig = Rig::new(geometry, 1, 100);
    let leaves = [0, 1, 600];
    for leaf in leaves {
        let offset = rig.allocate(512, 1).unwrap()[0];
        rig.write_page(PageId(leaf * 512 + 4), offset);
    }
    rig.checkpoint(None, None).unwrap();
    let root = rig.durable.root;
    assert_eq!(root.map.levels, 3);
    let mut places = Vec::new();
    let view = rig.view(&root);
    view.for_each_part(&mut Reader(&rig.parts), &mut |level, index, slot, _| {
        places.push((slot.offset_bytes(), level, index));
        Ok(())
    })
    .unwrap();
    places.sort();
    let beyond = |offset, most| view.parts_beyond(offset, most, &mut Reader(&rig.parts)).unwrap();
    assert_eq!(beyond(0, 10), leaves);
    assert_eq!(beyond(0, 2), leaves[..2]);
    assert_eq!(beyond(u64::MAX, 10), []);
    for &(offset, ..) in &places {
        for most in 0..4 {
            let found = beyond(offset, 10);
            assert_eq!(beyond(offset, most), found[..most.min(found.len())], "{most} at a time");
        }
        // Rewriting a leaf rewrites all above it; each part beyond must be on the way to one.
        let found = beyond(offset, 10);
        for &(at, level, index) in places.iter().filter(|place| place.0 >= offset) {
            let on_the_way = |&leaf: &u32| leaf / FANOUT.pow(u32::from(level)) == index;
            assert!(found.iter().any(on_the_way), "part {index} of level {level} at {at}");
        }
    }
    let (last, level, _) = *places.last().unwrap();
    assert_eq!(level, 2, "the root is written last");
    rig.checkpoint(None, Some(last)).unwrap();
    rig.check();
    assert_ne!(rig.durable.root.map.slot.offset_bytes(), last);
}
