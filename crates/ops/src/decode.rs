//! The bytes of a record become an `Image`, completely.
//!
//! Encoded images always become 8-bit RGB, exactly as Pillow's `Image.open(..).convert("RGB")` returns
//! them. EXIF orientation is ignored, as in Pillow and torchvision. Nothing here crops or resizes; if a
//! recipe does, `pipeline/fused.rs` decodes no more than it needs. JPEG is our own (`jpeg.rs`;
//! `picture.rs` is a file or a record of a store). So are the others (`format.rs` lists them), with libraries
//! for inflating, LZW and WebP. Read `geometry.rs` next.

#![deny(
    clippy::arithmetic_side_effects,
    reason = "numbers that a file gives; a release does not check sums in this crate"
)]

mod bmp;
mod bytes;
mod format;
mod gif;
mod inflate;
pub(crate) mod picture;
mod png;
mod pnm;
pub(crate) mod room;
mod samples;
mod tiff;
mod webp;

use bothends_core::recipe::{Size, Truncated};
use bothends_core::sample::{Encoding, Record, RecordPart};

pub(crate) use self::format::Format;
use self::picture::Picture;
use crate::colour;
use crate::error::{OpsError, SampleFault};
use crate::image::{Image, check_size};
use crate::jpeg::{BlocksLeft, Chroma, Decoder, PixelRows, Region};
use crate::kernels::Level;

/// A damage that a record was decoded in spite of, with the pixels that Pillow gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// The format: `JPEG`.
    pub format: &'static str,
    /// What was wrong first, as the reason in a message: `stray bytes between its segments`.
    pub what: &'static str,
}

/// The size of a record's image, and the bytes that decoding it may take at most, as its first
/// bytes say; 0 for what is no image, or where they say nothing: decoding then says what is wrong.
pub(crate) fn need_bytes(
    record: Record<'_>,
    picture: Option<&Picture<'_>>,
) -> (Size, u64) {
    match (picture, record.encoding) {
        (Some(picture), _) => (picture.frame().size, picture.frame().need_bytes()),
        (None, Encoding::Image) => Format::need_bytes(record.bytes),
        (None, Encoding::Planar { .. } | Encoding::Opaque) => {
            (Size { height: 0, width: 0 }, 0)
        }
    }
}

/// What the name of a file with these first bytes ends with, if it is an image of a known format.
#[must_use]
pub fn ending(bytes: &[u8]) -> Option<&'static str> {
    Format::of(bytes).ok().map(Format::ending)
}

/// Whether the slow path may take a record that the fast one found to have `fault`.
pub(crate) fn is_recoverable(record: &Record<'_>, fault: &SampleFault) -> bool {
    record.encoding == Encoding::Image
        && record.part == RecordPart::Whole
        && matches!(
            fault,
            SampleFault::Damaged { format: "JPEG", .. }
                | SampleFault::Unsupported { format: "JPEG", .. }
        )
}

/// Decodes records, one after the other; keeps its memory. Nothing is remembered from one
/// image to the next: the pixels depend on the record alone.
#[derive(Debug, Default)]
pub struct ImageDecoder {
    pub(crate) jpeg: Decoder,
    pub(crate) rows: PixelRows,
    /// What becomes of images whose files end early.
    pub(crate) truncated: Truncated,
    damage: Option<Damage>,
}

impl ImageDecoder {
    /// A decoder that uses the kernels of `level`.
    #[must_use]
    pub fn new(level: Level) -> Self {
        Self { jpeg: Decoder::new(level), ..Self::default() }
    }

    /// The same, with another rule for images whose files end early; by default they are refused.
    #[must_use]
    pub fn with_truncated(self, truncated: Truncated) -> Self {
        Self { truncated, ..self }
    }

    /// What was wrong with the last record, where it was decoded all the same; `None` for one
    /// that was intact, and after an error.
    #[must_use]
    pub fn damage(&self) -> Option<Damage> {
        self.damage
    }

    /// Decodes `record` into `out`: RGB for images, the data set's own channels for planar
    /// records. What `out` holds after a fault does not matter.
    ///
    /// # Errors
    /// [`OpsError::BadSample`] when the bytes are no image, damaged, too large, or of a
    /// refused kind.
    pub fn decode(
        &mut self,
        record: Record<'_>,
        out: &mut Image,
    ) -> Result<(), OpsError> {
        self.damage = None;
        let decoded = Picture::open(record).and_then(|picture| match picture {
            Some(picture) => self.decode_picture(picture, out).map(Some),
            None => Ok(None),
        });
        match decoded {
            Ok(Some(())) => return Ok(()),
            Ok(None) => {}
            Err(fault) => return Ok(self.recover(record, fault, out)?),
        }
        match record.encoding {
            Encoding::Image => Format::of(record.bytes)?.decode(record.bytes, out),
            Encoding::Planar { height, width, channels } => {
                let size = check_size(height as usize, width as usize)?;
                let row = (width as usize).saturating_mul(channels as usize);
                let need = (height as usize).saturating_mul(row);
                let got = record.bytes.len();
                if got != need {
                    return Err(SampleFault::RecordLength { got, need }.into());
                }
                interleave(record.bytes, channels as usize, out.reshape(size, channels));
                Ok(())
            }
            // `Recipe::shape` refuses to decode these, so only a wrong caller gets here.
            Encoding::Opaque => {
                Err(SampleFault::UnknownFormat { len: record.bytes.len() }.into())
            }
        }
    }

    pub(crate) fn decode_picture(
        &mut self,
        picture: Picture<'_>,
        out: &mut Image,
    ) -> Result<(), SampleFault> {
        let size = picture.frame().size;
        let whole = Region::whole(size);
        picture.decode(&mut self.jpeg, &whole, Chroma::Upsampled)?;
        self.write_rows(&whole, out.reshape(size, 3));
        Ok(())
    }

    /// Decodes a record that was found to have `fault` by the slow path, which gives the pixels
    /// that Pillow gives; the fault again where Pillow refuses the record, too.
    pub(crate) fn recover(
        &mut self,
        record: Record<'_>,
        fault: SampleFault,
        out: &mut Image,
    ) -> Result<(), SampleFault> {
        self.recover_within(record, fault, (&mut BlocksLeft::default(), out))
    }

    /// As [`Self::recover`], for one of several JPEGs in a file, which have so many blocks left together.
    pub(crate) fn recover_within(
        &mut self,
        record: Record<'_>,
        fault: SampleFault,
        (left, out): (&mut BlocksLeft, &mut Image),
    ) -> Result<(), SampleFault> {
        self.damage = None;
        if !is_recoverable(&record, &fault) {
            return Err(fault);
        }
        let is_odd = matches!(fault, SampleFault::Unsupported { .. });
        let decoded = self.jpeg.decode_leniently(record.bytes, self.truncated, left);
        let lenient = match decoded {
            Err(SampleFault::Damaged { .. }) if !is_odd => return Err(fault),
            decoded => decoded?,
        };
        let size = lenient.frame.size;
        let rows = 0..lenient.n_rows.min(size.height as usize);
        let region = Region { rows, ..Region::whole(size) };
        let background = if lenient.frame.components().len() == 4 { 255 } else { 0 };
        let pixels = out.reshape(size, 3);
        pixels.fill(background);
        self.write_rows(&region, pixels);
        let what =
            lenient.damage.or((!is_odd).then_some("it does not follow the standard"));
        self.damage = what.map(|what| Damage { format: "JPEG", what });
        Ok(())
    }

    /// Writes rows of pixels that were decoded, the first at the beginning of `pixels`.
    fn write_rows(&mut self, region: &Region, pixels: &mut [u8]) {
        let row_bytes = region.columns.len().saturating_mul(3);
        let pixels = pixels.chunks_exact_mut(row_bytes);
        for (y, pixels) in region.rows.clone().zip(pixels) {
            let rgb = self.rows.row(&self.jpeg, y, &region.columns);
            colour::interleave(self.jpeg.level(), rgb, pixels);
        }
    }

    /// Gives back every buffer of more than `keep_bytes`; the bytes of those that it keeps.
    pub(crate) fn release_above(&mut self, keep_bytes: usize) -> usize {
        self.jpeg.release_above(keep_bytes)
    }
}

/// Decodes one record with memory of its own; see [`ImageDecoder::decode`].
///
/// # Errors
/// As there.
pub fn decode(record: Record<'_>, out: &mut Image) -> Result<(), OpsError> {
    ImageDecoder::default().decode(record, out)
}

/// Planes, one after the other (CIFAR's binary form), become interleaved pixels.
fn interleave(planes: &[u8], channels: usize, out: &mut [u8]) {
    let n_pixels = planes.len().checked_div(channels).unwrap_or(0).max(1);
    for (channel, plane) in planes.chunks_exact(n_pixels).enumerate() {
        for (pixel, &value) in out.chunks_exact_mut(channels).zip(plane) {
            pixel[channel] = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8], encoding: Encoding) -> Result<Image, OpsError> {
        let mut out = Image::default();
        decode(Record::new(bytes, encoding), &mut out)?;
        Ok(out)
    }

    #[test]
    fn planes_become_pixels() {
        let encoding = Encoding::Planar { height: 1, width: 2, channels: 3 };
        let image = decoded(&[1, 2, 10, 20, 100, 200], encoding).unwrap();
        assert_eq!(image.pixels(), [1, 10, 100, 2, 20, 200]);
    }

    #[test]
    fn a_planar_record_of_the_wrong_length_is_a_bad_sample() {
        let encoding = Encoding::Planar { height: 1, width: 2, channels: 3 };
        let fault = decoded(&[0; 5], encoding).unwrap_err();
        assert_eq!(
            fault.to_string(),
            "the record has 5 bytes where its data set promises 6"
        );
    }

    #[test]
    fn bytes_of_no_format_are_a_bad_sample() {
        for bytes in
            [&b""[..], b"GIF88a", b"\xff", b"\x89PN", b"P7 1 1", b"RIFF\0\0\0\0WAVE"]
        {
            let fault = decoded(bytes, Encoding::Image).unwrap_err();
            assert!(fault.to_string().contains("not a JPEG, PNG,"), "{fault}");
        }
    }
}
