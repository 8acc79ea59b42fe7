//! What lies at a path, in plain words.

use std::path::Path;

use bothends_core::ids::SampleId;
use bothends_dataset::{
    Ask, Decompression, Format, Found, Kind, NamedField, Storage, Table, find_fields,
};
use bothends_decompress::{Compressed, DecompressError, Place, find_decompressed};
use bothends_io::Folder;
use bothends_storage::{Options, around, is_url};

use crate::error::RuntimeError;
use crate::read::place::{decompressed_note, root_and_target};
use crate::read::remote::{self, said};
use crate::read::source::lens;

/// Describes a data set at a path or a URL, one finding per line. Lists it; reads no sample. Compressed shards are not
/// decompressed for that.
///
/// # Errors
/// [`RuntimeError::Data`] when nothing readable lies there.
pub fn survey(path: &Path) -> Result<Vec<String>, RuntimeError> {
    let shown = remote::without_secrets(path);
    let failed = |why: String| RuntimeError::Data { path: shown.clone(), why };
    let (storage, target) = opened(path).map_err(failed)?;
    let storage = &*storage;
    match find_fields(storage, &target, Ask::Names) {
        Ok(found) => Ok(lines(&found)),
        Err(error) if error.is_compressed() => {
            let data = Compressed { storage, target: &target };
            compressed(data).map_err(|error| failed(error.to_string()))
        }
        Err(error) => Err(failed(said(&error))),
    }
}

/// Where the files are, and which of them are meant.
fn opened(path: &Path) -> Result<(Box<dyn Storage + Sync>, String), String> {
    if let Some(url) = path.to_str().filter(|text| is_url(text)) {
        let opened = around(url, &Options::from_environment());
        let (view, target) = opened.map_err(|error| error.to_string())?;
        return Ok((Box::new(view), target));
    }
    let (root, target) = root_and_target(path)?;
    Ok((Box::new(Folder(root)), target))
}

/// A data set that can be read once it has been decompressed.
fn compressed(data: Compressed<'_>) -> Result<Vec<String>, DecompressError> {
    Decompression::check_split(data.storage, data.target)?;
    let plan = Decompression::plan(data.storage, data.target)?;
    let lens = plan.steps.iter().map(|step| match data.storage.kind(&step.from) {
        Ok(Kind::File { len }) => len,
        Ok(Kind::Folder) | Err(_) => 0,
    });
    let (n, mib) = (plan.steps.len(), lens.sum::<u64>() >> 20);
    let Some(place) = Place::of_user() else {
        let line = "no cache directory to decompress them into; name one (`cache`), or set XDG_CACHE_HOME";
        return Ok(vec![format!("compressed shards: {n} files, {mib} MiB"), line.into()]);
    };
    let Some(made) = find_decompressed(data, &place)? else {
        return Ok(vec![
            format!("compressed shards: {n} files, {mib} MiB"),
            format!("the first run decompresses them into {}", place.root().display()),
        ]);
    };
    let found = find_fields(&Folder(made.root().to_owned()), made.target(), Ask::Names)?;
    Ok(lines(&found).into_iter().chain([decompressed_note(&made)]).collect())
}

/// What is known of the classes: where nothing names them, samples still have labels.
fn classes(table: &Table) -> String {
    let n_named = table.class_names().len();
    if n_named > 0 {
        return format!("{n_named} classes");
    }
    let labels = (0..table.n_samples()).map(|id| table.label(SampleId(id)).0);
    let ends = labels.fold(None, |ends: Option<(i64, i64)>, label| {
        let (low, high) = ends.unwrap_or((label, label));
        Some((low.min(label), high.max(label)))
    });
    match ends {
        Some((low, high)) if low < high => {
            format!("labels from {low} to {high}, without class names")
        }
        Some((only, _)) => format!("the label {only} only, without a class name"),
        None => "no labels".to_owned(),
    }
}

fn lines(found: &Found) -> Vec<String> {
    let table = &found.table;
    let n = table.n_samples();
    let total: u64 = lens(table).sum();
    let format = match found.format {
        Format::ClassFolders => "class folders",
        Format::Cifar10 => "CIFAR-10 binary batches",
        Format::Cifar10Python => "CIFAR-10 pickled batches",
        Format::Store => "a store",
        Format::WebDataset => "WebDataset archives",
        Format::Mds => "MDS shards",
        Format::TfRecord => "TFRecord files",
        Format::Datadings => "files of datadings",
        Format::Beton => "files of FFCV",
        Format::Hdf5 => "HDF5 files",
        Format::Parquet => "Parquet files",
        Format::Arrow => "Arrow files",
        Format::LitData => "LitData chunks",
        Format::Rows => "rows of a table",
        Format::List => "a list",
    };
    let mut lines = vec![
        format!("{format}: {n} samples in {} files", table.n_files()),
        classes(table),
        format!(
            "{} bytes; a sample has {} on average, {} at most",
            total,
            total.checked_div(n).unwrap_or(0),
            lens(table).max().unwrap_or(0)
        ),
        format!(
            "extent table: {} bytes of memory, hash {:032x}",
            table.memory_bytes(),
            table.hash()
        ),
    ];
    if found.n_ignored > 0 {
        lines.push(format!(
            "{} files belong to no sample and are ignored",
            found.n_ignored
        ));
    }
    lines.extend(found.note.map(str::to_owned));
    if !found.names.is_empty() {
        let name = |it: &NamedField| format!("{} ({})", it.name.escape_debug(), it.kind);
        let names: Vec<_> = found.names.iter().map(name).collect();
        lines.push(format!("fields: {}", names.join(", ")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_without_class_names_are_not_called_no_classes() {
        let folder = tempfile::tempdir().unwrap();
        let lines = |labels: &[u32]| {
            let line = |label| format!("{{\"path\": \"a.jpg\", \"label\": {label}}}\n");
            let list: String = labels.iter().map(line).collect();
            std::fs::write(folder.path().join("a.jpg"), "a").unwrap();
            std::fs::write(folder.path().join("list.jsonl"), list).unwrap();
            survey(&folder.path().join("list.jsonl")).unwrap()
        };
        assert_eq!(lines(&[3, 1, 7])[1], "labels from 1 to 7, without class names");
        assert_eq!(lines(&[2, 2])[1], "the label 2 only, without a class name");
        let shards = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/shards");
        for format in ["tar", "hdf5"] {
            let lines = survey(&Path::new(shards).join(format)).unwrap();
            assert!(lines[1].starts_with("labels from 0 to "), "{lines:?}");
        }
    }
}
