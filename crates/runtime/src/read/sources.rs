//! The data sets of a mix, by the records of the table that they are joined in: who reads a sample can
//! tell where it is from.
//!
//! It opens them and joins their tables. Which of their samples are in a batch, `core::plan::mix` says.

use std::path::PathBuf;

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::plan::Shuffle;
use bothends_core::plan::mix::{Draw, Mix, MixConfig, MixError, MixSource};
use bothends_core::setting::NamesSettings as _;
use bothends_dataset::{Fields, Format, Found, Table};
use bothends_decompress::Decompressed;
use bothends_figures::SourceSamples;
use bothends_io::{Folder, Roots};
use bothends_storage::is_url;

use crate::config::mix::{MixedData, MixedSource, Replacement};
use crate::config::run::RunConfig;
use crate::read::place::{Looking, check_cache, decompressed_note, root_and_target};
use crate::read::remote::{Place, Remote, find, find_local, of_mix, without_secrets};

/// The data sets of a run, in the order of their sample ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    names: Vec<String>,
    /// Where each one's records end.
    ends: Vec<u64>,
}

impl Sources {
    /// Their names.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The number of the data set that a sample is of.
    #[must_use]
    pub fn of(&self, sample: SampleId) -> usize {
        let n_records = self.ends.last().copied().unwrap_or(1).max(1);
        let record = sample.0 % n_records;
        self.ends.partition_point(|end| *end <= record)
    }

    /// Adds a batch's samples to those counted of each.
    pub(crate) fn count(
        &self,
        samples: impl Iterator<Item = SampleId>,
        counts: &mut Vec<u64>,
    ) {
        counts.resize(self.names.len(), 0);
        samples.for_each(|sample| counts[self.of(sample)] += 1);
    }

    /// Such counts with the names.
    pub(crate) fn figures(&self, counts: &[u64]) -> Vec<SourceSamples> {
        let counts = counts.iter().copied().chain(std::iter::repeat(0));
        let named = self.names.iter().zip(counts);
        named
            .map(|(name, samples)| SourceSamples { name: name.clone(), samples })
            .collect()
    }

    /// A record of the same data set as this sample, `draw` of 2^64 of the way through it.
    pub(crate) fn other(&self, sample: SampleId, draw: u64) -> SampleId {
        let source = self.of(sample);
        let start = source.checked_sub(1).map_or(0, |before| self.ends[before]);
        let end = self.ends.get(source).copied().unwrap_or(start);
        let scaled = (u128::from(draw) * u128::from(end - start)) >> 64;
        SampleId(start + u64::try_from(scaled).unwrap_or(0))
    }

    /// The mix of an epoch.
    pub(crate) fn mix(
        &self,
        mixed: &MixedData,
        config: &RunConfig,
        (epoch, repeat): (EpochIdx, u32),
    ) -> Result<Mix, MixError> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        let sizes = self.ends.iter().zip(starts).map(|(end, start)| end - start);
        let sources = mixed.sources.iter().zip(sizes).map(|(source, n_records)| {
            MixSource { name: &source.name, n_records, weight: source.weight }
        });
        let draw = match (mixed.replacement, config.shuffle) {
            (Replacement::With, _) => Draw::WithReplacement,
            (Replacement::Without, Shuffle::None) => Draw::InOrder,
            (Replacement::Without, Shuffle::Full | Shuffle::Supplied) => Draw::Shuffled,
        };
        let (batch_size, seed) = (config.batch_size, config.seed);
        let config =
            MixConfig { batch_size, stop: mixed.stop, repeat, draw, seed, epoch };
        Mix::new(config, &sources.collect::<Vec<_>>())
    }
}

/// What the data sets of a mix were found to be.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) roots: Roots,
    pub(crate) table: Table,
    pub(crate) fields: Fields,
    pub(crate) format: Format,
    /// The first sample whose file does not exist, if a list names one.
    pub(crate) missing: Option<SampleId>,
    pub(crate) notes: Vec<String>,
    pub(crate) sources: Sources,
    /// The stores that they are in, if one of them is remote.
    pub(crate) remote: Option<Remote>,
    /// Those of the data sets that had to be decompressed.
    pub(crate) decompressed: Vec<Decompressed>,
}

/// Lists all data sets of a mix, or takes what is known of them from a cache; of each the first samples, as
/// many as the limit says. Blocks on the file system and on the network.
pub(crate) fn join(
    mixed: &MixedData,
    config: &RunConfig,
    looking: &Looking,
) -> Result<Joined, String> {
    let opened = open(mixed, looking)?;
    let (mut roots, mut tables, mut formats) = (Vec::new(), Vec::new(), Vec::new());
    let (mut notes, mut fields, mut places) = (Vec::new(), Vec::new(), Vec::new());
    let (mut decompressed, mut missing, mut n_before) = (Vec::new(), None, 0);
    for (source, opened) in mixed.sources.iter().zip(opened) {
        let Opened { root, found, place, made } = opened;
        check_cache(config, &found, &source.data).map_err(|why| refused(source, &why))?;
        let note = made.as_ref().map(decompressed_note);
        notes.extend(note.map(|note| format!("`{}`: {note}", source.name)));
        decompressed.extend(made);
        notes.extend(found.note.map(|note| format!("`{}`: {note}", source.name)));
        roots.push((source.name.clone(), root));
        places.extend(place.map(|place| (source.name.clone(), place)));
        let table = found.table.first(config.limit.unwrap_or(u64::MAX));
        let here = found.missing.filter(|sample| sample.0 < table.n_samples());
        missing = missing.or(here.map(|sample| SampleId(n_before + sample.0)));
        n_before += table.n_samples();
        tables.push(table);
        fields.push(found.fields);
        formats.push(found.format);
    }
    let parts = mixed.sources.iter().zip(&tables);
    let parts: Vec<_> = parts.map(|(source, table)| (&*source.name, table)).collect();
    let table = Table::joined(&parts, mixed.labels);
    let table = table.map_err(|e| e.with_names(config.names))?;
    let parts = parts.iter().zip(&fields);
    let parts: Vec<_> =
        parts.map(|((name, table), fields)| (*name, fields, *table)).collect();
    let fields = Fields::joined(&parts).map_err(|e| e.to_string())?;
    let format = formats.first().copied().unwrap_or(Format::List);
    if formats.iter().any(|other| (*other == Format::Store) != (format == Format::Store))
    {
        return Err(
            "some data sets of the mix are stores and some are not; pack them all, or \
                    none"
                .to_owned(),
        );
    }
    let ends = tables.iter().scan(0, |end, table| {
        *end += table.n_samples();
        Some(*end)
    });
    let names = mixed.sources.iter().map(|source| source.name.clone()).collect();
    let sources = Sources { names, ends: ends.collect() };
    let is_remote = !places.is_empty();
    let remote = is_remote.then(|| of_mix(places, &table)).transpose()?;
    Ok(Joined {
        roots: Roots::Named(roots),
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

/// A data set of a mix.
struct Opened {
    root: PathBuf,
    found: Found,
    /// Where its objects are, if one of the mix is remote.
    place: Option<Place>,
    /// Its files, if they had to be decompressed.
    made: Option<Decompressed>,
}

impl Opened {
    /// The same, and where it had to be decompressed, what came of it as objects of this machine.
    fn ready(self, looking: &Looking) -> Result<Self, String> {
        let mut place = self.place;
        let Some(made) = place.as_mut().and_then(|place| place.decompressed.take())
        else {
            return Ok(Self { place, ..self });
        };
        let (found, place) = find_local(&made.path(), looking.clone())?;
        let root = made.root().to_owned();
        Ok(Self { root, found, place: Some(place), made: Some(made) })
    }
}

fn refused(source: &MixedSource, why: &str) -> String {
    let shown = without_secrets(&source.data);
    format!("data set `{}` ({}): {why}", source.name, shown.display())
}

/// Lists the data sets of a mix. If one is remote, the files of all are objects: one reader brings the
/// records of a batch, whichever data sets they are of.
fn open(mixed: &MixedData, looking: &Looking) -> Result<Vec<Opened>, String> {
    let is_remote = |source: &MixedSource| is_url(&source.data.to_string_lossy());
    let are_objects = mixed.sources.iter().any(is_remote);
    let opened = mixed.sources.iter().map(|source| {
        let shown = without_secrets(&source.data);
        let failed = |why: String| refused(source, &why);
        let found = find(&source.data, None, looking.clone()).map_err(failed)?;
        if let Some((found, place)) = found {
            let root = shown.clone();
            let opened = Opened { root, found, place: Some(place), made: None };
            return opened.ready(looking).map_err(failed);
        }
        let (root, target) = root_and_target(&source.data).map_err(failed)?;
        if are_objects {
            let (found, place) =
                find_local(&source.data, looking.clone()).map_err(failed)?;
            let opened = Opened { root, found, place: Some(place), made: None };
            return opened.ready(looking).map_err(failed);
        }
        let found = looking.clone().find(&Folder(root.clone()), &target);
        let (found, made) = found.map_err(|e| failed(e.to_string()))?;
        let root = made.as_ref().map_or(root, |made| made.root().to_owned());
        Ok(Opened { root, found, place: None, made })
    });
    opened.collect()
}

#[cfg(test)]
mod tests {
    use bothends_core::recipe::Recipe;

    use super::*;

    #[test]
    fn a_refusal_shows_no_password() {
        let data = "redis://user:secret@host/x?y".into();
        let source = MixedSource { name: "a".to_owned(), data, weight: 1.0 };
        let mix = MixedData::new(vec![source]);
        let config = RunConfig::mixed(mix.clone(), Recipe::builtin("raw").unwrap());
        let line = join(&mix, &config, &Looking::default()).unwrap_err();
        assert!(line.starts_with("data set `a` (redis://host/x): "), "{line}");
    }

    #[test]
    fn a_sample_is_of_the_data_set_that_its_record_is_in() {
        let names = ["a", "b"].map(str::to_owned).to_vec();
        let sources = Sources { names, ends: vec![3, 5] };
        let of: Vec<_> = (0..8).map(|id| sources.of(SampleId(id))).collect();
        assert_eq!(of, [0, 0, 0, 1, 1, 0, 0, 0]);
        let other = |id, draw| sources.other(SampleId(id), draw).0;
        assert_eq!([other(9, 0), other(9, u64::MAX), other(6, u64::MAX)], [3, 4, 2]);
    }
}
