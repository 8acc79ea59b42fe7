//! Entries for what another process says: a hostile host to a device, a hostile device to a
//! host, over sockets and in a spool directory. Read `lib.rs` first.
//!
//! The bytes are a script of messages: two bytes of length, then fields and body, of which
//! lengths and checksums are corrected, which no fuzzer would find. A script whose first
//! byte is odd begins after the greeting.

use std::fs::File;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bothends_agent::conformance::{Exercise, slot};
use bothends_agent::server::Asker;
use bothends_agent::{FileStore, NoCosts, Registry, Server, ServerConfig};
use bothends_csd::conformance::EchoServe;
use bothends_csd::key::Key;
use bothends_csd::listen::{Question, Socket, Terms, serve_connection};
use bothends_csd::pool::Pool;
use bothends_csd::remote::Remote;
use bothends_csd::security::Security;
use bothends_csd::spool::Spool;
use bothends_csd::stream::Stream;
use bothends_csd::wire::{HEADER_BYTES, Message};
use bothends_csd::{
    Address, Capabilities, Declined, DeviceStats, Finished, Inquiry, Job, JobId,
    PROTOCOL_VERSION, RecordDigest, Refused, Serve, Session, SessionId, Transport,
};
use bothends_slots::{HostSlot, Producer};
use bothends_storage::{is_redis_value, n_cql_answers};
use twox_hash::XxHash3_64;

/// Nothing here waits for anybody: all is said before it is heard, and then the end.
const TIMEOUT: Duration = Duration::from_millis(200);

/// More than this does not fit into a socket that nobody reads.
const MAX_SCRIPT: usize = 60_000;

/// What a registry and a host make of what is said of members: what is listed is an address, and what is not
/// is refused in one line.
pub(crate) fn members(message: &Message) {
    let pool: Pool = "pool+registry://r:1".parse().expect("a pool");
    if let Message::Announce(told) = message {
        let registry = Registry::default();
        let asker = Asker { credential: None, is_here: true };
        let answer = registry.answer(&Question::Announce(told.clone()), asker);
        let list = registry.answer(&Question::Members, asker);
        let Message::Members(list) = list else { panic!("no list: {list:?}") };
        let listed = pool.members(&list.text).expect("a list of addresses");
        assert!(listed.is_empty() || answer == Message::Announced);
        let told: Option<Address> = told.address.parse().ok();
        assert!(listed.iter().all(|it| told.as_ref() == Some(it)));
    }
    if let Message::Members(list) = message
        && let Err(why) = pool.members(&list.text)
    {
        assert!(!why.contains('\n'), "{why}");
    }
}

/// A message whose lengths and checksums are right; `None` where it has no header.
pub(crate) fn sealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut sealed = bytes.to_vec();
    let (head, body) = sealed.split_first_chunk_mut::<HEADER_BYTES>()?;
    head[..4].copy_from_slice(b"BEND");
    head[4..8].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    head[12..16].copy_from_slice(&u32::try_from(body.len()).ok()?.to_le_bytes());
    head[40..48].copy_from_slice(&XxHash3_64::oneshot(body).to_le_bytes());
    let check = XxHash3_64::oneshot(&head[..76]).to_le_bytes();
    head[76..].copy_from_slice(&check[..4]);
    Some(sealed)
}

/// The messages of a script, one after another.
fn script(mut bytes: &[u8]) -> Vec<u8> {
    let mut said = Vec::new();
    while let Some((len, rest)) = bytes.split_first_chunk() {
        let (message, rest) =
            rest.split_at(usize::from(u16::from_le_bytes(*len)).min(rest.len()));
        // What is too short for a message is what a liar sends in between.
        said.extend(sealed(message).unwrap_or_else(|| message.to_vec()));
        bytes = rest;
    }
    said.truncate(MAX_SCRIPT);
    said
}

/// A socket in which a peer has said all this and then hung up.
fn socket_with(said: &[u8]) -> Option<(UnixStream, UnixStream)> {
    let (near, mut far) = UnixStream::pair().ok()?;
    far.write_all(said).ok()?;
    far.shutdown(Shutdown::Write).ok()?;
    Some((near, far))
}

/// A host that says anything to an agent with real images: it is served or refused, and the
/// next one finds the agent as good as before.
pub fn serving(bytes: &[u8]) {
    thread_local!(static AGENT: Agent = Agent::start());
    let [first, rest @ ..] = bytes else { return };
    let mut said = Vec::new();
    if first % 2 == 1 {
        said.extend(Message::Greet { nonce: [1; 32] }.encode());
        said.extend(Message::Prove { proof: None }.encode());
    }
    AGENT.with(|agent| {
        if first & 2 != 0 {
            said.extend(Message::Hello.encode());
            said.extend(Message::Open(agent.exercise.session()).encode());
        }
        said.extend(script(rest));
        let Some((near, far)) = socket_with(&said) else { return };
        let stop = AtomicBool::new(false);
        let mut server = agent.server.borrow_mut();
        drop(serve_connection(
            near,
            &mut *server,
            Terms { security: &Security::default(), stop: &stop },
        ));
        drop(far);
        server.open(agent.exercise.session()).expect("a good session");
    });
}

/// An agent and what it serves.
struct Agent {
    /// Removed with the agent.
    _folder: tempfile::TempDir,
    exercise: Exercise,
    server: std::cell::RefCell<Server<NoCosts>>,
}

impl Agent {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let exercise = Exercise::prepare(folder.path()).expect("a few images");
        let config = ServerConfig {
            name: "fuzzed".to_owned(),
            emulated: false,
            n_workers: 1,
            n_slots: 2,
        };
        let store = FileStore::new(folder.path()).expect("it is there");
        let server = Server::start(config, store, NoCosts).expect("a thread");
        Self { _folder: folder, exercise, server: server.into() }
    }
}

/// A device that says anything to a host with two jobs: every call ends, each slot comes back.
pub fn remote(bytes: &[u8]) {
    thread_local!(static EXERCISE: (tempfile::TempDir, Exercise) = {
        let folder = tempfile::tempdir().expect("a folder");
        let exercise = Exercise::prepare(folder.path()).expect("a few images");
        (folder, exercise)
    });
    let [first, rest @ ..] = bytes else { return };
    let mut said = Vec::new();
    if first % 2 == 1 {
        said.extend(Message::Challenge { nonce: [1; 32], proof: None }.encode());
        said.extend(Message::Welcome(EchoServe::default().hello()).encode());
        said.extend(Message::Opened(SessionId(1)).encode());
    }
    said.extend(script(rest));
    let Some((near, far)) = socket_with(&said) else { return };
    let device = Stream::over_socket(
        near.into(),
        "fuzzed".to_owned(),
        Security::default(),
        TIMEOUT,
    );
    let Ok(mut device) = device else { return };
    EXERCISE.with(|(_, exercise)| talk(&mut device, exercise));
    drop(far);
}

/// What a host says in a run, whatever it hears.
fn talk<L: bothends_csd::remote::Link>(device: &mut Remote<L>, exercise: &Exercise) {
    if device.hello().is_err() || device.open(&exercise.session()).is_err() {
        return;
    }
    for number in 0..2 {
        drop(device.submit(exercise.job(number, &[0, 1, 2]), slot(exercise)));
    }
    drop(device.stats());
    drop(device.revoke(JobId(1)));
    for _ in 0..64 {
        if device.poll(Duration::ZERO).is_err() {
            break;
        }
    }
    drop(device.abandon());
}

/// The key exchange and the handshake of Noise with somebody who does not have the key, on either
/// side: no device serves that host, and no host speaks to that device.
pub fn keys(bytes: &[u8]) {
    let key = Key::from_bytes(b"nobody else knows it");
    let security = Security::default().with_key(key);
    let [first, rest @ ..] = bytes else { return };
    let kind = if first % 2 == 0 { "tcp://here:1" } else { "tcp+noise://here:1" };
    let address: Address = kind.parse().expect("an address");
    // Scripts are of whole messages; what comes before Noise is seldom one.
    let said = if first & 2 == 0 { script(rest) } else { rest.to_vec() };
    let Some((near, far)) = socket_with(&said) else { return };
    let stop = AtomicBool::new(false);
    let terms = Terms { security: &security, stop: &stop };
    let near = Socket::from(near).protected_as(&address);
    drop(serve_connection(near, &mut Untouched, terms));
    drop(far);
    let Some((near, far)) = socket_with(&said) else { return };
    let near = Socket::from(near).protected_as(&address);
    let device = Stream::over_socket(near, kind.to_owned(), security, TIMEOUT);
    if let Ok(mut device) = device {
        assert!(device.hello().is_err(), "a device without the key was greeted");
    }
    drop(far);
}

/// A device that nobody may reach.
#[derive(Debug)]
struct Untouched;

impl Serve for Untouched {
    fn hello(&mut self) -> Capabilities {
        unreachable!("a host without the key says hello")
    }

    fn open(&mut self, _: Session) -> Result<(), Declined> {
        unreachable!("a host without the key opens a session")
    }

    fn submit(&mut self, _: Job, _: HostSlot) -> Result<(), Box<Refused>> {
        unreachable!("a host without the key gives work")
    }

    fn poll(&mut self, _: Duration) -> Option<Finished> {
        unreachable!("a host without the key is served")
    }

    fn revoke(&mut self, _: JobId) {
        unreachable!("a host without the key takes work back")
    }

    fn forget(&mut self, _: JobId) {
        unreachable!("a host without the key has work")
    }

    fn attest(&mut self, _: &Inquiry) -> Result<Vec<Option<RecordDigest>>, String> {
        unreachable!("a host without the key asks for records")
    }

    fn stats(&mut self) -> DeviceStats {
        unreachable!("a host without the key asks for figures")
    }

    fn close(&mut self) {}
}

/// What others left in a spool directory: as the notice of a device it is read or refused, and
/// things of such names stay where they are when a host begins a run there.
pub fn notice(bytes: &[u8]) {
    let Ok(folder) = tempfile::tempdir_in(memory_folder()) else { return };
    let dir = folder.path();
    std::fs::write(dir.join("hello.json"), bytes).expect("a small file");
    if let Ok(mut device) = Spool::connect(dir, Duration::from_millis(2)) {
        assert!(device.hello().is_err(), "no device is here");
    }
    let names = bytes.split(|byte| *byte == b'\n').take(8);
    let names = names.filter_map(|name| std::str::from_utf8(name).ok());
    let theirs = names.map(|name| dir.join(name.replace(['/', '\0'], "-")).join("mine"));
    let made = |path: &PathBuf| {
        let is_below = path.parent().and_then(Path::parent) == Some(dir);
        // Of another host's notice it is not known for a second or two whether that lives.
        let is_notice = path.parent() == Some(dir.join("host.json").as_path());
        is_below
            && !is_notice
            && path.parent().is_some_and(|class| std::fs::create_dir(class).is_ok())
            && std::fs::write(path, b"mine").is_ok()
    };
    let theirs: Vec<PathBuf> = theirs.filter(made).collect();
    // A device that lives, and says nothing.
    let id = "0123456789abcdef0123456789abcdef";
    let hello = format!(r#"{{"protocol_version": {PROTOCOL_VERSION}, "id": "{id}"}}"#);
    std::fs::write(dir.join("hello.json"), hello).expect("a small file");
    if let Ok(pulse) = File::create_new(dir.join(format!("device-{id}.pulse"))) {
        pulse.lock().expect("a lock");
        let device = Spool::connect(dir, Duration::from_millis(2));
        let heard = device.expect("a folder").hello();
        assert!(heard.is_err(), "{heard:?}");
    }
    for path in &theirs {
        assert!(path.is_file(), "{} is gone", path.display());
    }
}

/// Where small files cost little.
pub(crate) fn memory_folder() -> &'static Path {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { shared } else { Path::new("/tmp") }
}

/// What a Redis or a CQL server answers.
pub fn answers(bytes: &[u8]) {
    let _ = is_redis_value(bytes);
    let _ = n_cql_answers(bytes);
}
