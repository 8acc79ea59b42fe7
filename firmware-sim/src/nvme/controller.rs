//! A controller: what one host has of the subsystem. Properties, features, and what is asked of it by
//! admin commands.

mod events;
mod later;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bothends_nvme::Status;
use bothends_nvme::commands::{Feature, Wide};
use bothends_nvme::identify::VERSION;

use super::{MOST_ENTRIES, MOST_QUEUES};
pub(super) use events::{Events, KELVIN, MOST_EVENTS};
pub(super) use later::{Aborted, Later, Outlet, Waiting};

const CAP: u32 = 0x00;
const VS: u32 = 0x08;
const CC: u32 = 0x14;
const CSTS: u32 = 0x1c;
const CRTO: u32 = 0x68;
/// Shutdown Notification in the configuration.
const SHUTDOWN: u32 = 3 << 14;

/// Maximum Queue Entries Supported (0-based), Contiguous Queues Required, a timeout of 15 s, and two ways of
/// command sets: NVM alone (bit 37), and one or more of them (bit 43), without which Linux sees only blocks.
const CAPABILITIES: u64 =
    (MOST_ENTRIES as u64 - 1) | 1 << 16 | 30 << 24 | 1 << 37 | 1 << 43;

/// What a new configuration does to a controller. Its queues for I/O end with all but the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing.
    None,
    /// It was disabled: what belongs to it ends.
    Reset,
    /// What was written becomes durable; then comes [`Controller::finish_shutdown`].
    Shutdown,
    /// One write does both.
    ResetAndShutdown,
}

impl Change {
    fn of(was: u32, value: u32) -> Self {
        let is_reset = was & 1 == 1 && value & 1 == 0;
        let is_shutdown = was & SHUTDOWN == 0 && value & SHUTDOWN != 0;
        match (is_reset, is_shutdown) {
            (false, false) => Self::None,
            (true, false) => Self::Reset,
            (false, true) => Self::Shutdown,
            (true, true) => Self::ResetAndShutdown,
        }
    }

    pub(super) fn is_reset(self) -> bool {
        matches!(self, Self::Reset | Self::ResetAndShutdown)
    }

    pub(super) fn is_shutdown(self) -> bool {
        matches!(self, Self::Shutdown | Self::ResetAndShutdown)
    }
}

/// How far a shutdown has come: the value of Shutdown Status (SHST).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shutdown {
    None = 0b00,
    /// It stays so if what was written could not be made durable.
    Processing = 0b01,
    Complete = 0b10,
}

/// What a command of a host finds its controller in.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) id: u16,
    pub(super) host_id: [u8; 16],
    pub(super) is_discovery: bool,
    configuration: u32,
    shutdown: Shutdown,
    keep_alive: Option<Duration>,
    heard: Instant,
    /// What it has to tell, and the commands that await it.
    pub(super) events: Events,
    /// Executions that have not ended, by queue and identifier.
    executions: BTreeMap<(u16, u16), Arc<Waiting>>,
    /// Where completions of the admin queue go that its own thread does not send.
    pub(super) outlet: Option<Arc<dyn Outlet>>,
    /// Numbers of the queues for I/O that there are.
    queues: BTreeSet<u16>,
    /// How often all of them have ended: a queue of an earlier generation no longer exists.
    generation: u64,
    /// Generation of the measurement of power; it is on if there is one.
    pub(super) measures: Option<u8>,
}

impl Controller {
    pub(super) fn new(
        id: u16,
        host_id: [u8; 16],
        keep_alive_ms: u32,
        now: Instant,
    ) -> Self {
        Self {
            id,
            host_id,
            is_discovery: false,
            configuration: 0,
            shutdown: Shutdown::None,
            keep_alive: keep_alive(keep_alive_ms),
            heard: now,
            events: Events::new(KELVIN),
            executions: BTreeMap::new(),
            outlet: None,
            queues: BTreeSet::new(),
            generation: 0,
            measures: None,
        }
    }

    /// The device is as warm as this: tells whoever wants to be told.
    pub(super) fn set_temperature(&mut self, kelvin: u16) {
        let due = self.events.set_temperature(kelvin);
        self.tell(due);
    }

    fn tell(&self, due: Option<(Later, u64)>) {
        if let Some((later, event)) = due {
            self.post(later, Ok(event));
        }
    }

    fn post(&self, later: Later, result: Result<u64, Status>) {
        if let Some(outlet) = &self.outlet {
            outlet.post(&later.completion(result));
        }
    }

    /// A queue for I/O comes: the generation that it belongs to.
    ///
    /// # Errors
    /// Command Sequence Error if the number is in use, or the controller is not enabled or shut down; Connect Controller
    /// Busy if it has as many as it may have.
    pub(super) fn join(&mut self, queue: u16) -> Result<u64, Status> {
        let is_shut = self.shutdown != Shutdown::None;
        let is_open = self.is_enabled() && !is_shut && !self.is_discovery;
        if !is_open || self.queues.contains(&queue) {
            return Err(Status::COMMAND_SEQUENCE);
        }
        if queue > MOST_QUEUES || self.queues.len() >= usize::from(MOST_QUEUES) {
            return Err(Status::CONNECT_BUSY);
        }
        self.queues.insert(queue);
        Ok(self.generation)
    }

    /// Whether queues of this generation are those that there are.
    pub(super) fn has(&self, generation: u64) -> bool {
        self.generation == generation
    }

    /// A queue for I/O has gone, and with it what it has in flight.
    pub(super) fn leave(&mut self, queue: u16, generation: u64) {
        // Of an earlier generation everything has ended, and the number may be in use again.
        if !self.has(generation) {
            return;
        }
        self.queues.remove(&queue);
        self.executions.retain(|(of, _), execution| {
            if *of == queue {
                execution.abort(Status::ABORTED_BY_DELETION);
            }
            *of != queue
        });
    }

    /// An execution of a queue is there until [`Controller::forget`]. That of a queue which has ended is aborted.
    pub(super) fn add(
        &mut self,
        key: (u16, u16),
        generation: u64,
        execution: &Arc<Waiting>,
    ) {
        if self.has(generation) {
            self.executions.insert(key, Arc::clone(execution));
        } else {
            execution.abort(Status::ABORTED_BY_DELETION);
        }
    }

    /// An execution has ended. Another command may have the identifier of one that was aborted.
    pub(super) fn forget(&mut self, key: (u16, u16), execution: &Arc<Waiting>) {
        if self.executions.get(&key).is_some_and(|own| Arc::ptr_eq(own, execution)) {
            self.executions.remove(&key);
        }
    }

    /// Aborts a command that waits: an execution that has not begun, or a request for an event. An execution that has
    /// begun is told to end, and does so when its program looks.
    pub(super) fn abort(&mut self, queue: u16, id: u16) -> Aborted {
        if queue > 0 {
            let Some(execution) = self.executions.get(&(queue, id)) else {
                return Aborted::No;
            };
            let aborted = execution.abort(Status::ABORT_REQUESTED);
            if aborted == Aborted::Yes {
                self.executions.remove(&(queue, id));
            }
            return aborted;
        }
        match self.events.withdraw(id) {
            Some(later) => {
                self.post(later, Err(Status::ABORT_REQUESTED));
                Aborted::Yes
            }
            None => Aborted::No,
        }
    }

    /// Ends the executions of all queues.
    pub(super) fn abort_all(&mut self) {
        for execution in std::mem::take(&mut self.executions).into_values() {
            execution.abort(Status::ABORTED_BY_DELETION);
        }
    }

    /// What a reset leaves: the association with the host, and nothing that it has said or asked.
    fn reset(&mut self, kelvin: u16) {
        for later in self.events.withdraw_all() {
            self.post(later, Err(Status::ABORTED_BY_DELETION));
        }
        self.events = Events::new(kelvin);
        self.measures = None;
    }

    /// Whether it takes commands.
    pub(super) fn is_enabled(&self) -> bool {
        self.configuration & 1 == 1
    }

    /// The host has said something.
    pub(super) fn hear(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Whether the host has been silent for longer than it promised.
    pub(super) fn is_expired(&self, now: Instant) -> bool {
        self.keep_alive.is_some_and(|most| now.duration_since(self.heard) > most)
    }

    pub(super) fn property(&self, offset: u32, wide: Wide) -> Result<u64, Status> {
        match (offset, wide) {
            (CAP, Wide::Yes) => Ok(CAPABILITIES),
            (VS, Wide::No) => Ok(VERSION.into()),
            (CC, Wide::No) => Ok(self.configuration.into()),
            (CSTS, Wide::No) => Ok(self.status()),
            (CRTO, Wide::No) => Ok(30 | 30 << 16),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Ready follows Enable at once.
    fn status(&self) -> u64 {
        u64::from(self.configuration & 1) | (self.shutdown as u64) << 2
    }

    /// What was written is durable.
    pub(super) fn finish_shutdown(&mut self) {
        if self.shutdown == Shutdown::Processing {
            self.shutdown = Shutdown::Complete;
        }
    }

    /// Sets a property, and says what becomes of the controller's queues.
    pub(super) fn set_property(
        &mut self,
        offset: u32,
        value: u64,
        kelvin: u16,
    ) -> Result<Change, Status> {
        if offset != CC {
            return Err(Status::INVALID_FIELD);
        }
        let value = u32::try_from(value).map_err(|_| Status::INVALID_FIELD)?;
        let was = std::mem::replace(&mut self.configuration, value);
        let change = Change::of(was, value);
        if value & SHUTDOWN == 0 {
            self.shutdown = Shutdown::None;
        } else if change.is_shutdown() {
            self.shutdown = Shutdown::Processing;
        }
        if change != Change::None {
            self.generation += 1;
            self.queues.clear();
            self.abort_all();
        }
        if change.is_reset() {
            self.reset(kelvin);
        }
        Ok(change)
    }

    /// The value of a feature; `dword` is the command's dword 11.
    pub(super) fn feature(&self, feature: Feature, dword: u32) -> Result<u64, Status> {
        match feature {
            Feature::Queues => Ok(queues()),
            Feature::KeepAlive => {
                let ms = self.keep_alive.map_or(0, |most| most.as_millis());
                Ok(u64::try_from(ms).unwrap_or(u64::MAX))
            }
            Feature::PowerMeasurement => Ok(u64::from(self.measures.is_some())),
            Feature::Temperature => self.events.threshold(dword),
            Feature::Events => Ok(self.events.configuration().into()),
            Feature::Arbitration | Feature::Power | Feature::ErrorRecovery => Ok(0),
            Feature::Other(_) => Err(Status::INVALID_FIELD),
        }
    }

    pub(super) fn set_feature(
        &mut self,
        feature: Feature,
        value: u32,
    ) -> Result<u64, Status> {
        match feature {
            Feature::Queues => Ok(queues()),
            Feature::KeepAlive => {
                self.keep_alive = keep_alive(value);
                Ok(0)
            }
            Feature::PowerMeasurement => {
                let was = self.measures.unwrap_or(0);
                self.measures = (value & 1 == 1).then_some(was.wrapping_add(1));
                Ok(0)
            }
            Feature::Temperature => {
                let due = self.events.set_threshold(value)?;
                self.tell(due);
                Ok(0)
            }
            Feature::Events => {
                let due = self.events.configure(value);
                self.tell(due);
                Ok(0)
            }
            Feature::Power if value == 0 => Ok(0),
            Feature::Arbitration | Feature::Power | Feature::ErrorRecovery => {
                Err(Status::FEATURE_NOT_CHANGEABLE)
            }
            Feature::Other(_) => Err(Status::INVALID_FIELD),
        }
    }
}

/// Numbers of queues, 0-based.
fn queues() -> u64 {
    let n = u64::from(MOST_QUEUES - 1);
    n << 16 | n
}

/// A keep-alive timeout, rounded up to whole seconds (KAS), and a second of grace.
fn keep_alive(ms: u32) -> Option<Duration> {
    (ms > 0).then(|| Duration::from_secs(u64::from(ms.div_ceil(1000)) + 1))
}

/// A controller, for whoever looks at it or changes it.
pub(super) fn lock(controller: &Mutex<Controller>) -> MutexGuard<'_, Controller> {
    controller.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is the report")]

    use super::*;

    fn enabled() -> Controller {
        let mut own = Controller::new(1, [0; 16], 0, Instant::now());
        own.set_property(CC, 1, KELVIN).unwrap();
        own
    }

    fn set(own: &mut Controller, value: u64) -> Change {
        own.set_property(CC, value, KELVIN).unwrap()
    }

    #[test]
    fn one_write_may_disable_and_shut_down() {
        let mut own = enabled();
        assert_eq!(set(&mut own, 1 << 14), Change::ResetAndShutdown);
        assert_eq!(own.status(), 0b0100, "what was written is not durable yet");
        own.finish_shutdown();
        assert_eq!(own.status(), 0b1000);
        assert_eq!(set(&mut own, 1 << 14), Change::None);
        assert_eq!(set(&mut own, 1), Change::None);
        assert_eq!(own.status(), 1);
    }

    #[test]
    fn a_queue_of_before_a_reset_leaves_that_of_after_it_alone() {
        let mut own = enabled();
        let before = own.join(7).unwrap();
        assert_eq!(own.join(7), Err(Status::COMMAND_SEQUENCE), "the number is in use");
        set(&mut own, 0);
        assert_eq!(own.join(7), Err(Status::COMMAND_SEQUENCE), "it is disabled");
        set(&mut own, 1);
        assert!(!own.has(before));
        let after = own.join(7).unwrap();
        own.leave(7, before);
        assert_eq!(own.join(7), Err(Status::COMMAND_SEQUENCE), "it is still there");
        own.leave(7, after);
        assert_eq!(own.join(7), Ok(after));
    }
}
