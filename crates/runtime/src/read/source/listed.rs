//! The samples of a run, listed: of one data set, of a mix, or as the caller supplies them.

use std::path::Path;
use std::sync::Arc;

use bothends_core::plan::Shuffle;
use bothends_dataset::{Fields, Format, Found, Table};
use bothends_decompress::Decompressed;
use bothends_io::{Folder, Roots};

use crate::config::run::RunConfig;
use crate::read::place::{Looking, decompressed_note, root_and_target};
use crate::read::remote::{self, Remote};
use crate::read::sources::{Joined, Sources, join};

/// What the samples of a run were found to be.
pub(super) struct Listed {
    pub(super) roots: Roots,
    pub(super) table: Arc<Table>,
    pub(super) fields: Fields,
    pub(super) format: Format,
    /// Where the formats may surprise.
    pub(super) notes: Vec<String>,
    pub(super) sources: Option<Arc<Sources>>,
    pub(super) remote: Option<Remote>,
    pub(super) decompressed: Vec<Decompressed>,
}

/// The samples of a run: the folders that their files lie in, and what was found there. What
/// devices are told is limited too: an id means the same record everywhere.
pub(super) fn find(config: &RunConfig) -> Result<Listed, String> {
    let looking = Looking::of(config);
    if let Some(mix) = &config.mix {
        if config.supplied.is_some() || config.shuffle == Shuffle::Supplied {
            return Err("a mix has its own order, but samples or orders are supplied; \
                        leave out the sampler, or give one data set"
                .to_owned());
        }
        let joined = join(mix, config, &looking)?;
        let Joined { roots, table, fields, format, notes, sources, remote, decompressed } =
            joined;
        let (table, sources) = (Arc::new(table), Some(Arc::new(sources)));
        return Ok(Listed {
            roots,
            table,
            fields,
            format,
            notes,
            sources,
            remote,
            decompressed,
        });
    }
    if let Some(supplied) = &config.supplied {
        if let Some(name) = config.fields.first() {
            return Err(format!(
                "the field `{name}` is asked for, and the samples are listed by the caller, who has their \
                 fields already; leave it out"
            ));
        }
        let table = match config.limit {
            None => Arc::clone(&supplied.table),
            Some(limit) => Arc::new(Table::clone(&supplied.table).first(limit)),
        };
        return Ok(Listed {
            roots: Roots::from(&config.data),
            table,
            fields: Fields::default(),
            format: Format::List,
            notes: Vec::new(),
            sources: None,
            remote: None,
            decompressed: Vec::new(),
        });
    }
    find_one(config, looking)
}

/// Makes sure that a cache directory does not lie in the folder of the data, whose next listing would take it for a
/// class unless its name is hidden.
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

/// The samples of one data set.
fn find_one(config: &RunConfig, looking: Looking) -> Result<Listed, String> {
    let first = |table: Table| Arc::new(table.first(config.limit.unwrap_or(u64::MAX)));
    let objects = config.objects.as_ref();
    let (roots, found, place, decompressed) =
        match remote::find(&config.data, objects, looking.clone())? {
            Some((found, mut place)) => {
                let roots = Roots::from(&remote::without_secrets(&config.data));
                let decompressed = place.decompressed.take();
                (
                    roots,
                    found,
                    Some(place).filter(|_| decompressed.is_none()),
                    decompressed,
                )
            }
            None => {
                let (root, target) = root_and_target(&config.data)?;
                let found = looking.find(&Folder(root.clone()), &target);
                let (found, decompressed) = found.map_err(|e| e.to_string())?;
                (root.into(), found, None, decompressed)
            }
        };
    let roots = decompressed.as_ref().map_or(roots, |made| made.root().to_owned().into());
    let Found { table, fields, format, note, .. } = found;
    if let (Format::ClassFolders, Some(cache)) = (format, &config.cache) {
        outside(cache, &config.data)?;
    }
    let table = first(table);
    let remote = place.map(|place| place.of_table(&table)).transpose()?;
    let notes = note.map(str::to_owned).into_iter();
    let notes = notes.chain(decompressed.as_ref().map(decompressed_note)).collect();
    let decompressed = decompressed.into_iter().collect();
    let sources = None;
    Ok(Listed { roots, table, fields, format, notes, sources, remote, decompressed })
}
