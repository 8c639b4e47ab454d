//! A secondary index: birds by name, and by the place where they live, always consistent.
//!
//! `cargo run -p hedgerow --example secondary_index`

use hedgerow::{Database, Keyspace, Options, Result};

struct Birds {
    db: Database,
    /// Name to place.
    by_name: Keyspace,
    /// Place, a zero and name, to nothing.
    by_place: Keyspace,
}

fn entry(place: &[u8], name: &str) -> Vec<u8> {
    [place, b"\0", name.as_bytes()].concat()
}

impl Birds {
    /// A bird lives here from now on.
    fn settle(&self, name: &str, place: &str) -> Result<()> {
        self.db.transact(|transaction| {
            let by_name = transaction.keyspace(&self.by_name)?;
            let by_place = transaction.keyspace(&self.by_place)?;
            if let Some(old) = by_name.swap(name.as_bytes(), place.as_bytes())? {
                by_place.remove(&entry(&old, name))?;
            }
            by_place.put(&entry(place.as_bytes(), name), b"")
        })
    }

    /// Who lives there.
    fn at(&self, place: &str) -> Result<Vec<String>> {
        let prefix = entry(place.as_bytes(), "");
        let names =
            self.by_place.prefix(&prefix).keys().map(|key| {
                key.map(|key| String::from_utf8_lossy(&key[prefix.len()..]).into_owned())
            });
        names.collect()
    }
}

fn main() -> Result<()> {
    let db = Options::new().memory_limit_bytes(32 << 20).in_memory()?;
    let (by_name, by_place) = (db.keyspace("birds")?, db.keyspace("birds by place")?);
    let birds = Birds { db: db.clone(), by_name, by_place };
    for (name, place) in [("robin", "hedge"), ("wren", "hedge"), ("tern", "coast")] {
        birds.settle(name, place)?;
    }
    birds.settle("wren", "wood")?;
    assert_eq!(birds.at("hedge")?, ["robin"]);
    assert_eq!(birds.at("wood")?, ["wren"]);
    // A snapshot has both keyspaces as of one moment.
    let snapshot = db.snapshot()?;
    let (names, places) = (snapshot.keyspace(&birds.by_name)?, snapshot.keyspace(&birds.by_place)?);
    birds.settle("wren", "hedge")?;
    for record in names.iter() {
        let (name, place) = record?;
        let name = String::from_utf8_lossy(&name);
        assert!(places.contains_key(&entry(&place, &name))?);
        println!("{name}: {}", String::from_utf8_lossy(&place));
    }
    assert_eq!(names.count()?, places.count()?);
    db.close()
}
