//! The link to the host: a latency, and a bandwidth that results use one after the other.
//!
//! The real transport between emulator and host adds its own time, which is not subtracted. Nothing here
//! moves a byte.

use crate::media::transfer_ns;

/// Which link, with its constants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkConfig {
    /// Results are with the host at once.
    Instant,
    /// A wire.
    Wire {
        /// From the last byte sent to the host's notice, in nanoseconds.
        latency_ns: u64,
        /// Bytes per second.
        bytes_per_s: u64,
    },
}

/// A link in use.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    free_ns: u64,
}

/// How a transfer went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// When the host had it.
    pub arrived_ns: u64,
    /// For how long the link was busy with it.
    pub busy_ns: u64,
}

impl Link {
    /// A link that has not been used yet.
    #[must_use]
    pub fn new(config: LinkConfig) -> Self {
        Self { config, free_ns: 0 }
    }

    /// Sends `bytes` that are ready at `ready_ns`.
    pub fn send(&mut self, ready_ns: u64, bytes: u64) -> Sent {
        match self.config {
            LinkConfig::Instant => Sent { arrived_ns: ready_ns, busy_ns: 0 },
            LinkConfig::Wire { latency_ns, bytes_per_s } => {
                let busy_ns = transfer_ns(bytes, bytes_per_s);
                self.free_ns = self.free_ns.max(ready_ns).saturating_add(busy_ns);
                Sent { arrived_ns: self.free_ns.saturating_add(latency_ns), busy_ns }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_link_delivers_its_bandwidth() {
        let config = LinkConfig::Wire { latency_ns: 30_000, bytes_per_s: 117_000_000 };
        let mut link = Link::new(config);
        let last = (0..100).map(|_| link.send(0, 1_170_000).arrived_ns).max();
        assert_eq!(last, Some(1_000_030_000), "117 MB at 117 MB/s, then one latency");
    }

    #[test]
    fn an_idle_link_adds_latency_and_transfer() {
        let config = LinkConfig::Wire { latency_ns: 10, bytes_per_s: 1_000_000_000 };
        let sent = Link::new(config).send(100, 50);
        assert_eq!(sent, Sent { arrived_ns: 160, busy_ns: 50 });
    }
}
