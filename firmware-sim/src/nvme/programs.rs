//! The namespace of programs: what is loaded and active, sets of memory ranges, and executions.
//!
//! The order in which a command is checked, and the status of each failure, are those of the one public
//! implementation of these command sets (grade C). The device's own programs are below `programs/`.

mod batch;
mod checksum;
mod effort;
mod slot;
mod stop;
#[cfg(feature = "wasm")]
mod wasm;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bothends_nvme::Status;
use bothends_nvme::commands::{Activate, Execute, MemoryRange, ProgramLoad, RangeSets};
use bothends_nvme::identify::ProgramsNamespace;

use super::MEMORY;
use super::memory::Memory;
use slot::Slot;

pub use batch::Batches;
pub use checksum::Checksum;
pub(super) use effort::effort;
pub(super) use stop::Stop;

/// Indices of programs.
const SLOTS: u16 = 16;
/// Bytes of all programs that are loaded.
const PROGRAM_MIB: u64 = 16;
/// Bytes of data of an execution, which wait with it for their turn: more belong in memory.
const MOST_INLINE: usize = 64 << 10;
/// Time of an execution, besides that which the bytes of its ranges take: others wait for its core.
const MOST_TIME: Duration = Duration::from_secs(60);
/// So many of these bytes take a second more: a host waits as long.
const SLOWEST: u64 = 2 << 20;
const LIMITS: ProgramsNamespace = ProgramsNamespace {
    active: 8,
    range_sets: 64,
    granularity: 2,
    ranges: 16,
    program_mib: PROGRAM_MIB,
    load_granularity: 0,
};

/// A program that a device runs.
pub trait Program: Send + Sync + Debug {
    /// Its type: 00h for one that the device has.
    fn kind(&self) -> u8 {
        0
    }

    /// An identifier, told in the list of programs.
    fn id(&self) -> u64;

    /// Runs it. May block, on a thread of the pool.
    ///
    /// # Errors
    /// The status of the execution.
    fn run(&self, call: &Call<'_>) -> Result<Done, Status>;
}

/// What an execution has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// What it returns: the completion's result.
    pub value: u64,
    /// What it took, from which a model computes its time.
    pub work: Work,
}

/// The work of an execution, in a measure that is the same on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Passes over so many bytes.
    Bytes(u64),
    /// Instructions of a program that was loaded.
    Fuel(u64),
    /// Records of samples. Those that are no coded images are no work of a decoder.
    Records {
        /// Bytes of records that are passed over as they are.
        bytes: u64,
        /// Bytes of coded images.
        coded_bytes: u64,
        /// Pixels of the images that were decoded.
        pixels: u64,
    },
}

/// What a program is called with: ranges of memory, counted from 1, two parameters, and the data of the
/// command.
#[derive(Debug)]
pub struct Call<'a> {
    ranges: &'a Ranges,
    /// The first parameter.
    pub parameter_1: u64,
    /// The second parameter.
    pub parameter_2: u64,
    /// The data of the command, behind its ranges.
    pub data: &'a [u8],
    stop: Stop,
}

impl Call<'_> {
    /// Whether the program may go on. One that takes long looks here now and then, and ends with what it is told.
    ///
    /// # Errors
    /// The status with which to end: the host has aborted the command or gone, or it has run for too long.
    pub fn check(&self) -> Result<(), Status> {
        self.stop.check()
    }

    /// Bytes of range `n`.
    ///
    /// # Errors
    /// Invalid Field if there is no such range.
    pub fn range_bytes(&self, n: usize) -> Result<u32, Status> {
        self.ranges.bytes(n)
    }

    /// Reads range `n` from byte `at` on.
    ///
    /// # Errors
    /// Invalid Field if they are not all in the range.
    pub fn read(&self, n: usize, at: u32, to: &mut [u8]) -> Result<(), Status> {
        self.ranges.read(n, at, to)
    }

    /// Writes range `n` from byte `at` on.
    ///
    /// # Errors
    /// Invalid Field if they are not all in the range.
    pub fn write(&self, n: usize, at: u32, from: &[u8]) -> Result<(), Status> {
        self.ranges.write(n, at, from)
    }
}

/// Ranges of memory that a program has been given, counted from 1.
#[derive(Debug, Clone)]
struct Ranges {
    memory: Arc<Memory>,
    all: Arc<[MemoryRange]>,
}

impl Ranges {
    fn bytes(&self, n: usize) -> Result<u32, Status> {
        self.range(n).map(|range| range.bytes)
    }

    fn read(&self, n: usize, at: u32, to: &mut [u8]) -> Result<(), Status> {
        self.memory.read(self.address(n, at, to.len())?, to)
    }

    fn write(&self, n: usize, at: u32, from: &[u8]) -> Result<(), Status> {
        self.memory.put(self.address(n, at, from.len())?, from)
    }

    fn range(&self, n: usize) -> Result<&MemoryRange, Status> {
        n.checked_sub(1).and_then(|n| self.all.get(n)).ok_or(Status::INVALID_FIELD)
    }

    fn address(&self, n: usize, at: u32, bytes: usize) -> Result<u64, Status> {
        let range = self.range(n)?;
        let end = u64::from(at) + bytes as u64;
        if end > range.bytes.into() {
            return Err(Status::INVALID_FIELD);
        }
        Ok(range.from + u64::from(at))
    }
}

/// What makes programs of a type of the bytes that are loaded.
pub(super) trait Runtime: Send + Sync + Debug {
    /// A program of these bytes, with the identifier that its host has given it. May take seconds.
    ///
    /// # Errors
    /// The status of the activation.
    fn prepare(&self, bytes: &[u8], id: u64) -> Result<Arc<dyn Program>, Status>;
}

/// The runtimes that this build has, by the types of their programs.
pub(super) fn runtimes() -> BTreeMap<u8, Arc<dyn Runtime>> {
    #[cfg(feature = "wasm")]
    let all = wasm::Wasm::new(wasm::Limits::DEFAULT).map(|own| {
        let own: Arc<dyn Runtime> = Arc::new(own);
        (wasm::KIND, own)
    });
    #[cfg(not(feature = "wasm"))]
    let all = None;
    all.into_iter().collect()
}

/// An activation that has still to make its program, which others do not wait for.
#[derive(Debug)]
pub(super) struct Preparation {
    index: u16,
    id: u64,
    bytes: Arc<Vec<u8>>,
    runtime: Arc<dyn Runtime>,
}

impl Preparation {
    /// Makes it; [`Programs::install`] comes next.
    ///
    /// # Errors
    /// The status of the activation.
    pub(super) fn program(&self) -> Result<Arc<dyn Program>, Status> {
        // Here, too, what panics costs its command alone.
        catch_unwind(AssertUnwindSafe(|| self.runtime.prepare(&self.bytes, self.id)))
            .unwrap_or(Err(Status::INTERNAL_ERROR))
    }
}

#[derive(Debug)]
struct RangeSet {
    owner: u16,
    ranges: Arc<[MemoryRange]>,
}

/// The namespace's state.
#[derive(Debug)]
pub(super) struct Programs {
    slots: Vec<Slot>,
    range_sets: BTreeMap<u16, RangeSet>,
    /// Sets whose controller has gone, and that an execution still uses.
    left: Vec<Arc<[MemoryRange]>>,
    runtimes: BTreeMap<u8, Arc<dyn Runtime>>,
}

/// A program that is to run, with what it was called with. It holds on to both until it is dropped.
#[derive(Debug)]
pub(super) struct Execution {
    program: Arc<dyn Program>,
    ranges: Arc<[MemoryRange]>,
    data: Vec<u8>,
    parameters: (u64, u64),
}

impl Execution {
    /// Runs it; this takes as long as the program does, which `stop` may end.
    pub(super) fn run(&self, memory: &Arc<Memory>, stop: &Stop) -> Result<Done, Status> {
        let memory = Arc::clone(memory);
        let bytes: u64 = self.ranges.iter().map(|range| u64::from(range.bytes)).sum();
        let time = MOST_TIME + Duration::from_millis(bytes * 1000 / SLOWEST);
        let call = Call {
            ranges: &Ranges { memory, all: Arc::clone(&self.ranges) },
            parameter_1: self.parameters.0,
            parameter_2: self.parameters.1,
            data: &self.data,
            stop: stop.within(time),
        };
        // A program that panics costs its command, and not the thread of all.
        catch_unwind(AssertUnwindSafe(|| self.program.run(&call)))
            .unwrap_or(Err(Status::INTERNAL_ERROR))
    }
}

impl Programs {
    /// A namespace with the device's own programs, active, at the first indices.
    pub(super) fn new(
        own: Vec<Arc<dyn Program>>,
        runtimes: BTreeMap<u8, Arc<dyn Runtime>>,
    ) -> Self {
        let mut slots: Vec<Slot> =
            own.into_iter().map(|program| Slot::Device(program, Activate::On)).collect();
        slots.resize_with(SLOTS.into(), || Slot::Empty);
        Self { slots, range_sets: BTreeMap::new(), left: Vec::new(), runtimes }
    }

    pub(super) fn limits() -> ProgramsNamespace {
        LIMITS
    }

    /// The list of programs, as its log has it.
    pub(super) fn list(&self) -> Vec<u8> {
        self.slots.iter().flat_map(|slot| slot.listed().bytes()).collect()
    }

    /// Loads a part of a program, or unloads one.
    pub(super) fn load(&mut self, load: ProgramLoad, data: &[u8]) -> Result<u64, Status> {
        if let ProgramLoad::Load { bytes, .. } = load
            && (bytes == 0 || data.len() < bytes as usize)
        {
            return Err(Status::INVALID_FIELD);
        }
        let loaded: u64 = self.slots.iter().map(Slot::loaded_bytes).sum();
        let (ProgramLoad::Load { program, .. } | ProgramLoad::Unload { program }) = load;
        let slot =
            self.slots.get_mut(usize::from(program)).ok_or(Status::PROGRAM_INDEX)?;
        match load {
            ProgramLoad::Unload { .. } => slot.unload(),
            ProgramLoad::Load { kind, size, id, id_kind, bytes, from, .. } => {
                if matches!(slot, Slot::Device(..)) {
                    return Err(Status::NOT_DOWNLOADABLE);
                }
                let data = &data[..bytes as usize];
                if from > 0 {
                    return slot.go_on(from, data);
                }
                if !matches!(slot, Slot::Empty) {
                    return Err(Status::PROGRAM_IN_USE);
                }
                if !self.runtimes.contains_key(&kind) {
                    return Err(Status::PROGRAM_TYPE);
                }
                if size == 0 {
                    return Err(Status::PROGRAM_DATA);
                }
                if loaded + u64::from(size) > PROGRAM_MIB << 20 {
                    return Err(Status::PROGRAM_BYTES);
                }
                *slot = Slot::Loading { kind, id, id_kind, size, bytes: Arc::default() };
                let first = slot.go_on(0, data);
                if first.is_err() {
                    *slot = Slot::Empty;
                }
                first
            }
        }
    }

    /// Activates a program, or deactivates it; one that was loaded has to be prepared and then installed.
    pub(super) fn activate(
        &mut self,
        program: u16,
        active: Activate,
    ) -> Result<Option<Preparation>, Status> {
        let n_active = self.n_active();
        let slot =
            self.slots.get_mut(usize::from(program)).ok_or(Status::PROGRAM_INDEX)?;
        if matches!(slot, Slot::Empty) {
            return Err(Status::NO_PROGRAM);
        }
        if slot.is_active() == (active == Activate::On) {
            return Ok(None);
        }
        match active {
            Activate::On if n_active >= LIMITS.active.into() => {
                Err(Status::TOO_MANY_ACTIVE)
            }
            Activate::On => slot.activate(program, &self.runtimes),
            Activate::Off => slot.deactivate().map(|()| None),
        }
    }

    /// Installs what was prepared, unless its index holds something else by now.
    pub(super) fn install(
        &mut self,
        of: &Preparation,
        program: Arc<dyn Program>,
    ) -> Result<(), Status> {
        if self.n_active() >= LIMITS.active.into() {
            return Err(Status::TOO_MANY_ACTIVE);
        }
        let slot =
            self.slots.get_mut(usize::from(of.index)).ok_or(Status::PROGRAM_INDEX)?;
        match slot {
            Slot::Loading { kind, id, id_kind, bytes, .. }
                if Arc::ptr_eq(bytes, &of.bytes) =>
            {
                let (kind, id, id_kind) = (*kind, *id, *id_kind);
                let bytes = std::mem::take(bytes);
                *slot = Slot::Active { kind, id, id_kind, bytes, program };
                Ok(())
            }
            // Somebody else has activated the same at the same time.
            Slot::Active { bytes, .. } if Arc::ptr_eq(bytes, &of.bytes) => Ok(()),
            Slot::Empty
            | Slot::Device(..)
            | Slot::Loading { .. }
            | Slot::Active { .. } => Err(Status::PROGRAM_IN_USE),
        }
    }

    fn n_active(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_active()).count()
    }

    /// Makes a set of ranges for controller `owner`, or deletes one.
    pub(super) fn range_sets(
        &mut self,
        command: RangeSets,
        data: &[u8],
        memory: &Memory,
        owner: u16,
    ) -> Result<u64, Status> {
        match command {
            RangeSets::Create { n_ranges, set } => {
                if set != 0 {
                    return Err(Status::INVALID_FIELD);
                }
                if n_ranges == 0 || n_ranges > LIMITS.ranges {
                    return Err(Status::TOO_MANY_RANGES);
                }
                if self.range_sets.len() >= LIMITS.range_sets.into() {
                    return Err(Status::TOO_MANY_RANGE_SETS);
                }
                let ranges = checked(n_ranges.into(), data, memory)?;
                self.create(&ranges, owner)
            }
            RangeSets::Delete { set } => {
                let found = self.range_set(set, owner)?;
                if Arc::strong_count(&found.ranges) > 1 {
                    return Err(Status::RANGE_SET_IN_USE);
                }
                self.range_sets.remove(&set);
                Ok(0)
            }
        }
    }

    fn create(&mut self, ranges: &[MemoryRange], owner: u16) -> Result<u64, Status> {
        self.left.retain(|ranges| Arc::strong_count(ranges) > 1);
        let others = self.range_sets.values().map(|set| &set.ranges).chain(&self.left);
        let others = others.flat_map(|ranges| ranges.iter());
        let all: Vec<&MemoryRange> = ranges.iter().chain(others).collect();
        for (i, a) in ranges.iter().enumerate() {
            if all[i + 1..].iter().any(|b| overlap(a, b)) {
                return Err(Status::OVERLAPPING_RANGES);
            }
        }
        let free = (1..=u16::MAX).find(|id| !self.range_sets.contains_key(id));
        let id = free.ok_or(Status::TOO_MANY_RANGE_SETS)?;
        self.range_sets.insert(id, RangeSet { owner, ranges: ranges.into() });
        Ok(id.into())
    }

    /// A set of this controller: those of others are none.
    fn range_set(&self, set: u16, owner: u16) -> Result<&RangeSet, Status> {
        let found = self.range_sets.get(&set).filter(|set| set.owner == owner);
        found.ok_or(Status::RANGE_SET_ID)
    }

    /// Forgets the sets of a controller that has gone. What an execution still uses overlaps with new sets
    /// until that has ended.
    pub(super) fn forget(&mut self, owner: u16) {
        let left = &mut self.left;
        self.range_sets.retain(|_, set| {
            let goes = set.owner == owner;
            if goes && Arc::strong_count(&set.ranges) > 1 {
                left.push(Arc::clone(&set.ranges));
            }
            !goes
        });
    }

    /// What is to run for Execute Program.
    pub(super) fn execution(
        &self,
        command: Execute,
        data: Vec<u8>,
        memory: &Memory,
        owner: u16,
    ) -> Result<Execution, Status> {
        if data.len() > MOST_INLINE {
            return Err(Status::COMMAND_SIZE);
        }
        let slot =
            self.slots.get(usize::from(command.program)).ok_or(Status::PROGRAM_INDEX)?;
        let program = match slot {
            Slot::Empty => return Err(Status::NO_PROGRAM),
            Slot::Device(program, Activate::On) | Slot::Active { program, .. } => {
                Arc::clone(program)
            }
            Slot::Device(..) | Slot::Loading { .. } => return Err(Status::NOT_ACTIVATED),
        };
        if command.range_set != 0 && command.n_ranges != 0 {
            return Err(Status::INVALID_FIELD);
        }
        let n = command.n_ranges as usize;
        let (ranges, behind): (Arc<[MemoryRange]>, _) = if command.range_set != 0 {
            let set = self.range_set(command.range_set, owner)?;
            (Arc::clone(&set.ranges), 0)
        } else if n == 0 {
            (Vec::new().into(), 0)
        } else {
            (checked(n, &data, memory)?.into(), 32 * n)
        };
        Ok(Execution {
            program,
            ranges,
            data: data.get(behind..).unwrap_or_default().to_vec(),
            parameters: (command.parameter_1, command.parameter_2),
        })
    }
}

/// The `n` ranges at the beginning of `data`, each checked.
fn checked(n: usize, data: &[u8], memory: &Memory) -> Result<Vec<MemoryRange>, Status> {
    if n == 0 || n > LIMITS.ranges.into() {
        return Err(Status::TOO_MANY_RANGES);
    }
    let ranges = MemoryRange::list(data.get(..32 * n).ok_or(Status::INVALID_FIELD)?)?;
    for range in &ranges {
        if range.nsid != MEMORY {
            return Err(Status::MEMORY_NAMESPACE);
        }
        let is_there =
            range.bytes > 0 && memory.check(range.from, range.bytes.into()).is_ok();
        if !is_there {
            return Err(Status::RANGE_SET);
        }
    }
    Ok(ranges)
}

fn overlap(a: &MemoryRange, b: &MemoryRange) -> bool {
    a.from < b.from + u64::from(b.bytes) && b.from < a.from + u64::from(a.bytes)
}
