//! Who a host is, before it is served: the device's side of the handshakes and of the key exchange.
//!
//! Until it is admitted a host may send few bytes and hold its connection for seconds
//! (`words/admission.rs`). One that is refused is told why.

use std::time::{Duration, Instant};

use crate::CsdError;
use crate::channel::security::{Reach, Security};
use crate::channel::{Channel, noise, tls};
use crate::host::stream::Inbox;
use crate::socket::Readiness;
use crate::words::admission::{ADMISSION_TIMEOUT, Credential, MAX_UNADMITTED_BYTES};
use crate::words::key::{self, Role};
use crate::words::trust::Protection;
use crate::words::wire::{HEADER_BYTES, Message};

/// How long a refused host is given to read why.
const LINGER: Duration = Duration::from_millis(200);

/// A refused host that goes on sending this much does not read.
const MAX_LINGER_BYTES: usize = 1 << 16;

/// Greeting and proof are two messages.
const MOST_BODY_BYTES: usize = MAX_UNADMITTED_BYTES / 2 - HEADER_BYTES;

/// Seals the channel as its address demands. A host that fails is told why.
pub(crate) fn admit(
    channel: &mut Channel,
    security: &Security,
) -> Result<Inbox, CsdError> {
    let mut inbox = Inbox::default();
    let deadline = Instant::now() + ADMISSION_TIMEOUT;
    let admitted = exchange(channel, &mut inbox, security, deadline);
    if let Err(error) = &admitted {
        tell(channel, error);
    }
    admitted.map(|()| inbox)
}

/// What the host at the other end of an admitted connection has proved; `None` where it had to prove
/// nothing: any process of this machine may be at the other end of plain TCP.
pub(crate) fn credential(channel: &Channel, security: &Security) -> Option<Credential> {
    if let Some(certificate) = channel.peer_certificate() {
        return Some(Credential::of("certificate", &certificate));
    }
    if let Some(key) = security.key() {
        return Some(key.credential());
    }
    let uid = channel.socket.peer_uid().ok()??;
    Some(Credential::of("user", &uid.to_le_bytes()))
}

/// Tells a host why it is not served, if that is for it to know, and lets it read that.
pub(crate) fn tell(channel: &mut Channel, why: &CsdError) {
    let is_for_it = matches!(
        why,
        CsdError::Unauthenticated { .. }
            | CsdError::Untrusted { .. }
            | CsdError::Version { .. }
    );
    if !is_for_it {
        return;
    }
    say(channel, &Message::Refused { reason: why.to_string() });
}

/// The last words to a host that is not served: lets it read them.
pub(crate) fn say(channel: &mut Channel, last: &Message) {
    say_until(channel, last, Instant::now() + LINGER);
}

/// As [`say`], of words that may be long.
pub(crate) fn say_until(channel: &mut Channel, last: &Message, deadline: Instant) {
    // Whether or not the host still hears it, it is not served.
    drop(channel.write_all(&last.encode(), deadline));
    linger(channel, deadline.min(Instant::now() + LINGER));
}

/// Takes what the host still sends until it closes, for a moment at most: a connection
/// closed over unread bytes is reset, and the refusal in it lost.
fn linger(channel: &mut Channel, deadline: Instant) {
    let mut scratch = [0; 1 << 12];
    let mut n_left = MAX_LINGER_BYTES;
    while n_left > 0 {
        let len = scratch.len().min(n_left);
        match channel.socket.read_ready(&mut scratch[..len]) {
            Ok(Some(n)) => n_left -= n,
            Ok(None) => {}
            Err(_) => return,
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || channel.socket.wait(Readiness::Read, left).is_err() {
            return;
        }
    }
}

fn exchange(
    channel: &mut Channel,
    inbox: &mut Inbox,
    security: &Security,
    deadline: Instant,
) -> Result<(), CsdError> {
    let socket = &mut channel.socket;
    socket.prepare().map_err(CsdError::lost("prepare a connection"))?;
    security.permits_peer(socket, "this connection")?;
    match (socket.protection(), security.key(), security.tls()) {
        (Protection::Noise, Some(key), _) => {
            let noise = noise::admit(socket, key, deadline)?;
            channel.seal_with_noise(noise);
            Ok(())
        }
        (Protection::Tls, _, Some(configs)) => {
            let tls = tls::admit(socket, configs, deadline)?;
            channel.seal_with_tls(tls);
            Ok(())
        }
        (protection @ (Protection::Noise | Protection::Tls), ..) => {
            security.permits(protection, Reach::Here, "this connection")
        }
        (Protection::Plain, ..) => {
            inbox.limit(Some(MOST_BODY_BYTES));
            exchange_keys((channel, inbox), security, deadline)?;
            inbox.limit(None);
            Ok(())
        }
    }
}

/// The key exchange of a plain connection.
fn exchange_keys(
    (channel, inbox): (&mut Channel, &mut Inbox),
    security: &Security,
    deadline: Instant,
) -> Result<(), CsdError> {
    let refused = |what: &str| Err(CsdError::Unauthenticated { what: what.to_owned() });
    let heard = hear(channel, inbox, deadline);
    if let Err(CsdError::Malformed { .. } | CsdError::LinkLost { .. }) = &heard
        && let Some(stranger) = inbox.stranger(Protection::Plain)
    {
        return Err(stranger);
    }
    let Message::Greet { nonce: theirs } = heard? else {
        return Err(CsdError::Malformed {
            what: "a first message that is not a greeting",
        });
    };
    let key = security.key();
    let ours = key::nonce().map_err(CsdError::lost("make a nonce"))?;
    let proof = key.map(|key| key.prove(Role::Device, &theirs, &ours));
    let challenge = Message::Challenge { nonce: ours, proof }.encode();
    channel.write_all(&challenge, deadline).map_err(CsdError::lost("greet the host"))?;
    let Message::Prove { proof } = hear(channel, inbox, deadline)? else {
        return Err(CsdError::Malformed { what: "a greeting without an end" });
    };
    let Some(key) = key else { return Ok(()) };
    match proof {
        Some(proof) if key.accepts(&proof, Role::Host, &theirs, &ours) => Ok(()),
        Some(_) => refused("the host has another key"),
        None => refused("the device asks for a key and the host has none"),
    }
}

fn hear(
    channel: &mut Channel,
    inbox: &mut Inbox,
    deadline: Instant,
) -> Result<Message, CsdError> {
    let heard = inbox.next_until(deadline, channel, "greet the host")?;
    heard.ok_or(CsdError::Timeout { doing: "greet", waited: ADMISSION_TIMEOUT })
}
