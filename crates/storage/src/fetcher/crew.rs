//! The threads of a fetcher. Each has a tokio runtime and, as connections belong to the runtime that opened them,
//! connections of its own.

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::runtime;

/// Workers that one thread of the fetcher keeps up with. Over HTTPS a photograph of 110 kB takes 0.19 ms of it, where a
/// worker takes 0.7 ms to decode one (docs/measured.md).
const WORKERS_PER_THREAD: u32 = 4;

/// On the slow machine of that measurement, this many receive six gigabytes per second: more than most links bring.
const MOST_THREADS: u32 = 10;

/// How many threads a fetcher has that receives records for so many workers.
#[must_use]
pub fn n_fetch_threads(n_workers: u32) -> NonZero<usize> {
    let n = n_workers.div_ceil(WORKERS_PER_THREAD).min(MOST_THREADS);
    NonZero::new(n as usize).unwrap_or(NonZero::<usize>::MIN)
}

/// Threads that carry out orders `O`. Dropping it ends what they do, without waiting for the network.
#[derive(Debug)]
pub(super) struct Crew<O> {
    lanes: Vec<Lane<O>>,
    process: u32,
}

#[derive(Debug)]
struct Lane<O> {
    orders: Option<UnboundedSender<O>>,
    thread: Option<JoinHandle<()>>,
}

/// The thread of an order is not there any more.
#[derive(Debug)]
pub(super) struct Gone;

impl<O: Send + 'static> Crew<O> {
    /// Starts `n` threads, each of which does what `serve` says until there are no more orders.
    pub(super) fn start<F: Future<Output = ()>>(
        n: NonZero<usize>,
        serve: impl Fn(UnboundedReceiver<O>) -> F + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let serve = Arc::new(serve);
        let mut crew = Self { lanes: Vec::new(), process: std::process::id() };
        for _ in 0..n.get() {
            let (runtime, serve) = (runtime()?, Arc::clone(&serve));
            let (orders, received) = unbounded_channel();
            let work = move || {
                runtime.block_on(serve(received));
                // A name lookup or a file system that hangs is left behind.
                runtime.shutdown_background();
            };
            let thread = Builder::new().name("bothends-fetch".to_owned()).spawn(work)?;
            crew.lanes.push(Lane { orders: Some(orders), thread: Some(thread) });
        }
        Ok(crew)
    }

    /// Gives an order to a thread, counted round and round.
    pub(super) fn give(&self, nth: usize, order: O) -> Result<(), Gone> {
        let lane = &self.lanes[nth % self.lanes.len()];
        let sent = lane.orders.as_ref().map(|orders| orders.send(order));
        sent.and_then(Result::ok).ok_or(Gone)
    }
}

impl<O> Crew<O> {
    /// The process with the threads.
    pub(super) fn process(&self) -> u32 {
        self.process
    }

    /// Whether this is another process than the one with the threads.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.process != std::process::id()
    }

    /// As a fork does: the process is another one, and the threads are not there.
    #[cfg(test)]
    pub(super) fn leave(&mut self) {
        self.process = std::process::id().wrapping_add(1);
    }

    /// Back from where it was left.
    #[cfg(test)]
    pub(super) fn come_back(&mut self) {
        self.process = std::process::id();
    }
}

impl<O> Drop for Crew<O> {
    fn drop(&mut self) {
        // All of them hear of it before one is waited for.
        for lane in &mut self.lanes {
            lane.orders = None;
        }
        let is_elsewhere = self.is_elsewhere();
        for lane in &mut self.lanes {
            if let (false, Some(thread)) = (is_elsewhere, lane.thread.take()) {
                // It has nothing to say but that it panicked, which the panic's message told.
                let _ = thread.join();
            }
        }
    }
}
