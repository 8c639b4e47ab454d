//! The contents of a simulated disk as a plain value: what the running system sees, what is durable,
//! and the changes in between, each of which a crash may keep, drop or tear.
//!
//! A value without locks: cloning shares all bytes, so that a test can fork a disk at every
//! call. Invariant: without a lost sync, the durable bytes with all pending changes applied in order
//! are the live bytes.

use super::super::sparse::{BLOCK_BYTES, SparseBytes};
use hedgerow::internals::error::Result;
use hedgerow::internals::storage::parent_directory;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::SplitMix64;
use std::collections::BTreeMap;
use std::path::Path;
use twox_hash::XxHash3_64;

/// Name of a file of a simulated disk, for its whole life: paths come and go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileNumber(pub(super) u32);

/// A change that is not durable yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Bytes were written.
    Write {
        /// Into this file.
        file: FileNumber,
        /// At this place.
        offset_bytes: u64,
        /// What was written.
        bytes: Arc<[u8]>,
    },
    /// The length changed: by `set_len`, `allocate`, or a write behind the end.
    Length {
        /// Of this file.
        file: FileNumber,
        /// To this.
        len_bytes: u64,
    },
    /// A hole was punched.
    Punch {
        /// Into this file.
        file: FileNumber,
        /// At this place.
        offset_bytes: u64,
        /// Of this length.
        len_bytes: u64,
    },
    /// A path came to name a file that was just created.
    Create {
        /// The path.
        path: Arc<Path>,
        /// The new file.
        file: FileNumber,
    },
    /// A path was removed.
    Unlink {
        /// The path.
        path: Arc<Path>,
    },
    /// A file got another path, whose former file lost it. Atomic.
    Rename {
        /// The old path.
        from: Arc<Path>,
        /// The new path.
        to: Arc<Path>,
        /// The file.
        file: FileNumber,
    },
}

impl Change {
    /// Into how many pieces a crash can tear the change: 1 for all but writes.
    pub fn pieces(&self, piece_bytes: u64) -> usize {
        match self {
            Change::Write { offset_bytes, bytes, .. } => {
                let end = offset_bytes + bytes.len() as u64;
                (end.div_ceil(piece_bytes) - offset_bytes / piece_bytes) as usize
            }
            _ => 1,
        }
    }

    pub(super) fn file(&self) -> Option<FileNumber> {
        match self {
            Change::Write { file, .. }
            | Change::Length { file, .. }
            | Change::Punch { file, .. } => Some(*file),
            _ => None,
        }
    }

    fn is_in_directory(&self, directory: &Path) -> bool {
        match self {
            Change::Create { path, .. }
            | Change::Unlink { path }
            | Change::Rename { to: path, .. } => parent_directory(path) == directory,
            _ => false,
        }
    }
}

/// What a crash does to one pending change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It reached the disk.
    Keep,
    /// It did not.
    Drop,
    /// Some pieces of it did: those that lie between multiples of `piece_bytes` in the file, in
    /// order; pieces beyond the list did not. Changes other than writes are kept if the first is.
    Torn {
        /// Size of a piece: at least 512 on any real disk.
        piece_bytes: u64,
        /// Which pieces reached the disk.
        kept: Vec<bool>,
    },
}

#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) live: SparseBytes,
    pub(super) durable: SparseBytes,
    /// A failed sync dropped changes that the running system still sees.
    diverged: bool,
    pub(super) handles: usize,
}

type Entries = BTreeMap<Arc<Path>, FileNumber>;

static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Everything on a simulated disk.
#[derive(Clone, Debug, Default)]
pub struct SimState {
    nodes: Vec<Node>,
    entries: Entries,
    durable_entries: Entries,
    pending: Vec<Change>,
}

impl SimState {
    /// The changes that are not durable yet, oldest first.
    pub fn pending(&self) -> &[Change] {
        &self.pending
    }

    /// The bytes of a file as the running system sees them, or `None` if there is no such file.
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let node = self.node(*self.entries.get(path)?);
        let mut bytes = vec![0; node.live.len_bytes() as usize];
        node.live.read(0, &mut bytes).then_some(bytes)
    }

    /// Puts a file with these bytes at `path`, durably, whatever was there before: damage of every
    /// sort. Handles of an open file see the new bytes.
    pub fn set_contents(&mut self, path: &Path, bytes: &[u8]) -> Result<()> {
        let mut sparse = SparseBytes::default();
        sparse.write(0, bytes)?;
        let file = match self.entries.get(path) {
            Some(&file) => file,
            None => {
                let file = FileNumber(self.nodes.len() as u32);
                self.nodes.push(Node::default());
                self.entries.insert(path.into(), file);
                self.durable_entries.insert(path.into(), file);
                file
            }
        };
        self.pending.retain(|change| change.file() != Some(file));
        let node = self.node_mut(file);
        node.live = sparse.clone();
        node.durable = sparse;
        node.diverged = false;
        Ok(())
    }

    /// The paths of all files, in order.
    pub fn paths(&self) -> Vec<Arc<Path>> {
        self.entries.keys().cloned().collect()
    }

    /// Bytes that all files take up.
    pub fn allocated_bytes(&self) -> u64 {
        self.nodes.iter().map(|node| node.live.allocated_bytes()).sum()
    }

    /// A number for all that a system which starts now can read: paths, lengths and bytes. The same contents have the
    /// same number, others hardly ever. What is pending does not count.
    pub fn fingerprint(&self) -> u64 {
        let mut sums = Vec::new();
        for (path, &file) in &self.entries {
            let live = &self.node(file).live;
            sums.extend_from_slice(path.as_os_str().as_encoded_bytes());
            sums.push(0);
            sums.extend_from_slice(&live.len_bytes().to_le_bytes());
            for (number, block) in live.present_blocks() {
                sums.extend_from_slice(&(number as u64).to_le_bytes());
                // Logs are zeros for the most part.
                let sum = if *block == ZEROS { 0 } else { XxHash3_64::oneshot(block) };
                sums.extend_from_slice(&sum.to_le_bytes());
            }
        }
        XxHash3_64::oneshot(&sums)
    }

    /// What the end of the process leaves while the system lives on: all that was written is there, and what was not
    /// synced is still pending, for a later sync to make durable, or a later crash to take. Files without a path end
    /// with their last handle.
    pub fn kill(&self) -> SimState {
        let mut after = self.fork();
        for number in 0..after.nodes.len() {
            after.forget_if_unused(FileNumber(number as u32));
        }
        after
    }

    /// What a crash leaves when the pending changes meet these fates; changes beyond the list are
    /// dropped. Where `garbage` is a seed, sectors that were to be written for the first time and
    /// were not show garbage instead of zeros.
    pub fn crash(&self, fates: &[Fate], garbage: Option<u64>) -> SimState {
        let mut after = SimState {
            nodes: Vec::with_capacity(self.nodes.len()),
            entries: self.durable_entries.clone(),
            ..SimState::default()
        };
        let mut lengths = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            lengths.push(node.durable.len_bytes());
            after.nodes.push(Node { live: node.durable.clone(), ..Node::default() });
        }
        let fate_of = |index: usize| fates.get(index).unwrap_or(&Fate::Drop);
        if let Some(seed) = garbage {
            let mut random = SplitMix64::new(seed);
            for (index, change) in self.pending.iter().enumerate() {
                if let Change::Write { file, offset_bytes, bytes } = change {
                    let fate = fate_of(index);
                    for (start, piece) in pieces_of(fate, false, *offset_bytes, bytes) {
                        after.litter(*file, start, piece.len(), &mut random, self);
                    }
                }
            }
        }
        for (index, change) in self.pending.iter().enumerate() {
            after.apply(change, fate_of(index), &mut lengths);
        }
        for (node, len) in after.nodes.iter_mut().zip(lengths) {
            let cut = node.live.set_len(len);
            debug_assert!(cut.is_ok(), "a length that a file had before is possible");
            node.durable = node.live.clone();
        }
        after.durable_entries = after.entries.clone();
        after
    }

    /// What a crash leaves when each pending change meets a fate by the dice: kept, dropped or torn
    /// (at 512 bytes in a quarter of the cases, at 4 KiB in the others), with garbage every other time.
    pub fn crash_at_random(&self, seed: u64) -> SimState {
        let mut random = SplitMix64::new(seed);
        // Lots of crashes lose all or nothing; even odds for each change would hardly ever do that.
        let keep_of_8 = random.below(9);
        let fates: Vec<Fate> = self
            .pending
            .iter()
            .map(|change| {
                let piece_bytes = if random.below(4) == 0 { 512 } else { BLOCK_BYTES as u64 };
                let pieces = change.pieces(piece_bytes);
                let kept = (0..pieces).map(|_| random.below(8) < keep_of_8).collect();
                match random.below(3) {
                    0 => Fate::Torn { piece_bytes, kept },
                    _ if random.below(8) < keep_of_8 => Fate::Keep,
                    _ => Fate::Drop,
                }
            })
            .collect();
        let garbage = (random.below(2) == 0).then(|| random.next_u64());
        self.crash(&fates, garbage)
    }

    /// Into how many pieces a crash can tear the pending changes, all together; see [`Change::pieces`].
    pub fn pending_pieces(&self, piece_bytes: u64) -> usize {
        self.pending.iter().map(|change| change.pieces(piece_bytes)).sum()
    }

    /// Every way in which the pieces of the pending changes can be kept or dropped: 2^n lists for
    /// [`SimState::crash`]. Pieces of `u64::MAX` bytes are whole changes. Where `tried` says how many
    /// of the pieces, oldest first, had been there when this was last asked, those ways are left out
    /// that drop all newer pieces. `None` if there are more than `max_pieces`.
    pub fn survivor_subsets(
        &self,
        piece_bytes: u64,
        max_pieces: usize,
        tried: Option<usize>,
    ) -> Option<impl Iterator<Item = Vec<Fate>> + use<>> {
        let counts: Vec<usize> = self.pending.iter().map(|c| c.pieces(piece_bytes)).collect();
        let count: usize = counts.iter().sum();
        if count > max_pieces.min(30) {
            return None;
        }
        let first = tried.map_or(0, |tried| 1_u64 << tried.min(count));
        Some((first..1_u64 << count).map(move |mut subset| {
            let fate_of = |&pieces: &usize| {
                let kept = (0..pieces).map(|index| subset >> index & 1 == 1).collect();
                subset >>= pieces;
                Fate::Torn { piece_bytes, kept }
            };
            counts.iter().map(fate_of).collect()
        }))
    }

    /// The file that a path names.
    pub(super) fn lookup(&self, path: &Path) -> Option<FileNumber> {
        self.entries.get(path).copied()
    }

    /// A path that the file has.
    pub(super) fn path_of(&self, file: FileNumber) -> Option<Arc<Path>> {
        let entry = self.entries.iter().find(|entry| *entry.1 == file);
        entry.map(|(path, _)| Arc::clone(path))
    }

    /// The file, if there was one of that number yet.
    pub(super) fn find_node(&self, file: FileNumber) -> Option<&Node> {
        self.nodes.get(file.0 as usize)
    }

    pub(super) fn node(&self, file: FileNumber) -> &Node {
        &self.nodes[file.0 as usize]
    }

    pub(super) fn node_mut(&mut self, file: FileNumber) -> &mut Node {
        &mut self.nodes[file.0 as usize]
    }

    pub(super) fn create(&mut self, path: &Path) -> FileNumber {
        let file = FileNumber(self.nodes.len() as u32);
        self.nodes.push(Node::default());
        let path: Arc<Path> = path.into();
        self.entries.insert(Arc::clone(&path), file);
        self.pending.push(Change::Create { path, file });
        file
    }

    pub(super) fn unlink(&mut self, path: &Path) {
        if let Some(file) = self.entries.remove(path) {
            self.pending.push(Change::Unlink { path: path.into() });
            self.forget_if_unused(file);
        }
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        if let Some(file) = self.entries.remove(from) {
            let to: Arc<Path> = to.into();
            let replaced = self.entries.insert(Arc::clone(&to), file);
            self.pending.push(Change::Rename { from: from.into(), to, file });
            if let Some(replaced) = replaced {
                self.forget_if_unused(replaced);
            }
        }
    }

    /// Gives the room of a file back that has neither a path nor a handle any more.
    pub(super) fn forget_if_unused(&mut self, file: FileNumber) {
        let linked = self.entries.values().any(|&other| other == file);
        let node = self.node_mut(file);
        if node.handles == 0 && !linked {
            node.live = SparseBytes::default();
            node.diverged = true;
        }
    }

    pub(super) fn write(
        &mut self,
        file: FileNumber,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let before = self.node(file).live.len_bytes();
        self.node_mut(file).live.write(offset_bytes, bytes)?;
        self.note_length(file, before);
        self.pending.push(Change::Write { file, offset_bytes, bytes: bytes.into() });
        Ok(())
    }

    pub(super) fn set_len(&mut self, file: FileNumber, len_bytes: u64) -> Result<()> {
        let before = self.node(file).live.len_bytes();
        self.node_mut(file).live.set_len(len_bytes)?;
        self.note_length(file, before);
        Ok(())
    }

    pub(super) fn allocate(&mut self, file: FileNumber, offset: u64, len: u64) -> Result<()> {
        let before = self.node(file).live.len_bytes();
        self.node_mut(file).live.allocate(offset, len)?;
        self.note_length(file, before);
        Ok(())
    }

    pub(super) fn punch(&mut self, file: FileNumber, offset_bytes: u64, len_bytes: u64) {
        self.node_mut(file).live.punch(offset_bytes, len_bytes);
        self.pending.push(Change::Punch { file, offset_bytes, len_bytes });
    }

    fn note_length(&mut self, file: FileNumber, before: u64) {
        let len_bytes = self.node(file).live.len_bytes();
        if len_bytes != before {
            self.pending.push(Change::Length { file, len_bytes });
        }
    }

    /// Makes the file's changes durable.
    pub(super) fn sync(&mut self, file: FileNumber) {
        if self.node(file).diverged {
            let fates: Vec<Fate> = self
                .pending
                .iter()
                .map(|c| if c.file() == Some(file) { Fate::Keep } else { Fate::Drop })
                .collect();
            let durable = self.crash(&fates, None).node(file).live.clone();
            self.node_mut(file).durable = durable;
        } else {
            let node = self.node_mut(file);
            node.durable = node.live.clone();
        }
        self.pending.retain(|change| change.file() != Some(file));
    }

    /// Forgets the file's changes as a failed sync may: what runs still sees them, and no later sync
    /// brings them to the disk.
    pub(super) fn lose(&mut self, file: FileNumber) {
        let before = self.pending.len();
        // How long a file is and where it has holes a file system keeps in its journal, which goes on or ends everything.
        let is_data = |change: &Change| matches!(change, Change::Write { .. });
        self.pending.retain(|change| change.file() != Some(file) || !is_data(change));
        if self.pending.len() != before {
            self.node_mut(file).diverged = true;
        }
    }

    /// Makes the changes of a directory's entries durable.
    pub(super) fn sync_dir(&mut self, directory: &Path) {
        let (now, later) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|change| change.is_in_directory(directory));
        self.pending = later;
        let now: Vec<Change> = now;
        for change in &now {
            change_entries(&mut self.durable_entries, change);
        }
    }

    /// A copy for a disk of its own, on which nothing is open.
    pub(super) fn fork(&self) -> SimState {
        let mut fork = self.clone();
        for node in &mut fork.nodes {
            node.handles = 0;
        }
        fork
    }

    fn apply(&mut self, change: &Change, fate: &Fate, lengths: &mut [u64]) {
        let kept = match fate {
            Fate::Keep => true,
            Fate::Drop => false,
            Fate::Torn { kept, .. } => kept.first() == Some(&true),
        };
        match change {
            Change::Write { file, offset_bytes, bytes } => {
                for (start, piece) in pieces_of(fate, true, *offset_bytes, bytes) {
                    let written = self.node_mut(*file).live.write(start, piece);
                    debug_assert!(written.is_ok(), "a write that went well before is possible");
                }
            }
            Change::Length { file, len_bytes } if kept => {
                let live = &mut self.node_mut(*file).live;
                if *len_bytes < live.len_bytes() {
                    let cut = live.set_len(*len_bytes);
                    debug_assert!(cut.is_ok(), "a file can always be cut");
                }
                lengths[file.0 as usize] = *len_bytes;
            }
            Change::Punch { file, offset_bytes, len_bytes } if kept => {
                self.node_mut(*file).live.punch(*offset_bytes, *len_bytes);
            }
            _ if kept => change_entries(&mut self.entries, change),
            _ => {}
        }
    }

    /// Fills the sectors of a range that `before` has no durable block for with garbage.
    fn litter(
        &mut self,
        file: FileNumber,
        start: u64,
        len: usize,
        random: &mut SplitMix64,
        before: &SimState,
    ) {
        let end = start + len as u64;
        let mut at = start;
        while at < end {
            let next = end.min((at / 512 + 1) * 512);
            if before.node(file).durable.missing_bytes(at, next - at) > 0 {
                let garbage: Vec<u8> = (at..next).map(|_| random.next_u64() as u8).collect();
                let written = self.node_mut(file).live.write(at, &garbage);
                debug_assert!(written.is_ok(), "a write that went well before is possible");
            }
            at = next;
        }
    }
}

fn change_entries(entries: &mut Entries, change: &Change) {
    match change {
        Change::Create { path, file } => {
            entries.insert(Arc::clone(path), *file);
        }
        Change::Unlink { path } => {
            entries.remove(path);
        }
        Change::Rename { from, to, file } => {
            if entries.get(from) == Some(file) {
                entries.remove(from);
            }
            entries.insert(Arc::clone(to), *file);
        }
        Change::Write { .. } | Change::Length { .. } | Change::Punch { .. } => {}
    }
}

/// The parts of a write at `offset` that its fate keeps (or, for `want == false`, does not).
fn pieces_of<'a>(fate: &Fate, want: bool, offset: u64, bytes: &'a [u8]) -> Vec<(u64, &'a [u8])> {
    let (piece_bytes, kept) = match fate {
        Fate::Keep if want => return vec![(offset, bytes)],
        Fate::Drop if !want => return vec![(offset, bytes)],
        Fate::Keep | Fate::Drop => return Vec::new(),
        Fate::Torn { piece_bytes, kept } => (*piece_bytes, kept),
    };
    let end = offset + bytes.len() as u64;
    let mut pieces = Vec::new();
    let mut at = offset;
    let mut index = 0;
    while at < end {
        let next = end.min((at / piece_bytes + 1) * piece_bytes);
        if kept.get(index).copied().unwrap_or(false) == want {
            pieces.push((at, &bytes[(at - offset) as usize..(next - offset) as usize]));
        }
        at = next;
        index += 1;
    }
    pieces
}
