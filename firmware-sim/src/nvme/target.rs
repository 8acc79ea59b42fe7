//! The target: sockets and threads around the rest. A thread accepts, and each connection has one that reads
//! and answers; what a program takes long for is answered by the pool.

mod outlet;
mod run;
mod timer;
mod writer;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bothends_nvme::Status;
use bothends_nvme::commands::ConnectData;
use bothends_nvme::logs::{self, discovered};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::KeepAlive;

use super::MOST_ENTRIES;
use super::controller::{Controller, Later, Outlet, Waiting, lock};
use super::pool::Pool;
use super::programs::Execution;
use super::queue::{Answer, Controllers, DISCOVERY, Queue};
use super::room::Spill;
use super::subsystem::Subsystem;
use super::wire::Wire;
use crate::device::{Demand, Lateness, Timing};
use outlet::Connected;
use run::Run;
use timer::{Due, Timer};
use writer::{Writer, block_sigpipe, is_pause};

/// Controllers at a time.
const MOST_CONTROLLERS: usize = 256;
/// Connections at a time.
const MOST_CONNECTIONS: usize = 1024;
/// How long a connection may take for its first two steps.
const TO_CONNECT: Duration = Duration::from_secs(10);
/// How often a silent connection is looked at.
const TICK: Duration = Duration::from_millis(250);
/// Bytes that are read at a time.
const READ_BYTES: usize = 256 << 10;
/// Bytes of answers that are collected before they are sent.
const SEND_BYTES: usize = 1 << 20;
/// How long data are collected where a model says when commands end: completions can wait for their times only once their
/// data are sent.
const COLLECT: Duration = Duration::from_micros(50);

/// Why there is no target.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The address cannot be listened at.
    #[error(
        "cannot listen on {address} for NVMe/TCP: {source}; is another target there?"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system starts no thread.
    #[error("cannot start a thread of the target: {0}")]
    Thread(std::io::Error),
}

/// Where and how a target serves.
#[derive(Debug, Clone)]
pub struct TargetConfig {
    /// The address to listen at; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// The address that discovery tells, with the port it listens at if its port is 0; without one the address at
    /// which the host arrived.
    pub advertise: Option<SocketAddr>,
    /// Programs that run at a time.
    pub cores: usize,
}

/// A target that serves until it is dropped.
#[derive(Debug)]
pub struct Target {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    subsystem: Arc<Subsystem>,
    pool: Pool,
    /// What answers wait with, if a model says for how long.
    timer: Option<Arc<Timer>>,
    advertise: Option<SocketAddr>,
    stops: AtomicBool,
    registry: Mutex<Registry>,
}

/// Controllers and connections that there are.
#[derive(Debug, Default)]
struct Registry {
    controllers: BTreeMap<u16, Arc<Mutex<Controller>>>,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
}

#[derive(Debug)]
struct Connection {
    writer: Arc<Writer>,
    /// The number of its controller, and its own.
    queue: Option<(u16, u16)>,
}

impl Target {
    /// Begins to serve `subsystem`.
    ///
    /// # Errors
    /// If the address is taken, or the system starts no thread.
    pub fn start(
        config: &TargetConfig,
        subsystem: Subsystem,
    ) -> Result<Self, TargetError> {
        let address = config.listen;
        let listen = |source| TargetError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let subsystem = Arc::new(subsystem);
        let timer = subsystem
            .timing()
            .map(|_| Timer::start(Arc::clone(&subsystem)).map(Arc::new))
            .transpose()
            .map_err(TargetError::Thread)?;
        let shared = Arc::new(Shared {
            subsystem,
            timer,
            pool: Pool::start(config.cores).map_err(TargetError::Thread)?,
            advertise: config.advertise.map(|mut own| {
                if own.port() == 0 {
                    own.set_port(address.port());
                }
                own
            }),
            stops: AtomicBool::new(false),
            registry: Mutex::default(),
        });
        let accepting = {
            let shared = Arc::clone(&shared);
            let accept = move || accept(&listener, &shared);
            let builder = thread::Builder::new().name("nvme-accept".to_owned());
            builder.spawn(accept).map_err(TargetError::Thread)?
        };
        Ok(Self { address, shared, accepting: Some(accepting) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The subsystem's name (NQN).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.subsystem.name
    }

    /// The subsystem that it serves.
    #[must_use]
    pub fn subsystem(&self) -> &Subsystem {
        &self.shared.subsystem
    }

    /// How answers have kept to the times of the model, if there is one.
    #[must_use]
    pub fn lateness(&self) -> Option<Lateness> {
        self.shared.subsystem.timing().map(Timing::lateness)
    }

    /// Controllers and connections now.
    #[must_use]
    pub fn in_use(&self) -> (usize, usize) {
        let registry = self.shared.registry();
        (registry.controllers.len(), registry.connections.len())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Release);
        // It wakes who accepts.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        for connection in self.shared.registry().connections.values() {
            connection.writer.end();
        }
        // Each connection ends at its next look at its socket.
        let deadline = Instant::now() + Duration::from_secs(5);
        while Arc::strong_count(&self.shared) > 1 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stops.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // No descriptor is left, for instance: others may end meanwhile.
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        let stream = Arc::new(stream);
        let subsystem = Arc::clone(&shared.subsystem);
        let writer = Arc::new(Writer::new(Arc::clone(&stream), subsystem));
        let Some(id) = shared.admit(&writer) else { continue };
        let own = Arc::clone(shared);
        let serve = move || {
            block_sigpipe();
            let _ = own.serve(&stream, &writer, id);
            writer.end();
            own.leave(id);
        };
        if thread::Builder::new().name(format!("nvme-{id}")).spawn(serve).is_err() {
            shared.leave(id);
        }
    }
}

impl Shared {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, writer: &Arc<Writer>) -> Option<u64> {
        let mut registry = self.registry();
        if registry.connections.len() >= MOST_CONNECTIONS {
            return None;
        }
        let id = registry.next_connection;
        registry.next_connection += 1;
        let writer = Arc::clone(writer);
        registry.connections.insert(id, Connection { writer, queue: None });
        Some(id)
    }

    fn leave(&self, id: u64) {
        self.registry().connections.remove(&id);
    }

    /// Serves a connection until it ends.
    fn serve(
        self: &Arc<Self>,
        stream: &TcpStream,
        writer: &Arc<Writer>,
        id: u64,
    ) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(TICK))?;
        // A host that has vanished without a word, and promised no keep-alive, is noticed in the end.
        setsockopt(stream, KeepAlive, &true)?;
        let at = self.advertise.map_or_else(|| stream.local_addr(), Ok)?;
        let own = Arc::clone(writer);
        let reach = Reach { shared: Arc::clone(self), at, writer: own };
        let queue = Queue::new(Arc::clone(&self.subsystem), reach);
        let (wire, writer) = (Wire::new(), Arc::clone(writer));
        let mut session = Session {
            shared: self,
            id,
            queue,
            wire,
            writer,
            outlet: None,
            due: Vec::new(),
        };
        let served = session.run(stream);
        // From here on no answer is sent, nor does one wait.
        session.writer.end();
        session.outlet = None;
        if let Some(timer) = &self.timer {
            timer.forget_gone();
        }
        session.queue.leave();
        if let Some(controller) = session.queue.administers() {
            let id = {
                let mut own = lock(controller);
                own.abort_all();
                own.id
            };
            self.end(id);
        }
        served
    }

    /// Ends a controller: with it its queues and its sets of ranges.
    fn end(&self, id: u16) {
        // Before the number is free for another.
        self.subsystem.programs().forget(id);
        let mut registry = self.registry();
        registry.controllers.remove(&id);
        for connection in registry.connections.values() {
            if connection.queue.is_some_and(|own| own.0 == id) {
                connection.writer.end();
            }
        }
    }
}

/// A connection in its thread.
struct Session<'a> {
    shared: &'a Arc<Shared>,
    id: u64,
    queue: Queue<Reach>,
    wire: Wire,
    writer: Arc<Writer>,
    /// Where completions go that this thread does not send, once the connection is a queue.
    outlet: Option<Arc<Connected>>,
    /// Completions that may not be sent before data that are still to be sent.
    due: Vec<Due>,
}

impl Session<'_> {
    fn run(&mut self, mut stream: &TcpStream) -> std::io::Result<()> {
        let began = Instant::now();
        let mut arrived = vec![0; READ_BYTES];
        let (mut begin, mut end) = (0, 0);
        let mut out = Vec::new();
        loop {
            match stream.read(&mut arrived[end..]) {
                Ok(0) => return Ok(()),
                Ok(n) => end += n,
                Err(e) if is_pause(&e) => {}
                Err(e) => return Err(e),
            }
            let now = Instant::now();
            // Also of one who sends a byte now and then.
            if self.is_over(began, now) {
                return Ok(());
            }
            let taken = self.take(&arrived[begin..end], now, &mut out);
            self.flush(&mut out)?;
            match taken {
                Some(n) => begin += n,
                None => return Ok(()),
            }
            if begin == end {
                (begin, end) = (0, 0);
            } else if end == arrived.len() {
                arrived.copy_within(begin..end, 0);
                (begin, end) = (0, end - begin);
                if end == arrived.len() {
                    // A PDU that is longer than this, and no longer than one may be.
                    arrived.resize(2 * arrived.len(), 0);
                }
            }
        }
    }

    /// Whether nobody is there any more, or nobody ever came.
    fn is_over(&self, began: Instant, now: Instant) -> bool {
        match self.queue.controller() {
            None => now.duration_since(began) > TO_CONNECT,
            Some(_) => {
                let administered = self.queue.administers();
                self.shared.stops.load(Ordering::Acquire)
                    || administered.is_some_and(|own| lock(own).is_expired(now))
            }
        }
    }

    /// Takes all PDUs that are whole, which have come at `at`, and says how many bytes they have; nothing if the connection
    /// ends.
    fn take(&mut self, arrived: &[u8], at: Instant, out: &mut Vec<u8>) -> Option<usize> {
        let mut requests = Vec::new();
        let mut taken = 0;
        loop {
            let n = self.wire.take(&arrived[taken..], out, &mut requests).ok()?;
            for request in requests.drain(..) {
                self.carry_out(request, at, out)?;
            }
            if n == 0 {
                return Some(taken);
            }
            taken += n;
            if out.len() >= SEND_BYTES {
                self.flush(out).ok()?;
            }
        }
    }

    fn carry_out(
        &mut self,
        request: super::wire::Request,
        arrived: Instant,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let id = request.entry.id();
        let is_conflict = request.failed == Some(Status::COMMAND_ID_CONFLICT);
        let was = self.queue.controller().is_some();
        let format = self.wire.format();
        let answer = self.queue.take(request, format, out);
        if !was && let Some(controller) = self.queue.controller() {
            self.wire.set_entries(self.queue.entries());
            let number = lock(controller).id;
            let mut registry = self.shared.registry();
            // It may have ended meanwhile, and then ended the queues that it knew of.
            let there = registry.controllers.get(&number);
            let is_there = there.is_some_and(|there| Arc::ptr_eq(there, controller));
            let own = registry.connections.get_mut(&self.id).filter(|_| is_there)?;
            own.queue = Some((number, self.queue.number()));
            drop(registry);
            // A reset since Connect has not found this queue among those that it ends.
            if !self.queue.is_current() {
                return None;
            }
            self.open();
        }
        match answer {
            // The command that has this identifier is in flight all the same.
            Answer::Said if is_conflict => {}
            Answer::Said => self.wire.in_flight().end(id),
            Answer::Due(demand, later, result) => {
                self.hold(arrived, &demand, (later, result));
                if out.is_empty() || arrived.elapsed() > COLLECT {
                    self.flush(out).ok()?;
                }
            }
            Answer::Waits => {}
            Answer::Ends => {
                let _ = self.flush(out);
                return None;
            }
            Answer::Execute(execution, later) => self.wait(arrived, (execution, later)),
        }
        Some(())
    }

    /// The connection is a queue: others may have completions for it.
    fn open(&mut self) {
        let outlet = Arc::new(Connected {
            writer: Arc::clone(&self.writer),
            in_flight: self.wire.in_flight(),
            format: self.wire.format(),
        });
        if let Some(controller) = self.queue.administers() {
            lock(controller).outlet = Some(Arc::clone(&outlet) as Arc<dyn Outlet>);
        }
        self.outlet = Some(outlet);
    }

    /// Has a program run, once a thread of the pool is free for it. Until then it can be aborted.
    fn wait(&self, arrived: Instant, (execution, later): (Execution, Later)) {
        let (Some(controller), Some(outlet)) = (self.queue.controller(), &self.outlet)
        else {
            return;
        };
        let (id, outlet) = (later.id(), Arc::downgrade(outlet));
        let to_host: Weak<dyn Outlet> = Weak::<Connected>::clone(&outlet);
        let execution = Arc::new(Waiting::new(execution, later, to_host));
        self.queue.add(id, &execution);
        self.shared.pool.run(Run {
            execution,
            key: (self.queue.number(), id),
            controller: Arc::downgrade(controller),
            outlet,
            subsystem: Arc::clone(&self.shared.subsystem),
            timer: self.shared.timer.clone(),
            arrived,
        });
    }

    /// Has a completion wait for the time at which the model has the command complete, once its data are sent.
    fn hold(&mut self, arrived: Instant, demand: &Demand, (later, result): (Later, u64)) {
        let (Some(outlet), Some(timing)) = (&self.outlet, self.shared.subsystem.timing())
        else {
            return;
        };
        let at = timing.take(arrived, demand);
        let outlet = Arc::downgrade(outlet);
        self.due.push(Due { at, later, result: Ok(result), outlet });
    }

    /// Sends all there is. From then on completions that have waited for it are sent at their times.
    fn flush(&mut self, out: &mut Vec<u8>) -> std::io::Result<()> {
        self.writer.flush(out)?;
        let timer = self.shared.timer.iter();
        timer.for_each(|timer| self.due.drain(..).for_each(|due| timer.send(due)));
        Ok(())
    }
}

/// What a connection leads to.
struct Reach {
    shared: Arc<Shared>,
    at: SocketAddr,
    writer: Arc<Writer>,
}

impl Controllers for Reach {
    fn make(
        &self,
        asked: &ConnectData,
        keep_alive_ms: u32,
    ) -> Result<Arc<Mutex<Controller>>, Status> {
        let is_discovery = asked.subsystem == DISCOVERY;
        if !is_discovery && asked.subsystem != self.shared.subsystem.name {
            return Err(Status::CONNECT_PARAMETER);
        }
        let mut registry = self.shared.registry();
        if registry.controllers.len() >= MOST_CONTROLLERS {
            return Err(Status::CONNECT_BUSY);
        }
        let id = (1..0xfff0).find(|id| !registry.controllers.contains_key(id));
        let id = id.ok_or(Status::CONNECT_BUSY)?;
        let mut own = Controller::new(id, asked.host_id, keep_alive_ms, Instant::now());
        own.is_discovery = is_discovery;
        let own = Arc::new(Mutex::new(own));
        registry.controllers.insert(id, Arc::clone(&own));
        Ok(own)
    }

    fn find(&self, asked: &ConnectData) -> Result<Arc<Mutex<Controller>>, Status> {
        let found = self.shared.registry().controllers.get(&asked.controller).cloned();
        let found = found.ok_or(Status::CONNECT_PARAMETER)?;
        if lock(&found).host_id != asked.host_id {
            return Err(Status::CONNECT_HOST);
        }
        Ok(found)
    }

    fn end_queues(&self, id: u16) {
        for connection in self.shared.registry().connections.values() {
            if connection.queue.is_some_and(|own| own.0 == id && own.1 > 0) {
                connection.writer.end();
            }
        }
    }

    fn discovered(&self) -> Vec<u8> {
        let own = logs::Subsystem {
            name: self.shared.subsystem.name.clone(),
            address: self.at.ip().to_string(),
            port: self.at.port(),
            admin_entries: MOST_ENTRIES.min(128),
        };
        discovered(1, &[own])
    }

    fn spill(&self) -> &dyn Spill {
        &*self.writer
    }
}
