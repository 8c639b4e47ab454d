//! Runs a cell on a store that lives in this process.
//!
//! A competitor implements [`Engine`], and [`Session`] for what one thread does with it; [`main`]
//! is the whole program then. Everything is generic, so that a look-up is inlined into the loop
//! that times it.
//!
//! The first sessions are for loading. The store is made, loaded and measured by one thread; in a phase each thread has a session of
//! its own.

mod meters;
mod phase;

use crate::cell::{
    Cell, CellError, CellResult, Durability, EXIT_UNSUPPORTED, LoadOrder, Operation, PROTOCOL,
    PhaseResult, Place, TreeShape,
};
use crate::checksum::Values;
use crate::instructions::under_the_clock;
use crate::keys::Keys;
use crate::memory_group;
pub use meters::Meters;
pub(crate) use phase::latency;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

/// A value on its way into a bulk load. Up to 128 bytes cost no allocation: whoever loads sorted records
/// reads them from a buffer.
pub type ValueBytes = SmallVec<[u8; 128]>;

/// Takes a checkpoint.
pub type Checkpoint = Box<dyn FnOnce() -> Result<(), CellError> + Send>;

/// A store that a cell is run on.
pub trait Engine: Sized {
    /// What one thread works with.
    type Session<'a>: Session + Send
    where
        Self: 'a;

    /// Makes an empty store. `record_bytes`: bytes of all keys and values that it will hold at
    /// most.
    ///
    /// Errors: `Unsupported` if it cannot be in this place or within such a limit; `Failed`.
    fn create(cell: &Cell, record_bytes: u64) -> Result<Self, CellError>;

    /// Whether changes can be as durable as that. Without a word of its own: nothing is.
    fn keeps(durability: Durability) -> bool {
        durability == Durability::None
    }

    /// Sessions for so many threads that work at the same time.
    ///
    /// Errors: `Unsupported` if there can only be fewer; `Failed`.
    fn sessions(&mut self, threads: usize) -> Result<Vec<Self::Session<'_>>, CellError>;

    /// Loads records that come in ascending order into the empty store, by the best call that it
    /// has for that. Without one: puts them one by one.
    fn bulk_load<'k>(
        &mut self,
        records: impl Iterator<Item = (&'k [u8], ValueBytes)>,
    ) -> Result<(), CellError> {
        put_all(&mut one_session(self)?, records)
    }

    /// Brings the files up to date and gives back what space it can. Errors: `Unsupported`;
    /// `Failed`.
    fn settle(&mut self) -> Result<(), CellError> {
        Err(CellError::Unsupported("it has nothing to settle".into()))
    }

    /// A checkpoint, to be taken by another thread while sessions work. Errors: `Unsupported` if it has none.
    fn checkpoint(&self) -> Result<Checkpoint, CellError> {
        Err(CellError::Unsupported("it has no checkpoints".into()))
    }

    /// Pages read and pages written since the store was made, where it counts them.
    fn pages_read_and_written(&self) -> (Option<u64>, Option<u64>) {
        (None, None)
    }

    /// Bytes of pages or nodes that hold the records, where it counts them.
    fn store_bytes(&mut self) -> Result<Option<u64>, CellError> {
        Ok(None)
    }

    /// Its nodes, if it is a tree and counts them.
    fn shape(&mut self) -> Result<Option<TreeShape>, CellError> {
        Ok(None)
    }

    /// Versions and settings that a reader of the figures wants to know.
    fn facts(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

/// What one thread does with a store. Values that are found must be handed over whole; the harness
/// reads them to their end.
pub trait Session {
    /// Puts a record, over an earlier one of the same key.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), CellError>;

    /// Calls `found` with the value of `key`, if there is one.
    fn get(&mut self, key: &[u8], found: impl FnMut(&[u8])) -> Result<(), CellError>;

    /// Calls `found` with each of the values of `keys` that there is. Without such a call in the
    /// store: gets them one by one.
    fn get_many(&mut self, keys: &[&[u8]], mut found: impl FnMut(&[u8])) -> Result<(), CellError> {
        keys.iter().try_for_each(|key| self.get(key, &mut found))
    }

    /// Calls `found` with up to `records` records in ascending order, from `from` on, it included.
    fn scan(
        &mut self,
        from: &[u8],
        records: usize,
        found: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), CellError>;

    /// Removes a record.
    fn remove(&mut self, key: &[u8]) -> Result<(), CellError>;

    /// Adds to the integer of a record, 8 bytes with the most significant one first, in one step. Returns the integer before.
    fn fetch_add(&mut self, _key: &[u8], _number: i64) -> Result<i64, CellError> {
        Err(CellError::Unsupported("it does not add in one step".into()))
    }

    /// The end of this thread's part of a phase, within its time: a store that collects changes
    /// into larger transactions commits the last one.
    fn finish(&mut self) -> Result<(), CellError> {
        Ok(())
    }
}

/// Runs a cell: makes the store, loads it, runs the phases.
///
/// Errors: those of the engine; `Failed` if the keys cannot be had. Panics if the engine does.
pub fn run<E: Engine>(cell: &Cell) -> Result<CellResult, CellError> {
    cell.check().map_err(CellError::Failed)?;
    if !E::keeps(cell.durability) {
        let words = format!("its changes cannot be as durable as `{:?}`", cell.durability);
        return Err(CellError::Unsupported(words));
    }
    let keys = Keys::of(&cell.keys)?;
    let value_bytes = Values::new(cell.value_bytes, cell.spread).total_bytes(keys.len());
    let record_bytes = keys.bytes(keys.len()) + value_bytes;
    let order: Vec<u32> = match cell.load_order {
        LoadOrder::Shuffled => (0..cell.load_count as u32).collect(),
        LoadOrder::Ascending | LoadOrder::Bulk => keys.ascending(cell.load_count),
    };
    // Sorted input comes from somewhere in its order: no store should wait for a key of it.
    let sorted = match cell.load_order {
        LoadOrder::Shuffled => None,
        LoadOrder::Ascending | LoadOrder::Bulk => Some(keys.select(&order)),
    };
    if let Some(group) = &cell.memory_group {
        memory_group::join(group).map_err(CellError::Failed)?;
    }
    // Whatever takes memory from here to the end of loading is the store.
    let mut meters = Meters::new(&cell.directory);
    let mut engine = E::create(cell, record_bytes)?;
    let load = load(cell, sorted.as_ref().unwrap_or(&keys), &order, &mut engine, &mut meters)?;
    drop((order, sorted));
    let mut present = cell.load_count;
    let mut phases = Vec::with_capacity(cell.phases.len());
    let mut generation = 0;
    for phase in &cell.phases {
        if let Operation::Overwrite {}
        | Operation::OverwriteBesideCheckpoint {}
        | Operation::Mixed { .. }
        | Operation::ReadModifyWrite { .. } = phase.operation
        {
            generation += 1;
        }
        let (value_bytes, spread) = (cell.value_bytes, cell.spread);
        let work = phase::Work { phase, keys: &keys, present, generation, value_bytes, spread };
        let result = work.run(&mut engine, &mut meters)?;
        present += phase.insertions();
        phases.push(result);
    }
    // Reading everything takes minutes where it is many times larger than memory.
    let is_changed = cell.phases.iter().any(|phase| {
        phase.operation.inserts() || matches!(phase.operation, Operation::Delete { .. })
    });
    let is_counted = is_changed || cell.place == Place::Memory;
    let records = if is_counted { phase::count(&mut engine)? } else { present as u64 };
    let store_bytes = engine.store_bytes()?;
    let tree = engine.shape()?;
    let facts = engine.facts();
    Ok(CellResult { protocol: PROTOCOL, load, phases, records, store_bytes, tree, facts })
}

/// The program of a crate with competitors: `PROGRAM competitors` and `PROGRAM cell CELL.json`.
///
/// `run_one` runs a cell on the competitor that it names, one of `names`.
pub fn main(
    names: &[&str],
    run_one: impl FnOnce(&Cell) -> Result<CellResult, CellError>,
) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["competitors"] => {
            for name in names {
                println!("{name}");
            }
            ExitCode::SUCCESS
        }
        ["cell", path] => answer(Path::new(path), run_one),
        _ => {
            eprintln!("usage: PROGRAM competitors | PROGRAM cell CELL.json");
            ExitCode::from(2)
        }
    }
}

/// Runs the cell in the file `path` and prints what it gave, as the protocol says.
pub fn answer(
    path: &Path,
    run_one: impl FnOnce(&Cell) -> Result<CellResult, CellError>,
) -> ExitCode {
    let outcome = Cell::read(path).and_then(|cell| run_one(&cell));
    match outcome.and_then(|result| serde_json::to_string(&result).map_err(CellError::failed)) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        // The exit code says that it is unsupported.
        Err(CellError::Unsupported(why)) => {
            eprintln!("{why}");
            ExitCode::from(EXIT_UNSUPPORTED)
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Loads `keys`, whose numbers are `order`.
fn load<E: Engine>(
    cell: &Cell,
    keys: &Keys,
    order: &[u32],
    engine: &mut E,
    meters: &mut Meters,
) -> Result<PhaseResult, CellError> {
    let mut values = Values::new(cell.value_bytes, cell.spread);
    meters.start(engine);
    let records = (0..).zip(order);
    under_the_clock(|| {
        if cell.load_order == LoadOrder::Bulk {
            let mut value = |at| ValueBytes::from_slice(values.of(at, 0));
            return engine.bulk_load(records.map(|(place, &at)| (keys.get(place), value(at))));
        }
        let mut session = one_session(engine)?;
        for (place, &at) in records {
            session.put(keys.get(place), values.of(at, 0))?;
        }
        session.finish()
    })?;
    let mut result = meters.stop(engine)?;
    result.operations = cell.load_count as u64;
    Ok(result)
}

/// The session of a store that one thread works with.
fn one_session<E: Engine>(engine: &mut E) -> Result<E::Session<'_>, CellError> {
    let session = engine.sessions(1)?.into_iter().next();
    session.ok_or_else(|| CellError::failed("the store gives no session"))
}

fn put_all<'k>(
    session: &mut impl Session,
    records: impl Iterator<Item = (&'k [u8], ValueBytes)>,
) -> Result<(), CellError> {
    for (key, value) in records {
        session.put(key, &value)?;
    }
    session.finish()
}
