//! What can go wrong with a measurement: data that cannot be read, or cannot be used.

use std::path::PathBuf;

use bothends_dataset::DatasetError;
use bothends_io::IoError;
use bothends_ops::OpsError;

/// What can go wrong with a measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// Nothing readable lies at the path.
    #[error("cannot open the data `{}`; check the path", path.display())]
    Data {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// What lies there is no data set.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The recipe does not fit the records.
    #[error(transparent)]
    Recipe(#[from] bothends_core::recipe::RecipeError),
    /// A sample that cannot be made.
    #[error(
        "`{record}` cannot be measured; take it out of the data set, or use `--limit`"
    )]
    BadSample {
        /// The record's file.
        record: String,
        /// Why.
        source: OpsError,
    },
    /// The recipe draws no box.
    #[error("the recipe does not begin with a decode and a resize, so it draws no boxes")]
    NoBoxes,
    /// The storage failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A reader went silent.
    #[error("the {reader} reader gave nothing for {seconds} s; check the storage")]
    Silent {
        /// Its name.
        reader: &'static str,
        /// How long was waited.
        seconds: u64,
    },
}
