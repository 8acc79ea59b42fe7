//! After warm-up nothing is allocated per sample, whatever the recipe; and a hostile file takes no more
//! than a small multiple of its bytes and of its pixels'.

#![allow(clippy::unwrap_used, reason = "tests")]

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::{BatchKey, Recipe, RecordShape, Size};
use bothends_core::sample::{Encoding, Record, SampleKey};
use bothends_core::tensor::{Dtype, Layout, Output};
use bothends_ops::decode::decode;
use bothends_ops::image::Image;
use bothends_ops::{DecodeRoom, Finish, OpsError, Pipeline, Scratch};

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

const MIB: u64 = 1 << 20;

/// What a file is decoded to, and what that took.
fn decoded(file: &[u8]) -> (Result<Image, OpsError>, allocation_counter::AllocationInfo) {
    let mut result = None;
    let counted = allocation_counter::measure(|| {
        let mut image = Image::default();
        let done = decode(Record::new(file, Encoding::Image), &mut image);
        result = Some(done.map(|()| image));
    });
    (result.unwrap(), counted)
}

/// The segments of a grey JPEG of 8 x 8 pixels, up to its entropy-coded data: of DC and AC there is one
/// code of a bit, for zero and for the end of a block.
fn jpeg_head(frame: u8, restart_interval: Option<u8>) -> Vec<u8> {
    let mut file = b"\xff\xd8\xff\xdb\0\x43\0".to_vec();
    file.extend([1; 64]);
    file.extend([0xff, frame, 0, 11, 8, 0, 8, 0, 8, 1, 1, 0x11, 0]);
    for class in [0x00, 0x10] {
        file.extend([0xff, 0xc4, 0, 20, class, 1]);
        file.extend([0; 16]);
    }
    if let Some(interval) = restart_interval {
        file.extend([0xff, 0xdd, 0, 4, 0, interval]);
    }
    file
}

/// Places of these took 32 bytes each.
#[test]
fn restart_markers_that_no_block_needs_take_no_memory() {
    const SCAN: [u8; 10] = [0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0];
    const DC_SCAN: [u8; 10] = [0xff, 0xda, 0, 8, 1, 1, 0, 0, 0, 0];
    const AC_SCAN: [u8; 10] = [0xff, 0xda, 0, 8, 1, 1, 0, 1, 63, 0];
    let eight: Vec<u8> = (0xd0..=0xd7).flat_map(|marker| [0xff, marker]).collect();
    let flood = eight.repeat(1 << 17);
    for interval in [None, Some(1)] {
        let mut baseline = jpeg_head(0xc0, interval);
        baseline.extend(SCAN);
        baseline.extend([0x3f]);
        let mut progressive = jpeg_head(0xc2, interval);
        progressive.extend(DC_SCAN);
        progressive.extend([0x7f]);
        progressive.extend(AC_SCAN);
        progressive.extend([0x7f]);
        for mut file in [baseline, progressive] {
            file.extend_from_slice(&flood);
            file.extend([0xff, 0xd9]);
            let (image, counted) = decoded(&file);
            assert_eq!(image.unwrap().pixels(), [128; 8 * 8 * 3], "{interval:?}");
            assert!(counted.bytes_max < MIB, "{interval:?}: {counted:?}");
        }
    }
}

/// The bytes left out of such data took 16 bytes each.
#[test]
fn stuffed_bytes_take_no_memory_of_their_own() {
    let mut file = jpeg_head(0xc0, None);
    file.extend([0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0, 0x3f]);
    file.extend([0xff, 0].repeat(1 << 20));
    file.extend([0xff, 0xd9]);
    let (image, counted) = decoded(&file);
    assert_eq!(image.unwrap().pixels(), [128; 8 * 8 * 3]);
    assert!(counted.bytes_max < 2 * file.len() as u64 + MIB, "{counted:?}");
}

/// A little-endian TIFF of grey: its tags, each of a type and with values, and then more bytes.
fn tiff(tags: &[(u16, u16, Vec<u8>)], behind: &[u8]) -> Vec<u8> {
    let len_of = |kind: u16| match kind {
        3 => 2,
        4 => 4,
        _ => 1,
    };
    let mut file = b"II\x2a\0\x08\0\0\0".to_vec();
    file.extend(u16::try_from(tags.len()).unwrap().to_le_bytes());
    let mut at = 8 + 2 + 12 * tags.len() + 4;
    let mut values = Vec::new();
    for (tag, kind, value) in tags {
        file.extend(tag.to_le_bytes());
        file.extend(kind.to_le_bytes());
        file.extend(u32::try_from(value.len() / len_of(*kind)).unwrap().to_le_bytes());
        if value.len() <= 4 {
            file.extend([value.as_slice(), &[0; 4][value.len()..]].concat());
        } else {
            file.extend(u32::try_from(at).unwrap().to_le_bytes());
            values.extend_from_slice(value);
            at += value.len();
        }
    }
    file.extend([0; 4]);
    file.extend(values);
    file.extend_from_slice(behind);
    file
}

/// Offsets of one byte took a hundred: 8 as numbers, 48 with what they are the place of, the rest when
/// they were collected and sorted.
#[test]
fn a_million_strips_take_a_few_bytes_each() {
    let short = |value: u16| value.to_le_bytes().to_vec();
    let grey = |height, rows, offsets| {
        [
            (256, 3, short(1)),
            (257, 3, short(height)),
            (258, 3, short(8)),
            (259, 3, short(1)),
            (262, 3, short(1)),
            (273, 1, offsets),
            (278, 3, short(rows)),
        ]
    };
    // Strips are read in the order of their places, those at one place in the order of the list.
    let n = 1 << 20;
    let by_turns = |i: usize| if i.is_multiple_of(4) { 3 } else { [8, 7, 6][i % 3] };
    let mut offsets: Vec<u8> = (0..n).map(by_turns).collect();
    offsets[5] = 11;
    let file = tiff(&grey(2, 1, offsets), &[]);
    let (image, counted) = decoded(&file);
    // The last to be read of the upper row is at byte 8, the only one at byte 11 is of the lower.
    assert_eq!(image.unwrap().pixels(), [[file[8]; 3], [file[11]; 3]].concat());
    assert!(counted.bytes_max < 9 * file.len() as u64, "{counted:?}");
    // Those of a large strip are too much work, and that is found out without a list of them.
    let file = tiff(&grey(20_000, 19_999, vec![8; n]), &[0; 20_000]);
    let (image, counted) = decoded(&file);
    let fault = image.unwrap_err().to_string();
    assert!(counted.bytes_max < MIB, "{fault}: {counted:?}");
}

/// Samples' depths, one for each of a million samples that no pixel has.
#[test]
fn tags_take_no_memory_for_what_nobody_reads() {
    let short = |value: u16| value.to_le_bytes().to_vec();
    let n = 1 << 20;
    let tags = [
        (256, 3, short(1)),
        (257, 3, short(1)),
        (258, 1, vec![8; n]),
        (259, 3, short(1)),
        (262, 3, short(1)),
        (273, 1, vec![8]),
        (278, 3, short(1)),
        (339, 1, vec![1; n]),
    ];
    let file = tiff(&tags, &[]);
    let (image, counted) = decoded(&file);
    assert_eq!(image.unwrap().pixels(), [file[8]; 3]);
    assert!(counted.bytes_max < MIB, "{counted:?}");
}

/// A chunk of a PNG.
fn chunk(kind: &[u8; 4], body: &[u8], file: &mut Vec<u8>) {
    file.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    file.extend_from_slice(kind);
    file.extend_from_slice(body);
    let mut sum = !0_u32;
    for byte in kind.iter().chain(body) {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = sum >> 1 ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    file.extend((!sum).to_be_bytes());
}

/// A grey PNG of a pixel, with so many packed texts of no letter.
fn png(n_texts: usize) -> Vec<u8> {
    // The key, its end, the method, and the stream.
    const TEXT: [u8; 11] = [b'k', 0, 0, 0x78, 0x9c, 3, 0, 0, 0, 0, 1];
    // A stored block of a row: its filter and its pixel.
    const DATA: [u8; 13] = [0x78, 1, 1, 2, 0, 0xfd, 0xff, 0, 0x55, 0, 0x57, 0, 0x56];
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(b"IHDR", &[0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0], &mut file);
    (0..n_texts).for_each(|_| chunk(b"zTXt", &TEXT, &mut file));
    chunk(b"IDAT", &DATA, &mut file);
    chunk(b"IEND", &[], &mut file);
    file
}

/// Each of them took a buffer for the longest text that there may be.
#[test]
fn packed_texts_share_their_memory() {
    let (image, counted) = decoded(&png(2000));
    assert_eq!(image.unwrap().pixels(), [0x55; 3]);
    // Except for the tables of each one's codes.
    assert!(counted.bytes_total < 2000 * MIB / 32, "{counted:?}");
}

/// The work for each is that of a kilobyte, of which there may be 64 million in all.
#[test]
fn packed_texts_are_not_without_number() {
    let (image, _) = decoded(&png(1 << 16));
    assert_eq!(image.unwrap().pixels(), [0x55; 3]);
    let (image, _) = decoded(&png((1 << 16) + 1));
    assert!(
        image
            .unwrap_err()
            .to_string()
            .contains("its texts or profiles are too long or too many")
    );
}

/// Fifteen buffers of up to a quarter of it each were kept.
#[test]
fn a_worker_keeps_no_more_than_its_part() {
    // Three components of 1024 x 1024 samples in several scans, which bring nothing.
    let mut file = b"\xff\xd8\xff\xdb\0\x43\0".to_vec();
    file.extend([1; 64]);
    file.extend([0xff, 0xc2, 0, 17, 8, 4, 0, 4, 0, 3]);
    file.extend([[1, 0x11, 0], [2, 0x11, 0], [3, 0x11, 0]].concat());
    // One code of a bit: of DC for zero, of AC for the end of 2^14 blocks and more.
    for [class, symbol] in [[0x00, 0], [0x10, 0xe0]] {
        file.extend([0xff, 0xc4, 0, 20, class, 1]);
        file.extend([0; 15]);
        file.push(symbol);
    }
    file.extend([0xff, 0xda, 0, 12, 3, 1, 0, 2, 0, 3, 0, 0, 0, 0]);
    file.extend([0; 3 * 128 * 128 / 8]);
    for component in 1..=3 {
        file.extend([0xff, 0xda, 0, 8, 1, component, 0, 1, 63, 0, 0, 0]);
    }
    file.extend([0xff, 0xd9]);
    let recipe = r#"{
        "version": 1, "name": "some", "numerics": "exact",
        "ops": [
            {"op": "decode"},
            {"op": "random_horizontal_flip", "p": 1.0},
            {"op": "random_resized_crop", "size": 64}
        ]
    }"#;
    let recipe = Recipe::from_json(recipe).unwrap();
    let views = recipe.views(RecordShape::Image).unwrap();
    let part = 12 * MIB + MIB / 2;
    let room = DecodeRoom { together_bytes: part, ..DecodeRoom::default() };
    let pipeline = Pipeline::new(&recipe, views).with_decode_room(room);
    let mut sample = vec![0; pipeline.sample_bytes()];
    let mut scratch = Scratch::default();
    let key = SampleKey { seed: 9, epoch: EpochIdx(0), sample: SampleId(0) };
    let record = Record::new(&file, Encoding::Image);
    let counted = allocation_counter::measure(|| {
        pipeline.run(&mut scratch, key, record, &mut sample).unwrap();
    });
    assert!(sample.iter().all(|value| *value == 128));
    // Samples, coefficients, the image and its mirror image.
    assert!(counted.bytes_max > 15 * MIB, "{counted:?}");
    assert!(counted.bytes_current < part.cast_signed(), "{counted:?}");
}

/// A lossless WebP of one pixel, which has the last of 2^16 groups of codes.
#[test]
fn codes_of_no_pixel_take_no_memory() {
    let (mut bytes, mut n_bits) = (Vec::new(), 0);
    let mut put = |number: u64, n: u32| {
        for bit in (0..n).map(|i| number >> i & 1) {
            if n_bits % 8 == 0 {
                bytes.push(0_u8);
            }
            *bytes.last_mut().unwrap() |= u8::try_from(bit << (n_bits % 8)).unwrap();
            n_bits += 1;
        }
    };
    // The mark; sides of 1; no alpha, version 0; no transform, no cache; groups for squares of 4.
    put(0x2f, 8);
    put(0, 14 + 14 + 1 + 3);
    put(0, 1 + 1);
    put(1, 1);
    put(0, 3);
    // The image of groups, without a cache: codes of one symbol of 8 bits. Green and red are the number.
    put(0, 1);
    for symbol in [0xff, 0xff, 0, 0, 0] {
        put(0b101, 3);
        put(symbol, 8);
    }
    // Codes of one symbol of a bit.
    for _ in 0..5 << 16 {
        put(0b0001, 4);
    }
    put(0, 64);
    let len = |n: usize| u32::try_from(n).unwrap().to_le_bytes();
    let mut file = b"RIFF".to_vec();
    file.extend(len(bytes.len().next_multiple_of(2) + 12));
    file.extend(b"WEBPVP8L");
    file.extend(len(bytes.len()));
    file.extend(&bytes);
    file.extend(vec![0; bytes.len() % 2]);
    let (image, counted) = decoded(&file);
    assert_eq!(image.unwrap().pixels(), [0; 3]);
    assert!(counted.bytes_max < 2 * MIB, "{counted:?}");
}

/// Each number took a text of its own.
#[test]
fn numbers_of_a_text_take_no_memory() {
    let mut file = b"P2 256 256 255\n".to_vec();
    file.extend(b"7 1_0 255 ".repeat(1 << 15));
    let (image, counted) = decoded(&file);
    assert_eq!(image.unwrap().pixels()[..9], [7, 7, 7, 10, 10, 10, 255, 255, 255]);
    assert!(counted.count_total < 100, "{counted:?}");
}

/// Each strip took a decoder, with its tables.
#[test]
fn strips_of_jpeg_share_a_decoder() {
    let n = 500_u16;
    let mut strip = jpeg_head(0xc0, None);
    strip.extend([0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0, 0x3f, 0xff, 0xd9]);
    let short = |value: u16| value.to_le_bytes().to_vec();
    let all = |value: u16| value.to_le_bytes().repeat(n.into());
    let tags = |at: u16| {
        [
            (256, 3, short(8)),
            (257, 3, short(8 * n)),
            (258, 3, short(8)),
            (259, 3, short(7)),
            (262, 3, short(1)),
            (273, 3, all(at)),
            (277, 3, short(1)),
            (278, 3, short(8)),
            (279, 3, all(u16::try_from(strip.len()).unwrap())),
        ]
    };
    let at = u16::try_from(tiff(&tags(0), &[]).len()).unwrap();
    let file = tiff(&tags(at), &strip);
    let (image, counted) = decoded(&file);
    assert!(image.unwrap().pixels().iter().all(|value| *value == 128));
    assert!(counted.bytes_total < u64::from(n) * 2048, "{counted:?}");
}
