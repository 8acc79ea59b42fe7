//! What one side has to prove who it is, and what it asks of the other.

use std::fmt;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    CipherSuite, ClientConfig, RootCertStore, ServerConfig, SupportedCipherSuite,
};

use crate::CsdError;
use crate::socket::Socket;
use crate::words::key::{Key, read_secret};
use crate::words::trust::{Protection, Remedy};

pub use crate::words::trust::{Insecure, TlsFiles};

/// What the other side of a TLS connection must be.
const ALPN: &[u8] = b"bothends";

/// Certificate files are small; what is longer is something else.
const MAX_PEM_BYTES: u64 = 1 << 20;

/// A key, certificates, both or none, and whether unencrypted connections to other machines are
/// allowed. The address decides which of them is used.
#[derive(Debug, Clone, Default)]
pub struct Security {
    key: Option<Key>,
    tls: Option<TlsConfigs>,
    insecure: Insecure,
}

/// How far a connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It stays on this machine.
    Here,
    /// It may leave it.
    Beyond,
}

impl From<bool> for Reach {
    fn from(is_beyond: bool) -> Self {
        if is_beyond { Self::Beyond } else { Self::Here }
    }
}

/// The two roles that a side with certificates may have.
#[derive(Clone)]
pub(crate) struct TlsConfigs {
    pub(super) host: Arc<ClientConfig>,
    pub(super) device: Arc<ServerConfig>,
}

impl fmt::Debug for TlsConfigs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsConfigs(..)")
    }
}

impl Security {
    /// Reads the files.
    ///
    /// # Errors
    /// [`CsdError::Unauthenticated`] and [`CsdError::Untrusted`] name the file and what is wrong with it.
    pub fn load(
        key_file: Option<&Path>,
        tls: Option<&TlsFiles>,
        insecure: Insecure,
    ) -> Result<Self, CsdError> {
        Ok(Self {
            key: key_file.map(Key::from_file).transpose()?,
            tls: tls.map(TlsConfigs::load).transpose()?,
            insecure,
        })
    }

    /// With this key, or without one.
    #[must_use]
    pub fn with_key(self, key: Option<Key>) -> Self {
        Self { key, ..self }
    }

    /// The shared key.
    pub(crate) fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// The certificates.
    pub(crate) fn tls(&self) -> Option<&TlsConfigs> {
        self.tls.as_ref()
    }

    /// Whether a connection of this kind may be had at all. `place` is for errors.
    ///
    /// # Errors
    /// [`CsdError::Unauthenticated`] where there is no key, [`CsdError::Untrusted`] where
    /// it would not be encrypted, or where there is no certificate.
    pub(crate) fn permits(
        &self,
        protection: Protection,
        reach: Reach,
        place: &str,
    ) -> Result<(), CsdError> {
        let untrusted = |what, remedy| Err(CsdError::Untrusted { what, remedy });
        match protection {
            Protection::Tls if self.tls.is_none() => untrusted(
                format!("{place} needs certificates and none are given"),
                Remedy::GiveCertificates,
            ),
            Protection::Noise if self.key.is_none() => Err(CsdError::Unauthenticated {
                what: format!("{place} needs a key and no key file is given"),
            }),
            Protection::Plain
                if reach == Reach::Beyond && self.insecure == Insecure::Refused =>
            {
                untrusted(
                    format!("{place} leaves this machine and tcp:// is not encrypted"),
                    Remedy::Encrypt,
                )
            }
            Protection::Plain if reach == Reach::Beyond && self.key.is_none() => {
                Err(CsdError::Unauthenticated {
                    what: format!(
                        "{place} is beyond this machine and no key file is given"
                    ),
                })
            }
            Protection::Tls | Protection::Noise | Protection::Plain => Ok(()),
        }
    }

    /// Whether whoever is at the other end of a connected socket may be spoken to: a Unix socket's
    /// peer is this user's or the administrator's, unless it must prove that it has the key.
    ///
    /// # Errors
    /// As [`Self::permits`]; [`CsdError::LinkLost`] where the peer is gone.
    pub(crate) fn permits_peer(
        &self,
        socket: &Socket,
        place: &str,
    ) -> Result<(), CsdError> {
        let failed = CsdError::lost("find the peer");
        let is_beyond = socket.is_beyond_machine().map_err(&failed)?;
        self.permits(socket.protection(), is_beyond.into(), place)?;
        match socket.peer_uid().map_err(&failed)? {
            Some(uid) if self.key.is_none() => of_same_user(uid, own_uid(), place),
            _ => Ok(()),
        }
    }
}

fn own_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// Another user of this machine proves nothing by reaching a socket.
fn of_same_user(theirs: u32, ours: u32, place: &str) -> Result<(), CsdError> {
    if theirs == ours || theirs == 0 {
        return Ok(());
    }
    Err(CsdError::Untrusted {
        what: format!(
            "user {theirs} is at the other end of {place}, and this is user {ours}"
        ),
        remedy: "run both sides as one user, or give both the same key file".into(),
    })
}

impl TlsConfigs {
    fn load(files: &TlsFiles) -> Result<Self, CsdError> {
        let mut roots = RootCertStore::empty();
        for authority in certificates(&files.ca)? {
            roots.add(authority).map_err(|error| unusable(&files.ca, error))?;
        }
        let roots = Arc::new(roots);
        let certs = certificates(&files.cert)?;
        let secret = read_secret(&files.key, "TLS key file")?;
        let key = PrivateKeyDer::from_pem_slice(&secret)
            .map_err(|error| unusable(&files.key, error))?;
        let unfit = |error: rustls::Error| unusable(&files.cert, error);
        let provider = Arc::new(provider());
        let mut host = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(unfit)?
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(certs.clone(), key.clone_key())
            .map_err(unfit)?;
        host.resumption = Resumption::disabled();
        host.alpn_protocols = vec![ALPN.to_vec()];
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
                .build()
                .map_err(|error| unusable(&files.ca, error))?;
        let mut device = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(unfit)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certs, key)
            .map_err(unfit)?;
        device.send_tls13_tickets = 0;
        device.session_storage = Arc::new(NoServerSessionStorage {});
        device.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self { host: Arc::new(host), device: Arc::new(device) })
    }
}

/// What ring offers, AES-128-GCM first: it has ten rounds a block where AES-256-GCM has fourteen, and a rate per
/// core is what an encrypted link has least of. The first that both sides offer is taken.
fn provider() -> CryptoProvider {
    let mut provider = default_provider();
    let is_other = |suite: &SupportedCipherSuite| {
        suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256
    };
    provider.cipher_suites.sort_by_key(is_other);
    provider
}

/// The certificates in a PEM file.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CsdError> {
    let mut pem = Vec::new();
    bothends_io::open_regular(path)
        .and_then(|file| file.take(MAX_PEM_BYTES).read_to_end(&mut pem))
        .map_err(|error| unusable(path, error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err(unusable(path, "it holds no certificate")),
        Ok(found) => Ok(found),
        Err(error) => Err(unusable(path, error)),
    }
}

fn unusable(path: &Path, why: impl fmt::Display) -> CsdError {
    CsdError::Untrusted {
        what: format!("the TLS file `{}` cannot be used ({why})", path.display()),
        remedy: "give a PEM file that this user can read".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_tcp_leaves_the_machine_only_with_key_and_consent() {
        let key = || Key::from_bytes(&[7; 16]);
        let consent = |insecure| Security { insecure, ..Security::default() };
        let plain = |security: Security| {
            security
                .permits(Protection::Plain, Reach::Beyond, "tcp://nas:1")
                .map_err(|e| e.to_string())
        };
        let error = plain(consent(Insecure::Refused).with_key(key())).unwrap_err();
        assert!(
            error.contains("tcp://nas:1") && error.contains("tcp+noise://"),
            "{error}"
        );
        let error = plain(consent(Insecure::Allowed)).unwrap_err();
        assert!(error.contains("the same key file"), "{error}");
        plain(consent(Insecure::Allowed).with_key(key())).unwrap();
        Security::default()
            .permits(Protection::Plain, Reach::Here, "tcp://127.0.0.1:1")
            .unwrap();
    }

    #[test]
    fn sealed_addresses_need_what_seals_them() {
        let error = Security::default().permits(
            Protection::Noise,
            Reach::Here,
            "tcp+noise://nas:1",
        );
        assert!(error.unwrap_err().to_string().contains("needs a key"));
        let error =
            Security::default().permits(Protection::Tls, Reach::Here, "tls://nas:1");
        assert!(error.unwrap_err().to_string().contains("needs certificates"));
    }

    #[test]
    fn another_user_at_a_socket_is_named() {
        of_same_user(1000, 1000, "here").unwrap();
        of_same_user(0, 1000, "here").unwrap();
        for (theirs, ours) in [(1001, 1000), (1001, 0)] {
            let error = of_same_user(theirs, ours, "unix:///a").unwrap_err().to_string();
            assert!(
                error.contains("user 1001") && error.contains("unix:///a"),
                "{error}"
            );
            assert!(error.contains("the same key file"), "{error}");
        }
    }
}
