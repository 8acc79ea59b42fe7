//! How faults are written (`die@50%`, `stall@25%:3`, `refuse`, …) and how they combine.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A fault that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{spec}` is not a fault; the faults are die@P%, stall@P%:SECONDS, throttle@P%:FACTOR, \
     slow-start, corrupt@P%, lie@P%, duplicate@P%, late@P% and refuse, with P from 0 to 100, \
     SECONDS up to 86400 and FACTOR from 1 to 1000"
)]
pub struct FaultError {
    /// As given.
    pub spec: String,
}

/// A part of a hundred, from 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Percent(f64);

impl Percent {
    /// That part, if it is one.
    #[must_use]
    pub fn new(percent: f64) -> Option<Self> {
        (0.0..=100.0).contains(&percent).then_some(Self(percent))
    }

    /// That part of `n`, rounded down.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a number of batches is far below 2^53 and never negative"
    )]
    pub fn of(self, n: u64) -> u64 {
        (n as f64 * self.0 / 100.0).floor() as u64
    }

    /// Whether a uniform random word falls into that part.
    #[must_use]
    pub fn covers(self, word: u32) -> bool {
        f64::from(word) < self.0 / 100.0 * 4_294_967_296.0
    }
}

/// One `--fault`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// Ends without a word at that part of its jobs in an epoch.
    Die {
        /// The part.
        at: Percent,
    },
    /// Answers no job for some time from that part of its jobs in each epoch on; its work is done
    /// in its own time.
    Stall {
        /// The part.
        at: Percent,
        /// For how long.
        pause: Duration,
    },
    /// Is slower, and busy for longer, for all jobs of each epoch from that part on.
    Throttle {
        /// The part.
        at: Percent,
        /// Times its own time.
        factor: f64,
    },
    /// Takes twice its own time for its first ten jobs since it was started.
    SlowStart,
    /// Flips a byte after the checksum was taken.
    Corrupt {
        /// Probability for each job.
        chance: Percent,
    },
    /// Flips a bit of one sample before the checksum is taken: what only who makes the sample again
    /// can notice.
    Lie {
        /// Probability for each job.
        chance: Percent,
    },
    /// Answers twice.
    Duplicate {
        /// Probability for each job.
        chance: Percent,
    },
    /// Makes a result in its own time and delivers it after five times as long; nothing waits for it.
    Late {
        /// Probability for each job.
        chance: Percent,
    },
    /// Refuses every job.
    Refuse,
}

impl Fault {
    /// The part of its jobs in an epoch at which it strikes, of one that strikes there.
    #[must_use]
    pub fn point(self) -> Option<Percent> {
        match self {
            Self::Die { at } | Self::Stall { at, .. } | Self::Throttle { at, .. } => {
                Some(at)
            }
            Self::SlowStart
            | Self::Corrupt { .. }
            | Self::Lie { .. }
            | Self::Duplicate { .. }
            | Self::Late { .. }
            | Self::Refuse => None,
        }
    }
}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(spec: &str) -> Result<Self, FaultError> {
        parse(spec).ok_or_else(|| FaultError { spec: spec.to_owned() })
    }
}

fn parse(spec: &str) -> Option<Fault> {
    let (kind, rest) = match spec.split_once('@') {
        Some((kind, rest)) => (kind, Some(rest)),
        None => (spec, None),
    };
    let (percent, extra) = match rest.map(|rest| rest.split_once(':').ok_or(rest)) {
        Some(Ok((percent, extra))) => (Some(percent), Some(extra.parse::<f64>().ok()?)),
        Some(Err(percent)) => (Some(percent), None),
        None => (None, None),
    };
    let percent = match percent {
        Some(text) => Some(Percent::new(text.strip_suffix('%')?.parse().ok()?)?),
        None => None,
    };
    Some(match (kind, percent, extra) {
        ("die", Some(at), None) => Fault::Die { at },
        ("stall", Some(at), Some(seconds)) => {
            let pause = Duration::try_from_secs_f64(seconds).ok();
            Fault::Stall { at, pause: pause.filter(|p| p.as_secs() <= 86_400)? }
        }
        ("throttle", Some(at), Some(factor)) if (1.0..=1000.0).contains(&factor) => {
            Fault::Throttle { at, factor }
        }
        ("slow-start", None, None) => Fault::SlowStart,
        ("corrupt", Some(chance), None) => Fault::Corrupt { chance },
        ("lie", Some(chance), None) => Fault::Lie { chance },
        ("duplicate", Some(chance), None) => Fault::Duplicate { chance },
        ("late", Some(chance), None) => Fault::Late { chance },
        ("refuse", None, None) => Fault::Refuse,
        _ => return None,
    })
}

/// As it is read.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Die { at } => write!(f, "die@{at}"),
            Self::Stall { at, pause } => write!(f, "stall@{at}:{}", pause.as_secs_f64()),
            Self::Throttle { at, factor } => write!(f, "throttle@{at}:{factor}"),
            Self::SlowStart => f.write_str("slow-start"),
            Self::Corrupt { chance } => write!(f, "corrupt@{chance}"),
            Self::Lie { chance } => write!(f, "lie@{chance}"),
            Self::Duplicate { chance } => write!(f, "duplicate@{chance}"),
            Self::Late { chance } => write!(f, "late@{chance}"),
            Self::Refuse => f.write_str("refuse"),
        }
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(n: f64) -> Percent {
        Percent::new(n).unwrap()
    }

    #[test]
    fn every_fault_is_read() {
        for (spec, fault) in [
            ("die@0%", Fault::Die { at: percent(0.0) }),
            ("stall@50%:2.5", {
                Fault::Stall { at: percent(50.0), pause: Duration::from_millis(2500) }
            }),
            ("throttle@99.5%:3", Fault::Throttle { at: percent(99.5), factor: 3.0 }),
            ("slow-start", Fault::SlowStart),
            ("corrupt@1%", Fault::Corrupt { chance: percent(1.0) }),
            ("lie@2%", Fault::Lie { chance: percent(2.0) }),
            ("duplicate@100%", Fault::Duplicate { chance: percent(100.0) }),
            ("late@10%", Fault::Late { chance: percent(10.0) }),
            ("refuse", Fault::Refuse),
        ] {
            assert_eq!(spec.parse(), Ok(fault), "{spec}");
            assert_eq!(fault.to_string(), spec);
        }
    }

    #[test]
    fn anything_else_is_refused_with_all_faults() {
        for spec in [
            "",
            "die",
            "die@50",
            "die@101%",
            "die@-1%",
            "die@NaN%",
            "die@5%:1",
            "stall@5%",
            "stall@5%:-1",
            "stall@5%:1e9",
            "throttle@5%:0.5",
            "throttle@5%:inf",
            "explode@5%",
            "slow-start@5%",
            "refuse@5%",
            "late@x%",
            "@5%",
            "die@%",
        ] {
            let error = spec.parse::<Fault>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!(
                    "`{spec}` is not a fault; the faults are die@P%"
                ))
            );
        }
    }

    #[test]
    fn a_part_of_the_jobs_is_rounded_down() {
        assert_eq!(percent(0.0).of(100), 0);
        assert_eq!(percent(50.0).of(7), 3);
        assert_eq!(percent(99.0).of(100), 99);
        assert_eq!(percent(100.0).of(100), 100);
    }

    #[test]
    fn never_is_never_and_always_is_always() {
        assert!(!percent(0.0).covers(0));
        assert!(percent(100.0).covers(u32::MAX));
        assert!(percent(50.0).covers(0x7fff_ffff) && !percent(50.0).covers(0x8000_0000));
    }
}
