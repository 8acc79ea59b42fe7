//! How busy the machine was while something was measured: what other programs and other virtual
//! machines used of its processors (`/proc/stat`), and for how long tasks waited for a processor
//! or for storage (pressure-stall information, `/proc/pressure`).
//!
//! Only looks; whether a figure may be trusted is decided elsewhere (`simulate::sizing`). What the
//! kernel does not say is `None`.

use std::fs;
use std::time::Instant;

use crate::threads::process;

/// What was seen between two looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Processors that other programs used, on average.
    pub others: Option<f64>,
    /// Processors that the hypervisor gave to other machines.
    pub stolen: Option<f64>,
    /// Part of the time in which some task waited for a processor, whoever used it.
    pub cpu_pressure: Option<f64>,
    /// Part of the time in which some task waited for storage.
    pub io_pressure: Option<f64>,
}

/// A first look; [`LoadWatch::end`] is the second.
#[derive(Debug)]
pub struct LoadWatch {
    began: Instant,
    before: Look,
}

/// Sums since the machine started, in seconds.
#[derive(Debug, Clone, Copy)]
struct Look {
    machine_s: Option<f64>,
    own_s: Option<f64>,
    stolen_s: Option<f64>,
    cpu_s: Option<f64>,
    io_s: Option<f64>,
}

impl Look {
    fn now() -> Self {
        Self {
            machine_s: process::machine_cpu_seconds(),
            own_s: process::cpu_seconds(),
            stolen_s: process::stolen_cpu_seconds(),
            cpu_s: stalled_seconds("cpu"),
            io_s: stalled_seconds("io"),
        }
    }
}

impl LoadWatch {
    /// Looks for the first time. Reads five small files of the kernel's.
    #[must_use]
    pub fn begin() -> Self {
        Self { began: Instant::now(), before: Look::now() }
    }

    /// Looks again. Processor time of devices that were emulated meanwhile counts as other
    /// programs'.
    #[must_use]
    pub fn end(self) -> Load {
        let after = Look::now();
        let seconds = self.began.elapsed().as_secs_f64().max(1e-9);
        let part = |sum: fn(&Look) -> Option<f64>| {
            let used = process::since(sum(&self.before), sum(&after))?;
            Some((used / seconds).max(0.0))
        };
        let all = part(|look| look.machine_s);
        let own = part(|look| look.own_s);
        Load {
            // Both are counted in ticks of 10 ms: what differs by less is nobody's.
            others: all.zip(own).map(|(all, own)| (all - own).max(0.0)),
            stolen: part(|look| look.stolen_s),
            cpu_pressure: part(|look| look.cpu_s).map(|part| part.min(1.0)),
            io_pressure: part(|look| look.io_s).map(|part| part.min(1.0)),
        }
    }
}

/// Seconds in which some task waited for the resource, since the machine started.
fn stalled_seconds(resource: &str) -> Option<f64> {
    some_seconds(&fs::read_to_string(format!("/proc/pressure/{resource}")).ok()?)
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`, in microseconds.
fn some_seconds(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = line.split_whitespace().find_map(|word| word.strip_prefix("total="))?;
    total.parse::<f64>().ok().map(|us| us / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_from_the_line_of_some() {
        let text = "some avg10=1.00 avg60=0.00 avg300=0.00 total=2500000\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(some_seconds(text), Some(2.5));
        assert_eq!(some_seconds("full avg10=0.00 total=7\n"), None);
        assert_eq!(some_seconds("some avg10=0.00 total=x\n"), None);
    }

    #[test]
    fn a_look_says_no_more_than_the_machine_has() {
        let watch = LoadWatch::begin();
        let began = Instant::now();
        while began.elapsed().as_millis() < 50 {
            std::hint::spin_loop();
        }
        let load = watch.end();
        let most = f64::from(process::cores()) * 1.5 + 1.0;
        assert!(load.others.expect("/proc/stat") <= most, "{load:?}");
        for part in [load.cpu_pressure, load.io_pressure].into_iter().flatten() {
            assert!((0.0..=1.0).contains(&part), "{load:?}");
        }
    }
}
