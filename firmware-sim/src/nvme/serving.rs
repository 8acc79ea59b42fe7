//! The target as `--listen nvme-tcp://…` starts it.

use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Result, bail};

use super::batch::Batches;
use super::{BlockMedia, Checksum, Subsystem, SubsystemConfig, Target, TargetConfig};

/// The scheme of its addresses.
pub(crate) const SCHEME: &str = "nvme-tcp://";
/// The name that a subsystem has if nobody gives it another.
const NAME: &str = "nqn.2026-01.dev.bothends:csd";

/// Where a target listens: `nvme-tcp://HOST:PORT`, with the subsystem's name (NQN) behind a slash if it is to have
/// another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmeAddress {
    /// The address.
    pub at: SocketAddr,
    /// The subsystem's name.
    pub name: String,
}

impl FromStr for NvmeAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix(SCHEME).ok_or("it begins with nvme-tcp://")?;
        let (at, name) = rest.split_once('/').unwrap_or((rest, NAME));
        let wrong = || {
            format!("`{at}` is no address; write {SCHEME}HOST:PORT, as 127.0.0.1:4420")
        };
        let at =
            at.to_socket_addrs().ok().and_then(|mut all| all.next()).ok_or_else(wrong)?;
        if !name.starts_with("nqn.") || name.len() > 223 || !name.is_ascii() {
            return Err(format!(
                "`{name}` is no NQN; write nqn.YYYY-MM.REVERSE.DOMAIN:NAME in at most 223 characters"
            ));
        }
        Ok(Self { at, name: name.to_owned() })
    }
}

/// Begins to serve `media` at `address`.
///
/// # Errors
/// If the media cannot be read, or the address not be listened at.
pub(crate) fn start(
    address: &NvmeAddress,
    media: BlockMedia,
    (memory_mib, cores): (u32, usize),
) -> Result<Target> {
    let Some(memory_bytes) =
        usize::try_from(memory_mib).ok().and_then(|n| n.checked_mul(1 << 20))
    else {
        bail!("a memory of {memory_mib} MiB is more than this machine can address");
    };
    let batches = Batches::new(u32::try_from(cores).unwrap_or(u32::MAX));
    let subsystem = Subsystem::new(SubsystemConfig {
        name: address.name.clone(),
        serial: "BOTHENDS0".to_owned(),
        media,
        memory_bytes,
        programs: vec![Arc::new(Checksum), Arc::new(batches)],
    });
    let config = TargetConfig { listen: address.at, advertise: None, cores };
    Ok(Target::start(&config, subsystem)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is the report")]

    use super::*;

    #[test]
    fn addresses_have_a_name_or_get_one() {
        let own: NvmeAddress = "nvme-tcp://127.0.0.1:4420".parse().unwrap();
        assert_eq!((own.at.port(), own.name.as_str()), (4420, NAME));
        let own: NvmeAddress =
            "nvme-tcp://[::1]:1/nqn.2026-11.org.example:x".parse().unwrap();
        assert!(own.at.is_ipv6());
        assert_eq!(own.name, "nqn.2026-11.org.example:x");
        for wrong in
            ["tcp://127.0.0.1:1", "nvme-tcp://127.0.0.1", "nvme-tcp://127.0.0.1:1/x"]
        {
            assert!(wrong.parse::<NvmeAddress>().is_err(), "{wrong}");
        }
    }
}
