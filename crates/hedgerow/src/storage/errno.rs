//! The number of a system's error, as those who make calls and those who judge them share it.
//!
//! Rank 1. No state. On Unix systems it is `errno`; on Windows what `GetLastError` says, which the standard
//! library and [`crate::error::Error::io`] take as the raw number of an error.

#[cfg(unix)]
pub(super) use rustix::io::Errno;

/// What a call of Windows failed with.
#[cfg(windows)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Errno(i32);

#[cfg(windows)]
impl Errno {
    /// A call was interrupted before it did anything (`WSAEINTR`, which the standard library has for it).
    pub(super) const INTR: Errno = Errno(10004);
    /// `ERROR_IO_DEVICE`.
    pub(super) const IO: Errno = Errno(1117);
    /// `ERROR_FILE_TOO_LARGE`.
    pub(super) const FBIG: Errno = Errno(223);
    /// `WSAEWOULDBLOCK`.
    #[cfg(test)]
    pub(super) const AGAIN: Errno = Errno(10035);
}

#[cfg(windows)]
impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        // The calls that move bytes have a number for each of their failures.
        error.raw_os_error().map_or(Errno::IO, Errno)
    }
}

#[cfg(windows)]
impl From<Errno> for std::io::Error {
    fn from(Errno(number): Errno) -> std::io::Error {
        std::io::Error::from_raw_os_error(number)
    }
}
