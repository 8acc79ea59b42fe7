//! What a device is: its three namespaces, found by their command sets and never by their numbers, and the
//! program that makes batches.

use std::time::Instant;

use bothends_nvme::commands::{Activate, Admin, Identify, Log, LogRequest, Set};
use bothends_nvme::host::Content;
use bothends_nvme::identify::{
    self, BlockNamespace, Controller, MemoryNamespace, ProgramsNamespace,
};
use bothends_nvme::logs::Program;
use bothends_nvme::preprocess::PROGRAM;
use bothends_nvme::{Data, Status};

use super::carrier::{Carrier, accepted};
use crate::CsdError;

/// Bytes of the list of programs that are read: 64 indices.
const LISTED_BYTES: u32 = 64 * 64;
/// Least and most bytes of a command's data that are asked for.
const MOST_TRANSFER: u32 = 1 << 20;
/// What our emulated device calls itself. Its figures are never those of hardware.
const EMULATED: &str = "bothends firmware-sim";

/// A device that can make batches.
#[derive(Debug, Clone)]
pub(super) struct Drive {
    /// For people.
    pub(super) name: String,
    /// Whether models stand in for hardware.
    pub(super) emulated: bool,
    /// The namespace of blocks.
    pub(super) blocks: u32,
    /// How many blocks it has, and their bytes.
    pub(super) media: (u64, u32),
    /// The namespace of memory.
    pub(super) memory: u32,
    /// Its bytes.
    pub(super) memory_bytes: u64,
    /// The namespace of programs.
    pub(super) programs: u32,
    /// How many sets of memory ranges it has room for.
    pub(super) range_sets: u16,
    /// The index of the program that makes batches.
    pub(super) program: u16,
    /// Most bytes of a command's data.
    pub(super) transfer: u32,
}

impl Drive {
    /// Looks at the device behind `carrier`.
    pub(super) fn find(
        carrier: &mut dyn Carrier,
        deadline: Instant,
    ) -> Result<Self, CsdError> {
        let mut ask = Ask { carrier, deadline };
        let own = ask.identify(Identify::of(Identify::CONTROLLER, 0))?;
        let controller = Controller::of(&own);
        ask.carrier.set_in_capsule(controller.in_capsule);
        let (mut blocks, mut memory, mut programs) = (None, None, None);
        let active = ask.identify(Identify::of(Identify::ACTIVE, 0))?;
        for nsid in identify::of_active(&active) {
            let descriptors = ask.identify(Identify::of(Identify::DESCRIPTORS, nsid))?;
            // The first of a kind is the device's; others are for other uses.
            match identify::set_of(&descriptors) {
                Some(Set::Nvm) => blocks.get_or_insert(nsid),
                Some(Set::Memory) => memory.get_or_insert(nsid),
                Some(Set::Programs) => programs.get_or_insert(nsid),
                None => continue,
            };
        }
        let blocks = blocks.ok_or_else(|| lacks("blocks (NVM, 0)"))?;
        let memory = memory.ok_or_else(|| lacks("memory (SLM, 3)"))?;
        let programs = programs.ok_or_else(|| lacks("programs (CP, 4)"))?;
        let media = ask.identify(Identify::of(Identify::NAMESPACE, blocks))?;
        let media = BlockNamespace::of(&media);
        if media.block_bytes < 512 || !media.block_bytes.is_power_of_two() {
            return Err(CsdError::Malformed { what: "the size of the device's blocks" });
        }
        if media.metadata_bytes != 0 {
            return Err(CsdError::Unfit {
                what: format!(
                    "the device's blocks have {} bytes of metadata",
                    media.metadata_bytes
                ),
                remedy: "format its namespace of blocks without metadata (nvme format)",
            });
        }
        let of_set = |set, nsid| Identify::of(Identify::OF_SET, nsid).in_set(set);
        let memory_bytes = ask.identify(of_set(Set::Memory, memory))?;
        let limits = ask.identify(of_set(Set::Programs, programs))?;
        let limits = ProgramsNamespace::of(&limits);
        if limits.ranges < 3 || limits.range_sets < 2 {
            return Err(CsdError::Unfit {
                what: "the device has no room for two sets of three memory ranges"
                    .to_owned(),
                remedy: "use a device that has",
            });
        }
        let program = ask.program(programs)?;
        let most_bytes = ask.carrier.most_bytes();
        let model = controller.model.trim();
        Ok(Self {
            name: format!("{model} ({})", controller.serial.trim()),
            emulated: model == EMULATED,
            blocks,
            media: (media.n_blocks, media.block_bytes),
            memory,
            memory_bytes: MemoryNamespace::of(&memory_bytes).bytes,
            programs,
            range_sets: limits.range_sets,
            program,
            transfer: transfer(controller.transfer).min(most_bytes),
        })
    }
}

fn lacks(what: &str) -> CsdError {
    CsdError::Unfit {
        what: format!("the device has no namespace of {what}"),
        remedy: "use a device with blocks, local memory and computational programs, as firmware-sim is",
    }
}

/// Most bytes of a command's data, by MDTS.
fn transfer(mdts: u8) -> u32 {
    match mdts {
        0 => MOST_TRANSFER,
        n => 4096_u32
            .checked_mul(1 << n.min(20))
            .map_or(MOST_TRANSFER, |own| own.min(MOST_TRANSFER)),
    }
}

/// Questions to a controller.
struct Ask<'a> {
    carrier: &'a mut dyn Carrier,
    deadline: Instant,
}

impl Ask<'_> {
    fn identify(
        &mut self,
        what: Identify,
    ) -> Result<Box<[u8; identify::BYTES]>, CsdError> {
        const BYTES: u32 = 4096;
        let doing = "identify";
        let entry = Admin::Identify(what).entry(0, Data::NONE);
        let content = Content::ToHost(BYTES);
        let (cqe, data) = self.carrier.ask(entry, content, (doing, self.deadline))?;
        accepted(cqe.status, doing)?;
        let malformed = CsdError::Malformed { what: "the answer to Identify" };
        data.into_boxed_slice().try_into().map_err(|_| malformed)
    }

    /// The index of the program that makes batches; it is active from then on.
    fn program(&mut self, programs: u32) -> Result<u16, CsdError> {
        let doing = "list the programs";
        let request = LogRequest::of(Log::Programs, LISTED_BYTES.into());
        let request = LogRequest { nsid: programs, ..request };
        let entry = Admin::GetLog(request).entry(programs, Data::NONE);
        let content = Content::ToHost(LISTED_BYTES);
        let (cqe, data) = self.carrier.ask(entry, content, (doing, self.deadline))?;
        accepted(cqe.status, doing)?;
        let (listed, _) = data.as_chunks::<64>();
        let mut listed = listed.iter().map(Program::of);
        let at = listed.position(|listed| {
            listed.id == PROGRAM && listed.origin != Program::EMPTY.origin
        });
        let at =
            at.and_then(|at| u16::try_from(at).ok()).ok_or_else(|| CsdError::Unfit {
                what: "the device does not have the program preprocess_batch_v1"
                    .to_owned(),
                remedy: "load it, or use a device that has it, as firmware-sim does",
            })?;
        let doing = "activate the program";
        let activation = Admin::Activation { program: at, active: Activate::On };
        let entry = activation.entry(programs, Data::NONE);
        let (cqe, _) = self.carrier.ask(entry, Content::None, (doing, self.deadline))?;
        match cqe.status {
            Status::TOO_MANY_ACTIVE => Err(CsdError::Unfit {
                what: "the device has as many programs active as it can".to_owned(),
                remedy: "deactivate one",
            }),
            status => accepted(status, doing).map(|()| at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MDTS is an exponent: so many pages, and any size where it is 0.
    #[test]
    fn a_transfer_is_never_empty_and_never_huge() {
        let all = [(0, 1 << 20), (1, 8192), (4, 65_536), (8, 1 << 20)];
        for (mdts, bytes) in all {
            assert_eq!(transfer(mdts), bytes, "{mdts}");
        }
        for mdts in 9..=u8::MAX {
            assert_eq!(transfer(mdts), MOST_TRANSFER, "{mdts}");
        }
    }
}
