//! Queues without a connection: what a command finds its controller in.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use std::sync::OnceLock;

use bothends_nvme::commands::{Event, Feature, Log, LogRequest, ProgramLoad, Wide};
use bothends_nvme::pdu::{Format, Parsed, Pdu, parse};

use super::super::blocks::BlockMedia;
use super::super::controller::Outlet;
use super::super::programs::{Program, Runtime};
use super::super::subsystem::SubsystemConfig;
use super::*;
use crate::config::DeviceConfig;
use crate::device::{Drive, Timing};
use crate::power::ThermalConfig;

/// The type of programs for which a test has a runtime.
const KIND: u8 = 0xc7;
/// An event: temperature threshold, of the SMART log.
const TEMPERATURE: u64 = 0x02_01_01;

type Shared = Arc<Mutex<Controller>>;

/// Leads to one controller.
#[derive(Default)]
struct One(OnceLock<Shared>);

impl Controllers for Arc<One> {
    fn make(&self, asked: &ConnectData, keep_alive_ms: u32) -> Result<Shared, Status> {
        let own = Controller::new(1, asked.host_id, keep_alive_ms, Instant::now());
        Ok(Arc::clone(self.0.get_or_init(|| Arc::new(Mutex::new(own)))))
    }

    fn find(&self, _: &ConnectData) -> Result<Shared, Status> {
        self.0.get().cloned().ok_or(Status::CONNECT_PARAMETER)
    }

    fn end_queues(&self, _: u16) {}

    fn discovered(&self) -> Vec<u8> {
        Vec::new()
    }
}

fn subsystem() -> Subsystem {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    std::fs::write(&image, [0; 4096]).unwrap();
    Subsystem::new(SubsystemConfig {
        name: "nqn.test".to_owned(),
        serial: "S".to_owned(),
        media: BlockMedia::open(&image).unwrap(),
        memory_bytes: 4096,
        programs: Vec::new(),
    })
}

/// The admin queue of a controller that is enabled.
fn admin(subsystem: Subsystem, to: &Arc<One>) -> Queue<Arc<One>> {
    let mut own = Queue::new(Arc::new(subsystem), Arc::clone(to));
    let data = ConnectData {
        host_id: [7; 16],
        controller: ConnectData::NEW,
        subsystem: "nqn.test".to_owned(),
        host: "nqn.host".to_owned(),
    };
    let connect =
        Fabrics::Connect { queue: 0, size: 31, attributes: 0, keep_alive_ms: 0 };
    assert_eq!(said(&mut own, connect.entry(), &data.bytes()).status, Status::SUCCESS);
    let enable = Fabrics::PropertySet { offset: 0x14, wide: Wide::No, value: 1 };
    assert_eq!(said(&mut own, enable.entry(), &[]).status, Status::SUCCESS);
    own
}

/// What a command is answered at once.
fn said(queue: &mut Queue<Arc<One>>, entry: Sqe, data: &[u8]) -> Cqe {
    let (format, mut out) = (Format::default(), Vec::new());
    let request = Request { entry, data: data.to_vec(), failed: None };
    assert!(matches!(queue.take(request, format, &mut out), Answer::Said), "{entry:?}");
    let mut rest = &out[..];
    loop {
        let Ok(Parsed::Whole(pdu, bytes)) = parse(rest, format, 1 << 20) else {
            panic!("no completion of {entry:?}")
        };
        if let Pdu::Response(cqe) = pdu {
            return cqe;
        }
        rest = &rest[bytes..];
    }
}

/// Prepares nothing, but looks whether the controller can be locked meanwhile.
#[derive(Debug, Default)]
struct Looks {
    at: OnceLock<Shared>,
    is_free: OnceLock<bool>,
}

impl Runtime for Arc<Looks> {
    fn prepare(&self, _: &[u8], _: u64) -> Result<Arc<dyn Program>, Status> {
        let is_free = self.at.get().is_some_and(|own| own.try_lock().is_ok());
        let _ = self.is_free.set(is_free);
        Err(Status::PROGRAM_DATA)
    }
}

/// A compiler runs for seconds, and whoever has an answer for this controller or a temperature would wait for it.
#[test]
fn a_controller_is_not_locked_while_a_program_is_prepared() {
    let (one, looks) = (Arc::new(One::default()), Arc::new(Looks::default()));
    let runtime: Arc<dyn Runtime> = Arc::new(Arc::clone(&looks));
    let mut queue = admin(subsystem().with_runtimes([(KIND, runtime)].into()), &one);
    looks.at.set(Arc::clone(one.0.get().unwrap())).unwrap();
    let load = ProgramLoad::Load {
        program: 0,
        kind: KIND,
        size: 4,
        id: 0,
        id_kind: 0,
        bytes: 4,
        from: 0,
    };
    let place = Data::InCapsule { offset: 0, length: 4 };
    let cqe = said(&mut queue, Admin::Program(load).entry(PROGRAMS, place), &[0; 4]);
    assert_eq!(cqe.status, Status::SUCCESS);
    let activation = Admin::Activation { program: 0, active: Activate::On };
    let cqe = said(&mut queue, activation.entry(PROGRAMS, Data::NONE), &[]);
    assert_eq!(cqe.status, Status::PROGRAM_DATA, "what the runtime said");
    assert_eq!(looks.is_free.get(), Some(&true));
}

#[derive(Debug, Default)]
struct Posted(Mutex<Vec<Cqe>>);

impl Outlet for Posted {
    fn post(&self, completion: &Cqe) {
        self.0.lock().unwrap().push(*completion);
    }
}

/// No timer tells the controller of the temperature here: the log alone does.
#[test]
fn the_temperature_of_the_log_is_that_of_the_events() {
    let config = DeviceConfig {
        thermal: Some(ThermalConfig {
            cooled_mw: 0,
            reservoir_mj: 0,
            slowdown_milli: 2000,
        }),
        ..crate::preset::load("newport").unwrap()
    };
    let timing = Timing::new(Drive::new(config, 1));
    let one = Arc::new(One::default());
    let mut queue = admin(subsystem().with_timing(timing), &one);
    let posted = Arc::new(Posted::default());
    lock(one.0.get().unwrap()).outlet = Some(Arc::clone(&posted) as Arc<dyn Outlet>);
    let tell = Admin::SetFeature { feature: Feature::Events, value: 2 };
    assert_eq!(said(&mut queue, tell.entry(0, Data::NONE), &[]).status, Status::SUCCESS);
    let entry = Admin::AwaitEvent.entry(0, Data::NONE).with_id(77);
    let request = Request { entry, data: Vec::new(), failed: None };
    let awaits = queue.take(request, Format::default(), &mut Vec::new());
    assert!(matches!(awaits, Answer::Waits));
    assert!(posted.0.lock().unwrap().is_empty());
    let log = LogRequest { event: Event::Retain, ..LogRequest::of(Log::Smart, 512) };
    let place = Data::Transport { length: 512 };
    let cqe = said(&mut queue, Admin::GetLog(log).entry(0, place), &[]);
    assert_eq!(cqe.status, Status::SUCCESS);
    let events: Vec<(u16, u64)> =
        posted.0.lock().unwrap().iter().map(|cqe| (cqe.id, cqe.result)).collect();
    assert_eq!(events, [(77, TEMPERATURE)]);
}
