//! Tells the model checker which plain bytes a thread touches, where they are reached through raw pointers.
//!
//! Loom sees atomics and its own cells, and nothing else: a protocol that hands ranges of a buffer from thread to
//! thread touches a witness with each range, and loom reports two touches that nothing orders. Outside of loom it
//! is nothing at all. `Send + Sync`.

/// Represents a buffer in a model, which then notices two threads that use a range at once. A range is named by where it begins.
#[derive(Default)]
pub struct Witness {
    #[cfg(loom)]
    cells: std::sync::Mutex<std::collections::BTreeMap<u64, super::Arc<Cell>>>,
}

#[cfg(loom)]
struct Cell(loom::cell::UnsafeCell<()>);

// SAFETY: the cell holds nothing; that its uses do not overlap is what loom checks.
#[cfg(loom)]
unsafe impl Sync for Cell {}
// SAFETY: as above.
#[cfg(loom)]
unsafe impl Send for Cell {}

impl std::fmt::Debug for Witness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Witness").finish_non_exhaustive()
    }
}

impl Witness {
    /// The range that begins at `at` is used by this thread alone.
    #[inline]
    pub fn touch(&self, at: u64) {
        let _ = at;
        #[cfg(loom)]
        {
            let cell = {
                let mut cells = self.cells.lock().expect("nobody panics with it");
                let new = || super::Arc::new(Cell(loom::cell::UnsafeCell::new(())));
                cells.entry(at).or_insert_with(new).clone()
            };
            cell.0.with_mut(|_| ());
        }
    }

    /// All ranges that begin from `from` to `to`, which were touched before, are used by this thread alone.
    #[inline]
    pub fn touch_all(&self, from: u64, to: u64) {
        let _ = (from, to);
        #[cfg(loom)]
        {
            let cells: Vec<_> = {
                let cells = self.cells.lock().expect("nobody panics with it");
                cells.range(from..to).map(|(_, cell)| cell.clone()).collect()
            };
            for cell in cells {
                cell.0.with_mut(|_| ());
            }
        }
    }
}
