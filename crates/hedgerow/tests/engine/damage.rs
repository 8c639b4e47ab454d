//! Writes that a disk has lost, sent elsewhere or blotted out, page by page and part by part: all of them are noticed,
//! and no answer is wrong. And superblocks of which one copy is wrong: they are healed.
//!
//! What is damaged in a byte is in `bad_input.rs`; large values are in `damage_large_values.rs`.

use crate::common::aged::{
    Aged, PAGE_BYTES, PART_BYTES, aged_store, images_in_use, name_of, options, passes_for, put,
    then, tried, with,
};
use crate::common::{
    Dice, Model, assert_damage, assert_sound, contents, disk_with, effort, key, open, path,
    read_damaged, seed,
};
use hedgerow::ErrorKind;
use hedgerow::internals::store::OpenHow;
use hedgerow::internals::store::superblock::{POSITIONS, SUPERBLOCK_BYTES, positions_of};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::sim::{CallKind, Change, Effect, Fault, SimState};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

fn assert_noticed(aged: &Aged, damaged: &[u8], context: &str) {
    let noticed = read_damaged(&options(), damaged, &aged.model, context);
    assert!(noticed, "{context}: nobody noticed");
}

#[test]
fn a_write_that_was_lost_is_noticed() {
    let aged = aged_store(&mut Dice(seed(101)));
    let before = aged.older.last().unwrap();
    let (mut lost, mut passed) = (0, 0);
    for image in tried(&aged) {
        let (now, there) = (&aged.bytes[image.clone()], then(before, &image));
        if there == now {
            continue;
        }
        if passes_for(&there, now) {
            passed += 1;
            continue;
        }
        let context = format!("{image:?} as the checkpoint before has it");
        assert_noticed(&aged, &with(&aged.bytes, image.start, &there), &context);
        lost += 1;
    }
    println!("{passed} lost writes could not be noticed");
    count(lost, "damaged images");
    assert!(lost > 20 && passed < 3);
}

/// The worst that a lost or misdirected write can leave: the same page or part, whole, but not the newest.
#[test]
fn an_older_image_of_the_same_page_or_part_is_noticed() {
    let aged = aged_store(&mut Dice(seed(102)));
    let mut olders: BTreeMap<Vec<u8>, Vec<&[u8]>> = BTreeMap::new();
    for file in &aged.older {
        for image in images_in_use(file) {
            let image = &file[image];
            olders.entry(name_of(image).to_vec()).or_default().push(image);
        }
    }
    let (mut parts, mut pages, mut passed) = (0, 0, 0);
    for image in tried(&aged) {
        let now = &aged.bytes[image.clone()];
        // The newest that is not this one, and the oldest.
        let known = olders.get(name_of(now)).map_or(&[][..], Vec::as_slice);
        let mut others = known.iter().filter(|older| **older != now);
        for older in [others.next_back(), others.next()].into_iter().flatten() {
            if passes_for(older, now) {
                passed += 1;
                continue;
            }
            let context = format!("{image:?} as an older checkpoint has it");
            assert_noticed(&aged, &with(&aged.bytes, image.start, older), &context);
            if image.len() == PART_BYTES { parts += 1 } else { pages += 1 }
        }
    }
    println!("{parts} older parts and {pages} older pages were noticed, {passed} could not be");
    count(parts + pages, "damaged images");
    assert!(parts >= 5 && pages > 40 && passed < 3);
}

#[test]
fn two_writes_that_went_to_each_others_places_are_noticed() {
    let aged = aged_store(&mut Dice(seed(103)));
    let images = tried(&aged);
    let (mut swapped, mut doubled) = (0, 0);
    for pair in images.windows(2).filter(|pair| pair[0].len() == pair[1].len()) {
        let (a, b) = (&aged.bytes[pair[0].clone()], &aged.bytes[pair[1].clone()]);
        let context = format!("{:?} and {:?} swapped", pair[0], pair[1]);
        let half = with(&aged.bytes, pair[0].start, b);
        assert_noticed(&aged, &with(&half, pair[1].start, a), &context);
        swapped += 1;
        // One went to the place of the other, and what was in its own stays.
        let context = format!("what belongs to {:?} written over {:?}", pair[1], pair[0]);
        let there = then(aged.older.last().unwrap(), &pair[1]);
        if passes_for(&there, b) {
            continue;
        }
        assert_noticed(&aged, &with(&half, pair[1].start, &there), &context);
        doubled += 1;
    }
    println!("{swapped} swapped, {doubled} in the place of another");
    count(swapped + doubled, "damaged images");
    assert!(swapped > 40 && doubled > 40);
}

#[test]
fn an_image_that_is_zeros_wholly_or_in_part_is_noticed() {
    let mut dice = Dice(seed(104));
    let aged = aged_store(&mut dice);
    let (mut whole, mut torn) = (0, 0);
    for image in tried(&aged) {
        let zeros = vec![0; image.len()];
        assert_noticed(
            &aged,
            &with(&aged.bytes, image.start, &zeros),
            &format!("{image:?} is zeros"),
        );
        whole += 1;
        // A sector of a part; half of a page, which is a sector.
        let (piece, pieces) = if image.len() == PART_BYTES { (512, 8) } else { (256, 2) };
        let at = image.start + dice.below(pieces) as usize * piece;
        if aged.bytes[at..at + piece].iter().any(|&byte| byte != 0) {
            let context = format!("{piece} bytes of {image:?} from {at} on are zeros");
            assert_noticed(&aged, &with(&aged.bytes, at, &zeros[..piece]), &context);
            torn += 1;
        }
    }
    println!("{whole} whole images, {torn} pieces");
    count(whole + torn, "damaged images");
    assert!(whole > 40 && torn > 30);
}

/// A store that was closed, its file after the checkpoint before, and what is in it.
fn small_store(dice: &mut Dice) -> (Vec<u8>, Vec<u8>, Model) {
    let disk = SimDisk::new(1);
    let db = open(&options(), &disk, OpenHow::New).unwrap();
    let mut model = Model::new();
    for n in 0..40 {
        put(&db, &mut model, dice, n);
        if n % 10 == 9 {
            db.checkpoint().unwrap();
        }
    }
    let before = disk.state().contents(path()).unwrap();
    put(&db, &mut model, dice, 40);
    db.close().unwrap();
    (disk.state().contents(path()).unwrap(), before, model)
}

/// The pair of superblocks with the newest checkpoint.
fn newest_pair(bytes: &[u8]) -> u32 {
    let number = |pair: u32| {
        let at = positions_of(pair)[0] as usize + 64;
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    };
    u32::from(number(1) > number(0))
}

/// The file with one block of a superblock wrong, in several ways.
fn wrong_blocks(bytes: &[u8], before: &[u8], at: u64) -> Vec<Vec<u8>> {
    let at = at as usize;
    let flipped = [0, 8, 17, 20, 33, 50, 64, 72, 90, 100, 130, 184, 191, 192, 2_000, 4_095];
    let mut wrong: Vec<_> = flipped
        .into_iter()
        .map(|byte| with(bytes, at + byte, &[bytes[at + byte] ^ 0x10]))
        .collect();
    wrong.push(with(bytes, at, &[0; SUPERBLOCK_BYTES]));
    wrong.push(with(bytes, at, &[0xff; SUPERBLOCK_BYTES]));
    // A sector, where the others are as they should be; and a block that was not written at all.
    wrong.push(with(bytes, at, &[0; 512]));
    wrong.push(with(bytes, at, &before[at..at + SUPERBLOCK_BYTES]));
    wrong
}

#[test]
fn a_wrong_copy_of_the_newest_superblock_is_healed_by_opening_for_writing() {
    let (bytes, before, model) = small_store(&mut Dice(seed(105)));
    let mut healed = 0;
    for at in positions_of(newest_pair(&bytes)) {
        for (case, damaged) in wrong_blocks(&bytes, &before, at).into_iter().enumerate() {
            let context = format!("case {case} of the block at {at}");
            let disk = disk_with(&damaged);
            let db = open(&options(), &disk, OpenHow::ReadOnly).unwrap();
            assert!(contents(&db).unwrap() == model, "{context}");
            drop(db);
            assert!(disk.state().contents(path()).unwrap() == damaged, "{context}: read only");
            let db = open(&options(), &disk, OpenHow::Existing).unwrap();
            assert!(disk.state().contents(path()).unwrap() == bytes, "{context}: not healed");
            assert!(disk.state().pending().is_empty(), "{context}: healed, but not durably");
            assert!(contents(&db).unwrap() == model, "{context}");
            assert_sound(&db, &context);
            db.close().unwrap();
            healed += 1;
        }
    }
    count(healed, "damaged superblocks");
}

/// Opening a store for reading needs one of two blocks, and so told nobody of the other one.
#[test]
fn each_block_of_a_superblock_that_is_wrong_is_a_finding_until_it_is_written_again() {
    let (bytes, before, model) = small_store(&mut Dice(seed(114)));
    let mut found = 0;
    for at in POSITIONS {
        let mut wrong = wrong_blocks(&bytes, &before, at);
        // The last one is whole, and of an older checkpoint, as a crash may leave it.
        wrong.pop();
        for (case, damaged) in wrong.into_iter().enumerate() {
            let context = format!("case {case} of the block at {at}");
            let disk = disk_with(&damaged);
            let db = open(&options(), &disk, OpenHow::ReadOnly).unwrap();
            let findings = db.verify(|_| ControlFlow::Continue(())).unwrap().findings;
            let offsets: Vec<_> = findings.iter().map(|finding| finding.offset_bytes).collect();
            // Zeros in the last one look like a checkpoint that was cut short before it.
            let block = &damaged[at as usize..at as usize + SUPERBLOCK_BYTES];
            let is_absent = at == POSITIONS[3] && block.iter().all(|byte| *byte == 0);
            let expected = if is_absent { vec![] } else { vec![Some(at)] };
            assert_eq!(offsets, expected, "{context}: {findings:?}");
            drop(db);
            let db = open(&options(), &disk, OpenHow::Existing).unwrap();
            for _ in 0..2 {
                put(&db, &mut model.clone(), &mut Dice(seed(115)), 5);
                db.checkpoint().unwrap();
            }
            assert_sound(&db, &context);
            found += 1;
        }
    }
    count(found, "damaged superblocks");
}

#[test]
fn a_wrong_copy_of_the_older_superblock_is_in_nobodys_way() {
    let mut dice = Dice(seed(106));
    let (bytes, before, model) = small_store(&mut dice);
    let mut replaced = 0;
    for at in positions_of(1 - newest_pair(&bytes)) {
        for (case, damaged) in wrong_blocks(&bytes, &before, at).into_iter().enumerate() {
            let context = format!("case {case} of the block at {at}");
            let disk = disk_with(&damaged);
            let db = open(&options(), &disk, OpenHow::Existing).unwrap();
            assert!(contents(&db).unwrap() == model, "{context}");
            let mut changed = model.clone();
            put(&db, &mut changed, &mut dice, 50);
            db.close().unwrap();
            // The next checkpoint goes there.
            let after = disk.state().contents(path()).unwrap();
            let block = |at: u64| &after[at as usize..at as usize + SUPERBLOCK_BYTES];
            assert!(block(POSITIONS[0]) == block(POSITIONS[2]), "{context}");
            assert!(block(POSITIONS[1]) == block(POSITIONS[3]), "{context}");
            let db = open(&options(), &disk, OpenHow::ReadOnly).unwrap();
            assert!(contents(&db).unwrap() == changed, "{context}");
            replaced += 1;
        }
    }
    count(replaced, "damaged superblocks");
}

/// Going back to the checkpoint before in silence would lose what was acknowledged. Copies that are zeros are left out:
/// those of a new store are, and of a first write that was torn.
#[test]
fn two_wrong_copies_of_the_newest_superblock_are_damage() {
    let (bytes, _, model) = small_store(&mut Dice(seed(109)));
    let [first, second] = positions_of(newest_pair(&bytes)).map(|at| at as usize);
    let spoil = |block: usize, at: usize| with(&bytes, block + at, &[bytes[block + at] ^ 0x10]);
    let pairs = [(0, 0), (8, 8), (64, 100), (20, 0), (2_000, 191)];
    for (a, b) in pairs {
        let context = format!("byte {a} of one, byte {b} of the other");
        let damaged = with(&spoil(first, a), second + b, &[bytes[second + b] ^ 0x10]);
        assert!(read_damaged(&options(), &damaged, &model, &context), "{context}");
        let disk = disk_with(&damaged);
        for how in [OpenHow::ReadOnly, OpenHow::Existing] {
            let refused = open(&options(), &disk, how).unwrap_err();
            let is_named =
                matches!(refused.kind(), ErrorKind::Corrupted { offset_bytes: Some(_), .. });
            assert!(is_named, "{context}: {refused:?}");
        }
        assert!(disk.state().contents(path()).unwrap() == damaged, "{context}: left alone");
    }
    count(pairs.len() as u64, "damaged superblocks");
}

/// What a crash or a failure in the middle of the healing has left is the same store, and is healed by the next opening.
fn assert_heals(disk: &SimDisk, bytes: &[u8], model: &Model, context: &str) {
    let db = open(&options(), disk, OpenHow::ReadOnly)
        .unwrap_or_else(|error| panic!("{context}: {error:?}"));
    assert!(contents(&db).unwrap() == *model, "{context}, read only");
    drop(db);
    let db = open(&options(), disk, OpenHow::Existing)
        .unwrap_or_else(|error| panic!("{context}: {error:?}"));
    // Before anything else: a verification may give space back.
    assert!(disk.state().contents(path()).unwrap() == bytes, "{context}: not healed");
    assert!(contents(&db).unwrap() == *model, "{context}");
    assert_sound(&db, context);
}

#[test]
fn a_crash_at_any_call_of_the_healing_leaves_the_store_as_it_was() {
    let mut dice = Dice(seed(107));
    let (bytes, before, model) = small_store(&mut dice);
    let mut tried = 0;
    for at in positions_of(newest_pair(&bytes)) {
        for (case, damaged) in wrong_blocks(&bytes, &before, at).into_iter().enumerate() {
            let disk = disk_with(&damaged);
            disk.record_states(true);
            drop(open(&options(), &disk, OpenHow::Existing).unwrap());
            let mut states = disk.take_states();
            assert!(states.len() >= 2, "a write and a sync");
            states.push(disk.state());
            for (call, state) in states.iter().enumerate() {
                for _ in 0..4 * effort() {
                    let left = state.crash_at_random(dice.roll());
                    let left = SimDisk::with_state(left, dice.roll());
                    let context = format!("case {case} at {at}, a crash before call {call}");
                    assert_heals(&left, &bytes, &model, &context);
                    tried += 1;
                }
            }
        }
    }
    count(tried, "healings cut short");
}

#[test]
fn a_call_of_the_healing_that_fails_leaves_the_store_as_it_was() {
    let mut dice = Dice(seed(108));
    let (bytes, before, model) = small_store(&mut dice);
    let effects = [Effect::Nothing, Effect::Partly, Effect::Fully, Effect::Lost];
    let mut failed = 0;
    for at in positions_of(newest_pair(&bytes)) {
        for (case, damaged) in wrong_blocks(&bytes, &before, at).into_iter().enumerate() {
            for kind in [CallKind::Write, CallKind::SyncData, CallKind::SyncAll] {
                for effect in effects {
                    for after in 0.. {
                        let context = format!("case {case} at {at}, {kind:?} {after}, {effect:?}");
                        let disk = disk_with(&damaged);
                        let fault = Fault::once(kind, after, Fault::EIO).with_effect(effect);
                        disk.inject(fault);
                        let Err(error) = open(&options(), &disk, OpenHow::Existing) else { break };
                        assert_eq!(error.kind(), ErrorKind::Io, "{context}: {error:?}");
                        disk.clear_faults();
                        failed += 1;
                        let crashed = SimDisk::with_state(
                            disk.state().crash_at_random(dice.roll()),
                            dice.roll(),
                        );
                        assert_heals(&crashed, &bytes, &model, &context);
                        assert_heals(&disk, &bytes, &model, &context);
                    }
                }
            }
        }
    }
    count(failed, "healings cut short");
    assert!(failed > 50);
}

/// A keyspace with a damaged page can be dropped in part only. That is its own trouble: the rest of the store goes on,
/// also after it was opened again, and after a crash that has the drop in the log alone.
#[test]
fn a_damaged_keyspace_that_is_dropped_keeps_nobody_from_opening_the_store() {
    let mut dice = Dice(seed(107));
    let (mut closed, mut crashed) = (0, 0);
    for log in [false, true] {
        let limit = hedgerow::smallest_memory_limit_bytes(PAGE_BYTES);
        let options = options().memory_limit_bytes(limit).log(log).log_segment_blocks(6);
        let disk = SimDisk::new(dice.roll());
        let db = open(&options, &disk, OpenHow::New).unwrap();
        let mut model = Model::new();
        for n in 0..1_500 {
            put(&db, &mut model, &mut dice, n);
        }
        let other = db.create_keyspace("others").unwrap();
        other.put(b"one", b"there").unwrap();
        drop(other);
        db.close().unwrap();
        let bytes = disk.state().contents(path()).unwrap();
        let images = images_in_use(&bytes);
        for image in images.iter().filter(|image| image.len() == PAGE_BYTES).step_by(5) {
            let mut damaged = bytes.clone();
            damaged[image.start + 100 + dice.below(300) as usize] ^= 4;
            let disk = disk_with(&damaged);
            // Of the catalogue's page, or of one that is not needed, nothing is to be seen here.
            let Ok(db) = open(&options, &disk, OpenHow::Existing) else { continue };
            let Ok(Some(wrens)) = db.open_keyspace("wrens") else { continue };
            let Err(error) = wrens.count() else { continue };
            let context = format!("{image:?}, log {log}");
            assert_damage(&error, &context);
            assert!(db.drop_keyspace("wrens").unwrap(), "{context}");
            assert!(db.open_keyspace("wrens").unwrap().is_none(), "{context}");
            // Some of its pages may be there yet; no handle leads to them.
            for id in (0..1_500_u64).step_by(100) {
                let key = key(id);
                assert!(wrens.get(&key).is_err() && wrens.put(&key, b"").is_err(), "{context}");
            }
            assert!(wrens.count().is_err() && wrens.last().is_err(), "{context}");
            let left = if dice.below(2) == 0 {
                db.close().unwrap();
                closed += 1;
                disk
            } else {
                crashed += 1;
                disk.crash(dice.roll())
            };
            let db = open(&options, &left, OpenHow::Existing)
                .unwrap_or_else(|error| panic!("{context}: {error:?}"));
            let others = db.keyspace("others").unwrap();
            assert_eq!(others.get(b"one").unwrap().as_deref(), Some(&b"there"[..]), "{context}");
            others.put(b"two", b"too").unwrap();
            drop(others);
            db.close().unwrap();
            let db = open(&options, &left, OpenHow::Existing).unwrap();
            let found = db.keyspace("others").unwrap().get(b"two").unwrap();
            assert_eq!(found.as_deref(), Some(&b"too"[..]), "{context}");
        }
    }
    println!("{closed} closed, {crashed} crashed");
    count(closed + crashed, "damaged images");
    assert!(closed > 5 && crashed > 5, "{closed}, {crashed}");
}

/// Whoever published it was killed before its first block was durable. If the second went to the disk beside that, a power
/// cut could tear both.
#[test]
fn while_one_block_of_a_superblock_is_healed_the_other_is_durable() {
    let mut dice = Dice(seed(109));
    let disk = SimDisk::new(dice.roll());
    let db = open(&options(), &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("wrens").unwrap();
    keyspace.put(b"wren", b"1").unwrap();
    db.checkpoint().unwrap();
    keyspace.put(b"wren", b"2").unwrap();
    disk.record_states(true);
    db.checkpoint().unwrap();
    let pending = |state: &SimState, pair: u32| {
        let is_pending = |at: &u64| {
            state.pending().iter().any(
                |change| matches!(change, Change::Write { offset_bytes, .. } if offset_bytes == at),
            )
        };
        positions_of(pair).iter().filter(|at| is_pending(at)).count()
    };
    let mut healed = 0;
    for state in disk.take_states() {
        let killed = SimDisk::with_state(state, dice.roll()).kill(dice.roll());
        if (0..2).all(|pair| pending(&killed.state(), pair) == 0) {
            continue;
        }
        killed.record_states(true);
        drop(open(&options(), &killed, OpenHow::Existing).unwrap());
        for (call, state) in killed.take_states().iter().enumerate() {
            for pair in 0..2 {
                assert!(pending(state, pair) < 2, "both blocks of pair {pair} before call {call}");
            }
        }
        healed += 1;
    }
    println!("{healed} openings");
    assert!(healed > 0);
}
