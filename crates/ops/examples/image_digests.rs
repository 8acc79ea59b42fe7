//! What our decoders make of image files, for `scripts/compare-pillow`.
//!
//! Reads paths, one a line, and answers each with a line, with tabs between the columns: width,
//! height, XXH3-128 of the RGB bytes, and what was wrong with the file, or `-`; or `error` and the
//! fault. Small images are cropped as well, by a pipeline that decodes no more than it needs; a crop
//! that is not that of the whole image is told in one more column.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::{fs, io};

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::{Recipe, Size};
use bothends_core::sample::{Encoding, Record, SampleKey};
use bothends_core::tensor::SampleShape;
use bothends_ops::decode::ImageDecoder;
use bothends_ops::image::Image;
use bothends_ops::{OpsError, Pipeline, Scratch};
use twox_hash::XxHash3_128;

/// Crops of each image, at random, but the same every time.
const N_CROPS: u64 = 3;

/// Images of more bytes are not cropped: that takes their pixels twice.
const MOST_CROPPED: usize = 12 << 20;

/// Crops of any form, made larger most of the time, so that every pixel shows.
const CROPS: &str = r#"{
    "version": 1, "name": "crops", "numerics": "exact",
    "ops": [
        {"op": "decode"},
        {"op": "random_resized_crop", "size": 64, "scale": [0.01, 1.0], "ratio": [0.2, 5.0]}
    ]
}"#;

const CROP: SampleShape = SampleShape { height: 64, width: 64, channels: 3 };

fn main() {
    let mut side = Side {
        images: ImageDecoder::default(),
        image: Image::default(),
        crops: Pipeline::new(&Recipe::from_json(CROPS).unwrap(), CROP.into()),
        scratch: Scratch::default(),
    };
    for path in io::stdin().lines() {
        match side.told(&fs::read(path.unwrap()).unwrap()) {
            Ok(columns) => println!("{columns}"),
            Err(fault) => println!("error\t{fault}"),
        }
    }
}

/// Our side, with all that is kept from file to file.
struct Side {
    images: ImageDecoder,
    image: Image,
    crops: Pipeline,
    scratch: Scratch,
}

impl Side {
    /// The columns of a file that can be decoded.
    fn told(&mut self, bytes: &[u8]) -> Result<String, OpsError> {
        self.images.decode(Record::new(bytes, Encoding::Image), &mut self.image)?;
        let Size { height, width } = self.image.size();
        let digest = XxHash3_128::oneshot(self.image.pixels());
        // The pipeline tells of damage; it has to run once whatever the size is.
        let mut crop = vec![0; CROP.len()];
        self.crop(0, Record::new(bytes, Encoding::Image), &mut crop)?;
        let damage = match self.scratch.damage() {
            Some(damage) => damage.what.replace(['\t', '\n'], " "),
            None => "-".to_owned(),
        };
        let wrong = if self.image.pixels().len() > MOST_CROPPED {
            String::new()
        } else {
            self.wrong_crop(bytes)?
        };
        Ok(format!("{width}\t{height}\t{digest:032x}\t{damage}{wrong}"))
    }

    /// One more column, if a crop of the file is not that of the pixels of the whole image.
    fn wrong_crop(&mut self, bytes: &[u8]) -> Result<String, OpsError> {
        let Size { height, width } = self.image.size();
        let channel = |c| self.image.pixels().iter().skip(c).step_by(3).copied();
        let planar: Vec<u8> = (0..3).flat_map(channel).collect();
        let decoded = Encoding::Planar { height, width, channels: 3 };
        let mut entry_points = Vec::new();
        for seed in 0..N_CROPS {
            let mut crops = [(); 3].map(|()| vec![0; CROP.len()]);
            self.crop(seed, Record::new(&planar, decoded), &mut crops[0])?;
            let file = Record::new(bytes, Encoding::Image);
            self.crop(seed, file, &mut crops[1])?;
            if seed == 0 {
                self.scratch.new_entry_points().clone_into(&mut entry_points);
            }
            let again = Record { entry_points: &entry_points, ..file };
            self.crop(seed, again, &mut crops[2])?;
            if crops[1] != crops[0] {
                return Ok(format!("\tthe crop of seed {seed} differs"));
            }
            if crops[2] != crops[0] {
                return Ok(format!(
                    "\tthe crop of seed {seed} by the side index differs"
                ));
            }
        }
        Ok(String::new())
    }

    fn crop(
        &mut self,
        seed: u64,
        record: Record<'_>,
        out: &mut [u8],
    ) -> Result<(), OpsError> {
        let key = SampleKey { seed, epoch: EpochIdx(0), sample: SampleId(0) };
        self.crops.run(&mut self.scratch, key, record, out)
    }
}
