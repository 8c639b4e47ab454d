//! Tasks that wait for what they have appended: who flushes for them, and what they are told when nobody can.

use super::*;
use hedgerow_sync::primitive::Mutex;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Wake, Waker};

/// A task's waker that counts.
#[derive(Default)]
struct Woken(Mutex<u32>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        *self.0.lock() += 1;
    }
}

fn poll(log: &Log, lsn: Lsn, woken: &Arc<Woken>) -> Poll<Result<(), ErrorKind>> {
    let waker = Waker::from(woken.clone());
    let outcome = log.poll_durable(lsn, &mut Context::from_waker(&waker));
    outcome.map_err(|error| error.kind())
}

/// Polls as a runtime does: again when the waker was called, and only then.
fn wait(log: &Log, lsn: Lsn) -> Result<(), ErrorKind> {
    let woken = Arc::<Woken>::default();
    loop {
        let before = *woken.0.lock();
        if let Poll::Ready(outcome) = poll(log, lsn, &woken) {
            return outcome;
        }
        let mut looks = 0;
        while *woken.0.lock() == before {
            looks += 1;
            assert!(looks < 10_000, "nobody wakes the task");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn the_logs_thread_flushes_for_a_task_at_once_and_tells_it() {
    let disk = SimDisk::new(30);
    // Nothing is flushed for the sake of the interval.
    let interval = Duration::from_secs(100_000);
    let log = begin_as(&disk, &header(), LogOptions { interval, threaded: true, ..options() });
    let running = run(&log);
    let woken = Arc::<Woken>::default();
    for n in 0..20 {
        let end = put(&log, n, 100).unwrap();
        assert_eq!(wait(&log, end), Ok(()));
        assert!(log.durable() >= end);
        assert_eq!(read(&disk.crash(n), &from()).unwrap(), (0..=n).collect::<Vec<_>>());
        assert_eq!(poll(&log, end, &woken), Poll::Ready(Ok(())));
    }
    assert_eq!(*woken.0.lock(), 0, "who never waited is not woken");
    log.stop();
    running.join().unwrap();
}

#[test]
fn a_task_is_told_when_a_commit_flushes_what_it_waits_for_and_not_before() {
    let disk = SimDisk::new(31);
    let log = begin(&disk, false);
    let (now, later) = (Arc::<Woken>::default(), Arc::<Woken>::default());
    let first = put(&log, 0, 100).unwrap();
    assert_eq!(poll(&log, first, &now), Poll::Pending);
    let behind = Lsn(start().0 + 3 * PAYLOAD_BYTES);
    assert_eq!(poll(&log, behind, &later), Poll::Pending);
    log.flush().unwrap();
    assert_eq!((*now.0.lock(), *later.0.lock()), (1, 0));
    assert_eq!(poll(&log, first, &now), Poll::Ready(Ok(())));
    for n in 1..3 {
        put(&log, n, 100).unwrap();
        log.flush().unwrap();
    }
    assert_eq!((*now.0.lock(), *later.0.lock()), (1, 1));
    assert_eq!(poll(&log, behind, &later), Poll::Ready(Ok(())));
}

#[test]
fn a_task_is_told_of_a_failed_sync_and_so_is_one_that_comes_later() {
    let disk = SimDisk::new(32);
    let log = begin(&disk, false);
    put(&log, 0, 100).unwrap();
    let durable = log.flush().unwrap();
    let end = put(&log, 1, 100).unwrap();
    let woken = Arc::<Woken>::default();
    assert_eq!(poll(&log, end, &woken), Poll::Pending);
    disk.inject(Fault::once(CallKind::SyncData, 0, Fault::EIO));
    assert_eq!(log.wait_durable(end).unwrap_err().kind(), ErrorKind::DurabilityUnknown);
    assert_eq!(*woken.0.lock(), 1);
    for _ in 0..2 {
        assert_eq!(poll(&log, end, &woken), Poll::Ready(Err(ErrorKind::DurabilityUnknown)));
        assert_eq!(poll(&log, durable, &woken), Poll::Ready(Ok(())), "it was before");
    }
    assert_eq!(*woken.0.lock(), 1);
}

#[test]
fn a_task_is_told_of_the_end_of_the_log_and_so_is_one_that_comes_later() {
    let disk = SimDisk::new(33);
    let log = begin(&disk, false);
    put(&log, 0, 100).unwrap();
    let durable = log.flush().unwrap();
    let end = put(&log, 1, 100).unwrap();
    let woken = Arc::<Woken>::default();
    assert_eq!(poll(&log, end, &woken), Poll::Pending);
    log.stop();
    assert_eq!(*woken.0.lock(), 1);
    assert_eq!(poll(&log, end, &woken), Poll::Ready(Err(ErrorKind::DurabilityUnknown)));
    assert_eq!(poll(&log, durable, &woken), Poll::Ready(Ok(())));
    assert_eq!(read(&disk.crash(1), &from()).unwrap(), [0], "nothing is flushed by the end");
}

/// The log's thread leaves the flush that is under way to whoever makes it, and is told when that has ended.
#[test]
fn a_task_that_comes_while_a_commit_flushes_does_not_wait_for_the_interval() {
    let disk = SimDisk::new(35);
    let (begun, begins) = channel();
    let (goes_on, go_on) = channel::<()>();
    let go_on = Mutex::new(go_on);
    let before_write = Box::new(move || {
        begun.send(()).ok();
        // Whoever comes after the test has let all go on does not wait.
        go_on.lock().recv().ok();
        Ok(())
    });
    let interval = Duration::from_secs(100_000);
    let how = LogOptions { interval, threaded: true, before_write, ..options() };
    let log = begin_as(&disk, &header(), how);
    let running = run(&log);
    put(&log, 0, 100).unwrap();
    let flusher = {
        let log = log.clone();
        thread::spawn_named("flusher", move || log.flush().map(drop)).unwrap()
    };
    begins.recv().unwrap();
    let end = put(&log, 1, 100).unwrap();
    let woken = Arc::<Woken>::default();
    assert_eq!(poll(&log, end, &woken), Poll::Pending);
    // The thread has been told, and has gone to sleep again.
    thread::sleep(Duration::from_millis(100));
    drop(goes_on);
    flusher.join().unwrap().unwrap();
    // To poll again would tell the thread again.
    let mut looks = 0;
    while *woken.0.lock() == 0 {
        looks += 1;
        assert!(looks < 10_000, "nobody wakes the task");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(poll(&log, end, &woken), Poll::Ready(Ok(())));
    log.stop();
    running.join().unwrap();
}

/// The flusher says how far the log is durable before it takes out those who wait: who looks in between finds it.
#[test]
fn a_task_that_comes_while_its_flush_ends_does_not_wait_for_the_next() {
    let disk = SimDisk::new(34);
    let (begun, begins) = channel();
    let (goes_on, go_on) = channel();
    let go_on = Mutex::new(go_on);
    let before_write = Box::new(move || {
        begun.send(()).unwrap();
        go_on.lock().recv().unwrap();
        Ok(())
    });
    let log = begin_as(&disk, &header(), LogOptions { before_write, ..options() });
    let end = put(&log, 0, 100).unwrap();
    let flusher = {
        let log = log.clone();
        thread::spawn_named("flusher", move || log.flush().map(drop)).unwrap()
    };
    begins.recv().unwrap();
    let state = log.state.lock();
    let task = {
        let log = log.clone();
        let (asks, asked) = channel();
        let asking = move || {
            asks.send(()).unwrap();
            wait(&log, end)
        };
        let task = thread::spawn_named("task", asking).unwrap();
        asked.recv().unwrap();
        // It has seen that the log is not durable so far, and is on its way to the lock.
        thread::sleep(Duration::from_millis(20));
        task
    };
    goes_on.send(()).unwrap();
    while log.durable() < end {
        thread::sleep(Duration::from_millis(1));
    }
    drop(state);
    assert_eq!(task.join().unwrap(), Ok(()));
    flusher.join().unwrap().unwrap();
}

fn look(ticket: &Ticket, woken: &Arc<Woken>) -> Poll<Result<(), ErrorKind>> {
    let waker = Waker::from(woken.clone());
    ticket.poll(&mut Context::from_waker(&waker)).map_err(|error| error.kind())
}

#[test]
fn a_ticket_that_is_given_up_is_forgotten_and_of_the_others_the_last_task_is_woken() {
    let disk = SimDisk::new(35);
    // Nobody runs its thread.
    let log = begin(&disk, true);
    let end = put(&log, 0, 100).unwrap();
    let (kept, given_up) = (log.ticket(end), log.ticket(end));
    let woken: [Arc<Woken>; 3] = Default::default();
    assert_eq!(look(&given_up, &woken[0]), Poll::Pending);
    assert_eq!(look(&kept, &woken[1]), Poll::Pending);
    assert_eq!(look(&kept, &woken[2]), Poll::Pending);
    log.give_up(&given_up);
    assert_eq!(Arc::strong_count(&given_up), 1, "the log has forgotten it");
    assert_eq!(Arc::strong_count(&kept), 2);
    log.flush().unwrap();
    assert_eq!(woken.each_ref().map(|woken| *woken.0.lock()), [0, 0, 1]);
    assert_eq!(look(&given_up, &woken[0]), Poll::Pending);
    assert_eq!(look(&kept, &woken[2]), Poll::Ready(Ok(())));
    assert_eq!(look(&log.ticket(end), &woken[2]), Poll::Ready(Ok(())), "it is known");
}

#[test]
fn tickets_and_functions_of_a_log_that_ends_are_told_what_is_durable_and_what_is_not() {
    for fails in [false, true] {
        let disk = SimDisk::new(36);
        let log = begin(&disk, true);
        let first = put(&log, 0, 100).unwrap();
        let (ticket, woken) = (log.ticket(first), Arc::<Woken>::default());
        assert_eq!(look(&ticket, &woken), Poll::Pending);
        let (tell, told) = channel();
        let function = || {
            let tell = tell.clone();
            Box::new(move |outcome: crate::error::Result<()>| {
                tell.send(outcome.map_err(|error| error.kind())).unwrap();
            })
        };
        log.tell_when_durable(first, function()).unwrap();
        let unknown = Err(ErrorKind::DurabilityUnknown);
        if fails {
            disk.inject(Fault::once(CallKind::SyncData, 0, Fault::EIO));
            log.flush().unwrap_err();
        } else {
            log.stop();
        }
        assert_eq!(look(&ticket, &woken), Poll::Ready(unknown));
        assert_eq!(*woken.0.lock(), 1);
        assert_eq!(told.recv().unwrap(), unknown);
        // And who comes later.
        log.tell_when_durable(first, function()).unwrap();
        assert_eq!(told.try_recv().unwrap(), unknown);
        assert_eq!(look(&log.ticket(first), &woken), Poll::Ready(unknown));
    }
}
