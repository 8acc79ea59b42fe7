//! Making the files: with one thread for each, as many as the process may use, and one that watches them.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read, Seek, Write};
use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use bothends_dataset::{Decompression, Step, Storage, Treatment};
use bothends_io::{open_regular, write_beside};

use crate::codecs::decompressed;
use crate::columns;
use crate::place::{Entry, versions};
use crate::progress::{Progress, Stage};
use crate::{Compressed, DecompressError, Told};

/// Bytes that one read brings; a remote store takes a round trip for each.
const READ_BYTES: usize = 4 << 20;

/// Bytes that are written at once, and after which the room that is left is looked at.
const WRITE_BYTES: usize = 1 << 20;
const LOOK_BYTES: u64 = 64 << 20;

/// More threads than these wait for the disk, and each takes some MiB that no budget has.
const MOST_THREADS: usize = 16;

/// How often somebody is told.
const TELL: Duration = Duration::from_millis(500);

/// How the names of files begin that are not complete.
const PART: &str = ".part-";

/// What is to be made, and where.
pub(crate) struct Job<'a> {
    pub(crate) data: Compressed<'a>,
    pub(crate) plan: &'a Decompression,
    pub(crate) entry: &'a Entry,
}

/// What the threads have in common.
#[derive(Default)]
struct Shared {
    /// The next step to take.
    next: AtomicUsize,
    n_done: AtomicUsize,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    /// Bytes written by all since the room was looked at.
    unlooked_bytes: AtomicU64,
    /// One of them has failed, or nobody wants it any more.
    is_stopped: AtomicBool,
    /// Length and path of each file that is complete.
    files: Mutex<Vec<(u64, String)>>,
}

impl Job<'_> {
    /// Makes all files that are not there yet.
    pub(crate) fn run(&self, watch: &mut Told<'_>) -> Result<(), DecompressError> {
        let folder = self.entry.data();
        self.entry.remove_damaged()?;
        fs::create_dir_all(&folder).map_err(DecompressError::at("make", &folder))?;
        remove_parts(&folder);
        let steps = self.plan.steps.iter().zip(&self.entry.versions);
        let missing = steps.filter(|(step, _)| !folder.join(&step.to).is_file());
        // What is decompressed is hardly ever shorter.
        let total_bytes = missing.map(|(_, version)| version.len).sum();
        self.entry.check_room(total_bytes)?;
        let shared = Shared::default();
        let n_threads = thread::available_parallelism().map_or(1, NonZero::get);
        let n_threads = n_threads.min(MOST_THREADS).min(self.plan.steps.len()).max(1);
        let result = thread::scope(|scope| {
            let (tell, told) = channel();
            for _ in 0..n_threads {
                let (tell, shared) = (tell.clone(), &shared);
                let work = move || {
                    let done = self.work(shared);
                    let has_failed = done.is_err();
                    // Whoever watches stays until the last one has told. Before the flag: the first error is the cause.
                    let _ = tell.send(done);
                    if has_failed {
                        shared.is_stopped.store(true, Ordering::Relaxed);
                    }
                };
                let thread = thread::Builder::new().name("decompress".to_owned());
                if let Err(error) = thread.spawn_scoped(scope, work) {
                    shared.is_stopped.store(true, Ordering::Relaxed);
                    return Err(DecompressError::at("start a thread for", &folder)(
                        error,
                    ));
                }
            }
            drop(tell);
            let mut result = Ok(());
            loop {
                match told.recv_timeout(TELL) {
                    // The first error is the cause of the others.
                    Ok(done) => result = result.and(done),
                    Err(RecvTimeoutError::Timeout) => {
                        if watch(&self.progress(&shared, total_bytes)).is_break() {
                            shared.is_stopped.store(true, Ordering::Relaxed);
                            result = result.and(Err(DecompressError::Cancelled));
                        }
                    }
                    Err(RecvTimeoutError::Disconnected) => return result,
                }
            }
        });
        result?;
        if watch(&self.progress(&shared, total_bytes)).is_break() {
            return Err(DecompressError::Cancelled);
        }
        self.finish(shared.files.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn progress(&self, shared: &Shared, total_bytes: u64) -> Progress {
        // Numbers for people: none has to fit another.
        let relaxed = Ordering::Relaxed;
        Progress {
            files: (shared.n_done.load(relaxed), self.plan.steps.len()),
            read_bytes: (shared.read_bytes.load(relaxed), total_bytes),
            written_bytes: shared.written_bytes.load(relaxed),
            ..self.entry.progress(Stage::Making)
        }
    }

    /// Makes one file after the other.
    fn work(&self, shared: &Shared) -> Result<(), DecompressError> {
        // A flag and counters; the files are handed over under their lock.
        let relaxed = Ordering::Relaxed;
        while !shared.is_stopped.load(relaxed) {
            let nth = shared.next.fetch_add(1, relaxed);
            let Some(step) = self.plan.steps.get(nth) else { return Ok(()) };
            let len = self.entry.versions[nth].len;
            let made = self.make((nth, step, len), shared)?;
            let mut files = shared.files.lock().unwrap_or_else(PoisonError::into_inner);
            files.push((made, step.to.clone()));
            shared.n_done.fetch_add(1, relaxed);
        }
        Ok(())
    }

    /// Makes a file, unless it is there: how many bytes it has.
    fn make(
        &self,
        (nth, step, len): (usize, &Step, u64),
        shared: &Shared,
    ) -> Result<u64, DecompressError> {
        let path = self.entry.data().join(&step.to);
        if let Ok(found) = fs::symlink_metadata(&path)
            && found.is_file()
        {
            return Ok(found.len());
        }
        let folder = path.parent().unwrap_or(&path);
        let failed = DecompressError::at("make", folder);
        fs::create_dir_all(folder).map_err(failed)?;
        let part = self.entry.data().join(format!("{PART}{nth}"));
        let mut refused = None;
        let made = write_beside(&part, &path, |file| {
            if let Err(error) = self.write((nth, step, len), &file, shared) {
                refused = Some(error);
                return Err(ErrorKind::Other.into());
            }
            // After a failure of power, it is complete or not there.
            file.sync_data()?;
            Ok(file.metadata()?.len())
        });
        made.map_err(|error| {
            refused.unwrap_or_else(|| DecompressError::at("write", &path)(error))
        })
    }

    fn write(
        &self,
        (nth, step, len): (usize, &Step, u64),
        file: &File,
        shared: &Shared,
    ) -> Result<(), DecompressError> {
        let has_failed = Cell::new(false);
        let storage = self.data.storage;
        let source =
            Source { storage, path: &step.from, at: 0, len, has_failed: &has_failed };
        let source = Counting { source, shared };
        let mut sink = Sink { file, job: self, shared, refused: None };
        let written = match step.treatment {
            Treatment::Copied => copy(source, &mut sink),
            Treatment::Decompressed(codec) => {
                let source = BufReader::with_capacity(READ_BYTES, source);
                decompressed(codec, source).and_then(|source| copy(source, &mut sink))
            }
            Treatment::Plain => self.plain((nth, step), source, &mut sink),
        };
        let path = || storage.shown(&step.from);
        match (sink.refused, written) {
            (Some(refused), _) => Err(refused),
            (None, Ok(())) => Ok(()),
            (None, Err(error)) if has_failed.get() => {
                Err(DecompressError::at("read", Path::new(&path()))(error))
            }
            (None, Err(error)) if error.kind() == ErrorKind::Unsupported => {
                let codec = error.to_string();
                Err(DecompressError::Unsupported { path: path(), codec })
            }
            (None, Err(error)) => {
                Err(DecompressError::Damaged { path: path(), why: error.to_string() })
            }
        }
    }

    /// A Parquet file is read back to front: one of another machine is copied first.
    fn plain(
        &self,
        (nth, step): (usize, &Step),
        source: Counting<'_>,
        sink: &mut Sink<'_>,
    ) -> io::Result<()> {
        if let Some(path) = source.source.storage.local(&step.from) {
            let opened = open_regular(&path).map_err(DecompressError::at("open", &path));
            columns::plain(sink.kept(opened)?, sink)?;
            // For people.
            source.shared.read_bytes.fetch_add(source.source.len, Ordering::Relaxed);
            return Ok(());
        }
        // With a name, so that others see that it grows.
        let path = self.entry.data().join(format!("{PART}{nth}-fetched"));
        let fetched = self.fetched(&path, source, sink);
        let done = fetched.and_then(|fetched| columns::plain(fetched, sink));
        // What is left of it is removed by the next one.
        let _ = fs::remove_file(&path);
        done
    }

    fn fetched(
        &self,
        path: &Path,
        source: impl Read,
        sink: &mut Sink<'_>,
    ) -> io::Result<File> {
        let mut options = File::options();
        let opened = options.read(true).write(true).create_new(true).open(path);
        let mut fetched =
            sink.kept(opened.map_err(DecompressError::at("write", path)))?;
        let mut first = Sink { file: &fetched, refused: None, ..*sink };
        let copied = copy(source, &mut first);
        if let Some(refused) = first.refused {
            return sink.kept(Err(refused));
        }
        copied?;
        fetched.rewind()?;
        Ok(fetched)
    }

    /// All files are there, and those that they are made of are what they were.
    fn finish(&self, mut files: Vec<(u64, String)>) -> Result<(), DecompressError> {
        let now = versions(self.data, self.plan)?;
        let mut both = self.entry.versions.iter().zip(&now);
        if let Some((changed, _)) = both.find(|(before, now)| before != now) {
            let path = self.data.storage.shown(&changed.name);
            // They are of files that were, and would be taken for complete ones.
            let _ = fs::remove_dir_all(self.entry.data());
            return Err(DecompressError::Changed { path });
        }
        for (name, text) in &self.plan.texts {
            let path = self.entry.data().join(name);
            fs::write(&path, text).map_err(DecompressError::at("write", &path))?;
            files.push((text.len() as u64, name.clone()));
        }
        files.sort_unstable();
        self.entry.finish(&files)
    }
}

/// A file of the data set, front to back.
struct Source<'a> {
    storage: &'a (dyn Storage + Sync),
    path: &'a str,
    at: u64,
    len: u64,
    /// Whether it is the storage that has failed, and not what it has brought.
    has_failed: &'a Cell<bool>,
}

impl Read for Source<'_> {
    fn read(&mut self, dst: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.len - self.at).unwrap_or(usize::MAX);
        let n = dst.len().min(left);
        if n > 0 {
            let read = self.storage.read(self.path, self.at, &mut dst[..n]);
            read.inspect_err(|_| self.has_failed.set(true))?;
            self.at += n as u64;
        }
        Ok(n)
    }
}

/// Counts what is read.
struct Counting<'a> {
    source: Source<'a>,
    shared: &'a Shared,
}

impl Read for Counting<'_> {
    fn read(&mut self, dst: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(dst)?;
        // For people.
        self.shared.read_bytes.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// A file that is written as long as there is room.
struct Sink<'a> {
    file: &'a File,
    job: &'a Job<'a>,
    shared: &'a Shared,
    /// Why no more is written.
    refused: Option<DecompressError>,
}

impl Sink<'_> {
    /// Keeps why no more is written for who asks afterwards.
    fn kept<T>(&mut self, done: Result<T, DecompressError>) -> io::Result<T> {
        done.map_err(|refused| {
            let error = io::Error::other(refused.to_string());
            self.refused = Some(refused);
            error
        })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<usize, DecompressError> {
        // Counters, and a flag that is looked at again and again.
        let (shared, relaxed) = (self.shared, Ordering::Relaxed);
        // A file may take minutes.
        if shared.is_stopped.load(relaxed) {
            return Err(DecompressError::Cancelled);
        }
        let entry = self.job.entry;
        let n = self.file.write(bytes).map_err(|error| entry.not_written(error))?;
        shared.written_bytes.fetch_add(n as u64, relaxed);
        let unlooked = shared.unlooked_bytes.fetch_add(n as u64, relaxed) + n as u64;
        if unlooked >= LOOK_BYTES {
            shared.unlooked_bytes.store(0, relaxed);
            entry.check_room(0)?;
        }
        Ok(n)
    }
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let put = self.put(bytes);
        self.kept(put)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn copy(mut from: impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; WRITE_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => to.write_all(&buffer[..n])?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// What a process that was killed has left.
fn remove_parts(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(PART)) {
            // What cannot be removed is told of when it is to be made.
            let _ = fs::remove_file(entry.path());
        }
    }
}
