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
}
