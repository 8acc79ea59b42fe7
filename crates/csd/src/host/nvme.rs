//! A device that speaks NVMe: blocks, memory and programs, driven by this host alone.
//!
//! There is no agent at the other end. The host computes where records are on the device's blocks (`media.rs`),
//! divides its memory into lanes (`lanes.rs`), and for each part of a batch (`part.rs`) has the device copy the
//! records there, run its program on them and give the samples back (`floor.rs`), out of its memory or by way of blocks
//! that the user has spared (`placement.rs`). A `Carrier` brings commands
//! there: `fabrics.rs` is NVMe/TCP in user space, `kernel.rs` Linux' own driver, whose nodes `nodes.rs` finds.
//! `drive.rs` is what the device is.
//!
//! Batches are answered by this transport's own calls; no thread is started.

mod carrier;
mod clock;
mod drive;
mod fabrics;
mod floor;
mod kernel;
mod lanes;
mod media;
mod nodes;
mod part;
mod placement;
mod sum;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bothends_core::ids::SampleId;
use bothends_core::recipe::Recipe;
use bothends_dataset::Table;
use bothends_nvme::commands::{Admin, Blocks, MemoryRange, RangeSets};
use bothends_nvme::host::{Content, Heard};
use bothends_nvme::{Cqe, Data, Sqe, Status};
use bothends_slots::{Completion, Job, JobId, Lost, Polled, Producer, Rejected, Slot};

use crate::host::credits::{Credits, Redeemed, refuse};
use crate::host::fuse::Fuse;
use crate::words::address::{BlockUse, NvmeDrive, NvmeTarget};
use crate::words::job::{
    Answer, Capabilities, DeviceStats, Inquiry, PROTOCOL_VERSION, RecordDigest, Session,
};
use crate::{CsdError, Finished, Transport};
use carrier::{Carrier, accepted, late};
use drive::Drive;
use fabrics::Fabric;
use floor::{Floor, ending};
use kernel::Kernel;
use lanes::{Layout, N_LANES};
use media::{Media, Span};
use part::Terms;
use placement::Placement;

pub use media::files;

/// Batches that are taken before one is answered: those on the lanes, and as many that wait.
const SLOTS: u32 = 4;
/// How long a device whose memory another host uses is left alone.
const RETRY: Duration = Duration::from_secs(2);

/// How many sets of ranges are looked for that a process has left.
const MOST_SWEPT: u16 = 64;
/// How long the end of a transport may wait for what is under way.
const FAREWELL: Duration = Duration::from_secs(2);
const DELETE: &str = "delete a set of memory ranges";

/// A device reached by NVMe.
#[derive(Debug)]
pub(crate) struct Nvme {
    carrier: Box<dyn Carrier>,
    blocks: BlockUse,
    /// The folder of the data set, where there is one.
    folder: Option<PathBuf>,
    timeout: Duration,
    credits: Credits,
    fuse: Fuse,
    found: Option<(Capabilities, Drive)>,
    floor: Option<Floor>,
    /// The open session.
    terms: Option<Terms>,
    /// How the sets of ranges divide memory.
    layout: Option<Layout>,
}

impl Nvme {
    /// Reaches the subsystem of `target`.
    pub(crate) fn connect(
        target: &NvmeTarget,
        timeout: Duration,
        folder: Option<PathBuf>,
    ) -> Result<Self, CsdError> {
        let carrier = Box::new(Fabric::connect(target, timeout)?);
        Ok(Self::of(carrier, target.blocks.clone(), (timeout, folder)))
    }

    /// Reaches a drive through Linux' own driver.
    pub(crate) fn open(
        drive: &NvmeDrive,
        timeout: Duration,
        folder: Option<PathBuf>,
    ) -> Result<Self, CsdError> {
        let carrier = Box::new(Kernel::open(drive)?);
        Ok(Self::of(carrier, drive.blocks.clone(), (timeout, folder)))
    }

    fn of(
        carrier: Box<dyn Carrier>,
        blocks: BlockUse,
        (timeout, folder): (Duration, Option<PathBuf>),
    ) -> Self {
        Self {
            carrier,
            blocks,
            folder,
            timeout,
            credits: Credits::default(),
            fuse: Fuse::default(),
            found: None,
            floor: None,
            terms: None,
            layout: None,
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Does what can be done, and waits a little for more: until the deadline at most, or until something has
    /// come.
    fn turn(&mut self, deadline: Instant) -> Result<(), CsdError> {
        let Self { carrier, floor, terms, .. } = self;
        let Some(floor) = floor else { return Ok(()) };
        floor.advance(&mut **carrier, terms.as_ref())?;
        let by = floor.next_look(Instant::now()).min(deadline);
        carrier.pump(by, &mut |heard| floor.hear(heard))?;
        // Only now: what has come is known.
        floor.check(Instant::now())?;
        floor.advance(&mut **carrier, terms.as_ref())
    }

    /// Ends what is on the lanes, which nobody waits for any more.
    fn drain(&mut self, deadline: Instant) -> Result<(), CsdError> {
        if let Some(floor) = &mut self.floor {
            floor.forget();
        }
        while self.floor.as_ref().is_some_and(|floor| !floor.is_idle()) {
            if Instant::now() > deadline {
                return Err(late("end what was begun", self.timeout));
            }
            self.turn(deadline)?;
        }
        Ok(())
    }

    fn drive(&self) -> Result<&Drive, CsdError> {
        let found = self.found.as_ref().map(|(_, drive)| drive);
        found.ok_or(CsdError::Malformed { what: "a call before hello" })
    }

    /// What the session is about, on this device.
    fn terms(&mut self, session: &Session) -> Result<Terms, CsdError> {
        let refused = |reason: String| CsdError::SessionRefused { reason };
        let drive = self.drive()?;
        let table = Table::decode(&session.manifest)
            .map_err(|error| refused(format!("the manifest cannot be read: {error}")))?;
        if session.sample_bytes == 0 {
            return Err(refused("a sample has no bytes".to_owned()));
        }
        let sizes = (
            session.recipe.len() as u64,
            u64::from(session.sample_bytes),
            session.max_batch,
        );
        let device = (drive.memory_bytes, drive.transfer);
        let layout = Layout::new(device, sizes).map_err(refused)?;
        let (of_device, at) = (drive.media, (&self.blocks, self.folder.as_deref()));
        let Self { carrier, floor, .. } = self;
        // A controller takes a host for gone that lists files for a minute and says nothing.
        let look = &mut || {
            let hear = &mut |heard: Heard<'_>| {
                if let Some(floor) = floor {
                    floor.hear(heard);
                }
            };
            carrier.pump(Instant::now(), hear)
        };
        let media = Media::of(&table, at, of_device, look)?;
        self.blocks.scratch.map_or(Ok(()), |scratch| media.spares(scratch))?;
        Ok(Terms {
            table,
            media,
            recipe: (session.recipe.clone(), session.recipe_hash),
            seed: session.seed,
            sample_bytes: session.sample_bytes,
            layout,
        })
    }

    /// Makes sure of a set of ranges for each lane.
    fn divide(&mut self, layout: Layout, deadline: Instant) -> Result<(), CsdError> {
        if self.layout == Some(layout) {
            return Ok(());
        }
        match self.split(layout, deadline) {
            Err(CsdError::Busy { .. }) if self.carrier.outlives() => {
                self.join(deadline)?;
                self.sweep(deadline)?;
                self.split(layout, deadline)
            }
            split => split,
        }
    }

    fn split(&mut self, layout: Layout, deadline: Instant) -> Result<(), CsdError> {
        self.join(deadline)?;
        let drive = self.drive()?.clone();
        for lane in 0..N_LANES {
            let ranges = layout.ranges(lane, drive.memory);
            let set = self.range_set(&drive, &ranges, deadline)?;
            if let Some(floor) = &mut self.floor {
                floor.range_sets.push(set);
            }
        }
        self.layout = Some(layout);
        Ok(())
    }

    /// Deletes the sets of ranges.
    fn join(&mut self, deadline: Instant) -> Result<(), CsdError> {
        self.layout = None;
        let had = self.floor.as_mut().map(|floor| std::mem::take(&mut floor.range_sets));
        for set in had.unwrap_or_default() {
            let programs = self.drive()?.programs;
            accepted(self.delete(set, programs, deadline)?, DELETE)?;
        }
        Ok(())
    }

    fn delete(
        &mut self,
        set: u16,
        programs: u32,
        deadline: Instant,
    ) -> Result<Status, CsdError> {
        let delete = Admin::RangeSets(RangeSets::Delete { set });
        let entry = delete.entry(programs, Data::NONE);
        let (cqe, _) = self.carrier.ask(entry, Content::None, (DELETE, deadline))?;
        Ok(cqe.status)
    }

    /// Deletes the sets that a process of this machine has left which was killed. Those of other hosts are none
    /// of this controller's.
    fn sweep(&mut self, deadline: Instant) -> Result<(), CsdError> {
        let Drive { programs, range_sets, .. } = *self.drive()?;
        for set in 1..=range_sets.min(MOST_SWEPT) {
            // Most are not there, and one that is still in use is seen by whoever needs its memory.
            self.delete(set, programs, deadline)?;
        }
        Ok(())
    }

    fn range_set(
        &mut self,
        drive: &Drive,
        ranges: &[MemoryRange],
        deadline: Instant,
    ) -> Result<u16, CsdError> {
        let n_ranges = u8::try_from(ranges.len()).unwrap_or(u8::MAX);
        let create = Admin::RangeSets(RangeSets::Create { n_ranges, set: 0 });
        let data = ranges.iter().flat_map(MemoryRange::bytes).collect();
        let step = ("make a set of memory ranges", deadline);
        let entry = create.entry(drive.programs, Data::NONE);
        let content = Content::ToController(data);
        let (cqe, _) = self.carrier.ask(entry, content, step)?;
        if matches!(cqe.status, Status::OVERLAPPING_RANGES | Status::TOO_MANY_RANGE_SETS)
        {
            let reason = "another host uses its memory".to_owned();
            return Err(CsdError::Busy { reason, retry: RETRY });
        }
        accepted(cqe.status, step.0)?;
        let malformed = CsdError::Malformed { what: "the number of a set of ranges" };
        u16::try_from(cqe.result).map_err(|_| malformed)
    }

    fn poll_until(&mut self, deadline: Instant) -> Result<Polled, CsdError> {
        self.fuse.check()?;
        loop {
            let finished = self.floor.as_mut().and_then(|own| own.finished.pop_front());
            if let Some(finished) = finished
                && let Some(polled) = self.answer(finished)?
            {
                return Ok(polled);
            }
            let is_over = Instant::now() >= deadline;
            let turned = self.turn(deadline);
            self.fuse.watch(turned)?;
            let has_more =
                self.floor.as_ref().is_some_and(|own| !own.finished.is_empty());
            if is_over && !has_more {
                return Ok(Polled::Nothing);
            }
        }
    }

    /// A batch as the host sees it.
    fn answer(&mut self, finished: Finished) -> Result<Option<Polled>, CsdError> {
        let Finished { job, slot, result, device_ns, lateness_ns } = finished;
        let bytes = self.credits.payload_bytes(job).unwrap_or(0);
        let ending = ending(result, bytes);
        let answer = Answer { job, ending, device_ns, lateness_ns };
        Ok(match self.credits.redeem(&answer)? {
            Redeemed::Job(submission) => {
                // Parts were held against their checksums; 0 is that of the answer.
                let bring = |_: &mut [u8]| Ok(Ok(0));
                let polled = submission.with_slot(slot).complete(answer, bring)?;
                Some(self.as_far_as_known(polled))
            }
            Redeemed::Again => Some(Polled::Extra),
            Redeemed::Foreign => None,
        })
    }

    /// NVMe has no word for how late an emulated device was: only who started the emulator hears of it.
    fn as_far_as_known(&self, polled: Polled) -> Polled {
        let is_emulated = self.found.as_ref().is_some_and(|(_, drive)| drive.emulated);
        match polled {
            Polled::Completion(completion) if is_emulated => {
                Polled::Completion(Completion { lateness_ns: None, ..completion })
            }
            Polled::Completion(_) | Polled::Extra | Polled::Nothing => polled,
        }
    }

    /// Has an I/O command carried out, while batches go on.
    fn ask(
        &mut self,
        entry: Sqe,
        content: Content,
        (doing, deadline): (&'static str, Instant),
    ) -> Result<(Cqe, Vec<u8>), CsdError> {
        if let Some(floor) = &mut self.floor {
            floor.ask(entry, content);
        }
        loop {
            self.turn(deadline)?;
            if let Some(answer) = self.floor.as_mut().and_then(Floor::take_answer) {
                return Ok(answer);
            }
            if Instant::now() > deadline {
                return Err(late(doing, self.timeout));
            }
        }
    }

    /// Makes sure that the program takes the recipe.
    fn probe(&mut self, terms: &Terms, deadline: Instant) -> Result<(), CsdError> {
        let drive = self.drive()?.clone();
        let mut part = terms.probe(&drive);
        for (entry, content) in std::mem::take(&mut part.fills) {
            let step = ("write the recipe to its memory", deadline);
            let (cqe, _) = self.ask(entry, content, step)?;
            accepted(cqe.status, step.0)?;
        }
        let sets = self.floor.as_ref().and_then(|floor| floor.range_sets.first());
        let execute = part.execute(&drive, sets.copied().unwrap_or(0));
        let step = ("try the recipe", deadline);
        let (cqe, _) = self.ask(execute, Content::None, step)?;
        match cqe.status {
            Status::PROGRAM_DATA | Status::INVALID_FIELD => {
                let reason = format!(
                    "its program does not take the recipe or the size of its samples ({}); use the same \
                     release on both sides, or leave the device out",
                    cqe.status
                );
                Err(CsdError::SessionRefused { reason })
            }
            status => accepted(status, step.0),
        }
    }

    /// The record as the device's blocks have it; `None` where they cannot be read.
    fn record(
        &mut self,
        sample: SampleId,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, CsdError> {
        let drive = self.drive()?.clone();
        let Some(terms) = &self.terms else { return Ok(None) };
        let extent = terms.table.extent(sample);
        let Some(Span { mut first, mut n_blocks, offset }) = terms.media.span(extent)
        else {
            return Ok(None);
        };
        let most = drive.transfer / drive.media.1;
        let mut bytes = Vec::new();
        while n_blocks > 0 {
            let n = n_blocks.min(most.max(1));
            let read = Blocks::Read { first, n_blocks: n };
            let entry = read.entry(drive.blocks, Data::NONE);
            let content = Content::ToHost(n * drive.media.1);
            let (cqe, part) = self.ask(entry, content, ("attest", deadline))?;
            if !cqe.status.is_success() {
                return Ok(None);
            }
            bytes.extend_from_slice(&part);
            (first, n_blocks) = (first + u64::from(n), n_blocks - n);
        }
        let (from, len) = (offset as usize, extent.len as usize);
        Ok(bytes.get(from..from + len).map(<[u8]>::to_vec))
    }

    fn try_open(&mut self, session: &Session) -> Result<(), CsdError> {
        self.credits.begin(session)?;
        self.terms = None;
        let deadline = self.deadline();
        self.drain(deadline)?;
        let terms = self.terms(session)?;
        // Listing files may have taken long.
        let deadline = self.deadline();
        self.divide(terms.layout, deadline)?;
        self.probe(&terms, deadline)?;
        let block_bytes = self.drive()?.media.1;
        if let Some(floor) = &mut self.floor {
            floor.placement = Placement::new(self.blocks.scratch, block_bytes);
        }
        self.terms = Some(terms);
        self.credits.begun(session);
        Ok(())
    }

    /// Passes a result on; where the device is lost, its slots come back.
    fn watch<T>(&mut self, result: Result<T, CsdError>) -> Result<T, Lost> {
        if result.is_err()
            && let Some(floor) = &mut self.floor
        {
            floor.forget();
        }
        self.credits.watch(result)
    }
}

impl Drop for Nvme {
    /// Gives the memory back where the controller does not end with the way to it.
    fn drop(&mut self) {
        if self.carrier.outlives() && self.fuse.check().is_ok() {
            let deadline = Instant::now() + FAREWELL;
            // What fails here is swept by the next.
            let _ = self.drain(deadline).and_then(|()| self.join(deadline));
        }
    }
}

impl Producer for Nvme {
    fn submit(&mut self, job: Job, slot: Slot) -> Result<(), Box<Rejected>> {
        if let Err(error) = self.fuse.check() {
            return Err(refuse(job, slot, error));
        }
        let travelling = self.credits.issue(job, slot)?;
        let slot = self.credits.lend(travelling.id).expect("it was just issued");
        let Self { carrier, floor, terms, fuse, .. } = self;
        if let Some(floor) = floor {
            floor.begin(travelling, slot);
            // What fails here fails in the next poll, too, which says so.
            let _ = fuse.watch(floor.advance(&mut **carrier, terms.as_ref()));
        }
        Ok(())
    }

    fn poll(&mut self, timeout: Duration) -> Result<Polled, Lost> {
        let polled = self.poll_until(Instant::now() + timeout);
        self.watch(polled)
    }

    fn revoke(&mut self, job: JobId) -> Result<(), Lost> {
        let checked = self.fuse.check();
        self.watch(checked)?;
        if let (Some(serial), Some(floor)) = (self.credits.revoke(job), &mut self.floor) {
            floor.revoke(serial);
        }
        Ok(())
    }

    fn abandon(&mut self) -> Result<(), Lost> {
        let checked = self.fuse.check();
        self.watch(checked)?;
        self.credits.forget();
        if let Some(floor) = &mut self.floor {
            floor.forget();
        }
        Ok(())
    }
}

impl Transport for Nvme {
    fn hello(&mut self) -> Result<Capabilities, CsdError> {
        self.fuse.check()?;
        if let Some((capabilities, _)) = &self.found {
            return Ok(capabilities.clone());
        }
        let deadline = self.deadline();
        let found = Drive::find(&mut *self.carrier, deadline);
        let drive = self.fuse.watch(found)?;
        let known = Recipe::known_before_cut();
        let capabilities = Capabilities {
            protocol_version: PROTOCOL_VERSION,
            name: drive.name.clone(),
            emulated: drive.emulated,
            // Its program is of this version; what it cannot do it says by a status.
            ops: known.into_iter().map(str::to_owned).collect(),
            slots: SLOTS,
            // A larger one than its memory is made in parts.
            max_batch_bytes: u64::MAX,
            features: Vec::new(),
        };
        self.credits.allow(&capabilities)?;
        self.floor = Some(Floor::new(drive.clone(), self.timeout));
        self.found = Some((capabilities.clone(), drive));
        Ok(capabilities)
    }

    fn open(&mut self, session: &Session) -> Result<(), CsdError> {
        self.fuse.check()?;
        let opened = self.try_open(session);
        self.fuse.watch(opened)
    }

    fn attest(
        &mut self,
        inquiry: &Inquiry,
    ) -> Result<Option<Vec<Option<RecordDigest>>>, CsdError> {
        self.fuse.check()?;
        let deadline = self.deadline();
        let n_samples = self.terms.as_ref().map_or(0, |terms| terms.table.n_samples());
        if let Some(SampleId(id)) = inquiry.samples.iter().find(|id| id.0 >= n_samples) {
            let reason = format!("there is no sample {id} in this session");
            return Err(CsdError::SessionRefused { reason });
        }
        let mut digests = Vec::new();
        for sample in &inquiry.samples {
            let record = self.record(*sample, deadline);
            let record = self.fuse.watch(record)?;
            digests.push(record.map(|record| RecordDigest::of(&record, inquiry.seed)));
        }
        Ok(Some(digests))
    }

    fn stats(&mut self) -> Result<DeviceStats, CsdError> {
        self.fuse.check()?;
        Ok(self.floor.as_ref().map_or_else(DeviceStats::default, Floor::stats))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is the report")]

    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use bothends_core::sample::{Encoding, Extent};
    use bothends_dataset::TableBuilder;

    use super::*;
    use crate::words::address::MediaAt;

    /// A way that leads nowhere, and counts how often somebody looks whether something has come. With the last look
    /// it ends.
    #[derive(Debug)]
    struct Looked(Arc<AtomicU32>, u32);

    impl Carrier for Looked {
        fn send(
            &mut self,
            _: Sqe,
            _: &Content,
            _: Duration,
        ) -> Result<Option<u16>, CsdError> {
            Ok(None)
        }

        fn ask(
            &mut self,
            _: Sqe,
            _: Content,
            (doing, _): (&'static str, Instant),
        ) -> Result<(Cqe, Vec<u8>), CsdError> {
            Err(late(doing, Duration::ZERO))
        }

        fn pump(
            &mut self,
            _: Instant,
            _: &mut dyn FnMut(Heard<'_>),
        ) -> Result<(), CsdError> {
            let n = self.0.fetch_add(1, Ordering::Relaxed) + 1;
            if n < self.1 { Ok(()) } else { Err(late("keep alive", Duration::ZERO)) }
        }

        fn set_in_capsule(&mut self, _: u32) {}

        fn most_bytes(&self) -> u32 {
            u32::MAX
        }

        fn outlives(&self) -> bool {
            false
        }
    }

    const N_FILES: u64 = 300;

    fn nvme(folder: &std::path::Path, carrier: Looked) -> Nvme {
        let blocks = BlockUse { media: MediaAt::DataRoot, scratch: None };
        let at = (Duration::from_secs(10), Some(folder.to_owned()));
        let mut own = Nvme::of(Box::new(carrier), blocks, at);
        let drive = Drive {
            name: String::new(),
            emulated: true,
            blocks: 1,
            media: (N_FILES, 4096),
            memory: 2,
            memory_bytes: 64 << 20,
            programs: 3,
            program: 0,
            range_sets: 2,
            transfer: 1 << 20,
        };
        let capabilities = Capabilities {
            protocol_version: PROTOCOL_VERSION,
            name: String::new(),
            emulated: true,
            ops: Vec::new(),
            slots: SLOTS,
            max_batch_bytes: u64::MAX,
            features: Vec::new(),
        };
        own.found = Some((capabilities, drive));
        own
    }

    /// Or a folder that takes longer to list than a keep-alive is awaited could never be served.
    #[test]
    fn the_device_is_looked_after_while_a_folder_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..N_FILES {
            std::fs::write(folder.path().join(n.to_string()), b"x").unwrap();
        }
        let mut table = TableBuilder::new(Encoding::Opaque);
        let file = table.file("7").unwrap();
        table.sample(Extent { file, offset: 0, len: 1 }, 0);
        let session = Session {
            recipe: String::new(),
            recipe_hash: 0,
            seed: 0,
            sample_bytes: 1,
            max_batch: 1,
            manifest: table.build().unwrap().encode(),
            job: None,
            run: None,
        };
        let looks = Arc::new(AtomicU32::new(0));
        let looked = |most| Looked(Arc::clone(&looks), most);
        nvme(folder.path(), looked(u32::MAX)).terms(&session).unwrap();
        assert_eq!(looks.swap(0, Ordering::Relaxed), 4, "every 64 of 300 entries");
        let lost = nvme(folder.path(), looked(2)).terms(&session).unwrap_err();
        assert!(lost.to_string().contains("keep alive"), "{lost}");
        assert_eq!(looks.load(Ordering::Relaxed), 2, "it ends at once");
    }
}
