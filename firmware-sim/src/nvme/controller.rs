//! A controller: what one host has of the subsystem. Properties, features, and what is asked of it by
//! admin commands.

use std::time::{Duration, Instant};

use bothends_nvme::Status;
use bothends_nvme::commands::{Feature, Wide};
use bothends_nvme::identify::VERSION;

use super::{MOST_ENTRIES, MOST_QUEUES};

const CAP: u32 = 0x00;
const VS: u32 = 0x08;
const CC: u32 = 0x14;
const CSTS: u32 = 0x1c;
const CRTO: u32 = 0x68;

/// Maximum Queue Entries Supported (0-based), Contiguous Queues Required, a timeout of 15 s, and two ways of
/// command sets: NVM alone (bit 37), and one or more of them (bit 43), without which Linux sees only blocks.
const CAPABILITIES: u64 =
    (MOST_ENTRIES as u64 - 1) | 1 << 16 | 30 << 24 | 1 << 37 | 1 << 43;

/// Asynchronous events that may be awaited.
pub(super) const MOST_EVENTS: u8 = 4;

/// What a command of a host finds its controller in.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) id: u16,
    pub(super) host_id: [u8; 16],
    pub(super) is_discovery: bool,
    configuration: u32,
    keep_alive: Option<Duration>,
    heard: Instant,
    /// Identifiers of commands that wait for an event.
    pub(super) events: Vec<u16>,
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
            events: Vec::new(),
            n_queues: 0,
            measures: None,
        }
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
        let is_shut = self.configuration >> 14 & 3 != 0;
        u64::from(self.configuration & 1) | if is_shut { 0b10 << 2 } else { 0 }
    }

    pub(super) fn set_property(&mut self, offset: u32, value: u64) -> Result<(), Status> {
        match offset {
            CC => {
                self.configuration =
                    u32::try_from(value).map_err(|_| Status::INVALID_FIELD)?;
                Ok(())
            }
            _ => Err(Status::INVALID_FIELD),
        }
    }

    pub(super) fn feature(&self, feature: Feature) -> Result<u64, Status> {
        match feature {
            Feature::Queues => Ok(queues()),
            Feature::KeepAlive => {
                let ms = self.keep_alive.map_or(0, |most| most.as_millis());
                Ok(u64::try_from(ms).unwrap_or(u64::MAX))
            }
            Feature::PowerMeasurement => Ok(u64::from(self.measures.is_some())),
            Feature::Arbitration
            | Feature::Power
            | Feature::Temperature
            | Feature::ErrorRecovery
            | Feature::Events => Ok(0),
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
            // Which events are told: there are none that could be turned on or off.
            Feature::Events | Feature::Power if value == 0 => Ok(0),
            Feature::Events => Ok(0),
            Feature::Arbitration
            | Feature::Power
            | Feature::Temperature
            | Feature::ErrorRecovery => Err(Status::FEATURE_NOT_CHANGEABLE),
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
