//! A queue: what a command on it comes to. The first command of a connection has to be Connect, which says what
//! queue of what controller it is.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bothends_nvme::commands::{
    Admin, ConnectData, Event, Fabrics, Identify, Log, LogRequest,
};
use bothends_nvme::identify::{
    self, BlockNamespace, ControllerKind, Measures, MemoryNamespace,
};
use bothends_nvme::logs::{Effects, Hot, Measuring, Power};
use bothends_nvme::{Cqe, Data, Sqe, Status, pdu};

use super::controller::{Aborted, Change, Controller, Later, MOST_EVENTS, lock};
use super::programs::{Execution, Programs};
use super::subsystem::{Io, Subsystem};
use super::wire::Request;
use super::{BLOCK_BYTES, BLOCKS, IN_CAPSULE, MEMORY, MOST_DATA, MOST_ENTRIES, PROGRAMS};
use crate::device::{Demand, Vitals};

/// The name by which every host asks where subsystems are.
pub(super) const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// What a connection leads to.
pub(super) trait Controllers {
    /// Makes a controller for a host.
    ///
    /// # Errors
    /// Connect's statuses.
    fn make(
        &self,
        asked: &ConnectData,
        keep_alive_ms: u32,
    ) -> Result<Arc<Mutex<Controller>>, Status>;

    /// The controller of this number, of the same host.
    ///
    /// # Errors
    /// Connect's statuses.
    fn find(&self, asked: &ConnectData) -> Result<Arc<Mutex<Controller>>, Status>;

    /// Ends the queues for I/O of a controller.
    fn end_queues(&self, id: u16);

    /// What discovery tells.
    fn discovered(&self) -> Vec<u8>;
}

/// One end of a queue.
#[derive(Debug)]
pub(super) struct Queue<C> {
    subsystem: Arc<Subsystem>,
    controllers: C,
    of: Option<Owner>,
    entries: u32,
    /// How far the host's entries have been taken, modulo their number. Only the connection's thread changes it.
    head: Arc<AtomicU16>,
    /// What the command that was taken last asks of the model.
    demand: Option<Demand>,
}

#[derive(Debug)]
struct Owner {
    controller: Arc<Mutex<Controller>>,
    id: u16,
    queue: u16,
}

/// What has become of a request.
pub(super) enum Answer {
    /// Everything there is to say is in `out`.
    Said,
    /// A program is to run; then [`Later::completion`] is sent.
    Execute(Execution, Later),
    /// The host waits for an event, which there may never be.
    Waits,
    /// The connection ends, once `out` is sent.
    Ends,
}

impl<C: Controllers> Queue<C> {
    pub(super) fn new(subsystem: Arc<Subsystem>, controllers: C) -> Self {
        Self {
            subsystem,
            controllers,
            of: None,
            entries: 32,
            head: Arc::default(),
            demand: None,
        }
    }

    /// What it leads to.
    pub(super) fn subsystem(&self) -> &Subsystem {
        &self.subsystem
    }

    /// Entries of the queue, once it is connected.
    pub(super) fn entries(&self) -> u32 {
        self.entries
    }

    /// The number of this queue; 0 is the admin queue, and one that is not connected.
    pub(super) fn number(&self) -> u16 {
        self.of.as_ref().map_or(0, |of| of.queue)
    }

    /// The controller, if this is its admin queue.
    pub(super) fn administers(&self) -> Option<&Arc<Mutex<Controller>>> {
        self.of.as_ref().filter(|of| of.queue == 0).map(|of| &of.controller)
    }

    /// The controller.
    pub(super) fn controller(&self) -> Option<&Arc<Mutex<Controller>>> {
        self.of.as_ref().map(|of| &of.controller)
    }

    /// What the command that was taken last asks of the model, if that is to say when it is complete.
    pub(super) fn demand(&mut self) -> Option<Demand> {
        self.demand.take()
    }

    /// Carries out a request, or says what has to be run for it.
    pub(super) fn take(
        &mut self,
        request: Request,
        format: pdu::Format,
        out: &mut Vec<u8>,
    ) -> Answer {
        let head = (u32::from(self.head.load(Ordering::Relaxed)) + 1) % self.entries;
        self.head.store(u16::try_from(head).unwrap_or(0), Ordering::Relaxed);
        self.demand = None;
        let entry = request.entry;
        let begin = out.len();
        let done = match request.failed {
            Some(status) => Err(status),
            None if Fabrics::is(&entry) => self.fabrics(&entry, &request.data),
            None => self.command(&entry, request.data, format, out),
        };
        let mut completion = self.completion(entry.id());
        match done {
            Ok(Done::Result(result)) => completion.result = result,
            Ok(Done::Execute(execution)) => {
                return Answer::Execute(execution, self.later(completion));
            }
            Ok(Done::Waits) => return Answer::Waits,
            Ok(Done::Ends) => {
                format.response(&completion, out);
                return Answer::Ends;
            }
            Err(status) => {
                out.truncate(begin);
                completion.status = status;
            }
        }
        format.response(&completion, out);
        Answer::Said
    }

    /// A completion of this queue.
    pub(super) fn completion(&self, id: u16) -> Cqe {
        Cqe {
            result: 0,
            sq_head: self.head.load(Ordering::Relaxed),
            sq_id: self.of.as_ref().map_or(0, |of| of.queue),
            id,
            status: Status::SUCCESS,
        }
    }

    fn later(&self, entry: Cqe) -> Later {
        Later::new(entry, Arc::clone(&self.head))
    }

    fn fabrics(&mut self, entry: &Sqe, data: &[u8]) -> Result<Done, Status> {
        let command = Fabrics::parse(entry)?;
        if let Fabrics::Connect { queue, size, keep_alive_ms, .. } = command {
            return self.connect((queue, size), keep_alive_ms, data);
        }
        let of = self.of.as_ref().ok_or(Status::COMMAND_SEQUENCE)?;
        match command {
            Fabrics::Disconnect if of.queue > 0 => Ok(Done::Ends),
            _ if of.queue > 0 => Err(Status::INVALID_QUEUE_ID),
            Fabrics::PropertyGet { offset, wide } => {
                lock(&of.controller).property(offset, wide).map(Done::Result)
            }
            Fabrics::PropertySet { offset, value, .. } => {
                let kelvin = self.subsystem.temperature();
                let change = lock(&of.controller).set_property(offset, value, kelvin)?;
                match change {
                    Change::None => {}
                    Change::Reset => {
                        self.controllers.end_queues(of.id);
                        self.subsystem.programs().forget(of.id);
                    }
                    Change::Shutdown => {
                        self.controllers.end_queues(of.id);
                        self.subsystem.media.flush()?;
                    }
                }
                Ok(Done::Result(0))
            }
            Fabrics::Connect { .. } | Fabrics::Disconnect => Err(Status::INVALID_FIELD),
        }
    }

    fn connect(
        &mut self,
        (queue, size): (u16, u16),
        keep_alive_ms: u32,
        data: &[u8],
    ) -> Result<Done, Status> {
        if self.of.is_some() {
            return Err(Status::COMMAND_SEQUENCE);
        }
        let asked = ConnectData::parse(data)?;
        if size == 0 || size >= MOST_ENTRIES {
            return Err(Status::CONNECT_PARAMETER);
        }
        let controller = if queue == 0 {
            if asked.controller != ConnectData::NEW {
                return Err(Status::CONNECT_PARAMETER);
            }
            self.controllers.make(&asked, keep_alive_ms)?
        } else {
            self.controllers.find(&asked)?
        };
        let id = {
            let mut own = lock(&controller);
            if queue > 0 {
                if !own.is_enabled() || own.is_discovery {
                    return Err(Status::COMMAND_SEQUENCE);
                }
                if queue > super::MOST_QUEUES || own.n_queues >= super::MOST_QUEUES {
                    return Err(Status::CONNECT_BUSY);
                }
                own.n_queues += 1;
            }
            own.id
        };
        if queue == 0 {
            self.subsystem.watch(&controller);
        }
        self.entries = u32::from(size) + 1;
        self.of = Some(Owner { controller, id, queue });
        Ok(Done::Result(id.into()))
    }

    fn command(
        &mut self,
        entry: &Sqe,
        data: Vec<u8>,
        format: pdu::Format,
        out: &mut Vec<u8>,
    ) -> Result<Done, Status> {
        let of = self.of.as_ref().ok_or(Status::COMMAND_SEQUENCE)?;
        let is_admin = of.queue == 0;
        let room = room(entry)?;
        if is_admin {
            let later = self.later(self.completion(entry.id()));
            let mut controller = lock(&of.controller);
            controller.hear(Instant::now());
            if !controller.is_enabled() {
                return Err(Status::COMMAND_SEQUENCE);
            }
            let answer =
                Asked { subsystem: &self.subsystem, controllers: &self.controllers }
                    .admin(&mut controller, entry, &data, later);
            // It may have taken a while, in which the host was not heard.
            controller.hear(Instant::now());
            return match answer? {
                Admitted::Data(bytes) => {
                    let n = bytes.len().min(room as usize);
                    send(format, entry.id(), &bytes[..n], out);
                    Ok(Done::Result(0))
                }
                Admitted::Done(done) => Ok(done),
            };
        }
        let begin = out.len();
        if room > 0 {
            format.before_data_to_host(head(entry.id(), room), out);
        }
        let data_at = out.len();
        let demand = self.subsystem.demand(entry, &data);
        match self.subsystem.io(entry, data, (of.id, room), out)? {
            Io::Done(result) => {
                self.demand = demand;
                if out.len() == data_at {
                    // A command without data for the host.
                    out.truncate(begin);
                } else if format.data_digest == pdu::Digest::On {
                    format.after_data_at(data_at, out);
                }
                Ok(Done::Result(result))
            }
            Io::Execute(execution) => {
                out.truncate(begin);
                Ok(Done::Execute(execution))
            }
        }
    }
}

enum Done {
    Result(u64),
    Execute(Execution),
    Waits,
    Ends,
}

enum Admitted {
    Data(Vec<u8>),
    Done(Done),
}

/// What admin commands look at.
struct Asked<'a> {
    subsystem: &'a Subsystem,
    controllers: &'a dyn Controllers,
}

impl Asked<'_> {
    fn admin(
        &self,
        controller: &mut Controller,
        entry: &Sqe,
        data: &[u8],
        later: Later,
    ) -> Result<Admitted, Status> {
        let result = |value| Ok(Admitted::Done(Done::Result(value)));
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
            // Bit 0 says that it was not aborted: what has begun ends by itself.
            Admin::Abort { queue, id } => {
                result(u64::from(controller.abort(queue, id) == Aborted::No))
            }
            Admin::AwaitEvent => match controller.events.await_one(later)? {
                Some(event) => result(event),
                None => Ok(Admitted::Done(Done::Waits)),
            },
            Admin::Program(_) | Admin::Activation { .. } | Admin::RangeSets(_)
                if controller.is_discovery || entry.namespace() != PROGRAMS =>
            {
                Err(Status::INVALID_NAMESPACE)
            }
            Admin::Program(load) => result(self.subsystem.programs().load(load, data)?),
            Admin::Activation { program, active } => {
                result(self.subsystem.activate(program, active)?)
            }
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
        controller: &Controller,
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
    let hash = xxhash_rust::xxh3::xxh3_64(subsystem.serial.as_bytes());
    let mut own = [0; 16];
    own[..8].copy_from_slice(&hash.to_be_bytes());
    own[12..].copy_from_slice(&nsid.to_be_bytes());
    own
}

/// Bytes for the host that the command has room for.
fn room(entry: &Sqe) -> Result<u32, Status> {
    use bothends_nvme::Direction;
    match (entry.direction(), entry.data()?) {
        (Direction::ToHost, Data::Transport { length }) => Ok(length),
        (Direction::ToHost, Data::InCapsule { .. }) => Err(Status::SGL_TYPE),
        (Direction::Both, _) => Err(Status::INVALID_OPCODE),
        _ => Ok(0),
    }
}

fn head(id: u16, bytes: u32) -> pdu::DataHead {
    pdu::DataHead { id, tag: 0, from: 0, bytes, last: pdu::Last::Yes }
}

fn send(format: pdu::Format, id: u16, data: &[u8], out: &mut Vec<u8>) {
    let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
    if bytes > 0 {
        format.before_data_to_host(head(id, bytes), out);
        out.extend_from_slice(data);
        format.after_data(data, out);
    }
}
