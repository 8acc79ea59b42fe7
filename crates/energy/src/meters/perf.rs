//! RAPL through perf: the PMU `power`, whose events count from the moment they are opened. The
//! kernel itself handles registers that wrap around.
//!
//! sysfs lists the events and their units; `event` asks the kernel to count.

mod event;

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::EnergyError;
use crate::meters::sysfs::{Files, Tree};
use crate::{Counter, Domain, Meter, Part};

const NAME: &str = "perf";
const PMU: &str = "sys/bus/event_source/devices/power";
const REMEDY: &str = "allow it with `sudo sysctl kernel.perf_event_paranoid=0`, or give the \
    program CAP_PERFMON";

/// How long an event may take to count something: a machine of 20 W uses the largest unit, a joule, in half of it.
const PATIENCE: Duration = Duration::from_millis(100);
/// The processors' own counters move once in this time.
const LOOK: Duration = Duration::from_millis(1);

/// The events to count, with what they include.
const EVENTS: [(&str, Part); 3] = [
    ("energy-pkg", Part::Processors),
    ("energy-ram", Part::Memory),
    ("energy-psys", Part::Other),
];

/// What the kernel is asked to count, on one processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The number of the PMU.
    pub pmu: u32,
    /// The number of the event in it.
    pub config: u64,
    /// The processor.
    pub cpu: u32,
}

/// An event that counts.
pub trait Count: Debug + Send {
    /// What it has counted, in the event's own unit.
    ///
    /// # Errors
    /// What the system says.
    fn count(&mut self) -> io::Result<u64>;
}

/// The events of the PMU `power`.
#[derive(Debug)]
pub struct Perf {
    files: Files,
    domains: Vec<Domain>,
    counts: Vec<Counting>,
}

#[derive(Debug)]
struct Counting {
    count: Box<dyn Count>,
    joules_per_count: f64,
    place: PathBuf,
}

impl Perf {
    /// Opens the events on one processor of each package, through the kernel. Blocks for up to 100 ms where they
    /// do not count.
    ///
    /// # Errors
    /// There is no such PMU, this user may not count, or nothing is counted: many virtual machines show the events of
    /// a processor that they do not let count.
    pub fn open(tree: &Tree) -> Result<Self, EnergyError> {
        let mut perf = Self::open_by(tree, &event::open)?;
        if perf.counts_within(PATIENCE)? {
            Ok(perf)
        } else {
            Err(perf
                .files
                .absent("the PMU `power` counts nothing, as in many virtual machines"))
        }
    }

    /// Whether an event counts something within this time.
    fn counts_within(&mut self, patience: Duration) -> Result<bool, EnergyError> {
        let until = Instant::now() + patience;
        loop {
            if self.read()?.iter().any(|counter| counter.energy_uj > 0) {
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            thread::sleep(LOOK);
        }
    }

    /// The same with another way to count (tests), which need not count anything yet.
    ///
    /// # Errors
    /// As [`Perf::open`].
    pub fn open_by(
        tree: &Tree,
        open: &dyn Fn(Event) -> io::Result<Box<dyn Count>>,
    ) -> Result<Self, EnergyError> {
        let files = Files::new(tree, NAME, REMEDY);
        let entries = files.list(PMU).map_err(|error| {
            if matches!(error, EnergyError::Absent { .. }) {
                return files.absent("the kernel has no PMU `power`");
            }
            error
        })?;
        let entry = |name: &str| {
            let found = entries.iter().find(|path| path.ends_with(name)).cloned();
            found.ok_or_else(|| files.absent(format!("the PMU `power` has no `{name}`")))
        };
        let kind = entry("type")?;
        let pmu = u32::try_from(files.number(&kind)?)
            .map_err(|_| files.garbage(&kind, "too much", "the number of a PMU"))?;
        let cpus = cpus(&files, &entry("cpumask")?)?;
        let events = entry("events")?;
        let mut domains = Vec::new();
        let mut counts = Vec::new();
        for (name, part) in EVENTS {
            let path = events.join(name);
            let Some(text) = files.text_if_there(&path)? else { continue };
            let config = config(&text).ok_or_else(|| {
                files.garbage(&path, &text, "an event such as event=0x02")
            })?;
            let joules_per_count = scale(&files, &events.join(format!("{name}.scale")))?;
            for &cpu in &cpus {
                let count = open(Event { pmu, config, cpu })
                    .map_err(|error| not_opened(&files, &path, error))?;
                domains.push(Domain::measured(NAME, format!("{name}/cpu{cpu}"), part));
                counts.push(Counting { count, joules_per_count, place: path.clone() });
            }
        }
        if counts.is_empty() {
            return Err(files.absent("the PMU `power` has no event energy-pkg"));
        }
        Ok(Self { files, domains, counts })
    }
}

fn not_opened(files: &Files, path: &Path, source: io::Error) -> EnergyError {
    if source.kind() == io::ErrorKind::PermissionDenied {
        return files.denied("perf_event_open");
    }
    EnergyError::Unreadable { meter: NAME.to_owned(), place: path.to_owned(), source }
}

/// `event=0x02`: the number.
fn config(text: &str) -> Option<u64> {
    let number = text.strip_prefix("event=")?;
    match number.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => number.parse().ok(),
    }
}

/// Joules per count.
fn scale(files: &Files, path: &Path) -> Result<f64, EnergyError> {
    let text = files.text(path)?;
    let scale = text.parse().ok().filter(|scale: &f64| *scale > 0.0 && *scale < 1.0);
    scale
        .ok_or_else(|| files.garbage(path, &text, "joules of one count, between 0 and 1"))
}

/// `0,36` or `0-1`: one processor of each package.
fn cpus(files: &Files, path: &Path) -> Result<Vec<u32>, EnergyError> {
    let text = files.text(path)?;
    let wrong = || files.garbage(path, &text, "a list of processors such as 0,36");
    let mut cpus = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first: u32 = first.parse().map_err(|_| wrong())?;
        let last: u32 = last.parse().map_err(|_| wrong())?;
        // No machine has this many packages.
        if first > last || last - first > 1024 {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

impl Meter for Perf {
    fn name(&self) -> &str {
        NAME
    }

    fn domains(&self) -> &[Domain] {
        &self.domains
    }

    fn read(&mut self) -> Result<Vec<Counter>, EnergyError> {
        let Self { files, counts, .. } = self;
        let read = |counting: &mut Counting| {
            let count = counting
                .count
                .count()
                .map_err(|error| not_opened(files, &counting.place, error))?;
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "counts of some 2^-32 J; 2^53 of them are hours, and then precise enough"
            )]
            let energy_uj = (count as f64 * counting.joules_per_count * 1e6) as u64;
            Ok(Counter { energy_uj })
        };
        counts.iter_mut().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts so much with each look.
    #[derive(Debug)]
    struct Steps(u64, u64);

    impl Count for Steps {
        fn count(&mut self) -> io::Result<u64> {
            self.0 += self.1;
            Ok(self.0)
        }
    }

    /// A virtual machine's `energy-psys` was taken for a meter, and its runs for runs without energy.
    #[test]
    fn what_counts_nothing_is_told_from_what_counts() {
        let of = |step| {
            let count = Box::new(Steps(0, step));
            let counting =
                Counting { count, joules_per_count: 0.1, place: "psys".into() };
            Perf {
                files: Files::new(&Tree::at("/"), NAME, REMEDY),
                domains: vec![Domain::measured(
                    NAME,
                    "energy-psys/cpu0".to_owned(),
                    Part::Other,
                )],
                counts: vec![counting],
            }
        };
        assert!(!of(0).counts_within(Duration::from_millis(3)).unwrap());
        assert!(of(1).counts_within(Duration::from_secs(10)).unwrap());
    }

    #[test]
    fn an_event_is_a_number_in_either_form() {
        let table = [
            ("event=0x02", Some(2)),
            ("event=5", Some(5)),
            ("event=0xzz", None),
            ("config=2", None),
            ("", None),
        ];
        for (text, number) in table {
            assert_eq!(config(text), number, "{text}");
        }
    }
}
