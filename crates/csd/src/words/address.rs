//! Device addresses, as `--csd` and `--listen` take them.
//!
//! `sim:` addresses are not here: the runtime turns them into a child process and one of these.
//! `connect.rs` has the transport for each.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use bothends_nvme::pdu::Digest;

use crate::CsdError;
use crate::words::trust::Protection;

const EXPECTED: &str = "expected tcp+noise://HOST:PORT, tls://HOST:PORT, tcp://HOST:PORT, unix:///PATH, \
     spool:///DIRECTORY, nvme-tcp://HOST:PORT or nvme:///dev/ngXnY";

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
    /// A subsystem that speaks NVMe/TCP: a drive with programs, and no agent.
    Nvme(NvmeTarget),
    /// The same behind this machine's own NVMe driver.
    Drive(NvmeDrive),
}

/// The name that the subsystem of `firmware-sim` has if nobody gives it another.
pub const NVME_SUBSYSTEM: &str = "nqn.2026-01.dev.bothends:csd";

/// A subsystem: `nvme-tcp://HOST:PORT[/NQN][?media=DIR|image][&scratch=FIRST+COUNT][&digests=on]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmeTarget {
    /// As in [`Address::Tcp`].
    pub host: String,
    /// The port.
    pub port: u16,
    /// The subsystem's name (NQN).
    pub subsystem: String,
    /// What its blocks are for.
    pub blocks: BlockUse,
    /// Whether headers and data have digests on the way.
    pub digests: Digest,
}

/// A drive of this machine: `nvme:///dev/ngXnY[?media=DIR|image][&scratch=FIRST+COUNT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmeDrive {
    /// Any of its nodes: of a namespace or of its controller.
    pub node: PathBuf,
    /// What its blocks are for.
    pub blocks: BlockUse,
}

/// What a device's blocks are for, as far as the host is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockUse {
    /// What they hold.
    pub media: MediaAt,
    /// Blocks that may be overwritten, and are, with results on their way to the host.
    pub scratch: Option<BlockRange>,
}

impl BlockUse {
    /// As options of an address, `media=` first.
    fn options(&self) -> Vec<String> {
        let media = self.media.value().map(|value| format!("media={value}"));
        let scratch = self.scratch.map(|own| format!("scratch={own}"));
        media.into_iter().chain(scratch).collect()
    }
}

/// Blocks one after the other; as text `FIRST+COUNT`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockRange {
    /// The first.
    pub first: u64,
    /// How many.
    pub n_blocks: u64,
}

impl BlockRange {
    fn parse(value: &str) -> Option<Self> {
        let (first, n_blocks) = value.split_once('+')?;
        let own = Self { first: first.parse().ok()?, n_blocks: n_blocks.parse().ok()? };
        own.end().filter(|_| own.n_blocks > 0).map(|_| own)
    }

    /// The block after the last; `None` where no block has that number.
    #[must_use]
    pub fn end(self) -> Option<u64> {
        self.first.checked_add(self.n_blocks)
    }
}

impl fmt::Display for BlockRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.first, self.n_blocks)
    }
}

/// What a device's blocks hold, as far as the host is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediaAt {
    /// The files of the run's own data root.
    DataRoot,
    /// The files of this folder.
    Folder(PathBuf),
    /// The one file of the data set, from the first block on.
    Image,
}

impl MediaAt {
    /// The value of `media=`.
    fn parse(value: &str) -> Self {
        match value {
            "image" => Self::Image,
            folder => Self::Folder(folder.into()),
        }
    }

    fn value(&self) -> Option<String> {
        match self {
            Self::DataRoot => None,
            Self::Folder(folder) => Some(folder.display().to_string()),
            Self::Image => Some("image".to_owned()),
        }
    }
}

/// What follows the question mark of an address: options of devices that speak NVMe.
#[derive(Debug)]
struct NvmeOptions {
    blocks: BlockUse,
    /// As they are asked for, if anything is said about them.
    digests: Option<Digest>,
}

impl NvmeOptions {
    fn parse(options: &str) -> Result<Self, String> {
        let blocks = BlockUse { media: MediaAt::DataRoot, scratch: None };
        let mut own = Self { blocks, digests: None };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("media", value)) if !value.is_empty() => {
                    own.blocks.media = MediaAt::parse(value);
                }
                Some(("scratch", value)) => {
                    let range = BlockRange::parse(value).ok_or_else(|| {
                        format!(
                            "`{value}` is not a range of blocks; write scratch=FIRST+COUNT, as \
                             scratch=1000000+65536"
                        )
                    })?;
                    own.blocks.scratch = Some(range);
                }
                Some(("digests", "on")) => own.digests = Some(Digest::On),
                Some(("digests", "off")) => own.digests = Some(Digest::Off),
                _ => {
                    let known = "media=DIR, media=image, scratch=FIRST+COUNT, or digests=on for \
                                 nvme-tcp://";
                    return Err(unknown(option, known));
                }
            }
        }
        Ok(own)
    }
}

fn unknown(option: &str, known: &str) -> String {
    format!("it has no option `{option}`; give {known}")
}

impl NvmeDrive {
    fn parse(rest: &str) -> Result<Self, String> {
        let (node, options) = rest.split_once('?').unwrap_or((rest, ""));
        let node = absolute(node).ok_or(
            "expected nvme:///dev/ngXnY with an absolute path, as `nvme list` shows",
        )?;
        let NvmeOptions { blocks, digests } = NvmeOptions::parse(options)?;
        match digests {
            // No network is in between, so that there are no PDUs that could have any.
            Some(_) => {
                Err(unknown("digests", "media=DIR, media=image or scratch=FIRST+COUNT"))
            }
            None => Ok(Self { node, blocks }),
        }
    }
}

impl fmt::Display for NvmeDrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nvme://{}", self.node.display())?;
        write_options(f, &self.blocks.options())
    }
}

impl NvmeTarget {
    fn parse(rest: &str) -> Result<Self, String> {
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (at, subsystem) = rest.split_once('/').unwrap_or((rest, NVME_SUBSYSTEM));
        let (host, port) = host_and_port(at)
            .ok_or("expected nvme-tcp://HOST:PORT[/NQN] with a port up to 65535")?;
        if !subsystem.starts_with("nqn.")
            || subsystem.len() > 223
            || !subsystem.is_ascii()
        {
            return Err(format!(
                "`{subsystem}` is not an NQN; write nqn.YYYY-MM.REVERSE.DOMAIN:NAME in at most \
                223 characters"
            ));
        }
        let NvmeOptions { blocks, digests } = NvmeOptions::parse(options)?;
        let digests = digests.unwrap_or_default();
        Ok(Self { host, port, subsystem: subsystem.to_owned(), blocks, digests })
    }
}

impl fmt::Display for NvmeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, subsystem, blocks, digests } = self;
        match host.contains(':') {
            true => write!(f, "nvme-tcp://[{host}]:{port}/{subsystem}")?,
            false => write!(f, "nvme-tcp://{host}:{port}/{subsystem}")?,
        }
        let mut options = blocks.options();
        if *digests == Digest::On {
            options.push("digests=on".to_owned());
        }
        write_options(f, &options)
    }
}

fn write_options(f: &mut fmt::Formatter<'_>, options: &[String]) -> fmt::Result {
    if options.is_empty() { Ok(()) } else { write!(f, "?{}", options.join("&")) }
}

impl Address {
    /// Host and port, where it has them.
    pub(crate) fn host_and_port(&self) -> Option<(&str, u16)> {
        match self {
            Self::Tcp { host, port }
            | Self::Noise { host, port }
            | Self::Tls { host, port } => Some((host, *port)),
            Self::Nvme(target) => Some((&target.host, target.port)),
            Self::Unix(_) | Self::Spool(_) | Self::Drive(_) => None,
        }
    }

    /// The same with another port, where it has one.
    pub(crate) fn with_port(&self, new: u16) -> Self {
        let mut address = self.clone();
        match &mut address {
            Self::Tcp { port, .. }
            | Self::Noise { port, .. }
            | Self::Tls { port, .. } => *port = new,
            Self::Nvme(target) => target.port = new,
            Self::Unix(_) | Self::Spool(_) | Self::Drive(_) => {}
        }
        address
    }

    /// Whether only its own machine reaches it.
    #[must_use]
    pub fn is_of_machine(&self) -> bool {
        match self {
            Self::Unix(_) | Self::Spool(_) | Self::Drive(_) => true,
            Self::Tcp { .. } | Self::Noise { .. } | Self::Tls { .. } | Self::Nvme(_) => {
                let host = self.host_and_port().map_or("", |(host, _)| host);
                let ip = host.parse::<IpAddr>();
                host == "localhost" || ip.is_ok_and(|ip| ip.to_canonical().is_loopback())
            }
        }
    }

    /// How connections to it are protected.
    pub(crate) fn protection(&self) -> Protection {
        match self {
            Self::Noise { .. } => Protection::Noise,
            Self::Tls { .. } => Protection::Tls,
            Self::Tcp { .. }
            | Self::Unix(_)
            | Self::Spool(_)
            | Self::Nvme(_)
            | Self::Drive(_) => Protection::Plain,
        }
    }

    /// What is said where only a socket will do.
    pub(crate) fn is_no_socket(&self) -> CsdError {
        let why = match self {
            Self::Nvme(_) => "it is an NVMe address, on which only firmware-sim listens",
            Self::Drive(_) => "it is a drive of this machine, not a socket",
            Self::Tcp { .. }
            | Self::Noise { .. }
            | Self::Tls { .. }
            | Self::Unix(_)
            | Self::Spool(_) => "it is a directory, not a socket",
        };
        let why = why.to_owned();
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
            "nvme-tcp" => {
                NvmeTarget::parse(rest).map(Self::Nvme).map_err(|why| wrong(&why))
            }
            "nvme" => NvmeDrive::parse(rest).map(Self::Drive).map_err(|why| wrong(&why)),
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
            Self::Nvme(target) => return target.fmt(f),
            Self::Drive(drive) => return drive.fmt(f),
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
            "nvme-tcp://nas:4420/nqn.2026-11.org.example:a",
            "nvme-tcp://[::1]:1/nqn.2026-11.org.example:a?media=/data&digests=on",
            "nvme-tcp://nas:4420/nqn.2026-01.dev.bothends:csd?media=image",
            "nvme:///dev/ng0n1",
            "nvme:///dev/nvme3?media=image",
            "nvme:///dev/ng0n1?media=/data/train",
            "nvme:///dev/ng0n1?scratch=7+18446744073709551608",
            "nvme-tcp://nas:1/nqn.2026-01.dev.bothends:csd?media=image&scratch=0+1&digests=on",
        ] {
            let address: Address = spec.parse().unwrap();
            assert_eq!(address.to_string(), spec);
        }
        let short: Address = "nvme-tcp://nas:4420".parse().unwrap();
        let full = format!("nvme-tcp://nas:4420/{NVME_SUBSYSTEM}");
        assert_eq!(short.to_string(), full);
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
            ("nvme2:///dev/ng0n1", "or nvme:///dev/ngXnY"),
            ("nvme://ng0n1", "nvme:///dev/ngXnY with"),
            ("nvme://", "nvme:///dev/ngXnY with"),
            ("nvme:///dev/ng0n1?digests=on", "media=image or scratch="),
            ("nvme:///dev/ng0n1?scratch=", "write scratch=FIRST+COUNT"),
            ("nvme:///dev/ng0n1?scratch=7", "write scratch=FIRST+COUNT"),
            ("nvme:///dev/ng0n1?scratch=7+0", "write scratch=FIRST+COUNT"),
            ("nvme-tcp://nas:1?scratch=18446744073709551615+1", "not a range of blocks"),
            ("nvme:///dev/ng0n1?media=", "media=DIR, media=image"),
            ("nvme-tcp://nas", "nvme-tcp://HOST:PORT[/NQN] with"),
            ("nvme-tcp://nas:1/x", "not an NQN"),
            ("nvme-tcp://nas:1?media", "media=image"),
            ("nvme-tcp://nas:1?speed=1", "digests=on"),
        ] {
            let error = spec.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(expected), "{spec}: {error}");
        }
    }
}
