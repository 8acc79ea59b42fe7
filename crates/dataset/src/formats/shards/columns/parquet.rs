//! Parquet, as Hugging Face's libraries write images: the column of bytes plain and uncompressed.
//!
//! A file is row groups, in which each column is a run of pages, and a footer. Values of a plain page lie
//! one after the other, each after its length, so that the walk over a page's lengths gives the place of
//! each image (`parquet-format`, "Data Pages", "Plain"). Only the column of classes and fields that are asked for
//! are decoded: `cells.rs` has the encodings and the one compression that writers choose for them. Images that are
//! compressed or coded by a dictionary have to be written plain first ([`Decompression`](crate::Decompression)).
//! `footer.rs` comes first, then `pages.rs`.

mod cells;
mod footer;
mod labels;
mod levels;
mod pages;
mod snappy;
mod thrift;

use super::super::{Window, find, one_split};
use super::choice::Choice;
use super::rows::{File, Rows};
use crate::error::DatasetError;
use crate::fields::{FieldKind, FieldsBuilder};
use crate::formats::{Format, Found};
use crate::storage::Storage;
use cells::Cells;
use footer::{Asked, Footer, Group, Wanted};
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
pub(crate) fn parse(
    storage: &dyn Storage,
    target: &str,
    fields: FieldsBuilder,
) -> Result<Found, DatasetError> {
    let (shards, n_others) = find(storage, target, is_shard)?;
    one_split(storage, target, &shards)?;
    let mut rows = Rows::new(storage, fields);
    for path in &shards {
        add(storage, path, &mut rows)?;
    }
    rows.found(Format::Parquet, target, n_others)
}

/// Reads the first file at `target` and says what is wrong with it.
pub(crate) fn check_first(
    storage: &dyn Storage,
    target: &str,
) -> Result<(), DatasetError> {
    let (shards, _) = find(storage, target, is_shard)?;
    let first = shards.first();
    first.map_or(Ok(()), |path| {
        add(storage, path, &mut Rows::new(storage, FieldsBuilder::default()))
    })
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
    let fields =
        asked(&footer, &mut taker).map_err(|why| file.broken(file.len(), why))?;
    let mut pages = Window::open(storage, path, STEP)?;
    let wanted = Wanted { image, label, fields: &fields };
    footer.groups(&mut file, wanted, |group| {
        add_group(&mut pages, &group, wanted, &mut taker)
    })
}

/// The columns that are asked for as fields.
fn asked(footer: &Footer, taker: &mut File<'_>) -> Result<Vec<Asked>, String> {
    let mut asked = Vec::new();
    for (column, field) in footer.columns.iter().zip(&footer.fields) {
        let Some((kind, leaf)) = field else { continue };
        let (shape, width): (Option<&[u32]>, _) = match kind {
            FieldKind::Numbers(number) => (Some(&[]), Some(number.size())),
            FieldKind::Bytes | FieldKind::Text => (None, None),
        };
        if let Some(kept) = taker.fields.field(&column.name, (*kind, shape))? {
            let name = column.name.clone();
            asked.push(Asked { name, kept, leaf: leaf.clone(), width });
        }
    }
    Ok(asked)
}

/// Adds the values of a field. Bytes stay in the file where they are there as they are; text and numbers are small.
fn add_field(
    file: &mut Window<'_>,
    (group, nth): (&Group, usize),
    asked: &Asked,
    taker: &mut File<'_>,
) -> Result<(), DatasetError> {
    let chunk = &group.fields[nth];
    let what = format!("the column `{}`", asked.name);
    if asked.kept.kind == FieldKind::Bytes && chunk.codec == 0 && !chunk.has_dictionary {
        let mut places = Vec::new();
        pages::images(file, chunk, (&asked.leaf, &what), |place| places.push(place))?;
        if places.len() as u64 != group.n_rows {
            let why = format!("{what} has {} values, not one for each row", places.len());
            return Err(file.broken(chunk.range.start, why));
        }
        places.into_iter().for_each(|place| taker.extent(asked.kept, place));
        return Ok(());
    }
    let mut cells = Cells::new(what, chunk.clone(), asked.leaf.clone());
    for row in 0..group.n_rows {
        let (value, start) = cells.next(file)?;
        let Some(value) = value else {
            let why = format!(
                "row {row} of a row group has no value in the column `{}`; leave the field out, or give \
                 every row a value",
                asked.name
            );
            return Err(file.broken(start, why));
        };
        // Small whole numbers are kept in four bytes.
        let value = asked.width.and_then(|width| value.get(..width)).unwrap_or(value);
        let put = taker.fields.value(asked.kept, value);
        put.map_err(|why| file.broken(start, why))?;
    }
    Ok(())
}

fn add_group(
    file: &mut Window<'_>,
    group: &Group,
    wanted: Wanted<'_>,
    taker: &mut File<'_>,
) -> Result<(), DatasetError> {
    let Wanted { image, label, fields } = wanted;
    let mut images = Vec::new();
    let what = (image, "the column of images");
    pages::images(file, &group.image, what, |image| images.push(image))?;
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
    for (nth, asked) in fields.iter().enumerate() {
        add_field(file, (group, nth), asked, taker)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
