//! A queue without a socket: bytes in, bytes out, in this thread. For tests, for whoever fuzzes, and for hosts that make up
//! their own time: a model says when a command completes, and nobody waits until then.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bothends_nvme::commands::ConnectData;
use bothends_nvme::logs::{self, discovered};
use bothends_nvme::pdu::{Fatal, Format};
use bothends_nvme::{Cqe, Status};

use super::controller::{Controller, Outlet, lock};
use super::programs::{Stop, effort};
use super::queue::{Answer, Controllers, DISCOVERY, Queue};
use super::subsystem::Subsystem;
use super::wire::{InFlight, Request, Wire};
use crate::device::Demand;

/// A host's controllers, of which each connection of it may be a queue.
#[derive(Debug, Clone)]
pub struct InProcess {
    subsystem: Arc<Subsystem>,
    controllers: Arc<Mutex<Vec<Arc<Mutex<Controller>>>>>,
}

impl InProcess {
    /// No controller yet.
    #[must_use]
    pub fn new(subsystem: Subsystem) -> Self {
        Self { subsystem: Arc::new(subsystem), controllers: Arc::default() }
    }

    /// A connection.
    #[must_use]
    pub fn connect(&self) -> InProcessQueue {
        InProcessQueue {
            wire: Wire::new(),
            queue: Queue::new(Arc::clone(&self.subsystem), self.clone()),
            arrived: Vec::new(),
            events: Arc::default(),
        }
    }

    /// What the queues lead to.
    #[must_use]
    pub fn subsystem(&self) -> &Subsystem {
        &self.subsystem
    }
}

impl Controllers for InProcess {
    fn make(
        &self,
        asked: &ConnectData,
        keep_alive_ms: u32,
    ) -> Result<Arc<Mutex<Controller>>, Status> {
        let is_discovery = asked.subsystem == DISCOVERY;
        if !is_discovery && asked.subsystem != self.subsystem.name {
            return Err(Status::CONNECT_PARAMETER);
        }
        let mut all =
            self.controllers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let id = u16::try_from(all.len() + 1).map_err(|_| Status::CONNECT_BUSY)?;
        let mut own = Controller::new(id, asked.host_id, keep_alive_ms, Instant::now());
        own.is_discovery = is_discovery;
        all.push(Arc::new(Mutex::new(own)));
        Ok(Arc::clone(&all[all.len() - 1]))
    }

    fn find(&self, asked: &ConnectData) -> Result<Arc<Mutex<Controller>>, Status> {
        let all =
            self.controllers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let found = all.iter().find(|own| lock(own).id == asked.controller).cloned();
        let found = found.ok_or(Status::CONNECT_PARAMETER)?;
        if lock(&found).host_id != asked.host_id {
            return Err(Status::CONNECT_HOST);
        }
        Ok(found)
    }

    /// There are no threads whose connections could end by themselves.
    fn end_queues(&self, _: u16) {}

    fn discovered(&self) -> Vec<u8> {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        discovered(
            1,
            &[logs::Subsystem {
                name: self.subsystem.name.clone(),
                address: at.ip().to_string(),
                port: at.port(),
                admin_entries: 128,
            }],
        )
    }
}

/// One queue of [`InProcess`].
#[derive(Debug)]
pub struct InProcessQueue {
    wire: Wire,
    queue: Queue<InProcess>,
    arrived: Vec<u8>,
    /// Completions that no command of this queue has caused.
    events: Arc<Mutex<Vec<u8>>>,
}

/// Where they go until the host looks.
#[derive(Debug)]
struct Collected {
    out: Arc<Mutex<Vec<u8>>>,
    in_flight: Arc<InFlight>,
    format: Format,
}

impl Outlet for Collected {
    fn post(&self, completion: &Cqe) {
        let mut out = self.out.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.format.response(completion, &mut out);
        self.in_flight.end(completion.id);
    }
}

impl InProcessQueue {
    /// Takes bytes of the host and gives those for it. Programs run at once, in this thread.
    ///
    /// # Errors
    /// The connection has ended; what is still for the host is in `out`.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Fatal> {
        self.take_at(Instant::now(), bytes, out).map(drop)
    }

    /// The same for bytes that come at `at`, and when the last command completes of which all bytes have come: `at` without
    /// a model. Time may be virtual, as long as it does not go back.
    ///
    /// # Errors
    /// As of [`InProcessQueue::take`].
    pub fn take_at(
        &mut self,
        at: Instant,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Instant, Fatal> {
        self.arrived.extend_from_slice(bytes);
        let arrived = std::mem::take(&mut self.arrived);
        let (mut requests, mut taken, mut complete) = (Vec::new(), 0, at);
        loop {
            let n = self.wire.take(&arrived[taken..], out, &mut requests)?;
            for request in requests.drain(..) {
                complete = complete.max(self.carry_out(request, at, out)?);
            }
            if n == 0 {
                break;
            }
            taken += n;
        }
        self.arrived = arrived[taken..].to_vec();
        let mut events =
            self.events.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        out.append(&mut events);
        drop(events);
        Ok(complete)
    }

    /// Carries out a command that has come at `at`, and says when it completes.
    fn carry_out(
        &mut self,
        request: Request,
        at: Instant,
        out: &mut Vec<u8>,
    ) -> Result<Instant, Fatal> {
        let format = self.wire.format();
        let id = request.entry.id();
        let is_conflict = request.failed == Some(Status::COMMAND_ID_CONFLICT);
        let answer = self.queue.take(request, format, out);
        self.wire.set_entries(self.queue.entries());
        if let Some(controller) = self.queue.administers()
            && lock(controller).outlet.is_none()
        {
            lock(controller).outlet = Some(Arc::new(Collected {
                out: Arc::clone(&self.events),
                in_flight: self.wire.in_flight(),
                format,
            }));
        }
        let subsystem = self.queue.subsystem();
        let timing = subsystem.timing();
        let take = |at, demand: &Demand| timing.map_or(at, |own| own.take(at, demand));
        let (later, result, complete) = match answer {
            Answer::Said if is_conflict => return Ok(at),
            Answer::Said => {
                self.wire.in_flight().end(id);
                return Ok(at);
            }
            Answer::Waits => return Ok(at),
            Answer::Ends => return Err(Fatal::Sequence),
            // Nobody waits in here.
            Answer::Due(demand, later, result) => (later, Ok(result), take(at, &demand)),
            Answer::Execute(execution, later) => {
                let awake = timing.map_or(at, |own| own.begin(at));
                let stop = Stop::default();
                let run = || execution.run(&subsystem.memory, &stop);
                let (result, effort) = effort(run);
                (later, result, take(awake, &Demand::Execute(effort)))
            }
        };
        format.response(&later.completion(result), out);
        self.wire.in_flight().end(id);
        Ok(complete)
    }
}
