//! The superblock against flips, tears, other files, other versions and hostile values.

use super::*;
use crate::space::part::slot_at;
use hedgerow_sync::primitive::random::SplitMix64;

type Blocks = [Option<Box<SuperblockBytes>>; 4];

fn sample(checkpoint: u64) -> Superblock {
    let geometry = Geometry::for_new_store(4096, 4096).unwrap();
    let root =
        |offset: u64, checksum: u64| (slot_at(HEADER_REGION_BYTES + offset, checksum), checksum);
    let (map, map_checksum) = root(4096 * checkpoint, 0x1234_5678_9abc_def0);
    let (table, table_checksum) = root(4096 * checkpoint + (2 << 20), !0x77);
    Superblock {
        compat: 0,
        read_only_compat: 0,
        incompat: 0,
        store_id: *b"sixteen bytes id",
        checkpoint: Epoch(checkpoint),
        geometry,
        needs_log: checkpoint % 2 == 1,
        map: MapRoot { slot: map, checksum: map_checksum, levels: 2 },
        table: TableRoot {
            slot: table,
            checksum: table_checksum,
            levels: 2,
            units: 3 * 512 - 7,
            used_units: 1000,
        },
        next_page: Some(PageId(1028)),
        free_pages: 17,
        next_tree: TreeId(9),
        replay_start: Lsn(0),
        log_end: Lsn(0),
        renames_end: Lsn(0),
        app_id: 5,
        user_version: 6,
        log_incarnation: 0x0123_4567_89ab_cdef,
    }
}

fn choose_in(blocks: &Blocks) -> Result<Chosen> {
    choose(std::array::from_fn(|at| blocks[at].as_deref()))
}

/// Checkpoint 4 in pair 0, checkpoint 5 in pair 1.
fn two_checkpoints() -> Blocks {
    [0, 1, 0, 1].map(|pair| Some(sample(4 + u64::from(pair)).encode(pair)))
}

fn repaired(
    mut block: Box<SuperblockBytes>,
    change: impl FnOnce(&mut SuperblockBytes),
) -> Box<SuperblockBytes> {
    change(&mut block);
    let checksum = checksum_of(&block);
    block[CHECKSUM..CHECKSUM + 8].copy_from_slice(&checksum.to_le_bytes());
    block
}

fn is_corrupted(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupted { offset_bytes: Some(_), .. })
}

#[test]
fn the_newest_checkpoint_comes_back_whole() {
    let chosen = choose_in(&two_checkpoints()).unwrap();
    assert_eq!((chosen.superblock, chosen.pair), (sample(5), 1));
    assert!(chosen.repair.is_empty() && chosen.damaged.is_empty() && !chosen.read_only);
    let empty =
        Superblock { map: MapRoot::EMPTY, table: TableRoot::EMPTY, next_page: None, ..sample(1) };
    let chosen = choose_in(&[Some(empty.encode(0)), None, None, None]).unwrap();
    assert_eq!((chosen.superblock, chosen.repair), (empty, vec![POSITIONS[2]]));
    assert_eq!(positions_of(1), [POSITIONS[1], POSITIONS[3]]);
}

#[test]
fn any_single_byte_flip_anywhere_is_healed() {
    let mut blocks = two_checkpoints();
    for place in 0..4 {
        for at in 0..SUPERBLOCK_BYTES {
            let flip = |blocks: &mut Blocks| blocks[place].as_mut().unwrap()[at] ^= 0x10;
            flip(&mut blocks);
            let chosen = choose_in(&blocks).unwrap();
            assert_eq!(chosen.superblock, sample(5), "byte {at} of block {place}");
            assert_eq!(chosen.damaged, [POSITIONS[place]]);
            assert_eq!(chosen.repair.is_empty(), place % 2 == 0);
            flip(&mut blocks);
        }
    }
}

#[test]
fn each_single_byte_flip_of_the_only_block_is_found() {
    for at in 0..SUPERBLOCK_BYTES {
        let mut block = sample(1).encode(0);
        block[at] ^= 0x04;
        let error = choose([Some(&block), None, None, None]).unwrap_err();
        if at < MAGIC.len() {
            assert_eq!(error.kind(), ErrorKind::NotAStore);
        } else {
            assert_eq!(
                error.kind(),
                ErrorKind::Corrupted { page: None, offset_bytes: Some(0) },
                "byte {at}"
            );
        }
    }
}

#[test]
fn zeros_where_a_block_was_are_damage_as_any_other() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Block {
        Good,
        Zero,
        Flipped,
    }
    let all = [Block::Good, Block::Zero, Block::Flipped];
    let mut silent = Vec::new();
    for number in 0..81 {
        let kinds: [Block; 4] = std::array::from_fn(|at| all[number / 3_usize.pow(at as u32) % 3]);
        let mut blocks = two_checkpoints();
        for (block, kind) in blocks.iter_mut().zip(kinds) {
            let block = block.as_mut().unwrap();
            match kind {
                Block::Good => {}
                Block::Zero => block.fill(0),
                Block::Flipped => block[200] ^= 1,
            }
        }
        let chosen = choose_in(&blocks);
        let is_newest_there = kinds[1] == Block::Good || kinds[3] == Block::Good;
        let is_older_there = kinds[0] == Block::Good || kinds[2] == Block::Good;
        match chosen {
            Ok(chosen) if chosen.superblock.checkpoint == Epoch(5) => {
                assert!(is_newest_there && is_older_there, "{kinds:?}");
            }
            Ok(chosen) => {
                assert_eq!(chosen.superblock.checkpoint, Epoch(4));
                assert!(!is_newest_there, "{kinds:?}");
                silent.push(kinds);
            }
            Err(error) => assert!(!is_newest_there || !is_older_there, "{kinds:?}: {error}"),
        }
    }
    // What a crash leaves of a store that writes its second checkpoint: its first block torn, or none of it.
    for kinds in silent {
        assert_eq!(kinds[3], Block::Zero, "{kinds:?}");
    }
}

#[test]
fn a_crash_while_a_superblock_is_written_leaves_the_old_or_the_new_one() {
    // Checkpoint 6 goes over 4 in pair 0: first block, sync, second block.
    let new = sample(6).encode(0);
    for cut in (0..=END + 8).step_by(8) {
        let torn = |block: &SuperblockBytes| {
            let mut torn = Box::new(*block);
            torn[..cut].copy_from_slice(&new[..cut]);
            Some(torn)
        };
        let old = two_checkpoints();
        let mut blocks = old.clone();
        blocks[0] = torn(old[0].as_ref().unwrap());
        let chosen = choose_in(&blocks).unwrap();
        // Whatever lies beyond the last difference is the same in both.
        let whole = blocks[0].as_deref() == Some(&*new);
        assert_eq!(chosen.superblock.checkpoint, Epoch(if whole { 6 } else { 5 }), "cut {cut}");
        if whole {
            assert_eq!(chosen.repair, [POSITIONS[2]], "the second block is still the older one");
        }
        blocks[0] = Some(new.clone());
        blocks[2] = torn(old[2].as_ref().unwrap());
        let chosen = choose_in(&blocks).unwrap();
        assert_eq!(chosen.superblock.checkpoint, Epoch(6), "cut {cut}");
        assert_eq!(chosen.repair.is_empty(), whole);
        assert!(cut > 0 || !whole);
    }
    // The very first checkpoint, torn: no store came to be, and it is not mistaken for one.
    let mut torn = Box::new([0; SUPERBLOCK_BYTES]);
    torn[..64].copy_from_slice(&new[..64]);
    assert!(is_corrupted(&choose([Some(&torn), None, None, None]).unwrap_err()));
}

#[test]
fn a_pair_that_is_damaged_twice_is_reported_not_passed_over() {
    for (pair, first) in POSITIONS.into_iter().enumerate().take(2) {
        let mut blocks = two_checkpoints();
        for place in [pair, pair + 2] {
            blocks[place].as_mut().unwrap()[100] ^= 1;
        }
        let error = choose_in(&blocks).unwrap_err();
        let offset_bytes = Some(first);
        assert_eq!(error.kind(), ErrorKind::Corrupted { page: None, offset_bytes });
    }
}

#[test]
fn other_files_are_no_stores() {
    let zero = [0; SUPERBLOCK_BYTES];
    let text = [b'x'; SUPERBLOCK_BYTES];
    for blocks in [[None; 4], [Some(&zero); 4], [Some(&text), None, None, None], [Some(&text); 4]] {
        assert_eq!(choose(blocks).unwrap_err().kind(), ErrorKind::NotAStore);
    }
}

#[test]
fn other_versions_and_features_ask_for_an_upgrade_or_for_reading_only() {
    let put = |at: usize, value: u8| {
        let mut blocks = two_checkpoints();
        blocks[0] = Some(repaired(sample(4).encode(0), |block| block[at] = value));
        choose_in(&blocks)
    };
    for (at, value) in [(VERSION, 1), (VERSION, 3), (VERSION, 5), (INCOMPAT, 8), (INCOMPAT + 7, 1)]
    {
        let error = put(at, value).unwrap_err();
        let found = if at == VERSION { u32::from(value) } else { FORMAT_VERSION };
        assert_eq!(error.kind(), ErrorKind::UpgradeRequired { found });
        assert_eq!(error.to_string().contains("load the dump"), found < FORMAT_VERSION, "{error}");
    }
    let mut newest = sample(5);
    newest.compat = 1 << 40;
    newest.read_only_compat = 1;
    let blocks = [0, 1, 0, 1].map(|p| Some(if p == 1 { newest } else { sample(4) }.encode(p)));
    let chosen = choose_in(&blocks).unwrap();
    assert!(chosen.read_only);
    assert_eq!(chosen.superblock, newest, "flags of later builds are kept");
}

#[test]
fn copies_that_contradict_each_other_are_damage() {
    let mut other = sample(5);
    other.user_version += 1;
    let mut blocks = two_checkpoints();
    blocks[3] = Some(other.encode(1));
    assert!(is_corrupted(&choose_in(&blocks).unwrap_err()), "same number");
    let mut other = sample(4);
    other.store_id[0] ^= 1;
    blocks = two_checkpoints();
    blocks[2] = Some(other.encode(0));
    assert!(is_corrupted(&choose_in(&blocks).unwrap_err()), "another store");
    blocks = two_checkpoints();
    blocks[0] = Some(sample(5).encode(0));
    assert!(is_corrupted(&choose_in(&blocks).unwrap_err()), "same number in both pairs");
    blocks = two_checkpoints();
    blocks[0] = blocks[1].clone();
    let chosen = choose_in(&blocks).unwrap();
    assert_eq!(chosen.damaged, [POSITIONS[0]], "a misdirected write");
}

#[test]
fn values_that_cannot_be_are_refused() {
    let root = sample(1);
    let put = |at: usize, bytes: &[u8]| {
        let block = repaired(root.encode(0), |block| {
            block[at..at + bytes.len()].copy_from_slice(bytes);
        });
        choose([Some(&block), None, None, None])
    };
    assert!(put(APP_ID, &[9; 16]).is_ok());
    let largest = u64::from(u32::MAX >> 1);
    assert!(put(CHECKPOINT, &largest.to_le_bytes()).is_ok());
    assert!(put(CHECKPOINT, &(largest + 1).to_le_bytes()).is_err());
    let bad: &[(usize, &[u8])] = &[
        (VERSION, &[0; 4]),
        (PAIR, &[1]),
        (CHECKPOINT, &[0; 8]),
        (CHECKPOINT, &[0xff; 8]),
        (CHECKPOINT + 4, &[1]),
        (PAGE_BYTES, &[0; 4]),
        (PAGE_BYTES, &[0xff; 4]),
        (PAGE_BYTES, &[0, 0, 2, 0]),
        (UNIT_BYTES, &[0; 4]),
        (UNIT_BYTES, &[0, 1, 0, 0]),
        (ZONE_BYTES, &[0; 4]),
        (ZONE_BYTES, &[0, 0, 0, 0x80]),
        (FLAGS, &[2]),
        (ZONES, &[0xff; 4]),
        (ZONES, &[0; 4]),
        (MAP_LEVELS, &[0]),
        (MAP_LEVELS, &[5]),
        (TABLE_LEVELS, &[0]),
        (TABLE_LEVELS, &[1]),
        (TABLE_LEVELS, &[6]),
        (LAST_UNITS, &[0, 2]),
        (MAP_SLOT, &[0; 8]),
        (MAP_SLOT, &[0xff; 8]),
        (MAP_CHECKSUM, &[0; 8]),
        (TABLE_SLOT, &[0; 8]),
        (TABLE_SLOT, &[1, 0, 0, 0, 0]),
        (TABLE_CHECKSUM, &[0; 8]),
        (USED_UNITS, &[0; 8]),
        (USED_UNITS, &[0xff; 8]),
        (NEXT_PAGE, &[3, 0, 0, 0]),
        (NEXT_TREE, &[1, 0, 0, 0]),
        (FREE_PAGES, &[0xff; 8]),
        (REPLAY_START, &[1]),
        (END, &[1]),
        (SUPERBLOCK_BYTES - 1, &[1]),
    ];
    for &(at, bytes) in bad {
        let error = put(at, bytes).map(|_| ()).expect_err(&format!("{bytes:?} at {at}"));
        assert!(is_corrupted(&error), "{bytes:?} at {at}: {error:?}");
    }
}

#[test]
fn what_just_may_be_is_taken_and_one_more_is_refused() {
    let zones = sample(1).geometry.max_zones();
    let log_end = (1_u64 << 61) - 1;
    let incarnation = (1_u64 << 62) - 1;
    let limits = [
        (FREE_PAGES, 1028_u64, 8),
        (ZONES, u64::from(zones), 4),
        (LOG_END, log_end, 8),
        (LOG_INCARNATION, incarnation, 8),
    ];
    for (at, most, len) in limits {
        let put = |value: u64| {
            let block = repaired(sample(1).encode(0), |block| {
                block[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
            });
            choose([Some(&block), None, None, None]).map(drop)
        };
        assert!(put(most).is_ok(), "{most} at {at}: {:?}", put(most));
        assert!(is_corrupted(&put(most + 1).unwrap_err()), "{} at {at}", most + 1);
    }
    let lowest = (0..).map(PageId).find(|id| id.is_usable()).unwrap();
    for (next_page, is_usable) in [(lowest, true), (PageId(lowest.0 - 1), false)] {
        let block = Superblock { next_page: Some(next_page), free_pages: 0, ..sample(1) }.encode(0);
        let chosen = choose([Some(&block), None, None, None]).map(drop);
        assert_eq!(chosen.is_ok(), is_usable, "{next_page}");
    }
}

#[test]
fn renames_of_a_replay_lie_behind_the_end_of_the_log_and_have_a_flag() {
    let most = (1_u64 << 61) - 1;
    for (log_end, renames_end, incompat, may_be) in [
        (5, 0, 0, true),
        (5, 6, RENAMES_REPLAYED, true),
        (5, most, RENAMES_REPLAYED | EXTENTS, true),
        (5, most + 1, RENAMES_REPLAYED, false),
        (5, 6, 0, false),
        (5, 0, RENAMES_REPLAYED, false),
        (5, 5, RENAMES_REPLAYED, false),
        (5, 5, 0, false),
    ] {
        let [log_end, renames_end] = [Lsn(log_end), Lsn(renames_end)];
        let superblock = Superblock { log_end, renames_end, incompat, ..sample(1) };
        match choose([Some(&superblock.encode(0)), None, None, None]) {
            Ok(chosen) => assert!(may_be && chosen.superblock == superblock),
            Err(error) => assert!(!may_be && is_corrupted(&error), "{error:?}"),
        }
    }
}

#[test]
fn units_that_a_checkpoint_needs_are_written_by_zones_and_a_rest() {
    let geometry = sample(1).geometry;
    let per_zone = u64::from(geometry.units_per_zone());
    let slots = sample(1).table.units;
    for units in [slots, slots + 1, 3 * per_zone - 1, 3 * per_zone, 3 * per_zone + 1] {
        let table = TableRoot { units, ..sample(1).table };
        let block = Superblock { table, ..sample(1) }.encode(0);
        // As a store has it whose last zone is there as a whole: zero in the field that came later.
        let rest = u16::from_le_bytes([block[LAST_UNITS], block[LAST_UNITS + 1]]);
        assert_eq!(u64::from(rest), units % per_zone);
        let chosen = choose([Some(&block), None, None, None]).unwrap();
        assert_eq!(chosen.superblock.table.units, units);
    }
    assert_eq!(units_of(geometry, 0, 1), None);
    assert_eq!(units_of(geometry, 1, per_zone as u16), None);
    assert_eq!(units_of(geometry, 0, 0), Some(0));
}

#[test]
fn map_and_table_are_both_there_or_neither_is() {
    let nothing = Superblock { map: MapRoot::EMPTY, table: TableRoot::EMPTY, ..sample(1) };
    let refuse = |block: &SuperblockBytes, what: &str| {
        let error = choose([Some(block), None, None, None]).map(drop).expect_err(what);
        assert!(is_corrupted(&error), "{what}: {error:?}");
    };
    let (whole, empty) = (sample(1).table, TableRoot::EMPTY);
    refuse(&Superblock { table: whole, ..nothing }.encode(0), "no map");
    refuse(&Superblock { map: sample(1).map, ..nothing }.encode(0), "no table");
    let used = TableRoot { units: 9, used_units: 9, ..empty };
    refuse(&Superblock { table: used, ..nothing }.encode(0), "units in use, and no table");
    // No map has a place or a checksum.
    for (at, what) in [(MAP_SLOT, "place"), (MAP_CHECKSUM, "checksum"), (TABLE_CHECKSUM, "table")] {
        refuse(&repaired(nothing.encode(0), |block| block[at + 2] = 1), what);
    }
}

#[test]
fn no_bytes_make_it_panic() {
    let seed = crate::testing::environment::fresh_seed();
    let mut random = SplitMix64::new(seed);
    for _ in 0..3000 {
        let mut blocks = two_checkpoints();
        for block in blocks.iter_mut().flatten() {
            let count = random.below(4);
            let spoilt = std::mem::replace(block, Box::new([0; SUPERBLOCK_BYTES]));
            *block = repaired(spoilt, |bytes| {
                for _ in 0..count {
                    let at = random.below(END as u64 + 4) as usize;
                    random.fill(&mut bytes[at..at + 4]);
                }
            });
        }
        if let Ok(chosen) = choose_in(&blocks) {
            // What was taken can be written and read again.
            let block = chosen.superblock.encode(0);
            let alone = [Some(&*block), None, None, None];
            assert_eq!(choose(alone).unwrap().superblock, chosen.superblock);
        }
    }
}
