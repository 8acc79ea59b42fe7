//! After warm-up nothing is allocated per sample, whatever the recipe.

#![allow(clippy::unwrap_used, reason = "tests")]

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::{BatchKey, Recipe, RecordShape, Size};
use bothends_core::sample::{Encoding, Record, SampleKey};
use bothends_core::tensor::{Dtype, Layout, Output};
use bothends_ops::{Finish, Pipeline, Scratch};

/// Photograph-like images of a few sizes.
fn images() -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let config = bothends_samples::GenerateConfig { n_images: 6, n_classes: 1, seed: 3 };
    bothends_samples::generate(folder.path(), &config, &mut |_, _| {}).unwrap();
    let class = std::fs::read_dir(folder.path()).unwrap();
    let folders = class.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let files = folders.flat_map(|class| std::fs::read_dir(class).unwrap());
    files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
}

/// A recipe with all its memory.
struct Line {
    recipe: Recipe,
    pipeline: Pipeline,
    finish: Finish,
    scratch: Scratch,
    sample: Vec<u8>,
    batch: Vec<u8>,
    originals: Vec<u8>,
}

impl Line {
    fn new(name: &str) -> Self {
        let recipe = Recipe::builtin(name).unwrap();
        let views = recipe.views(RecordShape::Image).unwrap();
        let output = Output { dtype: Dtype::F16, layout: Layout::Nchw };
        let finish = Finish::new(&recipe, &views, output).unwrap();
        let pipeline = Pipeline::new(&recipe, views);
        let (sample, batch) =
            (vec![0; pipeline.sample_bytes()], vec![0; 4 * finish.sample_bytes()]);
        let (scratch, originals) = (Scratch::default(), Vec::new());
        Self { recipe, pipeline, finish, scratch, sample, batch, originals }
    }

    /// Samples of an epoch, finished and mixed four by four.
    fn epoch(&mut self, images: &[Vec<u8>], epoch: u32) {
        let epoch = EpochIdx(epoch);
        let shape = self.pipeline.views().shapes()[0];
        let size = Size { height: shape.height, width: shape.width };
        for position in 0..24_u64 {
            let key = SampleKey { seed: 9, epoch, sample: SampleId(position) };
            let image = &images[usize::try_from(position).unwrap() % images.len()];
            let record = Record::new(image, Encoding::Image);
            self.pipeline.run(&mut self.scratch, key, record, &mut self.sample).unwrap();
            let row = usize::try_from(position % 4).unwrap() * self.finish.sample_bytes();
            let row = &mut self.batch[row..][..self.finish.sample_bytes()];
            self.finish.run(Some(key), &self.sample, row);
            let batch = BatchKey { seed: 9, epoch, position };
            if let Some(mixture) = self.recipe.decide_mixture(batch, size) {
                self.finish.mix(mixture, &mut self.batch, &mut self.originals);
            }
        }
    }
}

#[test]
fn no_recipe_allocates_per_sample() {
    let images = images();
    assert!(images.len() == 6, "{} images", images.len());
    for name in Recipe::builtin_names().filter(|name| *name != "raw") {
        // CIFAR's recipes leave photographs as they are until a crop.
        let mut line = Line::new(name);
        for epoch in 0..3 {
            line.epoch(&images, epoch);
        }
        let counted = allocation_counter::measure(|| line.epoch(&images, 1));
        assert_eq!(counted.count_total, 0, "{name}: {counted:?}");
    }
}
