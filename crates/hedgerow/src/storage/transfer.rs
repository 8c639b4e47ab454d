//! Whole reads and writes out of calls that may be short, interrupted or stuck.
//!
//! Rank 1. The calls are arguments, so that tests can misbehave in their place. No state.
//!
//! The progress rule: a call that was interrupted is made again; a call that moved some bytes is
//! continued behind them; a call that moved none is the end of the file (for a read) or an error (for
//! a write); every other error stands. So each turn of the loops but an interrupted one moves at least
//! one unit, and both end.

use crate::storage::MAX_OFFSET;
use crate::storage::errno::Errno;

/// How [`read_fully`] ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadEnd {
    Done,
    EndOfFile,
    Failed(Errno),
}

/// Reads into `buf` from `offset` until at least `wanted` bytes are there, by calls of `read`, which
/// says how many bytes it moved. Calls begin at multiples of `block` bytes (a power of two).
pub(super) fn read_fully(
    offset: u64,
    buf: &mut [u8],
    wanted: usize,
    block: usize,
    mut read: impl FnMut(&mut [u8], u64) -> Result<usize, Errno>,
) -> ReadEnd {
    if offset.checked_add(buf.len() as u64).is_none_or(|end| end > MAX_OFFSET) {
        return ReadEnd::EndOfFile;
    }
    let mut done = 0;
    while done < wanted {
        match read(&mut buf[done..], offset + done as u64) {
            Ok(count) if done + count >= wanted => return ReadEnd::Done,
            // A direct read goes on at a whole block; less than one was moved only at the end.
            Ok(count) if count & !(block - 1) > 0 => done += count & !(block - 1),
            Ok(_) => return ReadEnd::EndOfFile,
            Err(Errno::INTR) => {}
            Err(errno) => return ReadEnd::Failed(errno),
        }
    }
    ReadEnd::Done
}

/// Writes all of `buf` at `offset` by calls of `write`, which says how many bytes it moved. Calls
/// begin at multiples of `block` bytes (a power of two).
pub(super) fn write_fully(
    offset: u64,
    buf: &[u8],
    block: usize,
    mut write: impl FnMut(&[u8], u64) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    if offset.checked_add(buf.len() as u64).is_none_or(|end| end > MAX_OFFSET) {
        return Err(Errno::FBIG);
    }
    let mut done = 0;
    while done < buf.len() {
        match write(&buf[done..], offset + done as u64) {
            Ok(count) if done + count >= buf.len() => return Ok(()),
            Ok(count) if count & !(block - 1) > 0 => done += count & !(block - 1),
            // A write that goes nowhere and says nothing would be tried for ever.
            Ok(_) => return Err(Errno::IO),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_sync::primitive::random::SplitMix64;

    /// Reads or writes of `len` bytes that are cut and interrupted by the dice.
    fn cut(random: &mut SplitMix64, len: usize) -> Result<usize, Errno> {
        match random.next_u64() % 3 {
            0 => Err(Errno::INTR),
            1 => Ok(1 + random.next_u64() as usize % len),
            _ => Ok(len),
        }
    }

    #[test]
    fn interrupted_and_short_calls_are_continued() {
        let seed = 0x0e1_47e5;
        println!("seed {seed}");
        let mut random = SplitMix64::new(seed);
        for _ in 0..300 {
            let block = [1, 512][random.next_u64() as usize % 2];
            let len = (1 + random.next_u64() as usize % 20) * 512;
            let data: Vec<u8> = (0..len).map(|_| random.next_u64() as u8).collect();
            let mut file = vec![0; len];
            let mut starts = Vec::new();
            let written = write_fully(0, &data, block, |bytes, at| {
                starts.push(at);
                let count = cut(&mut random, bytes.len() / block)? * block;
                // What a direct write moves beyond a whole block is written once more.
                let extra = if count < bytes.len() { block / 2 } else { 0 };
                file[at as usize..][..count + extra].copy_from_slice(&bytes[..count + extra]);
                Ok(count + extra)
            });
            assert_eq!(written, Ok(()));
            assert_eq!(file, data);
            let mut back = vec![0; len];
            let end = read_fully(0, &mut back, len, block, |bytes, at| {
                starts.push(at);
                let count = cut(&mut random, bytes.len() / block)? * block;
                bytes[..count].copy_from_slice(&file[at as usize..][..count]);
                Ok(count)
            });
            assert_eq!(end, ReadEnd::Done);
            assert_eq!(back, data);
            assert!(starts.iter().all(|at| at % block as u64 == 0));
        }
    }

    #[test]
    fn a_write_without_progress_is_an_error_at_once() {
        let mut calls = 0;
        let result = write_fully(0, &[0; 8], 1, |_, _| {
            calls += 1;
            Ok(if calls == 1 { 4 } else { 0 })
        });
        assert_eq!((result, calls), (Err(Errno::IO), 2));
        let mut calls = 0;
        let result = write_fully(0, &[0; 1024], 512, |_, _| {
            calls += 1;
            Ok(100)
        });
        assert_eq!((result, calls), (Err(Errno::IO), 1));
    }

    #[test]
    fn the_end_of_the_file_and_errors_end_a_read() {
        let read =
            |count| read_fully(0, &mut [0; 8], 8, 1, |_, at| Ok(if at == 0 { count } else { 0 }));
        assert_eq!(read(0), ReadEnd::EndOfFile);
        assert_eq!(read(7), ReadEnd::EndOfFile);
        assert_eq!(read(8), ReadEnd::Done);
        let end = read_fully(0, &mut [0; 8], 8, 1, |_, _| Err(Errno::AGAIN));
        assert_eq!(end, ReadEnd::Failed(Errno::AGAIN));
        assert_eq!(read_fully(0, &mut [0; 8], 3, 1, |_, _| Ok(3)), ReadEnd::Done);
        let never = |_: &mut [u8], _| -> Result<usize, Errno> { unreachable!() };
        assert_eq!(read_fully(u64::MAX - 3, &mut [0; 8], 8, 1, never), ReadEnd::EndOfFile);
        assert_eq!(write_fully(MAX_OFFSET, &[0; 8], 1, |_, _| Ok(8)), Err(Errno::FBIG));
    }
}
