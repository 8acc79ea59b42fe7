//! What our decoder makes of JPEG files, in the words of `scripts/reference-jpeg.c`.
//!
//! Reads paths, one a line, and prints a line for each, with tabs between the columns: path,
//! width, height, digests of the RGB bytes and of the planes, whether a store would have it
//! `packed` or `kept` as it is; of a file that only the slow path takes, `slow` instead of the planes'
//! digest, and what was wrong with it; or path, `error` and the fault. Decodes some regions of each
//! file as well, with entry points and without, and from what a store has of it; what is not as
//! it is in the whole image is told in one more column, and also a file that does not come back
//! from the store. Run it by `scripts/compare-jpeg`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::ops::Range;
use std::{fs, io};

use bothends_core::blocks::{Blocks, Head, Profile};
use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::{Recipe, Size};
use bothends_core::sample::{Encoding, Record, RecordPart, RowGroups, SampleKey};
use bothends_core::tensor::SampleShape;
use bothends_ops::decode::ImageDecoder;
use bothends_ops::image::Image;
use bothends_ops::jpeg::rebuild::put_together;
use bothends_ops::jpeg::{
    Chroma, Coefficients, Decoder, EntryPoints, Opened, Packer, Plane, Region, Stored,
    unpack,
};
use bothends_ops::kernels::Level;
use bothends_ops::{OpsError, Pipeline, SampleFault, Scratch};

/// Regions of each file, and crops.
const N_REGIONS: u64 = 3;

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
        planes: Decoder::default(),
        crops: Pipeline::new(&Recipe::from_json(CROPS).unwrap(), CROP.into()),
        scratch: Scratch::default(),
        packer: Packer::default(),
        coefficients: Coefficients::default(),
    };
    for path in io::stdin().lines() {
        let path = path.unwrap();
        match side.told(&fs::read(&path).unwrap()) {
            Ok(columns) => println!("{path}\t{columns}"),
            Err(fault) => println!("{path}\terror\t{fault}"),
        }
    }
}

/// Our side, with all that is kept from file to file.
struct Side {
    images: ImageDecoder,
    image: Image,
    planes: Decoder,
    crops: Pipeline,
    scratch: Scratch,
    packer: Packer,
    coefficients: Coefficients,
}

impl Side {
    /// The columns of a file that can be decoded.
    fn told(&mut self, bytes: &[u8]) -> Result<String, OpsError> {
        self.images.decode(Record::new(bytes, Encoding::Image), &mut self.image)?;
        let size = self.image.size();
        let pixels = digest(EMPTY, self.image.pixels());
        if self.is_slow(bytes) {
            let Size { height, width } = size;
            let what = self.images.damage().map_or("", |damage| damage.what);
            return Ok(format!("{width}\t{height}\t{pixels:016x}\tslow\t{what}"));
        }
        let whole = Region::whole(size);
        self.planes.decode(Opened::new(bytes)?, &whole, Chroma::AsStored, None)?;
        let planes: Vec<_> = self.planes.planes().iter().map(samples).collect();
        let sum = planes.iter().fold(EMPTY, |sum, plane| digest(sum, plane));
        let points = self.planes.entry_points().to_vec();
        let mut wrong = String::new();
        for region in regions(sum, size) {
            for points in [None, EntryPoints::new(&points)] {
                if !self.has_region(bytes, &region, points, &planes)? {
                    let by = points.map_or("without", |_| "with");
                    wrong = format!("\t{region:?} differs, {by} entry points");
                }
            }
        }
        for seed in sum..sum.saturating_add(N_REGIONS) {
            if !self.has_crop(bytes, seed, &points)? {
                wrong = format!("\tthe crop of seed {seed} differs");
            }
        }
        let form = match self.stored(bytes, sum, &planes)? {
            None => "kept",
            Some(None) => "packed",
            Some(Some(what)) => {
                wrong = format!("\tfrom the store: {what}");
                "packed"
            }
        };
        let Size { height, width } = size;
        Ok(format!("{width}\t{height}\t{pixels:016x}\t{sum:016x}\t{form}{wrong}"))
    }

    /// Whether the fast path does not take the file.
    fn is_slow(&mut self, bytes: &[u8]) -> bool {
        let Ok(opened) = Opened::new(bytes) else { return true };
        let whole = Region::whole(opened.size());
        self.planes.decode(opened, &whole, Chroma::AsStored, None).is_err()
    }

    /// What is not from a store as it is from the file; `None` if no store would pack it.
    fn stored(
        &mut self,
        file: &[u8],
        sum: u64,
        planes: &[Vec<u8>],
    ) -> Result<Option<Option<String>>, OpsError> {
        let mut remainder = Vec::new();
        let Some(packed) = self.packer.pack(&mut self.planes, file, &mut remainder)
        else {
            return Ok(None);
        };
        let head = packed.lengths.head(packed.size, 0, packed.row_lengths).unwrap();
        let profile = Profile::read(&packed.profile).unwrap();
        let blocks = Blocks::new(profile, Head::read(&head).unwrap()).unwrap();
        let stored = Stored::new(blocks, 0, &packed.groups)?;

        let mut again = Vec::new();
        let level = Level::of_process();
        unpack(level, &stored, &mut self.coefficients)?;
        if put_together(level, &self.coefficients, &remainder, &mut again).is_err() {
            return Ok(None);
        }
        if again != file {
            return Ok(Some(Some("another file comes back".to_owned())));
        }
        let groups_of = |groups: Range<usize>| {
            let bytes = blocks.head().part_of(&packed.groups, 0, groups.clone());
            (groups.start, bytes.unwrap())
        };
        for region in
            regions(sum, packed.size).into_iter().chain([Region::whole(packed.size)])
        {
            let (first, bytes) = groups_of(stored.groups_for(&region));
            let part = Stored::new(blocks, first, bytes)?;
            self.planes.decode_stored(&part, &region, Chroma::Upsampled)?;
            if !has_samples(self.planes.planes(), planes, &region, 1) {
                return Ok(Some(Some(format!("{region:?} differs"))));
            }
        }
        for seed in sum..sum.saturating_add(N_REGIONS) {
            let key = SampleKey { seed, epoch: EpochIdx(0), sample: SampleId(0) };
            let (first, bytes) = groups_of(self.crops.groups_for(key, blocks)?);
            let part = RecordPart::RowGroups(RowGroups { blocks, first });
            let record = Record { part, ..Record::new(bytes, Encoding::Image) };
            let mut crops = [(); 2].map(|()| vec![0; CROP.len()]);
            let file = Record::new(file, Encoding::Image);
            for (record, crop) in [file, record].into_iter().zip(&mut crops) {
                self.crops.run(&mut self.scratch, key, record, crop)?;
            }
            if crops[0] != crops[1] {
                return Ok(Some(Some(format!("the crop of seed {seed} differs"))));
            }
        }
        Ok(Some(None))
    }

    /// Whether a region's planes, decoded alone, are those of the whole image: with the
    /// neighbours that upsampling looks at, and without.
    fn has_region(
        &mut self,
        bytes: &[u8],
        region: &Region,
        points: Option<EntryPoints<'_>>,
        planes: &[Vec<u8>],
    ) -> Result<bool, SampleFault> {
        for (chroma, margin) in [(Chroma::Upsampled, 1), (Chroma::AsStored, 0)] {
            self.planes.decode(Opened::new(bytes)?, region, chroma, points)?;
            if !has_samples(self.planes.planes(), planes, region, margin) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a crop of the file is that of the pixels of the whole image.
    fn has_crop(
        &mut self,
        bytes: &[u8],
        seed: u64,
        entry_points: &[u8],
    ) -> Result<bool, OpsError> {
        let Size { height, width } = self.image.size();
        let channel = |c| self.image.pixels().iter().skip(c).step_by(3).copied();
        let planar: Vec<u8> = (0..3).flat_map(channel).collect();
        let decoded = Encoding::Planar { height, width, channels: 3 };
        let records = [
            Record::new(&planar, decoded),
            Record::new(bytes, Encoding::Image),
            Record { entry_points, ..Record::new(bytes, Encoding::Image) },
        ];
        let key = SampleKey { seed, epoch: EpochIdx(0), sample: SampleId(0) };
        let mut crops = [(); 3].map(|()| vec![0; CROP.len()]);
        for (record, crop) in records.into_iter().zip(&mut crops) {
            self.crops.run(&mut self.scratch, key, record, crop)?;
        }
        Ok(crops[0] == crops[1] && crops[0] == crops[2])
    }
}

/// Whether what is decoded of a region, with so many neighbours, is as in the whole planes.
fn has_samples(
    parts: &[Plane],
    planes: &[Vec<u8>],
    region: &Region,
    margin: usize,
) -> bool {
    parts.iter().zip(planes).all(|(part, whole)| {
        let [width, height] = part.size();
        let [across, down] = part.ratio();
        let columns = covering(&region.columns, [across, margin, width]);
        covering(&region.rows, [down, margin, height])
            .all(|y| part.row(y, columns.clone()) == &whole[y * width..][columns.clone()])
    })
}

/// All samples of a plane.
fn samples(plane: &Plane) -> Vec<u8> {
    let [width, height] = plane.size();
    (0..height).flat_map(|y| plane.row(y, 0..width)).copied().collect()
}

/// The samples that pixels are made of, each of which covers `ratio` of them. Neighbours count
/// at two to one alone.
fn covering(pixels: &Range<usize>, [ratio, margin, size]: [usize; 3]) -> Range<usize> {
    let margin = if ratio == 2 { margin } else { 0 };
    let first = (pixels.start / ratio).saturating_sub(margin);
    first..(pixels.end.div_ceil(ratio) + margin).min(size)
}

/// Regions of an image, at random, but the same every time.
fn regions(mut state: u64, size: Size) -> Vec<Region> {
    let mut range = |side: u32| {
        let mut draw = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(state >> 33).unwrap() % below
        };
        let start = draw(side as usize);
        start..start + 1 + draw(side as usize - start)
    };
    let region = |_| Region { rows: range(size.height), columns: range(size.width) };
    (0..N_REGIONS).map(region).collect()
}

/// FNV-1a, 64 bits.
fn digest(sum: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(sum, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

/// The digest of nothing.
const EMPTY: u64 = 0xCBF2_9CE4_8422_2325;
