//! The images of the examples: the folder that the first argument names, or generated ones that are
//! removed afterwards.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};

use bothends_samples::{GenerateConfig, generate};
use tempfile::TempDir;

/// A folder of class folders.
pub(crate) enum Images {
    Given(PathBuf),
    Generated(TempDir),
}

impl Images {
    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        if let Some(path) = env::args_os().nth(1) {
            return Ok(Self::Given(path.into()));
        }
        let folder = tempfile::tempdir()?;
        let config = GenerateConfig { n_images: 48, n_classes: 4, seed: 1 };
        generate(folder.path(), &config, &mut |_, _| {})?;
        Ok(Self::Generated(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Generated(folder) => folder.path(),
        }
    }
}
