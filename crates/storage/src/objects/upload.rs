//! Writing objects: the narrow counterpart of `Objects`, and its face for threads.
//!
//! Nothing here is needed for reading. An upload that is begun again leaves out what is there with the same
//! length and the same label; it removes nothing.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;

use crate::retry::{self, Pauses};
use crate::{Objects, StorageError, fetcher};

/// Objects on their way at the same time, and their bytes.
const MOST_OBJECTS: usize = 64;
const MOST_BYTES: usize = 64 << 20;
/// An object that is written more slowly than this in a second, on average, is given up.
const SLOWEST: usize = 128 << 10;

/// Objects that can be written, too.
///
/// # Contract
///
/// 1. After `put` has succeeded, `identify` knows the object with its length.
/// 2. `put` replaces an object of the same name, and does not retry.
/// 3. No message shows a credential.
pub trait Put: Objects {
    /// Makes what must be there before the first object: a table.
    fn prepare(&self) -> BoxFuture<'_, Result<(), StorageError>>;

    /// What an object is called that is to have this name: the same, but where names have a form of their
    /// own.
    fn named<'a>(
        &'a self,
        wanted: &'a str,
    ) -> BoxFuture<'a, Result<String, StorageError>> {
        std::future::ready(Ok(wanted.to_owned())).boxed()
    }

    /// Whether a label is kept with its object; else a list has to say it.
    fn keeps_labels(&self) -> bool {
        false
    }

    /// Whether the object is there with this length, and with this label where labels are kept.
    fn holds<'a>(
        &'a self,
        object: &'a str,
        len: u64,
        _label: Option<u32>,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        let found = self.identify(object);
        async move {
            match found.await {
                Ok(identity) => Ok(identity.len == len),
                Err(StorageError::NotFound { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        }
        .boxed()
    }

    /// Adds or replaces an object.
    fn put<'a>(
        &'a self,
        object: &'a str,
        bytes: Bytes,
        label: Option<u32>,
    ) -> BoxFuture<'a, Result<(), StorageError>>;
}

/// What is to be done with objects that are not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// They are written.
    Written,
    /// They are only counted.
    Counted,
}

/// One object to write.
#[derive(Debug)]
pub struct Upload {
    /// How it is to be called.
    pub object: String,
    /// All of it.
    pub bytes: Bytes,
    /// Its label, where the store keeps one with it.
    pub label: Option<u32>,
}

/// What has become of an upload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Uploaded {
    /// Objects that were written, or would have been.
    pub written: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Objects that were there with the same length and label.
    pub found: u64,
}

#[derive(Debug)]
enum Order {
    Add(Upload),
    /// When all others are there.
    Last(Upload),
}

/// Writes objects on a thread of its own, many at the same time and in bounded memory.
#[derive(Debug)]
pub struct Uploader {
    orders: mpsc::Sender<Order>,
    done: Arc<Mutex<Uploaded>>,
    thread: JoinHandle<Result<(), StorageError>>,
}

impl Uploader {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread or no descriptors left.
    pub fn start(to: Arc<dyn Put>, missing: Missing) -> io::Result<Self> {
        let runtime = fetcher::runtime()?;
        // One is taken from the channel when there is room for it.
        let (orders, received) = mpsc::channel(1);
        let done = Arc::default();
        let counts = Arc::clone(&done);
        let work = move || {
            let ended = runtime.block_on(serve(&*to, missing, received, &counts));
            runtime.shutdown_background();
            ended
        };
        let thread = Builder::new().name("bothends-upload".to_owned()).spawn(work)?;
        Ok(Self { orders, done, thread })
    }

    /// Adds an object; waits while too many are on their way. False where an earlier one has failed:
    /// [`Self::finish`] says why.
    #[must_use]
    pub fn add(&self, upload: Upload) -> bool {
        self.orders.blocking_send(Order::Add(upload)).is_ok()
    }

    /// What has been done so far.
    #[must_use]
    pub fn so_far(&self) -> Uploaded {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for all that is on its way, and then writes `last`, which describes it: unless the same bytes are
    /// there, for equal lengths say nothing of a list.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn finish_with(self, last: Upload) -> Result<Uploaded, StorageError> {
        // Where it cannot be sent, the end tells why.
        let _ = self.orders.blocking_send(Order::Last(last));
        self.finish()
    }

    /// Waits for all that is on its way.
    ///
    /// # Errors
    /// The first failure; then nothing more was written.
    pub fn finish(self) -> Result<Uploaded, StorageError> {
        let Self { orders, done, thread } = self;
        drop(orders);
        match thread.join() {
            Ok(ended) => ended?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        Ok(*done.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn serve(
    to: &dyn Put,
    missing: Missing,
    mut orders: mpsc::Receiver<Order>,
    done: &Mutex<Uploaded>,
) -> Result<(), StorageError> {
    if missing == Missing::Written {
        patiently(0, &to.shown(""), || to.prepare()).await?;
    }
    let mut running = FuturesUnordered::new();
    let (mut bytes, mut is_over, mut last) = (0, false, None);
    loop {
        // One that alone is more than all may be is written alone.
        let has_room = running.len() < MOST_OBJECTS && (bytes == 0 || bytes < MOST_BYTES);
        tokio::select! {
            biased;
            Some(ended) = running.next(), if !running.is_empty() => {
                let ended: Ended = ended?;
                bytes -= ended.len;
                count(done, ended);
            }
            order = orders.recv(), if has_room && !is_over => match order {
                Some(Order::Add(upload)) => {
                    bytes += upload.bytes.len();
                    running.push(one(to, missing, upload));
                }
                Some(Order::Last(upload)) => (is_over, last) = (true, Some(upload)),
                None => is_over = true,
            },
            else => break,
        }
    }
    if let Some(Upload { object, bytes, .. }) = last {
        let was_there = holds_bytes(to, &object, &bytes).await?;
        let len = bytes.len();
        if !was_there && missing == Missing::Written {
            write(to, &object, bytes, None).await?;
        }
        count(done, Ended { len, was_there });
    }
    Ok(())
}

/// An object that is done.
struct Ended {
    len: usize,
    was_there: bool,
}

fn count(done: &Mutex<Uploaded>, Ended { len, was_there }: Ended) {
    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
    match was_there {
        true => done.found += 1,
        false => {
            done.written += 1;
            done.written_bytes += len as u64;
        }
    }
}

/// Writes an object that is not there.
async fn one(
    to: &dyn Put,
    missing: Missing,
    Upload { object, bytes, label }: Upload,
) -> Result<Ended, StorageError> {
    let len = bytes.len();
    let object = to.named(&object).await?;
    let was_there = to.holds(&object, len as u64, label).await?;
    if !was_there && missing == Missing::Written {
        write(to, &object, bytes, label).await?;
    }
    Ok(Ended { len, was_there })
}

async fn write(
    to: &dyn Put,
    object: &str,
    bytes: Bytes,
    label: Option<u32>,
) -> Result<(), StorageError> {
    let place = to.shown(object);
    patiently(bytes.len(), &place, || to.put(object, bytes.clone(), label)).await
}

/// Whether an object is these bytes. One that cannot be read as a whole is another one.
async fn holds_bytes(
    to: &dyn Put,
    object: &str,
    bytes: &Bytes,
) -> Result<bool, StorageError> {
    let len = bytes.len() as u64;
    if !to.holds(object, len, None).await? {
        return Ok(false);
    }
    let all = 0..len;
    let mut arrivals = to.get_ranges(object, std::slice::from_ref(&all), None);
    let read = tokio::time::timeout(retry::WITHIN, arrivals.next());
    Ok(matches!(read.await, Ok(Some((_, Ok(found)))) if found == bytes))
}

/// Tries again as long as that may help. Each attempt has time for `len` bytes.
async fn patiently<'a>(
    len: usize,
    place: &str,
    mut attempt: impl FnMut() -> BoxFuture<'a, Result<(), StorageError>>,
) -> Result<(), StorageError> {
    let seconds = u64::try_from(len / SLOWEST).unwrap_or(u64::MAX);
    let after = retry::WITHIN + Duration::from_secs(seconds);
    // They begin with the first failure: a long object that breaks off is written again, too.
    let mut pauses = None;
    loop {
        let error = match tokio::time::timeout(after, attempt()).await {
            Ok(Err(error)) if error.is_transient() => error,
            Ok(done) => return done,
            Err(_) => {
                return Err(StorageError::TimedOut { place: place.to_owned(), after });
            }
        };
        let pauses = pauses.get_or_insert_with(Pauses::new);
        if !pauses.wait(error.retry_after()).await {
            return Err(error);
        }
    }
}
