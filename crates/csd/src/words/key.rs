//! The shared key: each side proves to the other that it has it, without revealing it.
//!
//! A proof is HMAC-SHA256 over the role and fresh nonces of both sides, so proofs cannot be replayed or
//! reflected. It authenticates who opened the connection. It does not encrypt or sign what follows, so it
//! is for this machine; `channel/noise.rs` makes a channel of the same key that does both. `stream.rs` and
//! `admit.rs` make the exchange.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::CsdError;
use crate::words::admission::Credential;

/// Shortest key that is accepted, in bytes.
pub const MIN_KEY_BYTES: usize = 16;

/// A longer file is no key.
const MAX_SECRET_BYTES: u64 = 1 << 16;

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
    /// [`CsdError::Unauthenticated`] when the file cannot be read or is too short,
    /// [`CsdError::Untrusted`] when others can read it.
    pub fn from_file(path: &Path) -> Result<Self, CsdError> {
        let bytes = read_secret(path, "key file")?;
        Self::from_bytes(bytes.trim_ascii_end()).ok_or_else(|| {
            let place = path.display();
            CsdError::Unauthenticated {
                what: format!(
                    "the key file `{place}` has less than {MIN_KEY_BYTES} bytes"
                ),
            }
        })
    }

    /// Makes a file with a new key, 32 random bytes as text, which its owner alone can read. What is
    /// there is never replaced.
    ///
    /// # Errors
    /// [`CsdError::Place`] when the file cannot be made, or is there.
    pub fn generate(path: &Path) -> Result<(), CsdError> {
        let failed = CsdError::at("make the key file", path.display());
        let random: [u8; 32] = nonce().map_err(&failed)?;
        let mut text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        text.push('\n');
        // An exclusive creation does not follow a link either.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let written = file.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(failed)
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

    /// What a host that has the key has proved.
    pub(crate) fn credential(&self) -> Credential {
        // Not of the key itself: whoever sees this must not be able to try keys with it elsewhere.
        Credential::of("key", &hmac(b"bothends credential 1", &self.0))
    }

    /// The key of the Noise channel: HKDF with SHA-256 (RFC 5869), so that neither use of the key says
    /// anything about the other.
    pub(crate) fn noise_psk(&self) -> [u8; 32] {
        let pseudorandom = hmac(b"bothends noise psk 1", &self.0);
        // The first block of the expansion, of an empty context.
        hmac(&pseudorandom, &[1])
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

fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(message);
    mac.finalize().into_bytes().into()
}

/// The bytes of a file that its owner alone can read, who is this user or the administrator. Does not
/// wait for the writer of a pipe.
pub(crate) fn read_secret(path: &Path, kind: &str) -> Result<Vec<u8>, CsdError> {
    let place = path.display();
    let unreadable = |error: io::Error| CsdError::Unauthenticated {
        what: format!("cannot read the {kind} `{place}` ({error})"),
    };
    let nonblocking = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let opened = OpenOptions::new().read(true).custom_flags(nonblocking).open(path);
    let file = opened.map_err(unreadable)?;
    // Of the open file: what is at the path may be another one by now.
    let found = file.metadata().map_err(unreadable)?;
    let untrusted =
        |what, remedy: String| Err(CsdError::Untrusted { what, remedy: remedy.into() });
    let (mode, owner) = (found.mode() & 0o7777, found.uid());
    if mode & 0o077 != 0 {
        return untrusted(
            format!("others can read the {kind} `{place}` (mode {mode:04o})"),
            format!("run `chmod 600 {place}`"),
        );
    }
    if owner != 0 && owner != nix::unistd::geteuid().as_raw() {
        return untrusted(
            format!("the {kind} `{place}` belongs to user {owner}"),
            format!("copy it to a file of your own, or run `chown $USER {place}`"),
        );
    }
    let mut bytes = Vec::new();
    file.take(MAX_SECRET_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
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
        write_private(&path, "too short      \n\n");
        let error = Key::from_file(&path).unwrap_err().to_string();
        assert!(error.contains("less than 16 bytes"), "{error}");
        assert!(!format!("{:?}", Key::from_bytes(&[7; 16]).unwrap()).contains('7'));
    }

    fn write_private(path: &Path, text: &str) {
        std::fs::write(path, text).unwrap();
        set_mode(path, 0o600);
    }

    fn set_mode(path: &Path, mode: u32) {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, mode).unwrap();
    }

    #[test]
    fn a_key_file_that_others_can_read_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        write_private(&path, "a key of 16 bytes");
        Key::from_file(&path).unwrap();
        for mode in [0o644, 0o640, 0o604, 0o620, 0o601] {
            set_mode(&path, mode);
            let error = Key::from_file(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("mode {mode:04o}")), "{error}");
            let remedy = format!("run `chmod 600 {}`", path.display());
            assert!(error.ends_with(&remedy), "{error}");
        }
        set_mode(&path, 0o400);
        Key::from_file(&path).unwrap();
    }

    #[test]
    fn a_new_key_file_is_private_random_and_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| dir.path().join(name));
        for path in &paths {
            Key::generate(path).unwrap();
            let found = std::fs::metadata(path).unwrap();
            assert_eq!((found.mode() & 0o777, found.len()), (0o600, 65));
            Key::from_file(path).unwrap();
        }
        let texts = paths.each_ref().map(|path| std::fs::read_to_string(path).unwrap());
        assert_ne!(texts[0], texts[1]);
        let error = Key::generate(&paths[0]).unwrap_err();
        assert!(matches!(error, CsdError::Place { .. }), "{error}");
        assert_eq!(std::fs::read_to_string(&paths[0]).unwrap(), texts[0]);
    }

    /// The value was computed with Python's `hmac` module.
    #[test]
    fn the_noise_key_is_hkdf_sha256() {
        let psk = Key::from_bytes(b"sixteen bytes ok").unwrap().noise_psk();
        let hex: String = psk.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "24b6e73010417debef4eca8ad6dbfac62195562edc4abae2fbd35740b928da1d"
        );
    }
}
