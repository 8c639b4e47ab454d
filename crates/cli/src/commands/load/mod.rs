//! `hedgerow load STORE FILE`: records from text, from several threads.
//!
//! One record a line: the key, then a tab and the value if there is one, else the line's number is
//! the value, and the user hears how many of those there were. A blank line is passed over. A line is taken as it is,
//! but for the CR of CR LF where the first line ends so; with `--escaped` it is read with escapes, as `scan` prints it.
//! Every line with one key goes to the same thread, however the key is written, so that of several lines with one key the
//! last one wins, as it would with one thread. If the system starts fewer threads than were asked for, those work.
//!
//! Threads: [`reader`] reads blocks of whole lines, the calling thread routes their lines, the
//! workers write. Whoever fails first says where, all stop, and the store is closed in good order
//! with what was written until then; the same on Ctrl-C.
//!
//! An input whose first line is that of a dump is one, and is loaded as one ([`dump`]). A store is none: its pages would be lines to a reader of
//! text, so it is refused before anything is opened or made.

mod dump;
mod reader;

use crate::args::{Common, CreateArgs, Format, LeafArgs};
use crate::escape;
use crate::failure::Failure;
use crate::output::{Out, is_same_file};
use crate::size::{show_number_of, show_rate};
use crate::{interrupt, layouts, progress, store};
use clap::Args;
use hedgerow::{AdaptationStats, Keyspace};
use indicatif::ProgressBar;
use reader::{Block, Input, Reading};
use serde_json::json;
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Arguments of `load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Store file; created if it does not exist
    store: PathBuf,
    /// Text, one record a line: key, tab, value. Without a tab the value is the line number. Or a dump. `-` for standard input
    file: PathBuf,
    /// Number of writing threads [default: one per processor, at most 8; one for a dump]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Read escapes in the lines, as `scan` prints them
    #[arg(long)]
    escaped: bool,
    /// Read plain lines even if the first line looks like that of a dump
    #[arg(long)]
    lines: bool,
    /// Their layouts.
    #[command(flatten)]
    leaves: LeafArgs,
    /// The store's pages.
    #[command(flatten)]
    created: CreateArgs,
}

/// Batches that wait for a worker before the router waits for it.
const QUEUED_BATCHES: usize = 4;
/// How long the router waits for input before it looks whether to stop.
const POLL: Duration = Duration::from_millis(50);

/// Lines of a block for one worker: start and end in the block, and the line's number.
struct Batch {
    block: Arc<Block>,
    lines: Vec<(usize, usize, u64)>,
}

/// What the threads of a load share.
struct Load<'a> {
    keyspace: &'a Keyspace,
    escaped: bool,
    written: AtomicU64,
    /// Lines of those that had no tab.
    numbered: AtomicU64,
    stop: AtomicBool,
    /// The failure on the smallest line number that was seen.
    failure: Mutex<Option<(u64, Failure)>>,
}

/// Loads the file and closes the store.
pub fn run(common: &Common, args: &LoadArgs) -> Result<(), Failure> {
    // The input first: a name with a mistake in it must not leave an empty store behind.
    let reading = reader::spawn(Input::open(&args.file)?)?;
    let first = head(&reading)?;
    refuse_store(args, &first)?;
    let is_dump = !args.lines && dump::is_dump(&first)?;
    let db = store::open_or_create(common, args.leaves, args.created, &args.store)?;
    let started = Instant::now();
    let mut written = Written::default();
    let loaded = if is_dump {
        let only = common.keyspace.as_deref();
        let records = &mut written.records;
        dump::load(&db, &args.store, only, reading.go_on(), records).inspect_err(|_| {
            let records = show_number_of(*records, "record");
            tell!("hedgerow: stored {records} of the dump");
        })
    } else {
        let threads = args.threads.map_or_else(default_threads, usize::from);
        store::write_to(&db, common, &args.store, |keyspace| {
            load(keyspace, reading, args.escaped, threads, &mut written)
        })
    };
    let adaptation = db.stats().map(|stats| stats.adaptation).unwrap_or_default();
    store::close(db, &args.store, loaded)?;
    report(common, &written, started.elapsed().as_secs_f64(), &adaptation)
}

/// What every store begins with, but for the newline behind it.
const STORE_HEAD: &[u8] = b"\x89Hedge\r";

/// Errors: the input is the store itself, or another one.
fn refuse_store(args: &LoadArgs, first: &[u8]) -> Result<(), Failure> {
    let store = args.store.display();
    let is_stdin = args.file.as_os_str() == "-";
    if !is_stdin && is_same_file(&args.store, &args.file) {
        let words =
            format!("the file to load is the store {store} itself; load takes text or a dump");
        return Err(Failure::Usage(words));
    }
    if first != STORE_HEAD {
        return Ok(());
    }
    let input =
        if is_stdin { "standard input".to_owned() } else { args.file.display().to_string() };
    Err(Failure::Other(format!(
        "{input} is a store, and load takes text or a dump; copy its records with `hedgerow dump`, or the whole store with \
         `hedgerow backup` or `hedgerow restore`"
    )))
}

/// What a load has stored.
#[derive(Default)]
struct Written {
    records: u64,
    /// Those whose line had no tab.
    numbered: u64,
    /// Whether lines ended in CR LF, and the CR was left off.
    is_crlf: bool,
}

/// The input's first line, or as much of it as tells what kind of input it is.
fn head(reading: &Reading) -> Result<Vec<u8>, Failure> {
    loop {
        interrupt::check()?;
        match reading.head.recv_timeout(POLL) {
            Ok(head) => return head,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                unreachable!("the thread that reads sends the head, or an error, before it ends")
            }
        }
    }
}

/// One thread for each processor, at most 8: a store seldom gains from more.
pub fn default_threads() -> usize {
    thread::available_parallelism().map_or(1, |count| count.get().min(8))
}

fn load(
    keyspace: &Keyspace,
    reading: Reading,
    escaped: bool,
    threads: usize,
    written: &mut Written,
) -> Result<(), Failure> {
    let state = Load {
        keyspace,
        escaped,
        written: AtomicU64::new(0),
        numbered: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        failure: Mutex::new(None),
    };
    let bar = progress::counter("loading");
    let read = thread::scope(|scope| {
        let mut workers = Vec::with_capacity(threads);
        for _ in 0..threads {
            let (sender, receiver) = sync_channel(QUEUED_BATCHES);
            let state = &state;
            let work = move || write_batches(state, &receiver);
            match thread::Builder::new().spawn_scoped(scope, work) {
                Ok(_) => workers.push(sender),
                Err(error) if workers.is_empty() => {
                    return Err(Failure::Io("cannot start a writing thread".to_owned(), error));
                }
                Err(_) => break,
            }
        }
        route(&state, &reading.go_on(), &workers, &bar, &mut written.is_crlf)
        // The senders go here, and the workers end when their queues are empty.
    });
    bar.finish_and_clear();
    written.records = state.written.into_inner();
    written.numbered = state.numbered.into_inner();
    let failure = state.failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    let failure = failure.map(|(_, failure)| failure).or(read.err());
    let records = show_number_of(written.records, "record");
    match failure {
        Some(failure) => {
            tell!("hedgerow: stored {records} before the load stopped");
            Err(failure)
        }
        None if interrupt::requested() => Err(Failure::Interrupted(format!("stored {records}"))),
        None => Ok(()),
    }
}

/// Hands the lines of each block to the workers, by key.
fn route(
    state: &Load<'_>,
    blocks: &Receiver<Result<Block, Failure>>,
    workers: &[SyncSender<Batch>],
    bar: &ProgressBar,
    is_crlf: &mut bool,
) -> Result<(), Failure> {
    let stopped = || state.stop.load(Ordering::Relaxed) || interrupt::requested();
    while !stopped() {
        let block = match blocks.recv_timeout(POLL) {
            Ok(block) => Arc::new(block?),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        *is_crlf = block.is_crlf;
        let mut lines: Vec<Vec<(usize, usize, u64)>> = vec![Vec::new(); workers.len()];
        for (start, end, number) in block.lines().filter(|(start, end, _)| start < end) {
            let (key, _) = split_line(&block.bytes[start..end]);
            // What is no key goes to any of them, who says so.
            let key = match state.escaped && key.contains(&b'\\') {
                true => escape::unescape(key).map_or(Cow::Borrowed(key), Cow::Owned),
                false => Cow::Borrowed(key),
            };
            lines[worker_of(&key, workers.len())].push((start, end, number));
        }
        for (sender, lines) in workers.iter().zip(lines) {
            // A worker that has gone has left its failure behind.
            let batch = Batch { block: Arc::clone(&block), lines };
            if sender.send(batch).is_err() {
                return Ok(());
            }
        }
        bar.set_position(state.written.load(Ordering::Relaxed));
    }
    Ok(())
}

/// FNV-1a, folded: any spread over the workers will do, as long as it depends on the key alone.
fn worker_of(key: &[u8], workers: usize) -> usize {
    if workers == 1 {
        return 0;
    }
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    ((hash >> 32) % workers as u64) as usize
}

fn split_line(line: &[u8]) -> (&[u8], Option<&[u8]>) {
    match line.iter().position(|&byte| byte == b'\t') {
        Some(tab) => (&line[..tab], Some(&line[tab + 1..])),
        None => (line, None),
    }
}

fn write_batches(state: &Load<'_>, batches: &Receiver<Batch>) {
    for Batch { block, lines } in batches {
        for (start, end, number) in lines {
            if state.stop.load(Ordering::Relaxed) || interrupt::requested() {
                return;
            }
            if let Err(failure) = write_line(state, &block.bytes[start..end], number) {
                state.stop.store(true, Ordering::Relaxed);
                let mut first = state.failure.lock().unwrap_or_else(PoisonError::into_inner);
                if first.as_ref().is_none_or(|&(line, _)| number < line) {
                    *first = Some((number, failure));
                }
                return;
            }
            state.written.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write_line(state: &Load<'_>, line: &[u8], number: u64) -> Result<(), Failure> {
    let (key, value) = split_line(line);
    let is_numbered = value.is_none();
    let number_text = number.to_string();
    let value = value.unwrap_or(number_text.as_bytes());
    let (key, value) = if state.escaped {
        let unescape = |bytes| {
            escape::unescape(bytes).map_err(|e| Failure::Other(format!("line {number}: {e}")))
        };
        (Cow::Owned(unescape(key)?), Cow::Owned(unescape(value)?))
    } else {
        (Cow::Borrowed(key), Cow::Borrowed(value))
    };
    state
        .keyspace
        .put(&key, &value)
        .map_err(|error| Failure::Engine(format!("cannot write line {number}"), error))?;
    state.numbered.fetch_add(u64::from(is_numbered), Ordering::Relaxed);
    Ok(())
}

fn report(
    common: &Common,
    written: &Written,
    seconds: f64,
    adaptation: &AdaptationStats,
) -> Result<(), Failure> {
    match common.format {
        Format::Human if common.quiet => Ok(()),
        Format::Human => {
            let Written { records, numbered, is_crlf } = *written;
            let (count, rate) = (show_number_of(records, "record"), show_rate(records, seconds));
            tell!("loaded {count} in {seconds:.2} s ({rate})");
            if numbered > 0 {
                let (lines, its) =
                    (show_number_of(numbered, "line"), if numbered == 1 { "its" } else { "their" });
                tell!("{lines} had no tab; {its} value is the line number");
            }
            if is_crlf {
                tell!("the lines ended in CR LF; the CR is no part of keys and values");
            }
            let adapted = layouts::adapted(adaptation);
            if !adapted.is_empty() {
                tell!("leaves that changed their layout: {adapted}");
            }
            Ok(())
        }
        Format::Json => {
            let mut out = Out::new();
            out.json(&json!({
                "records": written.records,
                "without_tab": written.numbered,
                "crlf": written.is_crlf,
                "seconds": seconds,
                "adaptation": layouts::adaptation_json(adaptation),
            }))?;
            out.finish()
        }
    }
}
