//! The target as `--listen nvme-tcp://…` starts it.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Result, bail};
use bothends_csd::address::NVME_SUBSYSTEM as NAME;

use super::{
    Batches, BlockMedia, Checksum, Subsystem, SubsystemConfig, Target, TargetConfig,
};
use crate::config::DeviceConfig;
use crate::device::{Drive, Timing};
use crate::media::MediaConfig;

/// The scheme of its addresses.
pub(crate) const SCHEME: &str = "nvme-tcp://";

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
            format!(
                "`{at}` is not an address; write {SCHEME}HOST:PORT, as 127.0.0.1:4420"
            )
        };
        let at =
            at.to_socket_addrs().ok().and_then(|mut all| all.next()).ok_or_else(wrong)?;
        if !name.starts_with("nqn.") || name.len() > 223 || !name.is_ascii() {
            return Err(format!(
                "`{name}` is not an NQN; write nqn.YYYY-MM.REVERSE.DOMAIN:NAME in at most 223 \
                characters"
            ));
        }
        Ok(Self { at, name: name.to_owned() })
    }
}

/// The address that discovery tells: `HOST` or `HOST:PORT`. Without a port it is that at which the target listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advertise(SocketAddr);

impl FromStr for Advertise {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Ok(Self(SocketAddr::new(ip, 0)));
        }
        let found = if text.contains(':') {
            text.to_socket_addrs()
        } else {
            (text, 0).to_socket_addrs()
        };
        let first = found.ok().and_then(|mut all| all.next());
        first.map(Self).ok_or_else(|| {
            format!(
                "`{text}` is not an address; write HOST or HOST:PORT, as 192.0.2.1:4420"
            )
        })
    }
}

/// Begins to serve `media` at `address`; commands take the time of `modelled`, if that is given.
///
/// # Errors
/// If the media cannot be read, or the address not be listened at.
pub(crate) fn start(
    address: &NvmeAddress,
    media: BlockMedia,
    (memory_mib, cores): (u32, usize),
    (modelled, advertise): (Option<DeviceConfig>, Option<Advertise>),
) -> Result<Target> {
    let n_blocks = media.n_blocks();
    if let Some(MediaConfig::Nand(_)) = modelled.as_ref().map(|device| &device.media)
        && media.is_writable()
        && modelled.as_ref().is_some_and(|device| device.writes.is_none())
    {
        bail!(
            "the preset does not say how its flash is written, and the image may be written; give the preset \
             `writes`, or make the image read-only"
        );
    }
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
    let subsystem = match modelled {
        Some(device) => subsystem.with_timing(Timing::new(Drive::new(device, n_blocks))),
        None => subsystem,
    };
    let config =
        TargetConfig { listen: address.at, advertise: advertise.map(|own| own.0), cores };
    Ok(Target::start(&config, subsystem)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is the report")]

    use super::*;

    #[test]
    fn an_advertised_address_has_a_port_or_takes_that_of_the_target() {
        for (text, port) in
            [("192.0.2.1", 0), ("192.0.2.1:7", 7), ("[::1]:7", 7), ("::1", 0)]
        {
            let own: Advertise = text.parse().unwrap();
            assert_eq!(own.0.port(), port, "{text}");
        }
        assert!("no such host.invalid:1".parse::<Advertise>().is_err());
    }

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

    #[test]
    fn an_image_that_may_be_written_needs_a_preset_that_says_how() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        std::fs::write(&image, [0; 8192]).unwrap();
        let started = |device| {
            let address = "nvme-tcp://127.0.0.1:0".parse().unwrap();
            start(
                &address,
                BlockMedia::open(&image).unwrap(),
                (1, 1),
                (Some(device), None),
            )
        };
        let device = crate::preset::load("newport").unwrap();
        assert!(started(device.clone()).unwrap().lateness().is_some());
        let error = started(DeviceConfig { writes: None, ..device }).unwrap_err();
        assert!(error.to_string().contains("does not say how its flash is written"));
    }
}
