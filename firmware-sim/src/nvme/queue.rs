//! A queue: what a command on it comes to. The first command of a connection has to be Connect, which says what
//! queue of what controller it is.

mod admin;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bothends_nvme::commands::{Activate, Admin, ConnectData, Fabrics};
use bothends_nvme::{Cqe, Data, Sqe, Status, pdu};

use super::controller::{Change, Controller, Later, Waiting, lock};
use super::programs::Execution;
use super::room::{Keep, Room, Spill};
use super::subsystem::{Io, Subsystem};
use super::wire::Request;
use super::{MOST_ENTRIES, PROGRAMS};
use crate::device::Demand;
use admin::{Admitted, Asked};

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

    /// Where parts of a command's data go.
    fn spill(&self) -> &dyn Spill {
        &Keep
    }
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
}

#[derive(Debug)]
struct Owner {
    controller: Arc<Mutex<Controller>>,
    id: u16,
    queue: u16,
    /// That of the controller's queues for I/O when this one came.
    generation: u64,
}

/// What has become of a request.
pub(super) enum Answer {
    /// Everything there is to say is in `out`.
    Said,
    /// Its data are in `out`; its completion, with this result, follows at the time that the model says.
    Due(Demand, Later, u64),
    /// A program is to run; then [`Later::completion`] is sent.
    Execute(Execution, Later),
    /// The host waits for an event, which there may never be.
    Waits,
    /// The connection ends, once `out` is sent.
    Ends,
}

impl<C: Controllers> Queue<C> {
    pub(super) fn new(subsystem: Arc<Subsystem>, controllers: C) -> Self {
        Self { subsystem, controllers, of: None, entries: 32, head: Arc::default() }
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

    /// Whether the controller still has this queue.
    pub(super) fn is_current(&self) -> bool {
        let is_of = |of: &Owner| of.queue == 0 || lock(&of.controller).has(of.generation);
        self.of.as_ref().is_some_and(is_of)
    }

    /// An execution of this queue, until it is forgotten.
    pub(super) fn add(&self, id: u16, execution: &Arc<Waiting>) {
        if let Some(of) = &self.of {
            lock(&of.controller).add((of.queue, id), of.generation, execution);
        }
    }

    /// The connection has ended.
    pub(super) fn leave(&self) {
        if let Some(of) = self.of.as_ref().filter(|of| of.queue > 0) {
            lock(&of.controller).leave(of.queue, of.generation);
        }
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
        let entry = request.entry;
        let done = match request.failed {
            Some(status) => Err(status),
            None if Fabrics::is(&entry) => self.fabrics(&entry, &request.data),
            None => self.command(&entry, request.data, format, out),
        };
        let mut completion = self.completion(entry.id());
        match done {
            Ok(Done::Result(result)) => completion.result = result,
            Ok(Done::Due(demand, result)) => {
                return Answer::Due(demand, self.later(completion), result);
            }
            Ok(Done::Execute(execution)) => {
                return Answer::Execute(execution, self.later(completion));
            }
            Ok(Done::Waits) => return Answer::Waits,
            Ok(Done::Ends) => {
                format.response(&completion, out);
                return Answer::Ends;
            }
            Err(status) => completion.status = status,
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
                if change != Change::None {
                    self.controllers.end_queues(of.id);
                }
                if change.is_reset() {
                    self.subsystem.programs().forget(of.id);
                }
                if change.is_shutdown() {
                    self.subsystem.media.flush()?;
                    lock(&of.controller).finish_shutdown();
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
        let (id, generation) = {
            let mut own = lock(&controller);
            (own.id, if queue > 0 { own.join(queue)? } else { 0 })
        };
        if queue == 0 {
            self.subsystem.watch(&controller);
        }
        self.entries = u32::from(size) + 1;
        self.of = Some(Owner { controller, id, queue, generation });
        Ok(Done::Result(id.into()))
    }

    fn command(
        &self,
        entry: &Sqe,
        data: Vec<u8>,
        format: pdu::Format,
        out: &mut Vec<u8>,
    ) -> Result<Done, Status> {
        let of = self.of.as_ref().ok_or(Status::COMMAND_SEQUENCE)?;
        let room = room(entry)?;
        if of.queue > 0 {
            let spill = self.controllers.spill();
            let room = Room { id: entry.id(), bytes: room, format, spill };
            return self.io(entry, data, (of.id, room), out);
        }
        match self.admin(of, entry, &data)? {
            Admitted::Data(bytes) => {
                let n = bytes.len().min(room as usize);
                send(format, entry.id(), &bytes[..n], out);
                Ok(Done::Result(0))
            }
            Admitted::Result(result) => Ok(Done::Result(result)),
            Admitted::Waits => Ok(Done::Waits),
        }
    }

    fn admin(&self, of: &Owner, entry: &Sqe, data: &[u8]) -> Result<Admitted, Status> {
        let later = self.later(self.completion(entry.id()));
        let mut controller = lock(&of.controller);
        controller.hear(Instant::now());
        if !controller.is_enabled() {
            return Err(Status::COMMAND_SEQUENCE);
        }
        if let Ok(Admin::Activation { program, active }) = Admin::parse(entry)
            && !controller.is_discovery
            && entry.namespace() == PROGRAMS
        {
            drop(controller);
            return self.activation(of, program, active);
        }
        let asked = Asked { subsystem: &self.subsystem, controllers: &self.controllers };
        asked.admin(&mut controller, entry, data, later)
    }

    /// Activates a program, or deactivates it. A compiler may run for it: whoever wants the controller meanwhile, as
    /// all answers with a modelled time do, has it.
    fn activation(
        &self,
        of: &Owner,
        program: u16,
        active: Activate,
    ) -> Result<Admitted, Status> {
        let result = self.subsystem.activate(program, active);
        // It may have taken a while, in which the host was not heard.
        lock(&of.controller).hear(Instant::now());
        result.map(Admitted::Result)
    }

    fn io(
        &self,
        entry: &Sqe,
        data: Vec<u8>,
        room: (u16, Room<'_>),
        out: &mut Vec<u8>,
    ) -> Result<Done, Status> {
        let demand = self.subsystem.demand(entry, &data);
        Ok(match self.subsystem.io(entry, data, room, out)? {
            Io::Done(result) => {
                demand.map_or(Done::Result(result), |own| Done::Due(own, result))
            }
            Io::Execute(execution) => Done::Execute(execution),
        })
    }
}

enum Done {
    Result(u64),
    /// The same, at the time that the model says.
    Due(Demand, u64),
    Execute(Execution),
    Waits,
    Ends,
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

fn send(format: pdu::Format, id: u16, data: &[u8], out: &mut Vec<u8>) {
    let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
    if bytes > 0 {
        let last = pdu::Last::Yes;
        let head = pdu::DataHead { id, tag: 0, from: 0, bytes, last };
        format.before_data_to_host(head, out);
        out.extend_from_slice(data);
        format.after_data(data, out);
    }
}
