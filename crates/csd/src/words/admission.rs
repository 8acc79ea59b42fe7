//! What a peer may do before it is known who it is. Whoever accepts connections counts them against
//! these bounds; `device/listen.rs` holds each of them to bytes and time.

use std::time::Duration;

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
