//! The samples of a run, listed: of one data set, of a mix, or as the caller supplies them.

use std::sync::Arc;

use bothends_core::ids::SampleId;
use bothends_core::plan::Shuffle;
use bothends_dataset::{Fields, Format, Found, Table};
use bothends_decompress::Decompressed;
use bothends_io::{Folder, Roots};

use crate::config::run::RunConfig;
use crate::read::place::{Looking, check_cache, decompressed_note, root_and_target};
use crate::read::remote::{self, Remote};
use crate::read::sources::{Sources, join};

/// What the samples of a run were found to be.
pub(super) struct Listed {
    pub(super) roots: Roots,
    pub(super) table: Arc<Table>,
    pub(super) fields: Fields,
    pub(super) format: Format,
    /// The first sample whose file does not exist, if a list names one.
    pub(super) missing: Option<SampleId>,
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
        return Ok(Listed {
            roots: joined.roots,
            table: Arc::new(joined.table),
            fields: joined.fields,
            format: joined.format,
            missing: joined.missing,
            notes: joined.notes,
            sources: Some(Arc::new(joined.sources)),
            remote: joined.remote,
            decompressed: joined.decompressed,
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
            missing: None,
            notes: Vec::new(),
            sources: None,
            remote: None,
            decompressed: Vec::new(),
        });
    }
    find_one(config, looking)
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
    check_cache(config, &found, &config.data)?;
    let Found { table, fields, format, note, missing, .. } = found;
    let table = first(table);
    let missing = missing.filter(|sample| sample.0 < table.n_samples());
    let remote = place.map(|place| place.of_table(&table)).transpose()?;
    let notes = note.map(str::to_owned).into_iter();
    let notes = notes.chain(decompressed.as_ref().map(decompressed_note)).collect();
    let decompressed = decompressed.into_iter().collect();
    let sources = None;
    Ok(Listed {
        roots,
        table,
        fields,
        format,
        missing,
        notes,
        sources,
        remote,
        decompressed,
    })
}
