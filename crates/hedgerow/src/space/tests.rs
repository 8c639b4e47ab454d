//! The whole of space against a model: a disk of tokens, the rules said again in the plainest words,
//! and random steps. After each step the units held are exactly those that the rules hold back.

mod extremes;
mod forged;
mod images;
mod recount;
mod refused;
#[cfg(not(shuttle))]
mod slots;

use super::map::{Change, MapView, apply};
use super::part::{self, PartName};
use super::*;
use crate::error::{Error, ErrorKind, Result};
use crate::types::{Epoch, PART_BYTES, PageId, Slot};
use hedgerow_sync::primitive::random::SplitMix64;
use std::collections::{BTreeMap, BTreeSet};

/// What a checkpoint's superblock would say.
#[derive(Clone, Copy, Debug)]
struct Root {
    epoch: Epoch,
    map: MapRoot,
    table: TableRoot,
    next: Option<PageId>,
    free_ids: u64,
}

/// What the model knows of a checkpoint: its pages.
#[derive(Clone, Debug)]
struct Kept {
    root: Root,
    pages: BTreeMap<PageId, Slot>,
}

struct Rig {
    geometry: Geometry,
    random: SplitMix64,
    zones: Zones,
    deltas: Deltas,
    ids: PageIds,
    epoch: Epoch,
    /// Parts by offset.
    parts: BTreeMap<u64, Box<PartBytes>>,
    /// Which image was written last to a unit.
    tokens: BTreeMap<u64, u64>,
    next_token: u64,
    live: BTreeMap<PageId, (Slot, Epoch)>,
    token_of: BTreeMap<u64, u64>,
    superseded: Vec<(Slot, Epoch, Epoch)>,
    durable: Kept,
    pinned: Vec<Kept>,
    file_units: u64,
    capacity_zones: u32,
    /// Zones without blocks.
    holes: BTreeSet<u32>,
}

impl Rig {
    fn new(geometry: Geometry, seed: u64, capacity_zones: u32) -> Rig {
        let root = Root {
            epoch: Epoch(0),
            map: MapRoot::EMPTY,
            table: TableRoot::EMPTY,
            next: Some(PageId::CATALOGUE_ROOT),
            free_ids: 0,
        };
        Rig {
            geometry,
            random: SplitMix64::new(seed),
            zones: Zones::create(geometry),
            deltas: Deltas::new(1 << 20),
            ids: PageIds::create(),
            epoch: Epoch(1),
            parts: BTreeMap::new(),
            tokens: BTreeMap::new(),
            next_token: 0,
            live: BTreeMap::new(),
            token_of: BTreeMap::new(),
            superseded: Vec::new(),
            durable: Kept { root, pages: BTreeMap::new() },
            pinned: Vec::new(),
            file_units: 0,
            capacity_zones,
            holes: BTreeSet::new(),
        }
    }

    fn file_zones(&self) -> u32 {
        self.geometry.zones_of_units(self.file_units)
    }

    fn units(&self, slot: Slot) -> std::ops::Range<u64> {
        let (unit, units) = self.geometry.slot_units(slot, u64::MAX).expect("a slot in a zone");
        unit..unit + u64::from(units)
    }

    fn view(&self, root: &Root) -> MapView {
        MapView {
            root: root.map,
            checkpoint: root.epoch,
            geometry: self.geometry,
            units: self.zones.unit_count(),
        }
    }

    fn load(&mut self, wanted: LoadGroup) {
        let bytes = self.parts[&wanted.slot.offset_bytes()].clone();
        self.zones.load_group(wanted, &bytes).expect("the part is whole");
    }

    fn load_for(&mut self, slot: Slot) {
        if let Some(wanted) = self.zones.group_to_load(slot).expect("a slot of this file") {
            self.load(wanted);
        }
    }

    fn allocate(&mut self, len_bytes: u32, count: usize) -> Result<Vec<u64>> {
        let mut growth = Growth::Allowed;
        let mut out = Vec::new();
        loop {
            let before = self.zones.report();
            match self.zones.allocate(len_bytes, count, growth, &mut out) {
                Ok(()) => break,
                Err(want) => {
                    assert!(out.is_empty(), "a refusal hands nothing out");
                    let after = self.zones.report();
                    assert_eq!(before.used_bytes, after.used_bytes, "nor takes anything");
                    match want {
                        Want::Grow { units, least_units } => {
                            assert!(units >= least_units && least_units > self.file_units);
                            let units = if self.random.below(3) == 0 { least_units } else { units };
                            // The last zone never gets whole.
                            let most = self.geometry.units_of_zones(self.capacity_zones) - 3;
                            if units <= most {
                                self.file_units = units;
                                self.zones.grown(units);
                            } else {
                                self.zones.growth_failed();
                                growth = less(growth);
                            }
                        }
                        Want::Fill(fill) => {
                            let done = self.random.below(4) > 0;
                            assert!(!fill.is_hole || self.holes.contains(&fill.zone));
                            self.holes.retain(|&zone| !done || zone != fill.zone);
                            self.holes.extend((!done).then_some(fill.zone));
                            self.zones.filled(fill.zone, done);
                            let go_on = done || !fill.is_hole;
                            growth = if go_on { growth } else { less(growth) };
                        }
                        Want::Load(wanted) => self.load(wanted),
                        Want::Truncating => unreachable!("no truncation is under way"),
                        Want::Full => return Err(Error::new(ErrorKind::DiskFull, "full")),
                    }
                }
            }
        }
        let held = self.expected_held();
        let units = u64::from(self.geometry.units_for(len_bytes));
        let mut fresh = BTreeSet::new();
        for &offset in &out {
            let first = self.geometry.unit_at(offset).expect("on a unit");
            assert!(self.file_units >= first + units);
            let zone = self.geometry.split_unit(first).0;
            assert!(!self.holes.contains(&zone), "zone {zone} has no blocks, and is written");
            for unit in first..first + units {
                assert!(!held.contains(&unit), "unit {unit} is needed and was handed out");
                assert!(fresh.insert(unit), "unit {unit} was handed out twice");
            }
        }
        Ok(out)
    }

    fn write_page(&mut self, id: PageId, offset: u64) {
        self.next_token += 1;
        let token = self.next_token;
        let page = u64::from(self.geometry.page_bytes());
        let slot =
            Slot::new(offset, page, token.wrapping_mul(0x9e37_79b9_7f4a_7c15)).expect("fits");
        for unit in self.units(slot) {
            self.tokens.insert(unit, token);
        }
        self.token_of.insert(slot.word(), token);
        self.deltas.record(self.epoch, id, slot);
        if let Some((old, born)) = self.live.insert(id, (slot, self.epoch)) {
            self.give_up(old, born);
        }
    }

    fn give_up(&mut self, slot: Slot, born: Epoch) {
        self.zones.supersede(slot, born, self.epoch).expect("a slot of this store");
        self.superseded.push((slot, born, self.epoch));
    }

    fn free_page(&mut self, id: PageId) {
        let (slot, born) = self.live.remove(&id).expect("a live page");
        self.deltas.record_freed(self.epoch, id);
        self.ids.free(id);
        self.give_up(slot, born);
    }

    fn new_id(&mut self) -> PageId {
        if let Some(part) = self.ids.wants_scan() {
            let view = self.view(&self.durable.root.clone());
            let mut bytes = part::new_bytes();
            view.leaf(part as u32, &mut Io { rig: self, fail: None }, &mut bytes).expect("whole");
            self.ids.scanned(part, |word| word >= 4 && part::word(&bytes, word - 4) == 0);
        }
        let id = self.ids.allocate().expect("ids enough");
        assert!(!self.live.contains_key(&id), "{id} was given out while in use");
        id
    }

    /// Takes a checkpoint of everything written, with `fail` a failure at that call for the map.
    fn checkpoint(&mut self, fail: Option<u32>, beyond: Option<u64>) -> Result<()> {
        let epoch = self.epoch;
        self.epoch = epoch.next();
        self.zones.begin_checkpoint(epoch);
        let taken = self.deltas.take(epoch);
        let root = self.durable.root;
        let view = self.view(&root);
        let moves = match beyond {
            Some(offset) => {
                view.parts_beyond(offset, 1000, &mut Io { rig: self, fail: None }).expect("whole")
            }
            None => Vec::new(),
        };
        let changes: Vec<Change> =
            taken.changes.iter().map(|(&id, &slot)| Change::Set(id, slot)).collect();
        let changes = changes.into_iter().chain(moves.into_iter().map(Change::Move));
        let written = apply(&view, epoch, changes, &mut Io { rig: self, fail });
        let placed = written.and_then(|map| {
            for wanted in self.zones.groups_to_move() {
                self.load(wanted);
            }
            let count = self.zones.plan_table();
            let offsets = self.allocate(PART_BYTES as u32, count)?;
            self.zones.place_table(&offsets);
            Ok(map)
        });
        let map = match placed {
            Ok(map) => map,
            Err(error) => {
                self.zones.abort_checkpoint();
                self.deltas.put_back(taken);
                while self.zones.free_ripe(7) {}
                self.check();
                return Err(error);
            }
        };
        let mut bytes = part::new_bytes();
        while let Some(offset) = self.zones.next_table_part(&mut bytes) {
            self.write_part(offset, &bytes);
        }
        let table = self.zones.table_root(&root.table);
        let (next, free_ids) = (self.ids.next_id(), self.ids.free_count());
        self.zones.checkpoint_durable().expect("nothing is damaged");
        while self.zones.free_ripe(7) {}
        self.deltas.done(&taken);
        let pages = self.live.iter().map(|(&id, &(slot, _))| (id, slot)).collect();
        self.durable = Kept { root: Root { epoch, map, table, next, free_ids }, pages };
        Ok(())
    }

    fn write_part(&mut self, offset: u64, bytes: &PartBytes) {
        self.next_token += 1;
        for unit in self.units(part::slot_at(offset, 0)) {
            self.tokens.insert(unit, self.next_token);
        }
        self.parts.insert(offset, Box::new(*bytes));
    }

    /// All slots that a checkpoint refers to, out of what is on the disk; checks its pages' tokens.
    fn slots_of(&mut self, kept: &Kept) -> BTreeSet<u64> {
        let mut found = BTreeMap::new();
        let mut slots = Vec::new();
        let view = self.view(&kept.root);
        let mut io = Io { rig: self, fail: None };
        view.for_each_part(&mut io, &mut |level, index, slot, bytes| {
            slots.push(slot);
            for word in 0..508 {
                let child = Slot::from_word(part::word(bytes, word));
                if level == 0 && !child.is_none() {
                    found.insert(PageId(index * 512 + word as u32 + 4), child);
                }
            }
            Ok(())
        })
        .expect("a checkpoint that is needed is whole");
        assert!(found == kept.pages, "checkpoint {:?} maps other pages", kept.root.epoch);
        for slot in kept.pages.values() {
            for unit in self.units(*slot) {
                let token = self.token_of[&slot.word()];
                assert_eq!(self.tokens[&unit], token, "a needed image was overwritten");
            }
        }
        slots.extend(kept.pages.values());
        let mut units: BTreeSet<u64> = slots.iter().flat_map(|&slot| self.units(slot)).collect();
        let mut bits = BTreeSet::new();
        self.walk_table(&kept.root, &mut |group, index, word| {
            let per_zone = u64::from(self.geometry.units_per_zone());
            let words = self.geometry.words_per_zone();
            for bit in (0..64).filter(|bit| word >> bit & 1 != 0) {
                let zone =
                    u64::from(group * self.geometry.zones_per_group()) + (index / words) as u64;
                bits.insert(zone * per_zone + (index % words) as u64 * 64 + bit);
            }
        });
        assert!(bits == units, "the table of checkpoint {:?} has other bits", kept.root.epoch);
        for slot in self.table_slots(&kept.root) {
            units.extend(self.units(slot));
        }
        let end = units.iter().next_back().map_or(0, |&unit| unit + 1);
        assert!(kept.root.table.units >= end, "units that the checkpoint needs");
        assert!(
            kept.root.table.units <= end.next_multiple_of(self.geometry.units_per_zone().into())
        );
        units
    }

    fn table_slots(&self, root: &Root) -> Vec<Slot> {
        let mut slots = Vec::new();
        self.walk(root, &mut |slot, _, _, _| slots.push(slot));
        slots
    }

    fn walk_table(&self, root: &Root, each: &mut dyn FnMut(u32, usize, u64)) {
        self.walk(root, &mut |_, level, index, bytes| {
            if level == 0 {
                (0..508).for_each(|word| each(index, word, part::word(bytes, word)));
            }
        });
    }

    fn walk(&self, root: &Root, each: &mut dyn FnMut(Slot, u8, u32, &PartBytes)) {
        let mut todo = vec![];
        if root.table.levels > 0 {
            todo.push((root.table.slot, root.table.levels - 1, 0));
        }
        while let Some((slot, level, index)) = todo.pop() {
            let bytes = &self.parts[&slot.offset_bytes()];
            let name = PartName { kind: PartKind::ZoneTable, level, index };
            part::decode(bytes, name, slot, root.epoch).expect("a needed part was overwritten");
            each(slot, level, index, bytes);
            for child in (0..254).filter(|_| level > 0) {
                let below = Slot::from_word(part::word(bytes, child as usize * 2));
                if !below.is_none() {
                    todo.push((below, level - 1, index * 254 + child));
                }
            }
        }
    }

    /// What the rules hold back, but for the parts of a checkpoint that is being written.
    fn expected_held(&self) -> BTreeSet<u64> {
        let mut held = BTreeSet::new();
        for &(slot, _) in self.live.values() {
            held.extend(self.units(slot));
        }
        let kept = [&self.durable].into_iter().chain(&self.pinned);
        for kept in kept {
            held.extend(kept.pages.values().flat_map(|&slot| self.units(slot)));
            held.extend(self.table_slots(&kept.root).into_iter().flat_map(|slot| self.units(slot)));
        }
        for &(slot, born, by) in &self.superseded {
            if self.is_needed(born, by) {
                held.extend(self.units(slot));
            }
        }
        held
    }

    /// Whether a checkpoint has an image of that epoch. While one is taken here nobody changes anything.
    fn is_needed(&self, born: Epoch, by: Epoch) -> bool {
        let mut kept = [&self.durable].into_iter().chain(&self.pinned);
        kept.any(|kept| born <= kept.root.epoch && kept.root.epoch < by)
    }

    /// Compares everything with the model.
    fn check(&mut self) {
        let mut superseded = std::mem::take(&mut self.superseded);
        superseded.retain(|&(_, born, by)| self.is_needed(born, by));
        self.superseded = superseded;
        let mut held = self.expected_held();
        for kept in [self.durable.clone()].into_iter().chain(self.pinned.clone()) {
            held.extend(self.slots_of(&kept));
        }
        let unit = u64::from(self.geometry.unit_bytes());
        let report = self.zones.report();
        let found = report.used_bytes + report.quarantined_bytes;
        assert_eq!(found, held.len() as u64 * unit, "held, against what the rules hold back");
        let sum = report.header_bytes + found + report.free_bytes + report.out_bytes;
        assert_eq!(sum, report.file_bytes);
        assert!(report.hole_bytes <= report.free_bytes + report.out_bytes);
        assert_eq!(report.file_bytes, self.geometry.unit_offset(self.file_units));
        let live: BTreeSet<u64> = self.live.values().flat_map(|&(s, _)| self.units(s)).collect();
        assert!(report.used_bytes >= live.len() as u64 * unit);
        self.zones.verify().expect("the bitmaps add up");
    }

    fn pin(&mut self) {
        assert_eq!(self.zones.pin(), self.durable.root.epoch);
        self.pinned.push(self.durable.clone());
    }

    fn unpin(&mut self) {
        if !self.pinned.is_empty() {
            let which = self.random.below(self.pinned.len() as u64) as usize;
            let kept = self.pinned.swap_remove(which);
            self.zones.unpin(kept.root.epoch).expect("it is pinned");
            while self.zones.free_ripe(3) {}
        }
    }

    fn punch(&mut self) {
        if let Some(punch) = self.zones.begin_punch(0, 0) {
            let done = self.random.below(4) > 0;
            let out = self.zones.report().out_bytes;
            assert_eq!(out, punch.len_bytes);
            let held = self.expected_held();
            let first = self.geometry.unit_at(punch.offset_bytes).unwrap();
            let end = first + u64::from(self.geometry.units_per_zone());
            assert!(held.range(first..end).next().is_none(), "a zone in use was punched");
            self.parts.retain(|&at, _| {
                !(punch.offset_bytes..punch.offset_bytes + punch.len_bytes).contains(&at)
            });
            // Allocation goes on while the call runs.
            let ids: Vec<_> = self.live.keys().copied().take(2).collect();
            let page = self.geometry.page_bytes();
            if let Ok(offsets) = self.allocate(page, ids.len()) {
                for (id, offset) in ids.into_iter().zip(offsets) {
                    assert!(
                        !(punch.offset_bytes..punch.offset_bytes + punch.len_bytes)
                            .contains(&offset)
                    );
                    self.write_page(id, offset);
                }
            }
            self.holes.extend(done.then_some(punch.zone));
            self.zones.end_punch(punch.zone, done);
        }
    }

    fn truncate(&mut self) {
        while let Some(wanted) = self.zones.tail_to_load() {
            self.load(wanted);
        }
        let least = [0, 3, u32::MAX][self.random.below(3) as usize];
        let keep = self.random.below(3) * 4;
        if let Some(cut) = self.zones.begin_truncate(0, keep, least) {
            let done = self.random.below(4) > 0;
            let end = cut.units;
            assert!(end < self.file_units && end >= self.durable.root.table.units);
            assert!(self.expected_held().range(end..).next().is_none(), "a zone in use was cut");
            if done {
                self.file_units = end;
                let zones = self.file_zones();
                self.holes.retain(|&zone| zone < zones);
                self.parts.retain(|&at, _| at < cut.file_bytes);
            }
            self.zones.end_truncate(done);
        }
    }

    fn shrink(&mut self) {
        while let Some(wanted) = self.zones.tail_to_load() {
            self.load(wanted);
        }
        let tail = self.zones.tail_zones_to_clean(1 << 30, 0);
        let Some(start) = tail.last().map(|zone| zone.offset_bytes) else { return };
        let far: Vec<PageId> = self
            .live
            .iter()
            .filter(|(_, (slot, _))| slot.offset_bytes() >= start)
            .map(|(&id, _)| id)
            .collect();
        let page = self.geometry.page_bytes();
        for id in far {
            if let Ok(offset) = self.allocate(page, 1) {
                self.write_page(id, offset[0]);
            }
        }
        let _ = self.checkpoint(None, Some(start));
        self.check();
        self.truncate();
    }

    /// A crash: what is left is the newest checkpoint, and a file of any length that holds it.
    fn reopen(&mut self) {
        let root = self.durable.root;
        let file_bytes = self.geometry.unit_offset(self.file_units) + self.random.below(2) * 300;
        let parts = &self.parts;
        let mut reads = 0;
        let mut read = |slot: Slot, out: &mut PartBytes| {
            reads += 1;
            out.copy_from_slice(&parts[&slot.offset_bytes()][..]);
            Ok(())
        };
        let zones = Zones::open(self.geometry, &root.table, root.epoch, file_bytes, &mut read);
        self.zones = zones.expect("the checkpoint is whole");
        let groups = self.file_zones().div_ceil(self.geometry.zones_per_group());
        assert!(reads <= groups.div_ceil(254) + 3, "open reads upper parts only");
        let short = self.geometry.unit_offset(root.table.units).saturating_sub(1);
        let cut = Zones::open(self.geometry, &root.table, root.epoch, short, &mut |_, _| Ok(()));
        if root.table.units > 0 {
            let kind = cut.map(|_| ()).unwrap_err().kind();
            assert!(matches!(kind, ErrorKind::Corrupted { .. }), "{kind:?}");
        }
        self.deltas = Deltas::new(1 << 20);
        self.ids = PageIds::open(root.next, root.free_ids);
        self.pinned.clear();
        self.superseded.clear();
        self.epoch = root.epoch.next();
        let born = root.epoch;
        self.live = self.durable.pages.iter().map(|(&id, &slot)| (id, (slot, born))).collect();
    }

    fn step(&mut self, growing: bool) {
        let page = self.geometry.page_bytes();
        match self.random.below(if growing { 100 } else { 104 }) {
            0..45 => {
                let count = 1 + self.random.below(12) as usize;
                let Ok(offsets) = self.allocate(page, count) else { return };
                for offset in offsets {
                    let old = self.random.below(4) > 0;
                    let from = PageId(self.random.below(4000) as u32);
                    let id = match self.live.range(from..).next() {
                        Some((&id, _)) if old || !growing => id,
                        _ => self.new_id(),
                    };
                    self.write_page(id, offset);
                }
            }
            45..65 => {
                for _ in 0..self.random.below(if growing { 6 } else { 40 }) {
                    let from = PageId(self.random.below(4000) as u32);
                    if let Some((&id, _)) = self.live.range(from..).next() {
                        self.free_page(id);
                    }
                }
            }
            65..80 => {
                let fail = (self.random.below(4) == 0).then(|| self.random.below(8) as u32);
                let _ = self.checkpoint(fail, None);
            }
            80..85 => self.pin(),
            85..90 => self.unpin(),
            90..93 => self.punch(),
            93..96 => self.truncate(),
            96..98 => self.shrink(),
            98..100 => self.reopen(),
            _ => {
                let ids: Vec<PageId> = self.live.keys().copied().take(50).collect();
                ids.into_iter().for_each(|id| self.free_page(id));
            }
        }
    }
}

struct Io<'a> {
    rig: &'a mut Rig,
    /// Writes until one fails.
    fail: Option<u32>,
}

impl PartIo for Io<'_> {
    fn read(&mut self, slot: Slot, out: &mut PartBytes) -> Result<()> {
        out.copy_from_slice(&self.rig.parts[&slot.offset_bytes()][..]);
        Ok(())
    }

    fn allocate(&mut self) -> Result<u64> {
        Ok(self.rig.allocate(PART_BYTES as u32, 1)?[0])
    }

    fn write(&mut self, offset_bytes: u64, part: &PartBytes) -> Result<()> {
        match &mut self.fail {
            Some(0) => return Err(Error::new(ErrorKind::Io, "as the test asked")),
            Some(left) => *left -= 1,
            None => {}
        }
        self.rig.write_part(offset_bytes, part);
        Ok(())
    }

    fn entered(&mut self, slot: Slot) -> Result<()> {
        self.rig.load_for(slot);
        self.rig.zones.refer(slot)
    }

    fn left(&mut self, slot: Slot) -> Result<()> {
        self.rig.load_for(slot);
        self.rig.zones.unrefer(slot)
    }

    fn part_entered(&mut self, slot: Slot) -> Result<()> {
        self.rig.load_for(slot);
        self.rig.zones.refer_part(slot)
    }

    fn part_left(&mut self, slot: Slot, born: Epoch) -> Result<()> {
        self.rig.load_for(slot);
        self.rig.zones.unrefer_part(slot, born)
    }
}

/// What is asked next after a refusal.
fn less(growth: Growth) -> Growth {
    if growth == Growth::Allowed { Growth::Least } else { Growth::Refused }
}

/// Growth and truncation by whole zones.
pub(super) trait WholeZones {
    fn grown_to(&mut self, zones: u32);
    /// Zones that are left.
    fn cut(&mut self, keep_slots: u64) -> Option<u32>;
}

impl WholeZones for Zones {
    fn grown_to(&mut self, zones: u32) {
        self.grown(self.geometry().units_of_zones(zones));
    }

    fn cut(&mut self, keep_slots: u64) -> Option<u32> {
        let cut = self.begin_truncate(keep_slots, 0, u32::MAX)?;
        Some(self.geometry().zones_of_units(cut.units))
    }
}

fn random_life(geometry: Geometry, capacity_zones: u32, steps: u32) {
    let seed = crate::testing::environment::fresh_seed();
    println!("{geometry:?}");
    let mut rig = Rig::new(geometry, seed, capacity_zones);
    for step in 0..steps {
        // It fills up, and empties, in turn.
        rig.step(step / 60 % 2 == 0);
        rig.check();
    }
    // Everything comes back.
    while !rig.pinned.is_empty() {
        rig.unpin();
    }
    let ids: Vec<PageId> = rig.live.keys().copied().collect();
    ids.into_iter().for_each(|id| rig.free_page(id));
    rig.checkpoint(None, None).expect("an empty map needs no space");
    rig.check();
    let report = rig.zones.report();
    assert_eq!((report.used_bytes, report.quarantined_bytes), (0, 0), "{report:?}");
    assert_eq!(rig.durable.root.map, MapRoot::EMPTY);
    assert_eq!(rig.durable.root.table, TableRoot::EMPTY);
    while rig.zones.zone_count() > 0 {
        rig.truncate();
    }
    rig.check();
    assert_eq!(rig.zones.report().file_bytes, HEADER_REGION_BYTES);
    // And can be had again.
    for offset in rig.allocate(geometry.page_bytes(), 5).expect("the file grows again") {
        let id = rig.new_id();
        rig.write_page(id, offset);
    }
    rig.check();
}

#[test]
fn a_random_life_with_small_zones() {
    random_life(Geometry::from_sizes(4096, 4096, 64 << 10).unwrap(), 60, 400);
}

#[test]
fn a_random_life_with_pages_smaller_than_parts() {
    random_life(Geometry::from_sizes(512, 512, 16 << 10).unwrap(), 40, 400);
}

#[test]
fn a_random_life_with_pages_larger_than_parts() {
    random_life(Geometry::from_sizes(16384, 4096, 128 << 10).unwrap(), 40, 400);
}

#[test]
fn a_random_life_with_units_larger_than_parts() {
    random_life(Geometry::from_sizes(4096, 8192, 64 << 10).unwrap(), 40, 300);
}

#[test]
fn a_random_life_with_few_zones_a_group() {
    random_life(Geometry::from_sizes(512, 512, 4 << 20).unwrap(), 12, 200);
}
