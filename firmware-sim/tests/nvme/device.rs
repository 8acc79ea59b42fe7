//! A device for the tests, with programs whose end a test chooses.

#![allow(dead_code, reason = "not each test needs all of it")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bothends_firmware_sim::config::DeviceConfig;
use bothends_firmware_sim::nvme::{
    BlockMedia, Call, Done, Program, Subsystem, SubsystemConfig, Target, TargetConfig,
    Work,
};
use bothends_firmware_sim::{Drive, Timing};
use bothends_nvme::Status;

use crate::host::{NAME, Queue, Wish};

pub(crate) const BLOCK: usize = 4096;

/// Sums the bytes of range 1, writes the sum to range 2, and returns the first parameter.
#[derive(Debug)]
struct Sum;

impl Program for Sum {
    fn id(&self) -> u64 {
        1
    }

    fn run(&self, call: &Call<'_>) -> Result<Done, Status> {
        let mut bytes = vec![0; call.range_bytes(1)? as usize];
        call.read(1, 0, &mut bytes)?;
        let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
        call.write(2, 0, &sum.to_le_bytes())?;
        Ok(Done { value: call.parameter_1, work: Work::Bytes(bytes.len() as u64) })
    }
}

/// The first parameter with which [`Wait`] looks whether it may go on.
pub(crate) const LOOKS: u64 = 77;

/// Runs until it is told that it may end.
#[derive(Debug)]
struct Wait {
    may_end: Arc<AtomicBool>,
    n_begun: Arc<AtomicUsize>,
}

impl Program for Wait {
    fn id(&self) -> u64 {
        2
    }

    fn run(&self, call: &Call<'_>) -> Result<Done, Status> {
        self.n_begun.fetch_add(1, Ordering::Release);
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.may_end.load(Ordering::Acquire) && Instant::now() < deadline {
            if call.parameter_1 == LOOKS {
                call.check()?;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Done { value: u64::MAX, work: Work::Fuel(0) })
    }
}

pub(crate) struct Device {
    pub(crate) target: Target,
    pub(crate) may_end: Arc<AtomicBool>,
    pub(crate) n_begun: Arc<AtomicUsize>,
    _folder: tempfile::TempDir,
}

impl Device {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        std::fs::write(&image, content(512 * BLOCK)).unwrap();
        Self::of(&image, folder)
    }

    pub(crate) fn of(media: &Path, folder: tempfile::TempDir) -> Self {
        Self::with(media, folder, (None, |subsystem| subsystem))
    }

    pub(crate) fn advertised(address: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        std::fs::write(&image, content(512 * BLOCK)).unwrap();
        Self::with(&image, folder, (Some(address), |subsystem| subsystem))
    }

    /// One whose commands take the time that a preset says; the preset is JSON.
    pub(crate) fn paced(preset: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        std::fs::write(&image, content(512 * BLOCK)).unwrap();
        let config = DeviceConfig::from_json("test", preset).unwrap();
        let timing = Timing::new(Drive::new(config, 512));
        Self::with(
            &image,
            folder,
            (None, |subsystem: Subsystem| subsystem.with_timing(timing)),
        )
    }

    fn with(
        media: &Path,
        folder: tempfile::TempDir,
        (advertise, change): (Option<SocketAddr>, impl FnOnce(Subsystem) -> Subsystem),
    ) -> Self {
        let may_end = Arc::new(AtomicBool::new(false));
        let n_begun = Arc::new(AtomicUsize::new(0));
        let wait = Wait { may_end: Arc::clone(&may_end), n_begun: Arc::clone(&n_begun) };
        let subsystem = Subsystem::new(SubsystemConfig {
            name: NAME.to_owned(),
            serial: "BE0".to_owned(),
            media: BlockMedia::open(media).unwrap(),
            memory_bytes: 8 << 20,
            programs: vec![Arc::new(Sum), Arc::new(wait)],
        });
        let config =
            TargetConfig { listen: "127.0.0.1:0".parse().unwrap(), advertise, cores: 2 };
        let target = Target::start(&config, change(subsystem)).unwrap();
        Self { target, may_end, n_begun, _folder: folder }
    }

    pub(crate) fn at(&self) -> SocketAddr {
        self.target.address()
    }

    pub(crate) fn queues(&self, wish: Wish) -> (Queue, Queue) {
        let (admin, id) = Queue::admin(self.at(), wish, NAME);
        let io = Queue::io(self.at(), wish, id, 1);
        (admin, io)
    }
}

pub(crate) fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| u8::try_from(i * 7 / 3 % 251).unwrap()).collect()
}

pub(crate) fn eventually(what: &str, is: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
