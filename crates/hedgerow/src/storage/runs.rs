//! Runs of requests that one call can carry out.
//!
//! Rank 1. No state.

/// Requests that follow one another both in a batch and in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Index of the first request.
    pub(super) first: usize,
    /// How many requests.
    pub(super) count: usize,
    /// Where the first one begins.
    pub(super) offset_bytes: u64,
    /// Bytes of all of them.
    pub(super) len_bytes: usize,
}

/// The most requests of a run: well below what one call may carry (1024).
const MAX_RUN_REQUESTS: usize = 256;
/// The most bytes of a run. Beyond this a longer transfer gains nothing, and holds up its neighbours.
const MAX_RUN_BYTES: usize = 1 << 20;

/// Divides a batch, given as offset and length of each request, into runs.
pub(super) fn runs(requests: impl Iterator<Item = (u64, usize)>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::with_capacity(requests.size_hint().0);
    for (first, (offset_bytes, len_bytes)) in requests.enumerate() {
        if let Some(run) = runs.last_mut()
            && run.offset_bytes.checked_add(run.len_bytes as u64) == Some(offset_bytes)
            && run.count < MAX_RUN_REQUESTS
            && run.len_bytes + len_bytes <= MAX_RUN_BYTES
        {
            run.count += 1;
            run.len_bytes += len_bytes;
        } else {
            runs.push(Run { first, count: 1, offset_bytes, len_bytes });
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_form_runs_up_to_the_limits() {
        let run =
            |first, count, offset_bytes, len_bytes| Run { first, count, offset_bytes, len_bytes };
        let batch = [(0, 512), (512, 512), (2048, 512), (1024, 512), (1536, 4096)];
        assert_eq!(
            runs(batch.into_iter()),
            [run(0, 2, 0, 1024), run(2, 1, 2048, 512), run(3, 2, 1024, 4608)]
        );
        let many = runs((0..1000).map(|i| (i * 512, 512)));
        assert!(many.iter().all(|run| run.count <= MAX_RUN_REQUESTS));
        assert_eq!(many.iter().map(|run| run.count).sum::<usize>(), 1000);
        let large = runs((0..3).map(|i| (i << 20, 1 << 20)));
        assert_eq!(large.len(), 3);
        assert_eq!(runs([(u64::MAX, 512), (511, 512)].into_iter()).len(), 2);
    }
}
