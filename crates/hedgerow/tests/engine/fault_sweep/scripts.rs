//! What the stores of a sweep are put through: forty-one short scripts, and a long one, written as data.
//!
//! Plain data. Each script is about one thing and has some neighbours of it, so that a failure of any call meets it
//! half done; each ends with something that comes after what may have failed. Together they use every step. A script
//! begins with a store that was closed (two keyspaces of forty short records and a large value each, and an empty one),
//! with one whose process or power went, or with nothing.

use Step::*;

/// What a script begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// A store that was closed; calls fail once it is open.
    Closed,
    /// The same with chunks so short that values of two are staged; else part of one is.
    Staged,
    /// A store that the power went from; opening it is part of the script.
    Crashed,
    /// An empty disk; creating the store is part of the script.
    Nothing,
}

/// A change of a batch: keyspace, number of the key, and the length of its new value or none.
pub type Part = (&'static str, u64, Option<usize>);

/// A step. Keys are numbers, values are lengths: what is in them is drawn when the step is made. A step on a keyspace
/// that is not there, because it could not be created, does nothing.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Puts one record.
    Put(&'static str, u64, usize),
    /// Puts one record, durably.
    PutSync(&'static str, u64, usize),
    /// Puts records of all keys from the first number to before the second.
    Puts(&'static str, u64, u64, usize),
    /// Removes one record.
    Remove(&'static str, u64),
    /// Removes one record, durably.
    RemoveSync(&'static str, u64),
    /// Puts one record, and is told the value before.
    Exchange(&'static str, u64, usize),
    /// Removes one record, and is told its value.
    Take(&'static str, u64),
    /// Adds to an integer, which is there or not.
    Add(&'static str, u64),
    /// Removes the first record, and is told what it was.
    PopFirst(&'static str),
    /// Removes the last record, durably, and is told what it was.
    PopLast(&'static str),
    /// Removes the records from the first number to before the second.
    RemoveRange(&'static str, u64, u64),
    /// Makes changes as one.
    Batch(&'static [Part]),
    /// Makes changes as one, durably.
    BatchSync(&'static [Part]),
    /// Loads so many records of such values into an empty keyspace, every fifth of them a large one.
    Load(&'static str, u64, usize),
    /// Creates a keyspace.
    Create(&'static str),
    /// Drops a keyspace.
    Drop(&'static str),
    /// Gives a keyspace another name.
    Rename(&'static str, &'static str),
    /// Two keyspaces exchange their names.
    Swap(&'static str, &'static str),
    /// Reads a value.
    Get(&'static str, u64),
    /// Reads all records, forwards.
    Scan(&'static str),
    /// Reads all records, backwards.
    ScanBack(&'static str),
    /// Makes everything durable by the log.
    Sync,
    /// Takes a checkpoint.
    Checkpoint,
    /// Two checkpoints, of which the second finds nothing to write and so gives space back.
    Shrink,
    /// Merges leaves of all keyspaces, and takes checkpoints until the file stops shrinking.
    Compact,
    /// Copies the store.
    Backup,
    /// Checks everything.
    Verify,
    /// Closes the store, and opens it again.
    Close,
    /// The last handle is dropped, and the store is opened again.
    LetGo,
    /// The process dies, and the store is opened again.
    Kill,
    /// The power goes, and the store is opened again.
    Crash,
}

/// A script.
pub struct Script {
    pub name: &'static str,
    pub start: Start,
    /// The only kind of faults that it is for; `None`: it is for all.
    pub only: Option<&'static str>,
    pub steps: &'static [Step],
}

const R: &str = "robins";
const W: &str = "wrens";
/// Empty at the start.
const H: &str = "hollows";
/// Not there at the start.
const T: &str = "terns";
/// The first of the long keys.
const L: u64 = crate::common::LONG;
/// Instead of a length: one that is drawn from lengths as programs store them and from those at the limits at which the
/// engine stores a value in another way.
pub const ANY: usize = usize::MAX;
/// The key of the large value that `R` and `W` have at the start.
pub const SONG: u64 = 900;

const fn closed(name: &'static str, steps: &'static [Step]) -> Script {
    Script { name, start: Start::Closed, only: None, steps }
}

const fn staged(name: &'static str, steps: &'static [Step]) -> Script {
    Script { name, start: Start::Staged, only: None, steps }
}

const fn crashed(name: &'static str, steps: &'static [Step]) -> Script {
    Script { name, start: Start::Crashed, only: None, steps }
}

// A line of a script for a line of steps: one step a line would be three times as long.
#[rustfmt::skip]
pub static SCRIPTS: [Script; 42] = [
    // Single records.
    closed("puts", &[Put(R, 100, 20), Put(W, 0, 0), Put(R, 100, 60), Sync, Put(R, 101, 30)]),
    closed("synced-puts", &[PutSync(R, 100, 20), PutSync(W, 1, 90), Put(R, 2, 9), PutSync(R, 3, 9)]),
    closed("overwrites", &[Puts(R, 0, 30, 70), Checkpoint, Puts(R, 0, 30, 10), PutSync(W, 0, 1)]),
    closed("splits", &[Puts(R, 40, 90, 80), Checkpoint, Puts(R, 90, 100, 90), Sync, Scan(R)]),
    closed("removals", &[
        Remove(R, 3), RemoveSync(R, 4), Remove(W, 500), Checkpoint, Remove(R, 5), RemoveSync(W, SONG),
        PutSync(R, 3, 30), Scan(W),
    ]),
    closed("short-values-become-long", &[
        Put(R, 1, 300), Put(R, 2, 100), Checkpoint, Put(R, 1, 10), PutSync(R, 2, 2000), Checkpoint,
        Get(R, 1), Get(R, 2),
    ]),
    closed("read-modify-write", &[
        Add(R, 800), Exchange(R, 1, 20), Take(W, 2), Add(R, 800), PopFirst(R), Exchange(R, SONG, 3000), Checkpoint,
        PopLast(W), Add(R, 800), Exchange(W, 3, 2000), Take(W, 3), PopFirst(H), Take(R, SONG), PopLast(R), Scan(R),
    ]),
    // Long keys, which share a head; of the last ones records have to move.
    closed("long-keys", &[
        Puts(R, L, L + 9, 20), PutSync(R, L + 1, 90), Remove(R, L + 2), Checkpoint, RemoveRange(R, L + 3, L + 6),
        BatchSync(&[(R, L + 1, None), (R, L + 20, Some(30)), (W, L + 7, Some(3000))]), Scan(R), ScanBack(W),
        Get(R, L + 8), Close, Get(R, L + 7),
    ]),
    staged("long-keys-come-and-go", &[
        Batch(&[(W, L, Some(9)), (W, L + 1, Some(9)), (W, L + 2, Some(4000))]), Kill, Put(W, L + 1, 700),
        RemoveRange(W, 0, L + 2), Checkpoint, RemoveSync(W, L + 2), Crash, PutSync(W, L + 2, 20), Verify,
    ]),
    closed("long-keys-move", &[
        Put(R, L, 20), Put(R, L + 900, 20), Puts(R, L + 1, L + 34, 9), Checkpoint, Puts(R, L + 34, L + 40, 9),
        Sync, Scan(R), Put(R, L + 40, 9), Kill, Get(R, L + 39), ScanBack(R),
    ]),
    // Ranges.
    closed("range-removal", &[RemoveRange(R, 5, 30), Sync, Put(R, 6, 30), Checkpoint, Scan(R)]),
    closed("range-removal-and-merges", &[
        Puts(R, 40, 70, 60), Checkpoint, RemoveRange(R, 2, 68), Puts(R, 30, 40, 60),
        RemoveRange(W, 0, 1000), Checkpoint, PutSync(W, 1, 20), Scan(R),
    ]),
    closed("scans", &[
        Scan(R), ScanBack(W), Put(R, 20, 90), ScanBack(R), Get(W, SONG), RemoveRange(W, 10, 20),
        Scan(W), PutSync(R, 8, 8),
    ]),
    // Batches.
    closed("batches", &[
        Batch(&[(R, 1, Some(30)), (W, 1, None), (R, 70, Some(80)), (W, 71, Some(3))]),
        Put(R, 2, 30), Batch(&[(W, 1, Some(9)), (W, 99, None)]), Sync, Put(W, 3, 30),
    ]),
    closed("synced-batches", &[
        BatchSync(&[(W, 7, Some(30)), (R, 7, None), (R, 8, None), (R, 200, Some(60))]),
        Checkpoint, BatchSync(&[(R, 7, Some(50)), (W, 7, None)]), Put(W, 7, 1), Get(R, 7),
    ]),
    closed("batches-of-large-values", &[
        Batch(&[(R, SONG, Some(5000)), (W, SONG, None), (W, 4, Some(50)), (W, 901, Some(3000))]),
        Checkpoint, BatchSync(&[(R, SONG, None), (W, 901, Some(4000)), (R, 9, Some(9))]),
        Get(W, 901), PutSync(R, 1, 1),
    ]),
    // Large values.
    closed("large-values", &[
        Put(R, 901, 9000), Get(R, 901), PutSync(W, 901, 5000), Get(W, SONG), Checkpoint, Get(R, SONG),
        Put(R, SONG, 30), Checkpoint, PutSync(W, SONG, 2000),
    ]),
    closed("large-values-come-and-go", &[
        Put(R, 901, 20_000), Remove(R, SONG), Checkpoint, Put(W, 901, 8000), RemoveSync(R, 901), Shrink,
        PutSync(R, 902, 12_000), Shrink, Get(W, 901),
    ]),
    staged("values-that-are-staged", &[
        Put(R, 901, 300), Put(R, 902, 5000), Get(W, SONG), Put(W, 903, 8184), Sync, Put(R, 902, 700),
        Put(W, 903, 8185), Get(R, 902), Remove(R, 901), Checkpoint, PutSync(R, 904, 600), Put(W, 905, 20),
        Scan(R),
    ]),
    staged("staged-values-change-their-form", &[
        Put(R, 901, 3000), Put(R, 901, 20), Put(R, 901, 9000), Put(R, 901, 512), Put(R, 901, 158),
        Put(R, 901, 157), Batch(&[(R, 901, Some(513)), (R, SONG, None), (W, SONG, Some(40))]), Checkpoint,
        Put(R, 1, 4000), RemoveSync(R, 901), Shrink, PutSync(R, 2, 2000), Verify,
    ]),
    staged("staged-values-and-accidents", &[
        Put(R, 901, 3000), Put(W, 901, 1000), Crash, Put(R, 902, 2000), Sync, Put(R, 903, 800), Kill,
        Puts(R, 910, 930, 700), Crash, Load(H, 10, 600), Put(R, 904, 900), LetGo, Backup, Get(R, 904),
    ]),
    // Lengths of the mix: those of a seed are the same in all runs, another `HEDGEROW_SEED` has others.
    closed("lengths-of-the-mix", &[
        Puts(R, 0, 4, ANY), Checkpoint, Puts(R, 0, 4, ANY), PutSync(W, 901, ANY), Exchange(R, 2, ANY), Checkpoint,
        Batch(&[(R, 1, Some(ANY)), (W, 901, Some(ANY)), (R, 3, None)]), Crash, Puts(R, 1, 4, ANY), Take(R, 2), Shrink,
        Verify, PutSync(W, SONG, ANY), Scan(R),
    ]),
    staged("lengths-of-the-mix-staged", &[
        Puts(W, 0, 4, ANY), Kill, BatchSync(&[(W, 1, Some(ANY)), (R, 1, Some(ANY)), (W, 2, None)]), Puts(W, 0, 4, ANY),
        Checkpoint, Load(H, 8, ANY), PutSync(W, 3, ANY), RemoveRange(W, 0, 3), Backup, PutSync(H, 2, ANY), ScanBack(H),
    ]),
    // Checkpoints and space.
    closed("checkpoints", &[
        Put(R, 1, 1), Checkpoint, Checkpoint, Puts(W, 0, 20, 50), Checkpoint, Remove(W, 3), Checkpoint,
        PutSync(R, 2, 2), Checkpoint,
    ]),
    closed("shrinking", &[
        Puts(R, 40, 140, 90), Put(W, 901, 30_000), Checkpoint, RemoveRange(R, 0, 130), Remove(W, 901),
        Shrink, Shrink, PutSync(R, 1, 20), Scan(R),
    ]),
    closed("compaction", &[
        Puts(R, 40, 140, 90), Puts(W, 0, 90, 20), Checkpoint, Remove(R, 41), Remove(W, 3), Compact, Put(R, 41, 30),
        RemoveRange(R, 60, 100), Compact, PutSync(R, 1, 20), Scan(R),
    ]),
    closed("verification", &[Puts(R, 30, 50, 50), Verify, Put(R, 1, 1), Verify, PutSync(W, 1, 1)]),
    closed("backups", &[
        Put(R, 1, 70), Backup, Put(R, 901, 3000), Remove(W, SONG), Backup, PutSync(R, 2, 2),
    ]),
    // Keyspaces.
    closed("keyspaces-come", &[
        Create(T), Put(T, 1, 20), PutSync(T, 2, 2), Create("gulls"), Checkpoint, Puts("gulls", 0, 20, 80),
        Sync, Scan("gulls"),
    ]),
    closed("keyspaces-go", &[
        Drop(W), Put(R, 1, 1), Checkpoint, Drop(H), Drop("gulls"), Drop(R), Create(T), PutSync(T, 1, 9),
    ]),
    closed("keyspaces-come-back", &[
        Drop(R), Create(R), Puts(R, 0, 10, 60), Checkpoint, Drop(R), Create(R), PutSync(R, 1, 30),
        Put(R, SONG, 2000), Shrink,
    ]),
    closed("keyspaces-change-names", &[
        Rename(R, T), PutSync(T, 1, 30), Swap(T, W), Put(W, 2, 9), Checkpoint, Rename(W, R), Crash, Put(R, 3, 20),
        Swap(H, R), Load(R, 10, 60), Kill, Rename(T, "gulls"), Drop(R), Rename(H, R), PutSync(R, 1, 1),
    ]),
    // Loads.
    closed("loads", &[Load(H, 40, 60), Get(H, 5), PutSync(H, 100, 30), Scan(H), Checkpoint]),
    closed("loads-after-changes", &[
        Puts(R, 0, 20, 60), Load(H, 20, 300), Put(R, 1, 3), Load(R, 5, 5), Checkpoint, Drop(H), Sync,
    ]),
    // Closing and opening.
    closed("closing", &[
        Puts(R, 10, 20, 60), PutSync(W, 1, 1), Close, Put(R, 1, 20), Get(W, 1), Close, PutSync(R, 2, 2),
    ]),
    closed("dying", &[
        Puts(R, 10, 20, 60), PutSync(W, 901, 3000), Put(W, 2, 2), Kill, Put(R, 3, 30), Checkpoint,
        Put(R, 4, 30), Kill, Put(R, 5, 30), LetGo, PutSync(R, 2, 2), Crash, Put(W, 3, 3000), LetGo, Scan(R),
    ]),
    // Recoveries.
    crashed("recovery", &[Get(R, 1), PutSync(R, 1, 1), Scan(W)]),
    crashed("recoveries", &[
        Put(R, 1, 20), BatchSync(&[(R, 2, Some(3)), (W, 2, None)]), Put(W, 901, 3000), Crash,
        RemoveRange(R, 0, 9), Sync, Crash, PutSync(R, 2, 2),
    ]),
    crashed("recovery-and-closing", &[Checkpoint, RemoveSync(R, 1), Close, Backup, PutSync(R, 2, 2)]),
    Script {
        name: "creation",
        start: Start::Nothing,
        only: None,
        steps: &[
            Create(R), Puts(R, 0, 20, 60), Sync, Put(R, SONG, 3000), Checkpoint, Load(R, 2, 2), Close,
            Get(R, SONG), PutSync(R, 3, 3),
        ],
    },
    // Something of everything.
    closed("everything", &[
        Put(R, 100, 20), PutSync(W, 1, 30), Batch(&[(R, 1, Some(50)), (W, 2, None)]), Put(R, 901, 4000),
        Checkpoint, Create(T), Put(T, 1, 60), RemoveRange(W, 10, 35), Load(H, 12, 50), Verify,
        BatchSync(&[(T, 1, None), (T, 2, Some(9)), (R, SONG, Some(2500))]), Backup, Drop(T), Shrink,
        Put(R, 5, 5), Crash, Scan(R), RemoveSync(R, 901), Close, ScanBack(W), PutSync(W, 3, 3),
    ]),
    // Holes are punched only where more than eight MiB in the middle of the file are free: too much for the other kinds.
    Script {
        name: "punching",
        start: Start::Closed,
        only: Some("punch-eio"),
        steps: &[
            Put(R, 901, 9 << 20), Put(W, 901, 60_000), Checkpoint, Remove(R, 901), Checkpoint,
            PutSync(R, 1, 1), Shrink, PutSync(R, 2, 2),
        ],
    },
];
