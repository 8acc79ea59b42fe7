//! Admin commands: identification, logs, features, and the programs and memory ranges of the CP command
//! set.

use crate::entry::{Data, Sqe};
use crate::field::bits;
use crate::status::Status;

use super::Set;

const GET_LOG: u8 = 0x02;
const IDENTIFY: u8 = 0x06;
const ABORT: u8 = 0x08;
const SET_FEATURES: u8 = 0x09;
const GET_FEATURES: u8 = 0x0a;
const EVENT: u8 = 0x0c;
const KEEP_ALIVE: u8 = 0x18;
// These three are in the Base specification's opcode table. Forks of before 2024 have 20h to 26h.
const LOAD: u8 = 0x85;
const ACTIVATION: u8 = 0x88;
const RANGE_SETS: u8 = 0x89;

/// An admin command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admin {
    /// Reads a log.
    GetLog(LogRequest),
    /// Reads a data structure of 4,096 bytes.
    Identify(Identify),
    /// Asks for a command to be aborted, as far as possible.
    Abort {
        /// Its submission queue.
        queue: u16,
        /// Its identifier.
        id: u16,
    },
    /// Writes a feature.
    SetFeature {
        /// Which.
        feature: Feature,
        /// Dword 11: its value, or the first part of it.
        value: u32,
    },
    /// Reads a feature: the value is the completion's result.
    GetFeature {
        /// Which.
        feature: Feature,
        /// What of it: 0 for the current value, 1 the default, 2 the saved one, 3 what can be done with it.
        select: u8,
    },
    /// Stays pending until the controller has an event to tell.
    AwaitEvent,
    /// Says that the host is there.
    KeepAlive,
    /// Loads a part of a program, or unloads one.
    Program(ProgramLoad),
    /// Activates a program, or deactivates it.
    Activation {
        /// Its index.
        program: u16,
        /// What is to be done.
        active: Activate,
    },
    /// Makes a set of memory ranges, or deletes one.
    RangeSets(RangeSets),
}

/// What Program Activation Management does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activate {
    /// Deactivates: 0h.
    Off,
    /// Activates: 1h.
    On,
}

/// Identify: which structure, of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identify {
    /// The structure, CNS.
    pub structure: u8,
    /// The controller, where that matters.
    pub controller: u16,
    /// The command set's identifier, where that matters.
    pub set: u8,
    /// The namespace, where that matters.
    pub nsid: u32,
}

impl Identify {
    /// Identify Namespace of the NVM command set.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// The identifiers of the active namespaces above one.
    pub const ACTIVE: u8 = 0x02;
    /// The identifiers of a namespace, its command set among them.
    pub const DESCRIPTORS: u8 = 0x03;
    /// Identify Namespace of a command set.
    pub const OF_SET: u8 = 0x05;
    /// Identify Controller of a command set.
    pub const CONTROLLER_OF_SET: u8 = 0x06;
    /// The active namespaces of a command set.
    pub const ACTIVE_OF_SET: u8 = 0x07;
    /// Identify Namespace independent of the command set.
    pub const INDEPENDENT: u8 = 0x08;
    /// The combinations of command sets.
    pub const SETS: u8 = 0x1c;

    /// The structure `structure` of namespace `nsid`.
    #[must_use]
    pub fn of(structure: u8, nsid: u32) -> Self {
        Self { structure, controller: 0, set: 0, nsid }
    }

    /// The same for a command set.
    #[must_use]
    pub fn in_set(self, set: Set) -> Self {
        Self { set: set.id(), ..self }
    }
}

/// A log that we know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    /// 00h: which logs there are.
    Supported,
    /// 01h: errors of commands.
    Errors,
    /// 02h: SMART and health.
    Smart,
    /// 03h: firmware slots.
    Firmware,
    /// 04h: namespaces that have changed.
    Changed,
    /// 05h: commands and their effects.
    Effects,
    /// 25h: power.
    Power,
    /// 70h: where subsystems are.
    Discovery,
    /// 82h: programs.
    Programs,
    /// 83h: what types of programs may be loaded.
    ProgramTypes,
    /// 84h: sets of memory ranges.
    RangeSets,
}

impl Log {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Supported,
        Self::Errors,
        Self::Smart,
        Self::Firmware,
        Self::Changed,
        Self::Effects,
        Self::Power,
        Self::Discovery,
        Self::Programs,
        Self::ProgramTypes,
        Self::RangeSets,
    ];

    /// Its identifier.
    #[must_use]
    pub fn id(self) -> u8 {
        match self {
            Self::Supported => 0x00,
            Self::Errors => 0x01,
            Self::Smart => 0x02,
            Self::Firmware => 0x03,
            Self::Changed => 0x04,
            Self::Effects => 0x05,
            Self::Power => 0x25,
            Self::Discovery => 0x70,
            Self::Programs => 0x82,
            Self::ProgramTypes => 0x83,
            Self::RangeSets => 0x84,
        }
    }
}

/// Get Log Page: a part of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRequest {
    /// Which log.
    pub log: Log,
    /// Of which namespace; FFFFFFFFh for the controller.
    pub nsid: u32,
    /// The command set's identifier, where that matters.
    pub set: u8,
    /// The first byte, a multiple of 4.
    pub from: u64,
    /// How many bytes, a multiple of 4, at least 4.
    pub bytes: u64,
    /// What becomes of an event that the log says more of.
    pub event: Event,
}

/// Retain Asynchronous Event: bit 15 of dword 10.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It may be told again.
    Clear,
    /// It may not yet: another part of the log is read later.
    Retain,
}

/// A feature that we know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// 01h: arbitration of queues.
    Arbitration,
    /// 02h: power state.
    Power,
    /// 04h: temperature threshold.
    Temperature,
    /// 05h: error recovery.
    ErrorRecovery,
    /// 07h: number of queues.
    Queues,
    /// 0Bh: which asynchronous events are told.
    Events,
    /// 0Fh: keep-alive timeout.
    KeepAlive,
    /// 25h: measurement of power.
    PowerMeasurement,
    /// Another, that no controller of ours has.
    Other(u8),
}

impl Feature {
    const KNOWN: [Self; 8] = [
        Self::Arbitration,
        Self::Power,
        Self::Temperature,
        Self::ErrorRecovery,
        Self::Queues,
        Self::Events,
        Self::KeepAlive,
        Self::PowerMeasurement,
    ];

    /// Its identifier.
    #[must_use]
    pub fn id(self) -> u8 {
        match self {
            Self::Arbitration => 0x01,
            Self::Power => 0x02,
            Self::Temperature => 0x04,
            Self::ErrorRecovery => 0x05,
            Self::Queues => 0x07,
            Self::Events => 0x0b,
            Self::KeepAlive => 0x0f,
            Self::PowerMeasurement => 0x25,
            Self::Other(id) => id,
        }
    }

    fn of_id(id: u8) -> Self {
        Self::KNOWN.into_iter().find(|known| known.id() == id).unwrap_or(Self::Other(id))
    }
}

/// Load Program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramLoad {
    /// Loads the `bytes` from `from` on, which are the command's data.
    Load {
        /// The program's index.
        program: u16,
        /// Its type.
        kind: u8,
        /// Bytes of the whole program.
        size: u32,
        /// An identifier of the host's.
        id: u64,
        /// The type of that identifier: 0 for none.
        id_kind: u8,
        /// Bytes in this command.
        bytes: u32,
        /// Where they are in the program.
        from: u32,
    },
    /// Unloads it.
    Unload {
        /// The program's index.
        program: u16,
    },
}

/// Memory Range Set Management.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeSets {
    /// Makes a set of `n_ranges`, which are the command's data. Its identifier is the completion's result.
    Create {
        /// How many.
        n_ranges: u8,
        /// Must be 0.
        set: u16,
    },
    /// Deletes the set.
    Delete {
        /// The set.
        set: u16,
    },
}

impl Admin {
    /// The command of an entry.
    ///
    /// # Errors
    /// Invalid Opcode, Invalid Log Page, or Invalid Field for a selector that is reserved.
    pub fn parse(entry: &Sqe) -> Result<Self, Status> {
        let d10 = entry.dword(10);
        match entry.opcode() {
            GET_LOG => LogRequest::parse(entry).map(Self::GetLog),
            IDENTIFY => Ok(Self::Identify(Identify {
                structure: byte(d10, 0),
                controller: half(d10, 16),
                set: byte(entry.dword(11), 24),
                nsid: entry.namespace(),
            })),
            ABORT => Ok(Self::Abort { queue: half(d10, 0), id: half(d10, 16) }),
            SET_FEATURES => Ok(Self::SetFeature {
                feature: Feature::of_id(byte(d10, 0)),
                value: entry.dword(11),
            }),
            GET_FEATURES => Ok(Self::GetFeature {
                feature: Feature::of_id(byte(d10, 0)),
                select: byte(d10, 8) & 7,
            }),
            EVENT => Ok(Self::AwaitEvent),
            KEEP_ALIVE => Ok(Self::KeepAlive),
            LOAD => Ok(Self::Program(ProgramLoad::parse(entry))),
            ACTIVATION => Self::activation(d10),
            RANGE_SETS => RangeSets::parse(entry).map(Self::RangeSets),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    fn activation(d10: u32) -> Result<Self, Status> {
        let active = match bits(d10, 16, 20) {
            0 => Activate::Off,
            1 => Activate::On,
            _ => return Err(Status::INVALID_FIELD),
        };
        Ok(Self::Activation { program: half(d10, 0), active })
    }

    /// The entry of the command, with its data at `data`. Commands about programs and ranges are for the namespace
    /// `programs`.
    #[must_use]
    pub fn entry(&self, programs: u32, data: Data) -> Sqe {
        let of = |opcode, nsid, d10| Sqe::new(opcode, nsid).with(10, d10).with_data(data);
        let pair = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
        match *self {
            Self::GetLog(request) => request.entry(data),
            Self::Identify(Identify { structure, controller, set, nsid }) => {
                of(IDENTIFY, nsid, u32::from(structure) | u32::from(controller) << 16)
                    .with(11, u32::from(set) << 24)
            }
            Self::Abort { queue, id } => of(ABORT, 0, pair(queue, id)),
            Self::SetFeature { feature, value } => {
                of(SET_FEATURES, 0, feature.id().into()).with(11, value)
            }
            Self::GetFeature { feature, select } => {
                of(GET_FEATURES, 0, u32::from(feature.id()) | u32::from(select) << 8)
            }
            Self::AwaitEvent => of(EVENT, 0, 0),
            Self::KeepAlive => of(KEEP_ALIVE, 0, 0),
            Self::Program(load) => load.entry(programs, data),
            Self::Activation { program, active } => {
                of(ACTIVATION, programs, pair(program, u16::from(active == Activate::On)))
            }
            Self::RangeSets(RangeSets::Create { n_ranges, set }) => {
                of(RANGE_SETS, programs, pair(0, set)).with(11, n_ranges.into())
            }
            Self::RangeSets(RangeSets::Delete { set }) => {
                of(RANGE_SETS, programs, pair(1, set))
            }
        }
    }

    /// The opcodes that there are, for the log of commands and effects.
    #[must_use]
    pub fn opcodes() -> [u8; 10] {
        [
            GET_LOG,
            IDENTIFY,
            ABORT,
            SET_FEATURES,
            GET_FEATURES,
            EVENT,
            KEEP_ALIVE,
            LOAD,
            ACTIVATION,
            RANGE_SETS,
        ]
    }
}

impl LogRequest {
    /// The whole of a log that has `bytes` bytes.
    #[must_use]
    pub fn of(log: Log, bytes: u64) -> Self {
        Self { log, nsid: u32::MAX, set: 0, from: 0, bytes, event: Event::Clear }
    }

    fn parse(entry: &Sqe) -> Result<Self, Status> {
        let (d10, d11) = (entry.dword(10), entry.dword(11));
        let id = byte(d10, 0);
        let log =
            Log::ALL.into_iter().find(|log| log.id() == id).ok_or(Status::INVALID_LOG)?;
        let n_dwords = u64::from(bits(d10, 16, 32)) | u64::from(bits(d11, 0, 16)) << 16;
        let from = entry.two_dwords(12);
        if !from.is_multiple_of(4) {
            return Err(Status::INVALID_FIELD);
        }
        Ok(Self {
            log,
            nsid: entry.namespace(),
            set: byte(entry.dword(14), 24),
            from,
            bytes: 4 * (n_dwords + 1),
            event: if bits(d10, 15, 16) == 1 { Event::Retain } else { Event::Clear },
        })
    }

    fn entry(self, data: Data) -> Sqe {
        let n_dwords =
            u32::try_from((self.bytes / 4).saturating_sub(1)).unwrap_or(u32::MAX);
        let retain = u32::from(self.event == Event::Retain);
        Sqe::new(GET_LOG, self.nsid)
            .with(
                10,
                u32::from(self.log.id()) | retain << 15 | bits(n_dwords, 0, 16) << 16,
            )
            .with(11, bits(n_dwords, 16, 32))
            .with_two(12, self.from)
            .with(14, u32::from(self.set) << 24)
            .with_data(data)
    }
}

impl ProgramLoad {
    fn parse(entry: &Sqe) -> Self {
        let d10 = entry.dword(10);
        let program = half(d10, 0);
        if bits(d10, 24, 25) == 1 {
            return Self::Unload { program };
        }
        Self::Load {
            program,
            kind: byte(d10, 16),
            size: entry.dword(11),
            id: entry.two_dwords(12),
            id_kind: byte(d10, 25) & 7,
            bytes: entry.dword(14),
            from: entry.dword(15),
        }
    }

    fn entry(self, programs: u32, data: Data) -> Sqe {
        match self {
            Self::Unload { program } => {
                Sqe::new(LOAD, programs).with(10, u32::from(program) | 1 << 24)
            }
            Self::Load { program, kind, size, id, id_kind, bytes, from } => {
                let d10 = u32::from(program)
                    | u32::from(kind) << 16
                    | u32::from(id_kind & 7) << 25;
                Sqe::new(LOAD, programs)
                    .with(10, d10)
                    .with(11, size)
                    .with_two(12, id)
                    .with(14, bytes)
                    .with(15, from)
            }
        }
        .with_data(data)
    }
}

impl RangeSets {
    fn parse(entry: &Sqe) -> Result<Self, Status> {
        let d10 = entry.dword(10);
        let set = half(d10, 16);
        match bits(d10, 0, 4) {
            0 => Ok(Self::Create { n_ranges: byte(entry.dword(11), 0), set }),
            1 => Ok(Self::Delete { set }),
            _ => Err(Status::INVALID_FIELD),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "8 bits")]
fn byte(word: u32, from: u32) -> u8 {
    bits(word, from, (from + 8).min(32)) as u8
}

#[expect(clippy::cast_possible_truncation, reason = "16 bits")]
fn half(word: u32, from: u32) -> u16 {
    bits(word, from, from + 16) as u16
}
