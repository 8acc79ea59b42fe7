//! The host's own NVMe transport against the target: it conforms, and one host at a time has the memory.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bothends_agent::conformance::{self, Exercise};
use bothends_csd::{ConnectOptions, CsdError, Transport, connect};
use bothends_firmware_sim::nvme::{
    Batches, BlockMedia, Checksum, Subsystem, SubsystemConfig, Target, TargetConfig,
};

const NAME: &str = "nqn.2026-11.dev.bothends:test";
const PATIENCE: Duration = Duration::from_secs(20);

/// A data set, and a device that has it on its blocks.
struct Site {
    exercise: Exercise,
    target: Target,
    data: PathBuf,
    _dir: tempfile::TempDir,
}

impl Site {
    fn new(memory_bytes: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let exercise = Exercise::prepare(&data).unwrap();
        let subsystem = Subsystem::new(SubsystemConfig {
            name: NAME.to_owned(),
            serial: "TEST0".to_owned(),
            media: BlockMedia::open(&data).unwrap(),
            memory_bytes,
            programs: vec![Arc::new(Checksum), Arc::new(Batches::new(2))],
        });
        let config = TargetConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            advertise: None,
            cores: 2,
        };
        let target = Target::start(&config, subsystem).unwrap();
        Self { exercise, target, data, _dir: dir }
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
