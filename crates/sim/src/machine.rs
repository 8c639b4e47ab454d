//! What a simulated machine is like: its shape, and what everything on it costs.
//!
//! All costs are in cycles of the simulated processor. Plain data, `Send + Sync`.

use std::fmt;
use std::time::Duration;

/// Most hardware threads that a machine may have: the holders of a cache line are bits of one number.
pub const MAX_CONTEXTS: u32 = 128;

/// Who gets a cache line next, of those that wait for it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Arbitration {
    /// Whoever has waited longest.
    Fifo,
    /// With this probability (0 to 1) the one nearest to the present holder, else whoever has waited longest.
    NearestFirst(f64),
}

/// What a region may reach before it aborts. The set of a line is made of the bits of its address from the seventh on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capacity {
    /// Anything.
    Unlimited,
    /// All lines that it reads or writes have to be in the first-level cache (HPCA 2014, section 5.1).
    L1Strict {
        /// A power of two up to 64.
        sets: u32,
        /// Lines of a set.
        ways: u32,
        /// Regions of hardware threads of one core share them.
        is_shared: bool,
    },
    /// All lines that it writes have to be in the first-level cache; lines that it reads may leave it (HPCA 2014, section 3.2).
    WritesInL1 {
        /// A power of two up to 64.
        sets: u32,
        /// Lines of a set.
        ways: u32,
        /// Regions of hardware threads of one core share them.
        is_shared: bool,
    },
}

/// What regions of transactional memory cost, and what ends them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Transactions {
    /// The beginning of a region, in cycles.
    pub begin: u32,
    /// The end of a region that takes effect.
    pub commit: u32,
    /// The way back from a region that does not.
    pub abort: u32,
    /// What a region may reach.
    pub capacity: Capacity,
    /// Cycles from one interrupt of a hardware thread to the next, on average; zero: there are none.
    pub interrupt_every: u64,
    /// The probability (0 to 1) that an access in a region ends it for no reason: for tests.
    pub spurious: f64,
}

/// A machine. Begin with a preset, and change fields or call the `with_` functions. [`crate::run`] checks it.
#[derive(Clone, PartialEq, Debug)]
pub struct Machine {
    /// Hardware threads in use, 1 to [`MAX_CONTEXTS`]. The first hardware thread of every core comes before the second one of any.
    pub contexts: u32,
    /// Cores that the machine has, at least 1. With more contexts than these have, there are more of the same kind.
    pub cores: u32,
    /// Hardware threads of a core, at least 1. They share its cache and do not slow each other down.
    pub threads_per_core: u32,
    /// Cores that share the nearest shared cache, at least 1.
    pub cores_per_group: u32,
    /// Cores of a socket, at least 1.
    pub cores_per_socket: u32,
    /// Cycles in a microsecond, at least 1.
    pub mhz: u32,
    /// A load or store of a line that the core holds.
    pub hit: u32,
    /// What a read-modify-write, a sequentially consistent store or a full fence costs beyond that.
    pub rmw: u32,
    /// A line from another core of the same group.
    pub near: u32,
    /// A line from another group of the same socket.
    pub same: u32,
    /// A line from another socket.
    pub cross: u32,
    /// A line that no core holds, from the last-level cache.
    pub llc: u32,
    /// A line that nobody has touched in this run.
    pub memory: u32,
    /// How long a core keeps a line that it has waited for before the next one gets it.
    pub hold: u32,
    /// The share (0 to 1) by which that is longer or shorter, drawn from the seed. Without it, a loop whose period meets the end of the
    /// window has results that are wrong by a factor of ten.
    pub hold_jitter: f64,
    /// Up to so many cycles are added to each transfer, drawn from the seed.
    pub jitter: u32,
    /// Up to this share (0 to 1) is added to each [`crate::work`] and each wake-up, drawn from the seed.
    pub work_jitter: f64,
    /// Who gets a line next.
    pub arbitration: Arbitration,
    /// One turn of a spin loop.
    pub pause: u32,
    /// The system call of a thread that goes to sleep.
    pub sleep_call: u32,
    /// The system call that wakes a thread.
    pub wake_call: u32,
    /// From that call until the thread runs on a context that is idle.
    pub wake_latency: u32,
    /// The system call that has every core run a barrier.
    pub barrier_call: u32,
    /// A change of threads on a context.
    pub switch: u32,
    /// How long a thread runs while another one waits for its context, at least 1.
    pub slice: u64,
    /// A run that is not over at this time is given up; at least 1.
    pub limit: u64,
    /// Bytes of a virtual thread's stack, at least 16 KiB. Memory is used as it is touched.
    pub stack: usize,
    /// Regions of transactional memory.
    pub transactions: Transactions,
    /// Everything random is drawn from this.
    pub seed: u64,
}

/// A machine that there cannot be.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum ParameterError {
    /// Not 1 to [`MAX_CONTEXTS`].
    Contexts(u32),
    /// Sets of the first-level cache that are no power of two up to 64.
    Sets(u32),
    /// The named share is not from 0 to 1.
    Share(&'static str, f64),
    /// The named number is below the least that it may be.
    TooSmall(&'static str, u64),
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParameterError::Contexts(found) => {
                write!(
                    f,
                    "a simulated machine has 1 to {MAX_CONTEXTS} hardware threads, not {found}"
                )
            }
            ParameterError::Share(name, found) => {
                write!(f, "`{name}` is a share from 0 to 1, not {found}")
            }
            ParameterError::Sets(found) => {
                write!(f, "the sets of a cache are a power of two up to 64, not {found}")
            }
            ParameterError::TooSmall(name, least) => write!(f, "`{name}` must be at least {least}"),
        }
    }
}

impl std::error::Error for ParameterError {}

/// A machine that differs from others in what its presets name.
const BASE: Machine = Machine {
    contexts: 40,
    cores: 20,
    threads_per_core: 2,
    cores_per_group: 10,
    cores_per_socket: 10,
    mhz: 2_200,
    hit: 2,
    rmw: 20,
    near: 97,
    same: 97,
    cross: 260,
    llc: 40,
    memory: 180,
    hold: 30,
    hold_jitter: 0.5,
    jitter: 20,
    work_jitter: 0.1,
    arbitration: Arbitration::Fifo,
    pause: 10,
    sleep_call: 1_000,
    wake_call: 1_500,
    wake_latency: 6_000,
    barrier_call: 4_000,
    switch: 2_000,
    slice: 3 * 1_000 * 2_200,
    limit: u64::MAX,
    stack: 256 << 10,
    transactions: Transactions {
        begin: 40,
        commit: 30,
        abort: 150,
        capacity: Capacity::L1Strict { sets: 64, ways: 8, is_shared: true },
        interrupt_every: 2_200_000,
        spurious: 0.0,
    },
    seed: 1,
};

impl Machine {
    /// Two Xeon E5-2660 v2, as in "Scalable and Robust Latches" (DaMoN 2020): 20 cores, 40 hardware threads.
    pub const IVB2S: Machine = BASE;
    /// Two Xeon E5-2650 v3, as in Eunomia (PPoPP 2017): 20 cores, without hyper-threading.
    pub const HSW2S: Machine =
        Machine { contexts: 20, threads_per_core: 1, mhz: 2_300, slice: 3 * 1_000 * 2_300, ..BASE };
    /// An i7-4770, as in HPCA 2014: 4 cores, 8 hardware threads.
    pub const HSW1S: Machine = Machine {
        contexts: 8,
        cores: 4,
        cores_per_group: 4,
        cores_per_socket: 4,
        mhz: 3_400,
        near: 71,
        same: 71,
        slice: 3 * 1_000 * 3_400,
        ..BASE
    };
    /// Two Xeon E5-2680, as in HPCA 2014: 16 cores, 32 hardware threads.
    pub const SNB2S: Machine = Machine {
        contexts: 32,
        cores: 16,
        cores_per_group: 8,
        cores_per_socket: 8,
        mhz: 2_700,
        slice: 3 * 1_000 * 2_700,
        ..BASE
    };
    /// An EPYC 7702P, as in "Contention and Space Management in B-Trees" (CIDR 2021): 64 cores in groups of four, 128
    /// hardware threads; 24 ns in a group, 94 ns between groups.
    pub const ROME1S: Machine = Machine {
        contexts: 128,
        cores: 64,
        cores_per_group: 4,
        cores_per_socket: 64,
        mhz: 2_000,
        near: 48,
        same: 188,
        cross: 188,
        memory: 200,
        arbitration: Arbitration::NearestFirst(0.5),
        pause: 40,
        slice: 3 * 1_000 * 2_000,
        ..BASE
    };

    /// All presets, by name.
    pub const PRESETS: [(&str, Machine); 5] = [
        ("ivb2s", Machine::IVB2S),
        ("hsw2s", Machine::HSW2S),
        ("hsw1s", Machine::HSW1S),
        ("snb2s", Machine::SNB2S),
        ("rome1s", Machine::ROME1S),
    ];

    /// The preset of a name, or `None`.
    #[must_use]
    pub fn preset(name: &str) -> Option<Machine> {
        Machine::PRESETS.into_iter().find(|(known, _)| *known == name).map(|(_, machine)| machine)
    }

    /// The same machine with this many hardware threads in use.
    #[must_use]
    pub fn with_contexts(self, contexts: u32) -> Machine {
        Machine { contexts, ..self }
    }

    /// The same machine with everything random drawn from `seed`.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Machine {
        Machine { seed, ..self }
    }

    /// The same machine, whose regions may reach this.
    #[must_use]
    pub fn with_capacity(self, capacity: Capacity) -> Machine {
        Machine { transactions: Transactions { capacity, ..self.transactions }, ..self }
    }

    /// The same machine without anything random: for tests that compute costs.
    #[must_use]
    pub fn without_jitter(self) -> Machine {
        Machine { jitter: 0, work_jitter: 0.0, hold_jitter: 0.0, ..self }
    }

    /// Whether there can be such a machine.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub fn check(&self) -> Result<(), ParameterError> {
        if !(1..=MAX_CONTEXTS).contains(&self.contexts) {
            return Err(ParameterError::Contexts(self.contexts));
        }
        for (name, value, least) in [
            ("cores", u64::from(self.cores), 1),
            ("threads_per_core", u64::from(self.threads_per_core), 1),
            ("cores_per_group", u64::from(self.cores_per_group), 1),
            ("cores_per_socket", u64::from(self.cores_per_socket), 1),
            ("mhz", u64::from(self.mhz), 1),
            ("hit", u64::from(self.hit), 1),
            ("slice", self.slice, 1),
            ("limit", self.limit, 1),
            ("stack", self.stack as u64, 16 << 10),
        ] {
            if value < least {
                return Err(ParameterError::TooSmall(name, least));
            }
        }
        if let Capacity::L1Strict { sets, ways, .. } | Capacity::WritesInL1 { sets, ways, .. } =
            self.transactions.capacity
        {
            if !sets.is_power_of_two() || sets > 64 {
                return Err(ParameterError::Sets(sets));
            }
            if ways == 0 {
                return Err(ParameterError::TooSmall("ways", 1));
            }
        }
        let nearest = match self.arbitration {
            Arbitration::Fifo => 0.0,
            Arbitration::NearestFirst(share) => share,
        };
        for (name, share) in [
            ("work_jitter", self.work_jitter),
            ("hold_jitter", self.hold_jitter),
            ("arbitration", nearest),
            ("spurious", self.transactions.spurious),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return Err(ParameterError::Share(name, share));
            }
        }
        Ok(())
    }

    /// The core of a context.
    pub(crate) fn core_of(&self, context: u32) -> u32 {
        let per_core = self.threads_per_core.max(1);
        let cores = self.cores.max(self.contexts.div_ceil(per_core));
        context % cores
    }

    /// A time in cycles; the longest there is if that does not fit.
    pub(crate) fn cycles(&self, duration: Duration) -> u64 {
        let cycles = duration.as_nanos().saturating_mul(u128::from(self.mhz)) / 1_000;
        u64::try_from(cycles).unwrap_or(u64::MAX)
    }

    /// Cycles as time.
    pub(crate) fn duration(&self, cycles: u64) -> Duration {
        let nanos = u128::from(cycles) * 1_000 / u128::from(self.mhz.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
