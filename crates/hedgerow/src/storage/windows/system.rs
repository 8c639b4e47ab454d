//! The calls of Windows for which the standard library has none: locks of a range, identities, sparse files, a rename that
//! replaces nothing, room on a disk.
//!
//! Rank 1. Each function makes one call on a handle that its caller lends, and tells its failure as the system does. No
//! state; any thread.

use std::fs::File;
use std::io;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::io::AsRawHandle;
use std::path::{Component, Path};
use std::ptr::{null, null_mut};
use windows_sys::Win32::Foundation::{ERROR_IO_PENDING, ERROR_LOCK_VIOLATION};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_ID_INFO, FILE_TYPE_DISK, FileIdInfo, GetDiskFreeSpaceExW,
    GetFileInformationByHandle, GetFileInformationByHandleEx, GetFileType, LOCKFILE_EXCLUSIVE_LOCK,
    LOCKFILE_FAIL_IMMEDIATELY, LockFileEx, MOVEFILE_WRITE_THROUGH, MoveFileExW, UnlockFileEx,
};
use windows_sys::Win32::System::IO::{DeviceIoControl, OVERLAPPED};
use windows_sys::Win32::System::Ioctl::{
    FILE_ZERO_DATA_INFORMATION, FSCTL_SET_SPARSE, FSCTL_SET_ZERO_DATA,
};

/// Where the byte is whose lock stands for the whole file: behind the last one that a file can have, so that the lock, which
/// Windows enforces, keeps nobody from reading or writing.
const LOCKED_AT: u64 = i64::MAX as u64 - 1;

/// The outcome of a call that returns 0 for a failure.
fn done(returned: i32) -> io::Result<()> {
    if returned == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A place in a file, for calls that take one.
fn place(offset_bytes: u64) -> OVERLAPPED {
    let mut place = OVERLAPPED::default();
    place.Anonymous.Anonymous.Offset = offset_bytes as u32;
    place.Anonymous.Anonymous.OffsetHigh = (offset_bytes >> 32) as u32;
    place
}

/// Locks the file without waiting; `false` if somebody else has it. A handle that has it already counts as somebody else.
pub(super) fn try_lock(file: &File, exclusive: bool) -> io::Result<bool> {
    let exclusive = if exclusive { LOCKFILE_EXCLUSIVE_LOCK } else { 0 };
    let flags = exclusive | LOCKFILE_FAIL_IMMEDIATELY;
    let mut at = place(LOCKED_AT);
    // SAFETY: the handle is open as long as `file` is borrowed, and `at` lives until the call returns. The handle was not opened
    // for overlapped calls, so that nothing is under way afterwards.
    let locked = done(unsafe { LockFileEx(file.as_raw_handle(), flags, 0, 1, 0, &mut at) });
    match locked.as_ref().map_err(io::Error::raw_os_error) {
        Err(Some(number))
            if [ERROR_LOCK_VIOLATION, ERROR_IO_PENDING].contains(&(number as u32)) =>
        {
            Ok(false)
        }
        _ => locked.map(|()| true),
    }
}

/// Gives the lock of this handle back. Errors: the system's, also if the handle has none.
pub(super) fn unlock(file: &File) -> io::Result<()> {
    let mut at = place(LOCKED_AT);
    // SAFETY: as in `try_lock`.
    done(unsafe { UnlockFileEx(file.as_raw_handle(), 0, 1, 0, &mut at) })
}

/// Whether it is a file, and not a console, a pipe or another device.
pub(super) fn is_on_disk(file: &File) -> bool {
    // SAFETY: the handle is open as long as `file` is borrowed.
    unsafe { GetFileType(file.as_raw_handle()) == FILE_TYPE_DISK }
}

/// What tells a file from all others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    volume: u64,
    number: [u8; 16],
}

/// The volume of a file and its number there: two handles have the same if and only if they are of one file.
pub(super) fn identity(file: &File) -> io::Result<Identity> {
    let mut told = FILE_ID_INFO::default();
    let len = size_of::<FILE_ID_INFO>() as u32;
    let into = (&raw mut told).cast();
    // SAFETY: the handle is open, and `told` is memory of the type and the length that this question is answered with.
    let known =
        unsafe { GetFileInformationByHandleEx(file.as_raw_handle(), FileIdInfo, into, len) };
    if known != 0 {
        return Ok(Identity { volume: told.VolumeSerialNumber, number: told.FileId.Identifier });
    }
    // Older file systems have shorter numbers alone.
    let mut told = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the handle is open, and `told` is memory of the type that this question is answered with.
    done(unsafe { GetFileInformationByHandle(file.as_raw_handle(), &mut told) })?;
    let mut number = [0; 16];
    number[..4].copy_from_slice(&told.nFileIndexLow.to_le_bytes());
    number[4..8].copy_from_slice(&told.nFileIndexHigh.to_le_bytes());
    Ok(Identity { volume: told.dwVolumeSerialNumber.into(), number })
}

/// Bytes that the file takes up on the disk.
#[cfg(hedgerow_internals)]
pub(super) fn allocated_bytes(file: &File) -> io::Result<u64> {
    use windows_sys::Win32::Storage::FileSystem::{FILE_STANDARD_INFO, FileStandardInfo};
    let mut told = FILE_STANDARD_INFO::default();
    let len = size_of::<FILE_STANDARD_INFO>() as u32;
    let into = (&raw mut told).cast();
    // SAFETY: the handle is open, and `told` is memory of the type and the length that this question is answered with.
    done(unsafe {
        GetFileInformationByHandleEx(file.as_raw_handle(), FileStandardInfo, into, len)
    })?;
    Ok(told.AllocationSize as u64)
}

/// Lets the file have holes.
pub(super) fn make_sparse(file: &File) -> io::Result<()> {
    control(file, FSCTL_SET_SPARSE, None)
}

/// Makes a range zero. In a file that may have holes its room goes back to the file system.
pub(super) fn zero(file: &File, offset_bytes: u64, end_bytes: u64) -> io::Result<()> {
    let range = FILE_ZERO_DATA_INFORMATION {
        FileOffset: offset_bytes as i64,
        BeyondFinalZero: end_bytes as i64,
    };
    control(file, FSCTL_SET_ZERO_DATA, Some(&range))
}

fn control(file: &File, code: u32, range: Option<&FILE_ZERO_DATA_INFORMATION>) -> io::Result<()> {
    let input = range.map_or(null(), |range| (&raw const *range).cast());
    let len = range.map_or(0, |_| size_of::<FILE_ZERO_DATA_INFORMATION>() as u32);
    let (handle, mut moved) = (file.as_raw_handle(), 0);
    // SAFETY: the handle is open and not for overlapped calls; the input is null with length zero, or a value that lives with its
    // size; there is no output, and the count that the call writes lives.
    done(unsafe {
        DeviceIoControl(handle, code, input, len, null_mut(), 0, &mut moved, null_mut())
    })
}

/// Gives a file a path that nothing has. Errors: `AlreadyExists` if something has it.
pub(super) fn move_new(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (wide(from)?, wide(to)?);
    // SAFETY: both are strings of the system's characters that end with a zero, and live until the call returns.
    done(unsafe { MoveFileExW(from.as_ptr(), to.as_ptr(), MOVEFILE_WRITE_THROUGH) })
}

/// Bytes that a user has left on the volume of a directory.
pub(super) fn free_bytes(directory: &Path) -> io::Result<u64> {
    let (directory, mut free) = (wide(directory)?, 0);
    // SAFETY: the string ends with a zero and lives; the number that is asked for lives, and the others are not asked for.
    done(unsafe { GetDiskFreeSpaceExW(directory.as_ptr(), &mut free, null_mut(), null_mut()) })?;
    Ok(free)
}

/// The longest path, in characters, that the system takes as it is, for a directory; paths of files may be twelve longer.
const MAX_PLAIN_CHARACTERS: usize = 247;

/// The path as the system takes it, of any length. Errors: `InvalidInput` if there is a zero in it.
fn wide(path: &Path) -> io::Result<Vec<u16>> {
    let mut characters: Vec<u16> = path.as_os_str().encode_wide().collect();
    if characters.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let is_verbatim = match path.components().next() {
        Some(Component::Prefix(prefix)) => prefix.kind().is_verbatim(),
        _ => false,
    };
    if is_verbatim {
        characters.push(0);
        return Ok(characters);
    }
    let whole: Vec<u16> = std::path::absolute(path)?.as_os_str().encode_wide().collect();
    if whole.len() >= MAX_PLAIN_CHARACTERS {
        // A path on another machine begins with two of these.
        let separators = [u16::from(b'\\'); 2];
        let (start, rest) = match whole.strip_prefix(&separators) {
            Some(rest) => (r"\\?\UNC\", rest),
            None => (r"\\?\", whole.as_slice()),
        };
        characters = start.encode_utf16().chain(rest.iter().copied()).collect();
    }
    characters.push(0);
    Ok(characters)
}
