//! A machine's GPU, and the way that batches would take to it: what `doctor` says.
//!
//! It opens the GPU and locks one page; no batch is sent. What the ways are, and why one is
//! refused, is `gpu::path`'s.

use std::path::Path;

use bothends_gpu::driver::Card;
use bothends_gpu::kinds::PageLocked;
use bothends_gpu::owners::Gpu;
use bothends_gpu::path::{Guard, Report};
use bothends_slots::{Ring, RingConfig, SLOT_ALIGN};
use serde::{Deserialize, Serialize};

use crate::config::gpus::Gpus;

/// A GPU and the way to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuFound {
    /// `None` where there is none that can be used.
    pub card: Option<GpuCard>,
    /// The way that is live: `p2p` (from the drive into device memory), `pinned` (through pinned
    /// slots) or `host` (into host memory only).
    pub path: String,
    /// Better ways, best first, each with why it is not live.
    pub refused: Vec<RefusedPath>,
}

/// What its driver says of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuCard {
    /// `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// The driver's version.
    pub driver: String,
    /// `9.0`.
    pub compute_capability: String,
    /// Bytes of device memory.
    pub memory_bytes: u64,
    /// The NUMA node that it is attached to, where the system says.
    pub numa_node: Option<u32>,
}

/// A way that is not live.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedPath {
    /// `p2p` or `pinned`.
    pub path: String,
    /// One line.
    pub why: String,
}

impl GpuFound {
    /// Looks for the GPU of this number, and for the ways to it from `data`. Blocks while its driver
    /// opens it, 60 s at most, and for 10 s at most where cuFile may be of use.
    #[must_use]
    pub fn look(gpus: &Gpus, ordinal: u32, data: Option<&Path>) -> Self {
        let opened = gpus.open(ordinal).and_then(|driver| {
            let gpu = Gpu::new(driver.clone())?;
            Ok((driver, gpu))
        });
        match opened {
            Err(error) => {
                let nothing = || Err(String::new());
                let why = error.to_string();
                Self::of(None, &Report::of(Err(why), Ok(()), nothing))
            }
            Ok((driver, gpu)) => {
                let page = RingConfig { n_slots: 1, slot_bytes: SLOT_ALIGN };
                let pinned = Ring::of(&PageLocked::of(&gpu), page);
                let pinned = pinned.map(drop).map_err(|error| error.to_string());
                let card = driver.card();
                let p2p = || {
                    // Twins and fakes have no compute capability.
                    if card.capability == (0, 0) {
                        return Err("cuFile serves NVIDIA's GPUs only".to_owned());
                    }
                    let guard = Guard::of_system(Ok(()), &[]);
                    Guard { data: data.map(Path::to_owned), ..guard }.open()
                };
                Self::of(Some(card), &Report::of(Ok(()), pinned, p2p))
            }
        }
    }

    fn of(card: Option<&Card>, report: &Report) -> Self {
        let refused = report.refused.iter().map(|(path, why)| RefusedPath {
            path: path.name().to_owned(),
            why: why.clone(),
        });
        Self {
            card: card.map(|card| GpuCard {
                name: card.name.clone(),
                driver: card.driver.clone(),
                compute_capability: format!(
                    "{}.{}",
                    card.capability.0, card.capability.1
                ),
                memory_bytes: card.memory_bytes,
                numa_node: card.numa_node,
            }),
            path: report.live.name().to_owned(),
            refused: refused.collect(),
        }
    }

    /// All of it on one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let Self { card, path, refused } = self;
        let card = card.as_ref().map_or("none".to_owned(), |card| {
            let GpuCard { name, driver, memory_bytes, .. } = card;
            format!("{name}, {} GiB, driver {driver}", memory_bytes >> 30)
        });
        let refused = refused.iter().map(|r| format!("not {}: {}", r.path, r.why));
        let refused = match refused.collect::<Vec<_>>().join("; ") {
            none if none.is_empty() => none,
            some => format!(" ({some})"),
        };
        format!("{card}; batches go by {path}{refused}")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bothends_gpu::driver::fake::Fake;

    use super::*;

    #[test]
    fn the_way_to_a_gpu_is_named_with_why_not_a_better_one() {
        let gpus = Gpus::Given(Arc::new(Fake::default()));
        let found = GpuFound::look(&gpus, 0, None);
        assert_eq!(found.path, "pinned");
        let line = found.summary();
        assert!(line.ends_with("by pinned (not p2p: cuFile serves NVIDIA's GPUs only)"));
        let fake = Fake::default();
        fake.fail_next("register");
        let found = GpuFound::look(&Gpus::Given(Arc::new(fake)), 0, None);
        assert_eq!((found.path.as_str(), found.refused.len()), ("host", 2));
        assert!(found.refused[1].why.contains("told to fail"), "{found:?}");
    }

    /// Where there is no driver: at once, and with a remedy.
    #[test]
    fn without_a_gpu_batches_stay_in_host_memory() {
        let found = GpuFound::look(&Gpus::Installed, 4000, None);
        assert_eq!((found.card.is_none(), found.path.as_str()), (true, "host"));
        assert!(found.summary().contains("not pinned: no usable GPU: "), "{found:?}");
    }
}
