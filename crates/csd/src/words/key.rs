//! The shared key: each side proves to the other that it has it, without revealing it.
//!
//! A proof is HMAC-SHA256 over the role and fresh nonces of both sides, so proofs cannot be replayed or
//! reflected. It authenticates who opened the connection. It does not encrypt or sign what follows: on a
//! network that others can write to, use a tunnel as well. `stream.rs` and `listen.rs` make the
//! exchange.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::CsdError;

/// Shortest key that is accepted, in bytes.
pub const MIN_KEY_BYTES: usize = 16;

/// A number used once.
pub type Nonce = [u8; 32];

/// What only an owner of the key can say about two nonces.
pub type Proof = [u8; 32];

/// A key that host and device share. Its `Debug` does not show it.
#[derive(Clone)]
pub struct Key(Vec<u8>);

/// Who proves.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Role {
    Host,
    Device,
}

impl Key {
    /// Reads a key: the bytes of the file without white space at its end.
    ///
    /// # Errors
    /// [`CsdError::Unauthenticated`] when the file cannot be read or is too short.
    pub fn from_file(path: &Path) -> Result<Self, CsdError> {
        let place = path.display();
        let bytes = std::fs::read(path).map_err(|error| CsdError::Unauthenticated {
            what: format!("cannot read the key file `{place}` ({error})"),
        })?;
        Self::from_bytes(bytes.trim_ascii_end()).ok_or_else(|| {
            CsdError::Unauthenticated {
                what: format!(
                    "the key file `{place}` has less than {MIN_KEY_BYTES} bytes"
                ),
            }
        })
    }

    /// A key from its bytes; `None` when there are fewer than [`MIN_KEY_BYTES`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= MIN_KEY_BYTES).then(|| Self(bytes.to_vec()))
    }

    pub(crate) fn prove(&self, role: Role, host: &Nonce, device: &Nonce) -> Proof {
        self.mac(role, host, device).finalize().into_bytes().into()
    }

    /// Whether `proof` is `role`'s; takes the same time for every wrong proof.
    pub(crate) fn accepts(
        &self,
        proof: &Proof,
        role: Role,
        host: &Nonce,
        device: &Nonce,
    ) -> bool {
        self.mac(role, host, device).verify_slice(proof).is_ok()
    }

    fn mac(&self, role: Role, host: &Nonce, device: &Nonce) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0)
            .expect("HMAC takes a key of any length");
        mac.update(match role {
            Role::Host => b"bothends host 1\0",
            Role::Device => b"bothends device 1\0",
        });
        mac.update(host);
        mac.update(device);
        mac
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Fresh random bytes from the system.
pub(crate) fn nonce<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_role_nonces_and_key_alone() {
        let key = Key::from_bytes(b"sixteen bytes ok").unwrap();
        let other = Key::from_bytes(b"sixteen bytes no").unwrap();
        let (host, device): (Nonce, Nonce) = (nonce().unwrap(), nonce().unwrap());
        let proof = key.prove(Role::Host, &host, &device);
        assert!(key.accepts(&proof, Role::Host, &host, &device));
        assert!(!key.accepts(&proof, Role::Device, &host, &device));
        assert!(!key.accepts(&proof, Role::Host, &device, &host));
        assert!(!other.accepts(&proof, Role::Host, &host, &device));
    }

    /// The values on the page were computed with Python's `hmac` module.
    #[test]
    fn a_proof_is_hmac_sha256_and_that_of_the_page() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/wire.md");
        let page = std::fs::read_to_string(page).unwrap();
        let key = Key::from_bytes(b"sixteen bytes ok").unwrap();
        for (role, name) in [(Role::Host, "host"), (Role::Device, "device")] {
            let proof = key.prove(role, &[1; 32], &[2; 32]);
            let hex: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
            let marker = format!("<!-- golden proof of the {name} -->\n```text\n");
            let block = page.split_once(&marker).unwrap().1.split("```").next().unwrap();
            let digits = |line: &str| line.split_whitespace().skip(1).collect::<String>();
            assert_eq!(block.lines().map(digits).collect::<String>(), hex);
        }
    }

    #[test]
    fn a_short_or_missing_key_file_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let error = Key::from_file(&path).unwrap_err().to_string();
        assert!(error.contains("cannot read the key file"), "{error}");
        std::fs::write(&path, "too short      \n\n").unwrap();
        let error = Key::from_file(&path).unwrap_err().to_string();
        assert!(error.contains("less than 16 bytes"), "{error}");
        assert!(!format!("{:?}", Key::from_bytes(&[7; 16]).unwrap()).contains('7'));
    }
}
