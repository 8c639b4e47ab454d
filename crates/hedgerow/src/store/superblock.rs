//! The superblock: what a store is, and where its newest checkpoint begins.
//!
//! Two pairs of blocks, written in turn; both blocks of a pair hold the same 4 KiB. They lie 16 KiB
//! apart, A B A' B' ([`POSITIONS`]), so that no write of up to 16 KiB that tears or goes astray, and
//! no damaged flash page of that size, touches both blocks of a pair, or two pairs. The rest of each
//! 16 KiB is written as zero and not read.
//!
//! **Order of writing** (the store's business, [`choose`] relies on it): all that the checkpoint
//! refers to, *sync*, first block of the pair that does not hold the newest checkpoint, *sync*,
//! second block. The second is synced with whatever comes next, at close at once. So a crash tears
//! one block of a pair at most, and when both blocks of a pair are bad, that is damage: which
//! checkpoint was there nobody knows, so opening says so, rather than going back by one in silence. Zeros are bad
//! where something was written before: in the first block of a pair whose second is not zero, and in pair 0, which
//! comes first, if pair 1 is not zero. (Zeros in all of pair 1 are what a store with one checkpoint has.)
//! A bad block next to a good one is repaired ([`Chosen::repair`]).
//!
//! **Other versions.** Magic, checksum, version and the three sets of feature flags keep their place
//! and meaning in every version, so that an older build can tell a newer file from a broken one.
//! Pure functions over byte arrays, no panic on any bytes; `docs/format.md` has the same table.

use crate::checksum::{PartKind, part_checksum};
use crate::error::{Error, ErrorKind, Result};
use crate::space::TableRoot;
use crate::space::geometry::{Geometry, HEADER_REGION_BYTES};
use crate::space::map::{MAX_MAP_LEVELS, MapRoot};
use crate::space::part::{MAX_LEVELS, is_part_slot};
use crate::types::{Epoch, Lsn, PageId, Slot, TreeId};
use crate::wal::ScanFrom;

/// The largest number of a checkpoint: frames keep 32 bits of it, and epochs go on behind it. A store that has come to it
/// can only be read; its content goes into a new one.
pub const LAST_CHECKPOINT: Epoch = Epoch((u32::MAX >> 1) as u64);

/// Bytes of a superblock.
pub const SUPERBLOCK_BYTES: usize = 4096;
/// The format version that this build writes, and the only one that it reads. Version 1 had records of up to a quarter of a
/// page, and version 2 had images of whole pages only.
pub const FORMAT_VERSION: u32 = 4;
/// Offsets of the four blocks: first block of pair 0, first of pair 1, second of 0, second of 1.
pub const POSITIONS: [u64; 4] = [0, 16 << 10, 32 << 10, 48 << 10];
/// Features that a build must know in order to write. None yet.
pub const READ_ONLY_COMPAT_FEATURES: u64 = 0;
/// Features that a build must know in order to read.
pub const INCOMPAT_FEATURES: u64 = EXTENTS | LONG_KEYS | RENAMES_REPLAYED;
/// The feature that records may have values in a stored form, and the zone table bits of extents.
pub const EXTENTS: u64 = 1;
/// The feature that leaves and inner nodes may have keys with a label.
pub const LONG_KEYS: u64 = 2;
/// The feature that the checkpoint was taken in a replay, and has renames of keyspaces that lie behind its `log_end`.
pub const RENAMES_REPLAYED: u64 = 4;

/// The bytes of one superblock.
pub type SuperblockBytes = [u8; SUPERBLOCK_BYTES];

/// First byte not ASCII, then the name, then CR LF: text conversion and 7-bit transfer destroy it.
const MAGIC: [u8; 8] = *b"\x89Hedge\r\n";
const CHECKSUM: usize = 8;
const VERSION: usize = 16;
const PAIR: usize = 20;
const COMPAT: usize = 24;
const READ_ONLY_COMPAT: usize = 32;
const INCOMPAT: usize = 40;
const STORE_ID: usize = 48;
const CHECKPOINT: usize = 64;
const PAGE_BYTES: usize = 72;
const UNIT_BYTES: usize = 76;
const ZONE_BYTES: usize = 80;
const FLAGS: usize = 84;
const ZONES: usize = 88;
const MAP_LEVELS: usize = 92;
const TABLE_LEVELS: usize = 93;
const LAST_UNITS: usize = 94;
const MAP_SLOT: usize = 96;
const MAP_CHECKSUM: usize = 104;
const TABLE_SLOT: usize = 112;
const TABLE_CHECKSUM: usize = 120;
const USED_UNITS: usize = 128;
const NEXT_PAGE: usize = 136;
const NEXT_TREE: usize = 140;
const FREE_PAGES: usize = 144;
const REPLAY_START: usize = 152;
const LOG_END: usize = 160;
const APP_ID: usize = 168;
const USER_VERSION: usize = 176;
const LOG_INCARNATION: usize = 184;
const RENAMES_END: usize = 192;
const END: usize = 200;

const NEEDS_LOG: u32 = 1;

const _: () =
    assert!(LAST_UNITS + 2 == MAP_SLOT && RENAMES_END + 8 == END && END < SUPERBLOCK_BYTES);
const _: () = assert!(POSITIONS[3] + SUPERBLOCK_BYTES as u64 <= HEADER_REGION_BYTES);
const _: () = assert!(POSITIONS[1] - POSITIONS[0] >= 16 << 10);

/// A checkpoint, and what the store is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Features, see the three constants.
    pub compat: u64,
    /// Features that must be known for writing.
    pub read_only_compat: u64,
    /// Features that must be known for reading.
    pub incompat: u64,
    /// Random, given at creation.
    pub store_id: [u8; 16],
    /// The checkpoint's number: every image of an epoch up to it is in the map.
    pub checkpoint: Epoch,
    /// Sizes of pages, units and zones.
    pub geometry: Geometry,
    /// There is a log that may have more than this checkpoint: it must be there, and is replayed. Not after a
    /// proper close, and not of a store that is used without a log.
    pub needs_log: bool,
    /// The page map.
    pub map: MapRoot,
    /// The zone table.
    pub table: TableRoot,
    /// The first page id never given out; `None` if there is none left.
    pub next_page: Option<PageId>,
    /// About how many ids below it are free.
    pub free_pages: u64,
    /// The first tree id never given out.
    pub next_tree: TreeId,
    /// Where replay of the log starts.
    pub replay_start: Lsn,
    /// End of the log after the last step that is in the checkpoint. No address below is given out again.
    pub log_end: Lsn,
    /// End of the last rename in the log that is in the checkpoint, if the checkpoint was taken in a replay of that log, before
    /// whose end `log_end` stays as it was. Done again, a rename might move a name that means another tree by now. Zero: there
    /// is none behind `log_end`.
    pub renames_end: Lsn,
    /// Which log of the store these are addresses of. Zero: there has been none.
    pub log_incarnation: u64,
    /// The application's own number. Zero until it sets one.
    pub app_id: u64,
    /// The application's own version. Zero until it sets one.
    pub user_version: u64,
}

/// What [`choose`] found.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The newest checkpoint.
    pub superblock: Superblock,
    /// The pair that it lies in; the next one goes to the other.
    pub pair: u32,
    /// A feature that this build must know in order to write, and does not: read only.
    pub read_only: bool,
    /// Offsets at which the superblock must be written again, and synced, before the next
    /// checkpoint: its other block is torn, damaged or older.
    pub repair: Vec<u64>,
    /// Offsets of damaged blocks, for a report; each is in `repair` or is overwritten next.
    pub damaged: Vec<u64>,
}

/// Offsets of the two blocks of a pair, in the order in which they are written.
pub const fn positions_of(pair: u32) -> [u64; 2] {
    let first = (pair & 1) as usize;
    [POSITIONS[first], POSITIONS[first + 2]]
}

/// Zones that so many units lie in, and units of the last of them: zero for all.
fn zones_and_rest(geometry: Geometry, units: u64) -> (u32, u16) {
    let rest = units % u64::from(geometry.units_per_zone());
    // A zone has at most 2^14 units.
    (geometry.zones_of_units(units), rest as u16)
}

/// Units of so many zones, the last of which has `last_units`, or all if that is zero.
fn units_of(geometry: Geometry, zones: u32, last_units: u16) -> Option<u64> {
    let (last_units, per_zone) = (u32::from(last_units), geometry.units_per_zone());
    if last_units >= per_zone || (zones == 0 && last_units > 0) {
        return None;
    }
    let beyond = if last_units == 0 { 0 } else { per_zone - last_units };
    Some(geometry.units_of_zones(zones) - u64::from(beyond))
}

impl Superblock {
    /// From where the log is to be read that goes on from the checkpoint.
    pub(super) fn scan_from(&self) -> ScanFrom {
        let Superblock { replay_start, log_end, checkpoint, .. } = *self;
        ScanFrom { replay_start, log_end, checkpoint }
    }

    /// The block as it is written to both places of pair `pair` (0 or 1).
    pub fn encode(&self, pair: u32) -> Box<SuperblockBytes> {
        let mut block = Box::new([0; SUPERBLOCK_BYTES]);
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(VERSION, &FORMAT_VERSION.to_le_bytes());
        put(PAIR, &(pair & 1).to_le_bytes());
        put(COMPAT, &self.compat.to_le_bytes());
        put(READ_ONLY_COMPAT, &self.read_only_compat.to_le_bytes());
        put(INCOMPAT, &self.incompat.to_le_bytes());
        put(STORE_ID, &self.store_id);
        put(CHECKPOINT, &self.checkpoint.0.to_le_bytes());
        put(PAGE_BYTES, &self.geometry.page_bytes().to_le_bytes());
        put(UNIT_BYTES, &self.geometry.unit_bytes().to_le_bytes());
        put(ZONE_BYTES, &self.geometry.zone_bytes().to_le_bytes());
        put(FLAGS, &(if self.needs_log { NEEDS_LOG } else { 0 }).to_le_bytes());
        let (zones, last_units) = zones_and_rest(self.geometry, self.table.units);
        put(ZONES, &zones.to_le_bytes());
        put(MAP_LEVELS, &[self.map.levels, self.table.levels]);
        put(LAST_UNITS, &last_units.to_le_bytes());
        put(MAP_SLOT, &self.map.slot.word().to_le_bytes());
        put(MAP_CHECKSUM, &self.map.checksum.to_le_bytes());
        put(TABLE_SLOT, &self.table.slot.word().to_le_bytes());
        put(TABLE_CHECKSUM, &self.table.checksum.to_le_bytes());
        put(USED_UNITS, &self.table.used_units.to_le_bytes());
        put(NEXT_PAGE, &self.next_page.map_or(0, |id| id.0).to_le_bytes());
        put(NEXT_TREE, &self.next_tree.0.to_le_bytes());
        put(FREE_PAGES, &self.free_pages.to_le_bytes());
        put(REPLAY_START, &self.replay_start.0.to_le_bytes());
        put(LOG_END, &self.log_end.0.to_le_bytes());
        put(APP_ID, &self.app_id.to_le_bytes());
        put(USER_VERSION, &self.user_version.to_le_bytes());
        put(RENAMES_END, &self.renames_end.0.to_le_bytes());
        put(LOG_INCARNATION, &self.log_incarnation.to_le_bytes());
        let checksum = checksum_of(&block);
        block[CHECKSUM..CHECKSUM + 8].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    /// Reads the fields of a block of this version whose checksum is right. `Err` says what cannot be.
    fn decode(block: &SuperblockBytes) -> Result<Superblock, String> {
        let geometry = Geometry::from_sizes(
            u32_at(block, PAGE_BYTES),
            u32_at(block, UNIT_BYTES),
            u32_at(block, ZONE_BYTES),
        )
        .map_err(|error| error.to_string())?;
        let refuse = |what: &str| Err(what.to_owned());
        let zones = u32_at(block, ZONES);
        if zones > geometry.max_zones() {
            return refuse("more zones than a file can have");
        }
        let flags = u32_at(block, FLAGS);
        if flags & !NEEDS_LOG != 0 || block[END..].iter().any(|&b| b != 0) {
            return refuse("reserved bits are set");
        }
        let last_units = u16::from_le_bytes([block[LAST_UNITS], block[LAST_UNITS + 1]]);
        let Some(units) = units_of(geometry, zones, last_units) else {
            return refuse("a last zone that cannot be");
        };
        let root = |slot_at: usize, checksum_at: usize, levels: u8, most: u8, least: u8| {
            let (word, checksum) = (u64_at(block, slot_at), u64_at(block, checksum_at));
            let slot = Slot::from_word(word);
            if levels == 0 && word == 0 && checksum == 0 {
                return Ok((Slot::NONE, 0));
            }
            let sound = (least..=most).contains(&levels)
                && word & !Slot::MASK == 0
                && is_part_slot(slot)
                && slot.tag_matches(checksum)
                && geometry.slot_units(slot, units).is_some();
            if sound { Ok((slot, checksum)) } else { Err("a root that cannot be".to_owned()) }
        };
        let (map_levels, table_levels) = (block[MAP_LEVELS], block[TABLE_LEVELS]);
        let (map_slot, map_checksum) = root(MAP_SLOT, MAP_CHECKSUM, map_levels, MAX_MAP_LEVELS, 1)?;
        let (table_slot, table_checksum) =
            root(TABLE_SLOT, TABLE_CHECKSUM, table_levels, MAX_LEVELS, 2)?;
        let used_units = u64_at(block, USED_UNITS);
        if used_units > units {
            return refuse("more units in use than the file has");
        }
        if (map_levels == 0) != (table_levels == 0) || (map_levels == 0) != (used_units == 0) {
            return refuse("page map and zone table disagree on whether there is anything");
        }
        let next_page = match PageId(u32_at(block, NEXT_PAGE)) {
            PageId::NONE => None,
            id if id.is_usable() => Some(id),
            _ => return refuse("a page id that cannot be"),
        };
        let free_pages = u64_at(block, FREE_PAGES);
        if free_pages > next_page.map_or(1 << 32, |id| u64::from(id.0)) {
            return refuse("more free pages than pages");
        }
        let next_tree = TreeId(u32_at(block, NEXT_TREE));
        if next_tree <= TreeId::CATALOGUE {
            return refuse("a tree id that cannot be");
        }
        let checkpoint = Epoch(u64_at(block, CHECKPOINT));
        if checkpoint.0 == 0 || checkpoint > LAST_CHECKPOINT {
            return refuse("a checkpoint number that cannot be");
        }
        let [replay_start, log_end, renames_end] = log_places(block)?;
        let mut store_id = [0; 16];
        store_id.copy_from_slice(&block[STORE_ID..STORE_ID + 16]);
        Ok(Superblock {
            compat: u64_at(block, COMPAT),
            read_only_compat: u64_at(block, READ_ONLY_COMPAT),
            incompat: u64_at(block, INCOMPAT),
            store_id,
            checkpoint,
            geometry,
            needs_log: flags & NEEDS_LOG != 0,
            map: MapRoot { slot: map_slot, checksum: map_checksum, levels: map_levels },
            table: TableRoot {
                slot: table_slot,
                checksum: table_checksum,
                levels: table_levels,
                units,
                used_units,
            },
            next_page,
            free_pages,
            next_tree,
            replay_start: Lsn(replay_start),
            log_end: Lsn(log_end),
            renames_end: Lsn(renames_end),
            log_incarnation: u64_at(block, LOG_INCARNATION),
            app_id: u64_at(block, APP_ID),
            user_version: u64_at(block, USER_VERSION),
        })
    }
}

/// Where replay starts, the log's end, and that of the last rename that was replayed.
fn log_places(block: &SuperblockBytes) -> Result<[u64; 3], String> {
    let places = [REPLAY_START, LOG_END, RENAMES_END].map(|at| u64_at(block, at));
    let [replay_start, log_end, renames_end] = places;
    let refuse = |what: &str| Err(what.to_owned());
    if replay_start > log_end {
        return refuse("replay would start after the end of the log");
    }
    let has_renames = u64_at(block, INCOMPAT) & RENAMES_REPLAYED != 0;
    if [renames_end != 0, has_renames] != [renames_end > log_end; 2] {
        return refuse("renames that cannot be");
    }
    // The last addresses and incarnations are left for the logs to come.
    if log_end.max(renames_end) >= 1 << 61 || u64_at(block, LOG_INCARNATION) >= 1 << 62 {
        return refuse("an address of the log that cannot be");
    }
    Ok(places)
}

/// What one block turned out to be.
enum Found {
    /// Beyond the end of the file, or zeroes.
    Absent,
    /// Something without the magic.
    Foreign,
    /// The magic, and then something that cannot be.
    Damaged(String),
    /// Of a newer version, or with a feature that this build must know: the version.
    Newer(u32),
    /// Of a version that is not read any more.
    Older(u32),
    Good(Box<Superblock>),
}

fn examine(block: Option<&SuperblockBytes>, pair: u32) -> Found {
    let Some(block) = block else { return Found::Absent };
    if block.iter().all(|&byte| byte == 0) {
        return Found::Absent;
    }
    if block[..MAGIC.len()] != MAGIC {
        return Found::Foreign;
    }
    if u64_at(block, CHECKSUM) != checksum_of(block) {
        return Found::Damaged("checksum mismatch".to_owned());
    }
    let version = u32_at(block, VERSION);
    if version > FORMAT_VERSION || u64_at(block, INCOMPAT) & !INCOMPAT_FEATURES != 0 {
        return Found::Newer(version);
    }
    if (1..FORMAT_VERSION).contains(&version) {
        return Found::Older(version);
    }
    if version == 0 || u32_at(block, PAIR) != pair {
        return Found::Damaged("a version or a place that cannot be".to_owned());
    }
    match Superblock::decode(block) {
        Ok(superblock) => Found::Good(Box::new(superblock)),
        Err(what) => Found::Damaged(what),
    }
}

/// Finds the newest checkpoint among the four blocks, in the order of [`POSITIONS`]; `None` for a
/// block that lies beyond the end of the file.
///
/// Errors: `NotAStore` if no block has the magic (another file, an empty one, zeroes);
/// `UpgradeRequired` if another version wrote one, or one with unknown features that matter for
/// reading; `Corrupted` with the offset if both blocks of a pair are damaged, if no block is whole,
/// or if whole ones contradict each other.
pub fn choose(blocks: [Option<&SuperblockBytes>; 4]) -> Result<Chosen> {
    let found: [Found; 4] =
        std::array::from_fn(|at| examine(blocks[at], if at % 2 == 0 { 0 } else { 1 }));
    for block in &found {
        let (version, what) = match block {
            Found::Newer(version) => (
                *version,
                format!(
                    "the store has format version {version} or features that this build lacks (it \
                     reads version {FORMAT_VERSION}): use a newer version of Hedgerow"
                ),
            ),
            Found::Older(version) => (
                *version,
                format!(
                    "the store has format version {version}, and this build reads version \
                     {FORMAT_VERSION}: dump it with the build that wrote it, and load the dump"
                ),
            ),
            _ => continue,
        };
        return Err(Error::new(ErrorKind::UpgradeRequired { found: version }, what));
    }
    let mut best: Option<(usize, &Superblock)> = None;
    let mut damaged = Vec::new();
    // The first block of a pair is there before the second is written, and pair 0 before pair 1.
    let is_there = |at: usize| !matches!(found[at], Found::Absent);
    let follows = |at: usize| at < 2 && is_there(at + 2);
    let was_there = |at: usize| follows(at) || matches!(at, 0 | 2) && (is_there(1) || is_there(3));
    for (at, block) in found.iter().enumerate() {
        match block {
            Found::Good(superblock) => {
                // Of equals the first block.
                if best.is_none_or(|(_, other)| superblock.checkpoint > other.checkpoint) {
                    best = Some((at, superblock));
                }
            }
            Found::Damaged(_) | Found::Foreign => damaged.push(POSITIONS[at]),
            Found::Absent if was_there(at) => {
                damaged.push(POSITIONS[at]);
            }
            Found::Absent | Found::Newer(_) | Found::Older(_) => {}
        }
    }
    let first_damage = found.iter().enumerate().find_map(|(at, block)| match block {
        Found::Damaged(what) => Some((POSITIONS[at], what)),
        _ => None,
    });
    let Some((at, superblock)) = best else {
        return Err(match first_damage {
            Some((offset, what)) => Error::corrupted_at(offset, format!("superblock: {what}")),
            None => {
                let empty = found.iter().all(|block| matches!(block, Found::Absent));
                let what = if empty {
                    "the file is too short for a store, or all zeros"
                } else {
                    "the file is not a Hedgerow store"
                };
                Error::new(ErrorKind::NotAStore, what)
            }
        });
    };
    for pair in 0..2 {
        let [first, second] = positions_of(pair);
        if damaged.contains(&first) && damaged.contains(&second) {
            let what = "both copies of a superblock are damaged; a checkpoint may be lost";
            return Err(Error::corrupted_at(first, what));
        }
    }
    for (place, block) in found.iter().enumerate() {
        let Found::Good(other) = block else { continue };
        let same_store =
            other.store_id == superblock.store_id && other.geometry == superblock.geometry;
        let same_number = other.checkpoint == superblock.checkpoint && **other != *superblock;
        let copies = other.checkpoint != superblock.checkpoint || place % 2 == at % 2;
        if !same_store || same_number || !copies {
            let what = "superblocks contradict each other";
            return Err(Error::corrupted_at(POSITIONS[place], what));
        }
    }
    let pair = (at % 2) as u32;
    let is_copy = |place: usize| match &found[place] {
        Found::Good(other) => **other == *superblock,
        _ => false,
    };
    let places = [at % 2, at % 2 + 2];
    let repair =
        places.into_iter().filter(|&place| !is_copy(place)).map(|p| POSITIONS[p]).collect();
    let read_only = superblock.read_only_compat & !READ_ONLY_COMPAT_FEATURES != 0;
    Ok(Chosen { superblock: *superblock, pair, read_only, repair, damaged })
}

fn checksum_of(block: &SuperblockBytes) -> u64 {
    // The function skips eight bytes: here those are the checksum, and the magic before them.
    part_checksum(PartKind::Superblock, 0, &block[CHECKSUM..])
}

fn u32_at(block: &SuperblockBytes, at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&block[at..at + 4]);
    u32::from_le_bytes(bytes)
}

fn u64_at(block: &SuperblockBytes, at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&block[at..at + 8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests;
