//! The subsystem: namespaces that all hosts share, and their commands.

mod demand;

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use bothends_nvme::commands::{
    Activate, Blocks, Durable, Execute, Memory as MemoryCommand, Set,
};
use bothends_nvme::logs::{Hot, Smart};
use bothends_nvme::{Sqe, Status};

use super::blocks::BlockMedia;
use super::controller::{Controller, KELVIN, lock};
use super::memory::Memory;
use super::programs::{Execution, Program, Programs, runtimes};
use super::room::Room;
use super::{BLOCK_BYTES, BLOCKS, MEMORY, PROGRAMS};
use crate::device::{Demand, Timing, Vitals};

/// What a subsystem is made of.
#[derive(Debug)]
pub struct SubsystemConfig {
    /// Its name (NQN).
    pub name: String,
    /// Its serial number, 20 characters of ASCII.
    pub serial: String,
    /// What its blocks hold.
    pub media: BlockMedia,
    /// Bytes of its memory.
    pub memory_bytes: usize,
    /// Programs of its own, active from the beginning.
    pub programs: Vec<Arc<dyn Program>>,
}

/// A subsystem.
#[derive(Debug)]
pub struct Subsystem {
    pub(super) name: String,
    pub(super) serial: String,
    pub(super) media: BlockMedia,
    pub(super) memory: Arc<Memory>,
    programs: Mutex<Programs>,
    timing: Option<Timing>,
    began: Instant,
    reads: AtomicU64,
    bytes_read: AtomicU64,
    writes: AtomicU64,
    bytes_written: AtomicU64,
    kelvin: AtomicU16,
    /// Controllers that learn of events.
    watching: Mutex<Vec<Weak<Mutex<Controller>>>>,
}

/// What an I/O command has come to.
#[derive(Debug)]
pub(super) enum Io {
    /// It is done, with this result.
    Done(u64),
    /// A program is to run for it.
    Execute(Execution),
}

impl Subsystem {
    /// A subsystem.
    #[must_use]
    pub fn new(config: SubsystemConfig) -> Self {
        Self {
            name: config.name,
            serial: config.serial,
            media: config.media,
            memory: Arc::new(Memory::new(config.memory_bytes)),
            programs: Mutex::new(Programs::new(config.programs, runtimes())),
            timing: None,
            began: Instant::now(),
            reads: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            kelvin: AtomicU16::new(KELVIN),
            watching: Mutex::default(),
        }
    }

    /// The subsystem whose commands take the time that a model says.
    #[must_use]
    pub fn with_timing(self, timing: Timing) -> Self {
        Self { timing: Some(timing), ..self }
    }

    /// The subsystem with no programs but those that are loaded for these runtimes.
    #[cfg(test)]
    pub(super) fn with_runtimes(
        self,
        runtimes: std::collections::BTreeMap<u8, Arc<dyn super::programs::Runtime>>,
    ) -> Self {
        Self { programs: Mutex::new(Programs::new(Vec::new(), runtimes)), ..self }
    }

    /// The model of its time, if it has one.
    #[must_use]
    pub fn timing(&self) -> Option<&Timing> {
        self.timing.as_ref()
    }

    /// What a command asks of the model, if there is one.
    pub(super) fn demand(&self, entry: &Sqe, data: &[u8]) -> Option<Demand> {
        self.timing.as_ref().and_then(|_| demand::of(entry, data).ok()?)
    }

    /// How the device is, as far as it is modelled.
    pub(super) fn vitals(&self, now: Instant) -> Option<Vitals> {
        self.timing.as_ref().map(|timing| timing.vitals(now))
    }

    pub(super) fn programs(&self) -> MutexGuard<'_, Programs> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The composite temperature in kelvin.
    pub(super) fn temperature(&self) -> u16 {
        self.kelvin.load(Ordering::Relaxed)
    }

    /// The device is as warm as this: the SMART log says it from now on, and hosts whose threshold it passes are
    /// told. A model calls it; it waits for no host.
    pub fn set_temperature(&self, kelvin: u16) {
        self.kelvin.store(kelvin, Ordering::Relaxed);
        let watching: Vec<_> = self.watching().iter().filter_map(Weak::upgrade).collect();
        for controller in watching {
            lock(&controller).set_temperature(kelvin);
        }
    }

    /// From now on `controller` learns of events.
    pub(super) fn watch(&self, controller: &Arc<Mutex<Controller>>) {
        let mut watching = self.watching();
        watching.retain(|own| own.strong_count() > 0);
        watching.push(Arc::downgrade(controller));
        drop(watching);
        lock(controller).set_temperature(self.temperature());
    }

    fn watching(&self) -> MutexGuard<'_, Vec<Weak<Mutex<Controller>>>> {
        self.watching.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Activates a program, or deactivates it. May take as long as a compiler does.
    pub(super) fn activate(&self, program: u16, active: Activate) -> Result<u64, Status> {
        let preparation = self.programs().activate(program, active)?;
        if let Some(preparation) = preparation {
            // Not while the namespace is locked: others load and execute meanwhile.
            let made = preparation.program()?;
            self.programs().install(&preparation, made)?;
        }
        Ok(0)
    }

    /// The command set of a namespace.
    pub(super) fn set_of(nsid: u32) -> Option<Set> {
        match nsid {
            BLOCKS => Some(Set::Nvm),
            MEMORY => Some(Set::Memory),
            PROGRAMS => Some(Set::Programs),
            _ => None,
        }
    }

    /// What this subsystem has been used for.
    pub(super) fn smart(&self, now: Instant) -> Smart {
        let on = now.duration_since(self.began).as_nanos();
        let vitals = self.vitals(now);
        let hot = if vitals.is_some_and(|own| own.is_hot) { Hot::Yes } else { Hot::No };
        let vitals =
            vitals.unwrap_or(Vitals { kelvin: self.temperature(), ..Vitals::default() });
        Smart {
            temperature: vitals.kelvin,
            hot,
            busy_ns: vitals.busy_ns,
            microjoules: vitals.microjoules,
            microwatts: vitals.microwatts,
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            on_ns: u64::try_from(on).unwrap_or(u64::MAX),
        }
    }

    /// Carries out an I/O command of controller `owner`. Data for the host are appended to `out`, as `room` says.
    pub(super) fn io(
        &self,
        entry: &Sqe,
        data: Vec<u8>,
        (owner, room): (u16, Room<'_>),
        out: &mut Vec<u8>,
    ) -> Result<Io, Status> {
        match entry.namespace() {
            BLOCKS => self.blocks(entry, &data, room, out).map(Io::Done),
            MEMORY => self.memory(entry, &data, room, out).map(Io::Done),
            PROGRAMS => {
                let command = Execute::parse(entry)?;
                if data.len() < command.data_bytes as usize {
                    return Err(Status::INVALID_FIELD);
                }
                self.programs()
                    .execution(command, data, &self.memory, owner)
                    .map(Io::Execute)
            }
            _ => Err(Status::INVALID_NAMESPACE),
        }
    }

    fn blocks(
        &self,
        entry: &Sqe,
        data: &[u8],
        room: Room<'_>,
        out: &mut Vec<u8>,
    ) -> Result<u64, Status> {
        match Blocks::parse(entry)? {
            Blocks::Flush => self.media.flush()?,
            Blocks::Read { first, n_blocks } => {
                if n_blocks.checked_mul(BLOCK_BYTES) != Some(room.bytes) {
                    return Err(Status::DATA_SGL_LENGTH);
                }
                // Not by parts: blocks beyond the end are told before any is read.
                self.media.check(first, n_blocks.into())?;
                let block = |from: u32| first + u64::from(from / BLOCK_BYTES);
                room.fill_from_files(
                    out,
                    |from, to| self.media.read(block(from), to),
                    |from, bytes| self.media.extent(block(from), bytes),
                )?;
                self.count_read(room.bytes);
            }
            Blocks::Write { first, n_blocks, durable } => {
                let bytes = u64::from(n_blocks) * u64::from(BLOCK_BYTES);
                if data.len() as u64 != bytes {
                    return Err(Status::DATA_SGL_LENGTH);
                }
                self.media.write(first, data)?;
                if durable == Durable::Now {
                    self.media.flush()?;
                }
                self.count_write(bytes);
            }
            Blocks::Copy(copy) => self.copy_to_blocks(copy, data)?,
        }
        Ok(0)
    }

    fn copy_to_blocks(
        &self,
        copy: bothends_nvme::commands::CopyToBlocks,
        data: &[u8],
    ) -> Result<(), Status> {
        use bothends_nvme::commands::Source;
        let sources = sources(copy.format, copy.n_sources, data)?;
        let mut first = copy.first;
        for source in sources {
            let Source::Bytes(own) = source else { return Err(Status::INVALID_FIELD) };
            if own.nsid != MEMORY || !own.bytes.is_multiple_of(BLOCK_BYTES) {
                return Err(Status::INVALID_FIELD);
            }
            self.memory.check(own.from, own.bytes.into())?;
            let mut part = vec![0; BLOCK_BYTES as usize];
            for n in 0..own.bytes / BLOCK_BYTES {
                self.memory.read(own.from + u64::from(n * BLOCK_BYTES), &mut part)?;
                self.media.write(first, &part)?;
                first += 1;
            }
            self.count_write(own.bytes.into());
        }
        Ok(())
    }

    fn memory(
        &self,
        entry: &Sqe,
        data: &[u8],
        room: Room<'_>,
        out: &mut Vec<u8>,
    ) -> Result<u64, Status> {
        let own = &self.memory;
        match MemoryCommand::parse(entry)? {
            MemoryCommand::Flush => {}
            MemoryCommand::Read { from, bytes } => {
                own.check(from, bytes.into())?;
                if bytes != room.bytes {
                    return Err(Status::DATA_SGL_LENGTH);
                }
                room.fill(out, |at, to| own.read(from + u64::from(at), to))?;
                self.count_read(bytes);
            }
            MemoryCommand::Write { to, bytes } => {
                own.check(to, bytes.into())?;
                if data.len() != bytes as usize {
                    return Err(Status::DATA_SGL_LENGTH);
                }
                own.put(to, data)?;
                self.count_write(bytes.into());
            }
            MemoryCommand::Fill { from, bytes } => {
                own.check(from, bytes.into())?;
                own.write(from, bytes as usize, |_, piece| {
                    piece.fill(0);
                    Ok(())
                })?;
            }
            MemoryCommand::Copy { bytes, to, n_sources, format } => {
                let sources = sources(format, n_sources, data)?;
                own.copy((to, bytes), &sources, &self.media)?;
            }
        }
        Ok(0)
    }

    fn count_read(&self, bytes: u32) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes_read.fetch_add(bytes.into(), Ordering::Relaxed);
    }

    fn count_write(&self, bytes: u64) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn sources(
    format: bothends_nvme::commands::SourceFormat,
    n: u32,
    data: &[u8],
) -> Result<Vec<bothends_nvme::commands::Source>, Status> {
    if data.len() != 32 * n as usize {
        return Err(Status::DATA_SGL_LENGTH);
    }
    format.sources(data)
}
