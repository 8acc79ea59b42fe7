//! What makes shards readable in which no sample can be read alone: which files are decompressed, and how.
//!
//! It decides by names, indexes and first bytes, and reads no more than these; whoever holds the plan acts. The files
//! that come of it are the same data set in the same format, below another root.

use std::collections::HashSet;

use super::Format;
use super::shards::columns::{litdata, parquet};
use super::shards::compressed::{Codec, Decompression, Step, Treatment};
use super::shards::{beton, datadings, find, hdf5, mds, one_split, tar, tfrecord};
use crate::error::DatasetError;
use crate::path;
use crate::storage::{Kind, Storage};

/// Whether a file's name is that of a shard compressed as a whole: no sample in it can be read alone.
pub(crate) fn is_compressed(name: &str) -> bool {
    unpacked(name).is_some()
}

/// The name of the shard that is compressed in a file of this name, and the compression's extension.
fn unpacked(name: &str) -> Option<(String, &str)> {
    const PACKERS: [&str; 7] = ["gz", "zst", "zstd", "xz", "bz2", "lz4", "br"];
    let (shard, extension) = name.rsplit_once('.')?;
    let is = |other: &str| extension.eq_ignore_ascii_case(other);
    if is("tgz") {
        return Some((format!("{shard}.tar"), extension));
    }
    let is_shard = [
        tar::is_archive,
        tfrecord::is_shard,
        datadings::is_shard,
        hdf5::is_shard,
        beton::is_shard,
    ];
    let is_packed = PACKERS.iter().any(|packer| is(packer));
    let is_packed = is_packed && is_shard.iter().any(|is_shard| is_shard(shard));
    is_packed.then(|| (shard.to_owned(), extension))
}

impl Decompression {
    /// What is to be done where reading the data set at `target` says that it
    /// [is compressed](DatasetError::is_compressed). Blocks on the storage.
    ///
    /// # Errors
    /// [`DatasetError::CompressedShard`] where the compression is not supported;
    /// [`DatasetError::Shard`] where an index is wrong; [`DatasetError::Storage`].
    pub fn plan(storage: &dyn Storage, target: &str) -> Result<Self, DatasetError> {
        let mut plan = match Format::detect(storage, target) {
            Ok(Format::Mds) => Self::of(mds::decompressed(storage, target)?),
            Ok(Format::LitData) => litdata::decompressed(storage, target)?,
            Ok(Format::Parquet) => {
                shards(storage, target, parquet::is_shard, |_| Ok(Treatment::Plain))?
            }
            Ok(Format::TfRecord) => {
                shards(storage, target, tfrecord::is_shard, |path| {
                    let codec = tfrecord::codec(storage, path)?;
                    Ok(codec.map_or(Treatment::Copied, Treatment::Decompressed))
                })?
            }
            Err(DatasetError::CompressedShard { .. }) => whole(storage, target)?,
            // Nothing in these is compressed in a way that this helps against.
            Ok(_) => return Err(DatasetError::Empty { path: storage.shown(target) }),
            Err(error) => return Err(error),
        };
        let mut seen = HashSet::new();
        if let Some(twice) = plan.steps.iter().find(|step| !seen.insert(&*step.to)) {
            return Err(DatasetError::Shard {
                path: storage.shown(&twice.from),
                offset: 0,
                why: "another file has the same name once it is decompressed; move one of them".into(),
            });
        }
        plan.steps.sort_unstable_by(|a, b| a.to.cmp(&b.to));
        Ok(plan)
    }

    /// Refuses shards compressed as a whole that are of several splits, before they are decompressed. Whoever serves
    /// one of them to others need not ask. Blocks on the storage.
    ///
    /// # Errors
    /// [`DatasetError::Shard`]; [`DatasetError::Storage`].
    pub fn check_split(storage: &dyn Storage, target: &str) -> Result<(), DatasetError> {
        one_split(storage, target, &compressed(storage, target)?)
    }

    /// Whether the first shard at `target` has to be decompressed: what whoever does not list the samples looks at.
    /// Blocks on the storage.
    ///
    /// # Errors
    /// What is wrong with the first shard, or that there is no data set.
    pub fn is_needed(storage: &dyn Storage, target: &str) -> Result<bool, DatasetError> {
        let is_compressed = |error: DatasetError| match error.is_compressed() {
            true => Ok(true),
            false => Err(error),
        };
        match Format::detect(storage, target) {
            Ok(Format::Mds) => mds::is_first_compressed(storage, target),
            Ok(Format::LitData) => litdata::is_compressed(storage, target),
            Ok(Format::Parquet) => match parquet::check_first(storage, target) {
                Ok(()) => Ok(false),
                Err(error) => is_compressed(error),
            },
            Ok(Format::TfRecord) => {
                let (shards, _) = find(storage, target, tfrecord::is_shard)?;
                let first = shards.first().map(|path| tfrecord::codec(storage, path));
                Ok(first.transpose()?.flatten().is_some())
            }
            Ok(_) => Ok(false),
            Err(error) => is_compressed(error),
        }
    }
}

/// Shards that keep their names.
fn shards(
    storage: &dyn Storage,
    target: &str,
    is_shard: fn(&str) -> bool,
    treatment: impl Fn(&str) -> Result<Treatment, DatasetError>,
) -> Result<Decompression, DatasetError> {
    let (shards, _) = find(storage, target, is_shard)?;
    let steps = shards.into_iter().map(|from| {
        let treatment = treatment(&from)?;
        Ok(Step { to: path::split(&from).1.to_owned(), from, treatment })
    });
    let plan = Decompression::of(steps.collect::<Result<_, _>>()?);
    Ok(with_target(storage, target, plan))
}

/// Where one file is meant, the data set is the one that it becomes.
fn with_target(
    storage: &dyn Storage,
    target: &str,
    plan: Decompression,
) -> Decompression {
    let is_file = matches!(storage.kind(target), Ok(Kind::File { .. }));
    let target = plan.steps.first().filter(|_| is_file).map(|step| step.to.clone());
    Decompression { target: target.unwrap_or_default(), ..plan }
}

/// The files at `target` that have the names of shards compressed as a whole.
fn compressed(storage: &dyn Storage, target: &str) -> Result<Vec<String>, DatasetError> {
    let (files, _) = find(storage, target, is_compressed)?;
    Ok(files)
}

/// Shards that are compressed as a whole, and have names that say so.
fn whole(storage: &dyn Storage, target: &str) -> Result<Decompression, DatasetError> {
    let steps = compressed(storage, target)?.into_iter().filter_map(|from| {
        let (to, extension) = unpacked(path::split(&from).1)?;
        let Some(codec) = Codec::of_extension(extension) else {
            let path = storage.shown(&from);
            return Some(Err(DatasetError::CompressedShard { path }));
        };
        Some(Ok(Step { from, to, treatment: Treatment::Decompressed(codec) }))
    });
    let plan = Decompression::of(steps.collect::<Result<_, _>>()?);
    Ok(with_target(storage, target, plan))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::MemoryStorage;

    #[test]
    fn compressed_shards_of_every_format_are_known_by_their_names() {
        for (name, shard) in [
            ("a.tar.gz", "a.tar"),
            ("a.TGZ", "a.tar"),
            ("a.tar.zst", "a.tar"),
            ("a.tfrecord.gz", "a.tfrecord"),
            ("a.msgpack.xz", "a.msgpack"),
            ("a.h5.bz2", "a.h5"),
            ("a.beton.lz4", "a.beton"),
        ] {
            assert_eq!(unpacked(name).unwrap().0, shard);
        }
        for name in ["a.tar", "a.gz", "a.jpg.gz", "a.tar.gz.txt", "gz", "", "a.csv.zst"] {
            assert!(!is_compressed(name), "{name}");
        }
    }

    fn step(from: &str, to: &str, treatment: Treatment) -> Step {
        Step { from: from.into(), to: to.into(), treatment }
    }

    #[test]
    fn a_folder_of_compressed_shards_becomes_one_of_shards() {
        let storage = MemoryStorage::new()
            .with("d/b.tar.zst", b"")
            .with("d/a.tar.gz", b"")
            .with("d/notes.txt", b"");
        assert!(Decompression::is_needed(&storage, "d").unwrap());
        let plan = Decompression::plan(&storage, "d").unwrap();
        let gzip = Treatment::Decompressed(Codec::Gzip);
        let zstd = Treatment::Decompressed(Codec::Zstd);
        let steps =
            [step("d/a.tar.gz", "a.tar", gzip), step("d/b.tar.zst", "b.tar", zstd)];
        assert_eq!((&plan.steps[..], &*plan.target), (&steps[..], ""));
        let plan = Decompression::plan(&storage, "d/b.tar.zst").unwrap();
        assert_eq!((&plan.steps[..], &*plan.target), (&steps[1..], "b.tar"));
    }

    #[test]
    fn what_cannot_be_decompressed_is_named() {
        let storage = MemoryStorage::new().with("a.tar.gz", b"").with("b.tar.xz", b"");
        let error = Decompression::plan(&storage, "").unwrap_err();
        assert!(
            matches!(&error, DatasetError::CompressedShard { path } if path == "/data/b.tar.xz")
        );
        assert!(error.is_compressed());
        let storage = MemoryStorage::new().with("a.tar.gz", b"").with("a.tgz", b"");
        let error = Decompression::plan(&storage, "").unwrap_err().to_string();
        assert!(error.contains("the same name once it is decompressed"), "{error}");
    }

    #[test]
    fn of_files_whose_names_do_not_tell_the_first_bytes_do() {
        let storage = MemoryStorage::new()
            .with("a.tfrecord", &[[0x1f, 0x8b].as_slice(), &[0; 20]].concat())
            .with("b.tfrecord", &[[0x78, 0x9c].as_slice(), &[0; 20]].concat())
            .with("c.tfrecord", &[[0x78, 0x9d].as_slice(), &[0; 20]].concat())
            .with("d.tfrecord", b"");
        assert!(Decompression::is_needed(&storage, "").unwrap());
        let plan = Decompression::plan(&storage, "").unwrap();
        let treatments: Vec<_> = plan.steps.iter().map(|step| step.treatment).collect();
        let decompressed = Treatment::Decompressed;
        let copied = Treatment::Copied;
        assert_eq!(
            treatments,
            [decompressed(Codec::Gzip), decompressed(Codec::Zlib), copied, copied]
        );
    }

    #[test]
    fn of_mds_the_index_says_what_is_compressed() {
        let shard = |name: &str| {
            format!(
                r#"{{"format": "mds", "column_names": ["image"], "column_encodings": ["jpeg"],
                    "column_sizes": [null], "raw_data": {{"basename": "{name}.mds"}},
                    "zip_data": {{"basename": "{name}.mds.zstd"}}, "samples": 1}}"#
            )
        };
        let index =
            format!(r#"{{"version": 2, "shards": [{}, {}]}}"#, shard("0"), shard("1"));
        let storage = MemoryStorage::new()
            .with("index.json", index.as_bytes())
            .with("0.mds.zstd", b"")
            .with("1.mds", b"");
        assert!(Decompression::is_needed(&storage, "").unwrap());
        let plan = Decompression::plan(&storage, "").unwrap();
        let zstd = Treatment::Decompressed(Codec::Zstd);
        let copied = Treatment::Copied;
        assert_eq!(
            plan.steps,
            [
                step("0.mds.zstd", "0.mds", zstd),
                step("1.mds", "1.mds", copied),
                step("index.json", "index.json", copied),
            ]
        );
    }

    #[test]
    fn of_litdata_the_index_is_written_without_compression() {
        let index = br#"{"chunks": [{"filename": "chunk-0-0.zstd.bin", "chunk_size": 1}],
            "config": {"compression": "zstd:3", "item_loader": "PyTreeLoader"}, "more": 1}"#;
        let storage = MemoryStorage::new()
            .with("index.json", index)
            .with("chunk-0-0.zstd.bin", b"");
        assert!(Decompression::is_needed(&storage, "").unwrap());
        let plan = Decompression::plan(&storage, "").unwrap();
        let zstd = Treatment::Decompressed(Codec::Zstd);
        assert_eq!(plan.steps, [step("chunk-0-0.zstd.bin", "chunk-0-0.zstd.bin", zstd)]);
        let [(name, text)] = &plan.texts[..] else { panic!("{:?}", plan.texts) };
        let written: serde_json::Value = serde_json::from_slice(text).unwrap();
        assert_eq!(
            (&**name, &written["config"]["compression"]),
            ("index.json", &serde_json::Value::Null)
        );
        assert_eq!(
            (&written["more"], &written["config"]["item_loader"]),
            (&1.into(), &"PyTreeLoader".into())
        );
    }
}
