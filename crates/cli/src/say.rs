//! What the program prints: results on standard output, everything else on standard error.
//! The only module that writes to either. Colours are `paint.rs`'s.

mod paint;

use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal, Write, stderr, stdout};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use bothends_core::fit;
use bothends_simulate::sizing::{Kind, Verdict};
use terminal_size::{Width, terminal_size_of};

use paint::Paint;

/// What a terminal has at least, and what a line of progress takes where there is none.
const COLUMNS: usize = 80;

/// How much is printed besides results and errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Talk {
    /// Nothing.
    Quiet,
    /// Progress and notes.
    Usual,
    /// Each step on a line of its own, with the time, too.
    Verbose,
}

static TALK: OnceLock<Talk> = OnceLock::new();

/// Whether something of the result could not be written. One thread prints, so no order is needed.
static IS_CUT: AtomicBool = AtomicBool::new(false);

/// Settles how much is said; the first call counts.
pub(crate) fn set_talk(talk: Talk) {
    let _ = TALK.set(talk);
}

pub(crate) fn talk() -> Talk {
    TALK.get().copied().unwrap_or(Talk::Usual)
}

/// One line of result, or a whole document, as it is. Who closes the pipe early (`| head`) has
/// read enough.
pub(crate) fn line(text: &str) {
    put(&tame(text));
}

/// Results for people: tables and sentences that fit the terminal. Nothing is folded where there
/// is none, unless `COLUMNS` says how wide it is to be.
pub(crate) fn text(text: &str) {
    let text = tame(text);
    match columns().or_else(|| width_of(&stdout())) {
        Some(width) => put(&fit(&text, width)),
        None => put(&text),
    }
}

/// The answer to whether devices pay.
pub(crate) fn verdict(verdict: &Verdict) {
    let paint = match verdict.kind {
        Kind::Buy => Paint::Green,
        Kind::DoNotBuy => Paint::Bold,
        Kind::MeasureAgain => Paint::Yellow,
    };
    let plain = tame(&verdict.to_string()).into_owned();
    let plain = match columns().or_else(|| width_of(&stdout())) {
        Some(width) => fit(&plain, width),
        None => plain,
    };
    let (label, rest) = plain.split_once(' ').unwrap_or((plain.as_str(), ""));
    put(&format!("{} {rest}", paint.over(label, stdout().is_terminal())));
}

/// What clap has rendered, with its own styles: help and usage on standard output.
pub(crate) fn help(rendered: &clap::builder::StyledStr) {
    let text = match paint::is_wanted(stdout().is_terminal()) {
        true => rendered.ansi().to_string(),
        false => rendered.to_string(),
    };
    put(text.trim_end());
}

/// The same on standard error.
pub(crate) fn usage(rendered: &clap::builder::StyledStr) {
    let text = match paint::is_wanted(stderr().is_terminal()) {
        true => rendered.ansi().to_string(),
        false => rendered.to_string(),
    };
    tell(text.trim_end());
}

/// Text for another program, a shell say, as it is.
pub(crate) fn raw(text: &[u8]) {
    write(|out| out.write_all(text));
}

/// Whether standard output has all that was printed; a pipe that its reader closed has.
pub(crate) fn is_all_written() -> bool {
    // What does not end in a newline may still lie in the buffer.
    write(Write::flush);
    !IS_CUT.load(Ordering::Relaxed)
}

/// One line about what is going on; not with `--quiet`.
pub(crate) fn note(text: &str) {
    if talk() != Talk::Quiet {
        tell(&tame(text));
    }
}

/// How the program ended where that is no error: said in any case.
pub(crate) fn ending(text: &str) {
    tell(&tame(text));
}

/// The one line of a failed command.
pub(crate) fn error(text: &str) {
    let label = Paint::Red.over("error:", stderr().is_terminal());
    tell(&format!("{label} {}", tame(&text.replace('\n', "\\n"))));
}

/// A line on standard error. What cannot be said, because the log is on a full disk or its reader has gone,
/// ends no run.
fn tell(line: &str) {
    let _ = stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// How wide a line of progress on standard error may be.
pub(crate) fn progress_width() -> usize {
    columns().or_else(|| width_of(&stderr())).unwrap_or(COLUMNS)
}

/// What the environment says of the terminal's width.
fn columns() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok()?;
    said.trim().parse().ok().filter(|columns| *columns > 0)
}

fn width_of(stream: &(impl IsTerminal + std::os::fd::AsFd)) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    // One that does not say has as many as terminals always had.
    let width = terminal_size_of(stream).map(|(Width(width), _)| usize::from(width));
    Some(width.filter(|width| *width > 0).unwrap_or(COLUMNS))
}

fn put(text: &str) {
    write(|out| writeln!(out, "{text}"));
}

/// The first failure is said, and nothing is written after it: a result with a gap looks whole.
fn write(write: impl FnOnce(&mut io::Stdout) -> io::Result<()>) {
    if IS_CUT.load(Ordering::Relaxed) {
        return;
    }
    if let Err(why) = write(&mut stdout())
        && why.kind() != ErrorKind::BrokenPipe
    {
        IS_CUT.store(true, Ordering::Relaxed);
        error(&format!(
            "cannot write to standard output: {why}; the result is incomplete"
        ));
    }
}

/// Control characters that a file's name may have, written out: they would command the
/// terminal. Line ends stay.
fn tame(text: &str) -> Cow<'_, str> {
    let is_wild = |c: char| c.is_control() && c != '\n';
    if !text.contains(is_wild) {
        return Cow::Borrowed(text);
    }
    let tamed = text.chars().map(|c| match is_wild(c) {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    });
    Cow::Owned(tamed.collect())
}
