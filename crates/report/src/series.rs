//! Time series of a run: rates, waiting batches, CPUs and memory.
//!
//! They are sums and differences of what was recorded; nothing is smoothed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use bothends_figures::{Moment, UsageSample, What};

/// A figure with a duration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its start, in seconds of the epoch.
    pub from_s: f64,
    /// Its end.
    pub to_s: f64,
    /// The figure.
    pub value: f64,
}

/// Finished batches that wait to be delivered, from this moment on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// Seconds since the epoch began.
    pub t_s: f64,
    /// Made by the host.
    pub front: u32,
    /// Made by devices.
    pub back: u32,
}

/// Memory at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Seconds since the epoch began.
    pub t_s: f64,
    /// The proportional set size.
    pub bytes: u64,
}

/// The most intervals in a plot of rates.
const MOST_INTERVALS: f64 = 24.0;

/// The fewest batches in an interval on average: the rate of fewer says little.
const BATCHES_AN_INTERVAL: f64 = 5.0;

/// The most points in a plot of waiting batches; of more, only peaks are kept.
const MOST_POINTS: usize = 1500;

/// The number of columns in which peaks are kept.
const COLUMNS: usize = 500;

/// The shortest distance between observations that gives a rate: the kernel counts CPU time in hundredths
/// of a second.
const NEAR_S: f64 = 0.25;

/// The length of an interval of [`rate`], the same for all epochs of a page.
pub(crate) fn interval_s(longest_s: f64, n_batches: u32) -> f64 {
    let intervals = (f64::from(n_batches) / BATCHES_AN_INTERVAL).floor();
    (longest_s / intervals.clamp(1.0, MOST_INTERVALS)).max(f64::MIN_POSITIVE)
}

/// Images per second in each interval of an epoch: the batches delivered in it, times the average number
/// of images per batch.
pub(crate) fn rate(
    moments: &[Moment],
    seconds: f64,
    interval_s: f64,
    images_a_batch: f64,
) -> Vec<Step> {
    let n = (seconds / interval_s).round().clamp(1.0, 4.0 * MOST_INTERVALS);
    let mut steps = Vec::new();
    let mut delivered = moments.iter().filter(|m| m.what == What::Delivered).peekable();
    let mut from_s = 0.0;
    let mut i = 1.0;
    while i <= n {
        // The last interval takes the rest, which is somewhat more or less than the others.
        let is_last = i + 1.0 > n;
        let to_s = if is_last { seconds } else { i * interval_s };
        let mut n_batches = 0.0;
        while delivered.next_if(|m| is_last || m.t_s < to_s).is_some() {
            n_batches += 1.0;
        }
        let value = n_batches * images_a_batch / (to_s - from_s);
        if value.is_finite() {
            steps.push(Step { from_s, to_s, value });
        }
        from_s = to_s;
        i += 1.0;
    }
    steps
}

/// Counts waiting finished batches, event by event.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    /// Waiting batches, each with the side that made it.
    waits: BTreeMap<u32, usize>,
    delivered: BTreeSet<u32>,
    /// How many were made by the host, and by devices.
    waiting: [u32; 2],
}

impl Queue {
    /// Adds an event; true if the number of waiting batches changed. Whoever finishes a batch first has made
    /// it: a second time is in vain.
    pub(crate) fn take(&mut self, moment: &Moment) -> bool {
        let batch = moment.batch;
        match moment.what {
            What::Made => {
                if self.delivered.contains(&batch) || self.waits.contains_key(&batch) {
                    return false;
                }
                let side = usize::from(moment.device.is_some());
                self.waits.insert(batch, side);
                self.waiting[side] += 1;
                true
            }
            What::Delivered => {
                self.delivered.insert(batch);
                let Some(side) = self.waits.remove(&batch) else { return false };
                self.waiting[side] -= 1;
                true
            }
            What::Claimed | What::Rescued | What::Lost => false,
        }
    }

    /// Waiting batches: made by the host, made by devices.
    pub(crate) fn waiting(&self) -> [u32; 2] {
        self.waiting
    }
}

/// How many batches waited, at every event that changed it; of very many events, the peaks.
pub(crate) fn waiting(moments: &[Moment], seconds: f64) -> Vec<Waiting> {
    let mut queue = Queue::default();
    let mut points = vec![Waiting::default()];
    for moment in moments {
        if queue.take(moment) {
            let [front, back] = queue.waiting();
            points.push(Waiting { t_s: moment.t_s, front, back });
        }
    }
    if points.len() > MOST_POINTS { peaks(&points, seconds) } else { points }
}

/// The most that waited in each of [`COLUMNS`] parts of the epoch.
fn peaks(points: &[Waiting], seconds: f64) -> Vec<Waiting> {
    let mut peaks: Vec<Waiting> = Vec::new();
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let width_s = (seconds / COLUMNS as f64).max(f64::MIN_POSITIVE);
    let mut ends_s = 0.0;
    for point in points {
        match peaks.last_mut() {
            Some(peak) if point.t_s < ends_s => {
                peak.front = peak.front.max(point.front);
                peak.back = peak.back.max(point.back);
            }
            _ => {
                peaks.push(*point);
                ends_s = point.t_s + width_s;
            }
        }
    }
    peaks
}

/// CPUs in use between observations.
pub(crate) fn cores(looks: &[UsageSample]) -> Vec<Step> {
    let known: Vec<(f64, f64)> =
        looks.iter().filter_map(|look| Some((look.t_s, look.cpu_s?))).collect();
    let mut steps = Vec::new();
    let mut from: Option<(f64, f64)> = None;
    for (i, &(t_s, cpu_s)) in known.iter().enumerate() {
        let Some((from_s, from_cpu_s)) = from else {
            from = Some((t_s, cpu_s));
            continue;
        };
        // An observation too close to the next one, or to the end, is merged with it.
        let is_near = known.get(i + 1).is_some_and(|next| next.0 - t_s < NEAR_S);
        let value = (cpu_s - from_cpu_s) / (t_s - from_s);
        if !is_near && value.is_finite() {
            steps.push(Step { from_s, to_s: t_s, value: value.max(0.0) });
            from = Some((t_s, cpu_s));
        }
    }
    steps
}

/// Memory at every observation.
pub(crate) fn memory(looks: &[UsageSample]) -> Vec<Held> {
    let known =
        looks.iter().filter_map(|l| Some(Held { t_s: l.t_s, bytes: l.pss_bytes? }));
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(t_s: f64, batch: u32, device: Option<u16>, what: What) -> Moment {
        Moment { t_s, batch, device, what }
    }

    #[test]
    fn the_rates_of_all_intervals_are_the_images_of_the_epoch() {
        let moments: Vec<Moment> = (0..40_u32)
            .map(|i| moment(f64::from(i * i) / 200.0, i, None, What::Delivered))
            .collect();
        let steps = rate(&moments, 8.0, interval_s(8.0, 40), 62.5);
        assert_eq!(steps.len(), 8);
        let images: f64 = steps.iter().map(|s| s.value * (s.to_s - s.from_s)).sum();
        assert!((images - 2500.0).abs() < 1e-6, "{images}");
        assert_eq!((steps[0].from_s, steps[7].to_s), (0.0, 8.0));
        // 15 batches in the first second: until 14² / 200.
        assert!((steps[0].value - 15.0 * 62.5).abs() < 1e-9, "{:?}", steps[0]);
    }

    #[test]
    fn a_batch_waits_from_when_it_was_first_made_until_it_is_delivered() {
        let moments = [
            moment(0.1, 0, None, What::Claimed),
            moment(0.2, 9, Some(0), What::Claimed),
            moment(1.0, 0, None, What::Made),
            moment(1.0, 0, None, What::Delivered),
            moment(2.0, 9, Some(0), What::Made),
            moment(2.5, 9, None, What::Made), // for nothing
            moment(3.0, 9, Some(0), What::Delivered),
            moment(3.5, 9, Some(0), What::Made), // late
        ];
        let at = |t_s, front, back| Waiting { t_s, front, back };
        let expected =
            [at(0.0, 0, 0), at(1.0, 1, 0), at(1.0, 0, 0), at(2.0, 0, 1), at(3.0, 0, 0)];
        assert_eq!(waiting(&moments, 4.0), expected);
    }

    #[test]
    fn of_very_many_points_the_peaks_stay() {
        let mut moments = Vec::new();
        for batch in 0..5000_u32 {
            let t_s = f64::from(batch);
            moments.push(moment(t_s, batch, None, What::Made));
            if batch % 10 == 9 {
                let all = batch - 9..=batch;
                moments.extend(all.map(|b| moment(t_s, b, None, What::Delivered)));
            }
        }
        let points = waiting(&moments, 5000.0);
        assert!(points.len() <= COLUMNS + 1, "{}", points.len());
        assert!(points.iter().skip(1).all(|p| p.front == 10), "{points:?}");
    }

    #[test]
    fn cores_are_processor_seconds_by_seconds() {
        let look = |t_s, cpu_s| UsageSample { t_s, cpu_s: Some(cpu_s), pss_bytes: None };
        let looks = [look(0.0, 0.0), look(0.5, 0.5), look(1.0, 1.5), look(1.01, 1.6)];
        let step = |from_s, to_s, value| Step { from_s, to_s, value };
        let steps = cores(&looks);
        assert_eq!(steps[0], step(0.0, 0.5, 1.0));
        assert_eq!((steps[1].from_s, steps[1].to_s), (0.5, 1.01));
        assert!((steps[1].value - 1.1 / 0.51).abs() < 1e-9);
        assert_eq!(steps.len(), 2);
        assert!(cores(&looks[..1]).is_empty() && memory(&looks).is_empty());
    }
}
