//! What a peer may do before it is known who it is, and what is known of it then. Whoever accepts connections counts them against
//! these bounds; `device/listen.rs` holds each of them to bytes and time.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use sha2::{Digest, Sha256};

/// A peer that is not admitted this long after it connected is refused.
pub const ADMISSION_TIMEOUT: Duration = Duration::from_secs(3);

/// Most connections that are not admitted yet; a new one takes the place of the oldest.
pub const MAX_UNADMITTED: usize = 64;

/// Most bytes that a peer may send before it is admitted, except over TLS.
pub const MAX_UNADMITTED_BYTES: usize = 1024;

/// Most bytes of a message of the Noise handshake, whose three have 48, 48 and 16.
pub const MAX_NOISE_HANDSHAKE_BYTES: usize = 96;

/// Most bytes that a peer may send before its TLS handshake is complete: certificates take several
/// kilobytes.
pub const MAX_TLS_HANDSHAKE_BYTES: usize = 16 << 10;

/// What an admitted host has proved: two hosts with equal ones have the same key, the same certificate,
/// or are of one user of this machine. It reveals none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Credential([u8; 32]);

impl Credential {
    /// Of whoever has this key, certificate or number; `kind` keeps them apart.
    #[must_use]
    pub fn of(kind: &str, proof: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(kind.as_bytes());
        hash.update([0]);
        hash.update(proof);
        Self(hash.finalize().into())
    }
}

/// Who is at the other end of an admitted connection, as far as a device can tell: two connections with
/// equal ones may be of one host, and hosts behind one address have equal ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Peer {
    /// What it has proved; `None` where it had to prove nothing.
    pub credential: Option<Credential>,
    /// Its machine, or its network where one machine has many addresses; `None` at a socket of this machine.
    machine: Option<IpAddr>,
}

impl Peer {
    /// Who has proved this, from this address.
    #[must_use]
    pub fn at(credential: Option<Credential>, address: Option<IpAddr>) -> Self {
        let machine = address.map(|address| match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            // A machine chooses the lower half itself (RFC 4291 section 2.5.4, RFC 8981).
            IpAddr::V6(address) => {
                let network = address.to_bits() >> 64 << 64;
                IpAddr::V6(Ipv6Addr::from_bits(network))
            }
        });
        Self { credential, machine }
    }
}

impl From<Option<Credential>> for Peer {
    fn from(credential: Option<Credential>) -> Self {
        Self::at(credential, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_many_addresses_is_one_peer() {
        let at = |address: &str| Peer::at(None, Some(address.parse().unwrap()));
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1:2:3"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
        // One listener is reached both ways.
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
        assert_ne!(at("192.0.2.1"), Peer::from(None));
    }
}
