//! Loads of 1 to 16 bytes from an address, plain and racing: what the kernels are made of.
//!
//! [`Plain`] is an ordinary unaligned load. [`Racing`] is inline assembly on x86-64, and relaxed
//! atomic words elsewhere, under loom, Miri and ThreadSanitizer, and in the simulator, which charges each. All numbers are little-endian.

/// A block of 16 bytes in a register.
#[cfg(target_arch = "x86_64")]
pub(super) type Block = std::arch::x86_64::__m128i;
/// A block of 16 bytes as a little-endian number.
#[cfg(not(target_arch = "x86_64"))]
pub(super) type Block = u128;

/// A way of loading. Every function asks that the bytes it names be inside one live allocation,
/// and that they be accessed in the way that the implementing type says.
///
/// The forms that end in `_at` load from `p + at`. They are forms of their own because assembly
/// cannot leave it to the compiler to fold the addition into the load.
pub(super) trait Load {
    /// # Safety
    /// One byte at `p` is readable, see the trait.
    unsafe fn load1(p: *const u8) -> u8;
    /// # Safety
    /// Two bytes at `p` are readable, see the trait.
    unsafe fn load2(p: *const u8) -> u16;
    /// # Safety
    /// Four bytes at `p` are readable, see the trait.
    unsafe fn load4(p: *const u8) -> u32;
    /// # Safety
    /// Eight bytes at `p` are readable, see the trait.
    unsafe fn load8(p: *const u8) -> u64;
    /// # Safety
    /// Sixteen bytes at `p` are readable, see the trait.
    unsafe fn load16(p: *const u8) -> Block;

    /// # Safety
    /// As [`Self::load1`], at `p + at`.
    #[inline(always)]
    unsafe fn load1_at(p: *const u8, at: usize) -> u8 {
        // SAFETY: the caller's condition.
        unsafe { Self::load1(p.wrapping_add(at)) }
    }

    /// # Safety
    /// As [`Self::load2`], at `p + at`.
    #[inline(always)]
    unsafe fn load2_at(p: *const u8, at: usize) -> u16 {
        // SAFETY: the caller's condition.
        unsafe { Self::load2(p.wrapping_add(at)) }
    }

    /// # Safety
    /// As [`Self::load4`], at `p + at`.
    #[inline(always)]
    unsafe fn load4_at(p: *const u8, at: usize) -> u32 {
        // SAFETY: the caller's condition.
        unsafe { Self::load4(p.wrapping_add(at)) }
    }

    /// # Safety
    /// As [`Self::load8`], at `p + at`.
    #[inline(always)]
    unsafe fn load8_at(p: *const u8, at: usize) -> u64 {
        // SAFETY: the caller's condition.
        unsafe { Self::load8(p.wrapping_add(at)) }
    }

    /// # Safety
    /// As [`Self::load16`], at `p + at`.
    #[inline(always)]
    unsafe fn load16_at(p: *const u8, at: usize) -> Block {
        // SAFETY: the caller's condition.
        unsafe { Self::load16(p.wrapping_add(at)) }
    }

    /// # Safety
    /// As [`Self::load1`], at `p + AT`.
    #[inline(always)]
    unsafe fn load1_const<const AT: usize>(p: *const u8) -> u8 {
        // SAFETY: the caller's condition.
        unsafe { Self::load1(p.wrapping_add(AT)) }
    }

    /// # Safety
    /// As [`Self::load2`], at `p + AT`.
    #[inline(always)]
    unsafe fn load2_const<const AT: usize>(p: *const u8) -> u16 {
        // SAFETY: the caller's condition.
        unsafe { Self::load2(p.wrapping_add(AT)) }
    }

    /// # Safety
    /// As [`Self::load4`], at `p + AT`.
    #[inline(always)]
    unsafe fn load4_const<const AT: usize>(p: *const u8) -> u32 {
        // SAFETY: the caller's condition.
        unsafe { Self::load4(p.wrapping_add(AT)) }
    }

    /// # Safety
    /// As [`Self::load4`], at `p + SCALE * index`; the scale is 2 or 8.
    #[inline(always)]
    unsafe fn load4_scaled<const SCALE: usize>(p: *const u8, index: usize) -> u32 {
        // SAFETY: the caller's condition.
        unsafe { Self::load4_at(p, SCALE * index) }
    }

    /// # Safety
    /// As four of [`Self::load16`], one after the other from `p + at` on.
    #[inline(always)]
    unsafe fn load64_at(p: *const u8, at: usize) -> [Block; 4] {
        // SAFETY: the caller's condition.
        unsafe {
            [
                Self::load16_at(p, at),
                Self::load16_at(p, at + 16),
                Self::load16_at(p, at + 32),
                Self::load16_at(p, at + 48),
            ]
        }
    }

    /// Copies `len` bytes, which are many.
    ///
    /// # Safety
    /// `len` is 64 at least. `len` bytes at `from` are readable, see the trait; as many at `to` are writable and belong to
    /// the caller alone.
    unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize);
}

/// Copies `len` bytes, 64 of them or more, by 64.
///
/// # Safety
/// `len` bytes at `from` are readable by `L`; as many at `to` are writable and belong to the caller
/// alone.
#[inline(always)]
pub(super) unsafe fn copy_blocks<L: Load>(from: *const u8, to: *mut u8, len: usize) {
    debug_assert!(len >= 64);
    let last = len - 64;
    let mut at = 0;
    // SAFETY: every load and store begins at `len - 64` or before, and is 64 bytes long.
    unsafe {
        while at < last {
            let blocks = L::load64_at(from, at);
            to.add(at).cast::<[Block; 4]>().write_unaligned(blocks);
            at += 64;
        }
        let blocks = L::load64_at(from, last);
        to.add(last).cast::<[Block; 4]>().write_unaligned(blocks);
    }
}

/// Ordinary loads, of bytes that nobody changes.
pub(super) enum Plain {}

impl Load for Plain {
    #[inline(always)]
    unsafe fn load1(p: *const u8) -> u8 {
        // SAFETY: the caller's condition.
        unsafe { p.read() }
    }

    #[inline(always)]
    unsafe fn load2(p: *const u8) -> u16 {
        // SAFETY: the caller's condition; the read may be unaligned.
        u16::from_le(unsafe { p.cast::<u16>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load4(p: *const u8) -> u32 {
        // SAFETY: the caller's condition; the read may be unaligned.
        u32::from_le(unsafe { p.cast::<u32>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load8(p: *const u8) -> u64 {
        // SAFETY: the caller's condition; the read may be unaligned.
        u64::from_le(unsafe { p.cast::<u64>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load16(p: *const u8) -> Block {
        // SAFETY: the caller's condition; the read may be unaligned.
        let block = unsafe { p.cast::<Block>().read_unaligned() };
        #[cfg(not(target_arch = "x86_64"))]
        let block = Block::from_le(block);
        block
    }

    #[inline(always)]
    unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller's condition; `to` belongs to the caller alone, so they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }
}

/// Loads of bytes that somebody may be changing.
pub(super) enum Racing {}

#[cfg(all(target_arch = "x86_64", not(any(loom, miri, hedgerow_tsan, hedgerow_sim))))]
mod racing {
    //! `pure` and `readonly`: the result depends on memory and nothing else changes, so the compiler
    //! may drop a load whose result is unused, and may use one load for two equal ones with no
    //! store, fence or acquire load between them; it may not repeat one.

    use super::{Block, Load, Racing, copy_blocks};
    use std::arch::asm;

    pub(in crate::optimistic) const RACING_LOADS_ARE_ATOMICS: bool = false;

    /// The value of a zero-extended load. Telling the compiler so saves it the extension.
    macro_rules! narrow {
        ($value:ident, u8) => {{
            // SAFETY: `movzx` of a byte.
            unsafe { std::hint::assert_unchecked($value <= 0xff) };
            $value as u8
        }};
        ($value:ident, u16) => {{
            // SAFETY: `movzx` of a word.
            unsafe { std::hint::assert_unchecked($value <= 0xffff) };
            $value as u16
        }};
        ($value:ident, $ty:ident) => {
            $value
        };
    }

    /// One load as `$ty`, through a register of type `$reg`, in both forms.
    macro_rules! load {
        ($name:ident, $name_at:ident, $ty:ident, $reg:ty, $class:ident, $load:literal) => {
            #[inline(always)]
            unsafe fn $name(p: *const u8) -> $ty {
                let value: $reg;
                // SAFETY: reads as many bytes as the caller says are readable, and nothing else; the
                // instruction needs no alignment, and SSE2 is part of x86-64.
                unsafe {
                    asm!(concat!($load, " [{1}]"), lateout($class) value, in(reg) p,
                        options(pure, readonly, nostack, preserves_flags));
                }
                narrow!(value, $ty)
            }

            #[inline(always)]
            unsafe fn $name_at(p: *const u8, at: usize) -> $ty {
                let value: $reg;
                // SAFETY: as above, from `p + at` on.
                unsafe {
                    asm!(concat!($load, " [{1} + {2}]"), lateout($class) value, in(reg) p, in(reg) at,
                        options(pure, readonly, nostack, preserves_flags));
                }
                narrow!(value, $ty)
            }
        };
    }

    /// One load of at most four bytes at a constant distance.
    macro_rules! load_const {
        ($name:ident, $ty:ident, $load:literal) => {
            #[inline(always)]
            unsafe fn $name<const AT: usize>(p: *const u8) -> $ty {
                let value: u32;
                // SAFETY: reads as many bytes at `p + AT` as the caller says are readable, and nothing
                // else; the instruction needs no alignment.
                unsafe {
                    asm!(concat!($load, " [{1} + {2}]"), lateout(reg) value, in(reg) p, const AT,
                        options(pure, readonly, nostack, preserves_flags));
                }
                narrow!(value, $ty)
            }
        };
    }

    impl Load for Racing {
        load_const!(load1_const, u8, "movzx {0:e}, byte ptr");
        load_const!(load2_const, u16, "movzx {0:e}, word ptr");
        load_const!(load4_const, u32, "mov {0:e}, dword ptr");

        #[inline(always)]
        unsafe fn load4_scaled<const SCALE: usize>(p: *const u8, index: usize) -> u32 {
            const { assert!(SCALE == 2 || SCALE == 8) };
            let value: u32;
            // SAFETY: reads four bytes, by the caller's condition readable, and nothing else.
            unsafe {
                asm!("mov {0:e}, dword ptr [{1} + {3}*{2}]", lateout(reg) value, in(reg) p,
                    in(reg) index, const SCALE, options(pure, readonly, nostack, preserves_flags));
            }
            value
        }

        load!(load1, load1_at, u8, u32, reg, "movzx {0:e}, byte ptr");
        load!(load2, load2_at, u16, u32, reg, "movzx {0:e}, word ptr");
        load!(load4, load4_at, u32, u32, reg, "mov {0:e}, dword ptr");
        load!(load8, load8_at, u64, u64, reg, "mov {0}, qword ptr");
        load!(load16, load16_at, Block, Block, xmm_reg, "movdqu {0}, xmmword ptr");

        #[inline(always)]
        unsafe fn load64_at(p: *const u8, at: usize) -> [Block; 4] {
            let (a, b, c, d): (Block, Block, Block, Block);
            // SAFETY: reads 64 bytes, by the caller's condition readable, and nothing else.
            unsafe {
                asm!(
                    "movdqu {a}, xmmword ptr [{p} + {at}]",
                    "movdqu {b}, xmmword ptr [{p} + {at} + 16]",
                    "movdqu {c}, xmmword ptr [{p} + {at} + 32]",
                    "movdqu {d}, xmmword ptr [{p} + {at} + 48]",
                    a = out(xmm_reg) a, b = out(xmm_reg) b, c = out(xmm_reg) c,
                    d = lateout(xmm_reg) d, p = in(reg) p, at = in(reg) at,
                    options(pure, readonly, nostack, preserves_flags));
            }
            [a, b, c, d]
        }

        /// Not by `rep movsb`: on an AMD EPYC that takes 33 instead of 41 ns for 4 KiB in the first cache, but 6.2 instead of
        /// 4.1 us for 16 times 4 KiB in the last one, which is where long values are.
        #[inline(always)]
        unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize) {
            // SAFETY: the caller's condition.
            unsafe { copy_blocks::<Self>(from, to, len) };
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(any(loom, miri, hedgerow_tsan, hedgerow_sim)))))]
mod racing {
    //! Relaxed atomic loads of aligned words. A racing view begins at a multiple of 8 and is a
    //! multiple of 64 long, so the words that hold any of its bytes lie within it.

    use super::{Block, Load, Racing};
    // The bytes are no part of a model: what a model checks is the latch around them.
    use std::sync::atomic::{AtomicU64, Ordering};

    pub(in crate::optimistic) const RACING_LOADS_ARE_ATOMICS: bool = true;

    /// The word that holds the byte at `p`, and the position of that byte in it, in bits.
    ///
    /// # Safety
    /// `p` points into a racing view.
    #[inline(always)]
    unsafe fn word(p: *const u8) -> (u64, u32) {
        let within = p.addr() % 8;
        let aligned = p.wrapping_sub(within).cast::<u64>().cast_mut();
        #[cfg(hedgerow_sim)]
        hedgerow_sim::touch_load(aligned.addr());
        // SAFETY: aligned to 8, inside the view (see the head of this module), and all racing
        // accesses are atomic ones of whole words.
        let word = unsafe { AtomicU64::from_ptr(aligned) }.load(Ordering::Relaxed);
        (u64::from_le(word), within as u32 * 8)
    }

    /// `len` bytes at `p`, 1 to 8 of them, in the low bits; what is above them is undefined.
    ///
    /// # Safety
    /// The bytes lie in a racing view.
    #[inline(always)]
    unsafe fn bytes(p: *const u8, len: usize) -> u64 {
        // SAFETY: the caller's condition.
        let (low, shift) = unsafe { word(p) };
        if shift as usize / 8 + len <= 8 {
            return low >> shift;
        }
        // SAFETY: the last byte, too, lies in the view; it is in the next word.
        let (high, _) = unsafe { word(p.wrapping_add(len - 1)) };
        low >> shift | high << (64 - shift)
    }

    impl Load for Racing {
        #[inline(always)]
        unsafe fn load1(p: *const u8) -> u8 {
            // SAFETY: the caller's condition.
            unsafe { bytes(p, 1) as u8 }
        }

        #[inline(always)]
        unsafe fn load2(p: *const u8) -> u16 {
            // SAFETY: the caller's condition.
            unsafe { bytes(p, 2) as u16 }
        }

        #[inline(always)]
        unsafe fn load4(p: *const u8) -> u32 {
            // SAFETY: the caller's condition.
            unsafe { bytes(p, 4) as u32 }
        }

        #[inline(always)]
        unsafe fn load8(p: *const u8) -> u64 {
            // SAFETY: the caller's condition.
            unsafe { bytes(p, 8) }
        }

        #[inline(always)]
        unsafe fn load16(p: *const u8) -> Block {
            // SAFETY: the caller's condition.
            let (low, high) = unsafe { (bytes(p, 8), bytes(p.wrapping_add(8), 8)) };
            #[cfg(target_arch = "x86_64")]
            // SAFETY: SSE2 is part of x86-64.
            return unsafe { std::arch::x86_64::_mm_set_epi64x(high as i64, low as i64) };
            #[cfg(not(target_arch = "x86_64"))]
            return u128::from(low) | u128::from(high) << 64;
        }

        #[inline]
        unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize) {
            let mut done = 0;
            while len - done >= 8 {
                // SAFETY: the eight bytes lie inside the `len` of the caller's condition.
                unsafe {
                    let word = bytes(from.wrapping_add(done), 8);
                    to.add(done).cast::<u64>().write_unaligned(word.to_le());
                }
                done += 8;
            }
            while done < len {
                // SAFETY: the byte lies inside the `len` of the caller's condition.
                unsafe { to.add(done).write(bytes(from.wrapping_add(done), 1) as u8) };
                done += 1;
            }
        }
    }
}

pub(super) use racing::RACING_LOADS_ARE_ATOMICS;
