//! What Identify reads: structures of 4,096 bytes, each as a value with the way there and back.

use crate::commands::Set;
use crate::layout::{
    identify_controller as controller, identify_independent as independent,
    identify_nvm as blocks, identify_programs as programs, identify_slm as memory,
    ns_descriptor as descriptor,
};

/// Bytes of each structure.
pub const BYTES: usize = 4096;

/// NVMe 2.1, as a version register has it.
pub const VERSION: u32 = 0x0002_0100;

/// What a subsystem's name is cut to.
const NAME_BYTES: usize = 223;

/// A controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// Its number in its subsystem.
    pub id: u16,
    /// Whether it leads to namespaces, or only says where subsystems are.
    pub kind: ControllerKind,
    /// Serial number, 20 characters of ASCII at most.
    pub serial: String,
    /// Model, 40 characters at most.
    pub model: String,
    /// Version of the firmware, 8 characters at most.
    pub firmware: String,
    /// The subsystem's name (NQN), 223 bytes at most.
    pub subsystem: String,
    /// Most bytes of a command's data: 4 KiB × 2^`transfer`; 0 for no bound.
    pub transfer: u8,
    /// The highest identifier of a namespace.
    pub n_namespaces: u32,
    /// Most commands at a time on a queue.
    pub commands: u16,
    /// Most bytes of data in the capsule of an I/O command.
    pub in_capsule: u32,
    /// How many asynchronous events may be awaited.
    pub events: u8,
    /// Power that it takes at most, in hundredths of a watt; 0 if that is not known.
    pub centiwatts: u16,
    /// Whether power is measured: log and feature 25h.
    pub measures_power: Measures,
}

/// Whether a controller measures its power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measures {
    /// No.
    Nothing,
    /// Yes, and what it measures is an estimate.
    Power,
}

/// What a controller is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControllerKind {
    /// I/O: 1h.
    Io,
    /// Discovery: 2h.
    Discovery,
}

impl Controller {
    /// As it is on the wire.
    #[must_use]
    pub fn bytes(&self) -> Box<[u8; BYTES]> {
        let mut own = Box::new([0; BYTES]);
        controller::SN.put(&mut own, spaces(&self.serial));
        controller::MN.put(&mut own, spaces(&self.model));
        controller::FR.put(&mut own, spaces(&self.firmware));
        controller::MDTS.put(&mut own, self.transfer);
        controller::CNTLID.put(&mut own, self.id);
        controller::VER.put(&mut own, VERSION);
        controller::CNTRLTYPE.put(&mut own, self.kind.id());
        controller::ACL.put(&mut own, 3);
        controller::AERL.put(&mut own, self.events.saturating_sub(1));
        controller::FRMW.put(&mut own, 0b11);
        // Effects, and offsets and lengths of more than 4 KiB.
        controller::LPA.put(&mut own, 0b110);
        controller::WCTEMP.put(&mut own, 343);
        controller::CCTEMP.put(&mut own, 353);
        // Keep-alive timeouts are counted in seconds: 10 × 100 ms.
        controller::KAS.put(&mut own, 10);
        controller::MAXCMD.put(&mut own, self.commands);
        // SGLs, and data blocks whose address is an offset.
        controller::SGLS.put(&mut own, 0x0010_0001);
        controller::SUBNQN.put(&mut own, zeros(&self.subsystem));
        controller::PSD0.put(&mut own, self.power_state());
        if self.measures_power == Measures::Power {
            controller::CTRATT.put(&mut own, 1 << 21);
            // Totals of the subsystem once a second; hours of measuring have no bound.
            controller::IPMSR.put(&mut own, 1);
            controller::MSMT.put(&mut own, u16::MAX);
        }
        if self.kind == ControllerKind::Io {
            controller::SQES.put(&mut own, 0x66);
            controller::CQES.put(&mut own, 0x44);
            controller::NN.put(&mut own, self.n_namespaces);
            // Copy: bit 8.
            controller::ONCS.put(&mut own, 1 << 8);
            // What is written is durable once it is flushed.
            controller::VWC.put(&mut own, 1);
            controller::IOCCSZ.put(&mut own, (64 + self.in_capsule) / 16);
            controller::IORCSZ.put(&mut own, 1);
            controller::MSDBD.put(&mut own, 1);
        }
        own
    }

    /// The power state descriptor of the one state: its maximum power.
    fn power_state(&self) -> [u8; 32] {
        let mut own = [0; 32];
        own[..2].copy_from_slice(&self.centiwatts.to_le_bytes());
        own
    }

    /// The controller in `bytes`. Text that is not ASCII becomes question marks.
    #[must_use]
    pub fn of(bytes: &[u8; BYTES]) -> Self {
        let power = controller::PSD0.get(bytes);
        let capsule = controller::IOCCSZ.get(bytes).saturating_mul(16).saturating_sub(64);
        Self {
            id: controller::CNTLID.get(bytes),
            kind: match controller::CNTRLTYPE.get(bytes) {
                2 => ControllerKind::Discovery,
                _ => ControllerKind::Io,
            },
            serial: text(&controller::SN.get(bytes)),
            model: text(&controller::MN.get(bytes)),
            firmware: text(&controller::FR.get(bytes)),
            subsystem: text(&controller::SUBNQN.get(bytes)),
            transfer: controller::MDTS.get(bytes),
            n_namespaces: controller::NN.get(bytes),
            commands: controller::MAXCMD.get(bytes),
            in_capsule: capsule,
            events: controller::AERL.get(bytes).saturating_add(1),
            centiwatts: u16::from_le_bytes([power[0], power[1]]),
            measures_power: match controller::CTRATT.get(bytes) >> 21 & 1 {
                0 => Measures::Nothing,
                _ => Measures::Power,
            },
        }
    }
}

impl ControllerKind {
    fn id(self) -> u8 {
        match self {
            Self::Io => 1,
            Self::Discovery => 2,
        }
    }
}

/// A namespace of logical blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockNamespace {
    /// How many blocks it has.
    pub n_blocks: u64,
    /// Bytes of a block: a power of two.
    pub block_bytes: u32,
    /// Bytes of metadata of a block. Where they go with its data, a read moves more than its blocks have.
    pub metadata_bytes: u16,
    /// Its identifier, the same wherever it is seen.
    pub guid: [u8; 16],
}

/// Where the list of LBA formats begins, each of four bytes.
const LBA_FORMATS: usize = 128;

/// Sources of one Copy to blocks.
const COPY_SOURCES: u8 = 127;

impl BlockNamespace {
    /// As it is on the wire.
    #[must_use]
    pub fn bytes(&self) -> Box<[u8; BYTES]> {
        let mut own = Box::new([0; BYTES]);
        blocks::NSZE.put(&mut own, self.n_blocks);
        blocks::NCAP.put(&mut own, self.n_blocks);
        blocks::NUSE.put(&mut own, self.n_blocks);
        blocks::MSSRL.put(&mut own, u16::MAX);
        blocks::MCL.put(&mut own, u32::MAX);
        blocks::MSRC.put(&mut own, COPY_SOURCES);
        blocks::NGUID.put(&mut own, self.guid);
        let format = self.block_bytes.trailing_zeros() << 16;
        blocks::LBAF0.put(&mut own, format | u32::from(self.metadata_bytes));
        own
    }

    /// The namespace in `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8; BYTES]) -> Self {
        // FLBAS: which of the 64 formats it has, in bits 3:0 and 6:5.
        let chosen = blocks::FLBAS.get(bytes);
        let chosen = usize::from(chosen & 0xf | chosen >> 1 & 0x30);
        let formats = bytes[LBA_FORMATS..].as_chunks::<4>().0;
        let [metadata @ .., exponent, _] = formats[chosen];
        Self {
            n_blocks: blocks::NSZE.get(bytes),
            block_bytes: 1_u32.checked_shl(exponent.into()).unwrap_or(0),
            metadata_bytes: u16::from_le_bytes(metadata),
            guid: blocks::NGUID.get(bytes),
        }
    }
}

/// A namespace of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryNamespace {
    /// Bytes that it has.
    pub bytes: u64,
}

impl MemoryNamespace {
    /// As it is on the wire.
    #[must_use]
    pub fn bytes(&self) -> Box<[u8; BYTES]> {
        let mut own = Box::new([0; BYTES]);
        memory::SIZE.put(&mut own, self.bytes);
        own
    }

    /// The namespace in `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8; BYTES]) -> Self {
        Self { bytes: memory::SIZE.get(bytes) }
    }
}

/// A namespace of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramsNamespace {
    /// Most programs that are active at a time.
    pub active: u16,
    /// Most sets of memory ranges.
    pub range_sets: u16,
    /// What ranges are aligned to: 2^`granularity` bytes.
    pub granularity: u16,
    /// Most ranges of a set.
    pub ranges: u8,
    /// Most bytes of all programs, in MiB.
    pub program_mib: u64,
    /// What the size of a program is a multiple of: 2^`load_granularity` bytes.
    pub load_granularity: u8,
}

impl ProgramsNamespace {
    /// As it is on the wire.
    #[must_use]
    pub fn bytes(&self) -> Box<[u8; BYTES]> {
        let mut own = Box::new([0; BYTES]);
        programs::MAXACT.put(&mut own, self.active);
        programs::MAXMEMRS.put(&mut own, self.range_sets);
        programs::MRSG.put(&mut own, self.granularity);
        programs::MAXMEMR.put(&mut own, self.ranges);
        programs::MAXPB.put(&mut own, self.program_mib);
        programs::LPG.put(&mut own, self.load_granularity);
        own
    }

    /// The namespace in `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8; BYTES]) -> Self {
        Self {
            active: programs::MAXACT.get(bytes),
            range_sets: programs::MAXMEMRS.get(bytes),
            granularity: programs::MRSG.get(bytes),
            ranges: programs::MAXMEMR.get(bytes),
            program_mib: programs::MAXPB.get(bytes),
            load_granularity: programs::LPG.get(bytes),
        }
    }
}

/// What does not depend on a namespace's command set: it is ready, and no other controller shares it.
#[must_use]
pub fn independent() -> Box<[u8; BYTES]> {
    let mut own = Box::new([0; BYTES]);
    independent::NSTAT.put(&mut own, 1);
    own
}

const NGUID: u8 = 2;
const CSI: u8 = 4;

/// The identifiers of a namespace: a GUID, and its command set, without which Linux does not take it.
#[must_use]
pub fn descriptors(set: Set, guid: [u8; 16]) -> Box<[u8; BYTES]> {
    let mut own = Box::new([0; BYTES]);
    let mut at = 0;
    for (kind, identifier) in [(NGUID, &guid[..]), (CSI, &[set.id()])] {
        let mut head = [0; descriptor::BYTES];
        descriptor::NIDT.put(&mut head, kind);
        descriptor::NIDL
            .put(&mut head, u8::try_from(identifier.len()).unwrap_or(u8::MAX));
        for part in [&head[..], identifier] {
            own[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
    }
    own
}

/// The command set in the identifiers of a namespace, if it is one that we know.
#[must_use]
pub fn set_of(bytes: &[u8; BYTES]) -> Option<Set> {
    let mut rest = &bytes[..];
    while let Some((head, behind)) = rest.split_first_chunk::<{ descriptor::BYTES }>() {
        let length = usize::from(descriptor::NIDL.get(head));
        if length == 0 {
            return None;
        }
        let identifier = behind.get(..length)?;
        if descriptor::NIDT.get(head) == CSI {
            return Set::of_id(*identifier.first()?);
        }
        rest = &behind[length..];
    }
    None
}

/// The one combination of command sets: all of `sets`.
#[must_use]
pub fn sets(sets: &[Set]) -> Box<[u8; BYTES]> {
    let mut own = Box::new([0; BYTES]);
    let vector = sets.iter().fold(0_u64, |vector, set| vector | 1 << set.id());
    own[..8].copy_from_slice(&vector.to_le_bytes());
    own
}

/// A list of namespaces: those of `all` above `after`, in ascending order.
#[must_use]
pub fn active(all: impl IntoIterator<Item = u32>, after: u32) -> Box<[u8; BYTES]> {
    let mut own = Box::new([0; BYTES]);
    let listed = all.into_iter().filter(|nsid| *nsid > after);
    for (place, nsid) in own.chunks_exact_mut(4).zip(listed) {
        place.copy_from_slice(&nsid.to_le_bytes());
    }
    own
}

/// The namespaces of a list.
#[must_use]
pub fn of_active(bytes: &[u8; BYTES]) -> Vec<u32> {
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers
        .iter()
        .map(|own| u32::from_le_bytes(*own))
        .take_while(|nsid| *nsid != 0)
        .collect()
}

fn spaces<const N: usize>(text: &str) -> [u8; N] {
    fixed(text, b' ', N)
}

fn zeros<const N: usize>(text: &str) -> [u8; N] {
    fixed(text, 0, NAME_BYTES)
}

/// `text` in ASCII, at most `most` bytes of it, and `fill` behind it.
pub(crate) fn fixed<const N: usize>(text: &str, fill: u8, most: usize) -> [u8; N] {
    let mut own = [fill; N];
    let characters = text.chars().map(|c| if c.is_ascii() { c as u8 } else { b'?' });
    for (place, byte) in own.iter_mut().take(most).zip(characters) {
        *place = byte;
    }
    own
}

/// The text in a field, without what fills it up.
pub(crate) fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    let characters = field[..end].iter().map(|byte| match byte {
        b' '..=b'~' => char::from(*byte),
        _ => '?',
    });
    characters.collect::<String>().trim_end().to_owned()
}
