//! Both views against ordinary slices: equal inside the bytes, total outside of them.

use super::*;
use crate::primitive::random::{self, SplitMix64};

const PAGE_BYTES: usize = 256;

/// A page at an address that racing views accept.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Page([u8; PAGE_BYTES]);

impl Page {
    fn random(random: &mut SplitMix64) -> Page {
        let mut page = Page([0; PAGE_BYTES]);
        random.fill(&mut page.0);
        page
    }

    fn racing(&mut self) -> RacingBytes<'_> {
        // SAFETY: aligned, 256 bytes long, borrowed uniquely while the view lives, and accessed
        // through it alone.
        unsafe { RacingBytes::new(self.0.as_mut_ptr(), PAGE_BYTES) }
    }
}

/// The `N` bytes from `offset` on, zeros beyond the end: what every read has to give.
fn expected<const N: usize>(page: &[u8], offset: usize) -> [u8; N] {
    std::array::from_fn(|i| offset.checked_add(i).and_then(|at| page.get(at)).map_or(0, |b| *b))
}

/// The bytes that a length which is cut off at the end leaves.
fn cut(page: &[u8], offset: usize, len: usize) -> &[u8] {
    let from = offset.min(page.len());
    &page[from..from + len.min(page.len() - from)]
}

fn offsets() -> impl Iterator<Item = usize> {
    (0..PAGE_BYTES + 80).chain([
        usize::MAX,
        usize::MAX - 1,
        usize::MAX - 7,
        usize::MAX - 63,
        isize::MAX as usize,
        isize::MAX as usize + 1,
        usize::MAX - PAGE_BYTES,
    ])
}

fn numbers_are_read_as_from(view: impl PageBytes, page: &[u8]) {
    assert_eq!(view.len(), page.len());
    for offset in offsets() {
        assert_eq!(view.u8_at(offset), expected::<1>(page, offset)[0]);
        assert_eq!(view.u16_at(offset).to_le_bytes(), expected::<2>(page, offset));
        assert_eq!(view.u32_at(offset).to_le_bytes(), expected::<4>(page, offset));
        assert_eq!(view.u64_at(offset).to_le_bytes(), expected::<8>(page, offset));
        let bytes = expected::<64>(page, offset);
        for (i, word) in view.block64(offset).into_iter().enumerate() {
            assert_eq!(word.to_le_bytes(), bytes[i * 4..i * 4 + 4], "offset {offset} word {i}");
        }
        view.prefetch(offset);
    }
}

#[test]
fn numbers_inside_and_outside() {
    let mut page = Page::random(&mut SplitMix64::new(1));
    let copy = page;
    numbers_are_read_as_from(page.racing(), &copy.0);
    numbers_are_read_as_from(PlainBytes(&copy.0), &copy.0);
    // Plain views may have any length and any alignment.
    for len in [0, 1, 2, 3, 5, 7, 8, 63, 64, 65] {
        numbers_are_read_as_from(PlainBytes(&copy.0[1..1 + len]), &copy.0[1..1 + len]);
    }
}

fn copies_are_those_of(view: impl PageBytes, page: &[u8]) {
    for offset in offsets().step_by(3) {
        for len in (0..70).chain([100, 200, PAGE_BYTES, PAGE_BYTES + 9]) {
            let mut to = vec![0xaa; len + 2];
            let mut copied = Copied::new();
            view.copy_out(offset, len, &mut copied);
            assert_eq!(copied.as_bytes(), cut(page, offset, len));
            view.copy(offset, &mut to[1..=len]);
            let inside = cut(page, offset, len);
            assert_eq!(to[1..1 + inside.len()], *inside, "offset {offset} len {len}");
            assert!(to[1 + inside.len()..=len].iter().all(|b| *b == 0));
            assert_eq!((to[0], to[len + 1]), (0xaa, 0xaa), "writes stay inside the target");

            let mut to = b"before".to_vec();
            view.append_to(offset, len, &mut to);
            assert_eq!(to[..6], *b"before");
            assert_eq!(to[6..], *inside);
        }
    }
    let mut to = Vec::new();
    view.append_to(7, usize::MAX, &mut to);
    assert_eq!(to, page[7..]);
}

#[test]
fn copies_inside_and_outside() {
    let mut page = Page::random(&mut SplitMix64::new(2));
    let copy = page;
    copies_are_those_of(page.racing(), &copy.0);
    copies_are_those_of(PlainBytes(&copy.0), &copy.0);
}

#[test]
fn long_copies() {
    #[repr(align(64))]
    struct Large([u8; 4096]);
    let mut page = Large([0; 4096]);
    SplitMix64::new(3).fill(&mut page.0);
    let plain = page.0;
    // SAFETY: aligned, 4096 bytes long, borrowed uniquely, and accessed through the view alone.
    let racing = unsafe { RacingBytes::new(page.0.as_mut_ptr(), 4096) };
    for len in [1023, 1024, 1025, 2559, 2560, 2561, 4000, 4096, 5000] {
        for offset in [0, 1, 13, 96] {
            let mut to = vec![0xaa; len];
            racing.copy(offset, &mut to);
            assert_eq!(to[..cut(&plain, offset, len).len()], *cut(&plain, offset, len));
            let mut to = Vec::new();
            racing.append_to(offset, len, &mut to);
            assert_eq!(to, cut(&plain, offset, len));
            let mut to = Vec::new();
            PlainBytes(&plain).append_to(offset, len, &mut to);
            assert_eq!(to, cut(&plain, offset, len));
        }
    }
}

fn comparisons_are_those_of(view: impl PageBytes, page: &[u8], random: &mut SplitMix64) {
    for _ in 0..20_000 {
        let offset = random.below(PAGE_BYTES as u64 + 20) as usize;
        let longest = if random.below(4) == 0 { 120 } else { 20 };
        let len = random.below(longest) as usize;
        let inside = cut(page, offset, len);
        // A key that agrees with the page up to some byte, and is longer, shorter or as long.
        let mut key = inside.to_vec();
        match random.below(4) {
            0 => key.truncate(random.below(key.len() as u64 + 1) as usize),
            1 => key.extend_from_slice(&random.next_u64().to_le_bytes()[..3]),
            _ => {}
        }
        if !key.is_empty() && random.below(3) > 0 {
            let at = random.below(key.len() as u64) as usize;
            // One bit, so that bytes above 0x7f meet bytes below: an unsigned comparison.
            key[at] ^= 1 << random.below(8);
            let at = random.below(key.len() as u64) as usize;
            key[at] ^= 1 << random.below(8);
        }
        assert_eq!(view.compare(offset, len, &key), inside.cmp(&key[..]), "{inside:x?} {key:x?}");
        assert_eq!(view.equals(offset, len, &key), inside == key, "{inside:x?} {key:x?}");
        assert!(view.equals(offset, len, inside));
        assert_eq!(view.compare(offset, len, inside), Ordering::Equal);
    }
    for offset in offsets() {
        let inside = cut(page, offset, usize::MAX);
        assert_eq!(view.compare(offset, usize::MAX, b"key"), inside.cmp(b"key"));
        assert!(!view.equals(offset, usize::MAX, b"no such key"));
        assert!(view.equals(offset, usize::MAX, inside));
    }
}

#[test]
fn comparisons_agree_with_slices() {
    let seed = random::seed();
    println!("seed {seed:#x}");
    let mut random = SplitMix64::new(seed);
    let mut page = Page::random(&mut random);
    // Runs of equal bytes, as prefixes and paddings are.
    page.0[100..140].fill(0);
    page.0[140..180].fill(0xff);
    let copy = page;
    comparisons_are_those_of(page.racing(), &copy.0, &mut random);
    comparisons_are_those_of(PlainBytes(&copy.0), &copy.0, &mut random);
}

/// Every length, and every place at which two keys of that length can differ first.
#[test]
fn comparisons_find_the_first_difference_at_every_place() {
    let mut page = Page([0x55; PAGE_BYTES]);
    let view = page.racing();
    for len in 0..70_usize {
        for at in 0..len {
            for (byte, order) in
                [(0x54, Ordering::Greater), (0xd5, Ordering::Less), (0, Ordering::Greater)]
            {
                let mut key = vec![0x55; len];
                key[at] = byte;
                // What follows the first difference must not matter.
                key[at + 1..].fill(!byte);
                for offset in [0, 3, 16] {
                    assert_eq!(view.compare(offset, len, &key), order, "len {len} at {at}");
                    assert!(!view.equals(offset, len, &key));
                }
                assert_eq!(PlainBytes(&[0x55; 80]).compare(1, len, &key), order);
            }
        }
    }
}

#[test]
fn published_bytes_are_what_readers_see() {
    let mut random = SplitMix64::new(4);
    let mut page = Page::random(&mut random);
    let mut expected = page.0;
    let view = page.racing();
    let mut copy = [0; PAGE_BYTES];
    random.fill(&mut copy);
    publish(view, &copy);
    assert_eq!(unsafe_slice(view), copy);

    // Shorter: the rest of the last word becomes zero, and what follows stays.
    publish(view, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expected.copy_from_slice(&copy);
    expected[..16].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(unsafe_slice(view), expected);

    // Longer: nothing is stored beyond the end.
    publish(view, &[7; PAGE_BYTES + 64]);
    assert_eq!(unsafe_slice(view), [7; PAGE_BYTES]);
}

/// Constants are a caller's as well: sums and products of them overflowed, and the loads left the page.
#[test]
fn fields_and_slots_at_wild_constants_are_outside_of_the_page() {
    fn all(view: impl PageBytes, key: &[u8]) {
        assert_eq!(view.field_u8::<{ usize::MAX }>(), 0);
        assert_eq!(view.field_u16::<{ usize::MAX }>(), 0);
        assert_eq!(view.field_u16::<{ usize::MAX - 1 }>(), 0);
        assert_eq!(view.field_u32::<{ usize::MAX }>(), 0);
        assert_eq!(view.field_u32::<{ usize::MAX - 3 }>(), 0);
        // 16 of these slots are 2^64 bytes; and one is longer than any page.
        assert_eq!(view.lower_bound::<{ 1 << 60 }, 4>(0, 0, 16, key), (0, false));
        assert_eq!(view.lower_bound::<{ usize::MAX }, 4>(8, 0, 2, key), (0, false));
        assert_eq!(view.lower_bound::<{ 1 << 32 }, 4>(usize::MAX, 0, usize::MAX, key), (0, false));
    }
    let mut page = Page::random(&mut SplitMix64::new(5));
    for key in [&b"short"[..], &[7; 40]] {
        all(PlainBytes(&page.0), key);
        all(PlainBytes(&[]), key);
        all(page.racing(), key);
    }
}

fn publish(view: RacingBytes<'_>, bytes: &[u8]) {
    // SAFETY: these tests have one thread, and no slice lives meanwhile.
    unsafe { view.publish(bytes) };
}

fn unsafe_slice(view: RacingBytes<'_>) -> &[u8] {
    // SAFETY: these tests have one thread, and no writer is active while the slice lives.
    unsafe { view.as_slice() }
}

#[test]
fn writers_see_their_own_bytes() {
    let mut page = Page([0; PAGE_BYTES]);
    let view = page.racing();
    {
        // SAFETY: one thread, and no other slice.
        let bytes = unsafe { view.as_mut_slice() };
        bytes[5] = 9;
    }
    assert_eq!(view.u8_at(5), 9);
    assert_eq!(view.u64_at(0), 9 << 40);
}

#[test]
fn leading_numbers_below_a_bound() {
    let mut random = SplitMix64::new(5);
    for _ in 0..2_000 {
        let mut block: [u32; 16] = std::array::from_fn(|_| random.next_u64() as u32);
        if random.below(2) == 0 {
            block.sort_unstable();
        }
        let bounds = [block[random.below(16) as usize], random.next_u64() as u32, 0, 1, u32::MAX];
        for bound in bounds {
            let expected = block.iter().take_while(|number| **number < bound).count();
            assert_eq!(leading_below(&block, bound), expected, "{block:x?} {bound:x}");
        }
    }
    assert_eq!(leading_below(&[0x7fff_ffff; 16], 0x8000_0000), 16);
    assert_eq!(leading_below(&[0x8000_0000; 16], 0x7fff_ffff), 0);
}

/// The first `HEAD_BYTES` bytes of a key, filled up with zeros.
fn head<const HEAD_BYTES: usize>(key: &[u8]) -> [u8; HEAD_BYTES] {
    std::array::from_fn(|at| key.get(at).copied().unwrap_or(0))
}

/// Slots at the start, ascending records from the end down; gives the keys, all of one head.
fn slotted<const SLOT_BYTES: usize, const HEAD_BYTES: usize>(
    random: &mut SplitMix64,
    page: &mut [u8],
) -> Vec<Vec<u8>> {
    let len = HEAD_BYTES + random.below(70) as usize;
    let mut stem = vec![0; len];
    random.fill(&mut stem);
    // Zeros at the head's end, so that shorter keys have the same one.
    let zeros = random.below(HEAD_BYTES as u64 + 1) as usize;
    stem[HEAD_BYTES - zeros..HEAD_BYTES].fill(0);
    let shared_head = head::<HEAD_BYTES>(&stem);
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut room = page.len();
    while keys.len() < 40 && room > 200 {
        // A prefix of the stem, or of an earlier key, and a few bytes of a small alphabet.
        let from = match keys.len() {
            0 => &stem,
            count => &keys[random.below(count as u64) as usize],
        };
        let kept =
            if random.below(3) == 0 { random.below(from.len() as u64 + 1) } else { len as u64 };
        let mut key = from[..from.len().min(kept as usize)].to_vec();
        key.extend((0..random.below(24)).map(|_| random.below(3) as u8 * 127));
        if head::<HEAD_BYTES>(&key) == shared_head {
            room = room.saturating_sub(SLOT_BYTES + key.len());
            keys.push(key);
        }
    }
    keys.sort();
    keys.dedup();
    let mut end = page.len();
    for (index, key) in keys.iter().enumerate() {
        let record = key.get(HEAD_BYTES..).unwrap_or(&[]);
        end -= record.len();
        page[end..end + record.len()].copy_from_slice(record);
        let slot = index * SLOT_BYTES;
        let offset = if record.is_empty() { 0 } else { end };
        page[slot..slot + 2].copy_from_slice(&(offset as u16).to_le_bytes());
        page[slot + 2..slot + 4].copy_from_slice(&(key.len() as u16).to_le_bytes());
    }
    keys
}

fn finds_as_a_slice_does<const SLOT_BYTES: usize, const HEAD_BYTES: usize>(seed: u64) {
    let mut random = SplitMix64::new(seed);
    for round in 0..60 {
        let mut page = vec![0_u64; 512];
        random.fill(bytes_of(&mut page));
        let records = slotted::<SLOT_BYTES, HEAD_BYTES>(&mut random, bytes_of(&mut page));
        let mut keys = records.clone();
        for record in &records {
            keys.push([&record[..], &[0]].concat());
            keys.push(record[..record.len().saturating_sub(1)].to_vec());
            let mut other = record.clone();
            if let Some(byte) = other.last_mut() {
                *byte = byte.wrapping_add(1);
            }
            keys.push(other);
        }
        keys.retain(|key| head::<HEAD_BYTES>(key) == head::<HEAD_BYTES>(&records[0]));
        let plain = bytes_of(&mut page).to_vec();
        // SAFETY: aligned, 4,096 bytes, and accessed through this view alone while it lives.
        let racing = unsafe { RacingBytes::new(page.as_mut_ptr().cast(), 4096) };
        for key in &keys {
            let found = records.binary_search(key);
            let expected = (found.unwrap_or_else(|at| at), found.is_ok());
            let count = records.len();
            let view = PlainBytes::new(&plain);
            let context = || format!("seed {seed} round {round} key {key:?}");
            let found = view.lower_bound::<SLOT_BYTES, HEAD_BYTES>(0, 0, count, key);
            assert_eq!(found, expected, "{}", context());
            let found = racing.lower_bound::<SLOT_BYTES, HEAD_BYTES>(0, 0, count, key);
            assert_eq!(found, expected, "{}", context());
        }
    }
}

fn bytes_of(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: the same bytes, all of them initialised, borrowed uniquely; bytes need no alignment.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 8) }
}

#[test]
fn slots_are_searched_as_a_slice_is() {
    finds_as_a_slice_does::<6, 0>(6);
    finds_as_a_slice_does::<8, 0>(7);
    finds_as_a_slice_does::<6, 4>(16);
    finds_as_a_slice_does::<8, 4>(17);
}

fn arbitrary_slots_are_searched<const HEAD_BYTES: usize>(seed: u64) {
    let mut random = SplitMix64::new(seed);
    for round in 0..2_000 {
        let mut page = Page::random(&mut random);
        // Keys that are in the page, so that windows and whole blocks agree now and then.
        let from = random.below(PAGE_BYTES as u64) as usize;
        let mut key = page.0[from..].to_vec();
        key.truncate(random.below(80) as usize);
        if round % 2 == 0 {
            page.0[64..].fill(7);
            key.fill(7);
        }
        let slots = [0, 1, 60, PAGE_BYTES - 1, PAGE_BYTES, usize::MAX, usize::MAX - 7];
        for slots in slots {
            for high in [0, 1, 30, 1 << 16, usize::MAX / 2] {
                let low = random.below(4) as usize;
                let copy = page.0;
                let plain = PlainBytes::new(&copy);
                let found = plain.lower_bound::<6, HEAD_BYTES>(slots, low, high, &key);
                assert!(found.0 <= high.max(low), "seed {seed} round {round}");
                let inside = PAGE_BYTES.saturating_sub(slots) / 8;
                let found = page.racing().lower_bound::<8, HEAD_BYTES>(slots, low, high, &key);
                assert!(found.0 <= high.min(inside).max(low), "seed {seed} round {round}");
                assert_eq!(found, plain.lower_bound::<8, HEAD_BYTES>(slots, low, high, &key));
            }
        }
    }
}

#[test]
fn a_search_among_arbitrary_slots_ends_inside_of_them() {
    arbitrary_slots_are_searched::<0>(8);
    arbitrary_slots_are_searched::<4>(9);
}

#[test]
fn copies_hold_what_the_page_held_wherever_it_lay() {
    let bytes: Vec<u8> = (0..512_u32).map(|i| (i * 7 + i / 256) as u8).collect();
    let view = PlainBytes::new(&bytes);
    let mut reused = Copied::new();
    for len in (0..150).chain([300, 511, 512, 513, 9000]) {
        for offset in (0..40).chain(340..530).chain([usize::from(u16::MAX)]) {
            let start = offset.min(bytes.len());
            let expected = &bytes[start..(start + len).min(bytes.len())];
            view.copy_out(offset, len, &mut reused);
            assert_eq!(reused.as_bytes(), expected, "{len} bytes at {offset}");
            assert_eq!(reused.clone().as_bytes(), expected);
        }
        // A short one takes the place of a long one, and the other way round.
        view.copy_out(3, len, &mut reused);
        assert_eq!(Copied::from(reused.as_bytes()).into_vec(), reused.into_vec());
        reused = Copied::new();
    }
}
