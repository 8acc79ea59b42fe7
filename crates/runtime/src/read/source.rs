//! The data of a run: its extent table, its files, and the recipe made ready for them.
//!
//! Shared by every thread of the host; nothing in it changes after it was opened. Sample ids
//! run over the repeated data set; a record is found by the id modulo the number of samples. Several data
//! sets that are mixed are one table, in which their records follow each other (`sources.rs`).

pub(crate) mod fields;
mod listed;
mod narrow;
mod undecoded;

use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bothends_core::blocks::Blocks;
use bothends_core::ids::{EpochIdx, Label, SampleId};
use bothends_core::link::SampleBytes;
use bothends_core::plan::PlanError;
use bothends_core::sample::{Encoding, Extent, FileIdx, Record, SampleKey};
use bothends_dataset::store::original_names;
use bothends_dataset::{Fields, Format, Piece, Table};
use bothends_decompress::Decompressed;
use bothends_figures::DataSet;
use bothends_gpu_decode::{Memory, TableSource};
use bothends_io::{
    Direct, Files, Folder, OpenFile, Reader, ReaderKind, Roots, is_of_machine,
    open_regular,
};
use bothends_ops::{Damage, Pipeline};
use bothends_side_index::{Beside, Cache, Name, Place, SideIndex};
use bothends_slots::available_bytes;

use self::listed::Listed;
pub(crate) use self::narrow::Note;
use crate::config::cache::CacheSize;
use crate::config::run::{BadPolicy, PageCacheUse, RunConfig, SideIndexUse};
use crate::error::{MACHINE_PATIENCE, RuntimeError};
use crate::read::blocks::{BlockSource, CachedPiece};
use crate::read::opener::{Open, Opened};
use crate::read::remote::{self, Remote};
use crate::read::sources::Sources;
use crate::read::supplied::{self, Failure, Records, Unmade};
use crate::threads::shutdown::{PATIENCE, Stop};
use crate::threads::ulimits::{KeptOpen, files_to_keep_open};

/// The pause after the first attempt; each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// Where the records of a shard begin, and their original files.
type Names = Vec<((u64, u32), String)>;

/// The data of a run, ready to be read.
#[derive(Debug)]
pub struct Source {
    /// The folders that the table's paths start from; what a device calls its media.
    pub(crate) roots: Roots,
    /// The data sets, where several are mixed.
    sources: Option<Arc<Sources>>,
    pub(crate) table: Arc<Table>,
    /// The further fields that were asked for.
    pub(crate) fields: Fields,
    /// Whether files are delivered as they are.
    is_undecoded: bool,
    /// Its hash, once somebody has asked: hashing passes over every sample.
    table_hash: OnceLock<u128>,
    /// Who gives the records, where they lie in no file.
    records: Option<Arc<dyn Records>>,
    /// The store that the records are fetched from, where they lie in no file of this machine.
    remote: Option<Arc<Remote>>,
    /// One line for the user for each way in which the data are read that may surprise.
    notes: Vec<String>,
    pub(crate) pipeline: Pipeline,
    pub(crate) seed: u64,
    side_index: Option<Arc<SideIndex>>,
    blocks: Option<BlockSource>,
    format: Format,
    /// The folders among the roots that others may not remove yet.
    _decompressed: Vec<Decompressed>,
    /// The shard that was asked about last, and the original files of its samples.
    names: Mutex<Option<(FileIdx, Names)>>,
    n_ids: u64,
    n_in_epoch: u64,
    files: Arc<Files>,
    /// Files that may be on their way to the reader at once.
    most_opening: usize,
    readers: Readers,
}

/// Who may read files of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readers {
    /// The reader thread.
    Thread,
    /// Workers, too, what the page cache has.
    Workers,
}

impl Source {
    /// Lists the data and fits the recipe to it. Blocks on the file system.
    pub(crate) fn open(config: &RunConfig) -> Result<Self, RuntimeError> {
        let path = remote::without_secrets(&config.data);
        let failed = |why: String| RuntimeError::Data { path: path.clone(), why };
        let listed = check_missing(config, listed::find(config).map_err(failed)?)?;
        let (sources, decompressed) = (listed.sources, listed.decompressed);
        let Listed { roots, table, fields, format, notes, remote, .. } = listed;
        let mix = config.mix.as_ref().zip(sources.as_deref());
        let mix = mix.map(|(mix, of)| of.mix(mix, config, (EpochIdx(0), config.repeat)));
        let mix = mix.transpose().map_err(PlanError::from)?;
        let undecoded = undecoded::shape(config, &table, format).map_err(failed)?;
        let is_undecoded = undecoded.is_some();
        let of_records = || table.record_shape().map_err(|e| failed(e.to_string()));
        let shape = undecoded.map_or_else(of_records, Ok)?;
        let views = config.recipe.views(shape)?;
        let pipeline = Pipeline::new(&config.recipe, views)
            .with_decode_room(config.decode_room(config.share.memory_bytes()));
        let records = config.supplied.as_ref().and_then(|given| given.records.clone());
        let n_samples = table.n_samples();
        let are_local = records.is_none() && remote.is_none();
        // What the caller gives lies in no file, and what is fetched in none of this machine.
        let n_files = if are_local { table.n_files() } else { 0 };
        let (kept_open, readers) = kept_open(config, n_files)?;
        let side_index_place = Place {
            // A mix has files below several folders, and one name.
            data: if sources.is_some() { &config.data } else { roots.first() },
            is_folder: are_local && sources.is_none(),
            beside: match config.read.side_index {
                SideIndexUse::Beside => Beside::Written,
                SideIndexUse::Auto | SideIndexUse::Off => Beside::Read,
            },
            cache: Cache::of_user(),
        };
        let are_images = table.encoding() == Encoding::Image && !is_undecoded;
        let are_files = are_images && format != Format::Store;
        let is_indexed = config.read.side_index != SideIndexUse::Off && are_files;
        let direct = direct(config.read.page_cache, &table);
        let (blocks, blocks_note) = match are_local && are_files && sources.is_none() {
            true => BlockSource::open(config, roots.first(), &table, direct),
            false => (None, no_blocks(config)),
        };
        let cache = config.cache.as_deref();
        let remote_note = remote.as_ref().and_then(|_| remote::note(&config.read, cache));
        let (mut remote, cache_note) = remote.map(|it| it.with_cache(config)).unzip();
        let few_note = remote.as_mut().map(|it| it.bound_requests(config)).transpose()?;
        let notes = notes.into_iter().chain(kept_open.note).chain(few_note.flatten());
        let n_ids = n_samples.saturating_mul(u64::from(config.repeat));
        Ok(Self {
            side_index: is_indexed.then(|| Arc::new(SideIndex::open(side_index_place))),
            blocks,
            records,
            remote: remote.map(Arc::new),
            most_opening: kept_open.n_opening,
            readers,
            files: Arc::new(Files::new(roots.clone(), kept_open.n, direct)),
            roots,
            sources,
            format,
            names: Mutex::default(),
            notes: notes
                .chain(blocks_note)
                .chain(remote_note)
                .chain(cache_note.flatten())
                .collect(),
            table,
            _decompressed: decompressed,
            fields,
            is_undecoded,
            table_hash: OnceLock::new(),
            pipeline,
            seed: config.seed,
            n_ids,
            n_in_epoch: mix.map_or(n_ids, |mix| mix.n_samples()),
        })
    }

    /// The table as devices are told it; of objects in a remote store also what they were when they were
    /// listed.
    pub(crate) fn manifest(&self) -> Vec<u8> {
        match &self.remote {
            Some(remote) => self.table.encode_marked(|file| remote.mark(file)),
            None => self.table.encode(),
        }
    }

    /// What a sample takes on the way to this host: its record, as a mean, or a device's result.
    pub(crate) fn sample_bytes(&self) -> SampleBytes {
        let n = self.n_samples().max(1);
        let sum = lens(&self.table).fold(0_u64, u64::saturating_add);
        SampleBytes { host: sum / n, device: self.pipeline.sample_bytes() as u64 }
    }

    /// Samples of the data set, before it is repeated.
    #[must_use]
    pub fn n_samples(&self) -> u64 {
        self.table.n_samples()
    }

    /// What identifies the table. Reads all of it the first time, and nothing from then on.
    pub(crate) fn table_hash(&self) -> u128 {
        *self.table_hash.get_or_init(|| self.table.hash())
    }

    /// What ranks that share a run must have in common. As for the hash, all of the table is read the first
    /// time.
    pub(crate) fn data_set(&self) -> DataSet {
        let table_hash = format!("{:032x}", self.table_hash());
        DataSet { samples: self.n_samples(), table_hash }
    }

    /// Sample ids of the repeated data set. A mix has more: of every visit of a record one.
    #[must_use]
    pub fn n_ids(&self) -> u64 {
        self.n_ids
    }

    /// Samples of an epoch of all ranks, where no order is supplied.
    #[must_use]
    pub fn n_in_epoch(&self) -> u64 {
        self.n_in_epoch
    }

    /// The data sets, where several are mixed.
    #[must_use]
    pub fn sources(&self) -> Option<&Arc<Sources>> {
        self.sources.as_ref()
    }

    /// Whether there is a sample with this id.
    pub(crate) fn has(&self, sample: SampleId) -> bool {
        sample.0 < self.n_ids || self.sources.is_some()
    }

    /// The sample that takes the place of a bad one, `draw` of 2^64 of the way through those that may:
    /// those of its own data set.
    pub(crate) fn other(&self, bad: SampleId, draw: u64) -> SampleId {
        if let Some(sources) = &self.sources {
            return sources.other(bad, draw);
        }
        let scaled = (u128::from(draw) * u128::from(self.n_ids)) >> 64;
        SampleId(u64::try_from(scaled).unwrap_or(0))
    }

    /// One line for the user for each way in which the data are read that may surprise.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What is read for the sample of `key`.
    pub(crate) fn piece(&self, key: SampleKey) -> Piece {
        let choose = |blocks: Blocks<'_>| self.pipeline.groups_for(key, blocks).ok();
        self.table.piece(key.sample, choose)
    }

    /// The bytes of such a piece as a record.
    pub(crate) fn record<'a>(
        &'a self,
        sample: SampleId,
        piece: Piece,
        bytes: &'a [u8],
    ) -> Result<Record<'a>, String> {
        self.table.record(sample, piece, bytes).map_err(|e| e.to_string())
    }

    /// What a sample's random numbers are keyed by.
    pub(crate) fn key(&self, epoch: EpochIdx, sample: SampleId) -> SampleKey {
        SampleKey { seed: self.seed, epoch, sample }
    }

    pub(crate) fn label(&self, sample: SampleId) -> Label {
        self.table.label(sample)
    }

    /// What is known about the images, if that is to be used.
    pub(crate) fn side_index(&self) -> Option<&SideIndex> {
        self.side_index.as_deref()
    }

    /// The block cache, if these data have one.
    pub(crate) fn blocks(&self) -> Option<&BlockSource> {
        self.blocks.as_ref()
    }

    /// Where the block cache of these data is, what it holds and whether it grows, in one line; `None`
    /// if they have none. Asks the file system.
    #[must_use]
    pub fn block_cache(&self) -> Option<String> {
        self.blocks.as_ref().map(BlockSource::summary)
    }

    /// What the block cache knows a record by, if it lies in `file`.
    pub(crate) fn exact_name(&self, sample: SampleId, file: &OpenFile) -> Name {
        Name::exactly(self.table.index_key(sample), file.age(), file.changed_ns())
    }

    /// What the block cache has for the sample of `key`, if its record lies in `file`.
    pub(crate) fn cached(&self, key: SampleKey, file: &OpenFile) -> Option<CachedPiece> {
        let name = self.exact_name(key.sample, file);
        self.blocks
            .as_ref()?
            .find(name, |blocks| self.pipeline.groups_for(key, blocks).ok())
    }

    /// What the side index knows a record by; `file` is the one it lies in.
    pub(crate) fn name(&self, sample: SampleId, file: &OpenFile) -> Name {
        Name::of_file(self.table.index_key(sample), file.age(), file.changed_ns())
    }

    /// The same data for a producer that decodes on a GPU and reads by a reader of its own: same
    /// table, files and side index, so that each knows what the other has learnt.
    pub(crate) fn for_gpu(&self, reader: Box<dyn Reader>) -> TableSource {
        TableSource {
            table: Arc::clone(&self.table),
            files: Arc::clone(&self.files),
            reader,
            side_index: self.side_index.clone(),
            pipeline: self.pipeline.clone(),
            seed: self.seed,
            memory: Memory::default(),
        }
    }

    /// Whether the host reads through the page cache.
    #[must_use]
    pub fn goes_through_page_cache(&self) -> bool {
        self.remote.is_none() && !self.files.is_direct()
    }

    /// Whether workers may read what the page cache has.
    pub(crate) fn do_workers_read(&self) -> bool {
        self.readers == Readers::Workers && self.goes_through_page_cache()
    }

    /// The store that the records are fetched from, if it is a remote one.
    pub(crate) fn remote(&self) -> Option<&Arc<Remote>> {
        self.remote.as_ref()
    }

    /// What the side index knows a record by that was fetched from that store.
    pub(crate) fn name_of_fetched(&self, remote: &Remote, sample: SampleId) -> Name {
        let file = self.table.extent(sample).file;
        let name = remote.name(self.table.index_key(sample), file);
        // What the record cache believes, the side index does.
        name.marked(self.cache_name(remote, sample))
    }

    /// The sample's file, for messages; of a sample in a store its original file and the
    /// shard. Blocks on the storage, once for each shard that is asked about in turn.
    pub(crate) fn file_name(&self, sample: SampleId) -> String {
        if self.records.is_some() {
            return supplied::name_of(&self.table, sample);
        }
        let extent = self.table.extent(sample);
        let path = self.table.file_path(extent.file);
        if self.format != Format::Store {
            return path;
        }
        if let Some(remote) = &self.remote {
            return remote.shown(&path);
        }
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.as_ref().is_none_or(|(shard, _)| *shard != extent.file) {
            let (root, below) = self.roots.split(&path);
            let found = original_names(&Folder(root.to_owned()), below);
            *names = Some((extent.file, found.unwrap_or_default()));
        }
        let names = names.as_ref().map_or(&[][..], |(_, names)| names);
        let place = (extent.offset, extent.len);
        let first = names.partition_point(|(other, _)| *other < place);
        // Records without bytes share a place.
        let before = (0..self.record_of(sample)).rev().map(SampleId);
        let nth = before.take_while(|id| self.table.extent(*id) == extent).count();
        match names.get(first + nth) {
            Some((other, name)) if *other == place => format!("{name} in {path}"),
            Some(_) | None => path,
        }
    }

    /// The record of the data set that a sample is made of.
    pub(crate) fn record_of(&self, sample: SampleId) -> u64 {
        sample.0 % self.n_samples().max(1)
    }

    /// Who gives the records, where they lie in no file.
    pub(crate) fn records(&self) -> Option<&dyn Records> {
        self.records.as_deref()
    }

    /// The side index's name of a record that lies in no file.
    pub(crate) fn name_of_supplied(&self, sample: SampleId) -> Name {
        Name::without_file(self.table.index_key(sample))
    }

    /// Reads a piece of a sample on the calling thread: the rare way, for samples that are
    /// made once more.
    ///
    /// # Errors
    /// [`Unmade`]; whatever it is, it is told at once.
    pub(crate) fn read(&self, sample: SampleId, piece: Piece) -> Result<Vec<u8>, Unmade> {
        self.read_until(sample, piece, None)
    }

    /// The same; it ends early once `stop` is set, where reading takes long.
    pub(crate) fn read_until(
        &self,
        sample: SampleId,
        piece: Piece,
        stop: Option<&Stop>,
    ) -> Result<Vec<u8>, Unmade> {
        match &self.records {
            Some(records) => {
                let read = records.read(sample.0 % self.n_samples());
                read.map_err(|unread| unread.unmade(self.file_name(sample)))
            }
            None => self.read_extent(piece.extent, stop),
        }
    }

    /// As [`Self::read`], with more attempts while it is the machine that fails: where that lasts,
    /// the run ends, and it must not for a moment's want of memory.
    ///
    /// # Errors
    /// [`Unmade`]: what the machine says, after [`MACHINE_PATIENCE`], or as soon as `stop` is set.
    pub(crate) fn read_patiently(
        &self,
        sample: SampleId,
        piece: Piece,
        stop: &Stop,
    ) -> Result<Vec<u8>, Unmade> {
        self.patiently(stop, || self.read_until(sample, piece, Some(stop)))
    }

    fn patiently(
        &self,
        stop: &Stop,
        mut read: impl FnMut() -> Result<Vec<u8>, Unmade>,
    ) -> Result<Vec<u8>, Unmade> {
        let deadline = Instant::now() + MACHINE_PATIENCE;
        let mut pause = FIRST_PAUSE;
        loop {
            match read() {
                Err(Unmade::Machine(Failure::Local { .. }))
                    if !stop.is_set() && Instant::now() + pause < deadline =>
                {
                    // Should it be open files that are missing: these are ours.
                    self.files.close();
                    thread::sleep(pause);
                    // The pauses grow no longer than a loop may be in one wait.
                    pause = PATIENCE.min(pause * 2);
                }
                done => return done,
            }
        }
    }

    /// All of a sample's record, as it lies in storage, read on the calling thread.
    ///
    /// # Errors
    /// [`Unmade`], at once.
    pub(crate) fn whole_record(&self, sample: SampleId) -> Result<Vec<u8>, Unmade> {
        self.read_extent(self.table.extent(sample), None)
    }

    fn read_extent(
        &self,
        extent: Extent,
        stop: Option<&Stop>,
    ) -> Result<Vec<u8>, Unmade> {
        if let Some(remote) = &self.remote {
            return remote.read(&self.table.file_path(extent.file), extent, stop);
        }
        let path = self.roots.path(&self.table.file_path(extent.file));
        let mut bytes = vec![0; extent.len as usize];
        let read = open_regular(&path).and_then(|file| {
            file.read_exact_at(&mut bytes, extent.offset)?;
            file.metadata()
        });
        match read {
            Ok(found) => {
                let checked = self.check_len(extent.file, found.len());
                checked.map(|()| bytes).map_err(Unmade::Bad)
            }
            Err(source) if is_of_machine(&source) => {
                Err(Unmade::Machine(Failure::Local { path, source }))
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(Unmade::Bad("its file ends before it does".to_owned()))
            }
            Err(error) => Err(Unmade::Bad(format!("it cannot be read ({error})"))),
        }
    }
}

impl Source {
    /// A file of another length is another file, of which a part would be decoded under the old label.
    fn check_len(&self, file: FileIdx, len: u64) -> Result<(), String> {
        match self.table.whole_file_len(file).filter(|listed| *listed != len) {
            Some(listed) => Err(format!(
                "it has {len} bytes, and had {listed} when it was listed; restore it or start again"
            )),
            None => Ok(()),
        }
    }
}

impl Open for Source {
    fn known(&self, file: FileIdx) -> Option<Arc<OpenFile>> {
        self.files.opened(file).filter(|open| self.check_len(file, open.age().0).is_ok())
    }

    fn most_opening(&self) -> usize {
        self.most_opening
    }

    fn open(&self, file: FileIdx) -> Opened {
        let opened = self.files.open(file, || self.table.file_path(file));
        let opened = opened.map_err(|error| error.to_string())?;
        let checked = self.check_len(file, opened.age().0).map(|()| opened);
        // Once it is restored, it is to be opened again.
        checked.inspect_err(|_| self.files.forget(file))
    }
}

/// What is wrong with a record that was decoded all the same, for people.
pub(crate) fn damage_words(Damage { format, what }: Damage) -> String {
    format!("{format}: {what}")
}

/// Where bad samples end the run, one that is known to be bad ends it before it begins.
fn check_missing(config: &RunConfig, listed: Listed) -> Result<Listed, RuntimeError> {
    let (BadPolicy::Raise, Some(sample)) = (config.on_bad, listed.missing) else {
        return Ok(listed);
    };
    let file = listed.table.file_path(listed.table.extent(sample).file);
    Err(RuntimeError::BadSample {
        sample,
        file: file.to_owned(),
        why: "the list names it, but there is no such file".to_owned(),
        found_by: "the host".to_owned(),
    })
}

/// How many of so many files of the data stay open, and who may read them: where workers cannot have a descriptor each,
/// the reader thread reads all.
fn kept_open(
    config: &RunConfig,
    n_files: usize,
) -> Result<(KeptOpen, Readers), RuntimeError> {
    let open = |n_read| files_to_keep_open(n_files, n_read, config.devices.len());
    let depth = config.read.depth;
    // A reader that was asked for by its name reads all, too.
    if n_files > 0
        && config.read.kind == ReaderKind::Auto
        && let Ok(kept) = open(depth.saturating_add(config.workers))
    {
        return Ok((kept, Readers::Workers));
    }
    open(depth).map(|kept| (kept, Readers::Thread))
}

/// Whether the data are read past the page cache.
fn direct(wanted: PageCacheUse, table: &Table) -> Direct {
    let goes_through = match wanted {
        PageCacheUse::Through => true,
        PageCacheUse::Past => false,
        PageCacheUse::Auto => {
            let most = available_bytes().map_or(0, |bytes| bytes / 2);
            // As far as it takes to know.
            let mut sums = lens(table).scan(0_u64, |sum, len| {
                *sum += len;
                Some(*sum)
            });
            sums.all(|sum| sum <= most)
        }
    };
    if goes_through { Direct::Off } else { Direct::Auto }
}

/// One line for the user where a block cache was asked for and there is none.
fn no_blocks(config: &RunConfig) -> Option<String> {
    let is_asked = matches!(config.read.cache_size, CacheSize::Bytes(_));
    let line = "a mix of data sets has no block cache; pack the data sets instead";
    (is_asked && config.mix.is_some()).then(|| line.to_owned())
}

/// Bytes of each sample as they lie in storage.
pub(crate) fn lens(table: &Table) -> impl Iterator<Item = u64> + '_ {
    (0..table.n_samples()).map(|sample| u64::from(table.extent(SampleId(sample)).len))
}
