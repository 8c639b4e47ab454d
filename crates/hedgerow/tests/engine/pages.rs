//! Showing pages: what is shown is the tree, every byte of every page is accounted for once, and bytes
//! that are damaged in any way are described without a panic.

use hedgerow::anatomy::{Anatomy, Content, Mark, Part, anatomy};
use hedgerow::internals::node::fingerprint::fingerprint;
use hedgerow::{Database, Keyspace, LeafLayout, LeafPolicy, Options};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Records that every layout can hold but fully dense leaves, if `values` vary.
fn filled(layout: LeafLayout, vary: bool) -> (Database, Keyspace) {
    let options = Options::new().memory_limit_bytes(16 << 20).leaves(LeafPolicy::Fixed(layout));
    let db = options.in_memory().unwrap();
    let keyspace = db.keyspace("k").unwrap();
    for step in 0..20_000_u32 {
        let number = step.wrapping_mul(7_919) % 20_000;
        let key = [b"stem-".as_slice(), &number.to_be_bytes()].concat();
        let value = vec![b'v'; if vary { (number % 200) as usize } else { 8 }];
        keyspace.put(&key, &value).unwrap();
    }
    // Dead bytes, and slots without a record.
    for number in (0..20_000_u32).step_by(5) {
        assert!(keyspace.remove(&[b"stem-".as_slice(), &number.to_be_bytes()].concat()).unwrap());
    }
    (db, keyspace)
}

fn pages(keyspace: &Keyspace) -> Vec<(u32, Vec<u8>)> {
    let mut pages = Vec::new();
    keyspace
        .show_pages(|page| {
            assert_eq!(page.defects(), [""; 0]);
            pages.push((page.id.0, page.bytes.unwrap().to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    pages
}

/// That the regions are the page, one after the other.
fn check_regions(page: &[u8], drawn: &Anatomy) {
    let mut end = 0;
    for region in &drawn.regions {
        assert_eq!(region.at, end, "{:?}", drawn.regions);
        assert!(region.len > 0);
        end += region.len;
    }
    assert_eq!(end, page.len());
    assert_eq!(drawn.parts.len(), page.len());
}

fn field(drawn: &Anatomy, name: &str) -> usize {
    let field = drawn.fields.iter().find(|field| field.name == name).expect(name);
    usize::try_from(field.value).unwrap()
}

#[test]
fn references_are_found_in_every_layout() {
    for layout in LeafLayout::ALL {
        let options = Options::new().memory_limit_bytes(16 << 20);
        let db = options.leaves(LeafPolicy::Fixed(layout)).temporary().unwrap();
        let keyspace = db.keyspace("k").unwrap();
        for number in 0..500_u32 {
            let key = [b"stem-".as_slice(), &number.to_be_bytes()].concat();
            keyspace.put(&key, &vec![number as u8; 5000 + number as usize]).unwrap();
        }
        let (mut found, mut of_layout) = (0, 0);
        for (_, page) in pages(&keyspace) {
            let drawn = anatomy(&page, usize::MAX);
            check_regions(&page, &drawn);
            of_layout +=
                usize::from(drawn.kind.is_some_and(|kind| kind.name().starts_with(layout.name())));
            // A run each, and none of the values is in a leaf.
            assert_eq!(drawn.bytes_of(Part::Reference), 40 * drawn.references.len());
            assert_eq!(drawn.bytes_of(Part::Value), 0);
            for reference in &drawn.references {
                let len_bytes = reference.len_bytes().expect("nothing is damaged");
                assert_eq!(len_bytes, 5000 + found);
                // And eight bytes of a checksum, in units of 512; or of 4096 where the system does not tell that 512 will do.
                let in_file = keyspace.extent_places(reference).unwrap()[0].1;
                assert!(
                    [512, 4096]
                        .map(|unit| (len_bytes + 8).next_multiple_of(unit))
                        .contains(&in_file)
                );
                found += 1;
            }
        }
        assert!(found == 500 && of_layout > 0, "{found} in {of_layout} leaves of {layout:?}");
    }
}

#[test]
fn every_byte_and_every_record_of_every_layout_is_shown_once() {
    for (layout, vary) in [
        (LeafLayout::Comparison, true),
        (LeafLayout::Fingerprint, true),
        (LeafLayout::SemiDense, true),
        (LeafLayout::FullyDense, false),
    ] {
        let (_db, keyspace) = filled(layout, vary);
        let (mut shown, mut children, mut found) = (BTreeMap::new(), Vec::new(), 0);
        let pages = pages(&keyspace);
        for (id, page) in &pages {
            let drawn = anatomy(page, usize::MAX);
            assert!(drawn.readable && drawn.defects.is_empty(), "{:?}", drawn.defects);
            check_regions(page, &drawn);
            assert_eq!(drawn.bytes_of(Part::Unknown), 0);
            assert_eq!(drawn.entries.len(), field(&drawn, "count"));
            found +=
                usize::from(drawn.kind.is_some_and(|kind| kind.name().starts_with(layout.name())));
            let stored = [Part::Key, Part::Length, Part::Value]
                .map(|part| drawn.bytes_of(part))
                .iter()
                .sum();
            match drawn.kind.filter(|_| layout == LeafLayout::FullyDense) {
                Some(kind) if kind == layout.kind() => {
                    assert_eq!(8 * drawn.entries.len(), stored);
                }
                _ => assert_eq!(field(&drawn, "live heap bytes"), stored, "page {id}"),
            }
            assert_eq!(field(&drawn, "page id"), *id as usize);
            for entry in drawn.entries {
                let prefix = field_of_prefix(page);
                match entry.mark {
                    Mark::Head(head) => {
                        let rest = &entry.key[prefix..];
                        let len = rest.len().min(4);
                        assert_eq!(head[..len], rest[..len]);
                    }
                    Mark::Fingerprint(hash) => {
                        assert_eq!(hash, fingerprint(&entry.key[prefix..]));
                    }
                    Mark::Number(number) => {
                        assert_eq!(entry.key[entry.key.len() - 4..], number.to_be_bytes());
                    }
                }
                match entry.content {
                    Content::Value(value) => {
                        assert_eq!(shown.insert(entry.key, value), None);
                    }
                    Content::Child(child) => children.push(child.0),
                }
            }
            children.extend(drawn.upper_child.map(|child| child.0));
        }
        assert!(2 * found > pages.len(), "{layout:?}: {found} of {}", pages.len());
        let records = keyspace.iter().map(|record| record.unwrap());
        let records: BTreeMap<_, _> = records.map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        assert_eq!(records.len(), 16_000);
        assert_eq!(shown, records, "{layout:?}");
        let mut ids: Vec<_> = pages.iter().skip(1).map(|&(id, _)| id).collect();
        ids.sort_unstable();
        children.sort_unstable();
        assert_eq!(ids, children, "all pages but the root are children");
    }
}

fn field_of_prefix(page: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([page[38], page[39]]))
}

#[test]
fn any_bytes_are_described() {
    let (_db, keyspace) = filled(LeafLayout::SemiDense, true);
    let mut pages: Vec<_> = pages(&keyspace).into_iter().take(3).map(|(_, page)| page).collect();
    for layout in [LeafLayout::Fingerprint, LeafLayout::Comparison, LeafLayout::FullyDense] {
        let (_db, keyspace) = filled(layout, false);
        pages.extend(self::pages(&keyspace).into_iter().skip(1).take(2).map(|(_, page)| page));
    }
    let (mut unreadable, mut wrong) = (0, 0);
    for page in &pages {
        for at in (32..128).chain((128..page.len()).step_by(37)) {
            for bits in [1, 0x80, 0xff] {
                let mut damaged = page.clone();
                damaged[at] ^= bits;
                let drawn = anatomy(&damaged, 8);
                check_regions(&damaged, &drawn);
                assert!(drawn.entries.len() <= 8);
                unreadable += usize::from(!drawn.readable);
                wrong += usize::from(!drawn.defects.is_empty());
                assert!(drawn.readable || !drawn.defects.is_empty());
                assert!(drawn.readable || drawn.bytes_of(Part::Unknown) >= page.len() - 64);
            }
        }
    }
    assert!(unreadable > 100 && wrong > unreadable, "{unreadable} {wrong}");
    for short in [0, 1, 35, 64, 511] {
        let drawn = anatomy(&vec![2; short], 8);
        check_regions(&vec![2; short], &drawn);
        assert!(!drawn.readable && drawn.kind.is_none());
    }
}

#[test]
fn a_tool_that_has_seen_enough_sees_no_more() {
    let (_db, keyspace) = filled(LeafLayout::Comparison, true);
    let all = pages(&keyspace).len();
    assert!(all > 100);
    for enough in [1, 2, 3, 60] {
        let mut seen = 0;
        keyspace
            .show_pages(|_| {
                seen += 1;
                if seen == enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
        assert_eq!(seen, enough);
    }
}
