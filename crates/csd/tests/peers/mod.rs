//! Both ends of a channel for tests, and what may sit between them.

#![allow(dead_code, reason = "each test program uses its part")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bothends_csd::key::Key;
use bothends_csd::security::{Insecure, Security, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// The ways to protect a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Noise,
    Tls,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Plain, Self::Noise, Self::Tls];
    pub(crate) const SEALED: [Self; 2] = [Self::Noise, Self::Tls];

    /// An address of this kind on this machine, with a port that is free.
    pub(crate) fn address(self) -> &'static str {
        match self {
            Self::Plain => "tcp://localhost:0",
            Self::Noise => "tcp+noise://localhost:0",
            Self::Tls => "tls://localhost:0",
        }
    }
}

/// Certificates and a key, in a folder that goes with them.
pub(crate) struct Trust {
    dir: tempfile::TempDir,
    authority: Issuer<'static, KeyPair>,
}

impl Trust {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&key).unwrap();
        write(&dir.path().join("ca.pem"), &ca.pem());
        Self { dir, authority: Issuer::new(params, key) }
    }

    /// The files of one side, whose certificate is for `name`; `change` makes it a wrong one.
    pub(crate) fn files(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> TlsFiles {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.authority).unwrap();
        let [cert_path, key_path] =
            ["cert", "key"].map(|kind| self.path(&format!("{name}-{kind}.pem")));
        write(&cert_path, &cert.pem());
        write(&key_path, &key.serialize_pem());
        TlsFiles { ca: self.path("ca.pem"), cert: cert_path, key: key_path }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// All that either side may need, for the name `localhost`.
    pub(crate) fn security(&self) -> Security {
        let files = self.files("localhost", |_| {});
        Security::load(None, Some(&files), Insecure::Refused).unwrap().with_key(key())
    }
}

pub(crate) fn key() -> Option<Key> {
    Key::from_bytes(b"a key of 16 bytes")
}

/// Writes a file that nobody else can read.
pub(crate) fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// What is done to the bytes of one direction: a piece in, pieces out.
pub(crate) type Meddle = Box<dyn FnMut(&[u8]) -> Vec<Vec<u8>> + Send>;

/// Whoever only listens.
pub(crate) fn pass() -> Meddle {
    Box::new(|bytes| vec![bytes.to_vec()])
}

/// Somebody between two ends: both ends, and the threads, which end with either.
pub(crate) fn between(
    to_device: Meddle,
    to_host: Meddle,
) -> (UnixStream, UnixStream, [JoinHandle<()>; 2]) {
    let (host, near) = UnixStream::pair().unwrap();
    let (device, far) = UnixStream::pair().unwrap();
    let copies = (near.try_clone().unwrap(), far.try_clone().unwrap());
    let forth = thread::spawn(move || pump(near, far, to_device));
    let back = thread::spawn(move || pump(copies.1, copies.0, to_host));
    (host, device, [forth, back])
}

fn pump(mut from: UnixStream, mut to: UnixStream, mut meddle: Meddle) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        if !meddle(&bytes[..n]).iter().all(|piece| to.write_all(piece).is_ok()) {
            break;
        }
    }
    // Either may be gone already.
    drop(from.shutdown(Shutdown::Both));
    drop(to.shutdown(Shutdown::Both));
}

/// How long tests wait for what is to come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
