//! A data set in files, as a source: its samples in order, then everything else.
//!
//! Files that do not belong to a sample are rests, and so are bytes between samples and empty
//! folders, so unpacking gives the same tree. Links are followed, and their targets are packed; one that
//! leads back to a folder above it is refused. A side index is left out (it can be made again), and so is
//! whatever is not a regular file, such as a pipe.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bothends_core::ids::SampleId;
use bothends_core::sample::Encoding;
use bothends_dataset::{Ask, Entry, Found, Kind, Storage, find_fields};
use bothends_dataset::{Format, Table, side_index};
use bothends_decompress::{Compressed, Decompressed, Watch, find_in};
use bothends_io::{Folder, list, open_regular};
use bothends_storage::{Options, StorageError, View, around, is_url};

use crate::record::{Item, Made};
use crate::source::Source;
use crate::{Converter, PackError};

/// Longer rests are split into several records.
const MAX_REST_BYTES: u64 = 64 << 20;

/// A data set in files.
#[derive(Debug)]
pub struct Files {
    place: Place,
    target: String,
    table: Table,
    /// The length of each file of the table.
    file_bytes: Vec<u64>,
    rests: Vec<Rest>,
    names: Vec<String>,
    /// The folder, if nobody may remove it yet.
    _decompressed: Option<Decompressed>,
}

/// Where the files are.
#[derive(Debug)]
enum Place {
    /// In this folder.
    Folder(PathBuf),
    /// In a remote store.
    Remote(View),
}

impl Place {
    /// The file as the user would write it.
    fn path(&self, path: &str) -> PathBuf {
        match self {
            Self::Folder(root) => root.join(path),
            Self::Remote(view) => view.shown(path).into(),
        }
    }

    fn len(&self, path: &str) -> Result<u64, PackError> {
        let at = self.path(path);
        let failed = PackError::at("open", &at);
        match self {
            Self::Folder(_) => fs::metadata(&at).map(|found| found.len()),
            Self::Remote(view) => view.kind(path).and_then(|kind| match kind {
                Kind::File { len } => Ok(len),
                Kind::Folder => Err(io::ErrorKind::IsADirectory.into()),
            }),
        }
        .map_err(failed)
    }
}

/// Bytes of a file that do not belong to a sample.
#[derive(Debug)]
struct Rest {
    path: String,
    file_bytes: u64,
    parts: Vec<Range<u64>>,
    is_folder: bool,
}

impl Rest {
    fn len(&self) -> u64 {
        self.parts.iter().map(|part| part.end - part.start).sum()
    }
}

impl Files {
    /// Finds the data set at `path`, which may be the URL of a remote store, and everything besides its
    /// samples. Blocks on the storage: every folder is listed. Compressed shards are decompressed into the user's
    /// cache directory first, and what is packed are the decompressed ones.
    ///
    /// # Errors
    /// [`PackError::Dataset`], [`PackError::Failed`], [`PackError::Storage`], [`PackError::Decompress`].
    pub fn open(path: &Path) -> Result<Self, PackError> {
        Self::open_watched(path, &Watch::default())
    }

    /// The same, and who is told while shards are decompressed.
    ///
    /// # Errors
    /// As [`Files::open`].
    pub fn open_watched(path: &Path, watch: &Watch) -> Result<Self, PackError> {
        let find = |storage: &(dyn Storage + Sync), target: &str| {
            let data = Compressed { storage, target };
            let cache = bothends_decompress::Place::of_user();
            find_in(data, cache.as_ref(), watch, |storage, target| {
                find_fields(storage, target, Ask::Names)
            })
        };
        if let Some(url) = path.to_str().filter(|text| is_url(text)) {
            let (view, target) = around(url, &Options::from_environment())?;
            let (found, made) = find(&view, &target)?;
            let Some(made) = made else {
                return Self::of(Place::Remote(view), target, found);
            };
            return Self::decompressed(made, found);
        }
        let failed = PackError::at("open", path);
        let (folder, target) = Folder::around(path).map_err(failed)?;
        let (found, made) = find(&folder, &target)?;
        match made {
            Some(made) => Self::decompressed(made, found),
            None => Self::of(Place::Folder(folder.0), target, found),
        }
    }

    fn decompressed(made: Decompressed, found: Found) -> Result<Self, PackError> {
        let (root, target) = (made.root().to_owned(), made.target().to_owned());
        let files = Self::of(Place::Folder(root), target, found)?;
        Ok(Self { _decompressed: Some(made), ..files })
    }

    fn of(place: Place, target: String, found: Found) -> Result<Self, PackError> {
        // A store's records are not files, and only `stored.rs` has what they are made of again.
        if found.format == Format::Store {
            return Err(PackError::StoreAsFiles { path: place.path(&target) });
        }
        let names = found.names.into_iter().map(|field| field.name).collect();
        let table = found.table;
        let mut files = Vec::new();
        let mut empty_folders = Vec::new();
        if target.is_empty() {
            match &place {
                Place::Folder(root) => {
                    let mut walk = Walk { root, above: Vec::new(), files, empty_folders };
                    walk.folder("")?;
                    Walk { files, empty_folders, .. } = walk;
                }
                Place::Remote(view) => walk_objects(view, &mut files)?,
            }
        }
        let n_files = u32::try_from(table.n_files()).unwrap_or(u32::MAX);
        let paths = (0..n_files)
            .map(|file| table.file_path(bothends_core::sample::FileIdx(file)));
        let paths: Vec<String> = paths.collect();
        let mut listed: HashMap<String, u64> = files.iter().cloned().collect();
        if !target.is_empty() {
            // A list is not part of any sample itself; the files that it names are its data.
            let own = (found.format == Format::List).then_some(&target);
            for path in paths.iter().chain(own) {
                let len = place.len(path)?;
                if listed.insert(path.clone(), len).is_none() {
                    files.push((path.clone(), len));
                }
            }
        }
        let len = |path: &String| listed.get(path).copied().unwrap_or(0);
        let file_bytes = paths.iter().map(len).collect();
        let mut rests = rests(&table, &paths, files);
        rests.extend(empty_folders.into_iter().map(|path| Rest {
            path,
            file_bytes: 0,
            parts: Vec::new(),
            is_folder: true,
        }));
        let _decompressed = None;
        Ok(Self { place, target, table, file_bytes, rests, names, _decompressed })
    }

    /// The names of all fields of the samples, image and class among them, as far as the format has names.
    #[must_use]
    pub fn field_names(&self) -> &[String] {
        &self.names
    }

    fn n_samples(&self) -> usize {
        usize::try_from(self.table.n_samples()).unwrap_or(usize::MAX)
    }

    /// Adds parts of a file to `out`; it must still have the `len` bytes that it had when it was
    /// listed.
    fn read(
        &self,
        (path, len): (&str, u64),
        parts: &[Range<u64>],
        out: &mut Vec<u8>,
    ) -> Result<(), PackError> {
        let at = self.place.path(path);
        let file = match &self.place {
            Place::Folder(_) => Some(opened(&at, len)?),
            Place::Remote(_) => None,
        };
        for part in parts {
            let before = out.len();
            let n = usize::try_from(part.end - part.start).unwrap_or(usize::MAX);
            out.resize(before.saturating_add(n), 0);
            let dst = &mut out[before..];
            let read = match (&self.place, &file) {
                (Place::Remote(view), _) => view.read(path, part.start, dst),
                (Place::Folder(_), Some(file)) => file.read_exact_at(dst, part.start),
                (Place::Folder(_), None) => Ok(()),
            };
            read.map_err(|source| not_read(at.clone(), source))?;
        }
        Ok(())
    }
}

/// The file, if it still has so many bytes.
fn opened(path: &Path, len: u64) -> Result<File, PackError> {
    let file = open_regular(path).map_err(PackError::at("open", path))?;
    let found = file.metadata().map_err(PackError::at("open", path))?;
    match found.len() == len {
        true => Ok(file),
        false => Err(PackError::Changed { path: path.to_owned() }),
    }
}

fn not_read(path: PathBuf, source: io::Error) -> PackError {
    match StorageError::of(&source) {
        Some(error) => error.into(),
        None if source.kind() == io::ErrorKind::UnexpectedEof => {
            PackError::Changed { path }
        }
        None => PackError::Failed { doing: "read", path, source },
    }
}

impl Source for Files {
    fn name(&self) -> String {
        format!("`{}`", self.place.path(&self.target).display())
    }

    fn encoding(&self) -> Encoding {
        self.table.encoding()
    }

    fn classes(&self) -> Vec<String> {
        self.table.class_names().map(str::to_owned).collect()
    }

    fn n_records(&self) -> usize {
        self.n_samples() + self.rests.len()
    }

    fn item(&self, number: usize) -> Item {
        if let Some(rest) = number.checked_sub(self.n_samples()) {
            let rest = &self.rests[rest];
            return Item {
                path: rest.path.clone(),
                is_sample: false,
                label: u32::from(rest.is_folder),
                at: rest.file_bytes,
                len: u32::try_from(rest.len()).expect("rests are cut to pieces"),
            };
        }
        let sample = SampleId(number as u64);
        let extent = self.table.extent(sample);
        Item {
            path: self.table.file_path(extent.file),
            is_sample: true,
            label: u32::try_from(self.table.label(sample).0).expect("a table's are u32"),
            at: extent.offset,
            len: extent.len,
        }
    }

    fn has_changed_since(
        &self,
        number: usize,
        time: SystemTime,
    ) -> Result<bool, PackError> {
        let path = self.item(number).path;
        if let Place::Remote(view) = &self.place {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let modified = view.identity(&path)?.modified;
            return Ok(modified.is_some_and(|modified| modified > since));
        }
        let path = self.place.path(&path);
        let found = fs::metadata(&path).map_err(PackError::at("open", &path))?;
        // A folder's time reflects what was put into it, which is listed anyway.
        Ok(found.is_file() && found.modified().is_ok_and(|modified| modified > time))
    }

    fn make(&self, number: usize, converter: &mut Converter) -> Result<Made, PackError> {
        let item = self.item(number);
        let mut bytes = Vec::new();
        self.original(number, converter, &mut bytes)?;
        Ok(match item.is_sample {
            true => converter.convert(item, bytes, self.encoding()),
            false => Made::bytes(item, bytes),
        })
    }

    fn original(
        &self,
        number: usize,
        _: &mut Converter,
        out: &mut Vec<u8>,
    ) -> Result<(), PackError> {
        out.clear();
        let item = self.item(number);
        if item.is_sample {
            let extent = self.table.extent(SampleId(number as u64));
            let len = self.file_bytes[extent.file.0 as usize];
            let part = item.at..item.at + u64::from(item.len);
            return self.read((&item.path, len), &[part], out);
        }
        let rest = &self.rests[number - self.n_samples()];
        if rest.is_folder {
            return Ok(());
        }
        self.read((&item.path, rest.file_bytes), &rest.parts, out)
    }
}

/// Finds every file below a folder with its length, and every empty folder.
struct Walk<'a> {
    root: &'a Path,
    /// Device and inode of the folders that it is in: a link may lead back to one of them.
    above: Vec<(u64, u64)>,
    files: Vec<(String, u64)>,
    empty_folders: Vec<String>,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &str) -> Result<(), PackError> {
        let path = self.root.join(folder);
        let found = fs::metadata(&path).map_err(PackError::at("list", &path))?;
        let own = (found.dev(), found.ino());
        if self.above.contains(&own) {
            return Err(PackError::Circle { path });
        }
        let mut listed = list(&path).map_err(|e| PackError::Failed {
            doing: "list",
            path,
            source: io::Error::other(e),
        })?;
        listed.retain(|listed| !side_index::is_segment(&listed.name));
        if listed.is_empty() && !folder.is_empty() {
            self.empty_folders.push(folder.to_owned());
        }
        self.above.push(own);
        for listed in listed {
            let path = match folder {
                "" => listed.name,
                _ => format!("{folder}/{}", listed.name),
            };
            match listed.kind {
                Kind::Folder => self.folder(&path)?,
                Kind::File { len } => self.files.push((path, len)),
            }
        }
        self.above.pop();
        Ok(())
    }
}

/// Every object with its length; a remote store has no empty folders. Names may have any number of
/// folders, so none of them takes stack.
fn walk_objects(view: &View, files: &mut Vec<(String, u64)>) -> Result<(), PackError> {
    let mut left = vec![(String::new(), Kind::Folder)];
    while let Some((path, kind)) = left.pop() {
        if let Kind::File { len } = kind {
            files.push((path, len));
            continue;
        }
        let failed = |source| not_read(view.shown(&path).into(), source);
        let mut entries = view.list(&path).map_err(failed)?;
        entries.retain(|entry| !side_index::is_segment(&entry.name));
        // The first one is taken first.
        entries.sort_unstable_by(|a, b| b.name.cmp(&a.name));
        left.extend(entries.into_iter().map(|Entry { name, kind }| {
            let path = if path.is_empty() { name } else { format!("{path}/{name}") };
            (path, kind)
        }));
    }
    Ok(())
}

/// The parts of `files` that do not belong to samples.
fn rests(table: &Table, paths: &[String], files: Vec<(String, u64)>) -> Vec<Rest> {
    let mut samples: HashMap<&str, Vec<Range<u64>>> = HashMap::new();
    for sample in (0..table.n_samples()).map(SampleId) {
        let extent = table.extent(sample);
        let range = extent.offset..extent.offset + u64::from(extent.len);
        samples.entry(&paths[extent.file.0 as usize]).or_default().push(range);
    }
    let mut rests = Vec::new();
    for (path, file_bytes) in files {
        let parts = match samples.get_mut(path.as_str()) {
            Some(samples) => {
                let parts = between(samples, file_bytes);
                if parts.is_empty() {
                    continue;
                }
                parts
            }
            None => between(&mut [], file_bytes),
        };
        for parts in pieces(parts) {
            rests.push(Rest { path: path.clone(), file_bytes, parts, is_folder: false });
        }
    }
    rests
}

/// The parts of a file of this length that are in none of the ranges.
pub(crate) fn between(ranges: &mut [Range<u64>], file_bytes: u64) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut parts = Vec::new();
    let mut at = 0;
    for range in ranges {
        if range.start > at {
            parts.push(at..range.start);
        }
        at = at.max(range.end);
    }
    if at < file_bytes {
        parts.push(at..file_bytes);
    }
    parts
}

/// The same parts, grouped into records; at least one.
fn pieces(parts: Vec<Range<u64>>) -> Vec<Vec<Range<u64>>> {
    let mut pieces = vec![Vec::new()];
    let mut room = MAX_REST_BYTES;
    for mut part in parts {
        while part.end - part.start > room {
            let cut = part.start + room;
            pieces.last_mut().expect("never empty").push(part.start..cut);
            part.start = cut;
            pieces.push(Vec::new());
            room = MAX_REST_BYTES;
        }
        room -= part.end - part.start;
        pieces.last_mut().expect("never empty").push(part);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use bothends_dataset::side_index::{EXTENSION, PREFIX};
    use bothends_storage::Double;

    use super::*;

    #[test]
    fn objects_are_walked_in_order_without_side_indices_however_deep_they_are() {
        let deep = format!("{}z", "b/".repeat(2_000));
        let segment = format!("c/{PREFIX}1.{EXTENSION}");
        assert!(side_index::is_segment(&segment[2..]), "{segment}");
        let names = ["a", &deep, "c/d", &segment, "c-"];
        let double =
            names.iter().fold(Double::new(), |store, name| store.with(name, "x"));
        let walk = move || {
            let view = View::start(Arc::new(double)).unwrap();
            let mut files = Vec::new();
            walk_objects(&view, &mut files).unwrap();
            files.into_iter().map(|(path, _)| path).collect::<Vec<_>>()
        };
        let thread = thread::Builder::new().stack_size(256 << 10).spawn(walk).unwrap();
        assert_eq!(thread.join().unwrap(), ["a", &deep, "c/d", "c-"]);
    }

    #[test]
    fn records_of_a_store_are_not_packed_as_files() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir_all(data.join("cat")).unwrap();
        fs::write(data.join("cat/1.jpg"), b"ab").unwrap();
        let url = |name| format!("file://{}/{name}", folder.path().display());
        let files = Files::open(Path::new(&url("data"))).unwrap();
        let config = crate::PackConfig::default();
        crate::pack(&files, &folder.path().join("store"), &config, &mut |_| ()).unwrap();
        let line = Files::open(Path::new(&url("store"))).unwrap_err().to_string();
        assert!(line.contains("/store/` is a store, and"), "{line}");
        assert!(line.contains("copy it to one first"), "{line}");
    }

    /// A folder may be reached twice, and by a link, but not from inside it.
    #[test]
    fn a_link_that_leads_back_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir_all(data.join("more/deep")).unwrap();
        fs::write(data.join("more/deep/notes.txt"), b"ab").unwrap();
        let pixels = vec![7; 3073];
        fs::write(data.join("data_batch_1.bin"), pixels).unwrap();
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, data.join(name)).unwrap();
        };
        link("more", "other");
        let files = Files::open(&data).unwrap();
        let paths = |files: &Files| -> Vec<String> {
            (0..files.n_records()).map(|number| files.item(number).path).collect()
        };
        // A sample, and what is left of its file.
        let batch = ["data_batch_1.bin"; 2];
        let rests = ["more/deep/notes.txt", "other/deep/notes.txt"];
        assert_eq!(paths(&files), [batch, rests].concat());
        for (to, name) in [("..", "more/up"), ("../..", "more/deep/top"), (".", "here")] {
            link(to, name);
            let line = Files::open(&data).unwrap_err().to_string();
            assert!(line.contains(&format!("/{name}` leads back to")), "{line}");
            fs::remove_file(data.join(name)).unwrap();
        }
    }

    #[test]
    fn what_lies_between_samples_is_found_in_whatever_order_they_are() {
        assert_eq!(between(&mut [4..6, 1..2, 4..5], 9), [0..1, 2..4, 6..9]);
        assert_eq!(between(&mut [0..4, 4..9], 9), []);
        assert_eq!(between(&mut [], 0), []);
    }

    #[test]
    fn a_long_rest_is_cut_and_an_empty_one_is_still_a_record() {
        assert_eq!(pieces(Vec::new()), [Vec::new()]);
        let m = MAX_REST_BYTES;
        let cut = pieces(vec![0..1, 5..2 * m + 6, 3 * m..3 * m + 1]);
        let lens = cut.iter().map(|parts| parts.iter().map(|p| p.end - p.start).sum());
        assert_eq!(lens.collect::<Vec<u64>>(), [m, m, 3]);
        assert_eq!(cut[0], [0..1, 5..m + 4]);
        assert_eq!(cut[2], [2 * m + 4..2 * m + 6, 3 * m..3 * m + 1]);
    }
}
