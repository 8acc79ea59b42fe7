//! What the pixels of a TIFF are: the table of Pillow's modes (`OPEN_INFO`).

use super::super::samples::{Number, Samples};
use super::codecs::Codec;
use super::directory::{Bytes, Directory, Numbers, damaged, tag, unsupported};
use super::ycbcr::YCbCr;
use crate::error::SampleFault;

/// Samples of a pixel at most.
const MOST_SAMPLES: u32 = 6;

/// Numbers of a list by sample that tell as much as all that there are: one more than there may be.
const TELLING: usize = 7;

/// What the pixels are, and how they are stored.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) samples: Samples,
    /// Planes of which each has one colour, as far as they are read; 1 if there is but one. The fourth is an
    /// alpha that the others are multiplied by.
    pub(super) n_planes: usize,
    /// Whether the file calls its colours stored apart.
    pub(super) is_planar: bool,
    /// Bytes of a sample where each plane has one colour.
    pub(super) plane_bytes: Option<usize>,
    /// How pixels that share chroma are stored and converted.
    pub(super) ycbcr: Option<Box<YCbCr>>,
    /// The order of bits in every byte.
    pub(super) bits_order: Bits,
    /// Bits of a sample, and samples of a pixel of one plane.
    pub(super) sample: [usize; 2],
}

/// An order of bits ("FillOrder").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bits {
    HighFirst,
    LowFirst,
}

/// What the tags say about samples, as Pillow mends it.
struct Values {
    format: u32,
    bits: Vec<u32>,
    extra: Vec<u32>,
    is_planar: bool,
}

impl Values {
    fn of(directory: &Directory<'_>) -> Result<Self, SampleFault> {
        let one = |tag, default| directory.one(tag).unwrap_or(default);
        let all = |tag| directory.all(tag).unwrap_or(Numbers::NONE);
        let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let first = |numbers: Numbers<'_>| -> Vec<u32> {
            numbers.iter().take(TELLING).map(small).collect()
        };
        let mut formats = all(tag::SAMPLE_FORMAT).iter().map(small);
        let format = formats.next().unwrap_or(1);
        if formats.any(|other| other != format) {
            return Err(damaged("its samples are of different formats"));
        }
        let mut extra = all(tag::EXTRA_SAMPLES);
        let mut bits = first(all(tag::BITS));
        let mut n_bits = all(tag::BITS).len();
        if bits.is_empty() {
            (bits, n_bits) = (vec![1], 1);
        }
        let mut n_samples = one(tag::SAMPLES, 1);
        let is_planar = one(tag::PLANAR, 1) == 2;
        if is_planar && extra.len() > 0 && extra.iter().all(|extra| extra == 0) {
            n_bits = n_bits.saturating_sub(extra.len());
            let n_extra = u32::try_from(extra.len()).unwrap_or(u32::MAX);
            n_samples = n_samples.saturating_sub(n_extra);
            extra = Numbers::NONE;
        }
        bits.truncate(n_bits);
        let extra = first(extra);
        if n_samples > MOST_SAMPLES {
            return Err(damaged("it has too many samples per pixel"));
        }
        let n = n_samples as usize;
        if n > 1 && bits.len() == 1 {
            bits.resize(n, bits[0]);
        }
        bits.truncate(n);
        if bits.len() != n || bits.is_empty() {
            return Err(damaged("it has too few samples per pixel"));
        }
        Ok(Self { format, bits, extra, is_planar })
    }
}

/// What the table is asked for.
struct Key<'a> {
    photometric: u32,
    format: u32,
    fill: Bits,
    bits: &'a [u32],
    extra: &'a [u32],
    /// The order of bytes of samples that have two, and that of the file.
    order: Bytes,
    file: Bytes,
}

impl Kind {
    pub(super) fn of(
        directory: &Directory<'_>,
        codec: &Codec<'_>,
    ) -> Result<Self, SampleFault> {
        match codec {
            Codec::Jpeg(jpeg) if jpeg.is_inks() => {
                let inks = Samples::Cmyk { step: 4, at: [0, 1, 2, 3] };
                return Ok(Self { samples: inks, sample: [8, 4], ..Self::rgb() });
            }
            Codec::Jpeg(_) | Codec::OldJpeg(_) => return Ok(Self::rgb()),
            Codec::None | Codec::Packed(_) => {}
        }
        let one = |tag, default| directory.one(tag).unwrap_or(default);
        let Values { format, bits, extra, is_planar } = Values::of(directory)?;
        let n = bits.len();
        let is_raw = matches!(codec, Codec::None);
        let key = Key {
            photometric: one(tag::PHOTOMETRIC, 0),
            format,
            fill: if one(tag::FILL_ORDER, 1) == 2 {
                Bits::LowFirst
            } else {
                Bits::HighFirst
            },
            bits: &bits,
            extra: &extra,
            // libtiff delivers numbers in the machine's order.
            order: if is_raw { directory.order } else { Bytes::Little },
            file: directory.order,
        };
        if key.photometric == 6 && !is_raw {
            let is_one_plane = matches!(directory.one(tag::PLANAR), None | Some(1))
                && !directory.is_strange(tag::PLANAR);
            let is_plain =
                format == 1 && bits == [8; 3] && extra.is_empty() && is_one_plane;
            if !is_plain || one(tag::PREDICTOR, 1) != 1 {
                return Err(unsupported("unusual compressed YCbCr"));
            }
            let ycbcr = Some(Box::new(YCbCr::of(directory, None)?));
            return Ok(Self { ycbcr, ..Self::rgb() });
        }
        let samples = key.samples(directory)?;
        let sample_bits = bits[0] as usize;
        let mut kind = Self {
            samples,
            is_planar,
            n_planes: 1,
            plane_bytes: None,
            ycbcr: None,
            // libtiff has turned them.
            bits_order: if is_raw { key.fill } else { Bits::HighFirst },
            sample: [sample_bits, if is_planar { 1 } else { n }],
        };
        match (is_planar, n) {
            (true, 2..) => kind.in_planes(n, codec)?,
            // Pillow then takes the first letter of its mode for all of it.
            (true, _)
                if is_raw
                    && !matches!((key.photometric, sample_bits), (1, 1 | 8) | (3, 8)) =>
            {
                return Err(unsupported("planar inverted or 16-bit grey"));
            }
            _ => {}
        }
        Ok(kind)
    }

    fn in_planes(&mut self, n: usize, codec: &Codec<'_>) -> Result<(), SampleFault> {
        let is_raw = matches!(codec, Codec::None);
        let is_colour =
            matches!(self.samples, Samples::Bytes { at: [0, 1, 2] | [1, 3, 5], .. });
        let is_premultiplied =
            matches!(self.samples, Samples::Premultiplied { .. }) && n == 4 && !is_raw;
        let bytes = self.sample[0] / 8;
        if !(is_colour || is_premultiplied) || n < 3 || is_raw && (bytes != 1 || n > 3) {
            return Err(unsupported("planar grey, premultiplied or CMYK"));
        }
        self.n_planes = if is_premultiplied { 4 } else { 3 };
        self.plane_bytes = Some(bytes);
        self.samples = Samples::Bytes { step: 3, at: [0, 1, 2] };
        Ok(())
    }

    /// What JPEG-compressed strips and tiles are decoded to.
    fn rgb() -> Self {
        Self {
            samples: Samples::Bytes { step: 3, at: [0, 1, 2] },
            n_planes: 1,
            is_planar: false,
            plane_bytes: None,
            ycbcr: None,
            bits_order: Bits::HighFirst,
            sample: [8, 3],
        }
    }

    /// Bytes of a row of so many pixels, in one plane.
    pub(super) fn row_bytes(&self, width: usize) -> usize {
        match self.plane_bytes {
            Some(bytes) => width.saturating_mul(bytes),
            None => self.samples.row_bytes(width),
        }
    }

    /// Bytes of so many rows, and from one to the next, or to those that share chroma with the next.
    pub(super) fn part_bytes(&self, width: usize, rows: usize) -> (usize, usize) {
        match &self.ycbcr {
            Some(ycbcr) => (ycbcr.part_bytes(width, rows), ycbcr.block_row_bytes(width)),
            None => {
                let stride = self.row_bytes(width);
                (stride.saturating_mul(rows), stride)
            }
        }
    }
}

impl Key<'_> {
    fn samples(&self, directory: &Directory<'_>) -> Result<Samples, SampleFault> {
        let is_listed = match (self.photometric, self.bits, self.extra) {
            _ if self.fill == Bits::HighFirst => true,
            (0 | 1 | 3, [1 | 2 | 4 | 8], []) | (2, [8, 8, 8], []) => self.format == 1,
            (1, [16], []) => self.format == 1 && self.file == Bytes::Little,
            _ => false,
        };
        if !is_listed {
            return Err(unsupported("unusually ordered"));
        }
        match self.photometric {
            0 | 1 => self.grey(),
            2 if self.format == 1 => self.rgb(),
            3 if self.format == 1 => self.indexed(directory),
            5 if self.format == 1 => self.inks(),
            6 if self.format == 1 && self.bits == [8] && self.extra.is_empty() => {
                Ok(Samples::grey(8))
            }
            6 => Err(unsupported("YCbCr")),
            8 if self.format == 1
                && self.bits == [8, 8, 8]
                && self.extra.is_empty()
                && self.fill == Bits::HighFirst =>
            {
                Ok(Samples::Lab)
            }
            8 => Err(unsupported("unusual Lab")),
            _ => Err(unsupported("unusually coloured")),
        }
    }

    fn grey(&self) -> Result<Samples, SampleFault> {
        let unknown = || unsupported("unusually deep grey");
        let order =
            |little, big, order| if order == Bytes::Little { little } else { big };
        let file = self.file;
        let is_little = file == Bytes::Little;
        let number = match (self.photometric, self.format, self.bits, self.extra) {
            (0, 1, &[bits @ (1 | 2 | 4 | 8)], []) => {
                return Ok(Samples::inverted(bits as usize));
            }
            (1, 1, &[bits @ (1 | 2 | 4 | 8)], []) => {
                return Ok(Samples::grey(bits as usize));
            }
            (1, 2, [8], []) => return Ok(Samples::grey(8)),
            (1, 1, [8, 8], [0 | 2]) => return Ok(Samples::Bytes { step: 2, at: [0; 3] }),
            (1, 1, [12], []) if is_little => Number::Twelve,
            // Pillow does not invert these.
            (0, 1, [16], []) if is_little => Number::U16Le,
            (1, 1, [16], []) => order(Number::U16Le, Number::U16Be, self.order),
            // Nor does it know that libtiff has swapped these.
            (1, 2, [16], []) => order(Number::I16Le, Number::I16Be, file),
            (1, 1, [32], []) if is_little => Number::I32Le,
            (1, 2, [32], []) => order(Number::I32Le, Number::I32Be, file),
            (0 | 1, 3, [32], []) => order(Number::F32Le, Number::F32Be, file),
            _ => return Err(unknown()),
        };
        Ok(Samples::Number(number))
    }

    fn rgb(&self) -> Result<Samples, SampleFault> {
        let unknown = || unsupported("unusually deep RGB");
        let bits = *self.bits.first().ok_or_else(unknown)?;
        let n = self.bits.len();
        let is_uniform = self.bits.iter().all(|other| *other == bits);
        let is_premultiplied = match (n, self.extra) {
            (3, []) | (4, [] | [0 | 2]) => false,
            (4, [999]) if bits == 8 => false,
            (5, [0 | 2, 0]) | (6, [0 | 2, 0, 0]) if bits == 8 => false,
            (4, [1]) => true,
            (5, [1, 0]) | (6, [1, 0, 0]) if bits == 8 => true,
            _ => return Err(unknown()),
        };
        let high = usize::from(self.order == Bytes::Little);
        let [r, g, b, a] = match bits {
            8 if is_uniform => [0, 1, 2, 3],
            16 if is_uniform => [0, 2, 4, 6_usize].map(|at| at.saturating_add(high)),
            _ => return Err(unknown()),
        };
        let step = n.saturating_mul(bits as usize / 8);
        Ok(if is_premultiplied {
            Samples::Premultiplied { step, at: [r, g, b, a] }
        } else {
            Samples::Bytes { step, at: [r, g, b] }
        })
    }

    fn inks(&self) -> Result<Samples, SampleFault> {
        let high = usize::from(self.order == Bytes::Little);
        match (self.bits, self.extra) {
            ([8, 8, 8, 8], [])
            | ([8, 8, 8, 8, 8], [0])
            | ([8, 8, 8, 8, 8, 8], [0, 0]) => {
                Ok(Samples::Cmyk { step: self.bits.len(), at: [0, 1, 2, 3] })
            }
            ([16, 16, 16, 16], []) => {
                let at = [0, 2, 4, 6_usize].map(|at| at.saturating_add(high));
                Ok(Samples::Cmyk { step: 8, at })
            }
            _ => Err(unsupported("unusually deep CMYK")),
        }
    }

    fn indexed(&self, directory: &Directory<'_>) -> Result<Samples, SampleFault> {
        let map = directory.all(tag::COLOUR_MAP).ok_or(damaged("it has no palette"))?;
        let n = map.len() / 3;
        if map.len() > 256 * 3 || map.iter().any(|value| value > 0xffff) {
            return Err(damaged("its palette is too long"));
        }
        let high = |i: usize| map.get(i).map_or(0, |value| value.to_le_bytes()[1]);
        let plane =
            |plane: usize, i: usize| high(plane.saturating_mul(n).saturating_add(i));
        let colours: Vec<[u8; 3]> =
            (0..n).map(|i| [plane(0, i), plane(1, i), plane(2, i)]).collect();
        match (self.bits, self.extra) {
            (&[bits @ (1 | 2 | 4 | 8)], []) => {
                Ok(Samples::palette(bits as usize, &colours))
            }
            ([8, 8], [0 | 2]) => Ok(Samples::palette(8, &colours).every(2)),
            _ => Err(unsupported("unusually deep indexed")),
        }
    }
}
