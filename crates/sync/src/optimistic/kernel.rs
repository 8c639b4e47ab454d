//! Compare, equality and copy over either kind of load: no byte loops, few branches.
//!
//! Every function works in steps of 16 bytes; what is left over is read by a last step that overlaps
//! the one before, and lengths below 16 by two overlapping loads of 8, 4 or 2 bytes. Overlapping
//! bytes are compared twice. Where bytes race they may differ between the two: then the result is
//! wrong, and the reader's validation says so; nothing else depends on it.

use super::load::{Block, Load, Plain, copy_blocks};
use std::cmp::Ordering;

/// From this length on a copy is left to the long-copy routine of the loads: the library's, where
/// nobody changes the bytes.
const LONG_COPY_BYTES: usize = 2560;

/// How two different blocks of 16 bytes compare; `None` if they are equal.
#[inline(always)]
fn compare_blocks(page: Block, key: Block) -> Option<Ordering> {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8};
        // SAFETY: SSE2 is part of x86-64; these work on registers alone.
        let (equal, at_most) = unsafe {
            let equal = _mm_movemask_epi8(_mm_cmpeq_epi8(page, key)) as u32;
            let smaller = _mm_min_epu8(page, key);
            (equal, _mm_movemask_epi8(_mm_cmpeq_epi8(page, smaller)) as u32)
        };
        let different = equal ^ 0xffff;
        if different == 0 {
            return None;
        }
        // Lowest address, lowest bit: the first byte that differs decides.
        let first = different & different.wrapping_neg();
        Some(if at_most & first != 0 { Ordering::Less } else { Ordering::Greater })
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        if page == key {
            return None;
        }
        // Big-endian numbers compare as their bytes do.
        Some(page.swap_bytes().cmp(&key.swap_bytes()))
    }
}

#[inline(always)]
fn blocks_equal(a: Block, b: Block) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8};
        // SAFETY: SSE2 is part of x86-64; these work on registers alone.
        unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(a, b)) == 0xffff }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        a == b
    }
}

/// A bit for each byte in which two blocks differ, of lowest address lowest, and no other; zero if they
/// are equal.
#[inline(always)]
pub(super) fn differences(a: Block, b: Block) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8};
        // SAFETY: SSE2 is part of x86-64; these work on registers alone.
        let equal = unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(a, b)) };
        equal as u32 ^ 0xffff
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // Only the first one is ever looked at.
        let first = (a ^ b).trailing_zeros() / 8;
        if first < 16 { 1 << first } else { 0 }
    }
}

/// How many bytes at the beginning of two blocks are the same; at most 16.
#[inline(always)]
pub(super) fn first_difference(a: Block, b: Block) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8};
        // SAFETY: SSE2 is part of x86-64; these work on registers alone.
        let equal = unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(a, b)) };
        (!equal).trailing_zeros() as usize
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        (a ^ b).trailing_zeros() as usize / 8
    }
}

/// The first 16 bytes of `bytes`; zeros behind their end.
#[inline(always)]
pub(super) fn first_block(bytes: &[u8]) -> Block {
    let (from, len) = (bytes.as_ptr(), bytes.len());
    // SAFETY: every load ends at `len` or before.
    let (low, high) = unsafe {
        if len >= 16 {
            return Plain::load16(from);
        } else if len >= 8 {
            // The last eight, moved to where they belong: what they share with the first is cut off.
            let last = Plain::load8_at(from, len - 8);
            (Plain::load8(from), last.unbounded_shr((16 - len as u32) * 8))
        } else if len >= 4 {
            let last = u64::from(Plain::load4_at(from, len - 4));
            (u64::from(Plain::load4(from)) | last << ((len - 4) * 8), 0)
        } else if len > 0 {
            let (first, middle) = (Plain::load1(from), Plain::load1_at(from, len / 2));
            let last = Plain::load1_at(from, len - 1);
            let middle = u64::from(middle) << (len / 2 * 8);
            (u64::from(first) | middle | u64::from(last) << ((len - 1) * 8), 0)
        } else {
            (0, 0)
        }
    };
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::_mm_set_epi64x;
        // SAFETY: SSE2 is part of x86-64; this works on registers alone.
        unsafe { _mm_set_epi64x(high as i64, low as i64) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        u128::from(low) | u128::from(high) << 64
    }
}

/// How many bytes at the beginning of `page` and `key` are the same, at most `len`. The first `at` are
/// taken to be.
///
/// # Safety
/// `len` bytes at `page` are readable by `P`, and at `key` by `K`.
#[inline(always)]
pub(super) unsafe fn mismatch<P: Load, K: Load>(
    page: *const u8,
    key: *const u8,
    mut at: usize,
    len: usize,
) -> usize {
    // SAFETY: every load ends at `len` or before.
    unsafe {
        while at + 16 <= len {
            let equal = first_difference(P::load16_at(page, at), K::load16_at(key, at));
            if equal < 16 {
                return at + equal;
            }
            at += 16;
        }
        if at >= len {
            return len;
        }
        if len >= 16 {
            // The last block overlaps what was compared before.
            let last = len - 16;
            let equal = first_difference(P::load16_at(page, last), K::load16_at(key, last));
            return last + equal;
        }
        while at < len && P::load1_at(page, at) == K::load1_at(key, at) {
            at += 1;
        }
    }
    at
}

/// Up to 7 bytes at `p` as a number that compares as they do, together with others of equal length.
///
/// # Safety
/// `len` is 1 to 7 and as many bytes at `p` are readable by `L`.
#[inline(always)]
unsafe fn short<L: Load>(p: *const u8, len: usize) -> u64 {
    // SAFETY: every load lies within the `len` bytes of the caller's condition.
    unsafe {
        if len >= 4 {
            let first = L::load4(p).swap_bytes();
            let last = L::load4_at(p, len - 4).swap_bytes();
            u64::from(first) << 32 | u64::from(last)
        } else {
            let first = L::load1(p);
            let middle = L::load1_at(p, len / 2);
            let last = L::load1_at(p, len - 1);
            u64::from(first) << 16 | u64::from(middle) << 8 | u64::from(last)
        }
    }
}

/// Compares `page_len` bytes at `page` with `key_len` at `key`, lexicographically.
///
/// # Safety
/// As many bytes at `page` are readable by `P`, and at `key` by `K`.
#[inline(always)]
pub(super) unsafe fn compare<P: Load, K: Load>(
    page: *const u8,
    page_len: usize,
    key: *const u8,
    key_len: usize,
) -> Ordering {
    let len = page_len.min(key_len);
    // SAFETY: every load begins at `at` or later and ends at `len` or before.
    unsafe {
        if len >= 16 {
            let last = len - 16;
            let mut at = 0;
            while at < last {
                let order = compare_blocks(P::load16_at(page, at), K::load16_at(key, at));
                if let Some(order) = order {
                    return order;
                }
                at += 16;
            }
            let order = compare_blocks(P::load16_at(page, last), K::load16_at(key, last));
            if let Some(order) = order {
                return order;
            }
        } else if len >= 8 {
            let (a, b) = (P::load8(page).swap_bytes(), K::load8(key).swap_bytes());
            if a != b {
                return a.cmp(&b);
            }
            let last = len - 8;
            let a = P::load8_at(page, last).swap_bytes();
            let b = K::load8_at(key, last).swap_bytes();
            if a != b {
                return a.cmp(&b);
            }
        } else if len > 0 {
            let (a, b) = (short::<P>(page, len), short::<K>(key, len));
            if a != b {
                return a.cmp(&b);
            }
        }
    }
    page_len.cmp(&key_len)
}

/// Whether `len` bytes at `page` and at `key` are the same.
///
/// # Safety
/// As many bytes at `page` are readable by `P`, and at `key` by `K`.
#[inline(always)]
pub(super) unsafe fn equal<P: Load, K: Load>(page: *const u8, key: *const u8, len: usize) -> bool {
    // SAFETY: every load begins at `at` or later and ends at `len` or before.
    unsafe {
        if len >= 16 {
            let last = len - 16;
            let mut at = 0;
            while at < last {
                if !blocks_equal(P::load16_at(page, at), K::load16_at(key, at)) {
                    return false;
                }
                at += 16;
            }
            blocks_equal(P::load16_at(page, last), K::load16_at(key, last))
        } else if len >= 8 {
            let last = len - 8;
            let first = P::load8(page) ^ K::load8(key);
            let second = P::load8_at(page, last) ^ K::load8_at(key, last);
            first | second == 0
        } else if len > 0 {
            short::<P>(page, len) == short::<K>(key, len)
        } else {
            true
        }
    }
}

/// Copies `len` bytes.
///
/// # Safety
/// `len` bytes at `from` are readable by `L`; as many at `to` are writable and belong to the caller
/// alone.
#[inline(always)]
pub(super) unsafe fn copy<L: Load>(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: every load and store begins at `at` or later and ends at `len` or before.
    unsafe {
        if len > 64 {
            if len >= LONG_COPY_BYTES {
                return L::copy_long(from, to, len);
            }
            copy_blocks::<L>(from, to, len);
        } else if len > 32 {
            let (a, b) = (L::load16(from), L::load16_at(from, 16));
            let (c, d) = (L::load16_at(from, len - 32), L::load16_at(from, len - 16));
            to.cast::<[Block; 2]>().write_unaligned([a, b]);
            to.add(len - 32).cast::<[Block; 2]>().write_unaligned([c, d]);
        } else if len >= 16 {
            let (a, b) = (L::load16(from), L::load16_at(from, len - 16));
            to.cast::<Block>().write_unaligned(a);
            to.add(len - 16).cast::<Block>().write_unaligned(b);
        } else if len >= 8 {
            let (a, b) = (L::load8(from), L::load8_at(from, len - 8));
            to.cast::<u64>().write_unaligned(a.to_le());
            to.add(len - 8).cast::<u64>().write_unaligned(b.to_le());
        } else if len >= 4 {
            let (a, b) = (L::load4(from), L::load4_at(from, len - 4));
            to.cast::<u32>().write_unaligned(a.to_le());
            to.add(len - 4).cast::<u32>().write_unaligned(b.to_le());
        } else if len > 0 {
            let (a, b) = (L::load1(from), L::load1_at(from, len / 2));
            let c = L::load1_at(from, len - 1);
            to.write(a);
            to.add(len / 2).write(b);
            to.add(len - 1).write(c);
        }
    }
}

/// Two bytes, and behind them fourteen zeros.
#[inline(always)]
pub(super) fn two_bytes(two: [u8; 2]) -> Block {
    let two = u16::from_le_bytes(two);
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: SSE2 is part of x86-64; this works on registers alone.
        unsafe { std::arch::x86_64::_mm_cvtsi32_si128(i32::from(two)) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        u128::from(two)
    }
}

/// Stores a block.
///
/// # Safety
/// 16 bytes at `to` are writable and belong to the caller alone.
#[inline(always)]
pub(super) unsafe fn store16(to: *mut u8, block: Block) {
    #[cfg(not(target_arch = "x86_64"))]
    let block = block.to_le();
    // SAFETY: the caller's condition; the write may be unaligned.
    unsafe { to.cast::<Block>().write_unaligned(block) };
}

/// Appends `len` bytes to a vector.
///
/// # Safety
/// `len` bytes at `from` are readable by `L`, and are no part of the vector.
#[inline(always)]
pub(super) unsafe fn append<L: Load>(from: *const u8, len: usize, to: &mut Vec<u8>) {
    to.reserve(len);
    // SAFETY: the reservation makes `len` bytes behind the vector's end writable, and they are
    // the vector's alone; after the copy they are initialised.
    unsafe {
        copy::<L>(from, to.as_mut_ptr().add(to.len()), len);
        to.set_len(to.len() + len);
    }
}

/// 64 bytes from `from + at` on as 16 little-endian numbers.
///
/// # Safety
/// 64 bytes at `from + at` are readable by `L`.
#[inline(always)]
pub(super) unsafe fn block64<L: Load>(from: *const u8, at: usize) -> [u32; 16] {
    // SAFETY: the caller's condition; a block is 16 bytes, and every pattern of bytes is a number.
    unsafe {
        let blocks = L::load64_at(from, at);
        #[cfg(target_endian = "little")]
        return std::mem::transmute::<[Block; 4], [u32; 16]>(blocks);
        #[cfg(not(target_endian = "little"))]
        return std::array::from_fn(|i| (blocks[i / 4] >> (i % 4 * 32)) as u32);
    }
}

/// How many numbers at the beginning of `block` are below `bound`. In an ascending block, of hints or
/// of heads, these are all that are below it.
#[inline(always)]
#[must_use]
pub fn leading_below(block: &[u32; 16], bound: u32) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{
            __m128i, _mm_cmpgt_epi32, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32,
            _mm_set1_epi32, _mm_xor_si128,
        };
        // SAFETY: SSE2 is part of x86-64, these work on registers alone, and every pattern of bytes
        // is a block.
        let below = unsafe {
            let blocks = std::mem::transmute::<[u32; 16], [__m128i; 4]>(*block);
            // SSE2 compares signed numbers: turning the top bit around keeps the order.
            let top = _mm_set1_epi32(i32::MIN);
            let bound = _mm_xor_si128(_mm_set1_epi32(bound.cast_signed()), top);
            let below = |i: usize| _mm_cmpgt_epi32(bound, _mm_xor_si128(blocks[i], top));
            let low = _mm_packs_epi32(below(0), below(1));
            let high = _mm_packs_epi32(below(2), below(3));
            _mm_movemask_epi8(_mm_packs_epi16(low, high))
        };
        (!below).trailing_zeros() as usize
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let bits = block.iter().enumerate();
        let below = bits.fold(0_u32, |bits, (i, number)| bits | u32::from(*number < bound) << i);
        (!below).trailing_zeros() as usize
    }
}

/// Asks the processor for the cache line at an address, which may lead nowhere; a hint.
#[inline(always)]
pub fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and never faults, wherever it points; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
