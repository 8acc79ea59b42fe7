//! What was typed.

use std::path::PathBuf;
use std::time::Duration;

use crate::LinkError;
use crate::forward::Order;
use crate::line::Direction;

/// What the program prints with `--help`.
pub(crate) const HELP: &str = "\
Runs COMMAND at one end of a long link, and a server at the other end.

    long-link [OPTION VALUE]... -- COMMAND...
    long-link [OPTION VALUE]... --self-test

The near end (COMMAND) is 10.9.0.1, the far end (the server) 10.9.0.2. Both are network namespaces of
this machine: nothing else is reached from them, and nothing of them is left when the program ends.

    --rtt MS           round trip (150)
    --rate MBIT        megabits a second in each direction, headers of IP included (1000)
    --loss PERCENT     packets lost at random in each direction (0)
    --queue BYTES      what waits for the link at most; later packets are dropped (rate x round trip)
    --mtu BYTES        of both interfaces (1500)
    --congestion NAME  congestion control of TCP at both ends (the kernel's default)
    --seed N           of the losses (1)
    --server COMMAND   a line for the shell, run at the far end
    --ready FILE       COMMAND starts once this file exists; the server makes it
    --patience S       for that file (60)
    --figures FILE     where to write what passed and what was lost, as JSON
    --control FILE     a Unix datagram socket that takes `loss PERCENT`, `outage MS` and `hole PORT`
                       (the connection with this port at the near end carries nothing any more)
    --self-test        measures the link: round trip, rate, losses; status 1 if they are not as asked

The status is that of COMMAND; 125 where the link or the server failed, 77 with a line that begins with
`skipped:` where it cannot be tried (it takes root and /dev/net/tun), 128 + N on signal N.
";

/// What to do, all of it.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub rtt: Duration,
    pub bits_per_s: u64,
    pub loss: f64,
    pub queue_bytes: u64,
    pub mtu: u32,
    pub congestion: Option<String>,
    pub seed: u64,
    pub server: Option<String>,
    pub ready: Option<PathBuf>,
    pub patience: Duration,
    pub figures: Option<PathBuf>,
    pub control: Option<PathBuf>,
    pub task: Task,
}

/// What the link is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Task {
    Run(Vec<String>),
    SelfTest,
    Help,
}

impl Options {
    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    /// If an option is unknown, or its value is missing or out of range.
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Self, LinkError> {
        let mut words = words.peekable();
        let mut options = Self::default();
        let mut queue = None;
        while let Some(word) = words.next() {
            match word.as_str() {
                "--" => {
                    options.task = Task::Run(words.by_ref().collect());
                    break;
                }
                "--self-test" => options.task = Task::SelfTest,
                "--help" | "-h" => return Ok(Self { task: Task::Help, ..options }),
                name => {
                    let value = words.next().ok_or_else(|| LinkError::Option {
                        name: name.to_owned(),
                        value: String::new(),
                        wants: "a value",
                    })?;
                    match name {
                        "--queue" => queue = Some(whole(name, &value, 1)?),
                        _ => options.set(name, &value)?,
                    }
                }
            }
        }
        if options.task == Task::Run(Vec::new()) {
            return Err(LinkError::NoCommand);
        }
        options.queue_bytes = queue.unwrap_or_else(|| options.in_flight_bytes());
        Ok(options)
    }

    /// What each direction does.
    pub(crate) fn direction(&self) -> Direction {
        Direction {
            delay: u64::try_from(self.rtt.as_nanos() / 2).unwrap_or(u64::MAX),
            bits_per_s: self.bits_per_s,
            loss: self.loss,
            queue_bytes: self.queue_bytes,
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), LinkError> {
        match name {
            "--rtt" => {
                let ms = number(name, value, "0 to 10000 milliseconds", 0.0, 10_000.0)?;
                self.rtt = Duration::from_secs_f64(ms / 1000.0);
            }
            // 100 Gb/s is more than a program carries.
            "--rate" => {
                let mbit = number(name, value, "0.001 to 100000", 0.001, 1e5)?;
                self.bits_per_s = bits(mbit);
            }
            "--loss" => {
                self.loss = number(name, value, "0 to 100 percent", 0.0, 100.0)? / 100.0;
            }
            "--mtu" => {
                let mtu = whole(name, value, 576)?;
                self.mtu = u32::try_from(mtu)
                    .ok()
                    .filter(|mtu| *mtu <= 65_535)
                    .ok_or_else(|| LinkError::Option {
                        name: name.into(),
                        value: value.into(),
                        wants: "576 to 65535",
                    })?;
            }
            "--congestion" => self.congestion = Some(value.to_owned()),
            "--seed" => self.seed = whole(name, value, 0)?,
            "--server" => self.server = Some(value.to_owned()),
            "--ready" => self.ready = Some(value.into()),
            "--patience" => self.patience = Duration::from_secs(whole(name, value, 1)?),
            "--figures" => self.figures = Some(value.into()),
            "--control" => self.control = Some(value.into()),
            _ => return Err(LinkError::Unknown { name: name.to_owned() }),
        }
        Ok(())
    }

    fn in_flight_bytes(&self) -> u64 {
        let bits = u128::from(self.bits_per_s) * self.rtt.as_nanos() / 1_000_000_000;
        // Where there is no delay a queue must still hold a few packets.
        u64::try_from(bits / 8).unwrap_or(u64::MAX).max(64 << 10)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rtt: Duration::from_millis(150),
            bits_per_s: 1_000_000_000,
            loss: 0.0,
            queue_bytes: 0,
            mtu: 1500,
            congestion: None,
            seed: 1,
            server: None,
            ready: None,
            patience: Duration::from_secs(60),
            figures: None,
            control: None,
            task: Task::Run(Vec::new()),
        }
    }
}

/// What a datagram on the control socket asks; nothing if it is no order.
pub(crate) fn order(text: &str) -> Option<Order> {
    let (name, value) = text.trim().split_once(' ')?;
    match name {
        "loss" => Some(Order::Loss(number(name, value, "", 0.0, 100.0).ok()? / 100.0)),
        "outage" => Some(Order::Outage(Duration::from_millis(value.parse().ok()?))),
        "hole" => Some(Order::Hole(value.parse().ok()?)),
        _ => None,
    }
}

fn number(
    name: &str,
    value: &str,
    wants: &'static str,
    least: f64,
    most: f64,
) -> Result<f64, LinkError> {
    let parsed = value.parse().ok().filter(|number| (least..=most).contains(number));
    parsed.ok_or_else(|| LinkError::Option {
        name: name.into(),
        value: value.into(),
        wants,
    })
}

fn whole(name: &str, value: &str, least: u64) -> Result<u64, LinkError> {
    let parsed = value.parse().ok().filter(|number| *number >= least);
    parsed.ok_or_else(|| LinkError::Option {
        name: name.into(),
        value: value.into(),
        wants: "a whole number, large enough",
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most 1e11, and positive"
)]
fn bits(mbit: f64) -> u64 {
    (mbit * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, LinkError> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn the_queue_holds_what_is_in_flight_unless_told() {
        let options = parse("--rtt 150 --rate 1000 --loss 0.1 -- true").unwrap();
        assert_eq!(options.queue_bytes, 18_750_000);
        assert_eq!(options.direction().delay, 75_000_000);
        assert!((options.loss - 0.001).abs() < 1e-12);
        assert_eq!(parse("--queue 9000 -- true").unwrap().queue_bytes, 9_000);
    }

    #[test]
    fn what_follows_two_dashes_is_the_command_untouched() {
        let options = parse("--seed 2 -- sh -c --rtt --").unwrap();
        assert_eq!(
            options.task,
            Task::Run(["sh", "-c", "--rtt", "--"].map(Into::into).into())
        );
    }

    #[test]
    fn a_wrong_option_is_named() {
        for (line, name) in [
            ("--rtt -1 -- true", "--rtt"),
            ("--rtt NaN -- true", "--rtt"),
            ("--rate 0 -- true", "--rate"),
            ("--loss 101 -- true", "--loss"),
            ("--mtu 70000 -- true", "--mtu"),
            ("--queue 0 -- true", "--queue"),
            ("--seed", "--seed"),
            ("--colour red -- true", "--colour"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(name), "{line}: {error}");
        }
        assert!(matches!(parse("--rtt 1"), Err(LinkError::NoCommand)));
        assert!(matches!(parse("--"), Err(LinkError::NoCommand)));
    }

    #[test]
    fn orders_are_lines() {
        assert_eq!(order("loss 50\n"), Some(Order::Loss(0.5)));
        assert_eq!(order("outage 2000"), Some(Order::Outage(Duration::from_secs(2))));
        assert_eq!(order("hole 40000"), Some(Order::Hole(40_000)));
        for wrong in
            ["", "loss", "loss x", "loss 200", "outage -1", "hole 70000", "rise 3"]
        {
            assert_eq!(order(wrong), None, "{wrong}");
        }
    }
}
