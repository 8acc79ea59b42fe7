//! The link that records are fetched over, as the thread that fetches sees it and the collector uses it.
//!
//! `core::link` decides; this passes on what was seen.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bothends_core::ids::Prong;
use bothends_core::link::{Asked, DeviceUse, LinkShare, SampleBytes, Seen};

/// The link of a run, shared. Clones share it. Of data that are on this machine nobody says anything.
#[derive(Debug, Clone, Default)]
pub(crate) struct LinkWatch(Arc<Mutex<Option<LinkShare>>>);

impl LinkWatch {
    fn share(&self) -> MutexGuard<'_, Option<LinkShare>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records are fetched over a link from now on.
    pub(crate) fn begin(&self, bytes: SampleBytes) {
        self.share().get_or_insert_with(|| LinkShare::new(bytes));
    }

    /// The thread that fetches has seen this.
    pub(crate) fn saw(&self, seen: Seen) {
        if let Some(share) = &mut *self.share() {
            share.saw(seen);
        }
    }

    /// What devices are to do.
    pub(crate) fn devices(&self) -> DeviceUse {
        self.share().as_ref().map_or(DeviceUse::Claims, LinkShare::devices)
    }

    /// Devices have so many batches to make now; `None` where there are no devices.
    pub(crate) fn devices_have(&self, n_batches: Option<usize>) {
        if let Some(share) = &mut *self.share() {
            share.devices_have(n_batches);
        }
    }

    /// A device has made so many samples.
    pub(crate) fn device_made(&self, n_samples: usize) {
        if let Some(share) = &mut *self.share() {
            share.device_made(n_samples as u64);
        }
    }

    /// A request of one byte that is to be sent now, to measure how long it takes there and back.
    pub(crate) fn ask_round_trip(&self) -> Option<Asked> {
        self.share().as_mut().and_then(LinkShare::ask_round_trip)
    }

    /// That request took so long.
    pub(crate) fn round_trip(&self, asked: Asked, ns: u64) {
        if let Some(share) = &mut *self.share() {
            share.round_trip(asked, ns);
        }
    }

    /// The most bytes of records that are to be on their way.
    pub(crate) fn host_limit_bytes(&self) -> Option<u64> {
        self.share().as_ref().and_then(LinkShare::host_limit_bytes)
    }

    /// What a batch of so many samples costs a prong, which worked on it for `work_ns`.
    pub(crate) fn cost_ns(&self, prong: Prong, work_ns: u64, n_samples: usize) -> u64 {
        match (&*self.share(), prong) {
            (Some(share), Prong::Front) => share.host_ns(work_ns, n_samples as u64),
            (_, Prong::Front | Prong::Back(_)) => work_ns,
        }
    }
}
