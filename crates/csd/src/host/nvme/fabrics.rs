//! NVMe/TCP in user space: an admin queue and an I/O queue, each a connection, without root and without the
//! kernel's driver.
//!
//! `nvme::host` has the bytes of a connection; here are its sockets, its deadlines, how a controller is
//! begun and ended, and the keep-alives in between.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use bothends_nvme::commands::{Admin, ConnectData, Fabrics, Feature, Wide};
use bothends_nvme::host::{Connection, Content, Heard, Wish};
use bothends_nvme::{Cqe, Data, Sqe, Status};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::carrier::{Carrier, accepted, late};
use super::clock::Clock;
use crate::CsdError;
use crate::words::address::NvmeTarget;

/// Entries of the admin queue and of the I/O queue. One less may be under way.
const ADMIN_ENTRIES: u16 = 32;
const IO_ENTRIES: u16 = 64;
/// A host that says nothing for so long is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// What a connection holds of what has arrived: two of the longest PDUs.
const ARRIVED_BYTES: usize = (2 << 20) + (8 << 10);
/// Read at most at a time, and as much of the above is used again and again while PDUs are no longer: what has arrived is
/// then still in the processor's cache when it is taken.
const READ_BYTES: usize = 256 << 10;
/// How often it is asked whether a controller is ready.
const LOOK: Duration = Duration::from_millis(2);
/// How long a device that has no queue left is left alone.
const RETRY: Duration = Duration::from_secs(2);

const CAP: u32 = 0x00;
const CC: u32 = 0x14;
const CSTS: u32 = 0x1c;
/// Entries of 64 and 16 bytes, all command sets (CSS 110b), and enabled.
const ENABLE: u64 = 0x0046_0061;
/// The same with a notification of shutdown.
const SHUTDOWN: u64 = 0x0046_4061;

/// A controller over TCP.
#[derive(Debug)]
pub(super) struct Fabric {
    admin: Queue,
    io: Queue,
    timeout: Duration,
    clock: Clock,
    /// How often the controller is told that this host is there, and when it is next.
    rhythm: Duration,
    next_alive: Instant,
    /// Until when on the clock that has to be answered, with its identifier.
    alive: Option<(u16, Duration)>,
}

/// One connection.
#[derive(Debug)]
struct Queue {
    socket: TcpStream,
    wire: Connection,
    arrived: Vec<u8>,
    begin: usize,
    end: usize,
    out: Vec<u8>,
    sent: usize,
}

/// What this process calls itself. Two that had one name could not be told apart by a device.
#[derive(Debug)]
struct HostName {
    id: [u8; 16],
    name: String,
}

impl HostName {
    fn new() -> Self {
        let random = || RandomState::new().hash_one(Instant::now());
        let mut id = [0; 16];
        id[..8].copy_from_slice(&random().to_le_bytes());
        id[8..].copy_from_slice(&random().to_le_bytes());
        // A UUID of random bits: version 4, variant 1.
        id[6] = id[6] & 0x0f | 0x40;
        id[8] = id[8] & 0x3f | 0x80;
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let part = |from: usize, to: usize| &hex[from..to];
        let uuid = [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)];
        let name = format!("nqn.2014-08.org.nvmexpress:uuid:{}", uuid.join("-"));
        Self { id, name }
    }
}

impl Fabric {
    /// Reaches the subsystem of `target` and has its controller ready.
    pub(super) fn connect(
        target: &NvmeTarget,
        timeout: Duration,
    ) -> Result<Self, CsdError> {
        let deadline = Instant::now() + timeout;
        let host = HostName::new();
        let wish = Wish { header_digest: target.digests, data_digest: target.digests };
        let mut admin = Queue::connect(target, (wish, ADMIN_ENTRIES), deadline)?;
        let keep_alive = keep_alive(timeout);
        let alive_ms = u32::try_from(keep_alive.as_millis()).unwrap_or(u32::MAX);
        let controller =
            admin.join(target, (0, ConnectData::NEW, alive_ms), (&host, deadline))?;
        admin.enable(deadline)?;
        let queues = Admin::SetFeature { feature: Feature::Queues, value: 0 };
        let step = ("set the number of queues", deadline);
        let (cqe, _) = admin.ask(queues.entry(0, Data::NONE), Content::None, step)?;
        accepted(cqe.status, step.0)?;
        let mut io = Queue::connect(target, (wish, IO_ENTRIES), deadline)?;
        io.join(target, (1, controller, 0), (&host, deadline))?;
        Ok(Self::over([admin, io], timeout, keep_alive / 2))
    }

    fn over([admin, io]: [Queue; 2], timeout: Duration, rhythm: Duration) -> Self {
        let now = Instant::now();
        let (clock, next_alive) = (Clock::new(now), now + rhythm);
        Self { admin, io, timeout, clock, rhythm, next_alive, alive: None }
    }

    /// Says that this host is there, when it is time. How long until it is time again, or until an answer is late.
    fn stay_alive(&mut self) -> Duration {
        let now = Instant::now();
        let waited = self.clock.look(now);
        if self.alive.is_none() && now >= self.next_alive {
            let entry = Admin::KeepAlive.entry(0, Data::NONE);
            let sent = self.admin.send(entry, Content::None);
            self.alive = sent.map(|id| (id, waited + self.timeout));
            self.next_alive = now + self.rhythm;
        }
        match self.alive {
            Some((_, by)) => by.saturating_sub(waited),
            None => self.next_alive.saturating_duration_since(now),
        }
    }

    /// Takes what the admin queue says unasked, if it says something, and makes sure that it says so in time.
    fn hear_admin(&mut self, ready: Ready) -> Result<(), CsdError> {
        let alive = &mut self.alive;
        let heard = &mut |heard: Heard<'_>| {
            if let Heard::Completion(cqe) = heard
                && alive.is_some_and(|(id, _)| id == cqe.id)
            {
                *alive = None;
            }
        };
        if ready == Ready::Yes {
            self.admin.receive("keep alive", heard)?;
        }
        let waited = self.clock.look(Instant::now());
        match self.alive {
            Some((_, by)) if waited > by => Err(late("keep alive", self.timeout)),
            _ => Ok(()),
        }
    }
}

impl Carrier for Fabric {
    fn send(
        &mut self,
        entry: Sqe,
        content: &Content,
        _: Duration,
    ) -> Result<Option<u16>, CsdError> {
        if self.io.wire.n_free() == 0 {
            return Ok(None);
        }
        let id = self.io.send(entry, content.clone());
        self.io.flush("send a command")?;
        Ok(id)
    }

    fn ask(
        &mut self,
        entry: Sqe,
        content: Content,
        step: (&'static str, Instant),
    ) -> Result<(Cqe, Vec<u8>), CsdError> {
        let answered = self.admin.ask(entry, content, step)?;
        // A keep-alive that was under way may have been answered meanwhile.
        self.alive = None;
        Ok(answered)
    }

    fn pump(
        &mut self,
        deadline: Instant,
        heard: &mut dyn FnMut(Heard<'_>),
    ) -> Result<(), CsdError> {
        let until_alive = self.stay_alive();
        let doing = "wait for a command";
        self.io.flush(doing)?;
        self.admin.flush("keep alive")?;
        let left = deadline.saturating_duration_since(Instant::now()).min(until_alive);
        let [_, admin] =
            wait([&self.io, &self.admin], left).map_err(CsdError::lost(doing))?;
        self.hear_admin(admin)?;
        while self.io.receive(doing, heard)? {}
        self.io.flush(doing)
    }

    fn set_in_capsule(&mut self, bytes: u32) {
        self.io.wire.set_in_capsule(bytes);
    }

    fn most_bytes(&self) -> u32 {
        u32::MAX
    }

    fn outlives(&self) -> bool {
        false
    }
}

impl Drop for Fabric {
    /// Tells the controller, as far as that goes without waiting; the end of the connections says the same.
    fn drop(&mut self) {
        let set = Fabrics::PropertySet { offset: CC, wide: Wide::No, value: SHUTDOWN };
        self.admin.send(set.entry(), Content::None);
        let _ = self.admin.flush("shut down");
    }
}

impl Queue {
    /// A connection on which both sides have agreed on the format of PDUs.
    fn connect(
        target: &NvmeTarget,
        (wish, entries): (Wish, u16),
        deadline: Instant,
    ) -> Result<Self, CsdError> {
        let unreachable =
            |source| CsdError::Unreachable { address: target.to_string(), source };
        let named = (target.host.as_str(), target.port).to_socket_addrs();
        let mut last = io::Error::new(ErrorKind::NotFound, "the name does not resolve");
        let mut socket = None;
        for at in named.map_err(unreachable)? {
            let left = deadline.saturating_duration_since(Instant::now());
            match TcpStream::connect_timeout(&at, left.max(Duration::from_millis(1))) {
                Ok(connected) => {
                    socket = Some(connected);
                    break;
                }
                Err(error) => last = error,
            }
        }
        let socket = socket.ok_or(last).map_err(unreachable)?;
        Self::begin(socket, (wish, entries), deadline)
    }

    fn begin(
        socket: TcpStream,
        (wish, entries): (Wish, u16),
        deadline: Instant,
    ) -> Result<Self, CsdError> {
        let step = ("begin a connection", deadline);
        let set = socket.set_nodelay(true).and_then(|()| socket.set_nonblocking(true));
        set.map_err(CsdError::lost(step.0))?;
        let mut own = Self {
            socket,
            wire: Connection::new(wish, entries - 1),
            arrived: vec![0; ARRIVED_BYTES],
            begin: 0,
            end: 0,
            out: Vec::new(),
            sent: 0,
        };
        own.wire.begin(&mut own.out);
        loop {
            own.step(step, &mut |_| ())?;
            if own.wire.is_open() {
                return Ok(own);
            }
            in_time(step)?;
        }
    }

    /// Makes this connection queue `queue` of a controller, whose number is the answer.
    fn join(
        &mut self,
        target: &NvmeTarget,
        (queue, controller, keep_alive_ms): (u16, u16, u32),
        (host, deadline): (&HostName, Instant),
    ) -> Result<u16, CsdError> {
        let entries = if queue == 0 { ADMIN_ENTRIES } else { IO_ENTRIES };
        let connect =
            Fabrics::Connect { queue, size: entries - 1, attributes: 0, keep_alive_ms };
        let data = ConnectData {
            host_id: host.id,
            controller,
            subsystem: target.subsystem.clone(),
            host: host.name.clone(),
        };
        let content = Content::ToController(data.bytes().to_vec());
        let (cqe, _) = self.ask(connect.entry(), content, ("connect", deadline))?;
        refused(cqe.status, target)?;
        Ok(u16::try_from(cqe.result & 0xffff).unwrap_or(0))
    }

    /// Enables the controller and waits until it is ready.
    fn enable(&mut self, deadline: Instant) -> Result<(), CsdError> {
        let step = ("enable the controller", deadline);
        let capabilities = self.property(CAP, Wide::Yes, step)?;
        if capabilities >> 43 & 1 == 0 {
            return Err(CsdError::Unfit {
                what: "the device has only blocks, and neither memory nor programs"
                    .to_owned(),
                remedy: "use a device with computational programs, as firmware-sim is",
            });
        }
        let set = Fabrics::PropertySet { offset: CC, wide: Wide::No, value: ENABLE };
        let (cqe, _) = self.ask(set.entry(), Content::None, step)?;
        accepted(cqe.status, step.0)?;
        loop {
            let status = self.property(CSTS, Wide::No, step)?;
            if status & 2 != 0 {
                let source = io::Error::other("the controller says that it has failed");
                return Err(CsdError::LinkLost { doing: step.0, source });
            }
            if status & 1 == 1 {
                return Ok(());
            }
            in_time(step)?;
            std::thread::sleep(LOOK);
        }
    }

    fn property(
        &mut self,
        offset: u32,
        wide: Wide,
        step: (&'static str, Instant),
    ) -> Result<u64, CsdError> {
        let get = Fabrics::PropertyGet { offset, wide };
        let (cqe, _) = self.ask(get.entry(), Content::None, step)?;
        accepted(cqe.status, step.0)?;
        Ok(cqe.result)
    }

    /// Has a command sent with the next flush.
    fn send(&mut self, entry: Sqe, content: Content) -> Option<u16> {
        self.wire.send(entry, content, &mut self.out)
    }

    /// Has a command carried out, and waits.
    fn ask(
        &mut self,
        entry: Sqe,
        content: Content,
        step: (&'static str, Instant),
    ) -> Result<(Cqe, Vec<u8>), CsdError> {
        let Some(id) = self.send(entry, content) else {
            let what = "the device does not answer earlier commands";
            return Err(CsdError::LinkLost {
                doing: step.0,
                source: io::Error::other(what),
            });
        };
        let (mut data, mut done) = (Vec::new(), None);
        loop {
            self.step(step, &mut |heard| match heard {
                Heard::Data { id: of, bytes, .. } if of == id => {
                    data.extend_from_slice(bytes);
                }
                Heard::Completion(cqe) if cqe.id == id => done = Some(cqe),
                Heard::Data { .. } | Heard::Completion(_) => {}
            })?;
            if let Some(cqe) = done {
                return Ok((cqe, data));
            }
            in_time(step)?;
        }
    }

    /// Sends, and takes all that has come; waits for something until the deadline.
    fn step(
        &mut self,
        (doing, deadline): (&'static str, Instant),
        heard: &mut dyn FnMut(Heard<'_>),
    ) -> Result<(), CsdError> {
        self.flush(doing)?;
        let left = deadline.saturating_duration_since(Instant::now());
        wait([self], left).map_err(CsdError::lost(doing))?;
        while self.receive(doing, heard)? {}
        self.flush(doing)
    }

    /// Sends what the socket takes now.
    fn flush(&mut self, doing: &'static str) -> Result<(), CsdError> {
        while self.sent < self.out.len() {
            match self.socket.write(&self.out[self.sent..]) {
                Ok(0) => return Err(gone(doing)),
                Ok(n) => self.sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(CsdError::lost(doing)(error)),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Takes what the socket has now; false where it has nothing more.
    fn receive(
        &mut self,
        doing: &'static str,
        heard: &mut dyn FnMut(Heard<'_>),
    ) -> Result<bool, CsdError> {
        if self.end == self.arrived.len() || self.begin >= READ_BYTES {
            self.arrived.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        let room = (self.arrived.len() - self.end).min(READ_BYTES);
        let n = match self.socket.read(&mut self.arrived[self.end..self.end + room]) {
            Ok(0) => return Err(gone(doing)),
            Ok(n) => n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(CsdError::lost(doing)(error)),
        };
        self.end += n;
        let whole = &self.arrived[self.begin..self.end];
        let taken = self.wire.take(whole, &mut self.out, heard);
        match taken {
            Ok(taken) => self.begin += taken,
            Err(broken) => {
                // The connection ends either way.
                let _ = self.flush(doing);
                let source = io::Error::other(broken.to_string());
                return Err(CsdError::LinkLost { doing, source });
            }
        }
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        }
        // Less than there was room for was all.
        Ok(n == room)
    }
}

/// Whether a socket has something, or takes what it did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ready {
    No,
    Yes,
}

/// Waits until one of the sockets has something, or takes what it did not; which of them.
fn wait<const N: usize>(queues: [&Queue; N], left: Duration) -> io::Result<[Ready; N]> {
    let mut all = queues.map(|queue| {
        let has_more = queue.sent < queue.out.len();
        let write = if has_more { PollFlags::POLLOUT } else { PollFlags::empty() };
        PollFd::new(queue.socket.as_fd(), PollFlags::POLLIN | write)
    });
    // Rounded up: a wait of nothing would spin.
    let ms = left.as_nanos().div_ceil(1_000_000);
    let timeout = PollTimeout::from(u16::try_from(ms).unwrap_or(u16::MAX));
    match poll(&mut all, timeout) {
        Ok(_) => {}
        // Nobody has looked.
        Err(nix::errno::Errno::EINTR) => return Ok([Ready::Yes; N]),
        Err(errno) => return Err(errno.into()),
    }
    // What is not known is looked at.
    let is_ready = |own: PollFd<'_>| own.any().unwrap_or(true);
    Ok(all.map(|own| if is_ready(own) { Ready::Yes } else { Ready::No }))
}

/// The device has closed the connection.
fn gone(doing: &'static str) -> CsdError {
    let source = io::Error::new(ErrorKind::UnexpectedEof, "it closed the connection");
    CsdError::LinkLost { doing, source }
}

/// A host that says nothing for so long is gone, where its longest silence is `timeout`: it says nothing else while it
/// waits for an admin command.
fn keep_alive(timeout: Duration) -> Duration {
    KEEP_ALIVE.max(timeout.saturating_mul(2))
}

/// There is time left for a step of which all that has come is known.
fn in_time((doing, deadline): (&'static str, Instant)) -> Result<(), CsdError> {
    if Instant::now() <= deadline {
        return Ok(());
    }
    let source = io::Error::new(ErrorKind::TimedOut, "it did not answer in time");
    Err(CsdError::LinkLost { doing, source })
}

/// Why a controller does not take a host.
fn refused(status: Status, target: &NvmeTarget) -> Result<(), CsdError> {
    let name = &target.subsystem;
    match status {
        Status::SUCCESS => Ok(()),
        Status::CONNECT_PARAMETER | Status::CONNECT_RESTART_DISCOVERY => {
            Err(CsdError::Unfit {
                what: format!(
                    "there is no subsystem {name} at {}:{}",
                    target.host, target.port
                ),
                remedy: "append the name that the device prints when it starts to the port, \
                         as nvme-tcp://HOST:PORT/NQN",
            })
        }
        Status::CONNECT_BUSY => {
            let reason = "it has no controller left for another host".to_owned();
            Err(CsdError::Busy { reason, retry: RETRY })
        }
        Status::CONNECT_HOST => Err(CsdError::Unfit {
            what: format!("the subsystem {name} does not admit this host"),
            remedy: "let the device admit unknown hosts",
        }),
        other => accepted(other, "connect"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use bothends_nvme::Sqe;
    use bothends_nvme::pdu::{Digest, Format, Initialize, Parsed, Pdu, parse};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// The controller's end of a queue, which is the test's.
    struct Controller(TcpStream);

    impl Controller {
        /// A queue, and its other end.
        fn of_queue() -> (Queue, Self) {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let digest = Digest::default();
            let granted = Initialize {
                version: 0,
                alignment: 0,
                header_digest: digest,
                data_digest: digest,
                max: 1 << 16,
            };
            let mut bytes = Vec::new();
            granted.response(&mut bytes);
            stream.write_all(&bytes).unwrap();
            let deadline = Instant::now() + PATIENCE;
            let queue = Queue::begin(socket, (Wish::default(), 8), deadline).unwrap();
            let mut own = Self(stream);
            let asked = own.next(|pdu| matches!(pdu, Pdu::InitializeRequest(_)));
            assert!(asked);
            (queue, own)
        }

        /// What is made of the next PDU that the host has sent.
        fn next<T>(&mut self, of: impl Fn(Pdu<'_>) -> T) -> T {
            let mut bytes = Vec::new();
            loop {
                let mut byte = [0];
                self.0.read_exact(&mut byte).unwrap();
                bytes.extend_from_slice(&byte);
                let parsed = parse(&bytes, Format::default(), 1 << 16).unwrap();
                if let Parsed::Whole(pdu, _) = parsed {
                    return of(pdu);
                }
            }
        }

        fn command(&mut self) -> Sqe {
            let command = self.next(|pdu| {
                let Pdu::Command(entry, _, _) = pdu else { return None };
                Some(entry)
            });
            command.unwrap()
        }

        /// Answers command `id`; the answer has arrived at `queue` then.
        fn answer(&mut self, id: u16, queue: &Queue) {
            let status = Status::SUCCESS;
            let cqe = Cqe { result: 0, sq_head: 0, sq_id: 0, id, status };
            let mut bytes = Vec::new();
            Format::default().response(&cqe, &mut bytes);
            self.0.write_all(&bytes).unwrap();
            wait([queue], PATIENCE).unwrap();
        }
    }

    fn pump(fabric: &mut Fabric, deadline: Instant) -> Result<(), CsdError> {
        fabric.pump(deadline, &mut |_| ())
    }

    /// As of a host that was stopped: only then does it look at the clock and at what has come.
    #[test]
    fn a_keep_alive_that_is_answered_is_not_late() {
        let (admin, mut controller) = Controller::of_queue();
        let (io, _io_controller) = Controller::of_queue();
        let mut fabric = Fabric::over([admin, io], PATIENCE, Duration::ZERO);
        pump(&mut fabric, Instant::now()).unwrap();
        let sent = controller.command().id();
        assert_eq!(fabric.alive.map(|(id, _)| id), Some(sent));
        controller.answer(sent, &fabric.admin);
        fabric.alive = Some((sent, Duration::ZERO));
        fabric.next_alive = Instant::now() + PATIENCE;
        pump(&mut fabric, Instant::now()).unwrap();
        assert_eq!(fabric.alive, None);

        fabric.next_alive = Instant::now();
        pump(&mut fabric, Instant::now()).unwrap();
        let sent = controller.command().id();
        fabric.alive = Some((sent, Duration::ZERO));
        let late = pump(&mut fabric, Instant::now()).unwrap_err();
        assert!(late.to_string().contains("keep alive"), "{late}");
    }

    #[test]
    fn a_long_wait_for_a_command_is_broken_by_a_keep_alive() {
        let (admin, mut controller) = Controller::of_queue();
        let (io, _io_controller) = Controller::of_queue();
        let rhythm = Duration::from_millis(50);
        let mut fabric = Fabric::over([admin, io], PATIENCE, rhythm);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < fabric.next_alive {
            pump(&mut fabric, deadline).unwrap();
        }
        assert!(Instant::now() < deadline, "nothing else ends the wait");
        pump(&mut fabric, Instant::now()).unwrap();
        assert_eq!(controller.command().opcode(), 0x18);
        // One of an admin command is not.
        for seconds in [1, 10, 61, 600] {
            let timeout = Duration::from_secs(seconds);
            assert!(keep_alive(timeout) / 2 + timeout <= keep_alive(timeout));
        }
    }

    #[test]
    fn an_answer_that_has_come_is_read_before_it_is_late() {
        let (mut queue, mut controller) = Controller::of_queue();
        let entry = Admin::KeepAlive.entry(0, Data::NONE);
        controller.answer(0, &queue);
        let step = ("try", Instant::now());
        assert!(queue.ask(entry, Content::None, step).is_ok());
        let late = queue.ask(entry, Content::None, step).unwrap_err();
        assert!(late.to_string().contains("lost the device"), "{late}");
    }
}
