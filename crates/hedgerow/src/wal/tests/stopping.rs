//! The end of a log, proper and improper: the thread ends, nothing is written after it, and the first reason stays.

use super::*;
use hedgerow_sync::primitive::Mutex;
use hedgerow_sync::primitive::thread::JoinHandle;
use hedgerow_sync::primitive::time::Moment;
use std::sync::mpsc::channel;

/// A flush that has begun and does not write before it is told to.
struct HeldFlush {
    log: Arc<Log>,
    flusher: JoinHandle<Result<()>>,
    go_on: Box<dyn FnOnce()>,
}

impl HeldFlush {
    fn begin(disk: &SimDisk) -> HeldFlush {
        let (begun, begins) = channel();
        let (goes_on, told) = channel();
        let told = Mutex::new(told);
        let before_write = Box::new(move || {
            begun.send(()).unwrap();
            told.lock().recv().unwrap();
            Ok(())
        });
        let log = begin_as(disk, &header(), LogOptions { before_write, ..options() });
        let end = put(&log, 0, 100).unwrap();
        let flusher = {
            let log = log.clone();
            thread::spawn_named("flusher", move || log.wait_durable(end)).unwrap()
        };
        begins.recv().unwrap();
        HeldFlush { log, flusher, go_on: Box::new(move || goes_on.send(()).unwrap()) }
    }

    /// Stops the log, which has to wait for the flush, and lets that go on. Nothing is written when the log is stopped. Gives
    /// what the flusher was told.
    fn stop(self, disk: &SimDisk) -> Result<()> {
        let (stopped, stops) = channel();
        let stopping = {
            let (log, disk) = (self.log, disk.clone());
            let stop = move || {
                log.stop();
                stopped.send(disk.calls(CallKind::Write)).unwrap();
            };
            thread::spawn_named("stopping", stop).unwrap()
        };
        assert!(stops.recv_timeout(Duration::from_millis(30)).is_err(), "a flush is under way");
        (self.go_on)();
        let writes = stops.recv().unwrap();
        stopping.join().unwrap();
        let told = self.flusher.join().unwrap();
        assert_eq!(disk.calls(CallKind::Write), writes);
        told
    }
}

#[test]
fn stopping_waits_for_a_flush_under_way_and_nothing_is_written_when_it_returns() {
    let disk = SimDisk::new(40);
    let held = HeldFlush::begin(&disk);
    let log = held.log.clone();
    held.stop(&disk).unwrap();
    assert_eq!(log.durable(), start_of(SEGMENT.first_block(header().first_segment) + 1));
    assert_eq!(read(&disk.crash(1), &from()).unwrap(), [0]);
}

#[test]
fn a_flusher_that_comes_after_a_failure_writes_nothing_and_the_first_reason_stays() {
    let disk = SimDisk::new(41);
    let told = Arc::new(Mutex::new(Vec::new()));
    let on_failure = {
        let told = told.clone();
        Box::new(move |error: &Error| told.lock().push(error.os_error()))
    };
    let log = begin_with(&disk, false, on_failure);
    let end = put(&log, 0, 100).unwrap();
    disk.inject(Fault::once(CallKind::Write, 0, Fault::EIO));
    assert_eq!(log.wait_durable(end).unwrap_err().kind(), ErrorKind::DurabilityUnknown);
    let reason = log.failure().unwrap().to_string();
    let calls = (disk.calls(CallKind::Write), disk.calls(CallKind::SyncData));
    log.flush_and_hand_over(true);
    assert_eq!((disk.calls(CallKind::Write), disk.calls(CallKind::SyncData)), calls);
    log.fail(Error::new(ErrorKind::DiskFull, "something else"));
    assert_eq!(log.failure().unwrap().to_string(), reason);
    assert_eq!(log.failure().unwrap().kind(), ErrorKind::Poisoned);
    assert_eq!(told.lock().first(), Some(&Some(Fault::EIO)));
    assert_eq!((log.durable(), log.written().0), (start(), start()));
}

#[test]
fn a_flush_of_nothing_costs_no_write_and_no_sync() {
    let disk = SimDisk::new(42);
    let log = begin(&disk, false);
    put(&log, 0, 100).unwrap();
    let durable = log.flush().unwrap();
    let calls = disk.total_calls();
    log.flush_and_hand_over(true);
    log.flush().unwrap();
    assert_eq!(disk.total_calls(), calls);
    assert!(log.durable() >= durable);
    assert!(!log.state.lock().flushing, "the role is let go of");
}

#[test]
fn the_thread_ends_when_the_log_has_failed_whoever_has_failed_it() {
    let disk = SimDisk::new(43);
    let interval = Duration::from_secs(100_000);
    let log = begin_as(&disk, &header(), LogOptions { interval, threaded: true, ..options() });
    let running = run(&log);
    let end = put(&log, 0, 100).unwrap();
    disk.inject(Fault::once(CallKind::Write, 0, Fault::EIO));
    assert_eq!(log.wait_durable(end).unwrap_err().kind(), ErrorKind::DurabilityUnknown);
    running.join().unwrap();
    let refused = (1..1000).find_map(|n| put(&log, n, 900).err()).expect("the ring is finite");
    assert_eq!(refused.kind(), ErrorKind::Poisoned);
}

#[test]
fn the_thread_does_not_sleep_over_what_was_appended_meanwhile() {
    let disk = SimDisk::new(44);
    let log = begin(&disk, true);
    assert!(log.becomes_idle(), "everything is durable");
    let end = put(&log, 0, 100).unwrap();
    assert!(!log.becomes_idle(), "the record would stay where it is");
    log.wait_durable(end).unwrap();
    assert!(log.becomes_idle());
}

#[test]
fn what_is_appended_wakes_the_thread_that_sleeps_because_everything_is_durable() {
    let disk = SimDisk::new(45);
    let log = begin(&disk, true);
    let running = run(&log);
    for n in 0..10 {
        // Time to fall asleep.
        thread::sleep(Duration::from_millis(5));
        let end = put(&log, n, 100).unwrap();
        let since = Moment::now();
        while log.durable() < end {
            assert!(since.elapsed() < Duration::from_secs(20), "record {n} is not made durable");
            thread::sleep(Duration::from_millis(1));
        }
    }
    log.stop();
    running.join().unwrap();
}

/// Whoever prepares a segment, and cannot, is not who flushes.
#[test]
fn a_log_that_fails_beside_a_flush_is_not_stopped_before_that_has_ended() {
    let disk = SimDisk::new(46);
    let held = HeldFlush::begin(&disk);
    held.log.fail(Error::new(ErrorKind::Io, "no segment can be prepared"));
    held.stop(&disk).ok();
}
