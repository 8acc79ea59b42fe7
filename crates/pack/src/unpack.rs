//! Unpacking: the bytes of every record go back to where they came from.
//!
//! Threads share the records of samples; the bytes between samples are written afterwards. If a
//! store has only a part of the samples of a file, the rest of the file is zeros.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use bothends_dataset::store::{Index, RecordKind};
use bothends_io::open_regular;

use crate::convert::Kept;
use crate::folder::{Lock, names};
use crate::opened::read_stored;
use crate::source::files::between;
use crate::{Converter, Damage, OpenStore, PackError, Progress};

/// What was unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    /// The final progress.
    pub progress: Progress,
    /// Files of which the store has only a part.
    pub n_partial: u64,
    /// Records that have changed since they were written: their bytes are missing.
    pub damages: Vec<Damage>,
}

/// Writes the original files of `store` below `folder`, which is empty or does not exist, and reports
/// progress to `observer`. Spawns `n_threads` threads and joins them. A record that has changed since
/// it was written is left out, and reported at the end.
///
/// # Errors
/// [`PackError::NotEmpty`], [`PackError::Busy`], [`PackError::Failed`];
/// [`PackError::MostlyMissing`] before anything is written, [`PackError::Overwritten`] afterwards.
pub fn unpack(
    store: &OpenStore,
    folder: &Path,
    n_threads: usize,
    observer: &mut dyn FnMut(Progress),
) -> Result<Unpacked, PackError> {
    if let Some(name) = names(folder)?.into_iter().next() {
        return Err(PackError::NotEmpty { folder: folder.to_owned(), name });
    }
    let _lock = Lock::take(folder)?;
    let unpacking = Unpacking { store, indices: store.indices(), folder };
    let (samples, rests) = unpacking.records();
    let shared = unpacking.check_places(&samples)?;
    let n_records = (samples.len() + rests.len()) as u64;
    let mut progress = Progress { n_records, ..Progress::default() };
    let mut damages = Vec::new();
    let mut count = |written: Result<[u64; 2], Damage>| {
        progress.n_done += 1;
        match written {
            Ok([original, stored]) => {
                progress.original_bytes += original;
                progress.stored_bytes += stored;
            }
            Err(damage) => damages.push(damage),
        }
        observer(progress);
    };
    unpacking.samples(&samples, n_threads.max(1), &mut count)?;
    let n_partial = unpacking.rests(&samples, &rests, &mut count)?;
    unpacking.check_shared(&shared)?;
    damages.sort_by(|a, b| (&a.file, &a.record).cmp(&(&b.file, &b.record)));
    Ok(Unpacked { progress, n_partial, damages })
}

/// A file may be this many times as long as the part of it in the store, plus [`FREE_ZEROS`].
const MOST_ZEROS: u64 = 1 << 16;

/// Bytes of a file that may be missing in any case.
const FREE_ZEROS: u64 = 1 << 30;

/// The shard and number of a record.
type Place = (usize, usize);

struct Unpacking<'a> {
    store: &'a OpenStore,
    indices: Vec<Index<'a>>,
    folder: &'a Path,
}

/// The outcome for a record: the lengths of its original and of its stored bytes.
type Written = Result<[u64; 2], Damage>;

impl Unpacking<'_> {
    /// All records: samples and others.
    fn records(&self) -> (Vec<Place>, Vec<Place>) {
        let places = self.indices.iter().enumerate().flat_map(|(shard, index)| {
            (0..index.lines().len()).map(move |record| (shard, record))
        });
        places.partition(|&(shard, record)| {
            self.indices[shard].lines()[record].kind != RecordKind::Rest
        })
    }

    /// Refuses files that would be almost nothing but zeros, and finds samples that share bytes of a
    /// file with others, as those of a list may.
    fn check_places(&self, samples: &[Place]) -> Result<Vec<Place>, PackError> {
        let of = |&(shard, record): &Place| {
            let index = &self.indices[shard];
            let line = index.lines()[record];
            let end = line.original_at.saturating_add(u64::from(line.original_len));
            (index.name(line.name), line.original_at..end, line.checksum)
        };
        let mut places: Vec<&Place> = samples.iter().collect();
        places.sort_unstable_by_key(|&place| {
            let (name, range, _) = of(place);
            (name, range.start, range.end)
        });
        let mut shared = Vec::new();
        for file in places.chunk_by(|one, other| of(one).0 == of(other).0) {
            let lens = file.iter().map(|place| of(place).1);
            let held: u64 = lens.clone().map(|range| range.end - range.start).sum();
            let len = lens.map(|range| range.end).max().unwrap_or(0);
            if len > held.saturating_mul(MOST_ZEROS).saturating_add(FREE_ZEROS) {
                let path = self.folder.join(file.first().map_or("", |place| of(place).0));
                return Err(PackError::MostlyMissing { path, len, held });
            }
            let mut last: Option<&Place> = None;
            for &place in file {
                let (_, range, checksum) = of(place);
                if let Some(before) = last.map(of)
                    && range.start < before.1.end
                    && (&range, checksum) != (&before.1, before.2)
                {
                    shared.extend(last.into_iter().chain([place]).copied());
                }
                if last.is_none_or(|last| of(last).1.end <= range.end) {
                    last = Some(place);
                }
            }
        }
        Ok(shared)
    }

    /// Whether the files have all of these samples, whichever was written last.
    fn check_shared(&self, shared: &[Place]) -> Result<(), PackError> {
        let (mut converter, mut stored, mut bytes) = Default::default();
        let mut found = Vec::new();
        for &place in shared {
            let index = &self.indices[place.0];
            let line = index.lines()[place.1];
            if self.read(place, &mut converter, [&mut stored, &mut bytes])?.is_err() {
                continue;
            }
            let path = self.folder.join(index.name(line.name));
            let file = open_regular(&path).map_err(PackError::at("open", &path))?;
            found.resize(bytes.len(), 0);
            let read = file.read_exact_at(&mut found, line.original_at);
            read.map_err(PackError::at("read", &path))?;
            if found != bytes {
                return Err(PackError::Overwritten { path });
            }
        }
        Ok(())
    }

    fn samples(
        &self,
        places: &[Place],
        n_threads: usize,
        count: &mut dyn FnMut(Written),
    ) -> Result<(), PackError> {
        // Shared by several threads; nothing depends on its ordering.
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            let (sender, done) = sync_channel(64);
            for nth in 0..n_threads {
                let (sender, next) = (sender.clone(), &next);
                thread::Builder::new()
                    .name(format!("unpack-{nth}"))
                    .spawn_scoped(scope, move || self.some_samples(places, next, &sender))
                    .map_err(PackError::at("start a thread for", self.folder))?;
            }
            drop(sender);
            // Dropped at the first error, so that no thread waits to report and all end.
            for lens in done {
                count(lens?);
            }
            Ok(())
        })
    }

    /// The loop of a thread.
    fn some_samples(
        &self,
        places: &[Place],
        next: &AtomicUsize,
        sender: &SyncSender<Result<Written, PackError>>,
    ) {
        let (mut converter, mut stored, mut bytes) = Default::default();
        while let Some(&place) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
            let read = self.read(place, &mut converter, [&mut stored, &mut bytes]);
            let written = read.and_then(|read| match read {
                Ok(lens) => self.write_sample(place, &bytes).map(|()| Ok(lens)),
                Err(damage) => Ok(Err(damage)),
            });
            if sender.send(written).is_err() {
                return;
            }
        }
    }

    /// Reads a record and restores its original bytes.
    fn read(
        &self,
        (shard, record): Place,
        converter: &mut Converter,
        [stored, bytes]: [&mut Vec<u8>; 2],
    ) -> Result<Written, PackError> {
        let index = &self.indices[shard];
        let line = index.lines()[record];
        let read = read_stored(&*self.store.shard(shard)?, &line, stored);
        let made =
            read.and_then(|()| converter.restore(Kept::of(index, record, stored), bytes));
        let damage = |what| Damage {
            file: self.store.manifest().shards[shard].file(),
            record: Some((record, index.name(line.name).to_owned())),
            what,
        };
        let lens = [&*bytes, &*stored].map(|bytes| bytes.len() as u64);
        Ok(made.map(|()| lens).map_err(damage))
    }

    fn write_sample(
        &self,
        (shard, record): Place,
        bytes: &[u8],
    ) -> Result<(), PackError> {
        let index = &self.indices[shard];
        let line = index.lines()[record];
        let path = self.folder.join(index.name(line.name));
        let file = create(&path)?;
        file.write_all_at(bytes, line.original_at).map_err(PackError::at("write", &path))
    }

    /// Writes the bytes between samples. Returns how many files are incomplete.
    fn rests(
        &self,
        samples: &[Place],
        rests: &[Place],
        count: &mut dyn FnMut(Written),
    ) -> Result<u64, PackError> {
        let mut gaps = self.gaps(samples, rests);
        let (mut converter, mut stored, mut bytes) = Default::default();
        for &place in rests {
            let lens =
                match self.read(place, &mut converter, [&mut stored, &mut bytes])? {
                    Ok(lens) => lens,
                    damaged @ Err(_) => {
                        count(damaged);
                        continue;
                    }
                };
            let index = &self.indices[place.0];
            let line = index.lines()[place.1];
            let name = index.name(line.name);
            let path = self.folder.join(name);
            if line.label == 1 {
                fs::create_dir_all(&path).map_err(PackError::at("make", &path))?;
            } else {
                let file = create(&path)?;
                let gaps = gaps.get_mut(name).map(Vec::as_mut_slice).unwrap_or_default();
                fill(&file, gaps, &bytes).map_err(PackError::at("write", &path))?;
            }
            count(Ok(lens));
        }
        let is_partial = |gaps: &&Vec<Range<u64>>| gaps.iter().any(|gap| !gap.is_empty());
        Ok(gaps.values().filter(is_partial).count() as u64)
    }

    /// The gaps between samples in each file that has a rest or does not begin with a sample.
    fn gaps(&self, samples: &[Place], rests: &[Place]) -> HashMap<&str, Vec<Range<u64>>> {
        let mut files: HashMap<&str, (u64, Vec<Range<u64>>)> = HashMap::new();
        for &(shard, record) in rests.iter().chain(samples) {
            let line = self.indices[shard].lines()[record];
            let is_rest = line.kind == RecordKind::Rest;
            if is_rest || line.original_at > 0 {
                let len = if is_rest { line.original_at } else { 0 };
                let file = files.entry(self.indices[shard].name(line.name)).or_default();
                file.0 = file.0.max(len);
            }
        }
        for &(shard, record) in samples {
            let line = self.indices[shard].lines()[record];
            if let Some((len, ranges)) =
                files.get_mut(self.indices[shard].name(line.name))
            {
                let end = line.original_at + u64::from(line.original_len);
                *len = end.max(*len);
                ranges.push(line.original_at..end);
            }
        }
        let gaps = |(path, (len, mut ranges)): (_, (_, Vec<_>))| {
            (path, between(&mut ranges, len))
        };
        files.into_iter().map(gaps).collect()
    }
}

/// Writes `bytes` to the gaps, starting with the first, and removes what is filled from the list.
fn fill(file: &File, gaps: &mut [Range<u64>], mut bytes: &[u8]) -> io::Result<()> {
    for gap in gaps {
        let n =
            usize::try_from(gap.end - gap.start).unwrap_or(usize::MAX).min(bytes.len());
        let (here, behind) = bytes.split_at(n);
        file.write_all_at(here, gap.start)?;
        gap.start += n as u64;
        bytes = behind;
    }
    match bytes {
        [] => Ok(()),
        _ => Err(io::Error::other("the store holds more bytes of it than it has")),
    }
}

/// Opens a file to write to a part of it; creates it and its folders if necessary.
fn create(path: &Path) -> Result<File, PackError> {
    let open = || OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let opened = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| open())
        }
        opened => opened,
    };
    opened.map_err(PackError::at("write", path))
}
