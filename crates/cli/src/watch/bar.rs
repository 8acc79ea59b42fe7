//! How a run comes along, on one line. Where host and devices walk towards each other, the host's
//! share grows from the left and the devices' from the right; where devices work within a moving
//! horizon just ahead of the host, as under `ordered`, there is one stream, in which each part
//! shows who made it. Where standard error is not a terminal, a plain line every ten seconds instead;
//! with `--quiet`, nothing.

use std::io::{IsTerminal, stderr};
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bothends_core::select::StrategyConfig;
use bothends_runtime::{
    Decompressing, DecompressingStage, DecompressingWatch, Observer, Progress,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::say::{self, Talk};

/// Cells of the bar at least, or parts of the text behind it are left out; and at most.
const LEAST_CELLS: usize = 10;
const MOST_CELLS: usize = 60;

/// Places of an epoch at which is remembered what devices had made by then: more than there are
/// cells.
const PLACES: usize = 256;

const LINE_EVERY: Duration = Duration::from_secs(10);

/// How often what changes all the time is shown on a terminal.
pub(crate) const SHOW_EVERY: Duration = Duration::from_millis(50);

/// Shows how a run comes along.
#[derive(Debug)]
pub(crate) struct Bar {
    show: Show,
    last: Instant,
    began: Instant,
    stream: Stream,
}

#[derive(Debug)]
enum Show {
    Terminal(ProgressBar),
    Lines,
    Nothing,
}

impl Bar {
    pub(crate) fn new() -> Self {
        let show = match (say::talk(), stderr().is_terminal()) {
            (Talk::Quiet, _) => Show::Nothing,
            (_, false) => Show::Lines,
            (_, true) => {
                let plain = ProgressStyle::with_template("{wide_msg}");
                let style = plain.unwrap_or_else(|_| ProgressStyle::default_spinner());
                Show::Terminal(ProgressBar::new_spinner().with_style(style))
            }
        };
        let now = Instant::now();
        Self { show, last: now, began: now, stream: Stream::new() }
    }

    /// Takes the bar away; results follow.
    pub(crate) fn clear(&self) {
        if let Show::Terminal(bar) = &self.show {
            bar.finish_and_clear();
        }
    }

    /// Says how far a long step has come.
    pub(crate) fn step(&mut self, text: &str) {
        let is_terminal = matches!(self.show, Show::Terminal(_));
        if is_terminal || self.last.elapsed() > LINE_EVERY {
            self.say(text);
        }
    }

    fn say(&mut self, text: &str) {
        self.last = Instant::now();
        match &self.show {
            Show::Terminal(bar) => bar.set_message(text.to_owned()),
            Show::Lines => say::note(text),
            Show::Nothing => {}
        }
    }

    /// A line that stays.
    fn print(&self, text: &str) {
        match &self.show {
            Show::Terminal(bar) => bar.println(text),
            Show::Lines | Show::Nothing => say::note(text),
        }
    }
}

/// Shows how far it is while shards are decompressed.
pub(crate) fn decompressing() -> DecompressingWatch {
    let bar = Mutex::new(None::<Bar>);
    DecompressingWatch::new(move |progress: &Decompressing| {
        let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
        match progress.stage {
            DecompressingStage::Done => {
                if let Some(bar) = bar.take() {
                    bar.clear();
                }
            }
            DecompressingStage::Making | DecompressingStage::Waiting => {
                bar.get_or_insert_with(Bar::new).step(&progress.to_string());
            }
        }
        ControlFlow::Continue(())
    })
}

impl Observer for Bar {
    fn phase(&mut self, what: &str) {
        if say::talk() == Talk::Verbose {
            let text = format!("[{:6.1} s] {what} …", self.began.elapsed().as_secs_f64());
            return self.print(&text);
        }
        self.say(&format!("{what} …"));
    }

    fn begin(&mut self, _: Progress) {
        self.stream = Stream::new();
    }

    fn batch(&mut self, progress: Progress) {
        self.stream.add(progress);
        let is_last = progress.front + progress.back >= progress.n_batches;
        let is_due = match &self.show {
            Show::Terminal(_) => is_last || self.last.elapsed() > SHOW_EVERY,
            Show::Lines => self.last.elapsed() > LINE_EVERY,
            Show::Nothing => false,
        };
        if is_due {
            let width = say::progress_width();
            self.say(&line(progress, &self.stream, width));
        }
    }

    fn note(&mut self, text: &str) {
        self.print(&format!("note: {text}"));
    }
}

/// Who made what, along the epoch.
#[derive(Debug)]
struct Stream {
    /// Batches that devices had made when so many 256ths of the epoch were delivered.
    back: Vec<u32>,
}

impl Stream {
    fn new() -> Self {
        Self { back: vec![0] }
    }

    fn add(&mut self, progress: Progress) {
        let delivered = (progress.front + progress.back) as usize;
        let place = delivered * PLACES / (progress.n_batches.max(1) as usize);
        // Between two places that are told of, nothing is known: all of it came with the later.
        while self.back.len() <= place.min(PLACES) {
            self.back.push(progress.back);
        }
        if let Some(last) = self.back.last_mut() {
            *last = progress.back;
        }
    }

    /// Batches that devices had made when `cell` of `cells` was delivered.
    fn back_at(&self, cell: usize, cells: usize) -> u32 {
        let place = (cell * PLACES / cells.max(1)).min(self.back.len() - 1);
        self.back[place]
    }
}

/// `ordered epoch 0 ▶▶▶◆▶▶▶◆······ ▶ host 61 % ◆ device 22 % │ 812 images/s │ waiting 3 %`, no
/// wider than the terminal.
fn line(progress: Progress, stream: &Stream, width: usize) -> String {
    let Progress { epoch, strategy, n_batches, front, back, .. } = progress;
    let percent = |part: u32| u64::from(part) * 100 / u64::from(n_batches.max(1));
    let meets = strategy.parse().is_ok_and(StrategyConfig::walks_from_both_ends);
    let device = match (back, meets) {
        (0, _) => String::new(),
        (_, true) => format!(" device {} % ◀", percent(back)),
        (_, false) => format!(" ◆ device {} %", percent(back)),
    };
    let parts = [
        format!(" ▶ host {} %{device}", percent(front)),
        format!(" │ {:.0} images/s", progress.images_per_s),
        format!(" │ waiting {:.0} %", progress.stalled * 100.0),
    ];
    // What is left out first where the terminal is narrow: the strategy, then the last part.
    let heads = [format!("{strategy} epoch {epoch} "), format!("epoch {epoch} ")];
    let long = |text: &str| text.chars().count();
    let room = |head: &str, kept: usize| {
        let behind: usize = parts[..kept].iter().map(|part| long(part)).sum();
        width.saturating_sub(long(head) + behind)
    };
    let all = parts.len();
    let head =
        heads.iter().find(|head| room(head, all) >= LEAST_CELLS).unwrap_or(&heads[1]);
    let mut kept = all;
    while kept > 0 && room(head, kept) < LEAST_CELLS {
        kept -= 1;
    }
    let cells = room(head, kept).min(MOST_CELLS);
    let drawn = match meets {
        true => two_ends(progress, cells),
        false => one_stream(progress, stream, cells),
    };
    let line = format!("{head}{drawn}{}", parts[..kept].concat());
    line.chars().take(width).collect()
}

/// The host from the left, devices from the right.
fn two_ends(progress: Progress, cells: usize) -> String {
    let n = progress.n_batches.max(1) as usize;
    let cells_of = |part: u32| part as usize * cells / n;
    let (left, both) =
        (cells_of(progress.front), cells_of(progress.front + progress.back));
    // So rounded, the ends meet when everything is delivered.
    let (right, gap) = (both - left, cells.saturating_sub(both));
    ["▶".repeat(left), "·".repeat(gap), "◀".repeat(right)].concat()
}

/// What was delivered, from the left, by who made it.
fn one_stream(progress: Progress, stream: &Stream, cells: usize) -> String {
    let n = progress.n_batches.max(1) as usize;
    let delivered = (progress.front + progress.back) as usize * cells / n;
    // So many cells are the devices' up to here, to the nearest one.
    let devices =
        |cell: usize| (stream.back_at(cell, cells) as usize * cells + n / 2) / n;
    let cell = |at: usize| match at {
        at if at >= delivered => "·",
        at if devices(at + 1) > devices(at) => "◆",
        _ => "▶",
    };
    (0..cells).map(cell).collect()
}

#[cfg(test)]
mod tests {
    use bothends_runtime::{Bytes, Counted};

    use super::*;

    fn progress(strategy: &'static str, front: u32, back: u32) -> Progress {
        Progress {
            epoch: 3,
            strategy,
            n_batches: 80,
            front,
            back,
            images_per_s: 812.4,
            stalled: 0.031,
            counted: Counted::default(),
            bytes: Bytes::default(),
            fetches: None,
        }
    }

    /// Every fourth batch a device's, up to so many.
    fn stream(n: u32) -> (Progress, Stream) {
        let mut stream = Stream::new();
        let at = |n: u32| progress("ordered", n - n / 4, n / 4);
        (1..=n).for_each(|n| stream.add(at(n)));
        (at(n), stream)
    }

    #[test]
    fn both_ends_meet_when_everything_is_delivered() {
        let stream = Stream::new();
        let text = line(progress("relaxed", 60, 20), &stream, 120);
        assert!(text.starts_with("relaxed epoch 3 ▶") && !text.contains('·'), "{text}");
        assert!(text.contains("▶◀"), "{text}");
        assert!(
            text.ends_with(" ▶ host 75 % device 25 % ◀ │ 812 images/s │ waiting 3 %"),
            "{text}"
        );
    }

    #[test]
    fn ordered_is_one_stream_in_which_devices_show_where_they_delivered() {
        let (half, seen) = stream(40);
        let text = line(half, &seen, 100);
        let drawn: Vec<char> = text.chars().filter(|c| "▶◆·◀".contains(*c)).collect();
        let count = |sign| drawn.iter().filter(|c| **c == sign).count();
        assert_eq!(count('◀'), 0, "nothing comes from the right end: {text}");
        let (host, devices, left) = (count('▶') - 1, count('◆') - 1, count('·'));
        assert!(host.abs_diff(3 * devices) <= 3 && devices > 0, "{text}");
        assert!((host + devices).abs_diff(left) <= 1, "{text}");
        let last = drawn.iter().rposition(|c| *c == '·').unwrap();
        assert!(drawn[..last].iter().skip_while(|c| **c != '·').all(|c| *c == '·'));
        // A device that joins late shows late.
        let mut late = Stream::new();
        (1..=40)
            .for_each(|n: u32| late.add(progress("ordered", n.min(30), n.max(30) - 30)));
        let text = line(progress("ordered", 30, 10), &late, 100);
        let first = text.find('◆').unwrap();
        assert!(text[..first].matches('▶').count() > 5, "{text}");
    }

    #[test]
    fn the_line_is_no_wider_than_the_terminal() {
        let (whole, seen) = stream(80);
        for width in 1..200 {
            for (progress, seen) in [(whole, &seen), (progress("mte", 60, 20), &seen)] {
                let text = line(progress, seen, width);
                assert!(text.chars().count() <= width, "{width}: {text}");
            }
        }
        assert!(line(whole, &seen, 80).contains("waiting 3 %"));
    }

    #[test]
    fn a_host_alone_says_nothing_of_devices() {
        let text = line(progress("cpu", 40, 0), &Stream::new(), 80);
        assert!(text.contains("▶ host 50 % │ 812 images/s") && !text.contains("device"));
    }
}
