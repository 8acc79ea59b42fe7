//! Buy, do not buy, or measure again: the answer in one line, decided from intervals and from reasons
//! not to trust them.
//!
//! The decision is one-sided on purpose. *Buy* must hold with everything at its worst for the device,
//! *do not buy* with everything at its best. In between, and whenever the machine was not idle, the
//! answer is *measure again*. Noise may therefore cost an answer but never reverses one.
//! `conditions.rs` has the reasons for doubt, and `sizing.rs` computes the gains.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::conditions::Doubt;
use super::interval::Interval;

/// A gain below this fraction is lost in everything that is not modelled.
pub(super) const LEAST_GAIN: f64 = 0.02;

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Which of the three answers.
    pub kind: Kind,
    /// The device to buy, and how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buy: Option<Buy>,
    /// The answer with its reason, in words.
    pub words: String,
}

/// Which answer it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Devices make training faster, wherever the figures lie in their intervals.
    Buy,
    /// They do not, wherever the figures lie in their intervals.
    DoNotBuy,
    /// The figures do not decide.
    MeasureAgain,
}

/// A number of devices of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buy {
    /// How many.
    pub n: u32,
    /// Which kind.
    pub device: String,
}

/// Everything that the decision depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// What is to be fed.
    pub accelerator: String,
    /// Whether the host alone feeds it even at its slowest.
    pub host_feeds: bool,
    /// Why the figures cannot be trusted.
    pub doubt: Option<Doubt>,
    /// The outcome for each kind of device.
    pub offers: Vec<Offer>,
}

/// The outcome for a kind of device.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// Its name.
    pub device: String,
    /// Whether its speed has never been measured.
    pub is_uncalibrated: bool,
    /// By number of devices, ascending.
    pub cases: Vec<Case>,
}

/// A number of devices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// How many.
    pub n: u32,
    /// The rate relative to the host alone.
    pub speedup: Interval,
    /// Whether the accelerator is fed even if host and devices are at their slowest.
    pub is_fed: bool,
}

/// Decides.
///
/// A host that feeds the accelerator on a busy machine also does so on an idle one, where it is even
/// faster. Every other answer requires figures without doubts.
#[must_use]
pub fn decide(evidence: &Evidence) -> Verdict {
    let Evidence { accelerator, host_feeds, doubt, offers } = evidence;
    if *host_feeds {
        return do_not(&format!("the host alone keeps {accelerator} busy"));
    }
    if let Some(doubt) = doubt {
        return again(&doubt.reason());
    }
    let payers = offers.iter().filter_map(|offer| Some((offer, offer.payer()?)));
    let best = payers
        .reduce(|best, other| if is_better(other.1, best.1) { other } else { best });
    if let Some((offer, case)) = best {
        return buy(offer, case, accelerator);
    }
    let cases = || {
        offers.iter().flat_map(|offer| offer.cases.iter().map(move |case| (offer, case)))
    };
    let Some((offer, case)) =
        cases().max_by(|a, b| a.1.speedup.high.total_cmp(&b.1.speedup.high))
    else {
        return again("no device was measured; name one with --csd, without --quick");
    };
    let gain = case.speedup.high - 1.0;
    if gain < LEAST_GAIN {
        return do_not(&format!(
            "{} of {} would gain {} at most",
            case.n,
            offer.device,
            percent(gain)
        ));
    }
    again(&format!(
        "these figures do not decide: with {} of {} training is {} times as fast{}",
        case.n,
        offer.device,
        case.speedup.ratios(),
        offer.caveat()
    ))
}

/// Prefers fewer devices that feed the accelerator, or else more speed.
fn is_better(a: &Case, b: &Case) -> bool {
    match (a.is_fed, b.is_fed) {
        (true, true) => a.n < b.n,
        (false, false) => a.speedup.low > b.speedup.low,
        (a_feeds, _) => a_feeds,
    }
}

impl Offer {
    /// The number of devices to buy: the fewest that feed the accelerator, or else as many as still pay,
    /// each step compared with the previous one.
    fn payer(&self) -> Option<&Case> {
        let pays = |case: &&Case| case.speedup.low >= 1.0 + LEAST_GAIN;
        let feeds = self.cases.iter().filter(pays).find(|case| case.is_fed);
        feeds.or_else(|| {
            self.cases.iter().filter(pays).reduce(|best, more| {
                let step = more.speedup.low / best.speedup.low;
                if step >= 1.0 + LEAST_GAIN { more } else { best }
            })
        })
    }

    fn caveat(&self) -> &'static str {
        if self.is_uncalibrated { "; its speed is uncalibrated" } else { "" }
    }
}

fn buy(offer: &Offer, case: &Case, accelerator: &str) -> Verdict {
    let (n, device) = (case.n, offer.device.clone());
    let fed = if case.is_fed {
        format!("keeps {accelerator} busy")
    } else {
        format!("{accelerator} still waits")
    };
    let words = format!(
        "buy {n} of {device} ({} times as fast as the host alone, {fed}; modelled{})",
        case.speedup.ratios(),
        offer.caveat()
    );
    Verdict { kind: Kind::Buy, buy: Some(Buy { n, device }), words }
}

fn do_not(why: &str) -> Verdict {
    Verdict { kind: Kind::DoNotBuy, buy: None, words: format!("do not buy ({why})") }
}

fn again(why: &str) -> Verdict {
    let words = format!("measure again because {why}");
    Verdict { kind: Kind::MeasureAgain, buy: None, words }
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part.max(0.0) * 100.0)
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verdict: {}", self.words)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::conditions::{Conditions, doubt, share};
    use super::super::upper_end;
    use super::*;

    fn case(n: u32, low: f64, high: f64) -> Case {
        Case { n, speedup: Interval { low, high }, is_fed: false }
    }

    fn evidence(cases: &[Case]) -> Evidence {
        let cases = cases.to_vec();
        Evidence {
            accelerator: "a100".to_owned(),
            host_feeds: false,
            doubt: None,
            offers: vec![Offer {
                device: "newport".to_owned(),
                is_uncalibrated: true,
                cases,
            }],
        }
    }

    fn kind(evidence: &Evidence) -> Kind {
        decide(evidence).kind
    }

    #[test]
    fn the_edges_of_a_gain_that_counts() {
        let gain = |low, high| kind(&evidence(&[case(1, low, high)]));
        assert_eq!(gain(1.02, 1.5), Kind::Buy);
        assert_eq!(gain(1.019, 1.5), Kind::MeasureAgain);
        assert_eq!(gain(0.9, 1.02), Kind::MeasureAgain);
        assert_eq!(gain(0.9, 1.019), Kind::DoNotBuy);
    }

    #[test]
    fn a_host_that_feeds_the_accelerator_wants_nothing_whatever_is_doubted() {
        let mut asked = evidence(&[case(1, 1.0, 1.5)]);
        asked.host_feeds = true;
        asked.doubt = Some(Doubt::Unwatched);
        let verdict = decide(&asked);
        assert_eq!(
            verdict.to_string(),
            "Verdict: do not buy (the host alone keeps a100 busy)"
        );
        asked.host_feeds = false;
        assert_eq!(kind(&asked), Kind::MeasureAgain);
    }

    #[test]
    fn as_many_are_bought_as_feed_the_accelerator_or_as_still_pay() {
        let fed = |n, low| Case { is_fed: true, ..case(n, low, low * 1.1) };
        let asked = evidence(&[case(1, 1.1, 1.2), fed(2, 1.2), fed(4, 1.2)]);
        let verdict = decide(&asked);
        assert_eq!(verdict.buy, Some(Buy { n: 2, device: "newport".to_owned() }));
        assert_eq!(
            verdict.words,
            "buy 2 of newport (1.20 to 1.32 times as fast as the host alone, keeps a100 busy; \
             modelled; its speed is uncalibrated)"
        );
        let asked = evidence(&[case(1, 1.1, 1.2), case(2, 1.2, 1.3), case(4, 1.21, 1.3)]);
        assert_eq!(decide(&asked).buy.unwrap().n, 2, "the step to 4 brings 1 %");
        let mut two = evidence(&[case(1, 1.1, 1.2)]);
        two.offers.push(Offer {
            device: "smartssd".to_owned(),
            is_uncalibrated: false,
            cases: vec![fed(1, 1.05)],
        });
        assert_eq!(decide(&two).buy.unwrap().device, "smartssd", "it feeds");
    }

    #[test]
    fn without_a_device_nothing_is_decided() {
        let mut none = evidence(&[]);
        assert_eq!(kind(&none), Kind::MeasureAgain);
        none.offers.clear();
        // `doctor` refuses the two flags together.
        assert_eq!(
            decide(&none).words,
            "measure again because no device was measured; name one with --csd, without --quick"
        );
    }

    /// A host, devices and an accelerator as they are, in images per second.
    #[derive(Debug, Clone, Copy)]
    struct Truth {
        host: f64,
        /// The middle of a device's rate, and how much slower or faster it may be according to its preset.
        device: f64,
        ends: (f64, f64),
        accelerator: f64,
    }

    /// The effect of load on a measurement.
    #[derive(Debug, Clone, Copy)]
    struct Noise {
        /// CPUs, of two, that other programs take.
        others: f64,
        /// The fraction of it that is visible in /proc/stat; the rest shows as missing CPU time.
        is_seen: f64,
        /// How much rounds differ.
        spread: f64,
    }

    const QUIET: Noise = Noise { others: 0.0, is_seen: 1.0, spread: 0.0 };

    /// The measurement under this load, by the closed form of the played epochs.
    fn measured(truth: Truth, noise: Noise) -> Evidence {
        let slower = (2.0 - noise.others) / 2.0;
        let Truth { host, device, ends, accelerator } = truth;
        let rate = host * slower;
        let ms = 2.0 / host * 1e3;
        let share = share(rate, Some(ms), 2);
        let seen = Conditions {
            processors: 2,
            others: Some(noise.others * noise.is_seen),
            stolen: None,
            cpu_pressure: None,
            io_pressure: None,
        };
        let host = Interval {
            low: rate * (1.0 - noise.spread),
            high: upper_end(rate * (1.0 + noise.spread), share),
        };
        let device = Interval {
            low: device * slower * ends.0 * (1.0 - noise.spread),
            high: device * ends.1 * (1.0 + noise.spread),
        };
        let through = |host: f64, n: u32, device: f64| {
            (host + f64::from(n) * device).min(accelerator)
        };
        let speedup =
            |host, n, device| through(host, n, device) / through(host, 0, device);
        let case = |n| Case {
            n,
            speedup: Interval {
                low: speedup(host.high, n, device.low),
                high: speedup(host.low, n, device.high),
            },
            is_fed: through(host.low, n, device.low) >= 0.98 * accelerator,
        };
        Evidence {
            host_feeds: through(host.low, 0, 0.0) >= 0.98 * accelerator,
            doubt: doubt(Some(&seen), share, 2),
            ..evidence(&[1, 2, 4, 8].map(case))
        }
    }

    proptest! {
        /// The promise: load may cost an answer but never reverses one.
        #[test]
        fn noise_moves_a_verdict_to_measure_again_or_nowhere(
            host in 50.0..5000.0_f64,
            device in 0.001..3.0_f64,
            ends in (0.5..1.0_f64, 1.0..2.0_f64),
            accelerator in 0.2..20.0_f64,
            (others, is_seen, spread) in (0.0..1.95_f64, 0.0..1.0_f64, 0.0..0.5_f64),
        ) {
            let (device, accelerator) = (device * host, accelerator * host);
            let truth = Truth { host, device, ends, accelerator };
            let quiet = kind(&measured(truth, QUIET));
            let noisy = kind(&measured(truth, Noise { others, is_seen, spread }));
            prop_assert!(noisy == quiet || noisy == Kind::MeasureAgain, "{quiet:?} {noisy:?}");
        }

        /// Wider intervals or a doubt never decide more.
        #[test]
        fn wider_figures_decide_less(
            figures in prop::collection::vec((0.5..3.0_f64, 0.0..0.5_f64, 0.0..0.5_f64), 1..5),
        ) {
            let wide = |by: f64| {
                let cases: Vec<Case> = (1..).zip(&figures).map(|(n, (middle, under, over))| {
                    case(n, middle - by * under, middle + by * over)
                }).collect();
                evidence(&cases)
            };
            let (narrow, wide) = (kind(&wide(0.5)), kind(&wide(1.0)));
            prop_assert!(wide == narrow || wide == Kind::MeasureAgain);
        }
    }

    #[test]
    fn two_busy_loops_beside_it_decide_nothing_that_the_idle_machine_would_not() {
        let truth = Truth {
            host: 2000.0,
            device: 400.0,
            ends: (0.83, 1.25),
            accelerator: 7144.0,
        };
        assert_eq!(kind(&measured(truth, QUIET)), Kind::Buy);
        let loops = Noise { others: 1.0, is_seen: 1.0, spread: 0.1 };
        assert_eq!(kind(&measured(truth, loops)), Kind::MeasureAgain);
        let hidden = Noise { others: 1.0, is_seen: 0.0, spread: 0.1 };
        assert_eq!(kind(&measured(truth, hidden)), Kind::MeasureAgain);
    }
}
