//! The data of a run: its extent table, its files, and the recipe made ready for them.
//!
//! Shared by every thread of the host; nothing in it changes after it was opened. Sample ids
//! run over the repeated data set; a record is found by the id modulo the number of samples.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bothends_core::blocks::Blocks;
use bothends_core::ids::{EpochIdx, Label, SampleId};
use bothends_core::sample::{Encoding, Extent, FileIdx, Record, SampleKey};
use bothends_dataset::side_index::stamp;
use bothends_dataset::store::original_names;
use bothends_dataset::{Format, Found, Piece, Table};
use bothends_io::Folder;
use bothends_io::{Direct, Files, OpenFile};
use bothends_ops::Pipeline;

use crate::config::run::{PageCacheUse, RunConfig, SideIndexUse};
use crate::error::RuntimeError;
use crate::measure::machine::available_memory_bytes;
use crate::read::side_index::{Name, Place, SideIndex};
use crate::read::supplied::{self, Records};

/// Files that stay open.
const MOST_OPEN: usize = 64;

/// Where the records of a shard begin, and their original files.
type Names = Vec<(u64, String)>;

/// The data of a run, ready to be read.
#[derive(Debug)]
pub struct Source {
    /// The folder that the table's paths start from; what a device calls its media.
    pub(crate) root: PathBuf,
    pub(crate) table: Arc<Table>,
    /// Who gives the records, where they lie in no file.
    records: Option<Arc<dyn Records>>,
    /// One line for the user when the data were read in a way that may surprise.
    pub(crate) note: Option<&'static str>,
    /// Files that belong to no sample.
    pub(crate) n_ignored: u64,
    pub(crate) pipeline: Pipeline,
    pub(crate) seed: u64,
    side_index: Option<SideIndex>,
    format: Format,
    /// The shard that was asked about last, and the original files of its samples.
    names: Mutex<Option<(FileIdx, Names)>>,
    n_ids: u64,
    files: Files,
}

impl Source {
    /// Lists the data and fits the recipe to it. Blocks on the file system.
    pub(crate) fn open(config: &RunConfig) -> Result<Self, RuntimeError> {
        let failed = |why: String| RuntimeError::Data { path: config.data.clone(), why };
        let (root, found) = find(config).map_err(failed)?;
        let shape = found.table.record_shape().map_err(|e| failed(e.to_string()))?;
        let views = config.recipe.views(shape)?;
        let pipeline = Pipeline::new(&config.recipe, views);
        let table = found.table;
        let records = config.supplied.as_ref().and_then(|given| given.records.clone());
        let n_samples = table.n_samples();
        let side_index_place = Place {
            data: &root,
            is_folder: records.is_none(),
            wanted: config.read.side_index,
        };
        let is_indexed = config.read.side_index != SideIndexUse::Off
            && table.encoding() == Encoding::Image
            && found.format != Format::Store;
        Ok(Self {
            side_index: is_indexed.then(|| SideIndex::open(side_index_place)),
            records,
            files: Files::new(&root, MOST_OPEN, direct(config.read.page_cache, &table)),
            root,
            format: found.format,
            names: Mutex::default(),
            note: found.note,
            n_ignored: found.n_ignored,
            table,
            pipeline,
            seed: config.seed,
            n_ids: n_samples.saturating_mul(u64::from(config.repeat)),
        })
    }

    /// Samples of the data set, before it is repeated.
    #[must_use]
    pub fn n_samples(&self) -> u64 {
        self.table.n_samples()
    }

    /// Sample ids of an epoch: the repeated data set.
    #[must_use]
    pub fn n_ids(&self) -> u64 {
        self.n_ids
    }

    /// One line for the user about how the data were read, where that may surprise.
    #[must_use]
    pub fn note(&self) -> Option<&'static str> {
        self.note
    }

    /// Files below the data path that belong to no sample.
    #[must_use]
    pub fn n_ignored(&self) -> u64 {
        self.n_ignored
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
        self.side_index.as_ref()
    }

    /// What the side index knows a record by; `file` is the one it lies in.
    pub(crate) fn name(&self, sample: SampleId, file: &OpenFile) -> Name {
        let (len, modified_ns) = file.age();
        Name { key: self.table.index_key(sample), stamp: stamp(len, modified_ns) }
    }

    /// Whether the host reads through the page cache.
    #[must_use]
    pub fn goes_through_page_cache(&self) -> bool {
        !self.files.is_direct()
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
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.as_ref().is_none_or(|(shard, _)| *shard != extent.file) {
            let found = original_names(&Folder(self.root.clone()), &path);
            *names = Some((extent.file, found.unwrap_or_default()));
        }
        let names = names.as_ref().map_or(&[][..], |(_, names)| names);
        match names.binary_search_by_key(&extent.offset, |(offset, _)| *offset) {
            Ok(place) => format!("{} in {path}", names[place].1),
            Err(_) => path,
        }
    }

    pub(crate) fn open_file(&self, file: FileIdx) -> Result<Arc<OpenFile>, String> {
        self.files.open(file, || self.table.file_path(file)).map_err(|e| e.to_string())
    }

    /// Who gives the records, where they lie in no file.
    pub(crate) fn records(&self) -> Option<&dyn Records> {
        self.records.as_deref()
    }

    /// The side index's name of a record that lies in no file: its bytes are compared anyway.
    pub(crate) fn name_of_supplied(&self, sample: SampleId) -> Name {
        Name { key: self.table.index_key(sample), stamp: 0 }
    }

    /// Reads a piece of a sample on the calling thread: the rare way, for samples that are
    /// made once more.
    pub(crate) fn read(&self, sample: SampleId, piece: Piece) -> Result<Vec<u8>, String> {
        match &self.records {
            Some(records) => records.read(sample.0 % self.n_samples()),
            None => self.read_extent(piece.extent),
        }
    }

    fn read_extent(&self, extent: Extent) -> Result<Vec<u8>, String> {
        let path = self.root.join(self.table.file_path(extent.file));
        let mut bytes = vec![0; extent.len as usize];
        File::open(&path)
            .and_then(|file| file.read_exact_at(&mut bytes, extent.offset))
            .map_err(|e| match e.kind() == ErrorKind::UnexpectedEof {
                true => "its file ends before it does".to_owned(),
                false => format!("it cannot be read ({e})"),
            })?;
        Ok(bytes)
    }
}

/// Whether the data are read past the page cache.
fn direct(wanted: PageCacheUse, table: &Table) -> Direct {
    let goes_through = match wanted {
        PageCacheUse::Through => true,
        PageCacheUse::Past => false,
        PageCacheUse::Auto => {
            let most = available_memory_bytes().map_or(0, |bytes| bytes / 2);
            let lens = (0..table.n_samples())
                .map(|sample| u64::from(table.extent(SampleId(sample)).len));
            // As far as it takes to know.
            let mut sums = lens.scan(0_u64, |sum, len| {
                *sum += len;
                Some(*sum)
            });
            sums.all(|sum| sum <= most)
        }
    };
    if goes_through { Direct::Off } else { Direct::Auto }
}

/// The samples of a run, with the folder that their files lie in. What devices are told is
/// limited too: an id means the same record everywhere.
fn find(config: &RunConfig) -> Result<(PathBuf, Listed), String> {
    if let Some(supplied) = &config.supplied {
        let table = match config.limit {
            None => Arc::clone(&supplied.table),
            Some(limit) => Arc::new(Table::clone(&supplied.table).first(limit)),
        };
        let (format, n_ignored, note) = (Format::List, 0, None);
        return Ok((config.data.clone(), Listed { table, format, n_ignored, note }));
    }
    let (root, target) = root_and_target(&config.data)?;
    let found = bothends_dataset::find(&Folder(root.clone()), &target)
        .map_err(|e| e.to_string())?;
    let Found { table, format, n_ignored, note } = found;
    let table = Arc::new(table.first(config.limit.unwrap_or(u64::MAX)));
    Ok((root, Listed { table, format, n_ignored, note }))
}

/// A data set that was found or supplied.
struct Listed {
    table: Arc<Table>,
    format: Format,
    n_ignored: u64,
    note: Option<&'static str>,
}

/// A folder is its own root; a file is a target in its folder.
pub(crate) fn root_and_target(path: &Path) -> Result<(PathBuf, String), String> {
    let found = std::fs::metadata(path).map_err(|e| {
        let is_missing = e.kind() == ErrorKind::NotFound;
        if is_missing {
            "no such file or folder; check the path".to_owned()
        } else {
            e.to_string()
        }
    })?;
    if found.is_dir() {
        return Ok((path.to_owned(), String::new()));
    }
    let name =
        path.file_name().and_then(|name| name.to_str()).ok_or("its name is not text")?;
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")).to_owned(), name.to_owned()))
}
