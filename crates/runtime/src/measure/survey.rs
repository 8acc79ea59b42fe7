//! What lies at a path, in plain words.

use std::path::Path;

use bothends_dataset::Format;
use bothends_io::Folder;

use crate::error::RuntimeError;
use crate::read::place::root_and_target;
use crate::read::source::lens;

/// Describes a data set, one finding per line. Lists it; reads no sample.
///
/// # Errors
/// [`RuntimeError::Data`] when nothing readable lies there.
pub fn survey(path: &Path) -> Result<Vec<String>, RuntimeError> {
    let failed = |why: String| RuntimeError::Data { path: path.to_owned(), why };
    let (root, target) = root_and_target(path).map_err(failed)?;
    let found = bothends_dataset::find(&Folder(root), &target)
        .map_err(|e| failed(e.to_string()))?;
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
    Ok(lines)
}
