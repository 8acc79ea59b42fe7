//! Hostile bytes are refused, never a panic; and laws that hold for every image.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::draw::CropBox;
use bothends_core::recipe::{Recipe, RecordShape, Size};
use bothends_core::sample::{Encoding, Record, SampleKey};
use bothends_ops::decode::{ImageDecoder, decode};
use bothends_ops::image::Image;
use bothends_ops::kernels::Level;
use bothends_ops::resize::Resizer;
use bothends_ops::{OpsError, Pipeline, SampleFault, Scratch, flip};
use proptest::collection::vec;
use proptest::prelude::*;

/// Every file of tests/bad/jpeg, and a part of what is said about it.
const BAD_JPEGS: [(&str, &str); 15] = [
    ("claims-65500x65500.jpg", "too large"),
    ("claims-65535x65535.jpg", "too large"),
    ("empty.jpg", "not a JPEG, PNG,"),
    ("header-only.jpg", "damaged: it ends before its end of image"),
    ("hierarchical.jpg", "hierarchical JPEG images are not supported"),
    ("lossless.jpg", "lossless JPEG images are not supported"),
    ("no-end-of-image.jpg", "damaged: it ends in the middle"),
    ("no-quantisation-table.jpg", "damaged: quantisation table 0"),
    ("no-such-huffman-table.jpg", "damaged: Huffman table 3"),
    ("only-start-of-image.jpg", "damaged: it ends before its end of image"),
    ("truncated.jpg", "damaged: it ends in the middle"),
    ("twelve-bit.jpg", "12-bit JPEG images are not supported"),
    ("two-components.jpg", "two-component JPEG images are not"),
    ("zero-height.jpg", "no pixels"),
    ("zero-width.jpg", "no pixels"),
];

/// Every file of tests/bad/image, and a part of what is said about it.
const BAD_IMAGES: [(&str, &str); 33] = [
    ("bmp-claims-65500x65500.bmp", "too large"),
    ("bmp-cut-short.bmp", "BMP image is damaged: it ends before its last row"),
    ("bmp-jpeg.bmp", "JPEG- or PNG-compressed BMP images are not supported"),
    ("bmp-runs-cut-short.bmp", "damaged: it ends before its last row"),
    ("bmp-unknown-header.bmp", "damaged: a header of an unknown length"),
    ("gif-claims-65535x65535.gif", "too large"),
    ("gif-cut-short.gif", "GIF image is damaged: it ends before the end"),
    ("gif-no-image.gif", "damaged: it has no image"),
    ("gif-zero-width.gif", "damaged: its image has no pixels"),
    ("png-claims-65500x65500.png", "too large"),
    ("png-header-only.png", "PNG image is damaged: what follows is not a chunk"),
    ("png-no-data.png", "damaged: it has no image data"),
    ("png-unknown-depth.png", "damaged: an invalid colour type or depth"),
    ("png-wrong-header-crc.png", "damaged: a chunk has a wrong checksum"),
    ("pnm-claims-65500x65500.ppm", "too large"),
    ("pnm-long-word.ppm", "PNM image is damaged: a word of its header"),
    ("pnm-negative.pgm", "damaged: a number of its header is negative"),
    ("pnm-zero-width.ppm", "no pixels"),
    ("tif-claims-65500x65500.tif", "too large"),
    ("tif-cut-short.tif", "TIFF image is damaged: it ends before its last row"),
    ("tif-jpeg-of-another-size.tif", "a strip or tile has a JPEG of a different size"),
    ("tif-jpeg-progressive.tif", "progressive JPEG-compressed TIFF images are not"),
    // Three thousand strips, whose tables of 60 kB are read again for each.
    ("tif-jpeg-tables-for-every-strip.tif", "overlap too often"),
    ("tif-jpeg.tif", "the TIFF image is damaged: its JPEG tables or strips"),
    // Its tiles alone are large enough to wait for memory.
    ("tif-no-dimensions.tif", "damaged: its dimensions are missing"),
    ("tif-no-rows-per-strip.tif", "damaged: its strips have no rows"),
    ("tif-no-tags.tif", "damaged: its dimensions are missing"),
    ("tif-wrong-lzw.tif", "damaged: its LZW codes are wrong"),
    ("tif-zstd.tif", "Zstandard-compressed TIFF images are not supported"),
    ("webp-cut-short.webp", "WebP image is damaged: it ends before the length"),
    ("webp-empty.webp", "damaged: a chunk that does not belong"),
    ("webp-inter-frame.webp", "damaged: the head of its image is wrong"),
    ("webp-lossless-claims-16384x16384.webp", "too large"),
];

/// Those that are decoded all the same, as Pillow does, and what is said to be wrong with them.
const ODD_JPEGS: [(&str, Option<&str>); 3] = [
    ("arithmetic.jpg", None),
    ("entropy-data-all-ones.jpg", Some("a Huffman code that is not in its table")),
    ("stray-bytes-before-end.jpg", Some("stray bytes between its segments")),
];

#[test]
fn every_bad_jpeg_is_refused_in_words() {
    refused_in_words("tests/bad/jpeg", &BAD_JPEGS);
}

#[test]
fn every_bad_image_is_refused_in_words() {
    refused_in_words("tests/bad/image", &BAD_IMAGES);
}

fn refused_in_words(folder: &str, files: &[(&str, &str)]) {
    let folder = in_repository(folder);
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let odd =
        ODD_JPEGS.iter().filter(|_| folder.ends_with("jpeg")).map(|(name, _)| *name);
    let mut expected: Vec<&str> =
        files.iter().map(|(name, _)| *name).chain(odd).collect();
    expected.sort_unstable();
    assert_eq!(names, expected, "one line per file");
    for (name, words) in files {
        let outcome = decoded(&std::fs::read(folder.join(name)).unwrap());
        let Err(fault) = outcome else { panic!("{name} was accepted") };
        assert!(matches!(fault, OpsError::BadSample(_)), "{name}: {fault:?}");
        assert!(fault.to_string().contains(words), "{name}: {fault}");
    }
}

/// A recipe looks at what a header says before it is decoded.
#[test]
fn every_bad_file_is_a_bad_sample_of_a_recipe() {
    let recipe = Recipe::builtin("imagenet-train").unwrap();
    let pipeline = Pipeline::new(&recipe, recipe.views(RecordShape::Image).unwrap());
    let (mut scratch, mut out) = (Scratch::default(), vec![0; pipeline.sample_bytes()]);
    let key = SampleKey { seed: 0, epoch: EpochIdx(0), sample: SampleId(0) };
    let folders = [("tests/bad/jpeg", &BAD_JPEGS[..]), ("tests/bad/image", &BAD_IMAGES)];
    for (folder, files) in folders {
        for (name, words) in files {
            let file = std::fs::read(in_repository(folder).join(name)).unwrap();
            let record = Record::new(&file, Encoding::Image);
            let fault = pipeline.run(&mut scratch, key, record, &mut out).unwrap_err();
            assert!(matches!(fault, OpsError::BadSample(_)), "{name}: {fault:?}");
            assert!(fault.to_string().contains(words), "{name}: {fault}");
        }
    }
}

#[test]
fn odd_jpegs_are_decoded_and_what_is_wrong_is_told() {
    for (name, what) in ODD_JPEGS {
        let file = std::fs::read(in_repository("tests/bad/jpeg").join(name)).unwrap();
        let mut decoder = ImageDecoder::default();
        let record = Record::new(&file, Encoding::Image);
        decoder.decode(record, &mut Image::default()).unwrap();
        assert_eq!(decoder.damage().map(|damage| damage.what), what, "{name}");
    }
}

/// A PNG of these chunks.
fn png(chunks: &[(&[u8; 4], Vec<u8>)]) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (name, body) in chunks {
        let named = [&name[..], body].concat();
        file.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
        file.extend(&named);
        file.extend(crc32fast::hash(&named).to_be_bytes());
    }
    file
}

/// The header of 8 bits of grey, this wide and high.
fn png_header(side: u32) -> (&'static [u8; 4], Vec<u8>) {
    let sides = [side.to_be_bytes(), side.to_be_bytes()].concat();
    (b"IHDR", [&sides[..], &[8, 0, 0, 0, 0]].concat())
}

/// A later header may make the image smaller than its frame, or larger than what there is room for.
#[test]
fn a_png_with_headers_of_two_sizes_is_refused() {
    let rows = fdeflate::compress_to_vec(&[0; 101 * 100]);
    let frame: Vec<u8> =
        [0, 100, 100, 0, 0].iter().flat_map(|n: &u32| n.to_be_bytes()).collect();
    let frame = (b"fcTL", [&frame[..], &[0; 6]].concat());
    let animation = (b"acTL", vec![0, 0, 0, 1, 0, 0, 0, 0]);
    let data = (b"IDAT", rows);
    let end = (b"IEND", Vec::new());
    for sides in [&[10, 100][..], &[100, 10], &[10, 100, 10]] {
        let [first, .., last] = sides else { panic!("two headers") };
        let middle = sides.get(1).filter(|_| sides.len() == 3);
        let mut chunks = vec![png_header(*first)];
        chunks.extend(middle.map(|side| png_header(*side)));
        chunks.extend([animation.clone(), frame.clone(), png_header(*last)]);
        chunks.extend([data.clone(), end.clone()]);
        let fault = decoded(&png(&chunks)).unwrap_err();
        assert!(matches!(fault, OpsError::BadSample(_)), "{sides:?}: {fault:?}");
    }
}

/// A little-endian TIFF with these tags of 32-bit numbers, whose values follow the directory.
fn tiff(tags: &[(u16, Vec<u32>)]) -> Vec<u8> {
    let mut file = b"II\x2a\0\x08\0\0\0".to_vec();
    file.extend(u16::try_from(tags.len()).unwrap().to_le_bytes());
    let mut place = u32::try_from(10 + 12 * tags.len() + 4).unwrap();
    let mut values = Vec::new();
    for (tag, numbers) in tags {
        file.extend(tag.to_le_bytes());
        file.extend(4_u16.to_le_bytes());
        file.extend(u32::try_from(numbers.len()).unwrap().to_le_bytes());
        if let [number] = numbers[..] {
            file.extend(number.to_le_bytes());
        } else {
            file.extend(place.to_le_bytes());
            place += u32::try_from(4 * numbers.len()).unwrap();
            values.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        }
    }
    file.extend([0; 4]);
    file.extend(values);
    file
}

/// Strips may lie at the same place, and a tile may be larger than any image: neither time nor memory is
/// that of what a file claims.
#[test]
fn a_tiff_of_overlapping_strips_or_of_a_huge_tile_is_refused() {
    let sides = |side: u32| [(256, vec![side]), (257, vec![side]), (258, vec![8])];
    let grey = [(259, vec![1]), (262, vec![1])];
    let strips = [(273, vec![0; 4000]), (278, vec![999]), (279, vec![0; 4000])];
    let mut overlapping = tiff(&[&sides(1000)[..], &grey, &strips].concat());
    overlapping.resize(1 << 20, 0);
    let fault = decoded(&overlapping).unwrap_err().to_string();
    assert!(fault.contains("overlap too often"), "{fault}");
    let grey = [(259, vec![8]), (262, vec![1])];
    let tile = [(322, vec![60_000]), (323, vec![60_000]), (324, vec![8]), (325, vec![8])];
    let huge = tiff(&[&sides(1)[..], &grey, &tile].concat());
    let fault = decoded(&huge).unwrap_err();
    assert!(
        matches!(fault, OpsError::BadSample(SampleFault::TooMuchMemory { .. })),
        "{fault:?}"
    );
}

/// A worker goes on after any sample, good or bad, and every file is read as if it were the
/// first: nothing of the library's state (tables, open headers) outlives a file.
#[test]
fn a_file_is_read_alike_after_any_other() {
    let folder = in_repository("tests/bad/jpeg");
    let bad =
        BAD_JPEGS.map(|(name, _)| (name, std::fs::read(folder.join(name)).unwrap()));
    let good = ["optimised.jpg", "no-huffman-tables.jpg", "422-progressive.jpg"]
        .map(|name| (name, fixture(name)));
    let files: Vec<_> = bad.into_iter().chain(good).collect();
    let alone: Vec<_> = files.iter().map(|(_, file)| decoded(file).ok()).collect();
    for (before, first) in &files {
        for ((name, file), alone) in files.iter().zip(&alone) {
            let mut image = Image::default();
            let _ = decode(Record::new(first, Encoding::Image), &mut image);
            let record = Record::new(file, Encoding::Image);
            let after = decode(record, &mut image).ok().map(|()| &image);
            assert_eq!(after, alone.as_ref(), "{name} after {before}");
        }
    }
}

/// What decoding takes is known from the header, and refused before it is taken: coefficients of
/// a JPEG that may come in several scans, samples of 16 bits with alpha.
#[test]
fn an_image_that_takes_too_much_memory_is_refused_by_its_header() {
    let sides = [13_377_u16.to_be_bytes(), 13_377_u16.to_be_bytes()].concat();
    for name in ["444-48x64.jpg", "444-q75.jpg"] {
        let mut file = fixture(name);
        let is_frame = |two: &[u8]| two == [0xff, 0xc0] || two == [0xff, 0xc2];
        let frame = file.windows(2).position(is_frame).unwrap();
        file[frame + 5..frame + 9].copy_from_slice(&sides);
        let line = decoded(&file).unwrap_err().to_string();
        assert_eq!(
            line,
            "an image of 13377x13377 pixels may need 1537 MiB to be decoded, and at most 1024 \
             MiB are accepted; store it with fewer pixels",
            "{name}"
        );
    }
    // A TIFF, whose image may have to be turned.
    let mut file = in_formats("RGB-raw.tif");
    for at in [18, 30] {
        file[at..at + 4].copy_from_slice(&[0xc8, 0x32, 0, 0]);
    }
    let line = decoded(&file).unwrap_err().to_string();
    assert!(line.contains("13000x13000 pixels may need 2417 MiB"), "{line}");
}

/// What Pillow makes of a PNG that is cut short: nothing, until all image data is there.

#[test]
fn a_truncated_png_is_refused_anywhere() {
    for name in ["type2-8bit.png", "type3-4bit-interlaced.png"] {
        let file = fixture(name);
        // The last 12 bytes are the empty end chunk, and 4 before it a checksum that does not count; the
        // 4 before that, the stream's own, are not needed once the last row is there.
        for end in 0..file.len() - 20 {
            let outcome = decoded(&file[..end]);
            assert!(
                matches!(outcome, Err(OpsError::BadSample(_))),
                "{name}: the first {end} of {} bytes were accepted",
                file.len()
            );
        }
    }
}

#[test]
fn a_png_that_claims_too_much_is_refused_before_memory_is_taken() {
    let mut file = fixture("one-pixel.png");
    file[16..24].copy_from_slice(&[0, 0, 0xff, 0xdc, 0, 0, 0xff, 0xdc]);
    let crc = crc32_of_header(&file);
    file[29..33].copy_from_slice(&crc.to_be_bytes());
    let Err(OpsError::BadSample(fault)) = decoded(&file) else { panic!("accepted") };
    assert_eq!(fault, SampleFault::TooLarge { height: 65_500, width: 65_500 });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_bytes_never_panic(head in 0..HEADS.len(), tail in vec(any::<u8>(), 0..400)) {
        // A plain bitmap may come out of anything.
        let _ = decoded(&[HEADS[head], &tail].concat());
    }

    /// Bytes replaced, removed and repeated anywhere. What is still accepted is an image.
    #[test]
    fn mutated_files_never_panic(
        file in 0..FILES.len(),
        edits in vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..8),
    ) {
        let mut bytes = FILES[file].clone();
        for (at, value, edit) in edits {
            let at = at.index(bytes.len());
            match edit {
                0 => bytes[at] = value,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, value),
            }
        }
        if let Ok(image) = decoded(&bytes) {
            prop_assert_eq!(image.channels(), 3);
            prop_assert_eq!(image.pixels().len(), image.height() * image.width() * 3);
        }
    }

    #[test]
    fn a_constant_image_stays_constant(
        value in any::<u8>(),
        channels in 1..5u32,
        from in size(60),
        to in size(60),
    ) {
        let mut image = Image::default();
        image.reshape(from, channels).fill(value);
        let resized = resize(&image, to);
        prop_assert_eq!(resized.size(), to);
        prop_assert!(resized.pixels().iter().all(|&v| v == value));
    }

    /// A triangle's weights are nowhere negative, so no output leaves its inputs' range.
    #[test]
    fn resize_invents_no_new_extremes(image in image(40), to in size(40)) {
        let range = |image: &Image| {
            (*image.pixels().iter().min().unwrap(), *image.pixels().iter().max().unwrap())
        };
        let ((low, high), (new_low, new_high)) = (range(&image), range(&resize(&image, to)));
        prop_assert!(low <= new_low && new_high <= high);
    }

    #[test]
    fn resizing_to_the_same_size_changes_nothing(image in image(30)) {
        prop_assert_eq!(resize(&image, image.size()), image);
    }

    /// Taps end at the crop: a view of a large image is resized as a copy of it would be.
    #[test]
    fn resize_never_looks_outside_the_crop(
        image in image(40),
        [top, left, height, width] in [0..1000u32, 0..1000, 0..1000, 0..1000],
        to in size(40),
    ) {
        let Size { height: rows, width: columns } = image.size();
        let (top, left) = (top % rows, left % columns);
        let (height, width) = (height % (rows - top) + 1, width % (columns - left) + 1);
        let view = image.view().crop(CropBox { top, left, height, width }).unwrap();
        let (mut copy, mut resized) = (Image::default(), Image::default());
        view.copy_to(&mut copy);
        Resizer::default().resize(view, to, &mut resized);
        prop_assert_eq!(resized, resize(&copy, to));
    }

    #[test]
    fn flipping_twice_is_not_flipping(image in image(20)) {
        let mut twice = image.clone();
        flip::vertical(&mut twice);
        flip::vertical(&mut twice);
        prop_assert_eq!(&twice, &image);
        let (mut once, mut twice) = (Image::default(), Image::default());
        flip::horizontal(Level::of_process(), image.view(), &mut once);
        flip::horizontal(Level::of_process(), once.view(), &mut twice);
        prop_assert_eq!(&twice, &image);
    }
}

/// First bytes of every format.
const HEADS: [&[u8]; 9] = [
    b"",
    b"\xff\xd8\xff",
    b"\x89PNG\r\n\x1a\n",
    b"BM",
    b"P5 ",
    b"GIF89a",
    b"RIFF\0\x01\0\0WEBPVP8 ",
    b"II\x2a\0\x08\0\0\0",
    b"MM\0\x2a\0\0\0\x08",
];

/// One file of each kind, as seeds for mutation.
static FILES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let names = [
        "420-31x18.jpg",
        "422-progressive.jpg",
        "grey-8x8.jpg",
        "cmyk-7x9.jpg",
        "ycck.jpg",
        "restart-blocks.jpg",
        "type0-1bit.png",
        "type2-16bit-interlaced.png",
        "type6-8bit.png",
        "palette-with-trns.png",
    ];
    let others = [
        "rle8.bmp",
        "rgba.bmp",
        "local.gif",
        "p3-300.ppm",
        "p4.ppm",
        "lossy-75.webp",
        "animated.webp",
        "lossless.webp",
        "RGB-lzw.tif",
        "L-predicted.tif",
        "strips-packbits.tif",
        "big.tif",
    ];
    names.map(fixture).into_iter().chain(others.map(in_formats)).collect()
});

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(in_repository("tests/fixtures/ops").join(name)).unwrap()
}

fn in_formats(name: &str) -> Vec<u8> {
    std::fs::read(in_repository("tests/fixtures/formats").join(name)).unwrap()
}

fn decoded(bytes: &[u8]) -> Result<Image, OpsError> {
    let mut out = Image::default();
    decode(Record::new(bytes, Encoding::Image), &mut out)?;
    Ok(out)
}

fn resize(image: &Image, to: Size) -> Image {
    let mut out = Image::default();
    Resizer::default().resize(image.view(), to, &mut out);
    out
}

fn size(most: u32) -> impl Strategy<Value = Size> {
    (1..=most, 1..=most).prop_map(|(height, width)| Size { height, width })
}

/// An image of any content with sides up to `most`.
fn image(most: u32) -> impl Strategy<Value = Image> {
    (size(most), 1..5u32).prop_flat_map(|(size, channels)| {
        let len = (size.height * size.width * channels) as usize;
        vec(any::<u8>(), len).prop_map(move |bytes| {
            let mut image = Image::default();
            image.reshape(size, channels).copy_from_slice(&bytes);
            image
        })
    })
}

/// CRC-32 over kind and body of a PNG's first chunk (PNG §5.5), bit by bit.
fn crc32_of_header(file: &[u8]) -> u32 {
    let crc = file[12..29].iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    });
    !crc
}
