//! What lies at a path, in plain words.

use std::path::Path;

use bothends_dataset::{Ask, Format, Found, NamedField};
use bothends_io::Folder;

use crate::error::RuntimeError;
use crate::read::place::{Looking, root_and_target};
use crate::read::remote;
use crate::read::source::lens;

/// Describes a data set at a path or a URL, one finding per line. Lists it; reads no sample.
///
/// # Errors
/// [`RuntimeError::Data`] when nothing readable lies there.
pub fn survey(path: &Path) -> Result<Vec<String>, RuntimeError> {
    let shown = remote::without_secrets(path);
    let found = found(path).map_err(|why| RuntimeError::Data { path: shown, why })?;
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
        format!("{} classes", table.class_names().len()),
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
    Ok(lines)
}

fn found(path: &Path) -> Result<Found, String> {
    // Tables are kept without the names of fields.
    let looking = Looking { ask: Ask::Names, tables: None };
    if let Some((found, _)) = remote::find(path, None, looking.clone())? {
        return Ok(found);
    }
    let (root, target) = root_and_target(path)?;
    looking.find(&Folder(root), &target).map_err(|e| e.to_string())
}
