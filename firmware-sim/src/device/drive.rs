//! The device as a drive with commands: blocks, memory and programs, and what each command occupies.
//!
//! ```text
//!  host ◄──link──┬── flash: firmware ► planes ► channels     read, write
//!                └── memory ◄──── the same planes and channels     copy from blocks
//!                        └── cores     execute
//! ```
//!
//! A command is a pure function of the state, the command and the time at which it arrives, in integer
//! nanoseconds; what arrives first is served first. Whatever a command occupies, others wait for, so a host
//! that reads and a program that has data copied to memory share dies and channels. A piece of data crosses
//! the link or memory as soon as it has left the flash. No byte is moved here, and no clock is read: the
//! caller's time may be that of this machine (paced) or one that it makes up (virtual).

use super::vitals::{Meter, Vitals};
use crate::compute::{Compute, Effort, WorkConfig};
use crate::config::DeviceConfig;
use crate::link::LinkConfig;
use crate::media::{
    Blocks, Flash, Flat, MediaBusy, MediaConfig, Memory, Piece, Timeline, transfer_ns,
};
use crate::power::{Busy, COOL_K, Power, Sleep, Spread, Thermal};

/// A command, as far as it takes time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Demand {
    /// The host reads blocks.
    Read(Blocks),
    /// The host writes blocks.
    Write(Blocks),
    /// What was written is to be on the flash.
    Flush,
    /// The host reads so many bytes of memory.
    ReadMemory(u64),
    /// The host writes so many bytes of memory.
    WriteMemory(u64),
    /// So many bytes of memory are filled.
    Fill(u64),
    /// Blocks, and bytes of memory itself, are copied to memory.
    ToMemory(Vec<Blocks>, u64),
    /// Memory is copied to blocks.
    ToBlocks(Vec<Blocks>),
    /// A program has run, of whose beginning [`Drive::begin`] was told.
    Execute(Effort),
}

/// What a command came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passage {
    /// When the host has its completion.
    pub end_ns: u64,
    /// For how long it occupied parts of the device.
    pub busy: Busy,
}

/// A drive in use.
#[derive(Debug)]
pub struct Drive {
    media: DriveMedia,
    memory: Memory,
    compute: Compute,
    work: Option<WorkConfig>,
    link: LinkConfig,
    to_host: Timeline,
    from_host: Timeline,
    /// Of the idle device; what work uses is in `active`.
    power: Power,
    active: Spread,
    thermal: Option<Thermal>,
    sleep: Option<Sleep>,
    meter: Meter,
    /// Programs that have begun and have not been taken yet.
    n_running: u32,
    /// When the last command arrived: none arrives before it. Who only looks at the drive leaves it as it is.
    asked_ns: u64,
    /// Until when energy is counted.
    now_ns: u64,
    busy_until_ns: u64,
}

#[derive(Debug)]
enum DriveMedia {
    Instant,
    Flat(Flat),
    Flash(Box<Flash>),
}

impl Drive {
    /// A drive of `n_blocks` blocks that has not been used yet.
    #[must_use]
    pub fn new(config: DeviceConfig, n_blocks: u64) -> Self {
        let media = match config.media {
            MediaConfig::Instant => DriveMedia::Instant,
            MediaConfig::Flat(flat) => DriveMedia::Flat(Flat::new(flat)),
            MediaConfig::Nand(nand) => {
                DriveMedia::Flash(Box::new(Flash::new(nand, config.writes, n_blocks)))
            }
        };
        Self {
            media,
            memory: Memory::new(config.memory),
            compute: Compute::new(config.compute),
            work: config.work,
            link: config.link,
            to_host: Timeline::default(),
            from_host: Timeline::default(),
            power: Power::new(config.power),
            active: Spread::default(),
            thermal: config.thermal.map(Thermal::new),
            sleep: config.sleep.map(Sleep::new),
            meter: Meter::default(),
            n_running: 0,
            asked_ns: 0,
            now_ns: 0,
            busy_until_ns: 0,
        }
    }

    /// An execution that has arrived at `at_ns` begins: from when on the device is awake for it. [`Drive::take`] is told
    /// of it when it has run, with that time; until then the device does not sleep.
    pub fn begin(&mut self, at_ns: u64) -> u64 {
        self.arrive(at_ns);
        let wake_ns = self.wake(self.asked_ns);
        self.meter.worked(at_ns, self.now_ns);
        self.n_running += 1;
        at_ns.saturating_add(wake_ns)
    }

    /// Takes a command that arrives at `at_ns`. One that arrives before the one before it is taken to
    /// arrive with it; an execution, which occupies nothing but a core, is told of when it has run, and keeps
    /// its time.
    pub fn take(&mut self, at_ns: u64, demand: &Demand) -> Passage {
        let slowdown_milli = self.arrive(at_ns);
        let is_told_later = matches!(demand, Demand::Execute(_));
        let arrived_ns = if is_told_later { at_ns } else { self.asked_ns };
        let at_ns = arrived_ns.saturating_add(self.wake(self.asked_ns));
        self.forget_before(self.asked_ns);
        let mut busy = Busy::default();
        let mut start_ns = at_ns;
        let end_ns = match demand {
            Demand::Read(blocks) => self.read(at_ns, *blocks, &mut busy),
            Demand::Write(blocks) => {
                let here_ns = self.receive(at_ns, blocks.bytes(), &mut busy);
                self.write(here_ns, *blocks, &mut busy)
            }
            Demand::Flush => self.media.flush(at_ns),
            Demand::ReadMemory(bytes) => {
                let (begin_ns, read_ns) = self.access(at_ns, *bytes);
                let sent_ns = self.send(begin_ns, *bytes, &mut busy);
                read_ns.max(sent_ns)
            }
            Demand::WriteMemory(bytes) => {
                let here_ns = self.receive(at_ns, *bytes, &mut busy);
                self.access(here_ns, *bytes).1
            }
            Demand::Fill(bytes) => self.access(at_ns, *bytes).1,
            Demand::ToMemory(blocks, bytes) => {
                self.copy_to_memory(at_ns, blocks, *bytes, &mut busy)
            }
            Demand::ToBlocks(blocks) => blocks.iter().fold(at_ns, |end_ns, blocks| {
                let (_, read_ns) = self.access(at_ns, blocks.bytes());
                end_ns.max(self.write(read_ns, *blocks, &mut busy))
            }),
            Demand::Execute(effort) => {
                let work = self.work.as_ref();
                let turn = self.compute.execute(at_ns, *effort, work, slowdown_milli);
                busy.compute_ns = turn.end_ns - turn.start_ns;
                start_ns = turn.start_ns;
                self.n_running = self.n_running.saturating_sub(1);
                turn.end_ns
            }
        };
        let worked_until_ns = self.worked_until(demand, end_ns);
        self.active.add(start_ns, worked_until_ns, self.power.active_pj(busy));
        let end_ns = end_ns.saturating_add(self.link_latency_ns());
        self.busy_until_ns = self.busy_until_ns.max(self.media.flush(end_ns));
        if let Some(sleep) = &mut self.sleep {
            sleep.work_until(self.busy_until_ns);
        }
        self.meter.worked(arrived_ns, end_ns);
        Passage { end_ns, busy }
    }

    /// How the device is at `at_ns`.
    pub fn vitals(&mut self, at_ns: u64) -> Vitals {
        self.look(at_ns);
        let energy_pj = self.total_pj(self.now_ns);
        let (kelvin, is_hot) = match &self.thermal {
            Some(thermal) => (thermal.kelvin(), thermal.is_hot()),
            None => (COOL_K, false),
        };
        self.meter.vitals(self.now_ns, energy_pj, (kelvin, is_hot))
    }

    /// All energy until `at_ns`, in picojoules. What is still at work then has used its part.
    #[must_use]
    pub fn total_pj(&self, at_ns: u64) -> u128 {
        self.power.total_pj(at_ns) + self.active.used_pj(at_ns)
    }

    /// When everything that it was asked for, and every program that this led to, has ended.
    #[must_use]
    pub fn busy_until(&self) -> u64 {
        self.busy_until_ns
    }

    /// How long it takes to wake for a command that arrives at `at_ns`.
    fn wake(&self, at_ns: u64) -> u64 {
        self.sleep.as_ref().map_or(0, |sleep| sleep.wake_ns(at_ns))
    }

    /// A command arrives; says how slow work is, in thousandths.
    fn arrive(&mut self, at_ns: u64) -> u64 {
        self.asked_ns = self.asked_ns.max(at_ns);
        self.look(at_ns)
    }

    /// Takes in sleep and energy until `at_ns`, or until when they are known already; says how slow work is because of
    /// it, in thousandths.
    fn look(&mut self, at_ns: u64) -> u64 {
        let before_ns = self.now_ns;
        self.now_ns = before_ns.max(at_ns);
        if self.n_running > 0 {
            // What a running program will come to is not known yet, but it is there.
            self.meter.worked(before_ns, self.now_ns);
        }
        if let Some(sleep) = &mut self.sleep {
            if self.n_running > 0 {
                sleep.work_until(self.now_ns);
            }
            self.power.slept(sleep.look(self.now_ns), sleep.power_mw());
        }
        self.active.look(self.now_ns);
        let energy_pj = self.total_pj(self.now_ns);
        self.meter.look(self.now_ns, energy_pj);
        match &mut self.thermal {
            Some(thermal) => thermal.slowdown_milli(self.now_ns, energy_pj),
            None => 1000,
        }
    }

    /// Until when a command is at work that is done for the host at `end_ns`: what was written is in a buffer then, and
    /// goes to the flash later.
    fn worked_until(&self, demand: &Demand, end_ns: u64) -> u64 {
        match demand {
            Demand::Write(_) | Demand::ToBlocks(_) => self.media.flush(end_ns),
            Demand::Read(_)
            | Demand::Flush
            | Demand::ReadMemory(_)
            | Demand::WriteMemory(_)
            | Demand::Fill(_)
            | Demand::ToMemory(..)
            | Demand::Execute(_) => end_ns,
        }
    }

    fn forget_before(&mut self, at_ns: u64) {
        if let DriveMedia::Flash(flash) = &mut self.media {
            flash.forget_before(at_ns);
        }
        self.memory.forget_before(at_ns);
        self.to_host.forget_before(at_ns);
        self.from_host.forget_before(at_ns);
    }

    fn read(&mut self, at_ns: u64, blocks: Blocks, busy: &mut Busy) -> u64 {
        let (link, to_host) = (&self.link, &mut self.to_host);
        let mut end_ns = at_ns;
        let mut link_ns = 0;
        let media = self.media.read(at_ns, blocks, |piece| {
            let (arrived_ns, took_ns) = cross(link, to_host, piece.ready_ns, piece.bytes);
            end_ns = end_ns.max(arrived_ns);
            link_ns += took_ns;
        });
        busy.link_ns += link_ns;
        add(busy, media);
        end_ns
    }

    fn write(&mut self, at_ns: u64, blocks: Blocks, busy: &mut Busy) -> u64 {
        let (taken_ns, media) = self.media.write(at_ns, blocks);
        add(busy, media);
        taken_ns
    }

    fn copy_to_memory(
        &mut self,
        at_ns: u64,
        blocks: &[Blocks],
        bytes: u64,
        busy: &mut Busy,
    ) -> u64 {
        let at_ns = at_ns.saturating_add(self.memory.firmware_ns());
        // Bytes of memory itself are read and written.
        let mut end_ns = self.memory.access(at_ns, bytes.saturating_mul(2)).1;
        for blocks in blocks {
            let memory = &mut self.memory;
            let media = self.media.read(at_ns, *blocks, |piece| {
                end_ns = end_ns.max(memory.access(piece.ready_ns, piece.bytes).1);
            });
            add(busy, media);
        }
        end_ns
    }

    fn access(&mut self, at_ns: u64, bytes: u64) -> (u64, u64) {
        let at_ns = at_ns.saturating_add(self.memory.firmware_ns());
        self.memory.access(at_ns, bytes)
    }

    fn send(&mut self, at_ns: u64, bytes: u64, busy: &mut Busy) -> u64 {
        let (end_ns, took_ns) = cross(&self.link, &mut self.to_host, at_ns, bytes);
        busy.link_ns += took_ns;
        end_ns
    }

    fn receive(&mut self, at_ns: u64, bytes: u64, busy: &mut Busy) -> u64 {
        let (end_ns, took_ns) = cross(&self.link, &mut self.from_host, at_ns, bytes);
        busy.link_ns += took_ns;
        end_ns
    }

    fn link_latency_ns(&self) -> u64 {
        match self.link {
            LinkConfig::Instant => 0,
            LinkConfig::Wire { latency_ns, .. } => latency_ns,
        }
    }
}

impl DriveMedia {
    fn read(
        &mut self,
        at_ns: u64,
        blocks: Blocks,
        mut each: impl FnMut(Piece),
    ) -> MediaBusy {
        match self {
            Self::Instant => {
                each(Piece { ready_ns: at_ns, bytes: blocks.bytes() });
                MediaBusy::default()
            }
            Self::Flat(flat) => {
                let fetched = flat.fetch(at_ns, blocks.bytes());
                each(Piece { ready_ns: fetched.ready_ns, bytes: blocks.bytes() });
                MediaBusy { read_ns: fetched.busy_ns, ..MediaBusy::default() }
            }
            Self::Flash(flash) => flash.read(at_ns, blocks, each),
        }
    }

    fn write(&mut self, at_ns: u64, blocks: Blocks) -> (u64, MediaBusy) {
        match self {
            Self::Instant => (at_ns, MediaBusy::default()),
            Self::Flat(flat) => {
                let stored = flat.fetch(at_ns, blocks.bytes());
                let busy =
                    MediaBusy { program_ns: stored.busy_ns, ..MediaBusy::default() };
                (stored.ready_ns, busy)
            }
            Self::Flash(flash) => flash.write(at_ns, blocks),
        }
    }

    fn flush(&self, at_ns: u64) -> u64 {
        match self {
            Self::Instant | Self::Flat(_) => at_ns,
            Self::Flash(flash) => flash.flush(at_ns),
        }
    }
}

fn add(busy: &mut Busy, media: MediaBusy) {
    busy.media_ns += media.read_ns;
    busy.program_ns += media.program_ns;
    busy.erase_ns += media.erase_ns;
}

/// When bytes have crossed one direction of the link, and for how long they occupied it.
fn cross(link: &LinkConfig, line: &mut Timeline, at_ns: u64, bytes: u64) -> (u64, u64) {
    match link {
        LinkConfig::Instant => (at_ns, 0),
        LinkConfig::Wire { bytes_per_s, .. } => {
            let took_ns = transfer_ns(bytes, *bytes_per_s);
            (line.reserve(at_ns, took_ns).saturating_add(took_ns), took_ns)
        }
    }
}
