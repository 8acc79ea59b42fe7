//! Crops of the data's JPEGs, in both forms, described for the kernels; and what the host makes of them.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bothends_core::blocks::{Blocks, Head, Profile};
use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::{Decision, Numerics, Recipe, RecordShape, Size};
use bothends_core::sample::{Encoding, Record, SampleKey};
use bothends_gpu_decode::{Batch, Limits, Placed};
use bothends_ops::jpeg::{Chroma, Decoder, Opened, Packed, Packer, Region, ScanNote};
use bothends_ops::{Pipeline, Scratch};

use crate::{Extent, Failed};

/// Memory for as many crops as are wanted.
const LIMITS: Limits = Limits { input_bytes: 1 << 30, scratch_bytes: 16 << 30 };

/// How a picture lies in storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Store,
    Jpeg,
}

impl Form {
    pub const ALL: [Self; 2] = [Self::Store, Self::Jpeg];

    pub fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Jpeg => "JPEG",
        }
    }
}

/// The data.
pub struct Pictures {
    pictures: Vec<Picture>,
    size: Size,
}

struct Picture {
    file: Vec<u8>,
    /// What the side index would know.
    note: Vec<u8>,
    stored: Option<(Packed, Vec<u8>)>,
}

/// Crops in one upload.
pub struct Crops {
    pub batch: Batch,
    /// Data and descriptions.
    pub upload: Vec<u8>,
    /// Where each crop's bytes are in it.
    pub ranges: Vec<Range<usize>>,
    /// What describing them took, without reading or copying a byte of a picture.
    pub describing: Duration,
    /// The number after the last that was tried.
    pub next: usize,
    /// Which picture with which key, row by row.
    rows: Vec<(usize, SampleKey)>,
    numerics: Numerics,
}

impl Pictures {
    /// All that is a JPEG below `folder`; a few of them for the twin. Blocks.
    pub fn read(folder: &Path, extent: Extent) -> Result<Self, Failed> {
        let mut paths = Vec::new();
        list(folder, &mut paths)?;
        paths.sort();
        let (most, side) = match extent {
            Extent::Whole => (usize::MAX, 224),
            Extent::Quick => (50, 224),
            Extent::Twin => (6, 40),
        };
        let step = (paths.len() / most).max(1);
        let mut decoder = Decoder::default();
        let mut pictures = Vec::new();
        for path in paths.iter().step_by(step).take(most) {
            pictures.extend(Picture::of(fs::read(path)?, &mut decoder));
        }
        if pictures.is_empty() {
            return Err(format!("there is no JPEG below {}", folder.display()).into());
        }
        Ok(Self { pictures, size: Size { height: side, width: side } })
    }

    pub fn len(&self) -> usize {
        self.pictures.len()
    }

    pub fn sample_bytes(&self) -> usize {
        3 * (self.size.height * self.size.width) as usize
    }

    fn pipeline(&self, numerics: Numerics) -> Result<Pipeline, Failed> {
        let recipe = Recipe::builtin("imagenet-train").ok_or("no recipe")?;
        let mut recipe = serde_json::to_value(recipe)?;
        recipe["ops"][1]["size"] = serde_json::json!([self.size.height, self.size.width]);
        let recipe = Recipe::from_json(&recipe.to_string())?.with_numerics(numerics);
        Ok(Pipeline::new(&recipe, recipe.views(RecordShape::Image)?))
    }

    /// The next `n` crops that have kernels, or fewer: every picture of these numbers in turn, each time
    /// round with other boxes.
    pub fn crops(
        &self,
        (form, numerics): (Form, Numerics),
        within: Range<usize>,
        n: usize,
    ) -> Result<Crops, Failed> {
        let pipeline = self.pipeline(numerics)?;
        let mut crops = Crops {
            batch: Batch::new(self.size, numerics, LIMITS),
            upload: Vec::new(),
            ranges: Vec::new(),
            describing: Duration::ZERO,
            next: within.end,
            rows: Vec::new(),
            numerics,
        };
        for nth in within {
            if crops.rows.len() == n {
                crops.next = nth;
                break;
            }
            let (which, round) = (nth % self.len(), nth / self.len());
            let epoch = EpochIdx(u32::try_from(round)?);
            let key = SampleKey { seed: 7, epoch, sample: SampleId(which as u64) };
            crops.add(&self.pictures[which], which, (key, form, &pipeline))?;
        }
        let data = crops.upload.len();
        crops.upload.resize(crops.batch.input_bytes().max(data), 0);
        let began = Instant::now();
        crops.batch.write_descriptions(&mut crops.upload);
        crops.describing += began.elapsed();
        Ok(crops)
    }

    /// Which samples of a batch are not what the host makes, on all processors.
    pub fn different(&self, crops: &Crops, samples: &[u8]) -> Result<Vec<usize>, Failed> {
        let pipeline = self.pipeline(crops.numerics)?;
        let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
        let sample_bytes = self.sample_bytes();
        let different = &|first: usize| {
            let (mut scratch, mut out) = (Scratch::default(), vec![0; sample_bytes]);
            let mut is_different = |row: &usize| {
                let (which, key) = crops.rows[*row];
                let record = Record::new(&self.pictures[which].file, Encoding::Image);
                let made = pipeline.run(&mut scratch, key, record, &mut out);
                made.is_err() || samples[row * sample_bytes..][..sample_bytes] != out[..]
            };
            let rows = (first..crops.rows.len()).step_by(n_threads);
            rows.filter(|row| is_different(row)).collect::<Vec<_>>()
        };
        let found = std::thread::scope(|scope| {
            let threads = (0..n_threads).map(|nth| scope.spawn(move || different(nth)));
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
        });
        let found: Result<Vec<_>, _> = found;
        Ok(found.map_err(|_| "the host's own code panicked")?.concat())
    }
}

impl Picture {
    /// `None` where nothing of it has kernels.
    fn of(file: Vec<u8>, decoder: &mut Decoder) -> Option<Self> {
        let opened = Opened::new(&file).ok()?;
        let region = Region::whole(opened.size());
        decoder.decode(opened, &region, Chroma::Upsampled, None).ok()?;
        let note = decoder.entry_points().to_vec();
        let packed = Packer::default().pack(decoder, &file, &mut Vec::new());
        let stored = packed.and_then(|packed| {
            let head = packed.lengths.head(packed.size, 0, packed.row_lengths)?;
            Some((packed, head))
        });
        Some(Self { file, note, stored })
    }

    fn blocks(&self) -> Option<(Blocks<'_>, &[u8])> {
        let (packed, head) = self.stored.as_ref()?;
        let blocks = Blocks::new(Profile::read(&packed.profile)?, Head::read(head)?)?;
        Some((blocks, &packed.groups))
    }
}

impl Crops {
    fn add(
        &mut self,
        picture: &Picture,
        which: usize,
        (key, form, pipeline): (SampleKey, Form, &Pipeline),
    ) -> Result<(), Failed> {
        let size = Opened::new(&picture.file)?.size();
        let began = Instant::now();
        let crop = pipeline.only_crop_of(key, size, &mut Decision::default())?;
        let Some(crop) = crop else { return Ok(()) };
        let row = u32::try_from(self.rows.len())?;
        let placed = match form {
            Form::Store => picture.blocks().and_then(|(blocks, bytes)| {
                let placed = self.batch.add_stored(row, blocks, &crop).ok()?;
                Some((placed, bytes))
            }),
            Form::Jpeg => ScanNote::read(&picture.note).and_then(|note| {
                let len = u32::try_from(picture.file.len()).ok()?;
                let placed = self.batch.add_jpeg(row, (&note, len), &crop).ok()?;
                Some((placed, &picture.file[..]))
            }),
        };
        self.describing += began.elapsed();
        if let Some((Placed { bytes, at, .. }, record)) = placed {
            self.upload.resize(at as usize, 0);
            self.upload.extend_from_slice(part(record, &bytes)?);
            self.ranges.push(at as usize..self.upload.len());
            self.rows.push((which, key));
        }
        Ok(())
    }

    /// Bytes that go over the bus for a crop.
    pub fn bytes_per_crop(&self) -> f64 {
        self.upload.len() as f64 / self.rows.len().max(1) as f64
    }
}

fn part<'a>(bytes: &'a [u8], range: &Range<u64>) -> Result<&'a [u8], Failed> {
    let range = usize::try_from(range.start)?..usize::try_from(range.end)?;
    bytes.get(range).ok_or_else(|| "a crop outside its record".into())
}

fn list(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<(), Failed> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if path.is_dir() {
            list(&path, paths)?;
        } else if matches!(ending, Some("jpg" | "jpeg" | "JPEG" | "JPG")) {
            paths.push(path);
        }
    }
    Ok(())
}
