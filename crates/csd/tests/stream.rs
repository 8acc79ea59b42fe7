//! What can go wrong on a socket: keys, foreign and broken peers, sudden ends.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_csd::address::Address;
use bothends_csd::conformance::{self, EchoServe};
use bothends_csd::connect::{ConnectOptions, connect};
use bothends_csd::key::Key;
use bothends_csd::listen::{Ended, Listener, Terms, admit, serve_connection};
use bothends_csd::security::{Insecure, Security};
use bothends_csd::stream::Stream;
use bothends_csd::wire::{HEADER_BYTES, Message};
use bothends_csd::{
    Answer, Capabilities, CsdError, Declined, DeviceStats, Ending, Finished, Inquiry,
    Job, JobId, JobTerms, RecordDigest, Refused, Serve, Session, SessionId, Transport,
};
use bothends_slots::{HostSlot, Outcome, Polled, Producer, Ring, RingConfig};
use nix::sys::socket::{Backlog, listen};

static RUN_ON: AtomicBool = AtomicBool::new(false);

/// With this key, or none where there is no text.
fn key(text: &str) -> Security {
    let key = (!text.is_empty()).then(|| Key::from_bytes(text.as_bytes()).unwrap());
    Security::default().with_key(key)
}

/// A host with one key greets a device with another; what each of them says.
fn greet(
    host: &str,
    device: &str,
) -> (Result<Capabilities, CsdError>, Result<Ended, CsdError>) {
    let (host_end, device_end) = UnixStream::pair().unwrap();
    let device_key = key(device);
    let device = thread::spawn(move || {
        let terms = Terms { security: &device_key, stop: &RUN_ON };
        serve_connection(device_end, &mut EchoServe::default(), terms)
    });
    let timeout = Duration::from_secs(60);
    let mut transport =
        Stream::over_socket(host_end.into(), "nas".into(), key(host), timeout).unwrap();
    let heard = transport.hello();
    drop(transport);
    (heard, device.join().unwrap())
}

#[test]
fn sides_with_the_same_key_or_none_meet() {
    for key in ["", "a key of 16 bytes"] {
        let (host, device) = greet(key, key);
        assert_eq!(host.unwrap().name, "echo");
        assert_eq!(device.unwrap(), Ended::HostGone);
    }
}

#[test]
fn sides_with_different_keys_do_not() {
    let cases = [
        ("a key of 16 bytes", "another of 16 bytes", "does not have our key"),
        ("a key of 16 bytes", "", "does not have our key"),
        ("", "a key of 16 bytes", "asks for a key"),
    ];
    for (host, device, expected) in cases {
        let (heard, _) = greet(host, device);
        let error = heard.unwrap_err();
        assert!(matches!(error, CsdError::Unauthenticated { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.to_string().contains("the same key file"), "{error}");
    }
}

/// A device that notes what it is told of jobs, and says whether it wants to be.
#[derive(Debug, Default)]
struct Told {
    echo: EchoServe,
    features: Vec<String>,
    jobs: Vec<Option<JobTerms>>,
    needs_ns: Vec<u64>,
}

impl Serve for Told {
    fn hello(&mut self) -> Capabilities {
        Capabilities { features: self.features.clone(), ..self.echo.hello() }
    }

    fn open(&mut self, session: Session) -> Result<(), Declined> {
        self.jobs.push(session.job.clone());
        self.echo.open(session)
    }

    fn attest(&mut self, inquiry: &Inquiry) -> Result<Vec<Option<RecordDigest>>, String> {
        self.echo.attest(inquiry)
    }

    fn submit(&mut self, job: Job, slot: HostSlot) -> Result<(), Box<Refused>> {
        self.needs_ns.push(job.need_ns);
        self.echo.submit(job, slot)
    }

    fn poll(&mut self, timeout: Duration) -> Option<Finished> {
        self.echo.poll(timeout)
    }

    fn revoke(&mut self, job: JobId) {
        self.echo.revoke(job);
    }

    fn forget(&mut self, job: JobId) {
        self.echo.forget(job);
    }

    fn stats(&mut self) -> DeviceStats {
        self.echo.stats()
    }

    fn close(&mut self) {
        self.echo.close();
    }
}

/// Devices of an older release find a session with another key malformed.
#[test]
fn only_devices_that_know_jobs_are_told_of_them_and_of_needs() {
    let terms = JobTerms::named("vit");
    for (features, jobs, needs_ns) in [
        (vec![], vec![None], vec![0]),
        (vec!["jobs".to_owned(), "later".to_owned()], vec![Some(terms.clone())], vec![7]),
    ] {
        let (host_end, device_end) = UnixStream::pair().unwrap();
        let device = thread::spawn(move || {
            let security = key("");
            let terms = Terms { security: &security, stop: &RUN_ON };
            let mut told = Told { features, ..Told::default() };
            serve_connection(device_end, &mut told, terms).unwrap();
            told
        });
        let timeout = Duration::from_secs(60);
        let mut host =
            Stream::over_socket(host_end.into(), "nas".into(), key(""), timeout).unwrap();
        host.hello().unwrap();
        host.open(&Session { job: Some(terms.clone()), ..session() }).unwrap();
        let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes: 8 }).unwrap();
        let slot = ring.take(Duration::ZERO).unwrap();
        host.submit(Job { need_ns: 7, ..job(1) }, slot).unwrap();
        assert!(matches!(host.poll(timeout).unwrap(), Polled::Completion(_)));
        drop(host);
        let told = device.join().unwrap();
        assert_eq!((told.jobs, told.needs_ns), (jobs, needs_ns));
    }
}

/// A host that skips its own checks meets the device's.
#[test]
fn a_host_without_the_proof_is_refused_by_the_device() {
    let hello =
        |proof| [Message::Prove { proof }.encode(), Message::Hello.encode()].concat();
    for (proof, expected) in [(None, "the host has none"), (Some([9; 32]), "another key")]
    {
        let (mut host, device_end) = UnixStream::pair().unwrap();
        host.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let device = thread::spawn(move || {
            let key = key("a key of 16 bytes");
            let terms = Terms { security: &key, stop: &RUN_ON };
            serve_connection(device_end, &mut EchoServe::default(), terms)
        });
        host.write_all(&Message::Greet { nonce: [1; 32] }.encode()).unwrap();
        let mut challenge = [0; 128];
        host.read_exact(&mut challenge).unwrap();
        host.write_all(&hello(proof)).unwrap();
        let mut said = Vec::new();
        host.read_to_end(&mut said).unwrap();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains(expected), "{said}");
        assert!(matches!(device.join().unwrap(), Err(CsdError::Unauthenticated { .. })));
    }
}

#[test]
fn a_port_open_to_the_world_is_encrypted_or_has_consent_and_a_key() {
    let plain: Address = "tcp://0.0.0.0:0".parse().unwrap();
    let refused = |address: &Address, security: &Security| {
        Listener::bind(address, security).unwrap_err().to_string()
    };
    let error = refused(&plain, &key("a key of 16 bytes"));
    assert!(error.contains("use tcp+noise:// or tls://"), "{error}");
    let insecure = Security::load(None, None, Insecure::Allowed).unwrap();
    let error = refused(&plain, &insecure);
    assert!(error.contains("no key file is given"), "{error}");
    let both = insecure.with_key(Key::from_bytes(b"a key of 16 bytes"));
    assert!(Listener::bind(&plain, &both).is_ok());
    let noise: Address = "tcp+noise://0.0.0.0:0".parse().unwrap();
    let error = refused(&noise, &key(""));
    assert!(error.contains("needs a key"), "{error}");
    assert!(Listener::bind(&noise, &key("a key of 16 bytes")).is_ok());
    let tls: Address = "tls://0.0.0.0:0".parse().unwrap();
    let error = refused(&tls, &key("a key of 16 bytes"));
    assert!(error.contains("needs certificates"), "{error}");
}

#[test]
fn nobody_at_an_address_says_which() {
    let listener =
        Listener::bind(&"tcp://127.0.0.1:0".parse().unwrap(), &key("")).unwrap();
    let port = listener.address().to_string();
    drop(listener);
    for address in [port.as_str(), "unix:///nowhere/agent.sock", "spool:///nowhere/dir"] {
        let error =
            connect(&address.parse().unwrap(), &ConnectOptions::default()).unwrap_err();
        assert!(matches!(error, CsdError::Unreachable { .. }), "{error}");
        assert!(error.to_string().contains(address), "{error}");
    }
}

#[test]
fn a_socket_file_is_replaced_when_abandoned_and_kept_when_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let address = Address::Unix(path.clone());
    drop(UnixListener::bind(&path).unwrap());
    let listener = Listener::bind(&address, &key("")).unwrap();
    let second = Listener::bind(&address, &key("")).unwrap_err();
    assert!(matches!(second, CsdError::Place { .. }), "{second}");
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn a_place_that_is_withdrawn_belongs_to_whoever_takes_it_next() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let address = Address::Unix(path.clone());
    let first = Listener::bind(&address, &key("")).unwrap();
    first.withdraw();
    assert!(!path.exists());
    let _second = Listener::bind(&address, &key("")).unwrap();
    first.withdraw();
    drop(first);
    assert!(path.exists(), "the first one took the second one's");
}

#[test]
fn a_file_that_is_no_socket_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("thesis.txt");
    std::fs::write(&path, "thesis").unwrap();
    let refused = Listener::bind(&Address::Unix(path.clone()), &key("")).unwrap_err();
    assert!(refused.to_string().contains("thesis.txt"), "{refused}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "thesis");
    // Nor does a listener take away what has come into its place.
    let path = dir.path().join("agent.sock");
    let listener = Listener::bind(&Address::Unix(path.clone()), &key("")).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "notes").unwrap();
    drop(listener);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "notes");
}

#[test]
fn a_listener_that_ends_leaves_the_socket_of_its_successor() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let first = Listener::bind(&Address::Unix(path.clone()), &key("")).unwrap();
    // As scripts do before they start the next one.
    std::fs::remove_file(&path).unwrap();
    let second = Listener::bind(&Address::Unix(path.clone()), &key("")).unwrap();
    drop(first);
    UnixStream::connect(&path).unwrap();
    drop(second);
    assert!(!path.exists());
}

#[test]
fn a_socket_whose_process_does_not_run_is_not_waited_for_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let listener = UnixListener::bind(&path).unwrap();
    listen(&listener, Backlog::new(1).unwrap()).unwrap();
    let mut waiting = Vec::new();
    let began = Instant::now();
    let error = loop {
        let address = Address::Unix(path.clone());
        match Stream::connect(&address, key(""), Duration::from_millis(50)) {
            Ok(stream) => waiting.push(stream),
            Err(error) => break error,
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{} wait", waiting.len());
    };
    let CsdError::Unreachable { source, .. } = &error else { panic!("{error}") };
    assert!(source.to_string().contains("its queue is full"), "{source}");
}

/// A peer that says `bytes` and then stays silent, or closes.
fn against(bytes: &'static [u8], then: Then) -> CsdError {
    let (host, mut peer) = UnixStream::pair().unwrap();
    let peer = thread::spawn(move || {
        peer.read_exact(&mut [0; HEADER_BYTES + 32]).unwrap();
        peer.write_all(bytes).unwrap();
        match then {
            Then::Close => drop(peer),
            Then::StaySilent => drop(peer.read(&mut [0; 1])),
        }
    });
    // Only of the silent one, the end of the wait is what is looked at.
    let timeout = Duration::from_millis(if bytes == b"BEND" { 300 } else { 60_000 });
    let mut transport =
        Stream::over_socket(host.into(), "peer".into(), key(""), timeout).unwrap();
    let began = Instant::now();
    let error = transport.hello().unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(60), "no deadline");
    drop(transport);
    peer.join().unwrap();
    error
}

#[derive(Clone, Copy)]
enum Then {
    Close,
    StaySilent,
}

#[test]
fn a_foreign_or_broken_peer_is_a_clear_error() {
    let http = against(&[b'H'; 64], Then::StaySilent).to_string();
    assert!(http.contains("magic"), "{http}");
    let cut = against(b"BEND\x02\0\0\0", Then::Close);
    assert!(matches!(cut, CsdError::LinkLost { .. }), "{cut}");
    let gone = against(b"", Then::Close);
    assert!(matches!(gone, CsdError::LinkLost { .. }), "{gone}");
    let silent = against(b"BEND", Then::StaySilent);
    assert!(matches!(silent, CsdError::Timeout { doing: "hello", .. }), "{silent}");
    static NEWER: [u8; 64] = {
        let mut header = [0; 64];
        (header[0], header[1], header[2], header[3]) = (b'B', b'E', b'N', b'D');
        header[4] = 3;
        header
    };
    let newer = against(&NEWER, Then::StaySilent);
    assert!(matches!(newer, CsdError::Version { theirs: 3, .. }), "{newer}");
}

/// All that a device says until the result of job 0 follows, which has `len` bytes.
fn say_done(peer: &mut UnixStream, len: u64) {
    let ending = Ending::Done { len, checksum: 0, bad: Vec::new(), damaged: Vec::new() };
    let done = Answer { job: JobId(0), ending, device_ns: 0, lateness_ns: 0 };
    for message in [
        Message::Challenge { nonce: [0; 32], proof: None },
        Message::Welcome(EchoServe::default().hello()),
        Message::Opened(SessionId(1)),
        Message::Completed(SessionId(1), done),
    ] {
        peer.write_all(&message.encode()).unwrap();
    }
}

/// A device that stops in the middle of a result holds nobody longer than was agreed, whether
/// the result is wanted or not.
#[test]
fn a_result_that_stays_away_is_a_lost_link_in_time() {
    for is_wanted in [true, false] {
        let (host, mut peer) = UnixStream::pair().unwrap();
        let timeout = Duration::from_millis(300);
        let mut transport =
            Stream::over_socket(host.into(), "peer".into(), key(""), timeout).unwrap();
        say_done(&mut peer, 8);
        peer.write_all(&[1, 2, 3]).unwrap();
        let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes: 8 }).unwrap();
        transport.hello().unwrap();
        transport.open(&session()).unwrap();
        transport.submit(job(0), ring.take(Duration::ZERO).unwrap()).unwrap();
        if !is_wanted {
            transport.abandon().unwrap();
        }
        let began = Instant::now();
        let lost = transport.poll(timeout).unwrap_err();
        let error = lost.0.downcast_ref::<CsdError>().unwrap();
        assert!(matches!(error, CsdError::LinkLost { .. }), "{error}");
        assert!(transport.poll(timeout).is_err(), "the link is lost for good");
        assert_eq!(ring.free(), 1, "the slot is back");
        assert!(began.elapsed() < Duration::from_secs(60), "no deadline");
    }
}

/// A device that sends byte after byte has little more time for a result than one that sends none.
#[test]
fn a_result_that_trickles_in_is_a_lost_link_in_time() {
    for is_wanted in [true, false] {
        let (host, mut peer) = UnixStream::pair().unwrap();
        let timeout = Duration::from_millis(300);
        let mut transport =
            Stream::over_socket(host.into(), "peer".into(), key(""), timeout).unwrap();
        say_done(&mut peer, 1 << 28);
        // Until the host hangs up; minutes, if it did not.
        let trickle = thread::spawn(move || {
            while peer.write_all(&[7]).is_ok() {
                thread::sleep(Duration::from_micros(100));
            }
        });
        let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes: 1 << 28 }).unwrap();
        transport.hello().unwrap();
        let session = Session { max_batch: 2, ..conformance::session(1 << 27) };
        transport.open(&session).unwrap();
        transport.submit(job(0), ring.take(Duration::ZERO).unwrap()).unwrap();
        if !is_wanted {
            transport.abandon().unwrap();
        }
        let began = Instant::now();
        let lost = transport.poll(timeout).unwrap_err();
        let error = lost.0.downcast_ref::<CsdError>().unwrap();
        assert!(matches!(error, CsdError::LinkLost { .. }), "{error}");
        assert!(began.elapsed() < Duration::from_secs(60), "no deadline");
        drop(transport);
        trickle.join().unwrap();
    }
}

/// Over a slow link a large result takes longer than an answer may, and is not lost.
#[test]
fn a_result_that_comes_slowly_but_steadily_arrives() {
    const PART_BYTES: u32 = 1 << 18;
    const N_PARTS: u32 = 24;
    for is_wanted in [true, false] {
        let (host, mut peer) = UnixStream::pair().unwrap();
        let timeout = Duration::from_secs(3);
        let mut transport =
            Stream::over_socket(host.into(), "peer".into(), key(""), timeout).unwrap();
        say_done(&mut peer, u64::from(N_PARTS * PART_BYTES));
        let began = Instant::now();
        let slow = thread::spawn(move || {
            for _ in 0..N_PARTS {
                peer.write_all(&[7; PART_BYTES as usize]).unwrap();
                thread::sleep(Duration::from_millis(150));
            }
            peer
        });
        let slot_bytes = (N_PARTS * PART_BYTES) as usize;
        let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes }).unwrap();
        transport.hello().unwrap();
        let sample_bytes = N_PARTS / 2 * PART_BYTES;
        let session = Session { max_batch: 2, ..conformance::session(sample_bytes) };
        transport.open(&session).unwrap();
        transport.submit(job(0), ring.take(Duration::ZERO).unwrap()).unwrap();
        if !is_wanted {
            transport.abandon().unwrap();
        }
        let polled = transport.poll(timeout).unwrap();
        assert!(began.elapsed() > timeout, "it was not slow: {:?}", began.elapsed());
        // It is wrong, since it is all sevens, and whole.
        let is_here = match polled {
            Polled::Completion(done) => matches!(done.outcome, Outcome::Failed { .. }),
            Polled::Extra => true,
            Polled::Nothing => false,
        };
        assert!(is_here);
        drop(slow.join().unwrap());
    }
}

/// A result that nobody wants is skipped, and what follows is whole.
#[test]
fn an_unwanted_result_does_not_stand_in_the_way() {
    let (host, mut peer) = UnixStream::pair().unwrap();
    let timeout = Duration::from_secs(60);
    let mut transport =
        Stream::over_socket(host.into(), "peer".into(), key(""), timeout).unwrap();
    say_done(&mut peer, 8);
    peer.write_all(&[7; 8]).unwrap();
    peer.write_all(&Message::Stats(Default::default()).encode()).unwrap();
    let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes: 8 }).unwrap();
    transport.hello().unwrap();
    transport.open(&session()).unwrap();
    transport.submit(job(0), ring.take(Duration::ZERO).unwrap()).unwrap();
    transport.abandon().unwrap();
    assert_eq!(ring.free(), 1, "the slot is back at once");
    assert_eq!(transport.stats().unwrap().jobs, 0);
    assert!(matches!(transport.poll(Duration::ZERO), Ok(Polled::Extra)));
}

/// Asking what a host wants must not take the gigabyte that a session may have: it has no seat yet.
#[test]
fn a_first_message_that_may_be_long_is_left_to_whoever_serves() {
    let (mut host, device_end) = UnixStream::pair().unwrap();
    let host = thread::spawn(move || {
        let greet = Message::Greet { nonce: [1; 32] }.encode();
        let prove = Message::Prove { proof: None }.encode();
        let manifest = vec![0; 64 << 20];
        let open = Message::Open(Session { manifest, ..session() }).encode();
        let said = host.write_all(&greet);
        let said = said.and_then(|()| host.read_exact(&mut [0; HEADER_BYTES]));
        said.and_then(|()| host.write_all(&[prove, open].concat()))
    });
    let security = key("");
    let terms = Terms { security: &security, stop: &RUN_ON };
    let mut admitted = admit(device_end, terms).unwrap();
    assert_eq!(admitted.question(&RUN_ON).unwrap(), None);
    drop(admitted);
    assert!(host.join().unwrap().is_err(), "all of it was taken");
}

/// A device that answered without end kept its host in a wait that no deadline ended.
#[test]
fn a_device_that_answers_what_nobody_asked_is_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (host, _) = listener.accept().unwrap();
    let timeout = Duration::from_secs(60);
    let mut transport =
        Stream::over_socket(host.into(), "peer".into(), key(""), timeout).unwrap();
    let features = vec!["pulse".to_owned()];
    for message in [
        Message::Challenge { nonce: [0; 32], proof: None },
        Message::Welcome(Capabilities { features, ..EchoServe::default().hello() }),
        Message::Pong,
    ] {
        peer.write_all(&message.encode()).unwrap();
    }
    transport.hello().unwrap();
    let lost = transport.poll(Duration::from_millis(100)).unwrap_err();
    let error = lost.0.downcast_ref::<CsdError>().unwrap();
    assert!(matches!(error, CsdError::Malformed { .. }), "{error}");
}

fn session() -> Session {
    Session { max_batch: 2, ..conformance::session(4) }
}

fn job(id: u64) -> Job {
    let samples = [1, 2].map(SampleId).to_vec();
    Job { id: JobId(id), epoch: EpochIdx(0), batch: BatchIdx(0), samples, need_ns: 0 }
}

#[test]
fn a_host_of_another_version_is_told_ours() {
    let (mut host, device_end) = UnixStream::pair().unwrap();
    host.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let device = thread::spawn(move || {
        let terms = Terms { security: &Security::default(), stop: &RUN_ON };
        serve_connection(device_end, &mut EchoServe::default(), terms)
    });
    let mut greeting = Message::Greet { nonce: [0; 32] }.encode();
    greeting[4] = 9;
    host.write_all(&greeting).unwrap();
    let mut answer = Vec::new();
    host.read_to_end(&mut answer).unwrap();
    assert_eq!(answer[4..8], [2, 0, 0, 0]);
    let ended = device.join().unwrap();
    assert!(matches!(ended, Err(CsdError::Version { theirs: 9, .. })), "{ended:?}");
}

#[test]
fn a_host_that_speaks_nonsense_is_not_served_further() {
    let mut serve = EchoServe::default();
    let control = serve.control();
    let (mut host, device_end) = UnixStream::pair().unwrap();
    let mut said = Message::Greet { nonce: [0; 32] }.encode();
    said.extend(Message::Prove { proof: None }.encode());
    said.extend(Message::Welcome(serve.hello()).encode());
    host.write_all(&said).unwrap();
    let terms = Terms { security: &Security::default(), stop: &RUN_ON };
    let ended = serve_connection(device_end, &mut serve, terms);
    assert!(matches!(ended, Err(CsdError::Malformed { .. })), "{ended:?}");
    assert!(control.is_closed());
}
