//! Parses a fault: `die@P%`, `stall@P%[:SECONDS]`, `throttle@P%:FACTOR`,
//! `slow-start`, `late@P%`, `corrupt@P%`. The syntax is that of emulated devices.

use crate::world::Fault;

/// How many batches a cold device makes at half its rate.
const SLOW_START_BATCHES: u32 = 10;

/// The syntax of faults, for errors.
pub(super) const FORMS: &str = "write die@P%, stall@P% (forever), stall@P%:SECONDS, \
                                throttle@P%:FACTOR, slow-start, late@P% or corrupt@P%";

/// Parses a fault; `None` if it is not one.
pub(super) fn fault(text: &str) -> Option<Fault> {
    if text == "slow-start" {
        return Some(Fault::SlowStart { batches: SLOW_START_BATCHES });
    }
    let (kind, rest) = text.split_once('@')?;
    let (percent, argument) = match rest.split_once(':') {
        Some((percent, argument)) => (percent, Some(argument)),
        None => (rest, None),
    };
    let percent = percent.strip_suffix('%')?.parse().ok().filter(|p| *p <= 100)?;
    match (kind, argument) {
        ("die", None) => Some(Fault::Die { percent }),
        ("stall", None) => Some(Fault::Stall { percent, ns: u64::MAX }),
        ("stall", Some(seconds)) => {
            Some(Fault::Stall { percent, ns: nanoseconds(seconds.parse().ok()?)? })
        }
        ("throttle", Some(factor)) => {
            let factor =
                factor.parse().ok().filter(|f: &f64| f.is_finite() && *f > 0.0)?;
            Some(Fault::Throttle { percent, factor })
        }
        ("late", None) => Some(Fault::Late { percent }),
        ("corrupt", None) => Some(Fault::Corrupt { percent }),
        _ => None,
    }
}

/// Seconds as whole nanoseconds; `None` outside 0 to 1e9 seconds.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "0 to 1e18, as checked"
)]
pub(super) fn nanoseconds(seconds: f64) -> Option<u64> {
    (0.0..=1e9).contains(&seconds).then(|| (seconds * 1e9).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read() {
        let cases = [
            ("die@50%", "Die { percent: 50 }"),
            ("stall@50%:99.9", "Stall { percent: 50, ns: 99900000000 }"),
            ("stall@0%", "Stall { percent: 0, ns: 18446744073709551615 }"),
            ("throttle@30%:2", "Throttle { percent: 30, factor: 2.0 }"),
            ("slow-start", "SlowStart { batches: 10 }"),
            ("late@10%", "Late { percent: 10 }"),
            ("corrupt@20%", "Corrupt { percent: 20 }"),
        ];
        for (text, expected) in cases {
            assert_eq!(format!("{:?}", fault(text).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_fault_is_refused() {
        for text in [
            "",
            "die",
            "die@50",
            "die@101%",
            "die@50%:3",
            "stall@5%:-1",
            "throttle@5%",
            "throttle@5%:0",
            "throttle@5%:nan",
            "late@x%",
            "explode@5%",
            "slow-start@5%",
        ] {
            assert!(fault(text).is_none(), "{text}");
        }
    }
}
