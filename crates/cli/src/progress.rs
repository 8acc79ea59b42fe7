//! The two-ended bar: the host's share grows from the left, the devices' from the right.
//! Where standard error is no terminal, a plain line every ten seconds instead.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use bothends_runtime::{Observer, Progress};
use indicatif::{ProgressBar, ProgressStyle};

use crate::say;

const BAR_WIDTH: u32 = 40;
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows how a run comes along.
#[derive(Debug)]
pub(crate) struct Bar {
    shown: Shown,
    last: Instant,
}

#[derive(Debug)]
enum Shown {
    Terminal(ProgressBar),
    Lines,
}

impl Bar {
    pub(crate) fn new() -> Self {
        let shown = if stderr().is_terminal() {
            let plain = ProgressStyle::with_template("{msg}");
            let style = plain.unwrap_or_else(|_| ProgressStyle::default_spinner());
            Shown::Terminal(ProgressBar::new_spinner().with_style(style))
        } else {
            Shown::Lines
        };
        Self { shown, last: Instant::now() }
    }

    /// Takes the bar away; results follow.
    pub(crate) fn clear(&self) {
        if let Shown::Terminal(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

impl Bar {
    /// Says how far a long step has come.
    pub(crate) fn step(&mut self, text: &str) {
        match &self.shown {
            Shown::Terminal(bar) => bar.set_message(text.to_owned()),
            Shown::Lines if self.last.elapsed() > LINE_EVERY => {
                self.last = Instant::now();
                say::note(text);
            }
            Shown::Lines => {}
        }
    }
}

impl Observer for Bar {
    fn phase(&mut self, what: &str) {
        self.last = Instant::now();
        match &self.shown {
            Shown::Terminal(bar) => bar.set_message(format!("{what} …")),
            Shown::Lines => say::note(&format!("{what} …")),
        }
    }

    fn batch(&mut self, progress: Progress) {
        let is_last = progress.front + progress.back >= progress.n_batches;
        match &self.shown {
            Shown::Terminal(bar) => {
                if is_last || self.last.elapsed() > Duration::from_millis(50) {
                    self.last = Instant::now();
                    bar.set_message(two_ended(progress));
                }
            }
            Shown::Lines if self.last.elapsed() > LINE_EVERY => {
                self.last = Instant::now();
                say::note(&two_ended(progress));
            }
            Shown::Lines => {}
        }
    }

    fn note(&mut self, text: &str) {
        match &self.shown {
            Shown::Terminal(bar) => bar.println(format!("note: {text}")),
            Shown::Lines => say::note(&format!("note: {text}")),
        }
    }
}

/// `ordered epoch 0 ▶▶▶▶▶▶······◀◀ host 61 % │ device 22 % │ 812 images/s │ waiting 3 %`
fn two_ended(progress: Progress) -> String {
    let Progress {
        epoch, strategy, n_batches, front, back, images_per_s, stalled, ..
    } = progress;
    let n = n_batches.max(1);
    let cells = |part: u32| part * BAR_WIDTH / n;
    let (left, right) = (cells(front), cells(back));
    let gap = BAR_WIDTH.saturating_sub(left + right);
    let draw = |sign: &str, times: u32| sign.repeat(times as usize);
    format!(
        "{strategy} epoch {epoch} {}{}{} host {} % │ device {} % │ {images_per_s:.0} images/s │ waiting {:.0} %",
        draw("▶", left),
        draw("·", gap),
        draw("◀", right),
        u64::from(front) * 100 / u64::from(n),
        u64::from(back) * 100 / u64::from(n),
        stalled * 100.0,
    )
}

#[cfg(test)]
mod tests {
    use bothends_runtime::{Bytes, Stall};

    use super::*;

    #[test]
    fn the_ends_meet_when_everything_is_delivered() {
        let progress = Progress {
            epoch: 3,
            strategy: "ordered",
            n_batches: 8,
            front: 6,
            back: 2,
            images_per_s: 812.4,
            stalled: 0.031,
            samples: [48, 16],
            stall: Stall::default(),
            busy_s: 0.0,
            bytes: Bytes::default(),
        };
        let line = two_ended(progress);
        assert!(line.starts_with("ordered epoch 3 ▶") && !line.contains('·'), "{line}");
        assert!(
            line.contains("host 75 % │ device 25 % │ 812 images/s │ waiting 3 %"),
            "{line}"
        );
    }
}
