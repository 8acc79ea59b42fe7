//! Accelerator utilisation, and the highest rate at which an accelerator can be kept busy.
//!
//! The accelerator is emulated: it consumes samples at a rate and computes nothing. The caller feeds it,
//! through a function from a rate to the measurement at that rate, so this runs no epoch and reads no
//! clock. The metric is MLPerf Storage's (computing ÷ total time, at least 90 %), but samples are really
//! decoded and augmented, so it is not an MLPerf result.
//!
//! [`highest`] is the rule; `scripts/peers/sustained.py` has the same for other loaders, and
//! a test (`tests/peers_rule.rs`) plays both over the same curves.

use bothends_core::columns;
use bothends_figures::Seen;
use serde::Serialize;

use crate::table::cell;

/// The utilisation that counts as busy.
pub const WANTED: f64 = 0.9;

/// Rates closer than this count as equal, because measurements cannot distinguish them.
const RESOLUTION: f64 = 1.02;

/// How far the search goes in its first stride; each further stride is the square of the one
/// before, up to [`LONGEST_STRIDE`].
const FIRST_STRIDE: f64 = 1.1;
const LONGEST_STRIDE: f64 = 2.0;

/// The most measurements of one search.
const MOST_PROBES: usize = 24;

/// The lowest rate that is tried, as a part of the first: a slower accelerator is no answer,
/// and would take minutes for its steps.
const LOWEST: f64 = 1.0 / 64.0;

/// An accelerator to feed.
#[derive(Debug, Clone, PartialEq)]
pub struct Accelerator {
    /// For people.
    pub name: String,
    /// Its rate if it never waits.
    pub images_per_s: f64,
}

/// One accelerator's result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fed {
    /// The accelerator.
    pub name: String,
    /// Its rate if it never waits.
    pub rate_images_per_s: f64,
    /// The measurement.
    #[serde(flatten)]
    pub seen: Seen,
}

/// One measurement of a search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Probe {
    /// The accelerator's rate.
    pub rate_images_per_s: f64,
    /// The utilisation.
    pub utilisation: f64,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sustained {
    /// The highest rate that could be sustained; `None` where none passed twice.
    pub rate_images_per_s: Option<f64>,
    /// The utilisation that counts.
    pub wanted: f64,
    /// All measurements, in order.
    pub probes: Vec<Probe>,
}

/// The highest rate whose utilisation is at least [`WANTED`].
///
/// 1. From `start` it goes up while rates pass, or down until one does, in growing strides.
/// 2. Between the highest that passed and the lowest that failed it takes the geometric mean,
///    until both are within 2 %.
/// 3. The one that passed is measured once more. If it passes again it is the answer; else it
///    counts as failed, the one that had passed before it takes its place, and 2 goes on.
///
/// # Errors
/// What `utilisation_at` returns.
pub fn highest<E>(
    start: f64,
    utilisation_at: &mut dyn FnMut(f64) -> Result<f64, E>,
) -> Result<Sustained, E> {
    let mut search = Search::from(start);
    let mut probes = Vec::new();
    while probes.len() < MOST_PROBES
        && let Some(rate) = search.next_rate()
    {
        let utilisation = utilisation_at(rate)?;
        let probe = Probe { rate_images_per_s: rate, utilisation };
        probes.push(probe);
        search.learn(probe);
    }
    Ok(Sustained { rate_images_per_s: search.found, wanted: WANTED, probes })
}

/// A search in progress.
#[derive(Debug)]
struct Search {
    start: f64,
    stride: f64,
    /// Rates that have passed once and not failed since, ascending.
    passed: Vec<f64>,
    /// The lowest rate that has failed.
    failed: Option<f64>,
    found: Option<f64>,
}

impl Search {
    fn from(start: f64) -> Self {
        let stride = FIRST_STRIDE;
        Self { start, stride, passed: Vec::new(), failed: None, found: None }
    }

    /// The rate to measure next; `None` when the search is over.
    fn next_rate(&mut self) -> Option<f64> {
        if self.found.is_some() {
            return None;
        }
        let rate = match (self.passed.last(), self.failed) {
            (None, None) => self.start,
            (None, Some(failed)) => failed / self.take_stride(),
            (Some(&passed), None) => passed * self.take_stride(),
            (Some(&passed), Some(failed)) if failed > passed * RESOLUTION => {
                (passed * failed).sqrt()
            }
            (Some(&passed), Some(_)) => passed,
        };
        (rate >= self.start * LOWEST).then_some(rate)
    }

    fn take_stride(&mut self) -> f64 {
        let stride = self.stride;
        self.stride = (stride * stride).min(LONGEST_STRIDE);
        stride
    }

    fn learn(&mut self, probe: Probe) {
        let rate = probe.rate_images_per_s;
        let is_second = self.passed.last() == Some(&rate);
        match (probe.utilisation >= WANTED, is_second) {
            (true, true) => self.found = Some(rate),
            (true, false) => self.passed.push(rate),
            (false, true) => {
                self.passed.pop();
                self.failed = Some(rate);
                self.stride = FIRST_STRIDE;
            }
            (false, false) => self.failed = Some(rate),
        }
    }
}

// ---- the whole measurement ------------------------------------------------------------------

/// The results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuResult {
    /// The loader's rate, with an accelerator that consumes every batch at once.
    pub unpaced: Seen,
    /// One line per requested accelerator.
    pub accelerators: Vec<Fed>,
    /// The highest rate.
    pub sustained: Sustained,
    /// The second measurement at that rate.
    pub at_sustained: Option<Seen>,
}

/// What feeds an accelerator of a rate, or one that takes every batch at once.
pub type Feed<'a, E> = &'a mut dyn FnMut(Option<f64>) -> Result<Seen, E>;

/// Measures with the accelerators whose utilisation is asked for; `feed` does the work, `tell`
/// hears what comes next.
///
/// # Errors
/// What `feed` returns.
pub fn measure<E>(
    asked: &[Accelerator],
    feed: Feed<'_, E>,
    tell: &mut dyn FnMut(&str),
) -> Result<AuResult, E> {
    tell("what the loader makes when nothing holds it up");
    let unpaced = feed(None)?;
    let mut accelerators = Vec::new();
    for Accelerator { name, images_per_s: rate } in asked {
        tell(&format!("{name}: {rate:.0} images/s"));
        let seen = feed(Some(*rate))?;
        accelerators.push(Fed { name: name.clone(), rate_images_per_s: *rate, seen });
    }
    let mut last = None;
    let sustained = highest(unpaced.images_per_s, &mut |rate| {
        tell(&format!("the highest rate: does {rate:.0} images/s pass?"));
        let seen = feed(Some(rate))?;
        last = Some(seen);
        Ok(seen.utilisation.unwrap_or(0.0))
    })?;
    let at_sustained = last.filter(|_| sustained.rate_images_per_s.is_some());
    Ok(AuResult { unpaced, accelerators, sustained, at_sustained })
}

impl AuResult {
    /// As text for a terminal.
    #[must_use]
    pub fn table(&self) -> String {
        let head = [
            "accelerator",
            "takes images/s",
            "utilisation",
            "gets images/s",
            "p99 stall ms",
            "CPU ms/image",
            "of devices",
            "peak PSS MB",
        ];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        lines.push(line("any number", None, &self.unpaced));
        for Fed { name, rate_images_per_s, seen } in &self.accelerators {
            lines.push(line(name, Some(*rate_images_per_s), seen));
        }
        if let Some(seen) = &self.at_sustained {
            let rate = self.sustained.rate_images_per_s;
            lines.push(line("the highest that passes", rate, seen));
        }
        format!("{}\n{}\n", columns(&lines, 1), self.verdict())
    }

    fn verdict(&self) -> String {
        let (wanted, n) = (self.sustained.wanted * 100.0, self.sustained.probes.len());
        match self.sustained.rate_images_per_s {
            Some(rate) => format!(
                "kept {wanted:.0} % busy: an accelerator of at most {rate:.0} images/s \
                 (found in {n} measurements, to 2 %)"
            ),
            None => format!(
                "no rate kept an accelerator {wanted:.0} % busy twice in {n} measurements; \
                 measure longer with --seconds, or when nothing else runs"
            ),
        }
    }
}

fn line(name: &str, rate: Option<f64>, seen: &Seen) -> Vec<String> {
    let percent = seen.utilisation.map(|u| format!("{:.1} %", u * 100.0));
    #[expect(clippy::cast_precision_loss, reason = "2^53 bytes are beyond any host")]
    let pss_mb = seen.peak_pss_bytes.map(|bytes| bytes as f64 / 1e6);
    vec![
        name.to_owned(),
        cell(rate, 0),
        percent.unwrap_or_else(|| "–".to_owned()),
        cell(Some(seen.images_per_s), 0),
        cell(Some(seen.p99_wait_ms), 1),
        cell(seen.cpu_ms_per_image, 2),
        cell(seen.device_cpu_ms_per_image, 2),
        cell(pss_mb, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a loader does that makes `capacity` samples a second and is never late.
    fn ideal(capacity: f64) -> impl Fn(f64) -> f64 {
        move |rate| (capacity / rate).min(1.0)
    }

    fn search(start: f64, mut curve: impl FnMut(f64) -> f64) -> Sustained {
        let found = highest(start, &mut |rate| Ok::<_, ()>(curve(rate)));
        found.unwrap()
    }

    fn is_near(found: &Sustained, wanted: f64, part: f64) {
        let rate = found.rate_images_per_s.unwrap();
        assert!((rate / wanted - 1.0).abs() <= part, "{wanted}: {found:?}");
    }

    #[test]
    fn the_highest_rate_is_found_wherever_the_search_begins() {
        for start in [20.0, 700.0, 1000.0, 1111.0, 1500.0, 50_000.0] {
            let found = search(start, ideal(1000.0));
            is_near(&found, 1000.0 / WANTED, RESOLUTION - 1.0);
            assert!(found.rate_images_per_s.unwrap() <= 1000.0 / WANTED);
            assert!(found.probes.len() <= 16, "{found:?}");
        }
    }

    #[test]
    fn from_the_loaders_own_rate_it_takes_a_minute_of_eight_seconds_each() {
        let found = search(1000.0, ideal(1000.0));
        assert!(found.probes.len() <= 8, "{found:?}");
    }

    #[test]
    fn a_slow_fall_and_a_cliff_are_found_too() {
        let slow = |rate: f64| 1.0 / (1.0 + rate / 9000.0);
        is_near(&search(400.0, slow), 1000.0, RESOLUTION - 1.0);
        let cliff = |rate: f64| if rate <= 1234.0 { 1.0 } else { 0.1 };
        is_near(&search(400.0, cliff), 1234.0, RESOLUTION - 1.0);
    }

    #[test]
    fn the_answer_has_passed_twice() {
        let found = search(900.0, ideal(1000.0));
        let rate = found.rate_images_per_s.unwrap();
        let passes = found.probes.iter().filter(|probe| {
            probe.rate_images_per_s == rate && probe.utilisation >= WANTED
        });
        assert_eq!(passes.count(), 2);
    }

    #[test]
    fn noise_of_one_percent_moves_the_answer_by_little_more() {
        for seed in 0..200 {
            let mut noise = Noise(seed);
            let curve = ideal(1000.0);
            let found = search(1000.0, |rate| curve(rate) * (1.0 + 0.01 * noise.next()));
            is_near(&found, 1000.0 / WANTED, 0.04);
        }
    }

    #[test]
    fn one_lucky_measurement_is_no_answer() {
        // The fourth measurement is too good, whatever it is of.
        let (mut n, curve) = (0, ideal(1000.0));
        let found = search(1000.0, |rate| {
            n += 1;
            if n == 4 { 1.0 } else { curve(rate) }
        });
        is_near(&found, 1000.0 / WANTED, RESOLUTION - 1.0);
    }

    #[test]
    fn what_is_disturbed_too_often_has_no_answer_and_an_end() {
        let found = search(1000.0, |_| 0.5);
        assert_eq!(found.rate_images_per_s, None);
        let lowest = found.probes.iter().map(|probe| probe.rate_images_per_s);
        assert!(lowest.fold(f64::INFINITY, f64::min) >= 1000.0 * LOWEST);
        let mut noise = Noise(7);
        let found = search(1000.0, |_| if noise.next() > 0.0 { 1.0 } else { 0.5 });
        assert!(found.probes.len() <= MOST_PROBES, "{found:?}");
        let found = search(1000.0, |_| 1.0);
        assert_eq!(found.rate_images_per_s, None);
        assert_eq!(found.probes.len(), MOST_PROBES);
    }

    #[test]
    fn an_error_ends_the_search() {
        let mut n = 0;
        let found = highest(1.0, &mut |_| {
            n += 1;
            if n == 2 { Err("broken") } else { Ok(1.0) }
        });
        assert_eq!((found, n), (Err("broken"), 2));
    }

    #[test]
    fn a_measurement_asks_for_each_accelerator_and_the_highest_rate() {
        let accelerator = |images_per_s: f64| Accelerator {
            name: images_per_s.to_string(),
            images_per_s,
        };
        let asked = [accelerator(300.0), accelerator(4e3)];
        let curve = ideal(1000.0);
        let mut feed = |rate: Option<f64>| {
            Ok::<_, ()>(Seen {
                n_steps: 12,
                utilisation: rate.map(&curve),
                images_per_s: rate.unwrap_or(1000.0).min(1000.0),
                p99_wait_ms: 0.0,
                cpu_ms_per_image: None,
                device_cpu_ms_per_image: None,
                peak_pss_bytes: Some(5_000_000),
            })
        };
        let mut told = Vec::new();
        let result = measure(&asked, &mut feed, &mut |text| told.push(text.to_owned()));
        let result = result.unwrap();
        let seen = result.accelerators.iter().map(|fed| fed.seen.utilisation);
        assert_eq!(seen.collect::<Vec<_>>(), [Some(1.0), Some(0.25)]);
        is_near(&result.sustained, 1111.1, 0.02);
        assert!(result.at_sustained.unwrap().utilisation.unwrap() >= WANTED);
        let table = result.table();
        assert!(table.contains("25.0 %") && table.contains("kept 90 % busy"), "{table}");
        assert_eq!(told.len(), 3 + result.sustained.probes.len());
    }

    /// Numbers in -1..1, always the same for a seed.
    struct Noise(u64);

    impl Noise {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            (mixed >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
        }
    }
}
