//! Who holds the lock of a file, and whether that process has ended: what `/proc` says on Linux.
//!
//! Rank 1. For the words of an error, and for how long to try: the answers may be out of date when they
//! are read, and are missing where the system does not tell. No state.

#[cfg(unix)]
use std::os::fd::OwnedFd;

/// The process that holds a `flock` lock on the file, if the system tells.
#[cfg(unix)]
pub(super) fn holder_pid(fd: &OwnedFd) -> Option<u32> {
    #[cfg(target_os = "linux")]
    {
        let stat = rustix::fs::fstat(fd).ok()?;
        let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
        find(&locks()?, device, stat.st_ino)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = fd;
        None
    }
}

/// Whether the process has ended, or is being taken down: it keeps nothing of its own accord. `false` where
/// the system does not tell.
///
/// Its locks may outlast it by a moment: what it had asked of io_uring holds the file until the kernel
/// has cancelled it.
pub fn process_has_ended(pid: u32) -> bool {
    #[cfg(target_os = "linux")]
    {
        // "1234 (name) Z ...": the name may hold anything, so the state is behind the last bracket.
        match read_proc(&format!("/proc/{pid}/stat")) {
            Some(stat) => stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X'])),
            None => read_proc("/proc/self/stat").is_some(),
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = pid;
        false
    }
}

/// The text of `/proc/locks`.
#[cfg(target_os = "linux")]
fn locks() -> Option<String> {
    read_proc("/proc/locks")
}

#[cfg(target_os = "linux")]
fn read_proc(path: &str) -> Option<String> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let mut text = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match rustix::io::retry_on_intr(|| rustix::io::read(&fd, &mut chunk)).ok()? {
            0 => return String::from_utf8(text).ok(),
            count => text.extend_from_slice(&chunk[..count]),
        }
    }
}

/// Looks for the holder in lines such as `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`: process,
/// then major and minor device number in hexadecimal, and the inode. Waiters have an arrow before
/// their kind. Some file systems (btrfs) show another device number than `stat` does; there a line
/// counts if it is the only one with the inode.
#[cfg(target_os = "linux")]
fn find(text: &str, device: (u32, u32), inode: u64) -> Option<u32> {
    let mut elsewhere = Vec::new();
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace().skip(1);
        if fields.next() != Some("FLOCK") {
            continue;
        }
        let (Some(pid), Some(place)) = (fields.nth(2), fields.next()) else { continue };
        // A holder outside of our process namespace has a number that is not positive.
        let Some(pid) = pid.parse().ok().filter(|&pid: &u32| pid > 0) else { continue };
        let mut place = place.split(':');
        let major = place.next().and_then(|text| u32::from_str_radix(text, 16).ok());
        let minor = place.next().and_then(|text| u32::from_str_radix(text, 16).ok());
        if place.next().and_then(|text| text.parse().ok()) != Some(inode) {
            continue;
        }
        if (major, minor) == (Some(device.0), Some(device.1)) {
            return Some(pid);
        }
        elsewhere.push(pid);
    }
    match elsewhere[..] {
        [pid] => Some(pid),
        _ => None,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    const TEXT: &str = "\
1: POSIX  ADVISORY  WRITE 11 fe:00:100 0 EOF
2: FLOCK  ADVISORY  WRITE 12 fe:01:100 0 EOF
2: -> FLOCK  ADVISORY  WRITE 13 fe:00:100 0 EOF
3: FLOCK  ADVISORY  READ  14 fe:00:100 0 EOF
4: FLOCK  ADVISORY  WRITE -1 fe:00:200 0 EOF
5: FLOCK  ADVISORY  WRITE 15 00:2a:300 0 EOF
6: FLOCK  ADVISORY";

    #[test]
    fn an_ended_process_is_told_from_a_running_one() {
        assert!(!process_has_ended(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        // A zombie until it is waited for.
        while !process_has_ended(pid) {
            hedgerow_sync::primitive::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(process_has_ended(pid));
    }

    #[test]
    fn the_holder_is_found_by_device_and_inode() {
        assert_eq!(find(TEXT, (0xfe, 0), 100), Some(14));
        assert_eq!(find(TEXT, (0xfe, 1), 100), Some(12));
        assert_eq!(find(TEXT, (0xfe, 2), 100), None, "two candidates on other devices");
        assert_eq!(find(TEXT, (0xfe, 0), 200), None, "a holder out of sight");
        assert_eq!(find(TEXT, (0xfe, 0), 300), Some(15), "the only one with the inode");
        assert_eq!(find(TEXT, (0xfe, 0), 400), None);
        assert_eq!(find("", (0, 0), 0), None);
    }
}
