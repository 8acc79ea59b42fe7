//! The whole device as a cost model: media, compute, link and power combined for one job.
//!
//! The records of a job are read one job ahead, each sample goes to the unit that is free first, and the
//! finished batch crosses the link while the units start on the next job. It is pure: the answer depends
//! on the jobs so far and nothing else. No byte is moved here; the agent's server does the job for real
//! before this is asked what it cost.
//!
//! `device/drive.rs` combines the same models for commands of a drive, `device/timing.rs` asks it in this
//! machine's time, and `device/vitals.rs` is what a drive tells of its health.

mod drive;
mod timing;
mod vitals;

pub use drive::{Demand, Drive, Passage};
pub use timing::{Lateness, TOLERANCE, Timing};
pub use vitals::Vitals;

use bothends_agent::{Cost, Costs, Hold, ThreadClock, Work};
use bothends_csd::EnergyReading;

use crate::compute::Compute;
use crate::config::DeviceConfig;
use crate::link::Link;
use crate::media::Media;
use crate::power::{Busy, Power, Thermal};

/// How the duration of a job is found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// From the models.
    Modelled,
    /// So many samples per second of the whole device, whatever they are.
    Rate(f64),
}

/// A device in use.
#[derive(Debug)]
pub struct Device {
    media: Media,
    compute: Compute,
    link: Link,
    power: Power,
    thermal: Option<Thermal>,
    n_units: u64,
    pace: Pace,
    clock: ThreadClock,
    /// When the units began the job before.
    begun_ns: u64,
    /// When the job before was with the host.
    done_ns: u64,
}

/// A job on its way through the models.
#[derive(Debug)]
struct Pass {
    end_ns: u64,
    busy: Busy,
}

impl Device {
    /// A device that has not been used yet; `clock` measures the CPU time of a thread.
    #[must_use]
    pub fn new(config: DeviceConfig, pace: Pace, clock: ThreadClock) -> Self {
        let n_units = u64::from(config.n_units().unwrap_or(1));
        Self {
            media: Media::new(config.media),
            compute: Compute::new(config.compute),
            link: Link::new(config.link),
            power: Power::new(config.power),
            thermal: config.thermal.map(Thermal::new),
            n_units,
            pace,
            clock,
            begun_ns: 0,
            done_ns: 0,
        }
    }

    fn pass(&mut self, work: &Work<'_>, start_ns: u64) -> Pass {
        let mut busy = Busy::default();
        let slowdown_milli = match &mut self.thermal {
            Some(thermal) => {
                thermal.slowdown_milli(start_ns, self.power.total_pj(start_ns))
            }
            None => 1000,
        };
        // The device reads ahead while the units are on the job before.
        let ask_ns = work.arrival_ns.max(self.begun_ns);
        self.media.forget_before(ask_ns);
        let mut begun_ns = u64::MAX;
        let mut made_ns = ask_ns;
        for sample in work.samples {
            let fetched = self.media.read(ask_ns, sample.extent);
            let turn = self.compute.run(fetched.ready_ns, sample, slowdown_milli);
            begun_ns = begun_ns.min(turn.start_ns);
            made_ns = made_ns.max(turn.end_ns);
            busy.media_ns += fetched.busy_ns;
            busy.compute_ns += turn.end_ns - turn.start_ns;
        }
        if self.compute.is_measured() {
            let took_ns = work.end_ns.saturating_sub(work.start_ns);
            made_ns = made_ns.max(start_ns).saturating_add(took_ns);
            busy.compute_ns = took_ns;
        }
        if !work.samples.is_empty() {
            self.begun_ns = self.begun_ns.max(begun_ns);
        }
        let sent = self.link.send(made_ns, output_bytes(work));
        busy.link_ns = sent.busy_ns;
        Pass { end_ns: sent.arrived_ns.max(start_ns), busy }
    }

    /// A job at a given rate: it occupies all units from its start to its end.
    fn pass_at_rate(&mut self, work: &Work<'_>, start_ns: u64, per_s: f64) -> Pass {
        let took_ns = duration_ns(work.samples.len(), per_s);
        self.media.forget_before(start_ns);
        let media_ns = work
            .samples
            .iter()
            .map(|s| self.media.read(start_ns, s.extent).busy_ns)
            .sum();
        let link_ns = self.link.send(start_ns, output_bytes(work)).busy_ns;
        let busy = Busy {
            media_ns,
            compute_ns: took_ns.saturating_mul(self.n_units),
            link_ns,
            ..Busy::default()
        };
        Pass { end_ns: start_ns.saturating_add(took_ns), busy }
    }
}

fn output_bytes(work: &Work<'_>) -> u64 {
    work.samples.iter().map(|sample| u64::from(sample.output_bytes)).sum()
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a float-to-integer cast saturates, and a batch has far fewer than 2^53 samples"
)]
fn duration_ns(n_samples: usize, per_s: f64) -> u64 {
    (n_samples as f64 * 1e9 / per_s).round() as u64
}

impl Costs for Device {
    fn thread_clock(&self) -> ThreadClock {
        self.clock
    }

    fn job(&mut self, work: &Work<'_>) -> Cost {
        let start_ns = work.arrival_ns.max(self.done_ns);
        let pass = match self.pace {
            Pace::Modelled => self.pass(work, start_ns),
            Pace::Rate(per_s) => self.pass_at_rate(work, start_ns, per_s),
        };
        self.power.add(pass.busy);
        self.done_ns = pass.end_ns;
        Cost { start_ns, end_ns: pass.end_ns, hold: Hold::UntilEnd }
    }

    fn energy(&mut self, now_ns: u64) -> Vec<EnergyReading> {
        self.power.readings(now_ns)
    }
}

#[cfg(test)]
mod tests {
    use bothends_agent::SampleWork;
    use bothends_core::sample::{Extent, FileIdx};

    use super::*;
    use crate::compute::{ComputeConfig, CoresConfig};
    use crate::link::LinkConfig;
    use crate::media::{FlatConfig, MediaConfig};
    use crate::power::{PowerConfig, ThermalConfig};

    fn config() -> DeviceConfig {
        DeviceConfig {
            name: "test".into(),
            media: MediaConfig::Flat(FlatConfig {
                latency_ns: 100,
                bytes_per_s: 1_000_000_000,
            }),
            compute: ComputeConfig::Cores(CoresConfig {
                n_cores: 2,
                relative_time_milli: 2000,
            }),
            link: LinkConfig::Wire { latency_ns: 50, bytes_per_s: 1_000_000_000 },
            power: PowerConfig {
                idle_mw: 1000,
                media_mw: 1,
                program_mw: None,
                erase_mw: None,
                compute_mw: 100,
                link_mw: 10,
            },
            thermal: None,
            writes: None,
            memory: None,
            work: None,
            sleep: None,
        }
    }

    /// `n` samples of 10 bytes in, 20 bytes out, 1000 ns of CPU.
    fn samples(n: u32) -> Vec<SampleWork> {
        let sample = |i| SampleWork {
            extent: Extent { file: FileIdx(i), offset: 0, len: 10 },
            source_pixels: 100,
            cpu_ns: 1000,
            output_bytes: 20,
        };
        (0..n).map(sample).collect()
    }

    fn job(device: &mut Device, arrival_ns: u64, n: u32) -> Cost {
        let samples = samples(n);
        device.job(&Work { arrival_ns, start_ns: 0, end_ns: 7, samples: &samples })
    }

    #[test]
    fn one_job_on_an_idle_device_is_the_sum_of_its_steps() {
        let mut device = Device::new(config(), Pace::Modelled, || 0);
        let cost = job(&mut device, 1000, 2);
        // Read: 100 latency, then 10 ns each. Second sample: 1120 + 2000. Link: 40 + 50.
        assert_eq!(cost, Cost { start_ns: 1000, end_ns: 3210, hold: Hold::UntilEnd });
        let energy = device.power.total_pj(10_000);
        assert_eq!(energy, 1000 * 10_000 + 20 + 100 * 4000 + 10 * 40);
    }

    #[test]
    fn a_busy_device_delivers_its_bottleneck_rate() {
        let mut device = Device::new(config(), Pace::Modelled, || 0);
        let costs: Vec<Cost> = (0..101).map(|_| job(&mut device, 0, 10)).collect();
        // 10 samples of 2000 ns on 2 cores: 10 µs a job, reads and link overlapped.
        assert_eq!(costs[100].end_ns - costs[0].end_ns, 100 * 10_000);
        let spans = costs.windows(2).all(|pair| pair[1].start_ns == pair[0].end_ns);
        assert!(spans, "busy time is counted once");
    }

    #[test]
    fn a_rate_is_kept_to_the_nanosecond_when_busy_and_from_the_start_when_not() {
        let mut device = Device::new(config(), Pace::Rate(250.0), || 0);
        let costs: Vec<Cost> = (0..50).map(|_| job(&mut device, 5, 10)).collect();
        assert_eq!(
            costs[49].end_ns,
            5 + 50 * 40_000_000,
            "500 samples at 250/s take 2 s"
        );
        let later = job(&mut device, 3_000_000_000, 5);
        assert_eq!((later.start_ns, later.end_ns), (3_000_000_000, 3_020_000_000));
    }

    #[test]
    fn the_same_jobs_cost_the_same_again() {
        let run = || {
            let mut device = Device::new(config(), Pace::Modelled, || 0);
            (0..40_u32)
                .map(|i| job(&mut device, u64::from(i) * 3000, 1 + i % 7))
                .collect::<Vec<_>>()
        };
        assert_eq!(run(), run());
    }

    #[test]
    fn without_a_compute_model_a_job_takes_as_long_as_it_took_here() {
        let ideal = DeviceConfig {
            media: MediaConfig::Instant,
            compute: ComputeConfig::Measured,
            link: LinkConfig::Instant,
            ..config()
        };
        let mut device = Device::new(ideal, Pace::Modelled, || 0);
        let cost = job(&mut device, 100, 3);
        assert_eq!((cost.start_ns, cost.end_ns), (100, 107));
    }

    #[test]
    fn a_hot_device_slows_down() {
        let thermal =
            Some(ThermalConfig { cooled_mw: 1, reservoir_mj: 0, slowdown_milli: 3000 });
        let mut device =
            Device::new(DeviceConfig { thermal, ..config() }, Pace::Modelled, || 0);
        let took: Vec<u64> = (0..4)
            .map(|_| job(&mut device, 0, 10))
            .map(|cost| cost.end_ns - cost.start_ns)
            .collect();
        assert!(took[3] > 2 * took[0], "{took:?}");
    }

    #[test]
    fn an_empty_job_costs_the_link_alone() {
        let mut device = Device::new(config(), Pace::Modelled, || 0);
        assert_eq!(job(&mut device, 10, 0).end_ns, 60);
    }
}
