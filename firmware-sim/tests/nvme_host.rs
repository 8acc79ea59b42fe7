//! The host's own NVMe transport against the target: it conforms, and one host at a time has the memory.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bothends_agent::conformance::{self, Exercise};
use bothends_core::ids::{BatchIdx, SampleId};
use bothends_csd::{ConnectOptions, CsdError, Transport, connect};
use bothends_firmware_sim::nvme::{
    Batches, BlockMedia, Checksum, Subsystem, SubsystemConfig, Target, TargetConfig,
};
use bothends_slots::conformance::produce;
use bothends_slots::{Job, JobId};

const NAME: &str = "nqn.2026-11.dev.bothends:test";
const PATIENCE: Duration = Duration::from_secs(20);

/// A data set, and a device that has it on its blocks.
struct Site {
    exercise: Exercise,
    target: Target,
    data: PathBuf,
    n_blocks: u64,
    dir: tempfile::TempDir,
}

/// Blocks after the data set that hold nothing.
const SPARE: u64 = 256;

impl Site {
    fn new(memory_bytes: usize) -> Self {
        Self::with(memory_bytes, |_, media| media)
    }

    /// With the data set's files in an image, and blocks after them.
    fn with_spare_blocks() -> Self {
        Self::with(64 << 20, |dir, media| {
            let image = std::fs::File::create(dir.join("image")).unwrap();
            for (path, first, _) in media.files() {
                image.write_all_at(&std::fs::read(path).unwrap(), first * 4096).unwrap();
            }
            image.set_len((media.n_blocks() + SPARE) * 4096).unwrap();
            BlockMedia::open(&dir.join("image")).unwrap()
        })
    }

    fn with(
        memory_bytes: usize,
        media: impl FnOnce(&Path, BlockMedia) -> BlockMedia,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let exercise = Exercise::prepare(&data).unwrap();
        let media = media(dir.path(), BlockMedia::open(&data).unwrap());
        let n_blocks = media.n_blocks();
        let subsystem = Subsystem::new(SubsystemConfig {
            name: NAME.to_owned(),
            serial: "TEST0".to_owned(),
            media,
            memory_bytes,
            programs: vec![Arc::new(Checksum), Arc::new(Batches::new(2))],
        });
        let config = TargetConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            advertise: None,
            cores: 2,
        };
        let target = Target::start(&config, subsystem).unwrap();
        Self { exercise, target, data, n_blocks, dir }
    }

    fn connect(&self, options: &str) -> Result<Box<dyn Transport>, CsdError> {
        self.reach(options, ConnectOptions::default().timeout)
    }

    fn reach(
        &self,
        options: &str,
        timeout: Duration,
    ) -> Result<Box<dyn Transport>, CsdError> {
        let url = format!("nvme-tcp://{}/{NAME}{options}", self.target.address());
        let folder = Some(self.data.clone());
        let options = ConnectOptions { folder, timeout, ..ConnectOptions::default() };
        connect(&url.parse()?, &options)
    }

    fn open(&self, options: &str) -> Result<Box<dyn Transport>, CsdError> {
        let mut device = self.connect(options)?;
        device.hello()?;
        device.open(&self.exercise.session())?;
        Ok(device)
    }
}

#[test]
fn a_device_conforms() {
    let site = Site::new(64 << 20);
    let mut device = site.connect("").unwrap();
    conformance::all(&mut *device, &site.exercise);
}

/// A batch is made in parts where memory is small. With digests.
#[test]
fn a_device_of_little_memory_conforms() {
    let site = Site::new(2 << 20);
    let mut device = site.connect("?digests=on").unwrap();
    conformance::all(&mut *device, &site.exercise);
}

/// Results may go by way of blocks that are spared, and nowhere else.
#[test]
fn a_device_with_blocks_for_results_conforms() {
    let site = Site::with_spare_blocks();
    let image = || std::fs::read(site.dir.path().join("image")).unwrap();
    let (before, n_data) = (image(), site.n_blocks - SPARE);
    let scratch = format!("?scratch={}+{}", n_data + 8, SPARE - 16);
    let mut device = site.connect(&scratch).unwrap();
    conformance::all(&mut *device, &site.exercise);
    drop(device);
    let after = image();
    let byte = |block: u64| usize::try_from(block * 4096).unwrap();
    let (begin, end) = (byte(n_data + 8), byte(n_data + SPARE - 8));
    assert!(before[..begin] == after[..begin] && before[end..] == after[end..]);
    assert!(after[begin..end].iter().any(|byte| *byte != 0), "it was not used");
}

/// Each check has a device of its own: one that has just lost its host is still busy with it for a moment.
#[test]
fn it_is_a_producer_like_any_other() {
    produce::all(&mut || {
        let site = Site::new(64 << 20);
        let mut device = site.connect("").unwrap();
        let capacity = device.hello().unwrap().slots;
        let session = site.exercise.session();
        device.open(&session).unwrap();
        let expected = move |epoch, sample| {
            // The whole of it: the device is to live as long as its host.
            let site = &site;
            let (id, batch) = (JobId(0), BatchIdx(0));
            let job = Job { id, epoch, batch, samples: vec![sample], need_ns: 0 };
            let (bytes, bad) = site.exercise.expected(&job);
            bad.is_empty().then_some(bytes)
        };
        produce::Subject {
            producer: device,
            capacity,
            sample_bytes: session.sample_bytes as usize,
            expected: Box::new(expected),
            samples: (0..5).map(SampleId).collect(),
            damaged: Vec::new(),
        }
    });
}

#[test]
fn blocks_that_hold_data_or_are_not_there_are_no_place_for_results() {
    let site = Site::with_spare_blocks();
    let n_data = site.n_blocks - SPARE;
    for (first, n) in [(0, 1), (n_data - 1, 2), (n_data, SPARE + 1), (u64::MAX - 9, 9)] {
        let refused = site.open(&format!("?scratch={first}+{n}")).unwrap_err();
        let said = refused.to_string();
        assert!(said.contains("would overwrite the data set, or is not there"), "{said}");
    }
    let refused = site.open("").unwrap_err().to_string();
    assert!(refused.contains("blocks, and the device has"), "{refused}");
    site.open(&format!("?scratch={n_data}+1")).unwrap();
}

#[test]
fn a_second_host_is_told_that_the_device_is_busy() {
    let site = Site::new(64 << 20);
    let first = site.open("").unwrap();
    let busy = site.open("").unwrap_err();
    assert!(matches!(busy, CsdError::Busy { .. }), "{busy}");
    assert!(busy.to_string().contains("another host uses its memory"), "{busy}");
    drop(first);
    let begun = Instant::now();
    while let Err(error) = site.open("") {
        assert!(begun.elapsed() < PATIENCE, "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// As one that is stopped, or on a machine that is: what the device has said meanwhile is not late.
#[test]
fn a_host_that_was_away_keeps_its_device() {
    let site = Site::new(64 << 20);
    let timeout = Duration::from_secs(2);
    let mut device = site.reach("", timeout).unwrap();
    device.hello().unwrap();
    device.open(&site.exercise.session()).unwrap();
    let job = site.exercise.job(0, &[0, 1]);
    device.submit(job, conformance::slot(&site.exercise)).unwrap();
    std::thread::sleep(timeout + Duration::from_millis(100));
    conformance::answer(&mut *device);
    assert_eq!(device.stats().unwrap().jobs, 1);
}

#[test]
fn a_dead_device_is_a_lost_link() {
    let site = Site::new(64 << 20);
    let mut device = site.open("").unwrap();
    drop(site.target);
    let begun = Instant::now();
    let lost = loop {
        match device.poll(Duration::from_millis(20)) {
            Ok(_) => assert!(begun.elapsed() < PATIENCE, "no sign of its death"),
            Err(lost) => break lost,
        }
    };
    assert!(lost.to_string().contains("lost the device"), "{lost}");
    assert!(device.poll(Duration::ZERO).is_err(), "once lost, always lost");
    assert!(matches!(device.stats(), Err(CsdError::LinkLost { .. })));
}
