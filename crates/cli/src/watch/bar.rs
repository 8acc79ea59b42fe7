//! The two-ended bar: the host's share grows from the left, the devices' from the right.
//! Where standard error is no terminal, a plain line every ten seconds instead.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use bothends_runtime::{Observer, Progress};
use indicatif::{ProgressBar, ProgressStyle};

use crate::say;

const BAR_WIDTH: u32 = 40;
const LINE_EVERY: Duration = Duration::from_secs(10);

/// How often what changes all the time is shown on a terminal.
pub(crate) const SHOW_EVERY: Duration = Duration::from_millis(50);

/// Shows how a run comes along.
#[derive(Debug)]
pub(crate) struct Bar {
    /// Where there is a terminal to show it on.
    terminal: Option<ProgressBar>,
    last: Instant,
}

impl Bar {
    pub(crate) fn new() -> Self {
        let terminal = stderr().is_terminal().then(|| {
            let plain = ProgressStyle::with_template("{msg}");
            let style = plain.unwrap_or_else(|_| ProgressStyle::default_spinner());
            ProgressBar::new_spinner().with_style(style)
        });
        Self { terminal, last: Instant::now() }
    }

    /// Takes the bar away; results follow.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.terminal {
            bar.finish_and_clear();
        }
    }

    /// Says how far a long step has come.
    pub(crate) fn step(&mut self, text: &str) {
        if self.terminal.is_some() || self.last.elapsed() > LINE_EVERY {
            self.say(text);
        }
    }

    fn say(&mut self, text: &str) {
        self.last = Instant::now();
        match &self.terminal {
            Some(bar) => bar.set_message(text.to_owned()),
            None => say::note(text),
        }
    }
}

impl Observer for Bar {
    fn phase(&mut self, what: &str) {
        self.say(&format!("{what} …"));
    }

    fn batch(&mut self, progress: Progress) {
        let is_last = progress.front + progress.back >= progress.n_batches;
        let is_due = match &self.terminal {
            Some(_) => is_last || self.last.elapsed() > SHOW_EVERY,
            None => self.last.elapsed() > LINE_EVERY,
        };
        if is_due {
            self.say(&two_ended(progress));
        }
    }

    fn note(&mut self, text: &str) {
        let text = format!("note: {text}");
        match &self.terminal {
            Some(bar) => bar.println(text),
            None => say::note(&text),
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
    use bothends_runtime::{Bytes, Counted};

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
            counted: Counted::default(),
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
