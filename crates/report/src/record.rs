//! A run as it is recorded: JSON Lines, from which the report, the trace and the table can be made again.
//!
//! The first line says what ran where. Then, for every epoch, there are its start, every event of a batch,
//! what the process used, and the epoch's figures; the last line has the figures of the run. A file that
//! ends early, because the run was killed, is read as far as it goes. A file with an error in the middle
//! is refused with the number of the line. Nothing here opens a file. `remarks.rs` says what figures must
//! not be taken for.

mod remarks;

use std::io::{BufRead, Read};

use serde::{Deserialize, Serialize};

use bothends_figures::{EpochResult, Moment, RunResult, Settings, UsageSample};

pub use remarks::{epoch_remarks, run_remarks};

/// The format of event files that this release writes, and the only one that it reads.
pub const FORMAT: u32 = 1;

/// The longest line: an epoch's figures with hundreds of thousands of bad samples.
const MOST_LINE_BYTES: u64 = 64 << 20;

/// What ran, where and when: the first line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: u32,
    /// The version of the program.
    pub version: String,
    /// The run's id, by which its metrics, spans and agents' logs name it; empty in older files.
    #[serde(default)]
    pub run: String,
    /// The heading of the report.
    pub title: String,
    /// Caveats in plain sentences; may be empty.
    pub note: String,
    /// Whether the images were generated.
    pub generated_images: bool,
    /// The machine: processor, cores, memory, system.
    pub machine: String,
    /// The command that reproduces the run.
    pub command: String,
    /// When it began, ISO 8601.
    pub date: String,
    /// The settings of the run, by the names of its flags.
    pub config: Settings,
}

/// One epoch, as far as it is known.
#[derive(Debug, Clone, PartialEq)]
pub struct EpochRecord {
    /// Its number.
    pub epoch: u32,
    /// Its strategy.
    pub strategy: String,
    /// The number of batches to deliver.
    pub n_batches: u32,
    /// Its events, in order.
    pub moments: Vec<Moment>,
    /// How many later events were not kept.
    pub moments_cut: u64,
    /// What the process used, in order.
    pub looks: Vec<UsageSample>,
    /// Its figures; `None` if it did not end.
    pub figures: Option<EpochResult>,
}

impl EpochRecord {
    /// An epoch that begins.
    #[must_use]
    pub fn new(epoch: u32, strategy: &str, n_batches: u32) -> Self {
        Self {
            epoch,
            strategy: strategy.to_owned(),
            n_batches,
            moments: Vec::new(),
            moments_cut: 0,
            looks: Vec::new(),
            figures: None,
        }
    }

    /// Its length in seconds, or as far as it got.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        let ends = self.figures.as_ref().map(|figures| figures.seconds);
        ends.unwrap_or_else(|| self.moments.last().map_or(0.0, |moment| moment.t_s))
    }
}

/// A run, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    /// What ran.
    pub header: Header,
    /// Its epochs, in the order in which they ran.
    pub epochs: Vec<EpochRecord>,
    /// The figures of the run; `None` if it did not end.
    pub run: Option<RunResult>,
    /// The number of a truncated last line.
    pub cut_line: Option<u64>,
}

/// One line of an event file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "lowercase")]
pub enum Line {
    /// The first one.
    Header(Box<Header>),
    /// An epoch begins.
    Begin {
        /// Its number.
        epoch: u32,
        /// Its strategy.
        strategy: String,
        /// The number of batches to deliver.
        n_batches: u32,
    },
    /// Something happened to a batch.
    Moment {
        /// The epoch's number.
        epoch: u32,
        /// What happened.
        #[serde(flatten)]
        moment: Moment,
    },
    /// What the process had used.
    Usage {
        /// The epoch's number.
        epoch: u32,
        /// What it was.
        #[serde(flatten)]
        used: UsageSample,
    },
    /// An epoch is over.
    Epoch {
        /// Its number.
        epoch: u32,
        /// How many events were not kept.
        moments_cut: u64,
        /// Its entry in the result's `epochs`.
        result: Box<EpochResult>,
    },
    /// The run is over: the last line.
    Run {
        /// The result, without its `epochs`.
        result: Box<RunResult>,
    },
}

impl Line {
    /// The line in the file, including its newline.
    ///
    /// # Errors
    /// None is known to occur: every line can be expressed in JSON.
    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string(self)? + "\n")
    }
}

/// An event file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The file cannot be read any further.
    #[error("line {line} cannot be read")]
    Reading {
        /// Its number, from 1.
        line: u64,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is empty.
    #[error("the file is empty; write one with `bothends run --events FILE`")]
    Empty,
    /// It does not begin with a header.
    #[error(
        "line 1 is not the beginning of an event file ({why}); write one with \
         `bothends run --events FILE`"
    )]
    NoHeader {
        /// What is wrong.
        why: String,
    },
    /// Another release wrote it.
    #[error(
        "line 1: the file has format {found} and this release reads format {FORMAT}; use the \
         release that wrote it ({version})"
    )]
    Format {
        /// Its format.
        found: u32,
        /// The release that wrote it.
        version: String,
    },
    /// A line in the middle is wrong.
    #[error(
        "line {line} is damaged: {why}; cut the file before it to see what came before"
    )]
    Damaged {
        /// Its number, from 1.
        line: u64,
        /// What is wrong.
        why: String,
    },
}

impl Recording {
    /// Reads an event file to its end.
    ///
    /// # Errors
    /// [`RecordError`] with the number of the line, except for a last line without a newline, where the
    /// file was truncated.
    pub fn read(from: &mut impl BufRead) -> Result<Self, RecordError> {
        let mut recording = Self::default();
        let mut is_open = false;
        let mut bytes = Vec::new();
        for number in 1.. {
            bytes.clear();
            let mut limited = Read::take(&mut *from, MOST_LINE_BYTES);
            limited
                .read_until(b'\n', &mut bytes)
                .map_err(|source| RecordError::Reading { line: number, source })?;
            if bytes.is_empty() {
                break;
            }
            let damaged = |why: String| match number {
                1 => RecordError::NoHeader { why },
                line => RecordError::Damaged { line, why },
            };
            let is_whole = bytes.ends_with(b"\n");
            let is_too_long = bytes.len() as u64 >= MOST_LINE_BYTES;
            // Without its newline, so that the parser does not mention a second line.
            let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            let line = match serde_json::from_slice::<Line>(text) {
                Ok(line) => line,
                Err(_) if !is_whole && number > 1 && !is_too_long => {
                    recording.cut_line = Some(number);
                    break;
                }
                Err(_) if is_too_long => {
                    let why = format!("it has more than {MOST_LINE_BYTES} bytes");
                    return Err(damaged(why));
                }
                Err(error) => return Err(damaged(in_line(&error))),
            };
            if number == 1 {
                recording.header = header(line)?;
            } else {
                recording.add(line, &mut is_open).map_err(damaged)?;
            }
        }
        if recording.header.format == FORMAT {
            Ok(recording)
        } else {
            Err(RecordError::Empty)
        }
    }

    /// Adds a line; `is_open` says whether an epoch has begun and not ended.
    fn add(&mut self, line: Line, is_open: &mut bool) -> Result<(), String> {
        if self.run.is_some() {
            return Err("the run was over before it".to_owned());
        }
        let open = self.epochs.last_mut().filter(|_| *is_open);
        let within = |epoch: u32| match open {
            Some(open) if open.epoch == epoch => Ok(open),
            Some(open) => Err(format!("epoch {epoch} inside epoch {}", open.epoch)),
            None => Err(format!("epoch {epoch} has not begun")),
        };
        match line {
            Line::Header(_) => return Err("a second beginning".to_owned()),
            Line::Begin { epoch, strategy, n_batches } => {
                if *is_open {
                    return Err("an epoch begins inside another".to_owned());
                }
                *is_open = true;
                self.epochs.push(EpochRecord::new(epoch, &strategy, n_batches));
            }
            Line::Moment { epoch, moment } => {
                let record = within(epoch)?;
                follows(record.moments.last().map(|moment| moment.t_s), moment.t_s)?;
                record.moments.push(moment);
            }
            Line::Usage { epoch, used } => {
                let record = within(epoch)?;
                follows(record.looks.last().map(|look| look.t_s), used.t_s)?;
                record.looks.push(used);
            }
            Line::Epoch { epoch, moments_cut, result } => {
                let record = within(epoch)?;
                record.figures = Some(*result);
                record.moments_cut = moments_cut;
                *is_open = false;
            }
            Line::Run { result } => {
                if *is_open {
                    return Err("the run is over inside an epoch".to_owned());
                }
                self.run = Some(*result);
            }
        }
        Ok(())
    }
}

fn header(line: Line) -> Result<Header, RecordError> {
    let Line::Header(header) = line else {
        return Err(RecordError::NoHeader { why: "its beginning is missing".to_owned() });
    };
    match header.format {
        FORMAT => Ok(*header),
        found => Err(RecordError::Format { found, version: header.version }),
    }
}

/// Whether a time is valid and not before the last one.
fn follows(last_s: Option<f64>, t_s: f64) -> Result<(), String> {
    if t_s >= last_s.unwrap_or(0.0) {
        return Ok(());
    }
    Err(format!("time runs backwards, from {} s to {t_s} s", last_s.unwrap_or(0.0)))
}

/// A parser's message about one line, without its line number, which is always 1.
fn in_line(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column", " at column")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn read(text: &str) -> Result<Recording, String> {
        Recording::read(&mut text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_written_is_read() {
        let recording = example::recording();
        assert_eq!(read(&example::lines()).unwrap(), recording);
    }

    #[test]
    fn a_file_that_was_cut_anywhere_is_read_as_far_as_it_goes() {
        let whole = example::lines();
        let first_line = whole.find('\n').unwrap();
        let n_lines = whole.lines().count();
        for at in (first_line + 1..whole.len()).step_by(37) {
            let cut = read(&whole[..at]).unwrap();
            assert!(cut.run.is_none() || at + 1 == whole.len(), "cut at {at}");
            let number = whole[..at].lines().count();
            let is_whole = whole[..at].ends_with('\n') || whole[at..].starts_with('\n');
            assert_eq!(cut.cut_line.is_some(), !is_whole, "line {number} of {n_lines}");
        }
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_with_its_line() {
        let whole = example::lines();
        let lines: Vec<&str> = whole.lines().collect();
        let with = |at: usize, line: &str| {
            let mut lines = lines.clone();
            lines[at] = line;
            read(&(lines.join("\n") + "\n")).unwrap_err()
        };
        assert_eq!(read("").unwrap_err(), RecordError::Empty.to_string());
        assert!(with(0, lines[1]).starts_with("line 1 is not the beginning"));
        assert!(with(0, "<html>").starts_with("line 1 is not the beginning"));
        assert!(
            with(4, "{\"line\":").starts_with("line 5 is damaged: EOF while parsing")
        );
        assert!(with(4, lines[0]).contains("line 5 is damaged: a second beginning"));
        assert!(with(4, lines[1]).contains("an epoch begins inside another"));
        assert!(
            with(1, lines[2]).starts_with("line 2 is damaged: epoch 0 has not begun")
        );
        assert!(with(2, "{\"line\":\"moment\",\"epoch\":7,\"t_s\":1,\"batch\":1,\"moment\":\"made\"}")
            .starts_with("line 3 is damaged: epoch 7 inside epoch 0"));
        assert!(with(2, "{\"line\":\"moment\",\"epoch\":0,\"t_s\":-1,\"batch\":1,\"moment\":\"made\"}")
            .contains("time runs backwards"));
        let behind = whole.clone() + lines[1] + "\n";
        assert!(read(&behind).unwrap_err().contains("the run was over before it"));
        let other = whole.replacen("\"format\":1", "\"format\":2", 1);
        assert!(
            read(&other).unwrap_err().contains("has format 2 and this release reads")
        );
    }
}
