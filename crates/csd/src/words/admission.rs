//! What a peer may do before it is known who it is, and what is known of it then. Whoever accepts connections counts them against
//! these bounds; `device/listen.rs` holds each of them to bytes and time.

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
