//! What the two dense layouts do differently: where a value lies, and how it gets there.
//!
//! All else is written once, for any [`DenseLayout`]. The functions over [`PageBytes`] are total;
//! those over a page ask that it has passed [`super::load_check`], and leave it so.

use crate::node::defect::Defect;
use crate::page::header::PageKind;
use hedgerow_sync::optimistic::PageBytes;
use std::ops::Range;

/// Why a dense leaf does not take a record. Nothing has been changed.
///
/// [`DenseMut::choose_remedy`](super::DenseMut::choose_remedy) says what helps: a split, or another layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is no space left, or key and value are longer than
    /// [`max_record_bytes`](crate::node::fields::max_record_bytes).
    NoSpace,
    /// The key has another length than those of the leaf.
    KeyLength,
    /// The key differs from those of the leaf before its last four bytes.
    Stem,
    /// The key is below that of the first slot.
    Below,
    /// The key is above that of the last slot.
    Beyond,
    /// The value has another length than those of the leaf.
    ValueLength,
    /// So few of the numbers have records that the layout would not pay.
    Sparse,
}

/// Which numbers a leaf has slots for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The number of slot 0.
    pub base: u32,
    /// How many slots there are.
    pub capacity: usize,
}

/// What a leaf is to hold, as far as its frame depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contents {
    /// Number of records.
    pub count: usize,
    /// The smallest and the largest number among them. Of an empty leaf: those that are to come.
    pub numbers: (u32, u32),
    /// Bytes of all values together.
    pub value_bytes: usize,
    /// Bytes of every value, if they are of one size.
    pub value_len: Option<usize>,
    /// Bytes of all records on the heap of a semi-dense leaf.
    pub heap_bytes: usize,
}

/// In which direction a leaf has been filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// In ascending order of keys.
    Up,
    /// In descending order.
    Down,
    /// In no order that has been noticed.
    Unknown,
}

/// A dense layout; [`super::Full`] and [`super::Semi`] are the two there are.
pub trait DenseLayout: Copy + Default + std::fmt::Debug + Send + Sync + 'static {
    /// What the page's header says.
    const KIND: PageKind;
    /// The layout's name in reports.
    #[cfg(hedgerow_internals)]
    const NAME: &'static str;
    /// Whether all values of a leaf have one length.
    const ONE_SIZE: bool;

    /// Bits that a leaf takes for so many records on so many slots, the header and fences aside,
    /// when all values together have `value_bytes`.
    fn bits(records: usize, slots: usize, value_bytes: usize) -> usize;

    /// The slots that a leaf gets which has `room` bytes for presence, slots and values, and whose
    /// fences allow these numbers; `None` if its contents do not fit.
    fn frame(
        room: usize,
        contents: &Contents,
        allowed: Range<u64>,
        growth: Growth,
    ) -> Option<Frame>;

    /// How many numbers a leaf of such records holds if each of them has one.
    fn unit(room: usize, contents: &Contents) -> usize;

    /// How many slots such a leaf can have at most, with the records that it is to hold.
    fn most_slots(room: usize, contents: &Contents) -> usize;

    /// First byte and length of the value of a slot.
    fn value_place<B: PageBytes>(bytes: B, slot: usize) -> (usize, usize);

    /// The field for the length of all values; zero in a layout that has none.
    fn value_field(contents: &Contents) -> usize;

    /// Makes an empty array of a page whose other fields are set.
    fn clear(page: &mut [u8]);

    /// Makes sure that a value of so many bytes can be stored in a slot, which may be behind the
    /// last one.
    ///
    /// # Errors
    /// The reason why it cannot; then nothing has changed.
    fn reserve(page: &mut [u8], slot: usize, value_len: usize) -> Result<(), Refused>;

    /// Stores the value of a slot that has none, after [`Self::reserve`].
    fn store(page: &mut [u8], slot: usize, value: &[u8]);

    /// Stores another value in a slot that has one.
    ///
    /// # Errors
    /// As of [`Self::reserve`].
    fn replace(page: &mut [u8], slot: usize, value: &[u8]) -> Result<(), Refused>;

    /// Gives up the value of a slot.
    fn discard(page: &mut [u8], slot: usize);

    /// Gives up the slots from `slots` on, none of which has a record, if the layout can.
    fn trim(page: &mut [u8], slots: usize);

    /// Bytes of values, with what else the layout keeps for each of them.
    fn payload_bytes<B: PageBytes>(bytes: B, count: usize) -> usize;

    /// Bytes of so many slots that are in use whether there are records or not.
    fn fixed_bytes(slots: usize) -> usize;

    /// Checks the layout's own fields. With the shared ones all right, a page in which this finds
    /// nothing can be changed without a panic; `all` asks for what endangers nobody, too.
    fn check(page: &[u8], all: bool, found: &mut dyn FnMut(Defect));
}

/// Where a frame of `capacity` slots at most is to begin, so that these numbers have slots.
///
/// At the reference key if they can all be reached from there: then no key can come below it. Else
/// where there is room for those to come.
pub(super) fn base_for(
    numbers: (u32, u32),
    capacity: usize,
    allowed: &Range<u64>,
    growth: Growth,
) -> Option<u32> {
    let (first, last) = (u64::from(numbers.0), u64::from(numbers.1));
    let slots = capacity as u64;
    if first < allowed.start || last >= allowed.end || last < first || last - first >= slots {
        return None;
    }
    if last - allowed.start < slots {
        return u32::try_from(allowed.start).ok();
    }
    let spare = slots - (last - first + 1);
    let below = match growth {
        Growth::Up => 0,
        Growth::Down => spare,
        Growth::Unknown => spare / 2,
    };
    // Slots behind the upper fence are of no use, nor are those before the lower one.
    let latest = allowed.end.saturating_sub(slots);
    let base = first.saturating_sub(below).min(latest.max(allowed.start)).max(allowed.start);
    u32::try_from(base).ok()
}
