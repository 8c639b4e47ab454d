//! Import sorted records in bulk, which is much faster than single puts, and add more of them in atomic batches.
//!
//! `cargo run -p hedgerow --example bulk_import`

use hedgerow::{Options, WriteBatch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let db = Options::new()
        .memory_limit_bytes(64 << 20)
        .open_or_create(directory.path().join("numbers.hrow"))?;
    let squares = db.keyspace("squares")?;

    // The keyspace must be empty, and the keys must ascend. Big-endian numbers sort as numbers do.
    let records = (0..200_000u64).map(|n| (n.to_be_bytes(), (n * n).to_string()));
    // Pages are filled to 90 per cent, so that later inserts find room.
    let count = squares.bulk_load(records, 90)?;
    println!("{count} records loaded");

    // After a crash all changes of a batch are there, or none.
    for first in (200_000..210_000u64).step_by(1000) {
        let mut batch = WriteBatch::new();
        for n in first..first + 1000 {
            batch.put(&squares, &n.to_be_bytes(), (n * n).to_string().as_bytes())?;
        }
        db.write(&batch)?;
    }
    db.sync()?;

    assert_eq!(squares.count()?, 210_000);
    let found = squares.get(&205_000u64.to_be_bytes())?;
    assert_eq!(found.as_deref(), Some(&b"42025000000"[..]));
    println!("{} KiB of file", db.space_report()?.file_bytes >> 10);
    db.close()?;
    Ok(())
}
