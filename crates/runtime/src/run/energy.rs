//! What a run used: counted always, metered where a meter can be read, modelled by a profile.
//!
//! Meters run from before the first epoch to after the last; measuring prongs alone is not in
//! the figures. Where strategies are compared, every epoch has figures of its own, too. Measured
//! and modelled figures stand side by side and are never added. What figures mean, and what a
//! meter is, is documented in `bothends_energy`.

mod devices;

use std::time::Instant;

use bothends_accel::AccelConfig;
use bothends_csd::{DeviceStats, EnergyReading};
use bothends_energy::{
    AcceleratorQuantities, DeviceKind, DeviceMeter, DeviceQuantities, Figure,
    HostQuantities, LinkBytes, Meter, Metered, MeteredDomain, Part, Places, Profile,
    Quantities, Session, Total, open, total,
};
use bothends_figures::{Bytes, Energy, EnergyDomain, EpochResult, UsageSample};

use crate::config::drive::{DriveConfig, EnergyConfig};
use crate::error::RuntimeError;
use crate::read::source::lens;
use crate::run::observer::Observer;
use crate::run::usage::byte_seconds;
use crate::runtime::host::{Device, Runtime};
use crate::threads::process;
use devices::{exact, joules, reported, said_by_devices};

/// What a sum is called.
const TOTAL: &str = "total";

/// Meters that can be read, before the run begins.
#[derive(Debug)]
pub(crate) struct Meters {
    meters: Vec<Box<dyn Meter>>,
    remarks: Vec<String>,
}

impl Meters {
    /// Opens what was asked for.
    pub(crate) fn open(config: &EnergyConfig) -> Result<Self, RuntimeError> {
        let opened = open(&config.meters, &Places::default())?;
        let remarks = opened.absent.iter().map(ToString::to_string).collect();
        Ok(Self { meters: opened.meters, remarks })
    }

    /// Meters the idle machine, if that was asked for, and begins to meter the run.
    pub(crate) fn begin(
        self,
        runtime: &mut Runtime,
        config: &EnergyConfig,
        observer: &mut dyn Observer,
    ) -> Result<Metering, RuntimeError> {
        let Self { mut meters, mut remarks } = self;
        let (mut idle, mut failures) = (Vec::new(), Vec::new());
        if let Some(lasting) = config.idle {
            if meters.is_empty() {
                remarks.push(
                    "no meter can be read, so the idle machine was not metered".into(),
                );
            } else {
                observer.phase("metering the idle machine");
                let session = Session::begin(meters)?;
                std::thread::sleep(lasting);
                let metered = session.end();
                failures.extend(metered.failures.iter().map(ToString::to_string));
                let seconds = metered.seconds;
                let watts =
                    |domain: MeteredDomain| (domain.source, domain.joules / seconds);
                idle = metered.domains.into_iter().map(watts).collect();
                meters = metered.meters;
            }
        }
        let before = Used::now(runtime);
        let devices = before.device_meters(runtime);
        Ok(Metering {
            session: Session::begin(meters)?,
            began: Instant::now(),
            before,
            devices,
            idle,
            remarks,
            failures,
        })
    }
}

/// What the machine and the devices have counted so far.
#[derive(Debug)]
pub(crate) struct Used {
    cpu_s: Option<f64>,
    machine_cpu_s: Option<f64>,
    storage_read: u64,
    pub(crate) devices: Vec<Option<DeviceStats>>,
}

impl Used {
    pub(crate) fn now(runtime: &mut Runtime) -> Self {
        Self {
            devices: runtime.device_stats(),
            cpu_s: process::cpu_seconds(),
            machine_cpu_s: process::machine_cpu_seconds(),
            storage_read: runtime.storage_read_bytes(),
        }
    }

    /// CPU seconds of device processes of this run, since they started; `None` where one of them cannot be asked any
    /// more.
    pub(crate) fn device_process_seconds(&self, runtime: &Runtime) -> Option<f64> {
        let devices = runtime.devices.iter().zip(&self.devices);
        let ours = devices.filter(|(device, _)| device.process.is_some());
        all_of(ours.map(|(_, stats)| stats.as_ref()?.cpu_seconds))
    }

    /// What each device says of its energy; `None` of one that says nothing.
    fn device_meters(&self, runtime: &Runtime) -> Vec<Option<DeviceMeter>> {
        let devices = runtime.devices.iter().zip(&self.devices).enumerate();
        let meter = |(i, (device, stats)): (usize, (&Device, &Option<DeviceStats>))| {
            let kind = match device.presence.is_emulated() {
                true => DeviceKind::Emulated,
                false => DeviceKind::Real,
            };
            let first = reported(&stats.as_ref()?.energy);
            Some(DeviceMeter::new(&format!("device {i}"), kind, first))
        };
        devices.map(meter).collect()
    }
}

/// What the devices say that they have used since they started, while a run goes on.
pub(crate) fn devices_say(runtime: &mut Runtime) -> Vec<EnergyDomain> {
    let mut domains = Vec::new();
    for (i, stats) in runtime.device_stats().into_iter().enumerate() {
        let readings = stats.into_iter().flat_map(|stats| stats.energy);
        domains.extend(readings.map(|EnergyReading { domain, energy_uj, source }| {
            exact(format!("device {i} {domain}"), joules(energy_uj), source).into()
        }));
    }
    domains
}

/// What the run itself has counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amounts<'a> {
    pub(crate) samples: u64,
    pub(crate) bytes: &'a Bytes,
    /// Seconds in which the accelerator computed.
    pub(crate) busy_s: f64,
    /// Every epoch's figures.
    pub(crate) epochs: &'a [EpochResult],
    /// Memory over time; `None` where the kernel does not say.
    pub(crate) memory_byte_s: Option<f64>,
}

impl<'a> Amounts<'a> {
    /// Those of one epoch; `bytes` are of the whole run so far.
    pub(crate) fn of_epoch(
        epoch: &'a EpochResult,
        bytes: &'a Bytes,
        looks: &[UsageSample],
    ) -> Self {
        Self {
            samples: epoch.samples,
            bytes,
            busy_s: epoch.accelerator.busy_s,
            memory_byte_s: byte_seconds(looks),
            epochs: std::slice::from_ref(epoch),
        }
    }
}

/// A run that is being metered.
#[derive(Debug)]
pub(crate) struct Metering {
    session: Session,
    began: Instant,
    before: Used,
    devices: Vec<Option<DeviceMeter>>,
    /// Watts of the idle machine by the source of each domain.
    idle: Vec<(String, f64)>,
    remarks: Vec<String>,
    /// Meters that failed while the idle machine was metered.
    failures: Vec<String>,
}

/// Where a stretch of a run that is metered by itself began.
#[derive(Debug)]
pub(crate) struct Lap {
    began: Instant,
    before: Used,
    metered: Vec<MeteredDomain>,
    bytes: Bytes,
}

impl Metering {
    /// A stretch begins here. Asks every device and reads every meter, so it takes some
    /// milliseconds: not for epochs that follow each other without a pause.
    pub(crate) fn lap(&self, runtime: &mut Runtime, bytes: Bytes) -> Lap {
        let metered = self.session.so_far();
        Lap { began: Instant::now(), before: Used::now(runtime), metered, bytes }
    }

    /// The figures of the stretch since `lap`; `counted.bytes` are those of the whole run.
    pub(crate) fn since(
        &self,
        lap: &Lap,
        runtime: &mut Runtime,
        how: &DriveConfig,
        counted: &Amounts<'_>,
    ) -> Energy {
        let seconds = lap.began.elapsed().as_secs_f64();
        let after = Used::now(runtime);
        let mut domains = self.session.so_far();
        domains.retain_mut(|domain| {
            let before = lap.metered.iter().find(|b| b.source == domain.source);
            domain.joules -= before.map_or(0.0, |before| before.joules);
            before.is_some()
        });
        let bytes = Bytes {
            device_to_host: counted.bytes.device_to_host - lap.bytes.device_to_host,
            host_to_accelerator: counted.bytes.host_to_accelerator
                - lap.bytes.host_to_accelerator,
            ..*counted.bytes
        };
        let metered = Metered { seconds, domains, ..Metered::default() };
        let span = Span { before: &lap.before, after: &after, seconds };
        let counted = Amounts { bytes: &bytes, ..*counted };
        span.energy(runtime, how, (&metered, &self.idle), &counted)
    }

    /// The figures; `after` is what was used until now.
    pub(crate) fn end(
        self,
        runtime: &Runtime,
        how: &DriveConfig,
        after: &Used,
        counted: &Amounts<'_>,
    ) -> Energy {
        let Self { session, began, before, devices, idle, mut remarks, mut failures } =
            self;
        let metered = session.end();
        let seconds = began.elapsed().as_secs_f64();
        let span = Span { before: &before, after, seconds };
        let energy = span.energy(runtime, how, (&metered, &idle), counted);
        let devices = said_by_devices(devices, &after.devices, &mut remarks);
        let said = whole_devices(runtime, &devices);
        remarks.extend(how.energy.profile.doubts(&energy.quantities, &said));
        failures.extend(metered.failures.iter().map(ToString::to_string));
        remarks.extend(failures.iter().cloned());
        remarks.extend(energy.remarks);
        Energy { devices, remarks, failures, ..energy }
    }
}

/// A stretch of a run.
struct Span<'a> {
    before: &'a Used,
    after: &'a Used,
    seconds: f64,
}

impl Span<'_> {
    /// What was counted in it, and what meters and the profile make of that. The remarks are the
    /// quantities that are not known.
    fn energy(
        &self,
        runtime: &Runtime,
        how: &DriveConfig,
        (metered, idle): (&Metered, &[(String, f64)]),
        counted: &Amounts<'_>,
    ) -> Energy {
        let Self { before, after, seconds } = *self;
        let quantities = Quantities {
            seconds,
            devices: device_quantities(runtime, before, after, seconds),
            bytes: LinkBytes {
                stored: runtime.config.share.ranks.part_of(stored_bytes(runtime)),
                storage_read: after.storage_read.saturating_sub(before.storage_read),
                device_to_host: counted.bytes.device_to_host,
                host_to_accelerator: counted.bytes.host_to_accelerator,
            },
            accelerator: accelerator(&how.accelerator, counted.busy_s, seconds),
            host: host(runtime, before, after, counted),
        };
        let mut domains = measured(metered, idle, &quantities.host);
        let figures = how.energy.profile.joules(&quantities);
        domains.extend(figures.iter().cloned().map(EnergyDomain::from));
        let unknown = quantities.unknown();
        let measured = total(&metered.domains)
            .map(|Total { joules, source }| exact(TOTAL.to_owned(), joules, source));
        let modelled =
            unknown.is_empty().then(|| modelled(&figures, &how.energy.profile));
        let sum = match &measured {
            Some(sum) => part_of_rank(sum, quantities.host.ranks),
            None => modelled.clone(),
        };
        #[expect(clippy::cast_precision_loss, reason = "2^53 samples are beyond any run")]
        let samples = counted.samples as f64;
        let sum = sum.filter(|_| counted.samples > 0);
        let unknown = unknown.iter().map(|what| format!("not counted here: {what}"));
        Energy {
            joules_per_sample: sum.as_ref().map(|sum| sum.joules / samples),
            joules_per_sample_low: sum.as_ref().map(|sum| sum.low / samples),
            joules_per_sample_high: sum.as_ref().map(|sum| sum.high / samples),
            joules_per_sample_source: sum.map(|sum| sum.source),
            totals: measured.into_iter().chain(modelled).collect(),
            domains,
            devices: Vec::new(),
            failures: Vec::new(),
            remarks: emulation(runtime, metered).into_iter().chain(unknown).collect(),
            quantities,
        }
    }
}

/// Of what the meters of a machine counted, one rank's part: every rank there reads the same meters, and
/// has samples of its own. `None` where nobody says how many ranks there are.
fn part_of_rank(machine: &Figure, ranks: Option<u32>) -> Option<Figure> {
    let n = ranks?.max(1);
    let part = |joules: f64| joules / f64::from(n);
    let source = match n {
        1 => machine.source.clone(),
        n => format!("{}, divided by the {n} ranks of this machine", machine.source),
    };
    let Figure { joules, low, high, .. } = *machine;
    Some(Figure {
        joules: part(joules),
        low: part(low),
        high: part(high),
        source,
        ..machine.clone()
    })
}

/// What a reader of measured figures must know: emulated devices are processes of this machine.
fn emulation(runtime: &Runtime, metered: &Metered) -> Option<String> {
    let n_emulated = runtime.devices.iter().filter(|d| d.process.is_some()).count();
    let is_told = n_emulated > 0 && !metered.domains.is_empty();
    is_told.then(|| {
        format!("measured joules include the emulation of {n_emulated} device(s)")
    })
}

/// The sum of a profile's figures.
fn modelled(figures: &[Figure], profile: &Profile) -> Figure {
    let sum = |of: fn(&Figure) -> f64| figures.iter().map(of).sum();
    Figure {
        name: TOTAL.to_owned(),
        joules: sum(|figure| figure.joules),
        low: sum(|figure| figure.low),
        high: sum(|figure| figure.high),
        source: profile.source(),
    }
}

fn host(
    runtime: &Runtime,
    before: &Used,
    after: &Used,
    counted: &Amounts<'_>,
) -> HostQuantities {
    let epochs = counted.epochs.iter();
    let share = runtime.config.share;
    HostQuantities {
        ranks: share.ranks_here(runtime.config.rank.world),
        processors: share.own_processors(process::cores()),
        processor_seconds: process::since(before.cpu_s, after.cpu_s),
        front_processor_seconds: all_of(epochs.clone().map(|epoch| epoch.front.cpu_s)),
        feeding_processor_seconds: all_of(epochs.clone().map(|epoch| epoch.feed_cpu_s)),
        receiving_processor_seconds: all_of(
            epochs.flat_map(|epoch| &epoch.back).map(|back| back.host_cpu_s),
        ),
        machine_processor_seconds: process::since(
            before.machine_cpu_s,
            after.machine_cpu_s,
        ),
        memory_byte_seconds: counted.memory_byte_s,
    }
}

/// The sum; `None` where one of them is not known.
fn all_of(mut parts: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    parts.try_fold(0.0, |sum, part| Some(sum + part?))
}

fn device_quantities(
    runtime: &Runtime,
    before: &Used,
    after: &Used,
    seconds: f64,
) -> Vec<DeviceQuantities> {
    let stats = before.devices.iter().zip(&after.devices);
    let devices = runtime.devices.iter().zip(stats);
    // A place that no agent has taken has used nothing.
    let devices = devices.filter(|(device, _)| !device.is_vacant());
    devices
        .map(|(device, (before, after))| {
            let used = |of: fn(&DeviceStats) -> Option<f64>| {
                process::since(before.as_ref().and_then(of), after.as_ref().and_then(of))
                    .filter(|used| *used >= 0.0)
            };
            let busy = used(|stats| Some(stats.busy_seconds));
            let busy = busy.map(|busy| busy.min(seconds));
            DeviceQuantities {
                device: device.name.clone(),
                emulated: device.presence.is_emulated(),
                processor_seconds: used(|stats| stats.cpu_seconds),
                busy_seconds: busy,
                idle_seconds: busy.map(|busy| seconds - busy),
                gpu_seconds: gpu_seconds(before.as_ref(), after.as_ref()),
            }
        })
        .collect()
}

/// Seconds of a GPU's kernels since then; `None` of a device that is none.
fn gpu_seconds(before: Option<&DeviceStats>, after: Option<&DeviceStats>) -> Option<f64> {
    let kernels = |stats: Option<&DeviceStats>| stats?.kernel_seconds;
    process::since(kernels(before), kernels(after)).filter(|seconds| *seconds >= 0.0)
}

/// Bytes of all samples as they lie in storage.
fn stored_bytes(runtime: &Runtime) -> u64 {
    lens(&runtime.source().table).sum()
}

fn accelerator(
    config: &AccelConfig,
    busy_s: f64,
    seconds: f64,
) -> Option<AcceleratorQuantities> {
    match config {
        AccelConfig::Host => None,
        AccelConfig::Sim(model) => Some(AcceleratorQuantities {
            name: model.name().to_owned(),
            emulated: true,
            busy_seconds: busy_s.min(seconds),
            idle_seconds: (seconds - busy_s).max(0.0),
        }),
    }
}

/// Three numbers for each domain: all of it, net of idle, and this process's part.
fn measured(
    metered: &Metered,
    idle: &[(String, f64)],
    host: &HostQuantities,
) -> Vec<EnergyDomain> {
    let share = host.processor_seconds.zip(host.machine_processor_seconds);
    let share =
        share.filter(|(_, all)| *all > 0.0).map(|(own, all)| (own / all).min(1.0));
    let domains = metered.domains.iter();
    domains
        .map(|domain| {
            let watts = idle.iter().find(|(source, _)| *source == domain.source);
            let net = watts.map(|(_, watts)| domain.joules - watts * metered.seconds);
            let attributed = match domain.part {
                Part::Processors => net.zip(share).map(|(net, share)| net * share),
                Part::Machine | Part::Memory | Part::Accelerator | Part::Other => None,
            };
            let figure = exact(domain.name.clone(), domain.joules, domain.source.clone());
            EnergyDomain {
                net_of_idle_joules: net,
                attributed_joules: attributed,
                ..figure.into()
            }
        })
        .collect()
}

/// The joules of each device as a whole where it said any, in the order of `device_quantities`.
fn whole_devices(runtime: &Runtime, said: &[EnergyDomain]) -> Vec<Option<f64>> {
    let places = runtime.devices.iter().enumerate();
    let whole = |(i, _): (usize, &Device)| {
        let name = format!("device {i} device");
        said.iter().find(|domain| domain.name == name).map(|domain| domain.joules)
    };
    places.filter(|(_, device)| !device.is_vacant()).map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every rank said the whole machine's joules for its own samples.
    #[test]
    fn the_joules_of_all_ranks_are_those_of_their_machine() {
        let machine = exact(TOTAL.to_owned(), 800.0, "measured(rapl:package-0)".into());
        let alone = part_of_rank(&machine, Some(1)).unwrap();
        assert_eq!(alone, machine);
        let one = part_of_rank(&machine, Some(8)).unwrap();
        let each = [one.joules, one.low, one.high];
        assert!(each.iter().all(|joules| (8.0 * joules - 800.0).abs() < 1e-9), "{one:?}");
        // An image costs the same, whether one rank has all of them or eight an eighth each.
        assert!((one.joules / 100.0 - alone.joules / 800.0).abs() < 1e-9, "{one:?}");
        let source = "measured(rapl:package-0), divided by the 8 ranks of this machine";
        assert_eq!(one.source, source);
        assert_eq!(part_of_rank(&machine, None), None, "nobody says how many there are");
    }

    #[test]
    fn a_measured_figure_is_three_numbers() {
        let domain = |name: &str, part| MeteredDomain {
            meter: "rapl".to_owned(),
            name: name.to_owned(),
            part,
            joules: 500.0,
            source: format!("measured(rapl:{name})"),
        };
        let metered = Metered {
            seconds: 10.0,
            domains: vec![
                domain("package-0", Part::Processors),
                domain("package-0/dram", Part::Memory),
                domain("psys", Part::Other),
            ],
            failures: Vec::new(),
            meters: Vec::new(),
        };
        let idle = [
            ("measured(rapl:package-0)".to_owned(), 20.0),
            ("measured(rapl:package-0/dram)".to_owned(), 5.0),
        ];
        let host = HostQuantities {
            processor_seconds: Some(30.0),
            machine_processor_seconds: Some(40.0),
            ..HostQuantities::default()
        };
        let three = |host: &HostQuantities, idle: &[_]| -> Vec<_> {
            let figures = measured(&metered, idle, host).into_iter();
            figures
                .map(|d| (d.joules, d.net_of_idle_joules, d.attributed_joules))
                .collect()
        };
        let expected = [
            (500.0, Some(300.0), Some(225.0)),
            (500.0, Some(450.0), None),
            (500.0, None, None),
        ];
        assert_eq!(three(&host, &idle), expected);
        assert!(
            three(&host, &[]).iter().all(|(_, net, own)| net.is_none() && own.is_none())
        );
        let unknown = HostQuantities::default();
        assert_eq!(three(&unknown, &idle)[0], (500.0, Some(300.0), None));
    }
}
