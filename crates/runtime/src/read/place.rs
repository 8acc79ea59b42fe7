//! Where a data set is that a user names by a path: the folder that its files' paths start from, and
//! what is meant in it, and how it is looked for.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bothends_dataset::{Ask, DatasetError, Found, Storage, find_fields};
use bothends_io::Folder;
use bothends_side_index::Cache;

use crate::config::run::RunConfig;

/// A folder is its own root; a file is a target in its folder.
pub(crate) fn root_and_target(path: &Path) -> Result<(PathBuf, String), String> {
    match Folder::around(path) {
        Ok((Folder(root), target)) => Ok((root, target)),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            Err("no such file or folder; check the path".to_owned())
        }
        Err(e) => Err(e.to_string()),
    }
}

/// How a data set is looked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Looking {
    pub(crate) ask: Ask,
    /// Where what earlier walks found is kept.
    pub(crate) tables: Option<Cache>,
}

impl Looking {
    /// Lists the data set. Tables are kept without fields, so that shards are walked through again for these.
    pub(crate) fn find(
        self,
        storage: &dyn Storage,
        target: &str,
    ) -> Result<Found, DatasetError> {
        match self.ask {
            Ask::Nothing => bothends_side_index::find(storage, target, self.tables),
            ask @ (Ask::Fields(_) | Ask::Names) => find_fields(storage, target, ask),
        }
    }
}

/// The fields that a run asks for.
pub(crate) fn ask(config: &RunConfig) -> Ask {
    match config.fields.is_empty() {
        true => Ask::Nothing,
        false => Ask::Fields(config.fields.clone()),
    }
}
