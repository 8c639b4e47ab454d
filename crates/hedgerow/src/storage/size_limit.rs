//! The process's limit of the size of files (`ulimit -f`), which must not end the process.
//!
//! A call that would make a file larger than the limit fails with `EFBIG`, and the kernel sends the calling
//! thread SIGXFSZ, which ends the process unless somebody has said otherwise. A library must not say so for the whole
//! process. So the thread holds the signal back during such a call, and takes it away if the call failed.
//! Looking at the limit before the call would not do: `prlimit` may change it in between, and it counts for every
//! write beyond it, whatever the file's length is. Two short system calls for each write. No state.

use rustix::io::Errno;

#[cfg(target_os = "linux")]
pub(super) use linux::Held;
#[cfg(target_os = "linux")]
use linux::is_exceeded_by;

#[cfg(target_os = "linux")]
mod linux {
    use std::mem::MaybeUninit;
    use std::ptr;

    /// SIGXFSZ is held back in this thread until the value is dropped.
    pub(crate) struct Held {
        /// What was held back before; `None` if that could not be changed.
        before: Option<libc::sigset_t>,
    }

    impl Held {
        pub(crate) fn back() -> Held {
            let mut before = MaybeUninit::uninit();
            let signal = size_signal();
            // SAFETY: `pthread_sigmask` reads a set that lives, and writes one into memory of that size.
            let done = unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, &signal, before.as_mut_ptr()) == 0
            };
            // SAFETY: the call has succeeded, and so has written the set.
            Held { before: done.then(|| unsafe { before.assume_init() }) }
        }

        /// Takes the signal away that a call of this thread has brought about.
        #[cold]
        pub(crate) fn take_away(&self) {
            if self.before.is_none() {
                return;
            }
            let (signal, no_time) = (size_signal(), libc::timespec { tv_sec: 0, tv_nsec: 0 });
            loop {
                // SAFETY: `sigtimedwait` reads a set and a time that live; where the signal's story is to go may be null.
                let taken = unsafe { libc::sigtimedwait(&signal, ptr::null_mut(), &no_time) };
                let interrupted =
                    std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR);
                if taken >= 0 || !interrupted {
                    return;
                }
            }
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            if let Some(before) = &self.before {
                // SAFETY: `pthread_sigmask` reads a set that lives; where the old one is to go may be null.
                unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
            }
        }
    }

    /// The set of this one signal.
    fn size_signal() -> libc::sigset_t {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` writes a whole set, and `sigaddset` changes it; neither fails for a signal that exists.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGXFSZ);
            set.assume_init()
        }
    }

    /// Whether a file that ends there would be larger than the limit.
    #[cold]
    pub(crate) fn is_exceeded_by(end_bytes: u64) -> bool {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `getrlimit` writes a limit into memory of that type.
        let told = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) == 0 };
        told && limit.rlim_cur != libc::RLIM_INFINITY && end_bytes > limit.rlim_cur
    }
}

#[cfg(not(target_os = "linux"))]
fn is_exceeded_by(_end_bytes: u64) -> bool {
    false
}

/// Makes a call that may make a file larger.
pub(super) fn within<R>(call: impl FnOnce() -> Result<R, Errno>) -> Result<R, Errno> {
    #[cfg(target_os = "linux")]
    {
        let held = Held::back();
        let result = call();
        if matches!(result, Err(Errno::FBIG)) {
            held.take_away();
        }
        result
    }
    #[cfg(not(target_os = "linux"))]
    call()
}

/// Makes a call that writes `len` bytes at `at`. One that the limit has cut short is refused: what is left may be no direct
/// request, and no call would write it.
pub(super) fn write(
    at: u64,
    len: usize,
    call: impl FnOnce() -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    match within(call) {
        Ok(count) if count < len && is_exceeded_by(at + len as u64) => Err(Errno::FBIG),
        Err(Errno::INVAL) if is_exceeded_by(at + len as u64) => Err(Errno::FBIG),
        other => other,
    }
}
