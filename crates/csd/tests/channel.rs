//! What somebody between two ends can do to a sealed channel, and what strangers at its door can.

#![allow(clippy::unwrap_used, reason = "tests")]

mod peers;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_csd::conformance::{self, EchoServe, echo};
use bothends_csd::key::Key;
use bothends_csd::listen::{Ended, Listener, Socket, Terms, serve_connection};
use bothends_csd::security::{Insecure, Security};
use bothends_csd::stream::Stream;
use bothends_csd::wire::Message;
use bothends_csd::{Address, CsdError, Job, JobId, Session, Transport, admission};
use bothends_slots::{Completion, Outcome, Polled, Producer, Ring, RingConfig};
use proptest::prelude::*;

use peers::{Kind, Meddle, PATIENCE, Trust, between, key, pass};

static RUN_ON: AtomicBool = AtomicBool::new(false);

/// Several records of either kind.
fn session() -> Session {
    Session { max_batch: 2, ..conformance::session(100_000) }
}

fn job() -> Job {
    let samples = [1, 2].map(SampleId).to_vec();
    Job { id: JobId(0), epoch: EpochIdx(0), batch: BatchIdx(0), samples, need_ns: 0 }
}

fn socket(stream: UnixStream, kind: Kind) -> Socket {
    Socket::from(stream).protected_as(&kind.address().parse().unwrap())
}

/// What each end says of a session with one batch.
struct Said {
    host: Result<(), String>,
    device: Result<Ended, CsdError>,
}

/// One batch with somebody between the ends. A batch that arrives is right.
fn one_batch(kind: Kind, trust: &Trust, meddle: [Meddle; 2], patience: Duration) -> Said {
    let [to_device, to_host] = meddle;
    let (host, device, pumps) = between(to_device, to_host);
    let of_device = trust.security();
    let device = thread::spawn(move || {
        let terms = Terms { security: &of_device, stop: &RUN_ON };
        serve_connection(socket(device, kind), &mut EchoServe::default(), terms)
    });
    let (host, name) = (socket(host, kind), kind.address().to_owned());
    let transport = Stream::over_socket(host, name, trust.security(), patience);
    let host = batch_of(&mut transport.unwrap(), patience);
    let device = device.join().unwrap();
    for pump in pumps {
        pump.join().unwrap();
    }
    Said { host, device }
}

fn batch_of(transport: &mut Stream, patience: Duration) -> Result<(), String> {
    transport.hello().map_err(|error| error.to_string())?;
    transport.open(&session()).map_err(|error| error.to_string())?;
    let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes: 200_000 }).unwrap();
    let slot = ring.take(Duration::ZERO).unwrap();
    transport.submit(job(), slot).map_err(|error| format!("{error:?}"))?;
    match transport.poll(patience).map_err(|error| error.to_string())? {
        Polled::Completion(Completion {
            slot, outcome: Outcome::Made { .. }, ..
        }) => {
            let slot = slot.host().unwrap();
            assert!(slot[..200_000] == echo(&session(), &job())[..], "wrong bytes");
            Ok(())
        }
        other @ (Polled::Completion(_) | Polled::Extra | Polled::Nothing) => {
            Err(format!("{other:?}"))
        }
    }
}

/// Cuts what passes into pieces of these sizes, and joins some of them.
fn recut(sizes: Vec<usize>) -> Meddle {
    let mut sizes = sizes.into_iter().cycle();
    Box::new(move |bytes| {
        let (mut pieces, mut rest) = (Vec::new(), bytes);
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(sizes.next().unwrap().min(rest.len()));
            pieces.push(piece.to_vec());
            rest = after;
        }
        pieces
    })
}

/// Flips one bit of byte `at`, if as many pass.
fn flip(at: usize, bit: u8) -> Meddle {
    let mut n_passed = 0;
    Box::new(move |bytes| {
        let mut bytes = bytes.to_vec();
        let here = at.checked_sub(n_passed).and_then(|at| bytes.get_mut(at));
        here.into_iter().for_each(|byte| *byte ^= 1 << bit);
        n_passed += bytes.len();
        vec![bytes]
    })
}

/// What is done to whole records.
#[derive(Debug, Clone, Copy)]
enum Crime {
    Repeat,
    Swap,
    Drop,
    Insert,
}

/// Commits a crime at the record `nth`.
fn meddle_with(kind: Kind, crime: Crime, nth: usize) -> Meddle {
    let (mut here, mut records, mut n_passed) = (Vec::new(), Vec::<Vec<u8>>::new(), 0);
    let mut kept: Option<Vec<u8>> = None;
    Box::new(move |bytes| {
        here.extend_from_slice(bytes);
        while let Some(len) = record_bytes(kind, &here) {
            records.push(here.drain(..len).collect());
        }
        let mut out = Vec::new();
        for record in records.drain(..) {
            let is_it = n_passed == nth;
            n_passed += 1;
            match crime {
                Crime::Repeat if is_it => out.extend([record.clone(), record]),
                Crime::Swap if is_it => kept = Some(record),
                Crime::Drop if is_it => {}
                Crime::Insert if is_it => out.extend([foreign(kind), record]),
                Crime::Repeat | Crime::Swap | Crime::Drop | Crime::Insert => {
                    out.push(record);
                    out.extend(kept.take());
                }
            }
        }
        out
    })
}

/// The length of the first record, if all of it is here.
fn record_bytes(kind: Kind, bytes: &[u8]) -> Option<usize> {
    let head = if kind == Kind::Tls { 5 } else { 2 };
    let length = bytes.get(head - 2..head)?;
    let len = head + usize::from(u16::from_be_bytes([length[0], length[1]]));
    (bytes.len() >= len).then_some(len)
}

/// A record that looks right to who has no key.
fn foreign(kind: Kind) -> Vec<u8> {
    let head: &[u8] = if kind == Kind::Tls { &[23, 3, 3, 0, 40] } else { &[0, 40] };
    [head, &[7; 40]].concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn records_may_be_cut_and_joined_anywhere(
        sizes in proptest::collection::vec(1_usize..40_000, 1..8),
        back in proptest::collection::vec(1_usize..90, 1..8),
    ) {
        let trust = Trust::new();
        for kind in Kind::SEALED {
            let meddle = [recut(back.clone()), recut(sizes.clone())];
            let said = one_batch(kind, &trust, meddle, PATIENCE);
            prop_assert_eq!(said.host, Ok(()));
            prop_assert_eq!(said.device.unwrap(), Ended::HostGone);
        }
    }
}

/// A changed length may make a side wait for bytes that never come, so patience is short here; the
/// test demands no success.
const SHORT: Duration = Duration::from_millis(400);

/// Each of many bits, on the way there and back: the batch is right or does not come.
#[test]
fn a_flipped_bit_costs_the_link_and_no_batch_is_wrong() {
    let trust = Trust::new();
    for kind in Kind::SEALED {
        let (forth, n_forth) = count();
        let (back, n_back) = count();
        one_batch(kind, &trust, [forth, back], PATIENCE).host.unwrap();
        let [n_forth, n_back] = [n_forth, n_back].map(|n| n.load(Ordering::SeqCst));
        let mut n_seen = 0;
        for nth in 0..24 {
            // Half of them early, where handshakes and headers are. The lengths of certificates vary.
            let early = (nth % 2 == 0).then_some(60 * nth);
            let places = [n_forth, n_back].map(|n| early.unwrap_or((n - 64) * nth / 24));
            let bit = u8::try_from(nth % 8).unwrap();
            let forth = flip(places[0].min(n_forth - 64), bit);
            let back = flip(places[1].min(n_back - 64), bit);
            for meddle in [[forth, pass()], [pass(), back]] {
                let said = one_batch(kind, &trust, meddle, SHORT);
                n_seen += u32::from(said.host.is_err());
            }
        }
        // Half of the version in the header of a TLS record says nothing, and nobody checks it.
        let least = if kind == Kind::Noise { 48 } else { 40 };
        assert!(n_seen >= least, "{kind:?}: {n_seen} of 48 flips were seen");
    }
}

/// Counts what passes.
fn count() -> (Meddle, Arc<AtomicUsize>) {
    let n_bytes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&n_bytes);
    let meddle: Meddle = Box::new(move |bytes| {
        counted.fetch_add(bytes.len(), Ordering::SeqCst);
        vec![bytes.to_vec()]
    });
    (meddle, n_bytes)
}

#[test]
fn records_that_are_repeated_swapped_left_out_or_added_cost_the_link() {
    let trust = Trust::new();
    for kind in Kind::SEALED {
        for crime in [Crime::Repeat, Crime::Swap, Crime::Drop, Crime::Insert] {
            // The handshake of Noise is over by then, and more records follow.
            for nth in [4, 5] {
                let meddle = [pass(), meddle_with(kind, crime, nth)];
                let said = one_batch(kind, &trust, meddle, Duration::from_secs(2));
                let error = said.host.expect_err(&format!("{kind:?} {crime:?} {nth}"));
                assert!(!error.is_empty(), "{kind:?} {crime:?}");
            }
        }
    }
}

#[test]
fn nothing_of_a_batch_is_readable_on_the_way() {
    let trust = Trust::new();
    let batch = echo(&session(), &job());
    for kind in Kind::ALL {
        let (heard, seen) = std::sync::mpsc::channel();
        let listen: Meddle = Box::new(move |bytes| {
            heard.send(bytes.to_vec()).unwrap();
            vec![bytes.to_vec()]
        });
        let said = one_batch(kind, &trust, [pass(), listen], PATIENCE);
        said.host.unwrap();
        let seen: Vec<u8> = seen.iter().flatten().collect();
        let needle = &batch[5000..5064];
        let is_seen = seen.windows(needle.len()).any(|window| window == needle);
        assert_eq!(is_seen, kind == Kind::Plain, "{kind:?}");
    }
}

/// What a host with one security and a device with another say of each other.
fn meet(
    (host_kind, host): (Kind, Security),
    (device_kind, device): (Kind, Security),
) -> (String, String) {
    let (host_end, device_end) = UnixStream::pair().unwrap();
    let device = thread::spawn(move || {
        let terms = Terms { security: &device, stop: &RUN_ON };
        let ended = serve_connection(
            socket(device_end, device_kind),
            &mut EchoServe::default(),
            terms,
        );
        ended.err().map_or_else(String::new, |error| error.to_string())
    });
    let (end, name) = (socket(host_end, host_kind), host_kind.address().to_owned());
    let heard = Stream::over_socket(end, name, host, PATIENCE)
        .and_then(|mut transport| transport.hello());
    let heard = heard.err().map_or_else(String::new, |error| error.to_string());
    (heard, device.join().unwrap())
}

#[test]
fn sides_of_different_kinds_both_say_so() {
    let trust = Trust::new();
    for host in Kind::ALL {
        for device in Kind::ALL {
            let (heard, said) =
                meet((host, trust.security()), (device, trust.security()));
            if host == device {
                assert_eq!((heard, said), (String::new(), String::new()));
                continue;
            }
            for line in [&heard, &said] {
                let names = [host, device].map(|kind| {
                    let address = kind.address();
                    line.contains(&format!(
                        " {}",
                        &address[..address.find("localhost").unwrap()]
                    ))
                });
                assert_eq!(names, [true; 2], "{host:?} to {device:?}: {line}");
                assert!(line.contains("an address of the same kind"), "{line}");
            }
        }
    }
}

#[test]
fn another_noise_key_is_named_on_both_sides() {
    let other = Security::default().with_key(Key::from_bytes(b"another of 16 bytes"));
    let ours = Security::default().with_key(key());
    let (heard, said) = meet((Kind::Noise, ours), (Kind::Noise, other));
    assert!(heard.contains("the host has another key"), "{heard}");
    assert!(said.contains("the host has another key"), "{said}");
    assert!(heard.contains("the same key file") && said.contains("the same key file"));
}

#[test]
fn a_certificate_that_does_not_hold_is_named_on_both_sides() {
    let (trust, foreign) = (Trust::new(), Trust::new());
    let load = |files| Security::load(None, Some(&files), Insecure::Refused).unwrap();
    let good = || load(trust.files("localhost", |_| {}));
    let expired = || {
        load(trust.files("localhost", |params| {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
            params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        }))
    };
    let of_others = || {
        let theirs = foreign.files("localhost", |_| {});
        load(bothends_csd::TlsFiles { ca: trust.path("ca.pem"), ..theirs })
    };
    let meet = |host, device| meet((Kind::Tls, host), (Kind::Tls, device));
    for host in [expired(), of_others()] {
        let (heard, said) = meet(host, good());
        assert!(heard.contains("refuses this side's certificate"), "{heard}");
        assert!(said.contains("the host's certificate is not valid"), "{said}");
    }
    let of_another_name = load(trust.files("nas.example", |_| {}));
    for device in [expired(), of_others(), of_another_name] {
        let (heard, said) = meet(good(), device);
        assert!(heard.contains("the device's certificate is not valid"), "{heard}");
        assert!(said.contains("refuses this side's certificate"), "{said}");
    }
}

/// What a device says of a stranger who says this and then waits.
fn stranger(kind: Kind, said: &[u8]) -> (Result<Ended, CsdError>, Duration) {
    let trust = Trust::new();
    let (mut stranger, device_end) = UnixStream::pair().unwrap();
    // The device may hang up over it.
    drop(stranger.write_all(said));
    let began = Instant::now();
    let security = trust.security();
    let terms = Terms { security: &security, stop: &RUN_ON };
    let ended =
        serve_connection(socket(device_end, kind), &mut EchoServe::default(), terms);
    (ended, began.elapsed())
}

#[test]
fn a_silent_stranger_is_let_go_in_time() {
    let threads = Kind::ALL.map(|kind| thread::spawn(move || stranger(kind, b"")));
    for thread in threads {
        let (ended, waited) = thread.join().unwrap();
        assert!(matches!(ended, Err(CsdError::Timeout { .. })), "{ended:?}");
        assert!(waited >= admission::ADMISSION_TIMEOUT, "{waited:?}");
    }
}

#[test]
fn strangers_who_say_too_much_are_let_go_at_once() {
    let mut long_open = Message::Open(session()).encode();
    // The header of a long message, without its body.
    long_open.truncate(bothends_csd::wire::HEADER_BYTES);
    let flood: Vec<u8> = std::iter::repeat_n([22, 3, 1, 0x3f, 0, 1, 0, 0xff, 0xff], 4000)
        .flatten()
        .collect();
    for (kind, said) in [
        (Kind::Plain, long_open.as_slice()),
        (Kind::Noise, &[0, 96, 1, 2, 3][..]),
        (Kind::Noise, &[0xff; 200]),
        (Kind::Tls, &flood),
        (Kind::Plain, &[b'x'; 4096]),
    ] {
        let (ended, _) = stranger(kind, said);
        assert!(!matches!(ended, Ok(Ended::Stopped)), "{kind:?}: {ended:?}");
    }
}

/// An earlier host's first message opens with the key, but who repeats it cannot go on.
#[test]
fn a_repeated_greeting_admits_nobody() {
    let trust = Trust::new();
    let (heard, said) = std::sync::mpsc::channel();
    let listen: Meddle = Box::new(move |bytes| {
        drop(heard.send(bytes.to_vec()));
        vec![bytes.to_vec()]
    });
    one_batch(Kind::Noise, &trust, [listen, pass()], PATIENCE).host.unwrap();
    let said: Vec<u8> = said.iter().flatten().collect();
    let (ended, _) = stranger(Kind::Noise, &said);
    let error = ended.unwrap_err();
    assert!(matches!(error, CsdError::Unauthenticated { .. }), "{error}");
}

#[test]
fn over_tcp_the_address_says_how() {
    let trust = Trust::new();
    for kind in Kind::ALL {
        let address: Address = kind.address().parse().unwrap();
        let listener = Listener::bind(&address, &trust.security()).unwrap();
        let address = listener.address().clone();
        let security = trust.security();
        let device = thread::spawn(move || {
            let accepted = listener.accept(PATIENCE).unwrap().unwrap();
            let terms = Terms { security: &security, stop: &RUN_ON };
            serve_connection(accepted, &mut EchoServe::default(), terms)
        });
        let host = Stream::connect(&address, trust.security(), PATIENCE);
        batch_of(&mut host.unwrap(), PATIENCE).unwrap();
        assert_eq!(device.join().unwrap().unwrap(), Ended::HostGone, "{kind:?}");
    }
}

#[test]
fn a_host_of_another_version_is_told_ours_over_noise_too() {
    // A version in the first inner message: what the host sends is sealed by a real channel, so
    // the device is told one by hand in plain, where the same code answers.
    let (mut host, device_end) = UnixStream::pair().unwrap();
    let device = thread::spawn(move || {
        let security = Security::default();
        let terms = Terms { security: &security, stop: &RUN_ON };
        serve_connection(device_end, &mut EchoServe::default(), terms)
    });
    let mut hello = Message::Hello.encode();
    hello[4] = 9;
    host.write_all(&Message::Greet { nonce: [1; 32] }.encode()).unwrap();
    host.write_all(&Message::Prove { proof: None }.encode()).unwrap();
    host.write_all(&hello).unwrap();
    let mut said = Vec::new();
    host.read_to_end(&mut said).unwrap();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains("version 9") && said.contains("version 2"), "{said}");
    let ended = device.join().unwrap();
    assert!(matches!(ended, Err(CsdError::Version { theirs: 9, .. })), "{ended:?}");
}
