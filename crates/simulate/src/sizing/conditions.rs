//! The conditions under which a host was measured, and why the figures may not be trusted.
//!
//! Load makes a host look slow and a device look worth its money. A verdict therefore requires figures
//! of an idle machine: nobody else used the CPUs, nothing queued for them or for storage, and the
//! workers got the CPU time that they could use. This is pure arithmetic: the code that measures reads
//! the kernel's figures.

use serde::{Deserialize, Serialize};

/// Other programs may use this fraction of the CPUs: about what a desktop or a monitoring agent takes.
const MOST_OTHERS: f64 = 0.15;

/// While the measuring program rests, tasks may queue for a CPU or for storage during this fraction of
/// the time (pressure-stall information, `some`).
const MOST_PRESSURE: f64 = 0.2;

/// Workers that read from memory and feed a consumer without limits are busy for at least this fraction
/// of the time: 0.99 on an idle machine.
const LEAST_SHARE: f64 = 0.8;

/// The observed state of the machine. `None` means that the kernel does not report it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// CPUs that the workers may use.
    pub processors: u32,
    /// CPUs that other programs used in the meantime, on average.
    pub others: Option<f64>,
    /// CPUs that the hypervisor gave to other machines in the meantime.
    pub stolen: Option<f64>,
    /// The fraction of the time in which tasks queued for a CPU before anything was measured.
    pub cpu_pressure: Option<f64>,
    /// The fraction of the time in which tasks waited for storage while data in memory were measured.
    pub io_pressure: Option<f64>,
}

/// Why figures cannot be trusted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Doubt {
    /// It was not recorded how busy the machine was.
    Unwatched,
    /// Other programs used CPUs.
    Others {
        /// How many.
        used: f64,
        /// Of how many.
        of: u32,
    },
    /// Other virtual machines used CPUs.
    Stolen {
        /// How many.
        used: f64,
        /// Of how many.
        of: u32,
    },
    /// Tasks queued for a CPU for this fraction of the time.
    CpuPressure(f64),
    /// Tasks waited for storage for this fraction of the time.
    IoPressure(f64),
    /// The workers got fewer CPUs than they could use, whoever had the rest.
    Starved {
        /// How many they got.
        got: f64,
        /// How many they could use.
        of: u32,
    },
}

/// The CPU time that `workers` got as a fraction of what they could use, from their rate and the cost
/// of an image; `None` if that is not known.
#[must_use]
pub(super) fn share(
    images_per_s: f64,
    cpu_ms_per_image: Option<f64>,
    could_use: u32,
) -> Option<f64> {
    let got = images_per_s * cpu_ms_per_image? / 1e3;
    Some(got / f64::from(could_use.max(1)))
}

/// Why figures measured under these conditions cannot be trusted, if so.
///
/// `share` is the CPU time that the `workers` workers got, as a fraction of what they could use.
#[must_use]
pub(super) fn doubt(
    conditions: Option<&Conditions>,
    share: Option<f64>,
    workers: u32,
) -> Option<Doubt> {
    let Some(seen) = conditions else { return Some(Doubt::Unwatched) };
    let of = seen.processors.max(1);
    let most = MOST_OTHERS * f64::from(of);
    let beyond = |value: Option<f64>, most: f64| value.filter(|value| *value > most);
    let could_use = workers.clamp(1, of);
    let starved = share.filter(|share| *share < LEAST_SHARE);
    let starved = starved.map(|share| share * f64::from(could_use));
    beyond(seen.others, most)
        .map(|used| Doubt::Others { used, of })
        .or_else(|| beyond(seen.stolen, most).map(|used| Doubt::Stolen { used, of }))
        .or_else(|| beyond(seen.cpu_pressure, MOST_PRESSURE).map(Doubt::CpuPressure))
        .or_else(|| beyond(seen.io_pressure, MOST_PRESSURE).map(Doubt::IoPressure))
        .or_else(|| starved.map(|got| Doubt::Starved { got, of: could_use }))
}

impl Doubt {
    /// What was observed, and what to do about it: the end of *measure again because …*.
    #[must_use]
    pub fn reason(self) -> String {
        let percent = |part: f64| format!("{:.0} % of the time", part * 100.0);
        match self {
            Self::Unwatched => {
                "the file does not say how busy the machine was; write it \
                again with this version's doctor"
                    .to_owned()
            }
            Self::Others { used, of } => format!(
                "other programs used {used:.1} of {of} processors meanwhile; run it when the \
                 machine is idle"
            ),
            Self::Stolen { used, of } => format!(
                "other virtual machines took {used:.1} of {of} processors meanwhile; run it \
                 when the host is idle"
            ),
            Self::CpuPressure(part) => format!(
                "tasks of other programs queued for a processor {}; run it when the machine is \
                 idle",
                percent(part)
            ),
            Self::IoPressure(part) => format!(
                "tasks waited for storage {}, though the data should be in memory; run it \
                 when the machine is idle",
                percent(part)
            ),
            Self::Starved { got, of } => format!(
                "the workers got {} of {of} processors, and data in memory give them no \
                 reason to wait; run it when the machine is idle",
                super::interval::three_digits(got)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Conditions = Conditions {
        processors: 2,
        others: Some(0.02),
        stolen: Some(0.0),
        cpu_pressure: Some(0.01),
        io_pressure: Some(0.0),
    };

    #[test]
    fn an_idle_machine_raises_no_doubt_up_to_the_edges() {
        let edge = Conditions {
            others: Some(0.3),
            stolen: Some(0.3),
            cpu_pressure: Some(0.2),
            io_pressure: Some(0.2),
            ..IDLE
        };
        for seen in [IDLE, edge] {
            assert_eq!(doubt(Some(&seen), Some(0.8), 2), None);
        }
        let silent = Conditions {
            others: None,
            stolen: None,
            cpu_pressure: None,
            io_pressure: None,
            ..IDLE
        };
        assert_eq!(doubt(Some(&silent), None, 2), None, "a kernel may say nothing");
    }

    #[test]
    fn each_sign_of_load_is_a_doubt_of_its_own() {
        let cases = [
            (Conditions { others: Some(0.31), ..IDLE }, "other programs used 0.3 of 2"),
            (Conditions { stolen: Some(1.0), ..IDLE }, "other virtual machines took 1.0"),
            (
                Conditions { cpu_pressure: Some(0.5), ..IDLE },
                "processor 50 % of the time",
            ),
            (Conditions { io_pressure: Some(0.21), ..IDLE }, "storage 21 % of the time"),
        ];
        for (seen, part) in cases {
            let reason = doubt(Some(&seen), Some(1.0), 2).expect(part).reason();
            assert!(reason.contains(part), "{reason}");
        }
        assert_eq!(doubt(None, Some(1.0), 2), Some(Doubt::Unwatched));
        assert!(matches!(
            doubt(Some(&IDLE), Some(0.79), 2),
            Some(Doubt::Starved { of: 2, .. })
        ));
    }

    #[test]
    fn a_rate_that_the_processor_time_cannot_explain_is_doubted() {
        // 217.7 images/s of 0.573 ms: 0.12 of the two CPUs that the workers had.
        let share = share(217.7, Some(0.573), 2);
        assert!((share.unwrap() - 0.0624).abs() < 1e-3, "{share:?}");
        let reason = doubt(Some(&IDLE), share, 2).unwrap().reason();
        assert!(reason.starts_with("the workers got 0.12 of 2 processors"), "{reason}");
    }
}
