//! Which process this is: what a process has opened must not be used by one that was forked from it.
//!
//! A child has a copy of its parent's memory and of its descriptors, but none of its threads: who goes on in the child writes to
//! the parent's files, and waits for threads that are not there. [`Process`] tells the two apart by one load and a comparison,
//! without a system call.
//!
//! How: a word in a page that the kernel wipes in the child (`MADV_WIPEONFORK`, Linux 4.14), or, where it does not, a word
//! that a handler of `pthread_atfork` clears. The first look in a process puts a number into the word that neither this process
//! nor one that it descends from has had. A child that shares the memory of its parent (`vfork`) counts as the parent.
//!
//! Thread-safety: everything, from any thread. There is no lock that a fork could find held. Under a model there is one process.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A process, as [`Process::current`] returned it. A forked child is another one.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    word: &'static AtomicU64,
    number: u64,
}

impl Process {
    /// This process.
    ///
    /// # Errors
    /// The error of the system if it has no way to tell a child from its parent.
    pub fn current() -> io::Result<Process> {
        let word = imp::word()?;
        // Numbers are counted in memory that a child has a copy of, so those of its ancestors are below its own.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut number = word.load(Relaxed);
        if number == 0 {
            let new = NEXT.fetch_add(1, Relaxed);
            number = match word.compare_exchange(0, new, Relaxed, Relaxed) {
                Ok(_) => new,
                // Another thread of this process came first.
                Err(there) => there,
            };
        }
        Ok(Process { word, number })
    }

    /// Whether it is the process that calls this: false in a forked child.
    #[inline]
    #[must_use]
    pub fn is_current(&self) -> bool {
        // Relaxed: only a fork clears the word, and whoever runs in the child comes after it.
        self.word.load(Relaxed) == self.number
    }
}

#[cfg(all(unix, not(any(loom, shuttle, miri))))]
mod imp {
    use std::io;
    use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};

    /// Where the word is, once it is known.
    static PLACE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
    /// The word that a handler clears.
    static CLEARED: AtomicU64 = AtomicU64::new(0);

    pub(super) fn word() -> io::Result<&'static AtomicU64> {
        let mut place = PLACE.load(Acquire);
        if place.is_null() {
            let new = match wiped_page() {
                Ok(page) => page,
                Err(_) => cleared_at_fork()?,
            };
            // Who comes second leaves a page unused, or a handler that clears the word twice.
            place = match PLACE.compare_exchange(std::ptr::null_mut(), new, AcqRel, Acquire) {
                Ok(_) => new,
                Err(first) => first,
            };
        }
        // SAFETY: `PLACE` is null or what one of the two functions below gave: a pointer to a static, or to the beginning of a
        // page, aligned to it, that is mapped for good and of which nobody uses anything but this atomic, valid whatever its bits are.
        Ok(unsafe { &*place })
    }

    #[cfg(target_os = "linux")]
    fn wiped_page() -> io::Result<*mut AtomicU64> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
        let len = rustix::param::page_size();
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory that anybody uses.
        let page = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, flags) }?;
        // SAFETY: the page was mapped above and is nobody else's; what the advice does to it in a child is what is wanted.
        let advised = unsafe { madvise(page, len, Advice::LinuxWipeOnFork) };
        if let Err(error) = advised {
            // SAFETY: mapped above, with this length, and nobody has a pointer into it.
            unsafe { munmap(page, len) }.ok();
            return Err(error.into());
        }
        Ok(page.cast())
    }

    #[cfg(not(target_os = "linux"))]
    fn wiped_page() -> io::Result<*mut AtomicU64> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn cleared_at_fork() -> io::Result<*mut AtomicU64> {
        type Handler = Option<unsafe extern "C" fn()>;
        unsafe extern "C" {
            // Of the C library, which the standard library links.
            fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> i32;
        }
        unsafe extern "C" fn clear() {
            CLEARED.store(0, Relaxed);
        }
        // SAFETY: the signature is POSIX's. The handler is valid for the whole of the program, and stores to an atomic,
        // which is allowed in the child of a process with threads.
        let refused = unsafe { pthread_atfork(None, None, Some(clear)) };
        match refused {
            0 => Ok(&raw const CLEARED as *mut AtomicU64),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(not(all(unix, not(any(loom, shuttle, miri)))))]
mod imp {
    use std::io;
    use std::sync::atomic::AtomicU64;

    static WORD: AtomicU64 = AtomicU64::new(0);

    pub(super) fn word() -> io::Result<&'static AtomicU64> {
        Ok(&WORD)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself_whoever_asks() {
        let first = Process::current().unwrap();
        let others: Vec<Process> = std::thread::scope(|scope| {
            let ask = || scope.spawn(|| Process::current().unwrap());
            [ask(), ask()].map(|asked| asked.join().unwrap()).into()
        });
        assert!(first.is_current());
        assert!(others.iter().all(|other| other.is_current() && other.number == first.number));
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn a_word_that_is_wiped_belongs_to_nobody_before() {
        let word: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(7)));
        let parent = Process { word, number: 7 };
        assert!(parent.is_current());
        word.store(0, Relaxed);
        assert!(!parent.is_current());
        imp::cleared_at_fork().unwrap();
    }
}
