//! How much a checkpoint writes with one call: less while durable commits come, because the disk makes each of them wait for
//! what it was given before.
//!
//! A batch of images has up to a megabyte. Written whole, it holds up the log's write and sync behind it for as long as the disk takes for
//! that much, and the slowest commits are those beside a checkpoint. In parts it holds them up for one part. A checkpoint that
//! nobody waits behind writes whole batches, which is faster.
//!
//! Only the checkpoint under way asks. `Send`.

use crate::storage::WriteRequest;

/// What is written with one call while commits come.
const PART_BYTES: usize = 32 << 10;
/// Batches for which a commit that was waited for is expected to be followed by another one.
const BATCHES_AFTER: u32 = 32;
/// The same, at the beginning of a checkpoint, which has not seen any yet.
const BATCHES_AT_FIRST: u32 = 8;

/// Whether durable commits come while a checkpoint writes.
pub(super) struct CommitWatch {
    /// Flushes of the log that somebody had waited for when this was asked last.
    awaited: u64,
    /// Batches that are written in parts yet, if no other commit comes.
    batches: u32,
}

impl CommitWatch {
    /// A checkpoint begins.
    pub(super) fn new(awaited: u64) -> CommitWatch {
        CommitWatch { awaited, batches: BATCHES_AT_FIRST }
    }

    /// Whether the next batch is to be written in parts.
    pub(super) fn expects_commits(&mut self, awaited: u64) -> bool {
        if std::mem::replace(&mut self.awaited, awaited) != awaited {
            self.batches = BATCHES_AFTER;
        }
        let expects = self.batches > 0;
        self.batches = self.batches.saturating_sub(1);
        expects
    }
}

/// The same writes, none longer than a part.
pub(super) fn parts<'b>(requests: &[WriteRequest<'b>]) -> Vec<WriteRequest<'b>> {
    let parts_of = |request: &WriteRequest<'b>| {
        let from = request.offset_bytes;
        let part = move |(number, buf)| WriteRequest {
            offset_bytes: from + (number * PART_BYTES) as u64,
            buf,
        };
        request.buf.chunks(PART_BYTES).enumerate().map(part)
    };
    requests.iter().flat_map(parts_of).collect()
}

/// Neighbours that are a part together.
pub(super) fn groups<'r, 'b>(
    parts: &'r [WriteRequest<'b>],
) -> impl Iterator<Item = &'r [WriteRequest<'b>]> {
    let mut rest = parts;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let mut fits = |part: &WriteRequest<'_>| {
            bytes += part.buf.len();
            bytes <= PART_BYTES
        };
        let count = rest.iter().take_while(|part| fits(part)).count();
        let group = rest.split_off(..count)?;
        (!group.is_empty()).then_some(group)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_same_bytes_at_the_same_places() {
        let bytes: Vec<u8> = (0..300 << 10).map(|at: usize| (at / 512) as u8).collect();
        let requests = [
            WriteRequest { offset_bytes: 4096, buf: &bytes[..512] },
            WriteRequest { offset_bytes: 1 << 20, buf: &bytes[512..200 << 10] },
            WriteRequest { offset_bytes: 3 << 20, buf: &bytes[200 << 10..] },
        ];
        let written = |requests: &[WriteRequest<'_>]| -> Vec<(u64, u8)> {
            let units = requests.iter().flat_map(|request| {
                let unit = |(number, unit): (usize, &[u8])| {
                    (request.offset_bytes + 512 * number as u64, unit[0])
                };
                request.buf.chunks(512).enumerate().map(unit)
            });
            units.collect()
        };
        let parts = parts(&requests);
        assert_eq!(written(&parts), written(&requests));
        let groups: Vec<_> = groups(&parts).collect();
        assert_eq!(groups.iter().map(|group| group.len()).sum::<usize>(), parts.len());
        for group in &groups {
            assert!(group.iter().map(|part| part.buf.len()).sum::<usize>() <= PART_BYTES);
        }
        // Ten parts, and one more where a request begins or ends.
        assert!(groups.len() <= 12, "{} groups", groups.len());
    }

    #[test]
    fn batches_are_whole_again_when_no_more_commits_come() {
        let mut watch = CommitWatch::new(7);
        let count = |watch: &mut CommitWatch, awaited| {
            (0..1000).take_while(|_| watch.expects_commits(awaited)).count()
        };
        assert_eq!(count(&mut watch, 7), BATCHES_AT_FIRST as usize);
        assert_eq!(count(&mut watch, 8), BATCHES_AFTER as usize);
        assert!(!watch.expects_commits(8));
        assert!(watch.expects_commits(9), "they come again");
    }
}
