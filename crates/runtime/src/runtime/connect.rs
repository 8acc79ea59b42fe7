//! The devices of a run: connected, added to those that there are, and given slots.
//!
//! How one is reached is `devices/reach.rs`'s, what becomes of one that is missing
//! `devices/presence.rs`'s. Nothing here starts the engine, which is stopped where a device is added.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use bothends_core::setting;
use bothends_csd::address::Address;
use bothends_csd::connect::ConnectOptions;
use bothends_csd::pool::Pool;
use bothends_csd::{CsdError, Transport};
use bothends_gpu::driver::Driver;
use bothends_gpu::kinds::PageLocked;
use bothends_gpu::owners::Gpu;
use bothends_io::{ReaderConfig, Roots};
use bothends_slots::Producer;

use crate::devices::attest::{Suspects, attest, random};
use crate::devices::emulator::{DeviceProcess, Setting};
use crate::devices::gpu::{GpuReach, input_bytes};
use crate::devices::plain::Plain;
use crate::devices::presence::{Lost, Presence};
use crate::devices::reach::{
    FIRST_WAIT, Outcome, QUIET, Reach, Reached, Way, may_come, session,
};
use crate::devices::roster::Roster;
use crate::devices::seat::Seat;
use crate::devices::spec::DeviceSpec;
use crate::devices::trust::{Delivered, Trust};
use crate::error::{RuntimeError, one_line_with};
use crate::runtime::host::{Device, Runtime, n_gpus, n_places};
use crate::runtime::memory::{DEVICE_DEPTH, Devices, Room, Sizes};

impl Runtime {
    /// Starts emulated devices, connects all and agrees on the session. One that cannot be
    /// reached, refuses, or says nothing for two seconds is missing: a note says so
    /// ([`Self::next_note`]), and it is tried again while epochs run, unless it is emulated or a GPU.
    ///
    /// # Errors
    /// The first device that cannot be started, or that has another key or version; with
    /// [`crate::RunConfig::require_devices`] also one that is missing.
    pub fn connect_devices(
        &mut self,
        host_images_per_s: Option<f64>,
    ) -> Result<(), RuntimeError> {
        let mut found = Vec::new();
        let mut pools = Vec::new();
        for (nth, spec) in self.config.devices.iter().enumerate() {
            let (process, way) = match spec {
                DeviceSpec::Pool(pool) => {
                    pools.push(pool.clone());
                    continue;
                }
                DeviceSpec::At { address, .. } => (None, self.way_to(address.clone())),
                DeviceSpec::Gpu { ordinal, .. } => (None, self.way_to_gpu(*ordinal)),
                DeviceSpec::Sim(sim) => {
                    let setting = Setting {
                        run: &self.config,
                        nth,
                        media: &self.source.roots,
                        n_in_epoch: self.source.n_in_epoch(),
                        host_images_per_s,
                    };
                    let process = DeviceProcess::spawn(sim, &setting)?;
                    let way = self.way_to(process.address.clone());
                    (Some(process), way)
                }
            };
            let source = Arc::clone(&self.source);
            let recipe = self.config.recipe.clone();
            let batch_size = self.config.batch_size;
            let suspects = Suspects::default();
            let job = self.config.job.clone();
            let reach = Reach { way, source, recipe, batch_size, job, suspects };
            found.push((spec.text().to_owned(), process, reach));
        }
        // All at once: each may take as long as its deadlines.
        let tries = found.iter().map(|(_, _, reach)| reach.begin());
        let tries: Vec<_> = tries.collect::<Result<_, _>>()?;
        let by = Instant::now() + FIRST_WAIT;
        for ((name, process, reach), begun) in found.into_iter().zip(tries) {
            // What is of this machine is there as soon as the machine has time for it.
            let is_of_here = process.is_some() || !reach.may_come_back();
            let waits = self.config.require_devices || is_of_here;
            let (reached, begun) = match waits {
                true => (begun.ends()?, None),
                false => match begun.by(by)? {
                    Outcome::Ended(reached) => (*reached, None),
                    Outcome::StillAt(doing) => (Err(said_nothing(doing)), Some(begun)),
                },
            };
            if let Ok(Reached { gpu: Some(driver), .. }) = &reached {
                self.page_lock(driver);
            }
            let read_bytes = reach.read_bytes();
            self.add(&name, Some(reach).filter(|_| !is_of_here), reached)?;
            if let Some(device) = self.devices.last_mut() {
                (device.process, device.begun) = (process, begun);
                device.read_bytes = read_bytes;
            }
        }
        self.connect_pools(&pools)
    }

    /// Adds the places of pools, after the other devices, and gives the members two seconds to take them,
    /// or until none of them has said anything for a second.
    fn connect_pools(&mut self, pools: &[Pool]) -> Result<(), RuntimeError> {
        if pools.is_empty() {
            return Ok(());
        }
        self.stop_engine();
        let mut rosters = Vec::new();
        for pool in pools {
            let n_places = n_places(pool).min(self.n_places);
            let roster = Roster::new(pool, n_places, random());
            for place in 0..n_places as usize {
                let device = self.place(&roster, place);
                self.make_room(&device)?;
                self.devices.push(device);
            }
            rosters.push(roster);
        }
        self.engine()?;
        let by = Instant::now() + FIRST_WAIT;
        let quiet = if self.config.require_devices { FIRST_WAIT } else { QUIET };
        for roster in rosters {
            let n_attached = roster.settles(by, quiet);
            if n_attached == 0 && self.config.require_devices {
                let device = roster.pool().text.clone();
                return Err(RuntimeError::EmptyPool { device });
            }
        }
        Ok(())
    }

    /// A place of a pool, as a device that nobody has yet.
    fn place(&self, roster: &Roster, place: usize) -> Device {
        let name = format!("{} [{}]", roster.pool(), place + 1);
        let trust = Trust::new(random(), self.config.audit_percent, roster.delivered());
        let notes = (self.notes.0.clone(), self.config.names);
        Device {
            presence: Presence::new(&name, Lost::IsTriedAgain, trust, notes),
            reach: None,
            transport: None,
            begun: None,
            prior_ns: self.rates.device_ns(&name, 0),
            read_bytes: Arc::default(),
            process: None,
            seat: Some(Seat {
                roster: roster.clone(),
                place,
                options: self.connect_options(),
                source: Arc::clone(&self.source),
                recipe: self.config.recipe.clone(),
                batch_size: self.config.batch_size,
                job: self.config.job.clone(),
            }),
            name,
        }
    }

    fn way_to(&self, address: Address) -> Way {
        Way::To(address, self.connect_options())
    }

    fn connect_options(&self) -> ConnectOptions {
        ConnectOptions {
            key_file: self.config.key_file.clone(),
            tls: self.config.tls.clone(),
            insecure: self.config.insecure,
            folder: match &self.source.roots {
                Roots::One(root) => Some(root.clone()),
                Roots::Named(_) => None,
            },
            ..ConnectOptions::default()
        }
    }

    fn way_to_gpu(&self, ordinal: u32) -> Way {
        let kind = self.config.read.kind;
        Way::Gpu(GpuReach {
            ordinal,
            gpus: self.config.gpus.clone(),
            reader: ReaderConfig { kind, ..ReaderConfig::default() },
            input_bytes: input_bytes(self.uploads, n_gpus(&self.config.devices)),
            read_bytes: Arc::default(),
        })
    }

    /// From now on devices fill pinned slots, which the GPU copies to by itself. Where they
    /// cannot be had, its driver copies through memory of its own, which is slower.
    fn page_lock(&mut self, driver: &Arc<dyn Driver>) {
        let gpu = Gpu::new(Arc::clone(driver)).map_err(|error| error.to_string());
        let names = self.config.names;
        let made = gpu.and_then(|gpu| {
            let memory = Arc::new(PageLocked::of(&gpu));
            let before = mem::replace(&mut self.device_memory, memory);
            let made = self.page_locked_rings(self.sizes, self.room);
            made.map_err(|error| {
                self.device_memory = before;
                one_line_with(&error, names)
            })
        });
        match made {
            Ok(rings) => {
                self.stop_engine();
                self.rings = rings;
            }
            Err(why) => {
                let note = format!("slots are not pinned: {why}; copies are slower");
                // Who reads no notes keeps the oldest.
                let _ = self.notes.0.try_send(note);
            }
        }
    }

    /// Adds a device as it was found.
    fn add(
        &mut self,
        name: &str,
        reach: Option<Reach>,
        found: Result<Reached, CsdError>,
    ) -> Result<(), RuntimeError> {
        let is_fault = |error: &CsdError| !self.config.require_devices && may_come(error);
        let lost = if reach.is_some() { Lost::IsTriedAgain } else { Lost::IsGone };
        let alone = Delivered::default();
        let trust = Trust::new(random(), self.config.audit_percent, alone);
        let notes = (self.notes.0.clone(), self.config.names);
        let presence = Presence::new(name, lost, trust, notes);
        let transport = match found {
            Ok(Reached { transport, capabilities, reads, .. }) => {
                presence.is_here(capabilities, reads);
                Some(transport)
            }
            Err(error) if is_fault(&error) => {
                presence.is_missing(presence.line(&error));
                None
            }
            Err(source) => {
                return Err(RuntimeError::Device { device: name.to_owned(), source });
            }
        };
        self.stop_engine();
        let nth = self.devices.iter().filter(|device| device.name == name).count();
        let device = Device {
            name: name.to_owned(),
            presence,
            reach,
            transport,
            begun: None,
            prior_ns: self.rates.device_ns(name, nth),
            read_bytes: Arc::default(),
            process: None,
            seat: None,
        };
        self.make_room(&device)?;
        self.devices.push(device);
        Ok(())
    }

    /// Adds a device that the caller has reached by a transport of its own, and agrees with
    /// it on the session. It is not reached again when it is lost.
    ///
    /// # Errors
    /// [`RuntimeError::Device`] when it refuses, does not answer or has other data, [`RuntimeError::Memory`]
    /// when the budget's limit leaves it no slots.
    pub fn attach(
        &mut self,
        name: &str,
        mut transport: Box<dyn Transport>,
    ) -> Result<(), RuntimeError> {
        if self.source.is_undecoded() {
            return Err(RuntimeError::Options(format!(
                "{}: {name} cannot take part, because only the host makes batches of unmodified \
                 files; use a recipe that decodes",
                (self.config.names)(setting::Setting::Devices)
            )));
        }
        let failed = |source| RuntimeError::Device { device: name.to_owned(), source };
        let capabilities = transport.hello().map_err(failed)?;
        let (recipe, batch_size) = (&self.config.recipe, self.config.batch_size);
        let job = self.config.job.clone();
        let session = session(&self.source, recipe, batch_size, job);
        transport.open(&session).map_err(failed)?;
        let suspects = Suspects::default();
        let reads = attest(&mut *transport, &self.source, &suspects).map_err(failed)?;
        self.add(name, None, Ok(Reached { transport, capabilities, reads, gpu: None }))
    }

    /// Adds a producer that the caller brings, which takes `n_jobs` jobs at a time and makes
    /// the run's samples: a device of any kind, in this process.
    ///
    /// # Errors
    /// [`RuntimeError::Memory`] when the budget's limit leaves it no slots.
    pub fn attach_producer(
        &mut self,
        name: &str,
        n_jobs: u32,
        producer: Box<dyn Producer>,
    ) -> Result<(), RuntimeError> {
        let plain = Plain { producer, name: name.to_owned(), n_jobs };
        self.attach(name, Box::new(plain))
    }

    /// Makes sure of slots for one device more; those of the configuration have theirs.
    fn make_room(&mut self, device: &Device) -> Result<(), RuntimeError> {
        let room = self.divide(self.sizes, Some(device))?;
        if room != self.room {
            self.rings = self.page_locked_rings(self.sizes, room)?;
            self.room = room;
        }
        Ok(())
    }

    /// Divides the memory among the prongs that there are, and one device more.
    pub(crate) fn divide(
        &self,
        sizes: Sizes,
        one_more: Option<&Device>,
    ) -> Result<Room, RuntimeError> {
        let all = self.devices.iter().chain(one_more);
        let n_here = u32::try_from(all.clone().count()).unwrap_or(u32::MAX);
        let needed = all.filter_map(|device| self.slots_needed(device)).max();
        let devices = Devices {
            n: self.n_devices.max(n_here),
            needed: needed.unwrap_or(DEVICE_DEPTH),
        };
        Room::divide(self.config.memory, self.available, sizes, devices)
    }
}

/// What is said of a device that is not waited for any longer.
fn said_nothing(doing: &'static str) -> CsdError {
    CsdError::Timeout { doing, waited: FIRST_WAIT }
}
