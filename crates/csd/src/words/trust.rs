//! What a user says about whom to trust and how.

use std::path::PathBuf;

use crate::CsdError;

/// Whether connections to other machines may be unencrypted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Insecure {
    /// They may not.
    #[default]
    Refused,
    /// They may, if both sides say so and have the same key. Who can read the network can read what is sent,
    /// and who can write to it can change it.
    Allowed,
}

impl From<bool> for Insecure {
    fn from(is_allowed: bool) -> Self {
        if is_allowed { Self::Allowed } else { Self::Refused }
    }
}

/// The PEM files with which one side proves who it is over TLS, and checks the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the authorities that may sign the other side's certificate.
    pub ca: PathBuf,
    /// This side's certificate, followed by those between it and the authority.
    pub cert: PathBuf,
    /// Its private key, readable by its owner alone.
    pub key: PathBuf,
}

impl TlsFiles {
    /// All three files, or none.
    ///
    /// # Errors
    /// One line that names what is missing.
    pub fn of(
        ca: Option<PathBuf>,
        cert: Option<PathBuf>,
        key: Option<PathBuf>,
    ) -> Result<Option<Self>, String> {
        match (ca, cert, key) {
            (None, None, None) => Ok(None),
            (Some(ca), Some(cert), Some(key)) => Ok(Some(Self { ca, cert, key })),
            (ca, cert, key) => {
                let given = [("ca", ca), ("cert", cert), ("key", key)];
                let missing = given.iter().filter(|(_, path)| path.is_none());
                let missing: Vec<_> = missing.map(|(name, _)| *name).collect();
                Err(format!(
                    "of the three TLS files (ca, cert, key) {} is missing; give all three",
                    missing.join(" and ")
                ))
            }
        }
    }
}

/// How what is sent through a socket is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Not at all: for this machine.
    Plain,
    /// Noise, with the shared key.
    Noise,
    /// TLS 1.3, with certificates.
    Tls,
}

impl Protection {
    /// What the first bytes of a peer look like that expects another protection.
    pub(crate) fn of_start(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [b'B', b'E', ..] => Some(Self::Plain),
            [0x16, 3, ..] => Some(Self::Tls),
            [0, 48, ..] => Some(Self::Noise),
            _ => None,
        }
    }

    /// The start of its addresses.
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::Plain => "tcp://",
            Self::Noise => "tcp+noise://",
            Self::Tls => "tls://",
        }
    }

    /// What is said about a peer that expects another protection.
    pub(crate) fn is_not(self, theirs: Self) -> CsdError {
        CsdError::Untrusted {
            what: format!(
                "one side speaks {} and the other {}",
                theirs.scheme(),
                self.scheme()
            ),
            remedy: "give both sides an address of the same kind".to_owned(),
        }
    }
}
