//! Repair of what no build would have written, and of keyspaces that were coming or going when the store was left: what nobody
//! was told of does not come back, and what has lost its name is there under another.

use super::*;
use crate::checksum::page_checksum;
use crate::page::header;
use crate::space::large::CHUNK_HEADER_BYTES;
use crate::space::part_file::PartFile;
use crate::storage::{DirectIo, File, OpenMode};
use crate::store::labels::with_label;
use crate::store::{PoolTree, RepairReport, log_path};
use crate::tree::Tree;
use crate::types::{PART_WORDS, PageId, TreeId};
use crate::wal::{Promised, Record};
use hedgerow_sync::primitive::Arc;
use std::ops::ControlFlow;

fn repaired_path() -> &'static Path {
    Path::new("/data/repaired.hrow")
}

/// Repairs the store that was left on the disk.
fn repaired(disk: &SimDisk) -> (RepairReport, Store) {
    let go_on = &mut |_| ControlFlow::Continue(());
    let report = crate::store::repair(&options(), disk, path(), repaired_path(), go_on).unwrap();
    let store = Store::open(&options(), disk, repaired_path(), OpenHow::Existing).unwrap();
    assert!(is_clean(&store), "{report:?}");
    (report, store)
}

/// Leaves the store as a crash would, and repairs it.
fn crashed(disk: &SimDisk, store: Store) -> (RepairReport, Store) {
    let left = disk.crash(1);
    drop(store);
    repaired(&left)
}

fn records(store: &Store, name: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let tree = store.open_keyspace(name).unwrap().unwrap_or_else(|| panic!("no {name}"));
    let mut cursor = tree.scan();
    let mut records = Vec::new();
    while let Some((key, value)) = cursor.next_record().unwrap() {
        records.push((key.to_vec(), value.to_vec()));
    }
    records
}

fn one(key: &[u8], value: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    vec![(key.to_vec(), value.to_vec())]
}

/// Gives a keyspace another state, and a record of its own to the catalogue.
fn forge(store: &Store, key: &[u8], state: u8, tree: &PoolTree) {
    let mut record = vec![1, state];
    record.extend_from_slice(&tree.id().0.to_le_bytes());
    record.extend_from_slice(&tree.root().0.to_le_bytes());
    store.shared.catalogue.tree().put(key, &record).unwrap();
}

/// Keyspaces of these names with a record each, of which the checkpoint knows nothing yet.
fn with(options: &StoreOptions, names: &[&str]) -> (SimDisk, Store, Vec<PoolTree>) {
    let disk = SimDisk::new(1);
    let store = open(options, &disk, OpenHow::New).unwrap();
    let create = |name: &&str| {
        let tree = store.create_keyspace(name).unwrap();
        tree.put(b"key", name.as_bytes()).unwrap();
        tree
    };
    let trees = names.iter().map(create).collect();
    (disk, store, trees)
}

fn has_defect(report: &RepairReport, what: &str) -> bool {
    report.defects.iter().any(|defect| defect.contains(what))
}

#[test]
fn a_keyspace_that_is_being_dropped_does_not_come_back() {
    let (disk, store, trees) = with(&options(), &["gulls", "wrens"]);
    forge(&store, b"gulls", 1, &trees[0]);
    store.checkpoint().unwrap();
    let (report, store) = crashed(&disk, store);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(store.keyspaces().unwrap(), ["wrens"]);
    assert_eq!(records(&store, "wrens"), one(b"key", b"wrens"));
}

#[test]
fn a_load_that_was_cut_short_does_not_come_back() {
    let (disk, store, trees) = with(&options(), &["gulls", "terns", "wrens"]);
    // Leaves of a load that the empty root does not refer to yet; of the other keyspace there were records before.
    trees[0].remove(b"key").unwrap();
    for at in [0, 1] {
        store.shared.catalogue.begin_load(["gulls", "terns"][at], &trees[at]).unwrap();
    }
    let leaf: PoolTree = Tree::create(store.pool().clone(), trees[0].id()).unwrap();
    leaf.put(b"loaded", b"half").unwrap();
    store.checkpoint().unwrap();
    let (_, store) = crashed(&disk, store);
    assert_eq!(store.keyspaces().unwrap(), ["gulls", "terns", "wrens"]);
    assert!(records(&store, "gulls").is_empty());
    assert_eq!(records(&store, "terns"), one(b"key", b"terns"));
    assert_eq!(records(&store, "wrens"), one(b"key", b"wrens"));
}

/// Others may put records into a keyspace that is being loaded, and its root may lead to their leaves.
#[test]
fn a_load_that_was_cut_short_does_not_come_back_beside_what_others_have_put() {
    let (disk, store, trees) = with(&options(), &["gulls", "larks", "terns"]);
    let many = (0..200_u32).map(|n| (n.to_be_bytes().to_vec(), vec![7; 100]));
    let many: Vec<(Vec<u8>, Vec<u8>)> = many.collect();
    for tree in &trees {
        tree.remove(b"key").unwrap();
    }
    trees[0].put(b"key", b"gulls").unwrap();
    for tree in &trees[1..] {
        for (key, value) in &many {
            tree.put(key, value).unwrap();
        }
    }
    // Of one only inner nodes and empty leaves are left.
    for (key, _) in &many {
        trees[2].remove(key).unwrap();
    }
    for (name, tree) in ["gulls", "larks", "terns"].iter().zip(&trees) {
        store.shared.catalogue.begin_load(name, tree).unwrap();
        let leaf: PoolTree = Tree::create(store.pool().clone(), tree.id()).unwrap();
        leaf.put(b"loaded", b"half").unwrap();
    }
    store.checkpoint().unwrap();
    let larks = trees[1].root();
    let (left, damaged) = (disk.crash(1), disk.crash(1));
    drop(store);
    let (report, store) = repaired(&left);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(records(&store, "gulls"), one(b"key", b"gulls"));
    assert_eq!(records(&store, "larks"), many);
    assert!(records(&store, "terns").is_empty());
    // Without the root nobody can tell which leaves it led to.
    spoil(&damaged, larks);
    let (report, store) = repaired(&damaged);
    assert_eq!(report.damaged.len(), 1, "{report:?}");
    assert_eq!(records(&store, "larks").len(), many.len() + 1);
    assert_eq!(records(&store, "gulls"), one(b"key", b"gulls"));
}

#[test]
fn a_load_whose_keyspace_was_dropped_does_not_come_back() {
    let (disk, store, _) = with(&options(), &["wrens"]);
    let leaf: PoolTree = Tree::create(store.pool().clone(), TreeId(9)).unwrap();
    leaf.put(b"loaded", b"half").unwrap();
    let key = |tree: u32| [&[0xff][..], &tree.to_be_bytes()].concat();
    forge(&store, &key(9), 2, &leaf);
    store.checkpoint().unwrap();
    let (report, repaired) = crashed(&disk, store);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(repaired.keyspaces().unwrap(), ["wrens"]);
    // A record that cannot be is named, and takes no keyspace with it.
    let (disk, store, trees) = with(&options(), &["wrens"]);
    store.shared.catalogue.tree().put(&key(trees[0].id().0), b"not a record").unwrap();
    store.checkpoint().unwrap();
    let (report, repaired) = crashed(&disk, store);
    assert!(has_defect(&report, "the catalogue's record of keyspace \\xff"), "{report:?}");
    assert_eq!(records(&repaired, "wrens"), one(b"key", b"wrens"));
    // Nor does one that says so of a tree that has a name.
    let (disk, store, trees) = with(&options(), &["wrens"]);
    forge(&store, &key(trees[0].id().0), 2, &trees[0]);
    store.checkpoint().unwrap();
    let (_, repaired) = crashed(&disk, store);
    assert_eq!(records(&repaired, "wrens"), one(b"key", b"wrens"));
}

#[test]
fn a_keyspace_whose_name_is_lost_gets_one_that_nobody_has() {
    let taken = format!("recovered-{}", TreeId::CATALOGUE.0 + 1);
    let (disk, store, trees) = with(&options(), &["gulls", &taken]);
    assert_eq!(taken, format!("recovered-{}", trees[0].id().0));
    store.shared.catalogue.tree().put(b"gulls", b"not a record").unwrap();
    store.checkpoint().unwrap();
    let (report, store) = crashed(&disk, store);
    assert!(has_defect(&report, "the catalogue's record of keyspace gulls is damaged"));
    assert_eq!(records(&store, &taken), one(b"key", taken.as_bytes()));
    assert_eq!(records(&store, &format!("{taken}+")), one(b"key", b"gulls"));
    assert_eq!(store.keyspaces().unwrap().len(), 2);
}

/// Appends records that the engine may not have written there.
fn append(store: &Store, records: &[Record<'_>]) {
    let log = store.log().unwrap();
    for record in records {
        let bytes = record.len_bytes() as u64;
        store.pool().make_log_room(log, bytes, Promised::Freely).unwrap();
        log.append(record);
    }
    store.flush_log().unwrap();
}

/// Spoils the images of a page, wherever they are.
fn spoil(disk: &SimDisk, page: PageId) {
    disk.change_state(|state| {
        let mut bytes = state.contents(path()).unwrap();
        let first = crate::space::HEADER_REGION_BYTES as usize;
        for image in bytes[first..].chunks_exact_mut(512) {
            let checksum = u64::from_le_bytes(image[..8].try_into().unwrap());
            if header::page_id(image) == page && page_checksum(page, image) == checksum {
                image[500] ^= 1;
            }
        }
        state.set_contents(path(), &bytes)
    })
    .unwrap();
}

fn put(tree: TreeId, value: &[u8]) -> Record<'_> {
    Record::Put { tree, key: b"logged", value }
}

#[test]
fn what_the_log_has_of_a_keyspace_that_is_lost_is_there_under_another_name() {
    let (disk, store, trees) = with(&logged(), &["gulls", "wrens"]);
    store.checkpoint().unwrap();
    let gulls = trees[0].id();
    trees[0].put(b"logged", b"1").unwrap();
    // What cannot be a tree of the checkpoint stays out, and so does what the log drops.
    append(&store, &[put(TreeId::CATALOGUE, b"2"), put(TreeId(77), b"3")]);
    let left = disk.crash(1);
    for page in [PageId::CATALOGUE_ROOT, trees[0].root()] {
        spoil(&left, page);
    }
    drop(store);
    let (report, store) = repaired(&left);
    let name = format!("recovered-{}", gulls.0);
    assert!(has_defect(&report, "changes of a keyspace whose name is lost"), "{report:?}");
    assert_eq!(records(&store, &name), one(b"logged", b"1"));
    let other = format!("recovered-{}", trees[1].id().0);
    assert_eq!(records(&store, &other), one(b"key", b"wrens"));
    assert_eq!(store.keyspaces().unwrap().len(), 2);
}

#[test]
fn changes_of_a_keyspace_that_the_log_drops_do_not_bring_it_back() {
    let (disk, store, trees) = with(&logged(), &["gulls", "wrens"]);
    store.checkpoint().unwrap();
    let gulls = trees[0].id();
    let drop_gulls = Record::Drop { tree: gulls, name: b"gulls" };
    append(&store, &[put(gulls, b"1"), drop_gulls, put(gulls, b"2")]);
    let left = disk.crash(1);
    // Something else is lost, so that there may be keyspaces without a name.
    spoil(&left, trees[1].root());
    drop(store);
    let (report, store) = repaired(&left);
    assert!(!report.is_clean());
    assert_eq!(store.keyspaces().unwrap(), ["wrens"]);
}

/// The record of the drop lies before the checkpoint.
#[test]
fn changes_of_a_keyspace_that_was_being_dropped_do_not_bring_it_back() {
    let (disk, store, trees) = with(&logged(), &["gulls", "wrens"]);
    let gulls = trees[0].id();
    forge(&store, b"gulls", 1, &trees[0]);
    store.checkpoint().unwrap();
    append(&store, &[put(gulls, b"1")]);
    let left = disk.crash(1);
    // Something else is lost, so that there may be keyspaces without a name.
    spoil(&left, trees[1].root());
    drop(store);
    let (report, store) = repaired(&left);
    assert_eq!(report.damaged.len(), 1, "{report:?}");
    assert_eq!(store.keyspaces().unwrap(), ["wrens"]);
    assert!(report.defects.is_empty(), "{report:?}");
}

/// The log says what the catalogue does not any more.
#[test]
fn a_rename_or_a_swap_in_the_log_gives_a_name_that_is_lost_back() {
    for is_swap in [true, false] {
        let (disk, store, trees) = with(&logged(), &["gulls", "terns", "wrens"]);
        store.shared.catalogue.tree().put(b"gulls", b"not a record").unwrap();
        store.checkpoint().unwrap();
        let tree = trees[0].id();
        let to: &[u8] = if is_swap { b"terns" } else { b"larks" };
        append(&store, &[Record::Rename { tree, from: b"gulls", to }]);
        let (report, store) = crashed(&disk, store);
        assert_eq!(report.defects.len(), 1, "{report:?}");
        assert!(has_defect(&report, "the catalogue's record of keyspace gulls is damaged"));
        let to = str::from_utf8(to).unwrap();
        assert_eq!(records(&store, to), one(b"key", b"gulls"));
        assert_eq!(records(&store, "wrens"), one(b"key", b"wrens"));
        let terns = if is_swap { "gulls" } else { "terns" };
        assert_eq!(records(&store, terns), one(b"key", b"terns"));
        assert_eq!(store.keyspaces().unwrap().len(), 3);
    }
}

#[test]
fn of_a_sound_store_the_log_brings_no_keyspace_back_that_was_dropped_before_the_checkpoint() {
    let (disk, store, trees) = with(&logged(), &["gulls", "wrens"]);
    store.drop_keyspace("gulls").unwrap();
    store.checkpoint().unwrap();
    let gulls = trees[0].id();
    append(&store, &[put(gulls, b"1"), Record::Create { tree: gulls, name: b"gulls" }]);
    append(&store, &[put(gulls, b"2"), Record::Remove { tree: gulls, key: b"key" }]);
    let (report, store) = crashed(&disk, store);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(store.keyspaces().unwrap(), ["wrens"]);
}

#[test]
fn a_log_that_cannot_be_opened_ends_the_repair_unless_that_is_a_loss() {
    let (disk, store, _) = with(&logged(), &["wrens"]);
    store.checkpoint().unwrap();
    store.keyspace("wrens").unwrap().put(b"key", b"logged").unwrap();
    store.flush_log().unwrap();
    let left = disk.crash(1);
    drop(store);
    // A torn record of the log is a loss: what lies before it is there.
    let bytes = left.state().contents(&log_path(path())).unwrap();
    left.change_state(|state| state.set_contents(&log_path(path()), &bytes[..4096])).unwrap();
    let (report, store) = repaired(&left);
    assert!(has_defect(&report, "changes of the log could be replayed"), "{report:?}");
    assert_eq!(records(&store, "wrens"), one(b"key", b"wrens"));
}

fn put_large(store: &Store, tree: &PoolTree, key: &[u8], value: &[u8]) {
    store.expect_stored_forms();
    let mut writer = store.write_large(value.len() as u64, 200, &crate::Wait::Default).unwrap();
    writer.write(value).unwrap();
    writer.finish().unwrap();
    tree.put(key, &writer.stored_form()).unwrap();
    writer.keep();
}

fn read_large(store: &Store, name: &str, key: &[u8]) -> Option<Vec<u8>> {
    let tree = store.open_keyspace(name).unwrap().unwrap();
    let mut reader = find_large(store, &tree, key)?.expect("it is large");
    let mut bytes = vec![0; reader.len_bytes() as usize];
    let mut done = 0;
    while done < bytes.len() {
        done += reader.read_at(done as u64, &mut bytes[done..]).unwrap();
    }
    Some(bytes)
}

fn file(disk: &SimDisk) -> Arc<dyn File> {
    disk.open(path(), OpenMode::ReadWrite, DirectIo::Never).unwrap()
}

#[test]
fn large_values_of_the_log_are_copied_and_those_that_are_damaged_are_named() {
    let (disk, store, trees) = with(&logged(), &["wrens"]);
    store.checkpoint().unwrap();
    let (song, psalm) = (vec![b's'; 9000], vec![b'p'; 9000]);
    put_large(&store, &trees[0], b"song", &song);
    put_large(&store, &trees[0], b"psalm", &psalm);
    store.flush_log().unwrap();
    let left = disk.crash(1);
    drop(store);
    let bytes = left.state().contents(path()).unwrap();
    let at = bytes.windows(64).position(|part| part == [b'p'; 64]).unwrap();
    file(&left).write_at(at as u64, b"!").unwrap();
    let (report, store) = repaired(&left);
    assert!(has_defect(&report, "the value of key \"psalm\" in keyspace wrens is lost"));
    assert_eq!(report.defects.len(), 1, "{report:?}");
    assert_eq!(read_large(&store, "wrens", b"song"), Some(song));
    assert_eq!(records(&store, "wrens").len(), 2);
}

/// Spoils what is in large values.
fn spoil_values(disk: &SimDisk) {
    disk.change_state(|state| {
        let mut bytes = state.contents(path()).unwrap();
        let chunks = bytes.windows(64).enumerate().filter(|(_, part)| *part == [b'p'; 64]);
        let places: Vec<usize> = chunks.map(|(at, _)| at).step_by(32).collect();
        places.iter().for_each(|at| bytes[*at] = b'!');
        state.set_contents(path(), &bytes)
    })
    .unwrap();
}

#[test]
fn large_values_that_the_log_has_replaced_or_removed_are_not_lost() {
    let keys: [&[u8]; 5] = [b"a put", b"b removed", b"c of a range", b"d lost", b"e put in vain"];
    let (disk, store, trees) = with(&logged(), &["wrens", "terns", "gulls"]);
    for key in keys {
        put_large(&store, &trees[0], key, &[b'p'; 9000]);
    }
    put_large(&store, &trees[1], b"z", &[b'p'; 9000]);
    put_large(&store, &trees[2], b"z", &[b'p'; 9000]);
    store.checkpoint().unwrap();
    let id = |at: usize| trees[at].id();
    append(
        &store,
        &[
            Record::Put { tree: id(0), key: keys[0], value: b"new" },
            Record::Remove { tree: id(0), key: keys[1] },
            Record::RemoveRange { tree: id(0), from: b"c", to: keys[3] },
            Record::RemoveRange { tree: id(1), from: b"", to: b"" },
            Record::Drop { tree: id(2), name: b"gulls" },
        ],
    );
    // Its new value is lost as well.
    put_large(&store, &trees[0], keys[4], &[b'p'; 9000]);
    store.flush_log().unwrap();
    let left = disk.crash(1);
    drop(store);
    spoil_values(&left);
    let (report, store) = repaired(&left);
    assert_eq!(report.defects.len(), 2, "{report:?}");
    for key in ["d lost", "e put in vain"] {
        let what = format!("the value of key {key:?} in keyspace wrens is lost");
        assert!(has_defect(&report, &what), "{report:?}");
    }
    let left = [one(keys[0], b"new"), one(b"key", b"wrens")].concat();
    assert_eq!(records(&store, "wrens"), left);
    assert_eq!(store.keyspaces().unwrap(), ["terns", "wrens"]);
}

#[test]
fn a_long_key_whose_value_is_lost_is_named_by_what_is_known_of_it() {
    let (disk, store, trees) = with(&options(), &["wrens"]);
    let head = vec![b'h'; trees[0].max_short_key_bytes()];
    put_large(&store, &trees[0], &with_label(&head, 1 << 40), &[b'p'; 9000]);
    put_large(&store, &trees[0], &head, &[b'p'; 9000]);
    store.checkpoint().unwrap();
    let left = disk.crash(1);
    drop(store);
    spoil_values(&left);
    let (report, _) = repaired(&left);
    let head = str::from_utf8(&head).unwrap();
    for which in ["key", "a key that begins with"] {
        let what = format!("the value of {which} {head:?} in keyspace wrens is lost");
        assert!(has_defect(&report, &what), "{report:?}");
    }
}

/// Whoever makes such a file could keep everything in it from being salvaged.
#[test]
fn a_name_that_no_keyspace_can_have_ends_no_repair() {
    let long = "w".repeat(85);
    for name in ["", &long] {
        let (disk, store, trees) = with(&options(), &["gulls", "wrens"]);
        store.shared.catalogue.tree().remove(b"gulls").unwrap();
        forge(&store, name.as_bytes(), 0, &trees[0]);
        store.checkpoint().unwrap();
        let (report, repaired) = crashed(&disk, store);
        assert!(has_defect(&report, "the catalogue's record of keyspace"), "{report:?}");
        assert_eq!(records(&repaired, "wrens"), one(b"key", b"wrens"));
        let recovered = format!("recovered-{}", trees[0].id().0);
        assert_eq!(records(&repaired, &recovered), one(b"key", b"gulls"));
        // What lies behind it in the log cannot be told.
        let (disk, store, trees) = with(&logged(), &["wrens"]);
        store.checkpoint().unwrap();
        let create = Record::Create { tree: TreeId(99), name: name.as_bytes() };
        append(&store, &[put(trees[0].id(), b"1"), create]);
        let (report, repaired) = crashed(&disk, store);
        assert!(has_defect(&report, "changes of the log could be replayed"), "{report:?}");
        assert_eq!(records(&repaired, "wrens").len(), 2);
    }
}

/// Images of pages that a user has put into a large value, each at the beginning of a unit.
fn as_a_value(images: &[Vec<u8>]) -> Vec<u8> {
    let mut value = vec![0; 512 - CHUNK_HEADER_BYTES];
    images.iter().for_each(|image| value.extend_from_slice(image));
    value
}

/// A keyspace is dropped whose root was page `least` or one behind it, and its image is put into a large value of another
/// keyspace; then the part of the map that the root was in is lost. It must not come back.
fn a_value_that_looks_like_a_root(least: usize, pages: u32) {
    let (disk, store, _) = with(&options(), &["wrens", "terns"]);
    let terns = store.keyspace("terns").unwrap();
    for n in 0..pages {
        terns.put(format!("{n:04}").as_bytes(), &[b't'; 80]).unwrap();
        if n % 500 == 0 {
            store.checkpoint().unwrap();
        }
    }
    let (mut name, mut root) = (String::new(), PageId(0));
    while (root.0 as usize) < least {
        name = format!("gulls {}", root.0);
        root = store.create_keyspace(&name).unwrap().root();
    }
    store.keyspace(&name).unwrap().put(b"key", b"gone").unwrap();
    store.checkpoint().unwrap();
    let at = store.pool().slot_of(root).unwrap().unwrap().offset_bytes() as usize;
    let image = disk.state().contents(path()).unwrap()[at..at + 512].to_vec();
    store.drop_keyspace(&name).unwrap();
    let names = store.keyspaces().unwrap();
    put_large(&store, &store.keyspace("wrens").unwrap(), b"song", &as_a_value(&[image]));
    for _ in 0..3 {
        store.checkpoint().unwrap();
    }
    let slots = store.shared.slots.as_ref().unwrap();
    let view = slots.state().map_view();
    let mut lost = None;
    view.for_each_part(&mut PartFile::new(slots).unwrap(), &mut |level, index, slot, _| {
        if level == 0 && index as usize == root.0 as usize / PART_WORDS {
            lost = Some(slot.offset_bytes() as usize);
        }
        Ok(())
    })
    .unwrap();
    let left = disk.crash(1);
    left.change_state(|state| {
        let mut bytes = state.contents(path()).unwrap();
        bytes[lost.unwrap() + 100] ^= 1;
        state.set_contents(path(), &bytes)
    })
    .unwrap();
    drop(store);
    let (report, store) = repaired(&left);
    assert!(has_defect(&report, "were looked for in the whole file"), "{report:?}");
    assert_eq!(store.keyspaces().unwrap(), names);
    assert!(read_large(&store, "wrens", b"song").is_some());
}

/// The leaf that refers to the value is in another part of the map.
#[test]
fn what_users_have_put_into_large_values_is_not_taken_for_pages() {
    a_value_that_looks_like_a_root(PART_WORDS + 1, 3600);
}

/// It has to be looked for as well, and may be found after the root.
#[test]
fn nor_if_the_leaf_that_refers_to_the_value_was_lost_as_well() {
    a_value_that_looks_like_a_root(1, 36);
}
