//! Faults in a stream: many pages are under way at a time, and each is handed over as it arrives.
//!
//! Invariants: the frames under way are latched exclusively by this thread, so nothing is waited for
//! meanwhile but their reads: a page that would take a wait (another thread reads it, no frame is to
//! be had, its part of the table is not loaded) is put off until nothing is under way. A stream has an
//! eighth of the clean frames under way at most. Not shared between threads.

use crate::buffer::session::{Faulting, Session};
use crate::buffer::table::Place;
use crate::page::{Access, Frames, PageSource, PoolSession};
use crate::storage::{ReadRequest, ReadSource, STREAM_DEPTH};
use crate::types::PageId;

/// The faults of a stream.
struct Faults<'s, 'p> {
    session: &'s mut Session<'p>,
    pages: &'s mut dyn PageSource,
    access: Access,
    under_way: Vec<Option<Faulting<'p>>>,
    vacant: Vec<usize>,
    /// Pages that take a wait.
    put_off: Vec<PageId>,
    /// Pages that took one and are to be tried again.
    again: Vec<PageId>,
}

impl<'p> Session<'p> {
    /// [`PoolSession::fault_stream`] of an admitted session whose pages come from a file.
    pub(super) fn stream(&mut self, pages: &mut dyn PageSource, access: Access) {
        let pool = self.pool;
        let slots = pool.slots.as_ref().expect("a page without a file is never evicted");
        let most = pool.pages_ahead(STREAM_DEPTH);
        let mut faults = Faults {
            session: self,
            pages,
            access,
            under_way: (0..most).map(|_| None).collect(),
            vacant: (0..most).collect(),
            put_off: Vec::new(),
            again: Vec::new(),
        };
        loop {
            slots.file().read_stream(&mut faults);
            // Nothing is under way: now a wait is allowed. One page is brought in whatever it takes, so
            // that each round ends something.
            let Some(id) = faults.put_off.pop() else { return };
            let outcome = faults.session.fault(id, access);
            faults.pages.page_ready(id, outcome);
            faults.again.append(&mut faults.put_off);
            for id in &faults.again {
                // A part that cannot be had is an error of those pages' faults.
                if pool.in_range(*id) && faults.session.ensure_part(*id).is_err() {
                    break;
                }
            }
        }
    }
}

impl<'p> ReadSource<'p> for Faults<'_, 'p> {
    fn next_read(&mut self) -> Option<(usize, ReadRequest<'p>)> {
        let number = *self.vacant.last()?;
        let pool = self.session.pool;
        loop {
            let id = self.again.pop().or_else(|| self.pages.next_page())?;
            match pool.table.place(id) {
                Some(Place::Resident(_)) => self.pages.page_ready(id, Ok(())),
                // A pool that is being closed begins no more reads: the fault of each page says so.
                Some(Place::Evicted(_)) if pool.check_open().is_err() => self.put_off.push(id),
                Some(Place::Evicted(slot)) if pool.is_image_slot(slot) => {
                    let Ok(Some(page)) = self.session.begin(id, slot, false) else {
                        self.put_off.push(id);
                        continue;
                    };
                    // SAFETY: `as_mut_slice` asks for the one writer: the frame's exclusive latch lies
                    // in `under_way` until the read has come back, and the slice with it.
                    let bytes = unsafe { pool.bytes(page.frame).as_mut_slice() };
                    let image = &mut bytes[..slot.len_bytes() as usize];
                    let read = ReadRequest::new(slot.offset_bytes(), image);
                    self.under_way[number] = Some(page);
                    self.vacant.pop();
                    return Some((number, read));
                }
                _ => self.put_off.push(id),
            }
        }
    }

    fn end_read(&mut self, number: usize, read: ReadRequest<'p>) {
        let page = self.under_way[number].as_ref().expect("a read ends once");
        let pool = self.session.pool;
        // A file that mixed reads up would go on writing into a page whose latch is released here.
        let is_its_own = read.buf.as_ptr() == pool.memory(page.frame)
            && read.buf.len() as u64 == page.slot.len_bytes();
        assert!(is_its_own, "a read is handed back under its number, with all of its buffer");
        let page = self.under_way[number].take().expect("it is there");
        self.vacant.push(number);
        let (id, frame) = (page.id, page.frame);
        // The slice of the frame's bytes ends here, and the latch after it.
        let ReadRequest { result, .. } = read;
        let outcome = self.session.finish(page, result, self.access);
        if outcome.is_ok() {
            // Evicted again already: whoever asked for it will ask again.
            self.session.keep(id, frame);
        }
        self.pages.page_ready(id, outcome);
    }
}
