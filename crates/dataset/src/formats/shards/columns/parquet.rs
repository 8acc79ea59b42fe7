//! Parquet, as Hugging Face's libraries write images: the column of bytes plain and uncompressed.
//!
//! A file is row groups, in which each column is a run of pages, and a footer. Values of a plain page lie
//! one after the other, each after its length, so that the walk over a page's lengths gives the place of
//! each image (`parquet-format`, "Data Pages", "Plain"). Only the column of classes is decoded: it is small,
//! and `labels.rs` has the two encodings and the one compression that writers choose for it. Images that are
//! compressed or coded by a dictionary are refused. `footer.rs` comes first, then `pages.rs`.

mod footer;
mod labels;
mod levels;
mod pages;
mod snappy;
mod thrift;

use super::super::{Window, find};
use super::choice::Choice;
use super::rows::{File, Rows, one_split};
use crate::error::DatasetError;
use crate::formats::{Format, Found};
use crate::storage::Storage;
use footer::{Footer, Group, Leaf};
use labels::Labels;

/// Bytes that one read brings: a page's header, the lengths of small images.
const STEP: usize = 512;

/// Bytes of the footer that one read brings.
const FOOTER_STEP: usize = 1 << 16;

/// Whether a file's name is that of a Parquet file.
pub(crate) fn is_shard(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with(".parquet") || name.ends_with(".parq")
}

/// Reads the files at `target`, in the order of their names.
pub(crate) fn parse(storage: &dyn Storage, target: &str) -> Result<Found, DatasetError> {
    let (shards, n_others) = find(storage, target, is_shard)?;
    one_split(storage, target, &shards)?;
    let mut rows = Rows::new(storage);
    for path in &shards {
        add(storage, path, &mut rows)?;
    }
    rows.found(Format::Parquet, target, n_others)
}

/// Adds the rows of a file.
fn add(
    storage: &dyn Storage,
    path: &str,
    rows: &mut Rows<'_>,
) -> Result<(), DatasetError> {
    let mut file = Window::open(storage, path, FOOTER_STEP)?;
    let footer = Footer::read(&mut file)?;
    let choice = Choice::of(&footer.columns, &footer.features)
        .map_err(|why| file.broken(file.len(), why))?;
    let leaf = |nth: usize| footer.leaves[nth].as_ref();
    let Some(image) = leaf(choice.image) else {
        return Err(file.broken(file.len(), "the column of images has no values"));
    };
    let label = choice.label.and_then(leaf);
    let mut taker = rows.file(path, &choice)?;
    let mut pages = Window::open(storage, path, STEP)?;
    footer.groups(&mut file, (image, label), |group| {
        add_group(&mut pages, &group, (image, label), &mut taker)
    })
}

fn add_group(
    file: &mut Window<'_>,
    group: &Group,
    (image, label): (&Leaf, Option<&Leaf>),
    taker: &mut File<'_>,
) -> Result<(), DatasetError> {
    let mut images = Vec::new();
    pages::images(file, &group.image, image, |image| images.push(image))?;
    if images.len() as u64 != group.n_rows {
        let why = format!(
            "a row group has {} images and {} rows; fetch the file again",
            images.len(),
            group.n_rows
        );
        return Err(file.broken(group.image.range.start, why));
    }
    let labels = group.label.as_ref().zip(label);
    let mut labels = labels.map(|(chunk, leaf)| Labels::new(chunk.clone(), leaf.clone()));
    for image in images {
        let label = match &mut labels {
            Some(labels) => labels.next(file)?,
            None => None,
        };
        taker.row(image, label);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
