//! What a racing read costs: the same in-page look-up over racing bytes, plain bytes, and slices.
//!
//! ```text
//! cargo build --release -p hedgerow-sync --example optimistic_cost
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*look_up_all*' \
//!     target/release/examples/optimistic_cost racing
//! ```
//!
//! The argument is `racing`, `plain` or `slice`. The instructions collected, divided by the number of
//! look-ups printed, are the cost of one: 16 hints, the heads in their range, the comparison of one
//! key and of the next, a copy of a value of 8 to 100 bytes.

use hedgerow_sync::latch::HybridLatch;
use hedgerow_sync::optimistic::{Copied, PageBytes, PlainBytes, RacingBytes, leading_below};
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::time::Moment;
use std::cmp::Ordering;
use std::hint::black_box;

const PAGE_BYTES: usize = 4096;
const KEYS: usize = 40;
const ROUNDS: usize = 500;

const COUNT: usize = 36;
const HINTS: usize = 64;
const HEADS: usize = 128;
// A block of heads may begin at the last one; the unused are as large as can be.
const HEADS_CAPACITY: usize = KEYS.next_multiple_of(16) + 16;
const SLOTS: usize = HEADS + HEADS_CAPACITY * 4;
const SLOT_BYTES: usize = 6;

#[repr(align(64))]
struct Page([u8; PAGE_BYTES]);

fn head(suffix: &[u8]) -> u32 {
    match suffix.first_chunk::<4>() {
        Some(bytes) => u32::from_be_bytes(*bytes),
        None => {
            suffix.iter().enumerate().fold(0, |head, (i, b)| head | u32::from(*b) << (24 - i * 8))
        }
    }
}

fn put16(page: &mut [u8], offset: usize, value: usize) {
    page[offset..offset + 2].copy_from_slice(&(value as u16).to_le_bytes());
}

fn put32(page: &mut [u8], offset: usize, value: u32) {
    page[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
}

/// A page of sorted URL-like suffixes, and the suffixes.
fn build(page: &mut [u8]) -> Vec<Vec<u8>> {
    let mut random = SplitMix64::new(7);
    let words = ["archive", "index", "news", "photos", "research", "shop", "wiki", "blog"];
    let mut keys: Vec<Vec<u8>> = (0..KEYS)
        .map(|_| {
            // Two of eight letters: most heads differ, some agree.
            let mut key = vec![b'a' + random.below(8) as u8, b'a' + random.below(8) as u8];
            for _ in 0..2 + random.below(3) {
                key.extend_from_slice(words[random.below(8) as usize].as_bytes());
                key.push(b'/');
            }
            key.extend_from_slice(&random.next_u64().to_string().as_bytes()[..6]);
            key
        })
        .collect();
    keys.sort();
    keys.dedup();
    let mut heap = PAGE_BYTES;
    page[HEADS..SLOTS].fill(0xff);
    for (index, key) in keys.iter().enumerate() {
        let value_len = 8 + random.below(93) as usize;
        heap -= key.len() + value_len;
        page[heap..heap + key.len()].copy_from_slice(key);
        page[heap + key.len()..heap + key.len() + value_len].fill(index as u8);
        put32(page, HEADS + index * 4, head(key));
        put16(page, SLOTS + index * SLOT_BYTES, heap);
        put16(page, SLOTS + index * SLOT_BYTES + 2, key.len());
        put16(page, SLOTS + index * SLOT_BYTES + 4, value_len);
    }
    assert!(heap > SLOTS + keys.len() * SLOT_BYTES);
    put16(page, COUNT, keys.len());
    let step = keys.len() / 17;
    for hint in 0..16 {
        put32(page, HINTS + hint * 4, head(&keys[(hint + 1) * step]));
    }
    keys
}

/// Finds `key` and appends its value.
#[inline(never)]
fn look_up<B: PageBytes>(page: B, key: &[u8], to: &mut Vec<u8>) -> bool {
    let count = usize::from(page.u16_at(COUNT)).min(HEADS_CAPACITY);
    let head = head(key);
    let step = count / 17;
    let hint = leading_below(&page.block64(HINTS), head);
    let mut from = hint * step;
    // The first head that is not below: at most a few blocks of 16, by the hints.
    while from < count {
        let less = leading_below(&page.block64(HEADS + from * 4), head);
        from += less;
        if less < 16 {
            break;
        }
    }
    let mut index = from;
    while index < count {
        if page.u32_at(HEADS + index * 4) != head {
            return false;
        }
        // Offset, length of the suffix and length of the value in one load.
        let slot = page.u64_at(SLOTS + index * SLOT_BYTES);
        let (offset, len) = ((slot & 0xffff) as usize, (slot >> 16 & 0xffff) as usize);
        match page.compare(offset, len, key) {
            Ordering::Less => index += 1,
            Ordering::Equal => {
                let value_len = (slot >> 32 & 0xffff) as usize;
                page.append_to(offset + len, value_len, to);
                return true;
            }
            Ordering::Greater => return false,
        }
    }
    false
}

/// The same by ordinary code over a slice: checked indexing, `memcmp` and `memcpy`.
#[derive(Clone, Copy)]
struct Slice<'a>(&'a [u8]);

impl Slice<'_> {
    fn number<const N: usize>(&self, offset: usize) -> [u8; N] {
        self.0.get(offset..offset + N).map_or([0; N], |b| b.try_into().unwrap())
    }

    fn part(&self, offset: usize, len: usize) -> &[u8] {
        let from = offset.min(self.0.len());
        &self.0[from..from + len.min(self.0.len() - from)]
    }
}

impl PageBytes for Slice<'_> {
    fn len(self) -> usize {
        self.0.len()
    }
    fn u8_at(self, offset: usize) -> u8 {
        self.number::<1>(offset)[0]
    }
    fn u16_at(self, offset: usize) -> u16 {
        u16::from_le_bytes(self.number(offset))
    }
    fn u32_at(self, offset: usize) -> u32 {
        u32::from_le_bytes(self.number(offset))
    }
    fn u64_at(self, offset: usize) -> u64 {
        u64::from_le_bytes(self.number(offset))
    }
    fn block64(self, offset: usize) -> [u32; 16] {
        let bytes = self.number::<64>(offset);
        std::array::from_fn(|i| u32::from_le_bytes(bytes[i * 4..i * 4 + 4].try_into().unwrap()))
    }
    fn compare(self, offset: usize, len: usize, key: &[u8]) -> Ordering {
        self.part(offset, len).cmp(key)
    }
    fn lower_bound<const SLOT_BYTES: usize, const HEAD_BYTES: usize>(
        self,
        slots: usize,
        low: usize,
        high: usize,
        key: &[u8],
    ) -> (usize, bool) {
        let record = |index: usize| {
            let slot = slots + index * SLOT_BYTES;
            let len = usize::from(self.u16_at(slot + 2));
            (self.part(self.u16_at(slot).into(), len.saturating_sub(HEAD_BYTES)), len)
        };
        let ours = (key.get(HEAD_BYTES..).unwrap_or(&[]), key.len());
        let index = (low..high).find(|&index| record(index) >= ours).unwrap_or(high);
        (index, index < high && record(index) == ours)
    }
    fn equals(self, offset: usize, len: usize, key: &[u8]) -> bool {
        self.part(offset, len) == key
    }
    fn copy_out(self, offset: usize, len: usize, to: &mut Copied) {
        *to = Copied::from(self.part(offset, len));
    }
    fn copy(self, offset: usize, to: &mut [u8]) {
        to.copy_from_slice(self.part(offset, to.len()));
    }
    fn append_to(self, offset: usize, len: usize, to: &mut Vec<u8>) {
        to.extend_from_slice(self.part(offset, len));
    }
    fn prefetch(self, _offset: usize) {}
}

/// Every key `ROUNDS` times. With a latch, each look-up is validated, as an optimistic one is.
#[inline(never)]
fn look_up_all<B: PageBytes>(page: B, keys: &[Vec<u8>], latch: &HybridLatch) -> usize {
    let mut value = Vec::with_capacity(256);
    let mut found = 0;
    for _ in 0..ROUNDS {
        for key in keys {
            value.clear();
            let Some(version) = black_box(latch).optimistic() else { continue };
            let hit = look_up(page, black_box(key), &mut value);
            if latch.validate(version) && hit {
                found += 1;
            }
            black_box(value.as_ptr());
        }
    }
    found
}

fn main() {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let mut page = Box::new(Page([0; PAGE_BYTES]));
    let keys = build(&mut page.0);
    let latch = HybridLatch::new();
    let start = Moment::now();
    let found = match mode.as_str() {
        "racing" => {
            // SAFETY: aligned to 64, 4096 bytes long, and accessed through this view alone.
            let view = unsafe { RacingBytes::new(page.0.as_mut_ptr(), PAGE_BYTES) };
            look_up_all(view, &keys, &latch)
        }
        "plain" => look_up_all(PlainBytes(&page.0), &keys, &latch),
        "slice" => look_up_all(Slice(&page.0), &keys, &latch),
        _ => {
            eprintln!("usage: optimistic_cost racing|plain|slice");
            std::process::exit(2);
        }
    };
    let nanos = start.elapsed().as_nanos() as f64 / (ROUNDS * keys.len()) as f64;
    assert_eq!(found, ROUNDS * keys.len());
    println!("{} look-ups, {nanos:.1} ns each", ROUNDS * keys.len());
}
