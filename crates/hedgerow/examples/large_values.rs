//! Store values of megabytes as streams, with memory that does not depend on their length, and read parts of them.
//!
//! `cargo run -p hedgerow --example large_values`

use hedgerow::Options;
use std::io::Read;

const LEN_BYTES: u64 = 20 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let db = Options::new()
        .memory_limit_bytes(8 << 20)
        .open_or_create(directory.path().join("songs.hrow"))?;
    let songs = db.keyspace("songs")?;

    // From anything that implements `Read`. The length must be known.
    songs.put_stream(b"wren", LEN_BYTES, &mut std::io::repeat(b'~'))?;

    // Or piece by piece. Nothing has changed before `finish`.
    let mut writer = songs.value_writer(b"robin", LEN_BYTES)?;
    for second in 0..20u8 {
        writer.write_bytes(&vec![b'a' + second; 1 << 20])?;
    }
    writer.finish()?;

    // A part of a value costs a read of that part.
    let part = songs.get_range(b"robin", (3 << 20)..(3 << 20) + 4)?;
    assert_eq!(part.as_deref(), Some(&b"dddd"[..]));

    // A reader keeps its value, even if the record is replaced meanwhile.
    let mut reader = songs.value_reader(b"robin")?.ok_or("no such song")?;
    songs.put(b"robin", b"silence")?;
    let mut bytes = 0;
    let mut piece = [0; 64 << 10];
    loop {
        let count = reader.read(&mut piece)?;
        if count == 0 {
            break;
        }
        bytes += count as u64;
    }
    assert_eq!(bytes, LEN_BYTES);
    println!("{bytes} bytes read in pieces");
    drop(reader);
    db.close()?;
    Ok(())
}
