//! A host that loads programs.

use bothends_nvme::commands::{
    Activate, Admin, Execute, Memory, MemoryRange, ProgramLoad, RangeSets,
};
use bothends_nvme::{Data, Sqe, Status};

use crate::host::{Queue, transport};

/// The type of programs in WebAssembly.
const KIND: u8 = 0xc0;

pub(crate) struct Host {
    pub(crate) admin: Queue,
    pub(crate) io: Queue,
}

impl Host {
    fn admin(&mut self, entry: Sqe, data: &[u8]) -> Result<u64, Status> {
        let (cqe, _) = self.admin.run(entry, data);
        if cqe.status.is_success() { Ok(cqe.result) } else { Err(cqe.status) }
    }

    /// Loads a program, `part` bytes at a time.
    pub(crate) fn load(
        &mut self,
        program: u16,
        module: &[u8],
        part: usize,
    ) -> Result<(), Status> {
        for (n, bytes) in module.chunks(part).enumerate() {
            let load = ProgramLoad::Load {
                program,
                kind: KIND,
                size: u32::try_from(module.len()).unwrap(),
                id: 7,
                id_kind: 1,
                bytes: u32::try_from(bytes.len()).unwrap(),
                from: u32::try_from(n * part).unwrap(),
            };
            self.admin(Admin::Program(load).entry(3, transport(bytes.len())), bytes)?;
        }
        Ok(())
    }

    pub(crate) fn unload(&mut self, program: u16) -> Result<(), Status> {
        let unload = Admin::Program(ProgramLoad::Unload { program });
        self.admin(unload.entry(3, Data::NONE), &[]).map(|_| ())
    }

    pub(crate) fn activate(
        &mut self,
        program: u16,
        active: Activate,
    ) -> Result<(), Status> {
        let command = Admin::Activation { program, active };
        self.admin(command.entry(3, Data::NONE), &[]).map(|_| ())
    }

    pub(crate) fn range_set(&mut self, ranges: &[MemoryRange]) -> u16 {
        let data: Vec<u8> = ranges.iter().flat_map(MemoryRange::bytes).collect();
        let n_ranges = u8::try_from(ranges.len()).unwrap();
        let command = Admin::RangeSets(RangeSets::Create { n_ranges, set: 0 });
        let set = self.admin(command.entry(3, transport(data.len())), &data).unwrap();
        u16::try_from(set).unwrap()
    }

    pub(crate) fn execute(
        &mut self,
        program: u16,
        range_set: u16,
        (parameter_1, parameter_2): (u64, u64),
    ) -> Result<u64, Status> {
        let command = Execute {
            program,
            range_set,
            n_ranges: 0,
            data_bytes: 0,
            parameter_1,
            parameter_2,
        };
        let (cqe, _) = self.io.run(command.entry(3, Data::NONE), &[]);
        if cqe.status.is_success() { Ok(cqe.result) } else { Err(cqe.status) }
    }

    pub(crate) fn write(&mut self, to: u64, data: &[u8]) {
        let bytes = u32::try_from(data.len()).unwrap();
        let entry = Memory::Write { to, bytes }.entry(2, transport(data.len()));
        assert_eq!(self.io.run(entry, data).0.status, Status::SUCCESS);
    }

    pub(crate) fn read(&mut self, from: u64, bytes: u32) -> Vec<u8> {
        let room = transport(bytes as usize);
        let (cqe, data) = self.io.run(Memory::Read { from, bytes }.entry(2, room), &[]);
        assert_eq!(cqe.status, Status::SUCCESS);
        data
    }
}
