//! Pages that do not change any more: what a tree of a pinned checkpoint needs of whoever has its pages.

use crate::error::Result;
use crate::types::PageId;

/// Pages that nobody changes as long as this value lives. Nothing is latched, and nothing validated.
pub trait FrozenPages {
    /// Bytes of a page.
    fn page_bytes(&self) -> usize;

    /// Hands a page to `look`, once. False, and nothing is handed over: there is no such page. `look` reads no other one.
    ///
    /// # Errors
    /// Those of reading it; `Corrupted`.
    fn read(&self, id: PageId, look: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Reads pages that will be asked for in this order, those that are not in memory with one submission, if the first is one of those.
    /// Gives how many of them are in memory then, as far as there is room for them. A hint: what cannot be read is told when it is asked for.
    fn read_ahead(&self, _ids: &[PageId]) -> usize {
        0
    }
}
