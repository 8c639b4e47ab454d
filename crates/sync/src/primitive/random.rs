//! Randomness: a seed from the system, and a small generator that everything else derives from.
//!
//! Nothing here is fit for secrets.

/// A seed that differs from call to call and from process to process, forked ones included; under loom always the same, in a schedule of
/// shuttle by the number of the call, and in a run of the simulator drawn from its seed.
///
/// If the system refuses random bytes (a sandbox may do that at any time), it is made of the time, the process id
/// and addresses instead. Each thread asks the system once.
#[must_use]
pub fn seed() -> u64 {
    #[cfg(hedgerow_sim)]
    if let Some(seed) = hedgerow_sim::seed() {
        return seed;
    }
    #[cfg(not(any(loom, shuttle)))]
    return keys::next();
    #[cfg(loom)]
    return 0x9e37_79b9_7f4a_7c15;
    #[cfg(shuttle)]
    return numbered::next();
}

#[cfg(shuttle)]
mod numbered {
    use super::SplitMix64;
    // The standard library's, so that a call is no step of a schedule.
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    shuttle::lazy_static! {
        static ref CALLS: AtomicU64 = AtomicU64::new(0);
    }

    pub fn next() -> u64 {
        SplitMix64::new(CALLS.fetch_add(1, Relaxed)).next_u64()
    }
}

#[cfg(not(any(loom, shuttle)))]
mod keys {
    use std::cell::Cell;
    use std::hash::{DefaultHasher, Hash, Hasher};

    thread_local! {
        /// The thread's own 128 bits, counted up with each seed.
        static KEYS: Cell<[u64; 2]> = Cell::new(draw());
    }

    pub fn next() -> u64 {
        let next = |keys: &Cell<[u64; 2]>| {
            let [count, fixed] = keys.get();
            keys.set([count.wrapping_add(1), fixed]);
            [count, fixed]
        };
        // While the thread is ending its keys may be gone.
        let keys = KEYS.try_with(next).unwrap_or_else(|_| draw());
        // A child that was forked goes on with the keys of its parent.
        hash((keys, std::process::id()))
    }

    fn hash(value: impl Hash) -> u64 {
        // Its own keys are always the same: all that differs is in the value.
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        hasher.finish()
    }

    fn draw() -> [u64; 2] {
        from_system().unwrap_or_else(improvised)
    }

    #[cfg(target_os = "linux")]
    fn from_system() -> Option<[u64; 2]> {
        use rustix::rand::{GetRandomFlags, getrandom};
        // The standard library, which could be asked as well, panics where the call is refused in a way that it does not know.
        let mut bytes = [0; 16];
        match getrandom(&mut bytes, GetRandomFlags::NONBLOCK) {
            Ok(16) => {
                let number = u128::from_ne_bytes(bytes);
                Some([number as u64, (number >> 64) as u64])
            }
            _ => None,
        }
    }

    #[cfg(not(target_os = "linux"))]
    #[allow(clippy::disallowed_methods, reason = "the keys that seeds are made of")]
    fn from_system() -> Option<[u64; 2]> {
        use std::hash::{BuildHasher, RandomState};
        let state = RandomState::new();
        Some([state.hash_one(0), state.hash_one(1)])
    }

    /// Differs between threads (address, number), processes (number, layout of memory) and moments.
    #[allow(clippy::disallowed_methods, reason = "a seed is all that becomes of the time")]
    pub(super) fn improvised() -> [u64; 2] {
        let here = Cell::new(0_u8);
        let addresses = ((&raw const here).addr(), improvised as fn() -> [u64; 2] as usize);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let moment = now.map_or(0, |time| time.as_nanos());
        let place = (std::process::id(), crate::primitive::thread::id(), addresses);
        [hash((0, moment, place)), hash((1, moment, place))]
    }
}

/// The generator of Steele, Lea and Flood ("Fast splittable pseudorandom number generators",
/// OOPSLA 2014): 64 bits of state, every seed is good, one multiplication chain a number.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The generator of the sequence of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> SplitMix64 {
        SplitMix64 { state: seed }
    }

    /// The next 64 bits.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, and zero if that is zero. The bias is at most `bound / 2^64`.
    #[inline]
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn splitmix_gives_the_published_sequence() {
        let mut generator = SplitMix64::new(1_234_567);
        assert_eq!(generator.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(generator.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn below_stays_below_and_reaches_every_number() {
        let mut generator = SplitMix64::new(1);
        let mut seen = [false; 7];
        for _ in 0..1_000 {
            seen[generator.below(7) as usize] = true;
        }
        assert_eq!(seen, [true; 7]);
        assert_eq!(generator.below(0), 0);
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(seed(), seed());
    }
}
