//! An index of programs: nothing, one of the device's own, or one that a host has loaded.

use std::collections::BTreeMap;
use std::sync::Arc;

use bothends_nvme::Status;
use bothends_nvme::commands::Activate;
use bothends_nvme::logs::{self, Origin};

use super::{Preparation, Program, Runtime};

#[derive(Debug)]
pub(super) enum Slot {
    Empty,
    /// The device's own.
    Device(Arc<dyn Program>, Activate),
    /// What has been loaded of one that a host loads.
    Loading {
        kind: u8,
        id: u64,
        id_kind: u8,
        size: u32,
        bytes: Arc<Vec<u8>>,
    },
    Active {
        kind: u8,
        id: u64,
        id_kind: u8,
        bytes: Arc<Vec<u8>>,
        program: Arc<dyn Program>,
    },
}

impl Slot {
    pub(super) fn listed(&self) -> logs::Program {
        let of = |origin, active, kind, id, id_kind| logs::Program {
            origin,
            active,
            kind,
            id,
            id_kind,
        };
        match self {
            Self::Empty => logs::Program::EMPTY,
            Self::Device(own, active) => {
                of(Origin::Device, *active, own.kind(), own.id(), 1)
            }
            Self::Loading { kind, id, id_kind, .. } => {
                of(Origin::Loaded, Activate::Off, *kind, *id, *id_kind)
            }
            Self::Active { kind, id, id_kind, .. } => {
                of(Origin::Loaded, Activate::On, *kind, *id, *id_kind)
            }
        }
    }

    pub(super) fn loaded_bytes(&self) -> u64 {
        match self {
            Self::Empty | Self::Device(..) => 0,
            Self::Loading { size, .. } => u64::from(*size),
            Self::Active { bytes, .. } => bytes.len() as u64,
        }
    }

    pub(super) fn is_active(&self) -> bool {
        matches!(self, Self::Device(_, Activate::On) | Self::Active { .. })
    }

    /// Appends the part from `at` on; parts come one after the other.
    pub(super) fn go_on(&mut self, at: u32, part: &[u8]) -> Result<u64, Status> {
        let Self::Loading { size, bytes, .. } = self else {
            return Err(Status::PROGRAM_INDEX);
        };
        if at as usize != bytes.len() {
            return Err(Status::PROGRAM_DATA);
        }
        if bytes.len() + part.len() > *size as usize {
            return Err(Status::PROGRAM_TOO_BIG);
        }
        Arc::make_mut(bytes).extend_from_slice(part);
        Ok(0)
    }

    pub(super) fn unload(&mut self) -> Result<u64, Status> {
        match self {
            Self::Empty => Err(Status::NO_PROGRAM),
            Self::Device(..) => Err(Status::NOT_DOWNLOADABLE),
            Self::Active { .. } => Err(Status::PROGRAM_IN_USE),
            Self::Loading { .. } => {
                *self = Self::Empty;
                Ok(0)
            }
        }
    }

    pub(super) fn activate(
        &mut self,
        index: u16,
        runtimes: &BTreeMap<u8, Arc<dyn Runtime>>,
    ) -> Result<Option<Preparation>, Status> {
        match self {
            Self::Device(_, active) => *active = Activate::On,
            Self::Loading { kind, id, size, bytes, .. } => {
                if bytes.len() != *size as usize {
                    return Err(Status::PROGRAM_DATA);
                }
                let runtime = runtimes.get(kind).ok_or(Status::PROGRAM_TYPE)?;
                let (bytes, runtime) = (Arc::clone(bytes), Arc::clone(runtime));
                return Ok(Some(Preparation { index, id: *id, bytes, runtime }));
            }
            Self::Empty | Self::Active { .. } => {}
        }
        Ok(None)
    }

    pub(super) fn deactivate(&mut self) -> Result<(), Status> {
        match self {
            Self::Device(program, active) => {
                if Arc::strong_count(program) > 1 {
                    return Err(Status::PROGRAM_IN_USE);
                }
                *active = Activate::Off;
            }
            Self::Active { kind, id, id_kind, bytes, program } => {
                if Arc::strong_count(program) > 1 {
                    return Err(Status::PROGRAM_IN_USE);
                }
                let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                *self = Self::Loading {
                    kind: *kind,
                    id: *id,
                    id_kind: *id_kind,
                    size,
                    bytes: std::mem::take(bytes),
                };
            }
            Self::Empty | Self::Loading { .. } => {}
        }
        Ok(())
    }
}
