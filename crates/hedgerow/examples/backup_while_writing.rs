//! Back up a store while another thread writes to it, and restore the backup.
//!
//! `cargo run -p hedgerow --example backup_while_writing`

#![allow(clippy::disallowed_methods)] // A rule for the engine, not for programs that use it.

use hedgerow::Options;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let at = |name: &str| directory.path().join(name);
    let options = Options::new().memory_limit_bytes(16 << 20);
    let db = options.open_or_create(at("events.hrow"))?;
    let events = db.keyspace("events")?;
    for n in 0..20_000u64 {
        events.put(&n.to_be_bytes(), b"before the backup")?;
    }

    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut n = 20_000u64;
            while !done.load(Ordering::Relaxed) {
                events.put(&n.to_be_bytes(), b"beside the backup")?;
                n += 1;
            }
            Ok::<u64, hedgerow::Error>(n)
        });
        // The backup has everything that was put before this call. The writer does not wait for it.
        let report = db.backup(at("events.backup"), |_pages| ControlFlow::Continue(()));
        done.store(true, Ordering::Relaxed);
        let written = writer.join().map_err(|_| "the writer has panicked")??;
        println!("{} pages copied, while the store grew to {written} records", report?.pages);
        Ok::<(), Box<dyn std::error::Error>>(())
    })?;
    db.close()?;

    // `restore` checks the whole backup first, and never writes over an existing store.
    options.restore(
        at("events.backup"),
        at("restored.hrow"),
        |_pages| ControlFlow::Continue(()),
    )?;
    let restored = options.open(at("restored.hrow"))?;
    let events = restored.keyspace("events")?;
    for n in 0..20_000u64 {
        assert_eq!(events.get(&n.to_be_bytes())?.as_deref(), Some(&b"before the backup"[..]));
    }
    restored.close()?;
    Ok(())
}
