//! `run --events FILE.jsonl`: what happens, written down while it happens, so that a run that is
//! killed leaves its record. The lines are those of `bothends_report`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use bothends_report::{Header, Line};
use bothends_runtime::{Ended, MOST_MOMENTS, Moment, Observer, Progress, RunResult};

use super::recorder::without_epochs;
use crate::failed::{Failed, cannot_write, wrong};

/// The file under way.
#[derive(Debug)]
pub(crate) struct EventFile {
    path: PathBuf,
    file: BufWriter<File>,
    epoch: u32,
    /// Moments of this epoch so far: as many are written as a log keeps.
    n_moments: usize,
    /// The first thing that went wrong; nothing is written after it.
    error: Option<io::Error>,
}

impl EventFile {
    /// Makes the file and writes its first line.
    pub(crate) fn create(path: &Path, header: &Header) -> Result<Self, Failed> {
        if path == Path::new("-") {
            return Err(wrong(
                "`--events -`: give a file; standard output has the table",
            ));
        }
        let file = File::create(path).map_err(|e| cannot_write(path, &e))?;
        let mut events = Self {
            path: path.to_owned(),
            file: BufWriter::new(file),
            epoch: 0,
            n_moments: 0,
            error: None,
        };
        events.write(&[Line::Header(Box::new(header.clone()))]);
        events.checked()
    }

    /// Writes the last line.
    pub(crate) fn end(mut self, result: &RunResult) -> Result<(), Failed> {
        self.write(&[Line::Run { result: Box::new(without_epochs(result)) }]);
        self.checked().map(drop)
    }

    fn checked(mut self) -> Result<Self, Failed> {
        match self.error.take() {
            Some(error) => Err(cannot_write(&self.path, &error)),
            None => Ok(self),
        }
    }

    /// Writes lines through to the file. A run goes on without its record; the error is kept.
    fn write(&mut self, lines: &[Line]) {
        if self.error.is_none() {
            self.error = self.try_write(lines).err();
        }
    }

    fn try_write(&mut self, lines: &[Line]) -> io::Result<()> {
        for line in lines {
            self.file.write_all(line.to_text()?.as_bytes())?;
        }
        self.file.flush()
    }
}

impl Observer for EventFile {
    fn begin(&mut self, progress: Progress) {
        let Progress { epoch, strategy, n_batches, .. } = progress;
        (self.epoch, self.n_moments) = (epoch, 0);
        self.write(&[Line::Begin { epoch, strategy: strategy.to_owned(), n_batches }]);
    }

    fn moments(&mut self, moments: &[Moment]) {
        let room = MOST_MOMENTS.saturating_sub(self.n_moments);
        let kept = moments.iter().take(room);
        self.n_moments += kept.len();
        let epoch = self.epoch;
        self.write(
            &kept
                .map(|moment| Line::Moment { epoch, moment: *moment })
                .collect::<Vec<_>>(),
        );
    }

    fn end(&mut self, ended: Ended<'_>) {
        let epoch = self.epoch;
        let used = ended.usage.iter().map(|used| Line::Usage { epoch, used: *used });
        let mut lines: Vec<Line> = used.collect();
        let result = Box::new(ended.result.clone());
        lines.push(Line::Epoch { epoch, moments_cut: ended.log.cut(), result });
        self.write(&lines);
    }
}
