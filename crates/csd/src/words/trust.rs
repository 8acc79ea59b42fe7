//! What a user says about whom to trust and how.

use std::path::PathBuf;

use bothends_core::setting::{Names, Setting};

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
                let all = [Setting::TlsCa, Setting::TlsCert, Setting::TlsKey];
                let all = all.map(Setting::key);
                let given = all.iter().zip([ca, cert, key]);
                let missing = given.filter(|(_, path)| path.is_none());
                let missing: Vec<_> = missing.map(|(name, _)| *name).collect();
                Err(format!(
                    "of the three TLS files ({}) {} {}; give all three",
                    all.join(", "),
                    missing.join(" and "),
                    if missing.len() == 1 { "is missing" } else { "are missing" }
                ))
            }
        }
    }
}

/// What the user can do where the other side, or a file, cannot be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// This, which names no setting.
    Words(String),
    /// Give certificates.
    GiveCertificates,
    /// Encrypt the connection, or allow it to be unencrypted.
    Encrypt,
    /// Compare the device's certificate with the host's authorities.
    CheckDevice,
    /// Give the host a certificate of the device's authorities.
    CertifyHost,
}

impl From<&str> for Remedy {
    fn from(words: &str) -> Self {
        Self::Words(words.to_owned())
    }
}

impl From<String> for Remedy {
    fn from(words: String) -> Self {
        Self::Words(words)
    }
}

impl Remedy {
    /// The advice, with an entry point's names. One that has no such setting can only use another address.
    pub(crate) fn words(&self, name: Names) -> String {
        let [ca, cert, key] =
            [Setting::TlsCa, Setting::TlsCert, Setting::TlsKey].map(name);
        match self {
            Self::Words(words) => words.clone(),
            Self::GiveCertificates if ca.is_empty() => {
                "use an address of another kind".to_owned()
            }
            Self::GiveCertificates => {
                format!("give three PEM files: `{ca}`, `{cert}` and `{key}`")
            }
            Self::Encrypt => match name(Setting::Insecure) {
                "" => "use an address on this machine".to_owned(),
                insecure => format!(
                    "use tcp+noise:// or tls:// on both sides, or `{insecure}` on both"
                ),
            },
            Self::CheckDevice => format!(
                "check that {} has signed it, that it is current and that it is for the name in \
                 the address",
                match ca {
                    "" => "an authority that this side trusts".to_owned(),
                    ca => format!("an authority in `{ca}`"),
                }
            ),
            Self::CertifyHost => format!(
                "give the host a current one signed by {}",
                match ca {
                    "" => "an authority that the device trusts".to_owned(),
                    ca => format!("an authority in the device's `{ca}`"),
                }
            ),
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
            remedy: "give both sides an address of the same kind".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_names_the_settings_of_whoever_prints_it() {
        let flag: Names = |setting| match setting.key() {
            "insecure" => "--insecure",
            "tls_ca" => "--tls-ca",
            "tls_cert" => "--tls-cert",
            "tls_key" => "--tls-key",
            _ => "",
        };
        let doors: [Names; 3] = [flag, Setting::key, |_| ""];
        let said = |remedy: Remedy| doors.map(|name| remedy.words(name));
        assert_eq!(
            said(Remedy::GiveCertificates),
            [
                "give three PEM files: `--tls-ca`, `--tls-cert` and `--tls-key`",
                "give three PEM files: `tls_ca`, `tls_cert` and `tls_key`",
                "use an address of another kind",
            ]
        );
        let both = "use tcp+noise:// or tls:// on both sides, or";
        assert_eq!(
            said(Remedy::Encrypt),
            [
                format!("{both} `--insecure` on both"),
                format!("{both} `insecure` on both"),
                "use an address on this machine".to_owned(),
            ]
        );
        for (remedy, without) in [
            (Remedy::CheckDevice, "an authority that this side trusts"),
            (Remedy::CertifyHost, "an authority that the device trusts"),
        ] {
            let [flags, keys, none] = said(remedy);
            assert!(flags.contains("`--tls-ca`"), "{flags}");
            assert!(keys.contains("`tls_ca`"), "{keys}");
            assert!(none.contains(without) && !none.contains('`'), "{none}");
        }
    }

    #[test]
    fn a_file_that_is_missing_is_named_as_its_option() {
        let error = TlsFiles::of(Some("a".into()), None, None).unwrap_err();
        let line = "of the three TLS files (tls_ca, tls_cert, tls_key) tls_cert and tls_key are \
                    missing; give all three";
        assert_eq!(error, line);
    }
}
