//! A host in the same process, whose time is virtual: a model says when a command completes, and nobody waits.

use std::time::{Duration, Instant};

use bothends_firmware_sim::nvme::{
    BlockMedia, InProcess, InProcessQueue, Subsystem, SubsystemConfig,
};
use bothends_firmware_sim::{Drive, Timing, preset};
use bothends_nvme::commands::{Blocks, ConnectData, Fabrics, Wide};
use bothends_nvme::host::{Connection, Content, Heard, Wish};
use bothends_nvme::{Cqe, Data, Sqe, Status};

use crate::device::{BLOCK, content};
use crate::host::NAME;
use crate::soak::{Host, Model, Random};

const N_BLOCKS: u64 = 512;

/// A queue of this host.
struct Lane {
    device: InProcessQueue,
    wire: Connection,
}

/// A device with the model of a drive, and its host.
pub(crate) struct Day {
    device: InProcess,
    lanes: [Lane; 2],
    began: Instant,
    /// Virtual.
    now: Instant,
    /// The longest that commands took which were sent together.
    pub(crate) longest: Duration,
    random: Random,
    _folder: tempfile::TempDir,
}

impl Day {
    /// A drive that has been switched on just now.
    pub(crate) fn begin(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        std::fs::write(&image, content(512 * BLOCK)).unwrap();
        let subsystem = Subsystem::new(SubsystemConfig {
            name: NAME.to_owned(),
            serial: "V0".to_owned(),
            media: BlockMedia::open(&image).unwrap(),
            memory_bytes: 8 << 20,
            programs: Vec::new(),
        });
        let drive = Drive::new(preset::load(name).unwrap(), N_BLOCKS);
        let device = InProcess::new(subsystem.with_timing(Timing::new(drive)));
        let lane = || Lane {
            device: device.connect(),
            wire: Connection::new(Wish::default(), 64),
        };
        let lanes = [lane(), lane()];
        let now = Instant::now();
        let mut own = Self {
            device,
            lanes,
            began: now,
            now,
            longest: Duration::ZERO,
            random: Random(0xda7),
            _folder: folder,
        };
        own.connect();
        own
    }

    fn connect(&mut self) {
        for queue in [0, 1] {
            let lane = &mut self.lanes[usize::from(queue)];
            let mut out = Vec::new();
            lane.wire.begin(&mut out);
            lane.exchange(self.now, out, &mut |_| ());
            let controller = if queue == 0 { ConnectData::NEW } else { 1 };
            let data = ConnectData {
                host_id: [1; 16],
                controller,
                subsystem: NAME.to_owned(),
                host: "nqn.2026-11.dev.bothends:host".to_owned(),
            };
            let connect =
                Fabrics::Connect { queue, size: 127, attributes: 0, keep_alive_ms: 0 };
            let data = Content::ToController(data.bytes().to_vec());
            self.all(queue.into(), vec![(connect.entry(), data)]);
            if queue == 0 {
                let (offset, value) = (0x14, 0x0046_0061);
                let enable = Fabrics::PropertySet { offset, wide: Wide::No, value };
                self.all(0, vec![(enable.entry(), Content::None)]);
            }
        }
    }

    /// Has commands carried out that are sent together, and goes on when the last has completed.
    fn all(&mut self, lane: usize, entries: Vec<(Sqe, Content)>) -> Vec<(Cqe, Vec<u8>)> {
        let lane = &mut self.lanes[lane];
        let mut out = Vec::new();
        let ids: Vec<u16> = entries
            .into_iter()
            .map(|(entry, content)| lane.wire.send(entry, content, &mut out).unwrap())
            .collect();
        let mut found: Vec<(Option<Cqe>, Vec<u8>)> = vec![(None, Vec::new()); ids.len()];
        let at = |id| ids.iter().position(|own| *own == id).unwrap();
        let complete = lane.exchange(self.now, out, &mut |heard| match heard {
            Heard::Data { id, bytes, .. } => found[at(id)].1.extend_from_slice(bytes),
            Heard::Completion(cqe) => found[at(cqe.id)].0 = Some(cqe),
        });
        assert!(complete >= self.now, "time goes on");
        self.longest = self.longest.max(complete - self.now);
        self.now = complete;
        found.into_iter().map(|(cqe, data)| (cqe.unwrap(), data)).collect()
    }

    /// So much time passes with `n` commands of all kinds, whose data a model follows: some, then reads of many blocks at
    /// once, then a pause. How many reads were compared.
    pub(crate) fn pass(&mut self, time: Duration, n: usize, model: &mut Model) -> usize {
        let until = self.now + time;
        let pause = time * 64 / u32::try_from(n).unwrap();
        let mut n_reads = 0;
        while self.now < until {
            n_reads += model.run(self, 32);
            let all: Vec<u64> = (0..32).map(|_| self.random.next() % N_BLOCKS).collect();
            let read = |first: &u64| {
                let read = Blocks::Read { first: *first, n_blocks: 1 };
                (read.entry(1, Data::NONE), Content::ToHost(4096))
            };
            let done = self.all(1, all.iter().map(read).collect());
            for (first, (cqe, data)) in all.iter().zip(done) {
                assert_eq!(cqe.status, Status::SUCCESS);
                assert!(data == model.block(usize::try_from(*first).unwrap()), "{first}");
                n_reads += 1;
            }
            // From none to twice the mean, so that a drive that can sleep does so now and then.
            self.now += pause * u32::try_from(self.random.below(2000)).unwrap() / 1000;
        }
        n_reads
    }

    /// Virtual time so far, and the energy used in it, in joules.
    pub(crate) fn used(&self) -> (Duration, f64) {
        let vitals = self.device.subsystem().timing().unwrap().vitals(self.now);
        (self.now - self.began, vitals.microjoules as f64 / 1e6)
    }
}

impl Host for Day {
    fn run(&mut self, entry: Sqe, data: &[u8]) -> (Cqe, Vec<u8>) {
        let content = match (data, entry.data().unwrap()) {
            ([_, ..], _) => Content::ToController(data.to_vec()),
            ([], Data::Transport { length }) if length > 0 => Content::ToHost(length),
            ([], _) => Content::None,
        };
        self.all(1, vec![(entry, content)]).remove(0)
    }
}

impl Lane {
    /// Has bytes of the host taken, and those that they lead to, until nothing is left to be said; when the last command
    /// completes.
    fn exchange(
        &mut self,
        now: Instant,
        mut out: Vec<u8>,
        heard: &mut dyn FnMut(Heard<'_>),
    ) -> Instant {
        let mut complete = now;
        while !out.is_empty() {
            let mut said = Vec::new();
            complete = complete.max(self.device.take_at(now, &out, &mut said).unwrap());
            out.clear();
            let taken = self.wire.take(&said, &mut out, heard).unwrap();
            assert_eq!(taken, said.len(), "all that a controller says is PDUs");
        }
        complete
    }
}
