//! Planted defects: `check` names each of them, and `load_check` those that could lead a writer astray.

#![cfg(not(any(hedgerow_rung = "baseline", hedgerow_rung = "prefix", hedgerow_rung = "heads")))]

use super::*;
use crate::node::fields::{
    HEAP_LIVE, HEAP_START, LOWER_LEN, NODE_FLAGS, PREFIX_LEN, RUN, set_u16, set_u32,
};
use crate::node::layout::{HINTS, Slot, UPPER_CHILD, head_of, set_head, set_slot, slot};
use crate::page::header::{FLAGS, KIND, LEVEL};

fn leaf() -> Vec<u8> {
    let mut page = new_leaf(4096, Some(b"key:0"), Some(b"key:9"));
    for number in 0..40u8 {
        let key = format!("key:5/{number:03}");
        NodeMut::new(&mut page).insert(number.into(), key.as_bytes(), b"value").unwrap();
    }
    page
}

fn inner() -> Vec<u8> {
    let mut page = new_page(4096);
    let mut node = NodeMut::format(&mut page, PageKind::Inner, 1, None, None);
    node.set_upper_child(PageId(4));
    node.insert_child(0, b"m", PageId(5)).unwrap();
    page
}

/// A tree of long separators may have all of them, and whatever a tree has is no damage when it is read.
#[test]
fn every_level_of_a_tree_is_sound() {
    for level in 1..=crate::node::MAX_LEVEL {
        let mut page = inner();
        page[LEVEL] = level;
        assert_clean(&page);
        assert!(load_check(&page).is_ok(), "{level}");
    }
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

fn change_slot(page: &mut [u8], index: usize, change: impl Fn(&mut Slot)) {
    let mut changed = slot(page, index);
    change(&mut changed);
    set_slot(page, index, changed);
}

#[test]
fn every_defect_of_the_fixed_fields_is_named() {
    plant(leaf(), Defect::Kind(9), true, |page| page[KIND] = 9);
    plant(leaf(), Defect::Kind(0), true, |page| page[KIND] = 0);
    plant(leaf(), Defect::Level(1), true, |page| page[LEVEL] = 1);
    plant(inner(), Defect::Level(64), true, |page| page[LEVEL] = 64);
    plant(leaf(), Defect::Flags(2), false, |page| page[FLAGS] = 2);
    plant(leaf(), Defect::Flags(8), true, |page| page[NODE_FLAGS] = 8);
    let heads = Defect::HeadsCapacity { capacity: 32, count: 40 };
    plant(leaf(), heads, true, |page| set_u16(page, HEADS_CAPACITY, 32));
    let fences = Defect::FenceLength { lower: 4000, upper: 5 };
    plant(leaf(), fences, true, |page| set_u16(page, LOWER_LEN, 4000));
    let prefix = Defect::PrefixLength { stored: 5, expected: 4 };
    plant(leaf(), prefix, true, |page| set_u16(page, PREFIX_LEN, 5));
    let prefix = Defect::PrefixLength { stored: 3, expected: 4 };
    plant(leaf(), prefix, false, |page| set_u16(page, PREFIX_LEN, 3));
    plant(leaf(), Defect::HeapStart(100), true, |page| set_u32(page, HEAP_START, 100));
    plant(leaf(), Defect::HeapStart(5000), true, |page| set_u32(page, HEAP_START, 5000));
    let live = Defect::HeapLive { stored: 7, counted: 240 };
    plant(leaf(), live, true, |page| set_u32(page, HEAP_LIVE, 7));
    // With room of a record that is there no more.
    let mut with_room = leaf();
    NodeMut::new(&mut with_room).remove(0);
    let more_than_room = Defect::HeapLive { stored: 241, counted: 240 };
    plant(with_room, more_than_room, true, |page| set_u32(page, HEAP_LIVE, 241));
    plant(leaf(), Defect::Run(-65), false, |page| set_u16(page, RUN, 0xffbf));
    plant(leaf(), Defect::UpperChild(4), false, |page| set_u32(page, UPPER_CHILD, 4));
    plant(leaf(), Defect::FenceOrder, false, |page| *page.last_mut().unwrap() = b'9');
    let slots = Defect::Slots(128 + 4 * 16_000 + 6 * 40);
    plant(leaf(), slots, true, |page| set_u16(page, HEADS_CAPACITY, 16_000));
}

#[test]
fn every_defect_of_the_records_is_named() {
    let low = |page: &mut [u8]| change_slot(page, 3, |slot| slot.offset = 500);
    plant(leaf(), Defect::RecordPlace(3), true, low);
    let high = |page: &mut [u8]| change_slot(page, 3, |slot| slot.offset = 4090);
    plant(leaf(), Defect::RecordPlace(3), true, high);
    let long = |page: &mut [u8]| change_slot(page, 3, |slot| slot.value_len = 2000);
    plant(leaf(), Defect::RecordLength(3), true, long);
    let other = slot(&leaf(), 4).offset;
    let overlap = |page: &mut [u8]| change_slot(page, 3, |slot| slot.offset = other);
    plant(leaf(), Defect::RecordsOverlap(3, 4), false, overlap);
    plant(leaf(), Defect::SlotBits(3), false, |page| page[128 + 4 * 48 + 6 * 3 + 5] |= 0x80);
    let first_byte = |page: &[u8], index: usize| slot(page, index).offset;
    plant(leaf(), Defect::Order(8), false, |page| page[first_byte(page, 7)] = b'9');
    plant(leaf(), Defect::Order(8), false, |page| set_head(page, 7, head_of(b"6/00")));
    plant(leaf(), Defect::OutsideFences(39), false, |page| set_head(page, 39, head_of(b"9/03")));
    plant(leaf(), Defect::OutsideFences(0), false, |page| set_head(page, 0, head_of(b"//00")));
    plant(inner(), Defect::Head(0), false, |page| set_head(page, 0, head_of(b"m\0\0\x01")));
    plant(leaf(), Defect::Hint(1), false, |page| page[HINTS + 4] ^= 1);
    plant(leaf(), Defect::Hint(9), false, |page| page[HINTS + 36] ^= 1);
    plant(inner(), Defect::Child(0), false, |page| change_slot(page, 0, |slot| slot.child = 512));
    plant(inner(), Defect::Child(1), false, |page| set_u32(page, UPPER_CHILD, 0));
}
