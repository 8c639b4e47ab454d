//! Open a store, put, get, scan and remove records, and close it.
//!
//! `cargo run -p hedgerow --example quickstart`

use hedgerow::{Durability, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("birds.hrow");

    // The limit bounds all memory of the store. Without it a quarter of the machine's memory is used.
    let db = Options::new().memory_limit_bytes(64 << 20).open_or_create(&path)?;
    let birds = db.keyspace("birds")?;

    birds.put(b"robin", b"Erithacus rubecula")?;
    birds.put(b"rook", b"Corvus frugilegus")?;
    birds.put(b"wren", b"Troglodytes troglodytes")?;

    // A record that is not there is `None`, not an error.
    assert_eq!(birds.get(b"wren")?.as_deref(), Some(&b"Troglodytes troglodytes"[..]));
    assert!(birds.get(b"dodo")?.is_none());

    // Records come in the order of their keys. Ranges go both ways.
    for record in birds.prefix(b"ro") {
        let (name, latin) = record?;
        println!("{}: {}", name.escape_ascii(), latin.escape_ascii());
    }
    let last = birds.iter().next_back().transpose()?;
    assert_eq!(last.map(|(name, _)| name.to_vec()), Some(b"wren".to_vec()));

    // Changes are durable within 100 ms. These are durable when the call returns.
    let careful = birds.clone().with_durability(Durability::Sync);
    careful.remove(b"rook")?;

    // `close` reports errors. After it the next open has nothing to recover.
    db.close()?;

    let db = Options::new().memory_limit_bytes(64 << 20).open(&path)?;
    assert_eq!(db.keyspace("birds")?.count()?, 2);
    db.close()?;
    Ok(())
}
