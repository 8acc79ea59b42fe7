//! The thread that brings the records of remote data: the counterpart of `reader.rs`, with the same
//! jobs in and the same tasks out.
//!
//! Jobs hold slots, and there are few of them; a long link wants far more requests on their way than
//! they have rows. So batches are fetched from when the collector foretells them (`lookahead.rs`), which
//! takes memory for records only. `core::fetch` decides what is requested when, `storage` carries it
//! out, and `orders.rs` says what is wanted. What a device claims is no longer foretold, nor requested.
//!
//! The thread never waits for workers: it must hear of failures and answer them.

mod absence;
mod in_place;
pub(crate) mod local;
pub(crate) mod room;
mod round_trip;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bothends_core::fetch::{Failure, FetchFigures, FetchQueue, FetchStep, RequestId};
use bothends_core::ids::{EpochIdx, Ns, SampleId};
use bothends_core::link::Seen;
use bothends_core::positions::PositionMap;
use bothends_core::sample::FileIdx;
use bothends_figures::{FetchWaits, Fetches};
use bothends_storage::{Bytes, Fetch, Fetched, Fetcher, StorageError};
use crossbeam::channel::{
    Receiver, RecvTimeoutError, SendTimeoutError, Sender, TryRecvError, TrySendError,
};

use crate::collect::link::LinkWatch;
use crate::config::fetch::FetchBounds;
use crate::make::backlog::Backlog;
use crate::make::front::FrontJob;
use crate::make::worker::{Arrival, Form, Found, RecordBytes, Task};
use crate::read::demand::{self, BatchKey, Brought, Complete, Needed};
use crate::read::fetching::absence::Absence;
use crate::read::fetching::in_place::InPlace;
use crate::read::fetching::local::Local;
use crate::read::fetching::room::FetchRoom;
use crate::read::fetching::round_trip::RoundTrip;
use crate::read::lookahead::{Ahead, Soon};
use crate::read::orders::Orders;
use crate::read::remote::Remote;
use crate::read::source::Source;
use crate::threads::shutdown::{PATIENCE, Stop};
use crate::threads::times::Meter;

/// The longest wait for an answer while a job may come or workers may have room.
const LOOK_ROUND: Duration = Duration::from_millis(2);

/// Where there are no more objects than these, as with shards, their names are kept.
const MOST_NAMES: usize = 1024;

/// Most rows that are asked for ahead of the jobs: each takes an entry in the books and the queue.
const MOST_AHEAD: u64 = 16_384;

/// What the thread has done, for stats, metrics and reports. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct FetchWatch(Arc<Mutex<Watched>>);

#[derive(Debug, Clone, Copy, Default)]
struct Watched {
    /// What engines before this one have done.
    before: FetchFigures,
    /// As this one's queue says.
    now: FetchFigures,
}

impl FetchWatch {
    /// As of a moment ago, for people.
    pub(crate) fn figures(&self) -> Fetches {
        let figures = self.total();
        let FetchFigures { counts, waits, .. } = figures;
        let seconds = |ns: u64| Duration::from_nanos(ns).as_secs_f64();
        Fetches {
            requests: counts.requested,
            bytes: counts.bytes,
            joined: counts.joined,
            hedged: counts.hedged,
            hedges_won: counts.hedges_won,
            retried: counts.retried,
            throttled: counts.throttled,
            timed_out: counts.timed_out,
            failed: counts.failed,
            withdrawn: counts.withdrawn,
            cached: 0,
            cached_bytes: 0,
            cache_damaged: 0,
            in_flight: figures.in_flight,
            most_in_flight: counts.most_in_flight,
            window: figures.window,
            reordered_bytes: figures.reordered_bytes,
            p99_ms: 1e3 * seconds(figures.p99_ns),
            waits: FetchWaits {
                requests_s: seconds(waits.requests_ns),
                bytes_s: seconds(waits.bytes_ns),
                reorder_s: seconds(waits.reorder_ns),
                retry_s: seconds(waits.retry_ns),
                ahead_s: seconds(waits.offer_ns),
            },
        }
    }

    fn total(&self) -> FetchFigures {
        let watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.now.after(&watched.before)
    }

    /// A new engine's queue counts from zero.
    fn begin(&self) {
        let before = self.total();
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *watched = Watched { before, now: FetchFigures::default() };
    }

    fn set(&self, figures: FetchFigures) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).now = figures;
    }
}

/// What the thread owns.
#[derive(Debug)]
pub(crate) struct FetchStage {
    pub(crate) source: Arc<Source>,
    pub(crate) remote: Arc<Remote>,
    pub(crate) fetcher: Fetcher,
    pub(crate) room: FetchRoom,
    pub(crate) bounds: FetchBounds,
    pub(crate) ahead: Ahead,
    pub(crate) jobs: Receiver<FrontJob>,
    pub(crate) tasks: Sender<Task>,
    pub(crate) backlog: Arc<Backlog>,
    /// Bytes read from storage, for whoever asks.
    pub(crate) read_bytes: Arc<AtomicU64>,
    pub(crate) watch: FetchWatch,
    pub(crate) link: LinkWatch,
    pub(crate) meter: Meter,
    /// For the user.
    pub(crate) notes: Sender<String>,
    pub(crate) stop: Stop,
}

/// What is under way.
#[derive(Debug)]
struct Way {
    began: Instant,
    orders: Orders,
    /// By the requests.
    in_flight: PositionMap<Asked>,
    in_place: Option<InPlace>,
    /// Answers that have just come, and the memory for the next ones.
    fetched: Vec<Fetched>,
    /// Complete, and to be handed to the workers.
    ready: VecDeque<(u64, Task)>,
    names: HashMap<FileIdx, Arc<str>>,
    /// What the store said last where it failed.
    last_failure: Option<String>,
    absence: Absence,
    glance: Glance,
    round_trip: RoundTrip,
}

/// A request in flight.
#[derive(Debug)]
struct Asked {
    file: FileIdx,
    range: Range<u64>,
    /// How many parts of the answer are known to have come.
    heard: u64,
}

/// What was seen of the link since it was last told.
#[derive(Debug)]
struct Glance {
    at: Instant,
    seen: Seen,
    /// Whether workers had nothing to do, and waited for records, when it was last looked at.
    starves: bool,
}

/// How often it is told what was seen.
const GLANCE: Duration = Duration::from_millis(50);

impl Way {
    /// Workers have no room for a row: it stays the next.
    fn not_handed(&mut self, position: u64, task: Task) {
        self.ready.push_front((position, Task { handed: None, ..task }));
    }

    fn now(&self) -> Ns {
        Ns(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The wall clock's time, on which hosts that share a link agree.
fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// How many batches are to be foretold so that what the queue has room for is known: two at least, and no more than some
/// thousand rows.
pub(crate) fn batches_ahead(room: &FetchRoom, batch_size: u32) -> u32 {
    let batches = room.batches_ahead();
    let most = (MOST_AHEAD / u64::from(batch_size.max(1))).max(2);
    u32::try_from(batches.clamp(2, most)).unwrap_or(2)
}

impl FetchStage {
    /// The loop of the thread.
    pub(crate) fn run(mut self) {
        let mut way = self.way();
        self.watch.begin();
        self.link.begin(self.source.sample_bytes());
        let mut seen = 0;
        while !self.stop.is_set() {
            // What is foretold is read before the jobs: whoever foretold it had handed out the jobs
            // of what is not in it any more.
            let news = self.ahead.news(&mut seen);
            if !self.take_jobs(&mut way) {
                break;
            }
            if let Some(soon) = news {
                self.foretold(&soon, &mut way);
            }
            way.orders.leave_out_revoked();
            self.hand_on(&mut way);
            let mut wake = self.carry_out(&mut way);
            while way.orders.queue.lacks_room() && way.orders.drop_set_aside() {
                wake = self.carry_out(&mut way);
            }
            let is_still = way.in_flight.is_empty() && way.ready.is_empty();
            if is_still && way.orders.exceed_bounds() {
                wake = self.carry_out(&mut way);
            }
            let figures = way.orders.queue.figures();
            let (n, patience) = (figures.counts.timed_out, self.bounds.patience());
            self.note(way.absence.timed_out(n, patience, Instant::now()));
            self.watch.set(figures);
            self.look_at_link(&mut way);
            self.meter.note();
            self.wait(wake, &mut way);
        }
        // What is on its way ends with the fetcher, which waits for no answer.
        drop(self.fetcher);
    }

    fn way(&self) -> Way {
        let fields = self.remote.fetched_fields.clone();
        fields.begin(self.room.values);
        let config = self.bounds.within(self.room.queue, self.source.seed);
        let mut orders = Orders::new(FetchQueue::new(config), fields);
        orders.local = Local::of(&self.source, &self.remote);
        Way {
            began: Instant::now(),
            orders,
            in_flight: PositionMap::default(),
            in_place: InPlace::of(&self.source),
            fetched: Vec::new(),
            ready: VecDeque::new(),
            names: HashMap::new(),
            last_failure: None,
            absence: Absence::default(),
            glance: Glance { at: Instant::now(), seen: Seen::default(), starves: false },
            round_trip: RoundTrip::default(),
        }
    }

    /// Notes whether workers wait for the link, and says so from time to time.
    fn look_at_link(&mut self, way: &mut Way) {
        let glance = &mut way.glance;
        let ns = u64::try_from(glance.at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        glance.at = Instant::now();
        glance.seen.ns = glance.seen.ns.saturating_add(ns);
        if glance.starves {
            glance.seen.starved_ns = glance.seen.starved_ns.saturating_add(ns);
        }
        let has_nothing = way.ready.is_empty() && self.tasks.is_empty();
        glance.starves = has_nothing && way.orders.books.is_waited_for();
        if u128::from(glance.seen.ns) >= GLANCE.as_nanos() {
            let in_flight = way.in_flight.iter().map(|(_, asked)| asked);
            let in_flight = in_flight.filter(|it| !self.remote.is_local(it.file));
            let in_flight_bytes = in_flight.map(|it| it.range.end - it.range.start).sum();
            let seen = std::mem::take(&mut glance.seen);
            self.link.saw(Seen { in_flight_bytes, wall_ns: wall_ns(), ..seen });
            way.orders.queue.limit_bytes(self.link.host_limit_bytes());
            if let Some((file, offset)) = way.round_trip.place()
                && let Some(asked) = self.link.ask_round_trip()
            {
                let name = self.name(file, way);
                self.fetcher.submit(way.round_trip.ask(asked, name, offset));
            }
            self.hear(way);
        }
    }

    /// Tells the queue which answers are coming, though none of them is whole.
    fn hear(&self, way: &mut Way) {
        let now = way.now();
        for (tag, asked) in way.in_flight.iter_mut() {
            let heard = self.fetcher.heard(tag);
            if heard > asked.heard {
                asked.heard = heard;
                way.orders.queue.heard(RequestId(tag), now);
            }
        }
    }

    /// Waits for an answer, a job or room at the workers', and takes all answers that are there.
    fn wait(&mut self, wake: Option<Ns>, way: &mut Way) {
        // Those of requests that no thread carried out are back at once.
        self.take_returned(way);
        if self.fetcher.in_flight() == 0 {
            let until =
                wake.map_or(PATIENCE, |at| Duration::from_nanos(at.since(way.now())));
            if let Some((position, task)) = self.next_ready(way) {
                // Nothing else can happen but that workers have room, or that a job comes.
                match self.tasks.send_timeout(task, until.min(LOOK_ROUND)) {
                    Ok(()) => way.orders.queue.taken(position),
                    Err(SendTimeoutError::Timeout(task)) => {
                        way.not_handed(position, task);
                    }
                    Err(SendTimeoutError::Disconnected(_)) => {}
                }
                return;
            }
            // Nobody says that workers have dropped a long record.
            let patience = if way.ready.is_empty() { PATIENCE } else { LOOK_ROUND };
            match self.jobs.recv_timeout(until.min(patience)) {
                Ok(job) => self.take(job, way),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            return;
        }
        let until =
            wake.map_or(LOOK_ROUND, |at| Duration::from_nanos(at.since(way.now())));
        let mut fetched = std::mem::take(&mut way.fetched);
        self.fetcher.poll_all(until.min(LOOK_ROUND), &mut fetched);
        for one in fetched.drain(..) {
            self.ended(one, way);
        }
        way.fetched = fetched;
        self.take_returned(way);
    }

    /// Takes the jobs that wait; false when nobody is left to give one.
    fn take_jobs(&self, way: &mut Way) -> bool {
        loop {
            match self.jobs.try_recv() {
                Ok(job) => self.take(job, way),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn take(&self, job: FrontJob, way: &mut Way) {
        let key = (job.progress.epoch, job.progress.batch);
        let samples: Vec<_> = job.rows.iter().map(|(sample, _)| *sample).collect();
        let rows = || self.pieces(key.0, samples.into_iter());
        for complete in way.orders.job(key, job, rows) {
            self.complete(complete, way);
        }
    }

    fn pieces(
        &self,
        epoch: EpochIdx,
        samples: impl Iterator<Item = SampleId>,
    ) -> Vec<Needed> {
        let keys = samples.map(|sample| self.source.key(epoch, sample));
        self.source.pieces_to_fetch(keys, &self.remote)
    }

    /// Enters what is foretold, and withdraws what no longer is: a device has claimed it, or its epoch
    /// is over.
    fn foretold(&self, soon: &[Soon], way: &mut Way) {
        let keys = |soon: &Soon| {
            let epoch = soon.epoch;
            soon.batches.clone().into_iter().map(move |batch| (epoch, batch))
        };
        let wanted: HashSet<BatchKey> = soon.iter().flat_map(keys).collect();
        way.orders.keep_only(|key| wanted.contains(&key));
        for Soon { epoch, plan, batches } in soon {
            for &batch in batches {
                let rows = || self.pieces(*epoch, plan.samples(batch).flatten());
                way.orders.foretold((*epoch, batch), rows);
            }
        }
    }

    /// Does what the queue says; when it wants to be asked again.
    fn carry_out(&mut self, way: &mut Way) -> Option<Ns> {
        loop {
            match way.orders.queue.next(way.now()) {
                FetchStep::Request { request, object, range, timeout_ns } => {
                    let file = FileIdx(object);
                    // A file of this machine says nothing of the link.
                    if !self.remote.is_local(file) {
                        way.round_trip.requested(file, range.start);
                    }
                    let fetch = Fetch {
                        tag: request.0,
                        object: self.name(file, way),
                        range: range.clone(),
                        expected: self.remote.identity(file),
                        // The queue cancels it before: this is for a queue that is not asked.
                        timeout: Duration::from_nanos(timeout_ns).saturating_mul(2),
                    };
                    self.submit(fetch, way);
                    way.in_flight.insert(request.0, Asked { file, range, heard: 0 });
                }
                FetchStep::Cancel { request } => {
                    way.in_flight.remove(request.0);
                    self.fetcher.cancel(request.0);
                }
                FetchStep::GiveUp { position } => {
                    let why = way.last_failure.clone();
                    let why =
                        why.unwrap_or_else(|| "the store does not answer".to_owned());
                    self.fetched(position, Err(why), way);
                }
                FetchStep::WakeAt(at) => return Some(at),
                FetchStep::Idle => return None,
            }
        }
    }

    fn name(&self, file: FileIdx, way: &mut Way) -> Arc<str> {
        let table = &self.source.table;
        if table.n_files() > MOST_NAMES {
            return table.file_path(file).into();
        }
        let name = way.names.entry(file).or_insert_with(|| table.file_path(file).into());
        Arc::clone(name)
    }

    /// A request has ended.
    fn ended(&self, Fetched { tag, result, destination }: Fetched, way: &mut Way) {
        let since = Instant::now();
        if tag == round_trip::TAG {
            if let Some((asked, took_ns)) = way.round_trip.ended()
                && result.is_ok()
            {
                self.link.round_trip(asked, took_ns);
            }
            return;
        }
        let request = RequestId(tag);
        let asked = way.in_flight.remove(tag);
        let back = way.came_back(tag, destination);
        let now = way.now();
        match result {
            Ok(bytes) => {
                if let Some(Asked { file, range, .. }) = asked {
                    let n_bytes = range.end - range.start;
                    // A file of this machine says nothing of a store.
                    if !self.remote.is_local(file) {
                        way.glance.seen.bytes += n_bytes;
                        self.note(way.absence.answered(since));
                    }
                    self.read_bytes.fetch_add(n_bytes, Ordering::Relaxed);
                }
                let pieces = way.orders.queue.arrived(request, now).to_vec();
                self.arrived(&pieces, (&bytes, back, since), way);
            }
            Err(error) => {
                if let Some(back) = back {
                    self.give_back(back, way);
                }
                let why = error.to_string();
                if error.is_transient() {
                    let patience = self.bounds.patience();
                    self.note(way.absence.failed(&why, patience, since));
                }
                way.last_failure = Some(why);
                let failed =
                    way.orders.queue.failed(request, failure(&error), now).to_vec();
                for position in failed {
                    self.fetched(position, Err(error.to_string()), way);
                }
            }
        }
    }

    fn note(&self, line: Option<String>) {
        if let Some(line) = line {
            // Who reads no notes keeps the oldest.
            let _ = self.notes.try_send(line);
        }
    }

    fn fetched(&self, position: u64, record: demand::Fetched, way: &mut Way) {
        if let Some(complete) = way.orders.books.fetched(position, record) {
            self.complete(complete, way);
        }
    }

    /// A row has its record, the values of its fields and its part of a slot.
    fn complete(&self, complete: Complete, way: &mut Way) {
        let Complete { position, progress, row, sample, part, piece, .. } = complete;
        let Complete { mut record, values, .. } = complete;
        for value in &values {
            way.orders.queue.taken(value.position);
            if let Some((bytes, range)) = &value.bytes {
                self.source.keep_value(&self.remote, value.extent, (bytes, range));
            }
        }
        if !progress.is_revoked() {
            let batch = (progress.epoch, progress.batch);
            self.remote.fetched_fields.keep(batch, sample, values);
        }
        if piece.extent.len == 0 {
            let object = self.source.table.file_path(piece.extent.file);
            let why = self.remote.why_nothing(&object, piece.extent);
            record = why.map_or(record, Err);
        }
        let record = match record {
            Ok(Brought::Fetched(bytes, range)) => {
                self.source.keep_fetched(&self.remote, (sample, piece), (&bytes, &range));
                Arrival::Read(Ok(Found {
                    bytes: RecordBytes::Fetched(bytes, range),
                    name: self.source.name_of_fetched(&self.remote, sample),
                    form: Form::File,
                }))
            }
            Ok(Brought::Cached(record)) => Arrival::Cached(Box::new(record)),
            Err(why) => Arrival::Read(Err(why)),
        };
        let handed = None;
        let task = Task { progress, row, sample, part, piece, record, handed };
        way.ready.push_back((position, task));
    }

    /// The next row that workers may have, if they do not have too many bytes already.
    fn next_ready(&self, way: &mut Way) -> Option<(u64, Task)> {
        let n_bytes = way.ready.front().map(|(_, task)| task.record_bytes())?;
        if !self.backlog.has_room(n_bytes) {
            return None;
        }
        let (position, mut task) = way.ready.pop_front()?;
        task.handed = self.backlog.hand(n_bytes);
        Some((position, task))
    }

    /// Hands rows to the workers as far as they have room.
    fn hand_on(&self, way: &mut Way) {
        while let Some((position, task)) = self.next_ready(way) {
            match self.tasks.try_send(task) {
                Ok(()) => way.orders.queue.taken(position),
                Err(TrySendError::Full(task)) => return way.not_handed(position, task),
                // Nobody makes anything any more.
                Err(TrySendError::Disconnected(_)) => {}
            }
        }
    }
}

/// A part of what a request brought.
fn cut(bytes: &Bytes, part: &Range<u64>) -> demand::Fetched {
    let at = |offset: u64| usize::try_from(offset).ok();
    let range = at(part.start).zip(at(part.end)).map(|(start, end)| start..end);
    match range.filter(|range| range.start <= range.end && range.end <= bytes.len()) {
        Some(range) => Ok(Brought::Fetched(bytes.clone(), range)),
        None => Err("the store sent fewer bytes than were asked for".to_owned()),
    }
}

/// What the queue is told of a request that failed.
fn failure(error: &StorageError) -> Failure {
    let retry_after_ns = error
        .retry_after()
        .map(|after| u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
    if matches!(error, StorageError::Throttled { .. }) {
        Failure::Throttled { retry_after_ns }
    } else if matches!(error, StorageError::TimedOut { .. }) {
        Failure::Timeout
    } else if matches!(error, StorageError::Unreachable { .. }) {
        Failure::Refused
    } else if error.is_transient() {
        Failure::Reset
    } else {
        Failure::Final
    }
}
