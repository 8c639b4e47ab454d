//! Where the memory of versions comes from, and what else this folder asks of the store round it.
//!
//! The buffer pool lends frames; models and tests lend plain memory. `Send + Sync` as the traits say.

use crate::error::Result;
use crate::types::Lsn;
use crate::versions::frozen::FrozenPart;
use crate::wait::Waiting;

/// Memory that is lent: its bytes are the borrower's alone, and dropping it gives it back.
pub trait Block: AsRef<[u8]> + AsMut<[u8]> + Send {}

impl<T: AsRef<[u8]> + AsMut<[u8]> + Send> Block for T {}

/// Lends blocks of one size.
pub trait Memory: Send + Sync {
    /// What it lends.
    type Block: Block;
    /// What versions are put into that take too much of it.
    type Frozen: FrozenPart;

    /// Bytes of a block: a power of two, at least 256.
    fn block_bytes(&self) -> usize;

    /// How many blocks may be lent at a time, at least [`LEAST_BLOCKS`].
    fn most_blocks(&self) -> u32;

    /// Lends a block of any content. `None`: [`Self::most_blocks`] are lent, or none can be spared at present. May wait for the disk, so
    /// the caller holds no latch and is inside of no epoch.
    ///
    /// # Errors
    /// Those of the pool.
    fn lend(&self) -> Result<Option<Self::Block>>;
}

/// The fewest blocks that versions need: one to find them by, the others for the longest of them.
pub const LEAST_BLOCKS: u32 = 8;

/// The order of changes, and who is making one.
pub trait Surroundings {
    /// A moment: every change that is given an LSN up to it has it by now, and who looks at its leaf behind this finds that latched, or
    /// changed. With a log it is the end of the newest record: an acquire load of a word that whoever is given an LSN changes with release,
    /// under the latch of his leaf. Without one it is [`Clock::moment`](super::Clock::moment).
    fn tail(&self) -> Lsn;

    /// An LSN that no later moment is below. Unlike [`Self::tail`] it ends no moment.
    fn reached(&self) -> Lsn {
        self.tail()
    }

    /// Waits until each stay that somebody is inside of now has ended. Who enters later sees what the caller stored before. The caller
    /// is inside of none.
    fn wait_for_stays(&self);

    /// A quarter of the memory for versions is in use, and a checkpoint would take a snapshot over that needs them. Waits for nothing.
    fn request_checkpoint(&self) {}

    /// Nearly all of it is. Waits for a checkpoint to end, for a second at most. False: none has ended. The caller is inside of no epoch, and holds
    /// nothing.
    ///
    /// # Errors
    /// Those of `waiting`.
    fn wait_for_checkpoint(&self, waiting: &Waiting<'_>) -> Result<bool> {
        waiting.check().map(|()| false)
    }
}
