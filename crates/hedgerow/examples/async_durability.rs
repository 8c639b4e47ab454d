//! The store behind async tasks: changes on threads that may block, and many tasks that wait for one fsync together.
//!
//! `cargo run -p hedgerow --example async_durability`
//!
//! A runtime has what this example makes by hand: `spawn_blocking` in place of [`Blocking`], and its tasks in place of `run_all`. What
//! stays is `add_bird`: a call that may wait for a page or for room goes to a thread that may block, and durability is awaited.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // Rules for the engine, not for programs that use it.

use hedgerow::{Database, Keyspace, Options, Result};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// Puts a record, and returns when it is durable.
async fn add_bird(db: &Database, birds: &Keyspace, blocking: &Blocking, n: u32) -> Result<u32> {
    let birds = birds.clone();
    let put = move || birds.put(&n.to_be_bytes(), b"in the hedge").map(|_was_there| ());
    blocking.spawn(put).await?;
    // No thread waits for the disk meanwhile. All tasks that have come here share the next fsync.
    db.durable(db.log_position()).await?;
    Ok(n)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let db =
        Options::new().memory_limit_bytes(16 << 20).create(directory.path().join("birds.hrow"))?;
    let birds = db.keyspace("birds")?;
    let blocking = Blocking::new(2);

    let tasks = (0..1_000).map(|n| add_bird(&db, &birds, &blocking, n));
    let added = run_all(tasks).into_iter().collect::<Result<Vec<u32>>>()?;
    println!("{} birds are durable", added.len());
    assert!(db.durable_position() >= db.log_position());

    // Without a future: a function that is called when it is durable.
    let (tell, told) = channel();
    birds.put(b"wren", b"Troglodytes troglodytes")?;
    db.on_durable(db.log_position(), move |outcome| drop(tell.send(outcome)))?;
    told.recv()??;
    println!("and so is the wren");
    db.close()?;
    Ok(())
}

/// Threads that may block.
struct Blocking(Sender<Job>);

impl Blocking {
    fn new(threads: usize) -> Blocking {
        let (sender, jobs) = channel::<Job>();
        let jobs: Arc<Mutex<Receiver<Job>>> = Arc::new(Mutex::new(jobs));
        for _ in 0..threads {
            let jobs = jobs.clone();
            thread::spawn(move || {
                loop {
                    let job = jobs.lock().map(|jobs| jobs.recv());
                    let Ok(Ok(job)) = job else { return };
                    job();
                }
            });
        }
        Blocking(sender)
    }

    /// Runs `work` on one of them.
    async fn spawn<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> R {
        let (sender, receiver) = channel();
        let mut work = Some((work, sender));
        poll_fn(|context| {
            if let Some((work, sender)) = work.take() {
                let waker = context.waker().clone();
                let job = move || {
                    sender.send(work()).ok();
                    waker.wake();
                };
                self.0.send(Box::new(job)).expect("the threads go on as long as there is a sender");
            }
            match receiver.try_recv() {
                Ok(done) => Poll::Ready(done),
                Err(TryRecvError::Empty) => Poll::Pending,
                Err(TryRecvError::Disconnected) => panic!("the work has panicked"),
            }
        })
        .await
    }
}

/// Runs all tasks on this thread, each when it was woken. Returns what they return.
fn run_all<F: Future>(tasks: impl Iterator<Item = F>) -> Vec<F::Output> {
    let (sender, ready) = channel();
    let mut tasks: Vec<Pin<Box<F>>> = tasks.map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = tasks.iter().map(|_| None).collect();
    let wakers: Vec<Waker> = (0..tasks.len())
        .map(|task| Waker::from(Arc::new(Ready { task, sender: sender.clone() })))
        .collect();
    wakers.iter().for_each(Waker::wake_by_ref);
    let mut left = tasks.len();
    while left > 0 {
        let task = ready.recv().expect("this function has a sender itself");
        if outputs[task].is_some() {
            continue;
        }
        let mut context = Context::from_waker(&wakers[task]);
        if let Poll::Ready(output) = tasks[task].as_mut().poll(&mut context) {
            outputs[task] = Some(output);
            left -= 1;
        }
    }
    outputs.into_iter().flatten().collect()
}

struct Ready {
    task: usize,
    sender: Sender<usize>,
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.sender.send(self.task).ok();
    }
}
