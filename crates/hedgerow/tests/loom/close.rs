//! Closing a log beside threads that commit: everybody gets an answer, what was acknowledged is on the disk, and nothing
//! is written once the log has stopped.

use crate::check;
use crate::log::{append, begin, commit};
use crate::paper::Paper;
use hedgerow::ErrorKind;
use hedgerow::internals::wal::Log;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

/// Commits, and holds the answer against the disk.
fn commit_and_look(log: &Log, paper: &Paper, letter: u8) {
    match commit(log, letter) {
        Ok(()) => assert!(paper.has_synced(&[letter; 16]), "acknowledged, and not on the disk"),
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::DurabilityUnknown | ErrorKind::Closed))
        }
    }
}

fn spawn_commit(log: &Arc<Log>, paper: &Arc<Paper>, letter: u8) -> thread::JoinHandle<()> {
    let (log, paper) = (Arc::clone(log), Arc::clone(paper));
    thread::spawn(move || commit_and_look(&log, &paper, letter))
}

#[test]
fn a_commit_beside_a_close_is_answered_and_nothing_is_written_afterwards() {
    check(2, || {
        let paper = Arc::new(Paper::default());
        let log = begin(&paper, false);
        let committers = [b'a', b'b'].map(|letter| spawn_commit(&log, &paper, letter));
        log.stop();
        paper.seal();
        for committer in committers {
            committer.join().unwrap();
        }
    });
}

/// Whether a task was woken.
#[derive(Default)]
struct Task(AtomicBool);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// A flusher wakes only tasks that it has served: the others are the closer's.
#[test]
fn a_close_wakes_all_who_wait() {
    check(3, || {
        let paper = Arc::new(Paper::default());
        let log = begin(&paper, false);
        let committer = spawn_commit(&log, &paper, b'a');
        let task = Arc::new(Task::default());
        let waker = Waker::from(Arc::clone(&task));
        let mut context = Context::from_waker(&waker);
        let end = append(&log, b'b').unwrap();
        let pending = log.poll_durable(end, &mut context).is_pending();
        log.stop();
        paper.seal();
        committer.join().unwrap();
        if pending {
            assert!(task.0.load(Relaxed), "a task sleeps for ever");
        }
        match log.poll_durable(end, &mut context) {
            Poll::Ready(Ok(())) => assert!(paper.has_synced(&[b'b'; 16])),
            Poll::Ready(Err(error)) => assert_eq!(error.kind(), ErrorKind::DurabilityUnknown),
            Poll::Pending => panic!("nobody answers any more"),
        }
    });
}

/// And a ticket has its outcome, which is the truth, whoever gave it: a flusher or the closer.
#[test]
fn a_ticket_beside_a_close_has_an_outcome() {
    check(3, || {
        let paper = Arc::new(Paper::default());
        // Nobody runs its thread: the committer flushes, or nobody.
        let log = begin(&paper, true);
        let committer = spawn_commit(&log, &paper, b'a');
        let task = Arc::new(Task::default());
        let waker = Waker::from(Arc::clone(&task));
        let mut context = Context::from_waker(&waker);
        let end = append(&log, b'b').unwrap();
        let ticket = log.ticket(end);
        let mut outcome = ticket.poll(&mut context);
        log.stop();
        paper.seal();
        committer.join().unwrap();
        if outcome.is_pending() {
            assert!(task.0.load(Relaxed), "a task sleeps for ever");
            outcome = ticket.poll(&mut context);
        }
        match outcome {
            Poll::Ready(Ok(())) => assert!(paper.has_synced(&[b'b'; 16])),
            Poll::Ready(Err(error)) => assert_eq!(error.kind(), ErrorKind::DurabilityUnknown),
            Poll::Pending => panic!("nobody answers any more"),
        }
    });
}

#[test]
fn the_thread_of_a_log_ends_with_it() {
    check(2, || {
        let paper = Arc::new(Paper::default());
        let log = begin(&paper, true);
        let running = {
            let log = Arc::clone(&log);
            thread::spawn(move || log.run())
        };
        let committer = spawn_commit(&log, &paper, b'a');
        log.stop();
        paper.seal();
        committer.join().unwrap();
        running.join().unwrap();
    });
}

/// As a store closes: what was appended is made durable first, so that nobody whose change is there gets an error.
#[test]
fn what_was_made_durable_before_a_close_is_acknowledged() {
    check(3, || {
        let paper = Arc::new(Paper::default());
        let log = begin(&paper, false);
        let appended = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let committer = {
            let (log, paper, appended) =
                (Arc::clone(&log), Arc::clone(&paper), Arc::clone(&appended));
            thread::spawn(move || {
                let end = append(&log, b'a').unwrap();
                appended.store(true, loom::sync::atomic::Ordering::Release);
                let answer = log.wait_durable(end);
                assert!(answer.is_err() || paper.has_synced(&[b'a'; 16]));
                answer.is_ok()
            })
        };
        let is_in = appended.load(loom::sync::atomic::Ordering::Acquire);
        log.flush().unwrap();
        log.stop();
        paper.seal();
        let is_acknowledged = committer.join().unwrap();
        assert!(is_acknowledged || !is_in, "the change was there before the close began");
    });
}
