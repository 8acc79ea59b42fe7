//! Reads meters while something runs: at its start, at its end, and once a second, so that no
//! register wraps around unseen and changes of power are noticed.
//!
//! It has a thread of its own (`be-energy`). Reading more often costs more than it tells
//! (arXiv 2604.26815). What the figures mean is not decided here.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::EnergyError;
use crate::{Counter, Meter, Part};

/// The time between readings: at most twice a second, and often enough for every register.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Meters that are being read.
#[derive(Debug)]
pub struct Session {
    /// Asks the thread what was used so far. Dropping it ends the thread.
    asks: Option<Sender<Sender<Vec<MeteredDomain>>>>,
    /// `None` once it was joined.
    thread: Option<JoinHandle<(f64, Vec<Track>)>>,
}

/// What meters counted.
#[derive(Debug, Default)]
pub struct Metered {
    /// From the first reading to the last.
    pub seconds: f64,
    /// Every domain of every meter that did not fail.
    pub domains: Vec<MeteredDomain>,
    /// Meters that failed: what they had counted is not reported, because it is incomplete.
    pub failures: Vec<EnergyError>,
    /// The meters that did not fail, for another session.
    pub meters: Vec<Box<dyn Meter>>,
}

/// What one domain used.
#[derive(Debug, Clone, PartialEq)]
pub struct MeteredDomain {
    /// The meter's name.
    pub meter: String,
    /// The domain's name.
    pub name: String,
    /// What it is a part of.
    pub part: Part,
    /// Joules in the session.
    pub joules: f64,
    /// `measured(METER:DOMAIN)`.
    pub source: String,
}

/// A meter that is being read.
#[derive(Debug)]
struct Track {
    meter: Box<dyn Meter>,
    first: Vec<Counter>,
    last: Vec<Counter>,
    failure: Option<EnergyError>,
}

impl Track {
    fn read(&mut self) {
        if self.failure.is_none() {
            match self.meter.read() {
                Ok(counters) => self.last = counters,
                Err(error) => self.failure = Some(error),
            }
        }
    }
}

impl Session {
    /// Reads every meter, and continues to do so until the session ends.
    ///
    /// # Errors
    /// A meter cannot be read, or the thread cannot be started.
    pub fn begin(meters: Vec<Box<dyn Meter>>) -> Result<Self, EnergyError> {
        Self::reading_every(READ_EVERY, meters)
    }

    /// As [`Self::begin`], with this time between readings.
    fn reading_every(
        interval: Duration,
        meters: Vec<Box<dyn Meter>>,
    ) -> Result<Self, EnergyError> {
        let began = Instant::now();
        let mut tracks = Vec::with_capacity(meters.len());
        for mut meter in meters {
            let first = meter.read()?;
            tracks.push(Track { meter, last: first.clone(), first, failure: None });
        }
        let (asks, asked) = channel();
        let look = move || {
            read_until_ended(&mut tracks, &asked, interval);
            (began.elapsed().as_secs_f64(), tracks)
        };
        let thread = std::thread::Builder::new()
            .name("be-energy".to_owned())
            .spawn(look)
            .map_err(|source| EnergyError::Spawning { source })?;
        Ok(Self { asks: Some(asks), thread: Some(thread) })
    }

    /// Reads every meter once more and returns what was used so far; the session continues. Waits for
    /// a reading, or for two if one is in progress. Meters that have failed are left out.
    #[must_use]
    pub fn so_far(&self) -> Vec<MeteredDomain> {
        let (reply, answer) = channel();
        let asked = self.asks.as_ref().and_then(|asks| asks.send(reply).ok());
        // A thread that died does not answer; `end` reports it.
        asked.and_then(|()| answer.recv().ok()).unwrap_or_default()
    }

    /// Reads every meter once more and returns what was used. Waits for a reading, or for two if one
    /// is in progress.
    #[must_use]
    pub fn end(mut self) -> Metered {
        let mut metered = Metered::default();
        let Some((seconds, tracks)) = self.join() else {
            metered.failures.push(EnergyError::Thread);
            return metered;
        };
        metered.seconds = seconds;
        for track in tracks {
            match track.failure {
                Some(failure) => metered.failures.push(failure),
                None => {
                    metered.domains.extend(used(&track));
                    metered.meters.push(track.meter);
                }
            }
        }
        metered
    }

    /// Ends the thread; `None` if it died or had ended before.
    fn join(&mut self) -> Option<(f64, Vec<Track>)> {
        drop(self.asks.take());
        self.thread.take()?.join().ok()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.join();
    }
}

/// Reads once in each interval, on request, and once more at the end.
fn read_until_ended(
    tracks: &mut [Track],
    asked: &Receiver<Sender<Vec<MeteredDomain>>>,
    interval: Duration,
) {
    loop {
        let asked = asked.recv_timeout(interval);
        tracks.iter_mut().for_each(Track::read);
        match asked {
            Ok(reply) => {
                let sound = tracks.iter().filter(|track| track.failure.is_none());
                // Nobody may be waiting for the answer any more.
                let _ = reply.send(sound.flat_map(used).collect());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn used(track: &Track) -> Vec<MeteredDomain> {
    let meter = track.meter.name();
    let counters = track.first.iter().zip(&track.last);
    let domains = track.meter.domains().iter().zip(counters);
    domains
        .map(|(domain, (first, last))| {
            #[expect(clippy::cast_precision_loss, reason = "2^53 microjoules are 9 GJ")]
            let joules = last.energy_uj.saturating_sub(first.energy_uj) as f64 / 1e6;
            MeteredDomain {
                meter: meter.to_owned(),
                name: domain.name.clone(),
                part: domain.part,
                joules,
                source: domain.source.clone(),
            }
        })
        .collect()
}

/// A sum of measured domains.
#[derive(Debug, Clone, PartialEq)]
pub struct Total {
    /// Joules.
    pub joules: f64,
    /// `measured(…)` with every domain that was added.
    pub source: String,
}

/// What the whole host used: by the first meter that measures the whole machine, or else the sum of
/// processors, memory and accelerators, each by the first meter that has them. Nothing is counted
/// twice. `None` if no meter measures the processors.
#[must_use]
pub fn total(domains: &[MeteredDomain]) -> Option<Total> {
    if let Some(machine) = domains.iter().find(|domain| domain.part == Part::Machine) {
        return Some(Total { joules: machine.joules, source: machine.source.clone() });
    }
    let of = |part: Part| {
        let first = domains.iter().find(|domain| domain.part == part).map(|d| &d.meter);
        domains.iter().filter(move |d| d.part == part && Some(&d.meter) == first)
    };
    of(Part::Processors).next()?;
    let added: Vec<&MeteredDomain> = [Part::Processors, Part::Memory, Part::Accelerator]
        .into_iter()
        .flat_map(of)
        .collect();
    let names: Vec<String> =
        added.iter().map(|domain| format!("{}:{}", domain.meter, domain.name)).collect();
    Some(Total {
        joules: added.iter().map(|domain| domain.joules).sum(),
        source: format!("measured({})", names.join(" + ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Domain;

    /// Counts its readings; fails from the `fails_at`-th on.
    #[derive(Debug)]
    struct Counting {
        domains: Vec<Domain>,
        n_read: u64,
        fails_at: u64,
    }

    impl Counting {
        fn boxed(name: &str, fails_at: u64) -> Box<dyn Meter> {
            let domain = Domain::measured("counting", name.to_owned(), Part::Processors);
            Box::new(Self { domains: vec![domain], n_read: 0, fails_at })
        }
    }

    impl Meter for Counting {
        fn name(&self) -> &str {
            "counting"
        }

        fn domains(&self) -> &[Domain] {
            &self.domains
        }

        fn read(&mut self) -> Result<Vec<Counter>, EnergyError> {
            self.n_read += 1;
            if self.n_read >= self.fails_at {
                let (meter, place) = ("counting".to_owned(), "it".to_owned());
                return Err(EnergyError::Gone { meter, place });
            }
            Ok(vec![Counter { energy_uj: self.n_read * 1_000_000 }])
        }
    }

    /// Longer than any test takes: all readings are at the start, on request and at the end.
    const RARELY: Duration = Duration::from_secs(120);

    #[test]
    fn a_session_ends_at_once_with_a_last_reading() {
        let meters = vec![Counting::boxed("a", 99)];
        let session = Session::reading_every(RARELY, meters).unwrap();
        let began = Instant::now();
        let metered = session.end();
        assert!(began.elapsed() < RARELY / 2, "it slept");
        assert_eq!(metered.domains.len(), 1);
        assert!((metered.domains[0].joules - 1.0).abs() < 1e-9, "{metered:?}");
        assert_eq!(metered.domains[0].source, "measured(counting:a)");
        assert_eq!(metered.meters.len(), 1, "the meters come back");
    }

    #[test]
    fn what_was_used_so_far_is_told_and_the_session_goes_on() {
        let meters = vec![Counting::boxed("a", 99), Counting::boxed("b", 3)];
        let session = Session::reading_every(RARELY, meters).unwrap();
        let joules = |domains: Vec<MeteredDomain>| -> Vec<f64> {
            domains.iter().map(|domain| domain.joules).collect()
        };
        assert_eq!(joules(session.so_far()), [1.0, 1.0]);
        assert_eq!(joules(session.so_far()), [2.0], "the other has failed");
        let metered = session.end();
        assert_eq!((joules(metered.domains), metered.failures.len()), (vec![3.0], 1));
    }

    #[test]
    fn a_meter_that_fails_on_the_way_says_nothing_and_others_go_on() {
        let meters = vec![Counting::boxed("a", 2), Counting::boxed("b", 99)];
        let metered = Session::begin(meters).unwrap().end();
        let names: Vec<&str> = metered.domains.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(names, ["b"], "half a figure would be a wrong one");
        assert_eq!(metered.failures.len(), 1);
        assert_eq!(metered.meters.len(), 1);
        assert!(Session::begin(vec![Counting::boxed("a", 1)]).is_err(), "not even once");
    }

    fn used(meter: &str, name: &str, part: Part, joules: f64) -> MeteredDomain {
        let source = format!("measured({meter}:{name})");
        MeteredDomain {
            meter: meter.to_owned(),
            name: name.to_owned(),
            part,
            joules,
            source,
        }
    }

    #[test]
    fn nothing_is_counted_twice() {
        let rapl = [
            used("rapl", "package-0", Part::Processors, 10.0),
            used("rapl", "package-0/core", Part::Other, 8.0),
            used("rapl", "package-1", Part::Processors, 20.0),
            used("rapl", "package-0/dram", Part::Memory, 3.0),
            used("perf", "energy-pkg/cpu0", Part::Processors, 10.0),
            used("nvml", "gpu-0", Part::Accelerator, 100.0),
        ];
        let sum = total(&rapl).unwrap();
        assert!((sum.joules - 133.0).abs() < 1e-9);
        assert_eq!(
            sum.source,
            "measured(rapl:package-0 + rapl:package-1 + rapl:package-0/dram + nvml:gpu-0)"
        );
        let plug = used("command", "wall", Part::Machine, 500.0);
        let all: Vec<_> = rapl.iter().cloned().chain([plug]).collect();
        assert!((total(&all).unwrap().joules - 500.0).abs() < 1e-9);
        assert_eq!(total(&rapl[5..]), None, "an accelerator is no host");
        assert_eq!(total(&[]), None);
    }
}
