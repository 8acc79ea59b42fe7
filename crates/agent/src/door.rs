//! Where hosts connect: one address, for any number of hosts.
//!
//! The transports are in `csd`. This file decides how many connections there are and how long they are
//! served, and removes what was created for them. Connections are accepted in the caller's thread, and
//! each has a thread of its own until it ends. All of them have ended when `serve` returns.
//!
//! 1. A connection that has not said who it is and what it wants has one of [`MAX_UNADMITTED`] places, for seconds.
//!    While they are all taken, a new one takes the place of the oldest: whoever has something to say does so within
//!    milliseconds. Where many have not said a word, the next ones get a thread only when they do: one that is closed in
//!    silence costs little. Where too many of these are silent, a few are taken in at a time, and others wait in the kernel.
//! 2. A host that is admitted is served by a guest of [`Hosts`], or told that they are busy.
//! 3. What one connection does or leaves undone changes nothing for another.

mod lobby;
mod news;
mod turns;

use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use bothends_csd::admission::{MAX_UNADMITTED, Peer};
use bothends_csd::listen::{Admitted, Listener, Socket, Terms, admit};
use bothends_csd::spool::{prepare_directory, remove_directory};
use bothends_csd::{Address, Busy, CsdError, Security, Serve};

use crate::costs::Costs;
use crate::door::lobby::{GLANCE, Lobby, Look, MOST_AT_ONCE, MOST_SILENT};
use crate::memory::RETRY;
use crate::server::{Asker, Registry, Server};

pub use news::News;

/// How often a door looks whether it shall close.
const LOOK: Duration = Duration::from_millis(50);

/// How long a device for one host takes to notice that it has left, at most.
const HANDOVER: Duration = Duration::from_millis(500);

/// How many hosts are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visits {
    /// One; then the device ends.
    Once,
    /// As many as the device has room for, until it is stopped.
    Always,
}

/// A device as its door sees it: whoever serves the hosts that come in.
pub trait Hosts: Sync {
    /// Has `serve` work with a guest for one more host, which is this one, or tells it that there is
    /// no room.
    fn host(&self, peer: Peer, serve: &mut dyn FnMut(Result<&mut dyn Serve, Busy>));

    /// What lists the members of a pool, where something does.
    fn registry(&self) -> Option<&Registry> {
        None
    }
}

impl<C: Costs + 'static> Hosts for Server<C> {
    fn host(&self, peer: Peer, serve: &mut dyn FnMut(Result<&mut dyn Serve, Busy>)) {
        match self.guest_with(peer) {
            Ok(mut guest) => serve(Ok(&mut guest)),
            Err(busy) => serve(Err(busy)),
        }
    }

    fn registry(&self) -> Option<&Registry> {
        Some(Self::registry(self))
    }
}

/// A device that serves one host at a time. One that has just left may not be noticed yet, so the next
/// waits a moment.
impl<S: Serve> Hosts for Mutex<S> {
    fn host(&self, _: Peer, serve: &mut dyn FnMut(Result<&mut dyn Serve, Busy>)) {
        let until = Instant::now() + HANDOVER;
        loop {
            match self.try_lock() {
                Ok(mut only) => return serve(Ok(&mut *only)),
                Err(TryLockError::Poisoned(only)) => {
                    return serve(Ok(&mut *only.into_inner()));
                }
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    thread::sleep(HANDOVER / 100);
                }
                Err(TryLockError::WouldBlock) => break,
            }
        }
        let reason = "it serves another host, and one at a time".to_owned();
        serve(Err(Busy { retry: RETRY, reason }));
    }
}

/// Connections that were not served.
#[derive(Debug, Default)]
pub struct Refusals {
    /// Closed because too many others had not said who they are.
    pub crowded: AtomicU64,
    /// Told that the device is busy.
    pub busy: AtomicU64,
    /// Failed to say who they are, or broke the protocol.
    pub failed: AtomicU64,
}

/// An open address.
#[derive(Debug)]
pub struct Door {
    way: Way,
    trust: Trust,
    address: Address,
    refusals: Arc<Refusals>,
}

/// What hosts must prove, and this device proves to them: what it is when a host comes. Clones are one.
#[derive(Debug, Clone, Default)]
pub struct Trust(Arc<Mutex<Security>>);

impl Trust {
    /// This until it is replaced.
    #[must_use]
    pub fn new(security: Security) -> Self {
        Self(Arc::new(Mutex::new(security)))
    }

    /// From now on hosts must prove this; those that are served stay.
    pub fn replace(&self, security: Security) {
        *self.now() = security;
    }

    pub(crate) fn current(&self) -> Security {
        self.now().clone()
    }

    fn now(&self) -> MutexGuard<'_, Security> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
enum Way {
    Socket(Listener),
    Spool(SpoolDir),
}

/// A spool directory; one that was made here is removed on drop, unless others have put
/// something into it.
#[derive(Debug)]
struct SpoolDir {
    path: PathBuf,
    is_ours: bool,
}

impl SpoolDir {
    fn open(path: PathBuf) -> Result<Self, CsdError> {
        let is_ours = match std::fs::create_dir(&path) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            Err(source) => {
                let (doing, place) = ("make the directory", path.display().to_string());
                return Err(CsdError::Place { doing, place, source });
            }
        };
        let dir = Self { path, is_ours };
        prepare_directory(&dir.path)?;
        Ok(dir)
    }

    fn remove(&mut self) -> Result<(), CsdError> {
        match std::mem::take(&mut self.is_ours) {
            true => remove_directory(&self.path),
            false => Ok(()),
        }
    }
}

impl Drop for SpoolDir {
    fn drop(&mut self) {
        // Who wants to know calls `Door::close`.
        drop(self.remove());
    }
}

impl Door {
    /// Opens `address`. A spool directory is made if it is not there.
    ///
    /// # Errors
    /// [`CsdError::Place`] when the address cannot be had, [`CsdError::Unauthenticated`] and
    /// [`CsdError::Untrusted`] where `security` lacks what it needs, or forbids it.
    pub fn open(address: &Address, security: Security) -> Result<Self, CsdError> {
        if let Address::Spool(path) = address {
            let way = Way::Spool(SpoolDir::open(path.clone())?);
            return Ok(Self::of(way, security, address.clone()));
        }
        let listener = Listener::bind(address, &security)?;
        Ok(Self::at(listener, security))
    }

    /// At a socket that listens already.
    #[must_use]
    pub fn at(listener: Listener, security: Security) -> Self {
        let address = listener.address().clone();
        Self::of(Way::Socket(listener), security, address)
    }

    fn of(way: Way, security: Security, address: Address) -> Self {
        Self { way, trust: Trust::new(security), address, refusals: Arc::default() }
    }

    /// Closes the door, and removes what was made for it. Dropping it does the same in silence.
    ///
    /// # Errors
    /// [`CsdError::Foreign`] when a directory stays for what others have put into it.
    pub fn close(self) -> Result<(), CsdError> {
        match self.way {
            Way::Spool(mut dir) => dir.remove(),
            Way::Socket(_) => Ok(()),
        }
    }

    /// Where hosts come in; TCP port 0 has become the port that was given.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What hosts must prove.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.trust.clone()
    }

    /// How many connections were not served.
    #[must_use]
    pub fn refusals(&self) -> Arc<Refusals> {
        Arc::clone(&self.refusals)
    }

    /// Serves hosts until `stop` is set or, with [`Visits::Once`], the first has left. Blocks
    /// for that long. `tell` hears of hosts that come and go at a socket, and of every complaint.
    ///
    /// # Errors
    /// The address is lost. With [`Visits::Once`], what would be complained of, except of those who have not said who
    /// they are.
    pub fn serve(
        &self,
        hosts: &dyn Hosts,
        visits: Visits,
        stop: &AtomicBool,
        tell: &(dyn Fn(News<'_>) + Sync),
    ) -> Result<(), CsdError> {
        match (&self.way, visits) {
            (Way::Socket(listener), Visits::Always) => {
                let reception = Reception { door: self, hosts, stop, tell };
                reception.receive(listener)
            }
            (Way::Socket(_), Visits::Once) | (Way::Spool(_), _) => {
                self.serve_in_turn(hosts, visits, stop, tell)
            }
        }
    }
}

/// Where the other side of a connection is; `None` of a Unix socket.
fn far_end(socket: &Socket) -> Option<SocketAddr> {
    let again = socket.as_fd().try_clone_to_owned().ok()?;
    TcpStream::from(again).peer_addr().ok()
}

/// A door at work.
#[derive(Clone, Copy)]
struct Reception<'a> {
    door: &'a Door,
    hosts: &'a dyn Hosts,
    stop: &'a AtomicBool,
    tell: &'a (dyn Fn(News<'_>) + Sync),
}

/// Whether few enough have not said who they are for one more to get a thread at once.
#[derive(Debug, Clone, Copy)]
enum Quiet {
    Yes,
    No,
}

impl Quiet {
    fn among(connections: &[Connection<'_>]) -> Self {
        let n_unadmitted = connections.iter().filter(|it| !it.is_admitted()).count();
        if n_unadmitted < MOST_SILENT { Self::Yes } else { Self::No }
    }
}

/// A connection, and the thread that has it.
struct Connection<'scope> {
    thread: ScopedJoinHandle<'scope, ()>,
    /// Whether it has said who it is.
    is_admitted: Arc<AtomicBool>,
    /// Whether it had to make room for others.
    is_closed: bool,
    /// The same connection again, to shut it down.
    again: Option<UnixStream>,
}

impl<'a> Reception<'a> {
    fn receive(self, listener: &'a Listener) -> Result<(), CsdError> {
        thread::scope(|scope| {
            let mut connections: Vec<Connection<'_>> = Vec::new();
            let mut lobby = Lobby::default();
            let mut n_ever = 0_u64;
            // A flag alone; nothing else is published with it.
            let lost = loop {
                if self.stop.load(Ordering::Relaxed) {
                    break Ok(());
                }
                let come_in = match self.take_in(
                    listener,
                    &mut lobby,
                    Quiet::among(&connections),
                ) {
                    Ok(come_in) => come_in,
                    Err(error) if is_short(&error) => {
                        // Until somebody leaves; those who are here are served meanwhile.
                        thread::sleep(LOOK);
                        Vec::new()
                    }
                    Err(error) => break Err(error),
                };
                self.reap(&mut connections);
                let speaking = self.look_into(&mut lobby);
                for socket in come_in.into_iter().chain(speaking) {
                    if self.make_room(&mut connections) {
                        n_ever += 1;
                        connections.extend(self.begin(scope, socket, n_ever));
                    }
                }
            };
            // What workers are in the middle of may outlast the program's time to end.
            listener.withdraw();
            // Nobody who has not said a word is waited for.
            for silent in connections.iter().filter(|it| !it.is_admitted()) {
                silent.shut_down();
            }
            if lost.is_err() {
                connections.iter().for_each(Connection::shut_down);
            }
            connections.into_iter().for_each(|it| self.end(it));
            lost
        })
    }

    /// Gives a connection a thread; `None` where the system has none for it.
    fn begin<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        socket: Socket,
        number: u64,
    ) -> Option<Connection<'scope>>
    where
        'a: 'scope,
    {
        let again = socket.as_fd().try_clone_to_owned().ok().map(UnixStream::from);
        let is_admitted = Arc::new(AtomicBool::new(false));
        let admitted = Arc::clone(&is_admitted);
        let body = move || self.attend(socket, number, &admitted);
        let named = thread::Builder::new().name(format!("be-host-{number}"));
        let thread = named.spawn_scoped(scope, body).ok()?;
        Some(Connection { thread, is_admitted, is_closed: false, again })
    }

    /// The life of a connection, in its own thread.
    fn attend(self, socket: Socket, number: u64, is_admitted: &AtomicBool) {
        let security = self.door.trust.current();
        let refusals = &self.door.refusals;
        let from = far_end(&socket);
        let admitted = admit(socket, Terms { security: &security, stop: self.stop });
        let host = match admitted.and_then(|host| self.answers(host, is_admitted)) {
            Ok(None) => return,
            Ok(Some(host)) => host,
            // It has left again, or the door closes.
            Err(CsdError::LinkLost { .. }) => return,
            Err(error) => {
                refusals.failed.fetch_add(1, Ordering::Relaxed);
                return (self.tell)(News::Complaint { from, error: &error });
            }
        };
        let peer = host.peer();
        let mut host = Some(host);
        self.hosts.host(peer, &mut |guest| {
            let Some(host) = host.take() else { return };
            match guest {
                Ok(serve) => {
                    (self.tell)(News::Came { host: number, from });
                    let began = Instant::now();
                    if let Err(error) = host.serve(serve, self.stop) {
                        refusals.failed.fetch_add(1, Ordering::Relaxed);
                        (self.tell)(News::Complaint { from, error: &error });
                    }
                    let (after, whose) = (began.elapsed(), serve.whose());
                    (self.tell)(News::Left { host: number, from, after, whose });
                }
                Err(busy) => {
                    refusals.busy.fetch_add(1, Ordering::Relaxed);
                    (self.tell)(News::TurnedAway { host: number, from });
                    host.turn_away(busy);
                }
            }
        });
    }

    /// Waits a little for connections, and takes in those that may come now; those of them that get a thread.
    fn take_in(
        self,
        listener: &Listener,
        lobby: &mut Lobby,
        quiet: Quiet,
    ) -> Result<Vec<Socket>, CsdError> {
        let mut come_in = Vec::new();
        let (n, patience) = match quiet {
            Quiet::Yes if lobby.is_empty() => (1, LOOK),
            Quiet::No if lobby.is_full() => {
                thread::sleep(GLANCE);
                (MOST_AT_ONCE, Duration::ZERO)
            }
            Quiet::Yes | Quiet::No => (1, GLANCE),
        };
        for _ in 0..n {
            match (listener.accept(patience), quiet) {
                (Ok(Some(socket)), Quiet::Yes) => come_in.push(socket),
                (Ok(Some(socket)), Quiet::No) => lobby.enter(socket, Instant::now()),
                (Ok(None), _) => break,
                // It shows again.
                (Err(_), _) if !come_in.is_empty() => break,
                (Err(error), _) => return Err(error),
            }
        }
        Ok(come_in)
    }

    /// Answers what is asked of a registry, in a place of those who are not admitted; else the host, to be served.
    fn answers(
        self,
        mut host: Admitted,
        is_admitted: &AtomicBool,
    ) -> Result<Option<Admitted>, CsdError> {
        if let Some(registry) = self.hosts.registry()
            && let Some(question) = host.question(self.stop)?
        {
            let answer = registry.answer(&question, Asker::of(&host));
            host.answer(&answer);
            return Ok(None);
        }
        is_admitted.store(true, Ordering::Relaxed);
        Ok(Some(host))
    }

    /// Closes those in the lobby that are too many, or have had their time; who has begun to speak.
    fn look_into(self, lobby: &mut Lobby) -> Vec<Socket> {
        let Look { speaking, crowded, late } = lobby.look(Instant::now());
        self.door.refusals.crowded.fetch_add(crowded.len() as u64, Ordering::Relaxed);
        crowded.into_iter().chain(late).for_each(Socket::hang_up);
        speaking
    }

    /// Closes the oldest connection that has not said who it is where there are too many of them;
    /// `false` where even those that were closed have not gone.
    fn make_room(self, connections: &mut [Connection<'_>]) -> bool {
        let unadmitted = || connections.iter().filter(|it| !it.is_admitted());
        let n_waiting = unadmitted().filter(|it| !it.is_closed).count();
        if n_waiting < MAX_UNADMITTED {
            return true;
        }
        self.door.refusals.crowded.fetch_add(1, Ordering::Relaxed);
        if unadmitted().count() >= 2 * MAX_UNADMITTED {
            return false;
        }
        let mut oldest = connections.iter_mut().filter(|it| !it.is_admitted());
        if let Some(oldest) = oldest.find(|it| !it.is_closed) {
            oldest.is_closed = true;
            oldest.shut_down();
        }
        true
    }

    /// Lets go of connections that have ended.
    fn reap(self, connections: &mut Vec<Connection<'_>>) {
        let ended = connections.extract_if(.., |it| it.thread.is_finished());
        ended.for_each(|it| self.end(it));
    }

    fn end(self, connection: Connection<'_>) {
        // One that broke has stated why; its host sees that it is gone.
        if connection.thread.join().is_err() {
            self.door.refusals.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Connection<'_> {
    fn is_admitted(&self) -> bool {
        self.is_admitted.load(Ordering::Relaxed)
    }

    fn shut_down(&self) {
        // One that has gone already needs no help.
        let _ = self.again.as_ref().map(|again| again.shutdown(Shutdown::Both));
    }
}

/// Whether the system has no descriptor or memory for one more connection now.
fn is_short(error: &CsdError) -> bool {
    let CsdError::Place { source, .. } = error else { return false };
    bothends_csd::is_of_machine(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `--listen spool:///home/me/results` by mistake.
    #[test]
    fn a_directory_of_others_is_not_served() {
        let dir = tempfile::tempdir().unwrap();
        let address = Address::Spool(dir.path().to_owned());
        let theirs = dir.path().join("run-0123456789abcdef0123456789abcdef.txt");
        std::fs::write(&theirs, "results").unwrap();
        let error = Door::open(&address, Security::default()).unwrap_err().to_string();
        assert!(error.contains(theirs.to_str().unwrap()), "{error}");
        assert!(error.contains("name an empty directory"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        // One that is a spool stays one, whatever is put there.
        std::fs::remove_file(&theirs).unwrap();
        drop(Door::open(&address, Security::default()).unwrap());
        std::fs::write(&theirs, "results").unwrap();
        drop(Door::open(&address, Security::default()).unwrap());
        assert_eq!(std::fs::read_to_string(theirs).unwrap(), "results");
    }

    /// All that came was taken in at once, and closed again for the next.
    #[test]
    fn of_a_flood_of_silent_connections_few_are_taken_in_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let address = Address::Unix(folder.path().join("socket"));
        let door = Door::open(&address, Security::default()).unwrap();
        let Way::Socket(listener) = &door.way else { panic!("a socket") };
        let (stop, hosts) = (AtomicBool::new(false), Nobody);
        let reception =
            Reception { door: &door, hosts: &hosts, stop: &stop, tell: &|_| () };
        let path = folder.path().join("socket");
        let come = || UnixStream::connect(&path).unwrap();
        let mut lobby = Lobby::default();
        let n_closed = || usize::try_from(door.refusals.crowded.load(Ordering::Relaxed));
        // As the door does, in each of its turns.
        let turn = |lobby: &mut Lobby| {
            let none = reception.take_in(listener, lobby, Quiet::No).unwrap();
            assert!(none.is_empty(), "who is silent gets no thread");
            reception.look_into(lobby)
        };
        let mut flood: Vec<_> = (0..MOST_SILENT).map(|_| come()).collect();
        for n in 1..=MOST_SILENT {
            assert!(
                turn(&mut lobby).is_empty() && lobby.silent.len() == n,
                "there is room"
            );
        }
        flood.extend((0..3 * MOST_AT_ONCE).map(|_| come()));
        let began = Instant::now();
        for n in 1..=3 {
            assert!(turn(&mut lobby).is_empty());
            assert_eq!(
                (lobby.silent.len(), n_closed()),
                (MOST_SILENT, Ok(n * MOST_AT_ONCE))
            );
        }
        assert!(began.elapsed() >= 3 * GLANCE, "it does not wait in between");
        // One that leaves makes room for the next, at once.
        drop(flood.drain(..3 * MOST_AT_ONCE + 1));
        thread::sleep(GLANCE);
        assert_eq!(reception.look_into(&mut lobby).len(), 1);
        flood.push(come());
        assert!(turn(&mut lobby).is_empty());
        assert_eq!((lobby.silent.len(), n_closed()), (MOST_SILENT, Ok(3 * MOST_AT_ONCE)));
    }

    struct Nobody;

    impl Hosts for Nobody {
        fn host(&self, _: Peer, _: &mut dyn FnMut(Result<&mut dyn Serve, Busy>)) {}
    }

    #[test]
    fn a_directory_goes_with_the_door_unless_others_use_it() {
        let dir = tempfile::tempdir().unwrap();
        let spool = dir.path().join("spool");
        let address = Address::Spool(spool.clone());
        Door::open(&address, Security::default()).unwrap().close().unwrap();
        assert!(!spool.exists());
        let theirs = spool.join("results.csv");
        for close in [
            |door: Door| door.close().unwrap_err().to_string(),
            |door: Door| {
                drop(door);
                "results.csv".to_owned()
            },
        ] {
            let door = Door::open(&address, Security::default()).unwrap();
            std::fs::write(&theirs, "results").unwrap();
            let said = close(door);
            assert!(said.contains("results.csv"), "{said}");
            assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "results");
            std::fs::remove_dir_all(&spool).unwrap();
        }
        // One that was there before stays in any case.
        std::fs::create_dir(&spool).unwrap();
        Door::open(&address, Security::default()).unwrap().close().unwrap();
        assert!(spool.is_dir());
    }
}
