//! `hedgerow stat STORE`: shape and fill of a keyspace, space of the file, use of memory.
//!
//! Of several keyspaces it shows `default` in full, or the first; of a store without keyspaces file and memory alone. Reads every page of
//! every keyspace, of the others to count their leaves by layout and their values by form. With `--keyspace` it reads that one alone, and with
//! `--quick` none. The names of the JSON fields are stable; new ones may come.
//!
//! Memory and cache are those of this process, which has just opened the store. One thread works; another one shows how far it is.

use crate::args::{Common, Format};
use crate::failure::Failure;
use crate::output::Out;
use crate::size::{show_bytes, show_count};
use crate::{escape, layouts, progress, store};
use clap::Args;
use hedgerow::{
    Database, Keyspace, LevelStats, MemoryStats, SpaceReport, Stats, TreeStats, ValueStats,
};
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Arguments of `stat`.
#[derive(Debug, Args)]
pub struct StatArgs {
    /// Store file
    store: PathBuf,
    /// Read no keyspace: show file and memory, and about how many records each keyspace has
    #[arg(long)]
    quick: bool,
}

/// Widest bar of the histogram, in characters.
const BAR_CHARS: u64 = 40;
/// Time between two looks at how many pages were read.
const TICK: Duration = Duration::from_millis(100);

/// What one run gathers.
struct Figures {
    keyspaces: Vec<String>,
    /// `None`: the store has no keyspace.
    walked: Option<Walked>,
    /// The keyspaces that were read by name, that one too.
    trees: Vec<(String, TreeStats)>,
    space: SpaceReport,
    stats: Stats,
}

/// The keyspace that is shown in full.
struct Walked {
    keyspace: String,
    tree: TreeStats,
    /// Its pages that the walk found in memory.
    hits: u64,
}

/// Walks the keyspace and prints what it found.
pub fn run(common: &Common, args: &StatArgs) -> Result<(), Failure> {
    let db = store::open_read_only(common, &args.store)?;
    let keyspace = store::keyspace_or_first(&db, common, &args.store)?;
    if args.quick {
        return quick(common, &db, keyspace.as_ref(), args);
    }
    let reads_all = common.keyspace.is_none();
    let figures = counting_pages(&db, || gather(&db, keyspace.as_ref(), reads_all));
    let figures = figures.map_err(store::failed("read", &args.store))?;
    let mut out = Out::new();
    match common.format {
        Format::Human => print(&mut out, &figures)?,
        Format::Json => out.json(&as_json(&figures))?,
    }
    out.finish()
}

/// Shows on standard error how many pages were read, while `work` reads them.
fn counting_pages<T>(db: &Database, work: impl FnOnce() -> T) -> T {
    let bar = progress::counter("reading pages");
    if bar.is_hidden() {
        return work();
    }
    let done = thread::scope(|scope| {
        let (working, ended) = channel::<()>();
        let bar = &bar;
        let count = move || {
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                if let Ok(stats) = db.stats() {
                    bar.set_position(stats.pool.faults);
                }
            }
        };
        // Without the thread nobody counts, and that is all.
        let _ = thread::Builder::new().spawn_scoped(scope, count);
        let done = work();
        drop(working);
        done
    });
    bar.finish_and_clear();
    done
}

/// Prints what the store knows without a walk: of all keyspaces, or of the one that was asked for.
fn quick(
    common: &Common,
    db: &Database,
    keyspace: Option<&Keyspace>,
    args: &StatArgs,
) -> Result<(), Failure> {
    let failed = |error| store::failed("read", &args.store)(error);
    let names = db.keyspaces().map_err(failed)?;
    let mut about = Vec::new();
    for name in &names {
        let records = match keyspace {
            Some(keyspace) if keyspace.name() == *name => keyspace.approximate_count(..),
            _ if common.keyspace.is_some() => continue,
            _ => match db.open_keyspace(name).map_err(failed)? {
                Some(keyspace) => keyspace.approximate_count(..),
                None => continue,
            },
        };
        about.push((name, records.map_err(failed)?));
    }
    let (space, stats) = (db.space_report().map_err(failed)?, db.stats().map_err(failed)?);
    let mut out = Out::new();
    if common.format == Format::Json {
        let about = about.into_iter().map(|(name, records)| (name.clone(), json!(records)));
        out.json(&json!({
            "keyspaces": names,
            "approximate_records": about.collect::<serde_json::Map<_, _>>(),
            "page_bytes": stats.page_bytes,
            "checkpoint": stats.checkpoint,
            "space": space_json(&space),
            "memory": memory_json(&stats.memory),
            "cache": { "page_reads": stats.pool.faults, "evictions": stats.pool.evictions },
        }))?;
        return out.finish();
    }
    out.line(&format!("keyspaces  {}", names.len()))?;
    out.line(&format!("page size  {}", show_bytes(stats.page_bytes)))?;
    out.line(&format!("checkpoint {}", stats.checkpoint))?;
    if !about.is_empty() {
        out.line("\nrecords, about  keyspace")?;
    }
    for (name, records) in about {
        out.line(&format!("{:>14}  {}", show_count(records), shown(name)))?;
    }
    print_space(&mut out, &space, &stats.memory)?;
    out.finish()
}

fn gather(
    db: &Database,
    keyspace: Option<&Keyspace>,
    reads_all: bool,
) -> hedgerow::Result<Figures> {
    let keyspaces = db.keyspaces()?;
    let read_before = db.stats()?.pool.faults;
    let tree = keyspace.map(Keyspace::stats).transpose()?;
    // After the walk, so that it tells what the walk has read.
    let stats = db.stats()?;
    let walked = keyspace.zip(tree).map(|(keyspace, tree)| {
        // A page that was evicted before the walk came to it was read twice.
        let hits = tree.pages().saturating_sub(stats.pool.faults - read_before);
        Walked { keyspace: keyspace.name().to_owned(), tree, hits }
    });
    let space = db.space_report()?;
    let mut trees = Vec::with_capacity(keyspaces.len());
    for name in &keyspaces {
        match &walked {
            Some(walked) if walked.keyspace == *name => {
                trees.push((name.clone(), walked.tree.clone()));
            }
            _ if !reads_all => {}
            _ => {
                if let Some(other) = db.open_keyspace(name)? {
                    trees.push((name.clone(), other.stats()?));
                }
            }
        }
    }
    Ok(Figures { keyspaces, walked, trees, space, stats })
}

/// What the pages of a level are.
fn kind(level: usize) -> &'static str {
    if level == 0 { "leaf" } else { "inner" }
}

fn keys_a_page(level: &LevelStats) -> f64 {
    if level.pages == 0 { 0.0 } else { level.keys as f64 / level.pages as f64 }
}

fn fill(level: &LevelStats, page_bytes: usize) -> f64 {
    let room = level.pages as f64 * page_bytes as f64;
    if room == 0.0 { 0.0 } else { level.used_bytes as f64 / room }
}

/// Where the bytes of the file are, by purpose; they add up to the file.
fn space_rows(space: &SpaceReport) -> [(&'static str, u64); 5] {
    [
        ("header", space.header_bytes),
        ("used", space.used_bytes),
        ("free", space.free_bytes),
        ("quarantined", space.quarantined_bytes),
        ("being returned", space.out_bytes),
    ]
}

/// Where the bytes of memory are, by purpose: what is in use where that is known, and what is set aside for it.
fn memory_rows(memory: &MemoryStats) -> [(&'static str, Option<u64>, u64); 7] {
    let used = memory.frames_bytes.saturating_sub(memory.free_frames_bytes);
    let known = |name, bytes| (name, Some(bytes), bytes);
    [
        ("frames", Some(used), memory.frames_bytes),
        ("frame headers", None, memory.frame_overhead_bytes),
        known("page table", memory.table_bytes),
        ("write buffers", None, memory.write_buffer_bytes),
        known("map changes", memory.delta_bytes),
        ("log", None, memory.log_bytes),
        known("space maps", memory.space_bytes),
    ]
}

/// A keyspace's name, which may hold any character, on a terminal.
fn shown(name: &str) -> String {
    escape::escape(name.as_bytes())
}

fn print(out: &mut Out, figures: &Figures) -> Result<(), Failure> {
    let Figures { walked, space, stats, .. } = figures;
    match walked {
        Some(walked) => print_tree(out, figures, walked)?,
        None => out.line("keyspace   none")?,
    }
    print_space(out, space, &stats.memory)?;
    let Some(Walked { tree, hits, .. }) = walked else { return Ok(()) };
    let (faults, evictions) = (show_count(stats.pool.faults), show_count(stats.pool.evictions));
    let (pages, hits) = (show_count(tree.pages()), show_count(*hits));
    out.line(&format!(
        "\ncache of this command: {hits} of {pages} pages were in memory; {faults} pages read, {evictions} evicted"
    ))
}

fn print_space(out: &mut Out, space: &SpaceReport, memory: &MemoryStats) -> Result<(), Failure> {
    out.line(&format!("\nfile       {}", show_bytes(space.file_bytes)))?;
    for (purpose, bytes) in space_rows(space) {
        out.line(&format!("  {purpose:<15} {:>12}", show_bytes(bytes)))?;
    }
    let (aside, limit) = (show_bytes(memory.set_aside_bytes()), show_bytes(memory.limit_bytes));
    // A program that uses the store has memory of its own.
    out.line("\nmemory of this command  in use    set aside")?;
    for (purpose, used, bytes) in memory_rows(memory) {
        let used = used.map_or_else(String::new, show_bytes);
        out.line(&format!("  {purpose:<15} {used:>12} {:>12}", show_bytes(bytes)))?;
    }
    out.line(&format!("  {:<15} {:>12} {aside:>12} of at most {limit}", "all", ""))
}

fn print_tree(out: &mut Out, figures: &Figures, walked: &Walked) -> Result<(), Failure> {
    let Figures { keyspaces, trees, stats, .. } = figures;
    let Walked { keyspace, tree, .. } = walked;
    let names = keyspaces.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ");
    out.line(&format!("keyspace   {} (of {}: {names})", shown(keyspace), keyspaces.len()))?;
    out.line(&format!("records    {}", show_count(tree.records())))?;
    out.line(&format!("height     {}", tree.levels.len()))?;
    out.line(&format!("page size  {}", show_bytes(tree.page_bytes as u64)))?;
    out.line(&format!("checkpoint {}", stats.checkpoint))?;

    out.line("\nlevel  kind        pages          keys  keys/page   fill  payload")?;
    for (level, figures) in tree.levels.iter().enumerate().rev() {
        out.line(&format!(
            "{level:>5}  {:<5} {:>11} {:>13} {:>10.1} {:>5.1}% {:>9}",
            kind(level),
            show_count(figures.pages),
            show_count(figures.keys),
            keys_a_page(figures),
            fill(figures, tree.page_bytes) * 100.0,
            show_bytes(figures.payload_bytes),
        ))?;
    }
    if let Some(leaves) = tree.levels.first() {
        print_histogram(out, leaves)?;
    }
    print_layouts(out, trees)?;
    print_values(out, trees)
}

fn print_histogram(out: &mut Out, leaves: &LevelStats) -> Result<(), Failure> {
    out.line("\nleaves by fill")?;
    let classes = leaves.fill.len();
    let most = leaves.fill.iter().copied().max().unwrap_or(0).max(1);
    for (class, &pages) in leaves.fill.iter().enumerate() {
        let (from, to) = (class * 100 / classes, (class + 1) * 100 / classes);
        // A class with few pages still shows.
        let bar = "#".repeat((pages * BAR_CHARS).div_ceil(most) as usize);
        let line = format!("  {from:>3}-{to:>3}% {:>11} {bar}", show_count(pages));
        out.line(line.trim_end())?;
    }
    Ok(())
}

fn print_layouts(out: &mut Out, trees: &[(String, TreeStats)]) -> Result<(), Failure> {
    out.line("\nlayout            leaves       records  records/leaf  keyspace")?;
    for (name, tree) in trees {
        let name = shown(name);
        for (layout, leaves) in layouts::used(tree) {
            out.line(&format!(
                "{:<12} {:>11} {:>13} {:>13.1}  {name}",
                layout.name(),
                show_count(leaves.pages),
                show_count(leaves.records),
                layouts::records_a_leaf(leaves),
            ))?;
        }
    }
    Ok(())
}

/// Bytes of values by where they are, of every keyspace that has any there.
fn print_values(out: &mut Out, trees: &[(String, TreeStats)]) -> Result<(), Failure> {
    out.line("\nvalues             number        bytes      in file  keyspace")?;
    for (name, tree) in trees {
        let name = shown(name);
        let values = &tree.values;
        // Those in leaves are part of pages that hold keys, too.
        let file = show_bytes(values.extents_file_bytes);
        let rows = [
            ("in leaves", values.in_leaves, show_bytes(values.in_leaves_bytes), "in pages"),
            ("in extents", values.in_extents, show_bytes(values.in_extents_bytes), &file),
            ("damaged", values.damaged, "-".to_owned(), "-"),
        ];
        for (form, number, bytes, file) in rows.into_iter().filter(|row| row.1 > 0) {
            let number = show_count(number);
            out.line(&format!("{form:<12} {number:>12} {bytes:>12} {file:>12}  {name}"))?;
        }
    }
    Ok(())
}

fn space_json(space: &SpaceReport) -> Json {
    json!({
        "file_bytes": space.file_bytes,
        "header_bytes": space.header_bytes,
        "used_bytes": space.used_bytes,
        "free_bytes": space.free_bytes,
        "quarantined_bytes": space.quarantined_bytes,
        "being_returned_bytes": space.out_bytes,
        "hole_bytes": space.hole_bytes,
    })
}

fn memory_json(memory: &MemoryStats) -> Json {
    json!({
        "limit_bytes": memory.limit_bytes,
        "set_aside_bytes": memory.set_aside_bytes(),
        "frames_bytes": memory.frames_bytes,
        "free_frames_bytes": memory.free_frames_bytes,
        "frame_overhead_bytes": memory.frame_overhead_bytes,
        "table_bytes": memory.table_bytes,
        "write_buffer_bytes": memory.write_buffer_bytes,
        "delta_bytes": memory.delta_bytes,
        "log_bytes": memory.log_bytes,
        "space_bytes": memory.space_bytes,
    })
}

fn values_json(values: &ValueStats) -> Json {
    json!({
        "in_leaves": { "values": values.in_leaves, "bytes": values.in_leaves_bytes },
        "in_extents": {
            "values": values.in_extents,
            "bytes": values.in_extents_bytes,
            "file_bytes": values.extents_file_bytes,
        },
        "damaged": { "values": values.damaged },
    })
}

fn as_json(figures: &Figures) -> Json {
    let Figures { keyspaces, walked, trees, space, stats } = figures;
    let (space, memory) = (space_json(space), memory_json(&stats.memory));
    let Some(Walked { keyspace, tree, hits }) = walked else {
        return json!({
            "keyspace": null,
            "keyspaces": keyspaces,
            "checkpoint": stats.checkpoint,
            "space": space,
            "memory": memory,
        });
    };
    let levels: Vec<Json> = tree
        .levels
        .iter()
        .enumerate()
        .map(|(level, figures)| {
            json!({
                "level": level,
                "kind": kind(level),
                "pages": figures.pages,
                "keys": figures.keys,
                "keys_per_page": keys_a_page(figures),
                "used_bytes": figures.used_bytes,
                "payload_bytes": figures.payload_bytes,
                "fill": fill(figures, tree.page_bytes),
                "pages_by_fill": figures.fill,
            })
        })
        .collect();
    let by_keyspace = trees.iter().map(|(name, tree)| (name.clone(), layouts::as_json(tree)));
    let by_keyspace: serde_json::Map<String, Json> = by_keyspace.collect();
    let values = trees.iter().map(|(name, tree)| (name.clone(), values_json(&tree.values)));
    let values: serde_json::Map<String, Json> = values.collect();
    json!({
        "keyspace": keyspace,
        "keyspaces": keyspaces,
        "records": tree.records(),
        "height": tree.levels.len(),
        "page_bytes": tree.page_bytes,
        "checkpoint": stats.checkpoint,
        "levels": levels,
        "layouts": layouts::as_json(tree),
        "layouts_by_keyspace": by_keyspace,
        "values": values_json(&tree.values),
        "values_by_keyspace": values,
        "space": space,
        "memory": memory,
        "cache": {
            "pages_visited": tree.pages(),
            "hits": hits,
            "page_reads": stats.pool.faults,
            "evictions": stats.pool.evictions,
        },
    })
}
