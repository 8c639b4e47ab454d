//! `dump`, and `load` of what it wrote: round trips of arbitrary bytes, what a dump looks like, and every way in
//! which one can be cut off, damaged, too new or in the way.

use crate::harness::{Scratch, command, run, run_with_input, wait};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;

const BIRDS: &str = "robin\tErithacus rubecula\nwren\tTroglodytes troglodytes\n";

/// The bytes that `dump` prints.
fn dumped(args: &[&str]) -> Vec<u8> {
    run(&[&["dump"], args].concat()).code(0).silent().text().as_bytes().to_vec()
}

/// Small random numbers out of a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    /// Bytes of all kinds, many of them such as have to be escaped.
    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let len = self.below(most + 1);
        (0..len)
            .map(|_| match self.below(3) {
                0 => b"\t\n\r\\x \0\x7f"[self.below(8) as usize],
                1 => self.below(256) as u8,
                _ => b'a' + self.below(26) as u8,
            })
            .collect()
    }
}

#[test]
fn a_dump_is_what_the_format_says() {
    let (scratch, store) = Scratch::loaded("dump", BIRDS);
    run(&["put", &store, "--keyspace", "a \u{e4}", r"\x00\t", r"\\"]).code(0);
    let text = String::from_utf8(dumped(&[&store])).unwrap();
    assert_eq!(
        text,
        format!(
            "hedgerow-dump 1\nkeyspace a \u{e4}\n\\x00\\t\t\\\\\nrecords 1 3487e3bd588a2cef\n\
             keyspace default\n{BIRDS}records 2 59fee9949acde4a4\nend 2 3\n"
        )
    );
    let only = String::from_utf8(dumped(&[&store, "default"])).unwrap();
    assert!(only.starts_with("hedgerow-dump 1\nkeyspace default\nrobin\t"), "{only}");
    assert!(only.ends_with("\nend 1 2\n"), "{only}");
    assert_eq!(dumped(&[&store, "--keyspace", "default", "default"]), only.as_bytes());
    assert_eq!(dumped(&[&store, "default", "a \u{e4}"]), text.as_bytes());
    run(&["dump", &store, "no such"])
        .code(1)
        .stdout("")
        .stderr_has("its keyspaces: `a \u{e4}`, `def");
    let file = scratch.path("birds.dump");
    run(&["dump", &store, "--out", &file]).code(0).stdout("").stderr_has("dumped 3 records of 2");
    assert_eq!(fs::read(&file).unwrap(), text.as_bytes());
    run(&["dump", &store, "--out", &file]).code(1).stderr_has("cannot create");
    assert_eq!(fs::read(&file).unwrap(), text.as_bytes());
    let other = scratch.path("other.dump");
    let report = run(&["dump", &store, "--out", &other, "--format", "json"]).code(0).silent();
    assert_eq!((&report.json()["keyspaces"], &report.json()["records"]), (&2.into(), &3.into()));
    run(&["dump", &store, "--format", "json"]).code(2).stdout("").stderr_has("--out");
}

#[test]
fn arbitrary_bytes_come_back_as_they_were() {
    let seed = 0x6475_6d70 ^ u64::from(std::process::id());
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let scratch = Scratch::new("dump-bytes");
    let store = scratch.store();
    let names = ["default", "end 1 1", "records 0 -", "tab\tnew\nline", "\u{1f426} \\ \u{7f}"];
    let mut text = String::from("hedgerow-dump 1\n");
    let mut total = 0;
    for name in names {
        // Through `load` itself, by a dump without checksums, which takes any bytes in one go.
        let mut records: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for _ in 0..random.below(400) {
            records.insert(random.bytes(40), random.bytes(300));
        }
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("\\x{b:02x}")).collect::<String>();
        text += &format!("keyspace {}\n", hex(name.as_bytes()));
        for (key, value) in &records {
            text += &format!("{}\t{}\n", hex(key), hex(value));
        }
        text += &format!("records {} -\n", records.len());
        total += records.len();
    }
    text += &format!("end {} {total}\n", names.len());
    run_with_input(&["load", &store, "-"], text.as_bytes()).code(0).stderr_has("loaded");
    let dump = dumped(&[&store]);
    let copy = scratch.path("copy.hrow");
    run_with_input(&["load", &copy, "-"], &dump).code(0);
    assert_eq!(dumped(&[&copy]), dump);
    run(&["verify", &copy]).code(0);
    // Over what is there: puts, which change nothing.
    run_with_input(&["load", &copy, "-"], &dump).code(0);
    assert_eq!(dumped(&[&copy]), dump);
    // And what was read is what was written by hand.
    let mut unescaped: Vec<Vec<u8>> = vec![Vec::new(), Vec::new()];
    for (dump, lines) in [&dump[..], text.as_bytes()].into_iter().zip(&mut unescaped) {
        let record = |line: &&[u8]| line.contains(&b'\t');
        let mut all: Vec<Vec<u8>> =
            dump.split(|&b| b == b'\n').filter(record).map(unescape).collect();
        all.sort();
        *lines = all.concat();
    }
    assert!(unescaped[0] == unescaped[1]);
}

/// Escapes of this format, by the shortest way.
fn unescape(line: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = line;
    while let [byte, tail @ ..] = rest {
        let (byte, tail) = match (byte, tail) {
            (b'\\', [b'x', hex @ ..]) => {
                let digits = str::from_utf8(&hex[..2]).unwrap();
                (u8::from_str_radix(digits, 16).unwrap(), &hex[2..])
            }
            (b'\\', [letter, tail @ ..]) => match letter {
                b't' => (b'\t', tail),
                b'n' => (b'\n', tail),
                b'r' => (b'\r', tail),
                other => (*other, tail),
            },
            // The one between key and value: a byte of its own, told from an escaped one by its place.
            (byte, tail) => (*byte, tail),
        };
        bytes.push(byte);
        rest = tail;
    }
    bytes
}

#[test]
fn empty_stores_and_empty_keyspaces_come_back() {
    let scratch = Scratch::new("dump-empty");
    let (store, copy) = (scratch.store(), scratch.path("copy.hrow"));
    run(&["put", &store, "k", "v", "--keyspace", "b"]).code(0);
    run(&["del", &store, "k", "--keyspace", "b"]).code(0);
    let dump = dumped(&[&store]);
    assert_eq!(dump, b"hedgerow-dump 1\nkeyspace b\nrecords 0 ba2de0a89cf71e12\nend 1 0\n");
    run_with_input(&["load", &copy, "-"], &dump).code(0).stderr_has("loaded 0 records");
    assert_eq!(dumped(&[&copy]), dump);
    let none = scratch.path("none.hrow");
    run_with_input(&["load", &none, "-"], b"hedgerow-dump 1\nend 0 0\n").code(0);
    assert_eq!(dumped(&[&none]), b"hedgerow-dump 1\nend 0 0\n");
}

#[test]
fn what_is_there_stays_and_what_comes_replaces_it() {
    let (scratch, store) = Scratch::loaded("dump-over", BIRDS);
    let dump = dumped(&[&store]);
    let other = scratch.path("other.hrow");
    run(&["put", &other, "robin", "old"]).code(0);
    run(&["put", &other, "tit", "Parus major"]).code(0);
    run_with_input(&["load", &other, "-"], &dump).code(0).stderr_has("loaded 2 records");
    let all = "robin\tErithacus rubecula\ntit\tParus major\nwren\tTroglodytes troglodytes\n";
    run(&["scan", &other]).code(0).stdout(all);
}

#[test]
fn one_keyspace_of_several_can_be_loaded() {
    let (scratch, store) = Scratch::loaded("dump-one", BIRDS);
    run(&["put", &store, "--keyspace", "trees", "oak", "Quercus"]).code(0);
    let dump = dumped(&[&store]);
    let one = scratch.path("one.hrow");
    run_with_input(&["load", &one, "-", "--keyspace", "trees"], &dump).code(0);
    assert_eq!(dumped(&[&one]), dumped(&[&store, "trees"]));
    run_with_input(&["load", &one, "-", "--keyspace", "fish"], &dump)
        .code(1)
        .stderr_has("the dump has no keyspace `fish`");
    // The rest is checked all the same.
    let mut damaged = dump;
    let at = damaged.windows(5).position(|window| window == b"robin").unwrap();
    damaged[at] = b'R';
    run_with_input(&["load", &one, "-", "--keyspace", "trees"], &damaged).code(4);
}

#[test]
fn lines_are_lines_if_that_is_said() {
    let scratch = Scratch::new("dump-lines");
    let store = scratch.store();
    run_with_input(&["load", &store, "-", "--lines"], b"hedgerow-dump 1\nend\t0").code(0);
    run(&["scan", &store]).code(0).stdout("end\t0\nhedgerow-dump 1\t1\n");
}

/// Such a line was a damaged dump, and nothing said that there is `--lines`.
#[test]
fn a_first_line_with_a_tab_is_plain_text_and_another_one_is_told_of_lines() {
    let scratch = Scratch::new("dump-no-header");
    for (name, options) in [("plain", &[][..]), ("escaped", &["--escaped"])] {
        let store = scratch.path(name);
        let args = [&["load", &store, "-"], options].concat();
        run_with_input(&args, b"hedgerow-dump one\n").code(4).stderr_has("take --lines");
        assert!(!Path::new(&store).exists());
        for line in ["hedgerow-dump 1\tof May", "hedgerow-dump \tof May"] {
            run_with_input(&args, line.as_bytes()).code(0).stderr_has("loaded 1 record ");
        }
        run(&["scan", &store]).code(0).stdout("hedgerow-dump \tof May\nhedgerow-dump 1\tof May\n");
    }
}

#[test]
fn a_dump_that_is_cut_off_anywhere_is_noticed() {
    let (scratch, store) = Scratch::loaded("dump-cut", BIRDS);
    run(&["put", &store, "--keyspace", "trees", "oak", "Quercus"]).code(0);
    let dump = dumped(&[&store]);
    // Behind each line, before its newline, and in the middle; a part of the first line is no dump.
    let ends = (0..dump.len()).filter(|at| dump[*at] == b'\n');
    let mut places: Vec<usize> = ends.flat_map(|end| [end, end + 1, end + 7]).collect();
    places.retain(|at| *at < dump.len());
    for at in places {
        let copy = scratch.path(&format!("{at}.hrow"));
        let args = ["load", &copy, "-", "--memory-limit", "4MiB"];
        let done = run_with_input(&args, &dump[..at]).code(4);
        let done = done.stderr_has("of the dump: ").stderr_has("records of the dump");
        assert!(done.stderr().contains("cut off"), "{at}: {}", done.stderr());
        // Keyspaces that came whole, and nothing else: no store if there is none.
        let there = match Path::new(&copy).exists() {
            true => String::from_utf8(dumped(&[&copy, "--memory-limit", "4MiB"])).unwrap(),
            false => String::new(),
        };
        let whole = dump[..at].windows(9).filter(|window| window == b"\nrecords ").count();
        let cut_in_records_line = dump[..at].rsplit(|&b| b == b'\n').next().unwrap();
        let whole = whole - usize::from(cut_in_records_line.starts_with(b"records "));
        assert_eq!(there.matches("\nkeyspace ").count(), whole, "{at}: {there}");
    }
}

#[test]
fn a_damaged_dump_is_refused_with_the_number_of_the_line() {
    let (scratch, store) = Scratch::loaded("dump-damaged", BIRDS);
    let dump = String::from_utf8(dumped(&[&store])).unwrap();
    let replaced = |from: &str, to: &str| {
        assert!(dump.contains(from), "{from}");
        dump.replacen(from, to, 1)
    };
    for (what, text, words) in [
        ("value", replaced("Erithacus", "erithacus"), "line 5 of the dump: the checksum"),
        ("name", replaced("keyspace d", "keyspace D"), "line 5 of the dump: the checksum"),
        (
            "record",
            replaced("wren\tTroglodytes troglodytes\n", ""),
            "line 4 of the dump: the keyspace ends with 2",
        ),
        ("order", replaced("wren\t", "ant\t"), "line 4 of the dump: the key is not greater"),
        ("twice", replaced("wren\t", "robin\t"), "line 4 of the dump: the key is not greater"),
        ("escape", replaced("wren", "\\wren"), "line 4 of the dump: unknown escape `\\w`"),
        ("line", replaced("wren\t", "wren "), "line 4 of the dump: not a line of a dump"),
        ("tab", replaced("Troglodytes ", "Troglodytes\t"), "line 4 of the dump: a second tab"),
        (
            "end",
            replaced("end 1 2", "end 1 3"),
            "line 6 of the dump: the last line says 1 keyspaces",
        ),
        ("more", format!("{dump}keyspace x\n"), "line 7 of the dump: data after the end"),
        (
            "outside",
            replaced("keyspace default\n", ""),
            "line 2 of the dump: a record outside of a keyspace",
        ),
        (
            "unended",
            replaced("records 2 ", "keyspace "),
            "line 5 of the dump: the previous keyspace",
        ),
        (
            "version",
            replaced("dump 1", "dump one"),
            "line 1 of the dump: this is not the first line",
        ),
        ("crlf", dump.replace('\n', "\r\n"), "line 1 of the dump: the line ends in CR LF"),
    ] {
        let copy = scratch.path(&format!("{what}.hrow"));
        let file = scratch.file(&format!("{what}.dump"), &text);
        let args = ["load", &copy, &file, "--memory-limit", "4MiB"];
        run(&args).code(4).stdout("").stderr_has(words);
        if Path::new(&copy).exists() {
            let there = dumped(&[&copy]);
            // Where the keyspace itself was right it is there.
            let is_right = matches!(what, "end" | "more");
            assert_eq!(there.len() > 40, is_right, "{what}");
        }
    }
    let copy = scratch.path("newer.hrow");
    run_with_input(&["load", &copy, "-"], replaced("dump 1", "dump 2").as_bytes())
        .code(6)
        .stderr_has("format version 2");
    assert!(!Path::new(&copy).exists());
}

#[test]
fn records_that_do_not_fit_are_named_and_the_rest_of_their_keyspace_is_not_there() {
    let scratch = Scratch::new("dump-long");
    let store = scratch.store();
    let text = format!(
        "hedgerow-dump 1\nkeyspace a\nk\tv\nrecords 1 -\nkeyspace b\nk\tv\n{}\tv\nrecords 2 -\nend 2 3\n",
        "x".repeat(100_000)
    );
    run_with_input(&["load", &store, "-"], text.as_bytes())
        .code(1)
        .stderr_has("cannot load line 7 of the dump")
        .stderr_has("stored 1 record of the dump");
    let there = String::from_utf8(dumped(&[&store])).unwrap();
    assert!(there.ends_with("\nend 1 1\n"), "{there}");
    let name = format!("hedgerow-dump 1\nkeyspace {}\nrecords 0 -\nend 1 0\n", "n".repeat(300));
    run_with_input(&["load", &store, "-"], name.as_bytes())
        .code(4)
        .stderr_has("line 2 of the dump: ");
}

#[test]
fn a_reader_of_a_dump_that_goes_away_gets_half_of_it_which_is_an_error() {
    let text: String = (0..50_000).map(|n| format!("key {n:06}\n")).collect();
    let (_scratch, store) = Scratch::loaded("dump-pipe", text);
    let args = ["dump", store.as_str()];
    let mut dump = command(&args).spawn().unwrap();
    let mut first = String::new();
    // Dropping the reader closes the pipe, as `head -1` does.
    BufReader::new(dump.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "hedgerow-dump 1\n");
    wait(&args, dump).code(1).stderr_has("closed the pipe before the end");
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_full_is_an_error_and_leaves_no_dump() {
    let (_scratch, store) = Scratch::loaded("dump-full", BIRDS);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let args = ["dump", store.as_str()];
    let child = command(&args).stdout(full).spawn().unwrap();
    wait(&args, child).code(1).stderr_has("cannot write to standard output");
    let missing = format!("{store}-no-such-directory/x.dump");
    run(&["dump", &store, "--out", &missing]).code(1).stderr_has("cannot create");
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_the_load_of_a_dump_and_nothing_of_the_keyspace_is_there() {
    use std::io::Write;
    let scratch = Scratch::new("dump-interrupt");
    let store = scratch.store();
    let args = ["load", store.as_str(), "-"];
    let mut load =
        crate::harness::interruptible(&args).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = load.stdin.take().unwrap();
    let records: String = (0..50_000).map(|n| format!("key {n:06}\tv\n")).collect();
    let text =
        format!("hedgerow-dump 1\nkeyspace a\nk\tv\nrecords 1 -\nkeyspace default\n{records}");
    stdin.write_all(text.as_bytes()).unwrap();
    // The load now waits for more input, which never comes: only the signal can end it.
    let pid = load.id().to_string();
    let killed = std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(killed.success());
    wait(&args, load).code(130).stderr_has("interrupted");
    drop(stdin);
    run(&["verify", &store]).code(0);
    let there = String::from_utf8(dumped(&[&store])).unwrap();
    assert!(!there.contains("key 0"), "{there}");
}

#[test]
fn large_values_are_dumped_in_pieces_and_loaded_again() {
    let (scratch, store) = Scratch::loaded("dump-large", BIRDS);
    let file = scratch.path("song");
    let mut random = Random(7);
    let song: Vec<u8> = (0..30).flat_map(|_| random.bytes(20_000)).collect();
    fs::write(&file, &song).unwrap();
    for key in ["", "rook", "song"] {
        run(&["put", &store, key, "--file", &file]).code(0);
    }
    let dump = dumped(&[&store]);
    assert!(dump.split(|&b| b == b'\n').all(|line| line.len() < 1 << 20));
    let copy = scratch.path("copy.hrow");
    for _ in 0..2 {
        run_with_input(&["load", &copy, "-"], &dump).code(0).stderr_has("loaded 5 records");
        assert_eq!(dumped(&[&copy]), dump);
        run(&["verify", &copy]).code(0);
    }
    // Cut off in a value, with a piece too many, and with one too few: nothing is left of it.
    let cut = &dump[..dump.len() / 2];
    let lines: Vec<&[u8]> = dump.split_inclusive(|&b| b == b'\n').collect();
    let piece = lines.iter().position(|line| line.starts_with(b"\t\t")).unwrap();
    let more = [&lines[..=piece], &lines[piece..]].concat().concat();
    let fewer = [&lines[..piece], &lines[piece + 1..]].concat().concat();
    for (damaged, words) in [(cut, "cut off"), (&more, "exceed its length"), (&fewer, "lacks ")] {
        let other = scratch.path("other.hrow");
        run_with_input(&["load", &other, "-"], damaged).code(4).stderr_has(words);
        assert!(!Path::new(&other).exists());
    }
}

/// From the first value on that comes in pieces records were put one by one, and those stayed.
#[test]
fn a_load_that_fails_leaves_nothing_of_a_keyspace_that_was_empty() {
    let (scratch, store) = Scratch::loaded("dump-whole", BIRDS);
    let mut random = Random(11);
    let song: Vec<u8> = (0..20).flat_map(|_| random.bytes(20_000)).collect();
    for key in ["finch", "tit"] {
        run(&["put", &store, key, "--file", &scratch.file("song", &song)]).code(0);
    }
    run(&["put", &store, &"l".repeat(3_000), "a long key"]).code(0);
    let dump = dumped(&[&store]);
    let copy = scratch.path("copy.hrow");
    run(&["put", &copy, "wren", "1"]).code(0);
    run(&["del", &copy, "wren"]).code(0);
    let end = dump.windows(9).rposition(|window| window == b"\nrecords ").unwrap();
    let args = ["load", &copy, "-", "--memory-limit", "4MiB"];
    run_with_input(&args, &dump[..=end]).code(4).stderr_has("stored 0 records of the dump");
    run(&["count", &copy]).code(0).stdout("0\n");
    run(&["verify", &copy]).code(0);
    run_with_input(&args, &dump).code(0).stderr_has("loaded 5 records");
    assert!(dumped(&[&copy]) == dump);
}

/// Such a value is not held in memory, and the records behind it are put one by one.
#[test]
fn a_value_of_many_mebibytes_is_loaded_piece_by_piece() {
    let (scratch, store) = Scratch::loaded("dump-very-large", BIRDS);
    let song = "chaffinch, wren, robin. ".repeat(400_000);
    run(&["put", &store, "song", "--file", &scratch.file("song", &song)]).code(0);
    let dump = dumped(&[&store]);
    let copy = scratch.path("copy.hrow");
    let args = ["load", &copy, "-", "--memory-limit", "4MiB"];
    run_with_input(&args, &dump).code(0).stderr_has("loaded 3 records");
    assert!(dumped(&[&copy]) == dump);
    run(&["verify", &copy]).code(0);
}

#[test]
#[cfg_attr(windows, ignore = "Windows hands a process at most 32,767 characters")]
fn keys_of_any_length_come_back_from_a_dump() {
    let scratch = Scratch::new("dump-long-keys");
    let (store, copy) = (scratch.store(), scratch.path("copy.hrow"));
    let alike = "k".repeat(5_000);
    for (key, value) in [
        ("k".repeat(980), "short".into()),
        (format!("{alike}a"), "one".into()),
        (format!("{alike}b"), String::new()),
        ("l".repeat(65_536), "longest".into()),
        ("m".repeat(3_000), "v".repeat(50_000)),
    ] {
        run(&["put", &store, &key, &value]).code(0);
        run(&["get", &store, &key]).code(0).stdout(format!("{value}\n"));
    }
    let dump = dumped(&[&store]);
    let file = scratch.file("urls.dump", &dump);
    run(&["load", &copy, &file]).code(0);
    assert!(dumped(&[&copy]) == dump);
    run(&["verify", &copy]).code(0);
    run(&["count", &copy]).code(0).stdout("5\n");
}

/// Whoever may not read the store may not read its records elsewhere.
#[cfg(unix)]
#[test]
fn what_is_made_of_a_store_is_as_private_as_the_store() {
    use std::os::unix::fs::PermissionsExt;
    let (scratch, store) = Scratch::loaded("dump-private", BIRDS);
    let (dump, picture) = (scratch.path("birds.dump"), scratch.path("birds.svg"));
    run(&["dump", &store, "--out", &dump]).code(0);
    run(&["pages", &store, "--svg", &picture]).code(0);
    for file in [&store, &dump, &picture] {
        let mode = fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}
