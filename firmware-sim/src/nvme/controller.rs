//! A controller: what one host has of the subsystem. Properties, features, and what is asked of it by
//! admin commands.

mod events;
mod later;

use std::collections::BTreeMap;
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

/// What a new configuration does to the queues of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing.
    None,
    /// Its queues for I/O end, and what belongs to it: it was disabled.
    Reset,
    /// Its queues for I/O end, and what was written becomes durable.
    Shutdown,
}

/// What a command of a host finds its controller in.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) id: u16,
    pub(super) host_id: [u8; 16],
    pub(super) is_discovery: bool,
    configuration: u32,
    keep_alive: Option<Duration>,
    heard: Instant,
    /// What it has to tell, and the commands that await it.
    pub(super) events: Events,
    /// Executions that have not begun, by queue and identifier.
    pub(super) waiting: BTreeMap<(u16, u16), Arc<Waiting>>,
    /// Where completions of the admin queue go that its own thread does not send.
    pub(super) outlet: Option<Arc<dyn Outlet>>,
    /// Queues for I/O that there are.
    pub(super) n_queues: u16,
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
            keep_alive: keep_alive(keep_alive_ms),
            heard: now,
            events: Events::new(KELVIN),
            waiting: BTreeMap::new(),
            outlet: None,
            n_queues: 0,
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

    /// Aborts a command that waits: an execution that has not begun, or a request for an event.
    pub(super) fn abort(&mut self, queue: u16, id: u16) -> Aborted {
        if queue > 0 {
            let waiting = self.waiting.remove(&(queue, id));
            return waiting.map_or(Aborted::No, |own| own.abort(Status::ABORT_REQUESTED));
        }
        match self.events.withdraw(id) {
            Some(later) => {
                self.post(later, Err(Status::ABORT_REQUESTED));
                Aborted::Yes
            }
            None => Aborted::No,
        }
    }

    /// Ends what waits, of all queues.
    pub(super) fn abort_all(&mut self) {
        for waiting in std::mem::take(&mut self.waiting).into_values() {
            waiting.abort(Status::ABORTED_BY_DELETION);
        }
    }

    /// What a reset leaves: the association with the host, and nothing that it has said or asked.
    fn reset(&mut self, kelvin: u16) {
        self.abort_all();
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

    /// Ready follows Enable at once, and the end of a shutdown its notification.
    fn status(&self) -> u64 {
        let is_shut = self.configuration & SHUTDOWN != 0;
        u64::from(self.configuration & 1) | if is_shut { 0b10 << 2 } else { 0 }
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
        if was & 1 == 1 && value & 1 == 0 {
            self.reset(kelvin);
            return Ok(Change::Reset);
        }
        if was & SHUTDOWN == 0 && value & SHUTDOWN != 0 {
            self.abort_all();
            return Ok(Change::Shutdown);
        }
        Ok(Change::None)
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
