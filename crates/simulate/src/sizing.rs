//! Whether devices would pay: what a number of devices would do for this host and this accelerator,
//! answered in virtual time from measured rates.
//!
//! Prices are not considered. An epoch is played for each number of devices, configured as in the
//! runtime, once with the middle of all figures and once with each of their ends. `verdict.rs` decides
//! what that means, `advice.rs` puts it into sentences, `conditions.rs` says when figures may not be
//! trusted, and `interval.rs` computes their ends. `diagnosis.rs` says what limits a job. `pool.rs` plans
//! a pool of agents for many
//! jobs, which plays nothing.

mod advice;
mod conditions;
pub mod diagnosis;
mod interval;
mod pool;
mod verdict;

use bothends_core::columns;
use bothends_core::epoch::Recovery;
use bothends_core::objective::Objective;
use bothends_core::select::StrategyConfig;
use serde::Serialize;

pub use conditions::{Conditions, Doubt};
pub use interval::{Interval, three_digits, wants_another_round};
pub use pool::{PoolPlan, PoolQuestion};
pub use verdict::{Buy, Case, Evidence, Kind, Offer, Verdict, decide};

use crate::energy::Power;
use crate::play::scaled;
use crate::result::{LABEL, StrategyResult};
use crate::scenario::Scenario;
use crate::world::{Accelerator, Device, Host, World};
use verdict::LEAST_GAIN;

/// An accelerator that is busy for this fraction of the time counts as fed.
const FED: f64 = 0.98;
/// How much faster a host may be than measured. Not everything that slows a machine down shows in its
/// own figures (a neighbour on the same core, a lower clock). The same loop took 0.69 to 1.27 s in
/// twelve rounds on a machine that reported to be idle, and a quarter is about half of that spread.
const MARGIN: f64 = 1.25;
/// `relaxed` gives up the order of the plan, so it must gain at least this much.
const WORTH_THE_ORDER: f64 = 1.02;
/// The fraction of its rate that a host keeps at least while it receives, so that it is never 0.
const LEAST_LEFT: f64 = 0.05;

/// The number of batches of the epoch that is played.
const N_BATCHES: u32 = 2_000;
/// The defaults of the runtime, in batches.
const QUOTA: u32 = 4;
const SLOTS: u32 = 2;
const BUFFER: u32 = 8;
/// How much times vary if that has not been measured.
const CV: f64 = 0.1;

/// The question, and the figures on which the answer is based.
#[derive(Debug, Clone, Serialize)]
pub struct Question {
    /// The host.
    pub host: HostFigures,
    /// One device.
    pub device: DeviceFigures,
    /// The accelerator.
    pub accelerator: AcceleratorFigures,
    /// Samples of a batch.
    pub batch_size: u32,
    /// The numbers of devices to consider.
    pub counts: Vec<u32>,
    /// The power of everything.
    #[serde(serialize_with = "as_name")]
    pub power: Power,
}

/// The host alone.
#[derive(Debug, Clone, Serialize)]
pub struct HostFigures {
    /// Its workers.
    pub workers: u32,
    /// CPUs shared by the workers and by receiving device batches.
    pub processors: u32,
    /// Their total rate.
    pub images_per_s: f64,
    /// Its interval, from repeated measurements.
    pub ends: Interval,
    /// CPU time per image, if known.
    pub cpu_ms_per_image: Option<f64>,
    /// The state of the machine during the measurement; `None` if it was not observed.
    pub conditions: Option<Conditions>,
    /// Whether storage sets the rate, so that workers have a reason to wait.
    pub waits_for_storage: bool,
    /// `measured`, or the origin of the figures.
    pub source: String,
}

/// One device alone.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceFigures {
    /// Its name.
    pub name: String,
    /// Its rate.
    pub images_per_s: f64,
    /// Its interval, from repeated measurements and from the speeds in its preset.
    pub ends: Interval,
    /// Whether the speed of such a device has never been measured.
    pub is_uncalibrated: bool,
    /// The bandwidth of its link, if known.
    pub link_images_per_s: Option<f64>,
    /// CPU time of the host per image received from it, if known.
    pub receiving_cpu_ms_per_image: Option<f64>,
    /// `measured`, or the origin of the rate.
    pub source: String,
}

/// What is to be fed.
#[derive(Debug, Clone, Serialize)]
pub struct AcceleratorFigures {
    /// Its name.
    pub name: String,
    /// Its rate.
    pub images_per_s: f64,
}

/// The answer. Scripts rely on the keys of its JSON.
#[derive(Debug, Clone, Serialize)]
pub struct Answer {
    /// The label of every figure in `rows`.
    pub label: &'static str,
    /// The question.
    pub question: Question,
    /// The outcome for each number of devices; the first is the host alone.
    pub rows: Vec<Row>,
    /// Whether any of these numbers of devices is faster by 2 % or more with the middle of all figures.
    pub pays: bool,
    /// Whether to buy, and how many.
    pub verdict: Verdict,
    /// The same in sentences.
    pub advice: Vec<String>,
}

/// A number of devices.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// How many.
    pub devices: u32,
    /// The strategy to use.
    pub strategy: &'static str,
    /// The objective to use: energy if the host alone feeds the accelerator.
    pub objective: String,
    /// The total rate.
    pub images_per_s: f64,
    /// Relative to the host alone.
    pub speedup: f64,
    /// Its interval, with host and device as slow and as fast as their figures allow.
    pub speedup_ends: Interval,
    /// The fraction of the time in which the accelerator works.
    pub utilisation: f64,
    /// Whether the accelerator is fed even if host and devices are at their slowest.
    pub is_fed: bool,
    /// The fraction of the time in which the host's workers work.
    pub host_cpu: f64,
    /// CPU time of the host per image, if it was measured for the host alone.
    pub cpu_ms_per_image: Option<f64>,
    /// Energy per image.
    pub joules_per_image: f64,
}

fn as_name<S: serde::Serializer>(
    power: &Power,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&power.name)
}

impl Question {
    /// Plays epochs for each number of devices. Blocks until all have been played.
    #[must_use]
    pub fn answer(self) -> Answer {
        let alone = Alone::of(&self);
        // Devices relieve a host that feeds the accelerator alone.
        let objective = match alone.middle.utilisation >= FED {
            true => Objective::Energy,
            false => Objective::Throughput,
        };
        let mut rows = vec![self.row(0, Objective::Throughput, &alone)];
        let counts = self.counts.iter().filter(|n| **n > 0);
        rows.extend(counts.map(|&n| self.row(n, objective, &alone)));
        let pays = rows.iter().any(|row| row.speedup >= 1.0 + LEAST_GAIN);
        let verdict = decide(&Evidence {
            accelerator: self.accelerator.name.clone(),
            host_feeds: rows[0].is_fed,
            doubt: self.doubt(),
            offers: vec![self.offer(&rows)],
        });
        let advice = advice::sentences(&self, &rows);
        Answer { label: LABEL, question: self, rows, pays, verdict, advice }
    }

    /// Why the host's figures cannot be trusted, if so.
    #[must_use]
    pub fn doubt(&self) -> Option<Doubt> {
        let share = self.share().filter(|_| !self.host.waits_for_storage);
        conditions::doubt(self.host.conditions.as_ref(), share, self.host.workers)
    }

    /// This device, for a verdict over several kinds.
    fn offer(&self, rows: &[Row]) -> Offer {
        let case = |row: &Row| Case {
            n: row.devices,
            speedup: row.speedup_ends,
            is_fed: row.is_fed,
        };
        Offer {
            device: self.device.name.clone(),
            is_uncalibrated: self.device.is_uncalibrated,
            cases: rows.iter().filter(|row| row.devices > 0).map(case).collect(),
        }
    }

    /// The CPU time that the workers got, as a fraction of what they could use.
    fn share(&self) -> Option<f64> {
        let HostFigures { workers, processors, images_per_s, cpu_ms_per_image, .. } =
            self.host;
        let could_use = workers.min(processors);
        conditions::share(images_per_s, cpu_ms_per_image, could_use)
    }

    /// The outcome for `n` devices.
    fn row(&self, n: u32, objective: Objective, alone: &Alone) -> Row {
        let (strategy, result) = self.best(n, objective);
        let seconds = result.seconds.unwrap_or(f64::INFINITY);
        let images = f64::from(N_BATCHES) * f64::from(self.batch_size);
        let by_host = 1.0 - result.back;
        let slowest = match n {
            0 => alone.slowest,
            n => self.played((self.host.ends.low, self.device.ends.low), n, objective),
        };
        Row {
            devices: n,
            strategy: strategy.name(),
            objective: objective.to_string(),
            images_per_s: images / seconds,
            speedup: if n == 0 { 1.0 } else { alone.middle.seconds / seconds },
            speedup_ends: self.speedup_ends(n, objective, alone),
            utilisation: 1.0 - result.idle.unwrap_or(1.0),
            is_fed: slowest.utilisation >= FED,
            host_cpu: result.host_cpu_s / seconds,
            cpu_ms_per_image: self.host.cpu_ms_per_image.map(|ms| {
                let receiving = self.device.receiving_cpu_ms_per_image.unwrap_or(0.0);
                ms * by_host + receiving * result.back
            }),
            joules_per_image: result.joules.unwrap_or(f64::INFINITY) / images,
        }
    }

    /// The smallest and the largest gain of `n` devices.
    fn speedup_ends(&self, n: u32, objective: Objective, alone: &Alone) -> Interval {
        if n == 0 {
            return Interval::exact(1.0);
        }
        let (host, device) = (self.host.ends, self.device.ends);
        let cautious = self.played((self.fastest_host(), device.low), n, objective);
        let hopeful = self.played((host.low, device.high), n, objective);
        let low = alone.fastest.seconds / cautious.seconds;
        Interval { low, high: (alone.slowest.seconds / hopeful.seconds).max(low) }
    }

    /// The upper end of the host's rate.
    fn fastest_host(&self) -> f64 {
        match self.host.waits_for_storage {
            // A faster processor does not make storage faster.
            true => self.host.ends.high,
            false => upper_end(self.host.ends.high, self.share()),
        }
    }

    /// An epoch with other rates of host and device.
    fn played(&self, rates: (f64, f64), n: u32, objective: Objective) -> Played {
        let mut asked = self.clone();
        (asked.host.images_per_s, asked.device.images_per_s) = rates;
        Played::of(&asked.best(n, objective).1)
    }

    /// Keeps the order of the plan, unless that costs too much.
    fn best(&self, n: u32, objective: Objective) -> (StrategyConfig, StrategyResult) {
        use StrategyConfig::{Cpu, Ordered, Relaxed};
        let scenario = self.scenario(n, objective);
        let strategies =
            if scenario.n_devices() == 0 { [Cpu, Cpu] } else { [Ordered, Relaxed] };
        let result = scenario.run(&strategies, &mut |_| {});
        let [ordered, relaxed] = [0, 1].map(|i| result.strategies[i].1.clone());
        if relaxed.speedup > ordered.speedup.map(|speedup| speedup * WORTH_THE_ORDER) {
            (strategies[1], relaxed)
        } else {
            (strategies[0], ordered)
        }
    }

    /// The rate of the host's workers next to `n` devices: receiving first takes CPUs that no worker
    /// uses, then those of the workers.
    fn host_beside(&self, n: u32) -> f64 {
        let HostFigures { workers, processors, images_per_s, .. } = self.host;
        let ms = self.device.receiving_cpu_ms_per_image.unwrap_or(0.0);
        let receiving = f64::from(n) * self.device.images_per_s * ms / 1e3;
        let used = f64::from(workers.min(processors).max(1));
        let spare = f64::from(processors.saturating_sub(workers));
        let taken = (receiving - spare).max(0.0) / used;
        images_per_s * (1.0 - taken).max(LEAST_LEFT)
    }

    fn scenario(&self, n: u32, objective: Objective) -> Scenario {
        let batch_ns = |images_per_s: f64| {
            scaled(1_000_000_000, f64::from(self.batch_size) / images_per_s).max(1)
        };
        let device = Device {
            slots: SLOTS,
            buffer: BUFFER,
            cv: CV,
            ..Device::steady(batch_ns(self.device.images_per_s))
        };
        let world = World {
            n_batches: N_BATCHES,
            strategy: StrategyConfig::Cpu,
            objective,
            recovery: Recovery::On,
            host: Host {
                batch_ns: batch_ns(self.host_beside(n)),
                parallel: 1,
                quota: QUOTA,
                cv: CV,
                slowdown: None,
                prior: Some(1.0),
                records: None,
            },
            devices: vec![device; n as usize],
            shards: 1,
            links: Vec::new(),
            batch_bytes: 0,
            accelerator: Accelerator {
                step_ns: batch_ns(self.accelerator.images_per_s),
                poll_ns: 0,
                known: true,
            },
            slope: 0.0,
            seed: 0,
        };
        let mut power = self.power.clone();
        // All workers share a batch here, so one second of work is one second of each.
        power.host_worker_w.value *= f64::from(self.host.workers);
        Scenario {
            name: "sizing".to_owned(),
            about: String::new(),
            steady: true,
            seeds: vec![1],
            power,
            ranks: vec![world],
            file: serde_json::Value::Null,
        }
    }
}

/// The host alone: as measured, and at both ends of its interval.
struct Alone {
    slowest: Played,
    middle: Played,
    fastest: Played,
}

impl Alone {
    fn of(asked: &Question) -> Self {
        let host = |rate: f64| {
            asked.played((rate, asked.device.images_per_s), 0, Objective::Throughput)
        };
        Self {
            slowest: host(asked.host.ends.low),
            middle: host(asked.host.images_per_s),
            fastest: host(asked.fastest_host()),
        }
    }
}

/// The outcome of an epoch that was played.
#[derive(Clone, Copy)]
struct Played {
    seconds: f64,
    utilisation: f64,
}

impl Played {
    fn of(result: &StrategyResult) -> Self {
        Self {
            seconds: result.seconds.unwrap_or(f64::INFINITY),
            utilisation: 1.0 - result.idle.unwrap_or(1.0),
        }
    }
}

/// The fastest that a host may be if `images_per_s` was measured while its workers got `share` of the
/// CPU time that they could use.
fn upper_end(images_per_s: f64, share: Option<f64>) -> f64 {
    images_per_s / share.unwrap_or(1.0).clamp(LEAST_LEFT, 1.0) * MARGIN
}

impl Answer {
    /// The outcome for this kind of device, for a verdict over several kinds.
    #[must_use]
    pub fn offer(&self) -> Offer {
        self.question.offer(&self.rows)
    }

    /// The answer as plain text for a terminal, without the verdict: sentences, then the table.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.advice.join("\n");
        text += "\n\n";
        let headings = [
            "devices",
            "strategy",
            "objective",
            "images/s",
            "× host",
            "utilisation",
            "host CPU",
            "CPU ms/image",
            "J/image",
        ];
        let mut lines = vec![headings.map(str::to_owned)];
        lines.extend(self.rows.iter().map(|row| {
            [
                row.devices.to_string(),
                row.strategy.to_owned(),
                row.objective.clone(),
                three_digits(row.images_per_s),
                row.ratios(),
                advice::whole_percent(row.utilisation),
                advice::whole_percent(row.host_cpu),
                row.cpu_ms_per_image.map_or("–".to_owned(), three_digits),
                advice::joules(row.joules_per_image),
            ]
        }));
        text += &columns(&lines, 1);
        text += &format!(
            "({LABEL}, from the rates above; power model {})\n",
            self.question.power.name
        );
        text
    }
}

impl Row {
    fn ratios(&self) -> String {
        match self.devices {
            0 => "1".to_owned(),
            _ => self.speedup_ends.ratios(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const IDLE: Conditions = Conditions {
        processors: 4,
        others: Some(0.0),
        stolen: Some(0.0),
        cpu_pressure: Some(0.0),
        io_pressure: Some(0.0),
    };

    pub(super) fn question(host: f64, device: f64, accelerator: f64) -> Question {
        Question {
            host: HostFigures {
                workers: 4,
                processors: 4,
                images_per_s: host,
                ends: Interval::exact(host),
                // All that the four CPUs have.
                cpu_ms_per_image: Some(4e3 / host),
                conditions: Some(IDLE),
                waits_for_storage: false,
                source: "measured".to_owned(),
            },
            device: DeviceFigures {
                name: "newport".to_owned(),
                images_per_s: device,
                ends: Interval::exact(device),
                is_uncalibrated: false,
                link_images_per_s: None,
                receiving_cpu_ms_per_image: None,
                source: "modelled by its preset".to_owned(),
            },
            accelerator: AcceleratorFigures {
                name: "resnet50-a100".to_owned(),
                images_per_s: accelerator,
            },
            batch_size: 64,
            counts: vec![1, 4],
            power: Power::named("cloud").unwrap(),
        }
    }

    #[test]
    fn devices_add_up_until_the_accelerator_is_fed() {
        let answer = question(1000.0, 250.0, 1500.0).answer();
        let rates: Vec<f64> = answer.rows.iter().map(|row| row.images_per_s).collect();
        for (got, expected) in rates.iter().zip([1000.0, 1250.0, 1500.0]) {
            assert!((got / expected - 1.0).abs() < 0.02, "{rates:?}");
        }
        assert!(answer.pays);
        let last = &answer.rows[2];
        assert!(last.utilisation > FED && last.strategy == "ordered", "{last:?}");
        // Devices work all the time and make two thirds, without any work of the workers.
        let by_host = last.cpu_ms_per_image.unwrap() / 4.0;
        assert!((0.3..0.36).contains(&by_host), "{last:?}");
        assert!((last.host_cpu - by_host * 1.5).abs() < 0.02, "{last:?}");
    }

    #[test]
    fn a_host_that_feeds_the_accelerator_is_spared_instead() {
        let answer = question(2000.0, 250.0, 1000.0).answer();
        assert!(!answer.pays);
        let [alone, one, four] = [0, 1, 2].map(|i| &answer.rows[i]);
        assert_eq!([&alone.objective, &four.objective], ["throughput", "energy"]);
        assert!((alone.host_cpu - 0.5).abs() < 0.01, "{alone:?}");
        assert!(one.host_cpu < 0.40 && one.speedup > 0.99, "{one:?}");
        assert!(four.host_cpu < 0.05 && four.speedup > 0.98, "{four:?}");
    }

    #[test]
    fn the_verdict_holds_at_all_ends_of_the_figures() {
        let kind = |asked: Question| asked.answer().verdict.kind;
        assert_eq!(kind(question(2000.0, 250.0, 1000.0)), Kind::DoNotBuy);
        assert_eq!(kind(question(1000.0, 1.0, 3000.0)), Kind::DoNotBuy);
        let answer = question(1000.0, 250.0, 3000.0).answer();
        assert_eq!(answer.verdict.kind, Kind::Buy, "{}", answer.verdict);
        assert_eq!(answer.verdict.buy.unwrap().n, 4);
        // A host that is a quarter faster than measured would feed this one.
        assert_eq!(kind(question(1000.0, 250.0, 1200.0)), Kind::MeasureAgain);
        // The ends of a device's rate give the ends of its gain.
        let mut wide = question(1000.0, 250.0, 3000.0);
        wide.device.ends = Interval { low: 1.0, high: 500.0 };
        let answer = wide.answer();
        assert_eq!(answer.verdict.kind, Kind::MeasureAgain, "{}", answer.verdict);
        let Interval { low, high } = answer.rows[1].speedup_ends;
        assert!(low < 1.01 && (high / 1.5 - 1.0).abs() < 0.02, "{low} {high}");
    }

    #[test]
    fn a_host_that_was_not_watched_or_not_idle_is_measured_again() {
        let mut asked = question(1000.0, 250.0, 3000.0);
        asked.host.conditions = None;
        assert_eq!(asked.answer().verdict.kind, Kind::MeasureAgain);
        // The workers got 0.12 of 4 CPUs.
        let mut asked = question(217.7, 250.0, 3000.0);
        asked.host.cpu_ms_per_image = Some(0.573);
        let verdict = asked.clone().answer().verdict;
        assert_eq!(verdict.kind, Kind::MeasureAgain);
        assert!(verdict.words.contains("0.12 of 4 processors"), "{verdict}");
        // Unless they were waiting for storage.
        asked.host.waits_for_storage = true;
        assert_eq!(asked.answer().verdict.kind, Kind::Buy);
    }

    #[test]
    fn receiving_takes_what_is_spare_and_then_from_the_workers() {
        let mut asked = question(1000.0, 500.0, 1e6);
        asked.device.receiving_cpu_ms_per_image = Some(0.4);
        asked.counts = vec![2];
        // 1,000 images of 0.4 ms: 0.4 CPUs, a tenth of what four workers have.
        assert!((asked.host_beside(2) - 900.0).abs() < 1e-9);
        asked.host.processors = 5;
        assert!((asked.host_beside(2) - 1000.0).abs() < 1e-9);
        asked.host.processors = 2;
        assert!((asked.host_beside(2) - 800.0).abs() < 1e-9);
        asked.device.images_per_s = 1e6;
        assert!(asked.host_beside(2) > 0.0);
        asked.host.processors = 4;
        asked.device.images_per_s = 500.0;
        let row = &asked.answer().rows[1];
        assert!((row.images_per_s / 1900.0 - 1.0).abs() < 0.02, "{row:?}");
        // Of 1,900 images 900 took 4 ms and 1,000 took 0.4.
        let ms = row.cpu_ms_per_image.unwrap();
        assert!((ms / (4000.0 / 1900.0) - 1.0).abs() < 0.03, "{row:?}");
    }
}
