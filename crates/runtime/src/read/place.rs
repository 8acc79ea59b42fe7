//! Where a data set is that a user names by a path: the folder that its files' paths start from, and
//! what is meant in it, and how it is looked for.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bothends_dataset::{Ask, Format, Found, Storage, find_fields};
use bothends_decompress::{Compressed, DecompressError, Decompressed, Watch, find_in};
use bothends_io::{Folder, Medium, medium};
use bothends_side_index::Cache;

use crate::config::cache::CacheSize;
use crate::config::run::{RunConfig, SideIndexUse};

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
    /// Where compressed shards are decompressed to; without it, they are refused.
    pub(crate) decompressed: Option<bothends_decompress::Place>,
    /// Who is told meanwhile.
    pub(crate) watch: Watch,
}

/// What was found, and where it is if it had to be decompressed.
pub(crate) type Looked = (Found, Option<Decompressed>);

impl Looking {
    /// As a run does.
    pub(crate) fn of(config: &RunConfig) -> Self {
        let is_kept = config.read.side_index != SideIndexUse::Off;
        let decompressed = match (config.read.cache_size, &config.cache) {
            (CacheSize::Off, _) => None,
            (_, Some(cache)) => Some(bothends_decompress::Place::in_cache(cache)),
            (_, None) => bothends_decompress::Place::of_user(),
        };
        Self {
            ask: ask(config),
            tables: is_kept.then(Cache::of_tables).flatten(),
            decompressed,
            watch: config.decompressing.clone(),
        }
    }

    /// Lists the data set. Tables are kept without fields, so that shards are walked through again for these.
    pub(crate) fn find(
        self,
        storage: &(dyn Storage + Sync),
        target: &str,
    ) -> Result<Looked, DecompressError> {
        let find = |storage: &dyn Storage, target: &str| match self.ask.clone() {
            Ask::Nothing => {
                bothends_side_index::find(storage, target, self.tables.clone())
            }
            ask @ (Ask::Fields(_) | Ask::Names) => find_fields(storage, target, ask),
        };
        let data = Compressed { storage, target };
        find_in(data, self.decompressed.as_ref(), &self.watch, find)
    }
}

/// Makes sure that the cache directory of a run does not lie in the folder of a data set of class folders, whose next
/// listing would take it for a class unless its name is hidden.
pub(crate) fn check_cache(
    config: &RunConfig,
    found: &Found,
    data: &Path,
) -> Result<(), String> {
    if let (Format::ClassFolders, Some(cache)) = (found.format, &config.cache) {
        outside(cache, data)?;
    }
    Ok(())
}

fn outside(cache: &Path, data: &Path) -> Result<(), String> {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let Some(data) = real(data).filter(|data| data.is_dir()) else { return Ok(()) };
    // The part of its path that exists, with links resolved.
    let there = std::path::absolute(cache);
    let there = there.ok().and_then(|path| path.ancestors().find_map(real));
    let below = there.as_deref().and_then(|there| there.strip_prefix(&data).ok());
    let name = below.map(|below| below.iter().next().unwrap_or_default().to_owned());
    if name.is_some_and(|name| !name.as_encoded_bytes().starts_with(b".")) {
        let cache = cache.display();
        return Err(format!(
            "the cache directory {cache} lies in it; choose one outside"
        ));
    }
    Ok(())
}

/// One line for the user: the run reads other files than those that were named.
pub(crate) fn decompressed_note(made: &Decompressed) -> String {
    let slow = match medium(made.root()) {
        Ok(Medium::Network) => {
            "; that is on the network: `cache` names a directory on a local disk"
        }
        Ok(_) | Err(_) => "",
    };
    format!(
        "the shards are compressed; the run reads them decompressed: {}, {} MiB{slow}",
        made.root().display(),
        made.bytes() >> 20
    )
}

/// The fields that a run asks for.
fn ask(config: &RunConfig) -> Ask {
    match config.fields.is_empty() {
        true => Ask::Nothing,
        false => Ask::Fields(config.fields.clone()),
    }
}
