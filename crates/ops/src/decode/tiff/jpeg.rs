//! JPEG-compressed strips and tiles (TIFF Technical Note 2), as libtiff reads them for Pillow.
//!
//! Tables lie in a tag of their own, and the colours are those of the directory, not of markers. So a strip
//! is made into a file of its own, with the marker that says the same, which the paths for JPEG take: the
//! fast one, or the one with libjpeg's pixels if its data are damaged. What has another head is refused, and
//! so is a strip that is arithmetic-coded or progressive.

use std::cell::{Cell, RefCell};

use bothends_core::sample::{Encoding, Record};
use memchr::memmem;

use super::super::ImageDecoder;
use super::super::picture::Picture;
use super::directory::{Directory, Numbers, damaged, tag, unsupported};
use crate::error::SampleFault;
use crate::image::Image;
use crate::jpeg::file::frame::{Frame, Process};
use crate::jpeg::{BlocksLeft, Chroma, Decoder, Region};

const SOI: [u8; 2] = [0xff, 0xd8];
const EOI: [u8; 2] = [0xff, 0xd9];

/// How all strips or tiles of an image are to be decoded.
#[derive(Debug)]
pub(super) struct Jpeg<'a> {
    tables: &'a [u8],
    /// What stands in for the marker that says what the colours are; none for grey.
    colours: &'static [u8],
    n_components: usize,
    /// The factors of the first component at most; nothing where the file does not say.
    most_factors: Option<[usize; 2]>,
    /// What the scans of all strips or tiles may still visit: each else would have the work of a whole file.
    left: Cell<BlocksLeft>,
    /// Memory for strips and tiles, one after the other.
    kept: RefCell<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    decoder: ImageDecoder,
    image: Image,
    file: Vec<u8>,
}

/// Width and height that a strip or tile must have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) width: usize,
    pub(super) height: usize,
    /// The last strip is not always cut.
    pub(super) most_height: usize,
}

impl<'a> Jpeg<'a> {
    pub(super) fn of(directory: &Directory<'a>) -> Result<Self, SampleFault> {
        // Adobe's marker, with and without a transform to YCbCr (its version is 100).
        const RGB: &[u8] = b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\0";
        const YCBCR: &[u8] = b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\x01";
        let one = |tag, default| directory.one(tag).unwrap_or(default);
        let bits = directory.all(tag::BITS).unwrap_or(Numbers::NONE);
        if bits.iter().any(|bits| bits != 8) || one(tag::SAMPLE_FORMAT, 1) != 1 {
            return Err(unsupported("unusually deep JPEG-compressed"));
        }
        let n_samples = one(tag::SAMPLES, 1);
        let is_plain = one(tag::PLANAR, 1) == 1
            && one(tag::FILL_ORDER, 1) == 1
            && directory.all(tag::EXTRA_SAMPLES).is_none();
        let (colours, n_components): (&[u8], usize) =
            match (one(tag::PHOTOMETRIC, 0), n_samples) {
                _ if !is_plain => {
                    return Err(unsupported("unusually stored JPEG-compressed"));
                }
                (1, 1) => (&[], 1),
                (2, 3) => (RGB, 3),
                (6, 3) => (YCBCR, 3),
                // Adobe's four inks are not turned into others, as libtiff leaves them.
                (5, 4) => (RGB, 4),
                _ => return Err(unsupported("unusually coloured JPEG-compressed")),
            };
        let factors = directory.all(tag::SUBSAMPLING);
        let factors = factors.and_then(|it| it.get(0).zip(it.get(1)));
        let most_factors = match (one(tag::PHOTOMETRIC, 0), factors) {
            (6, Some((h, v))) => {
                Some([h, v].map(|factor| usize::try_from(factor).unwrap_or(usize::MAX)))
            }
            (6, None) => None,
            (_, _) => Some([1, 1]),
        };
        let tables = directory.jpeg_tables;
        let (left, kept) = (Cell::default(), RefCell::default());
        Ok(Self { tables, colours, n_components, most_factors, left, kept })
    }

    /// Whether strips and tiles are decoded to four inks, and not to RGB.
    pub(super) fn is_inks(&self) -> bool {
        self.n_components == 4
    }

    /// Bytes of the tables, which are read again for each strip or tile.
    pub(super) fn tables_bytes(&self) -> usize {
        self.tables.len()
    }

    /// Decodes a strip or tile into `out`, as RGB, or the four inks as they are.
    pub(super) fn unpack(
        &self,
        strip: &[u8],
        expected: Expected,
        out: &mut [u8],
    ) -> Result<(), SampleFault> {
        let Kept { decoder, image, file } = &mut *self.kept.borrow_mut();
        file.clear();
        file.extend_from_slice(&SOI);
        file.extend_from_slice(self.colours);
        if !self.tables.is_empty() {
            copy_segments(self.tables, file)?;
        }
        let rest = copy_segments(strip, file)?;
        file.extend_from_slice(rest);
        // libtiff hands this to libjpeg when a strip has ended.
        file.extend_from_slice(&EOI);
        let record = Record::new(file, Encoding::Image);
        let picture = Picture::open(record).map_err(in_strip)?;
        let picture = picture.ok_or_else(|| damaged("a strip or tile is not a JPEG"))?;
        self.check(picture.frame(), expected)?;
        if self.n_components == 4 {
            return inks(&mut decoder.jpeg, picture, expected, out);
        }
        let decoded = decoder.decode_picture(picture, image);
        if let Err(fault) = decoded {
            let mut left = self.left.get();
            let to = (&mut left, &mut *image);
            let recovered = decoder.recover_within(record, fault.clone(), to);
            self.left.set(left);
            if recovered.is_err() {
                let cut = self.cut(file, rest).ok_or_else(|| in_strip(fault.clone()))?;
                let record = Record::new(&cut, Encoding::Image);
                let to = (&mut left, &mut *image);
                let recovered = decoder.recover_within(record, fault, to);
                self.left.set(left);
                recovered.map_err(in_strip)?;
            }
        }
        let rows = image.pixels().get(..out.len());
        let rows = rows.ok_or_else(|| damaged("a strip or tile has too few rows"));
        out.copy_from_slice(rows?);
        Ok(())
    }

    /// The file up to the first marker in its only scan, whose header `scan` begins with: libtiff has all
    /// rows then, and does not mind what is wrong with that marker. Restarts would begin the scan again.
    fn cut(&self, file: &[u8], scan: &[u8]) -> Option<Vec<u8>> {
        let header = scan.get(2..4)?.first_chunk().copied()?;
        let data = usize::from(u16::from_be_bytes(header)).saturating_add(2);
        let is_only = usize::from(*scan.get(4)?) == self.n_components;
        let len = scan.len().checked_add(EOI.len())?;
        let head = file.get(..file.len().checked_sub(len)?)?;
        if !is_only || memmem::find(head, b"\xff\xdd").is_some() {
            return None;
        }
        let coded = scan.get(data..)?;
        let n =
            coded.windows(2).position(|it| it[0] == 0xff && !matches!(it[1], 0 | 0xff));
        let mut cut = head.to_vec();
        cut.extend_from_slice(scan.get(..data.checked_add(n?)?)?);
        cut.extend_from_slice(&EOI);
        Some(cut)
    }

    /// As `JPEGPreDecode` of libtiff, but that nothing may be missing.
    fn check(&self, frame: &Frame, expected: Expected) -> Result<(), SampleFault> {
        let (height, width) = (frame.height(), frame.width());
        let heights = expected.height..=expected.most_height.max(expected.height);
        if width != expected.width || !heights.contains(&height) {
            return Err(damaged("a strip or tile has a JPEG of a different size"));
        }
        if frame.process == Process::Progressive {
            return Err(unsupported("progressive JPEG-compressed"));
        }
        let components = frame.components();
        if components.len() != self.n_components {
            return Err(damaged("a strip or tile has a JPEG of other colours"));
        }
        let [h, v] = self.most_factors.unwrap_or([4, 4]);
        let is_beyond = components.first().is_some_and(|it| it.h > h || it.v > v);
        if is_beyond || components.iter().skip(1).any(|it| (it.h, it.v) != (1, 1)) {
            return Err(damaged("a strip or tile has other sampling factors"));
        }
        Ok(())
    }
}

/// Decodes four components of equal size as they are stored.
fn inks(
    decoder: &mut Decoder,
    picture: Picture<'_>,
    expected: Expected,
    out: &mut [u8],
) -> Result<(), SampleFault> {
    let whole = Region::whole(picture.frame().size);
    picture.decode(decoder, &whole, Chroma::AsStored).map_err(in_strip)?;
    let width = expected.width;
    for (y, row) in out.chunks_exact_mut(width.saturating_mul(4)).enumerate() {
        for (i, plane) in decoder.planes().iter().take(4).enumerate() {
            let pixels = row.as_chunks_mut::<4>().0.iter_mut();
            for (pixel, sample) in pixels.zip(plane.row(y, 0..width)) {
                pixel[i] = *sample;
            }
        }
    }
    Ok(())
}

/// Copies the segments of a stream from its start of image to its first scan, or its end, without those
/// of applications and without comments; gives what follows.
fn copy_segments<'a>(
    stream: &'a [u8],
    out: &mut Vec<u8>,
) -> Result<&'a [u8], SampleFault> {
    const WRONG: &str = "its JPEG tables or strips have no segments";
    let mut rest = stream.strip_prefix(&SOI).ok_or(damaged(WRONG))?;
    loop {
        let (&[first, marker], _) = rest.split_first_chunk().ok_or(damaged(WRONG))?;
        match (first, marker) {
            // Fill bytes.
            (0xff, 0xff) => rest = rest.get(1..).unwrap_or_default(),
            // The first scan's header goes with its data.
            (0xff, 0xda | 0xd9) => return Ok(rest),
            (0xff, 0xc0..=0xfe) => {
                let length = rest.get(2..4).and_then(|it| it.first_chunk());
                let length = length.map(|it| usize::from(u16::from_be_bytes(*it)));
                let end = length.map(|length| length.saturating_add(2));
                let segment = end.and_then(|end| rest.split_at_checked(end));
                let (segment, later) = segment.ok_or(damaged(WRONG))?;
                if !matches!(marker, 0xe0..=0xef | 0xfe) {
                    out.extend_from_slice(segment);
                }
                rest = later;
            }
            _ => return Err(damaged(WRONG)),
        }
    }
}

/// What is wrong with a strip or tile.
pub(super) fn in_strip(fault: SampleFault) -> SampleFault {
    if matches!(fault, SampleFault::TooMuchMemory { .. }) {
        fault
    } else if matches!(fault, SampleFault::Unsupported { .. }) {
        unsupported("arithmetic-coded or lossless JPEG-compressed")
    } else {
        damaged("a JPEG-compressed strip or tile is damaged")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A JPEG of 16 x 16 pixels, whose three components each have a scan without a bit.
    fn strip() -> Vec<u8> {
        let mut strip = SOI.to_vec();
        strip.extend([0xff, 0xdb, 0, 67, 0]);
        strip.extend([1; 64]);
        for class in [0x00, 0x10] {
            // One code, of one bit.
            strip.extend([0xff, 0xc4, 0, 20, class, 1]);
            strip.extend([0; 16]);
        }
        strip.extend([0xff, 0xc0, 0, 17, 8, 0, 16, 0, 16, 3]);
        strip.extend((1..=3).flat_map(|id| [id, 0x11, 0]));
        strip.extend((1..=3).flat_map(|id| [0xff, 0xda, 0, 8, 1, id, 0, 0, 63, 0]));
        strip
    }

    /// Strips may lie at the same place, so each of them must not have the work of a whole file.
    #[test]
    fn scans_of_all_strips_count_together() {
        // Those after the first count 4096 at least: a strip takes 8196 blocks.
        let jpeg = Jpeg {
            tables: &[],
            colours: b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\0",
            n_components: 3,
            most_factors: Some([1, 1]),
            left: Cell::new(BlocksLeft::new(2 * 8196)),
            kept: RefCell::default(),
        };
        let expected = Expected { width: 16, height: 16, most_height: 16 };
        let mut out = [0; 16 * 16 * 3];
        for _ in 0..2 {
            jpeg.unpack(&strip(), expected, &mut out).unwrap();
        }
        assert!(jpeg.unpack(&strip(), expected, &mut out).is_err());
    }
}
