//! Device addresses, as `--csd` and `--listen` take them.
//!
//! `sim:` addresses are not here: the runtime turns them into a child process and one of these.
//! `connect.rs` has the transport for each.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::CsdError;
use crate::words::trust::Protection;

const EXPECTED: &str = "expected tcp+noise://HOST:PORT, tls://HOST:PORT, tcp://HOST:PORT, unix:///PATH or \
     spool:///DIRECTORY";

/// Where a device listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A TCP port, without encryption: for this machine.
    Tcp {
        /// Name or address of the host; IPv6 without its brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A TCP port, encrypted with the key that both sides share.
    Noise {
        /// As in [`Self::Tcp`].
        host: String,
        /// The port.
        port: u16,
    },
    /// A TCP port, encrypted with TLS 1.3; both sides have certificates.
    Tls {
        /// As in [`Self::Tcp`]; the device's certificate is for this name.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
    /// A directory that host and device share.
    Spool(PathBuf),
}

impl Address {
    /// Host and port, where it has them.
    pub(crate) fn host_and_port(&self) -> Option<(&str, u16)> {
        match self {
            Self::Tcp { host, port }
            | Self::Noise { host, port }
            | Self::Tls { host, port } => Some((host, *port)),
            Self::Unix(_) | Self::Spool(_) => None,
        }
    }

    /// The same with another port, where it has one.
    pub(crate) fn with_port(&self, new: u16) -> Self {
        let mut address = self.clone();
        match &mut address {
            Self::Tcp { port, .. }
            | Self::Noise { port, .. }
            | Self::Tls { port, .. } => *port = new,
            Self::Unix(_) | Self::Spool(_) => {}
        }
        address
    }

    /// How connections to it are protected.
    pub(crate) fn protection(&self) -> Protection {
        match self {
            Self::Noise { .. } => Protection::Noise,
            Self::Tls { .. } => Protection::Tls,
            Self::Tcp { .. } | Self::Unix(_) | Self::Spool(_) => Protection::Plain,
        }
    }

    /// What is said where only a socket will do.
    pub(crate) fn is_no_socket(&self) -> CsdError {
        let why = "it is a directory, not a socket".to_owned();
        CsdError::Address { address: self.to_string(), why }
    }
}

impl FromStr for Address {
    type Err = CsdError;

    fn from_str(spec: &str) -> Result<Self, CsdError> {
        let wrong = |why: &str| CsdError::Address {
            address: spec.to_owned(),
            why: why.to_owned(),
        };
        let Some((scheme, rest)) = spec.split_once("://") else {
            return Err(wrong(EXPECTED));
        };
        match scheme {
            "tcp" | "tcp+noise" | "tls" => {
                let (host, port) = host_and_port(rest).ok_or_else(|| {
                    wrong(&format!(
                        "expected {scheme}://HOST:PORT with a port up to 65535"
                    ))
                })?;
                Ok(match scheme {
                    "tcp+noise" => Self::Noise { host, port },
                    "tls" => Self::Tls { host, port },
                    _ => Self::Tcp { host, port },
                })
            }
            "unix" => absolute(rest)
                .map(Self::Unix)
                .ok_or_else(|| wrong("expected unix:///PATH with an absolute path")),
            "spool" => absolute(rest).map(Self::Spool).ok_or_else(|| {
                wrong("expected spool:///DIRECTORY with an absolute path")
            }),
            _ => Err(wrong(EXPECTED)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self {
            Self::Unix(path) => return write!(f, "unix://{}", path.display()),
            Self::Spool(path) => return write!(f, "spool://{}", path.display()),
            Self::Tcp { .. } | Self::Noise { .. } | Self::Tls { .. } => {
                self.protection().scheme()
            }
        };
        match self.host_and_port() {
            Some((host, port)) if host.contains(':') => {
                write!(f, "{scheme}[{host}]:{port}")
            }
            Some((host, port)) => write!(f, "{scheme}{host}:{port}"),
            None => f.write_str(scheme),
        }
    }
}

fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if bare.is_none() && host.contains(':') {
        return None;
    }
    let host = bare.unwrap_or(host);
    (!host.is_empty()).then_some(())?;
    Some((host.to_owned(), port.parse().ok()?))
}

fn absolute(path: &str) -> Option<PathBuf> {
    (path.starts_with('/') && path.len() > 1).then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_address_is_read_and_printed_back() {
        for spec in [
            "tcp://nas:7070",
            "tcp://127.0.0.1:0",
            "tcp://[::1]:7070",
            "tcp+noise://nas:7070",
            "tcp+noise://[fe80::1]:7070",
            "tls://nas.example:7070",
            "tls://[::1]:7070",
            "unix:///run/agent.sock",
            "spool:///mnt/csd0",
        ] {
            let address: Address = spec.parse().unwrap();
            assert_eq!(address.to_string(), spec);
        }
        let v6: Address = "tcp://[::1]:7070".parse().unwrap();
        assert_eq!(v6, Address::Tcp { host: "::1".into(), port: 7070 });
    }

    #[test]
    fn a_wrong_address_says_what_is_expected() {
        for (spec, expected) in [
            ("", "tcp://HOST:PORT, unix"),
            ("nas:7070", "tcp://HOST:PORT, unix"),
            ("http://nas", "tcp://HOST:PORT, unix"),
            ("tcp://nas", "tcp://HOST:PORT with"),
            ("tcp://nas:70700", "up to 65535"),
            ("tcp+noise://nas", "tcp+noise://HOST:PORT with"),
            ("tls://:1", "tls://HOST:PORT with"),
            ("tcp+tls://nas:1", "tcp+noise://HOST:PORT, tls://HOST:PORT, tcp://"),
            ("tcp://:7070", "tcp://HOST:PORT"),
            ("tcp://::1:7070", "tcp://HOST:PORT"),
            ("unix://relative", "absolute"),
            ("spool://", "absolute"),
            ("nvme:///dev/ng0n1", "or spool"),
        ] {
            let error = spec.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(expected), "{spec}: {error}");
        }
    }
}
