//! Data sets in whose shards no sample can be read alone, because they are compressed: decompressed once, into a cache
//! directory, in the same format.
//!
//! `dataset` says which files have to become which others ([`bothends_dataset::Decompression`]); this crate makes them.
//! What comes of it is an ordinary data set in a folder, which everything else reads as if it had never been
//! compressed.
//!
//! Reading order: `place` is where data sets are kept, who may use a folder and who makes room, `work` makes the
//! files with one thread each, `codecs` and `columns` are how.

mod codecs;
mod columns;
mod error;
mod place;
mod progress;
mod work;

use std::fmt::{self, Debug, Formatter};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bothends_dataset::{DatasetError, Decompression, Storage};
use bothends_io::Folder;

pub use error::DecompressError;
pub use place::Place;
pub use progress::{Progress, Stage};

use place::{Claim, Entry, Lock};
use work::Job;

/// A data set whose shards are compressed.
#[derive(Debug, Clone, Copy)]
pub struct Compressed<'a> {
    /// Where its files are.
    pub storage: &'a (dyn Storage + Sync),
    /// Which of them are meant: `""` is all, as in [`bothends_dataset::find`].
    pub target: &'a str,
}

/// A data set that was decompressed. Its files stay as long as this value lives; afterwards they may make room for
/// others.
#[derive(Debug)]
pub struct Decompressed {
    root: PathBuf,
    target: String,
    bytes: u64,
    _lock: Lock,
}

impl Decompressed {
    /// The folder that it is in.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What to read there; `""` is the folder itself.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The path of the data set: the folder, or the file in it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        match self.target.is_empty() {
            true => self.root.clone(),
            false => self.root.join(&self.target),
        }
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Decompresses a data set into `place`, or finds what an earlier call has made of the same files there. Of several
/// processes, one does it and the others wait for it. `watch` is called about twice a second, and cancels it if it breaks;
/// files that are complete are kept then.
///
/// Blocks on storage and file system, for as long as it takes to read all of the data and to write them.
///
/// # Errors
/// [`DecompressError::Dataset`] where the compression is not supported or the data cannot be read, and all others.
pub fn decompress(
    data: Compressed<'_>,
    place: &Place,
    watch: &mut Told<'_>,
) -> Result<Decompressed, DecompressError> {
    let plan = Decompression::plan(data.storage, data.target)?;
    let entry = Entry::of(data, &plan, place)?;
    let mut has_told = false;
    let mut tell = |progress: &Progress| {
        has_told = true;
        watch(progress)
    };
    let lock = match entry.claim(&mut tell)? {
        Claim::Made(lock) => lock,
        Claim::ToMake(lock) => {
            let job = Job { data, plan: &plan, entry: &entry };
            job.run(&mut tell)?;
            lock.share()
        }
    };
    let made = entry.open(lock, plan.target)?;
    if has_told {
        let done = entry.progress(Stage::Done);
        // There is nothing left to cancel.
        let _ = watch(&Progress { written_bytes: made.bytes, ..done });
    }
    Ok(made)
}

/// Finds what `find` finds at the data set's place; where that says that the shards are compressed, it decompresses them
/// into `place` and finds it there. Blocks as [`decompress`] does.
///
/// # Errors
/// As [`decompress`]; those of `find`; [`DecompressError::NoPlace`] without a place.
pub fn find_in<T>(
    data: Compressed<'_>,
    place: Option<&Place>,
    watch: &Watch,
    find: impl Fn(&dyn Storage, &str) -> Result<T, DatasetError>,
) -> Result<(T, Option<Decompressed>), DecompressError> {
    let compressed = match find(data.storage, data.target) {
        Err(error) if error.is_compressed() => error,
        found => return Ok((found?, None)),
    };
    Decompression::check_split(data.storage, data.target)?;
    let place = place.ok_or(DecompressError::NoPlace { source: compressed })?;
    let made = decompress(data, place, &mut |progress| watch.tell(progress))?;
    let found = find(&Folder(made.root().to_owned()), made.target())?;
    Ok((found, Some(made)))
}

/// Decompresses a data set if its first shard is compressed: what a program does that is told of samples by others, and
/// lists none. `None` where there is nothing to do, or no data set.
///
/// # Errors
/// As [`decompress`].
pub fn decompress_needed(
    data: Compressed<'_>,
    place: &Place,
    watch: &Watch,
) -> Result<Option<Decompressed>, DecompressError> {
    // What cannot be read is for those to say who want it.
    match Decompression::is_needed(data.storage, data.target) {
        Ok(true) => decompress(data, place, &mut |it| watch.tell(it)).map(Some),
        Ok(false) | Err(_) => Ok(None),
    }
}

/// When lines are due.
const FIRST_LINE: Duration = Duration::from_secs(2);
const NEXT_LINE: Duration = Duration::from_secs(10);

/// Is told how far it is, and breaks to cancel it.
pub type Told<'a> = dyn FnMut(&Progress) -> ControlFlow<()> + 'a;

/// The same from any thread.
type Telling = dyn Fn(&Progress) -> ControlFlow<()> + Send + Sync;

/// Who is told how far it is. Clones tell the same one.
#[derive(Clone, Default)]
pub struct Watch(Option<Arc<Telling>>);

impl Watch {
    /// Somebody, about twice a second, from the thread that waits; to break is to cancel.
    pub fn new(
        watch: impl Fn(&Progress) -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(watch)))
    }

    /// A line for people after two seconds and every ten seconds from then on.
    pub fn lines(say: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let next = Mutex::new(None);
        Self::new(move |progress| {
            let now = Instant::now();
            let is_due = {
                let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
                let due = next.get_or_insert(now + FIRST_LINE);
                let is_due = now >= *due;
                if is_due {
                    *due = now + NEXT_LINE;
                }
                is_due
            };
            if is_due {
                say(&progress.to_string());
            }
            ControlFlow::Continue(())
        })
    }

    /// Tells them; to break is to cancel.
    pub fn tell(&self, progress: &Progress) -> ControlFlow<()> {
        self.0.as_ref().map_or(ControlFlow::Continue(()), |watch| watch(progress))
    }
}

impl Debug for Watch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.0.is_some()).finish()
    }
}

/// What [`decompress`] would find, without making it: `None` where it has not been made.
///
/// # Errors
/// As [`decompress`].
pub fn find_decompressed(
    data: Compressed<'_>,
    place: &Place,
) -> Result<Option<Decompressed>, DecompressError> {
    let plan = Decompression::plan(data.storage, data.target)?;
    let entry = Entry::of(data, &plan, place)?;
    match entry.made()? {
        Some(lock) => entry.open(lock, plan.target).map(Some),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests;
