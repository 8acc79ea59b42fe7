//! Admin commands: what a host asks of its controller, and what it is told of the subsystem.

use std::time::Instant;

use bothends_nvme::commands::{Admin, Event, Identify, Log, LogRequest};
use bothends_nvme::identify::{
    self, BlockNamespace, ControllerKind, Measures, MemoryNamespace,
};
use bothends_nvme::logs::{Effects, Hot, Measuring, Power};
use bothends_nvme::{Sqe, Status};

use super::super::controller::{Aborted, Controller, Later, MOST_EVENTS};
use super::super::programs::Programs;
use super::super::subsystem::Subsystem;
use super::super::{
    BLOCK_BYTES, BLOCKS, IN_CAPSULE, MEMORY, MOST_DATA, MOST_ENTRIES, PROGRAMS,
};
use super::{Controllers, DISCOVERY};
use crate::device::Vitals;

/// What an admin command has come to.
pub(super) enum Admitted {
    /// Data for the host.
    Data(Vec<u8>),
    /// A result.
    Result(u64),
    /// The host waits for an event, which there may never be.
    Waits,
}

/// What admin commands look at.
pub(super) struct Asked<'a> {
    pub(super) subsystem: &'a Subsystem,
    pub(super) controllers: &'a dyn Controllers,
}

impl Asked<'_> {
    /// Carries out a command that takes no longer than the controller may be locked.
    pub(super) fn admin(
        &self,
        controller: &mut Controller,
        entry: &Sqe,
        data: &[u8],
        later: Later,
    ) -> Result<Admitted, Status> {
        let result = |value| Ok(Admitted::Result(value));
        match Admin::parse(entry)? {
            Admin::Identify(asked) => {
                self.identify(controller, asked).map(Admitted::Data)
            }
            Admin::GetLog(asked) => self.log(controller, asked).map(Admitted::Data),
            Admin::SetFeature { feature, value } => {
                result(controller.set_feature(feature, value)?)
            }
            Admin::GetFeature { feature, .. } => {
                result(controller.feature(feature, entry.dword(11))?)
            }
            Admin::KeepAlive => result(0),
            // Bit 0 says that it was not aborted at once.
            Admin::Abort { queue, id } => {
                result(u64::from(controller.abort(queue, id) == Aborted::No))
            }
            Admin::AwaitEvent => match controller.events.await_one(later)? {
                Some(event) => result(event),
                None => Ok(Admitted::Waits),
            },
            Admin::Program(_) | Admin::Activation { .. } | Admin::RangeSets(_)
                if controller.is_discovery || entry.namespace() != PROGRAMS =>
            {
                Err(Status::INVALID_NAMESPACE)
            }
            Admin::Program(load) => result(self.subsystem.programs().load(load, data)?),
            // `Queue::activation` has it: it may take seconds.
            Admin::Activation { .. } => Err(Status::INTERNAL_ERROR),
            Admin::RangeSets(command) => {
                let memory = &self.subsystem.memory;
                let id = controller.id;
                result(self.subsystem.programs().range_sets(command, data, memory, id)?)
            }
        }
    }

    fn identify(
        &self,
        controller: &Controller,
        asked: Identify,
    ) -> Result<Vec<u8>, Status> {
        if asked.structure == Identify::CONTROLLER {
            return Ok(self.controller(controller).bytes().to_vec());
        }
        if controller.is_discovery {
            return Err(Status::INVALID_FIELD);
        }
        let set = Subsystem::set_of(asked.nsid);
        let existing = set.ok_or(Status::INVALID_NAMESPACE);
        let all = || [BLOCKS, MEMORY, PROGRAMS].into_iter();
        let asked_set = bothends_nvme::commands::Set::of_id(asked.set);
        let bytes = match asked.structure {
            Identify::NAMESPACE => match asked.nsid {
                BLOCKS => self.blocks().bytes(),
                u32::MAX => BlockNamespace { n_blocks: 0, ..self.blocks() }.bytes(),
                _ => return Err(Status::INVALID_NAMESPACE),
            },
            Identify::ACTIVE if asked.nsid >= u32::MAX - 1 => {
                return Err(Status::INVALID_NAMESPACE);
            }
            Identify::ACTIVE => identify::active(all(), asked.nsid),
            Identify::DESCRIPTORS => {
                identify::descriptors(existing?, guid(self.subsystem, asked.nsid))
            }
            Identify::INDEPENDENT => {
                existing?;
                identify::independent()
            }
            Identify::OF_SET if asked_set.is_some() && asked_set == set => match asked
                .nsid
            {
                MEMORY => MemoryNamespace { bytes: self.subsystem.memory.size() }.bytes(),
                PROGRAMS => Programs::limits().bytes(),
                // The NVM set has nothing there that a drive without protection information needs.
                _ => Box::new([0; identify::BYTES]),
            },
            Identify::OF_SET => return Err(Status::INVALID_NAMESPACE),
            Identify::CONTROLLER_OF_SET => {
                asked_set.ok_or(Status::INVALID_FIELD)?;
                Box::new([0; identify::BYTES])
            }
            Identify::ACTIVE_OF_SET => {
                let asked_set = asked_set.ok_or(Status::INVALID_FIELD)?;
                let of_set =
                    all().filter(|nsid| Subsystem::set_of(*nsid) == Some(asked_set));
                identify::active(of_set, asked.nsid)
            }
            Identify::SETS => identify::sets(&bothends_nvme::commands::Set::ALL),
            _ => return Err(Status::INVALID_FIELD),
        };
        Ok(bytes.to_vec())
    }

    fn controller(&self, own: &Controller) -> identify::Controller {
        let kind =
            if own.is_discovery { ControllerKind::Discovery } else { ControllerKind::Io };
        identify::Controller {
            id: own.id,
            kind,
            serial: self.subsystem.serial.clone(),
            model: "bothends firmware-sim".to_owned(),
            firmware: env!("CARGO_PKG_VERSION").to_owned(),
            subsystem: match kind {
                ControllerKind::Discovery => DISCOVERY.to_owned(),
                ControllerKind::Io => self.subsystem.name.clone(),
            },
            transfer: u8::try_from((MOST_DATA / 4096).trailing_zeros()).unwrap_or(0),
            n_namespaces: PROGRAMS,
            commands: MOST_ENTRIES,
            in_capsule: IN_CAPSULE,
            events: MOST_EVENTS,
            centiwatts: 0,
            measures_power: Measures::Power,
        }
    }

    fn blocks(&self) -> BlockNamespace {
        BlockNamespace {
            n_blocks: self.subsystem.media.n_blocks(),
            block_bytes: BLOCK_BYTES,
            metadata_bytes: 0,
            guid: guid(self.subsystem, BLOCKS),
        }
    }

    fn log(
        &self,
        controller: &mut Controller,
        asked: LogRequest,
    ) -> Result<Vec<u8>, Status> {
        if asked.bytes > MOST_DATA.into() {
            return Err(Status::INVALID_FIELD);
        }
        let whole = self.whole_log(controller, asked)?;
        if asked.log == Log::Smart && asked.event == Event::Clear {
            controller.events.read_smart();
        }
        let n = usize::try_from(asked.bytes).unwrap_or(0);
        let from = usize::try_from(asked.from).unwrap_or(usize::MAX);
        let there = whole.get(from..).ok_or(Status::INVALID_FIELD)?;
        let mut own = there[..there.len().min(n)].to_vec();
        own.resize(n, 0);
        Ok(own)
    }

    fn whole_log(
        &self,
        controller: &mut Controller,
        asked: LogRequest,
    ) -> Result<Vec<u8>, Status> {
        if asked.log == Log::Discovery {
            return Ok(self.controllers.discovered());
        }
        if controller.is_discovery {
            return Err(Status::INVALID_LOG);
        }
        let now = Instant::now();
        match asked.log {
            Log::Supported => Ok(supported()),
            Log::Errors => Ok(vec![0; 64]),
            Log::Smart => {
                let mut own = self.subsystem.smart(now);
                // What the log says of thresholds and events is of the temperature that it tells.
                controller.set_temperature(own.temperature);
                if controller.events.is_outside() {
                    own.hot = Hot::Yes;
                }
                Ok(own.bytes().to_vec())
            }
            Log::Firmware => Ok(firmware()),
            Log::Changed => Ok(vec![0; 4096]),
            Log::Effects => {
                let set = bothends_nvme::commands::Set::of_id(asked.set);
                Ok(Effects::of(set.ok_or(Status::INVALID_FIELD)?).bytes().to_vec())
            }
            Log::Power => {
                let vitals = self.subsystem.vitals(now).unwrap_or_default();
                Ok(power(controller, &vitals).bytes().to_vec())
            }
            Log::Programs if asked.nsid == PROGRAMS => {
                Ok(self.subsystem.programs().list())
            }
            Log::Programs | Log::ProgramTypes | Log::RangeSets | Log::Discovery => {
                Err(Status::INVALID_LOG)
            }
        }
    }
}

/// Each log that there is: bit 0 of a dword at its number.
fn supported() -> Vec<u8> {
    let mut own = vec![0; 1024];
    for log in Log::ALL {
        if !matches!(log, Log::ProgramTypes | Log::RangeSets | Log::Discovery) {
            own[4 * usize::from(log.id())] = 1;
        }
    }
    own
}

/// One slot, with this version in it.
fn firmware() -> Vec<u8> {
    let mut own = vec![0; 512];
    own[0] = 1;
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    own[8..16].fill(b' ');
    let n = version.len().min(8);
    own[8..8 + n].copy_from_slice(&version[..n]);
    own
}

/// Power since the device was started, whenever measuring was.
fn power(controller: &Controller, vitals: &Vitals) -> Power {
    Power {
        generation: controller.measures.unwrap_or(0),
        measuring: match controller.measures {
            Some(_) => Measuring::Yes,
            None => Measuring::No,
        },
        n_intervals: vitals.n_intervals,
        average: vitals.mean_microwatts,
        greatest: vitals.most_microwatts,
    }
}

/// The identifier of a namespace: of the subsystem's serial number, and its own.
fn guid(subsystem: &Subsystem, nsid: u32) -> [u8; 16] {
    let hash = twox_hash::XxHash3_64::oneshot(subsystem.serial.as_bytes());
    let mut own = [0; 16];
    own[..8].copy_from_slice(&hash.to_be_bytes());
    own[12..].copy_from_slice(&nsid.to_be_bytes());
    own
}
