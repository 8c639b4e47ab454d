//! Files that lie: words of parts and roots that cannot be, under checksums that are right up to the root.

use super::extremes::{Reader, table_checkpoint};
use super::*;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;

/// A way to forge something, or to disturb it, and what the error must say.
pub(super) type Case<T> = (&'static str, fn(&mut T));
pub(super) type Parts = BTreeMap<u64, Box<PartBytes>>;

fn name_of(bytes: &PartBytes) -> PartName {
    let kind = if bytes[12] == 1 { PartKind::Map } else { PartKind::ZoneTable };
    let index = u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]);
    PartName { kind, level: bytes[13], index }
}

/// Makes the part at `at` whole again, every part on the way to its root, and the root.
fn reseal(parts: &mut Parts, root: &mut Root, mut at: u64) {
    loop {
        let bytes = parts.get_mut(&at).unwrap();
        let name = name_of(bytes);
        let checksum = part::encode(bytes, name, root.epoch);
        let slot = part::slot_at(at, checksum);
        if root.map.slot.offset_bytes() == at {
            (root.map.slot, root.map.checksum) = (slot, checksum);
            return;
        }
        if root.table.slot.offset_bytes() == at {
            (root.table.slot, root.table.checksum) = (slot, checksum);
            return;
        }
        let (fanout, words) = if name.kind == PartKind::Map { (508, 1) } else { (254, 2) };
        let parent = PartName { level: name.level + 1, index: name.index / fanout, ..name };
        let (&above, bytes) = parts.iter_mut().find(|(_, part)| name_of(part) == parent).unwrap();
        part::set_word(bytes, (name.index % fanout) as usize * words, slot.word());
        at = above;
    }
}

pub(super) fn open(geometry: Geometry, root: &Root, zones: u32, parts: &Parts) -> Result<Zones> {
    let mut read = |slot: Slot, out: &mut PartBytes| Reader(parts).read(slot, out);
    Zones::open(geometry, &root.table, root.epoch, geometry.zone_offset(zones), &mut read)
}

pub(super) fn load_all(mut zones: Zones, parts: &Parts) -> Result<Zones> {
    for wanted in zones.groups_to_load() {
        let mut bytes = part::new_bytes();
        Reader(parts).read(wanted.slot, &mut bytes)?;
        zones.load_group(wanted, &bytes)?;
    }
    Ok(zones)
}

#[track_caller]
pub(super) fn assert_damage<T>(answer: Result<T>, words: &str) {
    let error = answer.err().unwrap_or_else(|| panic!("no error, where {words:?} is due"));
    assert!(matches!(error.kind(), ErrorKind::Corrupted { .. }), "{error:?}");
    assert!(error.to_string().contains(words), "{error} instead of {words:?}");
}

/// A checkpoint of a few pages in a file of `zones` zones.
fn small_store(ids: &[u32]) -> Rig {
    let geometry = Geometry::from_sizes(512, 512, 16 << 10).unwrap();
    let mut rig = Rig::new(geometry, 1, 100);
    for &id in ids {
        let offset = rig.allocate(512, 1).unwrap()[0];
        rig.write_page(PageId(id), offset);
    }
    rig.checkpoint(None, None).unwrap();
    rig
}

#[test]
fn a_root_of_the_zone_table_that_cannot_be_opens_no_space() {
    let rig = small_store(&[4, 600]);
    let (whole, zones) = (rig.durable.root, rig.file_zones());
    let at = whole.table.slot.offset_bytes();
    let cases: [Case<TableRoot>; 8] = [
        ("units in use", |root| root.used_units += 1),
        ("units in use", |root| root.used_units = 0),
        ("stale root", |root| root.checksum ^= 1),
        ("no such depth", |root| root.levels = 1),
        ("no such depth", |root| root.levels = part::MAX_LEVELS + 1),
        ("the file ends before byte", |root| root.units = 101 * 64),
        ("lies outside of the zones", |root| root.slot = Slot::new(1 << 30, 4096, 0).unwrap()),
        ("lies outside of the zones", |root| root.slot = Slot::NONE),
    ];
    for (words, forge) in cases {
        let mut root = whole;
        forge(&mut root.table);
        assert_damage(open(rig.geometry, &root, zones, &rig.parts), words);
    }
    let mut short = whole;
    short.table.slot = Slot::new(at, 512, whole.table.checksum).unwrap();
    assert_damage(open(rig.geometry, &short, zones, &rig.parts), "of another length");
    load_all(open(rig.geometry, &whole, zones, &rig.parts).unwrap(), &rig.parts).unwrap();
}

#[test]
fn words_of_the_zone_table_that_cannot_be_open_no_space() {
    let rig = small_store(&[4, 600]);
    let (whole, zones) = (rig.durable.root, rig.file_zones());
    let at = whole.table.slot.offset_bytes();
    let (word, summary) = (part::word(&rig.parts[&at], 0), part::word(&rig.parts[&at], 1));
    let leaf = Slot::from_word(word).offset_bytes();
    let short = Slot::new(leaf, 512, u64::from(Slot::from_word(word).tag()) << 50).unwrap();
    let far = Slot::new(rig.geometry.zone_offset(zones), 4096, 0).unwrap();
    let cut = Slot::new(leaf + 512, 8192, 0).unwrap();
    let (units, per_zone) = (summary & 0xffff_ffff, u64::from(rig.geometry.units_per_zone()));
    let zones_up_to = summary >> 32;
    let in_file = u64::from(zones);
    for (words, forged) in [
        ("a summary that cannot be", [(1, zones_up_to << 32), (2, 0)]),
        ("a summary that cannot be", [(1, 1 << 32 | (per_zone + 1)), (2, 0)]),
        ("a summary that cannot be", [(1, units), (2, 0)]),
        ("a summary that cannot be", [(1, (in_file + 1) << 32 | units), (2, 0)]),
        ("lies outside of the zones", [(0, 0), (1, summary)]),
        ("lies outside of the zones", [(0, far.word()), (1, summary)]),
        ("a word is no slot", [(0, word | 1 << 62), (1, summary)]),
        ("a word is no slot", [(0, word | 1 << 63), (1, summary)]),
        ("of another length", [(0, short.word()), (1, summary)]),
        ("of another length", [(0, cut.word()), (1, summary)]),
        ("a group beyond the file", [(2, word), (3, summary)]),
        ("units in use", [(0, 0), (1, 0)]),
    ] {
        let (mut parts, mut root) = (rig.parts.clone(), whole);
        for (index, value) in forged {
            part::set_word(parts.get_mut(&at).unwrap(), index, value);
        }
        reseal(&mut parts, &mut root, at);
        assert_damage(open(rig.geometry, &root, zones, &parts), words);
    }
    // What only the leaf can tell is found when it is read, and no earlier.
    for (more_units, more_zones) in [(1, 0), (0, 1)] {
        let (mut parts, mut root) = (rig.parts.clone(), whole);
        let lie = (zones_up_to + more_zones) << 32 | (units + more_units);
        part::set_word(parts.get_mut(&at).unwrap(), 1, lie);
        reseal(&mut parts, &mut root, at);
        root.table.used_units += more_units;
        let opened = open(rig.geometry, &root, zones + 1, &parts).unwrap();
        assert_damage(load_all(opened, &parts), "a bitmap that its summary contradicts");
    }
}

/// The report of the space subtracted them from the units of the file, and so did whoever cut it.
#[test]
fn a_zone_table_that_says_that_more_is_in_use_than_the_file_has_opens_no_space() {
    let rig = small_store(&[4, 600]);
    let (mut parts, mut root, zones) = (rig.parts.clone(), rig.durable.root, rig.file_zones());
    let at = root.table.slot.offset_bytes();
    let units = u64::from(zones) * u64::from(rig.geometry.units_per_zone());
    part::set_word(parts.get_mut(&at).unwrap(), 1, u64::from(zones) << 32 | units);
    reseal(&mut parts, &mut root, at);
    root.table.used_units = units;
    assert_damage(open(rig.geometry, &root, zones, &parts), "units in use in a file of");
}

/// A table over 600 groups of one zone each, of which these hold an image in their last unit. Its parts lie in zone 1.
pub(super) fn sparse_table(groups: &[u32]) -> (Geometry, Root, Parts) {
    let geometry = Geometry::from_sizes(512, 512, 8 << 20).unwrap();
    let bytes = geometry.zone_offset(600);
    let mut zones =
        Zones::open(geometry, &TableRoot::EMPTY, Epoch(1), bytes, &mut |_, _| Ok(())).unwrap();
    let upper: BTreeSet<u32> = groups.iter().map(|group| group / 254).collect();
    let count = groups.len() + upper.len() + 1;
    let first = geometry.zone_offset(1);
    let places = (0..count as u64).map(|i| first + i * PART_BYTES as u64).collect();
    zones.group_to_load(part::slot_at(first, 0)).unwrap();
    let mut parts = Parts::new();
    let table =
        table_checkpoint(&mut zones, Epoch(2), TableRoot::EMPTY, &mut parts, Some(places), |z| {
            for &group in groups {
                let slot = Slot::new(geometry.zone_offset(group + 1) - 512, 512, 0).unwrap();
                assert_eq!(z.group_to_load(slot).unwrap(), None);
                z.refer(slot).unwrap();
            }
        });
    let root = Root { epoch: Epoch(2), map: MapRoot::EMPTY, table, next: None, free_ids: 0 };
    (geometry, root, parts)
}

#[test]
fn a_table_with_gaps_is_read_where_it_has_something() {
    let (geometry, root, parts) = sparse_table(&[3, 550]);
    let last = geometry.zones_of_units(root.table.units);
    assert_eq!((root.table.levels, last), (3, 551));
    let mut reads = Vec::new();
    let mut read = |slot: Slot, out: &mut PartBytes| {
        Reader(&parts).read(slot, out)?;
        reads.push((name_of(out).level, name_of(out).index));
        Ok(())
    };
    let bytes = geometry.zone_offset(600);
    let mut zones = Zones::open(geometry, &root.table, root.epoch, bytes, &mut read).unwrap();
    assert_eq!(reads, [(2, 0), (1, 0), (1, 2)]);
    let wanted: Vec<u32> = zones.groups_to_load().iter().map(|wanted| wanted.group).collect();
    assert_eq!(wanted, [3, 550]);
    let zones = load_all(zones, &parts).unwrap();
    zones.verify().unwrap();
    assert_eq!(zones.report().used_bytes, 2 * 512 + 5 * 4096);
}

#[test]
fn a_checkpoint_writes_the_parts_of_the_table_on_the_way_to_what_changed_and_no_others() {
    let (geometry, root, mut parts) = sparse_table(&[3, 253, 260, 550]);
    let mut zones = load_all(open(geometry, &root, 600, &parts).unwrap(), &parts).unwrap();
    // Nothing changes: nothing is written, and the root is as it was.
    zones.begin_checkpoint(Epoch(3));
    assert_eq!(zones.plan_table(), 0);
    zones.place_table(&[]);
    assert_eq!(zones.table_root(&root.table), root.table);
    zones.checkpoint_durable().unwrap();
    // One group changes.
    let before: BTreeSet<u64> = parts.keys().copied().collect();
    let place = geometry.zone_offset(2);
    let places = (0..3).map(|i| place + i * PART_BYTES as u64).collect();
    let slot = Slot::new(geometry.zone_offset(261) - 1024, 512, 0).unwrap();
    let table = table_checkpoint(&mut zones, Epoch(4), root.table, &mut parts, Some(places), |z| {
        z.refer(slot).unwrap();
    });
    let new = parts.iter().filter(|(at, _)| !before.contains(at));
    let new: Vec<_> = new.map(|(_, part)| (name_of(part).level, name_of(part).index)).collect();
    assert_eq!(new, [(0, 260), (1, 1), (2, 0)]);
    assert_eq!(table.used_units, root.table.used_units + 1);
    let root = Root { epoch: Epoch(4), table, ..root };
    let again = load_all(open(geometry, &root, 600, &parts).unwrap(), &parts).unwrap();
    assert_eq!(again.is_referenced(slot), Some(true));
    again.verify().unwrap();
}

#[test]
fn a_last_group_that_became_empty_is_named_by_no_part() {
    let (geometry, root, mut parts) = sparse_table(&[3, 550, 552]);
    let mut zones = load_all(open(geometry, &root, 600, &parts).unwrap(), &parts).unwrap();
    let slot = Slot::new(geometry.zone_offset(553) - 512, 512, 0).unwrap();
    assert_eq!(zones.is_referenced(slot), Some(true));
    // Of what stays nothing has changed but that the part above had a child more.
    let place = geometry.zone_offset(2);
    let places = (0..2).map(|i| place + i * PART_BYTES as u64).collect();
    let table = table_checkpoint(&mut zones, Epoch(3), root.table, &mut parts, Some(places), |z| {
        z.unrefer(slot).unwrap();
    });
    let last = geometry.zones_of_units(table.units);
    assert_eq!((last, table.used_units), (551, root.table.used_units - 1));
    let root = Root { epoch: Epoch(3), table, ..root };
    let again = load_all(open(geometry, &root, 600, &parts).unwrap(), &parts).unwrap();
    assert_ne!(again.is_referenced(slot), Some(true));
    again.verify().unwrap();
}

#[test]
fn upper_parts_of_the_table_beyond_the_file_or_with_a_summary_are_damage() {
    let (geometry, whole, parts) = sparse_table(&[3, 550]);
    let at = whole.table.slot.offset_bytes();
    let child = part::word(&parts[&at], 0);
    for (words, index, value) in [
        ("a part beyond the file", 2 * 3, child),
        ("a part beyond the file", 2 * 253, child),
        ("an upper part has a summary", 1, 1),
        ("lies outside of the zones", 3, 1),
        // A part of this level, but another one.
        ("checksum mismatch", 2, child),
    ] {
        let (mut parts, mut root) = (parts.clone(), whole);
        part::set_word(parts.get_mut(&at).unwrap(), index, value);
        reseal(&mut parts, &mut root, at);
        assert_damage(open(geometry, &root, 600, &parts), words);
    }
}

/// A crash may have left the file's length without blocks, and a copy may have holes where nothing was written.
#[test]
fn a_zone_that_holds_something_is_filled_before_it_is_written_to() {
    let rig = small_store(&[4, 600]);
    let zones = open(rig.geometry, &rig.durable.root, rig.file_zones(), &rig.parts).unwrap();
    let mut zones = load_all(zones, &rig.parts).unwrap();
    let room = zones.room();
    // Refused: nothing goes there, and nothing is counted, until it is tried again.
    let (mut out, mut refused) = (Vec::new(), 0);
    while let Err(Want::Fill(fill)) = zones.allocate(512, 1, Growth::Refused, &mut out) {
        assert!(!fill.is_hole, "{fill:?}");
        refused += u32::from(!fill.is_free);
        zones.filled(fill.zone, false);
    }
    assert!(refused > 0 && out.is_empty());
    assert_eq!(zones.want_room(Growth::Refused, 1), Want::Full);
    assert_eq!(room.load(Relaxed), 0);
    let asked = zones.allocate(512, 1, Growth::Allowed, &mut out);
    let Err(Want::Fill(fill)) = asked else { panic!("{asked:?}") };
    assert!(fill.is_hole, "{fill:?}");
    zones.filled(fill.zone, true);
    assert!(room.load(Relaxed) > 0);
    assert_eq!(zones.allocate(512, 1, Growth::Refused, &mut out), Ok(()));
    zones.verify().unwrap();
}

#[test]
fn bitmaps_in_memory_are_not_read_again() {
    let rig = small_store(&[4, 600]);
    let mut zones = open(rig.geometry, &rig.durable.root, rig.file_zones(), &rig.parts).unwrap();
    let wanted = zones.groups_to_load()[0];
    let bytes = rig.parts[&wanted.slot.offset_bytes()].clone();
    assert!(zones.is_wanted(wanted));
    zones.load_group(wanted, &bytes).unwrap();
    assert!(!zones.is_wanted(wanted));
    let taken = {
        let mut taken = Vec::new();
        let asked = zones.allocate(512, 1, Growth::Allowed, &mut taken);
        let Err(Want::Fill(fill)) = asked else { panic!("{asked:?}") };
        zones.filled(fill.zone, true);
        let asked = zones.allocate(512, 1, Growth::Allowed, &mut taken);
        assert_eq!(asked, Ok(()));
        taken[0]
    };
    let held = zones.report();
    // The same answer from a slow second reader, and nonsense.
    zones.load_group(wanted, &bytes).unwrap();
    zones.load_group(wanted, &part::new_bytes()).unwrap();
    assert_eq!(zones.report(), held);
    zones.verify().unwrap();
    let mut next = Vec::new();
    zones.allocate(512, 1, Growth::Allowed, &mut next).unwrap();
    assert_ne!(next[0], taken, "what was handed out meanwhile stays held");
}

#[test]
fn a_root_of_the_map_that_cannot_be_is_damage_for_every_reader() {
    let mut rig = small_store(&[4, 600]);
    let whole = rig.durable.root;
    let cases: [Case<MapRoot>; 4] = [
        ("no such root", |root| root.slot = Slot::new(1 << 30, 4096, root.checksum).unwrap()),
        ("no such root", |root| {
            root.slot = Slot::new(root.slot.offset_bytes(), 512, root.checksum).unwrap();
        }),
        ("no such root", |root| root.slot = Slot::NONE),
        ("stale root", |root| root.checksum ^= 1),
    ];
    for (words, forge) in cases {
        let mut root = whole;
        forge(&mut root.map);
        let view = rig.view(&root);
        let io = &mut Reader(&rig.parts);
        let mut bytes = part::new_bytes();
        assert_damage(view.leaf(0, io, &mut bytes), words);
        assert_damage(view.parts_beyond(0, 9, io), words);
        assert_damage(view.for_each_part(io, &mut |_, _, _, _| Ok(())), words);
        // And no checkpoint is built upon it.
        let change = Change::Set(PageId(4), Slot::NONE);
        assert_damage(apply(&view, Epoch(9), [change].into_iter(), io), words);
        let mut found = Vec::new();
        let each = &mut |level, index, _, _: Error| {
            found.push((level, index));
            Ok(())
        };
        view.for_each_sound_part(io, &mut |_, _, _, _| panic!("no part is sound"), each).unwrap();
        assert_eq!(found, [(1, 0)]);
    }
    rig.check();
}

#[test]
fn words_of_the_map_that_are_no_slots_of_this_file_are_damage_at_every_level() {
    let rig = small_store(&[4, 600, 601]);
    let whole = rig.durable.root;
    assert_eq!(whole.map.levels, 2);
    let root_at = whole.map.slot.offset_bytes();
    let leaf = Slot::from_word(part::word(&rig.parts[&root_at], 1));
    let page = Slot::from_word(part::word(&rig.parts[&leaf.offset_bytes()], 600 - 512 - 4));
    let end = rig.geometry.zone_offset(rig.file_zones());
    let length = |slot: Slot, bytes| Slot::new(slot.offset_bytes(), bytes, 0).unwrap().word();
    for (at, index, word) in [
        (leaf.offset_bytes(), 84, page.word() | 1 << 62),
        (leaf.offset_bytes(), 84, page.word() | 1 << 63),
        (leaf.offset_bytes(), 84, length(page, 1024)),
        (leaf.offset_bytes(), 84, Slot::new(end, 512, 0).unwrap().word()),
        (leaf.offset_bytes(), 84, Slot::new(0, 512, 0).unwrap().word()),
        (leaf.offset_bytes(), 507, 1),
        (root_at, 1, leaf.word() | 1 << 62),
        (root_at, 1, length(leaf, 512)),
        (root_at, 1, Slot::new(end, 4096, 0).unwrap().word()),
        (root_at, 1, Slot::new(end - 512, 4096, 0).unwrap().word()),
        (root_at, 507, 1),
    ] {
        let (mut parts, mut root) = (rig.parts.clone(), whole);
        part::set_word(parts.get_mut(&at).unwrap(), index, word);
        reseal(&mut parts, &mut root, at);
        let (view, io, mut bytes) = (rig.view(&root), &mut Reader(&parts), part::new_bytes());
        let words = "is no slot of this file";
        assert_damage(view.leaf(1, io, &mut bytes), words);
        assert_damage(view.for_each_part(io, &mut |_, _, _, _| Ok(())), words);
        let change = Change::Set(PageId(601), Slot::NONE);
        assert_damage(apply(&view, Epoch(9), [change].into_iter(), io), words);
        // What lies beside it can be read all the same.
        if at != root_at {
            assert!(view.leaf(0, io, &mut bytes).unwrap());
        }
    }
    let empty = Root { map: MapRoot::EMPTY, ..whole };
    assert_eq!(rig.view(&empty).parts_beyond(0, 9, &mut Reader(&rig.parts)).unwrap(), []);
}

/// As [`super::extremes::hostile_parts_are_errors_never_panics`], but every parent vouches for what was forged, so that
/// the words themselves are judged at every level.
#[test]
fn forged_words_that_every_parent_vouches_for_are_errors_never_panics() {
    let seed = crate::testing::environment::fresh_seed();
    let geometry = Geometry::from_sizes(512, 512, 4 << 20).unwrap();
    let mut rig = Rig::new(geometry, seed, 12);
    for (i, offset) in (0..).zip(rig.allocate(512, 200).unwrap()) {
        rig.write_page(PageId(i * 512 * 200 + 4 + i % 508), offset);
    }
    rig.checkpoint(None, None).unwrap();
    let whole = rig.durable.root;
    let places: Vec<u64> = rig.parts.keys().copied().collect();
    let (mut in_map, mut in_table) = (0, 0);
    for _ in 0..300 {
        let (mut parts, mut root) = (rig.parts.clone(), whole);
        let table = rig.random.below(2) == 0;
        let of_kind = |at: &&u64| (name_of(&rig.parts[at]).kind == PartKind::ZoneTable) == table;
        let of_kind: Vec<u64> = places.iter().filter(of_kind).copied().collect();
        let at = of_kind[rig.random.below(of_kind.len() as u64) as usize];
        let other = places[rig.random.below(places.len() as u64) as usize];
        let bytes = parts.get_mut(&at).unwrap();
        for _ in 0..1 + rig.random.below(2) {
            let set: Vec<usize> = (0..508).filter(|&i| part::word(bytes, i) != 0).collect();
            let any = rig.random.below(508) as usize;
            let some = set.get(rig.random.below(set.len().max(1) as u64) as usize).copied();
            let index = if rig.random.below(3) == 0 { any } else { some.unwrap_or(any) };
            let old = part::word(bytes, index);
            let word = match rig.random.below(8) {
                0 => 0,
                1 => !0,
                2 => old ^ 1 << rig.random.below(64),
                3 => part::slot_at(other, rig.random.next_u64()).word(),
                4 => old.wrapping_add(1 << 32),
                5 => old.wrapping_add(1),
                6 => rig.random.next_u64(),
                _ => part::word(bytes, (index + 2) % 508),
            };
            part::set_word(bytes, index, word);
        }
        reseal(&mut parts, &mut root, at);
        let judge = |count: &mut u32, error: Option<Error>| {
            if let Some(error) = error {
                assert!(matches!(error.kind(), ErrorKind::Corrupted { .. }), "{error:?}");
                *count += 1;
            }
        };
        let (view, io) = (rig.view(&root), &mut Reader(&parts));
        let mut pages = 0;
        let walked = view.for_each_part(io, &mut |_, _, _, _| {
            pages += 1;
            assert!(pages <= 10_000, "a walk in circles");
            Ok(())
        });
        judge(&mut in_map, walked.err());
        let leaf = rig.random.below(1 << 20) as u32;
        judge(&mut in_map, view.leaf(leaf, io, &mut part::new_bytes()).err());
        judge(&mut in_map, view.parts_beyond(rig.random.below(1 << 24), 100, io).err());
        root.table.used_units = root.table.used_units.wrapping_add(rig.random.below(2));
        let loaded = open(geometry, &root, rig.file_zones(), &parts)
            .and_then(|zones| load_all(zones, &parts))
            .and_then(|mut zones| {
                let mut out = Vec::new();
                let _ = zones.allocate(512, 100, Growth::Refused, &mut out);
                zones.verify()
            });
        judge(&mut in_table, loaded.err());
    }
    assert!(in_map > 50 && in_table > 50, "{in_map} in the map, {in_table} in the table");
}
