//! `bothends inspect RECIPE --sheet FILE.html`: samples to look at, as a recipe makes them.

use std::path::{Path, PathBuf};

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::{BatchKey, Mixture, Recipe, Size};
use bothends_core::tensor::SampleShape;
use bothends_report::{Picture, Sheet, SheetCell, SheetRow};
use bothends_runtime::{Looked, RunConfig, Runtime, look};
use bothends_samples::GenerateConfig;

use super::looking;
use crate::args::{InspectArgs, typed};
use crate::failed::Failed;
use crate::{file, say};

/// Makes samples and writes the sheet.
pub(crate) fn write(
    args: &InspectArgs,
    recipe: &Recipe,
    path: &Path,
) -> Result<(), Failed> {
    let generated = match args.data {
        Some(_) => None,
        None => Some(tempfile::tempdir()?),
    };
    let data = match (&args.data, &generated) {
        (Some(data), _) => data.clone(),
        (None, Some(folder)) => {
            let n_images = args.samples;
            let config = GenerateConfig { n_images, n_classes: 1, seed: args.seed };
            bothends_samples::generate(folder.path(), &config, &mut |_, _| {})?;
            folder.path().to_owned()
        }
        (None, None) => PathBuf::new(),
    };
    let n_there = n_samples(&data, recipe)?;
    let n_shown = args.samples.min(u32::try_from(n_there).unwrap_or(u32::MAX));
    let shown = Shown { data: &data, n_samples: n_shown, seed: args.seed };
    let epochs = look(shown.config(recipe.clone()), args.epochs)?;
    let shape = epochs.first().and_then(|samples| samples.first());
    let shape = shape.and_then(|sample| sample.views.first()).map(|(shape, _)| *shape);
    let plain = plain(shape.map_or(Size { height: 224, width: 224 }, size));
    let originals = look(shown.config(plain?), 1).unwrap_or_default();
    let mixing = |epoch: u32| {
        // All samples of the sheet are one batch, the epoch's first.
        let key = BatchKey { seed: args.seed, epoch: EpochIdx(epoch), position: 0 };
        let mixture = recipe.decide_mixture(key, size(shape?))?;
        Some(match mixture {
            Mixture::Mixup { .. } => "mixup",
            Mixture::Cutmix { .. } => "cutmix",
        })
    };
    let mixing: Vec<_> = (0..args.epochs).map(mixing).collect();
    let html = bothends_report::sheet(&Sheet {
        title: recipe.name().to_owned(),
        words: recipe.words(),
        note: note(args),
        rows: rows(&originals, epochs.iter().zip(mixing)),
    });
    file::write(path, &html)?;
    let few = if n_shown < args.samples { ", all there are" } else { "" };
    say::line(&format!(
        "{}: {n_shown} samples{few}, made {} times",
        path.display(),
        args.epochs
    ));
    Ok(())
}

/// Samples of a data set that the recipe fits.
fn n_samples(data: &Path, recipe: &Recipe) -> Result<u64, Failed> {
    let one = RunConfig { batch_size: 1, ..looking(data.to_owned(), recipe.clone()) };
    Ok(Runtime::open(one)?.source().n_samples())
}

/// The samples of a sheet.
struct Shown<'a> {
    data: &'a Path,
    n_samples: u32,
    seed: u64,
}

impl Shown<'_> {
    fn config(&self, recipe: Recipe) -> RunConfig {
        // A sample that is repeated needs a row for every repetition.
        let repeat = recipe.repeated_augment();
        RunConfig {
            batch_size: self.n_samples * repeat,
            seed: self.seed,
            repeat,
            ..looking(self.data.to_owned(), recipe)
        }
    }
}

/// The image as it is, about as large as what is made of it.
fn plain(Size { height, width }: Size) -> Result<Recipe, Failed> {
    let side = height.min(width);
    let json = format!(
        r#"{{"version": 1, "name": "plain", "ops": [{{"op": "decode"}},
            {{"op": "resize", "size": {side}}},
            {{"op": "center_crop", "size": [{height}, {width}]}}]}}"#
    );
    Ok(Recipe::from_json(&json)?)
}

fn note(args: &InspectArgs) -> String {
    let images = match &args.data {
        Some(data) => format!("Samples of {}.", data.display()),
        None => "Generated, photograph-like images.".to_owned(),
    };
    format!(
        "{images} First the image itself, then the sample as delivered in each epoch, before \
         normalisation, with the steps that made it. Reproduce with: {}",
        typed()
    )
}

/// One row for each sample: itself, then every time it was made.
fn rows<'a>(
    originals: &[Vec<Looked>],
    epochs: impl Iterator<Item = (&'a Vec<Looked>, Option<&'static str>)>,
) -> Vec<SheetRow> {
    let mut rows: Vec<(Option<SampleId>, SheetRow)> = Vec::new();
    let samples =
        epochs.flat_map(|(epoch, mixing)| epoch.iter().map(move |l| (l, mixing)));
    for (looked, mixing) in samples {
        let cell = cell(looked, mixing.unwrap_or("mixed"));
        if let Some((_, row)) = rows.iter_mut().find(|(of, _)| *of == looked.sample) {
            row.cells.push(cell);
            continue;
        }
        let original = originals.iter().flatten().find(|o| o.sample == looked.sample);
        let itself = original.map(|original| SheetCell {
            pictures: original.views.iter().map(picture).collect(),
            steps: Vec::new(),
        });
        let cells = itself.into_iter().chain([cell]).collect();
        rows.push((looked.sample, SheetRow { name: looked.name.clone(), cells }));
    }
    rows.into_iter().map(|(_, row)| row).collect()
}

/// `mixing` is the op that mixed the samples of its epoch.
fn cell(looked: &Looked, mixing: &str) -> SheetCell {
    let mut steps = looked.steps.clone();
    if let Some((other, own_share)) = &looked.mixed {
        let other =
            Path::new(other).file_name().map_or(other.into(), |f| f.to_string_lossy());
        let rest = 1.0 - own_share;
        steps.push(format!("{mixing}: {own_share:.2} of itself, {rest:.2} of {other}"));
    }
    SheetCell { pictures: looked.views.iter().map(picture).collect(), steps }
}

fn picture((shape, pixels): &(SampleShape, Vec<u8>)) -> Picture {
    let SampleShape { height, width, channels } = *shape;
    Picture { width, height, channels, pixels: pixels.clone() }
}

fn size(shape: SampleShape) -> Size {
    Size { height: shape.height, width: shape.width }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_of_a_shard_has_a_row_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sheet.html");
        let data =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/shards/tar");
        let args = InspectArgs {
            path: "torchvision-resnet50-v2".to_owned(),
            verify: false,
            sheet: Some(path.clone()),
            data: Some(data.into()),
            samples: 6,
            epochs: 2,
            seed: 0,
        };
        write(&args, &Recipe::builtin(&args.path).unwrap(), &path).unwrap();
        let html = std::fs::read_to_string(path).unwrap();
        let titles: Vec<&str> = html.split("<h3>").skip(1).collect();
        assert_eq!(titles.len(), 6);
        for (nth, title) in titles.iter().enumerate() {
            let (title, _) = title.split_once("</h3>").unwrap();
            assert!(title.ends_with(&format!(".tar, sample {nth}")), "{title}");
        }
        // Mixed with a sample that is named as well.
        assert!(html.contains(" of itself, "), "{html}");
        let other = html.split(" of itself, ").nth(1).unwrap();
        assert!(
            other.split("</li>").next().unwrap().contains(".tar, sample "),
            "{other}"
        );
    }
}
