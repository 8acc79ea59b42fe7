//! What can go wrong with a measurement: data that cannot be read, or cannot be used.

use std::path::PathBuf;

use bothends_dataset::DatasetError;
use bothends_io::IoError;
use bothends_ops::OpsError;

/// What can go wrong with a measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The path cannot be read.
    #[error("cannot open the data `{}`; check the path", path.display())]
    Data {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The path is not a data set.
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
    /// An image that ops were to be measured on.
    #[error("the image cannot be used; give `--image` an image file that `decode` reads")]
    Image {
        /// Why.
        source: OpsError,
    },
    /// A name that no op has.
    #[error("no op is named `{name}`; use one of {names}")]
    NoSuchOp {
        /// As requested.
        name: String,
        /// Similar names, or else all.
        names: String,
    },
    /// An op that does nothing by itself.
    #[error("`{name}` is not measured alone; measure a recipe that has it with --data")]
    NotAlone {
        /// As requested.
        name: String,
    },
    /// The peers' program does not start.
    #[error("cannot start `{}`; give `--peers` a Python interpreter", python.display())]
    PeersStart {
        /// What was to be started.
        python: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The program that was started is not a Python that runs the peers' program.
    #[error(
        "`{}` did not run `{}`: {why}; give `--peers` a Python interpreter",
        python.display(), script.display()
    )]
    NoPython {
        /// What was started.
        python: PathBuf,
        /// The peers' program.
        script: PathBuf,
        /// What it did instead.
        why: String,
    },
    /// The peers' program cannot do what it was asked.
    #[error("the peers' program, asked `{asked}`, says: {why}")]
    PeersFailed {
        /// The request.
        asked: String,
        /// Its answer.
        why: String,
    },
    /// The peers' program has ended.
    #[error("the peers' program ended when asked `{asked}`; run it by hand to see why")]
    PeersGone {
        /// The request.
        asked: String,
    },
    /// The peers' program went silent.
    #[error(
        "the peers' program gave no answer to `{asked}` for {seconds} s; it was ended"
    )]
    PeersSilent {
        /// The request.
        asked: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The storage failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A reader went silent.
    #[error("the {reader} reader gave nothing for {seconds} s; check the storage")]
    Silent {
        /// Its name.
        reader: &'static str,
        /// How long it was waited for.
        seconds: u64,
    },
}
