//! Planted defects: `check` names each of them, and `load_check` those that could lead a writer
//! astray.

use super::*;
use crate::node::fields::{
    COUNT, HEADS_CAPACITY, HEAP_LIVE, HEAP_START, LOWER_LEN, NODE_FLAGS, PREFIX_LEN, RUN, set_u16,
    set_u32, u16_at,
};
use crate::node::layout::UPPER_CHILD;
use crate::page::header::{FLAGS, KIND, LEVEL};

/// First byte of the slots of [`leaf`].
const SLOTS: usize = 64 + 48;

/// Forty records, of which the first thirty are sorted.
fn leaf() -> Vec<u8> {
    let mut page = new_leaf(4096, Some(b"key:0"), Some(b"key:9"));
    for number in (0..40u8).rev() {
        let key = format!("key:5/{:03}", (number + 10) % 40);
        FingerprintLeafMut::new(&mut page).insert(key.as_bytes(), b"value").unwrap();
        if number == 10 {
            FingerprintLeafMut::new(&mut page).sort();
        }
    }
    assert_eq!((sorted_count(&page), u16_at(&page, HEADS_CAPACITY)), (30, 48));
    page
}

fn wide_leaf() -> Vec<u8> {
    let mut page = leaf();
    put(&mut page, b"key:6", &[1; 300]).unwrap();
    assert!(is_wide(&page));
    page
}

/// Changes a page and says whether the check at page-in must notice.
#[track_caller]
fn plant(mut page: Vec<u8>, expected: Defect, endangers: bool, change: impl Fn(&mut [u8])) {
    assert_clean(&page);
    change(&mut page);
    let found = check(&page);
    assert!(found.contains(&expected), "{found:?}");
    assert!(found.iter().all(|defect| !defect.to_string().is_empty()));
    assert_eq!(load_check(&page).is_err(), endangers, "{:?}", load_check(&page));
}

#[test]
fn every_defect_of_the_fixed_fields_is_named() {
    plant(leaf(), Defect::Kind(2), true, |page| page[KIND] = 2);
    plant(leaf(), Defect::Level(1), true, |page| page[LEVEL] = 1);
    plant(leaf(), Defect::Flags(2), false, |page| page[FLAGS] = 2);
    plant(leaf(), Defect::Flags(8), true, |page| page[NODE_FLAGS] |= 8);
    let capacity = Defect::FingerprintsCapacity { capacity: 36, count: 40 };
    plant(leaf(), capacity, true, |page| set_u16(page, HEADS_CAPACITY, 36));
    let capacity = Defect::FingerprintsCapacity { capacity: 49, count: 40 };
    plant(leaf(), capacity, true, |page| set_u16(page, HEADS_CAPACITY, 49));
    plant(leaf(), Defect::FingerprintFunction(2), true, |page| set_u16(page, UPPER_CHILD + 2, 2));
    plant(leaf(), Defect::SortedCount(41), true, |page| set_u16(page, UPPER_CHILD, 41));
    plant(leaf(), Defect::Order(33), false, |page| set_u16(page, UPPER_CHILD, 34));
    let fences = Defect::FenceLength { lower: 4000, upper: 5 };
    plant(leaf(), fences, true, |page| set_u16(page, LOWER_LEN, 4000));
    let prefix = Defect::PrefixLength { stored: 5, expected: 4 };
    plant(leaf(), prefix, true, |page| set_u16(page, PREFIX_LEN, 5));
    let prefix = Defect::PrefixLength { stored: 3, expected: 4 };
    plant(leaf(), prefix, false, |page| set_u16(page, PREFIX_LEN, 3));
    plant(leaf(), Defect::HeapStart(100), true, |page| set_u32(page, HEAP_START, 100));
    plant(leaf(), Defect::HeapStart(5000), true, |page| set_u32(page, HEAP_START, 5000));
    let live = Defect::HeapLive { stored: 7, counted: 400 };
    plant(leaf(), live, true, |page| set_u32(page, HEAP_LIVE, 7));
    plant(leaf(), Defect::Run(-65), false, |page| set_u16(page, RUN, 0xffbf));
    plant(leaf(), Defect::FenceOrder, false, |page| *page.last_mut().unwrap() = b'9');
    let slots = Defect::Slots(64 + 1000 + 4 * 1000);
    plant(leaf(), slots, true, |page| {
        set_u16(page, COUNT, 1000);
        set_u16(page, HEADS_CAPACITY, 1000);
    });
}

#[test]
fn every_defect_of_the_records_is_named() {
    let offset = |place: usize| SLOTS + 4 * place;
    plant(leaf(), Defect::RecordPlace(3), true, |page| set_u16(page, offset(3), 200));
    plant(leaf(), Defect::RecordPlace(3), true, |page| set_u16(page, offset(3), 4090));
    plant(leaf(), Defect::RecordPlace(3), true, |page| page[offset(3) + 2] = 255);
    let other = u16_at(&leaf(), offset(4));
    let overlap = |page: &mut [u8]| set_u16(page, offset(3), other);
    plant(leaf(), Defect::RecordsOverlap(3, 4), false, overlap);
    let first_byte = |page: &[u8], place: usize| u16_at(page, offset(place));
    plant(leaf(), Defect::Order(8), false, |page| page[first_byte(page, 7)] = b'9');
    plant(leaf(), Defect::OutsideFences(39), false, |page| page[first_byte(page, 39)] = b'9');
    plant(leaf(), Defect::OutsideFences(0), false, |page| page[first_byte(page, 0)] = b'/');
    plant(leaf(), Defect::Fingerprint(0), false, |page| page[64] ^= 1);
    plant(leaf(), Defect::Fingerprint(39), false, |page| page[64 + 39] ^= 0x80);
    // A record of the tail becomes one of the sorted part.
    plant(leaf(), Defect::Duplicate(35), false, |page| {
        let (from, to) = (first_byte(page, 4), first_byte(page, 35));
        page.copy_within(from..from + 5, to);
        page[64 + 35] = page[64 + 4];
    });
    let wide = u16_at(&wide_leaf(), HEADS_CAPACITY) + 64;
    let bits = |page: &mut [u8]| page[wide + 6 * 3 + 5] |= 0x80;
    plant(wide_leaf(), Defect::SlotBits(3), false, bits);
    let long = |page: &mut [u8]| set_u16(page, wide + 6 * 3 + 4, 2000);
    plant(wide_leaf(), Defect::RecordLength(3), true, long);
}
