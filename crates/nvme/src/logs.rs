//! What Get Log Page reads.

use crate::commands::Set;
use crate::identify::{fixed, text};
use crate::layout::{discovery, discovery_entry, power, program, smart};

/// Bytes of the log of commands and effects.
pub const EFFECTS_BYTES: usize = 4096;

/// The command is supported.
const SUPPORTED: u32 = 1;
/// It changes the content of logical blocks.
const CHANGES_BLOCKS: u32 = 1 << 1;
/// Where the I/O commands begin.
const IO_AT: usize = 1024;

/// The log of commands and their effects, for one command set. Linux lets a user without privileges send
/// only what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effects(Box<[u8; EFFECTS_BYTES]>);

impl Effects {
    /// That of `set`: its I/O commands and all admin commands.
    #[must_use]
    pub fn of(set: Set) -> Self {
        use crate::commands::{Admin, Blocks, Execute, Memory};
        let mut own = Self(Box::new([0; EFFECTS_BYTES]));
        for opcode in Admin::opcodes() {
            own.put(0, opcode, SUPPORTED);
        }
        match set {
            Set::Nvm => {
                for (opcode, changes) in Blocks::opcodes() {
                    let is_changed = u32::from(changes == crate::commands::Changes::Yes);
                    own.put(IO_AT, opcode, SUPPORTED | (is_changed * CHANGES_BLOCKS));
                }
            }
            Set::Memory => {
                Memory::opcodes()
                    .into_iter()
                    .for_each(|opcode| own.put(IO_AT, opcode, SUPPORTED));
            }
            Set::Programs => {
                Execute::opcodes()
                    .into_iter()
                    .for_each(|opcode| own.put(IO_AT, opcode, SUPPORTED));
            }
        }
        own
    }

    fn put(&mut self, begin: usize, opcode: u8, effects: u32) {
        let at = begin + 4 * usize::from(opcode);
        self.0[at..at + 4].copy_from_slice(&effects.to_le_bytes());
    }

    /// As it is on the wire.
    #[must_use]
    pub fn bytes(&self) -> &[u8; EFFECTS_BYTES] {
        &self.0
    }

    /// Whether the log in `bytes` has the I/O command.
    #[must_use]
    pub fn has_io(bytes: &[u8; EFFECTS_BYTES], opcode: u8) -> bool {
        bytes[IO_AT + 4 * usize::from(opcode)] & 1 == 1
    }
}

/// SMART / Health Information.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Smart {
    /// Kelvin.
    pub temperature: u16,
    /// Whether the device is throttled because of its temperature: bit 1 of the critical warning.
    pub hot: Hot,
    /// Bytes that hosts have read; the log has thousands of 512 bytes, rounded up.
    pub bytes_read: u64,
    /// Bytes that hosts have written.
    pub bytes_written: u64,
    /// Read commands.
    pub reads: u64,
    /// Write commands.
    pub writes: u64,
    /// Nanoseconds that the device was busy; the log has minutes.
    pub busy_ns: u64,
    /// Nanoseconds that it was on; the log has hours.
    pub on_ns: u64,
    /// Energy in microjoules; the log has watt-hours, rounded up.
    pub microjoules: u64,
    /// Mean power of the last second in microwatts; the log has it in 0.1 mW, or 10 mW from 6.5 W on.
    pub microwatts: u64,
}

/// Whether a device is too hot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hot {
    /// It is not.
    #[default]
    No,
    /// It is, and is slower for it.
    Yes,
}

const DATA_UNIT: u64 = 512_000;
const MINUTE_NS: u64 = 60_000_000_000;
const HOUR_NS: u64 = 60 * MINUTE_NS;
const WATT_HOUR_UJ: u64 = 3_600_000_000;

impl Smart {
    /// As it is on the wire.
    #[must_use]
    pub fn bytes(&self) -> [u8; smart::BYTES] {
        let mut own = [0; smart::BYTES];
        smart::CRITICAL_WARNING.put(&mut own, u8::from(self.hot == Hot::Yes) << 1);
        smart::TEMPERATURE.put(&mut own, self.temperature);
        smart::AVAILABLE_SPARE.put(&mut own, 100);
        smart::SPARE_THRESHOLD.put(&mut own, 10);
        smart::DATA_UNITS_READ.put(&mut own, self.bytes_read.div_ceil(DATA_UNIT));
        smart::DATA_UNITS_WRITTEN.put(&mut own, self.bytes_written.div_ceil(DATA_UNIT));
        smart::HOST_READS.put(&mut own, self.reads);
        smart::HOST_WRITES.put(&mut own, self.writes);
        smart::BUSY_MINUTES.put(&mut own, self.busy_ns / MINUTE_NS);
        smart::POWER_ON_HOURS.put(&mut own, self.on_ns / HOUR_NS);
        smart::SENSOR_1.put(&mut own, self.temperature);
        smart::ENERGY_WH.put(&mut own, self.microjoules.div_ceil(WATT_HOUR_UJ));
        smart::INTERVAL_POWER.put(&mut own, scaled_power(self.microwatts));
        own
    }
}

/// Power as value in bits 15:0 and scale in 17:16: 1 for 0.1 mW, 2 for 10 mW, all zeros for unknown.
#[must_use]
pub fn scaled_power(microwatts: u64) -> u32 {
    let (value, scale) = match microwatts.div_ceil(100) {
        0 => return 0,
        fine if fine <= u64::from(u16::MAX) => (fine, 1),
        _ => (microwatts.div_ceil(10_000).min(u64::from(u16::MAX)), 2),
    };
    u32::try_from(value).unwrap_or(u32::MAX) | scale << 16
}

/// The microwatts of a value with its scale.
#[must_use]
pub fn unscaled_power(value: u32) -> Option<u64> {
    let number = u64::from(value & 0xffff);
    match value >> 16 & 3 {
        1 => Some(number * 100),
        2 => Some(number * 10_000),
        _ => None,
    }
}

/// Power Measurement, without a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Power {
    /// How often measuring was started.
    pub generation: u8,
    /// Whether it goes on.
    pub measuring: Measuring,
    /// Intervals of a second that were measured.
    pub n_intervals: u32,
    /// Mean power in microwatts.
    pub average: u64,
    /// The greatest mean of an interval in microwatts.
    pub greatest: u64,
}

/// Whether power is measured now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Measuring {
    /// It is not.
    #[default]
    No,
    /// It is.
    Yes,
}

/// The measured power is an estimate: always, for an emulated device.
const ESTIMATED: u16 = 1 << 2;

impl Power {
    /// As it is on the wire.
    #[must_use]
    pub fn bytes(&self) -> [u8; power::BYTES] {
        let mut own = [0; power::BYTES];
        let measures = u16::from(self.measuring == Measuring::Yes);
        power::PMGN.put(&mut own, self.generation);
        power::PMA.put(&mut own, measures | ESTIMATED);
        power::SZE.put(&mut own, u32::try_from(power::BYTES).unwrap_or(u32::MAX));
        power::PMC.put(&mut own, self.n_intervals);
        power::AIPWR.put(&mut own, scaled_power(self.average));
        power::MIPWR.put(&mut own, scaled_power(self.greatest));
        own
    }
}

/// A program, in the list of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// Where it is from.
    pub origin: Origin,
    /// Whether it is active.
    pub active: crate::commands::Activate,
    /// Its type.
    pub kind: u8,
    /// Its identifier.
    pub id: u64,
    /// The type of the identifier.
    pub id_kind: u8,
}

/// Where a program is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere: the index is free.
    Empty,
    /// A host loaded it.
    Loaded,
    /// The device has it.
    Device,
}

impl Origin {
    fn id(self) -> u8 {
        match self {
            Self::Empty => 0,
            Self::Loaded => 1,
            Self::Device => 2,
        }
    }
}

impl Program {
    /// A free index.
    pub const EMPTY: Self = Self {
        origin: Origin::Empty,
        active: crate::commands::Activate::Off,
        kind: 0,
        id: 0,
        id_kind: 0,
    };

    /// As it is on the wire.
    #[must_use]
    pub fn bytes(&self) -> [u8; program::BYTES] {
        let mut own = [0; program::BYTES];
        let is_active = u8::from(self.active == crate::commands::Activate::On);
        let state = self.origin.id() | (is_active << 2) | ((self.id_kind & 7) << 3);
        program::STATE.put(&mut own, state);
        program::PTYPE.put(&mut own, self.kind);
        program::PID.put(&mut own, self.id);
        own
    }

    /// The program in `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8; program::BYTES]) -> Self {
        use crate::commands::Activate;
        let state = program::STATE.get(bytes);
        Self {
            origin: match state & 3 {
                1 => Origin::Loaded,
                2 => Origin::Device,
                _ => Origin::Empty,
            },
            active: if state >> 2 & 1 == 1 { Activate::On } else { Activate::Off },
            kind: program::PTYPE.get(bytes),
            id: program::PID.get(bytes),
            id_kind: state >> 3 & 7,
        }
    }
}

/// A subsystem, where discovery finds it over TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subsystem {
    /// Its name (NQN).
    pub name: String,
    /// The address by which the host reaches it: IPv4 if it has no colon.
    pub address: String,
    /// The port.
    pub port: u16,
    /// Most entries of its admin queue.
    pub admin_entries: u16,
}

/// The discovery log with these subsystems.
#[must_use]
pub fn discovered(generation: u64, subsystems: &[Subsystem]) -> Vec<u8> {
    let mut head = [0; discovery::BYTES];
    discovery::GENCTR.put(&mut head, generation);
    discovery::NUMREC.put(&mut head, subsystems.len() as u64);
    let mut own = head.to_vec();
    for subsystem in subsystems {
        own.extend_from_slice(&subsystem.bytes());
    }
    own
}

/// The subsystems of a discovery log, as far as it is whole.
#[must_use]
pub fn of_discovered(log: &[u8]) -> Vec<Subsystem> {
    let Some((head, entries)) = log.split_first_chunk::<{ discovery::BYTES }>() else {
        return Vec::new();
    };
    let n = usize::try_from(discovery::NUMREC.get(head)).unwrap_or(usize::MAX);
    let (entries, _) = entries.as_chunks::<{ discovery_entry::BYTES }>();
    entries.iter().take(n).filter_map(Subsystem::of).collect()
}

impl Subsystem {
    fn bytes(&self) -> [u8; discovery_entry::BYTES] {
        let mut own = [0; discovery_entry::BYTES];
        discovery_entry::TRTYPE.put(&mut own, 3);
        discovery_entry::ADRFAM
            .put(&mut own, if self.address.contains(':') { 2 } else { 1 });
        discovery_entry::SUBTYPE.put(&mut own, 2);
        discovery_entry::TREQ.put(&mut own, 2);
        discovery_entry::CNTLID.put(&mut own, u16::MAX);
        discovery_entry::ASQSZ.put(&mut own, self.admin_entries);
        discovery_entry::TRSVCID.put(&mut own, fixed(&self.port.to_string(), b' ', 32));
        discovery_entry::SUBNQN.put(&mut own, fixed(&self.name, 0, 223));
        discovery_entry::TRADDR.put(&mut own, fixed(&self.address, b' ', 256));
        own
    }

    fn of(entry: &[u8; discovery_entry::BYTES]) -> Option<Self> {
        Some(Self {
            name: text(&discovery_entry::SUBNQN.get(entry)),
            address: text(&discovery_entry::TRADDR.get(entry)),
            port: text(&discovery_entry::TRSVCID.get(entry)).parse().ok()?,
            admin_entries: discovery_entry::ASQSZ.get(entry),
        })
    }
}
